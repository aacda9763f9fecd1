//! Schemas of request bodies. `coverage` holds their keys against those of the decoders.

use super::schema::{
    about, array, body, boolean, double, filled, float, int64, integer, joined, named, natural, one_of, or,
    point_id, string, uint64, with,
};
use crate::auth::key_limits;
use crate::limits;
use crate::op::{Diversity, PARTITIONS};
use crate::wire::search_options::SHOWN_KEYS_MAX;
use serde_json::{Map, Value, json};

/// Read options of a body.
pub fn read_options() -> Value {
    json!({
        "read_consistency": about(
            "0 any replica, 1 leader, 2 linearizable, 3 bounded staleness. One node always answers freshly.",
            or(0, integer(0, 3)),
        ),
        "on_partition_unavailable": about("0 partial answers, 1 fail.", or(0, integer(0, 1))),
        "max_staleness": about("Bound of level 3, milliseconds.", or(0, uint64())),
    })
}

pub fn write_options() -> Value {
    json!({
        "write_consistency_factor": about(
            "Replica acknowledgements wanted, at most as many as there are replicas.",
            or(0, natural()),
        ),
        "wait": about("An answer always means durable, whatever this says.", or(true, boolean())),
    })
}

/// The options of every search.
pub fn options() -> Value {
    json!({
        "explain": about("Say how the search was carried out.", or(false, boolean())),
        "ef_search": about(
            "Beam width of this search; absent means that of the collection or of the space.",
            integer(1, limits::K_MAX),
        ),
        "exact": about("Compare the query with every vector that matches the filter.", or(false, boolean())),
        "offset": about(
            "The number of best results, or groups, to skip; with `k` at most 65,536, or 1,000 in a search by maximal marginal relevance.",
            or(0, integer(0, limits::K_MAX)),
        ),
        "score_threshold": about(
            "Least score of a result. Results that are ranked by distance are compared by the score that `with_score` gives them.",
            double(),
        ),
        "distance_threshold": about("Greatest distance of a result; for searches that rank by distance.", double()),
        "with_score": about(
            "Give results that are ranked by distance a score that is larger for closer hits: the cosine, the dot product, or 1 / (1 + distance) \
             of the squared Euclidean distance.",
            or(false, boolean()),
        ),
        "with_payload": {"description": "Return the payload: all of it, none, or the values of these keys. Documents have it by default.",
            "oneOf": [boolean(), with(array(string()), json!({"maxItems": SHOWN_KEYS_MAX}))]},
        "with_vector": about("Return the vectors.", or(false, boolean())),
    })
}

pub fn fusion() -> Value {
    json!({
        "method": or("rrf", about("Empty means `rrf`.", one_of(&["", "rrf", "weighted", "dbsf"]))),
        "alpha": about(
            "Weight of the first lane, 0 to 1. A 0 beside `rrf_k` counts as absent, as clients send that do not set it; -0.0 is always 0.",
            or(0.5, double()),
        ),
        "rrf_k": about("Below 1 means 60.", or(60, int64())),
    })
}

fn k() -> Value {
    about("Results wanted.", integer(1, limits::K_MAX))
}

pub fn pool(what: &str) -> Value {
    about(
        &format!("Hits of the {what} lane; 0 = as many as `k`, at least 50."),
        or(0, integer(0, limits::LANE_POOL_MAX)),
    )
}

/// Ids in place of a filter, of what is done to them.
pub fn ids(points: &str) -> Value {
    about(
        &format!("{points} in place of a filter; those that are absent are not counted."),
        with(array(point_id()), json!({"maxItems": limits::DELETE_IDS_MAX})),
    )
}

/// A deletion of one point by its id, or of many by their ids or a filter.
pub fn one_or_many() -> Value {
    let by = |key: &str, of: Value| {
        let others = ["id", "ids", "filter"].into_iter().filter(|other| *other != key);
        let others: Map<String, Value> =
            others.map(|other| (other.to_owned(), json!({"type": "null"}))).collect();
        body(&[key], joined(&[json!({key: of}), Value::Object(others), write_options()]))
    };
    json!({"oneOf": [by("id", point_id()), by("ids", ids("Points to delete")), by("filter", named("Filter"))]})
}

pub fn filter() -> Value {
    json!({"filter": named("Filter")})
}

fn vector() -> Value {
    with(array(float()), json!({"minItems": 1, "maxItems": limits::DIM_MAX}))
}

/// Results of a search that may be asked for none.
pub fn k_or_none() -> Value {
    about("Results wanted; below 1 means none.", or(0, integer(i64::MIN, limits::K_MAX)))
}

/// A point; `keys` of it.
fn point(keys: &[&str]) -> Value {
    let mut all = joined(&[
        json!({
            "id": about("Absent means 0; a string must be sent in collections with `ids` `string`.", or(0, point_id())),
            "vector": about("As long as the collection's `dim`.", vector()),
            "content": content(),
            "metadata": named("Payload"),
            "sparse": named("Sparse"),
            "ttl_ms": about("Milliseconds until the point expires; below 1 means never.", int64()),
            "key_ttl_ms": named("KeyDeadlines"),
            "upsert": about("Replace a point of this id.", or(false, boolean())),
            "expected_version": about("Version the point must have, 0 = absent.", uint64()),
        }),
        write_options(),
    ]);
    if let Some(all) = all.as_object_mut() {
        all.retain(|key, _| keys.is_empty() || keys.contains(&key.as_str()));
    }
    all
}

fn batch_point() -> Value {
    let mut keys = point(&[]);
    keys["upsert"] = about(
        "Used only if there is no `upsert` beside `points`: if all points have `true`, the batch is an upsert.",
        boolean(),
    );
    keys["write_consistency_factor"] = json!({"type": "integer", "enum": [0]});
    keys["wait"] = json!({"const": true});
    body(&["vector"], keys)
}

fn staged_point() -> Value {
    let mut keys = point(&[]);
    keys["content"] = json!({"type": "string", "maxLength": 0});
    keys["sparse"] = json!({"type": "null"});
    keys["ttl_ms"] = json!({"type": "integer", "enum": [0]});
    keys["key_ttl_ms"] = json!({"type": "object", "maxProperties": 0});
    keys["expected_version"] = json!({"type": "null"});
    keys["upsert"] = about("Ignored.", boolean());
    keys["write_consistency_factor"] = about("Ignored.", int64());
    keys["wait"] = about("Ignored.", boolean());
    body(&["vector"], keys)
}

/// Points of a body, each of this schema.
pub fn points(schema: &str) -> Value {
    with(array(named(schema)), json!({"maxItems": limits::JSON_INGEST_MAX_POINTS}))
}

fn limit(what: &str) -> Value {
    about(&format!("Most {what}."), or(10, integer(1, 10_000)))
}

fn order_key(extra: Value) -> Value {
    body(
        &["key"],
        joined(&[
            json!({
                "key": about("Payload key; points without it are left out.", filled()),
                "desc": or(false, boolean()),
                "is_datetime": about("Values are Unix milliseconds, or RFC 3339 times as text.", or(false, boolean())),
                "is_string": about("Order strings by their bytes, instead of numbers.", or(false, boolean())),
            }),
            extra,
        ]),
    )
}

/// The keys of a text that is looked for.
pub(super) fn text() -> Value {
    json!({"text": about("For collections with `full_text`.", string()), "match": named("TextMatch")})
}

/// The keys of a text in a hybrid search of a collection of named spaces or of a multi-vector collection.
pub(super) fn hybrid_text() -> Value {
    let what = "For collections with `full_text`. The text takes the place of the sparse vector, which must be left out.";
    json!({"text": about(what, string()), "match": named("TextMatch")})
}

/// The keys of a search for diverse results (MMR).
pub(super) fn diversity() -> Value {
    json!({
        "k": about("Results wanted.", integer(1, limits::DIVERSE_K_MAX)),
        "lambda": about(
            "1 is by distance alone; the nearer to 0, the more the results differ from each other.",
            or(Diversity::LAMBDA_DEFAULT, json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1})),
        ),
        "fetch_k": about(
            "Number of nearest neighbours that the results are chosen from. Without an offset, a value below `k` means four times `k`, but at least 50. With an offset it must be at least `offset` and `k` together.",
            or(0, integer(i64::MIN, limits::DIVERSE_POOL_MAX)),
        ),
    })
}

/// The text of a point that is written.
pub(super) fn content() -> Value {
    about("Text, for full-text search. If it is not empty, it replaces `$content` of the metadata.", string())
}

fn leaf() -> Value {
    let pool = |what: &str| about(what, int64());
    body(
        &[],
        joined(&[
            json!({"dense": vector(), "sparse": named("Sparse")}),
            text(),
            json!({
                "recommend": named("Recommend"),
                "discover": named("Discover"),
                "k": pool("Hits the lane contributes; below 1 means as many as the result needs, at least 50."),
                "lane_k": pool("Likewise, over `k` when above 0."),
            }),
            filter(),
        ]),
    )
}

/// The schemas of a lane that ranks by itself or is a query, and of such a query: the names of the lane and of the query, and that of the schema of
/// lanes that rank by themselves.
pub(super) fn inner_query(
    lane: &'static str,
    query: &'static str,
    leaf: &'static str,
) -> [(&'static str, Value); 2] {
    let (most, deepest) = (limits::QUERY_LEAVES_MAX, limits::QUERY_DEPTH_MAX);
    let inner = about(
        &format!(
            "A query whose `k` best results are the hits of the lane. Queries may lie inside a query to a depth of {deepest}, and all of them may \
             have at most {most} lanes together."
        ),
        body(
            &["prefetch"],
            joined(&[
                json!({
                    "root": named(leaf),
                    "prefetch": lanes(lane),
                    "mode": or("fusion", about(
                        "`rerank` ranks what the lanes found by `root`, which it needs.",
                        one_of(&["", "fusion", "rerank"]),
                    )),
                    "k": about("Results; below 1 means the default.", or(10, int64())),
                }),
                fusion(),
            ]),
        ),
    );
    let with_query = body(&["query"], json!({"query": named(query)}));
    [(lane, json!({"oneOf": [named(leaf), with_query]})), (query, inner)]
}

/// The lanes of a query, each of the schema of that name.
pub(super) fn lanes(lane: &str) -> Value {
    with(array(named(lane)), json!({"minItems": 1, "maxItems": limits::QUERY_LANES_MAX}))
}

fn search(keys: Value, required: &[&str]) -> Value {
    body(required, joined(&[keys, filter(), options(), read_options()]))
}

fn change_of_payload() -> Value {
    json!({
        "type": "object",
        "properties": {"key_ttl_ms": {"anyOf": [named("KeyDeadlines"), {"type": "null"}]}},
        "additionalProperties": {"anyOf": [named("Value"), named("PlainValue")]},
        "description": "The payload itself. `key_ttl_ms` holds deadlines and is never a payload key.",
    })
}

/// The components of this file.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let at_most = || json!({"maxItems": limits::QUERY_EXAMPLES_MAX});
    let examples = || with(array(point_id()), at_most());
    let example_vectors = || with(array(vector()), at_most());
    let most = *PARTITIONS.end();
    let limit_of_key = |most: u64| or(0, integer(0, most as i64));
    let name = || named("CollectionName");
    let counted = || body(&[], filter());
    let start_from = about(
        "First value of the first page: a number, or a time as RFC 3339 text; not with `is_string`.",
        json!({"anyOf": [double(), {"type": "string", "format": "date-time"}, named("TaggedValue")]}),
    );
    let create = body(&["name", "config"], json!({"name": name(), "config": named("Config")}));
    let others = vec![
        ("Alias", body(&["alias", "collection"], json!({"alias": name(), "collection": name()}))),
        ("AliasName", body(&["alias"], json!({"alias": name()}))),
        (
            "AliasAction",
            json!({"oneOf": [
                body(&["create"], json!({"create": named("Alias"), "delete": {"type": "null"}})),
                body(&["delete"], json!({"delete": named("AliasName"), "create": {"type": "null"}})),
            ]}),
        ),
        (
            "AliasChanges",
            body(
                &[],
                json!({"actions": with(array(named("AliasAction")), json!({"maxItems": limits::ALIAS_ACTIONS_MAX}))}),
            ),
        ),
        (
            "Partitions",
            body(&["new_partitions"], json!({"new_partitions": integer(*PARTITIONS.start(), most)})),
        ),
        (
            "NewKey",
            body(
                &["token", "tenant"],
                json!({
                    "token": filled(), "tenant": filled(), "scopes": array(string()), "cert_cn": string(),
                    "requests_per_second": about(
                        "Requests with the API key that are let in per second.",
                        limit_of_key(key_limits::REQUESTS_PER_SECOND_MAX),
                    ),
                    "bytes_per_second": about(
                        "Bytes of requests with the API key, and of their answers, per second.",
                        limit_of_key(key_limits::BYTES_PER_SECOND_MAX),
                    ),
                    "connections": about(
                        "Open connections that show the API key.",
                        limit_of_key(key_limits::CONNECTIONS_MAX),
                    ),
                }),
            ),
        ),
        (
            "Verify",
            body(
                &[],
                json!({
                    "collection": about("The collection of which the snapshot is; this or `part` is required.", filled()),
                    "part": about("What the snapshot is of if it is not of a collection.", json!({"enum": ["aliases", "key-indexes", "api-keys", "keys"]})),
                    "time": about("The time of its run, in UTC and whole seconds; the newest without it.", string()),
                }),
            ),
        ),
        (
            "Restore",
            body(
                &[],
                json!({
                    "collection": about("The collection of which a snapshot is taken; this or `part` is required.", filled()),
                    "part": about(
                        "What is restored instead of a collection: all aliases, all definitions of key indexes, all API keys, or all keys, are replaced.",
                        json!({"enum": ["aliases", "key-indexes", "api-keys", "keys"]}),
                    ),
                    "time": about("The time of its run, in UTC and whole seconds; the newest without it.", string()),
                    "into": about("The name that it gets; the one that it had without it.", filled()),
                }),
            ),
        ),
        ("KeyToken", body(&["token"], json!({"token": filled()}))),
        (
            "Sparse",
            about(
                "A sparse vector: as many values as indices, which ascend strictly. Empty means none.",
                body(
                    &[],
                    json!({"indices": array(integer(0, i64::from(u32::MAX))), "values": array(float())}),
                ),
            ),
        ),
        ("Point", body(&["vector"], point(&[]))),
        ("BatchPoint", batch_point()),
        ("StagedPoint", staged_point()),
        ("Batch", body(&[], json!({"points": points("BatchPoint"), "upsert": or(false, boolean())}))),
        ("Staging", body(&[], json!({"points": points("StagedPoint"), "upsert": {"const": false}}))),
        (
            "Build",
            body(
                &[],
                json!({
                    "workers": about("Cores to use, below 1 = all.", or(0, int64())),
                    "wait": about("Answer when it is built, not when it has begun.", or(true, boolean())),
                }),
            ),
        ),
        (
            "BatchGet",
            body(
                &[],
                json!({"ids": array(point_id()), "with_vector": or(true, boolean()), "with_payload": or(true, boolean())}),
            ),
        ),
        (
            "DeleteByFilter",
            json!({"oneOf": [
                body(&["filter"], joined(&[filter(), json!({"ids": {"type": "null"}}), write_options()])),
                body(&["ids"], joined(&[json!({"ids": ids("Points to delete"), "filter": {"type": "null"}}), write_options()])),
            ]}),
        ),
        (
            "Scroll",
            body(
                &[],
                joined(&[
                    filter(),
                    json!({
                        "limit": about("Most documents; below 1 means all.", or(0, int64())),
                        "cursor": about("`next_cursor` of the page before; empty means the first page.", string()),
                        "order_by": named("OrderBy"),
                    }),
                    read_options(),
                ]),
            ),
        ),
        (
            "OrderBy",
            order_key(json!({
                "start_from": start_from,
                "tail_keys": with(array(named("OrderKey")), json!({"maxItems": 15})),
            })),
        ),
        (
            "OrderKey",
            order_key(json!({
                "start_from": about("Has no effect; the first key says where pages start.", json!({})),
                "tail_keys": about("Has no effect; the first key says which follow.", json!({})),
            })),
        ),
        ("Count", counted()),
        ("Facet", body(&["key"], joined(&[json!({"key": filled(), "limit": limit("values")}), filter()]))),
        (
            "Sample",
            body(
                &[],
                joined(&[
                    json!({
                        "limit": limit("points"),
                        "seed": about("The same seed draws the same points.", uint64()),
                    }),
                    filter(),
                ]),
            ),
        ),
        ("PayloadChange", change_of_payload()),
        (
            "PayloadKeys",
            body(
                &[],
                joined(&[
                    json!({
                        "keys": array(string()),
                        "expected_version": about("Version the point must have, 0 = absent.", uint64()),
                    }),
                    write_options(),
                ]),
            ),
        ),
        ("Search", search(json!({"query": vector(), "k": k()}), &["query", "k"])),
        (
            "HybridSearch",
            search(
                joined(&[
                    json!({
                        "dense": about("Empty means no such lane.", array(float())),
                        "sparse": named("Sparse"),
                        "k": k(),
                        "dense_k": pool("dense"),
                        "sparse_k": pool("sparse"),
                    }),
                    fusion(),
                ]),
                &["k"],
            ),
        ),
        (
            "TextMatch",
            body(
                &[],
                json!({
                    "phrase": about(
                        "Points must have the words in this order and next to each other, at most 64. A stop word within the phrase stands \
                         for any one word.",
                        boolean(),
                    ),
                    "prefix": about(
                        "The last word is the beginning of a word. It stands for up to 128 terms that begin with it, those that most points \
                         have, and for its own term.",
                        boolean(),
                    ),
                }),
            ),
        ),
        (
            "TextSearch",
            search(
                json!({
                    "text": about("Points with any of its words, unless `match` says otherwise.", string()),
                    "match": named("TextMatch"),
                    "k": k(),
                    "global_idf": about("Statistics are always those of the whole collection.", boolean()),
                }),
                &["k"],
            ),
        ),
        (
            "HybridTextSearch",
            search(
                joined(&[
                    json!({
                        "vector": about("Empty means no such lane.", array(float())),
                        "dense": about("Another name of `vector`, which wins.", array(float())),
                        "text": string(),
                        "match": named("TextMatch"),
                        "k": k(),
                        "dense_k": pool("dense"),
                        "sparse_k": pool("text"),
                        "global_idf": about("Statistics are always those of the whole collection.", boolean()),
                    }),
                    fusion(),
                ]),
                &["k"],
            ),
        ),
        (
            "GroupSearch",
            search(
                json!({
                    "query": vector(),
                    "k": about("Groups wanted.", integer(1, limits::K_MAX)),
                    "group_by": about("Payload key; points without a scalar under it are left out.", filled()),
                    "group_size": about("Hits per group; below 1 means 1.", or(1, integer(i64::MIN, limits::LANE_POOL_MAX))),
                    "fetch_k": about(
                        "Neighbours the groups are made from; less than `k * group_size` means four times that, at least 50.",
                        or(0, integer(i64::MIN, limits::LANE_POOL_MAX)),
                    ),
                }),
                &["query", "k", "group_by"],
            ),
        ),
        ("MmrSearch", search(joined(&[json!({"query": vector()}), diversity()]), &["query", "k"])),
        (
            "Query",
            body(
                &["prefetch"],
                joined(&[
                    json!({
                        "root": named("Leaf"),
                        "prefetch": lanes("Lane"),
                        "mode": or("fusion", about(
                            "`rerank` ranks what the lanes found by `root`, which it needs.",
                            one_of(&["", "fusion", "rerank"]),
                        )),
                        "k": about("Results, or groups; below 1 means the default.", or(10, int64())),
                        "group_by": string(),
                        "group_size": about("Hits per group; below 1 means 1.", or(1, int64())),
                    }),
                    fusion(),
                    options(),
                    read_options(),
                ]),
            ),
        ),
        (
            "Leaf",
            about(
                "One lane. Of several sources `recommend` counts first, then `discover`, a sparse vector that is not empty, \
                 a text, the dense one.",
                leaf(),
            ),
        ),
        (
            "Recommend",
            body(
                &[],
                json!({
                    "positive": about("Ids of points to be like. There must be one at least, or a vector.", examples()),
                    "negative": about("Ids of points to be unlike.", examples()),
                    "positive_vecs": about("Vectors to be like.", example_vectors()),
                    "negative_vecs": about("Vectors to be unlike.", example_vectors()),
                    "strategy": about("`average` (also `average_vector`), which is the default, or `best_score` (also `best`).", string()),
                }),
            ),
        ),
        (
            "Discover",
            body(
                &["context"],
                json!({
                    "target": about("Id of a point; wins over `target_vec`.", point_id()),
                    "target_vec": array(float()),
                    "context": with(array(named("ExamplePair")), json!({"minItems": 1, "maxItems": limits::QUERY_EXAMPLES_MAX})),
                }),
            ),
        ),
        (
            "ExamplePair",
            json!({"oneOf": [
                body(
                    &["positive", "negative"],
                    json!({"positive": point_id(), "negative": point_id(),
                        "positive_vec": {"type": "null"}, "negative_vec": {"type": "null"}}),
                ),
                body(
                    &["positive_vec", "negative_vec"],
                    json!({"positive_vec": vector(), "negative_vec": vector(),
                        "positive": {"type": "null"}, "negative": {"type": "null"}}),
                ),
            ]}),
        ),
    ];
    [("CreateCollection", create)]
        .into_iter()
        .chain(super::config::schemas())
        .chain(others)
        .chain(inner_query("Lane", "InnerQuery", "Leaf"))
        .collect()
}
