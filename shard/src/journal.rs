//! Between the owners of data and the log: where the effect of a decision becomes durable before whoever asked is answered.
//!
//! Collections and keys know nothing else of the log when they change: they wait for room, decide, append the effect and apply it without an
//! await in between, and wait until it is durable. Today this is the log of the core; a replicated group will be another one. A start, a stop and
//! the trimming of segments are about the log of the core itself, and use it directly.

use crate::error::OpError;
pub(crate) use crate::log::{Purpose, RECORD_BYTES_MAX, RecordKey, Ticket};

/// See the module. Futures run on the core that made them.
pub(crate) trait Journal {
    /// Whether records outlive the process; where they do not, none is made.
    fn keeps_records(&self) -> bool;

    /// Whether records for `purpose` wait for checkpoints at the moment, although the log itself would take them.
    fn awaits_checkpoints(&self, purpose: Purpose) -> bool;

    /// Whether the log has failed, and refuses everything from now on.
    fn has_failed(&self) -> bool;

    /// Waits while room is made for a record of `bytes`; an append right after, without an await, is taken.
    ///
    /// # Errors
    /// [`OpError::NoSpace`] when the disk is full, [`OpError::Unavailable`] when the log has failed, [`OpError::Busy`] when
    /// checkpoints are far behind. What frees room does not wait for checkpoints that a full disk has no room for: they may wait for it.
    async fn wait_for_room(&self, purpose: Purpose, bytes: usize) -> Result<(), OpError>;

    /// Appends a record, which `encode` writes into `buffer`; `None` where nothing outlives the process, and then nothing is encoded.
    ///
    /// # Errors
    /// Nothing was appended. [`OpError::NoSpace`] when [`Self::wait_for_room`] has to be asked first, with the length of `buffer`.
    fn append(
        &self,
        purpose: Purpose,
        key: RecordKey,
        buffer: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Option<Ticket>, OpError>;

    /// Waits until `ticket` is as durable as the configured mode promises; at once when there is none.
    ///
    /// # Errors
    /// The log has failed: nothing behind what was durable before is known to be.
    async fn wait_durable(&self, ticket: Option<Ticket>) -> Result<(), OpError>;
}
