//! The log on the simulated disk.
mod crash;
mod damage;
mod golden;
mod running;

use super::*;
use crate::disk::{Disk, LocalBoxFuture, SimDisk};
use crate::sim::{self, Sim};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where the tests keep their logs.
const ROOT: &str = "log";
/// Small, so that segments change often.
const SEGMENT_BYTES: u64 = 8 * 4096;

type Record = (RecordKey, Vec<u8>);

fn key(collection: u64, seq: u64) -> RecordKey {
    RecordKey { collection, seq }
}

/// Records of `collection` numbered from 1, of various lengths.
fn records(collection: u64, count: u64) -> Vec<Record> {
    (1..=count).map(|seq| (key(collection, seq), vec![seq as u8; (seq * 37 % 300) as usize])).collect()
}

fn config(core: u32, generation: u64, sync: SyncMode) -> LogConfig {
    let dir = Path::new(ROOT).join(core.to_string());
    LogConfig { dir, generation, segment_bytes: SEGMENT_BYTES, sync, owners: None }
}

fn sleeper(sim: &Sim) -> Rc<dyn Fn(u64) -> LocalBoxFuture<'static, ()>> {
    let sim = sim.clone();
    Rc::new(move |us| Box::pin(sim.sleep_us(us)))
}

/// A running log of core 0.
async fn start(sim: &Sim, disk: &SimDisk, generation: u64, sync: SyncMode) -> Rc<Log> {
    let log =
        Log::create(Rc::new(disk.clone()), config(0, generation, sync)).await.expect("the disk is well");
    sim.spawn(log.clone().flush_loop(sleeper(sim)));
    log
}

/// Appends and waits, one flush per record.
async fn write_all(log: &Log, records: &[Record]) {
    for (key, body) in records {
        log.make_room(body.len()).await.unwrap();
        let ticket = log.append(*key, body).unwrap();
        log.durable(ticket).await.unwrap();
    }
}

async fn scan_all(disk: &SimDisk) -> (Vec<Record>, ScanReport) {
    let mut found = Vec::new();
    let report = scan(disk, Path::new(ROOT), &mut |key, body| found.push((key, body.to_vec()))).await;
    let report = report.expect("a scan of bad bytes is no error");
    // What was found can be read again, whatever is damaged or was cut.
    let mut again = Vec::new();
    let mut take = |key, body: &[u8]| {
        again.push((key, body.to_vec()));
        std::ops::ControlFlow::Continue(())
    };
    if report.segments.read_again(disk, &|_, _| true, &mut take).await.is_ok() {
        assert_eq!(again, found, "read again");
    }
    (found, report)
}

fn scan_now(disk: &SimDisk) -> (Vec<Record>, ScanReport) {
    futures_lite::future::block_on(scan_all(disk))
}

/// A disk on which `records` were written by generation 1 of core 0, one flush each, and the log stopped.
fn written_disk(records: &[Record]) -> SimDisk {
    let disk = SimDisk::new(1);
    sim::run(1, |sim| {
        let (disk, records) = (disk.clone(), records.to_vec());
        async move {
            let log = start(&sim, &disk, 1, SyncMode::Always).await;
            write_all(&log, &records).await;
            log.stop().await;
        }
    });
    disk
}

fn segment_path(core: u32, generation: u64, number: u64) -> PathBuf {
    let id = format::SegmentId { generation, core, number };
    Path::new(ROOT).join(core.to_string()).join(id.file_name())
}
