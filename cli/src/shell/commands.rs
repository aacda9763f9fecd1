//! The commands: a table of names, syntax and what each does.
use super::words::quoted;
use super::{queries, vectors};
use crate::tcp_client::{CallError, Reply, TcpClient};

/// One command.
pub struct Command {
    /// First word of a line.
    pub name: &'static str,
    /// Words after it: capitals are given by the user, brackets may be left out, `...` repeats.
    pub syntax: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Fewest and most words after the name.
    pub words: (usize, usize),
    /// Carries it out and writes what it says, lines with their ends.
    pub run: fn(&mut Context<'_>, &[Vec<u8>]) -> Result<(), CommandError>,
}

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

/// Any number of words.
const MANY: usize = usize::MAX;

/// Every command, keys first.
pub const COMMANDS: &[Command] = &[
    Command { name: "get", syntax: "KEY", help: "the value", words: (1, 1), run: get },
    Command {
        name: "put",
        syntax: "KEY VALUE [TTL_MS]",
        help: "write a value; for ever without a time to live",
        words: (2, 3),
        run: put,
    },
    Command {
        name: "del",
        syntax: "KEY...",
        help: "remove keys; says of each whether it was there",
        words: (1, MANY),
        run: del,
    },
    Command {
        name: "exists",
        syntax: "KEY",
        help: "whether a key is there",
        words: (1, 1),
        run: |c, w| key_only(c, "exists", w),
    },
    Command { name: "mget", syntax: "KEY...", help: "several values", words: (1, 65_535), run: mget },
    Command {
        name: "setnx",
        syntax: "KEY VALUE [TTL_MS]",
        help: "write a value if there is none",
        words: (2, 3),
        run: setnx,
    },
    Command {
        name: "getset",
        syntax: "KEY VALUE [TTL_MS]",
        help: "write a value; the one before",
        words: (2, 3),
        run: getset,
    },
    Command { name: "getdel", syntax: "KEY", help: "remove a key; its value", words: (1, 1), run: getdel },
    Command {
        name: "cas",
        syntax: "KEY EXPECTED VALUE [TTL_MS]",
        help: "write a value if the present one is EXPECTED",
        words: (3, 4),
        run: cas,
    },
    Command {
        name: "cad",
        syntax: "KEY EXPECTED",
        help: "remove a key if its value is EXPECTED",
        words: (2, 2),
        run: cad,
    },
    Command {
        name: "caex",
        syntax: "KEY EXPECTED TTL_MS",
        help: "set a time to live if the value is EXPECTED",
        words: (3, 3),
        run: caex,
    },
    Command {
        name: "incr",
        syntax: "KEY [DELTA]",
        help: "add to a number of eight bytes, absent = 0; it then lives for ever",
        words: (1, 2),
        run: incr,
    },
    Command {
        name: "increx",
        syntax: "KEY DELTA TTL_MS",
        help: "likewise; TTL_MS counts when the key is made, else the deadline stays",
        words: (3, 3),
        run: increx,
    },
    Command {
        name: "ttl",
        syntax: "KEY",
        help: "milliseconds left; -1 for ever, -2 absent",
        words: (1, 1),
        run: ttl,
    },
    Command {
        name: "expire",
        syntax: "KEY TTL_MS",
        help: "set the time to live; 0 = for ever",
        words: (2, 2),
        run: expire,
    },
    Command {
        name: "persist",
        syntax: "KEY",
        help: "take the time to live away",
        words: (1, 1),
        run: |c, w| key_only(c, "persist", w),
    },
    Command {
        name: "keys",
        syntax: "INDEX|* [COUNT] [FIELD=VALUE]...",
        help: "keys in order, of an index or all, 100 unless COUNT; conditions = != < <= > >=",
        words: (1, MANY),
        run: queries::keys,
    },
    Command {
        name: "indexes",
        syntax: "",
        help: "indexes of keys: name, path, prefix",
        words: (0, 0),
        run: queries::indexes,
    },
    Command {
        name: "index",
        syntax: "INDEX PATH [PREFIX]",
        help: "index the keys with a prefix by a field of their records",
        words: (2, 3),
        run: queries::define,
    },
    Command { name: "unindex", syntax: "INDEX", help: "drop an index", words: (1, 1), run: queries::drop },
    Command {
        name: "flush",
        syntax: "all",
        help: "remove ALL keys; collections stay",
        words: (1, 1),
        run: flush,
    },
    Command {
        name: "collections",
        syntax: "",
        help: "names of collections",
        words: (0, 0),
        run: vectors::collections,
    },
    Command {
        name: "create",
        syntax: "NAME DIM [cosine|l2|dot]",
        help: "make a collection",
        words: (2, 3),
        run: vectors::create,
    },
    Command {
        name: "drop",
        syntax: "NAME",
        help: "remove a collection",
        words: (1, 1),
        run: vectors::drop_collection,
    },
    Command {
        name: "info",
        syntax: "NAME",
        help: "the configuration of a collection",
        words: (1, 1),
        run: vectors::info,
    },
    Command {
        name: "upsert",
        syntax: "NAME ID V,V,... [JSON]",
        help: "write a point, with a plain JSON object as payload",
        words: (3, 4),
        run: vectors::upsert,
    },
    Command {
        name: "point",
        syntax: "NAME ID",
        help: "a point: vector, payload, version",
        words: (2, 2),
        run: vectors::point,
    },
    Command {
        name: "delete",
        syntax: "NAME ID",
        help: "remove a point",
        words: (2, 2),
        run: vectors::delete,
    },
    Command {
        name: "search",
        syntax: "NAME K V,V,...|id:ID",
        help: "the K nearest to a vector, or to that of a point",
        words: (3, 3),
        run: vectors::search,
    },
    Command {
        name: "docs",
        syntax: "NAME K V,V,...|id:ID",
        help: "likewise, with content and payload",
        words: (3, 3),
        run: vectors::docs,
    },
    Command { name: "ping", syntax: "", help: "whether the server answers", words: (0, 0), run: ping },
    Command {
        name: "metrics",
        syntax: "",
        help: "figures of collections",
        words: (0, 0),
        run: |c, _| text(c, "__metrics__"),
    },
    Command {
        name: "kvmetrics",
        syntax: "",
        help: "figures of keys",
        words: (0, 0),
        run: |c, _| text(c, "__kv_metrics__"),
    },
];

/// Carries out the command of `words`, which are not none.
///
/// # Errors
/// Of the words, the server or the connection.
pub fn run(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let Some((name, rest)) = words.split_first() else { return Ok(()) };
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Err(CommandError::Usage(format!("there is no command {name:?}; help lists them")));
    };
    if !(command.words.0..=command.words.1).contains(&rest.len()) {
        return Err(CommandError::Usage(format!("usage: {} {}", command.name, command.syntax)));
    }
    (command.run)(context, rest)
}

/// All commands, a line each.
pub fn help() -> String {
    let line = |command: &Command| {
        format!("  {:<44} {}\n", format!("{} {}", command.name, command.syntax), command.help)
    };
    let commands: String = COMMANDS.iter().map(line).collect();
    format!(
        "{commands}  {:<44} this text\n  {:<44} leave\n\
         Words with spaces stand in quotes; in \"...\" \\n and \\x00 are bytes, in '...' all is as it stands.\n",
        "help", "quit"
    )
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

/// A number in a word.
pub fn number<T: std::str::FromStr>(word: &[u8], what: &str) -> Result<T, CommandError> {
    let parsed = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| CommandError::Usage(format!("{what} is {}", quoted(word))))
}

fn ttl_of(words: &[Vec<u8>], index: usize) -> Result<u64, CommandError> {
    words.get(index).map_or(Ok(0), |word| number(word, "not a time to live in milliseconds:"))
}

fn check_key(key: &[u8]) -> Result<&[u8], CommandError> {
    match key.len() <= usize::from(u16::MAX) {
        true => Ok(key),
        false => Err(CommandError::Usage("a key has at most 65,535 bytes".into())),
    }
}

fn put_key(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    out.extend_from_slice(key);
}

/// `s8` bytes, whose length has been checked.
pub fn put_name(out: &mut Vec<u8>, name: &[u8]) {
    out.push(name.len() as u8);
    out.extend_from_slice(name);
}

/// `s32` bytes; a line has no more than that can say.
pub fn put_block(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Sends key, blocks and maybe a time to live, which is the layout of most operations.
fn send<'c>(
    context: &'c mut Context<'_>,
    operation: &str,
    key: &[u8],
    blocks: &[&[u8]],
    ttl_ms: Option<u64>,
) -> Result<Reply<'c>, CommandError> {
    let key = check_key(key)?;
    Ok(context.client.call(operation, |out| {
        put_key(out, key);
        for block in blocks {
            put_block(out, block);
        }
        if let Some(ttl_ms) = ttl_ms {
            out.extend_from_slice(&ttl_ms.to_be_bytes());
        }
    })?)
}

/// The yes or no of an answer.
pub fn yes(reply: Reply<'_>) -> Result<bool, CommandError> {
    match reply {
        Reply::Result([0]) => Ok(false),
        Reply::Result([1]) => Ok(true),
        _ => Err(CommandError::Answer("not a yes or no")),
    }
}

/// An answer that says only that it was done.
pub fn done(reply: Reply<'_>) -> Result<(), CommandError> {
    match reply {
        Reply::Result([]) => Ok(()),
        _ => Err(CommandError::Answer("more than a confirmation")),
    }
}

fn answer_yes(context: &mut Context<'_>, is: bool) {
    context.line(if is { "yes" } else { "no" });
}

fn integer(reply: Reply<'_>) -> Result<i64, CommandError> {
    match reply {
        Reply::Result(bytes) => match bytes.try_into() {
            Ok(bytes) => Ok(i64::from_be_bytes(bytes)),
            Err(_) => Err(CommandError::Answer("not a number of eight bytes")),
        },
        Reply::NotFound => Err(CommandError::Answer("no number")),
    }
}

/// `u8 found, ?s32 value` at the front of `bytes`, and what follows.
fn found(bytes: &[u8]) -> Result<(Option<&[u8]>, &[u8]), CommandError> {
    match bytes {
        [0, rest @ ..] => Ok((None, rest)),
        [1, a, b, c, d, rest @ ..] => {
            let len = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            let (value, rest) = rest.split_at_checked(len).ok_or(CommandError::Answer("a value is cut"))?;
            Ok((Some(value), rest))
        }
        _ => Err(CommandError::Answer("a value is cut")),
    }
}

fn get(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let value = match send(context, "get", &words[0], &[], None)? {
        Reply::Result(value) => Some(value.to_vec()),
        Reply::NotFound => None,
    };
    context.value(value.as_deref());
    Ok(())
}

fn put(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let ttl_ms = ttl_of(words, 2)?;
    done(send(context, "put", &words[0], &[&words[1]], Some(ttl_ms))?)?;
    context.line("ok");
    Ok(())
}

fn del(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    for key in words {
        let was = yes(send(context, "del", key, &[], None)?)?;
        answer_yes(context, was);
    }
    Ok(())
}

fn key_only(context: &mut Context<'_>, operation: &str, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let is = yes(send(context, operation, &words[0], &[], None)?)?;
    answer_yes(context, is);
    Ok(())
}

fn mget(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    for key in words {
        check_key(key)?;
    }
    let reply = context.client.call("mget", |out| {
        out.extend_from_slice(&(words.len() as u16).to_be_bytes());
        words.iter().for_each(|key| put_key(out, key));
    })?;
    let Reply::Result([_, _, values @ ..]) = reply else {
        return Err(CommandError::Answer("no values"));
    };
    let values = values.to_vec();
    let mut rest = &values[..];
    for _ in words {
        let (value, after) = found(rest)?;
        context.value(value);
        rest = after;
    }
    Ok(())
}

fn setnx(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let ttl_ms = ttl_of(words, 2)?;
    let was = yes(send(context, "set_nx", &words[0], &[&words[1]], Some(ttl_ms))?)?;
    answer_yes(context, was);
    Ok(())
}

fn getset(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let ttl_ms = ttl_of(words, 2)?;
    let before = one_found(send(context, "getset", &words[0], &[&words[1]], Some(ttl_ms))?)?;
    context.value(before.as_deref());
    Ok(())
}

fn getdel(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let before = one_found(send(context, "getdel", &words[0], &[], None)?)?;
    context.value(before.as_deref());
    Ok(())
}

fn one_found(reply: Reply<'_>) -> Result<Option<Vec<u8>>, CommandError> {
    match reply {
        Reply::Result(bytes) => Ok(found(bytes)?.0.map(<[u8]>::to_vec)),
        Reply::NotFound => Ok(None),
    }
}

fn cas(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let (key, ttl_ms) = (check_key(&words[0])?, ttl_of(words, 3)?);
    let reply = context.client.call("cas", |out| {
        put_key(out, key);
        put_block(out, &words[2]);
        out.push(1);
        put_block(out, &words[1]);
        out.extend_from_slice(&ttl_ms.to_be_bytes());
    })?;
    let was = yes(reply)?;
    answer_yes(context, was);
    Ok(())
}

fn cad(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let was = yes(send(context, "cad", &words[0], &[&words[1]], None)?)?;
    answer_yes(context, was);
    Ok(())
}

fn caex(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let ttl_ms = ttl_of(words, 2)?;
    let was = yes(send(context, "caex", &words[0], &[&words[1]], Some(ttl_ms))?)?;
    answer_yes(context, was);
    Ok(())
}

fn incr(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let delta: i64 = words.get(1).map_or(Ok(1), |word| number(word, "not a number:"))?;
    let sum = integer(send(context, "incr", &words[0], &[], Some(delta as u64))?)?;
    context.line(sum.to_string());
    Ok(())
}

fn increx(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let delta: i64 = number(&words[1], "not a number:")?;
    let (key, ttl_ms) = (check_key(&words[0])?, ttl_of(words, 2)?);
    let sum = integer(context.client.call("incr_ex", |out| {
        put_key(out, key);
        out.extend_from_slice(&delta.to_be_bytes());
        out.extend_from_slice(&ttl_ms.to_be_bytes());
    })?)?;
    context.line(sum.to_string());
    Ok(())
}

fn ttl(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let left = integer(send(context, "ttl", &words[0], &[], None)?)?;
    context.line(left.to_string());
    Ok(())
}

fn expire(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let ttl_ms = ttl_of(words, 1)?;
    let there = match send(context, "expire", &words[0], &[], Some(ttl_ms))? {
        Reply::NotFound => false,
        reply => done(reply).map(|()| true)?,
    };
    answer_yes(context, there);
    Ok(())
}

fn flush(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    // A word more than a slip of the fingers.
    if words[0] != b"all" {
        return Err(CommandError::Usage("`flush all` removes all keys".into()));
    }
    done(context.client.call("flush", |_| {})?)?;
    context.line("ok");
    Ok(())
}

fn ping(context: &mut Context<'_>, _: &[Vec<u8>]) -> Result<(), CommandError> {
    done(context.client.call("__ping__", |_| {})?)?;
    context.line("ok");
    Ok(())
}

fn text(context: &mut Context<'_>, operation: &str) -> Result<(), CommandError> {
    if let Reply::Result(text) = context.client.call(operation, |_| {})? {
        context.out.extend_from_slice(text);
    }
    Ok(())
}
