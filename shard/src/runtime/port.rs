//! One core's end of the mesh: rings to and from every other core, and a queue to itself.
//!
//! Capacity per ordered pair of cores: a ring, then an overflow list on the sender's side of the same size. A full overflow is
//! back-pressure ([`Port::send`] refuses). Replies are the exception, for a refused reply would leave its caller waiting for
//! ever: they always enter the overflow, which stays bounded because askers bound what they ask for. Operations do so by
//! [`CALLS_IN_FLIGHT_MAX`](crate::env::CALLS_IN_FLIGHT_MAX); calls of the runtime itself by [`CALLS_MAX`] per destination.

use super::Message;
use super::inbox::CoreShared;
use crate::mesh::{Consumer, Producer};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

/// Slots of a ring with up to 8 cores: 4096 messages of 16 bytes are 64 KiB, so 8 cores' 56 rings take 3.5 MiB.
const RING_SLOTS_MAX: usize = 4096;
/// Slots of a ring never fall below this, whatever the number of cores.
const RING_SLOTS_MIN: usize = 256;
/// Messages in the overflow of one destination before `send` refuses.
const OVERFLOW_MAX: usize = 4096;
/// Calls a core may have under way to one destination; also the bound on the replies that may wait there.
pub(super) const CALLS_MAX: u32 = 4096;
/// Messages one turn runs, so that sockets and tasks get their share of the core: about 0.1 ms of short messages.
const MESSAGES_PER_TURN: usize = 1024;

/// Slots per ring: 4096 with up to 8 cores, halved each time their number doubles (64 cores: 512, 32 MiB in all).
fn ring_slots(cores: usize) -> usize {
    (RING_SLOTS_MAX * 8 / cores.next_power_of_two().max(8)).max(RING_SLOTS_MIN)
}

/// The ends of all rings that belong to one core, in core order; its own place is empty.
#[derive(Default)]
pub(super) struct RingEnds {
    producers: Vec<Option<Producer<Message>>>,
    consumers: Vec<Consumer<Message>>,
}

/// Rings between all ordered pairs of `cores`.
pub(super) fn rings(cores: usize) -> Vec<RingEnds> {
    let mut ends: Vec<RingEnds> = (0..cores).map(|_| RingEnds::default()).collect();
    for from in 0..cores {
        for to in 0..cores {
            if from == to {
                ends[from].producers.push(None);
            } else {
                let (producer, consumer) = crate::mesh::ring(ring_slots(cores));
                ends[from].producers.push(Some(producer));
                ends[to].consumers.push(consumer);
            }
        }
    }
    ends
}

/// See the module. Lives on its core.
pub(super) struct Port {
    peers: Vec<Peer>,
    consumers: RefCell<Vec<Consumer<Message>>>,
    /// Messages to this core itself.
    own: RefCell<VecDeque<Message>>,
    /// Where the next turn starts reading, so that a busy peer does not starve the others.
    first: Cell<usize>,
    /// Messages in all overflow lists.
    overflowed: Cell<usize>,
    /// Some peer has messages and no bell yet.
    dirty: Cell<bool>,
}

struct Peer {
    core: Arc<CoreShared>,
    producer: Option<RefCell<Producer<Message>>>,
    overflow: RefCell<VecDeque<Message>>,
    dirty: Cell<bool>,
}

/// Whether a message may be refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Admission {
    Bounded,
    /// A reply: bounded by its caller.
    Always,
}

impl Port {
    pub(super) fn new(cores: &[Arc<CoreShared>], ends: RingEnds) -> Port {
        let peer = |(core, producer): (&Arc<CoreShared>, Option<Producer<Message>>)| Peer {
            core: core.clone(),
            producer: producer.map(RefCell::new),
            overflow: RefCell::default(),
            dirty: Cell::new(false),
        };
        Port {
            peers: cores.iter().zip(ends.producers).map(peer).collect(),
            consumers: RefCell::new(ends.consumers),
            own: RefCell::default(),
            first: Cell::new(0),
            overflowed: Cell::new(0),
            dirty: Cell::new(false),
        }
    }

    /// Queues a message; false (and the message dropped) when the way to `to` is full.
    pub(super) fn send(&self, to: usize, message: Message) -> bool {
        self.push(to, message, Admission::Bounded)
    }

    /// Queues a reply; never refused.
    pub(super) fn reply(&self, to: usize, message: Message) {
        self.push(to, message, Admission::Always);
    }

    fn push(&self, to: usize, message: Message, admission: Admission) -> bool {
        let peer = &self.peers[to];
        let Some(producer) = &peer.producer else {
            let mut own = self.own.borrow_mut();
            if admission == Admission::Bounded && own.len() >= OVERFLOW_MAX {
                return false;
            }
            own.push_back(message);
            return true;
        };
        let mut overflow = peer.overflow.borrow_mut();
        if overflow.is_empty() {
            match producer.borrow_mut().push(message) {
                Ok(()) => self.mark_dirty(peer),
                Err(message) => self.overflow(&mut overflow, message),
            }
        } else if admission == Admission::Bounded && overflow.len() >= OVERFLOW_MAX {
            return false;
        } else {
            // Behind those that wait already: messages of a pair never overtake each other.
            self.overflow(&mut overflow, message);
        }
        true
    }

    fn overflow(&self, overflow: &mut VecDeque<Message>, message: Message) {
        overflow.push_back(message);
        self.overflowed.set(self.overflowed.get() + 1);
    }

    fn mark_dirty(&self, peer: &Peer) {
        peer.dirty.set(true);
        self.dirty.set(true);
    }

    /// Moves overflow into rings that have room again, then rings the bell of each peer that got something.
    pub(super) fn flush(&self) {
        if self.overflowed.get() > 0 {
            for peer in &self.peers {
                self.drain_overflow(peer);
            }
        }
        if self.dirty.replace(false) {
            for peer in &self.peers {
                if peer.dirty.replace(false) {
                    peer.core.bell.ring();
                }
            }
        }
    }

    fn drain_overflow(&self, peer: &Peer) {
        let Some(producer) = &peer.producer else { return };
        let mut overflow = peer.overflow.borrow_mut();
        while let Some(message) = overflow.pop_front() {
            if let Err(message) = producer.borrow_mut().push(message) {
                overflow.push_front(message);
                return;
            }
            self.overflowed.set(self.overflowed.get() - 1);
            self.mark_dirty(peer);
        }
    }

    /// Messages wait for room in a ring: nobody announces the room, so the core looks again soon.
    pub(super) fn has_overflow(&self) -> bool {
        self.overflowed.get() > 0
    }

    /// Whether [`Self::receive`] would find a message.
    pub(super) fn has_mail(&self) -> bool {
        !self.own.borrow().is_empty() || self.consumers.borrow().iter().any(|consumer| !consumer.is_empty())
    }

    /// Runs up to a turn's budget of messages through `run`; the count. Messages may send, but not receive.
    pub(super) fn receive(&self, mut run: impl FnMut(Message)) -> usize {
        let mut done = 0;
        // Only what waits now: a message that sends to its own core again must not hold the turn.
        let waiting = self.own.borrow().len();
        for _ in 0..waiting.min(MESSAGES_PER_TURN) {
            let message = self.own.borrow_mut().pop_front();
            let Some(message) = message else { break };
            run(message);
            done += 1;
        }
        let peers = self.consumers.borrow().len();
        let first = self.first.get();
        for offset in 0..peers {
            let peer = (first + offset) % peers;
            while done < MESSAGES_PER_TURN {
                let message = self.consumers.borrow_mut()[peer].pop();
                let Some(message) = message else { break };
                run(message);
                done += 1;
            }
        }
        if done >= MESSAGES_PER_TURN && peers > 0 {
            self.first.set((first + 1) % peers);
        }
        done
    }

    /// Drops what has not been received.
    pub(super) fn close(&self) {
        while let Some(message) = { self.own.borrow_mut().pop_front() } {
            drop(message);
        }
        for consumer in self.consumers.borrow_mut().iter_mut() {
            while let Some(message) = consumer.pop() {
                drop(message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_shrink_as_cores_grow() {
        assert_eq!([1, 2, 8, 9, 16, 64, 1024].map(ring_slots), [4096, 4096, 4096, 2048, 2048, 512, 256]);
    }

    fn two_ports() -> (Port, Port) {
        let cores: Vec<_> = (0..2).map(|_| Arc::new(CoreShared::new().unwrap())).collect();
        let mut ends = rings(2).into_iter();
        (Port::new(&cores, ends.next().unwrap()), Port::new(&cores, ends.next().unwrap()))
    }

    #[test]
    fn order_survives_overflow_and_a_full_way_refuses() {
        let (sender, receiver) = two_ports();
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let message = |n: usize| -> Message {
            let seen = seen.clone();
            Box::new(move || seen.lock().unwrap().push(n))
        };
        let mut accepted = 0;
        while sender.send(1, message(accepted)) {
            accepted += 1;
        }
        assert_eq!(accepted, RING_SLOTS_MAX + OVERFLOW_MAX);
        sender.reply(1, message(accepted));
        assert!(sender.has_overflow());
        while receiver.receive(|message| message()) > 0 {
            sender.flush();
        }
        assert!(!sender.has_overflow() && !receiver.has_mail());
        assert_eq!(*seen.lock().unwrap(), (0..=accepted).collect::<Vec<_>>());
    }

    #[test]
    fn a_core_reaches_itself_at_its_next_turn() {
        let (port, _other) = two_ports();
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = count.clone();
        assert!(port.send(
            0,
            Box::new(move || {
                counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            })
        ));
        assert!(port.has_mail());
        assert_eq!(port.receive(|message| message()), 1);
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert!(!port.has_mail());
    }
}
