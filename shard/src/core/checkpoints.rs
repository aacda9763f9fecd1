//! When images are written: while the log is long, the disk short or a collection at rest, and at a stop. What they hold is the owner's
//! matter ([`crate::owner::checkpointer`], [`crate::kv::checkpoint`]).

use super::Core;
use crate::env::call_own;
use crate::log::{Keep, LogError};
use crate::owner::Owned;
use crate::owner::checkpointer::frees_room;
use ahash::HashMap;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Images that a core writes at once when it stops: one waits for the disk while others are made. Each holds three blocks in memory.
const IMAGES_AT_ONCE: usize = 4;
/// Looks at the log this often, microseconds.
const PERIOD_US: u64 = 100_000;
/// After an image that failed it waits, doubling that up to the latter with each failure: a full disk is written to its end each time.
/// So long it waits also where something that frees room waits for images.
const PAUSE_LEAST_US: u64 = 5 * PERIOD_US;
const PAUSE_MIN_US: u64 = 10 * PERIOD_US;
const PAUSE_MAX_US: u64 = 80 * PERIOD_US;
/// A collection without a write for this long is at rest, microseconds.
const IDLE_US: u64 = 5_000_000;
/// What makes an image of it worth writing is also at least this part of its points: after a dozen deltas comes a base,
/// which writes them all.
const IMAGE_RECORDS_PART: u64 = 64;
/// A stop waits no longer than this for images, microseconds; what they lack is in the log.
const STOP_US: u64 = 8_000_000;
const STOP_POLL_US: u64 = 1_000;

/// Whether opening `owned` after a stop would take so long that an image now is worth its writing.
fn worth_an_image(owned: &Owned, records_min: u64) -> bool {
    let writer = owned.writer.borrow();
    let uncovered = writer.seq().saturating_sub(owned.handle.covered_seq.load(Relaxed));
    // An image frees the space on the disk that vectors of a dropped space take.
    owned.checkpoint.borrow().has_dropped
        || writer.training_unsaved()
        || writer.codes_unsaved()
        || uncovered >= records_min.max(writer.shared().stats().live / IMAGE_RECORDS_PART)
}

/// Finds the collections that have had no write for a while.
#[derive(Default)]
struct Idle {
    looked_ns: u64,
    /// By uid, the sequence number at the last look.
    seqs: HashMap<u64, u64>,
}

impl Idle {
    /// Those of this core that are idle, indexed and worth an image; none before the next look is due.
    fn due(&mut self, core: &Core) -> Vec<u64> {
        let now_ns = core.env().now_ns();
        if now_ns - self.looked_ns < IDLE_US * 1000 {
            return Vec::new();
        }
        self.looked_ns = now_ns;
        let before = std::mem::take(&mut self.seqs);
        let mut due = Vec::new();
        for owned in core.collections.all_owned() {
            let (uid, seq) = (owned.handle.uid, owned.writer.borrow().seq());
            self.seqs.insert(uid, seq);
            if before.get(&uid) == Some(&seq)
                && owned.writer.borrow().tail_len() == 0
                && worth_an_image(&owned, core.options().image_records_min)
            {
                due.push(uid);
            }
        }
        due
    }
}

/// Writes images of what the next start would have to index again. Call when this core takes no more writes.
pub async fn finish(core: &Rc<Core>) {
    // A store that is not open yet has nothing that is not in the log or in an image, and keys of which a part was loaded must not become one.
    if core.ctx.log().is_none() || !core.is_open.get() {
        return;
    }
    let records_min = core.options().image_records_min;
    let mut due = core.collections.all_owned();
    due.retain(|owned| worth_an_image(owned, records_min));
    let env = core.env().clone();
    let left = Rc::new(Cell::new(due.len()));
    if core.keys().uncovered_keys_records() >= records_min {
        left.set(left.get() + 1);
        let (core, left) = (core.clone(), left.clone());
        env.spawn_background(Box::pin(async move {
            core.checkpoint_keys_reported(false).await;
            left.set(left.get() - 1);
        }));
    }
    let due: Rc<RefCell<Vec<u64>>> =
        Rc::new(RefCell::new(due.iter().map(|owned| owned.handle.uid).collect()));
    for _ in 0..due.borrow().len().min(IMAGES_AT_ONCE) {
        let (core, left, due) = (core.clone(), left.clone(), due.clone());
        env.spawn_background(Box::pin(async move {
            loop {
                let Some(uid) = due.borrow_mut().pop() else { return };
                core.collections.checkpoint_reported(uid, false).await;
                left.set(left.get() - 1);
            }
        }));
    }
    let mut waited_us = 0;
    while left.get() > 0 && waited_us < STOP_US {
        env.sleep_us(STOP_POLL_US).await;
        waited_us += STOP_POLL_US;
    }
}

/// The checkpoint task of one core.
pub async fn run(core: Rc<Core>) {
    let env = core.env().clone();
    let Some(log) = core.ctx.log() else { return };
    let mut reported = false;
    let mut pause_us = PAUSE_MIN_US;
    let mut idle = Idle::default();
    // Asked for each segment at that moment: this core's log holds records of what it owns only, and a collection that is
    // created while segments are being removed must not pass for a dropped one.
    let covered = |uid| {
        let collection = core.collections.owned(uid).map(|owned| owned.handle.covered_seq.load(Relaxed));
        collection.or_else(|| core.node().keys.covered(uid))
    };
    while !core.is_stopping() {
        core.ctx.pause(PERIOD_US).await;
        let mut failed = false;
        // First: puts wait for it.
        if core.keys().is_keys_log_long() {
            failed |= !core.checkpoint_keys_reported(reported).await;
        }
        let (is_short, is_low) = (core.ctx.is_disk_short(), core.node().reserve.is_low());
        if is_short || is_low || core.ctx.log_bytes() > core.options().log_bytes_soft {
            failed |= !core.checkpoint_all(log.pinned_by(&covered), reported).await;
            let mut trimmed = log.trim(&covered).await;
            if matches!(trimmed, Err(LogError::NoSpace(_))) && core.ctx.release_reserve().await {
                trimmed = log.trim(&covered).await;
            }
            if let Err(error) = trimmed {
                tracing::warn!(%error, "log segments not removed");
            }
        }
        let unsettled =
            core.collections.all_owned().into_iter().filter(|owned| owned.checkpoint.borrow().unsettled);
        for uid in unsettled.map(|owned| owned.handle.uid).collect::<Vec<_>>() {
            failed |= !core.collections.checkpoint_reported(uid, reported).await;
        }
        if !is_short {
            core.collections.all_owned().iter().for_each(|owned| owned.checkpoint.borrow_mut().tried = None);
        }
        if is_short {
            let freeing =
                core.collections.all_owned().into_iter().filter(|owned| frees_room(&core.collections, owned));
            for uid in freeing.map(|owned| owned.handle.uid).collect::<Vec<_>>() {
                failed |= !core.collections.checkpoint_reported(uid, reported).await;
            }
            if core.keys().keys_image_frees_room() {
                failed |= !core.checkpoint_keys_reported(reported).await;
            }
        }
        core.node().reserve.note_log_bytes(env.index(), log.closed_bytes());
        if env.index() == 0 {
            core.node().reserve.note_old_bytes(core.ctx.old_segments().live_bytes());
        }
        for uid in idle.due(&core) {
            failed |= !core.collections.checkpoint_reported(uid, reported).await;
        }
        // Until all is open, collections are loaded from old segments, and those that are not loaded yet must not pass for dropped ones.
        if core.is_open.get() && core.ctx.has_old_segments() {
            failed |= !retire_old_segments(&core, reported).await;
        }
        reported = failed;
        if failed {
            env.sleep_us(PAUSE_LEAST_US).await;
            let mut waited_us = PAUSE_LEAST_US;
            while waited_us < pause_us
                && !core.ctx.images_wanted.take()
                && !core.keys().is_keys_log_too_long()
            {
                env.sleep_us(PERIOD_US).await;
                waited_us += PERIOD_US;
            }
            pause_us = (2 * pause_us).min(PAUSE_MAX_US);
        } else {
            pause_us = PAUSE_MIN_US;
        }
    }
}

/// Checkpoints what old segments still hold, wherever it is owned, and removes the segments; false when it must be
/// tried again.
async fn retire_old_segments(core: &Rc<Core>, reported: bool) -> bool {
    let Some(disk) = core.env().disk() else { return true };
    let covered_by = |covered: HashMap<u64, u64>| {
        move |uid: u64| covered.get(&uid).copied().or_else(|| core.node().keys.covered(uid))
    };
    let mut done = true;
    let mut uids_of: Vec<Vec<u64>> = vec![Vec::new(); core.env().cores()];
    for uid in core.ctx.old_segments().pinned_by(&covered_by(core.covered())) {
        let owner = match core.node().keys.shard_of_uid(uid) {
            Some(shard) => core.node().keys.core_of(shard),
            None => core.node().owner_of(uid, core.env().cores()),
        };
        uids_of[owner].push(uid);
    }
    for (owner, uids) in uids_of.into_iter().enumerate().filter(|(_, uids)| !uids.is_empty()) {
        let written =
            call_own(core, owner, move |there| async move { there.checkpoint_all(uids, reported).await });
        done &= written.await;
    }
    let keep = core.ctx.keeper();
    let keep = keep.as_deref().map(|keep| keep as &dyn Keep);
    let trimmed = core.ctx.old_segments().trim_for(&*disk, keep, &covered_by(core.covered())).await;
    if let Err(error) = trimmed {
        tracing::warn!(%error, "old log segments not removed");
        done = false;
    }
    done
}

impl Core {
    /// The newest checkpointed sequence number of every collection; one that is missing has been dropped, if it is older than
    /// this run.
    fn covered(&self) -> HashMap<u64, u64> {
        let pin = self.pin();
        let catalog = self.node().catalog.load(&pin);
        let handles =
            catalog.by_name.values().flat_map(|handle| [handle].into_iter().chain(handle.tokens.get()));
        handles.map(|handle| (handle.uid, handle.covered_seq.load(Relaxed))).collect()
    }

    /// Writes an image of each collection of this core that `uids` name, and one of keys if any is of theirs; false when it must be tried
    /// again.
    async fn checkpoint_all(self: &Rc<Self>, uids: Vec<u64>, reported: bool) -> bool {
        let (keys, collections): (Vec<u64>, Vec<u64>) =
            uids.into_iter().partition(|uid| self.node().keys.covered(*uid).is_some());
        let mut done = true;
        for uid in collections {
            done &= self.collections.checkpoint_reported(uid, reported).await;
        }
        if !keys.is_empty() {
            done &= self.checkpoint_keys_reported(reported).await;
        }
        done
    }

    async fn checkpoint_keys_reported(self: &Rc<Self>, reported: bool) -> bool {
        let written = self.keys().checkpoint_keys().await;
        if let Err(error) = &written
            && !reported
        {
            tracing::error!(%error, "checkpoint of keys failed; it will be tried again");
        }
        written.is_ok()
    }
}
