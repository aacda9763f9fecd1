//! Calls on records in the payloads of points: `…/points/{id}/operate`.
//!
//! A call and its result are those of the operation `operate` of the binary protocol, as base64 (with padding, alphabet `+/`), like the
//! value of a record in a payload.

use crate::op::{ApiError, OperatePoint, SentId, check_call};
use crate::rest::parameters::WriteParameters;
use crate::wire::json::{decode, json_object};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

json_object! {
    /// Body of `…/points/{id}/operate`.
    pub struct OperateBody {
        "key" => key: String,
        "call" => call: String,
        "write_consistency_factor" => write_consistency_factor: i64,
        "wait" => wait: bool,
        "expected_version" => expected_version: u64,
    }
}

/// Decodes such a body, whose query string states `write`.
///
/// # Errors
/// 400.
pub fn decode_operate(
    collection: String,
    id: SentId,
    body: &[u8],
    write: WriteParameters,
) -> Result<OperatePoint, ApiError> {
    let body: OperateBody = decode(body)?;
    let key = body.key.unwrap_or_default();
    let call = STANDARD
        .decode(body.call.unwrap_or_default())
        .map_err(|error| ApiError::invalid(format!("call: a call is sent as base64: {error}")))?;
    check_call(&key, &call)?;
    let write = write.with_body(WriteParameters {
        write_consistency_factor: body.write_consistency_factor,
        wait: body.wait,
        expected_version: body.expected_version,
    })?;
    Ok(OperatePoint { collection, id, key, call, write })
}

/// The answer: `{"result":"<base64>","version":n}`.
pub fn operated_answer(result: &[u8], version: u64) -> String {
    format!("{{\"result\":\"{}\",\"version\":{version}}}\n", STANDARD.encode(result))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dynamic, adds 1 to the field `n`, and returns it.
    const CALL: &str = "AAAAAAAAAAAAAAACAAAAAQMDAAEBAW4AAAAAAAAAAQAAAAAAAAAAAAAAAQABAQFu";

    fn decoded(body: &str) -> Result<(String, usize, Option<u64>), String> {
        let request = decode_operate("docs".into(), 7.into(), body.as_bytes(), WriteParameters::default());
        request
            .map(|request| (request.key, request.call.len(), request.write.expected_version))
            .map_err(|error| error.message)
    }

    #[test]
    fn bodies() {
        let body = format!(r#"{{"key":"stats","call":"{CALL}","expected_version":3}}"#);
        assert_eq!(decoded(&body), Ok(("stats".to_owned(), 48, Some(3))));
        for (body, fragment) in [
            ("{}", "operate call arguments invalid"),
            (r#"{"key":"stats"}"#, "args too short"),
            (r#"{"key":"stats","call":"AAA"}"#, "call: a call is sent as base64"),
            (r#"{"key":"stats","call":7}"#, "field \"call\""),
            (&format!(r#"{{"call":"{CALL}"}}"#), "operate call arguments invalid"),
            (&format!(r#"{{"key":"stats","call":"{CALL}","cal":""}}"#), "unknown field \"cal\""),
        ] {
            let refused = decoded(body).expect_err(body);
            assert!(refused.contains(fragment), "{body}: {refused}");
        }
    }

    #[test]
    fn answers() {
        assert_eq!(operated_answer(&[0, 0, 0], 4), "{\"result\":\"AAAA\",\"version\":4}\n");
    }
}
