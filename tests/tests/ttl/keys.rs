//! Brief payload keys, and brief contents: what every route that reads shows of them.

use super::{POINTS, Row, Subject, all, binary, even, grouped, ids};
use nigh_tests::Api;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Every point has the key `brief`; that of points with odd ids has a deadline.
pub struct BriefKeys;

/// Every point has a content; that of points with odd ids has a deadline.
pub struct BriefContents;

fn fill(api: &mut Api, name: &str, key: &str, ttl_ms: u64) {
    let config = json!({"dim": 2, "metric": "l2", "full_text": {}});
    api.ok("POST", "/v1/collections", json!({"name": name, "config": config}));
    let points: Vec<Value> = (0..POINTS)
        .map(|id| {
            let number = json!({"kind": "int", "int": id});
            let brief = if id % 2 == 1 { json!({key: ttl_ms}) } else { json!({}) };
            json!({"id": id, "vector": [id, 1], "content": format!("word number{id}"), "key_ttl_ms": brief,
                "metadata": {"n": number, "brief": number}})
        })
        .collect();
    api.ok("POST", &format!("/v1/collections/{name}/points/batch"), json!({"points": points}));
}

/// Ids of the elements of which `shows` holds.
fn showing(list: &Value, shows: impl Fn(&Value) -> bool) -> BTreeSet<u64> {
    let list = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    list.iter().filter(|one| shows(one)).map(|one| one["id"].as_u64().expect("an integer id")).collect()
}

/// The routes that return points whole, and which of them `in_payload` or `in_document` holds of.
fn whole(
    api: &mut Api,
    name: &str,
    in_payload: fn(&Value) -> bool,
    in_document: fn(&Value) -> bool,
) -> Vec<Row> {
    let points = format!("/v1/collections/{name}/points");
    let mut rows: Vec<Row> = Vec::new();
    let mut row = |route: &str, seen| rows.push((route.to_owned(), seen));
    let got = all()
        .into_iter()
        .filter(|id| in_payload(&api.ok("GET", &format!("{points}/{id}"), Value::Null)["payload"]));
    row("get", got.collect());
    let batch = api.ok("POST", &format!("{points}/batch-get"), json!({"ids": all()}));
    row("batch-get", showing(&batch["points"], |point| in_payload(&point["payload"])));
    let plain = json!({"query": [0, 0], "k": POINTS});
    let docs = format!("{points}/search/docs");
    row("docs", showing(&api.ok("POST", &docs, plain)["documents"], in_document));
    row("docs, binary", showing(&binary(api, &docs, None)["documents"], in_document));
    let groups = json!({"query": [0, 0], "k": POINTS, "group_by": "n"});
    let groups = api.ok("POST", &format!("{points}/search/groups"), groups);
    let hits = groups["groups"].as_array().expect("groups").iter();
    row("groups", hits.flat_map(|group| showing(&group["hits"], in_document)).collect());
    let scroll = format!("{points}/scroll");
    row("scroll", showing(&api.ok("POST", &scroll, json!({}))["documents"], in_document));
    let ordered = json!({"order_by": {"key": "n"}});
    row("scroll ordered", showing(&api.ok("POST", &scroll, ordered)["documents"], in_document));
    let sample = api.ok("POST", &format!("{points}/sample"), json!({"limit": 1000, "seed": 7}));
    row("sample", showing(&sample["documents"], in_document));
    rows
}

/// The routes that take a filter, and what they find by `filter`.
fn filtered(api: &mut Api, name: &str, filter: &Value) -> Vec<Row> {
    let points = format!("/v1/collections/{name}/points");
    let mut rows: Vec<Row> = Vec::new();
    let mut row = |route: &str, seen| rows.push((format!("{route}, filtered"), seen));
    for (route, list, body) in [
        ("search", "results", json!({"query": [0, 0]})),
        ("search/docs", "documents", json!({"query": [0, 0]})),
        ("search/hybrid", "results", json!({"dense": [0, 0]})),
        ("search/hybrid-text", "results", json!({"vector": [0, 0], "text": ""})),
    ] {
        let mut body = body;
        body["k"] = json!(POINTS);
        body["filter"] = filter.clone();
        row(route, ids(&api.ok("POST", &format!("{points}/{route}"), body)[list]));
    }
    row("search, binary", ids(&binary(api, &format!("{points}/search"), Some(filter))["results"]));
    let groups = json!({"query": [0, 0], "k": POINTS, "group_by": "n", "filter": filter});
    row("groups", grouped(&api.ok("POST", &format!("{points}/search/groups"), groups)));
    let lanes = json!({"prefetch": [{"dense": [0, 0], "lane_k": POINTS, "filter": filter}], "k": POINTS});
    row("query", ids(&api.ok("POST", &format!("/v1/collections/{name}/query"), lanes)["results"]));
    let scroll = format!("{points}/scroll");
    row("scroll", ids(&api.ok("POST", &scroll, json!({"filter": filter}))["documents"]));
    let ordered = json!({"filter": filter, "order_by": {"key": "n"}});
    row("scroll ordered", ids(&api.ok("POST", &scroll, ordered)["documents"]));
    let sample = json!({"filter": filter, "limit": 1000});
    row("sample", ids(&api.ok("POST", &format!("{points}/sample"), sample)["documents"]));
    let count = api.ok("POST", &format!("{points}/count"), json!({"filter": filter}));
    row("count", (0..count["count"].as_u64().expect("a count")).collect());
    rows
}

/// Renames the routes of a table.
fn named(rows: Vec<Row>, suffix: &str) -> impl Iterator<Item = Row> {
    rows.into_iter().map(move |(route, seen)| (format!("{route}{suffix}"), seen))
}

fn expected(route: &str, alive: bool) -> BTreeSet<u64> {
    let visible = if alive { all() } else { even() };
    let counted =
        |ids: BTreeSet<u64>| if route.starts_with("count") { (0..ids.len() as u64).collect() } else { ids };
    if route.ends_with("by absence") { counted(&all() - &visible) } else { counted(visible) }
}

impl Subject for BriefKeys {
    fn fill(api: &mut Api, name: &str, ttl_ms: u64) {
        fill(api, name, "brief", ttl_ms);
    }

    fn table(api: &mut Api, name: &str) -> Vec<Row> {
        let points = format!("/v1/collections/{name}/points");
        let mut rows = whole(
            api,
            name,
            |payload| payload.get("brief").is_some(),
            |doc| doc["metadata"].get("brief").is_some(),
        );
        let present = json!({"op": "gte", "field": "brief", "value": {"kind": "int", "int": 0}});
        rows.extend(filtered(api, name, &present));
        let absent = json!({"op": "is_empty", "field": "brief"});
        rows.extend(named(filtered(api, name, &absent), " by absence"));
        let text = json!({"text": "word", "k": POINTS});
        let text = api.ok("POST", &format!("{points}/search/text"), text);
        rows.push(("text".into(), showing(&text["documents"], |doc| doc["metadata"].get("brief").is_some())));
        let text = json!({"text": "word", "k": POINTS, "filter": present});
        let text = api.ok("POST", &format!("{points}/search/text"), text);
        rows.push(("text, filtered".into(), ids(&text["documents"])));

        let groups = json!({"query": [0, 0], "k": POINTS, "group_by": "brief"});
        let groups = api.ok("POST", &format!("{points}/search/groups"), groups);
        rows.push(("groups by it".into(), grouped(&groups)));
        let query =
            json!({"prefetch": [{"dense": [0, 0], "lane_k": POINTS}], "k": POINTS, "group_by": "brief"});
        let query = api.ok("POST", &format!("/v1/collections/{name}/query"), query);
        rows.push(("query grouped by it".into(), grouped(&query)));
        for (route, limit) in [("scroll ordered by it", 0), ("scroll ordered by it, one page", POINTS)] {
            let body = json!({"order_by": {"key": "brief"}, "limit": limit});
            rows.push((route.into(), ids(&api.ok("POST", &format!("{points}/scroll"), body)["documents"])));
        }
        let facets = api.ok("POST", &format!("{points}/facet"), json!({"key": "brief", "limit": 1000}));
        let facets = facets["facets"].as_array().expect("a list").iter();
        let values = facets.map(|facet| facet["value"]["int"].as_u64().unwrap_or_default());
        rows.push(("facet".into(), values.collect()));
        rows
    }

    fn expected(route: &str, alive: bool) -> BTreeSet<u64> {
        expected(route, alive)
    }

    fn afterwards(api: &mut Api, name: &str) {
        let points = format!("/v1/collections/{name}/points");
        // Only odd ones could match, and they have lost the key.
        let odd = json!({"op": "in", "field": "brief", "value": {"kind": "ints", "ints": [1, 3, 5]}});
        let deleted = api.ok("POST", &format!("{points}/delete"), json!({"filter": odd}));
        assert_eq!(deleted, json!({"deleted": 0}));
        // Writing the key anew does not revive the old deadline, nor is it hidden by it.
        api.ok("POST", &format!("{points}/1/payload"), json!({"brief": {"kind": "int", "int": 77}}));
        let stored = api.ok("GET", &format!("{points}/1"), Value::Null);
        assert_eq!(stored["payload"]["brief"], json!({"kind": "int", "int": 77}));
        // Nor does writing another key bring it back.
        api.ok("POST", &format!("{points}/3/payload"), json!({"other": {"kind": "int", "int": 1}}));
        let stored = api.ok("GET", &format!("{points}/3"), Value::Null);
        assert_eq!(stored["payload"].get("brief"), None, "{stored}");
    }
}

impl Subject for BriefContents {
    fn fill(api: &mut Api, name: &str, ttl_ms: u64) {
        fill(api, name, "$content", ttl_ms);
    }

    fn table(api: &mut Api, name: &str) -> Vec<Row> {
        let points = format!("/v1/collections/{name}/points");
        let mut rows =
            whole(api, name, |payload| payload.get("$content").is_some(), |doc| doc["content"] != json!(""));
        let words = json!({"op": "match", "field": "$content", "value": {"kind": "string", "str": "word"}});
        rows.extend(filtered(api, name, &words));
        let absent = json!({"op": "is_empty", "field": "$content"});
        rows.extend(named(filtered(api, name, &absent), " by absence"));
        let text = json!({"text": "word", "k": POINTS});
        rows.push(("text".into(), ids(&api.ok("POST", &format!("{points}/search/text"), text)["documents"])));
        let hybrid = json!({"text": "word", "k": POINTS, "sparse_k": POINTS});
        let hybrid = api.ok("POST", &format!("{points}/search/hybrid-text"), hybrid);
        rows.push(("hybrid-text".into(), ids(&hybrid["results"])));
        rows
    }

    fn expected(route: &str, alive: bool) -> BTreeSet<u64> {
        expected(route, alive)
    }

    fn afterwards(api: &mut Api, name: &str) {
        let path = format!("/v1/collections/{name}/points/search/text");
        let found = api.ok("POST", &path, json!({"text": "number3", "k": 5}));
        assert_eq!(found["documents"], json!([]));
    }
}
