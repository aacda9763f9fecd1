//! Carrying out requests, by what they are about. Each appends its responses, whatever happens.

pub mod key_lists;
pub mod keys;
pub mod kv_query;
pub mod process;
pub mod upserts;
pub mod vector;
