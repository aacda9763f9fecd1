//! Refusals and their order, versions, quotas, visibility of single writes.
use super::bed::{Bed, Rng, small_config};
use crate::collection::{DenseConfig, Parts, Query, SearchError, Write, WriteError, WriteMode::*};
use crate::distance::Metric;
use crate::index::Scratch;

fn bed() -> Bed {
    Bed::new(DenseConfig::new(2, Metric::L2), 64)
}

#[test]
fn refusals_come_in_the_order_of_the_interface() {
    let mut bed = bed();
    bed.config.max_vectors = 1;
    bed.writer = bed.fresh_writer();
    bed.upsert(1, &[0.0, 1.0]);
    let check = |vector: &[f32], expected, rate_ok, mode| {
        bed.writer.check_write(1, Parts::Only(vector), mode, expected, || rate_ok, 0)
    };
    let dimension = WriteError::DimensionMismatch { expected: 2, found: 1 };
    assert_eq!(check(&[f32::NAN], Some(9), false, Insert), Err(dimension));
    let not_finite = WriteError::NotFinite { id: 1, index: 1 };
    assert_eq!(check(&[0.0, f32::INFINITY], Some(9), false, Insert), Err(not_finite));
    assert_eq!(check(&[0.0, 0.0], Some(9), false, Insert), Err(WriteError::RateLimited));
    let conflict = WriteError::VersionConflict { id: 1, expected: 9, found: 1 };
    assert_eq!(check(&[0.0, 0.0], Some(9), true, Insert), Err(conflict));
    assert_eq!(check(&[0.0, 0.0], Some(1), true, Insert), Err(WriteError::Full), "full before duplicate");
    assert_eq!(check(&[0.0, 0.0], Some(1), true, Upsert), Ok(2), "a replacement needs no room");
    bed.config.max_vectors = 0;
    bed.writer = bed.fresh_writer();
    bed.twin.clear();
    bed.given.clear();
    bed.seq = 0;
    bed.upsert(1, &[0.0, 1.0]);
    let duplicate = bed.writer.check_write(1, Parts::Only(&[0.0, 0.0]), Insert, Some(1), || true, 0);
    assert_eq!(duplicate, Err(WriteError::DuplicateId(1)));
    let absent = bed.writer.check_write(2, Parts::Only(&[0.0, 0.0]), Insert, Some(0), || true, 0);
    assert_eq!(absent, Ok(1));
}

#[test]
fn deletes_compare_versions_too() {
    let mut bed = bed();
    bed.upsert(1, &[0.0, 1.0]);
    bed.upsert(1, &[0.0, 2.0]);
    let check = |id, expected| bed.writer.points().check_delete(id, expected, 0);
    assert_eq!(check(1, None), Ok(true));
    assert_eq!(check(1, Some(2)), Ok(true));
    assert_eq!(check(1, Some(1)), Err(WriteError::VersionConflict { id: 1, expected: 1, found: 2 }));
    assert_eq!(check(2, Some(0)), Ok(false));
    assert_eq!(check(2, Some(3)), Err(WriteError::VersionConflict { id: 2, expected: 3, found: 0 }));
}

#[test]
fn versions_count_replacements_and_go_on_after_absence() {
    let mut bed = bed();
    let version =
        |bed: &Bed| bed.writer.check_write(1, Parts::Only(&[0.0, 0.0]), Upsert, None, || true, bed.now_ms);
    assert_eq!(version(&bed), Ok(1));
    bed.upsert(1, &[0.0, 1.0]);
    assert_eq!(version(&bed), Ok(2));
    bed.write(Upsert, 1, &[0.0, 1.0], 0, bed.now_ms + 5);
    assert_eq!(version(&bed), Ok(3));
    bed.now_ms += 5;
    assert_eq!(version(&bed), Ok(3), "what has expired had 2");
    bed.write(Insert, 1, &[0.0, 3.0], 0, 0);
    bed.check(&mut Rng(0));
    bed.delete(1, false);
    assert_eq!(version(&bed), Ok(4));
    // What is absent counts as version 0 all the same, and another id that was never there begins at 1.
    let checked = |id, expected| {
        bed.writer.check_write(id, Parts::Only(&[0.0; 2]), Upsert, Some(expected), || true, bed.now_ms)
    };
    assert_eq!(checked(1, 0), Ok(4));
    assert_eq!(checked(1, 3), Err(WriteError::VersionConflict { id: 1, expected: 3, found: 0 }));
    assert_eq!(checked(2, 0), Ok(1));
}

#[test]
fn quotas_count_what_lives() {
    let mut bed = bed();
    bed.config.max_vectors = 3;
    bed.config.max_bytes = 2 * bed.config.quota_bytes_per_point() + 1;
    bed.writer = bed.fresh_writer();
    let full = |bed: &Bed, id| {
        bed.writer.check_write(id, Parts::Only(&[0.0, 0.0]), Insert, None, || true, bed.now_ms)
            == Err(WriteError::Full)
    };
    bed.upsert(1, &[0.0, 1.0]);
    assert!(!full(&bed, 2));
    bed.write(Upsert, 2, &[0.0, 1.0], 0, bed.now_ms + 10);
    assert!(full(&bed, 3), "bytes for two");
    bed.now_ms += 10;
    assert!(!full(&bed, 3), "the expired point gives its room");
    bed.upsert(3, &[0.0, 1.0]);
    assert!(full(&bed, 4));
    assert!(full(&bed, 2), "it is absent now");
    bed.delete(3, false);
    assert!(!full(&bed, 4), "a deleted point gives its room at once");
}

#[test]
fn slots_are_a_limit_like_a_quota_and_come_back() {
    let mut bed = Bed::new(DenseConfig::new(2, Metric::L2), 4);
    for id in 0..4 {
        bed.upsert(id, &[id as f32, 1.0]);
    }
    let upsert = |bed: &Bed| bed.writer.check_write(1, Parts::Only(&[0.0, 0.0]), Upsert, None, || true, 0);
    assert_eq!(upsert(&bed), Err(WriteError::Full), "a replacement needs a slot for a moment");
    bed.delete(0, false);
    for _ in 0..3 {
        bed.writer.reclaim();
    }
    assert_eq!(upsert(&bed), Ok(2));
    // Replay of what was accepted once has no such limit: it takes dead slots back itself.
    for seq in bed.seq + 1..bed.seq + 40 {
        let vector = [seq as f32, 0.0];
        bed.writer.apply(Write {
            seq,
            id: 1 + seq % 3,
            version: 1,
            parts: Parts::Only(&vector),
            row: &[],
            deadline_ms: 0,
        });
        if seq % 7 == 0 {
            bed.writer.index_all();
        }
    }
    assert_eq!(bed.writer.shared().stats().live, 3);
    assert_eq!(bed.writer.shared().stats().slots, 4);
}

#[test]
fn searches_refuse_what_they_cannot_mean() {
    let mut bed = bed();
    bed.upsert(1, &[0.0, 1.0]);
    let pin = bed.seat.pin();
    let search = |vector: &[f32], k| {
        let mut out = Vec::new();
        let query = Query { vector, k, ef: 0, filter: None, exact: false, now_ms: 0 };
        bed.writer.shared().search(&pin, &query, &mut Scratch::default(), &mut out).map(|()| out.len())
    };
    assert_eq!(search(&[0.0], 1), Err(SearchError::DimensionMismatch { expected: 2, found: 1 }));
    assert_eq!(search(&[0.0, f32::NAN], 1), Err(SearchError::NotFinite(1)));
    assert_eq!(search(&[0.0, 0.0], 0), Ok(0));
    assert_eq!(search(&[0.0, 0.0], 65_536), Ok(1));
}

#[test]
fn a_reader_keeps_the_moment_of_its_search() {
    let mut bed = Bed::new(small_config(2, Metric::L2), 1024);
    bed.upsert(7, &[1.0, 1.0]);
    let shared = bed.writer.shared().clone();
    let seat = bed.domain.participant(1);
    let pin = seat.pin();
    let point = shared.get(&pin, 7, 0).unwrap();
    let replace = |bed: &mut Bed, times| {
        for n in 0..times {
            bed.upsert(7, &[n as f32, 0.0]);
            bed.settle();
        }
    };
    replace(&mut bed, 200);
    assert_eq!((point.version, &point.vector[..]), (1, &[1.0, 1.0][..]), "nothing pinned is reused");
    assert_eq!(shared.stats().slots, 201);
    drop(pin);
    replace(&mut bed, 300);
    assert!(shared.stats().slots <= 205, "without readers slots come back: {:?}", shared.stats());
    assert!(shared.stats().tombstoned <= 65, "{:?}", shared.stats());
}

#[test]
fn zero_vectors_and_ties_are_ordered_by_id() {
    let mut bed = Bed::new(DenseConfig::new(2, Metric::Cosine), 64);
    for id in [5, 3, 9, 1] {
        bed.upsert(id, &[2.0, 0.0]);
    }
    bed.upsert(4, &[0.0, 0.0]);
    let hits = bed.search(&bed.query(&[1.0, 0.0], 10));
    assert_eq!(hits.iter().map(|hit| hit.id).collect::<Vec<_>>(), [1, 3, 5, 9, 4]);
    assert_eq!(hits[4].distance, 1.0);
    let hits = bed.search(&bed.query(&[0.0, 0.0], 3));
    assert_eq!(
        hits.iter().map(|hit| (hit.id, hit.distance)).collect::<Vec<_>>(),
        [(1, 1.0), (3, 1.0), (4, 1.0)]
    );
}
