//! Keys of objects: under which names a store has snapshots and pieces.
//!
//! ```text
//! <prefix>/<escaped name>/<time>.snap         a snapshot of a collection
//! <prefix>/<escaped name>/<time>.cfg.json     the configuration in this snapshot
//! <prefix>/<escaped name>/<time>.evicted      that snapshot is of an eviction, not of a run
//! <prefix>/aliases/<time>.snap                the aliases
//! <prefix>/key-indexes/<time>.snap            the definitions of the indexes of keys
//! <prefix>/api-keys/<time>.snap               the file of API keys, which has no token
//! <prefix>/keys/<time>.snap                   the keys with their values
//! <prefix>/pieces/<uid>/<digest>              bytes of files
//! <prefix>/log/…                              the archive of the log, see `crate::archive`
//! <prefix>/owner.json                         which data directory writes here
//! ```
//!
//! A time is that of the run, in UTC and whole seconds, or a later one if the snapshot of an eviction already has that time. Full names of
//! collections contain a slash, which is escaped, so that none is `pieces`, `log`, `aliases`, `key-indexes`, `api-keys` or `keys`.

use super::snapshot::Digest;
use jiff::{Timestamp, tz};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Bytes that are not escaped in a key, beside letters and digits.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// The length, in bytes, of the longest escaped name that a key contains unchanged. Of a longer name, a key has a beginning of this length.
const NAME_BYTES_MAX: usize = 200;
const NAME_KEPT_BYTES: usize = 128;

/// How the key of a snapshot ends.
pub const SNAPSHOT: &str = ".snap";
/// How the key of the object ends that marks a snapshot as one of an eviction, not of a run.
pub const EVICTED: &str = ".evicted";
/// How the key of a configuration ends.
pub const CONFIG: &str = ".cfg.json";

/// The keys of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The prefix of all keys: empty, or with a slash at its end.
    prefix: String,
}

impl Names {
    /// Keys that begin with `prefix` and a slash; an empty `prefix` adds nothing.
    pub fn new(prefix: &str) -> Names {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Names { prefix }
    }

    /// The prefix of all keys.
    pub fn all(&self) -> &str {
        &self.prefix
    }

    /// The prefix of the keys of the snapshots of a part of the node.
    pub fn of_part(&self, name: &str) -> String {
        format!("{}{name}/", self.prefix)
    }

    /// The prefix of the keys of all pieces.
    pub fn all_pieces(&self) -> String {
        format!("{}pieces/", self.prefix)
    }

    /// The prefix of the keys of the archive of the log.
    pub fn of_log(&self) -> String {
        format!("{}log/", self.prefix)
    }

    /// The prefix of the keys of the snapshots of a collection.
    pub fn of_collection(&self, full: &str) -> String {
        let escaped = utf8_percent_encode(full, ESCAPED).to_string();
        match escaped.len() <= NAME_BYTES_MAX {
            true => format!("{}{escaped}/", self.prefix),
            // File systems limit the length of names. The digest distinguishes long names with the same beginning.
            false => {
                format!("{}{}~{}/", self.prefix, &escaped[..NAME_KEPT_BYTES], Digest::of(full.as_bytes()))
            }
        }
    }

    /// The prefix of the keys of the pieces of a store of images.
    pub fn pieces(&self, uid: u64) -> String {
        format!("{}pieces/{uid:016x}/", self.prefix)
    }

    /// The key of a piece.
    pub fn piece(&self, uid: u64, digest: &Digest) -> String {
        format!("{}{digest}", self.pieces(uid))
    }

    /// The key of the object that says which server writes here.
    pub fn owner(&self) -> String {
        format!("{}owner.json", self.prefix)
    }
}

/// Formats the time of a run as keys of objects contain it: `2025-01-31T10:00:00Z`.
pub fn time_text(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let time = time.unwrap_or(Timestamp::MAX).to_zoned(tz::TimeZone::UTC);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether `text` is the time of a run. Times sort like their texts.
pub fn is_time(text: &str) -> bool {
    let shape = b"dddd-dd-ddTdd:dd:ddZ";
    text.len() == shape.len()
        && text.bytes().zip(shape).all(|(byte, expected)| match expected {
            b'd' => byte.is_ascii_digit(),
            expected => byte == *expected,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_times_are_whole_seconds() {
        let names = Names::new("prod");
        assert_eq!(names.of_collection("acme/a b:ü%"), "prod/acme%2Fa%20b:%C3%BC%25/");
        let long = names.of_collection(&format!("default/{}", "ü".repeat(120)));
        assert!(
            long.len() < 205 && long.starts_with("prod/default%2F%C3%BC") && long.ends_with('/'),
            "{long}"
        );
        assert_ne!(long, names.of_collection(&format!("default/{}", "ü".repeat(119))));
        assert_eq!(names.pieces(255), "prod/pieces/00000000000000ff/");
        assert_eq!(Names::new("").of_collection("default/docs"), "default%2Fdocs/");
        assert_eq!(time_text(1_738_317_600_999), "2025-01-31T10:00:00Z");
        for ms in [0, 1_738_317_600_000, u64::MAX] {
            assert!(is_time(&time_text(ms)), "{}", time_text(ms));
        }
        for text in ["", "2025-01-31T10:00:00", "2025-01-31 10:00:00Z", "2025-01-31T10:00:00Zx"] {
            assert!(!is_time(text));
        }
    }
}
