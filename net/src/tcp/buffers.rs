//! Buffers of connections: lent by the core while there is something in them, so that an idle connection holds none.

use nigh_shard::account::CoreCharge;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Room of a fresh buffer: most requests, or 64 small ones.
const FRESH_BYTES: usize = 16 << 10;
/// A larger buffer is given back to the allocator.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// Less room than this is not worth a system call while a frame is not whole.
const ROOM_BYTES_MIN: usize = 4 << 10;
/// What a core keeps in all.
const KEPT_TOTAL_BYTES: usize = 4 << 20;

/// The spare buffers of one core.
#[derive(Default)]
pub struct Buffers {
    spare: RefCell<Vec<Vec<u8>>>,
    bytes: Cell<usize>,
}

impl Buffers {
    /// An empty buffer with room, the one used last if there is one: it is in the cache.
    pub fn take(&self) -> Vec<u8> {
        match self.spare.borrow_mut().pop() {
            Some(buffer) => {
                self.bytes.set(self.bytes.get() - buffer.capacity());
                buffer
            }
            None => Vec::with_capacity(FRESH_BYTES),
        }
    }

    /// Takes a buffer back, whatever is in it.
    pub fn give(&self, mut buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        if (FRESH_BYTES..=KEPT_BYTES_MAX).contains(&bytes) && self.bytes.get() + bytes <= KEPT_TOTAL_BYTES {
            buffer.clear();
            self.bytes.set(self.bytes.get() + bytes);
            self.spare.borrow_mut().push(buffer);
        }
    }
}

/// What a connection has received and not consumed.
pub struct Inbound {
    buffers: Rc<Buffers>,
    /// What the buffer has beyond the first bytes, with which every connection is counted.
    held: CoreCharge,
    bytes: Vec<u8>,
    start: usize,
    /// Bytes that have not come yet and will be thrown away.
    skip: usize,
}

impl Inbound {
    /// Nothing.
    pub fn new(buffers: Rc<Buffers>, held: CoreCharge) -> Inbound {
        Inbound { buffers, held, bytes: Vec::new(), start: 0, skip: 0 }
    }

    /// The bytes.
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Lends the bytes to somebody who has to own them for a while, with the place where the unread ones start.
    pub fn lend(&mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.bytes), self.start)
    }

    /// Takes back what was lent, as it was.
    pub fn take_back(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }

    /// Whether nothing waits: no byte, and none that has still to come of what is thrown away.
    pub fn is_at_rest(&self) -> bool {
        self.unread().is_empty() && self.skip == 0
    }

    /// Drops `count` bytes from the front, those that have not come yet as soon as they do.
    pub fn consume(&mut self, count: usize) {
        let here = count.min(self.bytes.len() - self.start);
        self.start += here;
        self.skip += count - here;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// Room to receive into, at least one byte of it; `needed` is where the frame at the front ends, as far as is known. Room follows
    /// what has arrived and never what was declared: it at most doubles. `None` when the process holds too much.
    pub fn room(&mut self, needed: usize) -> Option<&mut Vec<u8>> {
        if self.bytes.capacity() < FRESH_BYTES {
            // Perhaps the beginning of a frame.
            let mut larger = self.buffers.take();
            if !self.holds(larger.capacity()) {
                self.buffers.give(std::mem::replace(&mut larger, Vec::with_capacity(FRESH_BYTES)));
            }
            larger.extend_from_slice(self.unread());
            (self.bytes, self.start) = (larger, 0);
        } else if self.start > 0 && self.spare() < self.bytes.capacity() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let unread = self.bytes.len() - self.start;
        // One byte beyond the frame tells whether more has come.
        let missing = (needed + 1).saturating_sub(unread).max(1);
        if self.spare() < missing.min(ROOM_BYTES_MIN) {
            let more = unread.max(FRESH_BYTES);
            let more = if needed > unread { more.min(missing) } else { more };
            if self.holds(self.bytes.len() + more) {
                self.bytes.reserve_exact(more);
            } else if self.spare() == 0 {
                return None;
            }
        }
        Some(&mut self.bytes)
    }

    /// Counts a buffer of so many bytes instead of the one before; false, and nothing has changed, when that is too many.
    fn holds(&mut self, capacity: usize) -> bool {
        self.held.resize(capacity.saturating_sub(FRESH_BYTES) as u64)
    }

    fn spare(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }

    /// Bytes were received into the room: throws away those that are to be skipped.
    pub fn received(&mut self) {
        let here = self.skip.min(self.bytes.len() - self.start);
        self.skip -= here;
        self.consume(here);
    }

    /// Called before waiting: gives back what is not needed meanwhile.
    pub fn rest(&mut self) {
        let unread = self.bytes.len() - self.start;
        if unread == 0 || (self.bytes.capacity() >= FRESH_BYTES && unread <= self.bytes.capacity() / 4) {
            let few = self.unread().to_vec();
            self.buffers.give(std::mem::replace(&mut self.bytes, few));
            self.start = 0;
            // Less is never refused.
            let _fits = self.holds(self.bytes.capacity());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_shard::account::{Account, CoreCharges, MemoryUse};
    use std::sync::Arc;

    fn inbound(most: u64) -> (Inbound, Rc<CoreCharges>, Arc<Account>) {
        let account = Account::new(1 << 40);
        let held = CoreCharges::new(&account, MemoryUse::Requests, most);
        (Inbound::new(Rc::default(), held.holder()), held, account)
    }

    fn receive(inbound: &mut Inbound, wanted: usize, bytes: &[u8]) -> usize {
        let room = inbound.room(wanted).expect("room");
        let fits = bytes.len().min(room.capacity() - room.len());
        assert!(fits > 0);
        room.extend_from_slice(&bytes[..fits]);
        inbound.received();
        fits
    }

    #[test]
    fn a_stream_passes_whole_whatever_its_pieces() {
        let stream: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7) as u8).collect();
        for piece in [1_000, 16 << 10, 100_000, 1 << 20] {
            let (mut inbound, held, account) = inbound(u64::MAX);
            let (mut sent, mut seen) = (0, 0);
            while seen < stream.len() {
                while inbound.unread().len() < piece && sent < stream.len() {
                    sent += receive(&mut inbound, piece, &stream[sent..stream.len().min(sent + 5_000)]);
                    inbound.rest();
                }
                let take = inbound.unread().len().min(piece);
                assert_eq!(inbound.unread()[..take], stream[seen..seen + take]);
                inbound.consume(take);
                seen += take;
            }
            inbound.rest();
            assert!(inbound.is_at_rest() && inbound.bytes.capacity() == 0);
            held.settle();
            assert_eq!(account.total(), 0, "something is still counted");
        }
    }

    #[test]
    fn room_follows_what_has_arrived() {
        let (mut inbound, ..) = inbound(u64::MAX);
        let (mut there, piece) = (0, vec![1; 64 << 10]);
        while there < 4 << 20 {
            there += receive(&mut inbound, 16 << 20, &piece);
            assert!(inbound.bytes.capacity() <= 2 * there.max(FRESH_BYTES), "{there}");
        }
        inbound.consume(there - 3);
        inbound.rest();
        assert!(inbound.bytes.capacity() < 100, "three bytes need no 4 MiB");
        assert_eq!(inbound.unread(), [1, 1, 1]);
    }

    #[test]
    fn what_is_to_be_skipped_is_never_seen() {
        let (mut inbound, ..) = inbound(u64::MAX);
        receive(&mut inbound, 4, b"abcd");
        inbound.consume(10);
        assert!(!inbound.is_at_rest() && inbound.unread().is_empty());
        receive(&mut inbound, 4, b"efg");
        assert!(!inbound.is_at_rest());
        receive(&mut inbound, 4, b"hijkl");
        assert_eq!((inbound.unread(), inbound.is_at_rest()), (&b"kl"[..], false));
    }

    #[test]
    fn the_process_holds_no_more_than_it_may() {
        let (mut one, held, account) = inbound(200_000);
        let piece = vec![1; 1 << 20];
        let mut there = 0;
        while one.room(1 << 20).is_some() {
            there += receive(&mut one, 1 << 20, &piece);
        }
        assert!((64 << 10..220_000).contains(&there), "{there}");
        // What was received is still there.
        assert_eq!(one.unread().len(), there);
        let buffers = Rc::new(Buffers::default());
        let spare_bytes = 128 << 10;
        buffers.give(Vec::with_capacity(spare_bytes));
        let mut other = Inbound::new(buffers.clone(), held.holder());
        assert_eq!(
            receive(&mut other, 100, &[1; 100]),
            100,
            "the first bytes are counted with the connection"
        );
        assert_eq!(other.bytes.capacity(), FRESH_BYTES, "a larger spare buffer does not fit");
        drop(one);
        let mut third = Inbound::new(buffers, held.holder());
        receive(&mut third, 100, &[1; 100]);
        assert_eq!(third.bytes.capacity(), spare_bytes);
        assert!(account.total() >= (spare_bytes - FRESH_BYTES) as u64, "spare buffers are counted too");
        drop(third);
        held.settle();
        assert_eq!(account.total(), 0);
    }

    #[test]
    fn spare_buffers_are_bounded() {
        let buffers = Buffers::default();
        (0..1_000).for_each(|_| buffers.give(vec![1; 64 << 10]));
        buffers.give(Vec::with_capacity(1 << 20));
        buffers.give(Vec::new());
        assert_eq!(buffers.spare.borrow().len(), KEPT_TOTAL_BYTES / (64 << 10));
        assert!(buffers.take().is_empty());
    }
}
