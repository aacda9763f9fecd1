//! The first and the last line of an export: the header says what the file contains, and the trailer shows whether it is complete.
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The value of `format` in every header.
const FORMAT: &str = "nigh-export";
/// The version of the format that this build writes, and the newest one that it reads.
pub const VERSION: u64 = 1;

/// The family of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Each point has one vector.
    Dense,
    /// Each point has vectors in named spaces.
    Named,
    /// Each document has a vector for each of its tokens.
    Multivector,
}

impl Family {
    /// Every family, in the order in which a collection is looked for.
    pub const ALL: [Family; 3] = [Family::Dense, Family::Named, Family::Multivector];

    /// The first part of the paths of its routes.
    pub fn root(self) -> &'static str {
        match self {
            Family::Dense => "/v1/collections",
            Family::Named => "/v1/named",
            Family::Multivector => "/v1/multivector",
        }
    }

    /// Its name in sentences and files.
    pub fn name(self) -> &'static str {
        match self {
            Family::Dense => "dense",
            Family::Named => "named",
            Family::Multivector => "multivector",
        }
    }
}

/// What the lines of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Points of a collection.
    Collection,
    /// Keys and their values.
    Keys,
}

/// The file of vectors that lies beside the lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// `npy` or `fvecs`.
    pub format: String,
    /// Components of every vector.
    pub dim: usize,
}

/// An index of keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyIndex {
    /// Its name.
    pub name: String,
    /// The prefix of its keys, as base64.
    pub prefix_base64: String,
    /// The path of the field.
    pub path: String,
    /// Whether it counts rows.
    pub is_count: bool,
}

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// `nigh-export`.
    pub format: String,
    /// Version of the format.
    pub version: u64,
    /// What the lines are.
    pub kind: Kind,
    /// The build that wrote the file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub written_by: String,
    /// When the export began, in milliseconds since 1970.
    #[serde(default)]
    pub exported_at_ms: u64,
    /// Name of the collection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// Its family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Its configuration as the server returns it; absent if the server does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Map<String, Value>>,
    /// The prefix of the keys, as base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix_base64: String,
    /// The indexes of keys; absent if the API key may not read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexes: Option<Vec<KeyIndex>>,
    /// Where the vectors are, if not in the lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vectors: Option<Beside>,
    /// Texts that say which data the server has and does not return.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_kept: Vec<String>,
}

impl Header {
    /// A header of the version that this build writes, without name and configuration.
    pub fn new(kind: Kind, now_ms: u64) -> Header {
        Header {
            format: FORMAT.into(),
            version: VERSION,
            kind,
            written_by: format!("nigh {}", env!("CARGO_PKG_VERSION")),
            exported_at_ms: now_ms,
            collection: None,
            family: None,
            config: None,
            prefix_base64: String::new(),
            indexes: None,
            vectors: None,
            not_kept: Vec::new(),
        }
    }

    /// Reads the first line of a file.
    ///
    /// # Errors
    /// A sentence: the line is no header, has a version that this build does not know, or lacks a field.
    pub fn parse(line: &[u8]) -> Result<Header, String> {
        /// What every version has.
        #[derive(Deserialize)]
        struct Start {
            format: String,
            version: u64,
        }
        let no_header = |reason: &dyn std::fmt::Display| {
            format!("line 1 is not the header of a file of nigh export: {reason}")
        };
        let start: Start = serde_json::from_slice(line).map_err(|error| no_header(&error))?;
        if start.format != FORMAT {
            return Err(no_header(&format_args!("its format is {:?}", start.format)));
        }
        if start.version != VERSION {
            return Err(format!(
                "the file has version {} of the format, and this build reads version {VERSION} alone",
                start.version
            ));
        }
        let header: Header = serde_json::from_slice(line).map_err(|error| no_header(&error))?;
        if header.kind == Kind::Collection && (header.collection.is_none() || header.family.is_none()) {
            return Err(no_header(&"it names no collection and family"));
        }
        Ok(header)
    }
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trailer {
    /// What it says.
    pub end: End,
}

/// What the last line says of those before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Lines between the header and this one.
    pub lines: u64,
    /// CRC-32C of all bytes before this line, as eight hexadecimal digits.
    pub crc32c: String,
    /// CRC-32C of the file of vectors, likewise, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vectors_crc32c: Option<String>,
}

/// How the trailer begins, which no other line does.
const TRAILER: &[u8] = b"{\"end\":";

impl Trailer {
    /// Parses a line that begins like a trailer, or says why it is none. `None` for any other line.
    pub fn of(line: &[u8]) -> Option<Result<Trailer, String>> {
        line.starts_with(TRAILER).then(|| {
            serde_json::from_slice(line).map_err(|error| format!("the last line is damaged: {error}"))
        })
    }
}

/// A checksum as files have it.
pub fn hex(crc: u32) -> String {
    format!("{crc:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_and_others_are_refused() {
        let mut header = Header::new(Kind::Collection, 7);
        (header.collection, header.family) = (Some("films".into()), Some(Family::Named));
        let line = serde_json::to_vec(&header).unwrap();
        assert!(line.starts_with(b"{\"format\":\"nigh-export\",\"version\":1,\"kind\":\"collection\""));
        assert_eq!(Header::parse(&line), Ok(header));
        for (line, part) in [
            ("", "line 1 is not the header"),
            ("{\"id\":1}", "line 1 is not the header"),
            ("{\"format\":\"other\",\"version\":1}", "\"other\""),
            ("{\"format\":\"nigh-export\",\"version\":2,\"new\":1}", "has version 2"),
            ("{\"format\":\"nigh-export\",\"version\":1,\"kind\":\"collection\"}", "names no collection"),
            ("{\"format\":\"nigh-export\",\"version\":1,\"kind\":\"keys\",\"what\":1}", "what"),
        ] {
            let error = Header::parse(line.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn trailers_are_told_from_points() {
        let end = End { lines: 3, crc32c: hex(10), vectors_crc32c: None };
        let line = serde_json::to_vec(&Trailer { end }).unwrap();
        assert_eq!(Trailer::of(&line).unwrap().unwrap().end.crc32c, "0000000a");
        assert!(Trailer::of(&line[..line.len() - 1]).unwrap().is_err());
        assert!(Trailer::of(b"{\"id\":1}").is_none());
    }
}
