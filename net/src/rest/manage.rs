//! Bodies of the routes that split collections and keep keys.

use crate::auth::Authenticator;
use crate::auth::key_limits::KeyLimits;
use crate::auth::registry::{ListedKey, NewKey};
use crate::auth::secret::hex;
use crate::op::{AddKey, ApiError, Lack, PlacementOp, RevokeKey, Unmet, check_partitions};
use crate::wire::json::{decode, json_object};
use crate::wire::value::write_json;
use serde_json::json;
use std::sync::Arc;

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
        "scopes" => scopes: Vec<String>,
        "cert_cn" => cert_cn: String,
        "requests_per_second" => requests_per_second: u64,
        "bytes_per_second" => bytes_per_second: u64,
        "connections" => connections: u64,
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
pub fn decode_add_key(auth: Arc<dyn Authenticator>, body: &[u8]) -> Result<AddKey, ApiError> {
    let KeyBody { token, tenant, scopes, cert_cn, requests_per_second, bytes_per_second, connections } =
        decode(body)?;
    let key = NewKey {
        token: token.unwrap_or_default(),
        tenant: tenant.unwrap_or_default(),
        scopes: scopes.unwrap_or_default(),
        cert_cn: cert_cn.unwrap_or_default(),
        limits: KeyLimits {
            requests_per_second: requests_per_second.unwrap_or(0),
            bytes_per_second: bytes_per_second.unwrap_or(0),
            connections: connections.unwrap_or(0),
        },
    };
    Ok(AddKey { auth, key })
}

/// Decodes the body of `DELETE /v1/admin/keys`.
///
/// # Errors
/// 400.
pub fn decode_revoke_key(auth: Arc<dyn Authenticator>, body: &[u8]) -> Result<RevokeKey, ApiError> {
    let body: TokenBody = decode(body)?;
    Ok(RevokeKey { auth, token: body.token.unwrap_or_default() })
}

/// The answer of `GET /v1/admin/keys`.
pub fn keys_answer(keys: &[ListedKey]) -> Vec<u8> {
    let keys: Vec<_> = keys
        .iter()
        .map(|key| {
            let ListedKey { fingerprint, tenant, scopes, cert_cn, limits } = key;
            let mut listed = json!({"fingerprint": hex(fingerprint), "tenant": tenant, "scopes": scopes, "cert_cn": cert_cn});
            for (name, limit) in limits.named() {
                if limit > 0 {
                    listed[name] = limit.into();
                }
            }
            listed
        })
        .collect();
    let mut answer = Vec::new();
    write_json(&mut answer, &json!({ "keys": keys }));
    answer.push(b'\n');
    answer
}

/// A request about backups.
pub fn backups() -> Unmet {
    Unmet { collection: String::new(), lack: Lack::ObjectStore }
}
