//! Codes of what vectors differ from the centroid of their cell by (residuals), in blocks of 32 that are scored at once (Jégou, Douze,
//! Schmid, TPAMI 2011; for four bits a number: André, Kermarrec, Le Scouarnec, Quicker ADC, TPAMI 2021).
//!
//! A product with a query is a sum of table entries, and the tables are made once for a query, whatever the cells: a distance is that to
//! the centroid, the product, and under L2 a term of cell and code that lies beside the code. For four bits a shuffle sums bytes that
//! are below the entries by less than a step, so that a code can be left out for certain; what is left is summed exactly, from
//! the same tables, so that distances are the same on every machine but for the last bits of the tables.
use super::Saved;
use super::product::{Product, Shape, TableQuery};
use crate::distance::{Metric, SHUFFLED_CODES, SHUFFLED_PAIR, ShuffleKernel};

/// Codes of a block.
pub const BLOCK_CODES: usize = SHUFFLED_CODES;

/// Vectors worth training on; more make codes hardly better.
pub const RESIDUALS_MAX: usize = super::SAMPLE_MAX;

/// Entries of a table of four bits.
const NIBBLES: usize = 16;
/// Entries of a table of eight.
const BYTES: usize = 256;

/// Additions that the tables of bytes are made with, and that four sums side by side end with.
const ADDITIONS: f32 = 8.0;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellProduct {
    /// Parts of a vector; they divide the dimension.
    pub parts: usize,
    /// 4 or 8 a part.
    pub bits: usize,
    /// As of [`super::Quantization::Product`].
    pub rotations: usize,
    /// As of [`super::Quantization::Product`].
    pub eta: f32,
}

impl CellProduct {
    /// Bytes of a code.
    pub fn code_len(&self) -> usize {
        (self.parts * self.bits).div_ceil(8)
    }

    fn shape(&self, dim: usize) -> Shape {
        let CellProduct { parts, bits, rotations, eta } = *self;
        // Products are all that is asked of tables.
        Shape { metric: Metric::Dot, dim, parts, bits, layers: 1, rotations, eta }
    }
}

/// A trained quantizer of residuals.
#[derive(Clone, Debug)]
pub struct CellCodec {
    dim: usize,
    bits: usize,
    product: Product,
    kernel: ShuffleKernel,
}

/// A query, prepared for one codec. Reusable: setting it keeps allocations.
#[derive(Clone, Debug, Default)]
pub struct CellQuery {
    tables: TableQuery,
    /// For four bits: two tables of sixteen bytes per byte of a code.
    bytes: Vec<u8>,
    /// A sum is at least `bias + step * sum of bytes`.
    bias: f32,
    step: f32,
    /// What rounding may take from a bound.
    slack: f32,
}

impl CellCodec {
    /// Trains on `residuals`, `dim` components each and back to back. Some seconds of a core for tens of thousands.
    ///
    /// # Panics
    /// Without residuals, or when they are no whole number of vectors, or parts do not divide `dim`.
    pub fn train(wanted: CellProduct, dim: usize, residuals: &[f32], seed: u64) -> CellCodec {
        assert!(
            dim > 0 && !residuals.is_empty() && residuals.len().is_multiple_of(dim),
            "{} floats in rows of {dim}",
            residuals.len()
        );
        assert!(
            wanted.parts > 0 && dim.is_multiple_of(wanted.parts),
            "{} parts of {dim} components",
            wanted.parts
        );
        CellCodec::over(wanted, dim, Product::train(wanted.shape(dim), residuals, seed))
    }

    fn over(wanted: CellProduct, dim: usize, product: Product) -> CellCodec {
        CellCodec { dim, bits: wanted.bits, product, kernel: ShuffleKernel::best() }
    }

    /// What was learned, as bytes for [`Self::load`].
    pub fn save(&self) -> Vec<u8> {
        let mut saved = Vec::new();
        self.product.save(&mut saved);
        saved
    }

    /// From what [`Self::save`] gave; `None` when the bytes are of another shape or damaged.
    pub fn load(wanted: CellProduct, dim: usize, saved: &[u8]) -> Option<CellCodec> {
        let mut saved = Saved(saved);
        let product = Product::load(wanted.shape(dim), &mut saved)?;
        saved.0.is_empty().then(|| CellCodec::over(wanted, dim, product))
    }

    /// Bytes of a code.
    pub fn code_len(&self) -> usize {
        self.product.code_len()
    }

    /// Bytes of what was learned.
    pub fn bytes(&self) -> usize {
        self.product.bytes()
    }

    /// Whether a code is one that [`Self::encode`] may give.
    pub fn is_code(&self, code: &[u8]) -> bool {
        code.len() == self.code_len() && self.product.is_code(code)
    }

    /// Writes the code of one residual. Cost: `dim` times the number of centroids.
    ///
    /// # Panics
    /// When the residual is not `dim` long, or the code not [`Self::code_len`].
    pub fn encode(&self, residual: &[f32], code: &mut [u8]) {
        assert!(residual.len() == self.dim && code.len() == self.code_len(), "one residual, one code");
        self.product.encode(residual, code);
    }

    /// The residual that a code stands for.
    ///
    /// # Panics
    /// When either is not as long as for [`Self::encode`], or it is no code.
    pub fn decode(&self, code: &[u8], residual: &mut [f32]) {
        assert!(residual.len() == self.dim && code.len() == self.code_len(), "one code, one residual");
        self.product.decode(code, residual);
    }

    /// Mean squared error of `residuals`, `dim` components each and back to back; NaN without residuals.
    pub fn error(&self, residuals: &[f32]) -> f64 {
        let (mut code, mut decoded) = (vec![0; self.code_len()], vec![0.0; self.dim]);
        let error = |residual: &[f32]| {
            self.encode(residual, &mut code);
            self.decode(&code, &mut decoded);
            super::squared_error(residual, &decoded)
        };
        residuals.chunks_exact(self.dim).map(error).sum::<f64>() / (residuals.len() / self.dim) as f64
    }

    /// Sets `query` to a vector. Cost: `dim` times the number of centroids.
    ///
    /// # Panics
    /// When the vector is not `dim` long.
    pub fn query(&self, vector: &[f32], query: &mut CellQuery) {
        assert_eq!(vector.len(), self.dim, "components of a query");
        self.product.query(vector, &mut query.tables);
        let CellQuery { tables, bytes, bias, step, slack } = query;
        let tables = tables.entries();
        // Each addition of a product may lose as much of what the largest entries sum up to.
        let most = |table: &[f32]| table.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
        let additions = self.code_len() as f32 / 4.0 + ADDITIONS;
        *slack = f32::EPSILON * additions * tables.chunks_exact(BYTES).map(most).sum::<f32>();
        bytes.clear();
        if self.bits != 4 {
            return;
        }
        // A table of bytes is the sum of two of nibbles.
        let ends = |entries: &mut dyn Iterator<Item = f32>| {
            entries.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)))
        };
        let (mut widest, mut least) = (0.0_f32, 0.0_f64);
        for table in tables.chunks_exact(BYTES) {
            let first = table[0];
            let (low, high) = ends(&mut table[..NIBBLES].iter().map(|x| x - first));
            let (low_above, high_above) = ends(&mut table.iter().step_by(NIBBLES).map(|x| x - first));
            least += f64::from(first) + f64::from(low) + f64::from(low_above);
            widest = widest.max(high - low).max(high_above - low_above);
        }
        *bias = least as f32;
        // All of the largest together stay below 2^16.
        let largest = (f32::from(u16::MAX) / (2 * self.code_len()) as f32).floor().min(255.0);
        *step = widest / largest;
        let per_step = if step.is_normal() { 1.0 / *step } else { 0.0 };
        let byte = |over: f32| (over * per_step).floor().clamp(0.0, largest) as u8;
        for table in tables.chunks_exact(BYTES) {
            let first = table[0];
            let (low, _) = ends(&mut table[..NIBBLES].iter().map(|x| x - first));
            let (low_above, _) = ends(&mut table.iter().step_by(NIBBLES).map(|x| x - first));
            bytes.extend(table[..NIBBLES].iter().map(|x| byte(x - first - low)));
            bytes.extend(table.iter().step_by(NIBBLES).map(|x| byte(x - first - low_above)));
        }
    }

    /// Minus the product of the query and what a code stands for.
    ///
    /// # Panics
    /// When the query was not set by this codec, or the code is not [`Self::code_len`] long.
    #[inline]
    pub fn product(&self, query: &CellQuery, code: &[u8]) -> f32 {
        self.product.distance(&query.tables, code)
    }

    /// For each of the first `count` codes of a block a value that [`Self::product`] is not below; for eight bits that itself.
    ///
    /// # Panics
    /// When the query was not set by this codec, or the block is not [`BLOCK_CODES`] codes long.
    #[inline]
    pub fn lowest(&self, query: &CellQuery, block: &[u8], count: usize, out: &mut [f32; BLOCK_CODES]) {
        if self.bits == 4 {
            let mut sums = [0; BLOCK_CODES];
            self.kernel.sums(&query.bytes, block, &mut sums);
            let bias = query.bias - query.slack;
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = bias + query.step * f32::from(sum);
            }
        } else {
            for (out, code) in out.iter_mut().zip(block.chunks_exact(self.code_len())).take(count) {
                *out = self.product(query, code);
            }
        }
    }

    /// Whether [`Self::lowest`] is [`Self::product`] itself.
    pub fn is_told_exactly(&self) -> bool {
        self.bits != 4
    }

    /// Numbers of a code whose look-up costs as much as a distance of short vectors, about: for steps of a pace.
    pub fn steps_per_block(&self) -> usize {
        1 + self.code_len() / if self.bits == 4 { 64 } else { 8 }
    }

    /// Where byte `byte` of code `at` lies in a block.
    #[inline]
    pub fn place(&self, at: usize, byte: usize) -> usize {
        if self.bits == 4 { byte * SHUFFLED_PAIR + at } else { at * self.code_len() + byte }
    }

    /// Bytes of a block in which its first `count` codes lie.
    pub fn used(&self, count: usize) -> usize {
        if self.bits == 4 { BLOCK_CODES * self.code_len() } else { count * self.code_len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    fn vectors(count: usize, dim: usize, seed: u64) -> Vec<f32> {
        let mut random = SplitMix64(seed);
        (0..count * dim).map(|_| random.unit() as f32 - 0.5).collect()
    }

    fn shapes() -> Vec<(usize, CellProduct)> {
        let of = |dim, parts, bits, rotations, eta| (dim, CellProduct { parts, bits, rotations, eta });
        vec![
            of(16, 4, 8, 0, 0.0),
            of(24, 5 + 1, 4, 0, 0.0),
            of(15, 5, 4, 1, 0.0),
            of(9, 1, 4, 0, 0.0),
            of(12, 3, 8, 2, 3.0),
            of(600, 300, 4, 0, 0.0),
        ]
    }

    #[test]
    fn products_are_those_of_what_codes_stand_for_and_bounds_are_below() {
        for (dim, wanted) in shapes() {
            let residuals = vectors(400, dim, 1);
            let codec = CellCodec::train(wanted, dim, &residuals, 5);
            assert_eq!(codec.code_len(), wanted.code_len());
            let len = codec.code_len();
            let mut block = vec![0xa5; BLOCK_CODES * len];
            let mut codes = Vec::new();
            for (at, residual) in residuals.chunks_exact(dim).take(BLOCK_CODES).enumerate() {
                let mut code = vec![0; len];
                codec.encode(residual, &mut code);
                assert!(codec.is_code(&code));
                (0..len).for_each(|byte| block[codec.place(at, byte)] = code[byte]);
                codes.push(code);
            }
            let mut query = CellQuery::default();
            for vector in vectors(20, dim, 2).chunks_exact(dim) {
                codec.query(vector, &mut query);
                let mut lowest = [0.0; BLOCK_CODES];
                codec.lowest(&query, &block, BLOCK_CODES, &mut lowest);
                for (code, low) in codes.iter().zip(lowest) {
                    let mut decoded = vec![0.0; dim];
                    codec.decode(code, &mut decoded);
                    let plain: f64 =
                        decoded.iter().zip(vector).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                    let product = codec.product(&query, code);
                    assert!((f64::from(product) + plain).abs() < 1e-4, "{wanted:?}: {product} {plain}");
                    assert!(low <= product, "{wanted:?}: {low} above {product}");
                    let off =
                        if codec.is_told_exactly() { 0.0 } else { 2.0 * len as f32 * query.step + 1e-4 };
                    assert!(product - low <= off, "{wanted:?}: {low} far below {product}");
                }
            }
        }
    }

    #[test]
    fn what_was_learned_is_saved_and_damage_is_noticed() {
        for (dim, wanted) in shapes() {
            let residuals = vectors(300, dim, 3);
            let codec = CellCodec::train(wanted, dim, &residuals, 5);
            let saved = codec.save();
            let loaded = CellCodec::load(wanted, dim, &saved).expect("as it was saved");
            assert_eq!(loaded.save(), saved);
            let (mut a, mut b) = (vec![0; codec.code_len()], vec![0; codec.code_len()]);
            for residual in residuals.chunks_exact(dim) {
                codec.encode(residual, &mut a);
                loaded.encode(residual, &mut b);
                assert_eq!(a, b);
            }
            for cut in [0, 1, saved.len() / 2, saved.len() - 1] {
                assert!(CellCodec::load(wanted, dim, &saved[..cut]).is_none(), "cut at {cut}");
            }
            let more = [&saved[..], &[0]].concat();
            assert!(CellCodec::load(wanted, dim, &more).is_none());
        }
        // Few distinct vectors leave numbers that stand for nothing.
        let wanted = CellProduct { parts: 1, bits: 8, rotations: 0, eta: 0.0 };
        let codec = CellCodec::train(wanted, 2, &vectors(3, 2, 4), 1);
        assert!(codec.is_code(&[2]) && !codec.is_code(&[3]) && !codec.is_code(&[0, 0]));
    }
}
