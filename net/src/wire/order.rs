//! Orders of a scroll: the rules for keys, wherever they come from.

use crate::limits::ORDER_KEYS_MAX;
use crate::op::ApiError;
use nigh_engine::quoted::quoted;
use nigh_shard::core::OrderKey;
use std::fmt;

/// The refusal of an order.
///
/// # Errors
/// Always.
pub fn refuse<T>(what: impl fmt::Display) -> Result<T, ApiError> {
    Err(ApiError::invalid(format!("order_by: {what}")))
}

/// A key.
///
/// # Errors
/// A bad request: it has no name, or two types.
pub fn key_of(key: String, desc: bool, is_datetime: bool, is_string: bool) -> Result<OrderKey, ApiError> {
    if key.is_empty() {
        return refuse("the key is empty");
    }
    if is_string && is_datetime {
        return refuse(format_args!("key {} cannot be is_string and is_datetime", quoted(&key)));
    }
    Ok(OrderKey { key, desc, is_string, is_datetime })
}

/// Keys, and where the first page starts.
///
/// # Errors
/// A bad request: a key is wrong, there are too many, or strings are to start from a number.
pub fn order_of(
    first: OrderKey,
    start_from: Option<f64>,
    tail: impl Iterator<Item = Result<OrderKey, ApiError>>,
) -> Result<(Vec<OrderKey>, Option<f64>), ApiError> {
    if first.is_string && start_from.is_some() {
        return refuse("start_from is not possible with is_string");
    }
    let mut keys = vec![first];
    for key in tail {
        keys.push(key?);
    }
    if keys.len() > ORDER_KEYS_MAX {
        return refuse(format_args!("{} keys, at most {ORDER_KEYS_MAX}", keys.len()));
    }
    // The interface ignores it for several keys.
    let start_from = start_from.filter(|_| keys.len() == 1);
    Ok((keys, start_from))
}
