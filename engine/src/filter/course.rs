//! A leaf that asks about something long (texts, arrays, polygons): how far its test has got, so that it can be left and gone on with.

use super::allowance::Allowance;
use super::geo::{Area, EdgeWalk};
use super::leaf::{Test, coordinates};
use super::pattern::{Pattern, Scan};
use super::tokens::{QueryTokens, TokenCourse};
use crate::payload::{Value, ValueRef};

/// What beginning costs, and each text of an array, in nanoseconds.
const BEGIN_NS: u64 = 30;
const ELEMENT_NS: u64 = 10;
/// Numbers compared in one go, and how many take a nanosecond.
const NUMBERS_AT_ONCE: usize = 4096;
const NUMBERS_PER_NS: u64 = 1;
/// Bytes of a text compared in a nanosecond.
const TEXT_BYTES_PER_NS: u64 = 4;

/// A test under way.
#[derive(Debug)]
pub(super) enum Course<'a> {
    /// Words in texts.
    Words(&'a QueryTokens, Texts<'a>, TokenCourse),
    /// An expression in texts; `None` between two of them.
    Pattern(&'a Pattern, Texts<'a>, Option<Scan<'a>>),
    /// An element in an array.
    Element(&'a Test, ValueRef<'a>, usize),
    /// An array that shall be another one, or not.
    Equal { operand: &'a Value, array: ValueRef<'a>, next: usize, wanted: bool },
    /// Around a polygon.
    Edges(EdgeWalk<'a>),
}

/// The text of a value, or those of its array, one after the other.
#[derive(Debug)]
pub(super) struct Texts<'a> {
    value: ValueRef<'a>,
    next: usize,
}

impl<'a> Texts<'a> {
    fn current(&self) -> Option<&'a str> {
        match self.value {
            ValueRef::String(text) => (self.next == 0).then_some(text),
            ValueRef::Strings(array) => array.get(self.next),
            ValueRef::Json(json) => json.strings().get(self.next),
            _ => None,
        }
    }
}

impl<'a> Course<'a> {
    /// The course that a test takes about a value; `None` where [`Test::answer`] says at once what it comes to.
    #[inline]
    pub(super) fn begin(test: &'a Test, value: ValueRef<'a>) -> Option<Course<'a>> {
        let texts = Texts { value, next: 0 };
        Some(match (test, value) {
            (Test::Match(tokens), ValueRef::String(_) | ValueRef::Strings(_) | ValueRef::Json(_)) => {
                Course::Words(tokens, texts, TokenCourse::default())
            }
            (Test::Regex(pattern), ValueRef::String(_) | ValueRef::Strings(_) | ValueRef::Json(_)) => {
                Course::Pattern(pattern, texts, None)
            }
            (Test::ContainsString(_), ValueRef::Json(json)) => {
                Course::Element(test, ValueRef::Strings(json.strings()), 0)
            }
            (Test::ContainsInt(_), ValueRef::Json(json)) => {
                Course::Element(test, ValueRef::Ints(json.ints()), 0)
            }
            (Test::ContainsFloat(_), ValueRef::Json(json)) => {
                Course::Element(test, ValueRef::Floats(json.floats()), 0)
            }
            (Test::ContainsString(_), ValueRef::Strings(_))
            | (Test::ContainsInt(_), ValueRef::Ints(_))
            | (Test::ContainsFloat(_), ValueRef::Floats(_)) => Course::Element(test, value, 0),
            (
                Test::Eq(operand) | Test::Ne(operand),
                ValueRef::Strings(_) | ValueRef::Ints(_) | ValueRef::Floats(_),
            ) if value.kind() == operand.kind() => {
                Course::Equal { operand, array: value, next: 0, wanted: matches!(test, Test::Eq(_)) }
            }
            (Test::Inside(Area::Polygon(polygon)), value) => {
                let (lat, lon) = coordinates(value)?;
                Course::Edges(polygon.walk(lat, lon))
            }
            _ => return None,
        })
    }

    /// Whether the value passes, `None` when the allowance is used up before.
    pub(super) fn go_on(&mut self, allowance: &Allowance) -> Option<bool> {
        allowance.spend(BEGIN_NS);
        match self {
            Course::Words(tokens, texts, course) => {
                while let Some(text) = texts.current() {
                    allowance.spend(ELEMENT_NS);
                    if tokens.all_in(text, course, allowance)? {
                        return Some(true);
                    }
                    *course = TokenCourse::default();
                    texts.next += 1;
                    if allowance.is_spent() {
                        return None;
                    }
                }
                Some(false)
            }
            Course::Pattern(pattern, texts, scan) => {
                while let Some(text) = texts.current() {
                    allowance.spend(ELEMENT_NS);
                    if scan.get_or_insert_with(|| pattern.scan(text)).go_on(text, allowance)? {
                        return Some(true);
                    }
                    *scan = None;
                    texts.next += 1;
                    if allowance.is_spent() {
                        return None;
                    }
                }
                Some(false)
            }
            Course::Element(test, array, next) => element(test, *array, next, allowance),
            Course::Equal { operand, array, next, wanted } => {
                equal(operand, *array, next, allowance).map(|equal| equal == *wanted)
            }
            Course::Edges(walk) => walk.go_on(allowance),
        }
    }
}

impl Test {
    /// Whether the live value of the field, `None` when absent, passes; `None` when the allowance is used up before.
    #[inline]
    pub(super) fn ask(&self, value: Option<ValueRef<'_>>, allowance: &Allowance) -> Option<bool> {
        match value.and_then(|value| Course::begin(self, value)) {
            Some(mut course) => course.go_on(allowance),
            None => Some(self.answer(value, allowance)),
        }
    }
}

/// Whether an array has the element that a test asks for, from `next` on.
fn element(test: &Test, array: ValueRef<'_>, next: &mut usize, allowance: &Allowance) -> Option<bool> {
    if let (Test::ContainsString(operand), ValueRef::Strings(array)) = (test, array) {
        while let Some(text) = array.get(*next) {
            if text == &**operand {
                return Some(true);
            }
            *next += 1;
            allowance.spend(ELEMENT_NS + compared_ns(text, operand));
            if allowance.is_spent() {
                return None;
            }
        }
        return Some(false);
    }
    loop {
        let to = next.saturating_add(NUMBERS_AT_ONCE);
        let (found, len) = match (test, array) {
            (Test::ContainsInt(operand), ValueRef::Ints(array)) => {
                (array.part(*next, to).iter().any(|stored| stored == *operand), array.len())
            }
            (Test::ContainsFloat(operand), ValueRef::Floats(array)) => {
                (array.part(*next, to).iter().any(|stored| stored == *operand), array.len())
            }
            _ => (false, 0),
        };
        allowance.spend((to.min(len).saturating_sub(*next)) as u64 / NUMBERS_PER_NS);
        *next = to;
        if found || to >= len {
            return Some(found);
        }
        if allowance.is_spent() {
            return None;
        }
    }
}

/// Whether an array is equal to another of its kind, from `next` on.
fn equal(operand: &Value, array: ValueRef<'_>, next: &mut usize, allowance: &Allowance) -> Option<bool> {
    if let (Value::Strings(operand), ValueRef::Strings(array)) = (operand, array) {
        if operand.len() != array.len() {
            return Some(false);
        }
        while let Some((wanted, text)) = operand.get(*next).zip(array.get(*next)) {
            if text != wanted {
                return Some(false);
            }
            *next += 1;
            allowance.spend(ELEMENT_NS + compared_ns(text, wanted));
            if allowance.is_spent() {
                return None;
            }
        }
        return Some(true);
    }
    loop {
        let to = next.saturating_add(NUMBERS_AT_ONCE);
        let (equal, len) = match (operand, array) {
            (Value::Ints(operand), ValueRef::Ints(array)) if operand.len() == array.len() => {
                let wanted = operand.iter().copied().skip(*next).take(NUMBERS_AT_ONCE);
                (array.part(*next, to).iter().eq(wanted), array.len())
            }
            (Value::Floats(operand), ValueRef::Floats(array)) if operand.len() == array.len() => {
                let wanted = operand.iter().copied().skip(*next).take(NUMBERS_AT_ONCE);
                (array.part(*next, to).iter().eq(wanted), array.len())
            }
            _ => (false, 0),
        };
        allowance.spend((to.min(len).saturating_sub(*next)) as u64 / NUMBERS_PER_NS);
        *next = to;
        if !equal || to >= len {
            return Some(equal);
        }
        if allowance.is_spent() {
            return None;
        }
    }
}

/// What comparing two texts costs: nothing where their lengths differ.
fn compared_ns(a: &str, b: &str) -> u64 {
    if a.len() == b.len() { a.len() as u64 / TEXT_BYTES_PER_NS } else { 0 }
}
