//! What an import did not write, counted by reason, and the file of rejects.
use super::point::{id_of, is_json};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

/// The most reasons that are counted separately; all further ones are counted together.
const REASONS_MAX: usize = 50;
/// Examples that are shown of a reason.
const EXAMPLES: usize = 3;
/// Bytes of a reason or an id that are shown.
const SHOWN_BYTES: usize = 300;
/// The name under which further reasons are counted.
const OTHER: &str = "other reasons";

/// A line of the file that was not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Number of the line.
    pub line: u64,
    /// Why the line was refused, as a sentence.
    pub reason: String,
    /// The line itself.
    pub text: String,
}

/// How often something happened, and where first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counted {
    count: u64,
    examples: Vec<String>,
}

/// All refusals of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Refusals {
    by_reason: BTreeMap<String, Counted>,
}

impl Refusals {
    /// Counts one.
    pub fn add(&mut self, refusal: &Refusal) {
        let mut reason = kind_of(&refusal.reason);
        if !self.by_reason.contains_key(&reason) && self.by_reason.len() >= REASONS_MAX {
            reason = OTHER.into();
        }
        let counted = self.by_reason.entry(reason).or_default();
        counted.count += 1;
        if counted.examples.len() < EXAMPLES {
            let id = id_of(&refusal.text).map_or_else(String::new, |id| format!(" (id {})", short(&id)));
            counted.examples.push(format!("line {}{id}: {}", refusal.line, short(&refusal.reason)));
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.by_reason.values().map(|counted| counted.count).sum()
    }

    /// A text with a line for each reason, the most frequent first, each with its first examples.
    pub fn summary(&self) -> String {
        let mut reasons: Vec<&Counted> = self.by_reason.values().collect();
        reasons.sort_by_key(|counted| std::cmp::Reverse(counted.count));
        let mut text = String::new();
        for counted in reasons {
            text += &format!("refused {} times, first:\n", counted.count);
            counted.examples.iter().for_each(|example| text += &format!("  {example}\n"));
        }
        text
    }
}

/// A reason without the parts that differ from point to point: numbers and quoted texts.
fn kind_of(reason: &str) -> String {
    let mut kind = String::new();
    let (mut is_quoted, mut was_digit) = (false, false);
    for letter in short(reason).chars() {
        match letter {
            '"' => {
                is_quoted = !is_quoted;
                kind.push('"');
            }
            _ if is_quoted => {}
            '0'..='9' if was_digit => {}
            '0'..='9' => kind.push('#'),
            other => kind.push(other),
        }
        was_digit = letter.is_ascii_digit();
    }
    kind
}

/// The first part of a text that may be long.
fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN_BYTES) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The file of rejects.
pub struct Rejects {
    to: BufWriter<File>,
    bytes: u64,
    name: String,
}

impl Rejects {
    /// Opens the file, and cuts off what follows the first `bytes` bytes.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn open(path: &Path, bytes: u64) -> Result<Rejects, String> {
        let name = path.display().to_string();
        let open = || {
            let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
            file.set_len(bytes)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let file = open().map_err(|error: std::io::Error| format!("-rejects {name}: {error}"))?;
        Ok(Rejects { to: BufWriter::new(file), bytes, name })
    }

    /// Adds one: the number of its line, the reason, and the point itself if the line was JSON, else its text.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn add(&mut self, refusal: &Refusal) -> Result<(), String> {
        // Text always has a JSON form.
        let json = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let rest = match is_json(&refusal.text) {
            true => format!("\"point\":{}", refusal.text),
            false => format!("\"text\":{}", json(&refusal.text)),
        };
        let line = format!("{{\"line\":{},\"reason\":{},{rest}}}\n", refusal.line, json(&refusal.reason));
        self.bytes += line.len() as u64;
        self.to.write_all(line.as_bytes()).map_err(|error| format!("-rejects {}: {error}", self.name))
    }

    /// Writes out what was added; how many bytes the file has.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn flush(&mut self) -> Result<u64, String> {
        self.to.flush().map_err(|error| format!("-rejects {}: {error}", self.name))?;
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: u64, reason: &str, text: &str) -> Refusal {
        Refusal { line, reason: reason.into(), text: text.into() }
    }

    #[test]
    fn refusals_are_counted_by_what_they_have_in_common() {
        let mut refusals = Refusals::default();
        for line in 2..12 {
            let reason = format!("vector has {line} components, and the collection 128");
            refusals.add(&refusal(line, &reason, &format!("{{\"id\":{line}}}")));
        }
        refusals.add(&refusal(40, "no space \"a\"", "{"));
        assert_eq!(refusals.count(), 11);
        let text = refusals.summary();
        assert!(
            text.starts_with("refused 10 times, first:\n  line 2 (id 2): vector has 2 components"),
            "{text}"
        );
        assert!(text.ends_with("refused 1 times, first:\n  line 40: no space \"a\"\n"), "{text}");
        for number in 0..200 {
            refusals.add(&refusal(1, &"x".repeat(number), ""));
        }
        assert_eq!(refusals.by_reason.len(), REASONS_MAX + 1);
        let kept = serde_json::to_string(&refusals).unwrap();
        assert_eq!(serde_json::from_str::<Refusals>(&kept).unwrap(), refusals);
    }

    #[test]
    fn rejects_are_lines_that_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rejects");
        let mut rejects = Rejects::open(&path, 0).unwrap();
        rejects.add(&refusal(2, "a \"reason\"", "{\"id\":1}")).unwrap();
        let bytes = rejects.flush().unwrap();
        rejects.add(&refusal(3, "cut", "{\"id\":")).unwrap();
        rejects.flush().unwrap();
        drop(rejects);
        let mut rejects = Rejects::open(&path, bytes).unwrap();
        rejects.add(&refusal(4, "cut", "{\"id\"")).unwrap();
        rejects.flush().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "{\"line\":2,\"reason\":\"a \\\"reason\\\"\",\"point\":{\"id\":1}}\n{\"line\":4,\"reason\":\"cut\",\"text\":\"{\\\"id\\\"\"}\n"
        );
    }
}
