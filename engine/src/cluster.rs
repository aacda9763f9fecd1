//! k-means: cells of vectors, and the nearest of few centroids for many points.
//!
//! Lloyd's rounds (Lloyd, 1982) after a k-means++ start (Arthur, Vassilvitskii, 2007). The scores of a round are one product of
//! matrices, by nalgebra. What comes out depends on the points, their order and the seed alone.
use crate::distance::Metric;
use crate::random::SplitMix64;
use nalgebra::{DMatrix, DMatrixView, DVectorView, DVectorViewMut};

/// Rows scored at once.
const BLOCK: usize = 512;
/// Points that a start is chosen from: so many per centroid, and at least so many.
const START_PER_CELL: usize = 8;
const START_MIN: usize = 4096;
/// Centroids that moved no further, summed and squared, stay.
const SHIFT_MIN: f64 = 1e-6;

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct KMeans {
    /// Length of a point.
    pub dim: usize,
    /// Centroids wanted, at least 1.
    pub cells: usize,
    /// Nearness to a centroid. Under cosine, points are of unit length and so become the centroids.
    pub metric: Metric,
    /// Rounds at most.
    pub rounds: usize,
    /// Of the start.
    pub seed: u64,
}

/// Rows that points are assigned to.
#[derive(Clone, Debug, PartialEq)]
pub struct Centroids {
    metric: Metric,
    /// As many columns as a row has components: what a product with points wants.
    columns: DMatrix<f32>,
    /// Added to `-x . c` (cosine, dot) or `-2 x . c` (L2).
    offsets: Vec<f32>,
}

impl Centroids {
    /// From rows of `dim`, back to back.
    ///
    /// # Panics
    /// When there are none, or `rows` is no whole number of them.
    pub fn new(metric: Metric, dim: usize, rows: &[f32]) -> Centroids {
        assert!(
            dim > 0 && !rows.is_empty() && rows.len().is_multiple_of(dim),
            "{} floats in rows of {dim}",
            rows.len()
        );
        let columns = DMatrixView::from_slice(rows, dim, rows.len() / dim).transpose();
        let squared = |row: &[f32]| row.iter().map(|x| x * x).sum();
        let offsets = match metric {
            Metric::L2 => rows.chunks_exact(dim).map(squared).collect(),
            Metric::Cosine | Metric::Dot => vec![0.0; rows.len() / dim],
        };
        Centroids { metric, columns, offsets }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Never: there is at least one.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Length of a centroid.
    pub fn dim(&self) -> usize {
        self.columns.ncols()
    }

    /// The components of one.
    ///
    /// # Panics
    /// When it is out of range.
    pub fn row(&self, cell: usize) -> impl Iterator<Item = f32> + '_ {
        assert!(cell < self.len(), "centroid {cell} of {}", self.len());
        (0..self.dim()).map(move |at| self.columns[(cell, at)])
    }

    /// The part of a score that does not depend on the point: under L2 the squared length of a centroid, else 0.
    pub fn offset(&self, cell: usize) -> f32 {
        self.offsets[cell]
    }

    /// Sets `out` to a score per centroid, as [`Self::scores`] for one point.
    ///
    /// # Panics
    /// When the point is not of the right length.
    pub fn score(&self, point: &[f32], out: &mut Vec<f32>) {
        out.clear();
        out.extend_from_slice(&self.offsets);
        let (cells, dim) = (self.len(), self.dim());
        let mut scores = DVectorViewMut::from_slice(out, cells);
        scores.gemv(self.factor(), &self.columns, &DVectorView::from_slice(&point[..dim], dim), 1.0);
    }

    fn factor(&self) -> f32 {
        if self.metric == Metric::L2 { -2.0 } else { -1.0 }
    }

    /// All of them, back to back.
    pub fn rows(&self) -> Vec<f32> {
        self.columns.transpose().as_slice().to_vec()
    }

    /// Calls `f(index, scores)` for each of `points`: a score per centroid, smaller is nearer, comparable for one point only
    /// (what depends on the point alone is left out). Cost: `len * dim` multiplications a point.
    pub fn scores(&self, points: &[f32], mut f: impl FnMut(usize, &[f32])) {
        let dim = self.dim();
        for (block, rows) in points.chunks(BLOCK * dim).enumerate() {
            let rows = DMatrixView::from_slice(rows, dim, rows.len() / dim);
            let mut scores = DMatrix::zeros(self.len(), rows.ncols());
            for mut column in scores.column_iter_mut() {
                column.copy_from_slice(&self.offsets);
            }
            scores.gemm(self.factor(), &self.columns, &rows, 1.0);
            for (index, scores) in scores.as_slice().chunks_exact(self.len()).enumerate() {
                f(block * BLOCK + index, scores);
            }
        }
    }

    /// The nearest centroid of each of `points`, the lower of two that are equally near.
    ///
    /// # Panics
    /// When `points` is no whole number of rows.
    pub fn nearest(&self, points: &[f32]) -> Vec<u32> {
        let mut nearest = Vec::new();
        self.assign(points, &mut nearest);
        nearest.into_iter().map(|(cell, _)| cell).collect()
    }

    fn assign(&self, points: &[f32], out: &mut Vec<(u32, f32)>) {
        assert!(points.len().is_multiple_of(self.dim()), "{} floats in rows of {}", points.len(), self.dim());
        out.clear();
        self.scores(points, |_, scores| {
            let (mut cell, mut least) = (0, scores[0]);
            for (at, &score) in scores.iter().enumerate().skip(1) {
                if score < least {
                    (cell, least) = (at as u32, score);
                }
            }
            out.push((cell, least));
        });
    }
}

/// Up to `wanted` of `0..count`, each set of them as likely, ascending (Knuth's selection sampling, algorithm S).
pub fn sample(count: usize, wanted: usize, seed: u64) -> Vec<usize> {
    let mut random = SplitMix64(seed);
    let mut left = wanted.min(count);
    let mut chosen = Vec::with_capacity(left);
    for at in 0..count {
        if random.below(count - at) < left {
            chosen.push(at);
            left -= 1;
        }
    }
    chosen
}

impl KMeans {
    /// Clusters `points`, rows of `dim` back to back; as many centroids as there are distinct points, where these are no more than
    /// the cells wanted. A cell that ran empty starts anew at the point that is farthest from its centroid.
    ///
    /// Cost: `rounds * n * cells * dim` multiplications. Memory: 8 bytes a point, and the centroids twice.
    ///
    /// # Panics
    /// Without points, or when they are no whole number of rows.
    pub fn run(&self, points: &[f32]) -> Centroids {
        let dim = self.dim;
        assert!(
            dim > 0 && !points.is_empty() && points.len().is_multiple_of(dim),
            "{} floats in rows of {dim}",
            points.len()
        );
        let count = points.len() / dim;
        let cells = self.cells.max(1);
        let row = |at: usize| &points[at * dim..][..dim];
        if let Some(few) = distinct(points, dim, cells) {
            return Centroids::new(self.metric, dim, &few);
        }
        let mut rows = self.start(points);
        let mut centroids = Centroids::new(self.metric, dim, &rows);
        let (mut cell_of, mut before) = (Vec::with_capacity(count), Vec::new());
        let mut sums = vec![0.0_f64; cells * dim];
        let mut sizes = vec![0_usize; cells];
        for _ in 0..self.rounds {
            centroids.assign(points, &mut cell_of);
            if cell_of.iter().map(|&(cell, _)| cell).eq(before.iter().copied()) {
                break;
            }
            before.clear();
            before.extend(cell_of.iter().map(|&(cell, _)| cell));
            sums.fill(0.0);
            sizes.fill(0);
            for (at, &cell) in before.iter().enumerate() {
                sizes[cell as usize] += 1;
                let sum = &mut sums[cell as usize * dim..][..dim];
                sum.iter_mut().zip(row(at)).for_each(|(sum, &x)| *sum += f64::from(x));
            }
            let mut far = self.farthest(points, &cell_of, sizes.iter().filter(|&&size| size == 0).count());
            let mut shift = 0.0;
            for cell in 0..cells {
                let to = &mut rows[cell * dim..][..dim];
                let fresh: Vec<f32> = match sizes[cell] {
                    0 => far.next().map_or_else(|| to.to_vec(), |at| row(at).to_vec()),
                    size => self.mean(&sums[cell * dim..][..dim], size),
                };
                shift += to.iter().zip(&fresh).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
                to.copy_from_slice(&fresh);
            }
            centroids = Centroids::new(self.metric, dim, &rows);
            if shift < SHIFT_MIN {
                break;
            }
        }
        centroids
    }

    fn mean(&self, sum: &[f64], size: usize) -> Vec<f32> {
        let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
        let by = if self.metric == Metric::Cosine && length > 0.0 { length } else { size as f64 };
        sum.iter().map(|x| (x / by) as f32).collect()
    }

    /// The `wanted` points that are farthest from their centroid.
    fn farthest(&self, points: &[f32], cell_of: &[(u32, f32)], wanted: usize) -> impl Iterator<Item = usize> {
        let mut far: Vec<(f32, usize)> = Vec::new();
        if wanted > 0 {
            let own = |at: usize| match self.metric {
                Metric::L2 => points[at * self.dim..][..self.dim].iter().map(|x| x * x).sum(),
                Metric::Cosine | Metric::Dot => 0.0,
            };
            far.extend(cell_of.iter().enumerate().map(|(at, &(_, score))| (score + own(at), at)));
            far.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            far.truncate(wanted);
        }
        far.into_iter().map(|(_, at)| at)
    }

    /// Points far from each other: each next one is drawn as likely as its squared distance to those before is large.
    fn start(&self, points: &[f32]) -> Vec<f32> {
        let dim = self.dim;
        let from = sample(points.len() / dim, START_MIN.max(START_PER_CELL * self.cells), self.seed);
        let candidates: Vec<f32> = from.iter().flat_map(|&at| &points[at * dim..][..dim]).copied().collect();
        let candidates = DMatrix::from_vec(dim, from.len(), candidates);
        let squares: Vec<f32> = candidates.column_iter().map(|point| point.norm_squared()).collect();
        let mut random = SplitMix64(self.seed ^ 0x6b6d_6561_6e73_2b2b);
        let mut chosen = random.below(from.len());
        let mut nearest = vec![f32::INFINITY; from.len()];
        let mut rows = Vec::with_capacity(self.cells * dim);
        loop {
            let centroid = candidates.column(chosen);
            rows.extend(centroid.iter());
            if rows.len() == self.cells * dim {
                return rows;
            }
            let products = candidates.tr_mul(&centroid);
            let mut sum = 0.0;
            for ((near, &product), &square) in nearest.iter_mut().zip(products.iter()).zip(&squares) {
                *near = near.min((square - 2.0 * product + squares[chosen]).max(0.0));
                sum += f64::from(*near);
            }
            nearest[chosen] = 0.0;
            let mut left = random.unit() * sum;
            let drawn = nearest.iter().position(|&near| {
                left -= f64::from(near);
                left < 0.0
            });
            // Candidates that all lie on chosen ones: any other will do.
            chosen = drawn.unwrap_or_else(|| random.below(from.len()));
        }
    }
}

/// The distinct points in order of appearance, when there are at most `most`.
fn distinct(points: &[f32], dim: usize, most: usize) -> Option<Vec<f32>> {
    let mut seen = ahash::HashSet::default();
    let mut rows = Vec::new();
    for point in points.chunks_exact(dim) {
        if seen.insert(point.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()) {
            if seen.len() > most {
                return None;
            }
            rows.extend_from_slice(point);
        }
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(count: usize, dim: usize, seed: u64) -> Vec<f32> {
        let mut random = SplitMix64(seed);
        (0..count * dim).map(|_| random.unit() as f32 - 0.5).collect()
    }

    fn unit(mut points: Vec<f32>, dim: usize) -> Vec<f32> {
        for row in points.chunks_exact_mut(dim) {
            let length = row.iter().map(|x| x * x).sum::<f32>().sqrt();
            row.iter_mut().for_each(|x| *x /= length);
        }
        points
    }

    fn plain(metric: Metric, a: &[f32], b: &[f32]) -> f64 {
        let pairs = a.iter().zip(b).map(|(&a, &b)| (f64::from(a), f64::from(b)));
        match metric {
            Metric::L2 => pairs.map(|(a, b)| (a - b) * (a - b)).sum(),
            Metric::Cosine | Metric::Dot => -pairs.map(|(a, b)| a * b).sum::<f64>(),
        }
    }

    #[test]
    fn each_point_goes_to_the_nearest_centroid() {
        for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
            for (count, dim, cells) in [(1, 1, 1), (700, 3, 9), (1100, 24, 33)] {
                let points = unit(points(count, dim, 5), dim);
                let centroids = KMeans { dim, cells, metric, rounds: 4, seed: 7 }.run(&points);
                let rows = centroids.rows();
                assert_eq!(rows.len(), centroids.len() * dim);
                for (point, cell) in points.chunks_exact(dim).zip(centroids.nearest(&points)) {
                    let to = |row: &[f32]| plain(metric, point, row);
                    let best = rows.chunks_exact(dim).map(to).fold(f64::INFINITY, f64::min);
                    let found = to(&rows[cell as usize * dim..][..dim]);
                    assert!(found <= best + 1e-5, "{metric:?} {found} {best}");
                }
            }
        }
    }

    /// Mean squared distance of points to their centroids.
    fn distortion(centroids: &Centroids, points: &[f32]) -> f64 {
        let (dim, rows) = (centroids.dim(), centroids.rows());
        let cells = centroids.nearest(points);
        let each = points.chunks_exact(dim).zip(&cells);
        let sum: f64 = each.map(|(p, &cell)| plain(Metric::L2, p, &rows[cell as usize * dim..][..dim])).sum();
        sum / cells.len() as f64
    }

    #[test]
    fn rounds_only_bring_centroids_nearer_and_clusters_are_found() {
        let dim = 6;
        let centres = points(20, dim, 1);
        let noise = points(4_000, dim, 2);
        let near = noise.chunks_exact(dim).enumerate().flat_map(|(i, noise)| {
            let centre = &centres[i % 20 * dim..][..dim];
            centre.iter().zip(noise).map(|(c, n)| 10.0 * c + 0.01 * n).collect::<Vec<f32>>()
        });
        let near: Vec<f32> = near.collect();
        let run = |rounds| KMeans { dim, cells: 20, metric: Metric::L2, rounds, seed: 3 }.run(&near);
        let mut last = f64::INFINITY;
        for rounds in [0, 1, 2, 5, 25] {
            let distortion = distortion(&run(rounds), &near);
            assert!(distortion <= last + 1e-4, "{rounds}: {distortion} after {last}");
            last = distortion;
        }
        assert!(last < 0.01, "{last}");
        assert_eq!(run(25), run(25), "a function of points and seed");
    }

    #[test]
    fn few_distinct_points_are_their_own_centroids() {
        let rows = [1.0, 2.0, 3.0, 4.0, 1.0, 2.0];
        let centroids = KMeans { dim: 2, cells: 2, metric: Metric::L2, rounds: 5, seed: 0 }.run(&rows);
        assert_eq!(centroids.rows(), [1.0, 2.0, 3.0, 4.0]);
        let one = KMeans { dim: 2, cells: 1, metric: Metric::L2, rounds: 5, seed: 0 }.run(&rows);
        assert_eq!(one.len(), 1);
    }

    #[test]
    fn no_cell_stays_empty_where_points_crowd() {
        // Nine in ten at one place: a start drawn there would leave cells without a point.
        let dim = 4;
        let mut all = vec![0.25; 9_000 * dim];
        all.extend(points(1_000, dim, 4));
        let centroids = KMeans { dim, cells: 64, metric: Metric::L2, rounds: 25, seed: 9 }.run(&all);
        let mut sizes = [0; 64];
        centroids.nearest(&all).iter().for_each(|&cell| sizes[cell as usize] += 1);
        assert!(sizes.iter().all(|&size| size > 0), "{sizes:?}");
    }

    #[test]
    fn samples_are_ascending_and_of_the_size_asked_for() {
        assert_eq!(sample(5, 9, 1), [0, 1, 2, 3, 4]);
        let drawn = sample(1000, 100, 2);
        assert!(drawn.len() == 100 && drawn.is_sorted_by(|a, b| a < b) && drawn[99] < 1000);
        let mean: usize = drawn.iter().sum::<usize>() / 100;
        assert!((400..600).contains(&mean), "{mean}");
    }
}
