//! The turns of long searches.

use crate::event::{Lock, LockGuard};
use std::cell::Cell;
use std::rc::Rc;

/// Who may search long on this core.
#[derive(Default)]
pub(super) struct LongTurns {
    pub lock: Rc<Lock>,
    pub waiting: Cell<usize>,
    /// Taken when the core stops, and never given back.
    pub last: Cell<Option<LockGuard>>,
}

/// The turn of one search.
pub(super) struct Turn(#[allow(dead_code, reason = "held until it is dropped")] pub LockGuard);

/// Counts one that waits.
pub(super) struct Waiting<'a>(pub &'a Cell<usize>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
