//! Configuration of an index of cells.

/// Centroids looked at when the configuration leaves `nprobe` at 0.
const NPROBE_DEFAULT: usize = 8;
/// Points at which an index trains, when the configuration leaves it at 0.
const TRAIN_THRESHOLD_DEFAULT: usize = 2048;
/// See [`Drift`].
const DRIFT_GROWTH_DEFAULT: f64 = 2.0;
const DRIFT_FACTOR_DEFAULT: f64 = 1.5;
/// See [`IvfConfig::soar`].
const SOAR_LAMBDA_DEFAULT: f64 = 1.5;

/// How points are found.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum IndexType {
    /// A graph.
    #[default]
    Hnsw,
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
            IndexType::Ivf(_) => "ivf",
            IndexType::Gpu => "gpu",
        }
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
}

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

impl IvfConfig {
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
        cells.clamp(1, points.max(1))
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
    fn zeros_are_defaults() {
        let config = IvfConfig::default();
        assert_eq!((config.probes(), config.trains_at(), config.spills()), (8, 2048, None));
        assert_eq!((config.cells_for(10_000), config.cells_for(1), config.cells_for(0)), (400, 1, 1));
        assert_eq!(config.cells_for(15), 15, "no more cells than points");
        assert_eq!(Drift::default().limits(), (2.0, 1.5));
        assert_eq!(IvfConfig { soar: Some(0.0), ..config }.spills(), Some(1.5));
    }
}
