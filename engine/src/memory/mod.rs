//! Memory that one owner writes and every core reads.
//!
//! * [`Arena`] reserves address space once and commits pages as it grows: nothing ever moves.
//! * [`Domain`], [`Participant`], [`Pin`]: quiescence. A reader pins before it follows published pointers or slots;
//!   the owner retires what readers may still see and reuses it once every participant has unpinned.
//! * [`Limbo`]: the owner's queue of retired things.
//! * [`Published`]: one pointer swung whole.
//! * [`IdMap`]: id to slot, written by the owner, read anywhere.

mod arena;
mod id_map;
mod published;
mod quiescence;

pub use arena::{Arena, ArenaError};
pub use id_map::IdMap;
pub use published::Published;
pub use quiescence::{Domain, Limbo, Participant, Pin, RetireTag};
