//! Random calls, one after another on the same record, against a naive twin; and bytes that are neither.

use super::test_calls::*;
use super::twin::{Found, TestFields, Twin};
use super::{Call, Change, OperateError, Outcome};
use proptest::prelude::*;

/// Fields of the schema; those of a dynamic record have the same names and mostly the same domains.
fn fields(cap: u64, policy: u8, fixed_keys: bool) -> TestFields {
    let key = if fixed_keys { (FIXED, 2) } else { (U16, 0) };
    let columns = vec![("c", I64, 0), ("f", F32, 0), ("x", FIXED, 2)];
    vec![
        ("n", TestField::Cell(U16, 0)),
        ("s", TestField::Cell(BYTES, 0)),
        ("t", TestField::Table { key, columns, cap, policy, by: if policy > 2 { cap % 3 } else { 0 } }),
        ("x", TestField::Cell(FIXED, 2)),
        ("i", TestField::Cell(11, 0)),
        ("f", TestField::Cell(F64, 0)),
    ]
}

/// One in `n` is `rare`.
fn rarely<T: Clone + std::fmt::Debug + 'static>(
    n: u32,
    common: impl Strategy<Value = T> + 'static,
    rare: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<T> {
    prop_oneof![n - 1 => common, 1 => rare].boxed()
}

/// A name or, in a schema record and now and then elsewhere, a position.
fn segment(names: &'static [&'static str]) -> BoxedStrategy<Seg> {
    let name = prop::sample::select(names).prop_map(Seg::from);
    let odd = prop_oneof![(0u32..7).prop_map(Seg::At), Just(Seg::from("")), Just(Seg::from("zz"))];
    rarely(25, name, odd)
}

fn key() -> BoxedStrategy<Vec<u8>> {
    let odd = prop::collection::vec(any::<u8>(), 1..4);
    rarely(25, (0..6u8, 0..2u8).prop_map(|(low, high)| vec![low, high]), odd)
}

/// Numbers that are small, or at an edge of some type; as floats, exact ones and NaN.
fn number() -> BoxedStrategy<i64> {
    prop_oneof![
        4 => -3i64..300,
        1 => prop::sample::select(vec![i64::MIN, i64::MAX, -1, 127, 128, 255, 65_535, 65_536, 1 << 31, 1 << 32]),
    ]
    .boxed()
}

fn float() -> BoxedStrategy<i64> {
    prop::sample::select(vec![0.0, -0.0, 1.0, -2.5, 0.1, 1e30, -1e39, f64::INFINITY, f64::NAN])
        .prop_map(|value| value.to_bits() as i64)
        .boxed()
}

fn bytes() -> BoxedStrategy<Vec<u8>> {
    prop_oneof![3 => prop::collection::vec(0..3u8, 2), 1 => prop::collection::vec(any::<u8>(), 0..5)].boxed()
}

/// An operation on a cell whose name says its domain.
fn cell_op() -> BoxedStrategy<TestOp> {
    let ints = prop::sample::select(vec![ANY, 0, 1, 2, 3, 4, 5, 6, 7, 10, 11]);
    let int_codes =
        prop::sample::select(vec![SET, SET, ADD, ADD, MUL, MIN, MAX, AND, OR, XOR, SHL, SHR, STAMP]);
    let int = (int_codes, ints, number(), 0..2u8).prop_map(|(code, kind, a, aux)| {
        let a = if matches!(code, SHL | SHR) { a.rem_euclid(65) } else { a };
        op(code, kind, At::Record, a).aux(aux)
    });
    let float_codes = prop::sample::select(vec![SET, ADD, MUL, MIN, MAX]);
    let floats = (float_codes, prop::sample::select(vec![ANY, F32, F64]), float());
    let float = floats.prop_map(|(code, kind, a)| op(code, kind, At::Record, a));
    let byte_codes = prop::sample::select(vec![SET, MIN, MAX]);
    let text = (byte_codes, prop::sample::select(vec![ANY, BYTES, FIXED]), bytes());
    let text = text.prop_map(|(code, kind, bytes)| op_bytes(code, kind, At::Record, &bytes));
    let ints = prop::sample::select(vec!["n", "i", "c"]);
    let named = prop_oneof![
        5 => (ints, int),
        2 => (Just("f"), float.clone()),
        1 => (Just("s"), text.clone()),
        2 => (Just("x"), text.clone()),
        1 => (prop::sample::select(vec!["n", "f", "x", "t"]), prop_oneof![float, text]),
    ];
    let place = (prop::sample::select(vec!["t", "t", "u"]), key(), any::<bool>());
    (named, place, rarely(25, Just(None), segment(&["n", "s", "t", "x"]).prop_map(Some)))
        .prop_map(|((name, op), (table, key, in_table), odd)| {
            let name = odd.unwrap_or(name.into());
            let in_table = name == Seg::from("c") || in_table && name != Seg::from("n");
            let at = if in_table { At::Column(table.into(), key, name) } else { At::Field(name) };
            TestOp { at, ..op }
        })
        .boxed()
}

fn path() -> BoxedStrategy<At> {
    let field = || segment(&["n", "s", "t", "t", "x", "i", "f", "u"]);
    let table = || segment(&["t", "t", "t", "u", "n"]);
    prop_oneof![
        1 => Just(At::Record),
        4 => field().prop_map(At::Field),
        2 => (table(), key()).prop_map(|(table, key)| At::Row(table, key)),
        4 => (table(), key(), segment(&["c", "f", "x"])).prop_map(|(table, key, column)| At::Column(table, key, column)),
    ]
    .boxed()
}

/// Any operation that decoding lets pass; skips of IFs are cut to fit by [`call`].
fn any_op() -> BoxedStrategy<TestOp> {
    let delete =
        rarely(30, path().prop_filter("a record goes rarely", |at| *at != At::Record), Just(At::Record));
    let test = (prop::sample::select(vec![IF, IF, IF, CHECK]), 0..8u8, any::<u8>(), path());
    let test = (test, prop_oneof![number(), float()], bytes(), 0..4i64);
    let limit =
        (prop::sample::select(vec![CONFIG, TRIM]), segment(&["t", "t", "t", "u", "n"]), 0..5i64, 0..5u8);
    let limit = (limit, prop::sample::select(vec!["c", "f", "x", "none"]), -1..4i64, any::<bool>());
    prop_oneof![
        12 => cell_op(),
        2 => delete.prop_map(|at| op(DEL, 0, at, 0)),
        3 => test.prop_map(|((code, aux, kind, at), a, bytes, b)| TestOp { code, kind, aux, at, a, b, bytes }),
        2 => limit.prop_map(|((code, table, a, aux), by, b, by_position)| {
            let by = if code == TRIM && by_position { "" } else { by };
            op_bytes(code, 0, At::Field(table), by.as_bytes()).aux(aux).a(a).b(b)
        }),
    ]
    .boxed()
}

fn call() -> BoxedStrategy<TestCall> {
    let returns = prop::collection::vec((0..2u8, path()), 0..4);
    let parts = (rarely(6, Just(1u8), Just(0)), prop::collection::vec(any_op(), 0..10), returns);
    parts
        .prop_map(|(create, mut ops, returns)| {
            let count = ops.len();
            for (at, op) in ops.iter_mut().enumerate() {
                if op.code == IF {
                    op.b = op.b.min((count - at - 1) as i64);
                }
            }
            // Zero stands for a call that makes no record; others fit the record of the test.
            TestCall { create, ops, returns, ..Default::default() }
        })
        .boxed()
}

/// What a twin says a call comes to: failed operation and values, or nothing found; and the record afterwards.
type Expected = Result<(Option<(Option<u16>, Vec<Vec<u8>>)>, Option<Twin>), OperateError>;

fn expected(call: &TestCall, before: Option<&Twin>, fresh: &Twin) -> Expected {
    let existed = before.is_some();
    if !existed && call.create == 0 {
        return Ok((None, None));
    }
    let mut twin = before.unwrap_or(fresh).clone();
    let mut at = 0;
    let mut failed = None;
    let mut deleted = false;
    while at < call.ops.len() {
        let op = &call.ops[at];
        match (op.code, &op.at) {
            (DEL, At::Record) if existed => {
                deleted = true;
                break;
            }
            (DEL, At::Record) => {}
            (IF, _) => at += if twin.holds(op, existed)? { 0 } else { op.b as usize },
            (CHECK, _) if twin.holds(op, existed)? => {}
            (CHECK, _) => {
                failed = Some(at as u16);
                break;
            }
            _ => twin.change(op)?,
        }
        at += 1;
    }
    let after = match failed {
        Some(_) => before.cloned(),
        None => Some(twin).filter(|twin| !deleted && (twin.schema.is_some() || !twin.fields.is_empty())),
    };
    let mut values = Vec::new();
    for (mode, at) in &call.returns {
        values.push(match (mode, &after) {
            (0, None) => vec![15],
            (0, Some(twin)) => twin.value(at)?,
            (_, after) => {
                let count = after
                    .as_ref()
                    .map_or(Ok(0), |twin| twin.find(at).map(|found: Found| twin.count(&found)))?;
                [&[3], &count.to_le_bytes()[..]].concat()
            }
        });
    }
    Ok((Some((failed, values)), after))
}

/// Runs the calls on a record and on its twin.
fn compare(calls: &[TestCall], fresh: &Twin) -> Result<(), TestCaseError> {
    let mut stored: Option<Vec<u8>> = None;
    let mut twin: Option<Twin> = None;
    for call in calls {
        let mut call = call.clone();
        if call.create > 0 {
            call.create = if fresh.schema.is_some() { 1 } else { 2 };
            call.schema = fresh.schema.as_ref().map_or(vec![], |(blob, _)| blob.clone());
        }
        let outcome = call.outcome(stored.as_deref());
        let (answer, after) = match expected(&call, twin.as_ref(), fresh) {
            Ok(expected) => expected,
            Err(error) => {
                prop_assert_eq!(outcome, Err(error), "{:?}", call);
                continue;
            }
        };
        let (result, change) = match outcome {
            Ok(Outcome::NotFound) => (None, Change::Keep),
            Ok(Outcome::CheckFailed { result }) => (Some(read_result(&result)), Change::Keep),
            Ok(Outcome::Done { change, result }) => (Some(read_result(&result)), change),
            Err(error) => return Err(TestCaseError::fail(format!("{error} for {call:?}"))),
        };
        prop_assert_eq!(&result, &answer, "{:?}", call);
        match change {
            Change::Keep => {}
            Change::Replace(value) => {
                prop_assert_ne!(Some(&value), stored.as_ref(), "{:?}", call);
                stored = Some(value);
            }
            Change::Delete => prop_assert!(stored.take().is_some(), "{:?}", call),
        }
        prop_assert_eq!(&stored, &after.as_ref().map(Twin::encode), "{:?}", call);
        twin = after;
        if let Some(stored) = &stored {
            // All of it can be read.
            let (_, values) = existing(vec![]).value(At::Record).run(Some(stored)).unwrap();
            prop_assert_eq!(&values[0], stored);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn dynamic_records_as_their_twins(calls in prop::collection::vec(call(), 1..7)) {
        compare(&calls, &Twin::dynamic())?;
    }

    #[test]
    fn schema_records_as_their_twins(
        calls in prop::collection::vec(call(), 1..7),
        (cap, policy, fixed_keys) in (0..5u64, 0..5u8, any::<bool>()),
    ) {
        let fields = fields(cap, policy, fixed_keys);
        compare(&calls, &Twin::of_schema(schema(1, &fields), fields))?;
    }

    #[test]
    fn any_bytes_are_a_call_or_an_error(
        call in call(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut args = call.args();
        for (at, byte) in damage {
            let at = at.index(args.len());
            args[at] = byte;
        }
        for args in [args, noise] {
            if let Ok(call) = Call::decode(&args) {
                let _ = call.program.apply(None, NOW_MS);
            }
        }
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(
        (first, second) in (call(), call()),
        of_schema in any::<bool>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        noise in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let blob = schema(1, &fields(3, 3, false));
        let make = TestCall { create: 1 + u8::from(!of_schema), schema: blob, ..first };
        let made = match make.outcome(None) {
            Ok(Outcome::Done { change: Change::Replace(value), .. }) => value,
            _ => vec![2, 1, 1, b'n', 0, 0],
        };
        let mut damaged = made;
        for (at, byte) in damage {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        let of_mode = |mode| [&[mode], &noise[..]].concat();
        for stored in [damaged, of_mode(1), of_mode(2)] {
            let _ = TestCall { create: 0, ..second.clone() }.outcome(Some(&stored));
            // What a return shows of it is a record.
            if let Ok((_, values)) = existing(vec![]).value(At::Record).run(Some(&stored))
                && values[0] != [15]
            {
                prop_assert_eq!(&values[0], &stored);
            }
        }
    }
}
