//! Graphs whose vectors are given up for the codes of a product quantizer.
use super::bed::{Bed, Rng, group_is, small_config};
use crate::collection::{DenseConfig, Parts, Quantizer, Query, WriteError, WriteMode};
use crate::distance::{Kernel, Metric, padded, prepare};
use crate::index::JobStep;
use crate::quantizer::Quantization;

const DIM: usize = 64;

fn config(metric: Metric) -> DenseConfig {
    let quant = Quantizer::Trained(Quantization::Product { parts: 16, bits: 8, rotations: 1, eta: 0.0 });
    DenseConfig { quant, pq_drop_vecs: true, train_threshold: 300, ..small_config(DIM, metric) }
}

/// What is read of all points, by id.
fn readable(bed: &Bed) -> Vec<(u64, Vec<f32>)> {
    let pin = bed.seat.pin();
    let shared = bed.writer.shared();
    bed.twin.keys().map(|&id| (id, shared.get(&pin, id, bed.now_ms).unwrap().vector.to_vec())).collect()
}

/// Searches score what reads show, and find most of what is near by that.
fn check(bed: &Bed, rng: &mut Rng) {
    let (kernel, points) = (Kernel::of(bed.config.metric), readable(bed));
    let padded_of = |vector: &[f32]| {
        let mut row = vec![0.0; padded(DIM)];
        row[..DIM].copy_from_slice(vector);
        row
    };
    let (mut found, mut wanted) = (0, 0);
    for at in 0..20 {
        let vector = rng.vector(DIM);
        let mut query = vec![0.0; padded(DIM)];
        prepare(bed.config.metric, &vector, &mut query);
        let group = (at % 2 == 1).then_some(at % 5);
        let in_group = |id: &u64| group.is_none_or(|group| bed.twin[id].group == group as i64);
        let mut truth: Vec<(f32, u64)> = points
            .iter()
            .filter(|(id, _)| in_group(id))
            .map(|(id, vector)| (kernel.distance(&query, &padded_of(vector)), *id))
            .collect();
        truth.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let filter = group.map(|group| group_is(group as i64));
        for exact in [true, false] {
            let hits =
                bed.search(&Query { exact, filter: filter.as_ref(), ef: 100, ..bed.query(&vector, 10) });
            assert_eq!(hits.len(), 10.min(truth.len()));
            for (at, hit) in hits.iter().enumerate() {
                let told = truth.iter().find(|near| near.1 == hit.id).unwrap().0;
                assert!((hit.distance - told).abs() < 1e-3 * told.abs().max(1.0), "{} {told}", hit.distance);
                if exact {
                    assert!((hit.distance - truth[at].0).abs() < 1e-3 * told.abs().max(1.0));
                }
            }
            wanted += hits.len();
            found +=
                hits.iter().filter(|hit| truth[..hits.len()].iter().any(|near| near.1 == hit.id)).count();
        }
    }
    assert!(found * 10 >= wanted * 9, "{found} of {wanted}");
}

#[test]
fn vectors_go_once_codes_are_trained_and_all_is_linked() {
    for metric in [Metric::Cosine, Metric::L2, Metric::Dot] {
        let mut rng = Rng(31);
        let mut bed = Bed::new(config(metric), 8192);
        for id in 0..2000 {
            bed.upsert(id, &rng.vector(DIM));
        }
        let floats = readable(&bed);
        bed.capture(true, 1 << 20);
        // A reader that began before keeps what it looks at.
        let early = bed.domain.participant(1);
        let pin = early.pin();
        bed.settle();
        let shared = bed.writer.shared().clone();
        assert!(shared.space().graph().is_bare());
        assert_eq!(shared.space().graph().vector(7)[..DIM], floats[7].1, "still there");
        drop(pin);
        (0..200).for_each(|_| bed.writer.reclaim());
        let (usage, row_bytes) = (shared.usage(), (padded(DIM) * 4) as u64);
        assert!(usage.graph < 2000 * row_bytes, "edges only: {usage:?}");
        let codes = readable(&bed);
        let off = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
        let (error, length) = floats.iter().zip(&codes).fold((0.0, 0.0), |(error, length), (a, b)| {
            (error + off(&a.1, &b.1), length + off(&a.1, &[0.0; DIM]))
        });
        assert!(error > 0.0 && error < 0.5 * length, "{error} of {length}");
        check(&bed, &mut rng);

        let refused = bed
            .writer
            .check_write(9, Parts::Only(&rng.vector(DIM)), WriteMode::Upsert, None, || true, bed.now_ms)
            .unwrap_err();
        assert_eq!(refused, WriteError::ReadOnly);
        let absent = bed.writer.check_write(
            9999,
            Parts::Only(&rng.vector(DIM)),
            WriteMode::Insert,
            None,
            || true,
            bed.now_ms,
        );
        assert_eq!(absent, Err(WriteError::ReadOnly));
        for id in 0..600 {
            if id % 3 == 0 { bed.delete(id, false) } else { bed.rewrite(id, (id % 4) as i64) }
        }
        bed.settle();
        check(&bed, &mut rng);

        // Images have codes and no vectors, also those of changes.
        let codes = readable(&bed);
        assert!(bed.writer.space().codes_unsaved());
        let mut images = vec![bed.capture(true, 700)];
        assert!(!bed.writer.space().codes_unsaved());
        for _ in 0..3 {
            bed.reopen(&images, bed.seq);
            let shared = bed.writer.shared();
            assert!(shared.space().graph().is_bare() && !bed.writer.space().codes_unsaved());
            assert_eq!(readable(&bed), codes);
            assert!(shared.usage().graph < 2000 * row_bytes);
            let again = bed.writer.check_write(
                9,
                Parts::Only(&rng.vector(DIM)),
                WriteMode::Upsert,
                None,
                || true,
                bed.now_ms,
            );
            assert_eq!(again, Err(WriteError::ReadOnly));
            check(&bed, &mut rng);
            bed.rewrite(1, 3);
            images.push(bed.capture(false, 700));
        }
        let mut writer = bed.fresh_writer();
        writer.restore(&images[0]).unwrap();
        // Of a point that came without a vector, and then without its code.
        let mut lacking = Vec::new();
        crate::record::image::put_code(&mut lacking, 700, &[9, 0]);
        writer.restore(&lacking).unwrap();
        assert!(writer.finish_restore(bed.seq).is_err(), "an image without an end");
    }
}

#[test]
fn writes_end_with_the_training_and_not_before() {
    let mut rng = Rng(32);
    let mut bed = Bed::new(DenseConfig { train_threshold: 0, ..config(Metric::L2) }, 8192);
    for id in 0..3000 {
        bed.upsert(id, &rng.vector(DIM));
    }
    bed.settle();
    assert!(
        !bed.writer.shared().space().graph().is_quantized(),
        "a bulk build trains, or a threshold that is given"
    );
    bed.check(&mut rng);
    let mut trained = false;
    loop {
        match bed.writer.next_job(0, true) {
            JobStep::Idle => break,
            JobStep::More => {}
            JobStep::Run(job) => {
                let done = job.run();
                if !trained {
                    bed.upsert(5000, &rng.vector(DIM));
                }
                trained |= done.is_training();
                bed.writer.space_mut().finish_job(done).unwrap();
                let refused = bed.writer.check_write(
                    1,
                    Parts::Only(&[0.5; DIM]),
                    WriteMode::Upsert,
                    None,
                    || true,
                    bed.now_ms,
                );
                assert_eq!(refused, Err(WriteError::ReadOnly));
            }
        }
    }
    // What came while it was trained is linked before vectors go.
    assert!(bed.writer.shared().space().graph().is_quantized() && !bed.writer.give_up_step(0));
    assert!(!bed.writer.shared().space().graph().is_bare());
    bed.check(&mut rng);
    bed.settle();
    assert!(bed.writer.shared().space().graph().is_bare());
    check(&bed, &mut rng);
}

/// What codes stood for is gone with the points, so that there is no reason to refuse others.
#[test]
fn a_collection_that_is_emptied_takes_points_again() {
    let mut rng = Rng(33);
    let mut bed = Bed::new(config(Metric::L2), 8192);
    (0..600).for_each(|id| bed.upsert(id, &rng.vector(DIM)));
    bed.settle();
    assert!(bed.writer.shared().space().graph().is_bare());
    let mut images = vec![bed.capture(true, 700)];
    (0..600).for_each(|id| bed.delete(id, false));
    bed.settle();
    images.push(bed.capture(false, 700));
    for _ in 0..2 {
        assert!(!bed.writer.shared().space().graph().is_bare());
        bed.reopen(&images, bed.seq);
    }
    (0..600).for_each(|id| bed.upsert(id, &rng.vector(DIM)));
    bed.check(&mut rng);
    bed.settle();
    assert!(bed.writer.shared().space().graph().is_bare());
    check(&bed, &mut rng);
    images.push(bed.capture(false, 700));
    bed.reopen(&images, bed.seq);
    bed.settle();
    check(&bed, &mut rng);
}
