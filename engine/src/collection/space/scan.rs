//! Scanning exactly: all points, those that the payload index names, or those of the tail.
use super::by_code::ByCode;
use super::scorer::{ROWS_AHEAD, SCAN_PART, Scorer, steps_scored};
use super::search_state::Search;
use super::{Space, by_distance_then_id};
use crate::index::Precision;
use crate::pace::{Pace, TooLong};
use crate::payload::index::Walk;
use crate::slot::Slot;

/// Looks into the payload index that make a step.
const LOOKS_PER_STEP: usize = 4;

impl<P: Pace> Search<'_, P> {
    /// The visible ones of the points that the index names; `exact`: all that it names match.
    pub(super) async fn score_points(&mut self, mut walk: Walk<'_>, exact: bool) -> Result<(), TooLong> {
        let (space, points) = (self.space, self.points);
        let mut by_code = self.by_code().await?;
        let mut scorer = Scorer::new(space, self.query, self.k);
        let end = points.slots().min(Slot::MAX - 1);
        let steps_each = steps_scored(space.config.dim);
        // A complement does not know how many it names.
        let at_most = self.explain.estimate.at_most.unwrap_or(u64::MAX).min(end.into());
        self.pace.foresee(at_most as usize / LOOKS_PER_STEP)?;
        let mut part = Vec::with_capacity(SCAN_PART as usize);
        let mut from = Some(0);
        while let Some(first) = from {
            part.clear();
            from = walk.part(first, end, SCAN_PART as usize, &mut part);
            let mut take = |slot| {
                if !by_code.as_mut().is_some_and(|by_code| by_code.offer(slot)) {
                    scorer.push(slot);
                }
            };
            for (index, &slot) in part.iter().enumerate() {
                if !exact {
                    space.look_ahead(&part, index);
                }
                if space.holds(slot) && self.view.visible(slot) && self.view.confirms(slot, exact) {
                    take(slot);
                }
            }
            let steps = SCAN_PART as usize / LOOKS_PER_STEP + part.len() * steps_each;
            self.pace.step(steps + self.view.steps_taken()).await?;
            self.view.settle_open(self.pace, take).await?;
        }
        self.finish_scan(scorer, by_code).await
    }

    /// All visible points.
    pub(super) async fn scan(&mut self) -> Result<(), TooLong> {
        let (space, points) = (self.space, self.points);
        self.out.clear();
        let mut by_code = self.by_code().await?;
        let mut scorer = Scorer::new(space, self.query, self.k);
        let steps_each = steps_scored(space.config.dim);
        // After the snapshot: every slot it includes is below.
        let slots = points.slots();
        let each = self.view.steps_asked() + steps_each;
        self.pace.foresee(match space.holdings.live() {
            None => (slots as usize).saturating_mul(each),
            // Where no point of 64 has a vector, they cost a look together.
            Some(live) => (live.min(slots.into()) as usize).saturating_mul(each) + slots as usize / 64,
        })?;
        let mut steps = 0;
        for first in (0..slots).step_by(64) {
            let mut take = |slot| {
                if !by_code.as_mut().is_some_and(|by_code| by_code.offer(slot)) {
                    scorer.push(slot);
                }
            };
            let view = &mut self.view;
            if steps >= SCAN_PART as usize * steps_each || view.is_spent() {
                self.pace.step(std::mem::take(&mut steps) + view.steps_taken()).await?;
                view.settle_open(self.pace, &mut take).await?;
            }
            let held = space.holdings.word(first as usize / 64);
            if held == 0 {
                steps += 1;
                continue;
            }
            steps += held.count_ones() as usize * steps_each;
            let special = points.special_word(first as usize / 64);
            let end = slots.min(first.saturating_add(64));
            for slot in first..end {
                // Lines come in order, as the CPU foresees.
                let ahead = slot.saturating_add(ROWS_AHEAD as Slot);
                if view.filter.is_some() && ahead < slots {
                    points.prefetch_row(ahead);
                }
                let (plain, held) = (special >> (slot % 64) & 1 == 0, held >> (slot % 64) & 1 == 1);
                if held
                    && (plain || points.visible_by_line(slot, view.seq, view.now_ms))
                    && view.matches(slot)
                {
                    take(slot);
                }
            }
        }
        self.view
            .settle_open(self.pace, |slot| {
                if !by_code.as_mut().is_some_and(|by_code| by_code.offer(slot)) {
                    scorer.push(slot);
                }
            })
            .await?;
        self.finish_scan(scorer, by_code).await
    }

    /// Makes what a scan has kept the result.
    async fn finish_scan(&mut self, scorer: Scorer<'_>, by_code: Option<ByCode<'_>>) -> Result<(), TooLong> {
        self.distances += scorer.finish(self.pace, self.out).await?;
        if let Some(by_code) = by_code {
            self.distances += by_code.finish(self.out);
        }
        self.out.sort_unstable_by(by_distance_then_id);
        self.out.truncate(self.k);
        Ok(())
    }

    /// Adds the nearest of the view's window of the tail that pass a gate to what was found elsewhere.
    pub(super) async fn search_tail(&mut self, gate: impl Fn(Slot) -> bool) -> Result<(), TooLong> {
        let Search { space, query, k, window, .. } = *self;
        let mut scorer = Scorer::new(space, query, k);
        let (view, pace, out) = (&mut self.view, &mut *self.pace, &mut *self.out);
        for position in window.start..window.end {
            if (position - window.start + 1).is_multiple_of(u64::from(SCAN_PART)) || view.is_spent() {
                pace.step(SCAN_PART as usize * steps_scored(space.config.dim) + view.steps_taken()).await?;
                view.settle_open(pace, |slot| scorer.push(slot)).await?;
            }
            let slot = space.tail.slot(position);
            if gate(slot) && view.admits(slot) {
                scorer.push(slot);
            }
        }
        view.settle_open(pace, |slot| scorer.push(slot)).await?;
        self.distances += scorer.finish(pace, out).await?;
        let has_tail = window.start < window.end;
        if space.config.drops_vectors() || (has_tail && self.precision == Precision::AsCompared) {
            // Once by its code and once exactly, which comes later.
            out.sort_by_key(|hit| hit.slot);
            out.dedup_by(|later, kept| {
                later.slot == kept.slot && {
                    *kept = *later;
                    true
                }
            });
        }
        // A slot linked meanwhile was found in both places, at the same distance: equal neighbours after sorting.
        out.sort_unstable_by(by_distance_then_id);
        out.dedup_by_key(|hit| hit.slot);
        out.truncate(k);
        Ok(())
    }
}

impl Space {
    /// Asks for lines and rows of the slots that the predicate will be asked about after the one at `index`.
    #[inline]
    pub(super) fn look_ahead(&self, slots: &[Slot], index: usize) {
        if let Some(&slot) = slots.get(index + 2 * ROWS_AHEAD) {
            self.points.prefetch_line(slot);
        }
        if let Some(&slot) = slots.get(index + ROWS_AHEAD) {
            self.points.prefetch_row(slot);
        }
    }
}
