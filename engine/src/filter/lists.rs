//! Long `in` lists, looked up in the payload index piece by piece before the planner is asked.

use super::cost::{KEY_NS, PREDICATE_NS, Situation};
use super::expr::Expr;
use super::ids::IdSlots;
use super::leaf::Test;
use super::membership::Members;
use super::narrow::{Known, Lists, looked_up, narrow_expr};
use super::predicate::Predicate;
use crate::pace::{Pace, TooLong};
use crate::payload::index::{Marked, Selection, View};

/// Elements looked up between two questions to the pace.
const PART: usize = 256;
/// What looking one up costs in steps.
const STEPS_EACH: usize = 3;
/// Most bytes of bitsets for the lists of one filter, at one bit per slot each. Those beyond are asked as a predicate.
const LISTS_MAX_BYTES: usize = 64 << 20;

/// Adds to the slots of the ids in `filter` what is found under all of its lists that are longer than what the planner looks up by itself, and short enough to be worth it: with
/// one element per few points it costs less to ask about the points.
///
/// Cost: some 250 ns per element, one bit per slot.
///
/// # Errors
/// [`TooLong`].
pub(crate) async fn look_up<'f>(
    filter: &'f Predicate,
    view: View<'_>,
    ids: IdSlots<'f>,
    s: &Situation,
    pace: &mut impl Pace,
) -> Result<Lists<'f>, TooLong> {
    let mut lists = Lists::of_ids(ids);
    let mut long = Vec::new();
    Collector { view, lists: &lists, s, room: LISTS_MAX_BYTES, looked_up_max: filter.looked_up_max() }
        .collect(filter.expr(), u64::MAX, &mut long);
    pace.foresee(long.iter().map(|(_, members)| members.len() * STEPS_EACH).sum())?;
    for (field, members) in long {
        // Before any posting is read: whoever sees that no row is being replaced sees no terms of replaced ones. What is replaced
        // later counts in `View::was_replaced`.
        let mut exact = view.is_exact(field);
        let mut marked = Marked::empty(s.slots);
        for from in (0..members.len()).step_by(PART) {
            let to = members.len().min(from + PART);
            let (terms, part_exact) = looked_up(field, members, from, to, view);
            exact &= part_exact;
            let found = terms.postings() as usize;
            marked.add(&Selection::Terms(terms));
            pace.step((to - from) * STEPS_EACH + found / 16).await?;
        }
        marked.count();
        lists.add(members, marked, exact);
    }
    Ok(lists)
}

/// Finds the lists that are worth it.
struct Collector<'a, 'p> {
    view: View<'p>,
    /// What has been looked up: ids alone.
    lists: &'a Lists<'a>,
    s: &'a Situation,
    /// Bytes left for bitsets.
    room: usize,
    /// Shorter lists are looked up by the planner.
    looked_up_max: usize,
}

impl Collector<'_, '_> {
    /// `asked`: points that would have to be asked if the list were not looked up.
    fn collect<'f>(&mut self, expr: &'f Expr, asked: u64, long: &mut Vec<(&'f str, &'f Members)>) {
        let asked = asked.min(self.s.filed);
        match expr {
            Expr::Always | Expr::Never | Expr::HasId(_) => {}
            Expr::Not(child) => self.collect(child, asked, long),
            Expr::All(children) => {
                // What the others leave is all that the list could spare questions about.
                let left = children.iter().filter(|child| !self.has_long_list(child));
                let left = left.filter_map(|child| self.at_most(child)).fold(asked, u64::min);
                children.iter().for_each(|child| self.collect(child, left, long));
            }
            Expr::AtLeast(_, children) => {
                children.iter().for_each(|child| self.collect(child, asked, long));
            }
            Expr::Any(children) => {
                // If the index has nothing to say of one, the union says nothing either.
                let unknown = |child: &&Expr| !self.has_long_list(child) && self.at_most(child).is_none();
                if !children.iter().any(|child| unknown(&child)) {
                    children.iter().for_each(|child| self.collect(child, asked, long));
                }
            }
            Expr::Leaf { field, test: Test::In(members) } => {
                let bytes = self.s.slots.div_ceil(8);
                let worth = members.len() as f64 * KEY_NS < asked as f64 * PREDICATE_NS;
                if members.len() > self.looked_up_max && worth && bytes <= self.room {
                    self.room -= bytes;
                    long.push((field, members));
                }
            }
            Expr::Leaf { .. } => {}
        }
    }

    fn at_most(&self, expr: &Expr) -> Option<u64> {
        let known = Known { view: self.view, lists: self.lists, looked_up_max: self.looked_up_max };
        narrow_expr(expr, known).map(|narrowed| narrowed.selection.at_most())
    }

    fn has_long_list(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Always | Expr::Never | Expr::HasId(_) => false,
            Expr::Not(child) => self.has_long_list(child),
            Expr::All(children) | Expr::Any(children) | Expr::AtLeast(_, children) => {
                children.iter().any(|child| self.has_long_list(child))
            }
            Expr::Leaf { test, .. } => {
                matches!(test, Test::In(members) if members.len() > self.looked_up_max)
            }
        }
    }
}
