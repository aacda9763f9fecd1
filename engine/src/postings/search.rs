//! The best k of a query, exactly, without looking at most postings.
//!
//! # Algorithm
//!
//! MaxScore (Turtle, Flood 1995) with block maxima (Ding, Suel: Faster top-k document retrieval using block-max indexes,
//! SIGIR 2011), term at a time within windows of slots.
//!
//! The score of a point is the sum over the query's terms of what its posting contributes; a term without a posting
//! contributes 0. Every point touched by at least one term is a candidate, also when its score is not positive. Let the
//! *threshold* be the score of the k-th best hit so far, minus infinity while there are fewer.
//!
//! 1. For a set of postings with contributions in `[low, high]`, a term raises the score of any point by at most
//!    `max(high, 0)`, its *reach* there. Terms are ordered by their reach over the whole list; the longest front of that
//!    order whose sum of reaches stays below the threshold is *idle*: points touched by idle terms alone cannot enter. The next
//!    window begins at the next slot of a term that is not idle. As the threshold rises, terms fall idle for good.
//! 2. Within the window reaches come from the blocks that overlap it. When all of them together stay below the threshold, the
//!    window is skipped. Else the longest front, by reach in this window, that stays below is left out, and the postings of
//!    the other terms are added up into one cell per slot.
//! 3. Each touched slot whose sum can still reach the threshold with the reaches of the terms left out is completed, term by
//!    term in falling order of reach, as long as it can. What survives is asked for admission and enters.
//!
//! # Why the bounds hold, rounding included
//!
//! Contributions are `f64` values that the summaries bound exactly ([`Scorer::bounds`]), sums are `f64`, a score is its sum
//! rounded to `f32`, and only scores are compared with the threshold. A sum of `m` terms in any order is off by at most
//! `m * 2^-52` times the sum of the terms' absolute maxima; a multiple of that is added to each bound before it is
//! rounded. Rounding is monotone, so a bound below the threshold means a score below it, and a score equal to the threshold
//! is never cut: ties go to the lower id. The score of a hit is added up anew in the order of the query's terms, so
//! it has the same bits however it was found.

use super::Summary;
use super::cursor::Cursor;
use super::hit::LaneHit;
use super::lists::{ListId, Lists};
use crate::slot::Slot;
use crate::top_k::{Rank, TopK};

/// Least and greatest number of slots in a window. The least has 16 KiB of sums, which a core's first cache holds beside the
/// postings; the greatest keeps queries whose postings lie far apart from paying for hundreds of empty windows.
const WINDOW_MIN: usize = 1 << 11;
const WINDOW_MAX: usize = 1 << 14;

/// Postings that a window is to have, if its size allows: a window costs as much as some hundred of them.
const WINDOW_POSTINGS: u64 = 1024;

/// A query: what postings of its terms contribute.
pub(crate) trait Scorer {
    /// The lane's.
    type Summary: Summary;

    /// What one posting adds to the score of its slot. Finite.
    fn score(&self, term: usize, slot: Slot, value: u32) -> f64;

    /// Least and greatest contribution among the postings of a summary that is not of nothing.
    fn bounds(&self, term: usize, summary: &Self::Summary) -> (f64, f64);

    /// The summary of one posting.
    fn summarize(&self, slot: Slot, value: u32) -> Self::Summary;
}

/// What one search looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Postings in the lists of the query's terms: what a plain scan would score.
    pub postings: u64,
    /// Contributions computed. Those of hits count twice when there are more than two terms.
    pub scored: u64,
}

impl LaneStats {
    /// Postings never scored.
    pub fn skipped(&self) -> u64 {
        self.postings.saturating_sub(self.scored)
    }
}

/// Buffers of searches, to be reused; any lane, any index. About 130 KiB.
pub struct LaneScratch {
    sums: Box<[f64]>,
    touched: Box<[u64]>,
    tails: Vec<(Slot, u32)>,
    terms: Vec<Term>,
    /// Positions in `terms` by rising reach in the window.
    by_reach: Vec<usize>,
    stats: LaneStats,
}

impl Default for LaneScratch {
    fn default() -> Self {
        LaneScratch {
            sums: vec![0.0; WINDOW_MAX].into(),
            touched: vec![0; WINDOW_MAX / 64].into(),
            tails: Vec::new(),
            terms: Vec::new(),
            by_reach: Vec::new(),
            stats: LaneStats::default(),
        }
    }
}

impl LaneScratch {
    /// As if the last search had looked at nothing: for one that ends before it begins.
    pub(crate) fn clear_stats(&mut self) {
        self.stats = LaneStats::default();
    }

    /// What the last search looked at.
    pub fn stats(&self) -> LaneStats {
        self.stats
    }
}

/// Bounds of one term; kept by rising `reach`.
#[derive(Clone, Copy)]
struct Term {
    /// Position in the query.
    term: usize,
    /// `max(high, 0)` over the whole list.
    reach: f64,
    /// The same within the window; minus infinity when the term has nothing there.
    reach_here: f64,
}

/// One search of a lane: how many hits are wanted, which slots may be among them, and the buffers that it works in.
pub struct LaneSearch<'a, A, I> {
    /// The most hits that are returned.
    pub k: usize,
    /// Whether a slot may be returned. It is asked once per slot that could enter the result, in ascending order.
    pub admit: A,
    /// The id of a slot that was admitted. Of hits with equal scores the one with the lower id comes first.
    pub id_of: I,
    /// Buffers that may be used again for the next search, of any lane. They hold the counters of the last one.
    pub scratch: &'a mut LaneScratch,
    /// Is replaced with the hits, best first.
    pub out: &'a mut Vec<LaneHit>,
}

impl<A: FnMut(Slot) -> bool, I: Fn(Slot) -> u64> LaneSearch<'_, A, I> {
    /// Searches `lists`, one list per term of the query, of which `scorer` knows what their postings contribute. Returns what was looked at.
    pub(crate) fn run<R: Scorer>(self, index: &Lists, lists: &[ListId], scorer: &R) -> LaneStats {
        self.run_all(&Lane { index, lists, scorer, required: 0 })
    }

    /// As [`Self::run`], for slots that have a posting in each of the lists that a lane requires.
    pub(crate) fn run_all<R: Scorer>(self, lane: &Lane<'_, R>) -> LaneStats {
        let LaneSearch { k, mut admit, id_of, scratch, out } = self;
        let mut walk = LaneWalk::new(k, scratch);
        while !walk.is_over() {
            let admit = |slot| if admit(slot) { Admission::Enters } else { Admission::StaysOut };
            walk.go_on(lane, admit, &id_of);
        }
        walk.finish(out)
    }
}

/// What is searched: one list per term of the query.
pub(crate) struct Lane<'a, R> {
    /// Where the lists are.
    pub index: &'a Lists,
    /// One per term.
    pub lists: &'a [ListId],
    /// What their postings contribute.
    pub scorer: &'a R,
    /// A hit must have a posting in each of the first `required` lists. Other slots may be scored, but the caller is never asked about them.
    pub required: usize,
}

/// What becomes of a slot that could enter the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is a hit.
    Enters,
    /// It is none.
    StaysOut,
    /// The answer takes long. The slot is kept with its score until the caller has it.
    PutOff,
}

/// Slots that are put off until a walk pauses.
const PUT_OFF_MAX: usize = 4096;
/// Postings that a walk with required lists scores or steps over until it pauses, windows apart: some hundred microseconds.
const PART_POSTINGS: u64 = 1 << 16;

/// A search in parts. A part ends where many slots have been put off, or, when lists are required, after a bounded number of postings; the next
/// one goes on behind it. So what was put off can be answered, best first, before more is looked at. Memory: 24 bytes for each slot that is put
/// off, 4096 of them at most, and the hits.
pub(crate) struct LaneWalk<'s> {
    scratch: &'s mut LaneScratch,
    top: TopK<LaneHit>,
    /// Where the next part begins.
    next: Option<Slot>,
    put_off: Vec<LaneHit>,
    put_off_max: usize,
    stats: LaneStats,
}

impl<'s> LaneWalk<'s> {
    /// At the first slot, for at most `k` hits.
    pub fn new(k: usize, scratch: &'s mut LaneScratch) -> LaneWalk<'s> {
        scratch.clear_stats();
        LaneWalk {
            scratch,
            top: TopK::new(k),
            next: (k > 0).then_some(0),
            put_off: Vec::new(),
            put_off_max: PUT_OFF_MAX,
            stats: LaneStats::default(),
        }
    }

    /// Pauses where so many slots have been put off.
    #[cfg(test)]
    pub fn pausing_after(self, put_off_max: usize) -> LaneWalk<'s> {
        LaneWalk { put_off_max, ..self }
    }

    /// Whether no slot is left to be looked at. Those put off may be.
    pub fn is_over(&self) -> bool {
        self.next.is_none()
    }

    /// As if there were nothing left to look at.
    pub fn end(&mut self) {
        self.next = None;
    }

    /// The slots that were put off, best first.
    pub fn take_put_off(&mut self) -> Vec<LaneHit> {
        let mut put_off = std::mem::take(&mut self.put_off);
        put_off.sort_unstable_by(Rank::rank);
        put_off
    }

    /// Whether a hit would be among the best. When it is not, none that comes after it is.
    pub fn could_enter(&self, hit: &LaneHit) -> bool {
        self.top.to_beat().is_none_or(|worst| hit.rank(worst).is_lt())
    }

    /// Takes a slot that was put off and is a hit.
    pub fn offer(&mut self, hit: LaneHit) {
        self.top.offer(hit);
    }

    /// Replaces `out` with the hits, best first. Returns what was looked at.
    pub fn finish(self, out: &mut Vec<LaneHit>) -> LaneStats {
        out.clear();
        out.extend(self.top.into_hits());
        out.sort_unstable_by(Rank::rank);
        self.stats
    }

    /// Looks at the next part, of the same lane as before. `admit` is asked, in ascending order, about each slot that could enter, and `id_of` for
    /// the id of each that enters or is put off. Returns about how many postings were looked at.
    pub fn go_on<R: Scorer>(
        &mut self,
        lane: &Lane<'_, R>,
        mut admit: impl FnMut(Slot) -> Admission,
        id_of: impl Fn(Slot) -> u64,
    ) -> u64 {
        let &Lane { index, lists, scorer, required } = lane;
        let LaneWalk { scratch, top, next: resume, put_off, put_off_max, stats } = self;
        let Some(mut from) = resume.take() else { return 0 };
        let is_first = from == 0;
        let LaneScratch { sums, touched, tails, terms, by_reach, stats: shown } = &mut **scratch;
        tails.clear();
        terms.clear();
        let mut postings = 0;
        let mut cursors = Vec::with_capacity(lists.len());
        let mut magnitude = 0.0f64;
        let mut span = 0;
        for (term, &list) in lists.iter().enumerate() {
            let mut cursor = Cursor::new(index, list, tails, |slot, value| scorer.summarize(slot, value));
            postings += u64::from(index.postings(list));
            if cursor.next_slot(0, tails).is_none() {
                continue;
            }
            span = span.max(cursor.last_slot(tails));
            let (low, high) = scorer.bounds(term, &cursor.summary);
            magnitude += high.abs().max(low.abs());
            cursors.push((high.max(0.0), term, cursor));
        }
        cursors.sort_by(|a, b| a.0.total_cmp(&b.0));
        terms.extend(cursors.iter().map(|&(reach, term, _)| Term { term, reach, reach_here: 0.0 }));
        let mut cursors: Vec<Cursor<'_, R::Summary>> =
            cursors.into_iter().map(|(_, _, cursor)| cursor).collect();
        // In the order of the query, for adding up a hit's score anew. The sum of two does not depend on the order.
        let mut in_order: Vec<(usize, Cursor<'_, R::Summary>)> = match terms.len() {
            0..=2 if required == 0 => Vec::new(),
            _ => terms.iter().zip(&cursors).map(|(term, cursor)| (term.term, cursor.clone())).collect(),
        };
        in_order.sort_unstable_by_key(|&(term, _)| term);
        if is_first {
            stats.postings = postings;
            *shown = *stats;
        }
        if in_order.iter().filter(|(term, _)| *term < required).count() < required {
            return 0;
        }

        let window = window_slots(postings, span);
        let slack = magnitude * (terms.len() + 2) as f64 * f64::EPSILON * 4.0;
        let below = |bound: f64, threshold: f32| ((bound + slack) as f32) < threshold;
        let mut idle = 0;
        let mut idle_reach = 0.0;
        let (mut scored, mut stepped) = (0, 0);

        'walk: loop {
            let threshold = threshold_of(top);
            while idle < terms.len() && below(idle_reach + terms[idle].reach, threshold) {
                idle_reach += terms[idle].reach;
                idle += 1;
            }
            let mut next = None;
            for cursor in &mut cursors[idle..] {
                cursor.seek(from, tails);
                if let Some(slot) = cursor.next_slot(from, tails) {
                    next = Some(next.map_or(slot, |least: Slot| least.min(slot)));
                }
            }
            let Some(first) = next else { break };
            // A hit is in all required lists, so that none lies before their first common slot.
            let needed = &mut in_order[..required];
            let Some(first) = common_slot(needed, first, tails, &mut stepped) else { break };
            let last = first.saturating_add(window as Slot - 1);

            let mut total = 0.0;
            by_reach.clear();
            for (at, cursor) in cursors.iter_mut().enumerate() {
                cursor.seek(first, tails);
                let term = terms[at].term;
                if let Some((_, high)) = cursor.bounds(last, tails, |summary| scorer.bounds(term, summary)) {
                    terms[at].reach_here = high.max(0.0);
                    total += terms[at].reach_here;
                    by_reach.push(at);
                }
            }
            if !below(total, threshold) {
                by_reach.sort_unstable_by(|&a, &b| terms[a].reach_here.total_cmp(&terms[b].reach_here));
                let (mut left_out, mut out_reach) = (0, 0.0);
                while left_out < by_reach.len()
                    && below(out_reach + terms[by_reach[left_out]].reach_here, threshold)
                {
                    out_reach += terms[by_reach[left_out]].reach_here;
                    left_out += 1;
                }
                for &at in &by_reach[left_out..] {
                    let term = terms[at].term;
                    cursors[at].pass(first, last, tails, |slot, value| {
                        let place = (slot - first) as usize;
                        // The first touch overwrites what an earlier window has left.
                        let bit = 1u64 << (place % 64);
                        let word = &mut touched[place / 64];
                        let before = if *word & bit != 0 { sums[place] } else { 0.0 };
                        *word |= bit;
                        sums[place] = before + scorer.score(term, slot, value);
                        scored += 1;
                    });
                }
                // Nearly all sums stay below: one comparison in f64 instead of the exact one. What is below the next smaller f32 does
                // not round to the threshold; the second slack covers the subtraction.
                let surely_below =
                    |threshold: f32| f64::from(threshold.next_down()) - out_reach - 2.0 * slack;
                let mut too_little = surely_below(threshold_of(top));
                for word in 0..window / 64 {
                    let mut bits = std::mem::take(&mut touched[word]);
                    while bits != 0 {
                        let place = word * 64 + bits.trailing_zeros() as usize;
                        bits &= bits - 1;
                        let mut sum = sums[place];
                        if sum < too_little {
                            continue;
                        }
                        let slot = first + place as Slot;
                        let mut reach = out_reach;
                        let threshold = threshold_of(top);
                        let mut rest = by_reach[..left_out].iter().rev();
                        let complete = loop {
                            if below(sum + reach, threshold) {
                                break false;
                            }
                            let Some(&at) = rest.next() else { break true };
                            reach -= terms[at].reach_here;
                            if let Some(value) = cursors[at].find(slot, tails) {
                                sum += scorer.score(terms[at].term, slot, value);
                                scored += 1;
                            }
                        };
                        let mut needed = in_order.iter_mut().take(required);
                        if !complete || !needed.all(|(_, cursor)| cursor.find(slot, tails).is_some()) {
                            continue;
                        }
                        let admission = admit(slot);
                        if admission != Admission::StaysOut {
                            if !in_order.is_empty() {
                                sum = 0.0;
                                for (term, cursor) in &mut in_order {
                                    if let Some(value) = cursor.find(slot, tails) {
                                        sum += scorer.score(*term, slot, value);
                                        scored += 1;
                                    }
                                }
                            }
                            let hit = LaneHit { id: id_of(slot), score: sum as f32, slot };
                            if admission == Admission::PutOff {
                                put_off.push(hit);
                            } else {
                                top.offer(hit);
                                too_little = surely_below(threshold_of(top));
                            }
                        }
                        if put_off.len() >= *put_off_max {
                            touched.fill(0);
                            *resume = slot.checked_add(1);
                            break 'walk;
                        }
                    }
                }
            }
            match last.checked_add(1) {
                Some(slot) => from = slot,
                None => break,
            }
            if required > 0 && scored + stepped >= PART_POSTINGS {
                *resume = Some(from);
                break;
            }
        }
        stats.scored += scored;
        *shown = *stats;
        scored + stepped
    }
}

/// The first slot from `from` on that all of these lists have, or one before it when finding it takes more than the rest of a part; `None` when
/// there is none. Counts the postings that it steps to.
fn common_slot<S: Summary>(
    needed: &mut [(usize, Cursor<'_, S>)],
    from: Slot,
    tails: &[(Slot, u32)],
    stepped: &mut u64,
) -> Option<Slot> {
    let mut common = from;
    loop {
        let before = common;
        for (_, cursor) in needed.iter_mut() {
            cursor.seek(common, tails);
            common = cursor.next_slot(common, tails)?;
            *stepped += 1;
        }
        if common == before || *stepped >= PART_POSTINGS {
            return Some(common);
        }
    }
}

/// A hit below this score cannot enter any more; one with just this score can, by its id.
#[inline]
fn threshold_of(top: &TopK<LaneHit>) -> f32 {
    top.to_beat().map_or(f32::NEG_INFINITY, |worst| worst.score)
}

/// Slots of a window for a query whose lists have so many postings up to slot `span`.
fn window_slots(postings: u64, span: Slot) -> usize {
    let wanted = u64::from(span) * WINDOW_POSTINGS / postings.max(1);
    (wanted as usize).next_power_of_two().clamp(WINDOW_MIN, WINDOW_MAX)
}
