//! A compiled filter, as others ask it.

use super::allowance::Allowance;
use super::compile::Compiler;
use super::expr::{Expr, PIECE_NS};
use super::geo::Area;
use super::ids::Ids;
use super::leaf::Test;
use super::looks::{is_wide, looked_up_max};
use super::node::{FilterError, Node};
use crate::pace::{Pace, TooLong};
use crate::payload::{PayloadRow, ValueRef};
use crate::point_id::IdKind;
use std::sync::Arc;

/// What a question costs before any leaf is asked, in nanoseconds: mostly the misses of the point's line and row.
const QUESTION_NS: u64 = 150;
/// Leaves of a brief filter.
const BRIEF_LEAVES: usize = 64;

/// A compiled filter, immutable and shareable; cloning copies a pointer.
#[derive(Clone, Debug)]
pub struct Predicate {
    root: Arc<Expr>,
    looked_up_max: usize,
    asks_for_ids: bool,
    id_kind: Option<IdKind>,
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
        let mut compiler = Compiler::default();
        let root = compiler.compile(node)?;
        let asks_for_ids = compiler.asks_for_ids();
        let (looked_up_max, id_kind) = (looked_up_max(&root), compiler.id_kind());
        Ok(Predicate { root: Arc::new(root), looked_up_max, asks_for_ids, id_kind })
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
        let (mut leaves, mut brief) = (self.id_lists().len(), true);
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
        is_wide(&self.root, self.looked_up_max)
    }

    /// The expression, for the planner.
    pub(super) fn expr(&self) -> &Expr {
        &self.root
    }

    /// Whether it asks for the ids of points, be it in an empty list.
    pub fn asks_for_ids(&self) -> bool {
        self.asks_for_ids
    }

    /// What the ids in its lists were sent as; `None` without lists, and where numbers stand for ids of either kind.
    pub fn id_kind(&self) -> Option<IdKind> {
        self.id_kind
    }

    /// Whether every point that matches has an id that it lists, so that at most [`MAX_IDS`](super::MAX_IDS) do.
    pub fn is_within_ids(&self) -> bool {
        self.root.is_within_ids()
    }

    /// The lists of ids in it.
    pub(crate) fn id_lists(&self) -> Vec<&Ids> {
        let mut lists = Vec::new();
        self.root.add_ids(&mut lists);
        lists
    }

    /// Whether a point with this id and payload (None = no payload) matches at `now_ms`, however long that takes. Keys expired by then are
    /// absent.
    ///
    /// Allocates nothing, except that the first use of a regular expression on a thread sets up its cache.
    pub fn matches(&self, id: u64, row: Option<PayloadRow<'_>>, now_ms: u64) -> bool {
        self.ask(id, row, now_ms, &Allowance::unbounded()).expect("an unbounded allowance is never used up")
    }

    /// As [`Self::matches`], `None` when the allowance is used up before the answer is known: then ask again, in pieces. What it goes
    /// beyond its allowance by is below a millisecond.
    #[inline]
    pub fn ask(
        &self,
        id: u64,
        row: Option<PayloadRow<'_>>,
        now_ms: u64,
        allowance: &Allowance,
    ) -> Option<bool> {
        allowance.spend(QUESTION_NS);
        let value_of = |field: &str| row.as_ref().and_then(|row| row.get(field, now_ms));
        self.root.ask(Some(id), &value_of, allowance)
    }

    /// As [`Self::matches`], in pieces of at most some 50 µs, between which the pace is called. The row has to stay as it is meanwhile.
    ///
    /// Allocates some hundred bytes for each level of nesting.
    ///
    /// # Errors
    /// [`TooLong`].
    pub async fn ask_in_pieces(
        &self,
        id: u64,
        row: Option<PayloadRow<'_>>,
        now_ms: u64,
        pace: &mut impl Pace,
    ) -> Result<bool, TooLong> {
        let value_of = |field: &str| row.as_ref().and_then(|row| row.get(field, now_ms));
        self.in_pieces(Some(id), &value_of, 0, pace).await
    }

    /// As [`Self::ask`], of what has its fields elsewhere and no id: `value_of` says what a field holds, `None` where it is absent.
    #[inline]
    pub fn ask_values<'v>(
        &self,
        value_of: impl Fn(&str) -> Option<ValueRef<'v>>,
        allowance: &Allowance,
    ) -> Option<bool> {
        allowance.spend(QUESTION_NS);
        self.root.ask(None, &value_of, allowance)
    }

    /// As [`Self::ask_in_pieces`], of what has its fields elsewhere and no id, where finding one costs `field_ns` nanoseconds.
    ///
    /// # Errors
    /// [`TooLong`].
    pub async fn ask_values_in_pieces<'v>(
        &self,
        value_of: &impl Fn(&str) -> Option<ValueRef<'v>>,
        field_ns: u64,
        pace: &mut impl Pace,
    ) -> Result<bool, TooLong> {
        self.in_pieces(None, value_of, field_ns, pace).await
    }

    async fn in_pieces<'v>(
        &self,
        id: Option<u64>,
        value_of: &impl Fn(&str) -> Option<ValueRef<'v>>,
        field_ns: u64,
        pace: &mut impl Pace,
    ) -> Result<bool, TooLong> {
        let allowance = Allowance::of(PIECE_NS);
        let value_of = |field: &str| {
            allowance.spend(field_ns);
            value_of(field)
        };
        let answer = self.root.ask_in_pieces(id, &value_of, &allowance, pace).await?;
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
