//! Whether an answer is what a golden directory expects.
use serde_json::{Number, Value};

/// Relative error of numbers with a fraction: other processors add in another order.
const ERROR_MAX: f64 = 1e-4;
/// The name of fields that hold deadlines, in seconds since 1970, which are computed from times that are left.
pub(super) const DEADLINE: &str = "deadline_s";
/// The clock goes on between an answer and the look at it.
const DEADLINE_ERROR_MAX: f64 = 180.0;

/// Where `actual` is not as `expected`, in words. Later builds may answer fields that this one did not.
pub(super) fn difference(expected: &Value, actual: &Value) -> Option<String> {
    at("", expected, actual)
}

fn at(path: &str, expected: &Value, actual: &Value) -> Option<String> {
    match (expected, actual) {
        (Value::Object(fields), Value::Object(others)) => fields.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match others.get(name) {
                Some(other) => at(&path, value, other),
                None => Some(format!("{path} is missing, it was {value}")),
            }
        }),
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
            let mut pairs = items.iter().zip(others).enumerate();
            pairs.find_map(|(index, (item, other))| at(&format!("{path}[{index}]"), item, other))
        }
        (Value::Number(number), Value::Number(other)) if are_near(path, number, other) => None,
        (expected, actual) if expected == actual => None,
        _ => Some(format!("{path} is {actual}, it was {expected}")),
    }
}

fn are_near(path: &str, one: &Number, other: &Number) -> bool {
    let (Some(a), Some(b)) = (one.as_f64(), other.as_f64()) else { return one == other };
    match () {
        () if path.ends_with(DEADLINE) => (a - b).abs() <= DEADLINE_ERROR_MAX,
        () if one.is_f64() || other.is_f64() => (a - b).abs() <= ERROR_MAX * a.abs().max(b.abs()).max(1.0),
        () => one == other,
    }
}

#[test]
fn differences_are_found() {
    let expected = serde_json::json!({"a": [1, 0.5, "x"], "deadline_s": 5_000_000_000_u64});
    let with = |pointer: &str, value: Value| {
        let mut changed = expected.clone();
        *changed.pointer_mut(pointer).expect("a field") = value;
        difference(&expected, &changed)
    };
    assert_eq!(difference(&expected, &expected), None);
    assert_eq!(with("/a/1", Value::from(0.500_01_f64)), None);
    assert_eq!(with("/deadline_s", Value::from(5_000_000_100_u64)), None);
    for (pointer, value) in [
        ("/a/0", Value::from(2)),
        ("/a/1", Value::from(0.501_f64)),
        ("/a/2", Value::from("y")),
        ("/a", Value::from(vec![1])),
        ("/deadline_s", Value::from(5_000_000_200_u64)),
        ("", serde_json::json!({"a": [1, 0.5, "x"]})),
    ] {
        assert!(with(pointer, value).is_some(), "{pointer}");
    }
    let more = serde_json::json!({"a": [1, 0.5, "x"], "deadline_s": 5_000_000_000_u64, "new": 1});
    assert_eq!(difference(&expected, &more), None);
}
