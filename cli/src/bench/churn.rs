//! Deleting and inserting again: what a collection keeps of points that are gone.
use super::client::{Client, Target, encode};
use super::ingest::{Ingest, path_segment, send_batch};
use super::load::in_parallel;
use super::server_metrics;
use super::wire::{Corpus, JSON};
use nigh_engine::random::hash;
use serde::Serialize;
use std::time::Instant;

/// One round: half of the corpus deleted and inserted again.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    /// Seconds of the deletes.
    pub delete_s: f64,
    /// Seconds of the inserts.
    pub insert_s: f64,
    /// Recall right after, like the cycle's.
    pub recall: Option<f64>,
    /// The server's resident bytes right after.
    pub resident_bytes: Option<f64>,
}

/// Half of the rows `0..count`, another half in each round, in no order; the same ones in every run.
fn half(count: usize, round: usize) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..count).collect();
    rows.sort_by_cached_key(|&row| hash((round as u64) << 40 ^ row as u64));
    rows.truncate(count / 2);
    rows
}

/// Deletes half of the corpus, point by point, and inserts it again in batches; `recall` is asked at the end.
///
/// # Errors
/// The first refused request.
pub fn round(
    target: &Target,
    collection: &str,
    corpus: Corpus<'_>,
    (number, batch, connections): (usize, usize, usize),
    recall: &dyn Fn() -> Result<Option<f64>, String>,
) -> Result<Round, String> {
    let rows = half(corpus.docs.count(), number);
    let points = format!("/v1/collections/{}/points", path_segment(collection));
    let start = Instant::now();
    in_parallel(target, rows.len(), connections, &|client: &mut Client, index| {
        let request = encode(target, "DELETE", &format!("{points}/{}", rows[index]), JSON, b"");
        client.send(&request).map_err(|error| format!("delete: {error}"))?.success("delete")?;
        Ok(())
    })?;
    let delete_s = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let batches: Vec<&[usize]> = rows.chunks(batch).collect();
    in_parallel(target, batches.len(), connections, &|client, index| {
        send_batch(client, target, collection, corpus, Ingest::Binary, batches[index], false)
    })?;
    let insert_s = start.elapsed().as_secs_f64();
    let recall = recall()?;
    Ok(Round { delete_s, insert_s, recall, resident_bytes: server_metrics::read(target)?.resident_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_takes_another_half() {
        let (first, second) = (half(1000, 1), half(1000, 2));
        assert_eq!((first.len(), &first), (500, &half(1000, 1)));
        let common = first.iter().filter(|row| second.contains(row)).count();
        assert!((150..350).contains(&common), "{common}");
        let mut distinct = first.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 500);
        assert!(half(1, 0).is_empty());
    }
}
