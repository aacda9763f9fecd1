//! What has expired counts for nothing, though nothing is swept: neither in figures nor in the statistics that scores of texts
//! depend on. A twin never had it.

use super::Sim;
use super::node::{node_options, open, patiently};
use crate::core::{Core, QueryAnswer, QueryRequest, Shown};
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::points::{PointFields, Vectors, WriteBatch};
use nigh_engine::collection::{DenseConfig, WriteMode};
use nigh_engine::distance::Metric;
use nigh_engine::payload::{RowBuilder, Value};
use nigh_engine::query::{Combine, LaneQuery, Leaf, Method, QueryOptions, Source};
use nigh_engine::text::{TextConfig, TextMatch};
use std::rc::Rc;

const TTL_MS: i64 = 60_000;
const DAY_MS: i64 = 86_400_000;

/// Points 0 to 9 stay; 10 to 29 live a minute; of 30 to 39 the text does. `lasting`: as all of it is after a minute.
async fn fill(core: &Rc<Core>, name: &str, lasting: bool) {
    let config = DenseConfig { full_text: Some(TextConfig::default()), ..DenseConfig::new(1, Metric::L2) };
    loop {
        match core.create_collection(name, config.clone()).await {
            Ok(()) => break,
            Err(OpError::CollectionExists(_)) => return,
            Err(OpError::Busy(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    for id in (0..40).filter(|id| !lasting || !(10..30).contains(id)) {
        let mut row = RowBuilder::new();
        let (short_point, short_text) = ((10..30).contains(&id), id >= 30);
        let text = if id % 3 == 0 { "river stone" } else { "river and more words than that" };
        let deadline_ms = if short_text { core.unix_ms() + TTL_MS as u64 } else { 0 };
        if !(lasting && short_text) {
            row.set("$content", Value::String(text.to_owned()), deadline_ms);
        }
        row.set_sparse(vec![(1, 1.0)]).unwrap();
        let ttl_ms = if short_point { TTL_MS } else { 0 };
        let point = PointFields { id, row: row.finish(), ttl_ms, expected_version: None };
        patiently(|| {
            let points = vec![point.clone()];
            let vectors = Vectors::Native(vec![id as f32]);
            let batch = WriteBatch { mode: WriteMode::Upsert, dim: 1, vectors, points };
            async { core.write(name, batch).await.map_err(|error| error.error) }
        })
        .await;
    }
}

/// Scores of a text and of a fused query, and the figures.
async fn seen(core: &Rc<Core>, name: &str) -> (Vec<(u64, f32)>, Vec<(u64, f32)>, u64, u64) {
    let mut found = Vec::new();
    for dense in [false, true] {
        let text =
            Leaf { source: Source::Text(TextMatch::words("river stone")), space: 0, pool: 64, filter: None };
        let mut lanes = vec![text];
        if dense {
            lanes.push(Leaf { source: Source::Dense(vec![0.0]), space: 0, pool: 64, filter: None });
        }
        let lanes = LaneQuery {
            lanes,
            combine: Combine::Fuse(Method::Rrf { c: 60.0 }),
            k: 64,
            options: QueryOptions::default(),
        };
        let request = QueryRequest { lanes, group: None, shown: Shown::default(), explain: false };
        match patiently(|| core.query(name, request.clone())).await.answer {
            QueryAnswer::Hits(hits) => found.push(hits.iter().map(|hit| (hit.id, hit.score)).collect()),
            QueryAnswer::Groups(_) => panic!("no groups were asked for"),
        }
    }
    let stats = core.collection_info(name).unwrap().stats;
    let [text, fused] = found.try_into().expect("two queries");
    (text, fused, stats.points(), stats.sparse_vectors)
}

#[test]
fn the_expired_count_for_nothing_though_nothing_is_swept() {
    for seed in 1..11 {
        let mut disk = Rc::new(SimDisk::new(seed));
        let before = super::run(seed, |sim: Sim| {
            let disk = disk.clone();
            async move {
                let node = open(&sim, &disk, 1 + sim.random().index(2), node_options()).await;
                let core = node.cores[0].clone();
                fill(&core, "short", false).await;
                fill(&core, "lasting", true).await;
                let full = seen(&core, "short").await;
                assert_eq!((full.2, full.3), (40, 40));
                assert!(full.0.len() == 40 && seen(&core, "lasting").await.2 == 20);
                sim.sleep_us(TTL_MS as u64 * 1000 + 30_000).await;
                let after = seen(&core, "short").await;
                assert_eq!(after, seen(&core, "lasting").await, "seed {seed}");
                assert_eq!(after.2, patiently(|| core.count("short", None)).await);
                // The clock is set back: they show, and they count.
                sim.step_wall_clock_ms(-DAY_MS);
                sim.sleep_us(30_000).await;
                assert_eq!(seen(&core, "short").await, full, "seed {seed}: set back");
                sim.step_wall_clock_ms(DAY_MS);
                after
            }
        });
        Core::set_current(None);
        // After a restart as well.
        disk = Rc::new((*disk).clone());
        super::run(seed, |sim: Sim| async move {
            sim.step_wall_clock_ms(DAY_MS);
            let node = open(&sim, &disk, 1, node_options()).await;
            sim.sleep_us(30_000).await;
            assert_eq!(seen(&node.cores[0], "short").await, before, "seed {seed}: restarted");
        });
        Core::set_current(None);
    }
}
