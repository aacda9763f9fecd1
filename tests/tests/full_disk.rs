//! A server on a disk that is full, and one whose log has failed: what goes on, what is said, and how it ends.
use nigh_tests::{Api, Args, Server, SmallDisk, Wire, frame};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Two logs of a core, and the reserve, take a third of it.
const DISK_MEBIBYTES: usize = 96;
const VALUE_BYTES: usize = 4000;
/// After what has been freed there is room again within this time, most of it for a machine that is busy with other tests.
const RECOVERY_MAX: Duration = Duration::from_secs(60);
const FLAGS: [&str; 4] = ["-cores", "1", "-tcp", "127.0.0.1:0"];

fn create(api: &mut Api, name: &str) {
    api.ok("POST", "/v1/collections", json!({"name": name, "config": {"dim": 2, "metric": "l2"}}));
}

/// Points with about 2 KiB of payload each.
fn points(ids: std::ops::Range<u64>) -> Value {
    let pad = "p".repeat(2000);
    let metadata = json!({"pad": {"kind": "string", "str": pad}, "all": {"kind": "int", "int": 1}});
    ids.map(|id| json!({"id": id, "vector": [id, 1], "metadata": metadata})).collect()
}

/// Upserts a batch of points; how many were stored, and the status.
fn put_points(api: &mut Api, name: &str, ids: std::ops::Range<u64>) -> (u64, u16) {
    let (path, count) = (format!("/v1/collections/{name}/points/batch"), ids.end - ids.start);
    let reply = api.send("POST", &path, &json!({"upsert": true, "points": points(ids)})).expect("an answer");
    match reply.status {
        200 => (count, 200),
        status => (reply.body["committed"].as_u64().expect("how far it came"), status),
    }
}

fn value_of(key: u64) -> Vec<u8> {
    vec![key as u8; VALUE_BYTES]
}

/// Puts keys in one piece; how many were stored before the first refusal, and that.
fn put_keys(wire: &mut Wire, keys: std::ops::Range<u64>) -> (u64, Option<String>) {
    let put = |key: u64| frame("put", &Args::new().s16(key.to_be_bytes()).s32(value_of(key)).u64(0).0);
    let count = keys.end - keys.start;
    wire.send(keys.flat_map(put).collect::<Vec<u8>>());
    let (mut stored, mut refused) = (0, None);
    for _ in 0..count {
        let response = wire.response();
        match response.status {
            0 if refused.is_none() => stored += 1,
            0 => panic!("a key was stored behind one that was refused"),
            _ => refused = refused.or(Some(response.error())),
        }
    }
    (stored, refused)
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stored {
    docs: u64,
    notes: u64,
    keys: u64,
}

impl Stored {
    /// Fills the disk with points of two collections and with keys.
    fn fill(&mut self, server: &Server) {
        let (mut api, mut wire) = (server.api(), server.tcp());
        let mut open = [true; 3];
        while open.contains(&true) {
            if open[0] {
                let (more, status) = put_points(&mut api, "docs", self.docs..self.docs + 200);
                self.docs += more;
                assert!(matches!(status, 200 | 507), "{status}");
                open[0] = status == 200;
            }
            if open[1] {
                let (more, status) = put_points(&mut api, "notes", self.notes..self.notes + 200);
                self.notes += more;
                assert!(matches!(status, 200 | 507), "{status}");
                open[1] = status == 200;
            }
            if open[2] {
                // One by one, so that those behind a refusal are not tried.
                for key in self.keys..self.keys + 100 {
                    let (more, refused) = put_keys(&mut wire, key..key + 1);
                    self.keys += more;
                    if let Some(why) = refused {
                        assert!(why.contains("insufficient storage"), "{why}");
                        open[2] = false;
                        break;
                    }
                }
            }
            assert!(self.docs < 100_000, "the disk never fills");
        }
    }

    fn check(&self, server: &Server) {
        let (mut api, mut wire) = (server.api(), server.tcp());
        for (name, count) in [("docs", self.docs), ("notes", self.notes)] {
            let counted = api.ok("POST", &format!("/v1/collections/{name}/points/count"), json!({}));
            assert_eq!(counted["count"], count, "{name}");
            if count > 0 {
                let search = json!({"query": [count - 1, 1], "k": 1});
                let found = api.ok("POST", &format!("/v1/collections/{name}/points/search"), search);
                assert_eq!(found["results"][0]["id"], count - 1);
            }
        }
        for key in 0..self.keys {
            let found = wire.ask("get", Args::new().s16(key.to_be_bytes())).ok();
            assert!(found == value_of(key), "key {key}");
        }
    }
}

fn metric(wire: &mut Wire, name: &str) -> f64 {
    let page = String::from_utf8(wire.ask("__metrics__", b"").ok()).expect("text");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}:\n{page}")).parse().expect("a number")
}

fn is_ready(api: &mut Api) -> Result<(), String> {
    let reply = api.send("GET", "/v1/ready", &Value::Null).expect("an answer");
    match reply.status {
        200 => Ok(()),
        503 => Err(reply.body["detail"].as_str().expect("a reason").to_owned()),
        other => panic!("{other}: {}", reply.body),
    }
}

/// Waits until the server says that it takes writes again.
fn wait_until_ready(server: &Server, what: &str) {
    let (began, mut api) = (Instant::now(), server.api());
    while let Err(why) = is_ready(&mut api) {
        assert!(began.elapsed() < RECOVERY_MAX, "{why} after {what}:\n{}", server.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("ready {:?} after {what}", began.elapsed());
}

/// Bytes of files below a directory, as allocated.
fn used_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => used_bytes(&entry.path()),
        Ok(found) => found.blocks() * 512,
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

#[test]
fn a_full_disk_serves_restarts_and_is_freed() {
    let Some(disk) = SmallDisk::mount(DISK_MEBIBYTES) else { return };
    let data = disk.path().join("data");
    let mut server = Server::start(Some(&data), &FLAGS);
    create(&mut server.api(), "docs");
    create(&mut server.api(), "notes");
    assert_eq!(is_ready(&mut server.api()), Ok(()));
    let mut stored = Stored::default();
    let mut wire = server.tcp();
    // Images that are written after a refusal may let log segments go at any moment, and make room for more.
    let said = (0..200).find_map(|_| {
        stored.fill(&server);
        let why = is_ready(&mut server.api()).err()?;
        (metric(&mut wire, "svc_disk_full") == 1.0).then_some(why)
    });
    println!("{stored:?} fill the disk, {} bytes used", used_bytes(&data));
    assert!(stored.docs > 1000 && stored.notes > 1000 && stored.keys > 1000, "{stored:?}");
    stored.check(&server);
    let why = said.expect("readiness and metrics say that new data is refused");
    assert!(why.contains("the disk is full"), "{why}");
    let refused = "svc_writes_refused_total{reason=\"disk_full\"}";
    let before = metric(&mut wire, refused);
    let lines = |server: &Server| server.log().matches("the disk is full: writes").count();
    server.wait_for_log("the disk is full: writes");
    let lines_before = lines(&server);
    assert!(before >= 3.0);
    // What the log has may go at any moment, and make room for some more.
    let (mut refusals, mut changes) = (0, 0);
    let mut was_refused = true;
    for _ in 0..10_000 {
        let (more, status) = put_points(&mut server.api(), "docs", stored.docs..stored.docs + 50);
        stored.docs += more;
        assert!(matches!((more, status), (50, 200) | (0..50, 507)), "{more}, {status}");
        refusals += usize::from(status == 507);
        changes += usize::from(was_refused != (status == 507));
        was_refused = status == 507;
        if refusals == 100 {
            break;
        }
    }
    assert_eq!(refusals, 100, "the disk never fills");
    assert_eq!(metric(&mut wire, refused), before + refusals as f64);
    assert!(
        lines(&server) <= lines_before + changes + 10,
        "one line per change, not per refusal:\n{}",
        server.log()
    );

    for start in 0..20 {
        if start % 2 == 0 {
            server.kill();
        } else {
            let (status, log) = server.stop();
            assert!(status.success(), "{log}");
        }
        server = Server::start(Some(&data), &FLAGS);
        stored.check(&server);
        let health = server.api().ok("GET", "/v1/health", Value::Null);
        assert_eq!(health["status"], "ok");
    }
    println!("{} bytes used after 20 starts", used_bytes(&data));

    // Deletes by filter, deletes of keys, a drop: each is taken on a full disk, and each gives room back.
    stored.fill(&server);
    let deleted = server.api().ok(
        "POST",
        "/v1/collections/docs/points/delete",
        json!({"filter": {"op": "eq", "field": "all", "value": {"kind": "int", "int": 1}}}),
    );
    assert_eq!(deleted["deleted"], stored.docs);
    stored.docs = 0;
    wait_until_ready(&server, "a delete by filter");
    stored.check(&server);

    stored.fill(&server);
    let mut wire = server.tcp();
    for key in 0..stored.keys {
        wire.ask("del", Args::new().s16(key.to_be_bytes())).ok();
    }
    stored.keys = 0;
    wait_until_ready(&server, "deletes of keys");
    stored.check(&server);

    stored.fill(&server);
    server.api().ok("DELETE", "/v1/collections/notes", Value::Null);
    stored.notes = 0;
    wait_until_ready(&server, "a drop");
    create(&mut server.api(), "notes");
    stored.check(&server);

    stored.fill(&server);
    server.kill();
    server = Server::start(Some(&data), &FLAGS);
    stored.check(&server);
}

/// A start that finds no room for anything serves reads, says so, and takes writes once there is room.
#[test]
fn a_start_without_any_room_serves_reads() {
    let Some(disk) = SmallDisk::mount(DISK_MEBIBYTES) else { return };
    let (data, ballast) = (disk.path().join("data"), disk.path().join("ballast"));
    let server = Server::start(Some(&data), &FLAGS);
    create(&mut server.api(), "docs");
    create(&mut server.api(), "notes");
    let mut stored = Stored { docs: 500, notes: 0, keys: 500 };
    assert_eq!(put_points(&mut server.api(), "docs", 0..500), (500, 200));
    assert_eq!(put_keys(&mut server.tcp(), 0..500), (500, None));
    server.kill();
    // All that could be given back, and then all that is left. Old logs are cut by a start that comes to nothing.
    std::fs::remove_file(data.join("reserve")).expect("there is a reserve");
    let mut server = Server::start(Some(&data), &FLAGS);
    let eat = || {
        use std::io::Write;
        let mut file = std::fs::File::options().create(true).append(true).open(&ballast).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
    };
    eat();
    server.kill();
    let _maybe_not_there = std::fs::remove_file(data.join("reserve"));
    for _ in 0..3 {
        server = Server::start(Some(&data), &FLAGS);
        eat();
        stored.check(&server);
        server.kill();
    }
    server = Server::start(Some(&data), &FLAGS);
    eat();
    stored.check(&server);
    while put_points(&mut server.api(), "docs", stored.docs..stored.docs + 1).1 == 200 {
        stored.docs += 1;
    }
    assert!(is_ready(&mut server.api()).is_err());
    stored.check(&server);
    std::fs::remove_file(&ballast).expect("the ballast goes");
    wait_until_ready(&server, "the ballast is gone");
    assert_eq!(put_points(&mut server.api(), "docs", stored.docs..stored.docs + 10), (10, 200));
    stored.docs += 10;
    server.kill();
    stored.check(&Server::start(Some(&data), &FLAGS));
}

/// Makes a forbidden write to a file an error, and not the end of the process, in servers that are started after this call.
fn survive_failed_writes() {
    // SAFETY: the call only ignores a signal that this process does not use.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Starts a server whose writes may be made to fail, with ten points in each of two collections and ten keys.
fn filled(data: &Path) -> (Server, Api, Wire) {
    survive_failed_writes();
    let server = Server::start(Some(data), &FLAGS);
    let (mut api, mut wire) = (server.api(), server.tcp());
    for name in ["docs", "notes"] {
        create(&mut api, name);
        assert_eq!(put_points(&mut api, name, 0..10), (10, 200));
    }
    assert_eq!(put_keys(&mut wire, 0..10), (10, None));
    (server, api, wire)
}

/// Makes every write of the server to a file fail from now on.
fn fail_writes(server: &Server) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is read before the call returns; the process is our own child.
    let limited =
        unsafe { libc::prlimit(server.pid() as i32, libc::RLIMIT_FSIZE, &none, std::ptr::null_mut()) };
    assert_eq!(limited, 0);
}

/// A key whose write was refused because the log failed is not found by any client, whether or not the restart finds it.
#[test]
fn keys_that_a_failed_log_has_not_kept_are_not_served() {
    let data = tempfile::tempdir().expect("a directory");
    let (server, mut api, mut wire) = filled(data.path());
    fail_writes(&server);
    assert!(put_keys(&mut wire, 10..11).1.is_some());
    is_ready(&mut api).expect_err("the log has failed");
    for key in [3u64, 10] {
        let refused = wire.ask("get", Args::new().s16(key.to_be_bytes())).error();
        assert!(refused.contains("the keys are"), "{key}: {refused}");
    }
    let get = api.send("GET", "/v1/collections/docs/points/3", &Value::Null).expect("an answer");
    assert_eq!(get.status, 200, "the collection has nothing but what is durable");
    let (_, log) = server.stop();
    assert!(log.contains("the keys serve nothing"), "{log}");
    let server = Server::start(Some(data.path()), &FLAGS);
    Stored { docs: 10, notes: 10, keys: 10 }.check(&server);
}

/// The log fails with the next write, as the process may not write to files any more. Everything says so, and what was acknowledged is there
/// after a restart.
#[test]
fn a_failed_log_shows_everywhere() {
    let data = tempfile::tempdir().expect("a directory");
    let (server, mut api, mut wire) = filled(data.path());
    assert_eq!(is_ready(&mut api), Ok(()));
    assert_eq!(metric(&mut wire, "svc_log_failed{core=\"0\"}"), 0.0);

    fail_writes(&server);
    assert_eq!(put_points(&mut api, "docs", 10..11), (0, 500));
    let why = is_ready(&mut api).expect_err("the log has failed");
    assert!(why.contains("the log has failed") && why.contains("core 0: writing segment"), "{why}");
    let refused = wire.ask("__ready__", b"").error();
    assert!(refused.contains("the log has failed"), "{refused}");
    assert_eq!(metric(&mut wire, "svc_log_failed{core=\"0\"}"), 1.0);
    assert_eq!(metric(&mut wire, "svc_collections_damaged"), 1.0);
    assert_eq!(metric(&mut wire, "svc_vector_damaged{collection=\"default/docs\"}"), 1.0);
    assert!(metric(&mut wire, "svc_writes_refused_total{reason=\"log_failed\"}") >= 1.0);
    server.wait_for_log("the log failed; this core takes no more writes");
    // The collection with the refused write serves nothing; what has nothing but what is durable goes on.
    let get = |api: &mut Api, name: &str| {
        api.send("GET", &format!("/v1/collections/{name}/points/10"), &Value::Null).expect("an answer").status
    };
    assert_eq!((get(&mut api, "docs"), get(&mut api, "notes")), (500, 404));
    assert_eq!(wire.ask("get", Args::new().s16(3u64.to_be_bytes())).ok(), value_of(3));
    assert!(put_keys(&mut wire, 10..11).1.is_some());

    let (status, log) = server.stop();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("stopped after a failure: the log has failed"), "{log}");
    let server = Server::start(Some(data.path()), &FLAGS);
    assert_eq!(is_ready(&mut server.api()), Ok(()));
    let stored = Stored { docs: 10, notes: 10, keys: 10 };
    stored.check(&server);
}
