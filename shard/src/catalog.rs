//! Names to collections: one immutable map, published to every core, changed on core 0 alone.

use crate::access::Activity;
use crate::cold_stub::ColdStub;
use crate::error::OpError;
use crate::family::{CollectionConfig, Family};
use crate::latency::{Counted, Latency, OPERATION_BOUNDS_US};
use ahash::HashMap;
use nigh_engine::collection::{Dense, DenseConfig, NamedConfig, SpaceNumber, Stats};
use nigh_engine::memory::{Pin, Published};
use nigh_engine::payload::PayloadFormat;
use nigh_engine::point_id::IdKind;
use nigh_engine::query::{DocumentIndex, Indexing, Searched};
use nigh_engine::quoted::quoted;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Longest collection name, bytes.
pub const NAME_BYTES_MAX: usize = 247;

/// Every collection by full name (`<tenant>/<name>`).
#[derive(Default, Clone)]
pub struct Catalog {
    /// The map; handles are shared, the map is replaced whole.
    pub by_name: HashMap<String, Arc<CollectionHandle>>,
    /// Alias to collection, both by full name; no alias stands for another. A target may have been dropped.
    pub aliases: BTreeMap<String, String>,
    /// Collections that are being opened, by full name; they serve nothing yet.
    pub opening: HashMap<String, Arc<OpeningCollection>>,
    /// Collections that have left memory and disk, by full name; the store of backups has them.
    pub cold: HashMap<String, Arc<ColdCollection>>,
    /// The names are known. Before that, no name can be said to stand for nothing.
    pub is_read: bool,
    /// Which collections have plain payloads; made when the catalog is published.
    pub conventions: Conventions,
}

/// A collection that is being opened.
#[derive(Debug)]
pub struct OpeningCollection {
    /// `<tenant>/<name>`.
    pub name: String,
    /// Its configuration.
    pub config: Arc<CollectionConfig>,
}

/// A collection that the store of backups has, and whose directory says where.
#[derive(Debug)]
pub struct ColdCollection {
    /// That of its directory, which it keeps when it comes back.
    pub uid: u64,
    /// `<tenant>/<name>`.
    pub name: String,
    /// Its configuration.
    pub config: Arc<CollectionConfig>,
    /// Where it is.
    pub stub: ColdStub,
    /// Whether the directory certainly says that it is cold. Otherwise its files, which are those of the snapshot, may be there in whole, and a start
    /// may open them.
    pub is_settled: AtomicBool,
}

/// How the payloads of each collection are sent and answered, and the kind of its ids, as they were when some request began. Any thread may
/// ask, and copying costs no more than an `Arc` does.
#[derive(Clone, Debug, Default)]
pub struct Conventions {
    /// The full names of collections with plain payloads, and their aliases. Most servers have none, and nothing to count.
    plain: Option<Arc<BTreeSet<String>>>,
    /// The same for collections whose ids are strings.
    text_ids: Option<Arc<BTreeSet<String>>>,
}

impl Conventions {
    /// The format of the payloads of the collection of that name, which may be an alias. It is tagged if there is no such collection.
    pub fn format_of(&self, name: &str) -> PayloadFormat {
        match Conventions::holds(&self.plain, name) {
            true => PayloadFormat::Plain,
            false => PayloadFormat::Tagged,
        }
    }

    /// The kind of its ids, found in the same way.
    pub fn ids_of(&self, name: &str) -> IdKind {
        if Conventions::holds(&self.text_ids, name) { IdKind::String } else { IdKind::Number }
    }

    fn holds(names: &Option<Arc<BTreeSet<String>>>, name: &str) -> bool {
        names.as_ref().is_some_and(|names| full_name(name).is_some_and(|full| names.contains(&full)))
    }
}

impl Catalog {
    /// Notes the conventions of all collections. Takes time in proportion to the number of collections and aliases.
    pub(crate) fn note_conventions(&mut self) {
        let those = |has: fn(PayloadFormat, IdKind) -> bool| {
            // Collections that are being opened or are cold count as well: a request that is decoded now is carried out when its collection serves.
            let names = self.by_name.keys().chain(self.opening.keys());
            let names = names.chain(self.cold.keys()).chain(self.aliases.keys());
            let absent = |full: &str| {
                let cold = self.cold_of(full).map(|cold| &cold.config);
                self.opening_of(full).map(|opening| &opening.config).or(cold)
            };
            let is_one = |full: &&String| match (self.resolve(full), absent(full)) {
                (Some(handle), _) => has(handle.payload_format, handle.ids),
                (None, Some(config)) => has(config.payload_format(), config.ids()),
                (None, None) => false,
            };
            let found: BTreeSet<String> = names.filter(is_one).cloned().collect();
            (!found.is_empty()).then(|| Arc::new(found))
        };
        self.conventions = Conventions {
            plain: those(|format, _| format == PayloadFormat::Plain),
            text_ids: those(|_, ids| ids == IdKind::String),
        };
    }

    /// What a full name stands for, directly or as an alias.
    pub fn resolve(&self, full: &str) -> Option<&Arc<CollectionHandle>> {
        self.by_name.get(full).or_else(|| self.by_name.get(self.aliases.get(full)?))
    }

    /// The collection being opened that a full name stands for, directly or as an alias.
    fn opening_of(&self, full: &str) -> Option<&Arc<OpeningCollection>> {
        self.opening.get(full).or_else(|| self.opening.get(self.aliases.get(full)?))
    }

    /// The cold collection that a full name stands for, directly or as an alias.
    pub fn cold_of(&self, full: &str) -> Option<&Arc<ColdCollection>> {
        self.cold.get(full).or_else(|| self.cold.get(self.aliases.get(full)?))
    }

    /// Why a full name stands for no collection that is open: there is none, or it is not open yet. `name` is what the client has sent.
    pub fn lacks(&self, full: &str, name: &str) -> OpError {
        match (self.is_read, self.opening_of(full)) {
            (false, _) => OpError::Opening("the store is".to_owned()),
            (true, Some(_)) => OpError::Opening(format!("the collection {} is", quoted(name))),
            (true, None) => OpError::UnknownCollection(name.to_owned()),
        }
    }
}

/// What every core knows of a collection.
pub struct CollectionHandle {
    /// Never reused, names its directory and its log records.
    pub uid: u64,
    /// `<tenant>/<name>`.
    pub name: String,
    /// Its family.
    pub family: Family,
    /// How its payloads are sent and answered. It never changes.
    pub payload_format: PayloadFormat,
    /// The kind of its ids. It never changes.
    pub ids: IdKind,
    /// Its configuration; replaced whole by the owner when some of it changes, once that is durable.
    pub config: Published<Arc<CollectionConfig>>,
    /// The core whose shard holds it.
    pub owner: usize,
    /// The readable side; swung whole by a bulk build, and when a named space is added or dropped.
    pub view: Published<Arc<Dense>>,
    /// Counters of all cores.
    pub counters: Counters,
    /// Sequence number of the newest durable checkpoint: log records up to it are not needed any more.
    pub covered_seq: AtomicU64,
    /// Why the collection answers nothing, once that is so (corrupt image, hole in the log).
    pub damage: OnceLock<String>,
    /// That is for want of memory: its files are whole.
    pub is_closed: AtomicBool,
    /// The index of a multi-vector collection; unset in other families. It is a dense collection that clients cannot address, with the same
    /// owner. Each of its points is a token or the encoding of a document; its id and version encode the document
    /// ([`nigh_engine::query::document_of`]).
    pub tokens: OnceLock<Arc<CollectionHandle>>,
    /// Whether the points of that index are tokens or encodings.
    pub indexing: Indexing,
    /// The requests about it; only where there is a store that it can move to.
    pub activity: Option<Arc<Activity>>,
}

impl CollectionHandle {
    /// The readable side under a pin.
    pub fn dense<'p>(&'p self, pin: &'p Pin<'_>) -> &'p Dense {
        self.view.load(pin)
    }

    /// What a query is about, under a pin.
    pub fn searched<'p>(&'p self, pin: &'p Pin<'_>) -> Searched<'p> {
        // The index is read first: a bulk build puts the new documents in place before the new index, and relies on this order.
        let index = self.tokens.get().map(|tokens| tokens.dense(pin));
        let index = index.map(|dense| DocumentIndex { dense, indexing: &self.indexing });
        Searched { dense: self.dense(pin), index }
    }

    /// Why it serves nothing, if that is so: something of it is damaged, or of the index of its tokens, or (`true`) memory was short.
    pub fn failure(&self) -> Option<(String, bool)> {
        if let Some(why) = self.damage.get() {
            return Some((why.clone(), self.is_closed.load(Relaxed)));
        }
        let (why, is_closed) = self.tokens.get()?.failure()?;
        Some((format!("the index of its tokens: {why}"), is_closed))
    }

    /// The configuration under a pin.
    pub fn config<'p>(&'p self, pin: &'p Pin<'_>) -> &'p Arc<CollectionConfig> {
        self.config.load(pin)
    }

    /// The configuration of a dense collection under a pin.
    ///
    /// # Errors
    /// [`OpError::UnknownCollection`] for one of another family.
    pub fn dense_config<'p>(&'p self, pin: &'p Pin<'_>) -> Result<&'p DenseConfig, OpError> {
        self.config(pin).dense().ok_or_else(|| OpError::UnknownCollection(self.name.clone()))
    }

    /// The error for a space whose number is that of a dropped one, or of none that the collection ever had.
    pub(crate) fn no_such_space<'p>(&'p self, pin: &'p Pin<'_>, number: SpaceNumber) -> OpError {
        let name_of = |config: &'p NamedConfig| match number {
            SpaceNumber::Dense(number) => config.spaces.get(number).map(|space| &space.name),
            SpaceNumber::Sparse(number) => config.sparse_spaces.get(number).map(|space| &space.name),
        };
        OpError::BadRequest(match self.config(pin).named().and_then(name_of) {
            Some(name) => format!("the vector space {} does not exist", quoted(name)),
            None => "the collection was replaced while this request ran, and it no longer has one of the vector spaces named; send the request again".to_owned(),
        })
    }

    /// Whether the collection serves, and if not, why.
    pub fn state(&self) -> CollectionState {
        match self.failure() {
            None => CollectionState::Open,
            Some((_, true)) => CollectionState::Closed,
            Some((_, false)) => CollectionState::Damaged,
        }
    }

    /// Refuses when the collection is damaged, or closed for want of memory.
    pub fn healthy(&self) -> Result<(), OpError> {
        // Every operation comes through here, so nothing is copied while the collection is healthy.
        if self.damage.get().is_none() && self.tokens.get().is_none_or(|tokens| tokens.damage.get().is_none())
        {
            return Ok(());
        }
        match self.failure() {
            None => Ok(()),
            Some((why, true)) => {
                Err(OpError::NoMemory(format!("collection {:?} is closed: {why}", self.name)))
            }
            Some((_, false)) => Err(OpError::Damaged(format!("the collection {:?} is", self.name))),
        }
    }
}

/// Counters that any core bumps.
pub struct Counters {
    /// Searches that passed validation.
    pub search_ops: AtomicU64,
    /// Successful inserts and upserts.
    pub insert_ops: AtomicU64,
    /// Points removed by the sweeper.
    pub expired: AtomicU64,
    /// Writes and bulk builds refused by a quota.
    pub quota_rejects: AtomicU64,
    /// Distances computed in views that a bulk build has replaced.
    pub distances_before: AtomicU64,
    /// Searches.
    pub search_latency: Latency<{ OPERATION_BOUNDS_US.len() }>,
    /// Insert calls.
    pub insert_latency: Latency<{ OPERATION_BOUNDS_US.len() }>,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            search_ops: AtomicU64::new(0),
            insert_ops: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            quota_rejects: AtomicU64::new(0),
            distances_before: AtomicU64::new(0),
            search_latency: Latency::new(&OPERATION_BOUNDS_US),
            insert_latency: Latency::new(&OPERATION_BOUNDS_US),
        }
    }
}

/// Whether a collection serves, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionState {
    /// It serves.
    Open,
    /// Its files are damaged, or its writes were refused by a log that failed.
    Damaged,
    /// It did not fit into memory at the start.
    Closed,
}

impl CollectionHandle {
    /// For the metrics page.
    pub fn metrics(&self, pin: &Pin<'_>) -> CollectionMetrics {
        let mut stats = self.dense(pin).stats();
        if let Some(tokens) = self.tokens.get() {
            stats.add_index(&tokens.dense(pin).stats());
        }
        CollectionMetrics {
            name: self.name.clone(),
            is_damaged: self.state() == CollectionState::Damaged,
            is_closed: self.state() == CollectionState::Closed,
            stats,
            search_ops: self.counters.search_ops.load(Relaxed),
            insert_ops: self.counters.insert_ops.load(Relaxed),
            expired: self.counters.expired.load(Relaxed),
            quota_rejects: self.counters.quota_rejects.load(Relaxed),
            distances: self.counters.distances_before.load(Relaxed) + stats.distances,
            filter_rejects: stats.filter_rejects,
            search_latency: self.counters.search_latency.counted(),
            insert_latency: self.counters.insert_latency.counted(),
        }
    }
}

/// `<tenant>/<name>` of a name as a client writes it; a bare name belongs to tenant `default`. `None` when the form is wrong.
pub fn full_name(name: &str) -> Option<String> {
    match name.split_once('/') {
        None if !name.is_empty() => Some(format!("default/{name}")),
        Some((tenant, rest)) if !tenant.is_empty() && !rest.is_empty() && !rest.contains('/') => {
            Some(name.to_owned())
        }
        _ => None,
    }
}

/// Checks a name for create and returns the full name.
///
/// # Errors
/// [`OpError::BadRequest`] naming what is wrong: length over 247 bytes, empty parts, `.` or `..`, control bytes, `#` or `@`.
pub fn checked_name(name: &str) -> Result<String, OpError> {
    let bad = |what: &str| Err(OpError::BadRequest(format!("invalid collection name {name:?}: {what}")));
    if name.len() > NAME_BYTES_MAX {
        return Err(OpError::BadRequest(format!(
            "collection name too long: {} bytes, at most {NAME_BYTES_MAX}",
            name.len()
        )));
    }
    let Some(full) = full_name(name) else {
        return bad("expected NAME or TENANT/NAME, both parts non-empty");
    };
    if name.chars().any(char::is_control) {
        return bad("control characters are not allowed");
    }
    if name.contains(['#', '@']) {
        return bad("'#' and '@' are reserved");
    }
    if full.split('/').any(|part| part == "." || part == "..") {
        return bad("'.' and '..' are not names");
    }
    Ok(full)
}

/// The tenant of a full name.
fn tenant(full: &str) -> &str {
    full.split_once('/').map_or(full, |(tenant, _)| tenant)
}

/// Whether an alias and what it stands for, both full names, are of one tenant. Another's collections are none of its business, not
/// even whether they exist.
pub(crate) fn within_tenant(alias: &str, target: &str) -> bool {
    tenant(alias) == tenant(target)
}

/// How many collections serve nothing, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unserved {
    /// Their files are damaged, or their writes were refused by a log that failed.
    pub damaged: usize,
    /// They did not fit into memory at the start.
    pub closed: usize,
}

/// Counters of one collection for the metrics page.
#[derive(Clone, Debug, Default)]
pub struct CollectionMetrics {
    /// `<tenant>/<name>`.
    pub name: String,
    /// It serves nothing, as something of it is damaged.
    pub is_damaged: bool,
    /// It serves nothing, as it does not fit into memory.
    pub is_closed: bool,
    /// Gauges.
    pub stats: Stats,
    /// Searches that passed validation.
    pub search_ops: u64,
    /// Successful inserts.
    pub insert_ops: u64,
    /// Points removed by the sweeper.
    pub expired: u64,
    /// Refused by quota.
    pub quota_rejects: u64,
    /// Distances that searches computed.
    pub distances: u64,
    /// Candidates refused by a filter.
    pub filter_rejects: u64,
    /// How long searches took.
    pub search_latency: Counted<{ OPERATION_BOUNDS_US.len() }>,
    /// How long writes and bulk builds took.
    pub insert_latency: Counted<{ OPERATION_BOUNDS_US.len() }>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_and_checked() {
        let ok = |name: &str, full: &str| assert_eq!(checked_name(name).unwrap(), full);
        ok("docs", "default/docs");
        ok("acme/docs", "acme/docs");
        ok("a b.c", "default/a b.c");
        for bad in ["", "a/", "/b", "a/b/c", "..", ".", "a/..", "x\u{1}y", "a#b", "a@b", &"n".repeat(248)] {
            assert!(matches!(checked_name(bad), Err(OpError::BadRequest(_))), "{bad:?}");
        }
        assert!(checked_name(&"n".repeat(247)).is_ok());
    }
}
