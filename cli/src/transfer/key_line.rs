//! Reads and writes a key with its value as a line of an export. Bytes that are UTF-8 are text, others are base64.
use super::point::NotSent;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// The longest key.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// The longest value.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// A line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyLine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// When it expires, in milliseconds since 1970, if it does.
    pub expires_at_ms: Option<u64>,
}

/// Bytes as text, or as base64.
fn split(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

/// The bytes of one of two forms.
fn joined(what: &str, text: Option<String>, base64: Option<String>, most: usize) -> Result<Vec<u8>, String> {
    let bytes = match (text, base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(base64)) => {
            STANDARD.decode(base64).map_err(|error| format!("{what}_base64 is not base64: {error}"))?
        }
        (None, None) => return Err(format!("{what} is missing")),
        (Some(_), Some(_)) => return Err(format!("{what} and {what}_base64 are both there")),
    };
    match bytes.len() <= most {
        true => Ok(bytes),
        false => Err(format!("{what} has {} bytes, and {most} are possible", bytes.len())),
    }
}

impl Key {
    /// The line of this key, with its line feed.
    pub fn line(&self) -> Vec<u8> {
        let (key, key_base64) = split(&self.key);
        let (value, value_base64) = split(&self.value);
        let line = KeyLine { key, key_base64, value, value_base64, expires_at_ms: self.expires_at_ms };
        // Text and numbers always have a JSON form.
        let mut line = serde_json::to_vec(&line).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// Reads a line at `now_ms`.
    ///
    /// # Errors
    /// The key is not to be sent.
    pub fn read(line: &[u8], now_ms: u64) -> Result<Key, NotSent> {
        let read = || -> Result<Key, String> {
            // The parts of an array would be taken for the parts of an object in their order.
            if line.trim_ascii_start().starts_with(b"[") {
                return Err("it is a JSON array, and a key with its value is an object".into());
            }
            let line: KeyLine = serde_json::from_slice(line).map_err(|error| match error.is_data() {
                true => error.to_string(),
                false => format!("it is not JSON: {error}"),
            })?;
            Ok(Key {
                key: joined("key", line.key, line.key_base64, KEY_BYTES_MAX)?,
                value: joined("value", line.value, line.value_base64, VALUE_BYTES_MAX)?,
                expires_at_ms: line.expires_at_ms,
            })
        };
        let key = read().map_err(NotSent::Refused)?;
        match key.expires_at_ms {
            Some(at) if at <= now_ms => Err(NotSent::Expired),
            _ => Ok(key),
        }
    }

    /// Milliseconds until it expires, 0 for never, as requests have it.
    pub fn ttl_ms(&self, now_ms: u64) -> u64 {
        self.expires_at_ms.map_or(0, |at| at.saturating_sub(now_ms).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_kind_come_back() {
        for (key, value, expires_at_ms) in [
            (&b"user:1"[..], &b"Ada"[..], None),
            (b"", b"", Some(7)),
            (b"\xff\x00\n", b"\x80", Some(u64::MAX)),
            ("\u{1F600}\n\"".as_bytes(), b"{}", None),
        ] {
            let key = Key { key: key.into(), value: value.into(), expires_at_ms };
            let line = key.line();
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(Key::read(line.trim_ascii_end(), 6), Ok(key));
        }
        let key = Key { key: b"k".into(), value: b"v".into(), expires_at_ms: Some(10) };
        assert_eq!(key.line(), b"{\"key\":\"k\",\"value\":\"v\",\"expires_at_ms\":10}\n");
        assert_eq!((key.ttl_ms(4), key.ttl_ms(10)), (6, 1));
        assert_eq!(Key::read(&key.line(), 10), Err(NotSent::Expired));
    }

    #[test]
    fn bad_lines_are_refused_in_words() {
        for (line, part) in [
            ("{", "not JSON"),
            ("[\"a\",null,\"b\",null,1]", "an object"),
            ("{\"key\":\"a\"}", "value is missing"),
            ("{\"value\":\"a\"}", "key is missing"),
            ("{\"key\":\"a\",\"key_base64\":\"YQ==\",\"value\":\"\"}", "both"),
            ("{\"key\":\"a\",\"value_base64\":\"!\"}", "not base64"),
            ("{\"id\":1}", "unknown field"),
        ] {
            let Err(NotSent::Refused(reason)) = Key::read(line.as_bytes(), 0) else { panic!("{line}") };
            assert!(reason.contains(part), "{line}: {reason}");
        }
        let long = Key { key: vec![b'a'; KEY_BYTES_MAX + 1], value: Vec::new(), expires_at_ms: None };
        assert!(Key::read(&long.line(), 0).is_err());
    }
}
