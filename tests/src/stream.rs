//! A connection of a client, with TLS or without.
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// What waits for a server that does not answer gives up after this. It only has broken tests end; nothing is said about speed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connection, in plain text or over TLS.
pub enum Stream {
    /// Plain text.
    Plain(TcpStream),
    /// TLS.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Connects to `authority` (`host:port`), and speaks TLS where there is a configuration. The name that the certificate of the server must
    /// have is `localhost`.
    ///
    /// # Errors
    /// The server refuses. A TLS handshake that fails is an error of the first reading or writing instead.
    ///
    /// # Panics
    /// When the configuration cannot be used.
    pub fn connect(authority: &str, tls: Option<&Arc<ClientConfig>>) -> io::Result<Stream> {
        let socket = TcpStream::connect(authority)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        let Some(config) = tls else { return Ok(Stream::Plain(socket)) };
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(config.clone(), name).expect("a configuration that can be used");
        Ok(Stream::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}
