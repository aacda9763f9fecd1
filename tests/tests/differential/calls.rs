//! gRPC.
use super::ids::{filter_json, payload_with_id, sent_number, without_id};
use super::model::{
    Ask, Change, Collection, Doomed, Family, Hit, Lane, Matrix, POOL, Put, Question, Sparse, Stored, Vectors,
};
use super::rest::floats;
use super::transports::{
    Order, Told, Transport, config, filter_text, payload_in, whole, with_content, without_content,
};
use nigh_tests::Server;
use nigh_tests::grpc::GrpcClient;
use nigh_tests::twin::{Filter, tagged};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io;

pub struct Calls(GrpcClient);

/// NOT_FOUND.
const NOT_FOUND: u32 = 5;

fn tokens(matrix: &Matrix) -> Value {
    matrix.iter().map(|token| json!({ "values": token })).collect()
}

fn add_sparse(body: &mut Value, vector: &Sparse) {
    let (indices, values): (Vec<u32>, Vec<f32>) = vector.iter().map(|(at, x)| (*at, *x)).unzip();
    (body["sparse_indices"], body["sparse_values"]) = (json!(indices), json!(values));
}

fn sparse_of(json: &Value) -> Sparse {
    let index = |value: &Value| value.as_u64().expect("an index") as u32;
    let indices = json["sparse_indices"].as_array().into_iter().flatten().map(index);
    indices.zip(floats(&json["sparse_values"])).collect()
}

fn by_space(dense: &BTreeMap<&'static str, Matrix>, sparse: &BTreeMap<&'static str, Sparse>) -> Value {
    let dense = dense.iter().map(|(name, vector)| ((*name).to_owned(), json!({"values": vector[0]})));
    let sparse = sparse.iter().map(|(name, vector)| {
        let mut list = json!({"sparse": true});
        add_sparse(&mut list, vector);
        ((*name).to_owned(), list)
    });
    Value::Object(dense.chain(sparse).collect::<Map<_, _>>())
}

fn put_message(of: &Collection, put: &Put) -> Value {
    let (payload, content) = without_content(&put.payload);
    let (id, metadata) = (sent_number(of, put.id), payload_with_id(of, put.id, &payload));
    let mut body = json!({"id": id, "content": content, "metadata_json": metadata});
    match of.family {
        Family::Dense => {
            body["vector"] = json!(put.dense[""][0]);
            add_sparse(&mut body, &put.sparse[""]);
        }
        Family::Named => {
            body["vectors"] = by_space(&put.dense, &put.sparse);
        }
        Family::Documents => {
            body["tokens"] = tokens(&put.dense[""]);
            add_sparse(&mut body, &put.sparse[""]);
        }
    }
    if put.ttl_ms > 0 {
        body["ttl_ms"] = json!(put.ttl_ms);
    }
    body["key_ttl_ms"] = json!(put.key_ttl_ms);
    expect(body, put.expected)
}

fn expect(mut body: Value, version: Option<u64>) -> Value {
    body["expected_version"] = json!(version.unwrap_or(0));
    body["has_expected_version"] = json!(version.is_some());
    body
}

fn stored(of: &Collection, id: u64, json: &Value) -> Stored {
    let (mut dense, mut sparse) = (BTreeMap::new(), BTreeMap::new());
    match of.family {
        Family::Dense => {
            dense.insert(String::new(), vec![floats(&json["vector"])]);
            sparse.insert(String::new(), sparse_of(json));
        }
        Family::Named => {
            for (name, list) in json["vectors"].as_object().into_iter().flatten() {
                match list.get("values") {
                    Some(values) => drop(dense.insert(name.clone(), vec![floats(values)])),
                    None => drop(sparse.insert(name.clone(), sparse_of(list))),
                }
            }
        }
        Family::Documents => {
            let rows = json["tokens"].as_array().into_iter().flatten();
            dense.insert(String::new(), rows.map(|token| floats(&token["values"])).collect());
        }
    }
    sparse.retain(|_, vector| !vector.is_empty());
    let is_document = of.family == Family::Documents;
    Stored {
        dense,
        sparse: (!is_document).then_some(sparse),
        payload: without_id(of, id, payload_in(text(&json["payload_json"]))),
        version: json["version"].as_u64().expect("a version"),
        ends: (!is_document).then(|| json["ttl_ms"].as_i64().unwrap_or(0) > 0),
    }
}

/// A text, which is left out where it is empty.
fn text(json: &Value) -> &str {
    json.as_str().unwrap_or_default()
}

/// Hits or documents. A hit without its document has a payload that holds an id that is a string, and nothing else.
fn hits(of: &Collection, json: &Value) -> Vec<Hit> {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0) as f32;
    let hit = |json: &Value| {
        let id = json["id"].as_u64().unwrap_or(0);
        let payload = payload_in(text(json.get("metadata_json").unwrap_or(&json["payload_json"])));
        Hit {
            id,
            distance: number(&json["distance"]),
            score: number(&json["score"]),
            payload: with_content(without_id(of, id, payload), text(&json["content"])),
        }
    };
    json.as_array().into_iter().flatten().map(hit).collect()
}

fn leaf(of: &Collection, lane: &Lane, filter: &str) -> Value {
    let (kind, mut leaf) = match lane {
        Lane::Dense(_, query) if of.family == Family::Documents => {
            ("mv_maxsim", json!({"query": tokens(query)}))
        }
        Lane::Dense(_, query) => ("dense", json!({"dense": query[0]})),
        Lane::Sparse(_, query) => {
            let (indices, values): (Vec<u32>, Vec<f32>) = query.iter().map(|(at, x)| (*at, *x)).unzip();
            ("sparse", json!({"indices": indices, "values": values}))
        }
        Lane::Text(text) => ("text", json!({ "text": text })),
        Lane::Query(_) => unreachable!("{lane:?} is no leaf"),
    };
    (leaf["lane_k"], leaf["filter_json"]) = (json!(POOL), json!(filter));
    match (of.family, lane) {
        (Family::Named, Lane::Dense(name, _) | Lane::Sparse(name, _)) => {
            leaf["space"] = json!(name);
            json!({ format!("named_{kind}"): leaf })
        }
        _ => json!({ kind: leaf }),
    }
}

/// The message `QuerySource` of a lane.
fn source(of: &Collection, lane: &Lane, filter: &str) -> Value {
    match lane {
        Lane::Query(lanes) => {
            let sources: Vec<Value> = lanes.iter().map(|lane| source(of, lane, filter)).collect();
            json!({"spec": {"prefetch_sources": sources, "fusion_method": "rrf", "k": POOL}})
        }
        _ => json!({"leaf": leaf(of, lane, filter)}),
    }
}

/// The message `QuerySpec` of a question, which the binary protocol embeds as well.
pub fn spec(of: &Collection, ask: &Ask) -> Value {
    let filter = filter_text(of, ask.filter.as_ref());
    let (lanes, root) = match &ask.question {
        Question::Query(lanes) => (lanes, None),
        Question::Rerank(lanes, root) => (lanes, Some(root)),
        other => unreachable!("{other:?} is no query"),
    };
    let (field, lanes): (_, Vec<Value>) = match lanes.iter().any(|lane| matches!(lane, Lane::Query(_))) {
        true => ("prefetch_sources", lanes.iter().map(|lane| source(of, lane, &filter)).collect()),
        false => ("prefetch", lanes.iter().map(|lane| leaf(of, lane, &filter)).collect()),
    };
    let mut spec = json!({field: lanes, "fusion_method": "rrf", "k": ask.k});
    if let Some(root) = root {
        (spec["mode"], spec["root"]) = (json!(1), leaf(of, root, &filter));
    }
    spec
}

impl Calls {
    pub fn new(server: &Server) -> Calls {
        let address = server.grpc_authority().parse().expect("an address");
        Calls(GrpcClient::connect(address))
    }

    fn told<T>(&self, method: &str, body: &Value, found: impl FnOnce(&Value) -> T) -> Told<T> {
        Ok(self.code(method, body)?.map(|answer| found(&answer)).map_err(|(_, text)| text))
    }

    fn code(&self, method: &str, body: &Value) -> io::Result<Result<Value, (u32, String)>> {
        self.0.try_call(method, body).map_err(io::Error::other)
    }

    #[track_caller]
    fn ok(&self, method: &str, body: Value) -> Value {
        self.0.call(method, body.clone()).unwrap_or_else(|refusal| panic!("{method} {body}: {refusal:?}"))
    }
}

/// The name of a method by family.
fn method(of: &Collection, name: &str) -> String {
    let family = match of.family {
        Family::Dense => "",
        Family::Named => "Named",
        Family::Documents => "MV",
    };
    format!("{family}{name}")
}

/// The field that names the collection: requests that came with the families call it `name`, others `collection`.
fn on(of: &Collection, mut body: Value) -> Value {
    let field = if of.family == Family::Dense { "collection" } else { "name" };
    body[field] = json!(of.name);
    body
}

fn on_collection(of: &Collection, mut body: Value) -> Value {
    body["collection"] = json!(of.name);
    body
}

impl Transport for Calls {
    fn create(&mut self, of: &Collection) {
        let config = config(of);
        match of.family {
            Family::Dense => {
                self.ok("CreateCollection", json!({"name": of.name, "config": config}));
            }
            Family::Named => {
                let (config, whole) = (config.to_string(), whole(of).to_string());
                self.ok(
                    "NamedCreate",
                    json!({"name": of.name, "config_json": config, "collection_json": whole}),
                );
            }
            Family::Documents => {
                self.ok("MVCreateCollection", json!({"name": of.name, "config": config}));
            }
        }
    }

    fn add_space(&mut self, of: &Collection, name: &str, config: &Value) -> Told<()> {
        let config = config.to_string();
        self.told("NamedAddSpace", &json!({"name": of.name, "space": name, "config_json": config}), |_| ())
    }

    fn drop_space(&mut self, of: &Collection, name: &str) -> Told<()> {
        self.told("NamedDropSpace", &json!({"name": of.name, "space": name}), |_| ())
    }

    fn put(&mut self, of: &Collection, put: &Put) -> Told<()> {
        let mut body = on(of, put_message(of, put));
        let name = match of.family {
            Family::Documents => "Add",
            Family::Named => "Upsert",
            Family::Dense => {
                body["upsert"] = json!(!put.create_only);
                "Upsert"
            }
        };
        self.told(&method(of, name), &body, |answer| assert_eq!(answer["id"].as_u64().unwrap_or(0), put.id))
    }

    fn put_many(&mut self, of: &Collection, puts: &[Put]) -> Told<()> {
        let list: Vec<Value> = puts.iter().map(|put| put_message(of, put)).collect();
        let body = on(of, json!({ "points": list }));
        let body = match of.family {
            Family::Dense => {
                let mut body = body;
                body["upsert"] = json!(true);
                body
            }
            Family::Named => body,
            Family::Documents => {
                for put in puts {
                    if let Err(refusal) = self.put(of, put)? {
                        return Ok(Err(refusal));
                    }
                }
                return Ok(Ok(()));
            }
        };
        let count = |answer: &Value| assert_eq!(answer["count"].as_u64().unwrap_or(0), puts.len() as u64);
        self.told(&method(of, "UpsertBatch"), &body, count)
    }

    fn delete(&mut self, of: &Collection, id: u64, expected: Option<u64>) -> Told<bool> {
        let body = expect(on(of, json!({ "id": id })), expected);
        self.told(&method(of, "Delete"), &body, |answer| answer["deleted"] == true)
    }

    fn delete_many(&mut self, of: &Collection, doomed: &Doomed) -> Option<Told<u64>> {
        if of.family == Family::Documents {
            return None;
        }
        let body = match doomed {
            Doomed::Ids(ids) => json!({ "ids": ids }),
            Doomed::Matching(filter) => json!({"filter_json": filter_json(of, filter).to_string()}),
        };
        let count = |answer: &Value| answer["deleted"].as_u64().unwrap_or(0);
        Some(self.told(&method(of, "DeleteByFilter"), &on_collection(of, body), count))
    }

    fn change(&mut self, of: &Collection, id: u64, change: &Change, expected: Option<u64>) -> Told<bool> {
        let (name, body) = match change {
            Change::Merge(payload, ttl_ms) => {
                ("SetPayload", json!({"payload_json": tagged(payload).to_string(), "key_ttl_ms": ttl_ms}))
            }
            Change::Overwrite(payload, ttl_ms) => (
                "OverwritePayload",
                json!({"payload_json": tagged(payload).to_string(), "key_ttl_ms": ttl_ms}),
            ),
            Change::DeleteKeys(keys) => ("DeletePayloadKeys", json!({ "keys": keys })),
            Change::Clear => ("ClearPayload", json!({})),
            Change::Vectors(Vectors { dense, sparse, delete }) => {
                ("UpdateVectors", json!({"vectors": by_space(dense, sparse), "delete": delete}))
            }
        };
        let is_of_vectors = matches!(change, Change::Vectors(_));
        let body = if is_of_vectors { on(of, body) } else { on_collection(of, body) };
        let mut body = expect(body, expected);
        body["id"] = json!(id);
        Ok(match self.code(&method(of, name), &body)? {
            Ok(answer) if is_of_vectors => Ok(answer["version"].as_u64() > Some(0)),
            Ok(answer) => Ok(answer["applied"] == true),
            Err((NOT_FOUND, _)) => Ok(false),
            Err((_, text)) => Err(text),
        })
    }

    fn point(&mut self, of: &Collection, id: u64) -> Option<Stored> {
        let body = on_collection(of, json!({ "id": id }));
        match self.code(&method(of, "Get"), &body).expect("an answer") {
            Ok(point) => Some(stored(of, id, &point)),
            Err((code, text)) => {
                assert_eq!(code, NOT_FOUND, "{text}");
                None
            }
        }
    }

    fn points(&mut self, of: &Collection, ids: &[u64]) -> BTreeMap<u64, Stored> {
        let answer = self.ok(&method(of, "GetBatch"), on_collection(of, json!({ "ids": ids })));
        let points = answer["points"].as_array().into_iter().flatten();
        let named = |point: &Value| {
            let id = point["id"].as_u64().unwrap_or(0);
            (id, stored(of, id, point))
        };
        points.map(named).collect()
    }

    fn ask(&mut self, of: &Collection, ask: &Ask) -> Vec<Hit> {
        let filter = filter_text(of, ask.filter.as_ref());
        let mut body = json!({"k": ask.k, "filter_json": filter});
        let name = match (of.family, &ask.question) {
            (
                Family::Documents,
                Question::One(Lane::Dense(_, query)) | Question::WithDocuments(Lane::Dense(_, query)),
            ) => {
                (body["query"], body["candidates_per_token"]) = (tokens(query), json!(1024));
                "Search"
            }
            (
                _,
                Question::One(Lane::Dense(space, query)) | Question::WithDocuments(Lane::Dense(space, query)),
            ) => {
                body["query"] = json!(query[0]);
                if of.family == Family::Named {
                    body["vector_name"] = json!(space);
                }
                if matches!(ask.question, Question::One(_)) { "Search" } else { "SearchDocs" }
            }
            (_, Question::One(Lane::Text(text))) => {
                body["text"] = json!(text);
                "TextSearch"
            }
            (_, Question::One(Lane::Sparse(space, query))) => {
                add_sparse(&mut body, query);
                if of.family == Family::Named {
                    body["vector_name"] = json!(space);
                    "SparseSearch"
                } else {
                    "HybridSearch"
                }
            }
            (_, Question::Hybrid(Lane::Dense(dense, query), other)) => {
                (body["dense_k"], body["sparse_k"]) = (json!(POOL), json!(POOL));
                match of.family {
                    Family::Documents => body["query"] = tokens(query),
                    _ => body["dense"] = json!(query[0]),
                }
                match other {
                    Lane::Sparse(sparse, other) => {
                        add_sparse(&mut body, other);
                        if of.family == Family::Named {
                            (body["dense_space"], body["sparse_space"]) = (json!(dense), json!(sparse));
                        }
                        "HybridSearch"
                    }
                    Lane::Text(text) => {
                        body["text"] = json!(text);
                        if of.family == Family::Named {
                            body["dense_space"] = json!(dense);
                        }
                        if of.family == Family::Dense { "HybridTextSearch" } else { "HybridSearch" }
                    }
                    Lane::Dense(..) | Lane::Query(_) => {
                        unreachable!("{other:?} is no second lane of a hybrid search")
                    }
                }
            }
            (_, Question::Query(_) | Question::Rerank(..)) => {
                let body = on_collection(of, json!({"spec": spec(of, ask)}));
                return hits(of, &self.ok(&method(of, "VectorQuery"), body)["results"]);
            }
            (_, other) => unreachable!("no call of {other:?}"),
        };
        let answer = self.ok(&method(of, name), on(of, body));
        hits(of, answer.get("documents").unwrap_or(&answer["results"]))
    }

    fn page(
        &mut self,
        of: &Collection,
        filter: Option<&Filter>,
        limit: usize,
        cursor: &str,
        order: Order,
    ) -> (Vec<Hit>, String) {
        let mut body = json!({"filter_json": filter_text(of, filter), "limit": limit, "cursor": cursor});
        if let Some((key, desc)) = order {
            body["order_by"] = json!({"key": key, "desc": desc});
        }
        let body = if of.family == Family::Named { on(of, body) } else { on_collection(of, body) };
        let page = self.ok(&method(of, "Scroll"), body);
        (hits(of, &page["documents"]), text(&page["next_cursor"]).to_owned())
    }
}
