//! Reading results.
use super::context::CommandError;
use crate::tcp_client::Reply;

/// The bytes of a result, from the front.
pub struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], CommandError> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(CommandError::Answer("it is cut"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CommandError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(CommandError::Answer("it is cut"))?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub fn u8(&mut self) -> Result<u8, CommandError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, CommandError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, CommandError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, CommandError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub fn f32(&mut self) -> Result<f32, CommandError> {
        Ok(f32::from_be_bytes(self.array()?))
    }

    pub fn block(&mut self) -> Result<&'a [u8], CommandError> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    /// Bytes behind a length of one byte.
    pub fn short(&mut self) -> Result<&'a [u8], CommandError> {
        let len = self.u8()?;
        self.take(len.into())
    }

    /// All that is left.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub fn vector(&mut self) -> Result<Vec<f32>, CommandError> {
        let dim = self.u32()? as usize;
        let bytes = self.take(dim.saturating_mul(4))?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect())
    }
}

/// The payload of a response.
pub fn result(reply: Reply<'_>) -> Result<Cursor<'_>, CommandError> {
    match reply {
        Reply::Result(bytes) => Ok(Cursor(bytes)),
        Reply::NotFound => Err(CommandError::Answer("not found")),
    }
}

/// The yes or no of an answer.
pub fn yes(reply: Reply<'_>) -> Result<bool, CommandError> {
    match reply {
        Reply::Result([0]) => Ok(false),
        Reply::Result([1]) => Ok(true),
        _ => Err(CommandError::Answer("not a yes or no")),
    }
}

/// An answer that says only that it was done.
pub fn done(reply: Reply<'_>) -> Result<(), CommandError> {
    match reply {
        Reply::Result([]) => Ok(()),
        _ => Err(CommandError::Answer("more than a confirmation")),
    }
}
