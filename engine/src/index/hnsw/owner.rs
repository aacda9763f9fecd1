//! State of the single writer behind a shared reference.
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value that one thread uses at a time. No lock: a second entrant is a broken promise (two owners) and panics.
pub(super) struct OwnerCell<T> {
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `enter` hands out one guard at a time (the `busy` flag, taken with Acquire and given back with Release), so
// the value moves between threads like behind a lock; hence `T: Send` is enough.
unsafe impl<T: Send> Sync for OwnerCell<T> {}

impl<T> OwnerCell<T> {
    pub(super) fn new(value: T) -> Self {
        OwnerCell { busy: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// # Panics
    /// When another owner method runs.
    pub(super) fn enter(&self) -> OwnerGuard<'_, T> {
        assert!(!self.busy.swap(true, Ordering::Acquire), "two owners change one graph at the same time");
        OwnerGuard { cell: self }
    }
}

pub(super) struct OwnerGuard<'a, T> {
    cell: &'a OwnerCell<T>,
}

impl<T> Deref for OwnerGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (`enter`).
        unsafe { &*self.cell.value.get() }
    }
}

impl<T> DerefMut for OwnerGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one (`enter`).
        unsafe { &mut *self.cell.value.get() }
    }
}

impl<T> Drop for OwnerGuard<'_, T> {
    fn drop(&mut self) {
        self.cell.busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "two owners")]
    fn a_second_owner_panics() {
        let cell = OwnerCell::new(1);
        let _first = cell.enter();
        let _second = cell.enter();
    }

    #[test]
    fn owners_follow_each_other() {
        let cell = OwnerCell::new(1);
        *cell.enter() += 1;
        assert_eq!(*cell.enter(), 2);
    }
}
