//! Filing many rows at once, when a collection is opened: their terms are collected, sorted, and filed dictionary by dictionary, so that a term costs
//! one look-up for all rows that have it, keys that are near each other cost one copy of a leaf, and a look-up finds in the caches what the one
//! before it has fetched.
//!
//! What is collected and not filed takes at most twice [`TERM_BYTES`] for each term, and twice the bytes of keys beyond the eighth. It is filed when
//! there are [`TERMS`] or [`REST_BYTES`] of these, so that with what the last row adds it takes about 10 MiB, however large the collection
//! is. An index counts it among its bytes.
//!
//! Terms are filed in the order of the keys and, under one key, of the slots. Sets of slots then grow at their ends if rows were collected by
//! ascending slot.

use super::columns::Columns;
use super::key::KeyRef;
use super::{CLASSES, CONTENT_KEY, Filing, PayloadIndex, terms_of};
use crate::memory::Attic;
use crate::payload::PayloadRow;
use crate::slot::Slot;
use ahash::HashMap;
use std::sync::atomic::Ordering;

/// Terms that are collected before they are filed.
const TERMS: usize = if cfg!(test) { 300 } else { 128 << 10 };
/// Bytes of keys that are collected before they are filed.
const REST_BYTES: usize = if cfg!(test) { 3000 } else { 2 << 20 };
const TERM_BYTES: usize = size_of::<Term>();
/// A field counts for so many terms: its lists take memory while they are empty.
const FIELD_TERMS: usize = (size_of::<FieldTerms>() + 64).div_ceil(TERM_BYTES);

/// One term of one row. What its key has beyond eight bytes lies in [`Batch::rests`].
#[derive(Clone, Copy)]
pub(super) struct Term {
    prefix: u64,
    rest_at: u32,
    pub(super) slot: Slot,
    len: u8,
}

impl Term {
    pub(super) fn key<'r>(&self, rests: &'r [u8]) -> KeyRef<'r> {
        let (at, bytes) = (self.rest_at as usize, usize::from(self.len).saturating_sub(8));
        KeyRef { prefix: self.prefix, rest: &rests[at..at + bytes], len: self.len }
    }

    fn order(&self, other: &Term, rests: &[u8]) -> std::cmp::Ordering {
        // Most keys differ in their first bytes.
        let by_key = self.prefix.cmp(&other.prefix).then_with(|| self.key(rests).cmp(&other.key(rests)));
        by_key.then(self.slot.cmp(&other.slot))
    }
}

/// The terms of one field.
struct FieldTerms {
    name: Box<str>,
    /// Slots that have the key.
    holders: Vec<Slot>,
    classes: [Vec<Term>; CLASSES],
    /// The list that is being filed, and how much of it is filed. The holders are the first, then come the classes.
    filed: (usize, usize),
}

/// Terms that are collected and not filed.
#[derive(Default)]
pub(super) struct Batch {
    fields: Vec<FieldTerms>,
    places: HashMap<Box<str>, usize>,
    /// The field after that of the last entry: most rows of a collection have the same keys in the same order.
    next: usize,
    rests: Vec<u8>,
    /// Terms collected since all were filed, with what holders and fields count for.
    terms: usize,
}

impl Batch {
    fn place_of(&mut self, name: &str) -> usize {
        let Batch { fields, places, next, terms, .. } = self;
        let known = match fields.get(*next) {
            Some(field) if *field.name == *name => Some(*next),
            _ => places.get(name).copied(),
        };
        let place = known.unwrap_or_else(|| {
            let classes = std::array::from_fn(|_| Vec::new());
            fields.push(FieldTerms { name: name.into(), holders: Vec::new(), classes, filed: (0, 0) });
            places.insert(name.into(), fields.len() - 1);
            *terms += FIELD_TERMS;
            fields.len() - 1
        });
        *next = if place + 1 < fields.len() { place + 1 } else { 0 };
        place
    }

    /// Bytes it takes, at most about.
    pub(super) fn bytes(&self) -> u64 {
        (2 * self.terms * TERM_BYTES + self.rests.capacity()) as u64
    }
}

impl PayloadIndex {
    /// Owner: as [`Self::insert`], but the terms are filed later, by [`Self::file_step`], and lead to the slot from then on. No reader has the index
    /// before all are filed.
    pub fn insert_later(&self, slot: Slot, row: PayloadRow<'_>) {
        let mut filing = self.owner.enter();
        let Filing { batch, columns, word, attic, .. } = &mut *filing;
        debug_assert_eq!(Columns::len(columns), 0, "columns are made for readers");
        let mut left = self.extent;
        for entry in row.stored_entries().filter(|entry| entry.key != CONTENT_KEY) {
            let place = batch.place_of(entry.key);
            let Batch { fields, rests, terms, .. } = &mut *batch;
            let field = &mut fields[place];
            field.holders.push(slot);
            *terms += 1;
            terms_of(entry.value, &self.hasher, &mut left, word, &mut |class, key| {
                let rest_at = rests.len() as u32;
                rests.extend_from_slice(key.rest);
                field.classes[class as usize].push(Term { prefix: key.prefix, rest_at, slot, len: key.len });
                *terms += 1;
            });
        }
        if row.next_deadline().is_some() {
            self.expiring.store(self.expiring.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        self.bytes.store(attic.held_bytes() as u64 + batch.bytes(), Ordering::Relaxed);
    }

    /// Owner: whether something was collected that is not filed; and whether it is so much that it is to be filed before the next row comes.
    pub fn collected(&self) -> (bool, bool) {
        let batch = &self.owner.enter().batch;
        (batch.terms > 0, batch.terms >= TERMS || batch.rests.len() >= REST_BYTES)
    }

    /// Owner: files at most `max` of the terms that were collected; whether there are more, which are filed before anything else is done with the
    /// index. The first step of a dictionary sorts its terms, which takes some milliseconds where all that was collected is of one.
    pub fn file_step(&self, max: usize) -> bool {
        let mut filing = self.owner.enter();
        let Filing { batch, attic, .. } = &mut *filing;
        let Batch { fields, rests, .. } = &mut *batch;
        if let Some(terms) = fields.last_mut() {
            self.file_some(terms, rests, max, attic);
            if terms.filed.0 > CLASSES {
                fields.pop();
            }
        }
        let has_more = !fields.is_empty();
        if !has_more {
            *batch = Batch::default();
        }
        // A copy of a leaf is a hundred times a term.
        attic.reclaim(usize::MAX);
        self.bytes.store(attic.held_bytes() as u64 + batch.bytes(), Ordering::Relaxed);
        has_more
    }

    /// Files at most `max` slots or terms of a list of a field, and goes on to the next list at its end.
    fn file_some(&self, terms: &mut FieldTerms, rests: &[u8], max: usize, attic: &mut Attic) {
        let FieldTerms { name, holders, classes, filed: (list, done) } = terms;
        let name: &str = name;
        let len = match list.checked_sub(1) {
            None => {
                self.file_holders(name, &holders[*done..holders.len().min(*done + max)], attic);
                holders.len()
            }
            Some(class) => {
                let terms = &mut classes[class];
                if *done == 0 {
                    terms.sort_unstable_by(|a, b| a.order(b, rests));
                }
                let some = &terms[*done..terms.len().min(*done + max)];
                if !some.is_empty() {
                    self.file_terms(name, class, some, rests, attic);
                }
                terms.len()
            }
        };
        *done = len.min(*done + max);
        if *done == len {
            (*list, *done) = (*list + 1, 0);
        }
    }
}
