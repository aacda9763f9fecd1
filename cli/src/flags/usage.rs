//! Grouped usage of the server.
use super::offered::{Standing, standings};
use super::server::{COMMAND_LINE_ONLY, GROUPS, ServerFlags};
use clap::{Arg, CommandFactory};
use std::fmt::Write;

/// The version line: `nigh <version> (<toolchain> <os>/<arch>)`.
pub fn version_line() -> String {
    format!(
        "nigh {} ({} {}/{})",
        env!("CARGO_PKG_VERSION"),
        env!("NIGH_TOOLCHAIN"),
        std::env::consts::OS,
        std::env::consts::ARCH
    )
}

/// What setting a flag does, and the heading its groups stand under. Working flags come first and have none.
const PARTS: [(Standing, &str); 3] = [
    (Standing::Works, ""),
    (Standing::WithoutEffect, "ACCEPTED WITH A WARNING, WITHOUT EFFECT IN THIS BUILD"),
    (Standing::Refused, "REFUSED AT START WHEN CHANGED FROM THE DEFAULT: THIS BUILD LACKS THE FEATURE"),
];

/// Flags by what this build makes of them and by group, one line each; with `full` every description and environment
/// variable as well.
pub fn usage(full: bool) -> String {
    let mut text = String::from(
        "Usage: nigh [flags]\n       nigh backup run|list|verify NAME|restore NAME [flags]\n       nigh bench vector [flags]\n       nigh bench ingest [flags]\n       nigh bench kv [flags]\n       nigh cli [flags] [command]\n       nigh export [flags]\n       nigh import [flags] FILE\n       nigh keys add|revoke|list [flags]\n\n\
         -x and --x are the same; a value follows as -x=v or -x v, of a boolean only as -x=v.\n\
         An address is host:port, or :port for every interface.\n\
         Each flag is also an environment variable: SVC_, then the name in capitals with _ for -.\n",
    );
    let command = ServerFlags::command();
    let standing = standings();
    for (part, title) in PARTS {
        if !title.is_empty() {
            let _ = writeln!(text, "\n{title}");
        }
        for group in GROUPS {
            let belongs =
                |flag: &&Arg| heading(flag) == group && standing(flag.get_long().unwrap_or_default()) == part;
            let mut flags = command.get_arguments().filter(belongs).peekable();
            if flags.peek().is_none() {
                continue;
            }
            let _ = writeln!(text, "\n{group}:");
            for flag in flags {
                describe(&mut text, flag, full);
            }
        }
    }
    if !full {
        text.push_str("\n-help-all prints every description.\n");
    }
    text
}

fn heading(flag: &Arg) -> &str {
    flag.get_help_heading().unwrap_or("Other")
}

fn describe(text: &mut String, flag: &Arg, full: bool) {
    let name = flag.get_long().unwrap_or_default();
    let value = flag.get_value_names().and_then(|names| names.first()).map(|name| name.as_str());
    // clap gives a flag without a value name its field's name in capitals; those are the booleans here.
    let value = value.filter(|value| value.chars().any(char::is_lowercase)).unwrap_or("");
    let left = format!("-{name} {value}");
    let short = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let default = flag.get_default_values().first().and_then(|value| value.to_str()).unwrap_or("");
    let default = match default {
        "" | "false" | "0" => String::new(),
        _ => format!(" (default {default})"),
    };
    let _ = writeln!(text, "  {left:<36} {short}{default}");
    if !full {
        return;
    }
    let long = flag.get_long_help().map(ToString::to_string).unwrap_or_default();
    for line in long.lines().skip(1).filter(|line| !line.trim().is_empty()) {
        let _ = writeln!(text, "  {:<36} {line}", "");
    }
    if !COMMAND_LINE_ONLY.contains(&name) {
        let _ = writeln!(text, "  {:<36} [{}]", "", super::variable_of(name));
    }
}
