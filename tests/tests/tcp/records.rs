//! Records in payloads of points: `vector_operate`, byte by byte, beside other writers, and over kill -9.

use super::{guarded_server, hex};
use nigh_tests::{Access, Args, Response, Server, Wire, in_every_mode};
use serde_json::{Value, json};
use std::path::Path;

in_every_mode!(a_record_lives_in_a_payload);

fn server(data: Option<&Path>) -> Server {
    Server::start(data, &["-cores", "2", "-tcp", "127.0.0.1:0", super::LOOPS])
}

/// A collection `docs` with point 1.
fn prepare(wire: &mut Wire) {
    let create = Args::new().s8("docs").u32(2).u8(1).u32(16).u32(200).u32(64).i64(0);
    assert_eq!(wire.ask("vector_create_collection", create).ok(), b"");
    let plain = r#"{"plain":{"kind":"int","int":7}}"#;
    let upsert = Args::new().u8(2).s8("docs").u64(1).vector(&[0.0, 1.0]).s32(plain);
    assert_eq!(wire.ask("vector_upsert", upsert).ok(), b"");
}

/// The end of a call with one operation on the field `n`, and a return of it.
fn on_n(opcode: &str, a: u64) -> String {
    format!("0000 0001 {opcode} 0101016e {a:016x} 0000000000000000 0000 0001 00 0101016e")
}

/// Adds to `n`, in a record that is made where there is none.
fn add(by: u64) -> String {
    format!("0000 0000000000000000 00 02 {}", on_n("030300", by))
}

/// `vector_operate` on the record under `key` of a point in `docs`.
fn operate(wire: &mut Wire, id: u64, key: &str, expected: Option<u64>, call: &str) -> Response {
    let args = Args::new().s8("docs").u64(id).s16(key);
    let args = match expected {
        Some(version) => args.u8(1).u64(version),
        None => args.u8(0),
    };
    wire.ask("vector_operate", args.s32(hex(call)))
}

/// What is answered where `n` is returned.
fn done(n: u64, version: u64) -> Vec<u8> {
    hex(&format!("01 00000010 00 0001 00000009 03{:016x} {version:016x}", n.swap_bytes()))
}

/// The payload of a point, and its version.
fn read(wire: &mut Wire, id: u64) -> (Value, u64) {
    let point = wire.ask("vector_get", Args::new().s8("docs").u64(id).u8(2)).ok();
    // Found, no vector, no deadline, a payload; behind it no sparse vector, and a version.
    let (head, rest) = point.split_at(1 + 4 + 8 + 1 + 4);
    assert_eq!(head[..14], hex("01 00000000 0000000000000000 01"), "{point:02x?}");
    let (payload, rest) = rest.split_at(rest.len() - 10);
    assert_eq!(rest[..2], [0, 1]);
    let version = rest[2..].try_into().expect("eight bytes");
    (serde_json::from_slice(payload).expect("JSON"), u64::from_be_bytes(version))
}

fn a_record_lives_in_a_payload(access: &Access) {
    let server = guarded_server(access);
    let wire = &mut access.tcp(&server);
    prepare(wire);
    assert_eq!(operate(wire, 2, "r", None, &add(1)).ok(), [0], "there is no such point");
    let existing = format!("0000 0000000000000000 00 00 {}", on_n("030300", 1));
    let missing = operate(wire, 1, "r", None, &existing);
    assert_eq!((missing.status, missing.payload), (1, vec![]), "there is no record");
    assert_eq!(operate(wire, 1, "r", None, &add(1)).ok(), done(1, 2));
    assert_eq!(operate(wire, 1, "r", None, &existing).ok(), done(2, 3));
    let record = |rec: &str| json!({"kind": "record", "rec": rec});
    let plain = json!({"kind": "int", "int": 7});
    let payload = json!({"plain": plain, "r": record("AgEBbgMCAAAAAAAAAA==")});
    assert_eq!(read(wire, 1), (payload.clone(), 3));

    // A version that is not there, and one that is.
    assert_eq!(
        operate(wire, 1, "r", Some(2), &add(5)).error(),
        "vector: version conflict on id 1: expected 2, found 3"
    );
    assert_eq!(operate(wire, 1, "r", Some(3), &add(5)).ok(), done(7, 4));
    assert_eq!(operate(wire, 2, "r", Some(0), &add(5)).ok(), [0], "points are not made by this");

    // A CHECK that fails says which operation it was, and changes nothing.
    let check = format!("0000 0000000000000000 00 02 {}", on_n("1f0300", 8));
    let failed = hex("01 00000012 01 0000 0001 00000009 030700000000000000 0000000000000004");
    assert_eq!(operate(wire, 1, "r", None, &check).ok(), failed);
    let on_nothing = hex("01 0000000a 01 0000 0001 00000001 0f 0000000000000004");
    assert_eq!(operate(wire, 1, "none", None, &check).ok(), on_nothing);
    // What is through and changes nothing is a success all the same.
    let look = "0000 0000000000000000 00 00 0000 0000 0001 00 0101016e";
    assert_eq!(operate(wire, 1, "r", None, look).ok(), done(7, 5));

    // Mistakes.
    assert_eq!(operate(wire, 1, "plain", None, &add(1)).error(), "operate stored record malformed");
    let invalid = "operate call arguments invalid";
    assert_eq!(operate(wire, 1, "", None, &add(1)).error(), invalid);
    for head in
        ["00016b 0000000000000000 00 02", "0000 0000000000000001 00 02", "0000 0000000000000000 01 02"]
    {
        assert_eq!(
            operate(wire, 1, "r", None, &format!("{head} {}", on_n("030300", 1))).error(),
            invalid,
            "{head}"
        );
    }
    let args = Args::new().s8("none").u64(1).s16("r").u8(0).s32(hex(&add(1)));
    assert!(wire.ask("vector_operate", args).error().contains("unknown collection"));
    assert_eq!(read(wire, 1).1, 5);

    // Deleting the record takes the key away.
    let delete =
        "0000 0000000000000000 00 00 0000 0001 02 00 00 00 0000000000000000 0000000000000000 0000 0000";
    assert_eq!(operate(wire, 1, "r", None, delete).ok(), hex("01 00000003 00 0000 0000000000000006"));
    assert_eq!(read(wire, 1), (json!({"plain": plain}), 6));
}

#[test]
fn records_are_values_like_others_to_everybody_else() {
    let server = server(None);
    let wire = &mut server.tcp();
    prepare(wire);
    assert_eq!(operate(wire, 1, "r", None, &add(3)).ok(), done(3, 2));
    let mut api = server.api();
    let record = json!({"kind": "record", "rec": "AgEBbgMDAAAAAAAAAA=="});
    let path = "/v1/collections/docs/points";
    let point = api.ok("GET", &format!("{path}/1"), Value::Null);
    assert_eq!(point["payload"]["r"], record);

    // What was read can be written, and is a record again.
    api.ok("POST", path, json!({"id": 2, "vector": [1, 0], "metadata": {"copy": record}}));
    assert_eq!(operate(wire, 2, "copy", None, &add(1)).ok(), done(4, 2));

    // Filters find nothing in it.
    let mut count = |op: &str, value: Value| {
        let mut filter = json!({"op": op, "field": "r"});
        if !value.is_null() {
            filter["value"] = value;
        }
        api.send("POST", &format!("{path}/count"), &json!({"filter": filter})).expect("it answers")
    };
    for op in ["eq", "gt", "lte", "contains", "match", "regex"] {
        assert_eq!(count(op, json!("AgEBbgMDAAAAAAAAAA==")).body["count"], 0, "{op}");
    }
    for op in ["is_empty", "is_null"] {
        // The other point has no such key.
        assert_eq!(count(op, Value::Null).body["count"], i32::from(op == "is_empty"), "{op}");
    }
    assert_eq!(count("ne", json!(1)).body["count"], 1, "it is something else");
    let refused = count("eq", record.clone());
    assert_eq!(refused.status, 400, "{}", refused.body);
    let facet = api.ok("POST", &format!("{path}/facet"), json!({"key": "r"}));
    assert_eq!(facet["facets"].as_array().map(Vec::len), Some(0), "{facet}");
}

#[test]
fn calls_do_not_lose_each_other() {
    const EACH: u64 = 60;
    let server = server(None);
    prepare(&mut server.tcp());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let wire = &mut server.tcp();
                for _ in 0..EACH {
                    assert_eq!(operate(wire, 1, "r", None, &add(1)).status, 0);
                }
            });
        }
    });
    let look = "0000 0000000000000000 00 00 0000 0000 0001 00 0101016e";
    assert_eq!(operate(&mut server.tcp(), 1, "r", None, look).ok(), done(4 * EACH, 4 * EACH + 2));
}

#[test]
fn records_survive_kills_and_restarts() {
    let data = tempfile::tempdir().expect("a directory");
    let first = server(Some(data.path()));
    let wire = &mut first.tcp();
    prepare(wire);
    for n in 1..=20 {
        assert_eq!(operate(wire, 1, "r", None, &add(1)).ok(), done(n, n + 1));
    }
    let before = read(wire, 1);
    first.kill();

    // Out of the log.
    let second = server(Some(data.path()));
    let wire = &mut second.tcp();
    assert_eq!(read(wire, 1), before);
    assert_eq!(operate(wire, 1, "r", Some(21), &add(1)).ok(), done(21, 22));
    let after = read(wire, 1);
    let (status, log) = second.stop();
    assert!(status.success(), "{log}");

    // Out of an image.
    let third = server(Some(data.path()));
    let wire = &mut third.tcp();
    assert_eq!(read(wire, 1), after);
    assert_eq!(operate(wire, 1, "r", Some(22), &add(1)).ok(), done(22, 23));
}
