//! Quantizers: vectors in fewer bytes, and distances from these.
//!
//! [`Quantization`] says what is wanted, [`Codec`] is what comes out of training on a sample: it writes codes, and gives distances
//! between a query and codes in an arena. Four families: steps between two ends per component (`scalar`), signs around the mean
//! (`sign`), numbers of centroids of parts (`product`), in one layer or several. [`CellCodec`] is the last of these for vectors in
//! the cells of a clustering.
//!
//! A codec is a function of what was asked for, the sample, its order and the seed. It knows nothing of graphs or collections.
mod cell;
mod planar;
mod product;
mod rotation;
mod saved;
mod scalar;
mod sign;
#[cfg(test)]
mod tests;
mod watch;

use crate::distance::{Metric, Width};
use crate::memory::Arena;
use crate::slot::Slot;
use planar::PlaneQuery;
use product::{Product, Shape, TableQuery};
use saved::Saved;
use scalar::Scalar;
use sign::Sign;

pub use cell::{BLOCK_CODES, CellCodec, CellProduct, CellQuery, RESIDUALS_MAX};
pub use watch::{Level, Watch};
pub(crate) use watch::{is_better, mean};

/// Vectors worth training on; more make codes hardly better.
pub const SAMPLE_MAX: usize = 16_384;

/// One in so many vectors of a sample is not learned from, but tells what codes lose of vectors that were not, which of few vectors is
/// far more than of those that were.
const HELD_OUT: usize = 8;
/// Vectors of which all are learned from.
const SMALL_SAMPLE: usize = 64;

/// `rows`, vectors of `dim` components, in those to learn from and those to measure by: all of them both where they are few.
pub(crate) fn split_sample<T: Copy>(dim: usize, rows: Vec<T>) -> (Vec<T>, Vec<T>) {
    if rows.len() / dim < SMALL_SAMPLE {
        return (rows.clone(), rows);
    }
    let (mut learned, mut held_out) = (Vec::with_capacity(rows.len()), Vec::new());
    for (at, row) in rows.chunks_exact(dim).enumerate() {
        if at % HELD_OUT == HELD_OUT / 2 { &mut held_out } else { &mut learned }.extend_from_slice(row);
    }
    (learned, held_out)
}

/// Squared distance of two vectors of one length.
pub(crate) fn squared_error(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum()
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantization {
    /// Equal steps between two ends, for each component its own: `dim * bits / 8` bytes, in blocks of 64 components, and 4 more
    /// under L2.
    Scalar {
        /// 4, 6 or 8.
        width: Width,
    },
    /// The sign of each component of the rotated vector around the mean (RaBitQ): `dim / 8` bytes, in blocks of 64 components,
    /// and 4 more, or 8 under L2.
    Sign,
    /// Numbers of centroids of parts: `parts * bits / 8` bytes.
    Product {
        /// Parts of a vector; they divide the dimension.
        parts: usize,
        /// 4 or 8 a part: 16 or 256 centroids.
        bits: usize,
        /// Before that a rotation: 0 = none, 1 = a random one, `n` = after `n - 1` rounds of finding a better one (OPQ: Ge, He,
        /// Ke, Sun, TPAMI 2014).
        rotations: usize,
        /// How much more an error along the vector weighs than one across; up to 1 = as much.
        eta: f32,
    },
    /// As a product with 8 bits, in layers that code what those before left over: `layers * parts` bytes, and 4 more under L2
    /// with more than one layer.
    Residual {
        /// Parts of a vector; they divide the dimension.
        parts: usize,
        /// At least 1.
        layers: usize,
        /// As of a product.
        rotations: usize,
    },
}

impl Quantization {
    /// Of a product.
    fn shape(&self, metric: Metric, dim: usize) -> Option<Shape> {
        match *self {
            Quantization::Product { parts, bits, rotations, eta } => {
                Some(Shape { metric, dim, parts, bits, layers: 1, rotations, eta })
            }
            Quantization::Residual { parts, layers, rotations } => {
                Some(Shape { metric, dim, parts, bits: 8, layers: layers.max(1), rotations, eta: 0.0 })
            }
            Quantization::Scalar { .. } | Quantization::Sign => None,
        }
    }

    /// Bytes of a code.
    pub fn code_len(&self, metric: Metric, dim: usize) -> usize {
        let l2 = metric == Metric::L2;
        match *self {
            Quantization::Scalar { width } => width.bytes(dim) + if l2 { 4 } else { 0 },
            Quantization::Sign => Width::One.bytes(dim) + if l2 { 8 } else { 4 },
            Quantization::Product { parts, bits, .. } => (parts * bits).div_ceil(8),
            Quantization::Residual { parts, layers, .. } => {
                parts * layers + if l2 && layers > 1 { 4 } else { 0 }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Kind {
    Scalar(Scalar),
    Sign(Sign),
    Product(Product),
}

/// A trained quantizer.
#[derive(Clone, Debug)]
pub struct Codec {
    dim: usize,
    kind: Kind,
}

/// A query, prepared for one codec. Reusable: setting it keeps allocations.
#[derive(Clone, Debug, Default)]
pub struct CodecQuery {
    planes: PlaneQuery,
    tables: TableQuery,
    /// What a code stands for.
    decoded: Vec<f32>,
}

impl Codec {
    /// Trains on `rows`, vectors of `dim` components back to back, normalised under cosine. Some seconds of a core for products
    /// over tens of thousands of rows; far less for the others.
    ///
    /// # Panics
    /// Without rows, or when they are no whole number of vectors, or parts do not divide `dim`.
    pub fn train(quantization: Quantization, metric: Metric, dim: usize, rows: &[f32], seed: u64) -> Codec {
        assert!(
            dim > 0 && !rows.is_empty() && rows.len().is_multiple_of(dim),
            "{} floats in rows of {dim}",
            rows.len()
        );
        let kind = match quantization {
            Quantization::Scalar { width } => Kind::Scalar(Scalar::train(metric, width, dim, rows)),
            Quantization::Sign => Kind::Sign(Sign::train(metric, dim, rows, seed)),
            Quantization::Product { .. } | Quantization::Residual { .. } => {
                let shape = quantization.shape(metric, dim).expect("a product");
                let parts = shape.parts;
                assert!(parts > 0 && dim.is_multiple_of(parts), "{parts} parts of {dim} components");
                Kind::Product(Product::train(shape, rows, seed))
            }
        };
        let codec = Codec { dim, kind };
        debug_assert!(codec.code_len() >= quantization.code_len(metric, dim));
        codec
    }

    /// What was learned, as bytes for [`Self::load`].
    pub fn save(&self) -> Vec<u8> {
        let mut saved = Vec::new();
        match &self.kind {
            Kind::Scalar(scalar) => scalar.save(&mut saved),
            Kind::Sign(sign) => sign.save(&mut saved),
            Kind::Product(product) => product.save(&mut saved),
        }
        saved
    }

    /// From what [`Self::save`] gave; `None` when the bytes are of another shape or damaged.
    pub fn load(quantization: Quantization, metric: Metric, dim: usize, saved: &[u8]) -> Option<Codec> {
        let saved = &mut Saved(saved);
        let kind = match quantization {
            Quantization::Scalar { width } => Kind::Scalar(Scalar::load(metric, width, dim, saved)?),
            Quantization::Sign => Kind::Sign(Sign::load(metric, dim, saved)?),
            Quantization::Product { .. } | Quantization::Residual { .. } => {
                Kind::Product(Product::load(quantization.shape(metric, dim)?, saved)?)
            }
        };
        saved.0.is_empty().then_some(Codec { dim, kind })
    }

    /// Bytes of a row: those of a code, in whole words.
    pub fn code_len(&self) -> usize {
        match &self.kind {
            Kind::Scalar(scalar) => scalar.planar.row_len,
            Kind::Sign(sign) => sign.planar.row_len,
            Kind::Product(product) => product.code_len(),
        }
    }

    /// Whether errors of distances are alike, so that some of them tell of the others: of steps per component they are, but not of
    /// signs and of numbers of centroids.
    pub fn is_fine(&self) -> bool {
        matches!(self.kind, Kind::Scalar(_))
    }

    /// Bytes of what was learned.
    pub fn bytes(&self) -> usize {
        match &self.kind {
            Kind::Scalar(scalar) => scalar.bytes(),
            Kind::Sign(sign) => sign.bytes(),
            Kind::Product(product) => product.bytes(),
        }
    }

    /// Writes the codes of `vectors`, `dim` components each and back to back, over `rows`, likewise. Cost: `dim` operations each,
    /// for products `dim` times the number of centroids, in one go for many.
    ///
    /// # Panics
    /// When there is not a row of [`Self::code_len`] for each vector.
    pub fn encode(&self, vectors: &[f32], rows: &mut [u8]) {
        let len = self.code_len();
        assert!(vectors.len().is_multiple_of(self.dim), "{} floats in rows of {}", vectors.len(), self.dim);
        assert_eq!(rows.len(), vectors.len() / self.dim * len, "a row for each vector");
        let each = vectors.chunks_exact(self.dim).zip(rows.chunks_exact_mut(len));
        let mut codes = Vec::new();
        match &self.kind {
            Kind::Scalar(scalar) => each.for_each(|(vector, row)| scalar.encode(vector, row, &mut codes)),
            Kind::Sign(sign) => each.for_each(|(vector, row)| sign.encode(vector, row, &mut codes)),
            Kind::Product(product) => product.encode(vectors, rows),
        }
    }

    /// Whether a row of [`Self::code_len`] bytes is one that [`Self::encode`] may write, as far as reading it needs.
    pub fn is_code(&self, row: &[u8]) -> bool {
        match &self.kind {
            Kind::Product(product) => product.is_code(row),
            Kind::Scalar(_) | Kind::Sign(_) => true,
        }
    }

    /// What a code stands for.
    ///
    /// # Panics
    /// When `vector` is shorter than the dimension, or the row is not [`Self::code_len`] long.
    pub fn decode(&self, row: &[u8], vector: &mut [f32]) {
        assert_eq!(row.len(), self.code_len(), "bytes of a row");
        let vector = &mut vector[..self.dim];
        match &self.kind {
            Kind::Scalar(scalar) => scalar.decode(row, vector),
            Kind::Sign(sign) => sign.decode(row, vector),
            Kind::Product(product) => product.decode(row, vector),
        }
    }

    /// Squared distances of `rows`, vectors of `dim` components back to back, from what their codes stand for. Cost: that of making and
    /// reading their codes.
    pub fn errors(&self, rows: &[f32]) -> Vec<f64> {
        let (mut codes, mut decoded) =
            (vec![0; rows.len() / self.dim * self.code_len()], vec![0.0; self.dim]);
        self.encode(rows, &mut codes);
        let each = rows.chunks_exact(self.dim).zip(codes.chunks_exact(self.code_len()));
        let error = |(row, code): (&[f32], &[u8])| {
            self.decode(code, &mut decoded);
            squared_error(row, &decoded)
        };
        each.map(error).collect()
    }

    /// Sets `query` to a prepared vector. Cost: `dim` operations; a rotation or as many tables as bytes of a code more.
    ///
    /// # Panics
    /// When the vector is shorter than the dimension.
    pub fn query(&self, vector: &[f32], query: &mut CodecQuery) {
        let vector = &vector[..self.dim];
        match &self.kind {
            Kind::Scalar(scalar) => scalar.query(vector, &mut query.planes),
            Kind::Sign(sign) => sign.query(vector, &mut query.planes),
            Kind::Product(product) => product.query(vector, &mut query.tables),
        }
    }

    /// Whether codes are as far from vectors, on average, as vectors are: centroids are nearer under L2, so distances from a code and
    /// from a vector are not to be compared.
    pub fn is_unbiased(&self) -> bool {
        !matches!(self.kind, Kind::Product(_))
    }

    /// As [`Self::query`] for the vector that a row of this codec stands for, so that codes are compared with codes: without the
    /// vector, and a little less exactly.
    ///
    /// # Panics
    /// When the row is not [`Self::code_len`] long.
    pub fn query_code(&self, row: &[u8], query: &mut CodecQuery) {
        if let Kind::Sign(sign) = &self.kind {
            return sign.query_code(row, &mut query.planes, &mut query.decoded);
        }
        let mut decoded = std::mem::take(&mut query.decoded);
        decoded.clear();
        decoded.resize(self.dim, 0.0);
        self.decode(row, &mut decoded);
        self.query(&decoded, query);
        query.decoded = decoded;
    }

    /// Distances of a query that was set by this codec to rows `slots` of `rows`, in that order; estimates of what the metric gives
    /// for the vectors.
    ///
    /// # Panics
    /// When a slot is out of range, rows are not [`Self::code_len`] long, or `out` is shorter than `slots`.
    pub fn distances(&self, query: &CodecQuery, rows: &Arena<u8>, slots: &[Slot], out: &mut [f32]) {
        let rows = rows.table();
        assert_eq!(rows.row_len(), self.code_len(), "bytes of a row");
        match &self.kind {
            Kind::Scalar(scalar) => {
                let distance = |sum, row: &[u8]| scalar.distance(&query.planes, sum, row);
                scalar.planar.distances(&query.planes, rows, slots, out, distance);
            }
            Kind::Sign(sign) => {
                let distance = |sum, row: &[u8]| sign.distance(&query.planes, sum, row);
                sign.planar.distances(&query.planes, rows, slots, out, distance);
            }
            Kind::Product(product) => product.distances(&query.tables, rows, slots, out),
        }
    }
}
