//! The owner's private half of a structure that every core reads.
//!
//! Owner methods take `&self`, because readers share the same value, yet two of them must never run at once. The gate
//! turns that rule from a promise into a check: a second writer panics instead of corrupting memory, which keeps
//! the callers free of `unsafe`. An uncontended entry costs one atomic exchange (about 20 cycles).

use super::sync::{AtomicBool, Ordering};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

/// State that whoever holds the gate may change.
pub(crate) struct Owned<W> {
    busy: AtomicBool,
    state: UnsafeCell<W>,
}

// SAFETY: `state` is reached through the gate alone, by one thread at a time.
unsafe impl<W: Send> Sync for Owned<W> {}

impl<W> Owned<W> {
    pub(crate) fn new(state: W) -> Self {
        Owned { busy: AtomicBool::new(false), state: UnsafeCell::new(state) }
    }

    /// Enters as the owner. Panics when an owner is inside: that is a bug of the caller, and going on would tear.
    #[inline]
    pub(crate) fn enter(&self) -> OwnerGuard<'_, W> {
        let was_busy = self.busy.swap(true, Ordering::Acquire);
        assert!(!was_busy, "two owner calls at the same time on a structure with a single owner");
        OwnerGuard { gate: self }
    }
}

/// Being inside the gate.
pub(crate) struct OwnerGuard<'a, W> {
    gate: &'a Owned<W>,
}

impl<W> Deref for OwnerGuard<'_, W> {
    type Target = W;
    #[inline]
    fn deref(&self) -> &W {
        // SAFETY: the gate is ours until drop.
        unsafe { &*self.gate.state.get() }
    }
}

impl<W> DerefMut for OwnerGuard<'_, W> {
    #[inline]
    fn deref_mut(&mut self) -> &mut W {
        // SAFETY: the gate is ours until drop, and `&mut self` excludes other references through this guard.
        unsafe { &mut *self.gate.state.get() }
    }
}

impl<W> Drop for OwnerGuard<'_, W> {
    #[inline]
    fn drop(&mut self) {
        self.gate.busy.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_gate_lets_one_in_at_a_time() {
        let owned = Owned::new(1);
        *owned.enter() += 1;
        assert_eq!(*owned.enter(), 2);
    }

    #[test]
    #[should_panic(expected = "two owner calls at the same time")]
    fn a_second_owner_panics() {
        let owned = Owned::new(());
        let _inside = owned.enter();
        owned.enter();
    }
}
