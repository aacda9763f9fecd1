//! Quiescence: when a retired thing may be reused.
//!
//! # Invariants
//!
//! 1. A reader follows published pointers and slots only while it is pinned, and keeps nothing beyond the pin.
//! 2. The owner first makes a thing unreachable for new readers (it swings the pointer, clears the edge), then calls
//!    [`Domain::retire`], and reuses or frees the thing only after [`Domain::is_quiescent`] has said yes to the tag.
//! 3. A seat's announcement is either `INACTIVE` or an epoch not later than the domain's. It never claims *later*
//!    than the truth; being too early only delays reuse.
//!
//! # Protocol
//!
//! The domain holds an epoch, a counter of retirements, and one *seat* per participant, alone on its cache lines.
//!
//! ```text
//! reader (outermost pin)              owner
//! R1  e = epoch                       O1  unlink: store to the published place
//! R2  seat = e          (Release)     O2  fence SeqCst
//! R3  fence SeqCst                    O3  tag = epoch; epoch += 1      (AcqRel)
//! R4  e == epoch? else R2 again       ...
//! R5  follow published places         O4  read every seat              (Acquire)
//! R6  seat = INACTIVE   (Release)     O5  each INACTIVE or > tag: reuse
//! ```
//!
//! *A reader that can see the old thing is noticed.* Suppose R5 reads what stood before O1. Then R3 precedes O2 in the
//! single order of SeqCst fences (the other way round, R5 would have to see O1), so O4 reads R2 or a later value of that
//! seat. Nor can R2 have announced an epoch after the tag: to know such an epoch, R1 would have read O3's increment or a
//! later one, which makes O1 happen before R5. Hence O4 reads an epoch `<= tag`, and the owner waits.
//!
//! *A reader that has left is done.* When O4 reads R6, or a later announcement of the same seat (R2 is a Release too,
//! precisely for this: it carries the earlier pins of its thread), all reads of that pin happen before the reuse.
//!
//! R4 is not needed for safety. It keeps a reader that was descheduled between R1 and R2 from announcing an epoch so old
//! that reuse waits although the reader can see nothing retired since. Under a stream of retirements it gives up after
//! a few rounds: a stale announcement is still correct.
//!
//! Several owners (one per core) share a domain and its epoch; a retirement is one read-modify-write, a question reads one
//! cache line per participant. [`Limbo`] asks once for many items.
//!
//! The epoch counts retirements in 64 bits: at one per nanosecond it lasts 580 years, so it never wraps.

use super::sync::{AtomicBool, AtomicU64, Ordering, fence};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

/// Announcement of a seat that is not pinned.
const INACTIVE: u64 = u64::MAX;

/// How often an outermost pin renews an announcement that has been overtaken before it settles for it.
const PIN_RENEWALS_MAX: usize = 4;

/// One participant's announcement. 128 bytes: adjacent cache lines are fetched in pairs.
#[repr(align(128))]
struct Seat {
    announced: AtomicU64,
    taken: AtomicBool,
}

/// The epoch, on cache lines of its own: every pin reads it, only retirements write it.
#[repr(align(128))]
struct Epoch(AtomicU64);

/// One per process (or test): the participants' announcements and the epoch.
pub struct Domain {
    epoch: Epoch,
    seats: Box<[Seat]>,
}

impl Domain {
    /// A domain for at most `participants` reading threads (cores).
    pub fn new(participants: usize) -> Arc<Domain> {
        let seat = |_| Seat { announced: AtomicU64::new(INACTIVE), taken: AtomicBool::new(false) };
        Arc::new(Domain { epoch: Epoch(AtomicU64::new(0)), seats: (0..participants).map(seat).collect() })
    }

    /// Seats of the domain.
    pub fn participants(&self) -> usize {
        self.seats.len()
    }

    /// The reading side of participant `index`; dropping it gives the seat back.
    ///
    /// # Panics
    ///
    /// When `index` is not below [`Self::participants`], or its seat is taken: two readers on one seat would erase each
    /// other's announcements.
    pub fn participant(self: &Arc<Self>, index: usize) -> Participant {
        assert!(
            index < self.seats.len(),
            "participant {index} of a domain that has seats for {}",
            self.seats.len()
        );
        let was_taken = self.seats[index].taken.swap(true, Ordering::AcqRel);
        assert!(!was_taken, "the seat of participant {index} is taken");
        Participant { domain: self.clone(), index, depth: Cell::new(0) }
    }

    /// Tags something that has just been made unreachable for new readers. About 40 cycles.
    pub fn retire(&self) -> RetireTag {
        fence(Ordering::SeqCst);
        RetireTag(self.epoch.0.fetch_add(1, Ordering::AcqRel))
    }

    /// Whether every reader that could have seen what `tag` marks has unpinned. Once true, true for ever. Reads one
    /// cache line per participant.
    pub fn is_quiescent(&self, tag: RetireTag) -> bool {
        tag < self.horizon()
    }

    /// Every tag before the horizon is quiescent. It never moves back.
    fn horizon(&self) -> RetireTag {
        // The epoch first: a retirement after this load is not judged by seats that were read before it.
        let mut horizon = self.epoch.0.load(Ordering::Acquire);
        for seat in &self.seats {
            horizon = horizon.min(seat.announced.load(Ordering::Acquire));
        }
        RetireTag(horizon)
    }
}

/// The moment of a retirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetireTag(pub(super) u64);

/// A reader's seat; `Send`, not `Sync`: one thread at a time. Pins nest.
pub struct Participant {
    domain: Arc<Domain>,
    index: usize,
    /// Pins alive; the outermost announces. (The cell also makes the type `!Sync`, and with it [`Pin`] `!Send`.)
    depth: Cell<usize>,
}

impl Participant {
    /// Announces that this thread holds published references until the guard drops. About 20 cycles plus a fence for
    /// the outermost pin, an increment for nested ones.
    ///
    /// Keep pins short: while one lives, nothing retired after it is reused anywhere in the domain.
    #[inline]
    pub fn pin(&self) -> Pin<'_> {
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        if depth == 0 {
            self.announce();
        }
        Pin { participant: self }
    }

    /// The domain of this seat.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    #[inline]
    fn announce(&self) {
        let announced = &self.seat().announced;
        let mut epoch = self.domain.epoch.0.load(Ordering::Acquire);
        for _ in 0..PIN_RENEWALS_MAX {
            announced.store(epoch, Ordering::Release);
            fence(Ordering::SeqCst);
            let now = self.domain.epoch.0.load(Ordering::Acquire);
            if now == epoch {
                break;
            }
            epoch = now;
        }
    }

    #[inline]
    fn seat(&self) -> &Seat {
        &self.domain.seats[self.index]
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        // A forgotten pin may have left an announcement; the borrow it held has ended, and with it every reference.
        self.seat().announced.store(INACTIVE, Ordering::Release);
        self.seat().taken.store(false, Ordering::Release);
    }
}

/// Proof that the thread is pinned. Everything read from published memory lives at most as long.
pub struct Pin<'a> {
    participant: &'a Participant,
}

impl Pin<'_> {
    /// Panics when this pin is of another domain than `domain`: it would protect nothing there.
    #[inline]
    pub(crate) fn assert_of(&self, domain: &Arc<Domain>) {
        assert!(Arc::ptr_eq(&self.participant.domain, domain), "the pin belongs to another domain");
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.participant.depth.get() - 1;
        self.participant.depth.set(depth);
        if depth == 0 {
            self.participant.seat().announced.store(INACTIVE, Ordering::Release);
        }
    }
}

/// The owner's queue of retired things, oldest first.
///
/// For things whose reuse is the owner's decision (slots, rows, segments). Dropping the queue drops the items at once,
/// so an owner that goes away first makes sure that no reader can reach them.
pub struct Limbo<T> {
    items: VecDeque<(RetireTag, T)>,
    /// The horizon last seen. It never moves back, so it answers for every older tag without reading the seats again.
    horizon: RetireTag,
}

impl<T> Limbo<T> {
    /// Empty.
    pub fn new() -> Self {
        Limbo { items: VecDeque::new(), horizon: RetireTag(0) }
    }

    /// Queues `item`, which new readers can no longer reach, under a fresh tag. All calls on one queue name the same
    /// domain.
    pub fn push(&mut self, domain: &Domain, item: T) {
        let tag = domain.retire();
        debug_assert!(
            self.items.back().is_none_or(|(last, _)| *last < tag) && self.horizon <= tag,
            "one limbo, one domain"
        );
        self.items.push_back((tag, item));
    }

    /// Takes the oldest item if it is quiescent. Reads the seats at most once per call, and not at all for items that an
    /// earlier look has covered.
    pub fn pop(&mut self, domain: &Domain) -> Option<T> {
        let &(tag, _) = self.items.front()?;
        if tag >= self.horizon {
            self.horizon = domain.horizon();
            if tag >= self.horizon {
                return None;
            }
        }
        self.items.pop_front().map(|(_, item)| item)
    }

    /// Items waiting.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Nothing waiting.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The waiting items, oldest first, for the owner's accounts: none of them may be reused yet.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map(|(_, item)| item)
    }

    /// The waiting items, oldest first, for an owner that goes away together with every reader.
    pub fn into_items(self) -> impl Iterator<Item = T> {
        self.items.into_iter().map(|(_, item)| item)
    }
}

impl<T> Default for Limbo<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_retired_thing_waits_for_pins_that_were_there_and_for_no_others() {
        let domain = Domain::new(2);
        let (a, b) = (domain.participant(0), domain.participant(1));
        let before = a.pin();
        let tag = domain.retire();
        assert!(!domain.is_quiescent(tag));
        let after = b.pin();
        assert!(!domain.is_quiescent(tag));
        drop(before);
        assert!(domain.is_quiescent(tag), "b pinned after the retirement");
        let later = domain.retire();
        assert!(!domain.is_quiescent(later));
        assert!(domain.is_quiescent(tag));
        drop(after);
        assert!(domain.is_quiescent(later));
    }

    #[test]
    fn pins_nest() {
        let domain = Domain::new(1);
        let reader = domain.participant(0);
        let outer = reader.pin();
        let tag = domain.retire();
        let inner = reader.pin();
        drop(outer);
        assert!(!domain.is_quiescent(tag), "guards may drop in any order; the last one counts");
        drop(inner);
        assert!(domain.is_quiescent(tag));
        let again = reader.pin();
        assert!(domain.is_quiescent(tag));
        drop(again);
    }

    #[test]
    #[should_panic(expected = "the seat of participant 1 is taken")]
    fn a_seat_is_taken_once() {
        let domain = Domain::new(2);
        let _first = domain.participant(1);
        let _second = domain.participant(1);
    }

    #[test]
    #[should_panic(expected = "participant 2 of a domain that has seats for 2")]
    fn a_seat_must_exist() {
        Domain::new(2).participant(2);
    }

    #[test]
    fn a_dropped_participant_frees_its_seat_and_its_forgotten_pins() {
        let domain = Domain::new(1);
        assert_eq!(domain.participants(), 1);
        let reader = domain.participant(0);
        std::mem::forget(reader.pin());
        let tag = domain.retire();
        assert!(!domain.is_quiescent(tag));
        drop(reader);
        assert!(domain.is_quiescent(tag));
        let reader = domain.participant(0);
        drop(reader.pin());
    }

    #[test]
    fn limbo_returns_items_in_order_once_quiescent() {
        let domain = Domain::new(1);
        let reader = domain.participant(0);
        let mut limbo = Limbo::new();
        assert_eq!(limbo.pop(&domain), None);
        limbo.push(&domain, 1);
        let pin = reader.pin();
        limbo.push(&domain, 2);
        limbo.push(&domain, 3);
        assert_eq!((limbo.pop(&domain), limbo.pop(&domain), limbo.len()), (Some(1), None, 2));
        drop(pin);
        assert_eq!((limbo.pop(&domain), limbo.pop(&domain), limbo.pop(&domain)), (Some(2), Some(3), None));
        assert!(limbo.is_empty());
        limbo.push(&domain, 4);
        limbo.push(&domain, 5);
        assert_eq!(limbo.into_items().collect::<Vec<_>>(), [4, 5]);
    }
}
