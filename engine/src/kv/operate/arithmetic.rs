//! What operations make of a cell, and how cells are compared.

use super::cell::{AS_STORED, Cell, Domain, Type, Value};
use super::error::OperateError;
use super::op::{Arithmetic, Comparison, Op};
use std::cmp::Ordering;

impl Arithmetic {
    /// The cell that `op`, which is this, leaves. `stored` is the one that is there, `declared` the type that a schema
    /// gives it; what is neither is made in the type of the operation and reads as zero.
    ///
    /// # Errors
    /// `TypeNotApplicable`: the operation is not one of the type's domain, names another type than the schema, or one of
    /// another domain than the cell has; there is no cell and no type; the operand's length is not that of a fixed type.
    pub(super) fn of_cell<'a>(
        self,
        op: &Op<'a>,
        stored: Option<Cell<'a>>,
        declared: Option<Type>,
        now_ms: u64,
    ) -> Result<Cell<'a>, OperateError> {
        let kind = self.result_type(op, stored, declared)?;
        let value = stored.map_or(kind.zero().value, |cell| cell.value);
        self.compute(op, kind, value, now_ms).ok_or(OperateError::TypeNotApplicable)
    }

    fn result_type(
        self,
        op: &Op<'_>,
        stored: Option<Cell<'_>>,
        declared: Option<Type>,
    ) -> Result<Type, OperateError> {
        let asked = Type::of(op.type_code, op.bytes.len());
        let as_stored = op.type_code == AS_STORED;
        let kind = match (declared, stored) {
            (Some(declared), _) => Some(declared).filter(|kind| as_stored || kind.code() == op.type_code),
            (None, Some(stored)) if as_stored => Some(stored.kind),
            (None, Some(stored)) if self != Arithmetic::Set => {
                // A fixed type of no width is still one of bytes; the operand's length is judged below.
                let domain = asked.map_or(Domain::Bytes, Type::domain);
                Some(stored.kind).filter(|kind| kind.domain() == domain)
            }
            (None, _) => asked,
        };
        kind.ok_or(OperateError::TypeNotApplicable)
    }

    /// `None` when the operation is not one of the type.
    fn compute<'a>(self, op: &Op<'a>, kind: Type, value: Value<'a>, now_ms: u64) -> Option<Cell<'a>> {
        use Arithmetic::*;
        let operand = i128::from(op.a);
        match (kind.domain(), value) {
            (Domain::Int, Value::Int(value)) => {
                let result = match self {
                    Set => operand,
                    Add => value + operand,
                    // 64 bits by 63 and a sign: never more than 127 and a sign.
                    Mul => value * operand,
                    Min => value.min(operand),
                    Max => value.max(operand),
                    And | Or | Xor => return self.compute_bits(kind, value, op.a),
                    ShiftLeft => shift_left(value, op.a as u32),
                    ShiftRight => value >> op.a,
                    Stamp => i128::from(if op.aux == 1 { now_ms / 1000 } else { now_ms }),
                };
                Some(Cell::int(kind, result))
            }
            (Domain::Float, Value::Float(value)) => {
                let operand = f64::from_bits(op.a as u64);
                let result = match self {
                    Set => operand,
                    Add => value + operand,
                    Mul => value * operand,
                    Min if value.is_nan() || operand < value => operand,
                    Max if value.is_nan() || operand > value => operand,
                    Min | Max => value,
                    _ => return None,
                };
                Some(Cell::float(kind, result))
            }
            (Domain::Bytes, Value::Bytes(value)) => {
                if let Type::Fixed(len) = kind
                    && op.bytes.len() != usize::from(len)
                {
                    return None;
                }
                let result = match self {
                    Set => op.bytes,
                    Min => value.min(op.bytes),
                    Max => value.max(op.bytes),
                    _ => return None,
                };
                Some(Cell { kind, value: Value::Bytes(result) })
            }
            // SET has replaced a value of another domain.
            _ if self == Set => self.compute(op, kind, kind.zero().value, now_ms),
            _ => None,
        }
    }

    fn compute_bits<'a>(self, kind: Type, value: i128, operand: i64) -> Option<Cell<'a>> {
        let width = kind.width()?;
        let (value, operand) = (value as i64, operand);
        let bits = match self {
            Arithmetic::And => value & operand,
            Arithmetic::Or => value | operand,
            _ => value ^ operand,
        };
        let signed = kind.bounds().0 < 0;
        let above = 64 - 8 * width as u32;
        let bits = bits << above;
        let result = if signed { i128::from(bits >> above) } else { i128::from(bits as u64 >> above) };
        Some(Cell::int(kind, result))
    }
}

/// `value`, of at most 64 bits, times two to the power of `by`, at most 64; far outside every type rather than overflowing.
fn shift_left(value: i128, by: u32) -> i128 {
    // The 64 bits of a value and 63 more are those of an i128 without its sign.
    if by < 64 { value << by } else { value.signum() << 64 }
}

impl Comparison {
    /// What `order` (of the target to the operand) says of the relation; EXISTS and ABSENT are none.
    pub(super) fn holds(self, order: Ordering) -> bool {
        match self {
            Comparison::Eq => order.is_eq(),
            Comparison::Ne => order.is_ne(),
            Comparison::Lt => order.is_lt(),
            Comparison::Le => order.is_le(),
            Comparison::Gt => order.is_gt(),
            Comparison::Ge => order.is_ge(),
            Comparison::Exists | Comparison::Absent => false,
        }
    }
}

/// How `cell` stands to the operand of an IF or CHECK. NaN is equal to everything.
///
/// # Errors
/// `TypeNotApplicable` when the cell is a fixed one of another length than the operand.
pub(super) fn compare_cell(cell: Cell<'_>, op: &Op<'_>) -> Result<Ordering, OperateError> {
    match cell.value {
        Value::Int(value) => Ok(value.cmp(&op.a.into())),
        Value::Float(value) => Ok(value.partial_cmp(&f64::from_bits(op.a as u64)).unwrap_or(Ordering::Equal)),
        Value::Bytes(bytes) => {
            if matches!(cell.kind, Type::Fixed(_)) && bytes.len() != op.bytes.len() {
                return Err(OperateError::TypeNotApplicable);
            }
            Ok(bytes.cmp(op.bytes))
        }
    }
}

/// What an IF or CHECK reads where there is no cell and no schema: zero in its own type, or in u8 if it has none.
pub(super) fn absent_cell(op: &Op<'_>) -> Cell<'static> {
    Type::of(op.type_code, op.bytes.len()).unwrap_or(Type::U8).zero()
}
