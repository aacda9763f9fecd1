//! Reads the small files of many directories with one call of the disk instead of one for each file.
//!
//! A start looks for about ten small files of every collection, most of which do not exist. Each call of the disk is a message to another thread
//! and back, which takes longer than the work of the file system.

use super::{Disk, DiskFile, LocalBoxFuture, ReadThrough, Space};
use ahash::HashMap;
use nigh_engine::memory::ScratchFiles;
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What lies directly in a directory: sorted names, each with the content of the file if it was read.
pub type Listing = Vec<(PathBuf, Option<Vec<u8>>)>;

/// A disk whose small files, those of some directories, are in memory. A directory that is changed through it is forgotten, and read from the
/// disk again. Nobody else may change these directories meanwhile.
pub struct SmallFiles<'d> {
    disk: &'d dyn Disk,
    known: RefCell<HashMap<PathBuf, Listing>>,
}

impl<'d> SmallFiles<'d> {
    /// Reads the names in `dirs`, and the contents of those files that have at most `most` bytes and that `is_wanted` accepts. What cannot be
    /// read is not kept in memory, so that whoever asks for it gets the error of the disk.
    pub async fn read_from(
        disk: &'d dyn Disk,
        dirs: Vec<PathBuf>,
        most: u64,
        is_wanted: fn(&Path) -> bool,
    ) -> SmallFiles<'d> {
        let known = match disk.read_small(&dirs, most, is_wanted).await {
            Ok(listings) => {
                dirs.into_iter().zip(listings).filter_map(|(dir, found)| Some((dir, found?))).collect()
            }
            Err(_) => HashMap::default(),
        };
        SmallFiles { disk, known: RefCell::new(known) }
    }

    /// Whether the names in a directory are known.
    #[cfg(test)]
    fn knows(&self, dir: &Path) -> bool {
        self.known.borrow().contains_key(dir)
    }

    /// What is known of a file: `None` if nothing is, else its contents, or the error that there is no such file.
    fn find(&self, path: &Path) -> Option<io::Result<Vec<u8>>> {
        let known = self.known.borrow();
        let (listing, name) = (known.get(path.parent()?)?, path.file_name()?);
        match listing.binary_search_by(|(found, _)| found.as_os_str().cmp(name)) {
            Ok(at) => listing[at].1.clone().map(Ok),
            Err(_) => Some(Err(io::ErrorKind::NotFound.into())),
        }
    }

    /// Forgets what is known of the directories at and below `path`, and of the directory that it is in, because they change.
    fn forget(&self, path: &Path) {
        self.known
            .borrow_mut()
            .retain(|dir, _| !dir.starts_with(path) && Some(dir.as_path()) != path.parent());
    }
}

impl Disk for SmallFiles<'_> {
    fn create<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Rc<dyn DiskFile>>> {
        self.forget(path);
        self.disk.create(path)
    }

    fn open<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Rc<dyn DiskFile>>> {
        self.forget(path);
        self.disk.open(path)
    }

    fn read_through<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Box<dyn ReadThrough>>> {
        self.disk.read_through(path)
    }

    fn read<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Vec<u8>>> {
        match self.find(path) {
            Some(found) => Box::pin(std::future::ready(found)),
            None => self.disk.read(path),
        }
    }

    fn replace<'a>(&'a self, path: &'a Path, bytes: &'a [u8]) -> LocalBoxFuture<'a, io::Result<()>> {
        self.forget(path);
        self.disk.replace(path, bytes)
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        self.forget(from);
        self.forget(to);
        self.disk.rename(from, to)
    }

    fn remove<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        self.forget(path);
        self.disk.remove(path)
    }

    fn remove_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        self.forget(path);
        self.disk.remove_dir(path)
    }

    fn create_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        self.forget(path);
        self.disk.create_dir(path)
    }

    fn list<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Vec<PathBuf>>> {
        let names = self
            .known
            .borrow()
            .get(path)
            .map(|listing| listing.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
        match names {
            Some(names) => Box::pin(std::future::ready(Ok(names))),
            None => self.disk.list(path),
        }
    }

    fn read_small<'a>(
        &'a self,
        dirs: &'a [PathBuf],
        most: u64,
        is_wanted: fn(&Path) -> bool,
    ) -> LocalBoxFuture<'a, io::Result<Vec<Option<Listing>>>> {
        self.disk.read_small(dirs, most, is_wanted)
    }

    fn space<'a>(&'a self) -> LocalBoxFuture<'a, io::Result<Space>> {
        self.disk.space()
    }

    fn scratch(&self) -> ScratchFiles {
        self.disk.scratch()
    }

    fn sync_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        self.disk.sync_dir(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Calls, Failure, SimDisk};
    use futures_lite::future::block_on;

    fn is_wanted(name: &Path) -> bool {
        name != Path::new("large.img")
    }

    fn filled() -> SimDisk {
        let disk = SimDisk::new(1);
        block_on(disk.create_dir(Path::new("d/e"))).unwrap();
        disk.put("d/a", vec![1]);
        disk.put("d/b", vec![2; 100]);
        disk.put("d/large.img", vec![3]);
        disk
    }

    fn read_all(disk: &SimDisk) -> SmallFiles<'_> {
        let dirs = ["d", "copies/d"].map(PathBuf::from).to_vec();
        block_on(SmallFiles::read_from(disk, dirs, 99, is_wanted))
    }

    /// Every answer is that of the disk, and those that are known take no call of it.
    #[test]
    fn answers_are_those_of_the_disk() {
        let disk = filled();
        let known = read_all(&disk);
        let not_found = |path: &str| block_on(known.read(Path::new(path))).unwrap_err().kind();
        disk.fail(Calls::Other, 0, Failure::NoSpace);
        assert_eq!(block_on(known.read(Path::new("d/a"))).unwrap(), [1]);
        assert_eq!(not_found("d/none"), io::ErrorKind::NotFound);
        assert_eq!(not_found("copies/d/a"), io::ErrorKind::NotFound, "a directory that is missing");
        let names = block_on(known.list(Path::new("d"))).unwrap();
        assert_eq!(names, ["a", "b", "e", "large.img"].map(PathBuf::from));
        assert!(block_on(known.list(Path::new("copies/d"))).unwrap().is_empty());
        // This one is too long to be known, so that it takes the call that fails.
        assert_eq!(not_found("d/b"), io::ErrorKind::StorageFull);
        assert_eq!(block_on(known.read(Path::new("d/b"))).unwrap(), [2; 100]);
        assert_eq!(block_on(known.read(Path::new("d/large.img"))).unwrap(), [3]);
    }

    #[test]
    fn what_changes_is_read_again() {
        let disk = filled();
        let known = read_all(&disk);
        block_on(known.replace(Path::new("d/a"), &[7])).unwrap();
        assert_eq!(block_on(known.read(Path::new("d/a"))).unwrap(), [7]);
        assert!(!known.knows(Path::new("d")) && known.knows(Path::new("copies/d")));
        block_on(known.create_dir(Path::new("copies/d"))).unwrap();
        block_on(known.replace(Path::new("copies/d/a"), &[8])).unwrap();
        assert_eq!(block_on(known.read(Path::new("copies/d/a"))).unwrap(), [8]);
        for change in 0..4 {
            let known = read_all(&disk);
            match change {
                0 => block_on(known.remove(Path::new("d/b"))).unwrap(),
                1 => block_on(known.rename(Path::new("d/a"), Path::new("copies/d/b"))).unwrap(),
                2 => drop(block_on(known.create(Path::new("d/c"))).unwrap()),
                _ => block_on(known.remove_dir(Path::new("d"))).unwrap(),
            }
            for dir in ["d", "copies/d"].map(Path::new) {
                assert_eq!(
                    block_on(known.list(dir)).unwrap(),
                    block_on(disk.list(dir)).unwrap(),
                    "change {change}"
                );
            }
        }
    }

    /// A disk that fails says so to whoever asks for a file, not before.
    #[test]
    fn nothing_is_known_of_what_cannot_be_read() {
        let disk = filled();
        disk.fail(Calls::Other, 0, Failure::NoSpace);
        let known = read_all(&disk);
        assert_eq!(block_on(known.read(Path::new("d/a"))).unwrap(), [1]);
        assert_eq!(block_on(known.read(Path::new("d/none"))).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
