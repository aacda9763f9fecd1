//! Changing a payload without its vector.
use crate::common::server::SHARED;
use nigh_net::limits::PAYLOAD_KEYS_MAX;
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn payloads_change_without_their_vectors() {
    let mut client = SHARED.client();
    client.create("payloads", 2, "l2");
    let points = "/v1/collections/payloads/points";
    let point = "/v1/collections/payloads/points/7";
    let payload = "/v1/collections/payloads/points/7/payload";
    let applied = r#"{"applied":true}"#;
    client.json(
        "POST",
        points,
        json!({"id": 7, "vector": [1, 2], "content": "text", "metadata": {"a": 1, "b": "x"}, "ttl_ms": 600_000}),
    );
    client.golden("POST", payload, r#"{"b":{"kind":"string","str":"y","more":1},"c":[1,2]}"#, 200, applied);
    let mut stored = client.json("GET", point, Value::Null);
    assert!((1..=600_000).contains(&stored["ttl_ms"].as_u64().unwrap()), "the point's deadline stays");
    stored["ttl_ms"] = json!(0);
    let tagged = |kind: &str, name: &str, value: Value| json!({"kind": kind, name: value});
    let merged = json!({
        "$content": tagged("string", "str", json!("text")), "a": tagged("int", "int", json!(1)),
        "b": tagged("string", "str", json!("y")), "c": tagged("ints", "ints", json!([1, 2]))});
    let expected = json!({"found": true, "vector": [1.0, 2.0], "payload": merged, "ttl_ms": 0, "version": 2});
    assert_eq!(stored, expected);

    // Nothing to merge counts as well.
    client.golden("POST", payload, "{}", 200, applied);
    let path = format!("{payload}?expected_version=2");
    client.refused("POST", &path, r#"{"a":2}"#, 409, "version conflict");
    client.golden("POST", &format!("{payload}?expected_version=3&wait=true"), r#"{"a":2}"#, 200, applied);
    client.golden("POST", &format!("{payload}/delete"), r#"{"keys":["b","none","$content"]}"#, 200, applied);
    let stored = client.json("GET", point, Value::Null);
    assert_eq!(stored["payload"], json!({"a": tagged("int", "int", json!(2)), "c": merged["c"]}));
    assert_eq!((&stored["version"], &stored["vector"]), (&json!(5), &json!([1.0, 2.0])));

    client.golden("PUT", payload, r#"{"d":true,"$content":"other"}"#, 200, applied);
    client.golden("POST", &format!("{payload}/overwrite"), r#"{"d":7,"$content":"new"}"#, 200, applied);
    client.golden(
        "POST",
        &format!("{points}/search/docs"),
        r#"{"query":[1,2],"k":1}"#,
        200,
        r#"{"documents":[{"id":7,"distance":0.0,"score":0,"content":"new","metadata":{"d":{"kind":"int","int":7}}}],"degraded":false,"missing":[]}"#,
    );
    client.golden("POST", &format!("{payload}/clear"), "", 200, applied);
    client.golden("POST", &format!("{payload}/clear"), "not read", 200, applied);
    let stored = client.json("GET", point, Value::Null);
    assert_eq!((&stored["payload"], &stored["version"]), (&Value::Null, &json!(9)));
    client.golden("DELETE", &format!("{point}?expected_version=9"), "", 200, r#"{"deleted":true}"#);
    for (method, path) in
        [("POST", payload.to_owned()), ("PUT", payload.to_owned()), ("POST", format!("{payload}/clear"))]
    {
        client.refused(method, &path, "{}", 404, "point not found");
        client.refused(method, &format!("{path}?expected_version=1"), "{}", 404, "point not found");
    }
}

#[test]
fn refused_changes_of_payload() {
    let mut client = SHARED.client();
    client.create("refused", 1, "l2");
    let at = |rest: &str| format!("/v1/collections/refused/points/{rest}");
    client.json(
        "POST",
        "/v1/collections/refused/points",
        json!({"id": 1, "vector": [1], "metadata": {"a": 1}}),
    );
    for (path, body, status, fragment) in [
        (at("1/payload"), "", 400, "invalid JSON body:"),
        (at("1/payload"), "[]", 400, "invalid JSON body:"),
        (at("1/payload"), r#"{"a":{"kind":"what"}}"#, 400, "unknown kind"),
        (at("1/payload"), r#"{"key_ttl_ms":{"a":"soon"}}"#, 400, "key_ttl_ms"),
        (at("1/payload/delete"), r#"{"key":["a"]}"#, 400, "unknown field \"key\""),
        (at("x/payload"), "{}", 400, "invalid id:"),
        (at("1/payload?expected_version=-1"), "{}", 400, "expected_version"),
        (at("1/payload?write_consistency_factor=-1"), "{}", 400, "write_consistency_factor"),
        (at("1/payload?wait=2"), "{}", 400, "wait"),
        ("/v1/collections/nowhere/points/1/payload".into(), "{}", 404, "unknown collection"),
    ] {
        client.refused("POST", &path, body, status, fragment);
    }
    let answer = client.request("GET", &at("1/payload"), "", b"");
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST, PUT")));
    let stored = client.json("GET", &at("1"), Value::Null);
    assert_eq!(
        (&stored["version"], &stored["payload"]["a"]["int"]),
        (&json!(1), &json!(1)),
        "nothing has changed"
    );
    // As much as one body may carry, twice.
    let large = "x".repeat(20 << 20);
    client.golden("POST", &at("1/payload"), &json!({ "l": large }).to_string(), 200, r#"{"applied":true}"#);
    client.refused("POST", &at("1/payload"), &json!({ "m": large }).to_string(), 413, "payload too large");
    assert_eq!(client.json("GET", &at("1?with_payload=0"), Value::Null)["version"], 2);
    // And as many keys, two of which are there.
    let keys = |from: usize, to: usize| {
        let keys: serde_json::Map<String, Value> = (from..to).map(|n| (n.to_string(), json!(n))).collect();
        Value::Object(keys).to_string()
    };
    client.golden("POST", &at("1/payload"), &keys(2, PAYLOAD_KEYS_MAX), 200, r#"{"applied":true}"#);
    let refusal = "payload too large: at most 16384 keys per point, found 16385";
    client.refused("POST", &at("1/payload"), &keys(0, 1), 413, refusal);
    assert_eq!(client.json("GET", &at("1?with_payload=0"), Value::Null)["version"], 3);
}

#[test]
fn keys_expire_and_come_back_without_their_old_deadline() {
    let mut client = SHARED.client();
    client.create("keys", 1, "l2");
    let payload = "/v1/collections/keys/points/1/payload";
    let body = json!({"id": 1, "vector": [1], "metadata": {"soon": 1, "late": 2, "no": 3},
        "key_ttl_ms": {"soon": 40, "late": 600_000}});
    client.json("POST", "/v1/collections/keys/points", body);
    // Keys that are not named keep their deadline, also when their value is written again.
    client.json(
        "POST",
        payload,
        json!({"soon": 5, "late": 6, "key_ttl_ms": {"late": 0, "no": 600_000, "none": 5}}),
    );
    std::thread::sleep(Duration::from_millis(60));
    let payload_of = |client: &mut crate::common::server::Client| {
        client.json("GET", "/v1/collections/keys/points/1", Value::Null)["payload"].clone()
    };
    assert_eq!(
        payload_of(&mut client),
        json!({"late": {"kind": "int", "int": 6}, "no": {"kind": "int", "int": 3}})
    );
    let matching = |client: &mut crate::common::server::Client, value: i64| {
        let filter = json!({"op": "eq", "field": "soon", "value": value});
        let found = client.json("POST", "/v1/collections/keys/points/scroll", json!({ "filter": filter }));
        let query = json!({"query": [0], "k": 3, "filter": filter});
        let near = client.json("POST", "/v1/collections/keys/points/search", query);
        let found = found["documents"].as_array().unwrap().len();
        assert_eq!(found, near["results"].as_array().unwrap().len());
        found
    };
    assert_eq!(matching(&mut client, 5), 0, "invisible at once");
    client.json("POST", payload, json!({"soon": 8}));
    std::thread::sleep(Duration::from_millis(250));
    assert_eq!(
        payload_of(&mut client)["soon"],
        json!({"kind": "int", "int": 8}),
        "a fresh key, and not swept"
    );
    assert_eq!((matching(&mut client, 8), matching(&mut client, 5)), (1, 0));
    let version = &client.json("GET", "/v1/collections/keys/points/1", Value::Null)["version"];
    assert_eq!(version, 3, "expiry is no change");
    client.json("PUT", payload, json!({"no": 1}));
    assert_eq!(payload_of(&mut client), json!({"no": {"kind": "int", "int": 1}}));
}
