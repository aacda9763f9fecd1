//! Makes a golden directory of the formats of today: `NIGH_WRITE_GOLDEN=1`.
//!
//! The data directory is that of a server that was killed: it has images of two clean checkpoints, a log behind them, a cold collection, a damaged one and a
//! mark of a restore. The store has a backup and an archive, and lies beside files of exports.
use super::{Site, formats, pack, run, workload};
use crate::cold::metric;
use nigh_shard::backup::time_text;
use nigh_shard::sealed_json::{self, Layout};
use nigh_tests::Server;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const WAIT_MAX: Duration = Duration::from_secs(60);
const ARCHIVE: [&str; 5] = ["-archive", "-archive-interval", "250ms", "-cores", "2"];

/// A moment that is behind everything so far and before everything to come.
fn moment() -> String {
    std::thread::sleep(Duration::from_millis(20));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    std::thread::sleep(Duration::from_millis(20));
    let whole = time_text(now.as_millis() as u64);
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), now.subsec_millis())
}

fn await_archived(server: &Server) {
    let mut api = workload::api(server);
    let began = Instant::now();
    // The first look may be at a moment before the archive has looked.
    std::thread::sleep(Duration::from_millis(600));
    while metric(&mut api, "archive_behind_bytes") > 0.0 {
        assert!(began.elapsed() < WAIT_MAX, "the archive never catches up");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn stop(server: Server) {
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
}

/// The directory of the collection with this name.
pub(super) fn directory_of(data: &Path, name: &str) -> PathBuf {
    let text = format!("\"name\": \"default/{name}\"");
    let dirs = std::fs::read_dir(data.join("collections")).expect("a directory");
    let is_of = |dir: &PathBuf| {
        std::fs::read_to_string(dir.join("collection.json")).is_ok_and(|file| file.contains(&text))
    };
    dirs.map(|entry| entry.expect("an entry").path()).find(is_of).expect("a collection of that name")
}

/// Writes the golden directory `to`.
pub(super) fn write(to: &Path) {
    let dir = tempfile::tempdir().expect("a directory");
    let site = Site(dir.path().to_owned());
    for name in ["store", "keys", "export"] {
        std::fs::create_dir(dir.path().join(name)).expect("a directory");
    }
    for (token, scopes) in [(workload::ADMINISTRATOR, "*:*"), (workload::READER, "read:*")] {
        let file = site.path("keys/keys.json");
        run(&["keys", "add", "-file", &file, "-tenant", "*", "-scopes", scopes], &[("SVC_KEY_TOKEN", token)]);
    }
    let names = workload::names();
    let mut expected = serde_json::Map::new();
    let mut note = |name: &str, value: Value| {
        expected.insert(name.to_owned(), value);
    };

    let server = site.start(&ARCHIVE);
    workload::begin(&server);
    workload::api(&server).ok(
        "POST",
        "/v1/collections",
        json!({"name": "marked", "config": {"dim": 2, "metric": "l2"}}),
    );
    workload::settle(&server, &names);
    stop(server);

    let server = site.start(&ARCHIVE);
    let printed = run(&["backup", "-url", &site.url(&server), "run"], &site.key()).stdout;
    let time = printed.split_whitespace().find_map(|word| word.rsplit('/').next()?.strip_suffix(".snap"));
    let time = time.expect("the key of a snapshot ends with its time");
    note("backup", json!({"time": time, "answers": workload::answers(&server, &names)}));
    workload::go_on(&server, 1, &names);
    note("moment", json!({"until": moment(), "answers": workload::answers(&server, &names)}));
    await_archived(&server);
    stop(server);

    let server = site.start(&ARCHIVE);
    workload::go_on(&server, 2, &names);
    workload::settle(&server, &names);
    note("data", workload::answers(&server, &names));
    super::exports(&site, &server);
    workload::api(&server).ok("POST", "/v1/collections/cold/evict", Value::Null);
    await_archived(&server);
    server.kill();
    // Two files that a server has for a moment, or after damage, and which it would have made so. The first is there while a collection is replaced by a
    // restored one; nothing has the uid that it names.
    let formats: BTreeMap<String, u32> = formats();
    let mark = |name: &str, file: &str, content: Value| {
        let mark = sealed_json::encode(formats[file], content, Layout::Lines);
        std::fs::write(directory_of(&site.data(), name).join(file), mark).expect("a file");
    };
    mark("built", "restored.json", json!({"replaces": [1]}));
    mark("marked", "damaged.json", json!({"why": "a segment of the log is missing"}));

    let empty = tempfile::tempdir().expect("a directory");
    let other = Site(empty.path().to_owned());
    std::fs::create_dir(empty.path().join("store")).expect("a directory");
    std::fs::create_dir(empty.path().join("keys")).expect("a directory");
    std::fs::copy(site.path("keys/keys.json"), other.path("keys/keys.json")).expect("a file");
    let server = other.start(&["-cores", "1"]);
    super::imports(&site, &server);
    note("import", workload::answers(&server, &super::IMPORTED));
    drop(server);

    std::fs::create_dir_all(to).expect("a directory");
    pack::pack(dir.path(), &to.join("files.pack"));
    let lines = |value: &Value| {
        // One line for each collection, and for the rest of a part.
        let text = serde_json::to_string(value).expect("plain fields encode");
        text.replace("},\"", "},\n\"") + "\n"
    };
    std::fs::write(to.join("expected.json"), lines(&Value::Object(expected))).expect("a file");
    let formats = serde_json::to_string_pretty(&formats).expect("plain fields encode");
    std::fs::write(to.join("formats.json"), formats + "\n").expect("a file");
}
