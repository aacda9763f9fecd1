//! Multi-vector collections.
use super::{Args, Clients, Hit, Server, binary_hits, floats, hits_of, numbers, sparse_json};
use nigh_net::tcp::reader::ArgsReader;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const DIM: usize = 4;
/// The weighted method, a weight of a quarter, and no bounds.
const FUSION: [u8; 21] = [1, 0x3f, 0xd0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A document to be written.
#[derive(Clone, Default)]
struct Written {
    id: u64,
    tokens: Vec<Vec<f32>>,
    sparse: Vec<(u32, f32)>,
    metadata: Value,
    expected_version: Option<u64>,
}

impl Written {
    fn rest(&self) -> Value {
        json!({"id": self.id, "tokens": self.tokens, "sparse": sparse_json(&self.sparse), "metadata": self.metadata,
            "expected_version": self.expected_version})
    }

    fn grpc(&self, name: &str) -> Value {
        let (indices, values): (Vec<u32>, Vec<f32>) = self.sparse.iter().copied().unzip();
        json!({"name": name, "id": self.id, "tokens": messages(&self.tokens), "sparse_indices": indices,
            "sparse_values": values, "metadata_json": self.metadata.to_string(),
            "expected_version": self.expected_version.unwrap_or(0),
            "has_expected_version": self.expected_version.is_some()})
    }

    fn binary(&self, collection: &str) -> Args {
        let args = matrix(Args::on(collection).u64(self.id), &self.tokens);
        let args = args.s32(self.metadata.to_string().as_bytes());
        let args = match self.expected_version {
            Some(version) => args.u8(0).u8(1).u64(version),
            None if self.sparse.is_empty() => return args,
            None => args.u8(0).u8(0),
        };
        if self.sparse.is_empty() { args } else { args.u8(1).sparse(&self.sparse) }
    }
}

fn messages(tokens: &[Vec<f32>]) -> Value {
    tokens.iter().map(|token| json!({ "values": token })).collect()
}

fn matrix(args: Args, tokens: &[Vec<f32>]) -> Args {
    tokens.iter().fold(args.u32(tokens.len()), |args, token| args.floats(token))
}

/// A document that is read: its tokens, payload and version.
type Read = Option<(Vec<Vec<f32>>, Value, u64)>;

impl Clients {
    fn document_rest(&mut self, name: &str, id: u64) -> Read {
        let (status, text) = self.rest.text("GET", &format!("/v1/multivector/{name}/points/{id}"), "");
        let document: Value = serde_json::from_str(&text).unwrap();
        if status != 200 {
            assert!(text.contains("document not found"), "{text}");
            return None;
        }
        assert_eq!(document.as_object().unwrap().len(), 4, "{document}");
        let tokens = document["tokens"].as_array().unwrap().iter().map(floats).collect();
        Some((tokens, document["payload"].clone(), document["version"].as_u64().unwrap()))
    }

    fn document_grpc(&mut self, name: &str, id: u64) -> Read {
        let document = self.grpc.call("MVGet", json!({"collection": name, "id": id})).ok()?;
        Some(message_document(&document))
    }

    fn document_binary(&mut self, name: &str, id: u64) -> Read {
        let bytes = self.binary.ask("vector_mv_get", &Args::on(name).u64(id).u8(3)).unwrap();
        binary_document(&mut ArgsReader::new(&bytes))
    }

    fn add(&mut self, name: &str, document: &Written, transport: u64) -> Result<(), String> {
        match transport {
            0 => {
                let path = format!("/v1/multivector/{name}/docs");
                let (status, text) = self.rest.text("POST", &path, &document.rest().to_string());
                if status == 200 { Ok(()) } else { Err(text) }
            }
            1 => self.binary.ask("vector_mv_add", &document.binary(name)).map(drop),
            _ => {
                let added = self.grpc.call("MVAdd", document.grpc(name));
                added.map(drop).map_err(|(_, text)| text)
            }
        }
    }
}

fn message_document(document: &Value) -> (Vec<Vec<f32>>, Value, u64) {
    let tokens = document["tokens"].as_array().cloned().unwrap_or_default();
    let tokens = tokens.iter().map(|token| floats(&token["values"])).collect();
    let payload =
        document["payload_json"].as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
    (tokens, payload, document["version"].as_u64().unwrap())
}

fn binary_document(args: &mut ArgsReader<'_>) -> Read {
    if args.u8("found").unwrap() == 0 {
        return None;
    }
    let (count, dim) = (args.u32("tokens").unwrap(), args.u32("dim").unwrap());
    let tokens = (0..count).map(|_| args.floats(dim, "tokens").unwrap()).collect();
    let payload = match args.flag("meta").unwrap() {
        true => serde_json::from_str(args.text32("meta").unwrap()).unwrap(),
        false => Value::Null,
    };
    assert_eq!(args.u8("versioned"), Ok(1));
    Some((tokens, payload, args.u64("version").unwrap()))
}

/// `scored` as hits.
fn binary_scored(bytes: &[u8]) -> Vec<Hit> {
    let mut args = ArgsReader::new(bytes);
    let hits = (0..args.u32("n").unwrap())
        .map(|_| {
            let (id, score) = (args.u64("id").unwrap(), args.f32("score").unwrap());
            let metadata = match args.text32("metadata").unwrap() {
                "" => Value::Null,
                text => serde_json::from_str(text).unwrap(),
            };
            (id, 0.0, score, metadata)
        })
        .collect();
    assert!(args.is_empty());
    hits
}

/// What the twin knows of a document.
#[derive(Clone, Default)]
struct Twin {
    tokens: Vec<Vec<f32>>,
    sparse: Vec<(u32, f32)>,
    group: u64,
    version: u64,
}

/// Token vectors of length one whose products are multiples of a quarter, so that sums in any order are the same.
fn random_tokens(most: u64, seed: &mut u64) -> Vec<Vec<f32>> {
    (0..1 + numbers(seed) % most)
        .map(|_| match numbers(seed) % 2 {
            0 => {
                let mut token = vec![0.0; DIM];
                token[numbers(seed) as usize % DIM] = 1.0;
                token
            }
            _ => (0..DIM).map(|_| if numbers(seed).is_multiple_of(2) { 0.5 } else { -0.5 }).collect(),
        })
        .collect()
}

fn random_document(id: u64, seed: &mut u64) -> Written {
    let tokens = random_tokens(5, seed);
    let mut sparse = Vec::new();
    if numbers(seed).is_multiple_of(2) {
        sparse = (0..6).filter(|_| numbers(seed).is_multiple_of(3)).map(|at| (at, at as f32 + 0.5)).collect();
    }
    Written { id, tokens, sparse, metadata: json!({"group": numbers(seed) % 3}), expected_version: None }
}

fn max_sim(query: &[Vec<f32>], tokens: &[Vec<f32>]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let best = |token: &Vec<f32>| tokens.iter().map(|other| dot(token, other)).fold(f32::MIN, f32::max);
    query.iter().map(best).sum()
}

/// Random changes, each over a transport that is drawn, and what every transport says of them beside a naive twin.
#[test]
fn changes_and_answers_are_the_same_everywhere() {
    check_changes(json!({}));
    check_changes(json!({"first_stage": "encodings", "encoding_repetitions": 3, "encoding_bits": 2}));
}

fn check_changes(first_stage: Value) {
    let server = Server::start();
    let mut clients = server.clients();
    let name = "papers";
    let mut config = json!({"dim": DIM, "m": 8, "seed": -7, "filter_first_relative_bp": 100});
    let config_keys = config.as_object_mut().unwrap();
    config_keys
        .extend(first_stage.as_object().unwrap().iter().map(|(key, value)| (key.clone(), value.clone())));
    clients.grpc.call("MVCreateCollection", json!({"name": name, "config": config})).unwrap();
    let told = check_config(&mut clients, name);
    for (key, value) in config.as_object().unwrap() {
        assert_eq!(told[key], *value, "{key}");
    }
    let mut twin: BTreeMap<u64, Twin> = BTreeMap::new();
    let mut versions: BTreeMap<u64, u64> = BTreeMap::new();
    let mut seed = 5;
    for step in 0..900 {
        let id = numbers(&mut seed) % 60;
        let transport = numbers(&mut seed) % 3;
        match numbers(&mut seed) % 10 {
            0 => {
                let deleted = delete(&mut clients, name, id, transport);
                assert_eq!(deleted, twin.remove(&id).is_some(), "{step}");
            }
            1 => {
                let group = numbers(&mut seed) % 3;
                let changed = set_group(&mut clients, name, id, group, transport);
                assert_eq!(changed, twin.contains_key(&id), "{step}");
                if let Some(document) = twin.get_mut(&id) {
                    (document.group, document.version) = (group, document.version + 1);
                    versions.insert(id, document.version);
                }
            }
            choice => {
                let mut document = random_document(id, &mut seed);
                let stored = twin.get(&id).map_or(0, |document| document.version);
                if choice == 2 {
                    document.expected_version = Some(stored + numbers(&mut seed) % 2);
                }
                let written = clients.add(name, &document, transport);
                let wanted = document.expected_version.is_none_or(|version| version == stored);
                assert_eq!(written.is_ok(), wanted, "{step}: {written:?}");
                if !wanted {
                    assert!(written.unwrap_err().contains("version conflict"));
                    continue;
                }
                let version = versions.get(&id).map_or(1, |version| version + 1);
                versions.insert(id, version);
                let group = document.metadata["group"].as_u64().unwrap();
                let Written { tokens, sparse, .. } = document;
                twin.insert(id, Twin { tokens, sparse, group, version });
            }
        }
        if step % 30 == 0 {
            compare(&mut clients, name, &twin, &mut seed);
        }
    }
    compare(&mut clients, name, &twin, &mut seed);
    for (id, document) in (0..60).map(|id| (id, twin.get(&id))) {
        let expected = document.map(|document| {
            let group = match document.group {
                0 => json!({"kind": "int"}),
                group => json!({"kind": "int", "int": group}),
            };
            (document.tokens.clone(), json!({ "group": group }), document.version)
        });
        assert_eq!(clients.document_rest(name, id), expected, "{id}");
        assert_eq!(clients.document_binary(name, id), expected, "{id}");
        assert_eq!(clients.document_grpc(name, id), expected, "{id}");
    }
}

/// Tokens that are stored as codes are the same over every transport, close to those that were sent, and stay when the payload changes.
#[test]
fn tokens_as_codes_are_the_same_everywhere() {
    let server = Server::start();
    let mut clients = server.clients();
    for (codes, error, first_stage) in
        [("sq8", 0.02, "tokens"), ("sq4", 0.25, "encodings"), ("sq2", 0.9, "encodings")]
    {
        let (name, mut seed) = (codes, 11);
        let config = json!({"dim": DIM, "seed": -7, "token_codes": codes, "first_stage": first_stage});
        clients.grpc.call("MVCreateCollection", json!({"name": name, "config": config})).unwrap();
        let (_, text) = clients.rest.text("GET", &format!("/v1/multivector/{name}/config"), "");
        let told: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(told["config"]["token_codes"], codes, "{told}");
        let message = clients.grpc.call("MVGetConfig", json!({ "name": name })).unwrap();
        assert_eq!(message["config"]["token_codes"], codes, "{message}");
        for id in 0..30 {
            let document = random_document(id, &mut seed);
            clients.add(name, &document, id % 3).unwrap();
            let (tokens, _, _) = clients.document_rest(name, id).unwrap();
            for (read, sent) in tokens.iter().zip(&document.tokens) {
                let off: f32 = read.iter().zip(sent).map(|(a, b)| (a - b).powi(2)).sum();
                assert!(off.sqrt() < error, "{codes}: {read:?} of {sent:?}");
            }
            assert_eq!(tokens.len(), document.tokens.len());
            assert!(set_group(&mut clients, name, id, 2, (id + 1) % 3));
            let read = clients.document_rest(name, id);
            assert_eq!(read.as_ref().map(|read| (&read.0, read.2)), Some((&tokens, 2)), "{id}");
            assert_eq!(clients.document_binary(name, id), read, "{id}");
            assert_eq!(clients.document_grpc(name, id), read, "{id}");
            // A document finds itself, with a score near the number of its tokens.
            let body = json!({"query": document.tokens, "k": 30});
            let found = clients.rest.json("POST", &format!("/v1/multivector/{name}/search"), body);
            let own = hits_of(&found["results"]).into_iter().find(|hit| hit.0 == id).expect("the document");
            let exact = max_sim(&document.tokens, &tokens);
            assert!((own.2 - exact).abs() < 1e-4, "{codes}, {id}: {} and {exact}", own.2);
        }
    }
    let config = json!({"dim": 8, "token_codes": "sq3"});
    let fragment = "unknown token_codes \"sq3\"";
    clients.grpc.refused("MVCreateCollection", json!({"name": "new", "config": config}), 3, fragment);
    let (status, text) = clients.rest.text("POST", "/v1/multivector/new", &config.to_string());
    assert!(status == 400 && text.contains("unknown token_codes"), "{text}");
    let (status, text) =
        clients.rest.text("PATCH", "/v1/multivector/sq8/config", r#"{"token_codes": "none"}"#);
    assert!(status == 400 && text.contains("token_codes"), "{text}");
}

fn delete(clients: &mut Clients, name: &str, id: u64, transport: u64) -> bool {
    match transport {
        0 => {
            let path = format!("/v1/multivector/{name}/docs/{id}");
            clients.rest.json("DELETE", &path, Value::Null)["deleted"] == true
        }
        1 => clients.binary.ask("vector_mv_delete", &Args::on(name).u64(id)) == Ok(vec![1]),
        _ => clients.grpc.call("MVDelete", json!({"name": name, "id": id})).unwrap()["deleted"] == true,
    }
}

fn set_group(clients: &mut Clients, name: &str, id: u64, group: u64, transport: u64) -> bool {
    let payload = json!({ "group": group }).to_string();
    match transport {
        0 => {
            let path = format!("/v1/multivector/{name}/points/{id}/payload");
            clients.rest.text("POST", &path, &payload).0 == 200
        }
        1 => {
            let args = Args::on(name).u64(id).s32(payload.as_bytes());
            clients.binary.ask("vector_mv_set_payload", &args) == Ok(vec![1])
        }
        _ => {
            let request = json!({"collection": name, "id": id, "payload_json": payload});
            clients.grpc.call("MVSetPayload", request).is_ok()
        }
    }
}

/// The configuration over REST, and as arguments that make the same collection again.
fn check_config(clients: &mut Clients, name: &str) -> Value {
    let path = format!("/v1/multivector/{name}/config");
    let told = clients.rest.json("GET", &path, Value::Null);
    assert_eq!(
        (&told["name"], &told["config"]["dim"], &told["config"]["seed"]),
        (&json!(name), &json!(DIM), &json!(-7))
    );
    let arguments = clients.binary.ask("vector_mv_get_config", &Args::on(name)).unwrap();
    let mut again = vec![5];
    again.extend_from_slice(b"again");
    again.extend_from_slice(&arguments[1 + name.len()..]);
    assert_eq!(clients.binary.ask("vector_mv_create_collection", &Args(again)), Ok(vec![]));
    let copied = clients.rest.json("GET", "/v1/multivector/again/config", Value::Null);
    assert_eq!(copied["config"], told["config"]);
    assert_eq!(clients.binary.ask("vector_mv_get_config", &Args::on("again")).unwrap()[6..], arguments[7..]);
    assert_eq!(clients.binary.ask("vector_mv_drop_collection", &Args::on("again").u64(0)), Ok(vec![]));
    let listed = clients.rest.json("GET", "/v1/collections", Value::Null);
    let listed = listed["collections"].as_array().unwrap();
    assert!(
        listed.len() == 1 && listed[0]["family"] == "multivector" && listed[0]["dim"] == DIM,
        "{listed:?}"
    );
    let message = clients.grpc.call("MVGetConfig", json!({ "name": name })).unwrap();
    for key in ["first_stage", "encoding_repetitions", "encoding_bits", "encoding_dim"] {
        // Over gRPC a number that is not given is 0.
        let said = message["config"].get(key).filter(|said| **said != 0).cloned().unwrap_or_default();
        assert_eq!(said, told["config"].get(key).cloned().unwrap_or_default(), "{key}");
    }
    told["config"].clone()
}

/// Every kind of search over every transport.
fn compare(clients: &mut Clients, name: &str, twin: &BTreeMap<u64, Twin>, seed: &mut u64) {
    let group = numbers(seed) % 4;
    let filter = if group == 3 { json!({}) } else { json!({"op": "eq", "field": "group", "value": group}) };
    let filter_json = filter.to_string();
    let path = |route: &str| format!("/v1/multivector/{name}/{route}");
    let query = random_tokens(4, seed);
    let k = 7;
    let matching = || twin.iter().filter(|(_, document)| group == 3 || document.group == group);

    let mut best: Vec<(f32, u64)> =
        matching().map(|(id, document)| (max_sim(&query, &document.tokens), *id)).collect();
    best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    best.truncate(k);
    let body = json!({"query": query, "k": k, "filter": filter});
    let rest = hits_of(&clients.rest.json("POST", &path("search"), body)["results"]);
    assert_eq!(rest.iter().map(|hit| (hit.2, hit.0)).collect::<Vec<_>>(), best);
    assert!(rest.iter().all(|hit| hit.3["group"]["kind"] == "int"), "{rest:?}");
    let args = matrix(Args::on(name).u32(k).u32(0), &query);
    let marked = args.u8(7).u8(3).u8(1).u64(5).s32(filter_json.as_bytes());
    assert_eq!(binary_scored(&clients.binary.ask("vector_mv_search", &marked).unwrap()), rest);
    let message = json!({"name": name, "query": messages(&query), "k": k, "filter_json": filter_json});
    assert_eq!(hits_of(&clients.grpc.call("MVSearch", message).unwrap()["results"]), rest);

    // Both lanes, fused.
    let words = [(1, 2.0), (3, -1.0), (5, 0.5)];
    let (indices, values): (Vec<u32>, Vec<f32>) = words.iter().copied().unzip();
    let body = json!({"query": query, "sparse": sparse_json(&words), "k": k, "method": "weighted", "alpha": 0.25,
        "filter": filter});
    let message = json!({"name": name, "query": messages(&query), "sparse_indices": indices, "sparse_values": values,
        "k": k, "method": "weighted", "alpha": 0.25, "filter_json": filter_json});
    let args = matrix(Args(vec![3]).s8(name).u32(k).bytes(&FUSION), &query);
    let args = args.sparse(&words).s32(filter_json.as_bytes());
    let rest = hits_of(&clients.rest.json("POST", &path("hybrid-search"), body)["results"]);
    assert_eq!(rest.len(), matching().count().min(k));
    let bytes = clients.binary.ask("vector_mv_hybrid_search", &args).unwrap();
    assert_eq!(binary_hits(&bytes, true, false), rest);
    assert_eq!(hits_of(&clients.grpc.call("MVHybridSearch", message).unwrap()["results"]), rest);
    // A hybrid search of a single lane returns the scores of that lane.
    let body = json!({"sparse": sparse_json(&words), "k": k, "filter": filter});
    let rest = hits_of(&clients.rest.json("POST", &path("hybrid-search"), body)["results"]);
    let product = |document: &Twin| {
        let shared = document
            .sparse
            .iter()
            .filter_map(|(index, value)| Some(words.iter().find(|(other, _)| other == index)?.1 * value));
        shared.reduce(|a, b| a + b)
    };
    let mut best: Vec<(f32, u64)> =
        matching().filter_map(|(id, document)| Some((product(document)?, *id))).collect();
    best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    best.truncate(k);
    assert_eq!(rest.iter().map(|hit| (hit.2, hit.0)).collect::<Vec<_>>(), best);

    // What a sparse lane finds, ranked by tokens.
    let body = json!({"prefetch": [{"sparse": sparse_json(&words), "filter": filter}], "root": {"maxsim": query},
        "mode": "rerank", "k": k});
    let spec = json!({"prefetch": [{"sparse": {"indices": indices, "values": values, "filter_json": filter_json}}],
        "root": {"mv_maxsim": {"query": messages(&query)}}, "mode": "QUERY_MODE_RERANK", "k": k});
    let rest = hits_of(&clients.rest.json("POST", &path("query"), body)["results"]);
    let mut best: Vec<(f32, u64)> = matching()
        .filter(|(_, document)| product(document).is_some())
        .map(|(id, document)| (max_sim(&query, &document.tokens), *id))
        .collect();
    if best.len() <= 50 {
        best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        best.truncate(k);
        assert_eq!(rest.iter().map(|hit| (hit.2, hit.0)).collect::<Vec<_>>(), best);
    }
    let request = json!({"collection": name, "spec": spec});
    let message = crate::common::grpc::messages_of("MVVectorQuery").0;
    let field = message.get_field_by_name("spec").unwrap();
    let protox::prost_reflect::Kind::Message(message) = field.kind() else { panic!() };
    let mut numbered = request.clone();
    numbered["spec"]["mode"] = json!(1);
    let spec = crate::common::grpc::encode(&message, &numbered["spec"]);
    let bytes = clients.binary.ask("vector_mv_query", &Args::on(name).s32(&spec)).unwrap();
    assert_eq!((bytes[0], binary_hits(&bytes[1..], true, false)), (1, rest.clone()));
    assert_eq!(hits_of(&clients.grpc.call("MVVectorQuery", numbered).unwrap()["results"]), rest);

    // All that match, by id.
    let expected: Vec<u64> = matching().map(|(id, _)| *id).collect();
    let ids = |hits: &[Hit]| hits.iter().map(|hit| hit.0).collect::<Vec<_>>();
    let page = clients.rest.json("POST", &path("scroll"), json!({ "filter": filter }));
    assert_eq!((ids(&hits_of(&page["documents"])), &page["degraded"]), (expected.clone(), &json!(false)));
    let bytes =
        clients.binary.ask("vector_mv_scroll", &Args::on(name).u32(0).s32(filter_json.as_bytes())).unwrap();
    assert_eq!(ids(&binary_hits(&bytes, true, true)), expected);
    let request = json!({"collection": name, "filter_json": filter_json});
    let call = clients.grpc.call("MVScroll", request).unwrap();
    assert_eq!(ids(&hits_of(&call["documents"])), expected);
    let counted = clients.rest.json("POST", &path("count"), json!({ "filter": filter }));
    assert_eq!(counted, json!({"count": expected.len()}));
}

/// Batches, documents by several ids, whether one is there, records inside payloads, and what is deleted.
#[test]
fn many_documents_at_a_time() {
    let server = Server::start();
    let mut clients = server.clients();
    let name = "many";
    let path = |route: &str| format!("/v1/multivector/{name}/{route}");
    clients.rest.json("POST", &format!("/v1/multivector/{name}"), json!({ "dim": DIM }));
    let mut seed = 3;
    let docs: Vec<Value> = (0..40).map(|id| random_document(id, &mut seed).rest()).collect();
    let told = clients.rest.json("POST", &path("docs/batch"), json!({ "docs": docs }));
    assert_eq!(told, json!({"count": 40}));
    // Requests that arrive together become one batch, in which each keeps its own outcome.
    let mut pipelined: Vec<Args> = (40..80).map(|id| random_document(id, &mut seed).binary(name)).collect();
    let wrong = Written { id: 500, tokens: vec![vec![1.0]], ..Written::default() };
    pipelined.insert(3, wrong.binary(name));
    pipelined.insert(9, Written { id: 501, ..Written::default() }.binary(name));
    let requests: Vec<_> = pipelined.iter().map(|args| ("vector_mv_add", args)).collect();
    for (index, outcome) in clients.binary.send(&requests).into_iter().enumerate() {
        match index {
            3 => assert!(outcome.unwrap_err().contains("expected 4 components, found 1")),
            9 => assert!(outcome.unwrap_err().contains("at least one token vector")),
            _ => assert_eq!(outcome, Ok(vec![]), "{index}"),
        }
    }
    let mut some: Vec<Written> = (100..103).map(|id| random_document(id, &mut seed)).collect();
    some[1].tokens = wrong.tokens.clone();
    let docs: Vec<Value> = some.iter().map(Written::rest).collect();
    let (status, text) = clients.rest.text("POST", &path("docs/batch"), &json!({ "docs": docs }).to_string());
    let refused: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &refused["committed"]), (400, &json!(1)), "{text}");
    let count = |clients: &mut Clients| {
        clients.rest.json("POST", &path("count"), json!({}))["count"].as_u64().unwrap()
    };
    assert_eq!(count(&mut clients), 81);

    let document = Written {
        id: 200,
        tokens: vec![vec![0.0, 3.0, 0.0, 4.0]],
        sparse: vec![(2, 0.5)],
        metadata: json!({"a": 1}),
        expected_version: Some(0),
    };
    let args = matrix(Args::on(name).u64(200), &document.tokens).s32(br#"{"a":1}"#);
    let args = args.u8(1).u64(9).u8(0).u8(1).sparse(&document.sparse);
    for added in [1, 0] {
        assert_eq!(clients.binary.ask("vector_mv_add_if_absent", &args), Ok(vec![added]));
    }
    let whole = clients.document_binary(name, 200);
    assert_eq!(whole.as_ref().unwrap().0, [[0.0, 0.6, 0.0, 0.8]]);
    let args = Args::on(name).u8(3).u32(3).u64(200).u64(999).u64(200);
    let bytes = clients.binary.ask("vector_mv_get_batch", &args).unwrap();
    let mut args = ArgsReader::new(&bytes);
    assert_eq!(args.u32("n"), Ok(3));
    let read: Vec<(u64, Read)> =
        (0..3).map(|_| (args.u64("id").unwrap(), binary_document(&mut args))).collect();
    assert_eq!(read, [(200, whole.clone()), (999, None), (200, whole.clone())]);
    assert!(args.is_empty());
    let told = clients.grpc.call("MVGetBatch", json!({"collection": name, "ids": [200, 999]})).unwrap();
    assert_eq!((&told["missing"], Some(message_document(&told["points"][0]))), (&json!([999]), whole));
    let told = clients.rest.json(
        "POST",
        &path("points/batch-get"),
        json!({"ids": [200, 999], "with_vector": false}),
    );
    let payload = json!({"a": {"kind": "int", "int": 1}});
    assert_eq!(
        told,
        json!({"points": [{"id": 200, "tokens": null, "payload": payload, "version": 1}], "missing": [999]})
    );
    let request = json!({"collection": name, "id": 200, "with_payload": true});
    assert_eq!(clients.grpc.call("MVGet", request).unwrap().get("tokens"), None);
    for (id, is_there) in [(200, 1), (999, 0)] {
        assert_eq!(clients.binary.ask("vector_mv_exists", &Args::on(name).u64(id)), Ok(vec![is_there]));
    }
    // A record of the payload: its field n counts from 0.
    let call = b"\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x01\x03\x03\0\x01\x01\x01n\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x01\0\x01\x01\x01n";
    let args = Args::on(name).u64(200).s16("record").u8(0).s32(call);
    let bytes = clients.binary.ask("vector_mv_operate", &args).unwrap();
    assert_eq!((bytes[0], &bytes[bytes.len() - 8..]), (1, &2_u64.to_be_bytes()[..]), "{bytes:?}");
    for (operation, args, left) in [
        (
            "vector_mv_delete_payload_keys",
            Args::on(name).u64(200).u32(1).s16("record"),
            json!({"a": {"kind": "int", "int": 1}}),
        ),
        (
            "vector_mv_overwrite_payload",
            Args::on(name).u64(200).s32(br#"{"b":true}"#),
            json!({"b": {"kind": "bool", "bool": true}}),
        ),
        ("vector_mv_clear_payload", Args::on(name).u64(200), Value::Null),
    ] {
        assert_eq!(clients.binary.ask(operation, &args), Ok(vec![1]));
        let (tokens, payload, _) = clients.document_binary(name, 200).unwrap();
        assert_eq!((payload, tokens.len()), (left, 1), "{operation}");
    }
    for (method, request) in [
        ("MVOverwritePayload", json!({"payload_json": r#"{"b":true,"c":1}"#})),
        ("MVDeletePayloadKeys", json!({"keys": ["b"]})),
        ("MVClearPayload", json!({})),
    ] {
        let mut request = request;
        (request["collection"], request["id"]) = (name.into(), 200.into());
        assert_eq!(clients.grpc.call(method, request).unwrap(), json!({"applied": true}));
    }
    // Tokens and the sparse vector outlive changes of the payload.
    let (tokens, payload, version) = clients.document_rest(name, 200).unwrap();
    assert_eq!((tokens, payload, version), (vec![vec![0.0, 0.6, 0.0, 0.8]], Value::Null, 8));
    let body = json!({"sparse": {"indices": [2], "values": [1]}, "k": 100});
    let found = clients.rest.json("POST", &path("hybrid-search"), body);
    assert!(hits_of(&found["results"]).iter().any(|hit| hit.0 == 200 && hit.2 == 0.5), "{found}");

    let deleted = clients.rest.json("POST", &path("docs/delete"), json!({"ids": [0, 1, 1, 999]}));
    assert_eq!(deleted, json!({"deleted": 2}));
    assert_eq!(clients.rest.json("POST", &path("docs/delete"), json!({"id": 2})), json!({"deleted": true}));
    let args = Args::on(name).s32(b"").u8(1).u32(2).u64(3).u64(4);
    assert_eq!(clients.binary.ask("vector_mv_delete_by_filter", &args), Ok(vec![0, 0, 0, 2]));
    assert_eq!(count(&mut clients), 77);
    let of_group = json!({"op": "exists", "field": "group"});
    let deleted = clients.rest.json("POST", &path("docs/delete"), json!({ "filter": of_group }));
    assert_eq!((deleted, count(&mut clients)), (json!({"deleted": 76}), 1));
    assert_eq!(
        clients.grpc.call("MVDropCollection", json!({ "name": name })).unwrap(),
        json!({ "name": name })
    );
    assert_eq!(clients.binary.ask("vector_mv_drop_collection", &Args::on(name)), Ok(vec![]));
    clients.rest.refused("GET", &path("config"), "", 404, "unknown collection");
}

/// A document whose tokens are all that is near does not keep others out of the hits, and a long one is scored whole.
#[test]
fn documents_with_many_tokens() {
    let server = Server::start();
    let mut clients = server.clients();
    let name = "long";
    let path = |route: &str| format!("/v1/multivector/{name}/{route}");
    clients.rest.json("POST", &format!("/v1/multivector/{name}"), json!({ "dim": DIM }));
    let long = Written {
        id: 0,
        tokens: vec![vec![1.0, 0.0, 0.0, 0.0]; 4096],
        metadata: json!({"group": 0}),
        ..Written::default()
    };
    clients.add(name, &long, 1).unwrap();
    let mut seed = 9;
    for first in (1..700).step_by(100) {
        let documents = (first..first + 100).map(|id| Written {
            tokens: vec![vec![0.0, 1.0, (id % 7) as f32, (id % 5) as f32]],
            ..random_document(id, &mut seed)
        });
        let documents: Vec<Value> = documents.map(|document| document.rest()).collect();
        clients.rest.json("POST", &path("docs/batch"), json!({ "docs": documents }));
    }
    let query = vec![vec![1.0, 0.0, 0.0, 0.0]; 1024];
    let found = clients.rest.json("POST", &path("search"), json!({"query": query, "k": 10}));
    let hits = hits_of(&found["results"]);
    assert_eq!((hits.len(), hits[0].0, hits[0].2, hits[9].2), (10, 0, 1024.0, 0.0));
    let found = clients.rest.json("POST", &path("search"), json!({"query": query[..1], "k": 1000}));
    assert_eq!(hits_of(&found["results"]).len(), 701);
    let body = json!({"prefetch": [{"maxsim": query[..1]}], "group_by": "group", "group_size": 1, "k": 3});
    let found = clients.rest.json("POST", &path("query"), body);
    assert_eq!(
        (found["groups"].as_array().unwrap().len(), &found["incomplete"]),
        (3, &json!(false)),
        "{found}"
    );
    // It is replaced and deleted like any other.
    clients.add(name, &Written { tokens: vec![vec![0.0, 0.0, 0.0, 1.0]; 4096], ..long }, 2).unwrap();
    let found = clients.rest.json("POST", &path("search"), json!({"query": query[..1], "k": 1}));
    assert_eq!(hits_of(&found["results"])[0].2, 0.0);
    assert!(delete(&mut clients, name, 0, 0));
    assert_eq!(clients.rest.json("POST", &path("count"), json!({})), json!({"count": 700}));
}

/// A sentence is the same over every transport.
#[test]
fn what_does_not_fit_is_refused_in_the_same_words() {
    let server = Server::start();
    let mut clients = server.clients();
    let name = "refusing";
    let create = json!({"name": name, "config": {"dim": DIM}});
    clients.grpc.call("MVCreateCollection", create.clone()).unwrap();
    clients.grpc.refused("MVCreateCollection", create, 6, "exists");
    clients.rest.create("dense", 2, "l2");
    let document = |tokens: &[&[f32]], sparse: &[(u32, f32)]| Written {
        id: 1,
        tokens: tokens.iter().map(|token| token.to_vec()).collect(),
        sparse: sparse.to_vec(),
        ..Written::default()
    };
    let unit: &[f32] = &[1.0, 0.0, 0.0, 0.0];
    for (collection, document, fragment) in [
        (name, document(&[], &[]), "at least one token vector"),
        (name, document(&[unit, &[1.0]], &[]), "expected 4 components, found 1"),
        (name, document(&[unit], &[(2, 1.0), (2, 1.0)]), "strictly ascending"),
        ("none", document(&[unit], &[]), "unknown collection"),
        ("dense", document(&[unit], &[]), "unknown collection"),
    ] {
        for transport in 0..3 {
            let refused = clients.add(collection, &document, transport).unwrap_err();
            assert!(refused.contains(fragment), "{transport}: {refused} lacks {fragment}");
            assert!(!refused.contains("committed"), "{refused}");
        }
    }
    let wrong = vec![vec![1.0]];
    let many = vec![vec![0.0; DIM]; 1025];
    for (query, k, fragment) in [
        (&wrong, 1, "dimension mismatch: expected 4, found 1"),
        (&many, 1, "at most 1024"),
        (&wrong, 65_537, "k must be"),
    ] {
        let body = json!({"query": query, "k": k}).to_string();
        clients.rest.refused("POST", &format!("/v1/multivector/{name}/search"), &body, 400, fragment);
        let args = matrix(Args::on(name).u32(k).u32(0), query);
        let refused = clients.binary.ask("vector_mv_search", &args).unwrap_err();
        assert!(refused.contains(fragment), "{refused} lacks {fragment}");
        clients.grpc.refused(
            "MVSearch",
            json!({"name": name, "query": messages(query), "k": k}),
            3,
            fragment,
        );
    }
    for (args, fragment) in [
        (Args::on(name).u64(1).u32(1 << 30), "args too short: tokens"),
        (Args::on(name).u64(1).u32(4097).bytes(&[0; 4 * 4097]), "at most 4096"),
        (Args::on(name).u64(1).u32(0).s32(b"[1]"), "meta: "),
    ] {
        let refused = clients.binary.ask("vector_mv_add", &args).unwrap_err();
        assert!(refused.contains(fragment), "{refused} lacks {fragment}");
    }
    for (spec, fragment) in [
        (json!({"prefetch": [{"dense": {"dense": [1.0]}}]}), "a lane of a multi-vector collection"),
        (json!({"prefetch": [{"named_dense": {"space": "s", "dense": [1.0]}}]}), "does not work on a multi"),
        (json!({"prefetch": [{"mv_maxsim": {}}]}), "at least one token vector"),
        (json!({}), "at least one lane"),
    ] {
        clients.grpc.refused("MVVectorQuery", json!({"collection": name, "spec": spec}), 3, fragment);
    }
    let lane = json!({"mv_maxsim": {"query": messages(&wrong)}});
    let request = json!({"collection": "dense", "spec": {"prefetch": [lane]}});
    clients.grpc.refused("VectorQuery", request, 3, "does not work on a dense collection");
    for (config, fragment) in [
        (json!({}), "Dim"),
        (json!({"dim": 8, "quant": "sq9"}), "unknown quant"),
        (json!({"dim": 8, "ivf_pq": true}), "IVFPQ"),
        (json!({"dim": 8, "partitions": 2}), "partitions"),
        (json!({"dim": 8, "first_stage": "bags"}), "unknown first_stage \"bags\""),
        (json!({"dim": 8, "encoding_bits": 3}), "invalid encoding_bits: 3 needs first_stage"),
        (json!({"dim": 8, "first_stage": "encodings", "encoding_dim": 9}), "9 is more than dim, which is 8"),
    ] {
        clients.grpc.refused("MVCreateCollection", json!({"name": "new", "config": config}), 3, fragment);
        let (status, text) = clients.rest.text("POST", "/v1/multivector/new", &config.to_string());
        let told: Value = serde_json::from_str(&text).unwrap();
        let told = told["error"].as_str().unwrap();
        assert!(status == 400 && told.contains(fragment), "{text} lacks {fragment}");
    }
    for (stage, numbers, fragment) in [
        (0, [0, 3, 0], "invalid encoding_bits: 3 needs first_stage"),
        (1, [0, 0, 9], "9 is more than dim, which is 8"),
        (1, [65, 0, 0], "invalid encoding_repetitions: must be between 0 and 64"),
        (2, [0, 0, 0], "invalid firstStage: unknown code 2"),
    ] {
        let args = Args::on("new").u32(8).u32(0).u32(0).u32(0).u64(0);
        // The blocks between the fixed part and the first stage are zero. Without `ivf` there is no block for product codes.
        let args = args.bytes(&[0; 6 + 4 + 9 + 1 + 4 + 1 + 17 + 4 + 4 + 1 + 16]).bytes(&[stage]);
        let args = numbers.into_iter().fold(args, |args, number| args.u32(number));
        let refused = clients.binary.ask("vector_mv_create_collection", &args).unwrap_err();
        assert!(refused.contains(fragment), "{refused} lacks {fragment}");
    }
    clients.grpc.refused("MVResplit", json!({"name": name, "new_partitions": 4}), 9, "not partitioned");
}
