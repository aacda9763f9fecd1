//! How the client subcommands reach servers, over TLS or in plain text: flags, connections, and sentences about what failed.
pub mod connector;
pub mod explain;
pub mod flags;
pub mod roots;
pub mod stream;
#[cfg(test)]
pub mod tests;
