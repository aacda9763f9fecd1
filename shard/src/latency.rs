//! How long operations took, counted in buckets with fixed bounds: the only histogram of the server.
//!
//! `hdrhistogram`, with which the load generators record, does not fit here. It takes `&mut`, so each core would have one of its own where
//! all cores count into one [`Latency`] now, and it is larger: 3 KiB for values up to 100 s at one significant digit, 21 KiB at two. For
//! 10,000 collections on 16 cores with two histograms each that is 1 GiB at one digit; the ten buckets of [`OPERATION_BOUNDS_US`] take
//! 96 bytes, 2 MB in all. Counting takes 5 ns here and 3.5 ns there, once per search or write. The metrics page needs fixed bounds anyway,
//! because Prometheus adds the buckets of processes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets of operations on a collection, microseconds (interface).
pub const OPERATION_BOUNDS_US: [u64; 9] =
    [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// How often durations lay between bounds that ascend. Any core counts, any core reads.
pub struct Latency<const N: usize> {
    bounds_us: &'static [u64; N],
    /// Each counts what lies below its bound and not below the one before it.
    counts: [AtomicU64; N],
    /// What lies below no bound.
    longer: AtomicU64,
    sum_us: AtomicU64,
}

impl<const N: usize> Latency<N> {
    /// Without any duration yet; `bounds_us` ascend.
    pub const fn new(bounds_us: &'static [u64; N]) -> Self {
        Latency {
            bounds_us,
            counts: [const { AtomicU64::new(0) }; N],
            longer: AtomicU64::new(0),
            sum_us: AtomicU64::new(0),
        }
    }

    /// Counts a duration.
    pub fn record(&self, took: Duration) {
        self.record_us(took.as_micros() as u64);
    }

    /// Counts a duration in microseconds.
    pub fn record_us(&self, us: u64) {
        let bucket = self.bounds_us.partition_point(|bound| *bound <= us);
        self.counts.get(bucket).unwrap_or(&self.longer).fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }

    /// What has been counted so far. What others count meanwhile may be in some of the figures and not in others.
    pub fn counted(&self) -> Counted<N> {
        let mut counted = Counted::default();
        let mut total = 0;
        for (below, count) in counted.below.iter_mut().zip(&self.counts) {
            total += count.load(Relaxed);
            *below = total;
        }
        counted.all = total + self.longer.load(Relaxed);
        counted.sum_us = self.sum_us.load(Relaxed);
        counted
    }
}

/// What a [`Latency`] has counted, as the metrics page shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<const N: usize> {
    /// For each bound: the durations below it.
    pub below: [u64; N],
    /// All durations.
    pub all: u64,
    /// Their sum, microseconds.
    pub sum_us: u64,
}

impl<const N: usize> Default for Counted<N> {
    fn default() -> Self {
        Counted { below: [0; N], all: 0, sum_us: 0 }
    }
}

impl<const N: usize> Counted<N> {
    /// Both together; their bounds are the same.
    pub fn and(mut self, other: &Self) -> Self {
        self.below.iter_mut().zip(other.below).for_each(|(below, more)| *below += more);
        self.all += other.all;
        self.sum_us += other.sum_us;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_buckets_are_cumulative_with_strict_bounds() {
        let latency = Latency::new(&OPERATION_BOUNDS_US);
        for us in [0, 1, 9, 10, 1_000_000_000] {
            latency.record_us(us);
        }
        let counted = latency.counted();
        assert_eq!(&counted.below[..3], &[1, 3, 4]);
        assert_eq!(counted.all, 5);
        assert_eq!(counted.sum_us, 1_000_000_020);
        latency.record(Duration::from_secs(99));
        let both = latency.counted().and(&counted);
        assert_eq!((both.below[0], both.below[8], both.all, both.sum_us), (2, 9, 11, 2_099_000_040));
    }
}
