//! A connection's socket as hyper's byte stream.

use super::connection::Connection;
use super::refusal::Refusal;
use crate::socket::{poll_receive, poll_send};
use hyper::rt::{Read, ReadBufCursor, Write};
use rustix::net::{SendFlags, Shutdown};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

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
        let sent = ready!(poll_send(&self.0.source, cx, slices, || self.0.blocked()))?;
        self.0.wrote(sent);
        Poll::Ready(Ok(sent))
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.remaining();
        let received = ready!(poll_receive(&self.0.source, cx, room, |received| {
            if received.is_empty() {
                self.0.saw_end();
                return Ok(());
            }
            if let Err(refusal) = self.0.received(received) {
                self.refuse(&refusal);
                return Err(io::Error::other("the head of a request was refused"));
            }
            buffer.put_slice(received);
            Ok(())
        }));
        if received.is_err() {
            self.0.saw_end();
        }
        Poll::Ready(received.and_then(|taken| taken))
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
