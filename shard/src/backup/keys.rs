//! The keys in a backup: images and log records of all cores, which together are the keys of one moment.

use super::collection::{Job, MEMORY_BYTES};
use super::error::BackupError;
use super::names::Names;
use super::pieces::{Known, Pace, Pieces};
use super::snapshot::{FileSnapshot, Snapshot, StoreSnapshot};
use super::store::StoreError;
use crate::account::MemoryUse;
use crate::checkpoint::ImageCheck;
use crate::ctx::Ctx;
use crate::kv::Keys;
use crate::kv::held::HeldFigures;
use crate::kv::manifest::{DIR, Image};
use crate::sealed_json::{self, Layout};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// The name of the text in a snapshot of keys that says what its files are.
pub(super) const FILE: &str = "keys.json";
/// The newest format of that text.
pub(super) const FORMAT: u32 = 1;

/// What a snapshot says of the keys beside its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeysText {
    /// How many shards they were spread over.
    pub shards: usize,
    /// Images in the order in which they are read.
    pub images: Vec<Image>,
    /// The names of the files of tapes, which have the log records since these images were begun.
    pub tapes: Vec<String>,
    /// The moment of the snapshot, Unix milliseconds by the clock of the server.
    pub cut_unix_ms: u64,
    /// How many keys there are, including those that had expired and were not removed yet.
    pub keys: u64,
    /// Bytes that the keys took in memory.
    pub live_bytes: u64,
}

impl KeysText {
    pub(super) fn encode(&self) -> String {
        String::from_utf8_lossy(&sealed_json::encode(FORMAT, self, Layout::Compact)).into_owned()
    }

    /// Reads the text of the snapshot under `key`, and compares it with the files that the snapshot has.
    ///
    /// # Errors
    /// The sentence says what is wrong.
    pub(super) fn decode(text: &str, store: &StoreSnapshot) -> Result<KeysText, String> {
        let decoded: KeysText =
            sealed_json::decode(FORMAT, text.as_bytes(), "the description of a snapshot of keys")
                .map_err(|why| format!("{FILE}: {why}"))?;
        let named: BTreeMap<&str, u64> =
            store.files.iter().map(|file| (file.name.as_str(), file.bytes)).collect();
        let images = decoded.images.iter().map(|image| image.name.as_str());
        let wanted: BTreeSet<&str> = images.chain(decoded.tapes.iter().map(String::as_str)).collect();
        let is_whole = wanted.len() == store.files.len()
            && wanted.iter().all(|name| named.contains_key(name) && name.ends_with(".img"))
            && decoded.images.iter().all(|image| named.get(image.name.as_str()) == Some(&image.bytes));
        let mut shards = decoded.images.iter().flat_map(|image| &image.shards);
        if !is_whole
            || !(1..=1 << 16).contains(&decoded.shards)
            || shards.any(|(shard, _)| *shard >= decoded.shards)
        {
            return Err(format!("{FILE} names other files or shards than the snapshot has"));
        }
        Ok(decoded)
    }
}

/// A file that a core has sent.
#[derive(Debug)]
pub(crate) struct SentImage {
    image: Image,
    is_tape: bool,
    file: FileSnapshot,
}

/// Sends the files that this core holds of its keys to the store, as far as the store lacks their pieces. A file that `earlier`, an earlier
/// snapshot, has as well is not read again if the store still has its pieces: images never change. Afterwards this core holds nothing any more.
/// Returns the files, and how many bytes were sent.
///
/// # Errors
/// The store of backups failed, or an image cannot be read or is damaged.
pub(crate) async fn send_held_keys(
    keys: &Rc<Keys>,
    job: &Job,
    mut stored: Known,
    earlier: Option<Arc<StoreSnapshot>>,
) -> Result<(Vec<SentImage>, u64), BackupError> {
    let (ctx, mut sent, mut sent_bytes): (&Rc<Ctx>, _, _) = (keys.ctx(), Vec::new(), 0);
    // A core without keys holds none of them, but holds that. A snapshot without what a core has would replace its keys by nothing.
    let held = keys.take_held_keys().ok_or_else(not_held)?;
    let _memory = ctx.node().account.hold(MemoryUse::Images, MEMORY_BYTES);
    let (store, names) = (job.target.stores.open(), Names::new(&job.target.prefix));
    let (pace, uid) = (Pace::new(ctx, job.bytes_per_second), keys.image_uid());
    let pieces = Pieces { ctx, store: &store, names: &names, pace: &pace, uid };
    for held in &held.files {
        let (name, bytes) = (&held.image.name, held.image.bytes);
        let earlier = earlier.iter().flat_map(|earlier| &earlier.files).find(|file| {
            let has = |(index, digest)| stored.bytes_of(digest) == Some(file.piece_bytes(index) as u64);
            file.name == *name && file.bytes == bytes && file.pieces.iter().enumerate().all(has)
        });
        let file = match earlier {
            Some(earlier) => earlier.clone(),
            None => {
                // A file that is damaged here must not be taken for a good backup.
                let mut image = ImageCheck::new(Path::new(DIR), name, uid, uid);
                let mut check = |part: &mut [u8]| Ok(image.pass(part)?);
                let (file, bytes) = pieces.send(name, &*held.file, bytes, &mut stored, &mut check).await?;
                image.end()?;
                sent_bytes += bytes;
                file
            }
        };
        sent.push(SentImage { image: held.image.clone(), is_tape: held.is_tape, file });
    }
    Ok((sent, sent_bytes))
}

/// Something else has let go of what a core was to send.
pub(crate) fn not_held() -> BackupError {
    BackupError::Source("the keys of a core are not held any more; make the backup again".to_owned())
}

/// Lists the pieces of files of keys that the store of `job` has, with their lengths.
///
/// # Errors
/// The store of backups failed.
pub(crate) async fn stored_pieces_of_keys(keys: &Rc<Keys>, job: &Job) -> Result<Known, BackupError> {
    let ctx = keys.ctx();
    let (store, names) = (job.target.stores.open(), Names::new(&job.target.prefix));
    let pace = Pace::new(ctx, job.bytes_per_second);
    Pieces { ctx, store: &store, names: &names, pace: &pace, uid: keys.image_uid() }.stored().await
}

/// Makes one snapshot of the files of all cores.
pub(crate) fn snapshot_of_keys(
    keys: &Keys,
    job: &Job,
    sent: Vec<SentImage>,
    figures: HeldFigures,
    cut_unix_ms: u64,
) -> Snapshot {
    let (mut images, mut tapes, mut files) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
    for SentImage { image, is_tape, file } in sent {
        // Names are numbers that grow. One image may have shards of several cores, if it was written by a server with another number of cores.
        let number = u64::from_str_radix(image.name.trim_end_matches(".img"), 16).unwrap_or(u64::MAX);
        files.insert((is_tape, number), file);
        match is_tape {
            true => tapes.push(image.name),
            false => drop(images.insert(number, image)),
        }
    }
    let options = keys.ctx().options();
    let text = KeysText {
        shards: options.keys.shards(options.shards),
        images: images.into_values().collect(),
        tapes,
        cut_unix_ms,
        keys: figures.keys,
        live_bytes: figures.live_bytes,
    };
    let only = StoreSnapshot {
        uid: keys.image_uid(),
        seq: 0,
        texts: vec![(FILE.to_owned(), text.encode())],
        files: files.into_values().collect(),
    };
    let name = super::part::NodePart::Keys.name().to_owned();
    Snapshot { name, taken_unix_ms: job.taken_unix_ms, cut_unix_ms: Some(cut_unix_ms), stores: vec![only] }
}

/// Reads the description of the files in the snapshot of keys under `key`.
///
/// # Errors
/// [`StoreError::Damaged`]: it is a snapshot of something else, or does not fit together.
pub(crate) fn keys_text(key: &str, snapshot: &Snapshot) -> Result<KeysText, StoreError> {
    let damaged = |why: String| StoreError::Damaged { key: key.to_owned(), why };
    let [store] = &snapshot.stores[..] else {
        return Err(damaged("it does not consist of exactly one store of keys".to_owned()));
    };
    let text = store.texts.iter().find(|(file, _)| file == FILE);
    let (_, text) = text
        .filter(|_| snapshot.name == super::part::NodePart::Keys.name())
        .ok_or_else(|| damaged(format!("it is not a snapshot of the keys, or lacks the text {FILE}")))?;
    KeysText::decode(text, store).map_err(damaged)
}
