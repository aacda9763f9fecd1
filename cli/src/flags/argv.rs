//! Rewrites an argument list into the one form clap is given: `--name=value`.
//!
//! The interface's rules differ from clap's: `-name` and `--name` are the same, a boolean never takes the next
//! argument as its value, and the first argument that is not a flag ends flag parsing. So the list is walked here,
//! with the command's own table of flags, and clap checks names, types and defaults of the result.
use super::values::parse_bool;
use clap::Command;
use std::any::TypeId;

/// A rewritten argument list.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Normalised {
    /// `--name=value` for every flag, in order.
    pub flags: Vec<String>,
    /// The first argument that is not a flag, and all after it.
    pub rest: Vec<String>,
    /// The boolean flag that stands, without a value, right before `rest`.
    pub boolean_before_rest: Option<String>,
}

impl Normalised {
    /// How to write what was probably meant, when the first word of the rest looks like the value of a boolean.
    pub fn boolean_hint(&self) -> Option<String> {
        let (name, word) = (self.boolean_before_rest.as_ref()?, self.rest.first()?);
        let is_true = parse_bool(word).ok()?;
        Some(match is_true {
            true => format!("a boolean is written -{name} or -{name}=true"),
            false => format!("a boolean is written -{name}=false"),
        })
    }
}

/// Rewrites `arguments` (without the program's name) for `command`.
///
/// # Errors
/// A sentence naming the argument: unknown flag, missing value, bad syntax.
pub fn normalise(command: &Command, arguments: &[String]) -> Result<Normalised, String> {
    let mut flags = Vec::new();
    let mut index = 0;
    let mut bare_boolean = None;
    while let Some(argument) = arguments.get(index) {
        let Some(body) = argument.strip_prefix('-').filter(|body| !body.is_empty()) else { break };
        index += 1;
        bare_boolean = None;
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
            None if flag.get_value_parser().type_id() == TypeId::of::<bool>() => {
                bare_boolean = Some(name.to_owned());
                "true".to_owned()
            }
            None => {
                let value = arguments.get(index).ok_or_else(|| format!("flag -{name} needs a value"))?;
                index += 1;
                value.clone()
            }
        };
        flags.push(format!("--{name}={value}"));
    }
    let rest = arguments[index..].to_vec();
    Ok(Normalised { flags, boolean_before_rest: bare_boolean.filter(|_| !rest.is_empty()), rest })
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
        let found = found.map(|line| (line.flags, line.rest));
        assert_eq!(found, Ok((owned(flags), owned(rest))), "{arguments:?}");
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
    fn a_boolean_with_a_word_behind_it_is_told_how_to_write_it() {
        let hint = |list: &[&str]| {
            let owned: Vec<_> = list.iter().map(|&text| text.to_owned()).collect();
            normalise(&ServerFlags::command(), &owned).unwrap().boolean_hint()
        };
        let hinted = hint(&["-access-log", "true", "-http", ":1"]);
        assert_eq!(hinted.as_deref(), Some("a boolean is written -access-log or -access-log=true"));
        assert_eq!(hint(&["-epoll", "false"]).as_deref(), Some("a boolean is written -epoll=false"));
        for other in [
            &["-access-log", "yes"][..],
            &["-access-log=true", "true"],
            &["-access-log", "--", "true"],
            &["-http", ":1", "true"],
            &["-access-log"],
        ] {
            assert_eq!(hint(other), None, "{other:?}");
        }
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
