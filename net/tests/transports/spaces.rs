//! Spaces are added and dropped over every transport, each seeing what the others did, and refused in the same words.
use super::{Args, Clients, Server, hits_of};
use nigh_net::tcp::reader::ArgsReader;
use serde_json::{Value, json};

const TRANSPORTS: [usize; 3] = [0, 1, 2];

/// What a refusal is over each transport: the status of REST or the code of gRPC, and 0 over the binary protocol.
type Refusal = Result<(), (u32, String)>;

/// Collection, space, configuration (none = drop), status of REST, code of gRPC, words.
type Case<'a> = (&'a str, &'a str, Option<&'a str>, u32, u32, &'a str);

fn add(clients: &mut Clients, collection: &str, space: &str, config: &str, transport: usize) -> Refusal {
    match transport {
        0 => {
            let body = format!("{{\"name\":{},\"config\":{config}}}", json!(space));
            match clients.rest.text("POST", &format!("/v1/named/{collection}/spaces"), &body) {
                (201, text) => {
                    assert_eq!(text, format!("{}\n", json!({ "name": space })));
                    Ok(())
                }
                (status, text) => Err((status.into(), text.replace("\\\"", "\""))),
            }
        }
        1 => {
            let args = Args::on(collection).s16(space).s32(config.as_bytes());
            let done = clients.binary.ask("vector_named_add_space", &args);
            done.map(|result| assert!(result.is_empty())).map_err(|text| (0, text))
        }
        _ => {
            let request = json!({"name": collection, "space": space, "config_json": config});
            let done = clients.grpc.call("NamedAddSpace", request);
            done.map(|answer| assert_eq!(answer, json!({ "space": space })))
        }
    }
}

fn drop_space(clients: &mut Clients, collection: &str, space: &str, transport: usize) -> Refusal {
    match transport {
        0 => match clients.rest.text("DELETE", &format!("/v1/named/{collection}/spaces/{space}"), "") {
            (200, text) => {
                assert_eq!(text, format!("{}\n", json!({ "dropped": space })));
                Ok(())
            }
            (status, text) => Err((status.into(), text.replace("\\\"", "\""))),
        },
        1 => {
            let done = clients.binary.ask("vector_named_drop_space", &Args::on(collection).s16(space));
            done.map(|result| assert!(result.is_empty())).map_err(|text| (0, text))
        }
        _ => {
            let done = clients.grpc.call("NamedDropSpace", json!({"name": collection, "space": space}));
            done.map(|answer| assert_eq!(answer, json!({ "space": space })))
        }
    }
}

/// The names of the spaces, which every transport tells.
fn names(clients: &mut Clients, collection: &str) -> Vec<String> {
    let rest = clients.rest.json("GET", &format!("/v1/named/{collection}/config"), Value::Null);
    let binary = clients.binary.ask("vector_named_get_config", &Args::on(collection)).unwrap();
    let binary: Value = serde_json::from_str(ArgsReader::new(&binary).text32("spaces").unwrap()).unwrap();
    let grpc = clients.grpc.call("NamedGetConfig", json!({ "name": collection })).unwrap();
    let grpc: Value = serde_json::from_str(grpc["config_json"].as_str().unwrap()).unwrap();
    assert_eq!((&binary, &grpc), (&rest["named_vectors"], &rest["named_vectors"]));
    let listed = clients.rest.json("GET", "/v1/collections", Value::Null);
    let listed =
        listed["collections"].as_array().unwrap().iter().find(|one| one["name"] == collection).cloned();
    let names: Vec<String> = rest["named_vectors"].as_object().unwrap().keys().cloned().collect();
    let listed: Vec<String> = listed.unwrap()["named_vectors"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(listed, names);
    let told = clients.rest.json("GET", &format!("/v1/named/{collection}"), Value::Null);
    assert_eq!(told["named_vectors"], rest["named_vectors"]);
    let indexes: Vec<&String> = told["spaces"].as_object().unwrap().keys().collect();
    assert!(indexes.iter().all(|name| names.contains(name)), "{indexes:?} of {names:?}");
    let told = clients.grpc.call("NamedGetInfo", json!({ "name": collection })).unwrap();
    let told: Vec<&str> =
        told["indexes"].as_array().unwrap().iter().map(|index| index["space"].as_str().unwrap()).collect();
    assert_eq!(told, indexes);
    names
}

/// The ids that are nearest in a space, over every transport, or the refusal.
fn search(clients: &mut Clients, collection: &str, space: &str, query: &[f32]) -> Result<Vec<u64>, String> {
    let ids = |hits: Vec<super::Hit>| hits.into_iter().map(|(id, ..)| id).collect::<Vec<u64>>();
    let body = json!({"vector_name": space, "query": query, "k": 10});
    let (status, text) =
        clients.rest.text("POST", &format!("/v1/named/{collection}/search"), &body.to_string());
    let args = Args::on(collection).s16(space).u32(10).floats(query).s32(b"");
    let binary = clients.binary.ask("vector_named_search", &args);
    let request = json!({"name": collection, "vector_name": space, "query": query, "k": 10});
    let grpc = clients.grpc.call("NamedSearch", request);
    if status != 200 {
        assert_eq!(status, 400, "{text}");
        let told: Value = serde_json::from_str(&text).unwrap();
        let told = told["error"].as_str().unwrap().to_owned();
        assert_eq!((binary.unwrap_err(), grpc.unwrap_err()), (told.clone(), (3, told.clone())));
        return Err(told);
    }
    let rest: Value = serde_json::from_str(&text).unwrap();
    let rest = ids(hits_of(&rest["results"]));
    let binary = ids(super::binary_hits(&binary.unwrap(), false, false));
    assert_eq!((&binary, &ids(hits_of(&grpc.unwrap()["results"]))), (&rest, &rest));
    Ok(rest)
}

#[test]
fn spaces_come_and_go_over_every_transport() {
    let server = Server::start();
    let mut clients = server.clients();
    let base = "/v1/named/live";
    let spaces = r#"{"named_vectors": {"image": {"dim": 2, "metric": "l2"}, "words": {"sparse": true}}}"#;
    clients.rest.golden("POST", base, spaces, 201, r#"{"name":"live"}"#);
    for id in 1..=3 {
        let point = json!({"id": id, "vectors": {"image": [id, 0]}, "metadata": {"n": id}});
        clients.rest.json("POST", &format!("{base}/points"), point);
    }
    for turn in 0..3 {
        for transport in TRANSPORTS {
            let dim = 2 + transport + turn;
            let query = vec![1.0; dim];
            assert_eq!(names(&mut clients, "live"), ["image", "words"]);
            let refused = search(&mut clients, "live", "sound", &query).unwrap_err();
            assert!(
                refused.contains("unknown vector space \"sound\"; the collection has image, words"),
                "{refused}"
            );
            let config =
                json!({"dim": dim, "metric": 1, "index_type": if turn == 1 { "ivf" } else { "hnsw" }});
            add(&mut clients, "live", "sound", &config.to_string(), transport).unwrap();
            assert_eq!(names(&mut clients, "live"), ["image", "sound", "words"]);
            assert_eq!(search(&mut clients, "live", "sound", &query), Ok(vec![]), "nothing is in it yet");
            // One point gets a vector beside what it has, another one is written anew, a third has nothing but this vector.
            let vectors = json!({"vectors": {"sound": query}});
            clients.rest.json("POST", &format!("{base}/points/1/vectors"), vectors);
            let far = vec![3.0; dim];
            clients.rest.json("POST", &format!("{base}/points"), json!({"id": 2, "vectors": {"sound": far}}));
            let farther = vec![4.0; dim];
            let alone = json!({"id": 9, "vectors": {"sound": farther}});
            clients.rest.json("POST", &format!("{base}/points"), alone);
            assert_eq!(search(&mut clients, "live", "sound", &query), Ok(vec![1, 2, 9]));
            drop_space(&mut clients, "live", "sound", transport).unwrap();
            // The points stay, one of them without any vector.
            assert_eq!(search(&mut clients, "live", "image", &[0.0, 0.0]), Ok(vec![1, 2, 3]));
            let found = clients.rest.json("GET", &format!("{base}/points/1"), Value::Null);
            assert_eq!(found["vectors"], json!({"image": [1.0, 0.0]}));
            let found = clients.rest.json("GET", &format!("{base}/points/9"), Value::Null);
            assert_eq!((&found["found"], &found["vectors"]), (&json!(true), &json!({})), "{found}");
            clients.rest.golden("POST", &format!("{base}/count"), "{}", 200, r#"{"count":4}"#);
            let write = json!({"id": 1, "vectors": {"sound": query}}).to_string();
            clients.rest.refused("POST", &format!("{base}/points"), &write, 400, "unknown vector space");
        }
    }
}

/// The ids that score best in a sparse space, over every transport, or the refusal.
fn sparse_search(clients: &mut Clients, space: &str, index: u32) -> Result<Vec<u64>, String> {
    let ids = |hits: Vec<super::Hit>| hits.into_iter().map(|(id, ..)| id).collect::<Vec<u64>>();
    let query = json!({"indices": [index], "values": [1.0]});
    let body = json!({"vector_name": space, "query": query, "k": 10});
    let (status, text) = clients.rest.text("POST", "/v1/named/live/sparse-search", &body.to_string());
    let args =
        Args::on("live").s16(space).u32(10).u32(1).u32(index as usize).bytes(&1_f32.to_be_bytes()).s32(b"");
    let binary = clients.binary.ask("vector_named_sparse_search", &args);
    let request = json!({"name": "live", "vector_name": space, "sparse_indices": [index], "sparse_values": [1.0], "k": 10});
    let grpc = clients.grpc.call("NamedSparseSearch", request);
    let told: Value = serde_json::from_str(&text).unwrap();
    if status != 200 {
        assert_eq!(status, 400, "{text}");
        let told = told["error"].as_str().unwrap().to_owned();
        assert_eq!((binary.unwrap_err(), grpc.unwrap_err()), (told.clone(), (3, told.clone())));
        return Err(told);
    }
    let rest = ids(hits_of(&told["results"]));
    let binary = ids(super::binary_hits(&binary.unwrap(), true, false));
    assert_eq!((&binary, &ids(hits_of(&grpc.unwrap()["results"]))), (&rest, &rest));
    Ok(rest)
}

#[test]
fn sparse_spaces_come_and_go_over_every_transport() {
    let server = Server::start();
    let mut clients = server.clients();
    let base = "/v1/named/live";
    let spaces = r#"{"named_vectors": {"image": {"dim": 2, "metric": "l2"}, "words": {"sparse": true}}}"#;
    clients.rest.golden("POST", base, spaces, 201, r#"{"name":"live"}"#);
    let sparse = |index: u32, value: f32| json!({"indices": [index], "values": [value]});
    for id in 1..=3 {
        let vectors = json!({"image": [id, 0]});
        let words = json!({"words": sparse(4, id as f32)});
        let point = json!({"id": id, "vectors": vectors, "sparse_vectors": words});
        clients.rest.json("POST", &format!("{base}/points"), point);
    }
    let stored = |clients: &mut Clients| {
        let get = json!({"collection": "live", "id": 1, "with_vector": true});
        clients.grpc.call("NamedGet", get).unwrap().to_string()
    };
    for transport in TRANSPORTS {
        let refused = sparse_search(&mut clients, "tags", 4).unwrap_err();
        let words = "unknown vector space \"tags\"; the collection has image, words";
        assert!(refused.contains(words), "{refused}");
        add(&mut clients, "live", "tags", r#"{"sparse":true}"#, transport).unwrap();
        assert_eq!(names(&mut clients, "live"), ["image", "words", "tags"]);
        assert_eq!(sparse_search(&mut clients, "tags", 4), Ok(vec![]), "nothing is in it yet");
        // One point gets a vector beside what it has, another one is written anew, a third has nothing but this vector.
        let change = json!({"sparse_vectors": {"tags": sparse(4, 9.0)}});
        clients.rest.json("POST", &format!("{base}/points/1/vectors"), change);
        for (id, value) in [(2, 8.0), (9, 7.0)] {
            let point = json!({"id": id, "sparse_vectors": {"tags": sparse(4, value)}});
            clients.rest.json("POST", &format!("{base}/points"), point);
        }
        assert_eq!(sparse_search(&mut clients, "tags", 4), Ok(vec![1, 2, 9]));
        assert!(stored(&mut clients).contains("\"tags\""));
        drop_space(&mut clients, "live", "tags", transport).unwrap();
        assert_eq!(names(&mut clients, "live"), ["image", "words"]);
        assert_eq!(
            sparse_search(&mut clients, "words", 4),
            Ok(vec![3, 2, 1]),
            "the other space has its vectors"
        );
        let found = stored(&mut clients);
        assert!(!found.contains("\"tags\"") && found.contains("\"words\""), "{found}");
        clients.rest.golden("POST", &format!("{base}/count"), "{}", 200, r#"{"count":4}"#);
        let write = json!({"id": 1, "sparse_vectors": {"tags": sparse(4, 1.0)}}).to_string();
        clients.rest.refused("POST", &format!("{base}/points"), &write, 400, "unknown vector space");
        // A space of the same name is another one, and a dense one may have the name.
        add(&mut clients, "live", "tags", r#"{"sparse":true}"#, transport).unwrap();
        assert_eq!(
            sparse_search(&mut clients, "tags", 4),
            Ok(vec![]),
            "what rows had of the dropped space is gone"
        );
        drop_space(&mut clients, "live", "tags", transport).unwrap();
        add(&mut clients, "live", "tags", r#"{"dim":2}"#, transport).unwrap();
        assert_eq!(search(&mut clients, "live", "tags", &[1.0, 0.0]), Ok(vec![]));
        drop_space(&mut clients, "live", "tags", transport).unwrap();
    }
}

#[test]
fn changes_of_spaces_are_refused_in_the_same_words() {
    let server = Server::start();
    let mut clients = server.clients();
    let spaces = r#"{"named_vectors": {"image": {"dim": 2, "metric": "l2"}, "words": {"sparse": true}}}"#;
    clients.rest.golden("POST", "/v1/named/live", spaces, 201, r#"{"name":"live"}"#);
    let one = r#"{"named_vectors": {"only": {"dim": 2}}}"#;
    clients.rest.golden("POST", "/v1/named/one", one, 201, r#"{"name":"one"}"#);
    let bare = r#"{"named_vectors": {"tags": {"sparse": true}}}"#;
    clients.rest.golden("POST", "/v1/named/bare", bare, 201, r#"{"name":"bare"}"#);
    clients.rest.create("dense", 2, "l2");
    clients.rest.golden("POST", "/v1/multivector/tokens", r#"{"dim": 2}"#, 201, r#"{"name":"tokens"}"#);
    clients.rest.json("POST", "/v1/aliases", json!({"alias": "other", "collection": "live"}));
    let (dim, long) = (r#"{"dim":2}"#, "x".repeat(256));
    let cases: &[Case<'_>] = &[
        ("live", "image", Some(dim), 409, 6, "the vector space \"image\" already exists"),
        ("live", "words", Some(dim), 409, 6, "the vector space \"words\" already exists"),
        ("live", "", Some(dim), 400, 3, "the name of a space is empty"),
        ("live", "a#b", Some(dim), 400, 3, "the name of space \"a#b\" holds '#', which is reserved"),
        ("live", &long, Some(dim), 400, 3, "the name of a space has 256 bytes; up to 255 are allowed"),
        ("live", "new", Some("{}"), 400, 3, "space \"new\": invalid Dim"),
        ("live", "new", Some(r#"{"dim":2,"m":129}"#), 400, 3, "space \"new\": invalid M"),
        (
            "live",
            "new",
            Some(r#"{"dim":2,"index_type":"gpu"}"#),
            400,
            3,
            "index_type gpu is for dense collections alone",
        ),
        ("live", "new", Some(r#"{"dim":2,"persistent":true}"#), 400, 3, "unknown field \"persistent\""),
        ("live", "words", Some(r#"{"sparse":true}"#), 409, 6, "the vector space \"words\" already exists"),
        ("live", "image", Some(r#"{"sparse":true}"#), 409, 6, "the vector space \"image\" already exists"),
        (
            "live",
            "a/b",
            Some(r#"{"sparse":true}"#),
            400,
            3,
            "the name of space \"a/b\" holds '/', which is reserved",
        ),
        ("live", "", Some(r#"{"sparse":true}"#), 400, 3, "the name of a space is empty"),
        ("live", "new", Some(r#"{"sparse":7.5}"#), 400, 3, "sparse"),
        ("nowhere", "new", Some(r#"{"sparse":true}"#), 404, 5, "unknown collection"),
        ("nowhere", "new", Some(dim), 404, 5, "unknown collection"),
        ("dense", "new", Some(dim), 404, 5, "unknown collection"),
        ("tokens", "new", Some(dim), 404, 5, "unknown collection"),
        ("other", "new", Some(dim), 404, 5, "unknown collection"),
        ("live", "nope", None, 404, 5, "the vector space \"nope\" does not exist"),
        ("bare", "tags", None, 409, 9, "the vector space \"tags\" is the only one of its collection"),
        ("one", "only", None, 409, 9, "the vector space \"only\" is the only one of its collection"),
        ("nowhere", "image", None, 404, 5, "unknown collection"),
        ("dense", "image", None, 404, 5, "unknown collection"),
        ("tokens", "image", None, 404, 5, "unknown collection"),
        ("other", "image", None, 404, 5, "unknown collection"),
    ];
    for (collection, space, config, status, code, words) in cases {
        for transport in TRANSPORTS {
            let refused = match config {
                Some(config) => add(&mut clients, collection, space, config, transport),
                None => drop_space(&mut clients, collection, space, transport),
            };
            let (found, text) = refused.unwrap_err();
            let expected = [*status, 0, *code][transport];
            assert_eq!(found, expected, "{transport} {collection} {space}: {text}");
            assert!(text.contains(words), "{transport} {collection} {space}: {text} lacks {words}");
        }
    }
    assert_eq!(names(&mut clients, "live"), ["image", "words"]);
    for (body, fragment) in [
        ("{}", "the name of a space is empty"),
        (r#"{"name": "a", "dim": 2}"#, "unknown field \\\"dim\\\""),
        (r#"{"name": "a", "config": 7}"#, "config"),
        ("", "invalid JSON body"),
    ] {
        let (status, text) = clients.rest.text("POST", "/v1/named/live/spaces", body);
        assert!(status == 400 && text.contains(fragment), "{body}: {status} {text}");
    }
    // Numbers are given once: image, words, and 62 more.
    for turn in 0..62 {
        let config = if turn % 2 == 0 { dim } else { r#"{"sparse":true}"# };
        add(&mut clients, "live", "next", config, turn % 3).unwrap();
        drop_space(&mut clients, "live", "next", turn % 3).unwrap();
    }
    for (transport, config) in TRANSPORTS.into_iter().flat_map(|at| [(at, dim), (at, r#"{"sparse":true}"#)]) {
        let (found, text) = add(&mut clients, "live", "next", config, transport).unwrap_err();
        assert_eq!(found, [409, 0, 9][transport], "{text}");
        assert!(text.contains("at most 64 in its lifetime"), "{text}");
    }
    assert_eq!(names(&mut clients, "live"), ["image", "words"]);
}
