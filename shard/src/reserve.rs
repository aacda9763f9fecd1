//! Room on the disk that is kept back for what frees room.
//!
//! A file of zeros lies in the data directory. While it is there, whatever writes takes its room from the rest of the disk. When the
//! disk is full, a drop, an image that lets log segments go, or a start removes the file and uses its room, and what deletes append to
//! logs uses a quarter of it; until it is whole again, writes that need lasting room are refused. So what has been freed is never eaten by new data before deletes can be sure of
//! their room again.
//!
//! The reserve has room for the images of little log only. So images are also written when what is free would soon not hold those of what the
//! logs have, and new data waits for them: on a disk that is full, the logs are short.
//!
//! The state is one word that every core reads. Any core may release the reserve; only core 0 fills it (`ctx::keep_reserve`).

use crate::disk::{BLOCK, Disk, Space};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// Its name in the data directory.
pub const FILE: &str = "reserve";
/// It is written in so many steps, between which it can be given up: whoever releases it waits for no more than one.
const STEPS: u64 = 16;
/// It takes no more than this part of a disk.
const DISK_PART: u64 = 8;
/// An image may be so many times as large as the log records that it covers: it has edges too.
const IMAGE_FACTOR: u64 = 2;
/// Between two looks whether a step of filling has ended, microseconds.
const FILLING_POLL_US: u64 = 200;
/// Between two attempts to write an image with the help of the reserve, where the last one has come to nothing, nanoseconds. Filling the
/// reserve anew after each writes it anew.
const IMAGE_RETRY_NS: u64 = 10_000_000_000;

/// The file is there, whole.
const INTACT: u64 = 1;
/// Core 0 is writing it.
const FILLING: u64 = 2;
/// Counts releases.
const EPOCH: u64 = 4;

/// See the module.
#[derive(Debug)]
pub struct Reserve {
    bytes: AtomicU64,
    /// How many of its bytes are on the disk, but for what is being changed.
    held: AtomicU64,
    state: AtomicU64,
    /// Releases under way: none may be overtaken by the next filling, whose file it would remove.
    releasing: AtomicUsize,
    /// Logs that found no room for another segment.
    short_logs: AtomicUsize,
    /// The last image that a core tried to write found no room.
    image_short: AtomicBool,
    /// It is not released for an image again before this moment.
    image_not_before_ns: AtomicU64,
    /// Per core, bytes of log that images would have to let go, and those of earlier runs.
    log_bytes: Box<[AtomicU64]>,
    /// Images of what the logs have may not find room much longer.
    is_low: AtomicBool,
    /// What the disk had left at the last look, the reserve apart.
    free: AtomicU64,
    /// What was logged last.
    told_full: AtomicBool,
}

impl Reserve {
    /// A reserve of `bytes` for so many cores, which is not there yet; 0 = none is kept, and none is missed.
    pub fn new(bytes: u64, cores: usize) -> Arc<Reserve> {
        Arc::new(Reserve {
            bytes: AtomicU64::new(block_up(bytes)),
            held: AtomicU64::new(0),
            log_bytes: (0..=cores).map(|_| AtomicU64::new(0)).collect(),
            is_low: AtomicBool::new(false),
            free: AtomicU64::new(u64::MAX),
            state: AtomicU64::new(if bytes == 0 { INTACT } else { 0 }),
            releasing: AtomicUsize::new(0),
            short_logs: AtomicUsize::new(0),
            image_short: AtomicBool::new(false),
            image_not_before_ns: AtomicU64::new(0),
            told_full: AtomicBool::new(false),
        })
    }

    /// Whether new data may be written. One load.
    #[inline]
    pub fn is_intact(&self) -> bool {
        self.state.load(std::sync::atomic::Ordering::Relaxed) & INTACT != 0
    }

    /// Of a small disk it takes no more than a part. Before anything else.
    pub(crate) fn fit(&self, space: Space) {
        self.bytes.fetch_min(block_up(space.total / DISK_PART), SeqCst);
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(SeqCst)
    }

    /// A core tells how much of its log images would have to let go.
    pub(crate) fn note_log_bytes(&self, core: usize, bytes: u64) {
        // A log without a reserve may have any number.
        if let Some(of_core) = self.log_bytes.get(core) {
            of_core.store(bytes, SeqCst);
        }
    }

    /// Core 0 tells the same of the logs of earlier runs.
    pub(crate) fn note_old_bytes(&self, bytes: u64) {
        self.note_log_bytes(self.log_bytes.len() - 1, bytes);
    }

    /// Before the log of a core, which has `log_bytes`, takes `bytes` more for new data: whether images of what all logs have would find room
    /// then. Where the disk has no room for the segment either that is not the question.
    pub(crate) fn leaves_room_for_images(
        &self,
        core: usize,
        log_bytes: u64,
        bytes: u64,
        space: Space,
    ) -> bool {
        if self.bytes() == 0 || space.free < bytes {
            return true;
        }
        self.note_log_bytes(core, log_bytes);
        self.note_space(Space { free: space.free - bytes, ..space });
        !self.is_low()
    }

    /// The same before it takes `bytes` more for what frees room.
    pub(crate) fn leaves_room_to_free(&self, core: usize, log_bytes: u64, bytes: u64, space: Space) -> bool {
        self.note_log_bytes(core, log_bytes);
        let room = space.free.saturating_add(self.held.load(SeqCst));
        // Records of deletes take more than what images have of them.
        self.bytes() == 0 || room >= bytes + self.all_log_bytes()
    }

    fn all_log_bytes(&self) -> u64 {
        self.log_bytes.iter().map(|bytes| bytes.load(SeqCst)).sum()
    }

    /// Whether images are due although the logs are short: later they may find no room.
    pub(crate) fn is_low(&self) -> bool {
        self.is_low.load(SeqCst)
    }

    /// Whether an image of so many bytes, about, would find room if it had the reserve, as far as is known.
    pub(crate) fn has_room_for_image(&self, bytes: u64) -> bool {
        let room = self.free.load(SeqCst).saturating_add(self.held.load(SeqCst));
        bytes.saturating_add(bytes / 8) < room
    }

    /// Whether what is free holds what the reserve lacks.
    pub(crate) fn fits(&self, space: Space) -> bool {
        space.free >= self.bytes().saturating_sub(self.held.load(SeqCst))
    }

    /// Looks at what the disk has left.
    pub(crate) fn note_space(&self, space: Space) {
        self.free.store(space.free, SeqCst);
        self.is_low.store(space.free < self.all_log_bytes().saturating_mul(IMAGE_FACTOR), SeqCst);
        self.tell();
    }

    /// Whether the disk has no room for new data, as far as is known.
    pub fn is_disk_full(&self) -> bool {
        !self.is_intact() || self.short_logs.load(SeqCst) > 0 || (self.is_low() && self.is_image_short())
    }

    /// Whether an image found no room and none has been written since.
    pub(crate) fn is_image_short(&self) -> bool {
        self.image_short.load(SeqCst)
    }

    /// An image was written, or found no room at this moment, although the reserve was released for it if that was allowed.
    pub(crate) fn note_image(&self, found_room: bool, now_ns: u64) {
        self.image_short.store(!found_room, SeqCst);
        // An attempt that was not allowed the reserve does not move that moment.
        if !found_room && self.is_for_images(now_ns) {
            self.image_not_before_ns.store(now_ns + IMAGE_RETRY_NS, SeqCst);
        }
        self.tell();
    }

    /// Whether an image may use it: not again and again, if that comes to nothing.
    pub(crate) fn is_for_images(&self, now_ns: u64) -> bool {
        now_ns >= self.image_not_before_ns.load(SeqCst)
    }

    /// A log has found no room for another segment, or has room again.
    pub(crate) fn note_log(&self, is_short: bool) {
        match is_short {
            true => self.short_logs.fetch_add(1, SeqCst),
            false => self.short_logs.fetch_sub(1, SeqCst),
        };
        self.tell();
    }

    /// Logs the state of the disk when it has changed: one line per change, however many writes are refused.
    fn tell(&self) {
        let is_full = self.is_disk_full();
        if self.told_full.swap(is_full, SeqCst) == is_full {
            return;
        }
        if is_full {
            tracing::warn!(
                "the disk is full: writes that need room are refused; reads, deletes and drops go on"
            );
        } else {
            tracing::info!("the disk has room again: writes are taken");
        }
    }

    /// Gives room of the reserve back to the disk, for something that frees room; writes that need lasting room are refused from here on, until
    /// `keep` has filled it again. `sleep` sleeps for so many microseconds. Whether there was anything to give.
    pub async fn release(&self, part: Part, disk: &dyn Disk, sleep: impl AsyncFn(u64)) -> bool {
        if self.bytes() == 0 {
            return false;
        }
        self.releasing.fetch_add(1, SeqCst);
        let _ended = Releasing(self);
        // What is being filled has taken room that will be there.
        let was_filling = self.state.fetch_add(EPOCH, SeqCst) & FILLING != 0;
        self.state.fetch_and(!INTACT, SeqCst);
        self.tell();
        while self.state.load(SeqCst) & FILLING != 0 {
            sleep(FILLING_POLL_US).await;
        }
        let kept = match part {
            // At least three quarters are for the images.
            Part::OfLogs => block_up(self.bytes() / 4 * 3),
            Part::All => 0,
        };
        let path = Path::new(FILE);
        let released = async {
            let file = match disk.open(path).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                opened => opened?,
            };
            let is_more = file.len().await? > kept;
            if kept == 0 {
                // What is open keeps its room.
                file.close().await?;
                disk.remove(path).await?;
            } else if is_more {
                file.truncate(kept).await?;
                file.close().await?;
            }
            self.held.fetch_min(kept, SeqCst);
            Ok::<_, io::Error>(is_more)
        };
        let is_more = released.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the reserve of the disk cannot be released");
            false
        });
        is_more || was_filling
    }

    /// At a start, before anything else runs: whether the reserve of an earlier run is there, whole.
    pub(crate) async fn find(&self, disk: &dyn Disk) {
        let Ok(file) = disk.open(Path::new(FILE)).await else { return };
        if file.len().await.is_ok_and(|bytes| bytes >= self.bytes()) {
            self.held.store(self.bytes(), SeqCst);
            self.state.fetch_or(INTACT, SeqCst);
        }
    }

    /// Makes the reserve whole. It is not made durable: a power loss may leave less of it, which the next start makes whole.
    ///
    /// # Errors
    /// The disk has no room for it, or is broken; it has what it had before then.
    pub(crate) async fn fill(&self, disk: &dyn Disk) -> io::Result<()> {
        if self.is_intact() {
            return Ok(());
        }
        let begun = self.state.fetch_or(FILLING, SeqCst) & !FILLING;
        let filling = Filling(self);
        if self.releasing.load(SeqCst) > 0 {
            return Ok(());
        }
        let path = Path::new(FILE);
        let file = match disk.open(path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(path).await?,
            opened => opened?,
        };
        let had = file.len().await?;
        let made = async {
            for step in 1..=STEPS {
                let more = self.bytes().saturating_sub(had) * step / STEPS;
                file.preallocate(block_up(had + more)).await?;
                if self.state.load(SeqCst) & !FILLING != begun {
                    break;
                }
            }
            Ok::<_, io::Error>(())
        };
        let made = made.await;
        let (from, to) = (begun | FILLING, begun | FILLING | INTACT);
        let done = made.is_ok() && self.state.compare_exchange(from, to, SeqCst, SeqCst).is_ok();
        // Whoever has released it, or needs what it could not have, finds the room there.
        let put_back = if done { Ok(()) } else { file.truncate(had).await };
        self.held.store(if done { self.bytes() } else { had }, SeqCst);
        file.close().await?;
        drop(filling);
        self.tell();
        made.and(put_back)
    }
}

/// How much of the reserve is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A quarter of it, for segments of logs: what deletes append must leave room for the images that let it go.
    OfLogs,
    /// All of it, for images, small files, drops and starts.
    All,
}

fn block_up(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK as u64)
}

/// Ends a release, also one that is dropped half-way.
struct Releasing<'a>(&'a Reserve);

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        self.0.releasing.fetch_sub(1, SeqCst);
    }
}

/// Ends an attempt to fill.
struct Filling<'a>(&'a Reserve);

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_and(!FILLING, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{SimDisk, is_full};
    use crate::sim;

    #[test]
    fn a_reserve_is_released_filled_and_found() {
        const BYTES: u64 = 16 * BLOCK as u64;
        for seed in 1..200 {
            let disk = SimDisk::new(seed);
            disk.set_yielding(true);
            sim::run(seed, |sim| async move {
                let reserve = Reserve::new(BYTES, 1);
                let release =
                    async |part| reserve.release(part, &disk, async |us| sim.sleep_us(us).await).await;
                assert!(reserve.is_disk_full());
                disk.set_space(Some(BYTES - 1));
                assert!(is_full(&reserve.fill(&disk).await.unwrap_err()));
                assert_eq!(disk.used_bytes(), 0, "nothing is left of one that does not fit");
                disk.set_space(Some(BYTES));
                reserve.fill(&disk).await.unwrap();
                assert!(reserve.is_intact() && !reserve.is_disk_full());
                assert_eq!(disk.used_bytes(), BYTES);
                let next = Reserve::new(BYTES, 1);
                next.find(&disk).await;
                assert!(next.is_intact());
                assert!(release(Part::OfLogs).await && !release(Part::OfLogs).await);
                assert_eq!(disk.used_bytes(), BYTES / 4 * 3);
                disk.set_space(Some(BYTES - 1));
                assert!(is_full(&reserve.fill(&disk).await.unwrap_err()));
                assert_eq!(disk.used_bytes(), BYTES / 4 * 3, "the rest of it is kept");
                disk.set_space(Some(BYTES));
                // Released while it is being filled, over and over: whoever has released it finds the room.
                for _ in 0..10 {
                    let (filled, shared) = (reserve.clone(), disk.clone());
                    sim.spawn(async move { filled.fill(&shared).await.unwrap() });
                    sim.sleep_us(sim.random().below(20)).await;
                    let (part, most) = match sim.random().chance(1, 2) {
                        true => (Part::OfLogs, BYTES / 4 * 3),
                        false => (Part::All, 0),
                    };
                    release(part).await;
                    assert!(disk.used_bytes() <= most && !reserve.is_intact(), "{part:?}");
                    sim.sleep_us(1_000).await;
                    // An attempt that began behind the release may have been done since.
                    assert_eq!(disk.used_bytes() == BYTES, reserve.is_intact());
                }
                reserve.fill(&disk).await.unwrap();
                reserve.note_log(true);
                assert!(reserve.is_intact() && reserve.is_disk_full());
                reserve.note_log(false);
                assert!(!reserve.is_disk_full());
            });
        }
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_asked_for() {
        let reserve = Reserve::new(0, 1);
        assert!(reserve.is_intact());
        let disk = SimDisk::new(1);
        assert!(!futures_lite::future::block_on(reserve.release(Part::All, &disk, async |_| {})));
        assert!(reserve.is_intact());
    }
}
