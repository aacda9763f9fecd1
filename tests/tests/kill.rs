//! kill -9 at random moments under mixed writes: what was acknowledged is there with its version and payload and is found
//! by search, what was refused is not, and what was under way is there whole or not at all.
//!
//! 30 rounds, 200 with `NIGH_TEST_LONG=1`; `NIGH_TEST_SEED` replays a failure's choices (not its timing).
use nigh_tests::{Api, Server, SplitMix, long, test_seed};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const DIM: usize = 16;
const WRITERS: u64 = 4;
const IDS_PER_WRITER: u64 = 250;
const COLLECTION: &str = "/v1/collections/kill";
/// Fillers of payloads are shorter than 2 to one of so many powers from 5 on: 5 KiB on average, 64 KiB at most, so that log
/// segments fill and checkpoints happen between kills.
const PAD_POWERS: u64 = 12;

/// A stored point as its writer knows it. The tag names the write: vector and payload follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stored {
    version: u64,
    tag: u64,
}

/// What one writer knows about its ids.
#[derive(Clone, Debug, Default)]
struct Known {
    live: BTreeMap<u64, Stored>,
    /// The last version of every id that was there, deleted ones too: it is never given again.
    given: BTreeMap<u64, u64>,
    /// Ids of the write without an answer, with the state it would have led to.
    pending: Vec<(u64, Option<Stored>)>,
}

impl Known {
    fn insert(&mut self, id: u64, stored: Stored) {
        self.given.insert(id, stored.version);
        self.live.insert(id, stored);
    }

    fn next_version(&self, id: u64) -> u64 {
        self.given.get(&id).map_or(1, |version| version + 1)
    }
}

fn vector_of(tag: u64) -> Vec<f32> {
    SplitMix(tag).vector(DIM)
}

fn payload_of(tag: u64) -> Value {
    let mut random = SplitMix(tag ^ 0xabcd);
    let bound = 1 << (5 + random.below(PAD_POWERS));
    let pad = "x".repeat(1 + random.below(bound) as usize);
    json!({"tag": {"kind": "int", "int": tag}, "pad": {"kind": "string", "str": pad}})
}

fn point(id: u64, tag: u64) -> Value {
    json!({"id": id, "vector": vector_of(tag), "metadata": payload_of(tag)})
}

/// An `RVB1` body with payloads.
fn binary_batch(points: &[(u64, u64)], upsert: bool) -> Vec<u8> {
    let mut body = b"RVB1".to_vec();
    for word in [1 | u32::from(upsert) << 1, points.len() as u32, DIM as u32] {
        body.extend(word.to_be_bytes());
    }
    for (id, tag) in points {
        body.extend(id.to_be_bytes());
        body.extend(vector_of(*tag).iter().flat_map(|value| value.to_be_bytes()));
    }
    for (_, tag) in points {
        let payload = payload_of(*tag).to_string();
        body.extend((payload.len() as u32).to_be_bytes());
        body.extend(payload.as_bytes());
    }
    body
}

/// One writer's connection and knowledge during a round.
struct Writer {
    api: Api,
    first_id: u64,
    random: SplitMix,
    known: Known,
    acknowledged: u64,
}

impl Writer {
    fn some_id(&mut self) -> u64 {
        self.first_id + self.random.below(IDS_PER_WRITER)
    }

    fn tag(&mut self) -> u64 {
        // Tags travel as signed integers.
        self.random.next() >> 1
    }

    fn after_upsert(&self, id: u64, tag: u64) -> Stored {
        Stored { version: self.known.next_version(id), tag }
    }

    /// Writes until the connection breaks.
    fn run(mut self) -> (Known, u64) {
        while self.step().is_ok() {
            self.known.pending.clear();
            self.acknowledged += 1;
        }
        (self.known, self.acknowledged)
    }

    /// One operation. An error is a broken connection; `pending` then says what may have happened.
    fn step(&mut self) -> std::io::Result<()> {
        let id = self.some_id();
        match self.random.below(10) {
            0..3 => self.upsert(id),
            3..5 => self.insert(id),
            5 => self.delete(id),
            6 => self.conditional(id),
            7 => self.refused(id),
            8 => self.batch(),
            _ => self.read_back(id),
        }
    }

    fn upsert(&mut self, id: u64) -> std::io::Result<()> {
        let tag = self.tag();
        let after = self.after_upsert(id, tag);
        let mut body = point(id, tag);
        body["upsert"] = json!(true);
        self.known.pending = vec![(id, Some(after))];
        let reply = self.api.send("POST", &format!("{COLLECTION}/points"), &body)?;
        assert_eq!(reply.status, 200, "{}", reply.body);
        self.known.insert(id, after);
        Ok(())
    }

    fn insert(&mut self, id: u64) -> std::io::Result<()> {
        let tag = self.tag();
        let is_live = self.known.live.contains_key(&id);
        let after = Stored { version: self.known.next_version(id), tag };
        self.known.pending = if is_live { vec![] } else { vec![(id, Some(after))] };
        let reply = self.api.send("POST", &format!("{COLLECTION}/points"), &point(id, tag))?;
        assert_eq!(reply.status, if is_live { 409 } else { 200 }, "{}", reply.body);
        if !is_live {
            self.known.insert(id, after);
        }
        Ok(())
    }

    fn delete(&mut self, id: u64) -> std::io::Result<()> {
        self.known.pending = vec![(id, None)];
        let reply = self.api.send("DELETE", &format!("{COLLECTION}/points/{id}"), &Value::Null)?;
        let was_live = self.known.live.remove(&id).is_some();
        assert_eq!((reply.status, &reply.body["deleted"]), (200, &json!(was_live)), "{}", reply.body);
        Ok(())
    }

    /// An upsert under the right version succeeds, under a wrong one it changes nothing.
    fn conditional(&mut self, id: u64) -> std::io::Result<()> {
        let tag = self.tag();
        let version = self.known.live.get(&id).map_or(0, |stored| stored.version);
        let is_right = self.random.below(2) == 0;
        let after = self.after_upsert(id, tag);
        let mut body = point(id, tag);
        body["upsert"] = json!(true);
        body["expected_version"] = json!(if is_right { version } else { version + 7 });
        self.known.pending = if is_right { vec![(id, Some(after))] } else { vec![] };
        let reply = self.api.send("POST", &format!("{COLLECTION}/points"), &body)?;
        assert_eq!(reply.status, if is_right { 200 } else { 409 }, "{}", reply.body);
        if is_right {
            self.known.insert(id, after);
        }
        Ok(())
    }

    /// A write of the wrong dimension changes nothing, whether the id is live or not.
    fn refused(&mut self, id: u64) -> std::io::Result<()> {
        self.known.pending.clear();
        let body = json!({"id": id, "vector": [1.0, 2.0], "upsert": true});
        let reply = self.api.send("POST", &format!("{COLLECTION}/points"), &body)?;
        assert_eq!(reply.status, 400, "{}", reply.body);
        Ok(())
    }

    /// Several ids at once, as JSON or binary, upserts or inserts; an insert batch ends at the first live id.
    fn batch(&mut self) -> std::io::Result<()> {
        let upsert = self.random.below(2) == 0;
        let mut points: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..self.random.below(20) + 1 {
            let (id, tag) = (self.some_id(), self.tag());
            points.insert(id, tag);
        }
        let points: Vec<(u64, u64)> = points.into_iter().collect();
        let stops_at = match upsert {
            true => None,
            false => points.iter().position(|(id, _)| self.known.live.contains_key(id)),
        };
        let applied = &points[..stops_at.unwrap_or(points.len())];
        let after: Vec<_> = applied.iter().map(|&(id, tag)| (id, Some(self.after_upsert(id, tag)))).collect();
        self.known.pending = after.clone();
        let path = format!("{COLLECTION}/points/batch");
        let reply = if self.random.below(2) == 0 {
            let list: Vec<Value> = points.iter().map(|&(id, tag)| point(id, tag)).collect();
            self.api.send("POST", &path, &json!({"upsert": upsert, "points": list}))?
        } else {
            self.api.send_bytes("POST", &path, "application/octet-stream", &binary_batch(&points, upsert))?
        };
        match stops_at {
            None => assert_eq!(
                (reply.status, &reply.body["count"]),
                (200, &json!(points.len())),
                "{}",
                reply.body
            ),
            Some(at) => {
                assert_eq!((reply.status, &reply.body["committed"]), (409, &json!(at)), "{}", reply.body)
            }
        }
        for (id, stored) in after.into_iter().filter_map(|(id, stored)| Some((id, stored?))) {
            self.known.insert(id, stored);
        }
        Ok(())
    }

    /// A connection reads its own writes.
    fn read_back(&mut self, id: u64) -> std::io::Result<()> {
        self.known.pending.clear();
        let reply =
            self.api.send("GET", &format!("{COLLECTION}/points/{id}?with_vector=false"), &Value::Null)?;
        match self.known.live.get(&id) {
            None => assert_eq!(reply.status, 404, "{id}: {}", reply.body),
            Some(stored) => {
                assert_eq!(reply.status, 200, "{id}: {}", reply.body);
                assert_eq!(read(&reply.body), *stored, "id {id}");
            }
        }
        Ok(())
    }
}

/// Version and tag of an answered point.
fn read(body: &Value) -> Stored {
    Stored {
        version: body["version"].as_u64().expect("a version"),
        tag: body["payload"]["tag"]["int"].as_u64().expect("a tag"),
    }
}

/// Compares the server with what the writers know, and settles what was pending.
fn check(server: &Server, all: &mut [Known], round: u64) {
    let mut api = server.api();
    let ids: Vec<u64> = (0..WRITERS * IDS_PER_WRITER).collect();
    let answer = api.ok("POST", &format!("{COLLECTION}/points/batch-get"), json!({"ids": ids}));
    let found: BTreeMap<u64, Stored> = answer["points"]
        .as_array()
        .expect("points")
        .iter()
        .map(|point| {
            let (id, stored) = (point["id"].as_u64().expect("an id"), read(point));
            let expected = vector_of(stored.tag);
            let vector = point["vector"].as_array().expect("a vector");
            let same = |(found, expected): (&Value, &f32)| {
                found.as_f64().map(|found| found as f32) == Some(*expected)
            };
            let same = vector.iter().zip(&expected).all(same);
            assert!(same && vector.len() == DIM, "round {round}: id {id} has another write's vector");
            assert_eq!(
                point["payload"],
                payload_of(stored.tag),
                "round {round}: id {id} has a damaged payload"
            );
            (id, stored)
        })
        .collect();
    for id in ids {
        let known = &mut all[(id / IDS_PER_WRITER) as usize];
        let acknowledged = known.live.get(&id).copied();
        let pending = known.pending.iter().find(|(pending, _)| *pending == id).map(|(_, after)| *after);
        let found = found.get(&id).copied();
        assert!(
            found == acknowledged || Some(found) == pending,
            "round {round}: id {id} is {found:?}, acknowledged {acknowledged:?}, under way {pending:?}"
        );
        match found {
            Some(stored) => known.insert(id, stored),
            None => _ = known.live.remove(&id),
        };
    }
    // A batch that was under way is there up to some point, in order.
    for known in all.iter_mut() {
        let stored: Vec<bool> =
            known.pending.iter().map(|(id, after)| known.live.get(id).copied() == *after).collect();
        assert!(stored.is_sorted_by(|a, b| a >= b), "round {round}: a batch with holes: {stored:?}");
        known.pending.clear();
    }
    let live: BTreeSet<u64> = all.iter().flat_map(|known| known.live.keys().copied()).collect();
    let page = api.ok("POST", &format!("{COLLECTION}/points/scroll"), json!({"limit": 0}));
    let listed: Vec<u64> =
        page["documents"].as_array().expect("documents").iter().filter_map(|d| d["id"].as_u64()).collect();
    assert!(
        listed.iter().eq(live.iter()),
        "round {round}: scroll lists {} ids, {} are live",
        listed.len(),
        live.len()
    );
    std::thread::scope(|scope| {
        for known in all.iter() {
            scope.spawn(|| check_found(server.api(), known, round));
        }
    });
}

/// Every live point is the nearest to its own vector.
fn check_found(mut api: Api, known: &Known, round: u64) {
    for (id, stored) in &known.live {
        let body = json!({"query": vector_of(stored.tag), "k": 1});
        let answer = api.ok("POST", &format!("{COLLECTION}/points/search/docs"), body);
        let hit = &answer["documents"][0];
        assert_eq!(
            (hit["id"].as_u64(), hit["metadata"]["tag"]["int"].as_u64()),
            (Some(*id), Some(stored.tag)),
            "round {round}: id {id} is not found by its own vector: {answer}"
        );
    }
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    survives_kills(&json!({"dim": DIM, "metric": "l2"}), if long() { 200 } else { 30 });
}

/// Its vectors lie in a mapped file, which no image repeats.
#[test]
fn acknowledged_writes_of_a_persistent_collection_survive_kill_9() {
    let config = json!({"dim": DIM, "metric": "l2", "quant": "sq8", "persistent": true});
    survives_kills(&config, if long() { 200 } else { 10 });
}

fn survives_kills(config: &Value, rounds: u64) {
    let seed = test_seed(7, rounds);
    let data = tempfile::tempdir().expect("a temporary directory");
    let mut random = SplitMix(seed);
    let mut all = vec![Known::default(); WRITERS as usize];
    let mut acknowledged = 0;
    for round in 0..rounds {
        let cores = ["1", "2"][random.below(2) as usize];
        let shards = ["1", "16", "256"][random.below(3) as usize];
        let flags = ["-cores", cores, "-shards", shards];
        // Recovery is killed as well: it must leave nothing behind that the next one trips over.
        if round > 0 && random.below(3) == 0 {
            Server::kill_while_starting(data.path(), &flags, Duration::from_micros(random.below(150_000)));
        }
        let server = Server::start(Some(data.path()), &flags);
        if round == 0 {
            server.api().ok("POST", "/v1/collections", json!({"name": "kill", "config": config}));
        }
        check(&server, &mut all, round);
        let seeds: Vec<u64> = (0..WRITERS).map(|_| random.next()).collect();
        // Some kills come in the first milliseconds, most while logs and checkpoints are busy.
        let magnitude = 12 + random.below(9);
        let lifetime = Duration::from_micros(random.below(1 << magnitude));
        let writers: Vec<_> = all
            .iter()
            .zip(seeds)
            .enumerate()
            .map(|(index, (known, seed))| {
                let first_id = index as u64 * IDS_PER_WRITER;
                let (api, known, random) = (server.api(), known.clone(), SplitMix(seed));
                let writer = Writer { api, first_id, random, known, acknowledged: 0 };
                std::thread::spawn(move || writer.run())
            })
            .collect();
        std::thread::sleep(lifetime);
        server.kill();
        for (known, writer) in all.iter_mut().zip(writers) {
            let (after, count) = writer.join().expect("a writer saw a wrong answer");
            *known = after;
            acknowledged += count;
        }
    }
    let server = Server::start(Some(data.path()), &[]);
    check(&server, &mut all, rounds);
    let live: usize = all.iter().map(|known| known.live.len()).sum();
    println!("{acknowledged} acknowledged operations, {live} points live");
    assert!(acknowledged > rounds && live > 0, "the test wrote nothing worth killing");
    let (status, log) = server.stop();
    assert!(status.success(), "{status}: {log}");
}
