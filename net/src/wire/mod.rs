//! What codecs share: values, filters, configurations and reports of searches as JSON, the decoding of typed JSON, messages of protocol buffers, floats, cursors and pages. The binary protocol
//! carries payloads, filters and configurations as JSON as well.

pub mod config;
pub mod config_change;
pub mod cursors;
pub mod embedded;
pub mod explain;
pub mod filter;
pub mod floats;
pub mod ids;
pub mod info;
pub mod json;
pub mod order;
pub mod paging;
pub mod payloads;
pub mod plain;
pub mod proto;
pub mod query;
pub mod search_options;
pub mod value;
