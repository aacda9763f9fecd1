//! What every store promises, as cases that run against each of them.

use super::DirectoryStore;
use bytes::Bytes;
use futures_lite::future::{block_on, zip};
use nigh_shard::backup::{MemoryStore, Object, Store, StoreError};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Long enough for several parts of a multipart upload, and no multiple of anything.
const BIG_BYTES: usize = (19 << 20) + 123;
/// How long what dropped uploads leave may take to go.
const CLEANUP: Duration = Duration::from_secs(10);

/// A store under test.
pub(super) struct Bed<'a> {
    /// Empty at first.
    pub store: &'a dyn Store,
    /// What uploads that are neither finished nor dropped have left in the store.
    pub leftovers: &'a dyn Fn() -> usize,
    /// Whether only one of several uploads that are finished at the same time under one key succeeds. A store that first looks and then writes lets
    /// several do so.
    pub is_atomic: bool,
}

/// Runs all cases.
pub(super) fn check(bed: &Bed<'_>) {
    block_on(async {
        one_object(bed).await;
        an_object_is_written_once(bed).await;
        bad_keys(bed).await;
        a_big_object(bed).await;
        a_dropped_upload_leaves_nothing(bed).await;
        one_of_many_wins(bed).await;
        listings_have_pages(bed).await;
    });
}

async fn put(store: &dyn Store, key: &str, bytes: impl Into<Bytes>) -> Result<(), StoreError> {
    let mut upload = store.create(key).await?;
    upload.write(bytes.into()).await?;
    upload.finish().await
}

async fn list(store: &dyn Store, prefix: &str) -> Vec<Object> {
    let (mut found, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = store.list(prefix, after.as_deref()).await.unwrap();
        found.extend(page.objects);
        match page.next {
            Some(next) => after = Some(next),
            None => return found,
        }
    }
}

async fn keys(store: &dyn Store, prefix: &str) -> Vec<String> {
    list(store, prefix).await.into_iter().map(|found| found.key).collect()
}

async fn one_object(Bed { store, .. }: &Bed<'_>) {
    let key = "one/a%2Fb c+ü/2025-01-31T10:00:00Z.snap";
    assert_eq!(store.read(key, 0, 1).await, Err(StoreError::NotFound { key: key.into() }));
    let mut upload = store.create(key).await.unwrap();
    upload.write(Bytes::from_static(b"some")).await.unwrap();
    upload.write(Bytes::new()).await.unwrap();
    upload.write(Bytes::from_static(b" bytes")).await.unwrap();
    assert!(keys(*store, "one/").await.is_empty(), "an object is visible before it is finished");
    assert_eq!(store.read(key, 0, 1).await, Err(StoreError::NotFound { key: key.into() }));
    upload.finish().await.unwrap();
    for (at, len, expected) in [
        (0, 100, "some bytes"),
        (0, 4, "some"),
        (5, 5, "bytes"),
        (9, 2, "s"),
        (10, 1, ""),
        (1 << 40, 1, ""),
        (3, 0, ""),
    ] {
        assert_eq!(store.read(key, at, len).await.as_deref(), Ok(expected.as_bytes()), "{at} {len}");
    }
    let found = list(*store, "one/").await;
    assert_eq!(found.iter().map(|found| (found.key.as_str(), found.bytes)).collect::<Vec<_>>(), [(key, 10)]);
    store.delete(key).await.unwrap();
    store.delete(key).await.unwrap();
    assert!(keys(*store, "").await.is_empty());
    assert_eq!(store.read(key, 0, 1).await, Err(StoreError::NotFound { key: key.into() }));
    store.create("one/empty").await.unwrap().finish().await.unwrap();
    assert_eq!(store.read("one/empty", 0, 5).await.as_deref(), Ok(&b""[..]));
    assert_eq!(list(*store, "one/").await[0].bytes, 0);
    store.delete("one/empty").await.unwrap();
}

async fn an_object_is_written_once(Bed { store, .. }: &Bed<'_>) {
    let taken = Err(StoreError::Exists { key: "once/a".into() });
    put(*store, "once/a", "first").await.unwrap();
    assert_eq!(put(*store, "once/a", "second").await, taken);
    assert_eq!(store.read("once/a", 0, 9).await.as_deref(), Ok(&b"first"[..]));
    // Several parts are published by another request.
    assert_eq!(put(*store, "once/a", vec![7; BIG_BYTES]).await, taken);
    assert_eq!(store.read("once/a", 0, 9).await.as_deref(), Ok(&b"first"[..]));
    store.delete("once/a").await.unwrap();
    put(*store, "once/a", "third").await.unwrap();
    assert_eq!(store.read("once/a", 0, 9).await.as_deref(), Ok(&b"third"[..]));
    store.delete("once/a").await.unwrap();
}

async fn bad_keys(Bed { store, .. }: &Bed<'_>) {
    for key in ["", "/a", "a/", "a//b", "a/../b", "..", "a\\b", "a\0"] {
        let is_bad =
            |error: StoreError| matches!(error, StoreError::BadKey { key: named, .. } if named == key);
        assert!(is_bad(store.create(key).await.err().unwrap()), "{key}");
        assert!(is_bad(store.read(key, 0, 1).await.unwrap_err()), "{key}");
        assert!(is_bad(store.delete(key).await.unwrap_err()), "{key}");
    }
}

async fn a_big_object(Bed { store, .. }: &Bed<'_>) {
    let byte = |at: usize| (at ^ (at >> 8) ^ (at >> 16)) as u8;
    let bytes: Bytes = (0..BIG_BYTES).map(byte).collect::<Vec<_>>().into();
    let mut upload = store.create("big/a").await.unwrap();
    let mut rest = bytes.clone();
    for piece in [1, 4096, (8 << 20) - 1, 3 << 20, 0, 100_000].into_iter().chain(std::iter::repeat(1 << 20)) {
        if rest.is_empty() {
            break;
        }
        upload.write(rest.split_to(piece.min(rest.len()))).await.unwrap();
    }
    assert!(keys(*store, "big/").await.is_empty());
    upload.finish().await.unwrap();
    assert_eq!(list(*store, "big/").await[0].bytes, BIG_BYTES as u64);
    let mut at = 0;
    while at < BIG_BYTES {
        let read = store.read("big/a", at as u64, 7_000_001).await.unwrap();
        assert!(read.len() == 7_000_001.min(BIG_BYTES - at) && read == bytes[at..at + read.len()], "{at}");
        at += read.len();
    }
    store.delete("big/a").await.unwrap();
}

async fn a_dropped_upload_leaves_nothing(bed: &Bed<'_>) {
    for bytes in [0, 10, BIG_BYTES] {
        let mut upload = bed.store.create("dropped/a").await.unwrap();
        upload.write(vec![1; bytes].into()).await.unwrap();
        drop(upload);
    }
    // Something else goes on meanwhile, and the one that asked for it goes.
    let mut upload = bed.store.create("dropped/a").await.unwrap();
    let _not_waited_for = futures_lite::future::poll_once(upload.write(vec![1; BIG_BYTES].into())).await;
    drop(upload);
    let started = std::time::Instant::now();
    while (bed.leftovers)() > 0 {
        assert!(started.elapsed() < CLEANUP, "{} uploads stay", (bed.leftovers)());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(keys(bed.store, "").await.is_empty());
}

async fn one_of_many_wins(Bed { store, is_atomic, .. }: &Bed<'_>) {
    const MANY: usize = 8;
    for bytes in [5, (8 << 20) + 1] {
        let contest = |number: usize| {
            let own = format!("many/{number}");
            async move {
                put(*store, &own, vec![number as u8; 3]).await.unwrap();
                put(*store, "many/same", vec![number as u8; bytes]).await
            }
        };
        let ended = together((0..MANY).map(contest).collect()).await;
        let taken = Err(StoreError::Exists { key: "many/same".into() });
        let winners: Vec<usize> = (0..MANY).filter(|&number| ended[number].is_ok()).collect();
        assert!(winners.len() == 1 || (!is_atomic && winners.len() > 1), "{ended:?}");
        assert!(ended.iter().all(|ended| ended.is_ok() || *ended == taken), "{ended:?}");
        let read = store.read("many/same", 0, 100).await.unwrap();
        assert!(winners.iter().any(|&winner| read.iter().all(|&byte| byte == winner as u8)));
        assert_eq!(keys(*store, "many/").await.len(), MANY + 1);
        for key in keys(*store, "many/").await {
            store.delete(&key).await.unwrap();
        }
    }
}

async fn listings_have_pages(Bed { store, .. }: &Bed<'_>) {
    const OBJECTS: usize = 1_101;
    let mut expected: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..OBJECTS {
        // Objects directly below the prefix and in directories, which are sorted among them.
        let group = ["", "b/", "b-", "c/d/"][number % 4];
        expected.insert(format!("a/{group}{number:05}"), number);
    }
    let others = ["a-", "a0", "ab/x"].map(|key| (key.to_owned(), 1));
    let all: Vec<(String, usize)> = expected.clone().into_iter().chain(others).collect();
    for some in all.chunks(16) {
        let ended =
            together(some.iter().map(|(key, bytes)| put(*store, key, vec![0; *bytes])).collect()).await;
        assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    }
    let found: Vec<(String, usize)> =
        list(*store, "a/").await.into_iter().map(|found| (found.key, found.bytes as usize)).collect();
    assert_eq!(found, expected.clone().into_iter().collect::<Vec<_>>());
    let first = store.list("a/", None).await.unwrap();
    assert!(first.objects.len() < OBJECTS && first.next.is_some(), "a page has an end");
    assert_eq!(keys(*store, "ab/").await, ["ab/x"]);
    assert_eq!(keys(*store, "a/b/").await.len(), OBJECTS / 4);
    assert!(keys(*store, "nothing/").await.is_empty());
    let everything = keys(*store, "").await;
    let mut sorted: Vec<String> = all.iter().map(|(key, _)| key.clone()).collect();
    sorted.sort();
    assert_eq!(everything, sorted);
    // A listing may begin after any key, also one that no object has or that does not begin with the prefix.
    for (after, next) in [("a/00000", "a/00004"), ("a/0", "a/00000"), ("", "a/00000"), ("a/b", "a/b-00002")] {
        let page = store.list("a/", Some(after)).await.unwrap();
        assert_eq!(page.objects[0].key, next, "{after}");
    }
    assert!(store.list("a/", Some("b")).await.unwrap().objects.is_empty());
    for some in everything.chunks(16) {
        together(some.iter().map(|key| async { store.delete(key).await.unwrap() }).collect()).await;
    }
    assert!(keys(*store, "").await.is_empty());
}

/// The results of all, which run at the same time.
async fn together<T, F: Future<Output = T>>(all: Vec<F>) -> Vec<T> {
    let mut joined: Pin<Box<dyn Future<Output = Vec<T>> + '_>> = Box::pin(async { Vec::new() });
    for one in all {
        joined = Box::pin(async move {
            let (mut before, one) = zip(joined, one).await;
            before.push(one);
            before
        });
    }
    joined.await
}

#[test]
fn memory() {
    let store = MemoryStore::new();
    check(&Bed { store: &store, leftovers: &|| store.open_uploads(), is_atomic: true });
}

#[test]
fn directory() {
    // Each object is synced several times, and there are many.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let store = DirectoryStore::open(directory.path()).unwrap();
    let leftovers = || std::fs::read_dir(directory.path().join(".nigh-uploads")).unwrap().count();
    check(&Bed { store: &store, leftovers: &leftovers, is_atomic: true });
}
