//! Scrolling in the order of payload values, against a sorted list.
use crate::common::server::{Client, SHARED};
use serde_json::{Value, json};

const SCROLL: &str = "/v1/collections/ordered/points/scroll";

/// Number, time and text of a point, each missing at some.
fn values(id: u64) -> (Option<f64>, Option<i64>, Option<String>) {
    let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (
        (!mixed.is_multiple_of(7))
            .then(|| (mixed % 50) as f64 / if mixed.is_multiple_of(2) { 1.0 } else { 4.0 }),
        (!mixed.is_multiple_of(5)).then(|| 1_700_000_000_000 + (mixed % 100) as i64 * 3_600_000),
        (!mixed.is_multiple_of(3)).then(|| format!("t{}", mixed % 40)),
    )
}

fn pages(client: &mut Client, body: &Value, limit: usize) -> Vec<u64> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let mut body = body.clone();
        (body["limit"], body["cursor"]) = (json!(limit), json!(cursor));
        let page = client.json("POST", SCROLL, body);
        let documents = page["documents"].as_array().unwrap();
        found.extend(documents.iter().map(|document| document["id"].as_u64().unwrap()));
        cursor = page["next_cursor"].as_str().unwrap().to_owned();
        if cursor.is_empty() {
            assert!(limit == 0 || documents.len() <= limit);
            return found;
        }
        assert_eq!(documents.len(), limit, "a cursor means a full page and more");
    }
}

#[test]
fn pages_in_order_of_values() {
    let mut client = SHARED.client();
    client.create("ordered", 1, "l2");
    const COUNT: u64 = 1200;
    let points: Vec<Value> = (0..COUNT)
        .map(|id| {
            let (number, time, text) = values(id);
            let mut metadata = json!({"all": id, "arr": ["x"], "flag": true});
            if let Some(number) = number {
                // Integers and floats in one order.
                metadata["n"] = if number.fract() == 0.0 { json!(number as i64) } else { json!(number) };
            }
            if let Some(time) = time {
                metadata["at"] = json!(time);
            }
            if let Some(text) = text {
                metadata["t"] = json!(text);
            }
            json!({"id": id, "vector": [0], "metadata": metadata})
        })
        .collect();
    client.json("POST", "/v1/collections/ordered/points/batch", json!({ "points": points }));

    type Key = Box<dyn Fn(u64) -> Option<Vec<u8>>>;
    let number = || -> Key { Box::new(|id| values(id).0.map(|n| ((n * 4.0) as u64).to_be_bytes().to_vec())) };
    let time = || -> Key { Box::new(|id| values(id).1.map(|t| t.to_be_bytes().to_vec())) };
    let text = || -> Key { Box::new(|id| values(id).2.map(String::into_bytes)) };
    let sorted = |keys: &[(Key, bool)], keep: &dyn Fn(u64) -> bool| {
        let mut ids: Vec<u64> =
            (0..COUNT).filter(|&id| keep(id) && keys.iter().all(|(key, _)| key(id).is_some())).collect();
        ids.sort_by(|&a, &b| {
            let by = |(key, desc): &(Key, bool)| {
                if *desc { key(b).cmp(&key(a)) } else { key(a).cmp(&key(b)) }
            };
            keys.iter().map(by).fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then).then(a.cmp(&b))
        });
        ids
    };
    for desc in [false, true] {
        let cases = [
            (json!({"key": "n", "desc": desc}), sorted(&[(number(), desc)], &|_| true)),
            (json!({"key": "at", "desc": desc, "is_datetime": true}), sorted(&[(time(), desc)], &|_| true)),
            (json!({"key": "t", "desc": desc, "is_string": true}), sorted(&[(text(), desc)], &|_| true)),
            (
                json!({"key": "t", "desc": desc, "is_string": true, "tail_keys": [{"key": "at", "is_datetime": true}, {"key": "n", "desc": !desc}]}),
                sorted(&[(text(), desc), (time(), false), (number(), !desc)], &|_| true),
            ),
            (
                json!({"key": "n", "desc": desc, "start_from": 10}),
                sorted(&[(number(), desc)], &|id| {
                    values(id).0.is_some_and(|n| if desc { n <= 10.0 } else { n >= 10.0 })
                }),
            ),
            (
                json!({"key": "at", "desc": desc, "is_datetime": true, "start_from": "2023-11-16T00:00:00+01:00"}),
                sorted(&[(time(), desc)], &|id| {
                    let start = 1_700_089_200_000;
                    values(id).1.is_some_and(|t| if desc { t <= start } else { t >= start })
                }),
            ),
            // Ignored beside further keys.
            (
                json!({"key": "n", "desc": desc, "start_from": 10, "tail_keys": [{"key": "at"}]}),
                sorted(&[(number(), desc), (time(), false)], &|_| true),
            ),
            (json!({"key": "arr", "desc": desc, "is_string": true}), Vec::new()),
            (json!({"key": "flag", "desc": desc}), Vec::new()),
            (json!({"key": "none", "desc": desc}), Vec::new()),
        ];
        for (order, expected) in cases {
            for limit in [0, 97, 600] {
                assert_eq!(
                    pages(&mut client, &json!({"order_by": order}), limit),
                    expected,
                    "{order} by {limit}"
                );
            }
        }
        let filter = json!({"op": "lt", "field": "all", "value": 300});
        let body = json!({"order_by": {"key": "n", "desc": desc}, "filter": filter});
        assert_eq!(pages(&mut client, &body, 50), sorted(&[(number(), desc)], &|id| id < 300));
    }

    let first = json!({"order_by": {"key": "n"}, "limit": 1});
    let page = client.json("POST", SCROLL, first);
    assert_eq!(page["documents"][0]["distance"], 0.0);
    assert!(page["documents"][0]["metadata"]["all"].is_object(), "whole documents");
    let cursor = page["next_cursor"].as_str().unwrap().to_owned();
    let by_id = client.json("POST", SCROLL, json!({"limit": 1}))["next_cursor"].as_str().unwrap().to_owned();
    for (body, fragment) in [
        (json!({"cursor": cursor}), "order_by"),
        (json!({"cursor": by_id, "order_by": {"key": "n"}}), "another order_by"),
        (json!({"cursor": cursor, "order_by": {"key": "at"}}), "another order_by"),
        (json!({"cursor": cursor, "order_by": {"key": "n", "desc": true}}), "another order_by"),
        (json!({"cursor": cursor, "order_by": {"key": "n", "is_string": true}}), "another order_by"),
        (
            json!({"cursor": cursor, "order_by": {"key": "n", "tail_keys": [{"key": "at"}]}}),
            "another order_by",
        ),
        (json!({"cursor": "AgAA", "order_by": {"key": "n"}}), "cursor"),
        (json!({"cursor": "?", "order_by": {"key": "n"}}), "malformed scroll cursor"),
        (json!({"order_by": {}}), "the key is empty"),
        (json!({"order_by": {"key": "n", "is_string": true, "start_from": 1}}), "start_from"),
        (json!({"order_by": {"key": "n", "is_string": true, "is_datetime": true}}), "is_datetime"),
        (json!({"order_by": {"key": "n", "start_from": "noon"}}), "start_from"),
        (json!({"order_by": {"key": "n", "by": 1}}), "unknown field"),
        (json!({"order_by": "n"}), "order_by"),
        // What the key holds is not what the order asks for.
        (json!({"order_by": {"key": "t"}}), "key \"t\" holds strings; is_string orders by their bytes"),
        (json!({"order_by": {"key": "n", "is_string": true}}), "key \"n\" holds numbers"),
    ] {
        client.refused("POST", SCROLL, &body.to_string(), 400, fragment);
    }
    // Times as text stand among those that are numbers.
    client.create("timed", 1, "l2");
    let times =
        [(1, json!("1970-01-01T02:00:00+02:00")), (2, json!(5)), (3, json!("1970-01-01T00:00:00.003Z"))];
    for (id, at) in times {
        let point = json!({"id": id, "vector": [0], "metadata": {"at": at}});
        client.json("POST", "/v1/collections/timed/points", point);
    }
    let body = json!({"order_by": {"key": "at", "desc": true, "is_datetime": true}});
    let page = client.json("POST", "/v1/collections/timed/points/scroll", body);
    let found: Vec<_> = page["documents"].as_array().unwrap().iter().map(|doc| doc["id"].clone()).collect();
    assert_eq!(found, [2, 3, 1]);
    let filter = json!({"op": "dt_gt", "field": "at", "value": "1970-01-01T00:00:00Z"});
    let count = client.json("POST", "/v1/collections/timed/points/count", json!({"filter": filter}));
    assert_eq!(count["count"], 2);
    let nowhere = "/v1/collections/nowhere/points/scroll";
    client.refused("POST", nowhere, r#"{"order_by":{"key":"n"}}"#, 404, "unknown collection");
}
