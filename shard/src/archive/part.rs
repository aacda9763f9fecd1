//! An object of the archive that has frames of a segment.
//!
//! ```text
//! part = magic "NIGHARC\0", version u32, crc32c u32 of all other bytes, generation u64, core u32, zeros u32, number u64 of the segment,
//!        offset u64 of the first frame, first u64 and last u64 time of a frame in Unix milliseconds, bytes u64 of frames, frames    little-endian
//! ```

use super::names::PartName;
use crate::backup::StoreError;
use crate::log::{Frames, SegmentId};

const MAGIC: &[u8; 8] = b"NIGHARC\0";
/// Version written, and the newest one read.
pub(super) const VERSION: u32 = 1;
const CHECKSUM_AT: usize = 12;
pub(super) const HEAD_BYTES: usize = 72;

fn checksum(object: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&object[..CHECKSUM_AT]);
    crc32c::crc32c_append(crc, &object[CHECKSUM_AT + 4..])
}

/// The object that has `frames` of the segment `id`.
pub(super) fn encode(id: SegmentId, frames: &Frames) -> Vec<u8> {
    let mut object = Vec::with_capacity(HEAD_BYTES + frames.bytes.len());
    object.extend_from_slice(MAGIC);
    object.extend_from_slice(&VERSION.to_le_bytes());
    object.extend_from_slice(&[0; 4]);
    object.extend_from_slice(&id.generation.to_le_bytes());
    object.extend_from_slice(&id.core.to_le_bytes());
    object.extend_from_slice(&[0; 4]);
    for number in [id.number, frames.begin, frames.first_ms, frames.last_ms, frames.bytes.len() as u64] {
        object.extend_from_slice(&number.to_le_bytes());
    }
    object.extend_from_slice(&frames.bytes);
    let crc = checksum(&object);
    object[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&crc.to_le_bytes());
    object
}

/// The frames of the object `key`, which is to be the part `name`.
///
/// # Errors
/// [`StoreError::Damaged`]: it is not one, is of a newer version, is cut or altered, or is another part.
pub(super) fn decode<'a>(key: &str, name: PartName, object: &'a [u8]) -> Result<&'a [u8], StoreError> {
    let damaged = |why: String| StoreError::Damaged { key: key.to_owned(), why };
    let u64_at = |at: usize| u64::from_le_bytes(object[at..at + 8].try_into().expect("eight bytes"));
    let u32_at = |at: usize| u32::from_le_bytes(object[at..at + 4].try_into().expect("four bytes"));
    if object.len() < HEAD_BYTES {
        return Err(damaged(format!(
            "it has {} bytes, fewer than the head of a part of a log",
            object.len()
        )));
    }
    if !object.starts_with(MAGIC) {
        return Err(damaged("it is no part of a log".to_owned()));
    }
    let version = u32_at(8);
    if version > VERSION {
        return Err(damaged(format!(
            "it has version {version}, and this build reads versions up to {VERSION}"
        )));
    }
    if u32_at(CHECKSUM_AT) != checksum(object) {
        return Err(damaged("its checksum does not match: it is cut or altered".to_owned()));
    }
    let id = SegmentId { generation: u64_at(16), core: u32_at(24), number: u64_at(32) };
    let frames = &object[HEAD_BYTES..];
    let end = u64_at(40).saturating_add(frames.len() as u64);
    let found = PartName { id, begin: u64_at(40), end, last_ms: u64_at(56) };
    if found != name || u64_at(64) != frames.len() as u64 {
        return Err(damaged("it is another part of a log than its key says".to_owned()));
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_as_it_was_written_and_any_other_byte_is_noticed() {
        let id = SegmentId { generation: 3, core: 1, number: 9 };
        let frames = Frames { begin: 4096, end: 8192, bytes: vec![7; 4096], first_ms: 10, last_ms: 20 };
        let name = PartName { id, begin: 4096, end: 8192, last_ms: 20 };
        let good = encode(id, &frames);
        assert_eq!(decode("k", name, &good).unwrap(), &frames.bytes[..]);
        for len in (0..HEAD_BYTES).chain([good.len() - 1]) {
            assert!(decode("k", name, &good[..len]).is_err(), "{len}");
        }
        for at in (0..HEAD_BYTES).chain([HEAD_BYTES, good.len() - 1]) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let error = decode("log/k", name, &bad).unwrap_err();
            assert!(matches!(&error, StoreError::Damaged { key, .. } if key == "log/k"), "{at}: {error}");
        }
        for other in [
            PartName { begin: 0, ..name },
            PartName { last_ms: 21, ..name },
            PartName { id: SegmentId { number: 8, ..id }, ..name },
        ] {
            assert!(decode("k", other, &good).is_err());
        }
    }
}
