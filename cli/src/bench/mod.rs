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
        Some(word) => {
            let hint = line.boolean_hint().map_or(String::new(), |hint| format!(": {hint}"));
            Err(format!("unexpected argument {word:?}{hint}"))
        }
        None => {
            vector::Options::try_parse_from(std::iter::once("nigh bench vector".to_owned()).chain(line.flags))
                .map_err(|error| error.to_string())
        }
    });
    let options = match options {
        Ok(options) => with_environment(options, std::env::var("NIGH_API_KEY").ok()),
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

/// Options with what the environment adds. It is not `SVC_API_KEY`: that is the server's own secret, and would travel
/// in clear text to whatever server a flag names.
fn with_environment(options: vector::Options, api_key: Option<String>) -> vector::Options {
    vector::Options { api_key: options.api_key.or(api_key), ..options }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_wins_over_the_variable() {
        for (flag, variable, key) in
            [(Some("f"), Some("v"), Some("f")), (None, Some("v"), Some("v")), (None, None, None)]
        {
            let flags = flag.map(|value| format!("--api-key={value}"));
            let options = vector::Options::parse_from(std::iter::once("bench".to_owned()).chain(flags));
            assert_eq!(with_environment(options, variable.map(str::to_owned)).api_key.as_deref(), key);
        }
    }
}
