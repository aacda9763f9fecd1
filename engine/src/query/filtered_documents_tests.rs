//! Filtered MaxSim searches against a loop over all documents, at every share of matching documents. The collection is so large that most filters
//! are answered by the index, of tokens or of encodings.
use super::*;
use crate::collection::{
    DenseConfig, DenseWriter, EncodingConfig, Explain, FirstStage, MultiVectorConfig, Part, Parts, Write,
};
use crate::distance::Metric;
use crate::distance::padded;
use crate::filter::Path;
use crate::filter::{Node, Predicate};
use crate::memory::{Domain, Participant};
use crate::pace::{Pace, Pieces, TooLong, Whole, at_once};
use crate::payload::{PayloadRow, RowBuilder, Value};
use crate::random::SplitMix64;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const DIM: usize = 5;
const DOCUMENTS: u64 = 30_000;
const TOKENS: usize = 4;
const K: usize = 10;
const PER_TOKEN: usize = 200;
const NOW: u64 = 1_000;
/// One of this many documents has expired.
const EXPIRED: u64 = 13;

/// Both kinds of indexes.
const STAGES: [FirstStage; 2] =
    [FirstStage::Tokens, FirstStage::Encodings(EncodingConfig { repetitions: 12, bits: 2, dim: DIM })];

struct Bed {
    seat: Participant,
    documents: DenseWriter,
    index: DenseWriter,
    indexing: Indexing,
    /// The tokens of each document.
    all: Vec<Vec<Vec<f32>>>,
}

fn unit(random: &mut SplitMix64) -> Vec<f32> {
    let vector: Vec<f32> = (0..DIM).map(|_| (random.unit() * 2.0 - 1.0) as f32).collect();
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.into_iter().map(|x| x / norm).collect()
}

/// Whether most tokens of a document lie on one side.
fn mostly_right(vectors: &[Vec<f32>]) -> bool {
    vectors.iter().filter(|vector| vector[0] > 0.0).count() >= 3
}

/// The points of a document in the index, and the numbers that its row stores for its tokens. New numbers are taken from `next`.
fn points_of(indexing: &Indexing, vectors: &[Vec<f32>], next: &mut u32) -> (Vec<(u32, Vec<f32>)>, Vec<u32>) {
    let numbers: Vec<u32> = (*next..).take(indexing.points(vectors.len())).collect();
    *next += numbers.len() as u32;
    let tokens = vectors.concat();
    let points = match indexing.begin(&tokens) {
        None => vectors.to_vec(),
        Some(mut encoding) => {
            while encoding.advance() > 0 {}
            vec![encoding.finish()]
        }
    };
    let in_row = indexing.numbers_in_row(&numbers, vectors.len());
    (numbers.into_iter().zip(points).collect(), in_row)
}

/// An owner that replaces a document at each step of a search: by one with the same payload and the same vectors, whose tokens are new.
struct Replacing<'b> {
    documents: &'b mut DenseWriter,
    index: &'b mut DenseWriter,
    indexing: &'b Indexing,
    id: u64,
    vectors: &'b [Vec<f32>],
    next_number: &'b mut u32,
    /// How often it does.
    times: usize,
}

impl Pace for Replacing<'_> {
    async fn step(&mut self, _: usize) -> Result<(), TooLong> {
        if self.times == 0 {
            return Ok(());
        }
        self.times -= 1;
        let before: Vec<u32> = match self.documents.points().check_rewrite(self.id, None, 0) {
            Ok(Some((row, _))) => self.indexing.numbers_of(PayloadRow::trusted(row).tokens()).collect(),
            _ => Vec::new(),
        };
        let (points, numbers) = points_of(self.indexing, self.vectors, self.next_number);
        for (number, vector) in &points {
            let (id, version) = token_of(self.id, *number);
            let (seq, parts) = (self.index.seq() + 1, Parts::Only(vector));
            self.index.apply(Write { seq, id, version, parts, row: &[], deadline_ms: 0 });
        }
        let mut row = RowBuilder::new();
        row.set("part", Value::Int((self.id * 7 % 1_000) as i64), 0);
        row.set_tokens(numbers, self.vectors.concat());
        let (row, no_parts) = (row.finish(), [] as [Part<'_>; 0]);
        let version = self.documents.points().next_version(self.id);
        let (seq, parts) = (self.documents.seq() + 1, Parts::Each(&no_parts));
        self.documents.apply(Write { seq, id: self.id, version, parts, row: &row, deadline_ms: 0 });
        let slot = self.documents.points().slot(self.id).unwrap();
        let ids = points.iter().map(|(number, _)| token_of(self.id, *number).0);
        self.index.points().set_parent(ids, slot);
        for number in before {
            let seq = self.index.seq() + 1;
            self.index.apply_delete(seq, token_of(self.id, number).0);
        }
        Ok(())
    }

    fn foresee(&self, _: usize) -> Result<(), TooLong> {
        Ok(())
    }
}

impl Bed {
    fn new(first_stage: FirstStage) -> Bed {
        let domain = Domain::new(1);
        // Few edges make a search of the index cheap, so that the planner chooses it for a collection of this size.
        let config = MultiVectorConfig::new(DenseConfig {
            m: 2,
            ef_search: 16,
            first_stage,
            ..DenseConfig::new(DIM, Metric::Cosine)
        });
        let slots = 1 << 18;
        let mut documents = DenseWriter::create_named(&config.documents(), slots, domain.clone()).unwrap();
        let mut index = DenseWriter::create(config.index(), slots, domain.clone()).unwrap();
        let indexing = Indexing::of(&config);
        let (mut random, mut all, mut next_number) = (SplitMix64(3), Vec::new(), 0);
        for id in 0..DOCUMENTS {
            let vectors: Vec<Vec<f32>> = (0..TOKENS).map(|_| unit(&mut random)).collect();
            let (points, numbers) = points_of(&indexing, &vectors, &mut next_number);
            for (number, vector) in &points {
                let (id, version) = token_of(id, *number);
                let parts = Parts::Only(vector);
                index.apply(Write {
                    seq: u64::from(*number) + 1,
                    id,
                    version,
                    parts,
                    row: &[],
                    deadline_ms: 0,
                });
            }
            let mut row = RowBuilder::new();
            row.set("part", Value::Int((id * 7 % 1_000) as i64), 0);
            // Whether the whole document lies on one side: its neighbours are alike.
            row.set("side", Value::Bool(vectors.iter().all(|vector| vector[0] > 0.0)), 0);
            row.set("mostly", Value::Bool(mostly_right(&vectors)), 0);
            if id % 2 == 0 {
                row.set("even", Value::Int(1), 0);
            }
            row.set_tokens(numbers, vectors.concat());
            let (row, no_parts) = (row.finish(), [] as [Part<'_>; 0]);
            let parts = Parts::Each(&no_parts);
            let deadline_ms = if id % EXPIRED == 0 { NOW / 2 } else { 0 };
            documents.apply(Write { seq: id + 1, id, version: 1, parts, row: &row, deadline_ms });
            all.push(vectors);
        }
        Bed { seat: domain.participant(0), documents, index, indexing, all }
    }

    /// Tells the points of one document in `every` the slot of their document.
    fn set_parents(&mut self, every: u64) {
        for id in (0..DOCUMENTS).step_by(every as usize) {
            let slot = self.documents.points().slot(id).unwrap();
            let per_document = self.indexing.points(TOKENS) as u32;
            let numbers = (0..per_document).map(|at| id as u32 * per_document + at);
            self.index.points().set_parent(numbers.map(|number| token_of(id, number).0), slot);
        }
    }

    fn search(&self, query: &[Vec<f32>], filter: Option<&Node>, per_token: usize) -> (Vec<Found>, Explain) {
        let filter = filter.map(|filter| Arc::new(Predicate::compile(filter).unwrap()));
        let source = Source::MaxSim(MaxSim { tokens: query.to_vec(), per_token });
        let lane = Leaf { source, space: 0, pool: K, filter };
        let combine = Combine::Fuse(Method::Rrf { c: 0.0 });
        let query = LaneQuery { lanes: vec![lane], combine, k: K, options: QueryOptions::default() };
        let index = DocumentIndex { dense: self.index.shared(), indexing: &self.indexing };
        let searched = Searched { dense: self.documents.shared(), index: Some(index) };
        let (pin, mut scratch) = (self.seat.pin(), QueryScratch::default());
        // A search that takes long is made in pieces.
        let mut pace = Pieces::new(1_000, async || Ok(()));
        let found =
            at_once(search_lanes_paced(searched, &pin, &query, NOW, &mut pace, &mut scratch)).unwrap();
        (found, scratch.explain.expect("a search of one lane tells how it went"))
    }

    /// The number of points that each search looks for. Encodings are less precise than tokens, so more are needed.
    fn per_probe(&self) -> usize {
        match self.indexing {
            Indexing::Tokens => PER_TOKEN,
            Indexing::Encodings(_) => 2 * PER_TOKEN,
        }
    }

    fn score(&self, query: &[Vec<f32>], id: u64) -> f32 {
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let greatest = |token: &Vec<f32>| {
            self.all[id as usize].iter().map(|other| product(token, other)).fold(f32::NEG_INFINITY, f32::max)
        };
        query.iter().map(greatest).sum()
    }

    /// The best documents that match.
    fn best(&self, query: &[Vec<f32>], matches: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut scores: Vec<(f32, u64)> = (0..DOCUMENTS)
            .filter(|id| id % EXPIRED != 0 && matches(*id))
            .map(|id| (self.score(query, id), id))
            .collect();
        scores.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        scores.into_iter().take(K).map(|(_, id)| id).collect()
    }
}

fn leaf(op: &str, field: &str, value: Option<Value>) -> Node {
    Node { op: Some(op.into()), field: Some(field.into()), value, ..Node::default() }
}

#[test]
fn filters_have_no_cliff_of_recall() {
    STAGES.into_iter().for_each(check_recall);
}

/// Checks how many points a search for `k` documents looks for. If a search with encodings looked for more, or needed a wider beam, it would
/// compare all of them.
fn check_width(bed: &Bed, k: usize, wanted: usize) {
    let index = DocumentIndex { dense: bed.index.shared(), indexing: &bed.indexing };
    let query = MaxSim { tokens: bed.all[0].clone(), per_token: 0 };
    let prepared = vec![0.0; TOKENS * padded(DIM)];
    let probes = at_once(index.probes((&query, &prepared), k, &mut Whole::unbounded()));
    assert_eq!(probes.expect("time enough").wanted, wanted, "for {k} documents");
}

fn check_recall(first_stage: FirstStage) {
    let mut bed = Bed::new(first_stage);
    match first_stage {
        FirstStage::Tokens => [(1, 50), (100, 400), (60_000, 240_000)],
        FirstStage::Encodings(_) => [(1, 300), (100, 3_000), (60_000, 67_500)],
    }
    .into_iter()
    .for_each(|(k, wanted)| check_width(&bed, k, wanted));
    if let FirstStage::Encodings(_) = first_stage {
        check_width(&bed, 547, 16_384);
    }
    // Points of the index do not know their documents: only the other two strategies are possible.
    let paths = check_filters(&bed);
    assert!(!paths.values().flatten().any(|path| matches!(path, Path::Gate | Path::Column)), "{paths:?}");
    // Half of them do, as shortly after a start.
    bed.set_parents(2);
    check_filters(&bed);
    bed.set_parents(1);
    let paths = check_filters(&bed);
    for name in ["part below 300", "part below 200", "part below 100"] {
        let walked = paths[name].iter().filter(|path| matches!(path, Path::Gate | Path::Column));
        assert!(walked.count() > 0, "{name} is answered by a walk behind a gate: {paths:?}");
    }
}

/// Whatever moment a document is replaced at, a search that it matches before and after returns it.
#[test]
fn documents_replaced_during_a_gated_search_are_found() {
    STAGES.into_iter().for_each(check_replaced);
}

fn check_replaced(first_stage: FirstStage) {
    let mut bed = Bed::new(first_stage);
    bed.set_parents(1);
    let mut next_number = DOCUMENTS as u32 * bed.indexing.points(TOKENS) as u32;
    let filter = Arc::new(Predicate::compile(&leaf("lt", "part", Some(Value::Int(200)))).unwrap());
    let mut gated = 0;
    for id in (1..DOCUMENTS).filter(|id| id * 7 % 1_000 < 200 && id % EXPIRED != 0).step_by(400) {
        let vectors = bed.all[id as usize].clone();
        let source = Source::MaxSim(MaxSim { tokens: vectors.clone(), per_token: 60 });
        let lane = Leaf { source, space: 0, pool: K, filter: Some(filter.clone()) };
        let combine = Combine::Fuse(Method::Rrf { c: 0.0 });
        let query = LaneQuery { lanes: vec![lane], combine, k: K, options: QueryOptions::default() };
        let (dense, index) = (bed.documents.shared().clone(), bed.index.shared().clone());
        let index = DocumentIndex { dense: &index, indexing: &bed.indexing };
        let searched = Searched { dense: &dense, index: Some(index) };
        let (pin, mut scratch) = (bed.seat.pin(), QueryScratch::default());
        let mut pace = Replacing {
            documents: &mut bed.documents,
            index: &mut bed.index,
            indexing: &bed.indexing,
            id,
            vectors: &vectors,
            next_number: &mut next_number,
            times: 200,
        };
        let found =
            at_once(search_lanes_paced(searched, &pin, &query, NOW, &mut pace, &mut scratch)).unwrap();
        assert_eq!(found.iter().filter(|hit| hit.id == id).count(), 1, "document {id}: {found:?}");
        assert_eq!(found.len(), K);
        gated += usize::from(matches!(scratch.explain.unwrap().path, Path::Gate | Path::Column));
    }
    assert!(gated > 5, "{gated} searches went through a gate");
}

/// Compares searches with many filters with a loop over all documents. Returns the paths taken for each filter.
fn check_filters(bed: &Bed) -> BTreeMap<String, Vec<Path>> {
    let mut paths: BTreeMap<String, Vec<Path>> = BTreeMap::new();
    let below = |limit: i64| leaf("lt", "part", Some(Value::Int(limit)));
    let side_of = |id: u64| bed.all[id as usize].iter().all(|vector| vector[0] > 0.0);
    let part_of = |id: u64| (id * 7 % 1_000) as i64;
    let mut ways: BTreeMap<String, BTreeSet<bool>> = BTreeMap::new();
    let mut unfiltered = None;
    let mut check = |name: &str, node: Option<Node>, matches: &dyn Fn(u64) -> bool, away: bool| {
        let (mut found_of_best, mut wanted, mut random) = (0, 0, SplitMix64(5));
        for _ in 0..25 {
            let mut query: Vec<Vec<f32>> = (0..2).map(|_| unit(&mut random)).collect();
            if away {
                // The query lies on the side where hardly any document matches.
                query.iter_mut().for_each(|token| token[0] = -token[0].abs());
            }
            let (found, explain) = bed.search(&query, node.as_ref(), bed.per_probe());
            ways.entry(name.to_owned()).or_default().insert(explain.exact);
            paths.entry(name.to_owned()).or_default().push(explain.path);
            assert_eq!(explain.path == Path::Unfiltered, node.is_none(), "{name}: {explain:?}");
            let best = bed.best(&query, matches);
            assert_eq!(found.len(), best.len(), "{name}");
            for hit in &found {
                assert!(matches(hit.id), "{name}: document {} does not match", hit.id);
                assert!((hit.score - bed.score(&query, hit.id)).abs() < 1e-4, "{name}");
            }
            let found: BTreeSet<u64> = found.iter().map(|hit| hit.id).collect();
            let hits = best.iter().filter(|id| found.contains(id)).count();
            assert!(!explain.exact || hits == best.len(), "{name}: an exact search missed a document");
            (found_of_best, wanted) = (found_of_best + hits, wanted + best.len());
        }
        let recall = f64::from(found_of_best as u32) / f64::from(wanted.max(1) as u32);
        let least = *unfiltered.get_or_insert(recall) - 0.05;
        assert!(wanted == 0 || recall >= least, "{name}: recall {recall}, at least {least} is expected");
    };
    check("no filter", None, &|_| true, false);
    for limit in [1_000, 700, 300, 200, 100, 50, 10, 1, 0] {
        check(&format!("part below {limit}"), Some(below(limit)), &|id| part_of(id) < limit, false);
    }
    // The payload index has nothing to say about keys that are missing.
    check("even is missing", Some(leaf("is_empty", "even", None)), &|id| id % 2 == 1, false);
    let both = Node {
        op: Some("and".into()),
        and: Some(vec![leaf("is_empty", "even", None), below(2)]),
        ..Node::default()
    };
    check("even is missing and part below 2", Some(both), &|id| id % 2 == 1 && part_of(id) < 2, false);
    let side = leaf("eq", "side", Some(Value::Bool(true)));
    check("far from what matches", Some(side.clone()), &side_of, true);
    // From three documents in ten on, a walk behind a gate also scores the tokens that do not pass. All documents that match this filter lie far
    // from the query, so the walk has to be given up in time.
    let mostly = leaf("eq", "mostly", Some(Value::Bool(true)));
    check("many, and far away", Some(mostly), &|id| mostly_right(&bed.all[id as usize]), true);
    let other = Node { op: Some("not".into()), not: Some(Box::new(side)), ..Node::default() };
    check("the other side", Some(other), &|id| !side_of(id), false);
    let ids: Vec<u64> = (0..900).map(|at| at * 31).collect();
    let wanted: BTreeSet<u64> = ids.iter().copied().collect();
    let of_ids = Node { op: Some("has_id".into()), has_id: Some(ids), ..Node::default() };
    check("some ids", Some(of_ids), &|id| wanted.contains(&id), false);
    let way = |name: &str| ways[name].iter().copied().collect::<Vec<bool>>();
    for name in ["part below 1000", "part below 700", "even is missing", "the other side"] {
        assert_eq!(way(name), [false], "{name} is answered by the index");
    }
    for name in ["part below 10", "part below 1", "some ids"] {
        assert_eq!(way(name), [true], "{name} is answered exactly");
    }
    // The number of tokens is cut if a query asks for more than are allowed; the best documents of one token are still among them.
    let query = vec![unit(&mut SplitMix64(6))];
    let (found, _) = bed.search(&query, Some(&below(700)), usize::MAX);
    let best = bed.best(&query, |id| part_of(id) < 700);
    assert_eq!(found.iter().map(|hit| hit.id).collect::<Vec<u64>>(), best);
    paths
}
