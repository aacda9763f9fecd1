//! The transport row: headers, keep-alive, errors, retries, `Expect` and chunks.

use super::wire::{Wire, hex, ids, server};
use nigh_tests::{Access, Mode, in_every_mode, long};
use serde_json::json;
use std::time::Duration;

in_every_mode!(
    one_connection_carries_every_kind_of_request,
    every_error_is_a_string_in_a_json_body,
    what_is_no_request_is_told_why,
    a_body_may_wait_for_100_continue,
    bodies_come_in_chunks_as_well,
    only_the_media_type_decides_between_json_and_binary,
    a_dead_pooled_connection_is_told_from_an_answer,
    names_travel_percent_encoded,
);

fn one_connection_carries_every_kind_of_request(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    let authorization = access.authorization();
    wire.send(format!(
        "GET /v1/health HTTP/1.1\r\nHost: nigh.example:8080\r\nAccept-Encoding: identity\r\n\
         Content-Type: application/json\r\n{authorization}\r\n",
    ));
    let answer = wire.answer();
    assert_eq!((answer.status, answer.text()), (200, "{\"status\":\"ok\"}\n"));
    assert_eq!(answer.header("content-type"), Some("application/json"), "without a charset");
    assert_eq!(answer.header("content-encoding"), None);
    assert_ne!(answer.header("connection"), Some("close"), "clients pool connections");
    wire.send(format!(
        "POST /v1/collections HTTP/1.1\r\nHost: nigh.example:8080\r\nAccept-Encoding: identity\r\n\
         Content-Length: 178\r\nContent-Type: application/json\r\n{authorization}\r\n\
         {{\"name\": \"docs\", \"config\": {{\"dim\": 2, \"metric\": \"cosine\", \"m\": 16, \"ef_construction\": 200, \
         \"ef_search\": 64, \"seed\": 0, \"quant\": \"none\", \"persistent\": false, \"rescore_factor\": 3}}}}",
    ));
    let answer = wire.answer();
    assert_eq!((answer.status, answer.text()), (201, "{\"name\":\"docs\"}\n"));
    wire.send(format!(
        "POST /v1/collections/docs/points HTTP/1.1\r\nHost: nigh.example:8080\r\nAccept-Encoding: identity\r\n\
         Content-Length: 40\r\nContent-Type: application/json\r\n{authorization}\r\n\
         {{\"id\": 7, \"vector\": [1, 0], \"ttl_ms\": 0}}",
    ));
    let answer = wire.answer();
    assert_eq!((answer.status, answer.text()), (200, "{\"id\":7}\n"));
    wire.send(format!(
        "DELETE /v1/collections/docs/points/7 HTTP/1.1\r\nHost: nigh.example:8080\r\nAccept-Encoding: identity\r\n\
         Content-Type: application/json\r\n{authorization}\r\n",
    ));
    let answer = wire.answer();
    assert_eq!((answer.status, answer.text()), (200, "{\"deleted\":true}\n"));
    wire.send(format!(
        "GET /v1/collections/docs/points/7 HTTP/1.1\r\nHost: nigh.example:8080\r\nAccept-Encoding: identity\r\n\
         Content-Type: application/json\r\n{authorization}\r\n",
    ));
    let answer = wire.answer();
    assert_eq!(answer.status, 404);
    assert!(answer.refused().1.contains("point not found"));
    // The connection has outlived every error.
    wire.exact("GET", "/v1/health", "", 200, r#"{"status":"ok"}"#);
}

fn every_error_is_a_string_in_a_json_body(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 2, "l2", "");
    let points = "/v1/collections/docs/points";
    wire.ok("POST", points, r#"{"id": 1, "vector": [1, 0]}"#);
    for (method, path, body, status, fragment) in [
        ("POST", points.to_owned(), "", 400, "invalid JSON body:"),
        ("POST", points.to_owned(), "{", 400, "invalid JSON body:"),
        ("POST", points.to_owned(), r#"{"id": 1, "vektor": [1, 0]}"#, 400, "invalid JSON body:"),
        ("POST", points.to_owned(), r#"{"id": 1.5, "vector": [1, 0]}"#, 400, "invalid JSON body:"),
        ("POST", points.to_owned(), r#"{"id": 1, "vector": [1]}"#, 400, "dimension mismatch"),
        ("POST", points.to_owned(), r#"{"id": 1, "vector": [1, 0]}"#, 409, "already present"),
        ("GET", format!("{points}/seven"), "", 400, "invalid id:"),
        ("GET", format!("{points}/8"), "", 404, "point not found"),
        ("POST", format!("{points}/search"), r#"{"query": [1, 0]}"#, 400, "k must be between 1 and 65536"),
        (
            "POST",
            "/v1/collections/other/points/search".into(),
            r#"{"query": [1, 0], "k": 1}"#,
            404,
            "collection",
        ),
        ("POST", format!("{points}/scroll"), r#"{"cursor": "?"}"#, 400, "cursor"),
        // A server behind a proxy with a base prefix sees paths without it; with it they name nothing.
        ("GET", "/vectors/v1/health".into(), "", 404, "not found"),
        ("PATCH", points.to_owned(), "{}", 405, "method not allowed"),
    ] {
        let answer = wire.json(method, &path, body);
        let (found, error) = answer.refused();
        assert_eq!(found, status, "{method} {path} {body}: {error}");
        assert!(error.contains(fragment), "{method} {path} {body}: {error}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{method} {path}");
        assert!(answer.text().ends_with("}\n"), "{method} {path}: {:?}", answer.text());
    }
    // Without the scheme the whole value is the key.
    let bare = access.authorization().replace("Bearer ", "");
    wire.send(format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{bare}\r\n"));
    assert_eq!(wire.answer().status, 200);
    if access.refuses_strangers() {
        let mut stranger = Wire::connect_as_stranger(access, &server);
        for credential in ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic a2V5\r\n"] {
            is_refused(&mut stranger, credential);
        }
        // A token decides, even beside a certificate that would do.
        is_refused(&mut wire, "Authorization: Bearer wrong\r\n");
    }
}

#[track_caller]
fn is_refused(wire: &mut Wire, credential: &str) {
    wire.send(format!(
        "POST /v1/collections/docs/points/scroll HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\
         Content-Type: application/json\r\n{credential}\r\n{{}}"
    ));
    let answer = wire.answer();
    assert_eq!((answer.status, answer.text()), (401, "{\"error\":\"unauthorized\"}\n"), "{credential}");
}

fn what_is_no_request_is_told_why(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    // Refused before there is a request to answer.
    wire.send("GET /v1/health HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n");
    assert_eq!(wire.answer().read(), Err("the request is not valid HTTP/1.1".to_owned()));
    let mut wire = Wire::connect(access, &server);
    wire.send("GET /v1/health HTTP/1.1\r\nHost: x\r\nX-Long: ");
    // The answer may come before everything is sent, and the connection may be closed by then; both are allowed.
    wire.send(vec![b'a'; (1 << 20) + 1]);
    let why = "the request line and headers are too large: at most 1048576 bytes and 100 headers";
    assert_eq!(wire.answer().read(), Err(why.to_owned()));
    Wire::connect(access, &server).exact("GET", "/v1/health", "", 200, r#"{"status":"ok"}"#);
}

fn a_body_may_wait_for_100_continue(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 2, "l2", "");
    let authorization = access.authorization();
    wire.send(format!(
        "POST /v1/collections/docs/points HTTP/1.1\r\nHost: x\r\n{authorization}\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 26\r\nExpect: 100-continue\r\n\r\n"
    ));
    assert_eq!(wire.line(), "HTTP/1.1 100 Continue");
    assert_eq!(wire.line(), "");
    wire.send(r#"{"id": 1, "vector": [1,0]}"#);
    let answer = wire.answer();
    assert_eq!((answer.status, answer.text()), (200, "{\"id\":1}\n"), "what curl -d sends is JSON");
    if !access.refuses_strangers() {
        return;
    }
    // Refused by its head alone: the answer comes without the body having been asked for.
    let mut wire = Wire::connect_as_stranger(access, &server);
    wire.send(
        "POST /v1/collections/docs/points HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Content-Length: 26\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(wire.answer().refused(), (401, "unauthorized".to_owned()));
}

fn bodies_come_in_chunks_as_well(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 2, "l2", "");
    let authorization = access.authorization();
    let head = |media: &str, route: &str| {
        format!(
            "POST /v1/collections/docs/points{route} HTTP/1.1\r\nHost: x\r\n{authorization}\
             Content-Type: {media}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
    };
    wire.send(head("application/json", ""));
    wire.send("9\r\n{\"id\": 1,\r\n");
    wire.send("8\r\n \"vector\r\n9;x=y\r\n\": [1,0]}\r\n0\r\n\r\n");
    let answer = wire.answer();
    assert_eq!((answer.status, answer.text()), (200, "{\"id\":1}\n"));
    // Two rows, cut inside the header, an id and a component.
    wire.send(head("application/octet-stream", "/batch"));
    let body = hex("52564231 00000000 00000002 00000002 0000000000000002 40000000 00000000 \
         0000000000000003 40400000 00000000");
    for piece in [&body[..6], &body[6..19], &body[19..45], &body[45..]] {
        wire.send(format!("{:x}\r\n", piece.len()));
        wire.send(piece);
        wire.send("\r\n");
    }
    wire.send("0\r\n\r\n");
    assert_eq!(wire.answer().ok(), json!({"count": 2}));
    wire.send(head("application/octet-stream", "/search"));
    let query = hex("52565131 00000000 00000003 00000002 00 00 0000 0000000000000000 00000000 00000000");
    wire.send(format!("{:X}\r\n", query.len()));
    wire.send(query);
    wire.send("\r\n0\r\n\r\n");
    assert_eq!(ids(&wire.answer().ok()["results"]), [1, 2, 3]);
}

fn only_the_media_type_decides_between_json_and_binary(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 2, "l2", "");
    let search = "/v1/collections/docs/points/search";
    let query = hex("52565131 00000000 00000003 00000002 00 00 0000 0000000000000000 00000000 00000000");
    for media in ["application/octet-stream", "Application/Octet-Stream; charset=binary"] {
        assert_eq!(wire.request("POST", search, media, &query).status, 200, "{media}");
    }
    for media in ["application/json", "text/plain", "application/octet-streams", "nonsense"] {
        let answer = wire.request("POST", search, media, br#"{"query": [0, 0], "k": 3}"#);
        assert_eq!(answer.status, 200, "{media}");
    }
    // A route without a binary form reads JSON whatever the body is called.
    let scroll = "/v1/collections/docs/points/scroll";
    assert_eq!(wire.request("POST", scroll, "application/octet-stream", b"{}").status, 200);
}

/// In all modes at once, because it waits.
#[test]
fn a_pooled_connection_outlives_its_pauses() {
    let servers = Mode::ALL.map(|mode| {
        let access = Access::new(mode);
        let server = server(&access);
        (access, server)
    });
    let mut wires = servers.each_ref().map(|(access, server)| Wire::connect(access, server));
    for wire in &mut wires {
        wire.exact("GET", "/v1/health", "", 200, r#"{"status":"ok"}"#);
    }
    // Longer than a request's head may take; the long form nearly as long as an idle connection may stay. A write is
    // never retried, so a connection cut here would be a lost write.
    std::thread::sleep(Duration::from_secs(if long() { 110 } else { 13 }));
    for (wire, mode) in wires.iter_mut().zip(Mode::ALL) {
        println!("{mode:?}");
        wire.create("docs", 2, "l2", "");
        let point = r#"{"id": 1, "vector": [1, 0]}"#;
        wire.exact("POST", "/v1/collections/docs/points", point, 200, r#"{"id":1}"#);
    }
}

fn a_dead_pooled_connection_is_told_from_an_answer(access: &Access) {
    let data = tempfile::tempdir().expect("a temporary directory");
    let flags = ["-cores", "2"];
    let server = access.start(Some(data.path()), &flags);
    let mut wire = Wire::connect(access, &server);
    wire.create("docs", 2, "l2", "");
    wire.ok("POST", "/v1/collections/docs/points", r#"{"id": 1, "vector": [1, 0]}"#);
    let search = (r#"{"query": [1, 0], "k": 1}"#, "/v1/collections/docs/points/search");
    let found = wire.ok("POST", search.1, search.0);
    assert!(server.stop().0.success());
    // Nothing but the end of the stream: what a client reads as "try this search once more on a new connection".
    assert!(wire.is_ended());
    let server = access.start(Some(data.path()), &flags);
    assert_eq!(Wire::connect(access, &server).ok("POST", search.1, search.0), found);
}

fn names_travel_percent_encoded(access: &Access) {
    let server = server(access);
    let mut wire = Wire::connect(access, &server);
    for (name, path) in
        [("acme/docs", "acme%2Fdocs"), ("a b?c%d", "a%20b%3Fc%25d"), ("größe", "gr%C3%B6%C3%9Fe")]
    {
        wire.create(name, 2, "l2", "");
        let points = format!("/v1/collections/{path}/points");
        wire.exact("POST", &points, r#"{"id": 1, "vector": [1, 0]}"#, 200, r#"{"id":1}"#);
        let dropped = format!(r#"{{"dropped":"{name}","existed":true}}"#);
        wire.exact("DELETE", &format!("/v1/collections/{path}"), "", 200, &dropped);
    }
}
