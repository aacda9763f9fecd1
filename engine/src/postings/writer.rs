//! The owner's side: appending, marking, writing anew.

use super::extents::{Books, Extent, Retired};
use super::lists::{Cells, Directory, EntryHead, ListId, Lists, Root};
use super::{BLOCK, DEAD, Summary};
use crate::memory::Domain;
use crate::slot::Slot;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Two neighbours are joined when one of them is written anew and both fit with room for some more.
const JOINED_MAX: usize = BLOCK - BLOCK / 8;

/// A large list with so few postings becomes a small one. Half of what makes a list large, so that a list at the border
/// does not change back and forth.
const SMALL_AGAIN: usize = BLOCK / 2;

type Posting = (Slot, u32);

/// The only handle that changes the lists. Methods that need to know what a posting contributes take `summarize`, the
/// summary of one posting; it must answer for every live posting of the list.
pub(crate) struct ListsWriter<S> {
    lists: Arc<Lists>,
    domain: Arc<Domain>,
    books: Books,
    /// Postings being gathered.
    run: Vec<Posting>,
    /// Entries of the directory being made.
    entries: Vec<(EntryHead, S)>,
    summary: PhantomData<S>,
}

impl<S: Summary> ListsWriter<S> {
    pub fn new(lists: Arc<Lists>, domain: Arc<Domain>) -> ListsWriter<S> {
        ListsWriter {
            lists,
            domain,
            books: Books::new(),
            run: Vec::new(),
            entries: Vec::new(),
            summary: PhantomData,
        }
    }

    /// An empty list; no reader knows its number yet.
    pub fn new_list(&mut self) -> ListId {
        let (list, fresh) = self.books.allocate_list();
        if fresh {
            self.lists.rows.make(list);
        }
        self.lists.set_counts(list, 0, 0);
        self.lists.set_root(list, Root::EMPTY);
        list
    }

    /// Takes back a list without postings that new readers no longer find. Its number comes again after quiescence.
    pub fn drop_list(&mut self, list: ListId) {
        debug_assert_eq!(self.lists.postings(list), 0);
        self.retire_all(list);
        self.lists.set_root(list, Root::EMPTY);
        self.books.retire(Retired::List(list));
    }

    /// Cells for a lane's own use, of whatever content.
    pub fn allocate(&mut self, cells: usize) -> Extent {
        self.books.allocate(&self.lists.extents, cells)
    }

    /// Gives such cells back.
    pub fn retire(&mut self, extent: Extent) {
        self.books.retire(Retired::Extent(extent));
    }

    /// Ends an operation on any number of lists; what it left behind waits for readers as one. `more_bytes` is what the
    /// lane holds besides.
    pub fn seal(&mut self, more_bytes: usize) {
        self.books.seal(&self.domain);
        self.note_bytes(more_bytes);
    }

    /// Takes back all that no reader can see any more. Cheap when there is nothing.
    pub fn reclaim(&mut self, more_bytes: usize) {
        while self.books.reclaim(&self.domain) {}
        self.note_bytes(more_bytes);
    }

    fn note_bytes(&self, more: usize) {
        let bytes = self.books.bytes() + self.lists.rows.bytes(self.books.lists()) + more;
        self.lists.bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// Numbers of lists ever used.
    pub fn lists_used(&self) -> usize {
        self.books.lists()
    }

    /// Adds a posting; the slot has no live one in this list, and `value` is not [`DEAD`].
    ///
    /// Two stores. Each time 128 have come, the tail becomes a block: by one more store when slots ascend, else by
    /// writing the blocks they fall into anew (at most 128 of 1 KiB, usually few) and copying the directory (32 to 48 bytes
    /// per 128 postings of the list).
    pub fn insert(&mut self, list: ListId, slot: Slot, value: u32, summarize: &impl Fn(Slot, u32) -> S) {
        debug_assert_ne!(value, DEAD);
        let lists = self.lists.clone();
        loop {
            let root = lists.root(list);
            let len = root.tail_len();
            let (extent, room) = match root {
                Root::EMPTY => (Extent::NONE, 0),
                _ if root.is_large() => (lists.directory::<S>(root).block(root.blocks()), BLOCK),
                _ => (root.extent(), 1 << (root.extent().log2() - 1)),
            };
            if len < room {
                lists.postings_of(extent).set(len, slot, value);
                let grown = match root.is_large() {
                    true => Root::large(root.extent(), root.blocks(), len + 1),
                    false => Root::small(extent, len + 1),
                };
                lists.set_root(list, grown);
                lists.set_counts(list, lists.postings(list) + 1, lists.counted(list));
                return;
            }
            if root.is_large() {
                self.end_tail(list, root, summarize);
            } else {
                self.grow_small(list, root, summarize);
            }
        }
    }

    /// Removes the slot's live posting; false when there is none. One store, a search in the directory and a look
    /// through the tail; now and then a block is written anew.
    pub fn remove(&mut self, list: ListId, slot: Slot, summarize: &impl Fn(Slot, u32) -> S) -> bool {
        let lists = self.lists.clone();
        let root = lists.root(list);
        let mut compact = false;
        let mut found = false;
        let mut tail = root.extent();
        if root.is_large() {
            let directory = lists.directory::<S>(root);
            tail = directory.block(root.blocks());
            let entry = directory.seek(0, root.blocks(), slot);
            if entry < root.blocks() {
                let block = lists.postings_of(directory.block(entry));
                let len = directory.len(entry);
                let at = block.slots[..len].partition_point(|cell| cell.load(Ordering::Relaxed) < slot);
                found = at < len && mark(block, at, slot);
                if found {
                    directory.add_dead(entry);
                    compact = needs_writing_anew(&directory.head(entry));
                }
            }
        }
        if !found && tail != Extent::NONE {
            let cells = lists.postings_of(tail);
            found = (0..root.tail_len()).any(|at| mark(cells, at, slot));
        }
        if !found {
            return false;
        }
        let left = lists.postings(list) - 1;
        lists.set_counts(list, left, lists.counted(list));
        if root.is_large() {
            if compact {
                self.rebuild(list, root, false, summarize);
            }
        } else if left > 0 && (left as usize) * 4 < 1 << (root.extent().log2() - 1) {
            self.shrink(list);
        }
        true
    }

    /// A full small list: twice the room, or as much when many postings are dead, or a first block.
    fn grow_small(&mut self, list: ListId, root: Root, summarize: &impl Fn(Slot, u32) -> S) {
        let lists = self.lists.clone();
        let live = lists.postings(list) as usize;
        self.gather_tail(root);
        if live < BLOCK {
            self.store_small(list, root);
        } else {
            self.run.sort_unstable_by_key(|&(slot, _)| slot);
            self.entries.clear();
            self.flush_run(summarize);
            let tail = self.books.allocate(&lists.extents, 2 * BLOCK);
            self.store_directory(list, tail, 0);
            self.books.retire(Retired::Extent(root.extent()));
        }
        self.run.clear();
    }

    /// A small list most of whose postings are dead, in a smaller extent.
    fn shrink(&mut self, list: ListId) {
        let root = self.lists.root(list);
        self.gather_tail(root);
        self.store_small(list, root);
        self.run.clear();
    }

    /// Appends the live postings of a small list or of a tail to the run.
    fn gather_tail(&mut self, root: Root) {
        let lists = self.lists.clone();
        let tail =
            if root.is_large() { lists.directory::<S>(root).block(root.blocks()) } else { root.extent() };
        if tail != Extent::NONE {
            self.run.extend(lists.postings_of(tail).live(root.tail_len()));
        }
    }

    /// Publishes the run as a small list with room for one more, and retires the old small extent.
    fn store_small(&mut self, list: ListId, old: Root) {
        let lists = self.lists.clone();
        let extent = self.books.allocate(&lists.extents, 2 * (self.run.len() + 1));
        let cells = lists.postings_of(extent);
        for (at, &(slot, value)) in self.run.iter().enumerate() {
            cells.set(at, slot, value);
        }
        lists.set_root(list, Root::small(extent, self.run.len()));
        if !old.is_large() && old.extent() != Extent::NONE {
            self.books.retire(Retired::Extent(old.extent()));
        }
    }

    /// A full tail: it becomes a block as it lies when its slots ascend behind the last block, else it is merged.
    fn end_tail(&mut self, list: ListId, root: Root, summarize: &impl Fn(Slot, u32) -> S) {
        let lists = self.lists.clone();
        let directory = lists.directory::<S>(root);
        let blocks = root.blocks();
        let tail = directory.block(blocks);
        let cells = lists.postings_of(tail);
        let len = root.tail_len();
        let behind = blocks == 0 || directory.last(blocks - 1) < cells.slot(0);
        let ascending = behind && (1..len).all(|at| cells.slot(at - 1) < cells.slot(at));
        let (mut summary, mut live) = (S::EMPTY, 0);
        for (slot, value) in cells.live(len) {
            summary.merge(&summarize(slot, value));
            live += 1;
        }
        let head =
            EntryHead { first: cells.slot(0), last: cells.slot(len - 1), block: tail, len, dead: len - live };
        if !ascending || needs_writing_anew(&head) {
            self.rebuild(list, root, true, summarize);
            return;
        }
        let fresh = self.books.allocate(&lists.extents, 2 * BLOCK);
        // Entry `blocks` becomes the block's, the one behind it the fresh tail's.
        if blocks + 2 <= directory.capacity() {
            directory.set(blocks, &head, &summary);
            directory.set_block(blocks + 1, fresh);
            lists.set_root(list, Root::large(root.extent(), blocks + 1, 0));
        } else {
            self.entries.clear();
            for entry in 0..blocks {
                self.entries.push((directory.head(entry), directory.summary(entry)));
            }
            self.entries.push((head, summary));
            self.store_directory(list, fresh, 0);
            self.books.retire(Retired::Extent(root.extent()));
        }
    }

    /// Writes a large list anew where it must be: blocks too many of whose postings are dead and, when `merge_tail`, the
    /// blocks the tail's postings fall into. All other blocks stay.
    fn rebuild(&mut self, list: ListId, root: Root, merge_tail: bool, summarize: &impl Fn(Slot, u32) -> S) {
        let lists = self.lists.clone();
        let directory = lists.directory::<S>(root);
        let old_tail = directory.block(root.blocks());
        if (lists.postings(list) as usize) <= SMALL_AGAIN {
            self.run.clear();
            for entry in 0..root.blocks() {
                let cells = lists.postings_of(directory.block(entry));
                self.run.extend(cells.live(directory.len(entry)));
            }
            self.gather_tail(root);
            self.retire_all(list);
            self.store_small(list, root);
            self.run.clear();
            return;
        }

        let mut fresh: Vec<Posting> = Vec::new();
        if merge_tail {
            self.gather_tail(root);
            fresh.append(&mut self.run);
            fresh.sort_unstable_by_key(|&(slot, _)| slot);
        }
        let mut fresh = &fresh[..];
        self.entries.clear();
        self.run.clear();
        for entry in 0..root.blocks() {
            let head = directory.head(entry);
            let mine = fresh.partition_point(|&(slot, _)| slot <= head.last);
            let (mine, rest) = fresh.split_at(mine);
            fresh = rest;
            let joins = !self.run.is_empty() && self.run.len() + (head.len - head.dead) <= JOINED_MAX;
            if mine.is_empty() && !joins && !needs_writing_anew(&head) {
                self.flush_run(summarize);
                self.entries.push((head, directory.summary(entry)));
                continue;
            }
            if !joins {
                self.flush_run(summarize);
            }
            let start = self.run.len();
            self.run.extend(lists.postings_of(head.block).live(head.len));
            self.books.retire(Retired::Extent(head.block));
            if !mine.is_empty() {
                self.run.extend_from_slice(mine);
                self.run[start..].sort_unstable_by_key(|&(slot, _)| slot);
            }
        }
        // Behind the last block: with it when it was small, else blocks of their own.
        if self.run.len() + fresh.len() > BLOCK {
            self.flush_run(summarize);
        }
        self.run.extend_from_slice(fresh);
        self.flush_run(summarize);
        if merge_tail {
            let tail = self.books.allocate(&lists.extents, 2 * BLOCK);
            self.store_directory(list, tail, 0);
            self.books.retire(Retired::Extent(old_tail));
        } else {
            self.store_directory(list, old_tail, root.tail_len());
        }
        self.books.retire(Retired::Extent(root.extent()));
    }

    /// Appends the run, which ascends, as blocks of even size to the entries, joined with the last one if that fits.
    fn flush_run(&mut self, summarize: &impl Fn(Slot, u32) -> S) {
        if self.run.is_empty() {
            return;
        }
        let lists = self.lists.clone();
        if let Some(&(last, _)) = self.entries.last()
            && self.run.len() < BLOCK / 2
            && (last.len - last.dead) + self.run.len() <= JOINED_MAX
        {
            self.run.splice(..0, lists.postings_of(last.block).live(last.len));
            self.books.retire(Retired::Extent(last.block));
            self.entries.pop();
        }
        let pieces = self.run.len().div_ceil(BLOCK);
        for piece in self.run.chunks(self.run.len().div_ceil(pieces)) {
            let block = self.books.allocate(&lists.extents, 2 * BLOCK);
            let cells = lists.postings_of(block);
            let mut summary = S::EMPTY;
            for (at, &(slot, value)) in piece.iter().enumerate() {
                cells.set(at, slot, value);
                summary.merge(&summarize(slot, value));
            }
            let (first, last) = (piece[0].0, piece[piece.len() - 1].0);
            self.entries.push((EntryHead { first, last, block, len: piece.len(), dead: 0 }, summary));
        }
        self.run.clear();
    }

    /// Publishes the entries as the list's directory.
    fn store_directory(&mut self, list: ListId, tail: Extent, tail_len: usize) {
        let lists = self.lists.clone();
        let blocks = self.entries.len();
        let extent = self.books.allocate(&lists.extents, (blocks + 2) * Directory::stride::<S>());
        let directory = lists.directory_at::<S>(extent);
        for (entry, (head, summary)) in self.entries.iter().enumerate() {
            directory.set(entry, head, summary);
        }
        directory.set_block(blocks, tail);
        lists.set_root(list, Root::large(extent, blocks, tail_len));
    }

    /// Retires every extent of a list; the caller stores another root before it seals.
    fn retire_all(&mut self, list: ListId) {
        let lists = self.lists.clone();
        let root = lists.root(list);
        if root.is_large() {
            let directory = lists.directory::<S>(root);
            for entry in 0..=root.blocks() {
                self.books.retire(Retired::Extent(directory.block(entry)));
            }
        }
        if root.extent() != Extent::NONE {
            self.books.retire(Retired::Extent(root.extent()));
        }
    }
}

/// Marks the posting at `at` when it is the slot's live one.
fn mark(cells: Cells<'_>, at: usize, slot: Slot) -> bool {
    let found = cells.slot(at) == slot && cells.value(at) != DEAD;
    if found {
        cells.values[at].store(DEAD, Ordering::Relaxed);
    }
    found
}

fn needs_writing_anew(head: &EntryHead) -> bool {
    head.dead * 2 >= head.len
}
