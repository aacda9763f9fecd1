//! What a backup holds of the keys of one core, until it has been sent.

use super::manifest::Image;
use super::tape::TapeRoom;
use crate::disk::DiskFile;
use std::rc::Rc;

/// What a backup holds of the keys of one core.
pub(crate) struct HeldKeys {
    /// The memory that the tapes may take.
    pub(super) room: Rc<TapeRoom>,
    /// Images in the order in which they are read, then the file of tapes if there is one.
    pub files: Vec<HeldImage>,
}

/// One of the files that a backup holds.
pub(crate) struct HeldImage {
    /// What a manifest would say of it.
    pub image: Image,
    /// Its contents.
    pub file: Rc<dyn DiskFile>,
    /// Whether it is the file of tapes, which has the log records since the images were begun.
    pub is_tape: bool,
}

/// How many keys the shards of one core have, and how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldFigures {
    /// How many keys there are, including those that have expired and are not removed yet.
    pub keys: u64,
    /// Bytes of their entries in memory.
    pub live_bytes: u64,
}
