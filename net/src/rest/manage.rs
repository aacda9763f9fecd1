//! Bodies and answers of the routes that split collections, keep API keys, and make backups.

use crate::auth::Authenticator;
use crate::auth::key_limits::KeyLimits;
use crate::auth::registry::{Caller, ListedKey, NewKey};
use crate::auth::secret::hex;
use crate::op::{
    AddKey, ApiError, Lack, PlacementOp, RestoreBackup, RevokeKey, Subject, Unmet, VerifyBackup,
    check_partitions,
};
use crate::wire::json::{decode, json_object};
use crate::wire::value::write_json;
use nigh_shard::backup::time_text;
use nigh_shard::core::{BackedUp, BackupObject, BackupRun, Restored, Verified};
use serde_json::{Value, json};
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
    answer_of(&json!({ "keys": keys }))
}

json_object! {
    /// Body of `POST /v1/admin/backups/restore`.
    pub struct RestoreBody {
        "collection" => collection: String,
        "part" => part: String,
        "time" => time: String,
        "into" => into: String,
    }
}

/// Decodes the body of `POST /v1/admin/backups/restore`.
///
/// # Errors
/// 400.
pub fn decode_restore(
    auth: Arc<dyn Authenticator>,
    caller: Caller,
    body: &[u8],
) -> Result<RestoreBackup, ApiError> {
    let RestoreBody { collection, part, time, into } = decode(body)?;
    Ok(RestoreBackup { subject: Subject::of(collection, part)?, time, into, auth, caller })
}

json_object! {
    /// Body of `POST /v1/admin/backups/verify`.
    pub struct VerifyBody {
        "collection" => collection: String,
        "part" => part: String,
        "time" => time: String,
    }
}

/// Decodes the body of `POST /v1/admin/backups/verify`.
///
/// # Errors
/// 400.
pub fn decode_verify(body: &[u8]) -> Result<VerifyBackup, ApiError> {
    let VerifyBody { collection, part, time } = decode(body)?;
    Ok(VerifyBackup { subject: Subject::of(collection, part)?, time })
}

/// The answer of `POST /v1/admin/backups/verify`.
pub fn verified_answer(verified: &Verified) -> Vec<u8> {
    let mut object = json!({"verified": true, "key": verified.key, "size": verified.bytes});
    if let Some(keys) = verified.keys {
        object["keys"] = keys.into();
    }
    answer_of(&object)
}

/// The answer of `POST /v1/admin/backup`.
pub fn backup_answer(run: &BackupRun) -> Vec<u8> {
    let listed = |of: &'static str, done: &BackedUp| {
        let mut listed = json!({(of): bare(&done.collection), "size": done.bytes});
        if let Some(key) = &done.key {
            listed["key"] = key.as_str().into();
        }
        if let Some(keys) = done.keys {
            listed["keys"] = keys.into();
        }
        if let Some(error) = &done.error {
            listed["error"] = error.as_str().into();
        }
        listed
    };
    let backups: Vec<_> = run.collections.iter().map(|done| listed("collection", done)).collect();
    let parts: Vec<_> = run.parts.iter().map(|done| listed("part", done)).collect();
    let failed = run
        .collections
        .iter()
        .chain(&run.parts)
        .filter_map(|done| Some(format!("{}: {}", bare(&done.collection), done.error.as_ref()?)));
    let failures: Vec<String> = run.failures.iter().cloned().chain(failed).collect();
    let mut object = json!({"backups": backups});
    if !parts.is_empty() {
        object["parts"] = parts.into();
    }
    if !failures.is_empty() {
        object["error"] = failures.join(" ").into();
    }
    answer_of(&object)
}

/// The answer of `GET /v1/admin/backups`.
pub fn backups_answer(objects: &[BackupObject]) -> Vec<u8> {
    let listed: Vec<_> = objects
        .iter()
        .map(|object| {
            json!({"key": object.key, "size": object.bytes, "last_modified": time_text(object.modified_unix_ms)})
        })
        .collect();
    answer_of(&json!({"backups": listed}))
}

/// The answer of `POST /v1/admin/backups/restore`.
pub fn restored_answer(restored: &Restored) -> Vec<u8> {
    answer_of(&json!({
        "restored": bare(&restored.collection),
        "key": restored.key,
        "size": restored.bytes,
        "replaced": restored.has_replaced,
    }))
}

/// A full name as clients write it.
fn bare(full: &str) -> &str {
    full.strip_prefix("default/").unwrap_or(full)
}

fn answer_of(object: &Value) -> Vec<u8> {
    let mut answer = Vec::new();
    write_json(&mut answer, object);
    answer.push(b'\n');
    answer
}
