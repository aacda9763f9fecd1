//! The greatest product of each of several vectors with any of many rows, which is what MaxSim adds up.
//!
//! A kernel that multiplies two rows ends with a sum over the lanes of a register, which takes as long as the products of some hundred
//! components. Here each lane belongs to a vector of its own: the vectors are stored in groups, component by component, and a component of a
//! row is multiplied with that of all vectors of a group at once. So no lanes are ever summed, and rows need neither padding nor alignment.
use super::dispatch::{GreatestEntry, Runnable, SimdLevel, best_kernels};

/// The number of vectors of a group.
pub const GROUP: usize = 8;
/// The number of rows that are multiplied at once: their sums fill half of the registers.
pub(super) const ROWS: usize = 8;
/// The number of components that are summed before the partial sum is added to the total, which keeps the rounding error of long vectors small.
pub(super) const SUMMED: usize = 128;

/// Vectors whose greatest products with rows are wanted.
pub struct GreatestProducts {
    entry: Runnable<GreatestEntry>,
    /// For each group its components, each with one number for each vector; the vectors that a last group lacks are zero.
    columns: Vec<[f32; GROUP]>,
    dim: usize,
    count: usize,
}

impl GreatestProducts {
    /// Takes vectors of `dim` components each.
    ///
    /// # Panics
    /// If a vector has another length, or `dim` is 0.
    pub fn of<'v>(vectors: impl ExactSizeIterator<Item = &'v [f32]>, dim: usize) -> GreatestProducts {
        GreatestProducts::with(best_kernels().greatest(), vectors, dim)
    }

    /// As [`Self::of`] with the kernel of a level; `None` if this CPU cannot run it. For tests and benches.
    pub fn at_level<'v>(
        level: SimdLevel,
        vectors: impl ExactSizeIterator<Item = &'v [f32]>,
        dim: usize,
    ) -> Option<GreatestProducts> {
        Some(GreatestProducts::with(level.kernels()?.greatest(), vectors, dim))
    }

    fn with<'v>(
        entry: Runnable<GreatestEntry>,
        vectors: impl ExactSizeIterator<Item = &'v [f32]>,
        dim: usize,
    ) -> GreatestProducts {
        assert!(dim > 0, "vectors have components");
        let count = vectors.len();
        let mut columns = vec![[0.0; GROUP]; count.div_ceil(GROUP) * dim];
        for (index, vector) in vectors.enumerate() {
            assert_eq!(vector.len(), dim, "components of vector {index}");
            let group = &mut columns[index / GROUP * dim..][..dim];
            for (column, component) in group.iter_mut().zip(vector) {
                column[index % GROUP] = *component;
            }
        }
        GreatestProducts { entry, columns, dim, count }
    }

    /// The number of vectors.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The components of a vector.
    ///
    /// # Panics
    /// If there are not so many vectors.
    pub fn vector(&self, index: usize) -> impl Iterator<Item = f32> {
        assert!(index < self.count, "vector {index} of {}", self.count);
        self.columns[index / GROUP * self.dim..][..self.dim].iter().map(move |column| column[index % GROUP])
    }

    /// Returns whether there are no vectors.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of components of a vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the initial list of maxima for [`Self::raise`], all of them negative infinity: one for each vector, padded to whole groups.
    pub fn lowest(&self) -> Vec<[f32; GROUP]> {
        vec![[f32::NEG_INFINITY; GROUP]; self.count.div_ceil(GROUP)]
    }

    /// Replaces each element of `greatest` by the maximum of itself and the products of its vector with the rows. `rows` holds their
    /// components, little-endian floats, one row after the other. The sum of a product is taken in the order of the components, whatever the
    /// other rows and vectors are, so that a pair has the same product in each call.
    ///
    /// # Panics
    /// If `rows` holds no whole number of rows, or `greatest` has another length than [`Self::lowest`].
    pub fn raise(&self, rows: &[[u8; 4]], greatest: &mut [[f32; GROUP]]) {
        assert!(rows.len().is_multiple_of(self.dim), "whole rows of {} components", self.dim);
        assert_eq!(greatest.len() * self.dim, self.columns.len(), "groups");
        for (columns, greatest) in self.columns.chunks_exact(self.dim).zip(greatest) {
            self.entry.raise(columns, rows, greatest);
        }
    }

    /// The sum of what [`Self::raise`] has left in a list, over all vectors.
    pub fn sum(&self, greatest: &[[f32; GROUP]]) -> f32 {
        greatest.as_flattened()[..self.count].iter().fold(0.0, |sum, greatest| sum + greatest)
    }
}

/// Generates a kernel, `$name`, from the operations of an instruction set on a register `$register` of [`GROUP`] floats.
macro_rules! greatest_entry {
    ($name:ident, $register:ty, $zero:expr, $load:expr, $add_product:expr, $add:expr, $raise:expr $(, #[$feature:meta])*) => {
        /// The products of `ROWS` rows with a group of vectors, of which the greatest are kept.
        $(#[$feature])*
        #[inline]
        fn raise_rows<const ROWS: usize>(columns: &[[f32; GROUP]], rows: &[[u8; 4]], greatest: &mut [f32; GROUP]) {
            let dim = columns.len();
            let rows: [&[[u8; 4]]; ROWS] = std::array::from_fn(|row| &rows[row * dim..][..dim]);
            let mut totals: [$register; ROWS] = [$zero; ROWS];
            for (part, columns) in columns.chunks(SUMMED).enumerate() {
                let mut sums: [$register; ROWS] = [$zero; ROWS];
                let (blocks, rest) = columns.as_chunks::<16>();
                for (block, columns) in blocks.iter().enumerate() {
                    let from = part * SUMMED + block * 16;
                    let blocks: [&[[u8; 4]; 16]; ROWS] =
                        std::array::from_fn(|row| rows[row][from..].first_chunk().expect("a row is as long as a column"));
                    for at in 0..16 {
                        let column = $load(&columns[at]);
                        for row in 0..ROWS {
                            sums[row] = $add_product(sums[row], column, f32::from_le_bytes(blocks[row][at]));
                        }
                    }
                }
                let from = part * SUMMED + blocks.len() * 16;
                for (at, column) in rest.iter().enumerate() {
                    let column = $load(column);
                    for row in 0..ROWS {
                        sums[row] = $add_product(sums[row], column, f32::from_le_bytes(rows[row][from + at]));
                    }
                }
                for row in 0..ROWS {
                    totals[row] = $add(totals[row], sums[row]);
                }
            }
            for total in totals {
                $raise(greatest, total);
            }
        }

        /// Updates `greatest` with the products of a group of vectors with all rows.
        $(#[$feature])*
        pub(super) fn $name(columns: &[[f32; GROUP]], rows: &[[u8; 4]], greatest: &mut [f32; GROUP]) {
            let dim = columns.len();
            let mut eights = rows.chunks_exact(ROWS * dim);
            for rows in &mut eights {
                raise_rows::<ROWS>(columns, rows, greatest);
            }
            let mut rest = eights.remainder();
            if rest.len() >= 4 * dim {
                let (rows, after) = rest.split_at(4 * dim);
                raise_rows::<4>(columns, rows, greatest);
                rest = after;
            }
            if rest.len() >= 2 * dim {
                let (rows, after) = rest.split_at(2 * dim);
                raise_rows::<2>(columns, rows, greatest);
                rest = after;
            }
            if !rest.is_empty() {
                raise_rows::<1>(columns, rest, greatest);
            }
        }
    };
}

pub(super) use greatest_entry;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Compares each level with products in f64, and a call for all rows with one call for each row.
        #[test]
        fn greatest_products_are_those_of_all_pairs(
            dim in prop_oneof![1_usize..40, 120_usize..140, 250_usize..300],
            count in 0_usize..20,
            rows in 0_usize..20,
            seed: u64,
        ) {
            let mut random = crate::random::SplitMix64(seed);
            let mut vectors = |count: usize| -> Vec<Vec<f32>> {
                (0..count).map(|_| (0..dim).map(|_| random.below(2001) as f32 / 1000.0 - 1.0).collect()).collect()
            };
            let (vectors, rows) = (vectors(count), vectors(rows));
            let bytes: Vec<[u8; 4]> = rows.concat().iter().map(|component| component.to_le_bytes()).collect();
            for level in SimdLevel::ALL {
                let products = GreatestProducts::at_level(level, vectors.iter().map(Vec::as_slice), dim);
                let Some(products) = products else { continue };
                let (mut at_once, mut one_by_one) = (products.lowest(), products.lowest());
                products.raise(&bytes, &mut at_once);
                for row in bytes.chunks_exact(dim) {
                    products.raise(row, &mut one_by_one);
                }
                prop_assert_eq!(&at_once, &one_by_one, "{:?}", level);
                let mut sum = 0.0;
                for (vector, got) in vectors.iter().zip(at_once.as_flattened()) {
                    let product = |row: &Vec<f32>| {
                        vector.iter().zip(row).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
                    };
                    let expected = rows.iter().map(product).fold(f64::NEG_INFINITY, f64::max);
                    let near = (f64::from(*got) - expected).abs() <= 1e-5 * dim as f64;
                    prop_assert!(near || f64::from(*got) == expected, "{:?}: {} for {}", level, got, expected);
                    sum += *got;
                }
                prop_assert_eq!(products.sum(&at_once), sum);
            }
        }
    }
}
