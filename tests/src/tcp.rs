//! A client of the binary protocol that sees every byte. Nothing of the server's code is in it.
use crate::Stream;
use std::io::{self, Read, Write};
use std::net::Shutdown;

/// Arguments under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args(pub Vec<u8>);

impl Args {
    /// None yet.
    pub fn new() -> Args {
        Args::default()
    }
    /// A byte.
    pub fn u8(self, value: u8) -> Args {
        self.bytes(&[value])
    }
    /// Two bytes.
    pub fn u16(self, value: u16) -> Args {
        self.bytes(&value.to_be_bytes())
    }
    /// Four bytes.
    pub fn u32(self, value: u32) -> Args {
        self.bytes(&value.to_be_bytes())
    }
    /// Eight bytes.
    pub fn u64(self, value: u64) -> Args {
        self.bytes(&value.to_be_bytes())
    }
    /// Eight bytes with a sign.
    pub fn i64(self, value: i64) -> Args {
        self.bytes(&value.to_be_bytes())
    }
    /// Bytes as they are.
    pub fn bytes(mut self, bytes: &[u8]) -> Args {
        self.0.extend_from_slice(bytes);
        self
    }
    /// Bytes behind a length of one byte.
    pub fn s8(self, bytes: impl AsRef<[u8]>) -> Args {
        self.u8(bytes.as_ref().len() as u8).bytes(bytes.as_ref())
    }
    /// Bytes behind a length of two bytes.
    pub fn s16(self, bytes: impl AsRef<[u8]>) -> Args {
        self.u16(bytes.as_ref().len() as u16).bytes(bytes.as_ref())
    }
    /// Bytes behind a length of four bytes.
    pub fn s32(self, bytes: impl AsRef<[u8]>) -> Args {
        self.u32(bytes.as_ref().len() as u32).bytes(bytes.as_ref())
    }
    /// A vector behind its length.
    pub fn vector(self, vector: &[f32]) -> Args {
        vector.iter().fold(self.u32(vector.len() as u32), |args, x| args.bytes(&x.to_be_bytes()))
    }
}

/// A request without a token.
pub fn frame(operation: &str, args: &[u8]) -> Vec<u8> {
    let body = Args::new().s8(operation).s32(args);
    Args::new().s32(body.0).0
}

/// A request with a token.
pub fn frame_with_token(token: &str, operation: &str, args: &[u8]) -> Vec<u8> {
    tokened(token, &frame(operation, args))
}

/// A request that has no token yet, with one.
fn tokened(token: &str, frame: &[u8]) -> Vec<u8> {
    let body = Args::new().u8(2).s8(token).bytes(&frame[4..]);
    Args::new().s32(body.0).0
}

/// A response.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// 0 OK, 1 NOT_FOUND, 2 NOT_LEADER, 3 ERROR, 4 UNAUTHORIZED.
    pub status: u8,
    /// What follows.
    pub payload: Vec<u8>,
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self.payload[..self.payload.len().min(200)];
        write!(f, "{} {:?}", self.status, String::from_utf8_lossy(shown))
    }
}

impl Response {
    /// The result.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn ok(self) -> Vec<u8> {
        assert_eq!(self.status, 0, "{self:?}");
        self.payload
    }

    /// The text of an ERROR.
    ///
    /// # Panics
    /// When it is something else.
    #[track_caller]
    pub fn error(self) -> String {
        assert_eq!(self.status, 3, "{self:?}");
        let (len, text) = self.payload.split_at(2);
        assert_eq!(usize::from(u16::from_be_bytes([len[0], len[1]])), text.len());
        String::from_utf8(text.to_vec()).expect("text")
    }
}

/// One connection.
pub struct Wire {
    /// What it runs over.
    pub stream: Stream,
    /// Sent with requests; empty = none.
    token: String,
    received: Vec<u8>,
    at: usize,
}

impl Wire {
    /// Connects, without TLS and without a token.
    ///
    /// # Panics
    /// When the server refuses.
    #[track_caller]
    pub fn connect(authority: &str) -> Wire {
        Wire::over(Stream::connect(authority, None).expect("the server accepts"), "")
    }

    /// A connection that is there already, of a client that sends this token (empty = none).
    pub fn over(stream: Stream, token: &str) -> Wire {
        Wire { stream, token: token.to_owned(), received: Vec::new(), at: 0 }
    }

    /// A request without a token as this client sends it: with its token, if it has one.
    pub fn with_token(&self, frame: &[u8]) -> Vec<u8> {
        match self.token.as_str() {
            "" => frame.to_vec(),
            token => tokened(token, frame),
        }
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// When the connection is broken.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the connection is open");
        self.stream.flush().expect("the connection is open");
    }

    /// Ends this half of the connection.
    pub fn end(&self) {
        self.stream.socket().shutdown(Shutdown::Write).expect("the connection is open");
    }

    /// The next response, as bytes.
    ///
    /// # Errors
    /// The connection has ended, or the server says nothing.
    pub fn raw(&mut self) -> io::Result<Vec<u8>> {
        let mut needed = 4;
        loop {
            let there = &self.received[self.at..];
            if let Some(len) = there.first_chunk() {
                needed = 4 + u32::from_be_bytes(*len) as usize;
            }
            if there.len() >= needed {
                let response = there[..needed].to_vec();
                self.at += needed;
                return Ok(response);
            }
            self.received.drain(..std::mem::take(&mut self.at));
            let before = self.received.len();
            self.received.resize(before + (64 << 10), 0);
            let got = self.stream.read(&mut self.received[before..]);
            self.received.truncate(before + *got.as_ref().unwrap_or(&0));
            if got? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The next response.
    ///
    /// # Panics
    /// When none comes, or its lengths do not agree.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        let raw = self.raw().expect("a response");
        let len = u32::from_be_bytes(raw[5..9].try_into().expect("four bytes")) as usize;
        assert_eq!(raw.len(), 9 + len, "the two lengths of a response agree");
        Response { status: raw[4], payload: raw[9..].to_vec() }
    }

    /// Sends a request and waits for its response.
    ///
    /// # Panics
    /// As the steps.
    #[track_caller]
    pub fn ask(&mut self, operation: &str, args: impl AsRef<[u8]>) -> Response {
        self.send(self.with_token(&frame(operation, args.as_ref())));
        self.response()
    }

    /// Whether the server has ended the connection, without a byte more.
    pub fn is_ended(&mut self) -> bool {
        match self.raw() {
            Ok(more) => panic!("{} bytes more", more.len()),
            Err(error) => {
                error.kind() != io::ErrorKind::WouldBlock && error.kind() != io::ErrorKind::TimedOut
            }
        }
    }
}

impl AsRef<[u8]> for Args {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
