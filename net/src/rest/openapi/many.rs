//! Operations that every family has in the same form: changes of many payloads, calls on records, and information about named and
//! multi-vector collections.

use super::operation::{Operation, operation};
use super::requests::{ids, write_options};
use super::schema::{about, answer, array, body, joined, named, string, uint64};
use serde_json::{Value, json};

/// What tells the families apart.
struct Kind {
    /// The collection of the examples.
    collection: &'static str,
    tag: &'static str,
    /// Paths and ids of operations: merge, put, overwrite, delete keys, clear, operate.
    routes: [(&'static str, &'static str); 6],
    /// A filter that matches point 1 alone, and a key of its payload.
    filter: Value,
    key: &'static str,
}

fn kinds() -> [Kind; 3] {
    let is = |field: &str, value: &str| json!({"op": "eq", "field": field, "value": value});
    [
        Kind {
            collection: "films",
            tag: "payloads",
            routes: [
                ("/v1/collections/{name}/points/payload", "mergePayloads"),
                ("/v1/collections/{name}/points/payload", "putPayloads"),
                ("/v1/collections/{name}/points/payload/overwrite", "overwritePayloads"),
                ("/v1/collections/{name}/points/payload/delete", "deleteKeysOfPayloads"),
                ("/v1/collections/{name}/points/payload/clear", "clearPayloads"),
                ("/v1/collections/{name}/points/{id}/operate", "operate"),
            ],
            filter: is("title", "Alien"),
            key: "year",
        },
        Kind {
            collection: "scenes",
            tag: "named",
            routes: [
                ("/v1/named/{name}/points/payload", "mergeNamedPayloads"),
                ("/v1/named/{name}/points/payload", "putNamedPayloads"),
                ("/v1/named/{name}/points/payload/overwrite", "overwriteNamedPayloads"),
                ("/v1/named/{name}/points/payload/delete", "deleteKeysOfNamedPayloads"),
                ("/v1/named/{name}/points/payload/clear", "clearNamedPayloads"),
                ("/v1/named/{name}/points/{id}/operate", "operateNamed"),
            ],
            filter: is("film", "Alien"),
            key: "film",
        },
        Kind {
            collection: "papers",
            tag: "multivector",
            routes: [
                ("/v1/multivector/{name}/points/payload", "mergeDocumentPayloads"),
                ("/v1/multivector/{name}/points/payload", "putDocumentPayloads"),
                ("/v1/multivector/{name}/points/payload/overwrite", "overwriteDocumentPayloads"),
                ("/v1/multivector/{name}/points/payload/delete", "deleteKeysOfDocumentPayloads"),
                ("/v1/multivector/{name}/points/payload/clear", "clearDocumentPayloads"),
                ("/v1/multivector/{name}/points/{id}/operate", "operateDocument"),
            ],
            filter: is("title", "Late interaction"),
            key: "title",
        },
    ]
}

fn of(kind: Kind) -> Vec<Operation> {
    let Kind { collection, tag, routes, filter, key } = kind;
    let values = json!({"seen": true, "rating": 8.5});
    let set = || {
        [
            ("matching", json!({"filter": filter, "payload": values, "key_ttl_ms": {"rating": 60_000}})),
            ("named", json!({"ids": [1, 99], "payload": values})),
        ]
    };
    let many = |number: usize, method: &'static str, summary: &'static str| {
        let (path, id) = routes[number];
        operation(method, path, id, tag, summary)
            .about("Each point is changed once, and durably. Not atomic: what was changed before a failure stays changed.")
            .on(collection)
            .answer(
                200,
                "How many points were changed.",
                &answer(&[], json!({"changed": uint64()})),
                &[("matching", json!({"changed": 1})), ("named", json!({"changed": 1}))],
            )
            .errors(&[404, 413, 507])
    };
    let (path, id) = routes[5];
    let operate = operation("POST", path, id, tag, "Check and change a record")
        .about(
            "Under a key of the payload, all or nothing. The call and its result are those of `operate` of the binary protocol, as base64; \
             the key in the call is empty, and it sets no time to live.",
        )
        .on(collection)
        .body("Operate", &[("add", json!({"key": "stats", "call": CALL}))])
        .answer(
            200,
            "What the call came to, also where a check has failed.",
            &answer(
                &[],
                json!({
                    "result": about("Base64.", string()),
                    "version": about("That of the point afterwards.", uint64()),
                }),
            ),
            &[("add", json!({"result": RESULT, "version": 2}))],
        )
        .errors(&[404, 409, 413, 507]);
    vec![
        many(0, "POST", "Set payload keys of many points").body("SetPayloads", &set()),
        many(1, "PUT", "Replace payloads of many points").body("SetPayloads", &set()),
        many(2, "POST", "Replace payloads of many points, as `PUT` does").body("SetPayloads", &set()),
        many(3, "POST", "Delete payload keys of many points").body(
            "DeleteKeysOfPayloads",
            &[
                ("matching", json!({"filter": filter, "keys": [key]})),
                ("named", json!({"ids": [1, 99], "keys": [key]})),
            ],
        ),
        many(4, "POST", "Empty payloads of many points").body(
            "ClearPayloads",
            &[("matching", json!({"filter": filter})), ("named", json!({"ids": [1, 99]}))],
        ),
        operate,
    ]
}

/// Adds 1 to the field `n` of a dynamic record, and returns it.
const CALL: &str = "AAAAAAAAAAAAAAACAAAAAQMDAAEBAW4AAAAAAAAAAQAAAAAAAAAAAAAAAQABAQFu";
const RESULT: &str = "AAABAAAACQMBAAAAAAAAAA==";

fn figures() -> Value {
    json!({"bytes": 1_234_567, "graph_bytes": 600, "codes_bytes": 0, "slots_bytes": 400, "payload_bytes": 900,
        "ids_bytes": 100, "tail_bytes": 0, "payload_index_bytes": 300, "lanes_bytes": 200,
        "file_vectors_bytes": 0, "file_vectors_resident_bytes": 0, "file_index_bytes": 0})
}

fn infos() -> Vec<Operation> {
    let scenes = json!({
        "name": "scenes",
        "named_vectors": {"image": {"dim": 2, "metric": 1, "m": 16, "ef_construction": 200, "ef_search": 64},
            "words": {"dim": 0, "sparse": true}},
        "points": 2, "sparse_vectors": 1, "tombstoned": 0,
        "spaces": {"image": {"type": "hnsw", "cells": 0, "walks": "float"}},
        "index": {"state": "ready", "indexed": 2, "waiting": 0},
        "memory": figures(),
    });
    let papers = json!({
        "name": "papers",
        "config": {"dim": 2, "m": 16, "ef_construction": 200, "ef_search": 64, "index_type": "hnsw", "quant": "none"},
        "points": 2, "tokens": 3, "sparse_vectors": 1, "tombstoned": 0,
        "index": {"type": "hnsw", "cells": 0, "state": "ready", "walks": "float", "indexed": 2, "waiting": 0},
        "memory": figures(),
    });
    let tell = |path: &'static str, id: &'static str, tag: &'static str| {
        operation("GET", path, id, tag, "Figures of a collection").errors(&[404])
    };
    vec![
        tell("/v1/named/{name}", "getNamed", "named").on("scenes").answer(
            200,
            "Its configuration and figures.",
            &named("NamedInfo"),
            &[("scenes", scenes)],
        ),
        tell("/v1/multivector/{name}", "getMultiVector", "multivector").on("papers").answer(
            200,
            "Its configuration and figures.",
            &named("TokensInfo"),
            &[("papers", papers)],
        ),
    ]
}

/// The rows of the table.
pub fn operations() -> Vec<Operation> {
    kinds().into_iter().flat_map(of).chain(infos()).collect()
}

/// A body about points that a filter or a list of ids selects.
fn selecting(keys: &Value) -> Value {
    let by = |key: &str, other: &str, of: Value| {
        body(&[key], joined(&[json!({key: of, other: {"type": "null"}}), keys.clone(), write_options()]))
    };
    json!({"oneOf": [by("filter", "ids", named("Filter")), by("ids", "filter", ids("Points to change"))]})
}

/// The components of this file.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let set = json!({"payload": named("Payload"), "key_ttl_ms": named("KeyDeadlines")});
    let operate = joined(&[
        json!({
            "key": about("The payload key that holds the record.", super::schema::filled()),
            "call": about("Arguments of `operate`, as base64.", super::schema::filled()),
            "expected_version": about("Version the point must have, 0 = absent.", uint64()),
        }),
        write_options(),
    ]);
    vec![
        ("SetPayloads", selecting(&set)),
        ("DeleteKeysOfPayloads", selecting(&json!({"keys": array(string())}))),
        ("ClearPayloads", selecting(&json!({}))),
        ("Operate", body(&["key", "call"], operate)),
    ]
}
