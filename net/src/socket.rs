//! Receiving and sending on a socket that the reactor watches, for front ends whose parsers read and write byte streams, in plain text or
//! over TLS.

use crate::connections;
use crate::tls::Channel;
use crate::tls::handshake::{Link, RECEIVED_AT_ONCE as HANDSHAKE_BYTES};
use crate::tls::session::Read;
use nigh_shard::reactor::Source;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, sendmsg};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::task::{Context, Poll, ready};

/// Bytes received at a time. They pass over the stack: parsers lend their own buffers as memory that may not be initialised.
const RECEIVED_AT_ONCE: usize = 64 << 10;
/// Bytes received at a time over TLS: the length of the longest record.
const RECORD_BYTES: usize = 16 << 10;
/// How many receive calls without application data are made before other tasks get a turn: records of TLS can be pure protocol messages.
const RECORDS_WITHOUT_DATA: usize = 16;

/// Pieces that one system call sends (`UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;

/// What happens while bytes are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// The client has taken so many bytes. Over TLS these are bytes of records.
    Taken(usize),
    /// The client takes nothing at the moment.
    Blocked,
}

/// A connected socket, which sends and receives in plain text until [`Socket::secure`] is called, and over TLS from then on.
pub struct Socket {
    source: Source,
    /// The TLS state; `None` for plain text. It is never borrowed across an await.
    channel: RefCell<Option<Box<Channel>>>,
}

impl Socket {
    /// A connected socket, in plain text.
    pub fn new(source: Source) -> Socket {
        Socket { source, channel: RefCell::new(None) }
    }

    /// From now on everything is encrypted.
    pub fn secure(&self, channel: Box<Channel>) {
        *self.channel.borrow_mut() = Some(channel);
    }

    /// Receives at most `room` bytes, and hands them to `take`; none are the end of the stream. Over TLS this may send as well, of which `note`
    /// is told.
    pub fn poll_receive<T>(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        note: impl Fn(Sending),
        take: impl FnOnce(&[u8]) -> T,
    ) -> Poll<io::Result<T>> {
        match &mut *self.channel.borrow_mut() {
            None => poll_receive(&self.source, cx, room.min(RECEIVED_AT_ONCE), take),
            Some(channel) => self.poll_receive_from(channel, cx, room, note, take),
        }
    }

    fn poll_receive_from<T>(
        &self,
        channel: &mut Channel,
        cx: &mut Context<'_>,
        room: usize,
        note: impl Fn(Sending),
        take: impl FnOnce(&[u8]) -> T,
    ) -> Poll<io::Result<T>> {
        let (mut take, mut taken) = (Some(take), None);
        let mut hand_over = |received: &[u8]| taken = take.take().map(|take| take(received));
        for _ in 0..RECORDS_WITHOUT_DATA {
            match channel.read(room, &mut hand_over) {
                Ok(Read::Bytes(_)) => break,
                Ok(Read::End | Read::Truncated) => {
                    // A truncated stream ends the input here; the parser reports the incomplete request.
                    hand_over(&[]);
                    break;
                }
                Ok(Read::Nothing) => {}
                Err(error) => return Poll::Ready(Err(io::Error::other(error))),
            }
            let fed = poll_receive(&self.source, cx, RECORD_BYTES, |ciphertext| {
                if ciphertext.is_empty() {
                    channel.session_mut().end_of_input();
                }
                channel.feed(ciphertext)
            });
            if fed.is_pending() {
                // The connection may be idle for long.
                channel.session_mut().shrink();
            }
            let fed = ready!(fed)?;
            // Sends alerts and key updates; what the client does not accept now goes out with the next answer.
            let _sent_later = send_outgoing(&self.source, channel, &note);
            fed.map_err(io::Error::other)?;
        }
        if let Some(taken) = taken {
            return Poll::Ready(Ok(taken));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes a part of `slices`, and says how much of it. In plain text the client has taken it then; over TLS the rest of it may have to wait for
    /// [`Self::poll_flush`]. `note` is told what the client takes.
    pub fn poll_send(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        note: impl Fn(Sending),
    ) -> Poll<io::Result<usize>> {
        let Some(channel) = &mut *self.channel.borrow_mut() else {
            let sent = ready!(poll_send(&self.source, cx, slices, || note(Sending::Blocked)))?;
            note(Sending::Taken(sent));
            return Poll::Ready(Ok(sent));
        };
        ready!(poll_outgoing(&self.source, channel, cx, &note))?;
        let taken = channel.session_mut().write(slices);
        if taken == 0 && slices.iter().any(|slice| !slice.is_empty()) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        // What the client does not take now is sent before the next bytes, or by a flush.
        match poll_outgoing(&self.source, channel, cx, &note) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(taken)),
        }
    }

    /// Waits until the client has taken everything.
    pub fn poll_flush(&self, cx: &mut Context<'_>, note: impl Fn(Sending)) -> Poll<io::Result<()>> {
        match &mut *self.channel.borrow_mut() {
            None => Poll::Ready(Ok(())),
            Some(channel) => poll_outgoing(&self.source, channel, cx, &note),
        }
    }

    /// Sends these few bytes if the client takes them at the moment.
    pub fn send_now(&self, bytes: &[u8]) {
        match &mut *self.channel.borrow_mut() {
            None => {
                let _sent = rustix::net::send(&self.source, bytes, SendFlags::NOSIGNAL);
            }
            Some(channel) => {
                channel.session_mut().write(&[IoSlice::new(bytes)]);
                let _sent = send_outgoing(&self.source, channel, &|_| {});
            }
        }
    }

    /// Whether something has come from the client, or its end. This makes a system call.
    pub fn has_arrived(&self) -> bool {
        let is_readable = self.channel.borrow().as_ref().is_some_and(|channel| channel.is_readable());
        is_readable || connections::has_arrived(&self.source)
    }

    /// Ends the stream in one or both directions.
    pub fn shutdown(&self, how: Shutdown) {
        if how != Shutdown::Read
            && let Ok(mut channel) = self.channel.try_borrow_mut()
            && let Some(channel) = &mut *channel
        {
            channel.session_mut().send_close_notify();
            let _sent = send_outgoing(&self.source, channel, &|_| {});
        }
        connections::shutdown(&self.source, how);
    }

    /// Reads and throws away what the client still sends, until it ends its stream or fails.
    pub async fn discard(&self) {
        connections::discard(&self.source).await;
    }
}

impl Link for Socket {
    async fn receive(&self, into: &mut Vec<u8>) -> io::Result<()> {
        poll_fn(|cx| {
            poll_receive(&self.source, cx, HANDSHAKE_BYTES, |received| into.extend_from_slice(received))
        })
        .await
    }

    async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let sent = poll_fn(|cx| poll_send(&self.source, cx, &[IoSlice::new(rest)], || {})).await?;
            rest = &rest[sent..];
        }
        Ok(())
    }
}

/// Receives at most `room` bytes, of which the stack has room for [`RECEIVED_AT_ONCE`].
fn poll_receive<T>(
    source: &Source,
    cx: &mut Context<'_>,
    room: usize,
    take: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<T>> {
    let mut space = [const { MaybeUninit::uninit() }; RECEIVED_AT_ONCE];
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

/// Sends a part of `slices`, and says how much of it.
fn poll_send(
    source: &Source,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
    blocked: impl Fn(),
) -> Poll<io::Result<usize>> {
    loop {
        ready!(source.poll_writable(cx));
        match send(source, slices) {
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

/// Sends all that a channel has to send.
fn poll_outgoing(
    source: &Source,
    channel: &mut Channel,
    cx: &mut Context<'_>,
    note: &impl Fn(Sending),
) -> Poll<io::Result<()>> {
    while channel.session().wants_write() {
        if source.poll_writable(cx).is_pending() {
            // Also where an earlier call has met this: bytes that were taken from the caller since do not mean that the client takes any.
            note(Sending::Blocked);
            return Poll::Pending;
        }
        match send_outgoing(source, channel, note) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => source.clear_writable(),
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Ready(Ok(()))
}

/// Sends what a channel has to send, as far as the client takes it now.
fn send_outgoing(source: &Source, channel: &mut Channel, note: &impl Fn(Sending)) -> io::Result<()> {
    while channel.session().wants_write() {
        let sent = channel.session_mut().outgoing(|slices| Ok(send(source, slices)?));
        match sent {
            Ok(bytes) => note(Sending::Taken(bytes)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn send(source: &Source, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
    // The kernel takes at most so many; the caller sees how much was taken.
    let slices = &slices[..slices.len().min(SLICES_MAX)];
    sendmsg(source, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
}
