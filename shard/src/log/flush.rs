//! The log's task: writes and syncs frames, allocates segments ahead, keeps the interval.
use super::format::{FRAME_HEADER_BYTES, FrameHeader, SegmentId, block_up};
use super::writer::{FRAME_BYTES_MAX, Frame, Log, Segment};
use super::{Purpose, SyncMode};
use crate::disk::{DiskFile, LocalBoxFuture};
use crate::reserve::Part;
use futures_lite::future;
use std::io;
use std::rc::Rc;

/// Pause after a failed allocation: space returns when somebody frees it, which nobody does in microseconds.
const ALLOCATION_RETRY_US: u64 = 200_000;
/// When nothing has been appended for this long, an empty frame is written. It says that all frames before it are on the device, as the next
/// frame would. Without it, damage to the last frame of a killed process would be taken for an unfinished write. Costs a block per pause.
const MARK_US: u64 = 50_000;

/// How often it is looked whether images have let go of enough that the log may grow, and after how many looks new data is refused.
const IMAGES_POLL_US: u64 = 10_000;
const IMAGES_POLLS_MAX: u32 = 500;
/// Why it may not.
const IMAGES_FIRST: &str = "the disk is full: images of what the log has find no room";

type Sleep = Rc<dyn Fn(u64) -> LocalBoxFuture<'static, ()>>;

/// What the flusher does next.
enum Step {
    Write(Frame, Rc<dyn DiskFile>),
    Sync,
    Wait,
    End,
}

impl Log {
    /// Writes and syncs batches until [`Log::stop`]; keeps the next segment allocated ahead; retries allocation after ENOSPC.
    /// `sleep` sleeps for the given microseconds (runtime's timer or the simulator's).
    ///
    /// Run it once, as one task. One flush is in flight at a time; what is appended meanwhile goes into the next one.
    /// Should the task be dropped before its end, the log fails, so that nobody waits for ever.
    pub async fn flush_loop(self: Rc<Self>, sleep: Sleep) {
        let _ended = EndGuard(&self);
        let flusher = self.flusher();
        let helpers = future::zip(self.allocator(&sleep), self.ticker(&sleep));
        future::zip(flusher, future::zip(helpers, self.marker(&sleep))).await;
        if self.state.borrow().finished
            && let Err(error) = self.store_ledger(Purpose::Free).await
        {
            // The next start takes this end for that of a process that was killed.
            tracing::warn!(core = self.core, %error, "the ledger of the log could not be marked as cleanly stopped; the next start treats this run as killed");
        }
    }

    async fn flusher(&self) {
        loop {
            let changed = self.work.changed();
            match self.next_step() {
                Step::Write(frame, file) => self.write(frame, file).await,
                Step::Sync => self.sync().await,
                Step::Wait => changed.await,
                Step::End => break,
            }
        }
        self.want.notify();
    }

    fn next_step(&self) -> Step {
        let mut state = self.state.borrow_mut();
        if state.failed.is_some() {
            return Step::End;
        }
        if state.sync_due {
            state.sync_due = false;
            if !state.unsynced.is_empty() {
                return Step::Sync;
            }
        }
        if let Some(frame) = state.pending.pop_front() {
            let file = state.segment(frame.segment).file.clone();
            return Step::Write(frame, file);
        }
        match (state.stopping, state.unsynced.is_empty()) {
            (false, _) => Step::Wait,
            (true, false) => Step::Sync,
            (true, true) => {
                state.finished = true;
                Step::End
            }
        }
    }

    async fn write(&self, mut frame: Frame, file: Rc<dyn DiskFile>) {
        let id = SegmentId { generation: self.config.generation, core: self.core, number: frame.segment };
        let header = FrameHeader {
            flush: frame.flush,
            synced: self.state.borrow().synced,
            bytes: (frame.bytes.len() - FRAME_HEADER_BYTES) as u32,
            records: frame.records,
            unix_ms: self.frame_time(),
        };
        header.encode(id, frame.offset, &mut frame.bytes);
        let padded = block_up(frame.bytes.len() as u64) as usize;
        frame.bytes.resize(padded, 0);
        let written = match self.config.sync {
            SyncMode::Always => file.write_synced(frame.offset, &frame.bytes),
            SyncMode::Interval(_) | SyncMode::None => file.write_at(frame.offset, &frame.bytes),
        };
        if let Err(error) = written.await {
            self.state.borrow_mut().refuse(id, frame.flush, &frame.bytes);
            return self.fail(&format!("writing segment {} at byte {}", id.number, frame.offset), &error);
        }
        let finished = {
            let mut state = self.state.borrow_mut();
            state.written = frame.flush;
            state.durable = frame.flush;
            let is_synced = self.config.sync == SyncMode::Always;
            state.segment_mut(frame.segment).note_written(frame.offset + padded as u64, is_synced);
            if is_synced {
                state.synced = frame.flush;
            } else if state.unsynced.last().is_none_or(|&(number, _)| number != frame.segment) {
                state.unsynced.push((frame.segment, file));
            }
            if frame.bytes.capacity() <= 2 * FRAME_BYTES_MAX {
                state.spare = frame.bytes;
            }
            state.take_finished_waiters()
        };
        finished.into_iter().for_each(std::task::Waker::wake);
    }

    /// Syncs what was written so far. Only the flusher writes, so nothing is written meanwhile.
    async fn sync(&self) {
        let (upto, files) = {
            let mut state = self.state.borrow_mut();
            (state.written, std::mem::take(&mut state.unsynced))
        };
        for (number, file) in files {
            if let Err(error) = file.sync().await {
                // Trimmed meanwhile: removed and closed, because nothing of it is needed any more.
                if self.state.borrow().segments.front().is_none_or(|oldest| number < oldest.number) {
                    continue;
                }
                return self.fail(&format!("syncing segment {number}"), &error);
            }
        }
        let mut state = self.state.borrow_mut();
        state.synced = upto;
        // Nothing was written meanwhile.
        state.segments.iter_mut().for_each(Segment::note_synced);
        drop(state);
        self.synced.notify();
    }

    fn fail(&self, doing: &str, error: &io::Error) {
        tracing::error!(core = self.core, %error, doing, "the log failed; this core takes no more writes");
        self.end_with(format!("{doing}: {error}"));
    }

    /// Nothing is taken or kept from here on; everybody who waits learns it.
    fn end_with(&self, cause: String) {
        let finished = {
            let mut state = self.state.borrow_mut();
            state.failed.get_or_insert(cause);
            for frame in std::mem::take(&mut state.pending) {
                let (generation, number) = (self.config.generation, frame.segment);
                state.refuse(SegmentId { generation, core: self.core, number }, frame.flush, &frame.bytes);
            }
            state.take_finished_waiters()
        };
        finished.into_iter().for_each(std::task::Waker::wake);
        self.work.notify();
        self.want.notify();
        self.room.notify();
        self.synced.notify();
    }

    fn ending(&self) -> bool {
        let state = self.state.borrow();
        state.stopping || state.failed.is_some()
    }

    /// Keeps a segment ahead.
    async fn allocator(&self, sleep: &Sleep) {
        // Looks for room for images in a row.
        let mut polls = 0;
        loop {
            let changed = self.want.changed();
            if self.ending() {
                return;
            }
            let wanted = self.state.borrow().allocation_wanted();
            let Some(wanted) = wanted else {
                changed.await;
                continue;
            };
            let purpose = wanted.purpose;
            if purpose == Purpose::Grow && !self.reserve.is_intact() {
                // What the disk has left is for the reserve first.
                self.sleep_until_wanted(sleep, ALLOCATION_RETRY_US).await;
                continue;
            }
            if purpose == Purpose::Grow && !self.leaves_room_for_images(wanted.bytes).await {
                polls += 1;
                if self.reserve.is_image_short() || polls > IMAGES_POLLS_MAX {
                    self.state.borrow_mut().no_space = Some(IMAGES_FIRST.into());
                    self.room.notify();
                }
                self.sleep_until_wanted(sleep, IMAGES_POLL_US).await;
                self.state.borrow_mut().no_space = None;
                continue;
            }
            if purpose == Purpose::Free && !self.leaves_room_to_free(wanted.bytes).await {
                // Deletes would take the room of the image that lets their records go.
                self.state.borrow_mut().no_space_to_free = Some(IMAGES_FIRST.into());
                self.room.notify();
                self.sleep_unless_ending(sleep, IMAGES_POLL_US).await;
                self.state.borrow_mut().no_space_to_free = None;
                continue;
            }
            polls = 0;
            let allocated = self.allocate_wanted(wanted, Part::OfLogs, async |us| sleep(us).await).await;
            let failed = {
                let mut state = self.state.borrow_mut();
                let tried = wanted.bytes.max(self.config.segment_bytes);
                if tried >= state.wanted_bytes {
                    state.wanted_bytes = 0;
                }
                if tried >= state.wanted_to_free && (purpose == Purpose::Free || allocated.is_ok()) {
                    state.wanted_to_free = 0;
                }
                if let Err((_, cause)) = &allocated {
                    state.no_space = Some(cause.clone());
                    if purpose == Purpose::Free {
                        state.no_space_to_free = Some(cause.clone());
                    }
                }
                allocated.is_err()
            };
            self.room.notify();
            if failed {
                match purpose {
                    Purpose::Grow => self.sleep_until_wanted(sleep, ALLOCATION_RETRY_US).await,
                    Purpose::Free => self.sleep_unless_ending(sleep, ALLOCATION_RETRY_US).await,
                }
                let mut state = self.state.borrow_mut();
                (state.no_space, state.no_space_to_free) = (None, None);
            }
        }
    }

    /// Whether the disk will have room for images of what the logs have, when this one has a segment of at least `bytes` more.
    async fn leaves_room_for_images(&self, bytes: u64) -> bool {
        // A file system that cannot tell has the reserve.
        let Ok(space) = self.disk.space().await else { return true };
        let bytes = bytes.max(self.config.segment_bytes);
        self.reserve.leaves_room_for_images(self.core as usize, self.closed_bytes(), bytes, space)
    }

    /// The same of a short segment for what frees room, where new data is refused: then images have what is left of the reserve, too.
    async fn leaves_room_to_free(&self, bytes: u64) -> bool {
        if self.reserve.is_intact() {
            return true;
        }
        let Ok(space) = self.disk.space().await else { return true };
        self.reserve.leaves_room_to_free(self.core as usize, self.closed_bytes(), bytes, space)
    }

    /// Sleeps until the log ends or something that frees room wants a segment.
    async fn sleep_until_wanted(&self, sleep: &Sleep, us: u64) {
        let wanted = async {
            loop {
                let changed = self.want.changed();
                if self.ending() || self.state.borrow().wanted_to_free > 0 {
                    return;
                }
                changed.await;
            }
        };
        future::or(wanted, sleep(us)).await;
    }

    /// Marks the end of what was written before a pause.
    async fn marker(&self, sleep: &Sleep) {
        if self.config.owners.is_none() || self.config.sync != SyncMode::Always {
            return;
        }
        let mut marked = 0;
        loop {
            let changed = self.work.changed();
            if self.ending() {
                return;
            }
            let planned = self.state.borrow().planned;
            if planned == marked {
                changed.await;
                continue;
            }
            self.sleep_unless_ending(sleep, MARK_US).await;
            let mut state = self.state.borrow_mut();
            if state.stopping || state.failed.is_some() || state.planned != planned {
                continue;
            }
            if !self.reserve.is_intact() {
                // On a full disk the room that is left is kept for deletes.
                marked = planned;
                continue;
            }
            // If there is no room for an empty frame, or a write is still under way, this pause gets none.
            marked = state.put_mark(self.core, self.config.generation).unwrap_or(planned);
            drop(state);
            self.work.notify();
            self.want.notify();
        }
    }

    /// Makes a sync due every interval.
    async fn ticker(&self, sleep: &Sleep) {
        let SyncMode::Interval(ms) = self.config.sync else { return };
        while !self.ending() {
            self.sleep_unless_ending(sleep, ms.max(1).saturating_mul(1000)).await;
            self.state.borrow_mut().sync_due = true;
            self.work.notify();
        }
    }

    async fn sleep_unless_ending(&self, sleep: &Sleep, us: u64) {
        let ending = async {
            loop {
                let changed = self.want.changed();
                if self.ending() {
                    return;
                }
                changed.await;
            }
        };
        future::or(ending, sleep(us)).await;
    }
}

/// Marks the end of the flush loop, also when it is dropped half-way.
struct EndGuard<'a>(&'a Log);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        if !self.0.state.borrow().finished {
            self.0.end_with("its task has ended".into());
        }
        self.0.state.borrow_mut().ended = true;
        self.0.ended.notify();
        self.0.synced.notify();
    }
}
