//! Files as the engine maps them.
use nigh_engine::memory::Backing;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

/// Bytes of zeros written at once, where they have to be.
const ZEROS: usize = 1 << 20;

/// A file, open for reading and writing without O_DIRECT.
#[derive(Debug)]
pub struct PageFile(pub File);

impl AsFd for PageFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Backing for PageFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
        match fallocate(&self.0, FallocateFlags::empty(), from, to - from) {
            Ok(()) => return Ok(()),
            Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        // File systems that cannot promise room have it taken.
        let zeros = vec![0; ZEROS];
        let mut at = from;
        while at < to {
            let part = &zeros[..ZEROS.min((to - at) as usize)];
            self.0.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_there_and_zero() {
        let file = PageFile(tempfile::tempfile().unwrap());
        file.allocate(0, 10_000).unwrap();
        file.allocate(10_000, 3 << 20).unwrap();
        assert_eq!(file.bytes().unwrap(), 3 << 20);
        let mut bytes = vec![1; 3 << 20];
        file.0.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
        assert!(file.allocate(3 << 20, u64::MAX).is_err());
    }
}
