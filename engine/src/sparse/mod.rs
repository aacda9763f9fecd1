//! Exact search over sparse vectors: [`SparseWriter`] is the owner's handle, [`SparseIndex`] what any core searches.
//!
//! The score of a point is the dot product over the dimensions it shares with the query, summed in `f64` in ascending
//! order of dimensions and rounded to `f32`. Every point that shares a dimension is a hit, whatever the sign of its
//! score; order is score descending, then id ascending. Pruning never changes the result (module `postings`).
//!
//! One inverted list per dimension, 8 bytes per component plus a directory of 6 %. Dimensions are any `u32`; those
//! without a posting cost nothing.
//!
//! # Slots and points
//!
//! The index knows slots only. The owner calls [`SparseWriter::insert`] before the point of a slot becomes visible, and
//! [`SparseWriter::remove`] after it died and before the slot is born again; best once no reader has a snapshot in
//! which it lived. Readers load their snapshot before they search and say by [`LaneSearch::admit`] which slots it includes.

mod scorer;
#[cfg(test)]
mod tests;

use crate::memory::{Domain, IdMap, Pin};
use crate::postings::{LaneCounters, ListId, Lists, ListsWriter};
use crate::slot::Slot;

pub use crate::postings::{LaneHit, LaneScratch, LaneSearch, LaneStats};
use scorer::{Product, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a sparse vector is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SparseError {
    /// Not strictly ascending.
    #[error("vector: sparse index {index} at position {position} does not ascend")]
    Unsorted {
        /// The dimension.
        index: u32,
        /// Where.
        position: usize,
    },
    /// NaN or infinity.
    #[error("vector: sparse value at position {0} is not a finite number")]
    NotFinite(usize),
}

/// Whether `vector` (dimension, value) ascends strictly and is finite. Empty is fine: no vector.
///
/// # Errors
/// The first position that breaks the rule.
pub fn check_sparse(vector: &[(u32, f32)]) -> Result<(), SparseError> {
    for (position, &(index, value)) in vector.iter().enumerate() {
        if position > 0 && vector[position - 1].0 >= index {
            return Err(SparseError::Unsorted { index, position });
        }
        if !value.is_finite() {
            return Err(SparseError::NotFinite(position));
        }
    }
    Ok(())
}

/// Counters and gauges of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SparseStats {
    /// Slots with a vector, those of dead points included until they are removed.
    pub vectors: u64,
    /// Committed bytes.
    pub bytes: u64,
    /// Postings in the lists of searched dimensions, since the index was made.
    pub postings: u64,
    /// Contributions computed by searches.
    pub scored: u64,
}

/// The shared, readable side.
pub struct SparseIndex {
    dimensions: IdMap,
    lists: Arc<Lists>,
    vectors: AtomicU64,
    counters: LaneCounters,
}

/// The owner's side: the only handle that changes anything.
pub struct SparseWriter {
    shared: Arc<SparseIndex>,
    lists: ListsWriter<Range>,
    /// A bit per slot that has a vector.
    occupied: Vec<u64>,
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn owned<T: Send>() {}
    shared::<SparseIndex>();
    owned::<SparseWriter>();
};

impl SparseIndex {
    /// Any core: the best of the slots that share a dimension with `query` (dimension, value), exactly.
    ///
    /// Cost: 1 to 3 ns per posting scored; how many are is in the [`LaneScratch::stats`] of the search. Skipping works best for queries
    /// whose weights differ, and not at all while fewer than `k` hits are admitted.
    ///
    /// # Errors
    /// As [`check_sparse`], of the query.
    ///
    /// # Panics
    /// When the pin is of another domain.
    pub fn search(
        &self,
        pin: &Pin<'_>,
        query: &[(u32, f32)],
        search: LaneSearch<'_, impl FnMut(Slot) -> bool, impl Fn(Slot) -> u64>,
    ) -> Result<(), SparseError> {
        search.out.clear();
        check_sparse(query)?;
        let mut lists: Vec<ListId> = Vec::with_capacity(query.len());
        let mut weights = Vec::with_capacity(query.len());
        for &(dimension, weight) in query {
            if let Some(list) = self.dimensions.get(pin, u64::from(dimension)) {
                lists.push(list);
                weights.push(weight);
            }
        }
        self.counters.add(&search.run(&self.lists, &lists, &Product { weights: &weights }));
        Ok(())
    }

    /// Any core.
    pub fn stats(&self) -> SparseStats {
        let searched = self.counters.sum();
        SparseStats {
            vectors: self.vectors.load(Ordering::Relaxed),
            bytes: self.bytes(),
            postings: searched.postings,
            scored: searched.scored,
        }
    }

    /// Any core: committed bytes: lists, what waits for readers, what is free for reuse, and the map of dimensions.
    pub fn bytes(&self) -> u64 {
        self.lists.bytes() + self.dimensions.bytes() as u64
    }
}

impl SparseWriter {
    /// An empty index for the readers of `domain`; `seed` keys the hash of dimensions.
    pub fn new(domain: Arc<Domain>, seed: u64) -> SparseWriter {
        let lists = Arc::new(Lists::new());
        let shared = Arc::new(SparseIndex {
            dimensions: IdMap::new(domain.clone(), seed),
            lists: lists.clone(),
            vectors: AtomicU64::new(0),
            counters: Default::default(),
        });
        SparseWriter { shared, lists: ListsWriter::new(lists, domain), occupied: Vec::new() }
    }

    /// What readers hold.
    pub fn shared(&self) -> &Arc<SparseIndex> {
        &self.shared
    }

    /// Indexes the vector of `slot`; an empty one changes nothing. About 30 ns per component, see `ListsWriter::insert`
    /// for the rare larger steps.
    ///
    /// # Errors
    /// As [`check_sparse`]; nothing has changed then.
    ///
    /// # Panics
    /// When the slot still has a vector: a point of another life would be found under it.
    pub fn insert(&mut self, slot: Slot, vector: &[(u32, f32)]) -> Result<(), SparseError> {
        check_sparse(vector)?;
        if vector.is_empty() {
            return Ok(());
        }
        assert!(!self.is_occupied(slot), "slot {slot} still has a sparse vector");
        self.set_occupied(slot, true);
        for &(dimension, value) in vector {
            let dimension = u64::from(dimension);
            let list = self.shared.dimensions.get_owned(dimension).unwrap_or_else(|| {
                let list = self.lists.new_list();
                self.shared.dimensions.insert(dimension, list);
                list
            });
            self.lists.insert(list, slot, value.to_bits(), &Range::of);
        }
        let vectors = self.shared.vectors.load(Ordering::Relaxed);
        self.shared.vectors.store(vectors + 1, Ordering::Relaxed);
        self.lists.seal(self.own_bytes());
        Ok(())
    }

    /// Takes the vector of `slot` out; `vector` is the one that was inserted. True when the slot had one. About 50 ns
    /// per component.
    pub fn remove(&mut self, slot: Slot, vector: &[(u32, f32)]) -> bool {
        if vector.is_empty() || !self.is_occupied(slot) {
            return false;
        }
        self.set_occupied(slot, false);
        for &(dimension, _) in vector {
            let list = self.shared.dimensions.get_owned(u64::from(dimension));
            let removed = list.is_some_and(|list| self.lists.remove(list, slot, &Range::of));
            debug_assert!(removed, "slot {slot} has no posting in dimension {dimension}");
            if let Some(list) = list
                && self.shared.lists.postings(list) == 0
            {
                self.shared.dimensions.remove(u64::from(dimension));
                self.lists.drop_list(list);
            }
        }
        let vectors = self.shared.vectors.load(Ordering::Relaxed);
        self.shared.vectors.store(vectors - 1, Ordering::Relaxed);
        self.lists.seal(self.own_bytes());
        true
    }

    /// Takes back what no reader can see any more. Writes do so by themselves, a few at a time; call it when they rest.
    pub fn reclaim(&mut self) {
        self.shared.dimensions.reclaim();
        self.lists.reclaim(self.own_bytes());
    }

    fn own_bytes(&self) -> usize {
        self.occupied.capacity() * size_of::<u64>()
    }

    fn is_occupied(&self, slot: Slot) -> bool {
        self.occupied.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    fn set_occupied(&mut self, slot: Slot, on: bool) {
        let word = slot as usize / 64;
        if word >= self.occupied.len() {
            self.occupied.resize(word + 1, 0);
        }
        let bit = 1 << (slot % 64);
        self.occupied[word] = if on { self.occupied[word] | bit } else { self.occupied[word] & !bit };
    }
}
