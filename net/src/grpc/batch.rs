//! Batches of searches: each search is decoded when its turn comes, because all of them at once would take a multiple of their message.

use super::parts::{filter, read_options, search_options};
use super::request::{Common, Request, SearchBatch};
use crate::door::{Permit, Shape};
use crate::op::{ApiError, ReadOptions, SearchDocuments, SearchNamed, SearchPoints};
use crate::wire::embedded::sparse_of;
use crate::wire::proto::messages::{
    BatchSearch, MVBatchSearch, MVSearchBatchRequest, NamedBatchSearch, NamedSearchBatchRequest,
    SearchBatchRequest,
};
use crate::wire::proto::{Bounded, SearchBatchParts, decode_part, decode_parts};
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
}

impl One {
    /// Decodes a search of a batch.
    ///
    /// Cost: that of compiling its filter.
    ///
    /// # Errors
    /// The search is not valid.
    pub fn decode(family: Family, common: Common, bytes: &[u8]) -> Result<One, ApiError> {
        let Common { collection, with_rows, options, read } = common;
        let own = |json: &str| if json.is_empty() { Ok(options) } else { search_options(json) };
        Ok(match family {
            Family::Dense => {
                let message: BatchSearch = decode_part::<SearchBatchRequest, _>(bytes)?;
                let options = own(&message.options_json)?;
                let filter = filter(&message.filter_json)?;
                let (vector, k) = (message.query, message.k.into());
                One::Points(SearchPoints { collection, vector, k, filter, with_rows, options, read })
            }
            Family::Named => {
                let message: NamedBatchSearch = decode_part::<NamedSearchBatchRequest, _>(bytes)?;
                let options = own(&message.options_json)?;
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
                let (space, k) = (message.vector_name, message.k.into());
                One::Named(SearchNamed {
                    collection,
                    space,
                    source,
                    k,
                    filter,
                    with_rows,
                    diversity: None,
                    options,
                    read,
                })
            }
            Family::MultiVector => {
                let message: MVBatchSearch = decode_part::<MVSearchBatchRequest, _>(bytes)?;
                let options = own(&message.options_json)?;
                let filter = filter(&message.filter_json)?;
                let query = message.query.into_iter().map(|token| token.values).collect();
                let (k, candidates_per_token) = (message.k.into(), message.candidates_per_token.into());
                One::Documents(SearchDocuments {
                    collection,
                    query,
                    k,
                    candidates_per_token,
                    filter,
                    options,
                    read,
                })
            }
        })
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
        }
    }
}
