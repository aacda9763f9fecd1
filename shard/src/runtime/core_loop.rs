//! The loop that every core runs: turns, and the three ways of doing nothing.
//!
//! 1. **Block** in the turn's own epoll wait, when the executor has nothing of ours in its rings: no parking, the cost of a bare
//!    epoll thread. Bounded by [`BLOCK_NS`], after which the core parks and gives up its preemption timer.
//! 2. **Linger** for [`LINGER_NS`] in the epoll wait while disk operations are under way and events have been coming in
//!    quick succession. A completion interrupts the wait; one that arrives just before it is noticed when it ends.
//! 3. **Park**: arm the bell, look again, and await the epoll descriptor through the executor, which polls its rings and runs
//!    background slices meanwhile. About 30 µs of CPU.
//!
//! Whenever work goes on for [`UNBROKEN_NS`], and whenever operations wait to be handed to the kernel, the loop makes a
//! **break**: an executor timer that is due at once, which empties the run queue and so polls the rings.

use super::clock::monotonic_ns;
use super::context::Inner;
use super::health::CoreState;
use glommio::io::{PollState, PollableFd};
use std::future::{Future, poll_fn};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Longest stay in the epoll wait before parking.
const BLOCK_NS: u64 = 10_000_000;
/// See the module.
const LINGER_NS: u64 = 50_000;
/// Lingering pays only when the last gap without work was shorter than this.
const LINGER_GAP_NS: u64 = 100_000;
/// Work without a break.
pub(super) const UNBROKEN_NS: u64 = 300_000;
/// How long an idle core may wait before it tries again to move overflow into a full ring.
const OVERFLOW_RETRY_NS: u64 = 100_000;
/// A timer that has passed by the time the executor looks at it, yet is pending when first polled.
const BREAK_NS: u64 = 1_000;
/// How long a core whose main has returned waits for its overflow to empty: tasks left over may fill it for ever.
const FAREWELL_NS: u64 = 1_000_000_000;

/// Runs the core until every core's main has returned.
pub(super) async fn run(inner: Rc<Inner>) {
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    *inner.loop_waker.borrow_mut() = Some(waker.clone());
    let mut parking = Parking::new(&inner, waker);
    let mut worked_ns = monotonic_ns();
    // Start of the current stretch without work, and the length of the last one.
    let mut idle_from_ns = None;
    let mut gap_ns = u64::MAX;
    let mut farewell_ns = None;
    loop {
        if inner.core().cell.runnable_foreground() > 0 {
            futures_lite::future::yield_now().await;
        }
        say_goodbye(&inner, &mut farewell_ns);
        if inner.cluster.all_finished() && !inner.port.has_mail() {
            break;
        }
        let unbroken_ns = monotonic_ns().saturating_sub(inner.executor_polled_ns.get());
        if inner.has_unsubmitted() || (inner.executor_busy() && unbroken_ns >= UNBROKEN_NS) {
            take_break(&inner).await;
        }
        let now_ns = monotonic_ns();
        let longest_ns = if inner.core().cell.runnable_foreground() > 0 {
            0
        } else if !inner.executor_busy() {
            (worked_ns + BLOCK_NS).saturating_sub(now_ns)
        } else if gap_ns < LINGER_GAP_NS && !inner.background_waits() {
            LINGER_NS
        } else {
            0
        };
        let worked = inner.turn(longest_ns.min(deadline_ns(&inner).saturating_sub(now_ns)));
        let idle = inner.core().cell.runnable_foreground() == 0;
        if worked {
            worked_ns = monotonic_ns();
            gap_ns = worked_ns - idle_from_ns.take().unwrap_or(now_ns);
        } else if idle {
            // Again: the turn may have moved the last overflow, after which nothing would end a sleep.
            say_goodbye(&inner, &mut farewell_ns);
            idle_from_ns.get_or_insert(now_ns);
            if inner.executor_busy() || monotonic_ns() >= worked_ns + BLOCK_NS {
                parking.park(&inner).await;
            }
        }
    }
}

/// Once main has returned and what it sent lies in its peers' rings, all cores are told. Each of them ends when everyone has
/// said goodbye and its own rings are empty, so nothing sent before a goodbye is lost.
fn say_goodbye(inner: &Inner, farewell_ns: &mut Option<u64>) {
    if !inner.main_ended.get() || inner.said_goodbye.get() {
        return;
    }
    let give_up_ns = *farewell_ns.get_or_insert_with(|| monotonic_ns() + FAREWELL_NS);
    if !inner.port.has_overflow() || monotonic_ns() >= give_up_ns {
        inner.said_goodbye.set(true);
        inner.say_goodbye();
    }
}

/// The next moment at which the core has something to do on its own account.
fn deadline_ns(inner: &Inner) -> u64 {
    let timer_ns = inner.timers.earliest_ns().unwrap_or(u64::MAX);
    if inner.port.has_overflow() { timer_ns.min(monotonic_ns() + OVERFLOW_RETRY_NS) } else { timer_ns }
}

/// Lets the executor poll its rings and run a background slice.
async fn take_break(inner: &Rc<Inner>) {
    inner.port.flush();
    inner.away.set(true);
    inner.core().cell.set_timer(monotonic_ns() + BREAK_NS);
    inner.executor_pause(BREAK_NS).await;
    inner.away.set(false);
}

/// The way to sleep inside the executor: a poll of the core's epoll descriptor in the executor's rings.
struct Parking {
    epoll: PollableFd<RawFd>,
    /// The registration. It may outlive a sleep that ended for another reason, and then serves the next.
    poll: PollState,
    registered: bool,
    announced: Arc<Announced>,
    waker: Waker,
}

/// Waker of the registration: remembers that it fired, and passes on.
struct Announced {
    fired: AtomicBool,
    core_loop: Waker,
}

impl Wake for Announced {
    fn wake(self: Arc<Self>) {
        self.fired.store(true, Relaxed);
        self.core_loop.wake_by_ref();
    }
}

impl Parking {
    fn new(inner: &Inner, core_loop: Waker) -> Parking {
        // The raw number, so that dropping this does not close the reactor's descriptor.
        let epoll = PollableFd::new(inner.reactor.as_fd().as_raw_fd())
            .unwrap_or_else(|error| unreachable!("this only takes a reference to the executor: {error}"));
        let announced = Arc::new(Announced { fired: AtomicBool::new(false), core_loop });
        let waker = Waker::from(announced.clone());
        Parking { epoll, poll: PollState::new(), registered: false, announced, waker }
    }

    /// Sleeps until the bell, a socket, a timer or [`Inner::kick`]; returns at once when there is mail.
    async fn park(&mut self, inner: &Rc<Inner>) {
        let core = inner.core();
        core.bell.arm();
        inner.kicked.set(false);
        let deadline_ns = deadline_ns(inner);
        let now_ns = monotonic_ns();
        if inner.has_mail() || core.cell.runnable_foreground() > 0 || deadline_ns <= now_ns {
            core.bell.disarm();
            return;
        }
        inner.away.set(true);
        inner.parked_until_ns.set(Some(deadline_ns));
        core.cell.set_state(CoreState::Idle);
        // An announcement left over from before the turn that has just found nothing is stale.
        self.take_announcement();
        let mut timer = (deadline_ns != u64::MAX)
            .then(|| glommio::timer::Timer::new(Duration::from_nanos(deadline_ns - now_ns)));
        let mut timer_set = false;
        poll_fn(|cx| {
            if inner.kicked.get() || self.take_announcement() || monotonic_ns() >= deadline_ns {
                return Poll::Ready(());
            }
            self.register();
            // Polled once: each poll of a pending timer sets another one in the executor.
            if let Some(timer) = timer.as_mut().filter(|_| !timer_set) {
                timer_set = true;
                if Pin::new(timer).poll(cx).is_ready() {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        })
        .await;
        inner.parked_until_ns.set(None);
        inner.away.set(false);
        core.bell.disarm();
        inner.executor_was_polled();
    }

    /// Whether the registration has fired since it was last asked; it is spent then.
    fn take_announcement(&mut self) -> bool {
        if !self.announced.fired.swap(false, Relaxed) {
            return false;
        }
        self.registered = false;
        self.poll = PollState::new();
        true
    }

    fn register(&mut self) {
        if self.registered {
            return;
        }
        self.registered = true;
        match self.epoll.poll_readable(&mut Context::from_waker(&self.waker), &mut self.poll) {
            Poll::Pending => {}
            Poll::Ready(result) => unreachable!("a fresh registration has no result yet: {result:?}"),
        }
    }
}
