//! The binary protocol over TCP: what a connection receives, from frames to typed requests.

use nigh_engine::collection::{SPACES_MAX, TOKENS_MAX};
use nigh_engine::payload::PayloadRow;
use nigh_net::limits::{ALIAS_ACTIONS_MAX, DELETE_IDS_MAX, NAME_MAX_BYTES};
use nigh_net::op::{ApiError, FacetPoints, Op, Operation, ProcessOp, SamplePoints, names_of};
use nigh_net::tcp::frame::{self, BODY_MAX_BYTES, Decoded, RequestFrame, SKIPPED_MAX_BYTES};
use nigh_net::tcp::kv::{self, KvRequest};
use nigh_net::tcp::kv_query::{self, KvQueryRequest};
use nigh_net::tcp::ops::{self, On};
use nigh_net::tcp::process::{self, ProcessRequest};
use nigh_net::tcp::vector::{self, Decoding, VectorRequest};
use nigh_shard::core::Vectors;

const NOW_MS: u64 = 1_000;

/// The bytes of a connection: every frame is a request or refused, and says the same however much has come behind it.
pub(super) fn tcp_stream(bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        match frame::decode(rest) {
            Decoded::Incomplete { needed } => {
                assert!(needed > rest.len() && needed <= 4 + BODY_MAX_BYTES);
                return;
            }
            Decoded::Broken(_) => return,
            Decoded::Refused { consumed, .. } => {
                assert!((4..=4 + SKIPPED_MAX_BYTES).contains(&consumed));
                match rest.get(consumed..) {
                    Some(behind) => rest = behind,
                    None => return,
                }
            }
            Decoded::Request { frame, consumed } => {
                let alone = Decoded::Request { frame, consumed };
                assert_eq!(frame::decode(&rest[..consumed]), alone);
                for cut in [0, 3, 4, consumed / 2, consumed - 1] {
                    let part = frame::decode(&rest[..cut.min(consumed - 1)]);
                    assert!(matches!(part, Decoded::Incomplete { .. }), "{part:?} of {cut} of {consumed}");
                }
                let parts = [frame.token.unwrap_or_default(), frame.operation, frame.args];
                assert!(parts.map(<[u8]>::len).iter().sum::<usize>() < consumed);
                request(&frame);
                rest = &rest[consumed..];
            }
        }
    }
}

/// A request, as far as it can be judged without data.
fn request(frame: &RequestFrame<'_>) {
    let args = frame.args;
    match ops::required(frame.operation, args).1 {
        On::Collection(collection) => assert!(collection.len() <= NAME_MAX_BYTES),
        On::Aliases(names) => {
            let told: Option<Vec<&str>> = names.take(2 * ALIAS_ACTIONS_MAX).collect();
            let mut lengths = told.iter().flatten().map(|name| name.len());
            assert!(lengths.all(|length| (1..=NAME_MAX_BYTES).contains(&length)));
            // Whatever can be carried out needs the right on each of its names, or on the node if one of them cannot be determined.
            if let Some(told) = told
                && frame.operation == b"alias_batch"
                && let Ok(ProcessRequest::ChangeAliases(request)) =
                    process::decode(ProcessOp::AliasBatch, args)
                && request.validate().is_ok()
            {
                assert!(request.changes.iter().flat_map(names_of).eq(told));
            }
        }
    }
    match ops::find(frame.operation).map(|operation| operation.op) {
        Some(Op::Kv(op)) => match kv::decode(op, args) {
            Ok(KvRequest::Mget { keys }) => assert!(2 * keys.len() <= args.len()),
            Ok(KvRequest::PutBatch { puts }) => assert!(14 * puts.len() <= args.len()),
            Ok(_) => {}
            Err(error) => refused(&error.into()),
        },
        Some(Op::KvQuery(op)) => match kv_query::decode(op, args) {
            // Whatever a filter asks, any bytes can be what is stored.
            Ok(KvQueryRequest::Query(query)) => {
                let _matches = query.filter.is_some_and(|filter| filter.matches(&args[args.len() / 2..]));
            }
            Ok(KvQueryRequest::SetIndex { definition, .. }) => {
                if let Err(error) = definition.check() {
                    refused(&error.into());
                }
            }
            Ok(_) => {}
            Err(error) => refused(&error),
        },
        Some(Op::Process(op)) => {
            if let Err(error) = process::decode(op, args) {
                refused(&error.into());
            }
        }
        Some(Op::Placement(op)) => {
            if let Err(error) = process::decode_partition(op, args) {
                refused(&error);
            }
        }
        Some(op @ (Op::Vector(_) | Op::Named(_) | Op::MultiVector(_))) => {
            match vector::decode(op, args, &Decoding::tagged(NOW_MS)) {
                Ok(request) => accepted(&request),
                Err(error) => refused(&error),
            }
        }
        Some(_) | None => {}
    }
}

/// What any refusal fulfils: it says something, and fits a frame.
fn refused(error: &ApiError) {
    assert!(!error.message.is_empty());
    let mut out = Vec::new();
    frame::put_refusal(&mut out, error);
    assert_eq!(out.len(), 4 + u32::from_be_bytes([out[0], out[1], out[2], out[3]]) as usize);
}

/// What any accepted write fulfils: rows verify, vectors fit.
fn accepted(request: &VectorRequest) {
    if let VectorRequest::WriteNamed(write, _) = request {
        for point in &write.points {
            PayloadRow::verify(&point.fields.row).expect("an accepted payload is a whole row");
            assert!(point.dense.len().max(point.sparse.len()) <= SPACES_MAX);
        }
    }
    if let VectorRequest::AddDocuments(write, _) | VectorRequest::AddDocumentIfAbsent(write, _) = request {
        for document in &write.documents {
            PayloadRow::verify(&document.fields.row).expect("an accepted payload is a whole row");
            assert!(document.tokens.len() <= TOKENS_MAX);
        }
    }
    if let VectorRequest::ChangePayloads(changes) = request {
        assert!(changes.ids.as_ref().is_none_or(|ids| ids.len() <= DELETE_IDS_MAX));
    }
    if let VectorRequest::Facet(FacetPoints { limit, .. })
    | VectorRequest::Sample(SamplePoints { limit, .. }) = request
    {
        assert!((1..=10_000).contains(limit));
    }
    let batch = match request {
        VectorRequest::Write(write, _) | VectorRequest::WriteIfAbsent(write, _) => &write.batch,
        VectorRequest::Stage(stage) => &stage.batch,
        _ => return,
    };
    for point in &batch.points {
        PayloadRow::verify(&point.row).expect("an accepted payload is a whole row");
    }
    match &batch.vectors {
        Vectors::Native(floats) => assert_eq!(floats.len(), batch.points.len() * batch.dim),
        Vectors::BigEndianRows(rows) => assert_eq!(rows.len(), batch.points.len() * (8 + 4 * batch.dim)),
        Vectors::PerPoint(vectors) => assert_eq!(vectors.len(), batch.points.len()),
        Vectors::Named(vectors) => assert_eq!(vectors.len(), batch.points.len()),
    }
}

fn named_create() -> Vec<u8> {
    let spaces = br#"{"a":{"dim":2,"metric":1},"s":{"sparse":true}}"#;
    [&b"\x04docs"[..], &(spaces.len() as u32).to_be_bytes(), spaces, &[0, 0, 0, 1]].concat()
}

pub(super) fn tcp_stream_seeds() -> Vec<Vec<u8>> {
    let vector = b"\0\0\0\x02\x3f\x80\0\0\x40\0\0\0";
    let filter = br#"{"op":"eq","field":"a","value":{"kind":"int","int":1}}"#;
    let sparse = b"\0\0\0\x01\0\0\0\x03\x3f\x80\0\0";
    let create = [&b"\x04docs\0\0\0\x08\0\0\0\0\x10\0\0\0\xc8\0\0\0\x40"[..], &[0; 25]].concat();
    let requests: Vec<(&str, Vec<u8>)> = vec![
        ("get", b"\0\x05hello".to_vec()),
        ("put", b"\0\x01k\0\0\0\x02vv\0\0\0\0\0\0\x05\xdc".to_vec()),
        ("cas", b"\0\x01k\0\0\0\x03new\x01\0\0\0\x03old\0\0\0\0\0\0\0\0".to_vec()),
        ("mget", b"\0\x02\0\x01a\0\x02bc".to_vec()),
        ("put_batch", b"\0\0\0\x01\0\x01a\0\0\0\x011\0\0\0\0\0\0\0\0".to_vec()),
        ("kv_query", [&b"\x07\x01a\0\x64\x02\0\0\0\0\x36"[..], filter, b"\0\0\0\x0b\0\x01\0\0\0\0\0\x01\0\x01k"].concat()),
        ("__kv_index_set__", b"\x03age\x02u:\x0arows#count\x01\x01".to_vec()),
        ("__wc__", b"\x01\x01\x03get\0\0\0\x03\0\x01k".to_vec()),
        ("__keys_add__", b"\0\x01t\0\x01w\0\x01\0\x06read:*\0\0".to_vec()),
        ("alias_batch", b"\0\0\0\x01\0\x01a\0\x04docs\0".to_vec()),
        ("alias_batch", b"\0\0\0\x03\0\x01a\0\0\x01\0\0\0\0\x01\0\x01b\0\x01c\0".to_vec()),
        ("vector_resplit", b"\x04docs\0\0\0\x02".to_vec()),
        ("vector_create_collection", create),
        (
            "vector_upsert",
            [&b"\x07\x04docs\0\0\0\0\0\0\0\x01"[..], vector, &[0; 7], &[9], b"\0\0\0\x07{\"a\":1}", sparse].concat(),
        ),
        ("vector_get", b"\x04docs\0\0\0\0\0\0\0\x01\x03\x01\x01\x00".to_vec()),
        ("vector_get_batch", b"\x04docs\x03\0\0\0\x01\0\0\0\0\0\0\0\x07".to_vec()),
        ("vector_set_payload", b"\x04docs\0\0\0\0\0\0\0\x01\0\0\0\x07{\"a\":1}\x01\0\0\0\x07{\"a\":5}".to_vec()),
        ("vector_delete_payload_keys", b"\x04docs\0\0\0\0\0\0\0\x01\0\0\0\x01\0\x01a".to_vec()),
        (
            "vector_search_docs",
            [&b"\x03\x04docs\0\0\0\x05"[..], vector, &(filter.len() as u32).to_be_bytes(), filter, b"\x01\0"].concat(),
        ),
        (
            "vector_hybrid_search",
            [&b"\x02\x04docs\0\0\0\x05\x01\x3f\xe0\0\0\0\0\0\0"[..], &[0; 12], vector, sparse].concat(),
        ),
        (
            "vector_query",
            b"\x04docs\0\0\0\x12\x12\x09\x32\x07\x0a\x03\x01\x02\x03\x18\x0a\x22\x03rrf\x38\x0a".to_vec(),
        ),
        (
            "vector_scroll",
            b"\x04docs\0\0\0\x14\0\0\0\0\x01\0\0\x01\0\0\0\0\0\0\0\x05\x01\0\0\0\x01a\x09\0\0\x01\0\0\0\x01b\x04\x01\0\x3f\xf8\0\0\0\0\0\0\x02\0\0\0\x01c".to_vec(),
        ),
        ("__topology__", Vec::new()),
        ("vector_info", b"\x04docs".to_vec()),
        ("vector_count", [&b"\x04docs"[..], &(filter.len() as u32).to_be_bytes(), filter].concat()),
        ("vector_named_facet", b"\x04docs\0\x01a\0\0\0\x05\0\0\0\0".to_vec()),
        ("vector_mv_sample", b"\x04docs\0\0\0\x05\0\0\0\0\x01\0\0\0\0\0\0\0\x07".to_vec()),
        (
            "vector_set_payload_by_filter",
            [&b"\x04docs"[..], &(filter.len() as u32).to_be_bytes(), filter, b"\0\0\0\0\x07{\"a\":1}\x01\0\0\0\x07{\"a\":5}"].concat(),
        ),
        (
            "vector_named_delete_payload_keys_by_filter",
            b"\x04docs\0\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\x07\0\0\0\x01\0\x01a".to_vec(),
        ),
        ("vector_mv_clear_payload_by_filter", b"\x04docs\0\0\0\0\x01\0\0\0\0".to_vec()),
        ("vector_named_create_collection", named_create()),
        (
            "vector_named_insert",
            [&b"\x04docs\0\0\0\0\0\0\0\x01\0\0\0\x01\0\x01a"[..], vector, &[0; 8], b"\0\0\0\x07{\"a\":1}\x02\0\0\0\x01\0\x01s",
                sparse, b"\x01\0\0\0\x07{\"a\":5}\x01\0\0\0\0\0\0\0\x03"].concat(),
        ),
        ("vector_change_config", b"\x04docs\0\0\0\x0f{\"ef_search\":9}".to_vec()),
        ("vector_named_change_config", b"\x04docs\0\0\0\x15{\"a\":{\"ef_search\":9}}".to_vec()),
        ("vector_mv_change_config", b"\x04docs\0\0\0\x0f{\"ef_search\":9}".to_vec()),
        (
            "vector_named_update_vectors",
            [&b"\x04docs\0\0\0\0\0\0\0\x01\0\0\0\x01\0\x01a"[..], vector, b"\0\0\0\x01\0\x01s", sparse,
                b"\0\0\0\x01\0\x01b\x01\0\0\0\0\0\0\0\x03"].concat(),
        ),
        (
            "vector_named_search",
            [&b"\x04docs\0\x01a\0\0\0\x05"[..], vector, &(filter.len() as u32).to_be_bytes(), filter, b"\x01\x01\0"].concat(),
        ),
        ("vector_named_sparse_search", [&b"\x04docs\0\x01s\0\0\0\x05"[..], sparse, &[0; 4]].concat()),
        (
            "vector_named_hybrid_search",
            [&b"\x02\x04docs\0\x01a\0\x01s\0\0\0\x05\x01\x3f\xe0\0\0\0\0\0\0"[..], &[0; 12], vector, sparse].concat(),
        ),
        ("vector_named_query", b"\x04docs\0\0\0\x0d\x12\x0b\x1a\x09\x0a\x01a\x12\x04\0\0\x80\x3f".to_vec()),
        ("vector_named_scroll", b"\x04docs\0\0\0\x14\0\0\0\0\x07\0\0\0\0\0\0\0\x05\x01\0\0\0\0\x01a\0\0\x01\x3f\xf8\0\0\0\0\0\0".to_vec()),
        (
            "vector_mv_create_collection",
            b"\x04docs\0\0\0\x02\0\0\0\x10\0\0\0\xc8\0\0\0\x40\0\0\0\0\0\0\0\0\x01\0\0\0\x04\x01\0\0\0\x01\x01\0\0\0\x07\0\0\0\x02".to_vec(),
        ),
        (
            "vector_mv_add",
            [&b"\x04docs\0\0\0\0\0\0\0\x01\0\0\0\x01"[..], vector, b"\0\0\0\x07{\"a\":1}\x01\0\0\0\x07{\"a\":5}\x01\0\0\0\0\0\0\0\x03\x01", sparse]
                .concat(),
        ),
        (
            "vector_mv_add_if_absent",
            [&b"\x04docs\0\0\0\0\0\0\0\x01\0\0\0\x01"[..], vector, b"\0\0\0\0\x01\0\0\0\0\0\0\0\x03\x01\0\0\0\x07{\"a\":5}\x01", sparse].concat(),
        ),
        (
            "vector_mv_search",
            [&b"\x04docs\0\0\0\x05\0\0\0\x40\0\0\0\x01"[..], vector, b"\x07\x03\0\0\0\0\0\0\0\0\x09", &(filter.len() as u32).to_be_bytes(), filter]
                .concat(),
        ),
        (
            "vector_mv_hybrid_search",
            [&b"\x02\x04docs\0\0\0\x05\x01\x3f\xe0\0\0\0\0\0\0"[..], &[0; 12], b"\0\0\0\x01", vector, sparse].concat(),
        ),
        ("vector_mv_query", b"\x04docs\0\0\0\x0c\x12\x0a\x2a\x08\x0a\x06\x0a\x04\0\0\x80\x3f".to_vec()),
        ("vector_bulk_stage_payload", b"\x04docs\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\x07\x3f\x80\0\0\0\0\0\x02{}".to_vec()),
    ];
    let framed = |token: &[u8], name: &str, args: &[u8]| {
        let form = if token.is_empty() { vec![] } else { [&[2, token.len() as u8], token].concat() };
        let args_len = (args.len() as u32).to_be_bytes();
        let body = [&form[..], &[name.len() as u8], name.as_bytes(), &args_len, args].concat();
        [&(body.len() as u32).to_be_bytes()[..], &body].concat()
    };
    for (name, args) in &requests {
        let of = ops::find(name.as_bytes()).map(|operation| operation.op);
        if let Some(op @ (Op::Vector(_) | Op::Named(_) | Op::MultiVector(_))) = of {
            assert!(
                vector::decode(op, args, &Decoding::tagged(NOW_MS)).is_ok(),
                "the seed of {name} is a request"
            );
        }
        if let Some(Op::KvQuery(op)) = of {
            assert!(kv_query::decode(op, args).is_ok(), "the seed of {name} is a request");
        }
    }
    let mut seeds: Vec<_> = requests.iter().map(|(name, args)| framed(b"", name, args)).collect();
    // Several on one connection, one with a token.
    seeds.push(
        [framed(b"secret", "get", b"\0\x01k"), framed(b"", "__ping__", b""), seeds[0].clone()].concat(),
    );
    seeds
}
