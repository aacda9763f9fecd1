//! What all calls of a core share.

use super::config::GrpcConfig;
use super::methods::{Methods, PACKAGE};
use super::reflection::Reflection;
use crate::access_log::RequestIds;
use crate::door::Door;
use nigh_shard::account::CoreCharges;
use std::cell::Cell;
use std::rc::Rc;

/// See the module.
pub struct Here {
    /// The way to the core.
    pub door: Door,
    /// What is called.
    pub methods: Methods,
    /// What is told about it.
    pub reflection: Reflection,
    /// How this front end was started.
    pub config: Rc<GrpcConfig>,
    /// What messages of calls hold.
    pub requests_held: Rc<CoreCharges>,
    /// What calls hold beside their messages.
    pub calls_held: Rc<CoreCharges>,
    /// The last look at the status that somebody watches.
    pub look: Cell<Option<Look>>,
    /// Names of calls in the access log.
    pub request_ids: RequestIds,
}

/// A look at whether the server is ready.
#[derive(Clone, Copy)]
pub struct Look {
    /// When it was, on the clock of the core.
    pub at_ns: u64,
    /// What it found.
    pub is_ready: bool,
}

impl Here {
    /// Whether the service is served under this package.
    pub fn serves(&self, package: &str) -> bool {
        package == PACKAGE || self.config.alias.as_deref() == Some(package)
    }
}
