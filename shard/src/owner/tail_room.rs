//! Room in a collection's tail. Writers wait for it here and nowhere else, because a wait must come after what ends it: the indexer
//! sleeps until it is told that the tail has grown, so a writer tells it first.

use crate::event::Event;
use std::cell::Cell;

/// Fresh points searched exactly beside the graph before writes must wait for the indexer. At 384 dimensions and
/// 10 GB/s a scan of 512 rows costs 80 µs, half of a graph search.
///
/// What a start has replayed from the log is allowed for on top.
pub const TAIL_MAX: usize = 512;

/// How long a tail may grow, and who waits for it to shrink.
pub struct TailRoom {
    /// Tail length at which writes wait: [`TAIL_MAX`], and more while what the start replayed is being indexed.
    bound: Cell<usize>,
    /// The indexer has ended a round of its loop.
    turned: Event,
    ended: Cell<bool>,
}

impl TailRoom {
    /// For a collection that opens with `replayed` points in its tail.
    pub fn new(replayed: usize) -> TailRoom {
        TailRoom { bound: Cell::new(replayed + TAIL_MAX), turned: Event::default(), ended: Cell::new(false) }
    }

    /// Whether a tail of that length takes no more points.
    pub fn is_full(&self, tail_len: usize) -> bool {
        tail_len >= self.bound.get()
    }

    /// Waits as long as `must_wait` holds, which is asked again after each round of the indexer.
    ///
    /// The indexer listens to `changed`. It may be asleep although the tail is full: a writer that fills it in one piece has told
    /// nobody yet.
    pub async fn wait(&self, changed: &Event, must_wait: impl Fn() -> bool) {
        while must_wait() {
            let turned = self.turned.wait();
            changed.notify();
            turned.await;
        }
    }

    /// The indexer has moved `points` out of the tail, or has found nothing to move: then deletes have made the room. Writers may fill
    /// half of the places as long as more than [`TAIL_MAX`] points are waiting: neither do they wait until all of a long replay is
    /// indexed, nor does the tail stay as long as it is.
    pub fn note_round(&self, points: usize) {
        self.bound.set(self.bound.get().saturating_sub(points.div_ceil(2)).max(TAIL_MAX));
        self.turned.notify();
    }

    /// The indexer has ended, and nobody will make room any more.
    pub fn end(&self) {
        self.ended.set(true);
        self.turned.notify();
    }

    /// Waits until the indexer has ended; whoever calls this has told it to.
    pub async fn ended(&self, changed: &Event) {
        self.wait(changed, || !self.ended.get()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once, zip};

    #[test]
    fn a_writer_wakes_the_indexer_before_it_waits() {
        let (room, changed, tail) = (TailRoom::new(0), Event::default(), Cell::new(TAIL_MAX));
        let indexer = async {
            changed.wait().await;
            tail.set(0);
            room.note_round(TAIL_MAX);
        };
        // The indexer sleeps when the writer begins to wait, and nobody else speaks to it.
        block_on(zip(indexer, room.wait(&changed, || room.is_full(tail.get()))));
    }

    #[test]
    fn room_that_deletes_have_made_ends_a_wait() {
        let (room, changed, tail) = (TailRoom::new(0), Event::default(), Cell::new(TAIL_MAX));
        let mut waiting = Box::pin(room.wait(&changed, || room.is_full(tail.get())));
        assert!(block_on(poll_once(&mut waiting)).is_none());
        tail.set(0);
        room.note_round(0);
        assert!(block_on(poll_once(&mut waiting)).is_some());
    }

    #[test]
    fn half_of_what_is_indexed_of_a_replay_may_be_filled_again() {
        let room = TailRoom::new(10_000);
        assert!(!room.is_full(10_000) && room.is_full(10_000 + TAIL_MAX));
        room.note_round(100);
        assert!(room.is_full(10_000 + TAIL_MAX - 50) && !room.is_full(10_000 + TAIL_MAX - 51));
        room.note_round(1 << 20);
        assert!(room.is_full(TAIL_MAX) && !room.is_full(TAIL_MAX - 1));
    }
}
