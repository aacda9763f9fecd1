//! Where the entry of a key lies: a hash table by linear hashing, as every core reads it. Its owner's half is `index`.
//!
//! # Layout
//!
//! A *bucket* is one cache line: seven slots and a link to an overflow bucket of the same form. A slot holds the top 16 bits of
//! a key's hash and the entry's place in the pages, or zero. So a key that is there costs two cache lines, its bucket and its
//! entry, and one that is not there usually one.
//!
//! The table has `count` buckets. With `2^l <= count < 2^(l+1)`, a hash's low `l + 1` bits name its bucket if there is such a
//! one, else its low `l` bits do. Growing by one bucket splits exactly one: growth never pauses.
//!
//! # Invariants
//!
//! 1. A key that is there is in exactly one slot of the chain of its bucket (two while that bucket is being split), and stays in
//!    that slot as long as neither is it removed nor its bucket split: a new entry of the key is swung in, in one store.
//! 2. A split of bucket `a` into `a` and `b = count`: first the slots that belong to `b` are copied there, which nobody looks at
//!    yet; then `count` becomes `b + 1` (Release); then those slots of `a` are emptied (Release).
//! 3. `count` only grows, and a key that has moved never comes back.
//! 4. An overflow bucket is filled before it is linked. One that is empty after a split is taken out of its chain, keeps its own
//!    link, and is reused when no reader can be in it.
//!
//! # Reading
//!
//! Load `count`, search the chain, and if the key is not there, load `count` again: if the key's bucket is another one now,
//! search there. *A key that is there all the time is found:* suppose the search of `a` missed it. Then the key's slot was
//! emptied before it was looked at, by the last step of the split; the load of the emptied slot (or of whatever was
//! written there later) is an Acquire of a store that came after the new count, so the second load of `count` shows it, and
//! by invariant 3 the search ends in `b`. Each round needs a split of the key's own bucket, so there are at most as many as
//! doublings. A key that is removed and put back may be missed, rightly: it was absent at a moment of the search.

use super::words::Words;
use crate::memory::ArenaError;
use crate::memory::sync::{AtomicU64, Ordering};

/// Slots of a bucket.
pub(super) const SLOTS: usize = 7;
/// Words of a bucket: its slots and its link.
const ROW: usize = SLOTS + 1;

const PLACE_BITS: u32 = 48;
const PLACE: u64 = (1 << PLACE_BITS) - 1;
const TAG: u64 = !PLACE;

/// Number of the first word of an entry in the pages.
pub(super) type EntryOffset = u64;

/// A row of slots: a bucket or an overflow bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    Bucket(u64),
    Overflow(u64),
}

/// The table.
pub(super) struct Table {
    buckets: Words,
    overflow: Words,
    count: AtomicU64,
    capacity: u64,
}

impl Table {
    /// A table of one bucket that can grow to `capacity` and has as many overflow buckets. Reserves address space for them.
    pub(super) fn new(capacity: usize) -> Result<Table, ArenaError> {
        let words = capacity * ROW;
        Ok(Table {
            buckets: Words::reserve(words)?,
            overflow: Words::reserve(words)?,
            count: AtomicU64::new(1),
            capacity: capacity as u64,
        })
    }

    /// Any core: what `is` says of the place of an entry that may be the key's, if it says something. Lock-free.
    #[inline]
    pub(super) fn find<R>(&self, hash: u64, mut is: impl FnMut(EntryOffset) -> Option<R>) -> Option<R> {
        let mut bucket = bucket_of(hash, self.count.load(Ordering::Acquire));
        loop {
            let mut row = Row::Bucket(bucket);
            loop {
                let cells = self.row(row);
                for cell in &cells[..SLOTS] {
                    let word = cell.load(Ordering::Acquire);
                    if is_marked(word, hash)
                        && let Some(found) = is(place_of(word))
                    {
                        return Some(found);
                    }
                }
                match linked(&cells[SLOTS]) {
                    Some(next) => row = next,
                    None => break,
                }
            }
            let now = bucket_of(hash, self.count.load(Ordering::Acquire));
            if now == bucket {
                return None;
            }
            bucket = now;
        }
    }

    /// Any core: asks for the bucket's line.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let bucket = bucket_of(hash, self.count.load(Ordering::Relaxed));
        self.buckets.prefetch(bucket as usize * ROW);
    }

    /// Any core: places in the key's bucket that may be its entry's, for prefetching these; overflow is not looked at.
    #[inline]
    pub(super) fn likely(&self, hash: u64) -> impl Iterator<Item = EntryOffset> + '_ {
        let bucket = bucket_of(hash, self.count.load(Ordering::Acquire));
        let words = self.row(Row::Bucket(bucket))[..SLOTS].iter().map(|cell| cell.load(Ordering::Acquire));
        words.filter(move |&word| is_marked(word, hash)).map(place_of)
    }

    #[inline]
    pub(super) fn row(&self, row: Row) -> &[AtomicU64; ROW] {
        let (words, index) = match row {
            Row::Bucket(index) => (&self.buckets, index),
            Row::Overflow(index) => (&self.overflow, index),
        };
        let first = index as usize * ROW;
        words.cells(first, first + ROW).try_into().expect("as many")
    }

    /// Buckets.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Owner: one more bucket, which is filled.
    pub(super) fn set_count(&self, count: u64) {
        self.count.store(count, Ordering::Release);
    }

    /// Most buckets, and most overflow buckets.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Gives back the memory of buckets `first..end` of both kinds, which nobody uses any more.
    pub(super) fn release(&self, first: u64, end: u64) {
        let words = |row: u64| row.min(self.capacity) as usize * ROW;
        self.buckets.release(words(first), words(end));
        self.overflow.release(words(first), words(end));
    }

    /// Bytes of `rows` buckets.
    pub(super) fn bytes(rows: u64) -> usize {
        rows as usize * ROW * size_of::<u64>()
    }
}

/// The bucket of a hash among `count`.
#[inline]
pub(super) fn bucket_of(hash: u64, count: u64) -> u64 {
    let mask = count.next_power_of_two() - 1;
    let bucket = hash & u64::from(u32::MAX) & mask;
    if bucket < count { bucket } else { bucket & (mask >> 1) }
}

/// What a slot holds of an entry.
#[inline]
pub(super) fn word_of(hash: u64, place: EntryOffset) -> u64 {
    debug_assert!(place < PLACE);
    // Plus one: place 0 of tag 0 must not look like an empty slot.
    hash & TAG | (place + 1)
}

#[inline]
pub(super) fn place_of(word: u64) -> EntryOffset {
    (word & PLACE) - 1
}

#[inline]
fn is_marked(word: u64, hash: u64) -> bool {
    word != 0 && (word ^ hash) & TAG == 0
}

/// The overflow bucket that a link leads to.
#[inline]
pub(super) fn linked(cell: &AtomicU64) -> Option<Row> {
    cell.load(Ordering::Acquire).checked_sub(1).map(Row::Overflow)
}
