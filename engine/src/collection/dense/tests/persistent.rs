//! Collections whose vectors lie in a file: what comes back after a kill and after a power failure.
use super::bed::{Bed, Rng, check_hits, small_config};
use super::rounds;
use crate::collection::{DenseConfig, IndexType, IvfConfig, Quantizer, Query, WriteError, WriteMode};
use crate::distance::Metric;
use crate::quantizer::Quantization;

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
        if round % 3 == 0 {
            bed.settle();
            bed.check(&mut rng);
        }
    }
}

#[test]
fn nothing_is_lost_in_a_kill_or_a_power_failure() {
    for seed in 0..rounds(6, 200) as u64 {
        let metric = [Metric::L2, Metric::Cosine, Metric::Dot][seed as usize % 3];
        crashes_lose_nothing(&config(metric), seed, seed % 2 == 1);
    }
    let cells = IvfConfig { nlist: 8, ..IvfConfig::default() };
    let config = DenseConfig { quant: Quantizer::None, index: IndexType::Ivf(cells), ..config(Metric::L2) };
    crashes_lose_nothing(&config, 77, true);
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
    assert_eq!(plain.writer.shared().resident_vector_bytes(), 0);
    let resident = bed.writer.shared().resident_vector_bytes();
    assert!((usage.file_vectors / 2..=usage.file_vectors + 4096).contains(&resident), "{resident}");
    // Walks of the one go over vectors, of the other over codes, so edges differ.
    assert!(bed.capture(true, 1 << 20).len() < plain.capture(true, 1 << 20).len() - 2000 * DIM * 3);
    let vector = rng.vector(DIM);
    let exact = Query { exact: true, ..bed.query(&vector, 20) };
    check_hits(&bed.search(&exact), &plain.truth(&vector, 20, None));
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
    assert!(writer.shared().is_sound(&pin, 0, 120) && writer.shared().is_sound(&pin, 121, 200));
    assert!(!writer.shared().is_sound(&pin, 0, 200));
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
        if let Err(error) = bed.writer.check_write(next, &vector, WriteMode::Upsert, None, true, bed.now_ms) {
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
