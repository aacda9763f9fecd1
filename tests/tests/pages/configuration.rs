//! The page of `docs/reference` about the keys of configurations, made from the OpenAPI document, which is made from the table of keys.
use crate::ROOT;
use crate::reference::cell;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

fn document() -> Value {
    let text =
        std::fs::read_to_string(Path::new(ROOT).join("net/openapi.json")).expect("the document is there");
    serde_json::from_str(&text).expect("the document is JSON")
}

/// The keys of a collection's configuration under the headings of the page. A test holds that each key is here once.
const GROUPS: [(&str, &[&str]); 9] = [
    ("Vectors", &["dim", "metric", "index_type", "persistent", "partitions"]),
    (
        "Graph (`hnsw`, and the upper levels of `vamana`)",
        &[
            "m",
            "ef_construction",
            "ef_search",
            "traversal_codes",
            "filter_first_relative_bp",
            "extend_candidates",
            "extend_candidates_max",
            "level0_full_degree",
            "seed",
        ],
    ),
    ("Graph after DiskANN (`vamana`)", &["vamana_r", "vamana_l", "vamana_alpha"]),
    (
        "Inverted lists (`ivf`)",
        &[
            "ivf_nlist",
            "ivf_nprobe",
            "ivf_train_threshold",
            "soar",
            "soar_lambda",
            "ivf_pq",
            "ivf_pq_m",
            "ivf_rerank",
            "ivf_drift_retrain",
            "ivf_drift_growth_factor",
            "ivf_drift_factor",
        ],
    ),
    (
        "Quantization",
        &["quant", "rescore_factor", "quantized_build", "sq_bits", "prq_layers", "pq_drop_vecs"],
    ),
    (
        "Product codes (`pq`, `prq` and `ivf_pq`)",
        &["quant_pq_m", "pq_nbits", "opq", "opq_iters", "anisotropic_eta"],
    ),
    ("Ids and payloads", &["ids", "payload_format"]),
    ("Full text", &["full_text"]),
    ("Quotas", &["max_vectors", "max_bytes", "max_inserts_per_second", "max_ef_search"]),
];

/// The keys that only multi-vector collections have.
const OF_DOCUMENTS: [&str; 5] =
    ["first_stage", "encoding_repetitions", "encoding_bits", "encoding_dim", "token_codes"];

/// The type of a schema in words.
fn type_of(schema: &Value) -> String {
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> = values
            .iter()
            .filter(|value| !value.is_null() && **value != "")
            .map(|value| format!("`{}`", value.to_string().trim_matches('"')))
            .collect();
        return values.join(", ");
    }
    let name = match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            names.iter().filter_map(Value::as_str).find(|name| *name != "null").unwrap_or("value").to_owned()
        }
        _ => "object".to_owned(),
    };
    // Bounds that only reflect the width of an integer are left out.
    let bound = |key: &str| {
        schema[key].as_f64().filter(|bound| bound.abs() < 9e18 && (key != "minimum" || *bound != 0.0))
    };
    match (bound("minimum"), bound("maximum")) {
        (Some(low), Some(high)) => format!("{name}, {low} to {high}"),
        (None, Some(high)) => format!("{name}, at most {high}"),
        (Some(low), None) => format!("{name}, from {low}"),
        (None, None) => name,
    }
}

fn rows_of(out: &mut String, properties: &Value, keys: &[&str]) {
    out.push_str("\n| Key | Values | Default | Meaning |\n|---|---|---|---|\n");
    for key in keys {
        let schema = &properties[*key];
        let default = match &schema["default"] {
            Value::Null => String::new(),
            Value::String(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        };
        let about = schema["description"].as_str().unwrap_or_default();
        let _ = writeln!(out, "| `{key}` | {} | {default} | {} |", type_of(schema), cell(about));
    }
}

/// The page of the keys of configurations.
pub fn page() -> String {
    let mut out = String::from(
        "# Configuration of a collection\n\n\
         These are the keys of `config` when a collection is created. Beams of searches and quotas\n\
         [can be changed](../guide/choosing-an-index.md#changing-a-configuration) afterwards. For other keys create another collection, load it,\n\
         and point an [alias](../guide/concepts.md#glossary) at it. Unknown keys are refused. In a collection of named spaces most keys belong to a\n\
         space, and `full_text`, `payload_format`, `ids`, `max_vectors`, `max_bytes` and `max_inserts_per_second` stand beside `named_vectors`. The keys of a multi-vector\n\
         collection are the body of the request. Which index and which quantizer to choose is explained in\n\
         [choosing an index](../guide/choosing-an-index.md) and [quantization](../guide/quantization.md).\n\n\
         This page is generated from the code by `tests/tests/pages/configuration.rs`.\n",
    );
    let document = document();
    let schemas = &document["components"]["schemas"];
    let properties = &schemas["Config"]["properties"];
    for (title, keys) in GROUPS {
        let _ = writeln!(out, "\n## {title}");
        if keys == ["full_text"] {
            let keys: Vec<&str> = schemas["FullText"]["properties"]
                .as_object()
                .expect("keys")
                .keys()
                .map(String::as_str)
                .collect();
            out.push_str("\n`full_text` is an object; `{}` turns full text on with the defaults.\n");
            rows_of(&mut out, &schemas["FullText"]["properties"], &keys);
        } else {
            rows_of(&mut out, properties, keys);
        }
    }
    out.push_str(
        "\n## Multi-vector collections alone\n\nMulti-vector collections have these keys in addition to \
         [some of those above](../guide/multi-vector.md#configuration).\n",
    );
    rows_of(&mut out, &schemas["TokensConfig"]["properties"], &OF_DOCUMENTS);
    out.push_str(
        "\n## The file of `-config`\n\nThe server reads one JSON file, named by `-config`, at its start. It has one key:\n\n\
         ```json example\n{\"cache\": {\"max_memory\": \"8GiB\"}}\n```\n\n\
         `max_memory` is the budget of keys and values of the whole process, at least 2 MiB for each shard (`-shards`). Without it the budget is a\n\
         quarter of the smaller of the machine's memory and the container's limit; where a quarter is less than 2 MiB for each shard, it is raised\n\
         to that, up to a half.\n",
    );
    out
}

#[test]
fn every_key_of_a_configuration_is_in_one_group() {
    let document = document();
    let properties =
        document["components"]["schemas"]["Config"]["properties"].as_object().expect("keys").clone();
    let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, keys)| keys.iter().copied()).collect();
    let mut known: Vec<&str> = properties.keys().map(String::as_str).collect();
    grouped.sort_unstable();
    known.sort_unstable();
    assert_eq!(grouped, known);
    let alone =
        document["components"]["schemas"]["TokensConfig"]["properties"].as_object().expect("keys").keys();
    let alone: Vec<&str> = alone.map(String::as_str).filter(|key| !known.contains(key)).collect();
    assert_eq!(alone, OF_DOCUMENTS);
}
