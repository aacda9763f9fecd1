//! Answers: messages as they grow, and what operations have come to as messages.

use super::configuration;
use super::message::PREFIX_BYTES;
use crate::auth::key_limits::KeyLimits;
use crate::auth::registry::ListedKey;
use crate::auth::secret::hex;
use crate::door::{Shape, SpaceNames};
use crate::limits::GRPC_MESSAGE_MAX_BYTES;
use crate::op::{ApiError, ErrorKind};
use crate::room::Room;
use crate::wire::config::{spaces_object, whole_object};
use crate::wire::explain;
use crate::wire::info::{configuration_of, state};
use crate::wire::payloads::{WithId, content, write_in, write_metadata, write_payload};
use crate::wire::proto::TokenVector;
use crate::wire::proto::messages::*;
use crate::wire::value::{facet_value, scalar, write_json};
use bytes::Bytes;
use nigh_engine::collection::config_keys::{Key, Value};
use nigh_engine::collection::{DenseConfig, MultiVectorConfig, NamedConfig};
use nigh_engine::payload::{PayloadFormat, PayloadRow};
use nigh_shard::account::{Account, Charge};
use nigh_shard::core::{
    ANSWERS_CROWDED, Alias, CollectionInfo, Explained, FacetValue, FoundGroup, FoundPoint, SpaceInfo,
    StoredPoint, Written,
};
use nigh_shard::family::CollectionConfig;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An answer up to this many bytes is counted by its call alone.
pub const UNCOUNTED_BYTES: usize = 1024;

/// A message that is being made. A message is the messages that it is put together from, one behind the other: fields that are not repeated
/// belong to one of them, and those that are have the items of all. So a long one is made page by page.
pub struct Answer {
    /// Room for the prefix, then what was put.
    out: Vec<u8>,
    room: Room,
}

/// Bytes on their way to a client, with what they are counted by.
struct Counted {
    bytes: Vec<u8>,
    #[allow(dead_code, reason = "held until the bytes are dropped")]
    charge: Option<Charge>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Answer {
    /// Nothing yet.
    pub fn new(account: &Arc<Account>) -> Answer {
        Answer { out: vec![0; PREFIX_BYTES], room: Room::beyond(account, UNCOUNTED_BYTES) }
    }

    /// Makes sure of the memory for so many bytes before anything is changed.
    ///
    /// # Errors
    /// Other answers leave no room for them.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), ApiError> {
        if self.room.holds(PREFIX_BYTES + bytes) { Ok(()) } else { Err(crowded()) }
    }

    /// Appends a part.
    pub fn put(&mut self, part: &impl Message) {
        // Vectors of bytes grow as needed, so that there is always room.
        let _fits = part.encode(&mut self.out);
    }

    /// Appends a message that was encoded before, as the field with this number.
    pub fn put_encoded(&mut self, field: u32, message: &[u8]) {
        prost::encoding::encode_key(field, prost::encoding::WireType::LengthDelimited, &mut self.out);
        prost::encoding::encode_varint(message.len() as u64, &mut self.out);
        self.out.extend_from_slice(message);
    }

    /// Whether there is no place for so many bytes more: the message would be longer than it may be, or there is no room for it.
    pub fn is_full_with(&mut self, bytes: usize) -> bool {
        self.out.len() + bytes > PREFIX_BYTES + GRPC_MESSAGE_MAX_BYTES
            || !self.room.holds(self.out.len() + bytes)
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether it is not to be continued: it is longer than a message may be, or there is no room for it.
    pub fn is_full(&mut self) -> bool {
        self.is_too_long() || !self.room.holds(self.out.len())
    }

    fn is_too_long(&self) -> bool {
        self.out.len() > PREFIX_BYTES + GRPC_MESSAGE_MAX_BYTES
    }

    /// The message with its prefix, counted until the client has taken the last of it.
    ///
    /// # Errors
    /// It is longer than a message may be, or other answers leave no room for it.
    pub fn finish(mut self) -> Result<Bytes, ApiError> {
        if self.is_too_long() {
            let text =
                format!("response too large: at most {GRPC_MESSAGE_MAX_BYTES} bytes; ask for less at a time");
            return Err(ApiError::new(ErrorKind::TooLarge, text));
        }
        // One that was reserved for keeps what it has if that is enough.
        if !self.room.holds(self.out.len()) {
            return Err(crowded());
        }
        let len = (self.out.len() - PREFIX_BYTES) as u32;
        self.out[1..PREFIX_BYTES].copy_from_slice(&len.to_be_bytes());
        Ok(Bytes::from_owner(Counted { bytes: self.out, charge: self.room.into_charge() }))
    }
}

/// The start of a group: its key.
pub fn group_key(group: &FoundGroup) -> Group {
    Group { key_json: text(|out| write_in(group.format, out, &scalar(&group.key))), hits: Vec::new() }
}

/// The refusal of an answer that others leave no room for.
pub fn crowded() -> ApiError {
    ApiError::new(ErrorKind::Unavailable, ANSWERS_CROWDED)
}

/// What `write` appends, as text.
fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    // JSON of rows, whose texts are checked when they come.
    String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The whole payload, the document text among the rest; empty when nothing lives in it.
fn payload_json(row: &[u8], now_ms: u64) -> String {
    if row.is_empty() {
        return String::new();
    }
    let json = text(|out| write_payload(out, row, WithId::Yes, now_ms));
    if json == "null" { String::new() } else { json }
}

/// A name without the tenant that a bare name has.
fn bare(name: &str) -> String {
    name.strip_prefix("default/").unwrap_or(name).to_owned()
}

/// What a hit is shown with.
pub struct HitFormat {
    /// What vectors a point has; `None` unless vectors are asked for.
    pub shape: Option<Shape>,
    /// The time that payloads are read at, Unix milliseconds.
    pub now_ms: u64,
}

impl HitFormat {
    /// A hit.
    pub fn result(&self, hit: &FoundPoint) -> SearchResult {
        SearchResult {
            id: hit.id,
            distance: hit.distance,
            score: hit.score,
            // Without a payload the row holds nothing, or a string that is the id.
            payload_json: payload_json(&hit.row, self.now_ms),
            hit_vectors: self.vectors(hit),
        }
    }

    /// A hit as the document it is at that time.
    pub fn document(&self, hit: &FoundPoint) -> Document {
        Document {
            distance: hit.distance,
            score: hit.score,
            hit_vectors: self.vectors(hit),
            ..row_document(hit.id, &hit.row, self.now_ms)
        }
    }

    /// A document of a multi-vector collection with its score.
    pub fn scored(&self, hit: &FoundPoint) -> MVResult {
        let (id, score, metadata_json) = (hit.id, hit.score, payload_json(&hit.row, self.now_ms));
        MVResult { id, score, metadata_json, hit_vectors: self.vectors(hit) }
    }

    /// A part of a group with one hit: a message that is encoded in parts, one behind the other, is decoded as one.
    pub fn part_of_group(&self, hit: &FoundPoint) -> Group {
        Group { hits: vec![self.document(hit)], ..Group::default() }
    }

    fn vectors(&self, hit: &FoundPoint) -> Option<HitVectors> {
        let mut vectors = hit.vectors.iter();
        Some(match self.shape.as_ref()? {
            Shape::One => {
                let sparse = (!hit.row.is_empty()).then(|| PayloadRow::trusted(&hit.row).sparse());
                let (sparse_indices, sparse_values) = sparse.into_iter().flatten().unzip();
                let vector = vectors.next().map(|(_, vector)| vector).unwrap_or_default();
                HitVectors { vector, sparse_indices, sparse_values, ..HitVectors::default() }
            }
            Shape::Spaces(spaces) => {
                // Hits have no sparse vectors of named spaces on any transport.
                let dense: Vec<_> = vectors.collect();
                HitVectors { vectors: named_vectors(&dense, &[], spaces), ..HitVectors::default() }
            }
            Shape::Tokens => {
                let tokens = vectors.map(|(_, values)| TokenVector { values }).collect();
                HitVectors { tokens, ..HitVectors::default() }
            }
        })
    }
}

/// A document that nothing ranks.
pub fn row_document(id: u64, row: &[u8], now_ms: u64) -> Document {
    Document {
        id,
        distance: 0.0,
        score: 0.0,
        content: content(row, now_ms).unwrap_or_default().to_owned(),
        metadata_json: text(|out| write_metadata(out, row, WithId::Yes, now_ms)),
        hit_vectors: None,
    }
}

/// A point that was found among others.
pub fn point(point: StoredPoint, now_ms: u64) -> BatchGetPoint {
    // The sparse vector belongs to the vectors.
    let asked = point.vector.is_some() && !point.row.is_empty();
    let sparse = asked.then(|| PayloadRow::trusted(&point.row).sparse());
    let (sparse_indices, sparse_values) = sparse.into_iter().flatten().unzip();
    BatchGetPoint {
        id: point.id,
        payload_json: payload_json(&point.row, now_ms),
        vector: point.vector.unwrap_or_default(),
        ttl_ms: i64::try_from(point.ttl_ms).unwrap_or(i64::MAX),
        version: point.version,
        sparse_indices,
        sparse_values,
    }
}

/// A point that was asked for alone.
pub fn found(stored: StoredPoint, now_ms: u64) -> GetResponse {
    let BatchGetPoint { vector, payload_json, ttl_ms, version, sparse_indices, sparse_values, .. } =
        point(stored, now_ms);
    GetResponse { found: true, vector, payload_json, ttl_ms, version, sparse_indices, sparse_values }
}

/// The vectors of a point by the names of their spaces, dense and sparse ones.
fn named_vectors(
    dense: &[(usize, Vec<f32>)],
    row: &[u8],
    spaces: &SpaceNames,
) -> BTreeMap<String, NamedVectorList> {
    let dense = spaces.dense_of(dense);
    let dense = dense.map(|(name, values)| {
        (name.to_owned(), NamedVectorList { values: values.to_vec(), ..NamedVectorList::default() })
    });
    let mut all: BTreeMap<_, _> = dense.collect();
    if !row.is_empty() {
        let row = PayloadRow::trusted(row);
        for (number, name) in spaces.sparse_spaces() {
            let (sparse_indices, sparse_values): (Vec<_>, Vec<_>) = row.sparse_of(number).unzip();
            if !sparse_indices.is_empty() {
                let vector = NamedVectorList { sparse_indices, sparse_values, ..NamedVectorList::default() };
                all.insert(name.to_owned(), vector);
            }
        }
    }
    all
}

/// The report of a search.
pub fn explanation(explained: &Explained) -> String {
    text(|out| write_json(out, &explain::explanation(explained)))
}

/// A point of named spaces that was found among others.
pub fn named_point(
    point: &StoredPoint,
    spaces: &SpaceNames,
    with_vector: bool,
    now_ms: u64,
) -> NamedBatchGetPoint {
    NamedBatchGetPoint {
        id: point.id,
        vectors: if with_vector {
            named_vectors(&point.vectors, &point.row, spaces)
        } else {
            BTreeMap::new()
        },
        payload_json: payload_json(&point.row, now_ms),
        ttl_ms: i64::try_from(point.ttl_ms).unwrap_or(i64::MAX),
        version: point.version,
    }
}

/// A point of named spaces that was asked for alone.
pub fn named_found(
    stored: &StoredPoint,
    spaces: &SpaceNames,
    with_vector: bool,
    now_ms: u64,
) -> NamedGetResponse {
    let NamedBatchGetPoint { vectors, payload_json, ttl_ms, version, .. } =
        named_point(stored, spaces, with_vector, now_ms);
    NamedGetResponse { found: true, vectors, payload_json, ttl_ms, version }
}

/// A document of a multi-vector collection that was found among others.
pub fn token_document(stored: StoredPoint, now_ms: u64) -> MVBatchGetPoint {
    MVBatchGetPoint {
        id: stored.id,
        payload_json: payload_json(&stored.row, now_ms),
        tokens: stored.vectors.into_iter().map(|(_, values)| TokenVector { values }).collect(),
        version: stored.version,
    }
}

/// A document of a multi-vector collection that was asked for alone.
pub fn document_found(stored: StoredPoint, now_ms: u64) -> MVGetResponse {
    let MVBatchGetPoint { tokens, payload_json, version, .. } = token_document(stored, now_ms);
    MVGetResponse { found: true, tokens, payload_json, version }
}

/// The spaces of a collection with their configurations.
pub fn named_config(name: &str, config: &NamedConfig) -> NamedGetConfigResponse {
    let config_json = text(|out| write_json(out, &spaces_object(config)));
    NamedGetConfigResponse { name: bare(name), config_json, collection_json: collection_json(config) }
}

/// The collection keys of a collection of named spaces that are set, as JSON; empty if none is.
fn collection_json(config: &NamedConfig) -> String {
    let whole = whole_object(&config.whole);
    if whole.is_empty() { String::new() } else { text(|out| write_json(out, &whole)) }
}

/// What became of a point of a batch.
pub fn written(id: u64, written: &Written) -> BatchResult {
    match written {
        Written::Ok { version } => BatchResult { id, version: *version, conflict: false },
        Written::Conflict => BatchResult { id, version: 0, conflict: true },
    }
}

/// One collection of the list.
pub fn entry(info: &CollectionInfo) -> CollectionEntry {
    // One of named spaces has neither a metric nor a dimension of its own.
    let config = info.config.dense();
    let metric = match config.map(|config| Key::Metric.effective(config)) {
        Some(Value::Word(word)) => word.to_owned(),
        _ => String::new(),
    };
    CollectionEntry {
        name: bare(&info.name),
        dim: config.map_or(0, |config| u32::try_from(config.dim).unwrap_or(u32::MAX)),
        metric,
        points: info.stats.points(),
        damaged: info.damage.is_some() && !info.is_closed,
        closed: info.is_closed,
        opening: info.is_opening,
    }
}

/// A collection with its configuration.
///
/// # Errors
/// One of another family.
pub fn config(info: &CollectionInfo) -> Result<GetConfigResponse, ApiError> {
    Ok(GetConfigResponse {
        name: bare(&info.name),
        config: Some(configuration::message_of(info.dense_config()?)),
        points: info.stats.points(),
    })
}

/// All that there is to know of a collection.
pub fn info(info: &CollectionInfo) -> GetInfoResponse {
    let (stats, usage) = (&info.stats, &info.usage);
    let index = |space: String, config: &DenseConfig, now: &SpaceInfo| IndexInfo {
        space,
        r#type: config.index.name().to_owned(),
        cells: now.cells.map_or(0, |cells| cells.cells),
        walks: now.walks.to_owned(),
    };
    let indexes = match &*info.config {
        CollectionConfig::Named(config) => {
            let each = config.spaces.iter().zip(&info.spaces).filter(|(space, _)| !space.is_dropped);
            each.map(|(space, now)| index(space.name.clone(), &space.config, now)).collect()
        }
        CollectionConfig::Dense(config) => {
            info.spaces.iter().map(|now| index(String::new(), config, now)).collect()
        }
        CollectionConfig::MultiVector(config) => {
            info.spaces.iter().map(|now| index(String::new(), &config.tokens, now)).collect()
        }
    };
    GetInfoResponse {
        name: bare(&info.name),
        family: info.config.family().name().to_owned(),
        config_json: text(|out| write_json(out, &configuration_of(info))),
        points: stats.points(),
        sparse_vectors: stats.sparse_vectors,
        tombstoned: stats.tombstoned,
        tokens: info.tokens,
        state: state(info).to_owned(),
        indexed: stats.indexed(),
        waiting: stats.tail,
        indexes,
        memory: Some(MemoryInfo {
            bytes: stats.bytes,
            graph_bytes: usage.graph,
            codes_bytes: usage.codes,
            slots_bytes: usage.slots,
            payload_bytes: usage.rows,
            ids_bytes: usage.ids,
            tail_bytes: usage.tail,
            payload_index_bytes: usage.payload_index,
            lanes_bytes: usage.lanes,
            file_vectors_bytes: usage.file_vectors,
            file_vectors_resident_bytes: info.resident_vectors,
            file_index_bytes: usage.file_index,
        }),
        collection_json: info.config.named().map(collection_json).unwrap_or_default(),
    }
}

/// The configuration of a multi-vector collection.
pub fn tokens_config(name: &str, config: &MultiVectorConfig) -> MVGetConfigResponse {
    MVGetConfigResponse { name: bare(name), config: Some(configuration::tokens_message_of(config)) }
}

/// A value of a facet and how often it is there.
pub fn facet_count((value, count): &(FacetValue, u64), format: PayloadFormat) -> FacetCount {
    FacetCount { value_json: text(|out| write_in(format, out, &facet_value(value))), count: *count }
}

/// A key as a listing has it, without its token.
pub fn key(key: &ListedKey) -> RedactedKey {
    let ListedKey { fingerprint, tenant, scopes, cert_cn, limits } = key.clone();
    let KeyLimits { requests_per_second, bytes_per_second, connections } = limits;
    let fingerprint = hex(&fingerprint);
    RedactedKey { fingerprint, tenant, scopes, cert_cn, requests_per_second, bytes_per_second, connections }
}

/// An alias.
pub fn alias(alias: &Alias) -> AliasEntry {
    AliasEntry { alias: bare(&alias.alias), collection: bare(&alias.collection) }
}
