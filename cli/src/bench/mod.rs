//! `nigh bench`: load generators. `vector` loads a corpus over HTTP, checks recall and measures queries; `ingest` streams one over the
//! binary protocol; `kv` measures key-value servers.
mod churn;
pub mod client;
mod dataset;
mod ingest;
mod kv;
mod latency;
mod load;
mod processor_wait;
mod recall;
mod report;
mod server_metrics;
mod tcp_ingest;
mod vector;
mod wire;

pub use dataset::tagged as tagged_payload;
pub use ingest::path_segment;

use crate::flags::normalise;
use crate::say;
use clap::Parser;
use serde::Serialize;

const USAGE: &str = "usage: nigh bench vector [flags]\n       nigh bench ingest [flags]\n       \
                     nigh bench kv [flags]     (-help lists them)\n";

/// Runs `nigh bench <arguments>`; the exit code.
pub fn main(arguments: &[String]) -> i32 {
    let Some((name, rest)) = arguments.split_first() else { return say(std::io::stderr(), USAGE, 2) };
    match name.as_str() {
        "vector" => with_options("nigh bench vector", rest, |options: vector::Options, variable| {
            let options = vector::Options { api_key: key(options.api_key, variable), ..options };
            vector::run(&options).map(|report| (printed(&report, options.json, report.text()), Ok(())))
        }),
        "ingest" => with_options("nigh bench ingest", rest, |options: tcp_ingest::Options, variable| {
            let options = tcp_ingest::Options { api_key: key(options.api_key, variable), ..options };
            tcp_ingest::run(&options).map(|report| (printed(&report, options.json, report.text()), Ok(())))
        }),
        "kv" => with_options("nigh bench kv", rest, |options: kv::Options, variable| {
            let options = kv::Options { api_key: key(options.api_key, variable), ..options };
            kv::run(&options).map(|report| (printed(&report, options.json, report.text()), report.verdict()))
        }),
        _ => say(std::io::stderr(), USAGE, 2),
    }
}

/// The key of a server: the flag's, else the variable's.
fn key(flag: Option<String>, variable: Option<String>) -> Option<String> {
    flag.or(variable)
}

/// What a run prints, and whether it is a success all the same.
type Ended = (String, Result<(), String>);

/// Reads the flags of `program` and runs it with them and the key of the environment, which a flag wins over. It is not
/// `SVC_API_KEY`: that is the server's own secret, and would travel in clear text to whatever server a flag names.
fn with_options<O: Parser>(
    program: &str,
    arguments: &[String],
    run: impl FnOnce(O, Option<String>) -> Result<Ended, String>,
) -> i32 {
    let mut command = O::command();
    if arguments.iter().any(|argument| matches!(argument.as_str(), "-h" | "-help" | "--help")) {
        return say(std::io::stdout(), &command.render_long_help().to_string(), 0);
    }
    let options = normalise(&command, arguments).and_then(|line| match line.rest.first() {
        Some(word) => {
            let hint = line.boolean_hint().map_or(String::new(), |hint| format!(": {hint}"));
            Err(format!("unexpected argument {word:?}{hint}"))
        }
        None => O::try_parse_from(std::iter::once(program.to_owned()).chain(line.flags))
            .map_err(|error| error.to_string()),
    });
    let options = match options {
        Ok(options) => options,
        Err(error) => return say(std::io::stderr(), &format!("{error}\n"), 2),
    };
    let failed = |error| say(std::io::stderr(), &format!("{program}: {error}\n"), 1);
    match run(options, std::env::var("NIGH_API_KEY").ok()) {
        Ok((text, verdict)) => {
            let code = say(std::io::stdout(), &text, 0);
            verdict.map_or_else(failed, |()| code)
        }
        Err(error) => failed(error),
    }
}

/// A report as one line of JSON, or as the text of it.
fn printed(report: &impl Serialize, json: bool, text: String) -> String {
    // A report holds numbers and strings only, which always have a JSON form.
    if json { serde_json::to_string(report).unwrap_or_default() + "\n" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_wins_over_the_variable() {
        for (flag, variable, wins) in
            [(Some("f"), Some("v"), Some("f")), (None, Some("v"), Some("v")), (None, None, None)]
        {
            assert_eq!(key(flag.map(str::to_owned), variable.map(str::to_owned)).as_deref(), wins);
        }
    }

    #[test]
    fn unknown_words_and_flags_are_refused() {
        let code = |words: &[&str]| main(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        for words in [&[][..], &["nonsense"], &["kv", "word"], &["kv", "-nonsense"], &["kv", "-keys", "x"]] {
            assert_eq!(code(words), 2, "{words:?}");
        }
        assert_eq!(code(&["kv", "-keys", "0"]), 1);
        assert_eq!(code(&["ingest", "-batch", "0"]), 1);
    }
}
