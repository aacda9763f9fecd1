//! Files that are opened at the start and again while the server runs: those that are read, when they have changed and on SIGHUP, and those that are
//! written, on SIGHUP.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Between two looks whether a file has changed.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Files that belong together.
pub struct Reloadable {
    /// What the log says when the files have been reloaded or reopened, and when that has failed.
    succeeded: String,
    failed: String,
    files: Vec<PathBuf>,
    /// What the files looked like when they were last read.
    seen: Vec<Option<Stamp>>,
    reload: Box<dyn FnMut() -> Result<(), String> + Send>,
}

/// Differs when a file has been written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed_ns: (i64, i64),
}

impl Reloadable {
    /// Notes what the files look like, reads them with `first`, and keeps what `reload` makes of the result to read them again. `what` names them in
    /// the log.
    ///
    /// # Errors
    /// Returns the error of `first`.
    pub fn read<T, R: FnMut() -> Result<(), String> + Send + 'static>(
        what: &'static str,
        files: Vec<PathBuf>,
        first: impl FnOnce() -> Result<T, String>,
        reload: impl FnOnce(&T) -> R,
    ) -> Result<(T, Reloadable), String> {
        // A change that comes while they are read is seen at the first look.
        let seen = stamps(&files);
        let read = first()?;
        let reload = Box::new(reload(&read));
        let succeeded = format!("{what} were reloaded");
        let failed = format!("{what} could not be reloaded; the earlier ones stay in use");
        Ok((read, Reloadable { succeeded, failed, files, seen, reload }))
    }

    /// A file that is written, and reopened with `reopen` when somebody asks. `what` names it in the log.
    pub fn on_request(what: String, reopen: Box<dyn FnMut() -> Result<(), String> + Send>) -> Reloadable {
        let failed = format!("{what} could not be reopened; the earlier one stays in use");
        let succeeded = what + " was reopened";
        Reloadable { succeeded, failed, files: Vec::new(), seen: Vec::new(), reload: reopen }
    }

    /// Reads the files again if they have changed, or if `is_asked`. If that fails, what was read before stays.
    fn look(&mut self, is_asked: bool) {
        // Before the files are read: a change that comes meanwhile is seen at the next look.
        let found = stamps(&self.files);
        if found == self.seen && !is_asked {
            return;
        }
        self.seen = found;
        match (self.reload)() {
            Ok(()) => tracing::info!("{}", self.succeeded),
            Err(error) => tracing::error!(%error, "{}", self.failed),
        }
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |file: &PathBuf| {
        let found = fs::metadata(file).ok()?;
        let changed_ns = (found.ctime(), found.ctime_nsec());
        Some(Stamp { inode: found.ino(), bytes: found.len(), changed_ns })
    };
    files.iter().map(stamp).collect()
}

/// Looks after the files until `hung_up` closes. Each word of `hung_up` is a SIGHUP.
pub fn watch(mut all: Vec<Reloadable>, hung_up: &Receiver<()>) {
    loop {
        let is_asked = match hung_up.recv_timeout(LOOK_EVERY) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if is_asked && all.is_empty() {
            tracing::info!(
                "SIGHUP ignored: flags, environment and -config are read at start alone; restart to change them"
            );
        }
        for files in &mut all {
            files.look(is_asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn files_are_read_again_when_they_change_or_somebody_asks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "one").unwrap();
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = reads.clone();
        let reload = move || match counted.fetch_add(1, Ordering::Relaxed) {
            1 => Err("it is half written".to_owned()),
            _ => Ok(()),
        };
        let read = Reloadable::read("a file", vec![path.clone()], || Ok(()), |()| reload);
        let ((), mut files) = read.unwrap();
        let mut reads_after = |is_asked| {
            files.look(is_asked);
            reads.load(Ordering::Relaxed)
        };
        assert_eq!((reads_after(false), reads_after(true)), (0, 1));
        // Same length, another file in its place, as tools that rotate certificates do it.
        fs::write(directory.path().join("next"), "two").unwrap();
        fs::rename(directory.path().join("next"), &path).unwrap();
        assert_eq!((reads_after(false), reads_after(false)), (2, 2));
        fs::write(&path, "three").unwrap();
        assert_eq!((reads_after(false), reads_after(false)), (3, 3));
        fs::remove_file(&path).unwrap();
        assert_eq!((reads_after(false), reads_after(false)), (4, 4));
    }

    #[test]
    fn a_file_that_is_written_is_reopened_when_somebody_asks() {
        let opened = Arc::new(AtomicUsize::new(0));
        let counted = opened.clone();
        let reopen = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let mut file = Reloadable::on_request("a file".to_owned(), Box::new(reopen));
        for (is_asked, times) in [(false, 0), (true, 1), (false, 1), (true, 2)] {
            file.look(is_asked);
            assert_eq!(opened.load(Ordering::Relaxed), times);
        }
    }
}
