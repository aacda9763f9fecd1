//! Bounded single-producer single-consumer ring, messages by value.
//!
//! # Invariants
//!
//! 1. `head` and `tail` count messages taken and given since the start, wrapping; `tail - head <= capacity`, a power of
//!    two. Message number `n` lives in slot `n & (capacity - 1)`.
//! 2. Only the producer writes `tail`, only the consumer writes `head`. Slots `head..tail` hold messages and are the
//!    consumer's; the others are empty and the producer's.
//! 3. A slot changes hands by the Release store of an index and the other side's Acquire load of it.
//!
//! Each side keeps its own index in a register, so to speak, and a copy of the other's, which it renews only when the
//! ring looks full (or empty). A stream of messages thus touches the other core's index line once per lap, not
//! once per message.

use super::sync::{Arc, AtomicUsize, Ordering, UnsafeCell};
use std::mem::MaybeUninit;

/// An index alone on its cache lines (two: adjacent lines are fetched in pairs).
#[repr(align(128))]
struct Index(AtomicUsize);

struct Shared<T> {
    /// Messages taken.
    head: Index,
    /// Messages given.
    tail: Index,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: messages cross threads by value (`T: Send`); slots are accessed by one side at a time (invariants 2, 3).
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: likewise; the last holder drops what is left.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    fn slot(&self, number: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[number & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let (mut head, tail) = (self.head.0.load(Ordering::Acquire), self.tail.0.load(Ordering::Acquire));
        while head != tail {
            // SAFETY: exclusive access; slots `head..tail` hold messages (invariant 2).
            self.slot(head).with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            head = head.wrapping_add(1);
        }
    }
}

/// Sending half. `Send`: it lives on one core at a time.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    /// `head` as last seen: at most the true one.
    head_seen: usize,
}

/// Receiving half. `Send`: it lives on one core at a time.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    /// `tail` as last seen: at most the true one.
    tail_seen: usize,
}

/// A ring of `capacity` messages, allocated at once. Messages that nobody takes are dropped with the second half.
///
/// # Panics
///
/// When `capacity` is not a power of two.
pub fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    assert!(capacity.is_power_of_two(), "a ring of {capacity} messages: the capacity must be a power of two");
    let shared = Arc::new(Shared {
        head: Index(AtomicUsize::new(0)),
        tail: Index(AtomicUsize::new(0)),
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
    });
    (Producer { shared: shared.clone(), tail: 0, head_seen: 0 }, Consumer { shared, head: 0, tail_seen: 0 })
}

impl<T: Send> Producer<T> {
    /// Gives the message back when full.
    ///
    /// The consumer may see it at once; a sleeping one learns of it by [`super::Bell::ring`] after the batch.
    #[inline]
    pub fn push(&mut self, message: T) -> Result<(), T> {
        let capacity = self.shared.slots.len();
        if self.tail.wrapping_sub(self.head_seen) == capacity {
            self.head_seen = self.shared.head.0.load(Ordering::Acquire);
            if self.tail.wrapping_sub(self.head_seen) == capacity {
                return Err(message);
            }
        }
        // SAFETY: the slot is the producer's: its last message was taken, as `head_seen` (Acquire) says.
        self.shared.slot(self.tail).with_mut(|slot| unsafe { (*slot).write(message) });
        self.tail = self.tail.wrapping_add(1);
        self.shared.tail.0.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Messages the ring can hold.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }
}

impl<T: Send> Consumer<T> {
    /// Oldest message.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.head == self.tail_seen {
            self.tail_seen = self.shared.tail.0.load(Ordering::Acquire);
            if self.head == self.tail_seen {
                return None;
            }
        }
        // SAFETY: the slot holds a message, as `tail_seen` (Acquire) says, and it is read once: `head` moves on.
        let message = self.shared.slot(self.head).with_mut(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(1);
        self.shared.head.0.store(self.head, Ordering::Release);
        Some(message)
    }

    /// Whether no message waits. Looks at the producer's index itself, never at the copy, so that after
    /// [`super::Bell::arm`] (whose fence comes first) it cannot miss a push whose [`super::Bell::ring`] saw no sleeper.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == self.shared.tail.0.load(Ordering::Acquire)
    }
}
