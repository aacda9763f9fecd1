//! Every operation on a cell, with every type.

use super::OperateError;
use super::test_calls::*;

/// What a dynamic cell of type `kind` that was set to `start` holds after `code` with `operand`.
fn number(kind: u8, start: i64, code: u8, operand: i64) -> Result<Vec<u8>, OperateError> {
    let call = dynamic(vec![op(SET, kind, field("n"), start), op(code, kind, field("n"), operand)]);
    call.value(field("n")).run(None).map(|(_, mut values)| values.remove(0))
}

/// An integer cell of this type as a return has it.
fn tagged(kind: u8, value: i128) -> Vec<u8> {
    let mut out = vec![kind];
    match kind {
        10 => leb(value as u64, &mut out),
        11 => leb(((value << 1) ^ (value >> 127)) as u64, &mut out),
        kind => out.extend(&value.to_le_bytes()[..1 << (kind % 4)]),
    }
    out
}

const INTS: [(u8, i128, i128); 10] = [
    (0, 0, u8::MAX as i128),
    (1, 0, u16::MAX as i128),
    (2, 0, u32::MAX as i128),
    (3, 0, u64::MAX as i128),
    (4, i8::MIN as i128, i8::MAX as i128),
    (5, i16::MIN as i128, i16::MAX as i128),
    (6, i32::MIN as i128, i32::MAX as i128),
    (7, i64::MIN as i128, i64::MAX as i128),
    (10, 0, u64::MAX as i128),
    (11, i64::MIN as i128, i64::MAX as i128),
];

const NUMBERS: [i64; 16] =
    [0, 1, 2, 3, -1, -2, 100, 127, 128, -129, 255, 256, 65_537, 1 << 40, i64::MAX, i64::MIN];

#[test]
fn integers_are_exact_and_saturate() {
    for (kind, least, greatest) in INTS {
        for start in NUMBERS {
            let value = i128::from(start).clamp(least, greatest);
            for operand in NUMBERS {
                let b = i128::from(operand);
                let cases =
                    [(SET, b), (ADD, value + b), (MUL, value * b), (MIN, value.min(b)), (MAX, value.max(b))];
                for (code, exact) in cases {
                    let expected = tagged(kind, exact.clamp(least, greatest));
                    assert_eq!(
                        number(kind, start, code, operand),
                        Ok(expected),
                        "type {kind}: {start}, opcode {code}, {operand}"
                    );
                }
            }
        }
    }
}

#[test]
fn shifts_are_products_that_saturate_and_quotients_that_round_down() {
    for (kind, least, greatest) in INTS {
        for start in NUMBERS {
            let value = i128::from(start).clamp(least, greatest);
            for by in 0..=64 {
                // Past the greatest type it does not matter how far.
                let product = if by == 64 { value.signum() << 100 } else { value << by };
                let left = product.clamp(least, greatest);
                assert_eq!(number(kind, start, SHL, by), Ok(tagged(kind, left)), "{kind}: {start} << {by}");
                let right = value >> by;
                assert_eq!(number(kind, start, SHR, by), Ok(tagged(kind, right)), "{kind}: {start} >> {by}");
            }
        }
        for by in [-1, 65, i64::MIN, i64::MAX] {
            for code in [SHL, SHR] {
                assert_eq!(number(kind, 1, code, by), Err(OperateError::ArgumentsInvalid), "{kind} by {by}");
            }
        }
    }
}

#[test]
fn bits_are_those_of_the_cell() {
    for (kind, least, greatest) in INTS {
        for start in NUMBERS {
            for operand in NUMBERS {
                for code in [AND, OR, XOR] {
                    let found = number(kind, start, code, operand);
                    if kind > 7 {
                        assert_eq!(found, Err(OperateError::TypeNotApplicable));
                        continue;
                    }
                    let bytes = 1 << (kind % 4);
                    let value = i128::from(start).clamp(least, greatest).to_le_bytes();
                    let mut expected = vec![kind];
                    for (a, b) in value.iter().zip(operand.to_le_bytes()).take(bytes) {
                        expected.push(match code {
                            AND => a & b,
                            OR => a | b,
                            _ => a ^ b,
                        });
                    }
                    assert_eq!(found, Ok(expected), "type {kind}: {start}, opcode {code}, {operand}");
                }
            }
        }
    }
}

#[test]
fn floats() {
    let run = |kind, start: f64, code, operand: f64| {
        number(kind, start.to_bits() as i64, code, operand.to_bits() as i64)
    };
    let nan = f64::from_bits(0xfff0_0000_0000_0001);
    let edges =
        [0.0, -0.0, 1.0, -1.5, 0.1, 1e300, -1e300, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE];
    for (start, operand) in edges.into_iter().flat_map(|a| edges.map(|b| (a, b))) {
        let single = f64::from(start as f32);
        for (code, exact, rounded) in [
            (SET, operand, operand),
            (ADD, start + operand, single + operand),
            (MUL, start * operand, single * operand),
        ] {
            let bits = if exact.is_nan() { 0x7ff8_0000_0000_0000 } else { exact.to_bits() };
            assert_eq!(
                run(F64, start, code, operand),
                Ok([&[9], &bits.to_le_bytes()[..]].concat()),
                "{start} {code} {operand}"
            );
            let bits = if rounded.is_nan() { 0x7fc0_0000 } else { (rounded as f32).to_bits() };
            assert_eq!(
                run(F32, start, code, operand),
                Ok([&[8], &bits.to_le_bytes()[..]].concat()),
                "{start} {code} {operand}"
            );
        }
    }
    let double = |value: f64| Ok([&[9], &value.to_bits().to_le_bytes()[..]].concat());
    for (a, b, least, greatest) in
        [(1.0, 2.0, 1.0, 2.0), (2.0, 1.0, 1.0, 2.0), (nan, 1.0, 1.0, 1.0), (1.0, nan, 1.0, 1.0)]
    {
        assert_eq!(run(F64, a, MIN, b), double(least));
        assert_eq!(run(F64, a, MAX, b), double(greatest));
    }
    assert_eq!(run(F64, nan, MIN, nan), Ok(hex("09 000000000000f87f")));
    assert_eq!(run(F64, 0.0, SET, nan), Ok(hex("09 000000000000f87f")));
    assert_eq!(run(F32, 0.0, SET, nan), Ok(hex("08 0000c07f")));
    for code in [AND, OR, XOR, SHL, SHR, STAMP] {
        assert_eq!(number(F64, 0, code, 0), Err(OperateError::TypeNotApplicable), "opcode {code}");
        assert_eq!(number(F32, 0, code, 0), Err(OperateError::TypeNotApplicable), "opcode {code}");
    }
}

#[test]
fn bytes_and_fixed() {
    let run = |kind, start: &[u8], code, operand: &[u8]| {
        let ops = vec![op_bytes(SET, kind, field("n"), start), op_bytes(code, kind, field("n"), operand)];
        dynamic(ops).value(field("n")).run(None).map(|(_, mut values)| values.remove(0))
    };
    for (a, b) in [(&b"ab"[..], &b"ac"[..]), (b"ac", b"ab"), (b"ab", b"ab"), (b"\x80\x00", b"\x7f\xff")] {
        for (code, kept) in [(SET, b), (MIN, a.min(b)), (MAX, a.max(b))] {
            assert_eq!(run(BYTES, a, code, b), Ok([&[12, 2], kept].concat()));
            assert_eq!(run(FIXED, a, code, b), Ok([&[13, 2], kept].concat()));
        }
    }
    // Bytes have any length, fixed ones keep theirs.
    assert_eq!(run(BYTES, b"b", MIN, b""), Ok(hex("0c00")));
    assert_eq!(run(BYTES, b"b", MAX, b"ba"), Ok(hex("0c02 6261")));
    assert_eq!(run(FIXED, b"b", MAX, b"ba"), Err(OperateError::TypeNotApplicable));
    assert_eq!(run(FIXED, b"b", MIN, b""), Err(OperateError::TypeNotApplicable));
    // SET makes another cell of another width, but not under the type as stored.
    assert_eq!(run(FIXED, b"b", SET, b"ba"), Ok(hex("0d02 6261")));
    let stored = dynamic(vec![op_bytes(SET, FIXED, field("n"), b"b")]).stored(None);
    let set = |operand| existing(vec![op_bytes(SET, ANY, field("n"), operand)]).run(Some(&stored)).map(drop);
    assert_eq!(set(b"c"), Ok(()));
    assert_eq!(set(b"ba"), Err(OperateError::TypeNotApplicable));
    // No width, or one above 255.
    assert_eq!(run(FIXED, b"", SET, b""), Err(OperateError::TypeNotApplicable));
    assert_eq!(run(FIXED, &[1; 256], SET, b"a"), Err(OperateError::TypeNotApplicable));
    assert_eq!(run(FIXED, &[1; 255], MAX, &[2; 255]), Ok([&[13, 255], &[2; 255][..]].concat()));
    for code in [ADD, MUL, AND, OR, XOR, SHL, SHR, STAMP] {
        for kind in [BYTES, FIXED] {
            assert_eq!(run(kind, b"b", code, b"b"), Err(OperateError::TypeNotApplicable), "opcode {code}");
        }
    }
}

#[test]
fn the_clock() {
    let stamp = |kind: u8, aux: u8| {
        let call = dynamic(vec![op(STAMP, kind, field("n"), 7).aux(aux)]).value(field("n"));
        call.run(None).map(|(_, mut values)| values.remove(0))
    };
    for (kind, least, greatest) in INTS {
        let ms = i128::from(NOW_MS).clamp(least, greatest);
        assert_eq!(stamp(kind, 0), Ok(tagged(kind, ms)));
        let seconds = i128::from(NOW_MS / 1000).clamp(least, greatest);
        assert_eq!(stamp(kind, 1), Ok(tagged(kind, seconds)));
    }
    assert_eq!(stamp(U64, 2), Err(OperateError::ArgumentsInvalid));
    assert_eq!(stamp(ANY, 0), Err(OperateError::TypeNotApplicable));
}

#[test]
fn the_type_of_an_operation() {
    let stored = dynamic(vec![
        op(SET, U16, field("int"), 5),
        op(SET, F32, field("float"), 0),
        op_bytes(SET, BYTES, field("bytes"), b"x"),
    ])
    .stored(None);
    let run = |code, kind, name| {
        let operation = op_bytes(code, kind, field(name), b"x");
        existing(vec![operation])
            .value(field(name))
            .run(Some(&stored))
            .map(|(_, mut values)| values.remove(0)[0])
    };
    // Of the same domain: the cell keeps its type. SET gives it another.
    for kind in [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, ANY] {
        assert_eq!(run(ADD, kind, "int"), Ok(U16), "type {kind}");
        assert_eq!(run(SET, kind, "int"), Ok(if kind == ANY { U16 } else { kind }), "type {kind}");
        assert_eq!(run(ADD, kind, "float").is_ok(), kind == ANY, "type {kind}");
    }
    for kind in [F32, F64, BYTES, FIXED] {
        assert_eq!(run(ADD, kind, "int"), Err(OperateError::TypeNotApplicable), "type {kind}");
        assert_eq!(run(SET, kind, "int"), Ok(kind), "type {kind}");
        assert_eq!(run(MAX, kind, "bytes").is_ok(), kind >= BYTES, "type {kind}");
        assert_eq!(run(MAX, kind, "float").is_ok(), kind < BYTES, "type {kind}");
    }
    // What is not there is made in the type of the operation, which then must be one.
    assert_eq!(run(ADD, F64, "new"), Ok(F64));
    for code in [SET, ADD] {
        assert_eq!(run(code, ANY, "new"), Err(OperateError::TypeNotApplicable));
        for kind in [14, 15, 16, 254] {
            assert_eq!(run(code, kind, "int"), Err(OperateError::TypeNotApplicable), "type {kind}");
        }
    }
}

#[test]
fn types_of_a_schema() {
    for kind in 0..=13 {
        let blob = schema(1, &[("n", TestField::Cell(kind, 1))]);
        let run = |code, asked| {
            let operation = op_bytes(code, asked, field("n"), b"x").a(3);
            with_schema(&blob, vec![operation]).value(field("n")).run(None).map(|(_, values)| values[0][0])
        };
        for asked in (0..=13).chain([ANY]) {
            let expected =
                if asked == kind || asked == ANY { Ok(kind) } else { Err(OperateError::TypeNotApplicable) };
            assert_eq!(run(SET, asked), expected, "type {asked} on {kind}");
            assert_eq!(run(MAX, asked), expected, "type {asked} on {kind}");
        }
        let applicable = |codes: &[u8]| codes.iter().all(|&code| run(code, ANY).is_ok());
        let int = kind < 8 || kind == 10 || kind == 11;
        assert_eq!(applicable(&[SHL, SHR, STAMP]), int, "type {kind}");
        assert_eq!(applicable(&[AND, OR, XOR]), kind < 8, "type {kind}");
        assert_eq!(applicable(&[ADD, MUL]), kind < 12, "type {kind}");
    }
}

#[test]
fn comparisons() {
    // For each: whether it holds when the target is below, equal to, above the operand.
    let holds = [[0, 1, 0], [1, 0, 1], [1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1]];
    let stored = dynamic(vec![
        op(SET, I64, field("int"), -5),
        op(SET, U64, field("big"), i64::MAX),
        op(ADD, U64, field("big"), i64::MAX),
        op(SET, F64, field("float"), 0.5f64.to_bits() as i64),
        op(SET, F64, field("nan"), f64::NAN.to_bits() as i64),
        op_bytes(SET, BYTES, field("bytes"), b"b"),
        op_bytes(SET, FIXED, field("fixed"), b"bb"),
        op(SET, U8, column("table", b"r", "c"), 1),
        op(SET, U8, column("table", b"s", "c"), 1),
    ])
    .stored(None);
    let check = |operation: TestOp, order: usize| {
        for (comparison, expected) in holds.iter().enumerate() {
            // The type byte is not looked at.
            let operation = TestOp { code: IF, aux: comparison as u8, b: 1, kind: 99, ..operation.clone() };
            let then = op(SET, U8, field("then"), 1);
            let (_, values) =
                existing(vec![operation.clone(), then]).count(field("then")).run(Some(&stored)).unwrap();
            assert_eq!(values[0][1], expected[order], "{operation:?}");
        }
    };
    for (at, below, equal, above) in [
        (field("int"), -4, -5, -6),
        (field("float"), 1f64.to_bits() as i64, 0.5f64.to_bits() as i64, (-1f64).to_bits() as i64),
        (field("table"), 3, 2, 1),
        (row("table", b"r"), 2, 1, 0),
        (row("table", b"none"), 1, 0, -1),
        (row("none", b"none"), 1, 0, -1),
        (At::Record, 8, 7, 6),
        // What is not there is 0 of a u8.
        (field("none"), 1, 0, -1),
        (column("table", b"r", "none"), 1, 0, -1),
        (column("table", b"none", "c"), 1, 0, -1),
    ] {
        check(op(IF, 0, at.clone(), below), 0);
        check(op(IF, 0, at.clone(), equal), 1);
        check(op(IF, 0, at.clone(), above), 2);
    }
    for (at, below, equal, above) in
        [("bytes", &b"ba"[..], &b"b"[..], &b"a\xff"[..]), ("fixed", b"bc", b"bb", b"ba")]
    {
        check(op_bytes(IF, 0, field(at), below), 0);
        check(op_bytes(IF, 0, field(at), equal), 1);
        check(op_bytes(IF, 0, field(at), above), 2);
    }
    check(op(IF, 0, field("big"), i64::MAX), 2);
    for operand in [0, f64::NAN.to_bits() as i64, f64::INFINITY.to_bits() as i64] {
        check(op(IF, 0, field("nan"), operand), 1);
    }
    check(op(IF, 0, field("float"), f64::NAN.to_bits() as i64), 1);
    let short = existing(vec![op_bytes(CHECK, 0, field("fixed"), b"b").aux(EQ)]);
    assert_eq!(short.outcome(Some(&stored)), Err(OperateError::TypeNotApplicable));
    // What is not there is zero in the type of the operation, if that is one.
    let zero = |kind: u8, operation: TestOp| {
        let operation = TestOp { code: CHECK, kind, aux: EQ, at: field("none"), ..operation };
        existing(vec![operation]).run(Some(&stored)).is_ok()
    };
    assert!(zero(F64, op(CHECK, 0, At::Record, (-0f64).to_bits() as i64)));
    assert!(zero(BYTES, op_bytes(CHECK, 0, At::Record, b"")));
    assert!(zero(FIXED, op_bytes(CHECK, 0, At::Record, &[0; 3])));
}

#[test]
fn existence() {
    let blob = schema(
        1,
        &[
            ("n", TestField::Cell(U8, 0)),
            ("t", TestField::Table { key: (U8, 0), columns: vec![("c", U8, 0)], cap: 0, policy: 0, by: 0 }),
        ],
    );
    let exists = |call: TestCall, stored: Option<&[u8]>, at: At| {
        let check = |comparison: u8| {
            let mut call = call.clone();
            call.ops.push(op(IF, ANY, at.clone(), 0).aux(comparison).b(1));
            call.ops.push(op(CHECK, ANY, At::Record, -1).aux(EQ));
            matches!(call.outcome(stored).unwrap(), super::Outcome::CheckFailed { .. })
        };
        assert_ne!(check(EXISTS), check(ABSENT), "{at:?}");
        check(EXISTS)
    };
    let made = || dynamic(vec![op(SET, U8, column("t", b"r", "c"), 0)]);
    let stored = made().stored(None);
    // The record exists when it did before the call.
    assert!(!exists(made(), None, At::Record));
    assert!(exists(made(), Some(&stored), At::Record));
    for at in [field("t"), row("t", b"r"), column("t", b"r", "c")] {
        assert!(exists(made(), None, at.clone()), "{at:?}");
    }
    for at in [field("u"), row("t", b"s"), row("u", b"r"), column("t", b"r", "d"), column("t", b"s", "c")] {
        assert!(!exists(made(), None, at.clone()), "{at:?}");
    }
    let schema_record = || with_schema(&blob, vec![]);
    assert!(!exists(schema_record(), None, At::Record));
    for at in [field("n"), field(1)] {
        assert!(exists(schema_record(), None, at.clone()), "{at:?}");
    }
    for at in [row("t", b"r"), column("t", b"r", "c")] {
        assert!(!exists(schema_record(), None, at.clone()), "{at:?}");
        let made = with_schema(&blob, vec![op(SET, ANY, column("t", b"r", "c"), 0)]);
        assert!(exists(made, None, at.clone()), "{at:?}");
    }
}
