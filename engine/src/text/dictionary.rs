//! Terms to lists: a hash table of the terms' hashes, and each term's bytes to tell it from another of the same hash.
//!
//! The id map knows 64-bit keys. A term's key is its hash or, when another term has that key, the next free number. A reader
//! compares the bytes it finds under a key with the term it looks for and goes on to the next key until there is none.
//! Two terms of one hash are next to impossible and must not be merged all the same.

use crate::memory::{Domain, IdMap, Pin, Rows};
use crate::postings::{Extent, ListId, Lists, ListsWriter, Summary};
use ahash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The readable side.
pub(super) struct Dictionary {
    keys: IdMap,
    /// Per list: the extent of its term's bytes, four to a cell, and their number.
    names: Rows<AtomicU64>,
    hasher: RandomState,
    /// Bits of the hash in use: all, except in tests.
    mask: u64,
}

impl Dictionary {
    pub fn new(domain: Arc<Domain>, seed: u64, mask: u64) -> Dictionary {
        let [a, b, c, d] =
            [1, 3, 5, 7].map(|odd: u64| seed.wrapping_mul(odd) ^ odd.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Dictionary {
            keys: IdMap::new(domain, seed),
            names: Rows::new(1),
            hasher: RandomState::with_seeds(a, b, c, d),
            mask,
        }
    }

    /// What terms are hashed with.
    pub fn hasher(&self) -> &RandomState {
        &self.hasher
    }

    /// Any core: the list of a term.
    pub fn find(&self, pin: &Pin<'_>, lists: &Lists, term: &str) -> Option<ListId> {
        self.walk(lists, term, |key| self.keys.get(pin, key)).1
    }

    /// Owner: the list of a term, or the key that a new one would take.
    pub fn find_owned(&self, lists: &Lists, term: &str) -> (u64, Option<ListId>) {
        self.walk(lists, term, |key| self.keys.get_owned(key))
    }

    fn walk(&self, lists: &Lists, term: &str, get: impl Fn(u64) -> Option<u32>) -> (u64, Option<ListId>) {
        let mut key = self.hasher.hash_one(term) & self.mask;
        loop {
            match get(key) {
                Some(list) if self.is(lists, list, term) => return (key, Some(list)),
                Some(_) => key = key.wrapping_add(1),
                None => return (key, None),
            }
        }
    }

    fn is(&self, lists: &Lists, list: ListId, term: &str) -> bool {
        let name = self.names.cells(list)[0].load(Ordering::Relaxed);
        if (name >> 32) as usize != term.len() {
            return false;
        }
        let cells = lists.cells(Extent::from_bits(name as u32));
        words(term).zip(cells).all(|(word, cell)| cell.load(Ordering::Relaxed) == word)
    }

    /// Any core: whether the name of a list begins with one of the prefixes; `None` behind the last list. A list that was dropped has any name.
    pub fn begins_with(&self, lists: &Lists, list: ListId, prefixes: &[&str]) -> Option<bool> {
        let name = self.names.get(list)?[0].load(Ordering::Relaxed);
        let length = (name >> 32) as usize;
        Some(prefixes.iter().any(|prefix| {
            if length < prefix.len().max(1) {
                return false;
            }
            let cells = lists.cells(Extent::from_bits(name as u32));
            prefix.as_bytes().chunks(4).zip(cells).all(|(bytes, cell)| {
                let word = cell.load(Ordering::Relaxed).to_le_bytes();
                word[..bytes.len()] == *bytes
            })
        }))
    }

    /// Any core: the name of a list, if it is a text.
    pub fn name(&self, lists: &Lists, list: ListId) -> Option<Box<str>> {
        let name = self.names.get(list)?[0].load(Ordering::Relaxed);
        let cells = lists.cells(Extent::from_bits(name as u32));
        let mut bytes: Vec<u8> =
            cells.iter().flat_map(|cell| cell.load(Ordering::Relaxed).to_le_bytes()).collect();
        bytes.truncate((name >> 32) as usize);
        String::from_utf8(bytes).ok().map(String::into_boxed_str)
    }

    /// Owner: gives a term, whose free key `find_owned` told, an empty list.
    pub fn insert<S: Summary>(
        &self,
        writer: &mut ListsWriter<S>,
        lists: &Lists,
        key: u64,
        term: &str,
    ) -> ListId {
        let list = writer.new_list();
        let extent = writer.allocate(term.len().div_ceil(4));
        for (word, cell) in words(term).zip(lists.cells(extent)) {
            cell.store(word, Ordering::Relaxed);
        }
        self.names.make(list);
        let name = u64::from(extent.bits()) | (term.len() as u64) << 32;
        self.names.cells(list)[0].store(name, Ordering::Relaxed);
        self.keys.insert(key, list);
        list
    }

    /// Owner: forgets the term under `key`, whose list is empty. A term that another one's search passes by stays, with its
    /// empty list: without it that search would end too early.
    pub fn remove<S: Summary>(&self, writer: &mut ListsWriter<S>, key: u64, list: ListId) {
        if self.keys.get_owned(key.wrapping_add(1)).is_some() {
            return;
        }
        self.keys.remove(key);
        writer.retire(Extent::from_bits(self.names.cells(list)[0].load(Ordering::Relaxed) as u32));
        writer.drop_list(list);
    }

    /// Owner: frees what the id map has replaced.
    pub fn reclaim(&self) {
        self.keys.reclaim();
    }

    /// Terms.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Committed bytes, terms' bytes apart.
    pub fn bytes(&self, lists: usize) -> usize {
        self.keys.bytes() + self.names.bytes(lists)
    }
}

/// The bytes of a term, four at a time.
fn words(term: &str) -> impl Iterator<Item = u32> {
    term.as_bytes().chunks(4).map(|bytes| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        u32::from_le_bytes(word)
    })
}
