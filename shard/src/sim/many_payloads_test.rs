//! Changing the payloads of many points in simulation, beside a naive twin: each selected point is changed once, also where the change moves it to
//! another slot, and what was acknowledged holds after a crash.

use super::node::{node_options, open, patiently};
use super::{Random, Sim};
use crate::core::{Core, PayloadChange, Selection};
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::points::{PointFields, Vectors, WriteBatch};
use nigh_engine::collection::{DenseConfig, WriteMode};
use nigh_engine::distance::Metric;
use nigh_engine::filter::{Node, Predicate};
use nigh_engine::payload::{CONTENT_KEY, PayloadRow, RowBuilder, Value};
use nigh_engine::text::TextConfig;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

const NAME: &str = "docs";
const POINTS: u64 = 400;

/// A payload and its version.
type Stored = (BTreeMap<String, Value>, u64);
type Twin = BTreeMap<u64, Stored>;

async fn fill(core: &Rc<Core>, twin: &mut Twin) {
    // With texts, so that a change of the content moves a point.
    let config = DenseConfig { full_text: Some(TextConfig::default()), ..DenseConfig::new(1, Metric::L2) };
    patiently(|| core.create_collection(NAME, config.clone())).await;
    let payload = |id: u64| {
        let text = Value::String(format!("word{} word", id % 7));
        BTreeMap::from([("n".to_owned(), Value::Int((id % 10) as i64)), (CONTENT_KEY.to_owned(), text)])
    };
    twin.extend((0..POINTS).map(|id| (id, (payload(id), 1))));
    let row = |id| {
        let mut row = RowBuilder::new();
        payload(id).into_iter().for_each(|(key, value)| row.set(&key, value, 0));
        row.finish()
    };
    let points =
        (0..POINTS).map(|id| PointFields { id, row: row(id), ttl_ms: 0, expected_version: None }).collect();
    let vectors = Vectors::Native((0..POINTS).map(|id| id as f32).collect());
    let batch = WriteBatch { mode: WriteMode::Insert, dim: 1, vectors, points };
    core.write(NAME, batch).await.map_err(|stopped| stopped.error).unwrap();
}

async fn stored(core: &Rc<Core>) -> Twin {
    let mut found = Twin::new();
    let mut next = 0;
    while next < POINTS {
        let got = patiently(|| core.get(NAME, (next..POINTS).collect(), false, true)).await;
        next += got.len() as u64;
        for point in got.into_iter().flatten() {
            let mut payload = BTreeMap::new();
            if !point.row.is_empty() {
                let entries = PayloadRow::trusted(&point.row).stored_entries();
                payload.extend(entries.map(|entry| (entry.key.to_owned(), entry.value.to_owned())));
            }
            found.insert(point.id, (payload, point.version));
        }
    }
    found
}

/// `n` below a number, as a filter and in words.
fn below(number: i64) -> Arc<Predicate> {
    let node = Node {
        op: Some("lt".into()),
        field: Some("n".into()),
        value: Some(Value::Int(number)),
        ..Node::default()
    };
    Arc::new(Predicate::compile(&node).unwrap())
}

fn apply(change: &PayloadChange, payload: &mut BTreeMap<String, Value>) {
    match change {
        PayloadChange::Merge { entries, .. } => payload.extend(entries.iter().cloned()),
        PayloadChange::Overwrite { entries, .. } => *payload = entries.iter().cloned().collect(),
        PayloadChange::DeleteKeys(keys) => payload.retain(|key, _| !keys.contains(key)),
        PayloadChange::Clear => payload.clear(),
    }
}

fn random_change(random: &Random) -> PayloadChange {
    let n = ("n".to_owned(), Value::Int(random.below(10) as i64));
    let text = (CONTENT_KEY.to_owned(), Value::String(format!("word{}", random.below(1000))));
    let merge = |entries| PayloadChange::Merge { entries, key_ttl_ms: Vec::new() };
    match random.below(8) {
        0 => PayloadChange::Clear,
        1 => PayloadChange::DeleteKeys(vec!["other".to_owned(), CONTENT_KEY.to_owned()]),
        2 => PayloadChange::Overwrite { entries: vec![n, text], key_ttl_ms: Vec::new() },
        3 | 4 => merge(vec![text]),
        5 => merge(vec![n, ("other".to_owned(), Value::Bool(true))]),
        _ => merge(vec![n, text]),
    }
}

async fn life(sim: Sim, disk: Rc<SimDisk>, twin: Rc<RefCell<Twin>>, is_first: bool) {
    let random = sim.random().fork();
    let node = open(&sim, &disk, 1 + random.index(3), node_options()).await;
    let core = node.cores[random.index(node.cores.len())].clone();
    if is_first {
        let mut filled = Twin::new();
        fill(&core, &mut filled).await;
        *twin.borrow_mut() = filled;
    }
    assert_eq!(stored(&core).await, *twin.borrow());
    for _ in 0..6 {
        let change = random_change(&random);
        let (number, is_filter) = (random.below(11) as i64, random.below(2) == 0);
        // Some ids are absent, and some are named twice.
        let ids: Vec<u64> = (0..60).map(|_| random.below(2 * POINTS)).collect();
        let selection = match is_filter {
            true => Selection::Matching(below(number)),
            false => Selection::Named(ids.clone()),
        };
        let changed = patiently(|| core.change_payloads(NAME, selection.clone(), change.clone())).await;
        let mut expected = 0;
        for (id, (payload, version)) in twin.borrow_mut().iter_mut() {
            let is_selected = match is_filter {
                true => matches!(payload.get("n"), Some(Value::Int(n)) if *n < number),
                false => ids.contains(id),
            };
            if is_selected {
                apply(&change, payload);
                *version += 1;
                expected += 1;
            }
        }
        assert_eq!(changed, expected, "{change:?}");
        assert_eq!(stored(&core).await, *twin.borrow(), "{change:?}");
    }
    let unknown = core.change_payloads("none", Selection::Named(vec![1]), PayloadChange::Clear).await;
    assert!(matches!(unknown, Err(OpError::UnknownCollection(_))), "{unknown:?}");
}

#[test]
fn changes_of_many_payloads_hold_after_a_crash() {
    for seed in 1..=8 {
        println!("seed {seed}");
        let random = Random::new(seed);
        let mut disk = SimDisk::new(random.next());
        let twin = Rc::default();
        for number in 0..3 {
            let shared = Rc::new(disk);
            super::run(random.next(), |sim| life(sim, shared.clone(), Rc::clone(&twin), number == 0));
            Core::set_current(None);
            disk = shared.crash_clone(random.next());
        }
    }
}
