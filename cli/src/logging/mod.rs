//! The logs of the server: what happens in it, a line for each request (`-access-log`), and a line for each decision about one (`-audit-log`).
//!
//! Each goes to stderr or to a file of its own. Lines are handed to a thread that writes them ([`writer`]), so that neither a reader that stalls nor
//! a full disk delays a request.
mod line;
mod queue;
mod sink;
mod writer;

pub use writer::Reopening;

use crate::flags::ServerFlags;
use line::{Format, Log};
use queue::{Counts, Queues};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use writer::{LogFile, Writer};

/// Target of the events of requests. They are switched by `-access-log` alone, whatever the level.
const ACCESS_TARGET: &str = "access";

/// Target of decisions about requests. They are written whatever the level.
const AUDIT_TARGET: &str = "audit";

/// How long the process waits at its end for lines that have not been written.
const STOP_MAX: Duration = Duration::from_secs(1);

/// Reads `-log-format`.
///
/// # Errors
/// A sentence naming the value.
fn parse_format(text: &str) -> Result<Format, String> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err(format!("-log-format {text:?} is not a log format (text or json)")),
    }
}

/// Reads `-log-level`, in any case; empty is info.
///
/// # Errors
/// A sentence naming the value.
fn parse_level(text: &str) -> Result<Level, String> {
    match text.to_ascii_lowercase().as_str() {
        "debug" => Ok(Level::DEBUG),
        "" | "info" => Ok(Level::INFO),
        "warn" | "warning" => Ok(Level::WARN),
        "error" => Ok(Level::ERROR),
        _ => Err(format!("-log-level {text:?} is not a log level (debug, info, warn or error)")),
    }
}

/// The files of the logs. A log without one goes to stderr.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFiles {
    server: Option<PathBuf>,
    access: Option<PathBuf>,
    audit: Option<PathBuf>,
}

impl LogFiles {
    /// The files of the logs that are on.
    pub fn of(flags: &ServerFlags) -> LogFiles {
        let path = |path: &String, is_on: bool| (is_on && !path.is_empty()).then(|| PathBuf::from(path));
        LogFiles {
            server: path(&flags.log_file, true),
            access: path(&flags.access_log_file, flags.access_log),
            audit: path(&flags.audit_log_file, flags.audit_log && !flags.keys_file.is_empty()),
        }
    }

    /// Each flag, with its dash, and the path. While the server runs, these files are reopened for appending, and created if they do not exist, so
    /// the server must be allowed to create files in their directories.
    pub fn paths(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let all = [Log::Server, Log::Access, Log::Audit].map(|log| self.flag_and_path(log));
        all.into_iter().filter_map(|(flag, path)| Some((flag, path?)))
    }

    fn flag_and_path(&self, log: Log) -> (&'static str, Option<&Path>) {
        match log {
            Log::Server => ("-log-file", self.server.as_deref()),
            Log::Access => ("-access-log-file", self.access.as_deref()),
            Log::Audit => ("-audit-log-file", self.audit.as_deref()),
        }
    }

    fn file_of(&self, log: Log) -> Option<LogFile> {
        let (flag, path) = self.flag_and_path(log);
        path.map(|path| LogFile { flag, path: path.to_owned() })
    }
}

/// What the logs show, and where they go.
pub struct LogOptions {
    format: Format,
    level: Level,
    has_access_log: bool,
    files: LogFiles,
}

impl LogOptions {
    /// Reads the options from the flags.
    ///
    /// # Errors
    /// A sentence that names the flag.
    pub fn of(flags: &ServerFlags) -> Result<LogOptions, String> {
        Ok(LogOptions {
            format: parse_format(&flags.log_format)?,
            level: parse_level(&flags.log_level)?,
            has_access_log: flags.access_log,
            files: LogFiles::of(flags),
        })
    }
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            format: Format::Text,
            level: Level::INFO,
            has_access_log: false,
            files: LogFiles::default(),
        }
    }
}

/// The installed logs. Dropping them writes the lines that wait, as far as that takes no longer than [`STOP_MAX`].
pub struct Logs {
    format: Format,
    counts: Arc<Counts>,
    writers: Vec<Writer>,
    is_server_on_stderr: bool,
}

impl Logs {
    /// Says how many lines of each log were thrown away so far, in the order of [`nigh_net::metrics::LOGS`].
    pub fn lost_lines(&self) -> impl Fn() -> [u64; Log::ALL.len()] + Send + Sync + use<> {
        let counts = self.counts.clone();
        move || Log::ALL.map(|log| counts.lost(log))
    }

    /// Has the threads that write lines confine themselves, as they were started before the process was confined.
    pub fn join_confinement(&self) {
        self.writers.iter().for_each(Writer::join_confinement);
    }

    /// For each file what reopens it.
    pub fn reopening(&self) -> impl Iterator<Item = Reopening> {
        self.writers.iter().filter_map(Writer::reopening)
    }

    /// A line for stderr about an error that ends the process, if the server's log goes elsewhere: whoever starts the server looks at stderr.
    pub fn line_for_stderr(&self, error: &str) -> Option<String> {
        (!self.is_server_on_stderr).then(|| line::of_error(self.format, error))
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.writers.iter().for_each(Writer::stop);
        let deadline = Instant::now() + STOP_MAX;
        self.writers.iter().for_each(|writer| writer.wait(deadline));
    }
}

/// Opens the files, and installs the logs for the rest of the process. Call again only after an error.
///
/// # Errors
/// A sentence that names the flag and the path of a file that cannot be opened.
pub fn install(options: &LogOptions) -> Result<Logs, String> {
    let LogOptions { format, level, has_access_log, ref files } = *options;
    let counts = Arc::new(Counts::default());
    let (writers, of_logs) = start_writers(files, format, &counts)?;
    let queues = Queues::new(counts.clone(), of_logs.map(|writer| writers[writer].words()));
    let admit = tracing_subscriber::filter::filter_fn(move |metadata| match metadata.target() {
        ACCESS_TARGET => has_access_log,
        AUDIT_TARGET => true,
        // It tells of each request that it repeats. The error says so in the end, in our words.
        target if target.starts_with("object_store::") => false,
        _ => *metadata.level() <= level,
    });
    tracing_subscriber::registry().with(Lines { format, queues }.with_filter(admit)).init();
    Ok(Logs { format, counts, writers, is_server_on_stderr: files.server.is_none() })
}

/// Starts a thread for each place where logs go. Returns the threads, and for each log the number of its thread.
fn start_writers(
    files: &LogFiles,
    format: Format,
    counts: &Arc<Counts>,
) -> Result<(Vec<Writer>, [usize; Log::ALL.len()]), String> {
    let mut writers: Vec<Writer> = Vec::new();
    let mut of_logs = [0; Log::ALL.len()];
    for log in Log::ALL {
        let file = files.file_of(log);
        let path = file.as_ref().map(|file| file.path.as_path());
        of_logs[log as usize] = match writers.iter().position(|writer| writer.path() == path) {
            Some(writer) => writer,
            None => {
                let together = |other: &Log| files.file_of(*other).map(|file| file.path).as_deref() == path;
                let logs = Log::ALL.into_iter().filter(together).collect();
                writers.push(Writer::start(file.clone(), logs, format, counts.clone())?);
                writers.len() - 1
            }
        };
    }
    Ok((writers, of_logs))
}

/// Makes a line of each event and hands it to the thread that writes it.
struct Lines {
    format: Format,
    queues: Queues,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let log = match event.metadata().target() {
            ACCESS_TARGET => Log::Access,
            AUDIT_TARGET => Log::Audit,
            _ => Log::Server,
        };
        self.queues.push(log, line::of_event(log, self.format, event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::registry;

    #[test]
    fn formats_and_levels() {
        assert_eq!(parse_format("json"), Ok(Format::Json));
        assert!(parse_format("").is_err());
        for (text, level) in [
            ("", Level::INFO),
            ("DEBUG", Level::DEBUG),
            ("Warning", Level::WARN),
            ("warn", Level::WARN),
            ("error", Level::ERROR),
        ] {
            assert_eq!(parse_level(text), Ok(level), "{text}");
        }
        assert!(parse_level("trace").is_err());
    }

    #[test]
    fn the_names_of_the_metric_are_those_of_the_logs() {
        let names = nigh_net::metrics::LOGS;
        for (log, name) in Log::ALL.into_iter().zip(names) {
            assert!(line::of_loss(log, Format::Text, 1).contains(name));
        }
    }

    #[test]
    fn logs_of_one_path_share_a_thread() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        let counts = Arc::new(Counts::default());
        let of = |server: &Path, access: &Path| LogFiles {
            server: Some(server.to_owned()),
            access: Some(access.to_owned()),
            audit: None,
        };
        let started = |files: &LogFiles| start_writers(files, Format::Text, &counts).unwrap();
        assert_eq!(started(&LogFiles::default()).1, [0, 0, 0]);
        assert_eq!(started(&of(&one, &other)).1, [0, 1, 2]);
        let (writers, of_logs) = started(&of(&one, &one));
        assert_eq!((writers.len(), of_logs), (2, [0, 0, 1]));
        let missing = directory.path().join("none").join("log");
        let error = start_writers(&of(&one, &missing), Format::Text, &counts).err().unwrap();
        assert!(error.starts_with(&format!("-access-log-file {}: ", missing.display())), "{error}");
    }

    #[test]
    fn each_event_goes_to_its_log_and_long_values_are_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let files = LogFiles {
            server: Some(path("server")),
            access: Some(path("access")),
            audit: Some(path("audit")),
        };
        let counts = Arc::new(Counts::default());
        let (writers, of_logs) = start_writers(&files, Format::Json, &counts).unwrap();
        let queues = Queues::new(counts.clone(), of_logs.map(|writer| writers[writer].words()));
        let subscriber = registry().with(Lines { format: Format::Json, queues });
        let (absent, present): (Option<&str>, _) = (None, Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(cores = 2, "a warning");
            tracing::info!(target: "access", op = %"ä".repeat(10_000), parent_id = absent, trace_id = present, "access");
            tracing::info!(target: "audit", decision = "deny", tenant = "");
        });
        writers.iter().for_each(Writer::stop);
        writers.iter().for_each(|writer| writer.wait(Instant::now() + Duration::from_secs(60)));
        let read = |name: &str| -> serde_json::Value {
            serde_json::from_str(&std::fs::read_to_string(path(name)).unwrap()).unwrap()
        };
        assert_eq!((&read("server")["cores"], &read("server")["level"]), (&2.into(), &"WARN".into()));
        let access = read("access");
        assert_eq!(access["op"].as_str().map(str::len), Some(4096 + "…".len()));
        assert_eq!((access["trace_id"].as_str(), access.get("parent_id")), (present, None));
        let audit = read("audit");
        assert_eq!((&audit["decision"], audit.get("tenant")), (&"deny".into(), None));
    }
}
