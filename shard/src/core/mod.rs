//! What a core offers to front ends: the typed operations on collections, with owner routing, logging and waiting
//! inside. One [`Core`] per core, `Rc`, not `Send`; every operation may be called on any core.
//!
//! Reads run where they arrive, against published views under a pin that never lives across an await (but for that of a
//! long search, see `long`). Writes travel
//! to the owner. Changes of the catalog travel to core 0.

mod admin;
mod aliases;
mod backup_keys;
mod backup_parts;
mod backups;
mod checkpoints;
mod cold;
mod cold_sweep;
mod configuration;
mod content_hint;
mod inspect;
mod life;
mod long;
mod many;
mod name_locks;
mod on_device;
mod order;
mod promote;
mod query;
mod read;
mod restore;
mod room;
mod spaces;
mod tasks;
mod turns;
mod upkeep;
mod walk;
mod write;

pub use crate::catalog::Conventions;
pub use crate::catalog::{CollectionMetrics, Unserved};
pub use crate::error::{
    BatchError, OpError, PAYLOAD_JSON_MAX_BYTES, PAYLOAD_KEYS_MAX, PAYLOAD_ROW_MAX_BYTES,
};
pub use crate::found::{
    ANSWER_UNCOUNTED_BYTES, ANSWERS_CROWDED, Shown, ShownPayload, answers_most, charge_answer,
};
pub use crate::found_vectors::FoundVectors;
pub use crate::owner::tasks::TaskReport;
pub use crate::payload_change::{PayloadChange, finish_row};
pub use crate::points::{
    FoundPoint, NamedVectors, PAGE_BYTES, PointFields, PointOperated, ScrollPage, SearchRequest, SpaceChange,
    StoredPoint, Vectors, VectorsChange, WriteBatch, Written,
};
pub use crate::question::Asked;
pub use aliases::{Alias, AliasChange};
pub(crate) use backups::IDENTITY_FORMAT;
pub use backups::{BackedUp, BackupObject, BackupRun};
pub use inspect::{CollectionInfo, FACET_VALUES_MAX, FacetValue, OrderedFloat, SpaceInfo};
pub use many::Selection;
pub use order::{ORDER_TEXT_MAX_BYTES, OrderKey, Ordered, OrderedScroll, Part, Position};
pub use query::{Explained, FoundGroup, GroupBy, QueryAnswer, QueryOutcome, QueryRequest};
pub use restore::{RestoreRequest, Restored, Verified};

use crate::catalog::{CollectionState, checked_name, full_name};
use crate::ctx::Ctx;
use crate::env::{Env, Home, Replies};
use crate::event::{Event, Lock};
use crate::family::{CollectionConfig, Family};
use crate::journal::{Journal, Ticket};
use crate::kv::Keys;
use crate::node::{NodeOptions, NodeShared};
use crate::owner::Collections;
use crate::payload_change::check_id_kind;
use nigh_engine::index::Scratch;
use nigh_engine::memory::{Participant, Pin};
use nigh_engine::point_id::IdKind;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use turns::LongTurns;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// Buffers of searches that are kept: one for those in one piece, one for the long search, one to spare.
const SPARE_SCRATCHES: usize = 3;

/// See the module.
pub struct Core {
    pub(crate) ctx: Rc<Ctx>,
    pub(crate) collections: Rc<Collections>,
    pub(crate) keys: Rc<Keys>,
    /// Of long searches, which take turns.
    long_seat: Participant,
    long: LongTurns,
    scratch: RefCell<Vec<Scratch>>,
    /// Notified once it is decided whether the store opens.
    opened: Event,
    is_decided: Cell<bool>,
    /// All of the store is open, on every core.
    is_open: Cell<bool>,
    /// Serialises changes of the catalog; used on core 0 only.
    pub(crate) catalog_lock: Rc<Lock>,
    /// Core 0: the file of aliases has some of a dropped collection.
    aliases_behind: Cell<bool>,
    /// Used on core 0 only.
    backups: backups::Backups,
    /// Used on core 0 only.
    cold: cold::Cold,
}

impl Core {
    pub(crate) fn new(env: Rc<dyn Env>, shared: Arc<NodeShared>) -> Rc<Core> {
        let ctx = Ctx::new(env.clone(), shared.clone());
        Rc::new(Core {
            collections: Collections::new(ctx.clone()),
            keys: Keys::new(ctx.clone()),
            ctx,
            long_seat: shared.domain.participant(env.cores() + env.index()),
            long: LongTurns::default(),
            scratch: RefCell::default(),
            opened: Event::default(),
            is_decided: Cell::new(false),
            is_open: Cell::new(false),
            catalog_lock: Rc::default(),
            aliases_behind: Cell::new(false),
            backups: backups::Backups::default(),
            cold: cold::Cold::default(),
        })
    }

    /// The core of this thread. Panics where none runs.
    pub fn current() -> Rc<Core> {
        CURRENT.with_borrow(|current| current.clone()).expect("this thread runs no core")
    }

    /// Names the core of this thread; a simulator that runs several cores on one thread switches it before each step.
    pub fn set_current(core: Option<Rc<Core>>) {
        Ctx::set_current(core.as_ref().map(|core| core.ctx.clone()));
        Collections::set_current(core.as_ref().map(|core| core.collections.clone()));
        Keys::set_current(core.as_ref().map(|core| core.keys.clone()));
        CURRENT.set(core);
    }

    /// What this core works with: surroundings, shared state, log, memory.
    pub fn ctx(&self) -> &Rc<Ctx> {
        &self.ctx
    }

    /// This core's side of the keys.
    #[inline]
    pub fn keys(&self) -> &Rc<Keys> {
        &self.keys
    }

    /// Surroundings of this core.
    pub fn env(&self) -> &Rc<dyn Env> {
        self.ctx.env()
    }

    /// What all cores share.
    pub fn node(&self) -> &NodeShared {
        self.ctx.node()
    }

    /// How the node was started.
    pub fn options(&self) -> &NodeOptions {
        self.ctx.options()
    }

    /// Wall clock, Unix milliseconds.
    pub fn unix_ms(&self) -> u64 {
        self.ctx.unix_ms()
    }

    /// Announces that this thread reads published state; must not live across an await.
    pub fn pin(&self) -> Pin<'_> {
        self.ctx.pin()
    }

    /// Whether the process is on its way out.
    pub fn is_stopping(&self) -> bool {
        self.ctx.is_stopping()
    }

    /// Tells this core's periodic tasks to end at their next turn.
    pub fn begin_stop(&self) {
        self.ctx.begin_stop();
    }

    /// Counts a write that was refused, and gives its error back.
    pub fn note_refusal(&self, error: OpError) -> OpError {
        self.ctx.note_refusal(error)
    }

    /// Waits until `ticket` is as durable as the configured mode promises; at once when there is none, or no log.
    ///
    /// # Errors
    /// The log has failed: nothing behind what was durable before is known to be.
    pub async fn wait_durable(&self, ticket: Option<Ticket>) -> Result<(), OpError> {
        self.ctx.wait_durable(ticket).await
    }

    /// Checks a name for create and returns `<tenant>/<name>`.
    ///
    /// # Errors
    /// [`OpError::BadRequest`] naming what is wrong.
    pub fn full_name(name: &str) -> Result<String, OpError> {
        checked_name(name)
    }

    /// Refuses until the names and conventions of collections are known: before that no request about one can even be decoded.
    ///
    /// # Errors
    /// [`OpError::Opening`].
    pub fn knows_collections(&self) -> Result<(), OpError> {
        let pin = self.pin();
        let catalog = self.node().catalog.load(&pin);
        if catalog.is_read { Ok(()) } else { Err(catalog.lacks("", "")) }
    }

    /// Configuration of a collection; also the existence check.
    ///
    /// # Errors
    /// [`OpError::UnknownCollection`], [`OpError::Damaged`], or [`OpError::NoMemory`] when it is closed.
    pub fn config(&self, name: &str) -> Result<Arc<CollectionConfig>, OpError> {
        if let Some(cold) = self.cold_config(name) {
            return Ok(cold);
        }
        let handle = self.ctx.handle(name)?;
        handle.healthy()?;
        Ok(handle.config(&self.pin()).clone())
    }

    /// The configuration of a cold collection, which is known without bringing it back.
    fn cold_config(&self, name: &str) -> Option<Arc<CollectionConfig>> {
        if self.node().cold.collections.load(Relaxed) == 0 {
            return None;
        }
        let pin = self.pin();
        Some(self.node().catalog.load(&pin).cold_of(&full_name(name)?)?.config.clone())
    }

    /// How the payloads of each collection are sent and answered, and the kind of its ids.
    pub fn conventions(&self) -> Conventions {
        self.node().catalog.load(&self.pin()).conventions.clone()
    }

    /// Whether a name stands for a collection of a family.
    ///
    /// # Errors
    /// [`OpError::UnknownCollection`] when there is none, or it is of another family: each family has names of its own for those who ask.
    pub fn expect_family(&self, name: &str, family: Family) -> Result<(), OpError> {
        let found = match self.cold_config(name) {
            Some(config) => config.family(),
            None => self.ctx.handle(name)?.family,
        };
        match found == family {
            true => Ok(()),
            false => Err(OpError::UnknownCollection(name.to_owned())),
        }
    }

    /// Checks that ids which were sent as numbers or as strings are what names the points of a collection.
    ///
    /// # Errors
    /// [`OpError::UnknownCollection`]; [`OpError::BadRequest`] if they are not.
    pub fn expect_ids(&self, name: &str, sent: IdKind) -> Result<(), OpError> {
        check_id_kind(sent, &*self.ctx.handle(name)?)
    }

    /// Why this node should get no more requests, in one sentence per reason: a store that is not open yet, logs that have failed, a full disk,
    /// damaged or closed collections, damaged keys. `None` when it is ready.
    pub fn not_ready(&self) -> Option<String> {
        let mut reasons: Vec<String> =
            self.node().progress.describe().into_iter().chain(self.node().log_failure()).collect();
        if self.node().reserve.is_disk_full() {
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
        let catalog = self.node().catalog.load(&pin);
        let count = |state| catalog.by_name.values().filter(|handle| handle.state() == state).count();
        Unserved { damaged: count(CollectionState::Damaged), closed: count(CollectionState::Closed) }
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
}

impl Home for Core {
    fn here() -> Rc<Core> {
        Core::current()
    }

    fn env(&self) -> &Rc<dyn Env> {
        self.ctx.env()
    }

    fn replies(&self) -> &Replies {
        self.ctx.replies()
    }
}
