//! Ids of points: numbers, or strings, from each of which a number is computed; and ids as they are sent.
//!
//! Everything that stores, places or orders points knows numbers alone. The number of a string is a public function of the string ([`number_of`]), so
//! that a front end, a client or another node finds the number without asking anyone, and a point is found by its string without an index of
//! strings. The string itself lies in the row of the point.
//!
//! Two strings may have one number. The writer of a collection compares the strings and refuses the second one. Among `n` points of a
//! collection there is such a pair with a probability of about `n² / 2^65`: 1 in 3,700 with 100 million points. A string that no point has
//! leads to another point with a probability of `n / 2^64`. Someone who chooses ids can find two strings with one number after about 2^32
//! hashes; to find a string with the number of a given one takes about 2^64.

use crate::payload::PayloadRow;
use crate::quoted::quoted;
use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};
use sha2::{Digest, Sha256};
use std::fmt;

/// Bytes of the longest string that names a point.
pub const TEXT_ID_MAX_BYTES: usize = 512;

/// The payload key by which transports with numbers as ids send and answer the id of a point, in collections whose ids are strings. It is no key
/// of the payload there.
pub const ID_KEY: &str = "$id";

/// What the ids of a collection are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum IdKind {
    /// Numbers of 64 bits.
    #[default]
    Number = 0,
    /// Strings of 1 to [`TEXT_ID_MAX_BYTES`] bytes.
    String = 1,
}

impl IdKind {
    /// Every kind.
    pub const ALL: [IdKind; 2] = [IdKind::Number, IdKind::String];

    /// The name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            IdKind::Number => "number",
            IdKind::String => "string",
        }
    }

    /// The kind of that name; names are case-sensitive.
    pub fn from_name(name: &str) -> Option<IdKind> {
        IdKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Why a string names no point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextIdError {
    /// It has no characters.
    #[error("an id that is a string must have 1 to {TEXT_ID_MAX_BYTES} bytes, found an empty string")]
    Empty,
    /// It has too many bytes.
    #[error("an id that is a string must have 1 to {TEXT_ID_MAX_BYTES} bytes, found {0}")]
    TooLong(usize),
}

/// Checks the length of a string that names a point.
///
/// # Errors
/// [`TextIdError`] for an empty string and for one that is too long.
pub fn check_text_id(text: &str) -> Result<(), TextIdError> {
    match text.len() {
        0 => Err(TextIdError::Empty),
        1..=TEXT_ID_MAX_BYTES => Ok(()),
        bytes => Err(TextIdError::TooLong(bytes)),
    }
}

/// The number of a string: the first 8 bytes of its SHA-256, the most significant byte first. It takes some 100 ns.
///
/// # Errors
/// [`TextIdError`] for an empty string and for one that is too long.
pub fn number_of(text: &str) -> Result<u64, TextIdError> {
    check_text_id(text)?;
    let digest = Sha256::digest(text.as_bytes());
    let first = digest.first_chunk().expect("a digest of SHA-256 has 32 bytes");
    Ok(u64::from_be_bytes(*first))
}

/// The id of one point.
#[derive(Clone, PartialEq, Eq)]
pub struct SentId {
    number: u64,
    kind: Option<IdKind>,
    text: Option<Box<str>>,
}

impl SentId {
    /// An id that was sent as an integer, and can be nothing else.
    pub fn integer(number: u64) -> SentId {
        SentId { number, kind: Some(IdKind::Number), text: None }
    }

    /// An id that was sent as a string.
    ///
    /// # Errors
    /// [`TextIdError`].
    pub fn string(text: &str) -> Result<SentId, TextIdError> {
        Ok(SentId { number: number_of(text)?, kind: Some(IdKind::String), text: Some(text.into()) })
    }

    /// The id of a point with this row: its string, which the row has where ids are strings, or its number.
    pub fn stored(number: u64, row: &[u8]) -> SentId {
        SentId { number, kind: None, text: PayloadRow::trusted(row).id().map(Box::from) }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The kind it was sent as; `None` if only its number was sent, as over the binary protocol and gRPC.
    pub fn kind(&self) -> Option<IdKind> {
        self.kind
    }

    /// The string, if it is one.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }
}

impl Default for SentId {
    /// The id of a point that is sent without one.
    fn default() -> SentId {
        SentId::integer(0)
    }
}

impl From<u64> for SentId {
    /// The number of an id of either kind.
    fn from(number: u64) -> SentId {
        SentId { number, kind: None, text: None }
    }
}

impl fmt::Display for SentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => quoted(text).fmt(f),
            None => self.number.fmt(f),
        }
    }
}

/// What an id is called in errors of serde.
pub const EXPECTED: &str = "an id";

struct IdVisitor;

impl Visitor<'_> for IdVisitor {
    type Value = SentId;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<SentId, E> {
        Ok(SentId::integer(number))
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<SentId, E> {
        u64::try_from(number)
            .map(SentId::integer)
            .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<SentId, E> {
        SentId::string(text).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for SentId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdVisitor)
    }
}

impl fmt::Debug for SentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Ids of points, all integers or all strings, of which the numbers are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentIds {
    /// Their numbers.
    pub numbers: Vec<u64>,
    /// The kind they were sent as; `None` if only their numbers were sent, as over the binary protocol and gRPC, or if the list is empty.
    pub kind: Option<IdKind>,
}

/// The error for a list that mixes integers and strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "one list holds ids that are integers and ids that are strings; the ids of a collection are all integers or all strings"
)]
pub struct MixedIds;

impl SentIds {
    /// A list of one.
    pub fn from_one(id: &SentId) -> SentIds {
        SentIds { numbers: vec![id.number], kind: id.kind }
    }

    /// Appends an id.
    ///
    /// # Errors
    /// [`MixedIds`].
    pub fn push(&mut self, id: &SentId) -> Result<(), MixedIds> {
        self.kind = match (self.kind, id.kind) {
            (Some(kind), Some(other)) if kind != other => return Err(MixedIds),
            (kind, other) => kind.or(other),
        };
        self.numbers.push(id.number);
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

impl FromIterator<u64> for SentIds {
    /// The numbers of ids of either kind.
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> SentIds {
        numbers.into_iter().collect::<Vec<u64>>().into()
    }
}

impl From<Vec<u64>> for SentIds {
    /// The numbers of ids of either kind.
    fn from(numbers: Vec<u64>) -> SentIds {
        SentIds { numbers, kind: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients compute the same numbers, so these can never change. The values are those of `sha256sum`.
    #[test]
    fn numbers_of_strings_are_fixed() {
        for (text, number) in [
            ("abc", 0xba78_16bf_8f01_cfea),
            ("a", 0xca97_8112_ca1b_bdca),
            ("550e8400-e29b-41d4-a716-446655440000", 0xa3a9_e1ed_9732_cab2),
        ] {
            assert_eq!(number_of(text), Ok(number), "{text}");
        }
        assert_ne!(number_of("é"), number_of("e\u{301}"), "strings are compared by their bytes");
    }

    #[test]
    fn strings_have_a_least_and_a_greatest_length() {
        assert_eq!(number_of(""), Err(TextIdError::Empty));
        assert!(number_of(&"x".repeat(TEXT_ID_MAX_BYTES)).is_ok());
        let error = number_of(&"x".repeat(TEXT_ID_MAX_BYTES + 1)).expect_err("it is too long");
        assert_eq!(error.to_string(), "an id that is a string must have 1 to 512 bytes, found 513");
    }

    #[test]
    fn names_of_kinds() {
        for kind in IdKind::ALL {
            assert_eq!(IdKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(IdKind::from_name("String"), None);
    }

    #[test]
    fn a_list_has_ids_of_one_kind() {
        let mut ids = SentIds::default();
        assert_eq!(ids.push(&SentId::string("a").expect("an id")), Ok(()));
        assert_eq!(ids.push(&SentId::integer(7)), Err(MixedIds));
        assert_eq!(ids.push(&SentId::string("b").expect("an id")), Ok(()));
        assert_eq!((ids.len(), ids.kind), (2, Some(IdKind::String)));
        assert_eq!(SentIds::from(vec![7]).kind, None);
        assert_eq!(
            (SentId::integer(7).to_string(), SentId::string("a\"").expect("an id").to_string()),
            ("7".to_owned(), "\"a\\\"\"".to_owned())
        );
    }
}
