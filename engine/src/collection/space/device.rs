//! What a device beside the cores needs of a collection: which vectors it has to copy, which slots are visible, and what its finds are
//! worth.
//!
//! A device holds the vector of a slot under the slot's number. Everything here is as of one [`Moment`]: a slot that is visible in it
//! keeps its vector as long as the moment's pin lives, so a copy made under the pin is of the point that the moment shows.
use super::{Hit, Points, Space, by_distance_then_id};
use crate::collection::SearchError;
use crate::collection::points::View;
use crate::distance::{Kernel, padded, prepare};
use crate::filter::Predicate;
use crate::filter::narrow::Lists;
use crate::filter::planner::Plan;
use crate::memory::Pin;
use crate::slot::Slot;

/// Slots asked of the payload index at a time.
const NAMED_PART: usize = 256;

/// A collection as of one snapshot, under a pin.
pub struct Moment<'p> {
    space: &'p Space,
    points: &'p Points,
    pin: &'p Pin<'p>,
    seq: u64,
    now_ms: u64,
    /// Every slot it includes is below.
    slots: Slot,
}

impl Space {
    /// Any thread that holds a seat: the collection as of now.
    pub fn moment<'p>(&'p self, pin: &'p Pin<'_>, now_ms: u64) -> Moment<'p> {
        let seq = self.points.view_at(pin, None, now_ms).seq;
        // After the snapshot.
        let slots = self.points.slots();
        Moment { space: self, points: &self.points, pin, seq, now_ms, slots }
    }
}

impl Moment<'_> {
    /// Appends the visible slots whose vectors were written since a call last named them, about `max` at most (a whole word of 64
    /// more); true when there may be more. One caller per collection, which keeps `pending` from call to call: slots
    /// that this moment does not show yet. A collection without a device names none. Cost: one look per 64 slots.
    pub fn fresh(&self, pending: &mut Vec<Slot>, max: usize, fresh: &mut Vec<Slot>) -> bool {
        let points = self.points;
        let mut judge = |slot: Slot, later: &mut Vec<Slot>| {
            if points.visible_by_line(slot, self.seq, 0) {
                fresh.push(slot);
            } else if points.survives(slot, self.seq) {
                later.push(slot);
            }
            // Else it is dead; its next birth is noted again, after what made the line say that it lives.
            fresh.len() >= max
        };
        let mut later = Vec::new();
        for slot in std::mem::take(pending) {
            judge(slot, &mut later);
        }
        let mut more = false;
        for index in 0..(self.slots as usize).div_ceil(64) {
            let mut word = self.space.births.take_word(index);
            while word != 0 {
                more |= judge(index as Slot * 64 + word.trailing_zeros(), &mut later);
                word &= word - 1;
            }
            if more {
                break;
            }
        }
        *pending = later;
        more
    }

    /// The stored vector of a slot that this moment shows: `dim` floats.
    pub fn vector(&self, slot: Slot) -> &[f32] {
        // Where there is a device vectors are kept.
        &self.space.graph.vector(slot)[..self.space.config.dim]
    }

    /// One bit per visible slot, least significant first. Cost: one look per 64 slots, and one for each slot that is new, dead or has
    /// a deadline.
    pub fn live(&self) -> Vec<u64> {
        let points = self.points;
        let words = (0..(self.slots as usize).div_ceil(64)).map(|index| {
            let first = index as Slot * 64;
            let mut special = points.special_word(index);
            let below = match self.slots - first {
                count @ 0..64 => (1u64 << count) - 1,
                _ => u64::MAX,
            };
            let mut word = !special & below;
            special &= below;
            while special != 0 {
                let bit = special.trailing_zeros();
                if points.visible_by_line(first + bit, self.seq, self.now_ms) {
                    word |= 1 << bit;
                }
                special &= special - 1;
            }
            word & self.space.holdings.word(index)
        });
        words.collect()
    }

    fn view<'a>(&'a self, filter: Option<&'a Predicate>) -> View<'a> {
        // On the thread of the devices, and of brief filters alone.
        let mut view = self.points.view_at(self.pin, filter, self.now_ms).unhurried();
        view.seq = self.seq;
        view
    }

    /// One bit per visible slot that matches, where the payload index names few enough; `None` where it does not.
    pub fn named(&self, filter: &Predicate) -> Option<Vec<u64>> {
        let mut view = self.view(Some(filter));
        if view.filter.is_none() {
            return Some(self.live());
        }
        // The view is older than this look-up. If a listed id was written in between, the look-up fails, and the plan leaves ids to the filter.
        view.look_up_ids(self.pin);
        let (situation, lists) = (self.space.situation(0, true), Lists::of_ids(view.ids.clone()));
        let (plan, _) = self.points.planned(filter, self.pin, &lists, &situation, &view);
        let (mut walk, exact) = match plan {
            Plan::Nothing => return Some(Vec::new()),
            Plan::Points { walk, exact } => (walk, exact),
            Plan::Graph(_) | Plan::Everything => return None,
        };
        let mut words = vec![0; (self.slots as usize).div_ceil(64)];
        let (mut from, mut part) = (Some(0), Vec::with_capacity(NAMED_PART));
        while let Some(first) = from {
            part.clear();
            from = walk.part(first, self.slots, NAMED_PART, &mut part);
            for &slot in &part {
                if self.space.holds(slot) && view.visible(slot) && view.confirms(slot, exact) {
                    words[slot as usize / 64] |= 1 << (slot % 64);
                }
            }
        }
        Some(words)
    }

    /// A query as the metric wants it, `dim` floats and the engine's padding.
    ///
    /// # Errors
    /// Wrong length, or a component that is not finite.
    pub fn prepare(&self, vector: &[f32]) -> Result<Vec<f32>, SearchError> {
        self.space.check_query(vector)?;
        let mut prepared = vec![0.0; padded(self.space.config.dim)];
        prepare(self.space.config.metric, vector, &mut prepared);
        Ok(prepared)
    }

    /// The points in `slots`, which this moment shows, that match: with the engine's own distances to a prepared query, nearest
    /// first, ties by id.
    pub fn hits(
        &self,
        prepared: &[f32],
        slots: impl Iterator<Item = Slot>,
        filter: Option<&Predicate>,
    ) -> Vec<Hit> {
        let mut view = self.view(filter);
        let kernel = Kernel::of(self.space.config.metric);
        let distance = |slot| kernel.distance(prepared, &self.space.stored_vector(self.pin, slot));
        let matching = slots.filter(|&slot| view.matches(slot));
        let hit = |slot| Hit { id: self.points.id(slot), distance: distance(slot), slot };
        let mut hits: Vec<Hit> = matching.map(hit).collect();
        hits.sort_unstable_by(by_distance_then_id);
        hits
    }
}
