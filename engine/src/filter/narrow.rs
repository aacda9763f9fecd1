//! From a filter to the slots that can match, by the payload index.

use super::expr::Expr;
use super::ids::IdSlots;
use super::leaf::{Relation, Test};
use super::membership::Members;
use super::predicate::Predicate;
use crate::payload::index::{Bound, Class, Marked, Selection, Terms, View};
use crate::payload::{CONTENT_KEY, Value};
use std::rc::Rc;

/// Conditions `min_should` within each other of which a set is made. Marking one holds some ten bitsets over all slots; points are asked about
/// what is deeper.
const COUNTING_DEPTH_MAX: usize = 3;

/// What was found under long lists of one filter, and the slots of the ids in it.
#[derive(Default)]
pub(crate) struct Lists<'f> {
    members: Vec<(&'f Members, Rc<Marked>, bool)>,
    ids: IdSlots<'f>,
}

impl<'f> Lists<'f> {
    /// No long lists.
    pub fn of_ids(ids: IdSlots<'f>) -> Lists<'f> {
        Lists { members: Vec::new(), ids }
    }

    /// Adds what was found under a list, and whether each of it matches.
    pub(super) fn add(&mut self, members: &'f Members, found: Marked, exact: bool) {
        self.members.push((members, Rc::new(found), exact));
    }

    /// The slots under a list that was looked up, and whether each of them matches.
    pub(super) fn of<'p>(&self, members: &Members) -> Option<(Selection<'p>, bool)> {
        let (_, marked, exact) = self.members.iter().find(|(of, ..)| std::ptr::eq(*of, members))?;
        Some((Selection::Marked(marked.clone()), *exact))
    }
}

/// What is known of a collection's payloads.
#[derive(Clone, Copy)]
pub(super) struct Known<'a, 'p> {
    pub view: View<'p>,
    /// Long lists of the filter, looked up before.
    pub lists: &'a Lists<'a>,
    /// Most elements of a list that are looked up here, and words of a text: `Predicate::looked_up_max`.
    pub looked_up_max: usize,
}

/// Every point that matches is in the selection.
pub(super) struct Narrowed<'p> {
    pub selection: Selection<'p>,
    /// And every point of it matches, as long as it is visible.
    pub exact: bool,
}

/// The numbers a field must lie between.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Interval {
    pub(super) low: Bound<f64>,
    pub(super) high: Bound<f64>,
}

/// What the index says about a filter; `None` when it has nothing to say (expressions that match anywhere, tests of emptiness, the content, and
/// the negation of what it does not know exactly). In a conjunction what narrows is taken and the rest checked point by point.
pub(super) fn narrow<'p>(filter: &Predicate, known: Known<'_, 'p>) -> Option<Narrowed<'p>> {
    narrow_expr(filter.expr(), known)
}

/// A conjunction taken apart: the ranges of numbers in it, by field, and what else the index says.
pub(super) struct Parted<'f, 'p> {
    pub ranges: Vec<(&'f str, Interval)>,
    pub others: Option<Selection<'p>>,
    /// It consists of ranges alone.
    pub only_ranges: bool,
    /// The ranges and the selection say all that the filter does. What was exact a moment ago may not be any more: the index is
    /// asked twice.
    pub exact: bool,
}

/// Whether there is a range of numbers in a conjunction.
pub(super) fn has_ranges(filter: &Predicate) -> bool {
    let leaf = std::slice::from_ref(filter.expr());
    let children = if let Expr::All(children) = filter.expr() { children } else { leaf };
    children.iter().any(|child| matches!(child, Expr::Leaf { test: Test::Number(..), .. }))
}

/// Takes a filter apart; a single leaf is a conjunction of one.
pub(super) fn parted<'f, 'p>(filter: &'f Predicate, known: Known<'_, 'p>) -> Parted<'f, 'p> {
    let leaf = std::slice::from_ref(filter.expr());
    let children = if let Expr::All(children) = filter.expr() { children } else { leaf };
    let mut parted = Parted { ranges: Vec::new(), others: None, only_ranges: true, exact: true };
    let mut others = Vec::new();
    for child in children {
        match child {
            Expr::Leaf { field, test: Test::Number(_, _, times) }
                if &**field != CONTENT_KEY && !(times.is_some() && known.view.has_texts(field)) =>
            {
                parted.exact &= known.view.is_exact(field);
                if parted.ranges.iter().all(|(other, _)| *other != &**field) {
                    parted.ranges.push((field, interval(children, field)));
                }
            }
            child => {
                parted.only_ranges = false;
                // Bounds of texts are taken one by one here; that they make one range matters to estimates alone.
                let narrowed = narrow_expr(child, known);
                parted.exact &= narrowed.as_ref().is_some_and(|narrowed| narrowed.exact);
                others.extend(narrowed.map(|narrowed| narrowed.selection));
            }
        }
    }
    parted.others = (!others.is_empty()).then_some(Selection::All(others));
    parted
}

pub(super) fn narrow_expr<'p>(expr: &Expr, known: Known<'_, 'p>) -> Option<Narrowed<'p>> {
    match expr {
        Expr::Always => None,
        // What is filed under exactly what matches is all that does not match.
        Expr::Not(child) => complement(narrow_expr(child, known)).map(|others| {
            // A point that was deleted after the snapshot is not found by its id, but is no other point either.
            Narrowed { exact: others.exact && !child.lists_ids(), ..others }
        }),
        Expr::HasId(ids) => {
            let slots = known.lists.ids.of(ids)?;
            Some(Narrowed { selection: Selection::Listed(slots), exact: true })
        }
        Expr::Never => Some(Narrowed { selection: Selection::nothing(), exact: true }),
        Expr::Leaf { field, test } => {
            let narrowed = match test {
                Test::Number(..) | Test::Text(..) => range(std::slice::from_ref(expr), field, test, known),
                // A point without the field matches neither.
                Test::Ne(value) => {
                    let equal = settled(leaf(field, &Test::Eq(value.clone()), known), field, known);
                    let holders = Selection::Terms(known.view.holders(field));
                    return complement(equal).map(|others| Narrowed {
                        selection: Selection::All(vec![holders, others.selection]),
                        exact: others.exact,
                    });
                }
                test => leaf(field, test, known),
            };
            settled(narrowed, field, known)
        }
        Expr::All(children) => all(children, known),
        Expr::AtLeast(wanted, children) => {
            let mut exact = true;
            let mut parts = Vec::with_capacity(children.len());
            for narrowed in children.iter().filter_map(|child| narrow_expr(child, known)) {
                exact &= narrowed.exact;
                parts.push(narrowed.selection);
            }
            // A point may match every condition that the index cannot look up, so that fewer of the others are wanted.
            let unknown = children.len() - parts.len();
            let wanted = wanted.checked_sub(unknown).filter(|wanted| *wanted > 0)?;
            let selection = Selection::at_least(wanted, parts);
            let is_shallow = selection.counting_depth() <= COUNTING_DEPTH_MAX;
            is_shallow.then_some(Narrowed { selection, exact: exact && unknown == 0 })
        }
        Expr::Any(children) => {
            let mut exact = true;
            let mut parts = Vec::with_capacity(children.len());
            for child in children {
                let narrowed = narrow_expr(child, known)?;
                exact &= narrowed.exact;
                parts.push(narrowed.selection);
            }
            Some(Narrowed { selection: Selection::Any(parts), exact })
        }
    }
}

/// The rest of an exact answer, which is exact as well.
fn complement(narrowed: Option<Narrowed<'_>>) -> Option<Narrowed<'_>> {
    let Narrowed { selection, .. } = narrowed.filter(|narrowed| narrowed.exact)?;
    Some(Narrowed { selection: Selection::Not(Box::new(selection)), exact: true })
}

/// A leaf's answer, with what holds for every leaf.
fn settled<'p>(narrowed: Option<Narrowed<'p>>, field: &str, known: Known<'_, 'p>) -> Option<Narrowed<'p>> {
    let Narrowed { selection, exact } = narrowed.filter(|_| field != CONTENT_KEY)?;
    Some(Narrowed { selection, exact: exact && known.view.is_exact(field) })
}

fn all<'p>(children: &[Expr], known: Known<'_, 'p>) -> Option<Narrowed<'p>> {
    let mut exact = true;
    let mut parts = Vec::new();
    for (index, child) in children.iter().enumerate() {
        let narrowed = match child {
            // A scalar field has one value, so its bounds make one range, taken with the first of them.
            Expr::Leaf { field, test: test @ (Test::Number(..) | Test::Text(..)) } => {
                if children[..index].iter().any(|other| is_range_of(other, field, test)) {
                    continue;
                }
                settled(range(children, field, test, known), field, known)
            }
            _ => narrow_expr(child, known),
        };
        match narrowed {
            Some(narrowed) => {
                exact &= narrowed.exact;
                parts.push(narrowed.selection);
            }
            None => exact = false,
        }
    }
    let selection = if parts.len() == 1 { parts.pop()? } else { Selection::All(parts) };
    let narrows = !matches!(&selection, Selection::All(parts) if parts.is_empty());
    narrows.then_some(Narrowed { selection, exact })
}

/// Whether `expr` is a bound of the same field, and of the same sort.
fn is_range_of(expr: &Expr, field: &str, test: &Test) -> bool {
    let Expr::Leaf { field: other, test: bound } = expr else { return false };
    **other == *field
        && matches!((bound, test), (Test::Number(..), Test::Number(..)) | (Test::Text(..), Test::Text(..)))
}

/// The bounds that `leaves` set to the numbers of `field`.
fn interval(leaves: &[Expr], field: &str) -> Interval {
    let mut interval = Interval::default();
    for leaf in leaves {
        if let Expr::Leaf { field: other, test: Test::Number(relation, bound, _) } = leaf
            && **other == *field
        {
            let (bound, inclusive, is_low) = side(*relation, *bound);
            let side = if is_low { &mut interval.low } else { &mut interval.high };
            let tighter = side.is_none_or(|(old, old_inclusive)| {
                bound.is_nan()
                    || (if is_low { bound > old } else { bound < old })
                    || (bound == old && !inclusive && old_inclusive)
            });
            if tighter && !side.is_some_and(|(old, _)| old.is_nan()) {
                *side = Some((bound, inclusive));
            }
        }
    }
    interval
}

/// A bound, whether it is itself inside, and whether it is a lower one.
fn side<T>(relation: Relation, bound: T) -> (T, bool, bool) {
    let inclusive = matches!(relation, Relation::GreaterOrEqual | Relation::LessOrEqual);
    (bound, inclusive, matches!(relation, Relation::Greater | Relation::GreaterOrEqual))
}

/// All bounds among `leaves` of one field, of the sort of `test`.
fn range<'p>(leaves: &[Expr], field: &str, test: &Test, known: Known<'_, 'p>) -> Option<Narrowed<'p>> {
    if let Test::Number(_, _, times) = test {
        let Interval { low, high } = interval(leaves, field);
        let numbers = Selection::Terms(known.view.number_range(field, low, high));
        if times.is_none() || !known.view.has_texts(field) {
            return Some(Narrowed { selection: numbers, exact: true });
        }
        let (low, high) = time_edges(leaves, field);
        let (texts, _) = known.view.text_range(field, low, high);
        return Some(Narrowed {
            selection: Selection::Any(vec![numbers, Selection::Terms(texts)]),
            exact: false,
        });
    }
    let (mut low, mut high): (Bound<&str>, Bound<&str>) = (None, None);
    for leaf in leaves {
        if let Expr::Leaf { field: other, test: Test::Text(relation, bound) } = leaf
            && **other == *field
        {
            let (bound, inclusive, is_low) = side(*relation, &**bound);
            let side = if is_low { &mut low } else { &mut high };
            let tighter = side.is_none_or(|(old, old_inclusive)| {
                (if is_low { bound.as_bytes() > old.as_bytes() } else { bound.as_bytes() < old.as_bytes() })
                    || (bound == old && !inclusive && old_inclusive)
            });
            if tighter {
                *side = Some((bound, inclusive));
            }
        }
    }
    let (terms, exact) = known.view.text_range(field, low, high);
    Some(Narrowed { selection: Selection::Terms(terms), exact })
}

/// Texts between which all times lie that are within the bounds of `leaves` on times.
fn time_edges<'e>(leaves: &'e [Expr], field: &str) -> (Bound<&'e str>, Bound<&'e str>) {
    let (mut low, mut high): (Bound<&str>, Bound<&str>) = (None, None);
    for leaf in leaves {
        if let Expr::Leaf { field: other, test: Test::Number(relation, _, Some(edge)) } = leaf
            && **other == *field
        {
            let (edge, _, is_low) = side(*relation, &**edge);
            let side = if is_low { &mut low } else { &mut high };
            let tighter = side.is_none_or(|(old, _)| if is_low { edge > old } else { edge < old });
            if tighter {
                *side = Some((edge, true));
            }
        }
    }
    (low, high)
}

fn leaf<'p>(field: &str, test: &Test, known: Known<'_, 'p>) -> Option<Narrowed<'p>> {
    let terms =
        |(terms, exact): (Terms<'p>, bool)| Some(Narrowed { selection: Selection::Terms(terms), exact });
    let exact = |found: Terms<'p>| terms((found, true));
    match test {
        Test::Eq(Value::String(text)) => terms(known.view.text(field, Class::String, text)),
        Test::Eq(Value::Int(number)) => terms(known.view.int(field, Class::Int, *number)),
        Test::Eq(Value::Float(number)) => terms(known.view.float(field, Class::Float, *number)),
        Test::Eq(Value::Bool(flag)) => exact(known.view.bool(field, *flag)),
        Test::In(members) => r#in(field, members, known),
        Test::ContainsString(text) => terms(known.view.text(field, Class::StringElement, text)),
        Test::ContainsInt(number) => terms(known.view.int(field, Class::IntElement, *number)),
        Test::ContainsFloat(number) => terms(known.view.float(field, Class::FloatElement, *number)),
        Test::Match(tokens) => {
            // A query without words asks for any text, which nothing is filed under. Of several words each may be in another
            // element of an array.
            let words: Vec<(Terms<'p>, bool)> = tokens
                .iter()
                .take(known.looked_up_max)
                .map(|token| known.view.text(field, Class::Word, &token))
                .collect();
            let exact = tokens.len() == 1 && words[0].1;
            let parts: Vec<_> = words.into_iter().map(|(terms, _)| Selection::Terms(terms)).collect();
            (!parts.is_empty()).then_some(Narrowed { selection: Selection::All(parts), exact })
        }
        Test::Inside(area) => {
            let (corners, off_the_map) = area.covering()?;
            known.view.geo_box(field, corners, off_the_map).and_then(|found| terms((found, false)))
        }
        // An array is equal by all its elements; null, difference and emptiness are filed nowhere.
        Test::Eq(_) | Test::Ne(_) | Test::Number(..) | Test::Text(..) => None,
        Test::Regex(pattern) => {
            let beginnings = pattern.beginnings.as_ref()?;
            terms((known.view.beginning_with(field, beginnings.iter().map(|text| &**text)), false))
        }
        // Who has the key may have null there, which is filed nowhere.
        Test::Exists => terms((known.view.holders(field), false)),
        Test::IsEmpty | Test::IsNull | Test::ContainsBool(_) => None,
    }
}

fn r#in<'p>(field: &str, members: &Members, known: Known<'_, 'p>) -> Option<Narrowed<'p>> {
    let (selection, exact) = match known.lists.of(members) {
        Some(found) => found,
        None if members.len() > known.looked_up_max => return None,
        None => {
            let (terms, exact) = looked_up(field, members, 0, members.len(), known.view);
            (Selection::Terms(terms), exact)
        }
    };
    Some(Narrowed { selection, exact })
}

/// Slots under the elements of a list from place `from` on below `to`, and whether each of them matches. Elements come in
/// order: neighbours in a dictionary share its nodes.
pub(super) fn looked_up<'p>(
    field: &str,
    members: &Members,
    from: usize,
    to: usize,
    view: View<'p>,
) -> (Terms<'p>, bool) {
    match members {
        Members::Strings(texts) => view.texts(field, texts.part(from, to)),
        Members::Ints(numbers) => (view.among_ints(field, &numbers.sorted()[from..to]), true),
        Members::Floats(floats) => (view.among_floats(field, floats.part(from, to)), true),
    }
}
