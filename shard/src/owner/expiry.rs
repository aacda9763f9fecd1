//! Follows what expires, so that figures and scores of texts are those of the points that can still be found. It looks at the clock when
//! the next deadline comes, however seldom the expired are swept, if at all.

use crate::core::Core;
use crate::owner::indexer::Slice;
use std::rc::Rc;

/// The longest time to the next look, milliseconds: a shorter life may have been written meanwhile, or the clock have been set.
const LOOK_MS: u64 = 20;

/// And the shortest, milliseconds: deadlines that lie closer together are followed together.
const LOOK_MIN_MS: u64 = 5;

/// The task of one core.
pub async fn run(core: Rc<Core>) {
    let env = core.env().clone();
    while !core.is_stopping() {
        let mut sleep_ms = LOOK_MS;
        let mut slice = Slice::begin(&env);
        for owned in core.all_owned() {
            while !owned.dropped.get() && owned.writer.borrow_mut().follow_expiry(env.unix_ms()) {
                slice.check().await;
            }
            if let Some(next_ms) = owned.writer.borrow().next_expiry() {
                sleep_ms = sleep_ms.min(next_ms.saturating_sub(env.unix_ms()).max(LOOK_MIN_MS));
            }
            slice.check().await;
        }
        env.sleep_us(sleep_ms * 1000).await;
    }
}
