//! Freeing what has expired, in slices.

use super::view::is_live;
use super::writer::Writer;

impl Writer {
    /// Removes keys whose deadline has come, at most about `budget` of them, some 100 ns each. Returns whether there may be more.
    /// Nobody waits for it: an expired key is absent for everyone from its deadline on; this frees its memory.
    ///
    /// A clock that is set back does no harm: what was filed for a time that has passed before is looked at again, and freed no
    /// later than when the clock has caught up.
    pub fn sweep(&mut self, now_ms: u64, budget: usize) -> bool {
        let mut steps = budget;
        while let Some(due) = self.wheel.pop(now_ms, &mut steps) {
            let shared = self.shared.clone();
            let found = self.index.find(due.hash, |place| shared.entry(place).timer() == due.timer);
            let Some((slot, place)) = found else {
                debug_assert!(false, "an item goes with its key");
                self.wheel.discard(due.timer);
                continue;
            };
            let entry = shared.entry(place);
            let deadline_ms = entry.deadline_ms();
            if is_live(deadline_ms, now_ms) {
                self.wheel.file_again(due, deadline_ms);
                continue;
            }
            self.wheel.discard(due.timer);
            entry.set_timer(0);
            self.stats.expired += 1;
            self.remove(slot, place);
        }
        steps == 0
    }
}
