//! The sweep, on core 0, that evicts the collections that nobody uses. When memory is nearly full, those that were not used for longest are
//! evicted earlier.

use super::Core;
use super::cold::Cause;
use super::room::Attempt;
use crate::error::OpError;
use ahash::HashMap;
use std::rc::Rc;

/// The time between two sweeps, milliseconds: a quarter of the time for which a collection must be unused, within these bounds.
const PERIOD_MS: std::ops::RangeInclusive<u64> = 10_000..=300_000;
/// Microseconds between two looks at the clock until the next sweep, so that a stop need not wait for it.
const POLL_US: u64 = 100_000;
/// The wait after an attempt to make room that has evicted nothing, microseconds; it doubles with each such attempt, within these bounds. An attempt
/// may send what has changed of every collection that could leave, and logs why none has left. Clients wait for room meanwhile.
const IN_VAIN_US: std::ops::RangeInclusive<u64> = 200_000..=2_000_000;

/// Decides when the next attempt to make room for writes begins.
struct Patience {
    not_before_ns: u64,
    pause_us: u64,
}

impl Patience {
    fn new() -> Patience {
        Patience { not_before_ns: 0, pause_us: *IN_VAIN_US.start() }
    }

    fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.not_before_ns
    }

    /// An attempt has ended.
    fn note(&mut self, attempt: Attempt, now_ns: u64) {
        match attempt {
            Attempt::Left => *self = Patience::new(),
            Attempt::InVain => {
                self.not_before_ns = now_ns + self.pause_us * 1_000;
                self.pause_us = (2 * self.pause_us).min(*IN_VAIN_US.end());
            }
            Attempt::NoneIdle => {}
        }
    }
}

impl Core {
    /// Evicts collections that were not used for long, as long as the node runs. For each collection the time begins when a sweep first sees it, by
    /// the monotonic clock of the node.
    pub(super) async fn sweep_unused(self: Rc<Self>) {
        let after_ns = self.options().backup.cold_after_ms.saturating_mul(1_000_000);
        if after_ns == 0 || self.check_cold_tier().is_err() {
            return;
        }
        let period_ns = (after_ns / 4).clamp(*PERIOD_MS.start() * 1_000_000, *PERIOD_MS.end() * 1_000_000);
        let mut seen: HashMap<u64, u64> = HashMap::default();
        let (mut due_ns, mut patience) = (self.env().now_ns(), Patience::new());
        while !self.is_stopping() {
            let now_ns = self.env().now_ns();
            if now_ns < due_ns {
                if patience.is_due(now_ns) {
                    let attempt = self.make_room_for_writes().await;
                    patience.note(attempt, self.env().now_ns());
                }
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
                // The collection waits for a build, or was dropped. Clients know of both.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_in_vain_become_rare_and_another_one_ends_that() {
        let (mut patience, mut now_ns, mut attempts) = (Patience::new(), 0, 0);
        let minute_ns = 60_000_000_000;
        while now_ns < minute_ns {
            if patience.is_due(now_ns) {
                attempts += 1;
                patience.note(Attempt::InVain, now_ns);
            }
            now_ns += POLL_US * 1000;
        }
        assert!((30..=36).contains(&attempts), "{attempts}");
        patience.note(Attempt::Left, now_ns);
        assert!(patience.is_due(now_ns));
        patience.note(Attempt::InVain, now_ns);
        assert!(patience.is_due(now_ns + IN_VAIN_US.start() * 1000));
    }
}
