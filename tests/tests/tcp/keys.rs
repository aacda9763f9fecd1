//! Keys over any number of pipelined requests and connections, beside a map.

use super::guarded_server;
use nigh_tests::{Access, Args, Response, Server, SplitMix, frame, in_every_mode, long};
use std::collections::HashMap;

in_every_mode!(
    answers_are_those_of_a_map_however_they_are_pipelined,
    numbers_and_times,
    a_batch_of_puts_goes_on_behind_an_error,
    counters_of_many_connections,
);

/// A request, and the response that a map with the same keys gives.
fn step(random: &mut SplitMix, twin: &mut HashMap<String, Vec<u8>>) -> (Vec<u8>, Response) {
    let key = format!("key{}", random.below(40));
    let key_of = || Args::new().s16(&key);
    let length = [0, 1, 9, 200, 5_000][random.below(5) as usize];
    let value: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
    let ok = |payload: Vec<u8>| Response { status: 0, payload };
    let missing = || Response { status: 1, payload: vec![] };
    let flag = |flag: bool| ok(vec![flag.into()]);
    let found = |value: Option<Vec<u8>>| match value {
        Some(value) => ok(Args::new().u8(1).s32(value).0),
        None => ok(vec![0]),
    };
    let (operation, args, response) = match random.below(16) {
        0..=3 => ("get", key_of(), twin.get(&key).cloned().map_or_else(missing, ok)),
        4..=6 => {
            twin.insert(key.clone(), value.clone());
            ("put", key_of().s32(value).u64(0), ok(vec![]))
        }
        7 => ("del", key_of(), flag(twin.remove(&key).is_some())),
        8 => {
            let stored = !twin.contains_key(&key);
            if stored {
                twin.insert(key.clone(), value.clone());
            }
            ("set_nx", key_of().s32(value).u64(100_000), flag(stored))
        }
        9 => {
            let old = twin.insert(key.clone(), value.clone());
            ("getset", key_of().s32(value).u64(0), found(old))
        }
        10 => ("getdel", key_of(), found(twin.remove(&key))),
        11 => ("exists", key_of(), flag(twin.contains_key(&key))),
        12 => {
            let expected = twin.get(&key).cloned().unwrap_or_default();
            let stored = twin.contains_key(&key);
            if stored {
                twin.insert(key.clone(), value.clone());
            }
            ("cas", key_of().s32(value).u8(1).s32(expected).u64(0), flag(stored))
        }
        13 => {
            let mut args = Args::new().u32(5);
            for _ in 0..5 {
                let key = format!("key{}", random.below(40));
                args = args.s16(&key).s32(&value).u64(0);
                twin.insert(key, value.clone());
            }
            ("put_batch", args, ok(vec![0, 0, 0, 5]))
        }
        14 => {
            let (mut args, mut result) = (Args::new().u16(6), Args::new().u16(6));
            for _ in 0..6 {
                let key = format!("key{}", random.below(40));
                args = args.s16(&key);
                result = match twin.get(&key) {
                    Some(value) => result.u8(1).s32(value),
                    None => result.u8(0),
                };
            }
            ("mget", args, ok(result.0))
        }
        _ if random.below(60) == 0 => {
            twin.clear();
            ("flush", Args::new(), ok(vec![]))
        }
        _ => ("cad", key_of().s32(b"nobody stores this"), flag(false)),
    };
    (frame(operation, args.as_ref()), response)
}

fn answers_are_those_of_a_map_however_they_are_pipelined(access: &Access) {
    let server = guarded_server(access);
    let wire = &mut access.tcp(&server);
    let mut twin = HashMap::new();
    let mut random = SplitMix(17);
    for round in 0..if long() { 20_000 } else { 600 } {
        let count = 1 + random.below(if round % 7 == 0 { 200 } else { 12 });
        let steps: Vec<_> = (0..count).map(|_| step(&mut random, &mut twin)).collect();
        wire.send(steps.iter().flat_map(|(request, _)| wire.with_token(request)).collect::<Vec<u8>>());
        for (place, (request, expected)) in steps.iter().enumerate() {
            let got = wire.response();
            assert_eq!(
                &got,
                expected,
                "round {round}, request {place}: {:?}",
                String::from_utf8_lossy(request)
            );
        }
    }
    let page = String::from_utf8(wire.ask("__metrics__", b"").ok()).expect("text");
    let counted = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.trim().parse::<u64>().expect("a number")
    };
    // Half of the keys belong to the other core.
    let (batches, batched) = (counted("svc_tcp_batches_total "), counted("svc_tcp_batched_requests_total "));
    assert!(batches > 0 && batched > 2 * batches, "{batched} requests in {batches} messages");
    assert!(counted("svc_tcp_send_calls_total ") < counted("svc_tcp_requests_total ") / 2);
}

fn numbers_and_times(access: &Access) {
    let server = guarded_server(access);
    let wire = &mut access.tcp(&server);
    let key = |key: &str| Args::new().s16(key);
    let number = |response: Response| i64::from_be_bytes(response.ok().try_into().expect("eight bytes"));
    assert_eq!(number(wire.ask("ttl", key("n"))), -2);
    assert_eq!(number(wire.ask("incr_ex", key("n").i64(5).u64(60_000))), 5);
    assert!((1..=60_000).contains(&number(wire.ask("ttl", key("n")))));
    assert_eq!(number(wire.ask("incr_ex", key("n").i64(-7).u64(1))), -2);
    assert!(number(wire.ask("ttl", key("n"))) > 1_000, "only who creates it sets its end");
    assert_eq!(wire.ask("persist", key("n")).ok(), [1]);
    assert_eq!(wire.ask("persist", key("n")).ok(), [0]);
    assert_eq!(number(wire.ask("ttl", key("n"))), -1);
    assert_eq!(wire.ask("expire", key("n").u64(40)).ok(), b"");
    assert_eq!(wire.ask("expire", key("other").u64(40)).status, 1);
    let started = std::time::Instant::now();
    while wire.ask("get", key("n")).status == 0 {
        assert!(started.elapsed().as_secs() < 60, "it has an end");
    }
    assert_eq!(wire.ask("del", key("n")).ok(), [0], "what has expired is not there");
    assert_eq!(number(wire.ask("incr", key("n").i64(i64::MAX))), i64::MAX);
    assert_eq!(number(wire.ask("incr", key("n").i64(1))), i64::MIN);
    assert_eq!(wire.ask("caex", key("n").s32(i64::MIN.to_be_bytes()).u64(50_000)).ok(), [1]);
    assert_eq!(wire.ask("cad", key("n").s32(i64::MIN.to_be_bytes())).ok(), [1]);
}

/// The first error, in the order of the puts, takes the place of their number; the others are carried out.
fn a_batch_of_puts_goes_on_behind_an_error(access: &Access) {
    let flags = ["-cores", "2", "-shards", "2", "-tcp", "127.0.0.1:0", super::LOOPS];
    let server = access.start(None, &flags);
    let wire = &mut access.tcp(&server);
    let puts = |count: u32| {
        (0..count)
            .fold(Args::new().u32(count), |args, n| args.s16(format!("{n}")).s32(n.to_be_bytes()).u64(0))
    };
    assert_eq!(wire.ask("put_batch", puts(5_000)).ok(), 5_000_u32.to_be_bytes());
    let mget = (0..5_000).fold(Args::new().u16(5_000), |args, n| args.s16(format!("{n}")));
    let values = wire.ask("mget", mget).ok();
    assert_eq!(values.len(), 2 + 5_000 * 9);
    assert_eq!(&values[2 + 9 * 4_321..][..9], [&[1, 0, 0, 0, 4], &4_321_u32.to_be_bytes()[..]].concat());
    // One that cannot be: the others are carried out.
    let one_of_three =
        Args::new().u32(3).s16("a").s32("1").u64(0).s16("b").s32("2").u64(u64::MAX).s16("c").s32("3");
    assert_eq!(wire.ask("put_batch", one_of_three.u64(0)).error(), "ttlMs out of range");
    let of = |key: &str| Args::new().s16(key);
    assert_eq!(
        (wire.ask("get", of("a")).ok(), wire.ask("get", of("c")).ok()),
        (b"1".to_vec(), b"3".to_vec())
    );
    assert_eq!(wire.ask("get", of("b")).status, 1);
    // Short: nothing of it.
    let short = Args::new().u32(2).s16("0").s32("x").u64(0).s16("1").s32("yyyyyyyyyy");
    assert_eq!(wire.ask("put_batch", short).error(), "args too short: ttlMs");
    assert_eq!(wire.ask("get", Args::new().s16("0")).ok(), [0; 4]);
}

/// Many connections on the same counters: no addition is lost, on whatever core it arrives.
fn counters_of_many_connections(access: &Access) {
    let server = guarded_server(access);
    let (clients, rounds) = (8, 100);
    std::thread::scope(|scope| {
        for client in 0..clients {
            let server = &server;
            scope.spawn(move || {
                let wire = &mut access.tcp(server);
                for round in 0..rounds {
                    let add = |key| frame("incr", Args::new().s16(format!("c{key}")).i64(1).as_ref());
                    wire.send((0..10).flat_map(|key| wire.with_token(&add(key))).collect::<Vec<u8>>());
                    for _ in 0..10 {
                        assert_eq!(wire.response().ok().len(), 8, "client {client}, round {round}");
                    }
                }
            });
        }
    });
    let wire = &mut access.tcp(&server);
    for key in 0..10 {
        let value = wire.ask("get", Args::new().s16(format!("c{key}"))).ok();
        assert_eq!(value, i64::to_be_bytes(clients * rounds));
    }
}

#[test]
fn acknowledged_keys_survive_a_kill() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let flags = ["-cores", "2", "-tcp", "127.0.0.1:0", super::LOOPS];
    let server = Server::start(Some(data.path()), &flags);
    let wire = &mut server.tcp();
    let requests = (0..500)
        .flat_map(|n| frame("put", Args::new().s16(format!("k{n}")).s32(format!("v{n}")).u64(0).as_ref()))
        .collect::<Vec<u8>>();
    wire.send(requests);
    for _ in 0..500 {
        assert_eq!(wire.response().ok(), b"");
    }
    server.kill();
    let server = Server::start(Some(data.path()), &flags);
    let wire = &mut server.tcp();
    for n in 0..500 {
        assert_eq!(wire.ask("get", Args::new().s16(format!("k{n}"))).ok(), format!("v{n}").into_bytes());
    }
}
