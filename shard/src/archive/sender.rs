//! Sends the part of the logs that is on the device to the store.

use super::catalog_log::CatalogCopy;
use super::keeper::Keeper;
use super::names::{CatalogName, LogObject, PartName, chain_prefix, parse};
use super::part;
use crate::account::MemoryUse;
use crate::backup::{BackupError, BackupTarget, Names, Store, StoreError, put};
use crate::core::Core;
use crate::env::compute;
use crate::log::{SegmentId, read_frames};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// The most bytes of frames in one part; a single frame may be longer.
const PART_BYTES: usize = 4 << 20;
/// The time between two looks at the log, microseconds.
const POLL_US: u64 = 250_000;
/// The time between two looks at the directory of waiting segments, microseconds.
const BOUND_POLL_US: u64 = 500_000;
/// The wait after a failure, microseconds. It doubles with each failure in a row, up to the second of these.
const PAUSE_MIN_US: u64 = 1_000_000;
const PAUSE_MAX_US: u64 = 60_000_000;

/// Sends the log of one core, and on core 0 what earlier runs have left.
struct Sender {
    core: Rc<Core>,
    keeper: Rc<Keeper>,
    store: Rc<dyn Store>,
    names: Names,
    /// The time, by the clock of the core, since which something has been waiting to be sent.
    waits_since_ns: Option<u64>,
    /// On core 0: everything that earlier runs have left is sent.
    is_old_sent: bool,
    /// On core 0: it is known that the store has nothing of this run or a later one except what this process sends.
    are_runs_checked: bool,
}

/// The task that sends the log of one core.
pub(crate) async fn run(core: Rc<Core>) {
    let (Some(keeper), Some(target)) = (core.ctx.keeper(), core.archive_target()) else { return };
    let mut sender = Sender {
        store: target.stores.open(),
        names: Names::new(&target.prefix),
        keeper,
        waits_since_ns: None,
        is_old_sent: false,
        are_runs_checked: false,
        core,
    };
    let (core, mut pause_us, mut is_failing) = (sender.core.clone(), PAUSE_MIN_US, false);
    let is_first = core.env().index() == 0;
    while !core.is_stopping() {
        core.env().sleep_us(POLL_US).await;
        let counters = &core.node().archive;
        let done = match is_first {
            true => sender.lead(&target).await,
            // The catalog of a run is stored before any of its frames.
            false if !counters.is_begun.load(Relaxed) => continue,
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
                }
                pause_us = (2 * pause_us).min(PAUSE_MAX_US);
            }
        }
    }
}

/// On core 0: removes the oldest segments that wait for the store if they have too many bytes or the disk is full.
pub(crate) async fn keep_bound(core: Rc<Core>) {
    let (Some(keeper), Some(options)) = (core.ctx.keeper(), core.options().backup.archive) else { return };
    // Earlier runs may have left waiting segments.
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

/// Encodes a catalog on a thread beside the cores, and stores it.
async fn put_catalog(
    core: &Rc<Core>,
    store: &dyn Store,
    names: &Names,
    catalog: CatalogCopy,
) -> Result<(), StoreError> {
    let CatalogCopy { generation, position, unix_ms, state } = catalog;
    let bytes = compute(core.env(), move || state.encode()).await;
    put(store, &CatalogName { generation, position, unix_ms }.key(names), bytes.into(), true).await
}

impl Core {
    /// The store that the log goes to, if it is archived: the bucket, or else the directory.
    pub(crate) fn archive_target(&self) -> Option<BackupTarget> {
        let options = &self.options().backup;
        options.archive?;
        options.bucket.as_ref().or(options.directory.as_ref()).cloned()
    }
}

/// On core 0 after a backup: stores the catalog, and removes what is older than the retention.
///
/// # Errors
/// The store failed.
pub(crate) async fn retire(core: &Rc<Core>) -> Result<(), BackupError> {
    let (Some(target), Some(options)) = (core.archive_target(), core.options().backup.archive) else {
        return Ok(());
    };
    // The catalog that the run began with has to be stored first.
    if !core.node().archive.is_begun.load(Relaxed) {
        return Ok(());
    }
    let (store, names) = (target.stores.open(), Names::new(&target.prefix));
    let Some(catalog) = core.ctx.catalog_now(core.keys.archive_entry()).await else { return Ok(()) };
    let now_ms = catalog.unix_ms;
    put_catalog(core, &*store, &names, catalog).await?;
    if options.retention_ms == 0 {
        return Ok(());
    }
    let horizon_ms = now_ms.saturating_sub(options.retention_ms);
    let (parts, catalogs) = list(&*store, &names).await?;
    // A backup stores the catalog at its end. Snapshots from its beginning need the log since the catalog before, so one more catalog is kept.
    let old = catalogs.iter().filter(|catalog| catalog.unix_ms <= horizon_ms);
    let Some(oldest) = old.rev().nth(1).copied() else { return Ok(()) };
    // A segment is kept or removed as a whole.
    let mut newest: BTreeMap<SegmentId, u64> = BTreeMap::new();
    for (part, _) in &parts {
        let last = newest.entry(part.id).or_default();
        *last = part.last_ms.max(*last);
    }
    let is_old = |id: &SegmentId| {
        newest.get(id).is_some_and(|last| *last < oldest.unix_ms) && id.generation <= oldest.generation
    };
    for (part, _) in parts.iter().filter(|(part, _)| is_old(&part.id)) {
        store.delete(&part.key(&names)).await?;
    }
    for catalog in catalogs.iter().filter(|catalog| **catalog < oldest) {
        store.delete(&catalog.key(&names)).await?;
    }
    Ok(())
}

/// Lists all parts with their lengths, and all catalogs, in order.
pub(super) async fn list(
    store: &dyn Store,
    names: &Names,
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
        after = page.next;
        if after.is_none() {
            parts.sort_unstable();
            catalogs.sort_unstable();
            return Ok((parts, catalogs));
        }
    }
}

impl Sender {
    /// On core 0: stores the catalog first, then sends what earlier runs have left, then its own log.
    async fn lead(&mut self, target: &BackupTarget) -> Result<(), BackupError> {
        let core = self.core.clone();
        core.ctx.catch_up_catalog().await;
        if let Some(catalog) = core.ctx.opening_catalog() {
            core.claim(target).await?;
            self.check_runs(catalog.generation).await?;
            put_catalog(&core, &*self.store, &self.names, catalog).await?;
            core.ctx.opening_catalog_is_stored();
            core.node().archive.is_begun.store(true, Relaxed);
        }
        if !self.is_old_sent {
            self.is_old_sent = self.send_old().await?;
        }
        self.send_own().await
    }

    /// Refuses to mix this run with those of another data directory that has archived its log under the same prefix. A restored directory, for
    /// example, gives its runs the numbers that the original directory has given to its runs after the moment.
    async fn check_runs(&mut self, generation: u64) -> Result<(), BackupError> {
        if std::mem::replace(&mut self.are_runs_checked, true) {
            return Ok(());
        }
        self.are_runs_checked = false;
        let (parts, catalogs) = list(&*self.store, &self.names).await?;
        let runs = parts.iter().map(|(part, _)| part.id.generation);
        let newest = runs.chain(catalogs.iter().map(|catalog| catalog.generation)).max();
        if newest.is_some_and(|newest| newest >= generation) {
            let why = "it has the archive of a later run, so this data directory was restored or copied; choose another -backup-prefix or -backup-tenant"
                .to_owned();
            return Err(StoreError::Unfit { key: self.names.of_log(), why }.into());
        }
        self.are_runs_checked = true;
        Ok(())
    }

    /// Sends what earlier runs have left. Returns whether all of it is sent.
    async fn send_old(&mut self) -> Result<bool, BackupError> {
        let Some(log) = self.core.ctx.log() else { return Ok(true) };
        let generation = log.generation();
        let disk = self.disk();
        let io = |error: std::io::Error| BackupError::Source(format!("the directory of the log: {error}"));
        // The path of each segment. The next call finds a segment that moves meanwhile.
        let mut found: BTreeMap<SegmentId, PathBuf> = BTreeMap::new();
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
        for (id, path) in found.into_iter().filter(|(id, _)| id.generation < generation) {
            if self.keeper.reached(id).is_none() {
                self.look_how_far(id).await?;
            }
            if !self.send_segment(id, &path, None).await? {
                // The segment has just moved. Later ones are not sent before it.
                return Ok(false);
            }
            if path.starts_with(super::DIR) {
                disk.remove(&path).await.map_err(io)?;
            }
        }
        Ok(true)
    }

    /// Lists the store to find out how far it has the chain of `id`.
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

    /// Sends the part of this core's log that is on the device, if the interval has passed or much is waiting.
    async fn send_own(&mut self) -> Result<(), BackupError> {
        let core = self.core.clone();
        let (Some(log), Some(options)) = (core.ctx.log(), core.options().backup.archive) else {
            return Ok(());
        };
        let own = SegmentId { generation: log.generation(), core: core.env().index() as u32, number: 0 };
        let io =
            |error: std::io::Error| BackupError::Source(format!("the directory of the archive: {error}"));
        let reached = self.keeper.reached(own).unwrap_or((0, 0));
        // The log is looked at before the directory. A segment that is trimmed in between cannot be opened below, and the next look finds it in the
        // directory.
        let segments = log.synced_segments(reached.0);
        let mut waiting = Vec::new();
        // The flag is cleared first: a segment that moves while the directory is listed sets it again.
        if self.keeper.may_wait.replace(false) {
            waiting = Keeper::waiting_segments(&*self.disk()).await.map_err(io)?;
            waiting.retain(|id| (id.generation, id.core) == (own.generation, own.core));
            if !waiting.is_empty() {
                self.keeper.may_wait.set(true);
            }
        }
        let from = |number: u64| if number == reached.0 { reached.1 } else { crate::disk::BLOCK as u64 };
        let behind: u64 =
            segments.iter().map(|segment| segment.end.saturating_sub(from(segment.id.number))).sum();
        let waiting_bytes = waiting.len() as u64 * core.options().segment_bytes;
        let (counters, now_ns) = (&core.node().archive, core.env().now_ns());
        counters.note_behind(core.env().index(), behind + waiting_bytes, core.unix_ms());
        if behind + waiting_bytes == 0 {
            self.waits_since_ns = None;
            return Ok(());
        }
        let since_ns = *self.waits_since_ns.get_or_insert(now_ns);
        let is_due = now_ns.saturating_sub(since_ns) >= options.interval_ms.saturating_mul(1_000_000);
        if !is_due && behind < PART_BYTES as u64 && waiting.is_empty() {
            return Ok(());
        }
        for id in waiting {
            let path = Keeper::waiting(id);
            if self.send_segment(id, &path, None).await? {
                self.disk().remove(&path).await.map_err(io)?;
            }
        }
        for segment in segments {
            if !self.send_segment(segment.id, &segment.path, Some(segment.end)).await? {
                // It has just moved.
                return Ok(());
            }
        }
        self.waits_since_ns = None;
        counters.note_caught_up(core.env().index());
        Ok(())
    }

    fn disk(&self) -> Rc<dyn crate::disk::Disk> {
        self.core.env().disk().expect("a log lies on a disk")
    }

    /// Sends the frames of a segment that the store does not have yet, up to `end` or the end of its file. Returns false if there is no such file.
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
        let _memory = node.account.hold(MemoryUse::Images, 2 * PART_BYTES as u64);
        while let Some(frames) = read_frames(&*file, id, from, upto, PART_BYTES).await.map_err(io)? {
            let name = PartName { id, begin: frames.begin, end: frames.end, last_ms: frames.last_ms };
            let object = part::encode(id, &frames);
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
