//! Operations on keys, what they answer, and what they leave for a log.

use super::entry::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use std::borrow::Cow;

/// Longest time to live, in milliseconds: one that every client can hold in nanoseconds.
pub const TTL_MS_MAX: u64 = 9_223_372_036_854;

/// An operation that may change a key. `ttl_ms` counts from `now_ms` of the call; 0 = no expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Sets value and expiry.
    Put {
        /// Up to 65,535 bytes, empty included.
        key: &'a [u8],
        /// Up to 16 MiB, empty included.
        value: &'a [u8],
        /// See above.
        ttl_ms: u64,
    },
    /// Removes the key. Answers whether it was there.
    Del {
        /// The key.
        key: &'a [u8],
    },
    /// Sets the expiry alone. Answers [`Reply::Missing`] when the key is not there.
    Expire {
        /// The key.
        key: &'a [u8],
        /// 0 removes the expiry.
        ttl_ms: u64,
    },
    /// Adds to a number (8 bytes, big-endian, wrapping; absent = 0) and removes the expiry. Answers the sum.
    Incr {
        /// The key.
        key: &'a [u8],
        /// To be added.
        delta: i64,
    },
    /// As [`Op::Incr`], but an existing key keeps its deadline, and a new one gets `ttl_ms`.
    IncrEx {
        /// The key.
        key: &'a [u8],
        /// To be added.
        delta: i64,
        /// Of a key that is created.
        ttl_ms: u64,
    },
    /// Sets value and expiry if the key is absent. Answers whether it was.
    SetNx {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// See above.
        ttl_ms: u64,
    },
    /// As [`Op::Put`], and answers the value before.
    GetSet {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// See above.
        ttl_ms: u64,
    },
    /// Removes the key and answers its value.
    GetDel {
        /// The key.
        key: &'a [u8],
    },
    /// Removes the expiry. Answers whether there was one.
    Persist {
        /// The key.
        key: &'a [u8],
    },
    /// As [`Op::Put`] if the value is `expected`, or if the key is absent where that is `None`. Answers whether it was.
    Cas {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// What must be there.
        expected: Option<&'a [u8]>,
        /// See above.
        ttl_ms: u64,
    },
    /// Removes the key if its value is `expected`. Answers whether it was.
    Cad {
        /// The key.
        key: &'a [u8],
        /// What must be there.
        expected: &'a [u8],
    },
    /// Sets the expiry alone if the value is `expected`. Answers whether it was.
    Caex {
        /// The key.
        key: &'a [u8],
        /// What must be there.
        expected: &'a [u8],
        /// 0 removes the expiry.
        ttl_ms: u64,
    },
    /// Removes every key.
    Flush,
}

/// What an operation answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done; nothing to say.
    Done,
    /// The key is not there.
    Missing,
    /// Yes or no, as the operation says.
    Flag(bool),
    /// The new number.
    Number(i64),
    /// The value before; `None` when there was no such key.
    Value(Option<Vec<u8>>),
}

/// What a change comes to: results and not operations, with absolute times. Applying the effects of a log one after the other
/// gives the store's content, also when a first part of them is applied twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// The key has this value and deadline.
    Set {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: Cow<'a, [u8]>,
        /// Ms since 1970; 0 = never.
        deadline_ms: u64,
    },
    /// The key, if it is there, has this deadline.
    Deadline {
        /// The key.
        key: &'a [u8],
        /// Ms since 1970; 0 = never.
        deadline_ms: u64,
    },
    /// The key is not there.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// No key is there.
    Flush,
}

/// An operation that has been decided and not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "nothing has changed until the effect is applied"]
pub struct Prepared<'a, R = Reply> {
    /// To be appended to the log, then applied. `None`: nothing changes.
    pub effect: Option<Effect<'a>>,
    /// For the client, when that is done.
    pub reply: R,
}

impl<'a, R> Prepared<'a, R> {
    pub(super) fn unchanged(reply: R) -> Self {
        Prepared { effect: None, reply }
    }

    pub(super) fn with(effect: Effect<'a>, reply: R) -> Self {
        Prepared { effect: Some(effect), reply }
    }
}

/// What an atomic update makes of a key (see `Writer::prepare_update`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing changes.
    Keep,
    /// Value and deadline are these.
    Set {
        /// Up to 16 MiB.
        value: Vec<u8>,
        /// Ms since 1970; 0 = never.
        deadline_ms: u64,
    },
    /// The deadline alone changes, if the key is there.
    Deadline {
        /// Ms since 1970; 0 = never.
        deadline_ms: u64,
    },
    /// The key is removed.
    Delete,
}

/// Why an operation was refused. Nothing has changed then, but that room may have been made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A time to live above [`TTL_MS_MAX`].
    #[error("ttlMs out of range")]
    TtlOutOfRange,
    /// `incr` on something else than a number.
    #[error("incr value is not 8 bytes")]
    NotANumber,
    /// More than 65,535 bytes.
    #[error("key too large")]
    KeyTooLarge,
    /// More than 16 MiB.
    #[error("value too large")]
    ValueTooLarge,
    /// The record does not fit into the whole budget; or (rare, and worth another try) readers hold up the reuse of pages.
    #[error("store full")]
    Full,
    /// The kernel gives no address space for an emptied store.
    #[error(transparent)]
    Memory(#[from] crate::memory::ArenaError),
}

/// When a key that is written now ends.
pub(super) fn deadline_of(now_ms: u64, ttl_ms: u64) -> Result<u64, StoreError> {
    match ttl_ms {
        0 => Ok(0),
        1..=TTL_MS_MAX => Ok(now_ms.saturating_add(ttl_ms)),
        _ => Err(StoreError::TtlOutOfRange),
    }
}

/// Refuses what no store takes.
pub(super) fn check_lengths(key_len: usize, value_len: usize) -> Result<(), StoreError> {
    if key_len > KEY_BYTES_MAX {
        return Err(StoreError::KeyTooLarge);
    }
    if value_len > VALUE_BYTES_MAX {
        return Err(StoreError::ValueTooLarge);
    }
    Ok(())
}
