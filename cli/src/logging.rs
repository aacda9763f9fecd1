//! The server log on stderr: `time=… level=… msg=… key=value…`, or the same keys as one JSON object per line.
//!
//! Lines are handed to a thread that writes them, so that a reader of stderr that stalls holds up nobody. Up to
//! [`LINES_WAITING_MAX`] wait for it; further ones are thrown away, counted, and reported once there is room again.
use crate::confine::Joining;
use std::fmt::{self, Write};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// Target of access log events: they are switched by `-access-log` alone, whatever the level.
pub const ACCESS_TARGET: &str = "access";

/// Target of decisions about requests. They are written whatever the level, each as one JSON object whatever the format.
const AUDIT_TARGET: &str = "audit";

/// Lines that may wait for the reader of stderr: some 2 MB.
const LINES_WAITING_MAX: usize = 8192;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `key=value` pairs.
    Text,
    /// One object per line.
    Json,
}

/// Reads `-log-format`.
///
/// # Errors
/// A sentence naming the value.
pub fn parse_format(text: &str) -> Result<Format, String> {
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
pub fn parse_level(text: &str) -> Result<Level, String> {
    match text.to_ascii_lowercase().as_str() {
        "debug" => Ok(Level::DEBUG),
        "" | "info" => Ok(Level::INFO),
        "warn" | "warning" => Ok(Level::WARN),
        "error" => Ok(Level::ERROR),
        _ => Err(format!("-log-level {text:?} is not a log level (debug, info, warn or error)")),
    }
}

/// The installed log. Dropping it writes what waits, as far as the reader takes it within a second.
pub struct Log {
    lost: ErrorCounter,
    _writer: WorkerGuard,
}

impl Log {
    /// Says how many lines were thrown away so far.
    pub fn lost_lines(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let lost = self.lost.clone();
        move || lost.dropped_lines() as u64
    }
}

/// Installs the log for the rest of the process. Call once.
pub fn install(format: Format, level: Level, access_log: bool) -> Log {
    let admit = tracing_subscriber::filter::filter_fn(move |metadata| match metadata.target() {
        ACCESS_TARGET => access_log,
        AUDIT_TARGET => true,
        _ => *metadata.level() <= level,
    });
    let (lines, writer) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_WAITING_MAX)
        .thread_name("nigh-log")
        // This thread runs before the process is confined.
        .finish(Joining::new(io::stderr()));
    let lost = lines.error_counter();
    let layer =
        tracing_subscriber::fmt::layer().with_writer(lines).event_format(Line::new(format, lost.clone()));
    tracing_subscriber::registry().with(layer.with_filter(admit)).init();
    Log { lost, _writer: writer }
}

/// Writes one event as one line.
struct Line {
    format: Format,
    lost: ErrorCounter,
    /// How many were lost when that was last said.
    reported: AtomicUsize,
}

impl Line {
    fn new(format: Format, lost: ErrorCounter) -> Line {
        Line { format, lost, reported: AtomicUsize::new(0) }
    }

    /// A line that says how many were lost so far, when that has changed; else empty. It goes with the next event, and when
    /// that is lost as well, the loss is a change again.
    fn loss(&self, time: &str) -> String {
        let lost = self.lost.dropped_lines();
        if self.reported.swap(lost, Ordering::Relaxed) == lost {
            return String::new();
        }
        let fields = Fields {
            message: Some("lines of this log were thrown away because its reader did not keep up".to_owned()),
            others: vec![("lines_since_start", Value::Unsigned(lost as u64))],
        };
        render(self.format, time, "WARN", &fields)
    }
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let now = jiff::Timestamp::now();
        let time = format!("{now:.3}");
        writer.write_str(&self.loss(&time))?;
        if event.metadata().target() == AUDIT_TARGET {
            return writer.write_str(&decision(&format!("{now:.9}"), &fields));
        }
        writer.write_str(&render(self.format, &time, level_name(event.metadata().level()), &fields))
    }
}

fn level_name(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARN",
        Level::INFO => "INFO",
        _ => "DEBUG",
    }
}

/// One line with its newline. The message comes third whatever the order of the fields.
fn render(format: Format, time: &str, level: &str, fields: &Fields) -> String {
    let mut line = String::new();
    let message = fields.message.as_deref().unwrap_or_default();
    match format {
        Format::Text => {
            let _ = write!(line, "time={time} level={level} msg={}", quoted(message));
            for (key, value) in &fields.others {
                let _ = write!(line, " {key}={}", quoted(&value.text()));
            }
        }
        Format::Json => {
            let mut object = serde_json::Map::new();
            object.insert("time".into(), time.into());
            object.insert("level".into(), level.into());
            object.insert("msg".into(), message.into());
            for (key, value) in &fields.others {
                object.insert((*key).into(), value.json());
            }
            line = serde_json::Value::Object(object).to_string();
        }
    }
    line.push('\n');
    line
}

/// A line of the audit log with its newline. Fields without a value are left out.
fn decision(time: &str, fields: &Fields) -> String {
    let mut object = serde_json::Map::new();
    object.insert("time".into(), time.into());
    for (key, value) in &fields.others {
        if !value.text().is_empty() {
            object.insert((*key).into(), value.json());
        }
    }
    serde_json::Value::Object(object).to_string() + "\n"
}

/// `text` as it is when a reader can still split the line at spaces and `=`, else quoted and escaped.
fn quoted(text: &str) -> String {
    let plain = |c: char| !c.is_control() && !c.is_whitespace() && c != '"' && c != '=';
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("{text:?}") }
}

/// A field's value, kept typed for JSON.
enum Value {
    Text(String),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Bool(bool),
}

impl Value {
    fn text(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::Signed(value) => value.to_string(),
            Value::Unsigned(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Bool(value) => value.to_string(),
        }
    }

    fn json(&self) -> serde_json::Value {
        match self {
            Value::Text(text) => text.as_str().into(),
            Value::Signed(value) => (*value).into(),
            Value::Unsigned(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Bool(value) => (*value).into(),
        }
    }
}

/// An event's fields, the message apart.
#[derive(Default)]
struct Fields {
    message: Option<String>,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn push(&mut self, field: &Field, value: Value) {
        match field.name() {
            "message" => self.message = Some(value.text()),
            name => self.others.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, Value::Text(format!("{value:?}")));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, Value::Text(value.to_owned()));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, Value::Signed(value));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, Value::Unsigned(value));
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(field, Value::Float(value));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, Value::Bool(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        Fields {
            message: Some("shutting down".into()),
            others: vec![
                ("proto", Value::Text("http".into())),
                ("data", Value::Text("/a b=\"c\"".into())),
                ("cores", Value::Unsigned(2)),
                ("pinned", Value::Bool(true)),
                ("latency_ms", Value::Float(0.25)),
                ("empty", Value::Text(String::new())),
            ],
        }
    }

    #[test]
    fn text_lines() {
        assert_eq!(
            render(Format::Text, "T", "INFO", &fields()),
            "time=T level=INFO msg=\"shutting down\" proto=http data=\"/a b=\\\"c\\\"\" cores=2 pinned=true \
             latency_ms=0.25 empty=\"\"\n"
        );
    }

    #[test]
    fn json_lines() {
        assert_eq!(
            render(Format::Json, "T", "INFO", &fields()),
            "{\"time\":\"T\",\"level\":\"INFO\",\"msg\":\"shutting down\",\"proto\":\"http\",\
             \"data\":\"/a b=\\\"c\\\"\",\"cores\":2,\"pinned\":true,\"latency_ms\":0.25,\"empty\":\"\"}\n"
        );
    }

    #[test]
    fn decisions_are_objects_without_empty_fields() {
        let fields = Fields {
            message: None,
            others: vec![
                ("principal", Value::Text("token:ba7816bf8f01cfea".into())),
                ("resource", Value::Text(String::new())),
                ("decision", Value::Text("allow".into())),
            ],
        };
        assert_eq!(
            decision("T", &fields),
            "{\"time\":\"T\",\"principal\":\"token:ba7816bf8f01cfea\",\"decision\":\"allow\"}\n"
        );
    }

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
}
