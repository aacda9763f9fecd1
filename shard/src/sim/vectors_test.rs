//! Files of vectors in simulation: what a disk has changed or cut is found out, and nothing else suffers.

use super::Sim;
use super::node::{node_options, open};
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::points::{PointFields, StoredPoint, Vectors, WriteBatch};
use nigh_engine::collection::{DenseConfig, IndexType, Quantizer, VamanaConfig, WriteMode};
use nigh_engine::distance::Metric;
use std::path::PathBuf;
use std::rc::Rc;

const DIM: usize = 16;
const POINTS: u64 = 300;
/// Where rows start in the file.
const ROWS: usize = 65_536;

fn config(persistent: bool) -> DenseConfig {
    DenseConfig { quant: Quantizer::Sq8, persistent, ..DenseConfig::new(DIM, Metric::L2) }
}

fn batch(ids: std::ops::Range<u64>) -> WriteBatch {
    let point = |id| PointFields { id, row: Vec::new(), ttl_ms: 0, expected_version: None };
    let vectors = Vectors::Native(ids.clone().flat_map(|id| [id as f32 + 0.5; DIM]).collect());
    WriteBatch { mode: WriteMode::Insert, dim: DIM, vectors, points: ids.map(point).collect() }
}

/// Vectors that are all different.
fn scattered(points: u64) -> WriteBatch {
    let mut batch = batch(0..points);
    let component = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / 1e5;
    batch.vectors = Vectors::Native((0..points * DIM as u64).map(component).collect());
    batch
}

async fn fill(sim: Sim, disk: Rc<SimDisk>) {
    let node = open(&sim, &disk, 1, node_options()).await;
    let core = node.cores[0].clone();
    for (name, persistent) in [("files", true), ("memory", false)] {
        core.create_collection(name, config(persistent)).await.unwrap();
        core.write(name, batch(0..POINTS)).await.unwrap();
    }
    for owned in core.collections.all_owned() {
        core.collections.checkpoint(&owned).await.unwrap();
    }
}

/// What a read says of the two collections some time after a start.
fn reopened(disk: &Rc<SimDisk>) -> [Result<Vec<f32>, String>; 2] {
    let answers = Rc::new(std::cell::RefCell::new(None));
    let found = answers.clone();
    super::run(7, |sim| {
        let disk = disk.clone();
        async move {
            let node = open(&sim, &disk, 1, node_options()).await;
            let core = node.cores[0].clone();
            sim.sleep_us(1_000_000).await;
            let mut both = Vec::new();
            for name in ["files", "memory"] {
                let answer = core.get(name, vec![200], true, true).await;
                let vector =
                    |points: Vec<Option<StoredPoint>>| points[0].as_ref().unwrap().vector.clone().unwrap();
                let why = || core.collection_info(name).unwrap().damage.expect("it says why");
                both.push(answer.map(vector).map_err(|error| format!("{error}: {}", why())));
            }
            *found.borrow_mut() = both.try_into().ok();
        }
    });
    answers.take().expect("the node lived long enough")
}

fn the_file(disk: &SimDisk) -> PathBuf {
    let mut files = disk.paths();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "vec"));
    assert_eq!(files.len(), 1);
    files.remove(0)
}

#[test]
fn a_build_takes_a_file_of_its_own() {
    let disk = Rc::new(SimDisk::new(6));
    let built = disk.clone();
    super::run(4, |sim| async move {
        let node = open(&sim, &built, 1, node_options()).await;
        let core = node.cores[0].clone();
        for (name, persistent) in [("files", true), ("memory", false)] {
            core.create_collection(name, config(persistent)).await.unwrap();
            core.write(name, batch(0..1)).await.unwrap();
            assert!(core.delete(name, 0, None).await.unwrap());
            core.stage(name, batch(0..POINTS)).await.unwrap();
            core.build(name, 1, true).await.unwrap();
        }
    });
    assert!(!the_file(&disk).ends_with("00000000.vec"));
    // After a power failure as well as after a kill: what is built is durable before it is shown.
    let sound = Ok(vec![200.5; DIM]);
    for disk in [disk.clone(), Rc::new(disk.crash_clone(8))] {
        assert_eq!(reopened(&disk), [sound.clone(), sound.clone()]);
    }
}

/// Also where it is linked twice.
#[test]
fn what_is_built_is_the_same_on_one_core_and_on_two() {
    let built = |cores: usize, index: IndexType| {
        let image = Rc::new(std::cell::RefCell::new(Vec::new()));
        let made = image.clone();
        super::run(5, |sim| async move {
            let disk = Rc::new(SimDisk::new(6));
            let node = open(&sim, &disk, cores, node_options()).await;
            let core = node.cores[0].clone();
            let config = DenseConfig { index, ..DenseConfig::new(DIM, Metric::L2) };
            // The mesh may refuse a call, which has done nothing then.
            while let Err(error) = core.create_collection("graph", config.clone()).await {
                assert!(matches!(error, OpError::Busy(_)), "{error}");
            }
            while let Err(error) = core.stage("graph", scattered(900)).await {
                assert!(matches!(error, OpError::Busy(_)), "{error}");
            }
            while let Err(error) = core.build("graph", cores, true).await {
                assert!(matches!(error, OpError::Busy(_)), "{error}");
            }
            let owned = node.cores.iter().find_map(|core| core.collections.all_owned().pop()).unwrap();
            let mut writer = owned.writer.borrow_mut();
            writer.begin_capture(true);
            while !writer.capture_step(1 << 20, &mut made.borrow_mut()) {}
        });
        image.take()
    };
    let vamana = IndexType::Vamana(VamanaConfig { degree: 12, ..VamanaConfig::default() });
    for index in [IndexType::Hnsw, vamana] {
        let name = index.name();
        assert!(built(1, index.clone()) == built(2, index), "{name}");
    }
}

#[test]
fn a_changed_or_cut_file_damages_its_collection_alone() {
    let disk = Rc::new(SimDisk::new(5));
    super::run(3, |sim| fill(sim, disk.clone()));
    let path = the_file(&disk);
    let (whole, row) = (disk.bytes(&path).unwrap(), DIM * size_of::<f32>());
    let sound = Ok(vec![200.5; DIM]);
    assert_eq!(reopened(&disk), [sound.clone(), sound.clone()]);

    let damaged = |bytes: Vec<u8>, fragment: &str| {
        let disk = Rc::new(disk.crash_clone(9));
        disk.put(&path, bytes);
        let [files, memory] = reopened(&disk);
        assert_eq!(memory, sound);
        let error = files.unwrap_err();
        assert!(error.contains(fragment), "{error}");
    };
    let mut changed = whole.clone();
    changed[ROWS + 123 * row + 5] ^= 1;
    damaged(changed, "the vector of slot 123 in 00000000.vec is not what was written");
    damaged(whole[..ROWS + 250 * row].to_vec(), "the file of vectors ends before that of slot 250");
    damaged(whole[..4000].to_vec(), "the file ends too early");
    let mut changed = whole.clone();
    changed[64] ^= 4;
    damaged(changed, "its rows are of");
}
