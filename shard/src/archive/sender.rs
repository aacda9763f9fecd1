//! Sends what is on the device of the logs to the store.

use super::catalog_log::CatalogCopy;
use super::keeper::Keeper;
use super::names::{CatalogName, LogObject, PartName, chain_prefix, parse};
use super::part;
use crate::account::{Charge, MemoryUse};
use crate::backup::{BackupError, BackupTarget, Names, Store, StoreError, put};
use crate::core::Core;
use crate::env::compute;
use crate::log::{SegmentId, SyncedSegment, read_frames};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Frames that are sent at once; a single one may be longer.
const PART_BYTES: usize = 4 << 20;
/// Between two looks at the log, microseconds.
const POLL_US: u64 = 250_000;
/// Between two looks at what waits, microseconds.
const BOUND_POLL_US: u64 = 500_000;
/// After a failure it waits, doubling that up to the latter.
const PAUSE_MIN_US: u64 = 1_000_000;
const PAUSE_MAX_US: u64 = 60_000_000;

/// What one core sends.
struct Sender {
    core: Rc<Core>,
    keeper: Rc<Keeper>,
    store: Rc<dyn Store>,
    names: Names,
    /// Core time since which something waits to be sent.
    waits_since_ns: Option<u64>,
    /// On core 0: everything that earlier runs have left is sent.
    is_old_sent: bool,
}

/// What of a core's log is not in the store.
#[derive(Default)]
struct Look {
    segments: Vec<SyncedSegment>,
    /// Segments that the log needs no more.
    waiting: Vec<SegmentId>,
    /// Bytes of the former.
    live_bytes: u64,
}

/// The task of one core.
pub(crate) async fn run(core: Rc<Core>) {
    let (Some(keeper), Some(target)) = (core.ctx.keeper(), core.archive_target()) else { return };
    let mut sender = Sender {
        store: target.stores.open(),
        names: Names::new(&target.prefix),
        keeper,
        waits_since_ns: None,
        is_old_sent: false,
        core,
    };
    let (core, mut pause_us, mut is_failing) = (sender.core.clone(), PAUSE_MIN_US, false);
    let is_first = core.env().index() == 0;
    while !core.is_stopping() {
        core.env().sleep_us(POLL_US).await;
        let counters = &core.node().archive;
        let done = match is_first {
            true => sender.lead(&target).await,
            // Nothing of a run is sent before its catalog.
            false if !counters.is_begun.load(Relaxed) => sender.look().await.map(drop),
            false => sender.send_own().await,
        };
        match done {
            Ok(()) => {
                if std::mem::take(&mut is_failing) {
                    tracing::info!(core = core.env().index(), "the log is archived again");
                }
                pause_us = PAUSE_MIN_US;
            }
            Err(BackupError::Stopping) => return,
            Err(error) => {
                counters.failures.fetch_add(1, Relaxed);
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::error!(core = core.env().index(), %error, "the log cannot be archived; it is tried again");
                }
                let until_ns = core.env().now_ns() + pause_us * 1000;
                while core.env().now_ns() < until_ns && !core.is_stopping() {
                    core.env().sleep_us(POLL_US).await;
                    // If the disk fails, the next attempt says so.
                    let _noted = sender.look().await;
                }
                pause_us = (2 * pause_us).min(PAUSE_MAX_US);
            }
        }
    }
}

/// On core 0: gives up the oldest segments that wait for the store when there are too many of them, or the disk is full.
pub(crate) async fn keep_bound(core: Rc<Core>) {
    let (Some(keeper), Some(options)) = (core.ctx.keeper(), core.options().backup.archive) else { return };
    // Earlier runs may have left some.
    let (mut seen, mut is_any_left) = (0, true);
    while !core.is_stopping() {
        core.env().sleep_us(BOUND_POLL_US).await;
        let moved = core.node().archive.moved.load(Relaxed);
        if moved == seen && !is_any_left {
            continue;
        }
        seen = moved;
        is_any_left = keeper.bound(options.waiting_bytes).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "segments that wait for the archive could not be looked at");
            true
        });
    }
}

/// Encodes a catalog beside the cores, and stores it.
pub(super) async fn put_catalog(
    core: &Rc<Core>,
    store: &dyn Store,
    names: &Names,
    catalog: CatalogCopy,
) -> Result<(), StoreError> {
    let (key, state) = (catalog.name().key(names), catalog.state);
    let bytes = compute(core.env(), move || state.encode()).await;
    put(store, &key, bytes.into(), true).await
}

impl Core {
    /// The store that the log goes to, if it is archived: the bucket, or else the directory.
    pub(crate) fn archive_target(&self) -> Option<BackupTarget> {
        let options = &self.options().backup;
        options.archive?;
        options.bucket.as_ref().or(options.directory.as_ref()).cloned()
    }
}

/// All parts with their lengths, and all catalogs, in order. `memory` is charged for them.
pub(super) async fn list(
    store: &dyn Store,
    names: &Names,
    memory: &mut Charge,
) -> Result<(Vec<(PartName, u64)>, Vec<CatalogName>), StoreError> {
    let (mut parts, mut catalogs) = (Vec::new(), Vec::new());
    let mut after: Option<String> = None;
    loop {
        let page = store.list(&names.of_log(), after.as_deref()).await?;
        for object in page.objects {
            match parse(names, &object.key) {
                Some(LogObject::Part(part)) => parts.push((part, object.bytes)),
                Some(LogObject::Catalog(catalog)) => catalogs.push(catalog),
                // Objects of other names are left alone.
                None => {}
            }
        }
        let bytes =
            parts.capacity() * size_of::<(PartName, u64)>() + catalogs.capacity() * size_of::<CatalogName>();
        // The reader of the parts has their names once more.
        memory.set(2 * bytes as u64);
        after = page.next;
        if after.is_none() {
            parts.sort_unstable();
            catalogs.sort_unstable();
            return Ok((parts, catalogs));
        }
    }
}

impl Sender {
    /// What core 0 does: the catalog first, then what earlier runs have left, then its own log.
    async fn lead(&mut self, target: &BackupTarget) -> Result<(), BackupError> {
        let core = self.core.clone();
        core.ctx.catch_up_catalog().await;
        if !self.is_old_sent {
            self.look_at_old().await?;
        }
        if let Some(catalog) = core.ctx.opening_catalog() {
            self.begin(target, catalog).await?;
        }
        if !self.is_old_sent {
            self.is_old_sent = self.send_old().await?;
        }
        self.send_own().await
    }

    /// Stores the catalog that this run has begun with. Refuses to mix the run with those of another data directory, which has archived its log under the
    /// prefix: a directory that was restored counts its runs anew from the moment on, and a copy has the same runs as this one.
    async fn begin(&self, target: &BackupTarget, catalog: CatalogCopy) -> Result<(), BackupError> {
        let core = &self.core;
        core.claim(target).await?;
        let generation = catalog.generation;
        let own = catalog.name().key(&self.names);
        self.check_alone(generation, &own).await?;
        put_catalog(core, &*self.store, &self.names, catalog).await?;
        // Another server may have looked and stored its catalog at the same time. At least one of the two sees both.
        if let Err(error) = self.check_alone(generation, &own).await {
            if matches!(error, BackupError::Store(StoreError::Unfit { .. })) {
                self.store.delete(&own).await?;
            }
            return Err(error);
        }
        core.ctx.opening_catalog_is_stored();
        core.node().archive.is_begun.store(true, Relaxed);
        Ok(())
    }

    /// Whether the store has nothing of this run or a later one but the object `own`.
    async fn check_alone(&self, generation: u64, own: &str) -> Result<(), BackupError> {
        let all = self.names.of_log();
        let mut after = Some(format!("{all}{generation:010}"));
        while let Some(from) = after {
            let page = self.store.list(&all, Some(&from)).await?;
            let is_other = |key: &str| key != own && parse(&self.names, key).is_some();
            if let Some(other) = page.objects.iter().find(|object| is_other(&object.key)) {
                let why = "it is of the archive of another server, because this data directory was restored or copied; choose another -backup-prefix or -backup-tenant"
                    .to_owned();
                return Err(StoreError::Unfit { key: other.key.clone(), why }.into());
            }
            after = page.next;
        }
        Ok(())
    }

    /// Sends what earlier runs have left; whether that is all.
    async fn send_old(&mut self) -> Result<bool, BackupError> {
        let disk = self.disk();
        let io = |error: std::io::Error| BackupError::Source(format!("the directory of the log: {error}"));
        for (id, path) in self.old_segments().await? {
            if self.keeper.reached(id).is_none() {
                self.look_how_far(id).await?;
            }
            if !self.send_segment(id, &path, None).await? {
                // It has just moved. Those behind it are not sent before it.
                return Ok(false);
            }
            if path.starts_with(super::DIR) {
                disk.remove(&path).await.map_err(io)?;
            }
        }
        self.core.node().archive.note_old_behind(0, 0);
        Ok(true)
    }

    /// Where each segment of earlier runs lies, in order. One that moves meanwhile is found by the next look.
    async fn old_segments(&self) -> Result<BTreeMap<SegmentId, PathBuf>, BackupError> {
        let mut found = BTreeMap::new();
        let Some(log) = self.core.ctx.log() else { return Ok(found) };
        let (disk, generation) = (self.disk(), log.generation());
        let io = |error: std::io::Error| BackupError::Source(format!("the directory of the log: {error}"));
        for dir in disk.list(Path::new("log")).await.map_err(io)? {
            let Some(core) = dir.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let path = Path::new("log").join(&dir);
            for name in disk.list(&path).await.map_err(io)? {
                if let Some(id) = SegmentId::parse(core, &name) {
                    found.insert(id, path.join(&name));
                }
            }
        }
        for id in Keeper::waiting_segments(&*disk).await.map_err(io)? {
            found.insert(id, Keeper::waiting(id));
        }
        found.retain(|id, _| id.generation < generation);
        Ok(found)
    }

    /// Notes how much of earlier runs is not known to be in the store.
    async fn look_at_old(&self) -> Result<(), BackupError> {
        let (disk, mut bytes) = (self.disk(), 0);
        for (id, path) in self.old_segments().await? {
            if self.keeper.has(id, None) {
                continue;
            }
            let length = async { disk.open(&path).await?.len().await };
            bytes += match length.await {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::NotFound => 0,
                Err(error) => return Err(BackupError::Source(format!("{}: {error}", path.display()))),
            };
        }
        self.core.node().archive.note_old_behind(bytes, self.core.env().now_ns());
        Ok(())
    }

    /// Finds out how far the store has the chain of `id`.
    async fn look_how_far(&self, id: SegmentId) -> Result<(), BackupError> {
        let prefix = chain_prefix(&self.names, id.generation, id.core);
        let mut after: Option<String> = None;
        loop {
            let page = self.store.list(&prefix, after.as_deref()).await?;
            for object in page.objects {
                if let Some(LogObject::Part(part)) = parse(&self.names, &object.key) {
                    self.keeper.reach(id, (part.id.number, part.end));
                }
            }
            after = page.next;
            if after.is_none() {
                self.keeper.reach(id, (0, 0));
                return Ok(());
            }
        }
    }

    /// Looks what of this core's log is not in the store, and notes how much that is.
    async fn look(&self) -> Result<Look, BackupError> {
        let core = &self.core;
        let Some(log) = core.ctx.log() else { return Ok(Look::default()) };
        let own = SegmentId { generation: log.generation(), core: core.env().index() as u32, number: 0 };
        let reached = self.keeper.reached(own).unwrap_or((0, 0));
        // In this order: a segment that is trimmed in between is not missed, because it cannot be opened then and waits by the next look.
        let segments = log.synced_segments(reached.0);
        let mut waiting = Vec::new();
        // Cleared first: a segment that moves while the directory is listed says so again.
        if self.keeper.may_wait.replace(false) {
            let listed = Keeper::waiting_segments(&*self.disk()).await;
            waiting = listed.map_err(|error| {
                self.keeper.may_wait.set(true);
                BackupError::Source(format!("the directory of the archive: {error}"))
            })?;
            waiting.retain(|id| (id.generation, id.core) == (own.generation, own.core));
            if !waiting.is_empty() {
                self.keeper.may_wait.set(true);
            }
        }
        let from = |number: u64| if number == reached.0 { reached.1 } else { crate::disk::BLOCK as u64 };
        let live_bytes: u64 =
            segments.iter().map(|segment| segment.end.saturating_sub(from(segment.id.number))).sum();
        let bytes = live_bytes + waiting.len() as u64 * core.options().segment_bytes;
        core.node().archive.note_behind(core.env().index(), bytes, core.env().now_ns());
        Ok(Look { segments, waiting, live_bytes })
    }

    /// Sends what this core's log has on the device, if it is time.
    async fn send_own(&mut self) -> Result<(), BackupError> {
        let core = self.core.clone();
        let Some(options) = core.options().backup.archive else { return Ok(()) };
        let Look { segments, waiting, live_bytes } = self.look().await?;
        if live_bytes == 0 && waiting.is_empty() {
            self.waits_since_ns = None;
            return Ok(());
        }
        let now_ns = core.env().now_ns();
        let since_ns = *self.waits_since_ns.get_or_insert(now_ns);
        let is_due = now_ns.saturating_sub(since_ns) >= options.interval_ms.saturating_mul(1_000_000);
        if !is_due && live_bytes < PART_BYTES as u64 && waiting.is_empty() {
            return Ok(());
        }
        for id in waiting {
            let path = Keeper::waiting(id);
            if self.send_segment(id, &path, None).await? {
                let removed = self.disk().remove(&path).await;
                removed.map_err(|error| BackupError::Source(format!("{}: {error}", path.display())))?;
            }
        }
        for segment in segments {
            if !self.send_segment(segment.id, &segment.path, Some(segment.end)).await? {
                // It has just moved.
                return Ok(());
            }
        }
        self.waits_since_ns = None;
        core.node().archive.note_caught_up(core.env().index());
        Ok(())
    }

    fn disk(&self) -> Rc<dyn crate::disk::Disk> {
        self.core.env().disk().expect("a log lies on a disk")
    }

    /// Sends the frames of a segment that the store does not have yet, up to `end` or the end of its file. False: there is no such file.
    async fn send_segment(&self, id: SegmentId, path: &Path, end: Option<u64>) -> Result<bool, BackupError> {
        let io = |error: std::io::Error| BackupError::Source(format!("{}: {error}", path.display()));
        let mut from = match self.keeper.reached(id) {
            Some((number, _)) if number > id.number => return Ok(true),
            Some((number, offset)) if number == id.number => offset,
            _ => 0,
        };
        if end.is_some_and(|end| from >= end) || from == u64::MAX {
            return Ok(true);
        }
        let file = match self.disk().open(path).await {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(io(error)),
        };
        let upto = match end {
            Some(end) => end,
            None => file.len().await.map_err(io)?,
        };
        let node = self.core.node();
        let mut memory = node.account.hold(MemoryUse::Images, 2 * PART_BYTES as u64);
        while let Some(frames) = read_frames(&*file, id, from, upto, PART_BYTES).await.map_err(io)? {
            let name = PartName { id, begin: frames.begin, end: frames.end, last_ms: frames.last_ms };
            // A single frame may be longer than a part usually is.
            memory.set(2 * frames.bytes.len().max(PART_BYTES) as u64);
            let object = part::encode(id, &frames);
            drop(frames.bytes);
            let bytes = object.len() as u64;
            put(&*self.store, &name.key(&self.names), object.into(), true).await?;
            from = frames.end;
            self.keeper.reach(id, (id.number, from));
            node.archive.sent_bytes.fetch_add(bytes, Relaxed);
            if self.core.is_stopping() {
                return Err(BackupError::Stopping);
            }
        }
        self.keeper.reach(id, (id.number, end.unwrap_or(u64::MAX)));
        file.close().await.map_err(io)?;
        Ok(true)
    }
}
