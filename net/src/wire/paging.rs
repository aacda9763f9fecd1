//! Answers in pages.

use crate::limits::PAGE_BYTES;

/// How many points the next page may have, when the last one had `points` and filled `bytes`: pages adapt to payloads, one
/// of which may be 33 MiB.
pub fn next_page(points: usize, max: usize, bytes: usize) -> usize {
    if bytes > PAGE_BYTES { (points / 4).max(1) } else { (points * 2).min(max) }
}
