//! `collection.json`: a collection's identity and configuration, written once at create.

use crate::sealed_json::{self, Layout, Unreadable};
use nigh_engine::collection::{
    DenseConfig, Drift, IndexType, IvfConfig, IvfProduct, Quantizer, VamanaConfig,
};
use nigh_engine::distance::{Metric, Width};
use nigh_engine::quantizer::{CellProduct, Quantization};
use nigh_engine::text::TextConfig;
use serde::{Deserialize, Serialize};

/// File name inside the collection's directory.
pub const FILE: &str = "collection.json";
/// Newest format this build reads and the one it writes.
pub const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct FileV1 {
    uid: u64,
    name: String,
    dim: usize,
    metric: String,
    m: usize,
    ef_construction: usize,
    ef_search: usize,
    seed: i64,
    level0_full_degree: bool,
    extend_candidates: bool,
    extend_candidates_max: usize,
    max_vectors: u64,
    max_bytes: u64,
    max_inserts_per_second: u64,
    max_ef_search: usize,
    // Keys that came later are left out when they hold nothing, so that a file written before they did keeps its checksum.
    #[serde(default, skip_serializing_if = "is_zero")]
    filter_first_relative_bp: u32,
    /// Kept only where codes are off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traversal_codes: Option<bool>,
    /// With `rescore_factor` and `quantized_build`; kept where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quant: Option<QuantV1>,
    #[serde(default, skip_serializing_if = "is_false")]
    persistent: bool,
    /// Kept only where it is not the graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    index_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    full_text: Option<FullTextV1>,
    /// Of an index of cells; one without is a graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ivf: Option<IvfV1>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vamana: Option<VamanaV1>,
}

/// Floats by their bits, which no way through decimals can change.
#[derive(Serialize, Deserialize)]
struct FullTextV1 {
    analyzer: String,
    k1_bits: u32,
    b_bits: u32,
}

#[derive(Serialize, Deserialize)]
struct QuantV1 {
    name: String,
    rescore_factor: usize,
    quantized_build: bool,
    /// What a trained one learns, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trained: Option<TrainedV1>,
}

/// What does not concern a quantizer is 0.
#[derive(Default, Serialize, Deserialize)]
struct TrainedV1 {
    bits: usize,
    parts: usize,
    layers: usize,
    rotations: usize,
    eta_bits: u32,
    threshold: usize,
    #[serde(default, skip_serializing_if = "is_false")]
    drops_vectors: bool,
}

impl TrainedV1 {
    fn new(quantization: Quantization, config: &DenseConfig) -> TrainedV1 {
        let (threshold, drops_vectors) = (config.train_threshold, config.pq_drop_vecs);
        let rest = TrainedV1 { threshold, drops_vectors, ..TrainedV1::default() };
        match quantization {
            Quantization::Scalar { width } => TrainedV1 { bits: width.bits(), ..rest },
            Quantization::Sign => rest,
            Quantization::Product { parts, bits, rotations, eta } => {
                TrainedV1 { parts, bits, rotations, eta_bits: eta.to_bits(), ..rest }
            }
            Quantization::Residual { parts, layers, rotations } => {
                TrainedV1 { parts, layers, rotations, ..rest }
            }
        }
    }

    /// `None` when there is no quantizer of that name and width.
    fn quantization(&self, name: &str) -> Option<Quantization> {
        let TrainedV1 { bits, parts, layers, rotations, eta_bits, .. } = *self;
        Some(match name {
            "sq" => Quantization::Scalar { width: Width::from_bits(bits)? },
            "bq1" => Quantization::Sign,
            "pq" => Quantization::Product { parts, bits, rotations, eta: f32::from_bits(eta_bits) },
            "prq" => Quantization::Residual { parts, layers, rotations },
            _ => return None,
        })
    }
}

impl QuantV1 {
    fn new(config: &DenseConfig) -> Option<QuantV1> {
        let trained = match config.quant {
            Quantizer::None => return None,
            Quantizer::Sq8 => None,
            Quantizer::Trained(quantization) => Some(TrainedV1::new(quantization, config)),
        };
        Some(QuantV1 {
            name: config.quant.name().to_owned(),
            rescore_factor: config.rescore_factor,
            quantized_build: config.quantized_build,
            trained,
        })
    }

    fn quantizer(&self) -> Option<Quantizer> {
        match (&self.trained, &self.name[..]) {
            (None, "sq8") => Some(Quantizer::Sq8),
            (Some(trained), name) => trained.quantization(name).map(Quantizer::Trained),
            _ => None,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct VamanaV1 {
    degree: usize,
    beam: usize,
    alpha_bits: u32,
}

/// Floats by their bits.
#[derive(Serialize, Deserialize)]
struct IvfV1 {
    nlist: usize,
    nprobe: usize,
    train_threshold: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    drift_growth_and_factor_bits: Option<[u64; 2]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    soar_lambda_bits: Option<u64>,
    /// Of cells with codes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    product: Option<IvfProductV1>,
}

#[derive(Serialize, Deserialize)]
struct IvfProductV1 {
    parts: usize,
    bits: usize,
    rotations: usize,
    eta_bits: u32,
    rerank: bool,
}

impl IvfV1 {
    fn of(ivf: &IvfConfig) -> IvfV1 {
        IvfV1 {
            nlist: ivf.nlist,
            nprobe: ivf.nprobe,
            train_threshold: ivf.train_threshold,
            drift_growth_and_factor_bits: ivf
                .drift
                .map(|drift| [drift.growth.to_bits(), drift.factor.to_bits()]),
            soar_lambda_bits: ivf.soar.map(f64::to_bits),
            product: ivf.product.map(|IvfProduct { code, rerank }| {
                let CellProduct { parts, bits, rotations, eta } = code;
                IvfProductV1 { parts, bits, rotations, eta_bits: eta.to_bits(), rerank }
            }),
        }
    }

    fn config(&self) -> IvfConfig {
        let drift = self.drift_growth_and_factor_bits.map(|bits| bits.map(f64::from_bits));
        IvfConfig {
            nlist: self.nlist,
            nprobe: self.nprobe,
            train_threshold: self.train_threshold,
            drift: drift.map(|[growth, factor]| Drift { growth, factor }),
            soar: self.soar_lambda_bits.map(f64::from_bits),
            product: self.product.as_ref().map(|product| {
                let IvfProductV1 { parts, bits, rotations, eta_bits, rerank } = *product;
                let code = CellProduct { parts, bits, rotations, eta: f32::from_bits(eta_bits) };
                IvfProduct { code, rerank }
            }),
        }
    }
}

/// The only other index there is.
const GPU: &str = "gpu";
/// The only analyzer there is.
const ENGLISH: &str = "english";

#[allow(clippy::trivially_copy_pass_by_ref)] // The attribute passes a reference.
fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// Encodes a collection's file.
pub fn encode(uid: u64, name: &str, config: &DenseConfig) -> Vec<u8> {
    let file = FileV1 {
        uid,
        name: name.to_owned(),
        dim: config.dim,
        metric: match config.metric {
            Metric::Cosine => "cosine",
            Metric::L2 => "l2",
            Metric::Dot => "dot",
        }
        .to_owned(),
        m: config.m,
        ef_construction: config.ef_construction,
        ef_search: config.ef_search,
        seed: config.seed,
        level0_full_degree: config.level0_full_degree,
        extend_candidates: config.extend_candidates,
        extend_candidates_max: config.extend_candidates_max,
        max_vectors: config.max_vectors,
        max_bytes: config.max_bytes,
        max_inserts_per_second: config.max_inserts_per_second,
        max_ef_search: config.max_ef_search,
        filter_first_relative_bp: config.filter_first_relative_bp,
        traversal_codes: (!config.traversal_codes).then_some(false),
        persistent: config.persistent,
        quant: QuantV1::new(config),
        index_type: (config.index == IndexType::Gpu).then(|| GPU.to_owned()),
        full_text: config.full_text.map(|text| FullTextV1 {
            analyzer: ENGLISH.to_owned(),
            k1_bits: text.k1.to_bits(),
            b_bits: text.b.to_bits(),
        }),
        ivf: config.ivf().map(IvfV1::of),
        vamana: match config.index {
            IndexType::Vamana(VamanaConfig { degree, beam, alpha }) => {
                Some(VamanaV1 { degree, beam, alpha_bits: alpha.to_bits() })
            }
            _ => None,
        },
    };
    sealed_json::encode(FORMAT, file, Layout::Lines)
}

/// Decodes a collection's file: (uid, full name, configuration).
///
/// # Errors
/// As [`sealed_json::decode`]; a configuration that none can have.
pub fn decode(bytes: &[u8]) -> Result<(u64, String, DenseConfig), Unreadable> {
    let file: FileV1 = sealed_json::decode(FORMAT, bytes, "a collection file")?;
    let metric = match file.metric.as_str() {
        "cosine" => Metric::Cosine,
        "l2" => Metric::L2,
        "dot" => Metric::Dot,
        other => return Err(Unreadable::Damaged(format!("unknown metric {other:?}"))),
    };
    let index = match file.index_type.as_deref() {
        None => match (&file.ivf, &file.vamana) {
            (Some(ivf), _) => IndexType::Ivf(ivf.config()),
            (None, Some(VamanaV1 { degree, beam, alpha_bits })) => IndexType::Vamana(VamanaConfig {
                degree: *degree,
                beam: *beam,
                alpha: f32::from_bits(*alpha_bits),
            }),
            (None, None) => IndexType::Hnsw,
        },
        Some(GPU) => IndexType::Gpu,
        Some(other) => return Err(Unreadable::Damaged(format!("unknown index_type {other:?}"))),
    };
    let full_text = match file.full_text {
        None => None,
        Some(text) if text.analyzer == ENGLISH => {
            Some(TextConfig { k1: f32::from_bits(text.k1_bits), b: f32::from_bits(text.b_bits) })
        }
        Some(text) => return Err(Unreadable::Damaged(format!("unknown analyzer {:?}", text.analyzer))),
    };
    let quant = file.quant.as_ref().map_or(Ok(Quantizer::None), |quant| {
        let unknown = || Unreadable::Damaged(format!("unknown quant {:?}", quant.name));
        quant.quantizer().ok_or_else(unknown)
    })?;
    let trained = file.quant.as_ref().and_then(|quant| quant.trained.as_ref());
    let config = DenseConfig {
        dim: file.dim,
        metric,
        index,
        m: file.m,
        ef_construction: file.ef_construction,
        ef_search: file.ef_search,
        seed: file.seed,
        level0_full_degree: file.level0_full_degree,
        extend_candidates: file.extend_candidates,
        extend_candidates_max: file.extend_candidates_max,
        max_vectors: file.max_vectors,
        max_bytes: file.max_bytes,
        max_inserts_per_second: file.max_inserts_per_second,
        max_ef_search: file.max_ef_search,
        filter_first_relative_bp: file.filter_first_relative_bp,
        traversal_codes: file.traversal_codes.unwrap_or(true),
        persistent: file.persistent,
        quant,
        rescore_factor: file.quant.as_ref().map_or(0, |quant| quant.rescore_factor),
        quantized_build: file.quant.as_ref().is_some_and(|quant| quant.quantized_build),
        train_threshold: trained.map_or(0, |trained| trained.threshold),
        pq_drop_vecs: trained.is_some_and(|trained| trained.drops_vectors),
        full_text,
    };
    config.validate().map_err(|e| Unreadable::Damaged(e.to_string()))?;
    Ok((file.uid, file.name, config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_file_round_trips_and_damage_is_named() {
        let mut config = DenseConfig::new(3, Metric::L2);
        config.max_vectors = 9;
        config.filter_first_relative_bp = 250;
        config.traversal_codes = false;
        config.persistent = true;
        (config.quant, config.rescore_factor, config.quantized_build) = (Quantizer::Sq8, 5, true);
        config.full_text = Some(TextConfig { k1: 0.1 + 0.2, b: -0.0 });
        let bytes = encode(77, "default/a\"b", &config);
        assert_eq!(decode(&bytes).unwrap(), (77, "default/a\"b".to_owned(), config));
        let drift = Some(Drift { growth: 2.5, factor: 0.1 + 0.2 });
        let ivf =
            IvfConfig { nlist: 1, nprobe: 2, train_threshold: 3, drift, soar: Some(0.7), product: None };
        let code = CellProduct { parts: 3, bits: 4, rotations: 2, eta: 0.1 + 0.2 };
        let coded = IvfConfig { product: Some(IvfProduct { code, rerank: true }), ..ivf.clone() };
        let vamana = VamanaConfig { degree: 40, beam: 90, alpha: 0.7 + 0.4 };
        let indexes = [IndexType::Gpu, IndexType::Ivf(ivf), IndexType::Ivf(coded), IndexType::Vamana(vamana)];
        for index in indexes {
            let other = DenseConfig { index, ..DenseConfig::new(3, Metric::L2) };
            assert_eq!(decode(&encode(77, "default/a", &other)).unwrap().2, other);
        }
        let text = String::from_utf8(bytes.clone()).unwrap();
        let flipped = text.replace("\"format\": 1", "\"format\": 2");
        assert!(
            matches!(decode(flipped.as_bytes()), Err(Unreadable::Damaged(_))),
            "a digit that was flipped"
        );
        let newer = crate::sealed_json::seal(&flipped);
        assert_eq!(decode(newer.as_bytes()), Err(Unreadable::Newer(2)));
        let edited = text.replace("\"dim\": 3", "\"dim\": 4");
        assert!(decode(edited.as_bytes()).unwrap_err().to_string().contains("checksum"));
        for cut in 0..bytes.len() - 2 {
            assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn every_quantizer_comes_back() {
        for quantization in [
            Quantization::Scalar { width: Width::Four },
            Quantization::Scalar { width: Width::Six },
            Quantization::Scalar { width: Width::Eight },
            Quantization::Sign,
            Quantization::Product { parts: 6, bits: 4, rotations: 3, eta: 0.1 + 0.2 },
            Quantization::Residual { parts: 12, layers: 3, rotations: 1 },
        ] {
            let mut config = DenseConfig::new(24, Metric::Dot);
            (config.quant, config.train_threshold) = (Quantizer::Trained(quantization), 77);
            let bytes = encode(1, "default/a", &config);
            assert_eq!(decode(&bytes).unwrap(), (1, "default/a".to_owned(), config));
        }
    }

    /// Written before `filter_first_relative_bp`, `traversal_codes`, `quant`, `index_type`, `full_text` and `ivf` were keys.
    #[test]
    fn a_file_without_the_keys_that_came_later_keeps_its_checksum() {
        let config = DenseConfig::new(3, Metric::L2);
        let text = String::from_utf8(encode(77, "default/a", &config)).unwrap();
        for later in [
            "filter_first_relative_bp",
            "traversal_codes",
            "persistent",
            "quant",
            "index_type",
            "full_text",
            "ivf",
            "vamana",
            "product",
        ] {
            assert!(!text.contains(later), "{text}");
        }
        assert!(text.contains("\"checksum\": 2030584139\n"), "{text}");
        assert_eq!(decode(text.as_bytes()).unwrap().2, config);
    }
}
