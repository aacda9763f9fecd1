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

use super::cost::{
    ASKED_NS, PASSES_NS, POINTS_AT_ONCE, POSTING_NS, PREDICATE_NS, Situation, WALK_LEAD, WORD_NS, asked_of,
    bits_ns, marking_ns, walked_list_ns, widened,
};
use super::narrow::{Interval, Known, Lists, Parted, has_ranges, narrow, parted};
use super::predicate::Predicate;
use crate::payload::index::{Column, Selection, View, Walk};

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
    /// Something was left out for being filed under what the filter does not want. That holds as long as no row is replaced: one
    /// that gets such a term and another that the filter does want may be missed under both.
    pub by_complement: bool,
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
    /// The beam, against that of an unfiltered walk.
    pub widen: f64,
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

impl Gate<'_> {
    /// One bit for each of the slots `64 * index ..` that passes.
    pub fn word(&self, index: usize) -> u64 {
        match self {
            Gate::Bits(words) => words.get(index).copied().unwrap_or(0),
            _ => (0..64).filter(|at| self.passes(64 * index as u32 + at)).fold(0, |word, at| word | 1 << at),
        }
    }

    /// All slots below `slots` that pass, ascending.
    fn list(&self, slots: usize) -> Vec<u32> {
        let mut listed = Vec::new();
        match self {
            Gate::Bits(words) | Gate::Columns(_, Some(words)) => {
                for (index, &word) in words.iter().enumerate() {
                    let mut left = word;
                    while left != 0 {
                        let slot = index as u32 * 64 + left.trailing_zeros();
                        left &= left - 1;
                        if (slot as usize) < slots && (matches!(self, Gate::Bits(_)) || self.passes(slot)) {
                            listed.push(slot);
                        }
                    }
                }
            }
            Gate::Open | Gate::Columns(_, None) => {
                listed.extend((0..slots as u32).filter(|&slot| self.passes(slot)));
            }
        }
        listed
    }
}

/// Slots beyond the end were born after the snapshot.
#[inline]
pub(crate) fn bit(words: &[u64], slot: u32) -> bool {
    words.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
}

impl Interval {
    /// The least and the greatest number inside, NaN where a bound is.
    fn closed(&self) -> (f64, f64) {
        // Nothing lies beyond infinity.
        let beyond = |bound: f64, next: f64| if next == bound { f64::NAN } else { next };
        let low =
            self.low.map(|(bound, inclusive)| if inclusive { bound } else { beyond(bound, bound.next_up()) });
        let high = self
            .high
            .map(|(bound, inclusive)| if inclusive { bound } else { beyond(bound, bound.next_down()) });
        (low.unwrap_or(f64::NEG_INFINITY), high.unwrap_or(f64::INFINITY))
    }

    /// Whether a number lies inside; NaN does not.
    #[inline]
    pub(super) fn contains(&self, x: f64) -> bool {
        self.low.is_none_or(|(bound, inclusive)| x > bound || (inclusive && x == bound))
            && self.high.is_none_or(|(bound, inclusive)| x < bound || (inclusive && x == bound))
    }
}

/// The share of the points that is expected to match; `None` if the index cannot estimate it.
pub(crate) fn expected_share(
    filter: &Predicate,
    view: View<'_>,
    lists: &Lists<'_>,
    s: &Situation,
) -> Option<f64> {
    let known = Known { view, lists, looked_up_max: filter.looked_up_max() };
    let selection = narrow(filter, known)?.selection;
    let live = s.live.max(1) as f64;
    let at_most = (selection.at_most() as f64 / live).min(1.0);
    Some(selection.share(s.filed).clamp(1.0 / live, 1.0).min(at_most.max(1.0 / live)))
}

/// A gate for the points that match, for a caller that has a walk of its own, and the nanoseconds that it takes to build; `None` if the payload
/// index has nothing to say. The gate is a hint: some that pass may not match, and if it is a complement, some that match may not pass where rows
/// have been replaced meanwhile.
pub(crate) fn gate_of<'p>(
    filter: &Predicate,
    view: View<'p>,
    lists: &Lists<'_>,
    s: &Situation,
) -> Option<(GatePlan<'p>, f64)> {
    let known = Known { view, lists, looked_up_max: filter.looked_up_max() };
    let selection = narrow(filter, known)?.selection;
    let share = selection.share(s.filed).clamp(1.0 / s.live.max(1) as f64, 1.0);
    let (way, _) = gate(filter, known, &selection, share, s);
    let gate_ns = way.listing_ns(&selection, s);
    Some((GatePlan { way: way.for_a_list(s), selection }, gate_ns))
}

/// A gate that was chosen and not built.
pub(crate) struct GatePlan<'p> {
    way: Way<'p>,
    selection: Selection<'p>,
}

impl<'p> GatePlan<'p> {
    /// Builds the gate, and says whether it or its selection is a complement.
    pub fn build(self, s: &Situation) -> (Gate<'p>, bool) {
        let is_complement = self.selection.has_complement();
        let (gate, path) = self.way.build(&self.selection, s);
        (gate, is_complement || path == Path::Complement)
    }
}

/// Chooses. Costs two paths down a dictionary per term of the filter, and what the chosen way looks up.
pub(crate) fn plan<'p>(
    filter: &Predicate,
    view: View<'p>,
    lists: &Lists<'_>,
    s: &Situation,
) -> (Plan<'p>, Estimate) {
    let known = Known { view, lists, looked_up_max: filter.looked_up_max() };
    let live = s.live.max(1) as f64;
    let mut estimate = Estimate::default();
    let Some(narrowed) = narrow(filter, known) else {
        estimate.everything_ns = live * (PREDICATE_NS + s.scored_ns());
        estimate.walk_ns = s.distances() * (s.walked_ns() + ASKED_NS);
        estimate.points_ns = f64::INFINITY;
        // Unknown how many match; a walk gives up in time.
        if s.exact || estimate.walk_ns > estimate.everything_ns {
            estimate.path = Path::Everything;
            return (Plan::Everything, estimate);
        }
        estimate.path = Path::Predicate;
        let graph = Graph {
            gate: Gate::Open,
            leads: false,
            exact: false,
            widen: 1.0,
            effort: usize::MAX,
            selection: None,
        };
        return (Plan::Graph(graph), estimate);
    };
    let (selection, exact) = (narrowed.selection, narrowed.exact);
    let at_most = selection.at_most();
    if at_most == 0 {
        estimate = Estimate { path: Path::Nothing, at_most: Some(0), expected: Some(0), ..estimate };
        return (Plan::Nothing, estimate);
    }
    estimate.by_complement = selection.has_complement();
    let share = selection.share(s.filed).clamp(1.0 / live, 1.0);
    estimate.at_most = Some(at_most);
    estimate.expected = Some((share * live) as u64);
    estimate.everything_ns = live * (PREDICATE_NS + share * s.scored_ns());
    if at_most <= POINTS_AT_ONCE
        && let Some((walk, whole)) = selection.walk(usize::MAX)
    {
        let asked_ns = if exact && whole { 0.0 } else { PREDICATE_NS };
        estimate.path = Path::Points;
        estimate.points_ns = at_most as f64 * (asked_ns + s.scored_ns());
        estimate.walk_ns = f64::INFINITY;
        return (Plan::Points { walk, exact: exact && whole }, estimate);
    }

    let (way, gated_ns) = gate(filter, known, &selection, share, s);
    let exact = exact && way.is_exact();
    let walk = s.gated_walk(share);
    let asked_ns = if exact { 0.0 } else { ASKED_NS / 2.0 };
    let through_gate_ns = gated_ns + walk.distances * (s.walked_ns() + walk.look_ns + asked_ns);
    let open_ns = s.unled(share) * (s.walked_ns() + ASKED_NS);
    let (through_gate_ns, open_ns) = match s.probed {
        // Lists are looked through until enough match, and only what matches is scored.
        Some(probed) => {
            let looked = (probed * widened(share)).min(s.filed as f64).max(s.ef as f64 / share);
            let asked_ns = if exact { 0.0 } else { PREDICATE_NS };
            (
                gated_ns + looked * (POSTING_NS + share * (s.scored_ns() + asked_ns)),
                looked * (POSTING_NS + PREDICATE_NS + share * s.scored_ns()),
            )
        }
        None => (through_gate_ns, open_ns),
    };
    let gated = through_gate_ns <= open_ns;
    estimate.walk_ns = through_gate_ns.min(open_ns);
    let led = walk.leads && gated;
    let widen = if led { walk.widen } else { 1.0 };
    let distances = if led { walk.distances } else { s.distances() / share };

    let asked_ns = if exact { 0.0 } else { PREDICATE_NS };
    let scored_ns = share * live * s.scored_ns();
    let by_walk_ns = walked_list_ns(&selection, asked_ns) + scored_ns;
    let by_gate_ns = way.listing_ns(&selection, s) + share * live * asked_ns + scored_ns;
    estimate.points_ns = by_walk_ns.min(by_gate_ns);
    let best_exact = estimate.points_ns.min(estimate.everything_ns);

    let few = at_most <= s.points_limit() || estimate.points_ns <= estimate.everything_ns;
    if s.exact || estimate.walk_ns * WALK_LEAD >= best_exact {
        if few && by_gate_ns < by_walk_ns {
            let (gate, path) = way.for_a_list(s).build(&selection, s);
            estimate.by_complement |= path == Path::Complement;
            estimate.path = Path::Points;
            // That every point has a number was read from gauges, not from the snapshot.
            let exact = exact && path != Path::Complement;
            return (Plan::Points { walk: Walk::Listed(gate.list(s.slots).into_iter()), exact }, estimate);
        }
        if few && let Some((walk, whole)) = selection.walk(usize::MAX) {
            estimate.path = Path::Points;
            return (Plan::Points { walk, exact: exact && whole }, estimate);
        }
        estimate.path = Path::Everything;
        return (Plan::Everything, estimate);
    }
    let effort = (1.5 * distances).max(best_exact / s.walked_ns());
    let (gate, path) = if gated { way.build(&selection, s) } else { (Gate::Open, Path::Predicate) };
    estimate.path = path;
    estimate.by_complement |= path == Path::Complement;
    let exact = exact && matches!(path, Path::Gate | Path::Column);
    let graph = Graph { gate, leads: led, exact, widen, effort: effort as usize, selection: Some(selection) };
    (Plan::Graph(graph), estimate)
}

/// A gate not built yet.
enum Way<'p> {
    Bits,
    Complement(Selection<'p>),
    /// Asked number by number, or read through once into a bitset, whichever costs less.
    Columns {
        columns: Vec<(Column<'p>, Interval)>,
        others: Option<Selection<'p>>,
        marked: bool,
        /// Columns and selection say all that the filter does.
        exact: bool,
    },
}

impl<'p> Way<'p> {
    /// Building the gate and listing what passes.
    fn listing_ns(&self, selection: &Selection<'_>, s: &Situation) -> f64 {
        let listed = s.words() as f64 * WORD_NS * 3.0;
        match self {
            Way::Bits => bits_ns(selection, s) + listed,
            Way::Complement(rejected) => bits_ns(rejected, s) + listed,
            Way::Columns { columns, others, .. } => {
                let others_ns = others.as_ref().map_or(0.0, |others| bits_ns(others, s));
                let asked_ns = asked_of(others.as_ref(), columns.len());
                others_ns + listed + asked_ns.min(marking_ns(columns.len(), s))
            }
        }
    }

    /// As it is built to be listed: columns are read through unless the rest of the filter names only a few.
    fn for_a_list(self, s: &Situation) -> Self {
        match self {
            Way::Columns { columns, others, exact, .. } => {
                let marked = marking_ns(columns.len(), s) <= asked_of(others.as_ref(), columns.len());
                Way::Columns { columns, others, marked, exact }
            }
            way => way,
        }
    }

    /// Whether what it lets pass is certain, as far as the index was asked to make it.
    fn is_exact(&self) -> bool {
        match self {
            Way::Bits | Way::Complement(_) => true,
            Way::Columns { exact, .. } => *exact,
        }
    }

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
            Way::Columns { columns, others, marked, .. } => {
                let of_others = others.map(|others| {
                    let mut words = vec![0; s.words()];
                    others.mark(&mut words);
                    words
                });
                if !marked {
                    return (Gate::Columns(columns, of_others), Path::Column);
                }
                let mut words = of_others.unwrap_or_else(|| vec![u64::MAX; s.words()]);
                for (column, interval) in columns {
                    let (low, high) = interval.closed();
                    column.retain(&mut words, low, high);
                }
                (Gate::Bits(words), Path::Column)
            }
        }
    }
}

/// The cheapest gate and what it costs to build, or in the case of columns to ask.
fn gate<'p>(
    filter: &Predicate,
    known: Known<'_, 'p>,
    selection: &Selection<'p>,
    share: f64,
    s: &Situation,
) -> (Way<'p>, f64) {
    let mut best = (Way::Bits, bits_ns(selection, s));
    if !has_ranges(filter) {
        // Without a second look at what the index has said.
        return best;
    }
    let Parted { ranges, others, only_ranges, exact } = parted(filter, known);
    let view = known.view;
    let columns: Option<Vec<_>> = (!ranges.is_empty())
        .then(|| {
            let wanted = ranges.iter().map(|(field, interval)| (view.column(field), *interval));
            wanted.map(|(column, interval)| Some((column?, interval))).collect()
        })
        .flatten();
    if let Some(columns) = columns {
        let (asked_ns, marking_ns) = (s.asked(share) * PASSES_NS, marking_ns(columns.len(), s));
        let others_ns = others.as_ref().map_or(0.0, |others| bits_ns(others, s));
        let column_ns = asked_ns.min(marking_ns) + others_ns;
        if column_ns < best.1 {
            best = (Way::Columns { columns, others, marked: marking_ns <= asked_ns, exact }, column_ns);
        }
    } else if only_ranges && let Some(rejected) = outside(&ranges, view, s) {
        let rejected_ns = bits_ns(&rejected, s);
        if rejected_ns < best.1 {
            best = (Way::Complement(rejected), rejected_ns);
        }
    }
    best
}

/// What lies outside some range of `ranges`; `None` when a point may lie neither inside nor outside, or both.
fn outside<'p>(ranges: &[(&str, Interval)], view: View<'p>, s: &Situation) -> Option<Selection<'p>> {
    if !view.is_settled() {
        return None;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_bounds_hold_the_same_numbers() {
        let edges =
            [f64::NEG_INFINITY, f64::MIN, -1.0, -0.0, 0.0, f64::MIN_POSITIVE, 1.0, f64::INFINITY, f64::NAN];
        let bounds = edges.iter().flat_map(|&edge| [Some((edge, true)), Some((edge, false))]).chain([None]);
        let bounds: Vec<_> = bounds.collect();
        let numbers = edges.iter().flat_map(|&edge| [edge, edge.next_up(), edge.next_down()]);
        for number in numbers {
            for &low in &bounds {
                for &high in &bounds {
                    let interval = Interval { low, high };
                    let (least, most) = interval.closed();
                    assert_eq!(
                        interval.contains(number) && !number.is_nan(),
                        number >= least && number <= most,
                        "{number} {interval:?}"
                    );
                }
            }
        }
    }
}
