//! The bucket store against stores that work and stores that fail.

use super::others::{FileServer, MemoryServer};
use super::scripted::{ACCESS_KEY, Fault, Received, SECRET_KEY, SHORT, Scripted, open, settings};
use super::{BucketStore, Limits, sweep};
use crate::stores::contract::{Bed, check};
use bytes::Bytes;
use futures_lite::future::block_on;
use nigh_shard::backup::{Store, StoreError};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// An object of several parts.
const BIG_BYTES: usize = (17 << 20) + 5;
/// A store has let go of what was dropped after this long.
const CLEANUP: Duration = Duration::from_secs(10);

#[test]
fn a_store_of_this_process() {
    let server = Scripted::start(|_| None);
    let store = open(server.port, Limits::default());
    check(&Bed { store: &store, leftovers: &|| server.open_uploads(), is_atomic: true });
}

#[test]
fn a_store_by_s3s() {
    let Some(server) = FileServer::start() else { return };
    let store = open(server.port, Limits::default());
    check(&Bed { store: &store, leftovers: &|| server.open_uploads(), is_atomic: false });
}

#[test]
fn a_store_by_moto() {
    let Some(server) = MemoryServer::start() else { return };
    let store = open(server.port, Limits::default());
    check(&Bed { store: &store, leftovers: &|| server.open_uploads(), is_atomic: false });
}

/// Faults for requests about the object `t/a`, which is not what the store tries things with. The first `skip` of the kind are left alone, and the
/// `times` after them fail.
fn faults(kind: &'static str, skip: usize, times: usize, fault: Fault) -> Scripted {
    let seen = AtomicUsize::new(0);
    Scripted::start(move |request: &Received| {
        let is_ours = request.kind() == kind && (request.key == "t/a" || request.key.is_empty());
        let number = if is_ours { seen.fetch_add(1, Ordering::Relaxed) } else { usize::MAX };
        (is_ours && (skip..skip + times).contains(&number)).then_some(fault)
    })
}

async fn put(store: &BucketStore, bytes: usize) -> Result<(), StoreError> {
    let mut upload = store.create("t/a").await?;
    upload.write(Bytes::from(vec![7; bytes])).await?;
    upload.finish().await
}

/// Waits until no multipart upload is left.
fn assert_nothing_stays(server: &Scripted, what: &str) {
    let started = Instant::now();
    while server.open_uploads() > 0 {
        assert!(started.elapsed() < CLEANUP, "{what}: an upload stays");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const ALWAYS: usize = usize::MAX / 2;

/// What an upload of so many bytes comes to under a fault, which is an error that names the object, says `why` and holds no credential.
fn fails(bytes: usize, kind: &'static str, skip: usize, fault: Fault, why: &str) -> StoreError {
    let what = format!("{bytes} bytes, {kind}, {fault:?}");
    let server = faults(kind, skip, ALWAYS, fault);
    let store = open(server.port, SHORT);
    let started = Instant::now();
    let error = block_on(put(&store, bytes)).expect_err(&what);
    assert!(started.elapsed() < Duration::from_secs(30), "{what}: it took {:?}", started.elapsed());
    let text = error.to_string();
    assert!(text.contains("\"t/a\"") && text.contains(why), "{what}: {text}");
    assert!(!text.contains(ACCESS_KEY) && !text.contains(SECRET_KEY), "{what}: {text}");
    assert!(server.keys().is_empty(), "{what}: {:?}", server.keys());
    // If the answer to the first request is lost, the client does not know the name of the upload; a sweep removes it.
    if !(kind == "begin" && matches!(fault, Fault::HalfBody | Fault::Trickle)) {
        assert_nothing_stays(&server, &what);
    }
    error
}

#[test]
fn an_upload_that_fails_publishes_nothing_and_says_why() {
    for (bytes, kind) in [(5, "put"), (BIG_BYTES, "begin"), (BIG_BYTES, "part"), (BIG_BYTES, "complete")] {
        for (fault, why) in [
            (
                Fault::Answer(500, "InternalError"),
                "500 Internal Server Error (InternalError: A test wants it)",
            ),
            (Fault::Answer(503, "SlowDown"), "503 Service Unavailable"),
            (Fault::Silence, "no whole answer came within 500ms"),
        ] {
            let error = fails(bytes, kind, 0, fault, why);
            assert!(error.is_temporary(), "{kind} {fault:?}: {error}");
        }
        for (fault, why) in [
            (Fault::Answer(403, "AccessDenied"), "refuses access"),
            (Fault::Answer(400, "ExpiredToken"), "ExpiredToken"),
        ] {
            let error = fails(bytes, kind, 0, fault, why);
            assert!(matches!(error, StoreError::Refused { .. }), "{kind} {fault:?}: {error}");
        }
        let error = fails(bytes, kind, 0, Fault::Answer(404, "NoSuchBucket"), "NoSuchBucket");
        assert!(!error.is_temporary(), "{error}");
    }
    // The rights go in the middle of an upload.
    fails(BIG_BYTES, "part", 2, Fault::Answer(403, "AccessDenied"), "refuses access");
    fails(BIG_BYTES, "part", 0, Fault::NoEtag, "ETag");
    fails(BIG_BYTES, "part", 1, Fault::WrongEtag, "InvalidPart");
    fails(BIG_BYTES, "begin", 0, Fault::HalfBody, "in the middle of the answer");
    fails(BIG_BYTES, "begin", 0, Fault::Trickle, "no whole answer came within 500ms");
    fails(BIG_BYTES, "complete", 0, Fault::Answer(400, "InvalidPart"), "InvalidPart");
}

#[test]
fn a_request_that_fails_once_is_repeated() {
    for (bytes, kind) in [(5, "put"), (BIG_BYTES, "begin"), (BIG_BYTES, "part"), (BIG_BYTES, "complete")] {
        for fault in [Fault::Answer(500, "InternalError"), Fault::Answer(503, "SlowDown"), Fault::Silence] {
            let server = faults(kind, 0, 1, fault);
            let store = open(server.port, SHORT);
            block_on(put(&store, bytes)).unwrap_or_else(|error| panic!("{kind} {fault:?}: {error}"));
            assert_eq!(server.bytes("t/a").map(|bytes| bytes.len()), Some(bytes), "{kind} {fault:?}");
        }
    }
}

/// A request that had its effect is repeated where its answer was lost, and the repetition finds the object that it was to create.
#[test]
fn a_lost_answer_is_not_taken_for_an_object_of_others() {
    for (bytes, kind) in [(5, "put"), (BIG_BYTES, "complete")] {
        for fault in [
            Fault::AnswerAfter(500, "InternalError"),
            Fault::AnswerAfter(409, "ConditionalRequestConflict"),
            Fault::CloseAfter,
            Fault::HalfBody,
            Fault::Trickle,
        ] {
            for times in [1, ALWAYS] {
                let server = faults(kind, 0, times, fault);
                let store = open(server.port, SHORT);
                block_on(put(&store, bytes)).unwrap_or_else(|error| panic!("{kind} {fault:?}: {error}"));
                assert_eq!(server.bytes("t/a").map(|bytes| bytes.len()), Some(bytes), "{kind} {fault:?}");
                assert_nothing_stays(&server, kind);
                // Another upload with the same bytes is refused: the object exists.
                let again = block_on(put(&store, bytes));
                assert_eq!(again, Err(StoreError::Exists { key: "t/a".into() }), "{kind} {fault:?}");
            }
        }
    }
    let server = faults("complete", 0, 1, Fault::LateError);
    block_on(put(&open(server.port, SHORT), BIG_BYTES)).unwrap();
    assert_eq!(server.bytes("t/a").map(|bytes| bytes.len()), Some(BIG_BYTES));
}

#[test]
fn reads_and_listings_that_fail_say_why() {
    let names =
        |error: &StoreError, key: &str| error.key() == key && error.to_string().contains(&format!("{key:?}"));
    for (fault, why, is_temporary) in [
        (Fault::Answer(500, "InternalError"), "500", true),
        (Fault::Silence, "no whole answer", true),
        (Fault::Trickle, "no whole answer", true),
        (Fault::HalfBody, "in the middle of the answer", true),
        (Fault::Answer(403, "AccessDenied"), "refuses access", false),
        (Fault::Answer(404, "NoSuchBucket"), "NoSuchBucket", false),
        (Fault::Answer(301, "PermanentRedirect"), "region", false),
    ] {
        for kind in ["get", "list", "delete"] {
            let server = faults(kind, 0, ALWAYS, fault);
            server.put("t/a", b"some bytes");
            let store = open(server.port, SHORT);
            let (error, key) = block_on(async {
                match kind {
                    "get" => (store.read("t/a", 0, 10).await.err(), "t/a"),
                    "list" => (store.list("t/", None).await.err(), "t/"),
                    _ => (store.delete("t/a").await.err(), "t/a"),
                }
            });
            // An answer without a body has no half.
            if kind == "delete" && matches!(fault, Fault::HalfBody | Fault::Trickle) {
                continue;
            }
            let error = error.unwrap_or_else(|| panic!("{kind} {fault:?}"));
            assert!(names(&error, key) && error.to_string().contains(why), "{kind} {fault:?}: {error}");
            assert_eq!(error.is_temporary(), is_temporary, "{kind} {fault:?}: {error}");
            // Once is not always.
            if is_temporary {
                let server = faults(kind, 0, 1, fault);
                server.put("t/a", b"some bytes");
                let store = open(server.port, SHORT);
                block_on(async {
                    match kind {
                        "get" => assert_eq!(
                            store.read("t/a", 0, 10).await.as_deref(),
                            Ok(&b"some bytes"[..]),
                            "{fault:?}"
                        ),
                        "list" => assert_eq!(store.list("t/", None).await.unwrap().objects.len(), 1),
                        _ => store.delete("t/a").await.unwrap(),
                    }
                });
            }
        }
    }
}

#[test]
fn a_store_that_overwrites_is_refused() {
    let server = Scripted::start(|request| (request.kind() == "put").then_some(Fault::Overwrite));
    let store = open(server.port, SHORT);
    let error = block_on(put(&store, 5)).unwrap_err();
    assert!(matches!(error, StoreError::Unfit { .. }) && error.to_string().contains("overwrites"), "{error}");
    assert!(server.keys().is_empty(), "{:?}", server.keys());

    // Small objects are safe there.
    let server = Scripted::start(|request| (request.kind() == "complete").then_some(Fault::Overwrite));
    let store = open(server.port, SHORT);
    block_on(put(&store, 5)).unwrap();
    block_on(store.delete("t/a")).unwrap();
    let error = block_on(put(&store, BIG_BYTES)).unwrap_err();
    assert!(matches!(error, StoreError::Unfit { .. }) && error.to_string().contains("multipart"), "{error}");
    assert_nothing_stays(&server, "overwriting");
    assert!(server.keys().is_empty(), "{:?}", server.keys());

    let server = Scripted::start(|request| {
        (request.kind() == "put" && request.headers.contains_key("if-none-match"))
            .then_some(Fault::Answer(501, "NotImplemented"))
    });
    let error = block_on(put(&open(server.port, SHORT), 5)).unwrap_err();
    assert!(matches!(error, StoreError::Unfit { .. }), "{error}");
}

#[test]
fn requests_are_signed_and_conditional() {
    let server = Scripted::start(|_| None);
    let store = open(server.port, SHORT);
    block_on(put(&store, 5)).unwrap();
    block_on(store.delete("t/a")).unwrap();
    block_on(put(&store, BIG_BYTES)).unwrap();
    for kind in ["put", "complete"] {
        let all = server.received(kind);
        assert!(
            !all.is_empty() && all.iter().all(|request| request.headers["if-none-match"] == "*"),
            "{kind}"
        );
    }
    for kind in ["put", "begin", "part", "complete", "delete"] {
        for request in server.received(kind) {
            let signature = &request.headers["authorization"];
            assert!(
                signature.contains(&format!("Credential={ACCESS_KEY}/"))
                    && signature.contains("/us-east-1/s3/"),
                "{signature}"
            );
            // The payload is signed where nothing else protects it.
            assert_eq!(request.headers["x-amz-content-sha256"].len(), 64, "{kind}");
        }
    }
    let parts = server.received("part");
    let of_object: Vec<usize> =
        parts.iter().filter(|part| part.key == "t/a").map(|part| part.body.len()).collect();
    assert_eq!((of_object.len(), of_object.iter().sum::<usize>()), (3, BIG_BYTES));
}

#[test]
fn old_uploads_below_the_prefix_are_swept() {
    let server = Scripted::start(|_| None);
    let store = open(server.port, SHORT);
    block_on(async {
        let mut ours = store.create("t/a").await.unwrap();
        let mut others = store.create("ta/a").await.unwrap();
        ours.write(vec![0; BIG_BYTES].into()).await.unwrap();
        others.write(vec![0; BIG_BYTES].into()).await.unwrap();
        assert_eq!(server.open_uploads(), 2);
        let bucket = store.0.clone();
        let swept = |age| {
            let bucket = bucket.clone();
            let of = bucket.clone();
            of.spawn("t/", async move { sweep::sweep(&bucket, age).await })
        };
        // The server says that they began in 2020.
        assert_eq!(swept(Duration::from_secs(100 * 365 * 86400)).await.unwrap(), 0);
        assert_eq!(swept(sweep::ABANDONED).await.unwrap(), 1);
        assert_eq!(server.open_uploads(), 1);
        let request = &server.received("uploads")[0];
        assert_eq!(request.query["prefix"], "t/");
        drop((ours, others));
    });
    assert_nothing_stays(&server, "sweep");
}

#[test]
fn nobody_listens() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let store = open(port, SHORT);
    for error in [
        block_on(store.create("t/a")).err().unwrap(),
        block_on(store.read("t/a", 0, 1)).unwrap_err(),
        block_on(store.list("t/", None)).unwrap_err(),
    ] {
        assert!(error.is_temporary() && error.to_string().contains("no connection could be made"), "{error}");
    }
}

#[test]
fn over_tls_the_certificate_decides() {
    let (server, certificate) = Scripted::start_secure();
    let open = |trusted: Option<CertificateDer<'static>>, host: &str| {
        let mut settings = settings(server.port);
        settings.endpoint = format!("https://{host}:{}", server.port);
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted);
        BucketStore::open(settings, roots, SHORT).unwrap()
    };
    block_on(put(&open(Some(certificate.clone()), "localhost"), 5)).unwrap();
    // TLS protects the payload.
    assert!(
        server.received("put").iter().all(|put| put.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD")
    );
    for store in [open(None, "localhost"), open(Some(certificate), "127.0.0.1")] {
        let error = block_on(store.read("t/a", 0, 1)).unwrap_err();
        assert!(!error.is_temporary() && error.to_string().contains("TLS failed: "), "{error}");
    }
}

#[test]
fn hosts_and_paths_of_buckets() {
    let mut of = settings(1);
    of.endpoint = "https://s3.example".into();
    assert_eq!(super::urls(&of), ("https://s3.example".into(), "https://s3.example/nigh-backups".into()));
    of.path_style = false;
    let host = "https://nigh-backups.s3.example";
    assert_eq!(super::urls(&of), (host.into(), host.into()));
    let shown = format!("{of:?}");
    assert!(!shown.contains(ACCESS_KEY) && !shown.contains(SECRET_KEY), "{shown}");
}
