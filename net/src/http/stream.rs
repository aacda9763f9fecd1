//! A connection's socket as hyper's byte stream.

use super::connection::Connection;
use super::refusal::Refusal;
use crate::socket::Sending;
use hyper::rt::{Read, ReadBufCursor, Write};
use rustix::net::Shutdown;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

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

impl Stream {
    /// Answers what the parser does not get to see. Best effort: a client that leaves earlier answers untaken is told nothing.
    fn refuse(&self, refusal: &Refusal) {
        self.0.refuse(refusal);
        if !self.0.is_write_blocked() {
            self.0.socket.send_now(refusal.rest());
        }
    }

    /// Sends a part of `slices`; see [`Write::poll_write_vectored`].
    fn poll_send(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.0.socket.poll_send(cx, slices, |sending| self.note(sending))
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let (room, note) = (buffer.remaining(), |sending| self.note(sending));
        let received = ready!(self.0.socket.poll_receive(cx, room, note, |received| {
            if received.is_empty() {
                self.0.saw_end();
                return Ok(());
            }
            self.0.received(received)?;
            buffer.put_slice(received);
            Ok(())
        }));
        match received {
            Ok(Ok(())) => Poll::Ready(Ok(())),
            Ok(Err(refusal)) => {
                self.refuse(&refusal);
                Poll::Ready(Err(io::Error::other("the head of a request was refused")))
            }
            Err(error) => {
                self.0.saw_end();
                Poll::Ready(Err(error))
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
            if let Some(refusal) = &*refusal {
                self.0.refuse(refusal);
            }
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

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.socket.poll_flush(cx, |sending| self.note(sending))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.shutdown(Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}
