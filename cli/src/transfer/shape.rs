//! Reads from the configuration of a collection what its points look like, and makes a request that creates a collection from a configuration that a
//! server has returned.
use super::header::Family;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The objects in which a server returns the settings of a quantizer; in a request these settings are keys of the configuration itself.
const LEARNED: [&str; 2] = ["trained", "ivf_codes"];
/// The key of a number of points under `trained`, and the key of the same number in a request.
const THRESHOLD: (&str, &str) = ("threshold", "ivf_train_threshold");
/// The only boolean key whose default is `true`.
const ON_BY_DEFAULT: &str = "traversal_codes";

/// What is known about the points of a collection. What is not known is not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Components of a vector, or of a token.
    pub dim: Option<usize>,
    /// The spaces by name: components of a dense one, `None` for a sparse one.
    pub spaces: Option<BTreeMap<String, Option<usize>>>,
    /// Whether ids are strings.
    pub has_string_ids: Option<bool>,
}

impl Shape {
    /// Reads a configuration in the form in which a server returns it.
    pub fn of(family: Family, config: &Map<String, Value>) -> Shape {
        let dim_of = |config: &Map<String, Value>| {
            config.get("dim").and_then(Value::as_u64).and_then(|dim| usize::try_from(dim).ok())
        };
        let spaces = config.get("named_vectors").and_then(Value::as_object);
        let spaces = spaces.filter(|_| family == Family::Named).map(|spaces| {
            let of_space = |(name, space): (&String, &Value)| {
                let is_sparse = space.get("sparse").and_then(Value::as_bool) == Some(true);
                let dim = space.as_object().and_then(dim_of).filter(|_| !is_sparse);
                (name.clone(), dim)
            };
            spaces.iter().map(of_space).collect()
        });
        Shape {
            dim: dim_of(config).filter(|_| family != Family::Named),
            spaces,
            has_string_ids: Some(config.get("ids").and_then(Value::as_str) == Some("string")),
        }
    }

    /// Whether it has sparse spaces.
    pub fn has_sparse_spaces(&self) -> bool {
        self.spaces.iter().flatten().any(|(_, dim)| dim.is_none())
    }
}

/// Turns a configuration that a server has returned into one for a request: settings of a quantizer are where requests have them, and values that are
/// the default are left out.
pub fn creatable(told: &Map<String, Value>) -> Map<String, Value> {
    let mut all = Map::new();
    for (key, value) in told {
        match value {
            Value::Object(learned) if LEARNED.contains(&key.as_str()) => {
                for (key, value) in learned {
                    let key = if key == THRESHOLD.0 { THRESHOLD.1 } else { key };
                    all.insert(key.to_owned(), value.clone());
                }
                if learned.get("opq_iters").and_then(Value::as_u64) > Some(0) {
                    all.insert("opq".to_owned(), true.into());
                }
            }
            Value::Object(spaces) if key == "named_vectors" => {
                let spaces = spaces.iter().map(|(name, space)| {
                    let space =
                        space.as_object().map_or_else(|| space.clone(), |space| creatable(space).into());
                    (name.clone(), space)
                });
                all.insert(key.clone(), Value::Object(spaces.collect()));
            }
            _ => {
                all.insert(key.clone(), value.clone());
            }
        }
    }
    all.retain(|key, value| {
        let is_default = match value {
            Value::Null | Value::Bool(false) => true,
            Value::Number(number) => number.as_f64() == Some(0.0),
            _ => false,
        };
        // This build does not divide collections, and returns 0 or 1.
        !is_default && key != "partitions" || key == ON_BY_DEFAULT
    });
    all
}

/// The paths of the keys in which two configurations differ, both in the form in which a server returns them.
pub fn differences(one: &Map<String, Value>, other: &Map<String, Value>) -> Vec<String> {
    fn walk(one: &Map<String, Value>, other: &Map<String, Value>, path: &str, found: &mut Vec<String>) {
        let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
        for key in keys {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match (one.get(key), other.get(key)) {
                (Some(Value::Object(one)), Some(Value::Object(other))) => walk(one, other, &path, found),
                (one, other) if one.unwrap_or(&Value::Null) == other.unwrap_or(&Value::Null) => {}
                (one, other) => {
                    let shown =
                        |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), Value::to_string);
                    found.push(format!("{path} ({} and {})", shown(one), shown(other)));
                }
            }
        }
    }
    let mut found = Vec::new();
    walk(one, other, "", &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn what_is_told_becomes_what_is_asked() {
        let told = object(
            json!({"dim": 4, "metric": "l2", "seed": 0, "traversal_codes": false, "quant": "pq",
            "trained": {"threshold": 300, "quant_pq_m": 2, "pq_nbits": 8, "opq_iters": 3, "anisotropic_eta": 0.0},
            "ivf_codes": null, "persistent": false, "soar_lambda": 0.0, "partitions": 1, "full_text": {"analyzer": "english"}}),
        );
        let asked = object(json!({"dim": 4, "metric": "l2", "traversal_codes": false, "quant": "pq",
            "ivf_train_threshold": 300, "quant_pq_m": 2, "pq_nbits": 8, "opq_iters": 3, "opq": true,
            "full_text": {"analyzer": "english"}}));
        assert_eq!(creatable(&told), asked);
        let told = object(
            json!({"named_vectors": {"image": {"dim": 2, "metric": 1, "seed": 0}, "words": {"dim": 0, "sparse": true}}}),
        );
        let asked = json!({"named_vectors": {"image": {"dim": 2, "metric": 1}, "words": {"sparse": true}}});
        assert_eq!(Value::Object(creatable(&told)), asked);
    }

    #[test]
    fn shapes_of_configurations() {
        let config = object(json!({"dim": 4, "ids": "string"}));
        let shape = Shape::of(Family::Dense, &config);
        assert_eq!((shape.dim, shape.spaces, shape.has_string_ids), (Some(4), None, Some(true)));
        let config = object(json!({"named_vectors": {"a": {"dim": 2}, "w": {"dim": 0, "sparse": true}}}));
        let shape = Shape::of(Family::Named, &config);
        assert!(shape.has_sparse_spaces() && shape.has_string_ids == Some(false));
        assert_eq!(shape.spaces.unwrap(), BTreeMap::from([("a".into(), Some(2)), ("w".into(), None)]));
    }

    #[test]
    fn differing_keys_are_named() {
        let one = object(json!({"dim": 4, "m": 16, "trained": {"threshold": 3}, "ivf_codes": null}));
        let other = object(json!({"dim": 4, "m": 8, "trained": {"threshold": 4}, "ids": "string"}));
        let found = ["ids (absent and \"string\")", "m (16 and 8)", "trained.threshold (3 and 4)"];
        assert_eq!(differences(&one, &other), found);
        assert!(differences(&one, &one.clone()).is_empty());
    }
}
