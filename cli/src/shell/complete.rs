//! What the tab key offers: commands, and names of collections where a command takes one.
use super::commands::COMMANDS;
use rustyline::Helper;
use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use std::cell::RefCell;
use std::rc::Rc;

/// See the module.
pub struct Completion {
    collections: Rc<RefCell<Vec<String>>>,
}

impl Completion {
    /// Completes with the collections that are in the list then.
    pub fn new(collections: Rc<RefCell<Vec<String>>>) -> Completion {
        Completion { collections }
    }

    /// Where the word at the end of `line` begins, and what it may become.
    pub fn candidates(&self, line: &str) -> (usize, Vec<String>) {
        let start = line.rfind(' ').map_or(0, |space| space + 1);
        let (before, word) = line.split_at(start);
        let mut words = before.split_whitespace();
        let mut offered: Vec<String> = match (words.next(), words.next()) {
            (None, _) => COMMANDS
                .iter()
                .map(|command| command.name)
                .chain(["help", "quit"])
                .map(str::to_owned)
                .collect(),
            (Some(name), None) if COMMANDS.iter().any(|c| c.name == name && c.syntax.starts_with("NAME")) => {
                self.collections.borrow().clone()
            }
            _ => Vec::new(),
        };
        offered.retain(|name| name.starts_with(word));
        offered.sort();
        (start, offered)
    }
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.candidates(&line[..pos]))
    }
}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {}

impl Validator for Completion {}

impl Helper for Completion {}
