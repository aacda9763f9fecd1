//! `nigh export` of keys.
use super::columnar;
use super::header::{Header, Kind};
use super::key_line::Key;
use super::key_remote::{KeyPage, KeyRemote};
use super::options::{ExportOptions, Format, TcpTarget};
use super::outfile::{Output, Wanted};
use super::progress::{Progress, grouped, now_ms};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Exports the keys that `options` select and returns a summary.
///
/// # Errors
/// A sentence.
pub fn run(options: &ExportOptions, target: TcpTarget) -> Result<String, String> {
    if options.format.has_vector_file() {
        return Err(format!(
            "-format {} is for collections; keys are written as jsonl or parquet",
            options.format.name()
        ));
    }
    if options.index.len() > usize::from(u8::MAX) {
        return Err("-index has at most 255 bytes".into());
    }
    let path = options.o.as_deref().unwrap_or_default();
    let mut remote = KeyRemote::new(target, options.server.retries);
    let wanted = Wanted {
        path,
        has_vectors: false,
        convert: (options.format == Format::Parquet).then_some(columnar::convert),
        resume: options.resume,
        overwrite: options.overwrite,
        what: format!(
            "the keys of {} that begin with {:?}, through the index {:?}{}",
            remote.address(),
            options.prefix,
            options.index,
            if options.format == Format::Parquet { ", as parquet" } else { "" }
        ),
    };
    let note = wanted.check()?;
    let no_vectors = || std::io::Error::other("keys have no vectors");
    let is_begun_anew = note.is_none();
    let mut without_indexes = None;
    let mut output = match note {
        None => {
            let mut header = Header::new(Kind::Keys, now_ms());
            header.prefix_base64 = STANDARD.encode(&options.prefix);
            // Listing indexes needs another right than reading keys.
            match remote.indexes() {
                Ok(indexes) => header.indexes = Some(indexes),
                Err(reason) if reason.contains("not registered") => return Err(reason),
                Err(reason) => without_indexes = Some(reason),
            }
            if without_indexes.is_some() {
                header.not_kept.push("indexes of keys".into());
            }
            let line = serde_json::to_vec(&header).map_err(|error| error.to_string())?;
            Output::begin(&wanted, &line, |_| Err(no_vectors()))?
        }
        Some(note) => Output::go_on(&wanted, note, |_, _| Err(no_vectors()))?,
    };
    let mut progress = Progress::begin("nigh export", "keys", output.lines(), None);
    let mut cursor =
        STANDARD.decode(output.cursor()).map_err(|error| format!("the noted cursor: {error}"))?;
    // An export may have been interrupted between its last page and its end.
    let mut is_over = !is_begun_anew && cursor.is_empty() && output.lines() > 0;
    while !is_over {
        let written = remote.page(&options.index, &cursor).and_then(|page| {
            let is_past = write_page(&mut remote, &mut output, &page, options.prefix.as_bytes())?;
            Ok((page.next, is_past))
        });
        match written {
            Ok((next, is_past)) => {
                is_over = is_past || next.is_empty();
                cursor = next;
                output.page_done(&STANDARD.encode(&cursor))?;
                progress.reached(output.lines());
            }
            Err(error) => {
                output.keep()?;
                let hint = if path == "-" { "" } else { "; -resume goes on from there" };
                return Err(format!("{error}: {} keys were written{hint}", grouped(output.lines())));
            }
        }
    }
    let lines = output.lines();
    let bytes = output.finish()?;
    let mut summary =
        format!("exported {} keys: {}, {:.1} MB\n", grouped(lines), progress.end(), bytes as f64 / 1e6);
    if let Some(reason) = without_indexes {
        summary += &format!("not in the file: the indexes of keys ({reason})\n");
    }
    Ok(summary)
}

/// Writes the keys of a page that begin with `prefix`. Returns whether later pages cannot have any.
fn write_page(
    remote: &mut KeyRemote,
    output: &mut Output,
    page: &KeyPage,
    prefix: &[u8],
) -> Result<bool, String> {
    let rows: Vec<_> = page.rows.iter().filter(|row| row.key.starts_with(prefix)).collect();
    let keys: Vec<&[u8]> = rows.iter().map(|row| &row.key[..]).collect();
    let now = now_ms();
    let ttls = if keys.is_empty() { Vec::new() } else { remote.ttls(&keys)? };
    for (row, ttl) in rows.iter().zip(ttls) {
        // A key that was removed after its page was read is left out.
        let Some(ttl) = ttl else { continue };
        let value = match &row.value {
            Some(value) => Some(value.clone()),
            None => remote.value(&row.key)?,
        };
        let Some(value) = value else { continue };
        let expires_at_ms = (ttl > 0).then(|| now.saturating_add(ttl));
        output.line(&Key { key: row.key.clone(), value, expires_at_ms }.line(), None)?;
    }
    // Keys come in ascending order, and those with the prefix stand together.
    Ok(page.rows.last().is_some_and(|row| &row.key[..] > prefix && !row.key.starts_with(prefix)))
}
