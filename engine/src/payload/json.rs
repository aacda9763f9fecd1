//! Values that only JSON can express: objects, arrays of several kinds, arrays of booleans. A collection with plain payloads keeps the text of
//! such a value as it was sent, and beside it what filters find in it.
//!
//! Filters address what is inside an object by its *path*: the keys on the way, joined by dots, with `[]` behind a key whose value is an array
//! of objects or arrays. In `{"author": {"name": "A", "books": [{"year": 1999}, {"year": 2004}]}}`, `author.name` is a text and
//! `author.books[].year` is an array of integers. A row has an entry for each path, which is derived from the text whenever the row changes
//! and is never answered. So indexes, facets and orders work on paths as they do on keys.

use super::Value;
use crate::quoted::quoted;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// A value as JSON.
///
/// Two of them are equal when text and elements are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Json {
    /// The text as it was sent. Empty in an entry that was derived from another one, which is never answered.
    pub text: String,
    /// What filters find in the value itself, by kind.
    pub elements: Elements,
}

/// What filters find in a value: the scalars of an array, each in the order of the array, or the coordinates of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Elements {
    /// Its texts.
    pub strings: Vec<String>,
    /// Its integers.
    pub ints: Vec<i64>,
    /// Its floats.
    pub floats: Vec<f64>,
    /// What else there is.
    pub marks: Marks,
    /// Degrees of latitude and longitude, of an object whose keys `lat` and `lon` are numbers.
    pub geo: Option<(f64, f64)>,
}

/// Which of `false`, `true` and `null` are elements of a value, and whether it is an object without keys. The bits are written to disk and never change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(pub(super) u8);

impl Marks {
    const FALSE: u8 = 1;
    const TRUE: u8 = 2;
    const NULL: u8 = 4;
    const EMPTY: u8 = 8;
    pub(super) const GEO: u8 = 16;

    /// Whether the boolean is an element.
    pub fn has(self, flag: bool) -> bool {
        self.0 & if flag { Marks::TRUE } else { Marks::FALSE } != 0
    }

    /// Whether the value is an object without keys.
    pub fn is_empty_object(self) -> bool {
        self.0 & Marks::EMPTY != 0
    }
}

/// Why a text is no value of a payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// It is not JSON, nests too deep, or has a number that is out of range.
    #[error("the value of key {}: {reason}", quoted(.key))]
    Json {
        /// Whose value it is.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There are more keys and paths than that.
    #[error("payload too large: at most {0} keys and paths inside objects per point")]
    TooManyPaths(usize),
    /// The texts are longer than that, or paths and what is found at them take so many bytes.
    #[error(
        "payload too large: objects and arrays of several kinds may have at most {0} bytes per point, together with what filters find in them"
    )]
    TooLarge(usize),
}

/// What may be derived from the values of one row.
#[derive(Clone, Copy, Debug)]
pub struct JsonLimits {
    /// Paths.
    pub paths: usize,
    /// Bytes of texts, and bytes of paths and of what is found at them.
    pub bytes: usize,
}

impl JsonLimits {
    /// For what has been let in before.
    pub(super) const NONE: JsonLimits = JsonLimits { paths: usize::MAX, bytes: usize::MAX };
}

/// Finds what filters find in `text`, the value of `key`: its own elements, and the values at the paths inside it. Takes what is found from
/// `left`. Where an object repeats a key, the last one counts; in objects that are in an array, all do. Linear in the text and in the bytes of
/// what is found.
///
/// # Errors
/// [`JsonError`].
pub(super) fn derive(
    key: &str,
    text: &str,
    left: &mut JsonLimits,
) -> Result<(Elements, Vec<(String, Value)>), JsonError> {
    let (paths, bytes) = (left.paths, left.bytes);
    let mut found = Found { nodes: Vec::new(), left, fault: None };
    found.left.bytes = match bytes.checked_sub(text.len()) {
        Some(bytes) => bytes,
        None => return Err(JsonError::TooLarge(bytes)),
    };
    found.nodes.push(Node { path_bytes: key.len(), ..Node::default() });
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = Walk { found: &mut found, node: 0, place: Place::Alone }
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end());
    match found.fault {
        Some(Fault::Paths) => return Err(JsonError::TooManyPaths(paths)),
        Some(Fault::Bytes) => return Err(JsonError::TooLarge(bytes)),
        None => {}
    }
    read.map_err(|error| JsonError::Json { key: key.to_owned(), reason: error.to_string() })?;
    Ok(found.into_values(key))
}

/// What a step of a path leads to.
#[derive(Default)]
struct Node {
    elements: Elements,
    /// A value is there, so that the path has an entry.
    is_there: bool,
    /// An object is there.
    is_object: bool,
    /// An array is there or above.
    is_array: bool,
    /// The node before this one on the path, and the step from there. The first node has none.
    above: usize,
    step: String,
    /// The nodes behind this one, by step.
    below: BTreeMap<String, usize>,
    /// Length of the path.
    path_bytes: usize,
}

impl Node {
    fn into_value(self) -> Value {
        let Node { mut elements, is_object, is_array, below, .. } = self;
        // An array of objects or arrays is no array of the scalars that are there as well.
        let is_nested = is_object || below.contains_key(ELEMENTS);
        let kinds = [
            !elements.strings.is_empty(),
            !elements.ints.is_empty(),
            !elements.floats.is_empty(),
            elements.marks != Marks::default(),
        ];
        if is_nested || kinds.iter().filter(|&&there| there).count() > 1 {
            return Value::Json(Json { text: String::new(), elements });
        }
        match kinds {
            [true, ..] if is_array => Value::Strings(elements.strings),
            [true, ..] => Value::String(elements.strings.remove(0)),
            [_, true, ..] if is_array => Value::Ints(elements.ints),
            [_, true, ..] => Value::Int(elements.ints[0]),
            [_, _, true, _] if is_array => Value::Floats(elements.floats),
            [_, _, true, _] => Value::Float(elements.floats[0]),
            [.., true] if is_array => Value::Json(Json { text: String::new(), elements }),
            [.., true] if elements.marks.0 & Marks::NULL != 0 => Value::None,
            [.., true] => Value::Bool(elements.marks.has(true)),
            _ => Value::Strings(Vec::new()),
        }
    }
}

enum Fault {
    Paths,
    Bytes,
}

struct Found<'l> {
    nodes: Vec<Node>,
    left: &'l mut JsonLimits,
    fault: Option<Fault>,
}

impl Found<'_> {
    /// Takes room for so many bytes.
    fn take<E: de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        match self.left.bytes.checked_sub(bytes) {
            Some(left) => {
                self.left.bytes = left;
                Ok(())
            }
            None => {
                self.fault = Some(Fault::Bytes);
                Err(E::custom("too many bytes"))
            }
        }
    }

    /// The node that one step leads to: a new one where the value there is the only one, so that what came before it is gone.
    fn step<E: de::Error>(&mut self, from: usize, step: &str, place: Place) -> Result<usize, E> {
        match self.nodes[from].below.get(step) {
            Some(node) if place != Place::Alone => return Ok(*node),
            _ => {}
        }
        let path_bytes = self.nodes[from].path_bytes + step.len() + 1;
        self.take(path_bytes)?;
        match self.left.paths.checked_sub(1) {
            Some(left) => self.left.paths = left,
            None => {
                self.fault = Some(Fault::Paths);
                return Err(E::custom("too many paths"));
            }
        }
        let node = self.nodes.len();
        self.nodes.push(Node { above: from, step: step.to_owned(), path_bytes, ..Node::default() });
        self.nodes[from].below.insert(step.to_owned(), node);
        Ok(node)
    }

    /// The coordinates that the object of a node has.
    fn coordinates(&self, node: usize) -> Option<(f64, f64)> {
        let number = |key: &str| {
            let node = &self.nodes[*self.nodes[node].below.get(key)?];
            match (node.elements.ints.last(), node.elements.floats.last()) {
                (Some(number), None) if !node.is_array => Some(*number as f64),
                (None, Some(number)) if !node.is_array => Some(*number),
                _ => None,
            }
        };
        Some((number("lat")?, number("lon")?))
    }

    fn into_values(mut self, key: &str) -> (Elements, Vec<(String, Value)>) {
        let elements = std::mem::take(&mut self.nodes[0].elements);
        // Each node lies behind the one above it. One that another has replaced, and what is below it, has no path.
        let mut paths = vec![Some(key.to_owned())];
        for (index, node) in self.nodes.iter().enumerate().skip(1) {
            let above = &self.nodes[node.above];
            let is_reached = above.below.get(&node.step) == Some(&index);
            let path = paths[node.above].as_ref().filter(|_| is_reached).map(|above| {
                let mut path = String::with_capacity(node.path_bytes);
                path.push_str(above);
                if node.step != ELEMENTS {
                    path.push('.');
                }
                path.push_str(&node.step);
                path
            });
            paths.push(path);
        }
        let values = self.nodes.into_iter().zip(paths).skip(1).filter(|(node, _)| node.is_there);
        (elements, values.filter_map(|(node, path)| Some((path?, node.into_value()))).collect())
    }
}

/// The step from an array to the objects and arrays in it.
const ELEMENTS: &str = "[]";

/// A key of an object, borrowed where nothing in it is escaped.
#[derive(serde::Deserialize)]
struct Key<'k>(#[serde(borrow)] Cow<'k, str>);

/// Where a value stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is the only one at its path.
    Alone,
    /// There is an array on its way, so that others may be at its path.
    AmongOthers,
    /// It is an element of the array at the path.
    Element,
}

/// Walks through one value and notes what is at each path. It returns nothing: what is noted lies in `found`.
struct Walk<'f, 'l> {
    found: &'f mut Found<'l>,
    node: usize,
    place: Place,
}

impl Walk<'_, '_> {
    fn note<E: de::Error>(self, bytes: usize, note: impl FnOnce(&mut Elements)) -> Result<(), E> {
        self.found.take(bytes)?;
        let node = &mut self.found.nodes[self.node];
        node.is_array |= self.place != Place::Alone;
        node.is_there = true;
        note(&mut node.elements);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.note(1, |elements| elements.marks.0 |= Marks::NULL)
    }
    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<(), E> {
        self.note(1, |elements| elements.marks.0 |= if flag { Marks::TRUE } else { Marks::FALSE })
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<(), E> {
        self.note(8, |elements| elements.ints.push(number))
    }
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => {
                Err(E::custom(format_args!("integer {number} is out of the range of a 64-bit integer")))
            }
        }
    }
    fn visit_f64<E: de::Error>(self, number: f64) -> Result<(), E> {
        self.note(8, |elements| elements.floats.push(number))
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.note(text.len() + 12, |elements| elements.strings.push(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Walk { found, node, place } = self;
        let node = if place == Place::Element { found.step(node, ELEMENTS, place)? } else { node };
        let there = &mut found.nodes[node];
        (there.is_there, there.is_array) = (true, true);
        while seq.next_element_seed(Walk { found: &mut *found, node, place: Place::Element })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Walk { found, node, place } = self;
        let node = if place == Place::Element { found.step(node, ELEMENTS, place)? } else { node };
        let inside = if place == Place::Alone { Place::Alone } else { Place::AmongOthers };
        let mut is_empty = true;
        while let Some(Key(key)) = map.next_key()? {
            let node = found.step(node, &key, inside)?;
            map.next_value_seed(Walk { found: &mut *found, node, place: inside })?;
            is_empty = false;
        }
        // There may be any number of objects among the elements of an array, and none of them is its value.
        if place == Place::Alone {
            let geo = found.coordinates(node);
            let there = &mut found.nodes[node];
            (there.is_there, there.is_object) = (true, true);
            let marks = Marks(if is_empty { Marks::EMPTY } else { 0 });
            there.elements = Elements { geo, marks, ..Elements::default() };
        }
        Ok(())
    }
}
