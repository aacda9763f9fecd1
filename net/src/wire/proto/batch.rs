//! Batches of points and of searches whose messages are decoded one by one.

use super::messages::{NamedUpsertBatchRequest, UpsertBatchRequest};
use super::{Bound, Bounded};
use bytes::Bytes;
use prost::Message;

/// An [`UpsertBatchRequest`] with its points as they came.
///
/// A decoded point takes many times its bytes where it is made of small parts: thirteen times where these are entries of `key_ttl_ms`. So
/// points are decoded when their turn comes, and what is left of each is its vector and its row.
#[derive(Clone, PartialEq, Message)]
pub struct UpsertBatchParts {
    #[prost(string, tag = "1")]
    pub collection: String,
    /// Each a [`BatchPoint`](super::messages::BatchPoint).
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub points: Vec<Vec<u8>>,
    #[prost(bool, tag = "3")]
    pub upsert: bool,
    #[prost(bool, tag = "16")]
    pub with_version: bool,
}

impl Bounded for UpsertBatchParts {
    const NAME: &'static str = UpsertBatchRequest::NAME;
    const BOUNDS: &'static [Bound] = UpsertBatchRequest::BOUNDS;
}

/// A [`NamedUpsertBatchRequest`] with its points as they came, for the same reason.
#[derive(Clone, PartialEq, Message)]
pub struct NamedUpsertBatchParts {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Each element is a [`NamedBatchPoint`](super::messages::NamedBatchPoint).
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub points: Vec<Vec<u8>>,
    #[prost(bool, tag = "16")]
    pub with_version: bool,
}

impl Bounded for NamedUpsertBatchParts {
    const NAME: &'static str = NamedUpsertBatchRequest::NAME;
    const BOUNDS: &'static [Bound] = NamedUpsertBatchRequest::BOUNDS;
}

/// A batch of searches in a collection of any family, with its searches as they came: a decoded token vector takes twelve times its bytes where it is
/// short. [`SearchBatchRequest`](super::messages::SearchBatchRequest), [`NamedSearchBatchRequest`](super::messages::NamedSearchBatchRequest) and
/// [`MVSearchBatchRequest`](super::messages::MVSearchBatchRequest) have the same fields.
#[derive(Clone, PartialEq, Message)]
pub struct SearchBatchParts {
    #[prost(string, tag = "1")]
    pub collection: String,
    /// Each a [`BatchSearch`](super::messages::BatchSearch), a [`NamedBatchSearch`](super::messages::NamedBatchSearch) or an
    /// [`MVBatchSearch`](super::messages::MVBatchSearch).
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub searches: Vec<Bytes>,
    /// Not in a multi-vector collection.
    #[prost(bool, tag = "3")]
    pub with_documents: bool,
    #[prost(uint32, tag = "4")]
    pub read_consistency: u32,
    #[prost(uint32, tag = "5")]
    pub on_partition_unavailable: u32,
    #[prost(uint64, tag = "6")]
    pub max_staleness: u64,
    #[prost(string, tag = "100")]
    pub options_json: String,
    #[prost(bool, tag = "101")]
    pub with_errors: bool,
}
