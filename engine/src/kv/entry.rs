//! An entry: one key with its value and deadline, as words of a page.
//!
//! ```text
//! word 0   value length (32 bits) | key length (16) | bodies (15) | visited (1)
//! word 1   sequence (32 bits) | timer (32)
//! word 2   deadline, ms since 1970; 0 = none
//!          key           from a word boundary, its last word filled with zero bytes
//!          bodies        numbers of pages that hold the first part of a long value, a word each
//!          value         or what the bodies leave of it
//! ```
//!
//! # Invariants
//!
//! 1. Lengths, key and bodies are written before the entry is published and never again until its page is reused, which waits
//!    for all readers.
//! 2. *Visited* is the one thing readers write. Word 0 is constant otherwise once it is published, so every store to it, the
//!    owner's included, is of the same value and none can undo another.
//! 3. The deadline is one word: whoever loads it has an old one or a new one. It may change alone at any time.
//! 4. The value changes only by [`Entry::rewrite`], under the sequence: odd while words are being replaced.
//!
//! # Reading a value that may be rewritten
//!
//! The usual sequence lock. Reader: load the sequence (Acquire), copy, fence (Acquire), load it again; odd or changed: once
//! more. Owner: sequence odd (Relaxed), fence (Release), words (Relaxed), sequence even (Release). A copy that contains one
//! word of a rewrite has synchronised, by the two fences, with the store of the odd sequence, so the second load shows it. A
//! reader tries a few times only and then says [`Torn`]: the owner may have been descheduled in the middle, and readers wait
//! for nobody. The sequence has 32 bits: to be fooled, a reader would have to sleep through exactly 2^31 rewrites.

use super::wheel::Timer;
use super::words::{WORD, append_bytes, equal_bytes, store_bytes, words_of};
use crate::memory::sync::{AtomicU64, Ordering, fence};

/// Words before the key.
const HEADER_WORDS: usize = 3;

/// Words of the smallest entry: header and a key. (One key is empty.)
pub(super) const ENTRY_WORDS_MIN: usize = HEADER_WORDS + 1;

/// Longest key, bytes.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// Longest value, bytes.
pub const VALUE_BYTES_MAX: usize = 16 << 20;
/// Most pages that a value may fill.
pub(super) const BODIES_MAX: usize = (1 << 15) - 1;

/// How often a reader tries before it gives up. The owner needs some 10 ns for a short value.
#[cfg(not(loom))]
const TRIES: usize = 64;
#[cfg(loom)]
const TRIES: usize = 2;

const VISITED: u64 = 1 << 63;
const SEQUENCE: u64 = u32::MAX as u64;

/// The owner was in the middle of a rewrite each time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Torn;

/// Word 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head(u64);

impl Head {
    /// How a key and value of these lengths are laid out on pages of `page_words`, with at most half a page in the entry
    /// itself; `None` when that cannot be.
    ///
    /// Half, so that at most half a page is left over where the next entry does not fit, and so that any entry can be rescued
    /// from a page that is emptied.
    pub(super) fn layout(key_len: usize, value_len: usize, page_words: usize) -> Option<Head> {
        let page_bytes = page_words * WORD;
        let head = |bodies: usize| {
            Head(value_len as u64 | (key_len as u64) << 32 | (bodies.min(BODIES_MAX) as u64) << 48)
        };
        let whole = head(0);
        if whole.words(page_words) <= page_words / 2 {
            return Some(whole);
        }
        let bodies = value_len / page_bytes;
        // What is left goes into the entry where it fits, else into one more page.
        [bodies, bodies + 1].into_iter().find_map(|bodies| {
            let head = head(bodies);
            (bodies <= BODIES_MAX && head.words(page_words) <= page_words / 2).then_some(head)
        })
    }

    pub(super) fn visited(self, visited: bool) -> Head {
        Head(self.0 & !VISITED | if visited { VISITED } else { 0 })
    }

    pub(super) fn is_visited(self) -> bool {
        self.0 & VISITED != 0
    }

    #[inline]
    pub(super) fn key_len(self) -> usize {
        (self.0 >> 32) as usize & 0xFFFF
    }

    #[inline]
    pub(super) fn value_len(self) -> usize {
        (self.0 & 0xFFFF_FFFF) as usize
    }

    #[inline]
    pub(super) fn bodies(self) -> usize {
        (self.0 >> 48) as usize & BODIES_MAX
    }

    /// Bytes of the value in the entry itself.
    #[inline]
    pub(super) fn inline_len(self, page_words: usize) -> usize {
        self.value_len().saturating_sub(self.bodies() * page_words * WORD)
    }

    /// Words of the entry.
    #[inline]
    pub(super) fn words(self, page_words: usize) -> usize {
        HEADER_WORDS + words_of(self.key_len()) + self.bodies() + words_of(self.inline_len(page_words))
    }
}

/// The words of an entry.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    head: Head,
    cells: &'a [AtomicU64],
}

impl<'a> Entry<'a> {
    /// The head of the entry that starts with `cell`.
    #[inline]
    pub(super) fn head_at(cell: &AtomicU64) -> Head {
        // Relaxed: whoever has the entry's place has it from an Acquire load.
        Head(cell.load(Ordering::Relaxed))
    }

    /// `cells` are as many as the head says.
    #[inline]
    pub(super) fn new(head: Head, cells: &'a [AtomicU64]) -> Entry<'a> {
        Entry { head, cells }
    }

    /// Owner: writes an entry that nobody can reach yet, but for the value and the bodies.
    pub(super) fn write(&self, key: &[u8], deadline_ms: u64, timer: Timer) {
        self.cells[0].store(self.head.0, Ordering::Relaxed);
        self.cells[1].store(u64::from(timer) << 32, Ordering::Relaxed);
        self.cells[2].store(deadline_ms, Ordering::Relaxed);
        store_bytes(&self.cells[HEADER_WORDS..], key);
    }

    /// Owner: makes this a copy of `other`, which has the same layout; nobody can reach it yet.
    pub(super) fn copy_from(&self, other: &Entry<'_>) {
        for (to, from) in self.cells.iter().zip(other.cells) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.cells[0].store(self.head.0, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn head(&self) -> Head {
        self.head
    }

    #[inline]
    fn bodies_at(&self) -> usize {
        HEADER_WORDS + words_of(self.head.key_len())
    }

    /// Cells of the bodies' page numbers.
    #[inline]
    pub(super) fn bodies(&self) -> &'a [AtomicU64] {
        let from = self.bodies_at();
        &self.cells[from..from + self.head.bodies()]
    }

    /// Cells of the value, or of what the bodies leave of it.
    #[inline]
    pub(super) fn value(&self) -> &'a [AtomicU64] {
        &self.cells[self.bodies_at() + self.head.bodies()..]
    }

    #[inline]
    pub(super) fn has_key(&self, key: &[u8]) -> bool {
        self.head.key_len() == key.len() && equal_bytes(&self.cells[HEADER_WORDS..], key)
    }

    pub(super) fn append_key(&self, out: &mut Vec<u8>) {
        append_bytes(&self.cells[HEADER_WORDS..], self.head.key_len(), out);
    }

    /// 0 = none.
    #[inline]
    pub(super) fn deadline_ms(&self) -> u64 {
        self.cells[2].load(Ordering::Relaxed)
    }

    /// Owner.
    pub(super) fn set_deadline(&self, deadline_ms: u64) {
        self.cells[2].store(deadline_ms, Ordering::Relaxed);
    }

    /// Owner's: the item of the wheel.
    pub(super) fn timer(&self) -> Timer {
        (self.cells[1].load(Ordering::Relaxed) >> 32) as Timer
    }

    /// Owner. Readers may try once more because of it.
    pub(super) fn set_timer(&self, timer: Timer) {
        let sequence = self.cells[1].load(Ordering::Relaxed) & SEQUENCE;
        self.cells[1].store(sequence | u64::from(timer) << 32, Ordering::Relaxed);
    }

    /// Any core: notes that the entry was of use. Writes only the first time, so hot entries stay shared between caches.
    #[inline]
    pub(super) fn visit(&self) {
        let now = Self::head_at(&self.cells[0]);
        if !now.is_visited() {
            self.cells[0].store(now.visited(true).0, Ordering::Relaxed);
        }
    }

    /// Any core: what `copy` makes of a value that is not changed meanwhile; it may be called several times. The number is that of
    /// vain tries.
    #[inline]
    pub(super) fn read<R>(&self, mut copy: impl FnMut() -> R) -> (usize, Result<R, Torn>) {
        for vain in 0..TRIES {
            let before = self.cells[1].load(Ordering::Acquire) & SEQUENCE;
            if before & 1 == 0 {
                let copied = copy();
                fence(Ordering::Acquire);
                if self.cells[1].load(Ordering::Relaxed) & SEQUENCE == before {
                    return (vain, Ok(copied));
                }
            }
            std::hint::spin_loop();
        }
        (TRIES, Err(Torn))
    }

    /// Owner: replaces a value without bodies by one of the same length, and the deadline.
    pub(super) fn rewrite(&self, value: &[u8], deadline_ms: u64, timer: Timer) {
        debug_assert!(self.head.bodies() == 0 && self.head.value_len() == value.len());
        let sequence = (self.cells[1].load(Ordering::Relaxed) & SEQUENCE) as u32;
        let word = |sequence: u32| u64::from(sequence) | u64::from(timer) << 32;
        self.cells[1].store(word(sequence.wrapping_add(1)), Ordering::Relaxed);
        fence(Ordering::Release);
        self.cells[2].store(deadline_ms, Ordering::Relaxed);
        store_bytes(self.value(), value);
        self.cells[1].store(word(sequence.wrapping_add(2)), Ordering::Release);
    }
}
