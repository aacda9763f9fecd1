//! Operations on the node.

use crate::kv_metrics;
use crate::metrics::{self, Telemetry};
use crate::op::{Action, ApiError, Operation};
use nigh_shard::core::{Core, TaskReport};
use std::rc::Rc;
use std::sync::Arc;

/// Lists background tasks.
pub struct ListTasks;

impl Operation for ListTasks {
    type Output = Vec<TaskReport>;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    async fn run(self, core: Rc<Core>) -> Result<Vec<TaskReport>, ApiError> {
        Ok(core.tasks().await?)
    }
}

/// Checks whether requests are served. The result is `None` if they are, or says why not.
pub struct CheckReady;

impl Operation for CheckReady {
    type Output = Option<String>;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    async fn run(self, core: Rc<Core>) -> Result<Option<String>, ApiError> {
        Ok(core.not_ready())
    }
}

/// Reads the metrics of the node and its collections, as text for Prometheus.
pub struct ReadMetrics {
    /// The counters of the front ends, which the page shows beside those of the core.
    pub telemetry: Arc<Telemetry>,
}

impl Operation for ReadMetrics {
    type Output = String;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    async fn run(self, core: Rc<Core>) -> Result<String, ApiError> {
        Ok(metrics::page(&core, &self.telemetry).await)
    }
}

/// Reads only the metrics of keys and values, as text for Prometheus.
pub struct ReadKvMetrics {
    /// The counters of the front ends, which the page shows beside those of the core.
    pub telemetry: Arc<Telemetry>,
}

impl Operation for ReadKvMetrics {
    type Output = String;
    const RIGHT: Action = Action::Read;
    const MUTATES: bool = false;
    async fn run(self, core: Rc<Core>) -> Result<String, ApiError> {
        Ok(kv_metrics::page(self.telemetry.prefix(), &core.keys().keys_stats().await))
    }
}
