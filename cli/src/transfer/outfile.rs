//! The files that an export writes. They have a temporary name until they are complete, and a note beside them says how far the export has come.
use super::header::{End, Trailer, hex};
use super::vector_file::VectorWriter;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the note is written. After a crash, up to this much work is repeated.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);
const BUFFER_BYTES: usize = 256 << 10;

/// How far an export got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// What is exported from where, and how; the export that continues must ask for the same.
    pub what: String,
    /// Where the next page begins.
    pub cursor: String,
    /// Lines after the header.
    pub lines: u64,
    /// Bytes of the file of lines.
    pub bytes: u64,
    /// CRC-32C of these.
    pub crc32c: u32,
    /// CRC-32C of the file of vectors, whose rows are as many as lines.
    pub vectors_crc32c: u32,
}

/// The names of the files of one export.
#[derive(Clone, Debug)]
struct Names {
    /// Where the lines go.
    lines: PathBuf,
    /// Where the vectors go.
    vectors: Option<PathBuf>,
}

/// `path` with an ending behind its name.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// What a file that is not whole is called.
fn partial(path: &Path) -> PathBuf {
    beside(path, ".partial")
}

impl Names {
    /// The note beside the lines.
    fn note(&self) -> PathBuf {
        beside(&self.lines, ".partial.state")
    }
}

/// Converts a complete file of lines, the first one, to another format in the second file.
pub type Convert = fn(&Path, &Path) -> Result<(), String>;

/// The output of an export.
pub struct Output {
    to: BufWriter<Box<dyn Write>>,
    /// `None` for the standard output.
    names: Option<Names>,
    vectors: Option<VectorWriter>,
    convert: Option<Convert>,
    /// What was written.
    note: Note,
    /// What was written up to the end of the last whole page, from which an export can continue.
    whole: Note,
    noted: Instant,
}

/// What `-o` and its companions ask for.
pub struct Wanted<'a> {
    /// The file, or `-`.
    pub path: &'a str,
    /// Whether vectors go into a file of their own, which then has that name.
    pub has_vectors: bool,
    /// Converts the complete file of lines to the format that is wanted; `None` if that is lines.
    pub convert: Option<Convert>,
    /// `-resume`.
    pub resume: bool,
    /// `-overwrite`.
    pub overwrite: bool,
    /// See [`Note::what`].
    pub what: String,
}

impl Wanted<'_> {
    /// Checks that the files may be written, before any request is sent. Returns the note of the export that is to continue.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn check(&self) -> Result<Option<Note>, String> {
        let Some(names) = self.names() else {
            return match (self.has_vectors, self.resume) {
                (true, _) => {
                    Err("vectors go into a file of their own, which - does not name: -o FILE".into())
                }
                (_, true) => {
                    Err("what was written to the standard output cannot be gone on with: -o FILE".into())
                }
                _ => Ok(None),
            };
        };
        for path in [Some(&names.lines), names.vectors.as_ref()].into_iter().flatten() {
            if path.exists() && !self.overwrite {
                return Err(format!("{} is there already; -overwrite replaces it", path.display()));
            }
        }
        let note = names.note();
        match self.resume {
            false if partial(&names.lines).exists() && !self.overwrite => Err(format!(
                "{} is there from an export that was interrupted; -resume goes on with it, -overwrite begins anew",
                partial(&names.lines).display()
            )),
            false => Ok(None),
            true => {
                let text = std::fs::read(&note).map_err(|error| {
                    let begin = match partial(&names.lines).exists() {
                        true => "the export was interrupted before it had noted how far it was; -overwrite instead of -resume begins anew",
                        false => "there is no export to go on with; leave out -resume",
                    };
                    format!("{}: {error}: {begin}", note.display())
                })?;
                let found: Note =
                    serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", note.display()))?;
                match found.what == self.what {
                    true => Ok(Some(found)),
                    false => Err(format!(
                        "{}: the export that was interrupted is another one: {}; this one is {}",
                        note.display(),
                        found.what,
                        self.what
                    )),
                }
            }
        }
    }

    /// The names; `None` for the standard output.
    fn names(&self) -> Option<Names> {
        (self.path != "-").then(|| match self.has_vectors {
            true => Names { lines: format!("{}.jsonl", self.path).into(), vectors: Some(self.path.into()) },
            false => Names { lines: self.path.into(), vectors: None },
        })
    }
}

impl Output {
    /// Begins a file with its header, which is one line of JSON. `vectors` begins the file of vectors, if there is one.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn begin(
        wanted: &Wanted<'_>,
        header: &[u8],
        vectors: impl FnOnce(File) -> io::Result<VectorWriter>,
    ) -> Result<Output, String> {
        let names = wanted.names();
        let mut opened = None;
        let to: Box<dyn Write> = match &names {
            None => Box::new(io::stdout()),
            Some(names) => {
                remove_if_there(&names.note()).map_err(named(&names.note()))?;
                if let Some(path) = &names.vectors {
                    let path = partial(path);
                    opened = Some(File::create(&path).and_then(vectors).map_err(named(&path))?);
                }
                let path = partial(&names.lines);
                Box::new(File::create(&path).map_err(named(&path))?)
            }
        };
        let note = Note {
            what: wanted.what.clone(),
            cursor: String::new(),
            lines: 0,
            bytes: 0,
            crc32c: 0,
            vectors_crc32c: 0,
        };
        let to = BufWriter::with_capacity(BUFFER_BYTES, to);
        let mut output = Output {
            to,
            names,
            vectors: opened,
            convert: wanted.convert,
            whole: note.clone(),
            note,
            noted: Instant::now(),
        };
        output.put(header)?;
        output.put(b"\n")?;
        output.whole = output.note.clone();
        Ok(output)
    }

    /// Continues files that an interrupted export has left; what was written after the note is cut off.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn go_on(
        wanted: &Wanted<'_>,
        note: Note,
        vectors: impl FnOnce(File, &Note) -> io::Result<VectorWriter>,
    ) -> Result<Output, String> {
        let names = wanted.names().ok_or("the standard output cannot be gone on with")?;
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
        let path = partial(&names.lines);
        let mut file = open(&path).map_err(named(&path))?;
        let len = file.metadata().map_err(named(&path))?.len();
        if len < note.bytes {
            return Err(format!(
                "{} has {len} bytes, and {} were written: it was cut; -overwrite begins anew",
                path.display(),
                note.bytes
            ));
        }
        file.set_len(note.bytes).and_then(|()| file.seek(SeekFrom::End(0))).map_err(named(&path))?;
        let vectors = match &names.vectors {
            None => None,
            Some(path) => {
                let path = partial(path);
                Some(open(&path).and_then(|file| vectors(file, &note)).map_err(named(&path))?)
            }
        };
        let to = BufWriter::with_capacity(BUFFER_BYTES, Box::new(file) as Box<dyn Write>);
        Ok(Output {
            to,
            names: Some(names),
            vectors,
            convert: wanted.convert,
            whole: note.clone(),
            note,
            noted: Instant::now(),
        })
    }

    /// Lines after the header.
    pub fn lines(&self) -> u64 {
        self.note.lines
    }

    /// Where the next page begins.
    pub fn cursor(&self) -> &str {
        &self.note.cursor
    }

    /// Writes one line, which has its line feed, and its vector if vectors go into a file of their own.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn line(&mut self, line: &[u8], vector: Option<&[f32]>) -> Result<(), String> {
        if let (Some(file), Some(vector)) = (&mut self.vectors, vector) {
            let written = file.row(vector);
            self.note.vectors_crc32c = file.crc();
            written.map_err(|error| self.sentence(&error))?;
        }
        self.put(line)?;
        self.note.lines += 1;
        Ok(())
    }

    /// Says that a page is written as a whole and the next one begins at `cursor`. From time to time this is recorded in the note.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn page_done(&mut self, cursor: &str) -> Result<(), String> {
        cursor.clone_into(&mut self.note.cursor);
        self.whole.clone_from(&self.note);
        match self.noted.elapsed() < NOTE_INTERVAL {
            true => Ok(()),
            false => self.keep(),
        }
    }

    /// Flushes what was written so far and notes the end of the last whole page, so that an export can continue from there.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn keep(&mut self) -> Result<(), String> {
        self.noted = Instant::now();
        self.to.flush().map_err(|error| self.sentence(&error))?;
        let Some(names) = &self.names else { return Ok(()) };
        // The note must not say more than what is on disk.
        let sync = |path: &Path| File::open(path).and_then(|file| file.sync_data());
        sync(&partial(&names.lines)).map_err(|error| self.sentence(&error))?;
        if let Some(vectors) = &mut self.vectors {
            vectors.flush().map_err(|error| format!("the file of vectors: {error}"))?;
        }
        // The state consists of numbers and text, so that encoding it cannot fail.
        let text = serde_json::to_vec(&self.whole).unwrap_or_default();
        let (new, note) = (beside(&names.note(), ".new"), names.note());
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &note)).map_err(named(&note))
    }

    /// Writes the trailer, and gives the files their names. Returns the length of the file, without vectors that have a file of their own.
    ///
    /// # Errors
    /// A sentence with the name of the file.
    pub fn finish(mut self) -> Result<u64, String> {
        if self.convert.is_some() {
            // If the conversion fails, for example on a full disk, another run can continue from here.
            self.keep()?;
        }
        let vectors_crc32c = self.vectors.is_some().then(|| hex(self.note.vectors_crc32c));
        let end = End { lines: self.note.lines, crc32c: hex(self.note.crc32c), vectors_crc32c };
        let trailer = serde_json::to_vec(&Trailer { end }).unwrap_or_default();
        self.put(&trailer)?;
        self.put(b"\n")?;
        self.to.flush().map_err(|error| self.sentence(&error))?;
        let Some(names) = self.names.take() else { return Ok(self.note.bytes) };
        if let (Some(vectors), Some(path)) = (self.vectors.take(), &names.vectors) {
            vectors.finish(self.note.lines).map_err(named(path))?;
            std::fs::rename(partial(path), path).map_err(named(path))?;
        }
        let path = &names.lines;
        // The lines stay until the converted file has its name, so that another run can continue at any time.
        let made = match self.convert {
            None => partial(path),
            Some(convert) => {
                let made = beside(path, ".partial.made");
                if let Err(error) = convert(&partial(path), &made) {
                    // The disk may be full, so half a file must not stay on it.
                    let _ = remove_if_there(&made);
                    return Err(format!(
                        "{error}; -resume makes the file of the lines in {}",
                        partial(path).display()
                    ));
                }
                made
            }
        };
        let bytes = std::fs::metadata(&made).map_err(named(&made))?.len();
        File::open(&made)
            .and_then(|file| file.sync_all())
            .and_then(|()| std::fs::rename(&made, path))
            .map_err(named(path))?;
        remove_if_there(&partial(path)).map_err(named(&partial(path)))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(named(folder))?;
        remove_if_there(&names.note()).map_err(named(&names.note()))?;
        Ok(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.note.bytes += bytes.len() as u64;
        self.note.crc32c = crc32c::crc32c_append(self.note.crc32c, bytes);
        self.to.write_all(bytes).map_err(|error| self.sentence(&error))
    }

    fn sentence(&self, error: &io::Error) -> String {
        match &self.names {
            Some(names) => format!("{}: {error}", partial(&names.lines).display()),
            None => format!("the standard output: {error}"),
        }
    }
}

fn named(path: &Path) -> impl Fn(io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}

/// Removes a file. It is no error if there is none.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(path: &str, resume: bool, overwrite: bool) -> Wanted<'_> {
        Wanted { path, has_vectors: false, convert: None, resume, overwrite, what: "films".into() }
    }

    fn no_vectors(_: File) -> io::Result<VectorWriter> {
        panic!("no vectors are wanted")
    }

    #[test]
    fn an_interrupted_file_goes_on_from_its_note() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("films.jsonl");
        let name = path.to_str().unwrap();
        assert!(wanted(name, true, false).check().unwrap_err().contains("no export to go on with"));

        let mut output = Output::begin(&wanted(name, false, false), b"{}", no_vectors).unwrap();
        let error = wanted(name, true, false).check().unwrap_err();
        assert!(error.contains("-overwrite instead of -resume"), "{error}");
        output.line(b"{\"id\":1}\n", None).unwrap();
        output.page_done("second").unwrap();
        // This belongs to a page that is not whole.
        output.line(b"{\"id\":2}\n", None).unwrap();
        output.keep().unwrap();
        drop(output);

        assert!(!path.exists());
        let error = wanted(name, false, false).check().unwrap_err();
        assert!(error.contains("-resume") && error.contains("-overwrite"), "{error}");
        let other = Wanted { what: "books".into(), ..wanted(name, true, false) };
        assert!(other.check().unwrap_err().contains("another one: films"));

        let note = wanted(name, true, false).check().unwrap().unwrap();
        assert_eq!((note.cursor.as_str(), note.lines), ("second", 1));
        let mut output = Output::go_on(&wanted(name, true, false), note, |_, _| panic!()).unwrap();
        output.line(b"{\"id\":3}\n", None).unwrap();
        output.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let body = "{}\n{\"id\":1}\n{\"id\":3}\n";
        let crc = hex(crc32c::crc32c(body.as_bytes()));
        assert_eq!(text, format!("{body}{{\"end\":{{\"lines\":2,\"crc32c\":\"{crc}\"}}}}\n"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

        assert!(wanted(name, false, false).check().unwrap_err().contains("-overwrite"));
        assert_eq!(wanted(name, false, true).check(), Ok(None));
    }

    #[test]
    fn a_file_in_another_format_is_made_again_after_a_failure() {
        fn fail(_: &Path, to: &Path) -> Result<(), String> {
            std::fs::write(to, "half").unwrap();
            Err("no room".into())
        }
        fn copy(from: &Path, to: &Path) -> Result<(), String> {
            std::fs::copy(from, to).map(drop).map_err(|error| error.to_string())
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("films.parquet");
        let wanted = |convert: Convert, resume| Wanted {
            convert: Some(convert),
            ..wanted(path.to_str().unwrap(), resume, false)
        };
        let mut output = Output::begin(&wanted(fail, false), b"{}", no_vectors).unwrap();
        output.line(b"{\"id\":1}\n", None).unwrap();
        output.page_done("").unwrap();
        let error = output.finish().unwrap_err();
        assert!(error.contains("no room; -resume"), "{error}");
        assert!(!path.exists() && !beside(&path, ".partial.made").exists());
        let note = wanted(copy, true).check().unwrap().unwrap();
        assert_eq!((note.cursor.as_str(), note.lines), ("", 1));
        let output = Output::go_on(&wanted(copy, true), note, |_, _| panic!()).unwrap();
        output.finish().unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("{}\n{\"id\":1}\n{\"end\":"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_shorter_than_its_note_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let name = path.to_str().unwrap();
        let mut output = Output::begin(&wanted(name, false, false), b"{}", no_vectors).unwrap();
        output.keep().unwrap();
        drop(output);
        std::fs::write(partial(&path), "").unwrap();
        let note = wanted(name, true, false).check().unwrap().unwrap();
        let error = Output::go_on(&wanted(name, true, false), note, |_, _| panic!()).err().unwrap();
        assert!(error.contains("it was cut"), "{error}");
    }

    #[test]
    fn the_standard_output_cannot_go_on() {
        assert!(wanted("-", true, false).check().is_err());
        assert!(Wanted { has_vectors: true, ..wanted("-", false, false) }.check().is_err());
    }
}
