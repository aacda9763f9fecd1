//! Recall against given or computed truth.
use super::dataset::Matrix;
use clap::ValueEnum;
use serde::Serialize;

/// Distance of the collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// 1 - cos.
    Cosine,
    /// Squared Euclidean.
    L2,
    /// Negated dot product.
    Dot,
}

impl Metric {
    /// The name in requests.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Cosine => "cosine",
            Metric::L2 => "l2",
            Metric::Dot => "dot",
        }
    }
}

/// The `k` nearest rows of each query by exhaustive search, spread over `threads` threads.
///
/// Independent of the server's code on purpose: one plain loop, so that a fault in a kernel shows as lost recall.
pub fn nearest(
    docs: &Matrix<f32>,
    queries: &Matrix<f32>,
    k: usize,
    metric: Metric,
    threads: usize,
) -> Matrix<u64> {
    let k = k.min(docs.count());
    let norms: Vec<f32> = (0..docs.count()).map(|row| dot(docs.row(row), docs.row(row)).sqrt()).collect();
    let mut values = vec![0u64; queries.count() * k];
    let rows_per_thread = queries.count().div_ceil(threads.max(1)).max(1);
    if k > 0 {
        std::thread::scope(|scope| {
            for (part, rows) in values.chunks_mut(rows_per_thread * k).enumerate() {
                let norms = &norms;
                scope.spawn(move || {
                    for (offset, row) in rows.chunks_mut(k).enumerate() {
                        let query = queries.row(part * rows_per_thread + offset);
                        row.copy_from_slice(&nearest_of_one(docs, norms, query, k, metric));
                    }
                });
            }
        });
    }
    Matrix { dim: k, values }
}

fn nearest_of_one(docs: &Matrix<f32>, norms: &[f32], query: &[f32], k: usize, metric: Metric) -> Vec<u64> {
    let distance = |row: usize| {
        let vector = docs.row(row);
        match metric {
            Metric::Dot => -dot(query, vector),
            Metric::L2 => query.iter().zip(vector).map(|(a, b)| (a - b) * (a - b)).sum(),
            // The query's own norm scales every distance alike.
            Metric::Cosine => -dot(query, vector) / if norms[row] > 0.0 { norms[row] } else { 1.0 },
        }
    };
    let mut all: Vec<(f32, usize)> = (0..docs.count()).map(|row| (distance(row), row)).collect();
    let order = |a: &(f32, usize), b: &(f32, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    all.select_nth_unstable_by(k - 1, order);
    all.truncate(k);
    all.sort_unstable_by(order);
    all.into_iter().map(|(_, row)| row as u64).collect()
}

/// Eight running sums, so that the loop vectorises without reordering one sum.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    let (a_chunks, a_rest) = a.as_chunks::<8>();
    let (b_chunks, b_rest) = b.as_chunks::<8>();
    for (x, y) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..8 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum::<f32>()
}

/// Share of the first `k` true ids that were found.
pub fn recall_at_k(found: &[u64], truth: &[u64], k: usize) -> f64 {
    let truth = &truth[..k.min(truth.len())];
    let hits = truth.iter().filter(|id| found.iter().take(k).any(|found| found == *id)).count();
    hits as f64 / truth.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhaustive_search_of_each_metric() {
        let docs = Matrix { dim: 2, values: vec![1.0, 0.0, 0.0, 1.0, 5.0, 5.0, 1.0, 0.1] };
        let query = Matrix { dim: 2, values: vec![1.0, 0.0] };
        let ids = |metric| nearest(&docs, &query, 3, metric, 2).values;
        assert_eq!(ids(Metric::Cosine), [0, 3, 2]);
        assert_eq!(ids(Metric::L2), [0, 3, 1]);
        assert_eq!(ids(Metric::Dot), [2, 0, 3]);
    }

    #[test]
    fn threads_do_not_change_the_answer() {
        let docs = super::super::dataset::synthetic(500, 12, 3).unwrap();
        let queries = super::super::dataset::synthetic(7, 12, 4).unwrap();
        assert_eq!(nearest(&docs, &queries, 5, Metric::L2, 1), nearest(&docs, &queries, 5, Metric::L2, 4));
    }

    #[test]
    fn recall_counts_only_the_first_k() {
        assert_eq!(recall_at_k(&[1, 2, 3], &[1, 9, 2], 2), 0.5);
        assert_eq!(recall_at_k(&[1, 2], &[2, 1, 3], 2), 1.0);
        assert_eq!(recall_at_k(&[], &[1], 1), 0.0);
    }
}
