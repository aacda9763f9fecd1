//! The whole benchmark against servers of the tests.
use super::fake::{Fake, Fault};
use super::options::{Options, ProtocolName};
use super::{Report, run};
use crate::tls::tests::in_front_of;
use clap::Parser;

const PROTOCOLS: [ProtocolName; 3] = [ProtocolName::Nigh, ProtocolName::Memcached, ProtocolName::Redis];

fn bench(protocol: ProtocolName, server: &Fake, flags: &[&str]) -> Result<Report, String> {
    let fixed = [
        "bench",
        "--protocol",
        protocol.name(),
        "--address",
        &server.address,
        "--keys=300",
        "--seconds=0.2",
        "--warmup=0.05",
        "--connections=3",
        "--threads=2",
        "--verify=true",
    ];
    run(&Options::try_parse_from(fixed.iter().chain(flags)).unwrap())
}

#[test]
fn every_protocol_is_measured() {
    for protocol in PROTOCOLS {
        for fault in [Fault::None, Fault::Dribbles] {
            let server = Fake::start(protocol, fault, b"");
            let flags =
                ["--preload=true", "--pipeline=5", "--value-size=0-200", "--reads=50", "--distribution=zipf"];
            let report = bench(protocol, &server, &flags).unwrap();
            assert_eq!(report.verdict(), Ok(()), "{protocol:?} {fault:?}");
            assert_eq!(server.map.lock().unwrap().len(), 300);
            assert_eq!(report.preload.unwrap().keys, 300);
            let stretch = &report.stretches[0];
            assert_eq!((stretch.misses, stretch.errors, stretch.unanswered), (0, 0, 0));
            let (get, set) = (stretch.get.unwrap(), stretch.set.unwrap());
            assert!(get.operations > 0 && set.operations > 0);
            assert_eq!(get.operations + set.operations, stretch.operations);
            assert!(stretch.sent_bytes_per_s > 0.0 && stretch.received_bytes_per_s > 0.0);
            assert!(stretch.generator.cpu_s > 0.0);
            let kernel_counts = std::path::Path::new("/proc/thread-self/schedstat").exists();
            assert_eq!(stretch.generator.waited_s.is_some(), kernel_counts);
        }
    }
}

#[test]
fn every_protocol_is_measured_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.pem");
    let flag = format!("--tls-ca={}", path.display());
    for protocol in PROTOCOLS {
        let server = Fake::start(protocol, Fault::None, b"");
        let front = in_front_of(&server.address);
        std::fs::write(&path, &front.authority).unwrap();
        let server = Fake { address: front.address, map: server.map };
        // Batches and values are longer than a record of TLS and than what a session buffers.
        for flags in [
            &["--preload=true", "--pipeline=16", "--value-size=0-20000", "--reads=50"][..],
            &["--mode=open", "--rate=500", "--value-size=0-20000", "--pipeline=4"],
        ] {
            let report = bench(protocol, &server, &[flags, &[&flag]].concat()).unwrap();
            assert_eq!(report.verdict(), Ok(()), "{protocol:?} {flags:?}");
            let stretch = &report.stretches[0];
            assert_eq!((stretch.misses, stretch.errors, stretch.unanswered), (0, 0, 0));
            assert!(stretch.operations > 0 && report.is_tls && report.text().contains("over TLS"));
        }
    }
}

#[test]
fn a_refusal_is_told_when_the_connection_ends() {
    let server = Fake::start(ProtocolName::Nigh, Fault::ExpectsTls, b"");
    let error = bench(ProtocolName::Nigh, &server, &[]).unwrap_err();
    assert!(error.contains("this port expects TLS; -tls speaks TLS"), "{error}");
}

#[test]
fn the_key_space_is_filled_and_nothing_more() {
    for (protocol, ttl) in PROTOCOLS.into_iter().zip([1500, 2, 1500]) {
        let server = Fake::start(protocol, Fault::None, b"");
        let flags = ["--preload=true", "--seconds=0", "--ttl-ms=1500", "--value-size=1"];
        let report = bench(protocol, &server, &flags).unwrap();
        assert!(report.stretches.is_empty());
        let map = server.map.lock().unwrap();
        assert_eq!(map.len(), 300);
        assert!(map.values().all(|(value, found)| value.len() == 1 && *found == Some(ttl)), "{protocol:?}");
        assert!(map.contains_key(&b"000000000000012b"[..]) && map.contains_key(&b"0000000000000000"[..]));
    }
}

#[test]
fn misses_are_counted_and_no_error() {
    for protocol in PROTOCOLS {
        let server = Fake::start(protocol, Fault::None, b"");
        let report = bench(protocol, &server, &["--reads=100"]).unwrap();
        assert_eq!(report.verdict(), Ok(()));
        let stretch = &report.stretches[0];
        assert!(stretch.misses > 0 && stretch.misses == stretch.operations && stretch.set.is_none());
    }
}

#[test]
fn a_wrong_answer_fails_the_run() {
    for protocol in PROTOCOLS {
        for (fault, part) in [
            (Fault::WrongByte, "not the value"),
            (Fault::Short, "63 bytes instead of 64"),
            (Fault::Refuses, "store full"),
        ] {
            let server = Fake::start(protocol, fault, b"");
            let report = bench(protocol, &server, &["--reads=50"]).unwrap();
            let error = report.verdict().unwrap_err();
            assert!(error.contains(part), "{protocol:?} {fault:?}: {error}");
            assert!(report.stretches[0].errors > 0);
            if fault == Fault::Refuses {
                assert!(bench(protocol, &server, &["--preload=true"]).unwrap_err().contains(part));
            }
        }
        // Without --verify lengths are all that is looked at.
        let server = Fake::start(protocol, Fault::WrongByte, b"");
        assert_eq!(bench(protocol, &server, &["--verify=false"]).unwrap().verdict(), Ok(()));
    }
}

#[test]
fn a_connection_that_ends_or_babbles_ends_the_run() {
    for protocol in PROTOCOLS {
        let server = Fake::start(protocol, Fault::Closes, b"");
        let error = bench(protocol, &server, &[]).unwrap_err();
        assert!(error.contains("closed the connection") || error.contains("reset"), "{protocol:?}: {error}");
        let server = Fake::start(protocol, Fault::Babbles, b"");
        assert!(bench(protocol, &server, &[]).is_err());
    }
}

#[test]
fn an_answer_that_never_comes_fails_the_run() {
    let server = Fake::start(ProtocolName::Nigh, Fault::Silent, b"");
    let report = bench(ProtocolName::Nigh, &server, &["--reads=100"]).unwrap();
    assert!(report.verdict().is_err());
    assert_eq!(report.stretches[0].unanswered, 3);
}

#[test]
fn an_open_loop_charges_the_wait_to_the_server() {
    // Three connections and 20 ms per answer serve 150 a second; 1000 are due in the measured 0.2 s, so the queue grows and
    // late requests carry waits far beyond one answer's time. A closed loop sees none of it.
    for protocol in PROTOCOLS {
        let server = Fake::start(protocol, Fault::Slow, b"");
        let flags = ["--mode=open", "--rate=5000", "--arrivals=uniform", "--warmup=0"];
        let report = bench(protocol, &server, &flags).unwrap();
        let stretch = &report.stretches[0];
        assert_eq!(stretch.all.operations, 1000, "all that were due count, answered or not");
        assert!(stretch.unanswered > 0 && stretch.all.latency.p50_us > 200_000.0, "{stretch:?}");
        assert_eq!(report.verdict(), Ok(()));
        let closed = bench(protocol, &server, &[]).unwrap();
        assert!(closed.stretches[0].all.latency.p50_us < stretch.all.latency.p50_us / 2.0);
    }
}

#[test]
fn a_sweep_ends_at_its_bound() {
    let server = Fake::start(ProtocolName::Redis, Fault::Slow, b"");
    let flags = ["--sweep=20-20000x10", "--sweep-p99-us=400000"];
    let report = bench(ProtocolName::Redis, &server, &flags).unwrap();
    let rates: Vec<f64> = report.stretches.iter().map(|stretch| stretch.offered_per_s.unwrap()).collect();
    assert!(rates.len() < 4 && rates[..2] == [20.0, 200.0], "{rates:?}");
    assert!(report.stretches.last().unwrap().all.latency.p99_us > 400_000.0);
    assert!(report.text().contains("open 200/s"));
}

#[test]
fn a_token_opens_a_nigh_server() {
    let server = Fake::start(ProtocolName::Nigh, Fault::None, b"s3cret");
    let report = bench(ProtocolName::Nigh, &server, &["--api-key=s3cret"]).unwrap();
    assert_eq!(report.verdict(), Ok(()));
    let refused = bench(ProtocolName::Nigh, &server, &[]).unwrap().verdict().unwrap_err();
    assert!(refused.contains("NIGH_API_KEY"), "{refused}");
    let long = format!("--api-key={}", "x".repeat(256));
    assert!(bench(ProtocolName::Nigh, &server, &[&long]).unwrap_err().contains("255"));
}

#[test]
fn the_server_is_measured_by_its_number() {
    let server = Fake::start(ProtocolName::Redis, Fault::None, b"");
    let own = std::process::id().to_string();
    let report = bench(ProtocolName::Redis, &server, &["--pid", &own]).unwrap();
    let side = report.stretches[0].server.unwrap();
    assert!(
        side.cpu_s > 0.0
            && side.cpu_ns_per_operation.unwrap() > 0.0
            && side.resident_bytes.unwrap() > 1 << 20
    );
    assert!(bench(ProtocolName::Redis, &server, &["--pid=1073741824"]).unwrap_err().contains("--pid"));
}

#[test]
fn nobody_there_names_the_flag() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = run(&Options::parse_from(["bench", "--address", &address])).unwrap_err();
    assert!(error.contains("--address") && error.contains(&address), "{error}");
}
