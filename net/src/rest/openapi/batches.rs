//! Batches of searches, which every family has in the same form.

use super::operation::{Operation, operation};
use super::requests::{filter, k_or_none, options, read_options};
use super::schema::{about, answer, array, body, filled, float, integer, joined, named, string, with};
use crate::limits;
use serde_json::{Value, json};

const ABOUT: &str = "Carries out up to 65,536 searches, eight at a time. Each gets the answer that it would get as a request of its own. A search that is refused gets `error` and `status` in its place; the others are carried out.";

const SEARCHES: &str = "`RVS1`, for searches that differ in their vectors alone, all numbers big-endian: magic `RVS1`, flags u32 (0), count u32 \
    (at most 65,536), dim u32 (at most 65,536), length u32 (at most 1,088 KiB) and that many bytes of JSON, an object with the keys of a \
    search but `query`; then count times dim f32.";

/// The one nearest to (0.5, 2); every byte of these numbers is below 128.
const NEAREST: &str = "RVS1\0\0\0\0\0\0\0\u{1}\0\0\0\u{2}\0\0\0\u{7}{\"k\":1}?\0\0\0@\0\0\0";

fn batch(path: &'static str, id: &'static str, tag: &'static str, collection: &'static str) -> Operation {
    operation("POST", path, id, tag, "Many searches").about(ABOUT).on(collection).errors(&[404])
}

fn searches(of: Value) -> Value {
    json!({ "searches": of })
}

fn answers(of: Value) -> Value {
    json!({ "results": of })
}

/// The rows of the table.
pub fn operations() -> Vec<Operation> {
    let found = |distance: Value| json!([{"id": 3, "distance": distance, "score": 0}]);
    let whole = |found: Value| json!({"results": found, "degraded": false, "missing": []});
    let refused = json!({"error": "vector: dimension mismatch: expected 2, found 1", "status": 400});
    let in_space = |id: u64, distance: Value, score: Value| json!({"results": [{"id": id, "distance": distance, "score": score}]});
    let pooling =
        json!([{"id": 2, "score": 1.0, "metadata": {"title": {"kind": "string", "str": "Pooling"}}}]);
    vec![
        batch("/v1/collections/{name}/points/search/batch", "searchBatch", "searches", "films")
            .body(
                "SearchBatch",
                &[("two", searches(json!([{"query": [0.5, 2], "k": 1}, {"query": [0.5], "k": 1}])))],
            )
            .binary(SEARCHES, NEAREST)
            .answer(
                200,
                "In the order of the searches.",
                &named("SearchAnswers"),
                &[
                    ("two", answers(json!([whole(found(json!(0.25))), refused]))),
                    ("binary", answers(json!([whole(found(json!(0.25)))]))),
                ],
            ),
        batch("/v1/named/{name}/search/batch", "searchNamedBatch", "named", "scenes")
            .body(
                "NamedSearchBatch",
                &[(
                    "two",
                    searches(json!([
                        {"vector_name": "image", "query": [0.5, 0], "k": 1},
                        {"vector_name": "words", "query": {"indices": [8], "values": [2]}, "k": 1}
                    ])),
                )],
            )
            .answer(
                200,
                "In the order of the searches.",
                &named("NamedSearchAnswers"),
                &[(
                    "two",
                    answers(json!([in_space(1, json!(0.25), json!(0)), in_space(1, json!(0.0), json!(1.0))])),
                )],
            ),
        batch("/v1/multivector/{name}/search/batch", "searchMultiVectorBatch", "multivector", "papers")
            .body("TokenSearchBatch", &[("one", searches(json!([{"query": [[5, 0]], "k": 1}])))])
            .answer(
                200,
                "In the order of the searches.",
                &named("TokenSearchAnswers"),
                &[("one", answers(json!([whole(pooling)])))],
            ),
    ]
}

/// The components of this file.
pub fn schemas() -> Vec<(&'static str, Value)> {
    // A query is told by its lanes.
    let batch = |search: &str, query: &str| {
        let each = json!({"oneOf": [named(search), named(query)]});
        let searches = with(array(each), json!({"maxItems": limits::SEARCHES_MAX}));
        body(&[], json!({ "searches": searches }))
    };
    let answers = |of: &[&str]| {
        let of: Vec<Value> =
            of.iter().chain(&["Groups", "RefusedSearch"]).map(|schema| named(schema)).collect();
        // An answer without hits may fit several of these.
        let each = json!({ "anyOf": of });
        answer(&[], json!({"results": array(each)}))
    };
    let query = json!({"oneOf": [about("In a dense space.", array(float())), named("Sparse")]});
    vec![
        ("SearchBatch", batch("Search", "Query")),
        ("NamedSearchBatch", batch("NamedBatchSearch", "NamedQuery")),
        (
            "NamedBatchSearch",
            body(
                &["vector_name", "query"],
                joined(&[
                    json!({"vector_name": about("Name of the space.", filled()), "query": query, "k": k_or_none()}),
                    filter(),
                    options(),
                    read_options(),
                ]),
            ),
        ),
        ("TokenSearchBatch", batch("TokenSearch", "TokenQuery")),
        ("SearchAnswers", answers(&["Hits"])),
        ("NamedSearchAnswers", answers(&["NamedHits", "Hits"])),
        ("TokenSearchAnswers", answers(&["ScoredDocuments", "Hits"])),
        (
            "RefusedSearch",
            answer(
                &[],
                json!({
                    "error": string(),
                    "status": about("That of the search as a request of its own.", integer(400, 599)),
                }),
            ),
        ),
    ]
}
