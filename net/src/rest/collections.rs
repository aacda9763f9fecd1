//! Creating collections: the create body and what of its configuration this server offers.

use crate::request::ApiError;
use crate::rest::json::{json_object, one_of};
use nigh_engine::collection::{
    DenseConfig, Drift, IndexType, IvfConfig, IvfProduct, Quantizer, VamanaConfig,
};
use nigh_engine::distance::{Metric, Width};
use nigh_engine::quantizer::{CellProduct, Quantization};
use nigh_engine::text::TextConfig;

json_object! {
    /// Body of `POST /v1/collections`.
    pub struct CreateBody {
        "name" => name: String,
        "config" => config: ConfigBody,
    }
}

json_object! {
    /// Every key a configuration may hold.
    pub struct ConfigBody {
        "dim" => dim: i64,
        "metric" => metric: String,
        "m" => m: i64,
        "ef_construction" => ef_construction: i64,
        "ef_search" => ef_search: i64,
        "seed" => seed: i64,
        "quant" => quant: String,
        "rescore_factor" => rescore_factor: i64,
        "sq_bits" => sq_bits: i64,
        "prq_layers" => prq_layers: i64,
        "quant_pq_m" => quant_pq_m: i64,
        "pq_nbits" => pq_nbits: i64,
        "opq" => opq: bool,
        "opq_iters" => opq_iters: i64,
        "pq_drop_vecs" => pq_drop_vecs: bool,
        "anisotropic_eta" => anisotropic_eta: f64,
        "persistent" => persistent: bool,
        "partitions" => partitions: i64,
        "index_type" => index_type: String,
        "ivf_nlist" => ivf_nlist: i64,
        "ivf_nprobe" => ivf_nprobe: i64,
        "ivf_pq" => ivf_pq: bool,
        "ivf_rerank" => ivf_rerank: bool,
        "ivf_pq_m" => ivf_pq_m: i64,
        "ivf_train_threshold" => ivf_train_threshold: i64,
        "ivf_drift_retrain" => ivf_drift_retrain: bool,
        "ivf_drift_growth_factor" => ivf_drift_growth_factor: f64,
        "ivf_drift_factor" => ivf_drift_factor: f64,
        "soar" => soar: bool,
        "soar_lambda" => soar_lambda: f64,
        "vamana_r" => vamana_r: i64,
        "vamana_l" => vamana_l: i64,
        "vamana_alpha" => vamana_alpha: f64,
        "extend_candidates" => extend_candidates: bool,
        "extend_candidates_max" => extend_candidates_max: i64,
        "level0_full_degree" => level0_full_degree: bool,
        "quantized_build" => quantized_build: bool,
        "filter_first_relative_bp" => filter_first_relative_bp: i64,
        "traversal_codes" => traversal_codes: bool,
        "full_text" => full_text: FullTextBody,
        "max_vectors" => max_vectors: u64,
        "max_bytes" => max_bytes: u64,
        "max_inserts_per_second" => max_inserts_per_second: u64,
        "max_ef_search" => max_ef_search: u64,
    }
}

json_object! {
    /// Full-text options.
    pub struct FullTextBody {
        "analyzer" => analyzer: String,
        "k1" => k1: f64,
        "b" => b: f64,
    }
}

impl FullTextBody {
    /// Zero and below mean the default of the interface.
    fn config(&self) -> Result<TextConfig, ApiError> {
        match self.analyzer.as_deref().unwrap_or("") {
            "" | "english" => {}
            other => return Err(ApiError::invalid(format!("vector: unknown analyzer {other:?}"))),
        }
        let or_default = |key: &str, value: Option<f64>, default: f32| match value.unwrap_or(0.0) as f32 {
            value if value > 0.0 && value.is_finite() => Ok(value),
            value if value <= 0.0 => Ok(default),
            _ => Err(invalid(key, "out of the range of a 32-bit float")),
        };
        let default = TextConfig::default();
        Ok(TextConfig {
            k1: or_default("full_text.k1", self.k1, default.k1)?,
            b: or_default("full_text.b", self.b, default.b)?,
        })
    }
}

/// Layers of a residual quantizer.
const PRQ_LAYERS_DEFAULT: i64 = 2;

fn not_offered(what: &str) -> ApiError {
    ApiError::invalid(format!("vector: this server does not offer {what}"))
}

/// `offered`: the names that this server accepts, aliases included.
fn unknown(key: &str, value: &str, offered: &[&str]) -> ApiError {
    ApiError::invalid(format!("vector: unknown {key} {value:?}; {}", one_of(offered.iter().copied())))
}

fn invalid(key: &str, reason: impl std::fmt::Display) -> ApiError {
    ApiError::invalid(format!("vector: invalid {key}: {reason}"))
}

/// The refusal of a body without a configuration.
pub fn no_config() -> ApiError {
    ApiError::invalid(
        "vector: invalid Dim: config is missing; it is an object with dim, such as {\"dim\": 768}",
    )
}

impl ConfigBody {
    /// The configuration with its defaults. Ranges of what remains are checked by `DenseConfig::validate`.
    ///
    /// # Errors
    /// 400 for unknown names, values out of range, and features this server does not have.
    pub fn into_config(self) -> Result<DenseConfig, ApiError> {
        let dim = self.dim.ok_or_else(|| invalid("Dim", "it is missing; every configuration states dim"))?;
        let dim = usize::try_from(dim).map_err(|_| invalid("dim", format_args!("{dim} is negative")))?;
        let metric = match self.metric.as_deref().unwrap_or("") {
            "" | "cosine" => Metric::Cosine,
            "l2" | "euclidean" => Metric::L2,
            "dot" | "dotproduct" | "ip" => Metric::Dot,
            other => {
                let offered = ["cosine", "l2", "euclidean", "dot", "dotproduct", "ip"];
                return Err(unknown("metric", other, &offered));
            }
        };
        self.check_numbers()?;
        let index = self.check_index_type(dim)?;
        let quant = self.check_quantization(dim)?;
        self.check_features(matches!(index, IndexType::Ivf(_)))?;
        let mut config = DenseConfig::new(dim, metric);
        config.index = index;
        for (value, target) in [
            (self.m, &mut config.m),
            (self.ef_construction, &mut config.ef_construction),
            (self.ef_search, &mut config.ef_search),
            (self.extend_candidates_max, &mut config.extend_candidates_max),
        ] {
            // Zero and below mean the default.
            if let Some(value) =
                value.and_then(|value| usize::try_from(value).ok()).filter(|value| *value > 0)
            {
                *target = value;
            }
        }
        config.full_text = self.full_text.as_ref().map(FullTextBody::config).transpose()?;
        config.seed = self.seed.unwrap_or(0);
        config.level0_full_degree = self.level0_full_degree.unwrap_or(false);
        config.traversal_codes = self.traversal_codes.unwrap_or(true);
        config.quant = quant;
        config.persistent = self.persistent.unwrap_or(false);
        config.pq_drop_vecs = self.pq_drop_vecs.unwrap_or(false);
        if quant != Quantizer::None {
            // Checked: not negative.
            config.rescore_factor = self.rescore_factor.unwrap_or(0) as usize;
            config.quantized_build = self.quantized_build.unwrap_or(false);
            config.train_threshold = self.ivf_train_threshold.unwrap_or(0) as usize;
        }
        config.extend_candidates = self.extend_candidates.unwrap_or(false);
        config.max_vectors = self.max_vectors.unwrap_or(0);
        config.max_bytes = self.max_bytes.unwrap_or(0);
        config.max_inserts_per_second = self.max_inserts_per_second.unwrap_or(0);
        config.max_ef_search = self.max_ef_search.unwrap_or(0) as usize;
        // Checked: at most 10,000.
        config.filter_first_relative_bp = self.filter_first_relative_bp.unwrap_or(0) as u32;
        Ok(config)
    }

    /// The type; numbers are checked. Whether a device is there for `gpu` is asked when the collection is created.
    fn check_index_type(&self, dim: usize) -> Result<IndexType, ApiError> {
        match self.index_type.as_deref().unwrap_or("") {
            "" | "hnsw" => Ok(IndexType::Hnsw),
            "gpu" => Ok(IndexType::Gpu),
            "ivf" | "ivf-flat" | "ivfflat" => Ok(IndexType::Ivf(self.ivf(dim))),
            "vamana" | "diskann" => Ok(IndexType::Vamana(self.vamana())),
            other => {
                let offered = ["hnsw", "vamana", "diskann", "ivf", "ivf-flat", "ivfflat", "gpu"];
                Err(unknown("index_type", other, &offered))
            }
        }
    }

    /// A graph of one level; its ranges are for the configuration to say.
    fn vamana(&self) -> VamanaConfig {
        let default = VamanaConfig::default();
        let or = |value: Option<i64>, default| match value.unwrap_or(0) {
            0 => default,
            // Checked: not negative.
            value => value as usize,
        };
        let alpha =
            self.vamana_alpha.filter(|alpha| *alpha != 0.0).map_or(default.alpha, |alpha| alpha as f32);
        VamanaConfig {
            degree: or(self.vamana_r, default.degree),
            beam: or(self.vamana_l, default.beam),
            alpha,
        }
    }

    /// The index of cells; numbers are checked.
    fn ivf(&self, dim: usize) -> IvfConfig {
        let natural = |value: Option<i64>| value.map_or(0, |value| value as usize);
        let drift = Drift {
            growth: self.ivf_drift_growth_factor.unwrap_or(0.0),
            factor: self.ivf_drift_factor.unwrap_or(0.0),
        };
        IvfConfig {
            nlist: natural(self.ivf_nlist),
            nprobe: natural(self.ivf_nprobe),
            train_threshold: natural(self.ivf_train_threshold),
            drift: self.ivf_drift_retrain.unwrap_or(false).then_some(drift),
            soar: self.soar.unwrap_or(false).then_some(self.soar_lambda.unwrap_or(0.0)),
            product: self.ivf_pq.unwrap_or(false).then(|| IvfProduct {
                code: CellProduct {
                    parts: Self::parts(self.ivf_pq_m, dim),
                    bits: self.bits(),
                    rotations: self.rotations(),
                    eta: self.anisotropic_eta.unwrap_or(0.0) as f32,
                },
                rerank: self.ivf_rerank.unwrap_or(false),
            }),
        }
    }

    /// Of a product quantizer; whether they divide `dim` is for the configuration to say.
    fn parts(wanted: Option<i64>, dim: usize) -> usize {
        match wanted.unwrap_or(0) {
            0 => Quantizer::parts_default(dim),
            // Checked: not negative.
            parts => parts as usize,
        }
    }

    /// Of a part.
    fn bits(&self) -> usize {
        // Checked: 4, 8 or 0.
        if self.pq_nbits == Some(4) { 4 } else { 8 }
    }

    /// As quantizers count them: 0 = none.
    fn rotations(&self) -> usize {
        // Checked: between 0 and 20; 0 means one.
        let rounds = self.opq_iters.unwrap_or(0).max(1) as usize;
        if self.opq == Some(true) { rounds } else { 0 }
    }

    fn check_quantization(&self, dim: usize) -> Result<Quantizer, ApiError> {
        let quant = match self.quant.as_deref().unwrap_or("") {
            "" | "none" => Quantizer::None,
            "sq8" => Quantizer::Sq8,
            "bq1" => Quantizer::Trained(Quantization::Sign),
            "sq" => {
                // Checked: 4, 6, 8 or 0.
                let width =
                    self.sq_bits.and_then(|bits| Width::from_bits(bits as usize)).unwrap_or(Width::Eight);
                Quantizer::Trained(Quantization::Scalar { width })
            }
            "pq" => {
                let (parts, rotations) = (Self::parts(self.quant_pq_m, dim), self.rotations());
                let bits = self.bits();
                let eta = self.anisotropic_eta.unwrap_or(0.0) as f32;
                Quantizer::Trained(Quantization::Product { parts, bits, rotations, eta })
            }
            "prq" => {
                let layers =
                    self.prq_layers.filter(|layers| *layers > 0).unwrap_or(PRQ_LAYERS_DEFAULT) as usize;
                let (parts, rotations) = (Self::parts(self.quant_pq_m, dim), self.rotations());
                Quantizer::Trained(Quantization::Residual { parts, layers, rotations })
            }
            other => return Err(unknown("quant", other, &["none", "sq8", "bq1", "sq", "pq", "prq"])),
        };
        if quant == Quantizer::Sq8 && self.traversal_codes == Some(false) {
            return Err(invalid("traversal_codes", "quant \"sq8\" is walked on codes"));
        }
        let is = |names: &[&str]| names.contains(&quant.name());
        if self.opq == Some(true) && !is(&["pq", "prq"]) && self.ivf_pq != Some(true) {
            return Err(invalid("opq", "OPQ requires quant \"pq\" or \"prq\", or ivf_pq"));
        }
        if self.pq_drop_vecs == Some(true) && !is(&["pq"]) {
            return Err(invalid("pq_drop_vecs", "PQDropVecs requires quant \"pq\""));
        }
        if self.quantized_build == Some(true) && quant == Quantizer::None {
            return Err(invalid("quantized_build", "needs a quantizer"));
        }
        Ok(quant)
    }

    /// `ivf`: the index is one of cells.
    fn check_features(&self, ivf: bool) -> Result<(), ApiError> {
        for (key, name, on) in [
            ("ivf_pq", "IVFPQ", self.ivf_pq),
            ("ivf_rerank", "IVFPQ", self.ivf_rerank),
            ("soar", "SOAR", self.soar),
        ] {
            if on == Some(true) && !ivf {
                return Err(invalid(key, format_args!("{name} requires index_type \"ivf\"")));
            }
        }
        if self.full_text.is_some() && ivf {
            return Err(invalid("full_text", "needs index_type \"hnsw\""));
        }
        if self.partitions.unwrap_or(0) > 1 {
            return Err(not_offered("partitions above 1"));
        }
        Ok(())
    }

    /// Ranges of tuning keys. Those of other index types and quantizers have no effect on this one, and clients send
    /// some of them always.
    fn check_numbers(&self) -> Result<(), ApiError> {
        for (key, value) in [
            ("partitions", self.partitions),
            ("rescore_factor", self.rescore_factor),
            ("prq_layers", self.prq_layers),
            ("quant_pq_m", self.quant_pq_m),
            ("ivf_nlist", self.ivf_nlist),
            ("ivf_nprobe", self.ivf_nprobe),
            ("ivf_train_threshold", self.ivf_train_threshold),
            ("vamana_r", self.vamana_r),
            ("vamana_l", self.vamana_l),
            ("extend_candidates_max", self.extend_candidates_max),
        ] {
            if value.is_some_and(|value| value < 0) {
                return Err(invalid(key, "must not be negative"));
            }
        }
        if self.ivf_pq_m.is_some_and(|parts| parts < 0) {
            return Err(invalid("ivf_pq_m", "IVFPQM must be 0 or more"));
        }
        for (key, name, value, allowed) in [
            ("sq_bits", "it", self.sq_bits, &[0, 4, 6, 8][..]),
            ("pq_nbits", "PQNBits", self.pq_nbits, &[0, 4, 8]),
        ] {
            if value.is_some_and(|value| !allowed.contains(&value)) {
                return Err(invalid(key, format_args!("{name} must be one of {allowed:?}")));
            }
        }
        for (key, value, max) in [
            ("opq_iters", self.opq_iters, 20),
            ("filter_first_relative_bp", self.filter_first_relative_bp, 10_000),
        ] {
            if value.is_some_and(|value| !(0..=max).contains(&value)) {
                return Err(invalid(key, format_args!("must be between 0 and {max}")));
            }
        }
        for (key, value) in [("anisotropic_eta", self.anisotropic_eta), ("soar_lambda", self.soar_lambda)] {
            if value.is_some_and(|value| value < 0.0) {
                return Err(invalid(key, "must not be negative"));
            }
        }
        for (key, value) in [
            ("ivf_drift_growth_factor", self.ivf_drift_growth_factor),
            ("ivf_drift_factor", self.ivf_drift_factor),
        ] {
            if value.is_some_and(|value| value != 0.0 && value <= 1.0) {
                return Err(invalid(key, "must be above 1, or 0"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::json::decode;

    fn config(json: &str) -> Result<DenseConfig, String> {
        decode::<ConfigBody>(json.as_bytes()).and_then(ConfigBody::into_config).map_err(|error| error.message)
    }

    #[test]
    fn what_clients_always_send() {
        let config = config(
            r#"{"dim":8,"metric":"l2","m":0,"ef_construction":-1,"ef_search":100,"seed":-5,"quant":"",
                "persistent":false,"rescore_factor":3}"#,
        )
        .unwrap();
        assert_eq!((config.dim, config.metric), (8, Metric::L2));
        assert_eq!((config.m, config.ef_construction, config.ef_search, config.seed), (16, 200, 100, -5));
    }

    #[test]
    fn aliases_defaults_and_quotas() {
        for (name, metric) in [
            ("", Metric::Cosine),
            ("ip", Metric::Dot),
            ("dotproduct", Metric::Dot),
            ("euclidean", Metric::L2),
        ] {
            assert_eq!(config(&format!(r#"{{"dim":1,"metric":"{name}"}}"#)).unwrap().metric, metric);
        }
        let made = config(
            r#"{"dim":1,"index_type":"hnsw","quant":"none","partitions":1,"full_text":null,"sq_bits":8,
                "max_vectors":5,"max_bytes":6,"max_inserts_per_second":7,"max_ef_search":8}"#,
        )
        .unwrap();
        assert_eq!(
            (made.max_vectors, made.max_bytes, made.max_inserts_per_second, made.max_ef_search),
            (5, 6, 7, 8)
        );
    }

    #[test]
    fn quantizers() {
        let made = config(r#"{"dim":1,"quant":"sq8","rescore_factor":4,"quantized_build":true}"#).unwrap();
        assert_eq!((made.quant, made.rescore_factor, made.quantized_build), (Quantizer::Sq8, 4, true));
        let made = config(r#"{"dim":1,"rescore_factor":4}"#).unwrap();
        assert_eq!((made.quant, made.rescored_per_result()), (Quantizer::None, 0));
        for (json, quantization) in [
            (r#"{"dim":48,"quant":"bq1"}"#, Quantization::Sign),
            (r#"{"dim":48,"quant":"sq"}"#, Quantization::Scalar { width: Width::Eight }),
            (r#"{"dim":48,"quant":"sq","sq_bits":6}"#, Quantization::Scalar { width: Width::Six }),
            (
                r#"{"dim":48,"quant":"pq"}"#,
                Quantization::Product { parts: 6, bits: 8, rotations: 0, eta: 0.0 },
            ),
            (
                r#"{"dim":48,"quant":"pq","quant_pq_m":12,"pq_nbits":4,"opq":true,"anisotropic_eta":2.5}"#,
                Quantization::Product { parts: 12, bits: 4, rotations: 1, eta: 2.5 },
            ),
            (
                r#"{"dim":48,"quant":"prq","opq":true,"opq_iters":4,"ivf_train_threshold":9}"#,
                Quantization::Residual { parts: 6, layers: 2, rotations: 4 },
            ),
        ] {
            let made = config(json).unwrap();
            assert_eq!(made.quant, Quantizer::Trained(quantization), "{json}");
            assert_eq!(made.validate(), Ok(()));
            assert_eq!(made.trained_at(), if json.contains("threshold") { 9 } else { 2048 });
        }
    }

    #[test]
    fn graphs_of_one_level() {
        for name in ["vamana", "diskann"] {
            let made = config(&format!(r#"{{"dim":1,"index_type":"{name}","ef_search":50}}"#)).unwrap();
            assert_eq!(made.index, IndexType::Vamana(VamanaConfig::default()));
            assert_eq!((made.beam(), made.build_beam(), made.validate()), (100, 200, Ok(())));
        }
        let json = r#"{"dim":1,"index_type":"vamana","vamana_r":32,"vamana_l":250,"vamana_alpha":1.5}"#;
        let made = config(json).unwrap();
        assert_eq!(made.index, IndexType::Vamana(VamanaConfig { degree: 32, beam: 250, alpha: 1.5 }));
        assert_eq!((made.beam(), made.build_beam()), (250, 250));
        for wrong in [r#""vamana_r":101"#, r#""vamana_l":63"#, r#""vamana_alpha":0.5"#] {
            let made = config(&format!(r#"{{"dim":1,"index_type":"vamana",{wrong}}}"#)).unwrap();
            assert!(made.validate().unwrap_err().to_string().contains("invalid Vamana params"), "{wrong}");
        }
    }

    #[test]
    fn cells() {
        for name in ["ivf", "ivf-flat", "ivfflat"] {
            let made =
                config(&format!(r#"{{"dim":1,"index_type":"{name}","ivf_rerank":true,"quant":"sq8"}}"#))
                    .unwrap();
            assert_eq!(made.ivf(), Some(&IvfConfig::default()));
        }
        let made = config(
            r#"{"dim":1,"index_type":"ivf","ivf_nlist":3,"ivf_nprobe":4,"ivf_train_threshold":5,"soar":true,
                "soar_lambda":0.5,"ivf_drift_retrain":true,"ivf_drift_growth_factor":1.5,"ivf_drift_factor":0}"#,
        )
        .unwrap();
        let drift = Some(Drift { growth: 1.5, factor: 0.0 });
        let all =
            IvfConfig { nlist: 3, nprobe: 4, train_threshold: 5, drift, soar: Some(0.5), product: None };
        assert_eq!(made.ivf(), Some(&all));
        for (json, code, rerank) in [
            (r#""ivf_rerank":true"#, CellProduct { parts: 6, bits: 8, rotations: 0, eta: 0.0 }, true),
            (
                r#""ivf_pq_m":12,"pq_nbits":4,"opq":true,"opq_iters":3,"anisotropic_eta":2.5,"quant_pq_m":7"#,
                CellProduct { parts: 12, bits: 4, rotations: 3, eta: 2.5 },
                false,
            ),
        ] {
            let made = config(&format!(r#"{{"dim":48,"index_type":"ivf","ivf_pq":true,{json}}}"#)).unwrap();
            assert_eq!(made.ivf().unwrap().product, Some(IvfProduct { code, rerank }));
            assert_eq!(made.validate(), Ok(()));
        }
        let made = config(r#"{"dim":48,"index_type":"ivf","ivf_pq":true,"ivf_pq_m":7}"#).unwrap();
        assert!(made.validate().unwrap_err().to_string().contains("IVFPQM must be"));
        let graph = config(r#"{"dim":1,"ivf_nlist":3,"ivf_drift_retrain":true}"#).unwrap();
        assert_eq!(graph.ivf(), None);
    }

    #[test]
    fn full_text() {
        let text = |json: &str| {
            config(&format!(r#"{{"dim":1,"full_text":{json}}}"#))
                .unwrap()
                .full_text
                .map(|text| (text.k1, text.b))
        };
        assert_eq!(text("null"), None);
        assert_eq!(text("{}"), Some((1.2, 0.75)));
        assert_eq!(text(r#"{"analyzer":"","k1":0,"b":-1}"#), Some((1.2, 0.75)));
        assert_eq!(text(r#"{"analyzer":"english","k1":0.9,"b":0.4}"#), Some((0.9, 0.4)));
    }

    #[test]
    fn refusals() {
        for (json, fragment) in [
            (r#"{"dim":-1}"#, "dim"),
            (
                r#"{"dim":1,"metric":"Cosine"}"#,
                "unknown metric \"Cosine\"; it must be one of cosine, l2, euclidean, dot, dotproduct, ip",
            ),
            (
                r#"{"dim":1,"quant":"zip"}"#,
                "unknown quant \"zip\"; it must be one of none, sq8, bq1, sq, pq, prq",
            ),
            (r#"{"dim":1,"quant":"sq","pq_drop_vecs":true}"#, "PQDropVecs requires"),
            (r#"{"dim":1,"quant":"sq","opq":true}"#, "OPQ requires"),
            (r#"{"dim":1,"quant":"sq8","traversal_codes":false}"#, "invalid traversal_codes"),
            (r#"{"dim":1,"quant":"sq8","rescore_factor":-1}"#, "invalid rescore_factor"),
            (r#"{"dim":1,"quantized_build":true}"#, "quantized_build: needs a quantizer"),
            (r#"{"dim":1,"ivf_pq":true}"#, "IVFPQ requires"),
            (r#"{"dim":1,"ivf_pq_m":-1}"#, "IVFPQM must be"),
            (r#"{"dim":1,"pq_nbits":5}"#, "PQNBits must be"),
            (r#"{"dim":1,"index_type":"ivf","full_text":{}}"#, "invalid full_text"),
            (r#"{"dim":1,"ivf_rerank":true}"#, "invalid ivf_rerank"),
            (r#"{"dim":1,"index_type":"ivf","ivf_nprobe":-1}"#, "invalid ivf_nprobe"),
            (r#"{"dim":1,"index_type":"vamana","vamana_r":-1}"#, "vamana_r"),
            (
                r#"{"dim":1,"index_type":"tree"}"#,
                "unknown index_type \"tree\"; it must be one of hnsw, vamana, diskann, ivf, ivf-flat, ivfflat, gpu",
            ),
            (r#"{"dim":1,"partitions":4}"#, "does not offer partitions"),
            (r#"{"dim":1,"partitions":-4}"#, "partitions"),
            (r#"{"dim":1,"full_text":{"analyzer":"klingon"}}"#, "unknown analyzer \"klingon\""),
            (r#"{"dim":1,"full_text":{"k1":1e39}}"#, "full_text.k1"),
            (r#"{"dim":1,"full_text":{"lang":"en"}}"#, "unknown field \"lang\""),
            (r#"{"dim":1,"soar":true}"#, "soar"),
            (r#"{"dim":1,"opq":true}"#, "opq"),
            (r#"{"dim":1,"opq_iters":21}"#, "opq_iters"),
            (r#"{"dim":1,"sq_bits":5}"#, "sq_bits"),
            (r#"{"dim":1,"anisotropic_eta":-0.5}"#, "anisotropic_eta"),
            (r#"{"dim":1,"ivf_drift_factor":1}"#, "ivf_drift_factor"),
            (r#"{"dim":1,"filter_first_relative_bp":10001}"#, "filter_first_relative_bp"),
            (r#"{"dim":"8"}"#, "field \"dim\""),
            (r#"{"dim":1,"wat":1}"#, "unknown field \"wat\""),
        ] {
            let message = config(json).expect_err(json);
            assert!(message.contains(fragment), "{json}: {message}");
        }
    }
}
