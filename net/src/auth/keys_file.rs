//! The API key file: a JSON array with one record for each key.
//!
//! A record has `token`, or `token_digest` and `fingerprint`, and it has `tenant`, `scopes` and `cert_cn`. `token` is the secret in plain text, as in files
//! that are written by hand. This server never writes it: when it changes the file, it replaces `token` by the other two. A record may also have
//! limits: `requests_per_second`, `bytes_per_second` and `connections`, which are positive integers; absent, null or 0 = no limit. Unknown members
//! of a record are preserved.

use super::key_limits::KeyLimits;
use super::scope::Scope;
use super::secret::{SecretDigest, hex, listed_fingerprint, unhex};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Bytes of a token at most. Over the binary protocol a token has at most 255.
pub const TOKEN_MAX_BYTES: usize = 4096;
/// Keys of a file at most.
pub const KEYS_MAX: usize = 65_536;
/// Bytes of a file at most.
pub const FILE_MAX_BYTES: u64 = 16 << 20;

/// One key.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Knows the token; `None` if a client certificate alone stands for the key.
    pub digest: Option<SecretDigest>,
    /// The beginning of the plain digest of the token, by which the interface lists keys.
    pub fingerprint: [u8; 8],
    /// Whose collections the key is for; `*` = everybody's.
    pub tenant: String,
    /// What it may do, as it was written. A text that is no scope allows nothing.
    pub scopes: Vec<String>,
    /// The common name of a client certificate that stands for the key; empty = none.
    pub cert_cn: String,
    /// How much may be asked of the server with the API key.
    pub limits: KeyLimits,
    /// What else the record has.
    rest: Map<String, Value>,
}

impl Key {
    /// A key for this token. What is no scope among `scopes` allows nothing.
    pub fn new(token: &[u8], tenant: &str, scopes: Vec<String>, cert_cn: &str) -> Key {
        Key {
            digest: (!token.is_empty()).then(|| SecretDigest::of(token)),
            fingerprint: listed_fingerprint(token),
            tenant: tenant.to_owned(),
            scopes,
            cert_cn: cert_cn.to_owned(),
            limits: KeyLimits::default(),
            rest: Map::new(),
        }
    }

    /// The same API key with these limits.
    pub fn with_limits(self, limits: KeyLimits) -> Key {
        Key { limits, ..self }
    }

    /// What it may do.
    pub fn allowed(&self) -> Vec<Scope> {
        self.scopes.iter().filter_map(|scope| Scope::parse(scope).ok()).collect()
    }

    /// Whether `token` is the token of this API key.
    pub fn is_of(&self, token: &[u8]) -> bool {
        self.digest.as_ref().is_some_and(|digest| digest.is_of(token))
    }

    /// Reads a record.
    fn read(mut record: Map<String, Value>) -> Result<Key, String> {
        let mut text = |key: &str| match record.remove(key) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(format!("{key} must be a string")),
        };
        let (token, digest, fingerprint) = (text("token")?, text("token_digest")?, text("fingerprint")?);
        let (tenant, cert_cn) = (text("tenant")?, text("cert_cn")?);
        if token.len() > TOKEN_MAX_BYTES {
            return Err(format!("token has {} bytes; at most {TOKEN_MAX_BYTES} are allowed", token.len()));
        }
        let mut scopes = strings(&mut record, "scopes")?;
        let permissions = strings(&mut record, "permissions")?;
        if scopes.is_empty() {
            for permission in permissions {
                scopes.extend(match permission.as_str() {
                    "read" => vec!["read:*".to_owned()],
                    "write" => vec!["read:*".to_owned(), "write:*".to_owned()],
                    "admin" => vec!["*:*".to_owned()],
                    _ => return Err(format!("permissions: {permission:?} is none of read, write and admin")),
                });
            }
        }
        let limits = KeyLimits::from_named(|name| limit(&mut record, name))?;
        limits.check()?;
        let mut key = Key::new(token.as_bytes(), &tenant, scopes, &cert_cn).with_limits(limits);
        if token.is_empty() && !digest.is_empty() {
            let digest = SecretDigest::from_text(&digest);
            key.digest = Some(
                digest
                    .ok_or("token_digest must be sha256:<32 hexadecimal digits>:<64 hexadecimal digits>")?,
            );
            key.fingerprint = unhex(&fingerprint).ok_or(
                "fingerprint must be 16 hexadecimal digits, the first of the SHA-256 digest of the token",
            )?;
        }
        if key.digest.is_none() && key.cert_cn.is_empty() {
            return Err("it must have a token, a token_digest or a cert_cn".to_owned());
        }
        key.rest = record;
        Ok(key)
    }

    /// The record as it is written.
    fn record(&self) -> Value {
        let mut record = Map::new();
        if let Some(digest) = &self.digest {
            record.insert("token_digest".to_owned(), digest.to_text().into());
            record.insert("fingerprint".to_owned(), hex(&self.fingerprint).into());
        }
        record.insert("tenant".to_owned(), self.tenant.as_str().into());
        record.insert("scopes".to_owned(), self.scopes.as_slice().into());
        if !self.cert_cn.is_empty() {
            record.insert("cert_cn".to_owned(), self.cert_cn.as_str().into());
        }
        for (name, limit) in self.limits.named() {
            if limit > 0 {
                record.insert(name.to_owned(), limit.into());
            }
        }
        for (key, value) in &self.rest {
            record.entry(key).or_insert_with(|| value.clone());
        }
        record.into()
    }
}

/// Takes a limit out of a record; 0 if it is absent or null.
fn limit(record: &mut Map<String, Value>, name: &str) -> Result<u64, String> {
    match record.remove(name) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => value
            .as_u64()
            .ok_or_else(|| format!("{name} must be a positive integer without quotes, or 0 for no limit")),
    }
}

/// Takes an array of strings out of a record; empty if it is absent or null.
fn strings(record: &mut Map<String, Value>, key: &str) -> Result<Vec<String>, String> {
    let refused = || format!("{key} must be an array of strings");
    match record.remove(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => {
            let text = |item| if let Value::String(text) = item { Ok(text) } else { Err(refused()) };
            items.into_iter().map(text).collect()
        }
        Some(_) => Err(refused()),
    }
}

/// What a file says.
#[derive(Debug, Default, PartialEq)]
pub struct KeysFile {
    /// The keys, in the order of the file. Of several with one token only the last is there.
    pub keys: Vec<Key>,
    /// What is allowed in a file and probably not meant, each as a sentence.
    pub warnings: Vec<String>,
}

/// Reads the text of a file. One without any text has no keys.
///
/// # Errors
/// It is not a JSON array of records, in a sentence that names the record.
pub fn read(text: &[u8]) -> Result<KeysFile, String> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(KeysFile::default());
    }
    let records: Value = serde_json::from_slice(text).map_err(|error| format!("it is not JSON: {error}"))?;
    let Value::Array(records) = records else {
        return Err("it must be a JSON array of records".to_owned());
    };
    if records.len() > KEYS_MAX {
        return Err(format!("it has {} records; at most {KEYS_MAX} are allowed", records.len()));
    }
    let (mut file, mut places): (KeysFile, HashMap<String, usize>) = Default::default();
    for (index, record) in records.into_iter().enumerate() {
        let Value::Object(record) = record else {
            return Err(format!("record {index} must be an object"));
        };
        // The secret itself is not kept.
        let token =
            record.get("token").and_then(Value::as_str).filter(|token| !token.is_empty()).map(str::to_owned);
        let key = Key::read(record).map_err(|reason| format!("record {index}: {reason}"))?;
        for name in key.rest.keys() {
            // They are kept, because other programs may need them. Most are misspelt, such as a limit that limits nothing.
            file.warnings.push(format!("record {index} has the unknown field {name:?}, which has no effect"));
        }
        if key.scopes.is_empty() {
            file.warnings.push(format!("record {index} has no scopes, so that its API key allows nothing"));
        }
        for scope in &key.scopes {
            if let Err(reason) = Scope::parse(scope) {
                file.warnings.push(format!("record {index}: {reason}; it allows nothing"));
            }
        }
        if let Some(earlier) = token.and_then(|token| places.insert(token, index)) {
            file.warnings
                .push(format!("record {index} has the token of record {earlier} and takes its place"));
            file.keys.retain(|other| other.fingerprint != key.fingerprint);
        }
        file.keys.push(key);
    }
    Ok(file)
}

/// The text of a file with these keys.
pub fn write(keys: &[&Key]) -> Vec<u8> {
    let records: Value = keys.iter().map(|key| key.record()).collect();
    let mut text = format!("{records:#}").into_bytes();
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<Key> {
        read(text.as_bytes()).unwrap().keys
    }

    #[test]
    fn records_of_the_interface_are_read() {
        let text = r#"[
            {"token": "one", "tenant": "acme", "scopes": ["read:acme/*", "write:acme/docs"], "cert_cn": "worker", "note": {"by": "ann"}},
            {"token": "two", "tenant": "*", "permissions": ["write"]},
            {"token": "three", "permissions": ["admin"], "scopes": ["read:*"]},
            {"token": "four", "permissions": ["read", "admin"], "scopes": null},
            {"cert_cn": "edge", "scopes": []}]"#;
        let keys = keys(text);
        let scopes: Vec<Vec<&str>> =
            keys.iter().map(|key| key.scopes.iter().map(String::as_str).collect()).collect();
        assert_eq!(scopes[0], ["read:acme/*", "write:acme/docs"]);
        assert_eq!(scopes[1..], [vec!["read:*", "write:*"], vec!["read:*"], vec!["read:*", "*:*"], vec![]]);
        assert!(keys[0].is_of(b"one") && !keys[0].is_of(b"two") && !keys[4].is_of(b""));
        assert_eq!((keys[0].tenant.as_str(), keys[0].cert_cn.as_str()), ("acme", "worker"));
        for empty in ["", " \n", "[]"] {
            assert_eq!(read(empty.as_bytes()), Ok(KeysFile::default()));
        }
    }

    #[test]
    fn what_is_written_has_no_secret_and_reads_the_same() {
        let text = r#"[{"token": "s3cret", "tenant": "acme", "scopes": ["read:acme/*", "nonsense"], "note": [1]}, {"cert_cn": "edge"}]"#;
        let before = keys(text);
        let written = String::from_utf8(write(&before.iter().collect::<Vec<_>>())).unwrap();
        assert!(!written.contains("s3cret"), "{written}");
        assert!(written.contains("\n  {\n    \""), "it is indented by two: {written}");
        let after = keys(&written);
        assert_eq!(after, before);
        assert!(after[0].is_of(b"s3cret"));
        assert_eq!(keys(&String::from_utf8(write(&after.iter().collect::<Vec<_>>())).unwrap()), before);
    }

    #[test]
    fn limits_are_read_and_written() {
        let text = r#"[{"token": "a", "requests_per_second": 100, "bytes_per_second": 1000000, "connections": 4},
            {"token": "b", "requests_per_second": 0, "connections": null}, {"token": "c", "bytes_per_second": 7}]"#;
        let before = keys(text);
        let all = KeyLimits { requests_per_second: 100, bytes_per_second: 1_000_000, connections: 4 };
        let bytes = KeyLimits { bytes_per_second: 7, ..KeyLimits::default() };
        let limits = |keys: &[Key]| keys.iter().map(|key| key.limits).collect::<Vec<_>>();
        assert_eq!(limits(&before), [all, KeyLimits::default(), bytes]);
        let written = String::from_utf8(write(&before.iter().collect::<Vec<_>>())).unwrap();
        assert_eq!(keys(&written), before);
        // A limit of 0 has no member.
        let members: Vec<_> = ["requests_per_second", "bytes_per_second", "connections"].to_vec();
        let counts: Vec<_> = members.iter().map(|name| written.matches(name).count()).collect();
        assert_eq!(counts, [1, 2, 1], "{written}");
    }

    #[test]
    fn what_is_not_meant_is_told() {
        let file = read(
            br#"[{"token": "a", "scopes": ["reads:*"]}, {"token": "b", "scopes": ["read:*"], "request_per_second": 1},
            {"token": "a", "tenant": "x"}]"#,
        )
        .unwrap();
        assert_eq!(file.keys.len(), 2);
        assert!(file.keys[1].is_of(b"a") && file.keys[1].tenant == "x" && file.keys[1].allowed().is_empty());
        assert!(file.warnings[0].starts_with("record 0: \"reads:*\" is not a scope"), "{:?}", file.warnings);
        let others = [
            "record 1 has the unknown field \"request_per_second\", which has no effect",
            "record 2 has no scopes, so that its API key allows nothing",
            "record 2 has the token of record 0 and takes its place",
        ];
        assert_eq!(file.warnings[1..], others);
    }

    #[test]
    fn refusals_name_the_record() {
        for (text, reason) in [
            ("{", "it is not JSON"),
            ("{}", "it must be a JSON array of records"),
            ("[1]", "record 0 must be an object"),
            (r#"[{"token": "a"}, {"token": 1}]"#, "record 1: token must be a string"),
            (r#"[{"token": "a", "tenant": []}]"#, "record 0: tenant must be a string"),
            (r#"[{"token": "a", "scopes": "read:*"}]"#, "record 0: scopes must be an array of strings"),
            (r#"[{"token": "a", "scopes": [1]}]"#, "record 0: scopes must be an array of strings"),
            (
                r#"[{"token": "a", "permissions": ["own"]}]"#,
                "record 0: permissions: \"own\" is none of read, write and admin",
            ),
            (r#"[{"tenant": "a"}]"#, "record 0: it must have a token, a token_digest or a cert_cn"),
            (
                r#"[{"token": "a", "requests_per_second": "100"}]"#,
                "record 0: requests_per_second must be a positive integer without quotes",
            ),
            (r#"[{"token": "a", "connections": -1}]"#, "record 0: connections must be a positive integer"),
            (r#"[{"token": "a", "connections": 1.5}]"#, "record 0: connections must be a positive integer"),
            (
                r#"[{"token": "a", "bytes_per_second": 1000000000001}]"#,
                "record 0: bytes_per_second is 1000000000001; it must be between 1 and 1000000000000",
            ),
            (r#"[{"token_digest": "x"}]"#, "record 0: token_digest must be"),
            (r#"[{"token_digest": "sha256:00:00"}]"#, "record 0: token_digest must be"),
        ] {
            let refusal = read(text.as_bytes()).unwrap_err();
            assert!(refusal.contains(reason), "{text}: {refusal}");
        }
        let digest = SecretDigest::of(b"a").to_text();
        let text = format!(r#"[{{"token_digest": "{digest}", "fingerprint": "12"}}]"#);
        assert!(read(text.as_bytes()).unwrap_err().contains("fingerprint must be 16 hexadecimal digits"));
        let long = format!(r#"[{{"token": "{}"}}]"#, "x".repeat(TOKEN_MAX_BYTES + 1));
        assert!(read(long.as_bytes()).unwrap_err().contains("token has 4097 bytes; at most 4096"));
    }
}
