//! An operation on one key, what it comes to, and who is told.

use crate::error::OpError;
use nigh_engine::kv::{Op, Read, Reply};

/// An operation on one key, over bytes that somebody else holds. A key has at most [`nigh_engine::kv::KEY_BYTES_MAX`] bytes, a value at
/// most [`nigh_engine::kv::VALUE_BYTES_MAX`] or it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOp<'a> {
    /// Asks for the value: [`KeyResult::Value`] or [`KeyResult::Missing`].
    Get {
        /// Which.
        key: &'a [u8],
    },
    /// Asks whether the key is there: [`KeyResult::Flag`].
    Exists {
        /// Which.
        key: &'a [u8],
    },
    /// Asks how long the key lives, as [`nigh_engine::kv::View::ttl`] says it: [`KeyResult::Number`].
    Ttl {
        /// Which.
        key: &'a [u8],
    },
    /// Changes one key, so this is not [`Op::Flush`], for which there is [`crate::kv::Keys::flush_keys`].
    Change(Op<'a>),
    /// Carries out a program on a record: [`KeyResult::Value`] or, where there is no record and none is made, [`KeyResult::Missing`].
    Operate {
        /// Which.
        key: &'a [u8],
        /// All of the call, its key included, for [`nigh_engine::kv::operate::Call::decode`]. It stays encoded on its way to the owner,
        /// as a decoded program is a list of lists.
        call: &'a [u8],
    },
}

impl<'a> KeyOp<'a> {
    /// The key; empty for [`Op::Flush`], which has none.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        match *self {
            KeyOp::Get { key } | KeyOp::Exists { key } | KeyOp::Ttl { key } | KeyOp::Operate { key, .. } => {
                key
            }
            KeyOp::Change(op) => match op {
                Op::Put { key, .. }
                | Op::Del { key }
                | Op::Expire { key, .. }
                | Op::Incr { key, .. }
                | Op::IncrEx { key, .. }
                | Op::SetNx { key, .. }
                | Op::GetSet { key, .. }
                | Op::GetDel { key }
                | Op::Persist { key }
                | Op::Cas { key, .. }
                | Op::Cad { key, .. }
                | Op::Caex { key, .. } => key,
                Op::Flush => &[],
            },
        }
    }

    /// Whether it only reads.
    #[inline]
    pub fn is_read(&self) -> bool {
        matches!(self, KeyOp::Get { .. } | KeyOp::Exists { .. } | KeyOp::Ttl { .. })
    }

    /// Whether its result has the value, or parts of it.
    #[inline]
    pub fn returns_value(&self) -> bool {
        matches!(
            self,
            KeyOp::Get { .. } | KeyOp::Operate { .. } | KeyOp::Change(Op::GetSet { .. } | Op::GetDel { .. })
        )
    }
}

/// What an operation has come to.
#[derive(Clone, Copy, Debug)]
pub enum KeyResult<'a> {
    /// It is done, and there is nothing to say.
    Done,
    /// There is no such key.
    Missing,
    /// Yes or no, as the operation says.
    Flag(bool),
    /// A number.
    Number(i64),
    /// The value that was asked for, or what a program returns.
    Value(&'a [u8]),
    /// The value before the change; `None` when there was no such key.
    Before(Option<&'a [u8]>),
    /// Nothing has changed, for this reason.
    Refused(&'a OpError),
    /// The operation failed together with others of its batch, for one reason that all of them share.
    Failed(&'a OpError),
}

impl<'a> From<&'a Reply> for KeyResult<'a> {
    #[inline]
    fn from(reply: &'a Reply) -> KeyResult<'a> {
        match reply {
            Reply::Done => KeyResult::Done,
            Reply::Missing => KeyResult::Missing,
            Reply::Flag(flag) => KeyResult::Flag(*flag),
            Reply::Number(number) => KeyResult::Number(*number),
            Reply::Value(value) => KeyResult::Before(value.as_deref()),
        }
    }
}

/// Takes results, in the order of their operations. A codec encodes them as they come.
pub trait Answers {
    /// Takes the next result.
    fn answer(&mut self, result: KeyResult<'_>);

    /// Takes the next result, a value, from where it lies to where it is sent from: `append` appends it to a buffer of this. After
    /// [`Read::Missing`] the result is [`KeyResult::Missing`], after [`Read::Contended`] there is none yet. Returns what `append` did.
    fn value(&mut self, append: impl FnOnce(&mut Vec<u8>) -> Read) -> Read;

    /// Whether no further result is wanted. Looked at between the keys of a list.
    fn is_full(&mut self) -> bool {
        false
    }
}
