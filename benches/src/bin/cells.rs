//! An index of cells, in process: what training and filing cost, and recall against queries per CPU-second.
//!
//! `cells <corpus directory> [--docs N] [--queries N] [--k K] [--nlist N] [--soar LAMBDA] [--nprobe A,B,..]` prints one JSON object
//! per line: the parameters, the build, then one line per number of probes. The collection is built once and restored from its
//! image for each of them.
use nigh_benches::corpus::Corpus;
use nigh_benches::cpu;
use nigh_engine::collection::{
    Dense, DenseConfig, DenseWriter, Filed, Hit, IndexType, IvfConfig, Parts, Query, Write,
};
use nigh_engine::distance::{Metric, simd_level};
use nigh_engine::index::Scratch;
use nigh_engine::memory::{Domain, Participant};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Points per filing round.
const ROUND: usize = 512;

struct Options {
    directory: PathBuf,
    docs: usize,
    queries: usize,
    k: usize,
    ivf: IvfConfig,
    nprobe: Vec<usize>,
}

impl Options {
    fn parse() -> Result<Options, String> {
        let mut directory = None;
        let mut named: HashMap<String, String> = HashMap::new();
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.strip_prefix("--") {
                Some(name) => {
                    let value = arguments.next().ok_or(format!("--{name} needs a value"))?;
                    named.insert(name.to_owned(), value);
                }
                None => directory = Some(PathBuf::from(argument)),
            }
        }
        let mut list = |name: &str, default: &[usize]| -> Result<Vec<usize>, String> {
            let Some(text) = named.remove(name) else { return Ok(default.to_vec()) };
            let wrong = |_| format!("--{name} {text}: not numbers");
            text.split(',').map(str::parse).collect::<Result<_, _>>().map_err(wrong)
        };
        let mut number = |name: &str, default: usize| Ok::<_, String>(list(name, &[default])?[0]);
        let (docs, queries) = (number("docs", usize::MAX)?, number("queries", 2000)?);
        let (k, nlist) = (number("k", 10)?, number("nlist", 0)?);
        let nprobe = list("nprobe", &[1, 2, 4, 8, 16, 32, 64, 128])?;
        let soar = match named.remove("soar") {
            Some(text) => Some(text.parse().map_err(|_| format!("--soar {text} is not a number"))?),
            None => None,
        };
        match named.into_keys().next() {
            Some(name) => Err(format!("unknown option --{name}")),
            None => Ok(Options {
                directory: directory.ok_or("the first argument is the corpus directory")?,
                docs,
                queries,
                k,
                ivf: IvfConfig { nlist, soar, ..IvfConfig::default() },
                nprobe,
            }),
        }
    }
}

fn fail(error: &str) -> ! {
    eprintln!("cells: {error}");
    std::process::exit(2)
}

fn writer(dim: usize, ivf: IvfConfig, slots: usize) -> (DenseWriter, Participant) {
    let domain = Domain::new(1);
    let seat = domain.participant(0);
    let config = DenseConfig { index: IndexType::Ivf(ivf), ..DenseConfig::new(dim, Metric::Cosine) };
    (DenseWriter::create(config, slots, domain).unwrap_or_else(|error| fail(&error.to_string())), seat)
}

/// Builds as a bulk build does, on one thread; the collection and its line.
fn build(options: &Options, corpus: &Corpus, n: usize) -> (DenseWriter, Value) {
    let (mut writer, _seat) = writer(corpus.docs.width, options.ivf.clone(), n);
    for id in 0..n {
        let vector = corpus.docs.row(id);
        writer.apply(Write {
            seq: id as u64 + 1,
            id: id as u64,
            version: 1,
            parts: Parts::Only(vector),
            row: &[],
            deadline_ms: 0,
        });
    }
    let dense = writer.shared().clone();
    let seconds = |from: std::time::Duration| (cpu::process_time() - from).as_secs_f64();
    let start = cpu::process_time();
    writer.space_mut().want_training();
    let mut sampled = 0;
    while writer.space().training_due() {
        if let Some(sample) = writer.training_step(0, usize::MAX) {
            sampled = sample.len();
            writer.end_training(0, sample.cluster());
        }
    }
    let trained = seconds(start);
    let filing = cpu::process_time();
    let mut buffer = Vec::new();
    loop {
        match writer.begin_filing(0, ROUND) {
            Filed::Nothing => break,
            Filed::Moved(_) => {}
            Filed::Round(round) => {
                let places: Vec<_> =
                    (0..round.len()).map(|index| dense.space().place(&round, index, &mut buffer)).collect();
                writer.end_filing(0, &places);
            }
        }
    }
    let line = json!({
        "cells": cells(&dense), "sampled": sampled, "train_cpu_s": trained, "file_cpu_s": seconds(filing),
        "build_cpu_s": seconds(start), "bytes_per_vector": dense.stats().bytes / n as u64,
    });
    (writer, line)
}

fn cells(dense: &Arc<Dense>) -> u64 {
    dense.space().cells_info().map_or(0, |info| info.cells)
}

fn main() {
    let options = Options::parse().unwrap_or_else(|error| fail(&error));
    let corpus = Corpus::read(&options.directory).unwrap_or_else(|error| fail(&error.to_string()));
    let n = corpus.docs.len().min(options.docs);
    let queries = corpus.queries.len().min(options.queries);
    println!(
        "{}",
        json!({
            "program": "nigh", "simd": simd_level(), "docs": n, "dim": corpus.docs.width, "queries": queries,
            "k": options.k, "nlist": options.ivf.nlist, "soar": options.ivf.soar,
        })
    );
    let (mut built, line) = build(&options, &corpus, n);
    println!("{line}");
    let mut image = Vec::new();
    built.begin_capture(true);
    while !built.capture_step(usize::MAX, &mut image) {}
    let seq = built.seq();
    drop(built);

    for &nprobe in &options.nprobe {
        let (mut writer, seat) = writer(corpus.docs.width, IvfConfig { nprobe, ..options.ivf.clone() }, n);
        let start = cpu::process_time();
        let restored = writer.restore(&image).and_then(|()| writer.finish_restore(seq));
        restored.unwrap_or_else(|error| fail(&error.to_string()));
        let restored = cpu::process_time() - start;
        let mut line = search(&options, &corpus, n, queries, writer.shared(), &seat);
        line["nprobe"] = nprobe.into();
        line["restore_cpu_s"] = restored.as_secs_f64().into();
        println!("{line}");
    }
}

fn search(
    options: &Options,
    corpus: &Corpus,
    n: usize,
    queries: usize,
    dense: &Arc<Dense>,
    seat: &Participant,
) -> Value {
    let (mut scratch, mut hits): (_, Vec<Hit>) = (Scratch::default(), Vec::new());
    let (mut found, mut wanted) = (0, 0);
    let before = dense.stats().distances;
    // The second pass is timed: the first brings what is searched into the caches and translations.
    let mut spent = 0.0;
    for pass in 0..2 {
        let start = cpu::thread_time();
        for index in 0..queries {
            let vector = corpus.queries.row(index);
            let query = Query { vector, k: options.k, ef: 0, filter: None, exact: false, now_ms: 0 };
            let searched = dense.search(&seat.pin(), &query, &mut scratch, &mut hits);
            searched.unwrap_or_else(|error| fail(&error.to_string()));
            if pass == 0 {
                let truth = corpus.truth.row(index).iter().filter(|&&id| (id as usize) < n).take(options.k);
                for &id in truth {
                    wanted += 1;
                    found += usize::from(hits.iter().any(|hit| hit.id == id as u64));
                }
            }
        }
        spent = (cpu::thread_time() - start).as_secs_f64();
    }
    json!({
        "recall": found as f64 / wanted.max(1) as f64, "queries_per_cpu_s": (queries as f64 / spent).round(),
        "distances_per_query": (dense.stats().distances - before) / (2 * queries as u64).max(1),
    })
}
