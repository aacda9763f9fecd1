//! The commands: a table of names, syntax and what each does.
use super::context::{CommandError, Context};
use super::cursor::done;
use super::{keys, queries, vectors};
use crate::tcp_client::Reply;

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

/// Any number of words.
const MANY: usize = usize::MAX;

/// Every command, keys first.
pub const COMMANDS: &[Command] = &[
    Command { name: "get", syntax: "KEY", help: "the value", words: (1, 1), run: keys::get },
    Command {
        name: "put",
        syntax: "KEY VALUE [TTL_MS]",
        help: "write a value; for ever without a time to live",
        words: (2, 3),
        run: keys::put,
    },
    Command {
        name: "del",
        syntax: "KEY...",
        help: "remove keys; says of each whether it was there",
        words: (1, MANY),
        run: keys::del,
    },
    Command {
        name: "exists",
        syntax: "KEY",
        help: "whether a key is there",
        words: (1, 1),
        run: |c, w| keys::key_only(c, "exists", w),
    },
    Command { name: "mget", syntax: "KEY...", help: "several values", words: (1, 65_535), run: keys::mget },
    Command {
        name: "setnx",
        syntax: "KEY VALUE [TTL_MS]",
        help: "write a value if there is none",
        words: (2, 3),
        run: keys::setnx,
    },
    Command {
        name: "getset",
        syntax: "KEY VALUE [TTL_MS]",
        help: "write a value; the one before",
        words: (2, 3),
        run: keys::getset,
    },
    Command {
        name: "getdel",
        syntax: "KEY",
        help: "remove a key; its value",
        words: (1, 1),
        run: keys::getdel,
    },
    Command {
        name: "cas",
        syntax: "KEY EXPECTED VALUE [TTL_MS]",
        help: "write a value if the present one is EXPECTED",
        words: (3, 4),
        run: keys::cas,
    },
    Command {
        name: "cad",
        syntax: "KEY EXPECTED",
        help: "remove a key if its value is EXPECTED",
        words: (2, 2),
        run: keys::cad,
    },
    Command {
        name: "caex",
        syntax: "KEY EXPECTED TTL_MS",
        help: "set a time to live if the value is EXPECTED",
        words: (3, 3),
        run: keys::caex,
    },
    Command {
        name: "incr",
        syntax: "KEY [DELTA]",
        help: "add to a number of eight bytes, absent = 0; it then lives for ever",
        words: (1, 2),
        run: keys::incr,
    },
    Command {
        name: "increx",
        syntax: "KEY DELTA TTL_MS",
        help: "likewise; TTL_MS counts when the key is made, else the deadline stays",
        words: (3, 3),
        run: keys::increx,
    },
    Command {
        name: "ttl",
        syntax: "KEY",
        help: "milliseconds left; -1 for ever, -2 absent",
        words: (1, 1),
        run: keys::ttl,
    },
    Command {
        name: "expire",
        syntax: "KEY TTL_MS",
        help: "set the time to live; 0 = for ever",
        words: (2, 2),
        run: keys::expire,
    },
    Command {
        name: "persist",
        syntax: "KEY",
        help: "take the time to live away",
        words: (1, 1),
        run: |c, w| keys::key_only(c, "persist", w),
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
        run: keys::flush,
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
