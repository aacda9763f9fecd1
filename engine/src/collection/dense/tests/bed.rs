//! A collection beside its twin: a sorted map of everything that should be there.
use crate::collection::space::by_distance_then_id;
use crate::collection::{
    DenseConfig, DenseWriter, Hit, Parts, Query, RowWrite, Write, WriteError, WriteMode,
};
use crate::distance::{Kernel, Metric, padded, prepare};
use crate::filter::{Node, Predicate};
use crate::index::Scratch;
use crate::memory::{Domain, FilePages, Participant, ScratchFiles, Storage, anonymous_file};
use crate::payload::{RowBuilder, Value};
use crate::random::SplitMix64;
use crate::slot::Slot;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A small generator: seeds replay.
pub struct Rng(pub u64);
impl Rng {
    pub fn next(&mut self) -> u64 {
        let mut stream = SplitMix64(self.0);
        let bits = stream.next();
        self.0 = stream.0;
        bits
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// Components in -1..1.
    pub fn vector(&mut self, dim: usize) -> Vec<f32> {
        (0..dim).map(|_| (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect()
    }
}

/// What the twin knows of a point.
#[derive(Clone, Debug, PartialEq)]
pub struct TwinPoint {
    pub prepared: Vec<f32>,
    pub row: Vec<u8>,
    pub group: i64,
    pub version: u64,
    pub deadline_ms: u64,
}

/// A write as a log would keep it.
#[derive(Clone, Debug)]
pub enum Logged {
    Write { seq: u64, id: u64, version: u64, vector: Vec<f32>, row: Vec<u8>, deadline_ms: u64 },
    Row { seq: u64, id: u64, version: u64, row: Vec<u8> },
    Delete { seq: u64, id: u64 },
}
impl Logged {
    pub fn seq(&self) -> u64 {
        match self {
            Logged::Write { seq, .. } | Logged::Row { seq, .. } | Logged::Delete { seq, .. } => *seq,
        }
    }
    pub fn apply(&self, writer: &mut DenseWriter) {
        match self {
            Logged::Write { seq, id, version, vector, row, deadline_ms } => writer.apply(Write {
                seq: *seq,
                id: *id,
                version: *version,
                parts: Parts::Only(vector),
                row,
                deadline_ms: *deadline_ms,
            }),
            Logged::Row { seq, id, version, row } => {
                writer.apply_row(&RowWrite { seq: *seq, id: *id, version: *version, row });
            }
            Logged::Delete { seq, id } => _ = writer.apply_delete(*seq, *id),
        }
    }
}

pub struct Bed {
    pub config: DenseConfig,
    pub slots_max: usize,
    pub domain: Arc<Domain>,
    pub seat: Participant,
    pub writer: DenseWriter,
    pub twin: BTreeMap<u64, TwinPoint>,
    /// The highest version that an id was ever given.
    pub given: BTreeMap<u64, u64>,
    pub log: Vec<Logged>,
    pub seq: u64,
    pub now_ms: u64,
    /// Of a persistent collection.
    pub file: Option<VectorFile>,
}

/// The file of vectors, and what of it is certain.
pub struct VectorFile {
    current: File,
    synced: Vec<u8>,
}

impl VectorFile {
    fn storage(&self) -> Storage {
        let vectors = FilePages::new(Box::new(self.current.try_clone().unwrap()), 0).unwrap();
        Storage { vectors, scratch: ScratchFiles::new(|| Ok(Box::new(anonymous_file()))) }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.current.metadata().unwrap().len() as usize];
        self.current.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    pub fn cut(&self, bytes: u64) {
        self.current.set_len(bytes).unwrap();
    }

    pub fn flip(&self, at: u64) {
        let mut byte = [0];
        self.current.read_exact_at(&mut byte, at).unwrap();
        self.current.write_all_at(&[byte[0] ^ 16], at).unwrap();
    }

    /// As if the disk were full.
    pub fn grow_no_more(&self) {
        // SAFETY: the descriptor is open, and the call looks at no memory of ours.
        let sealed = unsafe { libc::fcntl(self.current.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_GROW) };
        assert_eq!(sealed, 0);
    }

    pub fn sync(&mut self) {
        self.synced = self.bytes();
    }

    /// What a power failure leaves: each page as it was synced or as it is.
    pub fn after_power_failure(&self, rng: &mut Rng) -> VectorFile {
        let mut left = self.bytes();
        for (index, page) in left.chunks_mut(4096).enumerate() {
            let from = (index * 4096).min(self.synced.len());
            let old = &self.synced[from..(from + page.len()).min(self.synced.len())];
            if rng.below(2) == 0 {
                page.fill(0);
                page[..old.len()].copy_from_slice(old);
            }
        }
        let current = anonymous_file();
        current.write_all_at(&left, 0).unwrap();
        VectorFile { current, synced: left }
    }
}

/// A row that says which group the point belongs to.
pub fn row(group: i64) -> Vec<u8> {
    let mut row = RowBuilder::new();
    row.set("group", Value::Int(group), 0);
    row.finish()
}

pub fn group_is(group: i64) -> Predicate {
    let node = Node {
        op: Some("eq".into()),
        field: Some("group".into()),
        value: Some(Value::Int(group)),
        ..Node::default()
    };
    Predicate::compile(&node).unwrap()
}

/// A configuration whose graph is used for a few hundred points already.
pub fn small_config(dim: usize, metric: Metric) -> DenseConfig {
    DenseConfig { m: 6, ef_construction: 60, ef_search: 16, seed: 7, ..DenseConfig::new(dim, metric) }
}

impl Bed {
    pub fn new(config: DenseConfig, slots_max: usize) -> Bed {
        let domain = Domain::new(8);
        let writer = DenseWriter::create(config.clone(), slots_max, domain.clone()).unwrap();
        Bed {
            seat: domain.participant(0),
            config,
            slots_max,
            domain,
            writer,
            twin: BTreeMap::new(),
            given: BTreeMap::new(),
            log: Vec::new(),
            seq: 0,
            now_ms: 1000,
            file: None,
        }
    }

    /// One whose vectors lie in a file.
    pub fn persistent(config: DenseConfig, slots_max: usize) -> Bed {
        let mut bed = Bed::new(DenseConfig { persistent: true, ..config }, slots_max);
        bed.file = Some(VectorFile { current: anonymous_file(), synced: Vec::new() });
        bed.writer = bed.fresh_writer();
        bed
    }

    pub fn fresh_writer(&self) -> DenseWriter {
        let storage = self.file.as_ref().map(VectorFile::storage);
        DenseWriter::create_in(self.config.clone(), self.slots_max, self.domain.clone(), storage).unwrap()
    }

    pub fn alive(&self, id: u64) -> Option<&TwinPoint> {
        self.twin.get(&id).filter(|point| point.deadline_ms == 0 || point.deadline_ms > self.now_ms)
    }

    /// Writes a point as a server would, and checks the answer against the twin.
    pub fn write(&mut self, mode: WriteMode, id: u64, vector: &[f32], group: i64, deadline_ms: u64) {
        let found = self.alive(id).map_or(0, |point| point.version);
        let checked = self.writer.check_write(id, Parts::Only(vector), mode, None, || true, self.now_ms);
        if mode == WriteMode::Insert && found != 0 {
            assert_eq!(checked, Err(WriteError::DuplicateId(id)));
            return;
        }
        let version = self.given.get(&id).map_or(1, |given| given + 1);
        assert_eq!(checked, Ok(version), "version of id {id}");
        self.given.insert(id, version);
        self.seq += 1;
        let row = if group < 0 { Vec::new() } else { row(group) };
        let mut prepared = vec![0.0; padded(vector.len())];
        prepare(self.config.metric, vector, &mut prepared);
        let logged = Logged::Write {
            seq: self.seq,
            id,
            version,
            vector: vector.to_vec(),
            row: row.clone(),
            deadline_ms,
        };
        logged.apply(&mut self.writer);
        self.log.push(logged);
        self.twin.insert(id, TwinPoint { prepared, row, group, version, deadline_ms });
    }

    pub fn upsert(&mut self, id: u64, vector: &[f32]) {
        self.write(WriteMode::Upsert, id, vector, (id % 5) as i64, 0);
    }

    /// Replaces the payload of a point, if it is alive.
    pub fn rewrite(&mut self, id: u64, group: i64) {
        let found = self.alive(id).map(|point| (&point.row[..], point.version));
        assert_eq!(self.writer.points().check_rewrite(id, None, self.now_ms), Ok(found));
        let Some((_, version)) = found else { return };
        let expected = version + 1;
        let conflict = WriteError::VersionConflict { id, expected, found: version };
        assert_eq!(self.writer.points().check_rewrite(id, Some(expected), self.now_ms), Err(conflict));
        self.seq += 1;
        let row = if group < 0 { Vec::new() } else { row(group) };
        let logged = Logged::Row { seq: self.seq, id, version: version + 1, row: row.clone() };
        logged.apply(&mut self.writer);
        self.log.push(logged);
        let point = self.twin.get_mut(&id).unwrap();
        (point.row, point.group, point.version) = (row, group, version + 1);
        self.given.insert(id, version + 1);
    }

    /// Deletes a point if it is alive, or, as the sweeper does, if it is there at all.
    pub fn delete(&mut self, id: u64, sweep: bool) {
        let alive = self.alive(id).is_some();
        assert_eq!(self.writer.points().check_delete(id, None, self.now_ms), Ok(alive));
        if alive || sweep {
            self.seq += 1;
            let removed = self.writer.apply_delete(self.seq, id);
            self.log.push(Logged::Delete { seq: self.seq, id });
            assert_eq!(removed, self.twin.remove(&id).is_some());
        }
    }

    pub fn search(&self, query: &Query<'_>) -> Vec<Hit> {
        let mut hits = Vec::new();
        self.writer.shared().search(&self.seat.pin(), query, &mut Scratch::default(), &mut hits).unwrap();
        hits
    }

    pub fn query<'a>(&self, vector: &'a [f32], k: usize) -> Query<'a> {
        Query { vector, k, ef: 0, filter: None, exact: false, now_ms: self.now_ms }
    }

    /// What a search must find, by scoring everything.
    pub fn truth(&self, vector: &[f32], k: usize, group: Option<i64>) -> Vec<(u64, f32)> {
        let kernel = Kernel::of(self.config.metric);
        let mut prepared = vec![0.0; padded(vector.len())];
        prepare(self.config.metric, vector, &mut prepared);
        let mut hits: Vec<Hit> = self
            .twin
            .iter()
            .filter(|&(&id, point)| self.alive(id).is_some() && group.is_none_or(|g| g == point.group))
            .map(|(&id, point)| Hit { id, distance: kernel.distance(&prepared, &point.prepared), slot: 0 })
            .collect();
        hits.sort_by(by_distance_then_id);
        hits.truncate(k);
        hits.into_iter().map(|hit| (hit.id, hit.distance)).collect()
    }

    /// Everything a client can ask, compared with the twin.
    pub fn check(&self, rng: &mut Rng) {
        let pin = self.seat.pin();
        let shared = self.writer.shared();
        assert_eq!(self.writer.seq(), self.seq);
        for (&id, twin) in &self.twin {
            let point = shared.get(&pin, id, self.now_ms);
            if self.alive(id).is_none() {
                assert!(point.is_none(), "id {id} has expired");
                continue;
            }
            let point = point.unwrap_or_else(|| panic!("id {id} is missing"));
            assert_eq!((point.id, point.version, point.deadline_ms), (id, twin.version, twin.deadline_ms));
            assert_eq!((point.row, &point.vector[..]), (&twin.row[..], &twin.prepared[..self.config.dim]));
        }
        let ids: Vec<u64> = self.writer.points().ids_from(0).collect();
        assert!(ids.iter().eq(self.twin.keys()), "ids in order");
        let middle = rng.below(400);
        assert!(self.writer.points().ids_from(middle).eq(self.twin.range(middle..).map(|(&id, _)| id)));
        let stats = shared.stats();
        assert_eq!(stats.live, self.twin.len() as u64);
        assert!(stats.live + stats.tombstoned <= stats.slots);
        let mut expired: Vec<u64> = self.writer.points().expired(self.now_ms, usize::MAX);
        expired.sort_unstable();
        assert!(expired.iter().eq(self.twin.keys().filter(|&&id| self.alive(id).is_none())));

        let vector = rng.vector(self.config.dim);
        for k in [1, 7, self.twin.len() + 3] {
            let hits = self.search(&Query { exact: true, ..self.query(&vector, k) });
            check_hits(&hits, &self.truth(&vector, k, None));
        }
        let group = rng.below(6) as i64;
        let filter = group_is(group);
        let hits = self.search(&Query { filter: Some(&filter), ..self.query(&vector, 5) });
        let truth = self.truth(&vector, 5, Some(group));
        assert_eq!(hits.len(), truth.len(), "k results whenever k match");
        assert!(hits.iter().all(|hit| self.twin[&hit.id].group == group && self.alive(hit.id).is_some()));
        let exact = Query { filter: Some(&filter), exact: true, ..self.query(&vector, 5) };
        check_hits(&self.search(&exact), &truth);
    }

    /// Share of the true 10 nearest that the default beam finds, over `queries` queries; what it returns is checked.
    pub fn recall(&self, rng: &mut Rng, queries: usize, ef: usize) -> f64 {
        let (mut found, mut wanted) = (0, 0);
        for _ in 0..queries {
            let vector = rng.vector(self.config.dim);
            let truth = self.truth(&vector, 10, None);
            let hits = self.search(&Query { ef, ..self.query(&vector, 10) });
            assert!(hits.is_sorted_by(|a, b| by_distance_then_id(a, b).is_lt()), "in order, no id twice");
            assert!(hits.iter().all(|hit| self.alive(hit.id).is_some()), "only live points");
            assert_eq!(hits.len(), truth.len());
            wanted += truth.len();
            found += hits.iter().filter(|hit| truth.iter().any(|t| t.0 == hit.id)).count();
        }
        found as f64 / wanted.max(1) as f64
    }

    /// How many live points a search for their own vector does not return, though nothing else is as near.
    pub fn lost(&self, ef: usize) -> usize {
        let alive = self.twin.iter().filter(|&(&id, _)| self.alive(id).is_some());
        alive
            .filter(|&(&id, point)| {
                let vector = &point.prepared[..self.config.dim];
                let hits = self.search(&Query { ef, ..self.query(vector, 3) });
                let truth = self.truth(vector, 3, None);
                truth.iter().any(|t| t.0 == id) && hits.iter().all(|hit| hit.id != id)
            })
            .count()
    }

    /// A whole image, or what changed since the last.
    pub fn capture(&mut self, full: bool, slice: usize) -> Vec<u8> {
        let mut image = Vec::new();
        self.writer.begin_capture(full);
        while !self.writer.capture_step(slice, &mut image) {}
        self.file.iter_mut().for_each(VectorFile::sync);
        self.writer.end_capture(true);
        image
    }

    /// Starts again from images made up to `seq` and the log since.
    pub fn reopen(&mut self, images: &[Vec<u8>], seq: u64) {
        let mut writer = self.fresh_writer();
        for image in images {
            writer.restore(image).unwrap();
        }
        // Every other time another thread files the rows meanwhile.
        let rows = if seq.is_multiple_of(2) { writer.rows_to_file(1) } else { None };
        std::thread::scope(|scope| {
            if let Some(mut rows) = rows {
                scope.spawn(move || while rows.step(7) {});
            }
            writer.finish_restore(seq).unwrap();
        });
        {
            // Of what images name nothing was written over, also what the log is about to take out.
            let pin = self.seat.pin();
            assert!(writer.shared().space().is_sound(&pin, 0, Slot::MAX));
        }
        // The log may hold writes the images already show; those change nothing.
        for logged in &self.log {
            logged.apply(&mut writer);
        }
        self.writer = writer;
    }

    /// Repairs and frees until nothing more can be done.
    pub fn settle(&mut self) {
        self.writer.index_all();
        while self.writer.repair_step(64) {}
        for _ in 0..200 {
            self.writer.reclaim();
        }
    }
}

pub fn check_hits(hits: &[Hit], truth: &[(u64, f32)]) {
    let found: Vec<(u64, u32)> = hits.iter().map(|hit| (hit.id, hit.distance.to_bits())).collect();
    let wanted: Vec<(u64, u32)> = truth.iter().map(|&(id, distance)| (id, distance.to_bits())).collect();
    assert_eq!(found, wanted);
}
