//! kill -9 at random moments under writes of keys over the binary protocol, with other numbers of cores and shards in each life: what was
//! acknowledged is there, nothing older comes back, and what was under way is there whole or not at all.
//!
//! 12 rounds, 100 with `NIGH_TEST_LONG=1`; `NIGH_TEST_SEED` replays a failure's choices (not its timing).
use nigh_tests::{Args, Server, SplitMix, Wire, frame, long, test_seed};
use std::collections::BTreeMap;
use std::time::Duration;

const WRITERS: u64 = 4;
const KEYS_PER_WRITER: u64 = 300;

/// What one writer knows: acknowledged values, and of requests without an answer what they may have led to, in order.
#[derive(Clone, Debug, Default)]
struct Known {
    live: BTreeMap<u64, Vec<u8>>,
    pending: Vec<(u64, Option<Vec<u8>>)>,
}

fn key_of(n: u64) -> Vec<u8> {
    format!("key-{n}").into_bytes()
}

struct Writer {
    wire: Wire,
    first: u64,
    random: SplitMix,
    known: Known,
    acknowledged: u64,
}

impl Writer {
    /// Sends pipelines of up to 16 requests until the connection breaks.
    fn run(mut self) -> (Known, u64) {
        loop {
            let (mut bytes, mut expected) = (Vec::new(), Vec::new());
            let mut after = self.known.live.clone();
            for _ in 0..=self.random.below(16) {
                let n = self.first + self.random.below(KEYS_PER_WRITER);
                let key = Args::new().s16(key_of(n));
                let length = [0, 8, 100, 3_000, 60_000]
                    [(self.random.below(100) * self.random.below(100) / 2_000) as usize];
                let value = vec![self.random.next() as u8; length];
                let (operation, args, payload) = match self.random.below(6) {
                    0 => {
                        let gone = after.remove(&n);
                        ("del", key, vec![u8::from(gone.is_some())])
                    }
                    1 => {
                        let old = after.insert(n, value.clone());
                        let payload = match old {
                            Some(old) => Args::new().u8(1).s32(old).0,
                            None => vec![0],
                        };
                        ("getset", key.s32(&value).u64(0), payload)
                    }
                    2 => {
                        let stored = !after.contains_key(&n);
                        if stored {
                            after.insert(n, value.clone());
                        }
                        ("set_nx", key.s32(&value).u64(86_400_000), vec![u8::from(stored)])
                    }
                    _ => {
                        after.insert(n, value.clone());
                        ("put", key.s32(&value).u64(0), vec![])
                    }
                };
                self.known.pending.push((n, after.get(&n).cloned()));
                bytes.extend(frame(operation, &args.0));
                expected.push(payload);
            }
            if std::io::Write::write_all(&mut self.wire.stream, &bytes).is_err() {
                return (self.known, self.acknowledged);
            }
            for payload in expected {
                let Ok(raw) = self.wire.raw() else { return (self.known, self.acknowledged) };
                assert_eq!((raw[4], &raw[9..]), (0, &payload[..]));
                let (n, value) = self.known.pending.remove(0);
                match value {
                    Some(value) => self.known.live.insert(n, value),
                    None => self.known.live.remove(&n),
                };
                self.acknowledged += 1;
            }
        }
    }
}

/// Compares the server with what the writers know, and settles what was pending: of a pipeline some beginning happened on each core.
fn check(server: &Server, all: &mut [Known], round: u64) {
    let mut wire = server.tcp();
    for (writer, known) in all.iter_mut().enumerate() {
        let first = writer as u64 * KEYS_PER_WRITER;
        for n in first..first + KEYS_PER_WRITER {
            let response = wire.ask("get", &Args::new().s16(key_of(n)).0);
            let found = match response.status {
                1 => None,
                _ => Some(response.ok()),
            };
            let acknowledged = known.live.get(&n).cloned();
            let may_be =
                known.pending.iter().filter(|(pending, _)| *pending == n).map(|(_, value)| value.clone());
            let possible: Vec<Option<Vec<u8>>> = std::iter::once(acknowledged).chain(may_be).collect();
            let shown =
                |value: &Option<Vec<u8>>| value.as_ref().map(|value| (value.len(), value.first().copied()));
            assert!(
                possible.contains(&found),
                "round {round}: key {n} is {:?}, possible {:?}",
                shown(&found),
                possible.iter().map(shown).collect::<Vec<_>>()
            );
            match found {
                Some(value) => known.live.insert(n, value),
                None => known.live.remove(&n),
            };
        }
        known.pending.clear();
    }
}

#[test]
fn acknowledged_keys_survive_kill_9() {
    let rounds = if long() { 100 } else { 12 };
    let seed = test_seed(7, rounds);
    let data = tempfile::tempdir().expect("a temporary directory");
    let mut random = SplitMix(seed);
    let mut all = vec![Known::default(); WRITERS as usize];
    let mut acknowledged = 0;
    for round in 0..rounds {
        let cores = ["1", "2"][random.below(2) as usize];
        let shards = ["1", "16", "256"][random.below(3) as usize];
        let flags = ["-cores", cores, "-shards", shards, "-tcp", "127.0.0.1:0"];
        if round > 0 && random.below(3) == 0 {
            Server::kill_while_starting(data.path(), &flags, Duration::from_micros(random.below(150_000)));
        }
        let server = Server::start(Some(data.path()), &flags);
        check(&server, &mut all, round);
        let magnitude = 14 + random.below(8);
        let lifetime = Duration::from_micros(random.below(1 << magnitude));
        let writers: Vec<_> = all
            .iter()
            .enumerate()
            .map(|(index, known)| {
                let first = index as u64 * KEYS_PER_WRITER;
                let (wire, known, random) = (server.tcp(), known.clone(), SplitMix(random.next()));
                let writer = Writer { wire, first, random, known, acknowledged: 0 };
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
    let server = Server::start(Some(data.path()), &["-tcp", "127.0.0.1:0"]);
    check(&server, &mut all, rounds);
    // A flush is as durable as anything else.
    server.tcp().ask("flush", []).ok();
    server.kill();
    let server = Server::start(Some(data.path()), &["-shards", "4", "-tcp", "127.0.0.1:0"]);
    check(&server, &mut vec![Known::default(); WRITERS as usize], rounds);
    println!("{acknowledged} acknowledged operations");
    assert!(acknowledged > rounds, "the test wrote nothing worth killing");
    let (status, log) = server.stop();
    assert!(status.success(), "{status}: {log}");
}
