//! The sparse and text lanes alone, in process: build rate, queries per CPU-second, and how many postings are scored.
//!
//! `lanes [<corpus directory>] [--docs N] [--queries N] [--k K] [--sparse-docs N] [--sparse-terms N]
//! [--query-terms N] [--dimensions N]` prints one JSON object per line. With a directory it indexes the texts of
//! `docs.jsonl` (or `docs.jsonl.gz`) and searches for those of `queries.jsonl`; then it does the same with a synthetic sparse
//! set: dimensions drawn log-uniformly (Zipf), weights that grow with the dimension's rarity and scatter log-normally.
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use nigh_benches::cpu;
use nigh_engine::memory::Domain;
use nigh_engine::sparse::{LaneScratch, LaneSearch, SparseWriter};
use nigh_engine::text::{Analyzer, TextConfig, TextQuery, TextWriter};
use serde_json::{Value, json};

struct Options {
    directory: Option<PathBuf>,
    docs: usize,
    queries: usize,
    k: usize,
    sparse_docs: usize,
    sparse_terms: usize,
    query_terms: usize,
    dimensions: usize,
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
        let mut number = |name: &str, default: usize| match named.remove(name) {
            Some(text) => text.parse().map_err(|_| format!("--{name} {text} is not a number")),
            None => Ok(default),
        };
        let options = Options {
            directory,
            docs: number("docs", usize::MAX)?,
            queries: number("queries", usize::MAX)?,
            k: number("k", 10)?,
            sparse_docs: number("sparse-docs", 100_000)?,
            sparse_terms: number("sparse-terms", 80)?,
            query_terms: number("query-terms", 20)?,
            dimensions: number("dimensions", 30_000)?.max(2),
        };
        match named.into_keys().next() {
            Some(name) => Err(format!("unknown option --{name}")),
            None => Ok(options),
        }
    }
}

fn main() {
    let options = Options::parse().unwrap_or_else(|error| fail(&error));
    if let Some(directory) = &options.directory {
        let docs = texts(directory, "docs", options.docs).unwrap_or_else(|error| fail(&error.to_string()));
        let queries =
            texts(directory, "queries", options.queries).unwrap_or_else(|error| fail(&error.to_string()));
        text(&docs, &queries, options.k);
    }
    if options.sparse_docs > 0 {
        sparse(&options);
    }
}

fn fail(error: &str) -> ! {
    eprintln!("lanes: {error}");
    std::process::exit(2)
}

/// The `text` of each line of `<name>.jsonl`, zipped or not.
fn texts(directory: &Path, name: &str, max: usize) -> io::Result<Vec<String>> {
    let plain = directory.join(format!("{name}.jsonl"));
    let zipped = directory.join(format!("{name}.jsonl.gz"));
    let (path, zip) = if plain.exists() { (plain, false) } else { (zipped, true) };
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = File::open(&path).map_err(named)?;
    let reader: Box<dyn Read> = if zip { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    let parse = |line: io::Result<String>| {
        let line: Value = serde_json::from_str(&line?)?;
        Ok(line["text"].as_str().unwrap_or_default().to_owned())
    };
    BufReader::new(reader).lines().take(max).map(parse).collect::<io::Result<_>>().map_err(named)
}

fn text(docs: &[String], queries: &[String], k: usize) {
    let domain = Domain::new(1);
    let seat = domain.participant(0);
    let start = cpu::thread_time();
    let mut writer = TextWriter::new(TextConfig::default(), domain, 1);
    let mut bytes = 0;
    for (slot, text) in docs.iter().enumerate() {
        writer.insert(slot as u32, text);
        bytes += text.len();
    }
    let build = (cpu::thread_time() - start).as_secs_f64();
    let index = writer.shared().clone();
    let before = index.stats();
    let (mut scratch, mut out) = (LaneScratch::default(), Vec::new());
    let start = cpu::thread_time();
    let queries: Vec<TextQuery> =
        queries.iter().map(|text| TextQuery::new(Analyzer::English, text)).collect();
    let analysis = (cpu::thread_time() - start).as_secs_f64();
    let start = cpu::thread_time();
    let mut hits = 0;
    for query in &queries {
        let search =
            LaneSearch { k, admit: |_| true, id_of: u64::from, scratch: &mut scratch, out: &mut out };
        index.search(&seat.pin(), query, None, search);
        hits += out.len();
    }
    let search = (cpu::thread_time() - start).as_secs_f64();
    let stats = index.stats();
    println!(
        "{}",
        json!({
            "lane": "text", "docs": stats.docs, "tokens": stats.tokens, "terms": stats.terms, "text_bytes": bytes,
            "index_bytes": stats.bytes, "inserts_per_cpu_s": docs.len() as f64 / build,
            "analysis_us": analysis * 1e6 / queries.len().max(1) as f64,
        })
    );
    report(
        "text",
        queries.len(),
        k,
        hits,
        search,
        stats.postings - before.postings,
        stats.scored - before.scored,
    );
}

fn sparse(options: &Options) {
    let domain = Domain::new(1);
    let seat = domain.participant(0);
    let mut random = Random(7);
    let docs: Vec<Vec<(u32, f32)>> =
        (0..options.sparse_docs).map(|_| random.vector(options.sparse_terms, options.dimensions)).collect();
    let count = options.queries.min(1000);
    let queries: Vec<Vec<(u32, f32)>> =
        (0..count).map(|_| random.vector(options.query_terms, options.dimensions)).collect();
    let start = cpu::thread_time();
    let mut writer = SparseWriter::new(domain, 1);
    for (slot, vector) in docs.iter().enumerate() {
        writer.insert(slot as u32, vector).expect("ascending and finite");
    }
    let build = (cpu::thread_time() - start).as_secs_f64();
    let index = writer.shared().clone();
    let (mut scratch, mut out) = (LaneScratch::default(), Vec::new());
    let start = cpu::thread_time();
    let mut hits = 0;
    for query in &queries {
        let k = options.k;
        let search =
            LaneSearch { k, admit: |_| true, id_of: u64::from, scratch: &mut scratch, out: &mut out };
        index.search(&seat.pin(), query, search).expect("ascending and finite");
        hits += out.len();
    }
    let search = (cpu::thread_time() - start).as_secs_f64();
    let stats = index.stats();
    println!(
        "{}",
        json!({
            "lane": "sparse", "docs": docs.len(), "components": docs.iter().map(Vec::len).sum::<usize>(),
            "index_bytes": stats.bytes, "inserts_per_cpu_s": docs.len() as f64 / build,
        })
    );
    report("sparse", queries.len(), options.k, hits, search, stats.postings, stats.scored);
}

fn report(lane: &str, queries: usize, k: usize, hits: usize, cpu_s: f64, postings: u64, scored: u64) {
    let per_query = |n: u64| n as f64 / queries.max(1) as f64;
    println!(
        "{}",
        json!({
            "lane": lane, "queries": queries, "k": k, "hits": hits, "queries_per_cpu_s": queries as f64 / cpu_s,
            "postings_per_query": per_query(postings), "scored_per_query": per_query(scored),
            "scored_share": scored as f64 / postings.max(1) as f64,
        })
    );
}

/// xorshift64*, so that the set is the same everywhere.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    fn vector(&mut self, terms: usize, dimensions: usize) -> Vec<(u32, f32)> {
        let mut vector: Vec<(u32, f32)> = (0..terms)
            .map(|_| {
                let dimension = (dimensions as f64).powf(self.unit()) - 1.0;
                let weight = (2.0 + dimension).ln() / 4.0 * (0.6 * self.normal()).exp();
                (dimension as u32, weight as f32)
            })
            .collect();
        vector.sort_unstable_by_key(|&(dimension, _)| dimension);
        vector.dedup_by_key(|&mut (dimension, _)| dimension);
        vector
    }
}
