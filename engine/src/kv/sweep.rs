//! Freeing what has expired, in slices.

use super::view::is_live;
use super::wheel::{Due, Wheel};
use super::writer::Writer;

/// Keys whose buckets, then entries, are asked for before the first of them is looked up: the waits for memory overlap.
const BATCH: usize = 16;

impl Writer {
    /// Removes keys whose deadline has come, at most about `budget` of them, some 100 ns each. Returns whether there may be more.
    /// Nobody waits for it: an expired key is absent for everyone from its deadline on; this frees its memory.
    ///
    /// After a clock was set back keys are freed at most a second later than their deadline says; the first call files all deadlines anew,
    /// some 10 ns each. A key that had expired and was not freed yet is there again.
    pub fn sweep(&mut self, now_ms: u64, budget: usize) -> bool {
        self.wheel.follow_back(now_ms);
        let mut steps = budget;
        loop {
            let mut batch = [const { None }; BATCH];
            for place in &mut batch {
                let Some(due) = self.wheel.pop(now_ms, &mut steps) else { break };
                self.index.table().prefetch(due.hash);
                *place = Some(due);
            }
            let is_last = batch[BATCH - 1].is_none();
            for due in batch.iter().flatten() {
                self.index
                    .table()
                    .likely(due.hash)
                    .for_each(|place| self.shared.words.prefetch(place as usize));
            }
            batch.into_iter().flatten().for_each(|due| self.end(due, now_ms));
            if is_last {
                return steps == 0;
            }
        }
    }

    /// Sweeps before room is made, at most about `budget` keys; whether nothing that has expired by the last tick of the wheel is left.
    pub(super) fn is_swept(&mut self, now_ms: u64, budget: usize) -> bool {
        let tick = Wheel::tick_at(now_ms);
        if self.swept_tick != tick && !self.sweep(now_ms, budget) {
            self.swept_tick = tick;
        }
        self.swept_tick == tick
    }

    /// The key of an item that has fired ends, or has a later deadline now.
    fn end(&mut self, due: Due, now_ms: u64) {
        let Writer { shared, index, wheel, .. } = self;
        let Some((slot, place)) = index.find(due.hash, |place| shared.entry(place).timer() == due.timer)
        else {
            debug_assert!(false, "an item goes with its key");
            return wheel.discard(due.timer);
        };
        let entry = shared.entry(place);
        let deadline_ms = entry.deadline_ms();
        if is_live(deadline_ms, now_ms) {
            return wheel.file_again(due, deadline_ms);
        }
        wheel.discard(due.timer);
        entry.set_timer(0);
        self.stats.expired += 1;
        self.remove(slot, place);
    }
}
