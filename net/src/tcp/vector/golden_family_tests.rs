//! Tests that the example requests of named and multi-vector collections decode to the expected operations.

use super::golden_tests::{NOW_MS, VECTOR, bytes, multi_vector, named, read_any};
use super::*;
use crate::op::{Diversity, Op, ReadOptions};
use nigh_engine::collection::config_keys::{Key, Value as KeyValue};
use nigh_engine::collection::{EncodingConfig, FirstStage, IndexType, WholeConfig};
use nigh_engine::distance::Metric;
use nigh_engine::payload::{PayloadFormat, PayloadRow, TokenCode, ValueRef};
use nigh_engine::query::{Method, Source};
use nigh_engine::text::{TextConfig, TextMatch};
use nigh_shard::core::{Part, Position};
use nigh_shard::family::ConfigChange;

#[test]
fn empty_collection_keys_are_none() {
    let (op, text) = &named()[0];
    let bytes = bytes(text);
    let (before, keys) = bytes.split_at(bytes.len() - 20);
    assert_eq!(keys, [&[0, 0, 0, 16][..], br#"{"full_text":{}}"#].concat());
    for keys in ["", " \n", "{}"] {
        let len = u32::try_from(keys.len()).unwrap().to_be_bytes();
        let args = [before, &len, keys.as_bytes()].concat();
        let create = match read_any(Op::Named(*op), &args) {
            Ok(VectorRequest::Create(create)) => create,
            Ok(_) => panic!("{keys:?} is another request"),
            Err(message) => panic!("{keys:?}: {message}"),
        };
        assert_eq!(create.config.named().expect("named spaces").whole, WholeConfig::default());
    }
}

#[test]
fn points_and_searches_of_named_spaces() {
    let request = |index: usize| {
        let (op, text) = &named()[index];
        read_any(Op::Named(*op), &bytes(text)).unwrap_or_else(|message| panic!("{op:?}: {message}"))
    };
    let VectorRequest::Create(create) = request(0) else { panic!() };
    let config = create.config.named().expect("named spaces");
    assert_eq!((config.spaces[0].config.dim, config.spaces[0].config.metric), (4, Metric::L2));
    assert_eq!(config.names().collect::<Vec<_>>(), ["a", "s"]);
    let VectorRequest::WriteNamed(write, false) = request(3) else { panic!() };
    let [point] = &write.points[..] else { panic!() };
    assert_eq!((&point.dense[..], point.fields.ttl_ms), (&[("a".to_owned(), VECTOR.to_vec())][..], 5));
    assert_eq!(point.sparse, [("s".to_owned(), vec![(3, 0.8), (17, 0.4)])]);
    assert_eq!((point.fields.id, point.fields.expected_version), (1, Some(7)));
    let row = PayloadRow::trusted(&point.fields.row);
    assert_eq!((row.get("a", NOW_MS + 14), row.get("a", NOW_MS + 15)), (Some(ValueRef::Int(1)), None));
    let searches: Vec<VectorRequest> = (15..18).map(request).collect();
    let [
        VectorRequest::SearchNamed(nearest),
        VectorRequest::SearchNamed(docs),
        VectorRequest::SearchNamed(sparse),
    ] = &searches[..]
    else {
        panic!()
    };
    assert_eq!(
        (nearest.with_rows, docs.with_rows, nearest.k, nearest.read.max_staleness),
        (false, true, 10, 12_345)
    );
    assert!(
        matches!(&nearest.source, Source::Dense(vector) if vector[..] == VECTOR) && nearest.filter.is_some()
    );
    assert!(matches!(&sparse.source, Source::Sparse(vector) if vector[..] == [(3, 0.8), (17, 0.4)]));
    assert_eq!((&sparse.space[..], docs.filter.is_some()), ("s", false));
    let VectorRequest::HybridNamed(hybrid) = request(18) else { panic!() };
    assert_eq!((&hybrid.dense.0[..], &hybrid.sparse.0[..], hybrid.dense_k), ("a", "s", 50));
    assert_eq!((hybrid.method, hybrid.read.read_consistency), (Method::Dbsf { alpha: Some(0.6) }, 1));
    let VectorRequest::QueryNamed(query) = request(19) else { panic!() };
    assert_eq!((&query.0.node.leaves()[0].space[..], query.0.read.read_consistency), ("a", 1));
    assert!(config.whole.full_text.is_some() && hybrid.text.is_none());
    let last = |wanted: NamedOp| named().iter().rposition(|(op, _)| *op == wanted).expect("an example");
    let VectorRequest::HybridNamed(hybrid) = request(last(NamedOp::HybridSearch)) else { panic!() };
    let red = |phrase, prefix| TextMatch { phrase, prefix, ..TextMatch::words("red") };
    assert!(matches!(&hybrid.text, Some(Source::Text(text)) if *text == red(true, true)));
    assert!(hybrid.filter.is_some() && hybrid.sparse == Default::default());
    let VectorRequest::SearchNamed(unlike) = request(last(NamedOp::SearchMmr)) else { panic!() };
    assert_eq!(unlike.diversity, Some(Diversity { lambda: 0.25, fetch_k: 50 }));
    assert!(unlike.with_rows && unlike.filter.is_some() && unlike.k == 10 && nearest.diversity.is_none());
    let VectorRequest::QueryNamed(query) = request(last(NamedOp::Query)) else { panic!() };
    let lane = &query.0.node.leaves()[0];
    assert!(matches!(&lane.source, Source::Text(text) if *text == red(true, false)) && lane.space.is_empty());
    let VectorRequest::ChangeConfig(change) = request(last(NamedOp::ChangeConfig) - 1) else { panic!() };
    let ConfigChange::Named(change) = change.change else { panic!() };
    assert!(change.spaces.len() == 1 && change.whole.is_empty());
    let VectorRequest::ChangeConfig(change) = request(last(NamedOp::ChangeConfig)) else { panic!() };
    let ConfigChange::Named(change) = change.change else { panic!() };
    assert_eq!(change.whole.get(Key::MaxVectors).and_then(KeyValue::as_int), Some(3));
    let VectorRequest::Scroll(Scroll::ById(scroll)) = request(20) else { panic!() };
    assert_eq!((scroll.after, scroll.limit, scroll.read.max_staleness), (Some(42), 50, 4242));
    let VectorRequest::Scroll(Scroll::Ordered(scroll)) = request(21) else { panic!() };
    let after = Some(Position { parts: vec![Part::Number(12_345.0)], id: 99 });
    assert_eq!((scroll.order.after, scroll.order.keys[0].is_datetime), (after, true));
}

#[test]
fn documents_and_searches_of_tokens() {
    let request = |index: usize| {
        let (op, text) = &multi_vector()[index];
        read_any(Op::MultiVector(*op), &bytes(text)).unwrap_or_else(|message| panic!("{op:?}: {message}"))
    };
    let VectorRequest::Create(create) = request(0) else { panic!() };
    let config = create.config.multi_vector().expect("a multi-vector collection");
    let tokens = &config.tokens;
    assert_eq!((tokens.dim, tokens.m, tokens.seed, tokens.metric), (4, 16, -7, Metric::Cosine));
    let IndexType::Ivf(ivf) = &tokens.index else { panic!() };
    assert_eq!((ivf.nlist, ivf.nprobe, ivf.train_threshold), (7, 2, 100));
    assert!(ivf.product.is_some() && ivf.drift.is_some());
    assert_eq!(config.whole.full_text, Some(TextConfig::default()));
    assert_eq!((config.whole.max_vectors, config.whole.max_bytes), (3, u64::MAX));
    let shape = EncodingConfig { repetitions: 5, bits: 4, dim: 3 };
    assert_eq!(tokens.first_stage, FirstStage::Encodings(shape));
    assert_eq!((config.whole.payload_format, tokens.token_code), (PayloadFormat::Plain, TokenCode::Bits4));
    let mut told = Vec::new();
    put_multi_vector_config(&mut told, "docs", config);
    assert_eq!(told, bytes(&multi_vector()[0].1));
    // Blocks that hold defaults are left out from the end; an object that is off has no keys.
    let (text, encodings) = (Some(TextConfig::default()), tokens.first_stage);
    let (tagged, plain) = (PayloadFormat::Tagged, PayloadFormat::Plain);
    for (change, bytes_of_blocks) in [
        ((None, 0, 0, FirstStage::Tokens, tagged), 0),
        ((text, 0, 0, FirstStage::Tokens, tagged), 17),
        ((None, 5, 0, FirstStage::Tokens, tagged), 1 + 16),
        ((None, 0, 5, FirstStage::Tokens, tagged), 1 + 16),
        ((text, 0, 5, FirstStage::Tokens, tagged), 17 + 16),
        ((None, 0, 0, encodings, tagged), 1 + 16 + 13),
        ((text, 0, 5, encodings, tagged), 17 + 16 + 13),
        ((None, 0, 0, FirstStage::Tokens, plain), 1 + 16 + 13 + 1),
        ((text, 3, 0, FirstStage::Tokens, plain), 17 + 16 + 13 + 1),
    ] {
        let mut config = config.clone();
        (config.whole.full_text, config.whole.max_vectors, config.whole.max_bytes, ..) = change;
        (config.tokens.first_stage, config.whole.payload_format) = (change.3, change.4);
        for (code, bytes_of_blocks) in [(TokenCode::Float, bytes_of_blocks), (TokenCode::Bits2, usize::MAX)] {
            config.tokens.token_code = code;
            let mut told = Vec::new();
            put_multi_vector_config(&mut told, "docs", &config);
            let read = read_any(Op::MultiVector(MultiVectorOp::CreateCollection), &told);
            let Ok(VectorRequest::Create(again)) = read else { panic!() };
            assert_eq!(again.config.multi_vector(), Some(&config));
            let without = bytes(multi_vector()[0].1.rsplitn(6, '|').last().unwrap()).len();
            // The last block needs all of those before it.
            let all = if config.whole.full_text.is_some() { 17 } else { 1 } + 16 + 13 + 1 + 1;
            assert_eq!(told.len(), without + bytes_of_blocks.min(all));
        }
    }
    let VectorRequest::AddDocuments(add, false) = request(3) else { panic!() };
    let [document] = &add.documents[..] else { panic!() };
    assert_eq!((&document.tokens[..], document.fields.id), (&[VECTOR.to_vec(), VECTOR.to_vec()][..], 1));
    assert_eq!(
        (&document.sparse[..], document.fields.expected_version),
        (&[(3, 0.8), (17, 0.4)][..], Some(7))
    );
    let row = PayloadRow::trusted(&document.fields.row);
    assert_eq!((row.get("a", NOW_MS + 14), row.get("a", NOW_MS + 15)), (Some(ValueRef::Int(1)), None));
    let VectorRequest::AddDocumentIfAbsent(add, false) = request(5) else { panic!() };
    assert_eq!((add.documents[0].fields.expected_version, add.documents[0].sparse.len()), (Some(0), 2));
    let VectorRequest::SearchDocuments(search) = request(15) else { panic!() };
    assert_eq!((search.k, search.candidates_per_token, &search.query[..]), (10, 100, &[VECTOR.to_vec()][..]));
    let read = ReadOptions { read_consistency: 3, on_partition_unavailable: 1, max_staleness: 12_345 };
    assert_eq!((search.read, search.filter.is_some()), (read, true));
    let VectorRequest::HybridDocuments(hybrid) = request(17) else { panic!() };
    assert_eq!((hybrid.query.len(), hybrid.sparse.len(), hybrid.dense_k, hybrid.sparse_k), (1, 2, 50, 50));
    assert_eq!((hybrid.method, hybrid.read.read_consistency), (Method::Dbsf { alpha: Some(0.6) }, 1));
    let last =
        |wanted: MultiVectorOp| multi_vector().iter().rposition(|(op, _)| *op == wanted).expect("an example");
    let VectorRequest::HybridDocuments(hybrid) = request(last(MultiVectorOp::HybridSearch)) else { panic!() };
    let red = |phrase, prefix| TextMatch { phrase, prefix, ..TextMatch::words("red") };
    assert!(matches!(&hybrid.text, Some(Source::Text(text)) if *text == red(false, true)));
    let VectorRequest::QueryDocuments(query) = request(last(MultiVectorOp::Query)) else { panic!() };
    assert!(matches!(&query.0.node.leaves()[0].source, Source::Text(text) if *text == red(true, false)));
    let VectorRequest::QueryDocuments(query) = request(18) else { panic!() };
    assert!(matches!(&query.0.node.leaves()[0].source, Source::MaxSim(of) if of.tokens == [[1.0]]));
}
