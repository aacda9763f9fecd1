//! Plain searches: the binary form clients start with, the JSON they fall back to, documents, groups and text.

use super::wire::{Wire, counted, hex, ids, server};
use nigh_tests::{Access, in_every_mode};
use serde_json::json;

in_every_mode!(
    searches_are_binary_by_default,
    no_binary_query_is_answered_in_the_words_that_end_binary_queries,
    what_does_not_fit_the_binary_form_comes_as_json,
    filters_as_the_builders_write_them,
    groups_are_asked_for_with_all_five_keys,
    text_searches_name_global_idf_only_when_true,
);

/// Four points on a line, three with a city.
fn filled(wire: &mut Wire) {
    wire.create("docs", 2, "l2", r#", "full_text": {"analyzer": "english"}"#);
    for body in [
        r#"{"id": 1, "vector": [0, 0], "content": "A river runs", "ttl_ms": 0, "metadata": {"city": {"kind": "string", "str": "Oslo"}, "n": {"kind": "int", "int": 1}}, "upsert": true}"#,
        r#"{"id": 2, "vector": [1, 0], "content": "Rivers and tides", "ttl_ms": 0, "metadata": {"city": {"kind": "string", "str": "Rome"}}, "upsert": true}"#,
        r#"{"id": 3, "vector": [2, 0], "content": "The sky", "ttl_ms": 0, "metadata": {"city": {"kind": "string", "str": "Oslo"}}, "upsert": true}"#,
        r#"{"id": 4, "vector": [3, 0], "content": "", "ttl_ms": 0, "metadata": null, "upsert": true}"#,
    ] {
        wire.ok("POST", "/v1/collections/docs/points", body);
    }
}

const SEARCH: &str = "/v1/collections/docs/points/search";
const OSLO: &str = r#"{"op": "eq", "field": "city", "value": {"kind": "string", "str": "Oslo"}}"#;

fn searches_are_binary_by_default(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    filled(&mut wire);
    // Magic, flags, k 2, dimension 2, consistency, partition option, reserved, staleness, then the vector.
    let query = hex("52565131 00000000 00000002 00000002 00 00 0000 0000000000000000 3f800000 00000000");
    let answer = wire.binary(SEARCH, &query);
    let expected = r#"{"results":[{"id":2,"distance":0.0,"score":0},{"id":1,"distance":1.0,"score":0}],"degraded":false,"missing":[]}"#;
    assert_eq!((answer.status, answer.text()), (200, format!("{expected}\n").as_str()));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    wire.exact("POST", SEARCH, r#"{"query": [1, 0], "k": 2}"#, 200, expected);
    let mut filtered =
        hex("52565131 00000001 00000005 00000002 02 01 0000 0000000000000000 00000000 00000000");
    filtered.extend(counted(OSLO));
    assert_eq!(ids(&wire.binary(SEARCH, &filtered).ok()["results"]), [1, 3]);
    let answer = wire.binary(&format!("{SEARCH}/docs"), &filtered);
    let expected = concat!(
        r#"{"documents":[{"id":1,"distance":0.0,"score":0,"content":"A river runs","metadata":{"city":{"kind":"string","str":"Oslo"},"n":{"kind":"int","int":1}}},"#,
        r#"{"id":3,"distance":4.0,"score":0,"content":"The sky","metadata":{"city":{"kind":"string","str":"Oslo"}}}],"degraded":false,"missing":[]}"#,
    );
    assert_eq!((answer.status, answer.text()), (200, format!("{expected}\n").as_str()));
    let json = format!(r#"{{"query": [0, 0], "k": 5, "filter": {OSLO}}}"#);
    wire.exact("POST", &format!("{SEARCH}/docs"), &json, 200, expected);
    // A document without content and metadata has an empty string and no object.
    let last = hex("52565131 00000000 00000001 00000002 00 00 0000 0000000000000000 40400000 00000000");
    let answer = wire.binary(&format!("{SEARCH}/docs"), &last).ok();
    assert_eq!(answer["documents"], json!([{"id": 4, "distance": 0.0, "score": 0, "content": ""}]));
}

/// What makes a client send JSON for the rest of its life.
fn falls_back(answer: &super::wire::Answer) -> bool {
    matches!(answer.read(), Err(error) if answer.status == 400 && error.contains("invalid JSON body"))
}

fn no_binary_query_is_answered_in_the_words_that_end_binary_queries(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    filled(&mut wire);
    let mut whole = hex("52565131 00000001 00000005 00000002 00 00 0000 0000000000000000 00000000 00000000");
    whole.extend(counted(OSLO));
    let changed = |at: usize, bytes: &[u8]| {
        let mut body = whole.clone();
        body[at..at + bytes.len()].copy_from_slice(bytes);
        body
    };
    let filter = |text: &str| [&whole[..36], &counted(text)[..]].concat();
    let mut bad: Vec<Vec<u8>> = (0..whole.len()).map(|end| whole[..end].to_vec()).collect();
    bad.extend([
        changed(0, b"RVQ2"),
        changed(0, b"{\"qu"),
        changed(4, &[0, 0, 0, 3]),
        changed(8, &[0, 0, 0, 0]),
        changed(8, &[0, 1, 0, 1]),
        changed(8, &[255; 4]),
        changed(12, &[0, 0, 0, 0]),
        changed(12, &[0, 0, 0, 1]),
        changed(12, &[0, 1, 0, 1]),
        changed(16, &[4]),
        changed(17, &[2]),
        changed(18, &[0, 1]),
        changed(28, &[0x7f, 0xc0, 0, 0]),
        changed(28, &[0xff, 0x80, 0, 0]),
        [&whole[..], b"\n"].concat(),
        filter(""),
        filter("{"),
        filter("null null"),
        filter("[]"),
        filter(r#"{"op": "like"}"#),
        filter(r#"{"op": "eq", "wat": 1}"#),
        filter(r#"{"op": "eq"}"#),
        filter(r#"{"op": "regex", "field": "city", "value": {"kind": "string", "str": "("}}"#),
        filter(r#"{"op": "eq", "field": "city", "value": {"kind": "invalid JSON body"}}"#),
        filter(r#"{"op": "invalid JSON body: no"}"#),
        filter(
            r#"{"op": "regex", "field": "city", "value": {"kind": "string", "str": "(invalid JSON body"}}"#,
        ),
        filter(r#"{"op": "in", "field": "invalid JSON body", "value": {"kind": "int"}}"#),
        filter(r#"{"invalid JSON body": 1}"#),
        filter(r#"{"op": "eq", "field": "city", "value": {"invalid JSON body": 1}}"#),
    ]);
    for route in ["", "/docs"] {
        for body in &bad {
            let answer = wire.binary(&format!("{SEARCH}{route}"), body);
            let (status, error) = answer.refused();
            assert_eq!(status, 400, "{body:?}: {error}");
            assert!(!falls_back(&answer), "{:?}: {error}", String::from_utf8_lossy(body));
        }
    }
    // Larger than a query may be.
    let answer = wire.binary(SEARCH, &vec![0; (8 << 20) + 1]);
    assert_eq!(answer.refused().0, 413);
    let mut wire = Wire::connect(access, &server);
    // While a JSON route says exactly that about what is not JSON, which is how a client learns of an older server.
    let answer = wire.request("POST", SEARCH, "application/json", &whole);
    assert!(falls_back(&answer), "{answer:?}");
    assert!(answer.refused().1.starts_with("invalid JSON body:"));
    // The connection and the binary form are as good as before.
    assert_eq!(ids(&wire.binary(SEARCH, &whole).ok()["results"]), [1, 3]);
}

fn what_does_not_fit_the_binary_form_comes_as_json(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    filled(&mut wire);
    // k beyond the 31 bits of the binary form; refused for its size, not for its form.
    let (status, error) = wire.json("POST", SEARCH, r#"{"query": [1, 0], "k": 2147483648}"#).refused();
    assert_eq!(status, 400);
    assert!(error.contains("k must be between 1 and 65536"), "{error}");
    let long = "x".repeat(1 << 20);
    let filter = format!(
        r#"{{"op": "or", "or": [{OSLO}, {{"op": "eq", "field": "city", "value": {{"kind": "string", "str": "{long}"}}}}]}}"#
    );
    let body = format!(r#"{{"query": [1, 0], "k": 9, "filter": {filter}}}"#);
    assert_eq!(ids(&wire.ok("POST", SEARCH, &body)["results"]), [1, 3]);
}

fn filters_as_the_builders_write_them(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 1, "l2", "");
    for id in 0..8 {
        let body = format!(
            r#"{{"id": {id}, "vector": [{id}], "content": "", "ttl_ms": 0, "metadata": {{"n": {{"kind": "int", "int": {id}}}, "f": {{"kind": "float", "flt": {id}.5}}, "s": {{"kind": "string", "str": "s{id}"}}, "even": {{"kind": "bool", "bool": {}}}, "tags": {{"kind": "strings", "strs": ["t{}", "all"]}}}}, "upsert": true}}"#,
            id % 2 == 0,
            id % 3
        );
        wire.ok("POST", "/v1/collections/docs/points", &body);
    }
    for (filter, expected) in [
        (r#"{"op": "eq", "field": "n", "value": {"kind": "int", "int": 3}}"#, &[3][..]),
        // The zero of a kind may be left out by a writer as well.
        (r#"{"op": "eq", "field": "n", "value": {"kind": "int"}}"#, &[0]),
        (r#"{"op": "ne", "field": "even", "value": {"kind": "bool", "bool": true}}"#, &[1, 3, 5, 7]),
        (r#"{"op": "eq", "field": "even", "value": {"kind": "bool", "bool": false}}"#, &[1, 3, 5, 7]),
        (r#"{"op": "gt", "field": "f", "value": {"kind": "float", "flt": 5.5}}"#, &[6, 7]),
        (r#"{"op": "gte", "field": "n", "value": {"kind": "int", "int": 6}}"#, &[6, 7]),
        (r#"{"op": "lt", "field": "n", "value": {"kind": "float", "flt": 1.5}}"#, &[0, 1]),
        (r#"{"op": "lte", "field": "s", "value": {"kind": "string", "str": "s1"}}"#, &[0, 1]),
        (r#"{"op": "in", "field": "s", "value": {"kind": "strings", "strs": ["s2", "s5", "x"]}}"#, &[2, 5]),
        (r#"{"op": "in", "field": "n", "value": {"kind": "ints", "ints": [7, 1]}}"#, &[1, 7]),
        (r#"{"op": "contains", "field": "tags", "value": {"kind": "string", "str": "t2"}}"#, &[2, 5]),
        (
            r#"{"op": "and", "and": [{"op": "gt", "field": "n", "value": {"kind": "int", "int": 2}}, {"op": "not", "not": {"op": "eq", "field": "even", "value": {"kind": "bool", "bool": true}}}]}"#,
            &[3, 5, 7],
        ),
        (
            r#"{"op": "or", "or": [{"op": "eq", "field": "n", "value": {"kind": "int", "int": 4}}, {"op": "eq", "field": "s", "value": {"kind": "string", "str": "s6"}}]}"#,
            &[4, 6],
        ),
    ] {
        let body = format!(r#"{{"query": [0], "k": 10, "filter": {filter}}}"#);
        assert_eq!(ids(&wire.ok("POST", SEARCH, &body)["results"]), expected, "{filter}");
        let mut body = hex("52565131 00000001 0000000a 00000001 00 00 0000 0000000000000000 00000000");
        body.extend(counted(filter));
        assert_eq!(ids(&wire.binary(SEARCH, &body).ok()["results"]), expected, "{filter}");
    }
}

fn groups_are_asked_for_with_all_five_keys(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    filled(&mut wire);
    wire.exact(
        "POST",
        &format!("{SEARCH}/groups"),
        r#"{"query": [2, 0], "k": 5, "group_by": "city", "group_size": 0, "fetch_k": 0}"#,
        200,
        concat!(
            r#"{"groups":[{"key":{"kind":"string","str":"Oslo"},"hits":[{"id":3,"distance":0.0,"score":0,"content":"The sky","metadata":{"city":{"kind":"string","str":"Oslo"}}}]},"#,
            r#"{"key":{"kind":"string","str":"Rome"},"hits":[{"id":2,"distance":1.0,"score":0,"content":"Rivers and tides","metadata":{"city":{"kind":"string","str":"Rome"}}}]}],"degraded":false,"missing":[],"incomplete":false}"#,
        ),
    );
    let body = format!(
        r#"{{"query": [2, 0], "k": 1, "group_by": "city", "group_size": 2, "fetch_k": 100, "filter": {OSLO}}}"#
    );
    let answer = wire.ok("POST", &format!("{SEARCH}/groups"), &body);
    assert_eq!(answer["groups"][0]["key"], json!({"kind": "string", "str": "Oslo"}));
    assert_eq!(ids(&answer["groups"][0]["hits"]), [3, 1]);
}

fn text_searches_name_global_idf_only_when_true(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    filled(&mut wire);
    let path = format!("{SEARCH}/text");
    let answer = wire.ok("POST", &path, r#"{"text": "the RIVER", "k": 5}"#);
    assert_eq!(ids(&answer["documents"]), [1, 2]);
    assert_eq!(answer["documents"][0]["content"], "A river runs");
    assert_eq!(answer["documents"][0]["distance"], json!(0.0));
    assert!(answer["documents"][0]["score"].as_f64().expect("a number") > 0.0);
    let global = wire.ok("POST", &path, r#"{"text": "the RIVER", "k": 5, "global_idf": true}"#);
    assert_eq!(global, answer);
    let nothing = r#"{"documents":[],"degraded":false,"missing":[]}"#;
    wire.exact("POST", &path, r#"{"text": "the", "k": 5}"#, 200, nothing);
    wire.create("mute", 2, "l2", "");
    let mute = "/v1/collections/mute/points/search/text";
    assert!(wire.json("POST", mute, r#"{"text": "a", "k": 1}"#).refused().1.contains("full-text disabled"));
}
