//! `nigh cli`: a client of the binary protocol for people and for scripts: keys and collections, one command per line.
mod arguments;
mod commands;
mod complete;
mod context;
mod cursor;
mod history;
mod keys;
mod queries;
mod vectors;
mod words;

use crate::flags::{normalise, parse_bool};
use crate::say;
use crate::tcp_client::{CallError, TcpClient};
use crate::tls::connector::Connector;
use crate::tls::explain;
use crate::tls::flags::TlsFlags;
use clap::{ArgAction, CommandFactory, Parser};
use complete::Completion;
use context::{CommandError, Context};
use history::History;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};
use std::cell::RefCell;
use std::io::{self, BufRead, IsTerminal, Write};
use std::rc::Rc;
use std::sync::Arc;

/// Talks to a server over the binary TCP protocol: `nigh cli get greeting` carries out one command, `nigh cli` reads commands
/// from a terminal (with history and completion) or, one per line, from a pipe.
///
/// From a pipe the first command that fails ends it with exit code 1; empty lines and lines that begin with # are passed over. On
/// a terminal values are shown in quotes with escapes, elsewhere as they are; a key that is absent is shown as (none).
#[derive(Clone, Debug, Parser)]
#[command(name = "nigh cli", args_override_self = true)]
struct Options {
    /// Server, host:port.
    #[arg(long, default_value = "127.0.0.1:7000")]
    address: String,
    /// API key, for a server that asks for one; without this flag it is taken from the variable NIGH_API_KEY, which does
    /// not show in the list of processes.
    #[arg(long, value_name = "SECRET")]
    api_key: Option<String>,
    /// Keep the lines typed on a terminal in $XDG_STATE_HOME/nigh/history (~/.local/state/nigh/history); a line that begins
    /// with a space is never kept.
    #[arg(long, value_parser = parse_bool, action = ArgAction::Set, default_value = "true")]
    history: bool,
    /// The flags of TLS.
    #[command(flatten)]
    tls: TlsFlags,
}

/// Runs `nigh cli <arguments>`; the exit code.
pub fn main(arguments: &[String]) -> i32 {
    let mut command = Options::command();
    let line = match normalise(&command, arguments) {
        _ if matches!(arguments.first().map(String::as_str), Some("-h" | "-help" | "--help")) => {
            let text = format!("{}\nCommands:\n{}", command.render_long_help(), commands::help());
            return say(io::stdout(), &text, 0);
        }
        Ok(line) => line,
        Err(error) => return say(io::stderr(), &format!("{error}\n"), 2),
    };
    let options = match Options::try_parse_from(std::iter::once("nigh cli".to_owned()).chain(line.flags)) {
        Ok(options) => options,
        Err(error) => return say(io::stderr(), &error.to_string(), 2),
    };
    let token = options.api_key.clone().or_else(|| std::env::var("NIGH_API_KEY").ok()).unwrap_or_default();
    let failed = |error: &str| say(io::stderr(), &format!("nigh cli: {error}\n"), 1);
    let tls = match options.tls.connector(&[]) {
        Ok(tls) => tls,
        Err(error) => return failed(&error),
    };
    let mut session = Session::new(options.address.clone(), token, tls, io::stdout().is_terminal());
    let ended = match (line.rest.is_empty(), io::stdin().is_terminal()) {
        (false, _) => {
            let words: Vec<Vec<u8>> = line.rest.into_iter().map(String::into_bytes).collect();
            session
                .carry_out(&words)
                .map_err(|error| error.to_string())
                .and_then(|()| session.show(&mut io::stdout()))
        }
        (true, false) => session.script(io::stdin().lock(), &mut io::stdout()),
        (true, true) => session.terminal(options.history),
    };
    match ended {
        Ok(()) => 0,
        Err(error) => failed(&error),
    }
}

/// One server and what is known of it.
struct Session {
    address: String,
    token: String,
    /// What makes connections speak TLS; `None` for plain text.
    tls: Option<Arc<Connector>>,
    client: Option<TcpClient>,
    quotes: bool,
    collections: Rc<RefCell<Vec<String>>>,
    out: Vec<u8>,
}

impl Session {
    fn new(address: String, token: String, tls: Option<Arc<Connector>>, quotes: bool) -> Session {
        Session { address, token, tls, client: None, quotes, collections: Rc::default(), out: Vec::new() }
    }

    /// Carries out one command, on a new connection when there is none; what it says waits to be shown.
    fn carry_out(&mut self, words: &[Vec<u8>]) -> Result<(), CommandError> {
        if words.first().is_some_and(|word| word.as_slice() == b"help") {
            self.out.extend_from_slice(commands::help().as_bytes());
            return Ok(());
        }
        let mut client = match self.client.take() {
            Some(client) => client,
            None => TcpClient::connect(&self.address, &self.token, self.tls.as_ref()).map_err(|error| {
                let text = explain::not_connected(&self.address, &error, "-address");
                CallError::Connection(io::Error::new(error.kind(), text))
            })?,
        };
        let mut context = Context {
            client: &mut client,
            out: &mut self.out,
            quotes: self.quotes,
            collections: &mut self.collections.borrow_mut(),
        };
        let result = commands::run(&mut context, words);
        // A connection that failed is of no more use; the next command opens another.
        if !matches!(result, Err(CommandError::Call(CallError::Connection(_)))) {
            self.client = Some(client);
        }
        result
    }

    /// Writes what waits to be shown.
    fn show(&mut self, to: &mut impl Write) -> Result<(), String> {
        let written = to.write_all(&self.out).and_then(|()| to.flush());
        self.out.clear();
        written.map_err(|error| error.to_string())
    }

    /// Commands from a pipe, one per line, up to the first that fails.
    fn script(&mut self, from: impl BufRead, to: &mut impl Write) -> Result<(), String> {
        for (index, line) in from.lines().enumerate() {
            let failed = |error: &dyn std::fmt::Display| format!("line {}: {error}", index + 1);
            let line = line.map_err(|error| failed(&error))?;
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if matches!(line, "quit" | "exit") {
                break;
            }
            let words = words::split(line).map_err(|error| failed(&error))?;
            let result = self.carry_out(&words).map_err(|error| failed(&error));
            // Also what a command said before it failed.
            self.show(to)?;
            result?;
        }
        Ok(())
    }

    /// Commands from a terminal until its end.
    fn terminal(&mut self, keep: bool) -> Result<(), String> {
        let config = Config::builder().history_ignore_space(true).build();
        let memory = MemHistory::with_config(&config);
        let mut editor: Editor<Completion, MemHistory> =
            Editor::with_history(config, memory).map_err(|error| error.to_string())?;
        editor.set_helper(Some(Completion::new(self.collections.clone())));
        let mut history = if keep { History::open() } else { History::none() };
        for line in history.lines() {
            // Lines of a file that cannot be taken are lines that cannot be called back, and nothing worse.
            let _ = editor.add_history_entry(line);
        }
        let prompt = format!("{}> ", self.address);
        println!("nigh {}; help lists commands", env!("CARGO_PKG_VERSION"));
        loop {
            let line = match editor.readline(&prompt) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            };
            if line.trim().is_empty() {
                continue;
            }
            if editor.add_history_entry(line.as_str()).unwrap_or(false) {
                history.keep(&line);
            }
            if matches!(line.trim(), "quit" | "exit") {
                return Ok(());
            }
            let result =
                words::split(&line).map_err(CommandError::Usage).and_then(|words| self.carry_out(&words));
            self.show(&mut io::stdout())?;
            if let Err(error) = result {
                println!("error: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests;
