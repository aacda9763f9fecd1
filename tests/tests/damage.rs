//! Damage to the files of a real data directory, one file at a time, under whole processes: removed, emptied, cut, exchanged and flipped.
//!
//! The server starts, an answer with 200 is what was written, and what is not served says that it is damaged. 2 flips a file, 200 with
//! `NIGH_TEST_LONG=1`; the simulator does the same with every answer of every store.
use nigh_tests::{Api, Args, Server, SplitMix, long};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const DIM: usize = 8;
const POINTS: u64 = 200;
const KEYS: u64 = 200;
const COLLECTIONS: [&str; 3] = ["plain", "other", "files"];
/// A trial waits twice as long as it computes, for its server and for the disk.
const SIDE_BY_SIDE: usize = 3;
const FLAGS: [&str; 6] = ["-cores", "1", "-tcp", "127.0.0.1:0", "-shards", "4"];

fn vector(collection: usize, id: u64) -> Vec<f32> {
    SplitMix(id * 31 + collection as u64 * 1_000_003 + 1).vector(DIM)
}

fn value(n: u64) -> Vec<u8> {
    SplitMix(n + 5).next().to_le_bytes().repeat(20)
}

fn fill(server: &Server, ids: std::ops::Range<u64>) {
    let (mut api, mut wire) = (server.api(), server.tcp());
    for (collection, name) in COLLECTIONS.into_iter().enumerate() {
        let points: Value =
            ids.clone().map(|id| json!({"id": id, "vector": vector(collection, id)})).collect();
        api.ok("POST", &format!("/v1/collections/{name}/points/batch"), json!({"points": points}));
    }
    for n in ids {
        wire.ask("put", Args::new().s16(n.to_be_bytes()).s32(value(n)).u64(0).0).ok();
    }
}

/// Fills a data directory by two server processes, the first of which leaves images behind and the second a log.
fn directory(path: &Path) {
    let server = Server::start(Some(path), &FLAGS);
    let mut api = server.api();
    for name in COLLECTIONS {
        let config = match name {
            "files" => json!({"dim": DIM, "metric": "l2", "persistent": true, "quant": "sq8"}),
            _ => json!({"dim": DIM, "metric": "l2"}),
        };
        api.ok("POST", "/v1/collections", json!({"name": name, "config": config}));
    }
    api.ok("POST", "/v1/aliases", json!({"alias": "live", "collection": "plain"}));
    fill(&server, 0..POINTS / 2);
    drop(server.stop());
    let server = Server::start(Some(path), &FLAGS);
    fill(&server, POINTS / 2..POINTS);
    drop(server.stop());
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path => found.push(path),
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).expect("it lies below"));
        std::fs::create_dir_all(target.parent().expect("it has one")).expect("a directory");
        std::fs::copy(&file, &target).expect("a copy");
    }
}

/// Checks every point of one collection, and returns whether it says that it is damaged.
fn is_damaged(api: &mut Api, collection: usize, path: &str, what: &str) -> bool {
    let body = json!({"ids": (0..POINTS).collect::<Vec<_>>(), "with_vector": true});
    let answer =
        api.send("POST", &format!("/v1/collections/{path}/points/batch-get"), &body).expect("an answer");
    if answer.status != 200 {
        let why = answer.body["error"].as_str().unwrap_or_default();
        assert!(answer.status == 500 && why.contains("damaged"), "{what}: {path} {}", answer.body);
        return true;
    }
    let found = answer.body;
    let documents = found["points"].as_array().unwrap_or_else(|| panic!("{what}: {found}"));
    assert_eq!(documents.len() as u64, POINTS, "{what}: {path}");
    for document in documents {
        let id = document["id"].as_u64().expect("an id");
        let vector = vector(collection, id);
        let same = document["vector"].as_array().expect("a vector").iter().zip(&vector);
        assert!(same.clone().count() == DIM, "{what}: {path} {id}");
        for (found, wanted) in same {
            assert!((found.as_f64().expect("a number") as f32 - wanted).abs() < 1e-6, "{what}: {path} {id}");
        }
    }
    false
}

/// Returns the stores that say that they are damaged, after checking that everything else is what was written.
fn check(data: &Path, what: &str) -> BTreeSet<String> {
    let server = Server::start(Some(data), &FLAGS);
    let (mut api, mut wire) = (server.api(), server.tcp());
    let mut damaged = BTreeSet::new();
    let listed = api.ok("GET", "/v1/collections", Value::Null);
    for (collection, name) in COLLECTIONS.into_iter().enumerate() {
        let is = is_damaged(&mut api, collection, name, what);
        let all = listed["collections"].as_array().expect("a list");
        let one =
            all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{what}: {name} is gone"));
        assert_eq!(one["damaged"], is, "{what}: {name}");
        if is {
            damaged.insert(name.to_owned());
        }
    }
    assert_eq!(is_damaged(&mut api, 0, "live", what), damaged.contains("plain"), "{what}: an alias");
    let is_served: Vec<bool> = (0..KEYS)
        .map(|n| {
            let response = wire.ask("get", Args::new().s16(n.to_be_bytes()).0);
            if response.status != 0 {
                assert!(response.error().contains("damaged"), "{what}: key {n}");
                return false;
            }
            assert!(response.ok() == value(n), "{what}: key {n}");
            true
        })
        .collect();
    assert!(is_served.windows(2).all(|pair| pair[0] == pair[1]), "{what}: keys are served or not");
    let key = || Args::new().s16(0u64.to_be_bytes());
    let asked = [
        ("exists", key()),
        ("ttl", key()),
        ("mget", Args::new().u16(1).s16(0u64.to_be_bytes())),
        ("del", Args::new().s16("absent")),
        ("put_batch", Args::new().u32(1).s16("new").s32("x").u64(0)),
    ];
    for (op, args) in asked {
        let response = wire.ask(op, args.0);
        // Status 1 is an answer as well: it says that there is no such key.
        let is_refused = response.status > 1 && response.error().contains("damaged");
        assert_eq!(is_refused, !is_served[0], "{what}: {op}");
    }
    if !is_served[0] {
        damaged.insert("the keys".to_owned());
    }
    if !damaged.is_empty() {
        server.wait_for_log("level=ERROR");
    }
    server.kill();
    damaged
}

/// What is done to a directory, and its name.
type Trial = (String, Box<dyn Fn(&Path) + Send + Sync>);

/// Every change of one file of the directory `base` that is tried.
fn trials(base: &Path) -> Vec<Trial> {
    let mut trials: Vec<Trial> = vec![("nothing".to_owned(), Box::new(|_| ()))];
    let mut random = SplitMix(9);
    let all = files(base);
    let below = |file: &Path| file.strip_prefix(base).expect("below").to_owned();
    for (index, file) in all.iter().enumerate() {
        let path = below(file);
        let name = path.display().to_string();
        let bytes: Arc<[u8]> = std::fs::read(file).expect("a file").into();
        let removed = path.clone();
        trials.push((
            format!("{name} removed"),
            Box::new(move |data| std::fs::remove_file(data.join(&removed)).expect("removed")),
        ));
        for (what, len) in [("emptied", 0), ("cut", bytes.len() / 2)] {
            let (path, bytes) = (path.clone(), bytes.clone());
            trials.push((
                format!("{name} {what}"),
                Box::new(move |data| std::fs::write(data.join(&path), &bytes[..len]).expect("written")),
            ));
        }
        let sibling = all[index + 1..].iter().find(|other| {
            other.extension() == file.extension()
                && other.file_name().map(|n| n.len()) == file.file_name().map(|n| n.len())
        });
        if let Some(other) = sibling {
            let (path, other) = (path.clone(), below(other));
            trials.push((
                format!("{name} exchanged with {}", other.display()),
                Box::new(move |data| {
                    let (a, b, c) = (data.join(&path), data.join(&other), data.join("between"));
                    std::fs::rename(&a, &c)
                        .and_then(|()| std::fs::rename(&b, &a))
                        .and_then(|()| std::fs::rename(&c, &b))
                        .expect("renamed");
                }),
            ));
        }
        if path == Path::new("LOCK") || bytes.is_empty() {
            continue;
        }
        for _ in 0..if long() { 200 } else { 2 } {
            let (at, bit) = (random.below(bytes.len() as u64) as usize, random.below(8));
            let (path, bytes) = (path.clone(), bytes.clone());
            trials.push((
                format!("{name} flipped at {at}"),
                Box::new(move |data| {
                    let mut bytes = bytes.to_vec();
                    bytes[at] ^= 1 << bit;
                    std::fs::write(data.join(&path), bytes).expect("written");
                }),
            ));
        }
    }
    trials
}

#[test]
fn a_damaged_file_is_never_a_wrong_answer() {
    let base = tempfile::tempdir().expect("a temporary directory");
    directory(base.path());
    let trials = trials(base.path());
    let (next, hit) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                while let Some((what, change)) = trials.get(next.fetch_add(1, Relaxed)) {
                    let data = tempfile::tempdir().expect("a temporary directory");
                    copy(base.path(), data.path());
                    change(data.path());
                    let damaged = check(data.path(), what);
                    hit.fetch_add(usize::from(!damaged.is_empty()), Relaxed);
                }
            });
        }
    });
    let hit = hit.into_inner();
    println!("{} trials, {hit} of which said that a store is damaged", trials.len());
    assert!(hit > 0);
}
