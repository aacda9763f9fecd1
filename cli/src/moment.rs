//! `nigh backup restore -until`: restores an empty data directory to a moment. It neither needs a running server nor serves requests.

use crate::flags::{self, Asked};
use crate::logging::{self, LogOptions};
use crate::{environment, say, serve, settings};
use jiff::Timestamp;
use nigh_engine::filter::unix_ms_of_rfc3339;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

/// Whether an argument is the flag `-until`, with or without a value.
fn is_until(argument: &str) -> bool {
    matches!(argument.split('=').next(), Some("-until" | "--until"))
}

/// Flags that replace the listeners of the server. Nothing listens while a directory is restored. With loopback addresses the other flags of the
/// server are valid here even if it has no authentication, or if some of them need a transport.
const LISTENERS: [&str; 6] = ["-http", "127.0.0.1:0", "-grpc", "127.0.0.1:0", "-tcp", "127.0.0.1:0"];

/// Whether the arguments of `nigh backup` ask for a restore to a moment.
pub fn is_asked_for(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| is_until(argument))
}

/// Runs `nigh backup <arguments>` and returns the exit code. `give_back_memory` is the function that the server calls to return unused memory to the
/// kernel.
pub fn main(arguments: &[String], give_back_memory: fn()) -> i32 {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let (until_ms, mut rest) = match split(arguments, now_ms) {
        Ok(split) => split,
        Err(error) => return say(io::stderr(), &format!("nigh backup restore: {error}\n"), 2),
    };
    // The last of a repeated flag counts.
    rest.extend(LISTENERS.map(str::to_owned));
    let line = match flags::parse(&rest) {
        Ok(Asked::Serve(line)) => line,
        Ok(_) => return say(io::stdout(), &flags::usage(true), 0),
        Err(error) => return say(io::stderr(), &format!("nigh backup restore: {error}\n"), 2),
    };
    let restored = line.resolve(environment).and_then(|resolved| {
        // The log goes to stderr, with the level and the format that the flags of the server say.
        let _logs = LogOptions::of(&resolved.flags).and_then(|options| logging::install(&options))?;
        let settings = settings::check(&resolved.flags)?;
        let restored = serve::restore_until(&settings, until_ms, give_back_memory);
        restored.map(|restored| (settings.data, restored)).map_err(|error| resolved.explain(error))
    });
    match restored {
        Ok((data, restored)) => {
            let data = data.unwrap_or_default();
            let text = format!(
                "{} has what there was at {}: {} collections, {} bytes of images and log, the keys and the aliases.\n",
                data.display(),
                shown(until_ms),
                restored.collections,
                restored.bytes,
            );
            say(io::stdout(), &text, 0)
        }
        Err(error) => say(io::stderr(), &format!("nigh backup restore: {error}\n"), 1),
    }
}

fn shown(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| format!("{unix_ms} ms"), |time| time.to_string())
}

/// Splits the arguments into the moment, in Unix milliseconds, and the flags of the server.
fn split(arguments: &[String], now_ms: u64) -> Result<(u64, Vec<String>), String> {
    let (mut until, mut rest, mut words) = (None, Vec::new(), Vec::new());
    let mut arguments = arguments.iter().peekable();
    while let Some(argument) = arguments.next() {
        if is_until(argument) {
            let value = argument.split_once('=').map(|(_, value)| value.to_owned());
            until = Some(value.or_else(|| arguments.next().cloned()).ok_or("-until needs a time")?);
        } else if rest.is_empty() && !argument.starts_with('-') {
            words.push(argument.clone());
        } else {
            rest.push(argument.clone());
        }
    }
    if words != ["restore"] {
        return Err(format!(
            "-until is for \"nigh backup restore -until TIME\" with the flags of a server and without a name, and the words here are {:?}",
            words.join(" ")
        ));
    }
    let until = until.ok_or("-until needs a time")?;
    let ms = unix_ms_of_rfc3339(&until).and_then(|ms| u64::try_from(ms).ok()).ok_or_else(|| {
        format!("-until {until:?} is no time; it has to look like 2025-01-31T10:00:00.5Z or 2025-01-31T11:00:00+01:00")
    })?;
    if ms > now_ms {
        return Err(format!("-until {until:?} is in the future; choose a moment that has passed"));
    }
    Ok((ms, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_moment_is_found_among_the_flags_of_a_server() {
        let until = 1_738_317_600_500;
        for line in [
            "restore -until 2025-01-31T10:00:00.5Z -data d -backup-dir b",
            "restore --until=2025-01-31T11:00:00.5+01:00 -data d -backup-dir b",
            "-until 2025-01-31T10:00:00.5Z restore -data d -backup-dir b",
        ] {
            assert!(is_asked_for(&words(line)));
            assert_eq!(split(&words(line), until), Ok((until, words("-data d -backup-dir b"))), "{line}");
        }
        assert!(!is_asked_for(&words("restore docs -time 2025-01-31T10:00:00Z")));
        for (line, part) in [
            ("restore -until", "needs a time"),
            ("restore -until yesterday", "\"yesterday\" is no time"),
            ("restore -until 2025-01-31T10:00:01Z", "in the future"),
            ("restore docs -until 2025-01-31T10:00:00Z", "without a name"),
            ("verify -until 2025-01-31T10:00:00Z", "without a name"),
        ] {
            let error = split(&words(line), until).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
