//! Brief points: what every route that reads shows of them.

use super::{POINTS, Row, Subject, all, binary, even, grouped, ids};
use nigh_tests::Api;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Points with odd ids have a deadline.
pub struct BriefPoints;

fn kind(kind: &str) -> Value {
    json!({"op": "eq", "field": "kind", "value": {"kind": "string", "str": kind}})
}

/// Posts a query of `prefetch` and `more` keys.
fn query(api: &mut Api, name: &str, prefetch: Value, more: Value) -> Value {
    let mut body = json!({"prefetch": prefetch, "k": POINTS});
    for (key, value) in more.as_object().expect("an object") {
        body[key] = value.clone();
    }
    api.ok("POST", &format!("/v1/collections/{name}/query"), body)
}

impl Subject for BriefPoints {
    fn fill(api: &mut Api, name: &str, ttl_ms: u64) {
        let config = json!({"dim": 2, "metric": "l2", "full_text": {}});
        api.ok("POST", "/v1/collections", json!({"name": name, "config": config}));
        let alias = json!({"alias": format!("{name}-alias"), "collection": name});
        api.ok("POST", "/v1/aliases", alias);
        let points: Vec<Value> = (0..POINTS)
            .map(|id| {
                let brief = id % 2 == 1;
                let metadata = json!({
                    "n": {"kind": "int", "int": id},
                    "kind": {"kind": "string", "str": if brief { "brief" } else { "lasting" }},
                });
                json!({"id": id, "vector": [id, 1], "content": format!("word number{id}"), "metadata": metadata,
                    "sparse": {"indices": [1, 100 + id], "values": [1.0 + id as f32, 1]},
                    "ttl_ms": if brief { ttl_ms } else { 0 }})
            })
            .collect();
        api.ok("POST", &format!("/v1/collections/{name}/points/batch"), json!({"points": points}));
    }

    fn table(api: &mut Api, name: &str) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        let points = format!("/v1/collections/{name}/points");
        let mut row = |route: &str, seen| rows.push((route.to_owned(), seen));

        let got = |api: &mut Api, id: &u64| {
            let reply = api.send("GET", &format!("{points}/{id}"), &Value::Null).expect("an answer");
            assert!(matches!(reply.status, 200 | 404), "{}", reply.body);
            reply.status == 200
        };
        row("get", all().into_iter().filter(|id| got(api, id)).collect());
        let batch = api.ok("POST", &format!("{points}/batch-get"), json!({"ids": all()}));
        row("batch-get", ids(&batch["points"]));
        let missing: BTreeSet<u64> =
            batch["missing"].as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
        row("batch-get, missing", missing);

        let plain = json!({"query": [0, 0], "k": POINTS});
        for (route, list) in [("search", "results"), ("search/docs", "documents")] {
            let path = format!("{points}/{route}");
            row(route, ids(&api.ok("POST", &path, plain.clone())[list]));
            row(&format!("{route}, binary"), ids(&binary(api, &path, None)[list]));
            let brief = kind("brief");
            row(&format!("{route}, binary, brief only"), ids(&binary(api, &path, Some(&brief))[list]));
            let filtered = json!({"query": [0, 0], "k": POINTS, "filter": brief});
            row(&format!("{route}, brief only"), ids(&api.ok("POST", &path, filtered)[list]));
        }
        let by_alias = format!("/v1/collections/{name}-alias/points/search");
        row("search by alias", ids(&api.ok("POST", &by_alias, plain)["results"]));
        // Few at a time, so that hidden points must make room for others.
        let few = api.ok("POST", &format!("{points}/search"), json!({"query": [0, 0], "k": POINTS / 2}));
        row("search for the first half", ids(&few["results"]));
        let groups = json!({"query": [0, 0], "k": POINTS, "group_by": "n", "group_size": 2});
        row("groups", grouped(&api.ok("POST", &format!("{points}/search/groups"), groups)));

        let sparse = json!({"indices": [1], "values": [1]});
        let pools = json!({"k": POINTS, "dense_k": POINTS, "sparse_k": POINTS});
        let with = |more: Value| {
            let mut body = pools.clone();
            for (key, value) in more.as_object().expect("an object") {
                body[key] = value.clone();
            }
            body
        };
        for (route, path, body) in [
            ("hybrid", "hybrid", with(json!({"dense": [0, 0], "sparse": sparse}))),
            ("hybrid, sparse only", "hybrid", with(json!({"sparse": sparse}))),
            ("hybrid, dense only", "hybrid", with(json!({"dense": [0, 0]}))),
            ("hybrid-text", "hybrid-text", with(json!({"vector": [0, 0], "text": "word"}))),
            ("hybrid-text, text only", "hybrid-text", with(json!({"text": "word"}))),
        ] {
            row(route, ids(&api.ok("POST", &format!("{points}/search/{path}"), body)["results"]));
        }
        let text = json!({"text": "word", "k": POINTS});
        row("text", ids(&api.ok("POST", &format!("{points}/search/text"), text)["documents"]));
        let rare = json!({"text": "number7", "k": POINTS});
        row("text, a brief word", ids(&api.ok("POST", &format!("{points}/search/text"), rare)["documents"]));

        let k = json!({});
        let lane = |source: &str, value: Value| json!([{source: value, "k": POINTS, "lane_k": POINTS}]);
        let context = json!([{"positive": 0, "negative": 2}]);
        for (route, lanes) in [
            ("query dense", lane("dense", json!([0, 0]))),
            ("query sparse", lane("sparse", sparse.clone())),
            ("query recommend", lane("recommend", json!({"positive": [0]}))),
            (
                "query recommend by best score",
                lane("recommend", json!({"positive": [0], "strategy": "best_score"})),
            ),
            ("query discover", lane("discover", json!({"target": 0, "context": context}))),
            ("query discover from pairs", lane("discover", json!({"context": context}))),
        ] {
            row(route, ids(&query(api, name, lanes.clone(), k.clone())["results"]));
            let filtered = {
                let mut lanes = lanes;
                lanes[0]["filter"] = kind("brief");
                lanes
            };
            let brief = query(api, name, filtered, k.clone());
            row(&format!("{route}, brief only"), ids(&brief["results"]));
        }
        let both = json!([{"dense": [0, 0], "lane_k": POINTS}, {"sparse": sparse, "lane_k": POINTS}]);
        row("query fused", ids(&query(api, name, both.clone(), k.clone())["results"]));
        let rerank = json!({"mode": "rerank", "root": {"sparse": sparse}});
        row("query reranked", ids(&query(api, name, both.clone(), rerank)["results"]));
        row("query grouped", grouped(&query(api, name, both, json!({"group_by": "n"}))));

        let scroll = format!("{points}/scroll");
        row("scroll", ids(&api.ok("POST", &scroll, json!({}))["documents"]));
        let brief = json!({"filter": kind("brief")});
        row("scroll, brief only", ids(&api.ok("POST", &scroll, brief)["documents"]));
        let order = json!({"key": "n", "desc": true});
        row("scroll ordered", ids(&api.ok("POST", &scroll, json!({"order_by": order}))["documents"]));
        for (route, mut body) in [
            ("scroll by pages", json!({"limit": 7})),
            ("scroll ordered by pages", json!({"limit": 7, "order_by": order})),
        ] {
            let mut seen = BTreeSet::new();
            loop {
                let page = api.ok("POST", &scroll, body.clone());
                seen.extend(ids(&page["documents"]));
                match page["next_cursor"].as_str() {
                    None | Some("") => break,
                    Some(cursor) => body["cursor"] = json!(cursor),
                }
            }
            row(route, seen);
        }
        let sample = api.ok("POST", &format!("{points}/sample"), json!({"limit": 1000, "seed": 7}));
        row("sample", ids(&sample["documents"]));

        // Counts as so many ids, to stand in the same table.
        let number = |count: &Value| (0..count.as_u64().expect("a count")).collect::<BTreeSet<u64>>();
        let count = api.ok("POST", &format!("{points}/count"), json!({}));
        row("count", number(&count["count"]));
        let count = api.ok("POST", &format!("{points}/count"), json!({"filter": kind("brief")}));
        row("count, brief only", number(&count["count"]));
        let facets = api.ok("POST", &format!("{points}/facet"), json!({"key": "kind"}));
        let facet = facets["facets"].as_array().expect("a list").iter();
        let brief = facet.clone().find(|facet| facet["value"]["str"] == "brief");
        row("facet, brief", brief.map_or_else(BTreeSet::new, |facet| number(&facet["count"])));

        // Examples: an expired one is as one that never was.
        let found = |api: &mut Api, source: &str, value: Value| {
            let body = json!({"prefetch": [{source: value}]});
            let reply = api.send("POST", &format!("/v1/collections/{name}/query"), &body).expect("an answer");
            match reply.status {
                200 => BTreeSet::from([1]),
                404 => BTreeSet::new(),
                status => panic!("{status} {}", reply.body),
            }
        };
        let brief_context = json!([{"positive": 1, "negative": 2}]);
        row("example of recommend", found(api, "recommend", json!({"positive": [1]})));
        row("target of discover", found(api, "discover", json!({"target": 1, "context": context})));
        row("pair of discover", found(api, "discover", json!({"target": 0, "context": brief_context})));
        rows
    }

    fn expected(route: &str, alive: bool) -> BTreeSet<u64> {
        let brief: BTreeSet<u64> = if alive { &all() - &even() } else { BTreeSet::new() };
        let visible = if alive { all() } else { even() };
        let first = |count: u64| -> BTreeSet<u64> { (0..count).collect() };
        // An example is never among what it recommends.
        let without_example = |mut ids: BTreeSet<u64>| {
            ids.remove(&0);
            ids
        };
        match route {
            "batch-get, missing" => &all() - &visible,
            "search for the first half" => {
                if alive {
                    first(POINTS / 2)
                } else {
                    even()
                }
            }
            "text, a brief word" => {
                if alive {
                    BTreeSet::from([7])
                } else {
                    BTreeSet::new()
                }
            }
            "example of recommend" | "target of discover" | "pair of discover" => {
                if alive {
                    BTreeSet::from([1])
                } else {
                    BTreeSet::new()
                }
            }
            "count" => first(visible.len() as u64),
            "count, brief only" | "facet, brief" => first(brief.len() as u64),
            _ if route.ends_with("brief only") => brief,
            _ if route.starts_with("query recommend") => without_example(visible),
            _ => visible,
        }
    }

    fn afterwards(api: &mut Api, name: &str) {
        let points = format!("/v1/collections/{name}/points");
        // One that is gone among several counts for nothing.
        let examples = |negative: Value| {
            let recommend = json!({"positive": [0], "negative": negative});
            json!([{"recommend": recommend, "k": POINTS, "lane_k": POINTS}])
        };
        let with_expired = query(api, name, examples(json!([1])), json!({}));
        assert_eq!(with_expired["results"], query(api, name, examples(json!([])), json!({}))["results"]);
        // Writes see it as absent, too.
        let send = |api: &mut Api, method: &str, path: &str, body: Value| {
            api.send(method, &format!("{points}{path}"), &body).expect("an answer")
        };
        let change = json!({"a": {"kind": "int", "int": 1}});
        assert_eq!(send(api, "POST", "/1/payload", change).status, 404);
        assert_eq!(send(api, "POST", "/1/payload/clear", Value::Null).status, 404);
        assert_eq!(send(api, "DELETE", "/3", Value::Null).body, json!({"deleted": false}));
        assert_eq!(send(api, "DELETE", "/3?expected_version=1", Value::Null).status, 409);
        let deleted = send(api, "POST", "/delete", json!({"filter": kind("brief")}));
        assert_eq!(deleted.body, json!({"deleted": 0}));
        // A new point under an id that expired is a new point, with a version that none before it had.
        let anew = json!({"id": 1, "vector": [1, 1], "expected_version": 0});
        assert_eq!(send(api, "POST", "", anew).status, 200);
        let stored = api.ok("GET", &format!("{points}/1"), Value::Null);
        assert_eq!((&stored["version"], &stored["ttl_ms"]), (&json!(2), &json!(0)));
        assert_eq!(stored["payload"], Value::Null);
    }
}
