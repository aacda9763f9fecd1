//! Every level this CPU runs, against sums taken in f64 (floats) and in plain integers (codes).
use proptest::prelude::*;

use super::*;

const METRICS: [Metric; 3] = [Metric::Cosine, Metric::L2, Metric::Dot];

fn pad(v: &[f32]) -> Vec<f32> {
    let mut row = vec![0.0; padded(v.len())];
    prepare(Metric::Dot, v, &mut row);
    row
}

/// The distance in f64, and the size of the summed terms (which bounds the rounding error of any order).
fn exact(metric: Metric, a: &[f32], b: &[f32]) -> (f64, f64) {
    let terms = a.iter().zip(b).map(|(&a, &b)| (f64::from(a), f64::from(b)));
    let terms = terms.map(|(a, b)| if metric == Metric::L2 { (a - b) * (a - b) } else { a * b });
    let (sum, magnitude) = terms.fold((0.0, 0.0), |(s, m), t| (s + t, m + t.abs()));
    match metric {
        Metric::Cosine => (1.0 - sum, 1.0 + magnitude),
        Metric::L2 => (sum, magnitude),
        Metric::Dot => (-sum, magnitude),
    }
}

fn levels(metric: Metric) -> impl Iterator<Item = (SimdLevel, Kernel)> {
    SimdLevel::ALL.into_iter().filter_map(move |level| Some((level, Kernel::at_level(metric, level)?)))
}

fn check_pair(a: &[f32], b: &[f32]) {
    let (a, b) = (pad(a), pad(b));
    for metric in METRICS {
        let (expected, magnitude) = exact(metric, &a, &b);
        for (level, kernel) in levels(metric) {
            let got = f64::from(kernel.distance(&a, &b));
            let tolerance = magnitude * 1e-6 * (a.len() as f64).sqrt() + 1e-37;
            assert!((got - expected).abs() <= tolerance, "{level:?} {metric:?}: {got} for {expected}");
        }
    }
}

#[test]
fn some_level_runs_and_scalar_always_does() {
    assert!(SimdLevel::Scalar.kernels().is_some());
    assert!(SimdLevel::best().kernels().is_some());
    assert_eq!(simd_level(), SimdLevel::best().name());
}

#[test]
fn small_cases() {
    check_pair(&[1.0, 2.0, 3.0], &[4.0, -5.0, 6.0]);
    for dim in [1, 15, 16, 17, 31, 32, 33, 48, 64, 80, 96, 128, 384, 385] {
        let a: Vec<f32> = (0..dim).map(|i| i as f32 * 0.5 - 3.0).collect();
        let b: Vec<f32> = (0..dim).map(|i| 7.0 - i as f32 * 0.25).collect();
        check_pair(&a, &b);
    }
}

#[test]
fn overflow_gives_infinity_and_nan_stays_nan_at_every_level() {
    let (huge, nan) = (pad(&[3e38; 20]), pad(&[f32::NAN; 20]));
    for (level, kernel) in levels(Metric::Dot) {
        assert_eq!(kernel.distance(&huge, &huge), f32::NEG_INFINITY, "{level:?}");
        assert!(kernel.distance(&nan, &huge).is_nan(), "{level:?}");
    }
    for (level, kernel) in levels(Metric::L2) {
        assert_eq!(kernel.distance(&huge, &huge), 0.0, "{level:?}");
        assert_eq!(kernel.distance(&huge, &pad(&[-3e38; 20])), f32::INFINITY, "{level:?}");
    }
}

#[test]
#[should_panic(expected = "equal multiples")]
fn lengths_must_agree() {
    Kernel::of(Metric::L2).distance(&[0.0; 16], &[0.0; 32]);
}

fn component() -> impl Strategy<Value = f32> {
    prop_oneof![6 => -1.0f32..1.0, 1 => -1e15f32..1e15, 1 => -1e-15f32..1e-15, 1 => Just(0.0), 1 => Just(1e-40)]
}

fn rows() -> impl Strategy<Value = (usize, Vec<f32>, Vec<u32>)> {
    (1usize..200, 1usize..24).prop_flat_map(|(dim, count)| {
        let floats = prop::collection::vec(component(), dim * (count + 1));
        (Just(dim), floats, prop::collection::vec(0..count as u32, 0..40))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn pairs_match_sums_in_f64((dim, floats, _) in rows()) {
        let (a, rest) = floats.split_at(dim);
        check_pair(a, &rest[..dim]);
    }

    #[test]
    fn many_rows_and_single_pairs_are_bit_identical((dim, floats, slots) in rows()) {
        let len = padded(dim);
        let query = pad(&floats[..dim]);
        let table: Vec<f32> = floats[dim..].chunks(dim).flat_map(pad).collect();
        for metric in METRICS {
            for (level, kernel) in levels(metric) {
                let mut out = vec![0.0; slots.len()];
                kernel.distances(&query, RowTable::of(&table, len), &slots, &mut out);
                for (&slot, got) in slots.iter().zip(&out) {
                    let row = &table[slot as usize * len..][..len];
                    prop_assert_eq!(kernel.distance(&query, row).to_bits(), got.to_bits(), "{:?}", level);
                }
            }
        }
    }

    #[test]
    fn code_distances_are_those_of_the_decoded_vectors(
        rows in prop::collection::vec((any::<i8>(), any::<i8>(), any::<i8>()), 1..700),
        step in prop_oneof![Just(1.0f32), Just(0.5), Just(0.0625)],
        extreme: bool,
    ) {
        let stretch = |c: i8| f32::from(if extreme && c != 0 { 127 * c.signum() } else { c.max(-127) }) * step;
        // The largest component is 127 steps, so that the query's own step is the table's and its code is exact.
        let mut query: Vec<f32> = rows.iter().map(|r| stretch(r.0)).collect();
        query[0] = 127.0 * step;
        let vectors: [Vec<f32>; 2] = [
            rows.iter().map(|r| stretch(r.1)).collect(),
            rows.iter().map(|r| stretch(r.2)).collect(),
        ];
        let len = padded_code(rows.len());
        let mut table = vec![0; 2 * len];
        for (vector, row) in vectors.iter().zip(table.chunks_mut(len)) {
            prop_assert_eq!(encode(vector, step, row), 0.0);
        }
        let slots = [1u32, 0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0];
        for metric in METRICS {
            let exact = |a: &[f32], b: &[f32]| -> f64 {
                let sum = |f: fn(f64, f64) -> f64| a.iter().zip(b).map(|(&a, &b)| f(a.into(), b.into())).sum::<f64>();
                match metric {
                    Metric::Cosine => 1.0 - sum(|a, b| a * b),
                    Metric::L2 => sum(|a, b| (a - b) * (a - b)),
                    Metric::Dot => -sum(|a, b| a * b),
                }
            };
            let (mut coded, mut first) = (CodeQuery::default(), CodeQuery::default());
            coded.set(metric, &query, step);
            first.set_row(metric, &table[..len], step);
            for level in SimdLevel::ALL {
                let Some(kernel) = CodeKernel::at_level(metric, level) else { continue };
                let mut out = [f32::NAN; 12];
                kernel.distances(&coded, RowTable::of(&table, len), &slots, &mut out);
                for (&slot, &got) in slots.iter().zip(&out) {
                    let expected = exact(&query, &vectors[slot as usize]);
                    prop_assert!((f64::from(got) - expected).abs() <= 1e-6 * expected.abs(), "{level:?} {metric:?}");
                }
                kernel.distances(&first, RowTable::of(&table, len), &slots, &mut out);
                let (a, b) = table.split_at(len);
                prop_assert_eq!(kernel.between(a, b, step).to_bits(), out[0].to_bits(), "{:?}", level);
                prop_assert_eq!(kernel.between(b, a, step).to_bits(), out[0].to_bits());
                prop_assert_eq!(kernel.between(a, a, step).to_bits(), out[1].to_bits());
            }
        }
    }

    #[test]
    fn codes_are_the_nearest_ones(vector in prop::collection::vec(-3.0f32..3.0, 1..100), step in 0.001f32..0.1) {
        let mut row = vec![0; padded_code(vector.len())];
        let error = encode(&vector, step, &mut row);
        let mut expected = 0.0;
        for (&byte, &component) in row.iter().zip(&vector) {
            let code = f32::from(byte) - 128.0;
            let lost = (component - code * step).abs();
            prop_assert!(lost <= 0.5001 * step || code.abs() == 127.0 && component.abs() > 127.0 * step);
            expected += lost * lost;
        }
        prop_assert!((error - expected).abs() <= 1e-3 * expected);
        prop_assert!((encoding_error([vector.as_slice()].into_iter(), step) - f64::from(error)).abs() <= 1e-3 * f64::from(error));
        prop_assert!(row[vector.len()..].iter().all(|&byte| byte == 128));
    }

    #[test]
    fn prepared_cosine_rows_have_unit_length(
        v in prop::collection::vec(-1.0f32..1.0, 1..100),
        scale in prop_oneof![Just(1e-38f32), Just(1e-23), Just(1.0), Just(1e19), Just(1e38)],
    ) {
        let v: Vec<f32> = v.iter().map(|x| x * scale).collect();
        prop_assume!(v.iter().any(|x| x.abs() > scale * 1e-3));
        let mut row = vec![7.0; padded(v.len())];
        prepare(Metric::Cosine, &v, &mut row);
        let norm = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
        prop_assert!((norm - 1.0).abs() < 1e-5, "norm {norm}");
        prop_assert!(row[v.len()..].iter().all(|&x| x == 0.0));
        prop_assert!(Kernel::of(Metric::Cosine).distance(&row, &row).abs() < 1e-5);
    }
}

#[test]
fn zero_vector_stays_zero_at_distance_one() {
    let mut row = [5.0; LANES];
    prepare(Metric::Cosine, &[0.0; 9], &mut row);
    assert_eq!(row, [0.0; LANES]);
    assert_eq!(Kernel::of(Metric::Cosine).distance(&row, &[0.25; LANES]), 1.0);
}
