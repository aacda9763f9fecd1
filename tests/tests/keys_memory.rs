//! Keys and values of mixed sizes and lives, written many times over what the budget holds: memory stays within it, by what the kernel
//! counts for the process, and it is told how much of it is waste.
//!
//! Some 25 s; several minutes with `NIGH_TEST_LONG=1`.
use nigh_tests::{Args, Server, SplitMix, Wire, frame, long};
use std::time::{Duration, Instant};

/// Of keys and values.
const BUDGET: u64 = 256 << 20;
/// What the process has beside them: programs, stacks, rings, buffers of connections.
const BESIDE: u64 = 96 << 20;
const WRITERS: u64 = 4;

fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("the kernel says it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
}

/// A family of the page about keys.
fn figure(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("svc_kv_{name} ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {page}"))
}

fn churn(mut wire: Wire, mut random: SplitMix, until: Instant) -> u64 {
    let value = vec![7; 512 << 10];
    let mut written = 0;
    while Instant::now() < until {
        let mut bytes = Vec::new();
        for _ in 0..16 {
            let key = Args::new().s16(random.below(3_000_000).to_be_bytes());
            let length = match random.below(1000) {
                0..700 => random.below(100),
                700..980 => random.below(4_000),
                980..999 => random.below(60_000),
                _ => random.below(512 << 10),
            } as usize;
            let ttl = if random.below(2) == 0 { 0 } else { 1 + random.below(5_000) };
            written += length as u64;
            bytes.extend(match random.below(10) {
                0 => frame("del", &key.0),
                _ => frame("put", &key.s32(&value[..length]).u64(ttl).0),
            });
        }
        wire.send(&bytes);
        for _ in 0..16 {
            let response = wire.response();
            assert_eq!(response.status, 0, "a put never fails for lack of room: {response:?}");
        }
    }
    written
}

fn check(flags: &[&str]) {
    let config = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(config.path(), format!(r#"{{"cache":{{"max_memory":"{}MiB"}}}}"#, BUDGET >> 20))
        .expect("it is written");
    let path = config.path().to_str().expect("a plain path");
    let common =
        ["-config", path, "-shards", "16", "-cores", "2", "-tcp", "127.0.0.1:0", "-ttl-sweep-interval", "1s"];
    let server = Server::start(None, &[&common[..], flags].concat());
    let until = Instant::now() + Duration::from_secs(if long() { 120 } else { 8 });
    let writers: Vec<_> = (0..WRITERS)
        .map(|seed| {
            let wire = server.tcp();
            std::thread::spawn(move || churn(wire, SplitMix(seed), until))
        })
        .collect();
    let mut most = 0;
    while writers.iter().any(|writer| !writer.is_finished()) {
        most = most.max(resident_bytes(server.pid()));
        std::thread::sleep(Duration::from_millis(50));
    }
    let written: u64 =
        writers.into_iter().map(|writer| writer.join().expect("a writer saw a wrong answer")).sum();
    let page = String::from_utf8(server.tcp().ask("__kv_metrics__", []).ok()).expect("text");
    let (allocated, reclaimable) = (figure(&page, "bytes_allocated"), figure(&page, "reclaimable_bytes"));
    println!(
        "{flags:?}: {} MiB of values written, {} MiB resident at most, {} entries, {} evicted alive, {:.0} % of {} MiB reclaimable",
        written >> 20,
        most >> 20,
        figure(&page, "entries"),
        figure(&page, "evictions_live_total"),
        100.0 * reclaimable as f64 / allocated as f64,
        allocated >> 20,
    );
    assert!(most < BUDGET + BESIDE, "{} MiB resident", most >> 20);
    assert!(written > BUDGET / 2, "only {} MiB were written", written >> 20);
    assert!(allocated <= BUDGET + BUDGET / 8, "{} MiB of pages", allocated >> 20);
    assert_eq!(figure(&page, "rejects_total"), 0);
}

#[test]
fn memory_stays_within_the_budget_whatever_is_written() {
    let _turn = crate::turn();
    check(&[]);
    check(&[
        "-relocating-eviction",
        "-sieve-visited-bit",
        "-in-place-same-size-update",
        "-in-place-seqlock-reads",
    ]);
}
