//! Columns: one f64 per slot of a field that is asked for ranges, so that a walk compares a number instead of following a
//! row, and a byte per slot that says about where the number lies ([`Buckets`]), for reading a column through.
//!
//! A reader that could use a column says so and does without; the owner fills it in slices and from then on keeps it with
//! every row it files. At most [`COLUMNS_MAX`] fields have one. Which goes when another comes is decided as by a clock hand:
//! the first that no reader has used since the hand last passed, an approximation of the least recently used that costs a
//! reader one store.

use super::buckets::{BLOCK, Buckets, SAMPLE};
use super::key::of_text;
use super::{Class, Field, PayloadIndex, View};
use crate::distance::{COLUMN_WORD as WORD, ColumnKernel, prefetch_line};
use crate::memory::{Arena, Attic, Held, Link, LinkCell, allocated};
use crate::payload::{PayloadRow, ValueRef};
use crate::slot::Slot;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Most fields with a column: eight filters' ranges, 72 bytes per slot with their buckets (and another byte each while these are
/// bounded anew).
const COLUMNS_MAX: usize = 8;
/// Pages that were never written read as zero, which must mean "no number": numbers are stored with the bits of NaN flipped.
const NONE: u64 = f64::NAN.to_bits();

/// Fewest numbers written since buckets were bounded that make them be bounded anew.
const REBOUND_MIN: usize = if cfg!(test) { 64 } else { 1024 };

/// The numbers of a field, by slot.
pub(super) struct Numbers {
    values: Arena<AtomicU64>,
    /// Every filed slot is in.
    complete: AtomicBool,
    used: AtomicBool,
    /// Every filed slot is in.
    buckets: LinkCell<Buckets>,
    /// Those that will take their place, for the owner.
    next_buckets: LinkCell<Buckets>,
    /// Numbers written since the last buckets were bounded.
    written: AtomicUsize,
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
        for buckets in self.all_buckets() {
            // SAFETY: the owner calls this, who alone unlinks and retires buckets, and does neither meanwhile.
            unsafe { buckets.get() }.set(slot, value);
        }
        self.written.store(self.written.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn get(&self, slot: usize) -> Option<f64> {
        match self.values.cells(slot)[0].load(Ordering::Relaxed) {
            0 => None,
            bits => Some(f64::from_bits(bits ^ NONE)),
        }
    }

    /// Asks for a slot's number. A hint: any slot is allowed.
    fn prefetch(&self, slot: usize) {
        prefetch_line(self.values.row_ptr(0).wrapping_add(slot));
    }

    fn all_buckets(&self) -> impl Iterator<Item = Link<Buckets>> {
        self.buckets.load().into_iter().chain(self.next_buckets.load())
    }

    /// Owner: numbers of up to [`SAMPLE`] slots evenly among the first `slots`.
    fn sample(&self, slots: usize) -> Vec<f64> {
        (0..slots).step_by(slots.div_ceil(SAMPLE).max(1)).filter_map(|slot| self.get(slot)).collect()
    }
}

/// The slots of a word's bits.
fn slots_of(first: usize, bits: u64) -> impl Iterator<Item = usize> {
    let mut left = bits;
    std::iter::from_fn(move || {
        let slot = (left != 0).then(|| first + left.trailing_zeros() as usize);
        left &= left.wrapping_sub(1);
        slot
    })
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
    /// Slots when the last buckets were bounded, 0 before; and those that are in the next, while these are filled.
    bounded_at: usize,
    bucketed: Option<usize>,
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
        self.0.get(slot as usize)
    }

    /// Where the buckets in use are.
    #[cfg(test)]
    pub fn buckets_at(self) -> Option<usize> {
        // SAFETY: reached under the pin that this column was reached under.
        self.0.buckets.load().map(|buckets| std::ptr::from_ref(unsafe { buckets.get() }).addr())
    }

    /// Clears the bits of slots whose number is not between `low` and `high`, both inclusive, and of those without one. Reads
    /// the buckets of all words that are not empty, and the numbers in those of the bounds.
    pub fn retain(self, words: &mut [u64], low: f64, high: f64) {
        if low.is_nan() || high.is_nan() {
            return words.fill(0);
        }
        match self.0.buckets.load() {
            // SAFETY: reached under the pin that this column was reached under.
            Some(buckets) => self.retain_by(unsafe { buckets.get() }, words, low, high),
            None => self.retain_by_numbers(words, low, high),
        }
    }

    fn retain_by(self, buckets: &Buckets, words: &mut [u64], low: f64, high: f64) {
        let ends = buckets.ends(low, high);
        buckets.prefetch(0);
        for (index, words) in words.chunks_mut(BLOCK).enumerate() {
            buckets.prefetch((index + 1) * BLOCK);
            if words.iter().all(|&word| word == 0) {
                continue;
            }
            let first = index * BLOCK;
            let block = buckets.block(first, ends);
            // All numbers that have to be looked at are waited for at once: they lie far apart.
            let unsure =
                |(word, &asked): (usize, &u64)| slots_of((first + word) * WORD, block[word].1 & asked);
            words.iter().enumerate().flat_map(unsure).for_each(|slot| self.0.prefetch(slot));
            for (index, word) in words.iter_mut().enumerate() {
                let (mut inside, unsure) = block[index];
                for slot in slots_of((first + index) * WORD, unsure & *word) {
                    let number = self.0.get(slot);
                    let passes = number.is_some_and(|number| number >= low && number <= high);
                    inside |= u64::from(passes) << (slot % WORD);
                }
                *word &= inside;
            }
        }
    }

    fn retain_by_numbers(self, words: &mut [u64], low: f64, high: f64) {
        let (values, kernel) = (&self.0.values, ColumnKernel::best());
        for (index, word) in words.iter_mut().enumerate().filter(|(_, word)| **word != 0) {
            let first = index * WORD;
            // What is missing is NaN, which lies nowhere.
            let mut numbers = [f64::NAN; WORD];
            let end = values.capacity();
            let cells = values.cells_of(first.min(end), end.min(first + WORD));
            for (number, value) in numbers.iter_mut().zip(cells) {
                *number = f64::from_bits(value.load(Ordering::Relaxed) ^ NONE);
            }
            *word &= kernel.between(&numbers, low, high);
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
    /// Bytes that one more column takes with `slots` slots in use.
    pub fn column_bytes_of(slots: usize) -> u64 {
        (slots * (size_of::<f64>() + if Buckets::pay() { Buckets::SLOT_BYTES } else { 0 })) as u64
    }

    /// Owner: how many columns the next step would add: none while one or its buckets are being filled, `None` when there is
    /// nothing to do.
    pub fn column_due(&self) -> Option<u64> {
        if Buckets::pay() && self.owner.enter().columns.all.iter().any(OwnedColumn::wants_buckets) {
            return Some(0);
        }
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
        let bytes = filing.columns.len() as u64 * Self::column_bytes_of(slots);
        self.column_bytes.store(bytes, Ordering::Relaxed);
        let Some(column) = filing.columns.all.iter_mut().find(|column| is_open(column)) else {
            let mut all = filing.columns.all.iter_mut();
            if Buckets::pay()
                && let Some(column) = all.find(|column| column.wants_buckets())
            {
                column.bucket_step(slots, max, self.slots_max, &mut filing.attic);
            }
            return;
        };
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
        let numbers = attic.make(Numbers {
            values,
            complete: AtomicBool::new(false),
            used: AtomicBool::new(true),
            buckets: LinkCell::new(None),
            next_buckets: LinkCell::new(None),
            written: AtomicUsize::new(0),
        });
        field.column.store(Some(numbers));
        let field = field.name.clone();
        columns.all.push(OwnedColumn { field, numbers, filled: 0, bounded_at: 0, bucketed: None });
    }

    fn drop_column(&self, gone: OwnedColumn, attic: &mut Attic) {
        // SAFETY: the owner; the field is only looked at.
        let field = of_text(&gone.field, &self.hasher, |name| unsafe { self.fields.get(name) });
        if let Some((field, _)) = field {
            field.column.store(None);
        }
        // SAFETY: made by this attic, unlinked just now (buckets with the numbers that link them), and out of the list of columns.
        unsafe {
            gone.numbers.get().all_buckets().for_each(|buckets| attic.retire(buckets));
            attic.retire(gone.numbers);
        }
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

    /// Bytes of all columns: 8 per slot in use when they were last looked at, and one for buckets where the CPU reads them.
    pub fn column_bytes(&self) -> u64 {
        self.column_bytes.load(Ordering::Relaxed)
    }
}

impl OwnedColumn {
    /// Its numbers are in, but not in buckets, or so many were written since that the buckets may have become uneven.
    fn wants_buckets(&self) -> bool {
        // SAFETY: the owner, and it is in the list of columns that are not retired.
        let written = unsafe { self.numbers.get() }.written.load(Ordering::Relaxed);
        !is_open(self) && (self.bucketed.is_some() || written > self.bounded_at.max(REBOUND_MIN))
    }

    /// One slice of filling buckets.
    fn bucket_step(&mut self, slots: usize, max: usize, slots_max: usize, attic: &mut Attic) {
        // SAFETY: as in `wants_buckets`; the attic at hand frees nothing before it is told to reclaim.
        let numbers = unsafe { self.numbers.get() };
        let from = match self.bucketed {
            Some(from) => from,
            None => {
                numbers.written.store(0, Ordering::Relaxed);
                self.bounded_at = slots;
                // Without address space they are tried again when as much has been written once more.
                let Some(next) = Buckets::new(numbers.sample(slots), slots_max) else { return };
                numbers.next_buckets.store(Some(attic.make(next)));
                0
            }
        };
        let Some(next) = numbers.next_buckets.load() else { return };
        let end = slots.min(from + max);
        for slot in from..end {
            // SAFETY: linked from the numbers, and the owner, who runs this, retires nothing before the loop ends.
            unsafe { next.get() }.set(slot as Slot, numbers.get(slot));
        }
        self.bucketed = (end < slots).then_some(end);
        // Slots used later were filed with these buckets in place.
        if end == slots {
            let old = numbers.buckets.load();
            numbers.buckets.store(Some(next));
            numbers.next_buckets.store(None);
            // SAFETY: made by this attic; unlinked just now, and linked from nowhere else.
            old.into_iter().for_each(|old| unsafe { attic.retire(old) });
        }
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
            // SAFETY: exclusive access, and no reader is left. A column in the list was not retired, nor were the buckets it still links;
            // each is linked from one place and freed once.
            unsafe {
                column.numbers.get().all_buckets().for_each(|buckets| buckets.free());
                column.numbers.free();
            }
        }
    }
}
