//! Payload: tagged values and the compact immutable rows that hold them.
mod row;
mod value;
pub use row::{PayloadRow, RowBuilder, RowError};
pub use value::{Value, ValueRef};
/// Reserved key that holds the document text.
pub const CONTENT_KEY: &str = "$content";
