//! Bytes that clients send and see, and that stored records have: they never change.

use super::test_calls::*;
use super::{Call, Change, Expiry, Outcome};

#[test]
fn a_counter_as_clients_send_it() {
    let args = hex(
        "00016b00000000000000000002000000010303000101016e0000000000000001000000000000000000000001000101016e",
    );
    let call = dynamic(vec![op(ADD, U64, field("n"), 1)]).value(field("n"));
    assert_eq!(call.args(), args);
    let call = Call::decode(&args).unwrap();
    assert_eq!((call.key, call.ttl_ms), (&b"k"[..], 0));
    let first = hex("0201016e030100000000000000");
    let outcome = call.program.apply(None, 0).unwrap();
    let result = hex("00000100000009030100000000000000");
    assert_eq!(outcome, Outcome::Done { change: Change::Replace(first.clone()), result });
    assert_eq!(call.expiry(&outcome, false), Expiry::Keep);
    let second = hex("0201016e030200000000000000");
    let result = hex("00000100000009030200000000000000");
    let outcome = call.program.apply(Some(&first), 0).unwrap();
    assert_eq!(outcome, Outcome::Done { change: Change::Replace(second), result });
}

#[test]
fn a_dynamic_record_with_everything() {
    let call = dynamic(vec![
        op(SET, 10, field("uv"), 300),
        op(SET, 11, field("iv"), -3),
        op(SET, F32, field("f"), 1.5f64.to_bits() as i64),
        op_bytes(SET, BYTES, field("s"), b"hi"),
        op_bytes(SET, FIXED, field("x"), b"abc"),
        op(CONFIG, ANY, field("t"), 9).aux(4).bytes(b"c"),
        op(SET, U16, column("t", b"r2", "c"), 513),
        op_bytes(SET, BYTES, column("t", b"r1", "d"), b""),
        op(SET, 4, column("t", b"r1", "c"), -1),
    ]);
    let call = call.value(At::Record).value(field("t")).value(row("t", b"r1")).value(row("t", b"r3"));
    let (stored, values) = call.count(field("t")).run(None).unwrap();
    let table = hex("1c 09 04 0163 02  0c 027231 02 0163 04 ff 0164 0c 00  09 027232 01 0163 01 0102");
    let mut expected = hex("02 06 0166 08 0000c03f 026976 0b 05 0173 0c 02 6869 0174 0e");
    expected.extend(&table);
    expected.extend(hex("027576 0a ac02 0178 0d 03 616263"));
    assert_eq!(stored.unwrap(), expected);
    assert_eq!(values[0], expected);
    assert_eq!(values[1], [&[2], &table[..]].concat());
    assert_eq!(values[2], hex("02 02 0163 04 ff 0164 0c 00"));
    assert_eq!(values[3], [15]);
    assert_eq!(values[4], hex("03 0200000000000000"));
}

#[test]
fn a_schema_record_with_everything() {
    let blob = schema(
        258,
        &[
            ("s", TestField::Cell(BYTES, 0)),
            ("n", TestField::Cell(U16, 0)),
            (
                "t",
                TestField::Table {
                    key: (U16, 0),
                    columns: vec![("c", 5, 0), ("d", FIXED, 2)],
                    cap: 300,
                    policy: 3,
                    by: 1,
                },
            ),
            ("", TestField::Cell(FIXED, 3)),
            ("v", TestField::Cell(11, 0)),
        ],
    );
    let expected_schema =
        hex("0201 01 05 0c 01 0e 01 02 05 0d02 ac02 03 01 0d03 0b 0d 0173 016e 0174 00 0176 0163 0164");
    assert_eq!(blob, expected_schema);
    let zero = with_schema(&blob, vec![]).value(field("s")).value(field(3)).value(column("t", &[1, 0], "c"));
    let (stored, values) = zero.run(None).unwrap();
    assert_eq!(stored.unwrap(), [&[1], &blob[..], &hex("0000 000000 00 00 00")[..]].concat());
    assert_eq!(values, [hex("0c00"), hex("0d03 000000"), hex("0f")]);
    let call = with_schema(
        &blob,
        vec![
            op_bytes(SET, ANY, field(0), b"text"),
            op(SET, U16, field("n"), 772),
            // As a number 256 is above 2.
            op(SET, 5, column("t", &[0, 1], 0), -2),
            op_bytes(SET, ANY, column(2, &[2, 0], "d"), b"zz"),
            op_bytes(SET, FIXED, field(3), b"abc"),
            op(ADD, ANY, field("v"), -65),
        ],
    );
    let (stored, values) = call.value(At::Record).value(field(2)).value(row(2, &[0, 1])).run(None).unwrap();
    let table = hex("02 0200 0000 7a7a 0001 feff 0000");
    let expected = [&[1], &blob[..], &hex("0403 616263 04 74657874"), &table, &hex("8101")].concat();
    assert_eq!(stored.unwrap(), expected);
    assert_eq!(values, [expected, [&[1], &table[..]].concat(), hex("01 02 05 feff 0d02 0000")]);
}
