//! Collections whose vectors lie in a file: what comes back after a kill and after a power failure.
use super::bed::{Bed, Rng, check_hits, small_config};
use super::rounds;
use crate::collection::space::CODEC_PIECE;
use crate::collection::{DenseConfig, IndexType, IvfConfig, Parts, Quantizer, Query, WriteError, WriteMode};
use crate::distance::{Metric, Width};
use crate::quantizer::Quantization;
use crate::record::image::put_code;

const DIM: usize = 24;

fn config(metric: Metric) -> DenseConfig {
    DenseConfig { quant: Quantizer::Sq8, ..small_config(DIM, metric) }
}

/// Images made so far with the writes that they hold, beside a collection that goes on.
struct Saved {
    images: Vec<Vec<u8>>,
    seq: u64,
}

fn churn(bed: &mut Bed, rng: &mut Rng, writes: u64) {
    for _ in 0..writes {
        let id = rng.below(300);
        match rng.below(10) {
            0..5 => {
                let vector = rng.vector(DIM);
                bed.upsert(id, &vector);
            }
            5..7 => bed.delete(id, false),
            7 => bed.rewrite(id, rng.below(5) as i64),
            8 => bed.writer.index_all(),
            _ => _ = bed.writer.repair_step(40),
        }
    }
}

fn crashes_lose_nothing(config: &DenseConfig, seed: u64, power_fails: bool) {
    let mut rng = Rng(seed);
    let mut bed = Bed::persistent(config.clone(), 4096);
    let mut saved = Saved { images: Vec::new(), seq: 0 };
    for round in 0..12 {
        churn(&mut bed, &mut rng, 150);
        if rng.below(3) == 0 {
            bed.settle();
        }
        match rng.below(4) {
            0 => {
                saved = Saved { images: vec![bed.capture(true, 1000)], seq: bed.seq };
                bed.log.clear();
            }
            1 if !saved.images.is_empty() => {
                saved.images.push(bed.capture(false, 1000));
                saved.seq = bed.seq;
                bed.log.clear();
            }
            // One that is lost half-way, as the server is stopped or its disk is full.
            2 => {
                bed.writer.begin_capture(saved.images.is_empty());
                let mut lost = Vec::new();
                for _ in 0..rng.below(30) {
                    if bed.writer.capture_step(500, &mut lost) {
                        break;
                    }
                    churn(&mut bed, &mut rng, 3);
                }
                if rng.below(2) == 0 {
                    bed.file.as_mut().unwrap().sync();
                }
                bed.writer.end_capture(false);
            }
            _ => {}
        }
        let writes = rng.below(90);
        churn(&mut bed, &mut rng, writes);
        if power_fails {
            let left = bed.file.as_ref().unwrap().after_power_failure(&mut rng);
            bed.file = Some(left);
        }
        let images = std::mem::take(&mut saved.images);
        bed.reopen(&images, saved.seq);
        saved.images = images;
        bed.check(&mut rng);
        assert_eq!(bed.writer.shared().space().graph().miscoded(), None);
        if round % 3 == 0 {
            bed.settle();
            bed.check(&mut rng);
            assert_eq!(bed.writer.shared().space().graph().miscoded(), None);
        }
    }
}

#[test]
fn nothing_is_lost_in_a_kill_or_a_power_failure() {
    for seed in 0..rounds(6, 200) as u64 {
        let metric = [Metric::L2, Metric::Cosine, Metric::Dot][seed as usize % 3];
        crashes_lose_nothing(&config(metric), seed, seed % 2 == 1);
    }
    for (seed, quantization) in
        [(78, Quantization::Sign), (79, Quantization::Product { parts: 4, bits: 8, rotations: 0, eta: 1.0 })]
    {
        let quant = Quantizer::Trained(quantization);
        let config = DenseConfig { quant, train_threshold: 100, ..config(Metric::Cosine) };
        crashes_lose_nothing(&config, seed, true);
    }
    let cells = IvfConfig { nlist: 8, ..IvfConfig::default() };
    let config = DenseConfig { quant: Quantizer::None, index: IndexType::Ivf(cells), ..config(Metric::L2) };
    crashes_lose_nothing(&config, 77, true);
}

/// Walks go over codes from the start, which no vector was read for; also over those of the next quantizer, once there is one.
#[test]
fn codes_come_back_with_images() {
    let mut rng = Rng(8);
    let quant = Quantizer::Trained(Quantization::Sign);
    let config = DenseConfig { quant, train_threshold: 40, ..config(Metric::L2) };
    let mut bed = Bed::persistent(config, 4096);
    let mut images = Vec::new();
    for (step, points) in [30, 60, 70, 2000].into_iter().enumerate() {
        for id in bed.twin.len() as u64..points {
            // The last lie elsewhere.
            let vector: Vec<f32> =
                rng.vector(DIM).iter().map(|x| x + if step == 3 { 5.0 } else { 0.0 }).collect();
            bed.upsert(id, &vector);
        }
        bed.settle();
        let number = bed.writer.shared().space().graph().codes_number();
        assert_eq!(number, [0, 1, 1, 2][step]);
        let full = bed.writer.space().codes_unsaved();
        assert_eq!(full, step % 2 == 1, "{step}");
        if full {
            // One of changes has the new codes of some points only.
            let mut lacking = images.clone();
            lacking.push(bed.capture(false, 500));
            assert!(bed.writer.space().codes_unsaved());
            bed.reopen(&lacking, bed.seq);
            assert!(!bed.writer.shared().space().graph().is_quantized());
            bed.settle();
            assert!(bed.writer.space().codes_unsaved());
            images.clear();
        }
        images.push(bed.capture(images.is_empty(), 500));
        assert!(!bed.writer.space().codes_unsaved());
        bed.reopen(&images, bed.seq);
        assert_eq!(bed.writer.shared().space().graph().codes_number(), number);
        assert_eq!(bed.writer.shared().space().graph().miscoded(), None);
        assert!(!bed.writer.space().codes_unsaved() && !bed.writer.space().training_unsaved());
        bed.check(&mut rng);
    }
    // A point that is written and one that is deleted after the image, and a slot that is used again.
    let vector = rng.vector(DIM);
    bed.upsert(7, &vector);
    bed.delete(9, false);
    bed.settle();
    images.push(bed.capture(false, 500));
    bed.upsert(5000, &vector);
    bed.settle();
    images.push(bed.capture(false, 500));
    bed.reopen(&images, bed.seq);
    assert!(bed.writer.shared().space().graph().is_quantized());
    assert_eq!(bed.writer.shared().space().graph().miscoded(), None);
    bed.check(&mut rng);
    // Damage is an error, and not a wild code.
    for (slot, code, what) in [
        (3, &[2, 0, 0][..], "a code of 2 bytes of slot 3"),
        (3, &[], "a code of no quantizer"),
        (4000, &[2, 0], "a code of slot 4000, which no image holds"),
    ] {
        let mut writer = bed.fresh_writer();
        writer.restore(&images[0]).unwrap();
        let mut record = Vec::new();
        put_code(&mut record, slot, code);
        let error = writer.restore(&record).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}

/// A quantizer that is trained while an image is written: what has its codes has it too, and before them.
#[test]
fn an_image_may_be_taken_while_a_quantizer_is_trained() {
    // What is learned takes several pieces.
    const WIDE: usize = 128;
    for full in [true, false] {
        for steps in [0, 3, 10, 100] {
            let mut rng = Rng(40 + steps);
            let product = Quantization::Product { parts: 8, bits: 8, rotations: 0, eta: 0.0 };
            let quant = Quantizer::Trained(product);
            let config = DenseConfig { quant, train_threshold: 200, ..small_config(WIDE, Metric::Cosine) };
            let mut bed = Bed::persistent(config, 4096);
            (0..100).for_each(|id| bed.upsert(id, &rng.vector(WIDE)));
            let mut images = vec![bed.capture(true, 500)];
            (100..250).for_each(|id| bed.upsert(id, &rng.vector(WIDE)));
            bed.writer.begin_capture(full);
            let mut image = Vec::new();
            let mut complete = (0..steps).any(|_| bed.writer.capture_step(100, &mut image));
            bed.writer.index_all();
            assert!(bed.writer.shared().space().graph().is_quantized());
            assert!(bed.writer.shared().space().graph().save_codec().len() > 3 * CODEC_PIECE);
            bed.upsert(3, &rng.vector(WIDE));
            if complete {
                bed.writer.end_capture(false);
                bed.writer.begin_capture(full);
                image.clear();
                complete = false;
            }
            while !complete {
                complete = bed.writer.capture_step(100, &mut image);
            }
            bed.file.as_mut().unwrap().sync();
            bed.writer.end_capture(true);
            if full {
                images.clear();
            }
            images.push(image);
            bed.reopen(&images, bed.seq);
            bed.check(&mut rng);
            bed.settle();
            assert!(bed.writer.shared().space().graph().is_quantized());
            assert_eq!(bed.writer.shared().space().graph().miscoded(), None);
            bed.check(&mut rng);
        }
    }
}

#[test]
fn vectors_and_index_do_not_count_as_memory() {
    let mut rng = Rng(5);
    let quant = Quantizer::Trained(Quantization::Sign);
    let config = DenseConfig { quant, ..config(Metric::Cosine) };
    let (mut bed, mut plain) = (Bed::persistent(config.clone(), 4096), Bed::new(config, 4096));
    for id in 0..2000 {
        let vector = rng.vector(DIM);
        bed.upsert(id, &vector);
        plain.upsert(id, &vector);
    }
    bed.settle();
    plain.settle();
    let (usage, without) = (bed.writer.shared().usage(), plain.writer.shared().usage());
    assert_eq!(usage.file_vectors, 2000 * 32 * 4, "padded to whole lines");
    assert!(usage.file_index >= 2000 * 18 * 4, "{usage:?}");
    assert_eq!((without.file_vectors, without.file_index), (0, 0));
    assert!(usage.graph + usage.file_vectors < without.graph, "{usage:?} {without:?}");
    assert_eq!(plain.writer.shared().space().resident_vector_bytes(), 0);
    let resident = bed.writer.shared().space().resident_vector_bytes();
    assert!((usage.file_vectors / 2..=usage.file_vectors + 4096).contains(&resident), "{resident}");
    // Walks of the one go over vectors, of the other over codes, so edges differ.
    assert!(bed.capture(true, 1 << 20).len() < plain.capture(true, 1 << 20).len() - 2000 * DIM * 3);
    let vector = rng.vector(DIM);
    let exact = Query { exact: true, ..bed.query(&vector, 20) };
    check_hits(&bed.search(&exact), &plain.truth(&vector, 20, None));
}

/// What every step of a walk needs is not left to a disk; it counts as memory then, also after a start.
#[test]
fn codes_that_are_small_stay_in_memory() {
    let mut rng = Rng(15);
    for (quantization, in_memory) in
        [(Quantization::Sign, 400 * 12), (Quantization::Scalar { width: Width::Four }, 0)]
    {
        let quant = Quantizer::Trained(quantization);
        let config = DenseConfig { quant, train_threshold: 100, ..small_config(64, Metric::Cosine) };
        let mut bed = Bed::persistent(config, 4096);
        for id in 0..400 {
            bed.upsert(id, &rng.vector(64));
        }
        bed.settle();
        let image = bed.capture(true, 1 << 20);
        for _ in 0..2 {
            let usage = bed.writer.shared().usage();
            assert!(bed.writer.shared().space().graph().is_quantized());
            // And what was learned: a rotation, or two floats per component.
            let learned = if in_memory > 0 { 64 * 64 * 4 + 1024 } else { 1024 };
            assert!((in_memory..in_memory + learned).contains(&usage.codes), "{usage:?}");
            bed.reopen(std::slice::from_ref(&image), bed.seq);
        }
    }
}

#[test]
fn a_file_that_is_too_short_or_changed_is_found_out() {
    let mut rng = Rng(6);
    let mut bed = Bed::persistent(config(Metric::L2), 4096);
    for id in 0..200 {
        bed.upsert(id, &rng.vector(DIM));
    }
    let image = bed.capture(true, 1 << 20);
    let file = bed.file.take().unwrap();
    file.cut(150 * 32 * 4);
    bed.file = Some(file);
    let error = bed.fresh_writer().restore(&image).unwrap_err();
    assert!(error.to_string().contains("the file of vectors ends before that of slot 150"), "{error}");
    let error = Bed::new(config(Metric::L2), 4096).fresh_writer().restore(&image).unwrap_err();
    assert!(error.to_string().contains("in a file that is not here"), "{error}");

    let mut bed = Bed::persistent(config(Metric::L2), 4096);
    for id in 0..200 {
        bed.upsert(id, &rng.vector(DIM));
    }
    let image = bed.capture(true, 1 << 20);
    bed.file.as_ref().unwrap().flip(120 * 128 + 9);
    let mut writer = bed.fresh_writer();
    writer.restore(&image).unwrap();
    writer.finish_restore(bed.seq).unwrap();
    let pin = bed.seat.pin();
    assert!(
        writer.shared().space().is_sound(&pin, 0, 120) && writer.shared().space().is_sound(&pin, 121, 200)
    );
    assert!(!writer.shared().space().is_sound(&pin, 0, 200));
}

#[test]
fn a_full_disk_refuses_the_write_and_nothing_else() {
    let mut rng = Rng(7);
    let mut bed = Bed::persistent(config(Metric::L2), 1 << 20);
    bed.upsert(0, &rng.vector(DIM));
    bed.file.as_ref().unwrap().grow_no_more();
    let mut next = 1;
    let refused = loop {
        let vector = rng.vector(DIM);
        if let Err(error) =
            bed.writer.check_write(next, Parts::Only(&vector), WriteMode::Upsert, None, || true, bed.now_ms)
        {
            break error;
        }
        bed.upsert(next, &vector);
        next += 1;
    };
    assert!(matches!(refused, WriteError::NoSpace(_)), "{refused}");
    assert!((8000..9000).contains(&next), "a step of 1 MiB is used up: {next}");
    bed.delete(3, false);
    bed.check(&mut rng);
    // Places come back with the next image.
    for id in 4..100 {
        bed.delete(id, false);
    }
    bed.settle();
    assert!(bed.writer.commit_next().is_err());
    bed.capture(true, 1 << 20);
    bed.upsert(5, &rng.vector(DIM));
    bed.check(&mut rng);
}
