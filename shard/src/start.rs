//! A node on real executors: lock the data directory, start the cores, open the store, serve, stop in order.

use crate::core::Core;
use crate::cores::Placement;
use crate::directory::{DirectoryError, DirectoryLock};
use crate::disk::{Disk, LocalBoxFuture};
use crate::env::{Env, Length};
use crate::node::{NodeOptions, NodeShared};
use crate::runtime::{Cluster, ClusterOptions, CoreRuntime, Message, StartError};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};

/// What a core does once the store is open; returns when the core has drained its front ends.
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

impl Node {
    /// Locks the directory, starts one executor per core and opens the store; returns once every core serves.
    ///
    /// # Errors
    /// See [`NodeError`]; everything started is stopped again.
    pub fn start(options: NodeOptions, placement: &Placement, serve: Serve) -> Result<Node, NodeError> {
        let directory = options.data.as_deref().map(DirectoryLock::acquire).transpose()?;
        let cores = placement.cpus.len();
        let shared = NodeShared::new(options, cores);
        shared.account.look_with(crate::runtime::resident_bytes);
        let (report, reports) = mpsc::channel();
        let serving = Arc::new(AtomicUsize::new(cores));
        let main = {
            let shared = shared.clone();
            Arc::new(move |runtime: CoreRuntime| {
                let (shared, serve, report, serving) =
                    (shared.clone(), serve.clone(), report.clone(), serving.clone());
                let main: LocalBoxFuture<'static, ()> = Box::pin(async move {
                    let disk = shared.options.data.as_deref().map(|root| runtime.disk(root));
                    let env = RealEnv::new(runtime.clone(), disk);
                    match Core::start(env, shared).await {
                        Ok(core) => {
                            // The starter may have given up; then the stop request ends the serving at once.
                            let _starter_gone = report.send(Ok(()));
                            serve(core.clone()).await;
                            // Logs end only when no core can send a write any more.
                            serving.fetch_sub(1, SeqCst);
                            while serving.load(SeqCst) > 0 {
                                runtime.sleep_us(500).await;
                            }
                            core.stop().await;
                        }
                        Err(error) => {
                            serving.fetch_sub(1, SeqCst);
                            let _starter_gone = report.send(Err(error));
                        }
                    }
                });
                main
            })
        };
        let options = ClusterOptions { opening: true, ..ClusterOptions::default() };
        let cluster = Cluster::start_with(placement, main, options)?;
        for _ in 0..cores {
            match reports.recv() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    cluster.stop()?;
                    return Err(NodeError::Open(error));
                }
                Err(_) => {
                    cluster.stop()?;
                    return Err(NodeError::Open("a core ended before the store was open".to_owned()));
                }
            }
        }
        cluster.opened();
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
