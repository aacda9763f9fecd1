//! As much of JSON Schema as the document of the interface uses, to hold answers and examples against it.
use serde_json::Value;

/// Keywords that say nothing about what is valid.
const REMARKS: [&str; 5] = ["title", "description", "default", "format", "examples"];

/// Why `value` does not fit `schema`, `None` = it does. References lead into `document`.
pub fn misfit(document: &Value, schema: &Value, value: &Value) -> Option<String> {
    let object = schema.as_object().unwrap();
    object
        .iter()
        .find_map(|(keyword, bound)| check(document, schema, keyword, bound, value))
        .map(|why| if why.len() > 2000 { why.chars().take(2000).collect() } else { why })
}

fn has_type(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    }
}

/// Whether `a < b`, exactly where both are integers.
fn below(a: &Value, b: &Value) -> bool {
    match (a.as_i64(), b.as_i64(), a.as_u64(), b.as_u64()) {
        (Some(a), Some(b), ..) => a < b,
        (.., Some(a), Some(b)) => a < b,
        _ => a.as_f64().unwrap() < b.as_f64().unwrap(),
    }
}

fn check(document: &Value, schema: &Value, keyword: &str, bound: &Value, value: &Value) -> Option<String> {
    let forms = || bound.as_array().unwrap().iter();
    let misfits = || forms().map(|form| misfit(document, form, value)).collect::<Vec<_>>();
    let length = |least: bool, found: Option<usize>| {
        let bound = bound.as_u64().unwrap() as usize;
        found.is_none_or(|found| if least { found >= bound } else { found <= bound })
    };
    let characters = || value.as_str().map(|text| text.chars().count());
    let items = || value.as_array().map(Vec::len);
    let keys = || value.as_object().map(serde_json::Map::len);
    let fits = match keyword {
        "$ref" => {
            let place = bound.as_str().unwrap().strip_prefix('#').unwrap();
            return misfit(document, document.pointer(place).unwrap(), value);
        }
        "type" if bound.is_array() => forms().any(|name| has_type(name, value)),
        "type" => has_type(bound, value),
        "const" => bound == value,
        "enum" => forms().any(|other| other == value),
        "anyOf" => misfits().iter().any(Option::is_none),
        "oneOf" => misfits().iter().filter(|misfit| misfit.is_none()).count() == 1,
        "not" => misfit(document, bound, value).is_some(),
        "minimum" => !value.is_number() || !below(value, bound),
        "maximum" => !value.is_number() || !below(bound, value),
        "exclusiveMinimum" => !value.is_number() || below(bound, value),
        "minLength" => length(true, characters()),
        "maxLength" => length(false, characters()),
        "minItems" => length(true, items()),
        "maxItems" => length(false, items()),
        "minProperties" => length(true, keys()),
        "maxProperties" => length(false, keys()),
        "required" => keys().is_none() || forms().all(|key| value.get(key.as_str().unwrap()).is_some()),
        "items" => {
            let items = value.as_array().into_iter().flatten().enumerate();
            return items
                .filter_map(|(index, item)| {
                    misfit(document, bound, item).map(|why| format!("[{index}]{why}"))
                })
                .next();
        }
        "properties" => {
            let entries = value.as_object().into_iter().flatten();
            return entries
                .filter_map(|(key, value)| Some((key, misfit(document, bound.get(key)?, value)?)))
                .map(|(key, why)| format!(".{key}{why}"))
                .next();
        }
        "additionalProperties" => {
            let named = |key: &str| schema.get("properties").is_some_and(|known| known.get(key).is_some());
            let mut others = value.as_object().into_iter().flatten().filter(|(key, _)| !named(key));
            match bound {
                Value::Bool(true) => true,
                Value::Bool(false) => others.next().is_none(),
                form => {
                    return others
                        .find_map(|(key, value)| Some(format!(".{key}{}", misfit(document, form, value)?)));
                }
            }
        }
        "propertyNames" => {
            let names = value.as_object().into_iter().flatten().map(|(name, _)| Value::from(name.as_str()));
            return names.into_iter().find_map(|name| misfit(document, bound, &name));
        }
        // Names of the examples are plain; the servers' own checks cover the rest.
        "pattern" => true,
        remark if REMARKS.contains(&remark) => true,
        other => panic!("unknown keyword {other}"),
    };
    (!fits).then(|| format!(": {value} against {keyword} {bound}"))
}
