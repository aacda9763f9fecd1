//! What a request may ask of any query beside its lanes: how thoroughly to search, and which part of the result to return.

use crate::distance::Metric;

/// How thoroughly the lanes of a query that walk an index search it. Lanes over posting lists are always exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// The beam width (`ef_search`) of the collection or of the space.
    #[default]
    Configured,
    /// This beam width, or a wider one if the number of results needs it; the search for tokens of a multi-vector collection takes it as it is. An
    /// index of inverted lists has no beam and ignores it.
    Beam(usize),
    /// The query is compared with every vector that matches the filter. Costs one distance for each of them.
    Exact,
}

/// The options of a query. The default leaves the result as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueryOptions {
    /// How thoroughly the lanes search.
    pub effort: Effort,
    /// How many of the best results are left out. They are searched for nevertheless, so that an offset costs as much as so many more results.
    pub offset: usize,
    /// The least score of a result. Results that are ranked by distance are compared by their [`similarity`].
    pub score_threshold: Option<f32>,
    /// The greatest distance of a result, in the metric of the space: `1 - cosine`, the squared Euclidean distance, or the negated dot product.
    pub distance_threshold: Option<f32>,
    /// Whether results that are ranked by distance receive their [`similarity`] as their score, which is 0 otherwise.
    pub with_score: bool,
}

/// A score that grows as the distance shrinks: the cosine, the dot product, or `1 / (1 + distance)` of the squared Euclidean distance.
pub fn similarity(metric: Metric, distance: f32) -> f32 {
    match metric {
        Metric::Cosine => 1.0 - distance,
        Metric::Dot => -distance,
        Metric::L2 => 1.0 / (1.0 + distance),
    }
}
