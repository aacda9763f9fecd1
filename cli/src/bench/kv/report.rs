//! What a run says at its end: a table for people, one JSON object for programs.
use super::measure::Tally;
use super::options::{DistributionName, Mode, Options, ProtocolName};
use super::stretch::Spent;
use super::workload::{Arrivals, Sizes};
use crate::bench::latency::{Latency, histogram};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// Threads that are busier than this may be what limits the result.
const BUSY_SHARE: f64 = 0.9;

/// One class of requests in a stretch.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Class {
    /// Measured requests: answered in the measured time (closed loop), due in it (open loop).
    pub operations: u64,
    /// From the due time (open loop), or from writing the batch (closed loop), to the answer; requests that never had one
    /// count with the time until they were given up.
    pub latency: Latency,
}

/// The load generator itself during the measured time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GeneratorSide {
    /// CPU seconds, all threads.
    pub cpu_s: f64,
    /// Share of the time that generator threads ran, 1 = all of them always.
    pub busy_share: f64,
    /// Per answer.
    pub cpu_ns_per_operation: Option<f64>,
    /// Seconds its threads waited for a processor, all together; these are in the latencies.
    pub waited_s: Option<f64>,
    /// 99th percentile of the time from when a request was due to when it was written, open loop.
    pub late_p99_us: Option<f64>,
}

/// The server during the measured time, with `--pid`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ServerSide {
    /// CPU seconds.
    pub cpu_s: f64,
    /// Per answer.
    pub cpu_ns_per_operation: Option<f64>,
    /// Processors in use on average.
    pub processors: f64,
    /// Resident memory at the end.
    pub resident_bytes: Option<u64>,
}

/// One measured stretch.
#[derive(Clone, Debug, Serialize)]
pub struct Stretch {
    /// Requests due per second, open loop.
    pub offered_per_s: Option<f64>,
    /// Length of the measured time.
    pub seconds: f64,
    /// Answers that came in it.
    pub operations: u64,
    /// Per second.
    pub operations_per_s: f64,
    /// GET and SET together.
    pub all: Class,
    /// GET, if there were any.
    pub get: Option<Class>,
    /// SET, likewise.
    pub set: Option<Class>,
    /// GETs of keys that had no value.
    pub misses: u64,
    /// Unexpected answers, warm-up included.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
    /// Requests without an answer two seconds after the end.
    pub unanswered: u64,
    /// Bytes per second to the server.
    pub sent_bytes_per_s: f64,
    /// Bytes per second from the server.
    pub received_bytes_per_s: f64,
    /// This program.
    pub generator: GeneratorSide,
    /// The server.
    pub server: Option<ServerSide>,
}

/// Filling the key space.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Preload {
    /// Keys.
    pub keys: u64,
    /// Seconds.
    pub seconds: f64,
    /// Keys per second.
    pub keys_per_s: f64,
}

/// The whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What the server speaks.
    pub protocol: ProtocolName,
    /// host:port.
    pub address: String,
    /// Closed or open loop.
    pub mode: Mode,
    /// Spacing of due times, open loop.
    pub arrivals: Option<Arrivals>,
    /// Connections.
    pub connections: usize,
    /// Requests in a batch (closed), outstanding at most on a connection (open).
    pub pipeline: usize,
    /// Generator threads.
    pub threads: usize,
    /// Whether connections are over TLS.
    #[serde(rename = "tls")]
    pub is_tls: bool,
    /// Key space.
    pub keys: u64,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of values.
    pub value_size: Sizes,
    /// Which keys are asked for.
    pub distribution: DistributionName,
    /// Exponent, zipf.
    pub zipf_s: Option<f64>,
    /// Percentage of GET.
    pub reads: f64,
    /// Time to live, 0 = for ever.
    pub ttl_ms: u64,
    /// Whether values were compared.
    pub verify: bool,
    /// Where random choices began.
    pub seed: u64,
    /// Processors this process may use.
    pub cores: usize,
    /// Version of this tool.
    pub version: &'static str,
    /// Commit this tool was built from.
    pub commit: &'static str,
    /// Filling the key space.
    pub preload: Option<Preload>,
    /// Measured stretches: one, or one per rate of a sweep.
    pub stretches: Vec<Stretch>,
}

impl Class {
    fn of(latency: &Histogram<u64>) -> Class {
        Class { operations: latency.len(), latency: Latency::of(latency) }
    }
}

impl Preload {
    /// `keys` in `time`.
    pub fn of(keys: u64, time: Duration) -> Preload {
        let seconds = time.as_secs_f64();
        Preload { keys, seconds, keys_per_s: keys as f64 / seconds.max(1e-9) }
    }
}

impl Stretch {
    /// The stretch at rate `offered_per_s`, generated by `threads` threads.
    pub fn of(tally: &Tally, spent: &Spent, offered_per_s: Option<f64>, threads: usize) -> Stretch {
        let seconds = spent.wall.as_secs_f64().max(1e-9);
        let per_operation = |cpu: Duration| match tally.completed {
            0 => None,
            count => Some(cpu.as_nanos() as f64 / count as f64),
        };
        let mut all = histogram();
        for part in [&tally.get, &tally.set] {
            // All have the same bounds, so every value fits.
            let _fits = all.add(part);
        }
        Stretch {
            offered_per_s,
            seconds,
            operations: tally.completed,
            operations_per_s: tally.completed as f64 / seconds,
            all: Class::of(&all),
            get: (!tally.get.is_empty()).then(|| Class::of(&tally.get)),
            set: (!tally.set.is_empty()).then(|| Class::of(&tally.set)),
            misses: tally.misses,
            errors: tally.errors,
            first_error: tally.first_error.clone(),
            unanswered: tally.unanswered,
            sent_bytes_per_s: tally.sent_bytes as f64 / seconds,
            received_bytes_per_s: tally.received_bytes as f64 / seconds,
            generator: GeneratorSide {
                cpu_s: spent.own_cpu.as_secs_f64(),
                busy_share: spent.own_cpu.as_secs_f64() / seconds / threads as f64,
                cpu_ns_per_operation: per_operation(spent.own_cpu),
                waited_s: spent.own_wait.map(|wait| wait.as_secs_f64()),
                late_p99_us: (!tally.late.is_empty()).then(|| Latency::of(&tally.late).p99_us),
            },
            server: spent.server_cpu.map(|cpu| ServerSide {
                cpu_s: cpu.as_secs_f64(),
                cpu_ns_per_operation: per_operation(cpu),
                processors: cpu.as_secs_f64() / seconds,
                resident_bytes: spent.resident_bytes,
            }),
        }
    }

    /// Why the stretch is a failure; `None` when it is none. In an open loop a request without an answer is overload, which
    /// the latencies show; in a closed one it is an answer that got lost.
    fn failure(&self) -> Option<String> {
        let lost = self.offered_per_s.is_none().then_some(self.unanswered).filter(|&count| count > 0);
        match (self.errors, &self.first_error, lost) {
            (0, _, None) if self.all.operations == 0 => Some("no request was answered".into()),
            (0, _, None) => None,
            (0, _, Some(count)) => Some(format!("{count} requests had no answer two seconds after the end")),
            (count, first, _) => {
                let first = first.as_deref().unwrap_or_default();
                Some(format!("{count} unexpected answers, the first to {first}"))
            }
        }
    }
}

impl Report {
    /// A report of what was asked for, without results.
    pub fn new(options: &Options, address: &str, open: bool) -> Report {
        Report {
            protocol: options.protocol,
            address: address.to_owned(),
            mode: if open { Mode::Open } else { Mode::Closed },
            arrivals: open.then_some(options.arrivals),
            connections: options.connections,
            pipeline: options.pipeline,
            threads: options.threads,
            is_tls: options.tls.asked_by().is_some(),
            keys: options.keys,
            key_size: options.key_size,
            value_size: options.value_size,
            distribution: options.distribution,
            zipf_s: (options.distribution == DistributionName::Zipf).then_some(options.zipf_s),
            reads: options.reads,
            ttl_ms: options.ttl_ms,
            verify: options.verify,
            seed: options.seed,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            version: env!("CARGO_PKG_VERSION"),
            commit: env!("NIGH_COMMIT"),
            preload: None,
            stretches: Vec::new(),
        }
    }

    /// Why the run is a failure.
    ///
    /// # Errors
    /// The first failed stretch, as a sentence.
    pub fn verdict(&self) -> Result<(), String> {
        self.stretches.iter().find_map(Stretch::failure).map_or(Ok(()), Err)
    }

    /// The run as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let sizes = match (self.value_size.min, self.value_size.max) {
            (min, max) if min == max => format!("{min}"),
            (min, max) => format!("{min} to {max}"),
        };
        let spread = self.zipf_s.map_or("uniform".to_owned(), |s| format!("zipf {s}"));
        let _ = writeln!(
            out,
            "{} at {}: {} keys of {} bytes, values of {sizes} bytes, {spread}, {} % GET\n\
             {} loop, {} connections{}, pipeline {}, {} generator threads; {} processors, nigh {} at {}",
            self.protocol.name(),
            self.address,
            self.keys,
            self.key_size,
            self.reads,
            self.mode.name(),
            self.connections,
            if self.is_tls { " over TLS" } else { "" },
            self.pipeline,
            self.threads,
            self.cores,
            self.version,
            self.commit
        );
        if let Some(preload) = self.preload {
            let Preload { keys, seconds, keys_per_s } = preload;
            let _ = writeln!(out, "filled {keys} keys in {seconds:.2} s, {keys_per_s:.0} keys/s");
        }
        if !self.stretches.is_empty() {
            let _ = writeln!(
                out,
                "\n  {:<22}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
                "load", "ops/s", "p50 us", "p90 us", "p99 us", "p99.9 us", "max us"
            );
        }
        for stretch in &self.stretches {
            stretch.write(&mut out);
        }
        out
    }
}

impl Stretch {
    fn write(&self, out: &mut String) {
        let load = self.offered_per_s.map_or("closed".to_owned(), |rate| format!("open {rate:.0}/s"));
        let mut row = |name: &str, rate: f64, l: &Latency| {
            let _ = writeln!(
                out,
                "  {name:<22}{rate:>10.0}{:>10.1}{:>10.1}{:>10.1}{:>10.1}{:>10.1}",
                l.p50_us, l.p90_us, l.p99_us, l.p999_us, l.max_us
            );
        };
        row(&load, self.operations_per_s, &self.all.latency);
        if let (Some(get), Some(set)) = (&self.get, &self.set) {
            let rate = |class: &Class| {
                self.operations_per_s * class.operations as f64 / self.all.operations.max(1) as f64
            };
            row("  GET", rate(get), &get.latency);
            row("  SET", rate(set), &set.latency);
        }
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let _ = writeln!(
            out,
            "    {} misses, {} errors, {} unanswered; {:.1} MiB/s sent, {:.1} MiB/s received",
            self.misses,
            self.errors,
            self.unanswered,
            mib(self.sent_bytes_per_s),
            mib(self.received_bytes_per_s)
        );
        let own = &self.generator;
        let _ = write!(out, "    generator: {:.2} s of CPU, {:.0} % busy", own.cpu_s, own.busy_share * 100.0);
        if let Some(nanos) = own.cpu_ns_per_operation {
            let _ = write!(out, ", {nanos:.0} ns per operation");
        }
        if let Some(waited) = own.waited_s {
            let _ = write!(out, ", waited {waited:.2} s for a processor");
        }
        if let Some(late) = own.late_p99_us {
            let _ = write!(out, ", 99 % sent within {late:.0} us of their time");
        }
        if own.busy_share > BUSY_SHARE {
            let _ = write!(out, "; the server may do more than it: try --threads");
        }
        out.push('\n');
        if let Some(server) = &self.server {
            let _ =
                write!(out, "    server: {:.2} s of CPU ({:.2} processors)", server.cpu_s, server.processors);
            if let Some(nanos) = server.cpu_ns_per_operation {
                let _ = write!(out, ", {nanos:.0} ns per operation");
            }
            if let Some(bytes) = server.resident_bytes {
                let _ = write!(out, "; memory {:.0} MiB", mib(bytes as f64));
            }
            out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn report(tallies: &[(Option<f64>, Tally)]) -> Report {
        let mut report = Report::new(&Options::parse_from(["bench"]), "127.0.0.1:7000", false);
        let spent = Spent {
            wall: Duration::from_secs(2),
            own_cpu: Duration::from_millis(1900),
            own_wait: Some(Duration::from_millis(10)),
            server_cpu: Some(Duration::from_secs(1)),
            resident_bytes: Some(64 << 20),
        };
        report.stretches = tallies.iter().map(|(rate, tally)| Stretch::of(tally, &spent, *rate, 1)).collect();
        report
    }

    fn tally() -> Tally {
        let mut tally = Tally::new();
        for nanos in [10_000, 20_000, 30_000] {
            tally.get.saturating_record(nanos);
        }
        tally.set.saturating_record(90_000);
        (tally.completed, tally.misses, tally.sent_bytes) = (4, 1, 2 << 20);
        tally
    }

    #[test]
    fn figures_are_per_second_and_per_answer() {
        let report = report(&[(None, tally())]);
        let stretch = &report.stretches[0];
        assert_eq!((stretch.operations_per_s, stretch.sent_bytes_per_s), (2.0, f64::from(1 << 20)));
        assert_eq!(stretch.server.unwrap().cpu_ns_per_operation, Some(250_000_000.0));
        assert_eq!(stretch.generator.cpu_ns_per_operation, Some(475_000_000.0));
        assert_eq!(stretch.generator.busy_share, 0.95);
        assert_eq!((stretch.all.operations, stretch.get.unwrap().operations), (4, 3));
        assert!((stretch.all.latency.max_us - 90.0).abs() < 0.1);
        assert_eq!(report.verdict(), Ok(()));
        let text = report.text();
        for part in
            ["GET", "SET", "95 % busy", "try --threads", "250000000 ns per operation", "memory 64 MiB"]
        {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["stretches"][0]["get"]["latency"]["p50_us"].as_f64().map(f64::round), Some(20.0));
        assert_eq!((json["mode"].as_str(), json["protocol"].as_str()), (Some("closed"), Some("nigh")));
    }

    #[test]
    fn what_fails_a_run() {
        let mut wrong = tally();
        wrong.error(|| "GET k: 3 bytes instead of 64".into());
        let error = report(&[(None, tally()), (None, wrong)]).verdict().unwrap_err();
        assert!(error.contains("GET k: 3 bytes"), "{error}");
        let lost = |rate| {
            let mut tally = tally();
            tally.unanswered = 5;
            report(&[(rate, tally)]).verdict()
        };
        assert!(lost(None).unwrap_err().contains("5 requests"));
        assert_eq!(lost(Some(1000.0)), Ok(()));
        assert!(report(&[(None, Tally::new())]).verdict().unwrap_err().contains("no request"));
    }
}
