//! Filters as clients of the three front ends send them, to one node that has all of them.
use crate::common::grpc::GrpcClient;
use crate::common::server::{Client, options};
use nigh_net::auth::Open;
use nigh_net::grpc::{self, GrpcConfig};
use nigh_net::metrics::Telemetry;
use nigh_net::tcp::{self, TcpConfig};
use nigh_net::{HttpConfig, bind, serve};
use nigh_shard::cores::Placement;
use nigh_shard::start::{Node, Serve};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const POINTS: u64 = 600;
/// The code of gRPC for what is wrong with a request.
const INVALID_ARGUMENT: u32 = 3;

/// A node, and a client of each front end.
struct Everywhere {
    node: Option<Node>,
    rest: Client,
    tcp: TcpStream,
    grpc: GrpcClient,
}

impl Drop for Everywhere {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            node.stop().unwrap();
        }
    }
}

impl Everywhere {
    fn start() -> Everywhere {
        let sockets = [(); 3].map(|()| bind("127.0.0.1:0", 2).unwrap());
        let [rest, tcp, grpc] = [0, 1, 2].map(|of: usize| sockets[of][0].local_addr().unwrap());
        let telemetry = Arc::new(Telemetry::new(2));
        let http = HttpConfig::new(Arc::new(Open), telemetry.clone());
        let binary = TcpConfig::new(Arc::new(Open), telemetry.clone());
        let calls = GrpcConfig::new(Arc::new(Open), telemetry);
        let sockets = Mutex::new(sockets);
        let serving: Serve = Arc::new(move |core| {
            let [rest, tcp, grpc] = sockets.lock().unwrap().each_mut().map(|of| of.pop().unwrap());
            let (http, binary, calls) =
                (Rc::new(http.clone()), Rc::new(binary.clone()), Rc::new(calls.clone()));
            Box::pin(async move {
                let rest = serve(core.clone(), rest, http);
                let tcp = tcp::serve(core.clone(), tcp, binary);
                let grpc = grpc::serve(core, grpc, calls);
                let both = futures_lite::future::zip(rest, tcp);
                let ((rest, tcp), grpc) = futures_lite::future::zip(both, grpc).await;
                rest.and(tcp).and(grpc).unwrap();
            })
        });
        let node = Node::start(options(), &Placement::unpinned(2), serving).unwrap();
        let tcp = TcpStream::connect(tcp).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let mut here = Everywhere {
            node: Some(node),
            rest: Client::connect(rest),
            tcp,
            grpc: GrpcClient::connect(grpc),
        };
        here.rest.create("f", 2, "l2");
        let points: Vec<Value> = (0..POINTS).map(point).collect();
        here.rest.json("POST", "/v1/collections/f/points/batch", json!({ "points": points }));
        here
    }

    /// Status and content of the answer to a search of the binary protocol for all that matches.
    fn tcp_search(&mut self, filter: &str) -> (u8, Vec<u8>) {
        let mut args = vec![1, 1, b'f'];
        args.extend((POINTS as u32).to_be_bytes());
        args.extend([0, 0, 0, 2].iter().chain(&[0; 8]));
        args.extend((filter.len() as u32).to_be_bytes());
        args.extend(filter.as_bytes());
        self.tcp_ask("vector_search", &args)
    }

    fn tcp_ask(&mut self, operation: &str, args: &[u8]) -> (u8, Vec<u8>) {
        let mut body = vec![operation.len() as u8];
        body.extend(operation.as_bytes());
        body.extend((args.len() as u32).to_be_bytes());
        body.extend(args);
        self.tcp.write_all(&(body.len() as u32).to_be_bytes()).unwrap();
        self.tcp.write_all(&body).unwrap();
        let mut head = [0; 9];
        self.tcp.read_exact(&mut head).unwrap();
        let mut content = vec![0; u32::from_be_bytes(head[5..].try_into().unwrap()) as usize];
        self.tcp.read_exact(&mut content).unwrap();
        (head[4], content)
    }

    /// Whether a filter finds these points, by every front end, and by every operation of REST that takes one.
    #[track_caller]
    fn finds(&mut self, filter: Value, expected: impl Fn(u64) -> bool) {
        let expected: BTreeSet<u64> = (0..POINTS).filter(|id| expected(*id)).collect();
        let ids = |answer: &Value, key: &str| -> BTreeSet<u64> {
            let id = |point: &Value| point["id"].as_u64().unwrap_or(0);
            answer[key].as_array().into_iter().flatten().map(id).collect()
        };
        let path = |route: &str| format!("/v1/collections/f/points/{route}");
        let search = json!({"query": [0, 0], "k": POINTS, "filter": filter});
        assert_eq!(ids(&self.rest.json("POST", &path("search"), search), "results"), expected, "{filter}");
        let page = self.rest.json("POST", &path("scroll"), json!({ "filter": filter }));
        assert_eq!(ids(&page, "documents"), expected, "{filter}");
        let count = self.rest.json("POST", &path("count"), json!({ "filter": filter }));
        assert_eq!(count, json!({"count": expected.len()}), "{filter}");

        let request = json!({"collection": "f", "query": [0.0, 0.0], "k": POINTS,
            "filter_json": filter.to_string()});
        assert_eq!(ids(&self.grpc.call("Search", request).unwrap(), "results"), expected, "{filter}");

        let (status, hits) = self.tcp_search(&filter.to_string());
        assert_eq!(status, 0, "{}", String::from_utf8_lossy(&hits));
        let found = hits[4..].chunks(12).map(|hit| u64::from_be_bytes(hit[..8].try_into().unwrap()));
        assert_eq!(found.collect::<BTreeSet<u64>>(), expected, "{filter}");
    }

    /// Expects every front end to refuse a filter with a sentence that holds `fragment`.
    #[track_caller]
    fn refuses(&mut self, filter: &str, fragment: &str) {
        let search = format!(r#"{{"query":[0,0],"k":1,"filter":{filter}}}"#);
        self.rest.refused("POST", "/v1/collections/f/points/search", &search, 400, fragment);
        let request = json!({"collection": "f", "query": [0.0, 0.0], "k": 1, "filter_json": filter});
        self.grpc.refused("Search", request, INVALID_ARGUMENT, fragment);
        let (status, told) = self.tcp_search(filter);
        let told = String::from_utf8_lossy(&told);
        assert!(status != 0 && told.contains(fragment), "{filter}: {told} lacks {fragment}");
    }
}

/// Some points have no `n`, some have null there, and some an empty list.
fn point(id: u64) -> Value {
    let mut metadata = json!({"m": id % 5, "even": id.is_multiple_of(2)});
    match id % 4 {
        0 => {}
        1 => metadata["n"] = Value::Null,
        2 => metadata["n"] = json!({"kind": "strings"}),
        _ => metadata["n"] = json!(id),
    }
    json!({"id": id, "vector": [id, 1], "metadata": metadata})
}

#[test]
fn conditions_are_the_same_everywhere() {
    let mut here = Everywhere::start();
    let exists = json!({"op": "exists", "field": "n"});
    here.finds(exists.clone(), |id| id % 4 >= 2);
    here.finds(json!({"op": "not", "not": exists.clone()}), |id| id % 4 < 2);
    let ids = json!([3, 4, 599, 600, u64::MAX]);
    here.finds(json!({"op": "has_id", "has_id": ids}), |id| [3, 4, 599].contains(&id));
    let some = json!({"op": "has_id", "has_id": (100..400).collect::<Vec<u64>>()});
    let even = json!({"op": "eq", "field": "even", "value": true});
    here.finds(json!({"op": "and", "and": [even.clone(), some.clone()]}), |id| {
        (100..400).contains(&id) && id.is_multiple_of(2)
    });
    here.finds(json!({"op": "and", "and": [exists.clone(), {"op": "not", "not": some}]}), |id| {
        id % 4 >= 2 && !(100..400).contains(&id)
    });
    here.finds(json!({"op": "has_id", "has_id": []}), |_| false);
    here.refuses(r#"{"op":"has_id","has_id":[1,-2]}"#, r#"field "has_id": "#);
    here.refuses(r#"{"op":"has_id","value":[1]}"#, r#"key "value" does not belong to op "has_id""#);
    here.refuses(r#"{"op":"has_id"}"#, r#"invalid filter: op "has_id" needs a list of ids in "has_id""#);
    let many = json!({"op": "not", "not": {"op": "has_id", "has_id": vec![1; 10_001]}}).to_string();
    here.refuses(&many, "more than 10000 ids in a list");
    let lists = vec![json!({"op": "has_id", "has_id": vec![1; 5_001]}); 2];
    let many = json!({"op": "or", "or": lists}).to_string();
    here.refuses(&many, r#"more than 10000 ids in "has_id" of one filter"#);
    let m = json!({"op": "lt", "field": "m", "value": 2});
    let some = |min_count: u64, more: &[Value]| {
        let conditions = [&[exists.clone(), even.clone(), m.clone()], more].concat();
        json!({"op": "min_should", "min_should": {"conditions": conditions, "min_count": min_count}})
    };
    let held = |id: u64| u64::from(id % 4 >= 2) + u64::from(id.is_multiple_of(2)) + u64::from(id % 5 < 2);
    for min_count in 1..=3 {
        here.finds(some(min_count, &[]), |id| held(id) >= min_count);
        let others = json!({"op": "not", "not": some(min_count, &[])});
        here.finds(others, |id| held(id) < min_count);
    }
    let listed = json!({"op": "has_id", "has_id": (0..90).collect::<Vec<u64>>()});
    here.finds(some(3, &[listed]), |id| held(id) + u64::from(id < 90) >= 3);
    here.refuses(
        &some(4, &[]).to_string(),
        r#"min_count 4 of op "min_should" is not one of 1 to 3, the number of its conditions"#,
    );
    here.refuses(&some(0, &[]).to_string(), "min_count 0");
    here.refuses(
        r#"{"op":"min_should","min_should":{"min_count":1}}"#,
        r#"op "min_should" needs a list of "conditions""#,
    );
    here.refuses(
        &some(1, &[json!({"op": "in", "field": "n", "value": true})]).to_string(),
        r#"invalid filter: min_should.conditions[3]: op "in" needs a value"#,
    );
    here.refuses(r#"{"op":"exists"}"#, r#"invalid filter: op "exists" needs a field"#);
    here.refuses(
        r#"{"op":"exists","field":"n","value":true}"#,
        r#"invalid filter: key "value" does not belong to op "exists""#,
    );
}

/// Pages of the points of a list, in the order of ids, and what is deleted by one.
#[test]
fn lists_of_ids_are_paged_and_deleted() {
    let mut here = Everywhere::start();
    let path = |route: &str| format!("/v1/collections/f/points/{route}");
    let listed: Vec<u64> = (0..200).map(|n| (n * 7919) % 900).collect();
    let expected: BTreeSet<u64> = listed.iter().copied().filter(|id| *id < POINTS).collect();
    let filter = json!({"op": "has_id", "has_id": listed});
    for limit in [1, 7, 1000] {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let body = json!({"limit": limit, "cursor": cursor, "filter": filter});
            let page = here.rest.json("POST", &path("scroll"), body);
            let documents = page["documents"].as_array().unwrap();
            assert!(documents.len() <= limit);
            found.extend(documents.iter().map(|point| point["id"].as_u64().unwrap()));
            cursor = page["next_cursor"].as_str().unwrap_or("").to_owned();
            if cursor.is_empty() {
                break;
            }
        }
        assert!(found.iter().eq(&expected), "{limit}: {found:?}");
    }
    let few = json!({"op": "has_id", "has_id": [1, 2, 3, 4_000]});
    let search = json!({"query": [0, 0], "k": 5, "explain": true, "filter": few});
    let lane = &here.rest.json("POST", &path("search"), search)["explain"]["lanes"][0];
    assert_eq!((&lane["plan"], &lane["distances"]), (&json!("points"), &json!(3)), "{lane}");
    let deleted = here.rest.json("POST", &path("delete"), json!({ "filter": filter }));
    assert_eq!(deleted, json!({"deleted": expected.len()}));
    here.finds(filter, |_| false);
    here.finds(json!({}), |id| !expected.contains(&id));
    // Nobody means that: it holds for all points.
    let all = json!({"filter": {"op": "not", "not": {"op": "has_id", "has_id": []}}}).to_string();
    here.rest.refused("POST", &path("delete"), &all, 400, "filter");
}
