//! The options of searches, which come last in their arguments.
use super::*;
use crate::op::Op;
use crate::tcp::hex::hex;
use crate::wire::payloads::Decoding;

const NOW_MS: u64 = 1_000;

#[test]
fn options_of_searches_are_read() {
    // V stands for [0.1, 0.2, 0.3, 0.4].
    let vector = "000000043dcccccd3e4ccccd3e99999a3ecccccd";
    let bytes = |text: &str| hex(&text.replace('V', vector));
    let read = |op, text: &str| decode(Op::Vector(op), &bytes(text), &Decoding::tagged(NOW_MS));
    let text = "00 04646f6373 0000000a V 4f 0000000c 7b226f6666736574223a337d";
    let Ok(VectorRequest::Search(search)) = read(VectorOp::Search, text) else { panic!() };
    assert_eq!((search.options.offset, search.k), (3, 10));
    // {"explain":true}
    let text = "00 04646f6373 0000000a V 4f 00000010 7b226578706c61696e223a747275657d";
    let Ok(VectorRequest::Search(search)) = read(VectorOp::Search, text) else { panic!() };
    assert!(search.options.explain);
    let text = "04646f6373 00000012 120932070a03010203180a2203727266380a 00 4f 00000000";
    let Ok(VectorRequest::Query(query)) = read(VectorOp::Query, text) else { panic!() };
    assert_eq!(query.options, crate::op::SearchOptions::default());
    for (text, fragment) in [
        ("00 04646f6373 0000000a V 01", "search options: unknown marker 0x01; it must be 0x4f or missing"),
        ("00 04646f6373 0000000a V 4f 00000002 7b7a", "search options: "),
        ("00 04646f6373 0000000a V 4f", "search options"),
    ] {
        let refused = read(VectorOp::Search, text).err().expect(text);
        assert!(refused.message.contains(fragment), "{refused}");
    }
}
