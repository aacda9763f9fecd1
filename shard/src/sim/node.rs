//! A node on a simulated disk.

use super::{Cores, Sim, SimEnv};
use crate::core::Core;
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::kv::KeysOptions;
use crate::log::SyncMode;
use crate::node::{NodeOptions, NodeShared};
use std::cell::RefCell;
use std::rc::Rc;

/// A node that serves; it ends, as if killed, when this is dropped.
pub struct SimNode {
    /// In the order in which they opened.
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
    let cores = Cores::new(count);
    let end = EndOfLife(cores.clone());
    let shared = NodeShared::new(options, count);
    let opened = Rc::new(RefCell::new(Vec::new()));
    for index in 0..count {
        let env = SimEnv::new(sim.clone(), index, cores.clone(), Some(disk.clone()));
        let start = Core::begin(env, shared.clone());
        cores.register(index, start.clone());
        let opened = opened.clone();
        sim.spawn(async move {
            let core = start.finish_start().await.expect("the store opens");
            opened.borrow_mut().push(core);
        });
    }
    while opened.borrow().len() < count {
        sim.sleep_us(100).await;
    }
    let cores = opened.borrow().as_slice().into();
    SimNode { cores, _end: end }
}
