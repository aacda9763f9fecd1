//! One search as a value: what was asked, what it sees, and what it has found so far. The ways to search are its methods: `scan`, `walk`,
//! `probe` and `probe_codes`, of which `search` chooses.
use super::tail::Window;
use super::tuning::Tuning;
use super::{Hit, Points, Space};
use crate::collection::points::View;
use crate::filter::{Estimate, Path};
use crate::index::{Precision, Scratch};
use crate::memory::Pin;

/// How a search went, for `explain`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Explain {
    /// What the planner expected of the filter; all default without one.
    pub estimate: Estimate,
    /// The way that gave the result: another than the estimate's when a walk was given up.
    pub path: Path,
    /// The result is exact.
    pub exact: bool,
    /// Distances computed; in a scan one for each point, whether by its code alone or exactly as well.
    pub distances: u64,
    /// Candidates that the filter refused: by the predicate, or by a gate where it came near.
    pub rejects: u64,
}

/// A search under way.
pub(super) struct Search<'a, P> {
    pub space: &'a Space,
    pub points: &'a Points,
    pub pin: &'a Pin<'a>,
    /// Prepared for the metric, and padded.
    pub query: &'a [f32],
    /// How many hits are returned at most.
    pub k: usize,
    /// What it takes of the configuration that may change meanwhile.
    pub tuning: Tuning,
    /// How wide the beam is where a graph is walked.
    pub ef: usize,
    /// The kind of distances to return.
    pub precision: Precision,
    /// How many points were alive when the search began.
    pub live: usize,
    pub view: View<'a>,
    /// The slots of the tail as they were before the snapshot was taken. A slot that has left the tail since is dead, or was linked or filed
    /// before it left (see `tail.rs`).
    pub window: Window,
    /// Distances computed so far.
    pub distances: u64,
    pub pace: &'a mut P,
    pub scratch: &'a mut Scratch,
    pub out: &'a mut Vec<Hit>,
    pub explain: Explain,
}
