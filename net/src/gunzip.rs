//! Bodies that are sent compressed, decoded piece by piece as they arrive.

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufRead, ErrorKind, Read};

/// How a body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Not at all.
    Identity,
    /// One gzip stream, or several in a row.
    Gzip,
}

/// Decoded bytes of a piece, which take some 200 us. A stream may hold a thousand times its length, so pieces are bounded by what
/// comes out and not by what goes in.
const PIECE_BYTES: usize = 64 << 10;
/// What a decoder takes beside what arrives and what comes out.
pub const DECODER_BYTES: usize = PIECE_BYTES + (48 << 10);
/// Received bytes that are decoded in one go: a stream may also hold nothing but blocks that decode to nothing, which take their time.
const SLICE_BYTES: usize = 2 << 10;

/// The next of a body.
#[derive(Debug, PartialEq)]
pub enum Piece {
    /// Decoded bytes.
    Bytes(Bytes),
    /// A part of what arrived has been looked at and nothing came out; others may have a turn.
    Nothing,
    /// More must arrive first.
    Wanting,
    /// It is complete.
    End,
}

/// Received bytes that are not decoded yet.
#[derive(Default)]
struct Received {
    bytes: Bytes,
    ended: bool,
}

impl Read for Received {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Received {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.bytes.is_empty() && !self.ended {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(&self.bytes)
    }

    fn consume(&mut self, count: usize) {
        let _consumed = self.bytes.split_to(count);
    }
}

/// Decodes one body.
pub struct Gunzip {
    decoder: MultiGzDecoder<Received>,
    /// Arrived, and not handed to the decoder yet.
    waiting: Bytes,
    ended: bool,
    /// Room for a piece, so that what is returned holds no more memory than it has bytes.
    scratch: Vec<u8>,
}

impl Default for Gunzip {
    fn default() -> Self {
        Gunzip::with_pieces(PIECE_BYTES)
    }
}

impl Gunzip {
    /// Decodes into pieces of at most so many bytes.
    pub fn with_pieces(bytes: usize) -> Self {
        Gunzip {
            decoder: MultiGzDecoder::new(Received::default()),
            waiting: Bytes::new(),
            ended: false,
            scratch: vec![0; bytes.min(PIECE_BYTES)],
        }
    }

    /// Takes what arrived after [`Piece::Wanting`], `None` = the body has ended.
    pub fn feed(&mut self, bytes: Option<Bytes>) {
        match bytes {
            Some(bytes) => self.waiting = bytes,
            None => self.ended = true,
        }
        self.hand_over();
    }

    fn hand_over(&mut self) {
        let received = self.decoder.get_mut();
        received.bytes = self.waiting.split_to(self.waiting.len().min(SLICE_BYTES));
        received.ended = self.ended && self.waiting.is_empty();
    }

    /// The next decoded bytes.
    ///
    /// # Errors
    /// The stream is none, or ends early.
    pub fn piece(&mut self) -> io::Result<Piece> {
        match self.decoder.read(&mut self.scratch) {
            Ok(0) => Ok(Piece::End),
            Ok(count) => Ok(Piece::Bytes(Bytes::copy_from_slice(&self.scratch[..count]))),
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            Err(_) if self.waiting.is_empty() => Ok(Piece::Wanting),
            Err(_) => {
                self.hand_over();
                Ok(Piece::Nothing)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// The decoded body, sent in pieces of `sent` bytes, and the longest piece that came out.
    fn decoded(body: &[u8], sent: usize) -> io::Result<(Vec<u8>, usize)> {
        let (mut gunzip, mut out, mut longest) = (Gunzip::default(), Vec::new(), 0);
        let mut pieces = body.chunks(sent);
        loop {
            match gunzip.piece()? {
                Piece::Bytes(bytes) => {
                    longest = longest.max(bytes.len());
                    out.extend_from_slice(&bytes);
                }
                Piece::Nothing => {}
                Piece::Wanting => gunzip.feed(pieces.next().map(Bytes::copy_from_slice)),
                Piece::End => return Ok((out, longest)),
            }
        }
    }

    proptest! {
        #[test]
        fn any_cut_decodes_to_what_was_sent(bytes in prop::collection::vec(0_u8..4, 0..5000), sent in 1_usize..400) {
            let mut two = gzip(&bytes);
            two.extend(gzip(b"more"));
            let expected = [&bytes[..], b"more"].concat();
            prop_assert_eq!(decoded(&two, sent).unwrap().0, expected);
        }

        #[test]
        fn what_ends_early_is_an_error(bytes in prop::collection::vec(any::<u8>(), 1..300), cut in any::<prop::sample::Index>()) {
            let whole = gzip(&bytes);
            // Nothing at all is no stream either.
            let cut = cut.index(whole.len());
            prop_assert!(decoded(&whole[..cut], 7).is_err());
        }
    }

    #[test]
    fn a_little_that_decodes_to_much_comes_in_bounded_pieces() {
        let zeros = vec![0; 10 << 20];
        let small = gzip(&zeros);
        assert!(small.len() < 20_000, "{}", small.len());
        let (out, longest) = decoded(&small, usize::MAX).unwrap();
        assert!(out == zeros && longest <= PIECE_BYTES, "{longest}");
    }

    #[test]
    fn a_stream_that_decodes_to_nothing_is_looked_at_in_parts() {
        let empty = gzip(b"").repeat(5000);
        let (mut gunzip, mut parts) = (Gunzip::default(), 0);
        gunzip.feed(Some(Bytes::from(empty.clone())));
        while gunzip.piece().unwrap() == Piece::Nothing {
            parts += 1;
        }
        assert_eq!(parts, (empty.len() - 1) / SLICE_BYTES);
    }

    #[test]
    fn what_is_no_stream_is_an_error() {
        assert!(decoded(b"{\"id\":1}", 3).is_err());
        let mut tail = gzip(b"body");
        tail.extend_from_slice(b"tail");
        assert!(decoded(&tail, 5).is_err());
    }
}
