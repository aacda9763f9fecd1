//! Configuration of a dense collection, with the defaults and checks of the interface.
use crate::distance::Metric;
use crate::text::TextConfig;

/// Largest vector length.
pub const DIM_MAX: usize = 65_536;
/// Widest beam, of builds and searches: more than any collection gains by, and what is computed from it cannot overflow.
pub const EF_MAX: usize = 1 << 20;
/// Largest degree.
pub const M_MAX: usize = 128;

/// Why a configuration is refused; text carries the fragment of the interface (`invalid Dim`, `unknown metric "x"` ...).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("vector: {0}")]
pub struct ConfigError(pub String);

/// How plain nearest-neighbour searches of a collection are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexKind {
    /// By the graph.
    #[default]
    Hnsw,
    /// Exactly: by a device that holds copies of the vectors, and by a scan where it cannot. The graph is built alongside, for
    /// everything else.
    Gpu,
}

/// What is kept beside the vectors of a collection, to walk on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quantizer {
    /// Whatever the engine sees fit: see [`DenseConfig::traversal_codes`].
    #[default]
    None,
    /// Int8 codes, one step for all components, chosen from the vectors: for every metric, unlike a step of 1/127.
    Sq8,
}

impl Quantizer {
    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Quantizer::None => "none",
            Quantizer::Sq8 => "sq8",
        }
    }

    /// By its name.
    pub fn from_name(name: &str) -> Option<Quantizer> {
        [Quantizer::None, Quantizer::Sq8].into_iter().find(|quantizer| quantizer.name() == name)
    }
}

/// Beam and exact distances per result of a quantized collection, when the configuration leaves it at 0.
const RESCORE_FACTOR_DEFAULT: usize = 3;

/// What a collection is made with, defaults applied.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseConfig {
    /// Vector length, 1..=65536.
    pub dim: usize,
    /// Distance.
    pub metric: Metric,
    /// What answers plain searches.
    pub index: IndexKind,
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
    /// With a quantizer: edges may be chosen on codes. They are in either case, as without a quantizer.
    pub quantized_build: bool,
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
}

impl DenseConfig {
    /// Defaults for `dim`: m 16, ef_construction 200, ef_search 64, seed 0, everything else off or unlimited.
    pub fn new(dim: usize, metric: Metric) -> Self {
        Self {
            dim,
            metric,
            index: IndexKind::Hnsw,
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
            max_vectors: 0,
            max_bytes: 0,
            max_inserts_per_second: 0,
            max_ef_search: 0,
            filter_first_relative_bp: 0,
            full_text: None,
        }
    }

    /// Checks ranges in the order of the interface; the first failure wins.
    ///
    /// # Errors
    /// `invalid Dim`, `invalid M` (an m of 1 links a chain that no search can walk, so 2 is the least), `invalid Ef` or
    /// `invalid FullText`.
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
        if self.full_text.is_some() && self.index != IndexKind::Hnsw {
            return Err(ConfigError("invalid FullText: only index_type \"hnsw\" has it".into()));
        }
        Ok(())
    }

    /// Whether int8 codes are kept.
    pub fn keeps_codes(&self) -> bool {
        self.traversal_codes || self.quant == Quantizer::Sq8
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
        config.quant = Quantizer::from_name("sq8").unwrap();
        assert_eq!((config.rescored_per_result(), config.keeps_codes()), (7, true));
        config.rescore_factor = 0;
        assert_eq!(config.rescored_per_result(), 3);
        assert_eq!(
            (Quantizer::from_name("none"), Quantizer::from_name("zip")),
            (Some(Quantizer::None), None)
        );
    }

    #[test]
    fn first_failure_wins() {
        let check = |change: fn(&mut DenseConfig), fragment: &str| {
            let mut config = DenseConfig::new(8, Metric::L2);
            change(&mut config);
            let error = config.validate().unwrap_err().to_string();
            assert!(error.starts_with(&format!("vector: {fragment}")), "{error}");
        };
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
        check(|c| (c.index, c.full_text) = (IndexKind::Gpu, Some(TextConfig::default())), "invalid FullText");
    }
}
