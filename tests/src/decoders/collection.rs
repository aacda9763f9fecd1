//! The image records of a dense collection, whose graph is read with few checks once it is loaded.

use nigh_engine::collection::{DenseConfig, DenseWriter, Parts, Query, Write};
use nigh_engine::distance::Metric;
use nigh_engine::index::Scratch;
use nigh_engine::memory::{Domain, Participant};
use nigh_engine::payload::PayloadRow;

const DIM: usize = 3;
const SLOTS_MAX: usize = 256;
const NOW_MS: u64 = 1_000;
/// Beyond what images of this test hold.
const RESTORED_SEQ: u64 = 1 << 40;

/// A collection and its only reader.
struct Loaded {
    writer: DenseWriter,
    reader: Participant,
}

impl Loaded {
    fn empty() -> Loaded {
        let config = DenseConfig { m: 4, ef_construction: 16, seed: 7, ..DenseConfig::new(DIM, Metric::L2) };
        let domain = Domain::new(1);
        let reader = domain.participant(0);
        let writer =
            DenseWriter::create(config, SLOTS_MAX, domain).expect("address space for a few hundred points");
        Loaded { writer, reader }
    }

    fn restored(image: &[u8], seq: u64) -> Option<Loaded> {
        let mut loaded = Loaded::empty();
        loaded.writer.restore(image).ok()?;
        loaded.writer.finish_restore(seq).ok()?;
        Some(loaded)
    }

    /// Every live point as text: id, version, vector, row.
    fn points(&self) -> Vec<String> {
        let dense = self.writer.shared();
        let pin = self.reader.pin();
        self.writer
            .points()
            .ids_from(0)
            .filter_map(|id| dense.get(&pin, id, NOW_MS))
            .map(|point| {
                let row = PayloadRow::verify(point.row).expect("a restored row is whole");
                format!("{} {} {:?} {row:?}", point.id, point.version, point.vector)
            })
            .collect()
    }

    fn image(&mut self) -> Vec<u8> {
        let mut image = Vec::new();
        self.writer.begin_capture(true);
        while !self.writer.capture_step(1 << 20, &mut image) {}
        self.writer.end_capture(true);
        image
    }

    /// Both searches: sorted, and the exact one finds every live point.
    fn search(&self) {
        let pin = self.reader.pin();
        let live = self.points().len();
        let (mut scratch, mut hits) = (Scratch::default(), Vec::new());
        for exact in [false, true] {
            let vector = &[0.5, -1.0, 2.0];
            let query = Query { vector, k: SLOTS_MAX, ef: SLOTS_MAX, filter: None, exact, now_ms: NOW_MS };
            let dense = self.writer.shared();
            dense.search(&pin, &query, &mut scratch, &mut hits).expect("a well-formed query");
            for pair in hits.windows(2) {
                assert!((pair[0].distance, pair[0].id) < (pair[1].distance, pair[1].id), "{pair:?}");
            }
            assert!(!exact || hits.len() == live, "{} of {live} points found", hits.len());
        }
    }
}

/// Any bytes as an image: refused, or a collection that answers, takes writes, indexes, repairs, and whose own image
/// loads again with the same points.
pub(super) fn dense_image(bytes: &[u8]) {
    let Some(mut loaded) = Loaded::restored(bytes, RESTORED_SEQ) else { return };
    loaded.search();
    let writer = &mut loaded.writer;
    // An image may fill the collection to the last slot.
    if writer.shared().stats().slots < SLOTS_MAX as u64 {
        let seq = writer.seq() + 1;
        writer.apply(Write {
            seq,
            id: 1,
            version: 9,
            parts: Parts::Only(&[1.0, 0.0, 0.0]),
            row: &[],
            deadline_ms: 0,
        });
    }
    writer.index_all();
    writer.reclaim();
    while writer.repair_step(64) {}
    loaded.search();

    let image = loaded.image();
    let again = Loaded::restored(&image, loaded.writer.seq()).expect("an image just written loads");
    assert_eq!(again.points(), loaded.points());
    again.search();
}

pub(super) fn dense_image_seeds() -> Vec<Vec<u8>> {
    let rows = super::engine::payload_row_seeds();
    let image = |points: u64, deleted: u64, indexed: bool| {
        let mut loaded = Loaded::empty();
        let writer = &mut loaded.writer;
        for id in 0..points {
            let vector = [id as f32, (id * 7 % 5) as f32, -1.5];
            let row = &rows[id as usize % rows.len()];
            let deadline_ms = if id % 5 == 4 { NOW_MS + 5 } else { 0 };
            writer.apply(Write {
                seq: id + 1,
                id,
                version: 1,
                parts: Parts::Only(&vector),
                row,
                deadline_ms,
            });
        }
        if indexed {
            writer.index_all();
        }
        for id in 0..deleted {
            writer.apply_delete(points + id + 1, id);
        }
        loaded.image()
    };
    vec![image(0, 0, false), image(2, 0, false), image(3, 1, true), image(12, 2, true)]
}
