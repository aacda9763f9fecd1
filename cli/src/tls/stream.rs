//! A connection to a server, in plain text or over TLS. Reads and writes block if its socket does.
//!
//! Whether it is over TLS is asked once per read and write of the socket, and not per request.
use super::connector::Connector;
use super::explain::{CLOSED_HANDSHAKE, sentence};
use rustls::ClientConnection;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a handshake may take; a Nigh server gives up after the same time.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The most bytes that are taken from the socket at once. The library itself takes 4 KiB, which would be four system calls per record.
const RECEIVE_BYTES: usize = 16 << 10;
/// While so many decrypted bytes wait to be read, no more are decrypted: the library refuses more than one record beyond this number.
const DECRYPTED_ENOUGH: usize = 16 << 10;

/// A connection.
pub enum Stream {
    /// In plain text.
    Plain(TcpStream),
    /// Over TLS.
    Secure(Box<Secure>),
}

/// Connects to `address` (host:port), and makes the connection secure if there is a connector. Reads and writes block without a limit in time.
///
/// # Errors
/// The errors of the connection, of the last one if the name has several addresses; and those of TLS, with a sentence.
pub fn connect(address: &str, tls: Option<&Arc<Connector>>) -> io::Result<Stream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "no address");
    for resolved in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&resolved, CONNECT_TIMEOUT) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return match tls {
                    None => Ok(Stream::Plain(socket)),
                    Some(connector) => {
                        Ok(Stream::Secure(Box::new(Secure::over(socket, connector, address)?)))
                    }
                };
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Stream {
    /// The socket, for its options.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Secure(secure) => &secure.socket,
        }
    }

    /// Whether a read may find bytes that the socket no longer has.
    pub fn has_more(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Secure(secure) => secure.has_more(),
        }
    }

    /// Whether bytes that were written wait for room in the socket.
    pub fn has_unsent(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Secure(secure) => secure.session.wants_write(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(into),
            Stream::Secure(secure) => secure.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Secure(secure) => secure.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(_) => Ok(()),
            Stream::Secure(secure) => secure.send(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

/// A connection over TLS.
pub struct Secure {
    socket: TcpStream,
    session: ClientConnection,
    connector: Arc<Connector>,
    /// The bytes that came from the socket last; `received[undecrypted]` has not been decrypted.
    received: Box<[u8]>,
    undecrypted: Range<usize>,
    /// How many decrypted bytes wait to be read.
    readable: usize,
    /// The server has said that it sends nothing more.
    has_ended: bool,
}

impl Secure {
    /// Makes a blocking connection secure.
    fn over(socket: TcpStream, connector: &Arc<Connector>, address: &str) -> io::Result<Secure> {
        let session = connector
            .session(address)
            .map_err(|sentence| io::Error::new(ErrorKind::InvalidInput, sentence))?;
        let mut secure = Secure {
            socket,
            session,
            connector: connector.clone(),
            received: vec![0; RECEIVE_BYTES].into(),
            undecrypted: 0..0,
            readable: 0,
            has_ended: false,
        };
        secure.shake_hands()?;
        Ok(secure)
    }

    fn shake_hands(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + HANDSHAKE_MAX;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(too_late());
            }
            self.socket.set_write_timeout(Some(left))?;
            self.socket.set_read_timeout(Some(left))?;
            self.send().map_err(cut_short)?;
            if !self.session.is_handshaking() {
                break;
            }
            match self.socket.read(&mut self.received) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, CLOSED_HANDSHAKE)),
                Ok(count) => self.undecrypted = 0..count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(cut_short(error)),
            }
            self.decrypt()?;
        }
        self.socket.set_write_timeout(None)?;
        self.socket.set_read_timeout(None)
    }

    fn has_more(&self) -> bool {
        self.readable > 0 || !self.undecrypted.is_empty()
    }

    /// Reads decrypted bytes; 0 is the end.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.decrypt()?;
            if self.readable > 0 || self.has_ended {
                let count = self.session.reader().read(into)?;
                self.readable -= count.min(self.readable);
                return Ok(count);
            }
            match self.socket.read(&mut self.received)? {
                // The protocols here say how long each answer is, so an end without a close alert is as good as one with it.
                0 => return Ok(0),
                count => self.undecrypted = 0..count,
            }
        }
    }

    /// Decrypts what came from the socket, as long as there is room for it.
    fn decrypt(&mut self) -> io::Result<()> {
        while !self.undecrypted.is_empty() && self.readable < DECRYPTED_ENOUGH && !self.has_ended {
            let mut rest = &self.received[self.undecrypted.clone()];
            if self.session.read_tls(&mut rest)? == 0 {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "TLS failed: the session takes no more bytes",
                ));
            }
            self.undecrypted.start = self.undecrypted.end - rest.len();
            let is_handshaking = self.session.is_handshaking();
            match self.session.process_new_packets() {
                Ok(state) => {
                    self.readable = state.plaintext_bytes_to_read();
                    self.has_ended = state.peer_has_closed();
                }
                Err(error) => {
                    // The server is told why, if it still listens.
                    let _gone = self.session.write_tls(&mut self.socket);
                    let text = sentence(&error, is_handshaking, self.connector.circumstances());
                    return Err(io::Error::new(ErrorKind::InvalidData, text));
                }
            }
        }
        if self.has_ended {
            self.undecrypted = 0..0;
        }
        Ok(())
    }

    /// Encrypts as many bytes as fit, and sends them as far as the socket takes them. Returns how many were encrypted.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send()?;
        let count = self.session.writer().write(bytes)?;
        match self.send() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Sends what is encrypted.
    fn send(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_gone(&error) => return Err(self.last_word().unwrap_or(error)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The error that says why the server has closed the connection, if the server said so: its alert may wait in the socket. A read of a closed
    /// connection does not block.
    fn last_word(&mut self) -> Option<io::Error> {
        loop {
            if let Err(error) = self.decrypt() {
                return Some(error);
            }
            // Bytes that were decrypted and not read are of no use any more.
            self.undecrypted = 0..self.socket.read(&mut self.received).ok().filter(|&count| count > 0)?;
            while self.readable > 0 {
                let count = self.session.reader().read(&mut [0; 4096]).ok().filter(|&count| count > 0)?;
                self.readable -= count.min(self.readable);
            }
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted)
}

fn too_late() -> io::Error {
    let text = format!(
        "the TLS handshake was not over after {} s; if the server speaks plain text there, leave out the flags of TLS",
        HANDSHAKE_MAX.as_secs()
    );
    io::Error::new(ErrorKind::TimedOut, text)
}

/// An error of the socket during the handshake.
fn cut_short(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => too_late(),
        _ if is_gone(&error) => io::Error::new(ErrorKind::UnexpectedEof, CLOSED_HANDSHAKE),
        _ => error,
    }
}
