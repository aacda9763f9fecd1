//! Memory that one owner writes and every core reads.
//!
//! * [`Arena`] reserves address space once and commits pages as it grows: nothing ever moves.
//! * [`Rows`]: a table of rows of atomics that grows by doubling chunks.
//! * [`Domain`], [`Participant`], [`Pin`]: quiescence. A reader pins before it follows published pointers or slots;
//!   the owner retires what readers may still see and reuses it once every participant has unpinned.
//! * [`Limbo`]: the owner's queue of retired things.
//! * [`Published`]: one pointer swung whole; `attic`: the same for structures of many parts.
//! * `Spill`: bytes that are needed once more and may leave memory until then.
//! * [`IdMap`]: id to slot, written by the owner, read anywhere.
//!
//! # Invariants of the room
//!
//! 1. *One writer.* Everything here has one owner; a second one at the same time is a bug that panics (`owned`).
//! 2. *Readers never wait.* No method that takes a [`Pin`] loops on another thread's progress.
//! 3. *Nothing is reused under a reader.* Unlink, then retire, then ask, then reuse; `quiescence` has the proof.
//! 4. *Memory is accounted.* What waits in a limbo counts as held.

mod arena;
mod attic;
mod id_map;
mod owned;
mod pages;
mod published;
mod quiescence;
mod rows;
mod spill;
mod storage;
pub(crate) mod sync;
mod table;

pub(crate) use arena::HUGE_PAGE_BYTES;
pub use arena::{Arena, ArenaError, Atomic, Zeroable, reserved_address_space};
pub(crate) use attic::{Attic, Held, Link, LinkCell, allocated};
pub use id_map::IdMap;
pub(crate) use owned::{Owned, OwnerGuard};
#[cfg(test)]
pub(crate) use pages::tests::anonymous_file;
pub use pages::{Backing, FilePages};
pub use published::Published;
pub use quiescence::{Domain, Limbo, Participant, Pin, RetireTag};
pub use rows::Rows;
pub(crate) use spill::{Spill, Spilled};
pub use storage::{ScratchFiles, Storage};

#[cfg(all(test, loom))]
mod loom_models;
