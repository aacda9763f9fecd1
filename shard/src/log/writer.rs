//! The log's state: where records go, who waits for them, what may be removed.
use super::format::{
    FRAME_HEADER_BYTES, FRAMES_START, SegmentId, block_up, encode_record, encode_segment_header,
    leading_records, record_bytes, segment_bytes_for,
};
use super::keep::Archiving;
use super::ledger::{Ledger, LedgerEntry};
use super::old::Highest;
use super::signal::Signal;
use super::{LogConfig, LogError, Purpose, RECORD_BYTES_MAX, RecordKey, Ticket};
use crate::disk::is_full;
use crate::disk::{BLOCK, Disk, DiskFile, LocalBoxFuture};
use crate::event::Lock;
use crate::reserve::{Part, Reserve};
use crate::twin;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A frame stops growing here (one record may still be longer): 4 MiB take about 2 ms to write, so that a flood of
/// appends is acknowledged in portions, while the cost of a sync is spread over thousands of records.
pub(super) const FRAME_BYTES_MAX: usize = 4 << 20;
/// The smallest segment: a header and one block of records.
const SEGMENT_BYTES_MIN: u64 = 2 * BLOCK as u64;
/// On a full disk a segment is so many times shorter than usual: enough for some hundred deletes, and a reserve holds several for each core.
const SHORT_SEGMENT_PART: u64 = 8;

/// See the module. `Rc`-shared on one core.
pub struct Log {
    pub(super) disk: Rc<dyn Disk>,
    pub(super) config: LogConfig,
    pub(super) core: u32,
    pub(super) state: RefCell<WriterState>,
    /// Something to write, sync or end.
    pub(super) work: Signal,
    /// A segment is wanted, or the log ends.
    pub(super) want: Signal,
    /// Room has changed, for better or worse.
    pub(super) room: Signal,
    /// The flush loop has ended.
    pub(super) ended: Signal,
    /// What was written is on the device, or the log has ended.
    pub(super) synced: Signal,
    trimming: Cell<bool>,
    pub(super) reserve: Arc<Reserve>,
    /// Told to [`Self::reserve`]: there is no room for another segment.
    is_short: Cell<bool>,
    /// False while the disk was too full for it.
    is_dir_made: Cell<bool>,
    /// Held while the ledger is replaced.
    ledger_lock: Rc<Lock>,
    pub(super) archiving: Archiving,
}

pub(super) struct WriterState {
    /// Every segment not yet removed, oldest first: closed ones, the one being filled, those allocated ahead.
    pub(super) segments: VecDeque<Segment>,
    /// Number of the segment being filled.
    pub(super) filling: u64,
    /// Number of the next segment to allocate.
    pub(super) next_number: u64,
    /// Frames with their place, waiting to be written; only the last one still grows.
    pub(super) pending: VecDeque<Frame>,
    /// Number of the newest planned frame.
    pub(super) planned: u64,
    /// Newest frame handed to the device.
    pub(super) written: u64,
    /// Newest frame known to be on the device, with all before it.
    pub(super) synced: u64,
    /// Newest frame as durable as the mode promises.
    pub(super) durable: u64,
    /// Files written since their last sync, with segment number.
    pub(super) unsynced: Vec<(u64, Rc<dyn DiskFile>)>,
    /// The interval has passed.
    pub(super) sync_due: bool,
    /// Length the next segment must have for a record that was refused, 0 = usual.
    pub(super) wanted_bytes: u64,
    /// As `wanted_bytes`, for a record that frees room.
    pub(super) wanted_to_free: u64,
    /// Why the last allocation failed, until it is tried again.
    pub(super) no_space: Option<String>,
    /// Likewise, although the reserve was released.
    pub(super) no_space_to_free: Option<String>,
    pub(super) failed: Option<String>,
    /// Collections with records that were not durable when the log failed.
    pub(super) refused: BTreeSet<u64>,
    pub(super) stopping: bool,
    /// A segment that is ready and that the ledger could not be told of yet.
    unlisted: Option<Segment>,
    /// The ledger on the disk says of the segments up to this one that nothing is written to them any more.
    listed_closed: u64,
    /// Last flush of the segments that were trimmed.
    trimmed: u64,
    /// Everything was written and synced after a stop.
    pub(super) finished: bool,
    /// The flush loop is gone.
    pub(super) ended: bool,
    /// By (ticket, waiter).
    waiters: BTreeMap<(u64, u64), Waker>,
    next_waiter: u64,
    /// Buffer of the last written frame, for the next.
    pub(super) spare: Vec<u8>,
}

pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    pub(super) file: Rc<dyn DiskFile>,
    /// Allocated bytes.
    pub(super) bytes: u64,
    /// Where the next frame would begin.
    pub(super) end: u64,
    /// Newest frame placed here.
    pub(super) last_flush: u64,
    /// Newest record of each collection.
    pub(super) highest: Highest,
    /// Where the frames end that were written, and those that are on the device.
    pub(super) written_end: u64,
    pub(super) synced_end: u64,
}

pub(super) struct Frame {
    pub(super) flush: u64,
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) records: u32,
    /// [`SegmentId::record_seed`].
    pub(super) seed: u32,
    /// Header space and records, not yet padded.
    pub(super) bytes: Vec<u8>,
}

/// A segment that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// It has at least so many.
    pub(super) bytes: u64,
    pub(super) purpose: Purpose,
}

/// Where a record would go.
enum AppendPosition {
    /// Into the newest pending frame.
    LastFrame,
    /// Into a new frame of this segment.
    NewFrame(u64),
}

impl WriterState {
    fn place(&self, body: usize) -> Option<AppendPosition> {
        let needed = record_bytes(body);
        if let Some(frame) = self.pending.back() {
            let grown = frame.bytes.len() + needed;
            let segment = self.segment(frame.segment);
            if grown <= FRAME_BYTES_MAX && frame.offset + block_up(grown as u64) <= segment.bytes {
                return Some(AppendPosition::LastFrame);
            }
        }
        let frame_bytes = block_up((FRAME_HEADER_BYTES + needed) as u64);
        let mut usable = self.segments.range(self.index(self.filling)..);
        let fitting = usable.find(|segment| segment.end + frame_bytes <= segment.bytes);
        fitting.map(|segment| AppendPosition::NewFrame(segment.number))
    }

    /// Where a segment stands in the queue. Numbers are given without gaps and removal is from the front, where neither
    /// the segment being filled nor one with pending frames can be.
    fn index(&self, number: u64) -> usize {
        let front = self.segments.front().map_or(number, |segment| segment.number);
        (number - front) as usize
    }

    pub(super) fn segment(&self, number: u64) -> &Segment {
        &self.segments[self.index(number)]
    }

    pub(super) fn segment_mut(&mut self, number: u64) -> &mut Segment {
        let index = self.index(number);
        &mut self.segments[index]
    }

    fn put(
        &mut self,
        core: u32,
        generation: u64,
        place: AppendPosition,
        key: RecordKey,
        body: &[u8],
    ) -> Ticket {
        if let AppendPosition::NewFrame(number) = place {
            // Segments before it have no room for this record; they are closed, so that the order of frames is that
            // of segments.
            self.filling = number;
            self.planned += 1;
            let mut bytes = std::mem::take(&mut self.spare);
            bytes.clear();
            bytes.resize(FRAME_HEADER_BYTES, 0);
            let frame = Frame {
                flush: self.planned,
                segment: number,
                offset: self.segment_mut(number).end,
                records: 0,
                seed: SegmentId { generation, core, number }.record_seed(self.planned),
                bytes,
            };
            self.pending.push_back(frame);
        }
        let frame = self.pending.back_mut().expect("just placed");
        encode_record(&mut frame.bytes, frame.seed, frame.records, key, body);
        frame.records += 1;
        let (flush, number) = (frame.flush, frame.segment);
        let end = frame.offset + block_up(frame.bytes.len() as u64);
        let segment = self.segment_mut(number);
        assert!(end <= segment.bytes, "frame {flush} ends at {end}, past its segment of {}", segment.bytes);
        segment.end = end;
        segment.last_flush = flush;
        segment.highest.note(key);
        Ticket(NonZeroU64::new(flush).expect("flushes are counted from 1"))
    }

    /// Places a frame without records behind the newest, if nothing is under way and there is room: it says that all before it is on the
    /// device. Its number.
    pub(super) fn put_mark(&mut self, core: u32, generation: u64) -> Option<u64> {
        let is_quiet = self.pending.is_empty() && self.planned == self.synced && self.planned > 0;
        if !is_quiet {
            return None;
        }
        let flush = self.planned + 1;
        let mut usable = self.segments.range(self.index(self.filling)..);
        let number = usable.find(|segment| segment.end + BLOCK as u64 <= segment.bytes)?.number;
        let segment = self.segment_mut(number);
        let offset = segment.end;
        (segment.end, segment.last_flush) = (offset + BLOCK as u64, flush);
        (self.planned, self.filling) = (flush, number);
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.clear();
        bytes.resize(FRAME_HEADER_BYTES, 0);
        let seed = SegmentId { generation, core, number }.record_seed(flush);
        self.pending.push_back(Frame { flush, segment: number, offset, records: 0, seed, bytes });
        Some(flush)
    }

    /// What the ledger is to say now.
    fn ledger(&self, core: u32, config: &LogConfig) -> Option<Ledger> {
        let (mut synced, mut highest) = (self.trimmed, BTreeMap::new());
        for segment in self.segments.iter().take_while(|segment| segment.last_flush <= self.synced) {
            synced = synced.max(segment.last_flush);
            for (uid, seq) in segment.highest.iter() {
                let known: &mut u64 = highest.entry(uid).or_default();
                *known = seq.max(*known);
            }
        }
        let mut last_flush = self.trimmed;
        let entry = |segment: &Segment| {
            // A segment that was too short for the record it was wanted for holds no flush of its own.
            last_flush = last_flush.max(segment.last_flush);
            let is_closed = segment.number < self.filling || self.finished && segment.last_flush > 0;
            LedgerEntry {
                number: segment.number,
                bytes: segment.bytes,
                last_flush: (is_closed && last_flush <= self.synced).then_some(last_flush),
            }
        };
        Some(Ledger {
            generation: config.generation,
            core,
            owners: config.owners?,
            segments: self.segments.iter().chain(&self.unlisted).map(entry).collect(),
            synced,
            highest: highest.into_iter().collect(),
            is_complete: self.finished,
            cutting: None,
        })
    }

    /// Whether nothing will be written to it any more.
    fn closed(&self, segment: &Segment) -> bool {
        segment.number < self.filling && segment.last_flush <= self.written
    }

    /// The segment to allocate now, if one is wanted: one is kept ahead of the one being filled.
    pub(super) fn allocation_wanted(&self) -> Option<Wanted> {
        let ahead = || self.segments.range((self.index(self.filling) + 1).min(self.segments.len())..);
        let has = |bytes| ahead().any(|segment| segment.bytes >= bytes);
        if self.wanted_to_free > 0 && !has(self.wanted_to_free) {
            return Some(Wanted { bytes: self.wanted_to_free, purpose: Purpose::Free });
        }
        if self.wanted_bytes > 0 && !has(self.wanted_bytes) {
            return Some(Wanted { bytes: self.wanted_bytes, purpose: Purpose::Grow });
        }
        (ahead().len() == 0).then_some(Wanted { bytes: SEGMENT_BYTES_MIN, purpose: Purpose::Grow })
    }

    /// Notes whose records a frame has that will not be durable.
    pub(super) fn refuse(&mut self, id: SegmentId, flush: u64, frame: &[u8]) {
        leading_records(frame, id, flush, |key, _| {
            self.refused.insert(key.collection);
        });
    }

    /// Wakers of those whose wait is over: up to the durable frame, or all after a failure.
    pub(super) fn take_finished_waiters(&mut self) -> Vec<Waker> {
        let rest = match self.failed {
            Some(_) => BTreeMap::new(),
            None => self.waiters.split_off(&(self.durable + 1, 0)),
        };
        std::mem::replace(&mut self.waiters, rest).into_values().collect()
    }
}

impl Log {
    /// [`Self::create_with`] without a reserve.
    ///
    /// # Errors
    /// As there.
    pub async fn create(disk: Rc<dyn Disk>, config: LogConfig) -> Result<Rc<Log>, LogError> {
        Log::create_with(disk, config, Reserve::new(0, 1), async |_| {}).await
    }

    /// Creates the directory and the first segment and returns the log; run [`Log::flush_loop`] as a task. Where the disk has no room even
    /// for a short segment, with the `reserve` released, the log begins without one, and takes nothing until there is room. `sleep` sleeps
    /// for so many microseconds.
    ///
    /// # Errors
    /// `Failed` when the directory or the segment cannot be made for another reason, or the directory is not named by a core's number.
    pub async fn create_with(
        disk: Rc<dyn Disk>,
        config: LogConfig,
        reserve: Arc<Reserve>,
        sleep: impl AsyncFn(u64),
    ) -> Result<Rc<Log>, LogError> {
        let name = config.dir.file_name().and_then(|name| name.to_str());
        let core = name.and_then(|name| name.parse().ok()).ok_or_else(|| {
            LogError::Failed(format!("{} does not end in the number of a core", config.dir.display()))
        })?;
        let segment_bytes = block_up(config.segment_bytes.max(SEGMENT_BYTES_MIN));
        let config = LogConfig { segment_bytes, ..config };
        let is_dir_made = check_generation(&*disk, &config, core).await?;
        let log = Log {
            disk,
            core,
            state: RefCell::new(WriterState {
                segments: VecDeque::new(),
                filling: 1,
                next_number: 1,
                pending: VecDeque::new(),
                planned: 0,
                written: 0,
                synced: 0,
                durable: 0,
                unsynced: Vec::new(),
                sync_due: false,
                wanted_bytes: 0,
                wanted_to_free: 0,
                no_space: None,
                no_space_to_free: None,
                failed: None,
                refused: BTreeSet::new(),
                stopping: false,
                unlisted: None,
                listed_closed: 0,
                trimmed: 0,
                finished: false,
                ended: false,
                waiters: BTreeMap::new(),
                next_waiter: 0,
                spare: Vec::new(),
            }),
            config,
            work: Signal::default(),
            want: Signal::default(),
            room: Signal::default(),
            ended: Signal::default(),
            synced: Signal::default(),
            trimming: Cell::new(false),
            reserve,
            is_short: Cell::new(false),
            is_dir_made: Cell::new(is_dir_made),
            ledger_lock: Rc::default(),
            archiving: Archiving::default(),
        };
        let wanted = Wanted { bytes: SEGMENT_BYTES_MIN, purpose: Purpose::Free };
        match log.allocate_wanted(wanted, Part::All, sleep).await {
            Err((_, cause)) if !log.is_short.get() => Err(LogError::Failed(cause)),
            _ => Ok(Rc::new(log)),
        }
    }

    /// Makes one more segment of at least the usual length; on a full disk, for what frees room, a short one, with the help of this part of the
    /// reserve.
    /// Tells the reserve whether there is room.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    pub(super) async fn allocate_wanted(
        &self,
        wanted: Wanted,
        part: Part,
        sleep: impl AsyncFn(u64),
    ) -> Result<(), (bool, String)> {
        let usual = self.config.segment_bytes;
        let mut allocated = self.allocate(wanted.bytes.max(usual)).await;
        if wanted.purpose == Purpose::Free && allocated.as_ref().is_err_and(|(is_full, _)| *is_full) {
            let short = block_up(usual / SHORT_SEGMENT_PART).max(SEGMENT_BYTES_MIN).max(wanted.bytes);
            allocated = self.allocate(short).await;
            if allocated.is_err() && self.reserve.release(part, &*self.disk, sleep).await {
                allocated = self.allocate(short).await;
            }
        }
        let is_short = allocated.as_ref().is_err_and(|(is_full, _)| *is_full);
        if self.is_short.replace(is_short) != is_short {
            self.reserve.note_log(is_short);
        }
        allocated
    }

    /// Makes one more segment, ready to be filled: allocated, zeroed, named, synced, and in the ledger.
    ///
    /// # Errors
    /// Whether the disk is full, and what it says. A segment that the ledger could not be told of stays, and is the next one.
    async fn allocate(&self, bytes: u64) -> Result<(), (bool, String)> {
        let is_ready = self.state.borrow().unlisted.is_some();
        if !is_ready {
            self.make_segment(bytes).await?;
        }
        let stored = self.store_ledger(Purpose::Grow).await;
        stored.map_err(|error| (is_full(&error), format!("the ledger of the log: {error}")))?;
        let mut state = self.state.borrow_mut();
        if let Some(segment) = state.unlisted.take() {
            state.segments.push_back(segment);
        }
        Ok(())
    }

    /// Makes the ledger on the disk say what is known by now.
    ///
    /// # Errors
    /// The disk refused.
    pub(super) async fn store_ledger(&self, purpose: Purpose) -> std::io::Result<()> {
        let _held = self.ledger_lock.lock().await;
        let ledger = self.state.borrow().ledger(self.core, &self.config);
        let Some(ledger) = ledger else { return Ok(()) };
        let (path, bytes) = (self.ledger_path(), ledger.encode());
        match purpose {
            Purpose::Grow => twin::replace(&*self.disk, &path, &bytes).await?,
            Purpose::Free => twin::replace_on_full_disk(&*self.disk, &path, &bytes).await?,
        }
        let closed = ledger.segments.iter().take_while(|segment| segment.last_flush.is_some()).last();
        if let Some(closed) = closed {
            self.state.borrow_mut().listed_closed = closed.number;
        }
        Ok(())
    }

    fn ledger_path(&self) -> PathBuf {
        Ledger::path_in(&self.config.dir, self.config.generation)
    }

    /// Nothing remains of one that fails.
    async fn make_segment(&self, bytes: u64) -> Result<(), (bool, String)> {
        let number = self.state.borrow().next_number;
        let id = SegmentId { generation: self.config.generation, core: self.core, number };
        let path = self.config.dir.join(id.file_name());
        let made = async {
            if !self.is_dir_made.get() {
                self.disk.create_dir(&self.config.dir).await?;
                self.is_dir_made.set(true);
            }
            let file = self.disk.create(&path).await?;
            file.preallocate(bytes).await?;
            file.write_at(0, &encode_segment_header(id)).await?;
            file.sync().await?;
            self.disk.sync_dir(&self.config.dir).await?;
            Ok::<_, std::io::Error>(file)
        };
        match made.await {
            Ok(file) => {
                let mut state = self.state.borrow_mut();
                state.next_number = number + 1;
                state.unlisted = Some(Segment {
                    number,
                    path,
                    file,
                    bytes,
                    end: FRAMES_START,
                    last_flush: 0,
                    highest: Highest::default(),
                    written_end: FRAMES_START,
                    synced_end: FRAMES_START,
                });
                Ok(())
            }
            Err(error) => {
                // Give back what was taken. If that fails too, the next attempt uses the same name.
                let _ = self.disk.remove(&path).await;
                Err((is_full(&error), format!("{}: {error}", path.display())))
            }
        }
    }

    /// [`Self::append_for`] of new data.
    ///
    /// # Errors
    /// As there.
    pub fn append(&self, key: RecordKey, record: &[u8]) -> Result<Ticket, LogError> {
        self.append_for(Purpose::Grow, key, record)
    }

    /// Copies the record into the pending batch. Synchronous; takes a checksum and a copy of the record.
    ///
    /// # Errors
    /// Nothing has changed when it fails. `NoSpace`: the allocated segments have no room for it (another one is then
    /// on its way; [`Log::make_room`] waits for it), or the disk is full and it is not to free room. `Failed`: for ever. `TooLarge`: over
    /// [`RECORD_BYTES_MAX`].
    pub fn append_for(&self, purpose: Purpose, key: RecordKey, record: &[u8]) -> Result<Ticket, LogError> {
        let mut state = self.state.borrow_mut();
        let place = self.check_room(&mut state, record.len(), purpose)?;
        let first = state.pending.is_empty();
        let filling = state.filling;
        let ticket = state.put(self.core, self.config.generation, place, key, record);
        let moved_on = state.filling != filling;
        drop(state);
        if first {
            self.work.notify();
        }
        if moved_on {
            self.want.notify();
        }
        Ok(ticket)
    }

    /// [`Self::make_room_for`] of new data.
    ///
    /// # Errors
    /// As there.
    pub async fn make_room(&self, bytes: usize) -> Result<(), LogError> {
        self.make_room_for(Purpose::Grow, bytes).await
    }

    /// Waits until an [`Log::append_for`] of a record of `bytes` would be taken, and returns without giving way after it has
    /// found so: an append right after it succeeds. Ready at once while there is room.
    ///
    /// # Errors
    /// As there; `NoSpace` only when allocation has really failed, or new data is not taken.
    pub async fn make_room_for(&self, purpose: Purpose, bytes: usize) -> Result<(), LogError> {
        loop {
            let changed = {
                let mut state = self.state.borrow_mut();
                let checked = self.check_room(&mut state, bytes, purpose);
                let waits = match purpose {
                    Purpose::Grow => state.no_space.is_none() && self.reserve.is_intact(),
                    Purpose::Free => state.no_space_to_free.is_none(),
                };
                match checked {
                    Ok(_) => return Ok(()),
                    Err(LogError::NoSpace(_)) if waits => self.room.changed(),
                    Err(error) => return Err(error),
                }
            };
            changed.await;
        }
    }

    fn check_room(
        &self,
        state: &mut WriterState,
        bytes: usize,
        purpose: Purpose,
    ) -> Result<AppendPosition, LogError> {
        if let Some(cause) = &state.failed {
            return Err(LogError::Failed(cause.clone()));
        }
        if state.stopping {
            return Err(LogError::Failed("it has been stopped".into()));
        }
        if bytes > RECORD_BYTES_MAX {
            return Err(LogError::TooLarge(bytes));
        }
        if purpose == Purpose::Grow && !self.reserve.is_intact() {
            let cause = state.no_space.clone();
            return Err(LogError::NoSpace(cause.unwrap_or_else(|| RESERVED.into())));
        }
        if let Some(place) = state.place(bytes) {
            return Ok(place);
        }
        let needed = segment_bytes_for(bytes);
        let (wanted, cause) = match purpose {
            Purpose::Grow => (&mut state.wanted_bytes, state.no_space.clone()),
            Purpose::Free => (&mut state.wanted_to_free, state.no_space_to_free.clone()),
        };
        if needed > *wanted {
            *wanted = needed;
            self.want.notify();
        }
        Err(LogError::NoSpace(cause.unwrap_or_else(|| "the next segment is not allocated yet".into())))
    }

    /// Waits until the append is as durable as the mode promises.
    ///
    /// # Errors
    /// `Failed` when the log failed before that; whether the record is on the disk is then unknown.
    pub fn durable(&self, ticket: Ticket) -> LocalBoxFuture<'_, Result<(), LogError>> {
        Box::pin(Durable { log: self, ticket: ticket.0.get(), waiter: None })
    }

    /// Whether the disk had no room for the last segment that was wanted.
    pub fn is_short(&self) -> bool {
        self.is_short.get()
    }

    /// [`Self::stop`], and removes the segments if nothing was ever written to them: those of a start that came to nothing.
    pub async fn discard(&self) {
        self.stop().await;
        let paths: Vec<PathBuf> = {
            let state = self.state.borrow();
            if state.segments.iter().any(|segment| segment.last_flush > 0) {
                return;
            }
            state.segments.iter().chain(&state.unlisted).map(|segment| segment.path.clone()).collect()
        };
        // The ledger goes before the segments: one that stayed alone would report them missing.
        let ledger = self.ledger_path();
        for path in [ledger.clone(), twin::copy_of(&ledger)] {
            if self.disk.remove(&path).await.is_err() {
                return;
            }
        }
        for path in paths {
            // The next start removes what is left.
            let _ = self.disk.remove(&path).await;
        }
    }

    /// Why the log has failed, if it has.
    pub fn failed(&self) -> Option<String> {
        self.state.borrow().failed.clone()
    }

    /// Waits until the log has failed or is stopped.
    pub async fn failure(&self) {
        loop {
            let changed = self.want.changed();
            {
                let state = self.state.borrow();
                if state.failed.is_some() || state.stopping {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Collections with records that were appended and not durable when the log failed: what their owner has in memory is more than it may
    /// promise. Ascending.
    pub fn refused(&self) -> Vec<u64> {
        self.state.borrow().refused.iter().copied().collect()
    }

    /// Flushes what is pending and ends the loop; [`Log::append`] refuses from now on. In every mode what was appended
    /// is synced afterwards. The loop must have been started (or be started later): it does the work.
    pub async fn stop(&self) {
        self.state.borrow_mut().stopping = true;
        self.work.notify();
        self.want.notify();
        self.room.notify();
        loop {
            let ended = self.ended.changed();
            if self.state.borrow().ended {
                return;
            }
            ended.await;
        }
    }

    /// Bytes of records in segments not yet removed, block padding included: what a recovery would have to read.
    pub fn live_bytes(&self) -> u64 {
        self.state.borrow().segments.iter().map(|segment| segment.end - FRAMES_START).sum()
    }

    /// Bytes of [`Self::live_bytes`] in segments that are not being filled any more: what images may let go.
    pub fn closed_bytes(&self) -> u64 {
        let state = self.state.borrow();
        let closed = state.segments.iter().take_while(|segment| segment.number < state.filling);
        closed.map(|segment| segment.end - FRAMES_START).sum()
    }

    /// Frames written so far; in [`super::SyncMode::Always`] each of them is one flush.
    pub fn frames(&self) -> u64 {
        self.state.borrow().written
    }

    /// Removes closed segments whose every record is covered: `covered(collection)` = checkpointed seq, None = dropped
    /// collection. Oldest first, up to the first that is still needed: the order tells a later scan damage from an end.
    ///
    /// # Errors
    /// `Trim` when a file cannot be removed, `NoSpace` when the disk has no room for the ledger that has to be told before; it is tried again
    /// by the next call.
    pub async fn trim(&self, covered: &dyn Fn(u64) -> Option<u64>) -> Result<(), LogError> {
        if self.trimming.replace(true) {
            return Ok(());
        }
        let _alone = Alone(&self.trimming);
        self.trim_alone(covered).await
    }

    async fn trim_alone(&self, covered: &dyn Fn(u64) -> Option<u64>) -> Result<(), LogError> {
        loop {
            let oldest = {
                let state = self.state.borrow();
                match state.segments.front() {
                    Some(segment) if state.closed(segment) && segment.highest.covered(covered) => {
                        let (path, file) = (segment.path.clone(), segment.file.clone());
                        (segment.number, segment.last_flush, segment.end, path, file)
                    }
                    _ => return Ok(()),
                }
            };
            let (number, last_flush, end, path, file) = oldest;
            if self.config.owners.is_some() && number > self.state.borrow().listed_closed {
                // If the ledger still listed the segment as open, the next start would report it missing.
                self.sync_up_to(last_flush).await;
                self.store_ledger(Purpose::Free).await.map_err(|error| match is_full(&error) {
                    true => LogError::NoSpace(format!("the ledger of the log: {error}")),
                    false => LogError::Trim(format!("the ledger of the log: {error}")),
                })?;
                if number > self.state.borrow().listed_closed {
                    return Ok(());
                }
            }
            let removed = self.let_go(number, &path, end).await;
            removed.map_err(|error| LogError::Trim(format!("{}: {error}", path.display())))?;
            {
                let mut state = self.state.borrow_mut();
                state.segments.pop_front();
                state.trimmed = state.trimmed.max(last_flush);
                state.unsynced.retain(|&(segment, _)| segment != number);
            }
            // The name is gone and nothing of it is needed: a failing close changes nothing.
            let _ = file.close().await;
        }
    }

    /// Waits until so many flushes are on the device, or the log has ended. Only modes that acknowledge before that wait here.
    async fn sync_up_to(&self, flush: u64) {
        loop {
            let changed = self.synced.changed();
            {
                let mut state = self.state.borrow_mut();
                if state.synced >= flush || state.failed.is_some() || state.ended {
                    return;
                }
                state.sync_due = true;
            }
            self.work.notify();
            changed.await;
        }
    }

    /// Collections whose oldest uncovered record pins the oldest segment (candidates for a checkpoint), ascending. Empty
    /// while the oldest segment is still being filled: a checkpoint would not free it.
    pub fn pinned_by(&self, covered: &dyn Fn(u64) -> Option<u64>) -> Vec<u64> {
        let state = self.state.borrow();
        match state.segments.front() {
            Some(segment) if segment.number < state.filling => segment.highest.uncovered(covered),
            _ => Vec::new(),
        }
    }
}

/// Clears the flag at the end, also of a trim that is dropped half-way.
struct Alone<'a>(&'a Cell<bool>);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Why new data is refused although the log has room: what is left is for what frees room.
const RESERVED: &str =
    "the disk is full, and what is left of it is kept for deletes, drops and changes that make data smaller";

/// Makes the directory, if the disk is not too full, and refuses a generation that is already on the disk: its segments would be
/// overwritten. Whether the directory is made.
async fn check_generation(disk: &dyn Disk, config: &LogConfig, core: u32) -> Result<bool, LogError> {
    let failed =
        |error: &dyn std::fmt::Display| LogError::Failed(format!("{}: {error}", config.dir.display()));
    let is_made = match disk.create_dir(&config.dir).await {
        Err(error) if is_full(&error) => false,
        made => made.map(|()| true).map_err(|error| failed(&error))?,
    };
    for name in disk.list(&config.dir).await.map_err(|error| failed(&error))? {
        if let Some(id) = SegmentId::parse(core, &name)
            && id.generation >= config.generation
        {
            let text =
                format!("generation {} is not newer than that of {}", config.generation, name.display());
            return Err(failed(&text));
        }
    }
    Ok(is_made)
}

/// See [`Log::durable`].
struct Durable<'a> {
    log: &'a Log,
    ticket: u64,
    waiter: Option<u64>,
}

impl Future for Durable<'_> {
    type Output = Result<(), LogError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.log.state.borrow_mut();
        if self.ticket <= state.durable {
            return Poll::Ready(Ok(()));
        }
        if let Some(cause) = &state.failed {
            return Poll::Ready(Err(LogError::Failed(cause.clone())));
        }
        let waiter = self.waiter.unwrap_or(state.next_waiter);
        state.next_waiter = state.next_waiter.max(waiter + 1);
        state.waiters.insert((self.ticket, waiter), cx.waker().clone());
        drop(state);
        self.waiter = Some(waiter);
        Poll::Pending
    }
}

impl Drop for Durable<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.log.state.borrow_mut().waiters.remove(&(self.ticket, waiter));
        }
    }
}
