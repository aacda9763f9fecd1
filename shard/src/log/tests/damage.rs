//! Logs that were cut, flipped or made up.
use super::*;
use crate::log::format::{FrameHeader, SegmentHeader, SegmentId};
use proptest::prelude::*;

/// Offsets and headers of the frames of a segment.
fn frames(bytes: &[u8], id: SegmentId) -> Vec<(usize, FrameHeader)> {
    let blocks = (4096..bytes.len()).step_by(4096);
    blocks.filter_map(|at| Some((at, FrameHeader::decode(id, at as u64, &bytes[at..])?))).collect()
}

const ID: SegmentId = SegmentId { generation: 1, core: 0, number: 1 };

/// Several records per flush, `flushes` of them, all in one segment.
fn batched_disk(flushes: u64, per_flush: u64) -> (SimDisk, Vec<Record>) {
    batched_disk_at(flushes, per_flush, None)
}

/// The same with this time in the first frame, and the next millisecond in each frame behind it.
fn batched_disk_at(flushes: u64, per_flush: u64, first_ms: Option<u64>) -> (SimDisk, Vec<Record>) {
    let disk = SimDisk::new(1);
    let all = records(3, flushes * per_flush);
    sim::run(1, |sim| {
        let (disk, all) = (disk.clone(), all.clone());
        async move {
            let config = LogConfig { segment_bytes: 20 * 4096, ..config(0, 1, SyncMode::Always) };
            let log = Log::create(Rc::new(disk), config).await.unwrap();
            if let Some(first_ms) = first_ms {
                let next_ms = std::cell::Cell::new(first_ms);
                log.set_clock(Rc::new(move || next_ms.replace(next_ms.get() + 1)));
            }
            sim.spawn(log.clone().flush_loop(sleeper(&sim)));
            for batch in all.chunks(per_flush as usize) {
                let tickets: Vec<Ticket> =
                    batch.iter().map(|(key, body)| log.append(*key, body).unwrap()).collect();
                log.durable(tickets[0]).await.unwrap();
            }
        }
    });
    (disk, all)
}

#[test]
fn cut_at_every_byte_of_its_end_a_log_loses_only_what_was_cut() {
    let (disk, all) = batched_disk(6, 8);
    let path = segment_path(0, 1, 1);
    let bytes = disk.bytes(&path).unwrap();
    let (last, header) = *frames(&bytes, ID).last().unwrap();
    let data_end = last + 64 + header.bytes as usize;
    // Where each record of the last frame ends.
    let (mut ends, mut at) = (Vec::new(), last + 64);
    for (_, body) in &all[all.len() - 8..] {
        ends.push(at + 32 + body.len());
        at += 32 + body.len().next_multiple_of(8);
    }
    for cut in data_end - 4096..=data_end {
        for zeros in [false, true] {
            let mut left = bytes[..cut].to_vec();
            if zeros {
                left.resize(bytes.len(), 0);
            }
            let disk = SimDisk::new(1);
            disk.put(&path, left);
            let whole = if cut > last { all.len() - 8 } else { all.len() - 16 };
            let mut expected = whole + ends.iter().filter(|&&end| end <= cut).count();
            let (found, report) = scan_now(&disk);
            if cut <= last {
                // The cut is in the frame before.
                assert!(found.len() >= whole && found.len() <= whole + 8);
                expected = found.len();
            } else if zeros && found.len() > expected {
                // Zeros put back what was zero.
                expected = found.len();
            }
            assert!(found == all[..expected], "cut at {cut}: {} of {expected}", found.len());
            assert_eq!(report.damage, Vec::<String>::new());
            // The cut is on the disk now: the second scan finds a whole log.
            let (again, report) = scan_now(&disk);
            assert!(again == found);
            assert_eq!(report.torn_bytes, 0, "cut at {cut}");
        }
    }
}

#[test]
fn a_torn_end_is_counted_and_a_later_run_goes_on() {
    let (disk, all) = batched_disk(3, 4);
    let path = segment_path(0, 1, 1);
    let mut bytes = disk.bytes(&path).unwrap();
    let (last, _) = *frames(&bytes, ID).last().unwrap();
    bytes[last + 70] ^= 1;
    disk.put(&path, bytes);
    let (found, report) = scan_now(&disk);
    assert!(found == all[..8]);
    assert!(report.torn_bytes > 0 && report.damage.is_empty());
    sim::run(1, |sim| {
        let disk = disk.clone();
        async move {
            let log = start(&sim, &disk, 2, SyncMode::Always).await;
            write_all(&log, &[(key(3, 9), vec![1])]).await;
        }
    });
    let (found, report) = scan_now(&disk);
    assert_eq!(found.len(), 9);
    assert_eq!((report.torn_bytes, report.damage.len()), (0, 0));
}

/// What is kept of a torn tail is there from the start on that has kept it. A restore of the archive to an earlier moment must not bring it.
#[test]
fn what_a_scan_keeps_of_a_torn_tail_has_a_time() {
    // The byte that is altered, the time of the scan, and the time of the frame that is kept; the frames were written at 1000, 1001 and 1002.
    for (flipped, now_ms, expected_ms) in [(5, 5_000, 5_000), (5, 7, 1_001), (70, 5_000, 1_002)] {
        let (disk, _) = batched_disk_at(3, 4, Some(1_000));
        let path = segment_path(0, 1, 1);
        let mut bytes = disk.bytes(&path).unwrap();
        let (last, _) = *frames(&bytes, ID).last().unwrap();
        bytes[last + flipped] ^= 1;
        disk.put(&path, bytes);
        let (root, ledgers, room) = (Path::new(ROOT), Ledgers::default(), &crate::log::ledger::NoRoom);
        for now_ms in [now_ms, 9_000] {
            futures_lite::future::block_on(scan_with(&disk, root, &ledgers, room, now_ms, &mut |_, _| ()))
                .unwrap();
            let times: Vec<u64> =
                frames(&disk.bytes(&path).unwrap(), ID).iter().map(|(_, header)| header.unix_ms).collect();
            assert_eq!(times, [1_000, 1_001, expected_ms], "byte {flipped}, scan at {now_ms}");
        }
    }
}

#[test]
fn a_last_frame_without_its_header_gives_up_its_records() {
    let (disk, all) = batched_disk(3, 4);
    let path = segment_path(0, 1, 1);
    let mut bytes = disk.bytes(&path).unwrap();
    let (last, _) = *frames(&bytes, ID).last().unwrap();
    bytes[last + 5] ^= 1;
    disk.put(&path, bytes);
    let (found, report) = scan_now(&disk);
    assert!(found == all && report.damage.is_empty());
    let bytes = disk.bytes(&path).unwrap();
    assert_eq!(frames(&bytes, ID).len(), 3, "the frame was written anew");
    assert!(scan_now(&disk).0 == all);
    // The same in a run of which nothing else is there.
    let (disk, all) = batched_disk(1, 4);
    let mut bytes = disk.bytes(&path).unwrap();
    bytes[4096] ^= 1;
    disk.put(&path, bytes);
    assert!(scan_now(&disk).0 == all);
}

#[test]
fn damage_in_the_middle_is_reported_and_costs_only_what_it_hit() {
    let (disk, all) = batched_disk(5, 4);
    let path = segment_path(0, 1, 1);
    let bytes = disk.bytes(&path).unwrap();
    let (at, header) = frames(&bytes, ID)[2];
    for (name, spot, lost) in [
        ("frame header", at + 20, 0),
        ("record header", at + 64 + 9, 1),
        ("record body", at + 64 + 32 + 1, 1),
    ] {
        let mut bytes = bytes.clone();
        bytes[spot] ^= 0x10;
        disk.put(&path, bytes);
        let (found, report) = scan_now(&disk);
        assert_eq!(found.len(), all.len() - lost, "{name}");
        assert!(found.iter().all(|record| all.contains(record)));
        assert_eq!(report.damage.len(), 1, "{name}: {:?}", report.damage);
        assert!(report.damage[0].contains("0000000001-0000000001.wal"), "{:?}", report.damage);
        assert!(report.damage[0].contains(&format!("byte {at}")), "{:?}", report.damage);
        assert_eq!(report.torn_bytes, 0);
        let known = if name == "record body" { vec![all[8].0] } else { Vec::new() };
        assert_eq!(report.lost, known);
        let (again, report) = scan_now(&disk);
        assert!(again == found && report.damage.len() == 1, "{name}: nothing was changed");
    }
    let mut bytes = bytes;
    bytes[at..at + header.frame_bytes() as usize].fill(0);
    disk.put(&path, bytes);
    let (found, report) = scan_now(&disk);
    assert_eq!((found.len(), report.damage.len()), (all.len() - 4, 1));
}

#[test]
fn a_missing_or_renamed_segment_is_reported() {
    let all = records(1, 100);
    let disk = written_disk(&all);
    let second = segment_path(0, 1, 2);
    let bytes = disk.bytes(&second).unwrap();
    futures_lite::future::block_on(disk.remove(&second)).unwrap();
    let (found, report) = scan_now(&disk);
    assert!(found.len() < 100 && found.last() == all.last());
    assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
    let stranger = segment_path(0, 3, 1);
    disk.put(&stranger, bytes.clone());
    let (_, report) = scan_now(&disk);
    assert_eq!(report.damage.len(), 2, "{:?}", report.damage);
    assert_eq!(disk.bytes(&stranger).unwrap(), bytes, "left alone");
    assert_eq!(report.generation_max, 3);
}

#[test]
fn a_damaged_segment_header_does_not_hide_the_frames() {
    let all = records(1, 10);
    let disk = written_disk(&all);
    let path = segment_path(0, 1, 1);
    let mut bytes = disk.bytes(&path).unwrap();
    bytes[3] ^= 1;
    disk.put(&path, bytes);
    let (found, report) = scan_now(&disk);
    assert!(found == all);
    assert_eq!(report.damage.len(), 1);
}

#[test]
fn a_newer_format_is_refused_before_anything_is_cut() {
    let (disk, _) = batched_disk(3, 4);
    let path = segment_path(0, 1, 1);
    let mut bytes = disk.bytes(&path).unwrap();
    let (last, _) = *frames(&bytes, ID).last().unwrap();
    bytes[last + 70] ^= 1;
    disk.put(&path, bytes.clone());
    let mut newer = format::encode_segment_header(SegmentId { generation: 9, core: 2, number: 1 });
    newer[8..12].copy_from_slice(&7u32.to_le_bytes());
    let crc = crc32c::crc32c(&newer[..60]);
    newer[60..64].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(format::decode_segment_header(&newer), SegmentHeader::Newer(7));
    disk.put(segment_path(2, 9, 1), newer);
    let refused = futures_lite::future::block_on(scan(&disk, Path::new(ROOT), &mut |_, _| ()));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("format 7, newer than 2"), "{text}");
    assert_eq!(disk.bytes(&path).unwrap(), bytes);
}

#[test]
fn an_interrupted_allocation_is_no_damage() {
    let all = records(1, 10);
    let disk = written_disk(&all);
    for (number, len) in [(8, 0), (9, 100), (10, 4096), (11, 3 * 4096)] {
        disk.put(segment_path(0, 1, number), vec![0; len]);
    }
    let (found, report) = scan_now(&disk);
    assert!(found == all);
    assert_eq!((report.damage.len(), report.torn_bytes), (0, 0));
}

fn check_any_bytes(disk: &SimDisk, all: &[Record]) {
    let (found, _) = scan_now(disk);
    assert!(found.iter().all(|record| all.contains(record)), "a record nobody wrote");
    let (again, report) = scan_now(disk);
    assert!(again.iter().all(|record| found.contains(record)));
    assert_eq!(report.torn_bytes, 0, "the first scan has cut");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn mangled_segments_never_panic_and_never_invent(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..5000, any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let all = records(1, 60);
        let disk = written_disk(&all);
        for (index, (at, len, byte)) in edits.into_iter().enumerate() {
            let paths = disk.paths();
            let path = &paths[index % paths.len()];
            let mut bytes = disk.bytes(path).unwrap();
            let at = at.index(bytes.len());
            let end = (at + len).min(bytes.len());
            bytes[at..end].fill(byte);
            disk.put(path, bytes);
        }
        if let Some(cut) = cut {
            let path = segment_path(0, 1, 2);
            let mut bytes = disk.bytes(&path).unwrap();
            bytes.truncate(cut.index(bytes.len()));
            disk.put(&path, bytes);
        }
        check_any_bytes(&disk, &all);
    }

    #[test]
    fn any_bytes_are_a_log(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
        let disk = SimDisk::new(1);
        disk.put(segment_path(0, 1, 1), bytes);
        check_any_bytes(&disk, &[]);
    }
}
