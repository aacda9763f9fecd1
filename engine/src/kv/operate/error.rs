//! Why a call is refused.

/// Why a call of `operate` is refused. Nothing has changed then: neither the value nor its expiry.
///
/// [`StoredRecordMalformed`](OperateError::StoredRecordMalformed) is about what lies under the key, everything else about
/// the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum OperateError {
    /// The operation does not work on values of this type, or the types do not fit each other.
    #[error("operate type not applicable")]
    TypeNotApplicable,
    /// A field, row or column that the record cannot have, or an operation on a path of the wrong kind.
    #[error("operate path does not fit the record")]
    PathDoesNotFit,
    /// No operation has this code, or one that must come first does not.
    #[error("operate unknown opcode")]
    UnknownOpcode,
    /// No comparison has this code.
    #[error("operate unknown comparator")]
    UnknownComparator,
    /// The schema breaks its grammar, is missing, or cannot follow the one in force.
    #[error("operate schema invalid")]
    SchemaInvalid,
    /// The record has another schema version than the call expects.
    #[error("operate schema version mismatch")]
    SchemaVersionMismatch,
    /// A dynamic record where the call needs a schema record, or the other way round.
    #[error("operate record mode mismatch")]
    RecordModeMismatch,
    /// A limit on calls or records (see the constants of this module).
    #[error("operate cap exceeded")]
    CapExceeded,
    /// What lies under the key is not a record.
    #[error("operate stored record malformed")]
    StoredRecordMalformed,
    /// An argument outside its range, or bytes behind the last one.
    #[error("operate call arguments invalid")]
    ArgumentsInvalid,
    /// An IF skips past the end of the list, or backwards.
    #[error("operate IF skip count out of range")]
    IfSkipOutOfRange,
    /// The arguments end before their layout does, or declare more parts than they can hold.
    #[error("args too short")]
    ArgsTooShort,
    /// The time to live is above [`TTL_MS_MAX`](crate::kv::TTL_MS_MAX).
    #[error("ttlMs out of range")]
    TtlOutOfRange,
}

/// What a reader of bytes ran into; whose bytes they were decides which [`OperateError`] that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The bytes end too early.
    Short,
    /// The bytes break a rule.
    Invalid,
    /// A number above its cap.
    Cap,
}

impl Fault {
    /// In the arguments of a call.
    pub(super) fn in_call(self) -> OperateError {
        match self {
            Fault::Short => OperateError::ArgsTooShort,
            Fault::Invalid => OperateError::ArgumentsInvalid,
            Fault::Cap => OperateError::CapExceeded,
        }
    }

    /// In a schema that a call brings along.
    pub(super) fn in_schema(self) -> OperateError {
        match self {
            Fault::Short | Fault::Invalid => OperateError::SchemaInvalid,
            Fault::Cap => OperateError::CapExceeded,
        }
    }

    /// In what is stored under the key.
    pub(super) fn in_stored(self) -> OperateError {
        OperateError::StoredRecordMalformed
    }
}
