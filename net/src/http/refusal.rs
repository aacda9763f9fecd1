//! Answers to what is no request: the parser's own have no body, so these stand in for them, and those that it does not make.

use crate::limits;
use http::StatusCode;

/// An answer that ends its connection, in bytes.
pub(super) struct Refusal {
    status: StatusCode,
    bytes: Vec<u8>,
    body_bytes: usize,
    sent: usize,
}

/// What is kept of a refusal for the access log.
#[derive(Clone, Copy)]
pub(super) struct Refused {
    /// The status.
    pub status: StatusCode,
    /// Bytes of the body.
    pub body_bytes: usize,
}

impl Refusal {
    /// The part of the refusal that the access log shows.
    pub fn refused(&self) -> Refused {
        Refused { status: self.status, body_bytes: self.body_bytes }
    }

    fn new(status: StatusCode, error: &str) -> Refusal {
        let body = format!("{}\n", serde_json::json!({ "error": error }));
        let again = if status == StatusCode::SERVICE_UNAVAILABLE { "retry-after: 1\r\n" } else { "" };
        let bytes = format!(
            "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{again}connection: close\r\n\r\n{body}",
            status.as_str(),
            status.canonical_reason().unwrap_or_default(),
            body.len()
        );
        Refusal { status, bytes: bytes.into_bytes(), body_bytes: body.len(), sent: 0 }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The body.
    pub fn into_body(mut self) -> Vec<u8> {
        self.bytes.split_off(self.bytes.len() - self.body_bytes)
    }

    /// In the place of an answer of the parser's, which has no body; `None` for any other answer.
    pub fn instead_of(written: &[u8]) -> Option<Refusal> {
        if written.get(9) != Some(&b'4') {
            return None;
        }
        let head = std::str::from_utf8(written.strip_suffix(b"\r\n\r\n")?).ok()?;
        let status = head.strip_prefix("HTTP/1.")?.get(2..5)?;
        let mut lines = head.split("\r\n").skip(1);
        // Every answer of ours to a bad request says why.
        if head.contains("\r\n\r\n") || !lines.any(|line| line.eq_ignore_ascii_case("content-length: 0")) {
            return None;
        }
        let (status, error) = match status {
            "400" => (StatusCode::BAD_REQUEST, "the request is not valid HTTP/1.1".to_owned()),
            "414" => {
                (StatusCode::URI_TOO_LONG, "the request target is too long: at most 65534 bytes".to_owned())
            }
            "431" => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                format!(
                    "the request line and headers are too large: at most {} bytes and {} headers",
                    limits::HEADER_BLOCK_MAX_BYTES,
                    limits::HEADERS_MAX
                ),
            ),
            _ => return None,
        };
        Some(Refusal::new(status, &error))
    }

    /// There is no room for a head of this size beside those of others.
    pub fn heads_crowded() -> Refusal {
        Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many bytes of request headers in flight; try again",
        )
    }

    /// A line of the head has no carriage return.
    pub fn bare_line_feed() -> Refusal {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            "a line of the request head ends with a line feed alone; it must end with CR LF",
        )
    }

    /// What is still to be sent.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// So many bytes of that were sent; whether that was all.
    pub fn sent(&mut self, bytes: usize) -> bool {
        self.sent += bytes;
        self.rest().is_empty()
    }
}

/// The lines of a head as it arrives.
#[derive(Clone, Copy, Default)]
pub(super) struct Lines {
    last: u8,
    /// Bytes of the line under way.
    line_bytes: usize,
    /// A line that is not empty has come.
    begun: bool,
}

impl Lines {
    /// Lines of a head that follows another request on its connection. Its first bytes may have come together with the end of that request,
    /// and then nobody has looked at them: the last of them may have been a carriage return.
    pub fn after_a_request() -> Lines {
        Lines { last: b'\r', ..Lines::default() }
    }

    /// Looks at more bytes. Returns how many of them follow the end of the head, or `None` if the head has not ended.
    ///
    /// # Errors
    /// A line that ends without a carriage return. The parser takes it, but a proxy before it may see other lines, and so other requests.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Option<usize>, Refusal> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let before = end.checked_sub(1).map_or(self.last, |at| bytes[at]);
            if before != b'\r' {
                return Err(Refusal::bare_line_feed());
            }
            // Empty lines before a request mean nothing.
            let is_empty = self.line_bytes + end == 1;
            if is_empty && self.begun {
                return Ok(Some(bytes.len() - end - 1));
            }
            self.begun |= !is_empty;
            (self.last, self.line_bytes) = (b'\n', 0);
            bytes = &bytes[end + 1..];
        }
        self.line_bytes += bytes.len();
        self.last = bytes.last().copied().unwrap_or(self.last);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_heads_whatever_their_pieces() {
        for (head, expected) in [
            (&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], Ok(Some(0))),
            (b"\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\n", Ok(Some(0))),
            (b"GET / HTTP/1.1\r\nhost: x\r\n", Ok(None)),
            (b"GET / HTTP/1.1\nhost: x\r\n\r\n", Err(())),
            (b"GET / HTTP/1.1\r\nhost: x\n\r\n", Err(())),
            (b"GET / HTTP/1.1\r\nhost: x\r\n\n", Err(())),
            (b"\nGET / HTTP/1.1\r\nhost: x\r\n\r\n", Err(())),
        ] {
            for piece in 1..=head.len() {
                let mut lines = Lines::default();
                let mut seen = Ok(None);
                for bytes in head.chunks(piece) {
                    seen = lines.feed(bytes).map_err(|_| ());
                    if seen != Ok(None) {
                        break;
                    }
                }
                assert_eq!(seen, expected, "{:?} in pieces of {piece}", String::from_utf8_lossy(head));
            }
        }
    }

    #[test]
    fn a_head_whose_beginning_was_not_seen_may_go_on_with_a_line_feed() {
        for (rest, expected) in [(&b"\nhost: x\r\n\r\n"[..], Ok(Some(0))), (b"x\nhost: x\r\n\r\n", Err(()))] {
            assert_eq!(Lines::after_a_request().feed(rest).map_err(|_| ()), expected);
        }
    }

    #[test]
    fn what_follows_the_head_is_told_apart() {
        let request = b"POST / HTTP/1.1\r\nhost: x\r\n\r\na body\r\n\r\nof two lines";
        assert_eq!(Lines::default().feed(request).ok(), Some(Some(22)));
    }

    #[test]
    fn only_answers_of_the_parser_are_replaced() {
        let parser =
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let refusal = Refusal::instead_of(parser).expect("it has no body");
        let text = String::from_utf8(refusal.rest().to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{head}");
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
        assert!(serde_json::from_str::<serde_json::Value>(body).unwrap()["error"].is_string());
        for other in [
            &b"HTTP/1.1 400 Bad Request\r\ncontent-length: 20\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            b"\r\n\r\n",
            b"",
        ] {
            assert!(Refusal::instead_of(other).is_none(), "{:?}", String::from_utf8_lossy(other));
        }
    }
}
