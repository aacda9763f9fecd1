//! One connection that asks for much does not keep the others of its core waiting until it has all of it.

use nigh_tests::{Args, Server, frame};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const POINTS: u32 = 5_000;
const SEARCHES: usize = 64;
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
    let searches = search.repeat(SEARCHES);
    let mut before = 0;
    for _ in 0..ATTEMPTS {
        let is_answered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            busy.send(&searches);
            let first = scope.spawn(|| {
                drop(busy.response().ok());
                is_answered.store(true, Ordering::SeqCst);
                (1..SEARCHES).for_each(|_| drop(busy.response().ok()));
            });
            // The searches take some 10 ms together: after this one they are under way.
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(other.ask("get", Args::new().s16("k")).ok(), b"v");
            before += usize::from(!is_answered.load(Ordering::SeqCst));
            first.join().expect("every search is answered");
        });
    }
    println!("{before} of {ATTEMPTS} gets were answered before the searches");
    // On a busy machine some are sent when the searches are nearly done. Without turns none comes first.
    assert!(before >= ATTEMPTS / 4, "{before} of {ATTEMPTS} gets came before the responses to the searches");
}
