//! From a filter to the slots that can match, by the payload index.

use super::leaf::{Relation, Test};
use super::membership::Members;
use super::predicate::{Expr, Predicate};
use crate::payload::index::{Bound, Class, Selection, Terms, View};
use crate::payload::{CONTENT_KEY, Value};

/// Longest `in` list that is looked up: each element is a search in a dictionary.
const IN_MAX: usize = 1024;

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

/// What the index says about a filter; `None` when it has nothing to say (expressions, tests of emptiness, the content, and
/// the negation of what it does not know exactly). In a conjunction what narrows is taken and the rest checked point by point.
pub(super) fn narrow<'p>(filter: &Predicate, view: View<'p>) -> Option<Narrowed<'p>> {
    expr(filter.expr(), view)
}

/// A conjunction taken apart: the ranges of numbers in it, by field, and what else the index says.
pub(super) struct Parted<'f, 'p> {
    pub ranges: Vec<(&'f str, Interval)>,
    pub others: Option<Selection<'p>>,
    /// It consists of ranges alone.
    pub only_ranges: bool,
}

/// Takes a filter apart; a single leaf is a conjunction of one.
pub(super) fn parted<'f, 'p>(filter: &'f Predicate, view: View<'p>) -> Parted<'f, 'p> {
    let leaf = std::slice::from_ref(filter.expr());
    let children = if let Expr::All(children) = filter.expr() { children } else { leaf };
    let mut parted = Parted { ranges: Vec::new(), others: None, only_ranges: true };
    let mut others = Vec::new();
    for child in children {
        match child {
            Expr::Leaf { field, test: Test::Number(..) } if &**field != CONTENT_KEY => {
                if parted.ranges.iter().all(|(other, _)| *other != &**field) {
                    parted.ranges.push((field, interval(children, field)));
                }
            }
            child => {
                parted.only_ranges = false;
                // Bounds of texts are taken one by one here; that they make one range matters to estimates alone.
                others.extend(expr(child, view).map(|narrowed| narrowed.selection));
            }
        }
    }
    parted.others = (!others.is_empty()).then_some(Selection::All(others));
    parted
}

fn expr<'p>(expr: &Expr, view: View<'p>) -> Option<Narrowed<'p>> {
    match expr {
        Expr::Always => None,
        // What is filed under exactly what matches is all that does not match.
        Expr::Not(child) => complement(self::expr(child, view)),
        Expr::Never => Some(Narrowed { selection: Selection::nothing(), exact: true }),
        Expr::Leaf { field, test } => {
            let narrowed = match test {
                Test::Number(..) | Test::Text(..) => range(std::slice::from_ref(expr), field, test, view),
                // A point without the field matches neither, so the rest is asked.
                Test::Ne(value) => {
                    let equal = settled(leaf(field, &Test::Eq(value.clone()), view), field, view);
                    return complement(equal).map(|others| Narrowed { exact: false, ..others });
                }
                test => leaf(field, test, view),
            };
            settled(narrowed, field, view)
        }
        Expr::All(children) => all(children, view),
        Expr::Any(children) => {
            let mut exact = true;
            let mut parts = Vec::with_capacity(children.len());
            for child in children {
                let narrowed = self::expr(child, view)?;
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
fn settled<'p>(narrowed: Option<Narrowed<'p>>, field: &str, view: View<'p>) -> Option<Narrowed<'p>> {
    let Narrowed { selection, exact } = narrowed.filter(|_| field != CONTENT_KEY)?;
    Some(Narrowed { selection, exact: exact && view.is_exact(field) })
}

fn all<'p>(children: &[Expr], view: View<'p>) -> Option<Narrowed<'p>> {
    let mut exact = true;
    let mut parts = Vec::new();
    for (index, child) in children.iter().enumerate() {
        let narrowed = match child {
            // A scalar field has one value, so its bounds make one range, taken with the first of them.
            Expr::Leaf { field, test: test @ (Test::Number(..) | Test::Text(..)) } => {
                if children[..index].iter().any(|other| is_range_of(other, field, test)) {
                    continue;
                }
                settled(range(children, field, test, view), field, view)
            }
            _ => expr(child, view),
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
        if let Expr::Leaf { field: other, test: Test::Number(relation, bound) } = leaf
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
fn range<'p>(leaves: &[Expr], field: &str, test: &Test, view: View<'p>) -> Option<Narrowed<'p>> {
    if let Test::Number(..) = test {
        let Interval { low, high } = interval(leaves, field);
        let terms = view.number_range(field, low, high);
        return Some(Narrowed { selection: Selection::Terms(terms), exact: true });
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
    let (terms, exact) = view.text_range(field, low, high);
    Some(Narrowed { selection: Selection::Terms(terms), exact })
}

fn leaf<'p>(field: &str, test: &Test, view: View<'p>) -> Option<Narrowed<'p>> {
    let terms =
        |(terms, exact): (Terms<'p>, bool)| Some(Narrowed { selection: Selection::Terms(terms), exact });
    let exact = |found: Terms<'p>| terms((found, true));
    match test {
        Test::Eq(Value::String(text)) => terms(view.text(field, Class::String, text)),
        Test::Eq(Value::Int(number)) => exact(view.int(field, Class::Int, *number)),
        Test::Eq(Value::Float(number)) => exact(view.float(field, Class::Float, *number)),
        Test::Eq(Value::Bool(flag)) => exact(view.bool(field, *flag)),
        Test::In(members) => r#in(field, members, view).and_then(terms),
        Test::ContainsString(text) => terms(view.text(field, Class::StringElement, text)),
        Test::ContainsInt(number) => exact(view.int(field, Class::IntElement, *number)),
        Test::ContainsFloat(number) => exact(view.float(field, Class::FloatElement, *number)),
        Test::Match(tokens) => {
            // A query without words asks for any text, which nothing is filed under. Of several words each may be in another
            // element of an array.
            let words: Vec<(Terms<'p>, bool)> =
                tokens.iter().map(|token| view.text(field, Class::Word, &token)).collect();
            let exact = words.len() == 1 && words[0].1;
            let parts: Vec<_> = words.into_iter().map(|(terms, _)| Selection::Terms(terms)).collect();
            (!parts.is_empty()).then_some(Narrowed { selection: Selection::All(parts), exact })
        }
        Test::Inside(area) => {
            let (corners, off_the_map) = area.covering()?;
            view.geo_box(field, corners, off_the_map).and_then(|found| terms((found, false)))
        }
        // An array is equal by all its elements; null, difference and emptiness are filed nowhere.
        Test::Eq(_) | Test::Ne(_) | Test::Number(..) | Test::Text(..) => None,
        Test::Regex(_) | Test::IsEmpty | Test::IsNull => None,
    }
}

fn r#in<'p>(field: &str, members: &Members, view: View<'p>) -> Option<(Terms<'p>, bool)> {
    let len = match members {
        Members::Strings(set) => set.len(),
        Members::Ints(set) => set.len(),
        Members::Floats(set) => set.len(),
    };
    if len > IN_MAX {
        return None;
    }
    // In order: neighbours in a dictionary share its nodes.
    Some(match members {
        Members::Strings(set) => {
            let mut texts: Vec<&str> = set.iter().map(|text| &**text).collect();
            texts.sort_unstable();
            view.texts(field, texts.into_iter())
        }
        Members::Ints(set) => {
            let mut numbers: Vec<i64> = set.iter().copied().collect();
            numbers.sort_unstable();
            (view.ints(field, numbers.into_iter()), true)
        }
        Members::Floats(set) => {
            let mut numbers: Vec<f64> = set.iter().collect();
            numbers.sort_unstable_by(f64::total_cmp);
            (view.floats(field, numbers.into_iter()), true)
        }
    })
}
