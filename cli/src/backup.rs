//! `nigh backup`: asks a server to make, list, verify and restore backups.

use crate::bench::client::{Client, Target, encode};
use crate::flags::normalise;
use crate::say;
use crate::tls::flags::TlsFlags;
use clap::{CommandFactory, Parser};
use serde_json::{Map, Value, json};
use std::io;

/// Asks a server to make backups, and lists, verifies and restores them.
///
/// The server must have been started with -backup-dir or -backup-bucket, and the API key needs the right admin on everything.
///
/// nigh backup run              back up every collection, the aliases, the definitions of key indexes, the API keys and the keys now
/// nigh backup list             list the snapshots
/// nigh backup verify NAME      read a whole snapshot of a collection and check it
/// nigh backup restore NAME     replace a collection by a snapshot, or create it from one
/// nigh backup restore -until TIME -data DIR -backup-dir STORE
///                              restore an empty data directory to a moment, from a backup and the log that a server has archived (-archive). This
///                              needs no running server; the flags are those of the server that will use the directory.
///
/// verify and restore take -part aliases, -part key-indexes, -part api-keys or -part keys instead of a NAME.
#[derive(Clone, Debug, Parser)]
#[command(name = "nigh backup", args_override_self = true, verbatim_doc_comment)]
struct Options {
    /// Server, http://host:port or https://host:port; without this flag http://127.0.0.1:8080, or https://127.0.0.1:8080 with a flag of TLS.
    #[arg(long)]
    url: Option<String>,
    /// API key, for a server that asks for one; without this flag it is taken from the variable NIGH_API_KEY, which does
    /// not show in the list of processes.
    #[arg(long, value_name = "SECRET")]
    api_key: Option<String>,
    /// The time of the run, as the list has it (2025-01-31T10:00:00Z); without this flag the newest snapshot is taken.
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
    /// The name of the restored collection; without this flag it is the name that it had.
    #[arg(long, value_name = "NAME")]
    into: Option<String>,
    /// What is verified or restored instead of a collection: aliases, key-indexes, api-keys or keys. A restore replaces all aliases, all definitions
    /// of key indexes, all API keys, or all keys, that the server has.
    #[arg(long, value_name = "PART")]
    part: Option<String>,
    /// The flags of TLS.
    #[command(flatten)]
    tls: TlsFlags,
}

const COMMANDS: &str = "run, list, verify NAME or restore NAME";

/// What a run stores beside the collections.
const PARTS: [&str; 4] = ["aliases", "key-indexes", "api-keys", "keys"];

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Command<'a> {
    Run,
    List,
    Verify(Subject<'a>),
    Restore(Subject<'a>),
}

/// Names the collection or the part whose snapshot a command is about.
#[derive(Debug, PartialEq, Eq)]
enum Subject<'a> {
    Collection(&'a str),
    Part(&'a str),
}

/// Runs `nigh backup <arguments>`; the exit code.
pub fn main(arguments: &[String]) -> i32 {
    let mut command = Options::command();
    let line = match flags_and_words(&command, arguments) {
        _ if matches!(arguments.first().map(String::as_str), Some("-h" | "-help" | "--help")) => {
            return say(io::stdout(), &command.render_long_help().to_string(), 0);
        }
        Ok(line) => line,
        Err(error) => return say(io::stderr(), &format!("{error}\n"), 2),
    };
    let (flags, words) = line;
    let options = match Options::try_parse_from(std::iter::once("nigh backup".to_owned()).chain(flags)) {
        Ok(options) => options,
        Err(error) => return say(io::stderr(), &error.to_string(), 2),
    };
    let command = match command_of(&words, &options) {
        Ok(command) => command,
        Err(error) => return say(io::stderr(), &format!("nigh backup: {error}\n"), 2),
    };
    match carry_out(&options, &command) {
        Ok((text, code)) => say(io::stdout(), &text, code),
        Err(error) => say(io::stderr(), &format!("nigh backup: {error}\n"), 1),
    }
}

/// The flags of a line and its other words. Flags may stand before and behind the words.
fn flags_and_words(
    command: &clap::Command,
    arguments: &[String],
) -> Result<(Vec<String>, Vec<String>), String> {
    let (mut flags, mut words, mut left) = (Vec::new(), Vec::new(), arguments.to_vec());
    loop {
        let line = normalise(command, &left)?;
        flags.extend(line.flags);
        let mut rest = line.rest;
        let Some(next) = rest.iter().position(|word| word.starts_with('-')).filter(|next| *next > 0) else {
            words.append(&mut rest);
            return Ok((flags, words));
        };
        left = rest.split_off(next);
        words.append(&mut rest);
    }
}

/// The command of the words, if it takes the flags that were given.
fn command_of<'a>(words: &'a [String], options: &'a Options) -> Result<Command<'a>, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let part = options.part.as_deref();
    if let Some(part) = part.filter(|part| !PARTS.contains(part)) {
        return Err(format!("-part must be {}, not {part:?}", PARTS.join(" or ")));
    }
    let command = match words[..] {
        [known @ ("verify" | "restore"), _] if part.is_some() => {
            return Err(format!("{known} takes the name of a collection or -part, not both"));
        }
        ["run"] => Command::Run,
        ["list"] => Command::List,
        ["verify", name] => Command::Verify(Subject::Collection(name)),
        ["restore", name] => Command::Restore(Subject::Collection(name)),
        [] => return Err(format!("a command is missing; it must be {COMMANDS}")),
        [known @ ("verify" | "restore")] => match (known, part) {
            ("verify", Some(part)) => Command::Verify(Subject::Part(part)),
            (_, Some(part)) => Command::Restore(Subject::Part(part)),
            (_, None) => return Err(format!("{known} needs the name of a collection: {known} NAME")),
        },
        [known @ ("run" | "list" | "verify" | "restore"), ..] => {
            return Err(format!("{known} has too many words after it; a command must be {COMMANDS}"));
        }
        _ => return Err(format!("{:?} is no command; it must be {COMMANDS}", words.join(" "))),
    };
    if options.time.is_some() && matches!(command, Command::Run | Command::List) {
        return Err("-time is for verify and restore".to_owned());
    }
    if options.into.is_some() && !matches!(command, Command::Restore(Subject::Collection(_))) {
        return Err("-into is for restore NAME".to_owned());
    }
    if part.is_some() && matches!(command, Command::Run | Command::List) {
        return Err("-part is for verify and restore".to_owned());
    }
    Ok(command)
}

/// What is to be shown, and the exit code.
fn carry_out(options: &Options, command: &Command<'_>) -> Result<(String, i32), String> {
    let token = options.api_key.clone().or_else(|| std::env::var("NIGH_API_KEY").ok()).unwrap_or_default();
    let target = Target::of_flags(options.url.as_deref(), &options.tls)?.with_key(&token)?;
    let mut client = Client::connect(&target).map_err(|error| target.not_connected(&error))?;
    let mut body = Map::new();
    if let Command::Verify(subject) | Command::Restore(subject) = command {
        let (key, name) = match subject {
            Subject::Collection(name) => ("collection", name),
            Subject::Part(name) => ("part", name),
        };
        body.insert(key.to_owned(), json!(name));
    }
    let given = [("time", &options.time), ("into", &options.into)];
    for (key, value) in given.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
        body.insert(key.to_owned(), json!(value));
    }
    let (method, path, body) = match command {
        Command::Run => ("POST", "/v1/admin/backup", String::new()),
        Command::List => ("GET", "/v1/admin/backups", String::new()),
        Command::Verify(_) => ("POST", "/v1/admin/backups/verify", Value::Object(body).to_string()),
        Command::Restore(_) => ("POST", "/v1/admin/backups/restore", Value::Object(body).to_string()),
    };
    let request = encode(&target, method, path, "application/json", body.as_bytes());
    let response = client.send(&request).map_err(|error| error.to_string())?;
    let answer = response.success(path)?;
    let answer: Value = serde_json::from_slice(answer)
        .map_err(|error| format!("the answer of the server is not JSON: {error}"))?;
    Ok(shown(command, &answer))
}

/// How many keys there are, if the answer says that.
fn counted(answer: &Value) -> String {
    answer.get("keys").map_or_else(String::new, |keys| format!("{keys} keys, "))
}

/// An answer for people, and the exit code: 1 if something failed.
fn shown(command: &Command<'_>, answer: &Value) -> (String, i32) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let listed = || answer["backups"].as_array().into_iter().flatten();
    match command {
        Command::Run => {
            let mut out = String::new();
            let parts = || answer["parts"].as_array().into_iter().flatten();
            for (of, done) in
                listed().map(|done| ("collection", done)).chain(parts().map(|done| ("part", done)))
            {
                let what = match done.get("error") {
                    Some(error) => format!("FAILED: {}", text(error)),
                    None => format!("{}{} bytes as {}", counted(done), done["size"], text(&done["key"])),
                };
                out += &format!("{}: {what}\n", text(&done[of]));
            }
            match answer.get("error") {
                Some(error) if listed().chain(parts()).all(|done| done.get("error").is_none()) => {
                    (out + &format!("FAILED: {}\n", text(error)), 1)
                }
                Some(_) => (out, 1),
                None if out.is_empty() => ("There is no collection to back up.\n".to_owned(), 0),
                None => (out, 0),
            }
        }
        Command::List => {
            let lines = listed().filter(|object| text(&object["key"]).ends_with(".snap"));
            let line =
                |object: &Value| format!("{}  {}\n", text(&object["last_modified"]), text(&object["key"]));
            let out: String = lines.map(line).collect();
            (if out.is_empty() { "There are no snapshots.\n".to_owned() } else { out }, 0)
        }
        Command::Verify(_) => {
            let size = format!("{}{} bytes", counted(answer), answer["size"]);
            (format!("{} is whole: {size}\n", text(&answer["key"])), 0)
        }
        Command::Restore(_) => {
            let how = if answer["replaced"] == json!(true) { "replaced" } else { "made" };
            (
                format!(
                    "{} was {how} from {}: {} bytes\n",
                    text(&answer["restored"]),
                    text(&answer["key"]),
                    answer["size"]
                ),
                0,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(flags: &[&str]) -> Options {
        Options::try_parse_from(["nigh backup"].iter().chain(flags)).unwrap()
    }

    #[test]
    fn words_are_commands_and_flags_belong_to_some_of_them() {
        let command = |words: &[&str], flags: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            command_of(&words, &options(flags)).map(|command| format!("{command:?}"))
        };
        assert_eq!(command(&["run"], &[]).unwrap(), "Run");
        assert_eq!(
            command(&["restore", "docs"], &["--time", "x", "--into", "y"]).unwrap(),
            "Restore(Collection(\"docs\"))"
        );
        assert_eq!(command(&["verify", "docs"], &["--time", "x"]).unwrap(), "Verify(Collection(\"docs\"))");
        let part = |name| ["--part", name];
        assert_eq!(command(&["verify"], &part("aliases")).unwrap(), "Verify(Part(\"aliases\"))");
        assert_eq!(command(&["restore"], &part("key-indexes")).unwrap(), "Restore(Part(\"key-indexes\"))");
        assert_eq!(command(&["restore"], &part("api-keys")).unwrap(), "Restore(Part(\"api-keys\"))");
        assert_eq!(command(&["restore"], &part("keys")).unwrap(), "Restore(Part(\"keys\"))");
        for (words, flags) in [
            (&[][..], &[][..]),
            (&["restore"], &[]),
            (&["restore", "a", "b"], &[]),
            (&["list", "docs"], &[]),
            (&["drop"], &[]),
            (&["run"], &["--time", "x"]),
            (&["verify", "docs"], &["--into", "x"]),
            (&["restore"], &["--part", "docs"]),
            (&["restore", "docs"], &["--part", "aliases"]),
            (&["restore"], &["--part", "aliases", "--into", "x"]),
            (&["run"], &["--part", "aliases"]),
        ] {
            command(words, flags).unwrap_err();
        }
    }

    #[test]
    fn flags_stand_before_and_behind_words() {
        let parsed = |line: &str| {
            let line: Vec<String> = line.split(' ').map(str::to_owned).collect();
            flags_and_words(&Options::command(), &line)
                .map(|(flags, words)| (flags.join(" "), words.join(" ")))
        };
        let expected = |flags: &str| Ok((flags.to_owned(), "restore docs".to_owned()));
        assert_eq!(parsed("-url x restore docs -time t -into n"), expected("--url=x --time=t --into=n"));
        assert_eq!(parsed("restore -time t docs"), expected("--time=t"));
        assert_eq!(parsed("restore docs"), expected(""));
        assert!(parsed("restore docs -when t").is_err());
    }

    #[test]
    fn a_failure_is_shown_and_is_the_exit_code() {
        let run = json!({"backups": [
            {"collection": "a", "key": "p/a/t.snap", "size": 5},
            {"collection": "b", "size": 0, "error": "The disk is full."},
        ], "error": "b: The disk is full."});
        let expected = "a: 5 bytes as p/a/t.snap\nb: FAILED: The disk is full.\n";
        assert_eq!(shown(&Command::Run, &run), (expected.to_owned(), 1));
        let parts = json!({"backups": [], "parts": [
            {"part": "aliases", "key": "p/aliases/t.snap", "size": 7},
            {"part": "key-indexes", "size": 0, "error": "The keys are damaged."},
        ], "error": "key-indexes: The keys are damaged."});
        let expected = "aliases: 7 bytes as p/aliases/t.snap\nkey-indexes: FAILED: The keys are damaged.\n";
        assert_eq!(shown(&Command::Run, &parts), (expected.to_owned(), 1));
        let none = json!({"backups": [], "error": "The store refuses access."});
        assert_eq!(shown(&Command::Run, &none), ("FAILED: The store refuses access.\n".to_owned(), 1));
        let list = json!({"backups": [
            {"key": "p/a/t.cfg.json", "size": 1, "last_modified": "x"},
            {"key": "p/a/t.snap", "size": 1, "last_modified": "2025-01-31T10:00:00Z"},
        ]});
        assert_eq!(shown(&Command::List, &list).0, "2025-01-31T10:00:00Z  p/a/t.snap\n");
    }

    #[test]
    fn an_empty_run_and_an_empty_list_are_told_in_a_sentence() {
        let none = json!({"backups": []});
        let run = ("There is no collection to back up.\n".to_owned(), 0);
        assert_eq!(shown(&Command::Run, &none), run);
        assert_eq!(shown(&Command::List, &none), ("There are no snapshots.\n".to_owned(), 0));
    }

    #[test]
    fn a_command_without_its_name_is_told_what_it_lacks() {
        let said = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            command_of(&words, &options(&[])).unwrap_err()
        };
        assert_eq!(said(&["restore"]), "restore needs the name of a collection: restore NAME");
        assert_eq!(
            said(&["list", "docs"]),
            "list has too many words after it; a command must be run, list, verify NAME or restore NAME"
        );
        assert!(said(&["drop"]).contains("\"drop\" is no command"));
    }
}
