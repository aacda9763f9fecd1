//! What a core offers to the code that runs on it.

use super::background::PAUSE_NS;
use super::calls::{Answer, Ticket};
use super::clock::{TimerKey, monotonic_ns, unix_ms};
use super::context::Inner;
use super::core_loop::UNBROKEN_NS;
use super::disk::RealDisk;
use super::health::CoreHealth;
use super::inbox::Foreign;
use super::port::CALLS_MAX;
use super::task::{Kind, panic_text};
use super::thread_pool::{Job, ThreadPool};
use super::training::Length;
use super::{Busy, Message, Remote};
use crate::disk::Disk;
use crate::reactor::Reactor;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A foreground task that pauses looks at the sockets when the last turn is older than this.
const TURN_STALE_NS: u64 = 50_000;
/// Wait before a refused blocking job is offered again.
const BLOCKING_RETRY_US: u64 = 500;

/// This core's runtime: cheap to clone, not `Send`.
#[derive(Clone)]
pub struct CoreRuntime {
    pub(super) inner: Rc<Inner>,
}

impl CoreRuntime {
    /// The runtime of the calling thread's core; None on threads that are no cores. How a [`Message`] finds where it arrived.
    pub fn current() -> Option<CoreRuntime> {
        Inner::current().map(|inner| CoreRuntime { inner })
    }

    /// Index of this core, 0..cores().
    pub fn index(&self) -> usize {
        self.inner.index
    }

    /// Number of cores.
    pub fn cores(&self) -> usize {
        self.inner.cluster.cores.len()
    }

    /// This core's reactor.
    pub fn reactor(&self) -> &Rc<Reactor> {
        &self.inner.reactor
    }

    /// Spawns a foreground task (latency share). Panics inside end the process, loudly. Tasks that are left when every core's
    /// main has returned are cancelled.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.inner.spawn(Kind::Foreground, Box::pin(task));
    }

    /// Spawns in the background queue (small share); such tasks call [`Self::breathe`] at least every 300 us.
    pub fn spawn_background(&self, task: impl Future<Output = ()> + 'static) {
        self.inner.spawn(Kind::Background, Box::pin(task));
    }

    /// Ends a background slice: runs a reactor and mesh turn inline, then sleeps 20 us so that the rings are polled, and
    /// goes on sleeping while other background tasks are first, and while foreground tasks want the core, until background work has
    /// fallen to a tenth of it.
    ///
    /// In a foreground task it lets others run and sees to the sockets, without the share.
    pub async fn breathe(&self) {
        match self.inner.kind() {
            Kind::Background => self.end_slice().await,
            Kind::Foreground | Kind::Loop => self.pause(0).await,
        }
    }

    /// Lets other runnable tasks of this core run.
    pub async fn yield_now(&self) {
        match self.inner.kind() {
            Kind::Background => self.end_slice().await,
            Kind::Foreground | Kind::Loop => self.pause(TURN_STALE_NS).await,
        }
    }

    async fn end_slice(&self) {
        let inner = &self.inner;
        inner.end_slice();
        inner.turn_inline();
        let place = inner.background.line_up();
        loop {
            place.first().await;
            inner.executor_pause(PAUSE_NS).await;
            let worked = inner.turn_inline();
            let idle = !worked && inner.core().cell.runnable_foreground() == 0;
            if place.may_run(monotonic_ns(), idle) {
                break;
            }
        }
        drop(place);
        inner.background.start_slice(monotonic_ns());
    }

    /// A turn if the last one is older than `stale_ns`; then a poll of the rings if it is due, else just a place at the end
    /// of the queue. Without the former, tasks that only wake each other would starve all I/O.
    async fn pause(&self, stale_ns: u64) {
        let inner = &self.inner;
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(inner.turned_ns()) >= stale_ns {
            inner.turn_inline();
        }
        if inner.executor_busy() && now_ns.saturating_sub(inner.executor_polled_ns.get()) >= UNBROKEN_NS {
            inner.executor_pause(1_000).await;
        } else {
            futures_lite::future::yield_now().await;
        }
    }

    /// Timer.
    pub async fn sleep_us(&self, us: u64) {
        let deadline_ns = monotonic_ns().saturating_add(us.saturating_mul(1000));
        Sleep { inner: &self.inner, deadline_ns, key: None }.await;
    }

    /// Monotonic nanoseconds.
    pub fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    /// Wall clock, Unix milliseconds.
    pub fn unix_ms(&self) -> u64 {
        unix_ms()
    }

    /// Queues `message` for core `to` (own index: runs at the next turn). Messages between two cores keep their order.
    /// Bounded: false when ring and overflow are full, the message is dropped.
    pub fn send(&self, to: usize, message: Message) -> bool {
        self.inner.send(to, message)
    }

    /// Queues the answer to a message that came from `to`. Never refused: whoever asks bounds what it asks for.
    pub fn reply(&self, to: usize, message: Message) {
        self.inner.reply(to, message);
    }

    /// Runs `f` on core `to` and waits for its future's result; Err when the mesh refuses (busy) or the peer stops.
    ///
    /// The future runs as a foreground task there, also on the own core, and to its end even if this one is dropped.
    /// Nothing is sent before the first poll.
    ///
    /// # Errors
    /// [`Busy`]: the mesh is full, or too many calls to that core are under way; nothing has run. Or the peer's task ended without a
    /// result, because the cluster stops.
    pub async fn call<R: Send + 'static, F>(
        &self,
        to: usize,
        f: impl FnOnce() -> F + Send + 'static,
    ) -> Result<R, Busy>
    where
        F: Future<Output = R> + 'static,
    {
        let inner = &self.inner;
        if inner.cluster.all_finished() {
            // The caller is a leftover task about to be cancelled; an error might only make it try again, for ever.
            return std::future::pending().await;
        }
        let under_way = &inner.calls_under_way[to];
        if under_way.get() >= CALLS_MAX {
            return self.refuse().await;
        }
        let from = inner.index;
        let ticket = inner.calls.open();
        let request: Message = Box::new(move || {
            let Some(here) = Inner::current() else { return };
            let reply = Reply { inner: here.clone(), to: from, ticket, answer: None };
            here.spawn(
                Kind::Foreground,
                Box::pin(async move {
                    let mut reply = reply;
                    reply.answer = Some(Box::new(f().await));
                }),
            );
        });
        if !inner.send(to, request) {
            inner.calls.abandon(ticket, false);
            return self.refuse().await;
        }
        under_way.set(under_way.get() + 1);
        let answer = Waiting { inner, ticket: Some(ticket) }.await;
        let value = answer.ok_or(Busy)?.downcast::<R>();
        Ok(*value.unwrap_or_else(|_| unreachable!("the answer has the type that its request gave it")))
    }

    /// A refusal yields first, so that a caller who tries again at once does not keep the core from making room.
    async fn refuse<R>(&self) -> Result<R, Busy> {
        self.yield_now().await;
        Err(Busy)
    }

    /// Runs `f`, which may block, on a thread kept for that.
    ///
    /// # Panics
    /// When `f` does.
    pub async fn blocking<R: Send + 'static>(&self, f: impl FnOnce() -> R + Send + 'static) -> R {
        self.elsewhere(&self.inner.cluster.blocking, f).await
    }

    /// Runs `f`, which takes long and cannot be cut into slices, on a thread that gives way to the cores.
    ///
    /// # Panics
    /// When `f` does.
    pub async fn compute<R: Send + 'static>(&self, f: impl FnOnce() -> R + Send + 'static) -> R {
        self.elsewhere(&self.inner.cluster.computing, f).await
    }

    /// Runs `job`, which takes seconds or minutes, on a thread of its own that gives way to the cores; jobs wait for each other. Resolves
    /// when it has run or panicked. Nobody waits for the thread when the runtime stops.
    pub async fn train(&self, length: Length, job: Box<dyn FnOnce() + Send>) {
        let job = super::training::start(length, job);
        while !job.is_done() {
            self.sleep_us(super::training::LOOK_US).await;
        }
    }

    async fn elsewhere<R: Send + 'static>(
        &self,
        pool: &ThreadPool,
        f: impl FnOnce() -> R + Send + 'static,
    ) -> R {
        let inner = &self.inner;
        let core = inner.core().clone();
        let ticket = inner.calls.open();
        let mut job: Job = Box::new(move || {
            let value = catch_unwind(AssertUnwindSafe(f)).map_err(|panic| panic_text(&*panic).to_owned());
            core.post(Foreign::Answer(Box::new(move || {
                if let Some(inner) = Inner::current() {
                    inner.calls.answer(ticket, Some(Box::new(value)));
                }
            })));
        });
        while let Err(refused) = pool.submit(job) {
            job = refused;
            self.sleep_us(BLOCKING_RETRY_US).await;
        }
        let answer = Waiting { inner, ticket: Some(ticket) }.await;
        let value = answer.and_then(|answer| answer.downcast::<Result<R, String>>().ok());
        match value.map(|value| *value) {
            Some(Ok(value)) => value,
            Some(Err(panic)) => panic!("a blocking call panicked: {panic}"),
            None => unreachable!("the pool answers every job, with the type that its caller expects"),
        }
    }

    /// Resolves when the process is asked to stop.
    pub async fn stopping(&self) {
        Stopping { inner: &self.inner, id: None }.await;
    }

    /// Whether the process has been asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.inner.cluster.is_stopping()
    }

    /// A handle for other threads.
    pub fn remote(&self) -> Remote {
        Remote::new(self.inner.cluster.clone())
    }

    /// Condition of this core since the start.
    pub fn health(&self) -> CoreHealth {
        self.inner.cluster.core_health(self.inner.index)
    }

    /// The real disk rooted at `root` (which exists).
    pub fn disk(&self, root: &Path) -> Rc<dyn Disk> {
        Rc::new(RealDisk::new(self.clone(), root))
    }
}

/// A timer of this core.
struct Sleep<'a> {
    inner: &'a Inner,
    deadline_ns: u64,
    key: Option<TimerKey>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if monotonic_ns() >= self.deadline_ns {
            return Poll::Ready(());
        }
        match &self.key {
            Some(key) => self.inner.timers.rewake(key, cx.waker()),
            None => self.key = Some(self.inner.set_timer(self.deadline_ns, cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.inner.timers.cancel(key);
        }
    }
}

/// Waits for an answer, or gives it up.
struct Waiting<'a> {
    inner: &'a Inner,
    ticket: Option<Ticket>,
}

impl Future for Waiting<'_> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let Some(ticket) = self.ticket else { unreachable!("polled after its end") };
        let answer = self.inner.calls.poll(ticket, cx);
        if answer.is_ready() {
            self.ticket = None;
        }
        answer
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.inner.calls.abandon(ticket, true);
        }
    }
}

/// Answers a call when dropped: with what its task left, or with nothing if it was cancelled.
struct Reply {
    inner: Rc<Inner>,
    to: usize,
    ticket: Ticket,
    answer: Answer,
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.inner.answer(self.to, self.ticket, self.answer.take());
    }
}

struct Stopping<'a> {
    inner: &'a Inner,
    id: Option<u64>,
}

impl Future for Stopping<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.inner.cluster.is_stopping() {
            return Poll::Ready(());
        }
        this.inner.stop_waiters.enter(&mut this.id, cx.waker());
        Poll::Pending
    }
}

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.inner.stop_waiters.leave(id);
        }
    }
}
