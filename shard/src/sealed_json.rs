//! Small JSON files that are replaced as a whole: an object of `format`, what the file is about, and `checksum`, the CRC32C of the same
//! object in compact form, keys in order, with a checksum of 0. Later formats keep that, so that a newer file is told from a damaged one.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Sealed<T> {
    format: u32,
    #[serde(flatten)]
    content: T,
    checksum: u32,
}

/// Only the format number, so that a newer file is told apart from a damaged one.
#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

/// How a file looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A line per key, for people.
    Lines,
    /// In one line, for long lists.
    Compact,
}

/// Why a file is of no use.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Of a newer version.
    #[error("format {found} is newer than this build reads ({known})")]
    Newer {
        /// Its format.
        found: u32,
        /// The newest that this build reads.
        known: u32,
    },
    /// Not what was written.
    #[error("{0}")]
    Damaged(String),
}

/// Encodes a file. `content` is a struct without maps of other keys than texts.
pub fn encode<T: Serialize>(format: u32, content: T, layout: Layout) -> Vec<u8> {
    let mut file = Sealed { format, content, checksum: 0 };
    file.checksum = checksum(&file);
    let encoded = match layout {
        Layout::Lines => serde_json::to_vec_pretty(&file),
        Layout::Compact => serde_json::to_vec(&file),
    };
    let mut bytes = encoded.expect("plain fields encode");
    bytes.push(b'\n');
    bytes
}

fn checksum<T: Serialize>(file: &Sealed<T>) -> u32 {
    let mut value = serde_json::to_value(file).expect("plain fields encode");
    value["checksum"] = 0.into();
    crc32c::crc32c(value.to_string().as_bytes())
}

/// Decodes a file whose newest format is `newest`. `what` it is, with an article, goes into the error.
///
/// # Errors
/// A newer format; not JSON, or not of this shape; a checksum that does not match.
pub fn decode<T: Serialize + DeserializeOwned>(
    newest: u32,
    bytes: &[u8],
    what: &str,
) -> Result<T, Unreadable> {
    let damaged = |error: serde_json::Error| Unreadable::Damaged(format!("not {what}: {error}"));
    let format: FormatOnly = serde_json::from_slice(bytes).map_err(damaged)?;
    if format.format > newest {
        return Err(match resealed(bytes) {
            Some((found, right)) if found == right => {
                Unreadable::Newer { found: format.format, known: newest }
            }
            _ => Unreadable::Damaged("checksum does not match: the file is damaged or was edited".to_owned()),
        });
    }
    let file: Sealed<T> = serde_json::from_slice(bytes).map_err(damaged)?;
    if checksum(&file) != file.checksum {
        let what = "checksum does not match: the file is damaged or was edited";
        return Err(Unreadable::Damaged(what.to_owned()));
    }
    Ok(file.content)
}

/// The checksum of a file of whatever format, and the one that it should have.
fn resealed(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let found = value.get("checksum")?.as_u64()?;
    value["checksum"] = 0.into();
    Some((found, crc32c::crc32c(value.to_string().as_bytes()).into()))
}

/// The file with the checksum that it should have.
#[cfg(test)]
pub(crate) fn seal(text: &str) -> String {
    let (_, right) = resealed(text.as_bytes()).expect("a sealed file");
    let mut value: serde_json::Value = serde_json::from_str(text).expect("JSON");
    value["checksum"] = right.into();
    value.to_string()
}
