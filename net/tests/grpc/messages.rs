//! Messages as they may come: in pieces, cut, too long, compressed, wrong.
use super::*;
use crate::common::grpc::{encode, framed, messages_of, whole};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_lite::future::block_on;
use serde_json::{Value, json};
use std::io::Write;

const HEALTH: &str = "/svc.v1.VectorService/Health";
const SCROLL: &str = "/svc.v1.VectorService/Scroll";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn compressed(message: &[u8]) -> Vec<u8> {
    let mut framed = framed(&gzip(message));
    framed[0] = 1;
    framed
}

/// A request of some length.
fn search() -> Vec<u8> {
    let request = json!({"collection": "g_absent", "query": vec![0.5; 40], "k": 3,
        "filter_json": r#"{"op":"eq","field":"a","value":1}"#});
    framed(&encode(&messages_of("Search").0, &request))
}

const SEARCH: &str = "/svc.v1.VectorService/Search";

#[test]
fn a_message_in_any_two_pieces_is_the_same_and_one_that_is_cut_is_incomplete() {
    let client = SHARED.client();
    let all = search();
    let expected = (NOT_FOUND, "unknown collection \"g_absent\"".to_owned());
    for cut in 0..=all.len() {
        let (first, second) = all.split_at(cut);
        assert_eq!(client.send(SEARCH, &[], &[first, second]).unwrap().code(), expected, "in two at {cut}");
        if cut < all.len() {
            let (code, text) = client.send(SEARCH, &[], &[first]).unwrap().code();
            let told = if cut == 0 { "the call has none" } else { "the message is incomplete" };
            assert!(code == INVALID_ARGUMENT && text.contains(told), "cut at {cut}: {code} {text}");
        }
    }
    let bytes: Vec<&[u8]> = all.chunks(1).collect();
    assert_eq!(client.send(SEARCH, &[], &bytes).unwrap().code(), expected);
}

/// What is inside may end anywhere: a length that is right around a message that is not.
#[test]
fn messages_that_end_early_inside() {
    let client = SHARED.client();
    let whole = &search()[5..];
    let mut refused = 0;
    for cut in 0..whole.len() {
        let (code, text) = client.send(SEARCH, &[], &[&framed(&whole[..cut])]).unwrap().code();
        // Between two fields it is a message like another.
        let is_message = code == NOT_FOUND || text.contains("dimension") || text.contains("k must be");
        assert!(is_message || code == INVALID_ARGUMENT, "{cut}: {code} {text}");
        refused += usize::from(text.contains("SearchRequest: "));
    }
    assert!(refused > whole.len() / 2, "{refused}");
}

#[test]
fn wrong_prefixes_and_more_messages_than_one() {
    let client = SHARED.client();
    let nothing = framed(&[]);
    for (pieces, code, fragment) in [
        (vec![&nothing[..], &nothing], INVALID_ARGUMENT, "the call has another"),
        (vec![&[1, 0, 0, 0, 0][..]], INVALID_ARGUMENT, "grpc-encoding does not say how"),
        (vec![&[2, 0, 0, 0, 0][..]], INVALID_ARGUMENT, "must be 0 or 1"),
        (vec![&[0, 0xff, 0xff, 0xff, 0xff][..]], RESOURCE_EXHAUSTED, "message too large: at most "),
        (vec![&[0, 4, 0, 0, 1][..]], RESOURCE_EXHAUSTED, "message too large: at most "),
    ] {
        // A method that anybody may call takes less.
        for (method, most) in [(SCROLL, "67108864 bytes"), (HEALTH, "1024 bytes")] {
            let (found, text) = client.send(method, &[], &pieces).unwrap().code();
            let fragment =
                if code == RESOURCE_EXHAUSTED { format!("{fragment}{most}") } else { fragment.into() };
            assert!(found == code && text.contains(&fragment), "{pieces:?}: {found} {text}");
        }
    }
    for (bytes, code) in [(1024, OK), (1025, RESOURCE_EXHAUSTED)] {
        // A field that nobody knows.
        let mut message = vec![15 << 3 | 2];
        prost::encoding::encode_varint(bytes - 3, &mut message);
        message.resize(bytes as usize, 0);
        let message = framed(&message);
        assert_eq!(client.send(HEALTH, &[], &[&message]).unwrap().code().0, code, "{bytes}");
        let short = compressed(&message[5..]);
        assert_eq!(client.send(HEALTH, &[("grpc-encoding", "gzip")], &[&short]).unwrap().code().0, code);
    }
    assert_eq!(client.send(HEALTH, &[], &[&nothing]).unwrap().code().0, OK);
}

#[test]
fn compressed_messages() {
    let client = SHARED.client();
    let header = [("grpc-encoding", "gzip")];
    let expected = (NOT_FOUND, "unknown collection \"g_absent\"".to_owned());
    let message = &search()[5..];
    assert_eq!(client.send(SEARCH, &header, &[&compressed(message)]).unwrap().code(), expected);
    // One that is not compressed may come all the same.
    assert_eq!(client.send(SEARCH, &header, &[&search()]).unwrap().code(), expected);
    let mut garbled = compressed(message);
    let last = garbled.len() - 5;
    garbled[last] ^= 1;
    let (code, text) = client.send(SEARCH, &header, &[&garbled]).unwrap().code();
    assert!(code == INVALID_ARGUMENT && text.contains("not valid gzip"), "{code} {text}");
    // A hundred KiB that would be a hundred MiB.
    let bomb = compressed(&vec![0; 100 << 20]);
    assert!(bomb.len() < 200 << 10);
    let (code, text) = client.send(SEARCH, &header, &[&bomb]).unwrap().code();
    assert!(code == RESOURCE_EXHAUSTED && text.contains("message too large"), "{code} {text}");
    for other in ["br", "deflate", "gzip, gzip"] {
        let answer = client.send(SEARCH, &[("grpc-encoding", other)], &[&search()]).unwrap();
        let (code, text) = answer.code();
        assert!(code == UNIMPLEMENTED && text.contains("must be gzip or identity"), "{code} {text}");
        assert_eq!(answer.headers["grpc-accept-encoding"], "gzip, identity");
    }
}

/// Lists of what takes more memory than bytes have bounds, and are refused before they are made.
#[test]
fn lists_beyond_their_bounds() {
    let client = SHARED.client();
    let send = |method: &str, message: &[u8]| {
        client.send(&format!("/svc.v1.VectorService/{method}"), &[], &[&framed(message)]).unwrap().code()
    };
    let list = |number: u8, count: usize| {
        let mut field = vec![number << 3 | 2];
        prost::encoding::encode_varint(count as u64, &mut field);
        field.extend(std::iter::repeat_n(1, count));
        field
    };
    // The number of this field takes two bytes.
    let list_of_ids = |count: usize| {
        let mut field = vec![0x82, 1];
        prost::encoding::encode_varint(count as u64, &mut field);
        field.extend(std::iter::repeat_n(1, count));
        field
    };
    // A point with nothing, and one of these bytes.
    let in_points = |point: &[u8]| {
        let mut fields = vec![2 << 3 | 2, 0, 2 << 3 | 2];
        prost::encoding::encode_varint(point.len() as u64, &mut fields);
        fields.extend_from_slice(point);
        fields
    };
    for (method, message, fragment) in [
        ("GetBatch", list(2, (1 << 20) + 1), "a request may name at most 1048576 ids"),
        ("DeleteByFilter", list_of_ids((1 << 20) + 1), "a deletion may name at most 1048576 ids"),
        ("HybridSearch", list(4, 16_385), "a lane may have at most 16384 dimensions"),
        ("DeletePayloadKeys", [3 << 3 | 2, 0].repeat(16_385), "a request may name at most 16384 keys"),
        ("AliasBatch", [1 << 3 | 2, 0].repeat(65_537), "a request may have at most 65536 actions"),
        ("UpsertBatch", [2 << 3 | 2, 0].repeat(262_145), "a batch may have at most 262144 points"),
        (
            "UpsertBatch",
            in_points(&[10 << 3 | 2, 0].repeat(16_385)),
            "key_ttl_ms may have at most 16384 keys",
        ),
        (
            "UpsertBatch",
            in_points(&[1 << 3 | 2, 0]),
            "points[1]: UpsertBatchRequest: BatchPoint.id: invalid wire type",
        ),
        ("SetPayload", [6 << 3 | 2, 0].repeat(16_385), "key_ttl_ms may have at most 16384 keys"),
        ("KeysAdd", [3 << 3 | 2, 0].repeat(1025), "a key may have at most 1024 scopes"),
        ("CreateCollection", [2 << 3 | 2, 0].repeat(2), "its config at most 1 time in a message"),
        (
            "Upsert",
            vec![7 << 3, 0x80, 0x80, 0x80, 0x80, 0x10],
            "sparse: the index 4294967296 has more than 32 bits",
        ),
    ] {
        let (code, text) = send(method, &message);
        assert!(code == INVALID_ARGUMENT && text.contains(fragment), "{method}: {code} {text}");
    }
}

/// The largest message is taken, and one byte more is not; answers have the same bound.
#[test]
fn the_largest_messages() {
    let client = SHARED.client();
    client
        .call("CreateCollection", json!({"name": "g_large", "config": {"dim": 1, "metric": "l2"}}))
        .unwrap();
    let text = |bytes: usize| json!({"collection": "g_large", "text": "a".repeat(bytes), "k": 1});
    let of = &messages_of("TextSearch").0;
    let overhead = encode(of, &text(60 << 20)).len() - (60 << 20);
    let largest = (64 << 20) - overhead;
    for (bytes, code) in [(largest, INVALID_ARGUMENT), (largest + 1, RESOURCE_EXHAUSTED)] {
        let message = framed(&encode(of, &text(bytes)));
        assert_eq!(message.len(), 5 + bytes + overhead);
        let answer = client.send("/svc.v1.VectorService/TextSearch", &[], &[&message]).unwrap();
        assert_eq!(answer.code().0, code, "{:?}", answer.code());
    }
    let content = "b".repeat(8 << 20);
    for id in 0..9_u64 {
        let point = json!({"collection": "g_large", "id": id, "vector": [0.0], "content": content});
        client.call("Upsert", point).unwrap();
    }
    let seven = client.call("Scroll", json!({"collection": "g_large", "limit": 7})).unwrap();
    assert_eq!(seven["documents"].as_array().unwrap().len(), 7);
    let all = json!({"collection": "g_large"});
    client.refused(
        "Scroll",
        all,
        RESOURCE_EXHAUSTED,
        "response too large: at most 67108864 bytes; ask for less",
    );
}

/// HTTP that is no call is answered as HTTP.
#[test]
fn what_is_no_call() {
    let client = SHARED.client();
    let (mut stream, answer) = client.open(SCROLL, &[("content-type", "text/plain")]).unwrap();
    stream.send_data(Bytes::new(), true).unwrap();
    // Of two headers the first counts.
    assert_eq!(block_on(whole(answer)).unwrap().code().0, INVALID_ARGUMENT);
    let answer = client.send("/other.Service/Method", &[], &[&framed(&[])]).unwrap();
    assert_eq!(answer.code(), (UNIMPLEMENTED, "unknown method /other.Service/Method".to_owned()));
    let answer = client.send(HEALTH, &[("grpc-timeout", "soon")], &[&framed(&[])]).unwrap();
    let (code, text) = answer.code();
    assert!(code == INVALID_ARGUMENT && text.contains("grpc-timeout \"soon\""), "{code} {text}");
}

/// Strangers are told nothing else, whatever they send, and nothing of what they send is waited for.
#[test]
fn strangers() {
    let server = Server::start(Arc::new(nigh_net::auth::SingleKey::new("sesame")), |_| {});
    let mut client = server.client();
    let refused = (UNAUTHENTICATED, "unauthorized".to_owned());
    for token in [None, Some("sesam"), Some("Bearer wrong"), Some("bearer sesame")] {
        client.token = token.map(str::to_owned);
        assert_eq!(client.call("ListCollections", json!({})), Err(refused.clone()), "{token:?}");
        assert_eq!(client.call("CreateCollection", Value::Object(Default::default())), Err(refused.clone()));
        assert_eq!(client.call("Health", json!({})), Ok(json!({"status": "ok"})));
    }
    // The answer comes before the message, and before anything is said of other headers.
    for headers in [&[][..], &[("grpc-timeout", "soon")], &[("grpc-encoding", "br")]] {
        let (stream, answer) = client.open(SCROLL, headers).unwrap();
        assert_eq!(block_on(whole(answer)).unwrap().code(), refused, "{headers:?}");
        drop(stream);
    }
    for token in ["sesame", "Bearer sesame"] {
        client.token = Some(token.to_owned());
        assert_eq!(client.call("ListCollections", json!({})), Ok(json!({})));
    }
}
