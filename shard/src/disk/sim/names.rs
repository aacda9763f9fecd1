//! The directory tree.
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// Number of a file, for ever: names come and go, open handles keep it alive.
pub(super) type FileId = u64;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(FileId),
}

/// A change of names that a crash keeps or loses as a whole.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Set(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl NameChange {
    /// Whether a sync of `dir` makes it durable.
    pub(super) fn touches(&self, dir: &Path) -> bool {
        match self {
            NameChange::Set(path, _) | NameChange::Remove(path) => parent(path) == dir,
            NameChange::Rename(from, to) => parent(from) == dir || parent(to) == dir,
        }
    }
}

pub(super) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Every path of the disk; the root is the empty path.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(BTreeMap<PathBuf, Node>);

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} does not exist", path.display()))
}

impl Names {
    pub(super) fn new() -> Names {
        Names(BTreeMap::from([(PathBuf::new(), Node::Dir)]))
    }

    pub(super) fn apply(&mut self, change: &NameChange) {
        match change {
            NameChange::Set(path, node) => {
                self.0.insert(path.clone(), *node);
            }
            NameChange::Remove(path) => {
                self.0.remove(path);
            }
            NameChange::Rename(from, to) => {
                let moved: Vec<PathBuf> = self.within(from).cloned().collect();
                for path in moved {
                    let rest = path.strip_prefix(from).expect("filtered by this prefix");
                    // `join` of an empty rest would add a slash.
                    let target = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                    let node = self.0.remove(&path).expect("listed above");
                    self.0.insert(target, node);
                }
            }
        }
    }

    /// `path` and everything below it, in order. Paths are compared part by part, so that these lie together.
    fn within<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
        let from = self.0.range::<Path, _>((Bound::Included(path), Bound::Unbounded));
        from.map(|(entry, _)| entry).take_while(move |entry| entry.starts_with(path))
    }

    /// Removes what has no directory any more (its creation was lost, or its removal came first).
    pub(super) fn drop_orphans(&mut self) {
        // Parents sort before children, so one pass sees every parent's fate first.
        let mut kept = Names::new();
        for (path, node) in std::mem::take(&mut self.0) {
            if kept.check_dir(parent(&path)).is_ok() {
                kept.0.insert(path, node);
            }
        }
        *self = kept;
    }

    pub(super) fn check_dir(&self, path: &Path) -> io::Result<()> {
        match self.0.get(path) {
            Some(Node::Dir) => Ok(()),
            Some(Node::File(_)) => {
                Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{} is a file", path.display())))
            }
            None => Err(not_found(path)),
        }
    }

    pub(super) fn check_exists(&self, path: &Path) -> io::Result<()> {
        if self.0.contains_key(path) { Ok(()) } else { Err(not_found(path)) }
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<FileId> {
        match self.0.get(path) {
            Some(Node::File(file)) => Ok(*file),
            Some(Node::Dir) => {
                Err(io::Error::new(io::ErrorKind::IsADirectory, format!("{} is a directory", path.display())))
            }
            None => Err(not_found(path)),
        }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = FileId> + '_ {
        self.0.values().filter_map(|node| match node {
            Node::File(file) => Some(*file),
            Node::Dir => None,
        })
    }

    pub(super) fn file_paths(&self) -> Vec<PathBuf> {
        self.0
            .iter()
            .filter(|(_, node)| matches!(node, Node::File(_)))
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// Everything strictly below `path`, deepest first.
    pub(super) fn below(&self, path: &Path) -> Vec<PathBuf> {
        let mut below: Vec<PathBuf> = self.within(path).filter(|entry| *entry != path).cloned().collect();
        below.reverse();
        below
    }

    /// Last parts of the names directly in `path`.
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        if !self.0.contains_key(path) {
            return Ok(Vec::new());
        }
        self.check_dir(path)?;
        let inside = self.within(path).filter(|entry| !entry.as_os_str().is_empty() && parent(entry) == path);
        Ok(inside.filter_map(|entry| entry.file_name()).map(PathBuf::from).collect())
    }
}
