//! Multi-vector collections: operations, and the schemas that only they have.

use super::config::wanted;
use super::operation::{Operation, operation};
use super::points::{BUILD, count};
use super::requests::{
    content, filter, fusion, hybrid_text, inner_query, k_or_none, lanes, one_or_many, options, points, pool,
    read_options, text, write_options,
};
use super::schema::{
    about, answer, array, body, boolean, double, float, int64, joined, named, natural, nullable, one_of, or,
    point_id, string, uint64, with,
};
use crate::limits;
use nigh_engine::collection::config_keys::{Family, Ints, Key, Kind};
use serde_json::{Map, Value, json};

/// The collection of the examples, and another one that the examples create and drop.
const PAPERS: &str = "papers";
const NOTES: &str = "notes";
/// A collection without documents, which bulk builds need.
const TRAY: &str = "tray";

fn title(text: &str) -> Value {
    json!({"title": {"kind": "string", "str": text}})
}

fn page() -> Value {
    let document =
        json!({"id": 1, "distance": 0, "score": 0, "content": "", "metadata": title("Late interaction")});
    json!({"documents": [document], "degraded": false, "missing": [], "next_cursor": ""})
}

fn writes() -> Vec<Operation> {
    let told = json!({"name": PAPERS, "config": {"dim": 2, "m": 16, "ef_construction": 200, "ef_search": 64,
        "first_stage": "tokens", "index_type": "hnsw", "quant": "none"}});
    let first = json!({"id": 1, "tokens": [[3, 4], [0, 2]], "metadata": {"title": "Late interaction"},
        "sparse": {"indices": [3, 8], "values": [1, 0.5]}});
    let second = json!({"id": 2, "tokens": [[1, 0]], "metadata": {"title": "Pooling"}});
    let many = json!({"docs": [{"id": 3, "tokens": [[0, 1], [1, 1]]}, {"id": 4, "tokens": [[-1, 0]]}]});
    let staged = json!({"docs": [
        {"id": 1, "tokens": [[3, 4], [0, 2]], "metadata": {"title": "Late interaction"}}, {"id": 2, "tokens": [[1, 0]]}
    ]});
    let conditions = json!({"docs": [
        {"id": 1, "tokens": [[3, 4]], "expected_version": 1}, {"id": 2, "tokens": [[1, 0]], "expected_version": 9}
    ]});
    let mv = |method: &'static str, path: &'static str, id: &'static str, summary: &'static str| {
        operation(method, path, id, "multivector", summary).on(PAPERS)
    };
    let name = answer(&[], json!({"name": string()}));
    let gone =
        answer(&[], json!({"dropped": string(), "existed": about("Whether it was there.", boolean())}));
    vec![
        mv("POST", "/v1/multivector/{name}", "createMultiVector", "Create a multi-vector collection")
            .about("Similarity of tokens is always the cosine.")
            .on(NOTES)
            .body("TokensConfig", &[("plain", json!({"dim": 2}))])
            .answer(201, "Created.", &name, &[("plain", json!({"name": NOTES}))])
            .errors(&[409, 507]),
        mv("DELETE", "/v1/multivector/{name}", "dropMultiVector", "Drop a multi-vector collection")
            .about("An unknown name, or one of a collection of another family, is fine, and nothing happens.")
            .on(NOTES)
            .answer(200, "It is gone.", &gone, &[("notes", json!({"dropped": NOTES, "existed": false}))])
            .errors(&[507]),
        mv("GET", "/v1/multivector/{name}/config", "getMultiVectorConfig", "Configuration of a collection")
            .about("An alias of the collection is not known here.")
            .answer(200, "Its configuration.", &named("ToldTokens"), &[("papers", told)])
            .errors(&[404]),
        mv("POST", "/v1/multivector/{name}/docs", "addDocument", "Write a document")
            .about("It replaces a document of this id as a whole: what it leaves out is gone.")
            .body("TokenDocument", &[("first", first), ("second", second)])
            .answer(
                200,
                "Durable.",
                &answer(&["version"], json!({"id": point_id(), "version": uint64()})),
                &[("first", json!({"id": 1})), ("second", json!({"id": 2}))],
            )
            .errors(&[404, 409, 413, 429, 507]),
        mv("POST", "/v1/multivector/{name}/docs/batch", "addDocuments", "Write documents, in order")
            .about("Not atomic: what comes before a document that fails stays written. `wait` cannot be off, nor the factor above 0.")
            .body("TokenBatch", &[("both", many), ("conditions", conditions)])
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
        mv("POST", "/v1/multivector/{name}/docs/bulk", "stageDocuments", "Stage documents")
            .about(
                "Stages documents for the next build. Until then they are held in memory only and are not searched. If the collection already has \
                 documents, the request is refused (409), as a build would be.",
            )
            .on(TRAY)
            .body("TokenStaging", &[("two", staged)])
            .answer(200, "Documents staged by this request.", &count("staged"), &[("two", json!({"staged": 2}))])
            .errors(&[404, 409, 429, 507]),
        mv("POST", "/v1/multivector/{name}/docs/bulk/build", "buildDocuments", BUILD).on(TRAY).builds(),
        mv("DELETE", "/v1/multivector/{name}/docs/{id}", "deleteDocument", "Delete a document")
            .answer(
                200,
                "Whether it was there.",
                &answer(&[], json!({"deleted": boolean()})),
                &[("one", json!({"deleted": true}))],
            )
            .errors(&[404, 409, 507]),
        mv("POST", "/v1/multivector/{name}/docs/delete", "deleteDocuments", "Delete a document, or what matches")
            .about("One document by its `id`; or all that `ids` name or `filter` finds. A filter that matches everything is refused.")
            .body("TokenDelete", &[
                ("one", json!({"id": 2})),
                ("named", json!({"ids": [1, 7]})),
                ("matching", json!({"filter": {"op": "eq", "field": "title", "value": "Late interaction"}})),
            ])
            .answer(
                200,
                "Of one document whether it was there, of many how many there were.",
                &answer(&[], json!({"deleted": {"anyOf": [boolean(), uint64()]}})),
                &[("one", json!({"deleted": true})), ("named", json!({"deleted": 1})), ("matching", json!({"deleted": 1}))],
            )
            .errors(&[404, 409, 507]),
    ]
}

fn payloads() -> Vec<Operation> {
    let change = json!({"rating": 8.5, "key_ttl_ms": {"rating": 60_000}});
    let change = |method: &'static str, path: &'static str, id: &'static str, summary: &'static str| {
        operation(method, path, id, "multivector", summary)
            .body("PayloadChange", &[("rating", change.clone())])
    };
    let rows = [
        change("POST", "/v1/multivector/{name}/points/{id}/payload", "mergeDocumentPayload", "Set payload keys"),
        change("PUT", "/v1/multivector/{name}/points/{id}/payload", "putDocumentPayload", "Replace a payload"),
        change(
            "POST",
            "/v1/multivector/{name}/points/{id}/payload/overwrite",
            "overwriteDocumentPayload",
            "Replace a payload, as `PUT` does",
        ),
        operation(
            "POST",
            "/v1/multivector/{name}/points/{id}/payload/delete",
            "deleteDocumentPayloadKeys",
            "multivector",
            "Delete payload keys",
        )
        .body("PayloadKeys", &[("rating", json!({"keys": ["title"]}))]),
        operation(
            "POST",
            "/v1/multivector/{name}/points/{id}/payload/clear",
            "clearDocumentPayload",
            "multivector",
            "Empty a payload",
        )
        .about("Of a body that is an object `expected_version` and the other options count; any other is ignored."),
    ];
    rows.into_iter()
        .map(|row| {
            row.on(PAPERS)
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
    let stored = |mut document: Value, tokens: Value, text: &str| {
        document["tokens"] = tokens;
        document["payload"] = title(text);
        document["version"] = json!(1);
        document
    };
    let found = stored(json!({"found": true}), json!([[0.6, 0.8], [0.0, 1.0]]), "Late interaction");
    let second = stored(json!({"id": 2}), json!([[1.0, 0.0]]), "Pooling");
    let late = || json!({"op": "eq", "field": "title", "value": "Late interaction"});
    let counted = |text: &str| json!({"value": {"kind": "string", "str": text}, "count": 1});
    let read = |path: &'static str, id: &'static str, summary: &'static str| {
        operation("POST", path, id, "multivector", summary).on(PAPERS).errors(&[404])
    };
    let mut first = page();
    first["next_cursor"] = json!("AQAAAAAAAAAB");
    vec![
        operation(
            "GET",
            "/v1/multivector/{name}/points/{id}",
            "getDocument",
            "multivector",
            "Read a document",
        )
        .about("Its token vectors have length one.")
        .on(PAPERS)
        .answer(200, "The document.", &named("FoundTokens"), &[("one", found)])
        .errors(&[404]),
        read("/v1/multivector/{name}/points/batch-get", "getDocuments", "Read documents by id")
            .body("BatchGet", &[("two", json!({"ids": [2, 404]}))])
            .answer(
                200,
                "In the order of the request.",
                &named("StoredTokensList"),
                &[("two", json!({"points": [second], "missing": [404]}))],
            ),
        read("/v1/multivector/{name}/scroll", "scrollDocuments", "Read all that match")
            .body("Scroll", &[("by_id", json!({"limit": 1}))])
            .answer(200, "A page.", &named("ScrollPage"), &[("by_id", first)]),
        read("/v1/multivector/{name}/count", "countDocuments", "Count what matches")
            .body("Count", &[("late", json!({"filter": late()}))])
            .answer(
                200,
                "How many.",
                &answer(&[], json!({"count": uint64()})),
                &[("late", json!({"count": 1}))],
            ),
        read("/v1/multivector/{name}/facet", "facetDocuments", "Count values of a key")
            .body("Facet", &[("titles", json!({"key": "title", "limit": 2}))])
            .answer(
                200,
                "The most frequent first.",
                &named("Facets"),
                &[("titles", json!({"facets": [counted("Late interaction"), counted("Pooling")]}))],
            ),
        read("/v1/multivector/{name}/sample", "sampleDocuments", "Draw documents at random")
            .body("Sample", &[("late", json!({"limit": 1, "seed": 7, "filter": late()}))])
            .answer(200, "Their documents.", &named("ScrollPage"), &[("late", page())]),
    ]
}

fn searches() -> Vec<Operation> {
    let search = |path: &'static str, id: &'static str, summary: &'static str| {
        operation("POST", path, id, "multivector", summary).on(PAPERS).errors(&[404])
    };
    let words = || json!({"indices": [8], "values": [2]});
    let both = json!({"query": [[0, 1]], "sparse": words(), "k": 1});
    let lanes = json!({"prefetch": [{"maxsim": [[0, 1]]}, {"sparse": words()}], "k": 1});
    let fused = json!({"results": [{"id": 1, "distance": 0, "score": 0.032786883}]});
    vec![
        search("/v1/multivector/{name}/search", "searchMultiVector", "The best documents by their tokens")
            .about(
                "The score of a document is a sum over the tokens of the query: of each the largest cosine with any token of the document \
                 (MaxSim). Scores are exact; which documents are scored is approximate in large collections.",
            )
            .body("TokenSearch", &[("best", json!({"query": [[5, 0]], "k": 1}))])
            .answer(
                200,
                "The best first.",
                &named("ScoredDocuments"),
                &[(
                    "best",
                    json!({"results": [{"id": 2, "score": 1.0, "metadata": title("Pooling")}],
                        "degraded": false, "missing": []}),
                )],
            ),
        search("/v1/multivector/{name}/hybrid-search", "hybridSearchMultiVector", "By tokens and a sparse vector")
            .body("TokenHybridSearch", &[("both", both)])
            .answer(200, "The best first.", &named("NamedHits"), &[("both", fused.clone())]),
        search("/v1/multivector/{name}/query", "queryMultiVector", "By any lanes, fused or ranked anew")
            .body("TokenQuery", &[("lanes", lanes)])
            .answer(
                200,
                "The best first.",
                &json!({"oneOf": [named("Hits"), named("Groups")]}),
                &[("lanes", with(fused, json!({"degraded": false, "missing": []})))],
            ),
    ]
}

fn placement() -> Vec<Operation> {
    let partitions = || [("four", json!({"new_partitions": 4}))];
    let manage = |path: &'static str, id: &'static str, summary: &'static str| {
        operation("POST", path, id, "multivector", summary)
            .about("This build does not partition. An alias of the collection is not known here.")
            .on(PAPERS)
            .errors(&[404, 412])
    };
    vec![
        manage("/v1/multivector/{name}/resplit", "resplitMultiVector", "Split anew, without writes")
            .body("Partitions", &partitions()),
        manage(
            "/v1/multivector/{name}/resplit/cleanup",
            "cleanUpMultiVectorResplit",
            "Drop orphaned partitions",
        ),
        manage("/v1/multivector/{name}/reshard", "reshardMultiVector", "Split anew, with writes going on")
            .body("Partitions", &partitions()),
        manage("/v1/multivector/{name}/reshard/abort", "abortMultiVectorReshard", "Give a split up"),
    ]
}

/// The rows of the table.
pub fn operations() -> Vec<Operation> {
    let all = [writes(), reads(), payloads(), searches(), placement()];
    all.into_iter().flatten().collect()
}

pub fn told() -> Value {
    let keys: Map<String, Value> = Key::of(Family::MultiVector)
        .map(|key| {
            let schema = match key.kind() {
                Kind::Bool => boolean(),
                Kind::Float(_) => double(),
                Kind::Words(words) => one_of(&words.iter().map(|word| word.name).collect::<Vec<_>>()),
                Kind::Object(_) | Kind::Int(Ints::Within(0, _)) => super::config::told(key),
                _ => int64(),
            };
            (key.name().to_owned(), schema)
        })
        .collect();
    let optional: Vec<String> = keys.keys().filter(|key| *key != Key::Dim.name()).cloned().collect();
    let optional: Vec<&str> = optional.iter().map(String::as_str).collect();
    about("`dim` and every other key that is neither 0 nor off.", answer(&optional, Value::Object(keys)))
}

fn token() -> Value {
    with(array(float()), json!({"minItems": 1, "maxItems": limits::DIM_MAX}))
}

fn query_tokens() -> Value {
    about(
        "Vectors of the tokens of the query, each as long as the `dim` of the collection; none means no such lane.",
        with(array(token()), json!({"maxItems": limits::QUERY_TOKENS_MAX})),
    )
}

/// The keys of a document that is written.
fn document() -> Value {
    joined(&[
        json!({
            "id": about("Absent means 0; a string must be sent in collections with `ids` `string`.", or(0, point_id())),
            "tokens": about(
                "Vectors of its tokens, each as long as the `dim` of the collection.",
                with(array(token()), json!({"minItems": 1, "maxItems": limits::TOKENS_MAX})),
            ),
            "content": content(),
            "metadata": named("Payload"),
            "sparse": named("Sparse"),
            "key_ttl_ms": named("KeyDeadlines"),
            "expected_version": about("Version the document must have, 0 = absent.", uint64()),
        }),
        write_options(),
    ])
}

fn stored() -> Value {
    json!({
        "tokens": about(
            "`null` when they were not asked for. The sparse vector is not returned.",
            nullable(array(array(double()))),
        ),
        "payload": about("`null` when it is empty or was not asked for.", nullable(named("StoredPayload"))),
        "version": uint64(),
    })
}

/// The components of this file.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let search = |keys: Value| body(&[], joined(&[keys, filter(), options(), read_options()]));
    let scored = answer(
        &["metadata", "tokens"],
        json!({
            "id": point_id(),
            "score": about("Larger is better.", double()),
            "metadata": about("Absent when it is empty.", named("StoredPayload")),
            "tokens": about("If `with_vector` asks for them.", array(array(double()))),
        }),
    );
    let config: Map<String, Value> =
        Key::of(Family::MultiVector).map(|key| (key.name().to_owned(), wanted(key))).collect();
    let others = vec![
        ("TokensConfig", body(&[Key::Dim.name()], config.into())),
        ("ToldTokens", answer(&[], json!({"name": string(), "config": told()}))),
        ("TokenDocument", body(&["tokens"], document())),
        ("TokenBatchDocument", {
            let mut keys = document();
            keys["write_consistency_factor"] = json!({"type": "integer", "enum": [0]});
            keys["wait"] = json!({"const": true});
            body(&["tokens"], keys)
        }),
        ("TokenStagedDocument", {
            let mut keys = document();
            keys["key_ttl_ms"] = json!({"type": "object", "maxProperties": 0});
            keys["expected_version"] = json!({"type": "null"});
            keys["write_consistency_factor"] = about("Ignored.", int64());
            keys["wait"] = about("Ignored.", boolean());
            body(&["tokens"], keys)
        }),
        ("TokenStaging", body(&["docs"], json!({"docs": points("TokenStagedDocument")}))),
        ("TokenBatch", body(&["docs"], json!({"docs": points("TokenBatchDocument")}))),
        ("TokenDelete", one_or_many()),
        ("FoundTokens", answer(&[], joined(&[json!({"found": {"const": true}}), stored()]))),
        ("StoredTokens", answer(&[], joined(&[json!({"id": point_id()}), stored()]))),
        (
            "StoredTokensList",
            answer(&[], json!({"points": array(named("StoredTokens")), "missing": array(point_id())})),
        ),
        ("ScoredDocument", scored),
        (
            "ScoredDocuments",
            answer(
                &["explain"],
                json!({
                    "results": array(named("ScoredDocument")),
                    "degraded": about("Partitions are missing from the answer; never on one node.", boolean()),
                    "missing": about("Which partitions.", array(natural())),
                    "explain": named("Explanation"),
                }),
            ),
        ),
        (
            "TokenSearch",
            search(json!({
                "query": query_tokens(),
                "k": k_or_none(),
                "candidates_per_token": about(
                    "Nearest tokens that each token of the query looks for, whose documents are then scored; below 1 means four times `k`, at \
                     least 50. With a filter more are looked for, in proportion to how few documents match. A value that is given is the beam width of these \
                     searches as well. With `first_stage` `encodings` it is the number of documents that the one search of the \
                     index looks for, and below 1 means thirty times `k`, at least 300.",
                    int64(),
                ),
            })),
        ),
        (
            "TokenHybridSearch",
            search(joined(&[
                json!({
                    "query": query_tokens(),
                    "sparse": named("Sparse"),
                    "k": k_or_none(),
                    "dense_k": pool("token"),
                    "sparse_k": pool("sparse"),
                }),
                hybrid_text(),
                fusion(),
            ])),
        ),
        (
            "TokenQuery",
            body(
                &["prefetch"],
                joined(&[
                    json!({
                        "root": named("TokenLeaf"),
                        "prefetch": lanes("TokenLane"),
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
            "TokenLeaf",
            about(
                "One lane. A sparse vector that is not empty counts before a text, and a text before token vectors.",
                body(
                    &[],
                    joined(&[
                        json!({
                            "maxsim": query_tokens(),
                            "sparse": named("Sparse"),
                            "k": about("Hits the lane contributes; below 1 means as many as the result needs, at least 50.", int64()),
                            "lane_k": about("Likewise, over `k` when above 0.", int64()),
                        }),
                        text(),
                        filter(),
                    ]),
                ),
            ),
        ),
    ];
    others.into_iter().chain(inner_query("TokenLane", "TokenInnerQuery", "TokenLeaf")).collect()
}
