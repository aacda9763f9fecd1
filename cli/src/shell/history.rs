//! Lines typed before, in a file of the user's own: never in a server's data directory, readable by nobody else.
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Lines that are called back.
const LINES_MAX: usize = 1000;
/// A file that has grown beyond this is written anew with the lines that are called back.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// See the module. A history without a file forgets.
pub struct History {
    file: Option<File>,
    lines: Vec<String>,
}

impl History {
    /// One that is kept nowhere.
    pub fn none() -> History {
        History { file: None, lines: Vec::new() }
    }

    /// The user's own. Where the file cannot be made or read, a sentence on stderr says so, and nothing is kept.
    pub fn open() -> History {
        let path =
            directory(|name| std::env::var_os(name).map(PathBuf::from)).map(|path| path.join("history"));
        match path.as_deref().map(History::at) {
            None => History::none(),
            Some(Ok(history)) => history,
            Some(Err(error)) => {
                let path = path.unwrap_or_default();
                eprintln!("{}: {error}; this history is not kept", path.display());
                History::none()
            }
        }
    }

    fn at(path: &Path) -> io::Result<History> {
        if let Some(directory) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let all: Vec<&str> = text.lines().collect();
        let lines: Vec<String> =
            all[all.len().saturating_sub(LINES_MAX)..].iter().map(|&line| line.to_owned()).collect();
        if file.metadata()?.len() > FILE_BYTES_MAX {
            file.set_len(0)?;
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            file.write_all(text.as_bytes())?;
        }
        Ok(History { file: Some(file), lines })
    }

    /// Lines of earlier sessions, oldest first.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Keeps a line. A disk that is full costs the line, and nothing else.
    pub fn keep(&mut self, line: &str) {
        if let Some(file) = &mut self.file {
            let _lost = file.write_all(format!("{}\n", line.replace('\n', " ")).as_bytes());
        }
    }
}

/// Where the state of programs lies, by the XDG base directories: a relative path there is not valid and not used.
fn directory(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let state = variable("XDG_STATE_HOME").filter(absolute);
    let state = state.or_else(|| Some(variable("HOME").filter(absolute)?.join(".local/state")));
    Some(state?.join("nigh"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn where_it_lies() {
        let found = |state: &str, home: &str| {
            directory(|name| {
                Some(if name == "HOME" { home } else { state })
                    .filter(|text| !text.is_empty())
                    .map(PathBuf::from)
            })
        };
        assert_eq!(found("/s", "/h"), Some("/s/nigh".into()));
        assert_eq!(found("", "/h"), Some("/h/.local/state/nigh".into()));
        assert_eq!(found("relative", "/h"), Some("/h/.local/state/nigh".into()));
        assert_eq!(found("", ""), None);
    }

    #[test]
    fn lines_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/nigh/history");
        let mut history = History::at(&path).unwrap();
        assert!(history.lines().is_empty());
        history.keep("get a");
        history.keep("two\nlines");
        assert_eq!(History::at(&path).unwrap().lines(), ["get a", "two lines"]);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let long: String = (0..30_000).map(|index| format!("line {index} {}\n", "x".repeat(40))).collect();
        std::fs::write(&path, &long).unwrap();
        let history = History::at(&path).unwrap();
        assert_eq!(history.lines().len(), LINES_MAX);
        assert!(history.lines()[LINES_MAX - 1].starts_with("line 29999 "));
        assert!(std::fs::metadata(&path).unwrap().len() < FILE_BYTES_MAX / 10);
        assert_eq!(History::at(&path).unwrap().lines(), history.lines());
        assert!(History::at(Path::new("/proc/nowhere/history")).is_err());
    }
}
