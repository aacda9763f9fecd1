//! A filter may be asked for 30 s on behalf of one request, however the time is spread over points: then the request ends with an error, and
//! what it has done until then stays.

use super::Sim;
use super::keys_test::{Order, carry_out};
use super::node::{node_options, open};
use crate::core::{Core, OrderKey, OrderedScroll, Selection};
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::kv::query::{KeyQuery, Returns};
use crate::points::{PointFields, SearchRequest, Vectors, WriteBatch};
use nigh_engine::collection::{DenseConfig, WriteMode};
use nigh_engine::distance::Metric;
use nigh_engine::filter::{Node, Predicate};
use nigh_engine::payload::{RowBuilder, Value};
use std::rc::Rc;
use std::sync::Arc;

const POINTS: u64 = 40;
const TEXT_BYTES: usize = 2_000;
/// So long a look at the clock takes on the slow machine: no request may look at it many more than sixty times.
const SLOW_NS: u64 = 500_000_000;

/// Matches nothing, and has to follow more states than it remembers to find out.
fn dear_filter() -> Arc<Predicate> {
    let leaf = |n: usize| Node {
        op: Some("regex".into()),
        field: Some("text".into()),
        value: Some(Value::String(format!("(1[01]{{{}}}|0[01]{{100}}1)x", 200 - n))),
        ..Node::default()
    };
    let any = Node { op: Some("or".into()), or: Some((0..4).map(leaf).collect()), ..Node::default() };
    Arc::new(Predicate::compile(&any).unwrap())
}

async fn fill(sim: &Sim, core: &Rc<Core>) {
    core.create_collection("c", DenseConfig::new(1, Metric::L2)).await.unwrap();
    let point = |id| {
        let mut row = RowBuilder::new();
        let digits = (0..TEXT_BYTES).map(|_| if sim.random().chance(1, 2) { '0' } else { '1' });
        row.set("text", Value::String(digits.collect()), 0);
        row.set("n", Value::Int(id as i64), 0);
        PointFields { id, row: row.finish(), ttl_ms: 0, expected_version: None }
    };
    let points: Vec<PointFields> = (0..POINTS).map(point).collect();
    let vectors = Vectors::Native((0..POINTS).map(|id| id as f32).collect());
    let batch = WriteBatch { mode: WriteMode::Insert, dim: 1, vectors, points };
    core.write("c", batch).await.unwrap();
}

/// What each request that asks a filter of many points answers: how much it found.
async fn answers(core: &Rc<Core>) -> Vec<(&'static str, Result<u64, OpError>)> {
    let filter = Some(dear_filter());
    let order = OrderedScroll {
        filter: filter.clone(),
        keys: vec![OrderKey { key: "n".into(), desc: false, is_string: false, is_datetime: false }],
        after: None,
        start_from: None,
        limit: 5,
    };
    let search = SearchRequest { vector: vec![0.0], k: 5, filter: filter.clone(), with_rows: false };
    let count = |found: usize| found as u64;
    vec![
        ("count", core.count("c", filter.clone()).await),
        ("scroll", core.scroll("c", filter.clone(), None, 5).await.map(|page| count(page.points.len()))),
        ("order", core.ordered("c", order).await.map(|found| count(found.positions.len()))),
        ("facet", core.facet("c", "n".into(), filter.clone(), 5).await.map(|found| count(found.len()))),
        ("sample", core.sample("c", filter, 5, 1).await.map(|found| count(found.len()))),
        ("search", core.search("c", search).await.map(|found| count(found.len()))),
        ("delete", core.delete_many("c", Selection::Matching(dear_filter())).await),
    ]
}

#[test]
fn a_request_asks_its_filter_for_30_seconds() {
    super::run(1, |sim| async move {
        let disk = Rc::new(SimDisk::new(1));
        let node = open(&sim, &disk, 1, node_options()).await;
        let core = node.cores[0].clone();
        fill(&sim, &core).await;
        sim.take_per_look_ns(SLOW_NS);
        for (name, answer) in answers(&core).await {
            let Err(OpError::Busy(why)) = &answer else { panic!("{name}: {answer:?}") };
            assert!(why.contains("30 s"), "{name}: {why}");
        }
        // The same requests are answered by a machine that is fast.
        sim.take_per_look_ns(0);
        for (name, answer) in answers(&core).await {
            assert!(matches!(answer, Ok(0)), "{name}: {answer:?}");
        }
        assert_eq!(core.count("c", None).await.unwrap(), POINTS);
    });
}

/// A scan of keys for a query looks into many values, each in a moment, and ends likewise.
#[test]
fn a_scan_of_keys_takes_30_seconds() {
    super::run(2, |sim| async move {
        let disk = Rc::new(SimDisk::new(2));
        let node = open(&sim, &disk, 1, node_options()).await;
        let core = node.cores[0].clone();
        for n in 0..800u64 {
            let order = Order::Put { value: vec![n as u8; 3000], ttl_ms: 0 };
            carry_out(&core, &n.to_be_bytes(), &order).await.unwrap();
        }
        let query = KeyQuery {
            index: None,
            scans: true,
            filter: None,
            after: None,
            limit: 5,
            returns: Returns::Records,
        };
        sim.take_per_look_ns(SLOW_NS);
        let answer = core.keys().query_keys(query.clone()).await;
        let Err(OpError::Busy(why)) = &answer else { panic!("{answer:?}") };
        assert!(why.contains("30 s"), "{why}");
        sim.take_per_look_ns(0);
        assert!(core.keys().query_keys(query).await.unwrap().rows.is_empty(), "no value is a record");
    });
}
