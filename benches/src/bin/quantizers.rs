//! Quantizers alone, in process: bytes a vector, what they cost, and how well codes by themselves find the nearest.
//!
//! `quantizers <corpus directory> [--docs N] [--queries N] [--only TEXT]` prints one JSON object per quantizer and metric: bytes of a code,
//! CPU seconds of training and of encoding all documents, recall of the 10 nearest by codes alone and after scoring the 100
//! nearest by codes exactly, and nanoseconds of a distance in a scan.
use nigh_benches::corpus::{Corpus, Rows};
use nigh_benches::cpu;
use nigh_engine::cluster::sample;
use nigh_engine::distance::{Kernel, Metric, Width, padded, prepare};
use nigh_engine::index::Slot;
use nigh_engine::memory::Arena;
use nigh_engine::quantizer::{Codec, CodecQuery, Quantization, SAMPLE_MAX};
use serde_json::json;
use std::path::PathBuf;

const K: usize = 10;
const RESCORED: usize = 100;

fn fail(message: &str) -> ! {
    eprintln!("quantizers: {message}");
    std::process::exit(2);
}

fn kinds() -> Vec<(&'static str, Quantization)> {
    let product = |parts, bits, rotations, eta| Quantization::Product { parts, bits, rotations, eta };
    vec![
        ("sq 8", Quantization::Scalar { width: Width::Eight }),
        ("sq 6", Quantization::Scalar { width: Width::Six }),
        ("sq 4", Quantization::Scalar { width: Width::Four }),
        ("bq1", Quantization::Sign),
        ("pq 96x8", product(96, 8, 0, 0.0)),
        ("pq 48x8", product(48, 8, 0, 0.0)),
        ("pq 96x4", product(96, 4, 0, 0.0)),
        ("pq 192x4", product(192, 4, 0, 0.0)),
        ("opq 48x8, random", product(48, 8, 1, 0.0)),
        ("opq 48x8, 14 rounds", product(48, 8, 15, 0.0)),
        ("pq 48x8, eta 4", product(48, 8, 0, 4.0)),
        ("prq 2x48", Quantization::Residual { parts: 48, layers: 2, rotations: 0 }),
        ("prq 2x24", Quantization::Residual { parts: 24, layers: 2, rotations: 0 }),
    ]
}

struct Options {
    directory: PathBuf,
    docs: usize,
    queries: usize,
    only: String,
}

fn options() -> Options {
    let mut options =
        Options { directory: PathBuf::new(), docs: usize::MAX, queries: 1000, only: String::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| fail(&format!("{argument} needs a value")));
        let number = |text: String| text.parse().unwrap_or_else(|_| fail(&format!("{text} is not a number")));
        match &argument[..] {
            "--docs" => options.docs = number(value()),
            "--queries" => options.queries = number(value()),
            "--only" => options.only = value(),
            name if name.starts_with("--") => fail(&format!("unknown option {name}")),
            directory => options.directory = directory.into(),
        }
    }
    options
}

/// The first `count` rows, prepared, without padding.
fn prepared(rows: &Rows<f32>, metric: Metric, count: usize) -> Vec<f32> {
    let mut all = Vec::with_capacity(count * rows.width);
    let mut row = vec![0.0; padded(rows.width)];
    for at in 0..count {
        prepare(metric, rows.row(at), &mut row);
        all.extend_from_slice(&row[..rows.width]);
    }
    all
}

/// The `count` smallest, nearest first.
fn nearest(distances: &[f32], count: usize) -> Vec<Slot> {
    let mut order: Vec<Slot> = (0..distances.len() as Slot).collect();
    let by = |a: &Slot, b: &Slot| distances[*a as usize].total_cmp(&distances[*b as usize]).then(a.cmp(b));
    if count < order.len() {
        order.select_nth_unstable_by(count, by);
        order.truncate(count);
    }
    order.sort_unstable_by(by);
    order
}

fn main() {
    let options = options();
    let corpus = Corpus::read(&options.directory).unwrap_or_else(|error| fail(&error.to_string()));
    let (dim, n) = (corpus.docs.width, corpus.docs.len().min(options.docs));
    let queries = corpus.queries.len().min(options.queries);
    let slots: Vec<Slot> = (0..n as Slot).collect();
    for metric in [Metric::Cosine, Metric::L2, Metric::Dot] {
        let (docs, asked) = (prepared(&corpus.docs, metric, n), prepared(&corpus.queries, metric, queries));
        let mut vectors = Arena::reserve(n, padded(dim)).unwrap_or_else(|error| fail(&error.to_string()));
        for (slot, doc) in docs.chunks_exact(dim).enumerate() {
            vectors.row_mut(slot)[..dim].copy_from_slice(doc);
        }
        let kernel = Kernel::of(metric);
        let exact = |query: &[f32], slots: &[Slot]| {
            let mut row = query.to_vec();
            row.resize(padded(dim), 0.0);
            let mut out = vec![0.0; slots.len()];
            kernel.distances(&row, vectors.table(), slots, &mut out);
            out
        };
        let truth: Vec<Vec<Slot>> =
            asked.chunks_exact(dim).map(|query| nearest(&exact(query, &slots), K)).collect();
        for (name, quantization) in kinds().into_iter().filter(|(name, _)| name.contains(&options.only)) {
            let chosen = sample(n, SAMPLE_MAX, 1);
            let rows: Vec<f32> = chosen.iter().flat_map(|&at| &docs[at * dim..][..dim]).copied().collect();
            let start = cpu::thread_time();
            let codec = Codec::train(quantization, metric, dim, &rows, 1);
            let trained = cpu::thread_time();
            let len = codec.code_len();
            let mut codes = vec![0; n * len];
            for (docs, codes) in docs.chunks(512 * dim).zip(codes.chunks_mut(512 * len)) {
                codec.encode(docs, codes);
            }
            let encoded = cpu::thread_time();
            let mut rows = Arena::reserve(n, len).unwrap_or_else(|error| fail(&error.to_string()));
            for (slot, code) in codes.chunks_exact(len).enumerate() {
                rows.row_mut(slot).copy_from_slice(code);
            }
            let (mut alone, mut rescored) = (0, 0);
            let (mut prepared, mut distances) = (CodecQuery::default(), vec![0.0; n]);
            let mut scanned = 0.0;
            for (query, truth) in asked.chunks_exact(dim).zip(&truth) {
                let began = cpu::thread_time();
                codec.query(query, &mut prepared);
                codec.distances(&prepared, &rows, &slots, &mut distances);
                scanned += (cpu::thread_time() - began).as_secs_f64();
                let near = nearest(&distances, RESCORED);
                alone += truth.iter().filter(|slot| near[..K.min(near.len())].contains(slot)).count();
                let again = exact(query, &near);
                let best: Vec<Slot> = nearest(&again, K).into_iter().map(|at| near[at as usize]).collect();
                rescored += truth.iter().filter(|slot| best.contains(slot)).count();
            }
            let wanted = (K * queries) as f64;
            println!(
                "{}",
                json!({
                    "quantizer": name, "metric": format!("{metric:?}").to_lowercase(), "bytes": len,
                    "train_cpu_s": (trained - start).as_secs_f64(), "encode_cpu_s": (encoded - trained).as_secs_f64(),
                    "recall": f64::from(alone as u32) / wanted, "recall_rescored_100": f64::from(rescored as u32) / wanted,
                    "distance_ns": scanned * 1e9 / (n * queries) as f64,
                })
            );
        }
    }
}
