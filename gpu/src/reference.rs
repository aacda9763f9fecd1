//! Exact search on the CPU, in the plainest form: what every device must agree with.
use crate::device::{DeviceError, ExactDevice, Found, K_MAX};
use nigh_engine::distance::Metric;

/// Rows in ordinary memory, scored one by one.
#[derive(Clone, Debug)]
pub struct Reference {
    dim: usize,
    metric: Metric,
    rows: Vec<f32>,
}

impl Reference {
    /// An empty device for rows of `dim` values.
    ///
    /// # Panics
    /// When `dim` is 0.
    pub fn new(dim: usize, metric: Metric) -> Reference {
        assert!(dim > 0, "rows of no values have no distance");
        Reference { dim, metric, rows: Vec::new() }
    }

    fn whole_rows(&self, values: &[f32]) -> Result<(), DeviceError> {
        match values.len().is_multiple_of(self.dim) {
            true => Ok(()),
            false => Err(DeviceError::BadShape { values: values.len(), dim: self.dim }),
        }
    }

    /// Sums in f64, so that the reference is closer to the truth than what it judges.
    fn distance(&self, query: &[f32], row: &[f32]) -> f32 {
        let pairs = query.iter().zip(row).map(|(a, b)| (f64::from(*a), f64::from(*b)));
        let distance = match self.metric {
            Metric::Cosine => 1.0 - pairs.map(|(a, b)| a * b).sum::<f64>(),
            Metric::L2 => pairs.map(|(a, b)| (a - b) * (a - b)).sum(),
            Metric::Dot => -pairs.map(|(a, b)| a * b).sum::<f64>(),
        };
        distance as f32
    }
}

impl ExactDevice for Reference {
    fn name(&self) -> String {
        "cpu reference".into()
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn len(&self) -> usize {
        self.rows.len() / self.dim
    }

    fn append(&mut self, rows: &[f32]) -> Result<(), DeviceError> {
        self.whole_rows(rows)?;
        if u32::try_from((self.rows.len() + rows.len()) / self.dim).is_err() {
            return Err(DeviceError::BadShape { values: rows.len(), dim: self.dim });
        }
        self.rows.extend_from_slice(rows);
        Ok(())
    }

    fn search(&self, queries: &[f32], k: usize, live: &[u64]) -> Result<Vec<Vec<Found>>, DeviceError> {
        self.whole_rows(queries)?;
        if k == 0 || k > K_MAX {
            return Err(DeviceError::BadK(k));
        }
        let is_live = |row: usize| live.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1);
        let search_one = |query: &[f32]| {
            let rows = self.rows.chunks_exact(self.dim).enumerate().filter(|(row, _)| is_live(*row));
            let mut found: Vec<Found> = rows
                .map(|(row, values)| Found { row: row as u32, distance: self.distance(query, values) })
                .collect();
            found.sort_by(|a, b| a.distance.total_cmp(&b.distance).then(a.row.cmp(&b.row)));
            found.truncate(k);
            found
        };
        Ok(queries.chunks_exact(self.dim).map(search_one).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::open;

    const ALL: [u64; 1] = [u64::MAX];

    fn device(metric: Metric) -> Reference {
        let mut device = Reference::new(2, metric);
        device.append(&[1.0, 0.0, 0.0, 1.0]).unwrap();
        device.append(&[3.0, 0.0, 1.0, 0.0]).unwrap();
        device
    }

    fn rows(metric: Metric, query: [f32; 2], k: usize, live: &[u64]) -> Vec<u32> {
        let found = device(metric).search(&query, k, live).unwrap();
        found[0].iter().map(|found| found.row).collect()
    }

    #[test]
    fn nearest_first_ties_by_row() {
        assert_eq!(rows(Metric::L2, [1.0, 0.0], 4, &ALL), [0, 3, 1, 2]);
        assert_eq!(rows(Metric::Dot, [1.0, 0.0], 4, &ALL), [2, 0, 3, 1]);
        assert_eq!(rows(Metric::Cosine, [0.0, 1.0], 2, &ALL), [1, 0]);
    }

    #[test]
    fn dead_rows_are_passed_over() {
        assert_eq!(rows(Metric::L2, [1.0, 0.0], 4, &[0b1010]), [3, 1]);
        assert_eq!(rows(Metric::L2, [1.0, 0.0], 4, &[]), [0u32; 0]);
    }

    #[test]
    fn distances_are_the_engines() {
        use nigh_engine::distance::{LANES, padded};
        let kernel = |metric| nigh_engine::distance::Kernel::of(metric);
        let pad = |values: [f32; 2]| {
            let mut row = vec![0.0; padded(2)];
            row[..2].copy_from_slice(&values);
            assert_eq!(row.len() % LANES, 0);
            row
        };
        for metric in [Metric::Cosine, Metric::L2, Metric::Dot] {
            let ours = Reference::new(2, metric).distance(&[0.6, 0.8], &[0.8, -0.6]);
            let theirs = kernel(metric).distance(&pad([0.6, 0.8]), &pad([0.8, -0.6]));
            assert!((ours - theirs).abs() < 1e-6, "{metric:?}: {ours} {theirs}");
        }
    }

    #[test]
    fn bad_requests_are_named() {
        let device = device(Metric::L2);
        assert_eq!(device.search(&[0.0; 2], 0, &ALL), Err(DeviceError::BadK(0)));
        assert_eq!(device.search(&[0.0; 2], K_MAX + 1, &ALL), Err(DeviceError::BadK(K_MAX + 1)));
        assert_eq!(device.search(&[0.0; 3], 1, &ALL), Err(DeviceError::BadShape { values: 3, dim: 2 }));
        assert_eq!(
            Reference::new(2, Metric::L2).append(&[1.0]),
            Err(DeviceError::BadShape { values: 1, dim: 2 })
        );
    }

    #[test]
    fn no_device_in_this_build() {
        assert_eq!(open(2, Metric::L2).err(), Some(DeviceError::NotCompiled));
    }
}
