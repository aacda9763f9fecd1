//! What a log is told of its archive: the clock whose time its frames have, and who decides over segments that it needs no more.

use super::format::SegmentId;
use crate::disk::LocalBoxFuture;
use std::cell::{Cell, OnceCell};
use std::io;
use std::path::Path;
use std::rc::Rc;

/// Decides over segments that the log needs no more.
pub(crate) trait Keep {
    /// Removes the file of a segment, or moves it to where the archive finds it. `end` is where its frames end; `None`: where the file ends.
    fn let_go<'a>(
        &'a self,
        id: SegmentId,
        path: &'a Path,
        end: Option<u64>,
    ) -> LocalBoxFuture<'a, io::Result<()>>;
}

pub(super) type Clock = Rc<dyn Fn() -> u64>;

/// What a log knows of the archive.
#[derive(Default)]
pub(super) struct Archiving {
    pub(super) clock: OnceCell<Clock>,
    /// The time in the newest frame.
    pub(super) newest_ms: Cell<u64>,
    pub(super) keep: OnceCell<Rc<dyn Keep>>,
}
