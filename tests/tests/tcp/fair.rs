//! One connection that asks for much does not keep the others of its core waiting until it has all of it.

use super::hex;
use nigh_tests::{Args, Server, Wire, frame};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const POINTS: u32 = 5_000;
const REQUESTS: usize = 64;
const ATTEMPTS: usize = 20;

#[test]
fn a_get_does_not_wait_for_all_searches_of_another_connection() {
    let server = Server::start(None, &["-cores", "1", "-tcp", "127.0.0.1:0", super::LOOPS]);
    let mut busy = server.tcp();
    let create = Args::new().s8("docs").u32(4).u8(1).u32(16).u32(200).u32(64).i64(0);
    busy.ask("vector_create_collection", create).ok();
    for from in (0..POINTS).step_by(1000) {
        let point = |id: u32| {
            let vector = [id as f32, (id % 71) as f32, (id % 13) as f32, 0.0];
            frame("vector_upsert", Args::new().u8(0).s8("docs").u64(u64::from(id)).vector(&vector).as_ref())
        };
        busy.send((from..from + 1000).flat_map(point).collect::<Vec<u8>>());
        (0..1000).for_each(|_| drop(busy.response().ok()));
    }
    let mut other = server.tcp();
    other.ask("put", Args::new().s16("k").s32("v").u64(0)).ok();
    let search = frame("vector_search", Args::new().u8(0).s8("docs").u32(300).vector(&[9.0; 4]).as_ref());
    let before = gets_before(&mut busy, &mut other, &search);
    println!("{before} of {ATTEMPTS} gets were answered before the searches");
    // On a busy machine some are sent when the searches are nearly done. Without turns none comes first.
    assert!(before >= ATTEMPTS / 4, "{before} of {ATTEMPTS} gets came before the responses to the searches");
}

/// How many gets are answered before the first of as many requests that another connection has sent at once.
fn gets_before(busy: &mut Wire, other: &mut Wire, request: &[u8]) -> usize {
    let requests = request.repeat(REQUESTS);
    let mut before = 0;
    for _ in 0..ATTEMPTS {
        let is_answered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            busy.send(&requests);
            let first = scope.spawn(|| {
                drop(busy.response().ok());
                is_answered.store(true, Ordering::SeqCst);
                (1..REQUESTS).for_each(|_| drop(busy.response().ok()));
            });
            // The requests take some 10 ms together: after this one they are under way.
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(other.ask("get", Args::new().s16("k")).ok(), b"v");
            before += usize::from(!is_answered.load(Ordering::SeqCst));
            first.join().expect("every request is answered");
        });
    }
    before
}

/// An operation on a record reads and writes the whole record, here 4 MB.
#[test]
fn a_get_does_not_wait_for_all_operations_on_a_large_record() {
    let server = Server::start(None, &["-cores", "1", "-tcp", "127.0.0.1:0", super::LOOPS]);
    let (mut busy, mut other) = (server.tcp(), server.tcp());
    other.ask("put", Args::new().s16("k").s32("v").u64(0)).ok();
    // The key, no time to live; a record without a schema is made where there is none.
    let head = [&hex("0001 72 0000000000000000 00 02 0000")[..], &64u16.to_be_bytes()].concat();
    let set = |field: u8| {
        let path = [&hex("01 0c 00 01 01 02 66")[..], &[field], &[0; 16]].concat();
        [&path[..], &u16::MAX.to_be_bytes(), &[field; u16::MAX as usize]].concat()
    };
    let fields: Vec<u8> = (0..64).flat_map(set).collect();
    busy.ask("operate", [&head[..], &fields, &hex("0000")].concat()).ok();
    let add = hex(
        "0001 72 0000000000000000 00 02 0000 0001 03 03 00 0101016e 0000000000000001 0000000000000000 0000 0000",
    );
    let before = gets_before(&mut busy, &mut other, &frame("operate", &add));
    println!("{before} of {ATTEMPTS} gets were answered before the operations");
    assert!(
        before >= ATTEMPTS / 4,
        "{before} of {ATTEMPTS} gets came before the responses to the operations"
    );
}
