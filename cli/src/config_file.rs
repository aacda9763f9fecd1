//! The `-config` file: `{"cache":{"max_memory":"8GiB"}}` and nothing else.
use crate::flags::parse_bytes;
use serde_json::Value;
use std::path::Path;

/// What the file says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigFile {
    /// Memory limit in bytes, when given.
    pub max_memory_bytes: Option<u64>,
}

/// Reads and checks the file.
///
/// # Errors
/// A sentence naming the file and what is wrong with it: unreadable, not JSON, an unknown key, a bad size.
pub fn load(path: &Path) -> Result<ConfigFile, String> {
    let refuse = |reason: String| format!("-config {}: {reason}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    parse(&text).map_err(refuse)
}

fn parse(text: &str) -> Result<ConfigFile, String> {
    let document: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Some(cache) = member(&document, "cache", "the file")? else { return Ok(ConfigFile::default()) };
    let Some(size) = member(cache, "max_memory", "cache")? else { return Ok(ConfigFile::default()) };
    let text = size.as_str().ok_or("cache.max_memory: not a string")?;
    let bytes = parse_bytes(text).map_err(|reason| format!("cache.max_memory: {reason}"))?;
    Ok(ConfigFile { max_memory_bytes: Some(bytes) })
}

/// The only key that the object `whole`, called `name`, may have.
fn member<'a>(whole: &'a Value, key: &str, name: &str) -> Result<Option<&'a Value>, String> {
    let object = whole.as_object().ok_or_else(|| format!("{name} is not a JSON object"))?;
    match object.keys().find(|found| found.as_str() != key) {
        Some(unknown) => Err(format!("unknown key {unknown:?} in {name}")),
        None => Ok(object.get(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_or_nothing() {
        let bytes = |text| parse(text).map(|file| file.max_memory_bytes);
        assert_eq!(bytes(r#"{"cache":{"max_memory":"8GiB"}}"#), Ok(Some(8 << 30)));
        assert_eq!(bytes(r#"{"cache":{}}"#), Ok(None));
        assert_eq!(bytes("{}"), Ok(None));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "[]",
            r#"{"cache":[]}"#,
            r#"{"cash":{}}"#,
            r#"{"cache":{"max_memory":"8GiB","relocating_eviction":true}}"#,
            r#"{"cache":{"max_memory":" "}}"#,
            r#"{"cache":{"max_memory":8}}"#,
            r#"{"cache":{"max_memory":"0"}}"#,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_file_is_named() {
        let error = load(Path::new("/no/such/file")).unwrap_err();
        assert!(error.starts_with("-config /no/such/file: "), "{error}");
    }
}
