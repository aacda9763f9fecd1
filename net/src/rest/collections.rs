//! Creating collections: the create body.

use crate::op::ApiError;
use crate::wire::config::WireConfig;
use crate::wire::json::json_object;

json_object! {
    /// Body of `POST /v1/collections`.
    pub struct CreateBody {
        "name" => name: String,
        "config" => config: WireConfig,
    }
}

/// The refusal of a body without a configuration.
pub fn no_config() -> ApiError {
    ApiError::invalid(
        "vector: invalid Dim: config is missing; it is an object with dim, such as {\"dim\": 768}",
    )
}
