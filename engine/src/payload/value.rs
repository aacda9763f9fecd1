//! Payload values: owned, and read in place from a row.

use super::json::{Elements, Json, Marks};
use super::row_layout as layout;
use std::fmt;

/// The kinds a payload value can have. The discriminants are written to disk and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Explicit null.
    None = 0,
    /// Text.
    String = 1,
    /// 64-bit signed integer.
    Int = 2,
    /// 64-bit float.
    Float = 3,
    /// Boolean.
    Bool = 4,
    /// Array of text.
    Strings = 5,
    /// Array of integers.
    Ints = 6,
    /// Array of floats.
    Floats = 7,
    /// A point on the globe.
    Geo = 8,
    /// The bytes of a record, see [`crate::kv::operate`].
    Record = 9,
    /// What only JSON can express.
    Json = 10,
}

impl Kind {
    /// Every kind, by discriminant.
    pub const ALL: [Kind; 11] = [
        Kind::None,
        Kind::String,
        Kind::Int,
        Kind::Float,
        Kind::Bool,
        Kind::Strings,
        Kind::Ints,
        Kind::Floats,
        Kind::Geo,
        Kind::Record,
        Kind::Json,
    ];

    /// The kinds that a tagged value may have on the wire: all but [`Kind::Json`], which has no tag.
    pub fn tagged() -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| *kind != Kind::Json)
    }

    /// The kind's name on the wire (`"string"`, `"ints"`, ...).
    pub fn name(self) -> &'static str {
        match self {
            Kind::None => "none",
            Kind::String => "string",
            Kind::Int => "int",
            Kind::Float => "float",
            Kind::Bool => "bool",
            Kind::Strings => "strings",
            Kind::Ints => "ints",
            Kind::Floats => "floats",
            Kind::Geo => "geo",
            Kind::Record => "record",
            Kind::Json => "json",
        }
    }

    /// The kind with this wire name; names are case-sensitive.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind with this stored discriminant.
    pub(super) fn from_stored(byte: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(byte)).copied()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One owned payload value.
///
/// Equality is by kind and content: `Int(1)` and `Float(1.0)` differ, floats compare as IEEE numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Explicit null.
    None,
    /// Text.
    String(String),
    /// 64-bit integer.
    Int(i64),
    /// 64-bit float, never NaN from the wire.
    Float(f64),
    /// Boolean.
    Bool(bool),
    /// Array of text.
    Strings(Vec<String>),
    /// Array of integers.
    Ints(Vec<i64>),
    /// Array of floats.
    Floats(Vec<f64>),
    /// Degrees; the range is not checked, filters that need a range check their own operands.
    Geo {
        /// Latitude.
        lat: f64,
        /// Longitude.
        lon: f64,
    },
    /// The bytes of a record. Nothing has checked them: they may be any, and `operate` refuses what is none.
    Record(Vec<u8>),
    /// An object, or an array that is none of the above. Only collections with plain payloads have such values.
    Json(Json),
}

impl Value {
    /// The value's kind.
    pub fn kind(&self) -> Kind {
        match self {
            Value::None => Kind::None,
            Value::String(_) => Kind::String,
            Value::Int(_) => Kind::Int,
            Value::Float(_) => Kind::Float,
            Value::Bool(_) => Kind::Bool,
            Value::Strings(_) => Kind::Strings,
            Value::Ints(_) => Kind::Ints,
            Value::Floats(_) => Kind::Floats,
            Value::Geo { .. } => Kind::Geo,
            Value::Record(_) => Kind::Record,
            Value::Json(_) => Kind::Json,
        }
    }
}

/// One value read in place from a row; copying it copies no content.
///
/// Compares with another `ValueRef` or a [`Value`] by kind and content, as values do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// Explicit null.
    None,
    /// Text.
    String(&'a str),
    /// Integer.
    Int(i64),
    /// Float.
    Float(f64),
    /// Boolean.
    Bool(bool),
    /// Array of text.
    Strings(StrArray<'a>),
    /// Array of integers.
    Ints(IntArray<'a>),
    /// Array of floats.
    Floats(FloatArray<'a>),
    /// Degrees.
    Geo {
        /// Latitude.
        lat: f64,
        /// Longitude.
        lon: f64,
    },
    /// The bytes of a record.
    Record(&'a [u8]),
    /// What only JSON can express.
    Json(JsonRef<'a>),
}

impl ValueRef<'_> {
    /// The value's kind.
    pub fn kind(&self) -> Kind {
        match self {
            ValueRef::None => Kind::None,
            ValueRef::String(_) => Kind::String,
            ValueRef::Int(_) => Kind::Int,
            ValueRef::Float(_) => Kind::Float,
            ValueRef::Bool(_) => Kind::Bool,
            ValueRef::Strings(_) => Kind::Strings,
            ValueRef::Ints(_) => Kind::Ints,
            ValueRef::Floats(_) => Kind::Floats,
            ValueRef::Geo { .. } => Kind::Geo,
            ValueRef::Record(_) => Kind::Record,
            ValueRef::Json(_) => Kind::Json,
        }
    }

    /// An owned copy.
    // By reference although the type is Copy: otherwise `(&v).to_owned()` would pick the blanket `ToOwned` of `Clone`
    // types and quietly return another `ValueRef`.
    #[allow(clippy::wrong_self_convention)]
    pub fn to_owned(&self) -> Value {
        match *self {
            ValueRef::None => Value::None,
            ValueRef::String(text) => Value::String(text.into()),
            ValueRef::Int(number) => Value::Int(number),
            ValueRef::Float(number) => Value::Float(number),
            ValueRef::Bool(flag) => Value::Bool(flag),
            ValueRef::Strings(array) => Value::Strings(array.iter().map(String::from).collect()),
            ValueRef::Ints(array) => Value::Ints(array.iter().collect()),
            ValueRef::Floats(array) => Value::Floats(array.iter().collect()),
            ValueRef::Geo { lat, lon } => Value::Geo { lat, lon },
            ValueRef::Record(bytes) => Value::Record(bytes.into()),
            ValueRef::Json(json) => Value::Json(json.to_owned()),
        }
    }
}

impl PartialEq<Value> for ValueRef<'_> {
    fn eq(&self, other: &Value) -> bool {
        match (*self, other) {
            (ValueRef::None, Value::None) => true,
            (ValueRef::String(a), Value::String(b)) => a == b,
            (ValueRef::Int(a), Value::Int(b)) => a == *b,
            (ValueRef::Float(a), Value::Float(b)) => a == *b,
            (ValueRef::Bool(a), Value::Bool(b)) => a == *b,
            (ValueRef::Strings(a), Value::Strings(b)) => a.len() == b.len() && a.iter().eq(b),
            (ValueRef::Ints(a), Value::Ints(b)) => a.len() == b.len() && a.iter().eq(b.iter().copied()),
            (ValueRef::Floats(a), Value::Floats(b)) => a.len() == b.len() && a.iter().eq(b.iter().copied()),
            (ValueRef::Geo { lat: a, lon: b }, Value::Geo { lat: c, lon: d }) => a == *c && b == *d,
            (ValueRef::Record(a), Value::Record(b)) => a == b,
            (ValueRef::Json(a), Value::Json(b)) => a.to_owned() == *b,
            _ => false,
        }
    }
}

/// A JSON value lying in a row, with what filters find in it.
#[derive(Clone, Copy)]
pub struct JsonRef<'a> {
    /// The whole row.
    row: &'a [u8],
    /// Position of the table of the entry.
    table: usize,
}

impl<'a> JsonRef<'a> {
    /// The value of the entry whose table is there.
    pub(super) fn new(row: &'a [u8], table: usize) -> Self {
        Self { row, table }
    }

    /// The text as it was sent, empty in an entry that was derived from another one.
    pub fn text(&self) -> &'a str {
        layout::field(self.row, self.table, layout::ENTRY_STRING)
            .map_or("", |position| layout::string_behind(self.row, position))
    }

    /// The texts in it.
    pub fn strings(&self) -> StrArray<'a> {
        let (first, len) = layout::field(self.row, self.table, layout::ENTRY_STRINGS)
            .map_or((0, 0), |position| layout::vector_behind(self.row, position));
        StrArray::new(self.row, first, len)
    }

    /// The integers in it.
    pub fn ints(&self) -> IntArray<'a> {
        IntArray::new(self.words(layout::ENTRY_INTS))
    }

    /// The floats in it.
    pub fn floats(&self) -> FloatArray<'a> {
        FloatArray::new(self.words(layout::ENTRY_FLOATS))
    }

    /// What else is in it.
    pub fn marks(&self) -> Marks {
        Marks(self.word(layout::ENTRY_INT) as u8 & !Marks::GEO)
    }

    /// Its degrees of latitude and longitude, if it is an object that has them.
    pub fn geo(&self) -> Option<(f64, f64)> {
        let is_there = self.word(layout::ENTRY_INT) & u64::from(Marks::GEO) != 0;
        let degrees = |slot| f64::from_bits(self.word(slot));
        is_there.then(|| (degrees(layout::ENTRY_FLOAT), degrees(layout::ENTRY_LON)))
    }

    /// An owned copy.
    pub fn to_owned(&self) -> Json {
        Json {
            text: self.text().to_owned(),
            elements: Elements {
                strings: self.strings().iter().map(str::to_owned).collect(),
                ints: self.ints().iter().collect(),
                floats: self.floats().iter().collect(),
                marks: self.marks(),
                geo: self.geo(),
            },
        }
    }

    fn word(&self, slot: u16) -> u64 {
        layout::field(self.row, self.table, slot).map_or(0, |position| layout::u64_at(self.row, position))
    }

    fn words(&self, slot: u16) -> &'a [[u8; 8]] {
        layout::field(self.row, self.table, slot)
            .map_or(&[], |position| layout::words_behind(self.row, position))
    }
}

impl PartialEq for JsonRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
            && self.strings() == other.strings()
            && self.ints() == other.ints()
            && self.floats() == other.floats()
            && (self.marks(), self.geo()) == (other.marks(), other.geo())
    }
}

impl fmt::Debug for JsonRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_owned().fmt(f)
    }
}

/// An array of text lying in a row.
#[derive(Clone, Copy)]
pub struct StrArray<'a> {
    /// The whole row: elements are reached by offsets.
    row: &'a [u8],
    /// Offset of the first element's offset.
    first: usize,
    /// Elements.
    len: usize,
}

impl<'a> StrArray<'a> {
    /// `len` element offsets start at `first` in `row`.
    pub(super) fn new(row: &'a [u8], first: usize, len: usize) -> Self {
        Self { row, first, len }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element at a place.
    pub fn get(&self, index: usize) -> Option<&'a str> {
        let Self { row, first, len } = *self;
        (index < len).then(|| super::row_layout::string_behind(row, first + 4 * index))
    }

    /// The elements in stored order.
    pub fn iter(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let array = *self;
        (0..array.len).map_while(move |index| array.get(index))
    }
}

impl PartialEq for StrArray<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl fmt::Debug for StrArray<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The two arrays of 8-byte numbers differ only in how eight little-endian bytes are read.
macro_rules! number_array {
    ($(#[$doc:meta])* $name:ident, $number:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name<'a> {
            /// Whole little-endian elements, not aligned.
            elements: &'a [[u8; 8]],
        }

        impl<'a> $name<'a> {
            /// Over whole elements.
            pub(super) fn new(elements: &'a [[u8; 8]]) -> Self {
                Self { elements }
            }

            /// Number of elements.
            pub fn len(&self) -> usize {
                self.elements.len()
            }

            /// Whether there is no element.
            pub fn is_empty(&self) -> bool {
                self.elements.is_empty()
            }

            /// Those elements that there are from one place on below another.
            pub fn part(&self, from: usize, to: usize) -> Self {
                let to = to.min(self.elements.len());
                Self { elements: &self.elements[from.min(to)..to] }
            }

            /// The elements in stored order.
            pub fn iter(&self) -> impl ExactSizeIterator<Item = $number> + DoubleEndedIterator + use<'a> {
                self.elements.iter().map(|bytes| <$number>::from_le_bytes(*bytes))
            }
        }

        impl PartialEq for $name<'_> {
            fn eq(&self, other: &Self) -> bool {
                self.iter().eq(other.iter())
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_list().entries(self.iter()).finish()
            }
        }
    };
}

number_array!(
    /// An array of integers lying in a row.
    IntArray,
    i64
);
number_array!(
    /// An array of floats lying in a row.
    FloatArray,
    f64
);
