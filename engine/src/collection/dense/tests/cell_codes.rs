//! Collections of cells with codes against a twin that decodes every code and scores what comes out.
use super::bed::{Bed, Rng, check_hits, group_is};
use super::cells::{cells, config, filed, mutate, step, train, trains_at};
use super::rounds;
use crate::collection::{DenseConfig, Drift, IvfConfig, IvfProduct, Query, WriteMode::Upsert};
use crate::distance::{Metric, padded, prepare};
use crate::index::Slot;
use crate::quantizer::CellProduct;

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
    let filing = bed.writer.filing.as_ref().unwrap();
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
        let slot: Slot = bed.writer.shared().ids.get_owned(id).unwrap();
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
        assert!(trained > 50, "{trained}");
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
            let filing = bed.writer.filing.as_ref().unwrap();
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
            assert_eq!((bed.writer.tail_len(), bed.writer.training_due()), (0, false));
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
    let current = bed.writer.filing.as_ref().unwrap().current.as_ref().unwrap();
    current.cells().coded().unwrap().codec().save()
}

/// Of every point, in the order of ids.
fn codes(bed: &Bed) -> Vec<u8> {
    let mut codes = Vec::new();
    for &id in bed.twin.keys() {
        let slot = bed.writer.shared().ids.get_owned(id).unwrap();
        bed.writer.filing.as_ref().unwrap().codes(slot, &mut codes);
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
