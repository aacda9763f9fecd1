//! Walks over the codes of a trained quantizer, and how it comes to be.
use super::churn::Churn;
use super::*;
use crate::distance::{Kernel, Width};
use crate::index::{Job, JobStep, Living, Quantized};
use crate::quantizer::Quantization;

const DIM: usize = 64;

fn quantized(quantization: Quantization, metric: Metric, threshold: usize, capacity: usize) -> GraphConfig {
    GraphConfig {
        quantized: Some(Quantized { quantization, threshold, plans: false, once: false }),
        rescore_factor: 3,
        ..config(DIM, metric, 8, capacity)
    }
}

fn kinds() -> [Quantization; 6] {
    [
        Quantization::Scalar { width: Width::Eight },
        Quantization::Scalar { width: Width::Four },
        Quantization::Sign,
        Quantization::Product { parts: 16, bits: 8, rotations: 0, eta: 0.0 },
        Quantization::Product { parts: 32, bits: 4, rotations: 1, eta: 0.0 },
        Quantization::Residual { parts: 8, layers: 2, rotations: 0 },
    ]
}

/// The next job; `None` when nothing is due. Every slot that was ever written holds a point.
fn next(graph: &Graph, force: bool) -> Option<Job> {
    loop {
        for _ in 0..graph.retire_codes() {
            // SAFETY: no test keeps what a search has seen.
            unsafe { graph.codes_are_quiescent() };
        }
        match graph.next_job(force, &Living { count: graph.slots_end(), seq: 0, is_live: &|_| true }) {
            JobStep::Idle => return None,
            JobStep::More => {}
            JobStep::Run(job) if job.frees() => graph.finish_job(job.run()).unwrap(),
            JobStep::Run(job) => return Some(job),
        }
    }
}

fn finish(graph: &Graph, force: bool) {
    while let Some(job) = next(graph, force) {
        graph.finish_job(job.run()).unwrap();
    }
}

#[test]
fn walks_over_codes_find_the_nearest_at_exact_distances() {
    let n = 3_000;
    for metric in [Metric::Cosine, Metric::L2, Metric::Dot] {
        let (plain, ..) = built(config(DIM, metric, 8, n), n, 40);
        for quantization in kinds() {
            let (graph, data, mut rng) = built(quantized(quantization, metric, 1, n), n, 40);
            assert!(!graph.is_quantized() && graph.quantized_bytes() == 0, "nobody has trained it");
            finish(&graph, false);
            assert!(graph.is_quantized(), "{quantization:?}");
            assert!(graph.quantized_bytes() >= n * quantization.code_len(metric, DIM));
            assert_eq!(graph.bytes() - graph.quantized_bytes(), plain.bytes());
            let live: BTreeSet<Slot> = (0..n as Slot).collect();
            let queries: Vec<Vec<f32>> = (0..60).map(|_| data.point(&mut rng, metric)).collect();
            // Points of one cluster are hard to tell apart by few bits; among some hundred candidates all are there.
            for (ef, least) in [(100, 0.8), (400, 0.97)] {
                let coarse = if quantization == Quantization::Sign { 0.2 } else { 0.0 };
                let found = recall(&graph, &queries, &live, 10, ef);
                assert!(found >= least - coarse, "{quantization:?} {metric:?} {ef}: {found}");
            }
            let (kernel, mut scratch) = (Kernel::of(metric), Scratch::new());
            for query in &queries {
                let found = graph.search(query, 10, 64, &mut scratch, |slot| slot % 3 > 0);
                assert!(found.len() >= 30 && found.is_sorted(), "three times as many are scored exactly");
                for near in found {
                    assert!(near.slot % 3 > 0);
                    assert_eq!(
                        near.distance.to_bits(),
                        kernel.distance(query, graph.vector(near.slot)).to_bits()
                    );
                }
            }
        }
    }
}

/// Edges chosen by codes lead to the nearest about as well, and are the same however the work is shared out.
#[test]
fn edges_are_chosen_by_codes() {
    let (n, first) = (3_000, 500);
    for metric in [Metric::Cosine, Metric::L2, Metric::Dot] {
        for quantization in kinds() {
            let built = |plans: bool| {
                let mut config = quantized(quantization, metric, 1, n);
                config.codes = false;
                config.quantized.iter_mut().for_each(|quantized| quantized.plans = plans);
                let graph = Graph::new(config).unwrap();
                let mut rng = Rng::new(9);
                let data = Clusters::new(&mut rng, DIM, 40, 0.3);
                (0..n as Slot).for_each(|slot| graph.write_vector(slot, &data.point(&mut rng, metric)));
                let points: Vec<(Slot, u64)> = (0..n as Slot).map(|slot| (slot, u64::from(slot))).collect();
                insert_all(&graph, &points[..first], |_| false);
                finish(&graph, true);
                insert_all(&graph, &points[first..], |_| false);
                assert_eq!(graph.plans_coded(), plans);
                let linked: BTreeSet<Slot> = (0..n as Slot).collect();
                check_invariants(&graph, &linked);
                let queries: Vec<Vec<f32>> = (0..60).map(|_| data.point(&mut rng, metric)).collect();
                (recall(&graph, &queries, &linked, 10, 200), graph)
            };
            let ((by_vectors, plain), (by_codes, coded)) = (built(false), built(true));
            let lists = |graph: &Graph| {
                let mut lists = Vec::new();
                (0..n as Slot)
                    .for_each(|slot| graph.edges(slot, &mut |_, edges| lists.extend_from_slice(edges)));
                lists
            };
            assert_ne!(lists(&plain), lists(&coded), "codes decide");
            assert!(
                by_codes > by_vectors - 0.03,
                "{quantization:?} {metric:?}: {by_codes} after {by_vectors}"
            );
        }
    }
}

#[test]
fn training_waits_for_enough_vectors_unless_it_is_forced() {
    let sign = quantized(Quantization::Sign, Metric::Cosine, 500, 1_000);
    let (graph, ..) = built(sign.clone(), 499, 5);
    assert!(next(&graph, false).is_none());
    let job = next(&graph, true).expect("any number will do");
    assert!(next(&graph, true).is_none(), "one at a time");
    graph.finish_job(job.run()).unwrap();
    finish(&graph, false);
    assert!(graph.is_quantized());
    let (empty, ..) = built(sign, 1, 1);
    assert!(next(&empty, true).is_none(), "nothing to learn from");
}

#[test]
fn results_for_another_graph_are_ignored() {
    let make = || built(quantized(Quantization::Sign, Metric::Cosine, 1, 100), 100, 5).0;
    let (old, fresh) = (make(), make());
    let stale = next(&old, false).unwrap().run();
    fresh.finish_job(stale).unwrap();
    let own = next(&fresh, false).unwrap();
    fresh.finish_job(next(&make(), false).unwrap().run()).unwrap();
    assert!(next(&fresh, false).is_none(), "its own is still out");
    fresh.finish_job(own.run()).unwrap();
    finish(&fresh, false);
    assert!(fresh.is_quantized());
}

#[test]
fn what_is_written_while_jobs_are_out_has_its_code() {
    let n = 6_000;
    for (quantization, plans) in
        [(kinds()[1], false), (kinds()[3], false), (kinds()[1], true), (kinds()[2], true)]
    {
        let mut config = quantized(quantization, Metric::L2, 300, n);
        config.quantized.iter_mut().for_each(|quantized| quantized.plans = plans);
        let mut churn = Churn::new(config, 60, 5);
        let mut out: Option<Job> = None;
        let mut published = 0;
        while churn.live.len() < n - 500 {
            churn.insert(150);
            // A job goes out now and comes back after the next points, some of them in slots that were freed.
            out = match out {
                None => next(&churn.graph, false),
                Some(job) => {
                    churn.graph.finish_job(job.run()).unwrap();
                    None
                }
            };
            churn.delete(20);
            if churn.live.len().is_multiple_of(3) {
                churn.repair();
            }
            published += usize::from(churn.graph.is_quantized());
        }
        churn.repair();
        let Churn { graph, .. } = &churn;
        out.into_iter().for_each(|job| graph.finish_job(job.run()).unwrap());
        finish(graph, false);
        assert!(published > 0 && graph.is_quantized());
        assert_eq!(graph.plans_coded(), plans);
        assert_eq!(churn.unreachable(), 0);
        let Churn { graph, live, .. } = &churn;
        // The codes are those of the vectors: each point is the nearest to its own.
        let mut scratch = Scratch::new();
        let lost = live.iter().filter(|&&slot| {
            let found = graph.search(graph.vector(slot), 1, 64, &mut scratch, |slot| live.contains(&slot));
            found[0].slot != slot
        });
        let lost = lost.count();
        assert!(lost <= live.len() / 150, "{quantization:?}: {lost} of {} lost", live.len());
    }
}

#[test]
fn more_vectors_train_anew_while_walks_go_on() {
    let n = 4_500;
    let (few, many) = (500, n - 500);
    let mut rng = Rng::new(6);
    let data = Clusters::new(&mut rng, DIM, 60, 0.3);
    let graph = Graph::new(quantized(kinds()[3], Metric::Cosine, 400, n)).unwrap();
    let insert = |from: usize, count: usize, rng: &mut Rng| {
        let points: Vec<(Slot, u64)> = (from..from + count).map(|slot| (slot as Slot, slot as u64)).collect();
        points.iter().for_each(|&(slot, _)| graph.write_vector(slot, &data.point(rng, Metric::Cosine)));
        insert_all(&graph, &points, |_| false);
    };
    insert(0, few, &mut rng);
    finish(&graph, false);
    assert!(graph.is_quantized());
    let before = graph.quantized_bytes();
    insert(few, many, &mut rng);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut scratch, mut looks) = (Scratch::new(), 0);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) || looks < 50 {
                let slot = (looks * 37 % few) as Slot;
                let found = graph.search(graph.vector(slot), 1, 64, &mut scratch, |_| true);
                assert_eq!(found[0].slot, slot);
                looks += 1;
            }
        });
        // Nothing is freed while the other thread may look at it.
        let living = Living { count: n, seq: 0, is_live: &|_| true };
        let mut trainings = 0;
        loop {
            match graph.next_job(false, &living) {
                JobStep::Idle => break,
                JobStep::More => {}
                JobStep::Run(job) => {
                    trainings += usize::from(job.is_training());
                    graph.finish_job(job.run()).unwrap();
                }
            }
        }
        assert_eq!(trainings, 1, "many more than it was trained on");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert!(graph.quantized_bytes() > before + many * 16, "codes of both are kept for walks under way");
    assert!(next(&graph, false).is_none());
    assert_eq!(graph.quantized_bytes(), before + many * 16, "and no longer");
    let live = (0..n as Slot).collect();
    let queries: Vec<Vec<f32>> = (0..60).map(|_| data.point(&mut rng, Metric::Cosine)).collect();
    assert!(recall(&graph, &queries, &live, 10, 300) > 0.97);
    assert!(next(&graph, false).is_none());
}

#[test]
fn a_job_that_fails_leaves_walks_as_they_were() {
    let metric = Metric::Cosine;
    let (graph, data, mut rng) = built(quantized(kinds()[3], metric, 200, 3_000), 250, 10);
    // The training fails, and is not tried again and again.
    let ticket = next(&graph, false).unwrap().ticket();
    graph.fail_job(ticket);
    assert!(next(&graph, false).is_none() && !graph.is_quantized());
    // With eight times as many it is, and its first codes fail.
    let points: Vec<(Slot, u64)> = (250..2_000).map(|slot| (slot, u64::from(slot))).collect();
    points.iter().for_each(|&(slot, _)| graph.write_vector(slot, &data.point(&mut rng, metric)));
    insert_all(&graph, &points, |_| false);
    graph.finish_job(next(&graph, false).unwrap().run()).unwrap();
    let codes = next(&graph, false).unwrap();
    graph.fail_job(codes.ticket());
    assert!(next(&graph, false).is_none() && !graph.is_quantized());
    graph.write_vector(2_000, &data.point(&mut rng, metric));
    insert_all(&graph, &[(2_000, 2_000)], |_| false);
    let queries: Vec<Vec<f32>> = (0..40).map(|_| data.point(&mut rng, metric)).collect();
    assert!(recall(&graph, &queries, &(0..2_001).collect(), 10, 100) > 0.97);
}
