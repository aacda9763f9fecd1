//! Points as they travel between front ends and the cores that own them: what is asked for, and what is answered. All of it is `Send`.

use crate::found_vectors::FoundVectors;
use bytes::Bytes;
use nigh_engine::collection::{DenseConfig, WriteMode};
use nigh_engine::filter::Predicate;
use std::sync::Arc;

/// Bytes of points, payloads and vectors as stored, after which a page of them ends: one point may have 33 MiB.
pub const PAGE_BYTES: usize = 256 << 10;

/// Where the f32 rows of a batch lie.
#[derive(Clone, Debug)]
pub enum Vectors {
    /// `count * dim` native floats.
    Native(Vec<f32>),
    /// Rows of the binary body: each `8 + 4 * dim` bytes (big-endian id, then big-endian f32s), validated for length.
    BigEndianRows(Bytes),
    /// One vector per point, any length (JSON).
    PerPoint(Vec<Vec<f32>>),
    /// Those of each point of a collection of named spaces.
    Named(Vec<NamedVectors>),
}
/// The vectors of a point that are written, in spaces by their numbers. In the others the point keeps those that it has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedVectors {
    /// In dense spaces, each at most once.
    pub dense: Vec<(usize, Vec<f32>)>,
    /// In sparse spaces, each at most once, as (dimension, value) in ascending order; one without components takes the point out of the space.
    pub sparse: Vec<(usize, Vec<(u32, f32)>)>,
    /// The token vectors of a document; empty outside of multi-vector collections.
    pub tokens: Vec<Vec<f32>>,
}
impl NamedVectors {
    /// Floats and dimensions in it.
    pub fn numbers(&self) -> usize {
        let dense: usize = self.dense.iter().map(|(_, vector)| vector.len()).sum();
        let sparse: usize = self.sparse.iter().map(|(_, vector)| 2 * vector.len()).sum();
        dense + sparse + self.tokens.iter().map(Vec::len).sum::<usize>()
    }
}
/// A change of the vectors of one point, in spaces by their numbers. In the others the point keeps those that it has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VectorsChange {
    /// The vectors to set, without tokens. A sparse vector without components removes the one that the point has in that space.
    pub set: NamedVectors,
    /// Dense spaces from which the vector of the point is removed, if it has one there. None of them is in `set`.
    pub removed: Vec<usize>,
}
/// A change of the vector spaces of a collection.
#[derive(Clone, Debug, PartialEq)]
pub enum SpaceChange {
    /// One more dense space, in which no point has a vector yet.
    Add {
        /// Its name.
        name: String,
        /// What it is made with.
        config: Box<DenseConfig>,
    },
    /// One more sparse space, in which no point has a vector yet.
    AddSparse {
        /// Its name.
        name: String,
    },
    /// A dense or sparse space goes, with the vectors that points have in it.
    Drop {
        /// Its name.
        name: String,
    },
}
/// Points to write, in order.
#[derive(Clone, Debug)]
pub struct WriteBatch {
    /// Insert or upsert.
    pub mode: WriteMode,
    /// Vector length of `Native`/`BigEndianRows`.
    pub dim: usize,
    /// Vectors.
    pub vectors: Vectors,
    /// Everything else, one per point.
    pub points: Vec<PointFields>,
}
/// A point without its vector.
#[derive(Clone, Debug, Default)]
pub struct PointFields {
    /// Id.
    pub id: u64,
    /// Encoded payload row (`payload::RowBuilder`), empty = none.
    pub row: Vec<u8>,
    /// Relative, <= 0 = none; becomes absolute at the owner.
    pub ttl_ms: i64,
    /// Condition.
    pub expected_version: Option<u64>,
}
/// Per point outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Stored under this version.
    Ok {
        /// New version.
        version: u64,
    },
    /// `expected_version` differed; nothing changed.
    Conflict,
}
/// What a call of `operate` on a record in a payload has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PointOperated {
    /// There is no such point.
    NoPoint,
    /// The point has no record under the key, and the call makes none.
    NoRecord,
    /// All operations are through, or a CHECK has failed.
    Done {
        /// What the caller is told.
        result: Vec<u8>,
        /// Version of the point afterwards; as before when a CHECK has failed.
        version: u64,
    },
}

/// A search.
#[derive(Clone, Debug)]
pub struct SearchRequest {
    /// Query vector.
    pub vector: Vec<f32>,
    /// Results.
    pub k: usize,
    /// Filter.
    pub filter: Option<Arc<Predicate>>,
    /// Also return payload rows (docs).
    pub with_rows: bool,
}
/// A hit that may cross cores.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundPoint {
    /// Id.
    pub id: u64,
    /// Distance; 0 in lanes that rank by score.
    pub distance: f32,
    /// Score of a query of lanes; 0 where only distances rank.
    pub score: f32,
    /// Encoded row when asked for and present, else empty. Those of one answer share their memory.
    pub row: Bytes,
    /// The vectors when they are asked for. The sparse ones are in the row.
    pub vectors: FoundVectors,
}
/// A point read by id.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredPoint {
    /// Id.
    pub id: u64,
    /// Vector when asked for; none in a collection of named spaces.
    pub vector: Option<Vec<f32>>,
    /// The vectors, when they are asked for: in a collection of named spaces those in dense spaces, each with the number of its space; in a
    /// multi-vector collection the token vectors, each with its position. A dense collection has none here.
    pub vectors: Vec<(usize, Vec<f32>)>,
    /// Row when asked for and present; with a vector but no payload asked for, a row with the sparse vector alone.
    pub row: Vec<u8>,
    /// Remaining ms, 0 = none.
    pub ttl_ms: u64,
    /// Version.
    pub version: u64,
}
/// One page of a scroll.
#[derive(Clone, Debug, Default)]
pub struct ScrollPage {
    /// Points in id order, without vectors.
    pub points: Vec<StoredPoint>,
    /// Id to continue after, when more exist.
    pub next_after: Option<u64>,
    /// Bytes of the points.
    bytes: usize,
}

impl StoredPoint {
    /// Bytes of row and vector.
    pub(crate) fn bytes(&self) -> usize {
        let vectors = self.vector.iter().chain(self.vectors.iter().map(|(_, vector)| vector));
        self.row.len() + vectors.map(|vector| size_of_val(&vector[..])).sum::<usize>()
    }
}

impl ScrollPage {
    pub(crate) fn push(&mut self, point: StoredPoint) {
        self.bytes += point.bytes();
        self.points.push(point);
    }

    /// Asked when one more match has been found: whether the page has its `limit` (0 = none) or all the bytes it may, and so a successor.
    pub(crate) fn is_full(&mut self, limit: usize) -> bool {
        let full = (limit > 0 && self.points.len() == limit) || self.bytes >= PAGE_BYTES;
        if full {
            self.next_after = self.points.last().map(|point| point.id);
        }
        full
    }
}
