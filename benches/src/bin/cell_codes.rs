//! Cells with product codes, in process: recall by codes alone and with the best scored exactly, and searches per CPU-second.
//!
//! `cell_codes <corpus directory> [--docs N] [--queries N] [--nlist N] [--nprobe A,B,..] [--only TEXT]` prints one JSON object per line:
//! a metric, a code, a number of probes, and with or without exact scoring. A collection is built once for a metric and a code, and
//! restored from its image for each line.
use nigh_benches::corpus::Corpus;
use nigh_benches::cpu;
use nigh_engine::collection::{
    DenseConfig, DenseWriter, Filed, Hit, IndexType, IvfConfig, IvfProduct, Parts, Query, Write,
};
use nigh_engine::distance::{Kernel, Metric, padded, prepare};
use nigh_engine::index::Scratch;
use nigh_engine::memory::{Domain, Participant};
use nigh_engine::quantizer::CellProduct;
use serde_json::json;
use std::path::PathBuf;

const K: usize = 10;
/// Points per filing round.
const ROUND: usize = 512;

fn fail(message: &str) -> ! {
    eprintln!("cell_codes: {message}");
    std::process::exit(2);
}

/// Name, code, and whether points lie in two cells.
fn kinds() -> Vec<(&'static str, CellProduct, bool)> {
    let product = |parts, bits, rotations| CellProduct { parts, bits, rotations, eta: 0.0 };
    vec![
        ("48x8", product(48, 8, 0), false),
        ("96x4", product(96, 4, 0), false),
        ("opq 48x8", product(48, 8, 5), false),
        ("48x8 soar", product(48, 8, 0), true),
        ("96x4 soar", product(96, 4, 0), true),
    ]
}

struct Options {
    directory: PathBuf,
    docs: usize,
    queries: usize,
    nlist: usize,
    nprobe: Vec<usize>,
    only: String,
}

fn options() -> Options {
    let mut options = Options {
        directory: PathBuf::new(),
        docs: 30_000,
        queries: 200,
        nlist: 512,
        nprobe: vec![4, 8, 16, 32],
        only: String::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| fail(&format!("{argument} needs a value")));
        let number = |text: &str| text.parse().unwrap_or_else(|_| fail(&format!("{text} is not a number")));
        match &argument[..] {
            "--docs" => options.docs = number(&value()),
            "--queries" => options.queries = number(&value()),
            "--nlist" => options.nlist = number(&value()),
            "--nprobe" => options.nprobe = value().split(',').map(number).collect(),
            "--only" => options.only = value(),
            directory => options.directory = directory.into(),
        }
    }
    options
}

struct Kind {
    metric: Metric,
    nlist: usize,
    code: CellProduct,
    spills: bool,
}

impl Kind {
    fn writer(&self, dim: usize, slots: usize, nprobe: usize, rerank: bool) -> (DenseWriter, Participant) {
        let domain = Domain::new(1);
        let seat = domain.participant(0);
        let product = Some(IvfProduct { code: self.code, rerank });
        let soar = self.spills.then_some(0.0);
        let ivf = IvfConfig { nlist: self.nlist, nprobe, soar, product, ..IvfConfig::default() };
        let config = DenseConfig { index: IndexType::Ivf(ivf), ..DenseConfig::new(dim, self.metric) };
        (DenseWriter::create(config, slots, domain).unwrap_or_else(|error| fail(&error.to_string())), seat)
    }

    /// Builds as a bulk build does, on one thread; the image, its sequence number, and CPU seconds of training and of filing.
    fn build(&self, corpus: &Corpus, n: usize) -> (Vec<u8>, u64, [f64; 2]) {
        let (mut writer, _seat) = self.writer(corpus.docs.width, n, 1, true);
        for id in 0..n as u64 {
            let vector = corpus.docs.row(id as usize);
            writer.apply(Write {
                seq: id + 1,
                id,
                version: 1,
                parts: Parts::Only(vector),
                row: &[],
                deadline_ms: 0,
            });
        }
        let start = cpu::process_time();
        writer.space_mut().want_training();
        while writer.space().training_due() {
            if let Some(sample) = writer.training_step(0, usize::MAX) {
                writer.end_training(0, sample.cluster());
            }
        }
        let trained = cpu::process_time();
        let (dense, mut buffer) = (writer.shared().clone(), Vec::new());
        loop {
            match writer.begin_filing(0, ROUND) {
                Filed::Nothing => break,
                Filed::Moved(_) => {}
                Filed::Round(round) => {
                    let places: Vec<_> = (0..round.len())
                        .map(|index| dense.space().place(&round, index, &mut buffer))
                        .collect();
                    writer.end_filing(0, &places);
                }
            }
        }
        let seconds = [trained - start, cpu::process_time() - trained].map(|spent| spent.as_secs_f64());
        let mut image = Vec::new();
        writer.begin_capture(true);
        while !writer.capture_step(usize::MAX, &mut image) {}
        (image, writer.seq(), seconds)
    }
}

/// Ids of the nearest of each query.
fn truth(metric: Metric, corpus: &Corpus, n: usize, queries: usize) -> Vec<Vec<u64>> {
    let (kernel, width) = (Kernel::of(metric), padded(corpus.docs.width));
    let prepared = |raw: &[f32]| {
        let mut row = vec![0.0; width];
        prepare(metric, raw, &mut row);
        row
    };
    let docs: Vec<Vec<f32>> = (0..n).map(|id| prepared(corpus.docs.row(id))).collect();
    let nearest = |query: usize| {
        let query = prepared(corpus.queries.row(query));
        let mut all: Vec<(f32, u64)> =
            docs.iter().zip(0..).map(|(doc, id)| (kernel.distance(&query, doc), id)).collect();
        all.select_nth_unstable_by(K - 1, |a, b| a.0.total_cmp(&b.0));
        all[..K].iter().map(|&(_, id)| id).collect()
    };
    (0..queries).map(nearest).collect()
}

fn main() {
    let options = options();
    let corpus = Corpus::read(&options.directory).unwrap_or_else(|error| fail(&error.to_string()));
    let (n, dim) = (corpus.docs.len().min(options.docs), corpus.docs.width);
    let queries = corpus.queries.len().min(options.queries);
    for (name, metric) in [("cosine", Metric::Cosine), ("l2", Metric::L2), ("dot", Metric::Dot)] {
        let truth = truth(metric, &corpus, n, queries);
        for (code_name, code, spills) in kinds() {
            if !format!("{name} {code_name}").contains(&options.only) {
                continue;
            }
            let kind = Kind { metric, nlist: options.nlist, code, spills };
            let (image, seq, [train_s, file_s]) = kind.build(&corpus, n);
            for &nprobe in &options.nprobe {
                let [alone, reranked] = [false, true].map(|rerank| {
                    let (mut writer, seat) = kind.writer(dim, n, nprobe, rerank);
                    let restored = writer.restore(&image).and_then(|()| writer.finish_restore(seq));
                    restored.unwrap_or_else(|error| fail(&error.to_string()));
                    (0..20).for_each(|_| writer.reclaim());
                    search(&corpus, &truth, &writer, &seat)
                });
                let bytes = code.code_len();
                println!(
                    "{}",
                    json!({
                        "metric": name, "code": code_name, "bytes": bytes, "nlist": options.nlist, "nprobe": nprobe,
                        "recall": alone.0, "queries_per_cpu_s": alone.1, "reranked": reranked.0,
                        "reranked_per_cpu_s": reranked.1, "train_cpu_s": train_s, "file_cpu_s": file_s,
                    })
                );
            }
        }
    }
}

/// Recall, and queries per CPU-second.
fn search(corpus: &Corpus, truth: &[Vec<u64>], writer: &DenseWriter, seat: &Participant) -> (f64, f64) {
    let (mut scratch, mut hits): (_, Vec<Hit>) = (Scratch::default(), Vec::new());
    let (mut found, mut spent) = (0, 0.0);
    // The second pass is timed: the first brings what is searched into the caches and translations.
    for pass in 0..2 {
        let start = cpu::thread_time();
        for (index, nearest) in truth.iter().enumerate() {
            let vector = corpus.queries.row(index);
            let query = Query { vector, k: K, ef: 0, filter: None, exact: false, now_ms: 0 };
            let searched = writer.shared().search(&seat.pin(), &query, &mut scratch, &mut hits);
            searched.unwrap_or_else(|error| fail(&error.to_string()));
            if pass == 0 {
                found += nearest.iter().filter(|&&id| hits.iter().any(|hit| hit.id == id)).count();
            }
        }
        spent = (cpu::thread_time() - start).as_secs_f64();
    }
    (found as f64 / (truth.len() * K) as f64, (truth.len() as f64 / spent).round())
}
