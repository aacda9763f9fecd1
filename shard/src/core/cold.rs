//! Eviction and promotion of collections. A collection that nobody uses, or that a client wants evicted, leaves memory and disk for the store of
//! backups. The next request for it promotes it, that is, brings it back.
//!
//! A collection that has left is *cold*: its name, its configuration and the key of its snapshot are in the catalog and in a *stub*, a small file
//! on the disk. Core 0 decides on evictions and promotions; both hold the lock of the name. A request enters a collection before it begins
//! ([`Core::enter`]), which keeps the collection in memory until the request has ended. If the collection is leaving or cold, the request waits
//! for core 0.

use super::Core;
use super::name_locks::NameLocks;
use crate::access::Access;
use crate::backup::{BackupTarget, Job};
use crate::catalog::{ColdCollection, CollectionHandle, full_name};
use crate::checkpoint::collection_dir;
use crate::cold_stub::{self, ColdStore, ColdStub};
use crate::env::{call, call_own};
use crate::error::{OpError, io_error};
use crate::event::{Event, Lock};
use crate::family::{Family, tokens_of};
use ahash::HashMap;
use futures_lite::future::or;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The most requests that wait for promotions. Each of them holds its body in memory.
pub(crate) const WAITING_MAX: usize = 4096;
/// The longest that a request waits for a collection, nanoseconds.
pub(crate) const WAIT_MAX_NS: u64 = 100_000_000_000;
/// How long an eviction that a client has requested waits for the requests that are under way, microseconds. Requests that arrive meanwhile wait for
/// it.
const QUIET_WAIT_US: u64 = 10_000_000;
/// Microseconds between two looks at these requests.
const QUIET_POLL_US: u64 = 500;
/// Rounds of an eviction. In each, a snapshot is stored while the collection serves; if the collection changes meanwhile, there is another round.
/// In the last one, requests wait while the changes are stored.
const ROUNDS: usize = 3;

/// What core 0 knows of evictions and promotions.
#[derive(Default)]
pub(super) struct Cold {
    pub names: Rc<NameLocks>,
    /// The promotions under way, by full name.
    promotions: RefCell<HashMap<String, Rc<Promotion>>>,
    /// How many promotions are fetching files, and the event for which others wait until one of them has ended.
    pub fetching: Cell<usize>,
    pub fetched: Event,
    /// Held by the promotion that loads what it has fetched. Only after loading it is known how much memory the collection needs.
    pub loading: Rc<Lock>,
    /// Held by whoever makes room in memory.
    pub room: Rc<Lock>,
    /// Bytes for which room was made and which are not taken yet.
    pub reserved: Cell<u64>,
    /// How many requests wait for promotions.
    waiting: Cell<usize>,
}

/// A promotion under way; whoever needs the collection waits for it.
#[derive(Default)]
struct Promotion {
    ended: Event,
    outcome: RefCell<Option<Result<(), OpError>>>,
}

impl Promotion {
    async fn outcome(&self) -> Result<(), OpError> {
        loop {
            if let Some(outcome) = &*self.outcome.borrow() {
                return outcome.clone();
            }
            self.ended.wait().await;
        }
    }
}

/// Counts a request that waits, until dropped.
struct Waiting(Rc<Core>);

impl Drop for Waiting {
    fn drop(&mut self) {
        let waiting = &self.0.cold.waiting;
        waiting.set(waiting.get() - 1);
    }
}

/// Why a collection is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A client asked for it.
    Asked,
    /// The server has chosen it, because it was used last at `last_ns`. It stays if it has been used since.
    Unused { last_ns: u64 },
}

/// Keeps new requests from entering a collection. The gate opens again when this is dropped, unless the collection has left.
struct ClosedGate(Option<Arc<CollectionHandle>>);

impl ClosedGate {
    fn close(handle: &Arc<CollectionHandle>) -> ClosedGate {
        if let Some(activity) = &handle.activity {
            activity.close();
        }
        ClosedGate(Some(handle.clone()))
    }

    /// Keeps the gate closed for good, because the collection has left.
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for ClosedGate {
    fn drop(&mut self) {
        if let Some(activity) = self.0.as_ref().and_then(|handle| handle.activity.as_ref()) {
            activity.reopen();
        }
    }
}

impl Core {
    /// Begins a request for a collection, by its name or an alias; the request lasts until the returned value is dropped. A cold collection is
    /// brought back first, and if the collection is being evicted, the request waits. An unknown name is no error here.
    ///
    /// # Errors
    /// [`OpError::UnknownCollection`] if the collection cannot be brought back now, [`OpError::NoMemory`] or [`OpError::NoSpace`] if there is
    /// no room for it, and [`OpError::Busy`] if too many requests wait, or this one has waited for too long.
    pub async fn enter(self: &Rc<Self>, name: &str) -> Result<Access, OpError> {
        // On a node without a store, nearly every request returns here.
        if !self.options().backup.has_store() && self.node().cold.collections.load(Relaxed) == 0 {
            return Ok(Access::uncounted());
        }
        let Some(full) = full_name(name) else { return Ok(Access::uncounted()) };
        let mut until_ns = None;
        loop {
            let collection = match self.try_enter(&full) {
                Ok(access) => return Ok(access),
                Err(collection) => collection,
            };
            let now_ns = self.env().now_ns();
            let until_ns = *until_ns.get_or_insert(now_ns + WAIT_MAX_NS);
            let left_ns = until_ns.saturating_sub(now_ns);
            let waited =
                call(self, 0, move |there| async move { there.await_hot(collection, left_ns).await });
            match waited.await? {
                Ok(()) => {}
                // The client can act on these: it can make room, or try again.
                Err(error @ (OpError::NoMemory(_) | OpError::NoSpace(_) | OpError::Busy(_))) => {
                    return Err(self.note_refusal(error));
                }
                Err(error @ OpError::Opening(_)) => return Err(error),
                Err(_) if self.is_stopping() => {
                    return Err(OpError::Busy("the server is stopping".to_owned()));
                }
                Err(_) => return Err(OpError::UnknownCollection(name.to_owned())),
            }
        }
    }

    /// Begins a request at once, or says which collection has to be waited for.
    fn try_enter(&self, full: &str) -> Result<Access, String> {
        let pin = self.pin();
        let catalog = self.node().catalog.load(&pin);
        match (catalog.resolve(full), catalog.cold_of(full)) {
            (Some(handle), _) => {
                Access::begin(handle.activity.as_ref(), self.env()).ok_or_else(|| handle.name.clone())
            }
            (None, Some(cold)) => Err(cold.name.clone()),
            (None, None) => Ok(Access::uncounted()),
        }
    }

    /// On core 0: waits until a collection is neither being evicted nor cold.
    async fn await_hot(self: &Rc<Self>, full: String, most_ns: u64) -> Result<(), OpError> {
        if self.cold.waiting.get() >= WAITING_MAX {
            return Err(OpError::Busy(format!(
                "{WAITING_MAX} requests wait for collections to come back from the store of backups; try again"
            )));
        }
        self.cold.waiting.set(self.cold.waiting.get() + 1);
        let _counted = Waiting(self.clone());
        let promotion = self.promotion_of(full.clone());
        let timeout = async {
            self.env().sleep_us(most_ns / 1000).await;
            Err(OpError::Busy(format!(
                "the collection {full:?} is not back from the store of backups after {} s; try again",
                WAIT_MAX_NS / 1_000_000_000
            )))
        };
        or(promotion.outcome(), timeout).await
    }

    /// On core 0: returns the promotion of a collection that is under way, and begins one if there is none. A promotion is a task of its own,
    /// because all who wait for it may go away.
    fn promotion_of(self: &Rc<Self>, full: String) -> Rc<Promotion> {
        if let Some(promotion) = self.cold.promotions.borrow().get(&full) {
            return promotion.clone();
        }
        let promotion: Rc<Promotion> = Rc::default();
        self.cold.promotions.borrow_mut().insert(full.clone(), promotion.clone());
        let (core, of_task) = (self.clone(), promotion.clone());
        self.env().spawn(Box::pin(async move {
            let outcome = core.promote_counted(&full).await;
            // From here on, a request begins another promotion.
            core.cold.promotions.borrow_mut().remove(&full);
            *of_task.outcome.borrow_mut() = Some(outcome);
            of_task.ended.notify();
        }));
        promotion
    }

    async fn promote_counted(self: &Rc<Self>, full: &str) -> Result<(), OpError> {
        let _name = self.cold.names.lock(full).await;
        let Some(cold) = self.cold_named(full) else { return Ok(()) };
        // A promotion that is refused here was not tried, and is not counted.
        self.ctx.refuse_while_opening()?;
        let (began_ns, counters) = (self.env().now_ns(), &self.node().cold);
        let outcome = self.promote(&cold).await;
        match &outcome {
            Ok(()) => {
                let took_us = (self.env().now_ns() - began_ns) / 1000;
                counters.promotions.fetch_add(1, Relaxed);
                counters.promotion_us.fetch_add(took_us, Relaxed);
                tracing::info!(
                    collection = full,
                    bytes = cold.stub.bytes,
                    seconds = took_us as f64 / 1e6,
                    "a cold collection is back in memory"
                );
            }
            Err(error) => {
                counters.promotion_failures.fetch_add(1, Relaxed);
                tracing::error!(collection = full, %error, "a cold collection was not brought back; the next request about it tries again");
            }
        }
        outcome
    }

    fn cold_named(&self, full: &str) -> Option<Arc<ColdCollection>> {
        self.node().catalog.load(&self.pin()).cold.get(full).cloned()
    }

    /// The collection of that full name if it is in memory; `None` if it is cold.
    fn hot_named(&self, full: &str) -> Result<Option<Arc<CollectionHandle>>, OpError> {
        let pin = self.pin();
        let catalog = self.node().catalog.load(&pin);
        match catalog.by_name.get(full) {
            Some(handle) => Ok(Some(handle.clone())),
            None if catalog.cold.contains_key(full) => Ok(None),
            None => Err(catalog.lacks(full, full)),
        }
    }

    /// Whether evictions are possible on this node.
    ///
    /// # Errors
    /// [`OpError::NotConfigured`] says what is missing.
    pub fn check_cold_tier(&self) -> Result<(), OpError> {
        if self.env().disk().is_none() {
            return Err(OpError::NotConfigured(
                "collections are evicted from a data directory, and this server was started without -data"
                    .into(),
            ));
        }
        self.listed_target().map(|_| ())
    }

    /// Moves a collection to the store of backups and releases its memory and its files, all but a stub. `name` must not be an alias. If the
    /// collection is cold already, nothing is done. Requests for it are served until its snapshot is stored. Requests that arrive after that wait,
    /// and bring the collection back.
    ///
    /// # Errors
    /// No store is configured; there is no such collection, or it is damaged or closed; it has staged points or a running build; requests for it are
    /// under way for longer than ten seconds; the store or the disk fails. The collection then stays as it is.
    pub async fn evict_collection(self: &Rc<Self>, name: &str) -> Result<(), OpError> {
        self.check_cold_tier()?;
        let full = full_name(name).ok_or_else(|| OpError::UnknownCollection(name.to_owned()))?;
        call(self, 0, move |there| async move { there.evict(&full, Cause::Asked).await }).await??;
        Ok(())
    }

    /// Brings a cold collection back. If the collection is in memory already, nothing is done.
    ///
    /// # Errors
    /// No store is configured; there is no such collection; the store or the disk fails, or there is no room. The collection stays cold then.
    pub async fn promote_collection(self: &Rc<Self>, name: &str) -> Result<(), OpError> {
        self.check_cold_tier()?;
        let full = full_name(name).ok_or_else(|| OpError::UnknownCollection(name.to_owned()))?;
        call(self, 0, move |there| async move {
            there.ctx.refuse_while_opening()?;
            match there.hot_named(&full)? {
                Some(_) => Ok(()),
                None => there.promotion_of(full).outcome().await,
            }
        })
        .await?
        .map_err(|error| self.note_refusal(error))
    }

    /// On core 0: evicts a collection. Returns whether it has left: false if it was cold before, or has been used since.
    pub(super) async fn evict(self: &Rc<Self>, full: &str, cause: Cause) -> Result<bool, OpError> {
        self.ctx.refuse_while_opening()?;
        let counters = &self.node().cold;
        let began_ns = self.env().now_ns();
        for round in 1..=ROUNDS {
            let Some(handle) = self.hot_named(full)? else { return Ok(false) };
            handle.healthy()?;
            let evicted = self.try_evict(&handle, cause, round == ROUNDS).await.inspect_err(|error| {
                // If a collection is in use or waits for its build, this is not counted as a failed eviction.
                if !matches!(error, OpError::Conflict(_)) {
                    counters.eviction_failures.fetch_add(1, Relaxed);
                }
            })?;
            match evicted {
                Tried::Left { bytes } => {
                    counters.evictions.fetch_add(1, Relaxed);
                    let seconds = (self.env().now_ns() - began_ns) as f64 / 1e9;
                    tracing::info!(
                        collection = full,
                        bytes,
                        seconds,
                        "a collection has left memory for the store of backups"
                    );
                    return Ok(true);
                }
                Tried::Used => return Ok(false),
                Tried::Changed => {}
            }
        }
        Err(OpError::Conflict(format!(
            "the collection {full:?} was changed, replaced or backed up in each of {ROUNDS} rounds of its eviction; try again"
        )))
    }

    async fn try_evict(
        self: &Rc<Self>,
        handle: &Arc<CollectionHandle>,
        cause: Cause,
        is_last: bool,
    ) -> Result<Tried, OpError> {
        let (store, target) = self.cold_target()?;
        self.claim(&target).await?;
        let options = &self.options().backup;
        let job = Job {
            target,
            store,
            time: String::new(),
            taken_unix_ms: self.unix_ms(),
            begun_ns: self.env().now_ns(),
            retention: options.retention,
            bytes_per_second: options.bytes_per_second,
        };
        let (uid, owner) = (handle.uid, handle.owner);
        let (of_owner, waits) = (job.clone(), cause == Cause::Asked);
        let snapshot = call_own(self, owner, move |there| async move {
            there.collections.prepare_eviction(uid, &of_owner, waits).await
        })
        .await?;
        // A promotion that makes room holds the lock of another name, and must not wait for this one.
        let _name = match cause {
            Cause::Asked => self.cold.names.lock(&handle.name).await,
            Cause::Unused { .. } => match self.cold.names.try_lock(&handle.name) {
                Some(name) => name,
                None => return Ok(Tried::Used),
            },
        };
        if !self.hot_named(&handle.name)?.is_some_and(|now| Arc::ptr_eq(&now, handle)) {
            return Ok(Tried::Changed);
        }
        let gate = ClosedGate::close(handle);
        if !self.is_unused(handle, cause).await? {
            return Ok(Tried::Used);
        }
        let (of_owner, may_store) = (job.clone(), cause == Cause::Asked && is_last);
        let sealed = call_own(self, owner, move |there| async move {
            there.collections.seal(uid, &of_owner, snapshot, may_store).await
        })
        .await?;
        let Some(snapshot) = sealed else {
            return Ok(if cause == Cause::Asked { Tried::Changed } else { Tried::Used });
        };
        let stub = ColdStub {
            store,
            prefix: job.target.prefix.clone(),
            key: snapshot.key,
            bytes: snapshot.bytes,
            evicted_unix_ms: self.unix_ms(),
            points: Some(snapshot.points),
            memory_bytes: Some(snapshot.memory_bytes),
        };
        self.make_cold(handle, stub, gate).await?;
        Ok(Tried::Left { bytes: snapshot.bytes })
    }

    /// Whether no request is under way about a collection whose gate is closed. An eviction that a client asked for waits some time for that.
    async fn is_unused(&self, handle: &CollectionHandle, cause: Cause) -> Result<bool, OpError> {
        let Some(activity) = &handle.activity else { return Ok(true) };
        if let Cause::Unused { last_ns } = cause {
            return Ok(activity.is_quiet() && activity.last_ns() <= last_ns);
        }
        let until_ns = self.env().now_ns() + QUIET_WAIT_US * 1000;
        while !activity.is_quiet() {
            if self.env().now_ns() >= until_ns {
                return Err(OpError::Conflict(format!(
                    "requests about the collection {:?} have been under way for {} s; it stays in memory",
                    handle.name,
                    QUIET_WAIT_US / 1_000_000
                )));
            }
            self.env().sleep_us(QUIET_POLL_US).await;
        }
        Ok(true)
    }

    /// Makes a sealed collection a cold one. The eviction has happened once its stub is stored; then the memory and the files of the collection
    /// are released.
    async fn make_cold(
        self: &Rc<Self>,
        handle: &Arc<CollectionHandle>,
        stub: ColdStub,
        gate: ClosedGate,
    ) -> Result<(), OpError> {
        let disk = self.env().disk().expect("looked for before");
        let (uid, dir) = (handle.uid, collection_dir(handle.uid));
        let mut is_settled = true;
        if let Err(error) = self.ctx.with_reserve(async || cold_stub::store(&*disk, &dir, &stub).await).await
        {
            if cold_stub::remove(&*disk, &dir).await.is_ok() {
                call_own(self, handle.owner, move |there| async move { there.collections.unseal(uid) }).await;
                return Err(io_error(&error));
            }
            // The next start may find the stub or not. Both are right as long as nothing is written to the collection, so it is treated as cold.
            tracing::error!(collection = handle.name, %error, "it is unknown whether the disk has the stub of a cold collection; its files stay");
            is_settled = false;
        }
        let cold = ColdCollection {
            uid,
            name: handle.name.clone(),
            config: handle.config(&self.pin()).clone(),
            stub,
            is_settled: AtomicBool::new(is_settled),
        };
        {
            let _catalog = self.catalog_lock.lock().await;
            let mut catalog = self.ctx.catalog_copy();
            catalog.by_name.remove(&handle.name);
            catalog.cold.insert(handle.name.clone(), Arc::new(cold));
            self.ctx.publish_catalog(catalog);
        }
        gate.keep();
        let tokens = handle.tokens.get().map(|tokens| tokens.uid);
        call_own(self, handle.owner, move |there| async move {
            there.collections.disown(uid).await;
            if let Some(tokens) = tokens {
                there.collections.disown(tokens).await;
            }
            there.measure_memory();
        })
        .await;
        if is_settled && let Err(error) = self.remove_cold_data(uid, handle.family).await {
            tracing::warn!(collection = handle.name, %error, "files of a cold collection remain; its promotion or the next start removes them");
        }
        Ok(())
    }

    /// Removes the files of a collection whose stub is surely stored.
    pub(super) async fn remove_cold_data(&self, uid: u64, family: Family) -> Result<(), OpError> {
        let disk = self.env().disk().expect("looked for before");
        let removed = cold_stub::remove_data(&*disk, &collection_dir(uid)).await;
        removed.map_err(|error| io_error(&error))?;
        if family == Family::MultiVector {
            let dir = collection_dir(tokens_of(uid));
            crate::twin::remove_dir(&*disk, &dir).await.map_err(|error| io_error(&error))?;
        }
        Ok(())
    }

    /// The store that collections are evicted to: the bucket, or else the directory.
    fn cold_target(&self) -> Result<(ColdStore, BackupTarget), OpError> {
        let store =
            if self.options().backup.bucket.is_some() { ColdStore::Bucket } else { ColdStore::Directory };
        Ok((store, self.listed_target()?))
    }

    /// The store that has a cold collection.
    pub(super) fn target_of(&self, stub: &ColdStub) -> Result<BackupTarget, OpError> {
        let options = &self.options().backup;
        let (target, flag) = match stub.store {
            ColdStore::Bucket => (&options.bucket, "-backup-bucket"),
            ColdStore::Directory => (&options.directory, "-backup-dir"),
        };
        match target {
            Some(target) => Ok(BackupTarget { stores: target.stores.clone(), prefix: stub.prefix.clone() }),
            None => Err(OpError::NotConfigured(format!(
                "the collection was evicted to a store that is not configured any more; start the server with {flag}"
            ))),
        }
    }
}

/// The outcome of an attempt to evict a collection.
enum Tried {
    /// It has left memory, and its files had `bytes` bytes.
    Left { bytes: u64 },
    /// It was used meanwhile, and stays.
    Used,
    /// It has changed meanwhile, or another one has its name.
    Changed,
}
