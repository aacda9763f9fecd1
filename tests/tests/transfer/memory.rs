//! An export and an import hold little of a large collection.
use super::{Folder, count, server};
use nigh_tests::{long, server_binary};
use std::process::Command;

/// The most that either program may have in memory, whatever the collection has.
const PEAK_KIB_MAX: u64 = 128 << 10;

/// Runs `nigh` and returns the most memory that it had, in KiB.
fn peak_kib(words: &[&str]) -> u64 {
    let mut child = Command::new(server_binary()).args(words).spawn().expect("it starts");
    let mut peak = 0;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        if let Some(kib) = line.and_then(|line| line.split_whitespace().next()?.parse().ok()) {
            peak = kib;
        }
        if let Some(status) = child.try_wait().expect("it is ours") {
            assert!(status.success(), "{words:?}");
            return peak;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn memory_does_not_grow_with_the_collection() {
    holds_little("jsonl", 150_000, 64);
}

/// Exports and imports so many points, seven times as many in the long form, and looks at the memory of either.
pub(super) fn holds_little(format: &str, points: u64, dim: usize) {
    let points = if long() { 7 * points } else { points };
    let (one, folder) = (server(), Folder::new());
    let shape = format!("{points}x{dim}");
    let load = [
        "bench",
        "ingest",
        "-address",
        one.tcp_authority(),
        "-synthetic",
        &shape,
        "-metric",
        "l2",
        "-keep",
        "-m",
        "4",
    ];
    let loaded = nigh_tests::run_to_end(&[&load[..], &["-ef-construction", "8"]].concat(), &[]);
    assert!(loaded.status.success(), "{}", loaded.stderr);
    let (file, url) = (folder.path(&format!("all.{format}")), format!("http://{}", one.authority()));
    let exported =
        peak_kib(&["export", "-url", &url, "-collection", "nigh-bench", "-format", format, "-o", &file]);
    let bytes = std::fs::metadata(&file).expect("it is there").len();
    assert!(bytes / 1024 > PEAK_KIB_MAX * 3 / 4, "{bytes} bytes are too few to tell");
    let imported = peak_kib(&["import", "-url", &url, &file, "-into", "copy"]);
    println!("{points} points, {bytes} bytes: {exported} KiB to export, {imported} KiB to import");
    assert!(exported < PEAK_KIB_MAX && imported < PEAK_KIB_MAX, "{exported} and {imported} KiB");
    assert_eq!(count(&mut one.api(), "copy"), points);
}
