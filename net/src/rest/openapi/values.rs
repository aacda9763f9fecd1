//! Schemas of what payloads and filters hold.

use super::schema::{
    about, answer, array, body, boolean, double, filled, int64, integer, named, nullable, one_of, point_id,
    string, with,
};
use crate::limits::{NAME_MAX_BYTES, PAYLOAD_KEYS_MAX};
use nigh_engine::filter::{
    MAX_CONDITIONS, MAX_DEPTH, MAX_IDS, MAX_NODES, MAX_POLYGON_VERTICES, operator_names,
};
use nigh_engine::payload::Kind;
use serde_json::{Map, Value, json};

/// Characters of the parts of a name.
const PART: &str = "[^/#@\\u0000-\\u001f\\u007f-\\u009f]+";

/// Base64 with its padding and no stray bits.
const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

/// Where a tagged value of this kind carries what it is, beside `kind`.
fn carried(kind: &str) -> Value {
    match kind {
        "none" => json!({}),
        "string" => json!({"str": string()}),
        "int" => json!({"int": int64()}),
        "float" => json!({"flt": double()}),
        "bool" => json!({"bool": boolean()}),
        "strings" => json!({"strs": array(string())}),
        "ints" => json!({"ints": array(int64())}),
        "floats" => json!({"flts": array(double())}),
        "geo" => json!({"lat": double(), "lon": double()}),
        "record" => {
            json!({"rec": about("The bytes of a record.", with(string(), json!({"pattern": BASE64})))})
        }
        other => panic!("the kind {other} has no schema"),
    }
}

fn kinds() -> Vec<&'static str> {
    Kind::tagged().map(Kind::name).collect()
}

/// A tagged value of these kinds as sent: keys of other kinds are allowed and count nothing.
fn tagged(allowed: &[&str]) -> Value {
    let mut properties = Map::from_iter([("kind".to_owned(), one_of(allowed))]);
    for kind in kinds() {
        properties.extend(carried(kind).as_object().cloned().unwrap_or_default());
    }
    body(&["kind"], Value::Object(properties))
}

/// A value as answers show it: what is zero or empty is left out.
fn stored() -> Value {
    let one = |kind: &str| {
        let Value::Object(carried) = carried(kind) else { return Value::Null };
        let keys: Vec<String> = carried.keys().cloned().collect();
        let optional: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut properties = Map::from_iter([("kind".to_owned(), json!({"const": kind}))]);
        properties.extend(carried.clone());
        answer(&optional, Value::Object(properties))
    };
    let forms: Vec<Value> = kinds().into_iter().map(one).collect();
    about(
        "A payload value. The field of its kind is left out when it is zero or empty: `{\"kind\":\"int\"}` is 0.",
        json!({"oneOf": forms}),
    )
}

/// A filter node of these operators.
fn node(operators: &[&str], required: &[&str], properties: Value) -> Value {
    let mut all = Map::from_iter([("op".to_owned(), one_of(operators))]);
    all.extend(properties.as_object().cloned().unwrap_or_default());
    let required: Vec<&str> = ["op"].into_iter().chain(required.iter().copied()).collect();
    body(&required, Value::Object(all))
}

fn either(forms: &[Value]) -> Value {
    json!({"anyOf": forms})
}

fn degrees(limit: i64) -> Value {
    with(double(), json!({"minimum": -limit, "maximum": limit}))
}

/// The forms of a filter, each a component of its own: generators of clients do not resolve a schema that is part of itself without
/// a name in between, and leave out whatever uses it.
fn filter_forms() -> [(&'static str, Value); 15] {
    let field = || {
        about(
            "Payload key; a dotted name is one key. In a collection with plain payloads, a path as well: `author.name`, `books[].year`. \
             `$content` is the text.",
            filled(),
        )
    };
    let nodes = || array(named("Filter"));
    let text = || named("TextOperand");
    let time = about(
        "RFC 3339; the payload holds RFC 3339 too, or Unix milliseconds.",
        either(&[json!({"type": "string", "format": "date-time"}), named("TaggedTime")]),
    );
    let lists = either(&[array(string()), array(int64()), array(double()), named("TaggedList")]);
    let scalars = either(&[string(), int64(), double(), boolean(), named("TaggedScalar")]);
    let circle = body(
        &["radius_m"],
        json!({"center_lat": degrees(90), "center_lon": degrees(180),
            "radius_m": with(double(), json!({"exclusiveMinimum": 0}))}),
    );
    let bounds = with(
        body(
            &[],
            json!({"min_lat": degrees(90), "min_lon": degrees(180), "max_lat": degrees(90), "max_lon": degrees(180)}),
        ),
        json!({"minProperties": 1}),
    );
    let polygon = with(
        array(double()),
        json!({"minItems": 6, "maxItems": 2 * MAX_POLYGON_VERTICES,
            "description": "Latitude, longitude, latitude, longitude, and so on; closed by itself."}),
    );
    let ids = about(
        &format!("Ids of points: those that have one of them match. At most {MAX_IDS} in one filter."),
        with(array(point_id()), json!({"maxItems": MAX_IDS})),
    );
    let some = json!({
        "conditions": with(nodes(), json!({"minItems": 1, "maxItems": MAX_CONDITIONS})),
        "min_count": about(
            "How many of the conditions must hold at least; no more than there are.",
            integer(1, MAX_CONDITIONS as i64),
        ),
    });
    [
        ("FilterWithoutOperator", body(&[], json!({"and": nodes()}))),
        ("FilterAnd", node(&["and"], &[], json!({"and": nodes()}))),
        ("FilterOr", node(&["or"], &[], json!({"or": nodes()}))),
        ("FilterNot", node(&["not"], &["not"], json!({"not": named("Filter")}))),
        (
            "FilterMinShould",
            node(
                &["min_should"],
                &["min_should"],
                json!({"min_should": body(&["conditions", "min_count"], some)}),
            ),
        ),
        (
            "FilterComparison",
            node(
                &["eq", "ne", "gt", "gte", "lt", "lte"],
                &["field"],
                json!({"field": field(), "value": named("Operand")}),
            ),
        ),
        ("FilterIn", node(&["in"], &["field", "value"], json!({"field": field(), "value": lists}))),
        (
            "FilterContains",
            node(&["contains"], &["field", "value"], json!({"field": field(), "value": scalars})),
        ),
        (
            "FilterWords",
            node(&["match", "regex"], &["field", "value"], json!({"field": field(), "value": text()})),
        ),
        ("FilterEmpty", node(&["is_empty", "is_null", "exists"], &["field"], json!({"field": field()}))),
        ("FilterIds", node(&["has_id"], &["has_id"], json!({"has_id": ids}))),
        (
            "FilterTime",
            node(
                &["dt_gt", "dt_gte", "dt_lt", "dt_lte"],
                &["field", "value"],
                json!({"field": field(), "value": time}),
            ),
        ),
        ("FilterCircle", node(&["geo_radius"], &["field", "geo"], json!({"field": field(), "geo": circle}))),
        (
            "FilterBox",
            node(&["geo_bounding_box"], &["field", "geo"], json!({"field": field(), "geo": bounds})),
        ),
        (
            "FilterPolygon",
            node(
                &["geo_polygon"],
                &["field", "geo"],
                json!({"field": field(), "geo": body(&["polygon"], json!({"polygon": polygon}))}),
            ),
        ),
    ]
}

fn filter() -> Value {
    let text = format!(
        "A filter. `{{}}` and `null` match every point. At most {MAX_DEPTH} levels and {MAX_NODES} nodes. `eq` and `ne` compare \
         values of one kind; `gt` and its like compare numbers with numbers and strings with strings; `match` wants every \
         word, `regex` takes RE2 syntax; a missing key fails every test but `is_empty`."
    );
    let mut forms: Vec<Value> = filter_forms().into_iter().map(|(name, _)| named(name)).collect();
    // Readers that try one form after the other would take every filter for the one that requires nothing.
    forms.rotate_left(1);
    about(&text, json!({"anyOf": forms}))
}

/// The operators that the schema of a filter offers, in order.
pub fn filter_operators() -> Vec<String> {
    let forms = filter_forms();
    let names = forms.iter().filter_map(|(_, form)| form["properties"]["op"]["enum"].as_array().cloned());
    let known: Vec<&str> = operator_names().collect();
    names
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .filter(|name| known.contains(&name.as_str()))
        .collect()
}

/// The components of this file.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let values = |tagged: Value| {
        let null = json!({"type": "null"});
        either(&[null, boolean(), int64(), double(), string(), array(string()), array(double()), tagged])
    };
    let comparable: Vec<&str> = kinds().into_iter().filter(|kind| *kind != Kind::Record.name()).collect();
    [
        (
            "CollectionName",
            about(
                "`NAME`, or `TENANT/NAME`; a bare name belongs to the tenant `default`. At most 247 bytes; `.` and `..` are no \
                 names.",
                with(
                    filled(),
                    json!({"maxLength": NAME_MAX_BYTES, "pattern": format!("^{PART}(/{PART})?$")}),
                ),
            ),
        ),
        ("TaggedValue", about("A value with its kind.", tagged(&kinds()))),
        (
            "Value",
            about(
                "A payload value: tagged, or as JSON has it. Arrays hold strings alone or numbers alone; integers must fit 64 \
                 bits.",
                values(named("TaggedValue")),
            ),
        ),
        ("PlainValue", about("A value in a collection with plain payloads: any JSON.", json!({}))),
        (
            "Operand",
            about("What a payload value is compared with: any but a record.", values(named("TaggedOperand"))),
        ),
        ("StoredTaggedValue", stored()),
        (
            "StoredValue",
            about(
                "A tagged value, or, in a collection with plain payloads, the JSON that was sent.",
                either(&[named("StoredTaggedValue"), named("PlainValue")]),
            ),
        ),
        (
            "TextOperand",
            about("A string, tagged or plain.", json!({"anyOf": [string(), named("TaggedText")]})),
        ),
        (
            "Payload",
            about(
                "Payload keys and values. A string under `$content` is the point's text.",
                json!({"type": "object", "additionalProperties": either(&[named("Value"), named("PlainValue")])}),
            ),
        ),
        (
            "StoredPayload",
            about(
                "Payload keys and values as answers show them.",
                json!({"type": "object", "additionalProperties": named("StoredValue")}),
            ),
        ),
        (
            "KeyDeadlines",
            about(
                "Milliseconds after which payload keys expire; `null` is ignored.",
                json!({
                    "type": "object",
                    "maxProperties": PAYLOAD_KEYS_MAX,
                    "additionalProperties": nullable(int64()),
                }),
            ),
        ),
        ("TaggedOperand", tagged(&comparable)),
        ("TaggedText", tagged(&["string"])),
        ("TaggedTime", with(tagged(&["string"]), json!({"required": ["kind", "str"]}))),
        ("TaggedList", tagged(&["strings", "ints", "floats"])),
        ("TaggedScalar", tagged(&["string", "int", "float", "bool"])),
        ("Filter", filter()),
    ]
    .into_iter()
    .chain(filter_forms())
    .collect()
}
