//! Methods that answer with a stream of messages.
use super::*;
use crate::common::grpc::{encode, framed, messages_of, whole};
use futures_lite::future::block_on;
use nigh_net::grpc::Code;
use serde_json::{Value, json};
use std::future::poll_fn;
use std::time::Instant;

/// A collection with so many points, whose texts have so many bytes.
fn filled(client: &GrpcClient, name: &str, points: u64, bytes: usize) {
    client.call("CreateCollection", json!({"name": name, "config": {"dim": 2, "metric": "l2"}})).unwrap();
    let text = "x".repeat(bytes);
    let ids: Vec<u64> = (0..points).collect();
    for ids in ids.chunks(((16 << 20) / bytes).clamp(1, 1000)) {
        let point = |id: &u64| {
            let metadata = json!({"n": {"kind": "int", "int": points - id}, "odd": {"kind": "bool", "bool": id % 2 == 1}});
            json!({"id": id, "vector": [*id as f32, 0.0], "content": text, "metadata_json": metadata.to_string()})
        };
        let points: Vec<Value> = ids.iter().map(point).collect();
        client.call("UpsertBatch", json!({"collection": name, "points": points})).unwrap();
    }
}

fn documents(messages: &[Value]) -> Vec<Value> {
    messages.iter().flat_map(|message| message["documents"].as_array().cloned().unwrap_or_default()).collect()
}

const ODD: &str = r#"{"op":"eq","field":"odd","value":{"kind":"bool","bool":true}}"#;

/// A stream has the documents of the one answer, in the same order, and goes on behind any of its messages.
#[test]
fn scrolls() {
    let client = SHARED.client();
    filled(&client, "g_stream", 3000, 100);
    for more in [
        json!({}),
        json!({"filter_json": ODD}),
        json!({"limit": 1234}),
        json!({"order_by": {"key": "n"}}),
        json!({"order_by": {"key": "n", "desc": true}, "filter_json": ODD, "limit": 700}),
    ] {
        let mut request = more.clone();
        request["collection"] = "g_stream".into();
        let whole = client.call("Scroll", request.clone()).unwrap();
        let (messages, ended) = client.stream("ScrollStream", &request);
        assert_eq!(ended, (OK, String::new()), "{more}");
        assert!(messages.len() > 3, "{more}: {} messages", messages.len());
        let found = documents(&messages);
        assert_eq!(Value::from(found.clone()), whole["documents"], "{more}");
        let (last, others) = messages.split_last().unwrap();
        assert_eq!(last.get("next_cursor"), whole.get("next_cursor"), "{more}");
        let mut behind = 0;
        for message in others {
            behind += message["documents"].as_array().unwrap().len();
            let mut request = request.clone();
            request["cursor"] = message["next_cursor"].clone();
            request["limit"] = 5.into();
            let next = client.call("Scroll", request).unwrap();
            let some = next["documents"].as_array().unwrap();
            let expected = &found[behind..found.len().min(behind + 5)];
            assert!(some.starts_with(expected), "{more} behind {behind}");
        }
    }
    let (messages, ended) = client.stream("ScrollStream", &json!({"collection": "g_nowhere"}));
    assert_eq!((messages.len(), ended), (0, (NOT_FOUND, "unknown collection \"g_nowhere\"".to_owned())));
    let wrong = json!({"collection": "g_stream", "limit": -1});
    client.refused("ScrollStream", wrong, INVALID_ARGUMENT, "limit must not be negative, found -1");
    client.call("CreateCollection", json!({"name": "g_void", "config": {"dim": 2}})).unwrap();
    let nothing = client.stream("ScrollStream", &json!({"collection": "g_void"}));
    assert_eq!(nothing, (vec![json!({})], (OK, String::new())));
}

/// Each search of a batch has the answer that it has alone.
#[test]
fn searches() {
    let client = SHARED.client();
    filled(&client, "g_batch", 500, 10);
    let one = |at: usize| match at % 3 {
        0 => json!({"query": [at as f32, 1.0], "k": 3}),
        1 => json!({"query": [at as f32, 0.0], "k": 1 + at % 7, "filter_json": ODD}),
        _ => json!({"query": [0.5, at as f32], "k": 400}),
    };
    let searches: Vec<Value> = (0..50).map(one).collect();
    let request = |searches: &[Value]| json!({"collection": "g_batch", "searches": searches});
    for with_documents in [false, true] {
        let mut batch = request(&searches);
        batch["with_documents"] = with_documents.into();
        let (messages, ended) = client.stream("SearchBatch", &batch);
        assert_eq!((messages.len(), ended), (searches.len(), (OK, String::new())));
        let (method, list) = if with_documents { ("SearchDocs", "documents") } else { ("Search", "results") };
        for (at, message) in messages.iter().enumerate() {
            let mut alone = one(at);
            alone["collection"] = "g_batch".into();
            assert_eq!(message[list], client.call(method, alone).unwrap()[list], "search {at}");
            assert_eq!(message.get("index").cloned().unwrap_or(json!(0)), json!(at));
        }
    }
    assert_eq!(client.stream("SearchBatch", &request(&[])), (vec![], (OK, String::new())));
    // The answers before the one that is refused have come.
    for (wrong, code, sentence) in [
        (
            json!({"query": [1.0, 1.0]}),
            INVALID_ARGUMENT,
            "searches[11]: k must be between 1 and 65536, found 0",
        ),
        (json!({"query": [1.0], "k": 1}), INVALID_ARGUMENT, "searches[11]: "),
        (
            json!({"query": [1.0, 1.0], "k": 1, "filter_json": "{"}),
            INVALID_ARGUMENT,
            "searches[11]: filter_json: ",
        ),
    ] {
        let mut searches = searches.clone();
        searches[11] = wrong;
        let (messages, ended) = client.stream("SearchBatch", &request(&searches));
        assert!(messages.len() == 11 && ended.0 == code && ended.1.starts_with(sentence), "{ended:?}");
    }
    let nowhere = json!({"collection": "g_nowhere", "searches": []});
    client.refused("SearchBatch", nowhere, NOT_FOUND, "unknown collection \"g_nowhere\"");
    let stale = json!({"collection": "g_batch", "read_consistency": 4});
    client.refused("SearchBatch", stale, INVALID_ARGUMENT, "read_consistency must be 0, 1, 2 or 3, found 4");
    let many = framed(&[&b"\x0a\x07g_batch"[..], &[2 << 3 | 2, 0].repeat(65_537)].concat());
    let answer = client.send("/svc.v1.VectorService/SearchBatch", &[], &[&many]).unwrap();
    assert_eq!(answer.code(), (INVALID_ARGUMENT, "a batch may have at most 65536 searches".to_owned()));
}

/// More than one message may hold comes in a stream; one that is too long ends it.
#[test]
fn long_streams() {
    let client = SHARED.client();
    filled(&client, "g_streamed", 9, 8 << 20);
    let (messages, ended) = client.stream("ScrollStream", &json!({"collection": "g_streamed"}));
    assert_eq!((documents(&messages).len(), ended.0), (9, OK));
    let search = |k: usize| json!({"query": [0.0, 0.0], "k": k});
    let batch = json!({"collection": "g_streamed", "searches": [search(2), search(9), search(1)], "with_documents": true});
    let (messages, ended) = client.stream("SearchBatch", &batch);
    assert_eq!((messages.len(), ended.0), (1, RESOURCE_EXHAUSTED));
    assert!(ended.1.starts_with("searches[1]: response too large"), "{}", ended.1);
    // Groups are made hit by hit, and one answer that is too long leaves the others.
    let lanes = json!([{"dense": {"dense": [0.0, 0.0]}}]);
    let grouped =
        |size: usize| json!({"spec": {"prefetch": lanes, "k": 2, "group_by": "odd", "group_size": size}});
    let batch = json!({"collection": "g_streamed", "searches": [grouped(1), grouped(9), grouped(3)], "with_errors": true});
    let (messages, ended) = client.stream("SearchBatch", &batch);
    assert_eq!((messages.len(), ended.0), (3, OK), "{}", ended.1);
    for (message, size) in [(&messages[0], 1), (&messages[2], 3)] {
        let sizes: Vec<usize> = message["groups"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group["hits"].as_array().unwrap().len())
            .collect();
        assert_eq!(sizes, [size, size]);
    }
    assert_eq!(messages[1]["code"], json!(RESOURCE_EXHAUSTED));
    let mut alone = grouped(9);
    alone["collection"] = "g_streamed".into();
    let (code, sentence) = client.call("VectorQuery", alone).unwrap_err();
    assert_eq!((code, &messages[1]["error"]), (RESOURCE_EXHAUSTED, &json!(sentence)));
    assert!(messages[1]["groups"].is_null());
}

fn ends(server: &Server, code: Code) -> u64 {
    server.telemetry.grpc.ends().find(|(found, _)| *found == code).map_or(0, |(_, count)| count)
}

#[track_caller]
fn wait_until_ended(server: &Server, code: Code, count: u64) {
    let start = Instant::now();
    while ends(server, code) < count {
        assert!(start.elapsed() < PATIENCE, "{} have ended as {}", ends(server, code), code.name());
        std::thread::sleep(Duration::from_millis(5));
    }
}

const STREAM: &str = "/svc.v1.VectorService/ScrollStream";

/// A stream ends when its deadline passes, when its client gives it up, and when its client takes nothing; others go on.
#[test]
fn streams_that_are_not_taken() {
    let server = Server::start(Arc::new(Open), |config| config.second = Duration::from_millis(10));
    filled(&server.client(), "docs", 2000, 2000);
    let message = framed(&encode(&messages_of("ScrollStream").0, &json!({"collection": "docs"})));
    // Each on a connection of its own, as one stream that is not taken may fill the window of all.
    let open = |headers: &[(&str, &str)]| {
        let client = server.client();
        let (mut stream, answer) = client.open(STREAM, headers).unwrap();
        stream.send_data(message.clone().into(), true).unwrap();
        let (head, body) = block_on(answer).unwrap().into_parts();
        assert_eq!(head.status, 200);
        (client, stream, body)
    };
    // A client that opens no window, with a deadline.
    let late = open(&[("grpc-timeout", "100m")]);
    wait_until_ended(&server, Code::DeadlineExceeded, 1);
    // One that gives the call up in the middle.
    let (_client, stream, mut body) = open(&[]);
    assert!(block_on(poll_fn(|cx| body.poll_data(cx))).unwrap().is_ok());
    let before = ends(&server, Code::Cancelled);
    drop((stream, body));
    wait_until_ended(&server, Code::Cancelled, before + 1);
    drop(late);
    // One that takes nothing for as long as may be, and another beside it.
    let before = ends(&server, Code::Cancelled);
    let (deaf, client) = (open(&[]), server.client());
    assert_eq!(documents(&client.stream("ScrollStream", &json!({"collection": "docs"})).0).len(), 2000);
    wait_until_ended(&server, Code::Cancelled, before + 1);
    drop(deaf);
    // What ended left nothing behind.
    for _ in 0..50 {
        let (mut stream, answer) = client.open(STREAM, &[("grpc-timeout", "0n")]).unwrap();
        stream.send_data(message.clone().into(), true).unwrap();
        // The deadline has passed, or what came before it was sent.
        let _ended = block_on(whole(answer));
    }
    assert_eq!(client.call("Health", json!({})), Ok(json!({"status": "ok"})));
}
