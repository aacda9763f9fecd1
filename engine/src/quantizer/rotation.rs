//! Rotations: orthogonal maps that spread what a vector has over all components, or lay it out for a product quantizer.
use super::saved::{Saved, put_floats};
use crate::distance::{Kernel, Metric, padded};
use crate::random::SplitMix64;
use nalgebra::{DMatrix, DMatrixView};

/// Rounds of signs and transforms: after four every component depends on every other in many ways.
const ROUNDS: usize = 4;

/// Iterations per component until singular values must have converged: they take about two.
const ITERATIONS: usize = 64;

/// A map that keeps lengths and angles.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rotation {
    /// Random: signs, a Walsh-Hadamard transform of the largest power of two at alternating ends, and sums and differences of both
    /// halves, so that any dimension mixes. `dim * log(dim)` additions a round.
    Random { dim: usize, signs: Vec<f32> },
    /// Rows of a matrix, padded.
    Matrix { dim: usize, rows: Vec<f32> },
}

impl Rotation {
    /// Any of vectors of `dim` components, from a seed.
    pub(super) fn random(dim: usize, seed: u64) -> Rotation {
        let mut random = SplitMix64(seed);
        let signs = (0..ROUNDS * dim).map(|_| if random.next() & 1 == 0 { 1.0 } else { -1.0 }).collect();
        Rotation::Random { dim, signs }
    }

    /// Of `rows`, the one that brings them nearest to `targets`, both back to back (orthogonal Procrustes, Schönemann 1966):
    /// `V U'` where `U S V' = sum(row * target')`. `None` when the singular values do not converge.
    pub(super) fn nearest(dim: usize, rows: &[f32], targets: &[f32]) -> Option<Rotation> {
        let count = rows.len() / dim;
        let rows = DMatrixView::from_slice(rows, dim, count);
        let targets = DMatrixView::from_slice(targets, dim, count);
        let mut products = DMatrix::zeros(dim, dim);
        products.gemm(1.0, &targets, &rows.transpose(), 0.0);
        // Products of large components overflow.
        if !products.iter().all(|x| x.is_finite()) {
            return None;
        }
        let svd = products.try_svd(true, true, f32::EPSILON, ITERATIONS * dim)?;
        let matrix = svd.u? * svd.v_t?;
        let mut padded_rows = vec![0.0; dim * padded(dim)];
        for (row, to) in matrix.row_iter().zip(padded_rows.chunks_exact_mut(padded(dim))) {
            to.iter_mut().zip(row.iter()).for_each(|(to, &x)| *to = x);
        }
        Some(Rotation::Matrix { dim, rows: padded_rows })
    }

    /// Appends it as bytes for [`Self::load`].
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        let (kind, floats) = match self {
            Rotation::Random { signs, .. } => (0, signs),
            Rotation::Matrix { rows, .. } => (1, rows),
        };
        out.push(kind);
        put_floats(out, floats);
    }

    /// Of vectors of `dim` components; `None` when the bytes are not of one.
    pub(super) fn load(dim: usize, saved: &mut Saved<'_>) -> Option<Rotation> {
        match saved.byte()? {
            0 => Some(Rotation::Random { dim, signs: saved.floats(ROUNDS * dim)? }),
            1 => Some(Rotation::Matrix { dim, rows: saved.floats(dim.checked_mul(padded(dim))?)? }),
            _ => None,
        }
    }

    /// Bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Rotation::Random { signs: floats, .. } | Rotation::Matrix { rows: floats, .. } => {
                size_of_val(&floats[..])
            }
        }
    }

    /// Rotates `vector` in place; `space` is any vector.
    ///
    /// # Panics
    /// When it is not of the right length.
    pub(super) fn apply(&self, vector: &mut [f32], space: &mut Vec<f32>) {
        match self {
            Rotation::Random { dim, signs } => {
                assert_eq!(vector.len(), *dim, "components of a vector to rotate");
                mix(vector, signs);
            }
            Rotation::Matrix { dim, rows } => {
                assert_eq!(vector.len(), *dim, "components of a vector to rotate");
                let kernel = Kernel::of(Metric::Dot);
                space.clear();
                space.extend_from_slice(vector);
                space.resize(padded(*dim), 0.0);
                for (to, row) in vector.iter_mut().zip(rows.chunks_exact(padded(*dim))) {
                    *to = -kernel.distance(space, row);
                }
            }
        }
    }

    /// The way back.
    ///
    /// # Panics
    /// As [`Self::apply`].
    pub(super) fn revert(&self, vector: &mut [f32], space: &mut Vec<f32>) {
        match self {
            Rotation::Random { dim, signs } => {
                assert_eq!(vector.len(), *dim, "components of a vector to rotate");
                unmix(vector, signs);
            }
            Rotation::Matrix { dim, rows } => {
                assert_eq!(vector.len(), *dim, "components of a vector to rotate");
                space.clear();
                space.extend_from_slice(vector);
                vector.fill(0.0);
                for (&x, row) in space.iter().zip(rows.chunks_exact(padded(*dim))) {
                    vector.iter_mut().zip(row).for_each(|(to, &y)| *to += x * y);
                }
            }
        }
    }
}

fn mix(vector: &mut [f32], signs: &[f32]) {
    let dim = vector.len();
    for (round, signs) in signs.chunks_exact(dim).enumerate() {
        vector.iter_mut().zip(signs).for_each(|(x, sign)| *x *= sign);
        hadamard(end_of(vector, round));
        halves(vector);
    }
}

fn unmix(vector: &mut [f32], signs: &[f32]) {
    let dim = vector.len();
    for (round, signs) in signs.chunks_exact(dim).enumerate().rev() {
        halves(vector);
        hadamard(end_of(vector, round));
        vector.iter_mut().zip(signs).for_each(|(x, sign)| *x *= sign);
    }
}

/// The largest power of two of components, at the front or the back.
fn end_of(vector: &mut [f32], round: usize) -> &mut [f32] {
    let power = 1 << vector.len().ilog2();
    let from = if round.is_multiple_of(2) { 0 } else { vector.len() - power };
    &mut vector[from..from + power]
}

/// Walsh-Hadamard transform of a power of two of values, scaled to keep lengths; its own inverse.
fn hadamard(values: &mut [f32]) {
    let mut half = 1;
    while half < values.len() {
        for pair in values.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    let scale = 1.0 / (values.len() as f32).sqrt();
    values.iter_mut().for_each(|x| *x *= scale);
}

/// Sums and differences of either half, scaled to keep lengths; its own inverse. The middle of an odd number stays.
fn halves(vector: &mut [f32]) {
    let (half, dim) = (vector.len() / 2, vector.len());
    let (low, high) = vector.split_at_mut(dim - half);
    for (a, b) in low.iter_mut().zip(high) {
        (*a, *b) = ((*a + *b) * std::f32::consts::FRAC_1_SQRT_2, (*a - *b) * std::f32::consts::FRAC_1_SQRT_2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(vector: &[f32]) -> f32 {
        vector.iter().map(|x| x * x).sum::<f32>().sqrt()
    }

    fn vectors(count: usize, dim: usize) -> Vec<f32> {
        let mut random = SplitMix64(dim as u64);
        (0..count * dim).map(|_| random.unit() as f32 - 0.5).collect()
    }

    #[test]
    fn rotations_keep_lengths_and_can_be_reverted() {
        for dim in [1, 2, 3, 7, 64, 100, 384, 511] {
            let rows = vectors(2 * dim + 1, dim);
            let targets: Vec<f32> = rows.iter().map(|x| x + 0.3 * x * x).collect();
            let learned = Rotation::nearest(dim, &rows, &targets).expect("it converges");
            for rotation in [Rotation::random(dim, 7), learned] {
                let mut space = Vec::new();
                for row in rows.chunks_exact(dim) {
                    let mut rotated = row.to_vec();
                    rotation.apply(&mut rotated, &mut space);
                    assert!((length(&rotated) - length(row)).abs() < 1e-4 * (1.0 + length(row)), "{dim}");
                    rotation.revert(&mut rotated, &mut space);
                    let off = rotated.iter().zip(row).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    assert!(off < 1e-4, "{dim}: {off}");
                }
            }
        }
    }

    #[test]
    fn what_overflows_has_no_rotation() {
        let rows = vec![3e19_f32; 4 * 3];
        assert_eq!(Rotation::nearest(3, &rows, &rows), None);
    }

    #[test]
    fn one_component_is_spread_over_all() {
        for dim in [64, 384, 500] {
            let rotation = Rotation::random(dim, 3);
            for at in [0, dim / 2, dim - 1] {
                let mut vector = vec![0.0; dim];
                vector[at] = 1.0;
                rotation.apply(&mut vector, &mut Vec::new());
                let largest = vector.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
                assert!(largest < 6.0 / (dim as f32).sqrt(), "{dim} {at}: {largest}");
            }
        }
    }

    #[test]
    fn the_nearest_rotation_is_found() {
        let dim = 12;
        let rows = vectors(100, dim);
        let hidden = Rotation::random(dim, 9);
        let mut targets = rows.clone();
        targets.chunks_exact_mut(dim).for_each(|row| hidden.apply(row, &mut Vec::new()));
        let found = Rotation::nearest(dim, &rows, &targets).expect("it converges");
        for (row, target) in rows.chunks_exact(dim).zip(targets.chunks_exact(dim)) {
            let mut rotated = row.to_vec();
            found.apply(&mut rotated, &mut Vec::new());
            rotated.iter().zip(target).for_each(|(a, b)| assert!((a - b).abs() < 1e-4));
        }
    }
}
