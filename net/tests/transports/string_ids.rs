//! Collections whose ids are strings: REST takes and answers the strings, the other transports their numbers, with the strings in payloads.
use super::families::{Family, asked, created, families, write_point};
use super::{Args, Clients};
use nigh_engine::point_id::number_of;
use serde_json::{Value, json};

/// Ids, each written over another transport: what REST escapes in paths, a UUID, digits, and a name of a route.
const IDS: [&str; 4] = ["a b/ü%\"", "550e8400-e29b-41d4-a716-446655440000", "42", "batch"];

fn number(id: &str) -> u64 {
    number_of(id).expect("an id")
}

/// A path segment, whatever it holds.
fn escaped(id: &str) -> String {
    id.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Where points are deleted by a list of ids.
fn deletion(family: &Family) -> String {
    match family.method {
        "MV" => format!("{}/docs/delete", family.base),
        _ => format!("{}/delete", family.points),
    }
}

/// A string as a tagged payload has it.
fn tagged(text: &str) -> Value {
    json!({"kind": "string", "str": text})
}

fn text_families() -> [Family; 3] {
    families(&json!({"ids": "string"}))
}

/// Writes the points with [`IDS`], each with its place, from 1 on, under `n`.
fn write_all(clients: &mut Clients, family: &Family) {
    for (at, id) in IDS.into_iter().enumerate() {
        let at = at as u64;
        let payload = match at {
            0 | 1 => json!({"n": at + 1}),
            _ => json!({"n": at + 1, "$id": id}),
        };
        // The number may be left out where the string is there.
        let sent = if at == 2 { 0 } else { number(id) };
        write_point(clients, family, at, (&json!(id), sent, at), &payload).unwrap();
    }
}

/// Asserts that REST answers this.
fn check(clients: &mut Clients, method: &str, path: &str, body: &Value, wanted: &Value) {
    let (status, answer) = asked(clients, method, path, body);
    assert_eq!((status, &answer), (200, wanted), "{method} {path} {body}");
}

/// Asserts that REST refuses this with that status and a sentence that has this part.
fn check_refused(clients: &mut Clients, (method, path): (&str, &str), body: &Value, refusal: (u16, &str)) {
    let (status, answer) = asked(clients, method, path, body);
    let text = answer["error"].as_str().unwrap_or_default();
    assert!(
        status == refusal.0 && text.contains(refusal.1),
        "{method} {path} {body}: {status} {answer}, not {refusal:?}"
    );
}

#[test]
fn points_are_named_by_strings() {
    for family in text_families() {
        let (_server, mut clients) = created(&family);
        write_all(&mut clients, &family);
        let points = family.points;
        for (at, id) in IDS.into_iter().enumerate() {
            let (status, point) =
                asked(&mut clients, "GET", &format!("{points}/{}", escaped(id)), &Value::Null);
            assert_eq!(
                (status, &point["payload"]),
                (200, &json!({"n": {"kind": "int", "int": at + 1}})),
                "{id}: {point}"
            );
            let wanted = json!({"$id": tagged(id), "n": {"kind": "int", "int": at + 1}});
            let request = json!({"collection": "c", "id": number(id), "with_payload": true});
            let message = clients.grpc.call(&format!("{}Get", family.method), request).unwrap();
            assert_eq!(
                serde_json::from_str::<Value>(message["payload_json"].as_str().unwrap()).unwrap(),
                wanted
            );
            let args = Args::on("c").u64(number(id)).u8(2);
            let bytes = clients.binary.ask(&format!("{}get", family.operation), &args).unwrap();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let start = text.find("{\"$id\"").unwrap_or_else(|| panic!("{text:?} has no id"));
            let mut json = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
            assert_eq!(json.next().unwrap().unwrap(), wanted);
        }
        let batch = json!({"ids": ["42", "none", IDS[0]], "with_vector": false, "with_payload": false});
        let (status, found) = asked(&mut clients, "POST", &format!("{points}/batch-get"), &batch);
        let ids: Vec<&Value> = found["points"].as_array().unwrap().iter().map(|point| &point["id"]).collect();
        assert_eq!(
            (status, ids, &found["missing"]),
            (200, vec![&json!("42"), &json!(IDS[0])], &json!(["none"])),
            "{found}"
        );
        // A page of all documents is in the order of the numbers.
        let mut by_number = IDS;
        by_number.sort_by_key(|id| number(id));
        let list = if family.method.is_empty() { points } else { family.base };
        let (_, page) = asked(&mut clients, "POST", &format!("{list}/scroll"), &json!({"limit": 3}));
        let ids_of = |page: &Value| -> Vec<String> {
            let documents = page["documents"].as_array().unwrap().iter();
            documents.map(|document| document["id"].as_str().unwrap().to_owned()).collect()
        };
        let mut all = ids_of(&page);
        let rest = json!({"limit": 3, "cursor": page["next_cursor"]});
        let (_, page) = asked(&mut clients, "POST", &format!("{list}/scroll"), &rest);
        all.extend(ids_of(&page));
        assert_eq!(all, by_number);
        let (_, sample) =
            asked(&mut clients, "POST", &format!("{}/sample", family.many), &json!({"limit": 9}));
        let mut drawn = ids_of(&sample);
        drawn.sort_by_key(|id| number(id));
        assert_eq!(drawn, by_number);
        let order = json!({"order_by": {"key": "n", "desc": true}});
        let (_, page) = asked(&mut clients, "POST", &format!("{list}/scroll"), &order);
        assert_eq!(ids_of(&page), [IDS[3], IDS[2], IDS[1], IDS[0]]);
    }
}

#[test]
fn searches_answer_strings() {
    for family in text_families() {
        let (_server, mut clients) = created(&family);
        write_all(&mut clients, &family);
        let (path, searches) = match family.method {
            "" => (
                family.points,
                vec![
                    ("search", json!({"query": [1, 2], "k": 2})),
                    ("search/docs", json!({"query": [1, 2], "k": 2})),
                    ("search/mmr", json!({"query": [1, 2], "k": 2})),
                    ("query", json!({"prefetch": [{"dense": [1, 2]}], "k": 2})),
                ],
            ),
            "Named" => (
                family.base,
                vec![
                    ("search", json!({"vector_name": "image", "query": [1, 2], "k": 2})),
                    ("search/docs", json!({"vector_name": "image", "query": [1, 2], "k": 2})),
                    ("query", json!({"prefetch": [{"space": "image", "dense": [1, 2]}], "k": 2})),
                ],
            ),
            _ => (
                family.base,
                vec![
                    ("search", json!({"query": [[1, 2]], "k": 2})),
                    ("query", json!({"prefetch": [{"maxsim": [[1, 2]]}], "k": 2})),
                ],
            ),
        };
        for (route, body) in searches {
            let route = if route == "query" && family.method.is_empty() {
                format!("{}/query", family.base)
            } else {
                format!("{path}/{route}")
            };
            for shown in [
                json!({}),
                json!({"with_payload": ["n"]}),
                json!({"with_vector": true}),
                json!({"with_payload": false}),
            ] {
                if route.ends_with("mmr") && shown != json!({}) {
                    continue;
                }
                let mut body = body.clone();
                body.as_object_mut().unwrap().extend(shown.as_object().unwrap().clone());
                let (status, found) = asked(&mut clients, "POST", &route, &body);
                let hits = found["results"].as_array().or(found["documents"].as_array());
                let hits = hits.unwrap_or_else(|| panic!("{route} {body}: {status} {found}"));
                assert_eq!((hits.len(), &hits[0]["id"]), (2, &json!("42")), "{route} {body}: {found}");
                assert!(!found.to_string().contains("$id"), "{found}");
            }
        }
        let (method, request) = match family.method {
            "" => ("Search", json!({"collection": "c", "query": [1, 2], "k": 1})),
            "Named" => ("NamedSearch", json!({"name": "c", "vector_name": "image", "query": [1, 2], "k": 1})),
            _ => ("MVSearch", json!({"name": "c", "query": [{"values": [1, 2]}], "k": 1})),
        };
        let found = clients.grpc.call(method, request).unwrap();
        let hit = &found["results"][0];
        assert_eq!(
            hit["id"].as_u64().or_else(|| hit["id"].as_str()?.parse().ok()),
            Some(number("42")),
            "{found}"
        );
        let payload = hit["payload_json"].as_str().or(hit["metadata_json"].as_str()).unwrap();
        assert_eq!(serde_json::from_str::<Value>(payload).unwrap()["$id"], tagged("42"), "{found}");
        // A hit over the binary protocol has a number, and the string beside it where payloads are asked for, be it without keys.
        let (operation, args) = match family.method {
            "" => ("vector_search", Args::default().u8(0).s8("c").u32(1).floats(&[1.0, 2.0])),
            "Named" => {
                ("vector_named_search", Args::on("c").s16("image").u32(1).floats(&[1.0, 2.0]).s32(b"").u8(0))
            }
            _ => ("vector_mv_search", Args::on("c").u32(1).u32(0).u32(1).floats(&[1.0, 2.0]).u8(0)),
        };
        let bytes = clients.binary.ask(operation, &args).unwrap();
        assert_eq!(bytes[..12], [&1_u32.to_be_bytes()[..], &number("42").to_be_bytes()].concat());
        let options = args.u8(0x4f).s32(br#"{"with_payload": []}"#);
        let bytes = clients.binary.ask(operation, &options).unwrap();
        assert_eq!(bytes[4..12], number("42").to_be_bytes());
        let payload = json!({"$id": tagged("42")}).to_string();
        assert!(String::from_utf8_lossy(&bytes).contains(&payload), "{bytes:?}");
    }
}

#[test]
fn filters_changes_and_deletions_take_strings() {
    for family in text_families() {
        let (_server, mut clients) = created(&family);
        write_all(&mut clients, &family);
        let (points, many) = (family.points, family.many);
        let named = json!({"filter": {"op": "has_id", "has_id": ["42", IDS[0], "none"]}});
        check(&mut clients, "POST", &format!("{many}/count"), &named, &json!({"count": 2}));
        let request = json!({"collection": "c", "filter_json": named["filter"].to_string()});
        let counted = clients.grpc.call(&format!("{}Count", family.method), request).unwrap();
        assert_eq!(
            counted["count"].as_u64().or_else(|| counted["count"].as_str()?.parse().ok()),
            Some(2),
            "{counted}"
        );
        check(
            &mut clients,
            "POST",
            &format!("{points}/{}/payload", escaped(IDS[0])),
            &json!({"m": 1}),
            &json!({"applied": true}),
        );
        let changed = json!({"ids": ["42", "none"], "payload": {"m": 2}});
        check(&mut clients, "POST", &format!("{points}/payload"), &changed, &json!({"changed": 1}));
        check(
            &mut clients,
            "POST",
            &format!("{points}/{}/payload/clear", escaped(IDS[1])),
            &json!({}),
            &json!({"applied": true}),
        );
        let (_, cleared) = asked(&mut clients, "GET", &format!("{points}/{}", escaped(IDS[1])), &Value::Null);
        assert_eq!((&cleared["payload"], &cleared["version"]), (&Value::Null, &json!(2)), "{cleared}");
        // The id is neither a key of the payload nor changed like one.
        let about_id = "\"$id\"";
        let list = if family.method.is_empty() { points } else { family.base };
        for (path, body) in [
            (format!("{points}/42/payload"), json!({"$id": "b"})),
            (format!("{points}/42/payload/delete"), json!({"keys": ["$id"]})),
            (format!("{points}/payload"), json!({"ids": ["42"], "payload": {"$id": "b"}})),
            (format!("{many}/count"), json!({"filter": {"op": "eq", "field": "$id", "value": "42"}})),
            (
                format!("{points}/payload"),
                json!({"ids": ["42", IDS[0]], "payload": {"$id": "42", "half": 1}}),
            ),
            (format!("{many}/facet"), json!({"key": "$id"})),
            (format!("{list}/scroll"), json!({"order_by": {"key": "$id", "is_string": true}})),
        ] {
            check_refused(&mut clients, ("POST", &path), &body, (400, about_id));
        }
        let half = json!({"filter": {"op": "exists", "field": "half"}});
        check(&mut clients, "POST", &format!("{many}/count"), &half, &json!({"count": 0}));
        // What names nobody, and what another version is expected of, is named as it was sent.
        check_refused(
            &mut clients,
            ("GET", &format!("{points}/{}", escaped("x y"))),
            &Value::Null,
            (404, "id \"x y\""),
        );
        check_refused(
            &mut clients,
            ("POST", &format!("{points}/{}/payload", escaped("x y"))),
            &json!({"m": 1}),
            (404, "id \"x y\""),
        );
        let stale = family.point(&json!("42"), 1, &json!({}));
        let mut stale = stale.as_object().unwrap().clone();
        stale.insert("expected_version".into(), json!(77));
        if family.method.is_empty() {
            stale.insert("upsert".into(), json!(true));
        }
        check_refused(
            &mut clients,
            ("POST", family.write.0),
            &Value::Object(stale.clone()),
            (409, "id \"42\""),
        );
        let (status, batch) =
            asked(&mut clients, "POST", family.write.1, &json!({ family.batch: [stale], "upsert": true }));
        if family.method.is_empty() {
            assert_eq!(
                (status, &batch["results"][0]),
                (200, &json!({"id": "42", "status": "conflict"})),
                "{batch}"
            );
        }
        check(
            &mut clients,
            "POST",
            &deletion(&family),
            &json!({"ids": ["42", "none"]}),
            &json!({"deleted": 1}),
        );
        for is_there in [true, false] {
            let (method, path, body) = match family.method {
                // A document is deleted by the id in a body.
                "MV" => ("POST", deletion(&family), json!({"id": IDS[0]})),
                _ => ("DELETE", format!("{points}/{}", escaped(IDS[0])), Value::Null),
            };
            check(&mut clients, method, &path, &body, &json!({ "deleted": is_there }));
        }
        let key = if family.method.is_empty() { "collection" } else { "name" };
        let deleted = json!({ key: "c", "id": number(IDS[1]) });
        clients.grpc.call(&format!("{}Delete", family.method), deleted).unwrap();
        clients
            .binary
            .ask(&format!("{}delete", family.operation), &Args::on("c").u64(number(IDS[3])))
            .unwrap();
        check(&mut clients, "POST", &format!("{many}/count"), &json!({}), &json!({"count": 0}));
    }
}

#[test]
fn ids_of_the_other_kind_are_refused() {
    for family in text_families() {
        let (_server, mut clients) = created(&family);
        write_all(&mut clients, &family);
        let (points, many) = (family.points, family.many);
        let strings = "are strings";
        let mut unnamed = family.point(&json!(7), 1, &json!({})).as_object().unwrap().clone();
        check_refused(&mut clients, ("POST", family.write.0), &json!(unnamed), (400, strings));
        unnamed.remove("id");
        check_refused(&mut clients, ("POST", family.write.0), &json!(unnamed), (400, strings));
        check_refused(
            &mut clients,
            ("POST", family.write.1),
            &json!({ family.batch: [unnamed] }),
            (400, strings),
        );
        check_refused(
            &mut clients,
            ("POST", &format!("{points}/batch-get")),
            &json!({"ids": [7]}),
            (400, strings),
        );
        check_refused(
            &mut clients,
            ("POST", &format!("{points}/batch-get")),
            &json!({"ids": ["7", 7]}),
            (400, "ids that are integers and ids that are strings"),
        );
        check_refused(&mut clients, ("POST", &deletion(&family)), &json!({"ids": [7]}), (400, strings));
        let filter = json!({"filter": {"op": "not", "not": {"op": "has_id", "has_id": [7]}}});
        check_refused(&mut clients, ("POST", &format!("{many}/count")), &filter, (400, strings));
        check_refused(
            &mut clients,
            ("POST", &format!("{many}/count")),
            &json!({"filter": {"op": "has_id", "has_id": [""]}}),
            (400, "1 to 512 bytes"),
        );
        let long = "x".repeat(513);
        check_refused(
            &mut clients,
            ("GET", &format!("{points}/{long}")),
            &Value::Null,
            (400, "1 to 512 bytes, found 513"),
        );
        for by in [2, 3] {
            let error =
                write_point(&mut clients, &family, by, (&json!(7), 7, 7), &json!({"n": 1})).unwrap_err();
            assert!(error.contains("under the payload key \"$id\""), "{error}");
            let error =
                write_point(&mut clients, &family, by, (&json!(7), 7, 7), &json!({"$id": "a"})).unwrap_err();
            assert!(error.contains("the id of the point is 7, but the string"), "{error}");
        }
        check(&mut clients, "POST", &format!("{many}/count"), &json!({}), &json!({"count": IDS.len()}));
        // The kind never changes, and is told over every transport.
        check_refused(
            &mut clients,
            ("PATCH", &format!("{}/config", family.base)),
            &json!({"ids": "number"}),
            (400, "ids"),
        );
        let (_, told) = asked(&mut clients, "GET", &format!("{}/config", family.base), &Value::Null);
        let said = told["config"].get("ids").or(told.get("ids"));
        assert_eq!(said, Some(&json!("string")), "{told}");
        let method = format!("{}GetConfig", family.method);
        let told = clients.grpc.call(&method, json!({"name": "c"})).unwrap().to_string();
        assert!(told.contains("string"), "{told}");
        let made = clients.binary.ask(&format!("{}get_config", family.operation), &Args::on("c")).unwrap();
        if family.method == "MV" {
            let args = Args::on("again").bytes(&made[2..]);
            clients.binary.ask("vector_mv_create_collection", &args).unwrap();
            let (_, told) = asked(&mut clients, "GET", "/v1/multivector/again/config", &Value::Null);
            assert_eq!(told["config"]["ids"], json!("string"), "{told}");
        } else {
            // The configuration of a dense collection has the codes of words.
            let told = String::from_utf8_lossy(&made).into_owned();
            assert!(told.contains("\"ids\":\"string\"") || told.contains("\"ids\":1"), "{told}");
        }
    }
    for family in families(&json!({})) {
        let (_server, mut clients) = created(&family);
        let integers = "an integer";
        let point = family.point(&json!("7"), 1, &json!({}));
        check_refused(&mut clients, ("POST", family.write.0), &point, (400, integers));
        check_refused(
            &mut clients,
            ("POST", family.write.1),
            &json!({ family.batch: [point] }),
            (400, integers),
        );
        check_refused(
            &mut clients,
            ("POST", &format!("{}/batch-get", family.points)),
            &json!({"ids": ["7"]}),
            (400, integers),
        );
        check_refused(
            &mut clients,
            ("GET", &format!("{}/seven", family.points)),
            &Value::Null,
            (400, "invalid id"),
        );
        // There the key of the id is a key like any other.
        write_point(&mut clients, &family, 0, (&json!(7), 7, 7), &json!({"$id": "a"})).unwrap();
        let filter = json!({"filter": {"op": "eq", "field": "$id", "value": "a"}});
        check(&mut clients, "POST", &format!("{}/count", family.many), &filter, &json!({"count": 1}));
    }
}

#[test]
fn examples_and_staged_points_are_named_by_strings() {
    let [dense, named, _] = text_families();
    for family in [&dense, &named] {
        let (_server, mut clients) = created(family);
        write_all(&mut clients, family);
        let path = format!("{}/query", family.base);
        let lane = |examples: Value| match family.method {
            "" => json!({"prefetch": [{"recommend": examples}], "k": 3}),
            _ => json!({"prefetch": [{"space": "image", "recommend": examples}], "k": 3}),
        };
        let (status, found) = asked(&mut clients, "POST", &path, &lane(json!({"positive": ["42"]})));
        let hits = found["results"].as_array().unwrap_or_else(|| panic!("{status} {found}"));
        assert!(
            !hits.is_empty() && hits.iter().all(|hit| hit["id"] != json!("42") && hit["id"].is_string()),
            "{found}"
        );
        check_refused(
            &mut clients,
            ("POST", &path),
            &lane(json!({"positive": ["x y"]})),
            (404, "id \"x y\""),
        );
        check_refused(&mut clients, ("POST", &path), &lane(json!({"positive": [42]})), (400, "are strings"));
    }
    let (_server, mut clients) = created(&dense);
    let points = json!({"points": [{"id": "a", "vector": [1, 2]}, {"id": "b", "vector": [3, 4], "metadata": {"n": 1}}]});
    check(&mut clients, "POST", "/v1/collections/c/points/bulk", &points, &json!({"staged": 2}));
    let again = json!({"points": [{"id": "b", "vector": [1, 2]}]});
    check_refused(
        &mut clients,
        ("POST", "/v1/collections/c/points/bulk"),
        &again,
        (400, "id \"b\" is staged twice"),
    );
    check(
        &mut clients,
        "POST",
        "/v1/collections/c/points/bulk/build",
        &json!({"wait": true}),
        &json!({"status": "built"}),
    );
    let (_, found) =
        asked(&mut clients, "POST", "/v1/collections/c/points/search", &json!({"query": [3, 4], "k": 1}));
    assert_eq!(found["results"][0]["id"], json!("b"), "{found}");
}
