//! The memory of a store: words that the owner writes and any core reads, and byte strings in them.
//!
//! Every word is an atomic, so a reader that meets a rewrite finds old and new words mixed and never undefined behaviour;
//! whether what it found belongs together is decided above (`entry`). A string starts on a word and its last word is filled
//! up with zero bytes. On the machines we build for, relaxed accesses are plain moves: copying goes at the pace of memory.

use crate::memory::ArenaError;
use crate::memory::sync::{AtomicU64, Ordering::Relaxed};

/// Bytes of a word.
pub(super) const WORD: usize = 8;

/// Words that `bytes` bytes take.
#[inline]
pub(super) const fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(WORD)
}

/// A number of words, zero at first, in reserved address space: nothing moves, and what was never written costs nothing.
#[cfg(not(loom))]
pub(super) struct Words(crate::memory::Arena<AtomicU64>);

#[cfg(not(loom))]
impl Words {
    pub(super) fn reserve(count: usize) -> Result<Words, ArenaError> {
        crate::memory::Arena::reserve(count, 1).map(Words)
    }

    /// Words `first..end`. Panics when they are not all there.
    #[inline]
    pub(super) fn cells(&self, first: usize, end: usize) -> &[AtomicU64] {
        self.0.cells_of(first, end)
    }

    /// Gives the memory of words `first..end` back, whole pages of the system; they read as zero again.
    pub(super) fn release(&self, first: usize, end: usize) {
        self.0.release(first, end);
    }

    /// Asks for the line of a word. A hint: any number will do.
    #[inline]
    pub(super) fn prefetch(&self, at: usize) {
        if at < self.0.capacity() {
            crate::distance::prefetch_line(self.0.row_ptr(at));
        }
    }

    /// Bytes of the first `count` words that are in memory.
    #[cfg(test)]
    pub(super) fn resident_bytes(&self, count: usize) -> usize {
        self.0.resident_bytes(count)
    }
}

/// The same under loom, whose atomics cannot lie in zeroed pages.
#[cfg(loom)]
pub(super) struct Words(Box<[AtomicU64]>);

#[cfg(loom)]
impl Words {
    pub(super) fn reserve(count: usize) -> Result<Words, ArenaError> {
        Ok(Words((0..count).map(|_| AtomicU64::new(0)).collect()))
    }

    pub(super) fn cells(&self, first: usize, end: usize) -> &[AtomicU64] {
        &self.0[first..end]
    }

    pub(super) fn release(&self, first: usize, end: usize) {
        self.0[first..end].iter().for_each(|cell| cell.store(0, Relaxed));
    }

    pub(super) fn prefetch(&self, _: usize) {}
}

/// Owner: writes `bytes` into the first words of `cells`.
#[inline]
pub(super) fn store_bytes(cells: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<WORD>();
    for (cell, chunk) in cells.iter().zip(whole) {
        cell.store(u64::from_le_bytes(*chunk), Relaxed);
    }
    if !rest.is_empty() {
        cells[whole.len()].store(last_word(rest), Relaxed);
    }
}

/// Appends the first `len` bytes of `cells` to `out`.
#[inline]
pub(super) fn append_bytes(cells: &[AtomicU64], len: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + len, 0);
    let (whole, rest) = out[start..].as_chunks_mut::<WORD>();
    for (chunk, cell) in whole.iter_mut().zip(cells) {
        *chunk = cell.load(Relaxed).to_le_bytes();
    }
    if !rest.is_empty() {
        let last = cells[len / WORD].load(Relaxed).to_le_bytes();
        rest.copy_from_slice(&last[..len % WORD]);
    }
}

/// Whether the first bytes of `cells` are `bytes`.
#[inline]
pub(super) fn equal_bytes(cells: &[AtomicU64], bytes: &[u8]) -> bool {
    let (whole, rest) = bytes.as_chunks::<WORD>();
    whole.iter().zip(cells).all(|(chunk, cell)| cell.load(Relaxed) == u64::from_le_bytes(*chunk))
        && (rest.is_empty() || {
            // What fills up the last word is zero when it is the string's last, and not when it goes on.
            let mask = u64::MAX >> (64 - 8 * rest.len());
            cells[whole.len()].load(Relaxed) & mask == last_word(rest)
        })
}

fn last_word(rest: &[u8]) -> u64 {
    let mut word = [0; WORD];
    word[..rest.len()].copy_from_slice(rest);
    u64::from_le_bytes(word)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn strings_of_every_length_come_back() {
        let words = Words::reserve(8).unwrap();
        let bytes: Vec<u8> = (1..=40).collect();
        for len in 0..bytes.len() {
            let cells = words.cells(1, 1 + words_of(len));
            store_bytes(cells, &bytes[..len]);
            let mut out = vec![9];
            append_bytes(cells, len, &mut out);
            assert_eq!((out[0], &out[1..]), (9, &bytes[..len]));
            assert!(equal_bytes(cells, &bytes[..len]));
            for wrong in 0..len {
                let mut other = bytes[..len].to_vec();
                other[wrong] ^= 1;
                assert!(!equal_bytes(cells, &other), "byte {wrong} of {len}");
            }
            assert!((0..=len).all(|part| equal_bytes(cells, &bytes[..part])), "parts are compared as such");
        }
    }
}
