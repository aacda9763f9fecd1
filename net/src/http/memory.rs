//! What the requests and answers of a core's connections may take of the memory of the process.

use super::HttpConfig;
use crate::limits;
use nigh_shard::account::{Account, Charge, MemoryUse};
use std::sync::Arc;

/// See the module.
pub(super) struct Memory {
    pub account: Arc<Account>,
    bodies_most: u64,
    heads_most: u64,
}

impl Memory {
    pub fn new(account: Arc<Account>, config: &HttpConfig) -> Memory {
        Memory { account, bodies_most: config.max_body_bytes, heads_most: config.max_head_bytes }
    }

    /// Makes `held` what a body of so many bytes holds, nothing for a small one; false, and nothing has changed, when there is no room.
    pub fn hold_body(&self, held: &mut Option<Charge>, bytes: u64) -> bool {
        bytes <= limits::BODY_UNCOUNTED_BYTES || self.hold(held, MemoryUse::Requests, bytes, self.bodies_most)
    }

    /// Makes `held` what a head of so many bytes holds, as [`Self::hold_body`] does for a body.
    pub fn hold_head(&self, held: &mut Option<Charge>, bytes: u64) -> bool {
        bytes <= limits::HEAD_UNCOUNTED_BYTES || self.hold(held, MemoryUse::Heads, bytes, self.heads_most)
    }

    fn hold(&self, held: &mut Option<Charge>, of: MemoryUse, bytes: u64, most: u64) -> bool {
        match held {
            Some(charge) => charge.resize(bytes, most),
            None => {
                *held = self.account.charge(of, bytes, most);
                held.is_some()
            }
        }
    }
}
