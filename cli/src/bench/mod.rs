//! `nigh bench vector`: loads a corpus over HTTP, checks recall and measures queries.
mod churn;
pub mod client;
mod dataset;
mod ingest;
mod load;
mod processor_wait;
mod recall;
mod report;
mod server_metrics;
mod vector;
mod wire;

use crate::flags::normalise;
use crate::say;
use clap::{CommandFactory, Parser};

/// Runs `nigh bench <arguments>`; the exit code.
pub fn main(arguments: &[String]) -> i32 {
    match arguments.split_first() {
        Some((name, rest)) if name == "vector" => vector_main(rest),
        _ => say(std::io::stderr(), "usage: nigh bench vector [flags]   (-help lists them)\n", 2),
    }
}

fn vector_main(arguments: &[String]) -> i32 {
    let mut command = vector::Options::command();
    if arguments.iter().any(|argument| matches!(argument.as_str(), "-h" | "-help" | "--help")) {
        return say(std::io::stdout(), &command.render_long_help().to_string(), 0);
    }
    let options = normalise(&command, arguments).and_then(|line| match line.rest.first() {
        Some(word) => Err(format!("unexpected argument {word:?}")),
        None => {
            vector::Options::try_parse_from(std::iter::once("nigh bench vector".to_owned()).chain(line.flags))
                .map_err(|error| error.to_string())
        }
    });
    let options = match options {
        Ok(options) => options,
        Err(error) => return say(std::io::stderr(), &format!("{error}\n"), 2),
    };
    match vector::run(&options) {
        Ok(report) if options.json => {
            // A report holds numbers and strings only, which always have a JSON form.
            let line = serde_json::to_string(&report).unwrap_or_default();
            say(std::io::stdout(), &(line + "\n"), 0)
        }
        Ok(report) => say(std::io::stdout(), &report.text(), 0),
        Err(error) => say(std::io::stderr(), &format!("nigh bench vector: {error}\n"), 1),
    }
}
