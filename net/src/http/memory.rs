//! What the requests and answers of a core's connections may take of the memory of the process.

use super::HttpConfig;
use nigh_shard::account::{Account, CoreCharges, MemoryUse};
use std::rc::Rc;
use std::sync::Arc;

/// See the module.
pub(super) struct Memory {
    pub account: Arc<Account>,
    pub bodies: Rc<CoreCharges>,
    pub heads: Rc<CoreCharges>,
}

impl Memory {
    pub fn new(account: Arc<Account>, config: &HttpConfig) -> Memory {
        let bodies = CoreCharges::new(&account, MemoryUse::Requests, config.max_body_bytes);
        let heads = CoreCharges::new(&account, MemoryUse::Heads, config.max_head_bytes);
        Memory { account, bodies, heads }
    }

    /// Called every second.
    pub fn settle(&self) {
        self.bodies.settle();
        self.heads.settle();
    }
}
