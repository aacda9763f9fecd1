//! One bit a component: the signs of a rotated vector around the mean (RaBitQ: Gao, Long, arXiv:2405.12497).
//!
//! The code stands for a corner of a cube. Its product with a query, over its product with the vector itself, which the row
//! carries, is an estimate of the product of vector and query without bias.
use super::planar::{Planar, PlaneQuery, dot};
use super::rotation::Rotation;
use super::saved::{Saved, put_floats};
use crate::distance::{Metric, Width};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Sign {
    metric: Metric,
    mean: Vec<f32>,
    rotation: Rotation,
    /// The mean in the rotated space.
    rotated_mean: Vec<f32>,
    pub(super) planar: Planar,
}

impl Sign {
    pub(super) fn train(metric: Metric, dim: usize, rows: &[f32], seed: u64) -> Sign {
        let mut sums = vec![0.0_f64; dim];
        for row in rows.chunks_exact(dim) {
            sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
        }
        let count = (rows.len() / dim).max(1) as f64;
        let mean: Vec<f32> = sums.into_iter().map(|sum| (sum / count) as f32).collect();
        Sign::of(metric, mean, Rotation::random(dim, seed))
    }

    fn of(metric: Metric, mean: Vec<f32>, rotation: Rotation) -> Sign {
        // A row carries what its corner is to be multiplied with, and under L2 its squared distance from the mean.
        let factors = if metric == Metric::L2 { 2 } else { 1 };
        let planar = Planar::new(Width::One, mean.len(), factors);
        let mut rotated_mean = mean.clone();
        rotation.apply(&mut rotated_mean, &mut Vec::new());
        Sign { metric, mean, rotation, rotated_mean, planar }
    }

    pub(super) fn save(&self, out: &mut Vec<u8>) {
        put_floats(out, &self.mean);
        self.rotation.save(out);
    }

    pub(super) fn load(metric: Metric, dim: usize, saved: &mut Saved<'_>) -> Option<Sign> {
        let mean = saved.floats(dim)?;
        Some(Sign::of(metric, mean, Rotation::load(dim, saved)?))
    }

    pub(super) fn bytes(&self) -> usize {
        2 * size_of_val(&self.mean[..]) + self.rotation.bytes()
    }

    fn around_mean(&self, vector: &[f32]) -> Vec<f32> {
        let mut rest: Vec<f32> = vector.iter().zip(&self.mean).map(|(x, mean)| x - mean).collect();
        self.rotation.apply(&mut rest, &mut Vec::new());
        rest
    }

    pub(super) fn encode(&self, vector: &[f32], row: &mut [u8], codes: &mut Vec<u8>) {
        let rest = self.around_mean(vector);
        codes.clear();
        codes.extend(rest.iter().map(|&x| u8::from(x > 0.0)));
        let squares = rest.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
        let along = rest.iter().map(|&x| f64::from(x.abs())).sum::<f64>();
        let scale = if along > 0.0 { (squares / along) as f32 } else { 0.0 };
        match self.metric {
            Metric::L2 => self.planar.write(codes, &[scale, squares as f32], row),
            Metric::Cosine | Metric::Dot => self.planar.write(codes, &[scale], row),
        }
    }

    pub(super) fn decode(&self, row: &[u8], vector: &mut [f32]) {
        let mut codes = vec![0; vector.len()];
        Width::One.unpack(row, &mut codes);
        // The nearest multiple of the corner: shorter than what is right for products by the square of their cosine.
        let scale = self.planar.factor(row, 0);
        vector.iter_mut().zip(codes).for_each(|(x, code)| *x = if code == 1 { scale } else { -scale });
        self.rotation.revert(vector, &mut Vec::new());
        vector.iter_mut().zip(&self.mean).for_each(|(x, mean)| *x += mean);
    }

    pub(super) fn query(&self, vector: &[f32], query: &mut PlaneQuery) {
        let rotated = match self.metric {
            Metric::L2 => self.around_mean(vector),
            Metric::Cosine | Metric::Dot => {
                let mut rotated = vector.to_vec();
                self.rotation.apply(&mut rotated, &mut Vec::new());
                rotated
            }
        };
        query.set(&self.planar, rotated.iter().copied());
        let product = || vector.iter().zip(&self.mean).map(|(x, mean)| x * mean).sum::<f32>();
        query.base = match self.metric {
            Metric::L2 => rotated.iter().map(|x| x * x).sum(),
            Metric::Cosine => 1.0 - product(),
            Metric::Dot => -product(),
        };
    }

    /// As [`Self::query`] for what a row stands for, without a rotation. The corner has the length that makes products right, which is
    /// more than that of the vector, so under L2 the row says the latter.
    pub(super) fn query_code(&self, row: &[u8], query: &mut PlaneQuery, space: &mut Vec<f32>) {
        let scale = self.planar.factor(row, 0).to_bits();
        space.clear();
        space.resize(self.mean.len(), 0.0);
        for (eight, &byte) in space.chunks_mut(8).zip(row) {
            for (at, x) in eight.iter_mut().enumerate() {
                *x = f32::from_bits(scale ^ (u32::from(!byte >> at & 1) << 31));
            }
        }
        if self.metric != Metric::L2 {
            space.iter_mut().zip(&self.rotated_mean).for_each(|(x, mean)| *x += mean);
        }
        query.set(&self.planar, space.iter().copied());
        query.base = match self.metric {
            Metric::L2 => self.planar.factor(row, 1),
            Metric::Cosine => 1.0 - dot(space, &self.rotated_mean),
            Metric::Dot => -dot(space, &self.rotated_mean),
        };
    }

    /// From the sum over the bits that are set, and what the row carries.
    #[inline]
    pub(super) fn distance(&self, query: &PlaneQuery, sum: f32, row: &[u8]) -> f32 {
        // Set bits are +1, the others -1.
        let corner = query.factor * (2.0 * sum - query.total) * self.planar.factor(row, 0);
        match self.metric {
            Metric::L2 => query.base + self.planar.factor(row, 1) - 2.0 * corner,
            Metric::Cosine | Metric::Dot => query.base - corner,
        }
    }
}
