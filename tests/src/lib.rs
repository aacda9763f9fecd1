//! Helpers of the whole-system tests: real processes, real sockets.
//!
//! A [`Server`] is one `nigh` process on a free port of the loopback interface. It is killed by its own process id
//! when the value is dropped, and by the kernel when the thread that started it dies, so no test leaves one behind.

mod access;
mod certificates;
pub mod decoders;
mod descriptors;
#[path = "../../net/tests/common/grpc.rs"]
pub mod grpc;
mod http;
mod process;
mod random;
mod small_disk;
mod stream;
mod tcp;
pub mod twin;

pub use access::{Access, Mode};
pub use certificates::{Files, signed};
pub use descriptors::room_for_connections;
pub use http::{Api, Reply};
pub use process::{Exit, Server, StartFailure, run_to_end, server_binary};
pub use random::{SplitMix, test_seed};
pub use small_disk::SmallDisk;
pub use stream::Stream;
pub use tcp::{Args, Response, Wire, frame, frame_with_token};

/// Whether the long forms of tests were asked for (`NIGH_TEST_LONG=1`).
pub fn long() -> bool {
    std::env::var("NIGH_TEST_LONG").is_ok_and(|value| value == "1")
}
