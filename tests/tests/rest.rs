//! REST of the whole process: what needs flags, the log, or large loads. Every route byte by byte is in `net/tests`.
use nigh_tests::{Api, Server, SplitMix};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

const DIM: usize = 12;

/// Sends raw bytes on a connection of its own and reads until the server closes it.
fn raw(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.authority()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Log lines that hold `part`, once there is one.
#[track_caller]
fn lines_with(server: &Server, part: &str) -> Vec<String> {
    server.wait_for_log(part);
    server.log().lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

#[test]
fn the_access_log_names_requests_and_hides_tokens() {
    let server = Server::start(None, &["-access-log", "-api-key", "a-very-secret-key"]);
    let answer = raw(
        &server,
        "GET /v1/collections/docs/points/7 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         authorization: Bearer a-very-secret-key\r\nx-request-id: trace-1\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert!(answer.contains("x-request-id: trace-1\r\n"), "{answer}");
    let line = lines_with(&server, "request_id=trace-1").remove(0);
    for part in [
        "level=INFO msg=access ",
        "transport=http ",
        "op=\"GET /v1/collections/docs/points/7\" ",
        "status=404 ",
        "latency_ms=",
        "principal=token:",
        "bytes=",
    ] {
        assert!(line.contains(part), "no {part:?} in {line}");
    }
    raw(&server, "GET /v1/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let line = lines_with(&server, "op=\"GET /v1/health\"").remove(0);
    assert!(line.contains("principal=\"\"") && line.contains("bytes=16"), "{line}");
    let (status, log) = server.stop();
    assert!(status.success());
    assert!(!log.contains("a-very-secret-key"), "{log}");
}

/// One corpus, three ways in: the same answers come out.
#[test]
fn json_binary_and_staged_loads_answer_alike() {
    let server = Server::start(None, &[]);
    let mut api = server.api();
    let mut random = SplitMix(7);
    let vectors: Vec<Vec<f32>> = (0..600).map(|_| random.vector(DIM)).collect();
    let payload = |id: usize| json!({"group": {"kind": "int", "int": id % 7}}).to_string();
    let mut binary = b"RVB1".to_vec();
    for word in [1, vectors.len() as u32, DIM as u32] {
        binary.extend_from_slice(&word.to_be_bytes());
    }
    for (id, vector) in vectors.iter().enumerate() {
        binary.extend_from_slice(&(id as u64).to_be_bytes());
        vector.iter().for_each(|value| binary.extend_from_slice(&value.to_be_bytes()));
    }
    for id in 0..vectors.len() {
        binary.extend_from_slice(&(payload(id).len() as u32).to_be_bytes());
        binary.extend_from_slice(payload(id).as_bytes());
    }
    let points: Vec<Value> = vectors
        .iter()
        .enumerate()
        .map(|(id, vector)| json!({"id": id, "vector": vector, "metadata": {"group": id % 7}}))
        .collect();

    for name in ["json", "binary", "staged"] {
        api.ok("POST", "/v1/collections", json!({"name": name, "config": {"dim": DIM, "ef_search": 600}}));
    }
    api.ok("POST", "/v1/collections/json/points/batch", json!({ "points": points }));
    let media = "application/octet-stream";
    let sent = api.send_bytes("POST", "/v1/collections/binary/points/batch", media, &binary).unwrap();
    assert_eq!(sent.body, json!({"count": vectors.len()}));
    let sent = api.send_bytes("POST", "/v1/collections/staged/points/bulk", media, &binary).unwrap();
    assert_eq!(sent.body, json!({"staged": vectors.len()}));
    api.ok("POST", "/v1/collections/staged/points/bulk/build", json!({"workers": 0}));

    for name in ["json", "binary", "staged"] {
        assert_eq!(stored(&mut api, name, 599), stored(&mut api, "json", 599), "{name}");
    }
    for _ in 0..20 {
        let query = random.vector(DIM);
        for filter in [Value::Null, json!({"op": "eq", "field": "group", "value": 3})] {
            let body = json!({"query": query, "k": 10, "filter": filter});
            let expected = api.ok("POST", "/v1/collections/json/points/search/docs", body.clone());
            assert_eq!(expected["documents"].as_array().unwrap().len(), 10);
            for name in ["binary", "staged"] {
                let path = format!("/v1/collections/{name}/points/search/docs");
                assert_eq!(api.ok("POST", &path, body.clone()), expected, "{name}");
            }
        }
    }
}

fn stored(api: &mut Api, name: &str, id: u64) -> Value {
    api.ok("GET", &format!("/v1/collections/{name}/points/{id}"), Value::Null)
}

/// A client that leaves in the middle of an upload, or of an answer, costs nobody anything.
#[test]
fn clients_that_leave() {
    let server = Server::start(None, &[]);
    let mut api = server.api();
    api.ok("POST", "/v1/collections", json!({"name": "docs", "config": {"dim": 1}}));
    let points: Vec<Value> =
        (0..5_000).map(|id| json!({"id": id, "vector": [id], "content": "x".repeat(200)})).collect();
    api.ok("POST", "/v1/collections/docs/points/batch", json!({ "points": points }));
    for round in 0..50 {
        let mut stream = TcpStream::connect(server.authority()).unwrap();
        let request = if round % 2 == 0 {
            "POST /v1/collections/docs/points/scroll HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
        } else {
            "POST /v1/collections/docs/points/batch HTTP/1.1\r\nhost: x\r\ncontent-length: 999\r\n\r\n{\"points\":[{"
        };
        stream.write_all(request.as_bytes()).unwrap();
        if round % 4 == 0 {
            let _some = stream.read(&mut [0; 1000]).unwrap();
        }
    }
    let all = api.ok("POST", "/v1/collections/docs/points/scroll", json!({}));
    assert_eq!(all["documents"].as_array().unwrap().len(), 5_000);
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
}

/// Payloads of many lengths are replaced all the time; whoever finds a point must get one of its payloads, whole. The copy of what was
/// found looked rows up more than once and could hand out pieces of other points' payloads.
#[test]
fn payloads_are_whole_while_they_are_replaced() {
    let server = Server::start(None, &["-cores", "2"]);
    let mut api = server.api();
    api.ok("POST", "/v1/collections", json!({"name": "docs", "config": {"dim": 1, "metric": "l2"}}));
    let points = 64;
    let payload = |id: u64, round: u64| {
        let text = format!("{id} ").repeat(1 + (id * 7 + round * 13) as usize % 40);
        json!({"id": {"kind": "int", "int": id}, "text": {"kind": "string", "str": text}})
    };
    // A zero would be left out of the answers.
    for id in 1..=points {
        let point = json!({"id": id, "vector": [id], "metadata": payload(id, 0)});
        api.ok("POST", "/v1/collections/docs/points", point);
    }
    let rounds = if nigh_tests::long() { 200 } else { 10 };
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.api();
            for round in 1..=rounds {
                for id in 1..=points {
                    let path = format!("/v1/collections/docs/points/{id}/payload/overwrite");
                    writer.ok("POST", &path, payload(id, round));
                }
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                // Each connection is served by a core that the system chooses, so that both cores read.
                let mut reader = server.api();
                let mut found = 0;
                while found == 0 || !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let body = json!({"query": [0], "k": points});
                    let answer = reader.ok("POST", "/v1/collections/docs/points/search/docs", body);
                    for document in answer["documents"].as_array().expect("documents") {
                        let (id, metadata) = (document["id"].as_u64().expect("an id"), &document["metadata"]);
                        assert_eq!(metadata["id"]["int"].as_u64(), Some(id), "{document}");
                        let text = metadata["text"]["str"].as_str().expect("a text");
                        assert!(text.split_whitespace().all(|word| word == id.to_string()), "{document}");
                        found += 1;
                    }
                }
            });
        }
    });
}
