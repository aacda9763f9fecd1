//! The log's state: where records go, who waits for them, what may be removed.
use super::format::{
    FRAME_HEADER_BYTES, FRAMES_START, SegmentId, block_up, encode_record, encode_segment_header,
    record_bytes, segment_bytes_for,
};
use super::ledger::{Entry, Ledger};
use super::old::Highest;
use super::signal::Signal;
use super::{LogConfig, LogError, RECORD_BYTES_MAX, RecordKey, Ticket};
use crate::disk::{BLOCK, Disk, DiskFile, LocalBoxFuture};
use crate::event::Lock;
use crate::twin;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A frame stops growing here (one record may still be longer): 4 MiB take about 2 ms to write, so that a flood of
/// appends is acknowledged in portions, while the cost of a sync is spread over thousands of records.
pub(super) const FRAME_BYTES_MAX: usize = 4 << 20;
/// The smallest segment: a header and one block of records.
const SEGMENT_BYTES_MIN: u64 = 2 * BLOCK as u64;

/// See the module. `Rc`-shared on one core.
pub struct Log {
    pub(super) disk: Rc<dyn Disk>,
    pub(super) config: LogConfig,
    pub(super) core: u32,
    pub(super) state: RefCell<State>,
    /// Something to write, sync or end.
    pub(super) work: Signal,
    /// A segment is wanted, or the log ends.
    pub(super) want: Signal,
    /// Room has changed, for better or worse.
    pub(super) room: Signal,
    /// The flush loop has ended.
    pub(super) ended: Signal,
    trimming: Cell<bool>,
    /// Who may replace the ledger.
    ledger_lock: Rc<Lock>,
}

pub(super) struct State {
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
    /// Why the last allocation failed, until it is tried again.
    pub(super) no_space: Option<String>,
    pub(super) failed: Option<String>,
    pub(super) stopping: bool,
    /// A segment that is ready and that the ledger could not be told of yet.
    unlisted: Option<Segment>,
    /// The ledger on the disk knows the records of flushes up to this one.
    listed: u64,
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

/// Where a record would go.
enum Place {
    /// Into the newest pending frame.
    LastFrame,
    /// Into a new frame of this segment.
    NewFrame(u64),
}

impl State {
    fn place(&self, body: usize) -> Option<Place> {
        let needed = record_bytes(body);
        if let Some(frame) = self.pending.back() {
            let grown = frame.bytes.len() + needed;
            let segment = self.segment(frame.segment);
            if grown <= FRAME_BYTES_MAX && frame.offset + block_up(grown as u64) <= segment.bytes {
                return Some(Place::LastFrame);
            }
        }
        let frame_bytes = block_up((FRAME_HEADER_BYTES + needed) as u64);
        let mut usable = self.segments.range(self.index(self.filling)..);
        let fitting = usable.find(|segment| segment.end + frame_bytes <= segment.bytes);
        fitting.map(|segment| Place::NewFrame(segment.number))
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

    fn segment_mut(&mut self, number: u64) -> &mut Segment {
        let index = self.index(number);
        &mut self.segments[index]
    }

    fn put(&mut self, core: u32, generation: u64, place: Place, key: RecordKey, body: &[u8]) -> Ticket {
        if let Place::NewFrame(number) = place {
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
        let is_closed = |segment: &Segment| {
            segment.last_flush > 0
                && segment.last_flush <= self.synced
                && (segment.number < self.filling || self.finished)
        };
        let (mut synced, mut highest) = (self.trimmed, BTreeMap::new());
        for segment in self.segments.iter().take_while(|segment| segment.last_flush <= self.synced) {
            synced = synced.max(segment.last_flush);
            for (uid, seq) in segment.highest.iter() {
                let known: &mut u64 = highest.entry(uid).or_default();
                *known = seq.max(*known);
            }
        }
        let entry = |segment: &Segment| Entry {
            number: segment.number,
            bytes: segment.bytes,
            last_flush: if is_closed(segment) { segment.last_flush } else { 0 },
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

    /// Length of the segment to allocate now, if one is wanted: one is kept ahead of the one being filled.
    pub(super) fn allocation_wanted(&self, usual_bytes: u64) -> Option<u64> {
        let mut ahead = self.segments.range((self.index(self.filling) + 1).min(self.segments.len())..);
        let none_ahead = ahead.len() == 0;
        if self.wanted_bytes > 0 && !ahead.any(|segment| segment.bytes >= self.wanted_bytes) {
            return Some(self.wanted_bytes.max(usual_bytes));
        }
        none_ahead.then_some(usual_bytes)
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
    /// Creates the directory and the first segment and returns the log; run [`Log::flush_loop`] as a task.
    ///
    /// # Errors
    /// `NoSpace` when the segment cannot be allocated, `Failed` when the directory cannot be made or is not named by a
    /// core's number.
    pub async fn create(disk: Rc<dyn Disk>, config: LogConfig) -> Result<Rc<Log>, LogError> {
        let name = config.dir.file_name().and_then(|name| name.to_str());
        let core = name.and_then(|name| name.parse().ok()).ok_or_else(|| {
            LogError::Failed(format!("{} does not end in the number of a core", config.dir.display()))
        })?;
        let segment_bytes = block_up(config.segment_bytes.max(SEGMENT_BYTES_MIN));
        let config = LogConfig { segment_bytes, ..config };
        check_generation(&*disk, &config, core).await?;
        let log = Log {
            disk,
            core,
            state: RefCell::new(State {
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
                no_space: None,
                failed: None,
                stopping: false,
                unlisted: None,
                listed: 0,
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
            trimming: Cell::new(false),
            ledger_lock: Rc::default(),
        };
        log.allocate(log.config.segment_bytes).await.map_err(LogError::NoSpace)?;
        Ok(Rc::new(log))
    }

    /// Makes one more segment, ready to be filled: allocated, zeroed, named, synced, and in the ledger.
    pub(super) async fn allocate(&self, bytes: u64) -> Result<(), String> {
        let is_ready = self.state.borrow().unlisted.is_some();
        if !is_ready {
            self.make_segment(bytes).await?;
        }
        self.store_ledger().await.map_err(|error| format!("the ledger of the log: {error}"))?;
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
    pub(super) async fn store_ledger(&self) -> std::io::Result<()> {
        let _held = self.ledger_lock.lock().await;
        let ledger = self.state.borrow().ledger(self.core, &self.config);
        let Some(ledger) = ledger else { return Ok(()) };
        let path = Ledger::path_in(&self.config.dir, self.config.generation);
        twin::replace(&*self.disk, &path, &ledger.encode()).await?;
        self.state.borrow_mut().listed = ledger.synced;
        Ok(())
    }

    /// Nothing remains of one that fails.
    async fn make_segment(&self, bytes: u64) -> Result<(), String> {
        let number = self.state.borrow().next_number;
        let id = SegmentId { generation: self.config.generation, core: self.core, number };
        let path = self.config.dir.join(id.file_name());
        let made = async {
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
                });
                Ok(())
            }
            Err(error) => {
                // Give back what was taken. If that fails too, the next attempt uses the same name.
                let _ = self.disk.remove(&path).await;
                Err(format!("{}: {error}", path.display()))
            }
        }
    }

    /// Copies the record into the pending batch. Synchronous; takes a checksum and a copy of the record.
    ///
    /// # Errors
    /// Nothing has changed when it fails. `NoSpace`: the allocated segments have no room for it (another one is then
    /// on its way; [`Log::make_room`] waits for it). `Failed`: for ever. `TooLarge`: over [`RECORD_BYTES_MAX`].
    pub fn append(&self, key: RecordKey, record: &[u8]) -> Result<Ticket, LogError> {
        let mut state = self.state.borrow_mut();
        let place = self.check_room(&mut state, record.len())?;
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

    /// Waits until an [`Log::append`] of a record of `bytes` would be taken, and returns without giving way after it has
    /// found so: an append right after it succeeds. Ready at once while there is room.
    ///
    /// # Errors
    /// As `append`; `NoSpace` only when allocation has really failed.
    pub async fn make_room(&self, bytes: usize) -> Result<(), LogError> {
        loop {
            let changed = {
                let mut state = self.state.borrow_mut();
                match self.check_room(&mut state, bytes) {
                    Ok(_) => return Ok(()),
                    Err(LogError::NoSpace(_)) if state.no_space.is_none() => self.room.changed(),
                    Err(error) => return Err(error),
                }
            };
            changed.await;
        }
    }

    fn check_room(&self, state: &mut State, bytes: usize) -> Result<Place, LogError> {
        if let Some(cause) = &state.failed {
            return Err(LogError::Failed(cause.clone()));
        }
        if state.stopping {
            return Err(LogError::Failed("it has been stopped".into()));
        }
        if bytes > RECORD_BYTES_MAX {
            return Err(LogError::TooLarge(bytes));
        }
        if let Some(place) = state.place(bytes) {
            return Ok(place);
        }
        let needed = segment_bytes_for(bytes);
        if needed > state.wanted_bytes {
            state.wanted_bytes = needed;
            self.want.notify();
        }
        let cause = state.no_space.clone();
        Err(LogError::NoSpace(cause.unwrap_or_else(|| "the next segment is not allocated yet".into())))
    }

    /// Waits until the append is as durable as the mode promises.
    ///
    /// # Errors
    /// `Failed` when the log failed before that; whether the record is on the disk is then unknown.
    pub fn durable(&self, ticket: Ticket) -> LocalBoxFuture<'_, Result<(), LogError>> {
        Box::pin(Durable { log: self, ticket: ticket.0.get(), waiter: None })
    }

    /// Waits until the log has failed, and says why; `None` when it is stopped before.
    pub async fn failure(&self) -> Option<String> {
        loop {
            let changed = self.want.changed();
            {
                let state = self.state.borrow();
                if state.failed.is_some() || state.stopping {
                    return state.failed.clone();
                }
            }
            changed.await;
        }
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

    /// Frames written so far; in [`super::SyncMode::Always`] each of them is one flush.
    pub fn frames(&self) -> u64 {
        self.state.borrow().written
    }

    /// Removes closed segments whose every record is covered: `covered(collection)` = checkpointed seq, None = dropped
    /// collection. Oldest first, up to the first that is still needed: the order tells a later scan damage from an end.
    ///
    /// # Errors
    /// `Trim` when a file cannot be removed; it is tried again by the next call.
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
                        (segment.number, segment.last_flush, segment.path.clone(), segment.file.clone())
                    }
                    _ => return Ok(()),
                }
            };
            let (number, last_flush, path, file) = oldest;
            if self.config.owners.is_some() && last_flush > self.state.borrow().listed {
                // Else the next start would miss it.
                let stored = self.store_ledger().await;
                stored.map_err(|error| LogError::Trim(format!("the ledger of the log: {error}")))?;
                if last_flush > self.state.borrow().listed {
                    return Ok(());
                }
            }
            let removed = self.disk.remove(&path).await;
            removed.map_err(|error| LogError::Trim(format!("{}: {error}", path.display())))?;
            {
                let mut state = self.state.borrow_mut();
                state.segments.pop_front();
                state.trimmed = last_flush;
                state.unsynced.retain(|&(segment, _)| segment != number);
            }
            // The name is gone and nothing of it is needed: a failing close changes nothing.
            let _ = file.close().await;
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

/// Makes the directory and refuses a generation that is already on the disk: its segments would be overwritten.
async fn check_generation(disk: &dyn Disk, config: &LogConfig, core: u32) -> Result<(), LogError> {
    let failed =
        |error: &dyn std::fmt::Display| LogError::Failed(format!("{}: {error}", config.dir.display()));
    disk.create_dir(&config.dir).await.map_err(|error| failed(&error))?;
    for name in disk.list(&config.dir).await.map_err(|error| failed(&error))? {
        if let Some(id) = SegmentId::parse(core, &name)
            && id.generation >= config.generation
        {
            let text =
                format!("generation {} is not newer than that of {}", config.generation, name.display());
            return Err(failed(&text));
        }
    }
    Ok(())
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
