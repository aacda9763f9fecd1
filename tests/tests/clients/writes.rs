//! Writing: upserts one by one, binary batches, staging and building, deleting.

use super::wire::{Wire, counted, hex, ids, server};
use nigh_tests::{Access, in_every_mode};
use serde_json::json;

in_every_mode!(
    upserts_send_seven_keys_and_read_the_status,
    batch_upserts_are_binary,
    bulk_loads_are_staged_and_built,
    deletes_read_a_bool_or_a_count,
);

fn upserts_send_seven_keys_and_read_the_status(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 2, "l2", "");
    let points = "/v1/collections/docs/points";
    for (id, body) in [
        (
            1,
            r#"{"id": 1, "vector": [0.5, -1.5], "content": "first", "ttl_ms": 0, "metadata": null, "upsert": true}"#,
        ),
        (
            2,
            r#"{"id": 2, "vector": [1.0, 0.0], "content": "", "ttl_ms": 0, "metadata": {"city": {"kind": "string", "str": "Oslo"}, "n": {"kind": "int", "int": 3}}, "upsert": true}"#,
        ),
        (
            3,
            r#"{"id": 3, "vector": [2, 0], "content": "third", "ttl_ms": 0, "metadata": {}, "upsert": true, "sparse": {"indices": [1, 40000], "values": [0.5, 2.0]}}"#,
        ),
        (
            u64::MAX,
            r#"{"id": 18446744073709551615, "vector": [3e0, 1E-2], "content": "", "ttl_ms": 600000, "metadata": null, "upsert": false}"#,
        ),
        // Over a live id.
        (
            1,
            r#"{"id": 1, "vector": [0.5, -1.5], "content": "first", "ttl_ms": 0, "metadata": null, "upsert": true}"#,
        ),
    ] {
        wire.exact("POST", points, body, 200, &format!(r#"{{"id":{id}}}"#));
    }
    let insert =
        r#"{"id": 2, "vector": [9.0, 9.0], "content": "", "ttl_ms": 0, "metadata": null, "upsert": false}"#;
    assert_eq!(wire.json("POST", points, insert).refused().0, 409);
    let get = r#"{"ids": [1, 2, 3], "with_vector": true, "with_payload": true}"#;
    let found = wire.ok("POST", &format!("{points}/batch-get"), get);
    let payloads: Vec<_> =
        found["points"].as_array().expect("a list").iter().map(|p| &p["payload"]).collect();
    assert_eq!(payloads[0], &json!({"$content": {"kind": "string", "str": "first"}}));
    assert_eq!(
        payloads[1],
        &json!({"city": {"kind": "string", "str": "Oslo"}, "n": {"kind": "int", "int": 3}})
    );
    assert_eq!(payloads[2], &json!({"$content": {"kind": "string", "str": "third"}}));
    assert_eq!(found["points"][0]["vector"], json!([0.5, -1.5]));
    let search = r#"{"dense": null, "sparse": {"indices": [40000], "values": [1.0]}, "k": 5}"#;
    assert_eq!(ids(&wire.ok("POST", &format!("{points}/search/hybrid"), search)["results"]), [3]);
}

fn batch_upserts_are_binary(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 2, "l2", "");
    let batch = "/v1/collections/docs/points/batch";
    // Magic, flags (payloads, upsert), two points of dimension two; then rows, then payloads.
    let mut body = hex("52564231 00000003 00000002 00000002
        0000000000000007 3f800000 c0000000
        ffffffffffffffff 3f000000 3e800000");
    body.extend(counted(
        r#"{"$content": {"kind": "string", "str": "seven"}, "n": {"kind": "int", "int": 4}}"#,
    ));
    body.extend(counted(""));
    let answer = wire.binary(batch, &body);
    assert_eq!((answer.status, answer.text()), (200, "{\"count\":2}\n"));
    assert!(answer.ok()["count"].is_u64());
    let again = wire.binary(batch, &body);
    assert_eq!(again.text(), "{\"count\":2}\n", "flag 1 replaces");
    // Without a first vector there is no dimension to state.
    let empty = hex("52564231 00000002 00000000 00000000");
    assert_eq!(wire.binary(batch, &empty).text(), "{\"count\":0}\n");
    let payloads_of_nothing = hex("52564231 00000003 00000000 00000000");
    assert_eq!(wire.binary(batch, &payloads_of_nothing).text(), "{\"count\":0}\n");
    wire.exact(
        "POST",
        "/v1/collections/docs/points/batch-get",
        r#"{"ids": [7, 18446744073709551615], "with_vector": true, "with_payload": true}"#,
        200,
        r#"{"points":[{"id":7,"vector":[1.0,-2.0],"payload":{"$content":{"kind":"string","str":"seven"},"n":{"kind":"int","int":4}},"ttl_ms":0,"version":2},{"id":18446744073709551615,"vector":[0.5,0.25],"payload":null,"ttl_ms":0,"version":2}],"missing":[]}"#,
    );
    let wrong_dim = hex("52564231 00000002 00000001 00000001 0000000000000009 3f800000");
    assert_eq!(wire.binary(batch, &wrong_dim).refused().0, 400);
    let trailing = hex("52564231 00000002 00000000 00000000 00");
    assert_eq!(wire.binary(batch, &trailing).refused().0, 400);
    assert_eq!(ids(&wire.ok("POST", "/v1/collections/docs/points/scroll", "{}")["documents"]).len(), 2);
}

fn bulk_loads_are_staged_and_built(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 2, "l2", "");
    let (bulk, build) = ("/v1/collections/docs/points/bulk", "/v1/collections/docs/points/bulk/build");
    let answer = wire.binary(bulk, &hex("52564231 00000000 00000000 00000000"));
    assert_eq!((answer.status, answer.text()), (200, "{\"staged\":0}\n"));
    let plain = hex("52564231 00000000 00000002 00000002
        0000000000000001 3f800000 00000000
        0000000000000002 40000000 00000000");
    assert_eq!(wire.binary(bulk, &plain).text(), "{\"staged\":2}\n");
    let mut with_payloads = hex("52564231 00000001 00000001 00000002 0000000000000003 40400000 00000000");
    with_payloads.extend(counted(r#"{"$content": {"kind": "string", "str": "three"}}"#));
    assert_eq!(wire.binary(bulk, &with_payloads).ok()["staged"], json!(1));
    let upsert = hex("52564231 00000002 00000001 00000002 0000000000000009 40400000 00000000");
    assert_eq!(wire.binary(bulk, &upsert).refused().0, 400, "staging replaces nothing");
    wire.exact("POST", build, r#"{"workers": 0}"#, 200, r#"{"status":"built"}"#);
    let docs = wire.ok("POST", "/v1/collections/docs/points/search/docs", r#"{"query": [0, 0], "k": 5}"#);
    assert_eq!(ids(&docs["documents"]), [1, 2, 3]);
    assert_eq!(docs["documents"][2]["content"], "three");
}

fn deletes_read_a_bool_or_a_count(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 1, "l2", "");
    let points = "/v1/collections/docs/points";
    for id in 0..6 {
        let body = format!(
            r#"{{"id": {id}, "vector": [{id}], "content": "", "ttl_ms": 0, "metadata": {{"even": {{"kind": "bool", "bool": {}}}}}, "upsert": true}}"#,
            id % 2 == 0
        );
        wire.ok("POST", points, &body);
    }
    wire.exact("DELETE", &format!("{points}/1"), "", 200, r#"{"deleted":true}"#);
    wire.exact("DELETE", &format!("{points}/1"), "", 200, r#"{"deleted":false}"#);
    let by_filter = |filter: &str| format!(r#"{{"filter": {filter}}}"#);
    let delete = format!("{points}/delete");
    let even = by_filter(r#"{"op": "eq", "field": "even", "value": {"kind": "bool", "bool": true}}"#);
    wire.exact("POST", &delete, &even, 200, r#"{"deleted":3}"#);
    wire.exact("POST", &delete, &even, 200, r#"{"deleted":0}"#);
    for everything in ["{}", "null", r#"{"op": "and", "and": []}"#] {
        assert_eq!(wire.json("POST", &delete, &by_filter(everything)).refused().0, 400, "{everything}");
    }
    assert_eq!(ids(&wire.ok("POST", &format!("{points}/scroll"), r#"{"limit": 0}"#)["documents"]), [3, 5]);
}
