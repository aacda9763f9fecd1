//! Removes expired points, and expired keys of points. They are invisible from their deadline on; this only gives their memory
//! back.
//!
//! Nothing is logged: deadlines are absolute, so what comes back at replay is as expired as before.

use crate::owner::texts::settle_texts;
use crate::owner::{Collections, Owned};
use crate::slice::Slice;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Points looked up at once; the clock is looked at after each.
const SWEEP_STEP: usize = 64;

/// Removes the points of one collection that have expired.
pub async fn sweep_points(collections: &Rc<Collections>, owned: &Owned) {
    let env = collections.env();
    let mut slice = Slice::begin(env);
    loop {
        let expired = owned.writer.borrow().points().expired(env.unix_ms(), SWEEP_STEP);
        if expired.is_empty() || owned.dropped.get() {
            return;
        }
        for id in expired {
            let removed = owned.writer.borrow_mut().expire(id, env.unix_ms());
            owned.handle.counters.expired.fetch_add(u64::from(removed), Relaxed);
            slice.check().await;
            settle_texts(env, &owned.writer).await;
        }
    }
}

/// Sweeps every collection of this core each `interval_ms`; 0 = never.
pub async fn run(collections: Rc<Collections>, interval_ms: u64) {
    if interval_ms == 0 {
        return;
    }
    let env = collections.env().clone();
    while !collections.ctx().is_stopping() {
        env.sleep_us(interval_ms.saturating_mul(1000)).await;
        for owned in collections.all_owned() {
            sweep_points(&collections, &owned).await;
            let mut slice = Slice::begin(&env);
            loop {
                let expired = owned.writer.borrow().points().with_expired_keys(env.unix_ms(), SWEEP_STEP);
                if expired.is_empty() || owned.dropped.get() {
                    break;
                }
                for id in expired {
                    owned.writer.borrow_mut().drop_expired_keys(id, env.unix_ms());
                    slice.check().await;
                    settle_texts(&env, &owned.writer).await;
                }
            }
            owned.changed.notify();
        }
    }
}
