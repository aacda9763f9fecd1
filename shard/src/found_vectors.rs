//! The vectors of a hit, encoded so that those of one answer lie in one piece of memory.

use bytes::Bytes;

/// The vectors of a hit, each with a number: in a dense collection there is one, with the number 0; in a collection of named spaces the number is
/// that of the dense space; in a multi-vector collection it is the position of the token. Those of one answer share their memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundVectors(pub(crate) Bytes);

impl FoundVectors {
    /// The vectors in ascending order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Vec<f32>)> + '_ {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (number, dim);
            (number, rest) = read_u32(rest)?;
            (dim, rest) = read_u32(rest)?;
            let (vector, after) = rest.split_at_checked(dim * size_of::<f32>())?;
            rest = after;
            let component = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
            Some((number, vector.chunks_exact(size_of::<f32>()).map(component).collect()))
        })
    }

    /// The bytes that they take.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Appends a vector with its number.
    pub(crate) fn put(out: &mut Vec<u8>, number: usize, vector: impl ExactSizeIterator<Item = f32>) {
        out.extend_from_slice(&(number as u32).to_le_bytes());
        out.extend_from_slice(&(vector.len() as u32).to_le_bytes());
        vector.for_each(|component| out.extend_from_slice(&component.to_le_bytes()));
    }
}

/// The number and the length before a vector.
pub(crate) const VECTOR_HEAD_BYTES: usize = 2 * size_of::<u32>();

fn read_u32(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number) as usize, rest))
}
