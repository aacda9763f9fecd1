//! Rewrites an argument list into the one form clap is given: `--name=value`.
//!
//! The interface's rules differ from clap's: `-name` and `--name` are the same, a boolean never takes the next
//! argument as its value, and the first argument that is not a flag ends flag parsing. So the list is walked here,
//! with the command's own table of flags, and clap checks names, types and defaults of the result.
use clap::Command;
use std::any::TypeId;

/// A rewritten argument list.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Normalised {
    /// `--name=value` for every flag, in order.
    pub flags: Vec<String>,
    /// The first argument that is not a flag, and all after it.
    pub rest: Vec<String>,
}

/// Rewrites `arguments` (without the program's name) for `command`.
///
/// # Errors
/// A sentence naming the argument: unknown flag, missing value, bad syntax.
pub fn normalise(command: &Command, arguments: &[String]) -> Result<Normalised, String> {
    let mut flags = Vec::new();
    let mut index = 0;
    while let Some(argument) = arguments.get(index) {
        let Some(body) = argument.strip_prefix('-').filter(|body| !body.is_empty()) else { break };
        index += 1;
        if body == "-" {
            break;
        }
        let body = body.strip_prefix('-').unwrap_or(body);
        if body.starts_with(['-', '=']) {
            return Err(format!("bad flag syntax: {argument}"));
        }
        let (name, inline) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let flag = command
            .get_arguments()
            .find(|flag| {
                flag.get_long() == Some(name) || flag.get_all_aliases().unwrap_or_default().contains(&name)
            })
            .ok_or_else(|| format!("unknown flag -{name}"))?;
        let value = match inline {
            Some(value) => value,
            None if flag.get_value_parser().type_id() == TypeId::of::<bool>() => "true".to_owned(),
            None => {
                let value = arguments.get(index).ok_or_else(|| format!("flag -{name} needs a value"))?;
                index += 1;
                value.clone()
            }
        };
        flags.push(format!("--{name}={value}"));
    }
    Ok(Normalised { flags, rest: arguments[index..].to_vec() })
}

/// The name in a normalised flag.
pub fn name_of(flag: &str) -> &str {
    let body = flag.strip_prefix("--").unwrap_or(flag);
    body.split_once('=').map_or(body, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::ServerFlags;
    use clap::CommandFactory;

    fn check(arguments: &[&str], flags: &[&str], rest: &[&str]) {
        let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let found = normalise(&ServerFlags::command(), &owned(arguments));
        assert_eq!(found, Ok(Normalised { flags: owned(flags), rest: owned(rest) }), "{arguments:?}");
    }

    #[test]
    fn one_dash_is_two() {
        check(&["-http", ":1", "--data=/x"], &["--http=:1", "--data=/x"], &[]);
        check(&["-http="], &["--http="], &[]);
        check(&["-ttl-sweep-interval", "-5s"], &["--ttl-sweep-interval=-5s"], &[]);
    }

    #[test]
    fn a_boolean_takes_no_argument() {
        check(&["-insecure", "-http", ":1"], &["--insecure=true", "--http=:1"], &[]);
        check(&["-epoll", "false", "-http", ":1"], &["--epoll=true"], &["false", "-http", ":1"]);
        check(&["-epoll=false"], &["--epoll=false"], &[]);
    }

    #[test]
    fn the_first_word_ends_the_flags() {
        check(&["-", "-http"], &[], &["-", "-http"]);
        check(&["--", "-http"], &[], &["-http"]);
        check(&["-http", ":1", "word", "-insecure"], &["--http=:1"], &["word", "-insecure"]);
    }

    #[test]
    fn mistakes_are_named() {
        let error = |list: &[&str]| {
            let owned: Vec<_> = list.iter().map(|&text| text.to_owned()).collect();
            normalise(&ServerFlags::command(), &owned).unwrap_err()
        };
        assert_eq!(error(&["-no-such"]), "unknown flag -no-such");
        assert_eq!(error(&["-http"]), "flag -http needs a value");
        assert_eq!(error(&["---http"]), "bad flag syntax: ---http");
        assert_eq!(error(&["-=x"]), "bad flag syntax: -=x");
    }
}
