//! `nigh bench ingest`: how fast points go in over the binary protocol, one by one or staged for one build.
use super::dataset::{Matrix, read_payloads, read_vectors, synthetic};
use super::kv::measure::own_cpu;
use super::latency::{Latency, histogram};
use super::recall::Metric;
use super::vector::{parse_shape, progress_bar};
use crate::flags::parse_bool;
use crate::tcp_client::{CallError, Reply, TcpClient};
use crate::tls::explain;
use crate::tls::flags::TlsFlags;
use clap::{ArgAction, Parser};
use hdrhistogram::Histogram;
use nigh_net::tcp::frame::BODY_MAX_BYTES;
use serde::Serialize;
use std::fmt::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Points that are looked up at the end, spread over the corpus.
const CHECKED_POINTS: usize = 100;
/// Longest name that a request can carry: its length is one byte, and tenants take some of it.
const NAME_BYTES_MAX: usize = 247;

/// Measures how fast points go in over the binary TCP protocol: creates a collection, streams a corpus into it, and looks some
/// of its points up.
///
/// Without --docs a synthetic corpus is used.
#[derive(Clone, Debug, Parser)]
#[command(name = "nigh bench ingest", args_override_self = true)]
pub struct Options {
    /// Server, host:port.
    #[arg(long, default_value = "127.0.0.1:7000", help_heading = "Target")]
    pub address: String,
    /// API key, for a server that asks for one; without this flag it is taken from the variable NIGH_API_KEY, which does
    /// not show in the list of processes.
    #[arg(long, value_name = "SECRET", help_heading = "Target")]
    pub api_key: Option<String>,
    /// Collection to create.
    #[arg(long, default_value = "nigh-bench", help_heading = "Target")]
    pub collection: String,
    /// Drop a collection of that name first instead of refusing to run.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Target")]
    pub replace: bool,
    /// Keep the collection at the end.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Target")]
    pub keep: bool,
    /// The flags of TLS.
    #[command(flatten)]
    pub tls: TlsFlags,

    /// Vectors: .npy (f16, f32, i32), .f16 (raw rows, needs --dim) or .fvecs.
    #[arg(long, help_heading = "Corpus")]
    pub docs: Option<PathBuf>,
    /// Payloads: one JSON object per line, row by row.
    #[arg(long, help_heading = "Corpus")]
    pub payloads: Option<PathBuf>,
    /// Row length of raw .f16 files.
    #[arg(long, help_heading = "Corpus")]
    pub dim: Option<usize>,
    /// Synthetic corpus when there is no --docs: <count>x<dim>.
    #[arg(long, default_value = "20000x96", value_parser = parse_shape, help_heading = "Corpus")]
    pub synthetic: (usize, usize),
    /// Use only the first so many documents.
    #[arg(long, help_heading = "Corpus")]
    pub docs_count: Option<usize>,

    /// Distance.
    #[arg(long, value_enum, default_value = "cosine", help_heading = "Collection")]
    pub metric: Metric,
    /// Graph degree.
    #[arg(long, default_value_t = 16, help_heading = "Collection")]
    pub m: u32,
    /// Build beam.
    #[arg(long, default_value_t = 200, help_heading = "Collection")]
    pub ef_construction: u32,

    /// Stage the points and build the index once, instead of one upsert per point.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Load")]
    pub bulk: bool,
    /// Points per request of --bulk.
    #[arg(long, default_value_t = 500, help_heading = "Load")]
    pub batch: usize,
    /// Connections, one thread each.
    #[arg(long, default_value_t = 4, help_heading = "Load")]
    pub connections: usize,
    /// Requests that a connection writes together; the next ones when all are answered.
    #[arg(long, default_value_t = 32, help_heading = "Load")]
    pub pipeline: usize,

    /// Print one JSON object instead of a table.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Output")]
    pub json: bool,
}

/// How the corpus went in.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Corpus.
    pub dataset: String,
    /// Vector length.
    pub dim: usize,
    /// Points.
    pub points: usize,
    /// `upsert`, or `bulk`.
    pub mode: &'static str,
    /// Distance.
    pub metric: &'static str,
    /// Degree.
    pub m: u32,
    /// Build beam.
    pub ef_construction: u32,
    /// Connections.
    pub connections: usize,
    /// Requests written together.
    pub pipeline: usize,
    /// Whether connections are over TLS.
    #[serde(rename = "tls")]
    pub is_tls: bool,
    /// Points per request.
    pub batch: usize,
    /// Sending, until the last request was answered.
    pub send_s: f64,
    /// The build, for bulk.
    pub build_s: f64,
    /// Points per second of both together.
    pub points_per_s: f64,
    /// Bytes written per second of sending, in millions.
    pub sent_mb_per_s: f64,
    /// From the moment a batch of requests was written to each answer.
    pub latency: Latency,
    /// CPU seconds of this program.
    pub generator_cpu_s: f64,
    /// Points that were looked up, and found, at the end.
    pub checked: usize,
    /// Version of this tool.
    pub version: &'static str,
    /// Commit this tool was built from.
    pub commit: &'static str,
}

/// What is sent.
struct Corpus<'a> {
    collection: &'a str,
    docs: Matrix<f32>,
    payloads: Vec<Vec<u8>>,
}

/// Runs the benchmark.
///
/// # Errors
/// A sentence: bad files, a connection that failed, the first request that was refused, a point that is not there.
pub fn run(options: &Options) -> Result<Report, String> {
    if options.batch == 0 || options.connections == 0 || options.pipeline == 0 {
        return Err("--batch, --connections and --pipeline are at least 1".into());
    }
    if !(1..=NAME_BYTES_MAX).contains(&options.collection.len()) {
        return Err(format!("--collection has 1 to {NAME_BYTES_MAX} bytes"));
    }
    let token = options.api_key.as_deref().unwrap_or_default();
    let tls = options.tls.connector(&[])?;
    let connect = || {
        TcpClient::connect(&options.address, token, tls.as_ref())
            .map_err(|error| explain::not_connected(&options.address, &error, "--address"))
    };
    // Before files are read: is anybody there, and does the key open the door?
    let mut control = connect()?;
    call(&mut control, "__ping__", |_| {})?;
    let (dataset, corpus) = prepare(options)?;
    if options.replace {
        call(&mut control, "vector_drop_collection", |out| put_name(out, corpus.collection))?;
    }
    call(&mut control, "vector_create_collection", |out| put_create(out, options, corpus.docs.dim))
        .map_err(|error| format!("{error}; --replace drops what is there"))?;
    let clients: Vec<TcpClient> = (0..options.connections).map(|_| connect()).collect::<Result<_, _>>()?;
    let count = corpus.docs.count();
    let cpu_before = own_cpu();
    let start = Instant::now();
    let (latency, sent_bytes) = send(options, &corpus, clients)?;
    let send_s = start.elapsed().as_secs_f64();
    let start = Instant::now();
    if options.bulk {
        call(&mut control, "vector_bulk_build", |out| {
            put_name(out, corpus.collection);
            out.extend_from_slice(&0u32.to_be_bytes());
        })?;
    }
    let build_s = if options.bulk { start.elapsed().as_secs_f64() } else { 0.0 };
    let generator_cpu_s = own_cpu().saturating_sub(cpu_before).as_secs_f64();
    let checked = check(&mut control, &corpus)?;
    if !options.keep {
        call(&mut control, "vector_drop_collection", |out| put_name(out, corpus.collection))?;
    }
    Ok(Report {
        dataset,
        dim: corpus.docs.dim,
        points: count,
        mode: if options.bulk { "bulk" } else { "upsert" },
        metric: options.metric.name(),
        m: options.m,
        ef_construction: options.ef_construction,
        connections: options.connections,
        pipeline: options.pipeline,
        is_tls: tls.is_some(),
        batch: if options.bulk { options.batch } else { 1 },
        send_s,
        build_s,
        points_per_s: count as f64 / (send_s + build_s).max(1e-9),
        sent_mb_per_s: sent_bytes as f64 / 1e6 / send_s.max(1e-9),
        latency: Latency::of(&latency),
        generator_cpu_s,
        checked,
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("NIGH_COMMIT"),
    })
}

fn prepare(options: &Options) -> Result<(String, Corpus<'_>), String> {
    let (dataset, mut docs) = match &options.docs {
        Some(path) => (path.display().to_string(), read_vectors(path, options.dim)?),
        None => {
            let (count, dim) = options.synthetic;
            (format!("synthetic {count}x{dim}"), synthetic(count, dim, 1)?)
        }
    };
    docs.truncate(options.docs_count.unwrap_or(usize::MAX));
    if docs.count() == 0 {
        return Err("there must be documents".into());
    }
    let payloads = options.payloads.as_deref().map(read_payloads).transpose()?.unwrap_or_default();
    let corpus = Corpus { collection: &options.collection, docs, payloads };
    // The head of a frame with the longest token and name takes less than this.
    const HEAD_BYTES: usize = 1024;
    let per_request = if options.bulk { options.batch } else { 1 };
    let largest = corpus.payloads.iter().map(Vec::len).max().unwrap_or(0);
    let request = per_request.saturating_mul(12 + 4 * corpus.docs.dim + largest).saturating_add(HEAD_BYTES);
    match request > BODY_MAX_BYTES {
        true => Err(format!("--batch {per_request}: a request may be {BODY_MAX_BYTES} bytes, not {request}")),
        false => Ok((dataset, corpus)),
    }
}

/// Sends everything over the connections; latencies in nanoseconds, and bytes written.
fn send(
    options: &Options,
    corpus: &Corpus<'_>,
    clients: Vec<TcpClient>,
) -> Result<(Histogram<u64>, u64), String> {
    let count = corpus.docs.count();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let per_request = if options.bulk { options.batch } else { 1 };
    let per_round = per_request.saturating_mul(options.pipeline);
    let work = |mut client: TcpClient| {
        let mut latency = histogram();
        loop {
            let from = next.fetch_add(per_round, Ordering::Relaxed);
            if from >= count {
                return Ok((latency, client.sent_bytes()));
            }
            let to = (from + per_round).min(count);
            let mut requests = 0;
            for first in (from..to).step_by(per_request) {
                let points = first..(first + per_request).min(to);
                match options.bulk {
                    true => corpus.push_stage(&mut client, points),
                    false => corpus.push_upsert(&mut client, first),
                }
                requests += 1;
            }
            let start = Instant::now();
            client.flush().map_err(|error| error.to_string())?;
            for _ in 0..requests {
                expect_empty(client.reply())?;
                latency.saturating_record((start.elapsed().as_nanos() as u64).max(1));
            }
            done.fetch_add(to - from, Ordering::Relaxed);
        }
    };
    let bar = progress_bar("sending", count as u64);
    let mut total = (histogram(), 0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = clients
            .into_iter()
            .map(|client| {
                let (work, next) = (&work, &next);
                scope.spawn(move || {
                    let result: Result<(Histogram<u64>, u64), String> = work(client);
                    if result.is_err() {
                        // A figure with a failure in it means nothing: the others end with their batch.
                        next.store(count, Ordering::Relaxed);
                    }
                    result
                })
            })
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            std::thread::sleep(std::time::Duration::from_millis(20));
            bar.set_position(done.load(Ordering::Relaxed) as u64);
        }
        for worker in workers {
            let (latency, sent) = worker.join().map_err(|_| "a worker panicked".to_owned())??;
            // Both have the same bounds, so every value fits.
            let _fits = total.0.add(&latency);
            total.1 += sent;
        }
        bar.finish_and_clear();
        Ok(total)
    })
}

/// Looks some points up; how many.
fn check(client: &mut TcpClient, corpus: &Corpus<'_>) -> Result<usize, String> {
    let count = corpus.docs.count();
    let step = count.div_ceil(CHECKED_POINTS);
    let mut checked = 0;
    for id in (0..count).step_by(step) {
        let reply = client.call("vector_exists", |out| {
            put_name(out, corpus.collection);
            out.extend_from_slice(&(id as u64).to_be_bytes());
        });
        match reply.map_err(|error| format!("vector_exists: {error}"))? {
            Reply::Result([1]) => checked += 1,
            other => return Err(format!("point {id} was written and is not there: {other:?}")),
        }
    }
    Ok(checked)
}

impl Corpus<'_> {
    fn payload(&self, row: usize) -> Option<&[u8]> {
        self.payloads.get(row).map(Vec::as_slice)
    }

    fn push_upsert(&self, client: &mut TcpClient, row: usize) {
        client.push("vector_upsert", |out| {
            let payload = self.payload(row);
            out.push(if payload.is_some() { 2 } else { 0 });
            put_name(out, self.collection);
            out.extend_from_slice(&(row as u64).to_be_bytes());
            out.extend_from_slice(&(self.docs.dim as u32).to_be_bytes());
            out.extend(self.docs.row(row).iter().flat_map(|value| value.to_be_bytes()));
            if let Some(payload) = payload {
                put_block(out, payload);
            }
        });
    }

    fn push_stage(&self, client: &mut TcpClient, rows: Range<usize>) {
        let with_payloads = !self.payloads.is_empty();
        let operation = if with_payloads { "vector_bulk_stage_payload" } else { "vector_bulk_stage" };
        client.push(operation, |out| {
            put_name(out, self.collection);
            out.extend_from_slice(&(self.docs.dim as u32).to_be_bytes());
            out.extend_from_slice(&(rows.len() as u32).to_be_bytes());
            for row in rows.clone() {
                out.extend_from_slice(&(row as u64).to_be_bytes());
                out.extend(self.docs.row(row).iter().flat_map(|value| value.to_be_bytes()));
            }
            if with_payloads {
                for row in rows {
                    put_block(out, self.payload(row).unwrap_or(b"{}"));
                }
            }
        });
    }
}

/// `s8 collection`; the options see to it that it fits.
fn put_name(out: &mut Vec<u8>, name: &str) {
    out.push(name.len() as u8);
    out.extend_from_slice(name.as_bytes());
}

/// `s32` bytes.
fn put_block(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// The fixed part of a configuration; what follows may be missing.
fn put_create(out: &mut Vec<u8>, options: &Options, dim: usize) {
    put_name(out, &options.collection);
    out.extend_from_slice(&(dim as u32).to_be_bytes());
    out.push(match options.metric {
        Metric::Cosine => 0,
        Metric::L2 => 1,
        Metric::Dot => 2,
    });
    for word in [options.m, options.ef_construction, 0] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(&0i64.to_be_bytes());
}

fn call(client: &mut TcpClient, operation: &str, args: impl FnOnce(&mut Vec<u8>)) -> Result<(), String> {
    expect_empty(client.call(operation, args)).map_err(|error| format!("{operation}: {error}"))
}

fn expect_empty(reply: Result<Reply<'_>, CallError>) -> Result<(), String> {
    match reply.map_err(|error| error.to_string())? {
        Reply::Result([]) => Ok(()),
        other => Err(format!("an unexpected answer: {other:?}")),
    }
}

impl Report {
    /// The run as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}: {} points of {} dimensions, {}, m {}, ef_construction {}\n\
             {}, {} points per request, {} connections{}, pipeline {}; nigh {} at {}",
            self.dataset,
            self.points,
            self.dim,
            self.metric,
            self.m,
            self.ef_construction,
            self.mode,
            self.batch,
            self.connections,
            if self.is_tls { " over TLS" } else { "" },
            self.pipeline,
            self.version,
            self.commit
        );
        let _ = write!(out, "\n  sent in {:.2} s, {:.1} MB/s", self.send_s, self.sent_mb_per_s);
        if self.build_s > 0.0 {
            let _ = write!(out, "; built in {:.2} s", self.build_s);
        }
        let l = &self.latency;
        let _ = writeln!(
            out,
            "; {:.0} points/s\n  requests: p50 {:.0} us, p90 {:.0} us, p99 {:.0} us, p99.9 {:.0} us, max {:.0} us\n  \
             {} points looked up and found; CPU: generator {:.2} s",
            self.points_per_s,
            l.p50_us,
            l.p90_us,
            l.p99_us,
            l.p999_us,
            l.max_us,
            self.checked,
            self.generator_cpu_s
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp_client::tests::serve;
    use nigh_net::op::Op;
    use nigh_net::tcp::frame;
    use nigh_net::tcp::ops;
    use nigh_net::tcp::vector::{self, VectorRequest};
    use std::collections::BTreeSet;
    use std::io::Write as _;
    use std::sync::{Arc, Mutex};

    /// What a server of the tests has taken, read by the real decoders.
    #[derive(Default)]
    struct Taken {
        ids: BTreeSet<u64>,
        payloads: usize,
        built: usize,
        dims: BTreeSet<usize>,
    }

    fn server(loses: Option<u64>, refuses: &'static str) -> (String, Arc<Mutex<Taken>>) {
        let taken = Arc::new(Mutex::new(Taken::default()));
        let shared = taken.clone();
        let answer = move |operation: &str, args: &[u8], out: &mut Vec<u8>| {
            if operation == refuses {
                return frame::put_error(out, "collection full");
            }
            let mut taken = shared.lock().unwrap();
            let ok = |out: &mut Vec<u8>| frame::put_ok(out, |_| {});
            let op = ops::find(operation.as_bytes()).unwrap().op;
            if !matches!(op, Op::Vector(_)) {
                return ok(out);
            }
            match vector::decode(op, args, &vector::Decoding::tagged(0))
                .unwrap_or_else(|error| panic!("{operation}: {error:?}"))
            {
                VectorRequest::Create(create) => {
                    assert_eq!(
                        (create.collection.as_str(), create.config.dense().map(|config| config.dim)),
                        ("c", Some(8))
                    );
                    ok(out);
                }
                VectorRequest::Write(write, _) => {
                    taken.dims.insert(write.batch.dim);
                    for point in write.batch.points.iter().filter(|point| Some(point.id) != loses) {
                        assert!(taken.ids.insert(point.id), "sent twice");
                        taken.payloads += usize::from(!point.row.is_empty());
                    }
                    ok(out);
                }
                VectorRequest::Stage(stage) => {
                    taken.dims.insert(stage.batch.dim);
                    for point in &stage.batch.points {
                        assert!(taken.ids.insert(point.id), "sent twice");
                        taken.payloads += usize::from(!point.row.is_empty());
                    }
                    ok(out);
                }
                VectorRequest::Build(_) => {
                    taken.built += 1;
                    ok(out);
                }
                VectorRequest::Exists(get) => {
                    let found = taken.ids.contains(&get.ids.numbers[0]);
                    frame::put_ok(out, |out| out.push(found.into()));
                }
                VectorRequest::Drop(_) => ok(out),
                _ => panic!("{operation}"),
            }
        };
        (serve(b"", Arc::new(answer)), taken)
    }

    fn ingest(address: &str, flags: &[&str]) -> Result<Report, String> {
        let fixed =
            ["bench", "--address", address, "--synthetic=1003x8", "--collection=c", "--connections=3"];
        run(&Options::try_parse_from(fixed.iter().chain(flags)).unwrap())
    }

    #[test]
    fn every_point_goes_in_once() {
        for flags in
            [&["--pipeline=7"][..], &["--bulk=true", "--batch=10", "--pipeline=3"], &["--pipeline=5000"]]
        {
            let (address, taken) = server(None, "");
            let report = ingest(&address, flags).unwrap();
            let taken = taken.lock().unwrap();
            assert_eq!(taken.ids, (0..1003).collect(), "{flags:?}");
            assert_eq!(taken.built, usize::from(report.mode == "bulk"));
            assert_eq!((taken.dims.len(), taken.payloads), (1, 0));
            assert_eq!((report.points, report.checked), (1003, 92));
            assert!(report.points_per_s > 0.0 && report.sent_mb_per_s > 0.0 && report.latency.p50_us > 0.0);
            assert!(report.text().contains("points/s"));
        }
    }

    #[test]
    fn payloads_travel_too() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for row in 0..1003 {
            writeln!(file, "{{\"n\":{row}}}").unwrap();
        }
        let path = format!("--payloads={}", file.path().display());
        for bulk in ["--bulk=false", "--bulk=true"] {
            let (address, taken) = server(None, "");
            ingest(&address, &[&path, bulk]).unwrap();
            assert_eq!(taken.lock().unwrap().payloads, 1003, "{bulk}");
        }
    }

    #[test]
    fn what_fails_a_run() {
        let (address, _) = server(Some(22), "");
        assert!(ingest(&address, &[]).unwrap_err().contains("point 22 "));
        let (address, _) = server(None, "vector_upsert");
        assert!(ingest(&address, &[]).unwrap_err().contains("collection full"));
        let (address, _) = server(None, "vector_create_collection");
        assert!(ingest(&address, &[]).unwrap_err().contains("--replace"));
        let (address, _) = server(None, "vector_bulk_build");
        assert!(
            ingest(&address, &["--bulk=true"]).unwrap_err().contains("vector_bulk_build: collection full")
        );
        for (flags, part) in [
            (&["--batch=1000000", "--bulk=true"][..], "--batch"),
            (&["--pipeline=0"], "--pipeline"),
            (&["--collection="], "--collection"),
        ] {
            let error = ingest(&address, flags).unwrap_err();
            assert!(error.contains(part), "{flags:?}: {error}");
        }
    }
}
