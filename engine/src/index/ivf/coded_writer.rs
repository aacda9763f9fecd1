//! The owner's side of cells with codes: filing slots, taking them out, and keeping chains dense.
use super::coded::{At, BLOCKS_MAX, Coded, Root};
use crate::memory::{Domain, Limbo};
use crate::quantizer::BLOCK_CODES;
use crate::slot::Slot;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Neighbours with so many live postings together become one block, with room to lose some before the next time.
const MERGED_MAX: usize = BLOCK_CODES - BLOCK_CODES / 8;

#[derive(Clone, Copy, Default)]
struct Links {
    /// Towards the first of the chain.
    before: Option<u32>,
    live: usize,
}

/// The books of one [`Coded`].
pub(super) struct CodedWriter {
    domain: Arc<Domain>,
    /// Per block ever used.
    links: Vec<Links>,
    free: Vec<u32>,
    batch: Vec<u32>,
    limbo: Limbo<Vec<u32>>,
    /// Slots below may have a place.
    slots: usize,
    /// Of a posting that moves.
    row: Vec<u8>,
}

impl CodedWriter {
    pub fn new(domain: Arc<Domain>) -> CodedWriter {
        CodedWriter {
            domain,
            links: Vec::new(),
            free: Vec::new(),
            batch: Vec::new(),
            limbo: Limbo::new(),
            slots: 0,
            row: Vec::new(),
        }
    }

    /// Files a slot that is not filed, in one cell or two; `rows`: what [`Coded::encode`] gave for each, back to back.
    pub fn insert(&mut self, coded: &Coded, slot: Slot, cell: u32, second: Option<u32>, rows: &[u8]) {
        assert_eq!(
            rows.len(),
            coded.row_len() * if second.is_some() { 2 } else { 1 },
            "a code for each cell"
        );
        let each = [Some((cell, second)), second.map(|second| (second, Some(cell)))];
        self.slots = self.slots.max(slot as usize + 1);
        for (which, ((cell, other), row)) in
            each.into_iter().flatten().zip(rows.chunks_exact(coded.row_len())).enumerate()
        {
            let at = self.append(coded, cell, |at| coded.write(at, slot, other, row));
            coded.set_place(slot, which, Some(at));
        }
    }

    /// A posting at the front of a chain.
    fn append(&mut self, coded: &Coded, cell: u32, write: impl FnOnce(At)) -> At {
        let root = coded.root(cell);
        let (head, count) = match root.head {
            Some(head) if root.count < BLOCK_CODES => (head, root.count),
            full => {
                let fresh = self.take(coded, cell);
                coded.set_next(fresh, full);
                (fresh, 0)
            }
        };
        let at = At { block: head, position: count };
        write(at);
        self.links[head as usize].live += 1;
        coded.set_root(cell, Root { head: Some(head), count: count + 1 });
        coded.count(cell, true);
        if let Some(full) = root.head.filter(|&full| full != head) {
            self.links[full as usize].before = Some(head);
            self.thin(coded, cell, full);
        }
        at
    }

    fn take(&mut self, coded: &Coded, cell: u32) -> u32 {
        let block = self.free.pop().unwrap_or_else(|| {
            let block = self.links.len() as u32;
            assert!(block < BLOCKS_MAX, "{BLOCKS_MAX} blocks of codes");
            coded.make(block);
            self.links.push(Links::default());
            block
        });
        self.links[block as usize] = Links::default();
        coded.set_cell(block, cell);
        block
    }

    /// Takes a slot out that no reader's snapshot shows any more; false when it is not filed.
    pub fn remove(&mut self, coded: &Coded, slot: Slot) -> bool {
        let places = coded.places(slot);
        // Taking one out may move the other.
        for which in [0, 1] {
            let Some(at) = coded.places(slot)[which] else { continue };
            let cell = coded.cell(at.block);
            coded.set_place(slot, which, None);
            coded.mark_dead(at);
            coded.count(cell, false);
            self.links[at.block as usize].live -= 1;
            if coded.root(cell).head != Some(at.block) {
                self.thin(coded, cell, at.block);
            }
        }
        places[0].is_some()
    }

    /// A block behind the first has lost a posting, or has just come there.
    fn thin(&mut self, coded: &Coded, cell: u32, block: u32) {
        let (before, next) = (self.links[block as usize].before, coded.next(block));
        let before = before.expect("behind the first");
        let live = |block: u32| self.links[block as usize].live;
        let fits = |other: &u32| live(block) + live(*other) <= MERGED_MAX;
        if live(block) == 0 {
            self.replace(coded, before, next);
            self.batch.push(block);
        } else if let Some(next) = next.filter(fits) {
            self.merge(coded, cell, [block, next]);
        } else if coded.root(cell).head != Some(before) && fits(&before) {
            self.merge(coded, cell, [before, block]);
        }
    }

    /// The chain goes on with `next` behind `before`.
    fn replace(&mut self, coded: &Coded, before: u32, next: Option<u32>) {
        if let Some(next) = next {
            self.links[next as usize].before = Some(before);
        }
        coded.set_next(before, next);
    }

    /// Two neighbours become one.
    fn merge(&mut self, coded: &Coded, cell: u32, blocks: [u32; 2]) {
        let before = self.links[blocks[0] as usize].before.expect("behind the first");
        let fresh = self.take(coded, cell);
        let mut row = std::mem::take(&mut self.row);
        let mut moved = Vec::with_capacity(MERGED_MAX);
        for from in
            blocks.into_iter().flat_map(|block| (0..BLOCK_CODES).map(move |position| At { block, position }))
        {
            let Some((slot, other)) = coded.posting(from) else { continue };
            let to = At { block: fresh, position: moved.len() };
            row.clear();
            coded.read(from, &mut row);
            coded.write(to, slot, other, &row);
            moved.push((slot, from, to));
        }
        self.row = row;
        (moved.len()..BLOCK_CODES).for_each(|position| coded.mark_dead(At { block: fresh, position }));
        self.links[fresh as usize] = Links { before: Some(before), live: moved.len() };
        let next = coded.next(blocks[1]);
        coded.set_next(fresh, next);
        if let Some(next) = next {
            self.links[next as usize].before = Some(fresh);
        }
        coded.set_next(before, Some(fresh));
        for (slot, from, to) in moved {
            let which = usize::from(coded.places(slot)[0] != Some(from));
            debug_assert_eq!(coded.places(slot)[which], Some(from), "a place of slot {slot}");
            coded.set_place(slot, which, Some(to));
        }
        self.batch.extend(blocks);
    }

    /// Ends an operation: what it replaced waits for readers.
    pub fn seal(&mut self, coded: &Coded) {
        if !self.batch.is_empty() {
            self.limbo.push(&self.domain, std::mem::take(&mut self.batch));
        }
        self.note_bytes(coded);
    }

    /// Takes back what no reader can see any more.
    pub fn reclaim(&mut self, coded: &Coded) {
        while let Some(blocks) = self.limbo.pop(&self.domain) {
            self.free.extend(blocks);
        }
        self.note_bytes(coded);
    }

    fn note_bytes(&self, coded: &Coded) {
        let bytes = self.links.len() * (coded.block_bytes() + size_of::<Links>())
            + coded.place_bytes(self.slots)
            + self.free.capacity() * size_of::<u32>();
        coded.bytes.store(bytes as u64, Ordering::Relaxed);
    }
}
