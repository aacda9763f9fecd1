//! Reading and writing of the primitives that calls and records are made of.

use super::error::Fault;

/// Reads from the front of bytes that are not trusted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Fault::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Fault::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Fault> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn u16_be(&mut self) -> Result<u16, Fault> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn u16_le(&mut self) -> Result<u16, Fault> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u64_be(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(super) fn i64_be(&mut self) -> Result<i64, Fault> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// Bytes behind a length of one byte.
    pub(super) fn s8(&mut self) -> Result<&'a [u8], Fault> {
        let len = self.u8()?;
        self.take(len.into())
    }

    /// Bytes behind a big-endian length of two bytes.
    pub(super) fn s16(&mut self) -> Result<&'a [u8], Fault> {
        let len = self.u16_be()?;
        self.take(len.into())
    }

    /// Unsigned LEB128 in its shortest form only, so that a number has one encoding.
    pub(super) fn uv(&mut self) -> Result<u64, Fault> {
        let first = self.u8()?;
        if first < 0x80 {
            return Ok(first.into());
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // A last group of zero could be left out; of the tenth group only one bit fits.
                let canonical = byte != 0 && (shift < 63 || byte == 1);
                return if canonical { Ok(value) } else { Err(Fault::Invalid) };
            }
        }
        Err(Fault::Invalid)
    }

    /// A LEB128 count of parts that take at least `part_len` bytes each, at most `max`.
    pub(super) fn count(&mut self, part_len: usize, max: usize) -> Result<usize, Fault> {
        let count = usize::try_from(self.uv()?).map_err(|_| Fault::Short)?;
        check_count(count, part_len, self.len(), max)
    }
}

/// `count`, when so many parts of at least `part_len` bytes fit into `room` bytes and it is at most `max`.
pub(super) fn check_count(count: usize, part_len: usize, room: usize, max: usize) -> Result<usize, Fault> {
    if part_len > 0 && count > room / part_len {
        return Err(Fault::Short);
    }
    if count > max { Err(Fault::Cap) } else { Ok(count) }
}

/// Whether `name` may follow `last` in a list that ascends strictly and whose names are not empty; `last` is empty before
/// the first.
///
/// That first comparison is not left to the slices: with a `last` of `&[]` it hands memcmp a pointer to nowhere, which takes
/// 70 ns where that reads under a mask (AVX-512), though of no bytes.
pub(super) fn ascends(last: &[u8], name: &[u8]) -> bool {
    !name.is_empty() && (last.is_empty() || last < name)
}

/// Appends unsigned LEB128, shortest form.
pub(super) fn put_uv(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `bytes` behind a length of one byte.
///
/// # Panics
/// Above 255 bytes, which no name or key has.
pub(super) fn put_s8(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(u8::try_from(bytes.len()).expect("names and keys are at most 255 bytes"));
    out.extend_from_slice(bytes);
}

/// Appends what `body` appends behind its LEB128 length: written first, then moved by the few bytes of the length.
pub(super) fn put_framed(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    const ROOM: usize = 1;
    let start = out.len();
    out.push(0);
    body(out);
    let len = out.len() - start - ROOM;
    if len < 0x80 {
        out[start] = len as u8;
        return;
    }
    let mut prefix = Vec::with_capacity(10);
    put_uv(&mut prefix, len as u64);
    out.splice(start..start + ROOM, prefix);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leb128_has_one_encoding_of_each_number() {
        for value in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::from(u32::MAX), 1 << 63, u64::MAX - 1, u64::MAX]
        {
            let mut bytes = Vec::new();
            put_uv(&mut bytes, value);
            let mut reader = Reader(&bytes);
            assert_eq!(reader.uv(), Ok(value));
            assert!(reader.is_empty(), "{value}");
            for cut in 0..bytes.len() {
                assert_eq!(Reader(&bytes[..cut]).uv(), Err(Fault::Short), "{value} cut at {cut}");
            }
            // The same number with a group of zero at its end.
            *bytes.last_mut().unwrap() |= 0x80;
            bytes.push(0);
            assert_eq!(Reader(&bytes).uv(), Err(Fault::Invalid), "{value}");
        }
        // Bits above the 64th.
        let mut wide = vec![0xff; 9];
        wide.push(2);
        assert_eq!(Reader(&wide).uv(), Err(Fault::Invalid));
        assert_eq!(Reader(&[0xff; 11]).uv(), Err(Fault::Invalid));
    }

    #[test]
    fn a_count_is_held_against_the_bytes_that_are_left() {
        assert_eq!(Reader(&[2, 0, 0, 0, 0]).count(2, 2), Ok(2));
        assert_eq!(Reader(&[3, 0, 0, 0, 0]).count(2, 9), Err(Fault::Short));
        assert_eq!(Reader(&[2, 0, 0, 0, 0]).count(2, 1), Err(Fault::Cap));
    }

    #[test]
    fn a_framed_part_is_as_long_as_it_says() {
        for len in [0, 1, 0x7f, 0x80, 0x4000] {
            let mut out = vec![9];
            put_framed(&mut out, |out| out.resize(out.len() + len, 7));
            let mut reader = Reader(&out[1..]);
            assert_eq!(reader.uv(), Ok(len as u64));
            assert_eq!(reader.take(len), Ok(&vec![7; len][..]));
            assert!(reader.is_empty());
        }
    }
}
