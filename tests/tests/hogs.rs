//! Durable writes beside threads that take every CPU: each is answered, no core sleeps with work to do, and where the time goes is
//! compared with a thread that does nothing but write and sync under the same load.
use nigh_tests::{Args, Server, Wire, long};
use std::collections::BTreeSet;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Threads that never sleep, per CPU.
const HOGS_PER_CPU: usize = 2;
const BLOCK: usize = 4096;

/// Durations in order, as figures.
fn figures(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 1000].as_secs_f64() * 1000.0;
    let (p50, p99, p999, most) = (at(500), at(990), at(999), at(1000));
    format!("{} writes: p50 {p50:.2} ms, p99 {p99:.2}, p99.9 {p999:.2}, longest {most:.2}", times.len())
}

/// A buffer as O_DIRECT wants it.
#[repr(align(4096))]
struct Aligned([u8; BLOCK]);

/// Writes and syncs blocks of a file that was written before, as a log does, until told to end.
fn write_bare(path: &Path, ends: &AtomicBool) -> Vec<Duration> {
    const BLOCKS: u64 = 1024;
    std::fs::write(path, vec![0; BLOCKS as usize * BLOCK]).expect("room for a file");
    let open = |flags| std::fs::File::options().write(true).custom_flags(flags).open(path);
    // Some file systems know no direct writes.
    let file = open(libc::O_DIRECT).or_else(|_| open(0)).expect("it was just written");
    file.sync_all().expect("a sync");
    let block = Aligned([1; BLOCK]);
    let mut times = Vec::new();
    for number in 0.. {
        if ends.load(Relaxed) {
            break;
        }
        let began = Instant::now();
        file.write_all_at(&block.0, number % BLOCKS * BLOCK as u64).expect("a write");
        file.sync_data().expect("a sync");
        times.push(began.elapsed());
    }
    times
}

/// A figure of the metrics page, summed over cores or stages with that beginning.
fn metric(wire: &mut Wire, beginning: &str) -> f64 {
    let page = String::from_utf8(wire.ask("__metrics__", b"").ok()).expect("text");
    let values = page.lines().filter_map(|line| line.strip_prefix(beginning)?.rsplit(' ').next());
    values.map(|value| value.parse::<f64>().expect("a number")).sum()
}

#[test]
fn durable_writes_beside_hogs_are_answered() {
    let _turn = crate::turn();
    let lasts = if long() { Duration::from_secs(60) } else { Duration::from_secs(4) };
    let data = tempfile::tempdir().expect("a directory");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let server = Server::start(Some(&data.path().join("data")), &["-tcp", "127.0.0.1:0"]);
    let ends = AtomicBool::new(false);
    let (puts, bare) = std::thread::scope(|scope| {
        for _ in 0..HOGS_PER_CPU * cpus {
            scope.spawn(|| {
                while !ends.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let bare = scope.spawn(|| write_bare(&data.path().join("bare"), &ends));
        let mut wire = server.tcp();
        let mut times = Vec::new();
        let began = Instant::now();
        for key in 0u64.. {
            if began.elapsed() > lasts {
                break;
            }
            let put = Args::new().s16((key % 1000).to_be_bytes()).s32([7; 100]).u64(0);
            let asked = Instant::now();
            wire.ask("put", put).ok();
            times.push(asked.elapsed());
        }
        ends.store(true, Relaxed);
        (times, bare.join().expect("the other writer does not fail"))
    });
    println!("{HOGS_PER_CPU} hogs on each of {cpus} CPUs");
    println!("durable puts of the server, one connection: {}", figures(puts));
    println!("a thread that writes and syncs:             {}", figures(bare));
    let mut wire = server.tcp();
    let stage = |wire: &mut Wire, name: &str| {
        metric(wire, &format!("svc_tcp_stage_seconds_total{{stage=\"{name}\"}}"))
    };
    for name in ["run", "owners", "log", "send"] {
        println!("stage {name}: {:.3} s", stage(&mut wire, name));
    }
    let rescues = metric(&mut wire, "svc_watchdog_rescues_total");
    println!(
        "rescues {rescues}, stalls {}, of which the longest took {:.3} s and the core's own work in one at most {:.3} s",
        metric(&mut wire, "svc_core_stalls_total"),
        metric(&mut wire, "svc_core_stall_longest_seconds"),
        metric(&mut wire, "svc_core_stall_busiest_seconds"),
    );
    assert_eq!(rescues, 0.0, "a core slept with work to do");
}

/// Names and allowed CPUs of a process's threads.
fn threads(pid: u32) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the server runs");
    let of = |task: std::fs::DirEntry| {
        // A thread may have ended meanwhile.
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some((line("Name:")?.to_owned(), line("Cpus_allowed_list:")?.to_owned()))
    };
    tasks.flatten().filter_map(of).collect()
}

/// What the kernel does for a core of the server (it syncs the log) is done on that core's CPU, which its other work leaves free: elsewhere it would
/// have to wait for a CPU that others keep busy.
#[test]
fn the_kernel_works_for_a_core_on_its_cpu() {
    let _turn = crate::turn();
    let data = tempfile::tempdir().expect("a directory");
    let server = Server::start(Some(data.path()), &["-tcp", "127.0.0.1:0", "-cores", "2"]);
    let mut wire = server.tcp();
    for key in 0u64..64 {
        wire.ask("put", Args::new().s16(key.to_be_bytes()).s32([7; 100]).u64(0)).ok();
    }
    let threads = threads(server.pid());
    let cpus_of = |prefix: &str| -> BTreeSet<&str> {
        let named = threads.iter().filter(|(name, _)| name.starts_with(prefix));
        named.map(|(_, cpus)| cpus.as_str()).collect()
    };
    let (cores, workers) = (cpus_of("nigh-core-"), cpus_of("iou-wrk-"));
    let is_one = |cpus: &&str| cpus.parse::<usize>().is_ok();
    if workers.is_empty() || !cores.iter().all(is_one) {
        println!("there is no ring, or the cores are not pinned: {threads:?}");
        return;
    }
    assert!(workers.is_subset(&cores), "{threads:?}");
}
