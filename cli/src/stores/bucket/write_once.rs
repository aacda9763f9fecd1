//! Whether a store keeps objects from being overwritten. A store that does not know the condition of a request ignores it and overwrites, so it is
//! tried before the first object that relies on it.

use super::Bucket;
use super::failure::store_call;
use nigh_shard::backup::StoreError;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use std::future::Future;

/// How objects are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// One request has all bytes of the object.
    Put,
    /// The request that completes a multipart upload publishes the object.
    Completing,
}

/// Tries it with an object of its own, which is removed.
///
/// # Errors
/// [`StoreError::Unfit`] where an object can be overwritten, and what requests fail with.
pub(super) async fn check(bucket: &Bucket, by: By) -> Result<(), StoreError> {
    let key = format!("{}.nigh-write-once-{}", bucket.key_prefix(), bucket.new_upload_id());
    let path = Path::parse(&key).map_err(|_| StoreError::BadKey {
        key: key.clone(),
        why: "the prefix has a part that is empty, \".\" or \"..\"".to_owned(),
    })?;
    let checked = overwrite(bucket, by, &key, &path).await;
    // What stays is a small object that says what it was for.
    let _stays = store_call(&key, bucket.client.delete(&path)).await;
    checked
}

async fn overwrite(bucket: &Bucket, by: By, key: &str, path: &Path) -> Result<(), StoreError> {
    let payload =
        || PutPayload::from_static(b"Nigh tries whether this store keeps objects from being overwritten.");
    let create = || PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    known(store_call(key, bucket.client.put_opts(path, payload(), create()))).await?;
    let second = match by {
        By::Put => store_call(key, bucket.client.put_opts(path, payload(), create())).await.map(drop),
        By::Completing => {
            let mut upload = store_call(key, bucket.client.put_multipart(path)).await?;
            let ended = async {
                store_call(key, upload.put_part(payload())).await?;
                known(store_call(key, upload.complete())).await.map(drop)
            };
            let ended = ended.await;
            if ended.is_err() {
                // A sweep aborts it otherwise.
                let _left_to_the_sweep = store_call(key, upload.abort()).await;
            }
            ended
        }
    };
    match second {
        Err(StoreError::Exists { .. }) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(StoreError::Unfit {
            key: key.to_owned(),
            why: match by {
                By::Put => "it overwrites an object although the request forbids that (If-None-Match)",
                By::Completing => "it overwrites an object when a multipart upload is completed although the request forbids that (If-None-Match)",
            }
            .to_owned(),
        }),
    }
}

/// A store may also say that it does not know the condition.
async fn known<T>(request: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    request.await.map_err(|error| match error {
        StoreError::Io { key, why, .. } if why.contains("501 Not Implemented") => StoreError::Unfit {
            key,
            why: format!("it does not know requests that forbid overwriting ({why})"),
        },
        error => error,
    })
}
