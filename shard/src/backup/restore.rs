//! Fetches the files of a snapshot to the disk, under another uid.

use super::collection::MEMORY_BYTES;
use super::error::BackupError;
use super::names::Names;
use super::options::BackupTarget;
use super::pieces::{Pace, Pieces, Take};
use super::snapshot::{FileSnapshot, StoreSnapshot};
use crate::account::MemoryUse;
use crate::checkpoint::{CheckpointError, ImageCheck, Manifest, rebind_vectors};
use crate::ctx::Ctx;
use crate::disk::{BLOCK, DiskFile, LocalBoxFuture};
use crate::slice::Slice;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Bytes that are checked or written in one go.
const STEP_BYTES: usize = 128 << 10;
/// Bytes that are handed to the disk at once.
const WRITE_BYTES: usize = 1 << 20;

/// Fetches the files of a store of images into `dir`, which exists, as files of the store `uid`. Returns the manifest that names them, without
/// storing it.
///
/// # Errors
/// The store of backups or the disk failed, or what was fetched is damaged. Files that were written stay.
pub(crate) async fn fetch_store(
    ctx: &Rc<Ctx>,
    target: &BackupTarget,
    snapshot: &StoreSnapshot,
    dir: &Path,
    uid: u64,
    bytes_per_second: u64,
) -> Result<Manifest, BackupError> {
    let disk = ctx.env().disk().ok_or_else(|| BackupError::File("there is no data directory".to_owned()))?;
    let _memory = ctx.node().account.hold(MemoryUse::Images, MEMORY_BYTES);
    let (store, names, pace) =
        (target.stores.open(), Names::new(&target.prefix), Pace::new(ctx, bytes_per_second));
    let pieces = Pieces { ctx, store: &store, names: &names, pace: &pace, uid: snapshot.uid };
    let mut manifest = Manifest { seq: snapshot.seq, ..Manifest::default() };
    let mut newest = 0;
    for file in &snapshot.files {
        let path = dir.join(&file.name);
        let failed = |source| CheckpointError::Io { path: path.clone(), source };
        let written = disk.create(&path).await.map_err(failed)?;
        let is_image = file.name.ends_with(".img");
        let mut taken = Taken {
            ctx,
            path: path.clone(),
            snapshot: file,
            file: written.clone(),
            at: 0,
            check: match is_image {
                true => Check::Image(Box::new(ImageCheck::new(dir, &file.name, snapshot.uid, uid))),
                false => Check::Vectors { from: snapshot.uid, to: uid },
            },
        };
        pieces.fetch(file, &mut taken).await?;
        if let Check::Image(image) = &taken.check {
            newest = image.end()?;
        }
        if taken.at != file.bytes {
            written.truncate(file.bytes).await.map_err(failed)?;
        }
        written.sync().await.map_err(failed)?;
        written.close().await.map_err(failed)?;
        match is_image {
            true => manifest.images.push((file.name.clone(), file.bytes)),
            false => manifest.vectors = Some(file.name.clone()),
        }
    }
    check_newest(newest, snapshot.seq)?;
    disk.sync_dir(dir).await.map_err(|source| CheckpointError::Io { path: dir.to_owned(), source })?;
    Ok(manifest)
}

/// Checks that the last image of a store has all changes that the snapshot says it has.
pub(super) fn check_newest(newest: u64, promised: u64) -> Result<(), BackupError> {
    match newest == promised {
        true => Ok(()),
        false => Err(BackupError::File(format!(
            "the newest image of the snapshot has changes up to {newest}, and the snapshot says {promised}"
        ))),
    }
}

enum Check {
    Image(Box<ImageCheck>),
    Vectors { from: u64, to: u64 },
}

/// A file that is being written.
struct Taken<'a> {
    ctx: &'a Rc<Ctx>,
    path: PathBuf,
    snapshot: &'a FileSnapshot,
    file: Rc<dyn DiskFile>,
    at: u64,
    check: Check,
}

impl Take for Taken<'_> {
    fn take(&mut self, mut piece: Vec<u8>) -> LocalBoxFuture<'_, Result<(), BackupError>> {
        Box::pin(async move {
            let mut slice = Slice::begin(self.ctx.env());
            match &mut self.check {
                Check::Image(image) => {
                    for step in piece.chunks_mut(STEP_BYTES) {
                        image.pass(step)?;
                        slice.check().await;
                    }
                }
                Check::Vectors { from, to } if self.at == 0 => {
                    let dir = self.path.parent().unwrap_or(Path::new(""));
                    rebind_vectors(dir, &self.snapshot.name, *from, *to, &mut piece)?;
                }
                Check::Vectors { .. } => {}
            }
            // The disk takes whole blocks; only the last piece of a file may end within one.
            piece.resize(piece.len().next_multiple_of(BLOCK), 0);
            for part in piece.chunks(WRITE_BYTES) {
                let failed = |source| CheckpointError::Io { path: self.path.clone(), source };
                self.file.write_at(self.at, part).await.map_err(failed)?;
                self.at += part.len() as u64;
            }
            Ok(())
        })
    }
}
