//! Objects in a bucket of an object store with the interface of S3.
//!
//! One thread runs all requests, on a runtime of its own: sockets, timers and signatures are no work for cores. Cores hand it futures and wait for
//! their results. Requests are signed (SigV4) with the credentials that the settings name, and no others are looked for. The payload is part of the
//! signature over `http://`; over `https://` TLS protects it.

mod failure;
#[cfg(test)]
mod others;
mod requests;
#[cfg(test)]
mod scripted;
mod sweep;
#[cfg(test)]
mod tests;
mod upload;
mod write_once;

use crate::backup_settings::{BucketSettings, Credentials};
use bytes::Bytes;
use failure::{CallError, call, store_call};
use nigh_shard::backup::{Listing, Object, READ_MAX_BYTES, Store, StoreError, Upload, check_key};
use nigh_shard::disk::LocalBoxFuture;
use nigh_shard::system::give_way;
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, BackoffConfig, GetOptions, GetRange, ObjectStore, ObjectStoreExt, RetryConfig,
};
use requests::Requests;
use rustls::RootCertStore;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinHandle;
use upload::BucketUpload;
use write_once::By;

pub(crate) use requests::Limits;

/// Objects on a page of a listing: no store gives more.
const PAGE: usize = 1000;
/// Calls that make requests at the same time; others wait. Each may have a connection of its own, and some buffers.
const CALLS_MAX: usize = 32;
/// No repetition of a request begins so long after the first try. Signatures hold for 15 minutes.
const RETRYING_MAX: Duration = Duration::from_secs(180);
/// Threads that look up names of hosts, which blocks.
const LOOKUPS_MAX: usize = 2;
/// How often a request is made whose repetition the client leaves to us.
const TRIES: u32 = 3;
/// Metadata of an object that names the upload it is from.
const UPLOAD_ID: &str = "nigh-upload";

/// A bucket. Clones share the thread.
#[derive(Clone, Debug)]
pub(crate) struct BucketStore(Bucket);

/// What calls need, on whichever thread.
#[derive(Clone, Debug)]
struct Bucket {
    shared: Arc<Shared>,
    handle: Handle,
}

#[derive(Debug)]
struct Shared {
    settings: BucketSettings,
    limits: Limits,
    requests: Requests,
    client: AmazonS3,
    /// The URL of the bucket, without a slash at the end.
    url: String,
    calls: Semaphore,
    overwrites_by_put: OnceCell<()>,
    overwrites_by_completing: OnceCell<()>,
    uploads: AtomicU64,
}

impl std::ops::Deref for Bucket {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl BucketStore {
    /// Starts the thread; makes no request. `roots` are trusted over `https://`.
    ///
    /// # Errors
    /// A sentence.
    pub fn open(
        settings: BucketSettings,
        roots: RootCertStore,
        limits: Limits,
    ) -> Result<BucketStore, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("the client of the object store cannot start: {error}");
        let requests = Requests::new(roots, limits).map_err(|error| failed(&error))?;
        let (endpoint, url) = urls(&settings);
        let Credentials { access_key, secret_key, session_token } = settings.credentials.clone();
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&settings.bucket)
            .with_region(&settings.region)
            .with_endpoint(endpoint)
            .with_allow_http(true)
            .with_virtual_hosted_style_request(!settings.path_style)
            .with_access_key_id(access_key)
            .with_secret_access_key(secret_key)
            .with_unsigned_payload(settings.endpoint.starts_with("https://"))
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            // Not every store deletes several objects by one request.
            .with_disable_bulk_delete(true)
            .with_http_connector(requests.clone())
            .with_retry(RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: limits.backoff,
                    max_backoff: limits.backoff_max,
                    base: 2.0,
                },
                max_retries: limits.retries,
                retry_timeout: RETRYING_MAX,
            });
        if let Some(token) = session_token {
            builder = builder.with_token(token);
        }
        let client = builder.build().map_err(|error| failed(&error))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(LOOKUPS_MAX)
            .thread_name("nigh-lookup")
            .build()
            .map_err(|error| failed(&error))?;
        let shared = Arc::new(Shared {
            settings,
            limits,
            requests,
            client,
            url,
            calls: Semaphore::new(CALLS_MAX),
            overwrites_by_put: OnceCell::new(),
            overwrites_by_completing: OnceCell::new(),
            uploads: AtomicU64::new(0),
        });
        let bucket = Bucket { shared, handle: runtime.handle().clone() };
        let sweeping = sweep::run(bucket.clone());
        std::thread::Builder::new()
            .name("nigh-backup-bucket".into())
            // It ends with the process.
            .spawn(move || {
                give_way();
                runtime.block_on(sweeping);
            })
            .map_err(|error| failed(&error))?;
        Ok(BucketStore(bucket))
    }
}

/// What the client takes as the endpoint, and the URL of the bucket.
fn urls(settings: &BucketSettings) -> (String, String) {
    let BucketSettings { bucket, endpoint, path_style, .. } = settings;
    match endpoint.split_once("://") {
        Some((scheme, host)) if !path_style => {
            let url = format!("{scheme}://{bucket}.{host}");
            (url.clone(), url)
        }
        _ => (endpoint.clone(), format!("{endpoint}/{bucket}")),
    }
}

impl Bucket {
    /// Runs `work`, which is about the object `key`, on the thread.
    fn spawn<T: Send + 'static>(
        &self,
        key: &str,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Task<T> {
        let shared = self.shared.clone();
        let admitted = async move {
            // The semaphore is never closed, and without its permit more calls run than should, no worse.
            let _permit = shared.calls.acquire().await.ok();
            work.await
        };
        Task { key: key.to_owned(), handle: self.handle.spawn(admitted), is_kept: false }
    }

    /// What each of our keys begins with: the prefix and a slash, or nothing.
    fn key_prefix(&self) -> String {
        match self.settings.prefix.as_str() {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        }
    }

    /// A name that no other upload has.
    fn new_upload_id(&self) -> String {
        let number = self.uploads.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut random = [0; 8];
        // Without random numbers the time and the number of the process still tell uploads apart.
        let _no_random_numbers = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::NONBLOCK);
        format!(
            "{:x}-{:x}-{number:x}-{:016x}",
            now.as_nanos(),
            std::process::id(),
            u64::from_ne_bytes(random)
        )
    }

    /// The wait after so many tries.
    async fn pause(&self, tries: u32) {
        let limits = &self.limits;
        tokio::time::sleep(limits.backoff.saturating_mul(1 << tries.min(16)).min(limits.backoff_max)).await;
    }

    fn attributes(&self, id: &str) -> Attributes {
        Attributes::from_iter([(Attribute::Metadata(UPLOAD_ID.into()), id.to_owned())])
    }

    /// The upload that an object is from, if it says so.
    async fn upload_of(&self, key: &str, path: &Path) -> Result<Option<String>, StoreError> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        let found = store_call(key, self.client.get_opts(path, options)).await?;
        Ok(found.attributes.get(&Attribute::Metadata(UPLOAD_ID.into())).map(|id| id.as_ref().to_owned()))
    }

    /// Looks, once, whether the store keeps objects from being overwritten.
    async fn check_write_once(&self, by: By) -> Result<(), StoreError> {
        let checked = match by {
            By::Put => &self.overwrites_by_put,
            By::Completing => &self.overwrites_by_completing,
        };
        checked.get_or_try_init(|| write_once::check(self, by)).await.copied()
    }
}

/// Work on the thread. Dropped, it is given up, unless it is kept.
struct Task<T> {
    key: String,
    handle: JoinHandle<Result<T, StoreError>>,
    is_kept: bool,
}

impl<T> Task<T> {
    /// Lets the work go on although nobody waits.
    fn detach(mut self) {
        self.is_kept = true;
    }

    /// Has the work go on also where whoever waits goes.
    fn detached_on_drop(mut self) -> Task<T> {
        self.is_kept = true;
        self
    }

    /// Gives the work up, and waits until it does nothing more.
    async fn end(mut self) {
        self.handle.abort();
        let _given_up = (&mut self.handle).await;
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, StoreError>> {
        let ended = std::task::ready!(Pin::new(&mut self.handle).poll(cx));
        Poll::Ready(ended.unwrap_or_else(|_| {
            let why = "the thread of the object store has ended".to_owned();
            Err(StoreError::Io { key: self.key.clone(), why, is_temporary: false })
        }))
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.handle.abort();
        }
    }
}

/// A key as the client has it.
fn path_of(key: &str) -> Result<Path, StoreError> {
    check_key(key)?;
    Path::parse(key).map_err(|error| StoreError::BadKey { key: key.to_owned(), why: error.to_string() })
}

impl Store for BucketStore {
    fn create(&self, key: &str) -> LocalBoxFuture<'_, Result<Box<dyn Upload>, StoreError>> {
        let (key, bucket) = (key.to_owned(), self.0.clone());
        Box::pin(async move {
            let path = path_of(&key)?;
            let checking = bucket.clone();
            // If several callers come at once, one of them checks, and the check goes on even if that caller gives up.
            let checked = async move { checking.check_write_once(By::Put).await };
            bucket.spawn(&key, checked).detached_on_drop().await?;
            Ok(Box::new(BucketUpload::new(bucket, key, path)) as Box<dyn Upload>)
        })
    }

    fn read(&self, key: &str, at: u64, len: usize) -> LocalBoxFuture<'_, Result<Bytes, StoreError>> {
        let (key, bucket) = (key.to_owned(), self.0.clone());
        Box::pin(async move {
            let path = path_of(&key)?;
            let (of, reading) = (key.clone(), bucket.clone());
            let read = async move { read(&reading, &of, &path, at, len.min(READ_MAX_BYTES)).await };
            bucket.spawn(&key, read).await
        })
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> LocalBoxFuture<'_, Result<Listing, StoreError>> {
        let (prefix, after, bucket) = (prefix.to_owned(), after.map(str::to_owned), self.0.clone());
        Box::pin(async move {
            let (of, listing) = (prefix.clone(), bucket.clone());
            let listed = async move { list(&listing, &of, after).await };
            bucket.spawn(&prefix, listed).await
        })
    }

    fn delete(&self, key: &str) -> LocalBoxFuture<'_, Result<(), StoreError>> {
        let (key, bucket) = (key.to_owned(), self.0.clone());
        Box::pin(async move {
            let path = path_of(&key)?;
            let (of, deleting) = (key.clone(), bucket.clone());
            let deleted = async move { delete(&deleting, &of, &path).await };
            bucket.spawn(&key, deleted).await
        })
    }
}

async fn read(bucket: &Bucket, key: &str, path: &Path, at: u64, len: usize) -> Result<Bytes, StoreError> {
    if len == 0 {
        // There is no range of no bytes.
        return bucket.upload_of(key, path).await.map(|_| Bytes::new());
    }
    let range = GetRange::Bounded(at..at.saturating_add(len as u64));
    let options = GetOptions { range: Some(range), ..GetOptions::default() };
    let got = call(key, async {
        let found = bucket.client.get_opts(path, options).await?;
        let announced = found.range.end - found.range.start;
        Ok((announced, found.bytes().await?))
    });
    match got.await {
        Ok((announced, bytes)) if bytes.len() as u64 == announced => Ok(bytes),
        Ok((announced, bytes)) => Err(StoreError::Io {
            key: key.to_owned(),
            why: format!("the store announced {announced} bytes and sent {}", bytes.len()),
            is_temporary: true,
        }),
        Err(CallError::BeyondTheEnd) => Ok(Bytes::new()),
        Err(CallError::Store(error)) => Err(error),
    }
}

async fn delete(bucket: &Bucket, key: &str, path: &Path) -> Result<(), StoreError> {
    // The client does not repeat this one where its answer is missing.
    let mut tries = 1;
    loop {
        match store_call(key, bucket.client.delete(path)).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => return Ok(()),
            Err(error) if tries == TRIES || !error.is_temporary() => return Err(error),
            Err(_) => bucket.pause(tries).await,
        }
        tries += 1;
    }
}

async fn list(bucket: &Bucket, prefix: &str, after: Option<String>) -> Result<Listing, StoreError> {
    if !prefix.is_empty() && !prefix.ends_with('/') {
        let why = "a prefix ends with a slash".to_owned();
        return Err(StoreError::BadKey { key: prefix.to_owned(), why });
    }
    let options = PaginatedListOptions {
        offset: after.filter(|after| !after.is_empty()),
        max_keys: Some(PAGE),
        ..PaginatedListOptions::default()
    };
    let given = Some(prefix).filter(|prefix| !prefix.is_empty());
    let page = store_call(prefix, bucket.client.list_paginated(given, options)).await?;
    let found = page.result.objects.into_iter().map(|found| Object {
        key: found.location.to_string(),
        bytes: found.size,
        modified_unix_ms: u64::try_from(found.last_modified.timestamp_millis()).unwrap_or(0),
    });
    let found: Vec<Object> = found.collect();
    let last = found.last().map(|last| last.key.clone());
    // Some tools mark a directory by an object whose key ends with a slash, which is the prefix itself here.
    let objects: Vec<Object> = found.into_iter().filter(|found| found.key.starts_with(prefix)).collect();
    Ok(Listing { objects, next: page.page_token.and(last) })
}
