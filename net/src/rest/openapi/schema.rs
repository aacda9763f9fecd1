//! How schemas are spelled: small functions that return parts of a JSON Schema.

use serde_json::{Map, Value, json};

/// Any integer in these bounds.
pub fn integer(least: i64, most: i64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most})
}

/// A signed 64-bit integer.
pub fn int64() -> Value {
    json!({"type": "integer", "format": "int64", "minimum": i64::MIN, "maximum": i64::MAX})
}

/// A signed 64-bit integer that is not negative.
pub fn natural() -> Value {
    integer(0, i64::MAX)
}

/// An unsigned 64-bit integer: ids, versions, counts.
pub fn uint64() -> Value {
    json!({"type": "integer", "format": "uint64", "minimum": 0, "maximum": u64::MAX})
}

/// The id of a point.
pub fn point_id() -> Value {
    named("PointId")
}

/// A number as `f64`.
pub fn double() -> Value {
    json!({"type": "number", "format": "double"})
}

/// A number within the range of `f32`.
pub fn float() -> Value {
    json!({"type": "number", "format": "float", "minimum": f64::from(f32::MIN), "maximum": f64::from(f32::MAX)})
}

pub fn boolean() -> Value {
    json!({"type": "boolean"})
}

pub fn string() -> Value {
    json!({"type": "string"})
}

/// A string with something in it.
pub fn filled() -> Value {
    json!({"type": "string", "minLength": 1})
}

/// One of these strings.
pub fn one_of(names: &[&str]) -> Value {
    json!({"type": "string", "enum": names})
}

pub fn array(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

/// A schema of the components.
pub fn named(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

/// A schema with a sentence.
pub fn about(sentence: &str, mut schema: Value) -> Value {
    schema["description"] = sentence.into();
    schema
}

/// A schema with its default.
pub fn or(default: impl Into<Value>, mut schema: Value) -> Value {
    schema["default"] = default.into();
    schema
}

/// A schema with further bounds.
pub fn with(mut schema: Value, bounds: Value) -> Value {
    if let (Some(schema), Value::Object(bounds)) = (schema.as_object_mut(), bounds) {
        schema.extend(bounds);
    }
    schema
}

/// The schema, or `null`.
pub fn nullable(mut schema: Value) -> Value {
    match schema.get("type").cloned() {
        Some(Value::String(name)) if name == "null" => schema,
        Some(Value::String(name)) => {
            schema["type"] = json!([name, "null"]);
            if let Some(names) = schema.get_mut("enum").and_then(Value::as_array_mut) {
                names.push(Value::Null);
            }
            schema
        }
        _ => {
            let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
            let mut either = json!({"anyOf": [schema, {"type": "null"}]});
            if let Some(description) = description {
                either["description"] = description;
            }
            either
        }
    }
}

fn object(required: &[&str], properties: Map<String, Value>) -> Value {
    for key in required {
        assert!(properties.contains_key(*key), "required key {key} is no property");
    }
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn entries(properties: Value) -> Map<String, Value> {
    match properties {
        Value::Object(properties) => properties,
        other => panic!("properties are an object, not {other}"),
    }
}

/// An object of a request: no other keys, and `null` for whatever need not be there.
pub fn body(required: &[&str], properties: Value) -> Value {
    let properties = entries(properties)
        .into_iter()
        .map(|(key, schema)| {
            let is_required = required.contains(&key.as_str());
            (key, if is_required { schema } else { nullable(schema) })
        })
        .collect();
    object(required, properties)
}

/// An object of an answer: all keys are there apart from the `optional` ones, and no others.
pub fn answer(optional: &[&str], properties: Value) -> Value {
    let properties = entries(properties);
    let required: Vec<String> =
        properties.keys().filter(|key| !optional.contains(&key.as_str())).cloned().collect();
    let required: Vec<&str> = required.iter().map(String::as_str).collect();
    object(&required, properties)
}

/// The keys of several objects as those of one.
pub fn joined(parts: &[Value]) -> Value {
    Value::Object(parts.iter().cloned().flat_map(entries).collect())
}
