//! The sweep, on core 0, that evicts the collections that nobody uses. When memory is nearly full, those that were not used for longest are
//! evicted earlier.

use super::Core;
use super::cold::Cause;
use crate::error::OpError;
use ahash::HashMap;
use std::rc::Rc;

/// The time between two sweeps, milliseconds: a quarter of the time for which a collection must be unused, within these bounds.
const PERIOD_MS: std::ops::RangeInclusive<u64> = 10_000..=300_000;
/// Microseconds between two looks at the clock until the next sweep, so that a stop need not wait for it.
const POLL_US: u64 = 100_000;

impl Core {
    /// Evicts collections that were not used for long, as long as the node runs. For each of them the time begins when a sweep first sees it. The
    /// time is that of the node's monotonic clock, which nobody sets.
    pub(super) async fn sweep_unused(self: Rc<Self>) {
        let after_ns = self.options().backup.cold_after_ms.saturating_mul(1_000_000);
        if after_ns == 0 || self.check_cold_tier().is_err() {
            return;
        }
        let period_ns = (after_ns / 4).clamp(*PERIOD_MS.start() * 1_000_000, *PERIOD_MS.end() * 1_000_000);
        let mut seen: HashMap<u64, u64> = HashMap::default();
        let mut due_ns = self.env().now_ns();
        while !self.is_stopping() {
            let now_ns = self.env().now_ns();
            if now_ns < due_ns {
                self.make_room_for_writes().await;
                self.env().sleep_us(((due_ns - now_ns) / 1000).clamp(1, POLL_US)).await;
                continue;
            }
            self.sweep_once(after_ns, &mut seen).await;
            due_ns = self.env().now_ns().saturating_add(period_ns);
        }
    }

    /// Evicts the collections that are due. `seen` says when each collection in memory was first seen.
    async fn sweep_once(self: &Rc<Self>, after_ns: u64, seen: &mut HashMap<u64, u64>) {
        let now_ns = self.env().now_ns();
        let mut due: Vec<(u64, String)> = Vec::new();
        {
            let pin = self.pin();
            let catalog = self.node().catalog.load(&pin);
            let mut still: HashMap<u64, u64> = HashMap::default();
            for handle in catalog.by_name.values() {
                let Some(activity) = &handle.activity else { continue };
                let first_ns = seen.get(&handle.uid).copied().unwrap_or(now_ns);
                still.insert(handle.uid, first_ns);
                let last_ns = activity.last_ns();
                let is_due = now_ns.saturating_sub(first_ns.max(last_ns)) >= after_ns;
                if is_due && activity.is_quiet() && handle.healthy().is_ok() {
                    due.push((last_ns, handle.name.clone()));
                }
            }
            *seen = still;
        }
        due.sort_unstable();
        for (last_ns, name) in due {
            if self.is_stopping() {
                return;
            }
            match self.evict(&name, Cause::Unused { last_ns }).await {
                Ok(_) => {}
                // It waits for a build, or was dropped. Clients know of both.
                Err(error @ (OpError::Conflict(_) | OpError::UnknownCollection(_))) => {
                    tracing::debug!(collection = name, %error, "an unused collection stays in memory");
                }
                Err(error) => {
                    tracing::error!(collection = name, %error, "an unused collection stays in memory; the next sweep tries again");
                }
            }
        }
    }
}
