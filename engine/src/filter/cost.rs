//! What the ways to answer a filter cost.

use crate::payload::index::Selection;

// Unit costs in nanoseconds, on one core of an AVX-512 server at 384 dimensions and 117,659 points
// (`benches/src/bin/filters.rs`). What counts is their proportion.

/// A distance of a walk with all that goes with it (edges, visited, pool): `WALK_NS + WALK_COMPONENT_NS * dim`.
const WALK_NS: f64 = 50.0;
const WALK_COMPONENT_NS: f64 = 0.2;
/// Per component where the walk goes over codes.
const WALK_CODE_NS: f64 = 0.04;
/// A distance of a scan of listed slots, with visibility and the heap of results.
const SCAN_NS: f64 = 18.0;
const SCAN_COMPONENT_NS: f64 = 0.1;
/// Per component where codes leave most points out.
const SCAN_CODE_NS: f64 = 0.026;
/// The predicate asked about a point of a list: its row was fetched ahead.
pub(super) const PREDICATE_NS: f64 = 60.0;
/// Asked per distance of a walk: rows are fetched ahead, but from all over memory.
pub(super) const ASKED_NS: f64 = 95.0;
/// Distances of a walk that refuses all but a share of what it meets grow with that power of the share's inverse, as measured down to
/// a third; and in proportion to it when only few pass.
const REFUSED: f64 = 0.55;
/// A term of a range visited: some misses, waited for together with those of others.
const TERM_NS: f64 = 15.0;
/// A search in a dictionary: a node or two are misses, and so are the postings it ends at.
const SPAN_NS: f64 = 700.0;
/// A key looked up in a dictionary, before anything is planned: its leaf and its entry are misses.
pub(super) const KEY_NS: f64 = 250.0;
/// A posting collected, and sorted if there are several terms.
pub(super) const POSTING_NS: f64 = 4.0;
const SORTED_POSTING_NS: f64 = 25.0;
/// A word of a bitset cleared, filled and combined, per term.
pub(super) const WORD_NS: f64 = 0.3;
/// A number of a column compared while all of them are, most of them by their buckets.
const COLUMN_NS: f64 = 0.2;
/// Candidates that come near while a beam of so many places fills with what passes, each place several times.
const ASKED_PER_PLACE: f64 = 5.0;
/// A number of a column compared by itself: a miss of the first-level cache or two.
pub(super) const PASSES_NS: f64 = 20.0;
/// What a led walk pays per distance for looking through what does not pass: edge lists of those are misses.
const LOOK_NS: f64 = 45.0;
/// What a led walk pays in addition for each edge that it looks through. The fewer points pass, the more of these edges there are to a
/// distance.
const LOOK_EDGE_NS: f64 = 2.0;
/// A walk must promise to be that much cheaper than the exact way, which cannot disappoint: where the matching points lie far from
/// the query a walk is given up for it after half its cost.
pub(super) const WALK_LEAD: f64 = 1.25;

/// Share of points from which a walk asks the gate only of what comes near, instead of leading through it. At one beam a led walk
/// scores less and finds less. At the same recall, between .90 and .99, the other was 1.3 to 1.6 times as fast for half of the
/// points, 1.1 to 1.4 times for three in ten, and still not slower for a tenth; but at one beam it then scores several times what an
/// unfiltered walk does, for a recall that nobody asked for.
const MANY: f64 = 0.3;
/// Below such a share of points that match, no more cells are looked through than there: a hundred times as many.
const WIDENED_SHARE_MIN: f64 = 1e-4;
/// So few points are scored without a question what else could be done: no walk costs less.
pub(super) const POINTS_AT_ONCE: u64 = 128;
/// Least number of points that filter-first may collect, whatever `filter_first_relative_bp` says.
const POINTS_LIMIT: u64 = 10_000;
/// Largest number of points that filter-first may collect, whatever `filter_first_relative_bp` says.
const POINTS_LIMIT_MAX: u64 = 1_000_000;

/// What the planner knows of collection and search.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Situation {
    /// Points alive.
    pub live: u64,
    /// Slots that hold a point, dead ones included.
    pub filed: u64,
    /// Slots ever used: the length of a bitset. Read after the snapshot that a search sees, which shows none beyond them.
    pub slots: usize,
    pub dim: usize,
    /// Walks go over int8 codes.
    pub codes: bool,
    /// Degree of the graph.
    pub m: usize,
    /// Beam.
    pub ef: usize,
    /// Where points lie in cells: how many a search looks at. Its walk is to look through lists, and `ef` how many it needs.
    pub probed: Option<f64>,
    /// No walk: the answer shall be exact.
    pub exact: bool,
    /// `filter_first_relative_bp`.
    pub relative_bp: u64,
}

/// How many times as many cells are looked through where such a share of points matches.
pub(crate) fn widened(share: f64) -> f64 {
    1.0 / share.clamp(WIDENED_SHARE_MIN, 1.0).sqrt()
}

impl Situation {
    pub(crate) fn walked_ns(&self) -> f64 {
        if self.probed.is_some() {
            return self.scored_ns();
        }
        let component_ns = if self.codes { WALK_CODE_NS } else { WALK_COMPONENT_NS };
        WALK_NS + component_ns * self.dim as f64
    }

    pub(super) fn scored_ns(&self) -> f64 {
        let component_ns = if self.codes { SCAN_CODE_NS } else { SCAN_COMPONENT_NS };
        SCAN_NS + component_ns * self.dim as f64
    }

    /// The dimension at which computing one exact distance takes `ns` nanoseconds.
    pub(crate) fn dim_scored_in(ns: f64) -> usize {
        ((ns - SCAN_NS) / SCAN_COMPONENT_NS).max(0.0) as usize
    }

    /// What a scan of all points costs, in nanoseconds.
    pub(crate) fn scan_ns(&self) -> f64 {
        self.live as f64 * self.scored_ns()
    }

    /// What an unfiltered walk costs, in nanoseconds.
    pub(crate) fn walk_ns(&self) -> f64 {
        self.distances() * self.walked_ns()
    }

    /// Distances of an unfiltered walk: most of the `3m` edges of each node of the beam lead to something new.
    pub(super) fn distances(&self) -> f64 {
        if let Some(probed) = self.probed {
            return probed;
        }
        2.1 * self.ef as f64 * self.m as f64
    }

    /// A walk among the points that pass a gate, where they are this share of all points.
    pub(crate) fn gated_walk(&self, share: f64) -> GatedWalk {
        let share = share.clamp(1.0 / self.live.max(1) as f64, 1.0);
        if self.leads(share) {
            let widen = widening(share);
            let distances = widen * self.distances() * led_share(share);
            GatedWalk { leads: true, widen, distances, look_ns: look_ns(share) }
        } else {
            GatedWalk { leads: false, widen: 1.0, distances: self.unled(share), look_ns: 0.0 }
        }
    }

    /// Distances of a walk that asks only of what comes near, where this share of the points matches.
    pub(super) fn unled(&self, share: f64) -> f64 {
        self.distances() * share.powf(-REFUSED).max(REFUSED / share)
    }

    /// Whether a walk seeks what passes behind what does not, when that is so large a share.
    pub(super) fn leads(&self, share: f64) -> bool {
        share < MANY && self.probed.is_none()
    }

    /// How often a walk asks its gate. One that is led asks about every edge, another about what comes near, which is few a place of
    /// the beam.
    pub(crate) fn asked(&self, share: f64) -> f64 {
        if self.leads(share) || self.probed.is_some() {
            self.distances() * led_share(share) * (1.0 / share).min(3.0 * self.m as f64)
        } else {
            ASKED_PER_PLACE * self.ef as f64 / share
        }
    }

    pub(super) fn points_limit(&self) -> u64 {
        POINTS_LIMIT.max((self.relative_bp * self.live / 10_000).min(POINTS_LIMIT_MAX))
    }

    pub(super) fn words(&self) -> usize {
        self.slots.div_ceil(64)
    }
}

/// A walk among the points that pass a gate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedWalk {
    /// Whether it seeks what passes behind what does not.
    pub leads: bool,
    /// The beam, against that of an unfiltered walk.
    pub widen: f64,
    /// How many distances it computes.
    pub distances: f64,
    /// What it pays per distance for looking through what does not pass, in nanoseconds.
    pub look_ns: f64,
}

/// Distances of a led walk against an unfiltered one, as measured; see `Graph::search_gated`.
pub(super) fn led_share(share: f64) -> f64 {
    0.58 + 0.75 * share
}

/// What a led walk pays per distance for looking through what does not pass, in nanoseconds, where this share of the points passes.
pub(super) fn look_ns(share: f64) -> f64 {
    LOOK_NS + LOOK_EDGE_NS / share
}

/// How much wider the beam of a led walk is than that of an unfiltered one: the fewer pass, the more edges that would have led on
/// are missing.
pub(super) fn widening(share: f64) -> f64 {
    1.0 + 0.5 * (1.0 - share / 0.3).max(0.0)
}

/// Collecting what the index names, term by term, and asking about it.
pub(super) fn walked_list_ns(selection: &Selection<'_>, asked_ns: f64) -> f64 {
    if selection.at_most() == u64::MAX {
        return f64::INFINITY;
    }
    let posting = if selection.terms() > 8 { SORTED_POSTING_NS } else { POSTING_NS };
    // The smallest part leads, and the others are asked about its slots.
    let collected = selection.collected() as f64;
    let terms = (selection.terms() as f64).min(collected);
    let asked_ns = if matches!(selection, Selection::All(_)) { PREDICATE_NS } else { asked_ns };
    selection.spans() as f64 * SPAN_NS
        + terms * TERM_NS
        + collected * posting
        + selection.at_most() as f64 * asked_ns
}

/// Marking a selection in a bitset.
pub(super) fn bits_ns(of: &Selection<'_>, s: &Situation) -> f64 {
    let words = s.words() as f64 * WORD_NS * 3.0;
    words * (1 + of.counted_parts()) as f64
        + of.spans() as f64 * SPAN_NS
        + of.terms() as f64 * TERM_NS
        + (of.postings().min(s.filed) as f64 * POSTING_NS / 4.0).min(of.terms() as f64 * words)
}

/// Reading columns through.
pub(super) fn marking_ns(columns: usize, s: &Situation) -> f64 {
    s.slots as f64 * COLUMN_NS * columns as f64
}

/// Asking columns about each of the slots that the rest of a filter names; all of them when there is none.
pub(super) fn asked_of(others: Option<&Selection<'_>>, columns: usize) -> f64 {
    others.map_or(f64::INFINITY, |others| others.at_most() as f64 * PASSES_NS * columns as f64)
}
