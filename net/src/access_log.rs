//! The access log: one line per request on every transport, with tokens only as fingerprints.
//!
//! Values that clients have sent are cut here, and escaped where lines are made.

use crate::trace_context::TraceContext;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

/// One request under way; the line is written when it is dropped.
pub struct AccessEntry {
    /// Inbound or generated id.
    pub request_id: String,
    /// `http`, `grpc` or `tcp`.
    pub transport: &'static str,
    /// `METHOD /path`, full gRPC method, or TCP operation name.
    pub op: String,
    /// Status in the transport's words.
    pub status: String,
    /// `token:<fingerprint>`, `cn:<common name>`, or empty.
    pub principal: String,
    /// Response body bytes.
    pub bytes: u64,
    /// When the request was understood.
    pub started: Instant,
    /// The trace that the request belongs to, if it names one.
    pub trace: Option<TraceContext>,
}

/// The first `bytes` bytes of a text, cut between two characters.
pub fn shortened(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

impl Drop for AccessEntry {
    fn drop(&mut self) {
        let latency_ms = self.started.elapsed().as_micros() as f64 / 1000.0;
        tracing::info!(
            target: "access",
            request_id = self.request_id,
            transport = self.transport,
            op = self.op,
            status = self.status,
            latency_ms,
            principal = self.principal,
            bytes = self.bytes,
            trace_id = self.trace.as_ref().map(|trace| &*trace.trace_id),
            parent_id = self.trace.as_ref().map(|trace| &*trace.parent_id),
            "access"
        );
    }
}

/// Makes request ids on one core: `<8 hex>-<counter base 36>`.
pub struct RequestIds {
    prefix: u32,
    counter: Cell<u64>,
}

impl RequestIds {
    /// With a prefix of its own.
    pub fn new() -> Self {
        // The standard library seeds each hasher state from the system's random source.
        RequestIds { prefix: RandomState::new().hash_one(0) as u32, counter: Cell::new(0) }
    }

    /// The inbound id when it is 1 to 128 printable ASCII characters, else a fresh one.
    pub fn choose(&self, inbound: Option<&[u8]>) -> String {
        if let Some(inbound) = inbound
            && (1..=128).contains(&inbound.len())
            && inbound.iter().all(|byte| (b' '..=b'~').contains(byte))
            && let Ok(id) = std::str::from_utf8(inbound)
        {
            return id.to_owned();
        }
        let count = self.counter.get();
        self.counter.set(count + 1);
        format!("{:08x}-{}", self.prefix, base36(count))
    }
}

impl Default for RequestIds {
    fn default() -> Self {
        RequestIds::new()
    }
}

fn base36(mut value: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[(value % 36) as usize]);
        value /= 36;
        if value == 0 {
            break;
        }
    }
    digits.iter().rev().map(|digit| char::from(*digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inbound_ids_are_kept_when_printable() {
        let ids = RequestIds::new();
        assert_eq!(ids.choose(Some(b"abc-1 ~")), "abc-1 ~");
        for bad in [&b""[..], b"a\tb", b"\xc3\xa9", &[b'x'; 129]] {
            let id = ids.choose(Some(bad));
            assert_eq!(&id[8..9], "-", "{id}");
        }
        assert_ne!(ids.choose(None), ids.choose(None));
    }

    #[test]
    fn base36_digits() {
        for (value, text) in [(0, "0"), (35, "z"), (36, "10"), (u64::MAX, "3w5e11264sgsf")] {
            assert_eq!(base36(value), text);
        }
    }
}
