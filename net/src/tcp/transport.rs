//! What carries the bytes of a connection: sockets that tell when they are ready.
//!
//! Nothing above knows how bytes come and go; the other [`Transport`] is in `completion`.

use crate::connections::{self, has_arrived};
use crate::metrics::Telemetry;
use crate::tcp::counters::Count;
use nigh_shard::reactor::Source;
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::task::{Context, Poll};

/// What [`Transport::receive`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Bytes were appended; `more` may be there.
    Bytes {
        /// Whether to receive again without waiting.
        more: bool,
    },
    /// Nothing is there.
    Nothing,
    /// The client sends no more.
    End,
}

/// The bytes of one connection, in both directions.
pub trait Transport: 'static {
    /// Ready when receiving may make progress.
    fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<()>;
    /// Whether the kernel has something from the client, be it that nobody has been told yet. Costs a system call.
    fn has_arrived(&self) -> bool;
    /// Appends what has arrived to `into`, as much as its spare room (at least a byte) holds. Never waits.
    ///
    /// # Errors
    /// The connection is broken.
    fn receive(&self, into: &mut Vec<u8>) -> io::Result<Arrival>;
    /// Sends all of `bytes`; `blocked` is told whenever the client takes none, and when it does again.
    ///
    /// # Errors
    /// The connection is broken.
    fn send(&self, bytes: &[u8], blocked: impl Fn(bool)) -> impl Future<Output = io::Result<()>>;
    /// Ends the stream in both directions: whoever waits for it sees its end.
    fn shutdown(&self);
    /// Says that nothing more will be sent, and reads on until the client ends its half: closing with unread bytes would
    /// reset the connection, and the reset could overtake the last response.
    fn finish(&self) -> impl Future<Output = ()>;
}

/// Bytes received at a time: copying more takes longer than others should wait.
const RECEIVE_CALL_BYTES_MAX: usize = 256 << 10;

/// A socket of the core's reactor. Calls and bytes are counted on that core.
pub struct Readiness {
    source: Source,
    telemetry: Arc<Telemetry>,
    core: usize,
}

impl Readiness {
    /// A connected socket of core `core`.
    pub fn new(source: Source, telemetry: Arc<Telemetry>, core: usize) -> Readiness {
        Readiness { source, telemetry, core }
    }

    fn count(&self, count: Count, amount: u64) {
        self.telemetry.tcp.add(self.core, count, amount);
    }
}

impl Transport for Readiness {
    fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.source.poll_readable(cx)
    }

    fn has_arrived(&self) -> bool {
        has_arrived(&self.source)
    }

    fn receive(&self, into: &mut Vec<u8>) -> io::Result<Arrival> {
        loop {
            let room = into.spare_capacity_mut();
            let len = room.len().min(RECEIVE_CALL_BYTES_MAX);
            // SAFETY: `room` is writable memory of at least that length, borrowed for the call, of which nothing is read; the
            // descriptor lives in the source.
            let got = unsafe { libc::recv(self.source.as_raw_fd(), room.as_mut_ptr().cast(), len, 0) };
            self.count(Count::Receives, 1);
            if got > 0 {
                let more = got as usize == len;
                if !more {
                    // Nothing was left behind; if more came since, its edge is still to be reported.
                    self.source.clear_readable();
                }
                self.count(Count::BytesReceived, got as u64);
                // SAFETY: recv has initialised the first `got` bytes of the spare room.
                unsafe { into.set_len(into.len() + got as usize) };
                return Ok(Arrival::Bytes { more });
            }
            if got == 0 {
                return Ok(Arrival::End);
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => {
                    self.source.clear_readable();
                    return Ok(Arrival::Nothing);
                }
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
    }

    async fn send(&self, bytes: &[u8], blocked: impl Fn(bool)) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            std::future::poll_fn(|cx| self.source.poll_writable(cx)).await;
            // SAFETY: the slice is borrowed for the call, which only reads it; the descriptor lives in the source.
            let sent = unsafe {
                libc::send(self.source.as_raw_fd(), rest.as_ptr().cast(), rest.len(), libc::MSG_NOSIGNAL)
            };
            self.count(Count::Sends, 1);
            if sent >= 0 {
                self.count(Count::BytesSent, sent as u64);
                rest = &rest[sent as usize..];
                blocked(false);
                continue;
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => {
                    blocked(true);
                    self.source.clear_writable();
                }
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
        Ok(())
    }

    fn shutdown(&self) {
        connections::shutdown(&self.source, libc::SHUT_RDWR);
    }

    async fn finish(&self) {
        connections::shutdown(&self.source, libc::SHUT_WR);
        connections::discard(&self.source).await;
    }
}
