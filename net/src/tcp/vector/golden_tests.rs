//! The arguments that the protocol's description gives as examples, byte for byte.

use super::*;
use crate::op::table::TABLE;
use crate::op::{Op, ReadOptions, compile_filter};
use crate::tcp::hex::hex;
use crate::wire::payloads::Decoding;
use nigh_engine::collection::{DenseConfig, IndexType, IvfConfig, Quantizer, VamanaConfig, WriteMode};
use nigh_engine::distance::{Metric, Width};
use nigh_engine::filter::Node;
use nigh_engine::payload::{PayloadRow, Value, ValueRef};
use nigh_engine::quantizer::Quantization;
use nigh_engine::query::{Method, Source, Strategy};
use nigh_engine::text::{Analyzer, TextConfig, TextMatch};
use nigh_shard::core::{OrderKey, Part, PayloadChange, Position, Vectors, WriteBatch};
use proptest::prelude::*;

pub(super) const NOW_MS: u64 = 1_000;
/// [0.1, 0.2, 0.3, 0.4].
const V: &str = "000000043dcccccd3e4ccccd3e99999a3ecccccd";
pub(super) const VECTOR: [f32; 4] = [0.1, 0.2, 0.3, 0.4];
/// tenant = "acme".
const F: &str = "000000437b226f70223a226571222c226669656c64223a2274656e616e74222c2276616c7565223a7b226b696e64223a22737472696e67222c22737472223a2261636d65227d7d";
/// 3 to 0.8, 17 to 0.4.
const SPARSE: &str = "00000002000000033f4ccccd000000113ecccccd";

/// Every example, in groups of digits; `|` stands where arguments may end earlier than they do.
fn examples() -> Vec<(VectorOp, String)> {
    let texts = |op, texts: &[&str]| texts.iter().map(|text| (op, (*text).to_owned())).collect::<Vec<_>>();
    let with_parts = |op, text: &str| (op, text.replace('V', V).replace('F', F).replace('S', SPARSE));
    let mut all = texts(
        VectorOp::CreateCollection,
        &[
            "04646f6373 00000008 00 00000010 000000c8 00000040 0000000000000000 | 000000000000 | 0000000000 | 00 | 00 | 00000000",
            "05632d737138 00000008 00 00000010 000000c8 00000040 0000000000000000 | 010000000000 | 0000000000 | 00 | 00 | 00000000",
            "03697666 00000008 00 00000010 000000c8 00000040 0000000000000000 | 000000000000 | 0000000000 | 00 | 00 | 00000000 | 01000000 | 4000000008",
        ],
    );
    all.extend([
        with_parts(VectorOp::Insert, "00 04646f6373 0000000000000001 V"),
        with_parts(VectorOp::Insert, "04 04646f6373 0000000000000009 V S"),
        with_parts(VectorOp::Upsert, "02 04646f6373 0000000000000001 V 0000002c 7b2224636f6e74656e74223a7b226b696e64223a22737472696e67222c22737472223a2268656c6c6f227d7d"),
        with_parts(VectorOp::Delete, "04646f6373 000000000000002a"),
        with_parts(VectorOp::Exists, "04646f6373 000000000000002a"),
        with_parts(VectorOp::Get, "04646f6373 0000000000000001 03"),
        with_parts(VectorOp::GetBatch, "04646f6373 03 00000002 0000000000000007 00000002540be3ff"),
        with_parts(VectorOp::Search, "00 04646f6373 0000000a V"),
        with_parts(VectorOp::Search, "03 04646f6373 00000005 V F 0101"),
        with_parts(VectorOp::Search, "02 04646f6373 00000005 V 03 00 0000000000003039"),
        with_parts(VectorOp::SearchGroups, "04646f6373 00000005 00000002 00000032 0006646f635f6964 V 00000000"),
        with_parts(VectorOp::SearchGroups, "04646f6373 00000005 00000000 00000000 0003636174 V 00000000 | 01 03 00 0000000000000309"),
        with_parts(VectorOp::HybridSearch, "00 04646f6373 0000000a 00 0000000000000000 000000000000000000000000 V"),
        with_parts(VectorOp::HybridSearch, "02 04646f6373 0000000a 01 3fe3333333333333 0000003c 00000032 00000032 V S"),
        with_parts(VectorOp::HybridText, "00 04646f6373 0000000a 00 0000000000000000 000000000000000000000000 V 0000000b 68656c6c6f20776f726c64"),
        with_parts(VectorOp::Scroll, "04646f6373 00000032 00000000"),
        with_parts(VectorOp::Scroll, "04646f6373 00000014 00000000 | 010000 | 01 000000000000002a"),
        with_parts(VectorOp::Scroll, "04646f6373 00000014 00000000 | 010301 0000000000001092"),
        with_parts(VectorOp::Scroll, "04646f6373 00000014 00000000 | 010000 | 00 | 01 00000005 73636f7265 01 01 3ff8000000000000 00"),
        with_parts(VectorOp::Scroll, "04646f6373 00000014 00000000 | 010000 | 01 0000000000000063 | 01 0000000a 637265617465645f6174 02 00 01 40c81c8000000000"),
        with_parts(VectorOp::Scroll, "04646f6373 00000014 00000000 | 010000 | 00 | 01 00000005 7469746c65 04 00 00 01 00000003 666f6f"),
        with_parts(VectorOp::Scroll, "04646f6373 00000014 00000000 | 010101 | 01 0000000000000005 | 01 00000005 73636f7265 09 00 00 02 00000005 7469746c65 04 0000000a 637265617465645f6174 03 01 00 400c000000000000 02 00000003 626172 01 408f380000000000"),
        with_parts(VectorOp::Query, "04646f6373 00000012 120932070a03010203180a2203727266380a"),
        with_parts(VectorOp::Query, "04646f6373 00000014 120b32090a020102120109180522037272663805"),
        with_parts(VectorOp::Query, "04646f6373 00000013 120a32080a0201021805280122037272663805"),
        with_parts(VectorOp::Query, "04646f6373 00000012 120932070a03010203180a2203727266380a | 03 03 00 000000000000022b"),
    ]);
    all
}

/// Requests of the operations without an example, and with the parts that examples leave out, written in the same way.
fn others() -> Vec<(VectorOp, String)> {
    let all = [
        (VectorOp::DropCollection, "04646f6373"),
        (VectorOp::GetConfig, "04646f6373 | 01 01 00"),
        (VectorOp::ChangeConfig, "04646f6373 0000000f 7b2265665f736561726368223a397d"),
        (
            VectorOp::Upsert,
            "37 04646f6373 0000000000000001 V 0000000000000005 00000007 7b2261223a317d S 0000000000000007 00000008 7b2261223a31357d",
        ),
        (VectorOp::InsertIfAbsent, "00 04646f6373 0000000000000001 V"),
        (VectorOp::Delete, "04646f6373 000000000000002a | 01 0000000000000003"),
        (VectorOp::Get, "04646f6373 0000000000000001 01 | 03 03 01 0000000000000009"),
        (
            VectorOp::SetPayload,
            "04646f6373 0000000000000001 00000007 7b2261223a317d | 01 00000007 7b2261223a357d | 01 0000000000000002",
        ),
        (
            VectorOp::OverwritePayload,
            "04646f6373 0000000000000001 00000007 7b2261223a317d | 00 | 01 0000000000000002",
        ),
        (
            VectorOp::DeletePayloadKeys,
            "04646f6373 0000000000000001 00000002 000161 0008 24636f6e74656e74 | 01 0000000000000000",
        ),
        (VectorOp::ClearPayload, "04646f6373 0000000000000001 | 01 0000000000000001"),
        (VectorOp::DeleteByFilter, "04646f6373 F"),
        (VectorOp::DeleteByFilter, "04646f6373 00000000 | 01 00000002 0000000000000007 0000000000000009"),
        (VectorOp::SearchDocs, "03 04646f6373 00000005 V F 03 00 0000000000003039"),
        (
            VectorOp::HybridSearch,
            "07 04646f6373 0000000a 02 3fe3333333333333 0000003c 00000032 00000032 V S F 0101",
        ),
        (
            VectorOp::HybridText,
            "07 04646f6373 0000000a 00 0000000000000000 000000000000000000000000 V 00000001 61 F 0101",
        ),
        (VectorOp::SearchText, "03 04646f6373 0000000a 0000000b 68656c6c6f20776f726c64 F 0100"),
        // The options of a search stand behind everything else: {"offset":3}.
        (VectorOp::Search, "00 04646f6373 0000000a V | 4f 0000000c 7b226f6666736574223a337d"),
        (
            VectorOp::SearchDocs,
            "03 04646f6373 00000005 V F 03 00 0000000000003039 | 4f 0000000c 7b226f6666736574223a337d",
        ),
        (
            VectorOp::SearchGroups,
            "04646f6373 00000005 00000002 00000032 0006646f635f6964 V 00000000 | 00 | 4f 0000000c 7b226f6666736574223a337d",
        ),
        (
            VectorOp::HybridSearch,
            "00 04646f6373 0000000a 00 0000000000000000 000000000000000000000000 V | 4f 0000000c 7b226f6666736574223a337d",
        ),
        (
            VectorOp::SearchText,
            "00 04646f6373 0000000a 0000000b 68656c6c6f20776f726c64 | 4f 0000000c 7b226f6666736574223a337d",
        ),
        (
            VectorOp::Query,
            "04646f6373 00000012 120932070a03010203180a2203727266380a | 00 | 4f 0000000c 7b226f6666736574223a337d",
        ),
        (VectorOp::BulkStage, "04646f6373 00000001 00000001 0000000000000007 3f800000"),
        (
            VectorOp::BulkStagePayload,
            "04646f6373 00000001 00000001 0000000000000007 3f800000 00000007 7b2261223a317d",
        ),
        (VectorOp::BulkBuild, "04646f6373 00000002"),
        (
            VectorOp::Operate,
            "04646f6373 0000000000000005 000172 01 0000000000000003 00000012 0000 0000000000000000 00 02 0000 0000 0000",
        ),
    ];
    let with_parts = |text: &str| text.replace('V', V).replace('F', F).replace('S', SPARSE);
    all.into_iter().map(|(op, text)| (op, with_parts(text))).collect()
}

pub(super) fn bytes(text: &str) -> Vec<u8> {
    hex(&text.replace([' ', '|'], ""))
}

/// The request of an example, or of what a test makes of one.
fn read(op: VectorOp, args: &[u8]) -> Result<VectorRequest, String> {
    read_any(Op::Vector(op), args)
}

pub(super) fn read_any(op: Op, args: &[u8]) -> Result<VectorRequest, String> {
    decode(op, args, &Decoding::tagged(NOW_MS)).map_err(|error| error.message)
}

/// Requests of operations on collections of named spaces, written in the same way.
pub(super) fn named() -> Vec<(NamedOp, String)> {
    const SPACES: &str = "0000002e 7b2261223a7b2264696d223a342c226d6574726963223a317d2c2273223a7b22737061727365223a747275657d7d";
    let all = [
        (NamedOp::CreateCollection, "04646f6373 C | 00000001 | 00000010 7b2266756c6c5f74657874223a7b7d7d"),
        (NamedOp::DropCollection, "04646f6373"),
        (NamedOp::GetConfig, "04646f6373 | 01 01 00"),
        (
            NamedOp::Upsert,
            "04646f6373 0000000000000001 00000001 000161 V 0000000000000005 00000007 7b2261223a317d | 02 00000001 000173 S | \
             01 00000008 7b2261223a31357d | 01 0000000000000007",
        ),
        (
            NamedOp::Upsert,
            "04646f6373 0000000000000001 00000000 0000000000000000 00000000 | 00 | 01 0000000000000000",
        ),
        (NamedOp::Delete, "04646f6373 000000000000002a | 01 0000000000000003"),
        (NamedOp::DeletePoints, "04646f6373 F"),
        (NamedOp::DeletePoints, "04646f6373 00000000 | 01 00000002 0000000000000007 0000000000000009"),
        (NamedOp::Exists, "04646f6373 000000000000002a"),
        (NamedOp::Get, "04646f6373 0000000000000001 03 | 03 03 01 0000000000000009"),
        (NamedOp::GetBatch, "04646f6373 03 00000002 0000000000000007 00000002540be3ff"),
        (
            NamedOp::SetPayload,
            "04646f6373 0000000000000001 00000007 7b2261223a317d | 01 00000007 7b2261223a357d | 01 0000000000000002",
        ),
        (
            NamedOp::OverwritePayload,
            "04646f6373 0000000000000001 00000007 7b2261223a317d | 00 | 01 0000000000000002",
        ),
        (NamedOp::DeletePayloadKeys, "04646f6373 0000000000000001 00000001 000161 | 01 0000000000000000"),
        (NamedOp::ClearPayload, "04646f6373 0000000000000001 | 01 0000000000000001"),
        (NamedOp::Search, "04646f6373 000161 0000000a V F | 03 03 00 0000000000003039"),
        (NamedOp::SearchDocs, "04646f6373 000161 0000000a V 00000000"),
        (NamedOp::SparseSearch, "04646f6373 000173 0000000a S F | 01 01 00"),
        (
            NamedOp::HybridSearch,
            "07 04646f6373 000161 000173 0000000a 02 3fe3333333333333 0000003c 00000032 00000032 V S F 0101",
        ),
        (NamedOp::Query, "04646f6373 0000000d 120b1a090a016112040000803f | 01 01 00"),
        (NamedOp::Scroll, "04646f6373 00000032 F | 0b 000000000000002a 03 01 0000000000001092"),
        (
            NamedOp::Scroll,
            "04646f6373 00000014 00000000 | 05 0000000000000063 0000000a 637265617465645f6174 02 00 01 40c81c8000000000",
        ),
        (
            NamedOp::Operate,
            "04646f6373 0000000000000005 000172 01 0000000000000003 00000012 0000 0000000000000000 00 02 0000 0000 0000",
        ),
        (
            NamedOp::UpdateVectors,
            "04646f6373 0000000000000001 00000001 000161 V 00000001 000173 S 00000001 000162 | 01 0000000000000007",
        ),
        (NamedOp::ChangeConfig, "04646f6373 00000015 7b2261223a7b2265665f736561726368223a397d7d"),
        (
            NamedOp::ChangeConfig,
            "04646f6373 00000015 7b2261223a7b2265665f736561726368223a397d7d | 00000011 7b226d61785f766563746f7273223a337d",
        ),
        (
            NamedOp::HybridSearch,
            "39 04646f6373 000161 0000 0000000a 02 3fe3333333333333 0000003c 00000032 00000032 V 00000000 00000003 726564 F",
        ),
        (NamedOp::Query, "04646f6373 0000000c 120aa206070a037265641001 | 01 01 00"),
        (NamedOp::SearchMmr, "04646f6373 000161 0000000a 3fd0000000000000 00000032 V F | 01 01 00"),
        (NamedOp::AddSpace, "04646f6373 000161 00000009 7b2264696d223a327d"),
        (NamedOp::DropSpace, "04646f6373 000161"),
    ];
    let with_parts =
        |text: &str| text.replace('C', SPACES).replace('V', V).replace('F', F).replace('S', SPARSE);
    all.into_iter().map(|(op, text)| (op, with_parts(text))).collect()
}

/// Requests of operations on multi-vector collections, written in the same way.
pub(super) fn multi_vector() -> Vec<(MultiVectorOp, String)> {
    use MultiVectorOp::*;
    let all = [
        (
            CreateCollection,
            "04646f6373 00000004 00000010 000000c8 00000040 fffffffffffffff9 | 00 00000000 00 | 00000000 | 01 00000007 00000002 | \
             01 00000002 00 | 01 | 00000064 | 00 | 01 4008000000000000 4000000000000000 | 00000064 | 00000005 | 01 07 656e676c697368 3f99999a 3f400000 | \
             0000000000000003 ffffffffffffffff | 01 00000005 00000004 00000003 | 01 | 02",
        ),
        (DropCollection, "04646f6373 | 0000000000000000"),
        (GetConfig, "04646f6373 | 01 01 00"),
        (
            Add,
            "04646f6373 0000000000000001 00000002 V V 00000007 7b2261223a317d | 01 00000008 7b2261223a31357d | \
             01 0000000000000007 | 01 S",
        ),
        (Add, "04646f6373 0000000000000001 00000001 V 00000000 | 00 | 00 | 00"),
        (
            AddIfAbsent,
            "04646f6373 0000000000000001 00000001 V 00000007 7b2261223a317d | \
             01 0000000000000009 01 00000008 7b2261223a31357d | 01 S",
        ),
        (Exists, "04646f6373 000000000000002a"),
        (Delete, "04646f6373 000000000000002a | 01 0000000000000003"),
        (DeletePoints, "04646f6373 F"),
        (Get, "04646f6373 0000000000000001 03 | 03 03 01 0000000000000009"),
        (GetBatch, "04646f6373 03 00000002 0000000000000007 00000002540be3ff"),
        (
            SetPayload,
            "04646f6373 0000000000000001 00000007 7b2261223a317d | 01 00000007 7b2261223a357d | 01 0000000000000002",
        ),
        (OverwritePayload, "04646f6373 0000000000000001 00000007 7b2261223a317d | 00 | 01 0000000000000002"),
        (DeletePayloadKeys, "04646f6373 0000000000000001 00000001 000161 | 01 0000000000000000"),
        (ClearPayload, "04646f6373 0000000000000001 | 01 0000000000000001"),
        (Search, "04646f6373 0000000a 00000064 00000001 V | 07 03 01 0000000000003039 F"),
        (Search, "04646f6373 0000000a 00000000 00000000 | 02 F"),
        (
            HybridSearch,
            "07 04646f6373 0000000a 02 3fe3333333333333 0000003c 00000032 00000032 00000001 V S F 0101",
        ),
        (Query, "04646f6373 0000000c 120a2a080a060a040000803f | 01 01 00"),
        (Scroll, "04646f6373 00000032 F | 0b 000000000000002a 03 01 0000000000001092"),
        (
            Operate,
            "04646f6373 0000000000000005 000172 01 0000000000000003 00000012 0000 0000000000000000 00 02 0000 0000 0000",
        ),
        (ChangeConfig, "04646f6373 0000000f 7b2265665f736561726368223a397d"),
        (
            HybridSearch,
            "28 04646f6373 0000000a 02 3fe3333333333333 0000003c 00000032 00000032 00000001 V 00000000 00000003 726564",
        ),
        (Query, "04646f6373 0000000c 120aa206070a037265641001 | 01 01 00"),
    ];
    let with_parts = |text: &str| text.replace('V', V).replace('F', F).replace('S', SPARSE);
    all.into_iter().map(|(op, text)| (op, with_parts(text))).collect()
}

/// Requests of the operations that every family has in the same form and the interface has not, by the names behind their beginnings.
const BEYOND: [(&str, &str); 10] = [
    ("info", "04646f6373"),
    ("count", "04646f6373 F"),
    ("facet", "04646f6373 000161 0000000a F"),
    ("sample", "04646f6373 00000000 F | 01 0000000000000007"),
    ("set_payload_by_filter", "04646f6373 F 00 00000007 7b2261223a317d | 01 00000007 7b2261223a357d"),
    (
        "overwrite_payload_by_filter",
        "04646f6373 00000000 01 00000002 0000000000000007 0000000000000009 00000007 7b2261223a317d | 00",
    ),
    ("delete_payload_keys_by_filter", "04646f6373 F 00 00000002 000161 0008 24636f6e74656e74"),
    ("clear_payload_by_filter", "04646f6373 F 00"),
    ("clear_payload_by_filter", "04646f6373 00000000 01 00000001 0000000000000007"),
    ("clear_payload_by_filter", "04646f6373 00000000 01 00000000"),
];

fn beyond() -> Vec<(Op, String)> {
    let families = ["vector_", "vector_named_", "vector_mv_"];
    let names =
        BEYOND.iter().flat_map(|(name, text)| families.map(|family| (format!("{family}{name}"), text)));
    names.map(|(name, text)| (crate::op::table::named(&name).op, text.replace('F', F))).collect()
}

#[test]
fn what_is_beyond_the_interface() {
    let request = |name: &str, index: usize| {
        let texts = BEYOND.iter().filter(|(other, _)| *other == name);
        let text = texts.map(|(_, text)| text.replace('F', F)).nth(index).expect("an example");
        let op = crate::op::table::named(&format!("vector_named_{name}")).op;
        read_any(op, &bytes(&text)).unwrap_or_else(|message| panic!("{message}"))
    };
    let VectorRequest::Info(info) = request("info", 0) else { panic!() };
    assert_eq!(info.collection, "docs");
    let VectorRequest::Count(count) = request("count", 0) else { panic!() };
    assert!(count.filter.is_some());
    let VectorRequest::Facet(facet) = request("facet", 0) else { panic!() };
    assert_eq!((&facet.key[..], facet.limit, facet.filter.is_some()), ("a", 10, true));
    let VectorRequest::Sample(sample) = request("sample", 0) else { panic!() };
    assert_eq!((sample.limit, sample.seed), (10, 7));
    let entries = vec![("a".to_owned(), Value::Int(1))];
    let changed = |name: &str, index| match request(name, index) {
        VectorRequest::ChangePayloads(changes) => {
            (changes.filter.is_some(), changes.ids.map(|ids| ids.numbers), changes.change)
        }
        _ => panic!("another kind of request"),
    };
    let merge = PayloadChange::Merge { entries: entries.clone(), key_ttl_ms: vec![("a".to_owned(), 5)] };
    assert_eq!(changed("set_payload_by_filter", 0), (true, None, merge));
    let overwrite = PayloadChange::Overwrite { entries, key_ttl_ms: Vec::new() };
    assert_eq!(changed("overwrite_payload_by_filter", 0), (false, Some(vec![7, 9]), overwrite));
    let keys = PayloadChange::DeleteKeys(vec!["a".to_owned(), "$content".to_owned()]);
    assert_eq!(changed("delete_payload_keys_by_filter", 0), (true, None, keys));
    assert_eq!(changed("clear_payload_by_filter", 0), (true, None, PayloadChange::Clear));
    assert_eq!(changed("clear_payload_by_filter", 1), (false, Some(vec![7]), PayloadChange::Clear));
    assert_eq!(changed("clear_payload_by_filter", 2), (false, Some(vec![]), PayloadChange::Clear));
    let many = "04646f6373 00000000 01 00100001";
    let op = crate::op::table::named("vector_clear_payload_by_filter").op;
    assert_eq!(read_any(op, &bytes(many)).err().as_deref(), Some("ids: at most 1048576 in one request"));
}

/// Every request with its operation.
fn of_every_family() -> Vec<(Op, String)> {
    let dense = examples().into_iter().chain(others()).map(|(op, text)| (Op::Vector(op), text));
    let named = named().into_iter().map(|(op, text)| (Op::Named(op), text));
    let multi_vector = multi_vector().into_iter().map(|(op, text)| (Op::MultiVector(op), text));
    dense.chain(named).chain(multi_vector).chain(beyond()).collect()
}

/// The `index`th example of `op`.
fn example(op: VectorOp, index: usize) -> Vec<u8> {
    let mut of_op = examples().into_iter().filter(|(other, _)| *other == op);
    bytes(&of_op.nth(index).expect("an example").1)
}

macro_rules! request {
    ($kind:ident, $op:ident, $args:expr) => {
        match read(VectorOp::$op, $args) {
            Ok(VectorRequest::$kind(request, ..)) => request,
            Ok(_) => panic!("another kind of request"),
            Err(message) => panic!("{message}"),
        }
    };
}

fn create(text: &str) -> Result<(String, DenseConfig), String> {
    match read(VectorOp::CreateCollection, &bytes(text))? {
        VectorRequest::Create(request) => {
            Ok((request.collection, request.config.dense().cloned().expect("a dense collection")))
        }
        _ => panic!("another kind of request"),
    }
}

#[test]
fn collections() {
    let plain = DenseConfig::new(8, Metric::Cosine);
    let shortest: Vec<_> = (0..3)
        .map(|index| request!(Create, CreateCollection, &example(VectorOp::CreateCollection, index)))
        .map(|create| (create.collection, create.config.dense().cloned().expect("a dense collection")))
        .collect();
    let ivf = IvfConfig { nlist: 64, nprobe: 8, train_threshold: 0, drift: None, soar: None, product: None };
    assert_eq!(shortest[0], ("docs".to_owned(), plain.clone()));
    assert_eq!(shortest[1], ("c-sq8".to_owned(), DenseConfig { quant: Quantizer::Sq8, ..plain.clone() }));
    assert_eq!(
        shortest[2],
        ("ivf".to_owned(), DenseConfig { index: IndexType::Ivf(ivf.clone()), ..plain.clone() })
    );

    let trained = "03697674000000080000000010000000c8000000400000000000000000000000000000000000000000000000000001000000000000000000000000000000000000000000002710";
    let ivf = IvfConfig { train_threshold: 10_000, nlist: 0, nprobe: 0, ..ivf };
    assert_eq!(
        create(trained),
        Ok(("ivt".to_owned(), DenseConfig { index: IndexType::Ivf(ivf), ..plain.clone() }))
    );
    let text = "026674000000080000000010000000c8000000400000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000107656e676c6973683f99999a3f400000";
    let full_text = Some(TextConfig { k1: 1.2, b: 0.75, ..TextConfig::default() });
    assert_eq!(create(text), Ok(("ft".to_owned(), DenseConfig { full_text, ..plain.clone() })));
    for analyzer in Analyzer::ALL {
        let name: String = analyzer.name().bytes().map(|byte| format!("{byte:02x}")).collect();
        let named = text.replace("07656e676c697368", &format!("{:02x}{name}", analyzer.name().len()));
        let full_text = Some(TextConfig { k1: 1.2, b: 0.75, analyzer: *analyzer });
        assert_eq!(create(&named), Ok(("ft".to_owned(), DenseConfig { full_text, ..plain.clone() })));
    }
    let vamana = "0376616d000000080000000010000000c80000004000000000000000000000000000000000000000000000000000020000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000040000000643f99999a";
    let index = IndexType::Vamana(VamanaConfig { degree: 64, beam: 100, alpha: 1.2 });
    assert_eq!(create(vamana), Ok(("vam".to_owned(), DenseConfig { index, ..plain.clone() })));
    let scalar = "027371000000080000000010000000c8000000400000000000000000040000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000006";
    let quant = Quantizer::Trained(Quantization::Scalar { width: Width::Six });
    assert_eq!(create(scalar), Ok(("sq".to_owned(), DenseConfig { quant, ..plain })));
}

/// Two examples ask for what makes no sense together; as over REST that is said. With the right quantizer and index they read.
#[test]
fn collections_that_cannot_be() {
    let levels =
        "036c6576000000080000000010000000c800000040000000000000000000000000000001000000c8010100000000";
    let message = create(levels).unwrap_err();
    assert!(message.contains("quantized_build: needs a quantizer"), "{message}");
    let mut args = bytes(levels);
    args[4 + 25] = 1;
    let config = request!(Create, CreateCollection, &args).config;
    let config = config.dense().expect("a dense collection");
    assert!(config.extend_candidates && config.level0_full_degree && config.quantized_build);
    assert_eq!((config.extend_candidates_max, config.quant), (200, Quantizer::Sq8));

    let soar = "02736f000000080000000010000000c80000004000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000013fc00000";
    let message = create(soar).unwrap_err();
    assert!(message.contains("SOAR requires"), "{message}");
    let mut args = bytes(soar);
    args[3 + 25 + 17] = 1;
    let config = request!(Create, CreateCollection, &args).config;
    let Some(IndexType::Ivf(ivf)) = config.dense().map(|config| &config.index) else { panic!() };
    assert_eq!(ivf.soar, Some(1.5));
}

/// Six bytes behind block 6: of cells they are block 7, else blocks 8, 9 and 10.
#[test]
fn the_ambiguous_block() {
    let head = "0164 00000008 00 00000010 000000c8 00000040 0000000000000000";
    let until_6 = "030000000000 0000000000 00 00 00000000 00 00000000 00000000";
    let (_, config) = create(&format!("{head} {until_6} 00000004 01 00")).unwrap();
    let product = Quantization::Product { parts: 4, bits: 8, rotations: 1, eta: 0.0 };
    assert_eq!(config.quant, Quantizer::Trained(product));
    // One more byte, and the first six are block 7.
    let message = create(&format!("{head} {until_6} 01 00000004 00 00000002")).unwrap_err();
    assert!(message.contains("IVFPQ requires"), "{message}");
    let of_cells = "000000000000 0000000000 00 00 00000000 01 00000000 00000000";
    let (_, config) = create(&format!("{head} {of_cells} 01 00000004 01")).unwrap();
    let IndexType::Ivf(ivf) = config.index else { panic!() };
    assert_eq!(ivf.product.map(|product| (product.code.parts, product.rerank)), Some((4, true)));
    // Block 8 without 6.
    let (_, config) = create(&format!("{head} 030000000000 0000000000 00 00 00000000 00000002")).unwrap();
    let product = Quantization::Product { parts: 2, bits: 8, rotations: 0, eta: 0.0 };
    assert_eq!(config.quant, Quantizer::Trained(product));
}

#[test]
fn what_a_collection_cannot_be_is_named() {
    let head = |metric: &str| format!("0164 00000008 {metric} 00000010 000000c8 00000040 0000000000000000");
    let until_5 = "000000000000 0000000000 00 00 00000000";
    for (text, fragment) in [
        (head("03"), "invalid metric: unknown code 3"),
        (format!("{} 060000000000", head("00")), "invalid quant: unknown code 6"),
        (format!("{} {until_5} 04 00000000 00000000", head("00")), "invalid index: unknown code 4"),
        // A block that is begun.
        (format!("{} 00", head("00")), "args too short: persistent"),
        (format!("{} 000000000000 00", head("00")), "args too short: extendMax"),
        (format!("{} {until_5} 00", head("00")), "args too short: quantPqM"),
    ] {
        let message = create(&text).unwrap_err();
        assert!(message.contains(fragment), "{message} lacks {fragment}");
    }
}

/// Id, vector, row and what else of a write of one point.
fn written(batch: WriteBatch) -> (WriteMode, u64, Vec<f32>, Vec<u8>, i64, Option<u64>) {
    let Vectors::Native(vector) = batch.vectors else { panic!() };
    let [point] = &batch.points[..] else { panic!() };
    (batch.mode, point.id, vector, point.row.clone(), point.ttl_ms, point.expected_version)
}

#[test]
fn writes() {
    let insert = request!(Write, Insert, &example(VectorOp::Insert, 0));
    assert_eq!(insert.collection, "docs");
    assert_eq!(written(insert.batch), (WriteMode::Insert, 1, VECTOR.to_vec(), vec![], 0, None));
    let insert = request!(Write, Insert, &example(VectorOp::Insert, 1));
    let (_, id, _, row, ..) = written(insert.batch);
    let sparse: Vec<_> = PayloadRow::trusted(&row).sparse().collect();
    assert_eq!((id, sparse), (9, vec![(3, 0.8), (17, 0.4)]));
    let upsert = request!(Write, Upsert, &example(VectorOp::Upsert, 0));
    let (mode, id, _, row, ..) = written(upsert.batch);
    assert_eq!((mode, id), (WriteMode::Upsert, 1));
    assert_eq!(PayloadRow::trusted(&row).get("$content", NOW_MS), Some(ValueRef::String("hello")));
    // Every part that may be there.
    let all = bytes(&format!(
        "37 04646f6373 0000000000000001 {V} 0000000000000005 00000007 7b2261223a317d {SPARSE} 0000000000000007 00000008 7b2261223a31357d"
    ));
    let upsert = request!(Write, Upsert, &all);
    let (_, _, _, row, ttl_ms, expected) = written(upsert.batch);
    assert_eq!((ttl_ms, expected), (5, Some(7)));
    assert_eq!(PayloadRow::trusted(&row).get("a", NOW_MS + 14), Some(ValueRef::Int(1)));
    assert_eq!(PayloadRow::trusted(&row).get("a", NOW_MS + 15), None);
    let if_absent = request!(WriteIfAbsent, InsertIfAbsent, &example(VectorOp::Insert, 0));
    let (mode, .., expected) = written(if_absent.batch);
    assert_eq!((mode, expected), (WriteMode::Upsert, Some(0)));
    let many: Vec<String> = (0..=16_384).map(|key| format!("\"{key}\":1")).collect();
    let many = format!("{{{}}}", many.join(","));
    let digits: String = many.bytes().map(|byte| format!("{byte:02x}")).collect();
    let many = format!("{:08x} {digits}", many.len());
    for (text, fragment) in [
        (format!("08 04646f6373 0000000000000001 {V}"), "flags: unknown or not offered: 0x08"),
        (format!("01 04646f6373 0000000000000001 {V} 00000863 7bd05af7"), "ttlMs out of range"),
        (
            format!("04 04646f6373 0000000000000001 {V} 00000002 00000003 3f800000 00000003 3f800000"),
            "3 follows 3",
        ),
        (format!("04 04646f6373 0000000000000001 {V} 00000001 00000003 7fc00000"), "not a finite number"),
        (format!("02 04646f6373 0000000000000001 {V} 00000001 7b"), "meta: "),
        (format!("20 04646f6373 0000000000000001 {V} 00000001 7b"), "keyTtl: "),
        (format!("20 04646f6373 0000000000000001 {V} {many}"), "keyTtl: at most 16384 keys"),
    ] {
        let message = read(VectorOp::Upsert, &bytes(&text)).err().expect(fragment);
        assert!(message.contains(fragment), "{message} lacks {fragment}");
    }
}

#[test]
fn points_by_id() {
    let delete = request!(Delete, Delete, &example(VectorOp::Delete, 0));
    assert_eq!(
        (delete.collection.as_str(), delete.id.number(), delete.write.expected_version),
        ("docs", 42, None)
    );
    let conditional = bytes("04646f6373 000000000000002a 01 0000000000000003");
    assert_eq!(request!(Delete, Delete, &conditional).write.expected_version, Some(3));
    assert_eq!(request!(Exists, Exists, &example(VectorOp::Exists, 0)).ids.numbers, [42]);
    let get = request!(Get, Get, &example(VectorOp::Get, 0));
    assert_eq!((get.ids.numbers, get.with_vector, get.with_payload), (vec![1], true, true));
    let batch = request!(GetBatch, GetBatch, &example(VectorOp::GetBatch, 0));
    assert_eq!(
        (batch.ids.numbers, batch.with_vector, batch.with_payload),
        (vec![7, 9_999_999_999], true, true)
    );
    let trailer = bytes("04646f6373 0000000000000001 01 03 03 01 0000000000000009");
    let get = request!(Get, Get, &trailer);
    let read = ReadOptions { read_consistency: 3, on_partition_unavailable: 1, max_staleness: 9 };
    assert_eq!((get.with_vector, get.with_payload, get.read), (true, false, read));
}

#[test]
fn changes_of_payloads() {
    let change = |op, text: &str| match read(op, &bytes(text)).map_err(|message| panic!("{message}")) {
        Ok(VectorRequest::ChangePayload(request)) => {
            (request.id.number(), request.change, request.write.expected_version)
        }
        _ => panic!("another kind of request"),
    };
    let entries = vec![("a".to_owned(), Value::Int(1))];
    let head = "04646f6373 0000000000000001";
    let set = format!("{head} 00000007 7b2261223a317d");
    let merge = PayloadChange::Merge { entries: entries.clone(), key_ttl_ms: vec![] };
    assert_eq!(change(VectorOp::SetPayload, &set), (1, merge, None));
    let key_ttl_ms = vec![("a".to_owned(), 5)];
    let overwrite = PayloadChange::Overwrite { entries, key_ttl_ms };
    let all = format!("{set} 01 00000007 7b2261223a357d 01 0000000000000002");
    assert_eq!(change(VectorOp::OverwritePayload, &all), (1, overwrite, Some(2)));
    assert_eq!(change(VectorOp::SetPayload, &format!("{set} 00 01 0000000000000002")).2, Some(2));
    let keys = PayloadChange::DeleteKeys(vec!["a".into(), "$content".into()]);
    let text = format!("{head} 00000002 000161 0008 24636f6e74656e74 01 0000000000000000");
    assert_eq!(change(VectorOp::DeletePayloadKeys, &text), (1, keys, Some(0)));
    assert_eq!(change(VectorOp::ClearPayload, head), (1, PayloadChange::Clear, None));
    let by_filter = bytes(&format!("04646f6373 {F}"));
    assert!(request!(DeleteByFilter, DeleteByFilter, &by_filter).filter.is_some());
    let named = bytes("04646f6373 00000000 01 00000002 0000000000000007 ffffffffffffffff");
    let named = request!(DeleteByFilter, DeleteByFilter, &named);
    assert!(named.filter.is_none() && named.ids == Some(vec![7, u64::MAX].into()));
    assert_eq!(request!(DeleteByFilter, DeleteByFilter, &bytes(&format!("04646f6373 {F} 00"))).ids, None);
    for (text, fragment) in [
        ("04646f6373 00000000 01 00000002 0000000000000007", "args too short: id"),
        ("04646f6373 00000000 01 00100001", "ids: at most 1048576 in one request"),
    ] {
        let refused = read(VectorOp::DeleteByFilter, &bytes(text)).err().unwrap();
        assert!(refused.contains(fragment), "{refused}");
    }
}

#[test]
fn staging_and_records() {
    let rows =
        "04646f6373 00000002 00000002 0000000000000007 3f800000 40000000 0000000000000008 00000000 3f000000";
    let staged = request!(Stage, BulkStage, &bytes(rows)).batch;
    let Vectors::BigEndianRows(copied) = &staged.vectors else { panic!() };
    assert_eq!((staged.dim, &copied[..]), (2, &bytes(rows)[13..]));
    assert_eq!(staged.points.iter().map(|point| point.id).collect::<Vec<_>>(), [7, 8]);
    let with_payloads = format!("{rows} 00000007 7b2261223a317d 00000000");
    let staged = request!(Stage, BulkStagePayload, &bytes(&with_payloads)).batch;
    assert_eq!(PayloadRow::trusted(&staged.points[0].row).get("a", 0), Some(ValueRef::Int(1)));
    assert!(staged.points[1].row.is_empty());
    let message = read(VectorOp::BulkStagePayload, &bytes(&format!("{with_payloads} 00"))).err().unwrap();
    assert!(message.contains("behind the last payload"), "{message}");
    let build = request!(Build, BulkBuild, &bytes("04646f6373 00000002"));
    assert_eq!((build.workers, build.wait), (2, true));

    let call = "00000012 0000 0000000000000000 00 02 0000 0000 0000";
    let operate = |head: &str| read(VectorOp::Operate, &bytes(&format!("{head} {call}"))).map(|_| ());
    let args = bytes(&format!("04646f6373 0000000000000005 000172 01 0000000000000003 {call}"));
    let found = request!(Operate, Operate, &args);
    let parts = (&found.collection[..], found.id, &found.key[..], found.write.expected_version);
    assert_eq!(parts, ("docs", 5.into(), "r", Some(3)));
    assert_eq!(found.call, bytes(call)[4..]);
    assert_eq!(operate("04646f6373 0000000000000005 000172 00"), Ok(()));
    let refused = Err("operate call arguments invalid".to_owned());
    assert_eq!(operate("04646f6373 0000000000000005 0000 00"), refused);
    assert_eq!(operate("00 0000000000000005 000172 00"), refused);
    for call in [
        "00000013 0001 6b 0000000000000000 00 02 0000 0000 0000",
        "00000012 0000 0000000000000001 00 02 0000 0000 0000",
        "00000012 0000 0000000000000000 01 02 0000 0000 0000",
        "00000013 0000 0000000000000000 00 02 0000 0000 0000 00",
    ] {
        let args = bytes(&format!("04646f6373 0000000000000005 000172 00 {call}"));
        assert_eq!(read(VectorOp::Operate, &args).map(|_| ()), refused, "{call}");
    }
}

#[test]
fn searches() {
    let search = request!(Search, Search, &example(VectorOp::Search, 0));
    assert_eq!((search.collection.as_str(), search.k, &search.vector[..]), ("docs", 10, &VECTOR[..]));
    assert!(search.filter.is_none() && !search.with_rows);
    let search = request!(Search, Search, &example(VectorOp::Search, 1));
    let node = Node {
        op: Some("eq".into()),
        field: Some("tenant".into()),
        value: Some(Value::String("acme".into())),
        ..Node::default()
    };
    let expected = compile_filter(Some(node)).unwrap();
    assert_eq!(format!("{:?}", search.filter), format!("{expected:?}"));
    let read = |read_consistency, on_partition_unavailable, max_staleness| ReadOptions {
        read_consistency,
        on_partition_unavailable,
        max_staleness,
    };
    assert_eq!((search.k, search.read), (5, read(1, 1, 0)));
    let search = request!(SearchDocs, SearchDocs, &example(VectorOp::Search, 2));
    assert_eq!((search.with_rows, search.read), (true, read(3, 0, 12_345)));

    let groups = request!(SearchGroups, SearchGroups, &example(VectorOp::SearchGroups, 0));
    assert_eq!((groups.k, groups.group_size, groups.fetch_k, groups.group_by.as_str()), (5, 2, 50, "doc_id"));
    let groups = request!(SearchGroups, SearchGroups, &example(VectorOp::SearchGroups, 1));
    assert_eq!((groups.group_by.as_str(), groups.read), ("cat", read(3, 0, 777)));

    let hybrid = request!(Hybrid, HybridSearch, &example(VectorOp::HybridSearch, 0));
    assert_eq!((hybrid.k, &hybrid.dense[..], hybrid.method), (10, &VECTOR[..], Method::Rrf { c: 0.0 }));
    assert!(matches!(&hybrid.other, Source::Sparse(sparse) if sparse.is_empty()));
    let hybrid = request!(Hybrid, HybridSearch, &example(VectorOp::HybridSearch, 1));
    assert_eq!(hybrid.method, Method::Weighted { alpha: Some(0.6) });
    assert_eq!((hybrid.dense_k, hybrid.other_k), (50, 50));
    assert!(matches!(&hybrid.other, Source::Sparse(sparse) if sparse[..] == [(3, 0.8), (17, 0.4)]));
    let hybrid = request!(Hybrid, HybridText, &example(VectorOp::HybridText, 0));
    assert!(matches!(&hybrid.other, Source::Text(text) if *text == TextMatch::words("hello world")));
    let text = bytes(&format!("03 04646f6373 0000000a 0000000b 68656c6c6f20776f726c64 {F} 0100"));
    let mut matching = text.clone();
    let text = request!(SearchText, SearchText, &text);
    assert_eq!((text.k, text.filter.is_some(), text.read), (10, true, read(1, 0, 0)));
    // Bits that no client of the interface has: a phrase, and a prefix.
    for (bits, phrase, prefix) in [(0, false, false), (8, true, false), (16, false, true), (24, true, true)] {
        matching[0] = 3 | bits;
        let text = request!(SearchText, SearchText, &matching);
        let wanted = TextMatch { phrase, prefix, ..TextMatch::words("hello world") };
        assert!(matches!(&text.text, Source::Text(text) if *text == wanted));
    }
}

#[test]
fn scrolls() {
    let by_id = |index| match request!(Scroll, Scroll, &example(VectorOp::Scroll, index)) {
        Scroll::ById(scroll) => (scroll.limit, scroll.after, scroll.read),
        Scroll::Ordered(_) => panic!(),
    };
    let read = |read_consistency, on_partition_unavailable, max_staleness| ReadOptions {
        read_consistency,
        on_partition_unavailable,
        max_staleness,
    };
    assert_eq!(by_id(0), (50, None, read(0, 0, 0)));
    assert_eq!(by_id(1), (20, Some(42), read(0, 0, 0)));
    assert_eq!(by_id(2), (20, None, read(3, 1, 4242)));
    let ordered = |index| match request!(Scroll, Scroll, &example(VectorOp::Scroll, index)) {
        Scroll::Ordered(scroll) => (scroll.order.keys, scroll.order.start_from, scroll.order.after),
        Scroll::ById(_) => panic!(),
    };
    let key = |key: &str, desc, is_string| OrderKey { key: key.into(), desc, is_string, is_datetime: false };
    assert_eq!(ordered(3), (vec![key("score", true, false)], Some(1.5), None));
    let after = |parts, id| Some(Position { parts, id });
    let text = |text: &str| Part::Text(text.into());
    let time = |desc| OrderKey { is_datetime: true, ..key("created_at", desc, false) };
    let created_at = vec![time(false)];
    assert_eq!(ordered(4), (created_at, None, after(vec![Part::Number(12_345.0)], 99)));
    assert_eq!(ordered(5), (vec![key("title", false, true)], None, after(vec![text("foo")], 0)));
    let several = vec![key("score", true, false), key("title", false, true), time(true)];
    let parts = vec![Part::Number(3.5), text("bar"), Part::Number(999.0)];
    assert_eq!(ordered(6), (several, None, after(parts, 5)));
    let head = "04646f6373 00000014 00000000 010000";
    // A tail key that says that there are several is like any other.
    let tail = bytes(&format!("{head} 00 01 00000001 61 08 00 00 01 00000001 62 09 00"));
    let Scroll::Ordered(scroll) = request!(Scroll, Scroll, &tail) else { panic!() };
    assert_eq!(scroll.order.keys, [key("a", false, false), key("b", true, false)]);
    let long = format!("00 01 00001388 {} 06 00 00 00", "61".repeat(5_000));
    let shown = format!("key \"{}…\" cannot be a string and a datetime", "a".repeat(100));
    for (text, fragment) in [
        (&long[..], &shown[..]),
        ("00 01 00000000 00 00 00", "the key is empty"),
        ("00 01 00000001 61 06 00 00 00", "cannot be a string and a datetime"),
        ("00 01 00000001 61 10 00 00", "flags: unknown"),
        ("00 01 00000001 61 04 01 3ff8000000000000 00 00", "not possible for strings"),
        ("00 01 00000001 61 00 01 7ff8000000000000 00", "start: not a number"),
        ("01 0000000000000005 01 00000001 61 00 00 00", "by values, not by an id alone"),
        ("01 0000000000000005 01 00000001 61 08 00 00 00 01 02 00000001 62", "kind: 2 is not that of key"),
    ] {
        let message = self::read(VectorOp::Scroll, &bytes(&format!("{head} {text}"))).err().expect(text);
        assert!(message.contains(fragment), "{message} lacks {fragment}");
    }
}

#[test]
fn queries() {
    let query = |index| request!(Query, Query, &example(VectorOp::Query, index));
    for (index, k, positive, negative, strategy, staleness) in [
        (0, 10, &[1_u64, 2, 3][..], &[][..], Strategy::Average, 0),
        (1, 5, &[1, 2], &[9_u64], Strategy::Average, 0),
        (2, 5, &[1, 2], &[], Strategy::BestScore, 0),
        (3, 10, &[1, 2, 3], &[], Strategy::Average, 555),
    ] {
        let query = query(index);
        assert_eq!((query.collection.as_str(), query.node.k, query.node.lanes.len()), ("docs", k, 1));
        assert_eq!((query.node.method, query.read.max_staleness), (Method::Rrf { c: 0.0 }, staleness));
        let lane = &query.node.leaves()[0];
        let Source::Recommend(examples) = &lane.source else { panic!() };
        assert_eq!(examples.ids().collect::<Vec<_>>(), [positive, negative].concat());
        assert_eq!(examples.positive.len(), positive.len());
        assert_eq!((lane.k, examples.strategy), (k, strategy));
    }
}

/// Arguments cut at every byte: an error that names the part, or, where they may end, a request.
#[test]
fn requests_cut_at_every_byte() {
    of_every_family().iter().for_each(|(op, text)| check_cuts(*op, text));
}

/// Checks that arguments cut at any byte are an error that names the part, or, where they may end, a request.
pub(super) fn check_cuts(op: Op, text: &str) {
    let args = bytes(text);
    let read = read_any;
    assert!(read(op, &args).is_ok(), "{op:?} {text}: {:?}", read(op, &args).err());
    let ends: Vec<usize> = text.match_indices('|').map(|(at, _)| bytes(&text[..at]).len()).collect();
    for cut in 0..args.len() {
        match read(op, &args[..cut]) {
            Ok(_) => assert!(ends.contains(&cut), "{op:?} {text} cut at {cut} was accepted"),
            Err(message) => {
                assert!(!ends.contains(&cut), "{op:?} {text} cut at {cut}: {message}");
                // The begin of an index of cells reads as one of the blocks behind it.
                let short = message.strip_prefix("args too short: ").is_some_and(|part| !part.is_empty());
                assert!(short || message.contains("OPQ requires"), "{op:?} cut at {cut}: {message}");
            }
        }
    }
}

/// 4 billion of anything in a few bytes.
#[test]
fn declared_counts_reserve_nothing() {
    let head = "04646f6373";
    for (op, text) in [
        (VectorOp::Upsert, format!("00 {head} 0000000000000001 ffffffff 00000000")),
        (VectorOp::Upsert, format!("04 {head} 0000000000000001 {V} ffffffff 00000000")),
        (VectorOp::GetBatch, format!("{head} 03 ffffffff 00000000")),
        (VectorOp::DeletePayloadKeys, format!("{head} 0000000000000001 ffffffff 00000000")),
        (VectorOp::BulkStage, format!("{head} ffffffff ffffffff 00000000")),
        (VectorOp::BulkStagePayload, format!("{head} 00000001 ffffffff 00000000")),
        (VectorOp::Search, format!("00 {head} 0000000a ffffffff 00000000")),
        (VectorOp::Query, format!("{head} ffffffff 00000000")),
    ] {
        let message = read(op, &bytes(&text)).err().expect(&text);
        assert!(message.starts_with("args too short: "), "{message}");
    }
    assert_eq!(
        read(VectorOp::BulkStage, &bytes("0161 00000000 ffffffff")).err().unwrap(),
        "dim: must be positive"
    );
}

proptest! {
    #[test]
    fn any_bytes_are_answered(
        rest in prop::collection::vec(any::<u8>(), 0..120),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        which in any::<prop::sample::Index>(),
    ) {
        for operation in TABLE {
            if let op @ (Op::Vector(_) | Op::Named(_) | Op::MultiVector(_)) = operation.op {
                let _ = read_any(op, &rest);
                let _ = read_any(op, &[&b"\x00\x04docs"[..], &rest].concat());
                let _ = read_any(op, &[&b"\x04docs"[..], &rest].concat());
            }
        }
        let requests = of_every_family();
        let (op, text) = which.get(&requests);
        let mut args = bytes(text);
        for (at, value) in flips {
            *at.get_mut(&mut args) = value;
        }
        let _ = read_any(*op, &args);
    }
}
