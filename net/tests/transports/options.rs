//! The options of searches: every kind of search of every family takes the same ones over every transport, and is answered with the same.
use super::{Args, Clients, Server, floats, numbers, sparse_json};
use nigh_net::tcp::reader::ArgsReader;
use serde_json::{Map, Value, json};

/// So few that every search is exact, and that every lane finds all of them.
const POINTS: u64 = 40;

/// A hit as any transport tells of it.
#[derive(Clone, Debug, PartialEq)]
struct Hit {
    id: u64,
    distance: f32,
    score: f32,
    payload: Value,
    vectors: Value,
}

/// What vectors a family has, as `found` of the binary protocol lays them out.
#[derive(Clone, Copy, PartialEq)]
enum Family {
    Dense,
    Named,
    MultiVector,
}

/// A search over each transport, without its options.
struct Search {
    family: Family,
    rest: (String, Value),
    grpc: (&'static str, Value),
    binary: (&'static str, Args),
    /// What a score is made from: the distances in this metric rank, or scores rank.
    metric: Option<&'static str>,
    /// Whether documents are answered, which have payloads unless a request says otherwise.
    documents: bool,
}

fn number(value: &Value) -> f32 {
    value.as_f64().unwrap_or(0.0) as f32
}

/// A hit over REST.
fn rest_hit(hit: &Value) -> Hit {
    let mut vectors = Map::new();
    for key in ["vector", "sparse", "vectors", "tokens"] {
        if let Some(value) = hit.get(key) {
            vectors.insert(key.into(), value.clone());
        }
    }
    Hit {
        id: hit["id"].as_u64().unwrap(),
        distance: number(&hit["distance"]),
        score: number(&hit["score"]),
        payload: hit.get("payload").or(hit.get("metadata")).cloned().unwrap_or_default(),
        vectors: Value::Object(vectors),
    }
}

fn json_floats(vector: &[f32]) -> Value {
    json!(vector.iter().map(|component| f64::from(*component)).collect::<Vec<_>>())
}

/// The vectors of a message of gRPC as REST says them. Over gRPC a point of named spaces has its sparse vectors as well.
fn grpc_vectors(message: &Value, family: Family) -> Value {
    if message.is_null() {
        return json!({});
    }
    let list = |value: &Value| if value.is_null() { vec![] } else { floats(value) };
    match family {
        Family::Dense => {
            let mut vectors = json!({"vector": json_floats(&list(&message["vector"]))});
            if !message["sparse_indices"].is_null() {
                vectors["sparse"] = json!({"indices": message["sparse_indices"],
                    "values": json_floats(&list(&message["sparse_values"]))});
            }
            vectors
        }
        Family::Named => {
            let spaces = message["vectors"].as_object().cloned().unwrap_or_default();
            let dense = spaces.into_iter().filter(|(_, vector)| vector.get("values").is_some());
            let dense: Map<_, _> =
                dense.map(|(name, vector)| (name, json_floats(&list(&vector["values"])))).collect();
            json!({ "vectors": dense })
        }
        Family::MultiVector => {
            let tokens = message["tokens"].as_array().cloned().unwrap_or_default();
            let tokens: Vec<_> = tokens.iter().map(|token| json_floats(&list(&token["values"]))).collect();
            json!({ "tokens": tokens })
        }
    }
}

fn grpc_hit(hit: &Value, family: Family) -> Hit {
    let payload = hit.get("payload_json").or(hit.get("metadata_json")).and_then(Value::as_str);
    Hit {
        id: hit["id"].as_u64().unwrap_or(0),
        distance: number(&hit["distance"]),
        score: number(&hit["score"]),
        payload: payload.map_or(Value::Null, |json| serde_json::from_str(json).unwrap()),
        vectors: grpc_vectors(&hit["hit_vectors"], family),
    }
}

/// `found` of the binary protocol; vectors that are not asked for are not there.
fn binary_found(args: &mut ArgsReader<'_>, family: Family, with_vector: bool) -> Vec<Hit> {
    (0..args.u32("n").unwrap())
        .map(|_| {
            let id = args.u64("id").unwrap();
            let (distance, score) = (args.f32("distance").unwrap(), args.f32("score").unwrap());
            let payload = match args.flag("meta").unwrap() {
                true => serde_json::from_str(args.text32("meta").unwrap()).unwrap(),
                false => Value::Null,
            };
            let mut vectors = json!({});
            match family {
                Family::Dense => {
                    vectors["vector"] = json_floats(&args.vector("vector").unwrap());
                    if args.flag("sparse").unwrap() {
                        let (mut indices, mut values) = (vec![], vec![]);
                        for _ in 0..args.u32("sparse").unwrap() {
                            indices.push(args.u32("index").unwrap());
                            values.push(args.f32("value").unwrap());
                        }
                        vectors["sparse"] = json!({"indices": indices, "values": json_floats(&values)});
                    }
                }
                Family::Named => {
                    let spaces = args.u32("n").unwrap();
                    let spaces = (0..spaces).map(|_| {
                        let name = args.text16("space").unwrap().to_owned();
                        (name, json_floats(&args.vector("vector").unwrap()))
                    });
                    vectors["vectors"] = Value::Object(spaces.collect());
                }
                Family::MultiVector => {
                    let (tokens, dim) = (args.u32("tokens").unwrap(), args.u32("dim").unwrap());
                    let token = |args: &mut ArgsReader<'_>| -> Vec<f32> {
                        (0..dim).map(|_| args.f32("component").unwrap()).collect()
                    };
                    let tokens: Vec<_> = (0..tokens).map(|_| json_floats(&token(args))).collect();
                    vectors["tokens"] = json!(tokens);
                }
            }
            Hit { id, distance, score, payload, vectors: if with_vector { vectors } else { json!({}) } }
        })
        .collect()
}

impl Search {
    /// The hits over REST with these options, or the sentence of the refusal.
    fn over_rest(&self, clients: &mut Clients, options: &Value) -> Result<Vec<Hit>, String> {
        let mut body = self.rest.1.clone();
        let keys = options.as_object().unwrap().iter();
        keys.for_each(|(key, value)| body[key] = value.clone());
        let (status, text) = clients.rest.text("POST", &self.rest.0, &body.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        if status != 200 {
            return Err(answer["error"].as_str().unwrap().to_owned());
        }
        let hits = answer.get("results").or(answer.get("documents")).unwrap();
        Ok(hits.as_array().unwrap().iter().map(rest_hit).collect())
    }

    fn over_grpc(&self, clients: &mut Clients, options: &Value) -> Result<Vec<Hit>, String> {
        let mut message = self.grpc.1.clone();
        message["options_json"] = options.to_string().into();
        let answer = clients.grpc.call(self.grpc.0, message).map_err(|(_, text)| text)?;
        let hits = answer.get("results").or(answer.get("documents"));
        let hits = hits.and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(hits.iter().map(|hit| grpc_hit(hit, self.family)).collect())
    }

    /// Over the binary protocol. The options have to ask for parts of hits.
    fn over_binary(&self, clients: &mut Clients, options: &Value) -> Result<Vec<Hit>, String> {
        let args = self.binary.1.clone().u8(b'O').s32(options.to_string().as_bytes());
        let bytes = clients.binary.ask(self.binary.0, &args)?;
        let mut args = ArgsReader::new(&bytes);
        if self.binary.0.ends_with("_query") {
            assert_eq!(args.u8("hits"), Ok(1));
        }
        let found = binary_found(&mut args, self.family, options["with_vector"] == true);
        if options["explain"] == true {
            let report: Value = serde_json::from_str(args.text32("explain").unwrap()).unwrap();
            assert!(report["lanes"].is_array(), "{report}");
        }
        assert!(args.is_empty(), "{}", self.binary.0);
        Ok(found)
    }

    /// What the search says of itself over each transport.
    fn reports(&self, clients: &mut Clients, options: &Value) -> [Value; 3] {
        let mut body = self.rest.1.clone();
        let keys = options.as_object().unwrap().iter();
        keys.for_each(|(key, value)| body[key] = value.clone());
        let rest = clients.rest.json("POST", &self.rest.0, body)["explain"].clone();
        let mut message = self.grpc.1.clone();
        message["options_json"] = options.to_string().into();
        let grpc = clients.grpc.call(self.grpc.0, message).unwrap();
        let args = self.binary.1.clone().u8(b'O').s32(options.to_string().as_bytes());
        let bytes = clients.binary.ask(self.binary.0, &args).unwrap();
        let mut args = ArgsReader::new(&bytes);
        if self.binary.0.ends_with("_query") {
            assert_eq!(args.u8("hits"), Ok(1));
        }
        binary_found(&mut args, self.family, false);
        let parsed = |text: &str| serde_json::from_str(text).unwrap();
        [rest, parsed(grpc["explain_json"].as_str().unwrap()), parsed(args.text32("explain").unwrap())]
    }

    /// What the options leave of the whole result.
    fn naive(&self, whole: &[Hit], stored: &[Value], k: usize, options: &Value) -> Vec<Hit> {
        let similarity = |hit: &Hit| match self.metric {
            Some("l2") => 1.0 / (1.0 + hit.distance),
            Some("cosine") => 1.0 - hit.distance,
            Some(metric) => panic!("{metric}"),
            None => hit.score,
        };
        let least = options["score_threshold"].as_f64();
        let most = options["distance_threshold"].as_f64();
        let shown = |hit: &Hit| {
            let point = &stored[hit.id as usize];
            let payload = match (&options["with_payload"], &point["payload"]) {
                (Value::Bool(true), payload) => payload.clone(),
                (Value::Null, payload) if self.documents => payload.clone(),
                (Value::Array(keys), Value::Object(payload)) => {
                    let mut payload = payload.clone();
                    payload.retain(|key, _| keys.contains(&json!(key)));
                    if payload.is_empty() { Value::Null } else { Value::Object(payload) }
                }
                _ => Value::Null,
            };
            let mut vectors = json!({});
            if options["with_vector"] == true {
                for key in ["vector", "sparse", "vectors", "tokens"] {
                    if let Some(value) = point.get(key) {
                        vectors[key] = value.clone();
                    }
                }
            }
            let score = if options["with_score"] == true { similarity(hit) } else { hit.score };
            Hit { score, payload, vectors, ..hit.clone() }
        };
        whole
            .iter()
            .filter(|hit| least.is_none_or(|least| similarity(hit) >= least as f32))
            .filter(|hit| most.is_none_or(|most| hit.distance <= most as f32))
            .skip(options["offset"].as_u64().unwrap_or(0) as usize)
            .take(k)
            .map(shown)
            .collect()
    }
}

/// Numbers of an answer are compared as the floats that they are.
fn rounded(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => json!(f64::from(number.as_f64().unwrap() as f32)),
        Value::Array(items) => items.iter().map(rounded).collect(),
        Value::Object(entries) => {
            Value::Object(entries.iter().map(|(key, value)| (key.clone(), rounded(value))).collect())
        }
        other => other.clone(),
    }
}

fn random_options(seed: &mut u64, has_distances: bool, whole: &[Hit]) -> Value {
    let mut options = json!({});
    let mut draws = |one_in: u64| numbers(seed).is_multiple_of(one_in);
    let middle = &whole[whole.len() / 2];
    if draws(3) {
        options["offset"] = json!(3);
    }
    if draws(3) && has_distances {
        options["distance_threshold"] = json!(middle.distance);
    }
    if draws(4) {
        options["with_score"] = json!(true);
        options["exact"] = json!(true);
    } else {
        options["ef_search"] = json!(70);
    }
    match numbers(seed) % 4 {
        0 => options["with_payload"] = json!(true),
        1 => options["with_payload"] = json!(["group", "nobody has it", "a"]),
        2 => options["with_payload"] = json!(false),
        _ => {}
    }
    if numbers(seed).is_multiple_of(2) {
        options["with_vector"] = json!(true);
    }
    if numbers(seed).is_multiple_of(3) {
        options["explain"] = json!(true);
    }
    options
}

const FUSION: [u8; 21] = [0; 21];

/// The searches of a dense collection.
fn dense(clients: &mut Clients, seed: &mut u64) -> Vec<Search> {
    let config = json!({"dim": 3, "metric": "l2", "full_text": {}});
    clients.rest.json("POST", "/v1/collections", json!({"name": "points", "config": config}));
    for id in 0..POINTS {
        let vector = [0; 3].map(|_| (numbers(seed) % 64) as f32 / 8.0 - 4.0);
        let sparse = sparse_json(&[(1, 1.0 + id as f32 / 4.0), (id as u32 + 2, 0.5)]);
        let mut point =
            json!({"id": id, "vector": vector, "metadata": {"group": id % 4 + 1, "b": [id as f64 + 0.5]}});
        if id % 3 > 0 {
            point["sparse"] = sparse;
        }
        clients.rest.json("POST", "/v1/collections/points/points", point);
    }
    let (k, query) = (POINTS as usize, [0.25f32, -1.0, 2.0]);
    let path = |route: &str| format!("/v1/collections/points/{route}");
    let sparse = [(1, 2.0), (7, 1.0)];
    let plain = |route: &str, method, operation, documents| Search {
        family: Family::Dense,
        rest: (path(route), json!({"query": query, "k": k})),
        grpc: (method, json!({"collection": "points", "query": query, "k": k})),
        binary: (operation, Args::default().u8(0).s8("points").u32(k).floats(&query)),
        metric: Some("l2"),
        documents,
    };
    let spec = json!({"prefetch": [{"dense": {"dense": query}}], "k": k});
    vec![
        plain("points/search", "Search", "vector_search", false),
        plain("points/search/docs", "SearchDocs", "vector_search_docs", true),
        Search {
            family: Family::Dense,
            rest: (
                path("points/search/hybrid"),
                json!({"dense": query, "sparse": sparse_json(&sparse), "k": k}),
            ),
            grpc: (
                "HybridSearch",
                json!({"collection": "points", "dense": query, "sparse_indices": [1, 7], "sparse_values": [2.0, 1.0], "k": k}),
            ),
            binary: (
                "vector_hybrid_search",
                Args::default().u8(2).s8("points").u32(k).bytes(&FUSION).floats(&query).sparse(&sparse),
            ),
            metric: None,
            documents: false,
        },
        query_of(clients, Family::Dense, "points", &spec, json!({"dense": query}), Some("l2")),
    ]
}

/// A query of one lane over each transport, of which REST takes the lane and the others the message.
fn query_of(
    _: &mut Clients,
    family: Family,
    name: &'static str,
    spec: &Value,
    lane: Value,
    metric: Option<&'static str>,
) -> Search {
    let (path, method, operation) = match family {
        Family::Dense => (format!("/v1/collections/{name}/query"), "VectorQuery", "vector_query"),
        Family::Named => (format!("/v1/named/{name}/query"), "NamedVectorQuery", "vector_named_query"),
        Family::MultiVector => (format!("/v1/multivector/{name}/query"), "MVVectorQuery", "vector_mv_query"),
    };
    let (request, _) = crate::common::grpc::messages_of(method);
    let message = request.fields().find(|field| field.name() == "spec").unwrap().kind();
    let bytes = crate::common::grpc::encode(message.as_message().unwrap(), spec);
    Search {
        family,
        rest: (path, json!({"prefetch": [lane], "k": spec["k"]})),
        grpc: (method, json!({"collection": name, "spec": spec})),
        // Read options, of which there are none, come before those of the search.
        binary: (operation, Args::on(name).s32(&bytes).u8(0)),
        metric,
        documents: false,
    }
}

/// The searches of a collection of named spaces.
fn named(clients: &mut Clients, seed: &mut u64) -> Vec<Search> {
    let spaces = json!({"image": {"dim": 2, "metric": "l2"}, "title": {"dim": 3, "metric": "cosine"}, "words": {"sparse": true}});
    clients.rest.json("POST", "/v1/named/named", json!({ "named_vectors": spaces }));
    for id in 0..POINTS {
        let image = [0; 2].map(|_| (numbers(seed) % 64) as f32 / 8.0 - 4.0);
        let mut vectors = json!({ "image": image });
        if id % 2 == 0 {
            vectors["title"] = json!([1.0, 0.0, 0.0]);
        }
        let words = sparse_json(&[(1, 1.0 + id as f32 / 4.0)]);
        let point = json!({"id": id, "vectors": vectors, "sparse_vectors": {"words": words},
            "metadata": {"group": id % 4 + 1, "a": true}});
        clients.rest.json("POST", "/v1/named/named/points", point);
    }
    let (k, query) = (POINTS as usize, [0.25f32, -1.0]);
    let path = |route: &str| format!("/v1/named/named/{route}");
    let plain = |route: &str, method, operation, documents| Search {
        family: Family::Named,
        rest: (path(route), json!({"vector_name": "image", "query": query, "k": k})),
        grpc: (method, json!({"name": "named", "vector_name": "image", "query": query, "k": k})),
        binary: (operation, Args::on("named").s16("image").u32(k).floats(&query).u32(0).u8(0)),
        metric: Some("l2"),
        documents,
    };
    let spec = json!({"prefetch": [{"named_dense": {"space": "image", "dense": query}}], "k": k});
    vec![
        plain("search", "NamedSearch", "vector_named_search", false),
        plain("search/docs", "NamedSearchDocs", "vector_named_search_docs", true),
        Search {
            family: Family::Named,
            rest: (
                path("sparse-search"),
                json!({"vector_name": "words", "query": sparse_json(&[(1, 1.0)]), "k": k}),
            ),
            grpc: (
                "NamedSparseSearch",
                json!({"name": "named", "vector_name": "words", "sparse_indices": [1], "sparse_values": [1.0], "k": k}),
            ),
            binary: (
                "vector_named_sparse_search",
                Args::on("named").s16("words").u32(k).sparse(&[(1, 1.0)]).u32(0).u8(0),
            ),
            metric: None,
            documents: false,
        },
        query_of(
            clients,
            Family::Named,
            "named",
            &spec,
            json!({"space": "image", "dense": query}),
            Some("l2"),
        ),
    ]
}

/// The searches of a multi-vector collection.
fn multi_vector(clients: &mut Clients, seed: &mut u64) -> Vec<Search> {
    clients.rest.json("POST", "/v1/multivector/tokens", json!({"dim": 4}));
    let mut axis = || {
        let mut token = [0.0f32; 4];
        token[(numbers(seed) % 4) as usize] = 1.0;
        token
    };
    for id in 0..POINTS {
        let tokens: Vec<_> = (0..1 + id % 3).map(|_| axis()).collect();
        let body = json!({"id": id, "tokens": tokens, "metadata": {"group": id % 4 + 1}});
        clients.rest.json("POST", "/v1/multivector/tokens/docs", body);
    }
    let k = POINTS as usize;
    let tokens = [[0.6f32, 0.8, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]];
    let messages: Vec<_> = tokens.iter().map(|token| json!({ "values": token })).collect();
    let matrix = |args: Args| tokens.iter().fold(args.u32(tokens.len()), |args, token| args.floats(token));
    let spec = json!({"prefetch": [{"mv_maxsim": {"query": messages}}], "k": k});
    vec![
        Search {
            family: Family::MultiVector,
            rest: ("/v1/multivector/tokens/search".into(), json!({"query": tokens, "k": k})),
            grpc: ("MVSearch", json!({"name": "tokens", "query": messages, "k": k})),
            binary: ("vector_mv_search", matrix(Args::on("tokens").u32(k).u32(0)).u8(0)),
            metric: None,
            documents: true,
        },
        query_of(clients, Family::MultiVector, "tokens", &spec, json!({ "maxsim": tokens }), None),
    ]
}

#[test]
fn every_search_takes_the_same_options_over_every_transport() {
    let server = Server::start();
    let mut clients = server.clients();
    let mut seed = 11;
    let mut searches = dense(&mut clients, &mut seed);
    searches.extend(named(&mut clients, &mut seed));
    searches.extend(multi_vector(&mut clients, &mut seed));
    for search in searches {
        let (family, collection) = match search.family {
            Family::Dense => ("collections", "points/points"),
            Family::Named => ("named", "named/points"),
            Family::MultiVector => ("multivector", "tokens/points"),
        };
        let mut stored =
            |id| clients.rest.json("GET", &format!("/v1/{family}/{collection}/{id}"), Value::Null);
        let stored: Vec<Value> = (0..POINTS).map(&mut stored).collect();
        let whole = search.over_rest(&mut clients, &json!({})).unwrap();
        assert!(whole.len() >= 25, "{}: {}", search.rest.0, whole.len());
        let has_distances = whole.iter().any(|hit| hit.distance != 0.0);
        for round in 0..24 {
            let mut options = random_options(&mut seed, has_distances, &whole);
            if round % 3 == 0 {
                let middle = &whole[whole.len() / 2];
                let least = match search.metric {
                    Some(_) => 1.0 / (1.0 + middle.distance),
                    None => middle.score,
                };
                options["score_threshold"] = json!(least);
            }
            let rest = search.over_rest(&mut clients, &options).unwrap();
            let grpc = search.over_grpc(&mut clients, &options).unwrap();
            let place = format!("{} {options}", search.rest.0);
            // The whole result says what is there; a hit of it, what it is without options.
            let naive = search.naive(&whole, &stored, POINTS as usize, &options);
            let told = |hits: &[Hit], with_distance: bool| -> Vec<Hit> {
                let round = |hit: &Hit| Hit {
                    distance: if with_distance { hit.distance } else { 0.0 },
                    vectors: rounded(&hit.vectors),
                    payload: rounded(&hit.payload),
                    ..hit.clone()
                };
                hits.iter().map(round).collect()
            };
            assert_eq!(told(&rest, true), told(&naive, true), "{place}");
            assert_eq!(told(&grpc, true), told(&rest, true), "{place}");
            if ["with_payload", "with_vector", "with_score", "explain"]
                .iter()
                .any(|key| !options[*key].is_null())
            {
                let binary = search.over_binary(&mut clients, &options).unwrap();
                // Hits of the binary protocol have no payload unless it is asked for, nor are documents of tokens without distances.
                assert_eq!(told(&binary, true), told(&rest, true), "{place}");
            }
        }
        for (options, fragment) in [
            (json!({"ef_search": 0}), "ef_search must be between 1 and 65536, found 0"),
            (json!({"exact": true, "ef_search": 9}), "leave one of them out"),
            (json!({"offset": -1}), "offset must not be negative"),
            (json!({"offset": 65_536}), "offset and k together must be at most"),
            (json!({"with_payload": "group"}), "true, false, or an array of payload keys"),
            (json!({"limit": 3}), "unknown field \"limit\""),
        ] {
            let refused = [
                search.over_rest(&mut clients, &options).unwrap_err(),
                search.over_grpc(&mut clients, &options).unwrap_err(),
                search.over_binary(&mut clients, &options).unwrap_err(),
            ];
            assert!(refused.iter().all(|text| text.contains(fragment)), "{}: {refused:?}", search.rest.0);
        }
        if search.metric.is_none() && !has_distances {
            let refused = search.over_rest(&mut clients, &json!({"distance_threshold": 1})).unwrap_err();
            assert!(refused.contains("distance_threshold needs a lane that ranks by distance"), "{refused}");
        }
    }
}

/// A report without its times, and without what is estimated from times that were measured.
fn timeless(report: &Value) -> Value {
    let mut report = report.clone();
    let object = |value: &mut Value, keys: &[&str]| {
        for key in keys {
            assert!(value.as_object_mut().unwrap().remove(*key).is_some(), "{key} is missing");
        }
    };
    object(&mut report, &["microseconds", "stages"]);
    for lane in report["lanes"].as_array_mut().unwrap() {
        object(lane, &["microseconds"]);
        lane.as_object_mut().unwrap().remove("estimate");
    }
    report
}

/// A search says the same of itself over every transport, if it is asked, and nothing if it is not.
#[test]
fn every_search_explains_itself_over_every_transport() {
    let server = Server::start();
    let mut clients = server.clients();
    let mut seed = 17;
    let mut searches = dense(&mut clients, &mut seed);
    searches.extend(named(&mut clients, &mut seed));
    searches.extend(multi_vector(&mut clients, &mut seed));
    for search in searches {
        for options in [json!({"explain": true}), json!({"explain": true, "exact": true, "offset": 2})] {
            let [rest, grpc, binary] = search.reports(&mut clients, &options);
            assert!(!rest["lanes"].as_array().unwrap().is_empty(), "{rest}");
            assert_eq!(timeless(&grpc), timeless(&rest), "{} {options}", search.grpc.0);
            assert_eq!(timeless(&binary), timeless(&rest), "{} {options}", search.binary.0);
        }
        let plain = clients.rest.json("POST", &search.rest.0, search.rest.1.clone());
        assert_eq!(plain.get("explain"), None);
        let plain = clients.grpc.call(search.grpc.0, search.grpc.1.clone()).unwrap();
        assert_eq!(plain.get("explain_json"), None);
    }
    // Groups are explained as well.
    let query = [0.25f32, -1.0, 2.0];
    let options = json!({"explain": true}).to_string();
    let groups = json!({"query": query, "k": 2, "group_by": "group", "explain": true});
    let rest = clients.rest.json("POST", "/v1/collections/points/points/search/groups", groups);
    let groups =
        json!({"collection": "points", "query": query, "k": 2, "group_by": "group", "options_json": options});
    let grpc = clients.grpc.call("SearchGroups", groups).unwrap();
    let report: Value = serde_json::from_str(grpc["explain_json"].as_str().unwrap()).unwrap();
    assert_eq!(timeless(&report), timeless(&rest["explain"]));
    let args = Args::on("points").u32(2).u32(0).u32(0).s16("group").floats(&query).u32(0).u8(0);
    let args = args.u8(b'O').s32(options.as_bytes());
    let bytes = clients.binary.ask("vector_search_groups", &args).unwrap();
    let mut args = ArgsReader::new(&bytes);
    assert_eq!(args.u32("n"), Ok(2));
    for _ in 0..2 {
        args.text32("key").unwrap();
        let found = args.s32("found").unwrap();
        assert_eq!(binary_found(&mut ArgsReader::new(found), Family::Dense, false).len(), 1);
    }
    let report: Value = serde_json::from_str(args.text32("explain").unwrap()).unwrap();
    assert_eq!(timeless(&report), timeless(&rest["explain"]));
    // What has nothing to search has nothing to say.
    let args = Args::on("named").s16("image").u32(0).floats(&[0.0, 0.0]).u32(0).u8(0);
    let args = args.u8(b'O').s32(options.as_bytes());
    assert_eq!(clients.binary.ask("vector_named_search", &args), Ok(vec![0; 8]));
}

/// Groups are left out by their number, and their hits have what was asked for.
#[test]
fn an_offset_counts_groups() {
    let server = Server::start();
    let mut clients = server.clients();
    let mut seed = 3;
    dense(&mut clients, &mut seed);
    let body = json!({"query": [0, 0, 0], "k": 4, "group_by": "group", "group_size": 2, "fetch_k": 40});
    let mut groups = |options: Value| {
        let mut body = body.clone();
        options.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
        let path = "/v1/collections/points/points/search/groups";
        clients.rest.json("POST", path, body)["groups"].as_array().unwrap().clone()
    };
    let whole = groups(json!({}));
    assert_eq!(whole.len(), 4);
    assert_eq!(groups(json!({"offset": 1})), whole[1..]);
    assert_eq!(groups(json!({"offset": 1, "k": 2})), whole[1..3]);
    assert_eq!(groups(json!({"offset": 4})), [] as [Value; 0]);
    let bare = groups(json!({"with_payload": false, "with_vector": true, "k": 1}));
    let hit = &bare[0]["hits"][0];
    assert!(hit["vector"].is_array() && hit.get("metadata").is_none(), "{hit}");
    let farthest = whole[1]["hits"][0]["distance"].clone();
    let near = groups(json!({"distance_threshold": farthest}));
    assert!(
        near.iter()
            .flat_map(|group| group["hits"].as_array().unwrap())
            .all(|hit| { hit["distance"].as_f64() <= farthest.as_f64() })
    );
    assert!((1..=4).contains(&near.len()));
}

/// Results of a query lie within what its lanes can find, and pages of a diverse result are chosen from the same candidates.
#[test]
fn offsets_that_cannot_be_reached_are_refused() {
    let server = Server::start();
    let mut clients = server.clients();
    let mut seed = 3;
    dense(&mut clients, &mut seed);
    let query = "/v1/collections/points/query";
    let lanes = |offset: u64, k: u64| {
        json!({"prefetch": [{"dense": [0, 0, 0]}], "k": k, "offset": offset}).to_string()
    };
    let sentence = "offset and k together must be at most 10000, found 9995 and 10";
    clients.rest.refused("POST", query, &lanes(9_995, 0), 400, sentence);
    let found = clients.rest.json("POST", query, serde_json::from_str(&lanes(9_990, 0)).unwrap());
    assert_eq!(found["results"], json!([]));

    let mmr = "/v1/collections/points/points/search/mmr";
    let body = |offset: u64, k: u64, fetch_k: u64| json!({"query": [0, 0, 0], "k": k, "lambda": 0.3, "offset": offset, "fetch_k": fetch_k});
    for fetch_k in [0, 7] {
        let text = body(5, 3, fetch_k).to_string();
        clients.rest.refused(
            "POST",
            mmr,
            &text,
            400,
            "fetch_k must be at least 8 when offset is 5 and k is 3",
        );
    }
    let mut found = |offset, k| {
        let found = clients.rest.json("POST", mmr, body(offset, k, 20));
        found["documents"].as_array().unwrap().clone()
    };
    let whole = found(0, 20);
    assert_eq!(whole.len(), 20);
    let pages: Vec<Value> = (0..20).step_by(4).flat_map(|offset| found(offset, 4)).collect();
    assert_eq!(pages, whole);
}
