//! Flags to configuration to calls: what the `nigh` binary does.
//!
//! Without a subcommand it is the server; `nigh bench vector`, `ingest` and `kv` are load generators, and `nigh cli` is a client. The HTTP client of the first
//! is what the project's own tests use as well.
mod bench;
mod config_file;
mod exposure;
mod flags;
mod logging;
mod memory_limit;
mod serve;
mod settings;
mod shell;
mod tcp_client;

pub use bench::client;

/// Runs the program with `arguments` (its own name left out); the exit code.
pub fn run(arguments: &[String]) -> i32 {
    match arguments.split_first() {
        Some((name, rest)) if name == "bench" => bench::main(rest),
        Some((name, rest)) if name == "cli" => shell::main(rest),
        _ => server(arguments),
    }
}

/// Runs the server; the exit code.
fn server(arguments: &[String]) -> i32 {
    let line = match flags::parse(arguments) {
        Ok(flags::Asked::Serve(line)) => line,
        // Where the interface has it; only the full text goes to stdout.
        Ok(flags::Asked::Help) => return say(std::io::stderr(), &flags::usage(false), 0),
        Ok(flags::Asked::HelpAll) => return say(std::io::stdout(), &flags::usage(true), 0),
        Ok(flags::Asked::Version) => return say(std::io::stdout(), &(flags::version_line() + "\n"), 0),
        Err(error) => return say(std::io::stderr(), &format!("{error}\n\n{}", flags::usage(false)), 2),
    };
    let resolved = line.resolve(|name| std::env::var(name).ok()).and_then(|resolved| {
        let format = logging::parse_format(&resolved.flags.log_format)?;
        Ok((format, logging::parse_level(&resolved.flags.log_level)?, resolved))
    });
    let log = match &resolved {
        Ok((format, level, resolved)) => logging::install(*format, *level, resolved.flags.access_log),
        Err(_) => logging::install(logging::Format::Text, tracing::Level::INFO, false),
    };
    let ended = resolved.and_then(|(_, _, resolved)| {
        // A name that is not text cannot be a flag's.
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let unknown = flags::unknown_variables(names);
        let idle = flags::without_effect(&resolved.flags);
        for warning in resolved.warnings.iter().chain(&unknown).chain(&idle) {
            tracing::warn!("{warning}");
        }
        serve::run(&settings::check(&resolved.flags)?, log.lost_lines())
    });
    match ended {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!("{error}");
            1
        }
    }
}

/// Writes `text` and returns `code`. A reader that has gone away (`nigh -h | head`) is no reason to fail.
fn say(mut to: impl std::io::Write, text: &str, code: i32) -> i32 {
    let _reader_gone = to.write_all(text.as_bytes());
    code
}
