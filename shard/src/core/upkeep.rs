//! Periodic chores of a core: giving back what no reader sees any more, and accounting for memory.

use super::Core;
use crate::account::MemoryUse;
use crate::ctx::GIVE_BACK_FULL_US;
use std::rc::Rc;

/// Between two rounds of chores, microseconds.
const HOUSEKEEPING_US: u64 = 50_000;
/// In one of so many rounds the resident set is looked at.
const LOOK_ROUNDS: u64 = 4;
/// While the process keeps much unused memory, each core asks the allocator to return it at most this often, in microseconds.
const GIVE_BACK_US: u64 = 5_000_000;
/// In one of so many rounds it is looked whether vectors of files have left memory.
const RESIDENCY_ROUNDS: u64 = 16;

impl Core {
    /// Measures what this core holds of points and keys.
    pub(crate) fn measure_memory(&self) {
        self.keys.measure_memory();
        self.collections.measure_memory();
    }

    /// Periodic chores of a core: give back what no reader sees any more, and account memory.
    pub(crate) async fn housekeeping(self: Rc<Self>) {
        let mut written_before = (0, 0, 0, 0);
        let mut rounds = 0u64;
        while !self.is_stopping() {
            self.ctx.pause(HOUSEKEEPING_US).await;
            rounds += 1;
            self.collections.drop_old_writers();
            if self.env().index() == 0 {
                self.node().catalog.reclaim();
            }
            let mut seqs = 0;
            for owned in self.collections.all_owned() {
                owned.handle.view.reclaim();
                owned.handle.config.reclaim();
                // A round in flight owns the right to free slots.
                if let Some(_guard) = owned.round_lock.try_lock() {
                    owned.writer.borrow_mut().reclaim();
                }
                if rounds % RESIDENCY_ROUNDS == owned.handle.uid % RESIDENCY_ROUNDS {
                    owned.writer.borrow().shared().spaces().iter().for_each(|space| space.note_residency());
                }
                seqs += owned.writer.borrow().seq();
            }
            self.measure_memory();
            let held = (self.keys.bytes(), self.node().account.held(MemoryUse::Collections));
            self.ctx.note_writes((held.0, held.1, seqs, self.ctx.log_frames()), &mut written_before);
            // What grows without being asked for (answers, buffers, the allocator's slack) shows here.
            if (self.env().index() == 0 && rounds.is_multiple_of(LOOK_ROUNDS))
                || self.node().account.wants_look()
            {
                self.ctx.look_at_memory();
            }
            if self.ctx.keeps_much_unseen() {
                let account = &self.node().account;
                let is_full = account.total() > account.limit_bytes();
                self.ctx.give_back_memory(if is_full { GIVE_BACK_FULL_US } else { GIVE_BACK_US });
            }
        }
    }
}
