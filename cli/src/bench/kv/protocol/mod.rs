//! What a protocol has to offer to be measured: GET and SET to bytes, and bytes to answers.
//!
//! Encoders append to a buffer that is kept. Parsers look at the front of what was received, copy nothing and begin anew when
//! more has come: finding out that an answer is not whole yet costs a few nanoseconds, whatever its size.
pub mod memcached;
pub mod nigh;
pub mod redis;

use super::workload::{Class, Value};

/// One protocol, with what its requests have in common prepared.
pub trait Protocol: Sync {
    /// Appends a GET.
    fn put_get(&self, out: &mut Vec<u8>, key: &[u8]);

    /// Appends a SET, which replaces value and expiry.
    fn put_set(&self, out: &mut Vec<u8>, key: &[u8], value: &Value<'_>);

    /// Reads the answer to a request of `class` from the front of `bytes`.
    fn answer<'a>(&self, class: Class, bytes: &'a [u8]) -> Parsed<'a>;
}

/// What the front of a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// Not a whole answer yet.
    Incomplete,
    /// An answer.
    Whole {
        /// It.
        answer: Answer<'a>,
        /// Bytes it took.
        consumed: usize,
    },
    /// What follows cannot be told; says why.
    Broken(&'static str),
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// To GET: the value.
    Value(&'a [u8]),
    /// To GET: there is none.
    Missing,
    /// To SET: done.
    Stored,
    /// Anything else, as the server says it.
    Refused(&'a [u8]),
}

/// A longer line is none of an answer to us.
const LINE_BYTES_MAX: usize = 4096;

/// The first line of `bytes` without its end (`\r\n`), and the bytes it took; `None` when it has not ended yet.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Parsed<'static>> {
    let window = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    match window.iter().position(|&byte| byte == b'\n') {
        Some(at) => match window[..at].strip_suffix(b"\r") {
            Some(line) => Ok(Some((line, at + 1))),
            None => Err(Parsed::Broken("a line that does not end in CR LF")),
        },
        None if bytes.len() >= LINE_BYTES_MAX => Err(Parsed::Broken("a line without an end")),
        None => Ok(None),
    }
}

/// `len` bytes behind `head_len` bytes of `bytes`, and the end of line after them.
fn body(bytes: &[u8], head_len: usize, len: usize) -> Parsed<'_> {
    let end = head_len + len;
    match bytes.get(head_len..end + 2) {
        None => Parsed::Incomplete,
        Some(rest) if rest.ends_with(b"\r\n") => {
            Parsed::Whole { answer: Answer::Value(&rest[..len]), consumed: end + 2 }
        }
        Some(_) => Parsed::Broken("a value that is longer than its length says"),
    }
}

/// A length: digits only, at most `VALUE_BYTES_MAX`.
fn length(digits: &[u8]) -> Option<usize> {
    /// Nobody was asked to keep a larger value.
    const VALUE_BYTES_MAX: usize = 1 << 30;
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    let add = |sum: usize, digit: &u8| digit.is_ascii_digit().then(|| sum * 10 + usize::from(digit - b'0'));
    digits.iter().try_fold(0, add).filter(|&length| length <= VALUE_BYTES_MAX)
}

/// Appends a number in decimal.
fn put_decimal(out: &mut Vec<u8>, number: usize) {
    let mut digits = [0; 20];
    let (mut rest, mut at) = (number, digits.len());
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return out.extend_from_slice(&digits[at..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::kv::workload::{Random, Sizes, Values};

    /// The answer is read as `expected` when it is whole, whatever follows, and not before its last byte.
    #[track_caller]
    pub fn check(protocol: &impl Protocol, class: Class, bytes: &[u8], expected: Answer<'_>) {
        for end in 0..bytes.len() {
            assert_eq!(protocol.answer(class, &bytes[..end]), Parsed::Incomplete, "{end} of {bytes:?}");
        }
        for follows in [&b""[..], b"x", b"\r\n", b"\0\0\0\0"] {
            let found = [bytes, follows].concat();
            let whole = Parsed::Whole { answer: expected, consumed: bytes.len() };
            assert_eq!(protocol.answer(class, &found), whole, "{bytes:?} and {follows:?}");
        }
    }

    /// The answer is given up.
    #[track_caller]
    pub fn broken(protocol: &impl Protocol, bytes: &[u8]) {
        for class in [Class::Get, Class::Set] {
            let found = protocol.answer(class, bytes);
            assert!(matches!(found, Parsed::Broken(_)), "{bytes:?}: {found:?}");
        }
    }

    /// GET and SET of the key `k1` with a value of two bytes, which is handed back.
    pub fn encoded(protocol: &impl Protocol) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let values = Values::new(Sizes { min: 2, max: 2 });
        let (mut get, mut set, mut value) = (Vec::new(), Vec::new(), Vec::new());
        protocol.put_get(&mut get, b"k1");
        protocol.put_set(&mut set, b"k1", &values.of(9));
        values.of(9).put(&mut value);
        (get, set, value)
    }

    #[test]
    fn decimals() {
        for number in [0, 7, 10, 99, 100, 65_536, usize::MAX] {
            let mut out = b">".to_vec();
            put_decimal(&mut out, number);
            assert_eq!(out, format!(">{number}").as_bytes());
        }
        assert_eq!(length(b"1073741824"), Some(1 << 30));
        for bad in [&b""[..], b"-1", b"+1", b"1073741825", b"99999999999", b"1 ", b"0x1"] {
            assert_eq!(length(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn any_bytes_are_judged() {
        let (nigh, memcached, redis) =
            (nigh::Nigh::new(b"", 0), memcached::Memcached::new(0), redis::Redis::new(0));
        let alphabet = b"\0\0\0\0\0\x05\x01\xff\r\n\r\n019-+$*:VAEHDN ";
        let mut random = Random::new(11, 0);
        for _ in 0..100_000 {
            let len = random.below(24) as usize;
            let bytes: Vec<u8> =
                (0..len).map(|_| alphabet[random.below(alphabet.len() as u64) as usize]).collect();
            for class in [Class::Get, Class::Set] {
                for parsed in
                    [nigh.answer(class, &bytes), memcached.answer(class, &bytes), redis.answer(class, &bytes)]
                {
                    if let Parsed::Whole { consumed, .. } = parsed {
                        assert!(0 < consumed && consumed <= len, "{bytes:?}: {parsed:?}");
                    }
                }
            }
        }
    }
}
