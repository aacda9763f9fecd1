//! JSON over HTTP.
use super::ids::{filter_json, id_in_path, id_json, id_of, ids_json};
use super::model::{
    Ask, Change, Collection, Doomed, Family, Hit, Lane, Matrix, POOL, Put, Question, Sparse, Stored, Vectors,
};
use super::transports::{Order, Told, Transport, config, payload_of, whole, with_content, without_content};
use nigh_tests::twin::{Filter, Payload, Val, tagged};
use nigh_tests::{Api, Reply};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub struct Rest(Api);

fn sparse_json(vector: &Sparse) -> Value {
    let (indices, values): (Vec<u32>, Vec<f32>) = vector.iter().map(|(at, x)| (*at, *x)).unzip();
    json!({"indices": indices, "values": values})
}

pub fn sparse_of(json: &Value) -> Sparse {
    let number = |value: &Value| value.as_u64().expect("an index") as u32;
    let indices = json["indices"].as_array().into_iter().flatten().map(number);
    indices.zip(floats(&json["values"])).collect()
}

pub fn floats(json: &Value) -> Vec<f32> {
    let number = |value: &Value| value.as_f64().expect("a number") as f32;
    json.as_array().into_iter().flatten().map(number).collect()
}

/// What stands for vectors in the spaces of a named collection.
fn by_space<T>(vectors: &BTreeMap<&'static str, T>, json: impl Fn(&T) -> Value) -> Map<String, Value> {
    vectors.iter().map(|(name, vector)| ((*name).to_owned(), json(vector))).collect()
}

fn put_json(of: &Collection, put: &Put) -> Value {
    let (payload, content) = without_content(&put.payload);
    let mut body = match of.family {
        Family::Dense => {
            json!({"vector": put.dense[""][0], "sparse": sparse_json(&put.sparse[""]), "ttl_ms": put.ttl_ms})
        }
        Family::Named => {
            json!({"vectors": by_space(&put.dense, |vector| json!(vector[0])),
                "sparse_vectors": by_space(&put.sparse, sparse_json), "ttl_ms": put.ttl_ms})
        }
        Family::Documents => json!({"tokens": put.dense[""], "sparse": sparse_json(&put.sparse[""])}),
    };
    (body["id"], body["content"], body["metadata"]) = (id_json(of, put.id), json!(content), tagged(&payload));
    if !put.key_ttl_ms.is_empty() {
        body["key_ttl_ms"] = json!(put.key_ttl_ms);
    }
    if let Some(version) = put.expected {
        body["expected_version"] = json!(version);
    }
    body
}

fn stored(of: &Collection, json: &Value) -> Stored {
    let mut dense: BTreeMap<String, Matrix> = BTreeMap::new();
    match of.family {
        Family::Dense => drop(dense.insert(String::new(), vec![floats(&json["vector"])])),
        Family::Named => {
            let spaces = json["vectors"].as_object().expect("spaces");
            dense.extend(spaces.iter().map(|(name, vector)| (name.clone(), vec![floats(vector)])));
        }
        Family::Documents => {
            let tokens = json["tokens"].as_array().expect("tokens");
            dense.insert(String::new(), tokens.iter().map(floats).collect());
        }
    }
    let sparse = json.get("sparse").filter(|sparse| !sparse.is_null()).map(|sparse| {
        let vector = sparse_of(sparse);
        if vector.is_empty() { BTreeMap::new() } else { BTreeMap::from([(String::new(), vector)]) }
    });
    Stored {
        dense,
        sparse,
        payload: payload_of(&json["payload"]),
        version: json["version"].as_u64().expect("a version"),
        ends: json.get("ttl_ms").map(|ttl| ttl.as_u64().expect("milliseconds") > 0),
    }
}

/// Hits or documents.
fn hits(of: &Collection, json: &Value) -> Vec<Hit> {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0) as f32 + 0.0;
    let hit = |json: &Value| Hit {
        id: id_of(of, &json["id"]),
        distance: number(&json["distance"]),
        score: number(&json["score"]),
        payload: with_content(payload_of(&json["metadata"]), json["content"].as_str().unwrap_or_default()),
    };
    json.as_array().expect("hits").iter().map(hit).collect()
}

/// The word for a sentence of refusal.
fn told<T>(reply: &Reply, found: impl FnOnce(&Value) -> T) -> Result<T, String> {
    match reply.status {
        200..300 => Ok(found(&reply.body)),
        _ => Err(reply.body["error"].as_str().expect("a sentence").to_owned()),
    }
}

fn lane_json(of: &Collection, lane: &Lane, filter: &Value) -> Value {
    let mut body = match lane {
        Lane::Dense(_, query) if of.family == Family::Documents => json!({ "maxsim": query }),
        Lane::Dense(_, query) => json!({"dense": query[0]}),
        Lane::Sparse(_, query) => json!({"sparse": sparse_json(query)}),
        Lane::Query(lanes) => {
            let lanes: Vec<Value> = lanes.iter().map(|lane| lane_json(of, lane, filter)).collect();
            return json!({"query": {"prefetch": lanes, "k": POOL}});
        }
        Lane::Text(text) => json!({ "text": text }),
    };
    if let (Family::Named, Lane::Dense(name, _) | Lane::Sparse(name, _)) = (of.family, lane) {
        body["space"] = json!(name);
    }
    (body["lane_k"], body["filter"]) = (json!(POOL), filter.clone());
    body
}

fn payload_json(payload: &Payload, ttl_ms: &BTreeMap<String, i64>) -> Value {
    let mut body = tagged(payload);
    if !ttl_ms.is_empty() {
        body["key_ttl_ms"] = json!(ttl_ms);
    }
    body
}

fn condition(expected: Option<u64>) -> String {
    expected.map_or(String::new(), |version| format!("?expected_version={version}"))
}

impl Rest {
    pub fn new(api: Api) -> Rest {
        Rest(api)
    }

    fn base(of: &Collection) -> String {
        let family = match of.family {
            Family::Dense => "collections",
            Family::Named => "named",
            Family::Documents => "multivector",
        };
        format!("/v1/{family}/{}", of.name)
    }

    /// Where points are written and deleted.
    fn writes(of: &Collection) -> String {
        let place = if of.family == Family::Documents { "docs" } else { "points" };
        format!("{}/{place}", Rest::base(of))
    }

    /// Where points are looked for.
    fn searches(of: &Collection) -> String {
        format!("{}{}", Rest::base(of), if of.family == Family::Dense { "/points" } else { "" })
    }

    /// How many points match.
    pub fn count(&mut self, of: &Collection, filter: Option<&Filter>) -> u64 {
        let body = json!({"filter": filter.map(|filter| filter_json(of, filter))});
        let answer = self.0.ok("POST", &format!("{}/count", Rest::searches(of)), body);
        answer["count"].as_u64().expect("a count")
    }

    /// The values of `key` and how many points have each.
    pub fn facet(&mut self, of: &Collection, key: &str, filter: Option<&Filter>) -> Vec<(Val, u64)> {
        let filter = filter.map(|filter| filter_json(of, filter));
        let body = json!({"key": key, "filter": filter, "limit": 1000});
        let answer = self.0.ok("POST", &format!("{}/facet", Rest::searches(of)), body);
        let facets = answer["facets"].as_array().expect("facets");
        let one = |facet: &Value| {
            let value = Val::read(&facet["value"]).expect("a kind the twin writes");
            (value, facet["count"].as_u64().expect("a count"))
        };
        facets.iter().map(one).collect()
    }
}

impl Transport for Rest {
    fn create(&mut self, of: &Collection) {
        match of.family {
            Family::Dense => {
                self.0.ok("POST", "/v1/collections", json!({"name": of.name, "config": config(of)}))
            }
            Family::Named => {
                let mut body = whole(of);
                body["named_vectors"] = config(of);
                self.0.ok("POST", &Rest::base(of), body)
            }
            Family::Documents => self.0.ok("POST", &Rest::base(of), config(of)),
        };
    }

    fn add_space(&mut self, of: &Collection, name: &str, config: &Value) -> Told<()> {
        let body = json!({"name": name, "config": config});
        Ok(told(&self.0.send("POST", &format!("{}/spaces", Rest::base(of)), &body)?, |_| ()))
    }

    fn drop_space(&mut self, of: &Collection, name: &str) -> Told<()> {
        let path = format!("{}/spaces/{name}", Rest::base(of));
        Ok(told(&self.0.send("DELETE", &path, &Value::Null)?, |_| ()))
    }

    fn put(&mut self, of: &Collection, put: &Put) -> Told<()> {
        let mut body = put_json(of, put);
        if of.family == Family::Dense {
            body["upsert"] = json!(!put.create_only);
        }
        let reply = self.0.send("POST", &Rest::writes(of), &body)?;
        Ok(told(&reply, |body| assert_eq!(body["id"], id_json(of, put.id), "{body}")))
    }

    fn put_many(&mut self, of: &Collection, puts: &[Put]) -> Told<()> {
        let list: Vec<Value> = puts.iter().map(|put| put_json(of, put)).collect();
        let body = match of.family {
            Family::Dense => json!({"upsert": true, "points": list}),
            Family::Named => json!({"points": list}),
            Family::Documents => json!({"docs": list}),
        };
        let reply = self.0.send("POST", &format!("{}/batch", Rest::writes(of)), &body)?;
        Ok(told(&reply, |body| assert_eq!(body["count"], puts.len(), "{body}")))
    }

    fn delete(&mut self, of: &Collection, id: u64, expected: Option<u64>) -> Told<bool> {
        let path = format!("{}/{}{}", Rest::writes(of), id_in_path(of, id), condition(expected));
        let reply = self.0.send("DELETE", &path, &Value::Null)?;
        Ok(told(&reply, |body| body["deleted"].as_bool().expect("a flag")))
    }

    fn delete_many(&mut self, of: &Collection, doomed: &Doomed) -> Option<Told<u64>> {
        let body = match doomed {
            Doomed::Ids(ids) => json!({"ids": ids_json(of, ids)}),
            Doomed::Matching(filter) => json!({"filter": filter_json(of, filter)}),
        };
        let reply = self.0.send("POST", &format!("{}/delete", Rest::writes(of)), &body);
        let count = |body: &Value| body["deleted"].as_u64().expect("a count");
        Some(reply.map(|reply| told(&reply, count)))
    }

    fn change(&mut self, of: &Collection, id: u64, change: &Change, expected: Option<u64>) -> Told<bool> {
        let (method, route, body) = match change {
            Change::Merge(payload, ttl_ms) => ("POST", "payload", payload_json(payload, ttl_ms)),
            // Both do the same.
            Change::Overwrite(payload, ttl_ms) if id.is_multiple_of(2) => {
                ("PUT", "payload", payload_json(payload, ttl_ms))
            }
            Change::Overwrite(payload, ttl_ms) => {
                ("POST", "payload/overwrite", payload_json(payload, ttl_ms))
            }
            Change::DeleteKeys(keys) => ("POST", "payload/delete", json!({ "keys": keys })),
            Change::Clear => ("POST", "payload/clear", Value::Null),
            Change::Vectors(Vectors { dense, sparse, delete }) => {
                let vectors = by_space(dense, |vector| json!(vector[0]));
                let sparse = by_space(sparse, sparse_json);
                ("POST", "vectors", json!({"vectors": vectors, "sparse_vectors": sparse, "delete": delete}))
            }
        };
        let id = id_in_path(of, id);
        let path = format!("{}/points/{id}/{route}{}", Rest::base(of), condition(expected));
        let reply = self.0.send(method, &path, &body)?;
        Ok(if reply.status == 404 { Ok(false) } else { told(&reply, |_| true) })
    }

    fn point(&mut self, of: &Collection, id: u64) -> Option<Stored> {
        let path = format!("{}/points/{}", Rest::base(of), id_in_path(of, id));
        let reply = self.0.send("GET", &path, &Value::Null).expect("an answer");
        assert!(matches!(reply.status, 200 | 404), "{reply:?}");
        (reply.status == 200).then(|| stored(of, &reply.body))
    }

    fn points(&mut self, of: &Collection, ids: &[u64]) -> BTreeMap<u64, Stored> {
        let path = format!("{}/points/batch-get", Rest::base(of));
        let answer = self.0.ok("POST", &path, json!({"ids": ids_json(of, ids)}));
        let points = answer["points"].as_array().expect("points");
        let found: BTreeMap<u64, Stored> =
            points.iter().map(|point| (id_of(of, &point["id"]), stored(of, point))).collect();
        let missing: Vec<u64> = ids.iter().copied().filter(|id| !found.contains_key(id)).collect();
        assert_eq!(answer["missing"], ids_json(of, &missing));
        found
    }

    fn ask(&mut self, of: &Collection, ask: &Ask) -> Vec<Hit> {
        let filter = ask.filter.as_ref().map_or(Value::Null, |filter| filter_json(of, filter));
        let mut body = json!({"k": ask.k, "filter": filter});
        let mut field = |key: &str, value: Value| body[key] = value;
        let route = match (of.family, &ask.question) {
            (Family::Dense, Question::One(Lane::Dense(_, query))) => {
                field("query", json!(query[0]));
                "search"
            }
            (Family::Dense, Question::WithDocuments(Lane::Dense(_, query))) => {
                field("query", json!(query[0]));
                "search/docs"
            }
            (_, Question::One(Lane::Text(text))) => {
                field("text", json!(text));
                "search/text"
            }
            (Family::Dense, Question::One(Lane::Sparse(_, query))) => {
                field("sparse", sparse_json(query));
                "search/hybrid"
            }
            (Family::Documents, Question::One(Lane::Sparse(_, query))) => {
                field("sparse", sparse_json(query));
                "hybrid-search"
            }
            (Family::Named, Question::One(Lane::Sparse(name, query))) => {
                field("vector_name", json!(name));
                field("query", sparse_json(query));
                "sparse-search"
            }
            (
                Family::Named,
                Question::One(Lane::Dense(name, query)) | Question::WithDocuments(Lane::Dense(name, query)),
            ) => {
                field("vector_name", json!(name));
                field("query", json!(query[0]));
                if matches!(ask.question, Question::One(_)) { "search" } else { "search/docs" }
            }
            (
                Family::Documents,
                Question::One(Lane::Dense(_, query)) | Question::WithDocuments(Lane::Dense(_, query)),
            ) => {
                field("query", json!(query));
                field("candidates_per_token", json!(1024));
                "search"
            }
            (_, Question::Hybrid(Lane::Dense(dense, query), other)) => {
                field("dense_k", json!(POOL));
                field("sparse_k", json!(POOL));
                match of.family {
                    Family::Documents => field("query", json!(query)),
                    _ => field("dense", json!(query[0])),
                }
                match other {
                    Lane::Sparse(sparse, other) => {
                        field("sparse", sparse_json(other));
                        if of.family == Family::Named {
                            field("dense_space", json!(dense));
                            field("sparse_space", json!(sparse));
                        }
                        if of.family == Family::Dense { "search/hybrid" } else { "hybrid-search" }
                    }
                    Lane::Text(text) => {
                        field("text", json!(text));
                        if of.family == Family::Named {
                            field("dense_space", json!(dense));
                        }
                        if of.family == Family::Dense { "search/hybrid-text" } else { "hybrid-search" }
                    }
                    Lane::Dense(..) | Lane::Query(_) => {
                        unreachable!("{other:?} is no second lane of a hybrid search")
                    }
                }
            }
            (_, Question::Query(lanes) | Question::Rerank(lanes, _)) => {
                let lanes: Vec<Value> = lanes.iter().map(|lane| lane_json(of, lane, &filter)).collect();
                field("prefetch", json!(lanes));
                if let Question::Rerank(_, root) = &ask.question {
                    field("mode", json!("rerank"));
                    field("root", lane_json(of, root, &filter));
                }
                let path = format!("{}/query", Rest::base(of));
                body.as_object_mut().expect("an object").remove("filter");
                return hits(of, &self.0.ok("POST", &path, body)["results"]);
            }
            (_, other) => unreachable!("no route of {other:?}"),
        };
        let answer = self.0.ok("POST", &format!("{}/{route}", Rest::searches(of)), body);
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
        let filter = filter.map(|filter| filter_json(of, filter));
        let mut body = json!({"filter": filter, "limit": limit, "cursor": cursor});
        if let Some((key, desc)) = order {
            body["order_by"] = json!({"key": key, "desc": desc});
        }
        let page = self.0.ok("POST", &format!("{}/scroll", Rest::searches(of)), body);
        (hits(of, &page["documents"]), page["next_cursor"].as_str().expect("a cursor").to_owned())
    }
}
