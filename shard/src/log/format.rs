//! Bytes of a log segment, format version 2: as version 1, but payloads may hold records. All integers are little-endian.
//!
//! ```text
//! segment = header block, frame*, zeros            every frame begins at a multiple of 4096
//! header  = magic "NIGHLOG\0", version u32, core u32, generation u64, number u64, zeros to 60, crc u32, zeros to 4096
//! frame   = magic "NFRM", crc u32, generation u64, flush u64, synced u64, bytes u32, records u32, unix_ms u64, zeros to 64,
//!           record{records}, zeros to a multiple of 4096
//! record  = bytes u32, body crc u32, collection u64, seq u64, ordinal u32, crc u32, body, zeros to a multiple of 8
//! ```
//!
//! Every checksum is CRC32C. Those of frames and records also cover where they belong (generation, core, segment; a
//! frame's offset; a record's flush), so bytes left over from another time or place never pass for ours. A record is
//! checked by its own two sums, hence the frame needs none over its body, and a damaged frame still gives up its good
//! records. `flush` counts frames of one run from 1. `synced` is the last flush known to be on the device when this one
//! was written: it tells a write that never was finished from damage to one that was. `unix_ms` is the time of the clock when the frame was written, and
//! never less than that of the frame before; it is 0 in frames of builds that wrote none. In a frame that a scan has cut it is the time of that scan if
//! the header could not be read any more. The first 64 bytes of a segment
//! keep their meaning in every version, so that an older program can say which version it meets.
use super::RecordKey;
use crate::disk::BLOCK;
use std::path::{Path, PathBuf};

/// Version written, and the newest one read.
pub(super) const FORMAT_VERSION: u32 = 2;
/// Bytes of the frame header.
pub(super) const FRAME_HEADER_BYTES: usize = 64;
/// Bytes of the record header.
pub(super) const RECORD_HEADER_BYTES: usize = 32;
/// Offset of the first frame.
pub(super) const FRAMES_START: u64 = BLOCK as u64;

const SEGMENT_MAGIC: &[u8; 8] = b"NIGHLOG\0";
const SEGMENT_HEADER_BYTES: usize = 64;
const FRAME_MAGIC: &[u8; 4] = b"NFRM";
/// Records start at multiples of this.
const RECORD_ALIGN: usize = 8;

const _: () = assert!(FRAME_HEADER_BYTES.is_multiple_of(RECORD_ALIGN));
const _: () = assert!(RECORD_HEADER_BYTES.is_multiple_of(RECORD_ALIGN));
const _: () = assert!(BLOCK.is_multiple_of(RECORD_ALIGN));

/// Which segment: the core's directory, the run, the number within the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentId {
    pub(crate) generation: u64,
    pub(crate) core: u32,
    pub(crate) number: u64,
}

impl SegmentId {
    /// `<generation>-<number>.wal`, padded so that names sort.
    pub(crate) fn file_name(self) -> PathBuf {
        PathBuf::from(format!("{:010}-{:010}.wal", self.generation, self.number))
    }

    /// The inverse; `None` for names the log does not give.
    pub(crate) fn parse(core: u32, name: &Path) -> Option<SegmentId> {
        let (generation, number) = name.to_str()?.strip_suffix(".wal")?.split_once('-')?;
        let id = SegmentId { generation: generation.parse().ok()?, core, number: number.parse().ok()? };
        (id.file_name() == name).then_some(id)
    }

    fn seed(self) -> u32 {
        let seed = crc32c::crc32c(&self.generation.to_le_bytes());
        let seed = crc32c::crc32c_append(seed, &self.core.to_le_bytes());
        crc32c::crc32c_append(seed, &self.number.to_le_bytes())
    }

    fn frame_seed(self, offset: u64) -> u32 {
        crc32c::crc32c_append(self.seed(), &offset.to_le_bytes())
    }

    /// What the checksums of a frame's record headers begin with.
    pub(super) fn record_seed(self, flush: u64) -> u32 {
        crc32c::crc32c_append(self.seed(), &flush.to_le_bytes())
    }
}

/// Next multiple of the block size.
pub(super) fn block_up(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK as u64)
}

/// Bytes a record takes inside a frame.
pub(super) fn record_bytes(body: usize) -> usize {
    RECORD_HEADER_BYTES + body.next_multiple_of(RECORD_ALIGN)
}

/// Length of the smallest segment that can hold a record.
pub(super) fn segment_bytes_for(body: usize) -> u64 {
    FRAMES_START + block_up((FRAME_HEADER_BYTES + record_bytes(body)) as u64)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// What the first block of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentHeader {
    /// A version we read.
    Known(SegmentId),
    /// A version we do not.
    Newer(u32),
    /// Not a segment header.
    Bad,
}

/// The first block of a segment.
pub(super) fn encode_segment_header(id: SegmentId) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..8].copy_from_slice(SEGMENT_MAGIC);
    block[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    block[12..16].copy_from_slice(&id.core.to_le_bytes());
    block[16..24].copy_from_slice(&id.generation.to_le_bytes());
    block[24..32].copy_from_slice(&id.number.to_le_bytes());
    let crc = crc32c::crc32c(&block[..SEGMENT_HEADER_BYTES - 4]);
    block[SEGMENT_HEADER_BYTES - 4..SEGMENT_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    block
}

/// Reads the first bytes of a segment.
pub(super) fn decode_segment_header(block: &[u8]) -> SegmentHeader {
    let read = || {
        let header = block.get(..SEGMENT_HEADER_BYTES)?;
        let good = header.starts_with(SEGMENT_MAGIC)
            && u32_at(header, SEGMENT_HEADER_BYTES - 4)?
                == crc32c::crc32c(&header[..SEGMENT_HEADER_BYTES - 4]);
        if !good {
            return None;
        }
        let version = u32_at(header, 8)?;
        if version > FORMAT_VERSION {
            return Some(SegmentHeader::Newer(version));
        }
        Some(SegmentHeader::Known(SegmentId {
            core: u32_at(header, 12)?,
            generation: u64_at(header, 16)?,
            number: u64_at(header, 24)?,
        }))
    };
    read().unwrap_or(SegmentHeader::Bad)
}

/// Header of one flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) flush: u64,
    pub(super) synced: u64,
    /// Bytes of the records, headers and padding included.
    pub(super) bytes: u32,
    pub(super) records: u32,
    /// When it was written, Unix milliseconds; 0 = it does not say so.
    pub(super) unix_ms: u64,
}

impl FrameHeader {
    /// Bytes of the whole frame on disk.
    pub(super) fn frame_bytes(&self) -> u64 {
        block_up(FRAME_HEADER_BYTES as u64 + u64::from(self.bytes))
    }

    /// Writes the header into the first bytes of `frame`, for a frame at `offset`.
    pub(super) fn encode(&self, id: SegmentId, offset: u64, frame: &mut [u8]) {
        let header = &mut frame[..FRAME_HEADER_BYTES];
        header.fill(0);
        header[..4].copy_from_slice(FRAME_MAGIC);
        header[8..16].copy_from_slice(&id.generation.to_le_bytes());
        header[16..24].copy_from_slice(&self.flush.to_le_bytes());
        header[24..32].copy_from_slice(&self.synced.to_le_bytes());
        header[32..36].copy_from_slice(&self.bytes.to_le_bytes());
        header[36..40].copy_from_slice(&self.records.to_le_bytes());
        header[40..48].copy_from_slice(&self.unix_ms.to_le_bytes());
        let crc = crc32c::crc32c_append(id.frame_seed(offset), &header[8..]);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// The header at `offset`, if there is one of this very segment and place.
    pub(super) fn decode(id: SegmentId, offset: u64, bytes: &[u8]) -> Option<FrameHeader> {
        let header = bytes.get(..FRAME_HEADER_BYTES)?;
        let good = header.starts_with(FRAME_MAGIC)
            && u64_at(header, 8)? == id.generation
            && u32_at(header, 4)? == crc32c::crc32c_append(id.frame_seed(offset), &header[8..]);
        if !good {
            return None;
        }
        Some(FrameHeader {
            flush: u64_at(header, 16)?,
            synced: u64_at(header, 24)?,
            bytes: u32_at(header, 32)?,
            records: u32_at(header, 36)?,
            unix_ms: u64_at(header, 40)?,
        })
    }
}

/// Appends a record to a frame of flush `flush`, as its `ordinal`th.
pub(super) fn encode_record(frame: &mut Vec<u8>, seed: u32, ordinal: u32, key: RecordKey, body: &[u8]) {
    let mut header = [0; RECORD_HEADER_BYTES];
    header[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    header[4..8].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    header[8..16].copy_from_slice(&key.collection.to_le_bytes());
    header[16..24].copy_from_slice(&key.seq.to_le_bytes());
    header[24..28].copy_from_slice(&ordinal.to_le_bytes());
    let crc = crc32c::crc32c_append(seed, &header[..28]);
    header[28..].copy_from_slice(&crc.to_le_bytes());
    frame.extend_from_slice(&header);
    frame.extend_from_slice(body);
    frame.resize(frame.len().next_multiple_of(RECORD_ALIGN), 0);
}

/// A record as found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundRecord<'a> {
    /// Both sums hold.
    Good { key: RecordKey, ordinal: u32, body: &'a [u8], end: usize },
    /// The header holds, the body does not (or is cut off): we know what was lost.
    BadBody { key: RecordKey, end: usize },
}

/// Reads the record at `at` of a frame's bytes; `None` when no record of this flush begins there.
pub(super) fn decode_record(frame: &[u8], at: usize, id: SegmentId, flush: u64) -> Option<FoundRecord<'_>> {
    let header = frame.get(at..at.checked_add(RECORD_HEADER_BYTES)?)?;
    if u32_at(header, 28)? != crc32c::crc32c_append(id.record_seed(flush), &header[..28]) {
        return None;
    }
    let body_bytes = u32_at(header, 0)? as usize;
    let key = RecordKey { collection: u64_at(header, 8)?, seq: u64_at(header, 16)? };
    let end = at.checked_add(record_bytes(body_bytes))?;
    let start = at + RECORD_HEADER_BYTES;
    match frame.get(start..start + body_bytes) {
        Some(body) if crc32c::crc32c(body) == u32_at(header, 4)? => {
            Some(FoundRecord::Good { key, ordinal: u32_at(header, 24)?, body, end })
        }
        _ => Some(FoundRecord::BadBody { key, end }),
    }
}

/// Longest good beginning of a frame: how many records, and where they end. Calls `record` for each.
pub(super) fn leading_records(
    frame: &[u8],
    id: SegmentId,
    flush: u64,
    mut record: impl FnMut(RecordKey, &[u8]),
) -> (u32, usize) {
    let (mut count, mut at) = (0u32, FRAME_HEADER_BYTES);
    while let Some(FoundRecord::Good { key, ordinal, body, end }) = decode_record(frame, at, id, flush) {
        if ordinal != count {
            break;
        }
        record(key, body);
        count += 1;
        // The padding of the last record may be cut off.
        at = end;
    }
    (count, at)
}

/// The records wherever they are in a damaged frame, those whose header alone is good among them.
pub(super) fn surviving_records<'a>(
    frame: &'a [u8],
    id: SegmentId,
    flush: u64,
    mut record: impl FnMut(FoundRecord<'a>),
) {
    let mut at = FRAME_HEADER_BYTES;
    while at < frame.len() {
        let found = decode_record(frame, at, id, flush);
        at = match found {
            Some(FoundRecord::Good { end, .. } | FoundRecord::BadBody { end, .. }) => end,
            // A damaged header hides the length: look for the next one. Costs one short sum per 8 bytes.
            None => at + RECORD_ALIGN,
        };
        found.into_iter().for_each(&mut record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: SegmentId = SegmentId { generation: 3, core: 1, number: 7 };

    fn frame(bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0; FRAME_HEADER_BYTES];
        for (index, body) in bodies.iter().enumerate() {
            let key = RecordKey { collection: 5, seq: index as u64 + 1 };
            encode_record(&mut bytes, ID.record_seed(9), index as u32, key, body);
        }
        bytes
    }

    #[test]
    fn names_parse_back_and_strangers_do_not() {
        assert_eq!(SegmentId::parse(1, &ID.file_name()), Some(ID));
        let largest = SegmentId { generation: u64::MAX, core: 0, number: u64::MAX };
        assert_eq!(SegmentId::parse(0, &largest.file_name()), Some(largest));
        for name in ["", "x", "1-2.wal", "0000000001-0000000002.wal.tmp", "0000000001-+000000002.wal"] {
            assert_eq!(SegmentId::parse(0, Path::new(name)), None, "{name}");
        }
    }

    #[test]
    fn a_segment_header_reads_back_and_every_flipped_bit_is_seen() {
        let block = encode_segment_header(ID);
        assert_eq!(decode_segment_header(&block), SegmentHeader::Known(ID));
        for bit in 0..64 * 8 {
            let mut block = block.clone();
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_segment_header(&block), SegmentHeader::Bad, "bit {bit}");
        }
        let mut newer = block;
        newer[8..12].copy_from_slice(&3u32.to_le_bytes());
        let crc = crc32c::crc32c(&newer[..60]);
        newer[60..64].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode_segment_header(&newer), SegmentHeader::Newer(3));
    }

    #[test]
    fn a_frame_header_is_bound_to_its_place() {
        let header = FrameHeader { flush: 9, synced: 8, bytes: 96, records: 3, unix_ms: 77 };
        let mut bytes = vec![0; BLOCK];
        header.encode(ID, 8192, &mut bytes);
        assert_eq!(FrameHeader::decode(ID, 8192, &bytes), Some(header));
        assert_eq!(FrameHeader::decode(ID, 4096, &bytes), None);
        assert_eq!(FrameHeader::decode(SegmentId { generation: 4, ..ID }, 8192, &bytes), None);
        assert_eq!(FrameHeader::decode(SegmentId { number: 8, ..ID }, 8192, &bytes), None);
    }

    proptest! {
        #[test]
        fn records_read_back(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..20)) {
            let bytes = frame(&bodies);
            let mut read = Vec::new();
            let (count, end) = leading_records(&bytes, ID, 9, |_, body| read.push(body.to_vec()));
            prop_assert_eq!(end, bytes.len());
            prop_assert_eq!(count as usize, bodies.len());
            prop_assert_eq!(read, bodies);
            prop_assert_eq!(leading_records(&bytes, ID, 10, |_, _| ()).0, 0, "bound to the flush");
        }

        #[test]
        fn one_flipped_bit_costs_at_most_one_record(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..20),
            at in any::<prop::sample::Index>(),
        ) {
            let mut bytes = frame(&bodies);
            let bit = at.index((bytes.len() - FRAME_HEADER_BYTES) * 8);
            bytes[FRAME_HEADER_BYTES + bit / 8] ^= 1 << (bit % 8);
            let mut read = Vec::new();
            surviving_records(&bytes, ID, 9, |record| {
                if let FoundRecord::Good { key, body, .. } = record {
                    read.push((key.seq, body.to_vec()));
                }
            });
            prop_assert!(read.len() + 1 >= bodies.len());
            for (seq, body) in read {
                prop_assert_eq!(&body, &bodies[seq as usize - 1]);
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_segment_header(&bytes);
            let _ = FrameHeader::decode(ID, 0, &bytes);
            surviving_records(&bytes, ID, 9, |_| ());
        }
    }
}
