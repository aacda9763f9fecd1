//! The archive of the log of whole servers: directories that are restored to moments of a server that wrote, was killed and went on.
use crate::backups::{answers, as_named, create, fill};
use crate::cold::{metric, start};
use nigh_shard::backup::time_text;
use nigh_tests::{Api, Args, Exit, Server, run_to_end};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const ARCHIVE: [&str; 6] = ["-archive", "-archive-interval", "250ms", "-tcp", "127.0.0.1:0", "-kv-query"];
const WAIT_MAX: Duration = Duration::from_secs(60);

/// All that a server answers here.
fn all(server: &Server) -> (Vec<Value>, Vec<Value>, Vec<u8>) {
    let mut api = server.api();
    let names = [("GET", "/v1/collections"), ("GET", "/v1/aliases")];
    let mut listed = names.map(|(method, path)| api.ok(method, path, Value::Null)).to_vec();
    for collection in listed[0]["collections"].as_array_mut().expect("a list") {
        // Both are about indexing, which goes on.
        let fields = collection.as_object_mut().expect("an object");
        fields.retain(|key, _| ["name", "points", "dim", "family"].contains(&key.as_str()));
    }
    let key = server.tcp().ask("get", Args::new().s16(b"key"));
    (listed, answers(&mut api, &as_named), key.ok().to_vec())
}

/// A moment that is behind everything so far and before everything to come.
fn moment() -> String {
    std::thread::sleep(Duration::from_millis(20));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    std::thread::sleep(Duration::from_millis(20));
    let whole = time_text(now.as_millis() as u64);
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), now.subsec_millis())
}

fn put(server: &Server, value: &[u8]) {
    server.tcp().ask("put", Args::new().s16(b"key").s32(value).u64(0)).ok();
}

fn restore(until: &str, data: &Path, store: &Path) -> Exit {
    let [data, store] = [data, store].map(|path| path.to_str().expect("the path is text"));
    let words = ["backup", "restore", "-until", until, "-data", data, "-backup-dir", store, "-kv-query"];
    run_to_end(&words, &[])
}

fn await_archived(api: &mut Api) {
    let began = Instant::now();
    // The first look may be at a moment before the archive has looked.
    std::thread::sleep(Duration::from_millis(600));
    while metric(api, "archive_behind_bytes") > 0.0 {
        assert!(began.elapsed() < WAIT_MAX, "the archive never catches up");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_directory_is_restored_to_a_moment() {
    let dir = tempfile::tempdir().expect("a directory");
    let [data, store] = ["data", "store"].map(|name| dir.path().join(name));
    let early = moment();
    let server = start(&data, &store, &[&["-cores", "2"][..], &ARCHIVE].concat());
    let mut api = server.api();
    create(&mut api);
    fill(&mut api, 0..40, 1);
    put(&server, b"one");
    let mut moments = vec![(moment(), all(&server))];
    api.ok("POST", "/v1/admin/backup", Value::Null);
    fill(&mut api, 20..60, 2);
    put(&server, b"two");
    api.ok("POST", "/v1/aliases", json!({"alias": "live", "collection": "docs"}));
    moments.push((moment(), all(&server)));
    fill(&mut api, 50..90, 3);
    api.ok("DELETE", "/v1/collections/docs/points/7", Value::Null);
    put(&server, b"three");
    moments.push((moment(), all(&server)));
    drop(api);
    server.kill();

    let server = start(&data, &store, &[&["-cores", "1"][..], &ARCHIVE].concat());
    let mut api = server.api();
    fill(&mut api, 0..10, 4);
    moments.push((moment(), all(&server)));
    assert_eq!(api.ok("DELETE", "/v1/collections/docs", Value::Null)["existed"], true);
    put(&server, b"four");
    await_archived(&mut api);
    assert_eq!(metric(&mut api, "archive_gaps_total"), 0.0);
    assert!(metric(&mut api, "archive_sent_bytes_total") > 0.0);

    for (index, (until, expected)) in moments.iter().enumerate() {
        let then = dir.path().join(format!("then-{index}"));
        let exit = restore(until, &then, &store);
        assert!(exit.status.success(), "{until}: {}{}", exit.stdout, exit.stderr);
        assert!(exit.stdout.contains("4 collections"), "{}", exit.stdout);
        let restored =
            start(&then, &dir.path().join("other"), &["-cores", "2", "-tcp", "127.0.0.1:0", "-kv-query"]);
        assert_eq!(&all(&restored), expected, "{until}");
        drop(restored);
        let again = restore(until, &then, &store);
        assert_eq!(again.status.code(), Some(1));
        assert!(again.stderr.contains("needs an empty directory"), "{}", again.stderr);
    }
    let nowhere = restore(&early, &dir.path().join("nowhere"), &store);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(nowhere.stderr.contains("the archive begins at"), "{}", nowhere.stderr);
    // What was begun and not done is not opened as if it were empty.
    let refused = Server::try_start(Some(&dir.path().join("nowhere")), &[]);
    assert!(refused.is_err_and(|failure| format!("{failure:?}").contains("has not finished")));
}
