//! Collections of named spaces.
use super::{Args, Clients, Hit, Server, binary_hits, floats, hits_of, numbers, sparse_json};
use nigh_net::tcp::reader::ArgsReader;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const SPACES: &str =
    r#"{"image":{"dim":2,"metric":1},"title":{"dim":3,"metric":"cosine"},"words":{"sparse":true}}"#;

/// A vector of a point: the name of its space and its floats.
type Dense = Vec<(&'static str, Vec<f32>)>;
type Sparse = Vec<(&'static str, Vec<(u32, f32)>)>;

/// A point to be written.
#[derive(Clone, Default)]
struct Written {
    id: u64,
    dense: Dense,
    sparse: Sparse,
    metadata: Value,
    expected_version: Option<u64>,
}

impl Written {
    fn rest(&self) -> Value {
        let sparse = self.sparse.iter().map(|(name, vector)| ((*name).to_owned(), sparse_json(vector)));
        let dense = self.dense.iter().map(|(name, vector)| ((*name).to_owned(), json!(vector)));
        json!({"id": self.id, "vectors": dense.collect::<Map<_, _>>(), "sparse_vectors": sparse.collect::<Map<_, _>>(),
            "metadata": self.metadata, "expected_version": self.expected_version})
    }

    fn grpc(&self) -> Value {
        let dense = self.dense.iter().map(|(name, vector)| ((*name).to_owned(), json!({"values": vector})));
        let sparse = self.sparse.iter().map(|(name, vector)| {
            let (indices, values): (Vec<u32>, Vec<f32>) = vector.iter().copied().unzip();
            ((*name).to_owned(), json!({"sparse_indices": indices, "sparse_values": values, "sparse": true}))
        });
        json!({"id": self.id, "vectors": dense.chain(sparse).collect::<Map<_, _>>(),
            "metadata_json": self.metadata.to_string(), "expected_version": self.expected_version.unwrap_or(0),
            "has_expected_version": self.expected_version.is_some()})
    }

    fn binary(&self, collection: &str) -> Args {
        let mut args = Args::on(collection).u64(self.id).u32(self.dense.len());
        for (name, vector) in &self.dense {
            args = args.s16(name).floats(vector);
        }
        args = args.u64(0).s32(self.metadata.to_string().as_bytes());
        if !self.sparse.is_empty() {
            args = args.u8(2).u32(self.sparse.len());
            for (name, vector) in &self.sparse {
                args = args.s16(name).sparse(vector);
            }
        }
        match self.expected_version {
            Some(version) => args.u8(0).u8(1).u64(version),
            None => args,
        }
    }
}

/// A point that is read: dense vectors, payload, version.
type Read = Option<(BTreeMap<String, Vec<f32>>, Value, u64)>;

impl Clients {
    fn read_rest(&mut self, name: &str, id: u64) -> Read {
        let (status, text) = self.rest.text("GET", &format!("/v1/named/{name}/points/{id}"), "");
        let point: Value = serde_json::from_str(&text).unwrap();
        let vectors = point["vectors"].as_object().cloned().unwrap_or_default();
        let vectors = vectors.iter().map(|(name, vector)| (name.clone(), floats(vector))).collect();
        (status == 200).then(|| (vectors, point["payload"].clone(), point["version"].as_u64().unwrap()))
    }

    fn read_grpc(&mut self, name: &str, id: u64) -> (Read, Value) {
        let Ok(point) = self.grpc.call("NamedGet", json!({"collection": name, "id": id})) else {
            return (None, Value::Null);
        };
        let (mut dense, mut sparse) = (BTreeMap::new(), Map::new());
        for (name, vector) in point["vectors"].as_object().cloned().unwrap_or_default() {
            match vector.get("values") {
                Some(values) => drop(dense.insert(name, floats(values))),
                None => drop(sparse.insert(name, vector)),
            }
        }
        let payload =
            point["payload_json"].as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
        (Some((dense, payload, point["version"].as_u64().unwrap())), Value::Object(sparse))
    }

    fn read_binary(&mut self, name: &str, id: u64) -> Read {
        let bytes = self.binary.ask("vector_named_get", &Args::on(name).u64(id).u8(3)).unwrap();
        binary_point(&mut ArgsReader::new(&bytes))
    }
}

fn binary_point(args: &mut ArgsReader<'_>) -> Read {
    if args.u8("found").unwrap() == 0 {
        return None;
    }
    let vectors = (0..args.u32("n").unwrap())
        .map(|_| (args.text16("space").unwrap().to_owned(), args.vector("vector").unwrap()))
        .collect();
    args.u64("ttlMs").unwrap();
    let payload = match args.flag("meta").unwrap() {
        true => serde_json::from_str(args.text32("meta").unwrap()).unwrap(),
        false => Value::Null,
    };
    assert_eq!(args.u8("versioned"), Ok(1));
    Some((vectors, payload, args.u64("version").unwrap()))
}

/// What the twin knows of a point.
#[derive(Clone, Default)]
struct Twin {
    dense: BTreeMap<&'static str, Vec<f32>>,
    words: Vec<(u32, f32)>,
    group: u64,
    version: u64,
}

fn random_point(id: u64, seed: &mut u64) -> Written {
    let mut point = Written { id, metadata: json!({"group": numbers(seed) % 3}), ..Written::default() };
    if !numbers(seed).is_multiple_of(3) {
        let vector = [0; 2].map(|_| (numbers(seed) % 64) as f32 - 32.0);
        point.dense.push(("image", vector.to_vec()));
    }
    if numbers(seed).is_multiple_of(3) {
        // A vector of length 1, which a space of cosines keeps as it is.
        let mut vector = vec![0.0; 3];
        vector[(numbers(seed) % 3) as usize] = 1.0;
        point.dense.push(("title", vector));
    }
    if numbers(seed).is_multiple_of(2) {
        let indices: Vec<u32> = (0..6).filter(|_| numbers(seed).is_multiple_of(3)).collect();
        point.sparse.push(("words", indices.iter().map(|index| (*index, *index as f32 + 0.5)).collect()));
    }
    point
}

/// Random changes, each over a transport that is drawn, and what every transport says of them beside a naive twin.
#[test]
fn changes_and_answers_are_the_same_everywhere() {
    let server = Server::start();
    let mut clients = server.clients();
    let name = "three";
    let create = Args::on(name).s32(SPACES.as_bytes());
    assert_eq!(clients.binary.ask("vector_named_create_collection", &create), Ok(vec![]));
    check_config(&mut clients, name);
    let mut twin: BTreeMap<u64, Twin> = BTreeMap::new();
    // Versions are not given twice, so that a point that comes back has a higher one than before.
    let mut versions: BTreeMap<u64, u64> = BTreeMap::new();
    let mut seed = 11;
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
                if let Some(point) = twin.get_mut(&id) {
                    (point.group, point.version) = (group, point.version + 1);
                    versions.insert(id, point.version);
                }
            }
            2 => {
                let mut point = random_point(id, &mut seed);
                let named = |space: &str| {
                    point.dense.iter().any(|(name, _)| *name == space)
                        || point.sparse.iter().any(|(name, _)| *name == space)
                };
                let others = ["image", "title", "words"].into_iter().filter(|space| !named(space));
                let delete: Vec<&str> = others.filter(|_| numbers(&mut seed).is_multiple_of(2)).collect();
                let stored = twin.get(&id).map_or(0, |point| point.version);
                let is_empty = point.dense.len() + point.sparse.len() + delete.len() == 0;
                if stored > 0 && numbers(&mut seed).is_multiple_of(3) {
                    point.expected_version = Some(stored + numbers(&mut seed) % 2);
                }
                let changed = update(&mut clients, name, &point, &delete, transport);
                let refusal = match point.expected_version {
                    _ if is_empty => Some("names no vector space"),
                    Some(version) if version != stored => Some("version conflict"),
                    _ => None,
                };
                if let Some(refusal) = refusal {
                    assert!(changed.clone().is_err_and(|text| text.contains(refusal)), "{step}: {changed:?}");
                    continue;
                }
                let Some(kept) = twin.get_mut(&id) else {
                    assert_eq!(changed, Ok(0), "{step}");
                    continue;
                };
                assert_eq!(changed, Ok(stored + 1), "{step}");
                kept.dense.extend(point.dense);
                kept.dense.retain(|space, _| !delete.contains(space));
                match point.sparse.pop() {
                    Some((_, words)) => kept.words = words,
                    None if delete.contains(&"words") => kept.words.clear(),
                    None => {}
                }
                kept.version = stored + 1;
                versions.insert(id, kept.version);
            }
            choice => {
                let mut point = random_point(id, &mut seed);
                let stored = twin.get(&id).map_or(0, |point| point.version);
                if choice == 3 {
                    point.expected_version = Some(stored + numbers(&mut seed) % 2);
                }
                let written = write(&mut clients, name, &point, transport);
                let wanted = point.expected_version.is_none_or(|version| version == stored);
                assert_eq!(written.is_ok(), wanted, "{step}: {written:?}");
                if !wanted {
                    assert!(written.unwrap_err().contains("version conflict"));
                    continue;
                }
                let kept = twin.entry(id).or_default();
                kept.dense.extend(point.dense);
                if let Some((_, words)) = point.sparse.pop() {
                    kept.words = words;
                }
                kept.group = point.metadata["group"].as_u64().unwrap();
                kept.version = versions.get(&id).map_or(1, |version| version + 1);
                versions.insert(id, kept.version);
            }
        }
        if step % 30 == 0 {
            compare(&mut clients, name, &twin, &mut seed);
        }
    }
    let id = *twin.keys().next().unwrap();
    for vector in [[1.0, f32::NAN], [f32::INFINITY, 0.0]] {
        // JSON has no such numbers.
        let point = Written { id, dense: vec![("image", vector.to_vec())], ..Written::default() };
        let refused = update(&mut clients, name, &point, &[], 1).unwrap_err();
        assert!(refused.contains("is not a finite number"), "{refused}");
    }
    compare(&mut clients, name, &twin, &mut seed);
    for (id, point) in (0..60).map(|id| (id, twin.get(&id))) {
        let expected = point.map(|point| {
            let dense = point.dense.iter().map(|(name, vector)| ((*name).to_owned(), vector.clone()));
            (dense.collect(), json!({"group": {"kind": "int", "int": point.group}}), point.version)
        });
        let expected = expected.map(|(dense, mut payload, version): (_, Value, _)| {
            if payload["group"]["int"] == 0 {
                payload["group"].as_object_mut().unwrap().remove("int");
            }
            (dense, payload, version)
        });
        assert_eq!(clients.read_rest(name, id), expected, "{id}");
        assert_eq!(clients.read_binary(name, id), expected, "{id}");
        let (read, sparse) = clients.read_grpc(name, id);
        assert_eq!(read, expected, "{id}");
        let words = point.map_or(&[][..], |point| &point.words);
        let (indices, values): (Vec<u32>, Vec<f32>) = words.iter().copied().unzip();
        let told = sparse
            .get("words")
            .map(|words| (floats(&words["sparse_indices"]), floats(&words["sparse_values"])));
        let indices: Vec<f32> = indices.iter().map(|index| *index as f32).collect();
        assert_eq!(told, (!words.is_empty()).then_some((indices, values)), "{id}");
    }
}

fn delete(clients: &mut Clients, name: &str, id: u64, transport: u64) -> bool {
    match transport {
        0 => {
            clients.rest.json("DELETE", &format!("/v1/named/{name}/points/{id}"), Value::Null)["deleted"]
                == true
        }
        1 => clients.binary.ask("vector_named_delete", &Args::on(name).u64(id)) == Ok(vec![1]),
        _ => clients.grpc.call("NamedDelete", json!({"name": name, "id": id})).unwrap()["deleted"] == true,
    }
}

fn set_group(clients: &mut Clients, name: &str, id: u64, group: u64, transport: u64) -> bool {
    let payload = json!({ "group": group }).to_string();
    match transport {
        0 => clients.rest.text("POST", &format!("/v1/named/{name}/points/{id}/payload"), &payload).0 == 200,
        1 => {
            let args = Args::on(name).u64(id).s32(payload.as_bytes());
            clients.binary.ask("vector_named_set_payload", &args) == Ok(vec![1])
        }
        _ => {
            let request = json!({"collection": name, "id": id, "payload_json": payload});
            clients.grpc.call("NamedSetPayload", request).is_ok()
        }
    }
}

/// Sets the vectors of a point, deletes those of other spaces, and returns its version, 0 where it is absent.
fn update(
    clients: &mut Clients,
    name: &str,
    point: &Written,
    delete: &[&str],
    transport: u64,
) -> Result<u64, String> {
    let version = |answer: &Value| answer["version"].as_u64().unwrap();
    let keep = |mut body: Value, unknown: &[&str]| {
        unknown.iter().for_each(|key| drop(body.as_object_mut().unwrap().remove(*key)));
        body["delete"] = json!(delete);
        body
    };
    match transport {
        0 => {
            let body = keep(point.rest(), &["id", "metadata"]).to_string();
            let path = format!("/v1/named/{name}/points/{}/vectors", point.id);
            match clients.rest.text("POST", &path, &body) {
                (200, text) => Ok(version(&serde_json::from_str(&text).unwrap())),
                (404, _) => Ok(0),
                (_, text) => Err(text),
            }
        }
        1 => {
            let mut args = Args::on(name).u64(point.id).u32(point.dense.len());
            for (space, vector) in &point.dense {
                args = args.s16(space).floats(vector);
            }
            args = args.u32(point.sparse.len());
            for (space, vector) in &point.sparse {
                args = args.s16(space).sparse(vector);
            }
            args = args.u32(delete.len());
            for space in delete {
                args = args.s16(space);
            }
            if let Some(version) = point.expected_version {
                args = args.u8(1).u64(version);
            }
            let bytes = clients.binary.ask("vector_named_update_vectors", &args)?;
            match bytes.split_first() {
                Some((1, version)) => Ok(u64::from_be_bytes(version.try_into().unwrap())),
                Some((0, [])) => Ok(0),
                _ => panic!("{bytes:?}"),
            }
        }
        _ => {
            let mut request = keep(point.grpc(), &["metadata_json"]);
            request["name"] = name.into();
            match clients.grpc.call("NamedUpdateVectors", request) {
                Ok(answer) => Ok(version(&answer)),
                Err((5, _)) => Ok(0),
                Err((_, text)) => Err(text),
            }
        }
    }
}

fn write(clients: &mut Clients, name: &str, point: &Written, transport: u64) -> Result<(), String> {
    match transport {
        0 => {
            let (status, text) =
                clients.rest.text("POST", &format!("/v1/named/{name}/points"), &point.rest().to_string());
            if status == 200 { Ok(()) } else { Err(text) }
        }
        1 => clients.binary.ask("vector_named_insert", &point.binary(name)).map(drop),
        _ => {
            let mut request = point.grpc();
            request["name"] = name.into();
            clients.grpc.call("NamedUpsert", request).map(drop).map_err(|(_, text)| text)
        }
    }
}

fn check_config(clients: &mut Clients, name: &str) {
    let rest = clients.rest.json("GET", &format!("/v1/named/{name}/config"), Value::Null);
    let binary = clients.binary.ask("vector_named_get_config", &Args::on(name)).unwrap();
    let binary: Value = serde_json::from_str(ArgsReader::new(&binary).text32("spaces").unwrap()).unwrap();
    let grpc = clients.grpc.call("NamedGetConfig", json!({ "name": name })).unwrap();
    assert_eq!(grpc["name"], name);
    let grpc: Value = serde_json::from_str(grpc["config_json"].as_str().unwrap()).unwrap();
    assert_eq!((&binary, &grpc), (&rest["named_vectors"], &rest["named_vectors"]));
    assert_eq!(rest["named_vectors"]["image"]["dim"], 2);
}

/// Every kind of search over every transport.
fn compare(clients: &mut Clients, name: &str, twin: &BTreeMap<u64, Twin>, seed: &mut u64) {
    let group = numbers(seed) % 4;
    let matches = |point: &&Twin| group == 3 || point.group == group;
    let filter = if group == 3 { json!({}) } else { json!({"op": "eq", "field": "group", "value": group}) };
    let filter_json = filter.to_string();
    let rest_path = |route: &str| format!("/v1/named/{name}/{route}");
    let query = vec![(numbers(seed) % 9) as f32 + 0.25, -1.5];
    let k = 7;

    // A search of a dense space, with documents and without.
    let distance = |vector: &[f32]| vector.iter().zip(&query).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
    let mut nearest: Vec<(f32, u64)> = twin
        .iter()
        .filter(|(_, point)| matches(point))
        .filter_map(|(id, point)| Some((distance(point.dense.get("image")?), *id)))
        .collect();
    nearest.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    nearest.truncate(k);
    let expected: Vec<u64> = nearest.iter().map(|(_, id)| *id).collect();
    let body = json!({"vector_name": "image", "query": query, "k": k, "filter": filter});
    let message =
        json!({"name": name, "vector_name": "image", "query": query, "k": k, "filter_json": filter_json});
    let args = Args::on(name).s16("image").u32(k).floats(&query).s32(filter_json.as_bytes());
    let rest = hits_of(&clients.rest.json("POST", &rest_path("search"), body.clone())["results"]);
    assert_eq!(rest.iter().map(|hit| hit.0).collect::<Vec<_>>(), expected);
    assert_eq!(binary_hits(&clients.binary.ask("vector_named_search", &args).unwrap(), false, false), rest);
    assert_eq!(hits_of(&clients.grpc.call("NamedSearch", message.clone()).unwrap()["results"]), rest);
    let rest = hits_of(&clients.rest.json("POST", &rest_path("search/docs"), body)["documents"]);
    assert!(rest.iter().all(|hit| hit.3["group"]["kind"] == "int"), "{rest:?}");
    assert_eq!(
        binary_hits(&clients.binary.ask("vector_named_search_docs", &args).unwrap(), true, true),
        rest
    );
    assert_eq!(hits_of(&clients.grpc.call("NamedSearchDocs", message).unwrap()["documents"]), rest);

    // A search of a sparse space.
    let words = [(1, 2.0), (3, -1.0), (5, 0.5)];
    let score = |vector: &[(u32, f32)]| -> Option<f32> {
        let shared = vector
            .iter()
            .filter_map(|(index, value)| Some(words.iter().find(|(other, _)| other == index)?.1 * value));
        shared.reduce(|a, b| a + b)
    };
    let mut best: Vec<(f32, u64)> = twin
        .iter()
        .filter(|(_, point)| matches(point))
        .filter_map(|(id, point)| Some((score(&point.words)?, *id)))
        .collect();
    best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    best.truncate(k);
    let expected: Vec<u64> = best.iter().map(|(_, id)| *id).collect();
    let (indices, values): (Vec<u32>, Vec<f32>) = words.iter().copied().unzip();
    let body = json!({"vector_name": "words", "query": sparse_json(&words), "k": k, "filter": filter});
    let message = json!({"name": name, "vector_name": "words", "sparse_indices": indices, "sparse_values": values,
        "k": k, "filter_json": filter_json});
    let args = Args::on(name).s16("words").u32(k).sparse(&words).s32(filter_json.as_bytes());
    let rest = hits_of(&clients.rest.json("POST", &rest_path("sparse-search"), body)["results"]);
    assert_eq!(rest.iter().map(|hit| hit.0).collect::<Vec<_>>(), expected);
    assert_eq!(
        binary_hits(&clients.binary.ask("vector_named_sparse_search", &args).unwrap(), true, false),
        rest
    );
    assert_eq!(hits_of(&clients.grpc.call("NamedSparseSearch", message).unwrap()["results"]), rest);

    // Both, fused.
    let body = json!({"dense_space": "image", "dense": query, "sparse_space": "words", "sparse": sparse_json(&words),
        "k": k, "method": "weighted", "alpha": 0.25, "filter": filter});
    let message = json!({"name": name, "dense_space": "image", "dense": query, "sparse_space": "words",
        "sparse_indices": indices, "sparse_values": values, "k": k, "method": "weighted", "alpha": 0.25,
        "filter_json": filter_json});
    let fusion = |args: Args| args.u8(1).bytes(&0.25_f64.to_be_bytes()).u32(0).u32(0).u32(0);
    let args = Args(vec![3]).s8(name).s16("image").s16("words").u32(k);
    let args = fusion(args).floats(&query).sparse(&words).s32(filter_json.as_bytes());
    let rest = hits_of(&clients.rest.json("POST", &rest_path("hybrid-search"), body)["results"]);
    assert_eq!(
        binary_hits(&clients.binary.ask("vector_named_hybrid_search", &args).unwrap(), true, false),
        rest
    );
    assert_eq!(hits_of(&clients.grpc.call("NamedHybridSearch", message).unwrap()["results"]), rest);

    // A query of lanes, ranked anew, and one in groups.
    for group_by in ["", "group"] {
        let body = json!({"prefetch": [{"space": "image", "dense": query, "filter": filter},
            {"space": "words", "sparse": sparse_json(&words)}], "k": k, "group_by": group_by, "group_size": 2});
        let spec = json!({"prefetch": [{"named_dense": {"space": "image", "dense": query, "filter_json": filter_json}},
            {"named_sparse": {"space": "words", "indices": indices, "values": values}}], "fusion_method": "rrf",
            "k": k, "group_by": group_by, "group_size": 2});
        let rest = clients.rest.json("POST", &rest_path("query"), body);
        let request = json!({"collection": name, "spec": spec});
        let grpc = clients.grpc.call("NamedVectorQuery", request.clone()).unwrap();
        let spec = crate::common::grpc::messages_of("NamedVectorQuery").0;
        let spec = spec.get_field_by_name("spec").unwrap();
        let protox::prost_reflect::Kind::Message(spec) = spec.kind() else { panic!() };
        let spec = crate::common::grpc::encode(&spec, &request["spec"]);
        let binary = clients.binary.ask("vector_named_query", &Args::on(name).s32(&spec)).unwrap();
        if group_by.is_empty() {
            let rest = hits_of(&rest["results"]);
            assert_eq!(hits_of(&grpc["results"]), rest);
            assert_eq!((binary[0], binary_hits(&binary[1..], true, false)), (1, rest));
            continue;
        }
        let mut args = ArgsReader::new(&binary);
        let groups: Vec<(Value, Vec<Hit>)> = (0..args.u32("n").unwrap())
            .map(|_| {
                let key = serde_json::from_str(args.text32("key").unwrap()).unwrap();
                (key, binary_hits(args.s32("docs").unwrap(), true, true))
            })
            .collect();
        let told: Vec<_> = rest["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| (group["key"].clone(), hits_of(&group["hits"])))
            .collect();
        assert_eq!(groups, told);
        let grpc = grpc["groups"].as_array().cloned().unwrap_or_default();
        let grpc: Vec<_> = grpc
            .iter()
            .map(|group| {
                (serde_json::from_str(group["key_json"].as_str().unwrap()).unwrap(), hits_of(&group["hits"]))
            })
            .collect();
        assert_eq!(groups, grpc);
        assert!(group != 3 || twin.is_empty() || !groups.is_empty());
    }
    scrolls(clients, name, twin, &filter, group);
}

/// Pages by id and in an order: the same points, and cursors that go on.
fn scrolls(clients: &mut Clients, name: &str, twin: &BTreeMap<u64, Twin>, filter: &Value, group: u64) {
    let filter_json = filter.to_string();
    let expected: Vec<u64> =
        twin.iter().filter(|(_, point)| group == 3 || point.group == group).map(|(id, _)| *id).collect();
    let ids = |documents: &Value| hits_of(documents).iter().map(|hit| hit.0).collect::<Vec<_>>();
    let (mut rest, mut grpc, mut binary) = (Vec::new(), Vec::new(), Vec::new());
    let (mut cursor, mut calls_cursor, mut after) = (String::new(), String::new(), None::<u64>);
    loop {
        let body = json!({"filter": filter, "limit": 7, "cursor": cursor});
        let page = clients.rest.json("POST", &format!("/v1/named/{name}/scroll"), body);
        rest.extend(ids(&page["documents"]));
        let request = json!({"name": name, "limit": 7, "filter_json": filter_json, "cursor": calls_cursor});
        let call = clients.grpc.call("NamedScroll", request).unwrap();
        grpc.extend(ids(&call["documents"]));
        let args = Args::on(name).u32(7).s32(filter_json.as_bytes());
        let args = match after {
            Some(after) => args.u8(1).u64(after),
            None => args.u8(2).u8(0).u8(0),
        };
        let bytes = clients.binary.ask("vector_named_scroll", &args).unwrap();
        let found = binary_hits(&bytes, true, true);
        binary.extend(found.iter().map(|hit| hit.0));
        after = found.last().map(|hit| hit.0).or(after);
        page["next_cursor"].as_str().unwrap().clone_into(&mut cursor);
        call["next_cursor"].as_str().unwrap_or("").clone_into(&mut calls_cursor);
        assert_eq!(cursor, calls_cursor);
        if cursor.is_empty() {
            break;
        }
    }
    assert_eq!((&rest, &grpc, &binary), (&expected, &expected, &expected));
    let (messages, (code, _)) =
        clients.grpc.stream("NamedScrollStream", &json!({"name": name, "filter_json": filter_json}));
    assert_eq!(code, 0);
    assert_eq!(messages.iter().flat_map(|message| ids(&message["documents"])).collect::<Vec<_>>(), expected);
    // In an order: the groups from the highest on, and points by id within each.
    let mut expected = expected;
    expected.sort_by_key(|id| (u64::MAX - twin[id].group, *id));
    let order = json!({"key": "group", "desc": true});
    let body = json!({"filter": filter, "order_by": order});
    let page = clients.rest.json("POST", &format!("/v1/named/{name}/scroll"), body);
    assert_eq!(ids(&page["documents"]), expected);
    let request = json!({"name": name, "filter_json": filter_json, "order_by": order});
    assert_eq!(ids(&clients.grpc.call("NamedScroll", request).unwrap()["documents"]), expected);
    let args = Args::on(name).u32(0).s32(filter_json.as_bytes()).u8(4).s32(b"group").u8(1).u8(0).u8(0);
    let bytes = clients.binary.ask("vector_named_scroll", &args).unwrap();
    assert_eq!(binary_hits(&bytes, true, true).iter().map(|hit| hit.0).collect::<Vec<_>>(), expected);
}

/// Batches, and what is deleted by ids and by filters.
#[test]
fn many_points_at_a_time() {
    let server = Server::start();
    let mut clients = server.clients();
    let name = "many";
    let request = json!({"name": name, "config_json": SPACES});
    assert_eq!(clients.grpc.call("NamedCreate", request).unwrap(), json!({ "name": name }));
    let mut seed = 3;
    let points = |ids: std::ops::Range<u64>, seed: &mut u64| -> Vec<Written> {
        ids.map(|id| Written { dense: vec![("image", vec![id as f32, 0.0])], ..random_point(id, seed) })
            .collect()
    };
    let batch: Vec<Value> = points(0..40, &mut seed).iter().map(Written::rest).collect();
    let told =
        clients.rest.json("POST", &format!("/v1/named/{name}/points/batch"), json!({ "points": batch }));
    assert_eq!(told, json!({"count": 40}));
    let batch: Vec<Value> = points(40..80, &mut seed).iter().map(Written::grpc).collect();
    let told = clients.grpc.call("NamedUpsertBatch", json!({"name": name, "points": batch})).unwrap();
    assert_eq!(told, json!({"count": 40}));
    // Requests that arrive together become one batch, in which each keeps its own outcome.
    let mut pipelined: Vec<Args> =
        points(80..120, &mut seed).iter().map(|point| point.binary(name)).collect();
    let wrong = Written { id: 500, dense: vec![("image", vec![1.0])], ..Written::default() };
    let unknown = Written { id: 501, dense: vec![("nope", vec![1.0])], ..Written::default() };
    pipelined.insert(3, wrong.binary(name));
    pipelined.insert(9, unknown.binary(name));
    let requests: Vec<_> = pipelined.iter().map(|args| ("vector_named_insert", args)).collect();
    for (index, outcome) in clients.binary.send(&requests).into_iter().enumerate() {
        match index {
            3 => assert!(outcome.unwrap_err().contains("expected 2 components, found 1")),
            9 => assert!(outcome.unwrap_err().contains("unknown vector space \"nope\"")),
            _ => assert_eq!(outcome, Ok(vec![]), "{index}"),
        }
    }
    let count = |clients: &mut Clients| {
        clients.rest.json("POST", &format!("/v1/named/{name}/count"), json!({}))["count"].as_u64().unwrap()
    };
    assert_eq!(count(&mut clients), 120);
    // A batch ends at the first point that is refused.
    let mut some = points(200..203, &mut seed);
    some[1].dense = vec![("image", vec![1.0])];
    let batch: Vec<Value> = some.iter().map(Written::rest).collect();
    let (status, text) = clients.rest.text(
        "POST",
        &format!("/v1/named/{name}/points/batch"),
        &json!({ "points": batch }).to_string(),
    );
    let refused: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &refused["committed"]), (400, &json!(1)), "{text}");
    assert!(text.contains("points[1] with id 201: dimension mismatch in the vector space"), "{text}");
    let batch: Vec<Value> = some[1..].iter().map(Written::grpc).collect();
    let refused = clients.grpc.call("NamedUpsertBatch", json!({"name": name, "points": batch})).unwrap_err();
    assert!(refused.0 == 3 && refused.1.contains("points[0] with id 201: dimension mismatch"), "{refused:?}");
    // Each point of a batch may state the version that it must have.
    let mut some = points(200..202, &mut seed);
    (some[0].expected_version, some[1].expected_version) = (Some(1), Some(7));
    let batch: Vec<Value> = some.iter().map(Written::rest).collect();
    let told =
        clients.rest.json("POST", &format!("/v1/named/{name}/points/batch"), json!({ "points": batch }));
    let expected =
        json!({"results": [{"id": 200, "version": 2, "status": "ok"}, {"id": 201, "status": "conflict"}]});
    assert_eq!(told, expected);
    let batch: Vec<Value> = some.iter().map(Written::grpc).collect();
    let told = clients.grpc.call("NamedUpsertBatch", json!({"name": name, "points": batch})).unwrap();
    assert_eq!(told["results"], json!([{"id": 200, "conflict": true}, {"id": 201, "conflict": true}]));

    assert_eq!(count(&mut clients), 121);
    let delete = format!("/v1/named/{name}/points/delete");
    let deleted = clients.rest.json("POST", &delete, json!({"ids": [0, 1, 1, 999]}));
    assert_eq!(deleted, json!({"deleted": 2}));
    let args = Args::on(name).s32(b"").u8(1).u32(2).u64(2).u64(3);
    assert_eq!(clients.binary.ask("vector_named_delete_by_filter", &args), Ok(vec![0, 0, 0, 2]));
    let request = json!({"collection": name, "ids": [4, 5, 6]});
    assert_eq!(clients.grpc.call("NamedDeleteByFilter", request).unwrap(), json!({"deleted": 3}));
    assert_eq!(count(&mut clients), 114);
    let of_group = |group: u64| json!({"op": "eq", "field": "group", "value": group});
    let mut deleted = 0;
    deleted +=
        clients.rest.json("POST", &delete, json!({"filter": of_group(0)}))["deleted"].as_u64().unwrap();
    let args = Args::on(name).s32(of_group(1).to_string().as_bytes());
    let bytes = clients.binary.ask("vector_named_delete_by_filter", &args).unwrap();
    deleted += u64::from(ArgsReader::new(&bytes).u32("deleted").unwrap());
    let request = json!({"collection": name, "filter_json": of_group(2).to_string()});
    deleted += clients.grpc.call("NamedDeleteByFilter", request).unwrap()["deleted"].as_u64().unwrap();
    assert_eq!((deleted, count(&mut clients)), (114, 0));
    for (body, fragment) in [
        (r#"{}"#, "id is required"),
        (r#"{"id":1,"ids":[2]}"#, "id is set beside ids or filter"),
        (r#"{"ids":[1],"filter":{"op":"is_null","field":"n"}}"#, "filter and ids are both set"),
        (r#"{"filter":{}}"#, "needs a filter"),
    ] {
        clients.rest.refused("POST", &delete, body, 400, fragment);
    }
    clients.rest.refused("POST", &format!("{delete}?expected_version=1"), r#"{"ids":[1]}"#, 400, "needs id");
}

/// Points by several ids, whether a point is there, records inside payloads, and the end of a collection.
#[test]
fn the_rest_of_what_dense_collections_do() {
    let server = Server::start();
    let mut clients = server.clients();
    let name = "rest";
    clients.rest.json(
        "POST",
        &format!("/v1/named/{name}"),
        json!({"named_vectors": serde_json::from_str::<Value>(SPACES).unwrap()}),
    );
    let point = Written {
        id: 1,
        dense: vec![("title", vec![0.0, 1.0, 0.0])],
        sparse: vec![("words", vec![(2, 0.5)])],
        metadata: json!({"a": 1}),
        expected_version: Some(0),
    };
    write(&mut clients, name, &point, 1).unwrap();
    let args = Args::on(name).u8(3).u32(3).u64(1).u64(9).u64(1);
    let bytes = clients.binary.ask("vector_named_get_batch", &args).unwrap();
    let mut args = ArgsReader::new(&bytes);
    assert_eq!(args.u32("n"), Ok(3));
    let read: Vec<(u64, Read)> = (0..3).map(|_| (args.u64("id").unwrap(), binary_point(&mut args))).collect();
    let whole = clients.read_binary(name, 1);
    assert_eq!(read, [(1, whole.clone()), (9, None), (1, whole)]);
    assert!(args.is_empty());
    let request = json!({"collection": name, "ids": [1, 9], "with_vector": true});
    let told = clients.grpc.call("NamedGetBatch", request).unwrap();
    assert_eq!(told["missing"], json!([9]));
    assert_eq!(told["points"][0]["vectors"]["title"]["values"], json!([0.0, 1.0, 0.0]));
    assert_eq!(told["points"][0]["vectors"]["words"], json!({"sparse_indices": [2], "sparse_values": [0.5]}));
    assert_eq!(told["points"][0].get("payload_json"), None);
    let told =
        clients.grpc.call("NamedGet", json!({"collection": name, "id": 1, "with_payload": true})).unwrap();
    assert_eq!(told.get("vectors"), None, "{told}");
    clients.grpc.refused("NamedGet", json!({"collection": name, "id": 9}), 5, "point 9 not found");
    for (id, is_there) in [(1, 1), (9, 0)] {
        let args = Args::on(name).u64(id);
        assert_eq!(clients.binary.ask("vector_named_exists", &args), Ok(vec![is_there]));
    }
    // A record of the payload: its field n counts from 0.
    let call = b"\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x01\x03\x03\0\x01\x01\x01n\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x01\0\x01\x01\x01n";
    let args = Args::on(name).u64(1).s16("record").u8(0).s32(call);
    let bytes = clients.binary.ask("vector_named_operate", &args).unwrap();
    assert_eq!((bytes[0], &bytes[bytes.len() - 8..]), (1, &2_u64.to_be_bytes()[..]), "{bytes:?}");
    for (operation, args, left) in [
        (
            "vector_named_delete_payload_keys",
            Args::on(name).u64(1).u32(1).s16("record"),
            json!({"a": {"kind": "int", "int": 1}}),
        ),
        (
            "vector_named_overwrite_payload",
            Args::on(name).u64(1).s32(br#"{"b":true}"#),
            json!({"b": {"kind": "bool", "bool": true}}),
        ),
        ("vector_named_clear_payload", Args::on(name).u64(1), Value::Null),
    ] {
        assert_eq!(clients.binary.ask(operation, &args), Ok(vec![1]));
        let (vectors, payload, _) = clients.read_binary(name, 1).unwrap();
        assert_eq!((payload, vectors.len()), (left, 1), "{operation}");
    }
    for (method, request) in [
        ("NamedOverwritePayload", json!({"payload_json": r#"{"b":true,"c":1}"#})),
        ("NamedDeletePayloadKeys", json!({"keys": ["b"]})),
        ("NamedClearPayload", json!({})),
    ] {
        let mut request = request;
        (request["collection"], request["id"]) = (name.into(), 1.into());
        assert_eq!(clients.grpc.call(method, request).unwrap(), json!({"applied": true}));
    }
    // The sparse vector outlives changes of the payload.
    let (read, sparse) = clients.read_grpc(name, 1);
    assert_eq!((read.unwrap().2, &sparse["words"]["sparse_indices"]), (8, &json!([2])));
    assert_eq!(clients.grpc.call("NamedDrop", json!({ "name": name })).unwrap(), json!({ "name": name }));
    assert_eq!(clients.binary.ask("vector_named_drop_collection", &Args::on(name)), Ok(vec![]));
    clients.rest.refused("GET", &format!("/v1/named/{name}/config"), "", 404, "unknown collection");
}

/// A sentence is the same over every transport.
#[test]
fn what_does_not_fit_is_refused_in_the_same_words() {
    let server = Server::start();
    let mut clients = server.clients();
    let name = "refusing";
    clients.binary.ask("vector_named_create_collection", &Args::on(name).s32(SPACES.as_bytes())).unwrap();
    clients.rest.create("dense", 2, "l2");
    let point = |dense: &[(&'static str, &[f32])], sparse: &[(&'static str, &[(u32, f32)])]| Written {
        id: 1,
        dense: dense.iter().map(|(name, vector)| (*name, vector.to_vec())).collect(),
        sparse: sparse.iter().map(|(name, vector)| (*name, vector.to_vec())).collect(),
        ..Written::default()
    };
    for (collection, point, fragment) in [
        (
            name,
            point(&[("image", &[1.0, 2.0]), ("nope", &[1.0])], &[]),
            "unknown vector space \"nope\"; the collection has image, title, words",
        ),
        (
            name,
            point(&[("image", &[1.0])], &[]),
            "dimension mismatch in the vector space \"image\": expected 2 components, found 1",
        ),
        (
            name,
            point(&[("words", &[1.0])], &[]),
            "the vector space \"words\" is sparse; this needs a dense one",
        ),
        (
            name,
            point(&[], &[("image", &[(1, 1.0)])]),
            "the vector space \"image\" is dense; this needs a sparse one",
        ),
        (name, point(&[], &[("words", &[(2, 1.0), (2, 1.0)])]), "strictly ascending"),
        ("none", point(&[], &[]), "unknown collection"),
        ("dense", point(&[], &[]), "unknown collection"),
    ] {
        for transport in 0..3 {
            let refused =
                write(&mut clients, collection, &point, transport).unwrap_err().replace("\\\"", "\"");
            assert!(refused.contains(fragment), "{transport}: {refused} lacks {fragment}");
            assert!(!refused.contains("committed"), "{refused}");
        }
    }
    let wrong = [
        ("nope", vec![1.0], "unknown vector space \"nope\""),
        ("image", vec![1.0], "expected 2 components, found 1"),
        ("words", vec![1.0], "the vector space \"words\" is sparse"),
        ("", vec![1.0], "the name of a vector space is missing"),
    ];
    for (space, query, fragment) in wrong {
        let args = Args::on(name).s16(space).u32(1).floats(&query).s32(b"");
        let refused = clients.binary.ask("vector_named_search", &args).unwrap_err();
        assert!(refused.contains(fragment), "{refused}");
        let request = json!({"name": name, "vector_name": space, "query": query, "k": 1});
        clients.grpc.refused("NamedSearch", request, 3, fragment);
    }
    // What is wrong with the arguments themselves.
    for (args, fragment) in [
        (
            Args::on(name)
                .u64(1)
                .u32(2)
                .s16("image")
                .floats(&[1.0, 2.0])
                .s16("image")
                .floats(&[1.0, 2.0])
                .u64(0)
                .s32(b""),
            "space: \"image\" is named twice",
        ),
        (Args::on(name).u64(1).u32(65).bytes(&[0; 1000]), "names 65 spaces, at most 64"),
        (Args::on(name).u64(1).u32(1 << 30), "args too short: space"),
        (Args::on(name).u64(1).u32(0).u64(u64::MAX).s32(b""), "ttlMs out of range"),
        (Args::on(name).u64(1).u32(0).u64(0).s32(b"[1]"), "meta: "),
    ] {
        let refused = clients.binary.ask("vector_named_insert", &args).unwrap_err();
        assert!(refused.contains(fragment), "{refused} lacks {fragment}");
    }
    let vector = json!({"values": [1.0, 2.0], "sparse_indices": [1], "sparse_values": [1.0]});
    let request = json!({"name": name, "id": 1, "vectors": {"image": vector}});
    clients.grpc.refused(
        "NamedUpsert",
        request,
        3,
        "vectors \"image\": the values of a dense vector stand beside",
    );
    for (config, fragment) in [
        ("", "names no space"),
        ("{", "config_json: "),
        (r#"{"a":{"dim":0}}"#, "space \"a\""),
        (r#"{"a/b":{"dim":1}}"#, "reserved"),
    ] {
        clients.grpc.refused("NamedCreate", json!({"name": "new", "config_json": config}), 3, fragment);
    }
    let lane = json!({"dense": {"dense": [1.0, 2.0]}});
    clients.grpc.refused(
        "NamedVectorQuery",
        json!({"collection": name, "spec": {"prefetch": [lane]}}),
        3,
        "space is required",
    );
    let lane = json!({"named_dense": {"space": "image", "dense": [1.0, 2.0]}});
    let request = json!({"collection": "dense", "spec": {"prefetch": [lane]}});
    clients.grpc.refused("VectorQuery", request, 3, "does not work on a dense collection");
    clients.rest.golden("POST", &format!("/v1/named/{name}/count"), "{}", 200, r#"{"count":0}"#);
}
