//! The wire as an existing client uses it: one kept-alive connection, a fixed set of headers, lenient reading.

use nigh_tests::{Access, Server, Stream};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};

/// A server in memory that lets clients in by this mode.
pub fn server(access: &Access) -> Server {
    access.start(None, &["-cores", "2"])
}

/// One connection out of a client's pool.
pub struct Wire {
    stream: BufReader<Stream>,
    host: String,
    /// Header line with the client's token; empty without one.
    authorization: String,
}

/// An answer as it came.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body, without its framing.
    pub body: Vec<u8>,
}

impl Answer {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body, which is text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body is UTF-8")
    }

    /// What a client makes of it: from status 400 on the `error` string of a JSON body, else `HTTP <status>`; below, JSON
    /// or nothing.
    ///
    /// # Panics
    /// When a body of success is neither: the client raises there.
    pub fn read(&self) -> Result<Value, String> {
        let body: Option<Value> = serde_json::from_slice(&self.body).ok();
        if self.status >= 400 {
            let error = body.as_ref().and_then(|body| body["error"].as_str());
            return Err(error.map_or_else(|| format!("HTTP {}", self.status), str::to_owned));
        }
        match body {
            Some(body) => Ok(body),
            None => {
                assert!(self.body.is_empty(), "not JSON: {}", self.text());
                Ok(Value::Null)
            }
        }
    }

    /// The body of a success.
    #[track_caller]
    pub fn ok(&self) -> Value {
        self.read().unwrap_or_else(|error| panic!("{} {error}", self.status))
    }

    /// Status and error of a failure.
    #[track_caller]
    pub fn refused(&self) -> (u16, String) {
        match self.read() {
            Err(error) => (self.status, error),
            Ok(body) => panic!("not refused: {} {body}", self.status),
        }
    }
}

impl Wire {
    /// Connects as a client of this mode.
    pub fn connect(access: &Access, server: &Server) -> Wire {
        Wire::over(access.connect(server.authority()), access.authorization(), server)
    }

    /// Connects as somebody who shows neither a token nor a certificate.
    pub fn connect_as_stranger(access: &Access, server: &Server) -> Wire {
        Wire::over(access.connect_as_stranger(server.authority()), String::new(), server)
    }

    fn over(stream: Stream, authorization: String, server: &Server) -> Wire {
        Wire { stream: BufReader::new(stream), host: server.authority().to_owned(), authorization }
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let stream = self.stream.get_mut();
        stream.write_all(bytes.as_ref()).and_then(|()| stream.flush()).expect("the connection is open");
    }

    /// One line without its end.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the connection is open");
        assert!(line.ends_with("\r\n"), "the answer ends within a line: {line:?}");
        line.truncate(line.len() - 2);
        line
    }

    /// Reads one answer, by its length or chunk by chunk.
    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        let status = self.line();
        let status = status.strip_prefix("HTTP/1.1 ").expect(&status)[..3].parse().expect("a status");
        let mut answer = Answer { status, headers: Vec::new(), body: Vec::new() };
        loop {
            let line = self.line();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').expect(&line);
            answer.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let length = usize::from_str_radix(&self.line(), 16).expect("the length of a chunk");
                let mut chunk = vec![0; length + 2];
                self.stream.read_exact(&mut chunk).expect("a whole chunk");
                answer.body.extend_from_slice(&chunk[..length]);
                if length == 0 {
                    return answer;
                }
            }
        }
        let length = answer.header("content-length").expect("a length").parse().expect("a number");
        answer.body = vec![0; length];
        self.stream.read_exact(&mut answer.body).expect("a whole body");
        answer
    }

    /// Whether the connection has come to its end, without a byte that no request asked for.
    pub fn is_ended(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]), Ok(0))
    }

    /// Sends a request with the client's headers: the media type always, a length only with a body or a POST.
    #[track_caller]
    pub fn request(&mut self, method: &str, path: &str, media: &str, body: &[u8]) -> Answer {
        let length = match (method, body.len()) {
            ("GET" | "DELETE", 0) => String::new(),
            (_, length) => format!("Content-Length: {length}\r\n"),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept-Encoding: identity\r\n{length}\
             Content-Type: {media}\r\n{}\r\n",
            self.host, self.authorization
        );
        // Head and body leave in two writes, as the clients' HTTP library does it.
        self.send(head);
        self.send(body);
        self.answer()
    }

    /// Sends JSON text (empty = no body).
    #[track_caller]
    pub fn json(&mut self, method: &str, path: &str, body: &str) -> Answer {
        self.request(method, path, "application/json", body.as_bytes())
    }

    /// Sends a binary body.
    #[track_caller]
    pub fn binary(&mut self, path: &str, body: &[u8]) -> Answer {
        self.request("POST", path, "application/octet-stream", body)
    }

    /// Sends JSON text and expects exactly this answer, which ends with a newline.
    #[track_caller]
    pub fn exact(&mut self, method: &str, path: &str, body: &str, status: u16, expected: &str) {
        let answer = self.json(method, path, body);
        assert_eq!((answer.status, answer.text()), (status, format!("{expected}\n").as_str()), "{body}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }

    /// Sends JSON text and returns the answer's body.
    #[track_caller]
    pub fn ok(&mut self, method: &str, path: &str, body: &str) -> Value {
        self.json(method, path, body).ok()
    }

    /// Creates a collection the way clients do: nine keys always, `more` (`, "key": …`) only when set.
    #[track_caller]
    pub fn create(&mut self, name: &str, dim: usize, metric: &str, more: &str) {
        let body = format!(
            r#"{{"name": "{name}", "config": {{"dim": {dim}, "metric": "{metric}", "m": 0, "ef_construction": 0, "ef_search": 0, "seed": 0, "quant": "", "persistent": false, "rescore_factor": 0{more}}}}}"#
        );
        assert_eq!(self.json("POST", "/v1/collections", &body).read().map(drop), Ok(()), "{body}");
    }
}

/// Bytes written as hexadecimal digits; spaces and line ends are for the reader.
pub fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        digits.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A text behind its length of four bytes, as payloads and filters travel in binary bodies.
pub fn counted(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

/// The `id` of each element, in order.
#[track_caller]
pub fn ids(list: &Value) -> Vec<u64> {
    let list = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    list.iter().map(|one| one["id"].as_u64().unwrap_or_else(|| panic!("no integer id: {one}"))).collect()
}
