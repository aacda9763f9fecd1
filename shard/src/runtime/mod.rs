//! Executors: the only module that imports glommio. Threads, task queues with shares, timers, the core loop, the
//! watchdog against the executor's parking bug, and the real disk.
use crate::disk::{Disk, LocalBoxFuture};
use crate::reactor::Reactor;
use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
/// What runs on each core.
pub type CoreMain = Arc<dyn Fn(CoreRuntime) -> LocalBoxFuture<'static, ()> + Send + Sync>;
/// A message between cores: runs on the destination inside its core loop; must not block or take long (spawn for that).
pub type Message = Box<dyn FnOnce() + Send>;
/// A running set of executors.
pub struct Cluster {}
impl Cluster {
    /// Starts one executor per entry of `placement`, each running `main`, with mesh and watchdog.
    pub fn start(placement: &crate::cores::Placement, main: CoreMain) -> Result<Cluster, StartError> {
        let _ = (placement, main);
        todo!()
    }
    /// Asks every core to stop (their `CoreRuntime::stopping` resolves) and joins the threads; a panic in a core is an error.
    pub fn stop(self) -> Result<(), StartError> {
        todo!()
    }
    /// Blocks until every core's main has returned.
    pub fn join(self) -> Result<(), StartError> {
        todo!()
    }
    /// Asks all cores to stop; async-signal-unsafe but callable from any thread.
    pub fn request_stop(&self) {}
}
/// Why executors do not start (io_uring refused, memlock too small ...), each with cause and remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);
/// This core's runtime: cheap to clone, not `Send`.
#[derive(Clone)]
pub struct CoreRuntime {}
impl CoreRuntime {
    /// Index of this core, 0..cores().
    pub fn index(&self) -> usize {
        todo!()
    }
    /// Number of cores.
    pub fn cores(&self) -> usize {
        todo!()
    }
    /// This core's reactor.
    pub fn reactor(&self) -> &Rc<Reactor> {
        todo!()
    }
    /// Spawns a foreground task (latency share). Panics inside end the process, loudly.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let _ = task;
    }
    /// Spawns in the background queue (small share); such tasks call [`Self::breathe`] at least every 300 us.
    pub fn spawn_background(&self, task: impl Future<Output = ()> + 'static) {
        let _ = task;
    }
    /// Ends a background slice: runs a reactor and mesh turn inline, then sleeps 20 us so that the rings are polled.
    pub async fn breathe(&self) {
        todo!()
    }
    /// Lets other runnable tasks of this core run.
    pub async fn yield_now(&self) {
        todo!()
    }
    /// Timer.
    pub async fn sleep_us(&self, us: u64) {
        let _ = us;
    }
    /// Monotonic nanoseconds.
    pub fn now_ns(&self) -> u64 {
        todo!()
    }
    /// Wall clock, Unix milliseconds.
    pub fn unix_ms(&self) -> u64 {
        todo!()
    }
    /// Queues `message` for core `to` (own index: runs at the next turn). Bounded: false when ring and overflow are full, the message is dropped.
    pub fn send(&self, to: usize, message: Message) -> bool {
        let _ = (to, message);
        todo!()
    }
    /// Queues the answer to a message that came from `to`; never refused (what was asked for is bounded).
    pub fn reply(&self, to: usize, message: Message) {
        let _ = (to, message);
        todo!()
    }
    /// Runs `f` on core `to` and waits for its future's result; Err when the mesh refuses (busy) or the peer stops.
    pub async fn call<R: Send + 'static, F>(
        &self,
        to: usize,
        f: impl FnOnce() -> F + Send + 'static,
    ) -> Result<R, Busy>
    where
        F: Future<Output = R> + 'static,
    {
        let _ = (to, f);
        todo!()
    }
    /// Resolves when the process is asked to stop.
    pub async fn stopping(&self) {
        todo!()
    }
    /// The real disk rooted at `root` (which exists).
    pub fn disk(&self, root: &Path) -> Rc<dyn Disk> {
        let _ = root;
        todo!()
    }
}
/// The mesh is full or the peer stops; answer 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is busy; try again")]
pub struct Busy;
