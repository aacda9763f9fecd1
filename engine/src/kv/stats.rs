//! What a store counts.

/// Counters since the store was made, and sizes now. Kept by the owner but for two that readers keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Values set, rewrites included.
    pub sets: u64,
    /// Keys removed by an operation.
    pub deletes: u64,
    /// Expired keys removed, by the sweeper, by eviction, or because they were written again.
    pub expired: u64,
    /// Keys evicted to make room, including expired keys.
    pub evictions: u64,
    /// Those among them that had not expired.
    pub evictions_live: u64,
    /// Bytes of those in the pages.
    pub evicted_live_bytes: u64,
    /// Pages emptied to make room.
    pub pages_evicted: u64,
    /// Records rescued from pages that were emptied to make room.
    pub eviction_relocations: u64,
    /// Their bytes.
    pub eviction_bytes_relocated: u64,
    /// Records copied by the reserve.
    pub reserve_relocations: u64,
    /// Their bytes.
    pub reserve_bytes_relocated: u64,
    /// Pages that the reserve has freed.
    pub reserve_pages_freed: u64,
    /// Values overwritten in place.
    pub in_place_updates: u64,
    /// Times that a reader met a value being rewritten and tried again.
    pub read_retries: u64,
    /// Times that a reader gave up (`Read::Contended`).
    pub read_fallbacks: u64,
    /// Writes refused for lack of room.
    pub rejects: u64,
    /// Entries the owner looked at because their key's hash has the same mark as another's.
    pub collisions: u64,
    /// Flushes.
    pub flushes: u64,

    /// Keys, expired ones that have not been removed yet included.
    pub keys: usize,
    /// Of these, keys with a deadline.
    pub keys_with_deadline: usize,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Pages of the budget.
    pub pages: usize,
    /// Pages that have memory: at most `pages`, and some more while readers hold up the reuse of old ones.
    pub pages_allocated: usize,
    /// Pages that can be written at once.
    pub pages_free: usize,
    /// Pages that wait for their readers.
    pub pages_waiting: usize,
    /// Bytes written in pages that are in use, dead entries included.
    pub used_bytes: usize,
    /// Of these, bytes of entries that are alive, headers and filling included.
    pub live_bytes: usize,
    /// Bytes of the table of keys, those of flushed ones that wait included.
    pub table_bytes: usize,
    /// Bytes of the wheel of deadlines, likewise.
    pub wheel_bytes: usize,
}

impl Stats {
    /// Adds the counters and sizes of another store. Bytes of a page are those of the larger one: pages of different sizes have no sum.
    pub fn add(&mut self, other: &Stats) {
        let Stats { page_bytes, .. } = *other;
        self.page_bytes = self.page_bytes.max(page_bytes);
        for (to, from) in [
            (&mut self.sets, other.sets),
            (&mut self.deletes, other.deletes),
            (&mut self.expired, other.expired),
            (&mut self.evictions, other.evictions),
            (&mut self.evictions_live, other.evictions_live),
            (&mut self.evicted_live_bytes, other.evicted_live_bytes),
            (&mut self.pages_evicted, other.pages_evicted),
            (&mut self.eviction_relocations, other.eviction_relocations),
            (&mut self.eviction_bytes_relocated, other.eviction_bytes_relocated),
            (&mut self.reserve_relocations, other.reserve_relocations),
            (&mut self.reserve_bytes_relocated, other.reserve_bytes_relocated),
            (&mut self.reserve_pages_freed, other.reserve_pages_freed),
            (&mut self.in_place_updates, other.in_place_updates),
            (&mut self.read_retries, other.read_retries),
            (&mut self.read_fallbacks, other.read_fallbacks),
            (&mut self.rejects, other.rejects),
            (&mut self.collisions, other.collisions),
            (&mut self.flushes, other.flushes),
        ] {
            *to += from;
        }
        for (to, from) in [
            (&mut self.keys, other.keys),
            (&mut self.keys_with_deadline, other.keys_with_deadline),
            (&mut self.pages, other.pages),
            (&mut self.pages_allocated, other.pages_allocated),
            (&mut self.pages_free, other.pages_free),
            (&mut self.pages_waiting, other.pages_waiting),
            (&mut self.used_bytes, other.used_bytes),
            (&mut self.live_bytes, other.live_bytes),
            (&mut self.table_bytes, other.table_bytes),
            (&mut self.wheel_bytes, other.wheel_bytes),
        ] {
            *to += from;
        }
    }

    /// Bytes in pages that an entry cannot be put into before they are emptied: dead entries, and ends of pages where the next
    /// entry did not fit. Free and waiting pages do not count.
    pub fn reclaimable_bytes(&self) -> usize {
        let taken =
            self.pages_allocated.saturating_sub(self.pages_free + self.pages_waiting) * self.page_bytes;
        taken.max(self.used_bytes) - self.live_bytes
    }

    /// [`Self::reclaimable_bytes`] as a part of the memory that is allocated, 0 to 1.
    pub fn fragmentation(&self) -> f64 {
        let allocated = (self.pages_allocated * self.page_bytes).max(1);
        self.reclaimable_bytes() as f64 / allocated as f64
    }
}
