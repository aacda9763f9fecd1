//! Filtered search in process on one core: recall and rate from all points down to one in ten thousand, beside the rate without
//! a filter and that of an exact scan over just the matching points, which is given to it as a ready list of slots.
//!
//! `filters <corpus directory> [--docs N] [--queries N] [--k K] [--ef N] [--m M] [--ef-construction N] [--threads N]
//! [--only TEXT]` builds a collection with payloads (the documents' own: part of speech, file, words, text; and a uniform random
//! number) and prints one JSON object per filter, of those whose name holds TEXT. The three rates of a line are taken in turns of
//! a few queries, so that a machine that slows down slows all three. `floor` is the larger of half the unfiltered rate and the
//! rate of the scan: `share_of_floor` at or above 1 means that the filter has no cliff there.
//!
//! With `--deleted PERCENT [--turns N] [--beams A,B,..]` it measures what deletes cost instead: beside a collection that is whole,
//! searched without a filter, another of which so many points were deleted, searched with filters that match half of it. One
//! line per filter, turn and beam, first with the deleted points in the graph as way-points, then after all repairs that a server
//! would do; `benches/deleted.py` makes a table of them.
use flate2::read::GzDecoder;
use nigh_benches::corpus::{Corpus, Rows};
use nigh_benches::cpu;
use nigh_benches::parallel::{index_tail, workers};
use nigh_engine::collection::{Dense, DenseConfig, DenseWriter, Hit, Parts, Query, Write};
use nigh_engine::distance::{Kernel, Metric, padded, prepare};
use nigh_engine::filter::{Node, Path as Way, Predicate};
use nigh_engine::index::{Scratch, Slot, exact_search};
use nigh_engine::memory::{Arena, Domain, Participant};
use nigh_engine::payload::{PayloadRow, RowBuilder, Value};
use serde_json::json;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Queries of one kind before the next kind has its turn.
const TURN: usize = 10;
/// Points per round of the build.
const ROUND: usize = 256;
/// Queries in one piece where two collections take turns: longer, as each drives the other from the caches.
const LONG_TURN: usize = 100;
/// Those of the filters that match half the points: by a column, by the list of one value, by those of 500.
const HALVES: [&str; 3] = ["range: uniform below 0.5", "eq: even", "in: 500 of 1000 groups"];
/// Nodes of one step of a repair.
const REPAIRED_PER_STEP: usize = 1024;
/// Uniform numbers are below that.
const UNIFORM: i64 = 1_000_000;

struct Options {
    directory: PathBuf,
    numbers: HashMap<String, usize>,
    /// Only filters whose name holds this.
    only: String,
    /// Beams that deletes are measured with.
    beams: Vec<usize>,
}

impl Options {
    fn parse() -> Result<Options, String> {
        const KNOWN: [&str; 9] =
            ["docs", "queries", "k", "ef", "m", "ef-construction", "threads", "deleted", "turns"];
        let (mut directory, mut numbers, mut only) = (None, HashMap::new(), String::new());
        let mut beams = vec![12, 16, 24, 32, 48, 64, 96, 128];
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.strip_prefix("--") {
                Some("only") => only = arguments.next().ok_or("--only needs a text")?,
                Some("beams") => {
                    let list = arguments.next().ok_or("--beams needs a list")?;
                    let parsed: Result<_, _> = list.split(',').map(str::parse).collect();
                    beams = parsed.map_err(|_| format!("--beams {list} is not a list of numbers"))?;
                }
                Some(name) if KNOWN.contains(&name) => {
                    let value = arguments.next().ok_or(format!("--{name} needs a value"))?;
                    let number = value.parse().map_err(|_| format!("--{name} {value} is not a number"))?;
                    numbers.insert(name.to_owned(), number);
                }
                Some(name) => return Err(format!("unknown option --{name}")),
                None => directory = Some(PathBuf::from(argument)),
            }
        }
        Ok(Options { directory: directory.ok_or("which corpus directory?")?, numbers, only, beams })
    }

    /// Whether deletes are measured with the filter.
    fn is_half(&self, name: &str) -> bool {
        if self.only.is_empty() { HALVES.contains(&name) } else { name.contains(&self.only) }
    }

    fn get(&self, name: &str, default: usize) -> usize {
        self.numbers.get(name).copied().unwrap_or(default)
    }
}

fn main() {
    let options = Options::parse().unwrap_or_else(|error| fail(&error));
    if let Err(error) = run(&options) {
        fail(&error.to_string());
    }
}

fn fail(error: &str) -> ! {
    eprintln!("filters: {error}");
    std::process::exit(2)
}

fn run(options: &Options) -> io::Result<()> {
    let corpus = Corpus::read(&options.directory)?;
    let n = corpus.docs.len().min(options.get("docs", usize::MAX));
    let rows = payloads(&options.directory, n)?;
    if let percent @ 1.. = options.get("deleted", 0) {
        return beside_whole(options, &corpus, &rows, percent);
    }
    let bench = Bench::build(options, &corpus, rows);
    let queries = corpus.queries.len().min(options.get("queries", 500));
    println!(
        "{}",
        json!({
            "docs": n, "dim": corpus.docs.width, "queries": queries, "k": bench.k, "ef": bench.ef,
            "build_s": bench.build_s, "bytes_per_point": bench.dense.stats().bytes / n as u64,
        })
    );
    for (name, node) in filters().into_iter().filter(|(name, _)| name.contains(&options.only)) {
        let filter = Predicate::compile(&node).unwrap_or_else(|error| fail(&format!("{name}: {error}")));
        println!("{}", bench.measure(&name, &filter, &corpus.queries, queries));
        io::stdout().flush()?;
    }
    Ok(())
}

/// What deletes cost, beside a collection that is whole.
fn beside_whole(options: &Options, corpus: &Corpus, rows: &[Vec<u8>], percent: usize) -> io::Result<()> {
    let whole = Bench::build(options, corpus, rows.to_vec());
    let mut cut = Bench::build(options, corpus, rows.to_vec());
    // Multiplied by a number without a common divisor, ids lie as good as anywhere.
    let gone = |slot: Slot| u64::from(slot) * 2_654_435_761 % 100 < percent as u64;
    let (n, queries) = (rows.len(), corpus.queries.len().min(options.get("queries", 2000)));
    let all: Vec<Slot> = (0..n as Slot).collect();
    for &slot in all.iter().filter(|&&slot| gone(slot)) {
        let seq = cut.writer.seq() + 1;
        cut.writer.apply_delete(seq, slot.into());
    }
    println!(
        "{}",
        json!({
            "docs": n, "dim": corpus.docs.width, "queries": queries, "k": whole.k, "deleted": n as u64 - cut.dense.stats().live,
            "build_s": [whole.build_s, cut.build_s],
        })
    );
    let kernel = Kernel::of(Metric::Cosine);
    let exact = |bench: &Bench, slots: &[Slot]| -> Vec<Vec<u64>> {
        (0..queries).map(|index| bench.scan(kernel, corpus.queries.row(index), slots)).collect()
    };
    let nearest = exact(&whole, &all);
    for state in ["dead in the graph", "repaired"] {
        if state == "repaired" {
            let started = cpu::thread_time();
            while cut.writer.repair_step(REPAIRED_PER_STEP) {}
            let spent = (cpu::thread_time() - started).as_secs_f64();
            println!("{}", json!({ "repair_cpu_s": spent }));
        }
        for (name, node) in filters().into_iter().filter(|(name, _)| options.is_half(name)) {
            let filter = Predicate::compile(&node).unwrap_or_else(|error| fail(&format!("{name}: {error}")));
            let left: Vec<Slot> =
                all.iter().copied().filter(|&slot| !gone(slot) && cut.holds(&filter, slot)).collect();
            let nearest_left = exact(&cut, &left);
            cut.fill_columns(&filter, corpus.queries.row(0));
            for turn in 0..options.get("turns", 3) {
                for &ef in &options.beams {
                    let sides = [
                        Side { bench: &whole, filter: None, exact: &nearest },
                        Side { bench: &cut, filter: Some(&filter), exact: &nearest_left },
                    ];
                    let [whole, cut] = in_turns(sides, &corpus.queries, queries, ef);
                    let line = json!({
                        "state": state, "filter": name, "matching": left.len(), "turn": turn, "ef": ef, "whole": whole,
                        "cut": cut,
                    });
                    println!("{line}");
                    io::stdout().flush()?;
                }
            }
        }
    }
    Ok(())
}

/// What is searched, with which filter, and the exact answers.
struct Side<'a> {
    bench: &'a Bench,
    filter: Option<&'a Predicate>,
    exact: &'a [Vec<u64>],
}

/// Recall and rate of each side.
fn in_turns(sides: [Side; 2], queries: &Rows<f32>, count: usize, ef: usize) -> [serde_json::Value; 2] {
    let (mut scratch, mut hits) = (Scratch::new(), Vec::new());
    let mut spent = [Duration::ZERO; 2];
    let mut answers: [Vec<Vec<u64>>; 2] = Default::default();
    let mut ways: [HashMap<String, usize>; 2] = Default::default();
    let mut distances = [0; 2];
    for first in (0..count).step_by(LONG_TURN) {
        for (side, &Side { bench, filter, .. }) in sides.iter().enumerate() {
            let started = cpu::thread_time();
            for index in first..count.min(first + LONG_TURN) {
                let (way, scored) =
                    bench.search_with(ef, queries.row(index), filter, &mut scratch, &mut hits);
                distances[side] += scored;
                *ways[side].entry(format!("{way:?}")).or_default() += 1;
                answers[side].push(hits.iter().map(|hit| hit.id).collect());
            }
            spent[side] += cpu::thread_time() - started;
        }
    }
    [0, 1].map(|side| {
        let exact = sides[side].exact;
        let found = answers[side].iter().zip(exact).map(|(answer, exact)| {
            exact.iter().filter(|id| answer.contains(id)).count()
        });
        let (found, wanted) = (found.sum::<usize>(), exact.iter().map(Vec::len).sum::<usize>());
        json!({
            "recall": found as f64 / wanted as f64, "queries_per_cpu_s": count as f64 / spent[side].as_secs_f64(),
            "ways": ways[side], "distances_per_query": distances[side] / count as u64,
        })
    })
}

/// The payload row of each document.
fn payloads(directory: &Path, n: usize) -> io::Result<Vec<Vec<u8>>> {
    let path = directory.join("docs.jsonl.gz");
    let file = File::open(&path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    let mut random = 88_172_645_463_325_252u64;
    let row = |line: io::Result<String>| {
        let doc: serde_json::Value = serde_json::from_str(&line?)?;
        let text = |key: &str| Value::String(doc[key].as_str().unwrap_or_default().to_owned());
        let number = |key: &str| Value::Int(doc[key].as_i64().unwrap_or_default());
        let words = doc["words"].as_array().into_iter().flatten().filter_map(|word| word.as_str());
        // Marsaglia's xorshift: the same corpus and the same numbers every time.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let uniform = (random >> 11) as i64 % UNIFORM;
        let mut row = RowBuilder::new();
        row.set("id", number("id"), 0);
        row.set("pos", text("pos"), 0);
        row.set("lex", number("lex"), 0);
        row.set("nwords", number("nwords"), 0);
        row.set("words", Value::Strings(words.map(str::to_owned).collect()), 0);
        row.set("text", text("text"), 0);
        row.set("uniform", Value::Int(uniform), 0);
        row.set("group", Value::Int(uniform / (UNIFORM / 1000)), 0);
        row.set("even", Value::Bool(uniform % 2 == 0), 0);
        Ok(row.finish())
    };
    BufReader::new(GzDecoder::new(file)).lines().take(n).map(row).collect()
}

fn leaf(op: &str, field: &str, value: Value) -> Node {
    Node { op: Some(op.into()), field: Some(field.into()), value: Some(value), ..Node::default() }
}

fn and(nodes: Vec<Node>) -> Node {
    Node { op: Some("and".into()), and: Some(nodes), ..Node::default() }
}

fn not(node: Node) -> Node {
    Node { op: Some("not".into()), not: Some(Box::new(node)), ..Node::default() }
}

/// Equality, range, text and combinations; independent of the vectors (`uniform`, `group`) and not (the rest).
fn filters() -> Vec<(String, Node)> {
    let text = |value: &str| Value::String(value.to_owned());
    let below = |share: f64| leaf("lt", "uniform", Value::Int((share * UNIFORM as f64) as i64));
    let mut all = Vec::new();
    for share in [1.0, 0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0001] {
        all.push((format!("range: uniform below {share}"), below(share)));
    }
    for share in [0.5, 0.1, 0.01] {
        let low = leaf("gte", "uniform", Value::Int((0.3 * UNIFORM as f64) as i64));
        all.push((format!("range: both bounds, {share}"), and(vec![low, below(0.3 + share)])));
        all.push((
            format!("range: id, the first {share}"),
            leaf("lt", "id", Value::Int((share * 117_659.0) as i64)),
        ));
    }
    for groups in [500, 200, 100, 20, 10, 1] {
        all.push((
            format!("in: {groups} of 1000 groups"),
            leaf("in", "group", Value::Ints((0..groups).collect())),
        ));
    }
    all.push(("eq: even".to_owned(), leaf("eq", "even", Value::Bool(true))));
    all.push(("eq: one of 1000 groups".to_owned(), leaf("eq", "group", Value::Int(7))));
    for pos in ["noun", "adj", "verb", "adv"] {
        all.push((format!("eq: pos {pos}"), leaf("eq", "pos", text(pos))));
        all.push((format!("ne: pos {pos}"), leaf("ne", "pos", text(pos))));
    }
    for lex in [0, 6, 20, 27, 28, 37, 43, 16] {
        all.push((format!("eq: lex {lex}"), leaf("eq", "lex", Value::Int(lex))));
    }
    for word in ["genus", "make", "water"] {
        all.push((format!("contains: words {word}"), leaf("contains", "words", text(word))));
    }
    for tokens in ["of", "the", "person", "plant", "water", "large river"] {
        all.push((format!("match: text {tokens}"), leaf("match", "text", text(tokens))));
    }
    all.push(("regex: text ^[a-f]".to_owned(), leaf("regex", "text", text("^[a-f]"))));
    all.push(("noun and half".to_owned(), and(vec![leaf("eq", "pos", text("noun")), below(0.5)])));
    all.push(("verb and a tenth".to_owned(), and(vec![leaf("eq", "pos", text("verb")), below(0.1)])));
    all.push((
        "noun and text of and a tenth".to_owned(),
        and(vec![leaf("eq", "pos", text("noun")), leaf("match", "text", text("of")), below(0.1)]),
    ));
    all.push(("not noun".to_owned(), not(leaf("eq", "pos", text("noun")))));
    all.push(("not below a hundredth".to_owned(), not(below(0.01))));
    all.push((
        "adverb or one hundredth".to_owned(),
        Node {
            op: Some("or".into()),
            or: Some(vec![leaf("eq", "pos", text("adv")), below(0.01)]),
            ..Node::default()
        },
    ));
    all
}

struct Bench {
    dense: Arc<Dense>,
    /// Fills columns that searches ask for, as a server's owner would.
    writer: DenseWriter,
    seat: Participant,
    /// Prepared rows for truth and for the scan.
    rows: Arena<f32>,
    payloads: Vec<Vec<u8>>,
    k: usize,
    ef: usize,
    build_s: f64,
}

impl Bench {
    fn build(options: &Options, corpus: &Corpus, payloads: Vec<Vec<u8>>) -> Bench {
        let (n, dim) = (payloads.len(), corpus.docs.width);
        let mut config = DenseConfig::new(dim, Metric::Cosine);
        config.m = options.get("m", 16);
        config.ef_construction = options.get("ef-construction", 200);
        let threads = options.get("threads", std::thread::available_parallelism().map_or(1, usize::from));
        let domain = Domain::new(1);
        let seat = domain.participant(0);
        let mut writer =
            DenseWriter::create(config, n, domain).unwrap_or_else(|error| fail(&error.to_string()));
        let mut rows = Arena::reserve(n, padded(dim)).unwrap_or_else(|error| fail(&error.to_string()));
        let started = Instant::now();
        for (slot, row) in payloads.iter().enumerate() {
            let (id, vector) = (slot as u64, corpus.docs.row(slot));
            prepare(Metric::Cosine, vector, rows.row_mut(slot));
            writer.apply(Write {
                seq: id + 1,
                id,
                version: 1,
                parts: Parts::Only(vector),
                row,
                deadline_ms: 0,
            });
        }
        index_tail(&mut writer, &mut workers(threads), ROUND);
        let build_s = started.elapsed().as_secs_f64();
        let dense = writer.shared().clone();
        Bench {
            dense,
            writer,
            seat,
            rows,
            payloads,
            k: options.get("k", 10),
            ef: options.get("ef", 64),
            build_s,
        }
    }

    fn search(
        &self,
        query: &[f32],
        filter: Option<&Predicate>,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
    ) -> (Way, u64) {
        self.search_with(self.ef, query, filter, scratch, out)
    }

    fn search_with(
        &self,
        ef: usize,
        query: &[f32],
        filter: Option<&Predicate>,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
    ) -> (Way, u64) {
        let query = Query { vector: query, k: self.k, ef, filter, exact: false, now_ms: 0 };
        let pin = self.seat.pin();
        match self.dense.search_explained(&pin, &query, scratch, out) {
            Ok(explain) => (explain.path, explain.distances),
            Err(error) => fail(&error.to_string()),
        }
    }

    /// Whether the payload of a point matches.
    fn holds(&self, filter: &Predicate, slot: Slot) -> bool {
        filter.matches(slot.into(), Some(PayloadRow::trusted(&self.payloads[slot as usize])), 0)
    }

    /// Searches say which columns they miss, and the owner fills them between writes.
    fn fill_columns(&self, filter: &Predicate, query: &[f32]) {
        self.search(query, Some(filter), &mut Scratch::new(), &mut Vec::new());
        for _ in 0..self.payloads.len() / 256 {
            self.writer.points().fill_columns(1024);
        }
    }

    fn scan(&self, kernel: Kernel, query: &[f32], slots: &[Slot]) -> Vec<u64> {
        let mut prepared = vec![0.0; self.rows.row_len()];
        prepare(Metric::Cosine, query, &mut prepared);
        let hits = exact_search(kernel, &self.rows, &prepared, slots.iter().copied(), self.k, |_| true);
        hits.iter().map(|hit| u64::from(hit.slot)).collect()
    }

    fn measure(
        &self,
        name: &str,
        filter: &Predicate,
        queries: &Rows<f32>,
        count: usize,
    ) -> serde_json::Value {
        let kernel = Kernel::of(Metric::Cosine);
        let slots: Vec<Slot> =
            (0..self.payloads.len() as Slot).filter(|&slot| self.holds(filter, slot)).collect();
        let (mut scratch, mut hits) = (Scratch::new(), Vec::new());
        self.fill_columns(filter, queries.row(0));
        let mut spent = [Duration::ZERO; 3];
        let mut ways: HashMap<String, usize> = HashMap::new();
        let (mut found, mut wanted, mut distances) = (0, 0, 0);
        for first in (0..count).step_by(TURN) {
            let turn = || (first..count.min(first + TURN)).map(|index| queries.row(index));
            let mut answers = Vec::new();
            let started = cpu::thread_time();
            for query in turn() {
                let (way, scored) = self.search(query, Some(filter), &mut scratch, &mut hits);
                distances += scored;
                answers.push((way, hits.iter().map(|hit| hit.id).collect::<Vec<u64>>()));
            }
            let filtered = cpu::thread_time();
            let truth: Vec<Vec<u64>> = turn().map(|query| self.scan(kernel, query, &slots)).collect();
            let scanned = cpu::thread_time();
            for query in turn() {
                self.search(query, None, &mut scratch, &mut hits);
            }
            let unfiltered = cpu::thread_time();
            for (total, part) in
                spent.iter_mut().zip([filtered - started, scanned - filtered, unfiltered - scanned])
            {
                *total += part;
            }
            for ((way, answer), truth) in answers.into_iter().zip(&truth) {
                *ways.entry(format!("{way:?}")).or_default() += 1;
                wanted += truth.len();
                found += truth.iter().filter(|id| answer.contains(id)).count();
            }
        }
        let [filtered, scan, unfiltered] = spent.map(|spent| count as f64 / spent.as_secs_f64());
        let floor = scan.max(unfiltered / 2.0);
        json!({
            "filter": name, "matching": slots.len(), "share": slots.len() as f64 / self.payloads.len() as f64,
            "recall": if wanted == 0 { 1.0 } else { found as f64 / wanted as f64 }, "ways": ways,
            "distances_per_query": distances / count as u64,
            "queries_per_cpu_s": filtered.round(), "unfiltered": unfiltered.round(), "scan_of_matching": scan.round(),
            "share_of_floor": (filtered / floor * 100.0).round() / 100.0,
        })
    }
}
