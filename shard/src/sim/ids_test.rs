//! Ids that are strings: two strings may have one number, and then the second one is refused, in every family and after a restart.

use super::node::{node_options, open, patiently, until_not_busy};
use super::{Random, Sim};
use crate::core::Core;
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::family::CollectionConfig;
use crate::payload_change::PayloadChange;
use crate::points::{NamedVectors, PointFields, Vectors, WriteBatch, Written};
use nigh_engine::collection::{DenseConfig, MultiVectorConfig, NamedConfig, NamedSpace, WriteMode};
use nigh_engine::distance::Metric;
use nigh_engine::payload::{PayloadRow, RowBuilder, Value};
use nigh_engine::point_id::IdKind;
use std::rc::Rc;

/// The number of every string here: nobody can find two strings whose numbers are the same.
const NUMBER: u64 = 5;

fn row(id: Option<&str>) -> Vec<u8> {
    let mut row = RowBuilder::new();
    row.set("n", Value::Int(1), 0);
    if let Some(id) = id {
        row.set_id(id.into());
    }
    row.finish()
}

fn configs(ids: IdKind) -> [(&'static str, CollectionConfig); 3] {
    let space = || DenseConfig::new(1, Metric::L2);
    let mut named = NamedConfig::new(vec![NamedSpace::new("a", space())], vec![]);
    let mut documents = MultiVectorConfig::new(DenseConfig::new(1, Metric::Cosine));
    (named.whole.ids, documents.whole.ids) = (ids, ids);
    [
        ("dense", DenseConfig { ids, ..space() }.into()),
        ("named", named.into()),
        ("documents", documents.into()),
    ]
}

async fn write(core: &Rc<Core>, name: &str, id: Option<&str>) -> Result<u64, OpError> {
    let vectors = || match name {
        "dense" => Vectors::Native(vec![1.0]),
        "named" => {
            Vectors::Named(vec![NamedVectors { dense: vec![(0, vec![1.0])], ..NamedVectors::default() }])
        }
        _ => Vectors::Named(vec![NamedVectors { tokens: vec![vec![1.0]], ..NamedVectors::default() }]),
    };
    let written = until_not_busy(|| async {
        let points = vec![PointFields { id: NUMBER, row: row(id), ttl_ms: 0, expected_version: None }];
        let batch = WriteBatch { mode: WriteMode::Upsert, dim: 1, vectors: vectors(), points };
        core.write(name, batch).await.map_err(|stopped| stopped.error)
    });
    match written.await?[..] {
        [Written::Ok { version }] => Ok(version),
        ref other => panic!("{other:?}"),
    }
}

/// The string that the point has now.
async fn stored(core: &Rc<Core>, name: &str) -> Option<String> {
    let points = patiently(|| core.get(name, vec![NUMBER], false, false)).await;
    let row = &points[0].as_ref()?.row;
    PayloadRow::trusted(row).id().map(str::to_owned)
}

/// Creates the collections in a first life, and refuses a second string in every one.
async fn life(sim: Sim, disk: Rc<SimDisk>, is_first: bool) {
    let node = open(&sim, &disk, 2, node_options()).await;
    let core = node.cores[0].clone();
    for (name, config) in configs(IdKind::String) {
        if is_first {
            patiently(|| core.create_collection(name, config.clone())).await;
            assert!(matches!(write(&core, name, Some("a")).await, Ok(1)));
        }
        assert_eq!(stored(&core, name).await.as_deref(), Some("a"), "{name}, in the first life: {is_first}");
        let refused = write(&core, name, Some("b")).await.expect_err("another string");
        assert!(matches!(&refused, OpError::Conflict(_)), "{refused:?}");
        assert!(refused.to_string().contains("the id \"b\" cannot be stored"), "{refused}");
        let refused = write(&core, name, None).await.expect_err("no string");
        assert!(matches!(&refused, OpError::BadRequest(_)), "{refused:?}");
        write(&core, name, Some("a")).await.expect("the same string");
        patiently(|| core.change_payload(name, NUMBER, PayloadChange::Clear, None)).await;
        assert_eq!(stored(&core, name).await.as_deref(), Some("a"), "{name}: the id stays");
    }
    if is_first {
        return;
    }
    for (name, _) in configs(IdKind::String) {
        patiently(|| core.delete(name, NUMBER, None)).await;
        write(&core, name, Some("b")).await.expect("the number is free");
        assert_eq!(stored(&core, name).await.as_deref(), Some("b"), "{name}");
    }
}

#[test]
fn the_second_of_two_strings_with_one_number_is_refused() {
    for seed in 1..=10 {
        let random = Random::new(seed);
        let disk = Rc::new(SimDisk::new(random.next()));
        super::run(random.next(), |sim| life(sim, disk.clone(), true));
        Core::set_current(None);
        let disk = Rc::new(disk.crash_clone(random.next()));
        super::run(random.next(), |sim| life(sim, disk.clone(), false));
        Core::set_current(None);
    }
}

async fn numbers(sim: Sim, disk: Rc<SimDisk>) {
    let node = open(&sim, &disk, 1, node_options()).await;
    let core = node.cores[0].clone();
    for (name, config) in configs(IdKind::Number) {
        patiently(|| core.create_collection(name, config.clone())).await;
        let refused = write(&core, name, Some("a")).await.expect_err("a string");
        assert!(matches!(&refused, OpError::BadRequest(_)), "{refused:?}");
        assert!(matches!(write(&core, name, None).await, Ok(1)));
    }
}

#[test]
fn rows_with_strings_are_refused_where_ids_are_numbers() {
    let disk = Rc::new(SimDisk::new(1));
    super::run(1, |sim| numbers(sim, disk.clone()));
    Core::set_current(None);
}
