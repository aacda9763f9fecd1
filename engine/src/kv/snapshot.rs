//! Reading out a whole store while it serves, for images.

use super::table::EntryOffset;
use super::view::is_live;
use super::writer::Writer;

/// How far a read-out has got.
#[derive(Clone, Debug)]
pub struct SnapshotCursor {
    era: u64,
    bucket: u64,
}

impl Writer {
    /// Begins a read-out.
    pub fn snapshot(&self) -> SnapshotCursor {
        SnapshotCursor { era: self.era, bucket: 0 }
    }

    /// Goes on with a read-out: calls `each(key, value, deadline_ms)` for entries of about `budget_bytes` (buckets are read whole,
    /// and each costs some bytes too). Returns `false` when it is complete.
    ///
    /// Every key that is there from the beginning to the end is seen at least once, whatever is written, split and
    /// copied between the calls; a key may be seen twice. It is seen as it is at the moment of the call, so what was
    /// seen is the state at the end once the effects since the beginning have been applied to it, in order.
    ///
    /// Buckets are read in ascending order, and keys only move to a bucket behind all there are. After a flush nothing is left
    /// that was there at the beginning, and the read-out is complete.
    pub fn snapshot_step(
        &mut self,
        cursor: &mut SnapshotCursor,
        now_ms: u64,
        budget_bytes: usize,
        mut each: impl FnMut(&[u8], &[u8], u64),
    ) -> bool {
        let mut left = budget_bytes;
        let (mut key, mut value) = (std::mem::take(&mut self.key), std::mem::take(&mut self.value));
        let mut places: Vec<EntryOffset> = Vec::new();
        while cursor.era == self.era && cursor.bucket < self.index.table().count() {
            places.clear();
            places.extend(self.index.places_in(cursor.bucket));
            let mut cost = 64;
            for &place in &places {
                let entry = self.shared.entry(place);
                let deadline_ms = entry.deadline_ms();
                if is_live(deadline_ms, now_ms) {
                    key.clear();
                    value.clear();
                    entry.append_key(&mut key);
                    self.shared.append_value(&entry, &mut value);
                    each(&key, &value, deadline_ms);
                }
                cost += 64 + key.len() + value.len();
            }
            cursor.bucket += 1;
            left = left.saturating_sub(cost);
            if left == 0 {
                break;
            }
        }
        self.key = key;
        self.keep_scratch(value);
        cursor.era == self.era && cursor.bucket < self.index.table().count()
    }

    /// Keeps the room for values, unless a huge one has made it huge.
    pub(super) fn keep_scratch(&mut self, value: Vec<u8>) {
        const KEPT_BYTES: usize = 1 << 20;
        if value.capacity() <= KEPT_BYTES {
            self.value = value;
        }
    }
}
