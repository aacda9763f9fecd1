//! Posting lists that one owner changes while every core searches them: what the sparse and the text lane have in common.
//!
//! # What a list is
//!
//! A posting is a slot and 32 bits of meaning to the lane. A list is one of two things, told apart by its *root*, one atomic
//! word:
//!
//! * *small*: one extent of up to 128 postings in the order they came;
//! * *large*: a directory of blocks, each of up to 128 postings in ascending order of slots with its slot range and a
//!   [`Summary`] that bounds what its postings can contribute, and a *tail*, one more extent of up to 128 postings in the
//!   order they came. The tail is the block that is being written: its reference stands in the directory's next entry.
//!
//! Extents (blocks, tails, directories) are rows of atomics in tables of size classes (`extents.rs`), so a reference is a
//! number and no reader can follow it out of bounds, whatever the owner does.
//!
//! # Invariants
//!
//! 1. *What a root leads to grows only behind the reader's back.* A root says how many entries of the directory and how
//!    many postings of the tail count. Those cells are never changed while a reader may hold the root, with one exception:
//!    a posting's value may become [`DEAD`].
//! 2. *Append* writes the cells behind the counted ones, then stores the root (Release). A full tail whose slots ascend
//!    behind the last block becomes a block as it lies, by one store of the root. Any other change writes fresh
//!    extents, stores the root, and retires the old ones; they are reused when no reader of that time is left.
//! 3. *Removal* marks the posting [`DEAD`] in place. A block half of whose postings are dead is written anew, together
//!    with a neighbour when both fit, so that lists shrink and merge; the owner does at most a bounded piece per call.
//! 4. *A slot has at most one live posting in a list.* Before a slot goes to another point its postings are marked; a
//!    reader whose snapshot includes the new point has loaded that snapshot after the marks, so it sees them. A reader
//!    with an older snapshot may find the old posting or the new one, and is told by `admit` that the slot is not its.
//!    Hence the rule for callers: *remove a slot's postings before the slot is born again, and load the snapshot
//!    before the search*. Postings of a dead slot may stay until no reader has a snapshot in which it lived.
//! 5. A list with no posting left is forgotten: its number goes to another list only after quiescence.
//!
//! Searches are exact: `search.rs` has the algorithm and the proof of its bounds.

mod counters;
mod cursor;
mod extents;
mod hit;
mod lists;
mod search;
#[cfg(test)]
pub(crate) mod test_bed;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use counters::LaneCounters;
pub(crate) use extents::Extent;
pub use hit::LaneHit;
pub(crate) use lists::{ListId, Lists};
pub(crate) use search::{Admission, Lane, LaneWalk, Scorer};
pub use search::{LaneScratch, LaneSearch, LaneStats};
pub(crate) use writer::ListsWriter;

use std::sync::atomic::AtomicU32;

/// Postings of a block, of a tail, and at most of a small list. Smaller blocks have tighter bounds and are skipped more
/// finely, larger ones have a smaller directory; 128 postings are 1 KiB.
pub(crate) const BLOCK: usize = 128;

/// The value of a removed posting. As a float it is not a number, as a frequency it is more than a document has.
pub(crate) const DEAD: u32 = u32::MAX;

/// What bounds the contributions of a set of postings, whatever the query.
pub(crate) trait Summary: Copy {
    /// 32-bit words of the stored form.
    const WORDS: usize;
    /// Of no posting.
    const EMPTY: Self;
    /// Also covers what `other` covers.
    fn merge(&mut self, other: &Self);
    /// Writes the stored form.
    fn store(&self, words: &[AtomicU32]);
    /// Reads the stored form.
    fn load(words: &[AtomicU32]) -> Self;
}
