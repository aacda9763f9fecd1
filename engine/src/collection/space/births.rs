//! Which slots have been born since a device last asked: one bit per slot, set by the owner, taken by one reader.
use crate::memory::{Arena, ArenaError};
use crate::slot::Slot;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bits; none where no device asks.
#[derive(Default)]
pub(super) struct Births(Option<Arena<AtomicU64>>);

impl Births {
    pub fn reserve(slots_max: usize) -> Result<Births, ArenaError> {
        Ok(Births(Some(Arena::reserve_to_grow(slots_max.div_ceil(64), 1)?)))
    }

    /// Owner: makes sure that the bits of the first `slots` slots can be written.
    pub fn commit(&self, slots: usize) -> std::io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |words| words.commit(slots.div_ceil(64)))
    }

    /// Owner: the slot has been filled. What fills it is in place for whoever takes the bit.
    #[inline]
    pub fn note(&self, slot: Slot) {
        if let Some(words) = &self.0 {
            words.cells(slot as usize / 64)[0].fetch_or(1 << (slot % 64), Ordering::Release);
        }
    }

    /// Takes the bits of slots `64 * index ..`.
    pub fn take_word(&self, index: usize) -> u64 {
        let Some(words) = &self.0 else { return 0 };
        let word = &words.cells(index)[0];
        // Most are zero, and a look does not take the line from the owner.
        if word.load(Ordering::Relaxed) == 0 { 0 } else { word.swap(0, Ordering::Acquire) }
    }
}
