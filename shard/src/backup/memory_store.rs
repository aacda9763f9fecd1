//! A store in memory that fails on demand, for tests of code that uses stores.

use super::store::{Listing, Object, READ_MAX_BYTES, Store, StoreError, Upload, check_key};
use crate::disk::LocalBoxFuture;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Objects on a page of a listing, unless [`MemoryStore::set_page`] says otherwise; object stores return as many.
const PAGE: usize = 1000;

/// Which requests a planned fault counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// [`Store::create`].
    Create,
    /// [`Upload::write`].
    Write,
    /// [`Upload::finish`].
    Finish,
    /// [`Store::read`].
    Read,
    /// [`Store::list`].
    List,
    /// [`Store::delete`].
    Delete,
    /// Requests of every kind.
    Any,
}

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The store answers that it failed, and nothing was done. Trying again may help.
    Error,
    /// The store answers that it failed for good, and nothing was done.
    Broken,
    /// The credentials are not (or no longer) valid, and nothing was done.
    Refused,
    /// No answer came in time, and nothing was done.
    Timeout,
    /// No answer ever comes. The future stays pending; a caller that has no time limit of its own hangs.
    Silence,
    /// The connection broke in the middle of the bytes. A read returns the first half of them as though the object ended there, as a store that does
    /// not compare lengths would; any other request fails.
    HalfBody,
    /// The request was carried out, and the answer says that it failed. (The answer was lost on its way, for example.)
    AfterEffect,
}

/// A store in memory. Clones are the same store, and may be handed to other threads.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    shared: Arc<Mutex<Contents>>,
}

#[derive(Debug, Default)]
struct Contents {
    objects: BTreeMap<String, (Bytes, u64)>,
    open_uploads: usize,
    /// Zero stands for [`PAGE`].
    page: usize,
    now_unix_ms: u64,
    counts: BTreeMap<u8, u64>,
    plans: Vec<(Requests, u64, Fault)>,
}

impl Contents {
    fn count(&self, requests: Requests) -> u64 {
        match requests {
            Requests::Any => self.counts.values().sum(),
            one => self.counts.get(&(one as u8)).copied().unwrap_or(0),
        }
    }

    /// Counts a request, and returns the fault that is planned for it, each only once.
    fn enter(&mut self, request: Requests) -> Option<Fault> {
        let hit = self.plans.iter().position(|&(planned, at, _)| {
            (planned == request || planned == Requests::Any) && at == self.count(planned)
        });
        *self.counts.entry(request as u8).or_default() += 1;
        hit.map(|index| self.plans.swap_remove(index).2)
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// Plans `fault` for a request of this kind, after the next `skip` of them.
    pub fn fail(&self, requests: Requests, skip: u64, fault: Fault) {
        let mut contents = self.lock();
        let at = contents.count(requests) + skip;
        contents.plans.push((requests, at, fault));
    }

    /// Forgets the planned faults that have not happened yet.
    pub fn heal(&self) {
        self.lock().plans.clear();
    }

    /// Requests of this kind made so far.
    pub fn requests(&self, requests: Requests) -> u64 {
        self.lock().count(requests)
    }

    /// Uploads that were begun and neither finished nor dropped.
    pub fn open_uploads(&self) -> usize {
        self.lock().open_uploads
    }

    /// Objects on a page of a listing from now on, at least 1.
    pub fn set_page(&self, objects: usize) {
        self.lock().page = objects.max(1);
    }

    /// Sets the time of modification of all objects that become visible from now on.
    pub fn set_unix_ms(&self, now: u64) {
        self.lock().now_unix_ms = now;
    }

    /// The keys of all objects, in order.
    pub fn keys(&self) -> Vec<String> {
        self.lock().objects.keys().cloned().collect()
    }

    /// The bytes of an object.
    pub fn bytes(&self, key: &str) -> Option<Bytes> {
        self.lock().objects.get(key).map(|(bytes, _)| bytes.clone())
    }

    /// Stores an object even if one with this key exists, as damage or another program would.
    pub fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        let mut contents = self.lock();
        let now = contents.now_unix_ms;
        contents.objects.insert(key.to_owned(), (bytes.into(), now));
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        // Nothing panics while it is held.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a request arrive, after giving way once as a request over a network would. Returns the fault that is planned for it.
    async fn arrival(&self, request: Requests) -> Option<Fault> {
        futures_lite::future::yield_now().await;
        self.lock().enter(request)
    }

    /// Carries out a request with this fault, and returns its outcome.
    async fn carry_out<T>(
        &self,
        fault: Option<Fault>,
        key: &str,
        effect: impl FnOnce(&mut Contents) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match fault {
            None => effect(&mut self.lock()),
            Some(Fault::AfterEffect) => {
                // Nobody learns this outcome.
                let _unknown = effect(&mut self.lock());
                Err(failed(Fault::AfterEffect, key))
            }
            Some(Fault::Silence) => std::future::pending().await,
            Some(fault) => Err(failed(fault, key)),
        }
    }

    async fn request<T>(
        &self,
        request: Requests,
        key: &str,
        effect: impl FnOnce(&mut Contents) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let fault = self.arrival(request).await;
        self.carry_out(fault, key, effect).await
    }
}

/// The error that a caller gets for a fault.
fn failed(fault: Fault, key: &str) -> StoreError {
    let key = key.to_owned();
    let io = |key, why: &str, is_temporary| StoreError::Io { key, why: why.to_owned(), is_temporary };
    match fault {
        Fault::Refused => StoreError::Refused { key, why: "a test revoked the credentials".into() },
        Fault::Broken => io(key, "a test broke the store", false),
        Fault::Error => io(key, "a test made the request fail", true),
        Fault::Timeout | Fault::Silence => io(key, "no answer came in time", true),
        Fault::HalfBody => io(key, "the connection broke in the middle of the bytes", true),
        Fault::AfterEffect => io(key, "the answer was lost", true),
    }
}

impl Store for MemoryStore {
    fn create(&self, key: &str) -> LocalBoxFuture<'_, Result<Box<dyn Upload>, StoreError>> {
        let key = key.to_owned();
        Box::pin(async move {
            check_key(&key)?;
            self.request(Requests::Create, &key, |_| Ok(())).await?;
            self.lock().open_uploads += 1;
            let open = OpenUpload(self.clone());
            Ok(Box::new(MemoryUpload { open, key, bytes: Vec::new(), failed: None }) as Box<dyn Upload>)
        })
    }

    fn read(&self, key: &str, at: u64, len: usize) -> LocalBoxFuture<'_, Result<Bytes, StoreError>> {
        let key = key.to_owned();
        Box::pin(async move {
            check_key(&key)?;
            debug_assert!(len <= READ_MAX_BYTES, "{len} bytes are too many for one read");
            let found = |contents: &mut Contents| {
                let (bytes, _) =
                    contents.objects.get(&key).ok_or_else(|| StoreError::NotFound { key: key.clone() })?;
                let from = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                Ok(bytes.slice(from..from.saturating_add(len).min(bytes.len())))
            };
            match self.arrival(Requests::Read).await {
                Some(Fault::HalfBody) => {
                    let bytes = found(&mut self.lock())?;
                    Ok(bytes.slice(..bytes.len() / 2))
                }
                fault => self.carry_out(fault, &key, found).await,
            }
        })
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> LocalBoxFuture<'_, Result<Listing, StoreError>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        Box::pin(async move {
            let page = |contents: &mut Contents| {
                let page = if contents.page == 0 { PAGE } else { contents.page };
                let from = match &after {
                    Some(after) if *after >= prefix => Bound::Excluded(after),
                    _ => Bound::Included(&prefix),
                };
                let found = contents.objects.range::<String, _>((from, Bound::Unbounded));
                let mut found = found.take_while(|(key, _)| key.starts_with(&prefix));
                let objects: Vec<Object> = found
                    .by_ref()
                    .take(page)
                    .map(|(key, (bytes, modified))| Object {
                        key: key.clone(),
                        bytes: bytes.len() as u64,
                        modified_unix_ms: *modified,
                    })
                    .collect();
                let next = found.next().and_then(|_| objects.last()).map(|last| last.key.clone());
                Ok(Listing { objects, next })
            };
            self.request(Requests::List, &prefix, page).await
        })
    }

    fn delete(&self, key: &str) -> LocalBoxFuture<'_, Result<(), StoreError>> {
        let key = key.to_owned();
        Box::pin(async move {
            check_key(&key)?;
            let remove = |contents: &mut Contents| {
                contents.objects.remove(&key);
                Ok(())
            };
            self.request(Requests::Delete, &key, remove).await
        })
    }
}

/// Counts an upload while it is open.
struct OpenUpload(MemoryStore);

impl Drop for OpenUpload {
    fn drop(&mut self) {
        self.0.lock().open_uploads -= 1;
    }
}

struct MemoryUpload {
    open: OpenUpload,
    key: String,
    bytes: Vec<u8>,
    failed: Option<StoreError>,
}

impl Upload for MemoryUpload {
    fn write(&mut self, bytes: Bytes) -> LocalBoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            let buffer = &mut self.bytes;
            let append = |_: &mut Contents| {
                buffer.extend_from_slice(&bytes);
                Ok(())
            };
            let ended = self.open.0.request(Requests::Write, &self.key, append).await;
            if let Err(error) = &ended {
                self.failed = Some(error.clone());
            }
            ended
        })
    }

    fn finish(self: Box<Self>) -> LocalBoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move {
            let MemoryUpload { open, key, bytes, failed } = *self;
            if let Some(error) = failed {
                return Err(error);
            }
            let publish = |contents: &mut Contents| {
                if contents.objects.contains_key(&key) {
                    return Err(StoreError::Exists { key: key.clone() });
                }
                let now = contents.now_unix_ms;
                contents.objects.insert(key.clone(), (Bytes::from(bytes), now));
                Ok(())
            };
            open.0.request(Requests::Finish, &key, publish).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};

    async fn put(store: &MemoryStore, key: &str, bytes: &'static [u8]) -> Result<(), StoreError> {
        let mut upload = store.create(key).await?;
        upload.write(Bytes::from_static(bytes)).await?;
        upload.finish().await
    }

    #[test]
    fn each_fault_hits_the_request_that_it_is_planned_for() {
        block_on(async {
            let store = MemoryStore::new();
            for requests in [Requests::Create, Requests::Write, Requests::Finish] {
                for fault in [Fault::Error, Fault::Broken, Fault::Refused, Fault::Timeout, Fault::HalfBody] {
                    store.fail(requests, 1, fault);
                    put(&store, "a/1", b"x").await.unwrap();
                    let error = put(&store, "a/2", b"x").await.unwrap_err();
                    assert_eq!((error.key(), store.bytes("a/2")), ("a/2", None), "{requests:?} {fault:?}");
                    assert_eq!(matches!(error, StoreError::Refused { .. }), fault == Fault::Refused);
                    assert_eq!(store.open_uploads(), 0);
                    store.delete("a/1").await.unwrap();
                }
            }
            store.put("a/3", &b"xyz"[..]);
            store.fail(Requests::Any, 0, Fault::HalfBody);
            assert_eq!(store.read("a/3", 0, 9).await.as_deref(), Ok(&b"x"[..]));
            assert_eq!(store.read("a/3", 0, 9).await.as_deref(), Ok(&b"xyz"[..]));
            assert_eq!(store.read("a/3", 1, 1).await.as_deref(), Ok(&b"y"[..]));
            assert_eq!(store.read("a/3", 3, 1).await.as_deref(), Ok(&b""[..]));
            assert_eq!(store.read("a/3", u64::MAX, 1).await.as_deref(), Ok(&b""[..]));
            store.fail(Requests::List, 0, Fault::Broken);
            assert!(!store.list("a/", None).await.unwrap_err().is_temporary());
            store.fail(Requests::Delete, 0, Fault::Timeout);
            store.heal();
            store.delete("a/3").await.unwrap();
            assert!(store.keys().is_empty());
        });
    }

    #[test]
    fn an_answer_may_be_lost_after_the_effect() {
        block_on(async {
            let store = MemoryStore::new();
            store.fail(Requests::Finish, 0, Fault::AfterEffect);
            assert!(put(&store, "a", b"x").await.unwrap_err().is_temporary());
            assert_eq!(store.bytes("a").as_deref(), Some(&b"x"[..]));
            assert_eq!(put(&store, "a", b"y").await, Err(StoreError::Exists { key: "a".into() }));
            store.fail(Requests::Delete, 0, Fault::AfterEffect);
            assert!(store.delete("a").await.is_err() && store.keys().is_empty());
        });
    }

    #[test]
    fn silence_lasts_until_the_caller_goes() {
        block_on(async {
            let store = MemoryStore::new();
            store.fail(Requests::Finish, 0, Fault::Silence);
            let mut ended = Box::pin(put(&store, "a", b"x"));
            for _ in 0..10 {
                assert!(poll_once(&mut ended).await.is_none());
            }
            assert_eq!(store.open_uploads(), 1);
            drop(ended);
            assert_eq!((store.open_uploads(), store.keys().len()), (0, 0));
        });
    }

    #[test]
    fn an_upload_that_failed_stays_failed() {
        block_on(async {
            let store = MemoryStore::new();
            let mut upload = store.create("a").await.unwrap();
            store.fail(Requests::Write, 0, Fault::HalfBody);
            let error = upload.write(Bytes::from_static(b"xy")).await.unwrap_err();
            assert_eq!(upload.write(Bytes::from_static(b"xy")).await, Err(error.clone()));
            assert_eq!(upload.finish().await, Err(error));
            assert!(store.keys().is_empty());
        });
    }
}
