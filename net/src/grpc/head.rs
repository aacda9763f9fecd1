//! What the headers of a call say, beside its path.

use crate::auth::bearer_token;
use crate::grpc::status::{Code, Status};
use crate::gunzip::Encoding;
use crate::limits::GRPC_QUOTED_BYTES;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};

/// The media type of gRPC. Another serialization may be named behind a plus sign.
pub const MEDIA_TYPE: &str = "application/grpc";

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// A client that waits for longer than a year waits for a year, which every clock can add.
const TIMEOUT_MAX_US: u64 = 365 * 24 * 3_600_000_000;

/// See the module. What is not here is dropped with the headers, before anything else of the call is received.
#[derive(Debug, PartialEq)]
pub struct Head {
    /// The token, as the transport carries it.
    pub token: Option<Vec<u8>>,
    /// What else the client states, or how the call of whoever may make it ends where that is not understood.
    pub terms: Result<Terms, Status>,
}

/// What a call goes by.
#[derive(Debug, PartialEq)]
pub struct Terms {
    /// How long the client waits.
    pub timeout_us: Option<u64>,
    /// How compressed messages are compressed.
    pub encoding: Encoding,
}

impl Head {
    /// Reads the head of a request.
    ///
    /// # Errors
    /// It is no call of gRPC: this status of HTTP answers it.
    pub fn of(parts: &Parts) -> Result<Head, StatusCode> {
        if parts.method != Method::POST {
            return Err(StatusCode::METHOD_NOT_ALLOWED);
        }
        let value = |name: HeaderName| parts.headers.get(name).map(|value| value.as_bytes());
        if !value(CONTENT_TYPE).is_some_and(is_grpc) {
            return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        Ok(Head {
            token: value(AUTHORIZATION).map(|value| bearer_token(value).to_vec()),
            terms: Terms::of(&parts.headers),
        })
    }

    /// How long the client waits, where it says so.
    pub fn timeout_us(&self) -> Option<u64> {
        self.terms.as_ref().ok().and_then(|terms| terms.timeout_us)
    }
}

impl Terms {
    fn of(headers: &HeaderMap) -> Result<Terms, Status> {
        if headers.get_all(AUTHORIZATION).iter().nth(1).is_some() {
            // The server cannot know which of them the sender means.
            return Err(Status::new(Code::InvalidArgument, "a call may have only one authorization header"));
        }
        let timeout = headers.get(GRPC_TIMEOUT).map(|value| timeout_us(value.as_bytes()));
        Ok(Terms { timeout_us: timeout.transpose()?, encoding: encoding(headers)? })
    }
}

fn is_grpc(value: &[u8]) -> bool {
    let Some(rest) = value.strip_prefix(MEDIA_TYPE.as_bytes()) else { return false };
    let rest = rest.strip_prefix(b"+proto").unwrap_or(rest).trim_ascii_start();
    rest.is_empty() || rest.starts_with(b";")
}

/// One to eight digits and a unit; as much as a timer takes.
fn timeout_us(value: &[u8]) -> Result<u64, Status> {
    let malformed = || {
        let shown = String::from_utf8_lossy(&value[..value.len().min(GRPC_QUOTED_BYTES)]);
        Status::new(
            Code::InvalidArgument,
            format!("grpc-timeout {shown:?} is not up to eight digits and a unit"),
        )
    };
    let (unit, digits) = value.split_last().ok_or_else(malformed)?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return Err(malformed());
    }
    let amount = digits.iter().fold(0, |amount, digit| amount * 10 + u64::from(digit - b'0'));
    let us: u64 = match unit {
        b'H' => amount * 3_600_000_000,
        b'M' => amount * 60_000_000,
        b'S' => amount * 1_000_000,
        b'm' => amount * 1000,
        b'u' => amount,
        b'n' => amount.div_ceil(1000),
        _ => return Err(malformed()),
    };
    Ok(us.min(TIMEOUT_MAX_US))
}

fn encoding(headers: &HeaderMap) -> Result<Encoding, Status> {
    match headers.get(GRPC_ENCODING).map(|value| value.as_bytes()) {
        None | Some(b"identity") => Ok(Encoding::Identity),
        Some(b"gzip") => Ok(Encoding::Gzip),
        Some(other) => {
            let name = String::from_utf8_lossy(&other[..other.len().min(GRPC_QUOTED_BYTES)]);
            let text = format!("grpc-encoding {name:?} is not supported; it must be gzip or identity");
            Err(Status::new(Code::Unimplemented, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn read(headers: &[(&str, &str)]) -> Head {
        let mut request = Request::post("/a/b").header("content-type", "application/grpc");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Head::of(&request.body(()).unwrap().into_parts().0).unwrap()
    }

    #[test]
    fn what_is_no_call() {
        let of = |request: http::request::Builder| Head::of(&request.body(()).unwrap().into_parts().0);
        let get = Request::get("/").header("content-type", "application/grpc");
        assert_eq!(of(get), Err(StatusCode::METHOD_NOT_ALLOWED));
        let unsupported = Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(of(Request::post("/")), unsupported);
        for other in ["application/json", "application/grpc-web", "application/grpc+json", "application/grp"]
        {
            assert_eq!(of(Request::post("/").header("content-type", other)), unsupported, "{other}");
        }
        for good in ["application/grpc", "application/grpc+proto", "application/grpc; charset=utf-8"] {
            assert!(of(Request::post("/").header("content-type", good)).is_ok(), "{good}");
        }
    }

    #[test]
    fn timeouts() {
        for (value, us) in [
            ("1H", 3_600_000_000),
            ("99999999H", TIMEOUT_MAX_US),
            ("2M", 120_000_000),
            ("3S", 3_000_000),
            ("250m", 250_000),
            ("7u", 7),
            ("1n", 1),
            ("0n", 0),
        ] {
            assert_eq!(read(&[("grpc-timeout", value)]).timeout_us(), Some(us), "{value}");
        }
        for bad in ["", "S", "1", "1s", "123456789S", "-1S", "1.5S", " 1S"] {
            let status = read(&[("grpc-timeout", bad)]).terms.expect_err(bad);
            assert!(status.code == Code::InvalidArgument && status.message.contains("grpc-timeout"), "{bad}");
        }
    }

    #[test]
    fn tokens_and_encodings() {
        let head = read(&[("authorization", "Bearer abc"), ("authorization", "other")]);
        assert_eq!(head.token.as_deref(), Some(&b"abc"[..]));
        let refused = head.terms.unwrap_err();
        assert!(refused.code == Code::InvalidArgument && refused.message.contains("only one"), "{refused:?}");
        let head = read(&[("authorization", "Bearer abc"), ("grpc-encoding", "gzip")]);
        assert_eq!(head.token.as_deref(), Some(&b"abc"[..]));
        assert_eq!(head.terms.unwrap().encoding, Encoding::Gzip);
        assert_eq!(read(&[("grpc-encoding", "identity")]).terms.unwrap().encoding, Encoding::Identity);
        // Whose call it is can be judged all the same.
        let head = read(&[("authorization", "Bearer abc"), ("grpc-encoding", "br")]);
        assert_eq!(head.token.as_deref(), Some(&b"abc"[..]));
        assert_eq!(head.terms.unwrap_err().code, Code::Unimplemented);
    }
}
