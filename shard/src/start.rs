//! A node on real executors: lock the data directory, start the cores, serve while the store is being opened, stop in order.

use crate::core::Core;
use crate::cores::Placement;
use crate::directory::{DirectoryError, DirectoryLock};
use crate::disk::{Disk, LocalBoxFuture};
use crate::env::{Env, Length};
use crate::node::{NodeOptions, NodeShared};
use crate::progress::OpenedStore;
use crate::runtime::{Cluster, ClusterOptions, CoreRuntime, Message, StartError};
use futures_lite::future::zip;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// What a core does from its start on; returns when the core has drained its front ends. What is not open yet is refused meanwhile.
pub type Serve = Arc<dyn Fn(Rc<Core>) -> LocalBoxFuture<'static, ()> + Send + Sync>;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The data directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Executors.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Opening the store.
    #[error("{0}")]
    Open(String),
}

/// A running node.
pub struct Node {
    cluster: Cluster,
    shared: Arc<NodeShared>,
    _directory: Option<DirectoryLock>,
}

/// The real surroundings of a core.
pub struct RealEnv {
    runtime: CoreRuntime,
    disk: Option<Rc<dyn Disk>>,
}

impl RealEnv {
    /// Of the core that `runtime` runs, with its data on `disk`.
    pub fn new(runtime: CoreRuntime, disk: Option<Rc<dyn Disk>>) -> Rc<RealEnv> {
        Rc::new(RealEnv { runtime, disk })
    }
}

impl Env for RealEnv {
    fn index(&self) -> usize {
        self.runtime.index()
    }
    fn cores(&self) -> usize {
        self.runtime.cores()
    }
    fn spawn(&self, task: LocalBoxFuture<'static, ()>) {
        self.runtime.spawn(task);
    }
    fn spawn_background(&self, task: LocalBoxFuture<'static, ()>) {
        self.runtime.spawn_background(task);
    }
    fn breathe(&self) -> LocalBoxFuture<'static, ()> {
        let runtime = self.runtime.clone();
        Box::pin(async move { runtime.breathe().await })
    }
    fn yield_now(&self) -> LocalBoxFuture<'static, ()> {
        let runtime = self.runtime.clone();
        Box::pin(async move { runtime.yield_now().await })
    }
    fn sleep_us(&self, us: u64) -> LocalBoxFuture<'static, ()> {
        let runtime = self.runtime.clone();
        Box::pin(async move { runtime.sleep_us(us).await })
    }
    fn train(&self, length: Length, job: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, ()> {
        let runtime = self.runtime.clone();
        Box::pin(async move { runtime.train(length, job).await })
    }
    fn spawn_compute(&self, work: Box<dyn FnOnce() + Send>) {
        let runtime = self.runtime.clone();
        self.runtime.spawn(async move { runtime.compute(work).await });
    }
    fn compute(&self, work: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, ()> {
        let runtime = self.runtime.clone();
        Box::pin(async move { runtime.compute(work).await })
    }
    fn stopping(&self) -> LocalBoxFuture<'static, ()> {
        let runtime = self.runtime.clone();
        Box::pin(async move { runtime.stopping().await })
    }
    fn now_ns(&self) -> u64 {
        self.runtime.now_ns()
    }
    fn unix_ms(&self) -> u64 {
        self.runtime.unix_ms()
    }
    fn send(&self, to: usize, message: Message) -> bool {
        self.runtime.send(to, message)
    }
    fn reply(&self, to: usize, message: Message) {
        self.runtime.reply(to, message);
    }
    fn resident_bytes(&self) -> Option<u64> {
        crate::runtime::resident_bytes()
    }
    fn disk(&self) -> Option<Rc<dyn Disk>> {
        self.disk.clone()
    }
}

/// What is called once all of the store is open, or cannot be opened.
type WhenOpened = Mutex<Option<Box<dyn FnOnce(Result<OpenedStore, String>) + Send>>>;

impl Node {
    /// Locks the directory, starts one executor per core, and returns once every core serves and all of the store is open.
    ///
    /// # Errors
    /// See [`NodeError`]; everything started is stopped again.
    pub fn start(options: NodeOptions, placement: &Placement, serve: Serve) -> Result<Node, NodeError> {
        let (report, reports) = mpsc::channel();
        let opened = move |opened| {
            // Whoever asked waits for it.
            let _nobody_waits = report.send(opened);
        };
        let node = Node::begin(options, placement, serve, opened)?;
        let ended = || Err("a core ended before the store was open".to_owned());
        match reports.recv().unwrap_or_else(|_| ended()) {
            Ok(_) => Ok(node),
            Err(error) => {
                node.stop()?;
                Err(NodeError::Open(error))
            }
        }
    }

    /// Locks the directory, starts one executor per core, and returns when these run. Every core serves from the start, and refuses what is not open
    /// yet. `opened` is called once, on core 0, when all of the store is open, or cannot be opened, which is a sentence; then the node is to be
    /// stopped. It is called with such a sentence as well if the node is stopped before.
    ///
    /// # Errors
    /// See [`NodeError`], but for those of opening the store; everything started is stopped again.
    pub fn begin(
        options: NodeOptions,
        placement: &Placement,
        serve: Serve,
        opened: impl FnOnce(Result<OpenedStore, String>) + Send + 'static,
    ) -> Result<Node, NodeError> {
        let directory = options.data.as_deref().map(DirectoryLock::acquire).transpose()?;
        let cores = placement.cpus.len();
        let shared = NodeShared::new(options, cores);
        shared.account.look_with(crate::runtime::resident_bytes);
        let opened: Arc<WhenOpened> = Arc::new(Mutex::new(Some(Box::new(opened))));
        let serving = Arc::new(AtomicUsize::new(cores));
        let main = {
            let shared = shared.clone();
            Arc::new(move |runtime: CoreRuntime| {
                let (shared, serve, opened, serving) =
                    (shared.clone(), serve.clone(), opened.clone(), serving.clone());
                let main: LocalBoxFuture<'static, ()> = Box::pin(async move {
                    let disk = shared.options.data.as_deref().map(|root| runtime.disk(root));
                    let core = Core::begin(RealEnv::new(runtime.clone(), disk), shared.clone());
                    Core::set_current(Some(core.clone()));
                    core.wait_for_peers().await;
                    let opening = async {
                        let store = core.open_store().await.map(|()| shared.progress.opened_store());
                        if runtime.index() == 0
                            && let Some(opened) = opened.lock().unwrap_or_else(PoisonError::into_inner).take()
                        {
                            opened(store);
                        }
                    };
                    zip(serve(core.clone()), opening).await;
                    // Logs end only when no core can send a write any more.
                    serving.fetch_sub(1, SeqCst);
                    while serving.load(SeqCst) > 0 {
                        runtime.sleep_us(500).await;
                    }
                    core.stop().await;
                });
                main
            })
        };
        let cluster = Cluster::start_with(placement, main, ClusterOptions::default())?;
        Ok(Node { cluster, shared, _directory: directory })
    }

    /// State shared by the cores.
    pub fn shared(&self) -> &Arc<NodeShared> {
        &self.shared
    }

    /// The executors.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Asks every core to stop and waits until all writes are flushed and all threads joined.
    ///
    /// # Errors
    /// A core that ended by a panic.
    pub fn stop(self) -> Result<(), NodeError> {
        Ok(self.cluster.stop()?)
    }
}
