//! What a filter compiles to: tests of payload keys under and, or and not.

use super::allowance::Allowance;
use super::course::Course;
use super::ids::Ids;
use super::leaf::{LIST_IN_CACHE, Test};
use crate::pace::{Pace, TooLong};
use crate::payload::ValueRef;
use std::pin::Pin;

/// Nanoseconds of a question between two calls of the pace.
pub(super) const PIECE_NS: u64 = 50_000;

/// Looking for an id in a list: a hash, and a miss of the first cache or two.
const ID_NS: u64 = 30;

/// A compiled expression. Constants are folded on the way up: `Always` and `Never` occur only as the root, and groups have at least one
/// child, none of them constant.
#[derive(Debug)]
pub(crate) enum Expr {
    /// Matches every point.
    Always,
    /// Matches no point.
    Never,
    /// Every child matches.
    All(Box<[Expr]>),
    /// Some child matches.
    Any(Box<[Expr]>),
    /// At least this many children match. The number is at least 2, and less than the number of children.
    AtLeast(usize, Box<[Expr]>),
    /// The child does not match.
    Not(Box<Expr>),
    /// The point has one of these ids; what has none matches none.
    HasId(Ids),
    /// A test of one payload key.
    Leaf {
        /// The key.
        field: Box<str>,
        /// What its value must fulfil.
        test: Test,
    },
}

/// Counts which children of a group match until that decides about the group; the last child does at the latest.
struct Tally {
    /// How many must still match.
    wanted: usize,
    /// How many may still fail.
    spare: usize,
}

impl Tally {
    /// `wanted` of `children`, and no more than there are.
    fn of(wanted: usize, children: &[Expr]) -> Tally {
        Tally { wanted, spare: children.len() - wanted }
    }

    /// Whether the group matches, if the next answer decides that.
    fn count(&mut self, answer: bool) -> Option<bool> {
        let left = if answer { &mut self.wanted } else { &mut self.spare };
        let decides = if answer { *left == 1 } else { *left == 0 };
        *left = left.saturating_sub(1);
        decides.then_some(answer)
    }
}

impl Expr {
    /// The conjunction of `children`.
    pub(super) fn all(children: Vec<Expr>) -> Expr {
        if children.iter().any(|child| matches!(child, Expr::Never)) {
            return Expr::Never;
        }
        let children: Box<[Expr]> =
            children.into_iter().filter(|child| !matches!(child, Expr::Always)).collect();
        if children.is_empty() { Expr::Always } else { Expr::All(children) }
    }

    /// The disjunction of `children`.
    pub(super) fn any(children: Vec<Expr>) -> Expr {
        if children.iter().any(|child| matches!(child, Expr::Always)) {
            return Expr::Always;
        }
        let children: Box<[Expr]> =
            children.into_iter().filter(|child| !matches!(child, Expr::Never)).collect();
        if children.is_empty() { Expr::Never } else { Expr::Any(children) }
    }

    /// `wanted` of `children` at least.
    pub(super) fn at_least(wanted: usize, children: Vec<Expr>) -> Expr {
        let certain = children.iter().filter(|child| matches!(child, Expr::Always)).count();
        let children: Vec<Expr> =
            children.into_iter().filter(|child| !matches!(child, Expr::Always | Expr::Never)).collect();
        match wanted.saturating_sub(certain) {
            0 => Expr::Always,
            1 => Expr::any(children),
            wanted if wanted > children.len() => Expr::Never,
            wanted if wanted == children.len() => Expr::all(children),
            wanted => Expr::AtLeast(wanted, children.into()),
        }
    }

    /// The negation of `child`.
    pub(super) fn not(child: Expr) -> Expr {
        match child {
            Expr::Always => Expr::Never,
            Expr::Never => Expr::Always,
            child => Expr::Not(Box::new(child)),
        }
    }

    /// What asking costs beyond the row, in steps of 100 ns.
    pub(super) fn steps_beyond_row(&self) -> usize {
        match self {
            Expr::Always | Expr::Never | Expr::HasId(_) => 0,
            Expr::All(children) | Expr::Any(children) | Expr::AtLeast(_, children) => {
                children.iter().map(Expr::steps_beyond_row).sum()
            }
            Expr::Not(child) => child.steps_beyond_row(),
            Expr::Leaf { test: Test::In(members), .. } if members.len() > LIST_IN_CACHE => 5,
            Expr::Leaf { test: Test::Regex(_) | Test::Match(_) | Test::Inside(_), .. } => 3,
            Expr::Leaf { .. } => 0,
        }
    }

    /// Whether a point with this id matches, by what `value_of` says of each field; `None` when the allowance is used up before that is known.
    pub(super) fn ask<'v>(
        &self,
        id: Option<u64>,
        value_of: &impl Fn(&str) -> Option<ValueRef<'v>>,
        allowance: &Allowance,
    ) -> Option<bool> {
        match self {
            Expr::Always => Some(true),
            Expr::Never => Some(false),
            Expr::All(children) => {
                for child in children {
                    if !child.ask(id, value_of, allowance)? {
                        return Some(false);
                    }
                }
                Some(true)
            }
            Expr::Any(children) => {
                for child in children {
                    if child.ask(id, value_of, allowance)? {
                        return Some(true);
                    }
                }
                Some(false)
            }
            Expr::AtLeast(wanted, children) => {
                let mut tally = Tally::of(*wanted, children);
                for child in children {
                    if let Some(decided) = tally.count(child.ask(id, value_of, allowance)?) {
                        return Some(decided);
                    }
                }
                Some(false)
            }
            Expr::Not(child) => child.ask(id, value_of, allowance).map(|answer| !answer),
            Expr::Leaf { .. } | Expr::HasId(_) if allowance.is_spent() => None,
            Expr::HasId(ids) => Some(has_id(ids, id, allowance)),
            Expr::Leaf { field, test } => test.ask(value_of(field), allowance),
        }
    }

    /// As [`Self::ask`], in pieces. Groups within groups are futures of their own; leaves, of which there may be many, are not.
    pub(super) fn ask_in_pieces<'a, 'v: 'a, P: Pace>(
        &'a self,
        id: Option<u64>,
        value_of: &'a impl Fn(&str) -> Option<ValueRef<'v>>,
        allowance: &'a Allowance,
        pace: &'a mut P,
    ) -> Pin<Box<dyn Future<Output = Result<bool, TooLong>> + 'a>> {
        Box::pin(async move {
            let (children, mut tally) = match self {
                Expr::Always => return Ok(true),
                Expr::Never => return Ok(false),
                Expr::Not(child) => return Ok(!child.ask_in_pieces(id, value_of, allowance, pace).await?),
                Expr::All(children) => (&**children, Tally::of(children.len(), children)),
                Expr::Any(children) => (&**children, Tally::of(1, children)),
                Expr::AtLeast(wanted, children) => (&**children, Tally::of(*wanted, children)),
                Expr::Leaf { .. } | Expr::HasId(_) => {
                    let itself = std::slice::from_ref(self);
                    (itself, Tally::of(1, itself))
                }
            };
            for child in children {
                let answer = match child {
                    Expr::Leaf { field, test } => {
                        let value = value_of(field);
                        match value.and_then(|value| Course::begin(test, value)) {
                            None => test.answer(value, allowance),
                            Some(mut course) => loop {
                                if let Some(answer) = course.go_on(allowance) {
                                    break answer;
                                }
                                pace.step(allowance.renew(PIECE_NS)).await?;
                            },
                        }
                    }
                    Expr::HasId(ids) => has_id(ids, id, allowance),
                    group => group.ask_in_pieces(id, value_of, allowance, &mut *pace).await?,
                };
                if let Some(decided) = tally.count(answer) {
                    return Ok(decided);
                }
                if allowance.is_spent() {
                    pace.step(allowance.renew(PIECE_NS)).await?;
                }
            }
            Ok(false)
        })
    }

    /// Calls `each` with field and test of every leaf.
    pub(super) fn each_leaf<'e>(&'e self, each: &mut impl FnMut(&'e str, &'e Test)) {
        match self {
            Expr::Always | Expr::Never | Expr::HasId(_) => {}
            Expr::All(children) | Expr::Any(children) | Expr::AtLeast(_, children) => {
                children.iter().for_each(|child| child.each_leaf(each));
            }
            Expr::Not(child) => child.each_leaf(each),
            Expr::Leaf { field, test } => each(field, test),
        }
    }

    /// Whether it has lists of ids.
    pub(super) fn lists_ids(&self) -> bool {
        match self {
            Expr::Always | Expr::Never | Expr::Leaf { .. } => false,
            Expr::All(children) | Expr::Any(children) | Expr::AtLeast(_, children) => {
                children.iter().any(Expr::lists_ids)
            }
            Expr::Not(child) => child.lists_ids(),
            Expr::HasId(_) => true,
        }
    }

    /// Whether what matches has an id of one of the lists.
    pub(super) fn is_within_ids(&self) -> bool {
        match self {
            Expr::Always | Expr::Not(_) | Expr::Leaf { .. } => false,
            Expr::All(children) => children.iter().any(Expr::is_within_ids),
            Expr::Any(children) => children.iter().all(Expr::is_within_ids),
            // One at least of those that are matches, if there are not enough others.
            Expr::AtLeast(wanted, children) => {
                children.iter().filter(|child| !child.is_within_ids()).count() < *wanted
            }
            Expr::Never | Expr::HasId(_) => true,
        }
    }

    /// Appends the lists of ids.
    pub(super) fn add_ids<'e>(&'e self, lists: &mut Vec<&'e Ids>) {
        match self {
            Expr::Always | Expr::Never | Expr::Leaf { .. } => {}
            Expr::All(children) | Expr::Any(children) | Expr::AtLeast(_, children) => {
                children.iter().for_each(|child| child.add_ids(lists));
            }
            Expr::Not(child) => child.add_ids(lists),
            Expr::HasId(ids) => lists.push(ids),
        }
    }
}

/// Whether the id is in the list.
fn has_id(ids: &Ids, id: Option<u64>, allowance: &Allowance) -> bool {
    allowance.spend(ID_NS);
    id.is_some_and(|id| ids.contains(id))
}
