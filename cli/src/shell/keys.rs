//! Commands that name their keys, and the one that removes all keys.
use super::arguments::{check_key, number, put_block, put_key, ttl_of};
use super::context::{CommandError, Context};
use super::cursor::{done, yes};
use crate::tcp_client::Reply;

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

pub fn get(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let value = match send(context, "get", &words[0], &[], None)? {
        Reply::Result(value) => Some(value.to_vec()),
        Reply::NotFound => None,
    };
    context.value(value.as_deref());
    Ok(())
}

pub fn put(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let ttl_ms = ttl_of(words, 2)?;
    done(send(context, "put", &words[0], &[&words[1]], Some(ttl_ms))?)?;
    context.line("ok");
    Ok(())
}

pub fn del(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    for key in words {
        let was = yes(send(context, "del", key, &[], None)?)?;
        answer_yes(context, was);
    }
    Ok(())
}

pub fn key_only(context: &mut Context<'_>, operation: &str, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let is = yes(send(context, operation, &words[0], &[], None)?)?;
    answer_yes(context, is);
    Ok(())
}

pub fn mget(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
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

pub fn setnx(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let ttl_ms = ttl_of(words, 2)?;
    let was = yes(send(context, "set_nx", &words[0], &[&words[1]], Some(ttl_ms))?)?;
    answer_yes(context, was);
    Ok(())
}

pub fn getset(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let ttl_ms = ttl_of(words, 2)?;
    let before = one_found(send(context, "getset", &words[0], &[&words[1]], Some(ttl_ms))?)?;
    context.value(before.as_deref());
    Ok(())
}

pub fn getdel(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
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

pub fn cas(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
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

pub fn cad(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let was = yes(send(context, "cad", &words[0], &[&words[1]], None)?)?;
    answer_yes(context, was);
    Ok(())
}

pub fn caex(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let ttl_ms = ttl_of(words, 2)?;
    let was = yes(send(context, "caex", &words[0], &[&words[1]], Some(ttl_ms))?)?;
    answer_yes(context, was);
    Ok(())
}

pub fn incr(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let delta: i64 = words.get(1).map_or(Ok(1), |word| number(word, "not a number:"))?;
    let sum = integer(send(context, "incr", &words[0], &[], Some(delta as u64))?)?;
    context.line(sum.to_string());
    Ok(())
}

pub fn increx(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
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

pub fn ttl(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let left = integer(send(context, "ttl", &words[0], &[], None)?)?;
    context.line(left.to_string());
    Ok(())
}

pub fn expire(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let ttl_ms = ttl_of(words, 1)?;
    let there = match send(context, "expire", &words[0], &[], Some(ttl_ms))? {
        Reply::NotFound => false,
        reply => done(reply).map(|()| true)?,
    };
    answer_yes(context, there);
    Ok(())
}

pub fn flush(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    // A word more than a slip of the fingers.
    if words[0] != b"all" {
        return Err(CommandError::Usage("`flush all` removes all keys".into()));
    }
    done(context.client.call("flush", |_| {})?)?;
    context.line("ok");
    Ok(())
}
