//! A connection's socket as the byte stream that the parser of HTTP/2 reads and writes.

use super::connection::Connection;
use crate::socket::Sending;
use rustix::net::Shutdown;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// See the module.
pub struct Stream(pub Rc<Connection>);

impl Stream {
    /// Notes what the client takes.
    fn note(&self, sending: Sending) {
        match sending {
            Sending::Taken(bytes) => self.0.wrote(bytes),
            Sending::Blocked => self.0.blocked(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.0.has_had_its_turn() {
            // The parser reads as long as there is something: a client that sends as fast as memory allows must not keep the core to itself.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if !self.0.may_receive() {
            // The parser asks again when everything has been sent.
            return Poll::Pending;
        }
        self.0.socket.poll_receive(
            cx,
            into.remaining(),
            |sending| self.note(sending),
            |received| {
                self.0.received(received);
                into.put_slice(received);
            },
        )
    }
}

impl AsyncWrite for Stream {
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
        if self.0.has_sent_its_turn() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.0.socket.poll_send(cx, slices, |sending| self.note(sending))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.0.socket.poll_flush(cx, |sending| self.note(sending)))?;
        // The parser flushes when it has nothing left to write.
        if self.0.flushed() {
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.shutdown(Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}
