//! Random writes of every kind, restarts and kills, and after them every question, beside a collection as simple as can be.
//!
//! Collections stay so small that searches are exact, so answers must be equal up to rounding. One run is one seed: printed when it
//! fails, replayed with `NIGH_TEST_SEED`. `NIGH_TEST_LONG=1` does millions of operations.
use nigh_tests::twin::{Filter, Payload, Point, Twin, Val, fused, tagged};
use nigh_tests::{Api, Server, SplitMix, long};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const IDS: u64 = 150;
const POINTS: &str = "/v1/collections/twin/points";
/// Rounding of scores and distances, relative to one.
const CLOSE: f64 = 2e-4;

struct Run {
    random: SplitMix,
    dim: usize,
    twin: Twin,
    /// The last version of every id that was there: it is never given again.
    given: BTreeMap<u64, u64>,
    api: Api,
}

#[test]
fn answers_are_those_of_the_twin() {
    let seeds = if long() { 500 } else { 3 };
    let first = std::env::var("NIGH_TEST_SEED").ok().map(|text| text.parse().expect("a number"));
    let range = first.map_or(1..1 + seeds, |seed: u64| seed..seed + 1);
    for seed in range {
        println!("seed {seed}");
        run(seed, if long() { 4000 } else { 400 });
    }
}

fn run(seed: u64, operations: usize) {
    let data = tempfile::tempdir().expect("a temporary directory");
    let flags = ["-cores", ["1", "2"][seed as usize % 2], "-ttl-sweep-interval", "50ms"];
    let mut server = Server::start(Some(data.path()), &flags);
    let mut random = SplitMix(seed);
    let dim = 1 + random.below(12) as usize;
    let metric = ["cosine", "l2", "dot"][random.below(3) as usize];
    let config = json!({"dim": dim, "metric": metric, "full_text": {}, "seed": seed});
    server.api().ok("POST", "/v1/collections", json!({"name": "twin", "config": config}));
    let mut run = Run {
        random,
        dim,
        twin: Twin { metric, ..Twin::default() },
        given: BTreeMap::new(),
        api: server.api(),
    };
    for operation in 0..operations {
        match run.random.below(400) {
            0 => {
                // The answers so far are those of the process that goes.
                if run.random.below(2) == 0 {
                    server.kill()
                } else {
                    drop(server.stop())
                }
                server = Server::start(Some(data.path()), &flags);
                run.api = server.api();
            }
            1..250 => run.write(),
            _ => run.ask(),
        }
        if operation % 100 == 99 {
            run.check_everything();
        }
    }
}

impl Run {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.random.below(one_in) == 0
    }

    /// Two letters that no stemmer touches and no list of stop words has.
    fn word(&mut self) -> String {
        // The product makes some words much more frequent than others.
        let letter = self.below(5) * self.below(5);
        format!("q{}", (b'b' + letter as u8) as char)
    }

    fn text(&mut self, words: u64) -> String {
        (0..self.below(words + 1)).map(|_| self.word()).collect::<Vec<_>>().join(" - ")
    }

    fn number(&mut self) -> Val {
        let value = self.below(20) as i64 - 6;
        if self.chance(3) { Val::Float(value as f64 / 2.0) } else { Val::Int(value) }
    }

    fn value(&mut self, field: &str) -> Val {
        if self.chance(15) {
            return Val::Null;
        }
        match field {
            "n" => self.number(),
            "m" => Val::Int(self.below(1 << 40) as i64),
            "s" => Val::Str(self.text(2)),
            "b" => Val::Bool(self.chance(2)),
            "t" => Val::Strs((0..self.below(4)).map(|_| self.text(2)).collect()),
            _ => Val::Ints((0..self.below(4)).map(|_| self.below(5) as i64).collect()),
        }
    }

    fn payload(&mut self) -> Payload {
        let mut payload = Payload::new();
        for field in ["n", "m", "s", "b", "t", "z"] {
            if self.below(10) < 7 {
                payload.insert(field.to_owned(), self.value(field));
            }
        }
        payload
    }

    /// Eighths, so that products and sums of few are exact.
    fn sparse(&mut self) -> BTreeMap<u32, f32> {
        let count = self.below(6);
        (0..count)
            .map(|_| ((self.below(6) * self.below(6)) as u32, 0.125 * (1 + self.below(16)) as f32))
            .collect()
    }

    fn vector(&mut self) -> Vec<f32> {
        self.random.vector(self.dim)
    }

    fn id(&mut self) -> u64 {
        self.below(IDS)
    }

    fn live(&mut self) -> Option<u64> {
        let index = self.below(IDS.max(1)) as usize;
        let ids: Vec<u64> = self.twin.points.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[index % ids.len()])
    }

    fn filter(&mut self, depth: u64) -> Filter {
        if depth > 0 && self.chance(3) {
            let count = self.below(4);
            let mut filters: Vec<Filter> = (0..count).map(|_| self.filter(depth - 1)).collect();
            return match self.below(4) {
                0 => Filter::And(filters),
                1 => Filter::Or(filters),
                2 if count > 0 => Filter::AtLeast(1 + self.below(count) as usize, filters),
                _ => Filter::Not(Box::new(filters.pop().unwrap_or(Filter::Or(Vec::new())))),
            };
        }
        match self.below(12) {
            10 => Filter::HasId((0..self.below(60)).map(|_| self.below(IDS + 9)).collect()),
            0 | 1 => {
                let op = ["gt", "gte", "lt", "lte"][self.below(4) as usize];
                Filter::Leaf(op, "n", self.number())
            }
            2 => {
                let op = ["gt", "lte"][self.below(2) as usize];
                Filter::Leaf(op, "m", Val::Int(self.below(1 << 40) as i64))
            }
            3 => {
                let op = ["gt", "gte", "lt", "lte"][self.below(4) as usize];
                Filter::Leaf(op, "s", Val::Str(self.text(1)))
            }
            4 | 5 => {
                let field = ["n", "s", "b", "t", "z"][self.below(5) as usize];
                let op = if self.chance(3) { "ne" } else { "eq" };
                Filter::Leaf(op, field, self.value(field))
            }
            6 => Filter::Leaf(
                "in",
                "n",
                Val::Ints((0..self.below(5)).map(|_| self.below(14) as i64).collect()),
            ),
            7 => Filter::Leaf("in", "s", Val::Strs((0..self.below(4)).map(|_| self.text(1)).collect())),
            8 => Filter::Leaf("contains", "z", Val::Int(self.below(5) as i64)),
            9 => {
                let field = ["s", "t"][self.below(2) as usize];
                Filter::Leaf("match", field, Val::Str(self.text(2)))
            }
            _ => {
                let op = ["is_empty", "is_null", "exists"][self.below(3) as usize];
                Filter::Leaf(op, ["n", "s", "t", "z"][self.below(4) as usize], Val::Null)
            }
        }
    }

    fn maybe_filter(&mut self) -> Option<Filter> {
        (!self.chance(3)).then(|| self.filter(2))
    }

    fn new_point(&mut self, id: u64) -> (Value, Point) {
        let version = self.given.get(&id).map_or(1, |given| given + 1);
        let content = if self.chance(4) { String::new() } else { self.text(12) };
        let point =
            Point { vector: self.vector(), content, payload: self.payload(), sparse: self.sparse(), version };
        let (indices, values): (Vec<u32>, Vec<f32>) = point.sparse.iter().map(|(i, x)| (*i, *x)).unzip();
        let body = json!({"id": id, "vector": point.vector, "content": point.content,
            "metadata": tagged(&point.payload), "sparse": {"indices": indices, "values": values}});
        (body, point)
    }

    fn put(&mut self, id: u64, point: Point) {
        self.given.insert(id, point.version);
        self.twin.points.insert(id, point);
    }

    fn write(&mut self) {
        match self.below(16) {
            0..=3 => {
                let id = self.id();
                let (mut body, point) = self.new_point(id);
                body["upsert"] = json!(true);
                if self.chance(3) {
                    body["expected_version"] =
                        json!(self.twin.points.get(&id).map_or(0, |point| point.version));
                }
                self.api.ok("POST", POINTS, body);
                self.put(id, point);
            }
            4..=6 => {
                let mut points = Vec::new();
                for _ in 0..self.below(12) {
                    let id = self.id();
                    let (body, point) = self.new_point(id);
                    points.push(body);
                    self.put(id, point);
                }
                self.api.ok("POST", &format!("{POINTS}/batch"), json!({"upsert": true, "points": points}));
            }
            7 => {
                // One that is there is refused, and stays; one that ends at once is never seen.
                let id = self.id();
                let (mut body, point) = self.new_point(id);
                let known = self.twin.points.contains_key(&id);
                if !known && self.chance(2) {
                    body["ttl_ms"] = json!(1);
                    body["content"] = json!("");
                    self.api.ok("POST", POINTS, body);
                    self.given.insert(id, point.version);
                    std::thread::sleep(std::time::Duration::from_millis(3));
                    return;
                }
                let reply = self.api.send("POST", POINTS, &body).expect("an answer");
                assert_eq!(reply.status, if known { 409 } else { 200 }, "{}", reply.body);
                if !known {
                    self.put(id, point);
                }
            }
            8 | 9 => {
                let id = self.id();
                let answer = self.api.ok("DELETE", &format!("{POINTS}/{id}"), Value::Null);
                assert_eq!(answer["deleted"], self.twin.points.remove(&id).is_some());
            }
            10 if self.chance(4) => {
                let filter = self.filter(2);
                let matching = self.twin.matching(Some(&filter));
                let body = json!({"filter": filter.json()});
                let reply = self.api.send("POST", &format!("{POINTS}/delete"), &body).expect("an answer");
                // A filter that is true of everything is refused.
                assert!(matches!(reply.status, 200 | 400), "{}", reply.body);
                if reply.status == 200 {
                    assert_eq!(reply.body["deleted"], matching.len(), "{filter:?}");
                    matching.iter().for_each(|id| _ = self.twin.points.remove(id));
                }
            }
            _ => self.change_payload(),
        }
    }

    fn change_payload(&mut self) {
        let Some(id) = self.live() else { return };
        let path = format!("{POINTS}/{id}/payload");
        let mut point = self.twin.points[&id].clone();
        point.version += 1;
        let mut patch = self.payload();
        let mut body = tagged(&patch);
        let content = self.chance(2).then(|| self.text(12));
        if let Some(content) = &content {
            body["$content"] = Val::Str(content.clone()).tagged();
        }
        let expired = self.chance(6).then(|| patch.keys().next().cloned()).flatten();
        if let Some(key) = &expired {
            body["key_ttl_ms"] = json!({key: 1});
        }
        match self.below(5) {
            0 | 1 => {
                self.api.ok("POST", &path, body);
                point.payload.append(&mut patch);
                point.content = content.unwrap_or(point.content);
            }
            2 => {
                // Nothing merged counts, nothing put in the place of all clears it.
                let put = self.chance(2);
                self.api.ok(if put { "PUT" } else { "POST" }, &path, json!({}));
                if put {
                    point.payload.clear();
                    point.content.clear();
                }
                self.put(id, point);
                return;
            }
            3 => {
                self.api.ok("POST", &format!("{path}/overwrite"), body);
                (point.payload, point.content) = (patch, content.unwrap_or_default());
            }
            _ => {
                let keys = ["n", "s", "$content"][..1 + self.below(3) as usize].to_vec();
                self.api.ok("POST", &format!("{path}/delete"), json!({"keys": keys}));
                for key in keys {
                    point.payload.remove(key);
                    if key == "$content" {
                        point.content.clear();
                    }
                }
                self.put(id, point);
                return;
            }
        }
        if let Some(key) = expired {
            std::thread::sleep(std::time::Duration::from_millis(3));
            point.payload.remove(&key);
        }
        self.put(id, point);
    }

    fn ask(&mut self) {
        let filter = self.maybe_filter();
        let json = filter.as_ref().map_or(Value::Null, Filter::json);
        let k = 1 + self.below(20) as usize;
        let (query, sparse, text) = (self.vector(), self.sparse(), self.text(4));
        let (indices, values): (Vec<u32>, Vec<f32>) = sparse.iter().map(|(i, x)| (*i, *x)).unzip();
        let about = format!("k {k}, filter {filter:?}, text {text:?}, sparse {sparse:?}");
        let filter = filter.as_ref();
        match self.below(7) {
            0 => {
                let body = json!({"query": query, "k": k, "filter": json});
                let answer = self.api.ok("POST", &format!("{POINTS}/search"), body);
                same(&answer["results"], "distance", &self.twin.nearest(&query, filter), k, &about);
            }
            1 => {
                let body = json!({"text": text, "k": k, "filter": json});
                let answer = self.api.ok("POST", &format!("{POINTS}/search/text"), body);
                same(&answer["documents"], "score", &self.twin.by_text(&text, filter), k, &about);
            }
            2 => {
                let sparse_only =
                    json!({"sparse": {"indices": indices, "values": values}, "k": k, "filter": json});
                let answer = self.api.ok("POST", &format!("{POINTS}/search/hybrid"), sparse_only);
                same(&answer["results"], "score", &self.twin.by_sparse(&sparse, filter), k, &about);
            }
            3 => {
                let (dense, by_sparse) =
                    (self.twin.nearest(&query, filter), self.twin.by_sparse(&sparse, filter));
                if dense.is_empty() || by_sparse.is_empty() {
                    return;
                }
                // Pools as large as the collection, so that a tie at the end of a pool decides nothing.
                let body = json!({"dense": query, "sparse": {"indices": indices, "values": values}, "k": k,
                    "filter": json, "dense_k": 500, "sparse_k": 500});
                let answer = self.api.ok("POST", &format!("{POINTS}/search/hybrid"), body);
                same(&answer["results"], "score", &fused(&[dense, by_sparse]), k, &about);
            }
            4 => {
                let answer = self.api.ok("POST", &format!("{POINTS}/count"), json!({"filter": json}));
                assert_eq!(answer["count"], self.twin.matching(filter).len(), "{about}");
            }
            5 => {
                let ids = self.twin.matching(filter);
                self.scroll(&json, &ids, Value::Null, &about);
            }
            _ => {
                let desc = self.chance(2);
                let twin = &self.twin;
                let key = |id: &u64| twin.points[id].payload.get("n").and_then(Val::number);
                let mut ids = twin.matching(filter);
                ids.retain(|id| key(id).is_some());
                ids.sort_by(|a, b| {
                    let order = key(a).partial_cmp(&key(b)).expect("no NaN");
                    if desc { order.reverse() } else { order }.then(a.cmp(b))
                });
                self.scroll(&json, &ids, json!({"key": "n", "desc": desc}), &about);
            }
        }
    }

    /// All pages of a scroll, one after the other.
    fn scroll(&mut self, filter: &Value, expected: &[u64], order_by: Value, about: &str) {
        let limit = self.below(40);
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let mut body = json!({"filter": filter, "limit": limit, "cursor": cursor});
            if !order_by.is_null() {
                body["order_by"] = order_by.clone();
            }
            let page = self.api.ok("POST", &format!("{POINTS}/scroll"), body);
            let documents = page["documents"].as_array().expect("documents");
            found.extend(documents.iter().filter_map(|document| document["id"].as_u64()));
            cursor = page["next_cursor"].as_str().expect("a cursor").to_owned();
            if cursor.is_empty() {
                break;
            }
            assert_eq!(documents.len() as u64, limit, "{about}");
        }
        assert_eq!(found, expected, "{order_by} {about}");
    }

    /// Every point as it is stored.
    fn check_everything(&mut self) {
        let ids: Vec<u64> = (0..IDS).collect();
        let answer =
            self.api.ok("POST", &format!("{POINTS}/batch-get"), json!({"ids": ids, "with_vector": false}));
        let points = answer["points"].as_array().expect("points");
        assert_eq!(points.len(), self.twin.points.len());
        for (found, (id, point)) in points.iter().zip(&self.twin.points) {
            assert_eq!((&found["id"], &found["version"]), (&json!(id), &json!(point.version)), "{found}");
            let mut payload = Payload::new();
            for (key, value) in found["payload"].as_object().into_iter().flatten() {
                payload.insert(key.clone(), Val::read(value).expect("a kind the twin writes"));
            }
            let content = match payload.remove("$content") {
                Some(Val::Str(content)) => content,
                _ => String::new(),
            };
            assert_eq!((&payload, &content), (&point.payload, &point.content), "id {id}");
        }
    }
}

/// The first `k` of `all`, up to rounding: the same figures in the same order, each that of the id it stands with.
fn same(answer: &Value, figure: &str, all: &[(u64, f64)], k: usize, about: &str) {
    let hits = answer.as_array().expect("hits");
    assert_eq!(hits.len(), all.len().min(k), "{about}: {answer} for {all:?}");
    for (hit, (_, expected)) in hits.iter().zip(all) {
        let (id, found) = (hit["id"].as_u64().expect("an id"), hit[figure].as_f64().expect("a number"));
        let of_id = all.iter().find(|(other, _)| *other == id).map(|(_, figure)| *figure);
        let close = |a: f64, b: f64| (a - b).abs() <= CLOSE * a.abs().max(1.0);
        assert!(
            of_id.is_some_and(|of_id| close(found, of_id)) && close(found, *expected),
            "{about}: {hit} is {of_id:?}, expected {expected}\n{answer}\n{all:?}"
        );
    }
}
