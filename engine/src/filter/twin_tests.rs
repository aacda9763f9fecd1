//! Random filters over random payloads against an evaluator written straight from the grammar, on the parsed tree and a
//! plain map, sharing nothing with the compiled one but the regular expression library.

use super::{Geo, MinShould, Node, Predicate};
use crate::pace::{Whole, at_once};
use crate::payload::{PayloadRow, RowBuilder, Value};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const NOW: u64 = 1_000;

/// A payload: value and deadline by key.
type Payload = BTreeMap<String, (Value, u64)>;

fn naive(node: &Node, id: u64, payload: &Payload) -> bool {
    let live = |key: &str| {
        payload.get(key).filter(|(_, deadline)| *deadline == 0 || *deadline > NOW).map(|(value, _)| value)
    };
    let value = node.field.as_deref().and_then(live);
    let operand = node.value.clone().unwrap_or(Value::None);
    match node.op.as_deref().unwrap_or("and") {
        "and" => node.and.iter().flatten().all(|child| naive(child, id, payload)),
        "or" => node.or.iter().flatten().any(|child| naive(child, id, payload)),
        "not" => !naive(node.not.as_ref().unwrap(), id, payload),
        "min_should" => {
            let some = node.min_should.as_ref().unwrap();
            let held = some.conditions.iter().flatten().filter(|child| naive(child, id, payload));
            held.count() as u64 >= some.min_count.unwrap()
        }
        "has_id" => node.has_id.as_ref().unwrap().contains(&id),
        "eq" => value == Some(&operand),
        "ne" => value.is_some_and(|value| *value != operand),
        "gt" => compare(value, &operand, |a, b| a > b, |a, b| a > b),
        "gte" => compare(value, &operand, |a, b| a >= b, |a, b| a >= b),
        "lt" => compare(value, &operand, |a, b| a < b, |a, b| a < b),
        "lte" => compare(value, &operand, |a, b| a <= b, |a, b| a <= b),
        "in" => match (value, &operand) {
            (Some(Value::String(x)), Value::Strings(list)) => list.contains(x),
            (Some(Value::Int(x)), Value::Ints(list)) => list.contains(x),
            (value, Value::Ints(list)) => number(value).is_some_and(|x| list.iter().any(|y| *y as f64 == x)),
            (value, Value::Floats(list)) => number(value).is_some_and(|x| list.contains(&x)),
            _ => false,
        },
        "contains" => match (value, &operand) {
            (Some(Value::Strings(list)), Value::String(x)) => list.contains(x),
            (Some(Value::Ints(list)), Value::Int(x)) => list.contains(x),
            (Some(Value::Floats(list)), Value::Float(x)) => list.contains(x),
            _ => false,
        },
        "match" => {
            let Value::String(query) = &operand else { unreachable!() };
            let wanted = words(query);
            strings(value).iter().any(|text| words(text).is_superset(&wanted))
        }
        "regex" => {
            let Value::String(pattern) = &operand else { unreachable!() };
            let regex = regex::Regex::new(pattern).unwrap();
            strings(value).iter().any(|text| regex.is_match(text))
        }
        "is_empty" => match value {
            None | Some(Value::None) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Strings(list)) => list.is_empty(),
            Some(Value::Ints(list)) => list.is_empty(),
            Some(Value::Floats(list)) => list.is_empty(),
            _ => false,
        },
        "is_null" => value == Some(&Value::None),
        "exists" => value.is_some_and(|value| *value != Value::None),
        op @ ("dt_gt" | "dt_gte" | "dt_lt" | "dt_lte") => {
            let Value::String(time) = &operand else { unreachable!() };
            let bound = time.parse::<jiff::Timestamp>().unwrap().as_millisecond() as f64;
            let time = |text: &String| super::unix_ms_of_rfc3339(text).map(|unix_ms| unix_ms as f64);
            let stored = match value {
                Some(Value::String(text)) => time(text),
                value => number(value),
            };
            stored.is_some_and(|stored| match op {
                "dt_gt" => stored > bound,
                "dt_gte" => stored >= bound,
                "dt_lt" => stored < bound,
                _ => stored <= bound,
            })
        }
        op => {
            let Some(&Value::Geo { lat, lon }) = value else { return false };
            let geo = node.geo.as_ref().unwrap();
            match op {
                "geo_radius" => {
                    let distance = great_circle_m(lat, lon, geo.center_lat.unwrap(), geo.center_lon.unwrap());
                    distance <= geo.radius_m.unwrap()
                }
                "geo_bounding_box" => {
                    lat >= geo.min_lat.unwrap()
                        && lat <= geo.max_lat.unwrap()
                        && lon >= geo.min_lon.unwrap()
                        && lon <= geo.max_lon.unwrap()
                }
                "geo_polygon" => winding_is_odd(lat, lon, geo.polygon.as_ref().unwrap()),
                other => unreachable!("{other}"),
            }
        }
    }
}

fn number(value: Option<&Value>) -> Option<f64> {
    match value {
        Some(Value::Int(x)) => Some(*x as f64),
        Some(Value::Float(x)) => Some(*x),
        _ => None,
    }
}

fn compare(
    value: Option<&Value>,
    operand: &Value,
    numbers: fn(f64, f64) -> bool,
    texts: fn(&[u8], &[u8]) -> bool,
) -> bool {
    match (value, operand) {
        (Some(Value::String(a)), Value::String(b)) => texts(a.as_bytes(), b.as_bytes()),
        _ => number(value).zip(number(Some(operand))).is_some_and(|(a, b)| numbers(a, b)),
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Strings(list)) => list.clone(),
        _ => vec![],
    }
}

fn words(text: &str) -> BTreeSet<String> {
    let class = regex::Regex::new(r"[\p{L}\p{Nd}]+").unwrap();
    class.find_iter(text).map(|word| word.as_str().chars().flat_map(char::to_lowercase).collect()).collect()
}

/// By the angle between unit vectors: another formula than the haversine one.
fn great_circle_m(lat_a: f64, lon_a: f64, lat_b: f64, lon_b: f64) -> f64 {
    let unit = |lat: f64, lon: f64| {
        let (lat, lon) = (lat.to_radians(), lon.to_radians());
        [lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin()]
    };
    let (a, b) = (unit(lat_a, lon_a), unit(lat_b, lon_b));
    let dot: f64 = (0..3).map(|i| a[i] * b[i]).sum();
    let cross = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
    6_371_000.0 * cross.iter().map(|x| x * x).sum::<f64>().sqrt().atan2(dot)
}

/// Parity of the edges crossed by a ray to the north: the other axis than the one the compiled form walks along.
fn winding_is_odd(lat: f64, lon: f64, polygon: &[f64]) -> bool {
    let vertices: Vec<(f64, f64)> = polygon.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    let crossed = (0..vertices.len()).filter(|&i| {
        let (a, b) = (vertices[i], vertices[(i + 1) % vertices.len()]);
        let (west, east) = if a.1 <= b.1 { (a, b) } else { (b, a) };
        west.1 <= lon && lon < east.1 && lat < west.0 + (east.0 - west.0) * (lon - west.1) / (east.1 - west.1)
    });
    crossed.count() % 2 == 1
}

/// Values from small domains, so that filters hit often.
fn any_value() -> BoxedStrategy<Value> {
    prop_oneof![
        Just(Value::None),
        any_text().prop_map(Value::String),
        any_int().prop_map(Value::Int),
        any_float().prop_map(Value::Float),
        any::<bool>().prop_map(Value::Bool),
        prop::collection::vec(any_text(), 0..3).prop_map(Value::Strings),
        prop::collection::vec(any_int(), 0..3).prop_map(Value::Ints),
        prop::collection::vec(any_float(), 0..3).prop_map(Value::Floats),
        any_point().prop_map(|(lat, lon)| Value::Geo { lat, lon }),
    ]
    .boxed()
}

fn any_text() -> BoxedStrategy<String> {
    prop_oneof![
        prop::sample::select(vec!["", "a", "b", "a b", "B", "ab", "Grün grün", "x-1", "٣ a", "1 a"])
            .prop_map(String::from),
        "[abA ]{0,4}",
        "\\PC{0,3}",
        any_time(),
    ]
    .boxed()
}

/// Times around those that filters ask for, some with offsets that put them on another date, and texts that are nearly times.
fn any_time() -> BoxedStrategy<String> {
    prop::sample::select(vec![
        "1970-01-01T00:00:00Z",
        "1970-01-01T00:00:01.5Z",
        "1970-01-01T00:00:02Z",
        "1970-01-01T23:59:00+23:59",
        "1969-12-31T00:02:00-23:59",
        "1969-12-31T23:59:59.999z",
        "1970-01-01T00:00:00",
        "1970-01-01",
    ])
    .prop_map(String::from)
    .boxed()
}

fn any_int() -> BoxedStrategy<i64> {
    prop_oneof![4 => -2..3i64, 1 => prop::sample::select(vec![0, 1_500, i64::MAX, i64::MAX - 1, i64::MIN])]
        .boxed()
}

fn any_float() -> BoxedStrategy<f64> {
    prop_oneof![
        4 => (-4..5i32).prop_map(|x| f64::from(x) / 2.0),
        1 => prop::sample::select(vec![-0.0, 1500.0, f64::INFINITY, f64::NAN, i64::MAX as f64]),
    ]
    .boxed()
}

/// Off the grid of the filters' coordinates: what happens on an edge depends on the formula.
fn any_point() -> BoxedStrategy<(f64, f64)> {
    (-95..95i32, -185..185i32).prop_map(|(lat, lon)| (f64::from(lat) + 0.37, f64::from(lon) + 0.41)).boxed()
}

fn any_geo(op: &'static str) -> BoxedStrategy<Geo> {
    let lat = || (-9..10i32).prop_map(|x| f64::from(10 * x));
    let lon = || (-18..19i32).prop_map(|x| f64::from(10 * x));
    match op {
        "geo_radius" => (lat(), lon(), 1..200u32)
            .prop_map(|(lat, lon, radius)| Geo {
                center_lat: Some(lat),
                center_lon: Some(lon),
                radius_m: Some(f64::from(radius) * 100_000.0),
                ..Geo::default()
            })
            .boxed(),
        "geo_bounding_box" => (lat(), lat(), lon(), lon())
            .prop_map(|(a, b, c, d)| Geo {
                min_lat: Some(a.min(b)),
                max_lat: Some(a.max(b)),
                min_lon: Some(c.min(d)),
                max_lon: Some(c.max(d)),
                ..Geo::default()
            })
            .boxed(),
        _ => prop::collection::vec((lat(), lon()), 3..7)
            .prop_map(|list| Geo {
                polygon: Some(list.into_iter().flat_map(|(lat, lon)| [lat, lon]).collect()),
                ..Geo::default()
            })
            .boxed(),
    }
}

fn any_key() -> BoxedStrategy<String> {
    prop::sample::select(vec!["a", "b", "a.b", "$content"]).prop_map(String::from).boxed()
}

fn any_leaf() -> BoxedStrategy<Node> {
    let with = |ops: Vec<&'static str>, value: BoxedStrategy<Option<Value>>| {
        (prop::sample::select(ops), any_key(), value)
            .prop_map(|(op, field, value)| Node {
                op: Some(op.into()),
                field: Some(field),
                value,
                ..Node::default()
            })
            .boxed()
    };
    let geo = |op: &'static str| {
        (any_key(), any_geo(op))
            .prop_map(move |(field, geo)| Node {
                op: Some(op.into()),
                field: Some(field),
                geo: Some(geo),
                ..Node::default()
            })
            .boxed()
    };
    let patterns = vec!["", "a", "^a", "b$", "a.b", "[ab]{2}", "(?i)grün", "^$", "a|x", "(a)(?:b)?$"];
    let times = vec!["1970-01-01T00:00:00Z", "1970-01-01T00:00:01.5Z", "1970-01-01T01:00:00.001+01:00"];
    let list = prop_oneof![
        prop::collection::vec(any_text(), 0..12).prop_map(Value::Strings),
        prop::collection::vec(any_int(), 0..12).prop_map(Value::Ints),
        prop::collection::vec(any_float(), 0..12).prop_map(Value::Floats),
    ];
    let element = prop_oneof![
        any_text().prop_map(Value::String),
        any_int().prop_map(Value::Int),
        any_float().prop_map(Value::Float)
    ];
    prop_oneof![
        4 => with(vec!["eq", "ne", "gt", "gte", "lt", "lte"], any_value().prop_map(Some).boxed()),
        2 => with(vec!["gt", "gte", "lt", "lte"], prop_oneof![any_int().prop_map(Value::Int), any_float().prop_map(Value::Float), any_text().prop_map(Value::String)].prop_map(Some).boxed()),
        2 => with(vec!["in"], list.prop_map(Some).boxed()),
        2 => with(vec!["contains"], element.prop_map(Some).boxed()),
        2 => with(vec!["match"], any_text().prop_map(|query| Some(Value::String(query))).boxed()),
        2 => with(vec!["regex"], prop::sample::select(patterns).prop_map(|p| Some(Value::String(p.into()))).boxed()),
        2 => with(vec!["is_empty", "is_null", "exists"], Just(None).boxed()),
        2 => with(vec!["dt_gt", "dt_gte", "dt_lt", "dt_lte"], prop::sample::select(times).prop_map(|t| Some(Value::String(t.into()))).boxed()),
        2 => any_ids(),
        1 => geo("geo_radius"),
        1 => geo("geo_bounding_box"),
        1 => geo("geo_polygon"),
    ]
    .boxed()
}

/// Short lists of a few ids, and lists that are hashed.
fn any_ids() -> BoxedStrategy<Node> {
    let id = prop_oneof![4 => 0..4u64, 1 => prop::sample::select(vec![u64::MAX, 1 << 63, u64::MAX - 1])];
    prop::collection::vec(id, 0..14)
        .prop_map(|ids| Node { op: Some("has_id".into()), has_id: Some(ids), ..Node::default() })
        .boxed()
}

/// The id of the point in a place, some of them as large as ids may be.
fn id_at(place: usize) -> u64 {
    if place == 3 { u64::MAX } else { place as u64 }
}

fn any_filter() -> BoxedStrategy<Node> {
    any_leaf()
        .prop_recursive(4, 24, 4, |child| {
            let list = || prop::collection::vec(child.clone(), 0..4);
            prop_oneof![
                list().prop_map(|and| Node { op: Some("and".into()), and: Some(and), ..Node::default() }),
                list().prop_map(|and| Node { and: Some(and), ..Node::default() }),
                list().prop_map(|or| Node { op: Some("or".into()), or: Some(or), ..Node::default() }),
                (prop::collection::vec(child.clone(), 1..6), any::<prop::sample::Index>()).prop_map(
                    |(conditions, count)| {
                        let min_count = Some(count.index(conditions.len()) as u64 + 1);
                        let min_should = Some(MinShould { conditions: Some(conditions), min_count });
                        Node { op: Some("min_should".into()), min_should, ..Node::default() }
                    }
                ),
                child.prop_map(|child| Node {
                    op: Some("not".into()),
                    not: Some(Box::new(child)),
                    ..Node::default()
                }),
            ]
        })
        .boxed()
}

fn any_payload() -> BoxedStrategy<Payload> {
    let deadline = prop_oneof![4 => Just(0), 1 => NOW - 1..NOW + 2];
    prop::collection::btree_map(any_key(), (any_value(), deadline), 0..5).boxed()
}

fn encoded(payload: &Payload) -> Vec<u8> {
    let mut builder = RowBuilder::new();
    for (key, (value, deadline_ms)) in payload {
        builder.set(key, value.clone(), *deadline_ms);
    }
    builder.finish()
}

fn cases(usual: u32) -> u32 {
    if std::env::var_os("NIGH_TEST_LONG").is_some() { 100 * usual } else { usual }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(1_500), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn compiled_filters_agree_with_the_grammar(
        filter in any_filter(),
        payloads in prop::collection::vec(any_payload(), 1..8),
    ) {
        let predicate = Predicate::compile(&filter).unwrap();
        for (place, payload) in payloads.iter().enumerate() {
            let (id, bytes) = (id_at(place), encoded(payload));
            let matched = predicate.matches(id, Some(PayloadRow::verify(&bytes).unwrap()), NOW);
            prop_assert_eq!(matched, naive(&filter, id, payload), "{} {:?}", id, payload);
            prop_assert!(matched || !predicate.is_trivially_true());
            let row = Some(PayloadRow::trusted(&bytes));
            let in_pieces = at_once(predicate.ask_in_pieces(id, row, NOW, &mut Whole::unbounded()));
            prop_assert_eq!(in_pieces, Ok(matched));
        }
        let empty = Payload::new();
        prop_assert_eq!(predicate.matches(1, None, NOW), naive(&filter, 1, &empty));
    }

    #[test]
    fn single_leaves_agree_with_the_grammar(leaf in any_leaf(), value in any_value()) {
        let payload = Payload::from([(leaf.field.clone().unwrap_or_default(), (value, 0))]);
        let bytes = encoded(&payload);
        let matched = Predicate::compile(&leaf).unwrap().matches(2, Some(PayloadRow::verify(&bytes).unwrap()), NOW);
        prop_assert_eq!(matched, naive(&leaf, 2, &payload));
    }
}
