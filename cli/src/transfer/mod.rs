//! `nigh export` and `nigh import`: a collection, or the keys, of any server of the interface to a file, and back.
//!
//! A file has a header with the configuration, one JSON object per point or key, and a last line by which a file that was cut short is noticed.
//! Reading order: [`header`] and [`point`] (what is in a file), [`source`] (how points are read page by page), [`export`]; [`batch`] (how
//! points are written), [`import`], [`tally`] (what became of them).
mod batch;
mod columnar;
mod export;
mod export_keys;
mod header;
mod import;
mod import_keys;
mod import_state;
mod key_line;
mod key_remote;
mod line_reader;
mod options;
mod outfile;
mod point;
mod progress;
mod refusals;
mod remote;
mod shape;
mod source;
mod tally;
mod vector_file;

pub use header::VERSION as EXPORT_VERSION;

use crate::flags::normalise;
use crate::say;
use clap::Parser;
use header::{Header, Kind};
use line_reader::{FileLines, LineReader};
use options::{ColumnFlags, ExportOptions, Format, ImportOptions};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// Points or keys of a request.
const BATCH_MAX: usize = 10_000;
/// Connections of an import.
const CONNECTIONS_MAX: usize = 64;
const BUFFER_BYTES: usize = 256 << 10;
/// The variable that holds the API key.
const VARIABLE: &str = "NIGH_API_KEY";

/// Runs `nigh export <arguments>`; the exit code.
pub fn export_main(arguments: &[String]) -> i32 {
    with_options("nigh export", arguments, |options: ExportOptions, rest| {
        if let Some(word) = rest.first() {
            return Err(Fault::Usage(format!("unexpected argument {word:?}")));
        }
        let usage = |text: &str| Err(Fault::Usage(text.to_owned()));
        let to_stdout = match options.o.as_deref() {
            None | Some("") => return usage("-o names the file to write; - is the standard output"),
            Some(path) => path == "-",
        };
        match (options.format, options.o.as_deref()) {
            (Format::Parquet, _) => columnar::check()?,
            (Format::Jsonl, Some(path)) if columnar::is_named(path) => {
                return usage("-o names a file of Parquet; -format parquet writes one");
            }
            _ => {}
        }
        if options.format == Format::Parquet && to_stdout {
            return usage("-format parquet needs a file, and - is the standard output: -o FILE");
        }
        let variable = std::env::var(VARIABLE).ok();
        let summary = match (&options.collection, options.keys) {
            (None, false) => return usage("-collection NAME or -keys says what to export"),
            (Some(_), true) => return usage("-collection and -keys are two exports"),
            (Some(_), false) if !options.prefix.is_empty() || !options.index.is_empty() => {
                return usage("-prefix and -index belong to -keys");
            }
            (None, true) if options.without_sparse => return usage("-without-sparse belongs to -collection"),
            (Some(name), false) => export::run(&options, name, &options.server.http(variable)?)?,
            (None, true) => export_keys::run(&options, options.server.tcp(variable)?)?,
        };
        // What is on the standard output is the export.
        match to_stdout {
            true => say(io::stderr(), &summary, 0),
            false => say(io::stdout(), &summary, 0),
        };
        Ok(())
    })
}

/// Runs `nigh import <arguments>`; the exit code.
pub fn import_main(arguments: &[String]) -> i32 {
    with_options("nigh import", arguments, |options: ImportOptions, rest| {
        let file = match rest {
            [file] => file,
            [] => return Err(Fault::Usage("FILE names what to import; - is the standard input".into())),
            [_, word, ..] => return Err(Fault::Usage(format!("unexpected argument {word:?}"))),
        };
        for (value, most, name) in
            [(options.batch, BATCH_MAX, "batch"), (options.connections, CONNECTIONS_MAX, "connections")]
        {
            if value == 0 || value > most {
                return Err(Fault::Usage(format!("-{name} is {value}, and 1 to {most} are possible")));
            }
        }
        let (file, header, lines) = open(file, &options.columns)?;
        let variable = std::env::var(VARIABLE).ok();
        let (summary, ended) = match header.kind {
            Kind::Collection => {
                import::run(&options, &file, &header, lines, &options.server.http(variable)?)?
            }
            Kind::Keys => import_keys::run(&options, &file, &header, lines, options.server.tcp(variable)?)?,
        };
        say(io::stdout(), &summary, 0);
        Ok(ended?)
    })
}

/// Opens the lines of a file: those beside it, if it has vectors. The name of the file with the lines, and what it begins with.
fn open(file: &str, columns: &ColumnFlags) -> Result<(String, Header, FileLines), String> {
    let open_columns = || -> Result<(String, Header, FileLines), String> {
        let opened = columnar::check().and_then(|()| columnar::open(Path::new(file), columns));
        let (header, lines) = opened.map_err(|error| format!("{file}: {error}"))?;
        Ok((file.to_owned(), header, lines))
    };
    if columnar::is_named(file) {
        return open_columns();
    }
    let (name, mut from): (String, Box<dyn BufRead>) = match file {
        "-" => (file.to_owned(), Box::new(BufReader::with_capacity(BUFFER_BYTES, io::stdin()))),
        _ => {
            let has_vectors =
                Path::new(file).extension().is_some_and(|ending| ending == "npy" || ending == "fvecs");
            let name = if has_vectors { format!("{file}.jsonl") } else { file.to_owned() };
            let opened = File::open(&name).map_err(|error| format!("{name}: {error}"))?;
            (name, Box::new(BufReader::with_capacity(BUFFER_BYTES, opened)))
        }
    };
    // A file of Parquet may have any name. It is read from its end, which the standard input does not have.
    if from.fill_buf().is_ok_and(|begin| begin.starts_with(columnar::MAGIC)) {
        return match file {
            "-" => Err("the standard input is Parquet, which is read from a file alone".into()),
            _ => open_columns(),
        };
    }
    let (header, lines) = LineReader::open(from).map_err(|error| format!("{name}: {error}"))?;
    Ok((name, header, Box::new(lines)))
}

/// Why a program ends without success.
enum Fault {
    /// It was called wrongly: exit code 2.
    Usage(String),
    /// It failed: exit code 1.
    Failed(String),
}

impl From<String> for Fault {
    fn from(reason: String) -> Fault {
        Fault::Failed(reason)
    }
}

/// Reads the flags of `program`, which may stand before and behind its words, and runs it with them.
fn with_options<O: Parser>(
    program: &str,
    arguments: &[String],
    run: impl FnOnce(O, &[String]) -> Result<(), Fault>,
) -> i32 {
    let mut command = O::command();
    if arguments.iter().any(|argument| matches!(argument.as_str(), "-h" | "-help" | "--help")) {
        return say(io::stdout(), &command.render_long_help().to_string(), 0);
    }
    let (mut flags, mut words) = (vec![program.to_owned()], Vec::new());
    let mut left = arguments.to_vec();
    let options = loop {
        match normalise(&command, &left) {
            Err(error) => break Err(error),
            Ok(line) => {
                flags.extend(line.flags);
                match line.rest.split_first() {
                    None => break O::try_parse_from(flags).map_err(|error| error.to_string()),
                    Some((word, rest)) => {
                        words.push(word.clone());
                        left = rest.to_vec();
                    }
                }
            }
        }
    };
    let ended = options.map_err(Fault::Usage).and_then(|options| run(options, &words));
    match ended {
        Ok(()) => 0,
        Err(Fault::Usage(error)) => say(io::stderr(), &format!("{program}: {error}\n"), 2),
        Err(Fault::Failed(error)) => say(io::stderr(), &format!("{program}: {error}\n"), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(ToOwned::to_owned).collect()
    }

    #[cfg(not(feature = "parquet"))]
    #[test]
    fn a_build_without_parquet_names_the_feature() {
        let error = open("/nowhere/films.parquet", &ColumnFlags::default()).err().unwrap();
        assert!(
            error.contains("/nowhere/films.parquet: ") && error.contains("cargo feature parquet"),
            "{error}"
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("films");
        std::fs::write(&path, columnar::MAGIC).unwrap();
        let error = open(path.to_str().unwrap(), &ColumnFlags::default()).err().unwrap();
        assert!(error.contains("cargo feature parquet"), "{error}");
        assert_eq!(export_main(&words("-collection films -format parquet -o films.parquet")), 1);
    }

    #[test]
    fn wrong_calls_are_refused_before_anything_is_read() {
        for line in [
            "",
            "-collection films",
            "-o f",
            "-collection films -keys -o f",
            "-collection films -prefix a -o f",
            "-keys -without-sparse -o f",
            "-collection films -o f more",
            "-nonsense",
        ] {
            assert_eq!(export_main(&words(line)), 2, "{line}");
        }
        assert_eq!(export_main(&words("-collection films -o films.parquet")), 2);
        for line in ["", "a b", "-batch 0 f", "f -batch 10001", "f -connections 0", "f -on-conflict maybe"] {
            assert_eq!(import_main(&words(line)), 2, "{line}");
        }
        assert_eq!(import_main(&words("/nowhere/films.jsonl")), 1);
        assert_eq!(export_main(&words("-keys -url http://127.0.0.1:1 -o f")), 1);
    }
}
