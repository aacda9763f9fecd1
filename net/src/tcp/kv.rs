//! Operations on keys: their arguments, borrowed from the frame, and the layouts of their results.
//!
//! ```text
//! get, del, getdel, exists, persist, ttl   K
//! put, set_nx, getset                      K, s32 value, ttl
//! expire                                   K, ttl
//! incr                                     K, i64 delta
//! incr_ex                                  K, i64 delta, ttl
//! cas                                      K, s32 value, u8 hasExpected, s32 expected, ttl
//! cad                                      K, s32 expected
//! caex                                     K, s32 expected, ttl
//! mget                                     u16 n, K*
//! put_batch                                u32 n, (K, s32 value, ttl)*
//! K = s16 key      ttl = u64 milliseconds, 0 = for ever
//! ```
//! Bytes behind a layout are ignored, except by `operate`, which has a layout of its own
//! ([`nigh_engine::kv::operate::Call`]).

use crate::op::KvOp;
use crate::tcp::reader::{ArgsError, ArgsReader};
use nigh_engine::kv::Op;
use nigh_shard::kv::batch::KeyOp;

/// A request about keys. A key is 0 to 65,535 bytes; an empty value is a value; a ttl of 0 is for ever, the largest is
/// [`nigh_engine::kv::TTL_MS_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvRequest<'a> {
    /// About one key.
    One(KeyOp<'a>),
    /// Values in the order of the keys, at most 65,535.
    Mget {
        /// Which, repeats allowed.
        keys: Vec<&'a [u8]>,
    },
    /// Each on its own, in order; all are [`Op::Put`].
    PutBatch {
        /// In order.
        puts: Vec<Op<'a>>,
    },
    /// Removes every key.
    Flush,
}

/// Shortest encodings of a key, and of an entry of a batch.
const KEY_BYTES_MIN: usize = 2;
const PUT_BYTES_MIN: usize = 2 + 4 + 8;

/// The key of a request, which in all but lists of keys comes first.
///
/// # Errors
/// [`ArgsError::Short`].
#[inline]
pub fn key_of(args: &[u8]) -> Result<&[u8], ArgsError> {
    key(&mut ArgsReader::new(args))
}

/// Decodes the arguments of an operation on keys. All of a batch is decoded, or nothing.
///
/// Cost: only lists of keys and of entries are allocated, at most eight times as large as the arguments.
///
/// # Errors
/// `args too short` with the part that is missing; `ttlMs out of range`, which of a batch is for each entry to say, when it is
/// carried out.
pub fn decode(op: KvOp, args: &[u8]) -> Result<KvRequest<'_>, ArgsError> {
    let call = args;
    let mut args = ArgsReader::new(args);
    let change = match op {
        KvOp::Get => return Ok(KvRequest::One(KeyOp::Get { key: key(&mut args)? })),
        KvOp::Exists => return Ok(KvRequest::One(KeyOp::Exists { key: key(&mut args)? })),
        KvOp::Ttl => return Ok(KvRequest::One(KeyOp::Ttl { key: key(&mut args)? })),
        KvOp::Operate => return Ok(KvRequest::One(KeyOp::Operate { key: key(&mut args)?, call })),
        KvOp::Mget => {
            let count = args.u16("n")?;
            let count = args.fits(count.into(), KEY_BYTES_MIN, "key")?;
            let mut keys = Vec::with_capacity(count);
            for _ in 0..count {
                keys.push(key(&mut args)?);
            }
            return Ok(KvRequest::Mget { keys });
        }
        KvOp::PutBatch => {
            let count = args.u32("n")?;
            let count = args.fits(count.into(), PUT_BYTES_MIN, "entry")?;
            let mut puts = Vec::with_capacity(count);
            for _ in 0..count {
                let (key, value) = (key(&mut args)?, args.s32("value")?);
                puts.push(Op::Put { key, value, ttl_ms: args.u64("ttlMs")? });
            }
            return Ok(KvRequest::PutBatch { puts });
        }
        KvOp::Put => {
            let (key, value, ttl_ms) = put(&mut args)?;
            Op::Put { key, value, ttl_ms }
        }
        KvOp::SetNx => {
            let (key, value, ttl_ms) = put(&mut args)?;
            Op::SetNx { key, value, ttl_ms }
        }
        KvOp::GetSet => {
            let (key, value, ttl_ms) = put(&mut args)?;
            Op::GetSet { key, value, ttl_ms }
        }
        KvOp::Del => Op::Del { key: key(&mut args)? },
        KvOp::GetDel => Op::GetDel { key: key(&mut args)? },
        KvOp::Persist => Op::Persist { key: key(&mut args)? },
        KvOp::Expire => Op::Expire { key: key(&mut args)?, ttl_ms: args.ttl_ms()? },
        KvOp::Incr => Op::Incr { key: key(&mut args)?, delta: args.i64("delta")? },
        KvOp::IncrEx => {
            Op::IncrEx { key: key(&mut args)?, delta: args.i64("delta")?, ttl_ms: args.ttl_ms()? }
        }
        KvOp::Cas => {
            let (key, value) = (key(&mut args)?, args.s32("value")?);
            let has_expected = args.flag("hasExpected")?;
            // There also when it counts for nothing.
            let expected = Some(args.s32("expected")?).filter(|_| has_expected);
            Op::Cas { key, value, expected, ttl_ms: args.ttl_ms()? }
        }
        KvOp::Cad => Op::Cad { key: key(&mut args)?, expected: args.s32("expected")? },
        KvOp::Caex => {
            let (key, expected) = (key(&mut args)?, args.s32("expected")?);
            Op::Caex { key, expected, ttl_ms: args.ttl_ms()? }
        }
        KvOp::Flush => return Ok(KvRequest::Flush),
    };
    Ok(KvRequest::One(KeyOp::Change(change)))
}

fn key<'a>(args: &mut ArgsReader<'a>) -> Result<&'a [u8], ArgsError> {
    args.s16("key")
}

/// Key, value and ttl.
fn put<'a>(args: &mut ArgsReader<'a>) -> Result<(&'a [u8], &'a [u8], u64), ArgsError> {
    Ok((key(args)?, args.s32("value")?, args.ttl_ms()?))
}

/// Appends the result of `del`, `set_nx`, `exists`, `persist`, `cas`, `cad`, `caex`: `u8`.
pub fn put_done(out: &mut Vec<u8>, done: bool) {
    out.push(done.into());
}

/// Appends the result of `incr`, `incr_ex`, and of `ttl` as [`nigh_engine::kv::View::ttl`] has it: `i64`.
pub fn put_number(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// Appends the result of `getset` and `getdel`, and one value of `mget`: `u8 found, ?s32 value`.
pub fn put_found(out: &mut Vec<u8>, value: Option<&[u8]>) {
    out.push(value.is_some().into());
    if let Some(value) = value {
        // A value came in a frame, whose lengths are 32 bits.
        out.extend_from_slice(&(value.len() as u32).to_be_bytes());
        out.extend_from_slice(value);
    }
}

/// Appends the beginning of the result of `mget`, `u16 n`; a [`put_found`] per key follows, in the order of the keys.
pub fn put_mget_head(out: &mut Vec<u8>, keys: &[&[u8]]) {
    // As many as were asked for in 16 bits.
    out.extend_from_slice(&(keys.len() as u16).to_be_bytes());
}

/// Appends the result of `put_batch`: `u32 applied`.
pub fn put_applied(out: &mut Vec<u8>, applied: u32) {
    out.extend_from_slice(&applied.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::table::TABLE;
    use crate::tcp::hex::hex;
    use nigh_engine::kv::operate::{Call, Change, Outcome};

    fn change(op: Op<'_>) -> KvRequest<'_> {
        KvRequest::One(KeyOp::Change(op))
    }

    const OPERATE: &str = "00016b00000000000000000002000000010303000101016e000000000000000100000000000000000000\
                           0001000101016e";

    fn ops() -> impl Iterator<Item = KvOp> {
        TABLE.iter().filter_map(|row| match row.op {
            crate::op::Op::Kv(op) => Some(op),
            _ => None,
        })
    }

    #[test]
    fn golden_arguments() {
        let key = &b"k"[..];
        let put = |key, value, ttl_ms| Op::Put { key, value, ttl_ms };
        for (op, text, expected) in [
            (KvOp::Get, "000568656c6c6f", KvRequest::One(KeyOp::Get { key: b"hello" })),
            (KvOp::Put, "00016b00000002767600000000000005dc", change(put(key, b"vv", 1500))),
            (KvOp::Incr, "00016bfffffffffffffffd", change(Op::Incr { key, delta: -3 })),
            (
                KvOp::Cas,
                "00016b000000036e657701000000036f6c640000000000000000",
                change(Op::Cas { key, value: b"new", expected: Some(b"old"), ttl_ms: 0 }),
            ),
            (KvOp::Mget, "000200016100026263", KvRequest::Mget { keys: vec![b"a", b"bc"] }),
            (
                KvOp::PutBatch,
                "000000020001610000000131000000000000000000016200000001320000000000000005",
                KvRequest::PutBatch { puts: vec![put(b"a", b"1", 0), put(b"b", b"2", 5)] },
            ),
        ] {
            assert_eq!(decode(op, &hex(text)), Ok(expected));
        }
    }

    #[test]
    fn golden_results() {
        let mut out = Vec::new();
        put_mget_head(&mut out, &[b"a", b"bc"]);
        put_found(&mut out, Some(b"x"));
        put_found(&mut out, None);
        assert_eq!(out, hex("000201000000017800"));
    }

    #[test]
    fn golden_operate() {
        let args = hex(OPERATE);
        let Ok(KvRequest::One(KeyOp::Operate { key, call })) = decode(KvOp::Operate, &args) else { panic!() };
        assert_eq!(key, b"k");
        let call = Call::decode(call).unwrap();
        assert_eq!(call.key, b"k");
        let Ok(Outcome::Done { change: Change::Replace(stored), result }) = call.program.apply(None, 0)
        else {
            panic!()
        };
        assert_eq!(result, hex("00000100000009030100000000000000"));
        assert_eq!(stored, hex("0201016e030100000000000000"));
    }

    #[test]
    fn results() {
        let written = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            out
        };
        assert_eq!(written(&|out| put_done(out, true)), [1]);
        assert_eq!(written(&|out| put_done(out, false)), [0]);
        assert_eq!(written(&|out| put_number(out, -3)), hex("fffffffffffffffd"));
        assert_eq!(written(&|out| put_found(out, Some(b""))), hex("0100000000"));
        assert_eq!(written(&|out| put_applied(out, 258)), hex("00000102"));
    }

    /// Where each part of a layout ends.
    type Ends = Vec<(&'static str, usize)>;

    /// Arguments of every operation.
    fn layouts() -> Vec<(KvOp, Vec<u8>, Ends)> {
        let parts: [(KvOp, &[&'static str]); 17] = [
            (KvOp::Get, &["key"]),
            (KvOp::Del, &["key"]),
            (KvOp::GetDel, &["key"]),
            (KvOp::Exists, &["key"]),
            (KvOp::Persist, &["key"]),
            (KvOp::Ttl, &["key"]),
            (KvOp::Put, &["key", "value", "ttlMs"]),
            (KvOp::SetNx, &["key", "value", "ttlMs"]),
            (KvOp::GetSet, &["key", "value", "ttlMs"]),
            (KvOp::Expire, &["key", "ttlMs"]),
            (KvOp::Incr, &["key", "delta"]),
            (KvOp::IncrEx, &["key", "delta", "ttlMs"]),
            (KvOp::Cas, &["key", "value", "hasExpected", "expected", "ttlMs"]),
            (KvOp::Cad, &["key", "expected"]),
            (KvOp::Caex, &["key", "expected", "ttlMs"]),
            (KvOp::Mget, &["n", "key", "key"]),
            (KvOp::PutBatch, &["n", "key", "value", "ttlMs", "key", "value", "ttlMs"]),
        ];
        parts
            .into_iter()
            .map(|(op, parts)| {
                let (mut args, mut ends) = (Vec::new(), Vec::new());
                for part in parts {
                    match *part {
                        "key" => args.extend(b"\x00\x03key"),
                        "value" | "expected" => args.extend(b"\x00\x00\x00\x02va"),
                        "hasExpected" => args.push(0),
                        "n" if op == KvOp::Mget => args.extend([0, 2]),
                        "n" => args.extend([0, 0, 0, 2]),
                        _ => args.extend(7_u64.to_be_bytes()),
                    }
                    ends.push((*part, args.len()));
                }
                (op, args, ends)
            })
            .collect()
    }

    #[test]
    fn arguments_cut_at_every_byte_name_the_part_that_is_missing() {
        for (op, args, ends) in layouts() {
            let whole = decode(op, &args).unwrap();
            for cut in 0..args.len() {
                let error = decode(op, &args[..cut]).unwrap_err();
                let part = ends.iter().find(|(_, end)| cut < *end).unwrap().0;
                // A list that cannot be there at all is not begun.
                let list = if op == KvOp::Mget { "key" } else { "entry" };
                let expected = [ArgsError::Short(part), ArgsError::Short(list)];
                assert!(expected.contains(&error), "{op:?} cut at {cut}: {error}");
                assert!(error.to_string().starts_with("args too short: "));
            }
            let longer = [&args[..], b"more"].concat();
            assert_eq!(decode(op, &longer), Ok(whole), "{op:?}");
        }
        assert_eq!(decode(KvOp::Flush, b"ignored"), Ok(KvRequest::Flush));
    }

    #[test]
    fn absence_is_expected_by_a_flag() {
        let args = hex("00016b000000016e00000000016f0000000000000000");
        let cas = Op::Cas { key: b"k", value: b"n", expected: None, ttl_ms: 0 };
        assert_eq!(decode(KvOp::Cas, &args), Ok(change(cas)));
    }

    #[test]
    fn times_out_of_range_are_refused_everywhere() {
        let with_ttl =
            [KvOp::Put, KvOp::SetNx, KvOp::GetSet, KvOp::Expire, KvOp::IncrEx, KvOp::Cas, KvOp::Caex];
        for (op, mut args, _) in layouts() {
            if with_ttl.contains(&op) {
                let at = args.len() - 8;
                args[at..].copy_from_slice(&9_223_372_036_854_u64.to_be_bytes());
                assert!(decode(op, &args).is_ok(), "{op:?}");
                args[at..].copy_from_slice(&9_223_372_036_855_u64.to_be_bytes());
                assert_eq!(decode(op, &args), Err(ArgsError::TtlOutOfRange), "{op:?}");
            }
        }
    }

    #[test]
    fn declared_counts_reserve_nothing() {
        assert_eq!(decode(KvOp::PutBatch, &[0xff; 20]), Err(ArgsError::Short("entry")));
        assert_eq!(decode(KvOp::Mget, &[0xff; 20]), Err(ArgsError::Short("key")));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_answered(args in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80)) {
            for op in ops() {
                let _ = decode(op, &args);
            }
        }
    }
}
