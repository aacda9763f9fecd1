//! What a flush has left: tables and wheels that wait to be taken down.

use super::index::Index;
use super::table::Table;
use super::wheel::Wheel;
use crate::memory::Limbo;
use std::sync::Arc;

/// A table and a wheel that are not used any more.
pub(super) struct Ruin {
    pub(super) table: Arc<Table>,
    pub(super) bytes: usize,
    pub(super) rows: u64,
    /// Rows given back.
    pub(super) cleared: u64,
    pub(super) wheel: Wheel,
}

/// All that waits to be taken down.
#[derive(Default)]
pub(super) struct Ruins {
    /// Readers may be in these.
    pub(super) waiting: Limbo<Ruin>,
    pub(super) current: Option<Ruin>,
    /// Made ahead, so that a flush that is in the log cannot fail.
    pub(super) next: Option<Index>,
}

impl Ruins {
    fn iter(&self) -> impl Iterator<Item = &Ruin> {
        self.waiting.iter().chain(&self.current)
    }

    pub(super) fn table_bytes(&self) -> usize {
        self.iter().map(|ruin| ruin.bytes - (ruin.bytes as u64 * ruin.cleared / ruin.rows) as usize).sum()
    }

    pub(super) fn wheel_bytes(&self) -> usize {
        self.iter().map(|ruin| ruin.wheel.bytes()).sum()
    }
}
