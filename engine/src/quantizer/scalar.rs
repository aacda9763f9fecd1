//! Scalar quantization: each component in equal steps between two ends of its own.
use super::planar::{Planar, PlaneQuery};
use super::saved::{Saved, put_floats};
use crate::distance::{Metric, Width};

/// Ends of a component may be no nearer.
const RANGE_MIN: f32 = 1e-6;
/// Shares of the range of a component that are tried: steps of few bits lose less when they leave out what is rare at its ends.
const SHARES: [f32; 7] = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4];

/// `component = low + step * code`.
#[derive(Clone, Debug)]
pub(super) struct Scalar {
    metric: Metric,
    low: Vec<f32>,
    step: Vec<f32>,
    pub(super) planar: Planar,
}

impl Scalar {
    pub(super) fn train(metric: Metric, width: Width, dim: usize, rows: &[f32]) -> Scalar {
        let mut values = Vec::new();
        let (mut low, mut step) = (Vec::with_capacity(dim), Vec::with_capacity(dim));
        for at in 0..dim {
            values.clear();
            values.extend(rows.iter().skip(at).step_by(dim));
            let (from, to) = range(&values, width);
            low.push(from);
            step.push((to - from) / f32::from(width.largest()));
        }
        Scalar::of(metric, width, low, step)
    }

    fn of(metric: Metric, width: Width, low: Vec<f32>, step: Vec<f32>) -> Scalar {
        // Under L2 a row carries the squared length of what its code stands for.
        let factors = usize::from(metric == Metric::L2);
        let planar = Planar::new(width, low.len(), factors);
        Scalar { metric, low, step, planar }
    }

    pub(super) fn save(&self, out: &mut Vec<u8>) {
        put_floats(out, &self.low);
        put_floats(out, &self.step);
    }

    pub(super) fn load(metric: Metric, width: Width, dim: usize, saved: &mut Saved<'_>) -> Option<Scalar> {
        let (low, step) = (saved.floats(dim)?, saved.floats(dim)?);
        step.iter().all(|&step| step > 0.0).then(|| Scalar::of(metric, width, low, step))
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.low[..]) + size_of_val(&self.step[..])
    }

    pub(super) fn encode(&self, vector: &[f32], row: &mut [u8], codes: &mut Vec<u8>) {
        let largest = f32::from(self.planar.width.largest());
        let ends = self.low.iter().zip(&self.step);
        codes.clear();
        codes.extend(
            vector
                .iter()
                .zip(ends)
                .map(|(x, (low, step))| ((x - low) / step).round().clamp(0.0, largest) as u8),
        );
        let length = || {
            let parts =
                codes.iter().zip(&self.step).map(|(&code, step)| f64::from(step * f32::from(code)).powi(2));
            parts.sum::<f64>() as f32
        };
        match self.metric {
            Metric::L2 => self.planar.write(codes, &[length()], row),
            Metric::Cosine | Metric::Dot => self.planar.write(codes, &[], row),
        }
    }

    pub(super) fn decode(&self, row: &[u8], vector: &mut [f32]) {
        let mut codes = vec![0; vector.len()];
        self.planar.width.unpack(row, &mut codes);
        let ends = self.low.iter().zip(&self.step);
        for ((x, code), (low, step)) in vector.iter_mut().zip(codes).zip(ends) {
            *x = low + step * f32::from(code);
        }
    }

    pub(super) fn query(&self, vector: &[f32], query: &mut PlaneQuery) {
        let from_low = || vector.iter().zip(&self.low).map(|(x, low)| x - low);
        let product = || vector.iter().zip(&self.low).map(|(x, low)| x * low).sum::<f32>();
        match self.metric {
            Metric::L2 => {
                query.set(&self.planar, from_low().zip(&self.step).map(|(x, step)| x * step));
                query.base = from_low().map(|x| x * x).sum();
                query.factor *= -2.0;
            }
            metric => {
                query.set(&self.planar, vector.iter().zip(&self.step).map(|(x, step)| x * step));
                query.base = if metric == Metric::Cosine { 1.0 - product() } else { -product() };
                query.factor = -query.factor;
            }
        }
    }

    /// From a sum, and what the row carries.
    #[inline]
    pub(super) fn distance(&self, query: &PlaneQuery, sum: f32, row: &[u8]) -> f32 {
        let near = query.base + query.factor * sum;
        if self.metric == Metric::L2 { near + self.planar.factor(row, 0) } else { near }
    }
}

/// Ends for which the codes of `values` lose least.
fn range(values: &[f32], width: Width) -> (f32, f32) {
    let (low, high) =
        values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)));
    let middle = 0.5 * (low + high);
    let ends = |share: f32| {
        let half = (0.5 * share * (high - low)).max(0.5 * RANGE_MIN);
        (middle - half, middle + half)
    };
    // Eight bits lose more to what is left out than they gain.
    if width == Width::Eight {
        return ends(1.0);
    }
    let largest = f32::from(width.largest());
    let lost = |(low, high): (f32, f32)| {
        let step = (high - low) / largest;
        let off = |x: f32| x - (low + step * ((x - low) / step).round().clamp(0.0, largest));
        values.iter().map(|&x| f64::from(off(x)).powi(2)).sum::<f64>()
    };
    let tried = SHARES.into_iter().map(|share| (lost(ends(share)), ends(share)));
    tried.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(ends(1.0), |(_, ends)| ends)
}
