//! kill -9 at random moments while writers of all families write over all transports: every acknowledged write is there with its version,
//! and one without an answer is there whole or not at all - all spaces of a point, all tokens of a document, its payload and its version.
//!
//! `kill` does the same to one dense collection over REST with payloads that make logs and checkpoints turn over.
use super::draws::{Draws, IDS};
use super::model::{Collection, Family, Point, Twin};
use super::transports::{FLAGS, NAMES, Transport};
use super::{Run, any};
use nigh_tests::{Server, SplitMix, long, test_seed};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Writers of each collection, each with ids of its own.
const WRITERS: u64 = 2;
const FAMILIES: u64 = 3;

/// What one writer knows about its ids.
struct Writer {
    of: Collection,
    transport: Box<dyn Transport + Send>,
    draws: Draws,
    /// The place of the first of its ids.
    first: u64,
    twin: Twin,
    /// Ids of the write without an answer, with the point that it would have led to.
    pending: BTreeMap<u64, Option<Point>>,
    acknowledged: u64,
}

impl Writer {
    fn id(&mut self) -> u64 {
        self.of.id(self.first + self.draws.below(IDS / WRITERS))
    }

    /// Writes until the connection breaks.
    fn run(mut self) -> Writer {
        while self.step().is_ok() {
            for (id, point) in std::mem::take(&mut self.pending) {
                settle(&mut self.twin, id, point);
            }
            self.acknowledged += 1;
        }
        self
    }

    /// One write. An error is a broken connection; `pending` then says what may have happened.
    fn step(&mut self) -> std::io::Result<()> {
        let id = self.id();
        let now = Instant::now();
        let told = match self.draws.below(8) {
            0..3 => {
                let mut put = self.draws.lasting(&self.of, id);
                if self.draws.chance(3) {
                    put.expected = Some(self.twin.version(id));
                }
                self.pending = BTreeMap::from([(id, Some(self.twin.after(&self.of, &put, now, now)))]);
                self.transport.put(&self.of, &put)?
            }
            3..6 => {
                let ids: BTreeSet<u64> = (0..1 + self.draws.below(20)).map(|_| self.id()).collect();
                let puts: Vec<_> = ids.iter().map(|id| self.draws.lasting(&self.of, *id)).collect();
                let after = |put| self.twin.after(&self.of, put, now, now);
                self.pending = puts.iter().map(|put| (put.id, Some(after(put)))).collect();
                self.transport.put_many(&self.of, &puts)?
            }
            6 => {
                self.pending = BTreeMap::from([(id, None)]);
                let told = self.transport.delete(&self.of, id, None)?;
                told.map(|deleted| assert_eq!(deleted, self.twin.points.contains_key(&id), "{id}"))
            }
            _ => {
                let change = self.draws.lasting_change(&self.of);
                let changed = self.twin.changed(id, &change, now, now);
                let is_there = changed.is_some();
                self.pending = BTreeMap::from([(id, changed)]);
                let told = self.transport.change(&self.of, id, &change, None)?;
                told.map(|applied| assert_eq!(applied, is_there, "{id} {change:?}"))
            }
        };
        told.unwrap_or_else(|refusal| panic!("{} refuses: {refusal}", self.of.name));
        Ok(())
    }
}

fn settle(twin: &mut Twin, id: u64, point: Option<Point>) {
    match point {
        Some(point) => twin.insert(id, point),
        None => drop(twin.points.remove(&id)),
    }
}

/// What `twin` knows of the ids of one writer, the first of which is at that place.
fn part(of: &Collection, twin: &Twin, first: u64) -> Twin {
    let ids: BTreeSet<u64> = (first..first + IDS / WRITERS).map(|place| of.id(place)).collect();
    let mut part = twin.clone();
    part.points.retain(|id, _| ids.contains(id));
    part.given.retain(|id, _| ids.contains(id));
    part
}

/// Decides of every write without an answer whether it took place, by the versions of points alone; what a point holds is then compared with
/// its twin like everything else.
fn learn(run: &mut Run, index: usize, writers: Vec<Writer>, round: u64) {
    let (of, twin) = &mut run.collections[index];
    let ids: Vec<u64> = (0..IDS).map(|place| of.id(place)).collect();
    let stored = run.transports[0].points(of, &ids);
    (twin.points, twin.given) = Default::default();
    for writer in writers {
        let mut known = writer.twin;
        for (id, point) in writer.pending {
            let found = stored.get(&id).map(|stored| stored.version);
            let may_be =
                [known.points.get(&id), point.as_ref()].map(|point| point.map(|point| point.version));
            let about = format!("round {round}: {} {id} has version {found:?} of {may_be:?}", of.name);
            assert!(may_be.contains(&found), "{about}");
            if found != may_be[0] {
                settle(&mut known, id, point);
            }
        }
        twin.points.append(&mut known.points);
        twin.given.append(&mut known.given);
    }
}

#[test]
fn acknowledged_writes_of_all_families_survive_kill_9() {
    let rounds = if long() { 150 } else { 8 };
    let seed = test_seed(11, rounds);
    let data = tempfile::tempdir().expect("a temporary directory");
    let mut random = SplitMix(seed);
    let mut run: Option<Run> = None;
    let mut acknowledged = BTreeMap::new();
    for round in 0..rounds {
        let cores = ["1", "2"][random.below(2) as usize];
        let shards = ["1", "16", "256"][random.below(3) as usize];
        let flags = [&FLAGS[..], &["-cores", cores, "-shards", shards]].concat();
        // Recovery is killed as well: it must leave nothing behind that the next one trips over.
        if round > 0 && random.below(3) == 0 {
            Server::kill_while_starting(data.path(), &flags, Duration::from_micros(random.below(150_000)));
        }
        let mut server = Server::start(Some(data.path()), &flags);
        let run = run.get_or_insert_with(|| {
            let mut run = Run::new(&server, SplitMix(seed));
            run.create();
            run
        });
        run.connect(&server);
        let mut writers = Vec::new();
        for (of, twin) in &run.collections {
            for writer in 0..WRITERS {
                let first = writer * IDS / WRITERS;
                writers.push(Writer {
                    of: of.clone(),
                    transport: any(&server, &mut random),
                    draws: Draws(SplitMix(random.next())),
                    first,
                    twin: part(of, twin, first),
                    pending: BTreeMap::new(),
                    acknowledged: 0,
                });
            }
        }
        // Some kills come in the first milliseconds, most while everybody writes.
        let magnitude = 12 + random.below(8);
        let lifetime = Duration::from_micros(random.below(1 << magnitude));
        let writers: Vec<_> = writers.into_iter().map(|writer| std::thread::spawn(|| writer.run())).collect();
        std::thread::sleep(lifetime);
        server.kill();
        let mut writers: Vec<Writer> =
            writers.into_iter().map(|writer| writer.join().expect("the writer panicked")).collect();
        server = Server::start(Some(data.path()), &flags);
        run.connect(&server);
        for index in 0..FAMILIES as usize {
            let rest = writers.split_off(WRITERS as usize);
            let of_this = std::mem::replace(&mut writers, rest);
            *acknowledged.entry(run.collections[index].0.name).or_insert(0) +=
                of_this.iter().map(|writer| writer.acknowledged).sum::<u64>();
            learn(run, index, of_this, round);
            run.check_points(index);
            (0..10).for_each(|_| run.search(index));
            run.scroll(index);
            check_sparse(run, index);
        }
        drop(server);
    }
    println!("acknowledged over {NAMES:?}: {acknowledged:?}");
    assert!(acknowledged.values().all(|count| *count > rounds), "{acknowledged:?}: nobody got to write");
}

/// The sparse vectors of documents, which no answer shows: one search for each dimension shows its component of every document.
fn check_sparse(run: &mut Run, index: usize) {
    let (of, twin) = &run.collections[index];
    if of.family != Family::Documents {
        return;
    }
    for at in 0..26 {
        let ask = super::draws::component(of, at);
        let hits = run.transports[at as usize % 3].ask(of, &ask);
        let (figure, all) = twin.answer(of, &ask);
        super::check_hits(&hits, figure, &all, ask.k, &|| format!("dimension {at} of {}", of.name));
    }
}
