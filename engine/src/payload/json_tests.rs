//! JSON values in rows: what filters find in them, edits, and limits.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const LIMITS: JsonLimits = JsonLimits { paths: 1_000, bytes: 1 << 20 };

fn json(text: &str) -> Value {
    Value::Json(Json { text: text.to_owned(), ..Json::default() })
}

fn row_of(entries: &[(&str, Value, u64)]) -> Vec<u8> {
    let mut row = RowBuilder::new();
    row.set_format(PayloadFormat::Plain);
    for (key, value, deadline_ms) in entries {
        row.set(key, value.clone(), *deadline_ms);
    }
    row.derive(LIMITS).unwrap();
    let bound = row.encoded_bound();
    let row = row.finish();
    assert!(row.len() <= bound, "{} bytes, bound {bound}", row.len());
    row
}

/// What filters find at each path that was derived.
fn derived(row: &[u8]) -> BTreeMap<String, Value> {
    let row = PayloadRow::verify(row).unwrap();
    let entries = row.stored_entries().filter(|entry| entry.is_derived);
    entries.map(|entry| (entry.key.to_owned(), entry.value.to_owned())).collect()
}

fn sent(row: &[u8]) -> BTreeMap<String, Value> {
    let row = PayloadRow::verify(row).unwrap();
    let entries = row.stored_entries().filter(|entry| !entry.is_derived);
    entries.map(|entry| (entry.key.to_owned(), entry.value.to_owned())).collect()
}

#[test]
fn each_path_has_what_is_there() {
    let text = r#"{"name": "A", "age": 7, "rate": 0.5, "on": false, "gone": null, "tags": ["x", "y"], "years": [1, 2],
        "parts": [1.5], "flags": [true], "mixed": [1, "z", 2.5, null, false], "none": [], "empty": {},
        "books": [{"year": 1999, "title": "T"}, {"year": 2004}, 5], "grid": [[1, 2], [3]], "place": {"lat": 1, "lon": 2.5}}"#;
    let row = row_of(&[("a", json(text), 0)]);
    let found = derived(&row);
    let strings = |texts: &[&str]| Value::Strings(texts.iter().map(|text| (*text).to_owned()).collect());
    for (path, value) in [
        ("a.name", Value::String("A".into())),
        ("a.age", Value::Int(7)),
        ("a.rate", Value::Float(0.5)),
        ("a.on", Value::Bool(false)),
        ("a.gone", Value::None),
        ("a.tags", strings(&["x", "y"])),
        ("a.years", Value::Ints(vec![1, 2])),
        ("a.parts", Value::Floats(vec![1.5])),
        ("a.none", strings(&[])),
        ("a.books[].year", Value::Ints(vec![1999, 2004])),
        ("a.books[].title", strings(&["T"])),
        ("a.grid[]", Value::Ints(vec![1, 2, 3])),
        ("a.place.lat", Value::Int(1)),
    ] {
        assert_eq!(found.get(path), Some(&value), "{path}");
    }
    let elements = |path: &str| match &found[path] {
        Value::Json(Json { text, elements }) if text.is_empty() => elements.clone(),
        other => panic!("{path}: {other:?}"),
    };
    // An array of objects or arrays is no array of scalars.
    assert_eq!(elements("a.books").ints, [5]);
    assert_eq!(elements("a.grid"), Elements::default());
    let mixed = elements("a.mixed");
    assert_eq!((mixed.strings, mixed.ints, mixed.floats), (vec!["z".to_owned()], vec![1], vec![2.5]));
    assert!(mixed.marks.has(false) && !mixed.marks.has(true));
    assert!(elements("a.flags").marks.has(true) && elements("a.empty").marks.is_empty_object());
    assert_eq!(elements("a.place").geo, Some((1.0, 2.5)));
    let read = PayloadRow::trusted(&row);
    assert_eq!(read.format(), PayloadFormat::Plain);
    let entries: Vec<_> = read.sent_entries(0).collect();
    assert!(matches!(entries[..], [("a", ValueRef::Json(value))] if value.text() == text));
}

#[test]
fn elements_of_the_value_itself_are_found() {
    let row = row_of(&[
        ("m", json("[1, \"x\", true]"), 0),
        ("o", json("{\"lon\": -1.5, \"lat\": 3}"), 0),
        ("l", json("[{\"lat\": 1, \"lon\": 2}]"), 0),
    ]);
    let row = PayloadRow::trusted(&row);
    let value = |key| match row.get(key, 0) {
        Some(ValueRef::Json(json)) => json,
        other => panic!("{key}: {other:?}"),
    };
    assert_eq!(value("m").ints().iter().collect::<Vec<_>>(), [1]);
    assert_eq!(value("m").strings().iter().collect::<Vec<_>>(), ["x"]);
    assert!(value("m").marks().has(true) && !value("m").marks().has(false));
    assert_eq!((value("o").geo(), value("m").geo(), value("l").geo()), (Some((3.0, -1.5)), None, None));
    assert!(row.get("l[].lat", 0).is_some_and(|value| value == Value::Ints(vec![1])));
}

#[test]
fn the_last_of_repeated_keys_counts() {
    let text = r#"{"b": 1, "b": "x", "c": [1], "c": 2, "d": 5, "d": [6], "e": {"x": 1, "y": {"z": 1}}, "e": 5,
        "p": {"lat": 1, "lon": 2}, "p": {"lat": 5}, "o": [{"x": 1}], "o": []}"#;
    let row = row_of(&[("a", json(text), 0)]);
    let found = derived(&row);
    assert_eq!(found["a.b"], Value::String("x".into()));
    assert_eq!(found["a.c"], Value::Int(2));
    assert_eq!(found["a.d"], Value::Ints(vec![6]));
    assert_eq!((&found["a.e"], &found["a.o"]), (&Value::Int(5), &Value::Strings(vec![])));
    assert!(matches!(&found["a.p"], Value::Json(json) if json.elements.geo.is_none()));
    let paths: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(paths, ["a.b", "a.c", "a.d", "a.e", "a.o", "a.p", "a.p.lat"]);
}

#[test]
fn edits_concern_what_was_sent() {
    let row = row_of(&[("a", json(r#"{"b": 1, "c": 2}"#), 50), ("z", Value::Int(1), 0)]);
    let edit = |row: &[u8], edit: &dyn Fn(&mut RowBuilder)| {
        let mut builder = RowBuilder::from(PayloadRow::trusted(row));
        edit(&mut builder);
        builder.finish()
    };
    assert_eq!(edit(&row, &|_| {}), row);
    // A path is no key.
    assert_eq!(edit(&row, &|row| assert!(!row.remove("a.b") && !row.set_deadline("a.b", 5))), row);
    // A key that is spelled like a path takes its place, and gives it back.
    let shadowed = edit(&row, &|row| row.set_value("a.b", Value::Bool(true)));
    assert_eq!(sent(&shadowed)["a.b"], Value::Bool(true));
    assert_eq!(derived(&shadowed).len(), 1);
    assert_eq!(edit(&shadowed, &|row| assert!(row.remove("a.b"))), row);
    // Paths go with their value, and expire with it.
    assert!(derived(&edit(&row, &|row| row.set_value("a", Value::Int(3)))).is_empty());
    assert!(derived(&edit(&row, &|row| assert_eq!(row.drop_expired(50), 3))).is_empty());
    let kept = edit(&row, &|row| assert!(row.set_deadline("a", 70)));
    assert!(
        PayloadRow::trusted(&kept)
            .stored_entries()
            .all(|entry| { entry.deadline_ms == if entry.key == "z" { 0 } else { 70 } })
    );
    let narrow = narrowed(&row, |key| key.starts_with('a'), false);
    assert_eq!((sent(&narrow).len(), derived(&narrow).len()), (1, 0));
    assert_eq!(PayloadRow::trusted(&narrow).format(), PayloadFormat::Plain);
}

/// A row as it was written when JSON values came. It must read the same for ever. Never change the bytes, add a new one beside them.
#[test]
fn golden_row() {
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/payload/golden_row_v3.hex");
    let text =
        r#"{"b": [1, "x", 2.5, true, null], "c": {"lat": 1.5, "lon": -2}, "d": [{"e": "y"}], "f": {}}"#;
    let entries = [("a", json(text), 77), ("k", Value::Int(3), 0), ("m", json("[false, 0.5]"), 0)];
    let row = row_of(&entries);
    let digits: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
    let lines: String = digits.chunks(32).map(|line| line.concat() + "\n").collect();
    if std::env::var_os("NIGH_WRITE_GOLDEN").is_some() {
        std::fs::write(FILE, &lines).unwrap();
    }
    assert_eq!(lines, std::fs::read_to_string(FILE).unwrap(), "what is written today has drifted");
    let read = PayloadRow::verify(&row).unwrap();
    let keys: Vec<(&str, bool, u64)> =
        read.stored_entries().map(|entry| (entry.key, entry.is_derived, entry.deadline_ms)).collect();
    let derived = |key| (key, true, 77);
    let expected = [
        ("a", false, 77),
        derived("a.b"),
        derived("a.c"),
        derived("a.c.lat"),
        derived("a.c.lon"),
        derived("a.d"),
        derived("a.d[].e"),
        derived("a.f"),
        ("k", false, 0),
        ("m", false, 0),
    ];
    assert_eq!(keys, expected);
}

#[test]
fn limits_are_kept() {
    let derive = |text: &str, limits| {
        let mut row = RowBuilder::new();
        row.set("k", json(text), 0);
        row.derive(limits).map(|()| row.len())
    };
    assert_eq!(derive(r#"{"a":1,"b":2}"#, JsonLimits { paths: 2, bytes: 100 }), Ok(3));
    assert_eq!(
        derive(r#"{"a":1,"b":2}"#, JsonLimits { paths: 1, bytes: 100 }),
        Err(JsonError::TooManyPaths(1))
    );
    assert_eq!(derive("[1,\"a\"]", JsonLimits { paths: 1, bytes: 6 }), Err(JsonError::TooLarge(6)));
    assert_eq!(derive("[1,2,\"a\"]", JsonLimits { paths: 1, bytes: 20 }), Err(JsonError::TooLarge(20)));
    for (text, fragment) in [
        ("{", "EOF"),
        ("[1] 2", "trailing"),
        ("[9223372036854775808]", "out of the range of a 64-bit integer"),
        ("{\"a\":1e999}", "out of range"),
        (&"[".repeat(1_000), "recursion"),
    ] {
        let error = derive(text, LIMITS).unwrap_err().to_string();
        assert!(error.starts_with("the value of key \"k\": ") && error.contains(fragment), "{error}");
    }
    // What is told is the limit, and not what the other keys have left of it.
    let mut row = RowBuilder::new();
    row.set("a", json("[1,\"a\"]"), 0);
    row.set("b", json("[1,\"a\"]"), 0);
    assert_eq!(row.derive(JsonLimits { paths: 1, bytes: 50 }), Err(JsonError::TooLarge(50)));
    // Long steps behind a long key are counted at their full length.
    let key = "k".repeat(1_000);
    let mut row = RowBuilder::new();
    let objects: Vec<String> = (0..100).map(|n| format!("\"{n}\":{n}")).collect();
    row.set(&key, json(&format!("{{{}}}", objects.join(","))), 0);
    assert!(matches!(row.derive(JsonLimits { paths: 1_000, bytes: 50_000 }), Err(JsonError::TooLarge(_))));
}

#[test]
fn a_text_that_is_not_json_is_no_row() {
    let row = row_of(&[("a", json("{\"b\":1}"), 0)]);
    let at = row.windows(7).position(|bytes| bytes == b"{\"b\":1}").unwrap();
    let mut broken = row.clone();
    broken[at] = b'[';
    assert!(PayloadRow::verify(&row).is_ok());
    assert!(PayloadRow::verify(&broken).unwrap_err().to_string().contains("is not JSON"));
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let scalar = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        (-1e9..1e9f64).prop_map(Into::into),
        "\\PC{0,5}".prop_map(Into::into),
    ];
    scalar.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::Array),
            prop::collection::btree_map("[a-c]{1,2}", inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The scalars at each path, found by following the paths of all scalars one by one.
fn scalars(
    path: &str,
    value: &serde_json::Value,
    is_element: bool,
    into: &mut BTreeMap<String, Vec<String>>,
) {
    match value {
        serde_json::Value::Array(values) => {
            let path = if is_element { format!("{path}[]") } else { path.to_owned() };
            values.iter().for_each(|value| scalars(&path, value, true, into));
        }
        serde_json::Value::Object(map) => {
            let path = if is_element { format!("{path}[]") } else { path.to_owned() };
            map.iter().for_each(|(key, value)| scalars(&format!("{path}.{key}"), value, false, into));
        }
        scalar => into.entry(path.to_owned()).or_default().push(scalar.to_string()),
    }
}

fn sorted_scalars(value: &Value) -> Vec<String> {
    let text = |value: serde_json::Value| value.to_string();
    let mut all: Vec<String> = match value {
        Value::None => vec!["null".into()],
        Value::Bool(flag) => vec![flag.to_string()],
        Value::Int(number) => vec![number.to_string()],
        Value::Float(number) => vec![text((*number).into())],
        Value::String(string) => vec![text(string.as_str().into())],
        Value::Ints(numbers) => numbers.iter().map(i64::to_string).collect(),
        Value::Floats(numbers) => numbers.iter().map(|number| text((*number).into())).collect(),
        Value::Strings(texts) => texts.iter().map(|string| text(string.as_str().into())).collect(),
        Value::Json(Json { elements, .. }) => {
            let flags = [false, true].into_iter().filter(|flag| elements.marks.has(*flag));
            let numbers = elements.ints.iter().map(i64::to_string);
            let floats = elements.floats.iter().map(|number| text((*number).into()));
            let strings = elements.strings.iter().map(|string| text(string.as_str().into()));
            numbers.chain(floats).chain(strings).chain(flags.map(|flag| flag.to_string())).collect()
        }
        Value::Geo { .. } | Value::Record(_) => panic!("{value:?}"),
    };
    all.sort();
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every scalar is found at its path and nothing else is, whatever the value.
    #[test]
    fn every_scalar_is_at_its_path(value in any_json()) {
        let mut expected = BTreeMap::new();
        scalars("k", &value, false, &mut expected);
        let row = row_of(&[("k", json(&value.to_string()), 0)]);
        let row = PayloadRow::verify(&row).unwrap();
        for entry in row.stored_entries() {
            let found = sorted_scalars(&entry.value.to_owned());
            let mut wanted = expected.remove(entry.key).unwrap_or_default();
            // Booleans and nulls in a value of several are noted, not counted.
            if entry.value.kind() == Kind::Json {
                wanted.retain(|scalar| scalar != "null");
                let (flags, mut others): (Vec<_>, Vec<_>) =
                    wanted.into_iter().partition(|scalar| scalar == "true" || scalar == "false");
                others.extend(flags.into_iter().collect::<std::collections::BTreeSet<_>>());
                wanted = others;
            }
            wanted.sort();
            prop_assert_eq!(found, wanted, "{}", entry.key);
        }
        prop_assert!(expected.is_empty(), "{:?}", expected);
    }
}
