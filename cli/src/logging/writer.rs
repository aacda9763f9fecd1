//! The threads that write lines: one for each place where lines go, so that a place which stalls holds up no log that goes elsewhere.
use super::line::{Format, Log, of_loss};
use super::queue::{Counts, Word};
use super::sink::{Opened, Sink, Successor};
use crate::confine::Joining;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::{Duration, Instant};

/// The most bytes of lines that are written in one piece, unless one line alone is longer.
const BATCH_BYTES: usize = 64 << 10;
/// How often a loss that could not be reported is tried again if no further lines come.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// A file of `-log-file`, `-access-log-file` or `-audit-log-file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// The flag, with its dash.
    pub flag: &'static str,
    /// The path.
    pub path: PathBuf,
}

/// Reopens a file that a thread writes.
pub struct Reopening {
    file: LogFile,
    words: Sender<Word>,
    successor: Successor,
}

impl Reopening {
    /// The flag of the file, with its dash.
    pub fn flag(&self) -> &'static str {
        self.file.flag
    }

    /// Opens the path again; the next lines go there.
    ///
    /// # Errors
    /// A sentence that names the flag and the path. The earlier file stays in use.
    pub fn reopen(&self) -> Result<(), String> {
        self.successor.put(open(&self.file)?);
        // A thread that has ended writes nothing anyway.
        let _ended = self.words.send(Word::Reopened);
        Ok(())
    }
}

fn open(file: &LogFile) -> Result<Opened, String> {
    Opened::at(&file.path).map_err(|error| format!("{} {}: {error}", file.flag, file.path.display()))
}

/// A thread that writes lines.
pub struct Writer {
    words: Sender<Word>,
    file: Option<(LogFile, Successor)>,
    ended: Receiver<()>,
}

impl Writer {
    /// Opens `file`, and starts a thread that writes the lines of `logs` to it, or to stderr.
    ///
    /// # Errors
    /// A sentence that names the flag and the path; or no thread could be started.
    pub fn start(
        file: Option<LogFile>,
        logs: Vec<Log>,
        format: Format,
        counts: Arc<Counts>,
    ) -> Result<Writer, String> {
        let successor = Successor::default();
        let sink = Sink::new(file.as_ref().map(open).transpose()?, successor.clone());
        let (words, received) = channel();
        let (end, ended) = sync_channel(1);
        let name = file.as_ref().map(|file| (file.flag, file.path.clone()));
        let reported = [0; Log::ALL.len()];
        let mut pen = Pen {
            sink,
            name,
            logs,
            format,
            counts,
            reported,
            is_failing: false,
            batch: Batch::default(),
            joining: Joining::default(),
        };
        std::thread::Builder::new()
            .name("nigh-log".into())
            .spawn(move || {
                pen.run(&received);
                let _nobody_waits = end.send(());
            })
            .map_err(|error| format!("a thread could not be started: {error}"))?;
        Ok(Writer { words, file: file.map(|file| (file, successor)), ended })
    }

    /// The sending end of its queue.
    pub fn words(&self) -> Sender<Word> {
        self.words.clone()
    }

    /// The path of its file, unless it writes to stderr.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|(file, _)| file.path.as_path())
    }

    /// What reopens its file, unless it writes to stderr.
    pub fn reopening(&self) -> Option<Reopening> {
        let (file, successor) = self.file.clone()?;
        Some(Reopening { file, words: self.words.clone(), successor })
    }

    /// Has the thread confine itself as the process is confined.
    pub fn join_confinement(&self) {
        // It does so whenever it is told something.
        let _ended = self.words.send(Word::Reopened);
    }

    /// Has the thread write the lines that wait, and end.
    pub fn stop(&self) {
        let _ended = self.words.send(Word::Stop);
    }

    /// Waits until the thread has ended, but not beyond `deadline`.
    pub fn wait(&self, deadline: Instant) {
        let _late = self.ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Lines that are written in one piece.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The log of each line, and, for a line that reports losses, how many it reports.
    lines: Vec<(Log, Option<u64>)>,
}

impl Batch {
    fn push(&mut self, log: Log, line: &str, report: Option<u64>) {
        self.bytes.extend_from_slice(line.as_bytes());
        self.ends.push(self.bytes.len());
        self.lines.push((log, report));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(2 * BATCH_BYTES);
        self.ends.clear();
        self.lines.clear();
    }
}

/// The state of a thread that writes lines.
struct Pen {
    sink: Sink,
    /// The flag and the path of its file.
    name: Option<(&'static str, PathBuf)>,
    /// The logs that it writes.
    logs: Vec<Log>,
    format: Format,
    counts: Arc<Counts>,
    /// For each log, how many lost lines were reported last.
    reported: [u64; Log::ALL.len()],
    /// The last write failed.
    is_failing: bool,
    batch: Batch,
    joining: Joining,
}

impl Pen {
    /// Writes until it is told to stop.
    fn run(&mut self, words: &Receiver<Word>) {
        loop {
            let first = match self.has_unreported_losses() {
                false => words.recv().map_err(|_| RecvTimeoutError::Disconnected),
                true => words.recv_timeout(RETRY_EVERY),
            };
            self.joining.join();
            self.report_losses();
            let mut next = match first {
                Ok(word) => Some(word),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Word::Stop),
            };
            let mut is_stopping = false;
            while let Some(word) = next {
                match word {
                    Word::Line(log, line) => self.batch.push(log, &line, None),
                    Word::Reopened => {}
                    Word::Stop => is_stopping = true,
                }
                let is_full = is_stopping || self.batch.bytes.len() >= BATCH_BYTES;
                next = if is_full { None } else { words.try_recv().ok() };
            }
            self.write();
            if is_stopping {
                return;
            }
        }
    }

    fn has_unreported_losses(&self) -> bool {
        self.logs.iter().any(|log| self.counts.lost(*log) != self.reported[*log as usize])
    }

    /// Begins the batch with a line for each log that has lost lines since that was last said.
    fn report_losses(&mut self) {
        for log in &self.logs {
            let lost = self.counts.lost(*log);
            if lost != self.reported[*log as usize] {
                self.batch.push(*log, &of_loss(*log, self.format, lost), Some(lost));
            }
        }
    }

    /// Writes the batch. Lines that cannot be written are lost.
    fn write(&mut self) {
        let written = self.sink.write(&self.batch.bytes, &self.batch.ends);
        let mut begin = 0;
        for (index, ((log, report), end)) in self.batch.lines.iter().zip(&self.batch.ends).enumerate() {
            let is_written = index < written.lines;
            match report {
                Some(lost) if is_written => self.reported[*log as usize] = *lost,
                Some(_) => {}
                None => {
                    if !is_written {
                        self.counts.lose(*log);
                    }
                    self.counts.end(*log, end - begin);
                }
            }
            begin = *end;
        }
        if written.error.is_some() || written.lines > 0 {
            self.note(written.error);
        }
        self.batch.clear();
    }

    /// Writes to the server's log when writing begins to fail and when it works again. If the server's log itself fails, only the metric and the
    /// lines that report losses tell.
    fn note(&mut self, error: Option<io::Error>) {
        let was_failing = std::mem::replace(&mut self.is_failing, error.is_some());
        let Some((flag, path)) = self.name.as_ref().filter(|_| !self.logs.contains(&Log::Server)) else {
            return;
        };
        let path = path.display();
        match error {
            Some(error) if !was_failing => {
                tracing::error!(%error, "{flag} {path} cannot be written; its lines are lost until it can");
            }
            None if was_failing => tracing::info!("{flag} {path} is written again"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::Queues;
    use super::*;
    use std::fs;

    struct Running {
        counts: Arc<Counts>,
        writer: Writer,
        queues: Queues,
    }

    /// All logs in one file.
    fn running(path: &Path) -> Running {
        let counts = Arc::new(Counts::default());
        let file = LogFile { flag: "-log-file", path: path.to_owned() };
        let writer = Writer::start(Some(file), Log::ALL.to_vec(), Format::Text, counts.clone()).unwrap();
        let queues = Queues::new(counts.clone(), Log::ALL.map(|_| writer.words()));
        Running { counts, writer, queues }
    }

    impl Running {
        fn finish(self) -> Arc<Counts> {
            self.writer.stop();
            self.writer.wait(Instant::now() + Duration::from_secs(60));
            self.counts
        }
    }

    #[test]
    fn lines_of_several_logs_keep_their_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let running = running(&path);
        let logs = [Log::Server, Log::Access, Log::Audit];
        let lines: Vec<String> =
            (0..3000).map(|line| format!("{line} {}\n", "x".repeat(line % 100))).collect();
        for (line, log) in lines.iter().zip(logs.iter().cycle()) {
            running.queues.push(*log, line.clone());
        }
        let counts = running.finish();
        assert_eq!(Log::ALL.map(|log| counts.lost(log)), [0; 3]);
        assert_eq!(fs::read_to_string(&path).unwrap(), lines.concat());
    }

    #[test]
    fn rotation_loses_and_doubles_no_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let running = running(&path);
        let reopening = running.writer.reopening().unwrap();
        let mut parts = Vec::new();
        for line in 0..5000 {
            running.queues.push(Log::Access, format!("{line}\n"));
            if line % 500 == 499 {
                let part = directory.path().join(format!("log.{line}"));
                fs::rename(&path, &part).unwrap();
                reopening.reopen().unwrap();
                parts.push(part);
            }
        }
        let counts = running.finish();
        parts.push(path);
        let text: String = parts.iter().map(|part| fs::read_to_string(part).unwrap()).collect();
        let expected: String = (0..5000).map(|line| format!("{line}\n")).collect();
        assert_eq!((text == expected, counts.lost(Log::Access)), (true, 0));
    }

    #[test]
    fn a_file_that_cannot_be_reopened_stays_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("logs").join("log");
        fs::create_dir(path.parent().unwrap()).unwrap();
        let running = running(&path);
        running.queues.push(Log::Server, "before\n".to_owned());
        let moved = directory.path().join("moved");
        fs::rename(path.parent().unwrap(), &moved).unwrap();
        let error = running.writer.reopening().unwrap().reopen().unwrap_err();
        assert!(error.starts_with("-log-file ") && error.contains("No such file"), "{error}");
        running.queues.push(Log::Server, "after\n".to_owned());
        running.finish();
        assert_eq!(fs::read_to_string(moved.join("log")).unwrap(), "before\nafter\n");
    }

    #[test]
    fn what_a_full_disk_has_lost_is_counted_and_said_when_there_is_room() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let running = running(&path);
        for _ in 0..5 {
            running.queues.push(Log::Access, "x\n".to_owned());
        }
        running.queues.push(Log::Audit, "y\n".to_owned());
        let began = Instant::now();
        while running.counts.lost(Log::Access) + running.counts.lost(Log::Audit) < 6 {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        fs::remove_file(&path).unwrap();
        running.writer.reopening().unwrap().reopen().unwrap();
        running.queues.push(Log::Access, "z\n".to_owned());
        let counts = running.finish();
        assert_eq!(Log::ALL.map(|log| counts.lost(log)), [0, 5, 1]);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("log=access lines_since_start=5"), "{text}");
        assert!(lines[1].ends_with("\"log\":\"audit\",\"lines_since_start\":1}"), "{text}");
        assert_eq!(lines[2..], ["z"]);
    }
}
