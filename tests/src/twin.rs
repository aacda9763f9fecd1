//! Payloads and filters as simple as can be, for tests that compare a server with a naive model of it.

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
pub fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}
