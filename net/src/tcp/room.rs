//! Memory of responses, which is counted as they grow and until the client has taken them.

use crate::tcp::frame::Begun;
use nigh_shard::account::{Account, Charge, MemoryUse};
use nigh_shard::core::{ANSWER_UNCOUNTED_BYTES, answers_most};
use std::sync::Arc;

/// See the module. Short responses cost nothing.
pub struct Room {
    account: Arc<Account>,
    charge: Option<Charge>,
    refused: bool,
}

impl Room {
    /// Nothing yet.
    pub fn new(account: &Arc<Account>) -> Room {
        Room { account: account.clone(), charge: None, refused: false }
    }

    /// Holds so many bytes from now on; false when other answers leave no room for them, and ever after.
    pub fn holds(&mut self, bytes: usize) -> bool {
        if bytes > ANSWER_UNCOUNTED_BYTES && !self.refused {
            let account = &self.account;
            let most = answers_most(account.limit_bytes());
            self.refused = match &mut self.charge {
                Some(charge) => !charge.resize(bytes as u64, most),
                None => {
                    self.charge = account.charge(MemoryUse::Answers, bytes as u64, most);
                    self.charge.is_none()
                }
            };
        }
        !self.refused
    }

    /// Whether the response that has `begun` in `out` is not to be continued: it fits no frame, or there is no room for it.
    pub fn is_full(&mut self, begun: &Begun, out: &[u8]) -> bool {
        begun.is_too_long(out) || !self.holds(begun.bytes(out))
    }

    /// Whether there was no room for what was to be held.
    pub fn was_refused(&self) -> bool {
        self.refused
    }

    /// Whether no response that has to be counted would find room.
    pub fn is_exhausted(&self) -> bool {
        let account = &self.account;
        self.refused || account.held(MemoryUse::Answers) >= answers_most(account.limit_bytes())
    }

    /// What was counted; it goes on to be.
    pub fn into_charge(self) -> Option<Charge> {
        self.charge
    }
}
