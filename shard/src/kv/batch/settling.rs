//! Results that hold once the log has kept what they tell of.

use crate::error::OpError;
use crate::journal::{Journal, Ticket};
use crate::kv::store::Keys;

/// Results of changes on this core that are visible and wait for its log.
#[derive(Debug, Default)]
pub struct Unsettled {
    ticket: Option<Ticket>,
    /// As their callers have named them.
    promised: Vec<usize>,
}

/// The log has not kept changes whose results were promised.
#[derive(Debug)]
pub struct Unkept {
    /// Why.
    pub error: OpError,
    /// Which results these are, ascending.
    pub promised: Vec<usize>,
}

impl Unsettled {
    #[inline]
    pub(super) fn note(&mut self, at: usize, ticket: Option<Ticket>) {
        if ticket.is_some() {
            self.ticket = self.ticket.max(ticket);
            self.promised.push(at);
        }
    }

    /// Whether there is anything to wait for.
    pub fn is_awaited(&self) -> bool {
        self.ticket.is_some()
    }

    /// Waits until all are durable.
    ///
    /// # Errors
    /// Where the log has failed, all results that were promised are to be taken back: whether they will be found after a restart is not
    /// known.
    pub async fn settle(self, kv: &Keys) -> Result<(), Unkept> {
        let Unsettled { ticket, promised } = self;
        kv.ctx
            .wait_durable(ticket)
            .await
            .map_err(|error| Unkept { error: kv.ctx.note_refusal(error), promised })
    }
}
