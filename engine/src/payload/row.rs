//! Immutable payload rows: flatbuffers, sorted by key, verified when they come from outside.
use super::{Value, ValueRef};
/// Why bytes are not a payload row.
#[derive(Debug, thiserror::Error)]
#[error("corrupt payload row: {0}")]
pub struct RowError(pub String);
/// Collects entries and encodes one row.
#[derive(Default)]
pub struct RowBuilder {}
impl RowBuilder {
    /// Empty.
    pub fn new() -> Self {
        todo!()
    }
    /// Sets `key` (last wins); `deadline_ms` 0 = none, else absolute Unix milliseconds at which the key expires.
    pub fn set(&mut self, key: &str, value: Value, deadline_ms: u64) {
        let _ = (key, value, deadline_ms);
        todo!()
    }
    /// No key set.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
    /// The encoded row.
    pub fn finish(self) -> Vec<u8> {
        todo!()
    }
}
/// A view on an encoded row.
#[derive(Clone, Copy, Debug)]
pub struct PayloadRow<'a> {
    _b: &'a [u8],
}
impl<'a> PayloadRow<'a> {
    /// Checks every offset once; use on bytes from disk or network.
    pub fn verify(bytes: &'a [u8]) -> Result<Self, RowError> {
        let _ = bytes;
        todo!()
    }
    /// A row this process built or verified before.
    pub fn trusted(bytes: &'a [u8]) -> Self {
        Self { _b: bytes }
    }
    /// Value of `key` if present and not expired at `now_ms` (binary search).
    pub fn get(&self, key: &str, now_ms: u64) -> Option<ValueRef<'a>> {
        let _ = (key, now_ms);
        todo!()
    }
    /// All live entries in key order, `$content` included.
    pub fn entries(&self, now_ms: u64) -> impl Iterator<Item = (&'a str, ValueRef<'a>)> + use<'a> {
        let _ = now_ms;
        std::iter::empty()
    }
}
