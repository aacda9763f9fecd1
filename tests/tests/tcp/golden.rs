//! The examples of the protocol's description, both directions, byte by byte.

use super::{guarded_server, hex};
use nigh::client::{Client, Target, encode};
use nigh_tests::{Access, Args, Mode, Wire, frame, in_every_mode};

in_every_mode!(keys, collections, api_keys, texts_of_mistakes, pages_of_metrics);

const OK: &str = "000000050000000000";
const NOT_FOUND: &str = "000000050100000000";
const UNAUTHORIZED: &str = "000000050400000000";
const V: &str = "000000043dcccccd3e4ccccd3e99999a3ecccccd";

#[track_caller]
fn exchange(wire: &mut Wire, request: &[u8], response: &[u8]) {
    wire.send(wire.with_token(request));
    let got = wire.raw().expect("a response");
    assert_eq!(got, response, "{got:02x?} and not {response:02x?}");
}

fn ok(payload: &str) -> Vec<u8> {
    let payload = hex(payload);
    Args::new().s32(Args::new().u8(0).s32(payload).0).0
}

fn keys(access: &Access) {
    let server = guarded_server(access);
    let wire = &mut access.tcp(&server);
    exchange(wire, &hex("0000000d085f5f70696e675f5f00000000"), &hex(OK));
    exchange(wire, &hex("0000000f0367657400000007000568656c6c6f"), &hex(NOT_FOUND));
    // A token where none is asked for is none; elsewhere it decides, even beside a certificate.
    wire.send(hex("0000001702067365637265740367657400000007000568656c6c6f"));
    let expected = if access.refuses_strangers() { UNAUTHORIZED } else { NOT_FOUND };
    assert_eq!(wire.raw().expect("a response"), hex(expected));
    if access.refuses_strangers() {
        let stranger = &mut Wire::over(access.connect_as_stranger(server.tcp_authority()), "");
        exchange(stranger, &frame("get", &hex("000568656c6c6f")), &hex(UNAUTHORIZED));
    }
    for (operation, args, response) in [
        ("put", "00016b00000002767600000000000005dc", hex(OK)),
        ("get", "00016b", hex("0000000700000000027676")),
        ("del", "00016b", ok("01")),
        ("incr", "00016bfffffffffffffffd", ok("fffffffffffffffd")),
        ("put", "00016b000000036f6c640000000000000000", hex(OK)),
        ("cas", "00016b000000036e657701000000036f6c640000000000000000", ok("01")),
        ("get", "00016b", ok("6e6577")),
        ("put", "000161000000017800000000 00000000", hex(OK)),
        ("mget", "000200016100026263", ok("000201000000017800")),
        (
            "put_batch",
            "000000020001610000000131000000000000000000016200000001320000000000000005",
            ok("00000002"),
        ),
        ("getdel", "000161", ok("010000000131")),
        ("getdel", "000161", ok("00")),
        ("del", "00016b", ok("01")),
        (
            "operate",
            "00016b00000000000000000002000000010303000101016e0000000000000001000000000000000000000001000101016e",
            ok("00000100000009030100000000000000"),
        ),
        ("get", "00016b", ok("0201016e030100000000000000")),
        ("flush", "", hex(OK)),
        ("get", "00016b", hex(NOT_FOUND)),
    ] {
        exchange(wire, &frame(operation, &hex(args)), &response);
    }
}

fn collections(access: &Access) {
    let server = guarded_server(access);
    let wire = &mut access.tcp(&server);
    let with_parts = |text: &str| hex(&text.replace('V', V));
    // L2 distances of [0.1, 0.2, 0.3, 0.4] from itself.
    let point = "01 V 0000000000000000 01 0000002c7b2224636f6e74656e74223a7b226b696e64223a22737472696e67222c22737472223a2268656c6c6f227d7d 00 01 0000000000000001";
    let payload_of = |text: &str| {
        let payload = with_parts(text);
        Args::new().s32(Args::new().u8(0).s32(payload).0).0
    };
    for (operation, args, response) in [
        (
            "vector_create_collection",
            "04646f6373 00000004 01 00000010 000000c8 00000040 0000000000000000 000000000000 0000000000 00 00 00000000",
            hex(OK),
        ),
        (
            "vector_upsert",
            "02 04646f6373 0000000000000001 V 0000002c7b2224636f6e74656e74223a7b226b696e64223a22737472696e67222c22737472223a2268656c6c6f227d7d",
            hex(OK),
        ),
        ("vector_get", "04646f6373 0000000000000001 03", payload_of(point)),
        ("vector_get", "04646f6373 0000000000000002 03", payload_of("00")),
        ("vector_exists", "04646f6373 0000000000000001", payload_of("01")),
        (
            "vector_get_batch",
            "04646f6373 03 00000002 0000000000000001 00000002540be3ff",
            payload_of(&format!("00000002 0000000000000001 {point} 00000002540be3ff 00")),
        ),
        ("vector_search", "00 04646f6373 0000000a V", payload_of("00000001 0000000000000001 00000000")),
        (
            "vector_search_docs",
            "00 04646f6373 0000000a V",
            payload_of("00000001 0000000000000001 00000000 00000000 00000005 68656c6c6f 00000000"),
        ),
        (
            "vector_scroll",
            "04646f6373 00000032 00000000",
            payload_of(
                "00000001 0000000000000001 00000000 00000000 00000005 68656c6c6f 00000000 000000 00000000",
            ),
        ),
        ("vector_set_payload", "04646f6373 0000000000000009 00000002 7b7d", payload_of("00")),
        ("vector_clear_payload", "04646f6373 0000000000000001", payload_of("01")),
        ("vector_insert_if_absent", "00 04646f6373 0000000000000001 V", payload_of("00")),
        ("vector_insert_if_absent", "00 04646f6373 0000000000000002 V", payload_of("01")),
        ("__collections__", "", payload_of("00000001 000c 64656661756c742f646f6373")),
        ("alias_batch", "00000001 0001 61 0004 646f6373 00", hex(OK)),
        ("alias_list", "0000", payload_of("00000001 0009 64656661756c742f61 000c 64656661756c742f646f6373")),
        ("vector_exists", "0161 0000000000000002", payload_of("01")),
        ("vector_delete", "0161 0000000000000002", payload_of("01")),
        ("vector_delete", "0161 0000000000000002", payload_of("00")),
        ("alias_batch", "00000001 0001 61 0000 01", hex(OK)),
        ("vector_drop_collection", "04646f6373", hex(OK)),
        ("vector_drop_collection", "04646f6373", hex(OK)),
        ("__repl_metrics__", "", payload_of("7b22736861726473223a5b5d7d")),
        ("__ready__", "", hex(OK)),
        // In an envelope: as if it had come alone.
        ("__wc__", "0201 08 5f5f70696e675f5f 00000000", hex(OK)),
    ] {
        println!("{operation}");
        exchange(wire, &frame(operation, &with_parts(args)), &response);
    }
}

/// API keys are listed and changed where there is a file of them, and nowhere else.
fn api_keys(access: &Access) {
    let server = guarded_server(access);
    let wire = &mut access.tcp(&server);
    let token = "another-api-key";
    let add = Args::new().s16(token).s16("*").u16(1).s16("read:*").s16("");
    if !access.has_registry() {
        for (operation, args) in [
            ("__keys_add__", add),
            ("__keys_revoke__", Args::new().s16(token)),
            ("__keys_list__", Args::new()),
        ] {
            assert!(wire.ask(operation, args).error().contains("no key registry"), "{operation}");
        }
        return;
    }
    let count = |wire: &mut Wire| {
        let listed = wire.ask("__keys_list__", b"").ok();
        u32::from_be_bytes(*listed.first_chunk().expect("a count"))
    };
    // With JSON Web Tokens there is no API key.
    let before = u32::from(access.mode() != Mode::Jwt);
    assert_eq!(count(wire), before);
    assert_eq!(wire.ask("__keys_add__", add).ok(), b"");
    assert_eq!(count(wire), before + 1);
    let other = &mut Wire::over(access.connect_as_stranger(server.tcp_authority()), token);
    assert_eq!(other.ask("get", hex("00016b")).status, 1, "it may read");
    assert_eq!(other.ask("flush", b"").status, 4, "it may do nothing else");
    assert_eq!(wire.ask("__keys_revoke__", Args::new().s16(token)).ok(), b"");
    assert_eq!(other.ask("get", hex("00016b")).status, 4, "it is no API key any more");
}

fn texts_of_mistakes(access: &Access) {
    let server = guarded_server(access);
    let wire = &mut access.tcp(&server);
    let mut error = |operation: &str, args: &str| wire.ask(operation, hex(args)).error();
    assert_eq!(error("nothing", ""), "op not registered");
    assert_eq!(error("kv_query", ""), "op not registered");
    assert_eq!(error("vector_bm25_stats", "0161"), "op not registered");
    assert_eq!(error("get", "0005"), "args too short: key");
    assert_eq!(error("put", "00016b 00000001 61 ffffffffffffffff"), "ttlMs out of range");
    assert_eq!(error("mget", "ffff"), "args too short: key");
    assert_eq!(error("operate", "00016b"), "args too short");
    assert_eq!(error("__wc__", "0101 06 5f5f77635f5f 00000000"), "an envelope inside an envelope");
    assert!(error("vector_get", "04646f6373 0000000000000001 00").contains("unknown collection"));
    assert!(error("vector_resplit", "04646f6373 00000001").contains("new_partitions"));
    assert!(error("vector_resplit", "04646f6373 00000002").contains("unknown collection"));
    assert!(error("__register_wasm__", "").contains("op not registered"));
    // Behind the types is the address that it listens on.
    assert!(
        wire.ask("__topology__", hex("")).ok()[199..].windows(12).any(|part| part.starts_with(b"127.0.0.1:"))
    );
    assert_eq!(wire.ask("put", hex("00016b 00000001 61 0000000000000000")).status, 0);
    assert_eq!(wire.ask("incr", hex("00016b 0000000000000001")).error(), "incr value is not 8 bytes");
    assert_eq!(
        wire.ask("operate", hex("00016b 0000000000000000 00 02 0000 0000 0000")).error(),
        "operate stored record malformed"
    );
    // After all that the connection is as good as new.
    assert_eq!(wire.ask("get", hex("00016b")).ok(), b"a");
}

/// Existing readers look for names that begin with those of their product.
#[test]
fn a_start_may_say_what_names_of_metrics_begin_with() {
    let flags = ["-cores", "2", "-tcp", "127.0.0.1:0", super::LOOPS, "-metrics-prefix", "acme"];
    let server = nigh_tests::Server::start(None, &flags);
    let wire = &mut server.tcp();
    let target = Target { authority: server.authority().to_owned(), ..Target::default() };
    let mut client = Client::connect(&target).expect("a connection");
    let mut get = |path| {
        let request = encode(&target, "GET", path, "text/plain", b"");
        String::from_utf8(client.send(&request).expect("it answers").body.to_vec())
    };
    let mut pages = vec![get("/metrics"), get("/v1/metrics"), get("/kv-metrics"), get("/v1/kv-metrics")];
    pages.extend(["__metrics__", "__kv_metrics__"].map(|page| String::from_utf8(wire.ask(page, b"").ok())));
    for page in pages {
        let page = page.expect("text");
        assert!(page.contains("\nacme_kv_gets_total 0\n") && !page.contains("svc_"), "{page}");
    }
}

fn pages_of_metrics(access: &Access) {
    let server = guarded_server(access);
    let wire = &mut access.tcp(&server);
    assert_eq!(wire.ask("put", hex("00016b 00000001 61 0000000000000000")).status, 0);
    wire.ask("get", hex("00016b")).ok();
    wire.ask("get", hex("000178"));
    let page = String::from_utf8(wire.ask("__kv_metrics__", b"").ok()).expect("text");
    for line in [
        "svc_kv_gets_total 2",
        "svc_kv_hits_total 1",
        "svc_kv_misses_total 1",
        "svc_kv_puts_total 1",
        "svc_kv_entries 1",
    ] {
        assert!(page.lines().any(|found| found == line), "no {line:?} in {page}");
    }
    let all = String::from_utf8(wire.ask("__metrics__", b"").ok()).expect("text");
    for name in
        ["svc_kv_gets_total", "svc_tcp_requests_total", "svc_http_connections", "svc_tcp_connections 1"]
    {
        assert!(all.lines().any(|line| line.starts_with(name)), "no {name} in {all}");
    }
}
