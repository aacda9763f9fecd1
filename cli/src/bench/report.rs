//! What a run says at its end: a table for people, one JSON object for programs.
use super::churn::Round;
use super::ingest::{Background, BackgroundDone, Loaded};
use super::latency::Latency;
use super::server_metrics::ServerSide;
use serde::Serialize;
use std::fmt::Write;

/// One measured stretch of queries.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// `closed`, or `open`.
    pub arrival: &'static str,
    /// Offered queries per second, open loop.
    pub offered_per_s: Option<f64>,
    /// Connections.
    pub connections: usize,
    /// What went on meanwhile.
    pub background: Background,
    /// What the background got done.
    pub background_done: Option<BackgroundDone>,
    /// Answered queries.
    pub queries: u64,
    /// Answered per second.
    pub queries_per_s: f64,
    /// From the client: from the due time (open loop) or from sending (closed loop).
    pub latency: Latency,
    /// From sending, less what the load generator waited for a processor itself; `None` where the kernel does not tell.
    pub without_own_wait: Option<Latency>,
    /// The server's own figures over the same time, warm-up included.
    pub server: ServerSide,
    /// CPU seconds of this load generator, likewise.
    pub generator_cpu_s: f64,
}

/// One cycle: a collection made with one set of parameters.
#[derive(Clone, Debug, Serialize)]
pub struct Cycle {
    /// Query beam.
    pub ef_search: usize,
    /// Loading.
    pub ingest: Option<Loaded>,
    /// Share of the true nearest that was found.
    pub recall: Option<f64>,
    /// Queries the recall is over.
    pub recall_queries: usize,
    /// Rounds of deleting and inserting again, before the measured stretches.
    pub churn: Vec<Round>,
    /// Measured stretches.
    pub phases: Vec<Phase>,
}

/// The whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Corpus.
    pub dataset: String,
    /// Vector length.
    pub dim: usize,
    /// Points.
    pub count: usize,
    /// Distinct queries.
    pub queries: usize,
    /// Distance.
    pub metric: &'static str,
    /// Degree.
    pub m: usize,
    /// Build beam.
    pub ef_construction: usize,
    /// Results per query.
    pub k: usize,
    /// Whether connections are over TLS.
    #[serde(rename = "tls")]
    pub is_tls: bool,
    /// `binary` or `json`.
    pub query_body: &'static str,
    /// Processors this process may use.
    pub cores: usize,
    /// Version of this tool.
    pub version: &'static str,
    /// Commit this tool was built from.
    pub commit: &'static str,
    /// One per value of ef_search.
    pub cycles: Vec<Cycle>,
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

impl Report {
    /// The run as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}: {} points of {} dimensions, {}, m {}, ef_construction {}, k {}, {} queries ({} bodies{})\n\
             {} processors, nigh {} at {}",
            self.dataset,
            self.count,
            self.dim,
            self.metric,
            self.m,
            self.ef_construction,
            self.k,
            self.queries,
            self.query_body,
            if self.is_tls { ", over TLS" } else { "" },
            self.cores,
            self.version,
            self.commit
        );
        for cycle in &self.cycles {
            cycle.write(&mut out, self.k);
        }
        out
    }
}

impl Cycle {
    fn write(&self, out: &mut String, k: usize) {
        let _ = writeln!(out, "\nef_search {}", self.ef_search);
        if let Some(loaded) = &self.ingest {
            let mode = format!("{:?}", loaded.mode).to_lowercase();
            let _ = write!(
                out,
                "  ingest ({mode}): {} points in {:.1} s",
                loaded.points,
                loaded.send_s + loaded.build_s
            );
            if loaded.build_s > 0.0 {
                let _ = write!(out, " (staged in {:.1} s, built in {:.1} s)", loaded.send_s, loaded.build_s);
            }
            let _ = writeln!(out, ", {:.0} points/s", loaded.points_per_s);
        }
        if let Some(recall) = self.recall {
            let _ = writeln!(out, "  recall@{k}: {recall:.4} over {} queries", self.recall_queries);
        }
        for (index, round) in self.churn.iter().enumerate() {
            let recall = round.recall.map(|recall| format!(", recall@{k} {recall:.4}")).unwrap_or_default();
            let memory = round.resident_bytes.map(|bytes| format!(", server memory {:.0} MiB", mib(bytes)));
            let _ = writeln!(
                out,
                "  churn round {}: deleted in {:.1} s, inserted in {:.1} s{recall}{}",
                index + 1,
                round.delete_s,
                round.insert_s,
                memory.unwrap_or_default()
            );
        }
        if self.phases.is_empty() {
            return;
        }
        let _ = writeln!(
            out,
            "  {:<28}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "load", "queries/s", "p50 us", "p90 us", "p95 us", "p99 us", "p99.9 us", "max us"
        );
        for phase in &self.phases {
            phase.write(out);
        }
    }
}

impl Phase {
    fn write(&self, out: &mut String) {
        let offered = self.offered_per_s.map(|rate| format!(" {rate:.0}/s")).unwrap_or_default();
        let load = format!("{}{offered}, {} connections", self.arrival, self.connections);
        let l = &self.latency;
        let _ = writeln!(
            out,
            "  {load:<28}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>10.0}",
            self.queries_per_s, l.p50_us, l.p90_us, l.p95_us, l.p99_us, l.p999_us, l.max_us
        );
        if let Some(done) = &self.background_done {
            let kind = format!("{:?}", self.background).to_lowercase();
            let _ = writeln!(out, "    with background {kind}: {:.0} points/s", done.points_per_s);
        }
        if let Some(l) = &self.without_own_wait {
            let _ = writeln!(
                out,
                "    {:<26}{:>10}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>10.0}",
                "without own waits", "", l.p50_us, l.p90_us, l.p95_us, l.p99_us, l.p999_us, l.max_us
            );
        }
        let server = &self.server;
        if let (Some(p50), Some(p99), Some(p999)) = (server.p50_us, server.p99_us, server.p999_us) {
            let searches = server.searches;
            let _ = writeln!(
                out,
                "    server side: p50 {p50:.0} us, p99 {p99:.0} us, p99.9 {p999:.0} us over {searches} searches"
            );
        }
        let _ = write!(out, "    CPU: generator {:.2} s", self.generator_cpu_s);
        if let (Some(cpu), Some(rate)) = (server.cpu_s, server.searches_per_cpu_s) {
            let _ = write!(out, ", server {cpu:.2} s ({rate:.0} queries per CPU second)");
        }
        if let Some(bytes) = server.resident_bytes {
            let _ = write!(out, "; server memory {:.0} MiB", mib(bytes));
        }
        out.push('\n');
    }
}
