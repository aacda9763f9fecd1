//! What golden directories hold: a fixed workload of every family, in three phases, and the questions about it.
//!
//! Changing this file changes what the next golden directory is made of, and which questions are asked of all of them. A question about what an older
//! directory does not have must therefore be asked only of what it has: `expected.json` names the collections.
use super::compare::DEADLINE;
use nigh_tests::{Api, Args, Server, SplitMix, Stream, Wire};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The API key that may do everything, and one that may only read. Golden directories have a file of both.
pub(super) const ADMINISTRATOR: &str = "golden-key-of-an-administrator";
pub(super) const READER: &str = "golden-key-of-a-reader";
/// A time to live that outlasts the tests: 100 years.
const TTL_MS: u64 = 100 * 365 * 86_400_000;
const DIM: usize = 8;
const WAIT_MAX: Duration = Duration::from_secs(60);
const QUERIES: u64 = 2;
/// The points that answers show one by one have lower ids, and points with higher ids have small payloads.
const SHOWN: u64 = 44;
const TRAINED_COUNT: u64 = 260;
const WORDS: [&str; 6] = ["river", "stone", "harbour", "window", "orchard", "signal"];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Dense,
    Named,
    MultiVector,
}

/// A collection of the workload.
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) family: Family,
    config: Value,
    /// Points of the first phase.
    count: u64,
    /// Written to after the first phase. A collection that has given up its vectors takes no more points.
    is_changed: bool,
}

impl Spec {
    /// The first part of the paths of its routes, for the collection under this name.
    fn root_of(&self, name: &str) -> String {
        let family = match self.family {
            Family::Dense => "collections",
            Family::Named => "named",
            Family::MultiVector => "multivector",
        };
        format!("/v1/{family}/{}", name.replace('/', "%2F"))
    }

    fn root(&self) -> String {
        self.root_of(self.name)
    }

    /// The part of its routes about points.
    fn inner(&self, route: &str) -> String {
        match self.family {
            Family::Dense => format!("points/{route}"),
            _ => route.to_owned(),
        }
    }

    fn has(&self, key: &str) -> bool {
        self.config.get(key).is_some()
    }

    fn id(&self, id: u64) -> Value {
        match self.has("ids") {
            true => json!(format!("id-{id:02}")),
            false => json!(id),
        }
    }
}

/// Every collection, with every kind of index and quantizer that needs no device.
pub(super) fn specs() -> Vec<Spec> {
    let dense = |name, more: Value| {
        let mut config = json!({"dim": DIM, "metric": "l2"});
        config.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        Spec { name, family: Family::Dense, config, count: 32, is_changed: true }
    };
    // Quantizers are trained from 256 points on.
    let trained = |name, more: Value| {
        let mut spec = dense(name, more);
        spec.config["ivf_train_threshold"] = TRAINED_COUNT.into();
        Spec { count: TRAINED_COUNT, ..spec }
    };
    let spaces = json!({"full_text": {"analyzer": "english"}, "max_vectors": 5000, "named_vectors": {
        "a": {"dim": DIM, "metric": "cosine"}, "b": {"dim": 4, "metric": "dot", "quant": "sq8"}, "words": {"sparse": true},
        "gone": {"dim": 3, "metric": "l2"}, "gone-words": {"sparse": true}}});
    vec![
        dense("plain", json!({"full_text": {"analyzer": "english"}, "max_ef_search": 900, "ef_search": 80})),
        dense(
            "objects",
            json!({"metric": "cosine", "ids": "string", "payload_format": "plain", "full_text": {"analyzer": "folding"}}),
        ),
        dense(
            "acme/dots",
            json!({"metric": "dot", "extend_candidates": true, "level0_full_degree": true, "max_inserts_per_second": 100_000}),
        ),
        dense("file", json!({"quant": "sq8", "persistent": true})),
        trained("sq", json!({"quant": "sq", "sq_bits": 4})),
        trained("bq1", json!({"quant": "bq1", "metric": "cosine", "rescore_factor": 4})),
        trained("pq", json!({"quant": "pq", "quant_pq_m": 4, "pq_nbits": 4, "opq": true, "opq_iters": 2})),
        trained("prq", json!({"quant": "prq", "quant_pq_m": 2, "prq_layers": 2})),
        Spec {
            is_changed: false,
            ..trained("codes", json!({"quant": "pq", "quant_pq_m": 4, "pq_nbits": 4, "pq_drop_vecs": true}))
        },
        dense("vamana", json!({"index_type": "vamana", "vamana_r": 12, "vamana_l": 60})),
        dense(
            "lists",
            json!({"index_type": "ivf", "ivf_nlist": 4, "ivf_nprobe": 4, "ivf_train_threshold": 24, "soar": true, "ivf_drift_retrain": true}),
        ),
        dense(
            "list-file",
            json!({"index_type": "ivf", "ivf_nlist": 4, "ivf_nprobe": 4, "ivf_train_threshold": 24, "persistent": true}),
        ),
        dense(
            "list-codes",
            json!({"index_type": "ivf", "ivf_nlist": 4, "ivf_nprobe": 4, "ivf_train_threshold": 24, "ivf_pq": true,
            "ivf_pq_m": 4, "pq_nbits": 4, "ivf_rerank": true}),
        ),
        dense(
            "list-codes-alone",
            json!({"index_type": "ivf", "ivf_nlist": 4, "ivf_nprobe": 4, "ivf_train_threshold": 24, "ivf_pq": true,
            "ivf_pq_m": 4, "pq_nbits": 8}),
        ),
        dense("built", json!({"m": 8})),
        dense("cold", json!({})),
        Spec { name: "spaces", family: Family::Named, config: spaces, count: 32, is_changed: true },
        Spec {
            name: "tokens",
            family: Family::MultiVector,
            config: json!({"dim": DIM, "full_text": {}, "payload_format": "plain"}),
            count: 32,
            is_changed: true,
        },
        Spec {
            name: "encodings",
            family: Family::MultiVector,
            config: json!({"dim": DIM, "token_codes": "sq8", "first_stage": "encodings", "encoding_repetitions": 2,
                "encoding_bits": 2, "encoding_dim": 4}),
            count: 32,
            is_changed: true,
        },
    ]
}

/// A connection of the administrator.
pub(super) fn api(server: &Server) -> Api {
    Api::connect_with_key(server.authority(), ADMINISTRATOR).expect("the server accepts connections")
}

pub(super) fn wire(server: &Server) -> Wire {
    Wire::over(Stream::connect(server.tcp_authority(), None).expect("the server accepts"), ADMINISTRATOR)
}

fn vector(of: u64) -> Vec<f32> {
    SplitMix(of.wrapping_mul(977) + 1).vector(DIM)
}

/// The fields of a point that all families have.
fn fields(spec: &Spec, id: u64, phase: u64) -> Map<String, Value> {
    let parity = if id % 2 == 0 { "even" } else { "odd" };
    let metadata = match spec.config["payload_format"] == "plain" {
        _ if id >= SHOWN => json!({ "n": id }),
        true => {
            json!({"n": id, "parity": parity, "phase": phase, "inside": {"x": [1, "a", null, {"y": id}]}, "at": {"lat": 41.5, "lon": -0.25}})
        }
        false if id % 4 != 0 => {
            json!({"n": id, "parity": parity, "at": {"kind": "geo", "lat": 41.5, "lon": -0.25}})
        }
        false => {
            json!({"n": id, "parity": parity, "phase": phase, "f": {"kind": "float", "flt": id as f64 / 2.0}, "is": id % 3 == 0,
            "nothing": null, "texts": ["a", "b"], "ints": [1, -2], "floats": [0.5, 1e300],
            "at": {"kind": "geo", "lat": 41.5, "lon": -0.25}, "record": {"kind": "record", "rec": "AgEBbgMCAAAAAAAAAA=="}})
        }
    };
    let mut fields = Map::new();
    fields.insert("id".into(), spec.id(id));
    fields.insert("metadata".into(), metadata);
    let words = [WORDS[id as usize % 6], WORDS[(id / 6 + phase) as usize % 6], WORDS[phase as usize % 6]];
    if spec.has("full_text") {
        fields.insert("content".into(), words.join(" ").into());
    }
    // A bulk build takes no times to live.
    let is_staged = spec.name == "built" && phase == 0;
    if id % 5 == 4 && spec.family != Family::MultiVector && !is_staged {
        fields.insert("ttl_ms".into(), TTL_MS.into());
    }
    if id % 7 == 6 && !is_staged {
        fields.insert("key_ttl_ms".into(), json!({"parity": TTL_MS}));
    }
    fields
}

fn point(spec: &Spec, id: u64, phase: u64) -> Value {
    let mut point = fields(spec, id, phase);
    let of = phase * 100_000 + id * 100;
    let sparse = json!({"indices": [id % 5, 4_000_000_000_u32], "values": [1.0 + id as f32 / 64.0, 0.5]});
    match spec.family {
        Family::Dense => {
            point.insert("vector".into(), json!(vector(of)));
            if spec.name == "plain" && id % 3 == 0 {
                point.insert("sparse".into(), sparse);
            }
        }
        Family::Named => {
            let mut vectors = json!({"a": vector(of), "b": &vector(of + 1)[..4]});
            if phase == 0 {
                vectors["gone"] = json!([1, 2, 3]);
            }
            point.insert("vectors".into(), vectors);
            point.insert("sparse_vectors".into(), json!({ "words": sparse }));
        }
        Family::MultiVector => {
            let tokens: Vec<_> = (0..=id % 3).map(|token| vector(of + token)).collect();
            point.insert("tokens".into(), json!(tokens));
            if spec.name == "tokens" {
                point.insert("sparse".into(), sparse);
            }
        }
    }
    Value::Object(point)
}

fn write(api: &mut Api, spec: &Spec, ids: std::ops::Range<u64>, phase: u64) {
    let points: Vec<Value> = ids.map(|id| point(spec, id, phase)).collect();
    let root = spec.root();
    match spec.family {
        Family::Dense => {
            api.ok("POST", &format!("{root}/points/batch"), json!({"points": points, "upsert": true}))
        }
        Family::Named => api.ok("POST", &format!("{root}/points/batch"), json!({ "points": points })),
        Family::MultiVector => api.ok("POST", &format!("{root}/docs/batch"), json!({ "docs": points })),
    };
}

fn delete(api: &mut Api, spec: &Spec, id: u64) {
    let inner = if spec.family == Family::MultiVector { "docs" } else { "points" };
    let path = format!("{}/{inner}/{}", spec.root(), spec.id(id).to_string().trim_matches('"'));
    assert_eq!(api.ok("DELETE", &path, Value::Null)["deleted"], true, "{path}");
}

fn put(wire: &mut Wire, key: &[u8], value: &[u8], ttl_ms: u64) {
    wire.ask("put", Args::new().s16(key).s32(value).u64(ttl_ms)).ok();
}

/// A record with an unsigned byte `n` and bytes `s`.
fn record(n: u8, s: &str) -> Vec<u8> {
    [&[2, 2, 1, b'n', 0, n, 1, b's', 12, s.len() as u8][..], s.as_bytes()].concat()
}

/// The keys of all phases.
fn key_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = (0..40).map(|n| format!("user:{n:02}").into_bytes()).collect();
    names.extend([&b"\xff\x00\n"[..], b"", b"large", b"counter", b"later"].map(<[u8]>::to_vec));
    names
}

/// The first phase: everything is created and filled.
pub(super) fn begin(server: &Server) {
    let (mut api, mut wire) = (api(server), wire(server));
    for spec in &specs() {
        match spec.family {
            Family::Dense => {
                let body = json!({"name": spec.name, "config": spec.config});
                api.ok("POST", "/v1/collections", body)
            }
            _ => api.ok("POST", &spec.root(), spec.config.clone()),
        };
        if spec.name == "built" {
            let points: Vec<Value> = (0..spec.count).map(|id| point(spec, id, 0)).collect();
            api.ok("POST", "/v1/collections/built/points/bulk", json!({ "points": points }));
            api.ok("POST", "/v1/collections/built/points/bulk/build", json!({}));
        } else {
            write(&mut api, spec, 0..spec.count, 0);
        }
    }
    for space in ["gone", "gone-words"] {
        api.ok("DELETE", &format!("/v1/named/spaces/spaces/{space}"), Value::Null);
    }
    api.ok(
        "POST",
        "/v1/collections/plain/points",
        json!({"id": u64::MAX, "vector": vector(1), "content": "an \"odd\" id\n", "ttl_ms": TTL_MS}),
    );
    api.ok("POST", "/v1/aliases", json!({"alias": "live", "collection": "plain"}));
    api.ok("POST", "/v1/aliases", json!({"alias": "views", "collection": "spaces"}));
    for n in 0..40 {
        let ttl_ms = if n % 4 == 3 { TTL_MS } else { 0 };
        put(&mut wire, format!("user:{n:02}").as_bytes(), &record(n, "of the first phase"), ttl_ms);
    }
    put(&mut wire, b"\xff\x00\n", b"\x80\x81", 0);
    put(&mut wire, b"", b"", 0);
    put(&mut wire, b"large", &vec![b'x'; 100_000], TTL_MS);
    wire.ask("incr", Args::new().s16("counter").i64(41)).ok();
    let index = |name: &str, path: &str| Args::new().s8(name).s8("user:").s8(path).u8(0).u8(1);
    wire.ask("__kv_index_set__", index("by.n", "n")).ok();
    wire.ask("__kv_index_set__", index("by.s", "s")).ok();
}

/// A later phase, from 1 to 3, of the collections `names`: points and keys are changed and deleted, and new ones come.
pub(super) fn go_on(server: &Server, phase: u64, names: &[&str]) {
    let (mut api, mut wire) = (api(server), wire(server));
    for spec in specs().iter().filter(|spec| spec.is_changed && names.contains(&spec.name)) {
        write(&mut api, spec, 24 + 4 * phase..34 + 4 * phase, phase);
        delete(&mut api, spec, 3 * phase);
        if phase > 1 {
            // Its versions go on where those of the deleted point ended.
            write(&mut api, spec, 3..4, phase);
        }
        let id = spec.id(10 + phase);
        let path = format!("{}/points/{}/payload", spec.root(), id.to_string().trim_matches('"'));
        api.ok("POST", &path, json!({"n": 700 + phase, "set": "later"}));
    }
    let added = format!("added-{phase}");
    api.ok("POST", "/v1/named/spaces/spaces", json!({"name": added, "config": {"dim": 2, "metric": "l2"}}));
    api.ok("PATCH", "/v1/collections/plain/config", json!({"ef_search": 80 + phase}));
    let target = ["file", "objects", "pq"][phase as usize - 1];
    api.ok("POST", "/v1/aliases", json!({"alias": "live", "collection": target}));
    for n in (0..40).step_by(3) {
        put(&mut wire, format!("user:{n:02}").as_bytes(), &record(n + phase as u8, "of a later phase"), 0);
    }
    wire.ask("del", Args::new().s16(format!("user:{:02}", 20 + phase))).ok();
    wire.ask("incr", Args::new().s16("counter").i64(-7)).ok();
    put(&mut wire, b"later", &[phase as u8], TTL_MS);
}

/// Waits until nothing of the collections `names` is indexed, trained or built any more, so that what a clean stop writes has it.
pub(super) fn settle(server: &Server, names: &[&str]) {
    let mut api = api(server);
    let began = Instant::now();
    let mut is_busy = |spec: &Spec| {
        let info = api.ok("GET", &spec.root(), Value::Null);
        let is_untrained = match spec.config["quant"].as_str() {
            Some("sq" | "bq1" | "pq" | "prq") => info["index"]["walks"] == "float",
            _ => spec.config["index_type"] == "ivf" && info["index"]["cells"] == 0,
        };
        info["index"]["waiting"] != 0 || is_untrained
    };
    for spec in specs().iter().filter(|spec| names.contains(&spec.name)) {
        while is_busy(spec) {
            assert!(began.elapsed() < WAIT_MAX, "{} is never indexed and trained", spec.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    u64::try_from(since.as_millis()).expect("a time")
}

/// A time that is left, as the second at which it ends.
fn deadline_s(left_ms: u64) -> Value {
    ((now_ms() + left_ms) / 1000).into()
}

fn ids_of(answer: &Value) -> Vec<&Value> {
    answer["results"].as_array().expect("results").iter().map(|found| &found["id"]).collect()
}

/// What a server answers about the collection `name` that has what `spec` says.
fn collection(api: &mut Api, spec: &Spec, name: &str) -> Value {
    let root = spec.root_of(name);
    let mut ask = |route: &str, body: Value| api.ok("POST", &format!("{root}/{route}"), body);
    // Those that are deleted, changed and expire are among them.
    let is_shown = |id: &u64| id % 9 == 0 || [3, 6, 24].contains(id) || (10..14).contains(id);
    let mut ids: Vec<Value> = (0..SHOWN).filter(is_shown).map(|id| spec.id(id)).collect();
    if !spec.has("ids") {
        ids.push(u64::MAX.into());
    }
    let mut points = ask("points/batch-get", json!({ "ids": ids }));
    for point in points["points"].as_array_mut().expect("points") {
        let point = point.as_object_mut().expect("a point");
        let left_ms = point.remove("ttl_ms").and_then(|left| left.as_u64()).unwrap_or(0);
        if left_ms > 0 {
            point.insert(DEADLINE.into(), deadline_s(left_ms));
        }
    }
    let mut searches = Vec::new();
    for query in 0..QUERIES {
        let query = 7_000_000 + query;
        let dense = json!({"query": vector(query), "k": 10, "exact": true});
        match spec.family {
            Family::Dense => {
                let exact = ask("points/search", dense.clone());
                // By the index that was on the disk.
                let mut walk = dense;
                walk["exact"] = false.into();
                walk["ef_search"] = 400.into();
                let found = ask("points/search", walk);
                let (exact_ids, ids) = (ids_of(&exact), ids_of(&found));
                let same = ids.iter().filter(|id| exact_ids.contains(id)).count();
                assert!(ids.len() == 10 && same >= 7, "{name}: {exact} by the index: {found}");
                searches.push(exact);
            }
            Family::Named => {
                let mut a = dense;
                a["vector_name"] = "a".into();
                let b = json!({"vector_name": "b", "query": &vector(query)[..4], "k": 10, "exact": true});
                let sparse = json!({"vector_name": "words", "query": {"indices": [query % 5], "values": [1]}, "k": 10});
                searches.extend([ask("search", a), ask("search", b), ask("sparse-search", sparse)]);
            }
            Family::MultiVector => {
                let query = json!([vector(query), vector(query + 1)]);
                searches.push(ask("search", json!({"query": query, "k": 10})));
            }
        }
    }
    if spec.has("full_text") {
        for word in &WORDS[..3] {
            searches.push(ask("query", json!({"k": 5, "prefetch": [{ "text": word }]})));
        }
    }
    if spec.name == "plain" || spec.name == "tokens" {
        let sparse = json!({"indices": [2], "values": [1]});
        searches.push(ask("query", json!({"k": 5, "prefetch": [{ "sparse": sparse }]})));
    }
    let counts: Vec<Value> = [
        json!({"op": "eq", "field": "parity", "value": "odd"}),
        json!({"op": "gt", "field": "n", "value": 20}),
        json!({"op": "geo_radius", "field": "at", "geo": {"center_lat": 41, "center_lon": 0, "radius_m": 1_000_000}}),
    ]
    .into_iter()
    .map(|filter| ask(&spec.inner("count"), json!({ "filter": filter })))
    .collect();
    let mut config = api.ok("GET", &format!("{root}/config"), Value::Null);
    config.as_object_mut().expect("an object").remove("name");
    json!({"config": config, "points": points, "searches": searches, "counts": counts})
}

fn hex(bytes: &[u8]) -> String {
    // One long value of one byte is not worth its place in a file of answers.
    match bytes {
        [first, rest @ ..] if rest.len() > 1000 && rest.iter().all(|byte| byte == first) => {
            format!("{} times {first:02x}", bytes.len())
        }
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// What a server answers about the keys.
fn keys(wire: &mut Wire) -> Value {
    let values: Map<String, Value> = key_names()
        .into_iter()
        .map(|key| {
            let found = wire.ask("get", Args::new().s16(&key));
            let value = match found.status {
                1 => Value::Null,
                _ => {
                    let ttl = wire.ask("ttl", Args::new().s16(&key)).ok();
                    let left_ms = i64::from_be_bytes(ttl.try_into().expect("eight bytes"));
                    let value = hex(&found.ok());
                    match u64::try_from(left_ms) {
                        Ok(left_ms) => json!({"value": value, DEADLINE: deadline_s(left_ms)}),
                        Err(_) => json!({ "value": value }),
                    }
                }
            };
            (hex(&key), value)
        })
        .collect();
    let began = Instant::now();
    let mut query = |index: &str, filter: &str| {
        let filtered = Args::new().u8(1).s8(index).u16(100).u8(0).u8(0).s32(filter);
        loop {
            let answer = wire.ask("kv_query", &filtered);
            if answer.status == 0 {
                return hex(&answer.ok());
            }
            assert!(began.elapsed() < WAIT_MAX && answer.error().ends_with("is being built"), "{index}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let by_n = query("by.n", r#"{"op":"gt","field":"n","value":{"kind":"int","int":30}}"#);
    let by_s = query("by.s", r#"{"op":"eq","field":"s","value":{"kind":"string","str":"of a later phase"}}"#);
    json!({"values": values, "by.n": by_n, "by.s": by_s, "indexes": hex(&wire.ask("__kv_index_list__", b"").ok())})
}

/// What a server answers about these collections, its aliases and its keys.
pub(super) fn answers(server: &Server, names: &[&str]) -> Value {
    let mut api = api(server);
    let specs = specs();
    let collections: Map<String, Value> = names
        .iter()
        .map(|name| {
            // What comes back from the file `<name>.npy` is called so.
            let original = name.split('.').next().unwrap_or_default();
            let spec = specs.iter().find(|spec| spec.name == original).expect("a collection of the workload");
            ((*name).to_owned(), collection(&mut api, spec, name))
        })
        .collect();
    let aliases = api.ok("GET", "/v1/aliases", Value::Null);
    json!({"collections": collections, "aliases": aliases, "keys": keys(&mut wire(server))})
}

/// The names of all collections.
pub(super) fn names() -> Vec<&'static str> {
    specs().iter().map(|spec| spec.name).collect()
}
