//! Bytes that are appended, read again and then thrown away, and may leave memory meanwhile.

use super::{Arena, ArenaError, ScratchFiles};

/// Bytes of the first chunk; each other has as many as all before it, or what it is made for, so that files are few.
const CHUNK_BYTES: usize = if cfg!(test) { 1 << 12 } else { 1 << 22 };
const CHUNK_BYTES_MAX: usize = 1 << 30;

/// An append-only heap of byte strings in chunks that never move, of files where there are any: gigabytes that are needed once need
/// no memory then, and anonymous chunks go back to the system as soon as this is dropped.
#[derive(Default)]
pub(crate) struct Spill {
    files: ScratchFiles,
    chunks: Vec<Arena<u8>>,
    /// Bytes used of the last chunk.
    used: usize,
}

/// Where a byte string of a [`Spill`] lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spilled {
    chunk: u32,
    start: u32,
    len: u32,
}

impl Spill {
    pub(crate) fn new(files: ScratchFiles) -> Spill {
        Spill { files, ..Spill::default() }
    }

    /// Appends `bytes`, which are fewer than 4 GiB. A copy, and now and then a few system calls.
    ///
    /// # Errors
    /// No address space or no room in the file system; what is there stays.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Spilled, ArenaError> {
        let len = u32::try_from(bytes.len()).expect("byte strings are short");
        if self.chunks.last().is_none_or(|chunk| chunk.row_len() - self.used < bytes.len()) {
            let before: usize = self.chunks.iter().map(Arena::row_len).sum();
            let len = bytes.len().max(before.clamp(CHUNK_BYTES, CHUNK_BYTES_MAX));
            let chunk = self.files.reserve::<u8>(1, len)?;
            chunk.commit(1).map_err(|source| ArenaError::File { bytes: chunk.row_len(), source })?;
            self.chunks.push(chunk);
            self.used = 0;
        }
        let at = Spilled { chunk: self.chunks.len() as u32 - 1, start: self.used as u32, len };
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.row_mut(0)[self.used..][..bytes.len()].copy_from_slice(bytes);
        }
        self.used += bytes.len();
        Ok(at)
    }

    /// What [`Self::push`] of this very heap gave `at` for.
    ///
    /// # Panics
    /// When it was another heap's.
    pub(crate) fn get(&self, at: Spilled) -> &[u8] {
        let row = self.chunks[at.chunk as usize].row(0);
        &row[at.start as usize..][..at.len as usize]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::anonymous_file;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_pushed_is_read_again(
            strings in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2 * CHUNK_BYTES), 0..20),
            in_files: bool,
        ) {
            let files = ScratchFiles::new(|| Ok(Box::new(anonymous_file())));
            let mut spill = Spill::new(if in_files { files } else { ScratchFiles::default() });
            let places: Vec<Spilled> = strings.iter().map(|bytes| spill.push(bytes).unwrap()).collect();
            for (bytes, at) in strings.iter().zip(places) {
                prop_assert_eq!(spill.get(at), &bytes[..]);
            }
        }
    }

    #[test]
    fn no_room_is_an_error() {
        let mut spill = Spill::new(ScratchFiles::new(|| Err(std::io::Error::other("full"))));
        assert!(spill.push(&[1]).is_err());
    }
}
