//! Locks of names, on core 0: what creates, drops, replaces, evicts or promotes the collection of a name waits for whatever else does.
//!
//! Whoever needs the lock of the catalog as well takes that one second.

use crate::event::{Lock, LockGuard};
use ahash::HashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// The locks, by full name. A name that nobody holds or waits for takes no memory.
#[derive(Default)]
pub(super) struct NameLocks(RefCell<HashMap<String, Rc<Lock>>>);

/// Held until dropped.
pub(super) struct NameGuard {
    locks: Rc<NameLocks>,
    name: String,
    lock: Option<(Rc<Lock>, LockGuard)>,
}

impl NameLocks {
    /// Waits for the lock of a full name.
    pub async fn lock(self: &Rc<Self>, name: &str) -> NameGuard {
        // Made first and so dropped last, so that a wait that is given up leaves nothing.
        let mut guard = NameGuard { locks: self.clone(), name: name.to_owned(), lock: None };
        let lock = self.0.borrow_mut().entry(name.to_owned()).or_default().clone();
        let held = lock.lock().await;
        guard.lock = Some((lock, held));
        guard
    }

    /// Takes the lock of a full name if it is free.
    pub fn try_lock(self: &Rc<Self>, name: &str) -> Option<NameGuard> {
        let lock = self.0.borrow_mut().entry(name.to_owned()).or_default().clone();
        let held = lock.try_lock()?;
        Some(NameGuard { locks: self.clone(), name: name.to_owned(), lock: Some((lock, held)) })
    }
}

impl Drop for NameGuard {
    fn drop(&mut self) {
        drop(self.lock.take());
        let mut locks = self.locks.0.borrow_mut();
        // Whoever holds the lock or waits for it has it as well.
        if locks.get(&self.name).is_some_and(|lock| Rc::strong_count(lock) == 1) {
            locks.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};

    #[test]
    fn names_are_locked_one_by_one_and_leave_nothing() {
        let locks: Rc<NameLocks> = Rc::default();
        let first = block_on(locks.lock("a"));
        assert!(locks.try_lock("a").is_none());
        let other = locks.try_lock("b").expect("it is free");
        let mut given_up = Box::pin(locks.lock("a"));
        assert!(block_on(poll_once(&mut given_up)).is_none());
        let mut second = Box::pin(locks.lock("a"));
        assert!(block_on(poll_once(&mut second)).is_none());
        drop(given_up);
        drop(first);
        let second_held = block_on(poll_once(&mut second)).expect("it is its turn");
        assert!(locks.try_lock("a").is_none());
        drop((second_held, other));
        drop(second);
        assert_eq!(locks.0.borrow().len(), 0);
    }
}
