//! What a backup holds of the keys of one core, until it has been sent.

use super::manifest::Image;
use super::tape::TapeRoom;
use crate::disk::DiskFile;
use std::rc::Rc;

/// What a backup holds of the keys of one core.
pub(crate) struct HeldKeys {
    /// The room of the tapes.
    pub(super) room: Rc<TapeRoom>,
    /// Images in the order in which they are read, then the file of tapes if there is one.
    pub files: Vec<HeldImage>,
}

/// A file of it.
pub(crate) struct HeldImage {
    /// What a manifest would say of it.
    pub image: Image,
    /// Its contents.
    pub file: Rc<dyn DiskFile>,
    /// Whether it has tapes: log records above the images.
    pub is_tape: bool,
}

/// What the stores of one core come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldFigures {
    /// Keys, those that have expired and are not removed yet included.
    pub keys: u64,
    /// Bytes of their entries in memory.
    pub live_bytes: u64,
}
