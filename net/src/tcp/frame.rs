//! Frames: the envelope of requests and responses.
//!
//! ```text
//! frame    = u32 n, body of n bytes                 n in 1..=16,777,216
//! request  = s8 operation, s32 args                 form 1
//!          | 0x02, s8 token, form 1                 form 2; so no name of an operation has two bytes
//! response = u8 status, s32 payload                 n = 5 + payload, exactly
//! payload  = by status: 0 OK result; 1 NOT_FOUND nothing; 2 NOT_LEADER s16 address; 3 ERROR s16 text; 4 UNAUTHORIZED nothing
//! ```
//! Big-endian; `sN` is a length of N bits and as many bytes. Responses come in the order of their requests and carry no id.

use crate::op::{ApiError, ErrorKind};
use crate::room::Room;

/// Most bytes in the body of a frame (interface).
pub const BODY_MAX_BYTES: usize = 16 << 20;
/// Most bytes in the payload of a response: a body without status and length.
pub const PAYLOAD_MAX_BYTES: usize = BODY_MAX_BYTES - 5;
/// A longer body is read and thrown away up to this size, so that who sent one value too large keeps the connection. What
/// declares more does not speak this protocol: the first bytes of an HTTP request read as more than 1 GiB, those of a TLS
/// handshake as more than 300 MiB.
pub const SKIPPED_MAX_BYTES: usize = 64 << 20;
/// Most bytes in the text of an ERROR and the address of a NOT_LEADER: what their length can say.
pub const TEXT_MAX_BYTES: usize = u16::MAX as usize;

/// Bytes of `n`.
const HEAD_BYTES: usize = 4;
/// Bytes before the payload of a response.
pub const RESPONSE_HEAD_BYTES: usize = 9;
/// First byte of form 2.
const FORM_TOKEN: u8 = 2;

/// A request as it lies in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFrame<'a> {
    /// Token, `None` when there is none or it is empty.
    pub token: Option<&'a [u8]>,
    /// Name of the operation, 0 to 255 bytes of anything; see [`crate::tcp::ops::find`].
    pub operation: &'a [u8],
    /// Its arguments.
    pub args: &'a [u8],
}

/// What the front of a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// Not a whole frame yet.
    Incomplete {
        /// Bytes of the buffer up to the end of the frame, as far as is known; more than there are.
        needed: usize,
    },
    /// A request.
    Request {
        /// The request.
        frame: RequestFrame<'a>,
        /// Bytes it took.
        consumed: usize,
    },
    /// No request, but its end is known: answer the error, drop the bytes, go on.
    Refused {
        /// What to answer.
        error: FrameError,
        /// Bytes to drop from the stream, at most [`SKIPPED_MAX_BYTES`] and a head; of an oversized frame most have not
        /// arrived yet.
        consumed: usize,
    },
    /// What follows cannot be told: answer the error and close.
    Broken(FrameError),
}

/// Why a frame is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The body, or the arguments in it, are longer than [`BODY_MAX_BYTES`].
    #[error("frame too large")]
    TooLarge,
    /// The body is shorter than its own lengths say.
    #[error("frame truncated")]
    Truncated,
}

/// Looks at the front of `buffer`: the bytes of a connection that were received and not consumed. Copies and allocates
/// nothing; costs the same for any size. Bytes behind the arguments are ignored.
pub fn decode(buffer: &[u8]) -> Decoded<'_> {
    let Some((head, rest)) = buffer.split_first_chunk::<HEAD_BYTES>() else {
        return Decoded::Incomplete { needed: HEAD_BYTES };
    };
    let Ok(len) = usize::try_from(u32::from_be_bytes(*head)) else {
        return Decoded::Broken(FrameError::TooLarge);
    };
    if len > SKIPPED_MAX_BYTES {
        return Decoded::Broken(FrameError::TooLarge);
    }
    let consumed = HEAD_BYTES + len;
    if len > BODY_MAX_BYTES {
        return Decoded::Refused { error: FrameError::TooLarge, consumed };
    }
    match rest.get(..len) {
        None => Decoded::Incomplete { needed: consumed },
        Some(body) => match decode_body(body) {
            Ok(frame) => Decoded::Request { frame, consumed },
            Err(error) => Decoded::Refused { error, consumed },
        },
    }
}

/// Of the request in a frame that is not whole what is there: its arguments may end anywhere.
///
/// # Errors
/// [`FrameError::Truncated`] while not even the length of the arguments is there, [`FrameError::TooLarge`] when that is too long.
pub fn beginning(buffer: &[u8]) -> Result<RequestFrame<'_>, FrameError> {
    let (_, body) = buffer.split_first_chunk::<HEAD_BYTES>().ok_or(FrameError::Truncated)?;
    let (token, operation, len, rest) = parts(body)?;
    Ok(RequestFrame { token, operation, args: &rest[..len.min(rest.len())] })
}

/// The request in the body of a frame.
fn decode_body(body: &[u8]) -> Result<RequestFrame<'_>, FrameError> {
    let (token, operation, len, rest) = parts(body)?;
    let args = rest.get(..len).ok_or(FrameError::Truncated)?;
    Ok(RequestFrame { token, operation, args })
}

/// Token, name of the operation, length of its arguments, and what follows.
type Parts<'a> = (Option<&'a [u8]>, &'a [u8], usize, &'a [u8]);

fn parts(body: &[u8]) -> Result<Parts<'_>, FrameError> {
    let (token, body) = match body.split_first() {
        Some((&FORM_TOKEN, rest)) => {
            let (token, rest) = short(rest)?;
            (Some(token).filter(|token| !token.is_empty()), rest)
        }
        _ => (None, body),
    };
    let (operation, body) = short(body)?;
    let (len, rest) = body.split_first_chunk().ok_or(FrameError::Truncated)?;
    let len = usize::try_from(u32::from_be_bytes(*len)).map_err(|_| FrameError::TooLarge)?;
    if len > BODY_MAX_BYTES {
        return Err(FrameError::TooLarge);
    }
    Ok((token, operation, len, rest))
}

/// Bytes behind a length of one byte, and what follows them.
fn short(bytes: &[u8]) -> Result<(&[u8], &[u8]), FrameError> {
    let (len, rest) = bytes.split_first().ok_or(FrameError::Truncated)?;
    rest.split_at_checked((*len).into()).ok_or(FrameError::Truncated)
}

/// Status byte of a response (interface).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The payload is the result.
    Ok = 0,
    /// The key is absent.
    NotFound = 1,
    /// Ask the node whose address is the payload.
    NotLeader = 2,
    /// The payload says what is wrong.
    Error = 3,
    /// No or wrong token, or not allowed.
    Unauthorized = 4,
}

/// The nine bytes before `payload_len` bytes of payload; `None` above [`PAYLOAD_MAX_BYTES`]. For payloads that are sent
/// from where they lie.
pub fn response_head(status: Status, payload_len: usize) -> Option<[u8; RESPONSE_HEAD_BYTES]> {
    let len = u32::try_from(payload_len).ok().filter(|_| payload_len <= PAYLOAD_MAX_BYTES)?;
    let mut head = [0; RESPONSE_HEAD_BYTES];
    head[..4].copy_from_slice(&(len + 5).to_be_bytes());
    head[4] = status as u8;
    head[5..].copy_from_slice(&len.to_be_bytes());
    Some(head)
}

/// Appends an OK whose result `write` appends, written in place. A result above [`PAYLOAD_MAX_BYTES`] becomes the ERROR
/// `response exceeds MaxFrameSize`.
pub fn put_ok(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    put(out, Status::Ok, write);
}

/// Appends a NOT_FOUND.
pub fn put_not_found(out: &mut Vec<u8>) {
    put(out, Status::NotFound, |_| {});
}

/// Appends an UNAUTHORIZED.
pub fn put_unauthorized(out: &mut Vec<u8>) {
    put(out, Status::Unauthorized, |_| {});
}

/// Appends a NOT_LEADER; `address` may be empty, and is left empty when no length could say it.
pub fn put_not_leader(out: &mut Vec<u8>, address: &str) {
    let address = if address.len() > TEXT_MAX_BYTES { "" } else { address };
    put(out, Status::NotLeader, |out| put_text(out, address));
}

/// Appends an ERROR; of `text` as many whole characters as [`TEXT_MAX_BYTES`] hold.
pub fn put_error(out: &mut Vec<u8>, text: &str) {
    put(out, Status::Error, |out| put_text(out, &text[..text.floor_char_boundary(TEXT_MAX_BYTES)]));
}

/// Whether a whole response says OK.
pub fn is_ok(response: &[u8]) -> bool {
    response.get(4) == Some(&(Status::Ok as u8))
}

/// Takes the first response off the front of `responses`.
pub fn take_response<'r>(responses: &mut &'r [u8]) -> &'r [u8] {
    let len = responses.first_chunk().map_or(0, |len| 4 + u32::from_be_bytes(*len) as usize);
    let (response, rest) = responses.split_at(len.min(responses.len()));
    *responses = rest;
    response
}

/// Appends what a failed request is answered with: UNAUTHORIZED, or an ERROR with its text, where
/// [`ErrorKind::Internal`] shows as `internal error`.
pub fn put_refusal(out: &mut Vec<u8>, error: &ApiError) {
    match error.kind {
        ErrorKind::Unauthorized => put_unauthorized(out),
        ErrorKind::Internal => put_error(out, "internal error"),
        _ => put_error(out, &error.message),
    }
}

/// `text` is at most [`TEXT_MAX_BYTES`].
fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put(out: &mut Vec<u8>, status: Status, write: impl FnOnce(&mut Vec<u8>)) {
    let begun = Begun::at(out);
    write(out);
    begun.finish_as(out, status);
}

/// A response whose payload is being appended, piece by piece.
#[derive(Debug)]
#[must_use = "its head is written at the end"]
pub struct Begun {
    start: usize,
}

impl Begun {
    /// Begins one at the end of `out`, into which all of it goes.
    pub fn at(out: &mut Vec<u8>) -> Begun {
        let start = out.len();
        out.extend_from_slice(&[0; RESPONSE_HEAD_BYTES]);
        Begun { start }
    }

    /// Bytes of it so far.
    pub fn bytes(&self, out: &[u8]) -> usize {
        out.len() - self.start
    }

    /// Whether the payload no longer fits a frame: what is appended now is in vain.
    pub fn is_too_long(&self, out: &[u8]) -> bool {
        out.len() > self.start + RESPONSE_HEAD_BYTES + PAYLOAD_MAX_BYTES
    }

    /// Whether it is not to be continued: it fits no frame, or there is no room for it.
    pub fn is_full(&self, out: &[u8], room: &mut Room) -> bool {
        self.is_too_long(out) || !room.holds(self.bytes(out))
    }

    /// Ends it as an OK, or as the ERROR of [`put_ok`].
    pub fn finish(self, out: &mut Vec<u8>) {
        self.finish_as(out, Status::Ok);
    }

    /// Takes back all of it.
    pub fn abandon(self, out: &mut Vec<u8>) {
        out.truncate(self.start);
    }

    fn finish_as(self, out: &mut Vec<u8>, status: Status) {
        let Begun { start } = self;
        match response_head(status, out.len() - start - RESPONSE_HEAD_BYTES) {
            Some(head) => out[start..start + RESPONSE_HEAD_BYTES].copy_from_slice(&head),
            None => {
                out.truncate(start);
                put_error(out, TOO_LONG);
            }
        }
    }
}

/// The text of an ERROR in place of a result that fits no frame (interface).
const TOO_LONG: &str = "response exceeds MaxFrameSize";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::hex::hex;

    /// The request that a buffer of exactly one frame holds.
    fn request(bytes: &[u8]) -> RequestFrame<'_> {
        match decode(bytes) {
            Decoded::Request { frame, consumed } if consumed == bytes.len() => frame,
            other => panic!("{other:?}"),
        }
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32).to_be_bytes(), body].concat()
    }

    /// Frame, token, operation, arguments.
    type Golden = (&'static str, Option<&'static [u8]>, &'static [u8], &'static [u8]);

    const GOLDEN: [Golden; 3] = [
        ("0000000f0367657400000007000568656c6c6f", None, b"get", b"\0\x05hello"),
        ("0000001702067365637265740367657400000007000568656c6c6f", Some(b"secret"), b"get", b"\0\x05hello"),
        ("0000000d085f5f70696e675f5f00000000", None, b"__ping__", b""),
    ];

    #[test]
    fn golden_requests() {
        for (text, token, operation, args) in GOLDEN {
            assert_eq!(request(&hex(text)), RequestFrame { token, operation, args });
        }
    }

    #[test]
    fn requests_that_arrive_byte_by_byte() {
        let all: Vec<u8> = GOLDEN.iter().flat_map(|(text, ..)| hex(text)).collect();
        let mut ends = GOLDEN.iter().scan(0, |end, (text, ..)| {
            *end += text.len() / 2;
            Some(*end)
        });
        let (mut start, mut end) = (0, ends.next());
        for received in 0..=all.len() {
            match (decode(&all[start..received]), end) {
                (Decoded::Request { consumed, .. }, Some(whole)) => {
                    assert_eq!((start + consumed, received), (whole, whole));
                    (start, end) = (whole, ends.next());
                }
                (Decoded::Incomplete { needed }, whole) => {
                    assert!(start + needed > received);
                    let known = if received - start < 4 { Some(start + 4) } else { whole };
                    assert_eq!(Some(start + needed), known);
                }
                other => panic!("after {received}: {other:?}"),
            }
        }
        assert_eq!(start, all.len());
    }

    #[test]
    fn a_body_shorter_than_its_lengths_is_refused_and_skipped() {
        for (text, ..) in GOLDEN {
            let body = &hex(text)[4..];
            for cut in 0..body.len() {
                let bytes = framed(&body[..cut]);
                let refused = Decoded::Refused { error: FrameError::Truncated, consumed: bytes.len() };
                assert_eq!(decode(&bytes), refused, "cut at {cut}");
            }
        }
    }

    #[test]
    fn what_lies_behind_the_arguments_is_ignored() {
        let mut body = hex(GOLDEN[0].0)[4..].to_vec();
        body.extend_from_slice(b"more");
        assert_eq!(request(&framed(&body)).args, b"\0\x05hello");
    }

    #[test]
    fn an_empty_token_is_none() {
        assert_eq!(request(&framed(b"\x02\x00\x03get\0\0\0\0")).token, None);
        // A second token is no token: a name of two bytes, which nothing has.
        assert_eq!(request(&framed(b"\x02\x01a\x02\x01b\0\0\0\0")).operation, b"\x01b");
    }

    #[test]
    fn sizes_at_their_bounds() {
        let head = |len: usize| (len as u32).to_be_bytes();
        let too_large = |consumed| Decoded::Refused { error: FrameError::TooLarge, consumed };
        for (len, expected) in [
            (0, Decoded::Refused { error: FrameError::Truncated, consumed: 4 }),
            (1, Decoded::Incomplete { needed: 5 }),
            (16_777_216, Decoded::Incomplete { needed: 16_777_220 }),
            (16_777_217, too_large(16_777_221)),
            (SKIPPED_MAX_BYTES, too_large(SKIPPED_MAX_BYTES + 4)),
            (SKIPPED_MAX_BYTES + 1, Decoded::Broken(FrameError::TooLarge)),
            (u32::MAX as usize, Decoded::Broken(FrameError::TooLarge)),
        ] {
            assert_eq!(decode(&head(len)), expected, "{len}");
        }
        for other_protocol in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01\x02\x00\x01"] {
            assert_eq!(decode(other_protocol), Decoded::Broken(FrameError::TooLarge));
        }
        let long_args = framed(b"\x03get\x01\x00\x00\x01");
        assert_eq!(decode(&long_args), too_large(long_args.len()));
        let full = framed(b"\x03get\x01\x00\x00\x00");
        assert_eq!(decode(&full), Decoded::Refused { error: FrameError::Truncated, consumed: full.len() });
    }

    #[test]
    fn the_largest_request_is_taken_from_where_it_lies() {
        let mut body = b"\x03put".to_vec();
        body.extend(((BODY_MAX_BYTES - 8) as u32).to_be_bytes());
        body.resize(BODY_MAX_BYTES, 7);
        let bytes = framed(&body);
        let args = request(&bytes).args;
        assert!(std::ptr::eq(args, &raw const bytes[12..]) && args.len() == BODY_MAX_BYTES - 8);
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = b"before".to_vec();
        write(&mut out);
        out.split_off(6)
    }

    #[test]
    fn golden_responses() {
        assert_eq!(written(|out| put_ok(out, |_| {})), hex("000000050000000000"));
        assert_eq!(written(|out| put_ok(out, |out| out.extend(b"vv"))), hex("0000000700000000027676"));
        assert_eq!(written(put_not_found), hex("000000050100000000"));
        assert_eq!(written(put_unauthorized), hex("000000050400000000"));
        let error = hex("000000150300000010000e696e7465726e616c206572726f72");
        assert_eq!(written(|out| put_error(out, "internal error")), error);
        let internal = ApiError::new(ErrorKind::Internal, "/srv/data: no space");
        assert_eq!(written(|out| put_refusal(out, &internal)), error);
        let denied = ApiError::new(ErrorKind::Unauthorized, "unauthorized");
        assert_eq!(written(|out| put_refusal(out, &denied)), hex("000000050400000000"));
        let invalid = written(|out| put_refusal(out, &ApiError::invalid("no")));
        assert_eq!(invalid, hex("000000090300000004").into_iter().chain(*b"\0\x02no").collect::<Vec<_>>());
        assert_eq!(written(|out| put_not_leader(out, "a:1")), hex("0000000a02000000050003613a31"));
        assert_eq!(
            written(|out| put_not_leader(out, "")),
            hex("000000070200000002").into_iter().chain([0, 0]).collect::<Vec<_>>()
        );
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let text = format!("a{}", "ä".repeat(40_000));
        let response = written(|out| put_error(out, &text));
        // One byte of `a`, then characters of two: 65,535 bytes end after a whole one.
        assert_eq!(response[9..11], 65_535_u16.to_be_bytes());
        assert_eq!(std::str::from_utf8(&response[11..]), Ok(&text[..65_535]));
        let response = written(|out| put_error(out, &text[1..]));
        assert_eq!(response[9..11], 65_534_u16.to_be_bytes());
        assert_eq!(std::str::from_utf8(&response[11..]).map(str::len), Ok(65_534));
    }

    #[test]
    fn results_up_to_a_full_frame() {
        let full = written(|out| put_ok(out, |out| out.resize(out.len() + PAYLOAD_MAX_BYTES, 7)));
        assert_eq!(full.len(), 4 + BODY_MAX_BYTES);
        assert_eq!(full[..9], hex("010000000000fffffb")[..]);
        let beyond = written(|out| put_ok(out, |out| out.resize(out.len() + PAYLOAD_MAX_BYTES + 1, 7)));
        assert_eq!(beyond, written(|out| put_error(out, "response exceeds MaxFrameSize")));
        assert_eq!(response_head(Status::Ok, PAYLOAD_MAX_BYTES + 1), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
            for buffer in [bytes.clone(), framed(&bytes)] {
                match decode(&buffer) {
                    Decoded::Incomplete { needed } => proptest::prop_assert!(needed > buffer.len()),
                    Decoded::Request { consumed, .. } => proptest::prop_assert!(consumed <= buffer.len()),
                    Decoded::Refused { consumed, .. } => proptest::prop_assert!(consumed >= 4),
                    Decoded::Broken(_) => {}
                }
            }
        }
    }
}
