//! A connection to a server over HTTP that waits and tries again, within bounds, when the server is busy or the connection fails.
use super::options::not_connected;
use crate::bench::client::{Client, Response, Target, encode_into};
use serde::Deserialize;
use std::io;
use std::time::Duration;

/// Media type of JSON bodies.
pub const JSON: &str = "application/json";
/// The first wait before a request is sent again; it doubles with each try.
const WAIT_FIRST: Duration = Duration::from_millis(250);
/// The longest wait, whatever the server asks for.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// What the server says, beside the status 429, when a collection takes no more writes for the moment.
const RATE_LIMITED: &str = "rate limited";

/// A connection, made when it is first needed.
pub struct Remote {
    target: Target,
    client: Option<Client>,
    request: Vec<u8>,
    /// Failures in a row.
    failures: u32,
    retries: u32,
}

/// An answer.
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Whole body.
    pub body: Vec<u8>,
    retry_after: Option<Duration>,
}

/// Why a request has no answer.
#[derive(Debug)]
pub enum Lost {
    /// The connection failed, so that the request may have been carried out.
    Connection(io::Error),
    /// The answer is longer than was asked for.
    TooLarge,
}

/// What a failure says.
#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    error: String,
    committed: Option<usize>,
}

impl Reply {
    /// Whether it is a success.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether the same request may succeed a little later.
    pub fn is_busy(&self) -> bool {
        match self.status {
            503 => true,
            429 => self.retry_after.is_some() || self.reason().contains(RATE_LIMITED),
            _ => false,
        }
    }

    /// The reason of a failure in the words of the server.
    pub fn reason(&self) -> String {
        match serde_json::from_slice::<Failure>(&self.body) {
            Ok(failure) if !failure.error.is_empty() => failure.error,
            _ => format!("status {}: {}", self.status, String::from_utf8_lossy(&self.body).trim()),
        }
    }

    /// Points of a batch that were processed before the one that failed, if the server says so.
    pub fn committed(&self) -> Option<usize> {
        serde_json::from_slice::<Failure>(&self.body).ok().and_then(|failure| failure.committed)
    }

    /// A failure as a sentence about `what`, with a hint about the flags that may help.
    pub fn sentence(&self, what: &str) -> String {
        let response = Response { status: self.status, body: &self.body, retry_after: None };
        response.success(what).err().unwrap_or_else(|| format!("{what}: status {}", self.status))
    }
}

impl Remote {
    /// A connection that tries again `retries` times in a row.
    pub fn new(target: Target, retries: u32) -> Remote {
        Remote { target, client: None, request: Vec::new(), failures: 0, retries }
    }

    /// The server as URL.
    pub fn url(&self) -> String {
        self.target.url()
    }

    /// Sends a request once. Its answer may have `limit` bytes.
    ///
    /// # Errors
    /// There is no answer; [`Self::wait`] comes before the next try.
    pub fn once(&mut self, request: &Request<'_>, limit: usize) -> Result<Reply, Lost> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::connect(&self.target).map_err(Lost::Connection)?),
        };
        client.limit_answers(limit);
        encode_into(
            &mut self.request,
            &self.target,
            request.method,
            request.path,
            request.media,
            request.body,
        );
        let answered = client.send(&self.request).map(|response| Reply {
            status: response.status,
            body: response.body.to_vec(),
            retry_after: response.retry_after,
        });
        match answered {
            Ok(reply) => {
                if !reply.is_busy() {
                    self.failures = 0;
                }
                Ok(reply)
            }
            Err(error) => {
                // The rest of an answer may still be on its way.
                self.client = None;
                match error.kind() {
                    io::ErrorKind::FileTooLarge => Err(Lost::TooLarge),
                    _ => Err(Lost::Connection(error)),
                }
            }
        }
    }

    /// Waits before another try: twice as long with each failure in a row, and at least as long as a busy server asks for.
    ///
    /// # Errors
    /// A sentence about the last failure, when there were too many in a row.
    pub fn wait(&mut self, failure: &Result<Reply, Lost>) -> Result<(), String> {
        self.failures += 1;
        if self.failures > self.retries {
            let tries = match self.retries {
                0 => String::new(),
                retries => format!(" (tried {} times)", retries + 1),
            };
            return Err(match failure {
                Ok(reply) => format!("{}{tries}", reply.sentence("the server is busy")),
                Err(Lost::Connection(error)) => format!("{}{tries}", not_connected(&self.target, error)),
                Err(Lost::TooLarge) => "the answer is too large".into(),
            });
        }
        let asked = failure.as_ref().ok().and_then(|reply| reply.retry_after);
        let doubled = WAIT_FIRST.saturating_mul(1 << (self.failures - 1).min(10));
        std::thread::sleep(asked.map_or(doubled, |asked| asked.max(doubled)).min(WAIT_MAX));
        Ok(())
    }

    /// Sends a request that changes nothing, or may be carried out twice, until it is answered.
    ///
    /// # Errors
    /// A sentence, when there were too many failures in a row. `Ok(None)` when the answer is longer than `limit`.
    pub fn ask(&mut self, request: &Request<'_>, limit: usize) -> Result<Option<Reply>, String> {
        loop {
            match self.once(request, limit) {
                Ok(reply) if !reply.is_busy() => return Ok(Some(reply)),
                Err(Lost::TooLarge) => return Ok(None),
                failure => self.wait(&failure)?,
            }
        }
    }

    /// Like [`Self::ask`], with whatever answer a client takes.
    ///
    /// # Errors
    /// A sentence.
    pub fn answer(&mut self, request: &Request<'_>) -> Result<Reply, String> {
        self.ask(request, usize::MAX)?.ok_or_else(|| format!("{}: the answer is too large", request.path))
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Method.
    pub method: &'a str,
    /// Path, percent-encoded.
    pub path: &'a str,
    /// Media type of the body.
    pub media: &'a str,
    /// Body.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// A request without a body.
    pub fn get(path: &'a str) -> Request<'a> {
        Request { method: "GET", path, media: JSON, body: b"" }
    }

    /// A request with a JSON body.
    pub fn post(path: &'a str, body: &'a [u8]) -> Request<'a> {
        Request { method: "POST", path, media: JSON, body }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A server that gives each request, on whatever connection, the next of `answers`; an empty one closes the connection instead.
    pub fn serve(answers: Vec<&'static str>) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        std::thread::spawn(move || {
            let mut answers = answers.into_iter();
            'connections: loop {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                while stream.read(&mut request).is_ok_and(|read| read > 0) {
                    match answers.next() {
                        Some("") => continue 'connections,
                        Some(answer) => stream.write_all(answer.as_bytes()).unwrap(),
                        None => return,
                    }
                }
            }
        });
        target
    }

    const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n";
    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    const LIMITED: &str = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 40\r\n\r\n{\"error\":\"rate limited\",\"committed\":3}   ";
    const FULL: &str = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 40\r\n\r\n{\"error\":\"collection full\"}             ";

    #[test]
    fn a_busy_server_and_a_lost_connection_are_tried_again() {
        let mut remote = Remote::new(serve(vec![BUSY, "", LIMITED, BUSY, OK, FULL]), 4);
        assert_eq!(remote.answer(&Request::get("/")).unwrap().status, 200);
        assert_eq!(remote.failures, 0);
        let reply = remote.answer(&Request::get("/")).unwrap();
        assert_eq!((reply.status, reply.reason().as_str()), (429, "collection full"));
    }

    #[test]
    fn there_is_an_end_to_trying() {
        let mut remote = Remote::new(serve(vec![BUSY, BUSY, BUSY, OK]), 2);
        let error = remote.answer(&Request::get("/")).err().unwrap();
        assert!(error.contains("status 503") && error.contains("tried 3 times"), "{error}");
        let mut remote = Remote::new(Target::parse("http://127.0.0.1:1").unwrap(), 0);
        assert!(remote.answer(&Request::get("/")).err().unwrap().contains("-url"));
    }

    #[test]
    fn long_answers_are_told_apart() {
        let mut remote = Remote::new(serve(vec![OK, OK]), 0);
        assert!(remote.ask(&Request::get("/"), 1).unwrap().is_none());
    }
}
