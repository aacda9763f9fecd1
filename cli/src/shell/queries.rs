//! Commands on keys as a whole: queries, and the indexes they use.
use super::arguments::{number, put_block, put_name};
use super::context::{CommandError, Context};
use super::cursor::{done, result};
use super::words::quoted;
use crate::tcp_client::CallError;
use serde_json::{Value, json};

/// Keys shown where no number is given.
const COUNT: usize = 100;
/// Most rows of a page.
const PAGE_ROWS: usize = 1000;
/// Bits of the flags of a query.
const FILTER: u8 = 1;
const CURSOR: u8 = 2;
const SCAN: u8 = 4;
/// A cursor without groups is the end.
const END: &[u8] = &[0, 0, 0];

/// `keys INDEX|* [COUNT] [FIELD=VALUE]...`: follows cursors until there are so many.
pub fn keys(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let index = if words[0] == b"*" { &b""[..] } else { &words[0] };
    check_len(index, "the name of an index")?;
    let is_count = |word: &Vec<u8>| !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    let (wanted, conditions) = match words[1..].split_first() {
        Some((count, rest)) if is_count(count) => (number(count, "not a number of keys:")?, rest),
        _ => (COUNT, &words[1..]),
    };
    let filter = filter_of(conditions)?;
    let mut left = wanted;
    let mut cursor: Option<Vec<u8>> = None;
    while left > 0 {
        let limit = left.min(PAGE_ROWS);
        let reply = context.client.call("kv_query", |out| {
            let given = if filter.is_some() { FILTER } else { 0 } | if cursor.is_some() { CURSOR } else { 0 };
            // Conditions of which the index knows nothing are for whoever asks to wait for.
            out.push(SCAN | given);
            put_name(out, index);
            out.extend_from_slice(&(limit as u16).to_be_bytes());
            // Keys alone, of any consistency.
            out.extend_from_slice(&[0, 0]);
            filter.iter().for_each(|filter| put_block(out, filter));
            cursor.iter().for_each(|cursor| put_block(out, cursor));
        });
        let reply = reply.map_err(explained)?;
        let mut page = result(reply)?;
        let mut found = Vec::new();
        for _ in 0..page.u32()? {
            let len = page.u16()?;
            found.push(page.take(len.into())?.to_vec());
            if page.u8()? != 0 {
                page.block()?;
            }
        }
        let next = page.rest().to_vec();
        left = left.saturating_sub(found.len());
        found.iter().for_each(|key| context.value(Some(key)));
        if next == END {
            return Ok(());
        }
        cursor = Some(next);
    }
    if context.quotes && wanted > 0 {
        context.line(format!("(perhaps more: keys INDEX {} ...)", wanted.saturating_mul(10).max(COUNT)));
    }
    Ok(())
}

/// What a server that was not asked to serve queries makes of them.
fn explained(error: CallError) -> CommandError {
    match error {
        CallError::Refused(text) if text.contains("not registered") => {
            CommandError::Call(CallError::Refused(format!("{text}; the server needs -kv-query")))
        }
        other => other.into(),
    }
}

/// `FIELD` and how it stands to a value, for each word; all must hold. A value in `"` is text, else a number if it can be one.
fn filter_of(words: &[Vec<u8>]) -> Result<Option<Vec<u8>>, CommandError> {
    if words.is_empty() {
        return Ok(None);
    }
    let leaves: Result<Vec<Value>, CommandError> = words.iter().map(|word| leaf_of(word)).collect();
    Ok(Some(json!({"op": "and", "and": leaves?}).to_string().into_bytes()))
}

fn leaf_of(word: &[u8]) -> Result<Value, CommandError> {
    let bad = || {
        let hint = "quote the word for the shell, and a text that begins with a sign in \"";
        CommandError::Usage(format!("not FIELD=VALUE (or != < <= > >=; {hint}): {}", quoted(word)))
    };
    let text = std::str::from_utf8(word).map_err(|_| bad())?;
    let at = text.find(['=', '!', '<', '>']).filter(|at| *at > 0).ok_or_else(bad)?;
    let (field, rest) = text.split_at(at);
    let signs = [("!=", "ne"), ("<=", "lte"), (">=", "gte"), ("=", "eq"), ("<", "lt"), (">", "gt")];
    let (op, value) =
        signs.iter().find_map(|(sign, op)| Some((op, rest.strip_prefix(sign)?))).ok_or_else(bad)?;
    let (field, value) = (field.trim_end(), value.trim_start());
    if value.starts_with(['=', '<', '>', '!']) || field.is_empty() {
        return Err(bad());
    }
    let leaf = |value: Value| json!({"op": op, "field": field, "value": value});
    let text = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    let float = value.parse::<f64>().ok().filter(|float| float.is_finite() && text.is_none());
    let float = float.map(|float| leaf(json!({"kind": "float", "flt": float})));
    let int = value.parse::<i64>().ok().map(|int| leaf(json!({"kind": "int", "int": int})));
    Ok(match (int, float) {
        // An int equals no float, and who types one may mean either.
        (Some(int), Some(float)) if *op == "eq" => json!({"op": "or", "or": [int, float]}),
        (Some(int), Some(float)) if *op == "ne" => json!({"op": "and", "and": [int, float]}),
        (Some(int), _) => int,
        (None, Some(float)) => float,
        (None, None) => leaf(json!({"kind": "string", "str": text.unwrap_or(value)})),
    })
}

/// `indexes`.
pub fn indexes(context: &mut Context<'_>, _: &[Vec<u8>]) -> Result<(), CommandError> {
    let reply = context.client.call("__kv_index_list__", |_| {}).map_err(explained)?;
    let mut list = result(reply)?;
    let mut lines = Vec::new();
    for _ in 0..list.u16()? {
        let parts = [list.short()?, list.short()?, list.short()?].map(<[u8]>::to_vec);
        let [_kind, _enabled, is_ready] = [list.u8()?, list.u8()?, list.u8()?];
        let state = if is_ready == 1 { "ready" } else { "not ready" };
        let [name, prefix, path] = parts;
        let (name, path) = (String::from_utf8_lossy(&name), String::from_utf8_lossy(&path));
        lines.push(format!("{name}\t{path}\t{}\t{state}", quoted(&prefix)));
    }
    lines.iter().for_each(|line| context.line(line));
    Ok(())
}

/// `index INDEX PATH [PREFIX]`.
pub fn define(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    set(context, &words[0], words.get(2).map_or(&b""[..], |prefix| prefix), &words[1], true)
}

/// `unindex INDEX`.
pub fn drop(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    set(context, &words[0], b"", b"", false)
}

fn set(
    context: &mut Context<'_>,
    name: &[u8],
    prefix: &[u8],
    path: &[u8],
    enabled: bool,
) -> Result<(), CommandError> {
    for (part, what) in [(name, "the name of an index"), (prefix, "a prefix"), (path, "a path")] {
        check_len(part, what)?;
    }
    let reply = context.client.call("__kv_index_set__", |out| {
        [name, prefix, path].iter().for_each(|part| put_name(out, part));
        out.push(path.ends_with(b"#count").into());
        out.push(enabled.into());
    });
    done(reply.map_err(explained)?)?;
    context.line("ok");
    Ok(())
}

fn check_len(part: &[u8], what: &str) -> Result<(), CommandError> {
    match part.len() {
        0..=255 => Ok(()),
        _ => Err(CommandError::Usage(format!("{what} has at most 255 bytes"))),
    }
}
