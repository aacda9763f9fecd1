//! A disk in memory that knows what a power loss would leave of it, and that fails on demand.
//!
//! It promises exactly what [`Disk`] promises and not a bit more: a write counts only after a `sync` of its file that
//! began later, a new name only after a sync of its directory, and only renames are atomic. [`SimDisk::crash_clone`]
//! draws one of the disks that may be found after a crash; whatever was not synced is there, gone, or half there.
//! With [`SimDisk::set_yielding`] every call gives way to other tasks at random points, so one seed is one interleaving.
mod contents;
mod faults;
mod names;

pub use faults::{Calls, Failure};

use super::{BLOCK, Disk, DiskFile, Listing, LocalBoxFuture, PageFile, Space};
use crate::sim::Random;
use contents::Contents;
use faults::Faults;
use names::{FileId, NameChange, Names, Node, parent};
use nigh_engine::memory::ScratchFiles;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// See the module. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    shared: Rc<Shared>,
}

struct Shared {
    random: Random,
    yielding: Cell<bool>,
    state: RefCell<SimState>,
}

#[derive(Default)]
struct SimState {
    /// What a program sees.
    names: Names,
    /// What is certainly there after a crash.
    durable: Names,
    /// What leads from `durable` to `names`, in order.
    pending: Vec<NameChange>,
    files: HashMap<FileId, Contents>,
    next_file: FileId,
    /// Bytes the disk holds at most; `None` = endless.
    space_bytes: Option<u64>,
    faults: Faults,
}

impl SimDisk {
    /// An empty disk whose choices (yields, what a crash keeps) follow from `seed`.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk {
            shared: Rc::new(Shared {
                random: Random::new(seed),
                yielding: Cell::new(false),
                state: RefCell::new(SimState {
                    names: Names::new(),
                    durable: Names::new(),
                    ..SimState::default()
                }),
            }),
        }
    }

    /// Whether calls give way at random points (off at first).
    pub fn set_yielding(&self, yielding: bool) {
        self.shared.yielding.set(yielding);
    }

    /// Limits the bytes in all files together, those already written included; `None` lifts the limit.
    pub fn set_space(&self, bytes: Option<u64>) {
        self.shared.state.borrow_mut().space_bytes = bytes;
    }

    /// Bytes in all files together.
    pub fn used_bytes(&self) -> u64 {
        self.shared.state.borrow().used_bytes()
    }

    /// The call of this kind that comes after `skip` others from now on fails as told.
    pub fn fail(&self, calls: Calls, skip: u64, failure: Failure) {
        self.shared.state.borrow_mut().faults.plan(calls, skip, failure);
    }

    /// Forgets the failures planned and not yet met.
    pub fn heal(&self) {
        self.shared.state.borrow_mut().faults.forget();
    }

    /// Calls of this kind made so far.
    pub fn calls(&self, calls: Calls) -> u64 {
        self.shared.state.borrow().faults.count(calls)
    }

    /// One of the disks that may be found if the power failed now; `seed` picks which. This disk is left as it is.
    ///
    /// Of the names and writes not yet synced each is kept or lost, a write also block by block, and the last write of a
    /// file may end at any byte. The clone has no faults planned and no limit of space.
    pub fn crash_clone(&self, seed: u64) -> SimDisk {
        let random = Random::new(seed);
        let after = SimDisk::new(random.next());
        after.set_yielding(self.shared.yielding.get());
        {
            let before = self.shared.state.borrow();
            let mut state = after.shared.state.borrow_mut();
            let mut names = before.durable.clone();
            for change in &before.pending {
                if random.chance(1, 2) {
                    names.apply(change);
                }
            }
            names.drop_orphans();
            for file in names.files() {
                state.files.insert(file, before.files[&file].after_crash(&random));
            }
            state.next_file = before.next_file;
            state.durable = names.clone();
            state.names = names;
        }
        after
    }

    /// Current bytes of a file.
    pub fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.shared.state.borrow();
        let file = state.names.file(path.as_ref()).ok()?;
        Some(state.files[&file].current().to_vec())
    }

    /// Puts a file there, parents included, as if it had been synced long ago.
    pub fn put(&self, path: impl AsRef<Path>, bytes: Vec<u8>) {
        let mut state = self.shared.state.borrow_mut();
        let file = state.new_file(Contents::durable(bytes));
        for ancestor in path.as_ref().ancestors().skip(1) {
            state.change_durably(NameChange::Set(ancestor.to_owned(), Node::Dir));
        }
        state.change_durably(NameChange::Set(path.as_ref().to_owned(), Node::File(file)));
    }

    /// Every file, in order, with its bytes.
    pub fn sizes(&self) -> Vec<(PathBuf, u64)> {
        let state = self.shared.state.borrow();
        let paths = state.names.file_paths().into_iter();
        paths
            .zip(state.names.files())
            .map(|(path, file)| (path, state.files[&file].current().len() as u64))
            .collect()
    }

    /// Every file, in order.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.shared.state.borrow().names.file_paths()
    }
}

impl Shared {
    /// A point where other tasks may run, and where a crash may fall.
    async fn pause(&self) {
        if self.yielding.get() {
            for _ in 0..self.random.below(3) {
                futures_lite::future::yield_now().await;
            }
        }
    }

    /// Makes the changes of names in `dir` durable.
    async fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.pause().await;
        self.enter(Calls::NameSync)?;
        self.state.borrow_mut().sync_names(dir);
        self.pause().await;
        Ok(())
    }

    /// Counts a call and fails it if that was planned.
    fn enter(&self, calls: Calls) -> io::Result<()> {
        match self.state.borrow_mut().faults.enter(calls) {
            Some(failure) => Err(failure.error()),
            None => Ok(()),
        }
    }
}

impl SimState {
    fn used_bytes(&self) -> u64 {
        self.names.files().map(|file| self.files[&file].current().len() as u64).sum()
    }

    /// Bytes a file may still grow.
    fn room_bytes(&self) -> u64 {
        self.space_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(self.used_bytes()))
    }

    /// A new name takes some room: none is made on a disk that has none at all.
    fn check_room_for_name(&self) -> io::Result<()> {
        if self.room_bytes() == 0 { Err(Failure::NoSpace.error()) } else { Ok(()) }
    }

    fn new_file(&mut self, contents: Contents) -> FileId {
        let file = self.next_file;
        self.next_file += 1;
        self.files.insert(file, contents);
        file
    }

    fn change(&mut self, change: NameChange) {
        self.names.apply(&change);
        self.pending.push(change);
    }

    fn change_durably(&mut self, change: NameChange) {
        self.names.apply(&change);
        self.durable.apply(&change);
    }

    fn sync_names(&mut self, dir: &Path) {
        let (synced, pending) = std::mem::take(&mut self.pending).into_iter().partition(|c| c.touches(dir));
        self.pending = pending;
        let synced: Vec<NameChange> = synced;
        for change in &synced {
            self.durable.apply(change);
        }
    }

    fn contents(&mut self, file: FileId) -> &mut Contents {
        let contents = self.files.get_mut(&file).expect("files are never forgotten while their disk lives");
        contents.look();
        contents
    }
}

/// Refuses paths that leave the disk, as the real one does.
fn checked(path: &Path) -> io::Result<&Path> {
    let inside = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if inside {
        Ok(path)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} leaves the disk", path.display())))
    }
}

impl Disk for SimDisk {
    fn create<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Rc<dyn DiskFile>>> {
        Box::pin(async move {
            let path = checked(path)?;
            self.shared.enter(Calls::Other)?;
            self.shared.pause().await;
            let file = {
                let mut state = self.shared.state.borrow_mut();
                state.names.check_dir(parent(path))?;
                state.check_room_for_name()?;
                let file = state.new_file(Contents::default());
                state.change(NameChange::Set(path.to_owned(), Node::File(file)));
                file
            };
            self.shared.pause().await;
            Ok(Rc::new(SimFile { shared: self.shared.clone(), file, closed: Cell::new(false) })
                as Rc<dyn DiskFile>)
        })
    }

    fn open<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Rc<dyn DiskFile>>> {
        Box::pin(async move {
            self.shared.enter(Calls::Other)?;
            self.shared.pause().await;
            let file = self.shared.state.borrow().names.file(checked(path)?)?;
            Ok(Rc::new(SimFile { shared: self.shared.clone(), file, closed: Cell::new(false) })
                as Rc<dyn DiskFile>)
        })
    }

    fn read<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Vec<u8>>> {
        Box::pin(async move {
            self.shared.enter(Calls::Other)?;
            self.shared.pause().await;
            let state = self.shared.state.borrow();
            let file = state.names.file(checked(path)?)?;
            Ok(state.files[&file].current().to_vec())
        })
    }

    fn replace<'a>(&'a self, path: &'a Path, bytes: &'a [u8]) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let path = checked(path)?;
            self.shared.enter(Calls::Other)?;
            self.shared.pause().await;
            let mut temporary = path.as_os_str().to_owned();
            temporary.push(".tmp");
            let temporary = PathBuf::from(temporary);
            {
                let mut state = self.shared.state.borrow_mut();
                state.names.check_dir(parent(path))?;
                if bytes.len() as u64 > state.room_bytes() {
                    return Err(Failure::NoSpace.error());
                }
                let file = state.new_file(Contents::durable(bytes.to_vec()));
                state.change(NameChange::Set(temporary.clone(), Node::File(file)));
            }
            self.shared.pause().await;
            self.shared.state.borrow_mut().change(NameChange::Rename(temporary, path.to_owned()));
            self.shared.sync_dir(parent(path)).await
        })
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let (from, to) = (checked(from)?, checked(to)?);
            self.shared.enter(Calls::Other)?;
            self.shared.pause().await;
            {
                let mut state = self.shared.state.borrow_mut();
                state.names.check_dir(parent(to))?;
                state.names.check_exists(from)?;
                state.change(NameChange::Rename(from.to_owned(), to.to_owned()));
            }
            self.shared.sync_dir(parent(from)).await?;
            self.shared.sync_dir(parent(to)).await
        })
    }

    fn remove<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let path = checked(path)?;
            self.shared.enter(Calls::Other)?;
            self.shared.pause().await;
            {
                let mut state = self.shared.state.borrow_mut();
                match state.names.file(path) {
                    Ok(_) => state.change(NameChange::Remove(path.to_owned())),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            self.shared.sync_dir(parent(path)).await
        })
    }

    fn remove_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let path = checked(path)?;
            self.shared.enter(Calls::Other)?;
            // From the inside out, one entry after the other: a crash may find any part of it gone.
            let entries = self.shared.state.borrow().names.below(path);
            for entry in entries {
                self.shared.pause().await;
                self.shared.state.borrow_mut().change(NameChange::Remove(entry));
            }
            self.shared.pause().await;
            {
                let mut state = self.shared.state.borrow_mut();
                if state.names.check_exists(path).is_err() {
                    return Ok(());
                }
                state.change(NameChange::Remove(path.to_owned()));
            }
            self.shared.sync_dir(parent(path)).await
        })
    }

    fn create_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let path = checked(path)?;
            self.shared.enter(Calls::Other)?;
            let mut ancestors: Vec<&Path> = path.ancestors().collect();
            ancestors.reverse();
            for dir in ancestors {
                self.shared.pause().await;
                {
                    let mut state = self.shared.state.borrow_mut();
                    if state.names.check_exists(dir).is_ok() {
                        state.names.check_dir(dir)?;
                    } else {
                        state.check_room_for_name()?;
                        state.change(NameChange::Set(dir.to_owned(), Node::Dir));
                    }
                }
                if dir != Path::new("") {
                    // Also of one that was there: a process killed between the two may have made it.
                    self.shared.sync_dir(parent(dir)).await?;
                }
            }
            Ok(())
        })
    }

    fn list<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Vec<PathBuf>>> {
        Box::pin(async move {
            self.shared.enter(Calls::Other)?;
            self.shared.pause().await;
            self.shared.state.borrow().names.list(checked(path)?)
        })
    }

    fn read_small<'a>(
        &'a self,
        dirs: &'a [PathBuf],
        most: u64,
        is_wanted: fn(&Path) -> bool,
    ) -> LocalBoxFuture<'a, io::Result<Vec<Option<Listing>>>> {
        Box::pin(async move {
            self.shared.enter(Calls::Other)?;
            self.shared.pause().await;
            let state = self.shared.state.borrow();
            let content = |path: &Path| {
                let content = state.files[&state.names.file(path).ok()?].current();
                (content.len() as u64 <= most).then(|| content.to_vec())
            };
            let entry = |dir: &Path, name: PathBuf| match is_wanted(&name) {
                true => (name.clone(), content(&dir.join(name))),
                false => (name, None),
            };
            let listing = |dir: &PathBuf| {
                let names = checked(dir).and_then(|dir| state.names.list(dir)).ok()?;
                Some(names.into_iter().map(|name| entry(dir, name)).collect())
            };
            Ok(dirs.iter().map(listing).collect())
        })
    }

    fn space<'a>(&'a self) -> LocalBoxFuture<'a, io::Result<Space>> {
        Box::pin(async move {
            self.shared.pause().await;
            let state = self.shared.state.borrow();
            Ok(Space { total: state.space_bytes.unwrap_or(u64::MAX), free: state.room_bytes() })
        })
    }

    fn scratch(&self) -> ScratchFiles {
        ScratchFiles::new(|| Ok(Box::new(PageFile(contents::memory_file()?))))
    }

    fn sync_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.shared.enter(Calls::Other)?;
            self.shared.state.borrow().names.check_dir(checked(path)?)?;
            self.shared.sync_dir(path).await
        })
    }
}

/// An open file of a [`SimDisk`].
struct SimFile {
    shared: Rc<Shared>,
    file: FileId,
    closed: Cell<bool>,
}

impl SimFile {
    fn check_open(&self) -> io::Result<()> {
        if self.closed.get() { Err(io::Error::other("the file has been closed")) } else { Ok(()) }
    }
}

fn check_aligned(what: &str, value: u64) -> io::Result<()> {
    if value.is_multiple_of(BLOCK as u64) {
        Ok(())
    } else {
        let text = format!("{what} {value} is not a multiple of {BLOCK}");
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}

impl DiskFile for SimFile {
    fn write_at<'a>(&'a self, offset: u64, bytes: &'a [u8]) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.check_open()?;
            check_aligned("offset", offset)?;
            check_aligned("length", bytes.len() as u64)?;
            let failure = self.shared.state.borrow_mut().faults.enter(Calls::Write);
            self.shared.pause().await;
            {
                let mut state = self.shared.state.borrow_mut();
                let grows = (offset + bytes.len() as u64)
                    .saturating_sub(state.contents(self.file).current().len() as u64);
                // To sum up what is used costs time, and most writes go to room that was taken before.
                if grows > 0 && grows > state.room_bytes() {
                    return Err(Failure::NoSpace.error());
                }
                if let Some(failure) = failure {
                    if failure == Failure::Short && !bytes.is_empty() {
                        let part = self.shared.random.index(bytes.len());
                        state.contents(self.file).write(offset, &bytes[..part]);
                    }
                    return Err(failure.error());
                }
                state.contents(self.file).write(offset, bytes);
            }
            self.shared.pause().await;
            Ok(())
        })
    }

    fn read_at<'a>(&'a self, offset: u64, len: usize) -> LocalBoxFuture<'a, io::Result<Vec<u8>>> {
        Box::pin(async move {
            self.shared.enter(Calls::Other)?;
            self.shared.pause().await;
            self.check_open()?;
            let mut state = self.shared.state.borrow_mut();
            let bytes = state.contents(self.file).current();
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            let end = start.saturating_add(len).min(bytes.len());
            Ok(bytes[start..end].to_vec())
        })
    }

    fn pages(&self) -> io::Result<std::fs::File> {
        self.shared.enter(Calls::Other)?;
        self.check_open()?;
        self.shared.state.borrow_mut().contents(self.file).map()
    }

    fn sync<'a>(&'a self) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.check_open()?;
            let (failure, upto) = {
                let mut state = self.shared.state.borrow_mut();
                (state.faults.enter(Calls::Sync), state.contents(self.file).written())
            };
            self.shared.pause().await;
            {
                let mut state = self.shared.state.borrow_mut();
                let contents = state.contents(self.file);
                if let Some(failure) = failure {
                    // As kernels do: the pages count as clean although nobody knows what reached the device, so a
                    // later sync that succeeds says nothing about them.
                    contents.forget_unsynced(&self.shared.random);
                    return Err(failure.error());
                }
                contents.synced(upto);
            }
            self.shared.pause().await;
            Ok(())
        })
    }

    fn preallocate<'a>(&'a self, len: u64) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            check_aligned("length", len)?;
            self.shared.enter(Calls::Other)?;
            self.shared.pause().await;
            let fits = {
                let mut state = self.shared.state.borrow_mut();
                let room = state.room_bytes();
                let contents = state.contents(self.file);
                let now = contents.current().len() as u64;
                if len > now {
                    // What fits is taken even when the rest does not: the caller has to clean up.
                    contents.set_len(now.saturating_add(room).min(len));
                }
                len <= now.saturating_add(room)
            };
            self.shared.pause().await;
            if fits { Ok(()) } else { Err(Failure::NoSpace.error()) }
        })
    }

    fn truncate<'a>(&'a self, len: u64) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.shared.enter(Calls::Other)?;
            self.shared.pause().await;
            self.shared.state.borrow_mut().contents(self.file).set_len(len);
            self.shared.pause().await;
            Ok(())
        })
    }

    fn len<'a>(&'a self) -> LocalBoxFuture<'a, io::Result<u64>> {
        Box::pin(async move {
            self.shared.enter(Calls::Other)?;
            Ok(self.shared.state.borrow_mut().contents(self.file).current().len() as u64)
        })
    }

    fn close<'a>(&'a self) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.closed.set(true);
            self.shared.enter(Calls::Other)
        })
    }
}

#[cfg(test)]
mod tests;
