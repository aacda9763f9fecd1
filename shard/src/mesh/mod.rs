//! Bounded message rings between cores, and the bell that wakes a sleeping one.
//!
//! # Invariants
//!
//! 1. One [`ring`] per ordered pair of cores, one [`Bell`] per consuming core, shared by all that push to it.
//! 2. Messages move by value and own their data. Per ring they arrive once each, in the order of pushing.
//! 3. Nothing here blocks or spins. A full ring gives the message back, an empty one says so.
//! 4. No message waits for a sleeping consumer: see below.
//!
//! # A core sleeps and is woken
//!
//! ```text
//! consumer                              producer
//! C1  bell.arm(): sleeping = 1, fence   P1  push all messages of the batch
//! C2  any ring non-empty? disarm, work  P2  bell.ring(): fence, sleeping != 0 and swap(0) != 0?
//! C3  sleep until the descriptor fires  P3    then write the descriptor
//! C4  bell.disarm(), drain the rings
//! ```
//!
//! Either the producer's fence precedes the consumer's in the one order of SeqCst fences, and then C2 sees the push; or
//! the consumer's precedes, and then P2 sees the flag. In the second case P3 writes unless another producer has
//! taken the flag first and writes itself; whoever takes the flag writes *after* its own push, and the consumer reads all
//! rings after waking. So each sleep costs at most one write, however many producers ring, and no push is left lying.
//!
//! The descriptor is registered edge-triggered and never read: each write is a new edge, and a 64-bit counter that
//! grows by one per sleep does not fill up. A write that arrives when the consumer is up already costs one empty turn.

mod bell;
mod ring;
mod sync;

pub use bell::Bell;
pub use ring::{Consumer, Producer, ring};

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;
