//! The server's own view of a load, from its metrics page: latency of searches, CPU time, memory.
//!
//! Latency measured by a client on the same machine contains the client's own waiting for a processor. The server
//! keeps a histogram from the last byte received to the answer handed to the socket; the difference of two pages is
//! the load in between.
use super::client::{Client, Target, encode};
use serde::Serialize;

// Names begin with what `-metrics-prefix` of the server says.
const SEARCH_SECONDS: &str = "_http_search_seconds_bucket{le=\"";
const CPU_SECONDS: &str = "_process_cpu_seconds_total";
const RESIDENT_BYTES: &str = "_process_resident_bytes";

/// One reading of the metrics page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Cumulative searches by upper bound in seconds, ascending; the last bound is infinite.
    searches: Vec<(f64, u64)>,
    cpu_s: Option<f64>,
    resident_bytes: Option<f64>,
}

impl Reading {
    /// Resident memory of the server.
    pub fn resident_bytes(&self) -> Option<f64> {
        self.resident_bytes
    }
}

/// The server during a load.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq)]
pub struct ServerSide {
    /// Searches answered.
    pub searches: u64,
    /// Median latency, microseconds; a percentile is the interpolated position in its bucket.
    pub p50_us: Option<f64>,
    /// 99th percentile, microseconds.
    pub p99_us: Option<f64>,
    /// 99.9th percentile, microseconds.
    pub p999_us: Option<f64>,
    /// CPU seconds used.
    pub cpu_s: Option<f64>,
    /// Searches per CPU second used.
    pub searches_per_cpu_s: Option<f64>,
    /// Resident bytes at the end.
    pub resident_bytes: Option<f64>,
}

/// Reads the metrics page.
///
/// # Errors
/// When it does not answer.
pub fn read(target: &Target) -> Result<Reading, String> {
    let mut client = Client::connect(target).map_err(|error| format!("connecting: {error}"))?;
    let request = encode(target, "GET", "/metrics", "text/plain", b"");
    let response = client.send(&request).map_err(|error| format!("metrics: {error}"))?;
    Ok(parse(&String::from_utf8_lossy(response.success("metrics")?)))
}

fn parse(page: &str) -> Reading {
    let mut reading = Reading::default();
    for line in page.lines() {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        let bucket = name.split_once(SEARCH_SECONDS);
        match bucket.and_then(|(_, bound)| bound.strip_suffix("\"}")) {
            Some("+Inf") => reading.searches.push((f64::INFINITY, value as u64)),
            Some(bound) => reading.searches.extend(bound.parse().ok().map(|bound| (bound, value as u64))),
            None if name.ends_with(CPU_SECONDS) => reading.cpu_s = Some(value),
            None if name.ends_with(RESIDENT_BYTES) => reading.resident_bytes = Some(value),
            None => {}
        }
    }
    reading.searches.sort_by(|a, b| a.0.total_cmp(&b.0));
    reading
}

/// What happened between two readings.
pub fn between(before: &Reading, after: &Reading) -> ServerSide {
    let earlier =
        |bound: f64| before.searches.iter().find(|(b, _)| *b == bound).map_or(0, |(_, count)| *count);
    let counts: Vec<(f64, u64)> =
        after.searches.iter().map(|&(bound, count)| (bound, count.saturating_sub(earlier(bound)))).collect();
    let searches = counts.last().map_or(0, |(_, count)| *count);
    let at = |quantile| (searches > 0).then(|| quantile_us(&counts, quantile));
    let cpu_s = after.cpu_s.zip(before.cpu_s).map(|(after, before)| after - before);
    ServerSide {
        searches,
        p50_us: at(0.5),
        p99_us: at(0.99),
        p999_us: at(0.999),
        cpu_s,
        searches_per_cpu_s: cpu_s.filter(|cpu| *cpu > 0.0).map(|cpu| searches as f64 / cpu),
        resident_bytes: after.resident_bytes,
    }
}

/// The latency in microseconds below which `quantile` of the cumulative `counts` lie.
fn quantile_us(counts: &[(f64, u64)], quantile: f64) -> f64 {
    let rank = quantile * counts.last().map_or(0, |(_, count)| *count) as f64;
    let (mut low, mut below) = (0.0, 0);
    for &(bound, count) in counts {
        if count as f64 >= rank && bound.is_finite() {
            let share = (rank - below as f64) / (count - below).max(1) as f64;
            return (low + (bound - low) * share) * 1e6;
        }
        if bound.is_finite() {
            (low, below) = (bound, count);
        }
    }
    low * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# TYPE svc_http_search_seconds histogram\n\
        svc_http_search_seconds_bucket{le=\"0.001\"} 10\n\
        svc_http_search_seconds_bucket{le=\"0.002\"} 90\n\
        svc_http_search_seconds_bucket{le=\"+Inf\"} 100\n\
        svc_http_search_seconds_sum 1\n\
        svc_process_cpu_seconds_total 2.5\n\
        svc_process_resident_bytes 4096\n";

    #[test]
    fn a_load_is_the_difference_of_two_readings() {
        let after = parse(PAGE);
        assert_eq!(after.searches, [(0.001, 10), (0.002, 90), (f64::INFINITY, 100)]);
        assert_eq!(parse(&PAGE.replace("svc_", "acme_")), after, "whatever its names begin with");
        let before = Reading { cpu_s: Some(0.5), ..Reading::default() };
        let whole = between(&before, &after);
        assert_eq!((whole.searches, whole.p50_us, whole.p99_us), (100, Some(1500.0), Some(2000.0)));
        assert_eq!((whole.cpu_s, whole.searches_per_cpu_s), (Some(2.0), Some(50.0)));
        assert_eq!(whole.resident_bytes, Some(4096.0));
        let nothing = between(&after, &after);
        assert_eq!((nothing.searches, nothing.p99_us, nothing.searches_per_cpu_s), (0, None, None));
        assert_eq!(parse("nonsense\n\n# x"), Reading::default());
    }
}
