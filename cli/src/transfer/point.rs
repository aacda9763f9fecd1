//! Reads and writes a point of a collection as a line of an export.
//!
//! Numbers and payloads are copied as text between answers, lines and requests, so that every value comes back as it was sent.
use super::header::Family;
use super::shape::Shape;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// A point as a server returns it to `batch-get`.
#[derive(Debug, Deserialize)]
pub struct Stored<'a> {
    /// Number, or string in quotes.
    #[serde(borrow)]
    pub id: &'a RawValue,
    /// The vector of a dense collection.
    #[serde(borrow, default)]
    pub vector: Option<&'a RawValue>,
    /// The vectors of a collection of named spaces.
    #[serde(borrow, default)]
    pub vectors: Option<&'a RawValue>,
    /// The token vectors of a document.
    #[serde(borrow, default)]
    pub tokens: Option<&'a RawValue>,
    /// The sparse vector of a point of a dense collection.
    #[serde(borrow, default)]
    pub sparse: Option<&'a RawValue>,
    /// Payload, with the text under `$content`.
    #[serde(borrow, default)]
    pub payload: Option<&'a RawValue>,
    /// Milliseconds until the point expires; 0 is never.
    #[serde(default)]
    pub ttl_ms: u64,
    /// Version.
    #[serde(default)]
    pub version: u64,
}

/// A line.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointLine<'a> {
    /// Number, or string in quotes.
    #[serde(borrow, default)]
    pub id: Option<&'a RawValue>,
    /// Version in the collection that was exported. Versions cannot be set, so that it is only checked to be a number.
    #[serde(default, rename = "version")]
    _version: Option<u64>,
    /// When the point expires, in milliseconds since 1970.
    #[serde(default)]
    pub expires_at_ms: Option<u64>,
    /// When keys of the payload expire. No server returns these times, so an export does not write them.
    #[serde(default)]
    pub key_expires_at_ms: Option<BTreeMap<String, u64>>,
    /// Vector of a point of a dense collection, unless it is in a file of its own.
    #[serde(borrow, default)]
    pub vector: Option<&'a RawValue>,
    /// Vectors of a point of a collection of named spaces.
    #[serde(borrow, default)]
    pub vectors: Option<&'a RawValue>,
    /// Token vectors of a document.
    #[serde(borrow, default)]
    pub tokens: Option<&'a RawValue>,
    /// Sparse vector of a point of a dense collection, or of a document.
    #[serde(borrow, default)]
    pub sparse: Option<&'a RawValue>,
    /// Sparse vectors of a point of a collection of named spaces.
    #[serde(borrow, default)]
    pub sparse_vectors: Option<&'a RawValue>,
    /// Payload.
    #[serde(borrow, default)]
    pub payload: Option<&'a RawValue>,
}

impl Stored<'_> {
    /// Appends the line of this point, which was read at `now_ms`. If `without_vector`, the line has no vector.
    pub fn write_line(&self, now_ms: u64, without_vector: bool, line: &mut Vec<u8>) {
        let text = PointText {
            id: self.id.get(),
            version: self.version,
            expires_at_ms: (self.ttl_ms > 0).then(|| now_ms.saturating_add(self.ttl_ms)),
            parts: [
                ("vector", present(self.vector).filter(|_| !without_vector)),
                ("vectors", present(self.vectors)),
                ("tokens", present(self.tokens)),
                ("sparse", present(self.sparse)),
                ("payload", present(self.payload)),
            ],
        };
        text.write(line);
    }
}

/// A part as text, unless it is `null`.
fn present(part: Option<&RawValue>) -> Option<&str> {
    part.map(RawValue::get).filter(|part| *part != "null")
}

/// The parts of a line, each of them JSON.
struct PointText<'a> {
    id: &'a str,
    version: u64,
    expires_at_ms: Option<u64>,
    parts: [(&'a str, Option<&'a str>); 5],
}

impl PointText<'_> {
    fn write(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(format!("{{\"id\":{},\"version\":{}", self.id, self.version).as_bytes());
        if let Some(ms) = self.expires_at_ms {
            line.extend_from_slice(format!(",\"expires_at_ms\":{ms}").as_bytes());
        }
        for (name, part) in self.parts.iter().filter_map(|(name, part)| Some((name, (*part)?))) {
            line.extend_from_slice(format!(",\"{name}\":").as_bytes());
            // A server may put line feeds between the parts of its answer, and a line has none.
            line.extend(part.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')));
        }
        line.extend_from_slice(b"}\n");
    }
}

/// A point that has been checked, ready to be sent.
#[derive(Debug)]
pub struct Point<'a> {
    /// Number of its line.
    pub number: u64,
    /// Its line as it is in the file.
    pub text: &'a str,
    /// Its id as JSON.
    pub id: &'a str,
    /// Its vector, if the collection is dense.
    pub vector: Vec<f32>,
    /// The line.
    pub line: PointLine<'a>,
    /// The spaces of the collection in which it has no vector.
    pub missing_spaces: Vec<&'a str>,
    /// Milliseconds until it expires, if it does.
    pub ttl_ms: Option<u64>,
    /// Milliseconds until keys of its payload expire.
    pub key_ttls_ms: BTreeMap<String, u64>,
}

/// Why a line is not sent.
#[derive(Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The point has expired since it was exported.
    Expired,
    /// A sentence about what is wrong with the line.
    Refused(String),
}

/// What lines are checked against.
pub struct Check<'a> {
    /// The family of the collection.
    pub family: Family,
    /// What its points look like.
    pub shape: &'a Shape,
    /// Now, in milliseconds since 1970.
    pub now_ms: u64,
}

impl Check<'_> {
    /// Reads a line. `row` is its vector from the file of vectors, if there is one.
    ///
    /// # Errors
    /// The point is not to be sent.
    pub fn read<'a>(
        &'a self,
        number: u64,
        text: &'a str,
        row: Option<Vec<f32>>,
    ) -> Result<Point<'a>, NotSent> {
        let refused = |reason: String| NotSent::Refused(reason);
        // The parts of an array would be taken for the parts of an object in their order.
        if text.trim_start().starts_with('[') {
            return Err(refused("it is a JSON array, and a point is an object".into()));
        }
        let line: PointLine<'a> = serde_json::from_str(text).map_err(|error| refused(in_words(&error)))?;
        let id = line.id.ok_or_else(|| refused("the point has no id".into()))?.get();
        self.check_id(id).map_err(refused)?;
        let ttl_ms = match line.expires_at_ms {
            Some(at) if at <= self.now_ms => return Err(NotSent::Expired),
            Some(at) => Some(at - self.now_ms),
            None => None,
        };
        let key_ttls_ms = match &line.key_expires_at_ms {
            // A key whose time has passed gets the shortest one: it must not stay for ever.
            Some(times) => {
                times.iter().map(|(key, at)| (key.clone(), at.saturating_sub(self.now_ms).max(1))).collect()
            }
            None => BTreeMap::new(),
        };
        let (vector, missing_spaces) = (Vec::new(), Vec::new());
        let mut point = Point { number, text, id, vector, line, missing_spaces, ttl_ms, key_ttls_ms };
        self.check_parts(&mut point, row).map_err(refused)?;
        Ok(point)
    }

    fn check_id(&self, id: &str) -> Result<(), String> {
        let (is_string, is_number) = (id.starts_with('"'), id.parse::<u64>().is_ok());
        match self.shape.has_string_ids {
            Some(true) if !is_string => {
                Err(format!("the id {id} is no string, as ids of the collection are"))
            }
            Some(false) if !is_number => Err(format!(
                "the id {id} is no integer from 0 to 18446744073709551615, as ids of the collection are"
            )),
            None if !is_string && !is_number => {
                Err(format!("the id {id} is neither an integer nor a string"))
            }
            _ => Ok(()),
        }
    }

    fn check_parts<'a>(&'a self, point: &mut Point<'a>, row: Option<Vec<f32>>) -> Result<(), String> {
        let line = &point.line;
        // Each part belongs to the points of one family.
        let only = |family: Family, name: &str, is_there: bool| match is_there && family != self.family {
            true => {
                Err(format!("{name} does not belong to a collection of the family {}", self.family.name()))
            }
            false => Ok(()),
        };
        only(Family::Dense, "vector", line.vector.is_some())?;
        only(Family::Named, "vectors", line.vectors.is_some())?;
        only(Family::Named, "sparse_vectors", line.sparse_vectors.is_some())?;
        only(Family::Multivector, "tokens", line.tokens.is_some())?;
        if line.sparse.is_some() && self.family == Family::Named {
            return Err(
                "sparse does not belong to a collection of named spaces, which has sparse_vectors".into()
            );
        }
        match self.family {
            Family::Dense => {
                let vector = match (row, line.vector) {
                    (Some(_), Some(_)) => {
                        return Err("vector is in the line and in the file of vectors".into());
                    }
                    (Some(row), None) => row,
                    (None, Some(vector)) => {
                        floats(vector.get()).map_err(|error| format!("vector: {error}"))?
                    }
                    (None, None) => return Err("vector is missing".into()),
                };
                check_vector("vector", &vector, self.shape.dim)?;
                point.vector = vector;
            }
            Family::Named => {
                let vectors: BTreeMap<String, &RawValue> = match line.vectors {
                    Some(vectors) => serde_json::from_str(vectors.get())
                        .map_err(|error| format!("vectors: {}", in_words(&error)))?,
                    None => BTreeMap::new(),
                };
                for (space, vector) in &vectors {
                    let dim = match self.shape.spaces.as_ref().map(|spaces| spaces.get(space)) {
                        None => None,
                        Some(None) => return Err(format!("the collection has no space {space:?}")),
                        Some(Some(None)) => return Err(format!("the space {space:?} is sparse")),
                        Some(Some(dim)) => *dim,
                    };
                    let vector =
                        floats(vector.get()).map_err(|error| format!("the vector in {space:?}: {error}"))?;
                    check_vector(&format!("the vector in {space:?}"), &vector, dim)?;
                }
                let spaces = self.shape.spaces.iter().flatten().filter(|(_, dim)| dim.is_some());
                let missing =
                    spaces.map(|(space, _)| space.as_str()).filter(|space| !vectors.contains_key(*space));
                point.missing_spaces = missing.collect();
            }
            Family::Multivector => {
                let tokens = line.tokens.ok_or("tokens is missing")?;
                let tokens: Vec<&RawValue> = serde_json::from_str(tokens.get())
                    .map_err(|error| format!("tokens: {}", in_words(&error)))?;
                for (at, token) in tokens.iter().enumerate() {
                    let vector = floats(token.get()).map_err(|error| format!("tokens[{at}]: {error}"))?;
                    check_vector(&format!("tokens[{at}]"), &vector, self.shape.dim)?;
                }
            }
        }
        Ok(())
    }
}

fn check_vector(what: &str, vector: &[f32], dim: Option<usize>) -> Result<(), String> {
    if let Some(dim) = dim.filter(|dim| *dim != vector.len()) {
        return Err(format!("{what} has {} components, and the collection {dim}", vector.len()));
    }
    match vector.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(format!("{what}[{at}] is no finite number")),
        None => Ok(()),
    }
}

/// The numbers of a JSON array.
pub fn floats(text: &str) -> Result<Vec<f32>, String> {
    serde_json::from_str(text).map_err(|error| in_words(&error))
}

/// What is wrong with JSON, without the number of the line, which is always 1.
fn in_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    match error.is_data() {
        true => format!("{text} (column {})", error.column()),
        false => format!("it is not JSON: {text} (column {})", error.column()),
    }
}

/// The id in a line that may not be a point, for sentences about it.
pub fn id_of(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Id<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    serde_json::from_str::<Id<'_>>(text).ok().map(|found| found.id.get().to_owned())
}

/// Whether a line is JSON at all.
pub fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(dim: usize) -> Shape {
        Shape { dim: Some(dim), spaces: None, has_string_ids: Some(false) }
    }

    fn refusal(family: Family, shape: &Shape, text: &str) -> String {
        let check = Check { family, shape, now_ms: 1000 };
        match check.read(7, text, None) {
            Err(NotSent::Refused(reason)) => reason,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_is_stored_becomes_a_line_and_a_point() {
        let stored = r#"{"id":3,"vector":[1.5,-0.1],"payload":{"a":{"kind":"int","int":7},"$content":{"kind":"string","str":"x\n"}},
            "ttl_ms":500,"version":4,"sparse":{"indices":[3],"values":[0.5]}}"#;
        let stored: Stored<'_> = serde_json::from_str(stored).unwrap();
        let mut line = Vec::new();
        stored.write_line(1000, false, &mut line);
        let text = std::str::from_utf8(&line).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"id":3,"version":4,"expires_at_ms":1500,"vector":[1.5,-0.1],"sparse":{"indices":[3],"values":[0.5]},"#,
                r#""payload":{"a":{"kind":"int","int":7},"$content":{"kind":"string","str":"x\n"}}}"#,
                "\n"
            )
        );
        let shape = shape(2);
        let check = Check { family: Family::Dense, shape: &shape, now_ms: 1200 };
        let point = check.read(2, text.trim_end(), None).unwrap();
        assert_eq!((point.id, point.ttl_ms, &point.vector[..]), ("3", Some(300), &[1.5, -0.1][..]));
        let check = Check { family: Family::Dense, shape: &shape, now_ms: 1500 };
        assert_eq!(check.read(2, text.trim_end(), None).err(), Some(NotSent::Expired));

        let mut line = Vec::new();
        stored.write_line(1000, true, &mut line);
        assert!(!String::from_utf8(line).unwrap().contains("vector"));
    }

    #[test]
    fn bad_lines_are_refused_in_words() {
        let two = shape(2);
        for (text, part) in [
            ("", "not JSON"),
            ("{\"id\":1,", "not JSON"),
            ("{\"id\":1,\"vector\":[NaN,1]}", "not JSON"),
            ("[1]", "is an object"),
            ("1", "expected"),
            ("{\"vector\":[1,2]}", "has no id"),
            ("{\"id\":1}", "vector is missing"),
            ("{\"id\":1,\"vector\":[1]}", "has 1 components, and the collection 2"),
            ("{\"id\":1,\"vector\":[1,1e39]}", "vector"),
            ("{\"id\":1,\"vector\":[1,null]}", "null"),
            ("{\"id\":\"a\",\"vector\":[1,2]}", "\"a\" is no integer"),
            ("{\"id\":-1,\"vector\":[1,2]}", "-1 is no integer"),
            ("{\"id\":1,\"vector\":[1,2],\"tokens\":[[1,2]]}", "tokens does not belong"),
            ("{\"id\":1,\"vector\":[1,2],\"colour\":1}", "colour"),
        ] {
            let reason = refusal(Family::Dense, &two, text);
            assert!(reason.contains(part), "{text}: {reason}");
        }
        let spaces = BTreeMap::from([("image".to_owned(), Some(2)), ("words".to_owned(), None)]);
        let named = Shape { dim: None, spaces: Some(spaces), has_string_ids: Some(true) };
        for (text, part) in [
            ("{\"id\":1,\"vectors\":{}}", "1 is no string"),
            ("{\"id\":\"a\",\"vectors\":{\"sound\":[1]}}", "no space \"sound\""),
            ("{\"id\":\"a\",\"vectors\":{\"words\":[1]}}", "is sparse"),
            ("{\"id\":\"a\",\"vectors\":{\"image\":[1]}}", "in \"image\" has 1 components"),
            ("{\"id\":\"a\",\"sparse\":{}}", "sparse_vectors"),
        ] {
            let reason = refusal(Family::Named, &named, text);
            assert!(reason.contains(part), "{text}: {reason}");
        }
        let check = Check { family: Family::Named, shape: &named, now_ms: 0 };
        assert_eq!(check.read(1, "{\"id\":\"a\"}", None).unwrap().missing_spaces, ["image"]);
        let reason = refusal(Family::Multivector, &two, "{\"id\":1,\"tokens\":[[1,2],[3]]}");
        assert!(reason.contains("tokens[1] has 1 components"), "{reason}");
        assert_eq!((id_of("{\"id\":\"x\",\"y\":0}"), id_of("[")), (Some("\"x\"".into()), None));
        assert!(is_json("[1]") && !is_json("[1"));
    }

    /// A JSON value as payloads have them.
    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_filter_map("finite", |x| serde_json::Number::from_f64(x).map(Into::into)),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 20, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                proptest::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_point_comes_back(
            id in any::<u64>(),
            name in any::<Option<String>>(),
            bits in proptest::collection::vec(any::<u32>(), 1..9),
            payload in proptest::collection::btree_map(any::<String>(), json(), 0..5),
            ttl_ms in 0..u64::MAX,
            version in any::<u64>(),
            is_pretty in any::<bool>(),
        ) {
            let vector: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).map(|x| if x.is_finite() { x } else { 0.5 }).collect();
            let has_string_ids = name.is_some();
            let id = name.map_or_else(|| id.into(), serde_json::Value::from);
            let stored = serde_json::json!({"id": id, "vector": vector, "payload": payload, "ttl_ms": ttl_ms, "version": version});
            // What is between the parts of an answer is up to the server.
            let stored = if is_pretty { serde_json::to_string_pretty(&stored) } else { serde_json::to_string(&stored) }.unwrap();
            let stored: Stored<'_> = serde_json::from_str(&stored).unwrap();
            let mut line = Vec::new();
            stored.write_line(5, false, &mut line);
            prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            let text = std::str::from_utf8(&line).unwrap().trim_end();
            let shape = Shape { dim: Some(vector.len()), spaces: None, has_string_ids: Some(has_string_ids) };
            let check = Check { family: Family::Dense, shape: &shape, now_ms: 5 };
            let point = check.read(2, text, None).unwrap();
            let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            prop_assert_eq!(value(point.id), id);
            prop_assert_eq!(value(point.line.payload.unwrap().get()), serde_json::json!(payload));
            let same = point.vector.iter().zip(&vector).all(|(one, other)| one.to_bits() == other.to_bits());
            prop_assert!(same && point.vector.len() == vector.len());
            prop_assert_eq!(point.ttl_ms, Some(ttl_ms.min(u64::MAX - 5)).filter(|ms| *ms > 0));
            prop_assert_eq!(&value(text)["version"], &serde_json::json!(version));
        }

        #[test]
        fn any_line_is_read_or_refused(text in any::<String>(), cut in any::<prop::sample::Index>()) {
            let shape = Shape::default();
            for family in Family::ALL {
                let check = Check { family, shape: &shape, now_ms: 0 };
                let _ = check.read(1, &text, None);
                let line = "{\"id\":1,\"vector\":[1,2],\"vectors\":{\"a\":[1]},\"tokens\":[[1]],\"payload\":{}}";
                prop_assert!(check.read(1, &line[..cut.index(line.len())], None).is_err());
            }
        }
    }

    #[test]
    fn floats_come_back_bit_by_bit() {
        let mut state = 88_172_645_463_325_252_u64;
        for _ in 0..20_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let value = f32::from_bits(state as u32);
            if value.is_finite() {
                let text = serde_json::to_string(&[value]).unwrap();
                assert_eq!(floats(&text).unwrap()[0].to_bits(), value.to_bits(), "{text}");
            }
        }
    }
}
