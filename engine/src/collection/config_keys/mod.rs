//! The keys of a collection's configuration, in the one place that spells them.
//!
//! The `table` says of each [`Key`] its name, its type, what it is for, and where its value lies in a [`DenseConfig`]. A codec (JSON,
//! arguments of the binary protocol, a file) walks over the keys and adds only how its representation writes a [`Value`] and, where
//! bytes that exist already demand it, in what order. So a key is added with one row of the table and one field of the configuration.
//! [`Settings`] are values as a client gave them, before they make a configuration.

mod settings;
mod table;

pub use settings::Settings;
pub use table::Key;

use super::config::DenseConfig;
use crate::distance::{Metric, Width};
use crate::payload::PayloadFormat;
use crate::point_id::IdKind;
use crate::text::Analyzer;
use table::Access;

/// A value of a key, in no representation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A value of a switch ([`Kind::Bool`]); for [`Kind::Object`] it says whether the object is there.
    Bool(bool),
    /// An integer of 64 bits, with or without a sign.
    Int(i128),
    /// A number of any kind of floats.
    Float(f64),
    /// The name of one of the words of [`Kind::Words`].
    Word(&'static str),
}

impl Value {
    /// The value, if it is a switch.
    pub fn as_bool(self) -> Option<bool> {
        if let Value::Bool(flag) = self { Some(flag) } else { None }
    }

    /// The value, if it is an integer.
    pub fn as_int(self) -> Option<i128> {
        if let Value::Int(number) = self { Some(number) } else { None }
    }

    /// The value, if it is a float.
    pub fn as_float(self) -> Option<f64> {
        if let Value::Float(number) = self { Some(number) } else { None }
    }
}

/// One of the words that a key may have.
#[derive(Debug)]
pub struct Word {
    /// The spelling that the server writes.
    pub name: &'static str,
    /// Other spellings that clients may write.
    pub aliases: &'static [&'static str],
    /// Its number where words are numbers.
    pub code: u8,
}

/// The type of a key. Except where it says otherwise a 0 means the default.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Yes or no.
    Bool,
    /// An integer.
    Int(Ints),
    /// A number.
    Float(Floats),
    /// One of these words, or an empty text, which means the default.
    Words(&'static [Word]),
    /// An object of further keys.
    Object(&'static [Key]),
}

/// The integers that a key may have.
#[derive(Clone, Copy, Debug)]
pub enum Ints {
    /// Every integer from the first to the second is allowed.
    Within(i128, i128),
    /// Every integer from the first to the second is allowed, and everything below 1 means the default.
    Count(i128, i128),
    /// One of these integers is allowed.
    OneOf(&'static [i128]),
}

/// The numbers that a key may have.
#[derive(Clone, Copy, Debug)]
pub enum Floats {
    /// Every number is allowed.
    Any,
    /// Every number that is not negative is allowed.
    FromZero,
    /// Every number above 1 is allowed, and so is 0.
    AboveOne,
    /// Every number above 0 that `f32` can hold is allowed, and everything up to 0 means the default.
    Positive,
}

/// A family of collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Every point has one dense vector.
    Dense,
    /// Points have vectors in named spaces, and may lack some.
    Named,
    /// Documents have one vector for each of their tokens.
    MultiVector,
}

impl Family {
    /// Its name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Family::Dense => "dense",
            Family::Named => "named",
            Family::MultiVector => "multivector",
        }
    }
}

impl Key {
    /// The keys of a family's configuration, in the order of the table, without those of objects in it.
    pub fn of(family: Family) -> impl Iterator<Item = Key> {
        let members = Key::ALL.iter().filter_map(|key| key.members()).flatten();
        let members: Vec<Key> = members.copied().collect();
        let has = move |key: &Key| key.row().families.contains(&family) && !members.contains(key);
        Key::ALL.iter().copied().filter(has)
    }

    /// The collection keys, in the order of the table, without those of objects in them. In a collection of named spaces they stand beside the
    /// spaces; in others they are among the keys of [`Self::of`].
    pub fn of_whole() -> impl Iterator<Item = Key> {
        Key::ALL.iter().copied().filter(|key| key.row().is_of_whole)
    }

    /// The keys of [`Self::of`] with `first` before all others. Documents that are older than the table have an order of their own.
    pub fn of_with_first(family: Family, first: &'static [Key]) -> impl Iterator<Item = Key> {
        let others = Key::of(family).filter(|key| !first.contains(key));
        first.iter().copied().chain(others)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The type.
    pub fn kind(self) -> Kind {
        self.row().kind
    }

    /// Sentences for whoever writes a configuration: what the key is for.
    pub fn about(self) -> &'static str {
        self.row().about
    }

    /// The value that a configuration without the key has; `None` where that is only "off" or "no limit".
    pub fn default(self) -> Option<Value> {
        self.row().default
    }

    /// Whether its value may change while the collection serves. Nothing that is stored depends on such a value.
    pub fn is_live(self) -> bool {
        self.row().is_live
    }

    /// The keys of a family whose values may change while a collection serves, in the order of the table.
    pub fn live_of(family: Family) -> impl Iterator<Item = Key> {
        Key::of(family).filter(|key| key.is_live())
    }

    /// The keys of an object.
    pub fn members(self) -> Option<&'static [Key]> {
        if let Kind::Object(members) = self.kind() { Some(members) } else { None }
    }

    /// The object that it is a key of.
    pub fn object(self) -> Option<Key> {
        Key::ALL.iter().copied().find(|key| key.members().is_some_and(|members| members.contains(&self)))
    }

    /// The words that it may have.
    pub fn words(self) -> &'static [Word] {
        if let Kind::Words(words) = self.kind() { words } else { &[] }
    }

    /// The value of `config` as it was given, zeros that mean a default included; `None` where the key does not concern it.
    pub fn get(self, config: &DenseConfig) -> Option<Value> {
        // One accessor both reads and writes, so that the two cannot disagree. It reads from a copy, which has no memory of its own.
        let mut config = config.clone();
        match self.row().access {
            Access::ConfigField(place) => place(&mut config).map(|place| place.get()),
            Access::Own { get, .. } => get(&mut config),
        }
    }

    /// Puts a value into `config`, unless the key does not concern it. False when it is no value of this key.
    ///
    /// Keys that others depend on must be set first: `dim`, then the keys of [`Settings::SHAPE`], then switches before what they switch on.
    #[must_use]
    pub fn set(self, config: &mut DenseConfig, value: Value) -> bool {
        match self.row().access {
            Access::ConfigField(place) => place(config).is_none_or(|place| place.set(value)),
            Access::Own { set, .. } => set(config, value),
        }
    }

    /// The value that a collection of `config` works with: defaults in place, and 0 where the key does not concern it.
    pub fn effective(self, config: &DenseConfig) -> Value {
        let row = self.row();
        let value = row.effective.map_or_else(|| self.get(config), |effective| effective(config));
        value.unwrap_or(self.zero())
    }

    /// The value that stands for "not given".
    pub fn zero(self) -> Value {
        match self.kind() {
            Kind::Bool | Kind::Object(_) => Value::Bool(false),
            Kind::Int(_) => Value::Int(0),
            Kind::Float(_) => Value::Float(0.0),
            Kind::Words(_) => Value::Word(""),
        }
    }
}

/// `config` with those values of `other` that may change while a collection serves ([`Key::is_live`]).
pub fn with_live_values(config: &DenseConfig, other: &DenseConfig) -> DenseConfig {
    let mut config = config.clone();
    for key in Key::ALL.iter().filter(|key| key.is_live()) {
        // A key that does not concern `other` says nothing, and one that does not concern `config` has no effect.
        let is_set = key.get(other).is_none_or(|value| key.set(&mut config, value));
        debug_assert!(is_set, "{key:?} has a value of its own kind");
    }
    config
}

/// A place in a configuration that a value lies in.
trait ConfigField {
    fn get(&self) -> Value;
    /// False when it is no value for this place.
    fn set(&mut self, value: Value) -> bool;
}

/// A place that is written when the value is one for it.
fn put<T>(place: &mut T, value: Option<T>) -> bool {
    value.map(|value| *place = value).is_some()
}

macro_rules! places {
    ($($($place:ty),+: $get:expr, $set:expr;)*) => {$($(
        impl ConfigField for $place {
            fn get(&self) -> Value {
                $get(*self)
            }
            fn set(&mut self, value: Value) -> bool {
                put(self, $set(value))
            }
        }
    )+)*};
}

places! {
    bool: Value::Bool, Value::as_bool;
    u32, u64, i64, usize: |number| Value::Int(number as i128), |value: Value| value.as_int()?.try_into().ok();
    f32: |number: f32| Value::Float(number.into()), |value: Value| value.as_float().map(|number| number as f32);
    f64: Value::Float, Value::as_float;
    Width: |width: Width| Value::Int(width.bits() as i128), |value: Value| Width::from_bits(value.as_int()?.try_into().ok()?);
    Analyzer: |analyzer: Analyzer| Value::Word(analyzer.name()), |value| {
        Analyzer::ALL.iter().copied().find(|analyzer| analyzer.get() == value)
    };
    IdKind: |kind: IdKind| Value::Word(kind.name()), |value| {
        IdKind::ALL.into_iter().find(|kind| kind.get() == value)
    };
    PayloadFormat: |format: PayloadFormat| Value::Word(format.name()), |value| {
        PayloadFormat::ALL.into_iter().find(|format| format.get() == value)
    };
    Metric: |metric| Value::Word(metric_name(metric)), |value| {
        [Metric::Cosine, Metric::L2, Metric::Dot].into_iter().find(|metric| metric.get() == value)
    };
}

fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::Cosine => "cosine",
        Metric::L2 => "l2",
        Metric::Dot => "dot",
    }
}

/// Something that is off or on. Its parameters have keys of their own, and begin with their defaults.
impl<T: Default> ConfigField for Option<T> {
    fn get(&self) -> Value {
        Value::Bool(self.is_some())
    }
    fn set(&mut self, value: Value) -> bool {
        put(self, value.as_bool().map(|on| on.then(T::default)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_agrees_with_the_configuration() {
        let mut names: Vec<&str> = Key::ALL.iter().map(|key| key.name()).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        let mut config = DenseConfig::new(8, Metric::Cosine);
        config.full_text = Some(crate::text::TextConfig::default());
        for key in Key::ALL {
            assert!(key.about().ends_with('.'), "{key:?}");
            match (key.default(), key.get(&config)) {
                (Some(Value::Float(told)), Some(Value::Float(held))) => {
                    assert_eq!(told as f32, held as f32, "{key:?}")
                }
                (Some(told), held) => assert_eq!(Some(told), held, "{key:?}"),
                // What has no place in this configuration, and what is told to be off without saying so.
                (None, held) => assert!(
                    matches!(key, Key::Dim | Key::Quant | Key::FullText)
                        || held.is_none_or(|held| held == key.zero()),
                    "{key:?}"
                ),
            }
        }
    }
}
