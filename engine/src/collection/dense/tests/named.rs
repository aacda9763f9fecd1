//! A collection of named spaces beside its twin: points that lack vectors, parts that are kept, restarts at every moment.
use super::bed::{Rng, check_hits, group_is};
use super::rounds;
use crate::collection::{
    DenseConfig, DenseWriter, Drift, Hit, HitsWanted, IndexType, IvfConfig, IvfProduct, NamedConfig,
    NamedSpace, Part, Parts, Quantizer, Query, RowWrite, SpaceNumber, SparseQuery, VamanaConfig, Write,
};
use crate::distance::{Kernel, Metric, padded, prepare};
use crate::index::Scratch;
use crate::memory::{Domain, Participant};
use crate::pace::{Whole, at_once};
use crate::payload::{CONTENT_KEY, RowBuilder, Value};
use crate::quantizer::{CellProduct, Quantization};
use crate::sparse::LaneScratch;
use crate::text::{TextConfig, TextMatch};
use std::collections::BTreeMap;
use std::sync::Arc;

const SLOTS_MAX: usize = 4096;
const SPARSE: [&str; 3] = ["words", "tags", "links"];

/// A write of one space as a log would keep it.
#[derive(Clone, Debug)]
enum Said {
    Given(Vec<f32>),
    Kept,
    Absent,
}

impl Said {
    fn part(&self) -> Part<'_> {
        match self {
            Said::Given(vector) => Part::Given(vector),
            Said::Kept => Part::Kept,
            Said::Absent => Part::Absent,
        }
    }
}

#[derive(Clone, Debug)]
enum Logged {
    Write { seq: u64, id: u64, version: u64, said: Vec<Said>, row: Vec<u8>, deadline_ms: u64 },
    Row { seq: u64, id: u64, version: u64, row: Vec<u8> },
    Delete { seq: u64, id: u64 },
}

impl Logged {
    fn seq(&self) -> u64 {
        match self {
            Logged::Write { seq, .. } | Logged::Row { seq, .. } | Logged::Delete { seq, .. } => *seq,
        }
    }

    fn apply(&self, writer: &mut DenseWriter) {
        match *self {
            Logged::Write { seq, id, version, ref said, ref row, deadline_ms } => {
                let parts: Vec<Part<'_>> = said.iter().map(Said::part).collect();
                writer.apply(Write { seq, id, version, parts: Parts::Each(&parts), row, deadline_ms });
            }
            Logged::Row { seq, id, version, ref row } => {
                writer.apply_row(&RowWrite { seq, id, version, row });
            }
            Logged::Delete { seq, id } => _ = writer.apply_delete(seq, id),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct TwinPoint {
    /// For each space, prepared.
    vectors: Vec<Option<Vec<f32>>>,
    /// For each sparse space, as in the row; empty = none. What a row has in a dropped space is not found.
    sparse: Vec<Vec<(u32, f32)>>,
    group: i64,
    version: u64,
    deadline_ms: u64,
}

struct Bed {
    config: NamedConfig,
    domain: Arc<Domain>,
    seat: Participant,
    writer: DenseWriter,
    twin: BTreeMap<u64, TwinPoint>,
    log: Vec<Logged>,
    seq: u64,
    now_ms: u64,
}

fn space(name: &str, dim: usize, metric: Metric, change: impl Fn(&mut DenseConfig)) -> NamedSpace {
    let mut config =
        DenseConfig { m: 6, ef_construction: 40, ef_search: 40, ..DenseConfig::new(dim, metric) };
    change(&mut config);
    NamedSpace::new(name, config)
}

/// Graphs with and without codes, of one level too, and cells.
fn spaces() -> Vec<NamedSpace> {
    vec![
        space("title", 3, Metric::L2, |_| {}),
        space("body", 5, Metric::Cosine, |config| config.traversal_codes = false),
        space("cells", 4, Metric::L2, |config| {
            let ivf = IvfConfig { nlist: 6, nprobe: 3, train_threshold: 40, ..IvfConfig::default() };
            config.index = IndexType::Ivf(ivf);
        }),
        space("flat", 6, Metric::Dot, |config| config.index = IndexType::Vamana(VamanaConfig::default())),
        space("signs", 8, Metric::L2, |config| {
            config.quant = Quantizer::Trained(Quantization::Sign);
            config.train_threshold = 50;
        }),
    ]
}

impl Bed {
    fn new(spaces: Vec<NamedSpace>) -> Bed {
        let mut config = NamedConfig::new(spaces, SPARSE.map(str::to_owned).to_vec());
        config.whole.full_text = Some(TextConfig::default());
        assert_eq!(config.validate(), Ok(()));
        let domain = Domain::new(2);
        let seat = domain.participant(0);
        let writer = DenseWriter::create_named(&config, SLOTS_MAX, domain.clone()).unwrap();
        let (twin, log) = (BTreeMap::new(), Vec::new());
        Bed { config, domain, seat, writer, twin, log, seq: 0, now_ms: 1000 }
    }

    fn log(&mut self, logged: Logged) {
        logged.apply(&mut self.writer);
        self.log.push(logged);
    }

    fn alive(&self, id: u64) -> Option<&TwinPoint> {
        self.twin.get(&id).filter(|point| point.deadline_ms == 0 || point.deadline_ms > self.now_ms)
    }

    fn write(
        &mut self,
        id: u64,
        said: Vec<Said>,
        sparse: Vec<Vec<(u32, f32)>>,
        group: i64,
        deadline_ms: u64,
    ) {
        self.seq += 1;
        let before = self.alive(id).cloned();
        // An expired point has nothing to keep: whoever decides on a write sees that it is absent.
        let said: Vec<Said> = said
            .into_iter()
            .map(|said| if before.is_none() && matches!(said, Said::Kept) { Said::Absent } else { said })
            .collect();
        let vectors =
            said.iter().zip(&self.config.spaces).enumerate().map(|(number, (said, space))| match said {
                Said::Given(vector) => {
                    let mut prepared = vec![0.0; padded(space.config.dim)];
                    prepare(space.config.metric, vector, &mut prepared);
                    Some(prepared)
                }
                Said::Kept => before.as_ref().and_then(|before| before.vectors[number].clone()),
                Said::Absent => None,
            });
        let vectors = vectors.collect();
        let version = self.writer.points().next_version(id);
        let row = row(group, &sparse);
        self.twin.insert(id, TwinPoint { vectors, sparse, group, version, deadline_ms });
        let seq = self.seq;
        self.log(Logged::Write { seq, id, version, said, row, deadline_ms });
    }

    fn rewrite(&mut self, id: u64, group: i64) {
        if self.alive(id).is_none() {
            return;
        }
        self.seq += 1;
        let version = self.writer.points().next_version(id);
        let point = self.twin.get_mut(&id).expect("alive");
        (point.group, point.version) = (group, version);
        let row = row(group, &point.sparse);
        let seq = self.seq;
        self.log(Logged::Row { seq, id, version, row });
    }

    fn delete(&mut self, id: u64) {
        self.seq += 1;
        self.twin.remove(&id);
        let seq = self.seq;
        self.log(Logged::Delete { seq, id });
    }

    fn random_part(&self, rng: &mut Rng, number: usize) -> Said {
        match rng.below(4) {
            _ if self.config.spaces[number].is_dropped => Said::Absent,
            0 => Said::Kept,
            1 => Said::Absent,
            _ => Said::Given(rng.vector(self.config.spaces[number].config.dim)),
        }
    }

    fn random_write(&mut self, rng: &mut Rng, ids: u64) {
        let said = (0..self.config.spaces.len()).map(|number| self.random_part(rng, number)).collect();
        let deadline_ms = if rng.below(8) == 0 { self.now_ms + 1 + rng.below(200) } else { 0 };
        // Also in those that were dropped, as a log or an image may have it that is older than the drop.
        let sparse = self.config.sparse_spaces.iter().map(|_| random_sparse(rng)).collect();
        self.write(rng.below(ids), said, sparse, rng.below(4) as i64, deadline_ms);
    }

    fn truth(&self, number: usize, vector: &[f32], k: usize, group: Option<i64>) -> Vec<(u64, f32)> {
        let config = &self.config.spaces[number].config;
        let kernel = Kernel::of(config.metric);
        let mut query = vec![0.0; padded(config.dim)];
        prepare(config.metric, vector, &mut query);
        let matches = |point: &TwinPoint| group.is_none_or(|group| point.group == group);
        let mut all: Vec<(u64, f32)> = (self.twin.keys())
            .filter_map(|&id| Some((id, self.alive(id).filter(|point| matches(point))?)))
            .filter_map(|(id, point)| Some((id, kernel.distance(&query, point.vectors[number].as_ref()?))))
            .collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        all.truncate(k);
        all
    }

    fn search(&self, number: usize, query: &Query<'_>) -> Vec<Hit> {
        let (mut scratch, mut hits) = (Scratch::new(), Vec::new());
        let space = &self.writer.shared().spaces()[number];
        space.search(&self.seat.pin(), query, &mut scratch, &mut hits).unwrap();
        hits
    }

    /// One more space, of a random kind, if there is a number left.
    fn add_space(&mut self, rng: &mut Rng) {
        let name = format!("s{}", self.config.spaces.len());
        let mut kinds = spaces();
        let kind = kinds.swap_remove(rng.below(kinds.len() as u64) as usize);
        let config = DenseConfig { dim: 2 + rng.below(8) as usize, ..kind.config };
        let Ok(grown) = self.config.with_space(&name, config) else { return };
        let number = SpaceNumber::Dense(self.config.spaces.len());
        let space = self.writer.new_space(&grown, number).unwrap();
        assert!(self.writer.set_space(&grown, space).is_none());
        self.config = grown;
        self.twin.values_mut().for_each(|point| point.vectors.push(None));
    }

    /// A space less, if it is not the last one.
    fn drop_space(&mut self, rng: &mut Rng) {
        let names: Vec<String> = self.config.dense_spaces().map(|space| space.name.clone()).collect();
        let name = &names[rng.below(names.len() as u64) as usize];
        if names.len() == 1 {
            return;
        }
        let (left, dropped) = self.config.without_space(name).unwrap();
        let SpaceNumber::Dense(number) = dropped else { panic!("{name} is dense") };
        let space = self.writer.new_space(&left, dropped).unwrap();
        let view = self.writer.shared().clone();
        let replaced = self.writer.set_space(&left, space);
        self.config = left;
        // Who has a view of before still finds what was there.
        let vectors = self.twin.values().filter(|point| point.vectors[number].is_some()).count();
        assert_eq!(view.spaces()[number].vectors(), vectors as u64);
        drop(replaced);
        self.twin.values_mut().for_each(|point| point.vectors[number] = None);
    }

    /// One more sparse space, if there is a number left.
    fn add_sparse_space(&mut self) {
        let number = self.config.sparse_spaces.len();
        let Ok(grown) = self.config.with_sparse_space(&format!("w{number}")) else { return };
        let space = self.writer.new_space(&grown, SpaceNumber::Sparse(number)).unwrap();
        assert!(self.writer.set_space(&grown, space).is_none());
        self.config = grown;
        self.twin.values_mut().for_each(|point| point.sparse.push(Vec::new()));
    }

    /// Drops a sparse space, if there is one.
    fn drop_sparse_space(&mut self, rng: &mut Rng) {
        let names: Vec<String> = self.config.sparse_names().map(str::to_owned).collect();
        if names.is_empty() {
            return;
        }
        let name = &names[rng.below(names.len() as u64) as usize];
        let (left, dropped) = self.config.without_space(name).unwrap();
        let SpaceNumber::Sparse(number) = dropped else { panic!("{name} is sparse") };
        let space = self.writer.new_space(&left, dropped).unwrap();
        let view = self.writer.shared().clone();
        let (before, bytes) = (view.sparse_spaces()[number].vectors(), view.usage().lanes);
        let replaced = self.writer.set_space(&left, space);
        self.config = left;
        // Who has a view of before still finds what was there.
        assert_eq!((view.sparse_spaces()[number].vectors(), view.usage().lanes), (before, bytes));
        let lanes = self.writer.shared().usage().lanes;
        assert!(if before > 0 { lanes < bytes } else { lanes <= bytes }, "{lanes} of {bytes} bytes");
        drop(replaced);
    }

    /// The sparse vectors that are found.
    fn sparse_vectors(&self) -> u64 {
        let of = |point: &TwinPoint| {
            let spaces = point.sparse.iter().zip(&self.config.sparse_spaces);
            spaces.filter(|(vector, space)| !space.is_dropped && !vector.is_empty()).count() as u64
        };
        self.twin.values().map(of).sum()
    }

    /// Every point, with its vectors; exact searches of every space, with and without a filter; and searches by the index.
    fn check(&self, rng: &mut Rng) {
        let shared = self.writer.shared();
        let pin = self.seat.pin();
        for &id in self.twin.keys() {
            let found = shared.points().find(&pin, id, self.now_ms);
            let Some(alive) = self.alive(id) else {
                assert_eq!(found, None, "id {id} has expired");
                continue;
            };
            let slot = found.unwrap_or_else(|| panic!("id {id} is missing"));
            let point = shared.point(&pin, slot);
            assert_eq!((point.version, point.deadline_ms), (alive.version, alive.deadline_ms), "id {id}");
            assert_eq!(point.row, row(alive.group, &alive.sparse), "row of id {id}");
            for (number, expected) in alive.vectors.iter().enumerate() {
                let found = shared.vector(&pin, slot, number);
                let dim = self.config.spaces[number].config.dim;
                assert_eq!(found.as_deref(), expected.as_ref().map(|x| &x[..dim]), "id {id} in {number}");
            }
        }
        drop(pin);
        for (number, space) in self.config.spaces.iter().enumerate() {
            let held = self.twin.values().filter(|point| point.vectors[number].is_some()).count() as u64;
            assert_eq!(shared.spaces()[number].vectors(), held, "vectors of {}", space.name);
            if space.is_dropped {
                let (is_dropped, per_slot) = {
                    let space = &shared.spaces()[number];
                    (space.is_dropped(), space.bytes_per_slot())
                };
                assert_eq!((held, is_dropped, per_slot), (0, true, 0), "{} was dropped", space.name);
                continue;
            }
            let vector = rng.vector(space.config.dim);
            let group = (rng.below(2) == 0).then(|| rng.below(5) as i64);
            let filter = group.map(group_is);
            let k = 1 + rng.below(20) as usize;
            let query = Query {
                vector: &vector,
                k,
                ef: 0,
                filter: filter.as_ref(),
                exact: true,
                now_ms: self.now_ms,
            };
            check_hits(&self.search(number, &query), &self.truth(number, &vector, k, group));
            // By the index: what it returns is right, is nothing twice, and is as much as there is.
            let hits = self.search(number, &Query { exact: false, ..query });
            let all = self.truth(number, &vector, usize::MAX, group);
            assert_eq!(hits.len(), k.min(all.len()), "{k} of {} in {}", all.len(), space.name);
            for hit in &hits {
                let (_, distance) = all.iter().find(|(id, _)| *id == hit.id).expect("a hit is there");
                assert!((hit.distance - distance).abs() <= 1e-4 * (1.0 + distance.abs()), "{hit:?}");
            }
            assert!(hits.is_sorted_by(|a, b| (a.distance, a.id) < (b.distance, b.id)));
        }
        let sparse = shared.sparse_spaces();
        assert_eq!(sparse.len(), self.config.sparse_spaces.len());
        for (number, space) in self.config.sparse_spaces.iter().enumerate() {
            assert_eq!(sparse[number].is_dropped(), space.is_dropped, "{}", space.name);
            self.check_sparse(number, rng);
        }
        self.check_texts(rng);
    }

    /// Checks that a search by text finds exactly the points of one group.
    fn check_texts(&self, rng: &mut Rng) {
        let group = rng.below(4) as i64;
        let (pin, mut hits) = (self.seat.pin(), Vec::new());
        let wanted = HitsWanted { k: usize::MAX, filter: None, now_ms: self.now_ms, among: None };
        let (query, dense) = (TextMatch::words(&format!("g{group}")), self.writer.shared());
        let (pace, scratch) = (&mut Whole::unbounded(), &mut LaneScratch::default());
        at_once(dense.search_text(&pin, &query, wanted, pace, scratch, &mut hits)).unwrap();
        let mut found: Vec<u64> = hits.iter().map(|hit| hit.id).collect();
        found.sort_unstable();
        let is_of = |id: &u64| self.alive(*id).is_some_and(|point| point.group == group);
        let expected: Vec<u64> = self.twin.keys().copied().filter(is_of).collect();
        assert_eq!(found, expected, "texts of group {group}");
    }

    /// A sparse search against every point.
    fn check_sparse(&self, space: usize, rng: &mut Rng) {
        let query = random_sparse(rng);
        let group = (rng.below(2) == 0).then(|| rng.below(5) as i64);
        let filter = group.map(group_is);
        let k = 1 + rng.below(20) as usize;
        let is_dropped = self.config.sparse_spaces[space].is_dropped;
        let mut truth: Vec<(u64, f32)> = (self.twin.keys())
            .filter(|_| !is_dropped)
            .filter_map(|&id| Some((id, self.alive(id)?)))
            .filter(|(_, point)| group.is_none_or(|group| point.group == group))
            .filter_map(|(id, point)| Some((id, product(&query, &point.sparse[space])?)))
            .collect();
        truth.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        truth.truncate(k);
        let (pin, mut hits) = (self.seat.pin(), Vec::new());
        let wanted = HitsWanted { k, filter: filter.as_ref(), now_ms: self.now_ms, among: None };
        let query = SparseQuery { space, terms: &query };
        let (pace, scratch) = (&mut Whole::unbounded(), &mut LaneScratch::default());
        at_once(self.writer.shared().search_sparse(&pin, query, wanted, pace, scratch, &mut hits)).unwrap();
        let found: Vec<(u64, f32)> = hits.iter().map(|hit| (hit.id, hit.score)).collect();
        assert_eq!(found, truth, "{query:?}");
    }

    fn expire(&mut self) {
        for id in self.writer.points().expired(self.now_ms, usize::MAX) {
            assert!(self.writer.expire(id, self.now_ms));
            self.twin.remove(&id);
        }
    }

    fn capture(&mut self, full: bool, slice: usize) -> Vec<u8> {
        let mut image = Vec::new();
        self.writer.begin_capture(full);
        while !self.writer.capture_step(slice, &mut image) {}
        self.writer.end_capture(true);
        image
    }

    /// A start from images that show everything up to `seq`, and the log from there on.
    fn reopen(&mut self, images: &[Vec<u8>], seq: u64) {
        let mut writer = DenseWriter::create_named(&self.config, SLOTS_MAX, self.domain.clone()).unwrap();
        images.iter().for_each(|image| writer.restore(image).unwrap());
        writer.finish_restore(seq).unwrap();
        self.log.iter().filter(|logged| logged.seq() > seq).for_each(|logged| logged.apply(&mut writer));
        self.writer = writer;
        self.expire();
    }

    fn settle(&mut self) {
        self.expire();
        self.writer.index_all();
        while self.writer.repair_step(usize::MAX) {}
        self.writer.reclaim();
    }

    /// As [`Self::settle`], down to the last dead slot.
    fn settle_all(&mut self) {
        self.settle();
        self.writer.repair_all();
    }
}

/// A payload row with the sparse vectors of a point.
fn row(group: i64, sparse: &[Vec<(u32, f32)>]) -> Vec<u8> {
    let mut row = RowBuilder::new();
    row.set("group", Value::Int(group), 0);
    // A changed group changes the text, which moves the point, with its vectors, to another slot.
    row.set(CONTENT_KEY, Value::String(format!("a member of g{group}")), 0);
    for (space, vector) in sparse.iter().enumerate() {
        row.set_sparse_of(space, vector.clone()).unwrap();
    }
    row.finish()
}

/// None, or a few of ten dimensions with values that add up without rounding.
fn random_sparse(rng: &mut Rng) -> Vec<(u32, f32)> {
    if rng.below(3) == 0 {
        return Vec::new();
    }
    (0..10)
        .filter(|_| rng.below(4) == 0)
        .collect::<Vec<u32>>()
        .into_iter()
        .map(|d| (d, d as f32 - 4.5))
        .collect()
}

fn product(a: &[(u32, f32)], b: &[(u32, f32)]) -> Option<f32> {
    let shared = a.iter().filter_map(|(d, x)| Some(x * b.iter().find(|other| other.0 == *d)?.1));
    let products: Vec<f32> = shared.collect();
    (!products.is_empty()).then(|| products.iter().sum())
}

#[test]
fn spaces_agree_with_their_twin() {
    for seed in 0..rounds(6, 200) as u64 {
        let mut rng = Rng(seed);
        let mut bed = Bed::new(spaces());
        let (mut images, mut image_seq) = (Vec::new(), 0);
        for step in 0..900 {
            match rng.below(40) {
                0..26 => bed.random_write(&mut rng, 150),
                26..30 => bed.delete(rng.below(150)),
                30..33 => bed.rewrite(rng.below(150), rng.below(4) as i64),
                33 => bed.settle(),
                34 => {
                    let number = rng.below(bed.config.spaces.len() as u64) as usize;
                    index_one(&mut bed, number, &mut rng);
                }
                35 => bed.now_ms += rng.below(120),
                36 => bed.expire(),
                37 => {
                    let full = images.is_empty() || rng.below(3) == 0;
                    let image = bed.capture(full, 1 + rng.below(3000) as usize);
                    if full {
                        images.clear();
                    }
                    images.push(image);
                    image_seq = bed.seq;
                }
                38 if step % 3 == 0 => {
                    let seq = if images.is_empty() { 0 } else { image_seq };
                    bed.reopen(&images, seq);
                    // Nothing that is in no image any more may be missing from the next delta.
                    (images, image_seq) = (Vec::new(), 0);
                }
                _ => {
                    bed.writer.repair_step(50);
                    bed.writer.reclaim();
                }
            }
            if step % 7 == 0 {
                bed.check(&mut rng);
            }
        }
        bed.check(&mut rng);
        bed.settle();
        bed.check(&mut rng);
    }
}

#[test]
fn spaces_that_come_and_go_agree_with_their_twin() {
    let mut most = 0;
    for seed in 300..300 + rounds(8, 300) as u64 {
        let mut rng = Rng(seed);
        let mut bed = Bed::new(spaces());
        let (mut images, mut image_seq) = (Vec::new(), 0);
        for step in 0..700 {
            match rng.below(40) {
                0..22 => bed.random_write(&mut rng, 120),
                22..26 => bed.delete(rng.below(120)),
                26..28 => bed.rewrite(rng.below(120), rng.below(4) as i64),
                28 => bed.settle(),
                29..31 => {
                    let number = rng.below(bed.config.spaces.len() as u64) as usize;
                    index_one(&mut bed, number, &mut rng);
                }
                31 => bed.now_ms += rng.below(120),
                32 => bed.expire(),
                33 if rng.below(3) == 0 => bed.add_sparse_space(),
                34 if rng.below(3) == 0 => bed.drop_sparse_space(&mut rng),
                33 => bed.add_space(&mut rng),
                34 => bed.drop_space(&mut rng),
                35 => {
                    let full = images.is_empty() || rng.below(4) == 0;
                    let image = bed.capture(full, 1 + rng.below(3000) as usize);
                    if full {
                        images.clear();
                    }
                    images.push(image);
                    image_seq = bed.seq;
                }
                36 if rng.below(3) == 0 => {
                    // From images and records of before and after spaces came and went.
                    let seq = if images.is_empty() { 0 } else { image_seq };
                    bed.reopen(&images, seq);
                    (images, image_seq) = (Vec::new(), 0);
                }
                _ => {
                    bed.writer.repair_step(50);
                    bed.writer.reclaim();
                }
            }
            if step % 5 == 0 {
                bed.check(&mut rng);
            }
        }
        most = most.max(bed.config.spaces.len());
        bed.settle_all();
        bed.check(&mut rng);
        let stats = bed.writer.shared().stats();
        assert_eq!((stats.live, stats.tombstoned), (bed.twin.len() as u64, 0), "{stats:?}");
        assert_eq!(stats.sparse_vectors, bed.sparse_vectors(), "{stats:?}");
        // A full image has nothing of dropped dense spaces any more, and is all that there is.
        let image = bed.capture(true, 4096);
        bed.reopen(&[image], bed.seq);
        bed.check(&mut rng);
    }
    assert!(most > 15, "up to {most} numbers were given");
}

#[test]
fn a_dropped_space_gives_its_memory_back() {
    let mut rng = Rng(9);
    let mut bed =
        Bed::new(vec![space("small", 3, Metric::L2, |_| {}), space("large", 1024, Metric::L2, |_| {})]);
    for id in 0..400 {
        let said = vec![Said::Given(rng.vector(3)), Said::Given(rng.vector(1024))];
        bed.write(id, said, vec![Vec::new(); SPARSE.len()], 0, 0);
    }
    // Some wait to be let go of, in the graph and in the tail.
    (0..200).for_each(|id| bed.delete(id));
    bed.settle();
    (200..230).for_each(|id| bed.delete(id));
    let before = bed.writer.shared().stats().bytes;
    let (left, number) = bed.config.without_space("large").unwrap();
    assert_eq!(number, SpaceNumber::Dense(1));
    let place = bed.writer.new_space(&left, number).unwrap();
    let weak = Arc::downgrade(&bed.writer.shared().spaces()[1]);
    let replaced = bed.writer.set_space(&left, place);
    drop(replaced);
    assert!(weak.upgrade().is_none(), "its memory went with its last handle");
    let after = bed.writer.shared().stats().bytes;
    assert!(after + 400 * 4096 < before, "{before} bytes before, {after} after");
    bed.settle_all();
    let stats = bed.writer.shared().stats();
    assert_eq!((stats.live, stats.tombstoned), (170, 0), "{stats:?}");
}

#[test]
fn a_dropped_sparse_space_gives_its_memory_back() {
    let mut bed = Bed::new(vec![space("small", 3, Metric::L2, |_| {})]);
    let tags = |id: u64| (0..300).map(|at| (id as u32 * 300 + at, 1.0)).collect::<Vec<_>>();
    for id in 0..200 {
        bed.write(id, vec![Said::Absent], vec![vec![(1, 1.0)], tags(id), vec![]], 0, 0);
    }
    // Some slots are freed after the drop, with rows that still have vectors in the space.
    (0..50).for_each(|id| bed.delete(id));
    let before = bed.writer.shared().usage().lanes;
    let (left, number) = bed.config.without_space("tags").unwrap();
    assert_eq!(number, SpaceNumber::Sparse(1));
    let place = bed.writer.new_space(&left, number).unwrap();
    let weak = Arc::downgrade(&bed.writer.shared().sparse_spaces()[1]);
    let replaced = bed.writer.set_space(&left, place);
    drop(replaced);
    bed.writer.reclaim();
    assert!(weak.upgrade().is_none(), "its memory went with its last handle");
    let after = bed.writer.shared().usage().lanes;
    assert!(after + 200 * 300 * 8 < before, "{before} bytes before, {after} after");
    bed.config = left;
    bed.settle_all();
    assert_eq!(bed.writer.shared().stats().sparse_vectors, 150);
    bed.check(&mut Rng(3));
}

#[test]
fn who_has_a_view_of_a_dropped_sparse_space_does_not_find_other_points_in_it() {
    let mut bed = Bed::new(vec![space("small", 3, Metric::L2, |_| {})]);
    for id in 0..20 {
        bed.write(id, vec![Said::Absent], vec![vec![], vec![(7, 1.0 + id as f32)], vec![]], 0, 0);
    }
    let view = bed.writer.shared().clone();
    (0..10).for_each(|id| bed.delete(id));
    let (left, number) = bed.config.without_space("tags").unwrap();
    let place = bed.writer.new_space(&left, number).unwrap();
    let replaced = bed.writer.set_space(&left, place);
    bed.config = left;
    bed.writer.repair_step(usize::MAX);
    bed.writer.reclaim();
    let freed = bed.writer.points().high_water();
    for id in 30..40 {
        bed.write(id, vec![Said::Absent], vec![vec![], vec![], vec![]], 0, 0);
    }
    assert_eq!(bed.writer.points().high_water(), freed, "the freed slots are used again");
    let (pin, mut hits) = (bed.seat.pin(), Vec::new());
    let wanted = HitsWanted { k: 100, filter: None, now_ms: bed.now_ms, among: None };
    let query = SparseQuery { space: 1, terms: &[(7, 1.0)] };
    let (pace, scratch) = (&mut Whole::unbounded(), &mut LaneScratch::default());
    at_once(view.search_sparse(&pin, query, wanted, pace, scratch, &mut hits)).unwrap();
    let found: Vec<u64> = hits.iter().map(|hit| hit.id).collect();
    assert_eq!(found, (10..20).rev().collect::<Vec<u64>>());
    drop((pin, view, replaced));
    bed.check(&mut Rng(5));
}

/// One round of a space, while others wait.
fn index_one(bed: &mut Bed, number: usize, rng: &mut Rng) {
    use crate::collection::Filed;
    use crate::index::{FiledAt, Planner};
    let space = bed.writer.shared().spaces()[number].clone();
    if bed.writer.spaces()[number].files_cells() {
        if let Filed::Round(round) = bed.writer.begin_filing(number, 20) {
            let places: Vec<FiledAt> =
                (0..round.len()).map(|index| space.place(&round, index, &mut Vec::new())).collect();
            bed.random_write(rng, 150);
            bed.writer.end_filing(number, &places);
        }
        return;
    }
    let Some(round) = bed.writer.begin_round(number, 20) else { return };
    let mut planner = Planner::new();
    let mut plans = Vec::new();
    for index in 0..round.slots.len() {
        space.plan_start(&mut planner, &round, index);
        plans.push(loop {
            if let Some(plan) = space.plan_step(&mut planner, &round, usize::MAX) {
                break plan;
            }
        });
    }
    // Points may die while the round is open, and nothing is freed meanwhile.
    (0..3).for_each(|_| bed.random_write(rng, 150));
    bed.delete(rng.below(150));
    bed.writer.reclaim();
    let jobs = bed.writer.spaces()[number].target_jobs(&plans);
    let mut scratch = Scratch::new();
    let targets = jobs.iter().map(|job| space.plan_target(job, &mut scratch)).collect();
    bed.writer.commit_round(number, plans, targets);
}

#[test]
fn deltas_of_named_spaces_show_what_full_images_show() {
    for seed in 100..100 + rounds(4, 100) as u64 {
        let mut rng = Rng(seed);
        let mut bed = Bed::new(spaces());
        (0..200).for_each(|_| bed.random_write(&mut rng, 120));
        bed.settle();
        let mut images = vec![bed.capture(true, 700)];
        for _ in 0..5 {
            for _ in 0..40 {
                match rng.below(5) {
                    0 => bed.delete(rng.below(120)),
                    1 => bed.rewrite(rng.below(120), 3),
                    _ => bed.random_write(&mut rng, 120),
                }
            }
            if rng.below(2) == 0 {
                bed.settle();
            }
            images.push(bed.capture(false, 700));
        }
        bed.reopen(&images, bed.seq);
        bed.check(&mut rng);
        bed.settle_all();
        bed.check(&mut rng);
        // Nothing leads to the dead of any space any more: a full image has no slot but those of points.
        let stats = bed.writer.shared().stats();
        assert_eq!((stats.live, stats.tombstoned), (bed.twin.len() as u64, 0), "{stats:?}");
    }
}

#[test]
fn slots_of_points_without_vectors_come_back() {
    let mut rng = Rng(5);
    let mut bed = Bed::new(spaces());
    for _ in 0..50 {
        for id in 0..60 {
            let said = (0..5).map(|number| match (id + number) % 3 {
                0 => Said::Given(rng.vector(bed.config.spaces[number as usize].config.dim)),
                _ => Said::Absent,
            });
            let said =
                if id % 10 == 0 { vec![Said::Absent; 5].into_iter().collect() } else { said.collect() };
            bed.write(id, said, vec![vec![]; SPARSE.len()], 0, 0);
        }
        bed.settle_all();
    }
    bed.check(&mut rng);
    let stats = bed.writer.shared().stats();
    assert!(stats.slots <= 121, "{stats:?}");
    assert_eq!(stats.tombstoned, 0, "{stats:?}");
}

#[test]
fn damaged_images_of_named_spaces_are_refused_or_harmless() {
    let mut rng = Rng(77);
    let mut bed = Bed::new(spaces());
    (0..60).for_each(|_| bed.random_write(&mut rng, 40));
    bed.writer.index_all();
    (0..10).for_each(|_| bed.random_write(&mut rng, 40));
    let image = bed.capture(true, 1000);
    for _ in 0..rounds(400, 20_000) {
        let mut damaged = image.clone();
        let at = rng.below(image.len() as u64) as usize;
        damaged[at] ^= 1 << rng.below(8);
        let mut writer = DenseWriter::create_named(&bed.config, SLOTS_MAX, bed.domain.clone()).unwrap();
        if writer.restore(&damaged).is_ok() && writer.finish_restore(bed.seq).is_ok() {
            // It may hold other points, and serves them.
            let mut hits = Vec::new();
            for (number, space) in bed.config.spaces.iter().enumerate() {
                let vector = rng.vector(space.config.dim);
                let query =
                    Query { vector: &vector, k: 5, ef: 0, filter: None, exact: false, now_ms: bed.now_ms };
                let space = &writer.shared().spaces()[number];
                space.search(&bed.seat.pin(), &query, &mut Scratch::new(), &mut hits).unwrap();
            }
            writer.index_all();
            while writer.repair_step(usize::MAX) {}
        }
    }
    // Images of another number of spaces do not fit.
    let mut fewer = bed.config.clone();
    fewer.spaces.truncate(2);
    let mut writer = DenseWriter::create_named(&fewer, SLOTS_MAX, bed.domain.clone()).unwrap();
    let refused = writer.restore(&image).unwrap_err().to_string();
    assert!(refused.contains("of a collection of 2"), "{refused}");
}

#[test]
fn dead_points_of_a_graph_need_no_cell_where_cells_have_their_codes_alone() {
    let mut rng = Rng(3);
    let bare = space("bare", 4, Metric::L2, |config| {
        let code = CellProduct { parts: 2, bits: 4, rotations: 0, eta: 0.0 };
        let drift = Some(Drift { growth: 1.5, factor: 1.2 });
        config.index = IndexType::Ivf(IvfConfig {
            product: Some(IvfProduct { code, rerank: false }),
            drift,
            train_threshold: 500,
            ..IvfConfig::default()
        });
    });
    let mut bed = Bed::new(vec![space("linked", 4, Metric::L2, |_| {}), bare]);
    let cells = |bed: &Bed| {
        let filing = bed.writer.spaces()[1].filing().unwrap();
        filing.current.as_ref().unwrap().cells().len()
    };
    let write = |bed: &mut Bed, rng: &mut Rng, id: u64, by: f32| {
        let said = (0..2).map(|_| Said::Given(rng.vector(4).iter().map(|x| x + by).collect()));
        bed.write(id, said.collect(), vec![Vec::new(); 3], 0, 0);
    };
    (0..1000).for_each(|id| write(&mut bed, &mut rng, id, 0.0));
    bed.settle_all();
    let before = cells(&bed);
    let base = bed.capture(true, 1 << 12);
    (100..1000).for_each(|id| bed.delete(id));
    (1000..2600).for_each(|id| write(&mut bed, &mut rng, id, 9.0));
    bed.settle_all();
    assert_ne!(cells(&bed), before);
    // Few enough that the graph keeps them.
    (0..40).for_each(|id| bed.delete(id));
    bed.settle();
    assert_eq!(bed.writer.shared().stats().tombstoned, 40);
    let delta = bed.capture(false, 1 << 12);
    bed.reopen(&[base, delta], bed.seq);
    assert_eq!(bed.writer.shared().stats().tombstoned, 40);
    bed.settle_all();
    for space in bed.writer.shared().spaces() {
        assert_eq!(space.vectors(), 1660);
    }
    let query = Query { vector: &[9.0; 4], k: 2000, ef: 0, filter: None, exact: true, now_ms: bed.now_ms };
    assert_eq!(bed.search(1, &query).len(), 1660);
}
