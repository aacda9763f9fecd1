//! What a core offers to front ends: the typed operations on collections, with owner routing, logging and waiting
//! inside. One [`Core`] per core, `Rc`, not `Send`; every operation may be called on any core.
//!
//! Reads run where they arrive, against published views under a pin that never lives across an await (but for that of a
//! long search, see `long`). Writes travel
//! to the owner. Changes of the catalog travel to core 0.

mod admin;
pub(crate) mod aliases;
mod content_hint;
mod inspect;
mod long;
mod order;
mod payload_change;
mod query;
mod read;
mod tasks;
mod types;
mod walk;
mod write;

pub(crate) use admin::file_error;
pub(crate) use admin::io_error;
pub use aliases::{Alias, AliasChange};
pub use inspect::{CollectionInfo, FACET_VALUES_MAX, FacetValue, OrderedFloat};
pub use order::{ORDER_TEXT_MAX_BYTES, OrderKey, Ordered, OrderedScroll, Part, Position};
pub use payload_change::{PAYLOAD_ROW_MAX_BYTES, PayloadChange};
pub use query::{Explained, FoundGroup, GroupBy, QueryAnswer, QueryOutcome, QueryRequest};
pub(crate) use read::found_points;
pub(crate) use tasks::Task;
pub use tasks::TaskReport;
pub use types::{
    BatchError, CollectionMetrics, FoundPoint, LATENCY_BOUNDS_US, OpError, PointFields, PointOperated,
    ScrollPage, SearchRequest, StoredPoint, Vectors, WriteBatch, Written,
};

use crate::account::MemoryUse;
use crate::catalog::{Catalog, CollectionHandle, checked_name, full_name};
use crate::checkpoint::VectorsFile;
use crate::env::{Env, Replies};
use crate::event::{Event, Lock};
use crate::keys::Keys;
use crate::log::{Log, OldSegments};
use crate::node::{NodeOptions, NodeShared};
use crate::owner::Owned;
use crate::runtime::CoreRuntime;
use ahash::HashMap;
use hdrhistogram::Histogram;
use nigh_engine::collection::{Dense, DenseConfig, DenseWriter};
use nigh_engine::index::Scratch;
use nigh_engine::memory::{Limbo, Participant, Pin};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// See the module.
pub struct Core {
    env: Rc<dyn Env>,
    shared: Arc<NodeShared>,
    participant: Participant,
    /// Of long searches, which take turns.
    long_seat: Participant,
    long: long::LongTurns,
    tasks: tasks::Tasks,
    replies: Replies,
    pub(crate) keys: Keys,
    log: RefCell<Option<Rc<Log>>>,
    old_segments: RefCell<Rc<OldSegments>>,
    owned: RefCell<HashMap<u64, Rc<Owned>>>,
    /// Writers replaced by a bulk build or dropped, until no reader can hold what they published.
    old_writers: RefCell<Limbo<DenseWriter>>,
    scratch: RefCell<Vec<Scratch>>,
    search_us: RefCell<Histogram<u64>>,
    stopping: Cell<bool>,
    runtime: RefCell<Option<CoreRuntime>>,
    /// Set once the store is open on every core.
    pub(crate) opened: Event,
    pub(crate) is_open: Cell<bool>,
    /// Serialises changes of the catalog; used on core 0 only.
    catalog_lock: Rc<Lock>,
    /// Core 0: the file of aliases has some of a dropped collection.
    aliases_behind: Cell<bool>,
}

impl Core {
    pub(crate) fn new(env: Rc<dyn Env>, shared: Arc<NodeShared>) -> Rc<Core> {
        let participant = shared.domain.participant(env.index());
        let long_seat = shared.domain.participant(env.cores() + env.index());
        Rc::new(Core {
            participant,
            long_seat,
            long: long::LongTurns::default(),
            tasks: tasks::Tasks::default(),
            replies: Replies::default(),
            keys: Keys::new(env.index(), shared.keys.clone()),
            log: RefCell::default(),
            old_segments: RefCell::default(),
            owned: RefCell::default(),
            old_writers: RefCell::new(Limbo::new()),
            scratch: RefCell::default(),
            search_us: RefCell::new(
                Histogram::new_with_bounds(1, 600_000_000, 3).expect("bounds and precision are valid"),
            ),
            stopping: Cell::new(false),
            runtime: RefCell::default(),
            opened: Event::default(),
            is_open: Cell::new(false),
            catalog_lock: Rc::default(),
            aliases_behind: Cell::new(false),
            env,
            shared,
        })
    }

    /// The core of this thread. Panics where none runs.
    pub fn current() -> Rc<Core> {
        CURRENT.with_borrow(|current| current.clone()).expect("this thread runs no core")
    }

    /// Names the core of this thread; a simulator that runs several cores on one thread switches it before each step.
    pub fn set_current(core: Option<Rc<Core>>) {
        CURRENT.set(core);
    }

    /// Surroundings of this core.
    pub fn env(&self) -> &Rc<dyn Env> {
        &self.env
    }

    /// The executor under this core, for front ends. Panics in a simulation, which has none.
    pub fn runtime(&self) -> CoreRuntime {
        self.runtime.borrow().clone().expect("this core runs on a real executor")
    }

    pub(crate) fn set_runtime(&self, runtime: CoreRuntime) {
        *self.runtime.borrow_mut() = Some(runtime);
    }

    /// Checks a name for create and returns `<tenant>/<name>`.
    ///
    /// # Errors
    /// [`OpError::BadRequest`] naming what is wrong.
    pub fn full_name(name: &str) -> Result<String, OpError> {
        checked_name(name)
    }

    /// What all cores share.
    pub fn node(&self) -> &NodeShared {
        &self.shared
    }

    pub(crate) fn shared_node(&self) -> Arc<NodeShared> {
        self.shared.clone()
    }

    /// How the node was started.
    pub fn options(&self) -> &NodeOptions {
        &self.shared.options
    }

    /// Wall clock, Unix milliseconds.
    pub fn unix_ms(&self) -> u64 {
        self.env.unix_ms()
    }

    pub(crate) fn replies(&self) -> &Replies {
        &self.replies
    }

    pub(crate) fn log(&self) -> Option<Rc<Log>> {
        self.log.borrow().clone()
    }

    pub(crate) fn set_log(&self, log: Rc<Log>, old: OldSegments) {
        *self.log.borrow_mut() = Some(log);
        *self.old_segments.borrow_mut() = Rc::new(old);
    }

    /// Bytes of log that recovery would read for this core.
    pub fn log_bytes(&self) -> u64 {
        self.log.borrow().as_ref().map_or(0, |log| log.live_bytes())
    }

    /// Frames that this core has written to its log.
    pub fn log_frames(&self) -> u64 {
        self.log.borrow().as_ref().map_or(0, |log| log.frames())
    }

    pub(crate) fn has_old_segments(&self) -> bool {
        !self.old_segments.borrow().is_empty()
    }

    pub(crate) fn old_segments(&self) -> Rc<OldSegments> {
        self.old_segments.borrow().clone()
    }

    /// Announces that this thread reads published state; must not live across an await.
    pub fn pin(&self) -> Pin<'_> {
        self.participant.pin()
    }

    pub(crate) fn owned(&self, uid: u64) -> Option<Rc<Owned>> {
        self.owned.borrow().get(&uid).cloned()
    }

    pub(crate) fn all_owned(&self) -> Vec<Rc<Owned>> {
        self.owned.borrow().values().cloned().collect()
    }

    pub(crate) fn insert_owned(&self, owned: Rc<Owned>) {
        self.owned.borrow_mut().insert(owned.handle.uid, owned);
    }

    pub(crate) fn remove_owned(&self, uid: u64) -> Option<Rc<Owned>> {
        self.owned.borrow_mut().remove(&uid)
    }

    /// Whether the process is on its way out.
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Tells this core's periodic tasks to end at their next turn.
    pub fn begin_stop(&self) {
        self.stopping.set(true);
    }

    /// Refuses growth past the memory limit. What `reuses` the place of a deleted point may go a little beyond (its payload may
    /// be larger): otherwise a full node could not even replace.
    pub(crate) fn room_in_memory(&self, reuses: bool) -> Result<(), OpError> {
        let (used, limit) = (self.shared.account.total(), self.shared.account.limit_bytes());
        let limit = if reuses { limit.saturating_add(limit / REUSE_SHARE) } else { limit };
        if used >= limit {
            return Err(OpError::NoMemory(format!("{used} of {limit} bytes are in use")));
        }
        Ok(())
    }

    /// The handle behind a client's name, which may be an alias.
    pub(crate) fn handle(&self, name: &str) -> Result<Arc<CollectionHandle>, OpError> {
        let unknown = || OpError::UnknownCollection(name.to_owned());
        let full = full_name(name).ok_or_else(unknown)?;
        let pin = self.pin();
        self.shared.catalog.load(&pin).resolve(&full).cloned().ok_or_else(unknown)
    }

    /// Configuration of a collection; also the existence check.
    ///
    /// # Errors
    /// [`OpError::UnknownCollection`], or [`OpError::Unavailable`] when it is damaged.
    pub fn config(&self, name: &str) -> Result<Arc<DenseConfig>, OpError> {
        let handle = self.handle(name)?;
        handle.healthy()?;
        Ok(handle.config.clone())
    }

    pub(crate) fn take_scratch(&self) -> Scratch {
        self.scratch.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_scratch(&self, scratch: Scratch) {
        let mut spare = self.scratch.borrow_mut();
        if spare.len() < SPARE_SCRATCHES {
            spare.push(scratch);
        }
    }

    pub(crate) fn record_search_us(&self, us: u64) {
        self.search_us.borrow_mut().saturating_record(us.max(1));
    }

    /// This core's search times in microseconds, for merging at scrape.
    pub fn search_histogram(&self) -> Histogram<u64> {
        self.search_us.borrow().clone()
    }

    /// Swings the view of a collection to a new writer's and retires the old writer.
    pub(crate) fn publish_view(&self, owned: &Owned, view: Arc<Dense>, old_writer: DenseWriter) {
        owned.handle.view.swap(view);
        self.retire_writer(old_writer);
    }

    /// Drops a writer once no reader can hold what it published.
    pub(crate) fn retire_writer(&self, writer: DenseWriter) {
        self.old_writers.borrow_mut().push(&self.shared.domain, writer);
    }

    /// Core 0 only: replaces the published catalog.
    pub(crate) fn publish_catalog(&self, catalog: Catalog) {
        self.shared.catalog.swap(catalog);
    }

    /// Periodic chores of a core: give back what no reader sees any more, and account memory.
    pub(crate) async fn housekeeping(self: Rc<Self>) {
        let (mut keys_before, mut collections_before) = (0, 0);
        let mut rounds = 0u64;
        while !self.is_stopping() {
            self.env.sleep_us(HOUSEKEEPING_US).await;
            rounds += 1;
            while let Some(writer) = self.old_writers.borrow_mut().pop(&self.shared.domain) {
                drop(writer);
            }
            if self.env.index() == 0 {
                self.shared.catalog.reclaim();
            }
            let keys = self.keys.bytes();
            self.shared.account.measured(MemoryUse::Keys, keys_before, keys);
            keys_before = keys;
            let mut bytes = 0;
            for owned in self.all_owned() {
                owned.handle.view.reclaim();
                // A round in flight owns the right to free slots.
                if let Some(_guard) = owned.round_lock.try_lock() {
                    owned.writer.borrow_mut().reclaim();
                }
                if rounds % RESIDENCY_ROUNDS == owned.handle.uid % RESIDENCY_ROUNDS {
                    owned.writer.borrow().shared().note_residency();
                }
                bytes += owned.writer.borrow().shared().stats().bytes;
                bytes += owned.staged.borrow().bytes() + owned.aside_bytes.get();
            }
            self.shared.account.measured(MemoryUse::Collections, collections_before, bytes);
            collections_before = bytes;
        }
    }

    /// Makes an empty writer for `config` in this node's memory, or in `vectors` where they lie in a file, for at least `slots`
    /// points: what was stored once opens under a lower memory limit too.
    ///
    /// # Errors
    /// [`OpError::NoMemory`] when the address space for it cannot be reserved, or a file cannot be had.
    pub(crate) fn new_writer(
        &self,
        config: &DenseConfig,
        vectors: Option<&VectorsFile>,
        slots: usize,
    ) -> Result<DenseWriter, OpError> {
        let slots = self.shared.slots_max(config).max(slots);
        let storage = match (vectors, self.env.disk()) {
            (Some(vectors), Some(disk)) => Some(vectors.storage(&*disk).map_err(|e| io_error(&e))?),
            _ => None,
        };
        DenseWriter::create_in(config.clone(), slots, self.shared.domain.clone(), storage)
            .map_err(|error| OpError::NoMemory(error.to_string()))
    }
}

/// Buffers of searches that are kept: one for those in one piece, one for the long search, one to spare.
const SPARE_SCRATCHES: usize = 3;
/// The part of the memory limit that may be used beyond it by what reuses places.
const REUSE_SHARE: u64 = 32;
/// Between two rounds of chores, microseconds.
const HOUSEKEEPING_US: u64 = 50_000;
/// In one of so many rounds it is looked whether vectors of files have left memory.
const RESIDENCY_ROUNDS: u64 = 16;
