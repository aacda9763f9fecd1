//! Collections of cells with codes against a twin that decodes every code and scores what comes out.
use super::bed::{Bed, Rng, check_hits, group_is};
use super::cells::{cells, config, filed, mutate, step, train, trains_at};
use super::rounds;
use crate::collection::{DenseConfig, Drift, IvfConfig, IvfProduct, Query, WriteMode::Upsert};
use crate::distance::{Metric, padded, prepare};
use crate::quantizer::CellProduct;
use crate::slot::Slot;

fn coded(parts: usize, bits: usize, rerank: bool) -> Option<IvfProduct> {
    Some(IvfProduct { code: CellProduct { parts, bits, rotations: 0, eta: 0.0 }, rerank })
}

/// What codes say of a query, by plain arithmetic.
struct Decoded {
    /// Distances by codes of the points that are filed in the cells looked through.
    near: Vec<(u64, f64)>,
    /// Ids in the tail.
    tail: Vec<u64>,
}

fn decode(bed: &Bed, vector: &[f32], probes: usize, group: Option<i64>) -> Decoded {
    let dim = bed.config.dim;
    let mut query = vec![0.0; padded(dim)];
    prepare(bed.config.metric, vector, &mut query);
    let query: Vec<f64> = query[..dim].iter().map(|&x| f64::from(x)).collect();
    let filing = bed.writer.space().filing().unwrap();
    let current = filing.current.as_ref().unwrap();
    let of = current.cells();
    let mut order = Vec::new();
    let mut padded_query = vec![0.0; padded(dim)];
    prepare(bed.config.metric, vector, &mut padded_query);
    of.distances(&padded_query, &mut order, usize::MAX);
    let mut nearest: Vec<u32> = (0..of.len() as u32).collect();
    nearest.sort_by(|&a, &b| order[a as usize].total_cmp(&order[b as usize]).then(a.cmp(&b)));
    nearest.truncate(probes);
    let coded = of.coded().unwrap();
    let (mut near, mut tail) = (Vec::new(), Vec::new());
    for (&id, point) in &bed.twin {
        if bed.alive(id).is_none() || group.is_some_and(|group| group != point.group) {
            continue;
        }
        let slot: Slot = bed.writer.shared().points().slot_of(id).unwrap();
        let Some((cell, second)) = current.place(slot) else {
            tail.push(id);
            continue;
        };
        // The first of its cells that the search comes by.
        let filed = [Some(cell), second];
        let Some((which, cell)) = nearest
            .iter()
            .find_map(|&cell| filed.iter().position(|&filed| filed == Some(cell)).map(|which| (which, cell)))
        else {
            continue;
        };
        let mut rows = Vec::new();
        coded.rows_of(slot, &mut rows);
        let row = &rows[which * coded.row_len()..];
        let mut residual = vec![0.0; dim];
        coded.codec().decode(&row[..coded.codec().code_len()], &mut residual);
        let each = query.iter().zip(residual.iter().zip(of.centroid(cell)));
        let each = each.map(|(q, (r, c))| (q, f64::from(*r) + f64::from(*c)));
        let distance = match bed.config.metric {
            Metric::L2 => each.map(|(q, x)| (q - x) * (q - x)).sum::<f64>(),
            Metric::Cosine => 1.0 - each.map(|(q, x)| q * x).sum::<f64>(),
            Metric::Dot => -each.map(|(q, x)| q * x).sum::<f64>(),
        };
        near.push((id, distance));
    }
    near.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    Decoded { near, tail }
}

/// What rounding may make of a distance.
const NEAR: f64 = 1e-4;

/// The best three times `k` by codes, scored exactly: hits are all of those that are near enough, and nothing else.
fn check_reranked(bed: &Bed, vector: &[f32], k: usize, probes: usize, group: Option<i64>) {
    let filter = group.map(group_is);
    let hits = bed.search(&Query { filter: filter.as_ref(), ..bed.query(vector, k) });
    let exact = bed.truth(vector, usize::MAX, group);
    let distance_of = |id: u64| exact.iter().find(|point| point.0 == id).expect("it matches").1;
    assert!(hits.iter().all(|hit| hit.distance == distance_of(hit.id)), "exact distances");
    let Decoded { near, tail } = decode(bed, vector, probes, group);
    let last = near.get(3 * k - 1).map_or(f64::INFINITY, |last| last.1);
    let candidates = near.iter().filter(|near| near.1 < last - NEAR).map(|near| near.0).chain(tail.clone());
    let worst = hits.get(k - 1).map_or(f32::INFINITY, |worst| worst.distance);
    for id in candidates {
        assert!(
            hits.iter().any(|hit| hit.id == id) || distance_of(id) >= worst,
            "id {id} is among the best by its code, and near"
        );
    }
    for hit in &hits {
        let by_code = near.iter().find(|near| near.0 == hit.id);
        assert!(
            tail.contains(&hit.id) || by_code.is_some_and(|near| near.1 <= last + NEAR),
            "id {} is not among the best by its code",
            hit.id
        );
    }
}

#[test]
fn codes_say_what_they_decode_to_after_any_mutations() {
    for (at, (metric, soar, drift, parts, bits)) in [
        (Metric::L2, None, None, 3, 8),
        (Metric::Cosine, Some(0.0), None, 6, 4),
        (Metric::Dot, None, Some(Drift { growth: 1.05, factor: 1.01 }), 2, 4),
        (Metric::L2, Some(1.0), Some(Drift { growth: 1.05, factor: 1.0001 }), 3, 4),
        (Metric::Cosine, None, None, 2, 8),
        (Metric::Dot, Some(0.0), None, 1, 8),
    ]
    .into_iter()
    .enumerate()
    {
        let mut rng = Rng(17 + at as u64);
        let product = coded(parts, bits, true);
        let ivf = IvfConfig { soar, drift, product, nprobe: 1000, ..trains_at(60) };
        let mut bed = Bed::new(config(6, metric, ivf), 1 << 12);
        let (mut waiting, mut trained) = (None, 0);
        for round in 0..rounds(120, 1200) {
            for _ in 0..25 {
                mutate(&mut bed, &mut rng, 60 + 3 * round as u64);
                train(&mut bed, &mut waiting);
            }
            bed.check(&mut rng);
            let vector = rng.vector(6);
            check_hits(&bed.search(&bed.query(&vector, 1000)), &bed.truth(&vector, 1000, None));
            if cells(&bed) > 0 {
                trained += 1;
                for k in [1, 5, 20] {
                    check_reranked(&bed, &vector, k, 1000, None);
                }
            }
            if round % 30 == 29 {
                let image = bed.capture(true, 300);
                bed.reopen(&[image], bed.seq);
                bed.check(&mut rng);
                if cells(&bed) > 0 {
                    check_reranked(&bed, &vector, 5, 1000, None);
                }
            }
        }
        assert!(trained > 15, "{trained}");
    }
}

#[test]
fn few_cells_are_looked_through_and_more_where_a_filter_asks_for_it() {
    for (metric, bits, soar) in
        [(Metric::L2, 8, None), (Metric::Cosine, 4, Some(0.0)), (Metric::Dot, 8, Some(1.0))]
    {
        let (mut rng, n) = (Rng(29), 3000);
        let ivf = IvfConfig { product: coded(4, bits, true), soar, ..trains_at(2048) };
        let mut bed = Bed::new(config(8, metric, ivf), 2 * n as usize);
        for id in 0..n {
            let group = if id % 600 == 7 { 4 } else { (id % 4) as i64 };
            let deadline_ms = if id % 9 == 0 { bed.now_ms + 10 } else { 0 };
            bed.write(Upsert, id, &rng.vector(8), group, deadline_ms);
        }
        bed.settle();
        assert!(cells(&bed) > 100);
        bed.now_ms += 20;
        for _ in 0..30 {
            let vector = rng.vector(8);
            check_reranked(&bed, &vector, 3, 2, None);
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
}

#[test]
fn blocks_do_not_grow_under_upserts() {
    for (soar, bits) in [(None, 8), (Some(0.0), 4)] {
        let (mut rng, n) = (Rng(3), 1500);
        let ivf = IvfConfig { soar, nlist: 20, product: coded(4, bits, true), ..trains_at(1000) };
        let mut bed = Bed::new(config(8, Metric::L2, ivf), 4 * n as usize);
        for id in 0..n {
            bed.upsert(id, &rng.vector(8));
        }
        bed.settle();
        let each = if soar.is_some() { 2 } else { 1 };
        assert_eq!(filed(&bed), each * n);
        let bytes = |bed: &Bed| {
            let filing = bed.writer.space().filing().unwrap();
            filing.current.as_ref().unwrap().cells().bytes()
        };
        let mut before = 0;
        for round in 0..20 * n / 64 {
            if round == 2 * n / 64 {
                before = bytes(&bed);
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
        assert!(bytes(&bed) < before * 11 / 10, "{before} bytes before, {} after", bytes(&bed));
        bed.check(&mut rng);
        check_reranked(&bed, &rng.vector(8), 10, 2, None);
    }
}

#[test]
fn images_hold_codes_and_what_was_learned_for_them() {
    for (soar, bits, rotations) in [(None, 8, 0), (Some(0.0), 4, 1), (None, 4, 2)] {
        let (mut rng, n) = (Rng(13), 1200);
        let code = CellProduct { parts: 4, bits, rotations, eta: 2.0 };
        let product = Some(IvfProduct { code, rerank: true });
        let ivf = IvfConfig { soar, product, ..trains_at(1000) };
        let mut bed = Bed::new(config(16, Metric::L2, ivf), 4 * n as usize);
        for id in 0..n {
            bed.upsert(id, &rng.vector(16));
        }
        bed.settle();
        let (learned, codes) = (learned(&bed), codes(&bed));
        let mut images = vec![bed.capture(true, 1 << 12)];
        for round in 0..5 {
            let before = bed.recall(&mut Rng(round), 20, 0);
            bed.reopen(&images, bed.seq);
            assert_eq!((bed.writer.space().tail_len(), bed.writer.space().training_due()), (0, false));
            assert_eq!(self::learned(&bed), learned);
            if round == 0 {
                assert_eq!(self::codes(&bed), codes);
            }
            assert_eq!(bed.recall(&mut Rng(round), 20, 0), before, "the same cells and codes");
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

fn learned(bed: &Bed) -> Vec<u8> {
    let current = bed.writer.space().filing().unwrap().current.as_ref().unwrap();
    current.cells().coded().unwrap().codec().save()
}

/// Of every point, in the order of ids.
fn codes(bed: &Bed) -> Vec<u8> {
    let mut codes = Vec::new();
    for &id in bed.twin.keys() {
        let slot = bed.writer.shared().points().slot_of(id).unwrap();
        bed.writer.space().filing().unwrap().codes(slot, &mut codes);
    }
    codes
}

#[test]
fn what_is_learned_depends_on_seed_and_points_alone() {
    let mut vectors = Rng(51);
    let points: Vec<Vec<f32>> = (0..400).map(|_| vectors.vector(8)).collect();
    let made = |seed: i64, order: &mut dyn Iterator<Item = usize>| {
        let ivf = IvfConfig { product: coded(2, 4, true), soar: Some(0.0), ..trains_at(400) };
        let mut bed = Bed::new(DenseConfig { seed, ..config(8, Metric::Cosine, ivf) }, 4096);
        order.for_each(|id| bed.upsert(id as u64, &points[id]));
        bed.settle();
        (learned(&bed), codes(&bed))
    };
    let first = made(1, &mut (0..400));
    assert_eq!(made(1, &mut (0..400).rev()), first);
    assert_ne!(made(2, &mut (0..400)), first);
}

#[test]
fn damaged_images_are_named_and_end_in_no_panic() {
    let mut rng = Rng(41);
    let ivf = IvfConfig { product: coded(2, 4, true), ..trains_at(50) };
    let mut bed = Bed::new(config(4, Metric::L2, ivf), 1024);
    for id in 0..60 {
        bed.upsert(id, &rng.vector(4));
    }
    bed.settle();
    assert!(cells(&bed) > 0);
    let image = bed.capture(true, usize::MAX);
    for at in 0..image.len() {
        let mut damaged = image.clone();
        damaged[at] ^= 1 << rng.below(8);
        let mut writer = bed.fresh_writer();
        if writer.restore(&damaged).is_ok() && writer.finish_restore(bed.seq + 1000).is_ok() {
            writer.index_all();
        }
    }
    let plain = DenseConfig { index: crate::collection::IndexType::Hnsw, ..bed.config.clone() };
    bed.config = plain;
    assert!(bed.fresh_writer().restore(&image).is_err());
}

/// Every live point as it can be read: its vector as it was written while it is in the tail or nothing is trained, else what its code
/// stands for.
fn readable(bed: &Bed) -> Vec<(u64, Vec<f32>)> {
    let (pin, shared) = (bed.seat.pin(), bed.writer.shared());
    let current = bed.writer.space().filing().unwrap().current.as_ref();
    let mut all = Vec::new();
    for (&id, twin) in &bed.twin {
        let point = shared.get(&pin, id, bed.now_ms);
        if bed.alive(id).is_none() {
            assert!(point.is_none(), "id {id} has expired");
            continue;
        }
        let point = point.unwrap_or_else(|| panic!("id {id} is missing"));
        assert_eq!((point.version, point.row), (twin.version, &twin.row[..]));
        let slot = shared.points().slot_of(id).unwrap();
        if current.is_none_or(|current| current.place(slot).is_none()) {
            assert_eq!(point.vector[..], twin.prepared[..bed.config.dim]);
        }
        all.push((id, point.vector.to_vec()));
    }
    all
}

/// Hits are at the distances of what can be read; `all`: and none is nearer.
fn check_by_codes(bed: &Bed, vector: &[f32], k: usize, group: Option<i64>, exact: bool, all: bool) {
    let kernel = crate::distance::Kernel::of(bed.config.metric);
    let mut query = vec![0.0; padded(bed.config.dim)];
    prepare(bed.config.metric, vector, &mut query);
    let distance = |vector: &[f32]| {
        let mut stored = vec![0.0; padded(bed.config.dim)];
        stored[..vector.len()].copy_from_slice(vector);
        f64::from(kernel.distance(&query, &stored))
    };
    let mut twin: Vec<(u64, f64)> = readable(bed)
        .into_iter()
        .filter(|(id, _)| group.is_none_or(|group| bed.twin[id].group == group))
        .map(|(id, vector)| (id, distance(&vector)))
        .collect();
    twin.sort_by(|a, b| a.1.total_cmp(&b.1));
    let filter = group.map(group_is);
    let hits = bed.search(&Query { filter: filter.as_ref(), exact, ..bed.query(vector, k) });
    assert_eq!(hits.len(), k.min(twin.len()), "k results whenever k match");
    assert!(hits.is_sorted_by(|a, b| a.distance <= b.distance && a.id != b.id));
    for (at, hit) in hits.iter().enumerate() {
        let of = twin.iter().find(|point| point.0 == hit.id).expect("a point that matches").1;
        assert!((f64::from(hit.distance) - of).abs() < NEAR, "{} and {of}", hit.distance);
        assert!(!all || of <= twin[at].1 + 2.0 * NEAR, "{of} in place of {}", twin[at].1);
    }
    assert_eq!(hits.iter().map(|hit| hit.id).collect::<std::collections::BTreeSet<u64>>().len(), hits.len());
}

#[test]
fn vectors_are_what_codes_stand_for_where_they_are_given_up() {
    for (at, (metric, soar, drift, parts, bits)) in [
        (Metric::L2, None, None, 3, 8),
        (Metric::Cosine, Some(0.0), None, 6, 4),
        (Metric::Dot, None, Some(Drift { growth: 1.05, factor: 1.01 }), 2, 4),
        (Metric::L2, Some(1.0), Some(Drift { growth: 1.05, factor: 1.0001 }), 3, 4),
        (Metric::Cosine, None, None, 2, 8),
    ]
    .into_iter()
    .enumerate()
    {
        let mut rng = Rng(57 + at as u64);
        let product = coded(parts, bits, false);
        let ivf = IvfConfig { soar, drift, product, nprobe: 1000, ..trains_at(60) };
        let mut bed = Bed::new(config(6, metric, ivf), 1 << 12);
        let (mut waiting, mut trained) = (None, 0);
        for round in 0..rounds(120, 1200) {
            for _ in 0..25 {
                mutate(&mut bed, &mut rng, 60 + 3 * round as u64);
                train(&mut bed, &mut waiting);
            }
            trained += u64::from(cells(&bed) > 0);
            let vector = rng.vector(6);
            for (k, group) in
                [(1, None), (7, None), (1000, None), (3, Some(2)), (1000, Some(0)), (5, Some(9))]
            {
                check_by_codes(&bed, &vector, k, group, false, soar.is_none() || k == 1000);
                check_by_codes(&bed, &vector, k, group, true, true);
            }
            if round % 10 == 9 {
                let before = readable(&bed);
                let image = bed.capture(true, 300);
                bed.reopen(&[image], bed.seq);
                assert_eq!(readable(&bed), before, "round {round}");
            }
        }
        assert!(trained > 15, "{trained}");
    }
}

/// A slot that was replaced before there were cells is another point's by the time that vectors go.
#[test]
fn vectors_of_slots_that_are_used_again_do_not_go() {
    let mut rng = Rng(91);
    let ivf = IvfConfig { product: coded(3, 8, false), nprobe: 1000, ..trains_at(900) };
    let mut bed = Bed::new(config(6, Metric::L2, ivf), 1 << 12);
    for id in 0..800 {
        bed.upsert(id, &rng.vector(6));
    }
    bed.settle();
    let early = bed.domain.participant(1);
    let pin = early.pin();
    // Filed nowhere yet, and replaced under a reader.
    for id in 0..300 {
        bed.upsert(id, &rng.vector(6));
    }
    for id in 800..950 {
        bed.upsert(id, &rng.vector(6));
    }
    bed.writer.index_all();
    assert!(cells(&bed) > 0);
    drop(pin);
    // As the slots come free they are taken again, while vectors wait for their turn.
    for id in 2000..2600 {
        bed.upsert(id, &rng.vector(6));
        bed.writer.reclaim();
    }
    let held = bed.seat.pin();
    for id in 2000..2600 {
        let point = bed.writer.shared().get(&held, id, bed.now_ms).unwrap();
        assert!(point.vector.iter().any(|&component| component != 0.0), "{id}");
    }
    drop(held);
    bed.settle();
    for (id, vector) in readable(&bed) {
        let twin = &bed.twin[&id].prepared[..6];
        let off: f32 = vector.iter().zip(twin).map(|(a, b)| (a - b).powi(2)).sum();
        assert!(off < twin.iter().map(|x| x * x).sum::<f32>(), "{id}: {vector:?} for {twin:?}");
    }
}

#[test]
fn images_without_vectors_are_small_and_deltas_follow() {
    for soar in [None, Some(0.0)] {
        let (mut rng, n) = (Rng(13), 1200);
        let ivf = IvfConfig { soar, product: coded(8, 4, false), ..trains_at(1000) };
        let mut bed = Bed::new(config(64, Metric::Cosine, ivf), 4 * n as usize);
        for id in 0..900 {
            bed.upsert(id, &rng.vector(64));
        }
        bed.settle();
        let mut images = vec![bed.capture(true, 1 << 12)];
        for id in 900..n {
            bed.upsert(id, &rng.vector(64));
        }
        bed.settle();
        assert!(cells(&bed) > 0);
        images.push(bed.capture(false, 1 << 12));
        for round in 0..5 {
            let before = readable(&bed);
            bed.reopen(&images, bed.seq);
            assert_eq!((bed.writer.space().tail_len(), bed.writer.space().training_due()), (0, false));
            assert_eq!(readable(&bed), before);
            for id in 0..10 {
                bed.upsert(round * 40 + id, &rng.vector(64));
                bed.delete(n - 1 - round * 10 - id, false);
            }
            bed.settle();
            images.push(bed.capture(false, 1 << 12));
        }
        // What is learned takes as much in either.
        let whole = bed.capture(true, 1 << 12).len() - learned(&bed).len();
        let vectors = bed.twin.len() * 64 * 4;
        assert!(whole < vectors, "{whole} bytes, {vectors} would be vectors");
    }
}

#[test]
fn memory_of_vectors_goes_back_to_the_kernel_and_slots_are_used_again() {
    let (mut rng, n, dim) = (Rng(5), 6000, 128);
    let ivf = IvfConfig { nlist: 30, product: coded(16, 8, false), ..trains_at(4000) };
    let mut bed = Bed::new(config(dim, Metric::L2, ivf), 2 * n as usize);
    let bytes = |bed: &Bed| bed.writer.shared().stats().bytes;
    for id in 0..4000 {
        bed.upsert(id, &rng.vector(dim));
    }
    let before = bytes(&bed);
    for id in 4000..n {
        bed.upsert(id, &rng.vector(dim));
        if id % 500 == 0 {
            bed.settle();
        }
    }
    bed.settle();
    let vectors = n * dim as u64 * 4;
    assert!(bytes(&bed) + vectors / 3 < before, "{} after {before}", bytes(&bed));
    let graph = &bed.writer.shared().space().graph();
    let zero = |slot: Slot| graph.vector(slot).iter().all(|&x| x == 0.0);
    let gone = (0..n as Slot).filter(|&slot| zero(slot)).count();
    assert!(gone as u64 > n * 9 / 10, "{gone} of {n} vectors are gone");
    for id in 0..500 {
        bed.upsert(id * 7, &rng.vector(dim));
    }
    check_by_codes(&bed, &rng.vector(dim), 5, None, true, true);
    bed.settle();
    check_by_codes(&bed, &rng.vector(dim), 5, None, true, true);
    assert_eq!(bed.writer.shared().stats().live, n);
}
