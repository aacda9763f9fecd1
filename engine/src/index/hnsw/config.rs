//! Shape of a graph.
use crate::distance::Metric;

/// Most slots of one graph: edges are stored as slot + 1 in 32 bits.
pub const SLOTS_MAX: usize = u32::MAX as usize - 1;

/// Range of [`GraphConfig::m`]. A graph of degree 1 is a chain that no search gets through.
const M_RANGE: std::ops::RangeInclusive<usize> = 2..=128;

/// Shape of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphConfig {
    /// Vector length.
    pub dim: usize,
    /// Distance.
    pub metric: Metric,
    /// Degree on upper levels; three times that on level 0. 2..=128.
    pub m: usize,
    /// Beam while planning inserts.
    pub ef_construction: usize,
    /// Seeds the level draw: level = f(seed, key), so a graph depends on data and order only.
    pub seed: u64,
    /// Give a new node 2m forward edges on level 0.
    pub level0_full_degree: bool,
    /// Candidate pool is widened by the candidates' neighbours before selection.
    pub extend_candidates: bool,
    /// Cap of that pool, 0 = none.
    pub extend_candidates_max: usize,
    /// Walk and build on int8 codes beside the vectors, where they fit the data.
    pub codes: bool,
    /// Candidates per result that are scored exactly at least, where the walk goes over codes; 0 = as few as it takes.
    pub rescore_factor: usize,
    /// Other rules for the lowest level.
    pub flat: Option<Flat>,
    /// Walk on the codes of a quantizer, once it is trained.
    pub quantized: Option<super::Quantized>,
    /// Slots reserved.
    pub capacity: usize,
}

/// A lowest level chosen as Vamana does (DiskANN, NeurIPS 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flat {
    /// Edges of a node, all of which a new node gets. 2..=256.
    pub degree: usize,
    /// A candidate is left out when a kept one is nearer to it by this factor than the node is; from 1. Of the distance as the metric
    /// has it, and only of one that is not negative.
    pub alpha: f32,
}

/// Range of [`Flat::degree`].
const FLAT_DEGREE: std::ops::RangeInclusive<usize> = 2..=256;

impl GraphConfig {
    /// How much nearer a kept neighbour must be to keep a candidate out.
    #[inline]
    pub(super) fn alpha(&self, level: u8) -> f32 {
        self.flat.filter(|_| level == 0).map_or(1.0, |flat| flat.alpha)
    }

    /// Most edges of a node on `level`. The paper has `2m` on level 0. Where a distance is that of a code, half as many more cost
    /// a search next to nothing, as it waits for memory either way, and the same recall takes a third less of a beam: 1.2 times the
    /// rate at .94 and 1.3 times at .99 (117,659 vectors of 384 components), for a tenth more of a build and 3 % more memory.
    #[inline]
    pub(super) fn degree_max(&self, level: u8) -> usize {
        match (level, &self.flat) {
            (0, Some(flat)) => flat.degree,
            (0, None) => 3 * self.m,
            _ => self.m,
        }
    }

    /// Edges given to a new node on `level`.
    pub(super) fn degree_forward(&self, level: u8) -> usize {
        match (level, &self.flat) {
            (0, Some(flat)) => flat.degree,
            (0, None) if self.level0_full_degree => 2 * self.m,
            (0, None) => self.m + self.m / 2,
            _ => self.m,
        }
    }

    /// # Panics
    /// When a field is out of range. The collection refuses such requests before it makes a graph.
    pub(super) fn check(&self) {
        assert!(self.dim > 0, "a vector of 0 floats");
        assert!(M_RANGE.contains(&self.m), "m is {}; it must be in {M_RANGE:?}", self.m);
        if let Some(flat) = &self.flat {
            assert!(
                FLAT_DEGREE.contains(&flat.degree) && flat.alpha >= 1.0,
                "{flat:?} is no shape of a level"
            );
        }
        assert!(self.ef_construction > 0, "a beam of width 0 finds nothing");
        assert!(self.capacity <= SLOTS_MAX, "{} slots; at most {SLOTS_MAX}", self.capacity);
    }
}
