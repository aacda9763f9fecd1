//! A transport with optional TLS over either of the two others.

use crate::tcp::transport::{Arrival, Carrier, Insecure, Outgoing, Transport};
use crate::tls::Channel;
use crate::tls::handshake::{Handshakes, Link, Outcome, RECEIVED_AT_ONCE};
use crate::tls::session::Read;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

/// A connection over another transport, in plain text until its handshake has ended, and over TLS from then on.
pub struct Secured<T> {
    inner: T,
    /// The TLS state; `None` for plain text. It is never borrowed across an await.
    channel: RefCell<Option<Box<Channel>>>,
}

/// The records that a connection has to send.
struct Records<'a>(&'a RefCell<Option<Box<Channel>>>);

impl Outgoing for Records<'_> {
    fn are_there(&self) -> bool {
        self.0.borrow().as_ref().is_some_and(|channel| channel.session().wants_write())
    }

    fn hand_out(&self, put: &mut dyn FnMut(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<usize> {
        match &mut *self.0.borrow_mut() {
            Some(channel) => channel.session_mut().outgoing(put),
            None => Ok(0),
        }
    }
}

impl<T: Carrier> Secured<T> {
    /// A connection in plain text.
    pub fn new(inner: T) -> Secured<T> {
        Secured { inner, channel: RefCell::new(None) }
    }

    /// Decrypts into the spare room of `into`. Returns whether anything may be left, and whether the stream has ended.
    fn decrypt(channel: &mut Channel, into: &mut Vec<u8>) -> io::Result<(bool, bool)> {
        loop {
            let room = into.capacity() - into.len();
            if room == 0 {
                return Ok((channel.is_readable(), false));
            }
            match channel.read(room, |bytes| into.extend_from_slice(bytes)).map_err(io::Error::other)? {
                Read::Bytes(_) => {}
                Read::Nothing => return Ok((false, false)),
                Read::End | Read::Truncated => return Ok((false, true)),
            }
        }
    }

    fn receive_from(&self, channel: &mut Channel, into: &mut Vec<u8>) -> io::Result<Arrival> {
        let before = into.len();
        let (left, ended) = Self::decrypt(channel, into)?;
        let came = |into: &Vec<u8>| into.len() > before;
        if left || (ended && came(into)) {
            return Ok(Arrival::Bytes { more: true });
        }
        if ended {
            return Ok(Arrival::End);
        }
        // The records are received into the buffer for decrypted bytes and leave it when the session has taken them. A buffer of their own is
        // needed only if there is so little room that each call would receive little, or so much that the session would have to keep most of it.
        let start = into.len();
        let is_fit = (RECEIVED_AT_ONCE..2 * RECEIVED_AT_ONCE).contains(&(into.capacity() - start));
        let mut other = if is_fit { Vec::new() } else { Vec::with_capacity(RECEIVED_AT_ONCE) };
        let arrival = self.inner.receive(if is_fit { &mut *into } else { &mut other })?;
        let more = match arrival {
            Arrival::Nothing => {
                // The connection may be idle for long.
                channel.session_mut().shrink();
                return Ok(if came(into) { Arrival::Bytes { more: false } } else { Arrival::Nothing });
            }
            Arrival::End => {
                channel.session_mut().end_of_input();
                true
            }
            Arrival::Bytes { more } => {
                let fed = channel.feed(if is_fit { &into[start..] } else { &other });
                into.truncate(start);
                fed.map_err(io::Error::other)?;
                more
            }
        };
        let (left, ended) = Self::decrypt(channel, into)?;
        match (came(into), ended) {
            (true, _) => Ok(Arrival::Bytes { more: more || left || ended }),
            (false, true) => Ok(Arrival::End),
            (false, false) if more => Ok(Arrival::Bytes { more }),
            (false, false) => Ok(Arrival::Nothing),
        }
    }
}

impl<T: Carrier> Link for Secured<T> {
    async fn receive(&self, into: &mut Vec<u8>) -> io::Result<()> {
        loop {
            poll_fn(|cx| self.inner.poll_arrived(cx)).await;
            match self.inner.receive(into)? {
                Arrival::Nothing => {}
                Arrival::Bytes { .. } | Arrival::End => return Ok(()),
            }
        }
    }

    async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.inner.send(bytes, |_| {}).await
    }
}

impl<T: Carrier> Transport for Secured<T> {
    fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.channel.borrow().as_ref().is_some_and(|channel| channel.is_readable()) {
            return Poll::Ready(());
        }
        self.inner.poll_arrived(cx)
    }

    fn has_arrived(&self) -> bool {
        self.channel.borrow().as_ref().is_some_and(|channel| channel.is_readable())
            || self.inner.has_arrived()
    }

    async fn secure(&self, handshakes: &Handshakes, second_us: u64) -> Result<Option<String>, Insecure> {
        match handshakes.secure(self, second_us).await {
            Outcome::Secure(channel) => {
                let name = channel.session().peer_common_name();
                *self.channel.borrow_mut() = Some(channel);
                Ok(name)
            }
            Outcome::Plain => Err(Insecure::Plain),
            Outcome::Crowded | Outcome::Failed => Err(Insecure::Failed),
        }
    }

    fn receive(&self, into: &mut Vec<u8>) -> io::Result<Arrival> {
        match &mut *self.channel.borrow_mut() {
            None => self.inner.receive(into),
            Some(channel) => self.receive_from(channel, into),
        }
    }

    async fn send(&self, bytes: &[u8], blocked: impl Fn(bool)) -> io::Result<()> {
        if self.channel.borrow().is_none() {
            return self.inner.send(bytes, blocked).await;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            if let Some(channel) = &mut *self.channel.borrow_mut() {
                let taken = channel.session_mut().write(&[IoSlice::new(rest)]);
                if taken == 0 {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                rest = rest.get(taken..).unwrap_or_default();
            }
            self.inner.send_from(&Records(&self.channel), &blocked).await?;
        }
        Ok(())
    }

    fn shutdown(&self) {
        self.inner.shutdown();
    }

    async fn end(&self) {
        let mut last = Vec::new();
        if let Some(channel) = &mut *self.channel.borrow_mut() {
            channel.session_mut().send_close_notify();
            channel.take_outgoing(&mut last);
        }
        if !last.is_empty() {
            let _gone = self.inner.send(&last, |_| {}).await;
        }
    }

    async fn finish(&self) {
        self.end().await;
        self.inner.finish().await;
    }
}
