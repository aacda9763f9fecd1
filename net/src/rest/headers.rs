//! Headers that change what a request means, beside those of credentials and media types.

use crate::auth::bearer_token;
use crate::http::Encoding;
use crate::op::{ApiError, ErrorKind};
use ::http::HeaderMap;
use ::http::header::{
    AUTHORIZATION, CONTENT_ENCODING, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE,
};
use nigh_engine::quoted::quoted;

/// Conditions of HTTP, which this server does not judge: versions of points are not entity tags.
const PRECONDITIONS: [HeaderName; 4] = [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];

/// The token of a request, as it was sent; `None` if it has none.
///
/// # Errors
/// 400 for several `Authorization` headers: the server cannot know which of them the sender means.
pub fn token(headers: &HeaderMap) -> Result<Option<&[u8]>, ApiError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let token = values.next().map(|value| bearer_token(value.as_bytes()));
    match values.next() {
        None => Ok(token),
        Some(_) => Err(ApiError::invalid("a request may have only one authorization header")),
    }
}

/// Refuses a change that is to be made under a condition nobody would look at.
///
/// # Errors
/// 400.
pub fn refuse_preconditions(headers: &HeaderMap) -> Result<(), ApiError> {
    match PRECONDITIONS.iter().find(|name| headers.contains_key(*name)) {
        Some(name) => Err(ApiError::invalid(format!(
            "the header {name} is not supported on requests that change data; expected_version is the condition of a point"
        ))),
        None => Ok(()),
    }
}

/// How the body is encoded.
///
/// # Errors
/// 415.
pub fn encoding(headers: &HeaderMap) -> Result<Encoding, ApiError> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let Some(value) = values.next() else { return Ok(Encoding::Identity) };
    let name = value.to_str().unwrap_or("?").trim().to_ascii_lowercase();
    match name.as_str() {
        "" | "identity" if values.next().is_none() => Ok(Encoding::Identity),
        "gzip" | "x-gzip" if values.next().is_none() => Ok(Encoding::Gzip),
        _ => Err(ApiError::new(
            ErrorKind::Unsupported,
            format!(
                "content-encoding {} is not supported; it must be gzip or identity, and stand alone",
                quoted(&name)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_ENCODING, value.parse().unwrap());
            }
            encoding(&headers).map_err(|error| error.kind)
        };
        assert_eq!(of(&[]), Ok(Encoding::Identity));
        assert_eq!(of(&["Identity"]), Ok(Encoding::Identity));
        assert_eq!(of(&["GZIP"]), Ok(Encoding::Gzip));
        for values in [&["br"][..], &["gzip, gzip"], &["gzip", "gzip"], &["deflate"]] {
            assert_eq!(of(values), Err(ErrorKind::Unsupported), "{values:?}");
        }
    }

    #[test]
    fn preconditions_are_named() {
        let mut headers = HeaderMap::new();
        assert_eq!(refuse_preconditions(&headers), Ok(()));
        headers.insert(IF_MATCH, "\"3\"".parse().unwrap());
        assert!(refuse_preconditions(&headers).unwrap_err().message.contains("if-match"));
    }
}
