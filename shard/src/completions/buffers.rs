//! Buffers that the kernel takes one of when something has arrived, and that are given back once copied.

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use memmap2::MmapMut;
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

/// Number of buffers, a power of two: what may arrive on so many connections between two looks.
const COUNT: u16 = 1024;
/// Bytes of each: a few small requests, or a part of a large one.
const BYTES: usize = 4096;
/// The one group there is.
pub(super) const GROUP: u16 = 0;

/// The buffers of one ring, 4 MiB in all. The ring is dropped, or none of its operations are under way, before this is.
pub(super) struct Buffers {
    data: MmapMut,
    /// `COUNT` entries that the kernel reads; the tail lies in a field of the first that entries do not use.
    entries: MmapMut,
    tail: u16,
}

impl Buffers {
    /// Maps the memory and registers it with `ring`.
    ///
    /// # Errors
    /// No memory, or a kernel before 5.19.
    pub(super) fn new(ring: &IoUring) -> io::Result<Buffers> {
        let data = MmapMut::map_anon(usize::from(COUNT) * BYTES)?;
        let entries = MmapMut::map_anon(usize::from(COUNT) * size_of::<BufRingEntry>())?;
        let mut buffers = Buffers { data, entries, tail: 0 };
        // SAFETY: the mapping is page-aligned, holds COUNT entries, does not move with `Buffers`, and outlives the ring's operations
        // (see the type); nothing but `give` writes to it.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                buffers.entries.as_ptr() as u64,
                COUNT,
                GROUP,
                0,
            )?;
        }
        (0..COUNT).for_each(|id| buffers.put(id));
        buffers.publish();
        Ok(buffers)
    }

    /// The first `len` bytes of a buffer that the kernel has filled.
    pub(super) fn bytes(&self, id: u16, len: usize) -> &[u8] {
        let start = usize::from(id) * BYTES;
        &self.data[start..start + len.min(BYTES)]
    }

    /// Gives a buffer back to the kernel.
    pub(super) fn give(&mut self, id: u16) {
        self.put(id);
        self.publish();
    }

    fn put(&mut self, id: u16) {
        let address = self.data[usize::from(id) * BYTES..].as_ptr() as u64;
        let at = usize::from(self.tail % COUNT);
        // SAFETY: `at` is below COUNT, so the entry lies in the mapping, which is aligned for it and exclusively ours: the kernel does
        // not look at entries from the tail on. Any bytes are a valid entry. The setters leave the tail's field alone.
        let entry = unsafe { &mut *self.entries.as_mut_ptr().cast::<BufRingEntry>().add(at) };
        entry.set_addr(address);
        entry.set_len(BYTES as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&mut self) {
        // SAFETY: the first entry of the ring's mapping, which the function wants.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr().cast()) };
        // SAFETY: the field is two bytes, aligned, inside the mapping, and the kernel only reads it; both sides access it atomically.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: the entries before it are written.
        tail.store(self.tail, Ordering::Release);
    }
}
