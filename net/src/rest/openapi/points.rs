//! Operations that write and read points.

use super::operation::{Operation, operation};
use super::schema::{answer, boolean, named, point_id, uint64};
use serde_json::{Value, json};

const INGEST: &str = "`RVB1`, all numbers big-endian: magic `RVB1`, flags u32 (1 payloads follow, 2 upsert), count u32 (at most \
    262,144), dim u32; then for each point its id u64 and its vector, dim f32; then, with flag 1, for each point in the same order \
    the length of its payload u32 (at most 1 MiB) and that many bytes of JSON.";

/// Point 7 at (2, 0.5); every byte of these numbers is below 128.
fn ingest(flags: char) -> String {
    format!("RVB1\0\0\0{flags}\0\0\0\u{1}\0\0\0\u{2}\0\0\0\0\0\0\0\u{7}@\0\0\0?\0\0\0")
}

pub fn count(key: &str) -> Value {
    answer(&[], json!({key: uint64()}))
}

/// The points that other examples are about.
fn films() -> Value {
    json!({"upsert": true, "points": [
        {"id": 1, "vector": [1, 0], "content": "A crew answers a call in the dark",
            "metadata": {"title": "Alien", "year": 1979, "genres": ["horror", "science fiction"]},
            "sparse": {"indices": [3, 8], "values": [1, 0.5]}},
        {"id": 2, "vector": [0.5, 0.5], "content": "A crew meets something in the ice", "ttl_ms": 0,
            "metadata": {"title": {"kind": "string", "str": "The Thing"}, "year": {"kind": "int", "int": 1982}},
            "sparse": {"indices": [3], "values": [2]}},
        {"id": 3, "vector": [0, 2], "content": "A waitress changes the lives of others",
            "metadata": {"title": "Amélie", "year": 2001, "place": {"kind": "geo", "lat": 48.875, "lon": 2.25}}}
    ]})
}

fn alien() -> Value {
    json!({
        "$content": {"kind": "string", "str": "A crew answers a call in the dark"},
        "genres": {"kind": "strings", "strs": ["horror", "science fiction"]},
        "title": {"kind": "string", "str": "Alien"},
        "year": {"kind": "int", "int": 1979}
    })
}

/// The summary of a bulk build.
pub const BUILD: &str = "Build what is staged";

/// What a build does.
const BUILDS: &str = "Answers when what was staged can be searched and is durable or, if `wait` is false, as soon as the build has begun; \
    `GET /v1/tasks` reports its progress. The collection must be empty. A body that is not a JSON object is ignored.";

/// What staging does.
pub const STAGES: &str = "Stages points for the next build. Until then they are held in memory only and are not searched. If the collection \
    already has points, the request is refused (409), as a build would be.";

impl Operation {
    /// Adds what all bulk builds have in common.
    pub fn builds(self) -> Operation {
        self.about(BUILDS)
            .body("Build", &[("all", json!({"workers": 0}))])
            .optional_body()
            .answer(
                200,
                "Built.",
                &answer(&[], json!({"status": {"const": "built"}})),
                &[("all", json!({"status": "built"}))],
            )
            .answer(
                202,
                "The build has begun (`wait` is false).",
                &answer(&[], json!({"status": {"const": "building"}, "task": uint64()})),
                &[("begun", json!({"status": "building", "task": 3}))],
            )
            .errors(&[404, 409, 429, 507])
    }
}

fn writes() -> Vec<Operation> {
    let one = json!({"id": 4, "vector": [2, 1], "content": "Dreams within dreams",
        "metadata": {"title": "Inception", "year": 2010}, "key_ttl_ms": {"year": 86_400_000}});
    let upsert = json!({"id": 1, "vector": [1, 0.25], "upsert": true, "expected_version": 1});
    let condition = json!({"upsert": true, "points": [
        {"id": 1, "vector": [1, 0.5], "expected_version": 1}, {"id": 2, "vector": [0, 0], "expected_version": 9}
    ]});
    let staged = json!({"points": [
        {"id": 1, "vector": [1, 0], "metadata": {"title": "Alien"}}, {"id": 2, "vector": [0, 1]}
    ]});
    vec![
        operation("POST", "/v1/collections/{name}/points", "writePoint", "points", "Insert or replace a point")
            .body("Point", &[("insert", one), ("replace", upsert)])
            .answer(
                200,
                "Durable.",
                &answer(&["version"], json!({"id": point_id(), "version": uint64()})),
                &[("insert", json!({"id": 4})), ("replace", json!({"id": 1}))],
            )
            .errors(&[404, 409, 429, 507]),
        operation("POST", "/v1/collections/{name}/points/batch", "writePoints", "points", "Write points in order")
            .about("Not atomic: what comes before a point that fails stays written. `wait` cannot be off, nor the factor above 0.")
            .body("Batch", &[("films", films()), ("conditions", condition)])
            .binary(INGEST, &ingest('\u{2}'))
            .answer(
                200,
                "How many; or what became of each, when any had an `expected_version`.",
                &named("BatchWritten"),
                &[
                    ("films", json!({"count": 3})),
                    (
                        "conditions",
                        json!({"results": [{"id": 1, "version": 2, "status": "ok"}, {"id": 2, "status": "conflict"}]}),
                    ),
                    ("binary", json!({"count": 1})),
                ],
            )
            .batch_errors(&[400, 404, 409, 413, 429, 503, 507]),
        operation("POST", "/v1/collections/{name}/points/bulk", "stagePoints", "points", "Stage points")
            .about(STAGES)
            .on("inbox")
            .body("Staging", &[("two", staged)])
            .binary(INGEST, &ingest('\0'))
            .answer(
                200,
                "Points staged by this request.",
                &count("staged"),
                &[("two", json!({"staged": 2})), ("binary", json!({"staged": 1}))],
            )
            .errors(&[404, 409, 429, 507]),
        operation("POST", "/v1/collections/{name}/points/bulk/build", "buildStaged", "points", BUILD)
            .on("inbox")
            .builds(),
        operation("DELETE", "/v1/collections/{name}/points/{id}", "deletePoint", "points", "Delete a point")
            .answer(
                200,
                "Whether it was there.",
                &answer(&[], json!({"deleted": boolean()})),
                &[("one", json!({"deleted": true}))],
            )
            .errors(&[404, 409, 507]),
        operation("POST", "/v1/collections/{name}/points/delete", "deletePoints", "points", "Delete what matches")
            .about("A filter that matches everything is refused. In its place `ids` name the points.")
            .body("DeleteByFilter", &[
                ("old", json!({"filter": {"op": "lt", "field": "year", "value": 1980}})),
                ("named", json!({"ids": [1, 7]})),
            ])
            .answer(200, "How many.", &count("deleted"), &[("old", json!({"deleted": 1}))])
            .errors(&[404, 507]),
    ]
}

fn payloads() -> Vec<Operation> {
    let change =
        json!({"rating": 8.5, "title": {"kind": "string", "str": "Alien"}, "key_ttl_ms": {"rating": 60_000}});
    let change = |method: &'static str, path: &'static str, id: &'static str, summary: &'static str| {
        operation(method, path, id, "payloads", summary).body("PayloadChange", &[("rating", change.clone())])
    };
    let plain = |path: &'static str, id: &'static str, summary: &'static str| {
        operation("POST", path, id, "payloads", summary)
    };
    let rows = [
        change("POST", "/v1/collections/{name}/points/{id}/payload", "mergePayload", "Set payload keys"),
        change("PUT", "/v1/collections/{name}/points/{id}/payload", "putPayload", "Replace a payload")
            .about("Content included, unless it is sent as `$content`."),
        change(
            "POST",
            "/v1/collections/{name}/points/{id}/payload/overwrite",
            "overwritePayload",
            "Replace a payload, as `PUT` does",
        ),
        plain(
            "/v1/collections/{name}/points/{id}/payload/delete",
            "deletePayloadKeys",
            "Delete payload keys",
        )
        .body("PayloadKeys", &[("rating", json!({"keys": ["year", "$content"]}))]),
        plain("/v1/collections/{name}/points/{id}/payload/clear", "clearPayload", "Empty a payload")
            .about("Content included. Of a body that is an object `expected_version` and the other options count; any other is ignored."),
    ];
    rows.into_iter()
        .map(|row| {
            row.answer(
                200,
                "Durable; the version is one more.",
                &answer(&["version"], json!({"applied": {"const": true}, "version": uint64()})),
                &[("rating", json!({"applied": true}))],
            )
            .errors(&[404, 409, 413, 507])
        })
        .collect()
}

fn reads() -> Vec<Operation> {
    let point = |id: Option<u64>| {
        let mut point = match id {
            Some(id) => json!({"id": id}),
            None => json!({"found": true}),
        };
        point["vector"] = json!([1.0, 0.0]);
        point["payload"] = alien();
        point["ttl_ms"] = json!(0);
        point["version"] = json!(1);
        point["sparse"] = json!({"indices": [3, 8], "values": [1.0, 0.5]});
        point
    };
    let document = |id: u64, content: &str, metadata: Value| {
        json!({"id": id, "distance": 0.0, "score": 0,
        "content": content, "metadata": metadata})
    };
    let amelie = document(
        3,
        "A waitress changes the lives of others",
        json!({
            "place": {"kind": "geo", "lat": 48.875, "lon": 2.25},
            "title": {"kind": "string", "str": "Amélie"},
            "year": {"kind": "int", "int": 2001}
        }),
    );
    let year = |from: u64| json!({"op": "gte", "field": "year", "value": from});
    let page = |document: Value, cursor: &str| {
        json!({"documents": [document],
        "degraded": false, "missing": [], "next_cursor": cursor})
    };
    vec![
        operation("GET", "/v1/collections/{name}/points/{id}", "getPoint", "points", "Read a point")
            .answer(200, "The point.", &named("FoundPoint"), &[("one", point(None))])
            .errors(&[404]),
        operation(
            "POST",
            "/v1/collections/{name}/points/batch-get",
            "getPoints",
            "points",
            "Read points by id",
        )
        .body("BatchGet", &[("two", json!({"ids": [1, 404], "with_vector": true}))])
        .answer(
            200,
            "In the order of the request.",
            &named("StoredPoints"),
            &[("two", json!({"points": [point(Some(1))], "missing": [404]}))],
        )
        .errors(&[404]),
        operation(
            "POST",
            "/v1/collections/{name}/points/scroll",
            "scrollPoints",
            "points",
            "Read all that match",
        )
        .body(
            "Scroll",
            &[
                ("by_id", json!({"filter": year(2000), "limit": 10})),
                ("by_value", json!({"limit": 1, "order_by": {"key": "year", "desc": true}})),
            ],
        )
        .answer(
            200,
            "A page.",
            &named("ScrollPage"),
            &[
                ("by_id", page(amelie.clone(), "")),
                ("by_value", page(amelie.clone(), "AgHjY0CfRAAAAAAAAAAAAAAAAAM")),
            ],
        )
        .errors(&[404]),
        operation(
            "POST",
            "/v1/collections/{name}/points/count",
            "countPoints",
            "points",
            "Count what matches",
        )
        .body("Count", &[("new", json!({"filter": year(1982)}))])
        .answer(200, "How many.", &count("count"), &[("new", json!({"count": 2}))])
        .errors(&[404]),
        operation(
            "POST",
            "/v1/collections/{name}/points/facet",
            "facetPoints",
            "points",
            "Count values of a key",
        )
        .body("Facet", &[("genres", json!({"key": "genres", "limit": 2}))])
        .answer(
            200,
            "The most frequent first.",
            &named("Facets"),
            &[(
                "genres",
                json!({"facets": [
                    {"value": {"kind": "string", "str": "horror"}, "count": 1},
                    {"value": {"kind": "string", "str": "science fiction"}, "count": 1}
                ]}),
            )],
        )
        .errors(&[404]),
        operation(
            "POST",
            "/v1/collections/{name}/points/sample",
            "samplePoints",
            "points",
            "Draw points at random",
        )
        .body("Sample", &[("new", json!({"limit": 1, "seed": 7, "filter": year(2000)}))])
        .answer(200, "Their documents.", &named("ScrollPage"), &[("new", page(amelie, ""))])
        .errors(&[404]),
    ]
}

/// The rows of the table.
pub fn operations() -> Vec<Operation> {
    writes().into_iter().chain(reads()).chain(payloads()).collect()
}
