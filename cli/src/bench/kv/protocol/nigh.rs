//! The binary protocol of a Nigh server.
//!
//! ```text
//! request  = u32 n, [02 s8 token], s8 operation, s32 args        get: s16 key        put: s16 key, s32 value, u64 ttl ms
//! response = u32 n, u8 status, s32 payload
//! ```
use super::{Answer, Parsed, Protocol};
use crate::bench::kv::workload::{Class, Value};
use nigh_net::tcp::frame::{BODY_MAX_BYTES, Status};

/// Bytes before the payload of a response.
const HEAD_BYTES: usize = 9;

/// Requests of one token and one time to live.
pub struct Nigh {
    /// What stands between the length of a frame and the length of its arguments.
    get: Vec<u8>,
    put: Vec<u8>,
    ttl_ms: [u8; 8],
}

impl Nigh {
    /// `token` has at most 255 bytes, none for no token.
    pub fn new(token: &[u8], ttl_ms: u64) -> Nigh {
        let named = |operation: &[u8]| {
            let mut bytes = Vec::new();
            if !token.is_empty() {
                bytes.extend_from_slice(&[2, token.len() as u8]);
                bytes.extend_from_slice(token);
            }
            bytes.push(operation.len() as u8);
            bytes.extend_from_slice(operation);
            bytes
        };
        Nigh { get: named(b"get"), put: named(b"put"), ttl_ms: ttl_ms.to_be_bytes() }
    }
}

/// Appends everything of a request before its arguments.
fn put_head(out: &mut Vec<u8>, named: &[u8], args_len: usize) {
    out.extend_from_slice(&((named.len() + 4 + args_len) as u32).to_be_bytes());
    out.extend_from_slice(named);
    out.extend_from_slice(&(args_len as u32).to_be_bytes());
}

fn put_key(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    out.extend_from_slice(key);
}

impl Protocol for Nigh {
    fn put_get(&self, out: &mut Vec<u8>, key: &[u8]) {
        put_head(out, &self.get, 2 + key.len());
        put_key(out, key);
    }

    fn put_set(&self, out: &mut Vec<u8>, key: &[u8], value: &Value<'_>) {
        put_head(out, &self.put, 2 + key.len() + 4 + value.len() + 8);
        put_key(out, key);
        out.extend_from_slice(&(value.len() as u32).to_be_bytes());
        value.put(out);
        out.extend_from_slice(&self.ttl_ms);
    }

    fn answer<'a>(&self, class: Class, bytes: &'a [u8]) -> Parsed<'a> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Parsed::Incomplete };
        let [a, b, c, d, status, e, f, g, h] = *head;
        let body_len = u32::from_be_bytes([a, b, c, d]) as usize;
        let payload_len = u32::from_be_bytes([e, f, g, h]) as usize;
        if body_len > BODY_MAX_BYTES || body_len != payload_len + 5 {
            return Parsed::Broken("a frame whose lengths do not fit together");
        }
        let Some(payload) = rest.get(..payload_len) else { return Parsed::Incomplete };
        let answer = match (status, class) {
            (status, Class::Get) if status == Status::Ok as u8 => Answer::Value(payload),
            (status, Class::Set) if status == Status::Ok as u8 && payload.is_empty() => Answer::Stored,
            (status, Class::Get) if status == Status::NotFound as u8 && payload.is_empty() => Answer::Missing,
            (status, _) if status == Status::Unauthorized as u8 => {
                Answer::Refused(b"unauthorized; the token is given with --api-key or NIGH_API_KEY")
            }
            // Two bytes of length, and the text.
            (status, _) if status == Status::Error as u8 => {
                Answer::Refused(payload.get(2..).unwrap_or_default())
            }
            (status, _) if status == Status::NotLeader as u8 => Answer::Refused(b"not leader"),
            _ => Answer::Refused(b"an answer that does not belong to the request"),
        };
        Parsed::Whole { answer, consumed: HEAD_BYTES + payload_len }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{broken, check, encoded};
    use super::*;
    use nigh_engine::kv::Op;
    use nigh_net::op::KvOp;
    use nigh_net::tcp::frame::{self, Decoded};
    use nigh_net::tcp::kv::{self, KvRequest};
    use nigh_shard::kv::batch::KeyOp;

    #[test]
    fn golden_requests() {
        let mut get = Vec::new();
        Nigh::new(b"", 0).put_get(&mut get, b"hello");
        assert_eq!(get, b"\0\0\0\x0f\x03get\0\0\0\x07\0\x05hello");
        get.clear();
        Nigh::new(b"secret", 0).put_get(&mut get, b"hello");
        assert_eq!(get, b"\0\0\0\x17\x02\x06secret\x03get\0\0\0\x07\0\x05hello");
    }

    #[test]
    fn the_server_reads_what_is_written() {
        for token in [&b""[..], b"secret"] {
            let (get, set, value) = encoded(&Nigh::new(token, 1500));
            let frame = |bytes: &'_ [u8]| match frame::decode(bytes) {
                Decoded::Request { frame, consumed } => {
                    assert_eq!(consumed, bytes.len());
                    assert_eq!(frame.token.unwrap_or_default(), token);
                    (frame.operation.to_vec(), frame.args.to_vec())
                }
                other => panic!("{other:?}"),
            };
            let (operation, args) = frame(&get);
            assert_eq!(operation, b"get");
            assert_eq!(kv::decode(KvOp::Get, &args), Ok(KvRequest::One(KeyOp::Get { key: b"k1" })));
            let (operation, args) = frame(&set);
            assert_eq!(operation, b"put");
            let put = Op::Put { key: b"k1", value: &value, ttl_ms: 1500 };
            assert_eq!(kv::decode(KvOp::Put, &args), Ok(KvRequest::One(KeyOp::Change(put))));
            assert_eq!(args.len(), 2 + 2 + 4 + 2 + 8);
        }
    }

    #[test]
    fn answers() {
        let nigh = Nigh::new(b"", 0);
        let written = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            out
        };
        let value = written(&|out| frame::put_ok(out, |out| out.extend_from_slice(b"vv")));
        let empty = written(&|out| frame::put_ok(out, |_| {}));
        let missing = written(&frame::put_not_found);
        check(&nigh, Class::Get, &value, Answer::Value(b"vv"));
        check(&nigh, Class::Get, &empty, Answer::Value(b""));
        check(&nigh, Class::Set, &empty, Answer::Stored);
        check(&nigh, Class::Get, &missing, Answer::Missing);
        let odd = Answer::Refused(b"an answer that does not belong to the request");
        check(&nigh, Class::Set, &value, odd);
        check(&nigh, Class::Set, &missing, odd);
        check(&nigh, Class::Get, b"\0\0\0\x05\x09\0\0\0\0", odd);
        let full = written(&|out| frame::put_error(out, "store full"));
        let denied = written(&frame::put_unauthorized);
        for class in [Class::Get, Class::Set] {
            check(&nigh, class, &full, Answer::Refused(b"store full"));
            let Parsed::Whole { answer: Answer::Refused(text), .. } = nigh.answer(class, &denied) else {
                panic!("taken");
            };
            assert!(text.starts_with(b"unauthorized"));
        }
    }

    #[test]
    fn garbage() {
        let nigh = Nigh::new(b"", 0);
        for bytes in [
            &b"\0\0\0\x06\0\0\0\0\0"[..],
            b"\0\0\0\0\0\0\0\0\0",
            b"\x01\0\0\x06\0\x01\0\0\x01",
            b"+PONG\r\n+PONG\r\n",
            b"HTTP/1.1 400 Bad",
        ] {
            broken(&nigh, bytes);
        }
    }
}
