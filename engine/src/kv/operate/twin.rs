//! A naive record for tests: everything parsed, in maps, one operation after the other. Shares nothing with the engine's
//! but the errors; encodes what it has, and never decodes.

use super::OperateError;
use super::test_calls::*;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The fields of a test schema by name.
pub(super) type TestFields = Vec<(&'static str, TestField)>;

/// Fields by name, or in a schema record by position as one byte.
#[derive(Clone, Debug)]
pub(super) struct Twin {
    pub schema: Option<(Vec<u8>, TestFields)>,
    pub fields: BTreeMap<Vec<u8>, Part>,
}

#[derive(Clone, Debug)]
pub(super) enum Part {
    Cell(TwinCell),
    Table(TwinTable),
}

#[derive(Clone, Debug)]
pub(super) struct TwinCell {
    code: u8,
    len: u8,
    value: TwinValue,
}

#[derive(Clone, Debug)]
enum TwinValue {
    Int(i128),
    Float(f64),
    Bytes(Vec<u8>),
}

/// Rows by key, numbers big-endian so that they are in order.
#[derive(Clone, Debug, Default)]
pub(super) struct TwinTable {
    cap: usize,
    policy: u8,
    by: Vec<u8>,
    rows: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, TwinCell>>,
}

/// What a path leads to.
#[derive(Clone, Debug)]
pub(super) enum Found {
    Record,
    Table(TwinTable),
    Row(Option<BTreeMap<Vec<u8>, TwinCell>>),
    Cell(Option<TwinCell>),
}

type Refused<T> = Result<T, OperateError>;
const PATH: OperateError = OperateError::PathDoesNotFit;
const TYPE: OperateError = OperateError::TypeNotApplicable;

impl TwinCell {
    fn new(code: u8, len: u8, value: TwinValue) -> TwinCell {
        let value = match value {
            TwinValue::Int(value) => {
                let bits = [8, 16, 32, 64, 8, 16, 32, 64, 0, 0, 64, 64][usize::from(code)];
                let signed = (4..8).contains(&code) || code == 11;
                let least = if signed { -(1i128 << (bits - 1)) } else { 0 };
                let greatest = if signed { (1i128 << (bits - 1)) - 1 } else { (1i128 << bits) - 1 };
                TwinValue::Int(value.max(least).min(greatest))
            }
            TwinValue::Float(value) if code == F32 => TwinValue::Float(f64::from(value as f32)),
            value => value,
        };
        TwinCell { code, len, value }
    }

    fn zero(code: u8, len: u8) -> TwinCell {
        let value = match domain(code) {
            'i' => TwinValue::Int(0),
            'f' => TwinValue::Float(0.0),
            _ => TwinValue::Bytes(vec![0; if code == FIXED { len.into() } else { 0 }]),
        };
        TwinCell { code, len, value }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match (&self.value, self.code) {
            (TwinValue::Int(value), 10) => leb(*value as u64, out),
            (TwinValue::Int(value), 11) => leb(((value << 1) ^ (value >> 127)) as u64, out),
            (TwinValue::Int(value), code) => {
                out.extend(&value.to_le_bytes()[..[1, 2, 4, 8][usize::from(code % 4)]])
            }
            (TwinValue::Float(value), F32) if value.is_nan() => out.extend(0x7fc0_0000u32.to_le_bytes()),
            (TwinValue::Float(value), F32) => out.extend((*value as f32).to_le_bytes()),
            (TwinValue::Float(value), _) if value.is_nan() => {
                out.extend(0x7ff8_0000_0000_0000u64.to_le_bytes())
            }
            (TwinValue::Float(value), _) => out.extend(value.to_le_bytes()),
            (TwinValue::Bytes(bytes), code) => {
                if code == BYTES {
                    leb(bytes.len() as u64, out);
                }
                out.extend(bytes);
            }
        }
    }

    fn put_tagged(&self, out: &mut Vec<u8>) {
        out.push(self.code);
        if self.code == FIXED {
            out.push(self.len);
        }
        self.put(out);
    }

    /// Numbers, then NaN, then bytes.
    fn evicted_before(&self, other: &TwinCell) -> Ordering {
        // Tests have no numbers that a float cannot hold beside ones it can.
        let key = |cell: &TwinCell| match &cell.value {
            TwinValue::Int(value) => (0, *value as f64, *value, vec![]),
            TwinValue::Float(value) if value.is_nan() => (1, 0.0, 0, vec![]),
            TwinValue::Float(value) => (0, *value + 0.0, *value as i128, vec![]),
            TwinValue::Bytes(bytes) => (2, 0.0, 0, bytes.clone()),
        };
        key(self).partial_cmp(&key(other)).unwrap()
    }
}

fn domain(code: u8) -> char {
    match code {
        0..=7 | 10 | 11 => 'i',
        F32 | F64 => 'f',
        _ => 'b',
    }
}

/// The cell that an operation makes of another.
fn changed(op: &TestOp, stored: Option<&TwinCell>, declared: Option<(u8, u8)>) -> Refused<TwinCell> {
    let asked_len = if op.kind == FIXED { u8::try_from(op.bytes.len()).unwrap_or(0) } else { 0 };
    let asked = (op.kind < 14 && (op.kind != FIXED || asked_len > 0)).then_some((op.kind, asked_len));
    let (code, len) = match (declared, stored) {
        (Some((code, len)), _) if op.kind == ANY || op.kind == code => (code, len),
        (Some(_), _) => return Err(TYPE),
        (None, Some(cell)) if op.kind == ANY => (cell.code, cell.len),
        (None, Some(cell)) if op.code != SET => {
            if domain(op.kind) != domain(cell.code) {
                return Err(TYPE);
            }
            (cell.code, cell.len)
        }
        _ => asked.ok_or(TYPE)?,
    };
    if code == FIXED && op.bytes.len() != usize::from(len) {
        return Err(TYPE);
    }
    let value = match stored {
        Some(cell) if domain(cell.code) == domain(code) => cell.value.clone(),
        _ => TwinCell::zero(code, len).value,
    };
    let operand = i128::from(op.a);
    let value = match value {
        TwinValue::Int(value) => TwinValue::Int(match op.code {
            SET => operand,
            ADD => value + operand,
            MUL => value * operand,
            MIN => value.min(operand),
            MAX => value.max(operand),
            AND | OR | XOR if code < 8 => {
                let mut bytes = value.to_le_bytes();
                let width = [1, 2, 4, 8][usize::from(code % 4)];
                for (byte, operand) in bytes.iter_mut().zip(op.a.to_le_bytes()).take(width) {
                    *byte = match op.code {
                        AND => *byte & operand,
                        OR => *byte | operand,
                        _ => *byte ^ operand,
                    };
                }
                let negative = code >= 4 && bytes[width - 1] > 127;
                bytes[width..].fill(if negative { 255 } else { 0 });
                i128::from_le_bytes(bytes)
            }
            SHL => (0..op.a).fold(value, |value, _| TwinCell::doubled(value)),
            SHR => (0..op.a).fold(value, |value, _| value.div_euclid(2)),
            STAMP if op.aux == 1 => i128::from(NOW_MS) / 1000,
            STAMP => i128::from(NOW_MS),
            _ => return Err(TYPE),
        }),
        TwinValue::Float(value) => {
            let operand = f64::from_bits(op.a as u64);
            TwinValue::Float(match op.code {
                SET => operand,
                ADD => value + operand,
                MUL => value * operand,
                MIN | MAX if value.is_nan() => operand,
                MIN if operand < value => operand,
                MAX if operand > value => operand,
                MIN | MAX => value,
                _ => return Err(TYPE),
            })
        }
        TwinValue::Bytes(value) => TwinValue::Bytes(match op.code {
            SET => op.bytes.clone(),
            MIN => value.min(op.bytes.clone()),
            MAX => value.max(op.bytes.clone()),
            _ => return Err(TYPE),
        }),
    };
    Ok(TwinCell::new(code, len, value))
}

impl TwinCell {
    /// Twice, but no further than what is beyond every type.
    fn doubled(value: i128) -> i128 {
        if value.abs() > 1 << 70 { value } else { 2 * value }
    }
}

impl TwinTable {
    fn evict(&mut self, keep: usize, policy: u8, by: &[u8], zero: &TwinCell) {
        while self.rows.len() > keep {
            let column = |key: &Vec<u8>| self.rows[key].get(by).unwrap_or(zero);
            let mut victim = self.rows.keys().next().unwrap().clone();
            for key in self.rows.keys() {
                let order = column(key).evicted_before(column(&victim));
                let goes_first = match policy {
                    2 => key > &victim,
                    3 => order.is_lt(),
                    4 => order.is_gt(),
                    _ => false,
                };
                if goes_first {
                    victim = key.clone();
                }
            }
            self.rows.remove(&victim);
        }
    }
}

impl Twin {
    pub(super) fn dynamic() -> Twin {
        Twin { schema: None, fields: BTreeMap::new() }
    }

    pub(super) fn of_schema(blob: Vec<u8>, fields: TestFields) -> Twin {
        let zero = |field: &TestField| match field {
            TestField::Cell(code, len) => Part::Cell(TwinCell::zero(*code, *len)),
            TestField::Table { cap, policy, by, .. } => Part::Table(TwinTable {
                cap: *cap as usize,
                policy: *policy,
                by: vec![*by as u8],
                ..Default::default()
            }),
        };
        let parts = fields.iter().enumerate().map(|(at, (_, field))| (vec![at as u8], zero(field))).collect();
        Twin { schema: Some((blob, fields)), fields: parts }
    }

    fn field(&self, seg: &Seg) -> Refused<Vec<u8>> {
        match (&self.schema, seg) {
            (None, Seg::Name(name)) if !name.is_empty() => Ok(name.clone()),
            (None, _) => Err(PATH),
            (Some((_, fields)), Seg::At(at)) if (*at as usize) < fields.len() => Ok(vec![*at as u8]),
            (Some((_, fields)), Seg::Name(name)) => {
                let at =
                    fields.iter().position(|(field, _)| !name.is_empty() && field.as_bytes() == &name[..]);
                Ok(vec![at.ok_or(PATH)? as u8])
            }
            _ => Err(PATH),
        }
    }

    fn declared(&self, field: &[u8]) -> Option<&TestField> {
        self.schema.as_ref().map(|(_, fields)| &fields[usize::from(field[0])].1)
    }

    fn key(&self, field: &[u8], key: &[u8]) -> Refused<Vec<u8>> {
        let Some(TestField::Table { key: (code, len), .. }) = self.declared(field) else {
            return Ok(key.to_vec());
        };
        let number = *code != FIXED;
        let width = if number { 1 << code } else { usize::from(*len) };
        if key.len() != width {
            return Err(PATH);
        }
        Ok(if number { key.iter().rev().copied().collect() } else { key.to_vec() })
    }

    fn column(&self, field: &[u8], seg: &Seg) -> Refused<Vec<u8>> {
        match (self.declared(field), seg) {
            (None, Seg::Name(name)) if !name.is_empty() => Ok(name.clone()),
            (Some(TestField::Table { columns, .. }), Seg::At(at)) if (*at as usize) < columns.len() => {
                Ok(vec![*at as u8])
            }
            (Some(TestField::Table { columns, .. }), Seg::Name(name)) => {
                let at = columns.iter().position(|column| column.0.as_bytes() == &name[..]);
                Ok(vec![at.ok_or(PATH)? as u8])
            }
            _ => Err(PATH),
        }
    }

    fn column_type(&self, field: &[u8], column: &[u8]) -> Option<(u8, u8)> {
        match self.declared(field) {
            Some(TestField::Table { columns, .. }) => {
                let (_, code, len) = columns[usize::from(column[0])];
                Some((code, len))
            }
            _ => None,
        }
    }

    /// What lies at a path.
    pub(super) fn find(&self, at: &At) -> Refused<Found> {
        let (At::Field(seg) | At::Row(seg, _) | At::Column(seg, ..)) = at else { return Ok(Found::Record) };
        let field = self.field(seg)?;
        if let (None, At::Column(_, _, column)) = (&self.schema, at) {
            self.column(&field, column)?;
        }
        let part = self.fields.get(&field);
        if let (At::Row(..) | At::Column(..), Some(Part::Cell(_))) = (at, part) {
            return Err(PATH);
        }
        let row = |key: &[u8]| match part {
            Some(Part::Table(table)) => {
                Ok::<_, OperateError>(table.rows.get(&self.key(&field, key)?).cloned())
            }
            _ => Ok(None),
        };
        Ok(match at {
            At::Record => Found::Record,
            At::Field(_) => match part {
                Some(Part::Table(table)) => Found::Table(table.clone()),
                Some(Part::Cell(cell)) => Found::Cell(Some(cell.clone())),
                None => Found::Cell(None),
            },
            At::Row(_, key) => Found::Row(row(key)?),
            At::Column(_, key, column) => {
                let column = self.column(&field, column)?;
                Found::Cell(row(key)?.and_then(|row| row.get(&column).cloned()))
            }
        })
    }

    /// Whether an IF or CHECK holds; `existed`: whether the record did before the call.
    pub(super) fn holds(&self, op: &TestOp, existed: bool) -> Refused<bool> {
        let found = self.find(&op.at)?;
        let exists = match &found {
            Found::Record => existed,
            Found::Table(_) => true,
            Found::Row(row) => row.is_some(),
            Found::Cell(cell) => cell.is_some(),
        };
        if op.aux >= EXISTS {
            return Ok(exists == (op.aux == EXISTS));
        }
        let order = match found {
            Found::Cell(cell) => {
                let declared = match &op.at {
                    At::Column(seg, _, column) if self.schema.is_some() => {
                        let field = self.field(seg)?;
                        self.column_type(&field, &self.column(&field, column)?)
                    }
                    _ => None,
                };
                let fixed_len = op.bytes.len().min(255) as u8;
                let asked =
                    if op.kind < 14 && (op.kind != FIXED || !op.bytes.is_empty()) { op.kind } else { U8 };
                let (code, len) = declared.unwrap_or((asked, fixed_len));
                let cell = cell.unwrap_or_else(|| TwinCell::zero(code, len));
                match cell.value {
                    TwinValue::Int(value) => value.cmp(&op.a.into()),
                    TwinValue::Float(value) => {
                        let operand = f64::from_bits(op.a as u64);
                        value.partial_cmp(&operand).unwrap_or(Ordering::Equal)
                    }
                    TwinValue::Bytes(bytes) if cell.code == FIXED && bytes.len() != op.bytes.len() => {
                        return Err(TYPE);
                    }
                    TwinValue::Bytes(bytes) => bytes.cmp(&op.bytes),
                }
            }
            found => (self.count(&found) as i128).cmp(&op.a.into()),
        };
        Ok(match op.aux {
            0 => order.is_eq(),
            1 => order.is_ne(),
            2 => order.is_lt(),
            3 => order.is_le(),
            4 => order.is_gt(),
            _ => order.is_ge(),
        })
    }

    pub(super) fn count(&self, found: &Found) -> u64 {
        match found {
            Found::Record => self.fields.len() as u64,
            Found::Table(table) => table.rows.len() as u64,
            Found::Row(row) => row.is_some().into(),
            Found::Cell(cell) => cell.is_some().into(),
        }
    }

    /// Any operation but those that end or skip, and MIGRATE.
    pub(super) fn change(&mut self, op: &TestOp) -> Refused<()> {
        let (At::Field(seg) | At::Row(seg, _) | At::Column(seg, ..)) = &op.at else {
            unreachable!("a record DEL ends")
        };
        let dynamic = self.schema.is_none();
        if op.code == CONFIG && !dynamic {
            return Err(OperateError::RecordModeMismatch);
        }
        let field = self.field(seg)?;
        let zero = TwinCell::zero(U8, 0);
        if let (true, At::Column(_, _, column)) = (dynamic, &op.at) {
            self.column(&field, column)?;
        }
        if matches!(op.code, CONFIG | TRIM) {
            if op.code == CONFIG {
                self.fields.entry(field.clone()).or_insert_with(|| Part::Table(TwinTable::default()));
            }
            let by = match op.bytes.is_empty() {
                true => u32::try_from(op.b).map(Seg::At).unwrap_or(Seg::At(u32::MAX)),
                false => Seg::Name(op.bytes.clone()),
            };
            let by = if op.code == TRIM
                && op.aux >= 3
                && matches!(self.fields.get(&field), Some(Part::Table(_)))
            {
                self.column(&field, &by)?
            } else {
                op.bytes.clone()
            };
            match self.fields.get_mut(&field) {
                None => {}
                Some(Part::Cell(_)) => return Err(TYPE),
                Some(Part::Table(table)) => {
                    if op.code == CONFIG {
                        (table.cap, table.policy, table.by) = (op.a as usize, op.aux, by.clone());
                    }
                    if op.code == TRIM || op.a > 0 {
                        table.evict(op.a as usize, op.aux, &by, &zero);
                    }
                }
            }
            return Ok(());
        }
        if let At::Field(_) = op.at {
            let declared = self.declared(&field).cloned();
            match (op.code, declared, self.fields.get(&field)) {
                (DEL, None, _) => drop(self.fields.remove(&field)),
                (DEL, Some(TestField::Cell(code, len)), _) => {
                    self.fields.insert(field, Part::Cell(TwinCell::zero(code, len)));
                }
                (DEL, _, Some(Part::Table(_))) => {
                    let Some(Part::Table(table)) = self.fields.get_mut(&field) else { unreachable!() };
                    table.rows.clear();
                }
                (_, _, Some(Part::Table(_))) => return Err(TYPE),
                (_, declared, stored) => {
                    let declared = match declared {
                        Some(TestField::Cell(code, len)) => Some((code, len)),
                        _ => None,
                    };
                    let stored = match stored {
                        Some(Part::Cell(cell)) => Some(cell),
                        _ => None,
                    };
                    let cell = changed(op, stored, declared)?;
                    self.fields.insert(field, Part::Cell(cell));
                }
            }
            return Ok(());
        }
        let (At::Row(_, key) | At::Column(_, key, _)) = &op.at else { unreachable!() };
        match self.fields.get(&field) {
            Some(Part::Cell(_)) => return Err(PATH),
            None if op.code == DEL => return Ok(()),
            _ => {}
        }
        let key = self.key(&field, key)?;
        let column = match &op.at {
            At::Column(_, _, column) => Some(self.column(&field, column)?),
            _ => None,
        };
        let declared = column.as_ref().and_then(|column| self.column_type(&field, column));
        let zero_row = match self.declared(&field) {
            Some(TestField::Table { columns, .. }) => columns
                .iter()
                .enumerate()
                .map(|(at, (_, code, len))| (vec![at as u8], TwinCell::zero(*code, *len)))
                .collect(),
            _ => BTreeMap::new(),
        };
        let part = self.fields.entry(field).or_insert_with(|| Part::Table(TwinTable::default()));
        let Part::Table(table) = part else { unreachable!() };
        match (op.code, column) {
            (DEL, None) => drop(table.rows.remove(&key)),
            (DEL, Some(column)) => {
                if let Some(row) = table.rows.get_mut(&key) {
                    match zero_row.get(&column) {
                        Some(zero) => drop(row.insert(column, zero.clone())),
                        None => drop(row.remove(&column)),
                    }
                }
            }
            (_, Some(column)) => {
                let stored = table.rows.get(&key).and_then(|row| row.get(&column));
                let cell = changed(op, stored, declared)?;
                if !table.rows.contains_key(&key) && table.cap > 0 {
                    let (keep, policy, by) = (table.cap - 1, table.policy, table.by.clone());
                    table.evict(keep, policy, &by, &zero);
                }
                table.rows.entry(key).or_insert(zero_row).insert(column, cell);
            }
            (_, None) => unreachable!("refused when the call is decoded"),
        }
        Ok(())
    }

    /// What a value return shows.
    pub(super) fn value(&self, at: &At) -> Refused<Vec<u8>> {
        let mut out = Vec::new();
        let mode = if self.schema.is_some() { 1 } else { 2 };
        match self.find(at)? {
            Found::Record => return Ok(self.encode()),
            Found::Table(table) => {
                let At::Field(seg) = at else { unreachable!() };
                out.push(mode);
                self.put_table(&self.field(seg)?, &table, &mut out);
            }
            Found::Row(Some(row)) => {
                out.push(mode);
                self.put_row_cells(&row, &mut out);
            }
            Found::Cell(Some(cell)) => cell.put_tagged(&mut out),
            Found::Row(None) | Found::Cell(None) => out.push(15),
        }
        Ok(out)
    }

    fn put_row_cells(&self, row: &BTreeMap<Vec<u8>, TwinCell>, out: &mut Vec<u8>) {
        leb(row.len() as u64, out);
        for (name, cell) in row {
            if self.schema.is_none() {
                out.push(name.len() as u8);
                out.extend(name);
            }
            cell.put_tagged(out);
        }
    }

    fn put_table(&self, field: &[u8], table: &TwinTable, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        if let Some(TestField::Table { key: (code, _), .. }) = self.declared(field) {
            leb(table.rows.len() as u64, out);
            for (key, row) in &table.rows {
                let mut key = key.clone();
                if *code != FIXED {
                    key.reverse();
                }
                out.extend(key);
                row.values().for_each(|cell| cell.put(out));
            }
            return;
        }
        leb(table.cap as u64, &mut body);
        body.extend([table.policy, table.by.len() as u8]);
        body.extend(&table.by);
        leb(table.rows.len() as u64, &mut body);
        for (key, cells) in &table.rows {
            let mut row = vec![key.len() as u8];
            row.extend(key);
            self.put_row_cells(cells, &mut row);
            leb(row.len() as u64, &mut body);
            body.extend(row);
        }
        leb(body.len() as u64, out);
        out.extend(body);
    }

    /// The bytes that are stored.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some((blob, fields)) = &self.schema {
            out.push(1);
            out.extend(blob);
            for fixed in [true, false] {
                for (at, part) in &self.fields {
                    let is_fixed = !matches!(
                        fields[usize::from(at[0])].1,
                        TestField::Cell(10..=12, _) | TestField::Table { .. }
                    );
                    match part {
                        Part::Cell(cell) if is_fixed == fixed => cell.put(&mut out),
                        Part::Table(table) if !fixed => self.put_table(at, table, &mut out),
                        _ => {}
                    }
                }
            }
            return out;
        }
        out.push(2);
        leb(self.fields.len() as u64, &mut out);
        for (name, part) in &self.fields {
            out.push(name.len() as u8);
            out.extend(name);
            match part {
                Part::Cell(cell) => cell.put_tagged(&mut out),
                Part::Table(table) => {
                    out.push(14);
                    self.put_table(name, table, &mut out);
                }
            }
        }
        out
    }
}
