//! A connection's socket as hyper's byte stream.

use super::connection::Connection;
use super::refusal::Refusal;
use hyper::rt::{Read, ReadBufCursor, Write};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// See the module.
pub struct Stream(pub Rc<Connection>);

impl Stream {
    fn fd(&self) -> libc::c_int {
        self.0.source.as_raw_fd()
    }

    /// Answers what the parser does not get to see. Best effort: a client that leaves earlier answers untaken is told nothing.
    fn refuse(&self, refusal: &Refusal) {
        if !self.0.is_write_blocked() {
            let bytes = refusal.rest();
            // SAFETY: the bytes are borrowed for the call, which only reads them; the descriptor lives in the connection.
            unsafe { libc::send(self.fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        }
    }

    /// Sends a part of `slices`; see [`Write::poll_write_vectored`].
    fn poll_send(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.source.poll_writable(cx));
            // SAFETY: an all-zero msghdr is its documented empty state (no name, no control data, no flags).
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = slices.as_ptr().cast_mut().cast();
            // The kernel takes at most 1024 slices; the caller sees how much was taken.
            message.msg_iovlen = slices.len().min(1024) as _;
            // SAFETY: IoSlice has the layout of iovec on Unix, so `msg_iov` points to `msg_iovlen` of them, which the
            // call only reads; each describes memory borrowed for the call. The descriptor lives in the connection.
            let sent = unsafe { libc::sendmsg(self.fd(), &message, libc::MSG_NOSIGNAL) };
            if sent >= 0 {
                self.0.wrote(sent as usize);
                return Poll::Ready(Ok(sent as usize));
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => {
                    self.0.blocked();
                    self.0.source.clear_writable();
                }
                io::ErrorKind::Interrupted => {}
                _ => return Poll::Ready(Err(error)),
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
            // SAFETY: the slice is only passed on as pointer and length to be written to; nothing uninitialised is read
            // and nothing initialised is made uninitialised.
            let space = unsafe { buffer.as_mut() };
            // SAFETY: `space` is writable memory of exactly that length, borrowed for the call; the descriptor lives in
            // the connection.
            let got = unsafe { libc::recv(self.fd(), space.as_mut_ptr().cast(), space.len(), 0) };
            if got > 0 {
                if (got as usize) < space.len() {
                    // Nothing was left behind; if more came since, its edge is still to be reported.
                    self.0.source.clear_readable();
                }
                // SAFETY: recv has initialised the first `got` bytes of `space`.
                let received = unsafe { space[..got as usize].assume_init_ref() };
                if let Err(refusal) = self.0.received(received) {
                    self.refuse(&refusal);
                    return Poll::Ready(Err(io::Error::other("the head of a request was refused")));
                }
                // SAFETY: recv has initialised the first `got` bytes of the unfilled part.
                unsafe { buffer.advance(got as usize) };
                return Poll::Ready(Ok(()));
            }
            if got == 0 {
                self.0.saw_end();
                return Poll::Ready(Ok(()));
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => self.0.source.clear_readable(),
                io::ErrorKind::Interrupted => {}
                _ => {
                    self.0.saw_end();
                    return Poll::Ready(Err(error));
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
        self.0.shutdown(libc::SHUT_WR);
        Poll::Ready(Ok(()))
    }
}
