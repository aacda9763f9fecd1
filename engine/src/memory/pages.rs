//! Pages that come from files: for rows that are to outlive the process, or that may leave memory when it is short.

use memmap2::{Advice, MmapOptions, MmapRaw};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A file grows by an eighth of what is needed, within these bounds.
const STEP_MIN_BYTES: usize = 1 << 20;
const STEP_MAX_BYTES: usize = 64 << 20;
/// Residency is asked of so many pieces at most,
const LOOKS: usize = 64;
/// of that size to say how much there is,
const LOOK_BYTES: usize = 4 << 20;
/// and of that to say whether something is missing.
const GLANCE_BYTES: usize = 64 << 10;

/// An open file that can be mapped, for reading and writing: the engine makes none itself.
pub trait Backing: AsFd + Send + Sync + UnwindSafe + RefUnwindSafe + fmt::Debug {
    /// Bytes it has.
    ///
    /// # Errors
    /// The system's.
    fn bytes(&self) -> io::Result<u64>;

    /// Has the file system take on bytes `from..to`, which lie behind its end and read as zero: a touch of them must not find the disk
    /// full, as that would be a signal.
    ///
    /// # Errors
    /// The file system's, above all that it is full.
    fn allocate(&self, from: u64, to: u64) -> io::Result<()>;
}

/// The pages of an [`Arena`](super::Arena): those of a file from an offset on.
#[derive(Debug)]
pub struct FilePages {
    file: Box<dyn Backing>,
    offset: u64,
    /// Bytes behind `offset` that the file has, and that the file system has taken on.
    committed: AtomicUsize,
    /// Rows are looked at one here, one there: reading around each would push out 31 pages for one.
    scattered: bool,
}

impl FilePages {
    /// Those of `file` behind `offset`, a multiple of the page size; what lies there already is
    /// taken over.
    ///
    /// # Errors
    /// When the file cannot say how long it is.
    pub fn new(file: Box<dyn Backing>, offset: u64) -> io::Result<FilePages> {
        let length = file.bytes()?.saturating_sub(offset);
        let committed = AtomicUsize::new(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(FilePages { file, offset, committed, scattered: false })
    }

    /// Says that rows will be looked at one here, one there.
    pub fn scattered(self) -> FilePages {
        FilePages { scattered: true, ..self }
    }

    pub(super) fn map(&self, bytes: usize) -> io::Result<MmapRaw> {
        let map = MmapOptions::new().offset(self.offset).len(bytes).map_raw(self.file.as_fd().as_raw_fd())?;
        if self.scattered && bytes > 0 {
            // A kernel that refuses reads ahead, which costs time and not correctness.
            let _ = map.advise(Advice::Random);
        }
        Ok(map)
    }

    pub(super) fn committed(&self) -> usize {
        self.committed.load(Relaxed)
    }

    /// See [`Arena::commit`](super::Arena::commit); `most` is all that will ever be asked for.
    pub(super) fn commit(&self, bytes: usize, most: usize) -> io::Result<()> {
        let committed = self.committed();
        if bytes <= committed {
            return Ok(());
        }
        let step = (bytes / 8).clamp(STEP_MIN_BYTES, STEP_MAX_BYTES);
        let to = bytes.saturating_add(step).min(most);
        // There may be room for what is needed but not for a whole step.
        let allocate =
            |to: usize| self.file.allocate(self.offset + committed as u64, self.offset + to as u64);
        let to = match allocate(to) {
            Ok(()) => to,
            Err(_) => allocate(bytes).map(|()| bytes)?,
        };
        self.committed.store(to, Relaxed);
        Ok(())
    }
}

/// Bytes of the first `bytes` of `map` that are in memory.
pub(super) fn resident_bytes(map: &MmapRaw, bytes: usize) -> usize {
    resident(map, bytes, LOOK_BYTES)
}

/// The same from shorter looks.
pub(super) fn glanced_bytes(map: &MmapRaw, bytes: usize) -> usize {
    resident(map, bytes, GLANCE_BYTES)
}

fn resident(map: &MmapRaw, bytes: usize, look_bytes: usize) -> usize {
    let page = page_bytes();
    let pages = bytes.div_ceil(page);
    let look = (look_bytes / page).min(pages).max(1);
    let looks = pages.div_ceil(look).min(LOOKS);
    let mut seen = vec![0u8; look];
    let (mut looked_at, mut resident) = (0, 0);
    for index in 0..looks {
        // Evenly, where there are more pieces than are looked at.
        let first = pages.div_ceil(look) * index / looks * look;
        let count = look.min(pages - first);
        // SAFETY: the range lies in the mapping, which is alive, and `seen` has a byte for each of its pages.
        let asked = unsafe {
            libc::mincore(map.as_mut_ptr().add(first * page).cast(), count * page, seen.as_mut_ptr())
        };
        if asked == 0 {
            looked_at += count;
            resident += seen[..count].iter().filter(|&&byte| byte & 1 != 0).count();
        }
    }
    if looked_at == 0 { 0 } else { (resident as u128 * bytes as u128 / looked_at as u128) as usize }
}

/// Bytes of a page of the system.
pub(super) fn page_bytes() -> usize {
    // SAFETY: sysconf only reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("the page size is positive")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::FromRawFd;

    impl Backing for File {
        fn bytes(&self) -> io::Result<u64> {
            Ok(self.metadata()?.len())
        }

        fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
            assert!(from <= to);
            self.set_len(to)
        }
    }

    /// A file in memory.
    pub(crate) fn anonymous_file() -> File {
        // SAFETY: the name is a C string; the descriptor returned is nobody else's.
        unsafe {
            let fd = libc::memfd_create(c"nigh-test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            File::from_raw_fd(fd)
        }
    }

    #[test]
    fn a_file_grows_in_steps_and_keeps_what_it_has() {
        let file = anonymous_file();
        let pages = FilePages::new(Box::new(file.try_clone().unwrap()), 4096).unwrap();
        assert_eq!(pages.committed(), 0);
        pages.commit(10, 1 << 30).unwrap();
        assert_eq!(pages.committed(), 10 + STEP_MIN_BYTES);
        assert_eq!(file.metadata().unwrap().len(), 4096 + 10 + STEP_MIN_BYTES as u64);
        pages.commit(STEP_MIN_BYTES, 1 << 30).unwrap();
        assert_eq!(pages.committed(), 10 + STEP_MIN_BYTES, "nothing to do");
        pages.commit(40 << 20, 1 << 30).unwrap();
        assert_eq!(pages.committed(), 45 << 20);
        pages.commit(46 << 20, 46 << 20).unwrap();
        assert_eq!(pages.committed(), 46 << 20, "no more than is asked for at most");
        let again = FilePages::new(Box::new(file), 4096).unwrap();
        assert_eq!(again.committed(), 46 << 20);
    }

    #[test]
    fn a_full_file_system_is_an_error() {
        let file = anonymous_file();
        let pages = FilePages::new(Box::new(file.try_clone().unwrap()), 0).unwrap();
        pages.commit(1, 1 << 20).unwrap();
        // SAFETY: the descriptor is open, and the call looks at no memory of ours.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_GROW) }, 0);
        let error = pages.commit(2 << 20, 4 << 20).unwrap_err();
        assert!(error.raw_os_error().is_some(), "{error}");
        assert_eq!(pages.committed(), 1 << 20);
    }
}
