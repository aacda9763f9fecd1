//! Searching the sparse or the full-text lane, on any core.
use super::Points;
use super::phrase_search::Phrases;
use super::sparse_lists::SparseSpace;
use super::view::View;
use crate::collection::SearchError;
use crate::filter::cost::Situation;
use crate::filter::lists::look_up;
use crate::filter::planner::{Plan, bit};
use crate::filter::{Allowance, Predicate};
use crate::memory::Pin;
use crate::pace::{Pace, TooLong};
use crate::payload::index::Walk;
use crate::postings::{Admission, LaneWalk};
use crate::slot::Slot;
use crate::sparse::{LaneHit, LaneScratch, LaneSearch};
use crate::text::{Phrase, TextIndex, TextMatch, TextQuery};
use ahash::{HashMap, HashSet};

/// What a search of a sparse lane looks for.
#[derive(Clone, Copy, Debug)]
pub struct SparseQuery<'a> {
    /// The number of the sparse space; a dense collection has number 0 alone.
    pub space: usize,
    /// Dimensions, which ascend strictly, and values.
    pub terms: &'a [(u32, f32)],
}

/// Which hits a search of the sparse or the full-text lane returns.
#[derive(Clone, Copy)]
pub struct HitsWanted<'a> {
    /// How many at most.
    pub k: usize,
    /// What they match.
    pub filter: Option<&'a Predicate>,
    /// Their ids are among these; of other points neither the filter nor the text is looked at.
    pub among: Option<&'a HashSet<u64>>,
    /// Now, Unix ms.
    pub now_ms: u64,
}

/// What a lane may ask the filter in one go, in nanoseconds: a search of a lane is not left in the middle. A slot whose question stays
/// open is admitted for now, and the lane is searched again once it is answered.
const LANE_ALLOWANCE_NS: u64 = 2_000_000;
/// How often, before all slots that may match are asked.
const LANE_ROUNDS: usize = 4;
/// Slots asked between two calls of the pace.
const ASKED_AT_ONCE: Slot = 256;
/// Postings that are looked at in the time of a step.
const POSTINGS_PER_STEP: usize = 32;
/// Steps that it takes to look up the row of a slot that is put off.
const STEPS_PUT_OFF: usize = 3;

/// What a lane knows of the filter.
struct Asked {
    allowance: Allowance,
    known: HashMap<Slot, bool>,
    open: Vec<Slot>,
    rounds: usize,
    /// All slots that match, one bit each, when that was the shorter way.
    all: Option<Vec<u64>>,
}

impl Default for Asked {
    fn default() -> Asked {
        Asked {
            allowance: Allowance::of(LANE_ALLOWANCE_NS),
            known: HashMap::default(),
            open: Vec::new(),
            rounds: 0,
            all: None,
        }
    }
}

impl Asked {
    /// Whether a slot matches the filter. `None` if this would take too long now; the slot is then added to `open`, to be decided later.
    #[inline]
    fn matches(&mut self, view: &mut View<'_>, slot: Slot) -> Option<bool> {
        if self.rounds > 0 {
            if let Some(all) = &self.all {
                return Some(bit(all, slot));
            }
            if let Some(&known) = self.known.get(&slot) {
                return Some(known);
            }
        }
        let answer = view.ask(slot, &self.allowance);
        if answer.is_none() {
            self.open.push(slot);
        }
        answer
    }
}

/// The slots a filter may admit, as the payload index knows them.
enum Named<'p> {
    None,
    /// These; `exact`: all of them match.
    Slots {
        walk: Walk<'p>,
        exact: bool,
    },
    /// Not narrowed down: the predicate is asked.
    Any,
}

/// A search of a lane under way: what it sees, and what it knows of the filter.
pub(crate) struct Listing<'a, P> {
    points: &'a Points,
    pin: &'a Pin<'a>,
    /// How many hits are wanted at most.
    k: usize,
    /// The ids of hits, when only some are wanted.
    among: Option<&'a HashSet<u64>>,
    /// What the planner goes by.
    situation: Situation,
    view: View<'a>,
    asked: Asked,
    pace: &'a mut P,
}

impl<'a, P: Pace> Listing<'a, P> {
    /// The snapshot is taken first: what it includes is filed by the time the lane is looked at, and within the slots that the planner knows
    /// of.
    pub fn new(
        points: &'a Points,
        pin: &'a Pin<'a>,
        wanted: HitsWanted<'a>,
        situation: Situation,
        pace: &'a mut P,
    ) -> Self {
        let view = points.view_to_plan(pin, wanted.filter, wanted.now_ms);
        let situation = points.counted(situation);
        let HitsWanted { k, among, .. } = wanted;
        Listing { points, pin, k, among, situation, view, asked: Asked::default(), pace }
    }

    async fn named(&mut self) -> Result<Named<'a>, TooLong> {
        let (points, pin, situation) = (self.points, self.pin, &self.situation);
        let Some(filter) = self.view.filter else { return Ok(Named::Any) };
        let lists =
            look_up(filter, points.index.view(pin), self.view.ids.clone(), situation, self.pace).await?;
        Ok(match points.planned(filter, pin, &lists, situation, &self.view).0 {
            Plan::Nothing => Named::None,
            Plan::Points { walk, exact } => Named::Slots { walk, exact },
            Plan::Graph(_) | Plan::Everything => Named::Any,
        })
    }

    /// As [`Self::may_be_hit`], but a slot that is undecided is admitted for now.
    fn admits(&mut self, named: &mut Named<'_>, slot: Slot) -> bool {
        self.may_be_hit(named, slot).unwrap_or(true)
    }

    /// Whether a slot is visible and matches. `None` if this is undecided; the slot is then in `open`. It must be called in ascending order of
    /// slots, because `named` is walked at the same time.
    fn may_be_hit(&mut self, named: &mut Named<'_>, slot: Slot) -> Option<bool> {
        let exact = match named {
            Named::None => return Some(false),
            Named::Slots { walk, exact } => {
                if walk.seek(slot) != Some(slot) {
                    self.view.filter_rejects += 1;
                    return Some(false);
                }
                *exact
            }
            Named::Any => false,
        };
        let is_among = || self.among.is_none_or(|ids| ids.contains(&self.points.meta.id(slot)));
        if !self.view.visible(slot) || !is_among() {
            return Some(false);
        }
        match exact && !self.view.was_replaced() {
            true => Some(true),
            false => self.asked.matches(&mut self.view, slot),
        }
    }

    /// Whether an admitted slot has a text. One that has expired is gone for searches at once; its postings go with the sweep.
    fn has_text(&self, slot: Slot) -> bool {
        let now_ms = self.view.now_ms;
        let row = self.view.row(slot);
        // After the row was read: one that was replaced says for itself whether it has a text.
        let replaced = self.view.was_replaced();
        let deadline = row.and_then(|row| row.next_deadline());
        (deadline.is_none_or(|deadline| deadline > now_ms) && !replaced)
            || row.is_some_and(|row| row.content(now_ms).is_some())
    }

    /// The text of an admitted slot.
    fn content(&self, slot: Slot) -> Option<&str> {
        self.view.row(slot)?.content(self.view.now_ms)
    }

    /// Searches for a phrase. The lists are walked in parts; what a part has put off is answered before the next one, best first, as far as it
    /// could enter the result.
    async fn search_phrase(
        &mut self,
        text: &TextIndex,
        query: &TextQuery,
        phrase: &Phrase,
        scratch: &mut LaneScratch,
        out: &mut Vec<LaneHit>,
    ) -> Result<(), TooLong> {
        let mut named = self.named().await?;
        let stats = text.text_stats(self.pin, query);
        let mut phrases = Phrases::new(phrase, text.analyzer());
        let mut walk = LaneWalk::new(self.k, scratch);
        let (pin, meta) = (self.pin, &self.points.meta);
        while !walk.is_over() {
            let admit = |slot| match self.may_be_hit(&mut named, slot) {
                Some(false) => Admission::StaysOut,
                Some(true) => match self.content(slot).map(|text| phrases.ask(text)) {
                    Some(Some(true)) => Admission::Enters,
                    Some(None) => Admission::PutOff,
                    Some(Some(false)) | None => Admission::StaysOut,
                },
                None => Admission::PutOff,
            };
            let looked = text.walk_on(pin, query, &stats, &mut walk, admit, |slot| meta.id(slot));
            let put_off = walk.take_put_off();
            self.pace.step(looked as usize / POSTINGS_PER_STEP + put_off.len() * STEPS_PUT_OFF).await?;
            self.pace.step(phrases.steps_taken() + self.asked.allowance.renew(LANE_ALLOWANCE_NS)).await?;
            let Listing { view, asked, pace, .. } = &mut *self;
            // In the order of the slots.
            let open = std::mem::take(&mut asked.open);
            for hit in put_off {
                if !walk.could_enter(&hit) {
                    break;
                }
                let Some(text) = view.row(hit.slot).and_then(|row| row.content(view.now_ms)) else {
                    continue;
                };
                let is_match = phrases.is_in(text, *pace).await?
                    && (open.binary_search(&hit.slot).is_err() || view.settle(hit.slot, *pace).await?);
                if is_match {
                    walk.offer(hit);
                }
            }
        }
        text.count(&walk.finish(out));
        Ok(())
    }

    /// Answers what stayed open; true when nothing did, and the lane has been searched.
    async fn settle(&mut self, named: Named<'_>) -> Result<bool, TooLong> {
        let Listing { view, asked, pace, .. } = self;
        pace.step(asked.allowance.renew(LANE_ALLOWANCE_NS)).await?;
        if asked.open.is_empty() {
            return Ok(true);
        }
        asked.rounds += 1;
        for slot in std::mem::take(&mut asked.open) {
            asked.known.insert(slot, view.settle(slot, *pace).await?);
        }
        if asked.rounds == LANE_ROUNDS {
            self.ask_all(named).await?;
        }
        Ok(false)
    }

    /// Asks all slots that may match.
    async fn ask_all(&mut self, mut named: Named<'_>) -> Result<(), TooLong> {
        let Listing { points, view, asked, pace, .. } = self;
        let slots = points.slots();
        let mut all = vec![0; (slots as usize).div_ceil(64)];
        let mut take = |slot: Slot| all[slot as usize / 64] |= 1 << (slot % 64);
        for slot in 0..slots {
            if slot % ASKED_AT_ONCE == ASKED_AT_ONCE - 1 || view.is_spent() {
                pace.step(ASKED_AT_ONCE as usize / 4 + view.steps_taken()).await?;
                view.settle_open(*pace, &mut take).await?;
            }
            let is_named = match &mut named {
                Named::Slots { walk, .. } => walk.seek(slot) == Some(slot),
                Named::None => false,
                Named::Any => true,
            };
            if is_named && view.visible(slot) {
                match asked.known.get(&slot) {
                    Some(false) => {}
                    Some(true) => take(slot),
                    None if view.matches(slot) => take(slot),
                    None => {}
                }
            }
        }
        view.settle_open(*pace, take).await?;
        asked.all = Some(all);
        Ok(())
    }
}

impl Points {
    /// Any core. Replaces `out` with the points of the listing that have the greatest dot product with `query` in `space`, best first, ties by
    /// id.
    ///
    /// # Errors
    /// Dimensions that do not ascend strictly, values that are not finite; [`SearchError::TooLong`].
    pub(crate) async fn search_sparse(
        &self,
        space: &SparseSpace,
        terms: &[(u32, f32)],
        mut listing: Listing<'_, impl Pace>,
        scratch: &mut LaneScratch,
        out: &mut Vec<LaneHit>,
    ) -> Result<(), SearchError> {
        out.clear();
        crate::sparse::check_sparse(terms)?;
        let (pin, k) = (listing.pin, listing.k);
        let Some(index) = space.index() else {
            scratch.clear_stats();
            return Ok(());
        };
        loop {
            let mut named = listing.named().await?;
            let admit = |slot| listing.admits(&mut named, slot);
            let id_of = |slot| self.meta.id(slot);
            let search = LaneSearch { k, admit, id_of, scratch: &mut *scratch, out: &mut *out };
            index.search(pin, terms, search)?;
            if listing.settle(named).await? {
                break;
            }
        }
        self.count_rejects(listing.view.filter_rejects);
        Ok(())
    }

    /// Any core. Replaces `out` with the points of the listing whose `$content` scores best for `query`, best first, ties by id.
    ///
    /// # Errors
    /// [`SearchError::TextDisabled`], [`SearchError::Text`], [`SearchError::TooLong`].
    pub(crate) async fn search_text(
        &self,
        wanted: &TextMatch,
        mut listing: Listing<'_, impl Pace>,
        scratch: &mut LaneScratch,
        out: &mut Vec<LaneHit>,
    ) -> Result<(), SearchError> {
        out.clear();
        let text = self.text.as_deref().ok_or(SearchError::TextDisabled)?;
        let (pin, k) = (listing.pin, listing.k);
        scratch.clear_stats();
        let query = text.query(pin, wanted, listing.pace).await??;
        if let Some(phrase) = query.phrase() {
            listing.search_phrase(text, &query, phrase, scratch, out).await?;
            self.count_rejects(listing.view.filter_rejects);
            return Ok(());
        }
        loop {
            let mut named = listing.named().await?;
            let admit = |slot| listing.admits(&mut named, slot) && listing.has_text(slot);
            let id_of = |slot| self.meta.id(slot);
            let search = LaneSearch { k, admit, id_of, scratch: &mut *scratch, out: &mut *out };
            text.search(pin, &query, None, search);
            if listing.settle(named).await? {
                break;
            }
        }
        self.count_rejects(listing.view.filter_rejects);
        Ok(())
    }

    /// Whether the collection has a full-text lane.
    pub fn has_text(&self) -> bool {
        self.text.is_some()
    }
}
