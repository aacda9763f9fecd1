//! Keys of the dictionaries: byte strings of at most 64 bytes whose byte order is the order of the values.
//!
//! A longer text is filed under its first 56 bytes and a hash of the whole. Equal texts still meet under one key, and a
//! dictionary stays bounded whatever is written; order among texts with the same 56 bytes is lost, so ranges that end
//! there take all of them and the predicate looks again.

use std::cmp::Ordering;

/// Longest key.
const KEY_BYTES: usize = 64;
/// Texts up to this length are their own key; one byte less than a hashed key, so that the two never meet.
pub(super) const WHOLE_BYTES: usize = KEY_BYTES - 1;
/// Bytes a hashed key shares with its text.
pub(super) const SHARED_BYTES: usize = KEY_BYTES - 8;

/// A key, its first eight bytes as a number (a comparison of one word settles most searches).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub prefix: u64,
    pub rest: Box<[u8]>,
    pub len: u8,
}

/// A borrowed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyRef<'a> {
    /// First eight bytes, big-endian, padded with zeros.
    pub prefix: u64,
    /// Bytes after the eighth.
    pub rest: &'a [u8],
    /// All bytes.
    pub len: u8,
}

impl<'a> KeyRef<'a> {
    /// The key of these bytes, at most 64.
    pub fn new(bytes: &'a [u8]) -> Self {
        debug_assert!(bytes.len() <= KEY_BYTES);
        let (head, rest) = bytes.split_at(bytes.len().min(8));
        let mut prefix = [0; 8];
        prefix[..head.len()].copy_from_slice(head);
        KeyRef { prefix: u64::from_be_bytes(prefix), rest, len: bytes.len() as u8 }
    }

    /// The key of a number that orders as the value does.
    pub fn number(order: u64) -> KeyRef<'static> {
        KeyRef { prefix: order, rest: &[], len: 8 }
    }

    pub fn to_owned(self) -> Key {
        Key { prefix: self.prefix, rest: self.rest.into(), len: self.len }
    }
}

impl Ord for KeyRef<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        // Padding makes "a" and "a\0" alike up to here; the length tells them apart.
        self.prefix.cmp(&other.prefix).then_with(|| self.rest.cmp(other.rest)).then(self.len.cmp(&other.len))
    }
}

impl PartialOrd for KeyRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Key {
    pub fn as_ref(&self) -> KeyRef<'_> {
        KeyRef { prefix: self.prefix, rest: &self.rest, len: self.len }
    }
}

/// A place between two keys: just before a key or just after it.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub key: Key,
    pub after: bool,
}

impl Edge {
    /// Whether `key` lies beyond the edge.
    #[inline]
    pub fn is_before(&self, key: KeyRef<'_>) -> bool {
        match key.cmp(&self.key.as_ref()) {
            Ordering::Less => false,
            Ordering::Equal => !self.after,
            Ordering::Greater => true,
        }
    }
}

/// The keys between two edges; no edge = no bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct Span {
    pub low: Option<Edge>,
    pub high: Option<Edge>,
}

impl Span {
    /// One key.
    pub fn only(key: KeyRef<'_>) -> Span {
        Span::between(Some((key, false)), Some((key, true)))
    }

    pub fn between(low: Option<(KeyRef<'_>, bool)>, high: Option<(KeyRef<'_>, bool)>) -> Span {
        let edge = |(key, after): (KeyRef<'_>, bool)| Edge { key: key.to_owned(), after };
        Span { low: low.map(edge), high: high.map(edge) }
    }

    #[cfg(test)]
    pub fn contains(&self, key: KeyRef<'_>) -> bool {
        self.low.as_ref().is_none_or(|low| low.is_before(key))
            && self.high.as_ref().is_none_or(|high| !high.is_before(key))
    }
}

/// Orders as the integer.
pub(crate) fn of_int(value: i64) -> u64 {
    value as u64 ^ 1 << 63
}

/// Orders as the float; both zeros are one. NaN has no place.
pub(crate) fn of_float(value: f64) -> Option<u64> {
    if value.is_nan() {
        return None;
    }
    let bits = (value + 0.0).to_bits();
    Some(if bits >> 63 == 1 { !bits } else { bits | 1 << 63 })
}

/// Calls `with` with the key of a text.
pub(crate) fn of_text<R>(text: &str, hasher: &ahash::RandomState, with: impl FnOnce(KeyRef<'_>) -> R) -> R {
    let bytes = text.as_bytes();
    if bytes.len() <= WHOLE_BYTES {
        return with(KeyRef::new(bytes));
    }
    let mut key = [0; KEY_BYTES];
    key[..SHARED_BYTES].copy_from_slice(&bytes[..SHARED_BYTES]);
    key[SHARED_BYTES..].copy_from_slice(&hasher.hash_one(bytes).to_be_bytes());
    with(KeyRef::new(&key))
}

/// Texts between two bounds, each with whether it is itself inside, and whether the span holds nothing else.
pub(crate) fn text_span(low: Option<(&str, bool)>, high: Option<(&str, bool)>) -> (Span, bool) {
    let mut exact = true;
    let mut edge = |bound: Option<(&str, bool)>, is_high: bool| {
        let (text, inclusive) = bound?;
        let bytes = text.as_bytes();
        if bytes.len() <= SHARED_BYTES {
            // A hashed key compares with so short a bound as its text does.
            return Some(Edge { key: KeyRef::new(bytes).to_owned(), after: inclusive == is_high });
        }
        exact = false;
        let mut key = [if is_high { u8::MAX } else { 0 }; KEY_BYTES];
        key[..SHARED_BYTES].copy_from_slice(&bytes[..SHARED_BYTES]);
        let len = if is_high { KEY_BYTES } else { SHARED_BYTES };
        Some(Edge { key: KeyRef::new(&key[..len]).to_owned(), after: is_high })
    };
    let span = Span { low: edge(low, false), high: edge(high, true) };
    (span, exact)
}

/// All texts that begin with `text`, and when it is longer than what a hashed key shares, others.
pub(super) fn beginning_span(text: &str) -> Span {
    let shared = &text.as_bytes()[..text.len().min(SHARED_BYTES)];
    let mut last = [u8::MAX; KEY_BYTES];
    last[..shared.len()].copy_from_slice(shared);
    Span::between(Some((KeyRef::new(shared), false)), Some((KeyRef::new(&last), true)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![
            "[ab\\x00]{0,12}",
            ("a{54,58}", "[ab]{0,12}").prop_map(|(head, tail)| head + &tail),
            "\\PC{0,30}",
        ]
    }

    proptest! {
        #[test]
        fn keys_of_numbers_order_as_the_numbers(a in any::<f64>(), b in any::<f64>(), i in any::<i64>(), j in any::<i64>()) {
            prop_assert_eq!(of_int(i).cmp(&of_int(j)), i.cmp(&j));
            match (of_float(a), of_float(b)) {
                (Some(x), Some(y)) => prop_assert_eq!(Some(x.cmp(&y)), a.partial_cmp(&b)),
                (x, y) => prop_assert_eq!((x.is_none(), y.is_none()), (a.is_nan(), b.is_nan())),
            }
        }

        #[test]
        fn short_texts_order_as_their_bytes(a in any_text(), b in any_text()) {
            let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
            let order = of_text(&a, &hasher, |x| of_text(&b, &hasher, |y| x.cmp(&y)));
            prop_assert_eq!(order.is_eq(), a == b);
            if a.len().max(b.len()) <= WHOLE_BYTES {
                prop_assert_eq!(order, a.as_bytes().cmp(b.as_bytes()));
            }
        }

        #[test]
        fn spans_of_beginnings_hold_all_that_begin_so(text in any_text(), other in any_text(), cut in 0..70usize) {
            let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
            let beginning: String = text.chars().take(cut).collect();
            let span = beginning_span(&beginning);
            prop_assert!(of_text(&text, &hasher, |key| span.contains(key)));
            let inside = of_text(&other, &hasher, |key| span.contains(key));
            prop_assert!(inside || !other.starts_with(&beginning));
            prop_assert!(!inside || beginning.len() > SHARED_BYTES || other.starts_with(&beginning));
        }

        #[test]
        fn spans_hold_what_the_bounds_do(
            text in any_text(), low in prop::option::of((any_text(), any::<bool>())), high in prop::option::of((any_text(), any::<bool>())),
        ) {
            let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
            let bound = |b: &'_ Option<(String, bool)>| b.as_ref().map(|(text, inclusive)| (text.clone(), *inclusive));
            let (l, h) = (bound(&low), bound(&high));
            let (span, exact) = text_span(
                l.as_ref().map(|(text, inclusive)| (text.as_str(), *inclusive)),
                h.as_ref().map(|(text, inclusive)| (text.as_str(), *inclusive)),
            );
            let wanted = low.is_none_or(|(b, i)| text.as_bytes() > b.as_bytes() || (i && text == b))
                && high.is_none_or(|(b, i)| text.as_bytes() < b.as_bytes() || (i && text == b));
            let inside = of_text(&text, &hasher, |key| span.contains(key));
            prop_assert!(inside || !wanted);
            prop_assert!(!exact || inside == wanted, "{:?}", span);
        }
    }
}
