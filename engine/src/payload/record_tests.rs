//! Records in payloads beside a naive twin: a map of values, and a counter in place of a record.

use super::*;
use crate::kv::operate::{Call, OperateError};
use proptest::prelude::*;
use std::collections::BTreeMap;

const NOW: u64 = 1_000;

/// What a test calls for: on the field `n` of a record.
#[derive(Clone, Copy, Debug)]
enum Ask {
    /// Adds to it, in a record that is made where there is none.
    Add(u8),
    /// Adds to it only where there is a record.
    AddExisting(u8),
    /// Adds if it is exactly this before.
    AddIf(u8, u8),
    /// Removes the record.
    Delete,
    /// Changes nothing.
    Look,
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        3 => (0..5u8).prop_map(Ask::Add),
        1 => (0..5u8).prop_map(Ask::AddExisting),
        2 => (0..5u8, 0..5u8).prop_map(|(is, by)| Ask::AddIf(is, by)),
        1 => Just(Ask::Delete),
        1 => Just(Ask::Look),
    ]
}

impl Ask {
    /// The arguments, as clients send them, with a return of `n`.
    fn args(self) -> Vec<u8> {
        const N: &[u8] = &[1, 1, 1, b'n'];
        let op = |opcode: u8, aux: u8, path: &[u8], a: u8| {
            [&[opcode, 3, aux][..], path, &[0; 7], &[a], &[0; 8], &[0; 2]].concat()
        };
        let (create, ops) = match self {
            Ask::Add(by) => (2, vec![op(3, 0, N, by)]),
            Ask::AddExisting(by) => (0, vec![op(3, 0, N, by)]),
            Ask::AddIf(is, by) => (2, vec![op(31, 0, N, is), op(3, 0, N, by)]),
            Ask::Delete => (0, vec![op(2, 0, &[0], 0)]),
            Ask::Look => (0, vec![]),
        };
        let count = [0, ops.len() as u8];
        [&[0; 11][..], &[create, 0, 0][..], &count, &ops.concat(), &[0, 1, 0], N].concat()
    }
}

/// A value of the twin: a record with `n`, or anything else.
#[derive(Clone, Debug)]
enum Held {
    Record(u64),
    Other(Value),
}

type Twin = BTreeMap<String, (Held, u64)>;

/// What a call comes to, and the twin afterwards: `None` = not found, else whether the CHECK failed, and `n`.
fn expected(twin: &mut Twin, key: &str, ask: Ask) -> Result<Option<(bool, Option<u64>)>, OperateError> {
    let live = |deadline: u64| deadline == 0 || deadline > NOW;
    let before = match twin.get(key) {
        Some((Held::Other(_), deadline)) if live(*deadline) => {
            return Err(OperateError::StoredRecordMalformed);
        }
        Some((Held::Record(n), deadline)) if live(*deadline) => Some(*n),
        _ => None,
    };
    let after = match (ask, before) {
        (Ask::AddExisting(_) | Ask::Delete | Ask::Look, None) => return Ok(None),
        (Ask::AddIf(is, _), n) if u64::from(is) != n.unwrap_or(0) => return Ok(Some((true, n))),
        (Ask::Add(by) | Ask::AddExisting(by) | Ask::AddIf(_, by), n) => Some(n.unwrap_or(0) + u64::from(by)),
        (Ask::Delete, _) => None,
        (Ask::Look, n) => n,
    };
    twin.retain(|_, (_, deadline)| live(*deadline));
    match after {
        Some(n) => twin.entry(key.to_owned()).or_insert((Held::Record(0), 0)).0 = Held::Record(n),
        None => drop(twin.remove(key)),
    }
    Ok(Some((false, after)))
}

/// The stored bytes of a dynamic record with `n`.
fn record(n: u64) -> Vec<u8> {
    [&[2, 1, 1, b'n', 3][..], &n.to_le_bytes()].concat()
}

fn row_of(twin: &Twin) -> Vec<u8> {
    let mut row = RowBuilder::new();
    for (key, (held, deadline)) in twin {
        let value = match held {
            Held::Record(n) => Value::Record(record(*n)),
            Held::Other(value) => value.clone(),
        };
        row.set(key, value, *deadline);
    }
    row.finish()
}

/// What a client reads in a result: whether the CHECK failed, and `n` if it was returned.
fn read_result(result: &[u8]) -> (bool, Option<u64>) {
    let failed = result[0] == 1;
    let value = &result[if failed { 3 } else { 1 } + 2 + 4..];
    (failed, value.strip_prefix(&[3]).map(|n| u64::from_le_bytes(n.try_into().unwrap())))
}

fn held() -> impl Strategy<Value = Held> {
    let other = super::row_tests::any_value().prop_filter("no record", |value| value.kind() != Kind::Record);
    prop_oneof![2 => (0..5u64).prop_map(Held::Record), 1 => other.prop_map(Held::Other)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_in_payloads_as_their_twins(
        start in prop::collection::btree_map("[a-c]", (held(), prop_oneof![3 => Just(0), 1 => NOW - 1..NOW + 2]), 0..4),
        calls in prop::collection::vec(("[a-d]", ask()), 1..8),
    ) {
        let mut twin: Twin = start;
        let mut row = row_of(&twin);
        for (key, ask) in calls {
            let args = ask.args();
            let program = Call::decode_in_payload(&args).unwrap();
            let found = operate(PayloadRow::verify(&row).unwrap(), &key, &program, NOW);
            let answer = match (found, expected(&mut twin, &key, ask)) {
                (Err(error), Err(wanted)) => {
                    prop_assert_eq!(error, wanted);
                    continue;
                }
                (found, Ok(answer)) => (found.unwrap(), answer),
                (found, Err(wanted)) => return Err(TestCaseError::fail(format!("{found:?}, not {wanted}"))),
            };
            match answer {
                (Operated::NotFound, None) => {}
                (Operated::CheckFailed { result }, Some(answer @ (true, _))) => {
                    prop_assert_eq!(read_result(&result), answer);
                }
                (Operated::Done { row: changed, result }, Some(answer @ (false, _))) => {
                    prop_assert_eq!(read_result(&result), answer);
                    row = changed.finish();
                }
                (found, answer) => return Err(TestCaseError::fail(format!("{found:?}, not {answer:?}"))),
            }
            prop_assert_eq!(&row, &row_of(&twin), "{:?} of {:?}", ask, key);
        }
    }
}

#[test]
fn what_lies_beside_a_record_stays() {
    let mut row = RowBuilder::new();
    row.set("r", Value::Record(record(1)), NOW + 5);
    row.set("plain", Value::Int(7), NOW + 9);
    row.set_sparse(vec![(3, 0.5)]).unwrap();
    let row = row.finish();
    let args = Ask::Add(4).args();
    let program = Call::decode_in_payload(&args).unwrap();
    let Ok(Operated::Done { row, .. }) = operate(PayloadRow::trusted(&row), "r", &program, NOW) else {
        panic!()
    };
    let row = row.finish();
    let row = PayloadRow::verify(&row).unwrap();
    let stored: Vec<_> = row.stored_entries().map(|e| (e.key, e.value.to_owned(), e.deadline_ms)).collect();
    assert_eq!(stored, [("plain", Value::Int(7), NOW + 9), ("r", Value::Record(record(5)), NOW + 5)]);
    assert_eq!(row.sparse().collect::<Vec<_>>(), [(3, 0.5)]);
}

#[test]
fn bytes_that_are_no_record_are_refused() {
    let args = Ask::Add(1).args();
    let program = Call::decode_in_payload(&args).unwrap();
    for bytes in [&b""[..], b"\x03", b"\x02\x01", &[record(1), vec![0]].concat()] {
        let mut row = RowBuilder::new();
        row.set("r", Value::Record(bytes.to_vec()), 0);
        let row = row.finish();
        let found = operate(PayloadRow::trusted(&row), "r", &program, NOW);
        assert_eq!(found.err(), Some(OperateError::StoredRecordMalformed), "{bytes:?}");
    }
}
