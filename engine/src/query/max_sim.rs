//! Late interaction: the score of a document is the sum, over the tokens of the query, of the greatest cosine with a token of the document
//! (MaxSim, as in ColBERT, arXiv:2004.12832).
//!
//! A search has two stages. For each token of the query it searches the index of tokens for the nearest tokens; the documents that own the
//! tokens found are the candidates. Their scores are computed from all of their tokens, which lie in their payload rows. So the scores in a
//! result are exact, and a document can be missed only if none of its tokens is among the nearest of a token of the query. If there are few
//! documents, or few that match the filter, all of them are candidates and the result is exact.
//!
//! The index of tokens is only a hint: a token in it names a document that may have been deleted or may have other tokens by now. The tokens of
//! a document are those in its row.

use super::lane_query::{CANDIDATES_MAX, Found, LaneError, Leaf, MaxSim, by_score};
use super::lanes::QueryScratch;
use super::run::Run;
use crate::collection::{Explain, MatchCursor, Query};
use crate::distance::{Kernel, Metric, RowTable, padded, prepare};
use crate::filter::Predicate;
use crate::pace::{Pace, TooLong};
use crate::payload::{PayloadRow, RowTokens};
use crate::slot::Slot;
use ahash::{HashSet, HashSetExt};

/// At most this many documents are scored without a search in the index of tokens.
const ALL_SCORED_MAX: usize = 512;
/// At most this many slots are examined to find out whether at most [`ALL_SCORED_MAX`] documents match a filter.
const LOOKS_MAX: usize = 16_384;
/// The number of slots or documents that are examined between two calls of the pace.
const LOOKS_STEP: usize = 2_048;
/// The number of tokens to find for each token of the query: this many times the hits wanted, with a minimum, and with a filter also a maximum.
const PER_HIT: usize = 4;
const PER_TOKEN_MIN: usize = 50;
const PER_HIT_FILTERED: usize = 8;
const PER_TOKEN_MIN_FILTERED: usize = 100;
const PER_TOKEN_MAX_FILTERED: usize = 1_024;
/// Dot products over this many components take as long as one step of a pace.
const COMPONENTS_PER_STEP: usize = 1_024;
/// The number of components of a document that are scored together: they fit the cache of a core, and scoring them takes less than a time slice.
const BLOCK_COMPONENTS: usize = 1 << 16;

/// The id and the version of the point that a token is in the index, made from its document and its number. Together they encode the document:
/// the version, which is never 0, holds all bits of the document's id but the lowest, and the id holds that bit and the number.
pub fn token_of(document: u64, number: u32) -> (u64, u64) {
    (u64::from(number) | (document & 1) << u32::BITS, (document >> 1) + 1)
}

/// The document that a token with this id and version in the index belongs to.
pub fn document_of(id: u64, version: u64) -> u64 {
    (version.wrapping_sub(1) << 1) | (id >> u32::BITS & 1)
}

/// Scores documents for one query.
struct Scorer {
    /// The tokens of the query, prepared, each padded.
    query: Vec<f32>,
    dim: usize,
    kernel: Kernel,
    /// Some tokens of the document that is being scored, each padded.
    document: Vec<f32>,
    rows: Vec<u32>,
    distances: Vec<f32>,
    /// The smallest distance so far for each token of the query.
    nearest: Vec<f32>,
}

impl Scorer {
    fn new(query: Vec<f32>, dim: usize) -> Scorer {
        let kernel = Kernel::of(Metric::Dot);
        let (document, rows, distances, nearest) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Scorer { query, dim, kernel, document, rows, distances, nearest }
    }

    /// Computes the score of a document; it is `None` if the document has no tokens of this dimension.
    async fn score(&mut self, tokens: RowTokens<'_>, pace: &mut impl Pace) -> Result<Option<f32>, TooLong> {
        if tokens.is_empty() || tokens.dim() != self.dim {
            return Ok(None);
        }
        pace.foresee(self.steps(tokens))?;
        let row_len = padded(self.dim);
        let block = (BLOCK_COMPONENTS / row_len).clamp(1, tokens.len());
        if self.rows.len() < block {
            self.rows.extend(self.rows.len() as u32..block as u32);
            self.distances.resize(block, 0.0);
        }
        self.nearest.clear();
        self.nearest.resize(self.query.len() / row_len, f32::INFINITY);
        let (mut vectors, mut left, mut multiplied) = (tokens.vectors(), tokens.len(), 0);
        while left > 0 {
            let count = block.min(left);
            left -= count;
            self.document.clear();
            for token in vectors.by_ref().take(count) {
                self.document.extend(token);
                let end = self.document.len().next_multiple_of(row_len);
                self.document.resize(end, 0.0);
            }
            for (token, nearest) in self.query.chunks_exact(row_len).zip(&mut self.nearest) {
                let (rows, distances) = (&self.rows[..count], &mut self.distances[..count]);
                self.kernel.distances(token, RowTable::of(&self.document, row_len), rows, distances);
                *nearest = distances.iter().copied().fold(*nearest, f32::min);
                multiplied += count * row_len;
                if multiplied >= BLOCK_COMPONENTS {
                    pace.step(multiplied / COMPONENTS_PER_STEP).await?;
                    multiplied = 0;
                }
            }
        }
        pace.step(multiplied.div_ceil(COMPONENTS_PER_STEP)).await?;
        // The distance is the negated product.
        Ok(Some(self.nearest.iter().fold(0.0, |sum, nearest| sum - nearest)))
    }

    /// The number of steps that scoring a document with these tokens takes.
    fn steps(&self, tokens: RowTokens<'_>) -> usize {
        (self.query.len() * tokens.len()).div_ceil(COMPONENTS_PER_STEP)
    }
}

/// The best of the documents that have been scored.
struct Best {
    k: usize,
    hits: Vec<Found>,
}

impl Best {
    fn of(k: usize) -> Best {
        Best { k, hits: Vec::new() }
    }

    fn push(&mut self, hit: Found) {
        self.hits.push(hit);
        if self.hits.len() >= self.k.saturating_mul(2).saturating_add(LOOKS_STEP) {
            self.cut();
        }
    }

    /// Keeps each document once, the best first, ties by id. A document that was replaced while others were scored may have two entries; the
    /// later entry is newer and is kept.
    fn cut(&mut self) {
        let mut seen = HashSet::with_capacity(self.hits.len());
        self.hits.reverse();
        self.hits.retain(|hit| seen.insert(hit.id));
        self.hits.sort_unstable_by(|a, b| by_score(a, b).then(a.id.cmp(&b.id)));
        self.hits.truncate(self.k);
    }

    fn into_hits(mut self) -> Vec<Found> {
        self.cut();
        self.hits
    }
}

impl Run<'_> {
    /// Makes the scorer of documents for a query.
    fn scorer(&self, query: &MaxSim) -> Result<Scorer, LaneError> {
        let tokens = self.tokens.ok_or(LaneError::NoTokens)?.space();
        let dim = tokens.config().dim;
        let mut prepared = vec![0.0; padded(dim) * query.tokens.len()];
        for (token, row) in query.tokens.iter().zip(prepared.chunks_exact_mut(padded(dim))) {
            tokens.check_query(token)?;
            prepare(Metric::Cosine, token, row);
        }
        Ok(Scorer::new(prepared, dim))
    }

    /// Finds the best `k` documents for the tokens of a query.
    pub(super) async fn max_sim(
        &self,
        leaf: &Leaf,
        query: &MaxSim,
        k: usize,
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
    ) -> Result<Vec<Found>, LaneError> {
        let mut scorer = self.scorer(query)?;
        let filter = leaf.filter.as_deref().filter(|filter| !filter.is_trivially_true());
        let mut explain = Explain { exact: true, ..Explain::default() };
        let mut best = Best::of(k);
        if k == 0 || query.tokens.is_empty() {
            scratch.explain = Some(explain);
            return Ok(Vec::new());
        }
        let few = match filter {
            Some(filter) => self.few_matches(filter, pace).await?,
            None => None,
        };
        if let Some(slots) = few {
            self.score_slots(&slots, &mut scorer, &mut best, pace).await?;
        } else if filter.is_none() && self.are_few(k) {
            self.score_all(&mut scorer, &mut best, pace).await?;
        } else {
            explain.exact = false;
            let mut hits = self.candidates(query, k, filter.is_some(), pace, scratch, &mut explain).await?;
            if let Some(filter) = filter {
                hits = self.matching(filter, hits, pace).await?;
            }
            if filter.is_some() && hits.len() < k {
                // Too few candidates match, so every document that matches is scored.
                explain.exact = true;
                self.score_matches(filter, &mut scorer, &mut best, pace).await?;
            } else {
                self.score_hits(hits, &mut scorer, &mut best, pace).await?;
            }
        }
        scratch.explain = Some(explain);
        Ok(best.into_hits())
    }

    /// Ranks the documents that other lanes have found by the tokens of a query.
    pub(super) async fn ranked_by_tokens(
        &self,
        query: &MaxSim,
        hits: Vec<Found>,
        pace: &mut impl Pace,
    ) -> Result<Vec<Found>, LaneError> {
        let (mut scorer, mut best) = (self.scorer(query)?, Best::of(hits.len()));
        self.score_hits(hits, &mut scorer, &mut best, pace).await?;
        Ok(best.into_hits())
    }

    /// Whether there are so few documents that all of them are scored: at most `k`, or at most [`ALL_SCORED_MAX`] in at most [`LOOKS_MAX`] slots.
    fn are_few(&self, k: usize) -> bool {
        let points = self.dense.points();
        let is_compact = points.slots() as usize <= LOOKS_MAX;
        points.live() <= k as u64 || points.live() <= ALL_SCORED_MAX as u64 && is_compact
    }

    /// Finds the slots of the documents that match; `None` if there are many, or if examining [`LOOKS_MAX`] slots does not find all of them.
    async fn few_matches(
        &self,
        filter: &Predicate,
        pace: &mut impl Pace,
    ) -> Result<Option<Vec<Slot>>, LaneError> {
        let (mut slots, mut cursor) = (Vec::new(), MatchCursor::default());
        for _ in 0..LOOKS_MAX / LOOKS_STEP {
            if cursor.is_done() || slots.len() > ALL_SCORED_MAX {
                break;
            }
            self.next_matches(filter, &mut cursor, &mut slots, pace).await?;
        }
        Ok((cursor.is_done() && slots.len() <= ALL_SCORED_MAX).then_some(slots))
    }

    /// Appends the slots of the documents that match among the next ones of the cursor.
    async fn next_matches(
        &self,
        filter: &Predicate,
        cursor: &mut MatchCursor,
        slots: &mut Vec<Slot>,
        pace: &mut impl Pace,
    ) -> Result<(), LaneError> {
        self.dense.match_slice(self.pin, filter, self.now_ms, cursor, LOOKS_STEP, |slot| slots.push(slot));
        if let Some(open) = cursor.take_open() {
            let row = self.dense.row(self.pin, open);
            let row = (!row.is_empty()).then(|| PayloadRow::trusted(row));
            let id = self.dense.points().id(open);
            if filter.ask_in_pieces(id, row, self.now_ms, pace).await? {
                slots.push(open);
            }
        }
        Ok(pace.step(LOOKS_STEP).await?)
    }

    /// Scores every document that matches.
    async fn score_matches(
        &self,
        filter: Option<&Predicate>,
        scorer: &mut Scorer,
        best: &mut Best,
        pace: &mut impl Pace,
    ) -> Result<(), LaneError> {
        let Some(filter) = filter else { return self.score_all(scorer, best, pace).await };
        let (mut slots, mut cursor) = (Vec::new(), MatchCursor::default());
        while !cursor.is_done() {
            slots.clear();
            self.next_matches(filter, &mut cursor, &mut slots, pace).await?;
            self.score_slots(&slots, scorer, best, pace).await?;
        }
        Ok(())
    }

    /// Scores every document.
    async fn score_all(
        &self,
        scorer: &mut Scorer,
        best: &mut Best,
        pace: &mut impl Pace,
    ) -> Result<(), LaneError> {
        let (points, mut slots, mut from) = (self.dense.points(), Vec::new(), 0);
        while from < points.slots() {
            let to = points.slots().min(from.saturating_add(LOOKS_STEP as u32));
            let view = points.view_at(self.pin, None, self.now_ms);
            slots.clear();
            slots.extend((from..to).filter(|slot| view.visible(*slot)));
            from = to;
            pace.step(LOOKS_STEP).await?;
            self.score_slots(&slots, scorer, best, pace).await?;
        }
        Ok(())
    }

    /// Finds the documents that own the tokens near those of the query, and does not score them. Unless a filter remains to be applied, the search
    /// is repeated with more tokens until there are `k` documents or no more tokens.
    async fn candidates(
        &self,
        query: &MaxSim,
        k: usize,
        is_filtered: bool,
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
        explain: &mut Explain,
    ) -> Result<Vec<Found>, LaneError> {
        let tokens = self.tokens.ok_or(LaneError::NoTokens)?.points().live() as usize;
        let mut per_token = match query.per_token {
            0 => k.saturating_mul(PER_HIT).max(PER_TOKEN_MIN),
            wanted => wanted,
        };
        if is_filtered {
            let least = k.saturating_mul(PER_HIT_FILTERED).max(PER_TOKEN_MIN_FILTERED);
            per_token = per_token.max(least).min(PER_TOKEN_MAX_FILTERED);
        }
        loop {
            per_token = per_token.min(tokens);
            let documents = self.near_tokens(query, per_token, pace, scratch, explain).await?;
            let hits = self.present(documents, pace).await?;
            if is_filtered || hits.len() >= k || per_token == tokens {
                return Ok(hits);
            }
            // There are fewer documents than tokens, because some of the tokens found share a document.
            per_token = per_token.saturating_mul(PER_HIT);
        }
    }

    /// Finds the documents of the tokens that are near those of the query.
    async fn near_tokens(
        &self,
        query: &MaxSim,
        per_token: usize,
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
        explain: &mut Explain,
    ) -> Result<HashSet<u64>, LaneError> {
        let tokens = self.tokens.ok_or(LaneError::NoTokens)?;
        let (mut documents, mut near) = (HashSet::new(), Vec::new());
        for token in &query.tokens {
            let query =
                Query { vector: token, k: per_token, ef: 0, filter: None, exact: false, now_ms: self.now_ms };
            let searched = tokens.search_paced(self.pin, &query, pace, &mut scratch.dense, &mut near).await?;
            explain.distances += searched.distances;
            for near in near.chunks(LOOKS_STEP) {
                documents.extend(near.iter().map(|hit| {
                    let (_, version) = tokens.points().row_and_version(self.pin, hit.slot);
                    document_of(hit.id, version)
                }));
                if documents.len() > CANDIDATES_MAX {
                    return Err(LaneError::TooManyCandidates);
                }
                pace.step(near.len()).await?;
            }
        }
        Ok(documents)
    }

    /// Returns those of these documents that exist, and does not score them.
    async fn present(&self, documents: HashSet<u64>, pace: &mut impl Pace) -> Result<Vec<Found>, LaneError> {
        let (points, mut hits) = (self.dense.points(), Vec::with_capacity(documents.len()));
        for (index, id) in documents.into_iter().enumerate() {
            if let Some(slot) = points.find(self.pin, id, self.now_ms) {
                hits.push(Found { id, distance: 0.0, score: 0.0, slot });
            }
            if index % LOOKS_STEP == LOOKS_STEP - 1 {
                pace.step(LOOKS_STEP).await?;
            }
        }
        Ok(hits)
    }

    /// Scores the documents in these slots.
    async fn score_slots(
        &self,
        slots: &[Slot],
        scorer: &mut Scorer,
        best: &mut Best,
        pace: &mut impl Pace,
    ) -> Result<(), LaneError> {
        let points = self.dense.points();
        let found = slots.iter().map(|&slot| Found { id: points.id(slot), distance: 0.0, score: 0.0, slot });
        self.score_hits(found, scorer, best, pace).await
    }

    /// Scores documents, and leaves out those without tokens.
    async fn score_hits(
        &self,
        hits: impl IntoIterator<Item = Found>,
        scorer: &mut Scorer,
        best: &mut Best,
        pace: &mut impl Pace,
    ) -> Result<(), LaneError> {
        for hit in hits {
            let tokens = PayloadRow::trusted(self.dense.row(self.pin, hit.slot)).tokens();
            if let Some(score) = scorer.score(tokens, pace).await? {
                best.push(Found { distance: 0.0, score, ..hit });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::{Whole, at_once};
    use crate::payload::RowBuilder;

    #[test]
    fn tokens_name_their_documents() {
        for document in [0, 1, 1 << 32, u64::MAX - 1, u64::MAX] {
            for number in [0, 7, u32::MAX] {
                let (id, version) = token_of(document, number);
                assert_eq!((document_of(id, version), id as u32, version > 0), (document, number, true));
            }
        }
    }

    fn score(scorer: &mut Scorer, tokens: RowTokens<'_>) -> Option<f32> {
        let mut pace = Whole::unbounded();
        at_once(scorer.score(tokens, &mut pace)).unwrap()
    }

    /// Compares scores with a naive sum, for dimensions that fill a padded row and dimensions that do not, and for documents of several blocks.
    #[test]
    fn scores_are_sums_of_greatest_products() {
        for (dim, tokens) in [(1, 7), (3, 7), (16, 7), (20, 7), (20, 5000)] {
            let vector = |seed: usize| -> Vec<f32> {
                (0..dim).map(|at| ((seed * 31 + at * 17) % 13) as f32 - 6.0).collect()
            };
            let query: Vec<Vec<f32>> = (0..3).map(vector).collect();
            let document: Vec<Vec<f32>> = (5..5 + tokens).map(vector).collect();
            let mut padded_query = vec![0.0; padded(dim) * query.len()];
            for (token, row) in query.iter().zip(padded_query.chunks_exact_mut(padded(dim))) {
                row[..dim].copy_from_slice(token);
            }
            let mut row = RowBuilder::new();
            row.set_tokens((0..document.len() as u32).collect(), document.concat());
            let row = row.finish();
            let tokens = PayloadRow::verify(&row).unwrap().tokens();
            let mut scorer = Scorer::new(padded_query.clone(), dim);
            let too_few = Whole::of(scorer.steps(tokens) - 1);
            assert_eq!(at_once(scorer.score(tokens, &mut too_few.clone())), Err(TooLong), "{dim}");
            let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            let greatest = |token: &Vec<f32>| {
                document.iter().map(|other| product(token, other)).fold(f32::NEG_INFINITY, f32::max)
            };
            let none = PayloadRow::trusted(&[]).tokens();
            assert_eq!(score(&mut scorer, tokens), Some(query.iter().map(greatest).sum()), "{dim}");
            assert_eq!(score(&mut scorer, none), None);
            assert_eq!(score(&mut Scorer::new(padded_query, dim + 1), tokens), None);
        }
    }

    /// The later of two entries of a document is kept, whatever its score is, and however often the list is cut.
    #[test]
    fn the_best_are_each_once() {
        let mut best = Best::of(3);
        let hit = |id: u64, score: f32| Found { id, distance: 0.0, score, slot: 0 };
        for id in 0..10_000 {
            best.push(hit(id, (id * 7 % 10_000) as f32));
        }
        best.push(hit(5_000, 20_000.0));
        best.push(hit(5_000, -1.0));
        let ids: Vec<u64> = best.into_hits().iter().map(|hit| hit.id).collect();
        // The product 7 * 7,143 is 1 more than a multiple of 10,000.
        assert_eq!(ids, [9_999 * 7_143 % 10_000, 9_998 * 7_143 % 10_000, 9_997 * 7_143 % 10_000]);
        let mut few = Best::of(2);
        [hit(2, 1.0), hit(1, 1.0), hit(3, 1.0)].into_iter().for_each(|hit| few.push(hit));
        assert_eq!(few.into_hits().iter().map(|hit| hit.id).collect::<Vec<_>>(), [1, 2]);
    }
}
