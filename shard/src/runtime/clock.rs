//! Time: the kernel's clocks and a core's timers.
//!
//! Timers are ours rather than the executor's: its wheel looks at every timer on each poll of its rings (10,000 idle
//! connections with a timeout each would cost more than the requests), and only fires when the rings are polled at all.

use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::Waker;

/// Monotonic nanoseconds, comparable between threads of this process.
pub(super) fn monotonic_ns() -> u64 {
    clock(ClockId::Monotonic)
}

/// Wall clock, Unix milliseconds.
pub(super) fn unix_ms() -> u64 {
    clock(ClockId::Realtime) / 1_000_000
}

fn clock(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The timers of one core, by deadline.
#[derive(Default)]
pub(super) struct Timers {
    waiting: RefCell<BTreeMap<(u64, u64), Waker>>,
    next_id: Cell<u64>,
    /// Deadline of the first, `u64::MAX` when none: asked every turn.
    earliest_ns: Cell<Option<u64>>,
}

/// A timer that has been set; not `Clone`, so it is cancelled once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TimerKey((u64, u64));

impl Timers {
    /// Wakes `waker` at `deadline_ns`.
    pub(super) fn set(&self, deadline_ns: u64, waker: Waker) -> TimerKey {
        let key = (deadline_ns, self.next_id.get());
        self.next_id.set(key.1 + 1);
        self.waiting.borrow_mut().insert(key, waker);
        if self.earliest_ns.get().is_none_or(|earliest| deadline_ns < earliest) {
            self.earliest_ns.set(Some(deadline_ns));
        }
        TimerKey(key)
    }

    /// Replaces the waker of a timer that has not fired.
    pub(super) fn rewake(&self, key: &TimerKey, waker: &Waker) {
        if let Some(slot) = self.waiting.borrow_mut().get_mut(&key.0) {
            slot.clone_from(waker);
        }
    }

    /// Forgets a timer; one that has fired is gone already.
    pub(super) fn cancel(&self, key: TimerKey) {
        let removed = self.waiting.borrow_mut().remove(&key.0);
        if removed.is_some() && self.earliest_ns.get() == Some(key.0.0) {
            self.refresh();
        }
    }

    /// Deadline of the first timer.
    pub(super) fn earliest_ns(&self) -> Option<u64> {
        self.earliest_ns.get()
    }

    /// Wakes everything due; the count.
    pub(super) fn fire(&self, now_ns: u64) -> usize {
        if self.earliest_ns.get().is_none_or(|earliest| earliest > now_ns) {
            return 0;
        }
        // Split off first: a waker may set or cancel timers.
        let due = {
            let mut waiting = self.waiting.borrow_mut();
            let later = waiting.split_off(&(now_ns + 1, 0));
            std::mem::replace(&mut *waiting, later)
        };
        self.refresh();
        let count = due.len();
        for waker in due.into_values() {
            waker.wake();
        }
        count
    }

    fn refresh(&self) {
        self.earliest_ns.set(self.waiting.borrow().first_key_value().map(|(key, _)| key.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Set(u64),
        Cancel(usize),
        Fire(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..50u64).prop_map(Step::Set),
            (0..20usize).prop_map(Step::Cancel),
            (0..20u64).prop_map(Step::Fire)
        ]
    }

    proptest! {
        /// Against a plain list: the same timers fire at the same time, each once, and the earliest is known.
        #[test]
        fn timers_match_a_list(steps in prop::collection::vec(step(), 0..60)) {
            let timers = Timers::default();
            let mut twin: Vec<(u64, Option<TimerKey>, Arc<Count>)> = Vec::new();
            let mut now = 0;
            for step in steps {
                match step {
                    Step::Set(delay) => {
                        let count = Arc::new(Count(AtomicUsize::new(0)));
                        let key = timers.set(now + delay, Waker::from(count.clone()));
                        twin.push((now + delay, Some(key), count));
                    }
                    Step::Cancel(at) if !twin.is_empty() => {
                        let (_, key, count) = twin.swap_remove(at % twin.len());
                        timers.cancel(key.unwrap());
                        timers.fire(now);
                        prop_assert_eq!(count.0.load(Ordering::Relaxed), 0);
                    }
                    Step::Cancel(_) => {}
                    Step::Fire(by) => {
                        now += by;
                        let due = twin.iter().filter(|timer| timer.0 <= now).count();
                        prop_assert_eq!(timers.fire(now), due);
                    }
                }
                // `fire` in the cancel arm may have fired others that are due at `now`.
                twin.retain(|timer| {
                    let fired = timer.2.0.load(Ordering::Relaxed);
                    assert!(fired <= 1);
                    fired == 0
                });
                prop_assert_eq!(timers.earliest_ns(), twin.iter().map(|timer| timer.0).min());
            }
        }
    }
}
