//! `nigh import` of points: reads lines, checks and sends them over several connections at once, and counts the outcomes.
use super::batch::{Destination, Outcome};
use super::header::{Family, Header, hex};
use super::import_state::StateFile;
use super::line_reader::{Ended, FileLines};
use super::options::{Format, ImportOptions};
use super::point::{Check, NotSent};
use super::progress::now_ms;
use super::refusals::Refusal;
use super::remote::{Remote, Request};
use super::shape::{Shape, creatable, differences};
use super::source::{Collection, config_of};
use super::tally::Tally;
use super::vector_file::VectorReader;
use crate::bench::client::Target;
use serde_json::{Map, Value};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};

/// A batch takes no further line when its lines have this many bytes.
const BATCH_BYTES: usize = 4 << 20;
/// Batches that are read ahead for each connection.
const BATCHES_AHEAD: usize = 2;

/// A line of a batch.
struct Line {
    number: u64,
    text: Vec<u8>,
    vector: Option<Vec<f32>>,
    may_be_written: bool,
}

/// Lines that are sent together.
struct Batch {
    lines: Vec<Line>,
    range: Range<u64>,
}

/// Imports the points of a file. Returns a summary, and whether everything was imported.
///
/// # Errors
/// A sentence, when nothing was imported.
pub fn run(
    options: &ImportOptions,
    file: &str,
    header: &Header,
    mut lines: FileLines,
    target: &Target,
) -> Result<(String, Result<(), String>), String> {
    let name = options.into.as_deref().or(header.collection.as_deref()).ok_or(
        "the file is of another program and names no collection: -into NAME names the one to write to, which has to be there",
    )?;
    let what = format!("{file} into the collection {name:?} of {}", target.url());
    let state_file = StateFile::of(file);
    let state = state_file.begin(options.resume, &what)?;
    let vectors = match &header.vectors {
        None => None,
        Some(beside) => Some(open_vectors(file, &beside.format, beside.dim)?),
    };
    let mut remote = Remote::new(target.clone(), options.server.retries);
    let family = match header.family {
        Some(family) => family,
        None => Collection::find(&mut remote, name)?.family,
    };
    let (collection, was_there) = collection(&mut remote, options, header, family, name)?;
    let shape = collection.shape();
    lines.fit(family, &shape)?;
    let destination = Destination {
        collection: &collection,
        on_conflict: options.on_conflict,
        has_old_points: was_there,
        sparse_spaces: sparse_spaces(&shape),
        has_number_ids: shape.has_string_ids == Some(false),
    };
    let tally = Tally::begin(state_file, state, options.rejects.as_deref(), options.skip, "points")?;
    let connections = options.connections;
    let mut input = Input { lines, vectors, tally, batch: options.batch };
    let (batches_to, batches_from) = sync_channel(connections * BATCHES_AHEAD);
    let queue = Queue { batches: Mutex::new(batches_from), is_stopped: AtomicBool::new(false) };
    let failed = std::thread::scope(|scope| {
        let (outcomes_to, outcomes_from) = channel();
        for _ in 0..connections {
            let mut remote = Remote::new(target.clone(), options.server.retries);
            let (outcomes_to, destination, shape, queue) =
                (outcomes_to.clone(), &destination, &shape, &queue);
            scope.spawn(move || work(&mut remote, destination, shape, queue, &outcomes_to));
        }
        drop(outcomes_to);
        input.send(batches_to, &outcomes_from).err()
    });
    let broken = failed.is_none().then(|| input.broken()).flatten();
    Ok(input.tally.end(&format!("{name:?} ({})", family.name()), failed, broken))
}

/// Where lines come from, and where their outcomes are counted.
struct Input {
    lines: FileLines,
    vectors: Option<VectorReader>,
    tally: Tally,
    batch: usize,
}

impl Input {
    /// Sends all lines to the workers and collects their outcomes.
    fn send(
        &mut self,
        to: SyncSender<Batch>,
        outcomes: &Receiver<(Range<u64>, Outcome)>,
    ) -> Result<(), String> {
        let mut failed = None;
        while !self.tally.is_stopped() {
            // Lines that were read are sent before a failure to read further ones is reported.
            let (batch, failure) = self.next_batch();
            failed = failure;
            if batch.lines.is_empty() {
                break;
            }
            self.tally.sending(&batch.range)?;
            // Workers take batches until this end is dropped, also when the import has stopped.
            if to.send(batch).is_err() || failed.is_some() {
                break;
            }
            while let Ok((range, outcome)) = outcomes.try_recv() {
                self.tally.add(range, outcome)?;
            }
            while self.tally.is_far_ahead() && !self.tally.is_stopped() {
                // A worker has the batch that is missing, and answers after a bounded number of tries.
                let Ok((range, outcome)) = outcomes.recv() else { break };
                self.tally.add(range, outcome)?;
            }
        }
        drop(to);
        for (range, outcome) in outcomes {
            self.tally.add(range, outcome)?;
        }
        failed.map_or(Ok(()), Err)
    }

    /// Reads the lines of the next batch. If reading fails, returns the lines before the failure, and the failure.
    fn next_batch(&mut self) -> (Batch, Option<String>) {
        let first_line = self.tally.first_line();
        let (mut lines, mut bytes) = (Vec::new(), 0);
        let mut failed = None;
        while lines.len() < self.batch && bytes < BATCH_BYTES {
            let mut text = Vec::new();
            match self.next_line(&mut text) {
                Ok(None) => break,
                Ok(Some(_)) if self.lines.number() < first_line => {}
                Ok(Some(vector)) => {
                    let number = self.lines.number();
                    bytes += text.len() + vector.as_ref().map_or(0, |vector| vector.len() * 4);
                    lines.push(Line {
                        number,
                        text,
                        vector,
                        may_be_written: self.tally.may_be_written(number),
                    });
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let start = lines.first().map_or(0, |line| line.number);
        let range = start..start + lines.len() as u64;
        (Batch { lines, range }, failed)
    }

    /// Reads a line and its row; `None` after the last one.
    fn next_line(&mut self, text: &mut Vec<u8>) -> Result<Option<Option<Vec<f32>>>, String> {
        if !self.lines.next(text)? {
            return Ok(None);
        }
        match &mut self.vectors {
            None => Ok(Some(None)),
            Some(vectors) => match vectors.next().map_err(|error| format!("the file of vectors: {error}"))? {
                Some(vector) => Ok(Some(Some(vector))),
                None => Err(format!("the file of vectors has no row for line {}", self.lines.number())),
            },
        }
    }

    /// What is wrong with the file as a whole, after it was read to its end.
    fn broken(&mut self) -> Option<String> {
        let ended = self.lines.ended()?.clone();
        match (ended, &mut self.vectors) {
            (Ended::Broken(reason), _) => Some(reason),
            (Ended::Whole { vectors_crc32c }, Some(vectors)) => match vectors.next() {
                Err(error) => Some(format!("the file of vectors: {error}")),
                Ok(Some(_)) => Some("the file of vectors has more rows than there are lines".into()),
                Ok(None) if vectors_crc32c.as_ref() != Some(&hex(vectors.crc())) => {
                    Some("the file of vectors was changed or damaged: its checksum is not the one in the last line".into())
                }
                Ok(None) => None,
            },
            (Ended::Whole { .. }, None) => None,
        }
    }
}

/// Batches that wait for a worker.
struct Queue {
    batches: Mutex<Receiver<Batch>>,
    /// The import cannot continue, so batches are discarded.
    is_stopped: AtomicBool,
}

/// Checks and sends batches until there are no more.
fn work(
    remote: &mut Remote,
    destination: &Destination<'_>,
    shape: &Shape,
    queue: &Queue,
    to: &Sender<(Range<u64>, Outcome)>,
) {
    loop {
        // A worker holds the lock while it waits for a batch. A worker that panicked cannot leave the receiver in an invalid state.
        let batch = queue.batches.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Batch { lines, range }) = batch else { return };
        if queue.is_stopped.load(Ordering::Relaxed) {
            continue;
        }
        let outcome = import(remote, destination, shape, lines);
        if outcome.fatal.is_some() {
            queue.is_stopped.store(true, Ordering::Relaxed);
        }
        // The other end exists until all workers have ended.
        let _ = to.send((range, outcome));
    }
}

/// Checks and sends these lines, and returns the outcome.
fn import(
    remote: &mut Remote,
    destination: &Destination<'_>,
    shape: &Shape,
    mut lines: Vec<Line>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let check = Check { family: destination.collection.family, shape, now_ms: now_ms() };
    let vectors: Vec<Option<Vec<f32>>> = lines.iter_mut().map(|line| line.vector.take()).collect();
    let mut points = Vec::with_capacity(lines.len());
    for (line, vector) in lines.iter().zip(vectors) {
        let read = match std::str::from_utf8(&line.text) {
            Ok(text) => check.read(line.number, text, vector),
            Err(_) => Err(NotSent::Refused("it is not JSON: it is not UTF-8".into())),
        };
        match read {
            Ok(point) => points.push((point, line.may_be_written)),
            Err(NotSent::Expired) => outcome.expired += 1,
            Err(NotSent::Refused(reason)) => outcome.refusals.push(Refusal {
                line: line.number,
                reason,
                text: String::from_utf8_lossy(&line.text).into_owned(),
            }),
        }
    }
    destination.write(remote, &points, &mut outcome);
    outcome
}

fn sparse_spaces(shape: &Shape) -> Vec<String> {
    let spaces = shape.spaces.iter().flatten();
    spaces.filter(|(_, dim)| dim.is_none()).map(|(space, _)| space.clone()).collect()
}

/// Opens the file of vectors beside the lines: `FILE`, where the lines are in `FILE.jsonl`.
fn open_vectors(file: &str, format: &str, dim: usize) -> Result<VectorReader, String> {
    let path = file.strip_suffix(".jsonl").filter(|path| !path.is_empty()).ok_or_else(|| {
        format!(
            "the vectors of {file} are in a file of their own, whose name is that of the lines without .jsonl"
        )
    })?;
    let format = match format {
        "npy" => Format::Npy,
        "fvecs" => Format::Fvecs,
        other => {
            return Err(format!(
                "the header names a file of vectors of the format {other:?}; this build reads npy and fvecs"
            ));
        }
    };
    VectorReader::open(Path::new(path), format, dim).map_err(|error| format!("{path}: {error}"))
}

/// Looks up the collection to write to, or creates it. Also returns whether it existed before.
fn collection(
    remote: &mut Remote,
    options: &ImportOptions,
    header: &Header,
    family: Family,
    name: &str,
) -> Result<(Collection, bool), String> {
    if let Some(config) = config_of(remote, family, name)? {
        if let Some(wanted) = header.config.as_ref().filter(|_| !options.any_config) {
            let differing = differences(wanted, &config);
            if !differing.is_empty() {
                return Err(format!(
                    "the collection {name:?} is there and has another configuration than the one in the file: {}; \
                     -any-config imports all the same",
                    differing.join(", ")
                ));
            }
        }
        return Ok((Collection::new(family, name, Some(config)), true));
    }
    let wanted = header.config.as_ref().ok_or_else(|| {
        format!("the file has no configuration, so that the collection {name:?} has to be created first")
    })?;
    create(remote, family, name, wanted)?;
    let config = config_of(remote, family, name)?
        .ok_or_else(|| format!("the collection {name:?} was created and is not there"))?;
    // A server of another version may interpret a configuration differently, and the user must know.
    let differing = differences(wanted, &config);
    if !differing.is_empty() {
        eprintln!(
            "nigh import: the collection {name:?} was created, and the server made something else of its configuration than is in the file: {}",
            differing.join(", ")
        );
    }
    Ok((Collection::new(family, name, Some(config)), false))
}

fn create(remote: &mut Remote, family: Family, name: &str, told: &Map<String, Value>) -> Result<(), String> {
    let config = creatable(told);
    let collection = Collection::new(family, name, None);
    let body = match family {
        Family::Dense => serde_json::json!({"name": name, "config": config}),
        _ => Value::Object(config),
    };
    let reply = remote.answer(&Request::post(collection.create_path(), body.to_string().as_bytes()))?;
    match reply.is_success() {
        true => Ok(()),
        false => Err(reply.sentence(&format!("creating the collection {name:?}"))),
    }
}
