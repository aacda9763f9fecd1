//! The owner's half of the table: what changes it. `table` says in which order, and why readers find every key meanwhile.

use super::table::{EntryOffset, Row, SLOTS, Table, bucket_of, linked, place_of, word_of};
use crate::memory::sync::{AtomicU64, Ordering};
use crate::memory::{ArenaError, Domain, Limbo};
use std::sync::Arc;

/// Keys per bucket, on average, at which a bucket is split. Those not split yet in a round have up to twice as many: at four,
/// nine lookups in ten end in the first line, and a key takes 16 bytes of table.
pub(super) const LOAD: usize = 4;

/// Buckets that the smallest table can grow to, and its overflow buckets: small stores have the same margin as large ones.
#[cfg(not(loom))]
const CAPACITY_MIN: usize = 64;
#[cfg(loom)]
const CAPACITY_MIN: usize = 4;

/// One slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexSlot {
    row: Row,
    index: usize,
}

/// The table with what only its owner knows.
pub(super) struct Index {
    table: Arc<Table>,
    domain: Arc<Domain>,
    keys: usize,
    /// Overflow buckets ever used, the first so many.
    overflow_made: u64,
    overflow_free: Vec<u64>,
    overflow_limbo: Limbo<u64>,
    /// Slots that a split moves.
    moving: Vec<(IndexSlot, u64)>,
    /// Entries of other keys with the same mark that were looked at.
    pub(super) collisions: u64,
}

impl Index {
    /// Empty, for at most about `keys` keys. Reserves address space, touches a page.
    pub(super) fn new(keys: usize, domain: Arc<Domain>) -> Result<Index, ArenaError> {
        let table = Arc::new(Table::new(keys / LOAD + CAPACITY_MIN)?);
        Ok(Index {
            table,
            domain,
            keys: 0,
            overflow_made: 0,
            overflow_free: Vec::new(),
            overflow_limbo: Limbo::new(),
            moving: Vec::new(),
            collisions: 0,
        })
    }

    /// What readers read.
    pub(super) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Keys in the table, expired ones included.
    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    /// Bytes of buckets of both kinds.
    pub(super) fn bytes(&self) -> usize {
        Table::bytes(self.table.count() + self.overflow_made)
    }

    /// Buckets of both kinds that may have been touched.
    pub(super) fn rows(&self) -> u64 {
        self.table.count().max(self.overflow_made)
    }

    /// The slot whose entry `is` recognises.
    #[inline]
    pub(super) fn find(
        &mut self,
        hash: u64,
        mut is: impl FnMut(EntryOffset) -> bool,
    ) -> Option<(IndexSlot, EntryOffset)> {
        let mark = word_of(hash, 0);
        let mut row = self.bucket(hash);
        loop {
            let cells = self.table.row(row);
            for (index, cell) in cells[..SLOTS].iter().enumerate() {
                let word = cell.load(Ordering::Relaxed);
                if word != 0 && (word ^ mark) >> 48 == 0 {
                    let place = place_of(word);
                    if is(place) {
                        return Some((IndexSlot { row, index }, place));
                    }
                    self.collisions += 1;
                }
            }
            row = linked(&cells[SLOTS])?;
        }
    }

    /// Whether the next insertion is sure to find a slot.
    pub(super) fn has_room(&mut self) -> bool {
        self.overflow_left() > 0 || {
            self.recycle();
            self.overflow_left() > 0
        }
    }

    /// Overflow buckets that can be had at once.
    fn overflow_left(&self) -> usize {
        self.overflow_free.len() + (self.table.capacity() - self.overflow_made) as usize
    }

    /// Adds an entry whose key is not there, and splits a bucket when it is time; `hash_of` tells the hash of an entry's key.
    ///
    /// # Panics
    /// Where [`Self::has_room`] has said no.
    pub(super) fn insert(&mut self, hash: u64, place: EntryOffset, hash_of: impl FnMut(EntryOffset) -> u64) {
        self.insert_without_split(hash, place);
        if self.keys > self.table.count() as usize * LOAD {
            self.split(hash_of);
        }
    }

    /// The first half of [`Self::insert`].
    pub(super) fn insert_without_split(&mut self, hash: u64, place: EntryOffset) {
        let word = word_of(hash, place);
        let mut row = self.bucket(hash);
        let last = loop {
            let cells = self.table.row(row);
            if let Some(cell) = cells[..SLOTS].iter().find(|cell| cell.load(Ordering::Relaxed) == 0) {
                // Release: the entry is complete.
                cell.store(word, Ordering::Release);
                break None;
            }
            match linked(&cells[SLOTS]) {
                Some(next) => row = next,
                None => break Some(row),
            }
        };
        if let Some(last) = last {
            let fresh = self.take_overflow();
            self.table.row(Row::Overflow(fresh))[0].store(word, Ordering::Release);
            self.link(last, fresh);
        }
        self.keys += 1;
    }

    /// Points a slot to another entry of its key.
    pub(super) fn swing(&mut self, slot: IndexSlot, hash: u64, place: EntryOffset) {
        self.cell(slot).store(word_of(hash, place), Ordering::Release);
    }

    /// Takes a key out.
    pub(super) fn remove(&mut self, slot: IndexSlot) {
        self.cell(slot).store(0, Ordering::Release);
        self.keys -= 1;
    }

    /// Places of all entries whose keys are in `bucket`.
    pub(super) fn places_in(&self, bucket: u64) -> impl Iterator<Item = EntryOffset> + '_ {
        self.chain(Row::Bucket(bucket))
            .flat_map(|row| self.table.row(row)[..SLOTS].iter())
            .map(|cell| cell.load(Ordering::Relaxed))
            .filter(|&word| word != 0)
            .map(place_of)
    }

    /// Shows `look` the entries of the bucket that the next insertion splits, if it is the next one that does.
    pub(super) fn before_split(&self, look: impl FnMut(EntryOffset)) {
        let count = self.table.count();
        let due = count as usize * LOAD;
        if self.keys == due {
            self.places_in(split_from(count)).for_each(look);
        } else if self.keys + 1 == due {
            self.table.prefetch(split_from(count));
        }
    }

    /// Splits the next bucket, unless the table is as large as it can be.
    pub(super) fn split(&mut self, mut hash_of: impl FnMut(EntryOffset) -> u64) {
        let count = self.table.count();
        if count >= self.table.capacity() {
            return;
        }
        let from = split_from(count);
        let mut moving = std::mem::take(&mut self.moving);
        moving.clear();
        for row in self.chain(Row::Bucket(from)) {
            for (index, cell) in self.table.row(row)[..SLOTS].iter().enumerate() {
                let word = cell.load(Ordering::Relaxed);
                if word != 0 && bucket_of(hash_of(place_of(word)), count + 1) == count {
                    moving.push((IndexSlot { row, index }, word));
                }
            }
        }
        if moving.len() / SLOTS < self.overflow_left() {
            self.fill(Row::Bucket(count), &moving);
            self.table.set_count(count + 1);
            for &(slot, _) in &moving {
                self.cell(slot).store(0, Ordering::Release);
            }
            self.shorten(Row::Bucket(from));
        }
        self.moving = moving;
    }

    /// Writes slots into a bucket that is empty and that nobody looks at.
    fn fill(&mut self, bucket: Row, slots: &[(IndexSlot, u64)]) {
        let mut row = bucket;
        for (part, words) in slots.chunks(SLOTS).enumerate() {
            let fresh = if part == 0 { bucket } else { Row::Overflow(self.take_overflow()) };
            for (cell, (_, word)) in self.table.row(fresh).iter().zip(words) {
                cell.store(*word, Ordering::Release);
            }
            if let Row::Overflow(fresh) = fresh {
                self.link(row, fresh);
            }
            row = fresh;
        }
    }

    /// Takes empty overflow buckets out of a chain.
    fn shorten(&mut self, bucket: Row) {
        let mut before = bucket;
        while let Some(row) = linked(&self.table.row(before)[SLOTS]) {
            let cells = self.table.row(row);
            if cells[..SLOTS].iter().any(|cell| cell.load(Ordering::Relaxed) != 0) {
                before = row;
                continue;
            }
            let next = cells[SLOTS].load(Ordering::Relaxed);
            self.table.row(before)[SLOTS].store(next, Ordering::Release);
            if let Row::Overflow(index) = row {
                self.overflow_limbo.push(&self.domain, index);
            }
        }
    }

    fn chain(&self, bucket: Row) -> impl Iterator<Item = Row> + '_ {
        std::iter::successors(Some(bucket), |&row| linked(&self.table.row(row)[SLOTS]))
    }

    fn bucket(&self, hash: u64) -> Row {
        Row::Bucket(bucket_of(hash, self.table.count()))
    }

    fn cell(&self, slot: IndexSlot) -> &AtomicU64 {
        &self.table.row(slot.row)[slot.index]
    }

    fn link(&self, row: Row, overflow: u64) {
        self.table.row(row)[SLOTS].store(overflow + 1, Ordering::Release);
    }

    fn recycle(&mut self) {
        while let Some(index) = self.overflow_limbo.pop(&self.domain) {
            self.overflow_free.push(index);
        }
    }

    /// An empty overflow bucket.
    fn take_overflow(&mut self) -> u64 {
        self.recycle();
        let index = self.overflow_free.pop().unwrap_or_else(|| {
            assert!(self.overflow_made < self.table.capacity(), "the caller has asked for room");
            self.overflow_made += 1;
            self.overflow_made - 1
        });
        self.table.row(Row::Overflow(index)).iter().for_each(|cell| cell.store(0, Ordering::Relaxed));
        index
    }
}

/// The bucket that is split when there are `count`: under one bucket more, the keys of bucket `count` are those of this one whose
/// hash has the next bit set.
fn split_from(count: u64) -> u64 {
    count ^ (1 << count.ilog2())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Hashes of entries by place, in place of pages.
    struct Bed {
        index: Index,
        hashes: Vec<u64>,
    }

    impl Bed {
        fn new(keys: usize) -> Bed {
            Bed { index: Index::new(keys, Domain::new(1)).unwrap(), hashes: Vec::new() }
        }

        fn insert(&mut self, hash: u64) -> EntryOffset {
            let place = self.hashes.len() as EntryOffset;
            self.hashes.push(hash);
            assert!(self.index.has_room());
            self.index.insert(hash, place, |place| self.hashes[place as usize]);
            place
        }

        fn is_found(&self, place: EntryOffset) -> bool {
            let hash = self.hashes[place as usize];
            self.index.table().find(hash, |found| (found == place).then_some(())).is_some()
        }
    }

    fn scattered(n: u64) -> u64 {
        (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xD6E8_FEB8_6659_FD93)
    }

    #[test]
    fn a_growing_table_finds_everything_and_nothing_else() {
        let mut bed = Bed::new(20_000);
        for n in 0..20_000 {
            let place = bed.insert(scattered(n));
            assert!(bed.is_found(place));
        }
        assert!((0..20_000).all(|place| bed.is_found(place)));
        assert!(bed.index.table().find(scattered(20_001), |_| None::<()>).is_none());
        assert_eq!(bed.index.table().count(), 20_000 / LOAD as u64);
        let per_key = bed.index.bytes() / 20_000;
        assert!(per_key <= 20, "{per_key} bytes per key");
        let all: usize =
            (0..bed.index.table().count()).map(|bucket| bed.index.places_in(bucket).count()).sum();
        assert_eq!((all, bed.index.keys()), (20_000, 20_000));
    }

    #[test]
    fn slots_are_swung_emptied_and_used_again() {
        let mut bed = Bed::new(1000);
        let mut live = HashMap::new();
        for n in 0..6_000u64 {
            let hash = scattered(n % 500);
            match live.remove(&hash) {
                Some(place) if n % 3 == 0 => {
                    let (slot, _) = bed.index.find(hash, |found| found == place).unwrap();
                    bed.index.remove(slot);
                    assert!(!bed.is_found(place));
                }
                Some(place) => {
                    let (slot, _) = bed.index.find(hash, |found| found == place).unwrap();
                    let next = bed.hashes.len() as EntryOffset;
                    bed.hashes.push(hash);
                    bed.index.swing(slot, hash, next);
                    assert!(!bed.is_found(place) && bed.is_found(next));
                    live.insert(hash, next);
                }
                None => {
                    live.insert(hash, bed.insert(hash));
                }
            }
        }
        assert_eq!(bed.index.keys(), live.len());
        assert!(live.values().all(|&place| bed.is_found(place)));
        assert!(bed.index.table().count() <= 500 / LOAD as u64 + 1, "holes are filled");
    }

    #[test]
    fn keys_with_one_hash_make_a_chain_and_not_an_error() {
        let mut bed = Bed::new(1000);
        let places: Vec<EntryOffset> = (0..200).map(|_| bed.insert(42)).collect();
        assert!(places.iter().all(|&place| bed.is_found(place)));
        for place in places {
            let (slot, _) = bed.index.find(42, |found| found == place).unwrap();
            bed.index.remove(slot);
        }
        assert_eq!(bed.index.keys(), 0);
        let before = bed.index.overflow_made;
        for _ in 0..200 {
            bed.insert(42);
        }
        assert_eq!(bed.index.overflow_made, before, "the chain is used again");
    }

    #[test]
    fn overflow_buckets_come_back_after_their_readers() {
        let mut bed = Bed::new(4000);
        let domain = bed.index.domain.clone();
        let reader = domain.participant(0);
        let pin = reader.pin();
        // All in bucket 0 until there are enough buckets: low bits differ only from bit 4 on.
        for n in 0..64u64 {
            bed.insert(n << 4);
        }
        let mut seen = 0;
        for n in 0..4000 {
            bed.insert(scattered(n));
            seen = seen.max(bed.index.overflow_limbo.len());
        }
        assert!(seen > 0 && bed.index.overflow_free.is_empty(), "the pin holds them");
        drop(pin);
        bed.index.recycle();
        assert!(!bed.index.overflow_free.is_empty());
        assert!((0..4064).all(|place| bed.is_found(place)));
    }
}
