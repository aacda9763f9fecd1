use super::*;
use crate::distance::{Kernel, padded, prepare};
use crate::random::SplitMix64;

const METRICS: [Metric; 3] = [Metric::Cosine, Metric::L2, Metric::Dot];

/// Vectors around some centres, with components of different size: what learned codes have something to learn from.
fn vectors(count: usize, dim: usize, seed: u64) -> Vec<f32> {
    let mut random = SplitMix64(seed);
    let centres: Vec<f32> = (0..16 * dim).map(|_| random.unit() as f32 - 0.3).collect();
    let one = |at: usize| {
        let centre = at * 7 % 16 * dim;
        (0..dim)
            .map(|i| centres[centre + i] + (random.unit() as f32 - 0.5) * (0.2 + i as f32 / dim as f32))
            .collect::<Vec<f32>>()
    };
    (0..count).flat_map(one).collect()
}

fn all(dim: usize) -> Vec<Quantization> {
    let parts = dim / 4;
    vec![
        Quantization::Scalar { width: Width::Eight },
        Quantization::Scalar { width: Width::Six },
        Quantization::Scalar { width: Width::Four },
        Quantization::Sign,
        Quantization::Product { parts, bits: 8, rotations: 0, eta: 0.0 },
        Quantization::Product { parts, bits: 4, rotations: 0, eta: 0.0 },
        Quantization::Product { parts, bits: 8, rotations: 2, eta: 0.0 },
        Quantization::Product { parts, bits: 8, rotations: 0, eta: 3.0 },
        Quantization::Residual { parts: parts / 2, layers: 2, rotations: 0 },
        Quantization::Residual { parts: parts / 2, layers: 2, rotations: 1 },
    ]
}

struct Bed {
    codec: Codec,
    rows: Arena<u8>,
    /// Padded and prepared.
    vectors: Vec<Vec<f32>>,
    dim: usize,
    kernel: Kernel,
}

impl Bed {
    fn new(quantization: Quantization, metric: Metric, count: usize, dim: usize) -> Bed {
        let vectors: Vec<Vec<f32>> =
            vectors(count, dim, 11).chunks_exact(dim).map(|raw| prepared(metric, raw)).collect();
        let sample: Vec<f32> = vectors.iter().flat_map(|vector| &vector[..dim]).copied().collect();
        let codec = Codec::train(quantization, metric, dim, &sample, 3);
        let mut rows = Arena::reserve(count, codec.code_len()).unwrap();
        for (slot, vector) in vectors.iter().enumerate() {
            codec.encode(&vector[..dim], rows.row_mut(slot));
        }
        Bed { codec, rows, vectors, dim, kernel: Kernel::of(metric) }
    }

    fn distances(&self, query: &[f32]) -> Vec<f32> {
        let slots: Vec<Slot> = (0..self.vectors.len() as Slot).collect();
        let mut out = vec![0.0; slots.len()];
        let mut prepared = CodecQuery::default();
        self.codec.query(query, &mut prepared);
        self.codec.distances(&prepared, &self.rows, &slots, &mut out);
        out
    }

    fn decoded(&self, slot: usize) -> Vec<f32> {
        let mut vector = vec![0.0; padded(self.dim)];
        self.codec.decode(self.rows.row(slot), &mut vector);
        vector
    }

    fn exact(&self, query: &[f32]) -> Vec<f32> {
        self.vectors.iter().map(|vector| self.kernel.distance(query, vector)).collect()
    }
}

fn prepared(metric: Metric, raw: &[f32]) -> Vec<f32> {
    let mut vector = vec![0.0; padded(raw.len())];
    prepare(metric, raw, &mut vector);
    vector
}

/// The `k` nearest.
fn nearest(distances: &[f32], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..distances.len()).collect();
    order.sort_by(|&a, &b| distances[a].total_cmp(&distances[b]).then(a.cmp(&b)));
    order.truncate(k);
    order
}

#[test]
fn what_was_learned_is_saved_and_damage_is_noticed() {
    let dim = 40;
    for metric in METRICS {
        for quantization in all(dim) {
            let sample = vectors(300, dim, 7);
            let codec = Codec::train(quantization, metric, dim, &sample, 3);
            let saved = codec.save();
            let loaded = Codec::load(quantization, metric, dim, &saved).expect("as it was saved");
            assert_eq!(loaded.save(), saved);
            let encoded = |codec: &Codec| {
                let mut rows = vec![0; 300 * codec.code_len()];
                codec.encode(&sample, &mut rows);
                rows
            };
            assert_eq!(encoded(&loaded), encoded(&codec), "{quantization:?}");
            for cut in [0, saved.len() / 2, saved.len() - 1] {
                assert!(Codec::load(quantization, metric, dim, &saved[..cut]).is_none(), "cut at {cut}");
            }
            assert!(Codec::load(quantization, metric, dim, &[&saved[..], &[0]].concat()).is_none());
        }
    }
}

#[test]
fn distances_are_those_of_what_codes_stand_for() {
    for metric in METRICS {
        for dim in [16, 40, 72] {
            for quantization in all(dim) {
                // A sign code is no vector: its products are scaled for themselves.
                if quantization == Quantization::Sign {
                    continue;
                }
                let bed = Bed::new(quantization, metric, 600, dim);
                for raw in vectors(5, dim, 12).chunks_exact(dim) {
                    let query = prepared(metric, raw);
                    let distances = bed.distances(&query);
                    // What a byte of the query stands for bounds how far a product may be off.
                    let scale = bed.exact(&query).iter().fold(1.0, |max: f32, x| max.max(x.abs()));
                    for (slot, &distance) in distances.iter().enumerate().step_by(17) {
                        let plain = bed.kernel.distance(&query, &bed.decoded(slot));
                        assert!(
                            (distance - plain).abs() < 0.02 * scale,
                            "{quantization:?} {metric:?} {dim}: {distance} {plain}"
                        );
                    }
                }
            }
        }
    }
}

fn codec_is_unbiased(quantization: Quantization) -> bool {
    matches!(quantization, Quantization::Scalar { .. } | Quantization::Sign)
}

/// Codes compared with codes are off from the distances of the vectors in no direction, and not much more than where only one of both is
/// a code.
#[test]
fn codes_are_compared_with_codes() {
    let dim = 128;
    for metric in METRICS {
        for quantization in all(dim) {
            let bed = Bed::new(quantization, metric, 400, dim);
            let slots: Vec<Slot> = (0..400).collect();
            let (mut one, mut both, mut bias, mut spread) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
            for slot in (0..400).step_by(29) {
                let exact = bed.exact(&bed.vectors[slot]);
                let (mut query, mut out) = (CodecQuery::default(), vec![0.0; 400]);
                bed.codec.query_code(bed.rows.row(slot), &mut query);
                bed.codec.distances(&query, &bed.rows, &slots, &mut out);
                let mean = exact.iter().sum::<f32>() / 400.0;
                for ((other, (&coded, &exact)), half) in
                    out.iter().zip(&exact).enumerate().zip(bed.distances(&bed.vectors[slot]))
                {
                    // Of a code with itself the errors are not independent.
                    if other != slot {
                        both += f64::from(coded - exact).powi(2);
                        one += f64::from(half - exact).powi(2);
                        bias += f64::from(coded - exact);
                        spread += f64::from(exact - mean).powi(2);
                    }
                }
            }
            let count = 14.0 * 399.0;
            let [one, both, spread] = [one, both, spread].map(|squares| (squares / count).sqrt());
            let case =
                format!("{quantization:?} {metric:?}: {both} after {one}, bias {} of {spread}", bias / count);
            assert!(both < 2.0 * one + 0.01 * spread, "{case}");
            // Centroids lie nearer to each other than vectors, by as much on average for all.
            let is_nearer = metric == Metric::L2 && !codec_is_unbiased(quantization);
            assert!((bias / count).abs() < 0.15 * spread || is_nearer && bias < 0.0, "{case}");
        }
    }
}

/// Mean share of the ten nearest that are among the `of` nearest by codes.
fn recall(bed: &Bed, queries: &[Vec<f32>], of: usize) -> f64 {
    let hits = queries.iter().map(|query| {
        let coded = nearest(&bed.distances(query), of);
        nearest(&bed.exact(query), 10).iter().filter(|slot| coded.contains(slot)).count()
    });
    hits.sum::<usize>() as f64 / (10 * queries.len()) as f64
}

#[test]
fn codes_find_the_nearest_under_every_metric() {
    let dim = 64;
    for metric in METRICS {
        let queries: Vec<Vec<f32>> =
            vectors(40, dim, 13).chunks_exact(dim).map(|raw| prepared(metric, raw)).collect();
        for quantization in all(dim) {
            let bed = Bed::new(quantization, metric, 3_000, dim);
            let (at_10, at_100) = (recall(&bed, &queries, 10), recall(&bed, &queries, 100));
            let least = match quantization {
                Quantization::Scalar { width: Width::Eight } => (0.93, 1.0),
                Quantization::Scalar { width: Width::Six } => (0.85, 1.0),
                Quantization::Scalar { .. } => (0.6, 0.99),
                Quantization::Sign => (0.15, 0.6),
                Quantization::Product { bits: 4, .. } => (0.2, 0.7),
                _ => (0.4, 0.9),
            };
            assert!(
                at_10 >= least.0 && at_100 >= least.1,
                "{quantization:?} {metric:?}: {at_10} {at_100}, at least {least:?}"
            );
        }
    }
}

#[test]
fn sizes_are_what_was_said() {
    for metric in METRICS {
        for quantization in all(384) {
            let codec = Codec::train(quantization, metric, 384, &vectors(20, 384, 1), 0);
            let said = quantization.code_len(metric, 384);
            assert!((said..said + 4).contains(&codec.code_len()), "{quantization:?} {metric:?}");
        }
    }
    let sizes = |quantization: Quantization| quantization.code_len(Metric::Cosine, 384);
    assert_eq!(
        all(384).into_iter().map(sizes).collect::<Vec<_>>(),
        [384, 288, 192, 52, 96, 48, 96, 96, 96, 96]
    );
}

#[test]
fn signs_estimate_products_without_bias() {
    let dim = 128;
    for metric in METRICS {
        let bed = Bed::new(Quantization::Sign, metric, 2_000, dim);
        let query = prepared(metric, &vectors(1, dim, 14));
        let (coded, exact) = (bed.distances(&query), bed.exact(&query));
        let errors: Vec<f64> = coded.iter().zip(&exact).map(|(a, b)| f64::from(a - b)).collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let deviation = (errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64).sqrt();
        let spread = exact.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b))
            - exact.iter().fold(f32::INFINITY, |a, &b| a.min(b));
        assert!(mean.abs() < 0.25 * deviation, "{metric:?}: {mean} of {deviation}");
        assert!(deviation < 0.2 * f64::from(spread), "{metric:?}: {deviation} of {spread}");
    }
}

#[test]
fn learned_rotations_and_layers_lose_less() {
    // Components that depend on each other across parts.
    let dim = 32;
    let mut rows = vectors(4_000, dim, 5);
    for row in rows.chunks_exact_mut(dim) {
        for at in 0..dim / 2 {
            row[dim / 2 + at] = 0.9 * row[at] + 0.1 * row[dim / 2 + at];
        }
    }
    let lost = |quantization| {
        let codec = Codec::train(quantization, Metric::L2, dim, &rows, 2);
        let (mut code, mut back) = (vec![0; codec.code_len()], vec![0.0; dim]);
        let each = rows.chunks_exact(dim).map(|row| {
            codec.encode(row, &mut code);
            codec.decode(&code, &mut back);
            row.iter().zip(&back).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>()
        });
        each.sum::<f64>()
    };
    let product = |rotations| Quantization::Product { parts: 4, bits: 8, rotations, eta: 0.0 };
    let (plain, learned) = (lost(product(0)), lost(product(6)));
    assert!(learned < 0.95 * plain, "{learned} {plain}");
    let layered = |layers| lost(Quantization::Residual { parts: 4, layers, rotations: 0 });
    assert!(layered(2) < 0.6 * layered(1) && layered(3) < layered(2));
}

#[test]
fn the_weighed_error_is_smaller_where_it_is_asked_for() {
    let (dim, eta) = (16, 4.0);
    let rows = vectors(3_000, dim, 6);
    let lost = |trained_for| {
        let quantization = Quantization::Product { parts: 2, bits: 4, rotations: 0, eta: trained_for };
        let codec = Codec::train(quantization, Metric::Cosine, dim, &rows, 2);
        let (mut code, mut back) = (vec![0; codec.code_len()], vec![0.0; dim]);
        let mut sum = 0.0;
        for row in rows.chunks_exact(dim) {
            codec.encode(row, &mut code);
            codec.decode(&code, &mut back);
            for (x, decoded) in row.chunks_exact(8).zip(back.chunks_exact(8)) {
                let squares: f32 = x.iter().map(|x| x * x).sum();
                let off: f32 = x.iter().zip(decoded).map(|(x, y)| (x - y) * (x - y)).sum();
                let along: f32 = x.iter().zip(decoded).map(|(x, y)| (x - y) * x).sum();
                sum += f64::from(off + (eta - 1.0) * along * along / squares);
            }
        }
        sum
    };
    let (plain, weighed) = (lost(0.0), lost(eta));
    assert!(weighed < plain, "{weighed} {plain}");
}

#[test]
fn samples_of_hardly_anything_train() {
    for metric in METRICS {
        for quantization in all(24) {
            for rows in [vec![0.0; 24], vec![0.5; 3 * 24], vectors(2, 24, 9)] {
                let codec = Codec::train(quantization, metric, 24, &rows, 1);
                let mut code = vec![0; codec.code_len()];
                codec.encode(&vectors(1, 24, 10), &mut code);
                let mut back = [f32::NAN; 24];
                codec.decode(&code, &mut back);
                assert!(back.iter().all(|x| x.is_finite()), "{quantization:?} {metric:?}");
            }
        }
    }
}

#[test]
fn training_is_a_function_of_sample_and_seed() {
    let rows = vectors(900, 32, 21);
    for quantization in all(32) {
        let code = || {
            let codec = Codec::train(quantization, Metric::L2, 32, &rows, 5);
            let mut all = vec![0; 900 * codec.code_len()];
            codec.encode(&rows, &mut all);
            let mut one = vec![0; codec.code_len()];
            for (row, code) in rows.chunks_exact(32).zip(all.chunks_exact(codec.code_len())) {
                codec.encode(row, &mut one);
                assert_eq!(one, code, "{quantization:?}: alone as among others");
            }
            all
        };
        assert_eq!(code(), code(), "{quantization:?}");
    }
}
