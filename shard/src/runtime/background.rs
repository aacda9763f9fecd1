//! Background slices: how work that nobody waits for shares a core with work that somebody does.
//!
//! The executor polls its rings only when its run queue is empty, and with the default preemption timer it never takes a
//! task off the core. So background tasks cut themselves into slices that end in [`super::CoreRuntime::breathe`], and a
//! slice ends in a timer of the executor: that empties the queue, the rings are polled, and everybody else goes first.
//!
//! The executor's shares cannot bound the background part, because a queue that keeps emptying is never compared with
//! another. This does: after a slice of length `t` the next one (of any background task of the core) waits, pause after
//! pause, until a turn finds the core with nothing else to do, or `t * 9` have passed. So whatever the foreground leaves is
//! used, and a saturated core gives 10 %. Waiting tasks take turns in the order they came, one slice per pause. Only the first in
//! line looks; the others sleep until it is their turn, or a core with twenty of them would do nothing but look.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Pause between slices; also how often a waiting background task looks again.
pub(super) const PAUSE_NS: u64 = 20_000;
/// Percent of a saturated core that background work gets; the queue's shares say the same to the executor.
pub(super) const SHARE_PERCENT: u64 = 10;

/// The background state of one core.
#[derive(Default)]
pub(super) struct Background {
    /// The tasks that wait for a slice, in order.
    waiting: RefCell<VecDeque<Waiting>>,
    next_ticket: Cell<u64>,
    slice_started_ns: Cell<u64>,
    slice_ended_ns: Cell<u64>,
    /// Foreground work may hold the next slice off until then.
    resume_ns: Cell<u64>,
}

struct Waiting {
    ticket: u64,
    /// Of a task that sleeps until it is the first.
    waker: Option<Waker>,
}

/// A place in the line; given up when dropped.
pub(super) struct LinePlace<'a> {
    background: &'a Background,
    ticket: u64,
}

impl Background {
    pub(super) fn start_slice(&self, now_ns: u64) {
        self.slice_started_ns.set(now_ns);
    }

    /// Ends the running slice; its length.
    pub(super) fn end_slice(&self, now_ns: u64) -> u64 {
        let length_ns = now_ns.saturating_sub(self.slice_started_ns.get());
        self.slice_ended_ns.set(now_ns);
        self.resume_ns.set(now_ns + length_ns * (100 - SHARE_PERCENT) / SHARE_PERCENT);
        length_ns
    }

    /// Whether a task waits for its slice.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Queues up for the next slice.
    pub(super) fn line_up(&self) -> LinePlace<'_> {
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        self.waiting.borrow_mut().push_back(Waiting { ticket, waker: None });
        LinePlace { background: self, ticket }
    }
}

impl LinePlace<'_> {
    fn is_first(&self) -> bool {
        self.background.waiting.borrow().front().is_some_and(|first| first.ticket == self.ticket)
    }

    /// Sleeps until this task is the first in line.
    pub(super) async fn first(&self) {
        poll_fn(|context| {
            if self.is_first() {
                return Poll::Ready(());
            }
            let mut waiting = self.background.waiting.borrow_mut();
            let own = waiting.iter_mut().find(|waiting| waiting.ticket == self.ticket);
            own.expect("a place is in the line").waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Whether this task may run now. `idle`: the core has nothing else to do.
    pub(super) fn may_run(&self, now_ns: u64, idle: bool) -> bool {
        let background = self.background;
        self.is_first()
            && now_ns >= background.slice_ended_ns.get() + PAUSE_NS
            && (idle || now_ns >= background.resume_ns.get())
    }
}

impl Drop for LinePlace<'_> {
    fn drop(&mut self) {
        let next = {
            let mut waiting = self.background.waiting.borrow_mut();
            waiting.retain(|waiting| waiting.ticket != self.ticket);
            waiting.front_mut().and_then(|first| first.waker.take())
        };
        if let Some(next) = next {
            next.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    #[test]
    fn a_busy_core_gives_a_tenth_and_an_idle_one_everything() {
        let background = Background::default();
        background.start_slice(1_000_000);
        assert_eq!(background.end_slice(1_300_000), 300_000);
        let place = background.line_up();
        assert!(!place.may_run(1_310_000, true), "the rings are polled between two slices");
        assert!(place.may_run(1_320_000, true));
        assert!(!place.may_run(1_320_000, false));
        assert!(!place.may_run(3_999_999, false));
        assert!(place.may_run(4_000_000, false));
    }

    #[test]
    fn tasks_take_turns_and_leave_the_line_when_dropped() {
        let background = Background::default();
        let (first, second) = (background.line_up(), background.line_up());
        let far = u64::MAX / 2;
        assert!(first.may_run(far, true) && !second.may_run(far, true));
        drop(first);
        assert!(second.may_run(far, true));
        let third = background.line_up();
        assert!(!third.may_run(far, true));
        drop(second);
        assert!(third.may_run(far, true));
    }

    #[test]
    fn only_the_first_in_line_is_awake() {
        let background = Background::default();
        let [first, second, third] = std::array::from_fn(|_| background.line_up());
        let woken: [Arc<Woken>; 3] = std::array::from_fn(|_| Arc::default());
        let poll = |place: &LinePlace<'_>, index: usize| {
            let waker = Waker::from(woken[index].clone());
            std::pin::pin!(place.first()).poll(&mut Context::from_waker(&waker)).is_ready()
        };
        assert_eq!([poll(&first, 0), poll(&second, 1), poll(&third, 2)], [true, false, false]);
        let times = || woken.each_ref().map(|woken| woken.0.load(Ordering::Relaxed));
        drop(second);
        assert_eq!(times(), [0, 0, 0], "the first is awake, and the third has to wait");
        drop(first);
        assert_eq!(times(), [0, 0, 1]);
        assert!(poll(&third, 2));
        drop(third);
        assert!(!background.has_waiting());
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}
