//! Shown answers beside real ones: how JSON is laid out on a page, and which figures may differ.
use serde_json::{Deserializer, Map, Value};

/// Keys whose numbers differ from run to run and from machine to machine, besides those that end with a unit.
const VARYING: [&str; 9] =
    ["microseconds", "bytes", "waiting", "combining", "copying", "distances", "rejects", "seconds", "total"];
/// Ends of keys with such numbers.
const VARYING_UNITS: [&str; 4] = ["_ns", "_us", "_bytes", "_seconds"];
/// Kernels of different machines add in different orders, so distances agree up to this part of their size.
const TOLERANCE: f64 = 1e-4;
/// Longest line of an answer on a page.
const LINE_MAX: usize = 118;

/// Every JSON document of an output, one after the other.
///
/// # Errors
/// Where it is something else.
pub fn documents(output: &str) -> Result<Vec<Value>, String> {
    let documents = Deserializer::from_str(output).into_iter().collect::<Result<Vec<Value>, _>>();
    documents.map_err(|error| format!("{error} in {output:?}"))
}

/// The first difference of a shown answer from a real one, as a path and the two values.
pub fn difference(shown: &Value, real: &Value, path: &str) -> Option<String> {
    match (shown, real) {
        (Value::Object(left), Value::Object(right)) => {
            let missing = |a: &Map<String, Value>, b: &Map<String, Value>| {
                a.keys().find(|key| !b.contains_key(*key)).cloned()
            };
            if let Some(key) = missing(left, right).or_else(|| missing(right, left)) {
                return Some(format!("{path}.{key} is on one side alone: {shown} {real}"));
            }
            let varies = |key: &str, value: &Value| {
                let varies = VARYING.contains(&key) || VARYING_UNITS.iter().any(|unit| key.ends_with(unit));
                varies && value.is_number()
            };
            left.iter()
                .filter(|(key, value)| !(varies(key, value) && right[*key].is_number()))
                .find_map(|(key, value)| difference(value, &right[key], &format!("{path}.{key}")))
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let mut pairs = left.iter().zip(right).enumerate();
            pairs.find_map(|(index, (a, b))| difference(a, b, &format!("{path}[{index}]")))
        }
        (Value::Number(left), Value::Number(right)) => {
            let (left, right) = (left.as_f64()?, right.as_f64()?);
            let near = (left - right).abs() <= TOLERANCE * left.abs().max(right.abs()).max(TOLERANCE);
            (!near).then(|| format!("{path}: {left} is shown, {right} was answered"))
        }
        _ if shown == real => None,
        _ => Some(format!("{path}: {shown} is shown, {real} was answered")),
    }
}

/// An answer as it stands on a page: lines are filled with members as far as they fit, and nested ones stand a column deeper.
pub fn laid_out(value: &Value) -> String {
    let mut out = String::new();
    lay_out(value, 0, &mut out);
    out
}

fn compact(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let inner = members
                .iter()
                .map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), compact(value)));
            format!("{{{}}}", inner.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(compact).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

fn lay_out(value: &Value, depth: usize, out: &mut String) {
    let (open, close, members): (char, char, Vec<(String, &Value)>) = match value {
        Value::Object(members) => {
            let named =
                members.iter().map(|(key, value)| (format!("{}: ", Value::from(key.as_str())), value));
            ('{', '}', named.collect())
        }
        Value::Array(items) => ('[', ']', items.iter().map(|value| (String::new(), value)).collect()),
        other => return out.push_str(&other.to_string()),
    };
    out.push(open);
    for (index, (name, value)) in members.into_iter().enumerate() {
        let whole = format!("{name}{}", compact(value));
        let column = out.len() - out.rfind('\n').map_or(0, |at| at + 1);
        let fits_here = column + whole.len() + 4 < LINE_MAX;
        if index > 0 {
            out.push(',');
            match fits_here {
                true => out.push(' '),
                false => {
                    out.push('\n');
                    out.push_str(&" ".repeat(depth + 1));
                }
            }
        }
        if fits_here || (index > 0 && depth + whole.len() + 4 < LINE_MAX) {
            out.push_str(&whole);
        } else {
            out.push_str(&name);
            lay_out(value, depth + 1, out);
        }
    }
    out.push(close);
}

/// A text with every number, and the points and commas in it, replaced by one mark; blanks before it go with it, so that columns may move.
pub fn without_figures(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' | '.' => {
                // A comma right behind a digit and before another one belongs to a long number.
                if out.ends_with("#,") {
                    out.pop();
                }
                while out.ends_with([' ', '#', '.']) {
                    out.pop();
                }
                out.push('#');
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_are_found() {
        let shown = json!({"total_us": 5, "hits": [{"id": 1, "score": 0.25}]});
        let check = |real: Value, is_same: bool| {
            assert_eq!(difference(&shown, &real, "").is_none(), is_same, "{real}");
        };
        check(json!({"total_us": 77, "hits": [{"id": 1, "score": 0.250001}]}), true);
        check(json!({"total_us": "77", "hits": [{"id": 1, "score": 0.25}]}), false);
        check(json!({"total_us": 5, "hits": [{"id": 2, "score": 0.25}]}), false);
        check(json!({"total_us": 5, "hits": [{"id": 1, "score": 0.26}]}), false);
        check(json!({"total_us": 5, "hits": []}), false);
        check(json!({"total_us": 5}), false);
        check(json!({"total_us": 5, "more": 1, "hits": [{"id": 1, "score": 0.25}]}), false);
    }

    #[test]
    fn answers_are_laid_out() {
        assert_eq!(laid_out(&json!({"a": [1, 2], "b": {}})), r#"{"a": [1, 2], "b": {}}"#);
        let long = json!({"a": ["x".repeat(80), "y".repeat(80)], "b": 1});
        let (x, y) = ("x".repeat(80), "y".repeat(80));
        assert_eq!(laid_out(&long), format!("{{\"a\": [\"{x}\",\n  \"{y}\"], \"b\": 1}}"));
        assert_eq!(documents("{\"a\":1}\n[2]\n").unwrap(), [json!({"a": 1}), json!([2])]);
    }

    #[test]
    fn figures_are_masked() {
        assert_eq!(without_figures("took  12.5 ms, 3 times"), without_figures("took 7 ms, 3.25 times"));
        assert_eq!(without_figures("2 lines, 1,234,567/s"), without_figures("2 lines, 7/s"));
        assert_ne!(without_figures("took 1 ms"), without_figures("took 1 s"));
        assert_ne!(without_figures("1, 2"), without_figures("12"));
    }
}
