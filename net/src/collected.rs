//! What was received piece by piece, until it is complete.

use bytes::Bytes;

/// Pieces below this are put together at once: a body sent byte by byte must not cost a buffer per byte.
const PIECE_MIN_BYTES: usize = 4096;
/// Small pieces are put together up to this.
const JOINED_BYTES: usize = 64 << 10;

/// A whole body in the pieces it came in: putting many megabytes together takes milliseconds, which a core does not have.
#[derive(Debug, Default)]
pub struct Collected {
    pieces: Vec<Bytes>,
    /// The last small ones, behind `pieces`.
    small: Vec<u8>,
    bytes: usize,
}

impl Collected {
    /// Appends a piece.
    pub fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        if piece.len() >= PIECE_MIN_BYTES {
            self.flush();
            self.pieces.push(piece);
            return;
        }
        self.small.extend_from_slice(&piece);
        if self.small.len() >= JOINED_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(std::mem::take(&mut self.small).into());
        }
    }

    /// Bytes altogether.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The pieces, in their order.
    pub fn into_pieces(mut self) -> impl Iterator<Item = Bytes> {
        self.flush();
        self.pieces.into_iter()
    }

    /// The body in one piece, copied unless it came as one.
    pub fn joined(mut self) -> Bytes {
        self.flush();
        if self.pieces.len() <= 1 {
            return self.pieces.pop().unwrap_or_default();
        }
        let mut whole = Vec::with_capacity(self.bytes);
        // Each piece is given back as soon as it is copied, so that a body is not in memory twice.
        self.pieces.into_iter().for_each(|piece| whole.extend_from_slice(&piece));
        whole.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_in_order_and_a_large_one_is_not_copied() {
        assert!(Collected::default().is_empty());
        assert_eq!(Collected::default().joined(), "");
        let large = Bytes::from(vec![7; PIECE_MIN_BYTES]);
        let mut one = Collected::default();
        one.push(large.clone());
        assert_eq!(one.joined().as_ptr(), large.as_ptr());
        let sizes = [1, 0, 5000, 3, PIECE_MIN_BYTES, PIECE_MIN_BYTES - 1, 100_000, 2];
        let (mut body, mut sent) = (Collected::default(), Vec::new());
        for (size, byte) in sizes.into_iter().zip(0..) {
            sent.extend(std::iter::repeat_n(byte, size));
            body.push(vec![byte; size].into());
        }
        let copy = Collected { pieces: body.pieces.clone(), small: body.small.clone(), bytes: body.bytes };
        assert_eq!(copy.into_pieces().collect::<Vec<_>>().concat(), sent);
        assert_eq!((body.len(), body.joined().as_ref()), (sent.len(), sent.as_slice()));
    }

    #[test]
    fn a_body_byte_by_byte_is_few_pieces() {
        let mut body = Collected::default();
        (0..200_000_u32).for_each(|n| body.push(vec![n as u8].into()));
        assert!(body.pieces.len() <= 200_000 / JOINED_BYTES + 1, "{} pieces", body.pieces.len());
        let bytes = body.joined();
        assert!(bytes.len() == 200_000 && bytes.iter().zip(0_u32..).all(|(byte, n)| *byte == n as u8));
    }
}
