//! What is beyond the interface and the same in every family: information, counts, facets, samples, changes of many payloads, and calls on records.
use super::{Args, Clients, Server};
use crate::common::server::Client;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nigh_net::tcp::reader::ArgsReader;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A family: the beginnings of its routes, operations and methods, and how a collection and a point of it are made.
struct Family {
    base: &'static str,
    points: &'static str,
    /// Behind which `count`, `facet` and `sample` stand.
    many: &'static str,
    operation: &'static str,
    method: &'static str,
    create: (&'static str, Value),
    write: &'static str,
}

fn families() -> [Family; 3] {
    [
        Family {
            base: "/v1/collections/c",
            points: "/v1/collections/c/points",
            many: "/v1/collections/c/points",
            operation: "vector_",
            method: "",
            create: ("/v1/collections", json!({"name": "c", "config": {"dim": 2}})),
            write: "/v1/collections/c/points",
        },
        Family {
            base: "/v1/named/c",
            points: "/v1/named/c/points",
            many: "/v1/named/c",
            operation: "vector_named_",
            method: "Named",
            create: (
                "/v1/named/c",
                json!({"named_vectors": {"image": {"dim": 2}, "words": {"sparse": true}}}),
            ),
            write: "/v1/named/c/points",
        },
        Family {
            base: "/v1/multivector/c",
            points: "/v1/multivector/c/points",
            many: "/v1/multivector/c",
            operation: "vector_mv_",
            method: "MV",
            create: ("/v1/multivector/c", json!({"dim": 2})),
            write: "/v1/multivector/c/docs",
        },
    ]
}

const POINTS: u64 = 6;

/// Payloads and versions by id.
type Twin = BTreeMap<u64, (Map<String, Value>, u64)>;

/// An integer as it comes back: a zero is left out.
fn int(number: u64) -> Value {
    if number == 0 { json!({"kind": "int"}) } else { json!({"kind": "int", "int": number}) }
}

/// The status and the body of an answer.
fn asked(client: &mut Client, method: &str, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, text) = client.text(method, path, &body);
    (status, serde_json::from_str(&text).unwrap())
}

fn fill(clients: &mut Clients, family: &Family) -> Twin {
    let (path, config) = &family.create;
    assert_eq!(asked(&mut clients.rest, "POST", path, config.clone()).0, 201);
    let mut twin = Twin::new();
    for id in 0..POINTS {
        let metadata = json!({"n": int(id), "group": int(id % 2)});
        let point = json!({"id": id, "vector": [1, id], "metadata": metadata});
        let point = match family.method {
            "Named" => json!({"id": id, "vectors": {"image": [1, id]}, "metadata": metadata}),
            "MV" => json!({"id": id, "tokens": [[1, id], [0, 1]], "metadata": metadata}),
            _ => point,
        };
        assert_eq!(asked(&mut clients.rest, "POST", family.write, point).0, 200);
        twin.insert(id, (metadata.as_object().unwrap().clone(), 1));
    }
    twin
}

/// All points as they are.
fn stored(clients: &mut Clients, family: &Family) -> Twin {
    let ids: Vec<u64> = (0..POINTS).collect();
    let (status, found) =
        asked(&mut clients.rest, "POST", &format!("{}/batch-get", family.points), json!({"ids": ids}));
    assert_eq!(status, 200, "{found}");
    let each = found["points"].as_array().unwrap().iter().map(|point| {
        let payload = point["payload"].as_object().cloned().unwrap_or_default();
        (point["id"].as_u64().unwrap(), (payload, point["version"].as_u64().unwrap()))
    });
    each.collect()
}

/// `n` below a number.
fn below(number: u64) -> Value {
    json!({"op": "lt", "field": "n", "value": number})
}

impl Clients {
    fn post(&mut self, path: &str, body: Value) -> Value {
        let (status, answer) = asked(&mut self.rest, "POST", path, body);
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    fn ask(&mut self, family: &Family, operation: &str, args: &Args) -> Vec<u8> {
        self.binary.ask(&format!("{}{operation}", family.operation), args).unwrap()
    }

    fn call(&mut self, family: &Family, method: &str, request: Value) -> Value {
        self.grpc.call(&format!("{}{method}", family.method), request).unwrap()
    }
}

fn filter_of(filter: &Value) -> Vec<u8> {
    filter.to_string().into_bytes()
}

#[test]
fn information_is_the_same_everywhere() {
    for family in families() {
        let server = Server::start();
        let mut clients = server.clients();
        fill(&mut clients, &family);
        let without_memory = |mut info: Value| {
            assert!(info["memory"]["bytes"].as_u64().unwrap() > 0);
            info["memory"] = Value::Null;
            info
        };
        // The index may go on between two requests.
        let settled = |clients: &mut Clients| {
            loop {
                let (status, info) = asked(&mut clients.rest, "GET", family.base, Value::Null);
                assert_eq!(status, 200, "{info}");
                if info["index"]["waiting"] == json!(0) {
                    return info;
                }
            }
        };
        let rest = settled(&mut clients);
        let binary = serde_json::from_slice(&clients.ask(&family, "info", &Args::on("c"))).unwrap();
        let grpc = clients.call(&family, "GetInfo", json!({"name": "c"}));
        assert_eq!(without_memory(rest.clone()), without_memory(binary));
        let config: Value = serde_json::from_str(grpc["config_json"].as_str().unwrap()).unwrap();
        let key = if family.method == "Named" { "named_vectors" } else { "config" };
        assert_eq!((&grpc["name"], config), (&json!("c"), rest[key].clone()));
        assert_eq!((&grpc["points"], &rest["points"]), (&json!(POINTS), &json!(POINTS)));
        assert_eq!((&grpc["state"], &rest["index"]["state"]), (&json!("ready"), &json!("ready")));
        assert_eq!(grpc["indexes"][0]["type"], json!("hnsw"));
        assert!(grpc["memory"]["bytes"].as_u64().unwrap() > 0, "{grpc}");
        match family.method {
            "Named" => {
                assert_eq!(grpc["indexes"][0]["space"], json!("image"));
                assert_eq!(rest["spaces"]["image"]["walks"], grpc["indexes"][0]["walks"]);
            }
            "MV" => assert_eq!((&rest["tokens"], &grpc["tokens"]), (&json!(12), &json!(12))),
            _ => assert_eq!(rest["index"]["walks"], grpc["indexes"][0]["walks"]),
        }
        // A name that is none, and a collection of another family.
        for other in families().iter().filter(|other| other.method != family.method) {
            let message = "unknown collection";
            let (status, answer) = asked(&mut clients.rest, "GET", other.base, Value::Null);
            assert!(status == 404 && answer["error"].as_str().unwrap().contains(message), "{answer}");
            let refused = clients.binary.ask(&format!("{}info", other.operation), &Args::on("c"));
            assert!(refused.unwrap_err().contains(message));
            let refused = clients.grpc.call(&format!("{}GetInfo", other.method), json!({"name": "c"}));
            assert_eq!(refused.unwrap_err().0, 5);
        }
    }
}

#[test]
fn the_configuration_of_multi_vector_collections_is_told_over_grpc() {
    let server = Server::start();
    let clients = server.clients();
    let config = json!({"dim": 8, "m": 24, "ef_construction": 50, "index_type": "ivf", "ivf_nlist": 4, "ivf_nprobe": 2, "quant": ""});
    let request = json!({"name": "papers", "config": config});
    clients.grpc.call("MVCreateCollection", request).unwrap();
    let told = clients.grpc.call("MVGetConfig", json!({"name": "papers"})).unwrap();
    assert_eq!(told["name"], json!("papers"));
    for key in ["dim", "ef_construction", "index_type", "ivf_nlist", "ivf_nprobe"] {
        assert_eq!(told["config"][key], config[key], "{key} of {told}");
    }
    clients.grpc.refused("MVGetConfig", json!({"name": "none"}), 5, "unknown collection");
}

#[test]
fn counts_facets_and_samples_are_the_same_everywhere() {
    for family in families() {
        let server = Server::start();
        let mut clients = server.clients();
        fill(&mut clients, &family);
        for filter in [Value::Null, below(4), below(0)] {
            let json = if filter.is_null() { Vec::new() } else { filter_of(&filter) };
            let text = String::from_utf8(json.clone()).unwrap();
            // Counts.
            let rest = clients.post(&format!("{}/count", family.many), json!({"filter": filter}));
            let binary = clients.ask(&family, "count", &Args::on("c").s32(&json));
            let grpc = clients.call(&family, "Count", json!({"collection": "c", "filter_json": text}));
            let count = rest["count"].as_u64().unwrap();
            assert_eq!(binary, count.to_be_bytes());
            assert_eq!(grpc["count"].as_u64().unwrap_or(0), count);
            // Facets.
            let rest = clients.post(
                &format!("{}/facet", family.many),
                json!({"filter": filter, "key": "group", "limit": 5}),
            );
            let bytes = clients.ask(&family, "facet", &Args::on("c").s16("group").u32(5).s32(&json));
            let mut args = ArgsReader::new(&bytes);
            let binary: Vec<Value> = (0..args.u32("n").unwrap())
                .map(|_| {
                    let value: Value = serde_json::from_str(args.text32("value").unwrap()).unwrap();
                    json!({"value": value, "count": args.u64("count").unwrap()})
                })
                .collect();
            assert!(args.is_empty());
            let request = json!({"collection": "c", "filter_json": text, "key": "group", "limit": 5});
            let grpc = clients.call(&family, "Facet", request);
            let grpc: Vec<Value> = grpc["facets"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|facet| {
                    let value: Value = serde_json::from_str(facet["value_json"].as_str().unwrap()).unwrap();
                    json!({"value": value, "count": facet["count"]})
                })
                .collect();
            assert_eq!((rest["facets"].as_array().unwrap(), &binary), (&grpc, &grpc));
            assert_eq!(grpc.iter().map(|facet| facet["count"].as_u64().unwrap()).sum::<u64>(), count);
            // Samples.
            let rest = clients
                .post(&format!("{}/sample", family.many), json!({"filter": filter, "limit": 3, "seed": 7}));
            let ids = |documents: &Value| -> Vec<(u64, Value)> {
                let metadata = |document: &Value| match &document["metadata_json"] {
                    Value::String(text) => serde_json::from_str(text).unwrap(),
                    _ => document["metadata"].clone(),
                };
                let documents = documents.as_array().cloned().unwrap_or_default();
                documents.iter().map(|one| (one["id"].as_u64().unwrap_or(0), metadata(one))).collect()
            };
            let args = Args::on("c").u32(3).s32(&json).u8(1).u64(7);
            let binary = super::binary_hits(&clients.ask(&family, "sample", &args), true, true);
            let binary: Vec<_> = binary.into_iter().map(|(id, _, _, metadata)| (id, metadata)).collect();
            let request = json!({"collection": "c", "filter_json": text, "limit": 3, "seed": 7});
            let grpc = clients.call(&family, "Sample", request);
            let expected = ids(&rest["documents"]);
            assert_eq!(expected.len() as u64, count.min(3));
            assert_eq!((&ids(&grpc["documents"]), &binary), (&expected, &expected));
        }
        // Without a limit there are ten at most, and without a seed any.
        assert_eq!(
            super::binary_hits(&clients.ask(&family, "sample", &Args::on("c").u32(0).s32(b"")), true, true)
                .len(),
            6
        );
        // What is wrong is told in the same words.
        let many = family.many;
        let operation = |name: &str| format!("{}{name}", family.operation);
        let method = |name: &str| format!("{}{name}", family.method);
        let too_many = "limit must be between 1 and 10000, found 10001";
        clients.rest.refused("POST", &format!("{many}/facet"), r#"{"key":"a","limit":10001}"#, 400, too_many);
        let refused = clients.binary.ask(&operation("facet"), &Args::on("c").s16("a").u32(10_001).s32(b""));
        assert_eq!(refused, Err(too_many.to_owned()));
        let request = json!({"collection": "c", "key": "a", "limit": 10_001});
        clients.grpc.refused(&method("Facet"), request, 3, too_many);
        clients.grpc.refused(&method("Facet"), json!({"collection": "c"}), 3, "key: it is empty");
        clients.grpc.refused(&method("Sample"), json!({"collection": "c", "limit": -1}), 3, "found -1");
        assert!(clients.binary.ask(&operation("facet"), &Args::on("c").s16("").u32(0).s32(b"")).is_err());
        clients.grpc.refused(&method("Count"), json!({"collection": "none"}), 5, "unknown collection");
    }
}

/// The ways to change payloads: what REST, the binary protocol and gRPC call them.
const CHANGES: [(&str, &str, &str); 4] = [
    ("payload", "set_payload_by_filter", "SetPayloadByFilter"),
    ("payload/overwrite", "overwrite_payload_by_filter", "OverwritePayloadByFilter"),
    ("payload/delete", "delete_payload_keys_by_filter", "DeletePayloadKeysByFilter"),
    ("payload/clear", "clear_payload_by_filter", "ClearPayloadByFilter"),
];

/// One change of many payloads over one of three transports; how many were changed, or the refusal.
fn change(
    clients: &mut Clients,
    family: &Family,
    (change, transport): (usize, u64),
    (filter, ids): (&Value, Option<&[u64]>),
    payload: &Value,
) -> Result<u64, String> {
    let (path, operation, method) = CHANGES[change];
    let (is_set, is_delete) = (change < 2, change == 2);
    match transport {
        0 => {
            let mut body = json!({"filter": filter, "ids": ids});
            if is_set {
                body["payload"] = payload.clone();
            } else if is_delete {
                body["keys"] = json!(["n", "none"]);
            }
            let (status, answer) =
                asked(&mut clients.rest, "POST", &format!("{}/{path}", family.points), body);
            match status {
                200 => Ok(answer["changed"].as_u64().unwrap()),
                400 => Err(answer["error"].as_str().unwrap().to_owned()),
                status => panic!("{status} {answer}"),
            }
        }
        1 => {
            let json = if filter.is_null() { Vec::new() } else { filter_of(filter) };
            let mut args = Args::on("c").s32(&json).u8(ids.is_some().into());
            if let Some(ids) = ids {
                args = ids.iter().fold(args.u32(ids.len()), |args, id| args.u64(*id));
            }
            if is_set {
                args = args.s32(payload.to_string().as_bytes());
            } else if is_delete {
                args = args.u32(2).s16("n").s16("none");
            }
            let bytes = clients.binary.ask(&format!("{}{operation}", family.operation), &args)?;
            Ok(u64::from_be_bytes(bytes.try_into().unwrap()))
        }
        _ => {
            let text = if filter.is_null() { String::new() } else { filter.to_string() };
            let mut request = json!({"collection": "c", "filter_json": text, "ids": ids.unwrap_or_default()});
            if is_set {
                request["payload_json"] = payload.to_string().into();
            } else if is_delete {
                request["keys"] = json!(["n", "none"]);
            }
            let answer = clients.grpc.call(&format!("{}{method}", family.method), request);
            let answer = answer.map_err(|(_, text)| text)?;
            Ok(answer["changed"].as_u64().unwrap_or(0))
        }
    }
}

#[test]
fn payloads_of_many_points_change_the_same_everywhere() {
    for family in families() {
        let server = Server::start();
        let mut clients = server.clients();
        let mut twin = fill(&mut clients, &family);
        let ids = [4, 1, 99, 1];
        for step in 0..24 {
            let (transport, which, by_filter) = (step % 3, (step / 3 % 4) as usize, step / 12 == 0);
            // Every point has a number before each step.
            for (id, (payload, version)) in &mut twin {
                let body = json!({"ids": [id], "payload": {"n": id}});
                assert_eq!(clients.post(&format!("{}/payload", family.points), body)["changed"], json!(1));
                payload.insert("n".to_owned(), int(*id));
                *version += 1;
            }
            let payload = json!({"step": int(step), "group": int(9)});
            let selection = match by_filter {
                true => (&below(3), None),
                false => (&Value::Null, Some(&ids[..])),
            };
            let changed = change(&mut clients, &family, (which, transport), selection, &payload).unwrap();
            let mut expected = 0;
            for (id, (old, version)) in &mut twin {
                let is_selected = if by_filter { *id < 3 } else { ids.contains(id) };
                if is_selected {
                    match which {
                        0 => old.extend(payload.as_object().unwrap().clone()),
                        1 => *old = payload.as_object().unwrap().clone(),
                        2 => drop(old.remove("n")),
                        _ => old.clear(),
                    }
                    *version += 1;
                    expected += 1;
                }
            }
            assert_eq!(changed, expected, "{} {which} over {transport}", family.base);
            assert_eq!(stored(&mut clients, &family), twin, "{} {which} over {transport}", family.base);
        }
        // What is wrong is told in the same words, and changes nothing.
        let every = json!({"op": "and", "and": []});
        for (selection, sentence) in [
            ((&Value::Null, None), "a change of many payloads needs a filter or ids"),
            ((&every, None), "a change of many payloads refuses a filter that matches every point"),
            ((&below(3), Some(&ids[..])), "filter and ids are both set; change payloads by one of them"),
        ] {
            for which in 0..4 {
                for transport in 0..3 {
                    let refused = change(&mut clients, &family, (which, transport), selection, &json!({}));
                    assert_eq!(refused, Err(sentence.to_owned()), "{which} over {transport}");
                }
            }
        }
        for transport in 0..3 {
            // Without a payload nothing is overwritten; an empty one is meant.
            let selection = (&below(1), None);
            let refused = change(&mut clients, &family, (1, transport), selection, &Value::Null).unwrap_err();
            assert!(refused.contains("payload is missing"), "{transport}: {refused}");
            let keys: Vec<String> = (0..=16_384).map(|key| key.to_string()).collect();
            let refused = match transport {
                0 => {
                    let body = json!({"ids": [1], "keys": keys});
                    asked(&mut clients.rest, "POST", &format!("{}/payload/delete", family.points), body).1
                }
                1 => {
                    let args = Args::on("c").s32(b"").u8(1).u32(1).u64(1).u32(keys.len());
                    let args = keys.iter().fold(args, |args, key| args.s16(key));
                    let operation = format!("{}delete_payload_keys_by_filter", family.operation);
                    clients.binary.ask(&operation, &args).unwrap_err().into()
                }
                _ => {
                    let request = json!({"collection": "c", "ids": [1], "keys": keys});
                    let method = format!("{}DeletePayloadKeysByFilter", family.method);
                    clients.grpc.call(&method, request).unwrap_err().1.into()
                }
            };
            let refused = refused.to_string();
            assert!(refused.contains("a request may name at most 16384 keys"), "{transport}: {refused}");
        }
        assert_eq!(stored(&mut clients, &family), twin);
    }
}

#[test]
fn documents_are_deleted_by_a_filter_over_grpc() {
    let server = Server::start();
    let mut clients = server.clients();
    let [_, _, family] = families();
    fill(&mut clients, &family);
    let deleted = |clients: &mut Clients, request: Value| {
        clients.grpc.call("MVDeleteByFilter", request).unwrap()["deleted"].as_i64().unwrap_or(0)
    };
    let filter = below(2).to_string();
    assert_eq!(deleted(&mut clients, json!({"collection": "c", "filter_json": filter})), 2);
    assert_eq!(deleted(&mut clients, json!({"collection": "c", "ids": [0, 2, 2, 99]})), 1);
    assert_eq!(stored(&mut clients, &family).into_keys().collect::<Vec<_>>(), [3, 4, 5]);
    clients.grpc.refused(
        "MVDeleteByFilter",
        json!({"collection": "c"}),
        3,
        "delete by filter needs a filter",
    );
}

/// Who asks for it is told the version that a write has made, and nobody else is.
#[test]
fn writes_answer_with_versions_on_request() {
    for family in families() {
        let server = Server::start();
        let mut clients = server.clients();
        fill(&mut clients, &family);
        let (name, add) = match family.method {
            "Named" => ("name", "NamedUpsert"),
            "MV" => ("name", "MVAdd"),
            _ => ("collection", "Upsert"),
        };
        let point = |id: u64| match family.method {
            "Named" => json!({"id": id, "vectors": {"image": [1, 2]}}),
            "MV" => json!({"id": id, "tokens": [[1, 2]]}),
            _ => json!({"id": id, "vector": [1, 2], "upsert": true}),
        };
        let message = |id: u64, with_version: bool| {
            let mut message = match family.method {
                "Named" => json!({"id": id, "vectors": {"image": {"values": [1, 2]}}}),
                "MV" => json!({"id": id, "tokens": [{"values": [1, 2]}]}),
                _ => json!({"id": id, "vector": [1, 2], "upsert": true}),
            };
            message[name] = "c".into();
            message["with_version"] = with_version.into();
            message
        };
        let wanted = format!("{}?with_version=true", family.write);
        assert_eq!(clients.post(&wanted, point(3)), json!({"id": 3, "version": 2}));
        assert_eq!(clients.post(family.write, point(3)), json!({"id": 3}));
        assert_eq!(clients.grpc.call(add, message(3, true)).unwrap(), json!({"id": 3, "version": 4}));
        assert_eq!(clients.grpc.call(add, message(3, false)).unwrap(), json!({"id": 3}));
        // Payloads.
        let payload = format!("{}/3/payload", family.points);
        let changed = clients.post(&format!("{payload}?with_version=1"), json!({"a": 1}));
        assert_eq!(changed, json!({"applied": true, "version": 6}));
        assert_eq!(clients.post(&format!("{payload}/clear"), json!({})), json!({"applied": true}));
        let keys = json!({"collection": "c", "id": 3, "keys": ["a"], "with_version": true});
        let changed = clients.call(&family, "DeletePayloadKeys", keys);
        assert_eq!(changed, json!({"applied": true, "version": 8}));
        let changed = clients.call(&family, "ClearPayload", json!({"collection": "c", "id": 3}));
        assert_eq!(changed, json!({"applied": true}));
        // Batches.
        let list = if family.method == "MV" { "docs" } else { "points" };
        let batch = json!({list: [point(3), point(40)], "upsert": true});
        let batch = if family.method.is_empty() { batch } else { json!({list: [point(3), point(40)]}) };
        let results = clients.post(&format!("{}/batch?with_version=true", family.write), batch.clone());
        let ok = |id: u64, version: u64| json!({"id": id, "version": version, "status": "ok"});
        assert_eq!(results, json!({"results": [ok(3, 10), ok(40, 1)]}));
        assert_eq!(clients.post(&format!("{}/batch", family.write), batch), json!({"count": 2}));
        if family.method != "MV" {
            let points = [message(3, false), message(41, false)].map(|mut point| {
                for key in [name, "with_version", "upsert"] {
                    point.as_object_mut().unwrap().remove(key);
                }
                point
            });
            let mut batch = json!({"points": points, "with_version": true});
            batch[name] = "c".into();
            if family.method.is_empty() {
                batch["upsert"] = true.into();
            }
            let answer = clients.call(&family, "UpsertBatch", batch);
            let results = json!([{"id": 3, "version": 12}, {"id": 41, "version": 1}]);
            assert_eq!(answer, json!({"count": 2, "results": results}));
        }
    }
}

/// Adds 1 to the field `n` of a dynamic record under an empty key, and returns it; whether a record is made says `create`.
fn call(create: u8) -> Vec<u8> {
    let op = b"\x03\x03\0\x01\x01\x01n\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0";
    let head = [&[0; 2][..], &[0; 8], &[0, create], &[0, 0], &[0, 1]].concat();
    [&head[..], op, b"\0\x01\0\x01\x01\x01n"].concat()
}

#[test]
fn records_in_payloads_are_worked_on_the_same_everywhere() {
    for family in families() {
        let server = Server::start();
        let mut clients = server.clients();
        fill(&mut clients, &family);
        let path = |id: u64| format!("{}/{id}/operate", family.points);
        let (operation, method) =
            (format!("{}operate", family.operation), format!("{}Operate", family.method));
        let binary = |id: u64, expected: Option<u64>, call: &[u8]| {
            let args = Args::on("c").u64(id).s16("stats");
            let args = expected.map_or(args.clone().u8(0), |version| args.u8(1).u64(version));
            args.s32(call)
        };
        let message =
            |id: u64, call: &[u8]| json!({"collection": "c", "id": id, "key": "stats", "call": call});
        for number in 1..=3_u64 {
            let result = [&b"\0\0\x01\0\0\0\x09\x03"[..], &number.to_le_bytes()].concat();
            let version = number + 1;
            match number {
                1 => {
                    let body =
                        json!({"key": "stats", "call": STANDARD.encode(call(2)), "expected_version": 1});
                    let answer = clients.post(&path(4), body);
                    assert_eq!(answer, json!({"result": STANDARD.encode(&result), "version": version}));
                }
                2 => {
                    let answer = clients.binary.ask(&operation, &binary(4, Some(2), &call(2))).unwrap();
                    let len = (result.len() as u32).to_be_bytes();
                    assert_eq!(answer, [&[1][..], &len, &result, &version.to_be_bytes()].concat());
                }
                _ => {
                    let answer = clients.grpc.call(&method, message(4, &call(2))).unwrap();
                    assert_eq!(answer, json!({"result": result, "version": version}));
                }
            }
        }
        // No point, no record, another version, a call that is none.
        let body = |call: &[u8]| json!({"key": "stats", "call": STANDARD.encode(call)}).to_string();
        let no_point = "point not found: id 99";
        let no_record = "record not found: the point with id 5 has none under the key \"stats\"";
        clients.rest.refused("POST", &path(99), &body(&call(2)), 404, no_point);
        clients.grpc.refused(&method, message(99, &call(2)), 5, no_point);
        assert_eq!(clients.binary.ask(&operation, &binary(99, None, &call(2))), Ok(vec![0]));
        clients.rest.refused("POST", &path(5), &body(&call(0)), 404, no_record);
        clients.grpc.refused(&method, message(5, &call(0)), 5, no_record);
        assert_eq!(clients.binary.ask(&operation, &binary(5, None, &call(0))), Err("status 1".to_owned()));
        let conflicting = format!("{}?expected_version=9", path(4));
        clients.rest.refused("POST", &conflicting, &body(&call(2)), 409, "version conflict");
        let mut conditional = message(4, &call(2));
        conditional["expected_version"] = json!(9);
        conditional["has_expected_version"] = json!(true);
        clients.grpc.refused(&method, conditional, 9, "version conflict");
        let none = "operate call arguments invalid";
        clients.rest.refused("POST", &path(4), r#"{"key":"","call":""}"#, 400, none);
        clients.grpc.refused(&method, json!({"collection": "c", "id": 4}), 3, none);
        assert_eq!(stored(&mut clients, &family)[&4].1, 4);
    }
}

/// The node says where clients reach it, if it knows, and that it is one shard.
#[test]
fn the_topology_names_the_address_that_clients_use() {
    let server = Server::start();
    let mut clients = server.clients();
    let told = clients.binary.ask("__topology__", &Args::default()).unwrap();
    assert_eq!(told.len(), 199 + 44 - 14 + 2 * super::ADVERTISED.len());
    let last = told.windows(super::ADVERTISED.len()).filter(|part| *part == super::ADVERTISED.as_bytes());
    assert_eq!(last.count(), 2);
}
