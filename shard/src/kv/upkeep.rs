//! What a core does for its shards of keys in the background: free what has expired, keep a reserve of pages, take down what a flush left, log what is owed.

use super::shard::Refused;
use crate::journal::Journal;
use crate::kv::store::Keys;
use crate::slice::Slice;
use std::rc::Rc;

/// Keys removed between two looks at the clock, some 100 ns each.
const SWEEP_STEP: usize = 256;
/// Bytes of a page walked between two looks at the clock.
const RELOCATE_STEP_BYTES: usize = 64 << 10;
/// Between two looks for what a flush has left, microseconds, and slices of one shard per look.
const TIDY_US: u64 = 100_000;
const TIDY_STEPS: usize = 64;

/// Sweeps each `interval_ms`; 0 = never.
pub async fn sweep(kv: Rc<Keys>, interval_ms: u64) {
    if interval_ms == 0 {
        return;
    }
    let env = kv.ctx.env().clone();
    while !kv.ctx.is_stopping() {
        env.sleep_us(interval_ms.saturating_mul(1000)).await;
        if kv.is_replaced() {
            continue;
        }
        let mut slice = Slice::begin(&env);
        let own = kv.owned.borrow().len();
        for index in 0..own {
            while kv.owned.borrow_mut()[index].writer.sweep(env.unix_ms(), SWEEP_STEP) {
                slice.check().await;
            }
            slice.check().await;
        }
    }
}

/// Looks each `interval_ms` whether shards want a reserve, and copies at most a page of each per look; 0 = never.
pub async fn reserve(kv: Rc<Keys>, interval_ms: u64) {
    if interval_ms == 0 || !kv.ctx.options().keys.relocating_eviction {
        return;
    }
    let env = kv.ctx.env().clone();
    while !kv.ctx.is_stopping() {
        env.sleep_us(interval_ms.saturating_mul(1000)).await;
        if kv.is_replaced() {
            continue;
        }
        let mut slice = Slice::begin(&env);
        let own = kv.owned.borrow().len();
        for index in 0..own {
            let mut left = kv.owned.borrow()[index].writer.page_bytes();
            while left > 0
                && kv.owned.borrow_mut()[index].writer.relocate_step(env.unix_ms(), RELOCATE_STEP_BYTES)
            {
                left = left.saturating_sub(RELOCATE_STEP_BYTES);
                slice.check().await;
            }
            slice.check().await;
        }
    }
}

/// Takes down what flushes leave, and tells the log what it had no room for when it happened.
pub async fn tidy(kv: Rc<Keys>) {
    let env = kv.ctx.env().clone();
    while !kv.ctx.is_stopping() {
        kv.ctx.pause(TIDY_US).await;
        let mut slice = Slice::begin(&env);
        let own = kv.owned.borrow().len();
        for index in 0..own {
            log_owed(&kv, index).await;
            // What waits for its readers, and what is too much for one look, waits for the next.
            for _ in 0..TIDY_STEPS {
                if !kv.owned.borrow_mut()[index].writer.tidy() {
                    break;
                }
                slice.check().await;
            }
        }
    }
}

/// Logs the evictions of a shard that the log had no room for. Writes do so as well; a shard that is not written needs this, or a restart brings
/// back what clients have seen gone.
async fn log_owed(kv: &Rc<Keys>, index: usize) {
    while kv.owned.borrow()[index].owes() && !kv.is_replaced() {
        let logged = kv.owned.borrow_mut()[index].log_owed(&*kv.ctx);
        match logged.map_err(|refused| *refused) {
            Ok(_) => {}
            // A full disk: the next look tries again.
            Err(Refused::NoRoom(purpose, bytes)) if kv.ctx.wait_for_room(purpose, bytes).await.is_err() => {
                return;
            }
            Err(Refused::NoRoom(..)) => {}
            // The log has failed, which it has reported, and nothing is durable any more.
            Err(Refused::Error(_)) => return,
        }
    }
}
