//! How long requests took: what every load records, and the percentiles that every report tells.
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Latencies above this are recorded as this.
const NS_MAX: u64 = 3_600_000_000_000;

/// A histogram that holds every latency we record, nanoseconds, to three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, NS_MAX, 3).expect("the bounds are constants that fit")
}

/// A latency as a [`histogram`] records it.
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(NS_MAX)
}

/// Latency in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Slowest.
    pub max_us: f64,
}

impl Latency {
    /// Percentiles of nanoseconds.
    pub fn of(nanos: &Histogram<u64>) -> Latency {
        let at = |quantile: f64| nanos.value_at_quantile(quantile) as f64 / 1000.0;
        Latency {
            mean_us: (nanos.mean() / 100.0).round() / 10.0,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: nanos.max() as f64 / 1000.0,
        }
    }
}
