//! Deleting and inserting for ever must not grow anything.
use super::bed::{Bed, Rng, small_config};
use super::rounds;
use crate::collection::WriteMode;
use crate::distance::Metric;
use crate::slot::Slot;

/// Deletes every `nth` of `n` ids from `first` on and then writes them anew, with repairs and rounds after each `pause` of them: a
/// server does both all the time, not only in between.
fn replace_every(nth: u64, first: u64, n: u64, pause: u64, bed: &mut Bed, rng: &mut Rng) {
    for i in 0..n / nth {
        bed.delete((i * nth + first) % n, false);
        if i % pause == 0 {
            bed.writer.repair_step(256);
        }
    }
    for i in 0..n / nth {
        let vector = rng.vector(bed.config.dim);
        bed.upsert((i * nth + first) % n, &vector);
        if i % pause == 0 {
            bed.writer.index_all();
            bed.writer.repair_step(256);
        }
    }
}

#[test]
fn churn_keeps_slots_and_recall() {
    let n = rounds(1200, 20_000) as u64;
    let mut rng = Rng(11);
    let mut bed = Bed::new(small_config(8, Metric::L2), 4 * n as usize);
    for id in 0..n {
        let vector = rng.vector(8);
        bed.upsert(id, &vector);
    }
    bed.settle();
    let recall_before = bed.recall(&mut rng, 50, 60);
    let mut at_round_3 = 0;
    for round in 0..20 {
        replace_every(2, round, n, 64, &mut bed, &mut rng);
        bed.settle();
        let stats = bed.writer.shared().stats();
        if round == 3 {
            at_round_3 = stats.bytes;
        }
        assert!(stats.slots <= n * 8 / 5, "round {round}: {stats:?}");
        assert!(stats.tombstoned <= n / 8, "round {round}: {stats:?}");
        if round > 3 {
            assert!(stats.bytes as f64 <= 1.1 * at_round_3 as f64, "round {round}: {stats:?}");
        }
    }
    let recall = bed.recall(&mut rng, 50, 60);
    assert!(recall >= recall_before - 0.02, "recall {recall_before} before, {recall} after");
    assert_eq!(bed.lost(80), 0);
}

#[test]
fn repair_that_pays_what_it_owes_keeps_pace_with_replacements() {
    let n = 1500;
    let mut rng = Rng(21);
    let mut bed = Bed::new(small_config(4, Metric::L2), 4 * n as usize);
    for id in 0..n {
        let vector = rng.vector(4);
        bed.upsert(id, &vector);
    }
    bed.settle();
    assert_eq!(bed.writer.repair_owed(), 0);
    let mut most = 0;
    for _ in 0..10 * n / 50 {
        for _ in 0..50 {
            let (id, vector) = (rng.below(n), rng.vector(4));
            bed.upsert(id, &vector);
        }
        // Never idle: the tail is never waited for, and repair runs only as much as it must.
        bed.writer.index_all();
        while bed.writer.repair_owed() > 0 && bed.writer.repair_step(16) {}
        most = most.max(bed.writer.shared().stats().tombstoned);
    }
    assert!(most < n * 2 / 5, "{most} dead of {n}");
    assert!(bed.writer.shared().stats().slots < n * 3 / 2);
    bed.check(&mut rng);
}

#[test]
fn survivors_of_a_mass_deletion_stay_reachable() {
    let n = rounds(3000, 20_000) as u64;
    let mut rng = Rng(5);
    let mut bed = Bed::new(small_config(8, Metric::Cosine), 2 * n as usize);
    for id in 0..n {
        let vector = rng.vector(8);
        bed.upsert(id, &vector);
    }
    bed.writer.index_all();
    for id in (0..n).filter(|id| id % 20 != 0) {
        bed.delete(id, false);
    }
    bed.settle();
    let stats = bed.writer.shared().stats();
    assert_eq!(stats.live, n / 20);
    assert!(stats.tombstoned <= 64, "{stats:?}");
    // A beam so small that the graph is used, not a scan.
    let ef = (n / 20 / 6 - 1) as usize;
    let lost = bed.lost(ef);
    assert_eq!(lost, 0, "of {}", n / 20);
    let recall = bed.recall(&mut rng, 50, ef);
    assert!(recall >= 0.9, "recall {recall}");
}

#[test]
fn deleting_everything_leaves_a_working_collection() {
    let mut rng = Rng(6);
    let mut bed = Bed::new(small_config(4, Metric::L2), 2000);
    for round in 0..3 {
        for id in 0..500 {
            let vector = rng.vector(4);
            bed.upsert(id + round, &vector);
        }
        bed.writer.index_all();
        bed.check(&mut rng);
        assert_eq!(bed.lost(40), 0, "round {round}");
        for id in 0..500 {
            bed.delete(id + round, false);
        }
        bed.settle();
        bed.check(&mut rng);
        assert_eq!(bed.writer.shared().stats().tombstoned, 0);
    }
}

/// Every edge of a linked slot leads to a linked slot, unless nothing leads to it any more and it is next to be freed.
fn check_edges(bed: &Bed) {
    let shared = bed.writer.shared();
    for slot in 0..bed.writer.points().high_water() as Slot {
        if shared.space().graph().is_linked(slot) && !bed.writer.points().is_freeing(slot) {
            shared.space().graph().edges(slot, &mut |_, edges| {
                for &edge in edges {
                    assert!(shared.space().graph().is_linked(edge), "{slot} leads to {edge}, which is free");
                }
            });
        }
    }
}

#[test]
fn points_that_expire_during_a_repair_pass_wait_for_the_next() {
    let mut bed = Bed::new(small_config(8, Metric::L2), 4096);
    let mut rng = Rng(5);
    for id in 0..1500 {
        let deadline_ms = bed.now_ms + if id % 3 == 0 { 1 } else { 1_000_000 };
        bed.write(WriteMode::Insert, id, &rng.vector(8), 0, deadline_ms);
    }
    bed.settle();
    bed.now_ms += 1;
    // No sequence number passes between these deaths.
    let expired = bed.writer.points().expired(bed.now_ms, usize::MAX);
    assert_eq!(expired.len(), 500);
    let (first, later) = expired.split_at(250);
    first.iter().for_each(|&id| assert!(bed.writer.expire(id, bed.now_ms)));
    assert!(bed.writer.repair_step(64), "a pass is under way");
    later.iter().for_each(|&id| assert!(bed.writer.expire(id, bed.now_ms)));
    expired.iter().for_each(|id| _ = bed.twin.remove(id));
    for _ in 0..10_000 {
        bed.writer.repair_step(64);
        check_edges(&bed);
        if bed.writer.points().reuses_slot() {
            break;
        }
    }
    assert!(bed.writer.points().reuses_slot(), "the first pass gives its slots back");
    for id in 2000..2400 {
        bed.write(WriteMode::Insert, id, &rng.vector(8), 0, 0);
    }
    bed.settle();
    check_edges(&bed);
    bed.check(&mut rng);
    assert!(bed.recall(&mut rng, 30, 30) > 0.9);
}

#[test]
fn a_thousand_equal_points_hang_in_a_shallow_tree() {
    let mut bed = Bed::new(small_config(8, Metric::L2), 8192);
    for id in 0..4000 {
        bed.upsert(id, &[0.5; 8]);
    }
    bed.settle();
    let graph = &bed.writer.shared().space().graph();
    let depth = (0..bed.writer.points().high_water() as Slot).map(|slot| graph.depth(slot)).max();
    assert!(depth.is_some_and(|depth| depth < 40), "{depth:?}");
    check_edges(&bed);
}

/// As above where walks and scans go over codes, under every metric, and after a restart.
#[test]
fn codes_follow_what_is_replaced_deleted_and_restored() {
    const DIM: usize = 64;
    for metric in [Metric::Cosine, Metric::L2, Metric::Dot] {
        let n = 1400;
        let mut rng = Rng(31);
        let mut bed = Bed::new(small_config(DIM, metric), 3 * n as usize);
        for id in 0..n {
            let vector = rng.vector(DIM);
            bed.upsert(id, &vector);
            if id == 1000 {
                assert_eq!(bed.writer.shared().space().graph().code_step(), None, "too few to tell");
                bed.settle();
            }
        }
        bed.settle();
        let step = bed.writer.shared().space().graph().code_step();
        assert!(step.is_some() && bed.writer.shared().usage().codes > 0);
        let before = bed.recall(&mut rng, 40, 150);
        for round in 0..6 {
            replace_every(4, round, n, 32, &mut bed, &mut rng);
            bed.check(&mut rng);
            bed.settle();
        }
        bed.check(&mut rng);
        let after = bed.recall(&mut rng, 40, 150);
        assert!(after >= before - 0.03, "{metric:?}: recall {before} before, {after} after");
        assert_eq!(bed.writer.shared().space().graph().code_step(), step, "chosen once");

        let image = bed.capture(true, 300);
        bed.reopen(std::slice::from_ref(&image), bed.seq);
        assert!(bed.writer.shared().space().graph().code_step().is_some(), "as soon as it is open");
        bed.check(&mut rng);
        let restored = bed.recall(&mut rng, 40, 150);
        assert!(restored >= after - 0.03, "{metric:?}: recall {after} before, {restored} restored");
    }
}
