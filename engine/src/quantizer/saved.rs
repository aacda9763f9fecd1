//! What quantizers have learned, as bytes: little-endian numbers one after another, checked when they are read again.

/// Bytes not read yet.
pub(super) struct Saved<'b>(pub &'b [u8]);

impl Saved<'_> {
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub fn number(&mut self) -> Option<usize> {
        let (&first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(first) as usize)
    }

    /// So many floats, all of them finite.
    pub fn floats(&mut self, count: usize) -> Option<Vec<f32>> {
        let (floats, rest) = self.0.split_at_checked(count.checked_mul(size_of::<f32>())?)?;
        self.0 = rest;
        let floats: Vec<f32> = floats.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
        floats.iter().all(|x| x.is_finite()).then_some(floats)
    }
}

pub(super) fn put_number(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&u32::try_from(number).expect("a small number").to_le_bytes());
}

pub(super) fn put_floats(out: &mut Vec<u8>, floats: &[f32]) {
    out.extend(floats.iter().flat_map(|x| x.to_le_bytes()));
}
