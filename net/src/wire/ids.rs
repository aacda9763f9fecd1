//! Ids of points as JSON: integers without fraction, or strings.

use crate::op::{SentId, SentIds};
use crate::wire::value::{write_json, write_string};
use nigh_engine::payload::PayloadRow;
use serde::de::{self, SeqAccess};

/// Reads a list of ids. Calls `check` with the count of ids read so far, the new one included.
///
/// # Errors
/// If an element is not an id, if the list mixes integers and strings, or if `check` fails.
pub fn read_ids<'de, A: SeqAccess<'de>>(
    mut items: A,
    check: impl Fn(usize) -> Result<(), A::Error>,
) -> Result<SentIds, A::Error> {
    let mut ids = SentIds::default();
    while let Some(id) = items.next_element::<SentId>()? {
        check(ids.len() + 1)?;
        ids.push(&id).map_err(de::Error::custom)?;
    }
    Ok(ids)
}

/// Appends the id of a stored point: its string, which its row has where ids are strings, else its number.
pub fn write_id(out: &mut Vec<u8>, number: u64, row: &[u8]) {
    match PayloadRow::trusted(row).id() {
        Some(text) => write_string(out, text),
        None => write_json(out, &number),
    }
}

/// The id of a point as an answer has it.
pub fn id_json(id: &SentId) -> String {
    let mut out = Vec::new();
    write_text_or_number(&mut out, id.text(), id.number());
    // JSON is UTF-8.
    String::from_utf8_lossy(&out).into_owned()
}

/// Appends the string of a point, or its number where it has none.
pub fn write_text_or_number(out: &mut Vec<u8>, text: Option<&str>, number: u64) {
    match text {
        Some(text) => write_string(out, text),
        None => write_json(out, &number),
    }
}

/// The strings of many points, in little memory; empty where ids are numbers.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    /// One after the other.
    all: String,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Texts {
    /// Appends the string of the next point. It has one if the points before it have.
    pub fn push(&mut self, text: Option<&str>) {
        if let Some(text) = text {
            self.all.push_str(text);
            self.ends.push(self.all.len());
        }
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        size_of::<usize>() * self.ends.capacity() + self.all.capacity()
    }

    /// The string of the point at `index`, where ids are strings.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.all[start..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_engine::payload::RowBuilder;
    use nigh_engine::point_id::IdKind;

    #[test]
    fn ids_are_integers_or_strings() {
        let read = |text: &str| serde_json::from_str::<SentId>(text).map_err(|error| error.to_string());
        assert_eq!(read("18446744073709551615"), Ok(SentId::integer(u64::MAX)));
        let text = read("\"7\\n\"").expect("a string is an id");
        assert_eq!((text.text(), text.kind()), (Some("7\n"), Some(IdKind::String)));
        for (text, error) in [
            ("-1", "invalid value: integer `-1`, expected an id"),
            ("7.0", "invalid type: floating point `7.0`, expected an id"),
            ("18446744073709551616", "expected an id"),
            ("true", "invalid type: boolean `true`, expected an id"),
            ("[7]", "invalid type: sequence, expected an id"),
            ("\"\"", "an id that is a string must have 1 to 512 bytes, found an empty string"),
        ] {
            let refused = read(text).expect_err(text);
            assert!(refused.contains(error), "{text}: {refused}");
        }
    }

    #[test]
    fn answers_name_points_as_they_were_named() {
        let (mut texts, mut out) = (Texts::default(), Vec::new());
        for text in ["a", "é", "\""] {
            texts.push(Some(text));
        }
        (0..4).for_each(|index| write_text_or_number(&mut out, texts.get(index), 5));
        assert_eq!(out, "\"a\"\"é\"\"\\\"\"5".as_bytes());
        let mut row = RowBuilder::new();
        row.set_id("x".into());
        let mut out = Vec::new();
        write_id(&mut out, 7, &row.finish());
        write_id(&mut out, 7, &[]);
        assert_eq!(out, b"\"x\"7");
        texts = Texts::default();
        texts.push(None);
        assert_eq!((texts.get(0), texts.bytes()), (None, 0));
    }
}
