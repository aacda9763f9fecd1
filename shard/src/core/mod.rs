//! What a core offers to front ends: the typed operations on collections, with owner routing, logging and waiting
//! inside. One [`Core`] per core, `Rc`, not `Send`; every operation may be called on any core.
//!
//! Reads run where they arrive, against published views under a pin that never lives across an await (but for that of a
//! long search, see `long`). Writes travel
//! to the owner. Changes of the catalog travel to core 0.

mod admin;
pub(crate) mod aliases;
mod content_hint;
mod found;
mod inspect;
mod long;
mod order;
mod payload_change;
mod query;
pub(crate) mod question;
mod read;
mod tasks;
mod types;
mod walk;
mod write;

pub(crate) use admin::file_error;
pub(crate) use admin::io_error;
pub use aliases::{Alias, AliasChange};
pub(crate) use found::found_points;
pub use found::{ANSWER_UNCOUNTED_BYTES, ANSWERS_CROWDED, answers_most, charge_answer};
pub use inspect::{CollectionInfo, FACET_VALUES_MAX, FacetValue, OrderedFloat};
pub use order::{ORDER_TEXT_MAX_BYTES, OrderKey, Ordered, OrderedScroll, Part, Position};
pub use payload_change::{PAYLOAD_ROW_MAX_BYTES, PayloadChange};
pub use query::{Explained, FoundGroup, GroupBy, QueryAnswer, QueryOutcome, QueryRequest};
pub use question::Asked;
pub use read::PAGE_BYTES;
pub(crate) use tasks::Task;
pub use tasks::TaskReport;
pub use types::{
    BatchError, CollectionMetrics, FoundPoint, LATENCY_BOUNDS_US, OpError, PointFields, PointOperated,
    ScrollPage, SearchRequest, StoredPoint, Unserved, Vectors, WriteBatch, Written,
};

use crate::account::{Growth, MemoryUse, Refusal, Share};
use crate::catalog::{Catalog, CollectionHandle, CollectionState, checked_name, full_name};
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
    /// What the collections of this core hold.
    points: Share,
    log: RefCell<Option<Rc<Log>>>,
    old_segments: RefCell<Rc<OldSegments>>,
    owned: RefCell<HashMap<u64, Rc<Owned>>>,
    /// Writers replaced by a bulk build or dropped, until no reader can hold what they published.
    old_writers: RefCell<Limbo<DenseWriter>>,
    scratch: RefCell<Vec<Scratch>>,
    search_us: RefCell<Histogram<u64>>,
    stopping: Cell<bool>,
    /// Rounds of chores since the last write that they saw.
    quiet_rounds: Cell<u32>,
    /// Core time at which this core last asked the allocator to return memory, in microseconds.
    given_back_us: Cell<u64>,
    /// Bytes that were resident and unaccounted for after that, or fewer if there have been fewer since.
    unseen_left: Cell<u64>,
    /// Notified when this core is about to write points; [`Self::await_writes`] waits for it.
    writes: Event,
    /// Whether anybody has called [`Self::await_writes`] since the last notification.
    writes_awaited: Cell<bool>,
    runtime: RefCell<Option<CoreRuntime>>,
    /// Set once the store is open on every core.
    pub(crate) opened: Event,
    pub(crate) is_open: Cell<bool>,
    /// Serialises changes of the catalog; used on core 0 only.
    catalog_lock: Rc<Lock>,
    /// Core 0: the file of aliases has some of a dropped collection.
    aliases_behind: Cell<bool>,
    /// Something that frees room waits for images.
    pub(crate) images_wanted: Cell<bool>,
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
            keys: Keys::new(env.index(), shared.keys.clone(), &shared.account),
            points: Share::new(&shared.account, MemoryUse::Collections),
            log: RefCell::default(),
            old_segments: RefCell::default(),
            owned: RefCell::default(),
            old_writers: RefCell::new(Limbo::new()),
            quiet_rounds: Cell::new(0),
            given_back_us: Cell::new(0),
            unseen_left: Cell::new(0),
            writes: Event::default(),
            writes_awaited: Cell::new(false),
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
            images_wanted: Cell::new(false),
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

    /// Admits a write of points that takes about `bytes`, or refuses it at the memory limit.
    ///
    /// # Errors
    /// [`OpError::NoMemory`], or [`OpError::Busy`] where it is requests and answers that leave no room.
    pub(crate) fn room_in_memory(&self, bytes: u64, growth: Growth) -> Result<(), OpError> {
        if self.shared.account.wants_look() {
            self.look_at_memory();
        }
        if self.writes_awaited.replace(false) {
            self.writes.notify();
        }
        let mut taken = self.points.take(bytes, growth);
        if matches!(taken, Err(Refusal::Full { .. }))
            && self.keeps_much_unseen()
            && self.give_back_memory(GIVE_BACK_FULL_US)
        {
            taken = self.points.take(bytes, growth);
        }
        taken.map_err(refused_memory)
    }

    /// Resolves when this core next admits a write of points after this call.
    pub(crate) fn await_writes(&self) -> impl Future<Output = ()> + '_ {
        self.writes_awaited.set(true);
        self.writes.wait()
    }

    /// Whether the allocator should be asked again to return memory: there is much more that is unaccounted for than it left the last time.
    fn keeps_much_unseen(&self) -> bool {
        let account = &self.shared.account;
        self.unseen_left.set(self.unseen_left.get().min(account.unseen()));
        account.keeps_much_unseen(self.unseen_left.get())
    }

    /// Has the allocator return unused memory, and then has the account look at the resident set. Returns false, and does nothing, within
    /// `pause_us` of the last time on this core.
    pub(crate) fn give_back_memory(&self, pause_us: u64) -> bool {
        let now_us = self.env.now_ns() / 1000;
        if now_us < self.given_back_us.get() + pause_us {
            return false;
        }
        (self.shared.options.give_back_memory)();
        self.given_back_us.set(now_us);
        self.look_at_memory();
        self.unseen_left.set(self.shared.account.unseen());
        true
    }

    /// Has the account see what the kernel counts.
    pub(crate) fn look_at_memory(&self) {
        if let Some(bytes) = self.env.resident_bytes() {
            self.shared.account.note_resident(bytes);
        }
    }

    /// Measures what this core holds of points and keys.
    pub(crate) fn measure_memory(&self) {
        self.keys.measure_memory();
        let mut bytes = 0;
        for owned in self.all_owned() {
            bytes += owned.writer.borrow().shared().stats().bytes;
            bytes += owned.staged.borrow().bytes() + owned.aside_bytes.get();
        }
        self.points.measure(bytes);
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
    /// [`OpError::UnknownCollection`], [`OpError::Damaged`], or [`OpError::NoMemory`] when it is closed.
    pub fn config(&self, name: &str) -> Result<Arc<DenseConfig>, OpError> {
        let handle = self.handle(name)?;
        handle.healthy()?;
        Ok(handle.config.clone())
    }

    /// Why this node should get no more requests, in one sentence per reason: logs that have failed, a full disk, damaged or closed collections,
    /// damaged keys. `None`
    /// when it is ready.
    pub fn not_ready(&self) -> Option<String> {
        let mut reasons: Vec<String> = self.shared.log_failure().into_iter().collect();
        if self.shared.reserve.is_disk_full() {
            reasons.push(
                "the disk is full: writes that need room are refused; reads, deletes and drops go on"
                    .to_owned(),
            );
        }
        // Their names are for those who may read the log or the metrics.
        let Unserved { damaged, closed } = self.unserved_collections();
        for (count, what) in [(damaged, "damaged"), (closed, "closed for want of memory")] {
            match count {
                0 => {}
                1 => reasons.push(format!("1 collection is {what} and serves nothing")),
                many => reasons.push(format!("{many} collections are {what} and serve nothing")),
            }
        }
        if self.keys().damage().is_some() {
            reasons.push("the keys are damaged: operations on keys are refused".to_owned());
        }
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Collections that serve nothing.
    pub fn unserved_collections(&self) -> Unserved {
        let pin = self.pin();
        let catalog = self.shared.catalog.load(&pin);
        let count = |state| catalog.by_name.values().filter(|handle| handle.state() == state).count();
        Unserved { damaged: count(CollectionState::Damaged), closed: count(CollectionState::Closed) }
    }

    /// Counts a write that was refused, and gives its error back.
    pub fn note_refusal(&self, error: OpError) -> OpError {
        self.shared.refusals.note(&error, self.shared.has_log_failed());
        error
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

    /// Waits about `us` for the next round of something periodic.
    ///
    /// Rounds of all periodic work fall together, and become fewer when nothing has been written for a while: each wakes the core, which
    /// takes some 0.1 ms of a CPU, and a server without work should take next to nothing.
    pub(crate) async fn pause(&self, us: u64) {
        let us = if self.is_quiet() { us.max(QUIET_PAUSE_US) } else { us };
        let now_us = self.env.now_ns() / 1000;
        self.env.sleep_us(us - now_us % us).await;
    }

    /// Whether nothing has been written for seconds.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet_rounds.get() >= QUIET_ROUNDS
    }

    /// Notes whether anything was written since the last round of chores.
    fn note_writes(&self, written: (u64, u64, u64, u64), before: &mut (u64, u64, u64, u64)) {
        let is_quiet = std::mem::replace(before, written) == written;
        self.quiet_rounds.set(if is_quiet { self.quiet_rounds.get().saturating_add(1) } else { 0 });
    }

    /// Periodic chores of a core: give back what no reader sees any more, and account memory.
    pub(crate) async fn housekeeping(self: Rc<Self>) {
        let mut written_before = (0, 0, 0, 0);
        let mut rounds = 0u64;
        while !self.is_stopping() {
            self.pause(HOUSEKEEPING_US).await;
            rounds += 1;
            while let Some(writer) = self.old_writers.borrow_mut().pop(&self.shared.domain) {
                drop(writer);
            }
            if self.env.index() == 0 {
                self.shared.catalog.reclaim();
            }
            let mut seqs = 0;
            for owned in self.all_owned() {
                owned.handle.view.reclaim();
                // A round in flight owns the right to free slots.
                if let Some(_guard) = owned.round_lock.try_lock() {
                    owned.writer.borrow_mut().reclaim();
                }
                if rounds % RESIDENCY_ROUNDS == owned.handle.uid % RESIDENCY_ROUNDS {
                    owned.writer.borrow().shared().note_residency();
                }
                seqs += owned.writer.borrow().seq();
            }
            self.measure_memory();
            let held = (self.keys.bytes(), self.shared.account.held(MemoryUse::Collections));
            self.note_writes((held.0, held.1, seqs, self.log_frames()), &mut written_before);
            // What grows without being asked for (answers, buffers, the allocator's slack) shows here.
            if (self.env.index() == 0 && rounds.is_multiple_of(LOOK_ROUNDS))
                || self.shared.account.wants_look()
            {
                self.look_at_memory();
            }
            if self.keeps_much_unseen() {
                let account = &self.shared.account;
                let is_full = account.total() > account.limit_bytes();
                self.give_back_memory(if is_full { GIVE_BACK_FULL_US } else { GIVE_BACK_US });
            }
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

/// As a client is told.
pub(crate) fn refused_memory(refusal: Refusal) -> OpError {
    match refusal {
        Refusal::Full { used_bytes, limit_bytes } => OpError::NoMemory(format!(
            "{used_bytes} of {limit_bytes} bytes for points and keys would be in use"
        )),
        Refusal::Crowded { used_bytes, limit_bytes } => OpError::Busy(format!(
            "requests in flight leave no memory: {used_bytes} of {limit_bytes} bytes would be in use; try again"
        )),
    }
}

/// Buffers of searches that are kept: one for those in one piece, one for the long search, one to spare.
const SPARE_SCRATCHES: usize = 3;
/// Rounds of chores without a write after which periodic work becomes seldom: 2 s.
const QUIET_ROUNDS: u32 = 40;
/// Between two rounds of it then, microseconds: what begins meanwhile is noticed that much later.
pub(crate) const QUIET_PAUSE_US: u64 = 250_000;
/// Between two rounds of chores, microseconds.
const HOUSEKEEPING_US: u64 = 50_000;
/// In one of so many rounds the resident set is looked at.
const LOOK_ROUNDS: u64 = 4;
/// While the process keeps much unused memory, each core asks the allocator to return it at most this often, in microseconds.
const GIVE_BACK_US: u64 = 5_000_000;
/// While the memory limit is exceeded or a write is refused, a core asks at most this often, in microseconds.
const GIVE_BACK_FULL_US: u64 = 1_000_000;
/// In one of so many rounds it is looked whether vectors of files have left memory.
const RESIDENCY_ROUNDS: u64 = 16;
