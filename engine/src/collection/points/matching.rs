//! All points that match a filter, for scroll, count, facets and delete by filter.
use super::Points;
use super::view::View;
use crate::filter::Predicate;
use crate::filter::cost::Situation;
use crate::filter::narrow::Lists;
use crate::filter::planner::Plan;
use crate::memory::Pin;
use crate::pace::{Whole, at_once};
use crate::payload::index::{Selection, Walk};
use crate::payload::{CONTENT_KEY, PayloadRow};
use crate::slot::Slot;

/// See [`super::super::Dense::matching`].
pub struct Matching<'p> {
    view: View<'p>,
    /// The slots the index names; none when every slot is looked at.
    named: Option<Walk<'p>>,
    /// What is named matches.
    exact: bool,
    next: Slot,
    end: Slot,
    /// A slot whose question took more than all that is allowed at a time.
    open: Option<Slot>,
}

/// What points are to match.
#[derive(Clone, Copy)]
pub(crate) struct Sought<'p> {
    pub filter: &'p Predicate,
    /// Now, Unix ms.
    pub now_ms: u64,
    /// What the planner goes by.
    pub situation: Situation,
}

impl Points {
    /// Any core: the slots from `from` on whose visible points match, ascending, as of now.
    pub(crate) fn matching<'p>(&'p self, pin: &'p Pin<'_>, sought: Sought<'p>, from: Slot) -> Matching<'p> {
        let Sought { filter, now_ms, situation } = sought;
        let mut matching = Matching::of(self.view_to_plan(pin, Some(filter), now_ms), from);
        if matching.view.filter.is_some() {
            let situation = self.counted(situation);
            let lists = Lists::of_ids(matching.view.ids.clone());
            match self.planned(filter, pin, &lists, &situation, &matching.view).0 {
                Plan::Nothing => matching.end = 0,
                Plan::Points { walk, exact } => (matching.named, matching.exact) = (Some(walk), exact),
                Plan::Graph(_) | Plan::Everything => {}
            }
        }
        matching
    }
}

/// A walk over all matches in slices, each under a pin of its own. What the index had to collect is collected once.
#[derive(Default)]
pub struct MatchCursor {
    next: Slot,
    /// Slots collected before, not looked at yet.
    listed: Option<std::vec::IntoIter<Slot>>,
    open: Option<Slot>,
    /// The index does not name what can match.
    unnamed: bool,
    done: bool,
}

impl MatchCursor {
    /// Nothing is left.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The visible slot that the last slice ended with because asking the filter of it took too long for one piece. The caller asks it,
    /// by [`Predicate::ask_in_pieces`] and of a copy of its row if need be: the walk goes on after it.
    pub fn take_open(&mut self) -> Option<Slot> {
        self.open.take()
    }
}

/// Slots that are looked at for a document text, which takes some microseconds.
const TEXTS_LOOKED_FOR: Slot = 64;

impl Points {
    /// Any core: how many groups a payload key can make at most, see [`crate::query::group_hits`].
    pub fn groups_at_most(&self, pin: &Pin<'_>, key: &str) -> u64 {
        self.index.view(pin).scalar_values(key)
    }

    /// Any core: whether no point has the payload key, while some of the first 64 slots have a document text.
    pub fn has_texts_but_no(&self, pin: &Pin<'_>, key: &str, now_ms: u64) -> bool {
        if Selection::Terms(self.index.view(pin).holders(key)).at_most() > 0 {
            return false;
        }
        let end = self.slots().min(TEXTS_LOOKED_FOR);
        let view = self.view_at(pin, None, now_ms);
        (0..end).any(|slot| {
            view.visible(slot) && PayloadRow::trusted(self.row(pin, slot)).get(CONTENT_KEY, now_ms).is_some()
        })
    }

    /// Any core: the next slice of a walk as by [`Self::matching`]. What was collected is kept, as is that the index names nothing, and the
    /// filter asked of each slot, as rows may have changed since.
    pub(crate) fn match_slice(
        &self,
        pin: &Pin<'_>,
        sought: Sought<'_>,
        cursor: &mut MatchCursor,
        looks: usize,
        mut each: impl FnMut(Slot),
    ) {
        let Sought { filter, now_ms, .. } = sought;
        if let Some(listed) = &mut cursor.listed {
            let mut view = self.view_at(pin, Some(filter), now_ms);
            // A build may have put another collection of slots in the place of an empty one.
            let end = self.slots();
            let mut asked = false;
            for _ in 0..looks {
                let Some(&slot) = listed.as_slice().first() else { break };
                let sees = slot < end && view.visible(slot);
                if sees && view.matches(slot) {
                    each(slot);
                } else if view.open.pop().is_some() {
                    if asked {
                        break;
                    }
                    cursor.open = Some(slot);
                }
                asked |= sees;
                listed.next();
                if cursor.open.is_some() {
                    break;
                }
            }
            cursor.done = listed.len() == 0;
            return;
        }
        let mut matching = match cursor.unnamed {
            true => Matching::of(self.view_at(pin, Some(filter), now_ms), cursor.next),
            false => self.matching(pin, sought, cursor.next),
        };
        cursor.unnamed = matching.named.is_none();
        match matching.look(looks, each) {
            Some(next) => cursor.next = next,
            None => cursor.done = true,
        }
        cursor.open = matching.open;
        let end = matching.end;
        if let Some(walk) =
            matching.named.take().filter(|walk| !cursor.done && (!walk.is_lazy() || filter.is_wide()))
        {
            cursor.listed = Some(walk.rest(cursor.next, end).into_iter());
        }
    }
}

impl<'p> Matching<'p> {
    /// All slots from `from` on.
    fn of(view: View<'p>, from: Slot) -> Matching<'p> {
        let end = view.points.slots();
        Matching { view, named: None, exact: false, next: from, end, open: None }
    }

    /// Looks at up to `looks` more slots (those the index names, else all) and hands on what matches; where to go on under another
    /// pin, `None` at the end. For walks in slices: planning again costs as much as some hundred looks. Ends sooner when the filter
    /// has taken up its allowance, so that the next slice asks the same slot first; if it was the first here, it is left in `open`.
    fn look(&mut self, looks: usize, mut each: impl FnMut(Slot)) -> Option<Slot> {
        let mut asked = false;
        for _ in 0..looks {
            if self.next >= self.end {
                return None;
            }
            let slot = match &mut self.named {
                Some(walk) => walk.seek(self.next).filter(|&slot| slot < self.end)?,
                None => self.next,
            };
            self.next = slot + 1;
            if !self.view.visible(slot) {
                continue;
            }
            if self.view.confirms(slot, self.exact) {
                each(slot);
            } else if self.view.open.pop().is_some() {
                match asked {
                    true => self.next = slot,
                    false => self.open = Some(slot),
                }
                // Also at the end: the slot is still to be asked.
                return Some(self.next);
            }
            asked = true;
        }
        (self.next < self.end).then_some(self.next)
    }
}

/// However long the filter takes.
impl Iterator for Matching<'_> {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        loop {
            self.view.steps_taken();
            let mut found = None;
            let more = self.look(1, |slot| found = Some(slot)).is_some();
            if let Some(slot) = self.open.take()
                && at_once(self.view.settle(slot, &mut Whole::unbounded())) == Ok(true)
            {
                found = Some(slot);
            }
            if found.is_some() || !more {
                return found;
            }
        }
    }
}

impl Drop for Matching<'_> {
    fn drop(&mut self) {
        self.view.points.count_rejects(self.view.filter_rejects);
    }
}
