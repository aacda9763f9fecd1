//! The record model: calls of `operate`, and the stored bytes they are carried out on.

use nigh_engine::kv::operate::{Call, Change, Outcome, RECORD_MAX, RETURNED_MAX};

/// Any time.
const NOW_MS: u64 = 1_234_567_890_123;

/// A call that returns the whole record, which reads all of it.
const READ: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];

/// The input is the length of a call (`u16`), the call and a stored value, none if no byte is left. Any two are carried out
/// or refused, the same way again; what is stored then is a record, and what a record's call returns of it is itself.
pub(super) fn operate(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk() else { return };
    let (args, stored) = rest.split_at(rest.len().min(u16::from_be_bytes(*len).into()));
    let stored = Some(stored).filter(|stored| !stored.is_empty());
    if let Some(stored) = stored
        && let Some(value) = whole(stored)
    {
        assert_eq!(value, stored, "a record is returned as it is stored");
    }
    let Ok(call) = Call::decode(args) else { return };
    let outcome = call.program.apply(stored, NOW_MS);
    assert_eq!(call.program.apply(stored, NOW_MS), outcome);
    if let Ok(outcome) = &outcome {
        let _ = call.expiry(outcome, stored.is_some());
    }
    if let Ok(Outcome::Done { change: Change::Replace(value), .. }) = outcome {
        assert!(value.len() <= RECORD_MAX && stored != Some(&value));
        // Of a damaged value, parts that the call has not looked at are still there; some records no return can hold.
        if stored.is_none_or(|stored| whole(stored).is_some()) && value.len() <= RETURNED_MAX {
            assert_eq!(whole(&value).as_deref(), Some(&value[..]));
        }
    }
}

/// All of a stored record, if it is one that stays.
fn whole(stored: &[u8]) -> Option<Vec<u8>> {
    let read = Call::decode(READ).expect("a call").program.apply(Some(stored), NOW_MS);
    match read {
        // Status, number of returns, length of the first.
        Ok(Outcome::Done { change: Change::Keep, result }) => Some(result[7..].to_vec()),
        _ => None,
    }
}

pub(super) fn operate_seeds() -> Vec<Vec<u8>> {
    let schema =
        [&[1, 0, 1, 3, 1, 12, 14, 1, 2, 3, 8, 2, 3, 1, 10][..], b"\x01n\x01s\x01t\x01c\x01f"].concat();
    let next = [&[2, 0, 1, 3, 1, 12, 14, 1, 3, 3, 8, 0, 1, 3, 1, 12][..], b"\x01n\x01s\x01t\x01c\x01f\x01d"]
        .concat();
    let column = |key: u8, name: u8| vec![3, 1, 1, b't', 2, key, 0, 1, 1, name];
    let field = |name: u8| vec![1, 1, 1, name];
    let cells = |a: i64| {
        vec![
            op(30, 255, 6, &[0], 0, b""),
            op(1, 1, 0, &field(b'n'), a, b""),
            op(1, 12, 0, &field(b's'), 0, b"text"),
            op(3, 3, 0, &column(1, b'c'), a, b""),
            op(6, 8, 0, &column(2, b'f'), f64::to_bits(0.5) as i64, b""),
            op(12, 3, 1, &column(3, b'c'), 0, b""),
        ]
    };
    let returns: [&[u8]; 5] =
        [&[0, 0], &[0, 1, 1, 1, b't'], &[1, 1, 1, 1, b't'], &[0, 2, 1, 1, b't', 2, 1, 0], &[0, 1, 0, 1]];
    let dynamic = call(2, b"", &cells(7), &returns[..4]);
    let of_schema = call(1, &schema, &cells(300), &returns);
    let limits = [
        op(21, 0, 3, &field(b't'), 2, b"c"),
        op(3, 7, 0, &column(9, b'c'), -1, b""),
        op(22, 0, 2, &field(b't'), 1, b""),
        op(2, 0, 0, &column(9, b'c'), 0, b""),
        op(31, 0, 1, &field(b'n'), 0, b""),
    ];
    let migrate = [op(20, 0, 0, &[0], 1, &next), op(2, 0, 0, &[2, 0, 2, 2, 1, 0], 0, b"")];
    let pack = [op(20, 0, 1, &[0], -1, &schema)];
    let stored = |args: &[u8]| match Call::decode(args).map(|call| call.program.apply(None, NOW_MS)) {
        Ok(Ok(Outcome::Done { change: Change::Replace(value), .. })) => value,
        outcome => panic!("a seed makes a record: {outcome:?}"),
    };
    let (of_names, of_positions) = (stored(&dynamic), stored(&of_schema));
    let on = |args: &[u8], stored: &[u8]| {
        let len = u16::try_from(args.len()).expect("seeds are small");
        [&len.to_be_bytes(), args, stored].concat()
    };
    vec![
        on(&dynamic, b""),
        on(&of_schema, b""),
        on(&call(0, b"", &limits, &returns[..4]), &of_names),
        on(&call(0, b"", &migrate, &returns), &of_positions),
        on(&call(0, b"", &pack, &returns), &of_names),
        on(&call(0, b"", &[op(2, 0, 0, &[0], 0, b"")], &returns), &of_positions),
        on(READ, &of_names),
        on(READ, &of_positions),
    ]
}

fn op(code: u8, kind: u8, aux: u8, path: &[u8], a: i64, bytes: &[u8]) -> Vec<u8> {
    let len = (bytes.len() as u16).to_be_bytes();
    [&[code, kind, aux], path, &a.to_be_bytes(), &[0; 8], &len, bytes].concat()
}

/// Arguments with an empty key and no ttl.
fn call(create: u8, schema: &[u8], ops: &[Vec<u8>], returns: &[&[u8]]) -> Vec<u8> {
    let count = |len: usize| (len as u16).to_be_bytes();
    let head = [&[0; 11][..], &[create], &count(schema.len()), schema].concat();
    [head, count(ops.len()).to_vec(), ops.concat(), count(returns.len()).to_vec(), returns.concat()].concat()
}
