//! What searches take from the configuration of a space, and the owner may change while they run.
use super::DenseConfig;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `max_ef_search` when the configuration leaves it at 0.
const MAX_EF_SEARCH_DEFAULT: usize = 1024;

/// These values as one search takes them, once, when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tuning {
    /// Beam of a search that does not say.
    pub beam: usize,
    /// Candidates per result that the beam holds at least; 0 without a quantizer.
    pub rescored_per_result: usize,
    /// How far a filtered search walks the graph before it scans instead, in refusals per edge of a point.
    pub max_ef_search: usize,
}

impl Tuning {
    fn of(config: &DenseConfig) -> Tuning {
        Tuning {
            beam: config.beam(),
            rescored_per_result: config.rescored_per_result(),
            max_ef_search: match config.max_ef_search {
                0 => MAX_EF_SEARCH_DEFAULT,
                ef => ef,
            },
        }
    }
}

/// The values in memory that all cores read. A search that begins while they are changed may take some of either: any combination is one that could be configured.
pub(super) struct LiveTuning {
    beam: AtomicUsize,
    rescored_per_result: AtomicUsize,
    max_ef_search: AtomicUsize,
}

impl LiveTuning {
    pub fn new(config: &DenseConfig) -> LiveTuning {
        let Tuning { beam, rescored_per_result, max_ef_search } = Tuning::of(config);
        LiveTuning {
            beam: AtomicUsize::new(beam),
            rescored_per_result: AtomicUsize::new(rescored_per_result),
            max_ef_search: AtomicUsize::new(max_ef_search),
        }
    }

    /// Owner: what searches take that begin from now on.
    pub fn set(&self, config: &DenseConfig) {
        let Tuning { beam, rescored_per_result, max_ef_search } = Tuning::of(config);
        self.beam.store(beam, Ordering::Relaxed);
        self.rescored_per_result.store(rescored_per_result, Ordering::Relaxed);
        self.max_ef_search.store(max_ef_search, Ordering::Relaxed);
    }

    pub fn get(&self) -> Tuning {
        Tuning {
            beam: self.beam.load(Ordering::Relaxed),
            rescored_per_result: self.rescored_per_result.load(Ordering::Relaxed),
            max_ef_search: self.max_ef_search.load(Ordering::Relaxed),
        }
    }
}
