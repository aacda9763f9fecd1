//! Operations that search.

use super::operation::{Operation, operation};
use super::schema::named;
use serde_json::{Value, json};

const QUERY: &str = "`RVQ1`, all numbers big-endian: magic `RVQ1`, flags u32 (1 a filter follows), k u32, dim u32 (at most \
    65,536), read_consistency u8, on_partition_unavailable u8, two bytes of 0, max_staleness u64; then dim f32; then with \
    flag 1 length u32 (at most 1 MiB) and that many bytes of filter JSON.";

/// The two nearest to (0.5, 2); every byte of these numbers is below 128.
const NEAREST: &str = "RVQ1\0\0\0\0\0\0\0\u{1}\0\0\0\u{2}\0\0\0\0\0\0\0\0\0\0\0\0?\0\0\0@\0\0\0";

fn hit(id: u64, distance: Value, score: Value) -> Value {
    json!({"id": id, "distance": distance, "score": score})
}

fn amelie(distance: Value, score: Value) -> Value {
    json!({"id": 3, "distance": distance, "score": score, "content": "A waitress changes the lives of others",
    "metadata": {
        "place": {"kind": "geo", "lat": 48.875, "lon": 2.25},
        "title": {"kind": "string", "str": "Amélie"},
        "year": {"kind": "int", "int": 2001}
    }})
}

fn whole(key: &str, found: Value) -> Value {
    json!({key: found, "degraded": false, "missing": []})
}

fn groups(found: Value, incomplete: bool) -> Value {
    json!({"groups": found, "degraded": false, "missing": [], "incomplete": incomplete})
}

fn search(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    operation("POST", path, id, "searches", summary).errors(&[404])
}

/// The rows of the table.
pub fn operations() -> Vec<Operation> {
    let explained = json!({"query": [0.5, 2], "k": 1, "explain": true,
        "filter": {"op": "match", "field": "title", "value": "alien"}});
    let mut explanation = whole("results", json!([hit(1, json!(4.25), json!(0))]));
    explanation["explain"] = json!({"microseconds": 61, "stages": {"waiting": 4, "combining": 0, "copying": 3}, "lanes": [{
        "lane": "dense", "pool": 1, "hits": 1, "microseconds": 53, "plan": "everything", "exact": true,
        "estimate": {"plan": "everything", "at_most": null, "expected": null,
            "points_ns": null, "walk_ns": 4875.0, "everything_ns": 450.0},
        "distances": 1, "rejects": 2
    }]});
    let examples = json!({"prefetch": [{"recommend": {"positive": [1]}}], "k": 1});
    let examples = (examples, whole("results", json!([hit(2, json!(0.5), json!(0))])));
    vec![
        search("/v1/collections/{name}/points/search", "search", "Nearest neighbours")
            .body("Search", &[("nearest", json!({"query": [0.5, 2], "k": 1})), ("explained", explained)])
            .binary(QUERY, NEAREST)
            .answer(
                200,
                "The nearest first.",
                &named("Hits"),
                &[
                    ("nearest", whole("results", json!([hit(3, json!(0.25), json!(0))]))),
                    ("explained", explanation),
                    ("binary", whole("results", json!([hit(3, json!(0.25), json!(0))]))),
                ],
            ),
        search("/v1/collections/{name}/points/search/docs", "searchDocuments", "Nearest neighbours with their payloads")
            .body(
                "Search",
                &[("nearest", json!({"query": [0.5, 2], "k": 1, "filter": {"op": "gt", "field": "year", "value": 2000}}))],
            )
            .binary(QUERY, NEAREST)
            .answer(
                200,
                "The nearest first.",
                &named("Documents"),
                &[
                    ("nearest", whole("documents", json!([amelie(json!(0.25), json!(0))]))),
                    ("binary", whole("documents", json!([amelie(json!(0.25), json!(0))]))),
                ],
            ),
        search("/v1/collections/{name}/points/search/groups", "searchGroups", "Nearest neighbours by value of a key")
            .body("GroupSearch", &[("years", json!({"query": [0.5, 2], "k": 1, "group_by": "year", "group_size": 1}))])
            .answer(
                200,
                "The group of the nearest first.",
                &named("Groups"),
                &[(
                    "years",
                    groups(json!([{"key": {"kind": "int", "int": 2001}, "hits": [amelie(json!(0.25), json!(0))]}]), false),
                )],
            ),
        search("/v1/collections/{name}/points/search/mmr", "searchMmr", "Diverse results (MMR)")
            .about(
                "By maximal marginal relevance: one by one the point with the greatest `lambda * -distance to the query - \
                 (1 - lambda) * greatest -distance to those chosen before`. In the order chosen, the nearest first.",
            )
            .body("MmrSearch", &[("unlike", json!({"query": [0.5, 2], "k": 1, "lambda": 0.25}))])
            .answer(
                200,
                "In the order chosen.",
                &named("Documents"),
                &[("unlike", whole("documents", json!([amelie(json!(0.25), json!(0))])))],
            ),
        search("/v1/collections/{name}/points/search/hybrid", "searchHybrid", "By vector and by sparse vector")
            .body(
                "HybridSearch",
                &[("both", json!({"dense": [0.5, 2], "sparse": {"indices": [8], "values": [2]},
                    "k": 1, "method": "weighted", "alpha": 0.25}))],
            )
            .answer(
                200,
                "The best first.",
                &named("Hits"),
                &[("both", whole("results", json!([hit(1, json!(4.25), json!(0.75))])))],
            ),
        search("/v1/collections/{name}/points/search/text", "searchText", "By the words of contents")
            .about("For collections with `full_text`.")
            .body("TextSearch", &[("words", json!({"text": "waitresses and their lives", "k": 1}))])
            .answer(
                200,
                "The best first.",
                &named("Documents"),
                &[("words", whole("documents", json!([amelie(json!(0.0), json!(1.9616584))])))],
            ),
        search("/v1/collections/{name}/points/search/hybrid-text", "searchHybridText", "By vector and by words")
            .about("For collections with `full_text`.")
            .body("HybridTextSearch", &[("both", json!({"vector": [0.5, 2], "text": "crew", "k": 1}))])
            .answer(
                200,
                "The best first.",
                &named("Hits"),
                &[("both", whole("results", json!([hit(1, json!(4.25), json!(0.032266457))])))],
            ),
        search("/v1/collections/{name}/query", "query", "By any lanes, fused or ranked anew")
            .body(
                "Query",
                &[
                    (
                        "rerank",
                        json!({"mode": "rerank", "root": {"dense": [0.5, 2]}, "k": 1,
                            "prefetch": [{"sparse": {"indices": [3], "values": [1]}}, {"dense": [1, 0], "lane_k": 2}]}),
                    ),
                    ("examples", examples.0),
                    (
                        "groups",
                        json!({"prefetch": [{"discover": {"target": 3, "context": [{"positive": 3, "negative": 1}]}}],
                            "k": 1, "group_by": "title"}),
                    ),
                ],
            )
            .answer(
                200,
                "Hits, or groups with `group_by`.",
                &json!({"oneOf": [named("Hits"), named("Groups")]}),
                &[
                    ("rerank", whole("results", json!([hit(2, json!(2.25), json!(0))]))),
                    ("examples", examples.1),
                    (
                        "groups",
                        groups(
                            json!([{"key": {"kind": "string", "str": "Amélie"}, "hits": [amelie(json!(0.0), json!(1))]}]),
                            false,
                        ),
                    ),
                ],
            ),
    ]
}
