//! Queries over keys, page by page, beside a walk over a map; and the indexes they use, over kill -9.

use super::hex;
use nigh_tests::{Access, Args, Response, Server, SplitMix, Wire, frame, in_every_mode};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

in_every_mode!(rows_are_found_by_index_and_by_scan);

const FLAGS: [&str; 6] = ["-cores", "2", "-tcp", "127.0.0.1:0", "-kv-query", super::LOOPS];

fn server(data: Option<&Path>) -> Server {
    Server::start(data, &FLAGS)
}

/// A dynamic record with an unsigned byte `n` and bytes `s`.
fn record(n: u8, s: &str) -> Vec<u8> {
    let s = [&[s.len() as u8], s.as_bytes()].concat();
    [&[2, 2, 1, b'n', 0, n, 1, b's', 12][..], &s].concat()
}

fn put(key: &str, value: &[u8]) -> Args {
    Args::new().s16(key).s32(value).u64(0)
}

/// A definition and whether it is to be kept.
fn index(name: &str, prefix: &str, path: &str, enabled: bool) -> Args {
    let is_count = path.ends_with("#count");
    Args::new().s8(name).s8(prefix).s8(path).u8(is_count.into()).u8(enabled.into())
}

fn int(op: &str, field: &str, value: u8) -> String {
    format!(r#"{{"op":"{op}","field":"{field}","value":{{"kind":"int","int":{value}}}}}"#)
}

#[derive(Clone, Default)]
struct Query<'q> {
    index: &'q str,
    scans: bool,
    filter: Option<&'q str>,
    limit: u16,
    returns: u8,
}

type Rows = Vec<(String, Option<Vec<u8>>)>;

impl Query<'_> {
    fn args(&self, cursor: Option<&[u8]>) -> Args {
        let flags =
            u8::from(self.filter.is_some()) | u8::from(cursor.is_some()) << 1 | u8::from(self.scans) << 2;
        let args = Args::new().u8(flags).s8(self.index).u16(self.limit).u8(self.returns).u8(0);
        let args = match self.filter {
            Some(filter) => args.s32(filter),
            None => args,
        };
        match cursor {
            Some(cursor) => args.s32(cursor),
            None => args,
        }
    }

    fn ask(&self, wire: &mut Wire) -> Response {
        wire.ask("kv_query", self.args(None))
    }

    /// Rows of all pages, and how many those are.
    fn all(&self, wire: &mut Wire) -> (Rows, usize) {
        let (mut rows, mut pages, mut cursor) = (Vec::new(), 0, None);
        loop {
            let response = wire.ask("kv_query", self.args(cursor.as_deref()));
            if response.status != 0 {
                // Behind a flush, for a moment.
                assert!(response.error().ends_with("is being built"), "{cursor:?}");
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let (some, next) = page(&response.ok());
            assert!(some.len() <= usize::from(self.limit));
            rows.extend(some);
            pages += 1;
            match next {
                Some(next) => cursor = Some(next),
                None => return (rows, pages),
            }
        }
    }
}

/// Rows of a page and the cursor behind them.
fn page(bytes: &[u8]) -> (Rows, Option<Vec<u8>>) {
    let mut rest = bytes;
    let mut take = |len: usize| {
        let (taken, after) = rest.split_at(len);
        rest = after;
        taken.to_vec()
    };
    let number = |bytes: Vec<u8>| bytes.iter().fold(0usize, |number, byte| number << 8 | usize::from(*byte));
    let count = number(take(4));
    let mut rows = Vec::new();
    for _ in 0..count {
        let len = number(take(2));
        let key = String::from_utf8(take(len)).expect("keys of these tests are text");
        let value = (take(1)[0] == 1).then(|| {
            let len = number(take(4));
            take(len)
        });
        rows.push((key, value));
    }
    let cursor = rest.to_vec();
    (rows, (cursor != [0, 0, 0]).then_some(cursor))
}

fn keys(rows: &Rows) -> Vec<&str> {
    rows.iter().map(|(key, _)| &key[..]).collect()
}

/// Waits until all indexes are built.
fn wait_ready(wire: &mut Wire, expected: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let listed = wire.ask("__kv_index_list__", Args::new()).ok();
        if listed == hex(expected) {
            return;
        }
        assert!(Instant::now() < until, "{listed:02x?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn rows_are_found_by_index_and_by_scan(access: &Access) {
    let server = access.start(None, &FLAGS);
    let wire = &mut access.tcp(&server);
    assert_eq!(wire.ask("__kv_index_list__", Args::new()).ok(), [0, 0]);
    assert_eq!(wire.ask("__kv_index_set__", index("by.n", "u:", "n", true)).ok(), b"");
    // One piece: what is written before a query is found by it.
    let scan = Query { scans: true, limit: 100, ..Query::default() };
    let mut all = Vec::new();
    for (key, n, s) in [("u:a", 1, "x"), ("u:b", 2, "y"), ("u:c", 2, "x"), ("v:d", 2, "x")] {
        all.extend(wire.with_token(&frame("put", put(key, &record(n, s)).as_ref())));
    }
    all.extend(wire.with_token(&frame("put", put("u:plain", b"plain").as_ref())));
    all.extend(wire.with_token(&frame("kv_query", scan.args(None).as_ref())));
    wire.send(&all);
    for _ in 0..5 {
        wire.response().ok();
    }
    let (rows, cursor) = page(&wire.response().ok());
    assert_eq!(keys(&rows), ["u:a", "u:b", "u:c", "u:plain", "v:d"]);
    assert!(rows.iter().all(|(_, value)| value.is_none()) && cursor.is_none());

    wait_ready(wire, "0001 04 62792e6e 02 753a 01 6e 00 01 01");
    let by_n = Query { index: "by.n", limit: 2, ..Query::default() };
    let (rows, pages) = by_n.all(wire);
    assert_eq!(keys(&rows), ["u:a", "u:b", "u:c", "u:plain"]);
    // An empty one at the end where a core cannot know that there is no more.
    assert!((2..=3).contains(&pages), "{pages}");
    let two = int("eq", "n", 2);
    let (rows, _) = Query { filter: Some(&two), returns: 1, ..by_n }.all(wire);
    assert_eq!(rows, [("u:b".to_owned(), Some(record(2, "y"))), ("u:c".to_owned(), Some(record(2, "x")))]);
    let (rows, _) = Query { returns: 2, ..by_n }.all(wire);
    assert_eq!(keys(&rows), ["u:a", "u:b", "u:c"]);
    let both = format!(r#"{{"op":"and","and":[{two},{{"op":"eq","field":"s","value":"x"}}]}}"#);
    assert_eq!(keys(&Query { filter: Some(&both), ..by_n }.all(wire).0), ["u:c"]);
    assert_eq!(keys(&Query { filter: Some(&both), ..scan }.all(wire).0), ["u:c", "v:d"]);
    // The bytes: a page of one key with more behind it, and the cursor as it is sent back.
    let first = Query { limit: 1, ..by_n };
    assert_eq!(first.ask(wire).ok(), hex("00000001 0003 753a61 00 0001 00 00000000 01 0003 753a61"));
    let next = first.args(Some(&hex("0001 00 00000000 01 0003 753a61")));
    assert_eq!(
        wire.ask("kv_query", next).ok(),
        hex("00000001 0003 753a62 00 0001 00 00000000 01 0003 753a62")
    );
    assert_eq!(wire.ask("kv_query", first.args(Some(&[0, 0, 0]))).ok(), hex("00000000 0000 00"));

    // Changes and expiry.
    wire.ask("put", put("u:a", &record(2, "z"))).ok();
    wire.ask("del", Args::new().s16("u:b")).ok();
    wire.ask("expire", Args::new().s16("u:c").u64(1)).ok();
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(keys(&Query { filter: Some(&two), ..by_n }.all(wire).0), ["u:a"]);
    wire.ask("flush", Args::new()).ok();
    assert_eq!(by_n.all(wire).0, []);
    assert_eq!(scan.all(wire).0, []);

    // Mistakes, after each of which the connection goes on.
    let needs = "filter needs an index or scan:true";
    let other = int("eq", "s", 1);
    assert_eq!(Query { limit: 5, ..Query::default() }.ask(wire).error(), needs);
    assert_eq!(Query { filter: Some(&other), ..by_n }.ask(wire).error(), needs);
    assert_eq!(Query { index: "other", ..by_n }.ask(wire).error(), "unknown index \"other\"");
    assert_eq!(Query { limit: 1001, ..by_n }.ask(wire).error(), "limit: 1001 is not one of 1 to 1000");
    assert!(Query { filter: Some("{"), ..by_n }.ask(wire).error().starts_with("filter: "));
    let refused = wire.ask("__kv_index_set__", index("a b", "", "n", true)).error();
    assert_eq!(refused, "index \"a b\": a name is 1 to 64 of A-Z a-z 0-9 _ . : -");
    let refused = wire.ask("__kv_index_set__", index("a", "", "t/1/c", true)).error();
    assert_eq!(refused, "index \"a\": its path leads to a column, and must lead to a field");
    for n in 0..63 {
        wire.ask("__kv_index_set__", index(&format!("i{n}"), "none", "n", true)).ok();
    }
    let refused = wire.ask("__kv_index_set__", index("one.more", "", "n", true)).error();
    assert_eq!(refused, "there are 64 indexes, and no more can be");
    // Of what is dropped only the name counts.
    wire.ask("__kv_index_set__", index("i7", "", "", false)).ok();
    wire.ask("__kv_index_set__", index("one.more", "", "n", true)).ok();
    assert_eq!(Query { index: "i7", ..by_n }.ask(wire).error(), "unknown index \"i7\"");
}

#[test]
fn large_indexes_and_long_pages() {
    let server = server(None);
    let wire = &mut server.tcp();
    let mut random = SplitMix(11);
    let mut twin: BTreeMap<String, u8> = BTreeMap::new();
    // More with one value than an index hands out in one piece.
    while twin.len() < 30_000 {
        let some: Vec<_> =
            (0..500).map(|_| (format!("k{:x}", random.next()), random.below(3) as u8)).collect();
        let args = some
            .iter()
            .fold(Args::new().u32(500), |args, (key, n)| args.bytes(put(key, &record(*n, "")).as_ref()));
        wire.ask("put_batch", args).ok();
        twin.extend(some);
    }
    wire.ask("put", put("k", &record(9, ""))).ok();
    twin.insert("k".to_owned(), 9);
    wire.ask("__kv_index_set__", index("n", "k", "n", true)).ok();
    wait_ready(wire, "0001 01 6e 01 6b 01 6e 00 01 01");
    for (op, value, matches) in [
        ("eq", 1, (|n| n == 1) as fn(u8) -> bool),
        ("eq", 9, |n| n == 9),
        ("gte", 1, |n| n >= 1),
        ("lt", 0, |_| false),
    ] {
        let expected: Vec<&str> =
            twin.iter().filter(|(_, n)| matches(**n)).map(|(key, _)| &key[..]).collect();
        let filter = int(op, "n", value);
        let query = Query { index: "n", filter: Some(&filter), limit: 1000, ..Query::default() };
        assert_eq!(keys(&query.all(wire).0), expected, "{op} {value}");
        let scan = Query { index: "", scans: true, ..query };
        assert_eq!(keys(&scan.all(wire).0), expected, "{op} {value} by scan");
    }
    // A page has room for 8 MiB.
    let large = vec![7; 3 << 20];
    for key in ["z1", "z2", "z3", "z4"] {
        wire.ask("put", put(key, &large)).ok();
    }
    wire.ask("__kv_index_set__", index("z", "z", "n", true)).ok();
    wait_ready(wire, "0002 01 6e 01 6b 01 6e 00 01 01  01 7a 01 7a 01 6e 00 01 01");
    let z = Query { index: "z", returns: 1, limit: 10, ..Query::default() };
    let (rows, pages) = z.all(wire);
    assert!(
        rows.len() == 4 && rows.iter().all(|(_, value)| value.as_ref() == Some(&large)),
        "{}",
        rows.len()
    );
    assert_eq!(pages, 2);
    // What fits no page is left out, and `get` has it.
    wire.ask("put", put("z1", &vec![8; 9 << 20])).ok();
    let (rows, pages) = z.all(wire);
    let has: Vec<bool> = rows.iter().map(|(_, value)| value.is_some()).collect();
    assert_eq!((has, pages), (vec![false, true, true, true], 2));
    // Nothing can match, by whatever index.
    let none = r#"{"op":"in","field":"other","value":{"kind":"ints","ints":[]}}"#;
    assert_eq!(Query { filter: Some(none), ..z }.all(wire), (vec![], 1));
    assert_eq!(Query { filter: Some(none), index: "", scans: true, ..z }.all(wire), (vec![], 1));
}

#[test]
fn indexes_come_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let two = int("eq", "n", 2);
    for life in 0..4u8 {
        let server = server(Some(dir.path()));
        let wire = &mut server.tcp();
        match life {
            0 => {
                wire.ask("__kv_index_set__", index("gone", "", "n", true)).ok();
                wire.ask("__kv_index_set__", index("n", "u", "n", true)).ok();
            }
            _ => wait_ready(wire, "0001 01 6e 01 75 01 6e 00 01 01"),
        }
        for n in 0..4 {
            wire.ask("put", put(&format!("u{life}{n}"), &record(n, ""))).ok();
        }
        if life == 0 {
            wire.ask("__kv_index_set__", index("gone", "", "n", false)).ok();
            wait_ready(wire, "0001 01 6e 01 75 01 6e 00 01 01");
        }
        let (rows, _) = Query { index: "n", filter: Some(&two), limit: 3, ..Query::default() }.all(wire);
        let expected: Vec<String> = (0..=life).map(|life| format!("u{life}2")).collect();
        assert_eq!(keys(&rows), expected);
        server.kill();
    }
}
