//! A collection's slots as the lanes' tests need them: births, deaths, snapshots, reuse after quiescence.

use super::LaneHit;
use crate::memory::{Domain, Limbo};
use crate::slot::Slot;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Weyl sequence, mixed.
pub(crate) struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Small numbers often, large ones rarely.
    pub fn skewed(&mut self, n: u64) -> u64 {
        ((self.unit().powi(3)) * n as f64) as u64
    }
}

#[derive(Default)]
struct Life {
    id: AtomicU64,
    born: AtomicU64,
    died: AtomicU64,
}

/// What readers see of the slots.
pub(crate) struct Lives {
    lives: Vec<Life>,
    seq: AtomicU64,
}

impl Lives {
    /// A reader's snapshot; loaded after the pin and before the search.
    pub fn snapshot(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    pub fn admits(&self, slot: Slot, snapshot: u64) -> bool {
        let life = &self.lives[slot as usize];
        life.died.load(Ordering::Acquire) > snapshot && life.born.load(Ordering::Acquire) <= snapshot
    }

    pub fn id(&self, slot: Slot) -> u64 {
        self.lives[slot as usize].id.load(Ordering::Relaxed)
    }
}

/// Owner's side over a lane whose documents are of type `D`.
pub(crate) struct Bed<D> {
    pub lives: Arc<Lives>,
    pub domain: Arc<Domain>,
    pub points: HashMap<u64, (Slot, D)>,
    seq: u64,
    fresh: Slot,
    free: Vec<Slot>,
    dead: Limbo<(Slot, D)>,
}

impl<D: Clone> Bed<D> {
    pub fn new(domain: Arc<Domain>, slots: usize) -> Bed<D> {
        Bed {
            lives: Arc::new(Lives {
                lives: (0..slots).map(|_| Life::default()).collect(),
                seq: AtomicU64::new(0),
            }),
            domain,
            points: HashMap::new(),
            seq: 0,
            fresh: 0,
            free: Vec::new(),
            dead: Limbo::new(),
        }
    }

    pub fn slots_used(&self) -> usize {
        self.fresh as usize
    }

    /// Upserts: `insert` indexes the document before its birth. Returns the document replaced, whose slot is dead but
    /// still indexed.
    pub fn put(
        &mut self,
        rng: &mut Rng,
        id: u64,
        document: D,
        insert: impl FnOnce(Slot, &D),
    ) -> Option<(Slot, D)> {
        // A random free slot, so that lists are not written in order.
        let slot = if self.free.is_empty() {
            self.fresh += 1;
            self.fresh - 1
        } else {
            let at = rng.below(self.free.len() as u64) as usize;
            self.free.swap_remove(at)
        };
        insert(slot, &document);
        self.seq += 1;
        let life = &self.lives.lives[slot as usize];
        life.id.store(id, Ordering::Relaxed);
        life.born.store(self.seq, Ordering::Release);
        life.died.store(u64::MAX, Ordering::Release);
        let old = self.points.insert(id, (slot, document));
        self.bury(old)
    }

    /// Deletes. Returns the document, as `put`.
    pub fn delete(&mut self, id: u64) -> Option<(Slot, D)> {
        self.seq += 1;
        let old = self.points.remove(&id);
        self.bury(old)
    }

    fn bury(&mut self, old: Option<(Slot, D)>) -> Option<(Slot, D)> {
        if let Some((slot, _)) = old {
            self.lives.lives[slot as usize].died.store(self.seq, Ordering::Release);
        }
        self.lives.seq.store(self.seq, Ordering::Release);
        if let Some(old) = &old {
            self.dead.push(&self.domain, old.clone());
        }
        old
    }

    /// Frees slots that no reader's snapshot includes: `remove` takes them out of the lane first.
    pub fn reclaim(&mut self, mut remove: impl FnMut(Slot, &D)) {
        while let Some((slot, document)) = self.dead.pop(&self.domain) {
            remove(slot, &document);
            self.free.push(slot);
        }
    }
}

/// The twin's result: all hits in order, cut to `k`.
pub(crate) fn best(mut hits: Vec<(u64, f32)>, k: usize) -> Vec<(u64, f32)> {
    hits.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap().then(a.0.cmp(&b.0)));
    hits.truncate(k);
    hits
}

/// Ids and scores of hits.
pub(crate) fn plain(hits: &[LaneHit]) -> Vec<(u64, f32)> {
    hits.iter().map(|hit| (hit.id, hit.score)).collect()
}

/// Stops readers also when the owner panics, so that a scope of threads ends.
pub(crate) struct Stopper<'a>(pub &'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
