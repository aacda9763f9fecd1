//! `keys/indexes.json`: the indexes of keys, replaced as a whole with each change.
//!
//! As [`crate::sealed_json`] has it, with `indexes`: a list of objects of `name`, `prefix` (in hexadecimal), `path` and `count`.

use super::indexes::IndexDefinition;
use super::manifest::DIR;
use crate::disk::Disk;
use crate::sealed_json::{self, Layout, Unreadable};
use crate::twin::{self, TwinError};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Newest format this build reads and the one it writes.
pub const FORMAT: u32 = 1;

/// The file in the data directory.
pub fn path() -> PathBuf {
    Path::new(DIR).join("indexes.json")
}

#[derive(Serialize, Deserialize)]
struct FileV1 {
    indexes: Vec<IndexV1>,
}

#[derive(Serialize, Deserialize)]
struct IndexV1 {
    name: String,
    prefix: String,
    path: String,
    count: bool,
}

/// Encodes the file.
pub fn encode(indexes: &[IndexDefinition]) -> Vec<u8> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let indexes = indexes.iter().map(|index| IndexV1 {
        name: index.name.clone(),
        prefix: hex(&index.prefix),
        path: index.path.clone(),
        count: index.is_count,
    });
    sealed_json::encode(FORMAT, FileV1 { indexes: indexes.collect() }, Layout::Lines)
}

/// Removes the file and its copy.
///
/// # Errors
/// The disk refused.
pub async fn remove(disk: &dyn Disk) -> std::io::Result<()> {
    disk.remove(&twin::copy_of(&path())).await?;
    disk.remove(&path()).await
}

/// Decodes the file.
///
/// # Errors
/// As [`sealed_json::decode`]; an index that none can be.
pub fn decode(bytes: &[u8]) -> Result<Vec<IndexDefinition>, Unreadable> {
    let file: FileV1 = sealed_json::decode(FORMAT, bytes, "a file of indexes of keys")?;
    let index_of = |index: IndexV1| {
        let digits = index.prefix.as_bytes();
        let (pairs, rest) = digits.as_chunks::<2>();
        let byte = |pair: &[u8; 2]| {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            Some((digit(0)? << 4 | digit(1)?) as u8)
        };
        let prefix: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        let prefix =
            prefix.filter(|_| rest.is_empty()).ok_or_else(|| format!("prefix {:?}", index.prefix))?;
        let index = IndexDefinition { name: index.name, prefix, path: index.path, is_count: index.count };
        index.check().map(|_| index).map_err(|error| error.to_string())
    };
    file.indexes.into_iter().map(index_of).collect::<Result<_, _>>().map_err(Unreadable::Damaged)
}

/// Reads the file, or its copy.
pub(super) async fn read(disk: &dyn Disk) -> Result<Vec<IndexDefinition>, TwinError<Unreadable>> {
    let is_newer = |why: &Unreadable| matches!(why, Unreadable::Newer { .. });
    Ok(twin::read(disk, &path(), decode, is_newer).await?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_indexes_round_trips_and_damage_is_named() {
        let index = |name: &str, prefix: &[u8], path: &str| IndexDefinition {
            name: name.to_owned(),
            prefix: prefix.to_vec(),
            path: path.to_owned(),
            is_count: path.ends_with("#count"),
        };
        let indexes = vec![index("by.age", b"user:\xff\0", "age"), index("b", b"", "#3#count")];
        let bytes = encode(&indexes);
        assert_eq!(decode(&bytes), Ok(indexes));
        assert_eq!(decode(&encode(&[])), Ok(vec![]));
        let text = String::from_utf8(bytes.clone()).unwrap();
        let flipped = text.replace("\"format\": 1", "\"format\": 2");
        assert!(
            matches!(decode(flipped.as_bytes()), Err(Unreadable::Damaged(_))),
            "a digit that was flipped"
        );
        let newer = crate::sealed_json::seal(&flipped);
        assert_eq!(decode(newer.as_bytes()), Err(Unreadable::Newer { found: 2, known: 1 }));
        let edited = text.replace("by.age", "by.day");
        assert!(decode(edited.as_bytes()).unwrap_err().to_string().contains("checksum"));
        for cut in 0..bytes.len() - 2 {
            assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for none in [index("a b", b"", "x"), index("a", b"", "t/1/c"), index("a", &[0; 256], "x")] {
            assert!(matches!(decode(&encode(&[none])), Err(Unreadable::Damaged(_))));
        }
    }
}
