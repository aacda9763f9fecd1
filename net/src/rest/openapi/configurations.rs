//! Configurations of collections: how they are read alone and changed.

use super::config::{self, wanted};
use super::named::by_space;
use super::operation::{Operation, operation};
use super::schema::{about, answer, body, joined, named, string, with};
use crate::wire::info::configuration;
use nigh_engine::collection::DenseConfig;
use nigh_engine::collection::config_keys::{Family, Key};
use nigh_engine::distance::Metric;
use nigh_engine::text::TextConfig;
use serde_json::{Map, Value, json};

/// The collections of the examples.
const INBOX: &str = "inbox";
const SCENES: &str = "scenes";
const PAPERS: &str = "papers";

const CHANGED: &str = "Keys that are not sent keep their values, and so does a key with `null`. The change is durable, and searches and \
    writes that begin after the answer go by it. Points beyond a quota that is smaller now stay; only more of them are refused. Any other \
    key than those of the schema is refused, also with the value that it has. An alias of the collection is refused.";

/// The rows of the table.
pub fn operations() -> Vec<Operation> {
    let films = DenseConfig { full_text: Some(TextConfig::default()), ..DenseConfig::new(2, Metric::L2) };
    let mut films = configuration(&films);
    // In as many digits as a reader wants to see.
    films["full_text"]["k1"] = json!(1.2);
    let inbox = DenseConfig {
        m: 8,
        seed: 7,
        ef_search: 200,
        max_vectors: 1_000_000,
        ..DenseConfig::new(2, Metric::Cosine)
    };
    let inbox = configuration(&inbox);
    let dense = |dim: u64, ef: u64| json!({"dim": dim, "metric": 1, "m": 16, "ef_construction": 200, "ef_search": ef});
    let scenes = json!({"name": SCENES, "named_vectors": {
        "image": dense(2, 64), "title": dense(3, 200), "words": {"dim": 0, "sparse": true}
    }});
    let papers = json!({"name": PAPERS, "config": {"dim": 2, "first_stage": "tokens", "m": 16, "ef_construction": 200, "ef_search": 200,
        "index_type": "hnsw", "quant": "none"}});
    vec![
        operation(
            "GET",
            "/v1/collections/{name}/config",
            "getConfig",
            "collections",
            "Configuration of a collection",
        )
        .answer(
            200,
            "All keys, defaults filled in.",
            &named("ToldConfig"),
            &[("films", json!({"name": "films", "config": films}))],
        )
        .errors(&[404]),
        operation(
            "PATCH",
            "/v1/collections/{name}/config",
            "changeConfig",
            "collections",
            "Change a configuration",
        )
        .about(CHANGED)
        .on(INBOX)
        .body("ConfigChange", &[("wider", json!({"ef_search": 200, "max_vectors": 1_000_000}))])
        .answer(
            200,
            "All keys as they are now.",
            &named("ToldConfig"),
            &[("wider", json!({"name": INBOX, "config": inbox}))],
        )
        .errors(&[404, 507]),
        operation(
            "PATCH",
            "/v1/named/{name}/config",
            "changeNamedConfig",
            "named",
            "Change configurations of spaces",
        )
        .about(CHANGED)
        .on(SCENES)
        .body("SpacesChange", &[("wider", json!({"named_vectors": {"title": {"ef_search": 200}}}))])
        .answer(200, "The spaces as they are now.", &named("NamedConfig"), &[("wider", scenes)])
        .errors(&[404, 507]),
        operation(
            "PATCH",
            "/v1/multivector/{name}/config",
            "changeMultiVectorConfig",
            "multivector",
            "Change a configuration",
        )
        .about(CHANGED)
        .on(PAPERS)
        .body("TokensChange", &[("wider", json!({"ef_search": 200}))])
        .answer(200, "Its configuration as it is now.", &named("ToldTokens"), &[("wider", papers)])
        .errors(&[404, 507]),
    ]
}

/// The keys of a family that can be changed, at least one of them.
fn change(family: Family) -> Value {
    let keys: Map<String, Value> =
        Key::live_of(family).map(|key| (key.name().to_owned(), wanted(key))).collect();
    with(body(&[], keys.into()), json!({"minProperties": 1}))
}

/// The components.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let spaces = with(by_space(named("SpaceChange")), json!({"minProperties": 1}));
    vec![
        ("ToldConfig", answer(&[], json!({"name": string(), "config": config::information()}))),
        ("ConfigChange", change(Family::Dense)),
        ("SpaceChange", about("Of a dense space.", change(Family::Named))),
        ("SpacesChange", {
            let live = Key::of_whole().filter(|key| key.is_live());
            let whole: Map<String, Value> = live.map(|key| (key.name().to_owned(), wanted(key))).collect();
            let all = joined(&[json!({"named_vectors": spaces}), whole.into()]);
            with(body(&[], all), json!({"minProperties": 1}))
        }),
        ("TokensChange", change(Family::MultiVector)),
    ]
}
