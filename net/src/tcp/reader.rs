//! Reading arguments: a cursor over bytes that are not trusted. All numbers are big-endian.

use crate::op::ApiError;
use crate::wire::embedded::invalid;

/// Why arguments were not understood. Every one is the caller's mistake, and its text may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgsError {
    /// They end before this part of their layout, or declare more of it than they can hold.
    #[error("args too short: {0}")]
    Short(&'static str),
    /// A time to live above [`nigh_engine::kv::TTL_MS_MAX`].
    #[error("ttlMs out of range")]
    TtlOutOfRange,
    /// An operation that other transports have.
    #[error("op not registered")]
    NotRegistered,
    /// An envelope around another.
    #[error("an envelope inside an envelope")]
    NestedEnvelope,
    /// This part must be text.
    #[error("{0} is not UTF-8")]
    NotUtf8(&'static str),
}

impl From<ArgsError> for ApiError {
    fn from(error: ArgsError) -> Self {
        ApiError::invalid(error.to_string())
    }
}

/// Refuses bits of a byte of flags beyond `known`.
pub fn check_flags(flags: u8, known: u8) -> Result<(), ApiError> {
    match flags & !known {
        0 => Ok(()),
        unknown => Err(invalid("flags", format_args!("unknown or not offered: {unknown:#04x}"))),
    }
}

/// Reads from the front of arguments. Each method takes what it reads and names it in its error; none allocates more than
/// a small multiple of the bytes that are there, whatever a declared count says. After an error the cursor stands anywhere
/// up to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgsReader<'a>(&'a [u8]);

impl<'a> ArgsReader<'a> {
    /// At the front of `args`.
    pub fn new(args: &'a [u8]) -> Self {
        ArgsReader(args)
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.0.len()
    }

    /// Everything was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the next byte is there and is this one; it stays unread.
    pub fn next_is(&self, byte: u8) -> bool {
        self.0.first() == Some(&byte)
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// [`ArgsError::Short`], as of every method below.
    pub fn take(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], ArgsError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(ArgsError::Short(field))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ArgsError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(ArgsError::Short(field))?;
        self.0 = rest;
        Ok(*taken)
    }

    /// A byte.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn u8(&mut self, field: &'static str) -> Result<u8, ArgsError> {
        Ok(u8::from_be_bytes(self.array(field)?))
    }

    /// Two bytes.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn u16(&mut self, field: &'static str) -> Result<u16, ArgsError> {
        Ok(u16::from_be_bytes(self.array(field)?))
    }

    /// Four bytes.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn u32(&mut self, field: &'static str) -> Result<u32, ArgsError> {
        Ok(u32::from_be_bytes(self.array(field)?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn u64(&mut self, field: &'static str) -> Result<u64, ArgsError> {
        Ok(u64::from_be_bytes(self.array(field)?))
    }

    /// Eight bytes, two's complement.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn i64(&mut self, field: &'static str) -> Result<i64, ArgsError> {
        Ok(i64::from_be_bytes(self.array(field)?))
    }

    /// Four bytes of any float, NaN and infinities included.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn f32(&mut self, field: &'static str) -> Result<f32, ArgsError> {
        Ok(f32::from_be_bytes(self.array(field)?))
    }

    /// Eight bytes of any float.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn f64(&mut self, field: &'static str) -> Result<f64, ArgsError> {
        Ok(f64::from_be_bytes(self.array(field)?))
    }

    /// A byte that says yes when it is not zero.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn flag(&mut self, field: &'static str) -> Result<bool, ArgsError> {
        Ok(self.u8(field)? != 0)
    }

    /// Bytes behind a length of one byte.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn s8(&mut self, field: &'static str) -> Result<&'a [u8], ArgsError> {
        let len = self.u8(field)?;
        self.take(len.into(), field)
    }

    /// Bytes behind a length of two bytes.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn s16(&mut self, field: &'static str) -> Result<&'a [u8], ArgsError> {
        let len = self.u16(field)?;
        self.take(len.into(), field)
    }

    /// Bytes behind a length of four bytes.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn s32(&mut self, field: &'static str) -> Result<&'a [u8], ArgsError> {
        let len = self.u32(field)?;
        self.take(usize::try_from(len).map_err(|_| ArgsError::Short(field))?, field)
    }

    /// Text behind a length of one byte.
    ///
    /// # Errors
    /// [`ArgsError::Short`], [`ArgsError::NotUtf8`]; so for the other texts.
    pub fn text8(&mut self, field: &'static str) -> Result<&'a str, ArgsError> {
        text(self.s8(field)?, field)
    }

    /// Text behind a length of two bytes.
    ///
    /// # Errors
    /// As [`Self::text8`].
    pub fn text16(&mut self, field: &'static str) -> Result<&'a str, ArgsError> {
        text(self.s16(field)?, field)
    }

    /// Text behind a length of four bytes.
    ///
    /// # Errors
    /// As [`Self::text8`].
    pub fn text32(&mut self, field: &'static str) -> Result<&'a str, ArgsError> {
        text(self.s32(field)?, field)
    }

    /// `count` parts that take at least `part_len` bytes each, if so many can follow: what is reserved for them is bounded
    /// by the bytes that are there. `part_len` is at least 1.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn fits(&self, count: u64, part_len: usize, field: &'static str) -> Result<usize, ArgsError> {
        match usize::try_from(count) {
            Ok(count) if count <= self.0.len() / part_len.max(1) => Ok(count),
            _ => Err(ArgsError::Short(field)),
        }
    }

    /// `count` floats.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn floats(&mut self, count: u32, field: &'static str) -> Result<Vec<f32>, ArgsError> {
        let count = self.fits(count.into(), 4, field)?;
        let bytes = self.take(4 * count, field)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect())
    }

    /// A vector: its length, then its components.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn vector(&mut self, field: &'static str) -> Result<Vec<f32>, ArgsError> {
        let dim = self.u32(field)?;
        self.floats(dim, field)
    }

    /// A time to live in milliseconds, 0 = for ever.
    ///
    /// # Errors
    /// [`ArgsError::Short`], [`ArgsError::TtlOutOfRange`].
    pub fn ttl_ms(&mut self) -> Result<u64, ArgsError> {
        match self.u64("ttlMs")? {
            ttl_ms if ttl_ms > nigh_engine::kv::TTL_MS_MAX => Err(ArgsError::TtlOutOfRange),
            ttl_ms => Ok(ttl_ms),
        }
    }
}

fn text<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a str, ArgsError> {
    std::str::from_utf8(bytes).map_err(|_| ArgsError::NotUtf8(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_part() {
        let mut bytes = vec![1, 0, 2, 0, 0, 0, 3];
        bytes.extend(4_u64.to_be_bytes());
        bytes.extend((-5_i64).to_be_bytes());
        bytes.extend(0.5_f32.to_be_bytes());
        bytes.extend((-0.25_f64).to_be_bytes());
        bytes.extend(b"\x01a\x00\x01b\x00\x00\x00\x01c\x01d");
        bytes.extend([0, 0, 0, 1]);
        bytes.extend(1.5_f32.to_be_bytes());
        type All<'a> = (u8, u16, u32, u64, i64, f32, f64, [&'a [u8]; 3], &'a str, Vec<f32>);
        fn read(bytes: &[u8]) -> Result<(All<'_>, bool), ArgsError> {
            let mut reader = ArgsReader::new(bytes);
            let all = (
                reader.u8("a")?,
                reader.u16("b")?,
                reader.u32("c")?,
                reader.u64("d")?,
                reader.i64("e")?,
                reader.f32("f")?,
                reader.f64("g")?,
                [reader.s8("h")?, reader.s16("i")?, reader.s32("j")?],
                reader.text8("k")?,
                reader.vector("l")?,
            );
            Ok((all, reader.is_empty()))
        }
        let all: All<'_> = (1, 2, 3, 4, -5, 0.5, -0.25, [b"a", b"b", b"c"], "d", vec![1.5]);
        assert_eq!(read(&bytes), Ok((all, true)));
        let ends = [1, 3, 7, 15, 23, 27, 35, 37, 40, 45, 47, 55];
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        for cut in 0..bytes.len() {
            let part = ends.iter().position(|end| cut < *end).unwrap();
            assert_eq!(read(&bytes[..cut]), Err(ArgsError::Short(names[part])), "cut at {cut}");
        }
    }

    /// 4 billion floats in 8 bytes.
    #[test]
    fn counts_are_held_against_what_is_there() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        assert_eq!(ArgsReader::new(&bytes).vector("vector"), Err(ArgsError::Short("vector")));
        assert_eq!(ArgsReader::new(&bytes).s32("value"), Err(ArgsError::Short("value")));
        let reader = ArgsReader::new(&bytes);
        assert_eq!(reader.fits(4, 2, "keys"), Ok(4));
        assert_eq!(reader.fits(5, 2, "keys"), Err(ArgsError::Short("keys")));
        assert_eq!(reader.fits(u64::MAX, 1, "keys"), Err(ArgsError::Short("keys")));
    }

    #[test]
    fn texts_and_times() {
        assert_eq!(ArgsReader::new(b"\x01\xff").text8("name"), Err(ArgsError::NotUtf8("name")));
        let most = nigh_engine::kv::TTL_MS_MAX;
        assert_eq!(ArgsReader::new(&most.to_be_bytes()).ttl_ms(), Ok(9_223_372_036_854));
        assert_eq!(ArgsReader::new(&(most + 1).to_be_bytes()).ttl_ms(), Err(ArgsError::TtlOutOfRange));
        assert_eq!(ArgsError::Short("value").to_string(), "args too short: value");
        assert_eq!(ApiError::from(ArgsError::TtlOutOfRange), ApiError::invalid("ttlMs out of range"));
    }
}
