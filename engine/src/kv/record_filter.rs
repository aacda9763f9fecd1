//! Filters over the fields of stored records.

use super::operate::{FieldPath, PathError, StoredRecord};
use crate::filter::{Allowance, Predicate};
use crate::pace::{Pace, TooLong};
use crate::quoted::quoted;
use ahash::HashMap;
use std::sync::Arc;

/// What finding a field of a record costs, in nanoseconds.
const FIELD_NS: u64 = 150;

/// What finding out where the fields of a record lie costs, in nanoseconds: some bytes of it at a time.
fn opened_ns(stored: &[u8]) -> u64 {
    100 + stored.len() as u64 / 4
}

/// A compiled filter whose fields are paths into records. Cheap to clone.
///
/// It matches records alone: what is not the bytes of a record has no fields that could be absent.
#[derive(Clone, Debug)]
pub struct RecordFilter {
    predicate: Predicate,
    paths: Arc<HashMap<Box<str>, FieldPath>>,
}

/// Why a filter cannot be asked of records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFilterError {
    /// A field leads nowhere in any record.
    #[error("invalid filter: field {} is {why}", quoted(.field))]
    Field {
        /// As sent.
        field: String,
        /// What is wrong with it.
        why: PathError,
    },
    /// It asks for the ids of points.
    #[error("invalid filter: op \"has_id\" is about points of collections; keys have no id")]
    Ids,
}

impl RecordFilter {
    /// Parses the fields of a filter.
    ///
    /// # Errors
    /// The first one that is no path, or a condition on ids.
    pub fn new(predicate: Predicate) -> Result<RecordFilter, RecordFilterError> {
        if predicate.asks_for_ids() {
            return Err(RecordFilterError::Ids);
        }
        let parsed = predicate.fields().into_iter().map(|field| match FieldPath::parse(field) {
            Ok(path) => Ok((field.into(), path)),
            Err(why) => Err(RecordFilterError::Field { field: field.to_owned(), why }),
        });
        let paths: HashMap<_, _> = parsed.collect::<Result<_, _>>()?;
        Ok(RecordFilter { predicate, paths: Arc::new(paths) })
    }

    /// The filter.
    pub fn predicate(&self) -> &Predicate {
        &self.predicate
    }

    /// What asking it about a record costs, in steps of 100 ns, unless the record is large.
    pub fn steps(&self) -> usize {
        self.predicate.steps() + self.paths.len()
    }

    /// Whether it matches nothing, whatever a record holds.
    pub fn is_never(&self) -> bool {
        self.predicate.is_trivially_false()
    }

    /// Whether a stored value is a record that matches, however long that takes. Some 100 ns and 10 ns per field of the record.
    pub fn matches(&self, stored: &[u8]) -> bool {
        self.ask(stored, &Allowance::unbounded()).expect("an unbounded allowance is never used up")
    }

    /// As [`Self::matches`], `None` when the allowance is used up before the answer is known: then ask again, in pieces.
    pub fn ask(&self, stored: &[u8], allowance: &Allowance) -> Option<bool> {
        let record = StoredRecord::of(stored);
        let Some(fields) = record.as_ref().and_then(StoredRecord::fields) else { return Some(false) };
        allowance.spend(opened_ns(stored));
        self.predicate.ask_values(
            |field| {
                allowance.spend(FIELD_NS);
                self.paths.get(field).and_then(|path| fields.get(path))
            },
            allowance,
        )
    }

    /// As [`Self::matches`], in pieces between which the pace is called. The value has to stay as it is meanwhile.
    ///
    /// # Errors
    /// [`TooLong`].
    pub async fn ask_in_pieces(&self, stored: &[u8], pace: &mut impl Pace) -> Result<bool, TooLong> {
        let record = StoredRecord::of(stored);
        let Some(fields) = record.as_ref().and_then(StoredRecord::fields) else { return Ok(false) };
        let value_of = |field: &str| self.paths.get(field).and_then(|path| fields.get(path));
        self.predicate.ask_values_in_pieces(&value_of, FIELD_NS, pace).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Node;
    use crate::payload::Value;

    fn filter(op: &str, field: &str, value: Option<Value>) -> Result<RecordFilter, RecordFilterError> {
        let node = Node { op: Some(op.into()), field: Some(field.into()), value, ..Node::default() };
        RecordFilter::new(Predicate::compile(&node).unwrap())
    }

    #[test]
    fn records_match_and_plain_values_do_not() {
        // A dynamic record with an unsigned byte `n` of 7.
        let record = [2, 1, 1, b'n', 0, 7];
        let seven = Some(Value::Int(7));
        assert!(filter("eq", "n", seven.clone()).unwrap().matches(&record));
        assert!(!filter("eq", "m", seven.clone()).unwrap().matches(&record));
        assert!(filter("is_empty", "m", None).unwrap().matches(&record));
        for plain in [&b"plain"[..], b"", &record[..5]] {
            assert!(!filter("is_empty", "m", None).unwrap().matches(plain));
        }
        let error = filter("eq", "t/x/c", seven).unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid filter: field \"t/x/c\" is not a path: a row is up to 20 digits or quoted"
        );
        let ids = Node { op: Some("has_id".into()), has_id: Some(vec![1]), ..Node::default() };
        let not = Node { op: Some("not".into()), not: Some(Box::new(ids)), ..Node::default() };
        let error = RecordFilter::new(Predicate::compile(&not).unwrap()).unwrap_err();
        assert_eq!(error, RecordFilterError::Ids);
    }
}
