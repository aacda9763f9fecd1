//! TLS: its configuration and sessions in memory, and whole servers over it.
mod authority;
mod bridge;
mod config;
mod servers;
mod session;
