//! What happens to a vector when it enters: padding, and unit length under cosine.
use super::Metric;

/// Copies `src` (dim floats) into `dst` (its padded row), zero-fills the rest, and normalises under cosine.
///
/// The norm is taken in f64, so components near 1e-23 (whose squares vanish in f32) and near 1e30 (whose squares
/// overflow it) come out as unit vectors too. A zero vector stays zero: its distance is 1 to everything. Preparing
/// a prepared vector changes it by rounding at most.
///
/// # Panics
/// When `dst` is shorter than `src`.
pub fn prepare(metric: Metric, src: &[f32], dst: &mut [f32]) {
    let (row, padding) = dst.split_at_mut(src.len());
    row.copy_from_slice(src);
    padding.fill(0.0);
    if metric != Metric::Cosine {
        return;
    }
    let norm = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    if norm > 0.0 {
        for x in row {
            *x = (f64::from(*x) / norm) as f32;
        }
    }
}
