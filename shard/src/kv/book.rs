//! What the images of one core's shards come to.

use super::manifest::{Image, Manifest};

/// Images of changes after which everything is written again: opening reads them all.
const DELTAS_MAX: usize = 24;
/// Everything is not written again before the images of changes have so many bytes together: small stores would be written again and again.
const DELTA_BYTES_MIN: u64 = 16 << 20;

/// What the images of one core's shards come to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Book {
    pub base_bytes: u64,
    pub delta_bytes: u64,
    pub deltas: usize,
    /// There is a base.
    pub is_based: bool,
}

impl Book {
    /// Of the images that have shards of `is_own`.
    pub(super) fn of(manifest: &Manifest, is_own: impl Fn(usize) -> bool) -> Book {
        let mut book = Book::default();
        for image in &manifest.images {
            if image.shards.iter().any(|(shard, _)| is_own(*shard)) {
                book.note(image);
            }
        }
        book
    }

    pub(super) fn note(&mut self, image: &Image) {
        if image.is_base {
            *self = Book { base_bytes: image.bytes, is_based: true, ..Book::default() };
        } else {
            self.delta_bytes += image.bytes;
            self.deltas += 1;
        }
    }

    pub(super) fn wants_base(&self) -> bool {
        let outgrown = self.delta_bytes > self.base_bytes.max(DELTA_BYTES_MIN);
        !self.is_based || self.deltas >= DELTAS_MAX || outgrown
    }
}
