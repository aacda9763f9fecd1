//! The test a leaf applies to one payload value.

use super::allowance::Allowance;
use super::datetime::unix_ms_of_rfc3339;
use super::geo::Area;
use super::membership::Members;
use super::pattern::Pattern;
use super::tokens::QueryTokens;
use crate::payload::{Value, ValueRef};
use std::cmp::Ordering;

/// What a leaf costs, in nanoseconds: finding the field, and comparing what it holds.
const LEAF_NS: u64 = 30;
/// Bytes of a text compared or hashed in a nanosecond.
const TEXT_BYTES_PER_NS: u64 = 4;
/// The sines of a circle.
const AREA_NS: u64 = 60;
/// Lists up to this length stay in a core's second cache.
pub(super) const LIST_IN_CACHE: usize = 50_000;
/// What a longer one costs: misses.
const LONG_LIST_NS: u64 = 500;

/// What a leaf asks of its field. Unless stated otherwise an absent field fails, and so does a value of another kind than
/// the test is about.
#[derive(Debug)]
pub(crate) enum Test {
    /// Same kind and equal.
    Eq(Value),
    /// Present and not `Eq`: a value of another kind passes, an absent field fails.
    Ne(Value),
    /// An int or float, compared as f64 with the bound; NaN on either side fails. With an edge, the bound is a time, and a string
    /// that is an RFC 3339 time is compared as well, by its Unix milliseconds.
    Number(Relation, f64, Option<TimeEdge>),
    /// A string, compared by bytes with the bound.
    Text(Relation, Box<str>),
    /// A scalar that the list holds. An int and a float are compared as f64, as bounds are, so that 20 and 20.0 are one number.
    In(Members),
    /// An array of strings holding this one.
    ContainsString(Box<str>),
    /// An array of ints holding this one.
    ContainsInt(i64),
    /// An array of floats holding this one.
    ContainsFloat(f64),
    /// An array holding this boolean.
    ContainsBool(bool),
    /// A string, or one string of an array, that holds every token.
    Match(QueryTokens),
    /// A string, or one string of an array, in which the expression is found anywhere.
    Regex(Box<Pattern>),
    /// Absent, none, "", or an array without elements.
    IsEmpty,
    /// Present with kind none.
    IsNull,
    /// Present with any kind but none; an empty text or array is a value.
    Exists,
    /// A geo point inside.
    Inside(Area),
}

/// A date before (of a lower bound) or after (of an upper one) every string that stands for a time within the bound, in the order
/// of bytes. An RFC 3339 time begins with its local date, which is less than a day away from the date in UTC.
pub(crate) type TimeEdge = Box<str>;

/// How the stored value must stand to the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// Above.
    Greater,
    /// Above or equal.
    GreaterOrEqual,
    /// Below.
    Less,
    /// Below or equal.
    LessOrEqual,
}

impl Relation {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Relation::Greater => order.is_gt(),
            Relation::GreaterOrEqual => order.is_ge(),
            Relation::Less => order.is_lt(),
            Relation::LessOrEqual => order.is_le(),
        }
    }

    fn holds_between(self, stored: f64, bound: f64) -> bool {
        stored.partial_cmp(&bound).is_some_and(|order| self.holds(order))
    }
}

impl Test {
    /// The answer where it takes no [`Course`](super::course::Course).
    #[inline]
    pub(super) fn answer(&self, value: Option<ValueRef<'_>>, allowance: &Allowance) -> bool {
        let read_ns = match (self, value) {
            (Test::In(members), _) if members.len() > LIST_IN_CACHE => LONG_LIST_NS,
            // Comparing and hashing stop with the shorter one.
            (_, Some(ValueRef::String(text))) => text.len() as u64 / TEXT_BYTES_PER_NS,
            (Test::Inside(_), _) => AREA_NS,
            _ => 0,
        };
        allowance.spend(LEAF_NS + read_ns);
        self.matches(value)
    }

    fn matches(&self, value: Option<ValueRef<'_>>) -> bool {
        let Some(value) = value else {
            return matches!(self, Test::IsEmpty);
        };
        match self {
            Test::Eq(operand) => value == *operand,
            Test::Ne(operand) => value != *operand,
            Test::Number(relation, bound, times) => match value {
                // Rounding above 2^53 is part of the contract: numbers compare as f64, mixed or not.
                ValueRef::Int(stored) => relation.holds_between(stored as f64, *bound),
                ValueRef::Float(stored) => relation.holds_between(stored, *bound),
                ValueRef::String(stored) if times.is_some() => unix_ms_of_rfc3339(stored)
                    .is_some_and(|unix_ms| relation.holds_between(unix_ms as f64, *bound)),
                _ => false,
            },
            Test::Text(relation, bound) => match value {
                ValueRef::String(stored) => relation.holds(stored.as_bytes().cmp(bound.as_bytes())),
                _ => false,
            },
            Test::In(members) => match (members, value) {
                (Members::Strings(set), ValueRef::String(stored)) => set.contains(stored),
                (Members::Ints(set), ValueRef::Int(stored)) => set.contains(stored),
                (Members::Ints(set), ValueRef::Float(stored)) => set.contains_float(stored),
                (Members::Floats(set), ValueRef::Float(stored)) => set.contains(stored),
                (Members::Floats(set), ValueRef::Int(stored)) => set.contains(stored as f64),
                _ => false,
            },
            // What these ask of a value of their kind takes a course.
            Test::ContainsString(_)
            | Test::ContainsInt(_)
            | Test::ContainsFloat(_)
            | Test::Match(_)
            | Test::Regex(_) => false,
            Test::ContainsBool(flag) => matches!(value, ValueRef::Json(json) if json.marks().has(*flag)),
            Test::IsEmpty => match value {
                ValueRef::None => true,
                ValueRef::String(text) => text.is_empty(),
                ValueRef::Strings(array) => array.is_empty(),
                ValueRef::Ints(array) => array.is_empty(),
                ValueRef::Floats(array) => array.is_empty(),
                ValueRef::Json(json) => json.marks().is_empty_object(),
                ValueRef::Int(_)
                | ValueRef::Float(_)
                | ValueRef::Bool(_)
                | ValueRef::Geo { .. }
                | ValueRef::Record(_) => false,
            },
            Test::IsNull => matches!(value, ValueRef::None),
            Test::Exists => !matches!(value, ValueRef::None),
            Test::Inside(area) => {
                coordinates(value).is_some_and(|(lat, lon)| area.contains(lat, lon) == Some(true))
            }
        }
    }
}

/// Degrees of latitude and longitude, of a value that has them.
pub(super) fn coordinates(value: ValueRef<'_>) -> Option<(f64, f64)> {
    match value {
        ValueRef::Geo { lat, lon } => Some((lat, lon)),
        ValueRef::Json(json) => json.geo(),
        _ => None,
    }
}
