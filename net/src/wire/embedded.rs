//! Parts that stand inside arguments and messages which are not JSON: filters and payloads as JSON, and sparse vectors as two lists.

use crate::op::{ApiError, compile_filter};
use crate::wire::filter::WireFilter;
use crate::wire::json::in_words;
use crate::wire::payloads::{Payloads, WirePayload};
use crate::wire::value::UnknownKeys;
use nigh_engine::filter::Predicate;
use std::fmt;
use std::sync::Arc;

/// A bad request about one part.
pub fn invalid(field: &str, reason: impl fmt::Display) -> ApiError {
    ApiError::invalid(format!("{field}: {reason}"))
}

/// A filter as JSON, compiled; nothing, and one that says nothing, is none.
///
/// # Errors
/// A bad request that names `field`, or the node that does not compile.
pub fn filter_of(field: &str, json: &[u8]) -> Result<Option<Arc<Predicate>>, ApiError> {
    if json.trim_ascii().is_empty() {
        return Ok(None);
    }
    let filter: Option<WireFilter> =
        serde_json::from_slice(json).map_err(|error| invalid(field, in_words(&error)))?;
    compile_filter(filter.map(|filter| filter.0))
}

/// Whether the JSON is a payload; an empty text and `null` are not.
pub fn is_payload(json: &[u8]) -> bool {
    !matches!(json.trim_ascii(), b"" | b"null")
}

/// A payload object as JSON; `null` and nothing at all are empty. Unknown keys inside tagged values are ignored, as in the binary bodies
/// of REST.
///
/// # Errors
/// A bad request that names `field`.
pub fn payload_of(field: &str, json: &[u8], payloads: Payloads) -> Result<WirePayload, ApiError> {
    if !is_payload(json) {
        return Ok(WirePayload::default());
    }
    payloads.read(json, UnknownKeys::Ignored).map_err(|error| invalid(field, in_words(&error)))
}

/// A sparse vector of finite values.
///
/// # Errors
/// A bad request: lengths differ, indices do not ascend strictly, or a value is no number.
pub fn sparse_of(indices: Vec<u32>, values: Vec<f32>) -> Result<Vec<(u32, f32)>, ApiError> {
    if indices.len() != values.len() {
        let (indices, values) = (indices.len(), values.len());
        return Err(invalid("sparse", format_args!("{indices} indices but {values} values")));
    }
    if let Some(pair) = indices.windows(2).find(|pair| pair[0] >= pair[1]) {
        let (last, index) = (pair[0], pair[1]);
        let reason = format_args!("indices must be strictly ascending, but {index} follows {last}");
        return Err(invalid("sparse", reason));
    }
    if let Some((index, _)) = indices.iter().zip(&values).find(|(_, value)| !value.is_finite()) {
        return Err(invalid("sparse", format_args!("the value of {index} is not a finite number")));
    }
    Ok(indices.into_iter().zip(values).collect())
}
