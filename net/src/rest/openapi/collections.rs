//! Operations of collections and aliases.

use super::operation::{Operation, operation};
use super::schema::{about, answer, array, boolean, named, string, uint64};
use crate::wire::info::configuration;
use nigh_engine::collection::DenseConfig;
use nigh_engine::distance::Metric;
use nigh_engine::text::TextConfig;
use serde_json::{Value, json};

fn one(key: &str) -> Value {
    answer(&[], json!({key: string()}))
}

fn gone(key: &str) -> Value {
    answer(&[], json!({key: string(), "existed": about("Whether it was there.", boolean())}))
}

/// The rows of the table.
pub fn operations() -> Vec<Operation> {
    let manage = |path: &'static str, id: &'static str, summary: &'static str| {
        operation("POST", path, id, "collections", summary).errors(&[404, 412])
    };
    let cold = "Needs a server with `-backup-bucket` or `-backup-dir`. An alias of the collection is not known here.";
    let moved = |path: &'static str, id: &'static str, summary: &'static str, key: &str| {
        operation("POST", path, id, "collections", summary)
            .about(cold)
            .answer(
                200,
                "It is done, or was before.",
                &answer(&[], json!({key: boolean()})),
                &[("films", json!({key: true}))],
            )
            .errors(&[404, 409, 412, 500, 503, 507])
    };
    let whole = "This build does not partition. An alias of the collection is not known here.";
    let films = json!({"name": "films", "config": {"dim": 2, "metric": "l2", "full_text": {}}});
    let inbox = json!({"name": "inbox", "config": {"dim": 2, "metric": "cosine", "m": 8, "seed": 7}});
    let scratch = json!({"name": "scratch", "config": {"dim": 2}});
    let full_text = Some(TextConfig::default());
    let mut config = configuration(&DenseConfig { full_text, ..DenseConfig::new(2, Metric::L2) });
    // In as many digits as a reader wants to see.
    config["full_text"]["k1"] = json!(1.2);
    let info = json!({
        "name": "films",
        "config": config,
        "points": 3, "sparse_vectors": 2, "tombstoned": 0,
        "index": {"type": "hnsw", "cells": 0, "state": "ready", "walks": "float", "indexed": 3, "waiting": 0},
        "memory": {"bytes": 1_234_567, "graph_bytes": 600, "codes_bytes": 0, "slots_bytes": 400, "payload_bytes": 900,
            "ids_bytes": 100, "tail_bytes": 0, "payload_index_bytes": 300, "lanes_bytes": 200,
            "file_vectors_bytes": 0, "file_vectors_resident_bytes": 0, "file_index_bytes": 0}
    });
    let listed = json!({"collections": [{"name": "films", "family": "dense", "dim": 2, "metric": "l2", "points": 3, "damaged": false, "closed": false, "opening": false}]});
    let partitions = || [("four", json!({"new_partitions": 4}))];
    let alias = json!({"alias": "catalogue", "collection": "films"});
    vec![
        operation("POST", "/v1/collections", "createCollection", "collections", "Create a collection")
            .body("CreateCollection", &[("films", films), ("inbox", inbox), ("scratch", scratch)])
            .answer(
                201,
                "Created.",
                &one("name"),
                &[
                    ("films", json!({"name": "films"})),
                    ("inbox", json!({"name": "inbox"})),
                    ("scratch", json!({"name": "scratch"})),
                ],
            )
            .errors(&[409, 507]),
        operation("GET", "/v1/tasks", "listTasks", "collections", "Background tasks")
            .about(
                "Bulk builds under way and the last hundred per core that ended, the newest first; then collections whose points \
                 are being put into the graph.",
            )
            .answer(
                200,
                "All tasks.",
                &named("TaskList"),
                &[(
                    "building",
                    json!({"tasks": [{"id": 3, "kind": "build", "collection": "inbox", "state": "running",
                        "stage": "linking", "done": 4096, "total": 100000, "began_ms": 1_790_000_000_000u64,
                        "ended_ms": null, "error": null}]}),
                )],
            ),
        operation("GET", "/v1/collections", "listCollections", "collections", "List collections").answer(
            200,
            "All collections, by name.",
            &named("CollectionList"),
            &[("one", listed)],
        ),
        operation("GET", "/v1/collections/{name}", "getCollection", "collections", "Figures of a collection")
            .answer(200, "Its configuration and figures.", &named("CollectionInfo"), &[("films", info)])
            .errors(&[404]),
        operation("DELETE", "/v1/collections/{name}", "dropCollection", "collections", "Drop a collection")
            .about("With its files, the points in it, and the aliases that stand for it. An unknown name is fine.")
            .on("scratch")
            .answer(200, "It is gone.", &gone("dropped"), &[("scratch", json!({"dropped": "scratch", "existed": true}))])
            .errors(&[507]),
        moved("/v1/collections/{name}/evict", "evictCollection", "Move a collection out of memory", "evicted"),
        moved("/v1/collections/{name}/restore", "restoreCollection", "Bring an evicted collection back", "restored"),
        manage("/v1/collections/{name}/resplit", "resplitCollection", "Split anew, without writes")
            .about(whole)
            .body("Partitions", &partitions()),
        manage("/v1/collections/{name}/resplit/cleanup", "cleanUpResplit", "Drop orphaned partitions")
            .about(whole),
        manage("/v1/collections/{name}/reshard", "reshardCollection", "Split anew, with writes going on")
            .about(whole)
            .body("Partitions", &partitions()),
        manage("/v1/collections/{name}/reshard/abort", "abortReshard", "Give a split up").about(whole),
        operation("POST", "/v1/aliases", "createAlias", "aliases", "Make an alias, or point it elsewhere")
            .body("Alias", &[("catalogue", alias.clone())])
            .answer(201, "As sent.", &named("StoredAlias"), &[("catalogue", alias.clone())])
            .errors(&[507]),
        operation("GET", "/v1/aliases", "listAliases", "aliases", "List aliases")
            .answer(200, "By alias.", &named("AliasList"), &[("one", json!({"aliases": [alias]}))]),
        operation("POST", "/v1/aliases/batch", "changeAliases", "aliases", "Change aliases, all or none")
            .body(
                "AliasChanges",
                &[(
                    "swap",
                    json!({"actions": [
                        {"create": {"alias": "latest", "collection": "films"}}, {"delete": {"alias": "catalogue"}}
                    ]}),
                )],
            )
            .answer(
                200,
                "Actions applied.",
                &answer(
                    &[],
                    json!({
                        "applied": uint64(),
                        "absent": about("Aliases that were to be deleted and were not there.", array(string())),
                    }),
                ),
                &[("swap", json!({"applied": 2, "absent": []}))],
            )
            .errors(&[507]),
        operation("DELETE", "/v1/aliases/{alias}", "deleteAlias", "aliases", "Delete an alias")
            .about("An unknown one is fine.")
            .answer(200, "It is gone.", &gone("deleted"), &[("catalogue", json!({"deleted": "catalogue", "existed": true}))])
            .errors(&[507]),
    ]
}
