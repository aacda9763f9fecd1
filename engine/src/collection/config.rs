//! Configuration of a dense collection, with the defaults and checks of the interface.
use super::config_limits::{ConfigError, DIM_MAX, EF_MAX, M_MAX};
use super::first_stage::FirstStage;
use super::index_type::{IndexType, IvfConfig};
use super::quantizer_config::Quantizer;
use crate::distance::Metric;
use crate::index::{Flat, Quantized};
use crate::payload::{PayloadFormat, TokenCode};
use crate::point_id::IdKind;
use crate::quantizer::Quantization;
use crate::text::TextConfig;

/// Points that quantizers are trained at, when the configuration leaves it at 0.
const TRAIN_THRESHOLD_DEFAULT: usize = 2048;

/// Beam and exact distances per result of a quantized collection, when the configuration leaves it at 0.
const RESCORE_FACTOR_DEFAULT: usize = 3;

/// What a collection is made with, defaults applied. Clients and files know its fields by the keys of [`super::config_keys`].
#[derive(Clone, Debug, PartialEq)]
pub struct DenseConfig {
    /// Vector length, 1..=65536.
    pub dim: usize,
    /// Distance.
    pub metric: Metric,
    /// Degree, 2..=128.
    pub m: usize,
    /// Build beam, 1..=EF_MAX.
    pub ef_construction: usize,
    /// Default search beam, 1..=EF_MAX.
    pub ef_search: usize,
    /// Level seed.
    pub seed: i64,
    /// Full level-0 forward degree.
    pub level0_full_degree: bool,
    /// Pool extension.
    pub extend_candidates: bool,
    /// Its cap.
    pub extend_candidates_max: usize,
    /// Walk and build the graph on int8 codes kept beside the vectors, with exact rescoring: a quarter more memory per vector, for
    /// two to three times the rate. Where codes do not fit the data the vectors are walked as without.
    pub traversal_codes: bool,
    /// Codes that the client asked for. Where they do not fit the data the vectors are walked as without.
    pub quant: Quantizer,
    /// With a quantizer: the beam is at least so many times `k`, and so many candidates are scored exactly, 0 = 3. Without one
    /// it has no effect.
    pub rescore_factor: usize,
    /// With `sq` or `bq1`: edges are chosen on its codes, once it is trained, and not on int8 ones. So they always are where vectors lie in
    /// a file. Products are too far off for it, and `sq8` is int8 in either case.
    pub quantized_build: bool,
    /// Points (dead slots included) at which a trained quantizer is trained, 0 = 2048; a bulk build trains on any number.
    pub train_threshold: usize,
    /// With `pq`, in a graph: once the codes are trained nothing more is inserted, and vectors are given up for codes when all points
    /// are linked. Distances and vectors in answers are those of codes from then on. Trained by a bulk build, or at `train_threshold`
    /// where that is not 0.
    pub pq_drop_vecs: bool,
    /// Vectors lie in a file that is mapped and outlives the process, with a quantizer's codes to walk over: they leave memory when it
    /// is short, and are not written again with each image. Needs a quantizer or an index of cells.
    pub persistent: bool,
    /// 0 = no limit. Live ids allowed.
    pub max_vectors: u64,
    /// 0 = no limit (formula of the interface).
    pub max_bytes: u64,
    /// 0 = no limit.
    pub max_inserts_per_second: u64,
    /// Scales how far a filtered search walks the graph before it scans instead, 0 = 1024 (see `Dense::search`).
    pub max_ef_search: usize,
    /// Lets filtered searches collect up to this share of all points before they would walk the graph, in basis points (1 =
    /// 0.01 %), at least 10,000 points and at most a million. 0 leaves it at 10,000. It bounds what is looked up; whether
    /// scoring it is cheaper than a walk is decided by cost.
    pub filter_first_relative_bp: u32,
    /// Full text over `$content`, `None` = off.
    pub full_text: Option<TextConfig>,
    /// How payloads are sent and answered.
    pub payload_format: PayloadFormat,
    /// The kind of ids.
    pub ids: IdKind,
    /// How points are found. Keys of the graph have no effect on another.
    pub index: IndexType,
    /// What the index of a multi-vector collection holds for each document. It is [`FirstStage::Tokens`] in other families.
    pub first_stage: FirstStage,
    /// How the rows of a multi-vector collection store the components of token vectors. It is [`TokenCode::Float`] in other families.
    pub token_code: TokenCode,
}

impl DenseConfig {
    /// Defaults for `dim`: m 16, ef_construction 200, ef_search 64, seed 0, everything else off or unlimited.
    pub fn new(dim: usize, metric: Metric) -> Self {
        Self {
            dim,
            metric,
            m: 16,
            ef_construction: 200,
            ef_search: 64,
            seed: 0,
            level0_full_degree: false,
            extend_candidates: false,
            extend_candidates_max: 0,
            traversal_codes: true,
            quant: Quantizer::None,
            rescore_factor: 0,
            quantized_build: false,
            train_threshold: 0,
            pq_drop_vecs: false,
            persistent: false,
            max_vectors: 0,
            max_bytes: 0,
            max_inserts_per_second: 0,
            max_ef_search: 0,
            filter_first_relative_bp: 0,
            full_text: None,
            payload_format: PayloadFormat::Tagged,
            ids: IdKind::Number,
            index: IndexType::Hnsw,
            first_stage: FirstStage::Tokens,
            token_code: TokenCode::Float,
        }
    }

    /// Checks ranges in the order of the interface; the first failure wins.
    ///
    /// # Errors
    /// `invalid Dim`, `invalid M` (an m of 1 links a chain that no search can walk, so 2 is the least), `invalid Ef`,
    /// `Persistent requires`, what concerns index and quantizer, or `invalid FullText`.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !(1..=DIM_MAX).contains(&self.dim) {
            return Err(ConfigError(format!("invalid Dim: {} is not in 1..={DIM_MAX}", self.dim)));
        }
        if !(2..=M_MAX).contains(&self.m) {
            return Err(ConfigError(format!("invalid M: {} is not in 2..={M_MAX}", self.m)));
        }
        if self.ef_construction == 0 || self.ef_search == 0 {
            return Err(ConfigError("invalid Ef: ef_construction and ef_search must be positive".into()));
        }
        if self.ef_construction.max(self.ef_search) > EF_MAX {
            return Err(ConfigError(format!(
                "invalid Ef: ef_construction and ef_search must be at most {EF_MAX}"
            )));
        }
        if self.persistent && self.quant == Quantizer::None && self.ivf().is_none() {
            return Err(ConfigError("Persistent requires a quantizer, or index_type \"ivf\"".into()));
        }
        if let Some(ivf) = self.ivf() {
            ivf.validate(self.dim)?;
        }
        if self.ivf().is_some() && matches!(self.quant, Quantizer::Trained(_)) {
            let quant = self.quant.name();
            return Err(ConfigError(format!("invalid Quant mode: {quant:?} needs a graph, not cells")));
        }
        if let (IndexType::Gpu, Quantizer::Trained(quantization)) = (&self.index, self.quant)
            && quantization != Quantization::Sign
        {
            let quant = self.quant.name();
            return Err(ConfigError(format!("invalid Quant mode: {quant:?} is not for index_type \"gpu\"")));
        }
        self.quant.validate(self.dim)?;
        self.validate_dropping()?;
        if let IndexType::Vamana(vamana) = &self.index {
            vamana.validate()?;
        }
        if self.full_text.is_some() && self.index != IndexType::Hnsw {
            return Err(ConfigError("invalid FullText: only index_type \"hnsw\" has it".into()));
        }
        Ok(())
    }

    fn validate_dropping(&self) -> Result<(), ConfigError> {
        let refuse = |why: &str| Err(ConfigError(format!("PQDropVecs requires {why}")));
        match self.quant {
            _ if !self.pq_drop_vecs => Ok(()),
            Quantizer::Trained(Quantization::Product { .. }) if self.persistent => {
                refuse("vectors in memory, and not persistent ones")
            }
            // A change of text is a write of the vector into another slot.
            Quantizer::Trained(Quantization::Product { .. }) if self.full_text.is_some() => {
                refuse("a collection without full_text")
            }
            Quantizer::Trained(Quantization::Product { .. }) => Ok(()),
            _ => refuse("quant \"pq\""),
        }
    }

    /// Components of the vectors that are indexed: those of encodings where documents are found by them, otherwise `dim`.
    pub fn indexed_dim(&self) -> usize {
        match self.first_stage {
            FirstStage::Tokens => self.dim,
            FirstStage::Encodings(config) => config.components(self.dim),
        }
    }

    /// What the graph is to quantize, and when.
    pub(crate) fn quantized(&self) -> Option<Quantized> {
        let Quantizer::Trained(quantization) = self.quant else { return None };
        // Vectors on a disk are not to be read for each distance. Those of products are near enough for walks only.
        let near = matches!(quantization, Quantization::Scalar { .. } | Quantization::Sign);
        let plans = self.persistent || self.pq_drop_vecs || self.quantized_build && near;
        Some(Quantized { quantization, threshold: self.trained_at(), plans, once: self.pq_drop_vecs })
    }

    /// Points at which a trained quantizer is trained.
    pub fn trained_at(&self) -> usize {
        match self.train_threshold {
            // What comes after the training is refused.
            0 if self.pq_drop_vecs => usize::MAX,
            0 => TRAIN_THRESHOLD_DEFAULT,
            threshold => threshold,
        }
    }

    /// The index of cells, where that is what it has.
    pub fn ivf(&self) -> Option<&IvfConfig> {
        match &self.index {
            IndexType::Ivf(ivf) => Some(ivf),
            IndexType::Hnsw | IndexType::Vamana(_) | IndexType::Gpu => None,
        }
    }

    /// Beam of a search that does not say.
    pub fn beam(&self) -> usize {
        self.ef_search.max(self.beam_min())
    }

    /// And of a build.
    pub fn build_beam(&self) -> usize {
        self.ef_construction.max(self.beam_min())
    }

    fn beam_min(&self) -> usize {
        if let IndexType::Vamana(vamana) = &self.index { vamana.beam } else { 0 }
    }

    /// Shape of a graph of one level.
    pub(crate) fn flat(&self) -> Option<Flat> {
        if let IndexType::Vamana(vamana) = &self.index { Some(vamana.flat(self.metric)) } else { None }
    }

    /// Whether int8 codes are kept; not where vectors are given up for smaller ones.
    pub fn keeps_codes(&self) -> bool {
        match self.quant {
            _ if self.drops_vectors() => false,
            Quantizer::Sq8 => true,
            Quantizer::None => self.traversal_codes,
            // Two sorts of codes would be read from the disk where one is enough.
            Quantizer::Trained(_) => self.traversal_codes && !self.persistent,
        }
    }

    /// Whether a filed point's vector is what its code stands for.
    pub(crate) fn drops_vectors(&self) -> bool {
        self.pq_drop_vecs || self.ivf().is_some_and(IvfConfig::drops_vectors)
    }

    /// Candidates per result that the beam holds and that are scored exactly, at least; 0 without a quantizer.
    pub fn rescored_per_result(&self) -> usize {
        match (self.quant, self.rescore_factor) {
            (Quantizer::None, _) => 0,
            (_, 0) => RESCORE_FACTOR_DEFAULT,
            (_, factor) => factor,
        }
    }

    /// Bytes one point counts against `max_bytes`: `4 * dim + 12 * m + 32`.
    ///
    /// A fixed formula, kept so that a quota accepts the same number of points everywhere; true bytes are in
    /// [`super::Stats::bytes`].
    pub fn quota_bytes_per_point(&self) -> u64 {
        4 * self.dim as u64 + 12 * self.m as u64 + 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        let config = DenseConfig::new(8, Metric::Cosine);
        assert_eq!(config.validate(), Ok(()));
        assert_eq!((config.m, config.ef_construction, config.ef_search), (16, 200, 64));
        assert_eq!(config.quota_bytes_per_point(), 32 + 192 + 32);
    }

    #[test]
    fn a_quantizer_rescores_three_times_the_results() {
        let mut config = DenseConfig::new(8, Metric::L2);
        (config.rescore_factor, config.traversal_codes) = (7, false);
        assert_eq!((config.rescored_per_result(), config.keeps_codes()), (0, false));
        config.quant = Quantizer::Sq8;
        assert_eq!((config.rescored_per_result(), config.keeps_codes()), (7, true));
        config.rescore_factor = 0;
        assert_eq!(config.rescored_per_result(), 3);
        assert_eq!(config.quantized(), None);
        config.quant = Quantizer::Trained(Quantization::Sign);
        assert_eq!((config.rescored_per_result(), config.keeps_codes()), (3, false));
        assert_eq!(config.quantized().map(|quantized| quantized.threshold), Some(2048));
        (config.traversal_codes, config.persistent) = (true, true);
        assert!(!config.keeps_codes(), "those of the quantizer are enough");
        config.persistent = false;
        assert!(config.keeps_codes());
    }

    #[test]
    fn parts_are_of_eight_components_where_that_divides() {
        let parts = [384, 1536, 100, 90, 7, 1].map(Quantizer::parts_default);
        assert_eq!(parts, [48, 192, 4, 2, 1, 1]);
        assert_eq!(Quantizer::parts_default(48), 6);
    }

    #[test]
    fn first_failure_wins() {
        let check = |change: fn(&mut DenseConfig), fragment: &str| {
            let mut config = DenseConfig::new(8, Metric::L2);
            change(&mut config);
            let error = config.validate().unwrap_err().to_string();
            assert!(error.starts_with(&format!("vector: {fragment}")), "{error}");
        };
        let cells = |c: &mut DenseConfig| {
            (c.quant, c.index) =
                (Quantizer::Trained(Quantization::Sign), IndexType::Ivf(IvfConfig::default()));
        };
        check(cells, "invalid Quant mode");
        check(|c| c.persistent = true, "Persistent requires");
        check(|c| c.dim = 0, "invalid Dim");
        check(|c| c.dim = DIM_MAX + 1, "invalid Dim");
        check(|c| c.m = 0, "invalid M");
        check(|c| c.m = 1, "invalid M");
        check(|c| c.m = 129, "invalid M");
        check(|c| c.ef_search = 0, "invalid Ef");
        check(|c| c.ef_search = EF_MAX + 1, "invalid Ef");
        check(|c| c.ef_construction = usize::MAX, "invalid Ef");
        check(|c| (c.dim, c.m, c.ef_construction) = (0, 0, 0), "invalid Dim");
        check(|c| (c.m, c.ef_construction) = (0, 0), "invalid M");
        let product = |parts, bits, rotations, eta| {
            Quantizer::Trained(Quantization::Product { parts, bits, rotations, eta })
        };
        let checked = [
            (product(3, 8, 0, 0.0), "QuantPQM must be"),
            (product(0, 8, 0, 0.0), "QuantPQM must be"),
            (product(2, 5, 0, 0.0), "PQNBits must be"),
            (product(2, 8, 21, 0.0), "OPQIters must be"),
            (product(4096, 8, 0, 0.0), "QuantPQM must be"),
            (product(2, 8, 2, 0.0), "OPQIters must be"),
            (product(64, 8, 0, 2.0), "AnisotropicEta must"),
            (product(2, 8, 0, f32::NAN), "AnisotropicEta must"),
            (product(2, 8, 0, -1.0), "AnisotropicEta must"),
        ];
        for (quant, fragment) in checked {
            let large = matches!(fragment, "QuantPQM must be" | "OPQIters must be" | "AnisotropicEta must");
            let dim = if large && quant != product(3, 8, 0, 0.0) { 8192 } else { 8 };
            let config = DenseConfig { quant, ..DenseConfig::new(dim, Metric::L2) };
            let error = config.validate().unwrap_err().to_string();
            assert!(error.starts_with(&format!("vector: {fragment}")), "{error}");
        }
        let fine = DenseConfig { quant: product(2, 4, 20, 4.0), ..DenseConfig::new(8, Metric::L2) };
        assert_eq!(fine.validate(), Ok(()));
        check(|c| (c.index, c.full_text) = (IndexType::Gpu, Some(TextConfig::default())), "invalid FullText");
    }
}
