//! Images: round trips, chains, and bytes that are not what they should be.
use super::bed::{Bed, Rng, small_config};
use super::rounds;
use crate::collection::{Quantizer, WriteMode::Upsert};
use crate::distance::{Metric, Width};
use crate::index::JobStep;
use crate::quantizer::Quantization;

/// Some points in the graph, some in the tail, some dead ones, a deadline.
fn bed(seed: u64) -> Bed {
    let mut rng = Rng(seed);
    let mut bed = Bed::new(small_config(3, Metric::L2), 256);
    for id in 0..90 {
        let vector = rng.vector(3);
        bed.upsert(id, &vector);
    }
    bed.writer.index_all();
    for id in 0..20 {
        bed.delete(id * 2, false);
    }
    for id in 200..210 {
        let vector = rng.vector(3);
        bed.write(Upsert, id, &vector, 1, bed.now_ms + 500);
    }
    bed.delete(205, false);
    bed
}

#[test]
fn an_image_shows_the_same_collection() {
    let mut bed = bed(1);
    let image = bed.capture(true, 300);
    let before = bed.writer.shared().stats();
    bed.reopen(std::slice::from_ref(&image), bed.seq);
    let after = bed.writer.shared().stats();
    assert_eq!((before.live, before.tail), (after.live, after.tail));
    assert_eq!(after.tombstoned, 20, "dead points of the graph stay way-points; of the tail nothing stays");
    bed.check(&mut Rng(2));
    assert!(bed.capture(false, usize::MAX).len() < 100, "nothing has changed since");
    let again = bed.capture(true, usize::MAX);
    assert_eq!(again.len(), image.len(), "an image of the restored collection holds the same");
    bed.reopen(&[again], bed.seq);
    bed.check(&mut Rng(2));
    bed.settle();
    bed.check(&mut Rng(3));
}

#[test]
fn empty_images_and_none_at_all_open() {
    let mut bed = Bed::new(small_config(3, Metric::L2), 256);
    let image = bed.capture(true, usize::MAX);
    bed.reopen(&[image], 0);
    bed.check(&mut Rng(1));
    bed.reopen(&[], 0);
    bed.upsert(1, &[1.0, 2.0, 3.0]);
    bed.check(&mut Rng(1));
    // Deletes of absent ids raise the sequence number and leave no trace.
    bed.reopen(&[], 0);
    assert!(!bed.writer.apply_delete(2, 77));
    assert_eq!(bed.writer.seq(), 2);
}

#[test]
fn deltas_hold_what_changed_only() {
    let mut rng = Rng(9);
    let mut bed = Bed::new(small_config(16, Metric::Cosine), 4096);
    for id in 0..1000 {
        let vector = rng.vector(16);
        bed.upsert(id, &vector);
    }
    bed.settle();
    let mut images = vec![bed.capture(true, 1 << 16)];
    assert!(bed.writer.image_bytes(false) as f64 > 0.5 * images[0].len() as f64);
    assert!((bed.writer.image_bytes(false) as f64) < 2.0 * images[0].len() as f64);
    for round in 0..10 {
        for id in 0..8 {
            let vector = rng.vector(16);
            bed.upsert(round * 50 + id, &vector);
            bed.delete(999 - round * 4, false);
        }
        bed.settle();
        images.push(bed.capture(false, 1 << 12));
        assert!(images.last().unwrap().len() < images[0].len() / 4, "round {round}");
        bed.reopen(&images, bed.seq);
        bed.check(&mut rng);
    }
    assert!(bed.recall(&mut rng, 50, 60) > 0.9);
    assert_eq!(bed.lost(60), 0);
}

#[test]
fn writes_during_a_capture_are_in_it_or_in_the_log() {
    let mut rng = Rng(4);
    let mut bed = bed(4);
    let mut image = Vec::new();
    bed.writer.begin_capture(true);
    let mut steps = 0;
    while !bed.writer.capture_step(200, &mut image) {
        steps += 1;
        for _ in 0..2 {
            let (id, vector) = (rng.below(90), rng.vector(3));
            bed.upsert(id, &vector);
        }
        bed.delete(rng.below(90), false);
        bed.writer.index_all();
        bed.writer.repair_step(50);
    }
    assert!(steps > 5);
    let captured = bed.seq;
    bed.writer.end_capture(true);
    bed.log.retain(|logged| logged.seq() > captured);
    bed.reopen(&[image], captured);
    bed.check(&mut rng);
}

#[test]
fn a_capture_ends_under_any_load() {
    let mut rng = Rng(8);
    let mut bed = Bed::new(small_config(2, Metric::L2), 1 << 16);
    for id in 0..2000 {
        bed.upsert(id, &rng.vector(2));
    }
    bed.writer.begin_capture(true);
    let mut steps = 0;
    let mut image = Vec::new();
    while !bed.writer.capture_step(1000, &mut image) {
        steps += 1;
        assert!(steps < 100_000);
        // More changes than a step captures.
        for _ in 0..60 {
            let (id, vector) = (rng.below(2000), rng.vector(2));
            bed.upsert(id, &vector);
        }
    }
    bed.reopen(&[image], bed.seq);
    bed.check(&mut rng);
}

#[test]
fn a_lost_capture_counts_as_changed() {
    let mut bed = bed(3);
    let base = bed.capture(true, usize::MAX);
    bed.upsert(3, &[9.0, 9.0, 9.0]);
    bed.delete(5, false);
    let mut lost = Vec::new();
    bed.writer.begin_capture(false);
    bed.writer.capture_step(50, &mut lost);
    bed.upsert(7, &[8.0, 8.0, 8.0]);
    bed.writer.end_capture(false);
    let delta = bed.capture(false, usize::MAX);
    bed.reopen(&[base, delta], bed.seq);
    bed.check(&mut Rng(3));
}

/// A disk that has no room for a full image has to have room for what changed, or it never gets its logs back.
#[test]
fn a_lost_full_capture_leaves_what_had_changed() {
    for steps in [0, 1, 5, usize::MAX] {
        let mut rng = Rng(11);
        let mut bed = Bed::new(small_config(16, Metric::L2), 4096);
        for id in 0..1000 {
            bed.upsert(id, &rng.vector(16));
        }
        bed.settle();
        let mut images = vec![bed.capture(true, usize::MAX)];
        for id in 0..10 {
            bed.upsert(id, &rng.vector(16));
            bed.delete(900 + id, false);
        }
        bed.settle();
        let mut lost = Vec::new();
        bed.writer.begin_capture(true);
        for step in 0..steps {
            if bed.writer.capture_step(2000, &mut lost) {
                assert!(step > 20, "there is something to lose");
                break;
            }
            // Ahead of where the capture stands, and behind it; new ids take slots that were freed.
            if step < 5 {
                bed.upsert(990 + step as u64, &rng.vector(16));
                bed.upsert(20 + step as u64, &rng.vector(16));
                bed.upsert(5000 + step as u64, &rng.vector(16));
                bed.delete(950 + step as u64, false);
            }
        }
        bed.writer.end_capture(false);
        images.push(bed.capture(false, usize::MAX));
        assert!(images[1].len() < images[0].len() / 2, "{steps} steps: {} bytes", images[1].len());
        let captured = bed.seq;
        bed.log.clear();
        bed.reopen(&images, captured);
        bed.check(&mut rng);
        // The same again, with nothing changed: the next image is about empty.
        bed.writer.begin_capture(true);
        bed.writer.capture_step(usize::MAX, &mut lost);
        bed.writer.end_capture(false);
        assert!(bed.capture(false, usize::MAX).len() < 100);
    }
}

#[test]
fn damaged_images_are_refused_or_harmless() {
    let mut bed = bed(2);
    let base = bed.capture(true, usize::MAX);
    bed.upsert(3, &[9.0, 9.0, 9.0]);
    bed.delete(61, false);
    bed.writer.index_all();
    let delta = bed.capture(false, usize::MAX);
    let seq = bed.seq;
    let open = |base: &[u8], delta: &[u8]| {
        let mut writer = bed.fresh_writer();
        writer.restore(base)?;
        writer.restore(delta)?;
        writer.finish_restore(seq)?;
        Ok::<_, super::super::RestoreError>(writer)
    };
    assert!(open(&base, &delta).is_ok());
    for cut in 0..base.len() {
        assert!(open(&base[..cut], &[]).is_err() || cut == 0, "base cut at {cut}");
    }
    for cut in 0..delta.len() {
        assert!(open(&base, &delta[..cut]).is_err() || cut == 0, "delta cut at {cut}");
    }
    let mut rng = Rng(12);
    let mut survived = 0;
    for _ in 0..rounds(700, 50_000) {
        let (mut base, mut delta) = (base.clone(), delta.clone());
        let bytes = if rng.below(4) == 0 { &mut delta } else { &mut base };
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        // What opens must work like any collection, if with other content.
        let Ok(mut writer) = open(&base, &delta) else { continue };
        survived += 1;
        let ids: Vec<u64> = writer.points().ids_from(0).collect();
        writer.index_all();
        let seq = writer.seq();
        for (n, &id) in ids.iter().enumerate().filter(|(n, _)| n % 2 == 0) {
            assert!(writer.apply_delete(seq + 1 + n as u64, id));
        }
        while writer.repair_step(1000) {}
        let query = bed.query(&[0.1, 0.2, 0.3], 10);
        let mut hits = Vec::new();
        let mut scratch = crate::index::Scratch::default();
        writer.shared().search(&bed.seat.pin(), &query, &mut scratch, &mut hits).unwrap();
    }
    assert!(survived > 50, "most flips hit vectors and edges: {survived}");
}

/// A process that is asked to stop gives a restore up while another core files the rows. (They are never freed then.)
#[test]
#[cfg_attr(miri, ignore)]
fn rows_that_are_being_filed_stay_when_the_restore_is_given_up() {
    let mut bed = bed(2);
    let image = bed.capture(true, usize::MAX);
    let mut writer = bed.fresh_writer();
    assert!(writer.rows_to_file(1).is_none(), "there is no image");
    writer.restore(&image).unwrap();
    assert!(writer.rows_to_file(u32::MAX).is_none(), "there are few");
    let mut rows = writer.rows_to_file(1).unwrap();
    assert!(writer.rows_to_file(1).is_none(), "they are given out once");
    assert!(!writer.waits_for_rows());
    for _ in 0..10 {
        assert!(writer.finish_restore_step(bed.seq, u32::MAX).unwrap());
    }
    assert!(writer.waits_for_rows());
    assert!(rows.step(3));
    drop(writer);
    while rows.step(3) {}
}

#[test]
fn images_of_another_shape_are_refused() {
    let mut bed = bed(2);
    let image = bed.capture(true, usize::MAX);
    let seq = bed.seq;
    let refused = |bed: &Bed, seq, fragment: &str| {
        let mut writer = bed.fresh_writer();
        let result = writer.restore(&image).and_then(|()| writer.finish_restore(seq));
        let error = result.unwrap_err().to_string();
        assert!(error.contains(fragment), "{error}");
    };
    refused(&bed, seq - 1, "later than");
    bed.config.dim = 4;
    refused(&bed, seq, "not 4");
    (bed.config.dim, bed.slots_max) = (3, 50);
    refused(&bed, seq, "of a collection of 50 slots");
    (bed.slots_max, bed.config.m) = (256, 2);
    let mut writer = bed.fresh_writer();
    assert!(writer.restore(&image).and_then(|()| writer.finish_restore(seq)).is_err(), "too many edges");
}

/// Codebooks come back with an image, whole or a delta; codes are written anew, and nothing is learned anew.
#[test]
fn what_a_quantizer_has_learned_is_in_images() {
    for (quantization, metric) in [
        (Quantization::Scalar { width: Width::Four }, Metric::L2),
        (Quantization::Sign, Metric::Cosine),
        (Quantization::Product { parts: 4, bits: 4, rotations: 2, eta: 3.0 }, Metric::Dot),
        (Quantization::Residual { parts: 2, layers: 2, rotations: 0 }, Metric::L2),
    ] {
        let mut rng = Rng(7);
        let mut config = small_config(16, metric);
        (config.quant, config.train_threshold) = (Quantizer::Trained(quantization), 300);
        let mut bed = Bed::new(config, 4096);
        for id in 0..250 {
            bed.upsert(id, &rng.vector(16));
        }
        bed.settle();
        let mut images = vec![bed.capture(true, 200)];
        assert!(
            !bed.writer.space().training_unsaved()
                && bed.writer.shared().space().graph().save_codec().is_empty()
        );
        for id in 250..400 {
            bed.upsert(id, &rng.vector(16));
        }
        bed.settle();
        let learned = bed.writer.shared().space().graph().save_codec();
        assert!(!learned.is_empty() && bed.writer.space().training_unsaved());
        images.push(bed.capture(false, 200));
        for whole in [false, true] {
            if whole {
                images = vec![bed.capture(true, 200)];
            }
            assert!(!bed.writer.space().training_unsaved());
            bed.reopen(&images, bed.seq);
            assert!(
                !bed.writer.shared().space().graph().is_quantized() && !bed.writer.space().training_unsaved()
            );
            let mut jobs = 0;
            loop {
                match bed.writer.next_job(0, false) {
                    JobStep::Idle => break,
                    JobStep::More => {}
                    JobStep::Run(job) => {
                        assert!(!job.is_training(), "{quantization:?}");
                        jobs += 1;
                        bed.writer.space_mut().finish_job(job.run()).unwrap();
                    }
                }
            }
            assert!(jobs > 0 && bed.writer.shared().space().graph().is_quantized());
            assert_eq!(bed.writer.shared().space().graph().save_codec(), learned);
            bed.check(&mut rng);
            assert!(bed.recall(&mut rng, 20, 100) > 0.9);
        }
        // Of before there were such records: learned anew.
        bed.reopen(&[without_codecs(&images[0])], bed.seq);
        assert!(bed.writer.shared().space().graph().save_codec().is_empty());
        bed.settle();
        assert!(bed.writer.shared().space().graph().is_quantized() && bed.writer.space().training_unsaved());

        let mut other = bed.config.clone();
        other.quant = Quantizer::None;
        bed.config = other;
        let mut plain = bed.fresh_writer();
        let refused = plain.restore(&images[0]).and_then(|()| plain.finish_restore(bed.seq));
        assert!(refused.is_err(), "a quantizer where none is wanted");
    }
}

/// An image as it was written before there were records of what quantizers have learned.
fn without_codecs(image: &[u8]) -> Vec<u8> {
    let (mut old, mut rest) = (Vec::new(), image);
    while let Some(length) = rest.first_chunk() {
        let (record, after) = rest.split_at(4 + u32::from_le_bytes(*length) as usize);
        if record[4] != 8 {
            old.extend_from_slice(record);
        }
        rest = after;
    }
    assert!(old.len() < image.len());
    old
}
