//! JSON requests to a server under test.
use nigh::client::{Client, Target, encode};
use serde_json::Value;
use std::io;

/// One connection to a server.
pub struct Api {
    target: Target,
    client: Client,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Body; null when empty or not JSON.
    pub body: Value,
}

impl Api {
    /// Connects to `authority` (`host:port`).
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn connect(authority: &str) -> io::Result<Api> {
        Api::to(Target { authority: authority.to_owned(), ..Target::default() })
    }

    /// Connects to `authority` and sends `key` with every request.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn connect_with_key(authority: &str, key: &str) -> io::Result<Api> {
        Api::to(Target {
            authority: authority.to_owned(),
            api_key: Some(key.to_owned()),
            ..Target::default()
        })
    }

    fn to(target: Target) -> io::Result<Api> {
        Ok(Api { client: Client::connect(&target)?, target })
    }

    /// Sends a JSON body (`Null` = none).
    ///
    /// # Errors
    /// The connection failed: the request may or may not have been carried out.
    pub fn send(&mut self, method: &str, path: &str, body: &Value) -> io::Result<Reply> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.send_bytes(method, path, "application/json", &body)
    }

    /// Sends bytes under a media type.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_bytes(&mut self, method: &str, path: &str, media: &str, body: &[u8]) -> io::Result<Reply> {
        let response = self.client.send(&encode(&self.target, method, path, media, body))?;
        Ok(Reply {
            status: response.status,
            body: serde_json::from_slice(response.body).unwrap_or(Value::Null),
        })
    }

    /// A page that is not JSON, such as the metrics.
    ///
    /// # Panics
    /// When the connection fails, or the answer is no success or no text.
    #[track_caller]
    pub fn page(&mut self, path: &str) -> String {
        let request = encode(&self.target, "GET", path, "text/plain", b"");
        let response = self.client.send(&request).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(response.status, 200, "{path}");
        String::from_utf8(response.body.to_vec()).expect("text")
    }

    /// Sends and expects success.
    ///
    /// # Panics
    /// When the connection fails or the status is no success.
    #[track_caller]
    pub fn ok(&mut self, method: &str, path: &str, body: Value) -> Value {
        let reply = self.send(method, path, &body).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        assert!((200..300).contains(&reply.status), "{method} {path}: {} {}", reply.status, reply.body);
        reply.body
    }
}
