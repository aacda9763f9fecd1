//! Backups of whole servers: into a directory, while clients write, and back into other servers; servers that are killed in the middle.
use nigh_tests::{Api, Args, Server, SplitMix, Wire, long, run_to_end, test_seed};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DIM: usize = 16;

fn vector(seed: u64) -> Vec<f32> {
    SplitMix(seed.wrapping_mul(977) + 1).vector(DIM)
}

/// Creates a collection of each family, and one whose vectors lie in a file.
pub(crate) fn create(api: &mut Api) {
    let dense = |name: &str, more: Value| {
        let mut config = json!({"dim": DIM, "metric": "l2"});
        config.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({"name": name, "config": config})
    };
    api.ok("POST", "/v1/collections", dense("docs", json!({"full_text": {}})));
    api.ok("POST", "/v1/collections", dense("files", json!({"persistent": true, "quant": "sq8"})));
    let spaces = json!({"named_vectors": {"a": {"dim": DIM, "metric": "cosine"}, "b": {"dim": 4, "metric": "l2"}, "words": {"sparse": true}}});
    api.ok("POST", "/v1/named/spaces", spaces);
    api.ok("POST", "/v1/multivector/tokens", json!({"dim": DIM}));
}

/// Writes the points `ids` with what `seed` says of them.
pub(crate) fn fill(api: &mut Api, ids: std::ops::Range<u64>, seed: u64) {
    for id in ids {
        let metadata = json!({"seed": {"kind": "int", "int": seed}, "id": {"kind": "int", "int": id}});
        let of = seed * 100_000 + id;
        let content = format!("text{} rest", id % 7);
        let point =
            json!({"id": id, "vector": vector(of), "metadata": metadata, "upsert": true, "content": content});
        api.ok("POST", "/v1/collections/docs/points", point);
        let point = json!({"id": id, "vector": vector(of), "metadata": metadata, "upsert": true});
        api.ok("POST", "/v1/collections/files/points", point);
        let sparse = json!({"words": {"indices": [id % 5, 9], "values": [1, 0.5]}});
        let vectors = json!({"a": vector(of), "b": &vector(of)[..4]});
        let point = json!({"id": id, "vectors": vectors, "sparse_vectors": sparse, "metadata": metadata});
        api.ok("POST", "/v1/named/spaces/points", point);
        let tokens: Vec<_> = (0..=id % 3).map(|token| vector(of + token * 7)).collect();
        let document = json!({"id": id, "tokens": tokens, "metadata": metadata});
        api.ok("POST", "/v1/multivector/tokens/docs", document);
    }
}

/// What a server answers about all of them, under the names that `name` makes.
pub(crate) fn answers(api: &mut Api, name: &dyn Fn(&str) -> String) -> Vec<Value> {
    let mut all = Vec::new();
    let (docs, files, spaces, tokens) = (name("docs"), name("files"), name("spaces"), name("tokens"));
    for query in 0..20 {
        let dense = json!({"query": vector(5_000_000 + query), "k": 10, "ef_search": 400});
        for collection in [&docs, &files] {
            all.push(api.ok(
                "POST",
                &format!("/v1/collections/{collection}/points/search/docs"),
                dense.clone(),
            ));
        }
        let named = json!({"vector_name": "a", "query": vector(query), "k": 10});
        all.push(api.ok("POST", &format!("/v1/named/{spaces}/search/docs"), named));
        let sparse =
            json!({"vector_name": "words", "query": {"indices": [query % 5], "values": [1]}, "k": 10});
        all.push(api.ok("POST", &format!("/v1/named/{spaces}/sparse-search"), sparse));
        all.push(api.ok(
            "POST",
            &format!("/v1/multivector/{tokens}/search"),
            json!({"query": [vector(query)], "k": 10}),
        ));
    }
    all.push(api.ok(
        "POST",
        &format!("/v1/collections/{docs}/query"),
        json!({"k": 10, "prefetch": [{"text": "text3"}]}),
    ));
    all
}

pub(crate) fn as_named(name: &str) -> String {
    name.to_owned()
}

/// Runs `nigh backup` against a server; what it prints.
fn backup(server: &Server, words: &[&str]) -> String {
    let url = format!("http://{}", server.authority());
    let arguments: Vec<&str> = ["backup", "-url", &url].into_iter().chain(words.iter().copied()).collect();
    let exit = run_to_end(&arguments, &[]);
    assert!(exit.status.success(), "{words:?}: {}{}", exit.stdout, exit.stderr);
    exit.stdout
}

#[test]
fn aliases_and_definitions_of_key_indexes_are_restored_by_name_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, other, store) = (dir.path().join("data"), dir.path().join("other"), dir.path().join("store"));
    std::fs::create_dir(&store).expect("a directory");
    let server = start(&data, &store, &["-cores", "2"]);
    let mut api = server.api();
    let docs = json!({"name": "docs", "config": {"dim": DIM, "metric": "l2"}});
    api.ok("POST", "/v1/collections", docs);
    let alias = |name: &str| json!({"alias": name, "collection": "docs"});
    api.ok("POST", "/v1/aliases", alias("live"));
    let before = api.ok("GET", "/v1/aliases", Value::Null);
    let printed = backup(&server, &["run"]);
    assert!(printed.contains("docs: ") && printed.contains("aliases: "), "{printed}");
    assert!(backup(&server, &["list"]).contains("default/aliases/"));
    assert!(backup(&server, &["verify", "-part", "aliases"]).contains("is whole"));
    api.ok("POST", "/v1/aliases", alias("later"));
    // A restored collection brings no alias along and takes none away.
    backup(&server, &["restore", "docs"]);
    assert_ne!(api.ok("GET", "/v1/aliases", Value::Null), before);
    backup(&server, &["restore", "-part", "aliases"]);
    assert_eq!(api.ok("GET", "/v1/aliases", Value::Null), before);
    drop((api, server));

    let server = start(&other, &store, &["-cores", "1", "-shards", "4"]);
    let mut api = server.api();
    let restore = json!({"part": "aliases"});
    let refused = api.send("POST", "/v1/admin/backups/restore", &restore).expect("an answer");
    assert_eq!(refused.status, 400, "{}", refused.body);
    backup(&server, &["restore", "docs"]);
    backup(&server, &["restore", "-part", "aliases"]);
    assert_eq!(api.ok("GET", "/v1/aliases", Value::Null), before);
    for (body, status) in [
        (json!({"part": "key-indexes"}), 412),
        (json!({"part": "docs"}), 400),
        (json!({"part": "aliases", "collection": "docs"}), 400),
        (json!({"part": "aliases", "into": "x"}), 400),
        (json!({"part": "aliases", "time": "2001-01-31T10:00:00Z"}), 404),
    ] {
        let answer = api.send("POST", "/v1/admin/backups/restore", &body).expect("an answer");
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
    }
}

#[test]
fn api_keys_are_restored_by_an_administrator_of_the_snapshot_alone() {
    const RESTORE: &str = "/v1/admin/backups/restore";
    let dir = tempfile::tempdir().expect("a directory");
    let (data, store) = (dir.path().join("data"), dir.path().join("store"));
    std::fs::create_dir(&store).expect("a directory");
    let file = dir.path().join("keys/keys.json");
    let path = file.to_str().expect("the path is text");
    let add = |token: &str, scopes: &str| {
        let add = ["keys", "add", "-file", path, "-tenant", "*", "-scopes", scopes];
        let added = run_to_end(&add, &[("SVC_KEY_TOKEN", token)]);
        assert!(added.status.success(), "{}{}", added.stdout, added.stderr);
    };
    add("the-first-admin", "*:*");
    add("a-reader-of-all", "read:*");
    let server = start(&data, &store, &["-cores", "2", "-keys-file", path]);
    let api = |token| Api::connect_with_key(server.authority(), token).expect("the server listens");
    let mut first = api("the-first-admin");
    let run = first.ok("POST", "/v1/admin/backup", Value::Null);
    assert_eq!(run["parts"][0]["part"], "api-keys", "{run}");
    let key = run["parts"][0]["key"].as_str().expect("a key").to_owned();
    let before = std::fs::read(&file).expect("a file");
    // A snapshot has no token; its bytes are not compressed.
    let stored = walk(&store).into_iter().find(|path| path.to_string_lossy().contains("api-keys"));
    let stored = std::fs::read(stored.expect("a snapshot")).expect("a file");
    assert!(!stored.windows(15).any(|bytes| bytes == b"the-first-admin"));

    let new = json!({"token": "the-second-admin", "tenant": "*", "scopes": ["*:*"]});
    first.ok("POST", "/v1/admin/keys", new);
    first.ok("DELETE", "/v1/admin/keys", json!({"token": "a-reader-of-all"}));
    let (mut second, mut reader) = (api("the-second-admin"), api("a-reader-of-all"));
    let list = |api: &mut Api| api.send("GET", "/v1/collections", &Value::Null).expect("an answer").status;
    assert_eq!((list(&mut second), list(&mut reader)), (200, 401));
    let changed = std::fs::read(&file).expect("a file");
    let part = json!({"part": "api-keys"});
    for (api, status) in [(&mut second, 409), (&mut reader, 401)] {
        let refused = api.send("POST", RESTORE, &part).expect("an answer");
        assert_eq!(refused.status, status, "{}", refused.body);
    }
    assert_eq!(std::fs::read(&file).expect("a file"), changed);
    let verified = second.ok("POST", "/v1/admin/backups/verify", part.clone());
    assert_eq!(verified["key"], key.as_str());
    let restored = first.ok("POST", RESTORE, part.clone());
    assert_eq!((&restored["restored"], &restored["key"]), (&json!("api-keys"), &json!(key)));
    // From the next request on, on open connections as well.
    assert_eq!((list(&mut second), list(&mut reader)), (401, 200));
    assert_eq!(std::fs::read(&file).expect("a file"), before);
    drop((first, second, reader));
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    assert!(!log.contains("token_digest") && !log.contains("the-first-admin"), "{log}");

    let server = start(&data, &store, &["-cores", "1"]);
    let refused = server.api().send("POST", RESTORE, &part).expect("an answer");
    assert_eq!(refused.status, 412, "{}", refused.body);
}

/// All keys with their values, in order.
fn keys_of(server: &Server) -> Vec<u8> {
    server.tcp().ask("kv_query", Args::new().u8(4).s8("").u16(1000).u8(1).u8(0)).ok()
}

#[test]
fn keys_are_backed_up_and_restored_into_another_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, other, store) = (dir.path().join("data"), dir.path().join("other"), dir.path().join("store"));
    std::fs::create_dir(&store).expect("a directory");
    let flags = ["-tcp", "127.0.0.1:0", "-kv-query"];
    let server = start(&data, &store, &[&flags[..], &["-cores", "2", "-shards", "16"]].concat());
    let wire = &mut server.tcp();
    let put = |wire: &mut Wire, key: &str, value: &[u8], ttl_ms: u64| {
        wire.ask("put", Args::new().s16(key).s32(value).u64(ttl_ms)).ok();
    };
    // A record with an unsigned byte `n`.
    let record = |n: u8| [2, 1, 1, b'n', 0, n];
    let definition = Args::new().s8("by.n").s8("r").s8("n").u8(0).u8(1);
    wire.ask("__kv_index_set__", definition).ok();
    for n in 0..300 {
        put(wire, &format!("k{n}"), &vec![n as u8; 7 * n % 4000], 0);
        put(wire, &format!("r{n}"), &record(n as u8), 0);
    }
    put(wire, "large", &vec![1; 6 << 20], 0);
    wire.ask("incr", Args::new().s16("count").i64(42)).ok();
    put(wire, "hour", b"1", 3_600_000);
    put(wire, "soon", b"2", 1);
    wire.ask("del", Args::new().s16("k7")).ok();
    std::thread::sleep(Duration::from_millis(5));
    let first = keys_of(&server);
    assert_eq!(first[..4], 602u32.to_be_bytes(), "a page has all of them");
    let printed = backup(&server, &["run"]);
    assert!(printed.contains("\nkeys: 60") && printed.contains(" keys, "), "{printed}");
    let listed = backup(&server, &["list"]);
    assert!(listed.contains("default/keys/"), "{listed}");
    let verified = backup(&server, &["verify", "-part", "keys"]);
    assert!(verified.contains("is whole: 60") && verified.contains(" keys, "), "{verified}");

    // What has come since goes, and what has gone comes back.
    put(wire, "later", b"3", 0);
    wire.ask("del", Args::new().s16("large")).ok();
    put(wire, "k8", b"other", 0);
    assert_ne!(keys_of(&server), first);
    let printed = backup(&server, &["restore", "-part", "keys"]);
    assert!(printed.contains("keys was replaced"), "{printed}");
    assert_eq!(keys_of(&server), first);
    // Indexes are built anew, and keys are changed like any others.
    let by_n = Args::new().u8(0).s8("by.n").u16(1000).u8(2).u8(0);
    let until = Instant::now() + Duration::from_secs(20);
    let found = loop {
        let answer = wire.ask("kv_query", &by_n.0);
        if answer.status == 0 {
            break answer.ok();
        }
        assert!(Instant::now() < until, "{answer:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(found[..4], 300u32.to_be_bytes());
    put(wire, "after", b"4", 0);
    let after = keys_of(&server);
    server.kill();
    let server = start(&data, &store, &[&flags[..], &["-cores", "1", "-shards", "4"]].concat());
    assert_eq!(keys_of(&server), after);
    drop(server);

    let server = start(&other, &store, &[&flags[..], &["-cores", "1", "-shards", "4"]].concat());
    backup(&server, &["restore", "-part", "keys"]);
    assert_eq!(keys_of(&server), first);
    let wire = &mut server.tcp();
    let left_ms = wire.ask("ttl", Args::new().s16("hour")).ok();
    let left_ms = i64::from_be_bytes(left_ms.try_into().expect("eight bytes"));
    assert!((1..3_600_000).contains(&left_ms), "{left_ms}");
    assert_eq!(wire.ask("get", Args::new().s16("soon")).status, 1);
    // A damaged piece: nothing is replaced.
    put(wire, "mine", b"5", 0);
    let mine = keys_of(&server);
    let piece = walk(&store.join("default").join("pieces")).pop().expect("there are pieces");
    let mut bytes = std::fs::read(&piece).expect("it is a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&piece, bytes).expect("it is ours");
    let mut api = server.api();
    for path in ["/v1/admin/backups/restore", "/v1/admin/backups/verify"] {
        let refused = api.send("POST", path, &json!({"part": "keys"})).expect("an answer");
        assert_eq!(refused.status, 500, "{}", refused.body);
    }
    assert_eq!(keys_of(&server), mine);
}

fn start(data: &Path, store: &Path, flags: &[&str]) -> Server {
    let store = store.to_str().expect("the path is text").to_owned();
    let flags: Vec<&str> = ["-backup-dir", &store].into_iter().chain(flags.iter().copied()).collect();
    Server::start(Some(data), &flags)
}

#[test]
fn collections_of_all_families_are_backed_up_and_restored_into_another_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, other, store) = (dir.path().join("data"), dir.path().join("other"), dir.path().join("store"));
    std::fs::create_dir(&store).expect("a directory");
    let server = start(&data, &store, &["-cores", "2", "-shards", "64"]);
    let mut api = server.api();
    create(&mut api);
    fill(&mut api, 0..120, 1);
    let first = answers(&mut api, &as_named);
    let printed = backup(&server, &["run"]);
    assert_eq!(printed.lines().count(), 4, "{printed}");
    assert!(!printed.contains("FAILED"), "{printed}");
    // A second run sends what has changed.
    fill(&mut api, 100..140, 2);
    let sent = |api: &mut Api| metric(api, "svc_backup_sent_bytes_total");
    let of_first = sent(&mut api);
    std::thread::sleep(Duration::from_millis(1100));
    let run = api.ok("POST", "/v1/admin/backup", Value::Null);
    assert_eq!(run.get("error"), None, "{run}");
    assert_eq!(run["backups"].as_array().map(Vec::len), Some(4));
    let of_second = sent(&mut api) - of_first;
    assert!(of_second > 0.0 && of_second < of_first, "{of_second} of {of_first}");
    let second = answers(&mut api, &as_named);

    let listed = api.ok("GET", "/v1/admin/backups", Value::Null);
    let keys: Vec<&str> = listed["backups"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|object| object["key"].as_str())
        .collect();
    assert_eq!(keys.len(), 16, "{keys:?}");
    assert!(keys.iter().all(|key| key.starts_with("default/default%2F")), "{keys:?}");
    let time_of = |key: &&str| {
        key.rsplit('/').next().map(|name| name.split(".snap").next().expect("it has a beginning").to_owned())
    };
    let times: Vec<String> = keys
        .iter()
        .filter(|key| key.ends_with(".snap") && key.contains("docs"))
        .filter_map(time_of)
        .collect();
    assert_eq!(backup(&server, &["list"]).lines().count(), 8);
    for name in ["docs", "files", "spaces", "tokens"] {
        assert!(backup(&server, &["verify", name]).contains("is whole"));
    }

    // Beside, in place, and under a name of another family.
    for name in ["docs", "files", "spaces", "tokens"] {
        let into = format!("old-{name}");
        let printed = backup(&server, &["restore", name, "-time", &times[0], "-into", &into]);
        assert!(printed.contains(&format!("{into} was made")), "{printed}");
    }
    assert_eq!(answers(&mut api, &|name| format!("old-{name}")), first);
    let reply = api
        .send("POST", "/v1/admin/backups/restore", &json!({"collection": "docs", "into": "spaces"}))
        .expect("an answer");
    assert_eq!(reply.status, 409, "{}", reply.body);
    let reply =
        api.send("POST", "/v1/admin/backups/restore", &json!({"collection": "nothing"})).expect("an answer");
    assert_eq!(reply.status, 404, "{}", reply.body);
    let reply = api
        .send("POST", "/v1/admin/backups/restore", &json!({"collection": "docs", "time": "yesterday"}))
        .expect("an answer");
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert_eq!(answers(&mut api, &as_named), second);
    api.ok("POST", "/v1/aliases", json!({"alias": "current", "collection": "docs"}));
    let printed = backup(&server, &["restore", "docs", "-time", &times[0]]);
    assert!(printed.contains("docs was replaced"), "{printed}");
    let search = json!({"query": vector(5_000_000), "k": 10, "ef_search": 400});
    let by_alias = api.ok("POST", "/v1/collections/current/points/search/docs", search.clone());
    assert_eq!(by_alias, api.ok("POST", "/v1/collections/old-docs/points/search/docs", search));

    // Over a restart, and into a server of another number of cores and shards.
    drop(api);
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    let server = start(&data, &store, &["-cores", "1"]);
    assert_eq!(answers(&mut server.api(), &|name| format!("old-{name}")), first);
    server.stop();
    let server = start(&other, &store, &["-cores", "1", "-shards", "4"]);
    for name in ["docs", "files", "spaces", "tokens"] {
        backup(&server, &["restore", name]);
    }
    let mut api = server.api();
    assert_eq!(answers(&mut api, &as_named), second);
    // It is another data directory, whose backups would destroy those of the first.
    let run = api.ok("POST", "/v1/admin/backup", Value::Null);
    assert!(run["error"].as_str().is_some_and(|error| error.contains("another data directory")), "{run}");
    fill(&mut api, 0..20, 3);
}

/// The value of a metric without labels.
fn metric(api: &mut Api, name: &str) -> f64 {
    let page = api.page("/metrics");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    line.unwrap_or_else(|| panic!("{name} is on the page"))
}

#[test]
fn damaged_objects_are_named_and_nothing_is_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, store) = (dir.path().join("data"), dir.path().join("store"));
    std::fs::create_dir(&store).expect("a directory");
    let server = start(&data, &store, &["-cores", "1"]);
    let mut api = server.api();
    api.ok("POST", "/v1/collections", json!({"name": "docs", "config": {"dim": DIM, "metric": "l2"}}));
    for id in 0..50 {
        api.ok("POST", "/v1/collections/docs/points", json!({"id": id, "vector": vector(id)}));
    }
    backup(&server, &["run"]);
    let objects: Vec<std::path::PathBuf> = walk(&store)
        .into_iter()
        .filter(|path| !path.ends_with("owner.json") && !path.to_string_lossy().ends_with(".cfg.json"))
        .collect();
    assert!(objects.len() >= 2, "{objects:?}");
    let restore = |api: &mut Api| {
        api.send("POST", "/v1/admin/backups/restore", &json!({"collection": "docs"})).expect("an answer")
    };
    for object in objects {
        let whole = std::fs::read(&object).expect("it is a file");
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 16;
        for bad in [&flipped[..], &whole[..whole.len() - 1], b""] {
            std::fs::write(&object, bad).expect("it is ours");
            let reply = restore(&mut api);
            assert_eq!(reply.status, 500, "{object:?}: {}", reply.body);
            let error = reply.body["error"].as_str().expect("a sentence");
            assert!(error.contains("is damaged") || error.contains("corrupt"), "{error}");
            let reply = api
                .send("POST", "/v1/admin/backups/verify", &json!({"collection": "docs"}))
                .expect("an answer");
            assert_eq!(reply.status, 500, "{object:?}: {}", reply.body);
        }
        std::fs::remove_file(&object).expect("it is ours");
        assert!(matches!(restore(&mut api).status, 404 | 500));
        std::fs::write(&object, &whole).expect("it is ours");
        let count = api.ok("POST", "/v1/collections/docs/points/count", json!({}));
        assert_eq!(count["count"], 50);
    }
    assert_eq!(restore(&mut api).status, 200);
}

fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let entries = entries.map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn a_server_that_is_killed_in_a_backup_or_a_restore_serves_all_of_it_or_nothing() {
    let rounds = if long() { 100 } else { 8 };
    let mut random = SplitMix(test_seed(77, rounds));
    let dir = tempfile::tempdir().expect("a directory");
    let (data, store) = (dir.path().join("data"), dir.path().join("store"));
    std::fs::create_dir(&store).expect("a directory");
    let server = start(&data, &store, &["-cores", "2"]);
    let mut api = server.api();
    create(&mut api);
    fill(&mut api, 0..40, 1);
    let first = answers(&mut api, &as_named);
    backup(&server, &["run"]);
    let listed = api.ok("GET", "/v1/admin/backups", Value::Null);
    let time = listed["backups"][0]["key"]
        .as_str()
        .and_then(|key| key.rsplit('/').next())
        .map(|name| name[..20].to_owned());
    let time = time.expect("there is one");
    fill(&mut api, 20..60, 2);
    let second = answers(&mut api, &as_named);
    drop(api);
    // From then on `docs` is restored again and again, and so one of two.
    let possible = [part_of(&first), part_of(&second)];
    let mut server = server;
    for round in 0..rounds {
        let authority = server.authority().to_owned();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (is_over, authority, time) = (&is_over, &authority, &time);
            for words in [
                ("/v1/admin/backup", Value::Null),
                ("/v1/admin/backups/restore", json!({"collection": "docs", "time": time})),
            ] {
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let Ok(mut api) = Api::connect(authority) else { return };
                        if api.send("POST", words.0, &words.1).is_err() {
                            return;
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(random.below(400)));
            server.signal(libc::SIGKILL);
            is_over.store(true, Ordering::Relaxed);
        });
        drop(server);
        server = start(&data, &store, &["-cores", if round % 2 == 0 { "1" } else { "2" }]);
        let mut api = server.api();
        let now = answers(&mut api, &as_named);
        assert!(possible.contains(&part_of(&now)), "round {round}: docs is neither of the two");
        let others = |answers: &[Value]| answers.iter().skip(1).step_by(5).cloned().collect::<Vec<_>>();
        assert_eq!(others(&now), others(&second), "round {round}");
        for name in ["docs", "files", "spaces", "tokens"] {
            backup(&server, &["verify", name]);
        }
    }
}

/// The answers about `docs` alone.
fn part_of(answers: &[Value]) -> Vec<Value> {
    answers.iter().step_by(5).cloned().collect()
}

#[test]
fn backups_are_made_every_interval_and_old_ones_are_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, store) = (dir.path().join("data"), dir.path().join("store"));
    std::fs::create_dir(&store).expect("a directory");
    let server = start(
        &data,
        &store,
        &["-cores", "1", "-backup-interval", "1s", "-backup-retention", "2", "-backup-prefix", "prod/a"],
    );
    let mut api = server.api();
    api.ok("POST", "/v1/collections", json!({"name": "docs", "config": {"dim": DIM, "metric": "l2"}}));
    let began = Instant::now();
    let mut id = 0;
    while metric(&mut api, "svc_backups_total") < 5.0 {
        api.ok("POST", "/v1/collections/docs/points", json!({"id": id, "vector": vector(id)}));
        id += 1;
        assert!(began.elapsed() < Duration::from_secs(60), "there are backups every second or two");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(metric(&mut api, "svc_backup_failures_total"), 0.0);
    assert!(metric(&mut api, "svc_backup_complete_timestamp_seconds") > 1.7e9);
    let listed = api.ok("GET", "/v1/admin/backups", Value::Null);
    let snapshots = listed["backups"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|object| object["key"].as_str().is_some_and(|key| key.ends_with(".snap")));
    let keys: Vec<&str> = snapshots.filter_map(|object| object["key"].as_str()).collect();
    assert!(
        (1..=3).contains(&keys.len()) && keys.iter().all(|key| key.starts_with("prod/a/default%2Fdocs/")),
        "{keys:?}"
    );
    assert!(backup(&server, &["verify", "docs"]).contains("is whole"));
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
}
