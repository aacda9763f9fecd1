//! `aliases.json`: every alias of the node with its target, replaced as a whole with each change.
//!
//! As [`crate::sealed_json`] has it, with `aliases`: an object from alias to collection, both `<tenant>/<name>`, in order.

use crate::sealed_json::{self, Layout, Unreadable};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// File name in the data directory.
pub const FILE: &str = "aliases.json";
/// Newest format this build reads and the one it writes.
pub const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct FileV1<'a> {
    aliases: Cow<'a, BTreeMap<String, String>>,
}

/// Encodes the file.
pub fn encode(aliases: &BTreeMap<String, String>) -> Vec<u8> {
    sealed_json::encode(FORMAT, FileV1 { aliases: Cow::Borrowed(aliases) }, Layout::Lines)
}

/// Decodes the file.
///
/// # Errors
/// As [`sealed_json::decode`].
pub fn decode(bytes: &[u8]) -> Result<BTreeMap<String, String>, Unreadable> {
    let file: FileV1<'_> = sealed_json::decode(FORMAT, bytes, "a file of aliases")?;
    Ok(file.aliases.into_owned())
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
        let flipped = text.replace("\"format\": 1", "\"format\": 2");
        assert!(
            matches!(decode(flipped.as_bytes()), Err(Unreadable::Damaged(_))),
            "a digit that was flipped"
        );
        let newer = crate::sealed_json::seal(&flipped);
        assert_eq!(decode(newer.as_bytes()), Err(Unreadable::Newer { found: 2, known: 1 }));
        let edited = text.replace("acme/x", "acme/y");
        assert!(decode(edited.as_bytes()).unwrap_err().to_string().contains("checksum"));
        for cut in 0..bytes.len() - 2 {
            assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
