//! Tokens, and what the logs say of them.

use nigh_tests::{Args, Server, frame, frame_with_token};

#[test]
fn every_request_needs_the_key() {
    let server =
        Server::start(None, &["-cores", "1", "-tcp", "127.0.0.1:0", "-api-key", "s3cret-key", "-access-log"]);
    let wire = &mut server.tcp();
    let key = Args::new().s16("k");
    let unauthorized = [0, 0, 0, 5, 4, 0, 0, 0, 0];
    for request in [
        frame("get", key.as_ref()),
        frame("__ping__", b""),
        frame("nothing", b""),
        frame_with_token("", "get", key.as_ref()),
        frame_with_token("wrong", "get", key.as_ref()),
        frame_with_token("s3cret-ke", "get", key.as_ref()),
        frame_with_token(&"x".repeat(255), "__ping__", b""),
        frame("__wc__", Args::new().u8(0).u8(0).s8("get").s32(key.as_ref()).as_ref()),
    ] {
        wire.send(request);
        assert_eq!(wire.raw().expect("a response"), unauthorized);
    }
    let with_key = |operation: &str, args: &Args| frame_with_token("s3cret-key", operation, args.as_ref());
    // Each request for itself: one with the key opens nothing for the next.
    wire.send(
        [
            with_key("put", &key.clone().s32("v").u64(0)),
            frame("get", key.as_ref()),
            with_key("get", &key),
            frame_with_token("wrong", "get", key.as_ref()),
            with_key("get", &key),
            with_key("nothing", &Args::new()),
            b"\0\0\0\x01\x03".to_vec(),
        ]
        .concat(),
    );
    assert_eq!(wire.response().ok(), b"");
    assert_eq!(wire.response().status, 4);
    assert_eq!(wire.response().ok(), b"v");
    assert_eq!(wire.response().status, 4);
    assert_eq!(wire.response().ok(), b"v");
    assert_eq!(wire.response().error(), "op not registered");
    assert_eq!(wire.response().error(), "frame truncated");

    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    assert!(!log.contains("s3cret-key"), "{log}");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("transport=tcp")).collect();
    assert_eq!(lines.len(), 15, "{log}");
    for (op, status) in [("get", "ok"), ("get", "unauthorized"), ("put", "ok"), ("nothing", "error")] {
        let has =
            |line: &&&str| line.contains(&format!("op={op} ")) && line.contains(&format!("status={status} "));
        assert!(lines.iter().any(|line| has(&line)), "no {op} {status} in {log}");
    }
    assert!(lines.iter().any(|line| line.contains("principal=token:")), "{log}");
}

#[test]
fn an_open_server_that_others_could_reach_is_refused() {
    let end = nigh_tests::run_to_end(&["-http", "", "-tcp", ":0"], &[]);
    assert_eq!(end.status.code(), Some(1), "{}", end.stderr);
    assert!(end.stderr.contains("-tcp :0 is reachable from other machines"), "{}", end.stderr);
}
