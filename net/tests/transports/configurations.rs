//! Changes of configurations: each transport changes what all of them tell, searches go by it, and refusals have the same words.
use super::{Args, Clients, Server, numbers};
use nigh_net::tcp::reader::ArgsReader;
use serde_json::{Value, json};

/// A family: its path over REST, the names of its operations, and a collection.
#[derive(Clone, Copy)]
struct Of {
    path: &'static str,
    binary: &'static str,
    grpc: &'static str,
    name: &'static str,
}

const DENSE: Of = Of { path: "collections", binary: "vector", grpc: "", name: "changing" };
const NAMED: Of = Of { path: "named", binary: "vector_named", grpc: "Named", name: "changing-spaces" };
const TOKENS: Of = Of { path: "multivector", binary: "vector_mv", grpc: "MV", name: "changing-tokens" };

const DIM: usize = 4;

impl Of {
    fn path(&self) -> String {
        format!("/v1/{}/{}/config", self.path, self.name)
    }

    /// The JSON that the binary protocol and gRPC carry, and the body of REST.
    fn bodies(&self, change: &Value) -> (String, String) {
        let body = match self.path {
            "named" => json!({ "named_vectors": change }),
            _ => change.clone(),
        };
        (change.to_string(), body.to_string())
    }

    /// Changes the configuration over a transport; the sentence of a refusal.
    fn change(&self, clients: &mut Clients, transport: u64, change: &Value) -> Result<(), String> {
        let (bare, body) = self.bodies(change);
        match transport {
            0 => {
                let (status, text) = clients.rest.text("PATCH", &self.path(), &body);
                let answer: Value = serde_json::from_str(&text).unwrap();
                if status != 200 {
                    assert_eq!(status, 400, "{text}");
                    return Err(answer["error"].as_str().unwrap().to_owned());
                }
                assert_eq!(answer, clients.rest.json("GET", &self.path(), Value::Null));
                Ok(())
            }
            1 => {
                let args = Args::on(self.name).s32(bare.as_bytes());
                let answer = clients.binary.ask(&format!("{}_change_config", self.binary), &args)?;
                let told = clients.binary.ask(&format!("{}_get_config", self.binary), &Args::on(self.name));
                assert_eq!(Ok(answer), told);
                Ok(())
            }
            _ => {
                let request = json!({"name": self.name, "change_json": bare});
                let answer = clients.grpc.call(&format!("{}ChangeConfig", self.grpc), request);
                let answer = answer.map_err(|(code, text)| {
                    assert_eq!(code, 3, "{text}");
                    text.strip_prefix("change_json: ").map(str::to_owned).unwrap_or(text)
                })?;
                let told = clients.grpc.call(&format!("{}GetConfig", self.grpc), json!({"name": self.name}));
                assert_eq!(Ok(answer), told);
                Ok(())
            }
        }
    }

    /// Changes collection keys of a collection of named spaces. Returns the message if it is refused.
    fn change_whole(&self, clients: &mut Clients, transport: u64, change: &Value) -> Result<(), String> {
        let json = change.to_string();
        let told = match transport {
            0 => {
                let (status, text) = clients.rest.text("PATCH", &self.path(), &json);
                let answer: Value = serde_json::from_str(&text).unwrap();
                if status != 200 {
                    return Err(answer["error"].as_str().unwrap().to_owned());
                }
                answer == clients.rest.json("GET", &self.path(), Value::Null)
            }
            1 => {
                let args = Args::on(self.name).s32(b"").s32(json.as_bytes());
                let answer = clients.binary.ask("vector_named_change_config", &args)?;
                Ok(answer) == clients.binary.ask("vector_named_get_config", &Args::on(self.name))
            }
            _ => {
                let request = json!({"name": self.name, "collection_json": json});
                let answer = clients.grpc.call("NamedChangeConfig", request).map_err(|(_, text)| text)?;
                Ok(answer) == clients.grpc.call("NamedGetConfig", json!({"name": self.name}))
            }
        };
        assert!(
            told,
            "a change answers with the configuration that is returned afterwards, over {transport}"
        );
        Ok(())
    }

    /// The value of a collection key of a collection of named spaces, as all transports return it.
    fn told_whole(&self, clients: &mut Clients, key: &str) -> Value {
        let rest = clients.rest.json("GET", &self.path(), Value::Null)[key].clone();
        let info = clients.rest.json("GET", self.path().strip_suffix("/config").unwrap(), Value::Null);
        let binary = clients.binary.ask("vector_named_get_config", &Args::on(self.name)).unwrap();
        let mut args = ArgsReader::new(&binary);
        args.text32("spaces").unwrap();
        let binary = if args.is_empty() { "{}" } else { args.text32("collection keys").unwrap() };
        let grpc = clients.grpc.call("NamedGetConfig", json!({"name": self.name})).unwrap();
        let call = clients.grpc.call("NamedGetInfo", json!({"name": self.name})).unwrap();
        assert_eq!(call["collection_json"], grpc["collection_json"]);
        let of = |json: &str| serde_json::from_str::<Value>(json).unwrap()[key].clone();
        let grpc = of(grpc["collection_json"].as_str().unwrap_or("{}"));
        assert_eq!([&info[key], &of(binary), &grpc], [&rest; 3], "{key}");
        rest
    }

    /// The value of a key of a dense collection, of the space `b` or of the tokens, as all transports tell it.
    fn told(&self, clients: &mut Clients, key: &str) -> u64 {
        let rest = clients.rest.json("GET", &self.path(), Value::Null);
        assert_eq!(rest["name"], self.name);
        let info = clients.rest.json("GET", self.path().strip_suffix("/config").unwrap(), Value::Null);
        let binary =
            clients.binary.ask(&format!("{}_get_config", self.binary), &Args::on(self.name)).unwrap();
        let grpc = clients.grpc.call(&format!("{}GetConfig", self.grpc), json!({"name": self.name})).unwrap();
        let number = |value: &Value| match value {
            Value::String(text) => text.parse().unwrap(),
            value => value.as_u64().unwrap_or(0),
        };
        let found = match self.path {
            "named" => {
                assert_eq!(info["named_vectors"], rest["named_vectors"]);
                let binary: Value =
                    serde_json::from_str(ArgsReader::new(&binary).text32("spaces").unwrap()).unwrap();
                let grpc: Value = serde_json::from_str(grpc["config_json"].as_str().unwrap()).unwrap();
                [&rest["named_vectors"]["b"][key], &binary["b"][key], &grpc["b"][key]].map(number)
            }
            "multivector" => {
                assert_eq!(info["config"], rest["config"]);
                // In the layout that the collection is made with.
                let begin = 1 + self.name.len();
                let (at, bytes) = match key {
                    "ef_search" => (begin + 12, 4),
                    "rescore_factor" => (begin + 25, 4),
                    "max_vectors" => (binary.len() - 16, 8),
                    _ => (binary.len() - 8, 8),
                };
                let binary =
                    binary[at..at + bytes].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
                [number(&rest["config"][key]), binary, number(&grpc["config"][key])]
            }
            _ => {
                assert_eq!(info["config"], rest["config"]);
                let binary: Value = serde_json::from_slice(&binary).unwrap();
                let written = key.split('_').map(|word| word[..1].to_uppercase() + &word[1..]);
                let written: String = written.collect();
                [&rest["config"][key], &binary[&written], &grpc["config"][key]].map(number)
            }
        };
        assert!(found.iter().all(|each| *each == found[0]), "{key}: {found:?}");
        found[0]
    }
}

fn vector(seed: &mut u64) -> Vec<f32> {
    (0..DIM).map(|_| (numbers(seed) % 2001) as f32 / 100.0 - 10.0).collect()
}

/// A collection of each family, with a quantizer each.
fn create(clients: &mut Clients) {
    let config = json!({"dim": DIM, "metric": "l2", "m": 4, "ef_search": 10, "quant": "sq8"});
    clients.rest.json("POST", "/v1/collections", json!({"name": DENSE.name, "config": config}));
    let spaces = json!({"a": config, "b": config, "words": {"sparse": true}});
    clients.rest.json("POST", "/v1/named/changing-spaces", json!({"named_vectors": spaces}));
    let tokens = json!({"dim": DIM, "m": 4, "ef_search": 10, "quant": "sq8"});
    clients.rest.json("POST", "/v1/multivector/changing-tokens", tokens);
}

#[test]
fn what_one_transport_changes_all_of_them_tell() {
    let server = Server::start();
    let mut clients = server.clients();
    create(&mut clients);
    for (of, keys) in [
        (
            DENSE,
            &[
                "ef_search",
                "rescore_factor",
                "max_vectors",
                "max_bytes",
                "max_inserts_per_second",
                "max_ef_search",
            ][..],
        ),
        (NAMED, &["ef_search", "rescore_factor", "max_ef_search"]),
        (TOKENS, &["ef_search", "rescore_factor", "max_vectors", "max_bytes", "max_inserts_per_second"]),
    ] {
        for (at, key) in (1000u64..).zip(keys) {
            for transport in 0..3 {
                let value = 3 * at + transport;
                let change = match of.path {
                    "named" => json!({"b": {*key: value}}),
                    _ => json!({*key: value}),
                };
                assert_eq!(of.change(&mut clients, transport, &change), Ok(()), "{change}");
                assert_eq!(of.told(&mut clients, key), value, "{change}");
                // Once more changes nothing, and is answered with the same.
                assert_eq!(of.change(&mut clients, transport, &change), Ok(()), "{change}");
            }
        }
        // Zero is the default.
        let zero = if of.path == "named" { json!({"b": {"ef_search": 0}}) } else { json!({"ef_search": 0}) };
        assert_eq!(of.change(&mut clients, 2, &zero), Ok(()));
        assert_eq!(of.told(&mut clients, "ef_search"), 64);
    }
    let spaces = clients.rest.json("GET", &NAMED.path(), Value::Null);
    assert_eq!(spaces["named_vectors"]["a"]["ef_search"], 10, "another space: {spaces}");
    for (at, key) in (1000u64..).zip(["max_vectors", "max_bytes", "max_inserts_per_second"]) {
        assert_eq!(NAMED.told_whole(&mut clients, key), Value::Null, "it is not set");
        for transport in 0..3 {
            let value = 3 * at + transport;
            let change = json!({ key: value });
            assert_eq!(NAMED.change_whole(&mut clients, transport, &change), Ok(()), "{change}");
            assert_eq!(NAMED.told_whole(&mut clients, key), value, "{change}");
            assert_eq!(NAMED.change_whole(&mut clients, transport, &change), Ok(()), "{change}");
        }
    }
    // Both kinds of keys in one change.
    let both = json!({"named_vectors": {"b": {"ef_search": 77}}, "max_vectors": 0}).to_string();
    assert_eq!(clients.rest.text("PATCH", &NAMED.path(), &both).0, 200);
    assert_eq!(NAMED.told(&mut clients, "ef_search"), 77);
    let args = Args::on(NAMED.name).s32(br#"{"b":{"ef_search":78}}"#).s32(br#"{"max_bytes":0}"#);
    clients.binary.ask("vector_named_change_config", &args).unwrap();
    assert_eq!(NAMED.told(&mut clients, "ef_search"), 78);
    let told = ["max_vectors", "max_bytes"].map(|key| NAMED.told_whole(&mut clients, key));
    assert_eq!(told, [Value::Null, Value::Null], "0 is no quota");
}

/// Quotas are enforced over every transport in the same words, from the creation of a collection on.
#[test]
fn quotas_of_named_spaces_and_of_documents_are_enforced() {
    let server = Server::start();
    let mut clients = server.clients();
    let spaces = json!({"a": {"dim": 2}, "b": {"dim": 3}});
    let request = json!({"name": "limited", "config_json": spaces.to_string(),
        "collection_json": json!({"max_vectors": 3}).to_string()});
    clients.grpc.call("NamedCreate", request).unwrap();
    // Two documents of one token each: 32 bytes, and 4 * 2 + 12 * 16 + 32 bytes.
    let config = json!({"dim": 2, "max_bytes": 2 * (32 + 232)});
    clients.grpc.call("MVCreateCollection", json!({"name": "limited-tokens", "config": config})).unwrap();
    let told = clients.rest.json("GET", "/v1/multivector/limited-tokens", Value::Null);
    assert_eq!(
        told["config"],
        json!({"dim": 2, "m": 16, "ef_construction": 200, "ef_search": 64, "quant": "none", "index_type": "hnsw",
            "first_stage": "tokens", "max_bytes": 528})
    );
    for id in 0..3 {
        clients.rest.json("POST", "/v1/named/limited/points", json!({"id": id, "vectors": {"a": [1, 2]}}));
    }
    for id in 0..2 {
        clients.rest.json(
            "POST",
            "/v1/multivector/limited-tokens/docs",
            json!({"id": id, "tokens": [[1, 2]]}),
        );
    }
    let full = "collection full";
    let point = |id: u64| json!({"id": id, "vectors": {"b": [1, 2, 3]}}).to_string();
    clients.rest.refused("POST", "/v1/named/limited/points", &point(3), 429, full);
    clients.rest.golden("POST", "/v1/named/limited/points", &point(2), 200, r#"{"id":2}"#);
    let args = Args::on("limited").u64(3).u32(0).u64(0).s32(b"");
    assert!(clients.binary.ask("vector_named_insert", &args).is_err_and(|text| text.contains(full)));
    clients.grpc.refused("NamedUpsert", json!({"name": "limited", "id": 3}), 8, full);
    let document = |id: u64, tokens: usize| json!({"id": id, "tokens": vec![[1, 2]; tokens]}).to_string();
    let path = "/v1/multivector/limited-tokens/docs";
    clients.rest.refused("POST", path, &document(2, 1), 429, full);
    clients.rest.refused("POST", path, &document(1, 2), 429, full);
    clients.rest.golden("POST", path, &document(1, 1), 200, r#"{"id":1}"#);
    let args = Args::on("limited-tokens").u64(2).u32(1).floats(&[1.0, 2.0]).s32(b"");
    assert!(clients.binary.ask("vector_mv_add", &args).is_err_and(|text| text.contains(full)));
    let request = json!({"name": "limited-tokens", "id": 2, "tokens": [{"values": [1, 2]}]});
    clients.grpc.refused("MVAdd", request.clone(), 8, full);
    // What was refused left nothing behind, so that there is room after a deletion and after a change.
    clients.rest.json("DELETE", &format!("{path}/1"), Value::Null);
    clients.grpc.call("MVAdd", request).unwrap();
    let quota = json!({"max_bytes": 32 * 2 + 232 * 3});
    let of = Of { name: "limited-tokens", ..TOKENS };
    assert_eq!(of.change(&mut clients, 1, &quota), Ok(()));
    clients.rest.golden("POST", path, &document(2, 2), 200, r#"{"id":2}"#);
    clients.rest.refused("POST", path, &document(2, 3), 429, full);
    let named = Of { name: "limited", ..NAMED };
    let per_point = 32 + (4 * 2 + 12 * 16) + (4 * 3 + 12 * 16);
    assert_eq!(
        named.change_whole(&mut clients, 2, &json!({"max_vectors": 0, "max_bytes": 4 * per_point})),
        Ok(())
    );
    clients.rest.golden("POST", "/v1/named/limited/points", &point(3), 200, r#"{"id":3}"#);
    clients.rest.refused("POST", "/v1/named/limited/points", &point(4), 429, full);
    // Dropping a space makes points count less.
    clients.rest.json("DELETE", "/v1/named/limited/spaces/a", Value::Null);
    clients.rest.golden("POST", "/v1/named/limited/points", &point(4), 200, r#"{"id":4}"#);
}

/// The rate of writes is limited over every transport from the creation of a collection on, and the refusals have the same words.
#[test]
fn the_rate_of_writes_into_named_spaces_and_of_documents_is_bounded() {
    let server = Server::start();
    let mut clients = server.clients();
    let spaces = json!({"a": {"dim": 2}});
    let request = json!({"name": "paced", "config_json": spaces.to_string(),
        "collection_json": json!({"max_inserts_per_second": 1}).to_string()});
    clients.grpc.call("NamedCreate", request).unwrap();
    let config = json!({"dim": 2, "max_inserts_per_second": 1});
    clients.grpc.call("MVCreateCollection", json!({"name": "paced-tokens", "config": config})).unwrap();
    let named = Of { name: "paced", ..NAMED };
    let tokens = Of { name: "paced-tokens", ..TOKENS };
    assert_eq!(named.told_whole(&mut clients, "max_inserts_per_second"), 1);
    assert_eq!(tokens.told(&mut clients, "max_inserts_per_second"), 1);
    let too_fast = "rate limit";
    // A batch of 100 always exceeds the rate, because all its points arrive at once.
    let points: Vec<Value> = (0..100).map(|id| json!({"id": id, "vectors": {"a": [1, 2]}})).collect();
    let documents: Vec<Value> = (0..100).map(|id| json!({"id": id, "tokens": [[1, 2]]})).collect();
    let batch = json!({ "points": points }).to_string();
    clients.rest.refused("POST", "/v1/named/paced/points/batch", &batch, 429, too_fast);
    let batch = json!({ "docs": documents }).to_string();
    clients.rest.refused("POST", "/v1/multivector/paced-tokens/docs/batch", &batch, 429, too_fast);
    // Writes are sent one after the other over each transport. At least one must be refused, and every refusal must be for the rate.
    for transport in 0..3 {
        let mut outcomes = Vec::new();
        for id in 0..20_u64 {
            outcomes.push(match transport {
                0 => {
                    let point = json!({"id": id, "vectors": {"a": [1, 2]}}).to_string();
                    let (status, text) = clients.rest.text("POST", "/v1/named/paced/points", &point);
                    if status == 200 { Ok(()) } else { Err(text) }
                }
                1 => {
                    let args = Args::on("paced-tokens").u64(id).u32(1).floats(&[1.0, 2.0]).s32(b"");
                    clients.binary.ask("vector_mv_add", &args).map(|_| ())
                }
                _ => {
                    let request = json!({"name": "paced-tokens", "id": id, "tokens": [{"values": [1, 2]}]});
                    clients.grpc.call("MVAdd", request).map(|_| ()).map_err(|error| format!("{error:?}"))
                }
            });
        }
        let refused: Vec<&String> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
        assert!(!refused.is_empty(), "{transport}: a rate of one write per second took 20 at once");
        assert!(refused.iter().all(|text| text.contains(too_fast)), "{transport}: {refused:?}");
    }
    // Without a limit every write is accepted.
    for transport in 0..2 {
        let none = json!({"max_inserts_per_second": 0});
        assert_eq!(named.change_whole(&mut clients, transport, &none), Ok(()));
        assert_eq!(tokens.change(&mut clients, transport, &none), Ok(()));
    }
    clients.rest.json("POST", "/v1/named/paced/points/batch", json!({ "points": points }));
    clients.rest.json("POST", "/v1/multivector/paced-tokens/docs/batch", json!({ "docs": documents }));
}

/// Distances that a search computes, by its report.
fn distances(clients: &mut Clients, path: &str, body: Value) -> u64 {
    let mut body = body;
    body["explain"] = true.into();
    let answer = clients.rest.json("POST", path, body);
    answer["explain"]["lanes"][0]["distances"].as_u64().unwrap()
}

#[test]
fn searches_and_writes_go_by_a_change_at_once() {
    let server = Server::start();
    let mut clients = server.clients();
    create(&mut clients);
    let mut seed = 7;
    let points: Vec<Value> = (0..2000).map(|id| json!({"id": id, "vector": vector(&mut seed)})).collect();
    clients.rest.json("POST", "/v1/collections/changing/points/batch", json!({"points": points}));
    let points: Vec<Value> =
        (0..2000).map(|id| json!({"id": id, "vectors": {"b": vector(&mut seed)}})).collect();
    clients.rest.json("POST", "/v1/named/changing-spaces/points/batch", json!({"points": points}));
    for of in [DENSE, NAMED] {
        let info = of.path().replace("/config", "");
        while clients.rest.json("GET", &info, Value::Null)["index"]["state"] != "ready" {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    let query = vector(&mut seed);
    for (of, path, body, change) in [
        (
            DENSE,
            "/v1/collections/changing/points/search",
            json!({"query": query, "k": 5}),
            json!({"ef_search": 300}),
        ),
        (
            NAMED,
            "/v1/named/changing-spaces/search",
            json!({"query": query, "k": 5, "vector_name": "b"}),
            json!({"b": {"ef_search": 300}}),
        ),
    ] {
        let before = distances(&mut clients, path, body.clone());
        of.change(&mut clients, 1, &change).unwrap();
        let after = distances(&mut clients, path, body);
        assert!(after > 2 * before, "{} distances, then {after}", before);
    }
    DENSE.change(&mut clients, 2, &json!({"max_vectors": 10})).unwrap();
    let points = "/v1/collections/changing/points";
    let point = |id: u64| json!({"id": id, "vector": [1, 2, 3, 4]}).to_string();
    clients.rest.refused("POST", points, &point(2000), 429, "collection full");
    let replaced = json!({"id": 3, "vector": [1, 2, 3, 4], "upsert": true}).to_string();
    clients.rest.golden("POST", points, &replaced, 200, r#"{"id":3}"#);
    clients.rest.golden("POST", "/v1/collections/changing/points/count", "{}", 200, r#"{"count":2000}"#);
    DENSE.change(&mut clients, 0, &json!({"max_vectors": 2001})).unwrap();
    clients.rest.golden("POST", points, &point(2000), 200, r#"{"id":2000}"#);
}

#[test]
fn what_cannot_be_changed_is_refused_in_the_same_words() {
    let server = Server::start();
    let mut clients = server.clients();
    create(&mut clients);
    clients.rest.create("plain", 2, "l2");
    for name in [DENSE.name, NAMED.name, TOKENS.name] {
        let alias = format!("{name}-alias");
        clients.rest.json("POST", "/v1/aliases", json!({"alias": alias, "collection": name}));
    }
    let all = "ef_search, rescore_factor, max_vectors, max_bytes, max_inserts_per_second, max_ef_search";
    for (change, fragment) in [
        (
            json!({"dim": 4}),
            format!("field \"dim\" cannot be changed, found 4; what can be changed is one of {all}"),
        ),
        (
            json!({"ef_search": 9, "metric": "cosine"}),
            "\"metric\" cannot be changed, found \"cosine\"".to_owned(),
        ),
        (json!({"full_text": {"k1": 2}}), "\"full_text\" cannot be changed, found {\"k1\":2}".to_owned()),
        (json!({"k1": 2}), "unknown field \"k1\"".to_owned()),
        (json!({"wal": true}), format!("unknown field \"wal\"; it must be one of {all}")),
        (json!({"ef_search": "9"}), "field \"ef_search\": invalid type: string \"9\"".to_owned()),
        (
            json!({"ef_search": 1_048_577}),
            "invalid ef_search: it must be at most 1048576, found 1048577".to_owned(),
        ),
        (json!({"rescore_factor": -1}), "invalid rescore_factor: must not be negative".to_owned()),
        (json!({"max_vectors": -1}), "field \"max_vectors\": invalid value: integer `-1`".to_owned()),
        (json!({}), format!("the change names no key; what can be changed is {all}")),
        (json!({"ef_search": null}), "the change names no key".to_owned()),
        (json!([1]), "expected a JSON object".to_owned()),
    ] {
        for transport in 0..3 {
            let refused = DENSE.change(&mut clients, transport, &change).expect_err(&fragment);
            assert!(refused.contains(&fragment), "{transport}: {change}: {refused}");
        }
    }
    for (of, change, fragment) in [
        (NAMED, json!({"b": {"sparse": true}}), "\"sparse\" cannot be changed, found true"),
        (NAMED, json!({"b": {"max_vectors": 5}}), "unknown field \"max_vectors\""),
        (NAMED, json!({"words": {"ef_search": 5}}), "space \"words\" is sparse"),
        (
            NAMED,
            json!({"c": {"ef_search": 5}}),
            "unknown vector space \"c\"; the dense spaces of the collection are a, b",
        ),
        (NAMED, json!({"b": {}}), "the change of space \"b\" names no key"),
        (NAMED, json!({}), "the change is empty; it can have ef_search"),
        (
            TOKENS,
            json!({"max_ef_search": 5}),
            "unknown field \"max_ef_search\"; it must be one of ef_search, rescore_factor",
        ),
        (TOKENS, json!({"persistent": true}), "\"persistent\" cannot be changed, found true"),
        (Of { name: "plain", ..DENSE }, json!({"rescore_factor": 4}), "it has no effect with quant \"none\""),
        (Of { name: "changing-alias", ..DENSE }, json!({"ef_search": 5}), "\"changing-alias\" is an alias"),
        (Of { name: "changing-spaces-alias", ..NAMED }, json!({"b": {"ef_search": 5}}), "is an alias"),
        (Of { name: "changing-tokens-alias", ..TOKENS }, json!({"ef_search": 5}), "is an alias"),
    ] {
        for transport in 0..3 {
            let refused = of.change(&mut clients, transport, &change).expect_err(fragment);
            assert!(refused.contains(fragment), "{transport}: {change}: {refused}");
        }
    }
    // Neither there, nor in another family.
    for (of, name) in [(DENSE, "nowhere"), (DENSE, NAMED.name), (NAMED, DENSE.name), (TOKENS, DENSE.name)] {
        let of = Of { name, ..of };
        let change =
            if of.path == "named" { json!({"b": {"ef_search": 5}}) } else { json!({"ef_search": 5}) };
        let (bare, body) = of.bodies(&change);
        clients.rest.refused("PATCH", &of.path(), &body, 404, "unknown collection");
        let args = Args::on(name).s32(bare.as_bytes());
        let refused = clients.binary.ask(&format!("{}_change_config", of.binary), &args);
        assert!(refused.is_err_and(|text| text.contains("unknown collection")));
        let request = json!({"name": name, "change_json": bare});
        clients.grpc.refused(&format!("{}ChangeConfig", of.grpc), request, 5, "unknown collection");
    }
    clients.rest.refused("PATCH", &DENSE.path(), "", 400, "the body is empty");
    clients.rest.refused(
        "PATCH",
        &NAMED.path(),
        r#"{"ef_search":5}"#,
        400,
        "it must be one of named_vectors, max_vectors",
    );
    for (change, fragment) in [
        (
            json!({"full_text": {}}),
            "\"full_text\" cannot be changed, found {}; what can be changed is one of",
        ),
        (json!({"max_vectors": -1}), "field \"max_vectors\": invalid value: integer `-1`"),
        (
            json!({"max_inserts_per_second": -1}),
            "field \"max_inserts_per_second\": invalid value: integer `-1`",
        ),
        (json!({"max_ef_search": 1}), "unknown field \"max_ef_search\"; it must be one of"),
        (json!({}), "the change is empty; it can have ef_search"),
    ] {
        for transport in 0..3 {
            let refused = NAMED.change_whole(&mut clients, transport, &change).expect_err(fragment);
            assert!(refused.contains(fragment), "{transport}: {change}: {refused}");
        }
    }
    let request = json!({"name": DENSE.name, "change_json": "{}", "collection_json": "{}"});
    clients.grpc.refused(
        "ChangeConfig",
        request,
        3,
        "collection_json: collection keys were sent for a collection without named spaces",
    );
    for of in [DENSE, NAMED, TOKENS] {
        assert_eq!(of.told(&mut clients, "ef_search"), 10, "nothing has changed");
    }
}
