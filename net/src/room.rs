//! Memory of responses, which is counted as they grow and until the client has taken them.

use nigh_shard::account::{Account, Charge, MemoryUse};
use nigh_shard::core::{ANSWER_UNCOUNTED_BYTES, answers_most};
use std::sync::Arc;

/// See the module.
pub struct Room {
    account: Arc<Account>,
    /// Responses up to this many bytes cost nothing.
    uncounted: usize,
    charge: Option<Charge>,
    refused: bool,
}

impl Room {
    /// Nothing yet, and nothing for a short response.
    pub fn new(account: &Arc<Account>) -> Room {
        Room::beyond(account, ANSWER_UNCOUNTED_BYTES)
    }

    /// Nothing yet, and nothing for a response of so many bytes.
    pub fn beyond(account: &Arc<Account>, uncounted: usize) -> Room {
        Room { account: account.clone(), uncounted, charge: None, refused: false }
    }

    /// Holds so many bytes from now on; false when other answers leave no room for them, and ever after.
    pub fn holds(&mut self, bytes: usize) -> bool {
        if bytes > self.uncounted && !self.refused {
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
