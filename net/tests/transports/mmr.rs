//! Diverse results (MMR) of a named space are the same over every transport, and those of a dense collection with the same vectors.
use super::{Args, Clients, Server, binary_hits, hits_of, numbers};
use serde_json::{Value, json};

const SPACES: &str = r#"{"a":{"dim":3,"metric":"l2"},"b":{"dim":2},"words":{"sparse":true}}"#;

/// Checks that a search for diverse results is refused over REST and gRPC.
fn refused(clients: &mut Clients, body: &Value, fragment: &str) {
    clients.rest.refused("POST", "/v1/named/diverse/search/mmr", &body.to_string(), 400, fragment);
    let mut message = body.clone();
    message["name"] = "diverse".into();
    clients.grpc.refused("NamedSearchMmr", message, 3, fragment);
}

#[test]
fn diverse_results_of_a_named_space() {
    let server = Server::start();
    let mut clients = server.clients();
    clients
        .binary
        .ask("vector_named_create_collection", &Args::on("diverse").s32(SPACES.as_bytes()))
        .unwrap();
    clients.rest.create("twin", 3, "l2");
    let mut seed = 21;
    for id in 0..200 {
        let vector = [0; 3].map(|_| (numbers(&mut seed) % 64) as f32);
        let metadata = json!({"n": id % 4});
        let point = json!({"id": id, "vectors": {"a": vector, "b": [1, 0]}, "metadata": metadata});
        clients.rest.json("POST", "/v1/named/diverse/points", point);
        let point = json!({"id": id, "vector": vector, "metadata": metadata});
        clients.rest.json("POST", "/v1/collections/twin/points", point);
    }
    // A point without a vector in the space is none of its results.
    clients.rest.json("POST", "/v1/named/diverse/points", json!({"id": 900, "vectors": {"b": [0, 1]}}));
    for (lambda, fetch_k) in [(1.0, 0), (0.5, 0), (0.3, 40), (0.01, 100)] {
        for filter in [Value::Null, json!({"op": "lt", "field": "n", "value": 2})] {
            let query = [0; 3].map(|_| (numbers(&mut seed) % 64) as f32 + 0.5);
            let filter_json = if filter.is_null() { String::new() } else { filter.to_string() };
            let mut body =
                json!({"query": query, "k": 9, "lambda": lambda, "fetch_k": fetch_k, "filter": filter});
            let twin = clients.rest.json("POST", "/v1/collections/twin/points/search/mmr", body.clone());
            let expected = hits_of(&twin["documents"]);
            assert_eq!(expected.len(), 9);
            body["vector_name"] = "a".into();
            let rest = clients.rest.json("POST", "/v1/named/diverse/search/mmr", body);
            assert_eq!(hits_of(&rest["documents"]), expected);
            let request = json!({"name": "diverse", "vector_name": "a", "query": query, "k": 9, "lambda": lambda,
                "fetch_k": fetch_k, "filter_json": filter_json});
            let call = clients.grpc.call("NamedSearchMmr", request).unwrap();
            assert_eq!(hits_of(&call["documents"]), expected);
            let args = Args::on("diverse").s16("a").u32(9).bytes(&f64::to_be_bytes(lambda)).u32(fetch_k);
            let args = args.floats(&query).s32(filter_json.as_bytes());
            let bytes = clients.binary.ask("vector_named_search_mmr", &args).unwrap();
            assert_eq!(binary_hits(&bytes, true, true), expected);
        }
    }
    // A lambda that is not sent is one half.
    let body = json!({"vector_name": "a", "query": [1, 2, 3], "k": 5});
    let rest = clients.rest.json("POST", "/v1/named/diverse/search/mmr", body.clone());
    let mut half = body.clone();
    half["lambda"] = 0.5.into();
    assert_eq!(rest, clients.rest.json("POST", "/v1/named/diverse/search/mmr", half));
    let mut message = body;
    message["name"] = "diverse".into();
    assert_eq!(
        hits_of(&clients.grpc.call("NamedSearchMmr", message).unwrap()["documents"]),
        hits_of(&rest["documents"])
    );
    let args = Args::on("diverse").s16("a").u32(5).u64(0).u32(0).floats(&[1.0, 2.0, 3.0]).s32(b"");
    let bytes = clients.binary.ask("vector_named_search_mmr", &args).unwrap();
    assert_eq!(binary_hits(&bytes, true, true), hits_of(&rest["documents"]));

    let body = |space: &str, more: Value| {
        let mut body = json!({"vector_name": space, "query": [1, 2, 3], "k": 5});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (body, fragment) in [
        (body("c", json!({})), "unknown vector space \"c\""),
        (body("b", json!({})), "expected 2 components, found 3"),
        (body("words", json!({})), "the vector space \"words\" is sparse"),
        (body("a", json!({"k": 0})), "k must be between 1 and 1000, found 0"),
        (body("a", json!({"k": 1001})), "k must be between 1 and 1000, found 1001"),
        (body("a", json!({"lambda": 1.5})), "lambda must be above 0 and at most 1, found 1.5"),
        (body("a", json!({"lambda": 0.0})), "lambda must be above 0 and at most 1, found 0"),
        (body("a", json!({"fetch_k": 100_000})), "fetch_k must be at most"),
    ] {
        refused(&mut clients, &body, fragment);
    }
    for (args, fragment) in [
        (
            Args::on("diverse").s16("c").u32(5).u64(0).u32(0).floats(&[1.0]).s32(b""),
            "unknown vector space \"c\"",
        ),
        (
            Args::on("diverse").s16("a").u32(0).u64(0).u32(0).floats(&[1.0]).s32(b""),
            "k must be between 1 and 1000",
        ),
        (
            Args::on("diverse").s16("a").u32(5).bytes(&f64::NAN.to_be_bytes()).u32(0).floats(&[1.0]).s32(b""),
            "lambda must be above 0",
        ),
        (Args::on("diverse").s16("a").u32(5).u64(0), "args too short: fetchK"),
        (Args::on("twin").s16("a").u32(5).u64(0).u32(0).floats(&[1.0]).s32(b""), "unknown collection"),
    ] {
        let refused = clients.binary.ask("vector_named_search_mmr", &args).unwrap_err();
        assert!(refused.contains(fragment), "{refused} lacks {fragment}");
    }
}
