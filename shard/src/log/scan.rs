//! Reads what earlier runs left: delivers the good records, cuts the torn tail, reports damage.
//!
//! The segments of one core and generation form a *chain* of frames numbered without gaps. Where a frame is missing or
//! bad, `synced` of any frame of the chain decides: a flush up to the greatest such mark was on the device once, so its
//! loss is damage, and what follows is still good. A flush beyond it never was promised to anybody: it is the torn tail,
//! whose leading good records are kept and everything after them is dropped, on the disk as well. Good frames beyond the
//! mark are written again and synced, since a process that was killed may have left them in a cache only.
use super::format::{
    FORMAT_VERSION, FRAME_HEADER_BYTES, FRAMES_START, FoundRecord, FrameHeader, SegmentHeader, SegmentId,
    block_up, decode_segment_header, leading_records, surviving_records,
};
use super::ledger::{ChainFound, ChainId, Ledger, LedgerEntry, Ledgers, MakeRoom, NoRoom};
use super::old::{Delivered, Highest, OldChain, OldSegment, OldSegments};
use super::writer::FRAME_BYTES_MAX;
use super::{RECORD_BYTES_MAX, RecordKey};
use crate::disk::{BLOCK, Disk, DiskFile};
use crate::event::some_at_once;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Segments that are read at the same time: a device that does one read after the other is far from its rate.
const SEGMENTS_AT_ONCE: usize = 4;
/// Bytes read at once.
const WINDOW_BYTES: usize = 1 << 20;
/// No frame is longer: a full one with the largest record on top.
const FRAME_READ_BYTES_MAX: u64 = (RECORD_BYTES_MAX + 2 * FRAME_BYTES_MAX) as u64;
/// Of a run of missing flushes, how many are looked for in the damaged bytes: more than one only if several frames in a
/// row have lost their headers.
const MISSING_TRIED_MAX: u64 = 16;

/// What a scan of old segments found.
#[derive(Debug, Default)]
pub struct ScanReport {
    /// Records delivered.
    pub records: u64,
    /// Bytes cut off as a torn tail.
    pub torn_bytes: u64,
    /// Human-readable reports of damage in the middle (offset, file); each is logged loudly.
    pub damage: Vec<String>,
    /// Records known to be lost to damage (their body is bad, their header is not). Others may be lost too: they show as
    /// a gap in their collection's sequence numbers.
    pub lost: Vec<RecordKey>,
    /// Highest generation seen.
    pub generation_max: u64,
    /// What was found of each chain, including chains of which only the ledger is left.
    pub chains: Vec<ChainFound>,
    /// What was read; remove it once checkpoints cover it.
    pub segments: OldSegments,
}

/// Reads every segment of every core's log under `root` in order, calling `record(key, bytes)`; cuts torn tails on disk.
///
/// Oldest generation first, then by core, then in the order of appending: the records of one collection come in the
/// order of their sequence numbers as long as a generation keeps a collection on one core. A record may come again that
/// a checkpoint already holds. Reads each segment about once; holds one frame (usually 4 MiB, at most one record more) in
/// memory, and before that a piece of each of a few segments.
///
/// # Errors
/// A segment of a newer format (nothing has been cut then), or a failing disk. Bad bytes are never an error.
pub async fn scan(
    disk: &dyn Disk,
    root: &Path,
    record: &mut dyn FnMut(RecordKey, &[u8]),
) -> io::Result<ScanReport> {
    scan_with(disk, root, &Ledgers::default(), &NoRoom, 0, record).await
}

/// As [`scan`], but compares each chain with its ledger. If the disk is full when a ledger must be written, `room` makes room for it. What is kept of a
/// torn tail without a readable time gets the time `now_unix_ms`: nobody was told before that it is there.
///
/// # Errors
/// As [`scan`].
pub async fn scan_with(
    disk: &dyn Disk,
    root: &Path,
    ledgers: &Ledgers,
    room: &dyn MakeRoom,
    now_unix_ms: u64,
    record: &mut dyn FnMut(RecordKey, &[u8]),
) -> io::Result<ScanReport> {
    let mut report = ScanReport::default();
    let mut chains = find_chains(disk, root, &mut report).await?;
    for (id, (_, ledger)) in &ledgers.all {
        report.generation_max = report.generation_max.max(id.0);
        if !chains.contains_key(id) {
            report.chains.push(ChainFound::of_nothing(*id, ledger));
        }
    }
    let unreadable = ledgers.unreadable.last_key_value().map_or(0, |(id, _)| id.0);
    report.generation_max = report.generation_max.max(unreadable);
    while let Some((id, segments)) = chains.pop_first() {
        let ledger = ledgers.all.get(&id).map(|(path, ledger)| (path.as_path(), ledger));
        let found = ChainFound { id, ..ChainFound::default() };
        let report = &mut report;
        ChainScan { disk, segments, ledger, room, found, flush: 0, now_unix_ms, report, record }
            .run()
            .await?;
    }
    for damage in &report.damage {
        tracing::error!(damage, "the log is damaged");
    }
    Ok(report)
}

fn at_path(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// One segment and what lies in it.
struct Segment {
    id: SegmentId,
    path: PathBuf,
    file: Rc<dyn DiskFile>,
    file_bytes: u64,
    header_good: bool,
    items: Vec<Item>,
    highest: Highest,
    delivered: Vec<Delivered>,
    /// Newest flush known to have been in it.
    last_flush: u64,
    /// Bytes of frames delivered from it.
    bytes: u64,
    /// Frames were written anew and are to be synced.
    rewritten: bool,
}

#[derive(Clone, Copy)]
enum Item {
    Frame {
        offset: u64,
        header: FrameHeader,
    },
    /// Blocks that begin no frame, with something in them; `end` is just past the last byte that is not zero.
    Bad {
        offset: u64,
        end: u64,
    },
}

impl Item {
    fn offset(&self) -> u64 {
        match *self {
            Item::Frame { offset, .. } | Item::Bad { offset, .. } => offset,
        }
    }
}

/// All segments, grouped by run and core, in the order of delivery. Refuses newer formats before anything is touched.
async fn find_chains(
    disk: &dyn Disk,
    root: &Path,
    report: &mut ScanReport,
) -> io::Result<BTreeMap<ChainId, Vec<Segment>>> {
    let mut chains: BTreeMap<ChainId, Vec<Segment>> = BTreeMap::new();
    for core_name in disk.list(root).await.map_err(at_path(root))? {
        let Some(core) = core_name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let dir = root.join(&core_name);
        for name in disk.list(&dir).await.map_err(at_path(&dir))? {
            let Some(id) = SegmentId::parse(core, &name) else { continue };
            let path = dir.join(&name);
            let file = disk.open(&path).await.map_err(at_path(&path))?;
            report.generation_max = report.generation_max.max(id.generation);
            let header = file.read_at(0, BLOCK).await.map_err(at_path(&path))?;
            let file_bytes = file.len().await.map_err(at_path(&path))?;
            let header_good = match decode_segment_header(&header) {
                SegmentHeader::Newer(found) => {
                    let text = format!(
                        "log segment {} has format {found}, newer than {FORMAT_VERSION}: it needs a newer program",
                        path.display()
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                SegmentHeader::Known(found) if found != id => {
                    let text =
                        "it says it is another segment than its name says; it is left alone and not read";
                    report.damage.push(format!("log segment {}: {text}", path.display()));
                    continue;
                }
                SegmentHeader::Known(_) => true,
                SegmentHeader::Bad => false,
            };
            chains.entry((id.generation, core)).or_default().push(Segment {
                id,
                path,
                file,
                file_bytes,
                header_good,
                items: Vec::new(),
                highest: Highest::default(),
                delivered: Vec::new(),
                last_flush: 0,
                bytes: 0,
                rewritten: false,
            });
        }
    }
    for chain in chains.values_mut() {
        chain.sort_by_key(|segment| segment.id.number);
    }
    Ok(chains)
}

/// Reads a file in large pieces.
struct Window {
    file: Rc<dyn DiskFile>,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn new(file: Rc<dyn DiskFile>) -> Window {
        Window { file, start: 0, bytes: Vec::new() }
    }

    /// `len` bytes at `offset`, fewer at the end of the file.
    async fn get(&mut self, offset: u64, len: usize) -> io::Result<&[u8]> {
        let held = self.start..self.start + self.bytes.len() as u64;
        if !(held.contains(&offset) && offset + len as u64 <= held.end) {
            self.bytes = self.file.read_at(offset, len.max(WINDOW_BYTES)).await?;
            self.start = offset;
        }
        let from = (offset - self.start) as usize;
        Ok(&self.bytes[from..self.bytes.len().min(from.saturating_add(len))])
    }
}

/// Finds the frames of a segment by their headers; bodies are looked at later.
async fn find_items(id: SegmentId, file: &Rc<dyn DiskFile>) -> io::Result<Vec<Item>> {
    let mut window = Window::new(file.clone());
    let (mut items, mut offset) = (Vec::new(), FRAMES_START);
    loop {
        let block = window.get(offset, BLOCK).await?;
        if block.is_empty() {
            return Ok(items);
        }
        if let Some(header) = FrameHeader::decode(id, offset, block) {
            items.push(Item::Frame { offset, header });
            offset += header.frame_bytes();
            continue;
        }
        // Most of a segment may be allocated and not written. All bytes together tell that in a fraction of the time.
        let is_written = block.iter().fold(0, |all, byte| all | byte) != 0;
        if is_written && let Some(last) = block.iter().rposition(|&byte| byte != 0) {
            let end = offset + last as u64 + 1;
            match items.last_mut() {
                Some(Item::Bad { end: bad_end, .. }) => *bad_end = end,
                _ => items.push(Item::Bad { offset, end }),
            }
        }
        offset += BLOCK as u64;
    }
}

/// Where the last frame or damaged block of a segment ends. Nothing will be written behind it any more.
fn end_of(segment: &Segment) -> u64 {
    let end_of = |item: &Item| match *item {
        Item::Frame { offset, header } => offset + header.frame_bytes(),
        Item::Bad { end, .. } => block_up(end),
    };
    segment.items.iter().map(end_of).max().unwrap_or(0).max(FRAMES_START)
}

/// A place in the chain: index of the segment, offset in it.
#[derive(Clone, Copy)]
struct ScanPosition {
    segment: usize,
    offset: u64,
    end: u64,
}

/// What is left of a damaged flush.
struct Survivors {
    /// Good records.
    records: u64,
    /// Records that are lost although their headers, and so their keys, can still be read.
    lost: u64,
    /// Where the last one ends whose header is good, in the bytes looked through; 0 without any.
    end: u64,
}

struct ChainScan<'a> {
    disk: &'a dyn Disk,
    segments: Vec<Segment>,
    ledger: Option<(&'a Path, &'a Ledger)>,
    room: &'a dyn MakeRoom,
    found: ChainFound,
    /// The flush whose records are being delivered.
    flush: u64,
    now_unix_ms: u64,
    report: &'a mut ScanReport,
    record: &'a mut dyn FnMut(RecordKey, &[u8]),
}

impl ChainScan<'_> {
    async fn run(mut self) -> io::Result<()> {
        let found = some_at_once(&self.segments, SEGMENTS_AT_ONCE, |segment| async move {
            find_items(segment.id, &segment.file).await.map_err(at_path(&segment.path))
        });
        let found = found.await;
        for (segment, items) in self.segments.iter_mut().zip(found) {
            segment.items = items?;
            // Without frames it is an allocation that a crash interrupted: no reason for alarm.
            if !segment.header_good && segment.items.iter().any(|item| matches!(item, Item::Frame { .. })) {
                let text = format!("log segment {}: its header is damaged", segment.path.display());
                self.report.damage.push(text);
            }
        }
        let marked = self.frames().map(|header| header.synced).max().unwrap_or(0);
        let synced = self.ledger.map_or(marked, |(_, ledger)| ledger.synced.max(marked));
        let mut last_flush = None;
        // Bad blocks since the last frame.
        let mut bad: Vec<ScanPosition> = Vec::new();
        for index in 0..self.segments.len() {
            for item in self.segments[index].items.clone() {
                let (offset, header) = match item {
                    Item::Bad { offset, end } => {
                        bad.push(ScanPosition { segment: index, offset, end });
                        continue;
                    }
                    Item::Frame { offset, header } => (offset, header),
                };
                let place = ScanPosition { segment: index, offset, end: offset + header.frame_bytes() };
                if let Some(last) = last_flush.filter(|last| header.flush <= *last) {
                    self.found.lose(last);
                    self.damage(place, &format!("flush {} comes again or too late", header.flush));
                    continue;
                }
                let missing = self.first_missing(last_flush, &bad, header.flush)..header.flush;
                if !missing.is_empty() {
                    let mut torn = bad.first().copied().unwrap_or(place);
                    if missing.start <= synced {
                        let once_synced = missing.start..missing.end.min(synced.saturating_add(1));
                        // What was saved stays on the disk for the next scan: the end is behind it.
                        torn = self.report_missing(&bad, place, once_synced).await?.unwrap_or(torn);
                    }
                    if missing.end - 1 > synced {
                        return self
                            .cut(torn, Some(missing.start.max(synced.saturating_add(1))), synced)
                            .await;
                    }
                }
                bad.clear();
                last_flush = Some(header.flush);
                self.note_flush(index, header.flush);
                if !self.deliver_frame(place, header, header.flush <= synced).await? {
                    return self.cut(place, Some(header.flush), synced).await;
                }
            }
        }
        if let Some(&torn) = bad.first() {
            // A run that has written nothing durable starts at flush 1.
            let untrimmed = self.segments[0].id.number == 1;
            let flush = last_flush.map(|last| last.saturating_add(1)).or(untrimmed.then_some(1));
            // Even if no later frame confirms these flushes, the ledger may say that they were on the device once.
            if let Some(flush) = flush.filter(|flush| *flush <= synced) {
                let end = ScanPosition { segment: usize::MAX, offset: u64::MAX, end: u64::MAX };
                self.report_missing(&bad, end, flush..synced.saturating_add(1)).await?;
                return self.finish().await;
            }
            return self.cut(torn, flush, synced).await;
        }
        self.finish().await
    }

    fn frames(&self) -> impl Iterator<Item = &FrameHeader> {
        self.segments.iter().flat_map(|segment| &segment.items).filter_map(|item| match item {
            Item::Frame { header, .. } => Some(header),
            Item::Bad { .. } => None,
        })
    }

    /// First flush that should stand before a frame of flush `next` and does not. Without an earlier frame the chain may
    /// have been trimmed up to here; only bad blocks then say that something is missing.
    fn first_missing(&self, last: Option<u64>, bad: &[ScanPosition], next: u64) -> u64 {
        match last {
            Some(last) => last.saturating_add(1),
            None if self.segments[0].id.number == 1 => 1.min(next),
            None if bad.is_empty() => next,
            None => next.saturating_sub(1).max(1).min(next),
        }
    }

    async fn read(&self, place: ScanPosition) -> io::Result<Vec<u8>> {
        let segment = &self.segments[place.segment];
        let end = place.end.min(segment.file_bytes);
        let len = end.saturating_sub(place.offset).min(FRAME_READ_BYTES_MAX);
        segment.file.read_at(place.offset, len as usize).await.map_err(at_path(&segment.path))
    }

    fn damage(&mut self, place: ScanPosition, what: &str) {
        let path = self.segments[place.segment].path.display();
        self.report.damage.push(format!("log segment {path}, byte {}: {what}", place.offset));
    }

    /// A frame of this flush is, or was, in the segment.
    fn note_flush(&mut self, segment: usize, flush: u64) {
        (self.flush, self.found.last_flush) = (flush, self.found.last_flush.max(flush));
        self.segments[segment].last_flush = self.segments[segment].last_flush.max(flush);
    }

    fn deliver(&mut self, segment: usize, key: RecordKey, body: &[u8]) {
        self.segments[segment].highest.note(key);
        self.found.seen.insert(key.collection, self.flush);
        self.report.records += 1;
        (self.record)(key, body);
    }

    /// Delivers a frame; of a bad one that is `proven` to have been good, what is left. False: it is the torn tail.
    async fn deliver_frame(
        &mut self,
        place: ScanPosition,
        header: FrameHeader,
        proven: bool,
    ) -> io::Result<bool> {
        let mut bytes = self.read(place).await?;
        let id = self.segments[place.segment].id;
        let (count, end) = leading_records(&bytes, id, header.flush, |_, _| ());
        let expected_end = FRAME_HEADER_BYTES as u64 + u64::from(header.bytes);
        if count == header.records && end as u64 == expected_end {
            leading_records(&bytes, id, header.flush, |key, body| self.deliver(place.segment, key, body));
            // An empty frame only confirms the frames before it.
            if header.records > 0 {
                self.note_delivered(place, bytes.len(), header.flush, false);
                self.found.last_record = (header.flush, header.unix_ms);
            }
            if !proven {
                bytes.resize((place.end - place.offset) as usize, 0);
                self.rewrite(place, &bytes).await?;
            }
        } else if proven {
            let Survivors { records: found, lost, .. } = self.deliver_survivors(place, &bytes, header.flush);
            if found + lost < u64::from(header.records) {
                self.found.lose(header.flush);
            }
            let text =
                format!("flush {} is damaged: {found} of {} records are good", header.flush, header.records);
            self.damage(place, &text);
        } else {
            return Ok(false);
        }
        self.segments[place.segment].bytes += place.end - place.offset;
        Ok(true)
    }

    /// Writes a frame again as it is. After a kill it may be readable without being on the device, even if its sync was
    /// tried: what is delivered here must not be gone after the next power loss, for later records build on it.
    async fn rewrite(&mut self, place: ScanPosition, bytes: &[u8]) -> io::Result<()> {
        let segment = &mut self.segments[place.segment];
        segment.rewritten = true;
        segment.file.write_at(place.offset, bytes).await.map_err(at_path(&segment.path))
    }

    /// Notes what a scan has delivered: a later reading of the segment has to find the same.
    fn note_delivered(&mut self, place: ScanPosition, bytes: usize, flush: u64, survivors: bool) {
        let delivered = Delivered { offset: place.offset, bytes: bytes as u64, flush, survivors };
        self.segments[place.segment].delivered.push(delivered);
    }

    fn deliver_survivors(&mut self, place: ScanPosition, bytes: &[u8], flush: u64) -> Survivors {
        let segment = place.segment;
        let id = self.segments[segment].id;
        let (mut found, mut lost, mut end) = (Vec::new(), Vec::new(), 0);
        surviving_records(bytes, id, flush, |record| match record {
            FoundRecord::Good { key, body, end: record_end, .. } => {
                found.push((key, body.to_vec()));
                end = record_end.min(bytes.len());
            }
            FoundRecord::BadBody { key, end: record_end } => {
                lost.push(key);
                end = record_end.min(bytes.len());
            }
        });
        self.flush = flush;
        for (key, body) in &found {
            self.deliver(segment, *key, body);
        }
        if !found.is_empty() {
            self.note_delivered(place, bytes.len(), flush, true);
        }
        let known = lost.len() as u64;
        for key in lost {
            self.segments[segment].highest.note(key);
            self.report.lost.push(key);
        }
        Survivors { records: found.len() as u64, lost: known, end: end as u64 }
    }

    /// Flushes that were on the device once are gone, or have lost their headers; `next` is the frame after them.
    /// Delivers what is left of them; returns the first block behind that and behind what is known to be lost.
    async fn report_missing(
        &mut self,
        bad: &[ScanPosition],
        next: ScanPosition,
        missing: std::ops::Range<u64>,
    ) -> io::Result<Option<ScanPosition>> {
        let (mut found, mut behind) = (0, None);
        for &place in bad {
            // Not to the last byte that is not zero: a record may end in zeros.
            let end = if place.segment == next.segment { next.offset } else { u64::MAX };
            let bytes = self.read(ScanPosition { end, ..place }).await?;
            for flush in missing.clone().take(MISSING_TRIED_MAX as usize) {
                let survivors = self.deliver_survivors(place, &bytes, flush);
                found += survivors.records;
                if survivors.end > 0 {
                    let offset = place.offset + block_up(survivors.end);
                    let known = behind.filter(|known: &ScanPosition| known.segment == place.segment);
                    let offset = known.map_or(offset, |known| known.offset.max(offset));
                    behind = Some(ScanPosition { offset, ..place });
                }
            }
        }
        self.found.lose(missing.end - 1);
        let at = bad.first().copied().unwrap_or(next);
        let text =
            format!("flushes {} to {} are missing; {found} records found", missing.start, missing.end - 1);
        self.damage(at, &text);
        Ok(behind)
    }

    /// Ends the chain at `torn`: keeps the good records at its beginning and drops all that follows, on the disk too.
    ///
    /// Every step leaves a chain that the next scan cuts at the same place. The kept frame carries the mark `synced`
    /// of those dropped, so that it goes on telling damage from an end.
    async fn cut(mut self, torn: ScanPosition, flush: Option<u64>, synced: u64) -> io::Result<()> {
        let id = self.segments[torn.segment].id;
        let path = self.segments[torn.segment].path.clone();
        let file = self.segments[torn.segment].file.clone();
        let mut dropped_bytes = self.bytes_after(torn);
        self.found.cut_at = Some(id.number);
        if let Some((path, ledger)) = self.ledger {
            // The ledger says first that this scan shortens and removes segments: a crash during that is then not taken for damage.
            let cutting = Ledger { cutting: Some(id.number), ..ledger.clone() };
            cutting.store(self.disk, path, self.room).await.map_err(at_path(path))?;
        }
        while self.segments.len() > torn.segment + 1 {
            let last = self.segments.pop().expect("longer than one");
            last.file.close().await.map_err(at_path(&last.path))?;
            self.disk.remove(&last.path).await.map_err(at_path(&last.path))?;
        }
        let unix_ms = self.time_of_cut(torn, flush);
        self.segments[torn.segment].items.retain(|item| item.offset() < torn.offset);
        let mut kept = Vec::new();
        if let Some(flush) = flush {
            // The records may reach further than the bad blocks tell: a header that is bad hides the length.
            let bytes = self.read(ScanPosition { end: torn.offset + FRAME_READ_BYTES_MAX, ..torn }).await?;
            self.note_flush(torn.segment, flush);
            let (records, end) =
                leading_records(&bytes, id, flush, |key, body| self.deliver(torn.segment, key, body));
            if records > 0 {
                self.note_delivered(torn, block_up(end as u64) as usize, flush, false);
                self.found.last_record = (flush, unix_ms);
            }
            kept = bytes;
            kept.resize(end, 0);
            let bytes = (end - FRAME_HEADER_BYTES) as u32;
            let header = FrameHeader { flush, synced, bytes, records, unix_ms };
            header.encode(id, torn.offset, &mut kept);
            self.segments[torn.segment].items.push(Item::Frame { offset: torn.offset, header });
            dropped_bytes = dropped_bytes.saturating_sub(end as u64);
            kept.resize(block_up(end as u64) as usize, 0);
        }
        let end = torn.offset + kept.len() as u64;
        let cut = async {
            file.truncate(end).await?;
            file.sync().await?;
            if !kept.is_empty() {
                file.write_at(torn.offset, &kept).await?;
                file.sync().await?;
            }
            Ok(())
        };
        cut.await.map_err(at_path(&path))?;
        tracing::warn!(
            segment = %path.display(), offset = torn.offset, dropped_bytes,
            "cut the torn tail of a log: writes that were never acknowledged"
        );
        self.report.torn_bytes += dropped_bytes;
        self.segments[torn.segment].file_bytes = end;
        self.segments[torn.segment].bytes += kept.len() as u64;
        self.finish().await
    }

    /// The time of what is kept of the torn tail: that of its frame, or that of this scan where the header of the frame cannot be read. It is never less
    /// than that of a frame before.
    fn time_of_cut(&self, torn: ScanPosition, flush: Option<u64>) -> u64 {
        let mut before_ms = 0;
        for (index, segment) in self.segments.iter().enumerate().take(torn.segment + 1) {
            for item in &segment.items {
                let Item::Frame { offset, header } = *item else { continue };
                if index == torn.segment && offset >= torn.offset {
                    let is_kept = offset == torn.offset && Some(header.flush) == flush && header.unix_ms > 0;
                    return if is_kept { header.unix_ms } else { self.now_unix_ms }.max(before_ms);
                }
                before_ms = header.unix_ms.max(before_ms);
            }
        }
        self.now_unix_ms.max(before_ms)
    }

    /// Bytes of this chain from `torn` on, without the zeros behind.
    fn bytes_after(&self, torn: ScanPosition) -> u64 {
        let mut bytes = 0;
        for (index, segment) in self.segments.iter().enumerate().skip(torn.segment) {
            for item in &segment.items {
                let (offset, end) = match *item {
                    Item::Bad { offset, end } => (offset, end),
                    Item::Frame { offset, header } => {
                        (offset, offset + FRAME_HEADER_BYTES as u64 + u64::from(header.bytes))
                    }
                };
                if index > torn.segment || offset >= torn.offset {
                    bytes += end.min(segment.file_bytes).saturating_sub(offset);
                }
            }
        }
        bytes
    }

    async fn finish(self) -> io::Result<()> {
        for segment in &self.segments {
            if segment.rewritten {
                segment.file.sync().await.map_err(at_path(&segment.path))?;
            }
            segment.file.close().await.map_err(at_path(&segment.path))?;
        }
        let ChainScan { segments, ledger, mut found, report, .. } = self;
        found.segments = segments
            .iter()
            .map(|segment| LedgerEntry {
                number: segment.id.number,
                bytes: segment.file_bytes,
                last_flush: Some(segment.last_flush),
            })
            .collect();
        for (uid, seq) in segments.iter().flat_map(|segment| segment.highest.iter()) {
            let known = found.highest.entry(uid).or_insert(seq);
            *known = seq.max(*known);
        }
        if let Some((_, ledger)) = ledger {
            found.compare(ledger);
        }
        // The ledger will expect no more than this: what was allocated behind the last frame is given back.
        for (entry, segment) in found.segments.iter_mut().zip(&segments) {
            entry.bytes = entry.bytes.min(end_of(segment));
        }
        let ends: Vec<u64> = segments.iter().map(end_of).collect();
        report.chains.push(found);
        let old = segments.into_iter().zip(ends).map(|(segment, end)| OldSegment {
            path: segment.path,
            bytes: segment.bytes,
            unused: (segment.file_bytes > end).then_some(end),
            highest: segment.highest,
            delivered: segment.delivered,
            id: segment.id,
        });
        let ledger = ledger.map(|(path, _)| path.to_owned());
        let (id, segments) = (report.chains.last().expect("just pushed").id, old.collect());
        report.segments.push_chain(OldChain { id, segments, ledger, is_left: false });
        Ok(())
    }
}
