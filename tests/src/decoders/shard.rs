//! Decoders of the files in a data directory: log segments, log record bodies, checkpoint images, manifests.
//!
//! Checksums stop nearly all damage at the door, and with it a fuzzer. So each file is read twice: as it is, and with
//! every checksum that can be found made right, which shows what lies behind the door.

use futures_lite::future::block_on;
use nigh_shard::checkpoint::{CheckpointError, Manifest, read_image};
use nigh_shard::disk::SimDisk;
use nigh_shard::log::{RecordKey, scan};
use nigh_shard::owner::effect::{self, Effect};
use std::io;
use std::path::Path;

/// Whole blocks of a file.
const BLOCK: usize = 4096;
/// Where both kinds of headers keep their own sum.
const HEADER_SUM: usize = 60;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Writes the sum of `bytes[covered]`, continued from `seed`, at `at`, if both places exist.
fn put_sum(bytes: &mut [u8], at: usize, seed: u32, covered: std::ops::Range<usize>) -> Option<()> {
    let sum = crc32c::crc32c_append(seed, bytes.get(covered)?);
    bytes.get_mut(at..at + 4)?.copy_from_slice(&sum.to_le_bytes());
    Some(())
}

/// Segment 1 of run 0x1234 of core 3, as the kept one of format 1.
const SEGMENT: &str = "log/3/0000004660-0000000001.wal";
const SEGMENT_ID: (u64, u32, u64) = (0x1234, 3, 1);

/// Any bytes as a segment: a scan delivers what is good, cuts the end that is not, and what it
/// leaves is not cut again.
pub(super) fn log_segment(bytes: &[u8]) {
    scan_segment(bytes.to_vec());
    let mut bytes = bytes.to_vec();
    right_segment_sums(&mut bytes);
    scan_segment(bytes);
}

fn scan_segment(bytes: Vec<u8>) {
    let disk = SimDisk::new(1);
    disk.put(SEGMENT, bytes);
    let read = || {
        let mut found: Vec<(RecordKey, Vec<u8>)> = Vec::new();
        let report =
            block_on(scan(&disk, Path::new("log"), &mut |key, body| found.push((key, body.to_vec()))));
        report.map(|report| (found, report))
    };
    match read() {
        Ok((first, report)) => {
            let (second, again) = read().expect("what was read once can be read again");
            assert_eq!(again.torn_bytes, 0, "a second scan cuts again");
            let lost = |report: &nigh_shard::log::ScanReport| {
                report.lost.iter().map(|key| (key.collection, key.seq)).collect::<Vec<_>>()
            };
            assert_eq!(lost(&again), lost(&report), "a second scan knows of other losses");
            assert_eq!(second, first, "a second scan differs ({:?}, then {:?})", report.damage, again.damage);
        }
        // A segment of a later format is refused and left alone.
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}"),
    }
}

fn right_segment_sums(bytes: &mut [u8]) -> Option<()> {
    let (generation, core, number) = SEGMENT_ID;
    let seed = crc32c::crc32c(&generation.to_le_bytes());
    let seed = crc32c::crc32c_append(seed, &core.to_le_bytes());
    let seed = crc32c::crc32c_append(seed, &number.to_le_bytes());
    put_sum(bytes, HEADER_SUM, 0, 0..HEADER_SUM)?;
    let mut frame = BLOCK;
    while bytes.get(frame..frame + 4)? == b"NFRM" {
        let flush = u64_at(bytes, frame + 16)?;
        let frame_end = frame + 64 + u32_at(bytes, frame + 32)? as usize;
        let record_seed = crc32c::crc32c_append(seed, &flush.to_le_bytes());
        let mut record = frame + 64;
        while record + 32 <= frame_end {
            let body = record + 32;
            let body_end = body + u32_at(bytes, record)? as usize;
            // A body that leaves the file keeps its wrong sum.
            let _ = put_sum(bytes, record + 4, 0, body..body_end);
            put_sum(bytes, record + 28, record_seed, record..record + 28)?;
            record = body_end.next_multiple_of(8);
        }
        let frame_seed = crc32c::crc32c_append(seed, &(frame as u64).to_le_bytes());
        put_sum(bytes, frame + 4, frame_seed, frame + 8..frame + 64)?;
        frame = frame_end.next_multiple_of(BLOCK);
    }
    Some(())
}

pub(super) fn log_segment_seeds() -> Vec<Vec<u8>> {
    let kept = include_bytes!("../../../shard/testdata/log-1.wal");
    vec![kept.to_vec(), kept[..2 * BLOCK].to_vec(), kept[..BLOCK].to_vec()]
}

/// Any bytes as the body of a log record; what decodes encodes to the same bytes.
pub(super) fn log_record(bytes: &[u8]) {
    let Ok(effect) = effect::decode(bytes) else { return };
    let mut again = Vec::new();
    effect.encode(&mut again);
    assert_eq!(again, bytes);
}

pub(super) fn log_record_seeds() -> Vec<Vec<u8>> {
    let write = |id, version, deadline_ms, vector: &[f32], row| {
        encoded(&Effect::Write { id, version, deadline_ms, vector: vector.into(), row })
    };
    let rows = super::engine::payload_row_seeds();
    let mut seeds = vec![write(1, 1, 0, &[0.5, -1.0], &[]), encoded(&Effect::Delete { id: 9 })];
    for row in &rows {
        seeds.push(write(u64::MAX, 7, 1_700_000_000_000, &[1.0], row));
        seeds.push(encoded(&Effect::Payload { id: 3, version: 2, row }));
    }
    seeds
}

fn encoded(effect: &Effect<'_>) -> Vec<u8> {
    let mut record = Vec::new();
    effect.encode(&mut record);
    record
}

/// Any bytes as an image file: its blocks, or where it is damaged.
pub(super) fn checkpoint_image(bytes: &[u8]) {
    let mut right = bytes.to_vec();
    right_image_sums(&mut right);
    for bytes in [bytes.to_vec(), right] {
        let len = bytes.len() as u64;
        let disk = SimDisk::new(1);
        disk.put("c/i", bytes);
        let mut body_bytes = 0;
        let mut block = |body: &[u8]| {
            body_bytes += body.len() as u64;
            Ok(())
        };
        match block_on(read_image(&disk, Path::new("c"), "i", STORE, &mut block)) {
            Ok(_) => assert!(body_bytes < len, "{body_bytes} of {len}"),
            Err(CheckpointError::Corrupt { offset, .. }) => assert!(offset <= len, "{offset} of {len}"),
            Err(CheckpointError::Newer { found, known, .. }) => assert!(found > known),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The uid of the store to which the decoded files belong.
const STORE: u64 = 7;

/// Makes the header of a file say where it belongs, in versions from `bound` on, and returns what its checksums begin with.
fn right_place(bytes: &mut [u8], bound: u32, name: &[u8]) -> Option<u32> {
    let version = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
    let mut seed = 0;
    if version >= bound {
        bytes.get_mut(12..20)?.copy_from_slice(&STORE.to_le_bytes());
        bytes.get_mut(20..24)?.copy_from_slice(&crc32c::crc32c(name).to_le_bytes());
        seed = crc32c::crc32c_append(crc32c::crc32c(&STORE.to_le_bytes()), name);
    }
    put_sum(bytes, HEADER_SUM, 0, 0..HEADER_SUM)?;
    Some(seed)
}

fn right_image_sums(bytes: &mut [u8]) -> Option<()> {
    let seed = right_place(bytes, 3, b"i")?;
    let mut block = BLOCK;
    while bytes.get(block..block + 4)? == b"NBLK" {
        let body = block + 32;
        let body_end = body.checked_add(usize::try_from(u64_at(bytes, block + 8)?).ok()?)?;
        let _ = put_sum(bytes, block + 24, 0, body..body_end);
        put_sum(bytes, block + 28, seed, block..block + 28)?;
        block = body_end;
    }
    Some(())
}

pub(super) fn checkpoint_image_seeds() -> Vec<Vec<u8>> {
    vec![
        include_bytes!("../../../shard/testdata/image-1.img").to_vec(),
        include_bytes!("../../../shard/testdata/image-3.img").to_vec(),
    ]
}

/// Any bytes as a manifest: file names that stay in their directory, or damage. What loads is stored and loads again.
pub(super) fn checkpoint_manifest(bytes: &[u8]) {
    let mut right = bytes.to_vec();
    right_manifest_sums(&mut right);
    for bytes in [bytes.to_vec(), right] {
        let disk = SimDisk::new(1);
        let dir = Path::new("c");
        disk.put("c/manifest", bytes);
        let Ok(manifest) = block_on(Manifest::load(&disk, dir, STORE)) else { continue };
        for (name, _) in &manifest.images {
            let path = dir.join(name);
            let inside =
                path.parent() == Some(dir) && path.file_name().is_some_and(|file| file == name.as_str());
            assert!(inside, "{name:?}");
        }
        block_on(manifest.store(&disk, dir, STORE)).expect("the disk is well");
        assert_eq!(block_on(Manifest::load(&disk, dir, STORE)).expect("it was just stored"), manifest);
    }
}

fn right_manifest_sums(bytes: &mut [u8]) -> Option<()> {
    let body = 72;
    let seed = right_place(bytes, 2, b"manifest")?;
    let body_bytes = u32::try_from(bytes.len().checked_sub(body)?).ok()?;
    bytes[64..68].copy_from_slice(&body_bytes.to_le_bytes());
    put_sum(bytes, 68, seed, body..bytes.len())
}

pub(super) fn checkpoint_manifest_seeds() -> Vec<Vec<u8>> {
    let stored = |manifest: &Manifest| {
        let disk = SimDisk::new(1);
        disk.put("c/manifest", Vec::new());
        block_on(manifest.store(&disk, Path::new("c"), STORE)).expect("the disk is well");
        disk.bytes("c/manifest").expect("it was just stored")
    };
    let several = Manifest {
        seq: 9,
        images: (0..5).map(|i| (format!("image-{i}"), i)).collect(),
        vectors: Some("1.vec".into()),
    };
    vec![
        include_bytes!("../../../shard/testdata/manifest-1").to_vec(),
        stored(&Manifest::default()),
        stored(&several),
    ]
}
