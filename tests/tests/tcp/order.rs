//! Pipelined requests: responses in order, and no request before an earlier one on the same key or collection.

use super::server;
use nigh_tests::{Args, Wire, frame};

const DIM: u32 = 4;
const NOTHING: Vec<u8> = Vec::new();

fn create(name: &str) -> Vec<u8> {
    let args = Args::new().s8(name).u32(DIM).u8(1).u32(16).u32(200).u32(64).i64(0);
    frame("vector_create_collection", args.as_ref())
}

fn upsert(name: &str, id: u64, x: f32) -> Vec<u8> {
    frame("vector_upsert", Args::new().u8(0).s8(name).u64(id).vector(&[x, 0.0, 0.0, 0.0]).as_ref())
}

fn on_point(operation: &str, name: &str, id: u64) -> Vec<u8> {
    frame(operation, Args::new().s8(name).u64(id).as_ref())
}

fn search(name: &str, k: u32, x: f32) -> Vec<u8> {
    frame("vector_search", Args::new().u8(0).s8(name).u32(k).vector(&[x, 0.0, 0.0, 0.0]).as_ref())
}

/// Ids of `hits12`.
fn ids(hits: &[u8]) -> Vec<u64> {
    hits[4..].chunks(12).map(|hit| u64::from_be_bytes(hit[..8].try_into().expect("eight bytes"))).collect()
}

#[test]
fn whole_lives_of_collections_in_one_write() {
    let server = server();
    let wire = &mut server.tcp();
    for round in 0..20 {
        let put = |value: &str| frame("put", Args::new().s16("k").s32(value).u64(0).as_ref());
        let get = frame("get", Args::new().s16("k").as_ref());
        let all = [
            create("docs"),
            put("1"),
            upsert("docs", 1, 1.0),
            upsert("docs", 2, 2.0),
            get.clone(),
            search("docs", 5, 1.1),
            on_point("vector_delete", "docs", 1),
            search("docs", 5, 1.1),
            put("2"),
            upsert("docs", 3, 3.0),
            on_point("vector_exists", "docs", 3),
            on_point("vector_exists", "docs", 1),
            get,
            frame("alias_batch", Args::new().u32(1).s16("a").s16("docs").u8(0).as_ref()),
            search("a", 1, 9.0),
            frame("alias_batch", Args::new().u32(1).s16("a").s16("").u8(1).as_ref()),
            frame("vector_drop_collection", Args::new().s8("docs").as_ref()),
            search("docs", 1, 9.0),
        ];
        wire.send(all.concat());
        let mut next = || wire.response().ok();
        assert_eq!([next(), next(), next(), next()], [NOTHING; 4], "round {round}");
        assert_eq!(next(), b"1");
        assert_eq!(ids(&next()), [1, 2]);
        assert_eq!(next(), [1]);
        assert_eq!(ids(&next()), [2]);
        assert_eq!(
            [next(), next(), next(), next(), next()],
            [vec![], vec![], vec![1], vec![0], b"2".to_vec()]
        );
        assert_eq!(next(), b"");
        assert_eq!(ids(&next()), [3]);
        assert_eq!([next(), next()], [NOTHING; 2]);
        assert!(wire.response().error().contains("unknown collection"));
    }
}

fn pipelined(count: u64) {
    let server = server();
    let wire = &mut server.tcp();
    wire.send(create("docs"));
    assert_eq!(wire.response().ok(), b"");
    wire.send((0..count).flat_map(|id| upsert("docs", id, id as f32)).collect::<Vec<u8>>());
    for id in 0..count {
        assert_eq!(wire.response().ok(), b"", "{id}");
    }
    wire.send((0..count).flat_map(|id| search("docs", 1, id as f32)).collect::<Vec<u8>>());
    for id in 0..count {
        assert_eq!(ids(&wire.response().ok()), [id]);
    }
    let pings = frame("__ping__", b"").repeat(count as usize);
    wire.send(pings);
    for _ in 0..count {
        assert_eq!(wire.response().ok(), b"");
    }
}

#[test]
fn requests_64_in_one_write() {
    pipelined(64);
}

#[test]
fn requests_200_in_one_write() {
    pipelined(200);
}

/// Points written together are refused one by one.
#[test]
fn a_point_that_is_refused_stops_no_other() {
    let server = server();
    let wire: &mut Wire = &mut server.tcp();
    let insert = |id: u64, vector: &[f32]| {
        frame("vector_insert", Args::new().u8(0).s8("docs").u64(id).vector(vector).as_ref())
    };
    let right = [1.0, 2.0, 3.0, 4.0];
    let all = [
        create("docs"),
        insert(1, &right),
        insert(1, &right),
        insert(2, &right[..3]),
        insert(3, &right),
        insert(4, &[f32::NAN, 0.0, 0.0, 0.0]),
        insert(5, &right),
        frame("vector_upsert", Args::new().u8(16).s8("docs").u64(5).vector(&right).u64(7).as_ref()),
        frame("vector_upsert", Args::new().u8(16).s8("docs").u64(5).vector(&right).u64(1).as_ref()),
        on_point("vector_exists", "docs", 2),
        on_point("vector_exists", "docs", 5),
    ];
    wire.send(all.concat());
    let mut next = || wire.response();
    assert_eq!((next().ok(), next().ok()), (vec![], vec![]));
    assert!(next().error().contains("already present"));
    assert!(next().error().contains("dimension mismatch"));
    assert_eq!(next().ok(), b"");
    assert!(next().error().contains("not a finite number"));
    assert_eq!(next().ok(), b"");
    assert!(next().error().contains("version conflict"));
    assert_eq!((next().ok(), next().ok(), next().ok()), (vec![], vec![0], vec![1]));
}
