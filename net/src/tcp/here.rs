//! What the connections of a core share.

use crate::door::Door;
use crate::tcp::buffers::Buffers;
use crate::tcp::config::TcpConfig;
use crate::tcp::counters::{Count, Stage};
use crate::tcp::requests::Request;
use crate::tls::handshake::Handshakes;
use nigh_shard::account::CoreCharges;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// See the module.
pub struct Here {
    /// The way to the core.
    pub door: Door,
    /// Where connections are secure.
    pub handshakes: Option<Handshakes>,
    /// Configuration, with the counters.
    pub config: Rc<TcpConfig>,
    /// Spare buffers.
    pub buffers: Rc<Buffers>,
    /// What the buffers of its connections hold.
    pub requests_held: Rc<CoreCharges>,
    /// Spare lists of requests.
    pub spare_requests: RefCell<Vec<Vec<Request>>>,
}

/// Spare lists of requests that are kept, some 4 KiB each.
const SPARE_REQUESTS: usize = 16;

impl Here {
    /// Keeps a list of requests for the next round of anybody.
    pub fn keep_requests(&self, mut requests: Vec<Request>) {
        let mut spare = self.spare_requests.borrow_mut();
        if spare.len() < SPARE_REQUESTS {
            requests.clear();
            spare.push(requests);
        }
    }

    /// Counts on this core.
    pub fn count(&self, count: Count, amount: u64) {
        self.config.telemetry.tcp.add(self.door.env().index(), count, amount);
    }

    /// Adds time of a stage on this core.
    pub fn spend(&self, stage: Stage, time: Duration) {
        self.config.telemetry.tcp.spend(self.door.env().index(), stage, time);
    }
}
