//! Format versions as they were written when they were new: `shard/testdata/log-1.wal` and the like.
use super::*;

const GOLDEN_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/log-1.wal");
const GOLDEN_2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/log-2.wal");

fn golden_records() -> Vec<Record> {
    vec![
        (key(1, 1), b"first".to_vec()),
        (key(0x0123_4567_89ab_cdef, u64::MAX), Vec::new()),
        (key(1, 2), (0..=255).collect()),
    ]
}

/// Two flushes: the first two records, then the third.
fn segment_of_today() -> Vec<u8> {
    let disk = SimDisk::new(1);
    sim::run(1, |sim| {
        let disk = disk.clone();
        async move {
            let config = LogConfig { segment_bytes: 4 * 4096, ..config(3, 0x1234, SyncMode::Always) };
            let log = Log::create(Rc::new(disk), config).await.unwrap();
            sim.spawn(log.clone().flush_loop(sleeper(&sim)));
            let records = golden_records();
            for batch in [&records[..2], &records[2..]] {
                let tickets: Vec<Ticket> =
                    batch.iter().map(|(k, body)| log.append(*k, body).unwrap()).collect();
                log.durable(tickets[0]).await.unwrap();
            }
            log.stop().await;
        }
    });
    disk.bytes(segment_path(3, 0x1234, 1)).unwrap()
}

#[test]
fn every_version_opens_for_ever() {
    for golden in [GOLDEN_1, GOLDEN_2] {
        let golden = std::fs::read(golden).unwrap();
        let disk = SimDisk::new(1);
        disk.put(segment_path(3, 0x1234, 1), golden);
        let (found, report) = scan_now(&disk);
        assert_eq!(found, golden_records());
        assert_eq!((report.generation_max, report.torn_bytes, report.damage.len()), (0x1234, 0, 0));
    }
}

/// A change of what is written needs a new version, and a new golden file beside the old one:
/// `NIGH_WRITE_GOLDEN=1 cargo test -p nigh-shard golden` writes it.
#[test]
fn what_is_written_today_is_version_2() {
    let written = segment_of_today();
    if std::env::var_os("NIGH_WRITE_GOLDEN").is_some() {
        std::fs::write(GOLDEN_2, &written).unwrap();
    }
    assert!(std::fs::read(GOLDEN_2).unwrap() == written, "the bytes of a segment have changed");
}
