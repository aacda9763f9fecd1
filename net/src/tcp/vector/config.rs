//! The result of `vector_get_config`: a configuration as JSON.
//!
//! Keys in capitals are always there. The others are there only with a value that is not zero, a switch that is on by default only when it is
//! off; kinds are the codes that create takes. Keys that would be about other servers' files are there and say nothing.

use crate::wire::config::object;
use nigh_engine::collection::DenseConfig;
use nigh_engine::collection::config_keys::{Family, Key, Value as KeyValue};
use nigh_shard::collection_file::to_json;
use serde_json::{Map, Value};

/// What is told under a name of the protocol.
enum Source {
    Of(Key),
    Fixed(KeyValue),
}

use Source::{Fixed, Of};

#[rustfmt::skip]
const ALWAYS: [(&str, Source); 27] = {
    use Key::*;
    use KeyValue::{Bool, Int, Word};
    [
        ("Dim", Of(Dim)), ("Metric", Of(Metric)), ("M", Of(M)),
        ("EfConstruction", Of(EfConstruction)), ("EfSearch", Of(EfSearch)), ("Seed", Of(Seed)),
        ("SweepInterval", Fixed(Int(0))), ("SuppressSweep", Fixed(Bool(false))),
        ("MaxVectors", Of(MaxVectors)), ("MaxBytes", Of(MaxBytes)),
        ("MaxInsertsPerSecond", Of(MaxInsertsPerSecond)), ("MaxEfSearch", Of(MaxEfSearch)),
        ("Quant", Of(Quant)), ("RescoreFactor", Of(RescoreFactor)),
        ("QuantStorage", Fixed(Int(0))), ("MmapPath", Fixed(Word(""))), ("Persistent", Of(Persistent)),
        ("WAL", Fixed(Word(""))), ("WALNoSync", Fixed(Bool(false))), ("GraphMmapPath", Fixed(Word(""))),
        ("FilterFirstThreshold", Fixed(Int(0))), ("FilterFirstRelativeBP", Of(FilterFirstRelativeBp)),
        ("ExtendCandidates", Of(ExtendCandidates)), ("ExtendCandidatesMax", Of(ExtendCandidatesMax)),
        ("Level0FullDegree", Of(Level0FullDegree)), ("QuantizedBuild", Of(QuantizedBuild)),
        ("Partitions", Of(Partitions)),
    ]
};

/// The order of the other keys, older than the table: those of a quantizer, unless the index is one of cells, and of an index.
#[rustfmt::skip]
const OF_QUANTIZER: &[Key] = {
    use Key::*;
    &[
        IvfTrainThreshold, SqBits, QuantPqM, PqNbits, PrqLayers, Opq, OpqIters, AnisotropicEta,
    ]
};
#[rustfmt::skip]
const OF_INDEX: &[Key] = {
    use Key::*;
    &[
        IndexType, IvfNlist, IvfNprobe, IvfTrainThreshold, Soar, SoarLambda, IvfDriftRetrain,
        IvfDriftGrowthFactor, IvfDriftFactor, IvfPq, IvfRerank, IvfPqM, PqNbits, AnisotropicEta, Opq,
        OpqIters,
    ]
};

/// Appends the result of `vector_get_config`.
pub fn put_config(out: &mut Vec<u8>, config: &DenseConfig) {
    let mut result = Map::new();
    for (name, source) in ALWAYS {
        let value = match source {
            Of(key) => coded(key, config),
            Fixed(value) => value,
        };
        result.insert(name.to_owned(), to_json(value));
    }
    let is_there = |key: &Key| ALWAYS.iter().any(|(_, source)| matches!(source, Of(other) if other == key));
    let first = if config.ivf().is_some() { &[] } else { OF_QUANTIZER };
    let others = first.iter().copied().chain(Key::of_with_first(Family::Dense, OF_INDEX));
    for key in others.filter(|key| !is_there(key)) {
        let value = coded(key, config);
        let usual = key.default().filter(|value| value.as_bool().is_some()).unwrap_or(key.zero());
        if value != usual && value != KeyValue::Int(0) {
            let value = object(key, config).map_or_else(|| to_json(value), Value::Object);
            result.insert(key.name().to_owned(), value);
        }
    }
    crate::wire::value::write_json(out, &result);
}

/// The value of a key as it was given, words as their codes.
fn coded(key: Key, config: &DenseConfig) -> KeyValue {
    let value = key.get(config).unwrap_or(key.zero());
    let word = key.words().iter().find(|word| value == KeyValue::Word(word.name));
    word.map_or(value, |word| KeyValue::Int(word.code.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::config::WireConfig;
    use crate::wire::json::decode;
    use nigh_engine::distance::Metric;
    use serde_json::json;

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
            r#"{"dim":48,"quant":"pq","quant_pq_m":6,"pq_drop_vecs":true}"#,
            r#"{"dim":48,"traversal_codes":false}"#,
            r#"{"dim":48,"index_type":"ivf","ivf_nlist":7,"ivf_nprobe":2,"soar":true,"soar_lambda":2.5,
                "ivf_drift_retrain":true,"ivf_drift_growth_factor":3,"ivf_drift_factor":2}"#,
            r#"{"dim":48,"index_type":"ivf","ivf_pq":true,"ivf_pq_m":6,"pq_nbits":4,"ivf_rerank":true,"opq":true}"#,
            r#"{"dim":48,"index_type":"gpu","full_text":{"k1":1.5,"b":0.5}}"#,
        ] {
            let config = |json: &[u8]| decode::<WireConfig>(json).and_then(WireConfig::into_config).unwrap();
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
