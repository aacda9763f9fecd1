//! Operations on what this build has none of: object stores and partitions. They are checked as
//! if it were there, so that a client's mistake is named before the node's lack, and then end with
//! [`ErrorKind::Unmet`].

use crate::op::{Action, ApiError, ErrorKind, Operation};
use nigh_shard::core::Core;
use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Partitions a collection may be split into (interface).
pub const PARTITIONS: RangeInclusive<i64> = 2..=65_536;

/// What the node lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Nowhere to put snapshots and cold collections.
    ObjectStore,
    /// No collection of one node is partitioned.
    Partitions,
}

/// A request that needs what the node lacks.
pub struct Unmet {
    /// Name as sent, empty = none.
    pub collection: String,
    /// What it needs.
    pub lack: Lack,
}

/// Checks a number of partitions, absent = 0.
///
/// # Errors
/// A bad request outside [`PARTITIONS`].
pub fn check_partitions(wanted: Option<i64>) -> Result<(), ApiError> {
    let wanted = wanted.unwrap_or(0);
    if PARTITIONS.contains(&wanted) {
        return Ok(());
    }
    let (least, most) = (PARTITIONS.start(), PARTITIONS.end());
    Err(ApiError::invalid(format!("new_partitions must be between {least} and {most}, found {wanted}")))
}

/// Checks the number of partitions of a new collection, which lies whole on one core.
///
/// # Errors
/// A bad request for a negative number, or more than one.
pub fn check_partitions_of_one(wanted: Option<i64>) -> Result<(), ApiError> {
    match wanted.unwrap_or(0) {
        0 | 1 => Ok(()),
        wanted => Err(ApiError::invalid(format!(
            "partitions must be 0 or 1, as this server does not divide collections; found {wanted}"
        ))),
    }
}

impl Operation for Unmet {
    type Output = Infallible;
    const RIGHT: Action = Action::Admin;
    const MUTATES: bool = false;
    const OF_FAMILY: bool = false;
    // A cold collection need not come back for this.
    const ENTERS: bool = false;
    fn collection(&self) -> &str {
        &self.collection
    }
    async fn run(self, core: Rc<Core>) -> Result<Infallible, ApiError> {
        let Unmet { collection, lack } = self;
        if !collection.is_empty() {
            // These act on a collection itself: an alias of that name is not it.
            core.expect_collection(&collection)?;
        }
        let reason = match lack {
            Lack::ObjectStore => "no object store is configured on this node",
            Lack::Partitions => "this node is not partitioned: its collections lie whole on one core",
        };
        Err(ApiError::new(ErrorKind::Unmet, reason))
    }
}
