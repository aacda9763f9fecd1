//! The lane over the plain reference in the place of a device, beside exact searches of the engine.
use super::waiting::Outcome;
use super::{Devices, Lane};
use crate::account::Account;
use crate::catalog::{CollectionHandle, Counters};
use crate::family::Family;
use crate::points::{FoundPoint, SearchRequest};
use futures_lite::future::{block_on, poll_once};
use nigh_engine::collection::{DenseConfig, DenseWriter, IndexType, Parts, Query, SearchError, Write};
use nigh_engine::device::{DeviceError, ExactDevice, Found, RESULTS_MAX};
use nigh_engine::distance::Metric;
use nigh_engine::filter::{Node, Predicate};
use nigh_engine::index::Scratch;
use nigh_engine::memory::{Domain, Participant, Published};
use nigh_engine::pace::{Whole, at_once};
use nigh_engine::payload::{RowBuilder, Value};
use nigh_engine::query;
use nigh_gpu::Reference;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

const DIM: usize = 7;
const NOW_MS: u64 = 1_000_000;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn vector(&mut self) -> Vec<f32> {
        (0..DIM).map(|_| self.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0).collect()
    }
}

/// What the devices of a test are told to do, and what they did.
#[derive(Default)]
struct Wires {
    open: AtomicUsize,
    opened: AtomicUsize,
    searches: AtomicUsize,
    written: AtomicUsize,
    /// Rows that fit, 0 = any number.
    room: AtomicUsize,
    /// Held by a test that wants searches to wait.
    gate: Mutex<()>,
    broken: AtomicUsize,
}

struct Wired {
    reference: Reference,
    wires: Arc<Wires>,
}

impl Drop for Wired {
    fn drop(&mut self) {
        self.wires.open.fetch_sub(1, SeqCst);
    }
}

impl ExactDevice for Wired {
    fn name(&self) -> String {
        "wired".into()
    }
    fn dim(&self) -> usize {
        self.reference.dim()
    }
    fn len(&self) -> usize {
        self.reference.len()
    }
    fn write(&mut self, rows: &[u32], values: &[f32]) -> Result<(), DeviceError> {
        let room = self.wires.room.load(SeqCst);
        if room > 0 && rows.iter().any(|row| *row as usize >= room) {
            return Err(DeviceError::OutOfMemory { bytes: size_of_val(values) });
        }
        self.wires.written.fetch_add(rows.len(), SeqCst);
        self.reference.write(rows, values)
    }
    fn search(&mut self, queries: &[f32], k: usize, live: &[u64]) -> Result<Vec<Vec<Found>>, DeviceError> {
        self.wires.searches.fetch_add(1, SeqCst);
        if self.wires.broken.load(SeqCst) > 0 {
            return Err(DeviceError::Failed("it was told to".into()));
        }
        drop(self.wires.gate.lock().unwrap());
        self.reference.search(queries, k, live)
    }
}

fn wired(wires: &Arc<Wires>) -> Devices {
    let wires = wires.clone();
    Devices::new(move |dim, metric| {
        wires.open.fetch_add(1, SeqCst);
        wires.opened.fetch_add(1, SeqCst);
        Ok(Box::new(Wired { reference: Reference::new(dim, metric), wires: wires.clone() }))
    })
}

/// One collection with its writer, a lane, and a seat to search it without the lane.
struct Bed {
    // The lane first: its thread ends before what it looks at goes.
    lane: Arc<Lane>,
    writer: DenseWriter,
    handle: Arc<CollectionHandle>,
    seat: Participant,
    domain: Arc<Domain>,
    wires: Arc<Wires>,
    random: Random,
}

fn config(metric: Metric) -> DenseConfig {
    DenseConfig { index: IndexType::Gpu, m: 4, ef_construction: 16, ..DenseConfig::new(DIM, metric) }
}

fn name_is(op: &str, value: &str) -> Arc<Predicate> {
    let (op, field) = (Some(op.into()), Some("name".into()));
    let node = Node { op, field, value: Some(Value::String(value.into())), ..Node::default() };
    Arc::new(Predicate::compile(&node).unwrap())
}

impl Bed {
    fn new(metric: Metric) -> Bed {
        let wires = Arc::new(Wires::default());
        let domain = Domain::new(2);
        let writer = DenseWriter::create(config(metric), 1 << 16, domain.clone()).unwrap();
        let handle = Arc::new(CollectionHandle {
            payload_format: Default::default(),
            ids: nigh_engine::point_id::IdKind::Number,
            uid: 7,
            name: "default/a".into(),
            family: Family::Dense,
            config: Published::new(domain.clone(), Arc::new(config(metric).into())),
            owner: 0,
            view: Published::new(domain.clone(), writer.shared().clone()),
            counters: Counters::default(),
            covered_seq: Default::default(),
            damage: Default::default(),
            is_closed: Default::default(),
            tokens: Default::default(),
            indexing: Default::default(),
            activity: None,
        });
        let lane = Arc::new(Lane::new(wired(&wires), domain.clone(), Account::new(u64::MAX)));
        let (seat, random) = (domain.participant(0), Random(0x1234_5678_9abc_def1));
        Bed { lane, writer, handle, seat, domain, wires, random }
    }

    fn put(&mut self, id: u64, vector: &[f32], deadline_ms: u64) {
        let mut row = RowBuilder::new();
        row.set("name", Value::String(format!("n{}", id % 5)), 0);
        let (seq, row) = (self.writer.seq() + 1, row.finish());
        self.writer.apply(Write { seq, id, version: 1, parts: Parts::Only(vector), row: &row, deadline_ms });
    }

    fn fill(&mut self, ids: std::ops::Range<u64>) {
        for id in ids {
            let vector = self.random.vector();
            self.put(id, &vector, 0);
        }
    }

    fn request(&mut self, k: usize, filter: Option<Arc<Predicate>>) -> SearchRequest {
        SearchRequest { vector: self.random.vector(), k, filter, with_rows: true }
    }

    fn on_lane(&self, request: &SearchRequest) -> Outcome {
        block_on(self.lane.search(self.handle.clone(), request.clone(), NOW_MS))
    }

    fn exactly(&self, request: &SearchRequest) -> Vec<FoundPoint> {
        let (pin, mut hits) = (self.seat.pin(), Vec::new());
        let dense = self.handle.dense(&pin);
        let query = Query {
            vector: &request.vector,
            k: request.k,
            ef: 0,
            filter: request.filter.as_deref(),
            exact: true,
            now_ms: NOW_MS,
        };
        dense.search(&pin, &query, &mut Scratch::default(), &mut hits).unwrap();
        let hits: Vec<query::Found> = hits.into_iter().map(query::Found::from).collect();
        let (account, mut pace) = (Account::new(u64::MAX), Whole::unbounded());
        at_once(crate::found::found_points(
            (dense, nigh_engine::point_id::IdKind::Number),
            &pin,
            &hits,
            &crate::found::Shown::payloads_if(request.with_rows),
            &account,
            &mut pace,
        ))
        .unwrap()
    }

    /// Asks the lane and holds its answer, if it has one, against the engine's.
    fn compare(&mut self, k: usize, filter: Option<Arc<Predicate>>) -> bool {
        let request = self.request(k, filter);
        let outcome = self.on_lane(&request).map(Result::unwrap);
        if let Some(found) = &outcome {
            assert_eq!(*found, self.exactly(&request), "k {k}, filter {:?}", request.filter.is_some());
        }
        outcome.is_some()
    }

    fn count(&self, of: fn(&Wires) -> &AtomicUsize) -> usize {
        of(&self.wires).load(SeqCst)
    }
}

#[test]
fn a_history_of_writes_is_searched_as_by_the_engine() {
    for metric in [Metric::Cosine, Metric::L2, Metric::Dot] {
        let mut bed = Bed::new(metric);
        let (mut asked, mut answered) = (0, 0);
        for step in 0..120 {
            for _ in 0..bed.random.below(60) {
                let id = bed.random.below(900);
                match bed.random.below(8) {
                    0 | 1 => _ = bed.writer.apply_delete(bed.writer.seq() + 1, id),
                    2 => {
                        let vector = bed.random.vector();
                        // Expired when it is searched, or not yet.
                        let deadline_ms = if bed.random.below(2) == 0 { NOW_MS } else { NOW_MS + 1 };
                        bed.put(id, &vector, deadline_ms);
                    }
                    _ => {
                        let vector = bed.random.vector();
                        bed.put(id, &vector, 0);
                    }
                }
            }
            // Slots are used again.
            bed.writer.reclaim();
            let k = [1, 10, 100, RESULTS_MAX][step % 4];
            let filter = [
                None,
                Some(name_is("eq", "n3")),
                Some(name_is("eq", "none")),
                Some(name_is("regex", "n[13]")),
            ];
            asked += 1;
            answered += usize::from(bed.compare(k, filter[step / 4 % 4].clone()));
        }
        assert!(answered * 10 > asked * 7, "{metric:?}: only {answered} of {asked} were answered");
        // Vectors travel when they are written, and not with each search.
        let written = bed.count(|wires| &wires.written);
        assert!(written as u64 <= bed.writer.seq(), "{written} of {}", bed.writer.seq());
        assert_eq!(bed.count(|wires| &wires.opened), 1);
    }
}

#[test]
fn what_the_device_leaves_unsure_is_left_to_the_cores() {
    let mut bed = Bed::new(Metric::L2);
    bed.fill(0..2000);
    // A filter that the payload index does not decide, and that leaves fewer than k of what the device finds.
    assert!(!bed.compare(200, Some(name_is("regex", "n[1]"))));
    assert!(bed.compare(20, Some(name_is("regex", "n[1]"))));
    assert!(bed.compare(200, Some(name_is("eq", "n1"))));
    // More points at the same distance than were asked for: ties go by id, and the device knows rows.
    for id in 5000..5100 {
        bed.put(id, &[9.0; DIM], 0);
    }
    let request = SearchRequest { vector: vec![9.0; DIM], k: 10, filter: None, with_rows: false };
    assert!(bed.on_lane(&request).is_none());
    let wider = SearchRequest { k: 120, ..request };
    assert_eq!(bed.on_lane(&wider).unwrap().unwrap(), bed.exactly(&wider));
}

#[test]
fn bad_queries_are_the_clients() {
    let mut bed = Bed::new(Metric::Cosine);
    bed.fill(0..3);
    let request = SearchRequest { vector: vec![1.0; 3], k: 1, filter: None, with_rows: false };
    let error = bed.on_lane(&request).unwrap().unwrap_err();
    let expected = SearchError::DimensionMismatch { expected: DIM, found: 3 };
    assert!(matches!(error, crate::error::OpError::Search(found) if found == expected));
    assert!(bed.compare(5, None));
}

#[test]
fn a_device_that_is_full_or_fails_leaves_everything_to_the_cores() {
    let mut bed = Bed::new(Metric::Dot);
    bed.wires.room.store(100, SeqCst);
    bed.fill(0..90);
    assert!(bed.compare(5, None));
    bed.fill(90..110);
    assert!(!bed.compare(5, None));
    assert_eq!(bed.count(|wires| &wires.open), 0);
    assert!(!bed.compare(5, None));
    assert_eq!(bed.count(|wires| &wires.opened), 1);

    let mut bed = Bed::new(Metric::Dot);
    bed.fill(0..90);
    bed.wires.broken.store(1, SeqCst);
    assert!(!bed.compare(5, None) && !bed.compare(5, None));
    assert_eq!((bed.count(|wires| &wires.searches), bed.count(|wires| &wires.open)), (1, 0));
}

#[test]
fn a_build_begins_a_new_copy_and_a_drop_ends_it() {
    let mut bed = Bed::new(Metric::L2);
    bed.fill(0..50);
    assert!(bed.compare(5, None));
    let mut built = DenseWriter::create(config(Metric::L2), 1 << 16, bed.domain.clone()).unwrap();
    built.load(Write {
        seq: 60,
        id: 77,
        version: 1,
        parts: Parts::Only(&[0.5; DIM]),
        row: &[],
        deadline_ms: 0,
    });
    bed.handle.view.swap(built.shared().clone());
    bed.writer = built;
    assert!(bed.compare(5, None));
    assert_eq!((bed.count(|wires| &wires.opened), bed.count(|wires| &wires.open)), (2, 1));

    let Bed { lane, writer, handle, wires, .. } = bed;
    drop(handle);
    let began = std::time::Instant::now();
    while wires.open.load(SeqCst) > 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "the device was not given back");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop((lane, writer));
}

#[test]
fn searches_that_wait_share_a_launch() {
    let mut bed = Bed::new(Metric::L2);
    bed.fill(0..500);
    assert!(bed.compare(5, None));
    let wires = bed.wires.clone();
    let gate: MutexGuard<'_, ()> = wires.gate.lock().unwrap();
    let before = bed.count(|wires| &wires.searches);
    let requests: Vec<SearchRequest> = (0..21).map(|_| bed.request(10, None)).collect();
    let on_thread = |request: SearchRequest| {
        let (lane, handle) = (bed.lane.clone(), bed.handle.clone());
        std::thread::spawn(move || block_on(lane.search(handle, request, NOW_MS)))
    };
    let first = on_thread(requests[0].clone());
    while bed.count(|wires| &wires.searches) == before {
        std::thread::sleep(Duration::from_millis(1));
    }
    let rest: Vec<_> = requests[1..]
        .iter()
        .map(|request| bed.lane.search(bed.handle.clone(), request.clone(), NOW_MS))
        .collect();
    // Polled once each they are in the queue; then the device goes on.
    let mut gate = Some(gate);
    let all = async {
        let mut rest: Vec<_> = rest.into_iter().map(Box::pin).collect();
        for search in &mut rest {
            assert!(poll_once(search.as_mut()).await.is_none());
        }
        gate.take();
        let mut found = Vec::new();
        for search in rest {
            found.push(search.await);
        }
        found
    };
    let found = block_on(all);
    let found = std::iter::once(first.join().unwrap()).chain(found);
    for (request, found) in requests.iter().zip(found) {
        assert_eq!(found.unwrap().unwrap(), bed.exactly(request));
    }
    assert_eq!(bed.count(|wires| &wires.searches) - before, 2);
}

#[test]
fn without_a_device_the_cores_answer() {
    let mut bed = Bed::new(Metric::L2);
    assert_eq!(block_on(bed.lane.try_open(3, Metric::L2)), Ok(()));
    // The seat is free again when the lane has ended.
    let none = Lane::new(Devices::default(), bed.domain.clone(), Account::new(u64::MAX));
    drop(std::mem::replace(&mut bed.lane, Arc::new(none)));
    assert_eq!(block_on(bed.lane.try_open(3, Metric::L2)), Err(DeviceError::NotCompiled));
    bed.fill(0..10);
    assert!(!bed.compare(3, None));
}

/// Slots are given up and used again by other points while the device is asked. A copy that lagged would show: every point has a
/// distance of its own, which it keeps.
#[test]
fn searches_beside_a_writer_see_every_point_once() {
    let bed = Bed::new(Metric::L2);
    let Bed { lane, mut writer, handle, .. } = bed;
    let (points, stop, written) = (200, AtomicUsize::new(0), AtomicUsize::new(0));
    let vector = |id: u64, turn: usize| {
        let mut vector = [0.0; DIM];
        vector[turn % DIM] = 1.0 + id as f32;
        vector
    };
    let put = |writer: &mut DenseWriter, id: u64, turn: usize| {
        let (seq, vector) = (writer.seq() + 1, vector(id, turn));
        writer.apply(Write { seq, id, version: 1, parts: Parts::Only(&vector), row: &[], deadline_ms: 0 });
    };
    (0..points).for_each(|id| put(&mut writer, id, 0));
    std::thread::scope(|scope| {
        let (stop, written, writer) = (&stop, &written, &mut writer);
        let writing = scope.spawn(move || {
            let mut random = Random(99);
            for turn in 0.. {
                put(writer, random.below(points), turn);
                written.store(turn, SeqCst);
                if turn % 16 == 0 {
                    writer.reclaim();
                }
                if stop.load(SeqCst) > 0 {
                    return;
                }
            }
        });
        let request = SearchRequest { vector: vec![0.0; DIM], k: 50, filter: None, with_rows: false };
        // Until the writer has had its turn as well, however busy the machine is.
        let goes_on = |&round: &u32| round < 300 || (written.load(SeqCst) < 1_000 && !writing.is_finished());
        for round in (0..).take_while(goes_on) {
            let outcome = block_on(lane.search(handle.clone(), request.clone(), NOW_MS));
            let found = outcome.expect("no ties").unwrap();
            let expected = |(rank, found): (usize, &FoundPoint)| {
                found.id == rank as u64 && found.distance == (1.0 + rank as f32).powi(2)
            };
            let right = found.len() == 50 && found.iter().enumerate().all(expected);
            if !right {
                stop.store(1, SeqCst);
            }
            assert!(right, "round {round}: {found:?}");
        }
        stop.store(1, SeqCst);
    });
    assert!(writer.seq() > points, "nothing was written meanwhile");
    let slots = writer.shared().stats().slots;
    assert!(slots < writer.seq(), "no slot was used again: {slots} slots, {} writes", writer.seq());
}
