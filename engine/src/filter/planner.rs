//! How a search answers a filter: by cost, from what the payload index says before anything is looked up.
//!
//! | path | what it does | when |
//! |---|---|---|
//! | [`Path::Nothing`] | answers at once | nothing is filed under what the filter asks for |
//! | [`Path::Points`] | scores the points the index names | they are few |
//! | [`Path::Gate`], [`Path::Complement`], [`Path::Column`] | walks the graph among points that pass a bit or a number | they are many, and cheap to tell |
//! | [`Path::Predicate`] | walks the graph, asking the predicate of each candidate | the index has nothing to say |
//! | [`Path::Everything`] | asks the predicate of every point | the walk would cost more |
//!
//! Results never depend on the path, but for those that a graph misses: whatever is found is checked for visibility, and by the
//! predicate too unless the index stands for the values themselves.

use super::narrow::{Interval, Parted, narrow, parted};
use super::predicate::Predicate;
use crate::payload::index::{Column, Selection, View, Walk};

// Unit costs in nanoseconds, on one core of an AVX-512 server at 384 dimensions and 117,659 points
// (`benches/src/bin/filters.rs`). What counts is their proportion.

/// A distance of a walk with all that goes with it (edges, visited, pool): `WALK_NS + WALK_COMPONENT_NS * dim`.
const WALK_NS: f64 = 50.0;
const WALK_COMPONENT_NS: f64 = 0.15;
/// A distance of a scan of listed slots, with visibility and the heap of results.
const SCAN_NS: f64 = 20.0;
const SCAN_COMPONENT_NS: f64 = 0.1;
/// The predicate asked about a point: mostly the misses of line and row.
const PREDICATE_NS: f64 = 150.0;
/// A term of a range visited: the entry is a miss.
const TERM_NS: f64 = 40.0;
/// A posting collected, and sorted if there are several terms.
const POSTING_NS: f64 = 4.0;
const SORTED_POSTING_NS: f64 = 25.0;
/// A word of a bitset cleared, filled and combined, per term.
const WORD_NS: f64 = 0.3;
/// A number of a column compared while all of them are.
const COLUMN_NS: f64 = 0.5;
/// A number of a column compared by itself: often a miss of the first-level cache.
const PASSES_NS: f64 = 4.0;
/// What a led walk pays per distance for looking through what does not pass, times how many there are to one that does.
const LOOK_NS: f64 = 3.5;

/// Share of points from which a walk asks the gate only of what comes near, instead of leading through it: most neighbours
/// pass, so nothing has to be sought behind those that do not.
const MOST: f64 = 0.7;
/// Least number of points that filter-first may collect, whatever `filter_first_relative_bp` says.
const POINTS_LIMIT: u64 = 10_000;
/// And most.
const POINTS_LIMIT_MAX: u64 = 1_000_000;

/// What the planner knows of collection and search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// Points alive.
    pub live: u64,
    /// Slots that hold a point, dead ones included.
    pub filed: u64,
    /// Slots ever used: the length of a bitset.
    pub slots: usize,
    pub dim: usize,
    /// Degree of the graph.
    pub m: usize,
    /// Beam.
    pub ef: usize,
    /// No walk: the answer shall be exact.
    pub exact: bool,
    /// `filter_first_relative_bp`.
    pub relative_bp: u64,
}

/// The way a filter was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// No filter, or one that matches everything.
    #[default]
    Unfiltered,
    /// Nothing can match.
    Nothing,
    /// The points the index names were scored.
    Points,
    /// A walk among the points of a bitset.
    Gate,
    /// A walk among the points that are not in the bitset of those outside a range.
    Complement,
    /// A walk among the points whose numbers in a column lie in range.
    Column,
    /// A walk that asked the predicate.
    Predicate,
    /// The predicate was asked of every point.
    Everything,
}

impl Path {
    /// Its name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Path::Unfiltered => "unfiltered",
            Path::Nothing => "nothing",
            Path::Points => "points",
            Path::Gate => "gate",
            Path::Complement => "complement",
            Path::Column => "column",
            Path::Predicate => "predicate",
            Path::Everything => "everything",
        }
    }
}

/// What the planner expected, for `explain`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The way chosen.
    pub path: Path,
    /// Upper bound of the points that match; `None` when the index has nothing to say.
    pub at_most: Option<u64>,
    /// Points expected to match, were the parts of the filter independent.
    pub expected: Option<u64>,
    /// Nanoseconds, about, of scoring the named points.
    pub points_ns: f64,
    /// Of a walk.
    pub walk_ns: f64,
    /// Of asking about every point.
    pub everything_ns: f64,
}

/// What to do.
pub(crate) enum Plan<'p> {
    Nothing,
    /// Score these; `exact`: without asking the predicate.
    Points {
        walk: Walk<'p>,
        exact: bool,
    },
    /// Walk the graph.
    Graph(Graph<'p>),
    Everything,
}

/// A walk of the graph.
pub(crate) struct Graph<'p> {
    pub gate: Gate<'p>,
    /// Seek what passes behind what does not (see `Graph::search_gated`).
    pub leads: bool,
    /// What passes the gate matches.
    pub exact: bool,
    /// Distances after which the exact way would have been cheaper.
    pub effort: usize,
    /// The exact way.
    pub selection: Option<Selection<'p>>,
}

/// What a candidate passes before anything else is asked.
pub(crate) enum Gate<'p> {
    /// Anything.
    Open,
    /// One bit per slot.
    Bits(Vec<u64>),
    /// Numbers within bounds, and one bit per slot for the rest of the filter.
    Columns(Vec<(Column<'p>, Interval)>, Option<Vec<u64>>),
}

impl Gate<'_> {
    /// Whether the slot passes.
    #[inline]
    pub fn passes(&self, slot: u32) -> bool {
        match self {
            Gate::Open => true,
            Gate::Bits(words) => bit(words, slot),
            Gate::Columns(columns, words) => {
                let inside = |&(column, interval): &(Column<'_>, Interval)| {
                    column.get(slot).is_some_and(|x| interval.contains(x))
                };
                words.as_ref().is_none_or(|words| bit(words, slot)) && columns.iter().all(inside)
            }
        }
    }
}

/// Slots beyond the end were born after the snapshot.
#[inline]
fn bit(words: &[u64], slot: u32) -> bool {
    words.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
}

impl Interval {
    /// Whether a number lies inside; NaN does not.
    #[inline]
    pub(super) fn contains(&self, x: f64) -> bool {
        self.low.is_none_or(|(bound, inclusive)| x > bound || (inclusive && x == bound))
            && self.high.is_none_or(|(bound, inclusive)| x < bound || (inclusive && x == bound))
    }
}

impl Situation {
    fn walked_ns(&self) -> f64 {
        WALK_NS + WALK_COMPONENT_NS * self.dim as f64
    }

    fn scored_ns(&self) -> f64 {
        SCAN_NS + SCAN_COMPONENT_NS * self.dim as f64
    }

    /// Distances of an unfiltered walk: most of the `2m` edges of each node of the beam lead to something new.
    fn distances(&self) -> f64 {
        1.6 * (self.ef * self.m) as f64
    }

    fn points_limit(&self) -> u64 {
        POINTS_LIMIT.max((self.relative_bp * self.live / 10_000).min(POINTS_LIMIT_MAX))
    }

    fn words(&self) -> usize {
        self.slots.div_ceil(64)
    }
}

/// Chooses. Costs two paths down a dictionary per term of the filter, and what the chosen way looks up.
pub(crate) fn plan<'p>(filter: &Predicate, view: View<'p>, s: &Situation) -> (Plan<'p>, Estimate) {
    let live = s.live.max(1) as f64;
    let mut estimate = Estimate::default();
    let Some(narrowed) = narrow(filter, view) else {
        estimate.everything_ns = live * (PREDICATE_NS + s.scored_ns());
        estimate.walk_ns = s.distances() * (s.walked_ns() + PREDICATE_NS / 2.0);
        estimate.points_ns = f64::INFINITY;
        // Unknown how many match; a walk gives up in time.
        if s.exact || estimate.walk_ns > estimate.everything_ns {
            estimate.path = Path::Everything;
            return (Plan::Everything, estimate);
        }
        estimate.path = Path::Predicate;
        let graph =
            Graph { gate: Gate::Open, leads: false, exact: false, effort: usize::MAX, selection: None };
        return (Plan::Graph(graph), estimate);
    };
    let (selection, exact) = (narrowed.selection, narrowed.exact);
    let at_most = selection.at_most();
    if at_most == 0 {
        estimate = Estimate { path: Path::Nothing, at_most: Some(0), expected: Some(0), ..estimate };
        return (Plan::Nothing, estimate);
    }
    let share = selection.share(s.filed).clamp(1.0 / live, 1.0);
    estimate.at_most = Some(at_most);
    estimate.expected = Some((share * live) as u64);
    estimate.points_ns = points_ns(&selection, exact, share, s);
    estimate.everything_ns = live * (PREDICATE_NS + share * s.scored_ns());

    let (mut way, gated_ns) = gate(filter, view, &selection, share, s);
    let led = share < MOST && way.is_some();
    let distances = if led { s.distances() * led_share(share) } else { s.distances() / share };
    let look_ns = if led { LOOK_NS / share } else { 0.0 };
    let asked_ns = if exact && way.is_some() { 0.0 } else { PREDICATE_NS / 2.0 };
    estimate.walk_ns = gated_ns + distances * (s.walked_ns() + look_ns + asked_ns);
    let best_exact = estimate.points_ns.min(estimate.everything_ns);

    if let Some(Way::Columns(columns, _)) = &way
        && estimate.points_ns < estimate.walk_ns.min(estimate.everything_ns)
        && at_most <= s.points_limit()
        && gated_ns + s.slots as f64 * COLUMN_NS * (columns.len() as f64) < lookup_ns(&selection)
        && let Some(way) = way.take()
    {
        // The columns are read through faster than the terms of the ranges are visited and sorted.
        let (gate, _) = way.build(&selection, s);
        let listed: Vec<u32> = (0..s.slots as u32).filter(|&slot| gate.passes(slot)).collect();
        estimate.path = Path::Points;
        return (Plan::Points { walk: Walk::Listed(listed.into_iter()), exact }, estimate);
    }
    let few = at_most <= s.points_limit() || estimate.points_ns <= estimate.everything_ns;
    if s.exact || estimate.walk_ns >= best_exact {
        if few && let Some((walk, whole)) = selection.walk(usize::MAX) {
            estimate.path = Path::Points;
            return (Plan::Points { walk, exact: exact && whole }, estimate);
        }
        estimate.path = Path::Everything;
        return (Plan::Everything, estimate);
    }
    let effort = 2.0 * distances + best_exact / s.walked_ns();
    let (gate, path) = match way.take() {
        Some(way) => way.build(&selection, s),
        None => (Gate::Open, Path::Predicate),
    };
    estimate.path = path;
    let exact = exact && matches!(path, Path::Gate | Path::Column);
    let graph = Graph { gate, leads: led, exact, effort: effort as usize, selection: Some(selection) };
    (Plan::Graph(graph), estimate)
}

/// Distances of a led walk against an unfiltered one, as measured; see `Graph::search_gated`.
fn led_share(share: f64) -> f64 {
    0.55 + 0.8 * share
}

/// The exact way over what the index names.
fn points_ns(selection: &Selection<'_>, exact: bool, share: f64, s: &Situation) -> f64 {
    let asked_ns = if exact { 0.0 } else { PREDICATE_NS };
    let lead = selection.at_most() as f64;
    lookup_ns(selection) + lead * asked_ns + (share * s.live as f64) * s.scored_ns()
}

/// Collecting what the index names.
fn lookup_ns(selection: &Selection<'_>) -> f64 {
    let posting = if selection.terms() > 8 { SORTED_POSTING_NS } else { POSTING_NS };
    // The smallest part leads, and the others are asked about its slots.
    let collected = (selection.postings() as f64).min(3.0 * selection.at_most() as f64);
    let terms = (selection.terms() as f64).min(collected);
    terms * TERM_NS + collected * posting
}

/// A gate not built yet.
enum Way<'p> {
    Bits,
    Complement(Selection<'p>),
    Columns(Vec<(Column<'p>, Interval)>, Option<Selection<'p>>),
}

impl<'p> Way<'p> {
    fn build(self, selection: &Selection<'p>, s: &Situation) -> (Gate<'p>, Path) {
        match self {
            Way::Bits => {
                let mut words = vec![0; s.words()];
                selection.mark(&mut words);
                (Gate::Bits(words), Path::Gate)
            }
            Way::Complement(rejected) => {
                let mut words = vec![0; s.words()];
                rejected.mark(&mut words);
                words.iter_mut().for_each(|word| *word = !*word);
                (Gate::Bits(words), Path::Complement)
            }
            Way::Columns(columns, others) => {
                let marked = others.map(|others| {
                    let mut words = vec![0; s.words()];
                    others.mark(&mut words);
                    words
                });
                (Gate::Columns(columns, marked), Path::Column)
            }
        }
    }
}

/// The cheapest gate and what it costs to build; none when asking the predicate costs less.
fn gate<'p>(
    filter: &Predicate,
    view: View<'p>,
    selection: &Selection<'p>,
    share: f64,
    s: &Situation,
) -> (Option<Way<'p>>, f64) {
    let bits_ns = |of: &Selection<'_>| {
        let words = s.words() as f64 * WORD_NS * 3.0;
        words + of.terms() as f64 * TERM_NS + of.postings().min(s.filed) as f64 * POSTING_NS / 4.0
    };
    let mut best = (Some(Way::Bits), bits_ns(selection));
    // What a walk without a gate pays more: the predicate of each candidate, and a longer way.
    let spared_ns = s.distances() / share * (s.walked_ns() + PREDICATE_NS / 2.0)
        - s.distances() * led_share(share).min(1.0 / share) * (s.walked_ns() + LOOK_NS / share);
    let Parted { ranges, others, only_ranges } = parted(filter, view);
    let columns: Option<Vec<_>> = (!ranges.is_empty())
        .then(|| {
            let wanted = ranges.iter().map(|(field, interval)| (view.column(field), *interval));
            wanted.map(|(column, interval)| Some((column?, interval))).collect()
        })
        .flatten();
    if let Some(columns) = columns {
        let sought = s.distances() * led_share(share) * (1.0 / share).min(2.0 * s.m as f64);
        let column_ns = sought * PASSES_NS + others.as_ref().map_or(0.0, bits_ns);
        if column_ns < best.1 {
            best = (Some(Way::Columns(columns, others)), column_ns);
        }
    } else if only_ranges && let Some(rejected) = outside(&ranges, view, s) {
        let rejected_ns = bits_ns(&rejected);
        if rejected_ns < best.1 {
            best = (Some(Way::Complement(rejected)), rejected_ns);
        }
    }
    if best.1 > spared_ns { (None, 0.0) } else { best }
}

/// What lies outside some range of `ranges`; `None` when a point may lie neither inside nor outside.
fn outside<'p>(ranges: &[(&str, Interval)], view: View<'p>, s: &Situation) -> Option<Selection<'p>> {
    let mut parts = Vec::new();
    for &(field, Interval { low, high }) in ranges {
        let numbers = Selection::Terms(view.number_range(field, None, None)).at_most();
        if numbers != s.filed {
            return None;
        }
        for (bound, below) in [(low, true), (high, false)] {
            if let Some((bound, inclusive)) = bound {
                let edge = Some((bound, !inclusive));
                let terms = if below {
                    view.number_range(field, None, edge)
                } else {
                    view.number_range(field, edge, None)
                };
                parts.push(Selection::Terms(terms));
            }
        }
    }
    Some(Selection::Any(parts))
}
