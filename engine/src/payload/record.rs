//! Records that lie in a payload: a call of `operate` on the value under one of its keys.

use super::{PayloadRow, RowBuilder, Value, ValueRef};
use crate::kv::operate::{Change, OperateError, Outcome, Program};

/// What a call on a record of a payload comes to.
#[derive(Clone, Debug)]
pub enum Operated {
    /// There is no record under the key, and the call makes none.
    NotFound,
    /// A CHECK did not hold: the payload stays as it is.
    CheckFailed {
        /// What the caller is told, as [`Outcome::CheckFailed`] has it.
        result: Vec<u8>,
    },
    /// All operations are through.
    Done {
        /// The payload afterwards, without the keys that have expired.
        row: RowBuilder,
        /// What the caller is told, likewise.
        result: Vec<u8>,
    },
}

/// Carries `program` out on the record under `key` of `row` at `now_ms`. A function of its arguments.
///
/// An expired key is absent. A record that stays keeps the deadline of its key, a new one has none; one that goes takes its key and
/// deadline along.
///
/// # Errors
/// As [`Program::apply`]; [`OperateError::StoredRecordMalformed`] also where the key holds a value that is no record.
pub fn operate(
    row: PayloadRow<'_>,
    key: &str,
    program: &Program<'_>,
    now_ms: u64,
) -> Result<Operated, OperateError> {
    let stored = match row.get_sent(key, now_ms) {
        None => None,
        Some(ValueRef::Record(bytes)) => Some(bytes),
        Some(_) => return Err(OperateError::StoredRecordMalformed),
    };
    Ok(match program.apply(stored, now_ms)? {
        Outcome::NotFound => Operated::NotFound,
        Outcome::CheckFailed { result } => Operated::CheckFailed { result },
        Outcome::Done { change, result } => {
            let mut row = RowBuilder::from(row);
            row.drop_expired(now_ms);
            match change {
                Change::Keep => {}
                Change::Replace(bytes) => row.set_value(key, Value::Record(bytes)),
                Change::Delete => drop(row.remove(key)),
            }
            Operated::Done { row, result }
        }
    })
}
