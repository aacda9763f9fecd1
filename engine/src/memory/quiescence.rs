//! Quiescence: when may a retired slot or row be reused. Epoch scheme; see module docs (to be written).
use std::sync::Arc;
/// One per process (or test): the participants' announcements and the epoch.
pub struct Domain {}
impl Domain {
    /// A domain for at most `participants` reading threads (cores).
    pub fn new(participants: usize) -> Arc<Domain> {
        let _ = participants;
        todo!()
    }
    /// The reading side of participant `index`; each index may be taken once at a time (panics otherwise).
    pub fn participant(self: &Arc<Self>, index: usize) -> Participant {
        let _ = index;
        todo!()
    }
    /// Tags something that has just been made unreachable for new readers.
    pub fn retire(&self) -> RetireTag {
        todo!()
    }
    /// Whether every reader that could have seen what `tag` marks has unpinned.
    pub fn is_quiescent(&self, tag: RetireTag) -> bool {
        let _ = tag;
        todo!()
    }
}
/// The moment of a retirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetireTag(pub(super) u64);
/// A reader's seat; `Send`, not `Sync`, single thread at a time. Pins nest.
pub struct Participant {}
impl Participant {
    /// Announces that this thread holds published references until the guard drops. About 20 cycles; nests.
    pub fn pin(&self) -> Pin<'_> {
        todo!()
    }
}
/// Proof that the thread is pinned. Everything read from published memory lives at most as long.
pub struct Pin<'a> {
    _p: std::marker::PhantomData<&'a Participant>,
}
/// The owner's queue of retired things, oldest first.
pub struct Limbo<T> {
    _t: std::marker::PhantomData<T>,
}
impl<T> Limbo<T> {
    /// Empty.
    pub fn new() -> Self {
        todo!()
    }
    /// Queues `item` under a fresh tag.
    pub fn push(&mut self, domain: &Domain, item: T) {
        let _ = (domain, item);
        todo!()
    }
    /// Takes the oldest item if it is quiescent.
    pub fn pop(&mut self, domain: &Domain) -> Option<T> {
        let _ = domain;
        todo!()
    }
    /// Items waiting.
    pub fn len(&self) -> usize {
        todo!()
    }
    /// Nothing waiting.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
}
