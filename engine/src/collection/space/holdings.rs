//! Which slots have a vector in a space. In a collection of one space that is every slot with a point, and nothing is kept for it. In one of
//! named spaces a point may lack a vector in some of them.
use super::{add, sub};
use crate::memory::{Arena, ArenaError};
use crate::slot::Slot;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which slots have a vector.
pub(super) enum Holdings {
    /// Every slot that holds a point has a vector here.
    All,
    /// The slots whose bit is set have a vector here.
    Some(Held),
    /// No slot has a vector here, because the space was dropped.
    None,
}

/// One bit for each slot, and a count.
pub(super) struct Held {
    words: Arena<AtomicU64>,
    /// Vectors of points that are present.
    live: AtomicU64,
}

impl Holdings {
    /// Every point has a vector.
    pub fn of_all() -> Holdings {
        Holdings::All
    }

    /// Points may lack a vector. No point has one so far.
    ///
    /// # Errors
    /// The kernel refuses a reservation.
    pub fn reserve(slots_max: usize) -> Result<Holdings, ArenaError> {
        let words = Arena::reserve_to_grow(slots_max.div_ceil(64), 1)?;
        Ok(Holdings::Some(Held { words, live: AtomicU64::new(0) }))
    }

    /// Owner: makes sure that the bits of the first `slots` slots can be written.
    pub fn commit(&self, slots: usize) -> std::io::Result<()> {
        match self {
            Holdings::Some(held) => held.words.commit(slots.div_ceil(64)),
            Holdings::All | Holdings::None => Ok(()),
        }
    }

    /// Any core: whether the point in a slot has a vector. For slots that the caller's snapshot shows, and for the owner.
    #[inline]
    pub fn contains(&self, slot: Slot) -> bool {
        match self {
            Holdings::All => true,
            // What fills a slot is in place before the points show it, so that whoever is shown the slot sees its bit.
            Holdings::Some(held) => held.word(slot).load(Ordering::Relaxed) >> (slot % 64) & 1 == 1,
            Holdings::None => false,
        }
    }

    /// Any core: as [`Self::contains`], for the slots `64 * index ..`, one bit each.
    pub fn word(&self, index: usize) -> u64 {
        match self {
            Holdings::All => u64::MAX,
            Holdings::Some(held) => held.words.cells(index)[0].load(Ordering::Relaxed),
            Holdings::None => 0,
        }
    }

    /// Any core: how many vectors of present points there are; `None` where every point has one.
    pub fn live(&self) -> Option<u64> {
        match self {
            Holdings::All => None,
            Holdings::Some(held) => Some(held.live.load(Ordering::Relaxed)),
            Holdings::None => Some(0),
        }
    }

    /// Owner: a slot that nobody can find has a vector from now on, or has none.
    pub fn set(&self, slot: Slot, holds: bool) {
        if let Holdings::Some(held) = self {
            let word = held.word(slot);
            let (old, bit) = (word.load(Ordering::Relaxed), 1 << (slot % 64));
            word.store(if holds { old | bit } else { old & !bit }, Ordering::Relaxed);
        }
    }

    /// Owner: one more present point has a vector here.
    pub fn count_in(&self) {
        if let Holdings::Some(held) = self {
            add(&held.live, 1);
        }
    }

    /// Owner: one present point less has a vector here.
    pub fn count_out(&self) {
        if let Holdings::Some(held) = self {
            sub(&held.live, 1);
        }
    }

    /// Bytes that the bits of so many slots take.
    pub fn bytes(&self, slots: u64) -> u64 {
        if matches!(self, Holdings::Some(_)) { slots.div_ceil(8) } else { 0 }
    }
}

impl Held {
    fn word(&self, slot: Slot) -> &AtomicU64 {
        &self.words.cells(slot as usize / 64)[0]
    }
}
