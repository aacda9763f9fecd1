//! The same data directory under other conditions: other cores, other shards, damage, a full disk.
use nigh_tests::{Api, Args, Server, SmallDisk, SplitMix, Wire, frame};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const DIM: usize = 24;

fn vector(id: u64) -> Vec<f32> {
    SplitMix(id.wrapping_mul(77) + 1).vector(DIM)
}

fn points(ids: std::ops::Range<u64>) -> Value {
    ids.map(|id| json!({"id": id, "vector": vector(id), "metadata": {"n": {"kind": "int", "int": id}}}))
        .collect()
}

fn create(api: &mut Api, name: &str) {
    api.ok("POST", "/v1/collections", json!({"name": name, "config": {"dim": DIM, "metric": "cosine"}}));
}

/// Ids and distances of ten neighbours of each of fifty queries.
fn answers(server: &Server, name: &str) -> Vec<Vec<(u64, f64)>> {
    let mut api = server.api();
    let path = format!("/v1/collections/{name}/points/search");
    let hits = |query: u64| {
        let answer = api.ok("POST", &path, json!({"query": vector(1_000_000 + query), "k": 10}));
        let hits = answer["results"].as_array().expect("results").clone();
        hits.iter().filter_map(|hit| Some((hit["id"].as_u64()?, hit["distance"].as_f64()?))).collect()
    };
    (0..50).map(hits).collect()
}

/// The exact answers over the live `ids`, from the vectors alone.
fn exact(ids: impl Iterator<Item = u64> + Clone) -> Vec<Vec<u64>> {
    let unit = |id| {
        let vector = vector(id);
        let norm = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
        vector.iter().map(|x| f64::from(*x) / norm).collect::<Vec<f64>>()
    };
    let rows: Vec<(u64, Vec<f64>)> = ids.map(|id| (id, unit(id))).collect();
    let nearest = |query: u64| {
        let query = unit(1_000_000 + query);
        let distance = |row: &[f64]| -row.iter().zip(&query).map(|(a, b)| a * b).sum::<f64>();
        let mut all: Vec<(f64, u64)> = rows.iter().map(|(id, row)| (distance(row), *id)).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all[..10].iter().map(|(_, id)| *id).collect()
    };
    (0..50).map(nearest).collect()
}

/// Share of the exact neighbours among the answers.
fn recall(answers: &[Vec<(u64, f64)>], exact: &[Vec<u64>]) -> f64 {
    let pairs = answers.iter().zip(exact);
    let found: usize =
        pairs.map(|(a, e)| e.iter().filter(|id| a.iter().any(|(found, _)| found == *id)).count()).sum();
    found as f64 / (10 * exact.len()) as f64
}

#[test]
fn any_cores_and_any_shards_give_the_same_answers() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &["-cores", "2"]);
    let mut api = server.api();
    for name in ["a", "b", "acme%2Fc"] {
        create(&mut api, &name.replace("%2F", "/"));
        for first in (0..1500).step_by(500) {
            let body = json!({"points": points(first..first + 500)});
            api.ok("POST", &format!("/v1/collections/{name}/points/batch"), body);
        }
        for id in (0..1500).step_by(10) {
            api.ok("DELETE", &format!("/v1/collections/{name}/points/{id}"), Value::Null);
        }
    }
    let truth = exact((0..1500).filter(|id| id % 10 != 0));
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    let mut first = None;
    for flags in [
        ["-cores", "1", "-shards", "1"],
        ["-cores", "2", "-shards", "256"],
        ["-cores", "1", "-shards", "64"],
        ["-cores", "2", "-shards", "2"],
    ] {
        let server = Server::start(Some(data.path()), &flags);
        let found: Vec<_> = ["a", "b", "acme%2Fc"].map(|name| answers(&server, name)).into();
        for one in &found {
            assert!(recall(one, &truth) >= 0.99, "{flags:?}: recall {}", recall(one, &truth));
        }
        assert_eq!(first.get_or_insert(found.clone()), &found, "{flags:?}");
        // Half of the restarts come after a kill.
        if flags[1] == "2" { server.kill() } else { drop(server.stop()) }
    }
}

#[test]
fn an_answered_build_survives_a_kill() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &[]);
    let mut api = server.api();
    create(&mut api, "built");
    let staged = api.ok("POST", "/v1/collections/built/points/bulk", json!({"points": points(0..1000)}));
    assert_eq!(staged["staged"], 1000);
    api.ok("POST", "/v1/collections/built/points/bulk/build", json!({"workers": 0}));
    let before = answers(&server, "built");
    assert!(recall(&before, &exact(0..1000)) >= 0.99);
    server.kill();
    let server = Server::start(Some(data.path()), &[]);
    assert!(recall(&answers(&server, "built"), &exact(0..1000)) >= 0.99);
    let page = server.api().ok("POST", "/v1/collections/built/points/scroll", json!({}));
    assert_eq!(page["documents"].as_array().map(Vec::len), Some(1000));
}

/// An answered build of a multi-vector collection or of named spaces is there after a kill, with its indexes.
#[test]
fn answered_builds_of_other_families_survive_a_kill() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &["-cores", "2"]);
    let mut api = server.api();
    let encodings = json!({"dim": DIM, "first_stage": "encodings", "persistent": true, "token_codes": "sq8"});
    for (name, config) in [("tokens", json!({ "dim": DIM })), ("encodings", encodings)] {
        let documents: Vec<Value> = (0..400)
            .map(|id| json!({"id": id, "tokens": [vector(id), vector(id + 1)], "metadata": {"n": id}}))
            .collect();
        api.ok("POST", &format!("/v1/multivector/{name}"), config);
        let staged = api.ok("POST", &format!("/v1/multivector/{name}/docs/bulk"), json!({"docs": documents}));
        assert_eq!(staged["staged"], 400);
        api.ok("POST", &format!("/v1/multivector/{name}/docs/bulk/build"), json!({"workers": 0}));
    }
    let spaces = json!({"named_vectors": {"image": {"dim": DIM, "quant": "sq8"}}});
    api.ok("POST", "/v1/named/spaces", spaces);
    let points: Vec<Value> = (0..400).map(|id| json!({"id": id, "vectors": {"image": vector(id)}})).collect();
    api.ok("POST", "/v1/named/spaces/points/bulk", json!({ "points": points }));
    api.ok("POST", "/v1/named/spaces/points/bulk/build", json!({}));
    let found = |server: &Server| -> Vec<Value> {
        let mut api = server.api();
        let mut found = Vec::new();
        for id in (0..400).step_by(40) {
            for name in ["tokens", "encodings"] {
                let query = json!({"query": [vector(id), vector(id + 1)], "k": 1});
                let search = api.ok("POST", &format!("/v1/multivector/{name}/search"), query);
                assert_eq!(search["results"][0]["id"], id, "{name}");
                found.push(api.ok("GET", &format!("/v1/multivector/{name}/points/{id}"), json!({})));
            }
            let query = json!({"vector_name": "image", "query": vector(id), "k": 1});
            let search = api.ok("POST", "/v1/named/spaces/search", query);
            assert_eq!(search["results"][0]["id"], id);
        }
        for path in ["/v1/multivector/tokens", "/v1/multivector/encodings", "/v1/named/spaces"] {
            let count = api.ok("POST", &format!("{path}/count"), json!({}));
            assert_eq!(count["count"], 400, "{path}");
        }
        found
    };
    let before = found(&server);
    server.kill();
    let server = Server::start(Some(data.path()), &["-cores", "1"]);
    assert_eq!(found(&server), before);
}

#[test]
fn text_and_sparse_vectors_come_back_from_the_log_from_images_and_from_a_build() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let mut server = Server::start(Some(data.path()), &["-cores", "2"]);
    let mut api = server.api();
    let config = json!({"dim": DIM, "metric": "cosine", "full_text": {"k1": 0.9, "b": 0.3}});
    for name in ["written", "built"] {
        api.ok("POST", "/v1/collections", json!({"name": name, "config": config}));
    }
    let text = |id: u64| format!("{} number{}", ["river", "stone rivers", "sky"][id as usize % 3], id % 7);
    let staged: Vec<Value> = (0..700)
        .map(|id| {
            let content = json!({"kind": "string", "str": text(id)});
            json!({"id": id, "vector": vector(id), "metadata": {"$content": content}})
        })
        .collect();
    api.ok("POST", "/v1/collections/built/points/bulk", json!({"points": staged}));
    api.ok("POST", "/v1/collections/built/points/bulk/build", json!({}));
    let write = |server: &Server, ids: std::ops::Range<u64>, dimension: u64| {
        let points: Vec<Value> = ids
            .map(|id| {
                let sparse = json!({"indices": [dimension, 100 + id % 5], "values": [1, id % 11]});
                json!({"id": id, "vector": vector(id), "content": text(id), "sparse": sparse})
            })
            .collect();
        let body = json!({"upsert": true, "points": points});
        server.api().ok("POST", "/v1/collections/written/points/batch", body);
    };
    let found = |server: &Server| -> Vec<Value> {
        let mut api = server.api();
        let mut answers = Vec::new();
        for name in ["written", "built"] {
            let path = format!("/v1/collections/{name}/points/search");
            for query in ["river", "stone number3", "sky number1 number2"] {
                answers.push(api.ok("POST", &format!("{path}/text"), json!({"text": query, "k": 500})));
            }
            let sparse = json!({"indices": [1, 2, 101, 103], "values": [0.5, 1, 1, 2]});
            answers.push(api.ok("POST", &format!("{path}/hybrid"), json!({"sparse": sparse, "k": 700})));
        }
        answers
    };
    write(&server, 0..500, 1);
    for round in 0..4 {
        // Replaced points leave nothing behind in the lists.
        write(&server, 100 * round..100 * round + 200, 2);
        server.api().ok("DELETE", &format!("/v1/collections/written/points/{}", 7 * round), Value::Null);
        server.api().ok("DELETE", &format!("/v1/collections/built/points/{}", 7 * round), Value::Null);
        let before = found(&server);
        assert!(before[3]["results"].as_array().is_some_and(|hits| hits.len() > 450), "{}", before[3]);
        let left = [466, 465, 465, 464][round as usize];
        assert_eq!(before[4]["documents"].as_array().map(Vec::len), Some(left), "of 467 that were staged");
        if round % 2 == 0 {
            server.kill()
        } else {
            drop(server.stop())
        }
        server = Server::start(Some(data.path()), &["-cores", if round < 2 { "1" } else { "2" }]);
        assert_eq!(found(&server), before, "round {round}");
    }
}

/// What the server says when it starts with many points that no image holds.
const REPLAYED: &str = "points from the log are being indexed";

#[test]
fn what_a_stop_or_a_pause_leaves_needs_no_indexing() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let start = || Server::start(Some(data.path()), &["-cores", "1"]);
    let fill = |server: &Server, first: u64| {
        for first in (first..first + 6000).step_by(2000) {
            let body = json!({"points": points(first..first + 2000)});
            server.api().ok("POST", "/v1/collections/c/points/batch", body);
        }
    };
    let server = start();
    create(&mut server.api(), "c");
    fill(&server, 0);
    let (status, log) = server.stop();
    assert!(status.success() && !log.contains(REPLAYED), "{log}");

    let server = start();
    assert!(!server.log().contains(REPLAYED), "a clean stop left points in the log: {}", server.log());
    fill(&server, 6000);
    server.kill();
    let server = start();
    assert!(server.log().contains(REPLAYED), "{}", server.log());
    // Writes do not wait until all of it is indexed.
    let more = json!({"points": points(50_000..50_100)});
    server.api().ok("POST", "/v1/collections/c/points/batch", more);
    assert!(!server.log().contains("points from the log are indexed"), "{}", server.log());
    assert!(recall(&answers(&server, "c"), &exact((0..12_000).chain(50_000..50_100))) >= 0.98);

    // Images that cover the old log are written soon after the start, those of a collection at rest some seconds later.
    let wait_until = |what: &dyn Fn() -> bool| {
        let patience = std::time::Instant::now();
        while !what() {
            assert!(patience.elapsed().as_secs() < 120, "{}", server.log());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    wait_until(&|| server.log().contains("points from the log are indexed"));
    fill(&server, 100_000);
    let manifest = || {
        let found = files(data.path()).into_iter().find(|path| path.ends_with("manifest"));
        std::fs::read(found.expect("a collection has a manifest")).expect("a manifest can be read")
    };
    let written = manifest();
    wait_until(&|| manifest() != written);
    server.kill();
    let server = start();
    assert!(!server.log().contains(REPLAYED), "a pause wrote no image: {}", server.log());
}

#[test]
fn drops_and_creates_are_durable_when_answered() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &["-cores", "1"]);
    let mut api = server.api();
    for name in ["kept", "dropped"] {
        create(&mut api, name);
        api.ok("POST", &format!("/v1/collections/{name}/points/batch"), json!({"points": points(0..100)}));
    }
    api.ok("DELETE", "/v1/collections/dropped", Value::Null);
    create(&mut api, "empty");
    server.kill();
    let server = Server::start(Some(data.path()), &["-cores", "1"]);
    let mut api = server.api();
    let count = |api: &mut Api, name: &str| {
        let page = api.ok("POST", &format!("/v1/collections/{name}/points/scroll"), json!({}));
        page["documents"].as_array().map(Vec::len)
    };
    assert_eq!((count(&mut api, "kept"), count(&mut api, "empty")), (Some(100), Some(0)));
    let gone = api.send("POST", "/v1/collections/dropped/points/scroll", &json!({})).expect("an answer");
    assert_eq!(gone.status, 404);
    // The name is free again, and starts empty.
    create(&mut api, "dropped");
    assert_eq!(count(&mut api, "dropped"), Some(0));
}

#[test]
fn deadlines_are_absolute() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &["-cores", "1"]);
    let mut api = server.api();
    create(&mut api, "ttl");
    let long = json!({"id": 1, "vector": vector(1), "ttl_ms": 3_600_000});
    let short = json!({"id": 2, "vector": vector(2), "ttl_ms": 1});
    api.ok("POST", "/v1/collections/ttl/points", long);
    api.ok("POST", "/v1/collections/ttl/points", short);
    server.kill();
    let server = Server::start(Some(data.path()), &["-cores", "1"]);
    let mut api = server.api();
    let left =
        api.ok("GET", "/v1/collections/ttl/points/1", Value::Null)["ttl_ms"].as_u64().expect("a number");
    assert!((1..3_600_000).contains(&left), "{left}");
    assert_eq!(api.send("GET", "/v1/collections/ttl/points/2", &Value::Null).expect("an answer").status, 404);
}

/// Every file below `directory`.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("readable").flatten();
    let mut found: Vec<PathBuf> = entries
        .flat_map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { vec![entry.path()] })
        .collect();
    found.sort();
    found
}

/// Flips one byte in the middle of the first occurrence of `needle` in the files; the file it was in.
fn damage(files: &[PathBuf], needle: &[u8]) -> Option<PathBuf> {
    files.iter().find_map(|path| {
        let mut bytes = std::fs::read(path).ok()?;
        let at = bytes.windows(needle.len()).position(|window| window == needle)?;
        bytes[at + needle.len() / 2] ^= 0x20;
        std::fs::write(path, bytes).ok()?;
        Some(path.clone())
    })
}

#[test]
fn damage_stops_the_collection_it_belongs_to() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &["-cores", "1"]);
    let mut api = server.api();
    for name in ["healthy", "damaged"] {
        create(&mut api, name);
        for id in 0..50 {
            let text = format!("{name} payload number {id}");
            let body =
                json!({"id": id, "vector": vector(id), "metadata": {"t": {"kind": "string", "str": text}}});
            api.ok("POST", &format!("/v1/collections/{name}/points"), body);
        }
    }
    server.kill();
    // In the log: nothing was checkpointed that soon.
    let hit = damage(&files(data.path()), b"damaged payload number 20");
    assert!(hit.is_some(), "the record is in none of {:?}", files(data.path()));

    let server = Server::start(Some(data.path()), &["-cores", "1"]);
    let mut api = server.api();
    let search = json!({"query": vector(7), "k": 1});
    let healthy = api.ok("POST", "/v1/collections/healthy/points/search", search.clone());
    assert_eq!(healthy["results"][0]["id"], 7);
    let damaged = api.send("POST", "/v1/collections/damaged/points/search", &search).expect("an answer");
    assert!(damaged.status >= 500, "{} {}", damaged.status, damaged.body);
    let write = json!({"id": 99, "vector": vector(99)});
    let refused = api.send("POST", "/v1/collections/damaged/points", &write).expect("an answer");
    assert!(refused.status >= 500, "{} {}", refused.status, refused.body);
    api.ok("POST", "/v1/collections/healthy/points", write.clone());
    server.wait_for_log("level=ERROR");
    server.wait_for_log("damaged");
    // It can be dropped and made anew.
    api.ok("DELETE", "/v1/collections/damaged", Value::Null);
    create(&mut api, "damaged");
    api.ok("POST", "/v1/collections/damaged/points", write);
    drop(server);
    let server = Server::start(Some(data.path()), &["-cores", "1"]);
    let page = server.api().ok("POST", "/v1/collections/damaged/points/scroll", json!({}));
    assert_eq!(page["documents"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_full_disk_refuses_writes_and_recovers() {
    let Some(disk) = SmallDisk::mount(96) else { return };
    let (data, ballast) = (disk.path().join("data"), disk.path().join("ballast"));
    std::fs::write(&ballast, vec![1u8; 40 << 20]).expect("the disk holds the ballast");
    let server = Server::start(Some(&data), &["-cores", "1"]);
    let mut api = server.api();
    create(&mut api, "full");
    let mut stored = 0;
    let refused = loop {
        let body = json!({"upsert": true, "points": padded(stored..stored + 100)});
        let reply = api.send("POST", "/v1/collections/full/points/batch", &body).expect("an answer");
        if reply.status != 200 {
            stored += reply.body["committed"].as_u64().expect("how far it came");
            break reply;
        }
        stored += 100;
        assert!(stored < 100_000, "the disk never fills");
    };
    assert_eq!(refused.status, 507, "{}", refused.body);
    let count = |api: &mut Api| {
        let page = api.ok("POST", "/v1/collections/full/points/scroll", json!({}));
        page["documents"].as_array().map_or(0, |documents| documents.len() as u64)
    };
    assert_eq!(count(&mut api), stored);
    let found = api.ok("POST", "/v1/collections/full/points/search", json!({"query": vector(3), "k": 1}));
    assert_eq!(found["results"][0]["id"], 3);

    std::fs::remove_file(&ballast).expect("the ballast goes");
    let body = json!({"upsert": true, "points": padded(stored..stored + 1)});
    let mut tries = 0;
    while api.send("POST", "/v1/collections/full/points/batch", &body).expect("an answer").status != 200 {
        tries += 1;
        assert!(tries < 300, "writes stay refused after space returned:\n{}", server.log());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    stored += 1;
    server.kill();
    let server = Server::start(Some(&data), &["-cores", "1"]);
    assert_eq!(count(&mut server.api()), stored);
}

/// Points with about 2 KiB of payload each.
fn padded(ids: std::ops::Range<u64>) -> Value {
    let pad = "p".repeat(2000);
    ids.map(|id| json!({"id": id, "vector": vector(id), "metadata": {"pad": {"kind": "string", "str": pad}}}))
        .collect()
}

/// Bytes of log segments below a data directory.
fn log_bytes(data: &Path) -> u64 {
    let segments = files(&data.join("log")).into_iter().filter_map(|path| path.metadata().ok());
    segments.map(|segment| segment.len()).sum()
}

/// Writes of keys that come faster than their images, here because these cannot be written at all, wait: what a start has to read, and
/// what the log takes of the disk, stays bounded.
#[test]
fn writes_of_keys_wait_for_images() {
    const WRITES: usize = 8_000;
    const LOG_MAX: u64 = 256 << 20;
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &["-cores", "1", "-tcp", "127.0.0.1:0"]);
    let (keys, away) = (data.path().join("keys"), data.path().join("away"));
    std::fs::rename(&keys, &away).expect("images have no place from here on");
    let answered = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let writer = std::thread::spawn({
        let (mut wire, answered): (Wire, _) = (server.tcp(), answered.clone());
        move || {
            let put = |n: usize| frame("put", &Args::new().s16(n.to_be_bytes()).s32([7; 60_000]).u64(0).0);
            for first in (0..WRITES).step_by(16) {
                wire.send((first..first + 16).flat_map(put).collect::<Vec<u8>>());
                for _ in 0..16 {
                    wire.response().ok();
                    answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            }
        }
    });
    let answered = || answered.load(std::sync::atomic::Ordering::Relaxed);
    let (mut most, mut before, mut still) = (0, 0, 0);
    while still < 10 && !writer.is_finished() {
        std::thread::sleep(std::time::Duration::from_millis(100));
        most = most.max(log_bytes(data.path()));
        still = if answered() == before && before > 0 { still + 1 } else { 0 };
        before = answered();
    }
    println!("{before} writes answered, {} MiB of log at most", most >> 20);
    assert!(before < WRITES, "nothing held the writes up");
    // A round of requests, and segments that are allocated ahead.
    assert!(most < LOG_MAX + (64 << 20), "{most} bytes of log");
    std::fs::rename(&away, &keys).expect("and now they have");
    writer.join().expect("every write is answered");
    server.kill();
    let server = Server::start(Some(data.path()), &["-cores", "1", "-tcp", "127.0.0.1:0"]);
    let mut wire = server.tcp();
    for n in (0..WRITES).step_by(97) {
        assert_eq!(wire.ask("get", &Args::new().s16(n.to_be_bytes()).0).ok().len(), 60_000);
    }
    assert!(log_bytes(data.path()) < LOG_MAX / 2, "images were written again");
}

/// A point of a collection of named spaces, each third of which lacks one or the other vector.
fn named_point(id: u64) -> Value {
    let mut vectors = serde_json::Map::new();
    if !id.is_multiple_of(3) {
        vectors.insert("a".to_owned(), json!(vector(id)));
    }
    if id % 3 != 1 {
        vectors.insert("b".to_owned(), json!(vector(id + 10_000)[..8]));
    }
    let sparse = json!({"words": {"indices": [id % 5, 7], "values": [1, 0.5]}});
    json!({"id": id, "vectors": vectors, "sparse_vectors": sparse, "metadata": {"n": id}})
}

/// Points as they are read, and what searches of each space find.
fn named_state(server: &Server) -> Value {
    let mut api = server.api();
    let ids: Vec<u64> = (0..400).collect();
    let points = api.ok("POST", "/v1/named/spaces/points/batch-get", json!({ "ids": ids }));
    let search =
        |api: &mut Api, route: &str, body: Value| api.ok("POST", &format!("/v1/named/spaces/{route}"), body);
    let near = |space: &str, dim: usize| json!({"vector_name": space, "query": vector(5)[..dim], "k": 500});
    let found = [
        search(&mut api, "search", near("a", DIM)),
        search(&mut api, "search", near("b", 8)),
        search(
            &mut api,
            "sparse-search",
            json!({"vector_name": "words", "query": {"indices": [7], "values": [1]}, "k": 500}),
        ),
    ];
    json!({"points": points, "found": found})
}

#[test]
fn named_spaces_are_there_after_a_kill() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &["-cores", "2"]);
    let mut api = server.api();
    let spaces = json!({"a": {"dim": DIM}, "b": {"dim": 8, "metric": 1, "index_type": "ivf", "ivf_train_threshold": 50},
        "words": {"sparse": true}});
    api.ok("POST", "/v1/named/spaces", json!({ "named_vectors": spaces }));
    for id in 0..400 {
        api.ok("POST", "/v1/named/spaces/points", named_point(id));
    }
    for id in (0..400).step_by(7) {
        api.ok("POST", "/v1/named/spaces/points", json!({"id": id, "vectors": {"a": vector(id + 1)}}));
    }
    for id in (0..400).step_by(11) {
        api.ok("DELETE", &format!("/v1/named/spaces/points/{id}"), Value::Null);
    }
    let before = named_state(&server);
    server.kill();
    let server = Server::start(Some(data.path()), &["-cores", "1"]);
    assert_eq!(named_state(&server), before, "after a kill");
    // A clean stop writes images; the next start opens them.
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    let server = Server::start(Some(data.path()), &["-cores", "2"]);
    assert_eq!(named_state(&server), before, "from images");
    let mut api = server.api();
    api.ok(
        "POST",
        "/v1/named/spaces/points",
        json!({"id": 1, "vectors": {"b": vector(3)[..8]}, "expected_version": 1}),
    );
    let point = api.ok("GET", "/v1/named/spaces/points/1", Value::Null);
    assert_eq!(
        (&point["version"], point["vectors"].as_object().map(|found| found.len())),
        (&json!(2), Some(2))
    );
}

/// A document of three tokens, of which two are those of the documents beside it.
fn document(id: u64) -> Value {
    let tokens: Vec<Vec<f32>> = (id..id + 3).map(vector).collect();
    json!({"id": id, "tokens": tokens, "sparse": {"indices": [id % 5, 7], "values": [1, 0.5]}, "metadata": {"n": id}})
}

/// Documents as they are read, and what searches find.
fn documents_state(server: &Server) -> Value {
    let mut api = server.api();
    let ids: Vec<u64> = (0..700).collect();
    let documents = api.ok("POST", "/v1/multivector/papers/points/batch-get", json!({ "ids": ids }));
    let query = [vector(5), vector(690)];
    // The first search scores every match, because few match; the second one scores the documents of the nearest tokens.
    let few = json!({"op": "lt", "field": "n", "value": 200});
    let found = [
        api.ok("POST", "/v1/multivector/papers/search", json!({"query": query, "k": 200, "filter": few})),
        api.ok("POST", "/v1/multivector/papers/search", json!({"query": query, "k": 1000})),
        api.ok(
            "POST",
            "/v1/multivector/papers/hybrid-search",
            json!({"query": query, "k": 1000,
            "sparse": {"indices": [7], "values": [1]}}),
        ),
    ];
    let nearest = api.ok("POST", "/v1/multivector/papers/search", json!({"query": [vector(6)], "k": 1}));
    assert!((4..=6).contains(&nearest["results"][0]["id"].as_u64().expect("a hit")), "{nearest}");
    json!({"documents": documents, "found": found})
}

#[test]
fn documents_of_tokens_are_there_after_a_kill() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &["-cores", "2"]);
    let mut api = server.api();
    api.ok("POST", "/v1/multivector/papers", json!({"dim": DIM, "persistent": true}));
    for first in (0..700).step_by(100) {
        let docs: Vec<Value> = (first..first + 100).map(document).collect();
        api.ok("POST", "/v1/multivector/papers/docs/batch", json!({ "docs": docs }));
    }
    for id in (0..700).step_by(7) {
        api.ok(
            "POST",
            "/v1/multivector/papers/docs",
            json!({"id": id, "tokens": [vector(id + 1)], "metadata": {"n": id}}),
        );
    }
    for id in (0..700).step_by(11) {
        api.ok("DELETE", &format!("/v1/multivector/papers/docs/{id}"), Value::Null);
    }
    let before = documents_state(&server);
    server.kill();
    let server = Server::start(Some(data.path()), &["-cores", "1"]);
    assert_eq!(documents_state(&server), before, "after a kill");
    // A clean stop writes images; the next start opens them.
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    let server = Server::start(Some(data.path()), &["-cores", "2"]);
    assert_eq!(documents_state(&server), before, "from images");
    let mut api = server.api();
    let replaced = json!({"id": 1, "tokens": [vector(3)], "expected_version": 1});
    api.ok("POST", "/v1/multivector/papers/docs", replaced);
    let read = api.ok("GET", "/v1/multivector/papers/points/1", Value::Null);
    assert_eq!((&read["version"], read["tokens"].as_array().map(Vec::len)), (&json!(2), Some(1)));
    api.ok("DELETE", "/v1/multivector/papers", Value::Null);
    server.kill();
    let server = Server::start(Some(data.path()), &["-cores", "2"]);
    let mut api = server.api();
    let listed = api.ok("GET", "/v1/collections", Value::Null);
    assert_eq!(listed["collections"], json!([]));
    api.ok("POST", "/v1/multivector/papers", json!({ "dim": 2 }));
}

/// Over two transports and for every family; each is killed right after its answer.
#[test]
fn a_changed_configuration_survives_a_kill() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let flags = |cores| ["-tcp", "127.0.0.1:0", "-cores", cores];
    let mut server = Server::start(Some(data.path()), &flags("2"));
    let mut api = server.api();
    create(&mut api, "films");
    api.ok("POST", "/v1/named/scenes", json!({"named_vectors": {"image": {"dim": 2}, "title": {"dim": 3}}}));
    api.ok("POST", "/v1/multivector/papers", json!({"dim": 2}));
    let (dense, spaces) = ("/v1/collections/films/config", "/v1/named/scenes/config");
    let tokens = "/v1/multivector/papers/config";
    for round in 0..3u64 {
        let ef = 100 + round;
        let spaces_change = json!({"title": {"ef_search": ef, "max_ef_search": 7}});
        let answers = if round == 1 {
            for (operation, name, change) in [
                ("vector_change_config", "films", json!({"ef_search": ef, "max_vectors": 5 + round})),
                ("vector_named_change_config", "scenes", spaces_change),
                ("vector_mv_change_config", "papers", json!({"ef_search": ef})),
            ] {
                let args = Args::new().s8(name).s32(change.to_string());
                server.tcp().ask(operation, args.0).ok();
            }
            [dense, spaces, tokens].map(|path| server.api().ok("GET", path, Value::Null))
        } else {
            let mut api = server.api();
            [
                api.ok("PATCH", dense, json!({"ef_search": ef, "max_vectors": 5 + round})),
                api.ok("PATCH", spaces, json!({"named_vectors": spaces_change})),
                api.ok("PATCH", tokens, json!({"ef_search": ef})),
            ]
        };
        server.kill();
        server = Server::start(Some(data.path()), &flags(["1", "2"][round as usize % 2]));
        let mut api = server.api();
        let found = [dense, spaces, tokens].map(|path| api.ok("GET", path, Value::Null));
        assert_eq!(found, answers);
        assert_eq!(
            (&found[0]["config"]["ef_search"], &found[0]["config"]["max_vectors"]),
            (&json!(ef), &json!(5 + round))
        );
        assert_eq!(found[1]["named_vectors"]["title"]["ef_search"], ef);
        assert_eq!(found[1]["named_vectors"]["image"]["ef_search"], 64);
        assert_eq!(found[2]["config"]["ef_search"], ef);
    }
    let mut api = server.api();
    api.ok("POST", "/v1/collections/films/points/batch", json!({"points": points(0..7)}));
    let full = api.send("POST", "/v1/collections/films/points", &json!({"id": 7, "vector": vector(7)}));
    assert_eq!(full.expect("an answer").status, 429, "the quota that was changed last");
}

/// The payload of a point of a collection with plain payloads.
fn nested(id: u64) -> Value {
    json!({"n": {"id": id, "even": id.is_multiple_of(2)}, "list": [id % 5, "x", null, {"deep": [id % 3]}], "flat": 0})
}

/// A collection with plain payloads of each family: the body that creates it and its path, the path that writes a point, that before `/{id}/payload`,
/// that before `/count`, and that before `/scroll`.
fn plain_collections() -> [(Value, [&'static str; 5]); 3] {
    let dense = json!({"name": "plain", "config": {"dim": 2, "payload_format": "plain"}});
    let named = json!({"named_vectors": {"a": {"dim": 2}}, "payload_format": "plain"});
    let documents = json!({"dim": 2, "payload_format": "plain"});
    let points = "/v1/collections/plain/points";
    let (spaces, tokens) = ("/v1/named/spaces", "/v1/multivector/tokens");
    [
        (dense, ["/v1/collections", points, points, points, points]),
        (named, [spaces, "/v1/named/spaces/points", "/v1/named/spaces/points", spaces, spaces]),
        (documents, [tokens, "/v1/multivector/tokens/docs", "/v1/multivector/tokens/points", tokens, tokens]),
    ]
}

/// The points of these collections, and how many of them filters by path find.
fn nested_state(server: &Server) -> Vec<Value> {
    let mut api = server.api();
    let collections = plain_collections();
    let states = collections.iter().map(|(_, [.., many, list])| {
        let points = api.ok("POST", &format!("{list}/scroll"), json!({"limit": 200}));
        let counts: Vec<Value> = [
            json!({"op": "lt", "field": "n.id", "value": 50}),
            json!({"op": "contains", "field": "list", "value": 3}),
            json!({"op": "contains", "field": "list[].deep", "value": 1}),
            json!({"op": "eq", "field": "n.even", "value": true}),
            json!({"op": "exists", "field": "n.new"}),
        ]
        .into_iter()
        .map(|filter| api.ok("POST", &format!("{many}/count"), json!({ "filter": filter }))["count"].clone())
        .collect();
        json!({"points": points, "counts": counts})
    });
    states.collect()
}

#[test]
fn plain_payloads_are_there_after_a_kill() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(Some(data.path()), &["-cores", "2"]);
    let mut api = server.api();
    for (create, [path, write, change, ..]) in plain_collections() {
        api.ok("POST", path, create);
        for id in 0..200u64 {
            let point = json!({"id": id, "vector": [1, id], "metadata": nested(id)});
            let mut point = point.as_object().expect("an object").clone();
            match path {
                "/v1/collections" => {}
                "/v1/named/spaces" => drop(point.insert("vectors".into(), json!({"a": point["vector"]}))),
                _ => drop(point.insert("tokens".into(), json!([point["vector"]]))),
            }
            if path != "/v1/collections" {
                point.remove("vector");
            }
            api.ok("POST", write, point.into());
        }
        for id in (0..200u64).step_by(7) {
            let path = format!("{change}/{id}/payload");
            api.ok("POST", &path, json!({"n": {"id": id, "new": [id]}, "more": {"a": 1}}));
        }
    }
    let before = nested_state(&server);
    for state in &before {
        assert_eq!(state["points"]["documents"][1]["metadata"], nested(1));
        assert_eq!(state["counts"], json!([50, 40, 67, 85, 29]));
    }
    server.kill();
    let server = Server::start(Some(data.path()), &["-cores", "1"]);
    assert_eq!(nested_state(&server), before, "after a kill");
    // A change after the restart keeps the values of keys that it does not name.
    let mut api = server.api();
    for (_, [_, _, change, ..]) in plain_collections() {
        api.ok("POST", &format!("{change}/3/payload"), json!({"later": {"kind": {"kind": "int"}}}));
    }
    let before = nested_state(&server);
    for state in &before {
        let payload = &state["points"]["documents"][3]["metadata"];
        assert_eq!((&payload["n"], &payload["later"]), (&nested(3)["n"], &json!({"kind": {"kind": "int"}})));
    }
    // A clean stop writes images; the next start opens them.
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    let server = Server::start(Some(data.path()), &["-cores", "2"]);
    assert_eq!(nested_state(&server), before, "from images");
    let mut api = server.api();
    // An alias has the format of what it stands for.
    api.ok("POST", "/v1/aliases", json!({"alias": "other", "collection": "plain"}));
    let point = json!({"id": 1, "vector": [1, 1], "metadata": {"kind": {"kind": "int"}}, "upsert": true});
    api.ok("POST", "/v1/collections/other/points", point);
    let point = api.ok("GET", "/v1/collections/plain/points/1", Value::Null);
    assert_eq!(point["payload"], json!({"kind": {"kind": "int"}}));
}
