//! Flags to configuration to calls: what the `nigh` binary does.
//!
//! Without a subcommand it is the server; `nigh bench vector`, `ingest` and `kv` are load generators, `nigh cli` is a client, `nigh export` and
//! `nigh import` move data between servers and files, and `nigh keys` changes a file of keys. The HTTP client of the first is what the project's
//! own tests use as well.

#![forbid(unsafe_code)]

mod backup;
mod backup_settings;
mod bench;
mod config_file;
mod confine;
mod credentials;
mod exposure;
mod flags;
mod keys;
mod logging;
mod memory_limit;
mod moment;
mod reload;
mod serve;
mod settings;
mod shell;
mod stores;
mod tcp_client;
mod tls;
mod transfer;

pub use bench::client;
pub use transfer::EXPORT_VERSION;

use logging::LogOptions;

/// Runs the program with `arguments` (its own name left out); the exit code. `give_back_memory` has the allocator of the process return memory
/// that nobody uses to the kernel.
pub fn run(arguments: &[String], give_back_memory: fn()) -> i32 {
    match arguments.split_first() {
        Some((name, rest)) if name == "backup" && moment::is_asked_for(rest) => {
            moment::main(rest, give_back_memory)
        }
        Some((name, rest)) if name == "backup" => backup::main(rest),
        Some((name, rest)) if name == "bench" => bench::main(rest),
        Some((name, rest)) if name == "cli" => shell::main(rest),
        Some((name, rest)) if name == "export" => transfer::export_main(rest),
        Some((name, rest)) if name == "import" => transfer::import_main(rest),
        Some((name, rest)) if name == "keys" => keys::main(rest),
        // The server reads no words, and would start without the flags that follow.
        Some((name, _)) if !name.starts_with('-') => {
            say(std::io::stderr(), &format!("{}\n\n{}", no_subcommand(name), flags::usage(false)), 2)
        }
        _ => server(arguments, give_back_memory),
    }
}

/// The subcommands of this build; without one it is the server.
const SUBCOMMANDS: [&str; 6] = ["backup", "bench", "cli", "export", "import", "keys"];
/// The subcommands of the interface that this build lacks.
const SUBCOMMANDS_NOT_OFFERED: [&str; 3] = ["mcp", "llm-proxy", "rag"];

fn no_subcommand(name: &str) -> String {
    let reason = match SUBCOMMANDS_NOT_OFFERED.contains(&name) {
        true => format!("this build does not offer the subcommand {name:?}"),
        false => format!("unknown subcommand {name:?}"),
    };
    format!(
        "{reason}; it must be one of {}, or none to start the server, whose flags begin with -",
        SUBCOMMANDS.join(", ")
    )
}

/// Runs the server; the exit code.
fn server(arguments: &[String], give_back_memory: fn()) -> i32 {
    let line = match flags::parse(arguments) {
        Ok(flags::Asked::Serve(line)) => line,
        // Where the interface has it; only the full text goes to stdout.
        Ok(flags::Asked::Help) => return say(std::io::stderr(), &flags::usage(false), 0),
        Ok(flags::Asked::HelpAll) => return say(std::io::stdout(), &flags::usage(true), 0),
        Ok(flags::Asked::Version) => return say(std::io::stdout(), &(flags::version_line() + "\n"), 0),
        Err(error) => return say(std::io::stderr(), &format!("{error}\n\n{}", flags::usage(false)), 2),
    };
    let started = line.resolve(environment).and_then(|resolved| {
        // This precedes the logs, whose threads are the first ones: a thread inherits these restrictions from the thread that starts it.
        let given_up = confine::give_up_privileges(resolved.flags.confine);
        let logs = LogOptions::of(&resolved.flags).and_then(|options| logging::install(&options));
        Ok((logs.map_err(|error| resolved.explain(error))?, given_up, resolved))
    });
    let (logs, resolved) = match started {
        Ok((logs, given_up, resolved)) => (logs, Ok((given_up, resolved))),
        Err(error) => match logging::install(&LogOptions::default()) {
            Ok(logs) => (logs, Err(error)),
            Err(_) => return say(std::io::stderr(), &(error + "\n"), 1),
        },
    };
    let ended = resolved.and_then(|(given_up, resolved)| {
        // A name that is not text cannot be a flag's.
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let unknown = flags::unknown_variables(names);
        let idle = flags::without_effect(&resolved.flags);
        for warning in resolved.warnings.iter().chain(&unknown).chain(&idle) {
            tracing::warn!("{warning}");
        }
        let served = confine::settle(resolved.flags.confine, given_up)
            .and_then(|()| settings::check(&resolved.flags))
            .and_then(|settings| serve::run(&settings, &logs, give_back_memory));
        served.map_err(|error| resolved.explain(error))
    });
    match ended {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!("{error}");
            let shown = logs.line_for_stderr(&error).unwrap_or_default();
            say(std::io::stderr(), &shown, 1)
        }
    }
}

/// The value of an environment variable; one that is not UTF-8 is shown with replacement characters, so that it is refused with its
/// name where it matters, and not taken for one that is not set.
fn environment(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Writes `text` and returns `code`. A reader that has gone away (`nigh -h | head`) is no reason to fail.
fn say(mut to: impl std::io::Write, text: &str, code: i32) -> i32 {
    let _reader_gone = to.write_all(text.as_bytes());
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subcommand_that_does_not_exist_is_refused_with_those_that_do() {
        for name in ["mcp", "rag", "serve", "help", ""] {
            let sentence = no_subcommand(name);
            assert!(
                sentence.contains(&format!(
                    "{name:?}; it must be one of backup, bench, cli, export, import, keys"
                )),
                "{sentence}"
            );
            let words = [name.to_owned(), "-data".to_owned(), "/nowhere".to_owned()];
            assert_eq!(run(&words, || {}), 2, "{name}");
        }
        assert!(no_subcommand("rag").contains("does not offer") && no_subcommand("rags").contains("unknown"));
    }
}
