//! Late interaction: the score of a document is the sum, over the tokens of the query, of the greatest cosine with a token of the document
//! (MaxSim, as in ColBERT, arXiv:2004.12832).
//!
//! A search has two stages. First it searches an index (`document_index`): either for the nearest tokens of each token of the query, or for the
//! encodings nearest to the encoding of the query. The documents that own the points found are the candidates. Their scores are computed from all of
//! their tokens, which lie in their payload rows. So the scores in a result are exact if rows hold the tokens themselves, and approximations if they
//! hold codes of tokens. A document can be missed only if none of its tokens, or not its encoding, is found. If there are few documents, all of them
//! are candidates and none is missed. How a filter is answered is described in `filtered_documents`.
//!
//! The index is only a hint: a point in it names a document that may have been deleted or may have other tokens by now. The tokens of a document
//! are those in its row.

use super::document_index::{PER_HIT, Probes};
use super::lane_query::{CANDIDATES_MAX, Found, LaneError, Leaf, MaxSim, by_score};
use super::lanes::QueryScratch;
use super::run::Run;
use crate::collection::{Explain, Query};
use crate::distance::{GreatestProducts, Metric, PRODUCT_GROUP, padded, prefetch_row, prepare};
use crate::pace::{Pace, TooLong};
use crate::payload::{PayloadRow, Rotation, RowTokens, TokenCode};
use crate::slot::Slot;
use ahash::{HashSet, HashSetExt};
use std::collections::VecDeque;

/// At most this many documents are scored without a search of the index.
const ALL_SCORED_MAX: usize = 512;
/// A collection with more slots than this is not scanned, even if it has few documents.
const LOOKS_MAX: usize = 16_384;
/// The number of slots or documents that are examined between two calls of the pace.
pub(super) const LOOKS_STEP: usize = 2_048;
/// Dot products over this many components take as long as one step of a pace.
const COMPONENTS_PER_STEP: usize = 2_048;
/// Decoding this many components of codes takes as long as one step of a pace.
const DECODED_PER_STEP: usize = 512;
/// The number of components of codes that are decoded before they are compared.
const DECODED_AT_ONCE: usize = 1 << 13;
/// The number of documents whose rows are fetched from memory while others are scored, and the number of bytes of each.
const ROWS_AHEAD: usize = 3;
const ROW_AHEAD_MAX: usize = 1 << 14;
/// The number of multiplications between two calls of the pace, which take less than a time slice.
const BLOCK_PRODUCTS: usize = 1 << 18;

/// The id and the version of a point of the index, a token or an encoding, made from its document and its number. Together they encode the document:
/// the version, which is never 0, holds all bits of the document's id but the lowest, and the id holds that bit and the number.
pub fn token_of(document: u64, number: u32) -> (u64, u64) {
    (u64::from(number) | (document & 1) << u32::BITS, (document >> 1) + 1)
}

/// The document that a point with this id and version in the index belongs to.
pub fn document_of(id: u64, version: u64) -> u64 {
    (version.wrapping_sub(1) << 1) | (id >> u32::BITS & 1)
}

/// Scores documents for one query.
pub(super) struct Scorer {
    query: GreatestProducts,
    /// The rotated query, which is compared with documents whose tokens are stored as codes; `None` until there is such a document.
    rotated: Option<GreatestProducts>,
    /// Decoded tokens of a document.
    decoded: Vec<[u8; 4]>,
    /// The greatest product so far of each token of the query.
    greatest: Vec<[f32; PRODUCT_GROUP]>,
}

impl Scorer {
    /// Takes the tokens of a query, prepared, each padded.
    fn new(query: &[f32], dim: usize) -> Scorer {
        let tokens = query.chunks_exact(padded(dim)).map(|token| &token[..dim]);
        let query = GreatestProducts::of(tokens, dim);
        Scorer { greatest: query.lowest(), query, rotated: None, decoded: Vec::new() }
    }

    /// Rotates the tokens of the query, in the same way as tokens of documents are rotated before they are stored as codes.
    async fn rotate(&mut self, pace: &mut impl Pace) -> Result<(), TooLong> {
        let dim = self.query.dim();
        let rotation = Rotation::of(dim);
        let mut tokens: Vec<f32> = (0..self.query.len()).flat_map(|at| self.query.vector(at)).collect();
        for token in tokens.chunks_exact_mut(dim) {
            rotation.apply(token);
            pace.step(Rotation::work(dim).div_ceil(COMPONENTS_PER_STEP)).await?;
        }
        self.rotated = Some(GreatestProducts::of(tokens.chunks_exact(dim), dim));
        Ok(())
    }

    /// Computes the score of a document; it is `None` if the document has no tokens of this dimension.
    async fn score(&mut self, tokens: RowTokens<'_>, pace: &mut impl Pace) -> Result<Option<f32>, TooLong> {
        if tokens.is_empty() || tokens.dim() != self.query.dim() {
            return Ok(None);
        }
        pace.foresee(self.steps(tokens, tokens.len()))?;
        if tokens.code() != TokenCode::Float && self.rotated.is_none() {
            self.rotate(pace).await?;
        }
        let mut block = (BLOCK_PRODUCTS / self.components().max(1)).max(1);
        if tokens.code() != TokenCode::Float {
            // What is decoded stays in the nearest cache.
            block = block.min((DECODED_AT_ONCE / tokens.dim()).max(1));
        }
        self.greatest.as_flattened_mut().fill(f32::NEG_INFINITY);
        for from in (0..tokens.len()).step_by(block) {
            let to = (from + block).min(tokens.len());
            let rows = tokens.compared(from, to, &mut self.decoded);
            let query = match tokens.code() {
                TokenCode::Float => &self.query,
                _ => self.rotated.as_ref().unwrap_or(&self.query),
            };
            query.raise(rows, &mut self.greatest);
            pace.step(self.steps(tokens, to - from)).await?;
        }
        Ok(Some(self.query.sum(&self.greatest)))
    }

    /// The number of components of all tokens of the query.
    fn components(&self) -> usize {
        self.query.len() * self.query.dim()
    }

    /// The number of steps that scoring this many of the tokens of a document takes.
    fn steps(&self, tokens: RowTokens<'_>, count: usize) -> usize {
        let decoded = if tokens.code() == TokenCode::Float { 0 } else { count * tokens.dim() };
        (self.components() * count).div_ceil(COMPONENTS_PER_STEP) + decoded.div_ceil(DECODED_PER_STEP)
    }
}

/// The best of the documents that have been scored.
pub(super) struct Best {
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
    /// The tokens of a query as they are multiplied: each of length 1, unless it is zero, and padded.
    fn prepared_tokens(&self, query: &MaxSim) -> Result<Vec<f32>, LaneError> {
        let index = self.document_index()?;
        let width = padded(index.token_dim());
        let mut prepared = vec![0.0; width * query.tokens.len()];
        for (token, row) in query.tokens.iter().zip(prepared.chunks_exact_mut(width)) {
            index.check_token(token)?;
            prepare(Metric::Cosine, token, row);
        }
        Ok(prepared)
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
        let (index, prepared) = (self.document_index()?, self.prepared_tokens(query)?);
        let mut scorer = Scorer::new(&prepared, index.token_dim());
        let filter = leaf.filter.as_deref().filter(|filter| !filter.is_trivially_true());
        let mut explain = Explain { exact: true, ..Explain::default() };
        let mut best = Best::of(k);
        if k == 0 || query.tokens.is_empty() {
            scratch.explain = Some(explain);
            return Ok(Vec::new());
        }
        if filter.is_none() && (self.is_exact() || self.are_few(k)) {
            self.score_all(&mut scorer, &mut best, pace).await?;
            scratch.explain = Some(explain);
            return Ok(best.into_hits());
        }
        let probes = index.probes((query, &prepared), k, pace).await?;
        if let Some(filter) = filter {
            let sought = (filter, &probes, query.tokens.len(), k);
            self.filtered_documents(sought, &mut scorer, &mut best, pace, scratch, &mut explain).await?;
        } else {
            explain.exact = false;
            let hits = self.candidates(&probes, k, pace, scratch, &mut explain).await?;
            self.score_hits(hits, &mut scorer, &mut best, pace).await?;
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
        let prepared = self.prepared_tokens(query)?;
        let mut scorer = Scorer::new(&prepared, self.document_index()?.token_dim());
        let mut best = Best::of(hits.len());
        self.score_hits(hits, &mut scorer, &mut best, pace).await?;
        Ok(best.into_hits())
    }

    /// Whether there are so few documents that all of them are scored: at most `k`, or at most [`ALL_SCORED_MAX`] in at most [`LOOKS_MAX`] slots.
    fn are_few(&self, k: usize) -> bool {
        let points = self.dense.points();
        let is_compact = points.slots() as usize <= LOOKS_MAX;
        points.live() <= k as u64 || points.live() <= ALL_SCORED_MAX as u64 && is_compact
    }

    /// Scores every document.
    async fn score_all(
        &self,
        scorer: &mut Scorer,
        best: &mut Best,
        pace: &mut impl Pace,
    ) -> Result<(), LaneError> {
        let points = self.dense.points();
        // All slices share one view. With a view for each slice, a document that is replaced meanwhile could move to a slot already passed and be
        // missed. All slots that the view shows lie below the end.
        let view = points.view_at(self.pin, None, self.now_ms);
        let (end, mut slots) = (points.slots(), Vec::new());
        for from in (0..end).step_by(LOOKS_STEP) {
            let to = end.min(from.saturating_add(LOOKS_STEP as u32));
            slots.clear();
            slots.extend((from..to).filter(|slot| view.visible(*slot)));
            pace.step(LOOKS_STEP).await?;
            self.score_slots(&slots, scorer, best, pace).await?;
        }
        Ok(())
    }

    /// Finds the documents that own the points near the probes, and does not score them. The search is repeated for more points until there are `k`
    /// documents or no more points.
    async fn candidates(
        &self,
        probes: &Probes<'_>,
        k: usize,
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
        explain: &mut Explain,
    ) -> Result<Vec<Found>, LaneError> {
        let points = self.document_index()?.dense.points().live() as usize;
        let mut per_probe = probes.wanted;
        loop {
            per_probe = per_probe.min(points);
            let documents = self.near(probes, per_probe, pace, scratch, explain).await?;
            let hits = self.present(documents, pace).await?;
            if hits.len() >= k || per_probe == points {
                return Ok(hits);
            }
            // There are fewer documents than tokens, because some of the tokens found share a document.
            per_probe = per_probe.saturating_mul(PER_HIT);
        }
    }

    /// Finds the documents of the points that are near the probes.
    pub(super) async fn near(
        &self,
        probes: &Probes<'_>,
        per_probe: usize,
        pace: &mut impl Pace,
        scratch: &mut QueryScratch,
        explain: &mut Explain,
    ) -> Result<HashSet<u64>, LaneError> {
        let index = self.document_index()?.dense;
        let (mut documents, mut near) = (HashSet::new(), Vec::new());
        let ef = self.probe_beam(probes, per_probe);
        for vector in &*probes.vectors {
            let query = Query { vector, k: per_probe, ef, filter: None, exact: false, now_ms: self.now_ms };
            let searched =
                index.space().candidates_paced(self.pin, &query, pace, &mut scratch.dense, &mut near).await?;
            explain.distances += searched.distances;
            for near in near.chunks(LOOKS_STEP) {
                documents.extend(near.iter().map(|hit| {
                    let (_, version) = index.points().row_and_version(self.pin, hit.slot);
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
    pub(super) async fn present(
        &self,
        documents: HashSet<u64>,
        pace: &mut impl Pace,
    ) -> Result<Vec<Found>, LaneError> {
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
    pub(super) async fn score_slots(
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

    /// Scores documents, and leaves out those without tokens. The rows of the next documents are fetched from memory meanwhile, as fetching a row
    /// takes longer than computing with it.
    pub(super) async fn score_hits(
        &self,
        hits: impl IntoIterator<Item = Found>,
        scorer: &mut Scorer,
        best: &mut Best,
        pace: &mut impl Pace,
    ) -> Result<(), LaneError> {
        let mut hits = hits.into_iter();
        let mut ahead = VecDeque::with_capacity(ROWS_AHEAD + 1);
        loop {
            if let Some(hit) = hits.next() {
                let row = self.dense.row(self.pin, hit.slot);
                prefetch_row(row.as_ptr(), row.len().min(ROW_AHEAD_MAX));
                ahead.push_back((hit, row));
                if ahead.len() <= ROWS_AHEAD {
                    continue;
                }
            }
            let Some((hit, row)) = ahead.pop_front() else { return Ok(()) };
            if let Some(score) = scorer.score(PayloadRow::trusted(row).tokens(), pace).await? {
                best.push(Found { distance: 0.0, score, ..hit });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::{Whole, at_once};
    use crate::payload::{RowBuilder, TokenCodes};

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
            let mut scorer = Scorer::new(&padded_query, dim);
            let too_few = Whole::of(scorer.steps(tokens, tokens.len()) - 1);
            assert_eq!(at_once(scorer.score(tokens, &mut too_few.clone())), Err(TooLong), "{dim}");
            let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            let greatest = |token: &Vec<f32>| {
                document.iter().map(|other| product(token, other)).fold(f32::NEG_INFINITY, f32::max)
            };
            let none = PayloadRow::trusted(&[]).tokens();
            assert_eq!(score(&mut scorer, tokens), Some(query.iter().map(greatest).sum()), "{dim}");
            assert_eq!(score(&mut scorer, none), None);
            assert_eq!(score(&mut Scorer::new(&[], dim + 1), tokens), None);
            for code in [TokenCode::Bits8, TokenCode::Bits4, TokenCode::Bits2] {
                let (rotation, mut codes) = (Rotation::of(dim), TokenCodes::new(code, dim));
                document.iter().for_each(|token| codes.push(token, &rotation));
                let read: Vec<Vec<f32>> = (0..codes.len()).map(|at| codes.decoded(at, &rotation)).collect();
                let mut row = RowBuilder::new();
                row.set_token_codes((0..document.len() as u32).collect(), codes);
                let row = row.finish();
                let found = score(&mut scorer, PayloadRow::verify(&row).unwrap().tokens()).unwrap();
                let greatest = |token: &Vec<f32>| {
                    read.iter().map(|other| product(token, other)).fold(f32::NEG_INFINITY, f32::max)
                };
                let expected: f32 = query.iter().map(greatest).sum();
                assert!(
                    (found - expected).abs() <= 1e-4 * expected.abs().max(1.0),
                    "{code:?} {dim}: {found} {expected}"
                );
            }
            // Floats again, after codes.
            let mut row = RowBuilder::new();
            row.set_tokens(vec![1], document[0].clone());
            let row = row.finish();
            let expected: f32 = query.iter().map(|token| product(token, &document[0])).sum();
            assert_eq!(score(&mut scorer, PayloadRow::trusted(&row).tokens()), Some(expected), "{dim}");
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
