//! Collections of cells against the naive twin: recall is the twin's where all cells are looked through, and `k` results come
//! whenever `k` points match.
use super::bed::{Bed, Rng, check_hits, group_is, small_config};
use super::rounds;
use crate::collection::{DenseConfig, Drift, Filed, IndexType, IvfConfig, Query, WriteMode::Upsert};
use crate::distance::Metric;
use crate::index::FiledAt;

pub(super) fn config(dim: usize, metric: Metric, ivf: IvfConfig) -> DenseConfig {
    DenseConfig { index: IndexType::Ivf(ivf), ..small_config(dim, metric) }
}

pub(super) fn trains_at(points: usize) -> IvfConfig {
    IvfConfig { train_threshold: points, nprobe: 2, ..IvfConfig::default() }
}

pub(super) fn cells(bed: &Bed) -> u64 {
    bed.writer.shared().space().cells_info().unwrap().cells
}

/// Postings in the lists that are searched.
pub(super) fn filed(bed: &Bed) -> u64 {
    bed.writer
        .space()
        .filing()
        .and_then(|filing| filing.current.as_ref())
        .map_or(0, |current| current.filed())
}

/// One piece of a round, as a server makes them between writes.
pub(super) fn step(bed: &mut Bed) -> bool {
    let shared = bed.writer.shared().clone();
    let mut buffer = Vec::new();
    match bed.writer.begin_filing(0, 16) {
        Filed::Nothing => false,
        Filed::Moved(_) => true,
        Filed::Round(round) => {
            let places: Vec<FiledAt> =
                (0..round.len()).map(|index| shared.space().place(&round, index, &mut buffer)).collect();
            bed.writer.end_filing(0, &places);
            true
        }
    }
}

/// Trains, if that is due; the clustering comes a while after the sample.
pub(super) fn train(bed: &mut Bed, waiting: &mut Option<crate::collection::Clustering>) {
    if let Some(clustering) = waiting.take() {
        bed.writer.end_training(0, clustering);
    } else if bed.writer.space().training_due()
        && let Some(sample) = bed.writer.training_step(0, 40)
    {
        *waiting = Some(sample.cluster());
    }
}

pub(super) fn mutate(bed: &mut Bed, rng: &mut Rng, ids: u64) {
    let dim = bed.config.dim;
    match rng.below(20) {
        0..12 => {
            let (id, group, vector) = (rng.below(ids), rng.below(6) as i64 - 1, rng.vector(dim));
            let deadline_ms = if rng.below(8) == 0 { bed.now_ms + 1 + rng.below(60) } else { 0 };
            bed.write(Upsert, id, &vector, group, deadline_ms);
        }
        12..15 => bed.delete(rng.below(ids), false),
        15 => {
            let (id, group) = (rng.below(ids), rng.below(6) as i64 - 1);
            bed.rewrite(id, group);
        }
        16 => {
            bed.now_ms += rng.below(10);
            for id in bed.writer.points().expired(bed.now_ms, 3) {
                bed.delete(id, true);
            }
        }
        17 => bed.writer.reclaim(),
        _ => _ = step(bed),
    }
}

#[test]
fn a_collection_of_cells_is_its_twin_before_during_and_after_training() {
    for (metric, soar, drift) in [
        (Metric::L2, None, None),
        (Metric::Cosine, Some(0.0), None),
        (Metric::Dot, None, Some(Drift { growth: 1.05, factor: 1.01 })),
        (Metric::L2, Some(1.0), Some(Drift { growth: 1.05, factor: 1.0001 })),
    ] {
        let mut rng = Rng(17);
        let ivf = IvfConfig { soar, drift, ..trains_at(120) };
        let mut bed = Bed::new(config(5, metric, ivf), 1 << 12);
        let (mut waiting, mut trained) = (None, 0);
        for round in 0..rounds(150, 2000) {
            for _ in 0..25 {
                mutate(&mut bed, &mut rng, 60 + 3 * round as u64);
                train(&mut bed, &mut waiting);
            }
            bed.check(&mut rng);
            trained += u64::from(cells(&bed) > 0);
            let vector = rng.vector(5);
            let truth = bed.truth(&vector, 1000, None);
            check_hits(&bed.search(&bed.query(&vector, 1000)), &truth);
            for group in 0..5 {
                let filter = group_is(group);
                let truth = bed.truth(&vector, 7, Some(group));
                let hits = bed.search(&Query { filter: Some(&filter), ..bed.query(&vector, 7) });
                assert_eq!(hits.len(), truth.len(), "as many as match");
                let all = bed.truth(&vector, 1000, Some(group));
                for hit in hits {
                    assert!(
                        all.contains(&(hit.id, hit.distance)),
                        "a point that matches, at its exact distance"
                    );
                }
            }
            if round % 40 == 39 {
                let image = bed.capture(true, 300);
                bed.reopen(&[image], bed.seq);
                bed.check(&mut rng);
                check_hits(&bed.search(&bed.query(&vector, 1000)), &bed.truth(&vector, 1000, None));
            }
        }
        assert!(trained > 50, "{trained}");
    }
}

#[test]
fn lists_do_not_grow_under_upserts() {
    for soar in [None, Some(0.0)] {
        let (mut rng, n) = (Rng(3), 1500);
        let ivf = IvfConfig { soar, ..trains_at(1000) };
        let mut bed = Bed::new(config(8, Metric::L2, ivf), 4 * n as usize);
        for id in 0..n {
            bed.upsert(id, &rng.vector(8));
        }
        bed.settle();
        let each = if soar.is_some() { 2 } else { 1 };
        assert_eq!(filed(&bed), each * n);
        let mut bytes = 0;
        for round in 0..20 * n / 64 {
            if round == 2 * n / 64 {
                bytes = bed.writer.shared().stats().bytes;
            }
            for _ in 0..64 {
                bed.upsert(rng.below(n), &rng.vector(8));
            }
            while step(&mut bed) {}
            assert!(filed(&bed) <= each * (n + 64), "{} postings of {n} points", filed(&bed));
        }
        bed.settle();
        assert_eq!(filed(&bed), each * n);
        let stats = bed.writer.shared().stats();
        assert_eq!((stats.live, stats.tombstoned), (n, 0));
        assert!(stats.slots < n + 200, "{stats:?}");
        assert!(stats.bytes < bytes * 11 / 10, "{bytes} bytes before, {stats:?}");
        bed.check(&mut rng);
    }
}

#[test]
fn a_filter_finds_all_that_match_in_however_few_cells_they_lie() {
    let (mut rng, n) = (Rng(29), 3000);
    let mut bed = Bed::new(config(6, Metric::Cosine, trains_at(2048)), 2 * n as usize);
    for id in 0..n {
        let vector = rng.vector(6);
        // Group 4 is a handful of points that are nowhere in particular.
        let group = if id % 600 == 7 { 4 } else { (id % 4) as i64 };
        bed.write(Upsert, id, &vector, group, if id % 9 == 0 { bed.now_ms + 10 } else { 0 });
    }
    bed.settle();
    assert!(cells(&bed) > 100);
    bed.now_ms += 20;
    for _ in 0..60 {
        let vector = rng.vector(6);
        for (group, k) in [(4, 3), (4, 5), (0, 10), (1, 900), (9, 3)] {
            let filter = group_is(group);
            let truth = bed.truth(&vector, k, Some(group));
            let hits = bed.search(&Query { filter: Some(&filter), ..bed.query(&vector, k) });
            assert_eq!(hits.len(), truth.len(), "group {group}, k {k}");
            if group == 4 || k == 900 {
                check_hits(&hits, &truth);
            }
        }
        let k = n as usize;
        check_hits(&bed.search(&bed.query(&vector, k)), &bed.truth(&vector, k, None));
    }
}

/// What matches is thinner, so its nearest lie in cells farther off.
#[test]
fn a_filter_costs_no_recall() {
    let (mut rng, n, k) = (Rng(17), 6000, 10);
    let ivf = IvfConfig { nprobe: 12, ..trains_at(0) };
    let mut bed = Bed::new(config(8, Metric::L2, ivf), 2 * n as usize);
    for id in 0..n {
        let group = if id % 8 == 0 { 1 } else { 2 };
        bed.write(Upsert, id, &rng.vector(8), group, 0);
    }
    bed.writer.space_mut().want_training();
    bed.settle();
    let filter = group_is(1);
    let (mut found, mut found_matching) = (0, 0);
    for _ in 0..100 {
        let vector = rng.vector(8);
        let of = |group: Option<i64>| {
            let query = Query { filter: group.map(|_| &filter), ..bed.query(&vector, k) };
            let (hits, truth) = (bed.search(&query), bed.truth(&vector, k, group));
            hits.iter().filter(|hit| truth.iter().any(|(id, _)| *id == hit.id)).count()
        };
        found += of(None);
        found_matching += of(Some(1));
    }
    println!("{found} and {found_matching} of 1000");
    assert!((600..980).contains(&found), "{found}");
    assert!(found_matching + 30 >= found, "{found_matching} of what matches, {found} without a filter");
}

#[test]
fn cells_find_most_neighbours_and_more_of_them_with_more_probes() {
    let (mut rng, n) = (Rng(5), 4000);
    let mut last = 0.0;
    for (nprobe, least) in [(1, 0.1), (8, 0.6), (40, 0.95), (1000, 1.0)] {
        let ivf = IvfConfig { nprobe, ..trains_at(0) };
        let mut bed = Bed::new(config(8, Metric::L2, ivf), 2 * n as usize);
        for id in 0..n {
            bed.upsert(id, &rng.vector(8));
        }
        bed.writer.space_mut().want_training();
        bed.settle();
        assert_eq!(cells(&bed), 252, "four times the root of {n}");
        let recall = bed.recall(&mut rng, 100, 0);
        assert!(recall >= least && recall >= last, "{nprobe} probes: {recall} after {last}");
        last = recall;
    }
}

#[test]
fn images_hold_the_clustering_and_deltas_only_what_changed() {
    for soar in [None, Some(0.0)] {
        let (mut rng, n) = (Rng(13), 1200);
        let mut bed =
            Bed::new(config(16, Metric::Cosine, IvfConfig { soar, ..trains_at(1000) }), 4 * n as usize);
        for id in 0..900 {
            bed.upsert(id, &rng.vector(16));
        }
        bed.settle();
        assert_eq!(cells(&bed), 0);
        let mut images = vec![bed.capture(true, 1 << 12)];
        bed.reopen(&images, bed.seq);
        assert_eq!((bed.writer.space().tail_len(), cells(&bed)), (0, 0), "filed nowhere in particular");
        bed.check(&mut rng);
        for id in 900..n {
            bed.upsert(id, &rng.vector(16));
        }
        bed.settle();
        assert_eq!(cells(&bed), 138, "four times the root of {n}");
        images.push(bed.capture(false, 1 << 10));
        for round in 0..6 {
            let before = bed.recall(&mut Rng(round), 20, 0);
            bed.reopen(&images, bed.seq);
            assert_eq!(
                (bed.writer.space().tail_len(), cells(&bed), bed.writer.space().training_due()),
                (0, 138, false)
            );
            assert_eq!(bed.recall(&mut Rng(round), 20, 0), before, "the same cells");
            bed.check(&mut rng);
            for id in 0..10 {
                bed.upsert(round * 40 + id, &rng.vector(16));
                bed.delete(n - 1 - round * 10 - id, false);
            }
            bed.settle();
            images.push(bed.capture(false, 1 << 12));
            let (first, last) = (images[0].len(), images.last().unwrap().len());
            assert!(last < first / 10, "{last} bytes after {first}");
        }
    }
}

#[test]
fn a_clustering_published_during_a_capture_is_in_it_whole() {
    let (mut rng, n) = (Rng(31), 400);
    for pause in [1, 5, 9, 14, 40] {
        let mut bed = Bed::new(config(4, Metric::L2, trains_at(300)), 4 * n as usize);
        for id in 0..n {
            bed.upsert(id, &rng.vector(4));
        }
        let mut waiting = None;
        let (mut image, mut steps) = (Vec::new(), 0);
        bed.writer.begin_capture(true);
        while !bed.writer.capture_step(400, &mut image) {
            steps += 1;
            if steps >= pause {
                for _ in 0..4 {
                    train(&mut bed, &mut waiting);
                    step(&mut bed);
                }
            }
        }
        bed.writer.end_capture(true);
        bed.reopen(&[image], bed.seq);
        bed.settle();
        assert!(cells(&bed) > 0);
        bed.check(&mut rng);
        let vector = rng.vector(4);
        check_hits(&bed.search(&bed.query(&vector, 1000)), &bed.truth(&vector, 1000, None));
    }
}

#[test]
fn a_clustering_of_another_writer_is_dropped_and_damage_is_named() {
    let mut rng = Rng(41);
    let mut bed = Bed::new(config(4, Metric::L2, trains_at(50)), 1024);
    for id in 0..60 {
        bed.upsert(id, &rng.vector(4));
    }
    let sample = loop {
        if let Some(sample) = bed.writer.training_step(0, 7) {
            break sample;
        }
    };
    assert_eq!(sample.len(), 60);
    assert!(!bed.writer.space().training_due(), "somebody clusters it");
    let clustering = sample.cluster();
    let fresh = bed.fresh_writer();
    let first = std::mem::replace(&mut bed.writer, fresh);
    bed.reopen(&[], 0);
    bed.writer.end_training(0, clustering);
    bed.writer.begin_filing(0, 1);
    assert_eq!(cells(&bed), 0);
    drop(first);
    bed.settle();
    assert_eq!(cells(&bed), 30);
    let image = bed.capture(true, usize::MAX);
    bed.reopen(&[], 0);
    for at in 0..image.len() {
        let mut damaged = image.clone();
        damaged[at] ^= 1 << rng.below(8);
        let mut writer = bed.fresh_writer();
        // An error or another collection, but no panic.
        if writer.restore(&damaged).is_ok() && writer.finish_restore(bed.seq + 1000).is_ok() {
            writer.index_all();
        }
    }
    let graph = DenseConfig { index: IndexType::Hnsw, ..bed.config.clone() };
    bed.config = graph;
    let refused = bed.fresh_writer().restore(&image).unwrap_err();
    assert!(refused.what.contains("image of a graph"), "{refused}");
}

#[test]
fn points_that_move_away_are_clustered_anew() {
    let (mut rng, n) = (Rng(19), 600);
    let drift = Some(Drift::default());
    let mut bed = Bed::new(config(4, Metric::L2, IvfConfig { drift, ..trains_at(500) }), 8 * n as usize);
    for id in 0..n {
        bed.upsert(id, &rng.vector(4));
    }
    bed.settle();
    let before = cells(&bed);
    for id in n..2 * n + 10 {
        bed.upsert(id, &rng.vector(4));
    }
    bed.settle();
    assert_eq!(cells(&bed), before, "as near to their centroids as those before");
    let on = |bed: &Bed| bed.writer.space().filing().unwrap().current.as_ref().unwrap().cells().trained_on();
    assert_eq!(on(&bed), 2 * n + 10, "looked at");
    for id in 2 * n + 10..5 * n {
        let vector: Vec<f32> = rng.vector(4).iter().map(|x| x + 9.0).collect();
        bed.upsert(id, &vector);
    }
    bed.settle();
    assert!(cells(&bed) > before, "{before} cells of {} points", 5 * n);
    assert!(bed.writer.shared().stats().tombstoned == 0 && filed(&bed) == 5 * n);
    bed.check(&mut rng);
    let image = bed.capture(true, 1 << 12);
    let trained = on(&bed);
    bed.reopen(&[image], bed.seq);
    assert_eq!(on(&bed), trained);
    assert!(!bed.writer.space().training_due());
}

#[test]
fn clusterings_depend_on_seed_and_points_and_not_on_their_history() {
    let mut vectors = Rng(51);
    let points: Vec<Vec<f32>> = (0..300).map(|_| vectors.vector(4)).collect();
    let image = |seed: i64, order: &mut dyn Iterator<Item = usize>, churn: bool| {
        let mut bed = Bed::new(DenseConfig { seed, ..config(4, Metric::L2, trains_at(300)) }, 4096);
        if churn {
            (0..40).for_each(|id| bed.upsert(id, &[9.0; 4]));
            bed.settle();
            (0..40).for_each(|id| bed.delete(id, false));
            bed.settle();
        }
        order.for_each(|id| bed.upsert(id as u64, &points[id]));
        bed.settle();
        let current = bed.writer.space().filing().unwrap().current.as_ref().unwrap().cells().clone();
        (0..current.len() as u32).flat_map(|cell| current.centroid(cell).to_vec()).collect::<Vec<f32>>()
    };
    let first = image(1, &mut (0..300), false);
    assert_eq!(image(1, &mut (0..300).rev(), true), first);
    assert_eq!(image(0, &mut (0..300), false), first, "0 acts as 1");
    assert_ne!(image(2, &mut (0..300), false), first);
}

#[test]
fn many_more_points_are_clustered_anew_into_more_cells() {
    let mut rng = Rng(11);
    let fill = |bed: &mut Bed, rng: &mut Rng, to: u64| {
        (bed.twin.len() as u64..to).for_each(|id| bed.upsert(id, &rng.vector(5)));
        bed.writer.index_all();
    };
    let mut grows = Bed::new(config(5, Metric::L2, trains_at(50)), 4096);
    let mut given = Bed::new(config(5, Metric::L2, IvfConfig { nlist: 9, ..trains_at(50) }), 4096);
    for bed in [&mut grows, &mut given] {
        fill(bed, &mut rng, 60);
    }
    assert_eq!((cells(&grows), cells(&given)), (30, 9));
    for bed in [&mut grows, &mut given] {
        fill(bed, &mut rng, 470);
        fill(bed, &mut rng, 900);
    }
    assert!((80..=120).contains(&cells(&grows)), "four times the root of what there is: {}", cells(&grows));
    assert_eq!(cells(&given), 9, "as many as were asked for");
    grows.check(&mut rng);
    given.check(&mut rng);
}
