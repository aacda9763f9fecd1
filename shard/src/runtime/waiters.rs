//! Tasks that wait for one thing to happen on this core, each for as long as it likes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::Waker;

/// A set of wakers that its members can leave.
#[derive(Default)]
pub(super) struct Waiters {
    waiting: RefCell<BTreeMap<u64, Waker>>,
    next_id: Cell<u64>,
}

impl Waiters {
    /// Adds a waiter, or changes the waker of the one that `id` names.
    pub(super) fn enter(&self, id: &mut Option<u64>, waker: &Waker) {
        let id = *id.get_or_insert_with(|| {
            let id = self.next_id.get();
            self.next_id.set(id + 1);
            id
        });
        let before = self.waiting.borrow_mut().insert(id, waker.clone());
        drop(before);
    }

    /// A waiter goes; one that was woken is gone already.
    pub(super) fn leave(&self, id: u64) {
        let waker = self.waiting.borrow_mut().remove(&id);
        drop(waker);
    }

    /// Wakes all that wait now.
    pub(super) fn wake_all(&self) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        for waker in waiting.into_values() {
            waker.wake();
        }
    }
}
