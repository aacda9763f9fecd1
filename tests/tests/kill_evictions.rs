//! Keys beyond what the budget holds, with kill -9 at random moments: a key may be gone at any time, but one that is there has its last
//! acknowledged value, and one that is gone stays so until it is set again, whatever happens.
//!
//! 8 rounds, 100 with `NIGH_TEST_LONG=1`; `NIGH_TEST_SEED` replays a failure's choices (not its timing).
use nigh_tests::{Args, Server, SplitMix, Wire, frame, long, test_seed};
use std::collections::BTreeMap;
use std::time::Duration;

const BUDGET_MIB: u64 = 16;
const WRITERS: u64 = 3;
/// Some 3.3 KB each: 30 MB in all, nearly twice the budget.
const KEYS_PER_WRITER: u64 = 3_000;
/// Reads sent together.
const PIPELINE: u64 = 50;

/// What may be found under a key.
#[derive(Clone, Debug, PartialEq)]
enum Known {
    /// This value, or nothing.
    Maybe(Vec<u8>),
    /// Nothing. What displaced the value may not be durable yet, and a crash may bring it back.
    Unsettled(Vec<u8>),
}

type State = BTreeMap<u64, Known>;

/// A number and a length say all of a value.
fn value(random: &mut SplitMix) -> Vec<u8> {
    let length = 8 + random.below(115) * random.below(115);
    let mut value = vec![random.next() as u8; length as usize];
    value[..8].copy_from_slice(&random.next().to_le_bytes());
    value
}

fn key_of(n: u64) -> Vec<u8> {
    format!("key-{n}").into_bytes()
}

struct Writer {
    wire: Wire,
    first: u64,
    random: SplitMix,
    state: State,
    /// One core has one log: what it had done before an acknowledged change is durable with that.
    is_one_log: bool,
    /// Keys found missing.
    unsettled: Vec<u64>,
    acknowledged: u64,
    missing: u64,
}

/// One request under way.
enum Asked {
    Get(u64),
    Put(u64, Vec<u8>),
    Del(u64),
}

/// What was not answered, in order.
type Pending = Vec<(u64, Option<Vec<u8>>)>;

impl Writer {
    fn run(mut self) -> (Writer, Pending) {
        loop {
            let (mut bytes, mut asked) = (Vec::new(), Vec::new());
            let (before, acknowledged_before) = (std::mem::take(&mut self.unsettled), self.acknowledged);
            for _ in 0..=self.random.below(16) {
                let n = self.first + self.random.below(KEYS_PER_WRITER);
                let key = Args::new().s16(key_of(n));
                match self.random.below(20) {
                    0..8 => {
                        bytes.extend(frame("get", &key.0));
                        asked.push(Asked::Get(n));
                    }
                    8 => {
                        bytes.extend(frame("del", &key.0));
                        asked.push(Asked::Del(n));
                    }
                    _ => {
                        let value = value(&mut self.random);
                        bytes.extend(frame("put", &key.s32(&value).u64(0).0));
                        asked.push(Asked::Put(n, value));
                    }
                }
            }
            let sent = std::io::Write::write_all(&mut self.wire.stream, &bytes).is_ok();
            let mut asked = asked.into_iter();
            while let Some(next) = asked.next() {
                let raw = if sent { self.wire.raw().ok() } else { None };
                let Some(raw) = raw else {
                    let pending = std::iter::once(next).chain(asked).filter_map(|asked| match asked {
                        Asked::Get(_) => None,
                        Asked::Put(n, value) => Some((n, Some(value))),
                        Asked::Del(n) => Some((n, None)),
                    });
                    let pending = pending.collect();
                    return (self, pending);
                };
                self.answered(next, raw[4], &raw[9..]);
            }
            if !self.is_one_log || self.acknowledged == acknowledged_before {
                self.unsettled.extend(before);
                continue;
            }
            for n in before {
                if let Some(Known::Unsettled(_)) = self.state.get(&n) {
                    self.state.remove(&n);
                }
            }
        }
    }

    fn answered(&mut self, asked: Asked, status: u8, payload: &[u8]) {
        match asked {
            Asked::Get(n) => match (status, self.state.get_mut(&n)) {
                (0, Some(Known::Maybe(value))) => assert!(payload == value, "key {n} has an older value"),
                (0, known) => panic!("key {n} has come back: {} bytes, known {known:?}", payload.len()),
                (1, known) => {
                    self.missing += 1;
                    if let Some(known) = known
                        && let Known::Maybe(value) = known
                    {
                        *known = Known::Unsettled(std::mem::take(value));
                        self.unsettled.push(n);
                    }
                }
                (status, _) => panic!("key {n}: status {status}: {}", String::from_utf8_lossy(payload)),
            },
            Asked::Put(n, value) => {
                assert_eq!(
                    status,
                    0,
                    "a put never fails for lack of room: {}",
                    String::from_utf8_lossy(payload)
                );
                self.state.insert(n, Known::Maybe(value));
                self.acknowledged += 1;
            }
            Asked::Del(n) => {
                assert_eq!(status, 0, "{}", String::from_utf8_lossy(payload));
                let known = self.state.remove(&n);
                assert!(
                    payload == [0] || matches!(known, Some(Known::Maybe(_))),
                    "key {n} was deleted twice, or had come back: known {known:?}"
                );
                self.acknowledged += 1;
            }
        }
    }
}

/// Looks at all keys of a server that has just started, at rest.
fn check(server: &Server, all: &mut [(State, Pending)], round: u64) -> u64 {
    let mut wire = server.tcp();
    let mut there = 0;
    for (writer, (state, pending)) in all.iter_mut().enumerate() {
        let first = writer as u64 * KEYS_PER_WRITER;
        for n in first..first + KEYS_PER_WRITER {
            if (n - first).is_multiple_of(PIPELINE) {
                let get = |n| frame("get", &Args::new().s16(key_of(n)).0);
                wire.send((n..n + PIPELINE).flat_map(get).collect::<Vec<u8>>());
            }
            let response = wire.response();
            let found = if response.status == 1 { None } else { Some(response.ok()) };
            let Some(found) = found else {
                state.remove(&n);
                continue;
            };
            there += 1;
            let known = state.get(&n).map(|(Known::Maybe(value) | Known::Unsettled(value))| value);
            let may_be =
                pending.iter().filter(|(pending, _)| *pending == n).filter_map(|(_, value)| value.as_ref());
            let is_possible = known.into_iter().chain(may_be).any(|possible| *possible == found);
            assert!(is_possible, "round {round}: key {n} has {} bytes that it cannot have", found.len());
            state.insert(n, Known::Maybe(found));
        }
        pending.clear();
    }
    there
}

fn evicted_alive(server: &Server) -> u64 {
    let page = String::from_utf8(server.tcp().ask("__kv_metrics__", []).ok()).expect("text");
    let line = page.lines().find_map(|line| line.strip_prefix("svc_kv_evictions_live_total "));
    line.and_then(|count| count.parse().ok()).expect("the page tells of evictions")
}

#[test]
fn what_is_evicted_stays_away_and_what_is_there_is_the_newest_over_kill_9() {
    let rounds = if long() { 100 } else { 8 };
    let seed = test_seed(11, rounds);
    let data = tempfile::tempdir().expect("a temporary directory");
    let config = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(config.path(), format!(r#"{{"cache":{{"max_memory":"{BUDGET_MIB}MiB"}}}}"#))
        .expect("written");
    let path = config.path().to_str().expect("a plain path");
    let mut random = SplitMix(seed);
    let mut all = vec![(State::new(), Pending::new()); WRITERS as usize];
    let (mut acknowledged, mut missing, mut evicted) = (0, 0, 0);
    for round in 0..rounds {
        let cores = ["1", "2"][random.below(2) as usize];
        let shards = ["1", "4", "8"][random.below(3) as usize];
        let relocating =
            ["-relocating-eviction=true", "-relocating-eviction=false"][random.below(2) as usize];
        let visited = ["-sieve-visited-bit=true", "-sieve-visited-bit=false"][random.below(2) as usize];
        let in_place = ["-in-place-same-size-update=true", "-in-place-same-size-update=false"];
        let in_place = in_place[random.below(2) as usize];
        let flags = [
            "-config",
            path,
            "-cores",
            cores,
            "-shards",
            shards,
            relocating,
            visited,
            in_place,
            "-tcp",
            "127.0.0.1:0",
        ];
        let server = Server::start(Some(data.path()), &flags);
        check(&server, &mut all, round);
        let lifetime = Duration::from_millis(200 + random.below(1_500));
        let writers: Vec<_> = all
            .iter()
            .enumerate()
            .map(|(index, (state, _))| {
                let writer = Writer {
                    wire: server.tcp(),
                    first: index as u64 * KEYS_PER_WRITER,
                    random: SplitMix(random.next()),
                    state: state.clone(),
                    is_one_log: cores == "1",
                    unsettled: Vec::new(),
                    acknowledged: 0,
                    missing: 0,
                };
                std::thread::spawn(move || writer.run())
            })
            .collect();
        std::thread::sleep(lifetime);
        evicted += evicted_alive(&server);
        server.kill();
        for (known, writer) in all.iter_mut().zip(writers) {
            let (writer, pending) = writer.join().expect("a writer saw a wrong answer");
            acknowledged += writer.acknowledged;
            missing += writer.missing;
            *known = (writer.state, pending);
        }
    }
    let server = Server::start(Some(data.path()), &["-config", path, "-tcp", "127.0.0.1:0", "-shards", "4"]);
    let there = check(&server, &mut all, rounds);
    println!(
        "{acknowledged} acknowledged changes, {evicted} evicted alive, {missing} found missing, {there} there at the end"
    );
    assert!(evicted > 1_000 && missing > 1_000, "the budget was never short");
    assert!(there > 1_000, "next to nothing was kept");
    let (status, log) = server.stop();
    assert!(status.success(), "{status}: {log}");
}
