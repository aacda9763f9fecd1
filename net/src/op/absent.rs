//! Requests for what this node lacks: partitions, which no node of this build has, and a store of backups, if none is configured. They are checked as
//! if the node had it, so that an error in the request is reported first, and then end with [`ErrorKind::Unmet`].

use crate::op::{Action, ApiError, ErrorKind, Operation};
use nigh_shard::core::Core;
use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Partitions a collection may be split into (interface).
pub const PARTITIONS: RangeInclusive<i64> = 2..=65_536;

/// What a node may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A store for snapshots and cold collections.
    ObjectStore,
    /// Collections that are divided into partitions.
    Partitions,
}

/// A request that needs what the node lacks.
pub struct Unmet {
    /// Name as sent, empty = none.
    pub collection: String,
    /// What it needs and the node lacks.
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

/// Checks the number of partitions of a new collection, which has one owner.
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
            // These requests act on a collection itself, so an alias is not accepted.
            core.expect_collection(&collection)?;
        }
        let reason = match lack {
            Lack::ObjectStore => "no object store is configured on this node",
            Lack::Partitions => "this node is not partitioned: its collections lie whole on one core",
        };
        Err(ApiError::new(ErrorKind::Unmet, reason))
    }
}
