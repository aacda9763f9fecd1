//! Changes of a point's payload without its vector.

use crate::catalog::CollectionHandle;
use crate::error::{OpError, PAYLOAD_JSON_MAX_BYTES, PAYLOAD_KEYS_MAX, PAYLOAD_ROW_MAX_BYTES};
use nigh_engine::collection::DenseWriter;
use nigh_engine::payload::{JsonLimits, PayloadFormat, PayloadRow, RowBuilder, Value};
use nigh_engine::point_id::{ID_KEY, IdKind};
use nigh_engine::quoted::quoted;

/// What is to become of a payload. Times to live are relative, in milliseconds, and become absolute at the owner.
#[derive(Clone, Debug, PartialEq)]
pub enum PayloadChange {
    /// Sets keys. A key that has a deadline keeps it, unless `key_ttl_ms` says otherwise: above 0 sets, else clears. An expired
    /// key that is written starts without one.
    Merge {
        /// Keys and values, the last of repeats wins.
        entries: Vec<(String, Value)>,
        /// By key; keys that the payload lacks are ignored.
        key_ttl_ms: Vec<(String, i64)>,
    },
    /// Replaces everything, the content included; old deadlines are gone.
    Overwrite {
        /// As above.
        entries: Vec<(String, Value)>,
        /// As above.
        key_ttl_ms: Vec<(String, i64)>,
    },
    /// Removes keys with their deadlines; absent ones are fine.
    DeleteKeys(Vec<String>),
    /// Removes everything, the content included.
    Clear,
}

impl PayloadChange {
    /// Refuses values that were decoded for a collection with another format, which had the name a moment ago.
    ///
    /// # Errors
    /// [`OpError::BadRequest`].
    pub(crate) fn check_format(&self, format: PayloadFormat) -> Result<(), OpError> {
        let has_json = match self {
            PayloadChange::Merge { entries, .. } | PayloadChange::Overwrite { entries, .. } => {
                entries.iter().any(|(_, value)| matches!(value, Value::Json(_)))
            }
            PayloadChange::DeleteKeys(_) | PayloadChange::Clear => false,
        };
        if has_json && format == PayloadFormat::Tagged { Err(other_format()) } else { Ok(()) }
    }

    /// Refuses a change of the string that names a point. To send the same string again changes nothing.
    fn check_id(&self, id: &str) -> Result<(), OpError> {
        let is_changed = self.names_id(|value| *value != Value::String(id.to_owned()));
        if is_changed { Err(id_changed()) } else { Ok(()) }
    }

    /// Refuses a change of many points that contains the key `$id`. No two points have the same id, so the change would be refused at some point
    /// after others had been changed.
    ///
    /// # Errors
    /// [`OpError::BadRequest`].
    pub(crate) fn check_without_id(&self) -> Result<(), OpError> {
        if !self.names_id(|_| true) {
            return Ok(());
        }
        Err(OpError::BadRequest(format!(
            "the payload key {ID_KEY:?} stands for the id of one point and cannot be part of a change of many points; leave it out"
        )))
    }

    /// Whether the change deletes the key `$id`, or sets it to a value for which `matches` is true.
    fn names_id(&self, matches: impl Fn(&Value) -> bool) -> bool {
        match self {
            PayloadChange::Merge { entries, .. } | PayloadChange::Overwrite { entries, .. } => {
                entries.iter().any(|(key, value)| key == ID_KEY && matches(value))
            }
            PayloadChange::DeleteKeys(keys) => keys.iter().any(|key| key == ID_KEY),
            PayloadChange::Clear => false,
        }
    }

    /// The row that the change makes of `old`, in a collection whose payloads have that format.
    ///
    /// # Errors
    /// The change is refused for the reasons of [`finish_row`], and with [`OpError::BadRequest`] if it changes the id of the point.
    pub(crate) fn row(&self, old: &[u8], now_ms: u64, format: PayloadFormat) -> Result<Vec<u8>, OpError> {
        // From the old row in every case: what a row holds beside the payload stays.
        let old = PayloadRow::trusted(old);
        let has_id = match old.id() {
            Some(id) => self.check_id(id).map(|()| true)?,
            None => false,
        };
        let is_of_payload = |key: &str| !(has_id && key == ID_KEY);
        let mut row = RowBuilder::from(old);
        // A point without payload has no row that would say it.
        row.set_format(format);
        row.drop_expired(now_ms);
        match self {
            PayloadChange::Merge { entries, key_ttl_ms } => {
                for (key, value) in entries.iter().filter(|(key, _)| is_of_payload(key)) {
                    row.set_value(key, value.clone());
                }
                set_deadlines(&mut row, key_ttl_ms, now_ms);
            }
            PayloadChange::Overwrite { entries, key_ttl_ms } => {
                row.remove_all();
                for (key, value) in entries.iter().filter(|(key, _)| is_of_payload(key)) {
                    row.set_value(key, value.clone());
                }
                set_deadlines(&mut row, key_ttl_ms, now_ms);
            }
            PayloadChange::DeleteKeys(keys) => {
                for key in keys {
                    row.remove(key);
                }
            }
            PayloadChange::Clear => row.remove_all(),
        }
        finish_row(row)
    }
}

/// Refuses a row that does not fit the collection: its payload format, or the kind of its id, differs. That happens if the collection was replaced
/// while the request ran.
///
/// # Errors
/// [`OpError::BadRequest`].
pub(crate) fn check_row(row: &[u8], handle: &CollectionHandle) -> Result<(), OpError> {
    let row = PayloadRow::trusted(row);
    let sent = if row.id().is_some() { IdKind::String } else { IdKind::Number };
    check_id_kind(sent, handle)?;
    // Where ids are strings, the key of the id is taken out of the payload when it is decoded.
    let has_key = handle.ids == IdKind::String && row.get(ID_KEY, 0).is_some();
    let fits = row.as_bytes().is_empty() || (row.format() == handle.payload_format && !has_key);
    if fits { Ok(()) } else { Err(other_format()) }
}

/// Refuses ids of another kind than those of the collection.
///
/// # Errors
/// [`OpError::BadRequest`].
pub(crate) fn check_id_kind(sent: IdKind, handle: &CollectionHandle) -> Result<(), OpError> {
    let collection = quoted(handle.name.split_once('/').map_or(&*handle.name, |(_, name)| name));
    let text = match (sent, handle.ids) {
        (IdKind::Number, IdKind::String) => format!(
            "the ids of collection {collection} are strings: found an integer, expected a string in quotes. If the message has only integers as ids, \
             send the string of each point under the payload key {ID_KEY:?}"
        ),
        (IdKind::String, IdKind::Number) => format!(
            "the ids of collection {collection} are integers: found a string, expected an integer between 0 and 18446744073709551615, without \
             quotes; a collection with \"ids\": \"string\" has strings as ids"
        ),
        _ => return Ok(()),
    };
    Err(OpError::BadRequest(text))
}

/// Refuses a write if a point with another string as its id already has the same number (see [`nigh_engine::point_id`]). Costs nothing where ids are
/// numbers.
///
/// # Errors
/// [`OpError::Conflict`].
pub(crate) fn check_same_id(writer: &DenseWriter, id: u64, row: &[u8], now_ms: u64) -> Result<(), OpError> {
    let Some(sent) = PayloadRow::trusted(row).id() else { return Ok(()) };
    let stored =
        writer.points().check_rewrite(id, None, now_ms)?.map(|(row, _)| PayloadRow::trusted(row).id());
    match stored {
        Some(Some(stored)) if stored != sent => Err(OpError::Conflict(format!(
            "the id {} cannot be stored: both it and the id {} of another point have the number {id}; use another id",
            quoted(sent),
            quoted(stored)
        ))),
        _ => Ok(()),
    }
}

/// The refusal of a change of what names a point.
pub(crate) fn id_changed() -> OpError {
    OpError::BadRequest(format!(
        "the payload key {ID_KEY:?} stands for the id of a point, which does not change; leave it out"
    ))
}

fn other_format() -> OpError {
    OpError::BadRequest(
        "the collection was replaced by one with another payload_format, or another kind of ids, while this request ran; send the request again"
            .to_owned(),
    )
}

/// Encodes a row.
///
/// # Errors
/// [`OpError::PayloadTooLarge`], [`OpError::PayloadKeys`] and [`OpError::PayloadJson`].
pub fn finish_row(mut row: RowBuilder) -> Result<Vec<u8>, OpError> {
    row.derive(JsonLimits { paths: PAYLOAD_KEYS_MAX, bytes: PAYLOAD_JSON_MAX_BYTES })?;
    if row.len() > PAYLOAD_KEYS_MAX {
        return Err(OpError::PayloadKeys(row.len()));
    }
    if row.encoded_bound() > PAYLOAD_ROW_MAX_BYTES {
        return Err(OpError::PayloadTooLarge);
    }
    Ok(row.finish())
}

fn set_deadlines(row: &mut RowBuilder, key_ttl_ms: &[(String, i64)], now_ms: u64) {
    for (key, ttl_ms) in key_ttl_ms {
        let deadline = if *ttl_ms > 0 { now_ms.saturating_add(*ttl_ms as u64) } else { 0 };
        // False: no such key, to be ignored.
        let _ = row.set_deadline(key, deadline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(of: &[(&str, i64)]) -> Vec<(String, Value)> {
        of.iter().map(|(key, value)| ((*key).to_owned(), Value::Int(*value))).collect()
    }

    fn ttls(of: &[(&str, i64)]) -> Vec<(String, i64)> {
        of.iter().map(|(key, ttl_ms)| ((*key).to_owned(), *ttl_ms)).collect()
    }

    /// `a` without a deadline, `b` until 500, `old` expired at 100.
    fn base() -> Vec<u8> {
        let mut row = RowBuilder::new();
        row.set("a", Value::Int(1), 0);
        row.set("b", Value::Int(2), 500);
        row.set("old", Value::Int(3), 100);
        row.finish()
    }

    fn check(change: &PayloadChange, expected: &[(&str, i64, u64)]) {
        let row = change.row(&base(), 100, PayloadFormat::Tagged).unwrap();
        let found: Vec<(&str, Value, u64)> = PayloadRow::verify(&row)
            .unwrap()
            .stored_entries()
            .map(|entry| (entry.key, entry.value.to_owned(), entry.deadline_ms))
            .collect();
        let expected: Vec<(&str, Value, u64)> =
            expected.iter().map(|(key, value, deadline)| (*key, Value::Int(*value), *deadline)).collect();
        assert_eq!(found, expected, "{change:?}");
    }

    #[test]
    fn a_merge_keeps_what_it_does_not_name() {
        let merge = |set, ttl| PayloadChange::Merge { entries: entries(set), key_ttl_ms: ttls(ttl) };
        check(&merge(&[], &[]), &[("a", 1, 0), ("b", 2, 500)]);
        check(&merge(&[("b", 9), ("c", 7)], &[]), &[("a", 1, 0), ("b", 9, 500), ("c", 7, 0)]);
        check(&merge(&[], &[("a", 5), ("b", 0), ("none", 5)]), &[("a", 1, 105), ("b", 2, 0)]);
        check(&merge(&[("old", 4)], &[]), &[("a", 1, 0), ("b", 2, 500), ("old", 4, 0)]);
        check(&merge(&[("old", 4)], &[("old", 1), ("b", -1)]), &[("a", 1, 0), ("b", 2, 0), ("old", 4, 101)]);
    }

    #[test]
    fn other_changes_drop_deadlines_with_their_keys() {
        let overwrite = |set, ttl| PayloadChange::Overwrite { entries: entries(set), key_ttl_ms: ttls(ttl) };
        check(&overwrite(&[("b", 9)], &[]), &[("b", 9, 0)]);
        check(&overwrite(&[("b", 9), ("b", 8)], &[("b", 50), ("a", 50)]), &[("b", 8, 150)]);
        check(&overwrite(&[], &[]), &[]);
        check(&PayloadChange::DeleteKeys(vec!["b".into(), "none".into()]), &[("a", 1, 0)]);
        check(&PayloadChange::Clear, &[]);
    }

    #[test]
    fn a_payload_does_not_grow_beyond_its_bound() {
        let large = || ("x".to_owned(), Value::String("x".repeat(20 << 20)));
        let merge = PayloadChange::Merge { entries: vec![large()], key_ttl_ms: Vec::new() };
        let once = merge.row(&[], 0, PayloadFormat::Tagged).unwrap();
        let other =
            PayloadChange::Merge { entries: vec![("y".to_owned(), large().1)], key_ttl_ms: Vec::new() };
        assert!(matches!(other.row(&once, 0, PayloadFormat::Tagged), Err(OpError::PayloadTooLarge)));
    }
}
