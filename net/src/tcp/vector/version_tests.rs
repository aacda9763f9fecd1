//! Writes of one point that ask for its version, byte for byte.

use super::golden_tests::{bytes, check_cuts, read_any};
use super::*;
use crate::op::Op;

/// V stands for [0.1, 0.2, 0.3, 0.4], S for 3 to 0.8 and 17 to 0.4; `|` stands where arguments may end earlier than they do.
fn with_parts(text: &str) -> String {
    let vector = "000000043dcccccd3e4ccccd3e99999a3ecccccd";
    text.replace('V', vector).replace('S', "00000002000000033f4ccccd000000113ecccccd")
}

/// Writes of points of dense collections, which ask with bit 7 of their flags.
fn by_flag() -> Vec<(Op, String)> {
    let texts = [
        "80 04646f6373 0000000000000001 V",
        "b7 04646f6373 0000000000000001 V 0000000000000005 00000007 7b2261223a317d S 0000000000000007 00000008 7b2261223a31357d",
    ];
    let ops = [VectorOp::Insert, VectorOp::Upsert, VectorOp::InsertIfAbsent];
    ops.iter().flat_map(|op| texts.map(|text| (Op::Vector(*op), with_parts(text)))).collect()
}

/// Writes in the other families, which ask with their last byte.
fn by_last_byte() -> Vec<(Op, String)> {
    let (named, add) = (Op::Named(NamedOp::Upsert), Op::MultiVector(MultiVectorOp::Add));
    let if_absent = Op::MultiVector(MultiVectorOp::AddIfAbsent);
    let all = [
        (named, "04646f6373 0000000000000001 00000001 000161 V 0000000000000000 00000000 | 00 | 00 | 56"),
        (
            named,
            "04646f6373 0000000000000001 00000001 000161 V 0000000000000005 00000007 7b2261223a317d | 02 00000001 000173 S | \
             01 00000008 7b2261223a31357d | 01 0000000000000007 | 56",
        ),
        (add, "04646f6373 0000000000000001 00000001 V 00000000 | 00 | 00 | 00 | 56"),
        (
            add,
            "04646f6373 0000000000000001 00000002 V V 00000007 7b2261223a317d | 01 00000008 7b2261223a31357d | \
             01 0000000000000007 | 01 S | 56",
        ),
        (if_absent, "04646f6373 0000000000000001 00000001 V 00000000 | 00 | 56"),
        (if_absent, "04646f6373 0000000000000001 00000001 V 00000000 | 01 0000000000000009 00 | 00 | 56"),
        (
            if_absent,
            "04646f6373 0000000000000001 00000001 V 00000000 | 01 0000000000000009 01 00000008 7b2261223a31357d | 01 S | 56",
        ),
    ];
    all.into_iter().map(|(op, text)| (op, with_parts(text))).collect()
}

/// The id that a write has, the version that it expects, and whether it asks for its version.
fn read_write(op: Op, args: &[u8]) -> Result<(u64, Option<u64>, bool), String> {
    let (fields, asks) = match read_any(op, args)? {
        VectorRequest::Write(write, asks) | VectorRequest::WriteIfAbsent(write, asks) => {
            (write.batch.points.into_iter().next(), asks)
        }
        VectorRequest::WriteNamed(write, asks) => {
            (write.points.into_iter().next().map(|point| point.fields), asks)
        }
        VectorRequest::AddDocuments(write, asks) | VectorRequest::AddDocumentIfAbsent(write, asks) => {
            (write.documents.into_iter().next().map(|document| document.fields), asks)
        }
        _ => panic!("another kind of request"),
    };
    let fields = fields.expect("a point");
    Ok((fields.id, fields.expected_version, asks))
}

#[test]
fn writes_that_ask_for_the_version_cut_at_every_byte() {
    by_flag().iter().chain(&by_last_byte()).for_each(|(op, text)| check_cuts(*op, text));
}

/// Without the bit, and without exactly one byte of the right value at the end, the same write asks for nothing.
#[test]
fn only_the_bit_and_the_byte_ask() {
    for (op, text) in by_flag() {
        let mut args = bytes(&text);
        let (id, expected, asks) = read_write(op, &args).unwrap();
        assert!(asks, "{op:?} {text}");
        assert_eq!(read_write(op, &[&args[..], &[0]].concat()), Ok((id, expected, true)));
        args[0] &= 0x7f;
        for behind in [&b""[..], b"\x56", b"\x56\x56"] {
            let args = [&args[..], behind].concat();
            assert_eq!(read_write(op, &args), Ok((id, expected, false)), "{op:?} {text} {behind:?}");
        }
    }
    for (op, text) in by_last_byte() {
        let args = bytes(&text);
        let (id, expected, asks) = read_write(op, &args).unwrap();
        assert!(asks, "{op:?} {text}");
        let (_, without) = args.split_last().unwrap();
        for behind in [&b""[..], b"\0", b"\x01", b"\x4f", b"\x57", b"\x56\0", b"\0\x56", b"\x56\x56"] {
            let args = [without, behind].concat();
            assert_eq!(read_write(op, &args), Ok((id, expected, false)), "{op:?} {text} {behind:?}");
        }
    }
}

/// Where a part is left out the byte takes its place, and is refused for what is missing behind it.
#[test]
fn the_byte_needs_every_part_before_it() {
    let (named, add) = (Op::Named(NamedOp::Upsert), Op::MultiVector(MultiVectorOp::Add));
    let point = "04646f6373 0000000000000001 00000001 000161 V 0000000000000000 00000000";
    let document = "04646f6373 0000000000000001 00000001 V 00000000";
    let if_absent = Op::MultiVector(MultiVectorOp::AddIfAbsent);
    for (op, head, rest, missing) in [
        (named, point, "56", "keyTtl"),
        (named, point, "00 56", "expectedVersion"),
        (add, document, "56", "keyTtl"),
        (add, document, "00 56", "expectedVersion"),
        (add, document, "00 00 56", "sparse"),
        (if_absent, document, "56", "version"),
        (if_absent, document, "01 0000000000000009 56", "keyTtl"),
        (if_absent, document, "01 0000000000000009 00 56", "sparse"),
    ] {
        let refused = read_write(op, &bytes(&with_parts(&format!("{head} {rest}"))));
        assert_eq!(refused, Err(format!("args too short: {missing}")), "{op:?} {rest}");
    }
}
