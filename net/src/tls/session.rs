//! One TLS connection of a server, without any input or output of its own.
//!
//! The caller reads bytes from its socket and gives them to [`Session::feed`], takes decrypted bytes with
//! [`Session::read`], gives plaintext to [`Session::write`], and sends what [`Session::outgoing`] hands out.
//! A session belongs to one thread and takes no lock, except inside the shared session cache and ticket
//! keys of the configuration during a handshake.
//!
//! Memory is bounded as long as the caller reads before it feeds more: about 64 KiB of outgoing records and
//! 36 KiB of incoming data, with a peak near 100 KiB of heap; handshake messages of a client are limited to
//! 64 KiB by `rustls`. An idle session holds about 6 KiB, if [`Session::shrink`] was called, else up to 35 KiB.

use std::fmt;
use std::io::{self, BufRead, IoSlice, Write};
use std::sync::Arc;

use rustls::{HandshakeKind, ProtocolVersion, ServerConfig, ServerConnection};

use crate::tls::config::common_name;

/// The bound on outgoing bytes that wait to be sent; one last record may go past it by a few bytes per record.
pub const OUTGOING_LIMIT: usize = 64 * 1024;

/// How many calls of `write` may wait to be sent: each makes at least one record with a heap block of its own.
const WRITES_LIMIT: usize = 64;

/// How much decrypted data may wait before `feed` takes no more.
const PLAINTEXT_LIMIT: usize = 16 * 1024;

/// How many bytes `feed` takes while decrypted data waits.
///
/// This bounds the heap blocks that a client can cause by records of one byte each; it has room for one
/// record of the greatest size.
const CIPHERTEXT_LIMIT: usize = 20 * 1024;

/// How many bytes of plaintext are copied into a record at a time.
///
/// From 2,112 bytes on, the C library copies with the instruction `rep movsb` where the processor reports that this is fast. Some processors of
/// AMD then need thirty times as long if the destination lies 1 to 15 bytes further in its page than the source lies in its own: 4,660 ns instead
/// of 155 ns for 16 KiB. That is the usual case here, because the plaintext in a record follows a header of 5 bytes, and both the memory block of
/// the record and the buffer of answers begin at the start of a page. Shorter copies do not use the instruction.
const COPIED_AT_ONCE: usize = 2048;

/// How many such pieces one call of `write` takes, at most: twice as many as there is room for if they are long.
const PIECES_MAX: usize = 2 * OUTGOING_LIMIT / COPIED_AT_ONCE;

/// How plain HTTP connections start: a request method with the space after it, or the preface of HTTP/2.
const METHODS: [&[u8]; 10] = [
    b"GET ",
    b"PUT ",
    b"POST ",
    b"HEAD ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"TRACE ",
    b"CONNECT ",
    b"PRI * HTTP/2",
];

/// What [`Session::feed`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// How many of the given bytes were taken; the caller must give the rest again after reading.
    pub taken: usize,
    /// How many decrypted bytes wait for [`Session::read`].
    pub readable: usize,
    /// Whether the client has ended its side with a close_notify; bytes after that are taken and dropped.
    pub ended: bool,
}

/// What [`Session::read`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// This many decrypted bytes, at least one, were handed out.
    Bytes(usize),
    /// There is nothing now; more may come.
    Nothing,
    /// The client ended its side with a close_notify, and everything before that was read.
    End,
    /// The connection ended without a close_notify, so data may be missing, by accident or by attack.
    Truncated,
}

/// Whether a handshake was a full one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Keys and certificates were checked anew.
    Full,
    /// An earlier session was continued, with the client's certificates of then.
    Resumed,
}

/// A TLS failure, which ends the connection.
///
/// An alert for the client may wait in the outgoing bytes, so the caller should send these before it closes.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionError {
    /// What went wrong, as the library says it.
    pub cause: rustls::Error,
}

impl fmt::Display for SessionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the TLS connection failed: {}", self.cause)
    }
}

impl std::error::Error for SessionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// The server's side of one TLS connection.
pub struct Session {
    tls: ServerConnection,
    /// How many bytes were taken since no decrypted data waited.
    taken_since_empty: usize,
    /// How many writes were taken since no outgoing bytes waited.
    writes_since_empty: usize,
    readable: usize,
    input_ended: bool,
    closing: bool,
    failure: Option<rustls::Error>,
}

impl Session {
    /// Makes a session for a connection that has just been accepted.
    ///
    /// Returns an error only if the configuration is unusable, which cannot be for one of
    /// [`crate::tls::config::TlsConfig`].
    pub fn new(config: Arc<ServerConfig>) -> Result<Session, rustls::Error> {
        let mut tls = ServerConnection::new(config)?;
        tls.set_buffer_limit(Some(OUTGOING_LIMIT));
        Ok(Session {
            tls,
            taken_since_empty: 0,
            writes_since_empty: 0,
            readable: 0,
            input_ended: false,
            closing: false,
            failure: None,
        })
    }

    /// Takes bytes that came from the socket, and decrypts what is complete.
    ///
    /// It takes all of them unless much decrypted data waits for [`Session::read`]; it always takes some if
    /// none waits. Afterwards the caller should look at [`Session::wants_write`], even on an error, because
    /// an answer or an alert may be waiting. Returns an error if the client broke the protocol or was not
    /// accepted; every later call returns that error again.
    pub fn feed(&mut self, ciphertext: &[u8]) -> Result<Fed, SessionError> {
        if let Some(cause) = &self.failure {
            return Err(SessionError { cause: cause.clone() });
        }
        let mut rest = ciphertext;
        let mut ended = false;
        while !rest.is_empty() && !ended && self.may_take() {
            let before = rest.len();
            // The library takes at most 4 KiB at a time, so that its input buffer stays small.
            if let Err(e) = self.tls.read_tls(&mut rest) {
                return Err(self.fail(rustls::Error::General(e.to_string())));
            }
            self.taken_since_empty += before - rest.len();
            match self.tls.process_new_packets() {
                Ok(state) => {
                    self.readable = state.plaintext_bytes_to_read();
                    ended = state.peer_has_closed();
                }
                Err(cause) => return Err(self.fail(cause)),
            }
            if before == rest.len() && !ended {
                // This cannot be: the library takes at least one byte unless it says why not.
                return Err(self.fail(rustls::Error::General("no progress".to_string())));
            }
        }
        let taken = if ended { ciphertext.len() } else { ciphertext.len() - rest.len() };
        Ok(Fed { taken, readable: self.readable, ended })
    }

    fn may_take(&mut self) -> bool {
        if self.readable == 0 {
            self.taken_since_empty = 0;
        }
        self.readable < PLAINTEXT_LIMIT && self.taken_since_empty < CIPHERTEXT_LIMIT
    }

    fn fail(&mut self, cause: rustls::Error) -> SessionError {
        self.failure = Some(cause.clone());
        SessionError { cause }
    }

    /// Says that the socket has ended, so that no more bytes will be fed.
    ///
    /// After this [`Session::read`] tells a clean end from a truncated one.
    pub fn end_of_input(&mut self) {
        self.input_ended = true;
    }

    /// Hands decrypted bytes of one record to `put`, at most `most` of them, and drops them; a `most` of 0 always gives [`Read::Nothing`].
    ///
    /// `put` is called only if there are any. Data that was decrypted before a failure can still be read; after it, the failure is returned as an
    /// error.
    pub fn read(&mut self, most: usize, put: impl FnOnce(&[u8])) -> Result<Read, SessionError> {
        if most == 0 {
            return Ok(Read::Nothing);
        }
        let mut reader = self.tls.reader();
        match reader.fill_buf() {
            Ok([]) => Ok(Read::End),
            Ok(record) => {
                let bytes = &record[..record.len().min(most)];
                let count = bytes.len();
                put(bytes);
                reader.consume(count);
                self.readable = self.readable.saturating_sub(count);
                Ok(Read::Bytes(count))
            }
            Err(_) => match &self.failure {
                // The library has only two errors: nothing is there now, or the input has ended. We know the latter.
                Some(cause) => Err(SessionError { cause: cause.clone() }),
                None if self.input_ended => Ok(Read::Truncated),
                None => Ok(Read::Nothing),
            },
        }
    }

    /// Encrypts plaintext, and returns how many bytes of it were taken, counted over all slices in turn.
    ///
    /// Fewer than all, or 0, means that the outgoing bytes are near their bound or that there are more than 64 slices; what waits must be sent
    /// first. Nothing is ever taken while the handshake lasts, after [`Session::send_close_notify`], or after a
    /// failure; see [`Session::takes_plaintext`]. Each call makes records of its own, all but the last as long as a record can be, so the caller
    /// should put small pieces together in one call.
    pub fn write(&mut self, slices: &[IoSlice<'_>]) -> usize {
        if !self.takes_plaintext() {
            return 0;
        }
        if !self.tls.wants_write() {
            self.writes_since_empty = 0;
        }
        if self.writes_since_empty >= WRITES_LIMIT {
            return 0;
        }
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        for (place, piece) in
            pieces.iter_mut().zip(slices.iter().flat_map(|slice| slice.chunks(COPIED_AT_ONCE)))
        {
            *place = IoSlice::new(piece);
            count += 1;
        }
        let taken = self.tls.writer().write_vectored(&pieces[..count]).unwrap_or(0);
        if taken > 0 {
            self.writes_since_empty += 1;
        }
        taken
    }

    /// How many decrypted bytes wait for [`Session::read`].
    pub fn readable(&self) -> usize {
        self.readable
    }

    /// Whether the session is in a state in which [`Session::write`] takes data, given room.
    pub fn takes_plaintext(&self) -> bool {
        !self.closing && self.failure.is_none() && !self.tls.is_handshaking()
    }

    /// Whether outgoing bytes wait to be sent.
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Hands outgoing bytes to `put`, calling it once with up to 64 slices, and returns how many it took.
    ///
    /// `put` is meant to be one vectored write to a socket; the bytes that it says it took are dropped, the
    /// others stay. An error of `put`, such as `WouldBlock` or `Interrupted`, is returned as it is and
    /// drops nothing. Returns `Ok(0)` without calling `put` if nothing waits, and an error of the kind
    /// `WriteZero` if `put` takes nothing though something waits.
    pub fn outgoing(&mut self, put: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<usize> {
        if !self.tls.wants_write() {
            return Ok(0);
        }
        match self.tls.write_tls(&mut Outlet { put }) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            other => other,
        }
    }

    /// Tells the client that nothing more will be written; does nothing if an end or an alert was sent before.
    ///
    /// The client's side stays open: what it still sends can be read.
    pub fn send_close_notify(&mut self) {
        self.closing = true;
        self.tls.send_close_notify();
    }

    /// Gives memory back that was needed for large incoming records; for use when a connection falls idle.
    ///
    /// It keeps everything that was fed, and may be called at any time.
    pub fn shrink(&mut self) {
        if self.failure.is_none() && self.readable == 0 {
            // The library fits its input buffer to its contents before each read, so a read without data does it.
            let _nothing_came = self.tls.read_tls(&mut NoData);
        }
    }

    /// Whether the handshake has not ended yet.
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether the client has sent a certificate that was checked, and the handshake has ended.
    pub fn has_peer_certificate(&self) -> bool {
        // Before the end of the handshake the client has not proven that it owns the certificate.
        !self.tls.is_handshaking() && self.tls.peer_certificates().is_some_and(|chain| !chain.is_empty())
    }

    /// The common name of the client's certificate, once the handshake has ended.
    ///
    /// None if there is no certificate or no common name that passes [`common_name`]. It parses the
    /// certificate anew at each call.
    pub fn peer_common_name(&self) -> Option<String> {
        if self.tls.is_handshaking() {
            return None;
        }
        common_name(self.tls.peer_certificates()?.first()?)
    }

    /// The application protocol (ALPN name) that was agreed on, if any.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.tls.alpn_protocol()
    }

    /// Whether the handshake was full or resumed; none as long as that is open.
    pub fn handshake_kind(&self) -> Option<Handshake> {
        self.tls.handshake_kind().map(|kind| match kind {
            HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest => Handshake::Full,
            HandshakeKind::Resumed => Handshake::Resumed,
        })
    }

    /// The TLS version that was agreed on; none as long as that is open.
    pub fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.tls.protocol_version()
    }
}

/// Lends the caller's function to the library as a writer.
struct Outlet<F> {
    put: F,
}

impl<F: FnMut(&[IoSlice<'_>]) -> io::Result<usize>> Write for Outlet<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.put)(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (self.put)(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A reader that never has data and never ends.
struct NoData;

impl io::Read for NoData {
    fn read(&mut self, _into: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Whether the first bytes of a connection are those of a TLS handshake; none if they are too few to tell.
///
/// That is a record of type 22 (handshake) with the major version 3. The caller should ask before it feeds
/// the first bytes to a session, because a session answers anything else with an alert.
pub fn first_bytes_are_tls(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [] | [22] => None,
        [22, 3, ..] => Some(true),
        _ => Some(false),
    }
}

/// Whether the first bytes of a connection are an HTTP request in plain text; none if they are too few to tell.
///
/// The caller can then answer in plain text that the client has sent plain HTTP to a TLS port.
pub fn looks_like_http(bytes: &[u8]) -> Option<bool> {
    if METHODS.iter().any(|method| bytes.starts_with(method)) {
        return Some(true);
    }
    if METHODS.iter().any(|method| method.starts_with(bytes)) { None } else { Some(false) }
}
