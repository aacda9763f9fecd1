//! What an archive of the log needs of it: the time in each frame, which frames are on the device, and a say in what becomes of a segment that the
//! log needs no more.

use super::format::{FRAMES_START, FrameHeader, SegmentId, encode_segment_header, leading_records};
use super::keep::{Clock, Keep};
use super::writer::{FRAME_BYTES_MAX, Log, Segment};
use super::{RECORD_BYTES_MAX, RecordKey};
use crate::disk::{BLOCK, DiskFile};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// No frame is longer, so that a damaged header asks for no more memory.
const FRAME_LONGEST: u64 = (RECORD_BYTES_MAX + 2 * FRAME_BYTES_MAX) as u64;

/// The frames of a segment that are on the device.
pub(crate) struct SyncedSegment {
    pub id: SegmentId,
    pub path: PathBuf,
    /// Where they end.
    pub end: u64,
}

impl Segment {
    pub(super) fn note_written(&mut self, end: u64, is_synced: bool) {
        self.written_end = end;
        if is_synced {
            self.synced_end = end;
        }
    }

    pub(super) fn note_synced(&mut self) {
        self.synced_end = self.written_end;
    }
}

impl Log {
    /// Frames have the time of this clock, Unix milliseconds; without a clock they have none. Call it before anything is appended.
    pub(crate) fn set_clock(&self, clock: Clock) {
        let _only_once = self.archiving.clock.set(clock);
    }

    /// Segments that are trimmed from now on go through `keep`.
    pub(crate) fn set_keep(&self, keep: Rc<dyn Keep>) {
        let _only_once = self.archiving.keep.set(keep);
    }

    /// The time of the frame that is written now: that of the clock, unless it was set back.
    pub(super) fn frame_time(&self) -> u64 {
        let Some(clock) = self.archiving.clock.get() else { return 0 };
        let now_ms = clock().max(self.archiving.newest_ms.get());
        self.archiving.newest_ms.set(now_ms);
        now_ms
    }

    pub(super) async fn let_go(&self, number: u64, path: &Path, end: u64) -> io::Result<()> {
        match self.archiving.keep.get() {
            Some(keep) => keep.let_go(self.segment_id(number), path, Some(end)).await,
            None => self.disk.remove(path).await,
        }
    }

    fn segment_id(&self, number: u64) -> SegmentId {
        SegmentId { generation: self.config.generation, core: self.core, number }
    }

    /// The run whose segments this log writes.
    pub(crate) fn generation(&self) -> u64 {
        self.config.generation
    }

    /// The segments that are not trimmed yet, oldest first, from the one with this number on, with what is on the device of each.
    pub(crate) fn synced_segments(&self, from: u64) -> Vec<SyncedSegment> {
        let state = self.state.borrow();
        let wanted = state.segments.iter().filter(|segment| segment.number >= from);
        let synced = wanted.filter(|segment| segment.synced_end > FRAMES_START);
        let found = synced.map(|segment| SyncedSegment {
            id: self.segment_id(segment.number),
            path: segment.path.clone(),
            end: segment.synced_end,
        });
        found.collect()
    }
}

/// Whole frames of a segment, one behind the other.
pub(crate) struct Frames {
    /// Where the first one begins, and the last one ends.
    pub begin: u64,
    pub end: u64,
    pub bytes: Vec<u8>,
    /// The times of the first and of the last one that has a time; 0 if none has.
    pub first_ms: u64,
    pub last_ms: u64,
}

/// Reads whole frames of a segment that lie from `from` on and before `end`: about `most` bytes, or a single one that is longer. Blocks in which no
/// frame begins, which damage has left, are passed over. `None` if there is no frame.
///
/// # Errors
/// The disk.
pub(crate) async fn read_frames(
    file: &dyn DiskFile,
    id: SegmentId,
    from: u64,
    end: u64,
    most: usize,
) -> io::Result<Option<Frames>> {
    let mut begin = from.max(FRAMES_START);
    while begin < end {
        let want = (end - begin).min(most.max(BLOCK) as u64) as usize;
        let mut bytes = file.read_at(begin, want).await?;
        if bytes.len() < BLOCK {
            return Ok(None);
        }
        let Some(first) = FrameHeader::decode(id, begin, &bytes) else {
            let block = (1..bytes.len() / BLOCK).find(|block| {
                FrameHeader::decode(id, begin + (block * BLOCK) as u64, &bytes[block * BLOCK..]).is_some()
            });
            begin += (block.unwrap_or(bytes.len() / BLOCK) * BLOCK) as u64;
            continue;
        };
        if first.frame_bytes() > bytes.len() as u64 {
            if first.frame_bytes() > (end - begin).min(FRAME_LONGEST) {
                return Ok(None);
            }
            bytes = file.read_at(begin, first.frame_bytes() as usize).await?;
        }
        let mut frames = Frames { begin, end: begin, bytes: Vec::new(), first_ms: 0, last_ms: 0 };
        let mut at = 0;
        while let Some(header) = FrameHeader::decode(id, begin + at as u64, &bytes[at..]) {
            let behind = at + header.frame_bytes() as usize;
            if behind > bytes.len() {
                break;
            }
            if frames.first_ms == 0 {
                frames.first_ms = header.unix_ms;
            }
            frames.last_ms = header.unix_ms.max(frames.last_ms);
            at = behind;
        }
        bytes.truncate(at);
        frames.end = begin + at as u64;
        frames.bytes = bytes;
        return Ok((at > 0).then_some(frames));
    }
    Ok(None)
}

/// A frame of an archived segment.
pub(crate) struct KeptFrame<'a> {
    pub flush: u64,
    /// Where it begins in the segment.
    pub begin: u64,
    /// 0 = it has no time.
    pub unix_ms: u64,
    /// Where it ends in the segment.
    pub end: u64,
    id: SegmentId,
    records: u32,
    bytes: &'a [u8],
}

impl KeptFrame<'_> {
    /// Hands each record to `record`; whether all of them are good.
    pub fn records(&self, record: impl FnMut(RecordKey, &[u8])) -> bool {
        leading_records(self.bytes, self.id, self.flush, record).0 == self.records
    }
}

/// The frames of `bytes`, which lay at `begin` of a segment.
///
/// # Errors
/// The offset in the segment at which there is no whole frame.
pub(crate) fn split_frames(id: SegmentId, begin: u64, bytes: &[u8]) -> Result<Vec<KeptFrame<'_>>, u64> {
    let (mut frames, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let offset = begin + at as u64;
        let header = FrameHeader::decode(id, offset, &bytes[at..]).ok_or(offset)?;
        let len = header.frame_bytes() as usize;
        let frame = bytes.get(at..at + len).ok_or(offset)?;
        frames.push(KeptFrame {
            flush: header.flush,
            begin: offset,
            unix_ms: header.unix_ms,
            end: offset + len as u64,
            id,
            records: header.records,
            bytes: frame,
        });
        at += len;
    }
    Ok(frames)
}

/// The block that a segment begins with.
pub(crate) fn segment_header(id: SegmentId) -> Vec<u8> {
    encode_segment_header(id)
}

const _: () = assert!(FRAMES_START == BLOCK as u64);
