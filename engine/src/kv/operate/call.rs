//! Calls as they arrive: what is asked of a record, decoded and checked as far as that goes without the record.

use super::arithmetic::Arithmetic;
use super::cell::{AS_STORED, TABLE};
use super::error::{Fault, OperateError};
use super::wire::{Reader, check_count};
use super::{CALL_OPS_MAX, CALL_RETURNS_MAX, ROWS_MAX};
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

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op<'a> {
    pub action: Action,
    /// Type code; one of a cell, or [`AS_STORED`], where the action looks at it.
    pub type_code: u8,
    pub aux: u8,
    pub path: Path<'a>,
    pub a: i64,
    pub b: i64,
    pub bytes: &'a [u8],
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Gives a cell a value.
    Change(Arithmetic),
    Delete,
    Migrate,
    Configure(Policy),
    Trim(Policy),
    If(Comparison),
    Check(Comparison),
}

/// How a target is compared with the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Exists,
    Absent,
}

/// Which row goes when there are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// As `MinKey`.
    None,
    MinKey,
    MaxKey,
    MinColumn,
    MaxColumn,
}

impl Policy {
    pub(super) const ALL: [Policy; 5] =
        [Policy::None, Policy::MinKey, Policy::MaxKey, Policy::MinColumn, Policy::MaxColumn];

    /// The policy with this code.
    pub(super) fn of(code: u8) -> Option<Policy> {
        Policy::ALL.get(usize::from(code)).copied()
    }

    /// Whether it looks at a column.
    pub(super) fn is_by_column(self) -> bool {
        matches!(self, Policy::MinColumn | Policy::MaxColumn)
    }
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

/// Field or column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment<'a> {
    Position(u32),
    Name(&'a [u8]),
}

/// Where in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path<'a> {
    Record,
    Field(Segment<'a>),
    Row(Segment<'a>, &'a [u8]),
    Column(Segment<'a>, &'a [u8], Segment<'a>),
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

impl<'a> Op<'a> {
    /// The operation at `index`, behind which `remaining` follow.
    fn read(reader: &mut Reader<'a>, index: usize, remaining: usize) -> Result<Op<'a>, OperateError> {
        let mut parts = || {
            let (opcode, type_code, aux) = (reader.u8()?, reader.u8()?, reader.u8()?);
            let path = Path::read(reader)?;
            let (a, b, bytes) = (reader.i64_be()?, reader.i64_be()?, reader.s16()?);
            Ok((opcode, Op { action: Action::Delete, type_code, aux, path, a, b, bytes }))
        };
        let (opcode, mut op) = parts().map_err(|fault: Fault| fault.in_call())?;
        op.action = op.action_of(opcode)?;
        op.check(index, remaining)?;
        Ok(op)
    }

    fn action_of(&self, opcode: u8) -> Result<Action, OperateError> {
        let comparison = || Comparison::of(self.aux).ok_or(OperateError::UnknownComparator);
        let policy = || Policy::of(self.aux).ok_or(OperateError::ArgumentsInvalid);
        Ok(match opcode {
            2 => Action::Delete,
            20 => Action::Migrate,
            21 => Action::Configure(policy()?),
            22 => Action::Trim(policy()?),
            30 => Action::If(comparison()?),
            31 => Action::Check(comparison()?),
            code => Action::Change(Arithmetic::of(code).ok_or(OperateError::UnknownOpcode)?),
        })
    }

    fn check(&self, index: usize, remaining: usize) -> Result<(), OperateError> {
        let ensure = |holds: bool, error| if holds { Ok(()) } else { Err(error) };
        match self.action {
            Action::Change(arithmetic) => {
                let on_cell = matches!(self.path, Path::Field(_) | Path::Column(..));
                ensure(on_cell, OperateError::PathDoesNotFit)?;
                let of_cell = self.type_code < TABLE || self.type_code == AS_STORED;
                ensure(of_cell, OperateError::TypeNotApplicable)?;
                let operand_fits = match arithmetic {
                    Arithmetic::ShiftLeft | Arithmetic::ShiftRight => (0..=64).contains(&self.a),
                    Arithmetic::Stamp => self.aux <= 1,
                    _ => true,
                };
                ensure(operand_fits, OperateError::ArgumentsInvalid)
            }
            Action::Migrate => {
                ensure(index == 0, OperateError::UnknownOpcode)?;
                ensure(self.path == Path::Record, OperateError::PathDoesNotFit)?;
                let known = (-1..=u16::MAX.into()).contains(&self.a) && self.aux <= 1;
                ensure(known, OperateError::ArgumentsInvalid)
            }
            Action::Configure(policy) | Action::Trim(policy) => {
                ensure(matches!(self.path, Path::Field(_)), OperateError::PathDoesNotFit)?;
                ensure((0..=ROWS_MAX as i64).contains(&self.a), OperateError::ArgumentsInvalid)?;
                // The column of a TRIM may be given by position, and only the record tells whether it is there.
                let names = matches!(self.action, Action::Configure(_));
                let named = self.bytes.len() <= 255 && (!policy.is_by_column() || !self.bytes.is_empty());
                ensure(named || !names, OperateError::ArgumentsInvalid)
            }
            Action::If(_) => {
                let skip = usize::try_from(self.b).ok().filter(|&skip| skip <= remaining);
                ensure(skip.is_some(), OperateError::IfSkipOutOfRange)
            }
            Action::Check(_) | Action::Delete => Ok(()),
        }
    }
}

impl Comparison {
    fn of(code: u8) -> Option<Comparison> {
        use Comparison::*;
        [Eq, Ne, Lt, Le, Gt, Ge, Exists, Absent].get(usize::from(code)).copied()
    }
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

impl<'a> Path<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Path<'a>, Fault> {
        let kind = reader.u8()?;
        if kind == 0 {
            return Ok(Path::Record);
        }
        if kind > 3 {
            return Err(Fault::Invalid);
        }
        let field = Segment::read(reader)?;
        if kind == 1 {
            return Ok(Path::Field(field));
        }
        let row = reader.s8()?;
        if row.is_empty() {
            return Err(Fault::Invalid);
        }
        Ok(if kind == 2 { Path::Row(field, row) } else { Path::Column(field, row, Segment::read(reader)?) })
    }
}

impl<'a> Segment<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Segment<'a>, Fault> {
        match reader.u8()? {
            0 => u32::try_from(reader.uv()?).map(Segment::Position).map_err(|_| Fault::Invalid),
            1 => reader.s8().map(Segment::Name),
            _ => Err(Fault::Invalid),
        }
    }
}
