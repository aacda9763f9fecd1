//! One table per operator: an operand, then stored values that match and that do not.

use super::{Allowance, Geo, MinShould, Node, Predicate};
use crate::payload::{PayloadRow, RowBuilder, Value};

const NOW: u64 = 1_000;
/// The id of the point that is asked about.
const ID: u64 = 7;

fn text(s: &str) -> Value {
    Value::String(s.into())
}

fn texts(list: &[&str]) -> Value {
    Value::Strings(list.iter().map(|s| (*s).to_owned()).collect())
}

/// A leaf on the field `f`.
fn leaf(op: &str, value: impl Into<Option<Value>>) -> Node {
    Node { op: Some(op.into()), field: Some("f".into()), value: value.into(), ..Node::default() }
}

fn geo_leaf(op: &str, geo: Geo) -> Node {
    Node { op: Some(op.into()), field: Some("f".into()), geo: Some(geo), ..Node::default() }
}

fn and(children: Vec<Node>) -> Node {
    Node { op: Some("and".into()), and: Some(children), ..Node::default() }
}

fn or(children: Vec<Node>) -> Node {
    Node { op: Some("or".into()), or: Some(children), ..Node::default() }
}

fn not(child: Node) -> Node {
    Node { op: Some("not".into()), not: Some(Box::new(child)), ..Node::default() }
}

/// Whether a point whose field `f` holds `stored` (None: has no such field) matches.
fn matches(node: &Node, stored: Option<&Value>) -> bool {
    let predicate = Predicate::compile(node).unwrap();
    let mut builder = RowBuilder::new();
    builder.set("other", Value::Int(1), 0);
    if let Some(value) = stored {
        builder.set("f", value.clone(), 0);
    }
    let row = builder.finish();
    predicate.matches(ID, Some(PayloadRow::verify(&row).unwrap()), NOW)
}

/// One value of every kind, to show which kinds an operator does not touch.
fn one_of_each() -> Vec<Value> {
    vec![
        Value::None,
        text("s"),
        Value::Int(7),
        Value::Float(7.5),
        Value::Bool(true),
        texts(&["s"]),
        Value::Ints(vec![7]),
        Value::Floats(vec![7.5]),
        Value::Geo { lat: 1.0, lon: 2.0 },
    ]
}

/// Every value of `yes` matches; every value of `no`, every value of a kind in neither list, and a missing field do not.
fn check(node: Node, yes: &[Value], no: &[Value]) {
    for value in yes {
        assert!(matches(&node, Some(value)), "{value:?} should match {node:?}");
    }
    let untouched = one_of_each().into_iter().filter(|value| !yes.iter().any(|y| y.kind() == value.kind()));
    for value in no.iter().cloned().chain(untouched) {
        assert!(!matches(&node, Some(&value)), "{value:?} should not match {node:?}");
    }
    assert!(!matches(&node, None), "a missing field should not match {node:?}");
}

#[test]
fn eq_wants_the_same_kind_and_content() {
    let floats = |list: &[f64]| Value::Floats(list.to_vec());
    check(
        leaf("eq", Value::Int(1)),
        &[Value::Int(1)],
        &[Value::Int(2), Value::Float(1.0), Value::Bool(true), text("1")],
    );
    check(
        leaf("eq", Value::Float(0.0)),
        &[Value::Float(0.0), Value::Float(-0.0)],
        &[Value::Float(0.1), Value::Int(0)],
    );
    check(leaf("eq", text("a")), &[text("a")], &[text("A"), text(""), texts(&["a"])]);
    check(
        leaf("eq", Value::Bool(false)),
        &[Value::Bool(false)],
        &[Value::Bool(true), Value::None, Value::Int(0)],
    );
    check(leaf("eq", Value::None), &[Value::None], &[text(""), Value::Int(0)]);
    check(
        leaf("eq", texts(&["a", "b"])),
        &[texts(&["a", "b"])],
        &[texts(&["b", "a"]), texts(&["a"]), texts(&[])],
    );
    check(
        leaf("eq", Value::Ints(vec![])),
        &[Value::Ints(vec![])],
        &[Value::Ints(vec![1]), floats(&[]), texts(&[])],
    );
    check(
        leaf("eq", floats(&[0.5, -0.0])),
        &[floats(&[0.5, 0.0])],
        &[floats(&[0.5]), floats(&[0.5, 0.0, 0.0])],
    );
    check(leaf("eq", Value::Float(f64::NAN)), &[], &[Value::Float(f64::NAN)]);
    let geo = |lat, lon| Value::Geo { lat, lon };
    check(leaf("eq", geo(1.0, 2.0)), &[geo(1.0, 2.0)], &[geo(1.0, 2.5), geo(2.0, 1.0)]);
}

#[test]
fn ne_wants_presence() {
    let node = leaf("ne", Value::Int(1));
    for value in [Value::Int(2), Value::Float(1.0), Value::None, text("1"), Value::Ints(vec![1])] {
        assert!(matches(&node, Some(&value)), "{value:?}");
    }
    assert!(!matches(&node, Some(&Value::Int(1))));
    assert!(!matches(&node, None));
    assert!(matches(&leaf("ne", Value::None), Some(&Value::Int(1))));
    assert!(!matches(&leaf("ne", Value::None), Some(&Value::None)));
}

#[test]
fn ranges_compare_numbers_mixed_and_strings_by_bytes() {
    let (int, float) = (Value::Int, Value::Float);
    check(leaf("gt", int(5)), &[int(6), float(5.1)], &[int(5), float(5.0), float(f64::NAN), text("6")]);
    check(leaf("gte", int(5)), &[int(5), float(5.0), float(f64::INFINITY)], &[int(4), float(4.9)]);
    check(leaf("lt", float(5.5)), &[int(5), float(5.4), int(i64::MIN)], &[int(6), float(5.5)]);
    check(leaf("lte", float(5.5)), &[int(5), float(5.5)], &[int(6), float(f64::NAN)]);
    check(leaf("gte", float(f64::NAN)), &[], &[int(5), float(f64::NAN)]);
    // As f64 both are 2^53.
    check(leaf("lte", int(1 << 53)), &[int((1 << 53) + 1), float(0.0)], &[]);
    check(
        leaf("gt", text("b")),
        &[text("ba"), text("c"), text("ä")],
        &[text("b"), text("B"), text(""), int(99)],
    );
    check(leaf("lte", text("b")), &[text("b"), text("Z"), text("")], &[text("ba")]);
    for operand in [Value::Bool(true), Value::None, Value::Ints(vec![1]), Value::Geo { lat: 0.0, lon: 0.0 }] {
        check(leaf("gte", operand), &[], &[Value::Bool(true), Value::None, Value::Ints(vec![1])]);
    }
}

#[test]
fn in_looks_up_scalars_and_numbers_by_value() {
    check(leaf("in", texts(&["a", "", "s"])), &[text("a"), text(""), text("s")], &[text("A"), texts(&["a"])]);
    check(
        leaf("in", Value::Ints(vec![3, -1])),
        &[Value::Int(3), Value::Int(-1), Value::Float(3.0)],
        &[Value::Int(1), Value::Float(3.5), Value::Float(f64::NAN), text("3")],
    );
    check(
        leaf("in", Value::Floats(vec![0.0, 2.5, f64::NAN])),
        &[Value::Float(-0.0), Value::Float(2.5), Value::Int(0)],
        &[Value::Float(2.0), Value::Float(f64::NAN), Value::Int(2)],
    );
    // What a list with a price in it loses must not depend on whether another price has cents.
    check(
        leaf("in", Value::Floats(vec![20.0, 19.99])),
        &[Value::Int(20), Value::Float(19.99)],
        &[Value::Int(19)],
    );
    for empty in [texts(&[]), Value::Ints(vec![]), Value::Floats(vec![])] {
        check(leaf("in", empty), &[], &[text(""), Value::Int(0), Value::Float(0.0)]);
    }
    let many: Vec<i64> = (0..1_000_000).map(|i| 2 * i).collect();
    check(
        leaf("in", Value::Ints(many)),
        &[Value::Int(0), Value::Int(1_999_998)],
        &[Value::Int(7), Value::Int(-2)],
    );
    let many: Vec<String> = (0..1_000).map(|i| i.to_string()).collect();
    check(leaf("in", Value::Strings(many)), &[text("999"), text("0")], &[text("1000"), text("")]);
    let many: Vec<f64> = (-500..500).map(f64::from).collect();
    check(
        leaf("in", Value::Floats(many)),
        &[Value::Float(-0.0), Value::Float(-500.0), Value::Int(499)],
        &[Value::Float(0.5), Value::Int(500)],
    );
}

#[test]
fn contains_looks_into_arrays_of_the_operands_kind() {
    check(leaf("contains", text("b")), &[texts(&["a", "b"])], &[texts(&["ab", ""]), texts(&[]), text("b")]);
    check(
        leaf("contains", Value::Int(2)),
        &[Value::Ints(vec![1, 2])],
        &[Value::Ints(vec![]), Value::Floats(vec![2.0])],
    );
    check(
        leaf("contains", Value::Float(0.0)),
        &[Value::Floats(vec![-0.0])],
        &[Value::Floats(vec![1.0]), Value::Ints(vec![0])],
    );
}

#[test]
fn match_wants_every_token_in_one_text() {
    check(
        leaf("match", text("quick FOX")),
        &[text("The quick, brown fox"), text("fox/quick"), texts(&["slow", "Quick fox"])],
        &[text("quickfox"), text("quick foxes"), text(""), texts(&["quick", "fox"]), texts(&[])],
    );
    check(leaf("match", text("größe")), &[text("GRÖSSE, Größe")], &[text("GRÖSSE")]);
    check(leaf("match", text("-- !")), &[text(""), text("x"), texts(&[""])], &[texts(&[])]);
    check(leaf("match", text("a a A")), &[text("a")], &[text("b")]);
}

#[test]
fn regex_searches_anywhere_in_a_text() {
    check(
        leaf("regex", text("b+c")),
        &[text("abbcd"), texts(&["x", "bc"])],
        &[text("ac"), text(""), texts(&["b", "c"]), texts(&[])],
    );
    check(leaf("regex", text("^a$")), &[text("a")], &[text("ba"), text("a\n")]);
    check(leaf("regex", text("")), &[text(""), text("x"), texts(&[""])], &[texts(&[])]);
}

#[test]
fn is_empty_and_is_null_judge_absence() {
    let node = leaf("is_empty", None);
    let empty = [Value::None, text(""), texts(&[]), Value::Ints(vec![]), Value::Floats(vec![])];
    for value in &empty {
        assert!(matches(&node, Some(value)), "{value:?}");
    }
    assert!(matches(&node, None));
    let full = [
        text(" "),
        Value::Int(0),
        Value::Float(0.0),
        Value::Bool(false),
        texts(&[""]),
        Value::Geo { lat: 0.0, lon: 0.0 },
    ];
    for value in &full {
        assert!(!matches(&node, Some(value)), "{value:?}");
    }
    check(leaf("is_null", None), &[Value::None], &[text(""), texts(&[]), Value::Int(0)]);
}

#[test]
fn exists_wants_a_value() {
    let node = leaf("exists", None);
    for value in one_of_each().iter().chain(&[text(""), texts(&[]), Value::Ints(vec![]), Value::Bool(false)])
    {
        assert_eq!(matches(&node, Some(value)), *value != Value::None, "{value:?}");
    }
    assert!(!matches(&node, None));
}

#[test]
fn datetimes_compare_milliseconds() {
    let noon = text("1970-01-01T00:00:01.5Z");
    let (int, float) = (Value::Int, Value::Float);
    check(
        leaf("dt_gt", noon.clone()),
        &[int(1501), float(1500.5), text("2000-01-01T00:00:00Z"), text("1970-01-01T01:00:01.501+01:00")],
        &[int(1500), float(f64::NAN), text("1970-01-01T00:00:01.5Z"), text("2000-01-01"), text("later")],
    );
    check(leaf("dt_gte", noon.clone()), &[int(1500), float(1500.0)], &[int(1499)]);
    check(leaf("dt_lt", noon.clone()), &[int(1499), int(-9), float(1499.9)], &[int(1500)]);
    check(leaf("dt_lte", noon), &[int(1500), float(1500.0)], &[int(1501)]);
}

#[test]
fn geo_radius_measures_on_the_sphere() {
    let geo = |lat, lon| Value::Geo { lat, lon };
    let circle = |lat: f64, lon: f64, radius_m: f64| {
        geo_leaf(
            "geo_radius",
            Geo { center_lat: Some(lat), center_lon: Some(lon), radius_m: Some(radius_m), ..Geo::default() },
        )
    };
    // One degree of a great circle is 111,194.93 m at the fixed radius.
    check(
        circle(0.0, 0.0, 111_195.0),
        &[geo(0.0, 1.0), geo(-1.0, 0.0), geo(0.0, 0.0)],
        &[geo(1.0, 1.0), geo(0.0, 1.001)],
    );
    check(circle(0.0, 0.0, 111_194.0), &[geo(0.0, 0.99)], &[geo(0.0, 1.0)]);
    check(circle(60.0, 10.0, 56_000.0), &[geo(60.0, 11.0)], &[geo(61.0, 10.0)]);
    check(circle(0.0, 180.0, 112_000.0), &[geo(0.0, -179.0)], &[geo(0.0, 178.0)]);
    check(circle(90.0, 0.0, 112_000.0), &[geo(89.0, 123.0)], &[geo(88.9, 0.0)]);
    check(
        circle(0.0, 0.0, 2.1e7),
        &[geo(0.0, 180.0), geo(-90.0, 7.0), geo(1.0, 181.0)],
        &[geo(f64::NAN, 0.0)],
    );
    // A coordinate that is 0 may be left out.
    let equator = Geo { center_lon: Some(10.0), radius_m: Some(1_000.0), ..Geo::default() };
    check(geo_leaf("geo_radius", equator), &[geo(0.0, 10.0)], &[geo(1.0, 10.0)]);
}

#[test]
fn geo_bounding_box_includes_its_edges() {
    let geo = |lat, lon| Value::Geo { lat, lon };
    let bounds = Geo {
        min_lat: Some(-1.0),
        min_lon: Some(2.0),
        max_lat: Some(3.0),
        max_lon: Some(180.0),
        ..Geo::default()
    };
    check(
        geo_leaf("geo_bounding_box", bounds),
        &[geo(0.0, 50.0), geo(-1.0, 2.0), geo(3.0, 180.0)],
        &[geo(-1.1, 50.0), geo(3.1, 50.0), geo(0.0, 1.9), geo(0.0, -180.0), geo(f64::NAN, 3.0)],
    );
    let point = Geo {
        min_lat: Some(5.0),
        min_lon: Some(5.0),
        max_lat: Some(5.0),
        max_lon: Some(5.0),
        ..Geo::default()
    };
    check(geo_leaf("geo_bounding_box", point), &[geo(5.0, 5.0)], &[geo(5.0, 5.1)]);
}

#[test]
fn geo_polygon_follows_the_even_odd_rule() {
    let geo = |lat, lon| Value::Geo { lat, lon };
    let polygon =
        |list: &[f64]| geo_leaf("geo_polygon", Geo { polygon: Some(list.to_vec()), ..Geo::default() });
    check(
        polygon(&[0.0, 0.0, 10.0, 0.0, 0.0, 10.0]),
        &[geo(2.0, 2.0), geo(8.0, 1.0)],
        &[geo(6.0, 6.0), geo(-1.0, 5.0), geo(f64::NAN, 1.0)],
    );
    // A U open to the north: its notch is outside.
    let u = [0.0, 0.0, 0.0, 9.0, 9.0, 9.0, 9.0, 6.0, 3.0, 6.0, 3.0, 3.0, 9.0, 3.0, 9.0, 0.0];
    check(polygon(&u), &[geo(1.0, 4.5), geo(8.0, 1.0), geo(8.0, 8.0)], &[geo(5.0, 4.5), geo(9.5, 1.0)]);
    // A bow tie: both wings are inside, what lies above the crossing is not.
    check(
        polygon(&[0.0, 0.0, 4.0, 4.0, 0.0, 4.0, 4.0, 0.0]),
        &[geo(2.0, 1.0), geo(2.0, 3.0)],
        &[geo(3.5, 2.0), geo(0.5, 2.0)],
    );
    // A pentagram drawn in one stroke: the middle is crossed twice.
    let star: Vec<f64> = (0..5)
        .flat_map(|i| {
            let angle = f64::from(i) * 4.0 * std::f64::consts::PI / 5.0;
            [10.0 * angle.cos(), 10.0 * angle.sin()]
        })
        .collect();
    check(polygon(&star), &[geo(8.0, 0.0)], &[geo(0.0, 0.0), geo(-9.0, 0.0)]);
}

#[test]
fn has_id_looks_for_the_id_alone() {
    let list = |ids: Vec<u64>| Node { op: Some("has_id".into()), has_id: Some(ids), ..Node::default() };
    let many: Vec<u64> = (0..1_000).map(|n| u64::MAX - n).collect();
    for (ids, asked, expected) in [
        (vec![ID], ID, true),
        (vec![ID], ID + 1, false),
        (vec![0, u64::MAX, ID, ID], u64::MAX, true),
        (vec![0], 0, true),
        (vec![], ID, false),
        (many.clone(), u64::MAX - 999, true),
        (many, u64::MAX - 1_000, false),
    ] {
        let predicate = Predicate::compile(&list(ids.clone())).unwrap();
        assert_eq!(predicate.matches(asked, None, NOW), expected, "{asked} in {ids:?}");
        let others = Predicate::compile(&not(list(ids.clone()))).unwrap();
        assert_eq!(others.matches(asked, None, NOW), !expected, "{asked} not in {ids:?}");
        assert_eq!(others.is_trivially_true(), ids.is_empty());
        // What has no id, as a record, is in no list.
        assert_eq!(predicate.ask_values(|_| None, &Allowance::unbounded()), Some(false));
    }
    let either = or(vec![list(vec![1, 2]), leaf("is_null", None), not(list(vec![3]))]);
    assert_eq!(Predicate::compile(&either).unwrap().id_lists().len(), 2);
    assert!(Predicate::compile(&not(list(vec![]))).unwrap().asks_for_ids());
    assert!(!Predicate::compile(&leaf("is_null", None)).unwrap().asks_for_ids());
    let null = || leaf("is_null", None);
    let some = || list(vec![1, 2]);
    for (node, expected) in [
        (some(), true),
        (and(vec![null(), some()]), true),
        (or(vec![some(), and(vec![some(), null()])]), true),
        (or(vec![some(), null()]), false),
        (min_should(2, vec![some(), null(), some()]), true),
        (min_should(2, vec![some(), null(), null()]), false),
        (not(some()), false),
        (and(vec![null(), or(vec![null(), some()])]), false),
        (Node::default(), false),
    ] {
        assert_eq!(Predicate::compile(&node).unwrap().is_within_ids(), expected, "{node:?}");
    }
}

#[test]
fn groups_combine_their_children() {
    let yes = || leaf("eq", Value::Int(1));
    let no = || leaf("eq", Value::Int(2));
    for (node, expected) in [
        (and(vec![]), true),
        (and(vec![yes(), yes()]), true),
        (and(vec![yes(), no()]), false),
        (or(vec![]), false),
        (or(vec![no(), yes()]), true),
        (or(vec![no(), no()]), false),
        (not(yes()), false),
        (not(no()), true),
        (not(and(vec![yes(), or(vec![no()])])), true),
        (and(vec![or(vec![no(), yes()]), not(no())]), true),
        (Node { and: Some(vec![no()]), ..Node::default() }, false),
        (Node::default(), true),
        (Node { op: Some("and".into()), ..Node::default() }, true),
        (Node { op: Some("or".into()), ..Node::default() }, false),
    ] {
        assert_eq!(matches(&node, Some(&Value::Int(1))), expected, "{node:?}");
    }
}

fn min_should(min_count: u64, conditions: Vec<Node>) -> Node {
    let min_should = Some(MinShould { conditions: Some(conditions), min_count: Some(min_count) });
    Node { op: Some("min_should".into()), min_should, ..Node::default() }
}

#[test]
fn min_should_counts_what_holds() {
    let yes = || leaf("eq", Value::Int(1));
    let no = || leaf("eq", Value::Int(2));
    let all = Node::default;
    for (min_count, conditions, expected) in [
        (1, vec![yes()], true),
        (1, vec![no()], false),
        (2, vec![yes(), no(), yes()], true),
        (2, vec![no(), yes(), yes()], true),
        (2, vec![yes(), no(), no()], false),
        (2, vec![no(), no(), yes(), no()], false),
        (3, vec![yes(), yes(), yes()], true),
        (3, vec![yes(), no(), yes()], false),
        (2, vec![all(), no(), no()], false),
        (2, vec![all(), no(), yes()], true),
        (3, vec![or(vec![]), yes(), yes(), not(no())], true),
        (3, vec![or(vec![]), yes(), yes(), no()], false),
        (2, vec![min_should(2, vec![yes(), no(), yes()]), no(), not(no())], true),
        (2, vec![yes(), yes(), yes(), yes(), no(), no()], true),
    ] {
        let node = min_should(min_count, conditions);
        assert_eq!(matches(&node, Some(&Value::Int(1))), expected, "{node:?}");
        assert_eq!(matches(&not(node.clone()), Some(&Value::Int(1))), !expected, "{node:?}");
    }
}

#[test]
fn trivially_true_filters_are_recognised() {
    let never = || leaf("in", Value::Ints(vec![]));
    let some = || leaf("eq", Value::Int(1));
    for (node, expected) in [
        (Node::default(), true),
        (and(vec![]), true),
        (and(vec![Node::default()]), true),
        (Node { and: Some(vec![Node::default(), and(vec![])]), ..Node::default() }, true),
        (or(vec![some(), Node::default()]), true),
        (not(or(vec![])), true),
        (not(never()), true),
        (not(not(and(vec![]))), true),
        (not(and(vec![some(), never()])), true),
        (not(leaf("gt", Value::Bool(true))), true),
        (min_should(2, vec![Node::default(), some(), Node::default()]), true),
        (not(min_should(2, vec![never(), some(), never()])), true),
        (min_should(2, vec![Node::default(), some(), some()]), false),
        (or(vec![]), false),
        (not(Node::default()), false),
        (never(), false),
        (some(), false),
        (not(some()), false),
        (and(vec![Node::default(), some()]), false),
        (or(vec![some(), never()]), false),
        (and(vec![some(), never()]), false),
    ] {
        assert_eq!(Predicate::compile(&node).unwrap().is_trivially_true(), expected, "{node:?}");
    }
}

#[test]
fn points_without_payload_have_no_fields() {
    for (node, expected) in [
        (Node::default(), true),
        (leaf("is_empty", None), true),
        (leaf("is_null", None), false),
        (leaf("exists", None), false),
        (leaf("ne", Value::Int(1)), false),
        (not(leaf("eq", Value::Int(1))), true),
    ] {
        let predicate = Predicate::compile(&node).unwrap();
        assert_eq!(predicate.matches(ID, None, NOW), expected, "{node:?}");
        assert_eq!(predicate.matches(ID, Some(PayloadRow::trusted(&[])), NOW), expected, "{node:?}");
    }
}

#[test]
fn expired_keys_are_absent() {
    let mut builder = RowBuilder::new();
    builder.set("f", Value::Int(1), NOW);
    let bytes = builder.finish();
    let row = Some(PayloadRow::trusted(&bytes));
    let eq = Predicate::compile(&leaf("eq", Value::Int(1))).unwrap();
    let empty = Predicate::compile(&leaf("is_empty", None)).unwrap();
    assert!(eq.matches(ID, row, NOW - 1) && !empty.matches(ID, row, NOW - 1));
    assert!(!eq.matches(ID, row, NOW) && empty.matches(ID, row, NOW));
    let exists = Predicate::compile(&leaf("exists", None)).unwrap();
    assert!(exists.matches(ID, row, NOW - 1) && !exists.matches(ID, row, NOW));
}

#[test]
fn predicates_are_shared_between_threads() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<Predicate>();
}
