//! Reads the vectors of a persistent collection once after it was opened, and compares them with their checksums.
//!
//! Opening a large collection reads no vectors, so vectors that the disk has lost or changed would show only as a wrong answer, or as the signal
//! (SIGBUS) that a page raises when it cannot be read. A collection with such a vector serves nothing from then on: its nearest points are unknown.

use crate::owner::{Collections, Owned};
use crate::slice::Slice;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Read at once, bytes.
const PIECE_BYTES: usize = 256 << 10;
/// Between two pieces, microseconds: 50 MB/s at most, which leaves the disk to searches.
const PAUSE_US: u64 = 5_000;
/// Rows compared between two looks at the clock, bytes: some 10 µs.
const STEP_BYTES: usize = 64 << 10;

/// A read that fails is repeated up to this many times, after a pause of so many microseconds: the device may be busy.
const TRIES: usize = 5;
const RETRY_US: u64 = 1_000_000;

/// The pause before a read is repeated, before anything is served.
const RETRY_BEFORE_SERVING_US: u64 = 200_000;

/// Compares all vectors of a collection that was opened just now, if they are few; else begins to.
pub async fn begin(collections: &Rc<Collections>, owned: Rc<Owned>) {
    let Some(row) = owned.vectors.borrow().as_ref().map(|vectors| vectors.row_bytes()) else { return };
    let slots = owned.writer.borrow().shared().stats().slots as usize;
    let bytes = slots.saturating_mul(row) as u64;
    let left = &collections.ctx().node().compared_before_serving;
    match left.try_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)) {
        Ok(_) => run(collections.clone(), owned, 0).await,
        Err(_) => collections.env().spawn_background(Box::pin(run(collections.clone(), owned, PAUSE_US))),
    }
}

/// Compares all vectors of a collection, however many they are, before anybody relies on it.
pub async fn compare_all(collections: &Rc<Collections>, owned: Rc<Owned>) {
    run(collections.clone(), owned, 0).await;
}

/// Reads what the collection held when this began, with a pause between two pieces; ends early when it is dropped, damaged or built anew.
async fn run(collections: Rc<Collections>, owned: Rc<Owned>, pause_us: u64) {
    let Some(vectors) = owned.vectors.borrow().clone() else { return };
    let env = collections.env().clone();
    let slots = owned.writer.borrow().shared().stats().slots as usize;
    let row = vectors.row_bytes();
    let (at_once, step) = ((PIECE_BYTES / row).max(1), (STEP_BYTES / row).max(1));
    let mut slice = Slice::begin(&env);
    for first in (0..slots).step_by(at_once) {
        if pause_us > 0 {
            env.sleep_us(pause_us).await;
        }
        let is_current = owned.vectors.borrow().as_ref().is_some_and(|now| Rc::ptr_eq(now, &vectors));
        if owned.dropped.get()
            || !is_current
            || owned.handle.damage.get().is_some()
            || collections.ctx().is_stopping()
        {
            return;
        }
        let mut tries = 0;
        let rows = loop {
            match vectors.read(first, at_once.min(slots - first)).await {
                Ok(rows) => break rows,
                Err(error) if tries == TRIES => {
                    return damaged(&owned, format!("vectors from slot {first} on cannot be read: {error}"));
                }
                Err(_) if pause_us == 0 => env.sleep_us(RETRY_BEFORE_SERVING_US).await,
                Err(_) => env.sleep_us(RETRY_US).await,
            }
            tries += 1;
        };
        for (index, part) in rows.chunks(step * row).enumerate() {
            let from = (first + index * step) as u32;
            let differs = {
                let pin = collections.ctx().pin();
                owned.handle.dense(&pin).space().differs(&pin, from, part)
            };
            if let Some(slot) = differs {
                let name = vectors.name();
                return damaged(
                    &owned,
                    format!("the vector of slot {slot} in {name} is not what was written"),
                );
            }
            slice.check().await;
        }
    }
    tracing::debug!(collection = owned.handle.name, slots, "all vectors are what was written");
}

fn damaged(owned: &Owned, why: String) {
    tracing::error!(collection = owned.handle.name, why, "collection is damaged and serves nothing");
    // One that is damaged already stays as it is.
    let _first_reason_counts = owned.handle.damage.set(why);
}
