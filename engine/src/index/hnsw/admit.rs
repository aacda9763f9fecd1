//! Which of the slots a walk meets it may return.
use crate::slot::Slot;

/// Asked once about each slot that comes near enough to matter. Any `FnMut(Slot) -> bool` will do; one whose answers are waited for
/// can say what it will read, so that the memory comes while the walk goes on.
pub trait Admit {
    /// Whether the walk may return the slot.
    fn admits(&mut self, slot: Slot) -> bool;

    /// Whether it wants to know of slots before it is asked.
    #[inline]
    fn looks_ahead(&self) -> bool {
        false
    }

    /// The slot is about to be scored; it may be asked about soon.
    #[inline]
    fn scored(&self, _slot: Slot) {}

    /// The slot will be asked about next, with a few others.
    #[inline]
    fn near(&self, _slot: Slot) {}
}

impl<F: FnMut(Slot) -> bool> Admit for F {
    #[inline]
    fn admits(&mut self, slot: Slot) -> bool {
        self(slot)
    }
}
