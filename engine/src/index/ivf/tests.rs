//! Cells against plain lists.
use super::{Cells, CellsWriter, Order};
use crate::distance::{Kernel, Metric, padded, prepare};
use crate::memory::Domain;
use std::collections::BTreeMap;
use std::sync::Arc;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn row(state: &mut u64, metric: Metric, dim: usize) -> Vec<f32> {
    let raw: Vec<f32> = (0..dim).map(|_| random(state) as f32 / (1u64 << 30) as f32 - 1.0).collect();
    let mut row = vec![0.0; padded(dim)];
    prepare(metric, &raw, &mut row);
    row
}

#[test]
fn postings_follow_every_mutation_and_do_not_pile_up() {
    let (dim, mut state) = (5, 3);
    for soar in [None, Some(1.5)] {
        let centroids: Vec<f32> =
            (0..7).flat_map(|_| row(&mut state, Metric::L2, dim)[..dim].to_vec()).collect();
        let cells = Arc::new(Cells::new(Metric::L2, dim, &centroids, soar, None, 0).unwrap());
        let mut writer = CellsWriter::new(cells.clone(), Domain::new(1));
        let mut twin: BTreeMap<u32, (u32, Option<u32>)> = BTreeMap::new();
        let mut buffer = Vec::new();
        for step in 0..30_000 {
            let slot = (random(&mut state) % 900) as u32;
            assert_eq!(writer.remove(slot), twin.remove(&slot).is_some());
            if !random(&mut state).is_multiple_of(4) {
                let place = cells.place_step(&row(&mut state, Metric::L2, dim), &mut buffer, 99).unwrap();
                assert_eq!(place.second.is_some(), soar.is_some());
                assert_ne!(place.second, Some(place.cell));
                writer.insert_at(slot, &place);
                twin.insert(slot, (place.cell, place.second));
            }
            writer.seal();
            if step % 3000 == 0 {
                let mut found = BTreeMap::new();
                for cell in 0..cells.len() as u32 {
                    cells.for_each(cell, |slot, other| {
                        assert_eq!(
                            other,
                            match twin[&slot] {
                                (first, second) if first == cell => second,
                                (first, second) => {
                                    assert_eq!(second, Some(cell));
                                    Some(first)
                                }
                            }
                        );
                        *found.entry(slot).or_insert(0) += 1;
                    });
                }
                assert!(found.keys().eq(twin.keys()));
                assert!(found.iter().all(|(slot, &times)| times == 1 + u32::from(twin[slot].1.is_some())));
                assert!(twin.iter().all(|(&slot, &place)| writer.place(slot) == Some(place)));
            }
        }
        let bytes = cells.bytes();
        assert!(bytes < 200_000, "{bytes} bytes for at most 900 slots");
    }
}

#[test]
fn a_place_is_the_nearest_cell_and_the_second_loses_least() {
    let (dim, mut state) = (6, 11);
    for metric in [Metric::L2, Metric::Cosine, Metric::Dot] {
        let centroids: Vec<Vec<f32>> = (0..20).map(|_| row(&mut state, metric, dim)).collect();
        let flat: Vec<f32> = centroids.iter().flat_map(|row| row[..dim].to_vec()).collect();
        let cells = Cells::new(metric, dim, &flat, Some(2.0), None, 0).unwrap();
        let kernel = Kernel::of(metric);
        let mut buffer = Vec::new();
        for _ in 0..200 {
            let x = row(&mut state, metric, dim);
            assert_eq!(cells.place_step(&x, &mut buffer, 12), None);
            let place = cells.place_step(&x, &mut buffer, 12).unwrap();
            let to = |cell: usize| kernel.distance(&x, &centroids[cell]);
            let best = (0..20).min_by(|&a, &b| to(a).total_cmp(&to(b))).unwrap();
            assert_eq!(place.cell as usize, best);
            assert_eq!(place.distance, to(best));
            let minus = |cell: usize| -> Vec<f64> {
                x.iter().zip(&centroids[cell]).map(|(x, c)| f64::from(*x) - f64::from(*c)).collect()
            };
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let first = minus(best);
            let mut others: Vec<usize> = (0..20).filter(|&cell| cell != best).collect();
            others.sort_by(|&a, &b| dot(&minus(a), &minus(a)).total_cmp(&dot(&minus(b), &minus(b))));
            let loss = |cell: usize| {
                let r = minus(cell);
                dot(&r, &r) + 2.0 * dot(&r, &first).powi(2) / dot(&first, &first)
            };
            let least = others[..8].iter().map(|&cell| loss(cell)).fold(f64::INFINITY, f64::min);
            let found = loss(place.second.unwrap() as usize);
            assert!(found <= least + 1e-4, "{metric:?}: {found} against {least}");
        }
    }
}

#[test]
fn an_order_goes_through_all_cells_nearest_first() {
    let (dim, mut state) = (4, 5);
    let flat: Vec<f32> = (0..50).flat_map(|_| row(&mut state, Metric::L2, dim)[..dim].to_vec()).collect();
    let cells = Cells::new(Metric::L2, dim, &flat, None, None, 0).unwrap();
    for first in [1, 3, 50, 80] {
        let query = row(&mut state, Metric::L2, dim);
        let mut distances = Vec::new();
        assert!(cells.distances(&query, &mut distances, 1000));
        let all: Vec<u32> = Order::new(&distances, first).collect();
        assert_eq!(all.len(), 50);
        assert!(all.is_sorted_by_key(|&cell| (cells.distance(&query, cell), cell)));
    }
}
