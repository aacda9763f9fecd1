//! The compiled filter and its evaluation.

use super::compile::Compiler;
use super::leaf::Test;
use super::node::{FilterError, Node};
use crate::payload::{PayloadRow, ValueRef};
use std::sync::Arc;

/// Lists up to this length stay in a core's second cache.
const LIST_IN_CACHE: usize = 50_000;

/// A compiled filter, immutable and shareable; cloning copies a pointer.
#[derive(Clone, Debug)]
pub struct Predicate {
    root: Arc<Expr>,
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
        Ok(Predicate { root: Arc::new(Compiler::default().compile(node)?) })
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

    /// What asking it about a point costs, in steps of 100 ns (see [`crate::pace`]): mostly the misses of the point's line and
    /// row, and of the table of a very long list.
    pub(crate) fn steps(&self) -> usize {
        2 + self.root.steps_beyond_row()
    }

    /// The expression, for the planner.
    pub(super) fn expr(&self) -> &Expr {
        &self.root
    }

    /// Whether a point with this payload (None = no payload) matches at `now_ms`. Keys expired by then are absent.
    ///
    /// Allocates nothing, except that the first use of a regular expression on a thread sets up its cache.
    pub fn matches(&self, row: Option<PayloadRow<'_>>, now_ms: u64) -> bool {
        self.root.matches(&|field| row.as_ref().and_then(|row| row.get(field, now_ms)))
    }

    /// As [`Self::matches`], of what has its fields elsewhere: `value_of` says what a field holds, `None` where it is absent.
    pub fn matches_values<'v>(&self, value_of: impl Fn(&str) -> Option<ValueRef<'v>>) -> bool {
        self.root.matches(&value_of)
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

    fn matches<'v>(&self, value_of: &impl Fn(&str) -> Option<ValueRef<'v>>) -> bool {
        match self {
            Expr::Always => true,
            Expr::Never => false,
            Expr::All(children) => children.iter().all(|child| child.matches(value_of)),
            Expr::Any(children) => children.iter().any(|child| child.matches(value_of)),
            Expr::Not(child) => !child.matches(value_of),
            Expr::Leaf { field, test } => test.matches(value_of(field)),
        }
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
