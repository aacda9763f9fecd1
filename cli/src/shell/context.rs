//! What a command works with, and why it may fail.
use super::words::quoted;
use crate::tcp_client::{CallError, TcpClient};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The words make no sense; nothing was sent.
    #[error("{0}")]
    Usage(String),
    /// The server refused it, or the connection failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The server's answer cannot be read.
    #[error("an answer that cannot be read: {0}")]
    Answer(&'static str),
}

/// What a command works with.
pub struct Context<'a> {
    /// The connection.
    pub client: &'a mut TcpClient,
    /// What is shown.
    pub out: &'a mut Vec<u8>,
    /// Show values in quotes with escapes, for people; else as they are.
    pub quotes: bool,
    /// Names of collections met so far, for completion.
    pub collections: &'a mut Vec<String>,
}

impl Context<'_> {
    /// Shows one line.
    pub fn line(&mut self, text: impl AsRef<[u8]>) {
        self.out.extend_from_slice(text.as_ref());
        self.out.push(b'\n');
    }

    /// Shows a value, or that there is none.
    pub fn value(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.line("(none)"),
            Some(value) if self.quotes => self.line(quoted(value)),
            Some(value) => self.line(value),
        }
    }
}
