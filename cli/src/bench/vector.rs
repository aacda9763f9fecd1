//! The vector benchmark: options, and the order of things.
use super::churn;
use super::client::{Client, Target, encode};
use super::dataset::{Matrix, read_payloads, read_truth, read_vectors, synthetic};
use super::ingest::{
    self, Background, BackgroundWork, Ingest, create, drop_collection, path_segment, while_loading,
};
use super::kv::measure::own_cpu;
use super::latency::Latency;
use super::load::{self, Arrival, Load};
use super::recall::{Metric, nearest, recall_at_k};
use super::report::{Cycle, Phase, Report};
use super::server_metrics;
use super::wire::{BINARY, Corpus, JSON, binary_query, json_query};
use crate::flags::parse_bool;
use crate::tls::flags::TlsFlags;
use clap::{ArgAction, Parser};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// Queries when no file gives them.
const DOCUMENT_QUERIES: usize = 1000;
/// Queries that truth is computed for when no file gives it: exhaustive search is quadratic.
const COMPUTED_TRUTH_QUERIES: usize = 200;

/// Measures vector search over HTTP: creates a collection, loads a corpus, checks recall, then sends queries.
///
/// Without --docs a synthetic corpus is used, so `nigh bench vector` alone works against a server on port 8080.
#[derive(Clone, Debug, Parser)]
#[command(name = "nigh bench vector", args_override_self = true)]
pub struct Options {
    /// Server, http://host:port or https://host:port; without this flag http://127.0.0.1:8080, or https://127.0.0.1:8080 with a flag of TLS.
    #[arg(long, help_heading = "Target")]
    pub url: Option<String>,
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
    /// Query vectors, same formats; without it the first documents are the queries.
    #[arg(long, help_heading = "Corpus")]
    pub queries: Option<PathBuf>,
    /// Nearest ids of each query: .npy (i32, i64) or .ivecs; computed for a sample when absent.
    #[arg(long, help_heading = "Corpus")]
    pub truth: Option<PathBuf>,
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
    /// Use only the first so many queries.
    #[arg(long, help_heading = "Corpus")]
    pub queries_count: Option<usize>,

    /// Distance.
    #[arg(long, value_enum, default_value = "cosine", help_heading = "Collection")]
    pub metric: Metric,
    /// Graph degree.
    #[arg(long, default_value_t = 16, help_heading = "Collection")]
    pub m: usize,
    /// Build beam.
    #[arg(long, default_value_t = 200, help_heading = "Collection")]
    pub ef_construction: usize,
    /// Query beams, separated by commas; the collection is made anew for each, since the beam is its setting.
    #[arg(long, default_value = "64", value_delimiter = ',', help_heading = "Collection")]
    pub ef_search: Vec<usize>,

    /// How points travel.
    #[arg(long, value_enum, default_value = "binary", help_heading = "Ingest")]
    pub ingest: Ingest,
    /// Points per request.
    #[arg(long, default_value_t = 1000, help_heading = "Ingest")]
    pub batch: usize,

    /// Before queries are measured, delete half of the corpus and insert it again so many times; recall and the
    /// server's memory are shown for each round.
    #[arg(long, default_value_t = 0, help_heading = "Ingest")]
    pub churn_rounds: usize,

    /// Results per query.
    #[arg(long, default_value_t = 10, help_heading = "Queries")]
    pub k: usize,
    /// Connections, one thread each.
    #[arg(long, default_value_t = 4, help_heading = "Queries")]
    pub connections: usize,
    /// Seconds measured per stretch; 0 only loads and checks recall.
    #[arg(long, default_value_t = 10.0, help_heading = "Queries")]
    pub duration: f64,
    /// Seconds in front of each stretch that are not measured.
    #[arg(long, default_value_t = 1.0, help_heading = "Queries")]
    pub warm_up: f64,
    /// Open loop: queries per second on a fixed schedule; latency counts from the intended time. Several, separated
    /// by commas, are a sweep. Without it the loop is closed.
    #[arg(long, alias = "sweep", value_delimiter = ',', help_heading = "Queries")]
    pub rate: Vec<f64>,
    /// Send queries as JSON instead of RVQ1.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Queries")]
    pub json_queries: bool,
    /// Check recall over all queries that have truth.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "true", help_heading = "Queries")]
    pub recall: bool,
    /// Each stretch is measured once more while this goes on.
    #[arg(long, value_enum, default_value = "none", help_heading = "Queries")]
    pub background: Background,
    /// Connections of background ingest.
    #[arg(long, default_value_t = 1, help_heading = "Queries")]
    pub background_connections: usize,

    /// Print one JSON object instead of a table.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "false", help_heading = "Output")]
    pub json: bool,
}

/// Reads `<count>x<dim>`, both at least 1.
///
/// # Errors
/// A sentence with the text.
pub fn parse_shape(text: &str) -> Result<(usize, usize), String> {
    let shape = text.split_once('x').and_then(|(count, dim)| Some((count.parse().ok()?, dim.parse().ok()?)));
    shape.filter(|&(count, dim)| count > 0 && dim > 0).ok_or_else(|| format!("{text:?} is not <count>x<dim>"))
}

/// Everything that is read or computed before the server is asked anything.
struct Prepared {
    dataset: String,
    docs: Matrix<f32>,
    payloads: Vec<Vec<u8>>,
    queries: Matrix<f32>,
    /// One row for each of the first queries, maybe fewer than queries.
    truth: Option<Matrix<u64>>,
}

/// Runs the benchmark.
///
/// # Errors
/// A sentence: bad files, a refused request, a wrong answer.
pub fn run(options: &Options) -> Result<Report, String> {
    if options.batch == 0 || options.connections == 0 || options.background_connections == 0 || options.k == 0
    {
        return Err("--batch, --connections, --background-connections and --k are at least 1".into());
    }
    if options.rate.iter().any(|&rate| !rate.is_finite() || rate <= 0.0) {
        return Err("--rate is greater than 0".into());
    }
    let span =
        |seconds| Duration::try_from_secs_f64(seconds).map_err(|error| format!("{seconds} s: {error}"));
    let (warm_up, duration) = (span(options.warm_up)?, span(options.duration)?);
    let target = Target::of_flags(options.url.as_deref(), &options.tls)?
        .with_key(options.api_key.as_deref().unwrap_or(""))?;
    // Before minutes go into reading files and computing truth: is anybody there, and does the key open the door?
    let mut client = Client::connect(&target).map_err(|error| target.not_connected(&error))?;
    let health = encode(&target, "GET", "/v1/health", JSON, b"");
    client.send(&health).map_err(|error| format!("{}: {error}", target.url()))?.success("health")?;
    drop(client);
    server_metrics::read(&target)?;
    let prepared = prepare(options)?;
    if prepared.queries.dim != prepared.docs.dim {
        return Err(format!(
            "queries have {} dimensions, documents {}",
            prepared.queries.dim, prepared.docs.dim
        ));
    }
    let mut cycles = Vec::new();
    for &ef_search in &options.ef_search {
        cycles.push(cycle(options, &target, &prepared, ef_search, warm_up, duration)?);
    }
    Ok(Report {
        dataset: prepared.dataset,
        dim: prepared.docs.dim,
        count: prepared.docs.count(),
        queries: prepared.queries.count(),
        metric: options.metric.name(),
        m: options.m,
        ef_construction: options.ef_construction,
        k: options.k,
        is_tls: target.tls.is_some(),
        query_body: if options.json_queries { "json" } else { "binary" },
        cores: cores(),
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("NIGH_COMMIT"),
        cycles,
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn prepare(options: &Options) -> Result<Prepared, String> {
    let (dataset, mut docs, mut queries) = match &options.docs {
        Some(path) => {
            let docs = read_vectors(path, options.dim)?;
            let mut queries = match &options.queries {
                Some(path) => read_vectors(path, options.dim)?,
                None => docs.clone(),
            };
            queries.truncate(if options.queries.is_some() { usize::MAX } else { DOCUMENT_QUERIES });
            (path.display().to_string(), docs, queries)
        }
        None => {
            let (count, dim) = options.synthetic;
            // One corpus cut in two: queries come from where the documents come from, and are none of them.
            let mut docs = synthetic(count.saturating_add(DOCUMENT_QUERIES), dim, 1)?;
            let queries = Matrix { dim, values: docs.values.split_off(count * dim) };
            (format!("synthetic {count}x{dim}"), docs, queries)
        }
    };
    docs.truncate(options.docs_count.unwrap_or(usize::MAX));
    queries.truncate(options.queries_count.unwrap_or(usize::MAX));
    if docs.count() == 0 || queries.count() == 0 {
        return Err("there must be documents and queries".into());
    }
    let payloads = options.payloads.as_deref().map(read_payloads).transpose()?.unwrap_or_default();
    let truth = match (&options.truth, options.recall) {
        (_, false) => None,
        // Given truth names rows of the whole corpus; over a part of it the nearest are others.
        (Some(path), _) if options.docs_count.is_none() => Some(read_truth(path)?),
        _ => {
            let mut sample = queries.clone();
            sample.truncate(COMPUTED_TRUTH_QUERIES);
            Some(nearest(&docs, &sample, options.k, options.metric, cores()))
        }
    };
    if let Some(truth) = &truth
        && truth.dim < options.k.min(docs.count())
    {
        return Err(format!("truth has {} ids per query, --k is {}", truth.dim, options.k));
    }
    Ok(Prepared { dataset, docs, payloads, queries, truth })
}

fn cycle(
    options: &Options,
    target: &Target,
    prepared: &Prepared,
    ef_search: usize,
    warm_up: Duration,
    duration: Duration,
) -> Result<Cycle, String> {
    let corpus = Corpus { docs: &prepared.docs, payloads: &prepared.payloads };
    let config = serde_json::json!({
        "dim": prepared.docs.dim, "metric": options.metric.name(), "m": options.m,
        "ef_construction": options.ef_construction, "ef_search": ef_search,
    });
    let mut control = Client::connect(target).map_err(|error| format!("{}: {error}", target.url()))?;
    let ours = options.ingest != Ingest::None;
    let mut loaded = None;
    if ours {
        if options.replace || options.ef_search.first() != Some(&ef_search) {
            drop_collection(&mut control, target, &options.collection)?;
        }
        create(&mut control, target, &options.collection, &config)?;
        let bar = progress_bar("loading", prepared.docs.count() as u64);
        loaded = Some(ingest::load(
            target,
            &options.collection,
            corpus,
            options.ingest,
            options.batch,
            options.connections,
            &|sent| bar.set_position(sent as u64),
        )?);
        bar.finish_and_clear();
    }
    let requests = encode_queries(options, target, &prepared.queries);
    let (recall, recall_queries) = match &prepared.truth {
        Some(truth) => measure_recall(options, target, &requests, truth)?,
        None => (None, 0),
    };
    let mut churned = Vec::new();
    for number in 0..options.churn_rounds {
        let recall = || match &prepared.truth {
            Some(truth) => Ok(measure_recall(options, target, &requests, truth)?.0),
            None => Ok(None),
        };
        let shape = (number, options.batch, options.connections);
        churned.push(churn::round(target, &options.collection, corpus, shape, &recall)?);
    }
    let mut phases = Vec::new();
    let arrivals: Vec<Arrival> = match options.rate[..] {
        [] => vec![Arrival::Closed],
        _ => options.rate.iter().copied().map(Arrival::Open).collect(),
    };
    let backgrounds = match options.background {
        Background::None => vec![Background::None],
        kind => vec![Background::None, kind],
    };
    for (arrival, background) in arrivals.iter().flat_map(|a| backgrounds.iter().map(move |b| (*a, *b))) {
        if duration.is_zero() {
            break;
        }
        let load = Load {
            target,
            requests: &requests,
            hits: options.k.min(prepared.docs.count()),
            connections: options.connections,
            arrival,
            warm_up,
            duration,
        };
        let work = BackgroundWork {
            kind: background,
            target,
            collection: &options.collection,
            config: &config,
            corpus,
            batch: options.batch,
            connections: options.background_connections,
        };
        phases.push(phase(&load, &work)?);
    }
    if ours && !options.keep {
        // A connection of its own: the first one has been idle for as long as all this took.
        let mut control = Client::connect(target).map_err(|error| format!("{}: {error}", target.url()))?;
        drop_collection(&mut control, target, &options.collection)?;
    }
    Ok(Cycle { ef_search, ingest: loaded, recall, recall_queries, churn: churned, phases })
}

fn encode_queries(options: &Options, target: &Target, queries: &Matrix<f32>) -> Vec<Vec<u8>> {
    let path = format!("/v1/collections/{}/points/search", path_segment(&options.collection));
    let encode_one = |row: usize| {
        let query = queries.row(row);
        match options.json_queries {
            true => encode(target, "POST", &path, JSON, &json_query(query, options.k)),
            false => encode(target, "POST", &path, BINARY, &binary_query(query, options.k)),
        }
    };
    (0..queries.count()).map(encode_one).collect()
}

fn measure_recall(
    options: &Options,
    target: &Target,
    requests: &[Vec<u8>],
    truth: &Matrix<u64>,
) -> Result<(Option<f64>, usize), String> {
    let count = requests.len().min(truth.count());
    let bar = progress_bar("recall", count as u64);
    let sum = Mutex::new(0.0);
    load::once_each(target, &requests[..count], options.connections, &|index, found| {
        // The lock is held for one addition; a worker that panicked elsewhere cannot leave it half done.
        *sum.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) +=
            recall_at_k(&found, truth.row(index), options.k);
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    let sum = sum.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok((Some(sum / count.max(1) as f64), count))
}

fn phase(load: &Load<'_>, work: &BackgroundWork<'_>) -> Result<Phase, String> {
    let bar = progress_bar("querying", load.duration.as_millis() as u64);
    let server_before = server_metrics::read(load.target)?;
    let generator_before = own_cpu().as_secs_f64();
    let (measured, background_done) = while_loading(work, || {
        let measured = load::run(load, &|measured| bar.set_position(measured.as_millis() as u64))?;
        Ok((measured, own_cpu().as_secs_f64() - generator_before, server_metrics::read(load.target)?))
    })?;
    bar.finish_and_clear();
    let (measured, generator_cpu_s, server_after) = measured;
    let (arrival, offered_per_s) = match load.arrival {
        Arrival::Closed => ("closed", None),
        Arrival::Open(rate) => ("open", Some(rate)),
    };
    Ok(Phase {
        arrival,
        offered_per_s,
        connections: load.connections,
        background: work.kind,
        background_done,
        queries: measured.answered,
        queries_per_s: measured.answered as f64 / measured.elapsed.as_secs_f64().max(1e-9),
        latency: Latency::of(&measured.latency),
        without_own_wait: (!measured.without_own_wait.is_empty())
            .then(|| Latency::of(&measured.without_own_wait)),
        server: server_metrics::between(&server_before, &server_after),
        generator_cpu_s,
    })
}

/// A bar on stderr; nothing where stderr is no terminal.
pub fn progress_bar(what: &'static str, length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length).with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{msg:>9} {wide_bar} {percent:>3}% {eta}") {
        bar.set_style(style);
    }
    bar
}
