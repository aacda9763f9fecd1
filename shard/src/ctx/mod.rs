//! What every part of a core works with: its surroundings, the state that all cores share, its log, the memory that its points take,
//! and its seat among the readers of published state.
//!
//! One per core, `Rc`, not `Send`. It knows neither collections nor keys as their owner has them: those ([`crate::owner`],
//! [`crate::kv`]) take it, and [`crate::core::Core`] puts them together.

mod memory;
mod room;

pub(crate) use memory::GIVE_BACK_FULL_US;
pub(crate) use room::{CHECKPOINT_POLL_US, CHECKPOINT_WAIT_MAX_US, keep_reserve};

use crate::access::Activity;
use crate::account::{MemoryUse, Share};
use crate::archive::{CatalogLog, Keeper};
use crate::catalog::{Catalog, CollectionHandle, Counters, full_name};
use crate::env::{Env, Home, Replies};
use crate::error::OpError;
use crate::event::Event;
use crate::family::CollectionConfig;
use crate::log::{Log, OldSegments};
use crate::node::{NodeOptions, NodeShared};
use nigh_engine::collection::DenseWriter;
use nigh_engine::memory::{Participant, Pin, Published};
use nigh_engine::query::Indexing;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

thread_local! {
    static CURRENT: RefCell<Option<Rc<Ctx>>> = const { RefCell::new(None) };
}

/// Rounds of chores without a write after which periodic work becomes seldom: 2 s.
const QUIET_ROUNDS: u32 = 40;
/// Between two rounds of it then, microseconds: what begins meanwhile is noticed that much later.
pub(crate) const QUIET_PAUSE_US: u64 = 250_000;

/// See the module.
pub struct Ctx {
    env: Rc<dyn Env>,
    shared: Arc<NodeShared>,
    participant: Participant,
    replies: Replies,
    /// What the collections of this core hold.
    points: Share,
    log: OnceCell<Rc<Log>>,
    old_segments: RefCell<Rc<OldSegments>>,
    /// The segments that the archive waits for.
    pub(crate) keeper: OnceCell<Rc<Keeper>>,
    /// Used on core 0 only.
    pub(crate) catalog_log: CatalogLog,
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
    /// Something that frees room waits for images.
    pub(crate) images_wanted: Cell<bool>,
}

impl Ctx {
    pub(crate) fn new(env: Rc<dyn Env>, shared: Arc<NodeShared>) -> Rc<Ctx> {
        Rc::new(Ctx {
            participant: shared.domain.participant(env.index()),
            replies: Replies::default(),
            points: Share::new(&shared.account, MemoryUse::Collections),
            log: OnceCell::new(),
            old_segments: RefCell::default(),
            keeper: OnceCell::new(),
            catalog_log: CatalogLog::default(),
            stopping: Cell::new(false),
            quiet_rounds: Cell::new(0),
            given_back_us: Cell::new(0),
            unseen_left: Cell::new(0),
            writes: Event::default(),
            writes_awaited: Cell::new(false),
            images_wanted: Cell::new(false),
            env,
            shared,
        })
    }

    /// Names the context of this thread's core.
    pub(crate) fn set_current(ctx: Option<Rc<Ctx>>) {
        CURRENT.set(ctx);
    }

    /// Surroundings of this core.
    pub fn env(&self) -> &Rc<dyn Env> {
        &self.env
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

    /// Wall clock as logs and their archive tell it: it never goes back while the process runs.
    pub(crate) fn moment_ms(&self) -> u64 {
        self.shared.moment_ms(self.env.unix_ms())
    }

    pub(crate) fn replies(&self) -> &Replies {
        &self.replies
    }

    /// The log itself, for what starts, stops and trims it; owners append through [`crate::journal::Journal`].
    pub(crate) fn log(&self) -> Option<&Rc<Log>> {
        self.log.get()
    }

    pub(crate) fn set_log(&self, log: Rc<Log>, old: OldSegments) {
        assert!(self.log.set(log).is_ok(), "a core makes its log once");
        *self.old_segments.borrow_mut() = Rc::new(old);
    }

    /// Bytes of log that recovery would read for this core.
    pub fn log_bytes(&self) -> u64 {
        self.log().map_or(0, |log| log.live_bytes())
    }

    /// Frames that this core has written to its log.
    pub fn log_frames(&self) -> u64 {
        self.log().map_or(0, |log| log.frames())
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

    /// Whether the process is on its way out.
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Tells this core's periodic tasks to end at their next turn.
    pub fn begin_stop(&self) {
        self.stopping.set(true);
    }

    /// Counts a write that was refused, and gives its error back.
    pub fn note_refusal(&self, error: OpError) -> OpError {
        self.shared.refusals.note(&error, self.shared.has_log_failed());
        error
    }

    /// The handle behind a client's name, which may be an alias.
    pub(crate) fn handle(&self, name: &str) -> Result<Arc<CollectionHandle>, OpError> {
        let full = full_name(name).ok_or_else(|| OpError::UnknownCollection(name.to_owned()))?;
        let pin = self.pin();
        let catalog = self.shared.catalog.load(&pin);
        catalog.resolve(&full).cloned().ok_or_else(|| catalog.lacks(&full, name))
    }

    /// Refuses until all of the store is open.
    ///
    /// What changes the names of collections is refused as long as others are being opened: the opening publishes the catalog anew for each that is
    /// open, its judgement of which log records belong to dropped collections goes by the names that it has read, and the directories it
    /// reads must not go away under it.
    ///
    /// # Errors
    /// [`OpError::Opening`].
    pub(crate) fn refuse_while_opening(&self) -> Result<(), OpError> {
        match self.shared.progress.is_open() {
            true => Ok(()),
            false => Err(OpError::Opening("the store is".to_owned())),
        }
    }

    pub(crate) fn catalog_copy(&self) -> Catalog {
        let pin = self.pin();
        self.node().catalog.load(&pin).clone()
    }

    /// Core 0 only: replaces the published catalog.
    pub(crate) fn publish_catalog(&self, mut catalog: Catalog) {
        catalog.note_conventions();
        self.shared.cold.collections.store(catalog.cold.len(), Relaxed);
        self.shared.catalog.swap(catalog);
    }

    /// The shared handle of a collection whose owner follows from its uid.
    pub(crate) fn new_handle(
        &self,
        uid: u64,
        name: String,
        config: CollectionConfig,
        writer: &DenseWriter,
    ) -> Arc<CollectionHandle> {
        Arc::new(CollectionHandle {
            uid,
            name,
            family: config.family(),
            payload_format: config.payload_format(),
            ids: config.ids(),
            indexing: config.multi_vector().map_or_else(Indexing::default, Indexing::of),
            config: Published::new(self.node().domain.clone(), Arc::new(config)),
            owner: self.node().owner_of(uid, self.env().cores()),
            view: Published::new(self.node().domain.clone(), writer.shared().clone()),
            counters: Counters::default(),
            covered_seq: AtomicU64::new(0),
            damage: OnceLock::new(),
            is_closed: AtomicBool::new(false),
            tokens: OnceLock::new(),
            activity: self.options().backup.has_store().then(|| Arc::new(Activity::new(self.env().cores()))),
        })
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
    pub(crate) fn note_writes(&self, written: (u64, u64, u64, u64), before: &mut (u64, u64, u64, u64)) {
        let is_quiet = std::mem::replace(before, written) == written;
        self.quiet_rounds.set(if is_quiet { self.quiet_rounds.get().saturating_add(1) } else { 0 });
    }
}

impl Home for Ctx {
    fn here() -> Rc<Ctx> {
        CURRENT.with_borrow(|current| current.clone()).expect("this thread runs no core")
    }

    fn env(&self) -> &Rc<dyn Env> {
        &self.env
    }

    fn replies(&self) -> &Replies {
        &self.replies
    }
}
