//! One core's state, shared by its loop, its tasks and its handles. Lives and dies on the core's thread.

use super::background::Background;
use super::calls::{Answer, Calls, Ticket};
use super::clock::{Timers, monotonic_ns};
use super::cluster::ClusterShared;
use super::health::CoreState;
use super::inbox::CoreShared;
use super::port::{Port, RingEnds};
use super::task::{Kind, Registry, panic_text};
use super::waiters::Waiters;
use super::{CoreRuntime, Message};
use crate::disk::LocalBoxFuture;
use crate::reactor::Reactor;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Waker;
use std::time::Duration;

thread_local! {
    /// The core this thread runs, for messages, which own nothing of the core they arrive at.
    static CURRENT: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
}

/// See the module.
pub(super) struct Inner {
    pub(super) cluster: Arc<ClusterShared>,
    pub(super) index: usize,
    pub(super) reactor: Rc<Reactor>,
    pub(super) port: Port,
    pub(super) timers: Timers,
    pub(super) calls: Calls,
    /// Calls sent to each core and not answered yet.
    pub(super) calls_under_way: Vec<Cell<u32>>,
    pub(super) tasks: Registry,
    pub(super) background: Background,
    background_queue: glommio::TaskQueueHandle,
    pub(super) stop_waiters: Waiters,
    stop_seen: Cell<bool>,
    /// Operations and timers of ours that the executor's rings hold, or will.
    executor_uses: Cell<u32>,
    /// Operations were queued since the rings were last polled, so the kernel has not seen them.
    unsubmitted: Cell<bool>,
    /// When the rings were last known to be polled, and when the last turn was.
    pub(super) executor_polled_ns: Cell<u64>,
    turned_ns: Cell<u64>,
    /// The kind of the task being polled.
    kind: Cell<Kind>,
    /// The core loop awaits something, so nobody flushes the port after this poll.
    pub(super) away: Cell<bool>,
    /// The core loop is parked on the bell, until this time.
    pub(super) parked_until_ns: Cell<Option<u64>>,
    pub(super) kicked: Cell<bool>,
    pub(super) loop_waker: RefCell<Option<Waker>>,
    pub(super) main_ended: Cell<bool>,
    pub(super) said_goodbye: Cell<bool>,
}

impl Inner {
    /// Inside the executor of the core's own thread.
    pub(super) fn new(
        cluster: Arc<ClusterShared>,
        index: usize,
        ends: RingEnds,
        reactor: Rc<Reactor>,
    ) -> Rc<Inner> {
        let background_queue = glommio::executor().create_task_queue(
            glommio::Shares::Static(super::background::SHARE_PERCENT as usize * 10),
            glommio::Latency::NotImportant,
            "background",
        );
        let now_ns = monotonic_ns();
        Rc::new(Inner {
            port: Port::new(&cluster.cores, ends),
            calls_under_way: cluster.cores.iter().map(|_| Cell::new(0)).collect(),
            cluster,
            index,
            reactor,
            timers: Timers::default(),
            calls: Calls::default(),
            tasks: Registry::default(),
            background: Background::default(),
            background_queue,
            stop_waiters: Waiters::default(),
            stop_seen: Cell::new(false),
            executor_uses: Cell::new(0),
            unsubmitted: Cell::new(false),
            executor_polled_ns: Cell::new(now_ns),
            turned_ns: Cell::new(now_ns),
            kind: Cell::new(Kind::Loop),
            away: Cell::new(false),
            parked_until_ns: Cell::new(None),
            kicked: Cell::new(false),
            loop_waker: RefCell::default(),
            main_ended: Cell::new(false),
            said_goodbye: Cell::new(false),
        })
    }

    /// The core of this thread.
    pub(super) fn current() -> Option<Rc<Inner>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Makes this the core of the thread, or ends that.
    pub(super) fn set_current(inner: Option<Rc<Inner>>) {
        let before = CURRENT.replace(inner);
        drop(before);
    }

    pub(super) fn core(&self) -> &Arc<CoreShared> {
        &self.cluster.cores[self.index]
    }

    pub(super) fn handle(self: &Rc<Self>) -> CoreRuntime {
        CoreRuntime { inner: self.clone() }
    }

    pub(super) fn spawn(self: &Rc<Self>, kind: Kind, future: LocalBoxFuture<'static, ()>) {
        // Named explicitly: a plain spawn would inherit the queue of whoever spawns.
        let queue = match kind {
            Kind::Background => self.background_queue,
            Kind::Loop | Kind::Foreground => glommio::TaskQueueHandle::default(),
        };
        Registry::spawn(self, kind, queue, future);
    }

    /// A panic reached the runtime: the process ends, unless a test asked to be told instead.
    pub(super) fn fatal(&self, who: &str, panic: Box<dyn Any + Send>) {
        let text = format!("{who} on core {} panicked: {}", self.index, panic_text(&*panic));
        // The payload may be anything, even something whose drop panics.
        std::mem::forget(panic);
        self.cluster.fatal(&text);
    }

    // --- tasks -------------------------------------------------------------------------------------------------------

    /// A task is polled until the guard drops.
    pub(super) fn enter(&self, kind: Kind) -> Entered<'_> {
        let cell = &self.core().cell;
        cell.advance();
        let entered = Entered { inner: self, kind, before: (self.kind.replace(kind), cell.state()) };
        cell.set_state(CoreState::Running);
        if kind == Kind::Background {
            self.background.start_slice(monotonic_ns());
        }
        entered
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind.get()
    }

    /// The running background slice ends.
    pub(super) fn end_slice(&self) {
        let length_ns = self.background.end_slice(monotonic_ns());
        self.core().cell.slice_took(length_ns);
    }

    // --- turns -------------------------------------------------------------------------------------------------------

    /// Something waits that no descriptor will announce once the bell is armed (its edge may have been taken already).
    pub(super) fn has_mail(&self) -> bool {
        self.port.has_mail() || self.core().has_post() || self.cluster.all_finished()
    }

    /// One turn of the core loop: rings bells, polls sockets (waiting up to `wait_ns` when there is nothing to do), fires
    /// timers, runs messages, rings bells. True when there was anything of these. Never awaits, and never runs inside
    /// itself: messages are plain calls.
    pub(super) fn turn(&self, wait_ns: u64) -> bool {
        let core = self.core();
        self.port.flush();
        let mut wait_ns = wait_ns;
        let mut armed = false;
        if wait_ns > 0 {
            core.bell.arm();
            armed = !self.has_mail();
            if armed {
                core.cell.set_state(CoreState::Idle);
            } else {
                core.bell.disarm();
                wait_ns = 0;
            }
        }
        let polled = self.reactor.poll(wait_ns);
        if armed {
            core.bell.disarm();
            core.cell.set_state(CoreState::Running);
        }
        // Only a broken descriptor or buffer could fail it, and without it the core is deaf.
        let events = polled.unwrap_or_else(|error| panic!("waiting for events failed: {error}"));
        core.cell.advance();
        let now_ns = monotonic_ns();
        self.turned_ns.set(now_ns);
        let fired = self.timers.fire(now_ns);
        let messages = self.port.receive(|message| self.run_message(message)) + self.take_post();
        self.notice_stop();
        self.port.flush();
        events + fired + messages > 0
    }

    /// A turn in the middle of some task, for tasks that keep the core for long; true when it found something.
    pub(super) fn turn_inline(&self) -> bool {
        let worked = self.turn(0);
        if self.parked_until_ns.get().is_some() {
            // The turn may have eaten the event that would have woken the parked loop, and its bell is spent: arm it again.
            self.core().bell.arm();
            if self.has_mail() {
                self.core().bell.disarm();
                self.kick();
            }
        }
        worked
    }

    /// Ends the core loop's sleep.
    pub(super) fn kick(&self) {
        if self.parked_until_ns.get().is_some()
            && !self.kicked.replace(true)
            && let Some(waker) = &*self.loop_waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    pub(super) fn run_message(&self, message: Message) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(message)) {
            self.fatal("a message", panic);
        }
    }

    /// What foreign threads left; how much it was.
    fn take_post(&self) -> usize {
        if !self.core().has_post() {
            return 0;
        }
        let (messages, wakes) = self.core().take();
        let count = messages.len() + wakes.len();
        for waker in wakes {
            waker.deliver();
        }
        for message in messages {
            self.run_message(message);
        }
        count
    }

    fn notice_stop(&self) {
        if !self.stop_seen.get() && self.cluster.is_stopping() {
            self.stop_seen.set(true);
            self.stop_waiters.wake_all();
        }
    }

    pub(super) fn turned_ns(&self) -> u64 {
        self.turned_ns.get()
    }

    // --- mesh --------------------------------------------------------------------------------------------------------

    /// Queues a message and sees to it that it leaves; false when refused.
    pub(super) fn send(&self, to: usize, message: Message) -> bool {
        let sent = self.port.send(to, message);
        self.after_send();
        sent
    }

    /// Queues a message that `to` has asked for; never refused.
    pub(super) fn reply(&self, to: usize, message: Message) {
        self.port.reply(to, message);
        self.after_send();
    }

    /// Sends the answer of a call to `to`, which waits for it.
    pub(super) fn answer(&self, to: usize, ticket: Ticket, answer: Answer) {
        let from = self.index;
        let message: Message = Box::new(move || {
            if let Some(inner) = Inner::current() {
                let under_way = &inner.calls_under_way[from];
                under_way.set(under_way.get() - 1);
                inner.calls.answer(ticket, answer);
            }
        });
        self.reply(to, message);
    }

    /// While the loop runs it flushes at its next turn, which batches; while it is away the sender does.
    fn after_send(&self) {
        if self.away.get() {
            self.port.flush();
            if self.port.has_mail() || self.port.has_overflow() {
                self.kick();
            }
        }
    }

    /// Wakes `waker` at `deadline_ns`.
    pub(super) fn set_timer(&self, deadline_ns: u64, waker: Waker) -> super::clock::TimerKey {
        let key = self.timers.set(deadline_ns, waker);
        if self.parked_until_ns.get().is_some_and(|until_ns| deadline_ns < until_ns) {
            self.kick();
        }
        key
    }

    // --- executor ----------------------------------------------------------------------------------------------------

    /// Declares that the executor's rings hold something of ours until the guard drops; `operation`: something the kernel
    /// has yet to be given.
    pub(super) fn use_executor(self: &Rc<Self>, operation: bool) -> ExecutorUse {
        self.executor_uses.set(self.executor_uses.get() + 1);
        if operation {
            self.unsubmitted.set(true);
        }
        ExecutorUse(self.clone())
    }

    /// Whether the executor has anything to do but run the core loop, which then may not block the thread for long.
    pub(super) fn executor_busy(&self) -> bool {
        self.executor_uses.get() > 0 || self.unsubmitted.get() || self.core().cell.runnable_background() > 0
    }

    pub(super) fn has_unsubmitted(&self) -> bool {
        self.unsubmitted.get()
    }

    pub(super) fn background_waits(&self) -> bool {
        self.core().cell.runnable_background() > 0 || self.background.has_waiting()
    }

    /// The rings have just been polled.
    pub(super) fn executor_was_polled(&self) {
        self.unsubmitted.set(false);
        self.executor_polled_ns.set(monotonic_ns());
    }

    /// Sleeps in an executor timer, so that the run queue empties and the rings are polled.
    pub(super) async fn executor_pause(self: &Rc<Self>, ns: u64) {
        let used = self.use_executor(false);
        glommio::timer::sleep(Duration::from_nanos(ns)).await;
        drop(used);
        self.executor_was_polled();
    }

    // --- end ---------------------------------------------------------------------------------------------------------

    /// This core's main has returned.
    pub(super) fn end_main(&self) {
        self.main_ended.set(true);
        self.kick();
    }

    /// Tells all cores that this one needs them no more; every core looks up.
    pub(super) fn say_goodbye(&self) {
        self.cluster.finished.fetch_add(1, SeqCst);
        for core in &self.cluster.cores {
            core.bell.ring_always();
        }
    }
}

/// Guard of a task's poll.
pub(super) struct Entered<'a> {
    inner: &'a Inner,
    kind: Kind,
    before: (Kind, CoreState),
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.kind == Kind::Background {
            self.inner.end_slice();
        }
        self.inner.kind.set(self.before.0);
        // The loop's own state (idle, in a timer) outlives its poll; everybody else's ends here.
        if self.kind != Kind::Loop {
            self.inner.core().cell.set_state(self.before.1);
        }
    }
}

/// Guard of [`Inner::use_executor`].
pub(super) struct ExecutorUse(Rc<Inner>);

impl Drop for ExecutorUse {
    fn drop(&mut self) {
        self.0.executor_uses.set(self.0.executor_uses.get() - 1);
    }
}
