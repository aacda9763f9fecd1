//! Command line and environment of the server.
//!
//! A value comes from the flag, else from the environment variable, else from the default; for the two secrets a
//! non-empty variable wins over the flag. A variable that is set but empty is a value.
mod argv;
mod offered;
mod server;
mod usage;
mod values;

pub use argv::{Normalised, normalise};
pub use offered::{refusal, without_effect};
pub use server::ServerFlags;
pub use usage::{usage, version_line};
pub use values::{Confine, Span, WalSync, parse_bool, parse_bytes};

use argv::name_of;
use clap::{CommandFactory, Parser};
use std::fmt::Write;

/// What the command line asks for.
#[derive(Debug)]
pub enum Asked {
    /// Print the grouped usage.
    Help,
    /// Print every description.
    HelpAll,
    /// Print the build's identity.
    Version,
    /// Run the server.
    Serve(Box<CommandLine>),
}

/// A checked command line, before the environment is looked at.
#[derive(Debug)]
pub struct CommandLine(Normalised);

/// Flags, with what has to be said about where they came from.
#[derive(Debug)]
pub struct Resolved {
    /// Values.
    pub flags: ServerFlags,
    /// Sentences to log as warnings.
    pub warnings: Vec<String>,
    /// Flags whose value the environment gave, and which.
    from_environment: Vec<(String, String)>,
}

impl Resolved {
    /// The sentence that refuses a flag, with the variable and its value where the environment set that flag: whoever reads it may
    /// never have written the flag. Secrets are not shown.
    pub fn explain(&self, mut sentence: String) -> String {
        let refused = sentence.clone();
        for (flag, value) in self.from_environment.iter().filter(|(flag, _)| names_flag(&refused, flag)) {
            let variable = variable_of(flag);
            let _ = match is_secret(flag) {
                true => write!(sentence, "; environment variable {variable} sets -{flag}"),
                false => write!(sentence, "; environment variable {variable} sets -{flag} to {value:?}"),
            };
        }
        sentence
    }
}

/// Whether `-flag` stands in a sentence, and not as a part of a longer name.
fn names_flag(sentence: &str, flag: &str) -> bool {
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    sentence.match_indices(&format!("-{flag}")).any(|(at, found)| {
        let bytes = sentence.as_bytes();
        let begins = at == 0 || !of_name(bytes[at - 1]);
        begins && bytes.get(at + found.len()).is_none_or(|byte| !of_name(*byte))
    })
}

fn is_secret(flag: &str) -> bool {
    matches!(flag, "api-key" | "internal-token")
}

/// Checks the arguments (without the program's name).
///
/// # Errors
/// A sentence naming the flag and, when it has one, the bad value.
pub fn parse(arguments: &[String]) -> Result<Asked, String> {
    // Help is found before a later mistake is: whoever asks for help does not have the syntax yet.
    let is_help = |argument: &String| matches!(argument.as_str(), "-h" | "--h" | "-help" | "--help");
    let command = ServerFlags::command();
    let line = match normalise(&command, arguments) {
        Err(_) if arguments.iter().any(is_help) => return Ok(Asked::Help),
        line => line?,
    };
    let flags = from_normalised(&line.flags)?;
    Ok(match (flags.h || flags.help, flags.help_all, flags.version) {
        (true, ..) => Asked::Help,
        (_, true, _) => Asked::HelpAll,
        (.., true) => Asked::Version,
        _ => Asked::Serve(Box::new(CommandLine(line))),
    })
}

impl CommandLine {
    /// Adds the environment, asked for through `variable`.
    ///
    /// # Errors
    /// A sentence naming the variable, its value and the flag.
    pub fn resolve(mut self, variable: impl Fn(&str) -> Option<String>) -> Result<Resolved, String> {
        let (mut warnings, mut from_environment) = (Vec::new(), Vec::new());
        if let Some(word) = self.0.rest.first() {
            let reason =
                self.0.boolean_hint().unwrap_or_else(|| "flags end at the first other word".to_owned());
            warnings.push(format!("arguments from {word:?} on are not read: {reason}"));
        }
        let command = ServerFlags::command();
        for flag in command.get_arguments().filter_map(|flag| flag.get_long()) {
            if server::COMMAND_LINE_ONLY.contains(&flag) {
                continue;
            }
            let secret = is_secret(flag);
            let given = self.0.flags.iter().any(|given| name_of(given) == flag);
            if secret && given {
                let variable = variable_of(flag);
                warnings.push(format!("-{flag} shows in the list of processes; set {variable} instead"));
            }
            let Some(value) = variable(&variable_of(flag)) else { continue };
            let variable_wins = secret && !value.is_empty();
            if given && !variable_wins {
                continue;
            }
            let from_variable = format!("--{flag}={value}");
            from_normalised(std::slice::from_ref(&from_variable)).map_err(|reason| {
                format!("environment variable {} has the value {value:?}: {reason}", variable_of(flag))
            })?;
            self.0.flags.push(from_variable);
            from_environment.push((flag.to_owned(), value));
        }
        Ok(Resolved { flags: from_normalised(&self.0.flags)?, warnings, from_environment })
    }
}

/// What the name of every variable of the server begins with.
const VARIABLE_PREFIX: &str = "SVC_";

/// The warning about those of the environment's `names` that look like a flag's and are none, if there are any.
pub fn unknown_variables(names: impl Iterator<Item = String>) -> Option<String> {
    let command = ServerFlags::command();
    let flags = command.get_arguments().filter_map(|flag| flag.get_long());
    let known: Vec<String> =
        flags.filter(|flag| !server::COMMAND_LINE_ONLY.contains(flag)).map(variable_of).collect();
    let mut unknown: Vec<String> =
        names.filter(|name| name.starts_with(VARIABLE_PREFIX) && !known.contains(name)).collect();
    unknown.sort();
    let list = unknown.join(", ");
    (!list.is_empty()).then(|| {
        format!("environment variables that name no flag are not read: {list}; -help-all lists the names")
    })
}

/// The environment variable of a flag.
fn variable_of(flag: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", flag.to_ascii_uppercase().replace('-', "_"))
}

fn from_normalised(flags: &[String]) -> Result<ServerFlags, String> {
    let arguments = std::iter::once("nigh".to_owned()).chain(flags.iter().cloned());
    ServerFlags::try_parse_from(arguments).map_err(|error| describe(&error, flags))
}

/// clap's error as one sentence that names the flag as this interface writes it.
fn describe(error: &clap::Error, flags: &[String]) -> String {
    use clap::error::{ContextKind, ContextValue};
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.split([' ', '=']).next().unwrap_or_default(),
        _ => flags.first().map(String::as_str).unwrap_or_default(),
    };
    let name = name_of(flag);
    match std::error::Error::source(error) {
        Some(reason) => format!("invalid value for flag -{name}: {reason}"),
        None => format!("flag -{name}: {}", error.kind()),
    }
}

/// The flags of a command line without an environment.
#[cfg(test)]
pub fn parsed(arguments: &[&str]) -> ServerFlags {
    let owned: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
    let Ok(Asked::Serve(line)) = parse(&owned) else { panic!("{arguments:?}") };
    line.resolve(|_| None).expect("flags that can be resolved").flags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &[&str]) -> Result<Asked, String> {
        parse(&arguments.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    fn resolve(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Resolved, String> {
        let Asked::Serve(line) = line(arguments).unwrap() else { panic!("not a server: {arguments:?}") };
        line.resolve(|name| {
            environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn every_flag_of_the_interface_is_there_with_its_default() {
        let flags = resolve(&[], &[]).unwrap().flags;
        assert_eq!(flags.http, ":8080");
        assert_eq!(
            (flags.grpc.as_str(), flags.tcp.as_str(), flags.epoll, flags.epoll_loops),
            ("", "", true, 0)
        );
        assert_eq!((flags.shards, flags.cores, flags.wal_sync), (0, 0, WalSync::Always));
        assert_eq!(flags.ttl_sweep_interval.nanos, 30_000_000_000);
        assert_eq!(flags.relocate_reserve_interval.nanos, 50_000_000);
        assert_eq!((flags.node_id.as_str(), flags.raft_addr.as_str()), ("node1", "127.0.0.1:7400"));
        assert_eq!((flags.backup_prefix.as_str(), flags.backup_retention), ("default", 24));
        assert!(flags.s3_path_style && flags.pb_auto_failover && !flags.insecure && flags.backup_rate == 0);
        assert_eq!(flags.confine, Confine::On);
        assert_eq!(flags.metrics_prefix, nigh_net::metrics::METRICS_PREFIX);
        assert_eq!(refusal(&flags), None);
        assert!(without_effect(&flags).is_empty());
        let count = ServerFlags::command().get_arguments().count();
        assert_eq!(count, 83, "a new flag belongs into offered.rs as well");
    }

    #[test]
    fn flag_then_environment_then_default() {
        let environment = [("SVC_HTTP", ":1"), ("SVC_DATA", "/d"), ("SVC_LOG_LEVEL", "")];
        let flags = resolve(&["-http", ":2"], &environment).unwrap().flags;
        assert_eq!((flags.http.as_str(), flags.data.as_str(), flags.log_level.as_str()), (":2", "/d", ""));
        let flags = resolve(&[], &[("SVC_HTTP", "")]).unwrap().flags;
        assert_eq!(flags.http, "");
    }

    #[test]
    fn a_secret_in_the_environment_wins() {
        let both = resolve(&["-api-key", "flag"], &[("SVC_API_KEY", "variable")]).unwrap();
        assert_eq!(both.flags.api_key, "variable");
        assert_eq!(both.warnings.len(), 1);
        let empty = resolve(&["-api-key", "flag"], &[("SVC_API_KEY", "")]).unwrap();
        assert_eq!(empty.flags.api_key, "flag");
    }

    #[test]
    fn a_bad_variable_is_named_with_value_and_flag() {
        for (name, value, flag) in [
            ("SVC_SHARDS", "many", "-shards"),
            ("SVC_EPOLL", "", "-epoll"),
            ("SVC_BACKUP_INTERVAL", "1d", "-backup-interval"),
        ] {
            let error = resolve(&[], &[(name, value)]).unwrap_err();
            assert!(
                error.contains(name) && error.contains(&format!("{value:?}")) && error.contains(flag),
                "{error}"
            );
        }
    }

    /// Values of the right type that are refused later were refused by flag alone, which nobody may have written.
    #[test]
    fn a_refusal_names_the_variable_that_set_the_flag() {
        let environment =
            [("SVC_SHARDS", "3"), ("SVC_HTTP", "nowhere"), ("SVC_API_KEY", "hidden"), ("SVC_TLS_CERT", "x")];
        let resolved = resolve(&["-http", "127.0.0.1:0"], &environment).unwrap();
        let shards = resolved.explain("-shards 3 is not a power of two".into());
        assert_eq!(
            shards,
            "-shards 3 is not a power of two; environment variable SVC_SHARDS sets -shards to \"3\""
        );
        for (sentence, expected) in [
            ("-http: in use", "-http: in use"),
            ("-tls-cert-more and -tls and x-shards", "-tls-cert-more and -tls and x-shards"),
            (
                "fewer (-shards) need less",
                "fewer (-shards) need less; environment variable SVC_SHARDS sets -shards to \"3\"",
            ),
            ("-api-key is short", "-api-key is short; environment variable SVC_API_KEY sets -api-key"),
        ] {
            assert_eq!(resolved.explain(sentence.into()), expected);
        }
    }

    #[test]
    fn a_variable_that_names_no_flag_is_named() {
        let warning = |names: &[&str]| unknown_variables(names.iter().map(|&name| name.to_owned()));
        let unknown = warning(&["SVC_PORT", "SVC_DATA", "HOME", "SVC_HELP", "SVC_API-KEY"]).unwrap();
        assert!(unknown.contains(": SVC_API-KEY, SVC_HELP, SVC_PORT;"), "{unknown}");
        assert_eq!(warning(&["SVC_DATA", "SVC_WAL_SYNC", "SVCDATA", "svc_data"]), None);
    }

    #[test]
    fn words_after_the_flags_are_named() {
        let warning = |arguments: &[&str]| resolve(arguments, &[]).unwrap().warnings.remove(0);
        assert!(warning(&["-access-log", "true", "-data", "x"]).contains("-access-log=true"));
        assert!(warning(&["word"]).contains("flags end at the first other word"));
    }

    #[test]
    fn usage_keeps_apart_what_works_and_what_is_refused() {
        for text in [usage(false), usage(true)] {
            let (works, rest) = text.split_once("\nACCEPTED WITH A WARNING").unwrap();
            let (idle, refused) = rest.split_once("\nREFUSED AT START").unwrap();
            for (part, flag) in [
                (works, "-http addr"),
                (works, "-version"),
                (works, "-tcp addr"),
                (works, "-sieve-visited-bit"),
                (idle, "-in-place-seqlock-reads"),
                (refused, "-cluster "),
            ] {
                assert!(part.contains(&format!("\n  {flag}")), "{flag}");
                assert_eq!(text.matches(&format!("\n  {flag}")).count(), 1, "{flag}");
            }
        }
    }

    #[test]
    fn help_and_version() {
        assert!(matches!(line(&["-h"]), Ok(Asked::Help)));
        assert!(matches!(line(&["--help", "-nonsense"]), Ok(Asked::Help)));
        assert!(matches!(line(&["-help-all"]), Ok(Asked::HelpAll)));
        assert!(matches!(line(&["-version"]), Ok(Asked::Version)));
        let version = version_line();
        assert!(version.starts_with(&format!("nigh {} (rustc-", env!("CARGO_PKG_VERSION"))), "{version}");
        for text in [usage(false), usage(true)] {
            assert!(text.contains("\nTransports:\n") && text.contains("\nLogging:\n"), "{text}");
            assert!(text.contains("-wal-sync mode"), "{text}");
        }
        assert!(usage(true).contains("[SVC_WAL_SYNC]"));
    }

    #[test]
    fn bad_values_name_the_flag() {
        assert_eq!(
            line(&["-shards", "x"]).unwrap_err(),
            "invalid value for flag -shards: \"x\" is not an integer"
        );
        assert!(line(&["-insecure=maybe"]).unwrap_err().contains("-insecure"));
        let refused = line(&["-confine", "true"]).unwrap_err();
        assert!(refused.contains("-confine") && refused.contains("on, off or required"), "{refused}");
    }

    #[test]
    fn the_last_of_a_repeated_flag_counts() {
        assert_eq!(resolve(&["-shards", "2", "-shards=4"], &[]).unwrap().flags.shards, 4);
    }

    #[test]
    fn features_that_are_not_built_are_refused() {
        for arguments in [&["-cluster"][..], &["-tls-node-cert", "x"], &["-restore"]] {
            let flags = resolve(arguments, &[]).unwrap().flags;
            let refusal = refusal(&flags).unwrap();
            let name = arguments[0].split('=').next().unwrap();
            assert!(refusal.starts_with(name) && refusal.contains("does not offer"), "{refusal}");
        }
        for (arguments, warnings) in [
            (&["-sieve-visited-bit"][..], 1),
            (&["-sieve-visited-bit", "-relocating-eviction"], 0),
            (&["-tcp", ":7000", "-epoll-loops", "4"], 1),
            (&["-tcp-advertise", "db:7000"], 1),
            (&["-tcp-advertise", "db:7000", "-tcp", ":7000"], 0),
            (&["-tenant-isolation", "-internal-token", "x"], 2),
            (&["-tenant-isolation", "-internal-token", "x", "-keys-file", "y"], 0),
            (&["-audit-log", "-jwt-public-key", "x", "-jwt-issuer", "y"], 2),
            (&["-audit-log", "-jwt-public-key", "x", "-jwt-issuer", "y", "-keys-file", "z"], 0),
            (&["-jwt-issuer", "y", "-jwt-audience", "z"], 2),
            (&["-audit-log-file", "x", "-access-log-file", "y", "-log-file", "z"], 2),
            (&["-audit-log-file", "x", "-audit-log"], 2),
            (&["-audit-log-file", "x", "-audit-log", "-keys-file", "y"], 0),
            (&["-access-log-file", "x", "-access-log"], 0),
            (&["-grpc-alias", "acme.v1"], 1),
            (&["-grpc-alias", "acme.v1", "-grpc", ":9090"], 0),
            (&["-backup-dir", "b"], 0),
            (&["-backup-interval", "1h"], 1),
            (
                &[
                    "-backup-dir",
                    "b",
                    "-backup-interval",
                    "1h",
                    "-backup-prefix",
                    "p",
                    "-backup-retention",
                    "3",
                ],
                0,
            ),
            (
                &[
                    "-backup-bucket",
                    "b",
                    "-backup-region",
                    "r",
                    "-backup-tenant",
                    "t",
                    "-backup-rate",
                    "1MiB",
                ],
                0,
            ),
            (&["-backup-region", "r", "-backup-endpoint", "https://h", "-backup-tenant", "t"], 3),
            (
                &[
                    "-backup-prefix",
                    "p",
                    "-backup-retention",
                    "3",
                    "-backup-rate",
                    "1MiB",
                    "-s3-path-style=false",
                ],
                4,
            ),
        ] {
            let flags = resolve(arguments, &[]).unwrap().flags;
            assert_eq!((refusal(&flags), without_effect(&flags).len()), (None, warnings), "{arguments:?}");
        }
    }
}
