//! Reading: scrolls, which clients also count with, and points by id.

use super::wire::{Wire, hex, ids, server};
use nigh_tests::{Access, in_every_mode};
use serde_json::{Value, json};

in_every_mode!(
    a_scroll_without_limit_is_everything,
    a_cursor_leads_through_all_pages,
    points_by_id_bring_their_content_in_the_payload,
);

/// More than one page of the server's and no multiple of a client's.
const POINTS: u64 = 1_003;

fn filled(wire: &mut Wire) {
    wire.create("docs", 1, "l2", "");
    let mut body = hex("52564231 00000003 000003eb 00000001");
    for id in 0..POINTS {
        body.extend((3 * id).to_be_bytes());
        body.extend((id as f32).to_be_bytes());
    }
    for id in 0..POINTS {
        let payload = format!(r#"{{"n": {{"kind": "int", "int": {}}}}}"#, id % 10);
        body.extend(super::wire::counted(&payload));
    }
    assert_eq!(wire.binary("/v1/collections/docs/points/batch", &body).ok(), json!({"count": POINTS}));
}

/// Where a client goes on: nowhere when the cursor is missing, null or empty.
fn next(page: &Value) -> Option<&str> {
    page["next_cursor"].as_str().filter(|cursor| !cursor.is_empty())
}

fn a_scroll_without_limit_is_everything(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    filled(&mut wire);
    let scroll = "/v1/collections/docs/points/scroll";
    let all = wire.ok("POST", scroll, r#"{"limit": 0}"#);
    let expected: Vec<u64> = (0..POINTS).map(|id| 3 * id).collect();
    assert_eq!(ids(&all["documents"]), expected, "in order of id, id 0 included");
    assert_eq!(next(&all), None);
    assert_eq!(all["degraded"], false);
    assert_eq!(all["missing"], json!([]));
    assert_eq!(
        all["documents"][1],
        json!({"id": 3, "distance": 0.0, "score": 0, "content": "", "metadata": {"n": {"kind": "int", "int": 1}}})
    );
    let filter = r#"{"op": "eq", "field": "n", "value": {"kind": "int", "int": 2}}"#;
    let some = wire.ok("POST", scroll, &format!(r#"{{"limit": 0, "filter": {filter}}}"#));
    let expected: Vec<u64> = (0..POINTS).filter(|id| id % 10 == 2).map(|id| 3 * id).collect();
    assert_eq!(ids(&some["documents"]), expected);
    wire.create("empty", 1, "l2", "");
    let nothing = r#"{"documents":[],"degraded":false,"missing":[],"next_cursor":""}"#;
    wire.exact("POST", "/v1/collections/empty/points/scroll", r#"{"limit": 0}"#, 200, nothing);
}

fn a_cursor_leads_through_all_pages(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    filled(&mut wire);
    let scroll = "/v1/collections/docs/points/scroll";
    let mut found = Vec::new();
    let mut pages = 0;
    // The first request has no cursor; the others send it back as it came.
    let mut body = r#"{"limit": 100}"#.to_owned();
    loop {
        let page = wire.ok("POST", scroll, &body);
        found.extend(ids(&page["documents"]));
        pages += 1;
        let Some(cursor) = next(&page) else { break };
        body = format!(r#"{{"limit": 100, "cursor": "{cursor}"}}"#);
    }
    assert_eq!(found, (0..POINTS).map(|id| 3 * id).collect::<Vec<_>>());
    assert_eq!(pages, 11);
    // A page that ends with the last point is the last.
    let page = wire.ok("POST", scroll, &format!(r#"{{"limit": {POINTS}}}"#));
    assert_eq!(next(&page), None);
    let filter = r#"{"op": "eq", "field": "n", "value": {"kind": "int", "int": 2}}"#;
    let page = wire.ok("POST", scroll, &format!(r#"{{"limit": 60, "filter": {filter}}}"#));
    let cursor = next(&page).expect("100 match");
    let rest = format!(r#"{{"limit": 60, "filter": {filter}, "cursor": "{cursor}"}}"#);
    let rest = wire.ok("POST", scroll, &rest);
    assert_eq!((ids(&page["documents"]).len(), ids(&rest["documents"]).len(), next(&rest)), (60, 41, None));
}

fn points_by_id_bring_their_content_in_the_payload(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 2, "l2", "");
    let points = "/v1/collections/docs/points";
    wire.ok("POST", points, r#"{"id": 1, "vector": [0.1, 2], "content": "one", "ttl_ms": 0, "metadata": {"a": {"kind": "int", "int": 1}}, "upsert": true}"#);
    wire.ok(
        "POST",
        points,
        r#"{"id": 3, "vector": [3, 4], "content": "", "ttl_ms": 0, "metadata": null, "upsert": true}"#,
    );
    let get = format!("{points}/batch-get");
    wire.exact(
        "POST",
        &get,
        r#"{"ids": [3, 99, 1, 3], "with_vector": true, "with_payload": true}"#,
        200,
        concat!(
            r#"{"points":[{"id":3,"vector":[3.0,4.0],"payload":null,"ttl_ms":0,"version":1},"#,
            r#"{"id":1,"vector":[0.1,2.0],"payload":{"$content":{"kind":"string","str":"one"},"a":{"kind":"int","int":1}},"ttl_ms":0,"version":1},"#,
            r#"{"id":3,"vector":[3.0,4.0],"payload":null,"ttl_ms":0,"version":1}],"missing":[99]}"#,
        ),
    );
    wire.exact(
        "POST",
        &get,
        r#"{"ids": [1], "with_vector": false, "with_payload": true}"#,
        200,
        r#"{"points":[{"id":1,"vector":null,"payload":{"$content":{"kind":"string","str":"one"},"a":{"kind":"int","int":1}},"ttl_ms":0,"version":1}],"missing":[]}"#,
    );
    wire.exact(
        "POST",
        &get,
        r#"{"ids": [1], "with_vector": true, "with_payload": false}"#,
        200,
        r#"{"points":[{"id":1,"vector":[0.1,2.0],"payload":null,"ttl_ms":0,"version":1}],"missing":[]}"#,
    );
    let none = r#"{"ids": [], "with_vector": true, "with_payload": true}"#;
    wire.exact("POST", &get, none, 200, r#"{"points":[],"missing":[]}"#);
    wire.exact(
        "GET",
        &format!("{points}/1?with_vector=true&with_payload=true"),
        "",
        200,
        r#"{"found":true,"vector":[0.1,2.0],"payload":{"$content":{"kind":"string","str":"one"},"a":{"kind":"int","int":1}},"ttl_ms":0,"version":1}"#,
    );
}
