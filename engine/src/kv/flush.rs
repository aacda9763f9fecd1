//! Emptying a store at once: readers and the owner go over to a fresh table, and what was there is taken down in slices.

use super::entry::ENTRY_WORDS_MIN;
use super::index::Index;
use super::op::StoreError;
use super::ruins::Ruin;
use super::wheel::Wheel;
use super::writer::Writer;

/// Rows of a flushed table whose memory is given back per slice: twice 512 KiB, some 50 µs.
const ROWS_PER_SLICE: u64 = 8192;

/// Blocks of a flushed wheel that are freed per slice.
const BLOCKS_PER_SLICE: usize = 8;

impl Writer {
    pub(super) fn prepare_flush(&mut self) -> Result<(), StoreError> {
        if self.ruins.next.is_none() {
            let words = super::pages::Pages::addressed(self.pages.budget()) * self.pages.page_words();
            self.ruins.next = Some(Index::new(words / ENTRY_WORDS_MIN, self.shared.domain.clone())?);
        }
        Ok(())
    }

    /// Removes every key: as many steps as there are pages, not keys.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        // A client that does nothing but flush takes down what it leaves.
        self.tidy();
        self.prepare_flush()?;
        let Some(fresh) = self.ruins.next.take() else { unreachable!("made just now") };
        let old = std::mem::replace(&mut self.index, fresh);
        self.shared.table.swap(self.index.table().clone());
        self.index.collisions = old.collisions;
        let ruin = Ruin {
            table: old.table().clone(),
            bytes: old.bytes(),
            rows: old.rows(),
            cleared: 0,
            wheel: std::mem::replace(&mut self.wheel, Wheel::new()),
        };
        self.ruins.waiting.push(&self.shared.domain, ruin);
        // Nothing leads to the pages any more, so they may be retired.
        self.abandon_drain();
        self.pages.clear();
        self.stats.flushes += 1;
        self.era += 1;
        Ok(())
    }

    /// Owner's background: takes down a slice of what a flush has left, some 100 µs. Returns whether there is more.
    pub fn tidy(&mut self) -> bool {
        if self.ruins.current.is_none() {
            self.ruins.current = self.ruins.waiting.pop(&self.shared.domain);
        }
        let Some(ruin) = &mut self.ruins.current else { return !self.ruins.waiting.is_empty() };
        if ruin.cleared < ruin.rows {
            let end = (ruin.cleared + ROWS_PER_SLICE).min(ruin.rows);
            ruin.table.release(ruin.cleared, end);
            ruin.cleared = end;
            return true;
        }
        if (0..BLOCKS_PER_SLICE).all(|_| ruin.wheel.dismantle()) {
            return true;
        }
        // Its readers have gone, so the publication lets go of it too.
        self.shared.table.reclaim();
        self.ruins.current = None;
        !self.ruins.waiting.is_empty()
    }
}
