//! Filters that do not compile: each with the node and the reason its error names.

use super::{
    Geo, MAX_CONDITIONS, MAX_DEPTH, MAX_IDS, MAX_NODES, MAX_POLYGON_VERTICES, MAX_REGEXES, MinShould, Node,
    Predicate,
};
use super::{is_operator, operator_names};
use crate::payload::Value;

fn node(op: &str) -> Node {
    Node { op: Some(op.into()), ..Node::default() }
}

fn leaf(op: &str, value: Value) -> Node {
    Node { field: Some("f".into()), value: Some(value), ..node(op) }
}

fn geo(op: &str, geo: Geo) -> Node {
    Node { field: Some("f".into()), geo: Some(geo), ..node(op) }
}

fn text(s: &str) -> Value {
    Value::String(s.into())
}

fn refused(node: &Node) -> String {
    match Predicate::compile(node) {
        Ok(_) => panic!("compiled: {node:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn keys_must_belong_to_the_operator() {
    let eq = || leaf("eq", Value::Int(1));
    for (node, fragment) in [
        (Node { or: Some(vec![eq()]), ..Node::default() }, r#"key "or" without "op""#),
        (Node { not: Some(Box::new(eq())), ..Node::default() }, r#"key "not" without "op""#),
        (Node { field: Some("f".into()), ..Node::default() }, r#"key "field" without "op""#),
        (Node { value: Some(Value::Int(1)), ..node("") }, r#"key "value" without "op""#),
        (Node { geo: Some(Geo::default()), ..Node::default() }, r#"key "geo" without "op""#),
        (Node { or: Some(vec![]), ..node("and") }, r#"key "or" does not belong to op "and""#),
        (Node { and: Some(vec![]), ..node("or") }, r#"key "and" does not belong to op "or""#),
        (Node { and: Some(vec![]), ..node("not") }, r#"key "and" does not belong to op "not""#),
        (Node { field: Some("f".into()), ..node("or") }, r#"key "field" does not belong to op "or""#),
        (Node { and: Some(vec![]), ..eq() }, r#"key "and" does not belong to op "eq""#),
        (Node { geo: Some(Geo::default()), ..eq() }, r#"key "geo" does not belong to op "eq""#),
        (
            Node { value: Some(Value::None), ..leaf("is_null", Value::None) },
            r#"key "value" does not belong to op "is_null""#,
        ),
        (leaf("has_id", Value::Int(1)), r#"key "field" does not belong to op "has_id""#),
        (Node { has_id: Some(vec![1]), ..eq() }, r#"key "has_id" does not belong to op "eq""#),
        (Node { has_id: Some(vec![1]), ..Node::default() }, r#"key "has_id" without "op""#),
        (leaf("exists", Value::Bool(true)), r#"key "value" does not belong to op "exists""#),
        (
            Node { value: Some(Value::None), ..geo("geo_radius", Geo::default()) },
            r#"key "value" does not belong"#,
        ),
    ] {
        assert!(refused(&node).contains(fragment), "{}", refused(&node));
    }
}

#[test]
fn counts_of_conditions_are_checked() {
    let is = || leaf("eq", Value::Int(1));
    let some = |min_count: Option<u64>, conditions: Option<Vec<Node>>| Node {
        min_should: Some(MinShould { conditions, min_count }),
        ..node("min_should")
    };
    let many = vec![is(); MAX_CONDITIONS + 1];
    assert!(Predicate::compile(&some(Some(9), Some(many[1..].to_vec()))).is_ok());
    for (node, fragment) in [
        (node("min_should"), r#"op "min_should" needs "min_should" with "conditions" and "min_count""#),
        (some(Some(1), None), r#"op "min_should" needs a list of "conditions""#),
        (some(None, Some(vec![is()])), r#"op "min_should" needs a "min_count""#),
        (some(Some(1), Some(vec![])), "has 0 conditions, allowed are 1 to 256"),
        (some(Some(1), Some(many)), "has 257 conditions, allowed are 1 to 256"),
        (some(Some(0), Some(vec![is(), is()])), r#"min_count 0 of op "min_should" is not one of 1 to 2"#),
        (some(Some(3), Some(vec![is(), is()])), r#"min_count 3 of op "min_should" is not one of 1 to 2"#),
        (some(Some(u64::MAX), Some(vec![is()])), "is not one of 1 to 1"),
        (Node { op: None, ..some(Some(1), Some(vec![is()])) }, r#"key "min_should" without "op""#),
        (
            Node { and: Some(vec![]), ..some(Some(1), Some(vec![is()])) },
            r#"key "and" does not belong to op "min_should""#,
        ),
        (
            Node { field: Some("f".into()), ..some(Some(1), Some(vec![is()])) },
            r#"key "field" does not belong to op "min_should""#,
        ),
        (
            some(Some(1), Some(vec![is(), node("in")])),
            r#"invalid filter: min_should.conditions[1]: op "in" needs a field"#,
        ),
    ] {
        assert!(refused(&node).contains(fragment), "{fragment}: {}", refused(&node));
    }
}

/// Each of the expressions is small enough alone; how many of them a filter may have is decided by what all become together.
#[test]
fn expressions_of_a_filter_are_bounded_together() {
    let expression = |n: usize| leaf("regex", text(&format!(r"(\pL{{{}}})x", 20 + n)));
    let any = |count| Node { or: Some((0..count).map(expression).collect()), ..node("or") };
    for n in 0..MAX_REGEXES {
        assert!(Predicate::compile(&expression(n)).is_ok(), "{n} alone");
    }
    assert!(Predicate::compile(&any(2)).is_ok());
    assert!(refused(&any(MAX_REGEXES)).contains("all expressions of a filter together"));
    // Where they are in the filter makes no difference.
    let nested = Node { not: Some(Box::new(any(MAX_REGEXES))), ..node("not") };
    assert!(refused(&nested).contains("all expressions of a filter together"));
}

#[test]
fn needs_of_operators_are_checked() {
    let unvalued = |op: &str| Node { field: Some("f".into()), ..node(op) };
    let unfielded = |op: &str| Node { value: Some(Value::Int(1)), ..node(op) };
    let huge_query: String = (0..2_000).map(|i| format!("w{i} ")).collect();
    for (node, fragment) in [
        (node("not"), r#"op "not" needs a node"#),
        (node("equals"), r#"unknown operator "equals""#),
        (node("AND"), r#"unknown operator "AND""#),
        (node("nested"), r#"unknown operator "nested""#),
        (node("has_id"), r#"op "has_id" needs a list of ids in "has_id""#),
        (unfielded("eq"), r#"op "eq" needs a field"#),
        (Node { field: Some(String::new()), ..node("is_empty") }, r#"op "is_empty" needs a field"#),
        (node("exists"), r#"op "exists" needs a field"#),
        (leaf("in", text("a")), r#"op "in" needs a value of kind strings, ints or floats, not string"#),
        (leaf("in", Value::Bool(true)), "not bool"),
        (leaf("eq", Value::Record(vec![2, 0])), r#"op "eq" needs a value of another kind, not record"#),
        (leaf("ne", Value::Record(vec![2, 0])), "not record"),
        (leaf("gt", Value::Record(vec![2, 0])), "not record"),
        (unvalued("in"), r#"op "in" needs a value;"#),
        (unvalued("eq"), r#"op "eq" needs a value; op "is_null" finds fields that hold null"#),
        (unvalued("ne"), r#"op "ne" needs a value;"#),
        (unvalued("lt"), r#"op "lt" needs a value;"#),
        (unvalued("dt_lt"), r#"op "dt_lt" needs a value;"#),
        (
            Node { and: Some(vec![leaf("eq", Value::None), unvalued("ne")]), ..node("and") },
            r#"and[1]: op "ne" needs a value;"#,
        ),
        (leaf("in", Value::None), "not none"),
        (
            leaf("contains", Value::Ints(vec![1])),
            r#"op "contains" needs a value of kind string, int, float or bool, not ints"#,
        ),
        (leaf("match", Value::Int(1)), r#"op "match" needs a value of kind string, not int"#),
        (leaf("match", text(&huge_query)), "at most 1024 distinct words"),
        (leaf("regex", Value::None), r#"op "regex" needs a value of kind string, not none"#),
        (leaf("regex", text("a(b")), r#"bad regular expression "a(b": unclosed group"#),
        (leaf("regex", text("(?=a)")), "(?= is not supported"),
        (leaf("regex", text(r"(a)\1")), "backreference"),
        (leaf("regex", text(&"(".repeat(200))), "bad regular expression"),
        (leaf("regex", text(&"a".repeat(20_000))), "longer than 16384 bytes"),
        (leaf("regex", text(r"(\pL{500}){500}")), "too large once compiled"),
        (leaf("regex", text("((a{1000}){1000}){1000}")), "too large once compiled"),
        (leaf("dt_gt", Value::Int(5)), r#"op "dt_gt" needs an RFC 3339 time of kind string, not int"#),
        (leaf("dt_lte", text("yesterday")), r#"op "dt_lte" needs an RFC 3339 time, not "yesterday""#),
        (leaf("dt_lte", text("2024-02-30T00:00:00Z")), "RFC 3339"),
    ] {
        assert!(refused(&node).contains(fragment), "{fragment}: {}", refused(&node));
    }
}

/// The largest regular expression that is accepted alone takes more than a third of the size that all expressions of a filter may have
/// together, so three of them are refused.
#[test]
fn expressions_are_bounded_together() {
    let pattern = |n: usize| leaf("regex", text(&format!(r"\pL{{{n}}}")));
    let sizes = std::iter::successors(Some(1), |n| Some(2 * n));
    let largest =
        sizes.take_while(|n| Predicate::compile(&pattern(*n)).is_ok()).last().expect("one letter is");
    let all = |count: usize| Node { or: Some(vec![pattern(largest); count]), ..node("or") };
    assert!(Predicate::compile(&all(1)).is_ok());
    let error = refused(&all(3));
    assert!(error.contains("all expressions of a filter together"), "{error}");
}

#[test]
fn geo_operands_are_checked() {
    let none = Geo::default;
    let circle = |lat: f64, lon: f64, radius_m: f64| Geo {
        center_lat: Some(lat),
        center_lon: Some(lon),
        radius_m: Some(radius_m),
        ..none()
    };
    let bounds = |a: f64, b: f64, c: f64, d: f64| Geo {
        min_lat: Some(a),
        min_lon: Some(b),
        max_lat: Some(c),
        max_lon: Some(d),
        ..none()
    };
    let polygon = |list: &[f64]| Geo { polygon: Some(list.to_vec()), ..none() };
    let triangle = [0.0, 0.0, 1.0, 0.0, 0.0, 1.0];
    let endless = vec![0.0; 2 * MAX_POLYGON_VERTICES + 2];
    for (op, operand, fragment) in [
        ("geo_radius", none(), "needs coordinates"),
        ("geo_polygon", none(), "needs coordinates"),
        ("geo_radius", circle(90.1, 0.0, 1.0), "center_lat 90.1 is outside -90..90"),
        ("geo_radius", circle(0.0, -180.5, 1.0), "center_lon -180.5 is outside -180..180"),
        ("geo_radius", circle(f64::NAN, 0.0, 1.0), "center_lat NaN"),
        ("geo_radius", circle(0.0, 0.0, 0.0), "radius_m 0 is not"),
        ("geo_radius", circle(0.0, 0.0, -1.0), "radius_m -1 is not"),
        ("geo_radius", circle(0.0, 0.0, f64::INFINITY), "radius_m inf is not"),
        ("geo_radius", Geo { center_lat: Some(1.0), ..none() }, "radius_m 0 is not"),
        (
            "geo_radius",
            Geo { polygon: Some(vec![]), ..circle(0.0, 0.0, 1.0) },
            r#"geo key "polygon" does not belong"#,
        ),
        ("geo_bounding_box", circle(0.0, 0.0, 1.0), r#"geo key "center_lat" does not belong"#),
        ("geo_bounding_box", bounds(1.0, 0.0, 0.0, 1.0), "min_lat 1 is above max_lat 0"),
        ("geo_bounding_box", bounds(0.0, 170.0, 1.0, -170.0), "min_lon 170 is above max_lon -170"),
        ("geo_bounding_box", bounds(0.0, 0.0, 91.0, 1.0), "max_lat 91 is outside"),
        ("geo_polygon", polygon(&triangle[..5]), "5 numbers, not pairs"),
        ("geo_polygon", polygon(&triangle[..4]), "2 vertices"),
        ("geo_polygon", polygon(&[]), "0 vertices"),
        ("geo_polygon", polygon(&endless), "65537 vertices"),
        (
            "geo_polygon",
            polygon(&[0.0, 0.0, 1.0, 0.0, 0.0, 200.0]),
            "longitude of polygon vertex 2 200 is outside",
        ),
        (
            "geo_polygon",
            polygon(&[0.0, 0.0, f64::INFINITY, 0.0, 0.0, 0.0]),
            "latitude of polygon vertex 1 inf is outside",
        ),
    ] {
        let error = refused(&geo(op, operand));
        assert!(error.contains(fragment), "{fragment}: {error}");
    }
    assert!(refused(&Node { field: Some("f".into()), ..node("geo_radius") }).contains(r#"needs "geo""#));
    assert!(Predicate::compile(&geo("geo_polygon", polygon(&triangle))).is_ok());
    assert!(Predicate::compile(&geo("geo_bounding_box", bounds(-90.0, -180.0, 90.0, 180.0))).is_ok());
}

#[test]
fn errors_name_the_node() {
    let bad = || node("nope");
    let group = |op: &str, children: Vec<Node>| match op {
        "and" => Node { and: Some(children), ..node(op) },
        _ => Node { or: Some(children), ..node(op) },
    };
    let not = |child: Node| Node { not: Some(Box::new(child)), ..node("not") };
    assert_eq!(refused(&bad()), r#"invalid filter: unknown operator "nope""#);
    assert_eq!(
        refused(&group("and", vec![Node::default(), not(bad())])),
        r#"invalid filter: and[1].not: unknown operator "nope""#
    );
    assert_eq!(
        refused(&not(group("or", vec![bad()]))),
        r#"invalid filter: not.or[0]: unknown operator "nope""#
    );
    // A constant sibling does not hide a bad node.
    assert!(refused(&group("or", vec![Node::default(), bad()])).contains("or[1]"));
}

#[test]
fn long_client_text_is_cut_in_errors() {
    let error = refused(&node(&"ä".repeat(10_000)));
    assert!(error.len() < 200, "{error}");
}

#[test]
fn absurd_trees_are_refused() {
    let nested = |depth: usize| {
        (1..depth)
            .fold(leaf("eq", Value::Int(1)), |child, _| Node { not: Some(Box::new(child)), ..node("not") })
    };
    assert!(Predicate::compile(&nested(MAX_DEPTH)).is_ok());
    assert_eq!(refused(&nested(MAX_DEPTH + 1)), "invalid filter: nested deeper than 64 levels");

    let wide = |nodes: usize| Node { or: Some(vec![leaf("eq", Value::Int(1)); nodes - 1]), ..node("or") };
    assert!(Predicate::compile(&wide(MAX_NODES)).is_ok());
    assert_eq!(refused(&wide(MAX_NODES + 1)), "invalid filter: more than 65536 nodes");

    let ids = |n: usize| Node { has_id: Some(vec![7; n]), ..node("has_id") };
    assert!(Predicate::compile(&ids(MAX_IDS)).is_ok());
    assert_eq!(
        refused(&ids(MAX_IDS + 1)),
        r#"invalid filter: more than 10000 ids in "has_id" of one filter"#
    );
    let lists = Node { and: Some(vec![ids(1), ids(MAX_IDS)]), ..node("and") };
    assert!(refused(&lists).contains("and[1]: more than 10000 ids"));

    let regexes = |n: usize| Node { or: Some(vec![leaf("regex", text("a")); n]), ..node("or") };
    assert!(Predicate::compile(&regexes(MAX_REGEXES)).is_ok());
    assert!(refused(&regexes(MAX_REGEXES + 1)).contains("or[16]: more than 16 regular expressions"));
}

#[test]
fn operators_are_known_by_their_exact_names() {
    assert!(is_operator("geo_bounding_box") && is_operator("and"));
    assert!(!is_operator("") && !is_operator("Eq"));
    assert!(operator_names().all(is_operator) && operator_names().any(|name| name == "is_null"));
}
