//! A node on a simulated disk.

use super::{Cores, Random, Sim, SimEnv};
use crate::core::Core;
use crate::disk::SimDisk;
use crate::env::Env;
use crate::error::OpError;
use crate::kv::KeysOptions;
use crate::log::SyncMode;
use crate::node::{NodeOptions, NodeShared};
use std::cell::RefCell;
use std::rc::Rc;

/// A node that serves; it ends, as if killed, when this is dropped.
pub struct SimNode {
    /// The cores in the order of their numbers.
    pub cores: Rc<[Rc<Core>]>,
    _end: EndOfLife,
}

/// Cores and their surroundings hold each other; ten thousand lives would leak their arenas.
struct EndOfLife(Rc<Cores>);

impl Drop for EndOfLife {
    fn drop(&mut self) {
        self.0.clear();
        Core::set_current(None);
    }
}

/// The disk that the next life of a node finds. Half of the lives end by a kill: the next process reads what no device may hold yet. The others end by
/// a crash of the machine.
pub fn next_life(disk: &SimDisk, random: &Random) -> SimDisk {
    match random.chance(1, 2) {
        true => disk.clone(),
        false => disk.crash_clone(random.next()),
    }
}

/// A small store of keys, the same in each run.
pub fn keys_options() -> KeysOptions {
    KeysOptions {
        page_bytes_min: 4096,
        shard_bytes_min: 128 << 10,
        seed: Some(7),
        ..KeysOptions::new(4 << 20)
    }
}

/// A small node on a simulated disk: small segments, images after a few records, and expired points stay until something else removes them.
pub fn node_options() -> NodeOptions {
    NodeOptions {
        data: Some("simulated".into()),
        shards: 4,
        sync: SyncMode::Always,
        memory_limit_bytes: 1 << 30,
        segment_bytes: 4096 * 64,
        log_bytes_soft: 4096 * 256,
        image_records_min: 16,
        sweep_interval_ms: 0,
        keys: keys_options(),
        devices: Default::default(),
        backup: Default::default(),
        give_back_memory: || {},
    }
}

/// Repeats a call that the mesh refused because it was full, which has done nothing then.
pub async fn until_not_busy<T, F: Future<Output = Result<T, OpError>>>(
    mut call: impl FnMut() -> F,
) -> Result<T, OpError> {
    loop {
        match call().await {
            Err(OpError::Busy(_)) => {}
            done => return done,
        }
    }
}

/// [`until_not_busy`] for a call that must succeed.
pub async fn patiently<T, F: Future<Output = Result<T, OpError>>>(call: impl FnMut() -> F) -> T {
    until_not_busy(call).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Starts a node of `count` cores on `disk` and waits until it is open.
pub async fn open(sim: &Sim, disk: &Rc<SimDisk>, count: usize, options: NodeOptions) -> SimNode {
    let opening = begin(sim, disk, count, options);
    opening.wait(sim).await.expect("the store opens");
    opening.node
}

/// A node that serves while its store is being opened.
pub struct OpeningNode {
    /// The node; its cores in the order of their numbers.
    pub node: SimNode,
    /// The outcome of each core that knows whether the store opens.
    opened: Rc<RefCell<Vec<Result<(), String>>>>,
}

impl OpeningNode {
    /// Waits until every core knows that all is open.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub async fn wait(&self, sim: &Sim) -> Result<(), String> {
        while self.opened.borrow().len() < self.node.cores.len() {
            sim.sleep_us(100).await;
        }
        self.opened.borrow().iter().cloned().collect()
    }

    /// Whether every core knows.
    pub fn is_decided(&self) -> bool {
        self.opened.borrow().len() == self.node.cores.len()
    }
}

/// Starts a node of `count` cores on `disk`, which begins to open its store.
pub fn begin(sim: &Sim, disk: &Rc<SimDisk>, count: usize, options: NodeOptions) -> OpeningNode {
    let cores = Cores::new(count);
    let end = EndOfLife(cores.clone());
    let shared = NodeShared::new(options, count);
    let opened = Rc::new(RefCell::new(Vec::new()));
    let mut all = Vec::new();
    for index in 0..count {
        let env = SimEnv::new(sim.clone(), index, cores.clone(), Some(disk.clone()));
        let core = Core::begin(env.clone(), shared.clone());
        cores.register(index, core.clone());
        all.push(core.clone());
        let opened = opened.clone();
        env.spawn(Box::pin(async move {
            core.wait_for_peers().await;
            let store = core.open_store().await;
            opened.borrow_mut().push(store);
        }));
    }
    OpeningNode { node: SimNode { cores: all.into(), _end: end }, opened }
}
