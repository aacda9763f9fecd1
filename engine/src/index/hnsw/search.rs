//! Finding neighbours: greedy descent through the upper levels, then a best-first beam (Algorithms 2 and 5).
use super::links::Links;
use super::quantized::{Coded, QuantizedRows};
use super::scratch::QueryForms;
use super::{Admit, Graph, Scratch, SearchStats};
use crate::distance::CodeQuery;
use crate::index::Neighbor;
use crate::index::pool::{COPIES_MAX, Fingerprints};
use crate::pace::{Pace, TooLong, Whole, at_once};
use crate::quantizer::CodecQuery;
use crate::slot::Slot;
use std::sync::atomic::Ordering;

/// How many candidates a walk may still refuse. One that refuses without end (what it looks for is nowhere near, or lies
/// behind a cluster of deleted nodes) would visit the whole graph.
#[derive(Clone, Copy, Default)]
pub(super) struct Patience(pub(super) usize);

impl Patience {
    /// Whether the beam takes a candidate that `fits` or does not.
    #[inline]
    pub(super) fn admits(&mut self, fits: bool) -> bool {
        fits || match self.0.checked_sub(1) {
            Some(left) => {
                self.0 = left;
                false
            }
            None => true,
        }
    }
}

/// What a walk is looking for, in the form that it scores.
#[derive(Clone, Copy)]
pub(super) enum Probe<'q> {
    /// A padded, prepared vector.
    Vector(&'q [f32]),
    /// Its code.
    Code(&'q CodeQuery),
    /// As the quantizer's codes are compared with.
    Coded(Coded<'q>),
}

/// The kind of distances that a search returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// The distances are those of the vectors, at least for the nearest `k`.
    Exact,
    /// The distances are those that the walk compared, which may be those of codes.
    AsCompared,
}

/// What a search returns.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The number of nearest slots to find.
    pub k: usize,
    /// The kind of distances to return with them.
    pub precision: Precision,
}

impl Wanted {
    /// The nearest `k`, with exact distances.
    pub fn exact(k: usize) -> Wanted {
        Wanted { k, precision: Precision::Exact }
    }
}

/// How many of the nearest by their codes are scored exactly at first.
fn rescored(k: usize) -> usize {
    k.saturating_add((k / 2).max(4))
}

/// And how many more at least, or half as many again, as long as the next by its code may be among the `k` nearest.
const RESCORED_MORE: usize = 8;
/// How many between two questions to the pace.
const RESCORED_AT_ONCE: usize = 256;

/// The number of bytes of a row that are compared in about one step of a pace.
const BYTES_PER_STEP: usize = 3_072;
/// Rows of up to this many bytes take one step each. The embeddings of usual models, of up to 4,096 components, are not longer, so that ordinary walks
/// over them are still made in one piece.
const BYTES_IN_ONE: usize = 16_384;

/// Expansions between two questions to the pace: some 100 µs.
pub(super) const EXPANSIONS_PER_STEP: usize = 16;

/// By how much exact distances differed from those of codes.
#[derive(Default)]
struct Errors {
    count: f32,
    sum: f32,
    squares: f32,
}

impl Errors {
    fn add(&mut self, error: f32) {
        self.count += 1.0;
        self.sum += error;
        self.squares += error * error;
    }

    /// What hardly any error is below: three deviations under the mean.
    fn low(&self) -> f32 {
        let mean = self.sum / self.count;
        mean - 3.0 * (self.squares / self.count - mean * mean).max(0.0).sqrt()
    }
}

/// The steps that a distance to a row of so many bytes takes.
fn steps_of(bytes: usize) -> usize {
    if bytes <= BYTES_IN_ONE { 1 } else { bytes / BYTES_PER_STEP }
}

impl Graph {
    /// The nearest reachable slots that `admit` accepts, nearest first, ties by slot, walking through others: the `ef` of the
    /// beam, or at least `k` of them where the walk goes over codes, all with exact distances.
    ///
    /// `query` is padded and prepared. Stops when `ef` admitted slots are held and the next candidate is farther than
    /// the worst of them; so with few admitted slots it may walk the whole graph. `admit` is asked once for each slot
    /// that comes near enough to matter. Cost: about `ef * 3m / 2` distances, counted in [`Self::stats`]. Only the
    /// first few of equal vectors count as held; the search looks for the rest of the `ef` nearest at the end, with up to `ef` more expansions.
    ///
    /// The caller is pinned, or otherwise sure that no slot is freed meanwhile.
    ///
    /// # Panics
    /// When `query` is not a padded row.
    pub fn search<'s>(
        &self,
        query: &[f32],
        k: usize,
        ef: usize,
        scratch: &'s mut Scratch,
        mut admit: impl FnMut(Slot) -> bool,
    ) -> &'s [Neighbor] {
        match at_once(self.search_paced(
            query,
            Wanted::exact(k),
            ef,
            &mut Whole::unbounded(),
            scratch,
            &mut admit,
        )) {
            Ok(found) => found,
            Err(TooLong) => unreachable!("unbounded"),
        }
    }

    /// As [`Self::search`], at a pace; its steps are distances, of which long vectors take several each.
    ///
    /// # Errors
    /// [`TooLong`].
    ///
    /// # Panics
    /// As [`Self::search`].
    pub async fn search_paced<'s>(
        &self,
        query: &[f32],
        wanted: Wanted,
        ef: usize,
        pace: &mut impl Pace,
        scratch: &'s mut Scratch,
        admit: &mut impl Admit,
    ) -> Result<&'s [Neighbor], TooLong> {
        self.begin_search(query, scratch);
        if ef > 0 {
            let mut forms = std::mem::take(&mut scratch.query);
            let probe = self.probe(query, &mut forms);
            let walked = self.walk(probe, ef, pace, scratch, admit).await;
            let finished = match walked {
                Ok(()) => self.finish_search(query, probe, wanted, pace, scratch).await,
                refused => refused,
            };
            scratch.query = forms;
            finished?;
        }
        Ok(&scratch.found)
    }

    async fn walk(
        &self,
        probe: Probe<'_>,
        ef: usize,
        pace: &mut impl Pace,
        scratch: &mut Scratch,
        admit: &mut impl Admit,
    ) -> Result<(), TooLong> {
        let (mut counted, steps) = (0, self.steps_per_distance(probe));
        if steps > 1 {
            // A walk that is given up in the middle has cost as much for nothing.
            pace.foresee(2 * ef * self.config.m * steps)?;
        }
        let expansions = (EXPANSIONS_PER_STEP / steps).max(1);
        let mut open = self.begin_level(probe, 0, (ef, ef), scratch, admit);
        while open {
            open = (0..expansions).all(|_| self.expand(probe, 0, scratch, admit));
            let distances = scratch.stats.distances;
            pace.step((distances - counted) as usize * steps).await?;
            counted = distances;
        }
        Ok(())
    }

    /// The steps of a pace that each distance to this probe takes.
    pub(super) fn steps_per_distance(&self, probe: Probe<'_>) -> usize {
        steps_of(match probe {
            Probe::Vector(row) => size_of_val(row),
            Probe::Code(_) => self.code_bytes_per_slot(),
            Probe::Coded(coded) => coded.row_bytes(),
        })
    }

    /// The steps of a pace that each distance of a walk takes, by vectors or by the codes that walks use now.
    ///
    /// The caller is pinned.
    pub fn steps_per_walked_distance(&self) -> usize {
        let published = self.quantized.as_ref().and_then(|quantized| quantized.published());
        let bytes = match published {
            Some(generation) => generation.codec.code_len(),
            None if self.code_bytes_per_slot() > 0 => self.code_bytes_per_slot(),
            None => self.vectors.row_len() * size_of::<f32>(),
        };
        steps_of(bytes)
    }

    /// Nothing counted, nothing found.
    pub(super) fn begin_search(&self, query: &[f32], scratch: &mut Scratch) {
        assert_eq!(query.len(), self.vectors.row_len(), "the query is not a padded row");
        scratch.stats = SearchStats::default();
        scratch.found.clear();
    }

    /// Owner: searches that end from now on score at least so many candidates per result exactly; 0 = as few as it takes.
    pub fn set_rescore_factor(&self, factor: usize) {
        self.rescore_factor.store(factor, Ordering::Relaxed);
    }

    /// Whether the distances that walks use are accurate enough to rank by: those of the vectors themselves, or of codes that quantize each
    /// component separately.
    ///
    /// The caller is pinned.
    pub fn compares_finely(&self) -> bool {
        let published = self.quantized.as_ref().and_then(|quantized| quantized.published());
        published.is_none_or(|generation| generation.codec.is_fine())
    }

    /// What the pool admitted, with the distances that are wanted.
    pub(super) async fn finish_search(
        &self,
        query: &[f32],
        probe: Probe<'_>,
        Wanted { k, precision }: Wanted,
        pace: &mut impl Pace,
        scratch: &mut Scratch,
    ) -> Result<(), TooLong> {
        let is_fine = match probe {
            Probe::Vector(_) => true,
            Probe::Code(_) => precision == Precision::AsCompared,
            Probe::Coded(coded) => precision == Precision::AsCompared && coded.is_fine(),
        };
        if is_fine || self.is_bare() {
            scratch.found.extend(scratch.pool.admitted());
            return Ok(());
        }
        // Entries behind the `ef`-th as well, if they count: many copies before them may be farther than their codes say.
        scratch.found.extend(scratch.pool.held());
        let wanted = match probe {
            // Few bits tell too little of how far they are off.
            Probe::Coded(coded) if !coded.is_fine() => usize::MAX,
            _ => rescored(k).max(k.saturating_mul(self.rescore_factor.load(Ordering::Relaxed))),
        };
        let (mut from, mut to) = (0, wanted.min(scratch.found.len()));
        let mut errors = Errors::default();
        while from < to {
            let piece = to.min(from + RESCORED_AT_ONCE);
            self.fetch(scratch.found[from..piece].iter().map(|near| near.slot));
            scratch.fresh.clear();
            scratch.fresh.extend(scratch.found[from..piece].iter().map(|near| near.slot));
            let last = scratch.found[piece - 1].distance;
            self.score(Probe::Vector(query), scratch);
            for (near, &exact) in scratch.found[from..piece].iter_mut().zip(&scratch.distances) {
                errors.add(exact - near.distance);
                near.distance = exact;
            }
            if piece - from == RESCORED_AT_ONCE {
                pace.step(RESCORED_AT_ONCE * self.steps_per_distance(Probe::Vector(query))).await?;
            }
            from = piece;
            if from < to {
                continue;
            }
            let Some(next) = scratch.found.get(to).map(|next| next.distance) else { break };
            let Scratch { found, distances, .. } = &mut *scratch;
            distances.clear();
            distances.extend(found[..to].iter().map(|near| near.distance));
            let (_, kth, _) = distances.select_nth_unstable_by(k.clamp(1, to) - 1, f32::total_cmp);
            // What has the same code may be the same vector, and ties are broken by whoever knows the ids.
            if next == last || next + errors.low() < *kth {
                to = (to + RESCORED_MORE.max(to / 2)).min(found.len());
            }
        }
        scratch.found.truncate(to);
        scratch.found.sort_unstable();
        Ok(())
    }

    /// A padded, prepared vector in the form that this graph walks by now. The same form throughout a walk: what it scores is
    /// compared.
    pub(super) fn probe<'q>(&'q self, query: &'q [f32], forms: &'q mut QueryForms) -> Probe<'q> {
        let QueryForms { code, codec } = forms;
        if let Some(coded) = self.quantized.as_ref().and_then(|quantized| quantized.query(query, codec)) {
            return Probe::Coded(coded);
        }
        match self.codes.as_ref().and_then(|codes| Some((codes, codes.step()?))) {
            Some((codes, step)) => {
                codes.set_query(code, query, step);
                Probe::Code(code)
            }
            None => Probe::Vector(query),
        }
    }

    /// A node in the form that plans go over.
    pub(super) fn probe_node<'q>(&'q self, node: Slot, forms: &'q mut QueryForms) -> Probe<'q> {
        let QueryForms { code, codec } = forms;
        if let Some(coded) = self.quantized.as_ref().and_then(|quantized| quantized.plan_node(node, codec)) {
            return Probe::Coded(coded);
        }
        self.probe_code(node, code)
    }

    /// The same of a node whose vector was written lately, which tells more than its code.
    pub(super) fn probe_new<'q>(&'q self, node: Slot, forms: &'q mut QueryForms) -> Probe<'q> {
        let QueryForms { code, codec } = forms;
        let coded =
            self.quantized.as_ref().and_then(|quantized| quantized.plan_new(node, self.vector(node), codec));
        match coded {
            Some(coded) => Probe::Coded(coded),
            None => self.probe_code(node, code),
        }
    }

    fn probe_code<'q>(&'q self, node: Slot, code: &'q mut CodeQuery) -> Probe<'q> {
        match self.codes.as_ref().and_then(|codes| Some((codes, codes.step()?))) {
            Some((codes, step)) => {
                codes.set_node(code, node, step);
                Probe::Code(code)
            }
            None => Probe::Vector(self.vector(node)),
        }
    }

    /// The form of a node that [`Self::probe_new`] has given; no round under way sees it change.
    #[inline]
    pub(super) fn started<'q>(&'q self, node: Slot, forms: &'q QueryForms) -> Probe<'q> {
        let QueryForms { code, codec } = forms;
        if let Some(coded) = self.quantized.as_ref().and_then(|quantized| quantized.plan_started(codec)) {
            return Probe::Coded(coded);
        }
        if self.code_step().is_some() { Probe::Code(code) } else { Probe::Vector(self.vector(node)) }
    }

    /// Leaves the `ef` nearest admitted nodes of `level` in the pool, where a few copies of each vector count; none when the graph has
    /// no such level.
    pub(super) fn search_level(
        &self,
        probe: Probe<'_>,
        level: u8,
        ef: usize,
        scratch: &mut Scratch,
        admit: &mut impl Admit,
    ) {
        if self.begin_level(probe, level, (ef, 1), scratch, admit) {
            while self.expand(probe, level, scratch, admit) {}
        }
    }

    /// Descends to `level` and prepares its beam; false when the graph has no such level.
    fn begin_level(
        &self,
        probe: Probe<'_>,
        level: u8,
        (ef, wanted): (usize, usize),
        scratch: &mut Scratch,
        admit: &mut impl Admit,
    ) -> bool {
        scratch.pool.reset(ef, wanted);
        let Some((entry, top)) = self.entry().filter(|&(_, top)| top >= level) else { return false };
        let mut at = self.begin_descent(probe, entry, scratch);
        for above in (level + 1..=top).rev() {
            while let Some(nearer) = self.hop(probe, above, at, scratch) {
                at = nearer;
            }
        }
        self.begin_beam(at, (ef, wanted), scratch, admit);
        true
    }

    /// As [`Self::search_level`], for at most `refusals` slots that do not fit: from then on the beam fills with whatever
    /// comes, which lets the search end. Returns the fitting ones, nearest first, with at most a few copies of each vector; that none
    /// are returned does not mean that there are none.
    pub(super) fn search_level_with_patience<'s>(
        &self,
        probe: Probe<'_>,
        level: u8,
        ef: usize,
        refusals: usize,
        scratch: &'s mut Scratch,
        fits: &'s impl Fn(Slot) -> bool,
    ) -> impl Iterator<Item = Neighbor> + 's {
        let mut patience = Patience(refusals);
        self.search_level(probe, level, ef, scratch, &mut |slot: Slot| patience.admits(fits(slot)));
        scratch.pool.counted().filter(|near| fits(near.slot))
    }

    /// Counters of the last search in `scratch`.
    pub fn stats(scratch: &Scratch) -> SearchStats {
        scratch.stats
    }

    /// Scores the entry point.
    pub(super) fn begin_descent(&self, probe: Probe<'_>, entry: Slot, scratch: &mut Scratch) -> Neighbor {
        scratch.visited.reset(self.slots_end());
        scratch.visited.insert(entry);
        scratch.fresh.clear();
        scratch.fresh.push(entry);
        self.score(probe, scratch);
        Neighbor { distance: scratch.distances[0], slot: entry }
    }

    /// The nearest neighbour of `at` on an upper level if it is nearer than `at` itself. Slots met earlier in the
    /// descent are not scored again: none was nearer than `at`.
    pub(super) fn hop(
        &self,
        probe: Probe<'_>,
        level: u8,
        at: Neighbor,
        scratch: &mut Scratch,
    ) -> Option<Neighbor> {
        scratch.fresh.clear();
        self.gather(at.slot, level, scratch);
        self.score(probe, scratch);
        scratch.stats.expanded += 1;
        let scored = scratch.fresh.iter().zip(&scratch.distances);
        scored.map(|(&slot, &distance)| Neighbor { distance, slot }).min().filter(|&nearest| nearest < at)
    }

    /// Prepares a beam of width `ef` that starts at `start` and sees to it that the `wanted` nearest are found, although they are copies
    /// of one vector.
    pub(super) fn begin_beam(
        &self,
        start: Neighbor,
        (ef, wanted): (usize, usize),
        scratch: &mut Scratch,
        admit: &mut impl Admit,
    ) {
        scratch.visited.reset(self.slots_end());
        scratch.visited.insert(start.slot);
        scratch.pool.reset(ef, wanted);
        // The pool is empty, so that nothing is at the same distance.
        scratch.pool.insert(start.order(), admit.admits(start.slot), &|_| 0);
    }

    /// Expands the two nearest open nodes of the beam; false when none is left that could matter. Two, because the
    /// first row of a batch is waited for in full: halving the batches is worth 6 % of a search at ef 40, for 2 %
    /// more distances (and slightly more recall).
    #[inline]
    pub(super) fn expand(
        &self,
        probe: Probe<'_>,
        level: u8,
        scratch: &mut Scratch,
        admit: &mut impl Admit,
    ) -> bool {
        let fingerprint = |slot| self.fingerprint(slot);
        let Some(nearest) = scratch.pool.pop(&fingerprint) else { return false };
        let second = scratch.pool.pop(&fingerprint);
        scratch.fresh.clear();
        self.gather(nearest, level, scratch);
        second.into_iter().for_each(|second| self.gather(second, level, scratch));
        self.score_and_look(probe, scratch, admit);
        scratch.stats.expanded += 1 + u64::from(second.is_some());
        for (&slot, &distance) in scratch.fresh.iter().zip(&scratch.distances) {
            let order = Neighbor { distance, slot }.order();
            if scratch.pool.wants(order) {
                self.links.prefetch(slot);
                scratch.pool.insert(order, admit.admits(slot), &fingerprint);
            }
        }
        true
    }

    /// Adds the neighbours of `slot` that were not met yet to those to be scored.
    #[inline]
    fn gather(&self, slot: Slot, level: u8, scratch: &mut Scratch) {
        let Scratch { visited, fresh, .. } = scratch;
        self.links.for_each(slot, level, |edge| {
            if visited.insert(edge) {
                fresh.push(edge);
            }
        });
        Links::acquire();
    }

    /// Scores what was collected.
    #[inline]
    pub(super) fn score(&self, probe: Probe<'_>, scratch: &mut Scratch) {
        let Scratch { fresh, distances, stats, .. } = scratch;
        distances.resize(fresh.len(), 0.0);
        self.score_slots(probe, fresh, distances);
        stats.distances += fresh.len() as u64;
    }

    /// Scores what was collected, and has `admit` fetch what it needs to answer about it.
    #[inline]
    pub(super) fn score_and_look(&self, probe: Probe<'_>, scratch: &mut Scratch, admit: &impl Admit) {
        if !admit.looks_ahead() {
            return self.score(probe, scratch);
        }
        scratch.fresh.iter().for_each(|&slot| admit.scored(slot));
        self.score(probe, scratch);
        for (&slot, &distance) in scratch.fresh.iter().zip(&scratch.distances) {
            if scratch.pool.wants(Neighbor { distance, slot }.order()) {
                admit.near(slot);
            }
        }
    }

    /// Distances to `slots`, all of them below the capacity.
    #[inline]
    pub(super) fn score_slots(&self, probe: Probe<'_>, slots: &[Slot], out: &mut [f32]) {
        match (probe, &self.codes) {
            (Probe::Vector(query), _) => self.distances(query, slots, out),
            (Probe::Code(query), Some(codes)) => codes.distances(query, slots, out),
            (Probe::Coded(coded), _) => coded.distances(slots, out),
            (Probe::Code(_), None) => unreachable!("a code comes from the graph's own codes"),
        }
    }

    /// Distances of a padded row to the vectors of `slots`, all of them below the capacity.
    #[inline]
    pub(super) fn distances(&self, query: &[f32], slots: &[Slot], out: &mut [f32]) {
        self.kernel.distances(query, self.vectors.table(), slots, out);
    }

    /// Keeps the first [`COPIES_MAX`] copies of each vector among `candidates`, which ascend, and no more than `max` candidates in all. Returns
    /// whether there were more copies.
    pub(super) fn thin(&self, candidates: &mut Vec<Neighbor>, max: usize) -> bool {
        let mut seen = Fingerprints::default();
        let (mut kept, mut more, mut were_tied) = (0, false, false);
        for at in 0..candidates.len() {
            if kept == max {
                break;
            }
            let near = candidates[at];
            let tied = at > 0 && candidates[at - 1].is_as_far_as(near);
            if tied && !were_tied {
                seen.add(self.fingerprint(candidates[at - 1].slot));
            }
            were_tied = tied;
            if tied && seen.add(self.fingerprint(near.slot)) {
                let before = candidates[..kept].iter().rev().take_while(|other| other.is_as_far_as(near));
                if before.filter(|other| self.is_copy(other.slot, near.slot)).count() >= COPIES_MAX {
                    more = true;
                    continue;
                }
            }
            candidates[kept] = near;
            kept += 1;
        }
        candidates.truncate(kept);
        more
    }

    /// Whether plans go over codes of a quantizer.
    #[inline]
    pub(super) fn plans_coded(&self) -> bool {
        self.quantized.as_ref().is_some_and(QuantizedRows::is_planned)
    }

    /// Sets `query` to a slot's code, where plans go over codes of a quantizer.
    pub(super) fn set_coded(&self, slot: Slot, query: &mut CodecQuery) {
        self.quantized.as_ref().and_then(|quantized| quantized.plan_node(slot, query));
    }

    /// Distance of a code that [`Self::set_coded`] has set in the same round to that of a slot.
    #[inline]
    pub(super) fn coded_distance(&self, query: &CodecQuery, slot: Slot) -> f32 {
        let coded = self.quantized.as_ref().and_then(|quantized| quantized.plan_started(query));
        coded.expect("plans go over codes throughout a round").distance(slot)
    }

    /// Distance of two slots, in the form that plans go over where these are not codes of a quantizer.
    #[inline]
    pub(super) fn distance(&self, a: Slot, b: Slot) -> f32 {
        if let Some(codes) = &self.codes
            && let Some(step) = codes.step()
        {
            return codes.between(a, b, step);
        }
        self.kernel.distance(self.vector(a), self.vector(b))
    }
}
