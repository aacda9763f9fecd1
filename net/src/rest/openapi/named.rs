//! Collections of named spaces: operations, and the schemas that only they have.

use super::config::wanted;
use super::operation::{Operation, operation};
use super::points::{BUILD, STAGES, count};
use super::requests::{
    content, diversity, filter, fusion, hybrid_text, inner_query, k_or_none, lanes, one_or_many, options,
    points, pool, read_options, text, write_options,
};
use super::schema::{
    about, answer, array, body, boolean, double, filled, float, int64, integer, joined, named, natural,
    nullable, one_of, or, point_id, string, uint64, with,
};
use nigh_engine::collection::config_keys::{Family, Key, Kind};
use nigh_engine::collection::{SPACE_NAME_MAX, SPACES_MAX};
use serde_json::{Map, Value, json};

/// The collection of the examples, and one that is made and dropped.
const SCENES: &str = "scenes";
const DRAFTS: &str = "drafts";
/// A collection without points, which bulk builds need.
const SHELF: &str = "shelf";

fn hit(distance: Value, score: Value) -> Value {
    json!({"results": [{"id": 1, "distance": distance, "score": score}]})
}

fn film(name: &str) -> Value {
    json!({"film": {"kind": "string", "str": name}})
}

fn document(distance: f64) -> Value {
    json!({"id": 1, "distance": distance, "score": 0, "content": "", "metadata": film("Alien")})
}

fn page(document: &Value, cursor: &str) -> Value {
    json!({"documents": [document], "next_cursor": cursor})
}

fn gone(key: &str) -> Value {
    answer(&[], json!({key: string(), "existed": about("Whether it was there.", boolean())}))
}

fn writes() -> Vec<Operation> {
    let spaces = json!({"named_vectors": {
        "image": {"dim": 2, "metric": 1}, "title": {"dim": 3, "metric": "l2"}, "words": {"sparse": true}
    }});
    let dense = |dim: u64| json!({"dim": dim, "metric": 1, "m": 16, "ef_construction": 200, "ef_search": 64});
    let config = json!({"name": SCENES, "named_vectors": {
        "image": dense(2), "title": dense(3), "words": {"dim": 0, "sparse": true}
    }});
    let alien = json!({"id": 1, "vectors": {"image": [1, 0], "title": [0.5, 2, 1]},
        "sparse_vectors": {"words": {"indices": [3, 8], "values": [1, 0.5]}}, "metadata": {"film": "Alien"}});
    let amelie = json!({"id": 2, "vectors": {"image": [0, 1]}, "metadata": {"film": "Amélie"}});
    let many = json!({"points": [
        {"id": 3, "vectors": {"image": [3, 1]}, "metadata": {"film": "Ran"}},
        {"id": 4, "vectors": {"image": [4, 1]}, "metadata": {"film": "Heat"}}
    ]});
    let staged = json!({"points": [
        {"id": 1, "vectors": {"image": [1, 0]}, "metadata": {"film": "Alien"}}, {"id": 2, "vectors": {"image": [0, 1]}}
    ]});
    let conditions = json!({"points": [
        {"id": 1, "vectors": {"image": [3, 2]}, "expected_version": 1}, {"id": 2, "expected_version": 9}
    ]});
    let deleted = || answer(&[], json!({"deleted": boolean()}));
    let whether = [("one", json!({"deleted": true}))];
    vec![
        operation("POST", "/v1/named/{name}", "createNamed", "named", "Create a collection of named spaces")
            .on(DRAFTS)
            .body("NamedSpaces", &[("spaces", spaces)])
            .answer(
                201,
                "Created.",
                &answer(&[], json!({"name": string()})),
                &[("spaces", json!({"name": DRAFTS}))],
            )
            .errors(&[409, 507]),
        operation("DELETE", "/v1/named/{name}", "dropNamed", "named", "Drop a collection of named spaces")
            .about("An unknown name, or one of a dense collection, is fine, and nothing happens.")
            .on(DRAFTS)
            .answer(
                200,
                "It is gone.",
                &gone("dropped"),
                &[("drafts", json!({"dropped": DRAFTS, "existed": false}))],
            )
            .errors(&[507]),
        operation("POST", "/v1/named/{name}/spaces", "addSpace", "named", "Add a space to a collection")
            .about(
                "No point has a vector in it yet. Dense and sparse spaces can be added. An alias of the collection is not known here.",
            )
            .on(SCENES)
            .body(
                "AddedSpace",
                &[
                    ("sound", json!({"name": "sound", "config": {"dim": 2, "metric": "l2"}})),
                    ("tags", json!({"name": "tags", "config": {"sparse": true}})),
                ],
            )
            .answer(
                201,
                "Added.",
                &answer(&[], json!({"name": string()})),
                &[("sound", json!({"name": "sound"})), ("tags", json!({"name": "tags"}))],
            )
            .errors(&[404, 409, 507]),
        operation("DELETE", "/v1/named/{name}/spaces/{space}", "dropSpace", "named", "Drop a space of a collection")
            .about(
                "The vectors that points have in it are removed; the points stay. The only space of a collection cannot be dropped. An alias of \
                 the collection is not known here.",
            )
            .on(SCENES)
            .answer(
                200,
                "It is gone.",
                &answer(&[], json!({"dropped": string()})),
                &[("title", json!({"dropped": "title"}))],
            )
            .errors(&[404, 409, 507]),
        operation("GET", "/v1/named/{name}/config", "getNamedConfig", "named", "Spaces of a collection")
            .about("An alias of the collection is not known here.")
            .on(SCENES)
            .answer(200, "The spaces by their names.", &named("NamedConfig"), &[("scenes", config)])
            .errors(&[404]),
        operation("POST", "/v1/named/{name}/points", "upsertNamed", "named", "Write a point into spaces")
            .about(
                "The vectors that are sent replace those that the point has in their spaces; in the others it keeps them. Payload and deadlines \
                 are replaced as a whole.",
            )
            .on(SCENES)
            .body("NamedPoint", &[("alien", alien), ("amelie", amelie)])
            .answer(
                200,
                "Durable.",
                &answer(&["version"], json!({"id": point_id(), "version": uint64()})),
                &[("alien", json!({"id": 1})), ("amelie", json!({"id": 2}))],
            )
            .errors(&[404, 409, 429, 507]),
        operation("POST", "/v1/named/{name}/points/{id}/vectors", "updateNamedVectors", "named", "Change vectors of a point")
            .about(
                "Replaces or removes vectors in the spaces that are named. The vectors in other spaces, the payload and all deadlines stay.",
            )
            .on(SCENES)
            .body("VectorsChange", &[
                ("image", json!({"vectors": {"image": [0.5, 1]}})),
                ("title", json!({"delete": ["title"], "expected_version": 1})),
            ])
            .answer(
                200,
                "Durable; the version is one more.",
                &answer(&[], json!({"applied": {"const": true}, "version": uint64()})),
                &[("image", json!({"applied": true, "version": 2})), ("title", json!({"applied": true, "version": 2}))],
            )
            .errors(&[404, 409, 507]),
        operation("DELETE", "/v1/named/{name}/points/{id}", "deleteNamed", "named", "Delete a point")
            .on(SCENES)
            .answer(200, "Whether it was there.", &deleted(), &whether)
            .errors(&[404, 409, 507]),
        operation("POST", "/v1/named/{name}/points/batch", "upsertManyNamed", "named", "Write points into spaces, in order")
            .about("Not atomic: what comes before a point that fails stays written. `wait` cannot be off, nor the factor above 0.")
            .on(SCENES)
            .body("NamedBatch", &[("both", many), ("conditions", conditions)])
            .answer(
                200,
                "How many; or what became of each, when any had an `expected_version`.",
                &named("BatchWritten"),
                &[
                    ("both", json!({"count": 2})),
                    (
                        "conditions",
                        json!({"results": [{"id": 1, "version": 2, "status": "ok"}, {"id": 2, "status": "conflict"}]}),
                    ),
                ],
            )
            .batch_errors(&[400, 404, 409, 413, 429, 503, 507]),
        operation("POST", "/v1/named/{name}/points/bulk", "stageNamed", "named", "Stage points of named spaces")
            .about(STAGES)
            .on(SHELF)
            .body("NamedStaging", &[("two", staged)])
            .answer(200, "Points staged by this request.", &count("staged"), &[("two", json!({"staged": 2}))])
            .errors(&[404, 409, 429, 507]),
        operation("POST", "/v1/named/{name}/points/bulk/build", "buildNamed", "named", BUILD).on(SHELF).builds(),
        operation("POST", "/v1/named/{name}/points/delete", "deleteManyNamed", "named", "Delete a point, or what matches")
            .about("One point by its `id`; or all that `ids` name or `filter` finds. A filter that matches everything is refused.")
            .on(SCENES)
            .body("NamedDelete", &[
                ("one", json!({"id": 2})),
                ("named", json!({"ids": [1, 7]})),
                ("matching", json!({"filter": {"op": "eq", "field": "film", "value": "Alien"}})),
            ])
            .answer(
                200,
                "Of one point whether it was there, of many how many there were.",
                &answer(&[], json!({"deleted": {"anyOf": [boolean(), uint64()]}})),
                &[("one", json!({"deleted": true})), ("named", json!({"deleted": 1})), ("matching", json!({"deleted": 1}))],
            )
            .errors(&[404, 409, 507]),
    ]
}

fn payloads() -> Vec<Operation> {
    let change = json!({"rating": 8.5, "key_ttl_ms": {"rating": 60_000}});
    let change = |method: &'static str, path: &'static str, id: &'static str, summary: &'static str| {
        operation(method, path, id, "named", summary).body("PayloadChange", &[("rating", change.clone())])
    };
    let rows = [
        change("POST", "/v1/named/{name}/points/{id}/payload", "mergeNamedPayload", "Set payload keys"),
        change("PUT", "/v1/named/{name}/points/{id}/payload", "putNamedPayload", "Replace a payload"),
        change(
            "POST",
            "/v1/named/{name}/points/{id}/payload/overwrite",
            "overwriteNamedPayload",
            "Replace a payload, as `PUT` does",
        ),
        operation(
            "POST",
            "/v1/named/{name}/points/{id}/payload/delete",
            "deleteNamedPayloadKeys",
            "named",
            "Delete payload keys",
        )
        .body("PayloadKeys", &[("rating", json!({"keys": ["film"]}))]),
        operation(
            "POST",
            "/v1/named/{name}/points/{id}/payload/clear",
            "clearNamedPayload",
            "named",
            "Empty a payload",
        )
        .about("Of a body that is an object `expected_version` and the other options count; any other is ignored."),
    ];
    rows.into_iter()
        .map(|row| {
            row.on(SCENES)
                .answer(
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
    let stored = |mut point: Value, vectors: Value, name: &str| {
        point["vectors"] = vectors;
        point["payload"] = film(name);
        point["ttl_ms"] = json!(0);
        point["version"] = json!(1);
        point
    };
    let found =
        stored(json!({"found": true}), json!({"image": [1.0, 0.0], "title": [0.5, 2.0, 1.0]}), "Alien");
    let second = stored(json!({"id": 2}), json!({"image": [0.0, 1.0]}), "Amélie");
    let of_alien = || json!({"op": "eq", "field": "film", "value": "Alien"});
    let counted = |name: &str| json!({"value": {"kind": "string", "str": name}, "count": 1});
    let read = |path: &'static str, id: &'static str, summary: &'static str| {
        operation("POST", path, id, "named", summary).on(SCENES).errors(&[404])
    };
    vec![
        operation("GET", "/v1/named/{name}/points/{id}", "getNamedPoint", "named", "Read a point")
            .on(SCENES)
            .answer(200, "The point.", &named("NamedFoundPoint"), &[("one", found)])
            .errors(&[404]),
        read("/v1/named/{name}/points/batch-get", "getNamedPoints", "Read points by id")
            .body("BatchGet", &[("two", json!({"ids": [2, 404]}))])
            .answer(
                200,
                "In the order of the request.",
                &named("NamedStoredPoints"),
                &[("two", json!({"points": [second], "missing": [404]}))],
            ),
        read("/v1/named/{name}/scroll", "scrollNamed", "Read all that match")
            .body("Scroll", &[("by_id", json!({"limit": 1}))])
            .answer(
                200,
                "A page.",
                &named("NamedScrollPage"),
                &[("by_id", page(&document(0.0), "AQAAAAAAAAAB"))],
            ),
        read("/v1/named/{name}/count", "countNamed", "Count what matches")
            .body("Count", &[("alien", json!({"filter": of_alien()}))])
            .answer(
                200,
                "How many.",
                &answer(&[], json!({"count": uint64()})),
                &[("alien", json!({"count": 1}))],
            ),
        read("/v1/named/{name}/facet", "facetNamed", "Count values of a key")
            .body("Facet", &[("films", json!({"key": "film", "limit": 2}))])
            .answer(
                200,
                "The most frequent first.",
                &named("Facets"),
                &[("films", json!({"facets": [counted("Alien"), counted("Amélie")]}))],
            ),
        read("/v1/named/{name}/sample", "sampleNamed", "Draw points at random")
            .body("Sample", &[("alien", json!({"limit": 1, "seed": 7, "filter": of_alien()}))])
            .answer(
                200,
                "Their documents.",
                &named("NamedScrollPage"),
                &[("alien", page(&document(0.0), ""))],
            ),
    ]
}

fn searches() -> Vec<Operation> {
    let search = |path: &'static str, id: &'static str, summary: &'static str| {
        operation("POST", path, id, "named", summary).on(SCENES).errors(&[404])
    };
    let nearest = || [("nearest", json!({"vector_name": "image", "query": [0.5, 0], "k": 1}))];
    let words = || json!({"indices": [8], "values": [2]});
    let both = json!({"dense_space": "image", "dense": [0.5, 0], "sparse_space": "words", "sparse": words(), "k": 1});
    let lanes = json!({"prefetch": [{"space": "image", "dense": [0.5, 0]}, {"space": "words", "sparse": words()}], "k": 1});
    vec![
        search("/v1/named/{name}/search", "searchNamed", "Nearest neighbours in a dense space")
            .body("NamedSearch", &nearest())
            .answer(
                200,
                "The nearest first.",
                &named("NamedHits"),
                &[("nearest", hit(json!(0.25), json!(0)))],
            ),
        search(
            "/v1/named/{name}/search/docs",
            "searchNamedDocuments",
            "Nearest neighbours in a dense space with their payloads",
        )
        .body("NamedSearch", &nearest())
        .answer(
            200,
            "The nearest first.",
            &named("NamedDocuments"),
            &[("nearest", json!({"documents": [document(0.25)]}))],
        ),
        search(
            "/v1/named/{name}/search/mmr",
            "searchNamedMmr",
            "Diverse results (MMR) of a dense space",
        )
        .about("By maximal marginal relevance, as in a dense collection. In the order chosen, the nearest first.")
        .body(
            "NamedMmrSearch",
            &[("unlike", json!({"vector_name": "image", "query": [0.5, 0], "k": 1, "lambda": 0.25}))],
        )
        .answer(
            200,
            "In the order chosen.",
            &named("NamedDocuments"),
            &[("unlike", json!({"documents": [document(0.25)]}))],
        ),
        search("/v1/named/{name}/sparse-search", "searchNamedSparse", "Best dot products in a sparse space")
            .body(
                "NamedSparseSearch",
                &[("words", json!({"vector_name": "words", "query": words(), "k": 1}))],
            )
            .answer(200, "The best first.", &named("NamedHits"), &[("words", hit(json!(0.0), json!(1.0)))]),
        search("/v1/named/{name}/hybrid-search", "searchNamedHybrid", "By a dense and by a sparse space")
            .body("NamedHybridSearch", &[("both", both)])
            .answer(
                200,
                "The best first.",
                &named("NamedHits"),
                &[("both", hit(json!(0.25), json!(0.032786883)))],
            ),
        search("/v1/named/{name}/query", "queryNamed", "By any lanes of any spaces, fused or ranked anew")
            .body("NamedQuery", &[("lanes", lanes)])
            .answer(
                200,
                "The best first.",
                &json!({"oneOf": [named("Hits"), named("Groups")]}),
                &[(
                    "lanes",
                    with(hit(json!(0.25), json!(0.032786883)), json!({"degraded": false, "missing": []})),
                )],
            ),
    ]
}

/// The rows of the table.
pub fn operations() -> Vec<Operation> {
    writes().into_iter().chain(reads()).chain(payloads()).chain(searches()).collect()
}

pub fn by_space(of: Value) -> Value {
    let name = json!({"minLength": 1, "maxLength": SPACE_NAME_MAX, "pattern": "^[^#@/]+$"});
    json!({"type": "object", "additionalProperties": of, "maxProperties": SPACES_MAX, "propertyNames": name})
}

/// A key of a dense space: words may be the numbers that stand for them.
fn key(key: Key) -> Value {
    let Kind::Words(words) = key.kind() else { return wanted(key) };
    let codes: Vec<u8> = words.iter().map(|word| word.code).collect();
    let named: Vec<String> = words.iter().map(|word| format!("{} = `{}`", word.code, word.name)).collect();
    let names = words.iter().flat_map(|word| [word.name].into_iter().chain(word.aliases.iter().copied()));
    let names = one_of(&[""].into_iter().chain(names).collect::<Vec<_>>());
    let either = json!({"anyOf": [{"type": "integer", "enum": codes}, names]});
    about(&format!("{} As numbers: {}.", key.about(), named.join(", ")), either)
}

fn space() -> Value {
    let mut keys: Map<String, Value> =
        Key::of(Family::Named).map(|of| (of.name().to_owned(), key(of))).collect();
    keys.insert("sparse".to_owned(), about("A sparse space; the other keys have no effect then.", boolean()));
    body(&[], Value::Object(keys))
}

/// The collection keys.
pub fn whole(schema: fn(Key) -> Value) -> Value {
    Key::of_whole().map(|key| (key.name().to_owned(), schema(key))).collect::<Map<_, _>>().into()
}

/// A collection key in an answer.
pub fn told(key: Key) -> Value {
    about("Absent unless it is set.", super::config::told(key))
}

fn told_space() -> Value {
    let mut keys: Map<String, Value> = Key::of(Family::Named)
        .map(|key| {
            let schema = match key.kind() {
                Kind::Bool => boolean(),
                Kind::Float(_) => double(),
                Kind::Words(_) => natural(),
                _ => int64(),
            };
            (key.name().to_owned(), schema)
        })
        .collect();
    keys.insert("sparse".to_owned(), boolean());
    let optional: Vec<String> = keys.keys().filter(|key| *key != Key::Dim.name()).cloned().collect();
    let optional: Vec<&str> = optional.iter().map(String::as_str).collect();
    about(
        "`dim`, which is 0 for a sparse space, and every other key that is not 0.",
        answer(&optional, Value::Object(keys)),
    )
}

fn stored() -> Value {
    let vectors = about(
        "By the names of dense spaces; `null` when they were not asked for. Sparse vectors are not returned.",
        nullable(by_space(array(double()))),
    );
    json!({
        "vectors": vectors,
        "payload": about("`null` when it is empty or was not asked for.", nullable(named("StoredPayload"))),
        "ttl_ms": about("Milliseconds left, 0 = the point does not expire.", natural()),
        "version": uint64(),
    })
}

/// The keys of the vectors that a point gets.
fn vectors() -> Value {
    json!({
        "vectors": about("By the names of dense spaces, each as long as its `dim`.", by_space(array(float()))),
        "sparse_vectors": about(
            "By the names of sparse spaces; an empty one takes the point out of its space.",
            by_space(nullable(named("Sparse"))),
        ),
    })
}

/// The keys of a change of vectors.
fn vectors_change() -> Value {
    let delete = about(
        "Names of the dense or sparse spaces from which the point's vector is removed. None of them may be in `vectors` or `sparse_vectors`.",
        with(array(filled()), json!({"maxItems": SPACES_MAX})),
    );
    let expected = about("Version the point must have.", uint64());
    joined(&[vectors(), json!({"delete": delete, "expected_version": expected}), write_options()])
}

/// The keys of a point that is written.
fn point() -> Value {
    joined(&[
        vectors(),
        json!({
            "id": about("Absent means 0; a string must be sent in collections with `ids` `string`.", or(0, point_id())),
            "content": content(),
            "metadata": named("Payload"),
            "ttl_ms": about("Milliseconds until the point expires; below 1 means never.", int64()),
            "key_ttl_ms": named("KeyDeadlines"),
            "expected_version": about("Version the point must have, 0 = absent.", uint64()),
        }),
        write_options(),
    ])
}

/// The components of this file.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let vector = || array(float());
    let name = || about("Name of the space.", filled());
    let search =
        |keys: Value, required: &[&str]| body(required, joined(&[keys, filter(), options(), read_options()]));
    let spaces = with(by_space(named("NamedSpace")), json!({"minProperties": 1}));
    let pool_of = |what: &str| about(what, int64());
    let found = |key: &str, of: &str| {
        answer(&["explain"], json!({key: array(named(of)), "explain": named("Explanation")}))
    };
    let cursor = about("Empty after the last page.", string());
    let told_whole = whole(told);
    let whole_keys: Vec<&str> = Key::of_whole().map(Key::name).collect();
    let others = vec![
        ("NamedHits", found("results", "Hit")),
        ("NamedDocuments", found("documents", "Document")),
        (
            "NamedScrollPage",
            answer(&[], json!({"documents": array(named("Document")), "next_cursor": cursor})),
        ),
        (
            "NamedSpaces",
            body(
                &["named_vectors"],
                joined(&[
                    json!({
                        "named_vectors": spaces,
                        "partitions": about("0 or 1: this build does not divide collections.", integer(0, 1)),
                    }),
                    whole(wanted),
                ]),
            ),
        ),
        ("NamedSpace", space()),
        ("AddedSpace", body(&["name", "config"], json!({"name": name(), "config": named("NamedSpace")}))),
        ("ToldSpace", told_space()),
        (
            "NamedConfig",
            answer(
                &whole_keys,
                joined(&[
                    json!({"name": string(), "named_vectors": by_space(named("ToldSpace"))}),
                    told_whole,
                ]),
            ),
        ),
        ("NamedPoint", body(&[], point())),
        ("VectorsChange", body(&[], vectors_change())),
        ("NamedBatchPoint", {
            let mut keys = point();
            keys["write_consistency_factor"] = json!({"type": "integer", "enum": [0]});
            keys["wait"] = json!({"const": true});
            body(&[], keys)
        }),
        ("NamedStagedPoint", {
            let mut keys = point();
            keys["ttl_ms"] = json!({"type": "integer", "enum": [0]});
            keys["key_ttl_ms"] = json!({"type": "object", "maxProperties": 0});
            keys["expected_version"] = json!({"type": "null"});
            keys["write_consistency_factor"] = about("Ignored.", int64());
            keys["wait"] = about("Ignored.", boolean());
            body(&[], keys)
        }),
        ("NamedStaging", body(&[], json!({"points": points("NamedStagedPoint")}))),
        ("NamedBatch", body(&["points"], json!({"points": points("NamedBatchPoint")}))),
        ("NamedDelete", one_or_many()),
        ("NamedFoundPoint", answer(&[], joined(&[json!({"found": {"const": true}}), stored()]))),
        ("NamedStoredPoint", answer(&[], joined(&[json!({"id": point_id()}), stored()]))),
        (
            "NamedStoredPoints",
            answer(&[], json!({"points": array(named("NamedStoredPoint")), "missing": array(point_id())})),
        ),
        (
            "NamedSearch",
            search(
                json!({"vector_name": name(), "query": vector(), "k": k_or_none()}),
                &["vector_name", "query"],
            ),
        ),
        (
            "NamedMmrSearch",
            search(
                joined(&[json!({"vector_name": name(), "query": vector()}), diversity()]),
                &["vector_name", "query", "k"],
            ),
        ),
        (
            "NamedSparseSearch",
            search(
                json!({"vector_name": name(), "query": named("Sparse"), "k": k_or_none()}),
                &["vector_name", "query"],
            ),
        ),
        (
            "NamedHybridSearch",
            search(
                joined(&[
                    json!({
                        "dense_space": about("Needed unless there is a text and no dense vector.", name()),
                        "dense": about("Empty means no such lane.", vector()),
                        "sparse_space": about("Needed unless there is a text.", name()),
                        "sparse": named("Sparse"),
                        "k": k_or_none(),
                        "dense_k": pool("dense"),
                        "sparse_k": pool("sparse"),
                    }),
                    hybrid_text(),
                    fusion(),
                ]),
                &[],
            ),
        ),
        (
            "NamedQuery",
            body(
                &["prefetch"],
                joined(&[
                    json!({
                        "root": about("Dense, sparse or a text.", named("NamedLeaf")),
                        "prefetch": lanes("NamedLane"),
                        "mode": or("fusion", about(
                            "`rerank` ranks what the lanes found by `root`, which it needs.",
                            one_of(&["", "fusion", "rerank"]),
                        )),
                        "k": about("Results, or groups; below 1 means the default.", or(10, int64())),
                        "group_by": about("Payload key to group by; empty means no groups.", string()),
                        "group_size": about("Hits per group; below 1 means 1.", or(1, int64())),
                    }),
                    fusion(),
                    options(),
                    read_options(),
                ]),
            ),
        ),
        (
            "NamedLeaf",
            about(
                "One lane. Of several sources `recommend` counts first, then `discover`, a sparse vector that is not empty, a text, the dense \
                 vector.",
                body(
                    &[],
                    joined(&[
                        json!({
                            "space": about("Needed unless the lane is one of a text, which belongs to no space.", name()),
                            "dense": vector(),
                            "sparse": named("Sparse"),
                        }),
                        text(),
                        json!({
                            "recommend": named("Recommend"),
                            "discover": named("Discover"),
                            "k": pool_of("Hits the lane contributes; below 1 means as many as the result needs, at least 50."),
                            "lane_k": pool_of("Likewise, over `k` when above 0."),
                        }),
                        filter(),
                    ]),
                ),
            ),
        ),
    ];
    others.into_iter().chain(inner_query("NamedLane", "NamedInnerQuery", "NamedLeaf")).collect()
}
