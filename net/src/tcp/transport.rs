//! What carries the bytes of a connection: sockets that tell when they are ready.
//!
//! Nothing above knows how bytes come and go; the other [`Transport`] is in `completion`.

use crate::connections::{self, has_arrived};
use crate::metrics::Telemetry;
use crate::tcp::counters::Count;
use crate::tls::handshake::Handshakes;
use nigh_shard::reactor::Source;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, sendmsg};
use std::future::Future;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
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

/// Why a connection could not be made secure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insecure {
    /// The client does not speak TLS.
    Plain,
    /// The handshake failed.
    Failed,
}

/// Bytes to be sent that belong to somebody else, such as the records of a TLS session.
pub trait Outgoing {
    /// Whether there are any.
    fn are_there(&self) -> bool;
    /// Calls `put` once with up to 64 slices of them, and drops as many bytes as it says it has taken. An error of `put` is returned and drops
    /// nothing.
    ///
    /// # Errors
    /// `put` has failed, or has taken nothing (`WriteZero`).
    fn hand_out(&self, put: &mut dyn FnMut(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<usize>;
}

/// The bytes of one connection, in both directions.
pub trait Transport: 'static {
    /// Ready when receiving may make progress.
    fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<()>;
    /// Whether the kernel has something from the client, be it that nobody has been told yet. Costs a system call.
    fn has_arrived(&self) -> bool;
    /// Makes the connection secure, where connections are, before anything is received. Returns the common name in the certificate of the
    /// client, if it has shown one.
    ///
    /// # Errors
    /// The client has been told what went wrong, as far as there are words for it.
    fn secure(
        &self,
        _handshakes: &Handshakes,
        _second_us: u64,
    ) -> impl Future<Output = Result<Option<String>, Insecure>> {
        std::future::ready(Ok(None))
    }
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
    /// Tells the client that nothing more will be sent, or what was wrong, where the transport has words for it.
    fn end(&self) -> impl Future<Output = ()> {
        std::future::ready(())
    }
    /// Says that nothing more will be sent, and reads on until the client ends its half: closing with unread bytes would
    /// reset the connection, and the reset could overtake the last response.
    fn finish(&self) -> impl Future<Output = ()>;
}

/// A transport under another one, such as TLS.
pub trait Carrier: Transport {
    /// Sends all that `outgoing` has; `blocked` as in [`Transport::send`].
    ///
    /// # Errors
    /// The connection is broken.
    fn send_from(
        &self,
        outgoing: &impl Outgoing,
        blocked: impl Fn(bool),
    ) -> impl Future<Output = io::Result<()>>;
}

/// Bytes received at a time: copying more takes longer than others should wait.
const RECEIVE_CALL_BYTES_MAX: usize = 256 << 10;
/// Bytes received at a time of a frame for which there is more room than that. They pass over the stack.
const PIECE_BYTES: usize = 64 << 10;

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
            let room = into.spare_capacity_mut().len();
            let (received, len) = match room > RECEIVE_CALL_BYTES_MAX {
                false => {
                    let received = rustix::net::recv(&self.source, spare_capacity(into), RecvFlags::empty());
                    (received.map(|(_, bytes)| bytes), room)
                }
                true => {
                    let mut piece = [const { MaybeUninit::uninit() }; PIECE_BYTES];
                    let received = rustix::net::recv(&self.source, &mut piece, RecvFlags::empty());
                    let received = received.map(|((received, _), bytes)| {
                        into.extend_from_slice(received);
                        bytes
                    });
                    (received, PIECE_BYTES)
                }
            };
            self.count(Count::Receives, 1);
            match received {
                Ok(0) => return Ok(Arrival::End),
                Ok(bytes) => {
                    let more = bytes == len;
                    if !more {
                        // Nothing was left behind; if more came since, its edge is still to be reported.
                        self.source.clear_readable();
                    }
                    self.count(Count::BytesReceived, bytes as u64);
                    return Ok(Arrival::Bytes { more });
                }
                Err(Errno::WOULDBLOCK) => {
                    self.source.clear_readable();
                    return Ok(Arrival::Nothing);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn send(&self, bytes: &[u8], blocked: impl Fn(bool)) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            std::future::poll_fn(|cx| self.source.poll_writable(cx)).await;
            let sent = rustix::net::send(&self.source, rest, SendFlags::NOSIGNAL);
            self.count(Count::Sends, 1);
            match sent {
                Ok(bytes) => {
                    self.count(Count::BytesSent, bytes as u64);
                    rest = &rest[bytes..];
                    blocked(false);
                }
                Err(Errno::WOULDBLOCK) => {
                    blocked(true);
                    self.source.clear_writable();
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn shutdown(&self) {
        connections::shutdown(&self.source, Shutdown::Both);
    }

    async fn finish(&self) {
        connections::shutdown(&self.source, Shutdown::Write);
        connections::discard(&self.source).await;
    }
}

impl Carrier for Readiness {
    async fn send_from(&self, outgoing: &impl Outgoing, blocked: impl Fn(bool)) -> io::Result<()> {
        while outgoing.are_there() {
            std::future::poll_fn(|cx| self.source.poll_writable(cx)).await;
            let sent = outgoing.hand_out(&mut |slices| {
                Ok(sendmsg(&self.source, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
            });
            self.count(Count::Sends, 1);
            match sent {
                Ok(bytes) => {
                    self.count(Count::BytesSent, bytes as u64);
                    blocked(false);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    blocked(true);
                    self.source.clear_writable();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
