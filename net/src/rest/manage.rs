//! Bodies of the routes that split collections and keep keys.

use crate::op::{ApiError, Lack, PlacementOp, Unmet, check_key_field, check_partitions};
use crate::wire::json::{decode, json_object};

json_object! {
    /// Body of `…/resplit` and `…/reshard`.
    pub struct PartitionsBody {
        "new_partitions" => new_partitions: i64,
    }
}

json_object! {
    /// A key.
    pub struct KeyBody {
        "token" => token: String,
        "tenant" => tenant: String,
        // Read for their types alone: there is no registry that would take them.
        "scopes" => _scopes: Vec<String>,
        "cert_cn" => _cert_cn: String,
    }
}

json_object! {
    /// Its secret alone.
    pub struct TokenBody {
        "token" => token: String,
    }
}

/// Decodes what is to become of a collection; only `resplit` and `reshard` have a body.
///
/// # Errors
/// 400.
pub fn decode_placement(collection: String, op: PlacementOp, body: &[u8]) -> Result<Unmet, ApiError> {
    let lack = match op {
        PlacementOp::Evict | PlacementOp::Restore => Lack::ObjectStore,
        PlacementOp::Resplit | PlacementOp::Reshard => {
            check_partitions(decode::<PartitionsBody>(body)?.new_partitions)?;
            Lack::Partitions
        }
        PlacementOp::ResplitCleanup | PlacementOp::ReshardAbort => Lack::Partitions,
    };
    Ok(Unmet { collection, lack })
}

/// Decodes the body of `POST /v1/admin/keys`.
///
/// # Errors
/// 400.
pub fn decode_add_key(body: &[u8]) -> Result<Unmet, ApiError> {
    let body: KeyBody = decode(body)?;
    check_key_field(&body.token.unwrap_or_default(), "token")?;
    check_key_field(&body.tenant.unwrap_or_default(), "tenant")?;
    Ok(keys())
}

/// Decodes the body of `DELETE /v1/admin/keys`.
///
/// # Errors
/// 400.
pub fn decode_revoke_key(body: &[u8]) -> Result<Unmet, ApiError> {
    let body: TokenBody = decode(body)?;
    check_key_field(&body.token.unwrap_or_default(), "token")?;
    Ok(keys())
}

/// A request about keys.
pub fn keys() -> Unmet {
    Unmet { collection: String::new(), lack: Lack::KeyRegistry }
}

/// A request about backups.
pub fn backups() -> Unmet {
    Unmet { collection: String::new(), lack: Lack::ObjectStore }
}
