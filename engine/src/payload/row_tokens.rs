//! The token vectors of a document in its row, read in place.

use super::token_codes::{Rotation, TokenCode, TokenCodes, decode, unpack};

/// Token vectors in a row, in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowTokens<'a> {
    numbers: &'a [[u8; 4]],
    code: TokenCode,
    dim: usize,
    /// The components of all vectors, if these are floats.
    components: &'a [[u8; 4]],
    /// The packed values of all vectors and their factors, if these are codes.
    packed: &'a [u8],
    factors: &'a [[u8; 4]],
}

impl<'a> RowTokens<'a> {
    pub(super) fn floats(numbers: &'a [[u8; 4]], components: &'a [[u8; 4]]) -> RowTokens<'a> {
        let dim = components.len().checked_div(numbers.len()).unwrap_or(0);
        RowTokens { numbers, dim, components, ..RowTokens::default() }
    }

    pub(super) fn coded(
        numbers: &'a [[u8; 4]],
        (code, dim): (TokenCode, usize),
        factors: &'a [[u8; 4]],
        packed: &'a [u8],
    ) -> RowTokens<'a> {
        RowTokens { numbers, code, dim, packed, factors, ..RowTokens::default() }
    }

    /// How many vectors there are.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there are no vectors.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Components of each vector; 0 when there are no vectors.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// How their components are stored.
    pub fn code(&self) -> TokenCode {
        self.code
    }

    /// The bytes of the vectors and of their numbers in the row.
    pub fn bytes(&self) -> usize {
        self.len() * (size_of::<u32>() + self.code.bytes(self.dim))
    }

    /// The numbers of the points of these tokens in the index, in the order of the tokens.
    pub fn numbers(&self) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        self.numbers.iter().map(|number| u32::from_le_bytes(*number))
    }

    /// The components of some of the vectors, as little-endian floats, in the form in which they are compared: those of codes are rotated (see
    /// [`Rotation`]), and decoded into `buffer`.
    pub fn compared<'b>(&self, from: usize, to: usize, buffer: &'b mut Vec<[u8; 4]>) -> &'b [[u8; 4]]
    where
        'a: 'b,
    {
        if self.code == TokenCode::Float {
            return &self.components[from * self.dim..to * self.dim];
        }
        buffer.clear();
        self.values(from, to)
            .for_each(|(packed, factor)| unpack(self.code, packed, self.dim, factor, buffer));
        buffer
    }

    /// The packed values and the factors of some of the vectors, if these are codes.
    fn values(&self, from: usize, to: usize) -> impl ExactSizeIterator<Item = (&'a [u8], f32)> + use<'a> {
        let len = self.code.packed(self.dim);
        let packed = self.packed[from * len..to * len].chunks_exact(len);
        packed.zip(&self.factors[from..to]).map(|(packed, factor)| (packed, f32::from_le_bytes(*factor)))
    }

    /// About how many additions and multiplications it takes to decode all vectors; 0 if they are floats.
    pub fn decoding_work(&self) -> usize {
        if self.code == TokenCode::Float { 0 } else { self.len() * Rotation::work(self.dim) }
    }

    /// The vectors in their order. Takes time in proportion to their components and to [`Self::decoding_work`].
    pub fn vectors(&self) -> impl ExactSizeIterator<Item = Vec<f32>> + use<'a> {
        let (tokens, rotation) = (*self, (self.code != TokenCode::Float).then(|| Rotation::of(self.dim)));
        (0..self.len()).map(move |at| match &rotation {
            None => {
                let components = &tokens.components[at * tokens.dim..][..tokens.dim];
                components.iter().map(|component| f32::from_le_bytes(*component)).collect()
            }
            Some(rotation) => {
                let (packed, factor) = tokens.values(at, at + 1).next().expect("a vector");
                decode(tokens.code, packed, factor, rotation)
            }
        })
    }

    /// The components of all vectors, one vector after the other. Takes as long as [`Self::vectors`].
    pub fn decoded(&self) -> Vec<f32> {
        let mut decoded = Vec::with_capacity(self.len() * self.dim);
        self.vectors().for_each(|vector| decoded.extend(vector));
        decoded
    }

    /// The codes of all vectors; `None` if these are floats.
    pub(super) fn codes(&self) -> Option<TokenCodes> {
        (self.code != TokenCode::Float).then(|| TokenCodes {
            code: self.code,
            dim: self.dim,
            factors: self.factors.iter().map(|factor| f32::from_le_bytes(*factor)).collect(),
            packed: self.packed.to_vec(),
        })
    }
}
