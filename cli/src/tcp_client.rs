//! A small blocking client of the binary TCP protocol: one connection, in plain text or over TLS, requests one by one or several at once,
//! buffers reused.
use crate::tls::connector::Connector;
use crate::tls::explain;
use crate::tls::stream::{Stream, connect};
use nigh_net::tcp::frame::{BODY_MAX_BYTES, Status};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// An answer may take so long: a bulk build of a large corpus answers when it is done.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3600);
/// Bytes before the payload of a response: length, status, length of the payload.
const HEAD_BYTES: usize = 9;
/// Longest token that a request can carry.
const TOKEN_BYTES_MAX: usize = 255;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The connection failed and is of no more use.
    #[error("{0}")]
    Connection(#[from] io::Error),
    /// The server has refused the request, in its own words; the connection goes on.
    #[error("{0}")]
    Refused(String),
}

/// The result of a request that was carried out, in the client's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Its result.
    Result(&'a [u8]),
    /// There is no such key.
    NotFound,
}

/// One connection to a server.
pub struct TcpClient {
    stream: Stream,
    token: Vec<u8>,
    out: Vec<u8>,
    received: Vec<u8>,
    /// `received[..used]` belongs to answers that were handed out.
    used: usize,
    sent_bytes: u64,
}

impl TcpClient {
    /// Connects to `address` (host:port), over TLS if there is a connector; `token` goes with every request unless it is empty.
    ///
    /// # Errors
    /// The errors of the connection and of TLS, or the token is longer than 255 bytes.
    pub fn connect(address: &str, token: &str, tls: Option<&Arc<Connector>>) -> io::Result<TcpClient> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "the API key is longer than the 255 bytes that the binary protocol carries",
            ));
        }
        let stream = connect(address, tls)?;
        stream.socket().set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let (out, received) = (Vec::new(), Vec::new());
        Ok(TcpClient { stream, token: token.into(), out, received, used: 0, sent_bytes: 0 })
    }

    /// Bytes written so far.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Adds a request whose arguments `args` appends to what the next [`Self::flush`] sends. The name has 1 to 255 bytes, and not 2.
    pub fn push(&mut self, operation: &str, args: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut self.out;
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        if !self.token.is_empty() {
            out.extend_from_slice(&[2, self.token.len() as u8]);
            out.extend_from_slice(&self.token);
        }
        out.push(operation.len() as u8);
        out.extend_from_slice(operation.as_bytes());
        let args_start = out.len();
        out.extend_from_slice(&[0; 4]);
        args(out);
        let (body_len, args_len) = (out.len() - start - 4, out.len() - args_start - 4);
        out[args_start..args_start + 4].copy_from_slice(&(args_len as u32).to_be_bytes());
        out[start..start + 4].copy_from_slice(&(body_len as u32).to_be_bytes());
    }

    /// Sends what was pushed. Answers to it must be few bytes, or few: they are read only afterwards.
    ///
    /// # Errors
    /// Of the connection.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out)?;
        self.sent_bytes += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }

    /// Reads the next answer.
    ///
    /// # Errors
    /// A refusal, the end of the connection, or bytes that are no answer.
    pub fn reply(&mut self) -> Result<Reply<'_>, CallError> {
        if self.used == self.received.len() {
            self.received.clear();
            self.used = 0;
        }
        self.read_to(HEAD_BYTES)?;
        let field = |at: usize| {
            let bytes = &self.received[self.used + at..];
            u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
        };
        let (body_len, payload_len, status) = (field(0), field(5), self.received[self.used + 4]);
        if body_len > BODY_MAX_BYTES || body_len != payload_len + 5 {
            let text = match explain::is_alert(&self.received[self.used..]) {
                true => explain::EXPECTS_TLS,
                false => "what answers does not speak the binary protocol",
            };
            return Err(io::Error::new(ErrorKind::InvalidData, text).into());
        }
        self.read_to(HEAD_BYTES + payload_len)?;
        let payload_at = self.used + HEAD_BYTES;
        self.used = payload_at + payload_len;
        let payload = &self.received[payload_at..self.used];
        match status {
            status if status == Status::Ok as u8 => Ok(Reply::Result(payload)),
            status if status == Status::NotFound as u8 => Ok(Reply::NotFound),
            status if status == Status::Unauthorized as u8 => Err(CallError::Refused(
                "unauthorized; the key is given with --api-key or NIGH_API_KEY".into(),
            )),
            // Two bytes of length, and the text or the address.
            status => {
                let text = String::from_utf8_lossy(payload.get(2..).unwrap_or_default());
                let leads = if status == Status::NotLeader as u8 { "not leader; that is " } else { "" };
                Err(CallError::Refused(explain::with_hint(&format!("{leads}{text}"))))
            }
        }
    }

    /// One request and its answer.
    ///
    /// # Errors
    /// As [`Self::reply`].
    pub fn call(&mut self, operation: &str, args: impl FnOnce(&mut Vec<u8>)) -> Result<Reply<'_>, CallError> {
        self.push(operation, args);
        self.flush()?;
        self.reply()
    }

    /// Reads until there are `count` bytes that were not handed out.
    fn read_to(&mut self, count: usize) -> io::Result<()> {
        while self.received.len() - self.used < count {
            let filled = self.received.len();
            let missing = self.used + count - filled;
            self.received.resize(filled + missing.max(4096), 0);
            let read = self.stream.read(&mut self.received[filled..]);
            self.received.truncate(filled + read.as_ref().map_or(0, |count| *count));
            match read {
                Ok(0) => return Err(explain::closed(&self.received[self.used..])),
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::tls::tests::in_front_of;
    use nigh_net::tcp::frame::{self, Decoded};
    use std::net::TcpListener;

    /// Answers one request: operation, arguments, where the response goes.
    pub type Answer = dyn Fn(&str, &[u8], &mut Vec<u8>) + Send + Sync;

    /// A server whose requests are answered by `answer`; its address.
    pub fn serve(token: &'static [u8], answer: Arc<Answer>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, answer) = (stream.unwrap(), answer.clone());
                std::thread::spawn(move || {
                    let mut bytes = Vec::new();
                    loop {
                        match frame::decode(&bytes) {
                            Decoded::Incomplete { needed } => {
                                let filled = bytes.len();
                                bytes.resize(needed, 0);
                                if stream.read_exact(&mut bytes[filled..]).is_err() {
                                    return;
                                }
                            }
                            Decoded::Request { frame, consumed } => {
                                let mut out = Vec::new();
                                match frame.token.unwrap_or_default() == token {
                                    true => {
                                        let name = std::str::from_utf8(frame.operation).unwrap();
                                        answer(name, frame.args, &mut out);
                                    }
                                    false => frame::put_unauthorized(&mut out),
                                }
                                // In pieces, so that the client must put them together.
                                for piece in out.chunks(7) {
                                    if stream.write_all(piece).is_err() {
                                        return;
                                    }
                                }
                                bytes.drain(..consumed);
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
        });
        address
    }

    fn echo(operation: &str, args: &[u8], out: &mut Vec<u8>) {
        match operation {
            "echo" => frame::put_ok(out, |out| out.extend_from_slice(args)),
            "absent" => frame::put_not_found(out),
            "leader" => frame::put_not_leader(out, "there:1"),
            _ => frame::put_error(out, "op not registered"),
        }
    }

    #[test]
    fn answers_come_in_order() {
        let address = serve(b"s3cret", Arc::new(echo));
        let mut client = TcpClient::connect(&address, "s3cret", None).unwrap();
        for size in [0, 1, 5000] {
            client.push("echo", |out| out.extend(vec![size as u8; size]));
        }
        client.push("absent", |_| {});
        client.push("what", |_| {});
        client.flush().unwrap();
        for size in [0, 1, 5000] {
            assert_eq!(client.reply().unwrap(), Reply::Result(&vec![size as u8; size]));
        }
        assert_eq!(client.reply().unwrap(), Reply::NotFound);
        assert_eq!(client.reply().unwrap_err().to_string(), "op not registered");
        assert_eq!(client.call("leader", |_| {}).unwrap_err().to_string(), "not leader; that is there:1");
        assert_eq!(client.call("echo", |out| out.push(7)).unwrap(), Reply::Result(&[7]));
        assert!(client.sent_bytes() > 5000);
    }

    #[test]
    fn answers_over_tls() {
        let front = in_front_of(&serve(b"s3cret", Arc::new(echo)));
        let mut client = TcpClient::connect(&front.address, "s3cret", Some(&front.connector)).unwrap();
        for size in [0, 5000, 300_000] {
            client.push("echo", |out| out.extend(vec![size as u8; size]));
        }
        client.flush().unwrap();
        for size in [0, 5000, 300_000] {
            assert_eq!(client.reply().unwrap(), Reply::Result(&vec![size as u8; size]));
        }
    }

    #[test]
    fn what_fails() {
        let address = serve(b"s3cret", Arc::new(echo));
        let mut client = TcpClient::connect(&address, "", None).unwrap();
        let error = client.call("echo", |_| {}).unwrap_err();
        assert!(matches!(&error, CallError::Refused(text) if text.contains("NIGH_API_KEY")), "{error}");
        assert!(TcpClient::connect(&address, &"x".repeat(256), None).is_err());
        for (bytes, kind, part) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], ErrorKind::InvalidData, "binary protocol"),
            (b"\0\0", ErrorKind::UnexpectedEof, "closed the connection"),
            (b"\x15\x03\x03\0\x02\x02\x46", ErrorKind::UnexpectedEof, "-tls speaks it"),
            (b"\x15\x03\x01\0\x02\x02\x0a\0\0", ErrorKind::InvalidData, "-tls speaks it"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let mut client = TcpClient::connect(&address, "", None).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            server.write_all(bytes).unwrap();
            server.shutdown(std::net::Shutdown::Write).unwrap();
            let error = client.reply().unwrap_err();
            assert!(matches!(&error, CallError::Connection(error) if error.kind() == kind), "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
