//! How far a node is with opening its store, as every core and every front end may ask at any moment.
//!
//! Core 0 opens the store while all cores serve. What is not open yet is refused ([`crate::error::OpError::Opening`]), and whoever asks
//! whether the node is ready is told what is being opened.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

/// What is being opened, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// The names and configurations of the collections. Until they are known no name can be looked up.
    Catalog,
    /// The logs of the runs before.
    Log,
    /// The keys.
    Keys,
    /// The collections. The keys are served, and so is every collection that is open.
    Collections,
    /// Nothing: all is open.
    Done,
}

impl Stage {
    const ALL: [Stage; 5] = [Stage::Catalog, Stage::Log, Stage::Keys, Stage::Collections, Stage::Done];
}

/// How far the opening of the store is.
#[derive(Debug, Default)]
pub struct Progress {
    stage: AtomicU8,
    collections: AtomicU64,
    opened: AtomicU64,
    /// Bytes of images and of log records that are to be read, and that have been read.
    bytes: AtomicU64,
    bytes_done: AtomicU64,
    began_ns: AtomicU64,
    took_ns: AtomicU64,
    /// The process is to stop, so that opening more is of no use.
    is_ending: AtomicBool,
}

/// The whole of what was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenedStore {
    /// Collections, among them those that are damaged or closed.
    pub collections: u64,
    /// Bytes of their images and of their records in the log.
    pub bytes: u64,
    /// Nanoseconds from the start of the first core.
    pub took_ns: u64,
}

impl Progress {
    /// Opening begins at this core time.
    pub(crate) fn begin(&self, now_ns: u64) {
        self.began_ns.store(now_ns, Relaxed);
    }

    /// The next stage begins.
    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Relaxed);
    }

    /// What is being opened.
    pub fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.stage.load(Relaxed)).min(Stage::ALL.len() - 1)]
    }

    /// Whether all is open.
    pub fn is_open(&self) -> bool {
        self.stage() == Stage::Done
    }

    /// There are so many collections to open, with so many bytes on the disk.
    pub(crate) fn expect(&self, collections: u64, bytes: u64) {
        self.collections.store(collections, Relaxed);
        self.bytes.store(bytes, Relaxed);
    }

    /// Counts bytes of a collection that have been read and applied.
    pub(crate) fn read(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Relaxed);
    }

    /// A collection has been opened, or is known to stay damaged or closed. Of its bytes, `unread` were not read.
    pub(crate) fn opened(&self, unread: u64) {
        self.opened.fetch_add(1, Relaxed);
        self.read(unread);
    }

    /// Notes that all of the store is open.
    pub(crate) fn finish(&self, now_ns: u64) {
        self.took_ns.store(now_ns.saturating_sub(self.began_ns.load(Relaxed)), Relaxed);
        self.enter(Stage::Done);
    }

    /// What has been opened, once all is open.
    pub fn opened_store(&self) -> OpenedStore {
        OpenedStore {
            collections: self.collections.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            took_ns: self.took_ns.load(Relaxed),
        }
    }

    /// Nanoseconds that opening took, or has taken by this core time.
    pub fn took_ns(&self, now_ns: u64) -> u64 {
        match self.is_open() {
            true => self.took_ns.load(Relaxed),
            false => now_ns.saturating_sub(self.began_ns.load(Relaxed)),
        }
    }

    /// Collections that are not open yet, as far as they are known.
    pub fn unopened(&self) -> u64 {
        self.collections.load(Relaxed).saturating_sub(self.opened.load(Relaxed))
    }

    /// Asks everything that is being opened to end soon, because it will not be served.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Relaxed);
    }

    /// Whether the process is to stop.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Relaxed)
    }

    /// A sentence that says what is being opened and how far, or `None` when all is open.
    pub fn describe(&self) -> Option<String> {
        let what = match self.stage() {
            Stage::Done => return None,
            Stage::Catalog => "its catalog is being read".to_owned(),
            Stage::Log => "its log is being read".to_owned(),
            Stage::Keys => "its keys are being read".to_owned(),
            Stage::Collections => {
                let [collections, opened, bytes, done] =
                    [&self.collections, &self.opened, &self.bytes, &self.bytes_done].map(|n| n.load(Relaxed));
                let percent = (done.min(bytes) * 100).checked_div(bytes).unwrap_or(0);
                format!(
                    "{opened} of {collections} collections are open, and {percent} % of {bytes} bytes have been read"
                )
            }
        };
        Some(format!("the store is being opened: {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_opened_is_told_in_a_sentence() {
        let progress = Progress::default();
        progress.begin(5);
        let told = |stage| {
            progress.enter(stage);
            progress.describe().unwrap_or_default()
        };
        assert_eq!(told(Stage::Catalog), "the store is being opened: its catalog is being read");
        assert_eq!(told(Stage::Log), "the store is being opened: its log is being read");
        assert_eq!(told(Stage::Keys), "the store is being opened: its keys are being read");
        let empty =
            "the store is being opened: 0 of 0 collections are open, and 0 % of 0 bytes have been read";
        assert_eq!(told(Stage::Collections), empty);
        progress.expect(3, 1000);
        progress.read(100);
        progress.opened(150);
        let part =
            "the store is being opened: 1 of 3 collections are open, and 25 % of 1000 bytes have been read";
        assert_eq!(told(Stage::Collections), part);
        assert_eq!((progress.unopened(), progress.took_ns(12), progress.is_open()), (2, 7, false));
        progress.finish(25);
        assert_eq!((progress.describe(), progress.took_ns(99)), (None, 20));
        let opened = OpenedStore { collections: 3, bytes: 1000, took_ns: 20 };
        assert_eq!(progress.opened_store(), opened);
    }
}
