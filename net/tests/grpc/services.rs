//! The services that gRPC defines for every server: health and reflection.
use super::*;
use crate::common::grpc::{POOL, encode, framed, whole};
use bytes::Bytes;
use futures_lite::future::block_on;
use protox::prost_reflect::DescriptorPool;
use serde_json::{Value, json};
use std::future::poll_fn;

fn message(name: &str, json: &Value) -> Vec<u8> {
    framed(&encode(&POOL.get_message_by_name(name).unwrap(), json))
}

fn decoded(name: &str, bytes: &[u8]) -> Value {
    crate::common::grpc::decode(&POOL.get_message_by_name(name).unwrap(), bytes)
}

const CHECK: &str = "/grpc.health.v1.Health/Check";

#[test]
fn health() {
    let server = Server::start(Arc::new(nigh_net::auth::SingleKey::new("k")), |config| {
        config.alias = Some("acme.v2".to_owned());
    });
    // As `GET /v1/ready`, it is for whoever has no key.
    let client = server.client();
    let check = |service: &str| {
        let request = message("grpc.health.v1.HealthCheckRequest", &json!({"service": service}));
        let answer = client.send(CHECK, &[], &[&request]).unwrap();
        (
            answer.code().0,
            answer
                .messages()
                .iter()
                .map(|bytes| decoded("grpc.health.v1.HealthCheckResponse", bytes))
                .collect(),
        )
    };
    for service in ["", "svc.v1.VectorService", "acme.v2.VectorService"] {
        assert_eq!(check(service), (OK, vec![json!({"status": 1})]), "{service}");
    }
    for service in ["svc.v1", "other.VectorService", "VectorService"] {
        assert_eq!(check(service), (NOT_FOUND, vec![]), "{service}");
    }
}

/// A watcher is told at once, and told again when the server stops; its stream does not hold up the stop.
#[test]
fn a_watch_ends_with_the_server() {
    let server = Server::start(Arc::new(Open), |_| {});
    let client = server.client();
    let (mut stream, answer) = client.open("/grpc.health.v1.Health/Watch", &[]).unwrap();
    stream.send_data(message("grpc.health.v1.HealthCheckRequest", &json!({})).into(), true).unwrap();
    let (head, mut body) = block_on(answer).unwrap().into_parts();
    assert_eq!(head.status, 200);
    let mut next = || block_on(poll_fn(|cx| body.poll_data(cx)));
    let status = |data: Option<Result<Bytes, h2::Error>>| {
        decoded("grpc.health.v1.HealthCheckResponse", &data.unwrap().unwrap()[5..])
    };
    assert_eq!(status(next()), json!({"status": 1}));
    let stopping = std::thread::spawn(move || server.stop());
    assert_eq!(status(next()), json!({"status": 2}));
    assert!(next().is_none());
    let trailers = block_on(body.trailers()).unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "14");
    stopping.join().unwrap();
}

/// Whoever watches needs no token, and has few watches.
#[test]
fn watches_of_a_connection_are_few() {
    let auth = Arc::new(nigh_net::auth::SingleKey::new("k"));
    let server = Server::start(auth, |config| config.second = Duration::from_millis(10));
    let client = server.client();
    let watch = |client: &GrpcClient| {
        let (mut stream, answer) = client.open("/grpc.health.v1.Health/Watch", &[]).unwrap();
        stream.send_data(message("grpc.health.v1.HealthCheckRequest", &json!({})).into(), true).unwrap();
        answer
    };
    let open: Vec<_> = (0..8).map(|_| block_on(watch(&client)).unwrap()).collect();
    let refused = block_on(whole(watch(&client))).unwrap().code();
    assert_eq!(refused, (RESOURCE_EXHAUSTED, "a connection may have at most 8 watches".to_owned()));
    // Another connection has its own, and this one has them again when they have ended.
    let other = server.client();
    assert!(!block_on(watch(&other)).unwrap().headers().contains_key("grpc-status"));
    drop(open);
    let start = std::time::Instant::now();
    while block_on(watch(&client)).unwrap().headers().contains_key("grpc-status") {
        assert!(start.elapsed() < PATIENCE);
    }
}

/// A client that knows nothing but the protocol of reflection learns the service, and can call it.
#[test]
fn reflection_tells_all() {
    let client = SHARED.client();
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let ask = |question: Value| {
            message(&format!("grpc.reflection.{version}.ServerReflectionRequest"), &question)
        };
        let questions = [
            ask(json!({"list_services": ""})),
            ask(json!({"file_containing_symbol": "svc.v1.VectorService"})),
            ask(json!({"file_by_filename": "none.proto"})),
        ];
        let pieces: Vec<&[u8]> = questions.iter().map(|question| &question[..]).collect();
        let answer = client.send(&path, &[], &pieces).unwrap();
        assert_eq!(answer.code().0, OK);
        let of =
            POOL.get_message_by_name(&format!("grpc.reflection.{version}.ServerReflectionResponse")).unwrap();
        let told: Vec<_> = answer
            .messages()
            .into_iter()
            .map(|bytes| protox::prost_reflect::DynamicMessage::decode(of.clone(), bytes).unwrap())
            .collect();
        assert_eq!(told.len(), 3);
        let text = |index: usize| format!("{:?}", told[index]);
        assert!(text(0).contains("svc.v1.VectorService") && text(0).contains("grpc.health.v1.Health"));
        assert!(text(2).contains("unknown file"), "{}", text(2));
        let mut pool = DescriptorPool::new();
        let files = told[1].get_field_by_name("file_descriptor_response").unwrap();
        let files =
            files.as_message().unwrap().get_field_by_name("file_descriptor_proto").unwrap().into_owned();
        let files = files.as_list().unwrap().iter().map(|file| {
            let bytes = file.as_bytes().unwrap().clone();
            prost::Message::decode(bytes).unwrap()
        });
        pool.add_file_descriptor_protos(files).unwrap();
        let service = pool.get_service_by_name("svc.v1.VectorService").unwrap();
        assert_eq!(service.methods().count(), 112);
        // A stream that stays open is answered as it goes.
        let (mut stream, answer) = client.open(&path, &[]).unwrap();
        stream.send_data(ask(json!({"list_services": ""})).into(), false).unwrap();
        let (_, mut body) = block_on(answer).unwrap().into_parts();
        assert!(block_on(poll_fn(|cx| body.poll_data(cx))).unwrap().is_ok());
        stream.send_data(Bytes::new(), true).unwrap();
        assert!(block_on(poll_fn(|cx| body.poll_data(cx))).is_none());
        assert_eq!(block_on(body.trailers()).unwrap().unwrap()["grpc-status"], "0");
    }
    let nothing = client.send("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", &[], &[]).unwrap();
    assert_eq!((nothing.code().0, nothing.body.len()), (OK, 0));
    let (mut stream, answer) = client.open(CHECK, &[]).unwrap();
    stream.send_reset(h2::Reason::CANCEL);
    assert!(block_on(whole(answer)).is_err(), "a call that is given up has no answer");
}
