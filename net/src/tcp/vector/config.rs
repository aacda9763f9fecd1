//! The result of `vector_get_config`: a configuration as JSON.
//!
//! Keys in capitals are always there, the others only with a value that is not zero; kinds are the codes
//! that create takes. Keys that would be about other servers' files are there and say nothing.

use nigh_engine::collection::{DenseConfig, IndexType, Quantizer};
use nigh_engine::distance::Metric;
use nigh_engine::quantizer::Quantization;
use serde_json::{Map, Value, json};

/// Appends the result of `vector_get_config`.
pub fn put_config(out: &mut Vec<u8>, config: &DenseConfig) {
    let mut object = always(config);
    let mut add = |key: &str, value: Value| {
        if value != json!(0) && value != json!(0.0) && value != json!(false) {
            object.insert(key.to_owned(), value);
        }
    };
    for (key, value) in quantizer(config) {
        add(key, value);
    }
    for (key, value) in index(&config.index) {
        add(key, value);
    }
    if let Some(text) = &config.full_text {
        add("full_text", json!({"analyzer": "english", "k1": text.k1, "b": text.b}));
    }
    crate::rest::value::write_json(out, &object);
}

fn always(config: &DenseConfig) -> Map<String, Value> {
    let metric = match config.metric {
        Metric::Cosine => 0,
        Metric::L2 => 1,
        Metric::Dot => 2,
    };
    let quant = match config.quant {
        Quantizer::None => 0,
        Quantizer::Sq8 => 1,
        Quantizer::Trained(Quantization::Sign) => 2,
        Quantizer::Trained(Quantization::Product { .. }) => 3,
        Quantizer::Trained(Quantization::Scalar { .. }) => 4,
        Quantizer::Trained(Quantization::Residual { .. }) => 5,
    };
    let object = json!({
        "Dim": config.dim, "Metric": metric, "M": config.m, "EfConstruction": config.ef_construction,
        "EfSearch": config.ef_search, "Seed": config.seed, "SweepInterval": 0, "SuppressSweep": false,
        "MaxVectors": config.max_vectors, "MaxBytes": config.max_bytes,
        "MaxInsertsPerSecond": config.max_inserts_per_second, "MaxEfSearch": config.max_ef_search,
        "Quant": quant, "RescoreFactor": config.rescore_factor, "QuantStorage": 0, "MmapPath": "",
        "Persistent": config.persistent, "WAL": "", "WALNoSync": false, "GraphMmapPath": "",
        "FilterFirstThreshold": 0, "FilterFirstRelativeBP": config.filter_first_relative_bp,
        "ExtendCandidates": config.extend_candidates, "ExtendCandidatesMax": config.extend_candidates_max,
        "Level0FullDegree": config.level0_full_degree, "QuantizedBuild": config.quantized_build,
        "Partitions": 0,
    });
    match object {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// Whether vectors are rotated first, and in how many rounds that is learned.
fn rotated(rotations: usize) -> [(&'static str, Value); 2] {
    [("opq", json!(rotations > 0)), ("opq_iters", json!(rotations))]
}

fn quantizer(config: &DenseConfig) -> Vec<(&'static str, Value)> {
    let Quantizer::Trained(quantization) = config.quant else { return Vec::new() };
    let mut found = vec![("ivf_train_threshold", json!(config.train_threshold))];
    match quantization {
        Quantization::Sign => {}
        Quantization::Scalar { width } => found.push(("sq_bits", json!(width.bits()))),
        Quantization::Product { parts, bits, rotations, eta } => {
            found.extend([("quant_pq_m", json!(parts)), ("pq_nbits", json!(bits))]);
            found.extend(rotated(rotations));
            found.push(("anisotropic_eta", json!(eta)));
        }
        Quantization::Residual { parts, layers, rotations } => {
            found.extend([("quant_pq_m", json!(parts)), ("prq_layers", json!(layers))]);
            found.extend(rotated(rotations));
        }
    }
    found
}

fn index(index: &IndexType) -> Vec<(&'static str, Value)> {
    match index {
        IndexType::Hnsw => Vec::new(),
        IndexType::Gpu => vec![("index_type", json!(3))],
        IndexType::Vamana(vamana) => vec![
            ("index_type", json!(2)),
            ("vamana_r", json!(vamana.degree)),
            ("vamana_l", json!(vamana.beam)),
            ("vamana_alpha", json!(vamana.alpha)),
        ],
        IndexType::Ivf(ivf) => {
            let mut found = vec![
                ("index_type", json!(1)),
                ("ivf_nlist", json!(ivf.nlist)),
                ("ivf_nprobe", json!(ivf.nprobe)),
                ("ivf_train_threshold", json!(ivf.train_threshold)),
                ("soar", json!(ivf.soar.is_some())),
                ("soar_lambda", json!(ivf.soar.unwrap_or(0.0))),
            ];
            if let Some(drift) = ivf.drift {
                found.extend([
                    ("ivf_drift_retrain", json!(true)),
                    ("ivf_drift_growth_factor", json!(drift.growth)),
                    ("ivf_drift_factor", json!(drift.factor)),
                ]);
            }
            if let Some(product) = &ivf.product {
                found.extend([
                    ("ivf_pq", json!(true)),
                    ("ivf_rerank", json!(product.rerank)),
                    ("ivf_pq_m", json!(product.code.parts)),
                    ("pq_nbits", json!(product.code.bits)),
                    ("anisotropic_eta", json!(product.code.eta)),
                ]);
                found.extend(rotated(product.code.rotations));
            }
            found
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::collections::ConfigBody;
    use crate::rest::json::decode;

    fn written(config: &DenseConfig) -> Map<String, Value> {
        let mut out = Vec::new();
        put_config(&mut out, config);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn of_a_plain_collection_are_only_the_keys_that_are_always_there() {
        let object = written(&DenseConfig::new(8, Metric::L2));
        assert!(
            object.len() == 27
                && object.keys().all(|key| key.starts_with(|first: char| first.is_uppercase()))
        );
        assert_eq!((&object["Dim"], &object["Metric"], &object["Quant"]), (&json!(8), &json!(1), &json!(0)));
    }

    /// What is added to the names of kinds makes the configuration again.
    #[test]
    fn other_keys_are_those_of_create() {
        for json in [
            r#"{"dim":48,"index_type":"vamana","vamana_r":16,"vamana_l":50,"vamana_alpha":1.5}"#,
            r#"{"dim":48,"quant":"sq","sq_bits":6,"ivf_train_threshold":300}"#,
            r#"{"dim":48,"quant":"pq","quant_pq_m":6,"pq_nbits":4,"opq":true,"opq_iters":3,"anisotropic_eta":2}"#,
            r#"{"dim":48,"quant":"prq","quant_pq_m":6,"prq_layers":3}"#,
            r#"{"dim":48,"index_type":"ivf","ivf_nlist":7,"ivf_nprobe":2,"soar":true,"soar_lambda":2.5,
                "ivf_drift_retrain":true,"ivf_drift_growth_factor":3,"ivf_drift_factor":2}"#,
            r#"{"dim":48,"index_type":"ivf","ivf_pq":true,"ivf_pq_m":6,"pq_nbits":4,"ivf_rerank":true,"opq":true}"#,
            r#"{"dim":48,"index_type":"gpu","full_text":{"k1":1.5,"b":0.5}}"#,
        ] {
            let config = |json: &[u8]| decode::<ConfigBody>(json).and_then(ConfigBody::into_config).unwrap();
            let made = config(json.as_bytes());
            let mut object = written(&made);
            let code = |name: &str| object.get(name).and_then(Value::as_u64).unwrap_or(0) as usize;
            let index_type = ["hnsw", "ivf", "vamana", "gpu"][code("index_type")];
            let quant = ["none", "sq8", "bq1", "pq", "sq", "prq"][code("Quant")];
            object.retain(|key, _| key.starts_with(|first: char| first.is_lowercase()));
            object.extend([
                ("dim".to_owned(), json!(48)),
                ("index_type".to_owned(), json!(index_type)),
                ("quant".to_owned(), json!(quant)),
            ]);
            assert_eq!(config(&serde_json::to_vec(&object).unwrap()), made, "{json}");
        }
    }
}
