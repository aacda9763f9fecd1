//! `aliases.json`: every alias of the node with its target, replaced as a whole with each change.
//!
//! A JSON object of `format`, `aliases` (an object from alias to collection, both `<tenant>/<name>`, in order) and `checksum`: the
//! CRC32C of the same object in compact form, keys in order, with a checksum of 0.

use crate::collection_file::Unreadable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// File name in the data directory.
pub const FILE: &str = "aliases.json";
/// Newest format this build reads and the one it writes.
pub const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct FileV1 {
    format: u32,
    aliases: BTreeMap<String, String>,
    checksum: u32,
}

/// Only the format number, so that a newer file is told apart from a damaged one.
#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

/// Encodes the file.
pub fn encode(aliases: &BTreeMap<String, String>) -> Vec<u8> {
    let mut file = FileV1 { format: FORMAT, aliases: aliases.clone(), checksum: 0 };
    file.checksum = checksum(&file);
    let mut bytes = serde_json::to_vec_pretty(&file).expect("plain fields encode");
    bytes.push(b'\n');
    bytes
}

fn checksum(file: &FileV1) -> u32 {
    let mut value = serde_json::to_value(file).expect("plain fields encode");
    value["checksum"] = 0.into();
    crc32c::crc32c(value.to_string().as_bytes())
}

/// Decodes the file.
///
/// # Errors
/// Newer format, not JSON, or a checksum that does not match.
pub fn decode(bytes: &[u8]) -> Result<BTreeMap<String, String>, Unreadable> {
    let damaged = |error: serde_json::Error| Unreadable::Damaged(format!("not a file of aliases: {error}"));
    let format: FormatOnly = serde_json::from_slice(bytes).map_err(damaged)?;
    if format.format > FORMAT {
        return Err(Unreadable::Newer(format.format));
    }
    let file: FileV1 = serde_json::from_slice(bytes).map_err(damaged)?;
    if checksum(&file) != file.checksum {
        let what = "checksum does not match: the file is damaged or was edited";
        return Err(Unreadable::Damaged(what.to_owned()));
    }
    Ok(file.aliases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_aliases_round_trips_and_damage_is_named() {
        let aliases: BTreeMap<String, String> = [("default/a\"b", "acme/x"), ("default/b", "default/c")]
            .map(|(a, b)| (a.into(), b.into()))
            .into();
        let bytes = encode(&aliases);
        assert_eq!(decode(&bytes), Ok(aliases));
        assert_eq!(decode(&encode(&BTreeMap::new())), Ok(BTreeMap::new()));
        let text = String::from_utf8(bytes.clone()).unwrap();
        let newer = text.replace("\"format\": 1", "\"format\": 2");
        assert_eq!(decode(newer.as_bytes()), Err(Unreadable::Newer(2)));
        let edited = text.replace("acme/x", "acme/y");
        assert!(decode(edited.as_bytes()).unwrap_err().to_string().contains("checksum"));
        for cut in 0..bytes.len() - 2 {
            assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
