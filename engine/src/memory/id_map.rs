//! Point id to slot: extendible hashing in small segments; the owner writes, any core reads, no pause on growth.
use super::{Domain, Pin};
use std::sync::Arc;
/// See module docs. Keys are any u64 (0 valid); slots are below `u32::MAX - 1`.
pub struct IdMap {}
impl IdMap {
    /// Empty; `seed` keys the hash so crafted ids cannot collide.
    pub fn new(domain: Arc<Domain>, seed: u64) -> Self {
        let _ = (domain, seed);
        todo!()
    }
    /// Any core: the slot of `id`.
    pub fn get(&self, pin: &Pin<'_>, id: u64) -> Option<u32> {
        let _ = (pin, id);
        todo!()
    }
    /// Owner only: the slot of `id` without a pin.
    pub fn get_owned(&self, id: u64) -> Option<u32> {
        let _ = id;
        todo!()
    }
    /// Owner only (single writer, checked in debug): maps `id` to `slot`, returns the previous slot. One atomic store for readers.
    pub fn insert(&self, id: u64, slot: u32) -> Option<u32> {
        let _ = (id, slot);
        todo!()
    }
    /// Owner only.
    pub fn remove(&self, id: u64) -> Option<u32> {
        let _ = id;
        todo!()
    }
    /// Entries.
    pub fn len(&self) -> usize {
        todo!()
    }
    /// No entries.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
    /// Bytes held, retired segments included.
    pub fn bytes(&self) -> usize {
        todo!()
    }
    /// Owner only: frees quiescent retired segments.
    pub fn reclaim(&self) {}
}
