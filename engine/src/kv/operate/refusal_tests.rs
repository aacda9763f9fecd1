//! Calls, schemas and stored bytes that are refused: each error, each cap at its limit and one above, every cut.

use super::test_calls::*;
use super::*;

const SHORT: OperateError = OperateError::ArgsTooShort;
const INVALID: OperateError = OperateError::ArgumentsInvalid;
const CAP: OperateError = OperateError::CapExceeded;
const PATH: OperateError = OperateError::PathDoesNotFit;
const MALFORMED: OperateError = OperateError::StoredRecordMalformed;

fn decoded(call: &TestCall) -> Result<(), OperateError> {
    Call::decode(&call.args()).map(drop)
}

fn check_op(operation: TestOp, expected: Result<(), OperateError>) {
    assert_eq!(decoded(&existing(vec![operation.clone()])), expected, "{operation:?}");
    // Also where it would never be run.
    let skip = op(IF, 0, At::Record, 0).aux(EXISTS).b(1);
    let behind = existing(vec![skip, operation]).outcome(None).map(drop);
    assert_eq!(behind, expected);
}

#[test]
fn texts() {
    let texts = [
        (OperateError::TypeNotApplicable, "operate type not applicable"),
        (PATH, "operate path does not fit the record"),
        (OperateError::UnknownOpcode, "operate unknown opcode"),
        (OperateError::UnknownComparator, "operate unknown comparator"),
        (OperateError::SchemaInvalid, "operate schema invalid"),
        (OperateError::SchemaVersionMismatch, "operate schema version mismatch"),
        (OperateError::RecordModeMismatch, "operate record mode mismatch"),
        (CAP, "operate cap exceeded"),
        (MALFORMED, "operate stored record malformed"),
        (INVALID, "operate call arguments invalid"),
        (OperateError::IfSkipOutOfRange, "operate IF skip count out of range"),
        (SHORT, "args too short"),
        (OperateError::TtlOutOfRange, "ttlMs out of range"),
    ];
    texts.iter().for_each(|(error, text)| assert_eq!(error.to_string(), *text));
}

#[test]
fn operations_that_no_record_could_carry_out() {
    for code in 0..=255 {
        let known = matches!(code, 1..=12 | 21 | 22 | 30 | 31);
        let expected = if known { Ok(()) } else { Err(OperateError::UnknownOpcode) };
        // MIGRATE is one, but only as the first.
        if code != MIGRATE {
            check_op(op(code, U8, field("n"), 0), expected);
        }
    }
    let migrate = op(MIGRATE, 0, At::Record, 0);
    assert_eq!(
        decoded(&existing(vec![op(DEL, 0, field("n"), 0), migrate.clone()])),
        Err(OperateError::UnknownOpcode)
    );
    for (operation, expected) in [
        (migrate.clone(), Ok(())),
        (migrate.clone().a(-1).aux(1), Ok(())),
        (migrate.clone().a(65_535), Ok(())),
        (migrate.clone().a(65_536), Err(INVALID)),
        (migrate.clone().a(-2), Err(INVALID)),
        (migrate.clone().aux(2), Err(INVALID)),
        (op(MIGRATE, 0, field("n"), 0), Err(PATH)),
    ] {
        assert_eq!(decoded(&existing(vec![operation.clone()])), expected, "{operation:?}");
    }
    for code in [IF, CHECK] {
        check_op(op(code, ANY, field("n"), 0).aux(7), Ok(()));
        check_op(op(code, ANY, field("n"), 0).aux(8), Err(OperateError::UnknownComparator));
    }
    for code in [SET, ADD, MIN, AND, SHL, STAMP] {
        check_op(op(code, U8, At::Record, 0), Err(PATH));
        check_op(op(code, U8, row("t", b"r"), 0), Err(PATH));
        check_op(op(code, U8, column("t", b"r", "c"), 0), Ok(()));
    }
    for code in [CONFIG, TRIM] {
        for at in [At::Record, row("t", b"r"), column("t", b"r", "c")] {
            check_op(op(code, 0, at, 0), Err(PATH));
        }
        for (a, expected) in
            [(0, Ok(())), (1 << 20, Ok(())), (-1, Err(INVALID)), ((1 << 20) + 1, Err(INVALID))]
        {
            check_op(op(code, 0, field("t"), a), expected);
        }
        check_op(op(code, 0, field("t"), 0).aux(4).bytes(b"c"), Ok(()));
        check_op(op(code, 0, field("t"), 0).aux(5).bytes(b"c"), Err(INVALID));
    }
    check_op(op(CONFIG, 0, field("t"), 0).aux(3), Err(INVALID));
    check_op(op(CONFIG, 0, field("t"), 0).bytes(&[b'c'; 255]), Ok(()));
    check_op(op(CONFIG, 0, field("t"), 0).bytes(&[b'c'; 256]), Err(INVALID));
    check_op(op(TRIM, 0, field("t"), 0).aux(3), Ok(()));
    let list = |skip| existing(vec![op(IF, 0, At::Record, 0).b(skip), op(SET, U8, field("n"), 0)]);
    for (skip, fits) in [(0, true), (1, true), (2, false), (-1, false), (i64::MAX, false), (i64::MIN, false)]
    {
        let expected = if fits { Ok(()) } else { Err(OperateError::IfSkipOutOfRange) };
        assert_eq!(decoded(&list(skip)), expected, "{skip}");
    }
}

#[test]
fn paths() {
    let decode = |path: &[u8]| {
        let mut args = existing(vec![]).args();
        let at = args.len() - 2;
        args[at..].copy_from_slice(&[0, 1]);
        args.push(0);
        args.extend_from_slice(path);
        Call::decode(&args).map(drop)
    };
    for (path, expected) in [
        (&[0][..], Ok(())),
        (&[4], Err(INVALID)),
        (&[1, 2], Err(INVALID)),
        (&[1, 1, 0], Ok(())),
        (&[1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f], Ok(())),
        (&[1, 0, 0x80, 0x80, 0x80, 0x80, 0x10], Err(INVALID)),
        (&[1, 0, 0x80, 0], Err(INVALID)),
        (&[2, 1, 1, b't', 0], Err(INVALID)),
        (&[3, 1, 1, b't', 1, b'r', 2], Err(INVALID)),
        (&[2, 1, 1, b't', 2, b'r'], Err(SHORT)),
    ] {
        assert_eq!(decode(path), expected, "{path:?}");
    }
    let mut trailing = existing(vec![]).args();
    trailing.push(0);
    assert_eq!(Call::decode(&trailing).unwrap_err(), INVALID);
    for (at, value, expected) in [(12, 3, INVALID), (11, 3, INVALID)] {
        let mut args = existing(vec![]).args();
        args[at] = value;
        assert_eq!(Call::decode(&args).unwrap_err(), expected, "byte {at}");
    }
    let mut args = existing(vec![]).value(At::Record).args();
    let at = args.len() - 2;
    args[at] = 2;
    assert_eq!(Call::decode(&args).unwrap_err(), INVALID);
}

#[test]
fn counts() {
    let ops = |count| existing(vec![op(DEL, 0, field("n"), 0); count]);
    let returns = |count| TestCall { returns: vec![(1, At::Record); count], ..existing(vec![]) };
    assert_eq!(decoded(&ops(CALL_OPS_MAX)), Ok(()));
    assert_eq!(decoded(&ops(CALL_OPS_MAX + 1)), Err(CAP));
    assert_eq!(decoded(&returns(CALL_RETURNS_MAX)), Ok(()));
    assert_eq!(decoded(&returns(CALL_RETURNS_MAX + 1)), Err(CAP));
    // More than the bytes could hold, whatever the cap.
    let mut args = existing(vec![]).args();
    let at = args.len() - 4;
    args[at..at + 2].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(Call::decode(&args).unwrap_err(), SHORT);
    let mut args = existing(vec![]).args();
    let at = args.len() - 2;
    args[at..].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(Call::decode(&args).unwrap_err(), SHORT);
}

#[test]
fn returns_have_a_budget() {
    // 255 values of 65,536 bytes (a type, a length of three, the bytes), and one of what is left.
    let big = vec![7; 65_532];
    let stored = dynamic(vec![op_bytes(SET, BYTES, field("b"), &big)]).stored(None);
    let run = |last: usize| {
        let set = op_bytes(SET, BYTES, field("c"), &vec![1; last]);
        let call = (0..254).fold(existing(vec![set]), |call, _| call.value(field("b")));
        call.value(field("c")).outcome(Some(&stored)).map(drop)
    };
    let left = RETURNED_MAX - 254 * 65_536;
    assert_eq!(run(left - 4), Ok(()));
    assert_eq!(run(left - 3), Err(CAP));
}

#[test]
fn schemas() {
    let decode = |blob: &[u8]| with_schema(blob, vec![]).outcome(None).map(drop);
    let invalid = Err(OperateError::SchemaInvalid);
    assert_eq!(decode(&[]), invalid);
    for (blob, expected) in [
        ("0100 00 00 00", Ok(())),
        ("0100 02 00 00", invalid),
        ("0100 00 00 00 00", invalid),
        // Names where none are stored, or not as many as fields.
        ("0100 00 01 00 02 0161", invalid),
        ("0100 01 01 00 00", invalid),
        ("0100 01 01 00 02 0161", Ok(())),
        ("0100 01 01 00 03 0161 00", invalid),
        ("0100 01 02 00 00 04 0161 0161", invalid),
        ("0100 01 02 00 00 02 00 00", Ok(())),
        // Types that no field has.
        ("0100 00 01 0f 00", invalid),
        ("0100 00 01 0d 01 00", Ok(())),
        ("0100 00 01 0d 00 00", invalid),
        // LEB128 that could be shorter.
        ("0100 00 8000 00", invalid),
        // Tables: key, columns, cap, policy, column.
        ("0100 00 01 0e 03 01 00 00 00 00 00", Ok(())),
        ("0100 00 01 0e 0d02 01 00 00 00 00 00", Ok(())),
        ("0100 00 01 0e 04 01 00 00 00 00 00", invalid),
        ("0100 00 01 0e 0c 01 00 00 00 00 00", invalid),
        ("0100 00 01 0e 03 01 0c 00 00 00 00", invalid),
        ("0100 00 01 0e 03 01 0a 00 00 00 00", invalid),
        ("0100 00 01 0e 03 01 0e 00 00 00 00", invalid),
        ("0100 00 01 0e 03 01 00 00 05 00 00", invalid),
        ("0100 00 01 0e 03 01 00 00 04 01 00", invalid),
        ("0100 00 01 0e 03 00 00 03 00 00", invalid),
        ("0100 00 01 0e 03 00 00 02 00 00", Ok(())),
        ("0100 00 01 0e 03 01 00 808040 00 00 00", Ok(())),
        ("0100 00 01 0e 03 01 00 818040 00 00 00", Err(CAP)),
        ("0100 01 01 0e 03 02 00 00 00 00 00 05 00 0163 0163", invalid),
        ("0100 01 01 0e 03 02 00 00 00 00 00 06 0163 0163 0164", Ok(())),
    ] {
        assert_eq!(decode(&hex(blob)), expected, "{blob}");
    }
    let fields = |count: usize| {
        let mut blob = vec![1, 0, 0];
        leb(count as u64, &mut blob);
        blob.resize(blob.len() + count, 0);
        blob.push(0);
        blob
    };
    assert_eq!(fields(SCHEMA_MAX - 6).len(), SCHEMA_MAX);
    assert_eq!(decode(&fields(SCHEMA_MAX - 6)), Ok(()));
    assert_eq!(decode(&fields(SCHEMA_MAX - 5)), Err(CAP));
    let names = |len: usize| {
        let count = 17;
        let mut blob = vec![1, 0, 1, count];
        blob.resize(blob.len() + usize::from(count), 0);
        leb(len as u64, &mut blob);
        let mut left = len;
        for at in 0..count {
            let name_len = (left - usize::from(count - at)).min(255);
            blob.push(name_len as u8);
            blob.resize(blob.len() + name_len, at);
            left -= 1 + name_len;
        }
        blob
    };
    assert_eq!(decode(&names(SCHEMA_NAMES_MAX)), Ok(()));
    assert_eq!(decode(&names(SCHEMA_NAMES_MAX + 1)), Err(CAP));
    let width = |len: usize| {
        let columns =
            (0..16).map(|_| ("", FIXED, 255)).chain([("", FIXED, (len - 1 - 16 * 255) as u8)]).collect();
        schema(1, &[("", TestField::Table { key: (U8, 0), columns, cap: 0, policy: 0, by: 0 })])
    };
    assert_eq!(decode(&width(ROW_WIDTH_MAX)), Ok(()));
    assert_eq!(decode(&width(ROW_WIDTH_MAX + 1)), Err(CAP));
    assert_eq!(decode(&vec![0; SCHEMA_MAX + SCHEMA_NAMES_MAX + 1]), Err(CAP));
}

/// A dynamic record of fields, each a name and what follows it.
fn record(fields: &[(&[u8], Vec<u8>)]) -> Vec<u8> {
    let mut out = vec![2];
    leb(fields.len() as u64, &mut out);
    for (name, body) in fields {
        out.push(name.len() as u8);
        out.extend_from_slice(name);
        out.extend(body);
    }
    out
}

/// A table without a cap, of rows behind their count.
fn table(count: usize, rows: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 0, 0];
    leb(count as u64, &mut body);
    body.extend(rows);
    let mut out = vec![14];
    leb(body.len() as u64, &mut out);
    out.extend(body);
    out
}

#[test]
fn fields_columns_and_rows_have_caps() {
    let names = (0..FIELDS_MAX).map(|at| (at as u32).to_be_bytes()[1..].to_vec()).collect::<Vec<_>>();
    let fields: Vec<(&[u8], Vec<u8>)> = names.iter().map(|name| (&name[..], vec![0, 1])).collect();
    let one_more = || op(SET, U8, field("x"), 1);
    let full = record(&fields);
    assert_eq!(dynamic(vec![one_more()]).outcome(Some(&full)), Err(CAP));
    assert!(dynamic(vec![one_more()]).outcome(Some(&record(&fields[1..]))).is_ok());
    // One may go for another.
    let swap =
        vec![TestOp { at: At::Field(Seg::Name(names[9].clone())), ..op(DEL, 0, At::Record, 0) }, one_more()];
    assert!(dynamic(swap).outcome(Some(&full)).is_ok());
    // A row whose columns are those fields.
    let columns = |count: usize| {
        let mut row = vec![1, b'r'];
        leb(count as u64, &mut row);
        names[..count].iter().for_each(|name| row.extend([&[name.len() as u8], &name[..], &[0, 1]].concat()));
        let mut framed = vec![];
        leb(row.len() as u64, &mut framed);
        framed.extend(row);
        record(&[(b"t", table(1, &framed))])
    };
    let one_more = || dynamic(vec![op(SET, U8, column("t", b"r", "x"), 1)]);
    assert!(one_more().outcome(Some(&columns(COLUMNS_MAX - 1))).is_ok());
    assert_eq!(one_more().outcome(Some(&columns(COLUMNS_MAX))), Err(CAP));
    // Rows of two tables together.
    let half = |count: usize, name: &'static [u8]| {
        let rows = (0..count as u32).flat_map(|at| [&[5, 3], &at.to_be_bytes()[1..], &[0]].concat());
        (name, table(count, &rows.collect::<Vec<u8>>()))
    };
    let one_more = |name| dynamic(vec![op(SET, U8, column(name, b"new!", "x"), 1)]);
    let below = record(&[half(ROWS_MAX / 2, b"t"), half(ROWS_MAX / 2 - 1, b"u")]);
    assert!(one_more("u").outcome(Some(&below)).is_ok());
    assert!(one_more("v").outcome(Some(&below)).is_ok());
    let full = record(&[half(ROWS_MAX / 2, b"t"), half(ROWS_MAX / 2, b"u")]);
    assert_eq!(one_more("u").outcome(Some(&full)), Err(CAP));
    assert_eq!(one_more("v").outcome(Some(&full)), Err(CAP));
    // What lets a row go makes room, in another table as well.
    let less = (ROWS_MAX / 2 - 1) as i64;
    for gone in
        [op(DEL, 0, row("t", &[0, 0, 7]), 0), op(CONFIG, 0, field("t"), less), op(TRIM, 0, field("t"), less)]
    {
        let ops =
            |count| [vec![gone.clone()], one_more("u").ops, one_more("v").ops[..count].to_vec()].concat();
        assert!(dynamic(ops(0)).outcome(Some(&full)).is_ok(), "{gone:?}");
        assert_eq!(dynamic(ops(1)).outcome(Some(&full)), Err(CAP), "{gone:?}");
    }
    // A table whose own cap makes room, and one that goes.
    let config = op(CONFIG, 0, field("t"), (ROWS_MAX / 2) as i64);
    assert!(dynamic(vec![config, one_more("t").ops.remove(0)]).outcome(Some(&full)).is_ok());
    assert!(
        dynamic(vec![op(DEL, 0, field("u"), 0), one_more("t").ops.remove(0)]).outcome(Some(&full)).is_ok()
    );
    let above = record(&[half(ROWS_MAX / 2, b"t"), half(ROWS_MAX / 2 + 1, b"u")]);
    assert_eq!(existing(vec![]).outcome(Some(&above)), Err(MALFORMED));
}

#[test]
fn records_have_a_longest() {
    let bytes = vec![7; 65_535];
    let names: Vec<[u8; 2]> = (0..255u8).map(|at| [b'a', at]).collect();
    let body = [&[12, 0xff, 0xff, 3], &bytes[..]].concat();
    let fields: Vec<(&[u8], Vec<u8>)> = names.iter().map(|name| (&name[..], body.clone())).collect();
    let stored = record(&fields);
    let run = |len: usize| {
        let set = op_bytes(SET, BYTES, field("z"), &vec![1; len]);
        existing(vec![set]).run(Some(&stored)).map(|(stored, _)| stored.unwrap().len())
    };
    // A name of one byte, a type, a length of three.
    let left = RECORD_MAX - stored.len() - 6;
    assert_eq!(run(left), Ok(RECORD_MAX));
    assert_eq!(run(left + 1), Err(CAP));
    let mut long = record(&fields);
    long.resize(RECORD_MAX + 1, 0);
    assert_eq!(existing(vec![]).outcome(Some(&long)), Err(MALFORMED));
    // Columns that a schema adds to many rows.
    let table = |columns| TestField::Table { key: (U32, 0), columns, cap: 0, policy: 0, by: 0 };
    let old = schema(1, &[("t", table(vec![]))]);
    let mut stored = [&[1], &old[..]].concat();
    leb(10_000, &mut stored);
    (0..10_000u32).for_each(|key| stored.extend(key.to_le_bytes()));
    for (width, expected) in [(1_600, Ok(())), (1_700, Err(CAP))] {
        let columns = (0..width / 100).map(|_| ("", FIXED, 100)).collect();
        let next = schema(2, &[("t", table(columns))]);
        let migrate = existing(vec![op_bytes(MIGRATE, 0, At::Record, &next).a(1)]);
        assert_eq!(migrate.outcome(Some(&stored)).map(drop), expected);
    }
}

#[test]
fn stored_bytes_that_are_no_record() {
    let whole = existing(vec![]).value(At::Record);
    let refused = |stored: &[u8]| {
        assert_eq!(whole.outcome(Some(stored)), Err(MALFORMED), "{stored:?}");
    };
    for text in [
        "",
        "00",
        "03",
        "01",
        "02",
        "0200 00",
        "746578742074686174206973206e6f207265636f7264",
        // Names out of order, twice, empty.
        "0202 0162 00 01 0161 00 01",
        "0202 0161 00 01 0161 00 01",
        "0201 00 00 01",
        // Not the shortest number; a type without data; NaN in another form; a length above the bytes there are.
        "028100 0161 00 01",
        "0201 0161 0a 8000",
        "0201 0161 0f",
        "0201 0161 0d00",
        "0201 0161 08 0100c07f",
        "0201 0161 09 000000000000f8ff",
        "0201 0161 0c 05 61",
        "0201 0161 0c 80 80 04",
        // Fewer and more fields than there are bytes for.
        "0202 0161 00 01",
        "0201 0161 00 01 00",
        "02ffffffff0f",
        // A policy that is none, one without its column, a cap above the greatest.
        "0201 0174 0e 04 00 05 00 00",
        "0201 0174 0e 04 00 03 00 00",
        "0201 0174 0e 06 818040 00 00 00",
        "0201 0174 0e 05 00 00 00 00 00",
        "0201 0174 0e 04 00 00 00 01",
        // Rows out of order, a row longer than it says, an empty key, columns out of order.
        "0201 0174 0e 0c 00 00 00 02 03 0162 00 03 0161 00",
        "0201 0174 0e 09 00 00 00 01 04 0162 00 00",
        "0201 0174 0e 07 00 00 00 01 02 00 00",
        "0201 0174 0e 08 00 00 00 01 04 0162 00",
        "0201 0174 0e 10 00 00 00 01 0b 0172 02 0162 00 01 0161 00 01",
        "0201 0174 0e 10 00 00 00 01 0b 0172 02 0161 00 01 0161 00 01",
        "0201 0174 0e 0d 00 00 00 01 08 0172 01 0161 00 01 00",
        // Schema records: too short, too long, rows that do not ascend, a NaN in a row.
        "01 0100 00 01 01 00 00",
        "01 0100 00 01 01 00 00 00 00",
        "01 0100 00 01 0e 00 00 00 00 00 00 02 05 05",
        "01 0100 00 01 0e 00 01 08 00 00 00 00 01 05 0100c07f",
        "01 0100 00 01 0e 00 00 00 00 00 00 8080808010",
        "01 0100 02 00 00",
    ] {
        refused(&hex(text));
    }
    // A call that does not touch the table does not look into it, and leaves it as it is.
    let damaged = hex("0202 016e 00 01 0174 0e 0c 00 00 00 02 03 0162 00 03 0161 00");
    let (stored, values) =
        existing(vec![op(ADD, U8, field("n"), 1)]).value(field("n")).run(Some(&damaged)).unwrap();
    assert_eq!(values[0], [0, 2]);
    let mut expected = damaged.clone();
    expected[5] = 2;
    assert_eq!(stored, Some(expected));
    for call in [
        existing(vec![op(TRIM, 0, field("t"), 9)]),
        existing(vec![]).count(row("t", b"a")),
        existing(vec![]).value(field("t")),
    ] {
        assert_eq!(call.outcome(Some(&damaged)), Err(MALFORMED), "{call:?}");
    }
}

#[test]
fn cut_calls_and_cut_records() {
    let blob = schema(
        7,
        &[
            ("n", TestField::Cell(U16, 0)),
            ("s", TestField::Cell(BYTES, 0)),
            ("t", TestField::Table { key: (U8, 0), columns: vec![("c", F32, 0)], cap: 3, policy: 3, by: 0 }),
        ],
    );
    let ops = |key: &[u8]| {
        vec![
            op(IF, 0, field("n"), 0).b(0),
            op(SET, U16, field("n"), 300),
            op_bytes(SET, BYTES, field("s"), b"text"),
            op(SET, F32, column("t", b"a", "c"), 1),
            op(SET, F32, column("t", key, "c"), 2),
        ]
    };
    let calls = [
        dynamic(ops(b"b")).value(At::Record).count(row("t", b"a")),
        with_schema(&blob, ops(b"b")).value(column("t", b"a", "c")).value(field("t")),
    ];
    for call in calls {
        let args = call.args();
        for cut in 0..args.len() {
            assert_eq!(Call::decode(&args[..cut]).map(drop), Err(SHORT), "{call:?} cut at {cut}");
        }
        let stored = call.stored(None);
        let whole = existing(vec![]).value(At::Record);
        for cut in 0..stored.len() {
            assert_eq!(whole.outcome(Some(&stored[..cut])), Err(MALFORMED), "{stored:?} cut at {cut}");
            let _ = call.outcome(Some(&stored[..cut]));
        }
        let schema = with_schema(&blob, vec![]);
        for cut in 0..blob.len() {
            let cut_schema = TestCall { schema: blob[..cut].to_vec(), ..schema.clone() };
            assert_eq!(cut_schema.outcome(None), Err(OperateError::SchemaInvalid), "cut at {cut}");
        }
    }
}

#[test]
fn going_back_and_forth_between_orders_has_an_end() {
    // Two orders in turn over a table of 16,384 rows: the table is read for each. One order: once.
    let rows = 16_384u32;
    let body =
        (0..rows).flat_map(|at| [&[9, 3], &at.to_be_bytes()[1..], &[1, 1, b'c', 0, at as u8]].concat());
    let stored = record(&[(b"t", table(rows as usize, &body.collect::<Vec<u8>>()))]);
    let run = |columns: [&[u8]; 2]| {
        let trims = (1..=4_000).map(|gone: i64| {
            op(TRIM, 0, field("t"), i64::from(rows) - gone).aux(3).bytes(columns[gone as usize % 2])
        });
        existing(trims.collect()).count(field("t")).run(Some(&stored)).map(|(_, values)| values[0].clone())
    };
    let left = u64::from(rows) - 4_000;
    assert_eq!(run([b"c", b"c"]), Ok([&[3], &left.to_le_bytes()[..]].concat()));
    assert_eq!(run([b"c", b"d"]), Err(CAP));
}
