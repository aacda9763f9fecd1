//! RESP2, the protocol of Redis.
//!
//! ```text
//! GET key                   ->  $LENGTH, value      $-1 when absent
//! SET key value [PX ms]     ->  +OK
//! ```
use super::{Answer, Parsed, Protocol, body, length, line, put_decimal};
use crate::bench::kv::workload::{Class, Value};

/// Requests of one time to live.
pub struct Redis {
    set_head: &'static [u8],
    /// What follows the value in SET, its end of line included.
    set_tail: Vec<u8>,
}

impl Redis {
    /// `ttl_ms` 0 is for ever.
    pub fn new(ttl_ms: u64) -> Redis {
        if ttl_ms == 0 {
            return Redis { set_head: b"*3\r\n$3\r\nSET\r\n", set_tail: b"\r\n".to_vec() };
        }
        let digits = ttl_ms.to_string();
        let set_tail = format!("\r\n$2\r\nPX\r\n${}\r\n{digits}\r\n", digits.len()).into_bytes();
        Redis { set_head: b"*5\r\n$3\r\nSET\r\n", set_tail }
    }
}

/// Appends the length of a bulk string.
fn put_length(out: &mut Vec<u8>, len: usize) {
    out.push(b'$');
    put_decimal(out, len);
    out.extend_from_slice(b"\r\n");
}

impl Protocol for Redis {
    fn put_get(&self, out: &mut Vec<u8>, key: &[u8]) {
        out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
        put_length(out, key.len());
        out.extend_from_slice(key);
        out.extend_from_slice(b"\r\n");
    }

    fn put_set(&self, out: &mut Vec<u8>, key: &[u8], value: &Value<'_>) {
        out.extend_from_slice(self.set_head);
        put_length(out, key.len());
        out.extend_from_slice(key);
        out.extend_from_slice(b"\r\n");
        put_length(out, value.len());
        value.put(out);
        out.extend_from_slice(&self.set_tail);
    }

    fn answer<'a>(&self, class: Class, bytes: &'a [u8]) -> Parsed<'a> {
        let (line, consumed) = match line(bytes) {
            Ok(Some(found)) => found,
            Ok(None) => return Parsed::Incomplete,
            Err(broken) => return broken,
        };
        let answer = match (line, class) {
            (b"+OK", Class::Set) => Answer::Stored,
            (b"$-1", Class::Get) => Answer::Missing,
            ([b'$', digits @ ..], Class::Get) => match length(digits) {
                Some(len) => return body(bytes, consumed, len),
                None => return Parsed::Broken("a string without a length"),
            },
            ([b'-', text @ ..], _) => Answer::Refused(text),
            // A simple string or a number is whole, but answers something else.
            ([b'+' | b':', ..], _) => Answer::Refused(line),
            _ => return Parsed::Broken("no answer of RESP2 to GET or SET"),
        };
        Parsed::Whole { answer, consumed }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{broken, check, encoded};
    use super::*;

    #[test]
    fn requests() {
        let (get, set, value) = encoded(&Redis::new(0));
        assert_eq!(get, b"*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n");
        let head = &b"\r\n$3\r\nSET\r\n$2\r\nk1\r\n$2\r\n"[..];
        assert_eq!(set, [b"*3", head, &value, b"\r\n"].concat());
        let (_, set, _) = encoded(&Redis::new(1500));
        assert_eq!(set, [b"*5", head, &value, b"\r\n$2\r\nPX\r\n$4\r\n1500\r\n"].concat());
    }

    #[test]
    fn answers() {
        let redis = Redis::new(0);
        check(&redis, Class::Get, b"$2\r\nvv\r\n", Answer::Value(b"vv"));
        check(&redis, Class::Get, b"$2\r\n\r\n\r\n", Answer::Value(b"\r\n"));
        check(&redis, Class::Get, b"$0\r\n\r\n", Answer::Value(b""));
        check(&redis, Class::Get, b"$-1\r\n", Answer::Missing);
        check(&redis, Class::Set, b"+OK\r\n", Answer::Stored);
        check(&redis, Class::Get, b"+OK\r\n", Answer::Refused(b"+OK"));
        check(&redis, Class::Set, b":1\r\n", Answer::Refused(b":1"));
        for class in [Class::Get, Class::Set] {
            check(
                &redis,
                class,
                b"-OOM command not allowed\r\n",
                Answer::Refused(b"OOM command not allowed"),
            );
        }
    }

    #[test]
    fn garbage() {
        let redis = Redis::new(0);
        for bytes in [&b"\r\n"[..], b"OK\r\n", b"+OK\n", b"*1\r\n", b"VA 2\r\n", &[b'+'; 4096]] {
            broken(&redis, bytes);
        }
        for bytes in [&b"$\r\n"[..], b"$-2\r\n", b"$x\r\n", b"$2\r\nvvv\r", b"$99999999999\r\n"] {
            let found = redis.answer(Class::Get, bytes);
            assert!(matches!(found, Parsed::Broken(_)), "{bytes:?}: {found:?}");
        }
    }
}
