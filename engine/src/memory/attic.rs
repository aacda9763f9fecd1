//! Links between the parts of a structure that one owner changes and any core reads, and the attic where replaced
//! parts wait for their readers.
//!
//! [`Published`](super::Published) swings one value with a limbo of its own. A search tree or a set of postings has
//! millions of such places: here a place is one word ([`LinkCell`]) and all of them share one limbo ([`Attic`]).
//!
//! # Invariants
//!
//! 1. A [`Link`] is an address. Copying it copies no value and dropping it frees nothing, so a part may be copied while
//!    both copies lead to the same children.
//! 2. A part is freed once: by the attic after it was retired and has become quiescent, or by the structure's drop.
//! 3. Before a part is retired nothing that a new reader can reach leads to it.

use super::{Domain, Limbo};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Retired parts that share one tag: a tag costs a fence and a read-modify-write on a line that all cores read.
const BATCH: usize = 64;

/// A part that knows the heap bytes it holds, its own box included. The answer never changes.
pub(crate) trait Held: Send + Sync {
    /// Bytes, as an allocator would round them.
    fn held_bytes(&self) -> usize;
}

/// The address of a boxed part.
pub(crate) struct Link<T>(NonNull<T>);

impl<T> Clone for Link<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Link<T> {}

// SAFETY: an address; what may be done with it is said at the unsafe methods.
unsafe impl<T: Send + Sync> Send for Link<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Link<T> {}

impl<T> Link<T> {
    /// Asks for the first line of what it leads to. A hint: that may be gone.
    #[inline]
    pub(crate) fn prefetch(self) {
        crate::distance::prefetch_line(self.0.as_ptr());
    }

    /// The part.
    ///
    /// # Safety
    ///
    /// The part is not freed during `'a`: the caller is the owner and neither frees nor reclaims meanwhile, or it
    /// reached the link under a pin that outlives `'a`.
    #[inline]
    pub(crate) unsafe fn get<'a>(self) -> &'a T {
        // SAFETY: made from a box, not freed (caller), and never borrowed exclusively before it is freed.
        unsafe { self.0.as_ref() }
    }

    /// Boxes a part that its owner keeps the books of itself.
    pub(crate) fn boxed(part: T) -> Link<T> {
        Link(NonNull::from(Box::leak(Box::new(part))))
    }

    /// The part, as the box that it was.
    ///
    /// # Safety
    ///
    /// As for [`Self::free`].
    pub(crate) unsafe fn into_box(self) -> Box<T> {
        // SAFETY: made from a box; the caller is the last to use the link.
        unsafe { Box::from_raw(self.0.as_ptr()) }
    }

    /// Whether both lead to one part.
    #[inline]
    pub(crate) fn is(self, other: Option<Link<T>>) -> bool {
        other.is_some_and(|other| self.0 == other.0)
    }

    /// Drops the part at once.
    ///
    /// # Safety
    ///
    /// Nobody uses the part or frees it again.
    pub(crate) unsafe fn free(self) {
        // SAFETY: made from a box by `Attic::make`; the caller is the last to use it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A word that leads to a part, or nowhere. The owner stores, any core loads.
pub(crate) struct LinkCell<T>(AtomicPtr<T>);

impl<T> LinkCell<T> {
    /// Leading to `link`.
    pub(crate) fn new(link: Option<Link<T>>) -> Self {
        LinkCell(AtomicPtr::new(word(link)))
    }

    /// Where it leads. What the owner wrote before it stored the link is visible.
    #[inline]
    pub(crate) fn load(&self) -> Option<Link<T>> {
        NonNull::new(self.0.load(Ordering::Acquire)).map(Link)
    }

    /// Owner: leads elsewhere from now on.
    pub(crate) fn store(&self, link: Option<Link<T>>) {
        self.0.store(word(link), Ordering::Release);
    }
}

fn word<T>(link: Option<Link<T>>) -> *mut T {
    link.map_or(std::ptr::null_mut(), |link| link.0.as_ptr())
}

/// A retired part with its type forgotten.
struct Retired {
    part: NonNull<u8>,
    /// Takes the part back as the box it was.
    free: unsafe fn(NonNull<u8>),
    bytes: usize,
}

// SAFETY: made from parts that are `Send` (`Held`), and it owns them like a box does.
unsafe impl Send for Retired {}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: `free` fits the part's type (`retire` made both), and nobody reaches the part any more: dropped by
        // `reclaim` when quiescent, or with the whole attic, whose structure no reader borrows then.
        unsafe { (self.free)(self.part) }
    }
}

/// The owner's maker of parts and queue of replaced ones.
pub(crate) struct Attic {
    domain: Arc<Domain>,
    /// Bytes of all parts made and not freed.
    held: usize,
    /// Retired, not tagged yet.
    open: Vec<Retired>,
    waiting: Limbo<Vec<Retired>>,
    /// No reader is left; to be freed.
    freeing: Vec<Retired>,
}

impl Attic {
    pub(crate) fn new(domain: Arc<Domain>) -> Self {
        Attic { domain, held: 0, open: Vec::new(), waiting: Limbo::new(), freeing: Vec::new() }
    }

    /// Boxes a part.
    pub(crate) fn make<T: Held>(&mut self, part: T) -> Link<T> {
        self.held += part.held_bytes();
        Link(NonNull::from(Box::leak(Box::new(part))))
    }

    /// Frees the part once no reader can hold it.
    ///
    /// # Safety
    ///
    /// `link` was made by this attic and is retired once; nothing leads to it for readers that pin from now on, and the
    /// readers that may hold it pin in this attic's domain.
    pub(crate) unsafe fn retire<T: Held>(&mut self, link: Link<T>) {
        unsafe fn free<T>(part: NonNull<u8>) {
            // SAFETY: the pointer of a `Link<T>`; the caller is the last to use it.
            unsafe { Link(part.cast::<T>()).free() }
        }
        // SAFETY: not freed: it is being retired just now.
        let bytes = unsafe { link.get() }.held_bytes();
        self.open.push(Retired { part: link.0.cast(), free: free::<T>, bytes });
        if self.open.len() >= BATCH {
            self.close();
        }
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            let batch = std::mem::take(&mut self.open);
            self.waiting.push(&self.domain, batch);
        }
    }

    /// Frees up to `max` parts that no reader can hold any more, each some 50 ns.
    pub(crate) fn reclaim(&mut self, max: usize) {
        self.close();
        let mut left = max;
        while left > 0 {
            if self.freeing.is_empty() {
                let Some(batch) = self.waiting.pop(&self.domain) else { break };
                self.freeing = batch;
            }
            let keep = self.freeing.len().saturating_sub(left);
            left -= self.freeing.len() - keep;
            for retired in self.freeing.drain(keep..) {
                self.held -= retired.bytes;
            }
        }
    }

    /// Bytes of all parts, those that wait included.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held
    }

    /// Parts that wait, about.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn waiting(&self) -> usize {
        self.open.len() + self.waiting.len() * BATCH + self.freeing.len()
    }
}

/// Heap bytes of an allocation of `bytes`: allocators keep classes of 16, and none for nothing.
pub(crate) fn allocated(bytes: usize) -> usize {
    bytes.next_multiple_of(16)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    struct Part<'a>(u32, &'a AtomicUsize);
    impl Held for Part<'_> {
        fn held_bytes(&self) -> usize {
            100
        }
    }
    impl Drop for Part<'_> {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn replaced_parts_outlive_their_readers_and_no_longer() {
        let drops = AtomicUsize::new(0);
        let domain = Domain::new(1);
        let seat = domain.participant(0);
        let mut attic = Attic::new(domain);
        let first = attic.make(Part(1, &drops));
        let cell = LinkCell::new(Some(first));
        let pin = seat.pin();
        let seen = cell.load().unwrap();
        let second = attic.make(Part(2, &drops));
        cell.store(Some(second));
        // SAFETY: unlinked above, retired once.
        unsafe { attic.retire(first) };
        attic.reclaim(10);
        // SAFETY: reached under the pin.
        assert_eq!((unsafe { seen.get() }.0, drops.load(Ordering::Relaxed), attic.held_bytes()), (1, 0, 200));
        drop(pin);
        attic.reclaim(10);
        assert_eq!((drops.load(Ordering::Relaxed), attic.held_bytes(), attic.waiting()), (1, 100, 0));
        // SAFETY: unlinked by nobody, but no reader is left.
        unsafe { attic.retire(second) };
        drop(attic);
        assert_eq!(drops.load(Ordering::Relaxed), 2, "an attic frees what waits in it");
    }

    #[test]
    fn freeing_goes_in_slices() {
        let drops = AtomicUsize::new(0);
        let mut attic = Attic::new(Domain::new(1));
        for index in 0..200 {
            let link = attic.make(Part(index, &drops));
            // SAFETY: never linked.
            unsafe { attic.retire(link) };
        }
        for done in [70, 140, 200, 200] {
            attic.reclaim(70);
            assert_eq!(drops.load(Ordering::Relaxed), done);
        }
        assert_eq!(attic.held_bytes(), 0);
    }
}
