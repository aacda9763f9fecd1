//! Batches of searches: each search is decoded when its turn comes, because all of them at once would take a multiple of their message.

use super::parts::{filter, read_options, search_options};
use super::request::{Common, Request, SearchBatch};
use crate::door::{Permit, Shape};
use crate::op::{
    ApiError, QueryDocuments, QueryNamed, QueryPoints, ReadOptions, SearchDocuments, SearchNamed,
    SearchPoints,
};
use crate::wire::embedded::sparse_of;
use crate::wire::proto::messages::{
    BatchSearch, MVBatchSearch, MVSearchBatchRequest, NamedBatchSearch, NamedSearchBatchRequest,
    SearchBatchRequest,
};
use crate::wire::proto::{self, Bounded, SearchBatchParts, decode_parts};
use crate::wire::query::{document_query_of, named_query_of, query_of};
use nigh_engine::query::Source;
use nigh_shard::core::QueryOutcome;
use nigh_shard::family::Family;

/// Decodes the message of a batch in a collection of this family.
pub fn decode(family: Family, bytes: &[u8]) -> Result<Request, ApiError> {
    match family {
        Family::Dense => batch::<SearchBatchRequest>(bytes),
        Family::Named => batch::<NamedSearchBatchRequest>(bytes),
        Family::MultiVector => batch::<MVSearchBatchRequest>(bytes),
    }
}

fn batch<M: Bounded>(bytes: &[u8]) -> Result<Request, ApiError> {
    let message: SearchBatchParts = decode_parts::<M, _>(bytes)?;
    let read: ReadOptions = read_options!(message);
    read.validate()?;
    let options = search_options(&message.options_json)?;
    let SearchBatchParts { collection, searches, with_documents: with_rows, with_errors, .. } = message;
    let common = Common { collection, with_rows, options, read };
    Ok(Request::SearchBatch(SearchBatch { searches, with_errors, common }))
}

/// One search of a batch, by the family of its collection.
pub enum One {
    /// In a dense collection.
    Points(SearchPoints),
    /// In a collection of named spaces.
    Named(SearchNamed),
    /// In a multi-vector collection.
    Documents(SearchDocuments),
    /// A query of lanes in a dense collection.
    Query(QueryPoints),
    /// A query of lanes in a collection of named spaces.
    QueryNamed(QueryNamed),
    /// A query of lanes in a multi-vector collection.
    QueryDocuments(QueryDocuments),
}

impl One {
    /// Decodes a search of a batch.
    ///
    /// Cost: that of compiling its filter, or the filters of its lanes.
    ///
    /// # Errors
    /// The search is not valid, or it has a spec beside fields of a plain search.
    pub fn decode(family: Family, common: Common, bytes: &[u8]) -> Result<One, ApiError> {
        match family {
            Family::Dense => in_points(common, bytes),
            Family::Named => in_spaces(common, bytes),
            Family::MultiVector => in_documents(common, bytes),
        }
    }

    /// Whether it is a query of lanes, whose hits are answered as those of a query alone.
    pub fn is_query(&self) -> bool {
        matches!(self, One::Query(_) | One::QueryNamed(_) | One::QueryDocuments(_))
    }

    /// Carries out the search.
    ///
    /// # Errors
    /// Returns the error that the search would have in a call of its own.
    pub async fn run(self, permit: &Permit) -> Result<QueryOutcome, ApiError> {
        match self {
            One::Points(search) => permit.run(search).await,
            One::Named(mut search) => {
                if matches!(&search.source, Source::Dense(vector) if vector.is_empty())
                    && let Shape::Spaces(spaces) = permit.shape(&search.collection)?
                    && spaces.sparse_spaces().any(|(_, name)| name == search.space)
                {
                    // A message cannot say whether its empty vector is a dense or a sparse one.
                    search.source = Source::Sparse(sparse_of(Vec::new(), Vec::new())?);
                }
                permit.run(search).await
            }
            One::Documents(search) => permit.run(search).await,
            One::Query(query) => permit.run(query).await,
            One::QueryNamed(query) => permit.run(query).await,
            One::QueryDocuments(query) => permit.run(query).await,
        }
    }
}

fn in_points(common: Common, bytes: &[u8]) -> Result<One, ApiError> {
    let message: BatchSearch = proto::decode(bytes)?;
    let Common { collection, with_rows, options, read } = with_own_options(common, &message.options_json)?;
    if let Some(spec) = message.spec {
        refuse_beside_spec(&[
            ("query", !message.query.is_empty()),
            ("k", message.k != 0),
            ("filter_json", !message.filter_json.is_empty()),
        ])?;
        return Ok(One::Query(QueryPoints { collection, options, read, ..query_of(spec)? }));
    }
    let filter = filter(&message.filter_json)?;
    let (vector, k) = (message.query, message.k.into());
    Ok(One::Points(SearchPoints { collection, vector, k, filter, with_rows, options, read }))
}

fn in_spaces(common: Common, bytes: &[u8]) -> Result<One, ApiError> {
    let message: NamedBatchSearch = proto::decode(bytes)?;
    let Common { collection, with_rows, options, read } = with_own_options(common, &message.options_json)?;
    if let Some(spec) = message.spec {
        refuse_beside_spec(&[
            ("vector_name", !message.vector_name.is_empty()),
            ("query", !message.query.is_empty()),
            ("sparse_indices", !message.sparse_indices.is_empty()),
            ("sparse_values", !message.sparse_values.is_empty()),
            ("k", message.k != 0),
            ("filter_json", !message.filter_json.is_empty()),
        ])?;
        let query = named_query_of(spec)?.0;
        return Ok(One::QueryNamed(QueryNamed(QueryPoints { collection, options, read, ..query })));
    }
    let filter = filter(&message.filter_json)?;
    let sparse = sparse_of(message.sparse_indices, message.sparse_values)?;
    let source = match (sparse.is_empty(), message.query.is_empty()) {
        (false, false) => {
            let text = "query and sparse_values are both set; a dense space takes query, a sparse space takes sparse_indices and sparse_values";
            return Err(ApiError::invalid(text));
        }
        (false, true) => Source::Sparse(sparse),
        (true, _) => Source::Dense(message.query),
    };
    let (space, k, diversity) = (message.vector_name, message.k.into(), None);
    Ok(One::Named(SearchNamed { collection, space, source, k, filter, with_rows, diversity, options, read }))
}

fn in_documents(common: Common, bytes: &[u8]) -> Result<One, ApiError> {
    let message: MVBatchSearch = proto::decode(bytes)?;
    let Common { collection, options, read, .. } = with_own_options(common, &message.options_json)?;
    if let Some(spec) = message.spec {
        refuse_beside_spec(&[
            ("query", !message.query.is_empty()),
            ("k", message.k != 0),
            ("candidates_per_token", message.candidates_per_token != 0),
            ("filter_json", !message.filter_json.is_empty()),
        ])?;
        let query = document_query_of(spec)?.0;
        return Ok(One::QueryDocuments(QueryDocuments(QueryPoints { collection, options, read, ..query })));
    }
    let filter = filter(&message.filter_json)?;
    let query = message.query.into_iter().map(|token| token.values).collect();
    let (k, candidates_per_token) = (message.k.into(), message.candidates_per_token.into());
    Ok(One::Documents(SearchDocuments { collection, query, k, candidates_per_token, filter, options, read }))
}

/// What the searches have in common, with the options of this search if it has any.
fn with_own_options(common: Common, json: &str) -> Result<Common, ApiError> {
    match json.is_empty() {
        true => Ok(common),
        false => Ok(Common { options: search_options(json)?, ..common }),
    }
}

/// Refuses the fields of a plain search, each with whether it is set, beside a spec: a query of lanes would leave them without effect.
fn refuse_beside_spec(fields: &[(&str, bool)]) -> Result<(), ApiError> {
    let set: Vec<&str> = fields.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    match set.is_empty() {
        true => Ok(()),
        false => {
            let names = set.join(", ");
            let text = format!(
                "spec is set beside {names}; a query of lanes takes only options_json beside its spec"
            );
            Err(ApiError::invalid(text))
        }
    }
}
