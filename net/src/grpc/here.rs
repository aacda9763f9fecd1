//! What all calls of a core share.

use super::config::GrpcConfig;
use super::methods::{Methods, PACKAGE};
use super::reflection::Reflection;
use crate::access_log::RequestIds;
use crate::door::Door;
use nigh_shard::account::CoreCharges;
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
    /// Names of calls in the access log.
    pub request_ids: RequestIds,
}

impl Here {
    /// Whether the service is served under this package.
    pub fn serves(&self, package: &str) -> bool {
        package == PACKAGE || self.config.alias.as_deref() == Some(package)
    }
}
