//! Changes of a point's payload without its vector.

use crate::error::{OpError, PAYLOAD_JSON_MAX_BYTES, PAYLOAD_KEYS_MAX, PAYLOAD_ROW_MAX_BYTES};
use nigh_engine::payload::{JsonLimits, PayloadFormat, PayloadRow, RowBuilder, Value};

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

    /// The row that the change makes of `old`, in a collection whose payloads have that format.
    ///
    /// # Errors
    /// Those of [`finish_row`].
    pub(crate) fn row(&self, old: &[u8], now_ms: u64, format: PayloadFormat) -> Result<Vec<u8>, OpError> {
        // From the old row in every case: what a row holds beside the payload stays.
        let mut row = RowBuilder::from(PayloadRow::trusted(old));
        // A point without payload has no row that would say it.
        row.set_format(format);
        row.drop_expired(now_ms);
        match self {
            PayloadChange::Merge { entries, key_ttl_ms } => {
                for (key, value) in entries {
                    row.set_value(key, value.clone());
                }
                set_deadlines(&mut row, key_ttl_ms, now_ms);
            }
            PayloadChange::Overwrite { entries, key_ttl_ms } => {
                row.remove_all();
                for (key, value) in entries {
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

/// Refuses a row that was encoded for a collection with another format, which had the name a moment ago.
///
/// # Errors
/// [`OpError::BadRequest`].
pub(crate) fn check_row_format(row: &[u8], format: PayloadFormat) -> Result<(), OpError> {
    let fits = row.is_empty() || PayloadRow::trusted(row).format() == format;
    if fits { Ok(()) } else { Err(other_format()) }
}

fn other_format() -> OpError {
    OpError::BadRequest(
        "the collection was replaced by one with another payload_format while this request ran; send the request again"
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
