//! The operations that every transport may request. Each is a struct that also implements what the operation does.
//!
//! An operation is a value that implements [`Operation`]. [`table`] says for all operations how each transport calls them and which right they need;
//! the [door](crate::door) checks this right and carries out the operations. A codec turns bytes into an operation and its output into bytes, and
//! decides nothing about data.

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

/// The right that an operation needs. Each right needs more trust than those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Read points, keys or counters.
    Read,
    /// Change points or keys.
    Write,
    /// Create, drop and administer collections, aliases and API keys.
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
    /// Its result.
    type Output: 'static;
    /// The least right with which it can be carried out. The [`table`] says which right a request needs.
    const RIGHT: Action;
    /// Whether it changes data. Such an operation runs to its end even if the connection of its request breaks.
    const MUTATES: bool;
    /// Whether it may take hours. If the process stops meanwhile, a client that waits for it gets an answer.
    const LASTS: bool = false;
    /// Whether the collection that it names has to exist, and to be of the family of the request.
    const OF_FAMILY: bool = true;
    /// Whether the collection that it names has to be in memory. A cold collection is then brought back first, and is not evicted until the operation
    /// has ended.
    const ENTERS: bool = true;
    /// The collection it names, as sent; empty when it names none.
    fn collection(&self) -> &str {
        ""
    }
    /// The one point that it is about, if it is about one.
    fn point(&self) -> Option<&SentId> {
        None
    }
    /// The kind in which its ids were sent. `None` without ids, and if numbers stand for ids of either kind. Ids in filters and lanes are checked
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

/// How fresh and how complete a read must be. A single node always answers completely and freshly, so the values are checked and then have no
/// effect.
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
    /// How many replicas must acknowledge the write, reduced to the number that exist; a negative number is refused.
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

/// Compiles a parsed filter; an empty condition is no filter.
///
/// # Errors
/// A bad request that names the condition which does not compile.
pub fn compile_filter(node: Option<Node>) -> Result<Option<Arc<Predicate>>, ApiError> {
    match node {
        Some(node) if node != Node::default() => match Predicate::compile(&node) {
            Ok(predicate) => Ok(Some(Arc::new(predicate))),
            Err(error) => Err(ApiError::invalid(error.to_string())),
        },
        _ => Ok(None),
    }
}

/// Checks a time to live in the field `name`. The largest is one that every client can represent in nanoseconds, over every protocol. Zero and less
/// mean for ever (interface).
///
/// # Errors
/// A bad request that names the value and the largest one.
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
/// A bad request that names the key, the value and the largest time to live.
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
