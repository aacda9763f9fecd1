//! Payload: values and the compact immutable rows that hold them.
//!
//! A point's payload is a flat map from key to [`Value`]; every key may carry its own absolute deadline. In memory, in
//! the log, in checkpoints and between nodes the map is one encoded *row*, written once by [`RowBuilder`] and never
//! changed: an edit builds a new row and publishes its pointer. [`PayloadRow`] reads a row in place.
//!
//! `index` keeps, per collection, which slots hold which value.
//!
//! Empty bytes are the empty row everywhere, so a point without payload costs nothing.
//!
//! `row.fbs` beside this file documents the bytes as a flatbuffers schema and the rules by which they may grow.

pub(crate) mod index;
mod json;
mod record;
mod row;
mod row_builder;
mod row_layout;
mod row_tokens;
mod token_codes;
mod value;
pub(crate) mod words;

#[cfg(test)]
mod json_tests;
#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod row_tests;
#[cfg(test)]
mod token_codes_tests;

pub use json::{Elements, Json, JsonError, JsonLimits, Marks};
pub use record::{Operated, operate};
pub use row::{PayloadFormat, PayloadRow, RowEntry, RowError};
pub use row_builder::{RowBuilder, bytes_without_tokens, narrowed, only_id, without_tokens};
pub use row_tokens::RowTokens;
pub use token_codes::{Rotation, TokenCode, TokenCodes};
pub use value::{FloatArray, IntArray, JsonRef, Kind, StrArray, Value, ValueRef};

/// Reserved key that holds the document text. An ordinary entry in the row; when its kind is `string` it is the content.
pub const CONTENT_KEY: &str = "$content";
