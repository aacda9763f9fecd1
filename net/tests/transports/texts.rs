//! Full text in collections of named spaces and in multi-vector collections: a text that comes over one transport is found over all of them, with
//! the score that it has in a dense collection of the same texts.
use super::{Args, Clients, Hit, Server, binary_hits, hits_of, numbers};
use serde_json::{Value, json};

const WORDS: [&str; 7] = ["red", "redder", "green", "blue", "sky", "sea", "harbour"];
const IDS: u64 = 40;
const K: usize = 60;
/// The dense collection.
const TWIN: &str = "twin";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Named,
    Tokens,
}

use Of::{Named, Tokens};

impl Of {
    fn path(self) -> &'static str {
        if self == Named { "/v1/named/texts" } else { "/v1/multivector/texts-of-tokens" }
    }

    fn name(self) -> &'static str {
        if self == Named { "texts" } else { "texts-of-tokens" }
    }

    /// The beginnings of the names of operations of the binary protocol and of methods of gRPC.
    fn operations(self) -> (&'static str, &'static str) {
        if self == Named { ("vector_named", "Named") } else { ("vector_mv", "MV") }
    }

    /// Writes a point whose vector depends on its id.
    fn write(self, clients: &mut Clients, id: u64, text: &str, transport: u64) {
        let vector = vec![id as f32, 1.0];
        match (self, transport) {
            (Named, 0) => {
                let point = json!({"id": id, "vectors": {"a": vector}, "content": text});
                clients.rest.json("POST", &format!("{}/points", self.path()), point);
            }
            (Tokens, 0) => {
                let document = json!({"id": id, "tokens": [vector], "content": text});
                clients.rest.json("POST", &format!("{}/docs", self.path()), document);
            }
            (_, 1) => {
                let meta = if text.is_empty() { json!({}) } else { json!({ "$content": text }) }.to_string();
                let args = Args::on(self.name()).u64(id).u32(1);
                let (operation, args) = match self {
                    Named => ("vector_named_insert", args.s16("a").floats(&vector).u64(0)),
                    Tokens => ("vector_mv_add", args.floats(&vector)),
                };
                assert_eq!(clients.binary.ask(operation, &args.s32(meta.as_bytes())), Ok(vec![]));
            }
            (Named, 2) => {
                let vectors = json!({"a": {"values": vector}});
                let point = json!({"name": "texts", "id": id, "vectors": vectors, "content": text});
                clients.grpc.call("NamedUpsert", point).unwrap();
            }
            (Named, _) => {
                let vectors = json!({"a": {"values": vector}});
                let point = json!({"id": id, "vectors": vectors, "content": text});
                clients.grpc.call("NamedUpsertBatch", json!({"name": "texts", "points": [point]})).unwrap();
            }
            (Tokens, _) => {
                let tokens = json!([{ "values": vector }]);
                let document = json!({"name": self.name(), "id": id, "tokens": tokens, "content": text});
                clients.grpc.call("MVAdd", document).unwrap();
            }
        }
    }

    /// The hits of a query of these lanes, which every transport finds.
    fn query(self, clients: &mut Clients, body: Value, spec: Value) -> Vec<Hit> {
        let rest = clients.rest.json("POST", &format!("{}/query", self.path()), body);
        let rest = hits_of(&rest["results"]);
        let (binary, grpc) = self.operations();
        let method = format!("{grpc}VectorQuery");
        let request = json!({"collection": self.name(), "spec": spec});
        assert_eq!(hits_of(&clients.grpc.call(&method, request).unwrap()["results"]), rest, "{spec}");
        let args = Args::on(self.name()).s32(&encoded(&method, &spec));
        let found = clients.binary.ask(&format!("{binary}_query"), &args).unwrap();
        assert_eq!((found[0], binary_hits(&found[1..], true, false)), (1, rest.clone()), "{spec}");
        rest
    }

    /// The hits of a hybrid search with a text, which every transport finds; the query vector is that of the point with the id `near`.
    fn hybrid(self, clients: &mut Clients, text: &Text, near: Option<u64>) -> Vec<Hit> {
        let vector = near.map(|id| vec![id as f32, 1.0]);
        let mut body =
            json!({"text": text.text, "match": text.matching(), "k": K, "method": "weighted", "alpha": 0.25});
        let mut message = json!({"name": self.name(), "text": text.text, "phrase": text.phrase, "prefix": text.prefix,
            "k": K, "method": "weighted", "alpha": 0.25});
        let flags = 8 | u8::from(text.phrase) << 4 | u8::from(text.prefix) << 5;
        let mut args = Args(vec![flags]).s8(self.name());
        match (self, &vector) {
            (Named, Some(vector)) => {
                (body["dense_space"], body["dense"]) = ("a".into(), json!(vector));
                (message["dense_space"], message["dense"]) = ("a".into(), json!(vector));
            }
            (Tokens, Some(vector)) => {
                (body["query"], message["query"]) = (json!([vector]), json!([{ "values": vector }]));
            }
            (_, None) => {}
        }
        if self == Named {
            args = args.s16(if near.is_some() { "a" } else { "" }).s16("");
        }
        args = args.u32(K).u8(1).bytes(&0.25_f64.to_be_bytes()).u32(0).u32(0).u32(0);
        args = match (self, &vector) {
            (Named, vector) => args.floats(vector.as_deref().unwrap_or_default()),
            (Tokens, Some(vector)) => args.u32(1).floats(vector),
            (Tokens, None) => args.u32(0),
        };
        args = args.sparse(&[]).s32(text.text.as_bytes());
        let (binary, grpc) = self.operations();
        let rest = clients.rest.json("POST", &format!("{}/hybrid-search", self.path()), body);
        let rest = hits_of(&rest["results"]);
        let call = clients.grpc.call(&format!("{grpc}HybridSearch"), message);
        assert_eq!(hits_of(&call.unwrap()["results"]), rest, "{text:?}");
        let found = clients.binary.ask(&format!("{binary}_hybrid_search"), &args).unwrap();
        assert_eq!(binary_hits(&found, true, false), rest, "{text:?}");
        rest
    }
}

/// The bytes of a `QuerySpec`.
fn encoded(method: &str, spec: &Value) -> Vec<u8> {
    let message = crate::common::grpc::messages_of(method).0;
    let field = message.get_field_by_name("spec").unwrap();
    let protox::prost_reflect::Kind::Message(kind) = field.kind() else { panic!() };
    crate::common::grpc::encode(&kind, spec)
}

/// A text that is looked for.
#[derive(Clone, Debug)]
struct Text {
    text: String,
    phrase: bool,
    prefix: bool,
}

impl Text {
    fn matching(&self) -> Value {
        json!({"phrase": self.phrase, "prefix": self.prefix})
    }

    /// The lane of a body of REST, and that of a `QuerySpec`.
    fn lanes(&self) -> (Value, Value) {
        let leaf = json!({"text": self.text, "phrase": self.phrase, "prefix": self.prefix, "k": K});
        (json!({"text": self.text, "match": self.matching(), "k": K}), json!({ "text": leaf }))
    }
}

fn random_words(seed: &mut u64, most: u64) -> String {
    let count = numbers(seed) % (most + 1);
    let words: Vec<&str> = (0..count).map(|_| WORDS[(numbers(seed) % WORDS.len() as u64) as usize]).collect();
    words.join(" ")
}

fn random_text(seed: &mut u64) -> Text {
    let mut text = random_words(seed, 3);
    let prefix = numbers(seed).is_multiple_of(3);
    if prefix && text.len() > 2 {
        text.pop();
    }
    Text { text, prefix, phrase: numbers(seed).is_multiple_of(3) }
}

/// Ids and scores, without distances.
fn scores(hits: &[Hit]) -> Vec<(u64, f32)> {
    hits.iter().map(|(id, _, score, _)| (*id, *score)).collect()
}

fn create(clients: &mut Clients) {
    let config = json!({"dim": 2, "metric": "l2", "full_text": {"analyzer": "english", "k1": 1.5}});
    clients.rest.json("POST", "/v1/collections", json!({"name": TWIN, "config": config}));
    let spaces = json!({"a": {"dim": 2, "metric": "l2"}, "words": {"sparse": true}}).to_string();
    let whole = json!({"full_text": {"k1": 1.5}}).to_string();
    let args = Args::on("texts").s32(spaces.as_bytes()).u32(1).s32(whole.as_bytes());
    assert_eq!(clients.binary.ask("vector_named_create_collection", &args), Ok(vec![]));
    let config = json!({"dim": 2, "full_text": {"analyzer": "english", "k1": 1.5}});
    clients.grpc.call("MVCreateCollection", json!({"name": "texts-of-tokens", "config": config})).unwrap();
}

#[test]
fn texts_are_found_as_in_a_dense_collection() {
    let server = Server::start();
    let mut clients = server.clients();
    create(&mut clients);
    let mut seed = 5;
    for step in 0..240 {
        let id = numbers(&mut seed) % IDS;
        let transport = numbers(&mut seed) % 4;
        let text = random_words(&mut seed, 6);
        let twin = format!("/v1/collections/{TWIN}/points");
        match numbers(&mut seed) % 6 {
            0 => {
                for path in [
                    format!("{twin}/{id}"),
                    format!("{}/points/{id}", Named.path()),
                    format!("{}/docs/{id}", Tokens.path()),
                ] {
                    clients.rest.json("DELETE", &path, Value::Null);
                }
            }
            // A text that changes with the payload moves the point.
            1 => {
                let payload = json!({"$content": {"kind": "string", "str": text}}).to_string();
                for path in [twin, format!("{}/points", Named.path()), format!("{}/points", Tokens.path())] {
                    let (status, answer) =
                        clients.rest.text("POST", &format!("{path}/{id}/payload"), &payload);
                    assert!(status == 200 || status == 404, "{answer}");
                }
            }
            _ => {
                let point = json!({"id": id, "vector": [id, 1], "content": text, "upsert": true});
                clients.rest.json("POST", &twin, point);
                Named.write(&mut clients, id, &text, transport);
                Tokens.write(&mut clients, id, &text, transport);
            }
        }
        if step % 4 > 0 {
            continue;
        }
        let text = random_text(&mut seed);
        let body = json!({"text": text.text, "match": text.matching(), "k": K});
        let twin = clients.rest.json("POST", &format!("/v1/collections/{TWIN}/points/search/text"), body);
        let expected = scores(&hits_of(&twin["documents"]));
        for of in [Named, Tokens] {
            let (lane, leaf) = text.lanes();
            let query = |lane: &Value| json!({"prefetch": [lane], "k": K});
            let sources = |source: Value| json!({"prefetch_sources": [source], "k": K});
            let hits = of.query(&mut clients, query(&lane), query(&leaf));
            assert_eq!(scores(&hits), expected, "{of:?} {text:?}");
            // A query inside the query, and one whose results the text ranks anew.
            let inner = json!({"query": query(&lane)});
            let hits = of.query(&mut clients, query(&inner), sources(json!({"spec": query(&leaf)})));
            assert_eq!(scores(&hits), expected, "{of:?} {text:?}");
            let (mut body, mut spec) = (query(&lane), query(&leaf));
            (body["root"], body["mode"]) = (lane.clone(), "rerank".into());
            (spec["root"], spec["mode"]) = (leaf.clone(), 1.into());
            assert_eq!(scores(&of.query(&mut clients, body, spec)), expected, "{of:?} {text:?}");
            assert_eq!(scores(&of.hybrid(&mut clients, &text, None)), expected, "{of:?} {text:?}");
        }
        let near = numbers(&mut seed) % IDS;
        let body = json!({"vector": [near, 1], "text": text.text, "match": text.matching(), "k": K, "method": "weighted",
            "alpha": 0.25});
        let twin =
            clients.rest.json("POST", &format!("/v1/collections/{TWIN}/points/search/hybrid-text"), body);
        assert_eq!(Named.hybrid(&mut clients, &text, Some(near)), hits_of(&twin["results"]), "{text:?}");
        Tokens.hybrid(&mut clients, &text, Some(near));
    }
}

/// Texts are returned where a dense collection returns them.
#[test]
fn texts_are_shown() {
    let server = Server::start();
    let mut clients = server.clients();
    create(&mut clients);
    let text = "the harbour in the evening";
    let stored = json!({"$content": {"kind": "string", "str": text}});
    for (id, transport) in (0..4).zip(0..4) {
        for of in [Named, Tokens] {
            of.write(&mut clients, id, text, transport);
            let point = clients.rest.json("GET", &format!("{}/points/{id}", of.path()), Value::Null);
            assert_eq!(point["payload"], stored, "{of:?} over {transport}");
            let page = clients.rest.json("POST", &format!("{}/scroll", of.path()), json!({"limit": 0}));
            assert_eq!(page["documents"][id as usize]["content"], text);
        }
    }
    let body = json!({"vector_name": "a", "query": [0, 1], "k": 1});
    let found = clients.rest.json("POST", "/v1/named/texts/search/docs", body);
    assert_eq!(found["documents"][0]["content"], text);
}

#[test]
fn texts_are_refused_in_the_same_words() {
    let server = Server::start();
    let mut clients = server.clients();
    create(&mut clients);
    clients.rest.json(
        "POST",
        "/v1/named/plain",
        json!({"named_vectors": {"a": {"dim": 2}, "words": {"sparse": true}}}),
    );
    clients.rest.json("POST", "/v1/multivector/plain-tokens", json!({"dim": 2}));
    let long = "x".repeat(140_000);
    let disabled = "full-text disabled";
    for (of, name) in [(Named, "plain"), (Tokens, "plain-tokens")] {
        let (binary, grpc) = of.operations();
        let method = format!("{grpc}VectorQuery");
        let family = if of == Named { "named" } else { "multivector" };
        for (name, text, fragment) in
            [(name, "", disabled), (name, "red", disabled), (of.name(), &long, "may have at most")]
        {
            let (lane, leaf) = Text { text: text.to_owned(), phrase: false, prefix: false }.lanes();
            let body = json!({"prefetch": [lane]}).to_string();
            clients.rest.refused("POST", &format!("/v1/{family}/{name}/query"), &body, 400, fragment);
            let spec = json!({"prefetch": [leaf]});
            let args = Args::on(name).s32(&encoded(&method, &spec));
            let refused = clients.binary.ask(&format!("{binary}_query"), &args).unwrap_err();
            assert!(refused.contains(fragment), "{refused}");
            clients.grpc.refused(&method, json!({"collection": name, "spec": spec}), 3, fragment);
            let body = json!({"text": text, "k": 1}).to_string();
            clients.rest.refused("POST", &format!("/v1/{family}/{name}/hybrid-search"), &body, 400, fragment);
        }
    }
    let sparse = json!({"indices": [1], "values": [1]});
    for (of, path, body, fragment) in [
        (
            Named,
            "query",
            json!({"prefetch": [{"text": "red", "space": "a"}]}),
            "prefetch[0]: space \"a\" is not allowed in a lane with text",
        ),
        (
            Named,
            "query",
            json!({"prefetch": [{"space": "a", "dense": [1, 2], "match": {}}]}),
            "match is only allowed together with text",
        ),
        (Named, "query", json!({"prefetch": [{"dense": [1, 2]}]}), "space is required"),
        (
            Tokens,
            "query",
            json!({"prefetch": [{"match": {"phrase": true}}]}),
            "match is only allowed together with text",
        ),
        (Tokens, "query", json!({"prefetch": [{"text": "red", "space": "a"}]}), "unknown field \"space\""),
        (
            Named,
            "hybrid-search",
            json!({"text": "red", "sparse_space": "words", "k": 1}),
            "text cannot be combined with a sparse vector",
        ),
        (
            Named,
            "hybrid-search",
            json!({"text": "red", "dense": [1, 2], "k": 1}),
            "the name of a vector space is missing",
        ),
        (
            Named,
            "hybrid-search",
            json!({"text": "red", "dense_space": "b", "k": 1}),
            "unknown vector space \"b\"",
        ),
        (
            Tokens,
            "hybrid-search",
            json!({"text": "red", "sparse": sparse, "k": 1}),
            "text cannot be combined with a sparse vector",
        ),
        (
            Tokens,
            "hybrid-search",
            json!({"match": {"prefix": true}, "k": 1}),
            "match is only allowed together with text",
        ),
    ] {
        clients.rest.refused("POST", &format!("{}/{path}", of.path()), &body.to_string(), 400, fragment);
    }
    for (method, request, fragment) in [
        (
            "NamedHybridSearch",
            json!({"name": "texts", "phrase": true, "k": 1}),
            "phrase is only allowed together with text",
        ),
        (
            "MVHybridSearch",
            json!({"name": "texts-of-tokens", "prefix": true, "k": 1}),
            "prefix is only allowed together with text",
        ),
        (
            "NamedHybridSearch",
            json!({"name": "texts", "text": "red", "sparse_space": "words", "k": 1}),
            "text cannot be combined with a sparse vector",
        ),
        (
            "NamedVectorQuery",
            json!({"collection": "texts", "spec": {"prefetch": [{"dense": {"dense": [1, 2]}}]}}),
            "space is required",
        ),
    ] {
        clients.grpc.refused(method, request, 3, fragment);
    }
    let fusion = |args: Args| args.u32(1).u8(0).bytes(&[0; 8]).u32(0).u32(0).u32(0);
    let named = |flags: u8| fusion(Args(vec![flags]).s8("texts").s16("").s16("words"));
    for (args, fragment) in [
        (
            named(16).floats(&[]).sparse(&[]),
            "flags: bits 4 (phrase) and 5 (prefix) need bit 3 (text), found 16",
        ),
        (named(8).floats(&[]).sparse(&[]), "args too short: text"),
        (named(8).floats(&[]).sparse(&[]).s32(b"red"), "text cannot be combined with a sparse vector"),
        (named(64).floats(&[]).sparse(&[]), "flags: unknown"),
    ] {
        let refused = clients.binary.ask("vector_named_hybrid_search", &args).unwrap_err();
        assert!(refused.contains(fragment), "{refused} lacks {fragment}");
    }
    // A space cannot have full text, and a collection with full text cannot have a space with `pq_drop_vecs`.
    for (body, fragment) in [
        (r#"{"named_vectors":{"a":{"dim":2,"full_text":{}}}}"#, "unknown field \"full_text\""),
        (r#"{"named_vectors":{"a":{"dim":2}},"full_text":{"lang":"en"}}"#, "unknown field \"lang\""),
        (
            r#"{"named_vectors":{"a":{"dim":2}},"full_text":{"analyzer":"klingon"}}"#,
            "unknown analyzer \"klingon\"",
        ),
        (
            r#"{"named_vectors":{"a":{"dim":2}},"dim":2}"#,
            "unknown field \"dim\"; it must be one of named_vectors, partitions, full_text",
        ),
        (
            r#"{"named_vectors":{"a":{"dim":8,"quant":"pq","pq_drop_vecs":true}},"full_text":{}}"#,
            "space \"a\": pq_drop_vecs is not allowed in a collection with full_text",
        ),
    ] {
        clients.rest.refused("POST", "/v1/named/refused", body, 400, fragment);
    }
    let request = json!({"name": "refused", "config_json": r#"{"a":{"dim":2}}"#, "collection_json": r#"{"full_text":3}"#});
    clients.grpc.refused("NamedCreate", request, 3, "collection_json: ");
    let args = Args::on("refused").s32(br#"{"a":{"dim":2}}"#).u32(0).s32(br#"{"full_text":3}"#);
    let refused = clients.binary.ask("vector_named_create_collection", &args).unwrap_err();
    assert!(refused.contains("collectionKeys: "), "{refused}");
    let space = r#"{"name":"b","config":{"dim":8,"quant":"pq","pq_drop_vecs":true}}"#;
    clients.rest.refused(
        "POST",
        "/v1/named/texts/spaces",
        space,
        400,
        "pq_drop_vecs is not allowed in a collection with full_text",
    );
}
