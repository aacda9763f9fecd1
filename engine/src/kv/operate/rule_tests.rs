//! What calls do to records as a whole: making and deleting them, control flow, tables and their caps, schemas and MIGRATE.

use super::test_calls::*;
use super::{Call, Change, Expiry, OperateError, Outcome};

fn table_schema(cap: u64, policy: u8) -> TestField {
    TestField::Table { key: (U16, 0), columns: vec![("c", I64, 0), ("f", F64, 0)], cap, policy, by: 0 }
}

/// Keys of rows 0 to 9 that are in table `t`.
fn keys_left(record: &[u8], width: usize) -> String {
    let key = |digit: u8| [&[digit][..], &[0][..width - 1]].concat();
    let call = (b'0'..=b'9').fold(existing(vec![]), |call, digit| call.count(row("t", &key(digit))));
    let (_, values) = call.run(Some(record)).unwrap();
    (b'0'..=b'9').zip(values).filter(|(_, count)| count[1] == 1).map(|(digit, _)| char::from(digit)).collect()
}

#[test]
fn records_come_and_go() {
    let set = || op(SET, U8, field("n"), 1);
    // Nothing there and none made.
    assert_eq!(existing(vec![set()]).outcome(None), Ok(Outcome::NotFound));
    // Made, but nothing written.
    for ops in [
        vec![],
        vec![op(TRIM, 0, field("t"), 0)],
        vec![op(DEL, 0, field("n"), 0)],
        vec![set(), op(DEL, 0, field("n"), 0)],
    ] {
        assert_eq!(dynamic(ops).run(None).unwrap().0, None);
    }
    let stored = dynamic(vec![set()]).stored(None);
    // The last field goes, and the record with it.
    let call = existing(vec![op(DEL, 0, field("n"), 0)]).value(field("n")).count(At::Record);
    assert_eq!(call.run(Some(&stored)).unwrap(), (None, vec![hex("0f"), hex("03 0000000000000000")]));
    // The record goes, and what is behind is not run; before there is a key, nothing goes.
    let list = vec![op(DEL, 0, At::Record, 0), op(ADD, U8, field("n"), 5)];
    let call = dynamic(list).value(field("n")).value(At::Record).count(row("t", b"x"));
    let zero = hex("03 0000000000000000");
    assert_eq!(call.run(Some(&stored)).unwrap(), (None, vec![hex("0f"), hex("0f"), zero]));
    assert_eq!(call.run(None).unwrap().1[0], hex("00 05"));
    // What changes nothing stores nothing.
    let outcome = existing(vec![op(SET, U8, field("n"), 1)]).outcome(Some(&stored));
    assert!(matches!(outcome, Ok(Outcome::Done { change: Change::Keep, .. })), "{outcome:?}");
}

#[test]
fn lists_are_all_or_nothing() {
    let stored = dynamic(vec![op(SET, U8, field("n"), 1)]).stored(None);
    let ops =
        vec![op(ADD, U8, field("n"), 1), op(CHECK, 0, field("n"), 9).aux(EQ), op(ADD, U8, field("n"), 1)];
    let call = dynamic(ops).value(field("n")).count(At::Record);
    // Returns show the record as it was.
    let Ok(Outcome::CheckFailed { result }) = call.outcome(Some(&stored)) else { panic!() };
    assert_eq!(read_result(&result), (Some(1), vec![hex("00 01"), hex("03 0100000000000000")]));
    let blob = schema(1, &[("n", TestField::Cell(U8, 0))]);
    let call = TestCall { create: 1, schema: blob, ..call };
    let Ok(Outcome::CheckFailed { result }) = call.outcome(None) else { panic!() };
    assert_eq!(result, hex("01 0001 0002 00000001 0f 00000009 03 0000000000000000"));
    let failing = dynamic(vec![op(ADD, U8, field("n"), 1), op(ADD, F32, field("n"), 1)]);
    assert_eq!(failing.outcome(Some(&stored)), Err(OperateError::TypeNotApplicable));
}

#[test]
fn ifs_skip() {
    let stored = dynamic(vec![op(SET, U8, field("n"), 1)]).stored(None);
    let add = |by| op(ADD, U8, field("n"), by);
    let test = |comparison, skip| op(IF, 0, field("n"), 1).aux(comparison).b(skip);
    for (list, expected) in [
        (vec![test(EQ, 1), add(10), add(100)], 111),
        (vec![test(NE, 1), add(10), add(100)], 101),
        (vec![test(NE, 2), add(10), add(100)], 1),
        (vec![test(NE, 0), add(10), add(100)], 111),
        // An IF may be skipped.
        (vec![test(NE, 1), test(NE, 2), add(10), add(100)], 111),
        // A CHECK that is skipped does not fail.
        (vec![test(GT, 1), op(CHECK, 0, field("n"), 9), add(2)], 3),
    ] {
        let (_, values) = existing(list.clone()).value(field("n")).run(Some(&stored)).unwrap();
        assert_eq!(values[0], [0, expected], "{list:?}");
    }
}

#[test]
fn expiry() {
    let decode = |mode: u8, ttl_ms: u64, operation: TestOp| {
        let mut args = dynamic(vec![operation]).args();
        args[3..11].copy_from_slice(&ttl_ms.to_be_bytes());
        args[11] = mode;
        args
    };
    let stored = dynamic(vec![op(SET, U8, field("n"), 1)]).stored(None);
    let check = |mode: u8, ttl_ms: u64, operation: TestOp, expected: [Expiry; 2]| {
        let args = decode(mode, ttl_ms, operation);
        let call = Call::decode(&args).unwrap();
        for (before, expected) in [None, Some(&stored[..])].into_iter().zip(expected) {
            let outcome = call.program.apply(before, 0).unwrap();
            assert_eq!(
                call.expiry(&outcome, before.is_some()),
                expected,
                "mode {mode} ttl {ttl_ms} {before:?}"
            );
        }
    };
    let add = || op(ADD, U8, field("n"), 1);
    let read = || op(IF, 0, field("n"), 1);
    let fail = || op(CHECK, 0, field("n"), 9);
    let delete = || op(DEL, 0, At::Record, 0);
    use Expiry::*;
    check(0, 5, add(), [Keep, Keep]);
    check(1, 5, add(), [Set(5), Set(5)]);
    check(1, 0, add(), [Remove, Remove]);
    check(2, 5, add(), [Set(5), Keep]);
    // Set by a call that only reads, not where a check failed, nor where nothing is left.
    check(1, 5, read(), [Keep, Set(5)]);
    check(1, 5, fail(), [Keep, Keep]);
    check(1, 5, delete(), [Keep, Keep]);
    check(2, 5, read(), [Keep, Keep]);
    let max = crate::kv::TTL_MS_MAX;
    assert!(Call::decode(&decode(1, max, add())).is_ok());
    assert_eq!(Call::decode(&decode(1, max + 1, add())).unwrap_err(), OperateError::TtlOutOfRange);
    assert_eq!(Call::decode(&decode(3, 0, add())).unwrap_err(), OperateError::ArgumentsInvalid);
}

#[test]
fn calls_on_payloads_have_no_key_and_no_expiry() {
    let mut args = dynamic(vec![]).args();
    assert_eq!(Call::decode_in_payload(&args).unwrap_err(), OperateError::ArgumentsInvalid);
    args.remove(2);
    args[1] = 0;
    assert!(Call::decode_in_payload(&args).is_ok());
    for at in [9, 10] {
        let mut timed = args.clone();
        timed[at] = 1;
        assert_eq!(Call::decode_in_payload(&timed).unwrap_err(), OperateError::ArgumentsInvalid, "{at}");
    }
}

#[test]
fn a_full_table_lets_rows_go() {
    // Rows 1 to 5 with columns 30, 10, 20, 10, 30; then row 6.
    let columns = [30, 10, 20, 10, 30];
    let rows = |width: usize| {
        let key = move |digit: u8| [&[digit][..], &[0][..width - 1]].concat();
        let rows = (b'1'..)
            .zip(columns)
            .map(move |(digit, value)| op(SET, I64, column("t", &key(digit), "c"), value));
        (rows.collect::<Vec<_>>(), op(SET, I64, column("t", &key(b'6'), "c"), 0))
    };
    for (policy, after_new, after_trim) in
        [(0, "3456", "45"), (1, "3456", "45"), (2, "1236", "12"), (3, "1356", "15"), (4, "2346", "24")]
    {
        let (list, new) = rows(1);
        let stored = dynamic(list).stored(None);
        assert_eq!(keys_left(&stored, 1), "12345");
        let config = op(CONFIG, ANY, field("t"), 4).aux(policy).bytes(b"c");
        assert_eq!(keys_left(&existing(vec![config, new]).stored(Some(&stored)), 1), after_new, "{policy}");
        let trim = op(TRIM, ANY, field("t"), 2).aux(policy).bytes(b"c");
        assert_eq!(keys_left(&existing(vec![trim]).stored(Some(&stored)), 1), after_trim, "{policy}");
        let (list, new) = rows(2);
        let blob = schema(1, &[("t", table_schema(5, policy))]);
        let stored = with_schema(&blob, list).stored(None);
        let full = existing(vec![new.clone()]).stored(Some(&stored));
        assert_eq!(keys_left(&full, 2).len(), 5, "{policy}");
        for by in [op(TRIM, ANY, field(0), 2).b(0), op(TRIM, ANY, field("t"), 2).b(9).bytes(b"c")] {
            let trimmed = existing(vec![by.aux(policy)]).stored(Some(&stored));
            assert_eq!(keys_left(&trimmed, 2), after_trim, "{policy}");
        }
        // A row that is there needs no room.
        let again = op(SET, I64, column("t", b"1\0", "c"), 31);
        assert_eq!(keys_left(&existing(vec![again]).stored(Some(&stored)), 2), "12345", "{policy}");
    }
}

#[test]
fn eviction_sees_what_the_call_has_changed() {
    let set = |key: u8, value| op(SET, I64, column("t", &[key], "c"), value);
    let stored = dynamic(vec![
        set(b'1', 5),
        set(b'2', 6),
        set(b'3', 7),
        op(CONFIG, ANY, field("t"), 3).aux(3).bytes(b"c"),
    ])
    .stored(None);
    let run = |list| keys_left(&existing(list).stored(Some(&stored)), 1);
    assert_eq!(run(vec![set(b'4', 0)]), "234");
    // 4 is the least now, then 2, which was changed after the order was found, then 3.
    assert_eq!(run(vec![set(b'4', 0), set(b'5', 9)]), "235");
    assert_eq!(run(vec![set(b'4', 8), set(b'2', 9), set(b'5', 9)]), "245");
    assert_eq!(run(vec![set(b'4', 8), set(b'2', 9), set(b'2', 1), set(b'5', 9)]), "345");
    // A row that went and came back counts once.
    assert_eq!(run(vec![set(b'4', 8), set(b'1', 6), set(b'1', 9), set(b'5', 9)]), "145");
    let gone = op(DEL, 0, row("t", b"1"), 0);
    assert_eq!(run(vec![set(b'4', 8), op(DEL, 0, row("t", b"2"), 0), set(b'5', 9), set(b'6', 9)]), "456");
    assert_eq!(run(vec![gone, set(b'4', 8)]), "234");
    // A column that is not there is 0.
    let without = op(DEL, 0, column("t", b"3", "c"), 0);
    assert_eq!(run(vec![without, set(b'4', 8)]), "124");
}

#[test]
fn tables_keep_their_configuration() {
    let config = op(CONFIG, ANY, field("t"), 2).aux(1);
    let made = dynamic(vec![config.clone()]).value(field("t")).count(field("t"));
    let (stored, values) = made.run(None).unwrap();
    assert_eq!(values, [hex("02 04 02 01 00 00"), hex("03 0000000000000000")]);
    // A table without rows is there; the last row does not take it along, nor the last column the row.
    let add = op(SET, U8, column("t", b"r", "c"), 1);
    let clear = op(DEL, 0, column("t", b"r", "c"), 0);
    let call = existing(vec![add.clone(), clear]).count(row("t", b"r")).value(row("t", b"r"));
    let (stored, values) = call.run(stored.as_deref()).unwrap();
    assert_eq!(values, [hex("03 0100000000000000"), hex("02 00")]);
    let gone = existing(vec![op(DEL, 0, row("t", b"r"), 0)]).value(field("t"));
    assert_eq!(gone.run(stored.as_deref()).unwrap().1, [hex("02 04 02 01 00 00")]);
    let refused =
        |operation: TestOp, stored: &[u8]| existing(vec![operation]).outcome(Some(stored)).unwrap_err();
    let scalar = dynamic(vec![op(SET, U8, field("t"), 1)]).stored(None);
    let trim = op(TRIM, ANY, field("t"), 2);
    assert_eq!(refused(config.clone(), &scalar), OperateError::TypeNotApplicable);
    assert_eq!(refused(trim.clone(), &scalar), OperateError::TypeNotApplicable);
    assert_eq!(refused(add, &scalar), OperateError::PathDoesNotFit);
    assert_eq!(refused(op(SET, U8, field("t"), 1), &stored.unwrap()), OperateError::TypeNotApplicable);
    let blob = schema(1, &[("t", table_schema(0, 0))]);
    let stored = with_schema(&blob, vec![]).stored(None);
    assert_eq!(refused(config, &stored), OperateError::RecordModeMismatch);
    assert_eq!(refused(trim.clone().aux(3).b(2), &stored), OperateError::PathDoesNotFit);
    assert_eq!(refused(trim.aux(3).b(-1), &stored), OperateError::PathDoesNotFit);
}

#[test]
fn a_schema_is_always_there() {
    let blob = schema(
        1,
        &[("n", TestField::Cell(U16, 0)), ("s", TestField::Cell(BYTES, 0)), ("t", table_schema(0, 0))],
    );
    let zero = with_schema(&blob, vec![]).stored(None);
    let ops = vec![
        op(SET, ANY, field("n"), 7),
        op_bytes(SET, ANY, field("s"), b"x"),
        op(SET, ANY, column("t", b"rr", "c"), 1),
        op(SET, ANY, column("t", b"ss", "c"), 1),
    ];
    let full = existing(ops).stored(Some(&zero));
    let delete = |at| existing(vec![op(DEL, 0, at, 0)]).stored(Some(&full));
    let call = |record: &[u8], at| existing(vec![]).value(at).run(Some(record)).unwrap().1.remove(0);
    assert_eq!(call(&delete(field("n")), field("n")), hex("01 0000"));
    assert_eq!(call(&delete(field("s")), field("s")), hex("0c 00"));
    assert_eq!(call(&delete(field("t")), field("t")), hex("01 00"));
    assert_eq!(call(&delete(row("t", b"rr")), row("t", b"rr")), hex("0f"));
    assert_eq!(call(&delete(column("t", b"rr", "c")), column("t", b"rr", "c")), hex("07 0000000000000000"));
    // What is not there is not made to be zero.
    assert_eq!(delete(column("t", b"qq", "c")), full);
    let all = [field("n"), field("s"), field("t")].map(|at| op(DEL, 0, at, 0));
    assert_eq!(existing(all.into()).stored(Some(&full)), zero);
    for at in
        [field("m"), field(3), row("n", b"rr"), row("t", b"r"), row("t", b"rrr"), column("t", b"rr", 2u32)]
    {
        let refused = existing(vec![op(CHECK, 0, at.clone(), 0)]).outcome(Some(&full));
        assert_eq!(refused, Err(OperateError::PathDoesNotFit), "{at:?}");
    }
}

#[test]
fn modes_and_versions() {
    let blob = |version| schema(version, &[("n", TestField::Cell(U8, 0))]);
    let of_schema = with_schema(&blob(2), vec![]).stored(None);
    let of_none = dynamic(vec![op(SET, U8, field("n"), 1)]).stored(None);
    let outcome = |call: TestCall, stored: &[u8]| call.outcome(Some(stored)).map(drop);
    assert_eq!(outcome(with_schema(&blob(2), vec![]), &of_schema), Ok(()));
    assert_eq!(outcome(with_schema(&blob(1), vec![]), &of_schema), Err(OperateError::SchemaVersionMismatch));
    assert_eq!(outcome(with_schema(&blob(2), vec![]), &of_none), Err(OperateError::RecordModeMismatch));
    assert_eq!(outcome(dynamic(vec![]), &of_schema), Err(OperateError::RecordModeMismatch));
    // Only the version is compared, but the schema must be one.
    let other = schema(2, &[("m", TestField::Cell(F64, 0))]);
    assert_eq!(with_schema(&other, vec![]).value(At::Record).run(Some(&of_schema)).unwrap().1[0], of_schema);
    assert_eq!(outcome(with_schema(&[], vec![]), &of_schema), Err(OperateError::SchemaInvalid));
    // Nobody looks at it where no schema record is to be made.
    assert_eq!(outcome(TestCall { schema: vec![9], ..existing(vec![]) }, &of_schema), Ok(()));
    assert_eq!(outcome(TestCall { schema: vec![9], ..dynamic(vec![]) }, &of_none), Ok(()));
    // Positions and empty names are nothing in a dynamic record.
    for at in [
        field(0),
        field(""),
        column("t", b"r", 0u32),
        column(0, b"r", "c"),
        column("t", b"r", ""),
        row(0, b"r"),
    ] {
        let refused = existing(vec![op(CHECK, 0, at.clone(), 0)]);
        assert_eq!(outcome(refused, &of_none), Err(OperateError::PathDoesNotFit), "{at:?}");
        assert_eq!(
            outcome(existing(vec![]).value(at.clone()), &of_none),
            Err(OperateError::PathDoesNotFit),
            "{at:?}"
        );
    }
}

#[test]
fn schemas_append() {
    let cell = |code| TestField::Cell(code, 1);
    let table = |columns: &[(&'static str, u8, u8)], cap, policy| TestField::Table {
        key: (U8, 0),
        columns: columns.into(),
        cap,
        policy,
        by: 0,
    };
    let old = schema(
        3,
        &[("a", cell(U16)), ("s", cell(BYTES)), ("t", table(&[("c", U8, 0)], 0, 0)), ("", cell(10))],
    );
    let rows = (1..=3).map(|key| op(SET, ANY, column("t", &[key], "c"), 10 - i64::from(key)));
    let ops =
        [op(SET, ANY, field("a"), 513), op_bytes(SET, ANY, field("s"), b"xy"), op(SET, ANY, field(3), 300)];
    let stored = with_schema(&old, ops.into_iter().chain(rows).collect()).stored(None);
    let migrate =
        |blob: &[u8], from| existing(vec![op_bytes(MIGRATE, 0, At::Record, blob).a(from)]).run(Some(&stored));
    let next = schema(
        5,
        &[
            ("a", cell(U16)),
            ("s", cell(BYTES)),
            ("t", table(&[("c", U8, 0), ("d", FIXED, 2)], 2, 3)),
            ("v", cell(10)),
            ("b", cell(U32)),
            ("u", table(&[], 0, 0)),
            ("w", cell(11)),
        ],
    );
    let expected = hex("0102 00000000  02 7879  02 01 09 0000 02 08 0000  ac02  00  00");
    assert_eq!(migrate(&next, 3).unwrap().0.unwrap(), [&[1], &next[..], &expected].concat());
    assert_eq!(migrate(&next, 4), Err(OperateError::SchemaVersionMismatch));
    assert_eq!(migrate(&next, -1), Err(OperateError::RecordModeMismatch));
    let refused =
        |version, fields: &[(&'static str, TestField)]| migrate(&schema(version, fields), 3).unwrap_err();
    let t = || table(&[("c", U8, 0)], 0, 0);
    let same = [("a", cell(U16)), ("s", cell(BYTES)), ("t", t()), ("", cell(10))];
    assert_eq!(refused(3, &same), OperateError::SchemaVersionMismatch);
    assert!(migrate(&schema(4, &same), 3).is_ok());
    for wrong in [
        vec![("a", cell(U16)), ("s", cell(BYTES)), ("t", t())],
        vec![("a", cell(U32)), ("s", cell(BYTES)), ("t", t()), ("", cell(10))],
        vec![("z", cell(U16)), ("s", cell(BYTES)), ("t", t()), ("", cell(10))],
        vec![("", cell(U16)), ("", cell(BYTES)), ("", table(&[("", U8, 0)], 0, 0)), ("", cell(10))],
        vec![("a", cell(U16)), ("s", cell(BYTES)), ("t", table(&[], 0, 0)), ("", cell(10))],
        vec![("a", cell(U16)), ("s", cell(BYTES)), ("t", table(&[("c", 4, 0)], 0, 0)), ("", cell(10))],
        vec![("a", cell(U16)), ("s", cell(BYTES)), ("t", table(&[("d", U8, 0)], 0, 0)), ("", cell(10))],
        vec![("a", cell(U16)), ("s", cell(BYTES)), ("t", cell(10)), ("", cell(10))],
    ] {
        assert_eq!(refused(4, &wrong), OperateError::SchemaInvalid, "{wrong:?}");
    }
    // A check behind it that fails shows the record as it was.
    let ops = vec![op_bytes(MIGRATE, 0, At::Record, &next).a(3), op(CHECK, 0, field("b"), 1)];
    let Ok(Outcome::CheckFailed { result }) = existing(ops).value(At::Record).outcome(Some(&stored)) else {
        panic!()
    };
    assert_eq!(read_result(&result), (Some(1), vec![stored.clone()]));
}

#[test]
fn dynamic_records_become_schema_records() {
    let stored = dynamic(vec![
        op(SET, I64, field("n"), -7),
        op(SET, F64, field("f"), 0.1f64.to_bits() as i64),
        op_bytes(SET, BYTES, field("s"), b"abc"),
        op(SET, U32, column("t", &[0, 1], "c"), 1000),
        op(SET, U32, column("t", &[2, 0], "c"), 2),
        op(SET, U32, column("t", &[3, 0], "d"), 3),
        op(CONFIG, 0, field("t"), 9).aux(2),
    ])
    .stored(None);
    let table = |cap, policy| TestField::Table {
        key: (U16, 0),
        columns: vec![("c", U8, 0), ("d", U8, 0)],
        cap,
        policy,
        by: 0,
    };
    let full = |table| {
        schema(
            1,
            &[
                ("zero", TestField::Cell(10, 0)),
                ("t", table),
                ("s", TestField::Cell(FIXED, 3)),
                ("f", TestField::Cell(F32, 0)),
                ("n", TestField::Cell(U8, 0)),
            ],
        )
    };
    let run = |blob: &[u8], aux| {
        let migrate = op_bytes(MIGRATE, 0, At::Record, blob).a(-1).aux(aux);
        existing(vec![migrate]).run(Some(&stored)).map(|(stored, _)| stored.unwrap())
    };
    // Values saturate and round; row keys are ordered as numbers.
    let blob = full(table(0, 0));
    let expected = hex("616263 cdcccc3d 00  00  03 0200 02 00 0300 00 03 0001 ff 00");
    assert_eq!(run(&blob, 0), Ok([&[1], &blob[..], &expected].concat()));
    let blob = full(table(2, 1));
    let expected = hex("616263 cdcccc3d 00  00  02 0300 00 03 0001 ff 00");
    assert_eq!(run(&blob, 0), Ok([&[1], &blob[..], &expected].concat()));
    let fields = |name, field| schema(1, &[(name, field)]);
    let narrow = fields("n", TestField::Cell(I64, 0));
    assert_eq!(run(&narrow, 0), Err(OperateError::PathDoesNotFit));
    assert_eq!(run(&narrow, 1), Ok([&[1], &narrow[..], &(-7i64).to_le_bytes()].concat()));
    for (blob, expected) in [
        (fields("n", TestField::Cell(F64, 0)), OperateError::TypeNotApplicable),
        (fields("n", table(0, 0)), OperateError::TypeNotApplicable),
        (fields("t", TestField::Cell(U8, 0)), OperateError::TypeNotApplicable),
        (fields("s", TestField::Cell(FIXED, 2)), OperateError::TypeNotApplicable),
        (
            fields("t", TestField::Table { key: (U8, 0), columns: vec![], cap: 0, policy: 0, by: 0 }),
            OperateError::PathDoesNotFit,
        ),
        (fields("", TestField::Cell(U8, 0)), OperateError::SchemaInvalid),
    ] {
        assert_eq!(run(&blob, 1), Err(expected), "{blob:?}");
    }
    let few = TestField::Table { key: (FIXED, 2), columns: vec![("c", U8, 0)], cap: 0, policy: 0, by: 0 };
    assert_eq!(run(&fields("t", few.clone()), 0), Err(OperateError::PathDoesNotFit));
    let blob = fields("t", few);
    let expected = hex("03 0001 ff 0200 02 0300 00");
    assert_eq!(run(&blob, 1), Ok([&[1], &blob[..], &expected].concat()));
    let schema_record = run(&narrow, 1).unwrap();
    let again = existing(vec![op_bytes(MIGRATE, 0, At::Record, &narrow).a(-1)]).outcome(Some(&schema_record));
    assert_eq!(again, Err(OperateError::RecordModeMismatch));
}
