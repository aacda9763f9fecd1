//! A node: the state all cores share, and how a data directory is opened.

use crate::account::Account;
use crate::catalog::Catalog;
use crate::core::Core;
use crate::device::{Devices, Lane};
use crate::env::Env;
use crate::keys::{KeysOptions, KeysShared, indexes, upkeep};
use crate::log::{Owners, SyncMode};
use crate::owner::scrubber::BEFORE_SERVING_BYTES;
use crate::refusals::Refusals;
use crate::reserve::{self, Reserve};
use crate::twin;
use nigh_engine::collection::DenseConfig;
use nigh_engine::memory::{Domain, Published};
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Newest layout of a data directory this build opens and the one it makes.
///
/// 2: ledgers of logs, copies of small files.
pub const DIRECTORY_FORMAT: u32 = 2;
/// The file that says the layout.
pub const FORMAT_FILE: &str = "FORMAT";

/// The text of that file.
pub(crate) fn format_text() -> String {
    format!("nigh {DIRECTORY_FORMAT}\n")
}
/// Usual log segment size, bytes. Two always exist per core, zero-written.
pub const SEGMENT_BYTES: u64 = 8 << 20;
/// Usual log bytes of one core at which collections that pin it are checkpointed: half of the 64 MiB that recovery
/// may replay, so that the log has room while images are written.
pub const LOG_BYTES_SOFT: u64 = 32 << 20;
/// Usual records above a collection's newest image that make another worth writing, although the log has room, when it has had
/// no write for seconds or the server stops: a start puts replayed points into the graph once more, some thousands per second.
pub const IMAGE_RECORDS_MIN: u64 = 4096;

/// How a node runs.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Data directory; `None` = memory only, nothing survives.
    pub data: Option<PathBuf>,
    /// Units of ownership; collections map to shards, shards to cores. A power of two.
    pub shards: usize,
    /// Durability of acknowledged writes.
    pub sync: SyncMode,
    /// Past it writes are refused, bytes.
    pub memory_limit_bytes: u64,
    /// Log segment size, bytes ([`SEGMENT_BYTES`]).
    pub segment_bytes: u64,
    /// Log bytes per core that start checkpoints ([`LOG_BYTES_SOFT`]).
    pub log_bytes_soft: u64,
    /// Records that make an image worth writing at rest ([`IMAGE_RECORDS_MIN`]).
    pub image_records_min: u64,
    /// Between two sweeps for expired points, 0 = never.
    pub sweep_interval_ms: u64,
    /// How keys are kept.
    pub keys: KeysOptions,
    /// What opens devices for collections of `index_type` "gpu".
    pub devices: Devices,
    /// Has the allocator of the process return unused memory to the kernel. It should take some milliseconds at most. It is called on the
    /// thread of each core, because allocators keep what each thread has freed.
    pub give_back_memory: fn(),
}

impl NodeOptions {
    /// Bytes of the disk that are kept back for what frees room, for so many cores: two usual log segments for each core, whose records may
    /// have no image yet, one for deletes and one for small files. A small disk has less. 0 without a disk.
    pub fn reserve_bytes(&self, cores: usize) -> u64 {
        match self.data {
            Some(_) => (2 + 2 * cores as u64) * self.segment_bytes,
            None => 0,
        }
    }
}

/// State of a node that every core sees.
pub struct NodeShared {
    /// Start options.
    pub options: NodeOptions,
    /// Readers of published state.
    pub domain: Arc<Domain>,
    /// Names to collections.
    pub catalog: Published<Catalog>,
    /// Searches waiting or running per core.
    pub loads: Vec<AtomicU32>,
    /// The keys of all cores.
    pub(crate) keys: Arc<KeysShared>,
    /// Searches on devices.
    pub(crate) lane: Lane,
    /// What the process holds in memory.
    pub account: Arc<Account>,
    /// Room on the disk for what frees room.
    pub reserve: Arc<Reserve>,
    /// Writes that were refused.
    pub refusals: Refusals,
    /// Bytes of vectors that this start may still compare with their checksums before it serves.
    pub(crate) compared_before_serving: AtomicU64,
    pub(crate) cores_ready: AtomicUsize,
    next_uid: AtomicU64,
    next_task_id: AtomicU64,
    /// Of each core, why its log takes nothing more.
    log_failures: Vec<OnceLock<String>>,
    /// Why the node could not start, when it could not.
    pub failure: OnceLock<String>,
}

impl NodeShared {
    /// State for `cores` cores.
    pub fn new(options: NodeOptions, cores: usize) -> Arc<NodeShared> {
        // Two seats each: see `Core::long_pin`. And the last for the lane.
        let domain = Domain::new(2 * cores + 1);
        let account = Account::with_keys(options.memory_limit_bytes, options.keys.budget_bytes);
        let reserve = Reserve::new(options.reserve_bytes(cores), cores);
        Arc::new(NodeShared {
            lane: Lane::new(options.devices.clone(), domain.clone(), account.clone()),
            options,
            keys: Arc::new(KeysShared::new(cores)),
            catalog: Published::new(domain.clone(), Catalog::default()),
            domain,
            loads: (0..cores).map(|_| AtomicU32::new(0)).collect(),
            account,
            reserve,
            refusals: Refusals::default(),
            compared_before_serving: AtomicU64::new(BEFORE_SERVING_BYTES),
            cores_ready: AtomicUsize::new(0),
            next_uid: AtomicU64::new(1),
            next_task_id: AtomicU64::new(1),
            log_failures: (0..cores).map(|_| OnceLock::new()).collect(),
            failure: OnceLock::new(),
        })
    }

    /// A number no task of this process has.
    pub(crate) fn next_task_id(&self) -> u64 {
        self.next_task_id.fetch_add(1, Relaxed)
    }

    /// A uid greater than every one before, also before a restart: it starts at the wall clock in microseconds.
    pub(crate) fn next_uid(&self) -> u64 {
        self.next_uid.fetch_add(1, Relaxed)
    }

    /// The first of `count` such numbers that follow each other.
    pub(crate) fn reserve_uids(&self, count: u64) -> u64 {
        self.next_uid.fetch_add(count, Relaxed)
    }

    /// All uids below this one may have been given.
    pub(crate) fn uid_end(&self) -> u64 {
        self.next_uid.load(Relaxed)
    }

    pub(crate) fn raise_uid(&self, at_least: u64) {
        self.next_uid.fetch_max(at_least, Relaxed);
    }

    /// The core that owns a collection: uid to shard to core.
    pub fn owner_of(&self, uid: u64, cores: usize) -> usize {
        Owners { shards: self.options.shards, cores }.of_collection(uid)
    }

    /// Slots a collection may grow to: what the memory limit holds, at least one million so that a small limit does
    /// not turn into an odd slot limit, at most 2^32 - 2. What lies in files may be many times as large, up to what every file system
    /// takes.
    pub(crate) fn slots_max(&self, config: &DenseConfig) -> usize {
        let bytes = config.quota_bytes_per_point().max(1);
        let by_memory = match config.persistent {
            false => self.options.memory_limit_bytes / bytes,
            true => (self.options.memory_limit_bytes.saturating_mul(PERSISTENT_FACTOR) / bytes)
                .min(FILE_MAX / bytes),
        };
        by_memory.clamp(SLOTS_MIN, u64::from(u32::MAX) - 1) as usize
    }

    /// The log of core `core` has failed for good. Whether that is new: a log fails once.
    pub(crate) fn note_log_failure(&self, core: usize, cause: String) -> bool {
        self.log_failures[core].set(cause).is_ok()
    }

    /// Per core, whether its log has failed.
    pub fn failed_logs(&self) -> Vec<bool> {
        self.log_failures.iter().map(|cause| cause.get().is_some()).collect()
    }

    /// Which logs have failed, so that writes are refused until a restart, and why.
    pub fn log_failure(&self) -> Option<String> {
        let failed = self.log_failures.iter().enumerate();
        let failed = failed.filter_map(|(core, cause)| Some(format!("core {core}: {}", cause.get()?)));
        let failed: Vec<String> = failed.collect();
        (!failed.is_empty()).then(|| {
            format!("the log has failed, and writes are refused until a restart: {}", failed.join("; "))
        })
    }

    /// Whether any log has failed.
    pub(crate) fn has_log_failed(&self) -> bool {
        self.log_failures.iter().any(|cause| cause.get().is_some())
    }
}

/// Slots that every collection may have. In tests so few that a collection can have more than a lower limit allows.
const SLOTS_MIN: u64 = if cfg!(test) { 256 } else { 1 << 20 };
/// Persistent collections may hold so many times what fits into memory.
const PERSISTENT_FACTOR: u64 = 64;
/// Bytes of a file of vectors; ext4 takes 16 TiB.
const FILE_MAX: u64 = 8 << 40;

/// Why a data directory does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// Another process holds it.
    #[error("data directory {path} is locked by another process{holder}; stop it or choose another -data")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// ` (pid N)` when known.
        holder: String,
    },
    /// Not writable, no space, not a directory ...
    #[error("data directory {path} cannot be used: {source}")]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// Made by a newer version.
    #[error(
        "data directory {path} has format {found}, newer than this build opens ({DIRECTORY_FORMAT}); use a newer nigh"
    )]
    Newer {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The format file is damaged or the directory belongs to something else.
    #[error("data directory {path} is not one of ours: {what}")]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// A data directory locked for this process until dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Creates the directory if needed, locks it, and checks its format.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn acquire(path: &Path) -> Result<DirectoryLock, DirectoryError> {
        let io = |at: &Path| {
            let at = at.to_owned();
            move |source| DirectoryError::Io { path: at, source }
        };
        create_directory(path, &mut |parent| File::open(parent)?.sync_all()).map_err(io(path))?;
        let lock_path = path.join("LOCK");
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(io(&lock_path))?;
        // SAFETY: flock has no memory effects; the descriptor is open for as long as `file` lives.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() != ErrorKind::WouldBlock {
                return Err(DirectoryError::Io { path: lock_path, source: error });
            }
            let holder = std::fs::read_to_string(&lock_path).unwrap_or_default();
            let holder = match holder.trim() {
                "" => String::new(),
                pid => format!(" (pid {pid})"),
            };
            return Err(DirectoryError::Locked { path: path.to_owned(), holder });
        }
        // Whose it is helps whoever is refused next; a full disk may have no room for that.
        match file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())) {
            Err(error) if !reserve::is_full(&error) => return Err(io(&lock_path)(error)),
            _ => {}
        }
        let (format_path, copy_path) =
            (path.join(FORMAT_FILE), path.join(twin::copy_of(Path::new(FORMAT_FILE))));
        let found_in = |text: &str| text.trim().strip_prefix("nigh ").and_then(|n| n.parse::<u32>().ok());
        // The file is damaged or gone, and its copy says that the directory is one of ours: opening it writes the file again.
        let by_copy = || {
            let found = std::fs::read(&copy_path).is_ok_and(|bytes| bytes == format_text().as_bytes());
            if found {
                tracing::error!(file = %format_path.display(), "FORMAT is damaged or missing; its copy is used");
            }
            found
        };
        let text = std::fs::read(&format_path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        match text {
            Ok(text) => {
                let found = found_in(&text);
                match found {
                    // A newer build raises the file before its copy, and both before anything else: while the copy says this format, so
                    // does the rest of the directory.
                    Some(found) if found > DIRECTORY_FORMAT && by_copy() => {}
                    Some(found) if found > DIRECTORY_FORMAT => {
                        return Err(DirectoryError::Newer { path: path.to_owned(), found });
                    }
                    Some(1..) => {}
                    _ if by_copy() => {}
                    _ => {
                        let what = format!("its FORMAT file says {:?}", text.trim());
                        return Err(DirectoryError::Foreign { path: path.to_owned(), what });
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound && by_copy() => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if path.join("collections").exists() {
                    let what = "it holds collections but no FORMAT file".to_owned();
                    return Err(DirectoryError::Foreign { path: path.to_owned(), what });
                }
                let temporary = path.join("FORMAT.new");
                let written = (|| {
                    let mut file = File::create(&temporary)?;
                    file.write_all(format_text().as_bytes())?;
                    file.sync_all()?;
                    std::fs::rename(&temporary, &format_path)?;
                    File::open(path)?.sync_all()
                })();
                if written.is_err() {
                    // The next attempt may find the disk as full, and this much fuller.
                    let _half_written = std::fs::remove_file(&temporary);
                }
                written.map_err(io(&format_path))?;
            }
            Err(source) => return Err(DirectoryError::Io { path: format_path, source }),
        }
        Ok(DirectoryLock { _file: file })
    }
}

/// Creates a directory and its parents, and makes each of their names durable: what is acknowledged later must not lie in a directory that a power
/// loss takes away. `sync` syncs a directory.
fn create_directory(path: &Path, sync: &mut dyn FnMut(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    // The empty path is the parent of a relative one's first part.
    let parent = match path.parent() {
        None => return Ok(()),
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
    };
    if path.is_dir() {
        // A process that was killed here may have made it. Whoever may not read the parent has not made it either, and a file system
        // that is only read, or that knows no sync of directories, has not lost a new name.
        return match sync(parent) {
            Err(error) => match error.kind() {
                ErrorKind::PermissionDenied
                | ErrorKind::InvalidInput
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::Unsupported => Ok(()),
                _ => Err(error),
            },
            Ok(()) => Ok(()),
        };
    }
    create_directory(parent, sync)?;
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists || !path.is_dir() => Err(error),
        _ => sync(parent),
    }
}

impl Core {
    /// Starts this core's part of the node and waits until the store is open on all cores.
    ///
    /// # Errors
    /// A sentence; the same failure is in [`NodeShared::failure`] for every core.
    pub async fn start(env: Rc<dyn Env>, shared: Arc<NodeShared>) -> Result<Rc<Core>, String> {
        let core = Core::begin(env, shared);
        Core::set_current(Some(core.clone()));
        core.finish_start().await
    }

    /// First half of [`Core::start`]: the core exists and can receive messages.
    pub(crate) fn begin(env: Rc<dyn Env>, shared: Arc<NodeShared>) -> Rc<Core> {
        Core::new(env, shared)
    }

    /// Second half: opens the store together with the other cores.
    pub(crate) async fn finish_start(self: Rc<Self>) -> Result<Rc<Core>, String> {
        let core = self;
        let (env, shared) = (core.env().clone(), core.shared_node());
        shared.cores_ready.fetch_add(1, Relaxed);
        if env.index() == 0 {
            while shared.cores_ready.load(Relaxed) < env.cores() {
                env.sleep_us(200).await;
            }
            shared.raise_uid(env.unix_ms().saturating_mul(1000));
            if let Err(error) = crate::recovery::open(&core).await {
                // What every attempt leaves would fill the disk.
                core.discard_logs().await;
                // The first failure is the one reported; it can only be set here.
                let _first = shared.failure.set(error);
            }
            for to in 0..env.cores() {
                crate::env::call_own(&core, to, |there| async move {
                    there.is_open.set(true);
                    there.opened.notify();
                })
                .await;
            }
        }
        while !core.is_open.get() {
            core.opened.wait().await;
        }
        if let Some(failure) = shared.failure.get() {
            return Err(failure.clone());
        }
        env.spawn(Box::pin(core.clone().housekeeping()));
        if env.index() == 0 {
            env.spawn_background(Box::pin(reserve::keep(core.clone())));
        }
        env.spawn_background(Box::pin(crate::owner::checkpointer::run(core.clone())));
        env.spawn_background(Box::pin(crate::owner::expiry::run(core.clone())));
        env.spawn_background(Box::pin(crate::owner::sweeper::run(
            core.clone(),
            shared.options.sweep_interval_ms,
        )));
        env.spawn_background(Box::pin(upkeep::sweep(core.clone(), shared.options.sweep_interval_ms)));
        env.spawn_background(Box::pin(upkeep::reserve(
            core.clone(),
            shared.options.keys.reserve_interval_ms,
        )));
        env.spawn_background(Box::pin(upkeep::tidy(core.clone())));
        if shared.options.keys.query {
            env.spawn_background(Box::pin(indexes::keep(core.clone())));
        }
        Ok(core)
    }

    /// Flushes what is pending and ends this core's tasks. Call on every core once no request is in flight.
    pub async fn stop(self: &Rc<Self>) {
        self.begin_stop();
        // A search that waits between two pieces still reads what other cores' writers own.
        self.end_long_turns().await;
        if let Some(log) = self.log() {
            log.stop().await;
        }
        // After the log: a process that is killed while it stops has lost time, nothing else.
        crate::owner::checkpointer::finish(self).await;
        for owned in self.all_owned() {
            owned.end_tasks();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_new_data_directory_and_its_parents_are_synced() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("a/b"));
        let mut synced = Vec::new();
        create_directory(&b, &mut |path| {
            synced.push(path.to_owned());
            Ok(())
        })
        .unwrap();
        assert!(b.is_dir());
        assert!(synced.ends_with(&[dir.path().to_owned(), a.clone()]), "{synced:?}");
        synced.clear();
        create_directory(&b, &mut |path| {
            synced.push(path.to_owned());
            Ok(())
        })
        .unwrap();
        assert_eq!(synced, [a], "a process that was killed may have made it");
        let failed = create_directory(&b.join("c"), &mut |_| Err(ErrorKind::StorageFull.into()));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::StorageFull);
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(create_directory(&dir.path().join("file/d"), &mut |_| Ok(())).is_err());
    }

    #[test]
    fn a_directory_is_made_locked_and_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let lock = DirectoryLock::acquire(&path).unwrap();
        // flock belongs to the open file description, so a second open in the same process is refused as well.
        assert!(matches!(DirectoryLock::acquire(&path), Err(DirectoryError::Locked { .. })));
        drop(lock);
        DirectoryLock::acquire(&path).unwrap();
        std::fs::write(path.join("FORMAT"), "nigh 999\n").unwrap();
        assert!(matches!(DirectoryLock::acquire(&path), Err(DirectoryError::Newer { found: 999, .. })));
        std::fs::write(path.join("FORMAT"), "redis\n").unwrap();
        assert!(matches!(DirectoryLock::acquire(&path), Err(DirectoryError::Foreign { .. })));
        // The copy decides where the file itself is damaged, or was raised by a newer build that ended before it changed anything else.
        std::fs::create_dir(path.join(twin::COPIES)).unwrap();
        std::fs::write(path.join(twin::copy_of(Path::new("FORMAT"))), format_text()).unwrap();
        for damaged in ["redis\n", "nigh 999\n", ""] {
            std::fs::write(path.join("FORMAT"), damaged).unwrap();
            DirectoryLock::acquire(&path).unwrap();
        }
        std::fs::write(path.join(twin::copy_of(Path::new("FORMAT"))), "nigh 999\n").unwrap();
        std::fs::write(path.join("FORMAT"), "nigh 999\n").unwrap();
        assert!(matches!(DirectoryLock::acquire(&path), Err(DirectoryError::Newer { found: 999, .. })));
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(matches!(DirectoryLock::acquire(&file), Err(DirectoryError::Io { .. })));
    }
}
