//! One value swung whole: readers see the old or the new, never a mixture.
//!
//! # Invariants
//!
//! 1. `current` always points to a live, fully written `T`.
//! 2. A replaced value goes into the limbo and is dropped only when quiescent. It never leaves this type, so a caller
//!    cannot free it too early.
//! 3. A reference is bound to the pin under which it was loaded and to the `Published`, and the pin is checked to be of
//!    the same domain; that is the whole safety argument of [`Published::load`].

use super::owned::Owned;
use super::sync::{AtomicPtr, Ordering};
use super::{Domain, Limbo, Pin};
use std::sync::Arc;

/// A pointer to an immutable `T` that one owner replaces and any core reads.
pub struct Published<T: Send + Sync> {
    current: AtomicPtr<T>,
    domain: Arc<Domain>,
    retired: Owned<Limbo<Retired<T>>>,
}

/// A replaced value: frees it when dropped. A raw pointer and not a box, because a box claims to be the only way to its
/// content while readers still hold references.
struct Retired<T>(*mut T);

// SAFETY: it owns the value like a box does.
unsafe impl<T: Send> Send for Retired<T> {}

impl<T> Drop for Retired<T> {
    fn drop(&mut self) {
        // SAFETY: made in `swap` from a pointer that had left `current`, hence the only owner; dropped by `reclaim` and
        // `swap` when quiescent, or with the whole `Published`, which no reader borrows then.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl<T: Send + Sync> Published<T> {
    /// Publishes `value` to the readers of `domain`.
    pub fn new(domain: Arc<Domain>, value: T) -> Self {
        Published {
            current: AtomicPtr::new(Box::into_raw(Box::new(value))),
            domain,
            retired: Owned::new(Limbo::new()),
        }
    }

    /// The current value, valid while pinned. Two loads under one pin may differ. Panics when `pin` is of another domain.
    #[inline]
    pub fn load<'p>(&'p self, pin: &'p Pin<'_>) -> &'p T {
        pin.assert_of(&self.domain);
        // SAFETY: the pointer came from a box (`new`, `swap`) whose writes the Acquire load makes visible. If it is
        // retired meanwhile, quiescence keeps it until this pin, which outlives the reference, is gone; dropping
        // `self` frees it too, but the reference borrows `self`.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Owner only (a second writer panics): publishes `value`. The old one is dropped by a later `swap` or
    /// [`Self::reclaim`], once no reader can hold it.
    pub fn swap(&self, value: T) {
        let mut retired = self.retired.enter();
        let old = self.current.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        retired.push(&self.domain, Retired(old));
        while retired.pop(&self.domain).is_some() {}
    }

    /// Owner only: drops replaced values that no reader can hold any more. Returns how many still wait.
    pub fn reclaim(&self) -> usize {
        let mut retired = self.retired.enter();
        while retired.pop(&self.domain).is_some() {}
        retired.len()
    }
}

impl<T: Send + Sync> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: exclusive access: no reader holds a reference (they borrow `self`) and nobody else frees the pointer.
        drop(unsafe { Box::from_raw(self.current.load(Ordering::Acquire)) });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    struct Counted<'a>(u64, &'a AtomicUsize);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn readers_keep_what_they_loaded_and_everything_is_dropped_once() {
        let drops = AtomicUsize::new(0);
        let domain = Domain::new(1);
        let reader = domain.participant(0);
        let published = Published::new(domain.clone(), Counted(1, &drops));
        let pin = reader.pin();
        let first = published.load(&pin);
        published.swap(Counted(2, &drops));
        published.swap(Counted(3, &drops));
        assert_eq!((first.0, published.load(&pin).0), (1, 3));
        assert_eq!((published.reclaim(), drops.load(Ordering::Relaxed)), (2, 0));
        drop(pin);
        assert_eq!((published.reclaim(), drops.load(Ordering::Relaxed)), (0, 2));
        drop(published);
        assert_eq!(drops.load(Ordering::Relaxed), 3);
    }

    #[test]
    #[should_panic(expected = "the pin belongs to another domain")]
    fn a_pin_of_another_domain_is_refused() {
        let published = Published::new(Domain::new(1), 1);
        let other = Domain::new(1).participant(0);
        published.load(&other.pin());
    }

    #[test]
    fn concurrent_readers_never_see_a_mixture() {
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        let domain = Domain::new(2);
        let published = Published::new(domain.clone(), vec![0u64; 16]);
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for index in 0..2 {
                let reader = domain.participant(index);
                let (published, done) = (&published, &done);
                scope.spawn(move || {
                    let mut newest = 0;
                    while !done.load(Ordering::Relaxed) {
                        let pin = reader.pin();
                        let value = published.load(&pin);
                        assert!(value.iter().all(|&v| v == value[0]));
                        assert!(value[0] >= newest, "a reader went back in time");
                        newest = value[0];
                    }
                });
            }
            for round in 1..=rounds {
                published.swap(vec![round; 16]);
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(published.reclaim(), 0);
    }
}
