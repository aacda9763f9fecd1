//! A collection as simple as can be: points in a map, every question answered by looking at all of them.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A payload value.
#[derive(Clone, Debug, PartialEq)]
pub enum Val {
    /// Explicit null.
    Null,
    /// Integer.
    Int(i64),
    /// Float.
    Float(f64),
    /// Text.
    Str(String),
    /// Boolean.
    Bool(bool),
    /// Array of texts.
    Strs(Vec<String>),
    /// Array of integers.
    Ints(Vec<i64>),
}

impl Val {
    /// As clients send it.
    pub fn tagged(&self) -> Value {
        match self {
            Val::Null => json!({"kind": "none"}),
            Val::Int(value) => json!({"kind": "int", "int": value}),
            Val::Float(value) => json!({"kind": "float", "flt": value}),
            Val::Str(value) => json!({"kind": "string", "str": value}),
            Val::Bool(value) => json!({"kind": "bool", "bool": value}),
            Val::Strs(value) => json!({"kind": "strings", "strs": value}),
            Val::Ints(value) => json!({"kind": "ints", "ints": value}),
        }
    }

    /// As the server answers it: what is left out is zero or empty. `None` for kinds no twin writes.
    pub fn read(value: &Value) -> Option<Val> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |key: &str| value[key].as_array().cloned().unwrap_or_default();
        Some(match value["kind"].as_str()? {
            "none" => Val::Null,
            "int" => Val::Int(value["int"].as_i64().unwrap_or_default()),
            "float" => Val::Float(value["flt"].as_f64().unwrap_or_default()),
            "string" => Val::Str(text(&value["str"])),
            "bool" => Val::Bool(value["bool"].as_bool().unwrap_or_default()),
            "strings" => Val::Strs(list("strs").iter().map(text).collect()),
            "ints" => Val::Ints(list("ints").iter().filter_map(Value::as_i64).collect()),
            _ => return None,
        })
    }

    /// As a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Val::Int(value) => Some(*value as f64),
            Val::Float(value) => Some(*value),
            _ => None,
        }
    }
}

/// A payload, without the document.
pub type Payload = BTreeMap<String, Val>;

/// A payload as clients send it.
pub fn tagged(payload: &Payload) -> Value {
    Value::Object(payload.iter().map(|(key, value)| (key.clone(), value.tagged())).collect::<Map<_, _>>())
}

/// A point.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// As sent.
    pub vector: Vec<f32>,
    /// The document, empty = none.
    pub content: String,
    /// Everything else.
    pub payload: Payload,
    /// Components by dimension.
    pub sparse: BTreeMap<u32, f32>,
    /// As the interface counts it.
    pub version: u64,
}

/// A filter.
#[derive(Clone, Debug)]
pub enum Filter {
    /// All of them.
    And(Vec<Filter>),
    /// Any of them.
    Or(Vec<Filter>),
    /// So many of them at least.
    AtLeast(usize, Vec<Filter>),
    /// The opposite.
    Not(Box<Filter>),
    /// One of these ids.
    HasId(Vec<u64>),
    /// An operator, a field and an operand.
    Leaf(&'static str, &'static str, Val),
}

impl Filter {
    /// As clients send it.
    pub fn json(&self) -> Value {
        let all = |filters: &[Filter]| filters.iter().map(Filter::json).collect::<Vec<_>>();
        match self {
            Filter::And(filters) => json!({"op": "and", "and": all(filters)}),
            Filter::Or(filters) => json!({"op": "or", "or": all(filters)}),
            Filter::AtLeast(count, filters) => json!({"op": "min_should",
                "min_should": {"conditions": all(filters), "min_count": count}}),
            Filter::Not(filter) => json!({"op": "not", "not": filter.json()}),
            Filter::HasId(ids) => json!({"op": "has_id", "has_id": ids}),
            Filter::Leaf(op @ ("is_empty" | "is_null" | "exists"), field, _) => {
                json!({"op": op, "field": field})
            }
            Filter::Leaf(op, field, value) => json!({"op": op, "field": field, "value": value.tagged()}),
        }
    }

    /// What it says of a point, by the words of the interface.
    pub fn matches(&self, id: u64, payload: &Payload) -> bool {
        let (op, field, operand) = match self {
            Filter::And(filters) => return filters.iter().all(|filter| filter.matches(id, payload)),
            Filter::Or(filters) => return filters.iter().any(|filter| filter.matches(id, payload)),
            Filter::AtLeast(count, filters) => {
                return filters.iter().filter(|filter| filter.matches(id, payload)).count() >= *count;
            }
            Filter::Not(filter) => return !filter.matches(id, payload),
            Filter::HasId(ids) => return ids.contains(&id),
            Filter::Leaf(op, field, operand) => (*op, *field, operand),
        };
        let Some(value) = payload.get(field) else { return op == "is_empty" };
        match op {
            "eq" => value == operand,
            "ne" => value != operand,
            "gt" | "gte" | "lt" | "lte" => {
                let order = match (value, operand) {
                    (Val::Str(value), Val::Str(operand)) => Some(value.as_bytes().cmp(operand.as_bytes())),
                    _ => value
                        .number()
                        .zip(operand.number())
                        .and_then(|(value, operand)| value.partial_cmp(&operand)),
                };
                order.is_some_and(|order| match op {
                    "gt" => order.is_gt(),
                    "gte" => order.is_ge(),
                    "lt" => order.is_lt(),
                    _ => order.is_le(),
                })
            }
            "in" => match (value, operand) {
                (Val::Str(value), Val::Strs(all)) => all.contains(value),
                (Val::Int(value), Val::Ints(all)) => all.contains(value),
                // By value, as in ranges.
                (Val::Float(value), Val::Ints(all)) => all.iter().any(|element| *element as f64 == *value),
                _ => false,
            },
            "contains" => match (value, operand) {
                (Val::Strs(all), Val::Str(element)) => all.contains(element),
                (Val::Ints(all), Val::Int(element)) => all.contains(element),
                _ => false,
            },
            "match" => {
                let Val::Str(wanted) = operand else { unreachable!("a match has a text") };
                let has = |text: &String| {
                    let words: BTreeSet<String> = words(text).collect();
                    self::words(wanted).all(|word| words.contains(&word))
                };
                match value {
                    Val::Str(text) => has(text),
                    Val::Strs(texts) => texts.iter().any(has),
                    _ => false,
                }
            }
            "is_empty" => match value {
                Val::Null => true,
                Val::Str(text) => text.is_empty(),
                Val::Strs(all) => all.is_empty(),
                Val::Ints(all) => all.is_empty(),
                _ => false,
            },
            "is_null" => *value == Val::Null,
            "exists" => *value != Val::Null,
            other => unreachable!("no twin of {other}"),
        }
    }
}

/// The words of a text, lower-cased.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// A collection.
#[derive(Clone, Debug, Default)]
pub struct Twin {
    /// `cosine`, `l2` or `dot`.
    pub metric: &'static str,
    /// By id.
    pub points: BTreeMap<u64, Point>,
}

impl Twin {
    /// Ids that match, ascending.
    pub fn matching(&self, filter: Option<&Filter>) -> Vec<u64> {
        let matches = |id: u64, point: &Point| filter.is_none_or(|filter| filter.matches(id, &point.payload));
        self.points.iter().filter(|(id, point)| matches(**id, point)).map(|(id, _)| *id).collect()
    }

    fn distance(&self, a: &[f32], b: &[f32]) -> f64 {
        let sum = |of: &dyn Fn(f64, f64) -> f64| {
            a.iter().zip(b).map(|(a, b)| of(f64::from(*a), f64::from(*b))).sum::<f64>()
        };
        let norm = |of: &[f32]| of.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
        match self.metric {
            "l2" => sum(&|a, b| (a - b) * (a - b)),
            "dot" => -sum(&|a, b| a * b),
            _ => 1.0 - sum(&|a, b| a * b) / (norm(a) * norm(b)).max(f64::MIN_POSITIVE),
        }
    }

    /// All that match by distance, nearest first.
    pub fn nearest(&self, query: &[f32], filter: Option<&Filter>) -> Vec<(u64, f64)> {
        let of = |id: u64| (id, self.distance(query, &self.points[&id].vector));
        let mut all: Vec<(u64, f64)> = self.matching(filter).into_iter().map(of).collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        all
    }

    /// All that share a dimension with the query and match, best first.
    pub fn by_sparse(&self, query: &BTreeMap<u32, f32>, filter: Option<&Filter>) -> Vec<(u64, f64)> {
        let score = |id: u64| {
            let of = &self.points[&id].sparse;
            let shared = query
                .iter()
                .filter_map(|(dimension, x)| Some(f64::from(*x) * f64::from(*of.get(dimension)?)));
            let shared: Vec<f64> = shared.collect();
            (!shared.is_empty()).then(|| (id, shared.iter().sum()))
        };
        best(self.matching(filter).into_iter().filter_map(score).collect())
    }

    /// All that hold a word of the query and match, by BM25 with k1 1.2 and b 0.75, best first. The words are of two letters
    /// each, which no stemmer touches, and no stop words.
    pub fn by_text(&self, query: &str, filter: Option<&Filter>) -> Vec<(u64, f64)> {
        let texts: BTreeMap<u64, Vec<String>> =
            self.points.iter().map(|(id, point)| (*id, words(&point.content).collect())).collect();
        let documents = || texts.values().filter(|words| !words.is_empty());
        let count = documents().count() as f64;
        let average = documents().map(Vec::len).sum::<usize>() as f64 / count.max(1.0);
        let score = |id: u64| {
            let text = &texts[&id];
            let mut sum = 0.0;
            for word in words(query).collect::<BTreeSet<_>>() {
                let frequency = text.iter().filter(|other| **other == word).count() as f64;
                let with = documents().filter(|text| text.contains(&word)).count() as f64;
                let rarity = (1.0 + (count - with + 0.5) / (with + 0.5)).ln();
                let length = 1.0 - 0.75 + 0.75 * text.len() as f64 / average;
                sum += rarity * frequency * 2.2 / (frequency + 1.2 * length);
            }
            (sum > 0.0).then_some((id, sum))
        };
        best(self.matching(filter).into_iter().filter_map(score).collect())
    }
}

/// Reciprocal ranks of several lanes added up, best first.
pub fn fused(lanes: &[Vec<(u64, f64)>]) -> Vec<(u64, f64)> {
    let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
    for lane in lanes {
        for (index, (id, _)) in lane.iter().enumerate() {
            *sums.entry(*id).or_default() += 1.0 / (61.0 + index as f64);
        }
    }
    best(sums.into_iter().collect())
}

/// Highest first, ties by id.
fn best(mut all: Vec<(u64, f64)>) -> Vec<(u64, f64)> {
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all
}
