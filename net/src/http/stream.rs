//! A connection's socket as hyper's byte stream.

use super::connection::Connection;
use super::refusal::Refusal;
use hyper::rt::{Read, ReadBufCursor, Write};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, sendmsg};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Pieces that one system call sends (`UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;

/// Bytes received at a time. They pass over the stack: the parser lends its own buffer as memory that may not be initialised.
const RECEIVED_AT_ONCE: usize = 64 << 10;

/// See the module.
pub struct Stream(pub Rc<Connection>);

impl Stream {
    /// Answers what the parser does not get to see. Best effort: a client that leaves earlier answers untaken is told nothing.
    fn refuse(&self, refusal: &Refusal) {
        if !self.0.is_write_blocked() {
            let _sent = rustix::net::send(&self.0.source, refusal.rest(), SendFlags::NOSIGNAL);
        }
    }

    /// Sends a part of `slices`; see [`Write::poll_write_vectored`].
    fn poll_send(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        // The kernel takes at most so many; the caller sees how much was taken.
        let slices = &slices[..slices.len().min(SLICES_MAX)];
        loop {
            ready!(self.0.source.poll_writable(cx));
            let nothing = &mut SendAncillaryBuffer::default();
            match sendmsg(&self.0.source, slices, nothing, SendFlags::NOSIGNAL) {
                Ok(bytes) => {
                    self.0.wrote(bytes);
                    return Poll::Ready(Ok(bytes));
                }
                Err(Errno::WOULDBLOCK) => {
                    self.0.blocked();
                    self.0.source.clear_writable();
                }
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.source.poll_readable(cx));
            let mut space = [const { MaybeUninit::uninit() }; RECEIVED_AT_ONCE];
            let room = buffer.remaining().min(RECEIVED_AT_ONCE);
            match rustix::net::recv(&self.0.source, &mut space[..room], RecvFlags::empty()) {
                Ok((_, 0)) => {
                    self.0.saw_end();
                    return Poll::Ready(Ok(()));
                }
                Ok(((received, _), bytes)) => {
                    if bytes < room {
                        // Nothing was left behind; if more came since, its edge is still to be reported.
                        self.0.source.clear_readable();
                    }
                    if let Err(refusal) = self.0.received(received) {
                        self.refuse(&refusal);
                        return Poll::Ready(Err(io::Error::other("the head of a request was refused")));
                    }
                    buffer.put_slice(received);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::WOULDBLOCK) => self.0.source.clear_readable(),
                Err(Errno::INTR) => {}
                Err(error) => {
                    self.0.saw_end();
                    return Poll::Ready(Err(error.into()));
                }
            }
        }
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut refusal = self.0.refusal.borrow_mut();
        if refusal.is_none() {
            *refusal = slices.first().and_then(|slice| Refusal::instead_of(slice));
        }
        let Some(instead) = &mut *refusal else { return self.poll_send(cx, slices) };
        loop {
            let sent = ready!(self.poll_send(cx, &[IoSlice::new(instead.rest())]))?;
            if instead.sent(sent) {
                *refusal = None;
                return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.shutdown(Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}
