//! The server's own view of a load: latency of searches from its metrics page, CPU time from its process.
//!
//! Latency measured by a client on the same machine contains the client's own waiting for a processor. The server
//! keeps a histogram from the last byte received to the answer handed to the socket; the difference of two scrapes
//! is the load in between.
use super::client::{Client, Target, encode};
use serde::Serialize;

/// The histogram, in seconds, that the server keeps per route.
const HISTOGRAM: &str = "svc_http_request_duration_seconds";
/// The label of search requests in it.
const SEARCH_LABEL: &str = "op=\"search\"";

/// Cumulative counts by upper bound in seconds, ascending; the last bound is infinite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets(Vec<(f64, u64)>);

/// Latency on the server's side, microseconds; a percentile is the interpolated position in its bucket.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub struct ServerLatency {
    /// Searches in between.
    pub searches: u64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
}

/// Reads the histogram; `None` when the server has none.
///
/// # Errors
/// When the metrics page does not answer.
pub fn scrape(target: &Target) -> Result<Option<Buckets>, String> {
    let mut client = Client::connect(target).map_err(|error| format!("connecting: {error}"))?;
    let request = encode(target, "GET", "/metrics", "text/plain", b"");
    let response = client.send(&request).map_err(|error| format!("metrics: {error}"))?;
    let page = String::from_utf8_lossy(response.success("metrics")?).into_owned();
    Ok(parse(&page, HISTOGRAM, SEARCH_LABEL))
}

fn parse(page: &str, histogram: &str, label: &str) -> Option<Buckets> {
    let mut buckets = Vec::new();
    for line in page.lines() {
        let Some(rest) = line.strip_prefix(histogram).and_then(|rest| rest.strip_prefix("_bucket{")) else {
            continue;
        };
        let (labels, count) = rest.split_once("} ")?;
        if !labels.split(',').any(|found| found == label) {
            continue;
        }
        let bound = labels.split(',').find_map(|label| label.strip_prefix("le=\"")?.strip_suffix('"'))?;
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
        buckets.push((bound, count.trim().parse::<f64>().ok()? as u64));
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    (!buckets.is_empty()).then_some(Buckets(buckets))
}

/// What was added between two scrapes; `None` when nothing was.
pub fn between(before: &Buckets, after: &Buckets) -> Option<ServerLatency> {
    let earlier = |bound: f64| before.0.iter().find(|(b, _)| *b == bound).map_or(0, |(_, count)| *count);
    let counts: Vec<(f64, u64)> =
        after.0.iter().map(|&(bound, count)| (bound, count.saturating_sub(earlier(bound)))).collect();
    let searches = counts.last()?.1;
    if searches == 0 {
        return None;
    }
    let at = |quantile: f64| {
        let rank = quantile * searches as f64;
        let (mut low, mut below) = (0.0, 0u64);
        for &(bound, count) in &counts {
            if count as f64 >= rank {
                if bound.is_infinite() {
                    return low * 1e6;
                }
                let share = (rank - below as f64) / (count - below).max(1) as f64;
                return (low + (bound - low) * share) * 1e6;
            }
            (low, below) = (bound, count);
        }
        low * 1e6
    };
    Some(ServerLatency { searches, p50_us: at(0.5), p99_us: at(0.99), p999_us: at(0.999) })
}

/// CPU seconds that a process used so far, user and kernel; `None` when it cannot be read.
pub fn process_cpu_s(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces; fields count from behind its closing parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    // SAFETY: sysconf only reads its argument.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    (per_second > 0).then(|| ticks as f64 / per_second as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# TYPE h histogram\n\
        h_bucket{op=\"search\",le=\"0.001\"} 10\n\
        h_bucket{op=\"search\",le=\"0.002\"} 90\n\
        h_bucket{op=\"search\",le=\"+Inf\"} 100\n\
        h_bucket{op=\"write\",le=\"+Inf\"} 7\n\
        h_sum{op=\"search\"} 1\n";

    #[test]
    fn a_load_is_the_difference_of_two_scrapes() {
        let after = parse(PAGE, "h", "op=\"search\"").unwrap();
        assert_eq!(after.0, [(0.001, 10), (0.002, 90), (f64::INFINITY, 100)]);
        let whole = between(&Buckets::default(), &after).unwrap();
        assert_eq!((whole.searches, whole.p50_us), (100, 1500.0));
        assert_eq!(whole.p99_us, 2000.0);
        assert_eq!(between(&after, &after), None);
        assert_eq!(parse(PAGE, "other", "op=\"search\""), None);
    }

    #[test]
    fn our_own_cpu_time_is_readable() {
        assert!(process_cpu_s(std::process::id()).is_some());
    }
}
