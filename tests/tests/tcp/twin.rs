//! The same operations over REST and over TCP: the same outcomes, the same errors, the same points.

use super::server;
use nigh_tests::{Api, Args, Response, SplitMix, Wire};
use serde_json::{Value, json};

const DIM: usize = 3;

struct Both {
    api: Api,
    wire: Wire,
    random: SplitMix,
}

/// What an operation came to: done, its yes or no, or the text of its error.
type Outcome = Result<Option<bool>, String>;

fn of_tcp(response: Response) -> Outcome {
    match response.status {
        3 => Err(response.error()),
        _ => {
            let payload = response.ok();
            Ok(payload.first().map(|flag| *flag == 1))
        }
    }
}

impl Both {
    fn rest(&mut self, method: &str, path: &str, body: Value) -> Result<Value, (u16, String)> {
        let reply = self.api.send(method, path, &body).expect("an answer");
        match reply.status {
            200..300 => Ok(reply.body),
            status => Err((status, reply.body["error"].as_str().expect("a text").to_owned())),
        }
    }

    fn vector(&mut self) -> Vec<f32> {
        let dim = if self.random.below(12) == 0 { DIM + 1 } else { DIM };
        (0..dim).map(|_| self.random.below(16) as f32 / 4.0).collect()
    }

    fn payload(&mut self) -> Value {
        json!({"n": {"kind": "int", "int": self.random.below(9)}, "s": {"kind": "string", "str": format!("w{}", self.random.below(4))}})
    }

    fn version(&mut self) -> Option<u64> {
        (self.random.below(4) == 0).then(|| self.random.below(4))
    }

    /// Over REST to `rest`, over TCP to `tcp`.
    fn write(&mut self) -> (String, Outcome, Outcome) {
        let id = self.random.below(25);
        let points = "/v1/collections/rest/points";
        match self.random.below(8) {
            0..=2 => {
                let (vector, payload, expected) = (self.vector(), self.payload(), self.version());
                let upsert = self.random.below(3) > 0;
                let mut body = json!({"id": id, "vector": vector, "metadata": payload, "upsert": upsert});
                let mut args = Args::new()
                    .u8(if expected.is_some() { 18 } else { 2 })
                    .s8("tcp")
                    .u64(id)
                    .vector(&vector)
                    .s32(payload.to_string());
                if let Some(expected) = expected {
                    body["expected_version"] = json!(expected);
                    args = args.u64(expected);
                }
                let operation = if upsert { "vector_upsert" } else { "vector_insert" };
                let rest = self.rest("POST", points, body).map(|_| None).map_err(|(_, text)| text);
                (format!("{operation} {id} {expected:?}"), rest, of_tcp(self.wire.ask(operation, args)))
            }
            3 => {
                let expected = self.version();
                let query = expected.map_or(String::new(), |version| format!("?expected_version={version}"));
                let rest = self.rest("DELETE", &format!("{points}/{id}{query}"), Value::Null);
                let rest = rest.map(|body| body["deleted"].as_bool()).map_err(|(_, text)| text);
                let args = Args::new().s8("tcp").u64(id);
                let args = match expected {
                    Some(version) => args.u8(1).u64(version),
                    None => args,
                };
                (format!("delete {id} {expected:?}"), rest, of_tcp(self.wire.ask("vector_delete", args)))
            }
            4..=6 => {
                let (payload, expected) = (self.payload(), self.version());
                let (route, operation) = [
                    ("/payload", "vector_set_payload"),
                    ("/payload/overwrite", "vector_overwrite_payload"),
                    ("/payload/clear", "vector_clear_payload"),
                ][self.random.below(3) as usize];
                let query = expected.map_or(String::new(), |version| format!("?expected_version={version}"));
                let clears = route.ends_with("clear");
                let body = if clears { Value::Null } else { payload.clone() };
                // Over REST an absent point is an error; over TCP it is a no.
                let rest = match self.rest("POST", &format!("{points}/{id}{route}{query}"), body) {
                    Ok(_) => Ok(Some(true)),
                    Err((404, _)) => Ok(Some(false)),
                    Err((_, text)) => Err(text),
                };
                let mut args = Args::new().s8("tcp").u64(id);
                if !clears {
                    args = args.s32(payload.to_string()).u8(0);
                }
                if let Some(version) = expected {
                    args = args.u8(1).u64(version);
                }
                (format!("{operation} {id} {expected:?}"), rest, of_tcp(self.wire.ask(operation, args)))
            }
            _ => {
                let filter =
                    json!({"op": "eq", "field": "n", "value": {"kind": "int", "int": self.random.below(9)}});
                let rest = self.rest("POST", &format!("{points}/delete"), json!({"filter": filter}));
                let rest = rest.map(|body| body["deleted"].as_u64()).expect("a number");
                let args = Args::new().s8("tcp").s32(filter.to_string());
                let deleted = self.wire.ask("vector_delete_by_filter", args).ok();
                assert_eq!(rest, Some(u32::from_be_bytes(deleted.try_into().expect("four bytes")).into()));
                // By ids, of which the other side has the same.
                let ids = [self.random.below(40), self.random.below(40)];
                let rest = self.rest("POST", &format!("{points}/delete"), json!({"ids": ids}));
                let rest = rest.map(|body| body["deleted"].as_u64()).expect("a number");
                let args = Args::new().s8("tcp").s32("").u8(1).u32(2).u64(ids[0]).u64(ids[1]);
                let deleted = self.wire.ask("vector_delete_by_filter", args).ok();
                assert_eq!(rest, Some(u32::from_be_bytes(deleted.try_into().expect("four bytes")).into()));
                ("delete by filter".to_owned(), Ok(None), Ok(None))
            }
        }
    }

    fn search(&mut self) {
        let (vector, k) = (self.vector(), self.random.below(12) as u32);
        let filter =
            json!({"op": "gte", "field": "n", "value": {"kind": "int", "int": self.random.below(9)}});
        let body = json!({"query": vector, "k": k, "filter": filter});
        let rest = self.rest("POST", "/v1/collections/rest/points/search/docs", body);
        let args = Args::new().u8(1).s8("tcp").u32(k).vector(&vector).s32(filter.to_string());
        let tcp = self.wire.ask("vector_search_docs", args);
        let documents = match rest {
            Err((_, text)) => return assert_eq!(tcp.error(), text),
            Ok(body) => body["documents"].as_array().expect("documents").clone(),
        };
        let expected = documents.iter().fold(Args::new().u32(documents.len() as u32), |args, document| {
            let distance = document["distance"].as_f64().expect("a number") as f32;
            let args = args.u64(document["id"].as_u64().expect("an id")).bytes(&distance.to_be_bytes());
            args.u32(0).u32(0).s32(if document["metadata"].is_null() {
                String::new()
            } else {
                document["metadata"].to_string()
            })
        });
        assert_eq!(tcp.ok(), expected.0);
    }

    /// Every point, as a search for it and as itself.
    fn compare_points(&mut self) {
        for id in 0..25 {
            let rest = self.rest(
                "GET",
                &format!("/v1/collections/rest/points/{id}?with_vector=true&with_payload=true"),
                Value::Null,
            );
            let tcp = self.wire.ask("vector_get", Args::new().s8("tcp").u64(id).u8(3)).ok();
            let expected = match rest {
                Err((404, _)) => Args::new().u8(0),
                Err(other) => panic!("{other:?}"),
                Ok(point) => {
                    let vector: Vec<f32> = point["vector"]
                        .as_array()
                        .expect("a vector")
                        .iter()
                        .map(|x| x.as_f64().expect("a number") as f32)
                        .collect();
                    let args = Args::new().u8(1).vector(&vector).u64(0);
                    let args = match &point["payload"] {
                        Value::Null => args.u8(0),
                        payload => args.u8(1).s32(payload.to_string()),
                    };
                    args.u8(0).u8(1).u64(point["version"].as_u64().expect("a version"))
                }
            };
            assert_eq!(tcp, expected.0, "point {id}");
        }
    }
}

#[test]
fn both_transports_do_the_same() {
    let server = server();
    let mut both = Both { api: server.api(), wire: server.tcp(), random: SplitMix(23) };
    let config = json!({"dim": DIM, "metric": "l2"});
    both.api.ok("POST", "/v1/collections", json!({"name": "rest", "config": config}));
    let create = Args::new().s8("tcp").u32(DIM as u32).u8(1).u32(16).u32(200).u32(64).i64(0);
    both.wire.ask("vector_create_collection", create.clone()).ok();
    // The same refusals, but for the name.
    let again =
        both.rest("POST", "/v1/collections", json!({"name": "rest", "config": config})).unwrap_err().1;
    assert_eq!(both.wire.ask("vector_create_collection", create).error(), again.replace("rest", "tcp"));
    for step in 0..if nigh_tests::long() { 20_000 } else { 800 } {
        let (what, rest, tcp) = both.write();
        match (&rest, &tcp) {
            (Ok(Some(_)), _) | (Err(_), _) | (_, Err(_)) => assert_eq!(rest, tcp, "step {step}: {what}"),
            (Ok(None), Ok(_)) => {}
        }
        if step % 3 == 0 {
            both.search();
        }
        if step % 100 == 99 {
            both.compare_points();
        }
    }
}
