//! A TLS session with the bytes that it has not taken yet.

use super::session::{Read, Session, SessionError};
use std::io::{self, IoSlice};

/// The TLS state of one open connection. Call [`Channel::feed`] with the bytes of one receive call, and only when [`Channel::read`] has found
/// nothing.
pub struct Channel {
    session: Session,
    /// What the session had no room for. It is taken as soon as what was decrypted has been read.
    unfed: Vec<u8>,
    /// The client has ended its side, and whoever reads has not been told yet.
    has_end: bool,
}

impl Channel {
    /// Begins with a session.
    pub fn new(session: Session) -> Channel {
        Channel { session, unfed: Vec::new(), has_end: false }
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The session, to write to and to send from.
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Takes what came from the socket.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub fn feed(&mut self, ciphertext: &[u8]) -> Result<(), SessionError> {
        if self.unfed.is_empty() {
            let fed = self.session.feed(ciphertext)?;
            self.has_end |= fed.ended;
            self.unfed.extend_from_slice(ciphertext.get(fed.taken..).unwrap_or_default());
        } else {
            self.unfed.extend_from_slice(ciphertext);
        }
        Ok(())
    }

    /// Hands decrypted bytes of one record to `put`, at most `most` of them, and calls it once at most.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub fn read(&mut self, most: usize, mut put: impl FnMut(&[u8])) -> Result<Read, SessionError> {
        loop {
            match self.session.read(most, &mut put)? {
                Read::Nothing | Read::Truncated if !self.unfed.is_empty() && most > 0 => {
                    let unfed = std::mem::take(&mut self.unfed);
                    self.feed(&unfed)?;
                }
                Read::End => {
                    self.has_end = false;
                    return Ok(Read::End);
                }
                other => return Ok(other),
            }
        }
    }

    /// Whether something can be read without another byte from the socket.
    pub fn is_readable(&self) -> bool {
        self.session.readable() > 0 || !self.unfed.is_empty() || self.has_end
    }

    /// Appends what is to be sent to `out`.
    pub fn take_outgoing(&mut self, out: &mut Vec<u8>) {
        let mut put = |slices: &[IoSlice<'_>]| {
            slices.iter().for_each(|slice| out.extend_from_slice(slice));
            Ok(slices.iter().map(|slice| slice.len()).sum())
        };
        while self.session.wants_write() {
            // Memory takes all, so that each round sends something.
            let _sent: io::Result<usize> = self.session.outgoing(&mut put);
        }
    }
}
