//! Loading a corpus: JSON batches, binary batches, or staging and one build; and ingest as background noise.
use super::client::{Client, Target, encode, encode_into};
use super::load::in_parallel;
use super::wire::{BINARY, Corpus, JSON, binary_ingest, json_ingest};
use clap::ValueEnum;
use serde::Serialize;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;

/// How points travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ingest {
    /// JSON batches, indexed as they arrive.
    Json,
    /// `RVB1` batches, indexed as they arrive.
    Binary,
    /// `RVB1` staging, then one build.
    Staged,
    /// The collection is there already.
    None,
}

/// What loads while queries are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Background {
    /// Nothing.
    None,
    /// The corpus is upserted over and over at full rate into the searched collection.
    Ingest,
    /// A second collection is staged and built over and over.
    Build,
}

/// How long loading took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Loaded {
    /// Mode.
    pub mode: Ingest,
    /// Points.
    pub points: usize,
    /// Sending and, for batches, indexing.
    pub send_s: f64,
    /// The build, for staged loads.
    pub build_s: f64,
    /// Points per second of both together.
    pub points_per_s: f64,
}

/// Percent-encodes a collection's name for a path.
pub fn path_segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

thread_local! {
    /// Body and request buffers of a connection's thread.
    static BUFFERS: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// Loads `corpus` into an existing empty collection; `progress` gets the points sent so far.
///
/// # Errors
/// The first refused request.
pub fn load(
    target: &Target,
    collection: &str,
    corpus: Corpus<'_>,
    mode: Ingest,
    batch: usize,
    connections: usize,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Loaded, String> {
    let points = corpus.docs.count();
    let sent = AtomicU64::new(0);
    let start = Instant::now();
    in_parallel(target, points.div_ceil(batch), connections, &|client, index| {
        let ids = batch_ids(points, batch, index);
        let count = ids.len();
        send_batch(client, target, collection, corpus, mode, &ids, false)?;
        progress(sent.fetch_add(count as u64, Ordering::Relaxed) as usize + count);
        Ok(())
    })?;
    let send_s = start.elapsed().as_secs_f64();
    let mut build_s = 0.0;
    if mode == Ingest::Staged {
        let start = Instant::now();
        let mut client = Client::connect(target).map_err(|error| format!("connecting: {error}"))?;
        build(&mut client, target, collection)?;
        build_s = start.elapsed().as_secs_f64();
    }
    Ok(Loaded { mode, points, send_s, build_s, points_per_s: points as f64 / (send_s + build_s).max(1e-9) })
}

/// Rows of the `index`th batch of `batch` rows.
fn batch_ids(points: usize, batch: usize, index: usize) -> Vec<usize> {
    (index * batch..((index + 1) * batch).min(points)).collect()
}

/// Sends the points `ids` in one request and checks that all were stored.
///
/// # Errors
/// When the request is refused or the answer counts differently.
pub fn send_batch(
    client: &mut Client,
    target: &Target,
    collection: &str,
    corpus: Corpus<'_>,
    mode: Ingest,
    ids: &[usize],
    upsert: bool,
) -> Result<(), String> {
    BUFFERS.with_borrow_mut(|(body, request)| {
        let (route, media) = match mode {
            Ingest::Json => ("batch", JSON),
            Ingest::Staged => ("bulk", BINARY),
            Ingest::Binary | Ingest::None => ("batch", BINARY),
        };
        let count = ids.len();
        match mode {
            Ingest::Json => json_ingest(body, corpus, ids, upsert),
            _ => binary_ingest(body, corpus, ids, upsert),
        }
        let path = format!("/v1/collections/{}/points/{route}", path_segment(collection));
        encode_into(request, target, "POST", &path, media, body);
        let response = client.send(request).map_err(|error| format!("ingest: {error}"))?;
        let answer: serde_json::Value = serde_json::from_slice(response.success("ingest")?)
            .map_err(|error| format!("ingest: {error}"))?;
        let key = if mode == Ingest::Staged { "staged" } else { "count" };
        match answer[key].as_u64() {
            Some(stored) if stored == count as u64 => Ok(()),
            _ => Err(format!("ingest: {count} points sent, answered {answer}")),
        }
    })
}

fn build(client: &mut Client, target: &Target, collection: &str) -> Result<(), String> {
    let path = format!("/v1/collections/{}/points/bulk/build", path_segment(collection));
    let request = encode(target, "POST", &path, JSON, b"{\"workers\":0}");
    client.send(&request).map_err(|error| format!("build: {error}"))?.success("build")?;
    Ok(())
}

/// Creates a collection from its JSON configuration.
///
/// # Errors
/// When it is refused; of a name that is taken the sentence says what to do about it.
pub fn create(
    client: &mut Client,
    target: &Target,
    name: &str,
    config: &serde_json::Value,
) -> Result<(), String> {
    let body = serde_json::json!({"name": name, "config": config}).to_string();
    let request = encode(target, "POST", "/v1/collections", JSON, body.as_bytes());
    let response = client.send(&request).map_err(|error| format!("create: {error}"))?;
    match (response.status, response.success("create")) {
        (409, Err(refusal)) => Err(format!(
            "{refusal}: --replace drops the collection {name:?} first, --collection chooses another name"
        )),
        (_, created) => created.map(drop),
    }
}

/// Drops a collection; an unknown one is fine.
///
/// # Errors
/// When it is refused.
pub fn drop_collection(client: &mut Client, target: &Target, name: &str) -> Result<(), String> {
    let path = format!("/v1/collections/{}", path_segment(name));
    let request = encode(target, "DELETE", &path, JSON, b"");
    client.send(&request).map_err(|error| format!("drop: {error}"))?.success("drop")?;
    Ok(())
}

/// What background work got done.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BackgroundDone {
    /// Points written or built.
    pub points: u64,
    /// Per second of the measured load.
    pub points_per_s: f64,
}

/// Background work for [`while_loading`].
pub struct BackgroundWork<'a> {
    /// Kind.
    pub kind: Background,
    /// Server.
    pub target: &'a Target,
    /// The searched collection.
    pub collection: &'a str,
    /// Configuration of the second collection of [`Background::Build`].
    pub config: &'a serde_json::Value,
    /// Points.
    pub corpus: Corpus<'a>,
    /// Points per request.
    pub batch: usize,
    /// Connections of [`Background::Ingest`].
    pub connections: usize,
}

/// Runs `measure` while the background work goes on, then stops the work.
///
/// # Errors
/// Of `measure`, else of the background work.
pub fn while_loading<R>(
    work: &BackgroundWork<'_>,
    measure: impl FnOnce() -> Result<R, String>,
) -> Result<(R, Option<BackgroundDone>), String> {
    if work.kind == Background::None {
        return Ok((measure()?, None));
    }
    let stop = AtomicBool::new(false);
    let points = AtomicU64::new(0);
    let (begun, has_begun) = sync_channel(1);
    std::thread::scope(|scope| {
        let (stop, points) = (&stop, &points);
        let worker = scope.spawn(move || match work.kind {
            Background::Build => build_over_and_over(work, stop, points, &begun),
            _ => upsert_over_and_over(work, stop, points, &begun),
        });
        // Until a first batch is stored, or a build is under way; an error is a worker that failed, reported below.
        let _failed = has_begun.recv();
        let before = points.load(Ordering::Relaxed);
        let start = Instant::now();
        let result = measure();
        let elapsed = start.elapsed().as_secs_f64();
        let points = points.load(Ordering::Relaxed) - before;
        stop.store(true, Ordering::Relaxed);
        let background = worker.join().unwrap_or_else(|_| Err("background work panicked".into()));
        let result = result?;
        background?;
        Ok((result, Some(BackgroundDone { points, points_per_s: points as f64 / elapsed })))
    })
}

fn upsert_over_and_over(
    work: &BackgroundWork<'_>,
    stop: &AtomicBool,
    points: &AtomicU64,
    begun: &SyncSender<()>,
) -> Result<(), String> {
    let count = work.corpus.docs.count();
    let batches = count.div_ceil(work.batch).max(1);
    let next = AtomicU64::new(0);
    in_parallel(work.target, work.connections, work.connections, &|client, _| {
        let begun = begun.clone();
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed) as usize % batches;
            let ids = batch_ids(count, work.batch, index);
            let sent = ids.len() as u64;
            send_batch(client, work.target, work.collection, work.corpus, Ingest::Binary, &ids, true)?;
            points.fetch_add(sent, Ordering::Relaxed);
            let _said_before = begun.try_send(());
        }
        Ok(())
    })
}

fn build_over_and_over(
    work: &BackgroundWork<'_>,
    stop: &AtomicBool,
    points: &AtomicU64,
    begun: &SyncSender<()>,
) -> Result<(), String> {
    let name = format!("{}-background", work.collection);
    let count = work.corpus.docs.count();
    let mut client = Client::connect(work.target).map_err(|error| format!("connecting: {error}"))?;
    while !stop.load(Ordering::Relaxed) {
        drop_collection(&mut client, work.target, &name)?;
        create(&mut client, work.target, &name, work.config)?;
        for index in 0..count.div_ceil(work.batch) {
            let ids = batch_ids(count, work.batch, index);
            send_batch(&mut client, work.target, &name, work.corpus, Ingest::Staged, &ids, false)?;
        }
        let _said_before = begun.try_send(());
        build(&mut client, work.target, &name)?;
        points.fetch_add(count as u64, Ordering::Relaxed);
    }
    drop_collection(&mut client, work.target, &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_for_paths() {
        assert_eq!(path_segment("acme/docs v1.0"), "acme%2Fdocs%20v1.0");
        assert_eq!(path_segment("é"), "%C3%A9");
    }
}
