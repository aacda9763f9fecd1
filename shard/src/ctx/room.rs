//! Room in a core's log and on the disk: who waits for it, who is refused, and what a failed log means for what is held in memory.

use super::Ctx;
use crate::archive::Keeper;
use crate::damage_mark;
use crate::disk::{Disk, LocalBoxFuture, is_full};
use crate::error::OpError;
use crate::family::collection_of;
use crate::journal::{Journal, Purpose, RecordKey, Ticket};
use crate::log::{ChainFound, Log, LogConfig, LogError, MakeRoom, OldSegments, Owners};
use crate::reserve::Part;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Log bytes of a core beyond which writes wait for checkpoints, as a multiple of those that start them: 256 MiB usually. What
/// a recovery reads and holds in memory, and what a log can take of a full disk, is bounded by it.
const LOG_HARD_FACTOR: u64 = 8;
/// How long a write waits for them before it is refused, microseconds, and how often it looks.
pub(crate) const CHECKPOINT_WAIT_MAX_US: u64 = 30_000_000;
pub(crate) const CHECKPOINT_POLL_US: u64 = 5_000;
/// How long what frees room waits on a full disk for images that make room for it, microseconds: an image that found no room is tried again
/// after 10 s.
const FREE_WAIT_MAX_US: u64 = 25_000_000;
/// Between two looks how much room there is, microseconds, and looks between two attempts to fill it.
const LOOK_PERIOD_US: u64 = 250_000;
const FILL_LOOKS: u64 = 4;

impl Ctx {
    /// Whether images find no room on the disk, or what would be refused now because of it.
    pub(crate) fn is_disk_short(&self) -> bool {
        let reserve = &self.node().reserve;
        reserve.is_disk_full() || reserve.is_image_short()
    }

    /// Creates this core's log of the new generation and starts its flushing.
    pub(crate) async fn create_log(self: &Rc<Self>, generation: u64, old: OldSegments) -> Result<(), String> {
        let disk = self.env().disk().expect("a log is made only on a disk");
        let config = LogConfig {
            dir: PathBuf::from(format!("log/{:04}", self.env().index())),
            generation,
            segment_bytes: self.options().segment_bytes,
            sync: self.options().sync,
            owners: Some(Owners { shards: self.options().shards, cores: self.env().cores() }),
        };
        let env = self.env().clone();
        let keeper = self.is_archived().then(|| Keeper::new(disk.clone(), self.shared_node()));
        let reserve = self.node().reserve.clone();
        let made = Log::create_with(disk, config, reserve, async |us| env.sleep_us(us).await).await;
        let log = made.map_err(|e| format!("creating the log: {e}"))?;
        let (clock, shared) = (env.clone(), self.shared_node());
        log.set_clock(Rc::new(move || shared.moment_ms(clock.unix_ms())));
        if let Some(keeper) = keeper {
            log.set_keep(keeper.clone());
            let _only_once = self.keeper.set(keeper);
        }
        let sleep = Rc::new(move |us| env.sleep_us(us));
        self.env().spawn(Box::pin(log.clone().flush_loop(sleep)));
        let (watched, ctx) = (log.clone(), self.clone());
        self.env().spawn(Box::pin(async move {
            watched.failure().await;
            ctx.note_failed_log(&watched);
        }));
        self.set_log(log, old);
        Ok(())
    }

    /// Notes, if it has failed, that the log takes nothing more. Collections that have applied writes which the log has not kept
    /// serve nothing from here on, and neither do the keys if they have applied such writes: clients were told that these writes are refused,
    /// and a restart may find them or not.
    pub(crate) fn note_failed_log(&self, log: &Log) {
        let Some(cause) = log.failed() else { return };
        if !self.node().note_log_failure(self.env().index(), cause) {
            return;
        }
        let pin = self.pin();
        let catalog = self.node().catalog.load(&pin);
        for uid in log.refused() {
            let Some(handle) = catalog.by_name.values().find(|handle| handle.uid == collection_of(uid))
            else {
                self.node().keys.refused_by_log(uid);
                continue;
            };
            let why = "it has writes that were refused when the log failed; a restart serves what is durable";
            tracing::error!(collection = handle.name, why, "collection serves nothing");
            // One that is damaged already stays so for its own reason.
            let _damaged_before = handle.damage.set(why.to_owned());
        }
    }

    /// Releases the reserve of the disk; whether that may have made room.
    pub(crate) async fn release_reserve(&self) -> bool {
        let Some(disk) = self.env().disk() else { return false };
        self.node().reserve.release(Part::All, &*disk, async |us| self.env().sleep_us(us).await).await
    }

    /// Carries out something that frees room or that a start needs; a second time, with the reserve released, when the disk is full.
    pub(crate) async fn with_reserve<T>(&self, operation: impl AsyncFn() -> io::Result<T>) -> io::Result<T> {
        match operation().await {
            Err(error) if is_full(&error) && self.release_reserve().await => operation().await,
            done => done,
        }
    }

    /// Marks the store of `dir` as damaged because `chain` lacks a part of its log, and returns the reason. Where a full disk has no room for the mark, the
    /// chain is left as it is until there is.
    ///
    /// # Errors
    /// The disk refused for another reason.
    pub(crate) async fn note_damage(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        chain: &mut ChainFound,
    ) -> io::Result<String> {
        let why = chain.to_string();
        match self.with_reserve(async || damage_mark::store(disk, dir, &why).await).await {
            Err(error) if is_full(&error) => {
                tracing::warn!(directory = %dir.display(), "the disk is too full to mark a store as damaged; it is done once there is room");
                chain.unmarked.push((dir.to_owned(), why.clone()));
            }
            noted => noted?,
        }
        Ok(why)
    }
}

/// A refusal of the log, as owners are told.
fn log_error(error: LogError) -> OpError {
    match error {
        LogError::NoSpace(why) => OpError::NoSpace(why),
        LogError::TooLarge(bytes) => {
            OpError::BadRequest(format!("point of {bytes} bytes is larger than a log record may be"))
        }
        other => OpError::Unavailable(other.to_string()),
    }
}

impl Journal for Ctx {
    #[inline]
    fn keeps_records(&self) -> bool {
        self.log().is_some()
    }

    fn awaits_checkpoints(&self, purpose: Purpose) -> bool {
        let Some(log) = self.log() else { return false };
        log.live_bytes() > self.options().log_bytes_soft.saturating_mul(LOG_HARD_FACTOR)
            || (purpose == Purpose::Grow && self.node().reserve.is_low())
    }

    fn has_failed(&self) -> bool {
        self.log().is_some_and(|log| log.failed().is_some())
    }

    async fn wait_for_room(&self, purpose: Purpose, bytes: usize) -> Result<(), OpError> {
        let Some(log) = self.log() else { return Ok(()) };
        let mut waited_us = 0;
        while self.awaits_checkpoints(purpose) {
            if self.is_disk_short() {
                match purpose {
                    Purpose::Free => break,
                    Purpose::Grow => {
                        let waiting = log.live_bytes();
                        return Err(OpError::NoSpace(format!(
                            "the disk is full, and {waiting} bytes of log wait for images that find no room"
                        )));
                    }
                }
            }
            if waited_us >= CHECKPOINT_WAIT_MAX_US || self.is_stopping() {
                return Err(OpError::Busy(format!(
                    "checkpoints do not keep up: {} bytes of log wait for them; try again",
                    log.live_bytes()
                )));
            }
            self.env().sleep_us(CHECKPOINT_POLL_US).await;
            waited_us += CHECKPOINT_POLL_US;
        }
        let mut waited_us = 0;
        loop {
            match log.make_room_for(purpose, bytes).await {
                // Deletes may come faster than the images that let their records go.
                Err(LogError::NoSpace(_))
                    if purpose == Purpose::Free && waited_us < FREE_WAIT_MAX_US && !self.is_stopping() =>
                {
                    self.images_wanted.set(true);
                    self.env().sleep_us(CHECKPOINT_POLL_US).await;
                    waited_us += CHECKPOINT_POLL_US;
                }
                made => return made.map_err(log_error),
            }
        }
    }

    #[inline]
    fn append(
        &self,
        purpose: Purpose,
        key: RecordKey,
        buffer: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Option<Ticket>, OpError> {
        let Some(log) = self.log() else { return Ok(None) };
        encode(buffer);
        log.append_for(purpose, key, buffer).map(Some).map_err(log_error)
    }

    async fn wait_durable(&self, ticket: Option<Ticket>) -> Result<(), OpError> {
        match (ticket, self.log()) {
            (Some(ticket), Some(log)) => log.durable(ticket).await.map_err(|error| {
                // Before anybody is told: who is told looks, and must see it.
                self.note_failed_log(log);
                log_error(error)
            }),
            _ => Ok(()),
        }
    }
}

impl MakeRoom for Ctx {
    fn make_room(&self) -> LocalBoxFuture<'_, bool> {
        Box::pin(self.release_reserve())
    }
}

/// On core 0: looks how much room there is, and fills the reserve whenever it has been used and there is room for it.
pub(crate) async fn keep_reserve(ctx: Rc<Ctx>) {
    let Some(disk) = ctx.env().disk() else { return };
    let mut looks = 0u64;
    while !ctx.is_stopping() {
        ctx.env().sleep_us(LOOK_PERIOD_US).await;
        looks += 1;
        // A file system that cannot tell has the reserve, which is enough for most.
        let reserve = &ctx.node().reserve;
        let mut has_room = true;
        if let Ok(space) = disk.space().await {
            reserve.note_space(space);
            has_room = reserve.fits(space);
        }
        if !has_room || !looks.is_multiple_of(FILL_LOOKS) {
            continue;
        }
        if let Err(error) = reserve.fill(&*disk).await
            && !is_full(&error)
        {
            tracing::warn!(%error, "the reserve of the disk cannot be made");
        }
    }
}
