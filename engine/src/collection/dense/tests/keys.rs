//! Keys that expire: out of sight at their deadline, out of memory when swept, back from images and logs as expired as before.
use super::bed::{Rng, small_config};
use crate::collection::{DenseWriter, Parts, RowWrite, Write};
use crate::distance::Metric;
use crate::filter::{Node, Predicate};
use crate::memory::Domain;
use crate::payload::{PayloadRow, RowBuilder, Value};
use std::collections::BTreeMap;

/// Key to value and deadline.
type Keys = BTreeMap<&'static str, (i64, u64)>;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn row(keys: &Keys) -> Vec<u8> {
    let mut row = RowBuilder::new();
    keys.iter().for_each(|(key, (value, deadline))| row.set(key, Value::Int(*value), *deadline));
    row.finish()
}

fn any_keys(rng: &mut Rng, now_ms: u64) -> Keys {
    let mut keys = Keys::new();
    for name in NAMES.iter().take(rng.below(5) as usize) {
        let deadline = if rng.below(2) == 0 { 0 } else { now_ms + 1 + rng.below(40) };
        keys.insert(name, (rng.below(3) as i64, deadline));
    }
    keys
}

struct Bed {
    writer: DenseWriter,
    domain: std::sync::Arc<Domain>,
    twin: BTreeMap<u64, (u64, Keys)>,
    now_ms: u64,
}

impl Bed {
    fn check(&self, swept: bool) {
        let seat = self.domain.participant(0);
        let pin = seat.pin();
        let shared = self.writer.shared();
        for (&id, (version, keys)) in &self.twin {
            let point = shared.get(&pin, id, self.now_ms).unwrap();
            assert_eq!(point.version, *version, "expiry is no change");
            let stored = PayloadRow::verify(point.row).unwrap();
            let live: Vec<_> = keys.iter().filter(|(_, (_, d))| *d == 0 || *d > self.now_ms).collect();
            let found: Vec<_> =
                stored.entries(self.now_ms).map(|(key, value)| (key, value.to_owned())).collect();
            assert!(found.into_iter().eq(live.iter().map(|(key, (value, _))| (**key, Value::Int(*value)))));
            assert!(!swept || stored.stored_len() == live.len(), "id {id} holds what has expired");
        }
        for name in NAMES {
            let node = Node {
                op: Some("eq".into()),
                field: Some(name.into()),
                value: Some(Value::Int(1)),
                ..Node::default()
            };
            let filter = Predicate::compile(&node).unwrap();
            let found = shared.matching(&pin, &filter, self.now_ms, 0).count();
            let is_one = |keys: &Keys| {
                keys.get(name).is_some_and(|&(value, d)| value == 1 && (d == 0 || d > self.now_ms))
            };
            assert_eq!(found, self.twin.values().filter(|(_, keys)| is_one(keys)).count(), "{name}");
        }
    }

    /// As the sweeper does.
    fn sweep(&mut self) {
        loop {
            let expired = self.writer.points().with_expired_keys(self.now_ms, 7);
            if expired.is_empty() {
                break;
            }
            assert!(expired.iter().all(|&id| self.writer.drop_expired_keys(id, self.now_ms)));
        }
        assert!(!self.writer.drop_expired_keys(u64::MAX, self.now_ms));
    }
}

#[test]
fn expired_keys_are_hidden_then_swept_and_change_nothing_else() {
    let domain = Domain::new(1);
    let config = small_config(2, Metric::L2);
    let writer = DenseWriter::create(config.clone(), 1 << 12, domain.clone()).unwrap();
    let mut bed = Bed { writer, domain: domain.clone(), twin: BTreeMap::new(), now_ms: 100 };
    let (mut rng, mut seq) = (Rng(4), 0);
    for round in 0..60 {
        for _ in 0..20 {
            let id = rng.below(80);
            let keys = any_keys(&mut rng, bed.now_ms);
            seq += 1;
            match rng.below(4) {
                0 => {
                    bed.writer.apply_delete(seq, id);
                    bed.twin.remove(&id);
                }
                1 => {
                    if let Some((version, held)) = bed.twin.get_mut(&id) {
                        *version += 1;
                        *held = keys;
                        let row = row(held);
                        bed.writer.apply_row(&RowWrite { seq, id, version: *version, row: &row });
                    } else {
                        bed.writer.apply_row(&RowWrite { seq, id, version: 1, row: &row(&keys) });
                    }
                }
                _ => {
                    let version = bed.twin.get(&id).map_or(0, |(version, _)| *version) + 1;
                    let row = row(&keys);
                    let vector = rng.vector(2);
                    bed.writer.apply(Write {
                        seq,
                        id,
                        version,
                        parts: Parts::Only(&vector),
                        row: &row,
                        deadline_ms: 0,
                    });
                    bed.twin.insert(id, (version, keys));
                }
            }
        }
        bed.check(false);
        bed.now_ms += rng.below(12);
        bed.check(false);
        if round % 3 == 0 {
            bed.sweep();
            bed.check(true);
        }
        match round % 5 {
            0 => bed.writer.index_all(),
            1 => bed.writer.reclaim(),
            2 => {
                let mut image = Vec::new();
                bed.writer.begin_capture(true);
                while !bed.writer.capture_step(1000, &mut image) {}
                bed.writer = DenseWriter::create(config.clone(), 1 << 12, domain.clone()).unwrap();
                bed.writer.restore(&image).unwrap();
                bed.writer.finish_restore(seq).unwrap();
                bed.check(false);
            }
            _ => {}
        }
    }
    // Rows that nothing refers to any more are given back.
    bed.now_ms += 1000;
    bed.sweep();
    (0..100).for_each(|_| bed.writer.reclaim());
    bed.check(true);
    assert_eq!(bed.writer.points().with_expired_keys(u64::MAX, 10), Vec::<u64>::new());
}
