//! Where lines are written: stderr, or a file, pipe or device that can be reopened while a write to it waits.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long to wait for room in a pipe before looking whether the file has been reopened.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// A file that lines may be appended to.
pub struct Opened {
    file: File,
    /// The last line has no newline.
    is_cut: bool,
}

impl Opened {
    /// Opens `path` for appending. A file that is not there is created, for its owner alone.
    ///
    /// # Errors
    /// It cannot be opened or created, or is a pipe that nobody reads.
    pub fn at(path: &Path) -> io::Result<Opened> {
        // Without NONBLOCK opening a pipe would wait for a reader, and a write to it could not be abandoned.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(flags.bits() as i32)
            .open(path)
            .map_err(|error| match Errno::from_io_error(&error) {
                Some(Errno::NXIO) => {
                    io::Error::new(error.kind(), "nobody reads from this pipe, or there is no such device")
                }
                _ => error,
            })?;
        let found = file.metadata()?;
        let is_cut = found.is_file() && found.len() > 0 && is_cut(path, found.len());
        Ok(Opened { file, is_cut })
    }
}

/// Whether the last line of a file of so many bytes has no newline. A file that cannot be read counts as whole.
fn is_cut(path: &Path, bytes: u64) -> bool {
    let mut last = [b'\n'];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut last, bytes - 1));
    read.is_ok() && last != [b'\n']
}

/// Where another thread leaves the file that is to replace the one in use.
#[derive(Clone, Default)]
pub struct Successor(Arc<Mutex<Option<Opened>>>);

impl Successor {
    fn lock(&self) -> MutexGuard<'_, Option<Opened>> {
        // The lock guards one assignment, which leaves nothing half done. Cores never take it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next write goes to `file`.
    pub fn put(&self, file: Opened) {
        *self.lock() = Some(file);
    }
}

/// How a write has ended.
#[derive(Debug)]
pub struct Written {
    /// Lines that were written as a whole; the others were not.
    pub lines: usize,
    /// Why some were not.
    pub error: Option<io::Error>,
}

/// Where lines are written.
pub struct Sink {
    /// `None` is stderr.
    file: Option<File>,
    /// The last line has no newline, so one must be written before the next line.
    is_cut: bool,
    successor: Successor,
}

impl Sink {
    /// Writes to `file`, or to stderr.
    pub fn new(file: Option<Opened>, successor: Successor) -> Sink {
        let is_cut = file.as_ref().is_some_and(|file| file.is_cut);
        Sink { file: file.map(|opened| opened.file), is_cut, successor }
    }

    /// Writes the lines in `bytes`, which end at `ends`. Waits as long as a pipe has no room.
    pub fn write(&mut self, bytes: &[u8], ends: &[usize]) -> Written {
        let whole = |at: usize| ends.partition_point(|end| *end <= at);
        let begin_of = |line: usize| line.checked_sub(1).map_or(0, |before| ends[before]);
        let mut at = 0;
        let error = loop {
            if self.adopt() {
                // A line of which a part was written is written to the new file as a whole.
                at = begin_of(whole(at));
            }
            if at == bytes.len() {
                break None;
            }
            let next = if self.is_cut { b"\n" } else { &bytes[at..] };
            let stderr = io::stderr();
            let to = self.file.as_ref().map_or(stderr.as_fd(), File::as_fd);
            match rustix::io::write(to, next) {
                Ok(0) => break Some(ErrorKind::WriteZero.into()),
                Ok(_) if self.is_cut => self.is_cut = false,
                Ok(written) => at += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait(to),
                Err(error) => break Some(error.into()),
            }
        };
        let lines = whole(at);
        self.is_cut |= at > begin_of(lines);
        Written { lines, error }
    }

    /// Switches to the file that has been reopened, if there is one.
    fn adopt(&mut self) -> bool {
        let Some(opened) = self.successor.lock().take() else { return false };
        (self.file, self.is_cut) = (Some(opened.file), opened.is_cut);
        true
    }
}

/// Waits until there is room, at most for [`WAIT`]. An error here is ignored, as the next write fails as well.
fn wait(to: BorrowedFd<'_>) {
    let _next_write_tells = poll(&mut [PollFd::new(&to, PollFlags::OUT)], Some(&WAIT));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, Mode, mknodat};
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    fn sink(path: &Path) -> (Sink, Successor) {
        let successor = Successor::default();
        (Sink::new(Some(Opened::at(path).unwrap()), successor.clone()), successor)
    }

    fn write(sink: &mut Sink, lines: &[&str]) -> usize {
        let ends: Vec<usize> = lines
            .iter()
            .scan(0, |end, line| {
                *end += line.len();
                Some(*end)
            })
            .collect();
        let written = sink.write(lines.concat().as_bytes(), &ends);
        assert_eq!(written.error.is_none(), written.lines == lines.len(), "{written:?}");
        written.lines
    }

    #[test]
    fn lines_are_appended_to_a_file_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        assert_eq!(write(&mut sink(&path).0, &["a\n", "b\n"]), 2);
        assert_eq!(write(&mut sink(&path).0, &["c\n"]), 1);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\nc\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_line_without_an_end_is_not_glued_to_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, "cut").unwrap();
        let (mut sink, successor) = sink(&path);
        assert_eq!(write(&mut sink, &["a\n"]), 1);
        // As a full disk leaves it behind.
        sink.is_cut = true;
        assert_eq!(write(&mut sink, &["b\n", "c\n"]), 2);
        assert_eq!(fs::read_to_string(&path).unwrap(), "cut\na\n\nb\nc\n");
        fs::write(&path, "other\ncut").unwrap();
        successor.put(Opened::at(&path).unwrap());
        assert_eq!(write(&mut sink, &["d\n"]), 1);
        assert_eq!(fs::read_to_string(&path).unwrap(), "other\ncut\nd\n");
    }

    #[test]
    fn a_full_device_loses_lines_and_no_more() {
        let (mut sink, successor) = sink(Path::new("/dev/full"));
        let written = sink.write(b"a\nb\n", &[2, 4]);
        assert_eq!(
            (written.lines, written.error.map(|error| error.kind())),
            (0, Some(ErrorKind::StorageFull))
        );
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        successor.put(Opened::at(&path).unwrap());
        assert_eq!(write(&mut sink, &["c\n"]), 1);
        assert_eq!(fs::read_to_string(&path).unwrap(), "c\n");
    }

    /// A writer of the log that waited in the kernel could not be told of the new file.
    #[test]
    fn a_stalled_pipe_can_be_left_for_another_file() {
        let directory = tempfile::tempdir().unwrap();
        let (pipe, path) = (directory.path().join("pipe"), directory.path().join("log"));
        mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let error = Opened::at(&pipe).err().unwrap();
        assert!(error.to_string().contains("nobody reads from this pipe"), "{error}");
        let mut reader =
            OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&pipe).unwrap();
        let (mut sink, successor) = sink(&pipe);
        let line = format!("{}\n", "x".repeat(40_000));
        let writer = {
            let line = line.clone();
            std::thread::spawn(move || write(&mut sink, &[&line, &line, &line]))
        };
        std::thread::sleep(std::time::Duration::from_millis(20));
        successor.put(Opened::at(&path).unwrap());
        assert_eq!(writer.join().unwrap(), 3);
        let mut piped = String::new();
        let _nothing_more = reader.read_to_string(&mut piped);
        let filed = fs::read_to_string(&path).unwrap();
        let (whole, rest) = (piped.matches('\n').count(), piped.rsplit('\n').next().unwrap());
        assert_eq!(filed, line.repeat(3 - whole), "whole lines, none of them twice");
        assert!(line.starts_with(rest));
    }
}
