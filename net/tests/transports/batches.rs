//! Many searches in one request: each has the answer that it has alone, over every transport, and one that is refused takes no other with it.
use super::families::{Family, asked, created, families, write_point};
use super::{Args, Clients, Server, binary_hits, hits_of, sparse_json};
use crate::common::grpc::{encode, framed, messages_of};
use nigh_net::grpc::Code;
use serde_json::{Value, json};

const POINTS: u64 = 3000;

/// A search over each transport.
struct Search {
    rest: Value,
    /// As an item of a batch.
    grpc: Value,
    binary: Args,
}

/// The searches of a family.
struct Batch {
    /// The routes of one search and of many. One search may be in another kind of space than another, which has a route of its own.
    single: fn(&Value) -> &'static str,
    many: &'static str,
    /// The methods of one search and of many, and the field that names the collection.
    methods: (&'static str, &'static str, &'static str),
    operation: &'static str,
    collection: &'static str,
    /// Whether hits of the binary protocol have scores and metadata.
    is_scored: bool,
    searches: Vec<Search>,
    /// Searches that are refused, each with a part of the refusal.
    refused: Vec<(Search, &'static str)>,
}

fn filter(n: u64) -> Value {
    json!({"op": "lt", "field": "n", "value": n})
}

fn dense(clients: &mut Clients) -> Batch {
    clients.rest.json(
        "POST",
        "/v1/collections",
        json!({"name": "points", "config": {"dim": 2, "metric": "l2"}}),
    );
    for first in (0..POINTS).step_by(500) {
        let point = |id| json!({"id": id, "vector": [id as f64, 1.0], "metadata": {"n": id}});
        let points: Vec<_> = (first..first + 500).map(point).collect();
        clients.rest.json("POST", "/v1/collections/points/points/batch", json!({ "points": points }));
    }
    let search = |query: &[f32], k: usize, most: Option<u64>| {
        let mut rest = json!({"query": query, "k": k, "exact": true});
        let mut grpc = json!({"query": query, "k": k, "options_json": r#"{"exact":true}"#});
        let mut args = Args::default().u8(most.is_some().into()).s8("points").u32(k).floats(query);
        if let Some(most) = most {
            rest["filter"] = filter(most);
            grpc["filter_json"] = filter(most).to_string().into();
            args = args.s32(filter(most).to_string().as_bytes());
        }
        Search { rest, grpc, binary: args.u8(b'O').s32(br#"{"exact":true}"#) }
    };
    Batch {
        single: |_| "/v1/collections/points/points/search",
        many: "/v1/collections/points/points/search/batch",
        methods: ("Search", "SearchBatch", "collection"),
        operation: "vector_search",
        collection: "points",
        is_scored: false,
        searches: (0..30)
            .map(|at| {
                let k = if at % 10 == 4 { POINTS as usize } else { 1 + at % 7 };
                search(&[at as f32 * 40.0, 0.5], k, (at % 3 == 1).then_some(50 * at as u64 + 9))
            })
            .collect(),
        refused: vec![
            (search(&[1.0], 1, None), "dimension mismatch"),
            (search(&[1.0, 2.0], 0, None), "k must be between 1 and 65536"),
        ],
    }
}

fn named(clients: &mut Clients) -> Batch {
    let spaces = json!({"image": {"dim": 2, "metric": "l2"}, "words": {"sparse": true}});
    clients.rest.json("POST", "/v1/named/named", json!({ "named_vectors": spaces }));
    let point = |id: u64| {
        json!({"id": id, "vectors": {"image": [id as f64, 1.0]}, "metadata": {"n": id},
            "sparse_vectors": {"words": {"indices": [id % 5], "values": [id as f64 + 1.0]}}})
    };
    let points: Vec<_> = (0..100).map(point).collect();
    clients.rest.json("POST", "/v1/named/named/points/batch", json!({ "points": points }));
    let in_image = |space: &str, query: &[f32], k: usize| Search {
        rest: json!({"vector_name": space, "query": query, "k": k}),
        grpc: json!({"vector_name": space, "query": query, "k": k}),
        binary: Args::on("named").s16(space).u32(k).floats(query).u32(0).u8(0),
    };
    Batch {
        single: |search| match search["query"].is_object() {
            true => "/v1/named/named/sparse-search",
            false => "/v1/named/named/search",
        },
        many: "/v1/named/named/search/batch",
        methods: ("NamedSearch", "NamedSearchBatch", "name"),
        operation: "vector_named_search",
        collection: "named",
        is_scored: false,
        searches: (0..20).map(|at| in_image("image", &[at as f32 * 5.0, 0.5], 1 + at % 4)).collect(),
        refused: vec![
            (in_image("image", &[1.0], 1), "dimension mismatch"),
            (in_image("sound", &[1.0], 1), "unknown vector space"),
        ],
    }
}

fn multi_vector(clients: &mut Clients) -> Batch {
    clients.rest.json("POST", "/v1/multivector/tokens", json!({"dim": 2}));
    for id in 0..30u64 {
        let angle = id as f64 / 20.0;
        let body = json!({"id": id, "tokens": [[angle.cos(), angle.sin()]], "metadata": {"n": id}});
        clients.rest.json("POST", "/v1/multivector/tokens/docs", body);
    }
    let search = |token: &[f32], k: usize| Search {
        rest: json!({"query": [token], "k": k}),
        grpc: json!({"query": [{"values": token}], "k": k}),
        binary: Args::on("tokens").u32(k).u32(0).u32(1).floats(token).u8(0),
    };
    Batch {
        single: |_| "/v1/multivector/tokens/search",
        many: "/v1/multivector/tokens/search/batch",
        methods: ("MVSearch", "MVSearchBatch", "name"),
        operation: "vector_mv_search",
        collection: "tokens",
        is_scored: true,
        searches: (0..20).map(|at| search(&[1.0, at as f32 / 10.0], 1 + at % 4)).collect(),
        refused: vec![
            (search(&[1.0], 1), "dimension mismatch"),
            (search(&[1.0, 0.0], 70_000), "k must be between"),
        ],
    }
}

#[test]
fn each_search_of_a_batch_has_the_answer_that_it_has_alone() {
    let server = Server::start();
    let mut clients = server.clients();
    for mut batch in [dense(&mut clients), named(&mut clients), multi_vector(&mut clients)] {
        // The refused ones among the others.
        let fragments: Vec<&str> = batch.refused.iter().map(|(_, fragment)| *fragment).collect();
        for (at, (search, _)) in std::mem::take(&mut batch.refused).into_iter().enumerate() {
            batch.searches.insert(3 + 9 * at, search);
        }
        let refused = |at: usize| (at == 3).then_some(0).or((at == 12).then_some(1));
        let bodies: Vec<&Value> = batch.searches.iter().map(|search| &search.rest).collect();
        let answer = clients.rest.json("POST", batch.many, json!({ "searches": bodies }));
        let answers = answer["results"].as_array().unwrap();
        assert_eq!(answers.len(), batch.searches.len());
        let mut message = json!({batch.methods.2: batch.collection, "with_errors": true});
        message["searches"] = batch.searches.iter().map(|search| search.grpc.clone()).collect();
        let (messages, ended) = clients.grpc.stream(batch.methods.1, &message);
        assert_eq!((messages.len(), ended.0), (answers.len(), Code::Ok as u32), "{}", ended.1);
        let frames: Vec<_> = batch.searches.iter().map(|search| (batch.operation, &search.binary)).collect();
        let binary = clients.binary.send(&frames);
        for (at, search) in batch.searches.iter().enumerate() {
            let place = format!("{} {at}", batch.many);
            let path = (batch.single)(&search.rest);
            let (status, text) = clients.rest.text("POST", path, &search.rest.to_string());
            let mut alone: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(messages[at]["index"].as_u64().unwrap_or(0), at as u64);
            let mut request = search.grpc.clone();
            request[batch.methods.2] = batch.collection.into();
            let called = clients.grpc.call(batch.methods.0, request);
            if let Some(which) = refused(at) {
                alone["status"] = status.into();
                assert_eq!(answers[at], alone, "{place}");
                let text = alone["error"].as_str().unwrap();
                assert!(text.contains(fragments[which]), "{text}");
                let (code, sentence) = called.unwrap_err();
                assert_eq!(messages[at]["error"], json!(sentence), "{place}");
                assert_eq!(messages[at]["code"], json!(code), "{place}");
                assert_eq!(binary[at].as_ref().unwrap_err(), text, "{place}");
                continue;
            }
            assert_eq!((status, &answers[at]), (200, &alone), "{place}");
            assert!(!answers[at]["results"].as_array().unwrap().is_empty(), "{place}");
            let results = &messages[at]["results"];
            assert_eq!(*results, called.unwrap()["results"], "{place}");
            assert_eq!(hits_of(results), hits_of(&alone["results"]), "{place}");
            let bytes = binary[at].as_ref().unwrap();
            if !batch.is_scored {
                assert_eq!(binary_hits(bytes, false, false), hits_of(results), "{place}");
            }
        }
        // Without `with_errors` the first that is refused ends the call.
        message["with_errors"] = false.into();
        let (messages, (code, text)) = clients.grpc.stream(batch.methods.1, &message);
        assert_eq!((messages.len(), code), (3, Code::InvalidArgument as u32));
        assert!(text.starts_with("searches[3]: ") && text.contains(fragments[0]), "{text}");
    }
}

/// Each search may be in a space of its own kind, and have options of its own.
#[test]
fn searches_of_a_batch_differ() {
    let server = Server::start();
    let mut clients = server.clients();
    named(&mut clients);
    let sparse = json!({"vector_name": "words", "query": sparse_json(&[(2, 1.0)]), "k": 2});
    let dense =
        json!({"vector_name": "image", "query": [3.0, 1.0], "k": 1, "with_payload": true, "explain": true});
    let body = json!({"searches": [sparse, dense, null]});
    let answer = clients.rest.json("POST", "/v1/named/named/search/batch", body);
    assert_eq!(answer["results"][0], clients.rest.json("POST", "/v1/named/named/sparse-search", sparse));
    let found = &answer["results"][1];
    assert_eq!(found["results"][0]["payload"], json!({"n": {"kind": "int", "int": 3}}));
    assert!(found["explain"]["lanes"].is_array(), "{found}");
    assert!(answer["results"][2]["error"].as_str().unwrap().contains("name of a vector space is missing"));
    let sparse = json!({"vector_name": "words", "sparse_indices": [2], "sparse_values": [1.0], "k": 2});
    let dense =
        json!({"vector_name": "image", "query": [3.0, 1.0], "k": 1, "options_json": r#"{"explain":true}"#});
    let both = json!({"vector_name": "image", "query": [3.0, 1.0], "sparse_indices": [2], "sparse_values": [1.0], "k": 2});
    let message = json!({"name": "named", "searches": [sparse, dense, both], "with_errors": true,
        "options_json": r#"{"with_payload":true}"#});
    let (messages, _) = clients.grpc.stream("NamedSearchBatch", &message);
    assert_eq!(hits_of(&messages[0]["results"]), hits_of(&answer["results"][0]["results"]));
    assert!(messages[0]["results"][0]["payload_json"].is_string() && messages[0]["explain_json"].is_null());
    assert!(messages[1]["results"][0]["payload_json"].is_null() && messages[1]["explain_json"].is_string());
    assert!(messages[2]["error"].as_str().unwrap().contains("both set"), "{}", messages[2]);
    let documents = json!({"name": "named", "searches": [sparse], "with_documents": true});
    let (messages, _) = clients.grpc.stream("NamedSearchBatch", &documents);
    let metadata = messages[0]["documents"][0]["metadata_json"].as_str().unwrap();
    assert!(metadata.contains("\"n\""), "{metadata}");
}

#[test]
fn batches_that_are_wrong_as_a_whole() {
    let server = Server::start();
    let mut clients = server.clients();
    named(&mut clients);
    let path = "/v1/named/named/search/batch";
    for (body, status, fragment) in [
        (r#"{"searches":[{"vector_name":"image"]}"#, 400, "invalid JSON body"),
        (r#"{"searches":[],"limit":1}"#, 400, "unknown field \"limit\""),
        (r#"{"searches":1}"#, 400, "searches"),
        ("[]", 400, "invalid JSON body"),
        (&format!(r#"{{"searches":[{}0]}}"#, "0,".repeat(65_536)), 413, "at most 65536 searches"),
    ] {
        clients.rest.refused("POST", path, body, status, fragment);
    }
    let stale = format!("{path}?read_consistency=4");
    clients.rest.refused("POST", &stale, r#"{"searches":[]}"#, 400, "read_consistency must be 0, 1, 2 or 3");
    assert_eq!(clients.rest.json("POST", path, json!({"searches": []})), json!({"results": []}));
    assert_eq!(clients.rest.json("POST", path, json!({})), json!({"results": []}));
    for path in ["/v1/collections/named/points/search/batch", "/v1/multivector/named/search/batch"] {
        clients.rest.refused("POST", path, r#"{"searches":[]}"#, 404, "unknown collection");
    }
    for (method, key) in [("SearchBatch", "collection"), ("MVSearchBatch", "name")] {
        let (messages, (code, text)) = clients.grpc.stream(method, &json!({key: "named"}));
        assert_eq!((messages.len(), code), (0, Code::NotFound as u32), "{text}");
    }
    let many = [&b"\x0a\x05named"[..], &[2 << 3 | 2, 0].repeat(65_537)].concat();
    for method in ["NamedSearchBatch", "MVSearchBatch"] {
        let answer =
            clients.grpc.send(&format!("/svc.v1.VectorService/{method}"), &[], &[&framed(&many)]).unwrap();
        assert_eq!(answer.code().1, "a batch may have at most 65536 searches");
    }
    // A token vector of a query has two bytes and takes some thirty in memory.
    let token = json!({"query": vec![json!({"values": []}); 1025], "k": 1});
    let message = encode(&messages_of("MVSearchBatch").0, &json!({"name": "named", "searches": [token]}));
    let answer = clients.grpc.send("/svc.v1.VectorService/MVSearchBatch", &[], &[&framed(&message)]).unwrap();
    assert_eq!(answer.code().1, "a query may have at most 1024 token vectors");
}

/// A query of lanes in a batch is answered as it is alone, groups and refusals included, beside searches.
#[test]
fn queries_stand_beside_searches() {
    for family in families(&json!({})) {
        let (_server, mut clients) = created(&family);
        for id in 0..20_u64 {
            let payload = json!({"g": id % 3});
            write_point(&mut clients, &family, id, (&json!(id), id, id), &payload).unwrap();
        }
        let (search, lanes, batch) = match family.method {
            "" => (
                json!({"query": [1, 3], "k": 2}),
                json!([{"dense": [1, 3]}, {"dense": [1, 9]}]),
                format!("{}/search/batch", family.points),
            ),
            "Named" => (
                json!({"vector_name": "image", "query": [1, 3], "k": 2}),
                json!([{"space": "image", "dense": [1, 3]}, {"space": "image", "dense": [1, 9]}]),
                format!("{}/search/batch", family.base),
            ),
            _ => (
                json!({"query": [[1, 3]], "k": 2}),
                json!([{"maxsim": [[1, 3]]}, {"maxsim": [[1, 9]]}]),
                format!("{}/search/batch", family.base),
            ),
        };
        let queries = [
            json!({"prefetch": lanes, "k": 3}),
            json!({"prefetch": lanes, "k": 3, "with_payload": true, "with_vector": true}),
            json!({"prefetch": lanes, "k": 2, "group_by": "g", "group_size": 2}),
            json!({"PREFETCH": lanes, "k": 1}),
            json!({"prefetch": [], "k": 3}),
            json!({"prefetch": lanes, "k": 3, "unknown": 1}),
        ];
        let alone: Vec<(u16, Value)> = queries
            .iter()
            .map(|query| asked(&mut clients, "POST", &format!("{}/query", family.base), query))
            .collect();
        let mut searches = queries.to_vec();
        // The word in a value makes no query.
        let mut with_word = search.clone();
        with_word["filter"] = json!({"op": "eq", "field": "g", "value": "prefetch"});
        searches.extend([search, with_word]);
        let (status, answer) = asked(&mut clients, "POST", &batch, &json!({ "searches": searches }));
        assert_eq!(status, 200, "{answer}");
        let answers = answer["results"].as_array().unwrap();
        for (answer, (status, alone)) in answers.iter().zip(&alone) {
            match status {
                200 => assert_eq!(answer, alone),
                _ => assert_eq!((&answer["error"], &answer["status"]), (&alone["error"], &json!(status))),
            }
        }
        let counts: Vec<usize> =
            answers[6..].iter().map(|found| found["results"].as_array().unwrap().len()).collect();
        assert_eq!(
            (alone.iter().filter(|(status, _)| *status == 200).count(), counts),
            (4, vec![2, 0]),
            "{answer}"
        );
    }
}

/// A family's search as gRPC takes it, the field that names the collection, and two lanes: as gRPC takes them and as REST does.
fn grpc_lanes(family: &Family) -> (Value, &'static str, Value, Value) {
    let vectors = [[1, 3], [1, 9]];
    let lanes = |lane: &dyn Fn([u64; 2]) -> Value| vectors.map(lane).into_iter().collect::<Value>();
    match family.method {
        "" => (
            json!({"query": [1, 3], "k": 2}),
            "collection",
            lanes(&|vector| json!({"dense": {"dense": vector}})),
            lanes(&|vector| json!({"dense": vector})),
        ),
        "Named" => (
            json!({"vector_name": "image", "query": [1, 3], "k": 2}),
            "name",
            lanes(&|vector| json!({"named_dense": {"space": "image", "dense": vector}})),
            lanes(&|vector| json!({"space": "image", "dense": vector})),
        ),
        _ => (
            json!({"query": [{"values": [1, 3]}], "k": 2}),
            "name",
            lanes(&|vector| json!({"mv_maxsim": {"query": [{"values": vector}]}})),
            lanes(&|vector| json!({"maxsim": [vector]})),
        ),
    }
}

/// A search of a batch of gRPC that has a spec is answered as the query of lanes is alone, beside searches, and as in a batch of REST.
#[test]
fn queries_stand_beside_searches_over_grpc() {
    for family in families(&json!({})) {
        let (_server, mut clients) = created(&family);
        for id in 0..20_u64 {
            let payload = json!({"g": id % 3});
            write_point(&mut clients, &family, id, (&json!(id), id, id), &payload).unwrap();
        }
        let (search, key, lanes, rest_lanes) = grpc_lanes(&family);
        let shown = r#"{"with_payload":true,"with_vector":true}"#;
        let inner = json!([{"spec": {"prefetch": lanes, "k": 3}}, {"leaf": lanes[1]}]);
        // It is too long to be decoded on the core.
        let (mut long, mut rest_long) = (lanes[0].clone(), rest_lanes[0].clone());
        let few = json!({"op": "lt", "field": "g", "value": 2});
        let leaf = long.as_object_mut().unwrap().values_mut().next().unwrap();
        leaf["filter_json"] = format!("{few}{}", " ".repeat(70_000)).into();
        rest_long["filter"] = few;
        // Each query as gRPC takes it and as REST does. Those in the places 7 to 9 are refused.
        let queries = [
            (json!({"spec": {"prefetch": lanes, "k": 3}}), json!({"prefetch": rest_lanes, "k": 3})),
            (
                json!({"spec": {"prefetch": lanes, "k": 3}, "options_json": shown}),
                json!({"prefetch": rest_lanes, "k": 3, "with_payload": true, "with_vector": true}),
            ),
            (
                json!({"spec": {"prefetch": lanes, "k": 2, "group_by": "g", "group_size": 2}}),
                json!({"prefetch": rest_lanes, "k": 2, "group_by": "g", "group_size": 2}),
            ),
            (
                json!({"spec": {"prefetch": lanes, "k": 9, "group_by": "g"}, "options_json": shown}),
                json!({"prefetch": rest_lanes, "k": 9, "group_by": "g", "with_payload": true, "with_vector": true}),
            ),
            (
                json!({"spec": {"prefetch_sources": inner, "k": 4}}),
                json!({"prefetch": [{"query": {"prefetch": rest_lanes, "k": 3}}, rest_lanes[1]], "k": 4}),
            ),
            (
                json!({"spec": {"prefetch": [lanes[0]], "root": lanes[1], "mode": 1, "k": 5}}),
                json!({"prefetch": [rest_lanes[0]], "root": rest_lanes[1], "mode": "rerank", "k": 5}),
            ),
            (json!({"spec": {"prefetch": lanes}}), json!({"prefetch": rest_lanes})),
            (json!({"spec": {"prefetch": []}}), json!({"prefetch": []})),
            (
                json!({"spec": {"prefetch": vec![lanes[0].clone(); 65]}}),
                json!({"prefetch": vec![rest_lanes[0].clone(); 65]}),
            ),
            (
                json!({"spec": {"prefetch": lanes, "fusion_method": "sum"}}),
                json!({"prefetch": rest_lanes, "method": "sum"}),
            ),
            (json!({"spec": {"prefetch": [long], "k": 3}}), json!({"prefetch": [rest_long], "k": 3})),
        ];
        let bodies: Vec<&Value> = queries.iter().map(|(_, rest)| rest).collect();
        let batch = if family.method.is_empty() { family.points } else { family.base };
        let body = json!({ "searches": bodies });
        let (status, rest) = asked(&mut clients, "POST", &format!("{batch}/search/batch"), &body);
        assert_eq!(status, 200, "{rest}");
        let (query, many) =
            (format!("{}VectorQuery", family.method), format!("{}SearchBatch", family.method));
        let mut alone = search.clone();
        alone[key] = "c".into();
        let found = clients.grpc.call(&format!("{}Search", family.method), alone).unwrap();
        // A search before each query, so that more are carried out than there is room for at a time.
        let searches: Vec<Value> =
            queries.iter().flat_map(|(query, _)| [search.clone(), query.clone()]).collect();
        let mut message = json!({key: "c", "searches": searches, "with_errors": true});
        let (messages, ended) = clients.grpc.stream(&many, &message);
        assert_eq!((messages.len(), ended.0), (searches.len(), Code::Ok as u32), "{}", ended.1);
        let results = if family.method == "MV" { "query_results" } else { "results" };
        let mut refused = Vec::new();
        for (at, ((request, _), rest)) in queries.iter().zip(rest["results"].as_array().unwrap()).enumerate()
        {
            let place = format!("{many} {at}");
            assert_eq!(messages[2 * at]["results"], found["results"], "{place}");
            let answer = &messages[2 * at + 1];
            assert_eq!(answer["index"], json!(2 * at + 1), "{place}");
            let mut request = request.clone();
            request["collection"] = "c".into();
            match clients.grpc.call(&query, request) {
                Ok(alone) => {
                    assert_eq!(answer[results], alone["results"], "{place}");
                    assert_eq!(answer["groups"], alone["groups"], "{place}");
                    assert_eq!(answer["incomplete"], alone["incomplete"], "{place}");
                    assert_eq!(hits_of(&answer[results]), hits_of(&rest["results"]), "{place}");
                    let groups = |value: &Value| value["groups"].as_array().cloned().unwrap_or_default();
                    let (over_grpc, over_rest) = (groups(answer), groups(rest));
                    assert_eq!(over_grpc.len(), over_rest.len(), "{place}");
                    for (group, same) in over_grpc.iter().zip(&over_rest) {
                        let key: Value = serde_json::from_str(group["key_json"].as_str().unwrap()).unwrap();
                        assert_eq!(key, same["key"], "{place}");
                        assert_eq!(hits_of(&group["hits"]), hits_of(&same["hits"]), "{place}");
                    }
                    assert!(answer[results].is_array() != answer["groups"].is_array(), "{place}: {answer}");
                    assert!(answer["error"].is_null() && rest["error"].is_null(), "{place}: {answer} {rest}");
                }
                Err((code, sentence)) => {
                    assert_eq!(
                        (&answer["code"], &answer["error"]),
                        (&json!(code), &json!(sentence)),
                        "{place}"
                    );
                    // Which of too many lanes is the first that is refused depends on the format.
                    assert!(rest["error"] == sentence || at == 8, "{place}: {rest} is not {sentence}");
                    refused.push(at);
                }
            }
        }
        assert_eq!(refused, [7, 8, 9], "{many}");
        // Documents are for searches alone.
        if family.method != "MV" {
            message["with_documents"] = true.into();
            let (documents, _) = clients.grpc.stream(&many, &message);
            assert!(documents[0]["documents"].is_array(), "{}", documents[0]);
            for at in (1..searches.len()).step_by(2) {
                assert_eq!(documents[at], messages[at], "{many} {at}");
            }
        }
        // Without `with_errors` the first that is refused ends the call.
        message["with_errors"] = false.into();
        let (messages, (code, text)) = clients.grpc.stream(&many, &message);
        assert_eq!((messages.len(), code), (15, Code::InvalidArgument as u32));
        assert_eq!(text, "searches[15]: prefetch must hold at least one lane");
    }
}

/// A spec beside fields of a search is refused with their names; the options of the batch are those of a query without its own.
#[test]
fn queries_over_grpc_have_their_spec_alone() {
    for family in families(&json!({})) {
        let (_server, mut clients) = created(&family);
        write_point(&mut clients, &family, 2, (&json!(7), 7, 7), &json!({"g": 1})).unwrap();
        let (search, key, lanes, _) = grpc_lanes(&family);
        let spec = json!({"prefetch": lanes, "k": 1});
        let mut both = search.clone();
        both["spec"] = spec.clone();
        let (mut filtered, all) = match family.method {
            "" => (json!({}), "query, k"),
            "Named" => (json!({"sparse_indices": [1], "sparse_values": [1.0]}), "vector_name, query, k"),
            _ => (json!({"candidates_per_token": 3}), "query, k"),
        };
        let own = match family.method {
            "" => "filter_json",
            "Named" => "sparse_indices, sparse_values, filter_json",
            _ => "candidates_per_token, filter_json",
        };
        filtered["spec"] = spec.clone();
        filtered["filter_json"] = filter(3).to_string().into();
        let plain = json!({"spec": spec, "options_json": "{}"});
        let searches = json!([both, filtered, {"spec": spec}, plain, {"spec": {}}, search]);
        let message = json!({key: "c", "searches": searches, "with_errors": true,
            "options_json": r#"{"with_payload":true,"explain":true}"#});
        let (messages, ended) = clients.grpc.stream(&format!("{}SearchBatch", family.method), &message);
        assert_eq!((messages.len(), ended.0), (6, Code::Ok as u32), "{}", ended.1);
        for (at, names) in [(0, all), (1, own)] {
            let text = format!(
                "spec is set beside {names}; a query of lanes takes only options_json beside its spec"
            );
            assert_eq!(messages[at]["error"], json!(text));
            assert_eq!(messages[at]["code"], json!(Code::InvalidArgument as u32));
        }
        let results = if family.method == "MV" { "query_results" } else { "results" };
        let hit = |at: usize| &messages[at][results][0];
        assert!(
            hit(2)["payload_json"].is_string() && messages[2]["explain_json"].is_string(),
            "{}",
            messages[2]
        );
        assert!(hit(3)["payload_json"].is_null() && messages[3]["explain_json"].is_null(), "{}", messages[3]);
        assert_eq!((&hit(2)["id"], &hit(3)["id"]), (&json!(7), &json!(7)));
        assert_eq!(messages[4]["error"], json!("prefetch must hold at least one lane"));
        assert!(messages[5]["results"].is_array(), "{}", messages[5]);
    }
}
