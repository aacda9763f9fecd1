//! A confined server: it has no new privileges, no core dumps, and access to no files but those that it needs.
//!
//! The server is confined unless a flag says otherwise, so all other tests of whole processes run with confinement as well. Here it is `required`,
//! and the tests try what must fail: the data directory gets links to places outside, which a server that is not confined follows.

use crate::secure::{Pair, get, wait_until_served};
use nigh_tests::{Api, Args, Server, run_to_end};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const REQUIRED: [&str; 2] = ["-confine", "required"];
/// How long to wait for something that happens without a request.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Whether this kernel can confine a server; if it cannot, a line says so.
fn can_confine() -> bool {
    match Server::try_start(None, &REQUIRED) {
        Ok(server) => {
            assert!(server.log().contains("msg=confined landlock="), "{}", server.log());
            true
        }
        Err(failure) => {
            assert!(failure.log.contains("-confine required: "), "{}", failure.log);
            println!("SKIPPED: this kernel cannot confine a server:\n{}", failure.log);
            false
        }
    }
}

/// The texts of a file in `/proc` for each thread of the server.
fn of_threads(server: &Server, file: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("the process runs");
    // A thread may have ended in the meantime.
    threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join(file)).ok()).collect()
}

/// A field of the status of a process or thread.
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {status}")).trim()
}

#[test]
fn privileges_and_core_dumps_are_given_up_by_every_thread() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let of_process = |server: &Server, file: &str| {
        fs::read_to_string(format!("/proc/{}/{file}", server.pid())).expect("the process runs")
    };
    let dumps = |server: &Server| {
        let limits = of_process(server, "limits");
        let line = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
        line.split_whitespace().skip(4).take(2).collect::<Vec<_>>().join(" ")
    };
    let server = Server::start(Some(data.path()), &["-tcp", "127.0.0.1:0", "-cores", "2"]);
    let statuses = of_threads(&server, "status");
    assert!(statuses.len() > 4, "{}", statuses.len());
    for status in statuses {
        assert_eq!(field(&status, "NoNewPrivs"), "1", "{}", field(&status, "Name"));
    }
    assert_eq!(dumps(&server), "0 0");
    assert_eq!(of_process(&server, "coredump_filter").trim_matches(['0', '\n']), "");
    let log = server.log();
    assert!(log.contains("msg=confined") || log.contains("so files are not restricted"), "{log}");
    drop(server);

    // A server with -confine off has what its parent has.
    let server = Server::start(Some(data.path()), &["-confine", "off"]);
    let own = fs::read_to_string("/proc/self/status").expect("this process runs");
    for status in of_threads(&server, "status") {
        assert_eq!(field(&status, "NoNewPrivs"), field(&own, "NoNewPrivs"));
    }
    let own = fs::read_to_string("/proc/self/coredump_filter").expect("this process runs");
    assert_eq!(of_process(&server, "coredump_filter"), own);
    assert!(server.log().contains("-confine off"), "{}", server.log());
}

/// The files below a directory whose names end with `end`.
fn files_below(directory: &Path, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let here = files.into_iter().filter(|path| path.to_string_lossy().ends_with(end));
    here.chain(directories.iter().flat_map(|directory| files_below(directory, end))).collect()
}

fn write_points(api: &mut Api, first: u32, count: u32) {
    let points: Vec<Value> = (first..first + count)
        .map(|id| {
            let vector: Vec<f32> = (0..8_u32).map(|i| ((id * 7 + i * 13) % 31) as f32 - 15.0).collect();
            json!({"id": id, "vector": vector, "content": "some words"})
        })
        .collect();
    let batch = json!({"upsert": true, "points": points});
    assert_eq!(api.ok("POST", "/v1/collections/docs/points/batch", batch)["count"], count);
}

#[test]
fn a_confined_server_writes_restarts_makes_images_and_deletes() {
    if !can_confine() {
        return;
    }
    let root = tempfile::tempdir().expect("a temporary directory");
    // Neither directory exists: the server makes both, which it can do only before it is confined.
    let data = root.path().join("state/data");
    let flags = ["-confine", "required", "-tcp", "127.0.0.1:0", "-cores", "2"];
    let mut logs = String::new();
    let server = Server::start(Some(&data), &flags);
    let config = json!({"dim": 8, "persistent": true, "quant": "sq8", "full_text": {}});
    server.api().ok("POST", "/v1/collections", json!({"name": "docs", "config": config}));
    write_points(&mut server.api(), 0, 1000);
    server.tcp().ask("put", Args::new().s16(b"key").s32(b"value").u64(0)).ok();
    logs += &server.log();
    server.kill();

    let server = Server::start(Some(&data), &flags);
    let mut api = server.api();
    assert_eq!(api.ok("GET", "/v1/collections/docs/points/999", Value::Null)["found"], true);
    assert_eq!(server.tcp().ask("get", Args::new().s16(b"key")).ok(), b"value");
    write_points(&mut api, 1000, 1000);
    let found = api.ok(
        "POST",
        "/v1/collections/docs/points/search",
        json!({"query": [1, 2, 3, 4, 5, 6, 7, 8], "k": 3}),
    );
    assert_eq!(found["results"].as_array().map(Vec::len), Some(3), "{found}");
    let began = Instant::now();
    while files_below(&data.join("collections"), ".img").is_empty() {
        assert!(began.elapsed() < WAIT_MAX, "no image is made:\n{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    logs += &log;

    let server = Server::start(Some(&data), &flags);
    let mut api = server.api();
    assert_eq!(api.ok("GET", "/v1/collections/docs/points/1999", Value::Null)["found"], true);
    // The directory of the collection is moved to another directory before it is removed.
    assert_eq!(api.ok("DELETE", "/v1/collections/docs", Value::Null)["existed"], true);
    let began = Instant::now();
    while !files_below(&data.join("collections"), "").is_empty() {
        assert!(began.elapsed() < WAIT_MAX, "{:?}", files_below(&data.join("collections"), ""));
        std::thread::sleep(Duration::from_millis(20));
    }
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    logs += &log;
    assert!(logs.contains("msg=confined landlock="), "{logs}");
    assert!(!logs.contains("level=ERROR") && !logs.contains("denied"), "{logs}");
}

#[test]
fn a_confined_server_reads_certificates_that_are_replaced() {
    if !can_confine() {
        return;
    }
    let root = tempfile::tempdir().expect("a temporary directory");
    let volume = root.path().join("tls");
    // This is how Kubernetes mounts secrets: the files are links through ..data, which is turned to another directory.
    let turn = |version: &str, pair: &Pair| {
        let directory = volume.join(version);
        fs::create_dir_all(&directory).expect("room on the disk");
        pair.install(&directory);
        symlink(version, volume.join("..data_tmp")).expect("a link");
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).expect("it is turned");
    };
    let pairs = [Pair::new(), Pair::new(), Pair::new(), Pair::new()];
    turn("..1", &pairs[0]);
    for name in ["cert.pem", "key.pem"] {
        symlink(Path::new("..data").join(name), volume.join(name)).expect("a link");
    }
    let path = |name: &str| volume.join(name).to_str().expect("text").to_owned();
    let flags = ["-tls-cert", &path("cert.pem"), "-tls-key", &path("key.pem")];
    let server = Server::start(None, &[&REQUIRED[..], &flags].concat());
    wait_until_served(&server, &pairs[0]);
    turn("..2", &pairs[1]);
    fs::remove_dir_all(volume.join("..1")).expect("it is removed");
    server.signal(libc::SIGHUP);
    wait_until_served(&server, &pairs[1]);
    // Files take the places of the links; there is no SIGHUP.
    pairs[2].install(&volume);
    wait_until_served(&server, &pairs[2]);

    // Links to a place that no file was in at the start are not followed, and the earlier certificate stays.
    let elsewhere = root.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("room on the disk");
    pairs[3].install(&elsewhere);
    for name in ["cert.pem", "key.pem"] {
        symlink(elsewhere.join(name), volume.join("next")).expect("a link");
        fs::rename(volume.join("next"), volume.join(name)).expect("it is renamed");
    }
    server.signal(libc::SIGHUP);
    server.wait_for_log("only the directories that its files were in at the start");
    assert!(get(&server, &pairs[3], "", "/v1/health").is_err());
    assert_eq!(get(&server, &pairs[2], "", "/v1/health").expect("an answer").0, 200);
}

#[test]
fn a_confined_server_adds_and_revokes_api_keys() {
    if !can_confine() {
        return;
    }
    let root = tempfile::tempdir().expect("a temporary directory");
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    // One API key file is in a directory that does not exist yet, the other is a link to a file in another directory.
    let own = root.path().join("made/for/keys.json");
    let (linked, target) = (root.path().join("link.json"), root.path().join("other/keys.json"));
    fs::create_dir(root.path().join("other")).expect("room on the disk");
    fs::write(&target, "[]").expect("room on the disk");
    symlink(&target, &linked).expect("a link");
    for (keys, written) in [(&own, &own), (&linked, &target)] {
        let flags = ["-confine", "required", "-keys-file", keys.to_str().expect("text")];
        let environment = [("SVC_INTERNAL_TOKEN", "the-token-of-the-operator")];
        let started = Server::try_start_with(None, &flags, &environment, None);
        let server = started.unwrap_or_else(|failure| panic!("{}", failure.log));
        let mut operator =
            Api::connect_with_key(server.authority(), "the-token-of-the-operator").expect("a connection");
        let status = |token: &str| {
            let mut client = Api::connect_with_key(server.authority(), token).expect("a connection");
            client.send("GET", "/v1/collections", &Value::Null).expect("an answer").status
        };
        let key = json!({"token": "a-token-of-somebody", "tenant": "*", "scopes": ["*:*"]});
        assert_eq!(operator.ok("POST", "/v1/admin/keys", key)["added"], true);
        assert_eq!(status("a-token-of-somebody"), 200);
        assert!(text(written).contains("token_digest"), "{}", text(written));
        let key = json!({"token": "a-token-of-somebody"});
        assert_eq!(operator.ok("DELETE", "/v1/admin/keys", key)["revoked"], true);
        assert_eq!(status("a-token-of-somebody"), 401);
        assert!(!text(written).contains("token_digest"), "{}", text(written));
        let (status, log) = server.stop();
        assert!(status.success(), "{log}");
    }
    assert!(fs::symlink_metadata(&linked).expect("it is there").is_symlink());
}

/// The server itself tries to leave its directory: the directory of a collection is a link to a place outside.
#[test]
fn a_confined_server_reads_nothing_outside() {
    if !can_confine() {
        return;
    }
    let root = tempfile::tempdir().expect("a temporary directory");
    let (data, outside) = (root.path().join("data"), root.path().join("outside"));
    let server = Server::start(Some(&data), &[]);
    let config = json!({"dim": 8, "persistent": true, "quant": "sq8"});
    server.api().ok("POST", "/v1/collections", json!({"name": "docs", "config": config}));
    write_points(&mut server.api(), 0, 1000);
    assert!(server.stop().0.success());
    let collections = fs::read_dir(data.join("collections")).expect("the directory of collections");
    let [directory] = &collections.flatten().map(|entry| entry.path()).collect::<Vec<_>>()[..] else {
        panic!("one collection has one directory")
    };
    fs::rename(directory, &outside).expect("it is moved");
    symlink(&outside, directory).expect("a link");
    let before = files_below(&outside, "").len();

    let server = Server::start(Some(&data), &REQUIRED);
    let refused = server.api().send("GET", "/v1/collections/docs/points/1", &Value::Null).expect("an answer");
    assert_eq!(refused.status, 500, "{}", refused.body);
    assert_eq!(server.api().send("GET", "/v1/ready", &Value::Null).expect("an answer").status, 503);
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    assert!(log.contains("Permission denied"), "{log}");
    assert_eq!(files_below(&outside, "").len(), before);

    // With the same data directory, a server that is not confined serves: only the confinement was in the way.
    let server = Server::start(Some(&data), &["-confine", "off"]);
    let found = server.api().ok("GET", "/v1/collections/docs/points/1", Value::Null);
    assert_eq!(found["found"], true, "{found}");
}

/// The server itself tries to leave its directory: the directory of copies of small files is a link to a place outside.
#[test]
fn a_confined_server_writes_nothing_outside() {
    if !can_confine() {
        return;
    }
    let root = tempfile::tempdir().expect("a temporary directory");
    let (data, outside) = (root.path().join("data"), root.path().join("outside"));
    fs::create_dir(&data).expect("room on the disk");
    fs::create_dir(&outside).expect("room on the disk");
    symlink(&outside, data.join("copies")).expect("a link");
    let server = Server::start(Some(&data), &REQUIRED);
    server.wait_for_log("Permission denied");
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    assert_eq!(fs::read_dir(&outside).expect("a directory").count(), 0, "{log}");

    let server = Server::start(Some(&data), &["-confine", "off"]);
    assert!(server.stop().0.success());
    assert!(!files_below(&outside, "FORMAT").is_empty(), "a server that is not confined follows the link");
}

#[test]
fn a_value_that_is_none_is_refused() {
    let ended = run_to_end(&["-confine", "perhaps"], &[]);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("on, off or required"), "{}", ended.stderr);
}
