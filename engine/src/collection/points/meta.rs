//! One cache line of facts per slot, and the bitset that makes looking at it rare.
//!
//! A slot is visible to a reader with snapshot `s` when `born <= s < died` and its deadline has not passed. Almost
//! every slot of a settled collection is plainly visible, so one bit per slot says "look closer": it is set for dead
//! and free slots, for slots with a deadline, and for new ones until no reader can hold a snapshot older than their
//! birth. A clear bit means visible and costs no line.
use super::row_block::{RowBlock, row_cost};
use crate::distance::{prefetch_line, prefetch_row};
use crate::memory::{Arena, ArenaError, Domain, Owned, Pin, ScratchFiles};
use crate::payload::PayloadRow;
use crate::slot::Slot;
use ahash::HashMap;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// `died` of a slot that lives.
pub(super) const ALIVE: u64 = u64::MAX;

/// The line of one slot. All zero = never used, which reads as "died before the first write".
#[repr(C, align(64))]
struct Line {
    id: AtomicU64,
    /// At birth. A row carries its own, so that the two are read as of one moment.
    version: AtomicU64,
    born: AtomicU64,
    died: AtomicU64,
    deadline_ms: AtomicU64,
    row: AtomicPtr<u8>,
    reserved: [AtomicU64; 2],
}
const LINE_WORDS: usize = 8;
/// Bytes of a row that are asked for ahead.
const ROW_AHEAD: usize = 256;
const _: () = assert!(size_of::<Line>() == LINE_WORDS * size_of::<u64>());

/// What a slot is born with.
pub(crate) struct Birth<'a> {
    pub id: u64,
    pub version: u64,
    pub born: u64,
    pub deadline_ms: u64,
    pub row: &'a [u8],
}

/// The right to free rows. There is one for each [`Meta`], and the writer has it: a row that was read through a shared reference to it stays
/// as long as that reference, since rows are freed through an exclusive one.
pub(super) struct RowsOwner {
    meta: u64,
}

/// The right to read rows under a pin. It is for slots that were found under the pin: a slot that readers can find is freed after all of
/// them have unpinned, so its row stays as long as the pin does, also when the owner gives the slot another.
#[derive(Clone, Copy)]
pub(super) struct PinnedRows<'p> {
    meta: &'p Meta,
    pin: PhantomData<&'p Pin<'p>>,
}

impl<'p> PinnedRows<'p> {
    /// The payload row, empty = none.
    #[inline]
    pub fn row(self, slot: Slot) -> &'p [u8] {
        // SAFETY: the pin is older than this look at the slot, and what the slot leads to is not freed before the pin drops.
        unsafe { self.meta.row(slot) }
    }

    /// The payload row and the version of the point that has it, as of one moment.
    #[inline]
    pub fn row_and_version(self, slot: Slot) -> (&'p [u8], u64) {
        // SAFETY: as in `row`.
        unsafe { self.meta.row_and_version(slot) }
    }
}

/// Lines and bits of all slots. Only the owner calls the methods that change something.
pub(super) struct Meta {
    /// Tells its [`RowsOwner`] from others.
    id: u64,
    /// Readers of rows are pinned in it.
    domain: Arc<Domain>,
    lines: Arena<AtomicU64>,
    special: Arena<AtomicU64>,
    slots_max: usize,
    /// Rows that have been replaced and may still be read, by slot, oldest first.
    replaced: Owned<HashMap<Slot, VecDeque<RowBlock>>>,
    /// Heap bytes of row blocks.
    row_bytes: AtomicU64,
}

impl Meta {
    /// Lines come from `scratch`. Readers pin in `domain`.
    pub fn reserve(
        slots_max: usize,
        scratch: &ScratchFiles,
        domain: Arc<Domain>,
    ) -> Result<(Meta, RowsOwner), ArenaError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let meta = Meta {
            id,
            domain,
            lines: scratch.reserve(slots_max, LINE_WORDS)?,
            special: Arena::reserve_to_grow(slots_max.div_ceil(64), 1)?,
            slots_max,
            replaced: Owned::new(HashMap::default()),
            row_bytes: AtomicU64::new(0),
        };
        Ok((meta, RowsOwner { meta: id }))
    }

    /// Owner: makes sure that lines of the first `slots` slots can be touched.
    ///
    /// # Errors
    /// The file system's, above all that it is full.
    pub fn commit(&self, slots: usize) -> std::io::Result<()> {
        self.special.commit(slots.div_ceil(64))?;
        self.lines.commit(slots)
    }

    /// Lines of slots `from..to` (see [`Arena::populate`]).
    pub fn populate(&self, from: usize, to: usize) {
        self.lines.populate(from, to);
    }

    #[inline]
    fn line(&self, slot: Slot) -> &Line {
        assert!((slot as usize) < self.slots_max, "slot {slot} of {}", self.slots_max);
        // SAFETY: `slot` is in range, so the pointer leads to a row of LINE_WORDS u64s, 64-byte aligned as 64 divides
        // the row's size. `Line` has that size, consists of atomics only, and any bytes the arena ever holds there
        // (zeros, or what this type stored) are valid for it. No exclusive reference to the arena is ever made.
        unsafe { &*self.lines.row_ptr(slot as usize).cast::<Line>() }
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.special.cells(index)[0]
    }

    /// The "look closer" bits of slots `64 * index ..`.
    #[inline]
    pub fn special_word(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    #[inline]
    fn is_special(&self, slot: Slot) -> bool {
        self.word(slot as usize / 64).load(Ordering::Acquire) >> (slot % 64) & 1 == 1
    }

    /// Owner: plain load and store suffice, there is one writer.
    fn set_special(&self, slot: Slot, on: bool) {
        let word = self.word(slot as usize / 64);
        let (old, bit) = (word.load(Ordering::Relaxed), 1u64 << (slot % 64));
        word.store(if on { old | bit } else { old & !bit }, Ordering::Release);
    }

    /// Whether a reader with snapshot `seq` sees the slot.
    #[inline]
    pub fn visible(&self, slot: Slot, seq: u64, now_ms: u64) -> bool {
        !self.is_special(slot) || self.visible_by_line(slot, seq, now_ms)
    }

    /// As `visible`, from the line alone.
    #[inline]
    pub fn visible_by_line(&self, slot: Slot, seq: u64, now_ms: u64) -> bool {
        let line = self.line(slot);
        // `died` before `born`: a slot being reused while a scan passes over it either still shows the old death
        // (at or before any snapshot taken since it was freed) or, stored after it, the new birth.
        line.died.load(Ordering::Acquire) > seq
            && line.born.load(Ordering::Acquire) <= seq
            && !expired(line.deadline_ms.load(Ordering::Relaxed), now_ms)
    }

    /// Whether the slot's death lies after `seq`.
    pub fn survives(&self, slot: Slot, seq: u64) -> bool {
        self.line(slot).died.load(Ordering::Acquire) > seq
    }

    /// Whether the slot has died (or was never used).
    #[inline]
    pub fn is_dead(&self, slot: Slot) -> bool {
        self.is_special(slot) && self.line(slot).died.load(Ordering::Acquire) != ALIVE
    }

    pub fn id(&self, slot: Slot) -> u64 {
        self.line(slot).id.load(Ordering::Relaxed)
    }
    pub fn died(&self, slot: Slot) -> u64 {
        self.line(slot).died.load(Ordering::Relaxed)
    }
    pub fn born(&self, slot: Slot) -> u64 {
        self.line(slot).born.load(Ordering::Relaxed)
    }
    pub fn deadline_ms(&self, slot: Slot) -> u64 {
        self.line(slot).deadline_ms.load(Ordering::Relaxed)
    }

    /// Any core: rows of slots that are found under this pin.
    ///
    /// # Panics
    /// When the pin is of another domain.
    #[inline]
    pub fn rows_under<'p>(&'p self, pin: &'p Pin<'_>) -> PinnedRows<'p> {
        pin.assert_of(&self.domain);
        PinnedRows { meta: self, pin: PhantomData }
    }

    /// The payload row, empty = none.
    ///
    /// # Safety
    /// The row is not freed while the slice lives: the caller is the owner, or holds a pin taken when the slot was
    /// reachable.
    #[inline]
    unsafe fn row(&self, slot: Slot) -> &[u8] {
        // SAFETY: a row word leads to a block that is freed by `free` or by the owner's limbo only (caller).
        self.block(slot).map_or(&[], |block| unsafe { block.bytes() })
    }

    /// Owner: the payload row, empty = none.
    pub fn owned_row<'o>(&'o self, owner: &'o RowsOwner, slot: Slot) -> &'o [u8] {
        self.owned_row_and_version(owner, slot).0
    }

    /// Owner: the payload row and the version of the point that has it.
    pub fn owned_row_and_version<'o>(&'o self, owner: &'o RowsOwner, slot: Slot) -> (&'o [u8], u64) {
        self.assert_owner(owner);
        // SAFETY: rows are freed through `&mut RowsOwner` alone, which cannot be had while `owner` is borrowed.
        unsafe { self.row_and_version(slot) }
    }

    fn assert_owner(&self, owner: &RowsOwner) {
        assert_eq!(owner.meta, self.id, "the owner of the rows of another collection");
    }

    /// Asks for a slot's line. A hint.
    #[inline]
    pub fn prefetch_line(&self, slot: Slot) {
        prefetch_line(self.lines.row_ptr(0).wrapping_add(slot as usize * LINE_WORDS));
    }

    /// Asks for the first of a slot's row, whose line is at hand. A hint.
    #[inline]
    pub fn prefetch_row(&self, slot: Slot) {
        prefetch_row(self.line(slot).row.load(Ordering::Relaxed), ROW_AHEAD);
    }

    /// The payload row and the version of the point that has it, as of one moment.
    ///
    /// # Safety
    /// As [`Self::row`].
    #[inline]
    unsafe fn row_and_version(&self, slot: Slot) -> (&[u8], u64) {
        match self.block(slot) {
            // SAFETY: as in `row`.
            Some(block) => unsafe { (block.bytes(), block.version()) },
            // Born without a row and never given one since: `replace_row` leaves a block, if an empty one.
            None => (&[], self.line(slot).version.load(Ordering::Relaxed)),
        }
    }

    /// The block of a slot's row; none = born without.
    fn block(&self, slot: Slot) -> Option<RowBlock> {
        RowBlock::from_ptr(self.line(slot).row.load(Ordering::Acquire))
    }

    /// Owner: gives a live slot another row and version in one store. Whether it had one, which is kept until
    /// [`Self::free_oldest_replaced`].
    pub fn replace_row(&self, slot: Slot, row: &[u8], version: u64) -> bool {
        let old = self.block(slot);
        self.line(slot).row.store(RowBlock::new(version, row).as_ptr(), Ordering::Release);
        self.row_bytes.fetch_add(row_cost(row.len()), Ordering::Relaxed);
        if let Some(old) = old {
            self.replaced.enter().entry(slot).or_default().push_back(old);
        }
        old.is_some()
    }

    /// Owner: the rows that a slot has had and that are kept, oldest first, and at the end the one that it has.
    pub fn rows_of<'o>(&'o self, owner: &'o RowsOwner, slot: Slot) -> Vec<PayloadRow<'o>> {
        self.assert_owner(owner);
        let replaced = self.replaced.enter();
        let blocks = replaced.get(&slot).into_iter().flatten();
        // SAFETY: rows are freed through `&mut RowsOwner` alone, which cannot be had while `owner` is borrowed.
        let kept = blocks.map(|block| unsafe { block.bytes() });
        kept.chain([self.owned_row(owner, slot)]).map(PayloadRow::trusted).collect()
    }

    /// Owner: frees the oldest replaced row of a slot.
    ///
    /// # Safety
    /// No reader can hold a reference to it.
    ///
    /// # Panics
    /// When none is kept.
    pub unsafe fn free_oldest_replaced(&self, owner: &mut RowsOwner, slot: Slot) {
        let mut replaced = self.replaced.enter();
        let blocks = replaced.get_mut(&slot).expect("a row that was replaced");
        let oldest = blocks.pop_front().expect("a row that was replaced");
        if blocks.is_empty() {
            replaced.remove(&slot);
        }
        // SAFETY: out of the line since it was replaced and out of the map just now, so freed once; the caller vouches for readers.
        unsafe { self.free_block(owner, oldest) };
    }

    /// Owner: frees a block that no line leads to any more.
    ///
    /// # Safety
    /// Freed once, and no reader can hold a reference to it.
    unsafe fn free_block(&self, owner: &mut RowsOwner, block: RowBlock) {
        self.assert_owner(owner);
        // SAFETY: the caller's.
        let len = unsafe { block.free() };
        self.row_bytes.fetch_sub(row_cost(len), Ordering::Relaxed);
    }

    /// Owner: fills the line of a slot no reader sees and marks it alive. It stays special until `settle`.
    pub fn birth(&self, slot: Slot, birth: &Birth<'_>) {
        let line = self.line(slot);
        debug_assert!(line.row.load(Ordering::Relaxed).is_null(), "slot {slot} still has a row");
        self.set_special(slot, true);
        line.born.store(birth.born, Ordering::Relaxed);
        line.id.store(birth.id, Ordering::Relaxed);
        line.version.store(birth.version, Ordering::Relaxed);
        line.deadline_ms.store(birth.deadline_ms, Ordering::Relaxed);
        if !birth.row.is_empty() {
            line.row.store(RowBlock::new(birth.version, birth.row).as_ptr(), Ordering::Relaxed);
            self.row_bytes.fetch_add(row_cost(birth.row.len()), Ordering::Relaxed);
        }
        line.died.store(ALIVE, Ordering::Release);
    }

    /// Owner: every snapshot still in use is at least `born`, so the slot born then needs no closer look, unless it
    /// died, has a deadline or was born again.
    pub fn settle(&self, slot: Slot, born: u64) {
        let line = self.line(slot);
        let plain = line.died.load(Ordering::Relaxed) == ALIVE
            && line.deadline_ms.load(Ordering::Relaxed) == 0
            && line.born.load(Ordering::Relaxed) == born;
        if plain {
            self.set_special(slot, false);
        }
    }

    /// Owner: the slot dies at `seq`.
    pub fn bury(&self, slot: Slot, seq: u64) {
        self.set_special(slot, true);
        self.line(slot).died.store(seq, Ordering::Release);
    }

    /// Owner: gives the row back. The slot stays dead and special until its next birth.
    ///
    /// # Safety
    /// The slot is dead and no reader can hold a reference to its row.
    pub unsafe fn free(&self, owner: &mut RowsOwner, slot: Slot) {
        self.assert_owner(owner);
        let line = self.line(slot);
        debug_assert!(line.died.load(Ordering::Relaxed) != ALIVE, "slot {slot} is alive");
        if let Some(block) = RowBlock::from_ptr(line.row.swap(std::ptr::null_mut(), Ordering::Relaxed)) {
            // SAFETY: taken out of the line just now, so freed once; the caller vouches for readers.
            unsafe { self.free_block(owner, block) };
        }
    }

    /// Heap bytes of all rows.
    pub fn row_bytes(&self) -> u64 {
        self.row_bytes.load(Ordering::Relaxed)
    }

    /// Committed bytes for `slots` slots, rows apart, and lines where they lie in a file.
    pub fn bytes(&self, slots: u64) -> u64 {
        slots * size_of::<Line>() as u64 + slots.div_ceil(8) - self.file_bytes(slots)
    }

    /// Bytes of the lines of `slots` slots that lie in a file.
    pub fn file_bytes(&self, slots: u64) -> u64 {
        if self.lines.is_file() { slots * size_of::<Line>() as u64 } else { 0 }
    }

    /// Frees every row; for dropping the collection.
    pub fn free_rows(&mut self, slots: usize) {
        // Lines may have to come from a disk.
        if self.row_bytes() == 0 {
            return;
        }
        // Nobody has a reference to `self`, nor to a row.
        let owner = &mut RowsOwner { meta: self.id };
        let replaced = std::mem::take(&mut *self.replaced.enter());
        for block in replaced.into_values().flatten() {
            // SAFETY: in no line since it was replaced and out of the map just now, and `&mut self` means no reader exists.
            unsafe { self.free_block(owner, block) };
        }
        for slot in 0..slots as Slot {
            self.line(slot).died.store(0, Ordering::Relaxed);
            // SAFETY: dead as of now, and `&mut self` means no reader exists.
            unsafe { self.free(owner, slot) };
        }
    }
}

/// Whether an absolute deadline (0 = none) has passed.
#[inline]
pub(super) fn expired(deadline_ms: u64, now_ms: u64) -> bool {
    deadline_ms != 0 && deadline_ms <= now_ms
}
