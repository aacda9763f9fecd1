//! The index that finds the documents of a multi-vector collection. It holds either their token vectors or their encodings.
//!
//! In both cases each vector is a point of a dense collection, whose id and version encode the document ([`token_of`](super::token_of)), and the
//! documents that own the points found are the candidates.

use super::encoder::{Encoder, Encoding, Side};
use super::lane_query::{CANDIDATES_MAX, MaxSim};
use crate::collection::{Dense, MultiVectorConfig, Points, SearchError};
use crate::distance::padded;
use crate::pace::{Pace, TooLong};
use crate::payload::RowTokens;
use std::borrow::Cow;

/// The number of tokens to find for each token of the query: this many times the hits wanted, with a minimum.
pub(super) const PER_HIT: usize = 4;
const PER_TOKEN_MIN: usize = 50;
/// A search with encodings looks for this many times the hits wanted, and at least [`ENCODINGS_MIN`]: an encoding is less precise than a token.
const ENCODINGS_PER_HIT: usize = 30;
const ENCODINGS_MIN: usize = 300;
/// Multiplications and additions that take as long as one step of a pace.
const WORK_PER_STEP: usize = 512;

/// What an index holds for each document.
#[derive(Debug, Default)]
pub enum Indexing {
    /// Its token vectors; the index is searched once for each token of a query.
    #[default]
    Tokens,
    /// One encoding; the index is searched once for each query.
    Encodings(Encoder),
}

impl Indexing {
    /// The indexing of a collection with this configuration.
    pub fn of(config: &MultiVectorConfig) -> Indexing {
        Encoder::of(config).map_or(Indexing::Tokens, Indexing::Encodings)
    }

    /// Components of a token of a collection whose index has vectors of `indexed_dim` components.
    pub fn token_dim(&self, indexed_dim: usize) -> usize {
        match self {
            Indexing::Tokens => indexed_dim,
            Indexing::Encodings(encoder) => encoder.token_dim(),
        }
    }

    /// How many points of the index a document with so many tokens has.
    pub fn points(&self, tokens: usize) -> usize {
        match self {
            Indexing::Tokens => tokens,
            Indexing::Encodings(_) => tokens.min(1),
        }
    }

    /// The number of the point of each of `tokens` tokens, for the row of their document; `numbers` are those of its [points](Self::points).
    pub fn numbers_in_row(&self, numbers: &[u32], tokens: usize) -> Vec<u32> {
        match self {
            Indexing::Tokens => numbers.to_vec(),
            Indexing::Encodings(_) => numbers.iter().copied().cycle().take(tokens).collect(),
        }
    }

    /// The numbers of the points of a document, as they stand in its row.
    pub fn numbers_of<'r>(&self, row: RowTokens<'r>) -> impl ExactSizeIterator<Item = u32> + use<'r> {
        row.numbers().take(self.points(row.len()))
    }

    /// Begins the encoding of the tokens of a document; `None` if its points have the vectors of the tokens themselves.
    pub fn begin<'e>(&'e self, tokens: &'e [f32]) -> Option<Encoding<'e>> {
        match self {
            Indexing::Tokens => None,
            Indexing::Encodings(encoder) => Some(encoder.begin(Side::Document, tokens)),
        }
    }
}

/// The index of a multi-vector collection, to be searched.
#[derive(Clone, Copy)]
pub struct DocumentIndex<'a> {
    /// The dense collection that is searched.
    pub dense: &'a Dense,
    /// Whether its points are tokens or encodings.
    pub indexing: &'a Indexing,
}

/// The searches of the index for one query.
pub(super) struct Probes<'q> {
    /// The vectors, each for a search of its own.
    pub vectors: Cow<'q, [Vec<f32>]>,
    /// How many points each search looks for, unless a filter makes it more.
    pub wanted: usize,
    /// Whether `wanted` was given by the query.
    pub is_given: bool,
}

impl<'a> DocumentIndex<'a> {
    /// Components of a token.
    pub(super) fn token_dim(&self) -> usize {
        self.indexing.token_dim(self.dense.config().dim)
    }

    /// Refuses a token of a query that does not fit.
    pub(super) fn check_token(&self, token: &[f32]) -> Result<(), SearchError> {
        let expected = self.token_dim();
        if token.len() != expected {
            return Err(SearchError::DimensionMismatch { expected, found: token.len() });
        }
        match token.iter().position(|component| !component.is_finite()) {
            Some(index) => Err(SearchError::NotFinite(index)),
            None => Ok(()),
        }
    }

    /// An estimate of the average number of components of all tokens of one of these documents.
    pub(super) fn components_per_document(&self, documents: &Points) -> f64 {
        let live = documents.live().max(1) as f64;
        match self.indexing {
            Indexing::Tokens => self.dense.points().live() as f64 / live * self.token_dim() as f64,
            // A row consists mostly of token vectors, so its size is a good estimate.
            Indexing::Encodings(encoder) => {
                let bytes_of_token = size_of::<u32>() + encoder.token_code().bytes(encoder.token_dim());
                documents.rows_bytes() as f64 / live / bytes_of_token as f64 * encoder.token_dim() as f64
            }
        }
    }

    /// An estimate of the number of documents that a point that is found adds to the candidates.
    pub(super) fn documents_per_point(&self) -> f64 {
        match self.indexing {
            // Several of the tokens found belong to the same document.
            Indexing::Tokens => 0.5,
            Indexing::Encodings(_) => 1.0,
        }
    }

    /// Makes the searches that find `k` documents. The tokens of the query have been checked; `prepared` holds them normalized and padded.
    pub(super) async fn probes<'q>(
        &self,
        (query, prepared): (&'q MaxSim, &[f32]),
        k: usize,
        pace: &mut impl Pace,
    ) -> Result<Probes<'q>, TooLong> {
        let (vectors, per_hit, least) = match self.indexing {
            Indexing::Tokens => (Cow::Borrowed(&query.tokens[..]), PER_HIT, PER_TOKEN_MIN),
            Indexing::Encodings(encoder) => {
                let dim = self.token_dim();
                let tokens: Vec<f32> =
                    prepared.chunks_exact(padded(dim)).flat_map(|token| &token[..dim]).copied().collect();
                let mut encoding = encoder.begin(Side::Query, &tokens);
                loop {
                    match encoding.advance() {
                        0 => break,
                        work => pace.step(work.div_ceil(WORK_PER_STEP)).await?,
                    }
                }
                (Cow::Owned(vec![encoding.finish()]), ENCODINGS_PER_HIT, ENCODINGS_MIN)
            }
        };
        let by_default = k.saturating_mul(per_hit).max(least);
        let (wanted, is_given) = match (query.per_token, self.indexing) {
            (0, Indexing::Tokens) => (by_default, false),
            (0, Indexing::Encodings(_)) => {
                // A search for more would compare all points. If it has to, a few more than the hits wanted make up for documents that are found
                // twice.
                let most = self.dense.space().most_walked_for().unwrap_or(CANDIDATES_MAX);
                let most = if most >= k { most } else { k + k / 8 };
                (by_default.min(most).min(CANDIDATES_MAX), false)
            }
            (given, _) => (given, true),
        };
        Ok(Probes { vectors, wanted, is_given })
    }
}
