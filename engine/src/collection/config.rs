//! Configuration of a dense collection, with the defaults and checks of the interface.
use crate::distance::Metric;
/// Why a configuration is refused; text carries the fragment of the interface (`invalid Dim`, `unknown metric "x"` ...).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("vector: {0}")]
pub struct ConfigError(pub String);
/// What a collection is made with, defaults applied.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseConfig {
    /// Vector length, 1..=65536.
    pub dim: usize,
    /// Distance.
    pub metric: Metric,
    /// Degree, 2..=128.
    pub m: usize,
    /// Build beam.
    pub ef_construction: usize,
    /// Default search beam.
    pub ef_search: usize,
    /// Level seed.
    pub seed: i64,
    /// Full level-0 forward degree.
    pub level0_full_degree: bool,
    /// Pool extension.
    pub extend_candidates: bool,
    /// Its cap.
    pub extend_candidates_max: usize,
    /// 0 = no limit. Live ids allowed.
    pub max_vectors: u64,
    /// 0 = no limit (formula of the interface).
    pub max_bytes: u64,
    /// 0 = no limit.
    pub max_inserts_per_second: u64,
    /// Cap of filtered beam growth, 0 = 1024.
    pub max_ef_search: usize,
}
impl DenseConfig {
    /// Defaults for `dim`.
    pub fn new(dim: usize, metric: Metric) -> Self {
        let _ = (dim, metric);
        todo!()
    }
    /// Checks ranges in the order of the interface.
    pub fn validate(&self) -> Result<(), ConfigError> {
        todo!()
    }
}
