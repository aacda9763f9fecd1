//! Reads a whole snapshot and checks it, without restoring it.

use super::collection::MEMORY_BYTES;
use super::error::BackupError;
use super::names::Names;
use super::options::BackupTarget;
use super::pieces::{Pace, Pieces, Take};
use super::restore::check_newest;
use super::snapshot::Snapshot;
use crate::account::MemoryUse;
use crate::checkpoint::{ImageCheck, rebind_vectors};
use crate::ctx::Ctx;
use crate::disk::LocalBoxFuture;
use crate::slice::Slice;
use std::path::Path;
use std::rc::Rc;

/// Bytes that are checked in one go.
const STEP_BYTES: usize = 128 << 10;

/// Reads every piece of a snapshot and checks that it is whole: the digests of pieces and the checksums of images. Only a restore compares the
/// vectors in files of vectors with their images.
///
/// # Errors
/// The error names the first object that is missing or damaged.
pub(crate) async fn verify(
    ctx: &Rc<Ctx>,
    target: &BackupTarget,
    snapshot: &Snapshot,
    bytes_per_second: u64,
) -> Result<(), BackupError> {
    let _memory = ctx.node().account.hold(MemoryUse::Images, MEMORY_BYTES);
    let (store, names, pace) =
        (target.stores.open(), Names::new(&target.prefix), Pace::new(ctx, bytes_per_second));
    for part in &snapshot.stores {
        let pieces = Pieces { ctx, store: &store, names: &names, pace: &pace, uid: part.uid };
        let mut newest = 0;
        for file in &part.files {
            let mut check = match file.name.ends_with(".img") {
                true => Check::Image(
                    ctx,
                    Box::new(ImageCheck::new(Path::new(""), &file.name, part.uid, part.uid)),
                ),
                false => Check::Vectors { name: &file.name, uid: part.uid, is_first: true },
            };
            pieces.fetch(file, &mut check).await?;
            if let Check::Image(_, image) = check {
                newest = image.end()?;
            }
        }
        check_newest(newest, part.seq)?;
    }
    Ok(())
}

enum Check<'a> {
    Image(&'a Rc<Ctx>, Box<ImageCheck>),
    Vectors { name: &'a str, uid: u64, is_first: bool },
}

impl Take for Check<'_> {
    fn take(&mut self, mut piece: Vec<u8>) -> LocalBoxFuture<'_, Result<(), BackupError>> {
        Box::pin(async move {
            match self {
                Check::Image(ctx, image) => {
                    let mut slice = Slice::begin(ctx.env());
                    for step in piece.chunks_mut(STEP_BYTES) {
                        image.pass(step)?;
                        slice.check().await;
                    }
                }
                Check::Vectors { name, uid, is_first } => {
                    if std::mem::take(is_first) {
                        rebind_vectors(Path::new(""), name, *uid, *uid, &mut piece)?;
                    }
                }
            }
            Ok(())
        })
    }
}
