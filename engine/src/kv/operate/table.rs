//! Tables: rows by key, a cap on their number, and who goes when it is reached.

use super::cell::{Cell, Rank, Type};
use super::error::{Fault, OperateError};
use super::layered::{Key, Layered, LayeredEntry, Stored};
use super::op::Policy;
use super::row::{ColumnId, Row, Shape};
use super::schema::TableSchema;
use super::wire::{Reader, ascends, check_count, put_framed, put_s8, put_uv};
use super::{RANKED_MAX, ROWS_MAX};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A table that a call has touched.
#[derive(Clone, Debug)]
pub(super) struct Table<'a> {
    pub shape: Shape<'a>,
    rows: Layered<'a, Row<'a>>,
    limit: Limit<'a>,
    victims: Option<Victims<'a>>,
}

/// The cap of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit<'a> {
    /// Most rows; 0 = none but that of the record.
    pub cap: u32,
    pub policy: Policy,
    /// What a policy by column looks at. Other policies may carry the name of a column they do not use.
    pub by: Option<ColumnId<'a>>,
}

impl Limit<'_> {
    const NONE: Limit<'static> = Limit { cap: 0, policy: Policy::None, by: None };
}

/// How much a call may still spend on ordering rows by column.
///
/// An order is found once and kept up to date, unless another one is asked for in between. A list that goes back and forth
/// between orders would read a large table for each operation; this is what stops it.
#[derive(Clone, Debug)]
pub(super) struct Work {
    ranked_left: usize,
}

impl Work {
    pub(super) fn new() -> Work {
        Work { ranked_left: RANKED_MAX }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), OperateError> {
        self.ranked_left = self.ranked_left.checked_sub(bytes).ok_or(OperateError::CapExceeded)?;
        Ok(())
    }
}

/// Rows in the order in which they go, by one column. Every row that is there has a candidate with its present rank; others
/// are out of date and passed over.
#[derive(Clone, Debug)]
struct Victims<'a> {
    policy: Policy,
    by: ColumnId<'a>,
    heap: BinaryHeap<Candidate<'a>>,
}

/// The greatest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate<'a> {
    rank: Rank<'a>,
    key: Key<'a>,
    policy: Policy,
}

impl Ord for Candidate<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = self.rank.cmp(&other.rank);
        let rank = if self.policy == Policy::MaxColumn { rank } else { rank.reverse() };
        rank.then_with(|| other.key.cmp(&self.key))
    }
}

impl PartialOrd for Candidate<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What stands before the rows of a table in a dynamic record.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedTable<'a> {
    limit: Limit<'a>,
    pub count: usize,
    rows: &'a [u8],
}

/// Shortest named row: its length, a key of one byte, no columns.
const ROW_LEN: usize = 4;

impl<'a> NamedTable<'a> {
    /// Reads `uv byteLen, uv cap, u8 policy, s8 byCol, uv nRows, rows`; the rows are not looked at.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<NamedTable<'a>, Fault> {
        let len = reader.count(1, usize::MAX)?;
        let mut table = Reader(reader.take(len)?);
        let cap = table.uv()?;
        let policy = Policy::of(table.u8()?).ok_or(Fault::Invalid)?;
        let by = table.s8()?;
        if cap > ROWS_MAX as u64 || (policy.is_by_column() && by.is_empty()) {
            return Err(Fault::Invalid);
        }
        let count = table.count(ROW_LEN, ROWS_MAX)?;
        let by = (!by.is_empty()).then_some(ColumnId::Name(by));
        Ok(NamedTable { limit: Limit { cap: cap as u32, policy, by }, count, rows: table.0 })
    }

    /// Finds the rows: 5 ns each.
    pub(super) fn load(self) -> Result<Table<'a>, OperateError> {
        let stored = self.find_rows().map_err(Fault::in_stored)?;
        Ok(Table::new(Shape::Named, self.limit, stored))
    }

    fn find_rows(&self) -> Result<Stored<'a>, Fault> {
        let mut starts = Vec::with_capacity(self.count + 1);
        let mut reader = Reader(self.rows);
        let mut last: &[u8] = &[];
        for _ in 0..self.count {
            starts.push((self.rows.len() - reader.len()) as u32);
            let len = reader.count(1, usize::MAX)?;
            let key = Reader(reader.take(len)?).s8()?;
            if !ascends(last, key) {
                return Err(Fault::Invalid);
            }
            last = key;
        }
        if !reader.is_empty() {
            return Err(Fault::Invalid);
        }
        starts.push(self.rows.len() as u32);
        Ok(Stored::Keyed { bytes: self.rows, starts, framed: true })
    }
}

impl<'a> TableSchema<'a> {
    /// Takes `uv nRows, rows` and returns the rows' bytes, which are not looked at.
    pub(super) fn take_rows(&self, reader: &mut Reader<'a>) -> Result<&'a [u8], Fault> {
        let count = usize::try_from(reader.uv()?).map_err(|_| Fault::Short)?;
        let count = check_count(count, self.stride, reader.len(), ROWS_MAX)?;
        reader.take(count * self.stride)
    }

    /// The table of these rows; checks their order, 2 ns each.
    pub(super) fn load(&'a self, rows: &'a [u8]) -> Result<Table<'a>, OperateError> {
        let stored = Stored::Packed { bytes: rows, stride: self.stride, key: self.key };
        if !stored.is_sorted() {
            return Err(OperateError::StoredRecordMalformed);
        }
        let by = self.policy.is_by_column().then_some(ColumnId::Position(self.by_column));
        Ok(Table::new(Shape::Packed(self), Limit { cap: self.cap, policy: self.policy, by }, stored))
    }
}

impl<'a> Table<'a> {
    fn new(shape: Shape<'a>, limit: Limit<'a>, stored: Stored<'a>) -> Table<'a> {
        Table { shape, rows: Layered::new(stored), limit, victims: None }
    }

    /// A table of a dynamic record, without rows and without a cap.
    pub(super) fn empty() -> Table<'a> {
        Table::new(Shape::Named, Limit::NONE, Stored::none())
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn contains(&self, key: Key<'a>) -> bool {
        self.rows.get(&key).is_some()
    }

    /// The row under `key`, parsed.
    pub(super) fn row(&mut self, key: Key<'a>) -> Result<Option<&mut Row<'a>>, OperateError> {
        let shape = self.shape;
        self.rows.load(&key, |body| shape.read(body))
    }

    /// Gives a column the cell that `compute` makes of the one it has and of the type that the schema declares. A row that is
    /// not there yet is made, after as many have gone as the cap demands.
    ///
    /// # Errors
    /// Those of `compute`; `CapExceeded`, `StoredRecordMalformed`.
    pub(super) fn write(
        &mut self,
        key: Key<'a>,
        column: ColumnId<'a>,
        compute: impl FnOnce(Option<Cell<'a>>, Option<Type>) -> Result<Cell<'a>, OperateError>,
        work: &mut Work,
    ) -> Result<(), OperateError> {
        let declared = self.shape.declared(column);
        if let Some(row) = self.row(key)? {
            let cell = compute(row.get(column), declared)?;
            row.set(column, cell)?;
        } else {
            let mut row = self.shape.new_row();
            let cell = compute(None, declared)?;
            row.set(column, cell)?;
            if self.limit.cap > 0 {
                self.keep(self.limit.cap as usize - 1, self.limit.policy, self.limit.by, work)?;
            }
            self.rows.insert(key, row);
        }
        self.rank_again(key)
    }

    /// Takes a row out; whether it was there.
    pub(super) fn remove(&mut self, key: Key<'a>) -> bool {
        self.rows.remove(&key).is_some()
    }

    /// Makes a column zero, or takes it out where columns come and go; whether there is such a row.
    pub(super) fn clear(&mut self, key: Key<'a>, column: ColumnId<'a>) -> Result<bool, OperateError> {
        let Some(row) = self.row(key)? else { return Ok(false) };
        row.clear(column);
        self.rank_again(key)?;
        Ok(true)
    }

    /// Gives the table another cap and lets rows go until it holds.
    pub(super) fn configure(&mut self, limit: Limit<'a>, work: &mut Work) -> Result<(), OperateError> {
        self.limit = limit;
        self.keep_cap(work)
    }

    /// Lets rows go until the cap holds.
    pub(super) fn keep_cap(&mut self, work: &mut Work) -> Result<(), OperateError> {
        let Limit { cap, policy, by } = self.limit;
        if cap == 0 { Ok(()) } else { self.keep(cap as usize, policy, by, work) }
    }

    /// Lets rows go until there are at most `keep`. The least key goes first, or the greatest, or the row with the least or
    /// greatest value of column `by`, and of several such the one with the least key. A column that a row does not have is 0.
    ///
    /// # Errors
    /// `CapExceeded` when the call has ordered too many rows; `StoredRecordMalformed`.
    pub(super) fn keep(
        &mut self,
        keep: usize,
        policy: Policy,
        by: Option<ColumnId<'a>>,
        work: &mut Work,
    ) -> Result<(), OperateError> {
        while self.rows.len() > keep {
            let victim = match (policy, by) {
                (Policy::None | Policy::MinKey, _) => self.rows.first(),
                (Policy::MaxKey, _) => self.rows.last(),
                (_, Some(by)) => self.next_victim(policy, by, work)?,
                (_, None) => unreachable!("a policy by column has one"),
            };
            let victim = victim.expect("a table with rows has a first one");
            self.rows.remove(&victim);
        }
        Ok(())
    }

    fn next_victim(
        &mut self,
        policy: Policy,
        by: ColumnId<'a>,
        work: &mut Work,
    ) -> Result<Option<Key<'a>>, OperateError> {
        let in_order = self.victims.as_ref().is_some_and(|order| order.policy == policy && order.by == by);
        if !in_order {
            // Rows that were changed are counted like short stored ones.
            work.spend(self.rows.stored_bytes() + ROW_LEN * self.rows.len())?;
            self.victims = Some(self.order(policy, by)?);
        }
        let mut victims = self.victims.take().expect("set above");
        let found = loop {
            let Some(candidate) = victims.heap.pop() else { break None };
            if self.rank(candidate.key, by)? == Some(candidate.rank) {
                break Some(candidate.key);
            }
        };
        self.victims = Some(victims);
        Ok(found)
    }

    fn order(&self, policy: Policy, by: ColumnId<'a>) -> Result<Victims<'a>, OperateError> {
        let mut candidates = Vec::with_capacity(self.rows.len());
        for (key, body) in self.rows.stored() {
            let rank = rank(self.shape.cell(body, by)?);
            candidates.push(Candidate { rank, key, policy });
        }
        for (&key, row) in self.rows.changed() {
            candidates.push(Candidate { rank: rank(row.get(by)), key, policy });
        }
        Ok(Victims { policy, by, heap: candidates.into() })
    }

    /// Where the row under `key` stands by column `by`, if there is such a row.
    fn rank(&self, key: Key<'a>, by: ColumnId<'a>) -> Result<Option<Rank<'a>>, OperateError> {
        Ok(match self.rows.get(&key) {
            None => None,
            Some(LayeredEntry::Stored(body)) => Some(rank(self.shape.cell(body, by)?)),
            Some(LayeredEntry::Changed(row)) => Some(rank(row.get(by))),
        })
    }

    /// Files the row under `key`, which has changed, where it belongs now.
    fn rank_again(&mut self, key: Key<'a>) -> Result<(), OperateError> {
        let Some((policy, by)) = self.victims.as_ref().map(|order| (order.policy, order.by)) else {
            return Ok(());
        };
        let rank = self.rank(key, by)?;
        if let (Some(rank), Some(victims)) = (rank, &mut self.victims) {
            victims.heap.push(Candidate { rank, key, policy });
        }
        Ok(())
    }

    /// Reads every row that has not been read yet, to find out whether it can be.
    pub(super) fn check(&self) -> Result<(), OperateError> {
        self.rows.stored().try_for_each(|(_, body)| self.shape.check(body))
    }

    /// Appends the table as it is stored.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let put_rows = |out: &mut Vec<u8>| {
            put_uv(out, self.rows.len() as u64);
            self.rows.put(out, |out, key, row| self.shape.put(out, key, row));
        };
        match self.shape {
            Shape::Packed(_) => put_rows(out),
            Shape::Named => put_framed(out, |out| {
                put_uv(out, self.limit.cap.into());
                out.push(self.limit.policy as u8);
                match self.limit.by {
                    Some(ColumnId::Name(name)) => put_s8(out, name),
                    _ => out.push(0),
                }
                put_rows(out);
            }),
        }
    }

    /// Each row's key and, parsed, its cells; for tables nothing was changed in.
    pub(super) fn stored_rows(&self) -> impl Iterator<Item = (Key<'a>, &'a [u8])> {
        self.rows.stored()
    }
}

fn rank(cell: Option<Cell<'_>>) -> Rank<'_> {
    cell.map_or(Rank::Unsigned(0), Rank::from)
}
