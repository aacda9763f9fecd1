//! Where the time of requests goes, as the metrics page tells.

use nigh_tests::{Args, Server, Wire, frame};
use std::collections::BTreeMap;
use std::time::Instant;

/// Seconds by stage, and the searches that were timed.
fn read(wire: &mut Wire) -> (BTreeMap<String, f64>, u64) {
    let page = String::from_utf8(wire.ask("__metrics__", b"").ok()).expect("text");
    let number = |text: &str| text.parse::<f64>().expect("a number");
    let stages = page.lines().filter_map(|line| {
        let (stage, value) = line.strip_prefix("svc_tcp_stage_seconds_total{stage=\"")?.split_once("\"} ")?;
        Some((stage.to_owned(), number(value)))
    });
    let searches = page.lines().find_map(|line| line.strip_prefix("svc_tcp_search_seconds_count "));
    (stages.collect(), number(searches.expect("a histogram")) as u64)
}

#[test]
fn time_goes_to_the_stage_that_took_it() {
    let data = tempfile::tempdir().expect("a directory");
    let server = Server::start(Some(data.path()), &["-cores", "2", "-tcp", "127.0.0.1:0", super::LOOPS]);
    let wire = &mut server.tcp();
    let started = Instant::now();
    let name = || Args::new().s8("docs");
    let create = name().u32(2).u8(1).u32(16).u32(200).u32(64).i64(0);
    assert_eq!(wire.ask("vector_create_collection", create).status, 0);
    let (before, _) = read(wire);
    assert!(before["collections"] > 0.0, "it was made");
    assert_eq!([before["owners"], before["log"]], [0.0, 0.0], "no key has been touched");

    let keys = (0..64).map(|key| Args::new().s16(format!("key{key}")));
    let gets: Vec<u8> = keys.clone().flat_map(|key| frame("get", key.as_ref())).collect();
    wire.send(gets);
    (0..64).for_each(|_| assert_eq!(wire.response().status, 1));
    let (reads, _) = read(wire);
    assert_eq!([reads["owners"], reads["log"]], [0.0, 0.0], "reads wait for nobody");
    assert!(reads["run"] > before["run"] && reads["receive"] > before["receive"]);
    assert!(reads["send"] > before["send"]);

    // Half of them belong to the other core, which waits for a log of its own.
    wire.send(keys.flat_map(|key| frame("put", key.s32("v").u64(0).as_ref())).collect::<Vec<u8>>());
    (0..64).for_each(|_| assert_eq!(wire.response().status, 0));
    let (writes, searches) = read(wire);
    assert!(writes["owners"] > 0.0 && writes["log"] > 0.0, "{writes:?}");
    assert_eq!((writes["collections"], searches), (reads["collections"], 0));

    // Large enough to come in pieces.
    let puts =
        (0..4).fold(Args::new().u32(4), |args, n| args.s16(format!("batch{n}")).s32(vec![n; 1 << 20]).u64(0));
    assert_eq!(wire.ask("put_batch", puts).ok(), [0, 0, 0, 4]);
    let (batch, _) = read(wire);
    assert!(batch["log"] > writes["log"] && batch["owners"] > writes["owners"]);

    let search = |vector: &[f32]| Args::new().u8(0).s8("docs").u32(1).vector(vector);
    assert_eq!(wire.ask("vector_search", search(&[0.0, 1.0])).status, 0);
    assert_eq!(wire.ask("vector_search", search(&[0.0])).status, 3);
    let (last, searches) = read(wire);
    assert!(last["collections"] > batch["collections"]);
    assert_eq!(searches, 1, "what is refused is no search");

    // Of one connection no two stages overlap.
    let whole: f64 = last.values().sum();
    assert!(whole <= started.elapsed().as_secs_f64(), "{last:?}");
}
