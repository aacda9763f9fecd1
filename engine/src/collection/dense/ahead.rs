//! Says which slots will be written soon, so that another thread touches their memory before.
//!
//! The kernel commits the memory of a slot at its first touch, which would be that of the owner, between two searches. Past the first 2 MiB of an
//! arena, a touch commits 2 MiB at once: clearing them takes a fraction of a millisecond, and several milliseconds on a machine that gets its
//! memory from a hypervisor page by page. So the owner says in time which slots come next, and a thread for which nobody waits touches them. If
//! that thread is late, the owner commits the memory itself.
use super::{DenseWriter, Slot};
use crate::memory::HUGE_PAGE_BYTES;
use std::ops::Range;

/// Bytes of vectors that are touched in one piece. At least so many are asked for before the owner gets there: at 384 dimensions 1,365 slots,
/// which take tens of milliseconds to write and a third of a second to index.
const PIECE_BYTES: usize = HUGE_PAGE_BYTES;

/// While an image is read, memory is asked for at most so many pieces ahead: enough for a thread of lower priority to keep ahead of the image.
const PIECES_RESTORED: usize = 16;

impl DenseWriter {
    /// Returns slots for which [`super::Dense::populate`] is to be called soon, on any thread but the owner's: at most two pieces beyond what is
    /// written, each of 2 MiB of vectors and of what belongs to them. Returns `None` most of the time, and always in collections that fit into
    /// one piece, whose pages are small.
    pub fn pages_due(&mut self) -> Option<Range<Slot>> {
        // The longest vector of a point counts. If points have none, there is nothing worth touching.
        let row_bytes =
            self.shared.spaces.iter().map(|space| space.row_bytes()).max().filter(|&bytes| bytes > 0)?;
        let (written, piece) = (self.points.high_water(), (PIECE_BYTES / row_bytes).max(1));
        let from = self.populated.max(written);
        if written < piece || from >= written + piece {
            return None;
        }
        let to = (written + 2 * piece).min(self.points.slots_max());
        self.populated = to;
        (from < to).then_some(from as Slot..to as Slot)
    }

    /// The same while a base image of `all` bytes is read, of which `read` bytes have been: the owner would spend a third of its time on clearing
    /// memory. Returns no more slots than the rest of the image has if it is like what came before, and at most `PIECES_RESTORED` pieces beyond
    /// what has been restored. Returns `None` most of the time.
    pub fn restored_pages_due(&mut self, read: u64, all: u64) -> Option<Range<Slot>> {
        let row_bytes =
            self.shared.spaces.iter().map(|space| space.row_bytes()).max().filter(|&bytes| bytes > 0)?;
        let (written, piece) = (self.slots_restored() as usize, (PIECE_BYTES / row_bytes).max(1));
        let expected = written as u128 * u128::from(all) / u128::from(read.max(1));
        let expected = usize::try_from(expected).unwrap_or(usize::MAX).min(self.points.slots_max());
        let from = self.populated.max(written);
        let to = (written + PIECES_RESTORED * piece).min(expected);
        if written < piece || from + piece > to {
            return None;
        }
        self.populated = to;
        Some(from as Slot..to as Slot)
    }

    /// How many slots were asked for and have not been written.
    pub(super) fn slots_ahead(&self) -> u64 {
        self.populated.saturating_sub(self.points.high_water()) as u64
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::collection::{DenseConfig, Hit, Parts, Query, Write};
    use crate::distance::Metric;
    use crate::index::Scratch;
    use crate::memory::Domain;
    use crate::record::image::{EndRecord, Levels, PointRecord, StoredVector, put_end, put_point};

    /// What is asked for while an image comes in is near, not asked for twice, and no more than the image has.
    #[test]
    fn pages_of_an_image_are_asked_for_once_and_not_beyond_its_end() {
        let (dim, slots_max, count) = (2048, 20_000, 6_000u64);
        let piece = PIECE_BYTES / (dim * size_of::<f32>());
        let mut writer =
            DenseWriter::create(DenseConfig::new(dim, Metric::L2), slots_max, Domain::new(1)).unwrap();
        assert_eq!(writer.restored_pages_due(1, 2), None, "nothing is being restored");
        let (mut asked, mut record) = (0, Vec::new());
        for slot in 0..count {
            record.clear();
            let point = PointRecord {
                slot: slot as Slot,
                dead: false,
                id: slot,
                version: 1,
                born: 1,
                deadline_ms: 0,
                levels: Levels::default(),
                vector: StoredVector::Here(&[]),
                row: &[],
            };
            put_point(&mut record, &point, &vec![0.5; dim]);
            writer.restore(&record).unwrap();
            let Some(Range { start, end }) = writer.restored_pages_due(slot + 1, count) else { continue };
            let (start, end, written) = (start as usize, end as usize, slot as usize + 1);
            assert!(written >= piece, "a small collection has small pages");
            assert!(start >= asked.max(written) && end >= start + piece);
            assert!(end <= written + PIECES_RESTORED * piece && end as u64 <= count);
            writer.shared().populate(start as Slot..end as Slot);
            asked = end;
        }
        assert!(asked + piece > count as usize, "all but the last piece was asked for: {asked}");
        record.clear();
        put_end(&mut record, &EndRecord { seq: 1, slots: count as u32, entry: None });
        writer.restore(&record).unwrap();
        writer.finish_restore(1).unwrap();
        assert_eq!(writer.slots_ahead(), 0);
    }

    #[test]
    fn pages_are_asked_for_once_and_not_far_ahead() {
        let (dim, slots_max) = (4096, 1000);
        let piece = PIECE_BYTES / (dim * size_of::<f32>());
        let mut writer =
            DenseWriter::create(DenseConfig::new(dim, Metric::L2), slots_max, Domain::new(1)).unwrap();
        let mut asked = 0;
        for slot in 0..slots_max {
            assert!(slot < piece || asked > slot, "slot {slot} is written before it is asked for");
            let vector = vec![slot as f32; dim];
            let id = slot as u64;
            writer.apply(Write {
                seq: id + 1,
                id,
                version: 1,
                parts: Parts::Only(&vector),
                row: &[],
                deadline_ms: 0,
            });
            let Some(Range { start, end }) = writer.pages_due() else { continue };
            let (start, end) = (start as usize, end as usize);
            assert!(slot + 1 >= piece, "a small collection has small pages");
            assert!(start >= asked && start > slot && start < end);
            assert!(end <= (slot + 1 + 2 * piece).min(slots_max));
            writer.note_bytes();
            let before = writer.shared().bytes_of_slots(writer.slots_ahead());
            assert!(before > ((end - slot - 1) * dim * size_of::<f32>()) as u64);
            writer.shared().populate(start as Slot..end as Slot);
            asked = end;
        }
        assert_eq!((asked, writer.pages_due(), writer.slots_ahead()), (slots_max, None, 0));
        let seat = writer.shared().points().domain().participant(0);
        let vector = vec![700.0; dim];
        let query = Query { vector: &vector, k: 1, ef: 0, filter: None, exact: true, now_ms: 0 };
        let (mut scratch, mut hits): (_, Vec<Hit>) = (Scratch::new(), Vec::new());
        writer.shared().search(&seat.pin(), &query, &mut scratch, &mut hits).unwrap();
        assert_eq!((hits[0].id, hits[0].distance), (700, 0.0));
    }
}
