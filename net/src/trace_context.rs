//! The trace that a request belongs to, as its `traceparent` names it (W3C Trace Context).
//!
//! The server begins no spans of its own and sends no `traceparent`. It only names the trace in the access log.

/// What a `traceparent` says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace: 32 lower-case hexadecimal digits, not all 0.
    pub trace_id: String,
    /// The span of the client that sent the request: 16 lower-case hexadecimal digits, not all 0.
    pub parent_id: String,
}

/// The length in bytes of a `traceparent` of version 00: `00-<trace id>-<parent id>-<flags>`. Later versions begin in the same way.
const VERSION_00_BYTES: usize = 55;

impl TraceContext {
    /// Reads the values of all headers named `traceparent`. No value, several values and a value that is not valid all mean that there is no trace.
    pub fn read<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<TraceContext> {
        let value = values.next()?;
        if values.next().is_some() {
            return None;
        }
        let (first, rest) = value.split_at_checked(VERSION_00_BYTES)?;
        let mut parts = std::str::from_utf8(first).ok()?.split('-');
        let mut part = |digits: usize| parts.next().filter(|part| is_hex(part, digits));
        let (version, trace_id, parent_id, _flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        let is_known = match version {
            "00" => rest.is_empty(),
            // The specification forbids this number.
            "ff" => false,
            // A later version may have further parts.
            _ => rest.first().is_none_or(|next| *next == b'-'),
        };
        let is_zero = |id: &str| id.bytes().all(|digit| digit == b'0');
        (is_known && !is_zero(trace_id) && !is_zero(parent_id))
            .then(|| TraceContext { trace_id: trace_id.to_owned(), parent_id: parent_id.to_owned() })
    }
}

fn is_hex(part: &str, digits: usize) -> bool {
    part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00f067aa0ba902b7";

    fn read(values: &[&str]) -> Option<TraceContext> {
        TraceContext::read(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn valid_ones_name_trace_and_parent() {
        for value in [
            format!("00-{TRACE}-{PARENT}-01"),
            format!("00-{TRACE}-{PARENT}-00"),
            format!("00-{TRACE}-{PARENT}-ff"),
            // These values are of later versions.
            format!("01-{TRACE}-{PARENT}-01"),
            format!("cc-{TRACE}-{PARENT}-01-what-is-to-come"),
            format!("fe-{TRACE}-{PARENT}-01-"),
        ] {
            let expected = TraceContext { trace_id: TRACE.to_owned(), parent_id: PARENT.to_owned() };
            assert_eq!(read(&[&value]), Some(expected), "{value}");
        }
    }

    #[test]
    fn what_is_not_valid_is_no_trace() {
        for value in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-{PARENT}"),
            format!("00-{TRACE}-{PARENT}-1"),
            format!("00-{TRACE}-{PARENT}-011"),
            format!("00-{TRACE}-{PARENT}-01-x"),
            format!("00-{TRACE}-{PARENT}-0g"),
            format!("00-{TRACE}-{PARENT}-0A"),
            format!("0-{TRACE}-{PARENT}-001"),
            format!("ff-{TRACE}-{PARENT}-01"),
            format!("FE-{TRACE}-{PARENT}-01"),
            format!("01-{TRACE}-{PARENT}-01x"),
            format!("01-{TRACE}-{PARENT}-01.x"),
            format!("00-{}-{PARENT}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{}-01", PARENT.to_uppercase()),
            format!("00-{}-{PARENT}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}0-{}-01", &PARENT[1..]),
            format!("00_{TRACE}_{PARENT}_01"),
            format!(" 00-{TRACE}-{PARENT}-0"),
            format!("00-{TRACE}-{PARENT}-01,00-{TRACE}-{PARENT}-01"),
            format!("00-{}é-{PARENT}-01", &TRACE[2..]),
        ] {
            assert_eq!(read(&[&value]), None, "{value}");
        }
        let valid = format!("00-{TRACE}-{PARENT}-01");
        assert_eq!((read(&[]), read(&[&valid, &valid])), (None, None));
    }
}
