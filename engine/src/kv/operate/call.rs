//! Calls as they arrive: what is asked of a record, decoded and checked as far as that goes without the record.

use super::error::OperateError;
use super::op::{Op, Path};
use super::wire::{Reader, check_count};
use super::{CALL_OPS_MAX, CALL_RETURNS_MAX};
use crate::kv::TTL_MS_MAX;

/// A decoded call; borrows from its arguments.
///
/// ```text
/// args = s16 key, u64 ttlMs, u8 ttlMode, program
/// ```
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// Which value: 0 to 65,535 bytes.
    pub key: &'a [u8],
    /// Time to live in milliseconds, at most [`TTL_MS_MAX`]; 0 = for ever.
    pub ttl_ms: u64,
    /// When that is set.
    pub ttl_mode: TtlMode,
    /// What to do with the value.
    pub program: Program<'a>,
}

/// When a call sets the expiry of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlMode {
    /// Never: an existing key keeps its own, a new one has none.
    Keep,
    /// With every call that does not fail.
    Always,
    /// When the call creates the key.
    OnCreate,
}

/// What a call does when there is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Create {
    Never,
    Schema,
    Dynamic,
}

/// The part of a call that a record answers: operations, then returns. Carried out by [`Program::apply`].
///
/// ```text
/// program = u8 create, s16 schema, u16 nOps, op*, u16 nRet, ret*
/// op      = u8 opcode, u8 type, u8 aux, path, i64 a, i64 b, s16 bytes
/// ret     = u8 mode, path
/// path    = u8 kind, then by kind: 0 nothing; 1 seg; 2 seg, s8 rowKey; 3 seg, s8 rowKey, seg
/// seg     = 0, LEB128 position; or 1, s8 name
/// ```
/// All numbers but the position are big-endian.
#[derive(Clone, Debug)]
pub struct Program<'a> {
    pub(super) create: Create,
    pub(super) schema: &'a [u8],
    pub(super) ops: Vec<Op<'a>>,
    pub(super) returns: Vec<Return<'a>>,
}

/// What a value is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReturnMode {
    Value,
    Count,
}

/// One thing to report when the operations are through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Return<'a> {
    pub mode: ReturnMode,
    pub path: Path<'a>,
}

/// Shortest encodings of an operation and of a return.
const OP_LEN: usize = 22;
const RETURN_LEN: usize = 2;

impl<'a> Call<'a> {
    /// Decodes the arguments of `operate`.
    ///
    /// What is wrong with a call whatever the record holds is refused here, in operations that would be skipped as well:
    /// codes, paths and operands out of range, IFs that skip past the end. Cost: 30 ns per operation; allocates the two
    /// lists.
    ///
    /// # Errors
    /// What [`OperateError`] says of calls.
    pub fn decode(args: &'a [u8]) -> Result<Call<'a>, OperateError> {
        let mut reader = Reader(args);
        let key = reader.s16().map_err(|fault| fault.in_call())?;
        let ttl_ms = reader.u64_be().map_err(|fault| fault.in_call())?;
        let ttl_mode = match reader.u8().map_err(|fault| fault.in_call())? {
            0 => TtlMode::Keep,
            1 => TtlMode::Always,
            2 => TtlMode::OnCreate,
            _ => return Err(OperateError::ArgumentsInvalid),
        };
        if ttl_ms > TTL_MS_MAX {
            return Err(OperateError::TtlOutOfRange);
        }
        Ok(Call { key, ttl_ms, ttl_mode, program: Program::read(reader)? })
    }

    /// Decodes the arguments of a call on a record inside a point's payload, which is named and expires elsewhere: key
    /// empty, ttl and its mode 0.
    ///
    /// # Errors
    /// As [`Self::decode`]; `ArgumentsInvalid` when there is a key or a ttl.
    pub fn decode_in_payload(args: &'a [u8]) -> Result<Program<'a>, OperateError> {
        let call = Call::decode(args)?;
        if !call.key.is_empty() || call.ttl_ms != 0 || call.ttl_mode != TtlMode::Keep {
            return Err(OperateError::ArgumentsInvalid);
        }
        Ok(call.program)
    }
}

impl<'a> Program<'a> {
    fn read(mut reader: Reader<'a>) -> Result<Program<'a>, OperateError> {
        let create = match reader.u8().map_err(|fault| fault.in_call())? {
            0 => Create::Never,
            1 => Create::Schema,
            2 => Create::Dynamic,
            _ => return Err(OperateError::ArgumentsInvalid),
        };
        let schema = reader.s16().map_err(|fault| fault.in_call())?;
        let count = read_count(&mut reader, OP_LEN, CALL_OPS_MAX)?;
        let mut ops = Vec::with_capacity(count);
        for index in 0..count {
            ops.push(Op::read(&mut reader, index, count - index - 1)?);
        }
        let count = read_count(&mut reader, RETURN_LEN, CALL_RETURNS_MAX)?;
        let mut returns = Vec::with_capacity(count);
        for _ in 0..count {
            returns.push(Return::read(&mut reader)?);
        }
        if !reader.is_empty() {
            return Err(OperateError::ArgumentsInvalid);
        }
        Ok(Program { create, schema, ops, returns })
    }
}

fn read_count(reader: &mut Reader<'_>, part_len: usize, max: usize) -> Result<usize, OperateError> {
    let count = reader.u16_be().and_then(|count| check_count(count.into(), part_len, reader.len(), max));
    count.map_err(|fault| fault.in_call())
}

impl<'a> Return<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Return<'a>, OperateError> {
        let mode = match reader.u8().map_err(|fault| fault.in_call())? {
            0 => ReturnMode::Value,
            1 => ReturnMode::Count,
            _ => return Err(OperateError::ArgumentsInvalid),
        };
        let path = Path::read(reader).map_err(|fault| fault.in_call())?;
        Ok(Return { mode, path })
    }
}
