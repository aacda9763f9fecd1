//! One operation of a call: what it does, and where in the record. Checked as far as that goes without the record.

use super::ROWS_MAX;
use super::cell::{AS_STORED, TABLE};
use super::error::{Fault, OperateError};
use super::wire::Reader;

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

/// What an operation makes of a cell's value.
///
/// Integers are computed exactly and then saturate to the type of the cell. So a negative operand takes an unsigned cell
/// no lower than 0, and a shift to the left is a product that saturates like any other; one to the right divides and
/// rounds down. AND, OR and XOR work on the bits of fixed-width integers: the operand's low bits, as many as the cell has,
/// so that -1 is a mask of ones for every width. Floats of 32 bits are computed in 64 and rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Set,
    Add,
    Mul,
    /// The lesser of value and operand; of floats the one that is a number, if only one is.
    Min,
    Max,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    /// The time, in milliseconds or, with aux 1, seconds. Does not need the value.
    Stamp,
}

impl Arithmetic {
    /// The one with this opcode.
    pub(super) fn of(opcode: u8) -> Option<Arithmetic> {
        use Arithmetic::*;
        Some(match opcode {
            1 => Set,
            3 => Add,
            4 => Mul,
            5 => Min,
            6 => Max,
            7 => And,
            8 => Or,
            9 => Xor,
            10 => ShiftLeft,
            11 => ShiftRight,
            12 => Stamp,
            _ => return None,
        })
    }
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

impl<'a> Op<'a> {
    /// The operation at `index`, behind which `remaining` follow.
    pub(super) fn read(
        reader: &mut Reader<'a>,
        index: usize,
        remaining: usize,
    ) -> Result<Op<'a>, OperateError> {
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

impl<'a> Path<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Path<'a>, Fault> {
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
