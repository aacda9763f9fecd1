//! Long `in` lists, looked up in the payload index piece by piece before the planner is asked.

use super::leaf::Test;
use super::membership::Members;
use super::narrow::{IN_MAX, looked_up};
use super::planner::{PREDICATE_NS, SPAN_NS, Situation};
use super::predicate::{Expr, Predicate};
use crate::pace::{Pace, TooLong};
use crate::payload::index::{Marked, Selection, View};
use std::rc::Rc;

/// Elements looked up between two questions to the pace.
const PART: usize = 256;
/// What looking one up costs in steps.
const STEPS_EACH: usize = 7;

/// What was found under long lists of one filter.
#[derive(Default)]
pub(crate) struct Lists<'f>(Vec<(&'f Members, Rc<Marked>, bool)>);

impl Lists<'_> {
    /// The slots under a list that was looked up, and whether each of them matches.
    pub(super) fn of<'p>(&self, members: &Members) -> Option<(Selection<'p>, bool)> {
        let (_, marked, exact) = self.0.iter().find(|(of, ..)| std::ptr::eq(*of, members))?;
        Some((Selection::Marked(marked.clone()), *exact))
    }
}

/// Looks up all lists of `filter` that are longer than what the planner looks up by itself, and short enough to be worth it: with
/// one element per few points it costs less to ask about the points.
///
/// Cost: some 700 ns per element, one bit per slot.
///
/// # Errors
/// [`TooLong`].
pub(crate) async fn look_up<'f>(
    filter: &'f Predicate,
    view: View<'_>,
    s: &Situation,
    pace: &mut impl Pace,
) -> Result<Lists<'f>, TooLong> {
    let mut long = Vec::new();
    collect(filter.expr(), s, &mut long);
    let mut lists = Lists::default();
    pace.foresee(long.iter().map(|(_, members)| members.len() * STEPS_EACH).sum())?;
    for (field, members) in long {
        let (mut marked, mut exact) = (Marked::empty(s.slots), true);
        for from in (0..members.len()).step_by(PART) {
            let to = members.len().min(from + PART);
            let (terms, part_exact) = looked_up(field, members, from, to, view);
            exact &= part_exact;
            let found = terms.postings() as usize;
            marked.add(&Selection::Terms(terms));
            pace.step((to - from) * STEPS_EACH + found / 16).await?;
        }
        marked.count();
        lists.0.push((members, Rc::new(marked), exact));
    }
    Ok(lists)
}

fn collect<'f>(expr: &'f Expr, s: &Situation, long: &mut Vec<(&'f str, &'f Members)>) {
    match expr {
        Expr::Always | Expr::Never => {}
        Expr::Not(child) => collect(child, s, long),
        Expr::All(children) | Expr::Any(children) => {
            children.iter().for_each(|child| collect(child, s, long));
        }
        Expr::Leaf { field, test: Test::In(members) } => {
            let worth = members.len() as f64 * SPAN_NS < s.filed as f64 * PREDICATE_NS;
            if members.len() > IN_MAX && worth {
                long.push((field, members));
            }
        }
        Expr::Leaf { .. } => {}
    }
}
