//! Segments that the log needs no more, until the archive has them.

use super::ArchiveCounters;
use crate::disk::{Disk, LocalBoxFuture};
use crate::log::{Keep, SegmentId};
use crate::node::NodeShared;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The directory of the data directory where they wait.
pub(crate) const DIR: &str = "archive";

/// Up to where the archive has a chain of segments: a number, and an offset in that segment.
pub(super) type Reached = (u64, u64);

/// What one core knows of the archive of the chains that it sends.
pub(crate) struct Keeper {
    disk: Rc<dyn Disk>,
    shared: Arc<NodeShared>,
    reached: RefCell<BTreeMap<(u64, u32), Reached>>,
    is_dir_made: Cell<bool>,
    /// A segment of this core may wait in the directory.
    pub(super) may_wait: Cell<bool>,
}

impl Keeper {
    pub(crate) fn new(disk: Rc<dyn Disk>, shared: Arc<NodeShared>) -> Rc<Keeper> {
        Rc::new(Keeper {
            disk,
            shared,
            reached: RefCell::default(),
            is_dir_made: Cell::new(false),
            may_wait: Cell::new(false),
        })
    }

    fn counters(&self) -> &ArchiveCounters {
        &self.shared.archive
    }

    /// Up to where the archive has the chain of `id`; `None` while that is not known.
    pub(super) fn reached(&self, id: SegmentId) -> Option<Reached> {
        self.reached.borrow().get(&(id.generation, id.core)).copied()
    }

    pub(super) fn reach(&self, id: SegmentId, to: Reached) {
        let mut reached = self.reached.borrow_mut();
        let known = reached.entry((id.generation, id.core)).or_insert(to);
        *known = to.max(*known);
    }

    /// Whether the archive has all of a segment whose frames end at `end`.
    pub(super) fn has(&self, id: SegmentId, end: Option<u64>) -> bool {
        self.reached(id).is_some_and(|(number, offset)| {
            number > id.number || (number == id.number && offset >= end.unwrap_or(u64::MAX))
        })
    }

    /// Where a segment waits.
    pub(super) fn waiting(id: SegmentId) -> PathBuf {
        let SegmentId { generation, core, number } = id;
        Path::new(DIR).join(format!("{generation:010}-{core:04}-{number:010}.wal"))
    }

    /// The segments that wait, in the order in which they were written.
    pub(super) async fn waiting_segments(disk: &dyn Disk) -> io::Result<Vec<SegmentId>> {
        let parse = |name: PathBuf| {
            let mut numbers = name.to_str()?.strip_suffix(".wal")?.split('-');
            let (generation, core) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
            Some(SegmentId { generation, core, number: numbers.next()?.parse().ok()? })
        };
        let mut found: Vec<SegmentId> =
            disk.list(Path::new(DIR)).await?.into_iter().filter_map(parse).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Gives the oldest waiting segments up until those that are left have at most `most` bytes; whether any are left.
    pub(super) async fn bound(&self, most: u64) -> io::Result<bool> {
        let (most, why) = match self.is_disk_short() {
            true => (0, "the disk is full"),
            false => (most, "segments that wait for the archive are longer than -archive-waiting"),
        };
        let waiting = Keeper::waiting_segments(&*self.disk).await?;
        let mut bytes = Vec::with_capacity(waiting.len());
        for id in &waiting {
            // Another core may have sent it meanwhile.
            bytes.push(match self.disk.open(&Keeper::waiting(*id)).await {
                Ok(file) => file.len().await?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                Err(error) => return Err(error),
            });
        }
        let mut all: u64 = bytes.iter().sum();
        for (id, bytes) in waiting.into_iter().zip(bytes) {
            if all <= most {
                break;
            }
            self.give_up(id, &Keeper::waiting(id), why).await?;
            all -= bytes;
        }
        Ok(all > 0)
    }

    /// Whether the room of waiting segments is needed for what the server is asked to do.
    fn is_disk_short(&self) -> bool {
        let reserve = &self.shared.reserve;
        !reserve.is_intact() || reserve.is_disk_full() || reserve.is_image_short()
    }

    async fn give_up(&self, id: SegmentId, path: &Path, why: &str) -> io::Result<()> {
        self.disk.remove(path).await?;
        self.counters().gaps.fetch_add(1, Relaxed);
        tracing::error!(
            generation = id.generation,
            core = id.core,
            segment = id.number,
            why,
            "a segment of the log was removed before the archive had it: moments between it and the next backup cannot be restored"
        );
        Ok(())
    }
}

impl Keep for Keeper {
    fn let_go<'a>(
        &'a self,
        id: SegmentId,
        path: &'a Path,
        end: Option<u64>,
    ) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let is_empty = end.is_some_and(|end| end <= crate::disk::BLOCK as u64);
            if is_empty || self.has(id, end) {
                return self.disk.remove(path).await;
            }
            // Its room is what the log is trimmed for then.
            if self.is_disk_short() {
                return self.give_up(id, path, "the disk is full").await;
            }
            if !self.is_dir_made.get() {
                self.disk.create_dir(Path::new(DIR)).await?;
                self.is_dir_made.set(true);
            }
            self.disk.rename(path, &Keeper::waiting(id)).await?;
            self.counters().moved.fetch_add(1, Relaxed);
            self.may_wait.set(true);
            Ok(())
        })
    }
}
