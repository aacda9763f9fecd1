//! From the words of a line to the arguments of an operation: numbers, and bytes behind their lengths.
use super::context::CommandError;
use super::words::quoted;

/// A number in a word.
pub fn number<T: std::str::FromStr>(word: &[u8], what: &str) -> Result<T, CommandError> {
    let parsed = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| CommandError::Usage(format!("{what} is {}", quoted(word))))
}

/// A time to live in the word at `index`; without that word, for ever.
pub fn ttl_of(words: &[Vec<u8>], index: usize) -> Result<u64, CommandError> {
    words.get(index).map_or(Ok(0), |word| number(word, "not a time to live in milliseconds:"))
}

/// A key that a request can carry.
pub fn check_key(key: &[u8]) -> Result<&[u8], CommandError> {
    match key.len() <= usize::from(u16::MAX) {
        true => Ok(key),
        false => Err(CommandError::Usage("a key has at most 65,535 bytes".into())),
    }
}

/// `s16` bytes, whose length has been checked.
pub fn put_key(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    out.extend_from_slice(key);
}

/// `s8` bytes, whose length has been checked.
pub fn put_name(out: &mut Vec<u8>, name: &[u8]) {
    out.push(name.len() as u8);
    out.extend_from_slice(name);
}

/// `s32` bytes; a line has no more than that can say.
pub fn put_block(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}
