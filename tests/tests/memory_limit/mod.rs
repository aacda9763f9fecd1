//! A real server at its memory limit, filled to three times that by points, by values, and by both: it refuses with 507 or 503 and is never
//! killed, it serves and deletes however full it is, and it stops and starts again without needing more than it had.
//!
//! The full server is then attacked: clients that take no answer, strangers with frames that do not end, bodies and heads that stop.
//! Clients with a key are served beside them, and the memory is given back afterwards.
//!
//! The short form tells the server how much memory there is and compares its resident set with that. `NIGH_TEST_LONG=1` does it in control
//! groups of 512 MiB, 1 GiB and 2 GiB where they can be made (version 1 and 2), for some minutes each.
mod siege;

use nigh_tests::{Args, Server, SplitMix, long};
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

const DIM: usize = 1024;
const BATCH: u64 = 200;
const VALUE_BYTES: usize = 256 << 10;
const MIB: u64 = 1 << 20;

/// A control group, removed at the end.
struct Group(PathBuf, File);

impl Group {
    fn make(bytes: u64, name: &str) -> Option<Group> {
        let name = format!("nigh-test-{}-{name}", std::process::id());
        let kinds = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        kinds.into_iter().find_map(|(root, limit)| {
            let path = Path::new(root).join(&name);
            std::fs::create_dir(&path).ok()?;
            let made = std::fs::write(path.join(limit), bytes.to_string())
                .and_then(|()| File::options().write(true).open(path.join("cgroup.procs")));
            made.map(|members| Group(path.clone(), members))
                .inspect_err(|_| _ = std::fs::remove_dir(&path))
                .ok()
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // One that stays is empty and costs nothing.
        let _stays = std::fs::remove_dir(&self.0);
    }
}

/// How much memory a server has and who sees to it.
struct Machine {
    bytes: u64,
    group: Option<Group>,
}

impl Machine {
    fn new(bytes: u64, name: &str) -> Machine {
        let group = if long() { Group::make(bytes, name) } else { None };
        Machine { bytes, group }
    }

    fn start(&self, data: &Path, more_flags: &[&str]) -> Server {
        let bytes = self.bytes.to_string();
        let flags = [&["-tcp", "127.0.0.1:0", "-cores", "2"], more_flags].concat();
        let environment: &[(&str, &str)] = match self.group {
            Some(_) => &[],
            None => &[("NIGH_TEST_MEMORY_BYTES", &bytes)],
        };
        let members = self.group.as_ref().map(|group| &group.1);
        Server::try_start_with(Some(data), &flags, environment, members)
            .unwrap_or_else(|failure| panic!("{}:\n{}", failure.status, failure.log))
    }
}

/// A figure of the kernel's in bytes: `RssAnon` is what no file can take back, `VmHWM` the most there ever was.
fn memory(server: &Server, figure: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server runs");
    let line =
        status.lines().find(|line| line.strip_prefix(figure).is_some_and(|rest| rest.starts_with(':')));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kib| kib.parse::<u64>().ok());
    kib.expect("a number") << 10
}

/// Upserts of new points with payloads, until `bytes` have been sent; how many points were taken, and how many batches refused.
fn fill_points(server: &Server, bytes: u64) -> (u64, u64) {
    let mut api = server.api();
    let mut random = SplitMix(5);
    let noise = random.vector(DIM * 64);
    let (mut sent, mut taken, mut refused, mut id) = (0, 0, 0, 0u64);
    while sent < bytes {
        let mut body = b"RVB1".to_vec();
        [3, BATCH as u32, DIM as u32].iter().for_each(|word| body.extend(word.to_be_bytes()));
        for id in id..id + BATCH {
            body.extend(id.to_be_bytes());
            let at = random.below((DIM * 63) as u64) as usize;
            body.extend(noise[at..at + DIM].iter().flat_map(|value| value.to_be_bytes()));
        }
        for id in id..id + BATCH {
            let payload = json!({"group": {"kind": "int", "int": id % 100}, "name": {"kind": "string", "str": format!("point {id}")}});
            let payload = payload.to_string();
            body.extend((payload.len() as u32).to_be_bytes());
            body.extend(payload.as_bytes());
        }
        let path = "/v1/collections/points/points/batch";
        let reply =
            api.send_bytes("POST", path, "application/octet-stream", &body).expect("the server lives");
        sent += body.len() as u64;
        id += BATCH;
        match reply.status {
            200 => taken += BATCH,
            503 | 507 => {
                taken += reply.body["committed"].as_u64().unwrap_or(0);
                refused += 1;
            }
            _ => panic!("{} {}", reply.status, reply.body),
        }
    }
    (taken, refused)
}

/// Puts of long values until `bytes` have been sent; how many were taken, and how many refused.
fn fill_values(server: &Server, bytes: u64) -> (u64, u64) {
    let mut wire = server.tcp();
    let (mut taken, mut refused) = (0, 0);
    for n in 0..bytes / VALUE_BYTES as u64 {
        let value = vec![n as u8; VALUE_BYTES];
        let response = wire.ask("put", Args::new().s16(n.to_be_bytes()).s32(&value).u64(0).0);
        if response.status == 0 {
            taken += 1;
            continue;
        }
        let why = response.error();
        // The last is what 503 is over HTTP: points that are being sent leave no room at the moment.
        assert!(["full", "memory", "in flight"].iter().any(|word| why.contains(word)), "{why}");
        refused += 1;
    }
    (taken, refused)
}

fn check(machine: &Machine, name: &str, points: bool, values: bool, restarts: usize) {
    let data = tempfile::tempdir().expect("a temporary directory");
    let mut server = machine.start(data.path(), &[]);
    let config = json!({"dim": DIM, "metric": "l2", "m": 4, "ef_construction": 16});
    server.api().ok("POST", "/v1/collections", json!({"name": "points", "config": config}));
    let began = Instant::now();
    let bytes = 3 * machine.bytes;
    let ((taken, refused), (put, not_put)) = std::thread::scope(|scope| {
        let filling = points.then(|| scope.spawn(|| fill_points(&server, bytes)));
        let putting = values.then(|| scope.spawn(|| fill_values(&server, bytes)));
        let done = |thread: Option<std::thread::ScopedJoinHandle<'_, (u64, u64)>>| {
            thread.map_or((0, 0), |thread| thread.join().expect("the server lives"))
        };
        (done(filling), done(putting))
    });
    assert!(!points || refused > 0, "{name}: nothing was refused");
    let most = memory(&server, "VmHWM");
    println!(
        "{name} in {} MiB{}: {taken} points taken, {refused} batches refused; {put} values taken, {not_put} refused; {} MiB resident \
         at most, after {} s",
        machine.bytes / MIB,
        if machine.group.is_some() { " (control group)" } else { "" },
        most / MIB,
        began.elapsed().as_secs(),
    );
    assert!(most < machine.bytes, "{name}: {} MiB of {}", most / MIB, machine.bytes / MIB);

    // However full it is, it answers, deletes and stops.
    let mut api = server.api();
    if points {
        let found = api.ok("GET", "/v1/collections/points", Value::Null);
        assert!(found.to_string().contains(&taken.to_string()), "{taken} points in {found}");
        let deleted =
            api.send("DELETE", "/v1/collections/points/points/0", &Value::Null).expect("the server lives");
        assert!(deleted.status < 300, "{} {}", deleted.status, deleted.body);
    }
    let count = |api: &mut nigh_tests::Api| api.ok("POST", "/v1/collections/points/points/count", json!({}));
    let expected = count(&mut api);
    let mut running = memory(&server, "RssAnon");
    for restart in 0..restarts {
        let (status, log) = server.stop();
        assert!(status.success(), "{name}: {status}\n{log}");
        server = machine.start(data.path(), &[]);
        let opening = memory(&server, "VmHWM").saturating_sub(memory(&server, "RssFile"));
        assert_eq!(count(&mut server.api()), expected, "{name}, start {restart}");
        println!("{name}, start {restart}: {} MiB at most, {} MiB before", opening / MIB, running / MIB);
        assert!(
            opening <= running + running / 20,
            "{name}: a start takes {opening} bytes where {running} served"
        );
        running = running.max(memory(&server, "RssAnon"));
    }
    drop(server.stop());
    siege::check(machine, data.path(), name, points.then_some(taken));
}

#[test]
fn a_full_server_refuses_and_starts_again() {
    let _turn = crate::turn();
    let (sizes, restarts): (&[u64], _) = if long() { (&[512, 1024, 2048], 10) } else { (&[192], 2) };
    for size in sizes {
        for (name, points, values) in [("values", false, true), ("points", true, false), ("both", true, true)]
        {
            if long() || name == "both" {
                check(&Machine::new(size * MIB, name), name, points, values, restarts);
            }
        }
    }
}
