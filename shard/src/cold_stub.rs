//! `cold.json` in the directory of a collection that has left memory and disk: where the store of backups has it.
//!
//! The file is the moment of an eviction. A directory with it and a `collection.json` is a *stub*: the collection is cold, and whatever else
//! lies there is what an eviction had not removed yet or what a promotion had fetched so far, and is removed. Without it the collection is
//! whole in the directory.

use crate::disk::Disk;
use crate::sealed_json::{self, Layout, Unreadable};
use crate::twin::{self, TwinError};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The name of the file.
pub const FILE: &str = "cold.json";
/// Newest format this build reads and the one it writes.
pub(crate) const FORMAT: u32 = 1;

/// Which store has a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColdStore {
    /// The bucket.
    Bucket,
    /// The backup directory.
    Directory,
}

/// What a stub says of its collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColdStub {
    /// Which store has it.
    pub store: ColdStore,
    /// What the keys of this server begin with there, without a slash at the end.
    pub prefix: String,
    /// The key of the snapshot.
    pub key: String,
    /// Bytes of the files of the snapshot.
    pub bytes: u64,
    /// When the collection was evicted, Unix milliseconds by the clock of the server.
    pub evicted_unix_ms: u64,
    /// Points that it had. Stubs of earlier builds do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<u64>,
    /// Bytes of memory that it held, which it will need again. Stubs of earlier builds do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

fn path_in(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

/// Makes the collection of `dir` a cold one.
///
/// # Errors
/// The disk refused; whether it is cold for the next start is open then.
pub async fn store(disk: &dyn Disk, dir: &Path, stub: &ColdStub) -> io::Result<()> {
    let bytes = sealed_json::encode(FORMAT, stub, Layout::Lines);
    twin::replace(disk, &path_in(dir), &bytes).await
}

/// What the stub in `dir` says; `None` if there is none.
///
/// # Errors
/// It cannot be read, nor its copy.
pub async fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<ColdStub>, TwinError<Unreadable>> {
    let decode =
        |bytes: &[u8]| sealed_json::decode::<ColdStub>(FORMAT, bytes, "the stub of a cold collection");
    twin::read(disk, &path_in(dir), decode, |why| matches!(why, Unreadable::Newer { .. })).await
}

/// Removes the stub: what lies in `dir` is the collection. The copy goes first, because a start would restore the file from it.
///
/// # Errors
/// The disk refused; whether it is cold for the next start is open then.
pub async fn remove(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let path = path_in(dir);
    disk.remove(&twin::copy_of(&path)).await?;
    disk.remove(&path).await
}

/// Removes what a directory has of the data of its collection: images, vectors, manifests, and what was half written.
///
/// # Errors
/// The disk refused; some of it may be there still.
pub async fn remove_data(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let is_data = |name: &str| {
        name == "manifest" || name.ends_with(".img") || name.ends_with(".vec") || name.ends_with(".tmp")
    };
    for dir in [&twin::copy_of(dir), dir] {
        for name in disk.list(dir).await? {
            if name.to_str().is_some_and(is_data) {
                disk.remove(&dir.join(&name)).await?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;
    use futures_lite::future::block_on;

    fn stub() -> ColdStub {
        ColdStub {
            store: ColdStore::Bucket,
            prefix: "default".into(),
            key: "default/default%2Fdocs/2025-01-31T10:00:00Z.snap".into(),
            bytes: 412,
            evicted_unix_ms: 1_738_317_600_000,
            points: Some(7),
            memory_bytes: Some(4096),
        }
    }

    /// Files of builds that did not count points must stay readable.
    #[test]
    fn a_file_without_counts() {
        #[derive(Serialize)]
        struct Before {
            store: ColdStore,
            prefix: String,
            key: String,
            bytes: u64,
            evicted_unix_ms: u64,
        }
        let ColdStub { store, prefix, key, bytes, evicted_unix_ms, .. } = stub();
        let before = Before { store, prefix, key, bytes, evicted_unix_ms };
        let bytes = sealed_json::encode(FORMAT, before, Layout::Lines);
        let read = sealed_json::decode::<ColdStub>(FORMAT, &bytes, "a stub");
        assert_eq!(read, Ok(ColdStub { points: None, memory_bytes: None, ..stub() }));
    }

    /// Files of released versions must stay readable.
    #[test]
    fn the_file_of_format_1() {
        let file = concat!(
            "{\n  \"format\": 1,\n  \"store\": \"bucket\",\n  \"prefix\": \"default\",\n",
            "  \"key\": \"default/default%2Fdocs/2025-01-31T10:00:00Z.snap\",\n  \"bytes\": 412,\n",
            "  \"evicted_unix_ms\": 1738317600000,\n  \"points\": 7,\n  \"memory_bytes\": 4096,\n  \"checksum\": "
        );
        let bytes = sealed_json::encode(FORMAT, stub(), Layout::Lines);
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.starts_with(file), "{text}");
        assert_eq!(sealed_json::decode::<ColdStub>(FORMAT, &bytes, "a stub"), Ok(stub()));
    }

    #[test]
    fn it_is_stored_read_and_removed_with_its_copy() {
        let (disk, dir) = (SimDisk::new(1), Path::new("collections/1"));
        block_on(disk.create_dir(dir)).unwrap();
        assert_eq!(block_on(read(&disk, dir)).unwrap(), None);
        block_on(store(&disk, dir, &stub())).unwrap();
        disk.put("collections/1/cold.json", b"{".to_vec());
        assert_eq!(block_on(read(&disk, dir)).unwrap(), Some(stub()), "its copy is used");
        for name in ["manifest", "00000001.img", "00000000.vec", "00000002.img.tmp", "collection.json"] {
            disk.put(format!("collections/1/{name}"), b"x".to_vec());
        }
        disk.put("copies/collections/1/manifest", b"x".to_vec());
        block_on(remove_data(&disk, dir)).unwrap();
        let left = block_on(disk.list(dir)).unwrap();
        assert_eq!(left, [PathBuf::from("cold.json"), PathBuf::from("collection.json")]);
        assert_eq!(disk.bytes("copies/collections/1/manifest"), None);
        block_on(remove(&disk, dir)).unwrap();
        assert_eq!(block_on(read(&disk, dir)).unwrap(), None);
    }
}
