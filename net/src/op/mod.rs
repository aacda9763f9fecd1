//! The operations: what any transport may ask for, each as a struct together with what it does.
//!
//! An operation is a value that implements [`Operation`]. [`table`] says once for all of them how each transport calls it and which right
//! it needs; the [door](crate::door) lets requests in by that right and carries their operations out. A codec turns bytes into an
//! operation and its output into bytes, and decides nothing about data.

mod absent;
mod aliases;
mod backups;
mod bulk;
mod cold;
mod collections;
mod error;
mod identities;
mod ids;
mod keys;
mod kv;
mod multi_vector;
mod named;
mod node;
mod payload;
mod points;
mod query;
mod row;
mod scroll;
mod search;
mod search_options;
mod spaces;
pub mod table;
mod vectors;

pub use absent::{Lack, PARTITIONS, Unmet, check_partitions, check_partitions_of_one};
pub use aliases::{ChangeAliases, ListAliases, check_actions, names_of};
pub use backups::{BackUp, ListBackups, RestoreBackup, Subject, VerifyBackup};
pub use bulk::{BuildStaged, StageDocuments, StageNamed, StagePoints};
pub use cold::{Direction, MoveCollection};
pub use collections::{ChangeConfig, CreateCollection, DropCollection, GetCollection, ListCollections};
pub use error::{ApiError, ErrorKind};
pub use identities::{KvOp, KvQueryOp, MultiVectorOp, NamedOp, Op, PlacementOp, ProcessOp, VectorOp};
pub use ids::place_of;
pub use keys::{AddKey, ListKeys, RevokeKey};
pub use kv::{DefineKeyIndex, FlushKeys, ListKeyIndexes, QueryKeys};
pub use multi_vector::{
    AddDocuments, Document, GetMultiVectorConfig, HybridDocuments, QueryDocuments, SearchDocuments,
    token_source,
};
pub use named::{
    GetNamedConfig, HybridNamed, NamedPoint, QueryNamed, SearchNamed, UpsertNamed, check_lane_space,
};
pub use node::{CheckReady, ListTasks, ReadKvMetrics, ReadMetrics};
pub use payload::{
    ChangePayload, ChangePayloadIfPresent, ChangePayloads, OperatePoint, check_call, check_overwriting,
    operated,
};
pub use points::{BatchBuilder, DeletePoint, DeletePoints, GetPoints, WritePoints, check_ids};
pub use query::{
    DiversePoints, Diversity, GroupPoints, HybridPoints, QueryBounds, QueryLane, QueryLeaf, QueryNode,
    QueryPoints, TextPoints, ZeroAlpha, fusion_method, recommend_strategy, text_source,
};
pub use scroll::{CountPoints, FacetPoints, SamplePoints, Scroll, ScrollOrdered, ScrollPoints, listed};
pub use search::SearchPoints;
pub use search_options::SearchOptions;
pub use spaces::{AddSpace, DropSpace};
pub use vectors::{UpdateVectors, UpdateVectorsIfPresent};

use crate::limits;
use nigh_engine::filter::{Node, Predicate};
use nigh_engine::kv::TTL_MS_MAX;
use nigh_engine::point_id::IdKind;
pub use nigh_engine::point_id::{SentId, SentIds};
use nigh_engine::quoted::quoted;
use nigh_shard::core::Core;
use std::rc::Rc;
use std::sync::Arc;

/// The right an operation needs; each takes more trust than those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Look at points or counters.
    Read,
    /// Change points.
    Write,
    /// Create, drop, administer.
    Admin,
}

impl Action {
    /// Its name in scopes and in the audit log.
    pub fn word(self) -> &'static str {
        match self {
            Action::Read => "read",
            Action::Write => "write",
            Action::Admin => "admin",
        }
    }
}

/// One operation.
pub trait Operation: Sized + 'static {
    /// What it answers.
    type Output: 'static;
    /// The least right that lets a request carry it out; which right a request needs in fact says the [`table`].
    const RIGHT: Action;
    /// Whether it changes data. Such an operation runs to its end even when the connection that asked for it breaks.
    const MUTATES: bool;
    /// Whether it may take hours: who waits for it is answered when the process stops.
    const LASTS: bool = false;
    /// Whether the collection that it names has to be there, and of the family of the request.
    const OF_FAMILY: bool = true;
    /// Whether the collection that it names has to be in memory: a cold one is brought back first, and none leaves until this has ended.
    const ENTERS: bool = true;
    /// The collection it names, as sent; empty when it names none.
    fn collection(&self) -> &str {
        ""
    }
    /// The one point that it is about, if it is about one.
    fn point(&self) -> Option<&SentId> {
        None
    }
    /// What the ids in it were sent as. `None` without ids, and where numbers stand for ids of either kind; ids in filters and lanes are checked
    /// where these are used.
    fn id_kind(&self) -> Option<IdKind> {
        self.point().and_then(SentId::kind)
    }
    /// Checks what can be checked without storage.
    ///
    /// # Errors
    /// What is wrong, as a bad request.
    fn validate(&self) -> Result<(), ApiError> {
        Ok(())
    }
    /// Carries it out; called by the door after [`Operation::validate`].
    fn run(self, core: Rc<Core>) -> impl Future<Output = Result<Self::Output, ApiError>>;
}

/// How fresh and how complete a read must be. One node always answers completely and freshly, so beyond their ranges
/// these change nothing here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// 0 any replica, 1 leader, 2 linearizable, 3 bounded staleness.
    pub read_consistency: u8,
    /// 0 partial answers, 1 fail.
    pub on_partition_unavailable: u8,
    /// Bound of level 3; ignored otherwise.
    pub max_staleness: u64,
}

/// Conditions of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Replica acknowledgements wanted, clamped to what exists; negative is refused.
    pub write_consistency_factor: i64,
    /// Version the point must have, 0 = absent.
    pub expected_version: Option<u64>,
}

impl ReadOptions {
    /// Range checks.
    ///
    /// # Errors
    /// A bad request that names the field.
    pub fn validate(&self) -> Result<(), ApiError> {
        if self.read_consistency > 3 {
            return Err(ApiError::invalid(format!(
                "read_consistency must be 0, 1, 2 or 3, found {}",
                self.read_consistency
            )));
        }
        if self.on_partition_unavailable > 1 {
            return Err(ApiError::invalid(format!(
                "on_partition_unavailable must be 0 or 1, found {}",
                self.on_partition_unavailable
            )));
        }
        Ok(())
    }
}

impl WriteOptions {
    /// Range checks.
    ///
    /// # Errors
    /// A bad request that names the field.
    pub fn validate(&self) -> Result<(), ApiError> {
        if self.write_consistency_factor < 0 {
            return Err(ApiError::invalid(format!(
                "write_consistency_factor must not be negative, found {}",
                self.write_consistency_factor
            )));
        }
        Ok(())
    }
}

/// Compiles a filter as parsed; a node that says nothing at all is no filter.
///
/// # Errors
/// A bad request that names the node which does not compile.
pub fn compile_filter(node: Option<Node>) -> Result<Option<Arc<Predicate>>, ApiError> {
    match node {
        Some(node) if node != Node::default() => match Predicate::compile(&node) {
            Ok(predicate) => Ok(Some(Arc::new(predicate))),
            Err(error) => Err(ApiError::invalid(error.to_string())),
        },
        _ => Ok(None),
    }
}

/// Checks a time to live of the field `name`: one at most that every client can hold in nanoseconds, over every protocol. Zero and less
/// mean for ever (interface).
///
/// # Errors
/// Names the value and the largest.
pub fn check_ttl(name: &str, ttl_ms: i64) -> Result<(), ApiError> {
    match u64::try_from(ttl_ms) {
        Ok(ttl) if ttl > TTL_MS_MAX => {
            Err(ApiError::invalid(format!("{name} {ttl_ms} is out of range: at most {TTL_MS_MAX}")))
        }
        _ => Ok(()),
    }
}

/// Checks the times to live of the keys of a payload.
///
/// # Errors
/// Names the key, the value and the largest time to live.
pub fn check_key_ttls(key_ttl_ms: &[(String, i64)]) -> Result<(), ApiError> {
    match key_ttl_ms.iter().find(|(_, ttl_ms)| check_ttl("", *ttl_ms).is_err()) {
        Some((key, ttl_ms)) => check_ttl(&format!("key_ttl_ms of {}", quoted(key)), *ttl_ms),
        None => Ok(()),
    }
}

/// Checks the length of a collection name.
///
/// # Errors
/// `collection name too long` beyond 247 bytes.
pub fn check_name(name: &str) -> Result<(), ApiError> {
    if name.len() > limits::NAME_MAX_BYTES {
        return Err(ApiError::invalid(format!(
            "collection name too long: {} bytes, at most {}",
            name.len(),
            limits::NAME_MAX_BYTES
        )));
    }
    Ok(())
}
