//! Commands on collections and points.
use super::arguments::{number, put_block, put_name};
use super::context::{CommandError, Context};
use super::cursor::{Cursor, done, result, yes};
use super::words::quoted;
use crate::bench::tagged_payload;
use std::fmt::Write;

/// Names that a request can carry: their length is one byte, and tenants take some of it.
const NAME_BYTES_MAX: usize = 247;
/// Components of a vector that are shown; the rest is counted.
const SHOWN_COMPONENTS: usize = 16;

fn check_name(name: &[u8]) -> Result<&[u8], CommandError> {
    match (1..=NAME_BYTES_MAX).contains(&name.len()) {
        true => Ok(name),
        false => Err(CommandError::Usage(format!("a name has 1 to {NAME_BYTES_MAX} bytes"))),
    }
}

fn put_vector(out: &mut Vec<u8>, vector: &[f32]) {
    out.extend_from_slice(&(vector.len() as u32).to_be_bytes());
    out.extend(vector.iter().flat_map(|value| value.to_be_bytes()));
}

/// `1,2.5,-3`, with or without brackets.
fn parse_vector(word: &[u8]) -> Result<Vec<f32>, CommandError> {
    let bad = || CommandError::Usage(format!("not numbers separated by commas: {}", quoted(word)));
    let text = std::str::from_utf8(word).map_err(|_| bad())?.trim();
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    text.split(',').map(|part| part.trim().parse().map_err(|_| bad())).collect()
}

fn shown(vector: &[f32]) -> String {
    let mut text = String::from("[");
    for (index, value) in vector.iter().take(SHOWN_COMPONENTS).enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{}{value}", if index > 0 { "," } else { "" });
    }
    if let Some(more) = vector.len().checked_sub(SHOWN_COMPONENTS).filter(|&more| more > 0) {
        let _ = write!(text, ",... {more} more");
    }
    text + "]"
}

/// `collections`.
pub fn collections(context: &mut Context<'_>, _: &[Vec<u8>]) -> Result<(), CommandError> {
    let mut names = Vec::new();
    let mut cursor = result(context.client.call("__collections__", |_| {})?)?;
    for _ in 0..cursor.u32()? {
        let len = cursor.u16()?;
        names.push(String::from_utf8_lossy(cursor.take(len.into())?).into_owned());
    }
    for name in &names {
        context.line(name);
    }
    *context.collections = names;
    Ok(())
}

/// `create NAME DIM [METRIC]`.
pub fn create(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let (name, dim): (_, u32) = (check_name(&words[0])?, number(&words[1], "not a number of dimensions:")?);
    let metric = match words.get(2).map_or(&b"cosine"[..], Vec::as_slice) {
        b"cosine" => 0,
        b"l2" => 1,
        b"dot" => 2,
        other => {
            let word = quoted(other);
            return Err(CommandError::Usage(format!("{word} is not cosine, l2 or dot")));
        }
    };
    done(context.client.call("vector_create_collection", |out| {
        put_name(out, name);
        out.extend_from_slice(&dim.to_be_bytes());
        out.push(metric);
        // m, efConstruction, efSearch and the seed: 0 is the server's default.
        out.extend_from_slice(&[0; 3 * 4 + 8]);
    })?)?;
    context.collections.push(String::from_utf8_lossy(name).into_owned());
    context.line("ok");
    Ok(())
}

/// `drop NAME`.
pub fn drop_collection(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let name = check_name(&words[0])?;
    done(context.client.call("vector_drop_collection", |out| put_name(out, name))?)?;
    context.collections.retain(|known| known.as_bytes() != name);
    context.line("ok");
    Ok(())
}

/// `info NAME`.
pub fn info(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let name = check_name(&words[0])?;
    let text = result(context.client.call("vector_get_config", |out| put_name(out, name))?)?.rest().to_vec();
    context.line(text);
    Ok(())
}

/// `upsert NAME ID VECTOR [JSON]`.
pub fn upsert(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let (name, id): (_, u64) = (check_name(&words[0])?, number(&words[1], "not an id:")?);
    let vector = parse_vector(&words[2])?;
    let payload = match words.get(3) {
        None => None,
        Some(json) => {
            let json = std::str::from_utf8(json).map_err(|error| CommandError::Usage(error.to_string()))?;
            Some(tagged_payload(json).map_err(|error| CommandError::Usage(format!("payload: {error}")))?)
        }
    };
    done(context.client.call("vector_upsert", |out| {
        out.push(if payload.is_some() { 2 } else { 0 });
        put_name(out, name);
        out.extend_from_slice(&id.to_be_bytes());
        put_vector(out, &vector);
        if let Some(payload) = &payload {
            put_block(out, payload);
        }
    })?)?;
    context.line("ok");
    Ok(())
}

/// What is shown of a point.
struct Point {
    vector: Vec<f32>,
    ttl_ms: u64,
    payload: Option<String>,
    version: Option<u64>,
}

/// A point with what `flags` ask for (1 vector, 2 payload).
fn get_point(
    context: &mut Context<'_>,
    name: &[u8],
    id: u64,
    flags: u8,
) -> Result<Option<Point>, CommandError> {
    let mut cursor = result(context.client.call("vector_get", |out| {
        put_name(out, name);
        out.extend_from_slice(&id.to_be_bytes());
        out.push(flags);
    })?)?;
    if cursor.u8()? == 0 {
        return Ok(None);
    }
    let (vector, ttl_ms) = (cursor.vector()?, cursor.u64()?);
    let payload = match cursor.u8()? {
        0 => None,
        _ => Some(String::from_utf8_lossy(cursor.block()?).into_owned()),
    };
    if cursor.u8()? != 0 {
        let sparse = cursor.u32()? as usize;
        cursor.take(sparse.saturating_mul(8))?;
    }
    let version = if cursor.rest().is_empty() || cursor.u8()? == 0 { None } else { Some(cursor.u64()?) };
    Ok(Some(Point { vector, ttl_ms, payload, version }))
}

/// `point NAME ID`.
pub fn point(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let (name, id): (_, u64) = (check_name(&words[0])?, number(&words[1], "not an id:")?);
    let Some(point) = get_point(context, name, id, 3)? else {
        context.line("(none)");
        return Ok(());
    };
    context.line(format!("vector  {}", shown(&point.vector)));
    if let Some(payload) = point.payload {
        context.line(format!("payload {payload}"));
    }
    if point.ttl_ms > 0 {
        context.line(format!("ttl     {} ms", point.ttl_ms));
    }
    if let Some(version) = point.version {
        context.line(format!("version {version}"));
    }
    Ok(())
}

/// `delete NAME ID`.
pub fn delete(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let (name, id): (_, u64) = (check_name(&words[0])?, number(&words[1], "not an id:")?);
    let was = yes(context.client.call("vector_delete", |out| {
        put_name(out, name);
        out.extend_from_slice(&id.to_be_bytes());
    })?)?;
    context.line(if was { "yes" } else { "no" });
    Ok(())
}

/// `search NAME K WHAT`.
pub fn search(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let mut lines = Vec::new();
    let mut cursor = ask(context, "vector_search", words)?;
    for _ in 0..cursor.u32()? {
        let (id, distance) = (cursor.u64()?, cursor.f32()?);
        lines.push(format!("{id}\t{distance}"));
    }
    lines.iter().for_each(|line| context.line(line));
    Ok(())
}

/// `docs NAME K WHAT`.
pub fn docs(context: &mut Context<'_>, words: &[Vec<u8>]) -> Result<(), CommandError> {
    let mut lines = Vec::new();
    let mut cursor = ask(context, "vector_search_docs", words)?;
    for _ in 0..cursor.u32()? {
        let (id, distance, _score) = (cursor.u64()?, cursor.f32()?, cursor.f32()?);
        let (content, payload) = (cursor.block()?, cursor.block()?);
        let content = if content.is_empty() { String::new() } else { quoted(content) };
        lines.push(format!("{id}\t{distance}\t{content}\t{}", String::from_utf8_lossy(payload)));
    }
    lines.iter().for_each(|line| context.line(line));
    Ok(())
}

/// Sends a search by vector, or by the vector of a point.
fn ask<'c>(
    context: &'c mut Context<'_>,
    operation: &str,
    words: &[Vec<u8>],
) -> Result<Cursor<'c>, CommandError> {
    let (name, k): (_, u32) = (check_name(&words[0])?, number(&words[1], "not a number of results:")?);
    let vector = match words[2].strip_prefix(b"id:") {
        None => parse_vector(&words[2])?,
        Some(id) => {
            let id = number(id, "not an id:")?;
            match get_point(context, name, id, 1)? {
                Some(point) => point.vector,
                None => return Err(CommandError::Usage(format!("there is no point {id}"))),
            }
        }
    };
    result(context.client.call(operation, |out| {
        out.push(0);
        put_name(out, name);
        out.extend_from_slice(&k.to_be_bytes());
        put_vector(out, &vector);
    })?)
}
