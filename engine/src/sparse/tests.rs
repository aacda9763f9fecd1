//! The index against a scan, and readers beside a writer.

use super::*;
use crate::postings::test_bed::{Bed, Rng, Stopper, best, plain};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

type Vector = Vec<(u32, f32)>;

#[derive(Clone, Copy, Debug)]
struct Shape {
    ids: u64,
    dimensions: u64,
    components: u64,
    signs: Signs,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Signs {
    Positive,
    Mixed,
    Negative,
}

fn value(rng: &mut Rng, signs: Signs) -> f32 {
    let magnitude = match rng.below(8) {
        // Equal values make ties, zeros touch without scoring, the rest varies in scale.
        0..3 => 1.0,
        3 => 0.0,
        4 => (rng.unit() * 1e-3) as f32,
        5 => (rng.unit() * 50.0) as f32,
        _ => rng.unit() as f32,
    };
    match signs {
        Signs::Positive => magnitude,
        Signs::Negative => -magnitude,
        Signs::Mixed if rng.below(2) == 0 => -magnitude,
        Signs::Mixed => magnitude,
    }
}

fn vector(rng: &mut Rng, shape: Shape, most: u64) -> Vector {
    let mut dimensions: Vec<u32> =
        (0..rng.below(most + 1)).map(|_| rng.skewed(shape.dimensions) as u32 * 7).collect();
    dimensions.sort_unstable();
    dimensions.dedup();
    dimensions.into_iter().map(|dimension| (dimension, value(rng, shape.signs))).collect()
}

fn dot(query: &[(u32, f32)], vector: &[(u32, f32)]) -> Option<f32> {
    let shared: Vec<f64> = query
        .iter()
        .filter_map(|&(dimension, weight)| {
            let at = vector.binary_search_by_key(&dimension, |&(dimension, _)| dimension).ok()?;
            Some(f64::from(weight) * f64::from(vector[at].1))
        })
        .collect();
    (!shared.is_empty()).then(|| shared.iter().fold(0.0, |sum, product| sum + product) as f32)
}

fn twin(
    points: &HashMap<u64, (Slot, Vector)>,
    query: &[(u32, f32)],
    k: usize,
    keep: impl Fn(u64) -> bool,
) -> Vec<(u64, f32)> {
    let hits = points.iter().filter(|(id, _)| keep(**id));
    best(hits.filter_map(|(&id, (_, vector))| Some((id, dot(query, vector)?))).collect(), k)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any history of writes: every search, also one under an old pin, finds what a scan of its snapshot finds, bit for bit.
    #[test]
    fn searches_equal_scans(
        seed: u64,
        ids in 1u64..2500,
        dimensions in 1u64..60,
        components in 1u64..12,
        signs in prop_oneof![Just(Signs::Positive), Just(Signs::Mixed), Just(Signs::Negative)],
        steps in 1usize..5000,
    ) {
        let shape = Shape { ids, dimensions, components, signs };
        let mut rng = Rng(seed);
        let domain = Domain::new(2);
        let (old_seat, seat) = (domain.participant(0), domain.participant(1));
        let mut writer = SparseWriter::new(domain.clone(), seed);
        let index = writer.shared().clone();
        let mut bed: Bed<Vector> = Bed::new(domain.clone(), 20_000);
        let lives = bed.lives.clone();
        let mut scratch = LaneScratch::default();
        let mut out = Vec::new();
        let mut old = None;
        for step in 0..steps {
            let id = rng.below(shape.ids);
            if rng.below(4) == 0 {
                bed.delete(id);
            } else {
                let document = vector(&mut rng, shape, shape.components);
                bed.put(&mut rng, id, document, |slot, vector| writer.insert(slot, vector).unwrap());
            }
            if rng.below(8) == 0 {
                bed.reclaim(|slot, vector| assert_eq!(writer.remove(slot, vector), !vector.is_empty()));
            }
            if rng.below(400) == 0 {
                drop(old.take());
                let pin = old_seat.pin();
                old = Some((pin, lives.snapshot(), bed.points.clone()));
            }
            if step + 1 < steps && rng.below(200) != 0 {
                continue;
            }
            let query = vector(&mut rng, Shape { signs: Signs::Mixed, ..shape }, shape.components);
            let k = [1, 3, 10, 100, 5000][rng.below(5) as usize];
            let modulus = 1 + rng.below(3);
            let pin = seat.pin();
            let now = lives.snapshot();
            let admit = |slot| lives.admits(slot, now) && lives.id(slot).is_multiple_of(modulus);
            let search = LaneSearch { k, admit, id_of: |slot| lives.id(slot), scratch: &mut scratch, out: &mut out };
            index.search(&pin, &query, search).unwrap();
            prop_assert_eq!(plain(&out), twin(&bed.points, &query, k, |id| id.is_multiple_of(modulus)));
            if let Some((pin, then, points)) = &old {
                let admit = |slot| lives.admits(slot, *then);
                let search = LaneSearch { k, admit, id_of: |slot| lives.id(slot), scratch: &mut scratch, out: &mut out };
                index.search(pin, &query, search).unwrap();
                prop_assert_eq!(plain(&out), twin(points, &query, k, |_| true));
            }
        }
        drop(old);
        bed.reclaim(|slot, vector| assert_eq!(writer.remove(slot, vector), !vector.is_empty()));
        let vectors = bed.points.values().filter(|(_, vector)| !vector.is_empty()).count();
        prop_assert_eq!(index.stats().vectors as usize, vectors);
    }
}

/// As learned sparse models have it: a few thousand dimensions of very different frequency, weights that fall off.
fn realistic(rng: &mut Rng, components: u64) -> Vector {
    let mut vector: Vector = (0..components)
        .map(|_| {
            let dimension = (30_000f64.powf(rng.unit()) - 1.0) as u32;
            // Rare dimensions carry more weight.
            let weight = (1.0 + f64::from(dimension)).ln() / 4.0 * (0.2 + rng.unit().powi(3) * 3.0);
            (dimension, weight as f32)
        })
        .collect();
    vector.sort_unstable_by_key(|&(dimension, _)| dimension);
    vector.dedup_by_key(|&mut (dimension, _)| dimension);
    vector
}

#[test]
fn most_postings_are_never_scored() {
    let domain = Domain::new(1);
    let seat = domain.participant(0);
    let mut writer = SparseWriter::new(domain.clone(), 1);
    let mut rng = Rng(11);
    for slot in 0..30_000 {
        writer.insert(slot, &realistic(&mut rng, 60)).unwrap();
    }
    let index = writer.shared();
    let (mut scratch, mut out) = (LaneScratch::default(), Vec::new());
    for _ in 0..50 {
        let query = realistic(&mut rng, 12);
        index
            .search(
                &seat.pin(),
                &query,
                LaneSearch { k: 10, admit: |_| true, id_of: u64::from, scratch: &mut scratch, out: &mut out },
            )
            .unwrap();
        assert_eq!(out.len(), 10);
    }
    let stats = index.stats();
    assert!(stats.scored * 3 < stats.postings, "{stats:?}");
}

#[test]
fn memory_does_not_grow_under_churn() {
    let domain = Domain::new(1);
    let mut writer = SparseWriter::new(domain.clone(), 1);
    let mut bed: Bed<Vector> = Bed::new(domain.clone(), 10_000);
    let mut rng = Rng(3);
    let mut settled = 0;
    for round in 0..40 {
        for _ in 0..4000 {
            let (id, vector) = (rng.below(4000), realistic(&mut rng, 10));
            // Dimensions come and go as well.
            let shifted =
                vector.iter().map(|&(dimension, value)| (dimension + round * 1000, value)).collect();
            bed.put(&mut rng, id, shifted, |slot, vector| writer.insert(slot, vector).unwrap());
            bed.reclaim(|slot, vector| assert!(writer.remove(slot, vector)));
        }
        writer.reclaim();
        if round == 10 {
            settled = writer.shared().bytes();
        }
    }
    let bytes = writer.shared().bytes();
    assert!(bytes < settled * 5 / 4, "{settled} bytes after ten rounds, {bytes} after forty");
    for id in 0..4000 {
        bed.delete(id);
    }
    bed.reclaim(|slot, vector| assert!(writer.remove(slot, vector)));
    assert_eq!(writer.shared().stats().vectors, 0);
}

#[test]
fn what_is_refused() {
    let domain = Domain::new(1);
    let mut writer = SparseWriter::new(domain, 1);
    assert_eq!(writer.insert(0, &[(1, 1.0), (1, 2.0)]), Err(SparseError::Unsorted { index: 1, position: 1 }));
    assert_eq!(writer.insert(0, &[(1, 1.0), (2, f32::NAN)]), Err(SparseError::NotFinite(1)));
    assert_eq!(writer.shared().stats().vectors, 0);
    writer.insert(0, &[]).unwrap();
    assert!(!writer.remove(0, &[]));
    writer.insert(0, &[(0, 1.0), (u32::MAX, f32::MAX)]).unwrap();
    assert!(writer.remove(0, &[(0, 1.0), (u32::MAX, f32::MAX)]));
}

#[test]
#[should_panic(expected = "slot 3 still has a sparse vector")]
fn a_slot_is_emptied_before_it_is_filled_again() {
    let mut writer = SparseWriter::new(Domain::new(1), 1);
    writer.insert(3, &[(1, 1.0)]).unwrap();
    let _ = writer.insert(3, &[(2, 1.0)]);
}

/// Readers on other threads: a point that is always there is found exactly once under its own dimension while it moves
/// from slot to slot, with the score of one of its versions, and nobody else ever is.
#[test]
fn readers_find_each_point_once_while_it_moves() {
    const IDS: u64 = 300;
    let domain = Domain::new(3);
    let mut writer = SparseWriter::new(domain.clone(), 9);
    let mut bed: Bed<Vector> = Bed::new(domain.clone(), 60_000);
    let lives = bed.lives.clone();
    let mut rng = Rng(77);
    // Dimension 0 is everybody's and heavy; each id has one of its own, where its component tells the id.
    let document = |rng: &mut Rng, id: u64| -> Vector {
        let mut vector = vec![(0, 1.0 + rng.below(5) as f32)];
        vector.extend((1..=rng.below(6) as u32).map(|dimension| (dimension, 0.5)));
        vector.push((100 + id as u32, 1000.0 + id as f32));
        vector
    };
    for id in 0..IDS {
        let vector = document(&mut rng, id);
        bed.put(&mut rng, id, vector, |slot, vector| writer.insert(slot, vector).unwrap());
    }
    let index = writer.shared().clone();
    let stop = AtomicBool::new(false);
    let searches = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (seat, index, lives) = (domain.participant(reader), index.clone(), lives.clone());
            let (stop, searches) = (&stop, &searches);
            scope.spawn(move || {
                let mut rng = Rng(1000 + reader as u64);
                let (mut scratch, mut out) = (LaneScratch::default(), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let id = rng.below(IDS);
                    let pin = seat.pin();
                    let now = lives.snapshot();
                    let own = [(100 + id as u32, 1.0)];
                    let admit = |slot| lives.admits(slot, now);
                    index
                        .search(
                            &pin,
                            &own,
                            LaneSearch {
                                k: 5,
                                admit,
                                id_of: |slot| lives.id(slot),
                                scratch: &mut scratch,
                                out: &mut out,
                            },
                        )
                        .unwrap();
                    assert_eq!(plain(&out), [(id, 1000.0 + id as f32)]);
                    // Everybody at once: each id once, scores within what its versions can have.
                    let k = if rng.below(4) == 0 { 1000 } else { 10 };
                    let all = [(0, 1.0), (3, 1.0), (100 + id as u32, 1.0)];
                    index
                        .search(
                            &pin,
                            &all,
                            LaneSearch {
                                k,
                                admit,
                                id_of: |slot| lives.id(slot),
                                scratch: &mut scratch,
                                out: &mut out,
                            },
                        )
                        .unwrap();
                    assert_eq!(out.len(), k.min(IDS as usize));
                    assert_eq!(out[0].id, id);
                    let mut ids: Vec<u64> = out.iter().map(|hit| hit.id).collect();
                    ids.sort_unstable();
                    ids.dedup();
                    assert_eq!(ids.len(), out.len(), "an id twice");
                    assert!(out[1..].iter().all(|hit| (1.0..=5.5).contains(&hit.score)));
                    searches.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let stopper = Stopper(&stop);
        let mut writes = 0;
        while searches.load(Ordering::Relaxed) < 3000 && writes < 3_000_000 {
            let id = rng.below(IDS);
            let vector = document(&mut rng, id);
            bed.put(&mut rng, id, vector, |slot, vector| writer.insert(slot, vector).unwrap());
            bed.reclaim(|slot, vector| assert!(writer.remove(slot, vector)));
            writes += 1;
            if bed.slots_used() > 50_000 {
                break;
            }
        }
        drop(stopper);
    });
    assert!(searches.load(Ordering::Relaxed) > 0);
}
