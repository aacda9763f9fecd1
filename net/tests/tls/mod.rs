//! TLS: its configuration and sessions in memory, and whole servers over it.
mod authority;
mod config;
mod session;
