//! Files that are read once, from front to back: images, at a start.
//!
//! They are read through the page cache, which often has them when a process was killed and starts again, by the blocking threads, which copy
//! while the core uses what came before. Several large reads are under way at any time, so that a device is near its full rate.

use super::super::CoreRuntime;
use crate::disk::{LocalBoxFuture, ReadThrough};
use futures_lite::future::poll_once;
use rustix::fs::{Advice, fadvise};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of one read, and reads under way.
const PIECE_BYTES: u64 = 2 << 20;
const AHEAD: usize = 4;

/// A piece of the file, which has been read or is being read.
enum Piece {
    Read(io::Result<Vec<u8>>),
    Coming(LocalBoxFuture<'static, io::Result<Vec<u8>>>),
}

/// A file that is read once, from front to back, with several reads under way.
pub(super) struct Through {
    runtime: CoreRuntime,
    file: Arc<File>,
    len: u64,
    /// The offset of the first piece that has not been asked for.
    at: u64,
    ahead: VecDeque<Piece>,
}

impl Through {
    /// Opens a file and reads its first piece: many images are no longer.
    pub(super) async fn open(runtime: CoreRuntime, path: PathBuf) -> io::Result<Through> {
        let opened = runtime.blocking(move || {
            let file = File::open(path)?;
            let len = file.metadata()?.len();
            if let Some(rest) = NonZeroU64::new(len.saturating_sub(PIECE_BYTES)) {
                // Hints: a file system that does not know them reads all the same.
                let _unknown = fadvise(&file, PIECE_BYTES, Some(rest), Advice::Sequential);
                let _unknown = fadvise(&file, PIECE_BYTES, Some(rest), Advice::NoReuse);
            }
            let first = read(&file, 0, len.min(PIECE_BYTES))?;
            Ok::<_, io::Error>((file, len, first))
        });
        let (file, len, first) = opened.await?;
        let at = first.len() as u64;
        // A file that has become shorter meanwhile ends there.
        let len = if at < len.min(PIECE_BYTES) { at } else { len };
        let ahead = [Piece::Read(Ok(first))].into();
        let mut through = Through { runtime, file: Arc::new(file), len, at, ahead };
        through.ask().await;
        Ok(through)
    }

    /// Begins as many reads as may be under way.
    async fn ask(&mut self) {
        while self.ahead.len() < AHEAD && self.at < self.len {
            let (runtime, file, from) = (self.runtime.clone(), self.file.clone(), self.at);
            let bytes = PIECE_BYTES.min(self.len - from);
            self.at += bytes;
            let mut coming: LocalBoxFuture<'static, _> =
                Box::pin(async move { runtime.blocking(move || read(&file, from, bytes)).await });
            // A future does nothing until it is polled, so that this begins the read.
            let piece = match poll_once(&mut coming).await {
                Some(read) => Piece::Read(read),
                None => Piece::Coming(coming),
            };
            self.ahead.push_back(piece);
        }
    }
}

impl ReadThrough for Through {
    fn len(&self) -> u64 {
        self.len
    }

    fn next<'a>(&'a mut self) -> LocalBoxFuture<'a, io::Result<Vec<u8>>> {
        Box::pin(async move {
            let next = self.ahead.pop_front();
            self.ask().await;
            match next {
                Some(Piece::Read(read)) => read,
                Some(Piece::Coming(coming)) => coming.await,
                None => Ok(Vec::new()),
            }
        })
    }
}

/// Reads `bytes` from the offset `from` on, or fewer at the end of the file.
fn read(file: &File, from: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; bytes as usize];
    let mut done = 0;
    while done < piece.len() {
        match file.read_at(&mut piece[done..], from + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    piece.truncate(done);
    Ok(piece)
}
