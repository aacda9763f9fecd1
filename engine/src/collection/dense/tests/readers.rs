//! Readers on other threads while the owner writes, indexes, repairs and frees.
use super::bed::{Rng, group_is, row, small_config};
use super::rounds;
use crate::collection::{DenseWriter, Query, Write};
use crate::distance::Metric;
use crate::index::Scratch;
use crate::memory::Domain;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const DIM: usize = 4;
/// Ids that are always there; the others come and go.
const ALWAYS: u64 = 60;
const IDS: u64 = 400;

/// Every id has one direction that is its own, so its point can be searched for while it is replaced: upserts change the
/// length only, under a metric that does not mind.
fn direction(id: u64) -> Vec<f32> {
    Rng(id * 31 + 7).vector(DIM)
}

fn point(id: u64, scale: f32) -> Vec<f32> {
    direction(id).iter().map(|x| x * scale).collect()
}

#[test]
fn an_id_that_is_always_there_is_found_exactly_once() {
    let domain = Domain::new(3);
    let config = small_config(DIM, Metric::Cosine);
    let mut writer = DenseWriter::create(config, 1 << 14, domain.clone()).unwrap();
    let mut seq = 0;
    let mut rng = Rng(3);
    let mut versions = vec![0u64; IDS as usize];
    let mut upsert = |writer: &mut DenseWriter, rng: &mut Rng, id: u64, seq: u64| {
        versions[id as usize] += 1;
        let vector = point(id, 0.5 + (rng.below(100) as f32) / 50.0);
        let row = row((id % 3) as i64);
        let version = versions[id as usize];
        writer.apply(Write { seq, id, version, vector: &vector, row: &row, deadline_ms: 0 });
    };
    for id in 0..IDS {
        seq += 1;
        upsert(&mut writer, &mut rng, id, seq);
    }
    writer.index_all();

    let stop = AtomicBool::new(false);
    let searches = AtomicU64::new(0);
    let shared = writer.shared().clone();
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (seat, shared, stop, searches) = (domain.participant(reader), &shared, &stop, &searches);
            scope.spawn(move || {
                let mut rng = Rng(100 + reader as u64);
                let mut scratch = Scratch::default();
                let mut hits = Vec::new();
                let filters: Vec<_> = (0..3).map(group_is).collect();
                let mut newest = vec![0u64; ALWAYS as usize];
                while !stop.load(Ordering::Relaxed) {
                    let id = rng.below(ALWAYS);
                    let vector = direction(id);
                    let pin = seat.pin();
                    let turn = rng.below(4);
                    let filter = (turn == 3).then(|| &filters[(id % 3) as usize]);
                    let (exact, k) = (turn == 0, if turn == 1 { 5 } else { 3 });
                    let query = Query { vector: &vector, k, ef: 40, filter, exact, now_ms: 0 };
                    shared.search(&pin, &query, &mut scratch, &mut hits).unwrap();
                    assert!(hits.len() <= k);
                    assert_eq!(hits.iter().filter(|hit| hit.id == id).count(), 1, "exact {exact}: {hits:?}");
                    let unique: HashSet<u64> = hits.iter().map(|hit| hit.id).collect();
                    assert_eq!(unique.len(), hits.len(), "{hits:?}");
                    for hit in &hits {
                        let found = shared.point(&pin, hit.slot);
                        assert_eq!(found.id, hit.id, "a pinned slot is not reused");
                        let same: f32 = found.vector.iter().map(|x| x * x).sum();
                        assert!((same - 1.0).abs() < 1e-4, "a torn vector");
                    }
                    let seen = shared.get(&pin, id, 0).expect("never missing");
                    assert_eq!(seen.id, id);
                    assert!(seen.version >= newest[id as usize], "time runs backwards");
                    newest[id as usize] = seen.version;
                    let hit = hits.iter().find(|hit| hit.id == id).unwrap();
                    assert!(shared.point(&pin, hit.slot).version <= seen.version);
                    searches.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let wanted = rounds(3000, 300_000) as u64;
        let stopper = Stopper(&stop);
        while searches.load(Ordering::Relaxed) < wanted {
            for _ in 0..20 {
                seq += 1;
                let id = rng.below(IDS);
                if id >= ALWAYS && rng.below(2) == 0 {
                    writer.apply_delete(seq, id);
                } else {
                    upsert(&mut writer, &mut rng, id, seq);
                }
            }
            if seq > 2_000_000 {
                break;
            }
            writer.index_all();
            writer.repair_step(200);
            writer.reclaim();
        }
        drop(stopper);
    });
    let stats = writer.shared().stats();
    assert!(stats.slots < 4000, "slots come back while readers run: {stats:?}");
}

/// Stops the readers also when the owner panics, so that the scope ends.
struct Stopper<'a>(&'a AtomicBool);
impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
