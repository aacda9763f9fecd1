//! Lines of the logs: the fields of an event as `key=value` pairs, or as one JSON object.
//!
//! Much of what a line shows was sent by strangers. A value is cut at [`TEXT_MAX_BYTES`], and characters that a terminal would obey or hide
//! are escaped, so that nobody can forge a line or make one as long as a request.
use std::fmt::{self, Write};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// The most bytes of one value that a line shows. A value that is cut ends with `…`.
const TEXT_MAX_BYTES: usize = 4096;

/// One of the logs. The numbers are indexes of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Log {
    /// What happens in the server.
    Server,
    /// A line for each request.
    Access,
    /// A line for each decision about a request.
    Audit,
}

impl Log {
    /// Every log, in the order of their numbers.
    pub const ALL: [Log; 3] = [Log::Server, Log::Access, Log::Audit];

    /// Its name in lines.
    fn name(self) -> &'static str {
        match self {
            Log::Server => "server",
            Log::Access => "access",
            Log::Audit => "audit",
        }
    }
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `key=value` pairs.
    Text,
    /// One object per line.
    Json,
}

/// The line of an event with its newline. Decisions are JSON objects whatever the format is.
pub fn of_event(log: Log, format: Format, event: &Event<'_>) -> String {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let now = jiff::Timestamp::now();
    match log {
        Log::Audit => decision(&format!("{now:.9}"), &fields),
        Log::Server | Log::Access => {
            render(format, &format!("{now:.3}"), level_name(event.metadata().level()), &fields)
        }
    }
}

/// A line, with its newline, that says how many lines of `log` have been thrown away so far.
pub fn of_loss(log: Log, format: Format, lines: u64) -> String {
    let fields = Fields {
        message: Some("lines of this log were thrown away because they could not be written".to_owned()),
        others: vec![
            ("log", Value::Text(log.name().to_owned())),
            ("lines_since_start", Value::Unsigned(lines)),
        ],
    };
    let format = if log == Log::Audit { Format::Json } else { format };
    render(format, &format!("{:.3}", jiff::Timestamp::now()), "WARN", &fields)
}

/// A line with its newline for an error that ends the process.
pub fn of_error(format: Format, error: &str) -> String {
    let fields = Fields { message: Some(error.to_owned()), others: Vec::new() };
    render(format, &format!("{:.3}", jiff::Timestamp::now()), "ERROR", &fields)
}

fn level_name(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARN",
        Level::INFO => "INFO",
        _ => "DEBUG",
    }
}

/// Makes one line with its newline. The message comes third, wherever it is among the fields.
fn render(format: Format, time: &str, level: &str, fields: &Fields) -> String {
    let message = fields.message.as_deref().unwrap_or_default();
    match format {
        Format::Text => {
            let mut line = String::new();
            let _ = write!(line, "time={time} level={level} msg={}", quoted(message));
            for (key, value) in &fields.others {
                let _ = write!(line, " {key}={}", quoted(&value.text()));
            }
            line.push('\n');
            line
        }
        Format::Json => {
            let mut object = serde_json::Map::new();
            object.insert("time".into(), time.into());
            object.insert("level".into(), level.into());
            object.insert("msg".into(), message.into());
            for (key, value) in &fields.others {
                object.insert((*key).into(), value.json());
            }
            json_line(object)
        }
    }
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
    json_line(object)
}

/// The object with its newline, and with hidden characters escaped. JSON itself requires that only for ASCII control characters.
fn json_line(object: serde_json::Map<String, serde_json::Value>) -> String {
    let text = serde_json::Value::Object(object).to_string();
    let mut line = match text.chars().any(is_hidden) {
        false => text,
        true => text.chars().fold(String::new(), |mut line, letter| {
            if is_hidden(letter) {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    let _ = write!(line, "\\u{unit:04x}");
                }
            } else {
                line.push(letter);
            }
            line
        }),
    };
    line.push('\n');
    line
}

/// Whether a character does not show as itself: a control character, or one that changes the direction of the text, joins other characters, or is
/// blank.
fn is_hidden(letter: char) -> bool {
    letter.is_control() || (!letter.is_ascii() && letter.escape_debug().len() > 1)
}

/// `text` as it is when a reader can still split the line at spaces and `=`, else quoted and escaped.
fn quoted(text: &str) -> String {
    let plain = |c: char| !is_hidden(c) && !c.is_whitespace() && c != '"' && c != '=';
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

    fn push_text(&mut self, field: &Field, mut text: String) {
        if text.len() > TEXT_MAX_BYTES {
            text.truncate(text.floor_char_boundary(TEXT_MAX_BYTES));
            text.push('…');
        }
        self.push(field, Value::Text(text));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push_text(field, format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.push_text(field, value.to_owned());
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
    fn nothing_in_a_line_acts_on_a_terminal_or_hides() {
        // A line feed, an escape sequence, delete, a control character beyond ASCII, two that turn the direction of the text around, a line separator,
        // and a tag character, which takes two units of UTF-16.
        let value = "a\nb\u{1b}[2Jc\u{7f}d\u{85}e\u{202e}f\u{2066}g\u{2028}h\u{e0041}ä漢";
        let fields = || Fields { message: None, others: vec![("op", Value::Text(value.into()))] };
        let lines = [
            render(Format::Text, "T", "INFO", &fields()),
            render(Format::Json, "T", "INFO", &fields()),
            decision("T", &fields()),
        ];
        for line in &lines {
            let text = line.strip_suffix('\n').unwrap();
            assert!(!text.chars().any(is_hidden), "{text:?}");
            assert!(text.contains("ä漢"), "{text}");
        }
        let read: serde_json::Value = serde_json::from_str(&lines[1]).unwrap();
        assert_eq!(read["op"], value, "a reader gets back what was sent");
        for hidden in ["\u{202e}", "\u{85}", "\u{7f}"] {
            assert!(quoted(hidden).starts_with("\"\\u{"), "{:?}", quoted(hidden));
        }
        assert_eq!(quoted("ä漢-1"), "ä漢-1");
    }

    #[test]
    fn losses_name_their_log() {
        let line = of_loss(Log::Access, Format::Text, 7);
        assert!(line.contains("level=WARN") && line.ends_with("log=access lines_since_start=7\n"), "{line}");
        let audit: serde_json::Value = serde_json::from_str(&of_loss(Log::Audit, Format::Text, 7)).unwrap();
        assert_eq!((&audit["log"], &audit["lines_since_start"]), (&"audit".into(), &7.into()));
    }
}
