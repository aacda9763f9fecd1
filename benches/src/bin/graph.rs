//! The graph alone, in process: build rate, and recall against queries per CPU-second.
//!
//! `graph <corpus directory> [--threads N] [--m M] [--ef-construction E] [--docs N] [--queries N] [--k K]
//! [--round N] [--ef A,B,..] [--repeat N] [--quant NAME]
//! [--vamana R,ALPHA [--passes N]]` prints one JSON object per line: the machine and parameters, the build,
//! then one line per `ef`. With `--serve` it builds, then answers each line `ef [searchers]` on stdin with one measurement, so
//! that a driver can alternate it with another program. Each of the searchers is a thread that runs every query: 1 unless said
//! otherwise. The build's line has a digest of the edges, which says whether two builds made the same graph.
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use nigh_benches::corpus::{Corpus, Rows};
use nigh_benches::cpu;
use nigh_benches::parallel::{Worker, in_parallel, workers};
use nigh_benches::resident::resident_mb;
use nigh_engine::distance::{Metric, Width, padded, prepare, simd_level};
use nigh_engine::index::{
    Commit, Flat, Graph, GraphConfig, JobStep, Living, Quantized, ROUND_NODES_MAX, Round, Slot,
};
use nigh_engine::quantizer::Quantization;
use serde_json::json;

struct Options {
    directory: PathBuf,
    threads: usize,
    docs: usize,
    queries: usize,
    k: usize,
    round: usize,
    repeat: usize,
    ef: Vec<usize>,
    serve: bool,
    m: usize,
    ef_construction: usize,
    quantized: Option<Quantized>,
    flat: Option<Flat>,
    passes: usize,
}

/// `sq8`, `sq6`, `sq4` (trained steps of as many bits), `bq1`, `pqMxB` (`M` parts of `B` bits), with `opq` in front after a random
/// rotation, `prqLxM` (`L` layers of `M` parts).
fn quantized(name: &str) -> Option<Quantized> {
    let product = |text: &str| {
        let (a, b) = text.split_once('x')?;
        Some((a.parse().ok()?, b.parse().ok()?))
    };
    let quantization = match name {
        "bq1" => Quantization::Sign,
        name if name.starts_with("sq") => {
            Quantization::Scalar { width: Width::from_bits(name.strip_prefix("sq")?.parse().ok()?)? }
        }
        name if name.starts_with("prq") => {
            let (layers, parts) = product(name.strip_prefix("prq")?)?;
            Quantization::Residual { parts, layers, rotations: 0 }
        }
        name => {
            let rotations = usize::from(name.starts_with('o'));
            let (parts, bits) = product(name.trim_start_matches('o').strip_prefix("pq")?)?;
            Quantization::Product { parts, bits, rotations, eta: 0.0 }
        }
    };
    Some(Quantized { quantization, threshold: 1, plans: false, once: false })
}

impl Options {
    fn parse() -> Result<Options, String> {
        let mut directory = None;
        let mut serve = false;
        let mut named: HashMap<String, String> = HashMap::new();
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.strip_prefix("--") {
                Some("serve") => serve = true,
                Some(name) => {
                    let value = arguments.next().ok_or(format!("--{name} needs a value"))?;
                    named.insert(name.to_owned(), value);
                }
                None => directory = Some(PathBuf::from(argument)),
            }
        }
        let mut number = |name: &str, default: usize| match named.remove(name) {
            Some(text) => text.parse().map_err(|_| format!("--{name} {text} is not a number")),
            None => Ok(default),
        };
        let options = Options {
            threads: number("threads", 1)?.max(1),
            docs: number("docs", usize::MAX)?,
            queries: number("queries", usize::MAX)?,
            k: number("k", 10)?,
            round: number("round", ROUND_NODES_MAX)?.clamp(1, ROUND_NODES_MAX),
            repeat: number("repeat", 1)?,
            passes: number("passes", 2)?,
            m: number("m", 16)?,
            ef_construction: number("ef-construction", 200)?,
            ef: match named.remove("ef") {
                Some(list) => list
                    .split(',')
                    .map(str::parse)
                    .collect::<Result<_, std::num::ParseIntError>>()
                    .map_err(|e| e.to_string())?,
                None => vec![10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384],
            },
            quantized: match named.remove("quant") {
                Some(name) => Some(quantized(&name).ok_or(format!("--quant {name} is no quantizer"))?),
                None => None,
            },
            flat: match named.remove("vamana") {
                Some(text) => {
                    let (degree, alpha) = text.split_once(',').ok_or("--vamana wants R,ALPHA")?;
                    let degree = degree.parse().map_err(|_| format!("--vamana {text}: R is no number"))?;
                    let alpha = alpha.parse().map_err(|_| format!("--vamana {text}: ALPHA is no number"))?;
                    Some(Flat { degree, alpha })
                }
                None => None,
            },
            serve,
            directory: directory.ok_or("the first argument is the corpus directory")?,
        };
        match named.into_keys().next() {
            Some(name) => Err(format!("unknown option --{name}")),
            None => Ok(options),
        }
    }
}

fn main() {
    let options = Options::parse().unwrap_or_else(|error| fail(&error));
    let corpus = Corpus::read(&options.directory).unwrap_or_else(|error| fail(&error.to_string()));
    let n = corpus.docs.len().min(options.docs);
    let queries = padded_rows(&corpus.queries, options.queries);
    println!(
        "{}",
        json!({
            "program": "nigh", "simd": simd_level(), "docs": n, "dim": corpus.docs.width, "queries": queries.len(),
            "k": options.k, "m": options.m, "ef_construction": options.ef_construction, "threads": options.threads,
        })
    );
    let graph = build(&options, &corpus.docs, n);
    let mut workers = workers(1);
    let mut measure = |ef: usize, searchers: usize| {
        workers.resize_with(searchers.max(1), Worker::default);
        let line = search(&graph, &queries, &corpus.truth, n, options.k, ef, &mut workers);
        println!("{line}");
        std::io::stdout().flush().expect("stdout is open");
    };
    if options.serve {
        for line in std::io::stdin().lock().lines() {
            let line = line.expect("stdin is text");
            let numbers: Result<Vec<usize>, _> = line.split_whitespace().map(str::parse).collect();
            match numbers.as_deref() {
                Ok(&[ef]) => measure(ef, 1),
                Ok(&[ef, searchers]) => measure(ef, searchers),
                _ => fail(&format!("{line} is not an ef, nor an ef and a number of searchers")),
            }
        }
    } else {
        for _ in 0..options.repeat {
            options.ef.iter().for_each(|&ef| measure(ef, 1));
        }
    }
}

fn fail(error: &str) -> ! {
    eprintln!("graph: {error}");
    std::process::exit(2)
}

fn padded_rows(rows: &Rows<f32>, max: usize) -> Vec<Vec<f32>> {
    (0..rows.len().min(max))
        .map(|i| {
            let mut row = vec![0.0; padded(rows.width)];
            prepare(Metric::Cosine, rows.row(i), &mut row);
            row
        })
        .collect()
}

/// Inserts documents 0..n in order, in rounds planned by all threads; the calling thread is the owner and one of
/// them. Prints the build's line.
fn build(options: &Options, docs: &Rows<f32>, n: usize) -> Graph {
    let graph = Graph::new(GraphConfig {
        dim: docs.width,
        metric: Metric::Cosine,
        m: options.m,
        ef_construction: options.ef_construction,
        seed: 1,
        level0_full_degree: false,
        extend_candidates: false,
        extend_candidates_max: 0,
        codes: true,
        rescore_factor: 0,
        quantized: options.quantized,
        flat: options.flat,
        capacity: n,
    })
    .unwrap_or_else(|error| fail(&error.to_string()));
    let (resident_before_mb, _) = resident_mb();
    let (wall, cpu) = (Instant::now(), cpu::process_time());
    let mut row = vec![0.0; padded(docs.width)];
    for slot in 0..n {
        prepare(Metric::Cosine, docs.row(slot), &mut row);
        graph.write_vector(slot as Slot, &row);
    }
    let points: Vec<(Slot, u64)> = (0..n as Slot).map(|slot| (slot, u64::from(slot))).collect();
    let mut workers = workers(options.threads);
    for points in points.chunks(options.round) {
        run_round(&graph, &Round::of(&graph, points), &mut workers);
    }
    // As a bulk build of a collection has it.
    for _ in 1..if options.flat.is_some() { options.passes } else { 1 } {
        for slots in (0..n as Slot).collect::<Vec<_>>().chunks(options.round) {
            run_round(&graph, &Round::again(&graph, slots.to_vec()), &mut workers);
        }
    }
    let linked = (cpu::process_time() - cpu).as_secs_f64();
    loop {
        match graph.next_job(false, &Living { count: n, seq: 0, is_live: &|_| true }) {
            JobStep::Idle => break,
            JobStep::More => {}
            JobStep::Run(job) => graph.finish_job(job.run()).unwrap_or_else(|error| fail(&error.to_string())),
        }
    }
    let (wall, cpu) = (wall.elapsed().as_secs_f64(), (cpu::process_time() - cpu).as_secs_f64());
    println!(
        "{}",
        json!({
            "build_wall_s": wall, "build_cpu_s": cpu, "inserts_per_s": n as f64 / wall,
            "inserts_per_cpu_s": n as f64 / cpu, "quantize_cpu_s": cpu - linked,
            "quantized_bytes_per_vector": graph.quantized_bytes() / n, "bytes_per_vector": graph.bytes() / n,
            "resident_before_mb": resident_before_mb, "peak_mb": resident_mb().1, "edges": digest(&graph, n),
        })
    );
    graph
}

/// A number that all edges of slots 0..n go into, level by level and in their order.
fn digest(graph: &Graph, n: usize) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    // FNV-1a, by words.
    let mut add = |word: u64| hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    for slot in 0..n as Slot {
        graph.edges(slot, &mut |level, edges| {
            add(u64::from(level) << 32 | edges.len() as u64);
            edges.iter().for_each(|&edge| add(u64::from(edge)));
        });
    }
    format!("{hash:016x}")
}

fn run_round(graph: &Graph, round: &Round, workers: &mut [Worker]) {
    let plans = in_parallel(workers, round.slots.len(), |worker, index| {
        worker.planner.start(graph, round, index);
        worker.planner.step(graph, round, usize::MAX, |_| false).expect("an unbounded step finishes the plan")
    });
    let jobs = graph.target_jobs(&plans);
    let targets = in_parallel(workers, jobs.len(), |worker, index| {
        graph.plan_target(&jobs[index], &mut worker.scratch)
    });
    graph.commit(Commit::new(round, plans, targets), |_| false);
}

/// Runs every query once on each of as many threads as there are workers, this one among them, which start together at places
/// of their own in the list; recall is counted outside the measured time. Truth beyond the first `n` documents (a shortened
/// corpus) does not count.
fn search(
    graph: &Graph,
    queries: &[Vec<f32>],
    truth: &Rows<i32>,
    n: usize,
    k: usize,
    ef: usize,
    workers: &mut [Worker],
) -> serde_json::Value {
    let searchers = workers.len();
    let begin = Barrier::new(searchers);
    let runs = in_parallel(workers, searchers, |worker, searcher| {
        let scratch = &mut worker.scratch;
        let mut run = Run { found: Vec::with_capacity(queries.len() * k), ..Run::default() };
        let first = searcher * queries.len() / searchers;
        begin.wait();
        let (wall, cpu) = (Instant::now(), cpu::thread_time());
        for query in queries[first..].iter().chain(&queries[..first]) {
            let hits = graph.search(query, k, ef.max(k), scratch, |_| true);
            run.found.extend(hits.iter().take(k).map(|hit| hit.slot));
            run.ends.push(run.found.len());
            run.distances += Graph::stats(scratch).distances;
        }
        (run.cpu, run.began, run.ended) = (cpu::thread_time() - cpu, Some(wall), Some(Instant::now()));
        run
    });
    let (began, ended) =
        (runs.iter().filter_map(|run| run.began).min(), runs.iter().filter_map(|run| run.ended).max());
    let wall = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began).as_secs_f64();
    let cpu: Duration = runs.iter().map(|run| run.cpu).sum();
    let Run { found, ends, distances, .. } = &runs[0];
    let (mut hits, mut wanted, mut from) = (0, 0, 0);
    for (index, &end) in ends.iter().enumerate() {
        let exact = truth.row(index).iter().filter(|&&id| (id as usize) < n).take(k);
        for &id in exact {
            wanted += 1;
            hits += usize::from(found[from..end].contains(&(id as Slot)));
        }
        from = end;
    }
    let searched = (searchers * queries.len()) as f64;
    json!({
        "ef": ef, "recall": hits as f64 / f64::from(wanted.max(1)), "queries_per_cpu_s": searched / cpu.as_secs_f64(),
        "searchers": searchers, "queries_per_s": searched / wall,
        "distances_per_query": *distances as f64 / queries.len() as f64,
    })
}

/// One searcher's.
#[derive(Default)]
struct Run {
    found: Vec<Slot>,
    /// Where each query's hits end.
    ends: Vec<usize>,
    distances: u64,
    cpu: Duration,
    began: Option<Instant>,
    ended: Option<Instant>,
}
