//! The tail: slots written but not yet in the graph, in write order, searched exactly by every reader.
//!
//! A ring of slots between two positions that only grow. A reader loads both *before* it searches the graph; the owner
//! links slots into the graph before it moves `start` past them, so a slot is in the graph, in the reader's window, or both.
//!
//! Entries a reader may still have in its window are never overwritten: a slot enters the ring again only after it was
//! freed, which needs every reader that saw its former entry to have gone. So each slot has at most one entry that
//! matters, and a ring with one place per slot cannot run over.
use crate::memory::{Arena, ArenaError, Domain, Limbo};
use crate::slot::Slot;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Entries given back to the kernel at a time (256 KiB).
const RELEASE_ENTRIES: u64 = 65_536;

/// The readable ring.
pub(crate) struct Tail {
    ring: Arena<AtomicU32>,
    mask: u64,
    start: AtomicU64,
    end: AtomicU64,
}

/// Positions `start..end` as one reader found them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub start: u64,
    pub end: u64,
}

impl Tail {
    pub fn reserve(slots_max: usize) -> Result<Tail, ArenaError> {
        let capacity = slots_max.next_power_of_two();
        Ok(Tail {
            ring: Arena::reserve_to_grow(capacity, 1)?,
            mask: capacity as u64 - 1,
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
        })
    }

    #[inline]
    fn place(&self, position: u64) -> &AtomicU32 {
        &self.ring.cells((position & self.mask) as usize)[0]
    }

    /// Any core: the window; `start` first, so that it can only be too wide.
    pub fn window(&self) -> Window {
        self.window_from(self.start())
    }

    /// Any core: where it starts now. What is there stays readable while the caller is pinned.
    pub fn start(&self) -> u64 {
        self.start.load(Ordering::Acquire)
    }

    /// Any core: the window up to now from a start of this pin.
    pub fn window_from(&self, start: u64) -> Window {
        Window { start, end: self.end.load(Ordering::Acquire) }
    }

    /// The slot at a position of a window of this pin (or, for the owner, of now).
    #[inline]
    pub fn slot(&self, position: u64) -> Slot {
        self.place(position).load(Ordering::Relaxed)
    }

    /// Owner: appends.
    pub fn push(&self, slot: Slot) {
        let end = self.end.load(Ordering::Relaxed);
        self.ring.commit((end & self.mask) as usize + 1).expect("anonymous pages are there");
        self.place(end).store(slot, Ordering::Relaxed);
        self.end.store(end + 1, Ordering::Release);
    }

    /// Owner: everything before `position` is in the graph or dead.
    pub fn advance(&self, position: u64) {
        debug_assert!(position >= self.start.load(Ordering::Relaxed));
        debug_assert!(position <= self.end.load(Ordering::Relaxed));
        self.start.store(position, Ordering::Release);
    }

    /// Committed bytes, about: the window and what waits to be released.
    pub fn bytes(&self) -> u64 {
        let Window { start, end } = self.window();
        (end.saturating_sub(start) + 2 * RELEASE_ENTRIES).min(end).min(self.mask + 1) * 4
    }
}

/// The owner's bookkeeping of passed entries: their pages go back once no reader has them in its window. Without this
/// the ring would in time commit its whole reservation.
pub(super) struct Passed {
    waiting: Limbo<u64>,
    queued: u64,
    released: u64,
}

impl Passed {
    pub fn new() -> Passed {
        Passed { waiting: Limbo::new(), queued: 0, released: 0 }
    }

    pub fn reclaim(&mut self, tail: &Tail, domain: &Domain) {
        let capacity = tail.mask + 1;
        let Window { start, end } = tail.window();
        if start - self.queued >= RELEASE_ENTRIES && capacity > 2 * RELEASE_ENTRIES {
            self.queued = start;
            self.waiting.push(domain, start);
        }
        while let Some(position) = self.waiting.pop(domain) {
            // Places that a later turn of the ring has taken over are in use again.
            let from = self.released.max(end.saturating_sub(capacity));
            self.released = position;
            if from < position {
                let (place, entries) = (from & tail.mask, position - from);
                let before_wrap = entries.min(capacity - place);
                tail.ring.release(place as usize, (place + before_wrap) as usize);
                tail.ring.release(0, (entries - before_wrap) as usize);
            }
        }
    }
}
