//! Plain payloads: whatever object is sent over whichever transport comes back the same over all of them, and filters find what is inside.
use super::families::{Family, asked, created, families, write_point};
use super::{Args, Clients, numbers};
use nigh_net::tcp::reader::ArgsReader;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The families, with collections of plain payloads.
fn plain() -> [Family; 3] {
    families(&json!({"payload_format": "plain"}))
}

/// Writes a point over the transport of that number, or says why it was refused.
fn write(clients: &mut Clients, family: &Family, by: u64, id: u64, payload: &Value) -> Result<(), String> {
    write_point(clients, family, by, (&json!(id), id, id), payload)
}

/// The payload of a point over each transport.
fn read(clients: &mut Clients, family: &Family, id: u64) -> [Value; 3] {
    let (status, point) = asked(clients, "GET", &format!("{}/{id}", family.points), &Value::Null);
    assert_eq!(status, 200, "{point}");
    let bytes =
        clients.binary.ask(&format!("{}get", family.operation), &Args::on("c").u64(id).u8(2)).unwrap();
    let mut args = ArgsReader::new(&bytes);
    assert!(args.flag("found").unwrap());
    assert_eq!(args.u32("no vectors"), Ok(0));
    // Documents have a dimension here, and no deadline.
    let next =
        if family.method == "MV" { args.u32("no tokens").map(u64::from) } else { args.u64("no deadline") };
    assert_eq!(next, Ok(0));
    let has_meta = args.flag("meta").unwrap();
    let binary = if has_meta { args.text32("meta").unwrap() } else { "null" };
    let request = json!({"collection": "c", "id": id, "with_payload": true});
    let message = clients.grpc.call(&format!("{}Get", family.method), request).unwrap();
    let grpc = message["payload_json"].as_str().unwrap_or("null");
    [point["payload"].clone(), serde_json::from_str(binary).unwrap(), serde_json::from_str(grpc).unwrap()]
}

fn count(clients: &mut Clients, family: &Family, filter: &Value) -> u64 {
    let (status, answer) =
        asked(clients, "POST", &format!("{}/count", family.many), &json!({"filter": filter}));
    assert_eq!(status, 200, "{filter}: {answer}");
    answer["count"].as_u64().unwrap()
}

#[test]
fn any_object_comes_back_over_every_transport() {
    for family in plain() {
        let (_server, mut clients) = created(&family);
        let payloads = [
            json!({"zero": 0, "no": false, "none": null, "text": "", "list": [], "object": {}, "float": 0.5}),
            json!({"animal": {"kind": "int", "int": 5}, "mixed": [1, "x", null, true, [2], {"b": [1.5]}]}),
            json!({"flags": [true, false], "numbers": [1, 2.5], "deep": {"a": {"b": {"c": [{"d": 1}, {"d": "e"}]}}}}),
            json!({"a": {"b": 1}, "a.b": 2, "": {"": 3}, "ü": ["ß"]}),
        ];
        for (by, payload) in (0..4).flat_map(|by| payloads.iter().map(move |payload| (by, payload))) {
            write(&mut clients, &family, by, by, payload).unwrap();
            for read in read(&mut clients, &family, by) {
                assert_eq!(&read, payload, "transport {by}");
            }
        }
        // What searches and lists answer.
        let (path, query) = match family.method {
            "" => ("search/docs", json!({"query": [1, 0], "k": 1})),
            "Named" => ("../search/docs", json!({"vector_name": "image", "query": [1, 0], "k": 1})),
            _ => ("../search", json!({"query": [[1, 0]], "k": 1, "with_payload": true})),
        };
        let path = match path.strip_prefix("../") {
            Some(path) => format!("{}/{path}", family.base),
            None => format!("{}/{path}", family.points),
        };
        let (status, found) = asked(&mut clients, "POST", &path, &query);
        let found = found["documents"].as_array().or(found["results"].as_array()).expect("hits")[0].clone();
        let payload = if found["metadata"].is_null() { &found["payload"] } else { &found["metadata"] };
        assert_eq!((status, payload), (200, &payloads[3]), "{found}");
        let list = if family.method.is_empty() { family.points } else { family.base };
        let (_, found) = asked(&mut clients, "POST", &format!("{list}/scroll"), &json!({}));
        assert_eq!(found["documents"][0]["metadata"], payloads[3], "{found}");
        // The configuration that is returned has it, and creates the same collection again.
        let (_, told) = asked(&mut clients, "GET", &format!("{}/config", family.base), &Value::Null);
        let said = told["config"].get("payload_format").or(told.get("payload_format"));
        assert_eq!(said, Some(&json!("plain")), "{told}");
        let request = if family.method.is_empty() { "GetConfig" } else { "" };
        let method =
            if request.is_empty() { format!("{}GetConfig", family.method) } else { request.to_owned() };
        let told = clients.grpc.call(&method, json!({"name": "c"})).unwrap();
        assert!(told.to_string().contains("plain"), "{told}");
        let made = clients.binary.ask(&format!("{}get_config", family.operation), &Args::on("c")).unwrap();
        match family.method {
            "MV" => {
                // The arguments of a creation come back, with the name before them.
                let args = Args::on("again").bytes(&made[2..]);
                clients.binary.ask("vector_mv_create_collection", &args).unwrap();
                let (_, told) = asked(&mut clients, "GET", "/v1/multivector/again/config", &Value::Null);
                assert_eq!(told["config"]["payload_format"], json!("plain"), "{told}");
            }
            _ => assert!(String::from_utf8_lossy(&made).contains("payload_format"), "{made:?}"),
        }
    }
}

#[test]
fn filters_and_facets_find_what_is_inside() {
    for family in plain() {
        let (_server, mut clients) = created(&family);
        for id in 0..40u64 {
            let payload = json!({
                "author": {"name": format!("n{}", id % 4), "born": 1900 + id, "at": {"lat": id, "lon": 10.5}},
                "books": [{"year": id % 3, "sold": id % 2 == 0}, {"year": 100 + id % 5}],
                "flags": [id % 2 == 0, id % 8 == 0],
                "mixed": [id % 7, format!("m{}", id % 5), null],
                "place": {"lon": 20, "lat": id},
            });
            write(&mut clients, &family, id, id, &payload).unwrap();
        }
        // Latitudes up to 9.5, longitudes from 15 to 25.
        let inside = |field: &str| {
            let corners = json!({"min_lat": -1, "max_lat": 9.5, "min_lon": 15, "max_lon": 25});
            json!({"op": "geo_bounding_box", "field": field, "geo": corners})
        };
        let of = |op: &str, field: &str, value: Value| json!({"op": op, "field": field, "value": value});
        for (filter, wanted) in [
            (of("eq", "author.name", json!("n1")), 10),
            (of("lt", "author.born", json!(1910)), 10),
            (of("in", "author.born", json!([1900, 1939, 1950])), 2),
            (of("contains", "books[].year", json!(2)), 13),
            (of("contains", "books[].year", json!(104)), 8),
            (of("contains", "books[].sold", json!(true)), 20),
            (of("contains", "flags", json!(true)), 20),
            (of("contains", "flags", json!(false)), 35),
            (of("contains", "mixed", json!("m3")), 8),
            (of("contains", "mixed", json!(6)), 5),
            (json!({"op": "match", "field": "mixed", "value": "M3"}), 8),
            (json!({"op": "exists", "field": "author.at"}), 40),
            (json!({"op": "exists", "field": "author.none"}), 0),
            (json!({"not": {"op": "exists", "field": "author"}, "op": "not"}), 0),
            (inside("place"), 10),
            (inside("author.at"), 0),
        ] {
            assert_eq!(count(&mut clients, &family, &filter), wanted, "{filter}");
        }
        let request = json!({"key": "author.name", "limit": 5});
        let (_, facets) = asked(&mut clients, "POST", &format!("{}/facet", family.many), &request);
        assert_eq!(facets["facets"][0], json!({"value": "n0", "count": 10}), "{facets}");
        let request = json!({"collection": "c", "key": "flags", "limit": 5});
        let facets = clients.grpc.call(&format!("{}Facet", family.method), request).unwrap();
        assert_eq!(facets["facets"][0], json!({"value_json": "false", "count": 35}), "{facets}");
        // Order and groups by a path.
        let request = json!({"order_by": {"key": "author.born", "desc": true}, "limit": 2});
        let list = if family.method.is_empty() { family.points } else { family.base };
        let (_, found) = asked(&mut clients, "POST", &format!("{list}/scroll"), &request);
        assert_eq!(found["documents"][0]["metadata"]["author"]["born"], json!(1939), "{found}");
        let (path, mut request) = match family.method {
            "" => (format!("{}/search/groups", family.points), json!({"query": [1, 0]})),
            "Named" => (
                format!("{}/query", family.base),
                json!({"prefetch": [{"space": "image", "dense": [1, 0], "lane_k": 40}]}),
            ),
            _ => {
                (format!("{}/query", family.base), json!({"prefetch": [{"maxsim": [[1, 0]], "lane_k": 40}]}))
            }
        };
        for (key, value) in [("k", json!(2)), ("group_by", json!("author.name")), ("group_size", json!(1))] {
            request[key] = value;
        }
        let (status, found) = asked(&mut clients, "POST", &path, &request);
        assert_eq!(status, 200, "{found}");
        assert_eq!(found["groups"].as_array().map(Vec::len), Some(2), "{found}");
        assert!(found["groups"][0]["key"].is_string(), "{found}");
    }
}

#[test]
fn what_cannot_be_stored_is_refused_alike() {
    for family in plain() {
        let (_server, mut clients) = created(&family);
        write(&mut clients, &family, 0, 1, &json!({"kept": {"a": [1, "b"]}})).unwrap();
        let long = "x".repeat(1 << 20);
        let keys: Map<String, Value> = (0..20_000).map(|key| (format!("k{key}"), json!(1))).collect();
        for (payload, fragment) in [
            (json!([1]), "object"),
            (json!({"a": u64::MAX}), "out of the range of a 64-bit integer"),
            (json!({"a": {"b": [u64::MAX]}}), "out of the range of a 64-bit integer"),
            (json!({"a": [long, 1]}), "at most 1048576 bytes per point"),
            (json!({ "a": keys }), "at most 16384 keys and paths"),
        ] {
            for by in 0..4 {
                let error = write(&mut clients, &family, by, 1, &payload).unwrap_err();
                assert!(error.contains(fragment), "transport {by}: {error}");
            }
        }
        assert_eq!(read(&mut clients, &family, 1)[0], json!({"kept": {"a": [1, "b"]}}));
        let create = json!({"name": "d", "config": {"dim": 2, "payload_format": "yaml"}});
        let (status, answer) = asked(&mut clients, "POST", "/v1/collections", &create);
        let error = answer["error"].as_str().unwrap();
        assert!(status == 400 && error.contains("payload_format") && error.contains("tagged"), "{error}");
        // A tagged collection has no such values.
        let create = json!({"name": "t", "config": {"dim": 2}});
        assert_eq!(asked(&mut clients, "POST", "/v1/collections", &create).0, 201);
        for value in [json!({"b": 1}), json!([1, "x"]), json!([true]), json!({"kind": "json"})] {
            let point = json!({"id": 1, "vector": [1, 2], "metadata": {"a": value}});
            let (status, answer) = asked(&mut clients, "POST", "/v1/collections/t/points", &point);
            assert_eq!(status, 400, "{answer}");
        }
    }
}

/// A random value: some that have a kind, some that only JSON has.
fn random(seed: &mut u64, depth: u64) -> Value {
    let choice = numbers(seed) % if depth == 0 { 6 } else { 9 };
    let list = |seed: &mut u64, of: &dyn Fn(&mut u64) -> Value| -> Value {
        let len = numbers(seed) % 4;
        (0..len).map(|_| of(seed)).collect()
    };
    match choice {
        0 => json!(numbers(seed) % 3),
        1 => json!(format!("t{}", numbers(seed) % 3)),
        2 => json!(numbers(seed).is_multiple_of(2)),
        3 => json!(numbers(seed) as f64 / 8.0),
        4 => Value::Null,
        5 => list(seed, &|seed| json!(numbers(seed) % 3)),
        6 => list(seed, &|seed| json!(format!("t{}", numbers(seed) % 3))),
        7 => list(seed, &|seed| random(seed, depth - 1)),
        _ => Value::Object(object(seed, depth - 1)),
    }
}

fn object(seed: &mut u64, depth: u64) -> Map<String, Value> {
    (0..numbers(seed) % 4)
        .map(|_| (["a", "b", "c", "d"][numbers(seed) as usize % 4].to_owned(), random(seed, depth)))
        .collect()
}

/// Whether an array at `path`, or reached by it, has the element.
fn contains(value: &Value, path: &[&str], element: &Value) -> bool {
    match (path, value) {
        ([], Value::Array(list)) => list.contains(element),
        ([], _) => false,
        ([step, rest @ ..], Value::Object(map)) => match step.strip_suffix("[]") {
            None => map.get(*step).is_some_and(|value| contains(value, rest, element)),
            Some(key) => map.get(key).and_then(Value::as_array).is_some_and(|list| {
                list.iter().filter_map(Value::as_object).any(|object| match rest {
                    [] => false,
                    // What the objects of an array have is an array as well.
                    [last] => object.get(*last).is_some_and(|value| {
                        value == element || value.as_array().is_some_and(|list| list.contains(element))
                    }),
                    _ => unreachable!("paths of the test have one array"),
                })
            }),
        },
        _ => false,
    }
}

/// The value at a path through objects alone.
fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, key| value.as_object()?.get(key))
}

#[test]
fn random_changes_keep_up_with_a_twin() {
    let changes = if std::env::var_os("NIGH_TEST_LONG").is_some() { 20_000 } else { 600 };
    for family in plain() {
        let (_server, mut clients) = created(&family);
        let (mut twin, mut seed) = (BTreeMap::<u64, Map<String, Value>>::new(), 7);
        for step in 0..changes {
            let (id, by) = (numbers(&mut seed) % 12, numbers(&mut seed));
            let payload = object(&mut seed, 3);
            let path = format!("{}/{id}/payload", family.points);
            match (numbers(&mut seed) % 5, twin.get_mut(&id)) {
                (0, Some(stored)) => {
                    stored.extend(payload.clone());
                    let json = Value::Object(payload);
                    if by.is_multiple_of(2) {
                        assert_eq!(asked(&mut clients, "POST", &path, &json).0, 200);
                    } else {
                        let args = Args::on("c").u64(id).s32(json.to_string().as_bytes());
                        clients.binary.ask(&format!("{}set_payload", family.operation), &args).unwrap();
                    }
                }
                (1, Some(stored)) => {
                    *stored = payload.clone();
                    let json = Value::Object(payload).to_string();
                    let request = json!({"collection": "c", "id": id, "payload_json": json});
                    clients.grpc.call(&format!("{}OverwritePayload", family.method), request).unwrap();
                }
                (2, Some(stored)) => {
                    stored.remove("a");
                    let body = json!({"keys": ["a", "b.c"]});
                    assert_eq!(asked(&mut clients, "POST", &format!("{path}/delete"), &body).0, 200);
                }
                _ => {
                    write(&mut clients, &family, by, id, &Value::Object(payload.clone())).unwrap();
                    twin.insert(id, payload);
                }
            }
            let expected = twin.get(&id).map(|payload| Value::Object(payload.clone())).unwrap_or_default();
            let expected = if expected == json!({}) { Value::Null } else { expected };
            for (transport, read) in read(&mut clients, &family, id).into_iter().enumerate() {
                assert_eq!(read, expected, "step {step}, transport {transport}");
            }
            let number = json!(numbers(&mut seed) % 3);
            for path in ["a", "a.b", "a.b.c", "b[].a", "c.d[].b"] {
                let filter = json!({"op": "contains", "field": path, "value": number});
                let steps: Vec<&str> = path.split('.').collect();
                let wanted = twin
                    .values()
                    .filter(|payload| contains(&Value::Object((*payload).clone()), &steps, &number));
                assert_eq!(
                    count(&mut clients, &family, &filter),
                    wanted.count() as u64,
                    "step {step}: {filter}"
                );
                if path.contains('[') {
                    continue;
                }
                let filter = json!({"op": "eq", "field": path, "value": number});
                let wanted = twin
                    .values()
                    .filter(|payload| at(&Value::Object((*payload).clone()), path) == Some(&number));
                assert_eq!(
                    count(&mut clients, &family, &filter),
                    wanted.count() as u64,
                    "step {step}: {filter}"
                );
            }
        }
    }
}

#[test]
fn a_nested_value_expires_with_its_paths() {
    for family in plain() {
        let (_server, mut clients) = created(&family);
        let payload = json!({"a": {"b": [1, "x"]}, "k": 1});
        write(&mut clients, &family, 0, 1, &payload).unwrap();
        let change = json!({"a": {"b": [1, "x"]}, "key_ttl_ms": {"a": 50}});
        assert_eq!(asked(&mut clients, "POST", &format!("{}/1/payload", family.points), &change).0, 200);
        let filter = json!({"op": "exists", "field": "a.b"});
        std::thread::sleep(std::time::Duration::from_millis(60));
        assert_eq!(count(&mut clients, &family, &filter), 0);
        assert_eq!(read(&mut clients, &family, 1)[0], json!({"k": 1}));
    }
}
