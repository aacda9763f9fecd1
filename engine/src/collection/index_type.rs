//! How points of a collection are found, and what is configured of it.
use super::config_limits::{ConfigError, EF_MAX};
use super::quantizer_config::validate_product;
use crate::distance::Metric;
use crate::index::Flat;
use crate::quantizer::CellProduct;

/// Centroids looked at when the configuration leaves `nprobe` at 0.
const NPROBE_DEFAULT: usize = 8;
/// Points at which an index trains, when the configuration leaves it at 0.
const TRAIN_THRESHOLD_DEFAULT: usize = 2048;
/// See [`Drift`].
const DRIFT_GROWTH_DEFAULT: f64 = 2.0;
const DRIFT_FACTOR_DEFAULT: f64 = 1.5;
/// See [`IvfConfig::soar`].
const SOAR_LAMBDA_DEFAULT: f64 = 1.5;

/// Largest degree of a graph of one level: its marks count edges in eight bits and a half.
const DEGREE_MAX: usize = 256;
/// Widest beam of a build there.
const BEAM_MAX: usize = EF_MAX;

/// How points are found.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum IndexType {
    /// A graph of levels.
    #[default]
    Hnsw,
    /// A graph whose lowest level is chosen as DiskANN does.
    Vamana(VamanaConfig),
    /// Cells of a clustering.
    Ivf(IvfConfig),
    /// Plain searches exactly, by a device that holds copies of the vectors, and by a scan where it cannot. The graph is built
    /// alongside, for everything else.
    Gpu,
}

impl IndexType {
    /// Its name in configurations.
    pub fn name(&self) -> &'static str {
        match self {
            IndexType::Hnsw => "hnsw",
            IndexType::Vamana(_) => "vamana",
            IndexType::Ivf(_) => "ivf",
            IndexType::Gpu => "gpu",
        }
    }
}

/// A graph by the rules of Vamana (Subramanya et al., DiskANN, NeurIPS 2019): nodes of up to `degree` edges, of which one is left out
/// only when another kept one is nearer to its end by a factor of `alpha`, so that some long ones stay.
///
/// Differences to the paper: points written one by one are linked once, while a bulk build links them twice; and a thinned sample of the
/// nodes has levels above, as in HNSW, in place of a single medoid to start from, which loses recall where data lies in clusters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VamanaConfig {
    /// R: 2..=256.
    pub degree: usize,
    /// L, at least R: the least width of a beam, of builds and searches.
    pub beam: usize,
    /// From 1.
    pub alpha: f32,
}

impl Default for VamanaConfig {
    fn default() -> Self {
        VamanaConfig { degree: 64, beam: 100, alpha: 1.2 }
    }
}

impl VamanaConfig {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let VamanaConfig { degree, beam, alpha } = *self;
        let refuse = |reason: String| Err(ConfigError(format!("invalid Vamana params: {reason}")));
        match () {
            () if !(2..=DEGREE_MAX).contains(&degree) => {
                refuse(format!("vamana_r is {degree}; it must be in 2..={DEGREE_MAX}"))
            }
            () if beam < degree || beam > BEAM_MAX => refuse(format!(
                "vamana_l is {beam}; it must be at least vamana_r, {degree}, and at most {BEAM_MAX}"
            )),
            () if !(1.0..=f32::MAX).contains(&alpha) => {
                refuse(format!("vamana_alpha is {alpha}; it must be a number from 1"))
            }
            () => Ok(()),
        }
    }

    /// What the graph is told.
    pub(super) fn flat(&self, metric: Metric) -> Flat {
        // Products have no sign that a factor could keep.
        let alpha = if metric == Metric::Dot { 1.0 } else { self.alpha };
        Flat { degree: self.degree, alpha }
    }
}

/// An index of cells. Zeros mean defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IvfConfig {
    /// Cells; 0 = four times the root of the number of points, at training.
    pub nlist: usize,
    /// Cells that a search looks through, at least; 0 = 8.
    pub nprobe: usize,
    /// Points at which an index that is filled point by point trains; 0 = 2048. Before, searches look at everything.
    pub train_threshold: usize,
    /// Train again when points have moved away from the centroids; `None` = never.
    pub drift: Option<Drift>,
    /// File each point in a second cell, chosen with that weight of the direction of its residual (0 = 1.5); `None` = in one.
    pub soar: Option<f64>,
    /// Keep codes of what vectors differ from their centroids by, and search these; `None` = the vectors.
    pub product: Option<IvfProduct>,
}

/// Codes in cells (IVFADC: Jégou, Douze, Schmid, TPAMI 2011).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IvfProduct {
    /// The quantizer of residuals.
    pub code: CellProduct,
    /// Keep the vectors, and score the best three times `k` by their codes exactly. Without, a point that is filed has no vector any
    /// more but what its code stands for.
    pub rerank: bool,
}

/// Candidates per result that are scored exactly.
pub(super) const RERANKED_PER_RESULT: usize = 3;

/// When a clustering is to be made anew. Zeros mean defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Drift {
    /// Looked at when there are so many times as many points as at the last training; 0 = 2.
    pub growth: f64,
    /// And done when their mean distance to the nearest centroid is so many times that of the training; 0 = 1.5.
    pub factor: f64,
}

fn or(value: f64, default: f64) -> f64 {
    if value > 0.0 { value } else { default }
}

/// Cells at most: clustering takes minutes for so many.
const CELLS_MAX: usize = 65_536;

impl IvfConfig {
    pub(super) fn validate(&self, dim: usize) -> Result<(), ConfigError> {
        if self.nlist > CELLS_MAX {
            let reason = format!(
                "IVFNlist and IVFNprobe: ivf_nlist is {}; it must be at most {CELLS_MAX}",
                self.nlist
            );
            return Err(ConfigError(reason));
        }
        match self.product {
            Some(product) => validate_product("IVFPQM", &product.code, dim),
            None => Ok(()),
        }
    }

    /// Cells that a search looks through, at least, where there are as many.
    pub fn probes(&self) -> usize {
        if self.nprobe == 0 { NPROBE_DEFAULT } else { self.nprobe }
    }

    /// Points at which it trains.
    pub fn trains_at(&self) -> usize {
        if self.train_threshold == 0 { TRAIN_THRESHOLD_DEFAULT } else { self.train_threshold }
    }

    /// Cells for so many points, at least one.
    pub fn cells_for(&self, points: usize) -> usize {
        let cells = if self.nlist == 0 { (4.0 * (points as f64).sqrt()) as usize } else { self.nlist };
        cells.clamp(1, points.clamp(1, CELLS_MAX))
    }

    /// Whether vectors are given up for codes.
    pub fn drops_vectors(&self) -> bool {
        self.product.is_some_and(|product| !product.rerank)
    }

    /// The weight of spilling, `None` without.
    pub fn spills(&self) -> Option<f32> {
        self.soar.map(|weight| or(weight, SOAR_LAMBDA_DEFAULT) as f32)
    }
}

impl Drift {
    /// Growth and factor.
    pub fn limits(&self) -> (f64, f64) {
        (or(self.growth, DRIFT_GROWTH_DEFAULT), or(self.factor, DRIFT_FACTOR_DEFAULT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_of_one_level_has_room_for_its_beam() {
        let default = VamanaConfig::default();
        assert_eq!(default.validate(), Ok(()));
        for wrong in [
            VamanaConfig { degree: 0, ..default },
            VamanaConfig { degree: 257, beam: 300, ..default },
            VamanaConfig { beam: 63, ..default },
            VamanaConfig { alpha: 0.99, ..default },
            VamanaConfig { alpha: f32::NAN, ..default },
        ] {
            let error = wrong.validate().unwrap_err().to_string();
            assert!(error.starts_with("vector: invalid Vamana params: vamana_"), "{error}");
        }
    }

    #[test]
    fn zeros_are_defaults() {
        let config = IvfConfig::default();
        assert_eq!((config.probes(), config.trains_at(), config.spills()), (8, 2048, None));
        assert_eq!((config.cells_for(10_000), config.cells_for(1), config.cells_for(0)), (400, 1, 1));
        assert_eq!(config.cells_for(15), 15, "no more cells than points");
        assert_eq!(Drift::default().limits(), (2.0, 1.5));
        assert_eq!(IvfConfig { soar: Some(0.0), ..config }.spills(), Some(1.5));
    }
}
