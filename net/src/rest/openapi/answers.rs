//! Schemas of answers.

use super::config;
use super::schema::{
    about, answer, array, boolean, double, integer, joined, named, natural, nullable, one_of, point_id,
    string, uint64, with,
};
use nigh_engine::collection::config_keys::Key;
use nigh_engine::point_id::TEXT_ID_MAX_BYTES;
use serde_json::{Value, json};

/// The ways a filtered search may take.
const PLANS: [&str; 8] =
    ["unfiltered", "nothing", "points", "gate", "complement", "column", "predicate", "everything"];

fn hit() -> Value {
    json!({
        "id": point_id(),
        "distance": about("Smaller is nearer. With a dense lane every fused hit has its own; 0 where no vector ranks.", double()),
        "score": about("Larger is better; 0 where a distance ranks, unless `with_score` asks for one.", double()),
    })
}

/// The keys of the vectors of a hit, of which it has those of its family if `with_vector` asks for them.
pub const HIT_VECTORS: [&str; 4] = ["vector", "sparse", "vectors", "tokens"];

/// The vectors of a hit.
pub fn hit_vectors() -> Value {
    let vector = || array(double());
    json!({
        "vector": about("In a dense collection.", nullable(vector())),
        "sparse": named("StoredSparse"),
        "vectors": about("In a collection of named spaces, by the names of the dense ones.",
            json!({"type": "object", "additionalProperties": vector()})),
        "tokens": about("In a multi-vector collection.", array(vector())),
    })
}

/// The payload of a hit.
fn hit_payload() -> Value {
    json!({"payload": about("If `with_payload` asks for it.", nullable(named("StoredPayload")))})
}

fn optional(keys: &[&'static str]) -> Vec<&'static str> {
    [keys, &HIT_VECTORS[..]].concat()
}

fn document() -> Value {
    json!({"content": string(), "metadata": named("StoredPayload")})
}

/// What every search and scroll says beside its hits.
fn completeness() -> Value {
    json!({
        "degraded": about("Partitions are missing from the answer; never on one node.", boolean()),
        "missing": about("Which partitions.", array(natural())),
    })
}

fn found(key: &str, items: &str) -> Value {
    let hits = json!({key: array(named(items))});
    answer(&["explain"], joined(&[hits, completeness(), json!({"explain": named("Explanation")})]))
}

fn found_groups() -> Value {
    let incomplete = about(
        "The groups are fewer or smaller than asked for, and points that were not looked at may belong to them or make others; a larger \
         `fetch_k` looks at more.",
        boolean(),
    );
    let keys = json!({"groups": array(named("Group")), "incomplete": incomplete});
    answer(&["explain"], joined(&[keys, completeness(), json!({"explain": named("Explanation")})]))
}

fn stored_point() -> Value {
    json!({
        "vector": about("`null` when it was not asked for.", nullable(array(double()))),
        "payload": about("`null` when it is empty or was not asked for.", nullable(named("StoredPayload"))),
        "ttl_ms": about("Milliseconds left, 0 = the point does not expire.", natural()),
        "version": uint64(),
        "sparse": named("StoredSparse"),
    })
}

fn explanation() -> Value {
    let plan = || one_of(&PLANS);
    let cost = || about("`null` = out of the question.", nullable(double()));
    let estimate = answer(
        &[],
        json!({
            "plan": plan(),
            "at_most": nullable(uint64()),
            "expected": nullable(uint64()),
            "points_ns": cost(),
            "walk_ns": cost(),
            "everything_ns": cost(),
        }),
    );
    let lane = answer(
        &["plan", "exact", "estimate", "distances", "rejects", "postings", "scored"],
        json!({
            "lane": one_of(&["dense", "sparse", "text", "recommend", "discover", "maxsim"]),
            "pool": about("Hits it might have contributed.", uint64()),
            "hits": uint64(),
            "microseconds": about("Pauses of long searches included.", uint64()),
            "plan": plan(),
            "exact": boolean(),
            "estimate": estimate,
            "distances": about("Distances computed.", uint64()),
            "rejects": about("Candidates that the filter refused.", uint64()),
            "postings": uint64(),
            "scored": uint64(),
        }),
    );
    let stages = json!({
        "waiting": about("Microseconds until the first lane began.", uint64()),
        "combining": about("Of fusing, ranking anew or diversifying.", uint64()),
        "copying": about("Of copying payloads and grouping.", uint64()),
    });
    answer(&[], json!({"microseconds": uint64(), "stages": answer(&[], stages), "lanes": array(lane)}))
}

fn task() -> Value {
    answer(
        &[],
        json!({
            "id": about("`null` for what a collection does by itself.", nullable(uint64())),
            "kind": one_of(&["build", "index"]),
            "collection": string(),
            "state": one_of(&["running", "done", "failed"]),
            "stage": one_of(&["loading", "training", "linking", "relinking", "quantizing", "saving", "done", "failed"]),
            "done": about("Vectors linked so far.", uint64()),
            "total": about("Vectors to be linked: in a collection of named spaces, one for each dense vector of a point.", uint64()),
            "began_ms": about("Unix milliseconds.", nullable(uint64())),
            "ended_ms": about("Unix milliseconds.", nullable(uint64())),
            "error": nullable(string()),
        }),
    )
}

/// What an index is, and how far it is.
fn index() -> [Value; 2] {
    let kind = json!({
        "type": config::told(Key::IndexType),
        "cells": about(
            "Cells that searches go by; 0 before the training, while they look at everything, and where the index is a graph.",
            uint64(),
        ),
        "walks": about("What searches score on their way: codes of the vectors, or the vectors.", one_of(&["int8", "float", "bq1", "sq", "pq", "prq", "ivf_pq"])),
    });
    let state = json!({
        "state": one_of(&["ready", "indexing", "damaged", "closed"]),
        "indexed": uint64(),
        "waiting": uint64(),
    });
    [kind, state]
}

/// Information about a collection: what only its family has, and its index.
fn info(own: Value, index: &[Value]) -> Value {
    let sizes = |keys: &[&str]| answer(&[], keys.iter().map(|key| ((*key).to_owned(), uint64())).collect());
    let all = json!({
        "name": string(),
        "points": uint64(),
        "sparse_vectors": uint64(),
        "tombstoned": uint64(),
        "index": answer(&[], joined(index)),
        "memory": sizes(&[
            "bytes", "graph_bytes", "codes_bytes", "slots_bytes", "payload_bytes", "ids_bytes", "tail_bytes",
            "payload_index_bytes", "lanes_bytes", "file_vectors_bytes", "file_vectors_resident_bytes",
            "file_index_bytes",
        ]),
    });
    answer(&[], joined(&[all, own]))
}

/// The components of this file.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let space = answer(
        &["dim", "metric", "sparse"],
        json!({"dim": integer(1, 65_536), "metric": config::told(Key::Metric), "sparse": boolean()}),
    );
    let spaces = json!({"type": "object", "additionalProperties": space});
    let summary = answer(
        &["dim", "metric", "named_vectors"],
        json!({
            "name": string(),
            "family": one_of(&["dense", "named", "multivector"]),
            "dim": about("Of a dense or multi-vector collection.", integer(1, 65_536)),
            "metric": config::told(Key::Metric),
            "named_vectors": about("Of a collection of named spaces.", spaces),
            "points": uint64(),
            "damaged": about("Its files are damaged: it serves nothing until they are repaired, or it is dropped.", boolean()),
            "closed": about("It did not fit into memory at the start, and serves nothing until there is more.", boolean()),
            "opening": about("It is being opened after a start, and serves nothing until it is open; its number of points is not known.", boolean()),
        }),
    );
    let written = json!({"oneOf": [
        answer(&[], json!({"id": point_id(), "version": uint64(), "status": {"const": "ok"}})),
        answer(&[], json!({"id": point_id(), "status": {"const": "conflict"}})),
    ]});
    let group = answer(&[], json!({"key": named("StoredValue"), "hits": array(named("Document"))}));
    let facet = answer(&[], json!({"value": named("StoredValue"), "count": uint64()}));
    let with_id = joined(&[json!({"id": point_id()}), stored_point()]);
    let with_found = joined(&[json!({"found": {"const": true}}), stored_point()]);
    let page = joined(&[
        json!({"documents": array(named("Document"))}),
        completeness(),
        json!({"next_cursor": about("Empty after the last page.", string())}),
    ]);
    let text_id = with(string(), json!({"minLength": 1, "maxLength": TEXT_ID_MAX_BYTES}));
    let text_id = about("In collections with `ids` `string`. Its bytes are counted, in UTF-8.", text_id);
    vec![
        ("PointId", json!({"anyOf": [uint64(), text_id]})),
        ("Error", answer(&[], json!({"error": about("What is wrong.", string())}))),
        (
            "BatchError",
            answer(
                &["committed"],
                json!({
                    "error": string(),
                    "committed": about("Points before the one that failed; they are processed.", uint64()),
                }),
            ),
        ),
        ("Hit", answer(&optional(&["payload"]), joined(&[hit(), hit_payload(), hit_vectors()]))),
        // A document has no text if `with_payload` is false.
        (
            "Document",
            answer(&optional(&["content", "metadata"]), joined(&[hit(), document(), hit_vectors()])),
        ),
        ("Group", group),
        ("TaskList", answer(&[], json!({"tasks": array(task())}))),
        ("Explanation", explanation()),
        ("Hits", found("results", "Hit")),
        ("Documents", found("documents", "Document")),
        ("Groups", found_groups()),
        ("ScrollPage", answer(&[], page)),
        (
            "StoredSparse",
            answer(
                &[],
                json!({"indices": array(integer(0, i64::from(u32::MAX))), "values": array(double())}),
            ),
        ),
        ("FoundPoint", answer(&["sparse"], with_found)),
        ("StoredPoint", answer(&["sparse"], with_id)),
        (
            "StoredPoints",
            answer(&[], json!({"points": array(named("StoredPoint")), "missing": array(point_id())})),
        ),
        ("Written", written),
        (
            "BatchWritten",
            json!({"oneOf": [
                answer(&[], json!({"count": uint64()})),
                answer(&[], json!({"results": array(named("Written"))})),
            ]}),
        ),
        ("CollectionInfo", info(json!({"config": config::information()}), &index())),
        ("NamedInfo", {
            let [kind, state] = index();
            let each = json!({"type": "object", "additionalProperties": answer(&[], kind)});
            let told = json!({"type": "object", "additionalProperties": named("ToldSpace")});
            let own = json!({"named_vectors": told, "spaces": each});
            let mut told = info(joined(&[own, super::named::whole(super::named::told)]), &[state]);
            if let Some(required) = told["required"].as_array_mut() {
                required.retain(|name| Key::of_whole().all(|key| name != key.name()));
            }
            told
        }),
        (
            "TokensInfo",
            info(
                json!({"config": super::multi_vector::told(), "tokens": about("Vectors in the index: those of tokens, or one for each document with `first_stage` `encodings`.", uint64())}),
                &index(),
            ),
        ),
        ("CollectionList", answer(&[], json!({"collections": array(summary)}))),
        ("AliasList", answer(&[], json!({"aliases": array(named("StoredAlias"))}))),
        ("StoredAlias", answer(&[], json!({"alias": string(), "collection": string()}))),
        ("Facets", answer(&[], json!({"facets": array(facet)}))),
    ]
}
