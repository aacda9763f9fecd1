//! `nigh import` of keys: batches over one connection, whose requests are sent together.
use super::batch::{Fatal, Outcome};
use super::header::Header;
use super::import_state::StateFile;
use super::key_line::Key;
use super::key_remote::{KeyRemote, is_passing, put_key};
use super::line_reader::{Ended, FileLines};
use super::options::{ImportOptions, OnConflict, TcpTarget};
use super::point::NotSent;
use super::progress::now_ms;
use super::refusals::Refusal;
use super::tally::Tally;

/// A batch takes no further line when its lines have this many bytes.
const BATCH_BYTES: usize = 4 << 20;

/// A line of a batch.
struct Line {
    number: u64,
    text: Vec<u8>,
    may_be_written: bool,
}

/// Imports the keys of a file. Returns a summary, and whether everything was imported.
///
/// # Errors
/// A sentence, when nothing was imported.
pub fn run(
    options: &ImportOptions,
    file: &str,
    header: &Header,
    mut lines: FileLines,
    target: TcpTarget,
) -> Result<(String, Result<(), String>), String> {
    if options.into.is_some() {
        return Err("-into is for collections, and the file has keys".into());
    }
    let mut remote = KeyRemote::new(target, options.server.retries);
    let what = format!("{file} into the keys of {}", remote.address());
    let state_file = StateFile::of(file);
    let state = state_file.begin(options.resume, &what)?;
    let missing = match (&header.indexes, options.indexes) {
        (Some(indexes), true) if !indexes.is_empty() => {
            let there = remote.indexes().map_err(|error| {
                format!("the file names indexes of keys: {error}; -indexes=false imports the keys alone")
            })?;
            indexes.iter().filter(|index| !there.contains(index)).collect()
        }
        _ => Vec::new(),
    };
    let mut tally = Tally::begin(state_file, state, options.rejects.as_deref(), options.skip, "keys")?;
    let mut failed = import(&mut remote, options, &mut lines, &mut tally).err();
    for index in missing {
        if failed.is_none() && !tally.is_stopped() {
            failed = remote
                .define(index)
                .err()
                .map(|error| format!("the index {:?} is not defined: {error}", index.name));
        }
    }
    let broken = match lines.ended() {
        Some(Ended::Broken(reason)) => Some(reason.clone()),
        _ => None,
    };
    Ok(tally.end(&format!("the keys of {}", remote.address()), failed, broken))
}

fn import(
    remote: &mut KeyRemote,
    options: &ImportOptions,
    lines: &mut FileLines,
    tally: &mut Tally,
) -> Result<(), String> {
    let first_line = tally.first_line();
    let mut failed = None;
    while !tally.is_stopped() && failed.is_none() {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < options.batch && bytes < BATCH_BYTES {
            let mut text = Vec::new();
            match lines.next(&mut text) {
                Ok(false) => break,
                Ok(true) if lines.number() < first_line => {}
                Ok(true) => {
                    let number = lines.number();
                    bytes += text.len();
                    batch.push(Line { number, text, may_be_written: tally.may_be_written(number) });
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let Some(first) = batch.first().map(|line| line.number) else { break };
        let range = first..first + batch.len() as u64;
        tally.sending(&range)?;
        let outcome = write(remote, options.on_conflict, &batch);
        tally.add(range, outcome)?;
    }
    failed.map_or(Ok(()), Err)
}

/// Writes a batch and returns the outcome.
fn write(remote: &mut KeyRemote, on_conflict: OnConflict, batch: &[Line]) -> Outcome {
    let mut outcome = Outcome::default();
    let now = now_ms();
    let mut keys = Vec::with_capacity(batch.len());
    let refusal = |line: &Line, reason: String| Refusal {
        line: line.number,
        reason,
        text: String::from_utf8_lossy(&line.text).into_owned(),
    };
    for line in batch {
        match Key::read(&line.text, now) {
            Ok(key) => keys.push((line, key)),
            Err(NotSent::Expired) => outcome.expired += 1,
            Err(NotSent::Refused(reason)) => outcome.refusals.push(refusal(line, reason)),
        }
    }
    let operation = if on_conflict == OnConflict::Replace { "put" } else { "set_nx" };
    // After a connection has failed, each key that was sent may have been written.
    let mut was_lost = false;
    let mut done = 0;
    while done < keys.len() {
        let left = &keys[done..];
        let mut answered = 0;
        let mut taken = None;
        let mut passing: Option<String> = None;
        let called = remote.pipeline(
            left.len(),
            |client| {
                for (_, key) in left {
                    client.push(operation, |out| {
                        put_key(out, &key.key);
                        out.extend_from_slice(&(key.value.len() as u32).to_be_bytes());
                        out.extend_from_slice(&key.value);
                        out.extend_from_slice(&key.ttl_ms(now).to_be_bytes());
                    });
                }
            },
            |at, reply| {
                let (line, _) = &left[at];
                let may_be_ours = line.may_be_written || was_lost;
                if let Err(reason) = &reply
                    && (passing.is_some() || is_passing(reason))
                {
                    // This key and those after it are sent again. Those that were written already are found then.
                    passing.get_or_insert_with(|| reason.clone());
                    return;
                }
                if passing.is_some() {
                    return;
                }
                answered = at + 1;
                match (reply, on_conflict) {
                    (Ok(Some([0])), OnConflict::Fail) if !may_be_ours => taken = taken.or(Some(at)),
                    (Ok(Some([0])), OnConflict::Fail) => outcome.found += 1,
                    (Ok(Some([0])), _) => outcome.skipped += 1,
                    (Ok(_), _) => outcome.written += 1,
                    (Err(reason), _) => outcome.refusals.push(refusal(line, reason)),
                }
            },
        );
        if let Some(at) = taken {
            let (line, key) = &left[at];
            let key = String::from_utf8_lossy(&key.key);
            let reason = format!("line {}: the key {key:?} is there already", line.number);
            outcome.fatal = Some(Fatal { line: line.number, is_conflict: true, reason });
            return outcome;
        }
        done += answered;
        let sentence = match (called, passing) {
            (Err(error), _) => Some(remote.sentence(&error)),
            (Ok(()), passing) => passing,
        };
        if let Some(sentence) = sentence {
            // Keys that were sent after a refused one may have been written as well.
            was_lost = true;
            if let Err(reason) = remote.wait(&sentence) {
                let line = keys.get(done).map_or(0, |(line, _)| line.number);
                outcome.fatal = Some(Fatal { line, is_conflict: false, reason });
                return outcome;
            }
        }
    }
    outcome
}
