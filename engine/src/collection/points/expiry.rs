//! What expires leaves the figures at its deadline, long before a sweep takes it out: the number of points, of sparse vectors, and
//! the statistics of documents that scores depend on.
//!
//! The owner moves a mark through the deadlines in order, one point or text per step. Everything up to the mark is present and does
//! not count; the mark also says so of whatever is written later. When the clock has been set back the mark goes back, and what it
//! passes counts again, as readers see it again.
use super::{PointsWriter, add, sub};
use crate::payload::PayloadRow;
use crate::slot::Slot;
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

/// A place in an ordered set of (deadline, id).
type Mark = (u64, u64);

/// How far expiry has been followed.
#[derive(Default)]
pub(super) struct Expiry {
    /// Points with a deadline up to here do not count.
    points: Mark,
    /// Nor do texts whose key has one.
    texts: Mark,
    /// (deadline of the key, id) of ids present whose text is searched and expires before or without its point.
    pub text_deadlines: BTreeSet<Mark>,
}

/// The next place that the mark moves to, if it is to move, and whether it passes the entry there forwards.
enum Move {
    Forwards(Mark),
    Back(Mark),
    Done,
}

impl Expiry {
    /// The last deadline that has left the figures.
    pub fn passed(&self) -> Mark {
        self.points
    }
}

fn next_move(deadlines: &BTreeSet<Mark>, mark: &mut Mark, now_ms: u64) -> Move {
    if mark.0 > now_ms {
        let Some(&entry) = deadlines.range(..=*mark).next_back().filter(|entry| entry.0 > now_ms) else {
            *mark = (now_ms, u64::MAX);
            return Move::Done;
        };
        *mark = before(entry);
        return Move::Back(entry);
    }
    match deadlines.range((Excluded(*mark), Unbounded)).next() {
        Some(&entry) if entry.0 <= now_ms => {
            *mark = entry;
            Move::Forwards(entry)
        }
        _ => {
            *mark = (now_ms, u64::MAX);
            Move::Done
        }
    }
}

/// The greatest place below an entry, whose deadline is not 0.
fn before((deadline_ms, id): Mark) -> Mark {
    id.checked_sub(1).map_or((deadline_ms - 1, u64::MAX), |id| (deadline_ms, id))
}

impl PointsWriter {
    /// Moves what expires out of the figures, or back into them where the clock was set back: one point or text per call. That
    /// costs 300 ns per token of its text, or puts it off ([`Self::text_step`]) where the text is long. False when all figures are those of
    /// `now_ms`, but for what is put off.
    pub fn follow_expiry(&mut self, now_ms: u64) -> bool {
        match next_move(&self.deadlines, &mut self.expiry.points, now_ms) {
            Move::Forwards((_, id)) => {
                self.count_point(id, false);
                return true;
            }
            Move::Back((_, id)) => {
                self.count_point(id, true);
                return true;
            }
            Move::Done => {}
        }
        match next_move(&self.expiry.text_deadlines, &mut self.expiry.texts, now_ms) {
            Move::Forwards((_, id)) | Move::Back((_, id)) => {
                let slot = self.shared.ids.get_owned(id).expect("what has a deadline is present");
                self.settle_text(slot);
                true
            }
            Move::Done => false,
        }
    }

    /// When something will next leave the figures, Unix ms.
    pub fn next_expiry(&self) -> Option<u64> {
        let next = |deadlines: &BTreeSet<Mark>, mark: Mark| {
            deadlines.range((Excluded(mark), Unbounded)).next().map(|entry| entry.0)
        };
        let point = next(&self.deadlines, self.expiry.points);
        let text = next(&self.expiry.text_deadlines, self.expiry.texts);
        point.into_iter().chain(text).min()
    }

    /// Whether something that has left the figures is still present, so that it would count again if the clock were set back.
    pub fn keeps_expired(&self) -> bool {
        let keeps =
            |deadlines: &BTreeSet<Mark>, mark: Mark| deadlines.first().is_some_and(|entry| *entry <= mark);
        keeps(&self.deadlines, self.expiry.points) || keeps(&self.expiry.text_deadlines, self.expiry.texts)
    }

    /// Whether a present slot's point counts.
    pub(super) fn counts(&self, slot: Slot) -> bool {
        match self.shared.meta.deadline_ms(slot) {
            0 => true,
            deadline_ms => (deadline_ms, self.shared.meta.id(slot)) > self.expiry.points,
        }
    }

    /// The mark has just passed the deadline of `id`.
    fn count_point(&mut self, id: u64, counts: bool) {
        let slot = self.shared.ids.get_owned(id).expect("what has a deadline is present");
        self.note_counts(slot, counts);
    }

    /// A slot has just been filed as one that counts; the mark may be past its deadlines already.
    pub(super) fn settle_counts(&mut self, slot: Slot) {
        if !self.counts(slot) {
            self.note_counts(slot, false);
        } else if !self.expiry.text_deadlines.is_empty() {
            self.settle_text(slot);
        }
    }

    fn note_counts(&mut self, slot: Slot, counts: bool) {
        let shared = self.shared.clone();
        let row = PayloadRow::trusted(shared.meta.owned_row(&self.rows, slot));
        match counts {
            true => sub(&shared.expired, 1),
            false => add(&shared.expired, 1),
        }
        self.lanes.count_vectors(row, counts);
        self.settle_text(slot);
    }

    /// Makes the statistics of documents include the text of a present slot or not, as its deadlines say.
    pub(super) fn settle_text(&mut self, slot: Slot) {
        if !self.shared.has_text() {
            return;
        }
        let shared = self.shared.clone();
        let row = PayloadRow::trusted(shared.meta.owned_row(&self.rows, slot));
        let expired = row
            .content_deadline()
            .is_some_and(|deadline_ms| (deadline_ms, shared.meta.id(slot)) <= self.expiry.texts);
        let counts = !expired && self.counts(slot);
        self.lanes.count_text(slot, row, counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The entries between two moments are passed, each once, in order, and then nothing more is to do.
        #[test]
        fn a_mark_passes_what_lies_between(
            entries in proptest::collection::btree_set((1u64..40, 0u64..3), 0..40),
            moments in proptest::collection::vec(0u64..45, 1..8),
        ) {
            let (mut mark, mut expired) = ((0, 0), BTreeSet::new());
            for now_ms in moments {
                loop {
                    match next_move(&entries, &mut mark, now_ms) {
                        Move::Forwards(entry) => prop_assert!(expired.insert(entry)),
                        Move::Back(entry) => prop_assert!(expired.remove(&entry)),
                        Move::Done => break,
                    }
                    prop_assert!(entries.iter().all(|entry| expired.contains(entry) == (*entry <= mark)));
                }
                let twin: BTreeSet<Mark> = entries.iter().copied().filter(|entry| entry.0 <= now_ms).collect();
                prop_assert_eq!(&expired, &twin);
                prop_assert!(matches!(next_move(&entries, &mut mark, now_ms), Move::Done));
            }
        }
    }
}
