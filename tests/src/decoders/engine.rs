//! Decoders of the engine: payload rows and filters.

use nigh_engine::filter::{Geo, MinShould, Node, Predicate};
use nigh_engine::payload::{Json, Kind, PayloadRow, RowBuilder, Value};

/// A time at which some of the seeds' keys have expired.
const NOW_MS: u64 = 1_000;
/// The id of the point that filters are asked about.
const ID: u64 = 1;

/// Any bytes verify or are refused; what verifies can be read, rebuilt, and is then equal.
pub(super) fn payload_row(bytes: &[u8]) {
    let Ok(row) = PayloadRow::verify(bytes) else { return };
    let keys: Vec<String> = row.stored_entries().map(|entry| entry.key.to_owned()).collect();
    for key in &keys {
        let live = row.get(key, NOW_MS).is_some();
        assert_eq!(live, row.entries(NOW_MS).any(|(other, _)| other == key), "{key:?}");
    }
    assert_eq!(row.stored_len(), keys.len());
    let rebuilt = RowBuilder::from(row).finish();
    let again = PayloadRow::verify(&rebuilt).expect("a built row verifies");
    // Through text, because a NaN is not equal to itself.
    assert_eq!(format!("{again:?}"), format!("{row:?}"));
    assert_eq!(RowBuilder::from(again).finish(), rebuilt, "the encoding is a function of the entries");
}

pub(super) fn payload_row_seeds() -> Vec<Vec<u8>> {
    let text = |s: &str| Value::String(s.into());
    let rows: [&[(&str, Value, u64)]; 4] = [
        &[("", Value::None, 0)],
        &[("lang", text("en"), 0), ("year", Value::Int(1999), 0), ("$content", text("Der Text"), 0)],
        &[("a", Value::Bool(true), 999), ("b", Value::Float(-0.5), 1_001), ("c", Value::Int(0), 0)],
        &[
            ("floats", Value::Floats(vec![0.5, -1.0]), 0),
            ("geo", Value::Geo { lat: 48.25, lon: -11.5 }, 7),
            ("ints", Value::Ints(vec![1, i64::MIN]), 0),
            ("strings", Value::Strings(vec!["x".into(), String::new(), "yy".into()]), 2_000),
        ],
    ];
    let build = |entries: &[(&str, Value, u64)]| {
        let mut builder = RowBuilder::new();
        for (key, value, deadline_ms) in entries {
            builder.set(key, value.clone(), *deadline_ms);
        }
        builder.finish()
    };
    rows.into_iter().map(build).collect()
}

/// The input is read as a recipe for a filter and a payload: any tree compiles or is refused, and a compiled one judges any
/// payload, negation included, without contradiction.
pub(super) fn filter_tree(bytes: &[u8]) {
    let mut recipe = Recipe(bytes);
    let node = recipe.node(0);
    let mut builder = RowBuilder::new();
    for _ in 0..recipe.byte() % 5 {
        let (key, value, deadline_ms) = (recipe.text(), recipe.value(), u64::from(recipe.byte()) * 8);
        builder.set(&key, value, deadline_ms);
    }
    let row = builder.finish();
    let row = PayloadRow::verify(&row).expect("a built row verifies");
    let Ok(predicate) = Predicate::compile(&node) else { return };
    let matched = predicate.matches(ID, Some(row), NOW_MS);
    assert!(matched || !predicate.is_trivially_true());
    let negated = Node { op: Some("not".into()), not: Some(Box::new(node)), ..Node::default() };
    if let Ok(negated) = Predicate::compile(&negated) {
        assert_ne!(negated.matches(ID, Some(row), NOW_MS), matched);
    }
}

pub(super) fn filter_tree_seeds() -> Vec<Vec<u8>> {
    // Recipes are dense: nearly every byte string is one. These name each operator once.
    let leaves = (0..OPERATORS.len() as u8).map(|op| {
        let mut recipe = vec![op, 3, 1, b'f', 0b11, 1, 1, b'a', 0, 0, 0, 0];
        recipe.extend([2, 1, b'f', 1, 1, b'a', 0, 1, b'g', 2, 5, 0, 0, 0, 0, 0, 0, 0, 200]);
        recipe
    });
    let group =
        vec![0, 0b100, 3, 3, 3, 1, b'f', 1, 1, b'a', 1, 0b1000, 1, 3, 3, 1, b'g', 1, 1, b'b', 2, 1, 1, b'f'];
    leaves.chain([group, vec![]]).collect()
}

/// Operators by recipe byte; the last two are not ones.
const OPERATORS: [&str; 27] = [
    "and",
    "or",
    "not",
    "min_should",
    "eq",
    "ne",
    "gt",
    "gte",
    "lt",
    "lte",
    "in",
    "contains",
    "match",
    "regex",
    "is_empty",
    "is_null",
    "exists",
    "has_id",
    "dt_gt",
    "dt_gte",
    "dt_lt",
    "dt_lte",
    "geo_radius",
    "geo_bounding_box",
    "geo_polygon",
    "",
    "Eq",
];

/// Reads structure out of bytes; past the end everything is zero, so recursion ends.
struct Recipe<'a>(&'a [u8]);

impl Recipe<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// Small, large and strange numbers.
    fn float(&mut self) -> f64 {
        match self.byte() {
            small @ 0..=239 => f64::from(small) - 120.0,
            _ => f64::from_bits(self.word()),
        }
    }

    fn int(&mut self) -> i64 {
        match self.byte() {
            small @ 0..=239 => i64::from(small) - 120,
            _ => self.word() as i64,
        }
    }

    fn text(&mut self) -> String {
        let len = usize::from(self.byte() % 32);
        let bytes: Vec<u8> = (0..len.min(self.0.len())).map(|_| self.byte()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let len = usize::from(self.byte() % 20);
        (0..len).map(|_| element(self)).collect()
    }

    fn value(&mut self) -> Value {
        match Kind::ALL[usize::from(self.byte()) % Kind::ALL.len()] {
            Kind::None => Value::None,
            Kind::String => Value::String(self.text()),
            Kind::Int => Value::Int(self.int()),
            Kind::Float => Value::Float(self.float()),
            Kind::Bool => Value::Bool(self.byte() & 1 == 1),
            Kind::Strings => Value::Strings(self.list(Self::text)),
            Kind::Ints => Value::Ints(self.list(Self::int)),
            Kind::Floats => Value::Floats(self.list(Self::float)),
            Kind::Geo => Value::Geo { lat: self.float(), lon: self.float() },
            Kind::Record => Value::Record(self.text().into_bytes()),
            Kind::Json => Value::Json(Json {
                text: serde_json::json!([self.text(), self.int()]).to_string(),
                ..Json::default()
            }),
        }
    }

    /// A node whose keys mostly belong to its operator: a first byte for the operator, then one for the keys present.
    fn node(&mut self, depth: usize) -> Node {
        let op = OPERATORS[usize::from(self.byte()) % OPERATORS.len()];
        let keys = self.byte();
        let present = |bit: u8| keys & (1 << bit) != 0;
        let mut node = Node { op: (keys & 0x80 == 0).then(|| op.to_owned()), ..Node::default() };
        if present(0) {
            node.field = Some(self.text());
        }
        if present(1) {
            node.value = Some(self.value());
        }
        // A little deeper than what compiles, and no deeper than the bytes last.
        let children = if depth > 70 || self.0.is_empty() { 0 } else { 4 };
        if present(2) {
            node.and = Some(self.children(children, depth));
        }
        if present(3) {
            node.or = Some(self.children(children, depth));
        }
        if present(4) && children > 0 {
            node.not = Some(Box::new(self.node(depth + 1)));
        }
        if present(5) {
            node.geo = Some(self.geo());
        }
        if present(6) {
            node.has_id = Some(self.list(|recipe| u64::from(recipe.byte())));
            let conditions = Some(self.children(children, depth));
            node.min_should = Some(MinShould { conditions, min_count: Some(u64::from(self.byte() % 8)) });
            // Only one of the two belongs to any operator.
            match op {
                "min_should" => node.has_id = None,
                _ => node.min_should = None,
            }
        }
        node
    }

    fn children(&mut self, most: usize, depth: usize) -> Vec<Node> {
        let len = usize::from(self.byte()) % (most + 1);
        (0..len).map(|_| self.node(depth + 1)).collect()
    }

    fn geo(&mut self) -> Geo {
        let keys = self.byte();
        let mut number = |bit: u8| (keys & (1 << bit) != 0).then(|| self.float());
        Geo {
            center_lat: number(0),
            center_lon: number(1),
            radius_m: number(2),
            min_lat: number(3),
            min_lon: number(4),
            max_lat: number(5),
            max_lon: number(6),
            polygon: (keys & 0x80 != 0).then(|| self.list(Self::float)),
        }
    }
}

/// The input as the operand of every operator that parses text, searched in the input itself.
pub(super) fn filter_text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut builder = RowBuilder::new();
    builder.set("f", Value::String(text.clone().into_owned()), 0);
    builder.set("g", Value::Strings(vec![text.clone().into_owned(), "a1".into()]), 0);
    let row = builder.finish();
    let row = PayloadRow::verify(&row).expect("a built row verifies");
    for op in ["regex", "match", "dt_gte", "eq", "contains"] {
        for field in ["f", "g"] {
            let leaf = Node {
                op: Some(op.into()),
                field: Some(field.into()),
                value: Some(Value::String(text.clone().into_owned())),
                ..Node::default()
            };
            let Ok(predicate) = Predicate::compile(&leaf) else { continue };
            let matched = predicate.matches(ID, Some(row), NOW_MS);
            match (op, field) {
                // A text holds its own words, equals itself, and is not before the moment that it names.
                ("match", _) | ("eq", "f") | ("contains", "g") | ("dt_gte", "f") => {
                    assert!(matched, "{op} {field} {text:?}")
                }
                ("dt_gte", _) | ("eq", _) | ("contains", _) => assert!(!matched, "{op} {field} {text:?}"),
                _ => {}
            }
        }
    }
}

pub(super) fn filter_text_seeds() -> Vec<Vec<u8>> {
    [
        "",
        "The quick, brown fox: größer ２０２４",
        r"^\w+@[a-z0-9.-]+\.(com|org)$",
        r"(?i)(?P<year>\d{4})-\pL{2,5}[[:alpha:]&&\]x]\Qa.b\E\b\x{41}\101",
        "2024-02-29T12:00:00.5+01:00",
        "9999-12-31T23:59:59Z",
        r"a{,3}{x}[^]a-z\d](?s:.)*?\p{^Greek}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
