//! Receiving and sending on a socket that the reactor watches, for front ends whose parsers read and write byte streams.

use nigh_shard::reactor::Source;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::task::{Context, Poll, ready};

/// Bytes received at a time. They pass over the stack: parsers lend their own buffers as memory that may not be initialised.
const RECEIVED_AT_ONCE: usize = 64 << 10;

/// Pieces that one system call sends (`UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;

/// Receives at most `room` bytes, and hands them to `take`; none are the end of the stream.
pub fn poll_receive<T>(
    source: &Source,
    cx: &mut Context<'_>,
    room: usize,
    take: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<T>> {
    let mut space = [const { MaybeUninit::uninit() }; RECEIVED_AT_ONCE];
    let room = room.min(RECEIVED_AT_ONCE);
    loop {
        ready!(source.poll_readable(cx));
        match rustix::net::recv(source, &mut space[..room], RecvFlags::empty()) {
            Ok(((received, _), bytes)) => {
                // Nothing was left behind; if more came since, its edge is still to be reported. The end stays readable.
                if 0 < bytes && bytes < room {
                    source.clear_readable();
                }
                return Poll::Ready(Ok(take(received)));
            }
            Err(Errno::WOULDBLOCK) => source.clear_readable(),
            Err(Errno::INTR) => {}
            Err(error) => return Poll::Ready(Err(error.into())),
        }
    }
}

/// Sends a part of `slices`, and says how much of it. Calls `blocked` each time the client takes nothing at the moment.
pub fn poll_send(
    source: &Source,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
    blocked: impl Fn(),
) -> Poll<io::Result<usize>> {
    // The kernel takes at most so many; the caller sees how much was taken.
    let slices = &slices[..slices.len().min(SLICES_MAX)];
    loop {
        ready!(source.poll_writable(cx));
        match sendmsg(source, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL) {
            Ok(bytes) => return Poll::Ready(Ok(bytes)),
            Err(Errno::WOULDBLOCK) => {
                blocked();
                source.clear_writable();
            }
            Err(Errno::INTR) => {}
            Err(error) => return Poll::Ready(Err(error.into())),
        }
    }
}
