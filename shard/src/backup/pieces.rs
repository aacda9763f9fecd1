//! Cuts files into pieces, which are objects of a store, and reads files from their pieces.

use super::error::BackupError;
use super::names::Names;
use super::snapshot::{Digest, FileSnapshot, Hasher, PIECE_BYTES};
use super::store::{Store, StoreError};
use crate::ctx::Ctx;
use crate::disk::{BLOCK, DiskFile, LocalBoxFuture};
use crate::slice::Slice;
use ahash::HashMap;
use bytes::Bytes;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes that are read with one call of the disk.
const READ_BYTES: usize = 1 << 20;
/// Bytes that are hashed, checked or copied in one go, which takes a tenth of a millisecond.
const STEP_BYTES: usize = 128 << 10;

/// Limits the rate of a transfer in bytes per second.
pub(super) struct Pace {
    bytes_per_second: u64,
    /// The time at which the bytes so far would be transferred at exactly this rate. A pause does not allow a higher rate afterwards.
    due_ns: Cell<u64>,
}

impl Pace {
    /// Begins now. With 0 there is no limit.
    pub fn new(ctx: &Ctx, bytes_per_second: u64) -> Pace {
        Pace { bytes_per_second, due_ns: Cell::new(ctx.env().now_ns()) }
    }

    /// Counts `bytes` more that were transferred, and waits until the rate allows them.
    async fn moved(&self, ctx: &Ctx, bytes: usize) -> Result<(), BackupError> {
        if let Some(takes_ns) =
            (bytes as u64).saturating_mul(1_000_000_000).checked_div(self.bytes_per_second)
        {
            let begun_ns = self.due_ns.get().max(ctx.env().now_ns());
            self.due_ns.set(begun_ns.saturating_add(takes_ns));
        }
        loop {
            if ctx.is_stopping() {
                return Err(BackupError::Stopping);
            }
            let left_ns = self.due_ns.get().saturating_sub(ctx.env().now_ns());
            if self.bytes_per_second == 0 || left_ns == 0 {
                return Ok(());
            }
            // A stop need not wait for a slow rate.
            ctx.env().sleep_us((left_ns / 1000).clamp(1, 50_000)).await;
        }
    }
}

/// The pieces that a store has, with their lengths. Clones share the list, so that cores that send at the same time need it only once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    listed: Arc<HashMap<Digest, u64>>,
    sent: HashMap<Digest, u64>,
}

impl Known {
    /// The length of a piece; `None` if the store does not have it.
    pub fn bytes_of(&self, digest: &Digest) -> Option<u64> {
        self.sent.get(digest).or_else(|| self.listed.get(digest)).copied()
    }
}

/// The pieces of one store of images.
pub(super) struct Pieces<'a> {
    pub ctx: &'a Rc<Ctx>,
    pub store: &'a Rc<dyn Store>,
    pub names: &'a Names,
    pub pace: &'a Pace,
    /// The uid of the store.
    pub uid: u64,
}

impl Pieces<'_> {
    /// Lists the pieces that are stored, with their lengths.
    pub async fn stored(&self) -> Result<Known, BackupError> {
        let prefix = self.names.pieces(self.uid);
        let mut found = HashMap::default();
        let mut after: Option<String> = None;
        loop {
            let page = self.store.list(&prefix, after.as_deref()).await?;
            for object in &page.objects {
                // Objects with other names are ignored.
                if let Some(digest) = object.key.strip_prefix(&prefix).and_then(Digest::parse) {
                    found.insert(digest, object.bytes);
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(Known { listed: Arc::new(found), sent: HashMap::default() });
            }
            if self.ctx.is_stopping() {
                return Err(BackupError::Stopping);
            }
        }
    }

    /// Cuts the first `bytes` bytes of a file into pieces, and stores those that `stored` lacks. `check` sees each part of the file first, and
    /// may refuse it. Returns the pieces, and how many bytes were sent.
    pub async fn send(
        &self,
        name: &str,
        file: &dyn DiskFile,
        bytes: u64,
        stored: &mut Known,
        check: &mut dyn FnMut(&mut [u8]) -> Result<(), BackupError>,
    ) -> Result<(FileSnapshot, u64), BackupError> {
        let mut snapshot = FileSnapshot { name: name.to_owned(), bytes, pieces: Vec::new() };
        let (mut at, mut sent) = (0u64, 0u64);
        let mut slice = Slice::begin(self.ctx.env());
        while at < bytes {
            let len = (bytes - at).min(PIECE_BYTES as u64) as usize;
            let mut piece: Vec<u8> = Vec::with_capacity(len);
            let mut hasher = Hasher::default();
            while piece.len() < len {
                let want = (len - piece.len()).min(READ_BYTES);
                let mut part = file
                    .read_at(at + piece.len() as u64, want)
                    .await
                    .map_err(|error| BackupError::Source(format!("reading {name}: {error}")))?;
                if part.len() < want {
                    return Err(BackupError::Source(format!(
                        "{name} is shorter than the {bytes} bytes that it must have"
                    )));
                }
                for step in part.chunks_mut(STEP_BYTES) {
                    check(step)?;
                    hasher.update(step);
                    piece.extend_from_slice(step);
                    slice.check().await;
                }
            }
            let digest = hasher.finish();
            let there = stored.bytes_of(&digest);
            if there != Some(len as u64) {
                if there.is_some() {
                    // The stored piece has another length, so it is damaged. Storing it again also repairs the snapshots that need it.
                    self.store.delete(&self.names.piece(self.uid, &digest)).await?;
                }
                put(&**self.store, &self.names.piece(self.uid, &digest), piece.into(), true).await?;
                stored.sent.insert(digest, len as u64);
                sent += len as u64;
            }
            snapshot.pieces.push(digest);
            at += len as u64;
            self.pace.moved(self.ctx, len).await?;
        }
        Ok((snapshot, sent))
    }

    /// Reads the pieces of a file, checks their digests, and hands them to `take`.
    pub async fn fetch(&self, file: &FileSnapshot, take: &mut dyn Take) -> Result<(), BackupError> {
        let mut slice = Slice::begin(self.ctx.env());
        for (index, digest) in file.pieces.iter().enumerate() {
            let (key, len) = (self.names.piece(self.uid, digest), file.piece_bytes(index));
            let piece = read_whole(&**self.store, &key, len).await?;
            let mut hasher = Hasher::default();
            for step in piece.chunks(STEP_BYTES) {
                hasher.update(step);
                slice.check().await;
            }
            if piece.len() != len || hasher.finish() != *digest {
                let why = match piece.len() == len {
                    true => "the SHA-256 of its bytes is not the one in its name".to_owned(),
                    false => format!("it has {} bytes, and {len} were stored", piece.len()),
                };
                return Err(StoreError::Damaged { key, why }.into());
            }
            take.take(piece).await?;
            self.pace.moved(self.ctx, len).await?;
        }
        Ok(())
    }
}

/// Takes the pieces of a file, in order.
pub(super) trait Take {
    /// Takes the next piece. All but the last have [`PIECE_BYTES`], a multiple of [`BLOCK`].
    fn take(&mut self, piece: Vec<u8>) -> LocalBoxFuture<'_, Result<(), BackupError>>;
}

const _: () = assert!(PIECE_BYTES.is_multiple_of(BLOCK) && STEP_BYTES.is_multiple_of(BLOCK));

/// Stores an object. With `may_exist`, it is no error if an object with this key exists, because its bytes are the same.
pub(crate) async fn put(
    store: &dyn Store,
    key: &str,
    bytes: Bytes,
    may_exist: bool,
) -> Result<(), StoreError> {
    let mut upload = store.create(key).await?;
    upload.write(bytes).await?;
    match upload.finish().await {
        Err(StoreError::Exists { .. }) if may_exist => Ok(()),
        finished => finished,
    }
}

/// Reads an object of at most `most` bytes. Of a longer object it returns `most` + 1 bytes, so that the caller notices.
pub(crate) async fn read_whole(store: &dyn Store, key: &str, most: usize) -> Result<Vec<u8>, StoreError> {
    let mut whole = Vec::new();
    loop {
        let len = (most + 1 - whole.len()).min(super::store::READ_MAX_BYTES);
        if len == 0 {
            return Ok(whole);
        }
        let part = store.read(key, whole.len() as u64, len).await?;
        if part.is_empty() {
            return Ok(whole);
        }
        whole.extend_from_slice(&part);
        if part.len() < len {
            return Ok(whole);
        }
    }
}
