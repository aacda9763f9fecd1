//! Follows what expires, so that figures and scores of texts are those of the points that can still be found. It looks at the clock when
//! the next deadline comes, however seldom the expired are swept, if at all.

use crate::ctx::QUIET_PAUSE_US;
use crate::owner::Collections;
use crate::owner::texts::settle_texts;
use crate::slice::Slice;
use futures_lite::future::or;
use std::rc::Rc;

/// The longest time to the next look while points are written, milliseconds: each of them may have a shorter life than those before. The same
/// while expired points are present, which count again when the clock is set back. Otherwise a core without writes looks less often.
const LOOK_MS: u64 = 20;

/// And the shortest, milliseconds: deadlines that lie closer together are followed together.
const LOOK_MIN_MS: u64 = 5;

/// The task of one core.
pub async fn run(collections: Rc<Collections>) {
    let env = collections.env().clone();
    while !collections.ctx().is_stopping() {
        // Writes that come during the look count as well.
        let writing = collections.ctx().await_writes();
        let (mut next, mut keeps_expired) = (None, false);
        let mut slice = Slice::begin(&env);
        for owned in collections.all_owned() {
            while !owned.dropped.get() && owned.writer.borrow_mut().points_mut().follow_expiry(env.unix_ms())
            {
                slice.check().await;
                settle_texts(&env, &owned.writer).await;
            }
            next = owned.writer.borrow().points().next_expiry().into_iter().chain(next).min();
            keeps_expired |= owned.writer.borrow().points().keeps_expired();
            slice.check().await;
        }
        let left_ms = next.map_or(u64::MAX, |at_ms| at_ms.saturating_sub(env.unix_ms()).max(LOOK_MIN_MS));
        if !collections.ctx().is_quiet() || keeps_expired || left_ms <= LOOK_MS {
            env.sleep_us(left_ms.min(LOOK_MS) * 1000).await;
            continue;
        }
        let written = async {
            writing.await;
            true
        };
        // The clock may be set meanwhile, so that no deadline is waited for to its end.
        let rested = async {
            env.sleep_us(left_ms.saturating_mul(1000).min(QUIET_PAUSE_US)).await;
            false
        };
        if or(written, rested).await {
            // Many writes may follow the first.
            env.sleep_us(LOOK_MS * 1000).await;
        }
    }
}
