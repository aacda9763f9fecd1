//! The binary protocol over real sockets: what clients send, byte by byte, and what they read.

mod access;
mod common;
mod crowd;
mod fair;
mod framing;
mod golden;
mod keys;
mod order;
mod queries;
mod records;
mod stages;
mod stop;
mod twin;

use common::{guarded_server, hex, server};

/// `tests/tcp_completion` has the other.
const LOOPS: &str = "-epoll=true";
