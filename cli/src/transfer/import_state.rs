//! Records how far an import has come, in a file beside the imported one, so that it can be continued.
use super::outfile::{beside, remove_if_there};
use super::refusals::Refusals;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What was done with the lines of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {
    /// Lines of the file, including its header, whose outcomes are known. The next run begins after them.
    pub lines: u64,
    /// Points or keys that were written.
    pub written: u64,
    /// Points or keys that were there already and were left as they are.
    pub skipped: u64,
    /// Points or keys that were there already, and that an interrupted run is assumed to have written.
    pub found: u64,
    /// Points or keys that had expired before they were sent.
    pub expired: u64,
    /// Points or keys that this program or the server has refused.
    pub refusals: Refusals,
}

/// The file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportState {
    /// What is imported to where.
    pub what: String,
    /// What was done so far.
    pub done: Done,
    /// Lines up to and including this one may have been sent.
    pub sent_lines: u64,
    /// The line at which the import ended because its point existed before the import.
    pub conflict_line: Option<u64>,
    /// Bytes of the file of rejects.
    pub rejects_bytes: u64,
}

/// Where the state of an import is kept.
#[derive(Debug)]
pub struct StateFile {
    /// `None` where lines come from the standard input.
    path: Option<PathBuf>,
}

impl StateFile {
    /// The state file of an import of `file`, which may be `-`.
    pub fn of(file: &str) -> StateFile {
        StateFile { path: (file != "-").then(|| beside(Path::new(file), ".import")) }
    }

    /// Reads the state of an interrupted import, if this run is to continue it; otherwise there must be no such state.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn begin(&self, resume: bool, what: &str) -> Result<ImportState, String> {
        let anew = ImportState {
            what: what.to_owned(),
            done: Done::default(),
            sent_lines: 0,
            conflict_line: None,
            rejects_bytes: 0,
        };
        let Some(path) = &self.path else {
            return match resume {
                true => Err(
                    "an import from the standard input keeps no state: -skip N leaves out what was written"
                        .into(),
                ),
                false => Ok(anew),
            };
        };
        let name = path.display();
        match (resume, path.exists()) {
            (false, false) => Ok(anew),
            (false, true) => Err(format!(
                "{name} is there from an import that was interrupted: -resume goes on with it; to begin anew, remove that file"
            )),
            (true, false) => {
                Err(format!("{name} is not there: there is no import to go on with; leave out -resume"))
            }
            (true, true) => {
                let text = std::fs::read(path).map_err(|error| format!("{name}: {error}"))?;
                let state: ImportState =
                    serde_json::from_slice(&text).map_err(|error| format!("{name}: {error}"))?;
                match state.what == what {
                    true => Ok(state),
                    false => Err(format!(
                        "{name}: the import that was interrupted is another one: {}; this one is {what}",
                        state.what
                    )),
                }
            }
        }
    }

    /// Whether the state is in a file, with which another run can continue.
    pub fn is_kept(&self) -> bool {
        self.path.is_some()
    }

    /// Keeps the state.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn keep(&self, state: &ImportState) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let new = beside(path, ".new");
        // The state consists of numbers and texts, so that encoding it cannot fail.
        let text = serde_json::to_vec(state).unwrap_or_default();
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, path))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Removes the file after the import has come to its end.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn end(&self) -> Result<(), String> {
        match &self.path {
            Some(path) => remove_if_there(path).map_err(|error| format!("{}: {error}", path.display())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_for_its_import_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("films.jsonl");
        let states = StateFile::of(file.to_str().unwrap());
        assert!(states.begin(true, "films").unwrap_err().contains("leave out -resume"));
        let mut state = states.begin(false, "films").unwrap();
        (state.done.lines, state.sent_lines) = (7, 9);
        states.keep(&state).unwrap();
        assert!(states.begin(false, "films").unwrap_err().contains("-resume goes on"));
        assert!(states.begin(true, "books").unwrap_err().contains("another one: films"));
        assert_eq!(states.begin(true, "films"), Ok(state));
        states.end().unwrap();
        states.end().unwrap();
        assert!(states.begin(false, "films").is_ok());
        assert!(StateFile::of("-").begin(true, "films").unwrap_err().contains("-skip"));
    }
}
