//! Columns: one f64 per slot of a field that is asked for ranges, so that a walk compares a number instead of following a
//! row.
//!
//! A reader that could use a column says so and does without; the owner fills it in slices and from then on keeps it with
//! every row it files. At most [`COLUMNS_MAX`] fields have one. Which goes when another comes is decided as by a clock hand:
//! the first that no reader has used since the hand last passed, an approximation of the least recently used that costs a
//! reader one store.

use super::between::{WORD, between};
use super::key::of_text;
use super::{Class, Field, PayloadIndex, View};
use crate::index::Slot;
use crate::memory::{Arena, Attic, Held, Link, allocated};
use crate::payload::{PayloadRow, ValueRef};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most fields with a column: eight filters' ranges, 64 bytes per slot.
const COLUMNS_MAX: usize = 8;
/// Pages that were never written read as zero, which must mean "no number": numbers are stored with the bits of NaN flipped.
const NONE: u64 = f64::NAN.to_bits();

/// The numbers of a field, by slot.
pub(super) struct Numbers {
    values: Arena<AtomicU64>,
    /// Every filed slot is in.
    complete: AtomicBool,
    used: AtomicBool,
}

impl Held for Numbers {
    /// The arena is counted by the slots in use (`PayloadIndex::column_bytes`).
    fn held_bytes(&self) -> usize {
        allocated(size_of::<Self>())
    }
}

impl Numbers {
    /// Owner.
    pub(super) fn set(&self, slot: Slot, value: Option<f64>) {
        let bits = value.map_or(0, |number| number.to_bits() ^ NONE);
        self.values.cells(slot as usize)[0].store(bits, Ordering::Relaxed);
    }
}

/// The number a value stands for in a column: ints as f64, NaN not at all.
pub(super) fn number(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Int(number) => Some(number as f64),
        ValueRef::Float(number) => Some(number).filter(|number| !number.is_nan()),
        _ => None,
    }
}

/// The owner's list of columns.
#[derive(Default)]
pub(super) struct Columns {
    all: Vec<OwnedColumn>,
    /// Where the clock hand stands.
    hand: usize,
}

struct OwnedColumn {
    field: Box<str>,
    numbers: Link<Numbers>,
    /// Slots before this one are in.
    filled: usize,
}

impl Columns {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The slot has none of these fields any more.
    pub(super) fn forget<'k>(&self, slot: Slot, fields: impl Iterator<Item = &'k str>) {
        if self.all.is_empty() {
            return;
        }
        for field in fields {
            for column in self.all.iter().filter(|column| *column.field == *field) {
                // SAFETY: the owner, and it is in the list of columns that are not retired.
                unsafe { column.numbers.get() }.set(slot, None);
            }
        }
    }
}

/// A complete column under a pin.
#[derive(Clone, Copy)]
pub(crate) struct Column<'p>(&'p Numbers);

impl Column<'_> {
    /// The slot's number.
    #[inline]
    pub fn get(self, slot: Slot) -> Option<f64> {
        match self.0.values.cells(slot as usize)[0].load(Ordering::Relaxed) {
            0 => None,
            bits => Some(f64::from_bits(bits ^ NONE)),
        }
    }

    /// Clears the bits of slots whose number is not between `low` and `high`, both inclusive, and of those without one. Reads
    /// the numbers of all words that are not empty.
    pub fn retain(self, words: &mut [u64], low: f64, high: f64) {
        let values = &self.0.values;
        for (index, word) in words.iter_mut().enumerate().filter(|(_, word)| **word != 0) {
            let first = index * WORD;
            // What is missing is NaN, which lies nowhere.
            let mut numbers = [f64::NAN; WORD];
            let cells = values.cells_of(first, values.capacity().min(first + WORD));
            for (number, value) in numbers.iter_mut().zip(cells) {
                *number = f64::from_bits(value.load(Ordering::Relaxed) ^ NONE);
            }
            *word &= between(&numbers, low, high);
        }
    }
}

impl<'p> View<'p> {
    /// The column of a field. When there is none and the field has numbers, the owner is told that one is wanted.
    pub fn column(self, field: &str) -> Option<Column<'p>> {
        // SAFETY: `view` has checked the pin, which outlives `'p`.
        let found = of_text(field, &self.index.hasher, |name| unsafe { self.index.fields.get(name) });
        let (found, _) = found?;
        let Some(link) = found.column.load() else {
            if found.class(Class::Int).weight() + found.class(Class::Float).weight() > 0 {
                found.column_wanted.store(true, Ordering::Relaxed);
                self.index.column_wanted.store(true, Ordering::Release);
            }
            return None;
        };
        // SAFETY: reached under the pin.
        let numbers = unsafe { link.get() };
        if !numbers.used.load(Ordering::Relaxed) {
            numbers.used.store(true, Ordering::Relaxed);
        }
        numbers.complete.load(Ordering::Acquire).then_some(Column(numbers))
    }
}

impl PayloadIndex {
    /// Owner: how many columns the next step would add: none while one is being filled, `None` when there is nothing to do.
    pub fn column_due(&self) -> Option<u64> {
        if self.owner.enter().columns.all.iter().any(is_open) {
            return Some(0);
        }
        self.column_wanted.load(Ordering::Relaxed).then_some(1)
    }

    /// Owner: one slice of filling a wanted column, at most `max` of the `slots` slots in use, of which `row` gives the rows
    /// filed. A slot costs about 0.1 µs.
    pub fn column_step<'r>(&self, slots: usize, max: usize, row: impl Fn(Slot) -> PayloadRow<'r>) {
        let mut filing = self.owner.enter();
        let filing = &mut *filing;
        if !filing.columns.all.iter().any(is_open)
            && self.column_wanted.swap(false, Ordering::AcqRel)
            && let Some(field) = self.wanted()
        {
            self.add_column(field, &mut filing.columns, &mut filing.attic);
        }
        self.column_bytes.store((filing.columns.len() * slots * 8) as u64, Ordering::Relaxed);
        let Some(column) = filing.columns.all.iter_mut().find(|column| is_open(column)) else { return };
        // SAFETY: the owner, and it is in the list of columns that are not retired.
        let numbers = unsafe { column.numbers.get() };
        let end = slots.min(column.filled + max);
        for slot in column.filled as Slot..end as Slot {
            // At time 0 no key has expired.
            if let Some(found) = row(slot).get(&column.field, 0).and_then(number) {
                numbers.set(slot, Some(found));
            }
        }
        column.filled = end;
        // Slots used later were filed with the column in place.
        if end == slots {
            numbers.complete.store(true, Ordering::Release);
        }
    }

    /// A field whose column a reader has missed; the others stay wanted.
    fn wanted(&self) -> Option<&Field> {
        let mut found = None;
        let all = super::key::Span::default();
        let mut visit = |field| {
            let field: &Field = field;
            if field.column_wanted.load(Ordering::Relaxed) {
                if found.is_some() {
                    self.column_wanted.store(true, Ordering::Relaxed);
                    return ControlFlow::Break(());
                }
                field.column_wanted.store(false, Ordering::Relaxed);
                found = Some(field);
            }
            ControlFlow::Continue(())
        };
        // SAFETY: the owner, which changes no field before the answer is used.
        let _ = unsafe { self.fields.for_each(&all, &mut visit) };
        found
    }

    fn add_column(&self, field: &Field, columns: &mut Columns, attic: &mut Attic) {
        if field.column.load().is_some() {
            return;
        }
        // Without address space searches do without.
        let Ok(values) = Arena::reserve(self.slots_max, 1) else { return };
        while columns.all.len() >= COLUMNS_MAX {
            columns.hand %= columns.all.len();
            // SAFETY: as in `column_step`.
            let used = &unsafe { columns.all[columns.hand].numbers.get() }.used;
            if used.swap(false, Ordering::Relaxed) {
                columns.hand += 1;
            } else {
                let gone = columns.all.remove(columns.hand);
                self.drop_column(gone, attic);
            }
        }
        let numbers = Numbers { values, complete: AtomicBool::new(false), used: AtomicBool::new(true) };
        let numbers = attic.make(numbers);
        field.column.store(Some(numbers));
        columns.all.push(OwnedColumn { field: field.name.clone(), numbers, filled: 0 });
    }

    fn drop_column(&self, gone: OwnedColumn, attic: &mut Attic) {
        // SAFETY: the owner; the field is only looked at.
        let field = of_text(&gone.field, &self.hasher, |name| unsafe { self.fields.get(name) });
        if let Some((field, _)) = field {
            field.column.store(None);
        }
        // SAFETY: made by this attic, unlinked just now, and out of the list of columns.
        unsafe { attic.retire(gone.numbers) };
    }

    /// The column of a field that is about to go.
    pub(super) fn forget_column(&self, field: &Field, columns: &mut Columns, attic: &mut Attic) {
        if field.column.load().is_some()
            && let Some(at) = columns.all.iter().position(|column| column.field == field.name)
        {
            let gone = columns.all.remove(at);
            self.drop_column(gone, attic);
        }
    }

    /// Owner: gives all columns up, for their memory; whether there were any.
    pub fn drop_columns(&self) -> bool {
        let mut filing = self.owner.enter();
        let filing = &mut *filing;
        let gone = std::mem::take(&mut filing.columns.all);
        self.column_bytes.store(0, Ordering::Relaxed);
        let any = !gone.is_empty();
        gone.into_iter().for_each(|column| self.drop_column(column, &mut filing.attic));
        any
    }

    /// Bytes of all columns: 8 per slot in use when they were last looked at.
    pub fn column_bytes(&self) -> u64 {
        self.column_bytes.load(Ordering::Relaxed)
    }
}

fn is_open(column: &OwnedColumn) -> bool {
    // SAFETY: the owner, and it is in the list of columns that are not retired.
    !unsafe { column.numbers.get() }.complete.load(Ordering::Relaxed)
}

impl Drop for Columns {
    /// With the index, when no reader is left. Those that wait in the attic are out of the list.
    fn drop(&mut self) {
        for column in self.all.drain(..) {
            // SAFETY: above.
            unsafe { column.numbers.free() };
        }
    }
}
