//! Exact search on the CPU, in the plainest form: what every device must agree with.
use nigh_engine::device::{DeviceError, ExactDevice, Found, check_queries, check_rows};
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

    /// Sums in f64, so that the reference is closer to the truth than what it judges. Zero has one sign and NaN one form, so that
    /// ties are ties.
    fn distance(&self, query: &[f32], row: &[f32]) -> f32 {
        let pairs = query.iter().zip(row).map(|(a, b)| (f64::from(*a), f64::from(*b)));
        let distance = match self.metric {
            Metric::Cosine => 1.0 - pairs.map(|(a, b)| a * b).sum::<f64>(),
            Metric::L2 => pairs.map(|(a, b)| (a - b) * (a - b)).sum(),
            Metric::Dot => -pairs.map(|(a, b)| a * b).sum::<f64>(),
        };
        if distance.is_nan() { f32::NAN.abs() } else { distance as f32 + 0.0 }
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

    fn write(&mut self, rows: &[u32], values: &[f32]) -> Result<(), DeviceError> {
        check_rows(self.dim, rows, values)?;
        let grown = rows.iter().max().map_or(0, |&row| (row as usize + 1) * self.dim);
        if grown > self.rows.len() {
            let bytes = (grown - self.rows.len()) * size_of::<f32>();
            let more = self.rows.try_reserve(grown - self.rows.len());
            more.map_err(|_| DeviceError::OutOfMemory { bytes })?;
            self.rows.resize(grown, 0.0);
        }
        for (&row, values) in rows.iter().zip(values.chunks_exact(self.dim)) {
            self.rows[row as usize * self.dim..][..self.dim].copy_from_slice(values);
        }
        Ok(())
    }

    fn search(&mut self, queries: &[f32], k: usize, live: &[u64]) -> Result<Vec<Vec<Found>>, DeviceError> {
        check_queries(self.dim, queries, k)?;
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

    #[test]
    fn distances_are_the_engines() {
        use nigh_engine::distance::{Kernel, LANES, padded};
        let pad = |values: [f32; 2]| {
            let mut row = vec![0.0; padded(2)];
            row[..2].copy_from_slice(&values);
            assert_eq!(row.len() % LANES, 0);
            row
        };
        for metric in [Metric::Cosine, Metric::L2, Metric::Dot] {
            let ours = Reference::new(2, metric).distance(&[0.6, 0.8], &[0.8, -0.6]);
            let theirs = Kernel::of(metric).distance(&pad([0.6, 0.8]), &pad([0.8, -0.6]));
            assert!((ours - theirs).abs() < 1e-6, "{metric:?}: {ours} {theirs}");
        }
    }

    #[test]
    fn zero_has_one_sign_and_nan_sorts_last() {
        let dot = Reference::new(1, Metric::Dot);
        assert_eq!(dot.distance(&[0.0], &[1.0]).to_bits(), 0.0f32.to_bits());
        let nan = dot.distance(&[f32::INFINITY], &[0.0]);
        assert!(nan.total_cmp(&f32::INFINITY).is_gt());
    }
}
