//! The compiled filter and its evaluation.

use super::allowance::Allowance;
use super::compile::Compiler;
use super::course::Course;
use super::geo::Area;
use super::leaf::{LIST_IN_CACHE, Test};
use super::narrow::IN_MAX;
use super::node::{FilterError, Node};
use crate::pace::{Pace, TooLong};
use crate::payload::{PayloadRow, ValueRef};
use std::pin::Pin;
use std::sync::Arc;

/// What a question costs before any leaf is asked, in nanoseconds: mostly the misses of the point's line and row.
const QUESTION_NS: u64 = 150;
/// Leaves of a brief filter.
const BRIEF_LEAVES: usize = 64;
/// Nanoseconds of a question between two calls of the pace.
const PIECE_NS: u64 = 50_000;

/// A compiled filter, immutable and shareable; cloning copies a pointer.
#[derive(Clone, Debug)]
pub struct Predicate {
    root: Arc<Expr>,
    looked_up_max: usize,
}

/// What a filter compiles to. Constants are folded on the way up: `Always` and `Never` occur only as the root, and `All`
/// and `Any` have at least one child, none of them constant.
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
    /// The child does not match.
    Not(Box<Expr>),
    /// A test of one payload key.
    Leaf {
        /// The key.
        field: Box<str>,
        /// What its value must fulfil.
        test: Test,
    },
}

/// Looks into the index that planning may take in one piece, beside one for each leaf: some milliseconds.
const PLANNED_LOOKS: usize = 8_192;
/// And from how many on a plan is kept.
const WIDE_LOOKS: usize = 128;

/// How many elements of a list, or words of a text, are looked up so that those of all leaves together stay within what planning may take.
/// Longer lists are looked up in pieces before, as far as that is worth it.
fn looked_up_max(root: &Expr) -> usize {
    let mut max = IN_MAX;
    while max > 1 && elements_up_to(root, max) > PLANNED_LOOKS {
        max /= 4;
    }
    max
}

/// Looks that lists take which are not longer than `max`, and texts of which so many words are looked up; one for each other leaf.
fn elements_up_to(root: &Expr, max: usize) -> usize {
    let mut looks = 0;
    root.each_leaf(&mut |_, test| {
        looks += match test {
            Test::In(members) if members.len() > max => 0,
            Test::In(members) => members.len(),
            Test::Match(tokens) => tokens.len().min(max),
            _ => 1,
        }
    });
    looks
}

impl Predicate {
    /// Compiles a filter tree; `Node::default()` matches everything.
    ///
    /// Linear in the size of the tree, plus the compilation of regular expressions, whose number and size are limited.
    ///
    /// # Errors
    /// [`FilterError`] naming the offending node: an unknown operator, a key that does not belong to the operator, a
    /// missing field or operand, an operand of the wrong kind or out of range, a malformed expression or time, or a
    /// tree beyond [`MAX_DEPTH`](super::MAX_DEPTH) or [`MAX_NODES`](super::MAX_NODES).
    pub fn compile(node: &Node) -> Result<Predicate, FilterError> {
        let root = Compiler::default().compile(node)?;
        let looked_up_max = looked_up_max(&root);
        Ok(Predicate { root: Arc::new(root), looked_up_max })
    }

    /// Whether every point matches whatever it holds (`{}`, empty `and`, `and` of such, `or` holding such, `not` of a
    /// trivially false one). Tautologies over payload values are not recognised.
    pub fn is_trivially_true(&self) -> bool {
        matches!(*self.root, Expr::Always)
    }

    /// Whether no point matches whatever it holds.
    pub fn is_trivially_false(&self) -> bool {
        matches!(*self.root, Expr::Never)
    }

    /// What asking it about a point costs that holds nothing long, in steps of 100 ns (see [`crate::pace`]): mostly the misses of the
    /// point's line and row, and of the table of a very long list. What a question does cost is what it takes off its [`Allowance`].
    pub(crate) fn steps(&self) -> usize {
        2 + self.root.steps_beyond_row()
    }

    /// Whether asking it takes some microseconds at most, whatever a point holds: it has few leaves, and none that looks through texts or
    /// around polygons.
    pub fn is_brief(&self) -> bool {
        let (mut leaves, mut brief) = (0, true);
        self.root.each_leaf(&mut |_, test| {
            leaves += 1;
            brief &= !matches!(test, Test::Regex(_) | Test::Match(_) | Test::Inside(Area::Polygon(_)));
        });
        brief && leaves <= BRIEF_LEAVES
    }

    /// Most elements of one list, and words of one text, that the planner looks up in one piece.
    pub(super) fn looked_up_max(&self) -> usize {
        self.looked_up_max
    }

    /// Whether planning takes so many looks into the index that it is not done again for each slice of a walk.
    pub(crate) fn is_wide(&self) -> bool {
        elements_up_to(&self.root, self.looked_up_max) > WIDE_LOOKS
    }

    /// The expression, for the planner.
    pub(super) fn expr(&self) -> &Expr {
        &self.root
    }

    /// Whether a point with this payload (None = no payload) matches at `now_ms`, however long that takes. Keys expired by then are
    /// absent.
    ///
    /// Allocates nothing, except that the first use of a regular expression on a thread sets up its cache.
    pub fn matches(&self, row: Option<PayloadRow<'_>>, now_ms: u64) -> bool {
        self.ask(row, now_ms, &Allowance::unbounded()).expect("an unbounded allowance is never used up")
    }

    /// As [`Self::matches`], `None` when the allowance is used up before the answer is known: then ask again, in pieces. What it goes
    /// beyond its allowance by is below a millisecond.
    #[inline]
    pub fn ask(&self, row: Option<PayloadRow<'_>>, now_ms: u64, allowance: &Allowance) -> Option<bool> {
        self.ask_values(|field| row.as_ref().and_then(|row| row.get(field, now_ms)), allowance)
    }

    /// As [`Self::matches`], in pieces of at most some 50 µs, between which the pace is called. The row has to stay as it is meanwhile.
    ///
    /// Allocates some hundred bytes for each level of nesting.
    ///
    /// # Errors
    /// [`TooLong`].
    pub async fn ask_in_pieces(
        &self,
        row: Option<PayloadRow<'_>>,
        now_ms: u64,
        pace: &mut impl Pace,
    ) -> Result<bool, TooLong> {
        let value_of = |field: &str| row.as_ref().and_then(|row| row.get(field, now_ms));
        self.ask_values_in_pieces(&value_of, 0, pace).await
    }

    /// As [`Self::ask`], of what has its fields elsewhere: `value_of` says what a field holds, `None` where it is absent.
    #[inline]
    pub fn ask_values<'v>(
        &self,
        value_of: impl Fn(&str) -> Option<ValueRef<'v>>,
        allowance: &Allowance,
    ) -> Option<bool> {
        allowance.spend(QUESTION_NS);
        self.root.ask(&value_of, allowance)
    }

    /// As [`Self::ask_in_pieces`], of what has its fields elsewhere, where finding one costs `field_ns` nanoseconds.
    ///
    /// # Errors
    /// [`TooLong`].
    pub async fn ask_values_in_pieces<'v>(
        &self,
        value_of: &impl Fn(&str) -> Option<ValueRef<'v>>,
        field_ns: u64,
        pace: &mut impl Pace,
    ) -> Result<bool, TooLong> {
        let allowance = Allowance::of(PIECE_NS);
        let value_of = |field: &str| {
            allowance.spend(field_ns);
            value_of(field)
        };
        let answer = self.root.ask_in_pieces(&value_of, &allowance, pace).await?;
        pace.step(allowance.renew(0)).await?;
        Ok(answer)
    }

    /// Whether a leaf tests this field.
    pub fn tests_field(&self, name: &str) -> bool {
        let mut found = false;
        self.root.each_leaf(&mut |field, _| found |= field == name);
        found
    }

    /// The fields that leaves test, with repeats.
    pub fn fields(&self) -> Vec<&str> {
        let mut fields = Vec::new();
        self.root.each_leaf(&mut |field, _| fields.push(field));
        fields
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

    /// The negation of `child`.
    pub(super) fn not(child: Expr) -> Expr {
        match child {
            Expr::Always => Expr::Never,
            Expr::Never => Expr::Always,
            child => Expr::Not(Box::new(child)),
        }
    }

    fn steps_beyond_row(&self) -> usize {
        match self {
            Expr::Always | Expr::Never => 0,
            Expr::All(children) | Expr::Any(children) => children.iter().map(Expr::steps_beyond_row).sum(),
            Expr::Not(child) => child.steps_beyond_row(),
            Expr::Leaf { test: Test::In(members), .. } if members.len() > LIST_IN_CACHE => 5,
            Expr::Leaf { test: Test::Regex(_) | Test::Match(_) | Test::Inside(_), .. } => 3,
            Expr::Leaf { .. } => 0,
        }
    }

    fn ask<'v>(
        &self,
        value_of: &impl Fn(&str) -> Option<ValueRef<'v>>,
        allowance: &Allowance,
    ) -> Option<bool> {
        match self {
            Expr::Always => Some(true),
            Expr::Never => Some(false),
            Expr::All(children) => {
                for child in children {
                    if !child.ask(value_of, allowance)? {
                        return Some(false);
                    }
                }
                Some(true)
            }
            Expr::Any(children) => {
                for child in children {
                    if child.ask(value_of, allowance)? {
                        return Some(true);
                    }
                }
                Some(false)
            }
            Expr::Not(child) => child.ask(value_of, allowance).map(|answer| !answer),
            Expr::Leaf { .. } if allowance.is_spent() => None,
            Expr::Leaf { field, test } => test.ask(value_of(field), allowance),
        }
    }

    /// As [`Self::ask`], in pieces. Groups within groups are futures of their own; leaves, of which there may be many, are not.
    fn ask_in_pieces<'a, 'v: 'a, P: Pace>(
        &'a self,
        value_of: &'a impl Fn(&str) -> Option<ValueRef<'v>>,
        allowance: &'a Allowance,
        pace: &'a mut P,
    ) -> Pin<Box<dyn Future<Output = Result<bool, TooLong>> + 'a>> {
        Box::pin(async move {
            let (children, decisive) = match self {
                Expr::Always => return Ok(true),
                Expr::Never => return Ok(false),
                Expr::Not(child) => return Ok(!child.ask_in_pieces(value_of, allowance, pace).await?),
                Expr::All(children) => (&**children, false),
                Expr::Any(children) => (&**children, true),
                Expr::Leaf { .. } => (std::slice::from_ref(self), true),
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
                    group => group.ask_in_pieces(value_of, allowance, &mut *pace).await?,
                };
                if answer == decisive {
                    return Ok(decisive);
                }
                if allowance.is_spent() {
                    pace.step(allowance.renew(PIECE_NS)).await?;
                }
            }
            Ok(!decisive)
        })
    }

    fn each_leaf<'e>(&'e self, each: &mut impl FnMut(&'e str, &'e Test)) {
        match self {
            Expr::Always | Expr::Never => {}
            Expr::All(children) | Expr::Any(children) => {
                children.iter().for_each(|child| child.each_leaf(each));
            }
            Expr::Not(child) => child.each_leaf(each),
            Expr::Leaf { field, test } => each(field, test),
        }
    }
}
