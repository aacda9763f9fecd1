//! Calls and schemas for tests, written out as clients do.

use super::{Call, Change, OperateError, Outcome};

/// Type codes.
pub(super) const U8: u8 = 0;
pub(super) const U16: u8 = 1;
pub(super) const U32: u8 = 2;
pub(super) const U64: u8 = 3;
pub(super) const I64: u8 = 7;
pub(super) const F32: u8 = 8;
pub(super) const F64: u8 = 9;
pub(super) const BYTES: u8 = 12;
pub(super) const FIXED: u8 = 13;
pub(super) const ANY: u8 = 255;

/// Opcodes.
pub(super) const SET: u8 = 1;
pub(super) const DEL: u8 = 2;
pub(super) const ADD: u8 = 3;
pub(super) const MUL: u8 = 4;
pub(super) const MIN: u8 = 5;
pub(super) const MAX: u8 = 6;
pub(super) const AND: u8 = 7;
pub(super) const OR: u8 = 8;
pub(super) const XOR: u8 = 9;
pub(super) const SHL: u8 = 10;
pub(super) const SHR: u8 = 11;
pub(super) const STAMP: u8 = 12;
pub(super) const MIGRATE: u8 = 20;
pub(super) const CONFIG: u8 = 21;
pub(super) const TRIM: u8 = 22;
pub(super) const IF: u8 = 30;
pub(super) const CHECK: u8 = 31;

/// Comparisons.
pub(super) const EQ: u8 = 0;
pub(super) const NE: u8 = 1;
pub(super) const GT: u8 = 4;
pub(super) const EXISTS: u8 = 6;
pub(super) const ABSENT: u8 = 7;

/// The time of every test.
pub(super) const NOW_MS: u64 = 1_234_567_890_123;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seg {
    At(u32),
    Name(Vec<u8>),
}

impl From<&str> for Seg {
    fn from(name: &str) -> Seg {
        Seg::Name(name.into())
    }
}

impl From<u32> for Seg {
    fn from(at: u32) -> Seg {
        Seg::At(at)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum At {
    Record,
    Field(Seg),
    Row(Seg, Vec<u8>),
    Column(Seg, Vec<u8>, Seg),
}

pub(super) fn field(field: impl Into<Seg>) -> At {
    At::Field(field.into())
}

pub(super) fn row(field: impl Into<Seg>, key: &[u8]) -> At {
    At::Row(field.into(), key.into())
}

pub(super) fn column(field: impl Into<Seg>, key: &[u8], column: impl Into<Seg>) -> At {
    At::Column(field.into(), key.into(), column.into())
}

/// An operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TestOp {
    pub code: u8,
    pub kind: u8,
    pub aux: u8,
    pub at: At,
    pub a: i64,
    pub b: i64,
    pub bytes: Vec<u8>,
}

pub(super) fn op(code: u8, kind: u8, at: At, a: i64) -> TestOp {
    TestOp { code, kind, aux: 0, at, a, b: 0, bytes: vec![] }
}

pub(super) fn op_bytes(code: u8, kind: u8, at: At, bytes: &[u8]) -> TestOp {
    TestOp { bytes: bytes.into(), ..op(code, kind, at, 0) }
}

impl TestOp {
    pub(super) fn aux(self, aux: u8) -> TestOp {
        TestOp { aux, ..self }
    }

    pub(super) fn b(self, b: i64) -> TestOp {
        TestOp { b, ..self }
    }

    pub(super) fn a(self, a: i64) -> TestOp {
        TestOp { a, ..self }
    }

    pub(super) fn bytes(self, bytes: &[u8]) -> TestOp {
        TestOp { bytes: bytes.into(), ..self }
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend([self.code, self.kind, self.aux]);
        put_path(&self.at, out);
        out.extend(self.a.to_be_bytes());
        out.extend(self.b.to_be_bytes());
        put_s16(&self.bytes, out);
    }
}

/// A call on the key `k`; the default asks for nothing of a record that must be there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TestCall {
    pub create: u8,
    pub schema: Vec<u8>,
    pub ops: Vec<TestOp>,
    /// Mode and path.
    pub returns: Vec<(u8, At)>,
}

/// What is stored after a call, and the values it returned.
pub(super) type Ran = (Option<Vec<u8>>, Vec<Vec<u8>>);

/// A call on a dynamic record that is made if need be.
pub(super) fn dynamic(ops: Vec<TestOp>) -> TestCall {
    TestCall { create: 2, ops, ..Default::default() }
}

/// A call on a schema record that is made if need be.
pub(super) fn with_schema(schema: &[u8], ops: Vec<TestOp>) -> TestCall {
    TestCall { create: 1, schema: schema.into(), ops, ..Default::default() }
}

/// A call on a record that must be there.
pub(super) fn existing(ops: Vec<TestOp>) -> TestCall {
    TestCall { ops, ..Default::default() }
}

impl TestCall {
    /// Also returns the value at `at`.
    pub(super) fn value(mut self, at: At) -> TestCall {
        self.returns.push((0, at));
        self
    }

    /// Also returns the count of `at`.
    pub(super) fn count(mut self, at: At) -> TestCall {
        self.returns.push((1, at));
        self
    }

    /// The arguments.
    pub(super) fn args(&self) -> Vec<u8> {
        let mut out = vec![0, 1, b'k'];
        out.extend([0; 9]);
        out.push(self.create);
        put_s16(&self.schema, &mut out);
        out.extend((self.ops.len() as u16).to_be_bytes());
        self.ops.iter().for_each(|op| op.put(&mut out));
        out.extend((self.returns.len() as u16).to_be_bytes());
        for (mode, at) in &self.returns {
            out.push(*mode);
            put_path(at, &mut out);
        }
        out
    }

    /// Carries the call out.
    pub(super) fn outcome(&self, stored: Option<&[u8]>) -> Result<Outcome, OperateError> {
        Call::decode(&self.args())?.program.apply(stored, NOW_MS)
    }

    /// Carries the call out; what is stored afterwards, and what was returned. All checks must hold.
    pub(super) fn run(&self, stored: Option<&[u8]>) -> Result<Ran, OperateError> {
        match self.outcome(stored)? {
            Outcome::Done { change, result } => {
                let after = match change {
                    Change::Keep => stored.map(Vec::from),
                    Change::Replace(value) => Some(value),
                    Change::Delete => None,
                };
                let (failed, values) = read_result(&result);
                assert_eq!(failed, None);
                Ok((after, values))
            }
            outcome => panic!("{outcome:?}"),
        }
    }

    /// What is stored after the call on what was stored before.
    pub(super) fn stored(&self, before: Option<&[u8]>) -> Vec<u8> {
        self.run(before).unwrap().0.expect("a record is left")
    }
}

fn put_s16(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(u16::try_from(bytes.len()).unwrap().to_be_bytes());
    out.extend(bytes);
}

fn put_seg(seg: &Seg, out: &mut Vec<u8>) {
    match seg {
        Seg::At(at) => {
            out.push(0);
            leb(u64::from(*at), out);
        }
        Seg::Name(name) => {
            out.extend([1, name.len() as u8]);
            out.extend(name);
        }
    }
}

fn put_path(at: &At, out: &mut Vec<u8>) {
    let (kind, field, key, column) = match at {
        At::Record => (0, None, None, None),
        At::Field(field) => (1, Some(field), None, None),
        At::Row(field, key) => (2, Some(field), Some(key), None),
        At::Column(field, key, column) => (3, Some(field), Some(key), Some(column)),
    };
    out.push(kind);
    if let Some(field) = field {
        put_seg(field, out);
    }
    if let Some(key) = key {
        out.push(key.len() as u8);
        out.extend(key);
    }
    if let Some(column) = column {
        put_seg(column, out);
    }
}

/// LEB128, for the bytes that tests expect.
pub(super) fn leb(mut value: u64, out: &mut Vec<u8>) {
    loop {
        let more = value > 0x7f;
        out.push((value & 0x7f) as u8 | if more { 0x80 } else { 0 });
        value >>= 7;
        if !more {
            return;
        }
    }
}

/// The failed operation and the values of a result.
pub(super) fn read_result(result: &[u8]) -> (Option<u16>, Vec<Vec<u8>>) {
    let u16_at = |at: usize| u16::from_be_bytes([result[at], result[at + 1]]);
    let (failed, mut at) = match result[0] {
        0 => (None, 1),
        1 => (Some(u16_at(1)), 3),
        status => panic!("status {status}"),
    };
    let count = u16_at(at);
    at += 2;
    let mut values = Vec::new();
    for _ in 0..count {
        let len = u32::from_be_bytes(result[at..at + 4].try_into().unwrap()) as usize;
        values.push(result[at + 4..at + 4 + len].to_vec());
        at += 4 + len;
    }
    assert_eq!(at, result.len(), "a result ends with its last value");
    (failed, values)
}

/// A field of a test schema: a cell's type, or a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TestField {
    Cell(u8, u8),
    Table { key: (u8, u8), columns: Vec<(&'static str, u8, u8)>, cap: u64, policy: u8, by: u64 },
}

/// The bytes of a schema; names are stored if any field or column has one.
pub(super) fn schema(version: u16, fields: &[(&'static str, TestField)]) -> Vec<u8> {
    fn put_type((code, len): (u8, u8), out: &mut Vec<u8>) {
        out.push(code);
        if code == FIXED {
            out.push(len);
        }
    }
    fn put_name(name: &str, names: &mut Vec<u8>) {
        names.push(name.len() as u8);
        names.extend(name.as_bytes());
    }
    let (mut body, mut names, mut column_names) = (vec![], vec![], vec![]);
    let mut named = false;
    leb(fields.len() as u64, &mut body);
    for (name, field) in fields {
        named |= !name.is_empty();
        put_name(name, &mut names);
        match field {
            TestField::Cell(code, len) => put_type((*code, *len), &mut body),
            TestField::Table { key, columns, cap, policy, by } => {
                body.push(14);
                put_type(*key, &mut body);
                leb(columns.len() as u64, &mut body);
                for (name, code, len) in columns {
                    named |= !name.is_empty();
                    put_type((*code, *len), &mut body);
                    put_name(name, &mut column_names);
                }
                leb(*cap, &mut body);
                body.push(*policy);
                leb(*by, &mut body);
            }
        }
    }
    names.extend(column_names);
    let mut out = version.to_le_bytes().to_vec();
    out.push(named.into());
    out.extend(body);
    leb(if named { names.len() as u64 } else { 0 }, &mut out);
    if named {
        out.extend(names);
    }
    out
}

/// Bytes written as hexadecimal digits and spaces.
pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
