//! What a device is told, moment by moment.
use super::bed::{Bed, group_is, small_config};
use crate::collection::{DenseConfig, IndexType, Moment};
use crate::distance::Metric;
use crate::filter::{Node, Predicate};
use crate::memory::Pin;
use crate::slot::Slot;

fn bed(index: IndexType) -> Bed {
    Bed::new(DenseConfig { index, ..small_config(2, Metric::L2) }, 1 << 12)
}

fn fresh(moment: &Moment<'_>, pending: &mut Vec<Slot>, max: usize) -> (Vec<Slot>, bool) {
    let mut slots = Vec::new();
    let more = moment.fresh(pending, max, &mut slots);
    (slots, more)
}

#[test]
fn every_written_vector_is_named_once_in_the_first_moment_that_shows_it() {
    let mut bed = bed(IndexType::Gpu);
    let (dense, seat) = (bed.writer.shared().clone(), bed.domain.participant(1));
    let mut pending = Vec::new();
    (0..3).for_each(|id| bed.upsert(id, &[id as f32, 0.0]));
    let pin: Pin<'_> = seat.pin();
    let moment = dense.moment(&pin, bed.now_ms);
    // Written after the moment: not its business, and not forgotten.
    bed.upsert(3, &[3.0, 0.0]);
    assert_eq!(fresh(&moment, &mut pending, 100), (vec![0, 1, 2], false));
    assert_eq!(moment.vector(2), [2.0, 0.0]);
    assert_eq!(moment.live(), [0b111]);
    assert_eq!((fresh(&moment, &mut pending, 100).0, &pending[..]), (vec![], &[3][..]));
    let next = dense.moment(&pin, bed.now_ms);
    assert_eq!(fresh(&next, &mut pending, 100), (vec![3], false));
    assert!(pending.is_empty());
    // Dead before anybody asked.
    bed.upsert(4, &[4.0, 0.0]);
    bed.delete(4, false);
    bed.delete(0, false);
    let next = dense.moment(&pin, bed.now_ms);
    assert_eq!(fresh(&next, &mut pending, 100), (vec![], false));
    assert_eq!(next.live(), [0b1110]);
    // The first moment still shows what it showed.
    assert_eq!(moment.live(), [0b111]);
}

#[test]
fn many_are_named_in_parts() {
    let mut bed = bed(IndexType::Gpu);
    let (dense, seat) = (bed.writer.shared().clone(), bed.domain.participant(1));
    (0..200).for_each(|id| bed.upsert(id, &[id as f32, 0.0]));
    let pin = seat.pin();
    let moment = dense.moment(&pin, bed.now_ms);
    let (mut pending, mut all, mut calls) = (Vec::new(), Vec::new(), 0);
    loop {
        let (slots, more) = fresh(&moment, &mut pending, 64);
        all.extend(slots);
        calls += 1;
        if !more {
            break;
        }
    }
    assert_eq!(all, (0..200).collect::<Vec<Slot>>());
    assert_eq!(calls, 4);
}

#[test]
fn masks_keep_to_deadlines_and_filters() {
    let mut bed = bed(IndexType::Gpu);
    let (dense, seat) = (bed.writer.shared().clone(), bed.domain.participant(1));
    for id in 0..70 {
        let deadline_ms = if id % 7 == 0 { bed.now_ms + id % 2 } else { 0 };
        bed.write(crate::collection::WriteMode::Upsert, id, &[id as f32, 1.0], (id % 5) as i64, deadline_ms);
    }
    let pin = seat.pin();
    let moment = dense.moment(&pin, bed.now_ms);
    let ids = |mask: Vec<u64>| -> Vec<u64> {
        (0..70)
            .filter(|slot| mask.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1))
            .map(|slot| slot as u64)
            .collect()
    };
    let alive = |id: &u64| !id.is_multiple_of(14);
    assert_eq!(ids(moment.live()), (0..70).filter(alive).collect::<Vec<u64>>());
    let named = moment.named(&group_is(3)).expect("the index names them");
    assert_eq!(ids(named), (0..70).filter(|id| alive(id) && id % 5 == 3).collect::<Vec<u64>>());
    assert_eq!(moment.named(&group_is(9)).map(ids), Some(vec![]));
    let listed = Node { op: Some("has_id".into()), has_id: Some(vec![4, 14, 3, 99]), ..Node::default() };
    let listed = Predicate::compile(&listed).unwrap();
    assert_eq!(moment.named(&listed).map(ids), Some(vec![3, 4]));
    bed.write(crate::collection::WriteMode::Upsert, 4, &[4.5, 1.0], 4, 0);
    assert_eq!(moment.named(&listed), None, "the moment shows another point than the map of ids");
}

#[test]
fn nothing_is_noted_without_a_device() {
    let mut bed = bed(IndexType::Hnsw);
    let (dense, seat) = (bed.writer.shared().clone(), bed.domain.participant(1));
    bed.upsert(1, &[1.0, 1.0]);
    let pin = seat.pin();
    assert_eq!(fresh(&dense.moment(&pin, bed.now_ms), &mut Vec::new(), 9), (vec![], false));
}
