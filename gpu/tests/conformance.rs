//! What every device must do. Runs against the reference always, and against the first device where the build and the machine have
//! one; where not it prints why.
use nigh_engine::distance::Metric;
use nigh_gpu::{DeviceError, ExactDevice, Found, K_MAX, Reference, open};

const METRICS: [Metric; 3] = [Metric::Cosine, Metric::L2, Metric::Dot];
const ALL: [u64; 64] = [u64::MAX; 64];

/// A generator that needs no crate: xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Values in -1..1, normalised row by row under cosine.
    fn rows(&mut self, metric: Metric, rows: usize, dim: usize) -> Vec<f32> {
        let mut values: Vec<f32> =
            (0..rows * dim).map(|_| (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect();
        if metric == Metric::Cosine {
            for row in values.chunks_exact_mut(dim) {
                let norm = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt() as f32;
                row.iter_mut().for_each(|x| *x /= norm);
            }
        }
        values
    }
}

/// Runs `check` against the reference and, where there is one, against the device.
fn on_all(dim: usize, metric: Metric, mut check: impl FnMut(&mut dyn ExactDevice)) {
    check(&mut Reference::new(dim, metric));
    match open(dim, metric) {
        Ok(mut device) => check(&mut *device),
        Err(error) => {
            // A machine that is meant to have one says so, and then a missing one is a failure.
            assert!(std::env::var_os("NIGH_GPU_REQUIRED").is_none(), "{error}");
            println!("skipped on a device: {error}");
        }
    }
}

fn rows_of(found: &[Found]) -> Vec<u32> {
    found.iter().map(|found| found.row).collect()
}

/// The same distances within rounding, and the same rows but for those that rounding may exchange.
fn assert_same(ours: &[Vec<Found>], theirs: &[Vec<Found>], tolerance: f32, what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (query, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(ours.len(), theirs.len(), "{what}, query {query}");
        let mut seen = std::collections::HashSet::new();
        for (rank, (our, their)) in ours.iter().zip(theirs).enumerate() {
            let near = (our.distance - their.distance).abs() <= tolerance;
            assert!(near, "{what}, query {query}, rank {rank}: {our:?} {their:?}");
            assert!(seen.insert(our.row), "{what}, query {query}: row {} twice", our.row);
            if our.row != their.row {
                // Then both lists have it, at the same distance, or it lies at the end.
                let same = theirs.iter().find(|found| found.row == our.row);
                let end = theirs.last().map_or(0.0, |last| last.distance);
                let near = same.map_or(end, |same| same.distance) - our.distance;
                assert!(near.abs() <= tolerance, "{what}, query {query}, rank {rank}: {our:?} {their:?}");
            }
        }
    }
}

#[test]
fn nearest_first_ties_by_row() {
    for (metric, query, k, expected) in [
        (Metric::L2, [1.0, 0.0], 4, vec![0, 3, 1, 2]),
        (Metric::Dot, [1.0, 0.0], 4, vec![2, 0, 3, 1]),
        (Metric::Cosine, [0.0, 1.0], 2, vec![1, 0]),
        (Metric::Dot, [0.0, 0.0], 4, vec![0, 1, 2, 3]),
    ] {
        on_all(2, metric, |device| {
            device.write(&[0, 1], &[1.0, 0.0, 0.0, 1.0]).unwrap();
            device.write(&[2, 3], &[3.0, 0.0, 1.0, 0.0]).unwrap();
            assert_eq!(rows_of(&device.search(&query, k, &ALL).unwrap()[0]), expected, "{metric:?}");
        });
    }
}

#[test]
fn rows_whose_bit_is_missing_or_zero_are_passed_over() {
    on_all(2, Metric::L2, |device| {
        device.write(&[0, 1, 2, 3], &[1.0, 0.0, 0.0, 1.0, 3.0, 0.0, 1.0, 0.0]).unwrap();
        assert_eq!(rows_of(&device.search(&[1.0, 0.0], 4, &[0b1010]).unwrap()[0]), [3, 1]);
        assert_eq!(rows_of(&device.search(&[1.0, 0.0], 4, &[]).unwrap()[0]), [0u32; 0]);
        assert_eq!(rows_of(&device.search(&[1.0, 0.0], 4, &[0]).unwrap()[0]), [0u32; 0]);
        // Bits beyond the rows name nothing.
        assert_eq!(device.search(&[1.0, 0.0], K_MAX, &ALL).unwrap()[0].len(), 4);
        device.write(&[70], &[1.0, 0.0]).unwrap();
        assert_eq!(rows_of(&device.search(&[1.0, 0.0], 1, &[0, 1 << 6]).unwrap()[0]), [70]);
        assert_eq!(device.search(&[1.0, 0.0], 9, &[0b1]).unwrap()[0].len(), 1);
    });
}

#[test]
fn rows_are_written_over_and_beyond() {
    on_all(3, Metric::L2, |device| {
        assert!(device.is_empty());
        assert_eq!(device.search(&[0.0; 3], 5, &ALL), Ok(vec![vec![]]));
        device.write(&[], &[]).unwrap();
        device.write(&[4], &[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((device.len(), device.dim()), (5, 3));
        // What was jumped over is zero.
        let found = device.search(&[0.0; 3], 9, &ALL).unwrap().remove(0);
        assert_eq!(rows_of(&found), [0, 1, 2, 3, 4]);
        assert_eq!((found[0].distance, found[4].distance), (0.0, 14.0));
        // The later write of a row in one call counts.
        device.write(&[1, 4, 1], &[9.0, 9.0, 9.0, 0.0, 0.0, 1.0, 5.0, 0.0, 0.0]).unwrap();
        let found = device.search(&[0.0; 3], 9, &ALL).unwrap().remove(0);
        assert_eq!(rows_of(&found), [0, 2, 3, 4, 1]);
        assert_eq!((found[3].distance, found[4].distance), (1.0, 25.0));
    });
}

#[test]
fn bad_requests_are_named_and_change_nothing() {
    on_all(2, Metric::L2, |device| {
        device.write(&[0], &[1.0, 1.0]).unwrap();
        let shape = |values, rows| DeviceError::BadShape { values, rows, dim: 2 };
        assert_eq!(device.search(&[0.0; 2], 0, &ALL), Err(DeviceError::BadK(0)));
        assert_eq!(device.search(&[0.0; 2], K_MAX + 1, &ALL), Err(DeviceError::BadK(K_MAX + 1)));
        assert_eq!(device.search(&[0.0; 3], 1, &ALL), Err(shape(3, 1)));
        assert_eq!(device.write(&[1], &[1.0]), Err(shape(1, 1)));
        assert_eq!(device.write(&[1, 2], &[1.0; 2]), Err(shape(2, 2)));
        assert_eq!(device.write(&[u32::MAX], &[1.0; 2]), Err(DeviceError::BadRow(u32::MAX)));
        assert_eq!(device.len(), 1);
        assert_eq!(device.search(&[], 1, &ALL), Ok(vec![]));
    });
}

#[test]
fn many_rows_queries_and_lengths_agree_with_the_reference() {
    // Rows around a group, a block, a segment of the selection and several chunks; lengths around a quad and a tile.
    for (dim, rows) in
        [(1, 31), (3, 33), (4, 129), (5, 2048), (17, 2049), (255, 300), (257, 5000), (768, 9000)]
    {
        for metric in METRICS {
            let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (dim * 1_000_003 + rows) as u64);
            let values = random.rows(metric, rows, dim);
            let queries = random.rows(metric, 19, dim);
            let live: Vec<u64> = (0..rows.div_ceil(64)).map(|_| random.next() | random.next()).collect();
            let mut reference = Reference::new(dim, metric);
            let numbers: Vec<u32> = (0..rows as u32).collect();
            reference.write(&numbers, &values).unwrap();
            on_all(dim, metric, |device| {
                for (numbers, values) in numbers.chunks(777).zip(values.chunks(777 * dim)) {
                    device.write(numbers, values).unwrap();
                }
                for (count, k) in [(1, 1), (1, 10), (2, K_MAX), (8, 100), (9, 256), (19, 3)] {
                    let queries = &queries[..count * dim];
                    let what = format!("{metric:?}, {rows} rows of {dim}, {count} queries, k {k}");
                    let expected = reference.search(queries, k, &live).unwrap();
                    let found = device.search(queries, k, &live).unwrap();
                    assert_same(&found, &expected, 1e-6 * dim as f32 + 1e-6, &what);
                }
            });
        }
    }
}

/// As slots are used: written, given up, written again, searched in between.
#[test]
fn a_history_of_writes_agrees_with_the_reference() {
    const DIM: usize = 20;
    for metric in METRICS {
        on_all(DIM, metric, |device| {
            let mut random = Random(77);
            let mut reference = Reference::new(DIM, metric);
            let mut live = vec![0u64; 3000usize.div_ceil(64)];
            for step in 0..40 {
                let rows: Vec<u32> = (0..random.below(200)).map(|_| random.below(3000) as u32).collect();
                let values = random.rows(metric, rows.len(), DIM);
                device.write(&rows, &values).unwrap();
                reference.write(&rows, &values).unwrap();
                rows.iter().for_each(|row| live[*row as usize / 64] |= 1 << (row % 64));
                for _ in 0..60 {
                    let row = random.below(3000);
                    live[row / 64] &= !(1 << (row % 64));
                }
                let queries = random.rows(metric, 3, DIM);
                let expected = reference.search(&queries, 17, &live).unwrap();
                let found = device.search(&queries, 17, &live).unwrap();
                assert_same(&found, &expected, 1e-4, &format!("{metric:?}, step {step}"));
                assert_eq!(device.len(), reference.len());
            }
        });
    }
}

#[test]
fn without_the_feature_there_is_no_device() {
    if cfg!(not(feature = "cuda")) {
        assert_eq!(open(2, Metric::L2).err(), Some(DeviceError::NotCompiled));
    }
}
