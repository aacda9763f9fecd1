//! A small blocking HTTP/1.1 client: one connection, in plain text or over TLS, kept alive, buffers reused.
//!
//! Load generators measure themselves when they are expensive. This one writes bytes that were encoded before the
//! clock started and reads the answer into one buffer.
use crate::tls::connector::Connector;
use crate::tls::explain;
use crate::tls::flags::TlsFlags;
use crate::tls::stream::{Stream, connect};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// A whole request may take this long; a bulk build of a large corpus answers when it is done.
const READ_TIMEOUT: Duration = Duration::from_secs(3600);
/// No answer to a request of ours is larger; a peer that announces more is not our server.
const BODY_BYTES_MAX: usize = 1 << 30;
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The ALPN names that a client of HTTP offers over TLS.
pub const ALPN: &[&[u8]] = &[b"http/1.1"];

/// Where the server is, and what it asks for.
#[derive(Clone, Default)]
pub struct Target {
    /// `host:port`.
    pub authority: String,
    /// Sent with every request when there is one.
    pub api_key: Option<String>,
    /// What makes connections speak TLS; `None` for plain text.
    pub tls: Option<Arc<Connector>>,
}

impl Target {
    /// Reads `http://host:port`, with or without a slash at the end.
    ///
    /// # Errors
    /// A sentence naming the address.
    pub fn parse(url: &str) -> Result<Target, String> {
        let authority =
            authority(url, "http://").ok_or_else(|| format!("{url:?} is not http://host:port"))?;
        Ok(Target { authority, ..Target::default() })
    }

    /// Reads `https://host:port` likewise.
    ///
    /// # Errors
    /// A sentence naming the address.
    pub fn parse_secure(url: &str, tls: Arc<Connector>) -> Result<Target, String> {
        let authority =
            authority(url, "https://").ok_or_else(|| format!("{url:?} is not https://host:port"))?;
        Ok(Target { authority, tls: Some(tls), ..Target::default() })
    }

    /// The server that `--url` names, over TLS if its URL or a flag says so; without a URL the one that listens where a server does by default.
    ///
    /// # Errors
    /// A sentence about the URL, or about the flags of TLS.
    pub(crate) fn of_flags(url: Option<&str>, tls: &TlsFlags) -> Result<Target, String> {
        let (scheme, default) = ("https://", "127.0.0.1:8080");
        match url {
            Some(url) if url.starts_with(scheme) => Target::parse_secure(url, tls.connector_of_https(ALPN)?),
            Some(url) => {
                tls.refuse_http()?;
                Target::parse(url)
            }
            None => match tls.connector(ALPN)? {
                Some(tls) => Target::parse_secure(&format!("{scheme}{default}"), tls),
                None => Target::parse(&format!("http://{default}")),
            },
        }
    }

    /// What to do when nobody listens.
    pub(crate) fn not_connected(&self, error: &io::Error) -> String {
        let url = self.url();
        match error.kind() {
            io::ErrorKind::ConnectionRefused => format!(
                "{url}: {error}: no server listens there; start one with `nigh -http {}`, or name another with --url",
                self.authority
            ),
            _ => explain::not_connected(&url, error, "--url"),
        }
    }

    /// The address as it was read.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.authority)
    }

    /// With a key; an empty one is none.
    ///
    /// # Errors
    /// A sentence, without the key, when it cannot travel in a header.
    pub fn with_key(self, key: &str) -> Result<Target, String> {
        match key.bytes().any(|byte| byte.is_ascii_control()) {
            true => Err("the API key holds a control character, which no header can carry".into()),
            false => Ok(Target { api_key: Some(key.to_owned()).filter(|key| !key.is_empty()), ..self }),
        }
    }
}

/// `host:port` in a URL of `scheme`.
fn authority(url: &str, scheme: &str) -> Option<String> {
    let authority = url.strip_prefix(scheme)?.trim_end_matches('/');
    let has_port = authority.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok());
    (has_port && !authority.contains('/')).then(|| authority.to_owned())
}

/// One request as it goes over the wire.
pub fn encode(target: &Target, method: &str, path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_into(&mut bytes, target, method, path, content_type, body);
    bytes
}

/// Like [`encode`], into a buffer that is cleared first.
pub fn encode_into(
    bytes: &mut Vec<u8>,
    target: &Target,
    method: &str,
    path: &str,
    content_type: &str,
    body: &[u8],
) {
    bytes.clear();
    // Writing to a Vec cannot fail.
    let _ = write!(
        bytes,
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n",
        target.authority,
        body.len()
    );
    if let Some(key) = &target.api_key {
        let _ = write!(bytes, "Authorization: Bearer {key}\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
}

/// One kept-alive connection, made anew when the server has said that it ends.
pub struct Client {
    target: Target,
    /// The last answer announced the end of the connection.
    has_ended: bool,
    stream: Stream,
    /// Received bytes; `used` of them belong to the answer already handed out.
    received: Vec<u8>,
    used: usize,
    /// Body of a chunked answer, put together.
    assembled: Vec<u8>,
    /// The most bytes that the body of an answer may have.
    body_bytes_max: usize,
}

/// An answer; the body lives in the client's buffer.
#[derive(Debug)]
pub struct Response<'a> {
    /// HTTP status.
    pub status: u16,
    /// Whole body.
    pub body: &'a [u8],
    /// How long the server asks to wait before the request is sent again (`Retry-After`, in whole seconds).
    pub retry_after: Option<Duration>,
}

impl Response<'_> {
    /// The body, when the status is a success.
    ///
    /// # Errors
    /// `what`, the status and the body as one sentence.
    pub fn success(&self, what: &str) -> Result<&[u8], String> {
        match self.status {
            200..300 => Ok(self.body),
            status => {
                let hint =
                    if status == 401 { "; the key is given with --api-key or NIGH_API_KEY" } else { "" };
                let body = String::from_utf8_lossy(self.body);
                let body = match status {
                    400 => explain::with_hint(body.trim()),
                    _ => body.trim().to_owned(),
                };
                Err(format!("{what}: status {status}: {body}{hint}"))
            }
        }
    }
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// The errors of the connection and of TLS.
    pub fn connect(target: &Target) -> io::Result<Client> {
        let stream = connect(&target.authority, target.tls.as_ref())?;
        stream.socket().set_read_timeout(Some(READ_TIMEOUT))?;
        let target = target.clone();
        let (received, assembled) = (Vec::new(), Vec::new());
        let body_bytes_max = BODY_BYTES_MAX;
        Ok(Client { target, has_ended: false, stream, received, used: 0, assembled, body_bytes_max })
    }

    /// Sets the most bytes that the body of an answer may have from now on, at most 1 GiB. A longer answer fails with `FileTooLarge`.
    pub fn limit_answers(&mut self, bytes: usize) {
        self.body_bytes_max = bytes.min(BODY_BYTES_MAX);
    }

    /// Sends one encoded request and reads its answer.
    ///
    /// # Errors
    /// Of the connection, or `InvalidData` when the answer is not HTTP. The connection is then of no more use.
    pub fn send(&mut self, request: &[u8]) -> io::Result<Response<'_>> {
        if self.has_ended {
            let body_bytes_max = self.body_bytes_max;
            *self = Client { body_bytes_max, ..Client::connect(&self.target)? };
        }
        self.received.drain(..self.used);
        self.used = 0;
        self.stream.write_all(request)?;
        let head_len = self.read_head()?;
        let head = parse_head(&self.received[..head_len])?;
        self.has_ended = head.is_last;
        match head.body {
            BodyLength::Fixed(length) if length > self.body_bytes_max => Err(too_large()),
            BodyLength::Fixed(length) => {
                let end = head_len + length;
                while self.received.len() < end {
                    self.read_more()?;
                }
                self.used = end;
                let body = &self.received[head_len..end];
                Ok(Response { status: head.status, body, retry_after: head.retry_after })
            }
            BodyLength::Chunked => {
                self.used = self.read_chunks(head_len)?;
                Ok(Response { status: head.status, body: &self.assembled, retry_after: head.retry_after })
            }
        }
    }

    /// Length of the head with its blank line.
    fn read_head(&mut self) -> io::Result<usize> {
        loop {
            if let Some(at) = find(&self.received, b"\r\n\r\n") {
                return Ok(at + 4);
            }
            if self.received.len() > HEAD_BYTES_MAX {
                return Err(invalid("the answer's head has no end"));
            }
            self.read_more()?;
        }
    }

    /// Puts the chunks from `at` on together; the position after the last one.
    fn read_chunks(&mut self, mut at: usize) -> io::Result<usize> {
        self.assembled.clear();
        loop {
            let line = self.line_from(at)?;
            let text = std::str::from_utf8(&self.received[at..line]).unwrap_or_default();
            let size = text.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| invalid("bad chunk size"))?;
            if size > self.body_bytes_max - self.assembled.len() {
                return Err(too_large());
            }
            at = line + 2;
            if size == 0 {
                // Trailers, then a blank line.
                loop {
                    let end = self.line_from(at)?;
                    let blank = end == at;
                    at = end + 2;
                    if blank {
                        return Ok(at);
                    }
                }
            }
            while self.received.len() < at + size + 2 {
                self.read_more()?;
            }
            self.assembled.extend_from_slice(&self.received[at..at + size]);
            at += size + 2;
        }
    }

    /// Position of the next line's end.
    fn line_from(&mut self, at: usize) -> io::Result<usize> {
        loop {
            match find(&self.received[at..], b"\r\n") {
                Some(length) => return Ok(at + length),
                None if self.received.len() - at > HEAD_BYTES_MAX => return Err(invalid("endless line")),
                None => self.read_more()?,
            }
        }
    }

    fn read_more(&mut self) -> io::Result<()> {
        let filled = self.received.len();
        self.received.resize(filled.max(4096) * 2, 0);
        let read = loop {
            match self.stream.read(&mut self.received[filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.received.truncate(filled + *read.as_ref().unwrap_or(&0));
        match read? {
            0 => Err(explain::closed(&self.received)),
            _ => Ok(()),
        }
    }
}

enum BodyLength {
    Fixed(usize),
    Chunked,
}

struct Head {
    status: u16,
    body: BodyLength,
    /// The connection ends behind this answer.
    is_last: bool,
    retry_after: Option<Duration>,
}

fn parse_head(bytes: &[u8]) -> io::Result<Head> {
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("the answer's head is not text"))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
    let status = status.ok_or_else(|| invalid("the answer is not HTTP/1.1"))?;
    let (mut body, mut is_last, mut retry_after) = (BodyLength::Fixed(0), false, None);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            body = BodyLength::Fixed(value.parse().map_err(|_| invalid("bad Content-Length"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            body = BodyLength::Chunked;
        } else if name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close") {
            is_last = true;
        } else if name.eq_ignore_ascii_case("retry-after") {
            // The other form, a date, is sent by no server of this interface.
            retry_after = value.parse().ok().map(Duration::from_secs);
        }
    }
    Ok(Head { status, body, is_last, retry_after })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "the answer is too large")
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::in_front_of;
    use std::net::TcpListener;

    /// A server that answers each request with the next of `answers`, in pieces of `piece` bytes.
    fn serve(answers: Vec<&'static str>, piece: usize) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            for answer in answers {
                assert!(stream.read(&mut request).unwrap() > 0);
                for part in answer.as_bytes().chunks(piece) {
                    stream.write_all(part).unwrap();
                    stream.flush().unwrap();
                }
            }
        });
        target
    }

    #[test]
    fn answers_of_every_framing_on_one_connection() {
        for piece in [1, 7, 1000] {
            let target = serve(
                vec![
                    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
                    "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: v\r\n\r\n",
                    "HTTP/1.1 204 No Content\r\n\r\n",
                ],
                piece,
            );
            let mut client = Client::connect(&target).unwrap();
            let request = encode(&target, "GET", "/", "application/json", b"");
            for (status, body) in [(200, "hello"), (404, "{}"), (200, "abcde"), (204, "")] {
                let response = client.send(&request).unwrap();
                assert_eq!((response.status, response.body), (status, body.as_bytes()), "piece {piece}");
            }
            // The peer has closed with the request unread: whichever of the two the kernel reports first.
            let kind = client.send(&request).unwrap_err().kind();
            let closed =
                [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
            assert!(closed.contains(&kind), "{kind:?}");
        }
    }

    #[test]
    fn a_connection_that_was_ended_is_made_anew() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        std::thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
                let answer =
                    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(answer).unwrap();
            }
        });
        let mut client = Client::connect(&target).unwrap();
        let request = encode(&target, "GET", "/", "application/json", b"");
        for _ in 0..2 {
            assert_eq!(client.send(&request).unwrap().status, 503);
        }
    }

    #[test]
    fn long_answers_are_refused_and_a_wait_is_read() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n4\r\nabcd\r\n0\r\n\r\n",
        ] {
            let target = serve(vec![answer], 100);
            let mut client = Client::connect(&target).unwrap();
            client.limit_answers(8);
            let error = client.send(&encode(&target, "GET", "/", "text/plain", b"")).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{answer}");
        }
        let busy = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n";
        let target = serve(vec![busy], 100);
        let mut client = Client::connect(&target).unwrap();
        let response = client.send(&encode(&target, "GET", "/", "text/plain", b"")).unwrap();
        assert_eq!((response.status, response.retry_after), (503, Some(Duration::from_secs(7))));
    }

    #[test]
    fn what_is_not_http_is_refused() {
        for answer in ["SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"] {
            let target = serve(vec![answer], 100);
            let mut client = Client::connect(&target).unwrap();
            let error = client.send(&encode(&target, "GET", "/", "text/plain", b"")).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{answer}");
        }
        let mut client = Client::connect(&serve(vec!["\x15\x03\x03\0\x02\x02\x46"], 100)).unwrap();
        let error = client.send(&encode(&Target::default(), "GET", "/", "text/plain", b"")).unwrap_err();
        assert_eq!(error.to_string(), explain::EXPECTS_TLS);
    }

    #[test]
    fn answers_over_tls() {
        let plain = serve(vec!["HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"], 1000);
        let front = in_front_of(&plain.authority);
        let target = Target::parse_secure(&format!("https://{}/", front.address), front.connector).unwrap();
        let mut client = Client::connect(&target).unwrap();
        let response = client.send(&encode(&target, "GET", "/", "text/plain", b"")).unwrap();
        assert_eq!((response.status, response.body), (200, &b"hello"[..]));
        assert_eq!(target.url(), format!("https://{}", front.address));
        assert!(Target::parse_secure("http://h:1", target.tls.unwrap()).is_err());
    }

    #[test]
    fn targets() {
        assert_eq!(Target::parse("http://127.0.0.1:8080/").unwrap().authority, "127.0.0.1:8080");
        for url in ["https://x:1", "http://", "http://host", "http://host:1/path", "http://:x", "host:1"] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
        assert_eq!(Target::parse("http://h:1/").unwrap().url(), "http://h:1");
    }

    #[test]
    fn a_key_travels_as_a_bearer_token() {
        let head = |key: &str| {
            let target = Target::parse("http://h:1").unwrap().with_key(key).unwrap();
            String::from_utf8(encode(&target, "GET", "/x", "text/plain", b"body")).unwrap()
        };
        let plain = "GET /x HTTP/1.1\r\nHost: h:1\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n";
        assert_eq!(head("k3y"), format!("{plain}Authorization: Bearer k3y\r\n\r\nbody"));
        assert_eq!(head(""), format!("{plain}\r\nbody"));
        let error = Target::default().with_key("a\r\nb").err().unwrap();
        assert!(error.contains("API key") && !error.contains("a\r"), "{error}");
    }

    #[test]
    fn a_refused_key_names_the_flag() {
        let said =
            |status| Response { status, body: b"{}", retry_after: None }.success("create").unwrap_err();
        assert!(said(401).contains("--api-key"), "{}", said(401));
        assert_eq!(said(500), "create: status 500: {}");
        let plain = Response { status: 400, body: b"this port expects TLS", retry_after: None };
        let plain = plain.success("create").unwrap_err();
        assert!(plain.contains("; -tls speaks TLS"), "{plain}");
    }
}
