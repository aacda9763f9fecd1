//! Every file of a directory in turn removed, emptied, cut, exchanged with a sibling, and flipped in places: each answer equals what was
//! acknowledged, or the store concerned says that it is damaged, and no other store does.

use super::keys_test::{Order, carry_out};
use super::node::{SimNode, keys_options, node_options, open, until_not_busy};
use super::{Random, Sim};
use crate::core::{AliasChange, Core};
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::kv::KeysOptions;
use crate::kv::indexes::IndexDefinition;
use crate::node::NodeOptions;
use crate::points::{PointFields, SearchRequest, Vectors, WriteBatch};
use nigh_engine::collection::{DenseConfig, Quantizer, WriteMode};
use nigh_engine::distance::Metric;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const DIM: usize = 4;
const CORES: usize = 2;
/// By name: in images and the log, the same, in a file of vectors, in the log alone, and never written.
const COLLECTIONS: [&str; 5] = ["plain", "acme/other", "files", "fresh", "empty"];
const KEYS: &str = "the keys";

fn flips() -> usize {
    if std::env::var_os("NIGH_TEST_LONG").is_some() { 200 } else { 12 }
}

fn options() -> NodeOptions {
    NodeOptions {
        segment_bytes: 4096 * 12,
        log_bytes_soft: 1 << 30,
        image_records_min: 1 << 20,
        keys: KeysOptions { query: true, ..keys_options() },
        ..node_options()
    }
}

/// Everything that was acknowledged.
#[derive(Clone, Default)]
struct Model {
    points: BTreeMap<(usize, u64), Vec<f32>>,
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
    aliases: BTreeMap<String, String>,
}

fn point(id: u64, vector: Vec<f32>) -> WriteBatch {
    let fields = PointFields { id, row: Vec::new(), ttl_ms: 0, expected_version: None };
    WriteBatch {
        mode: WriteMode::Upsert,
        dim: DIM,
        vectors: Vectors::PerPoint(vec![vector]),
        points: vec![fields],
    }
}

async fn write(core: &Rc<Core>, name: &str, id: u64, vector: Vec<f32>) -> Result<(), OpError> {
    let written = until_not_busy(|| async {
        core.write(name, point(id, vector.clone())).await.map_err(|partial| partial.error)
    });
    written.await.map(drop)
}

async fn put(core: &Rc<Core>, key: &[u8], value: &[u8]) -> Result<(), OpError> {
    let order = Order::Put { value: value.to_vec(), ttl_ms: 0 };
    until_not_busy(|| carry_out(core, key, &order)).await.map(drop)
}

async fn fill(core: &Rc<Core>, model: &mut Model, random: &Random, writes: usize, collections: &[usize]) {
    for _ in 0..writes {
        for &collection in collections {
            let (id, vector) = (random.below(40), vec![random.below(1000) as f32, 1.0, 2.0, 3.0]);
            write(core, COLLECTIONS[collection], id, vector.clone()).await.unwrap();
            model.points.insert((collection, id), vector);
        }
        let (key, value) =
            (format!("key{}", random.below(60)).into_bytes(), random.below(1 << 40).to_be_bytes());
        put(core, &key, &value).await.unwrap();
        model.keys.insert(key, value.to_vec());
    }
}

async fn checkpoint_all(node: &SimNode) {
    for core in node.cores.iter() {
        for owned in core.collections.all_owned() {
            core.collections.checkpoint(&owned).await.unwrap();
        }
        core.keys().checkpoint_keys().await.unwrap();
    }
}

async fn stop(node: &SimNode) {
    for core in node.cores.iter() {
        core.begin_stop();
    }
    for core in node.cores.iter() {
        core.stop().await;
    }
}

/// Runs `work` on a node on `disk`, which is then killed.
fn live<T: 'static, W: Future<Output = T> + 'static>(
    disk: &Rc<SimDisk>,
    work: impl FnOnce(Sim, Rc<SimNode>) -> W + 'static,
) -> T {
    let disk = disk.clone();
    let done = super::run(7, |sim| async move {
        let node = Rc::new(open(&sim, &disk, CORES, options()).await);
        // It lives until the work is done, however much of it that needs.
        work(sim, node.clone()).await
    });
    Core::set_current(None);
    done
}

/// A directory of two lives, the second of which ended in order or was killed in a pause.
fn directory(in_order: bool) -> (Rc<SimDisk>, Model) {
    let disk = Rc::new(SimDisk::new(5));
    let model = live(&disk, |sim, node| async move {
        let (mut model, random, core) = (Model::default(), Random::new(3), node.cores[0].clone());
        for name in COLLECTIONS {
            let quant = if name == "files" { Quantizer::Sq8 } else { Quantizer::None };
            let persistent = name == "files";
            let config = DenseConfig { quant, persistent, ..DenseConfig::new(DIM, Metric::L2) };
            until_not_busy(|| core.create_collection(name, config.clone())).await.unwrap();
        }
        let index =
            IndexDefinition { name: "i".into(), prefix: b"key".to_vec(), path: "f".into(), is_count: false };
        core.keys().define_key_index(index, true).await.unwrap();
        for (alias, target) in [("live", "plain"), ("acme/live", "acme/other")] {
            let change = AliasChange::Create { alias: alias.into(), collection: target.into() };
            until_not_busy(|| core.change_aliases(vec![change.clone()])).await.unwrap();
            let full = |name: &str| Core::full_name(name).unwrap();
            model.aliases.insert(full(alias), full(target));
        }
        fill(&core, &mut model, &random, 12, &[0, 1, 2]).await;
        checkpoint_all(&node).await;
        fill(&core, &mut model, &random, 6, &[0, 1, 2]).await;
        checkpoint_all(&node).await;
        sim.sleep_us(200_000).await;
        model
    });
    let model = live(&disk, move |sim, node| async move {
        let (mut model, random, core) = (model, Random::new(4), node.cores[1].clone());
        // The old segments go, in the middle of which the next are written.
        fill(&core, &mut model, &random, 8, &[0, 2, 3]).await;
        sim.sleep_us(500_000).await;
        fill(&core, &mut model, &random, 8, &[0, 2, 3]).await;
        match in_order {
            true => stop(&node).await,
            false => sim.sleep_us(200_000).await,
        }
        model
    });
    (disk, model)
}

fn copy(disk: &SimDisk) -> Rc<SimDisk> {
    let copy = SimDisk::new(9);
    for path in disk.paths() {
        copy.put(&path, disk.bytes(&path).unwrap());
    }
    Rc::new(copy)
}

/// Which stores say that they are damaged; everything else is what the model says.
async fn check(core: &Rc<Core>, model: &Model, what: &str) -> BTreeSet<String> {
    let mut damaged = BTreeSet::new();
    let listed: Vec<(String, bool)> =
        core.collections().unwrap().into_iter().map(|info| (info.name, info.damage.is_some())).collect();
    for (collection, name) in COLLECTIONS.into_iter().enumerate() {
        let full = Core::full_name(name).unwrap();
        let (_, is_damaged) = listed
            .iter()
            .find(|(listed, _)| *listed == full)
            .unwrap_or_else(|| panic!("{what}: {name} is gone: {listed:?}"));
        let taken = until_not_busy(|| core.create_collection(name, DenseConfig::new(DIM, Metric::L2))).await;
        assert!(matches!(taken, Err(OpError::CollectionExists(_))), "{what}: {name} is shadowed");
        let all = until_not_busy(|| core.get(name, (0..40).collect(), true, true)).await;
        let request =
            SearchRequest { vector: vec![500.0, 1.0, 2.0, 3.0], k: 40, filter: None, with_rows: false };
        let hits = until_not_busy(|| core.search(name, request.clone())).await;
        if *is_damaged {
            assert!(matches!(all, Err(OpError::Damaged(_))), "{what}: {name}");
            assert!(matches!(hits, Err(OpError::Damaged(_))), "{what}: {name}");
            let written = write(core, name, 1, vec![0.0; DIM]).await;
            assert!(matches!(written, Err(OpError::Damaged(_))), "{what}: {name} {written:?}");
            damaged.insert(full);
            continue;
        }
        let found = all.unwrap().into_iter().map(|point| point.map(|point| point.vector.unwrap()));
        for (id, found) in found.enumerate() {
            assert_eq!(found.as_ref(), model.points.get(&(collection, id as u64)), "{what}: {name} {id}");
        }
        let expected: BTreeSet<u64> =
            model.points.keys().filter(|(of, _)| *of == collection).map(|(_, id)| *id).collect();
        let hits: BTreeSet<u64> = hits.unwrap().into_iter().map(|hit| hit.id).collect();
        assert!(
            hits.is_subset(&expected) && hits.is_empty() == expected.is_empty(),
            "{what}: {name} {hits:?}"
        );
    }
    for n in 0..60 {
        let (key, mut value) = (format!("key{n}").into_bytes(), Vec::new());
        match core.keys().key_value(&key, &mut value).await {
            Ok(there) => assert_eq!(there.then_some(&value), model.keys.get(&key), "{what}: key {n}"),
            Err(OpError::Busy(_)) => {}
            Err(OpError::Damaged(_)) => {
                assert!(matches!(put(core, &key, b"x").await, Err(OpError::Damaged(_))), "{what}");
                damaged.insert(KEYS.to_owned());
            }
            Err(other) => panic!("{what}: {other}"),
        }
    }
    let aliases: BTreeMap<String, String> =
        core.aliases(None).unwrap().into_iter().map(|alias| (alias.alias, alias.collection)).collect();
    assert_eq!(aliases, model.aliases, "{what}");
    if !damaged.contains(KEYS) {
        assert_eq!(core.keys().key_indexes().await.len(), 1, "{what}: indexes of keys");
    }
    damaged
}

/// Opens the damaged directory twice; the stores that say they are damaged. What is damaged can be dropped and made anew.
fn opened(disk: &Rc<SimDisk>, model: &Model, what: &str) -> BTreeSet<String> {
    let mut verdicts = Vec::new();
    for life in 0..2 {
        let (model, what) = (model.clone(), what.to_owned());
        verdicts.push(live(disk, move |sim, node| async move {
            let damaged = check(&node.cores[1], &model, &what).await;
            // Checkpoints, and what else follows a start.
            sim.sleep_us(300_000).await;
            assert_eq!(check(&node.cores[0], &model, &what).await, damaged, "{what}: later in life {life}");
            if life == 1 {
                for name in damaged.iter().filter(|name| *name != KEYS) {
                    assert!(
                        until_not_busy(|| node.cores[0].drop_collection(name, None)).await.unwrap(),
                        "{what}"
                    );
                    let config = DenseConfig::new(DIM, Metric::L2);
                    until_not_busy(|| node.cores[0].create_collection(name, config.clone())).await.unwrap();
                    write(&node.cores[0], name, 1, vec![1.0; DIM]).await.unwrap();
                }
            }
            damaged
        }));
    }
    assert_eq!(verdicts[0], verdicts[1], "{what}: the second start");
    verdicts.remove(0)
}

/// The stores that damage to a path may concern.
fn concerned(disk: &Rc<SimDisk>, path: &Path) -> BTreeSet<String> {
    let text = path.to_string_lossy().into_owned();
    live(&copy(disk), move |_, node| async move {
        let mut stores = BTreeSet::new();
        for core in node.cores.iter() {
            for owned in core.collections.all_owned() {
                let dir = format!("collections/{:016x}", owned.handle.uid);
                let log = format!("log/{:04}", owned.handle.owner);
                if text.starts_with(&dir) || text.starts_with(&log) || text == "log" || text == "collections"
                {
                    stores.insert(owned.handle.name.clone());
                }
            }
        }
        if text.starts_with("keys") || text.starts_with("log") {
            stores.insert(KEYS.to_owned());
        }
        stores
    })
}

#[derive(Default)]
struct Tally {
    trials: usize,
    damaged: usize,
    /// What went wrong in each trial that did.
    failures: Vec<String>,
}

fn trial(
    disk: &Rc<SimDisk>,
    model: &Model,
    path: &Path,
    what: &str,
    may: &BTreeSet<String>,
    tally: &mut Tally,
) {
    let what = format!("{} {what}", path.display());
    tally.trials += 1;
    // All of them are tried before the test fails: which files it is that are not protected says why.
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let damaged = opened(disk, model, &what);
        assert!(damaged.is_subset(may), "{what}: {damaged:?} of {may:?}");
        damaged
    }));
    match tried {
        Ok(damaged) => tally.damaged += usize::from(!damaged.is_empty()),
        Err(panic) => {
            Core::set_current(None);
            let text = panic.downcast_ref::<String>().cloned();
            tally.failures.push(text.unwrap_or(what));
        }
    }
}

fn every_file_in_turn(in_order: bool) {
    let (disk, model) = directory(in_order);
    assert_eq!(opened(&copy(&disk), &model, "nothing is damaged"), BTreeSet::new());
    let mut tally = Tally::default();
    let paths = disk.paths();
    let random = Random::new(11);
    for path in &paths {
        let may = concerned(&disk, path);
        let bytes = disk.bytes(path).unwrap();
        let mut with = |what: &str, change: &dyn Fn(&SimDisk)| {
            let disk = copy(&disk);
            change(&disk);
            trial(&disk, &model, path, what, &may, &mut tally);
        };
        with("removed", &|disk| {
            futures_lite::future::block_on(crate::disk::Disk::remove(disk, path)).unwrap()
        });
        with("emptied", &|disk| disk.put(path, Vec::new()));
        with("cut", &|disk| disk.put(path, bytes[..bytes.len() / 2].to_vec()));
        for _ in 0..flips() {
            let (at, bit) = (random.index(bytes.len().max(1)), random.below(8));
            with(&format!("flipped at {at}"), &|disk| {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                disk.put(path, bytes);
            });
        }
    }
    // Exchanged: with the next file of the same kind in the directory, and with that of the same kind in others.
    let kind = |path: &PathBuf| {
        path.extension().map_or_else(|| path.file_name().unwrap().to_owned(), ToOwned::to_owned)
    };
    for (index, one) in paths.iter().enumerate() {
        let top = |path: &PathBuf| path.components().next().unwrap().as_os_str().to_owned();
        let alike = |other: &&PathBuf| kind(other) == kind(one) && top(other) == top(one);
        for other in paths[index + 1..].iter().filter(alike).take(4) {
            let may = concerned(&disk, one).union(&concerned(&disk, other)).cloned().collect();
            let disk = copy(&disk);
            let (a, b) = (disk.bytes(one).unwrap(), disk.bytes(other).unwrap());
            disk.put(one, b);
            disk.put(other, a);
            trial(&disk, &model, one, &format!("exchanged with {}", other.display()), &may, &mut tally);
        }
    }
    let dirs: BTreeSet<PathBuf> = paths
        .iter()
        .flat_map(|path| path.ancestors().skip(1))
        .map(Path::to_owned)
        .filter(|dir| dir != Path::new(""))
        .collect();
    for dir in &dirs {
        let damaged = copy(&disk);
        futures_lite::future::block_on(crate::disk::Disk::remove_dir(&*damaged, dir)).unwrap();
        trial(&damaged, &model, dir, "removed", &concerned(&disk, dir), &mut tally);
    }
    println!(
        "{} files, {} trials, {} of which said that a store is damaged",
        paths.len(),
        tally.trials,
        tally.damaged
    );
    assert!(tally.failures.is_empty(), "{} failures: {:#?}", tally.failures.len(), tally.failures);
    assert!(
        tally.damaged * 20 > tally.trials,
        "the trials hit nothing: {} of {}",
        tally.damaged,
        tally.trials
    );
}

#[test]
fn every_file_in_turn_is_damaged_after_a_clean_stop() {
    every_file_in_turn(true);
}

#[test]
fn every_file_in_turn_is_damaged_after_a_kill() {
    every_file_in_turn(false);
}

/// Starts a node; the collections that say that they are damaged, by name and uid, and whether the keys do.
fn damaged(disk: &Rc<SimDisk>) -> (Vec<(String, u64)>, bool) {
    live(disk, |_, node| async move {
        let core = node.cores[0].clone();
        let listed = core.collections().unwrap().into_iter().filter(|info| info.damage.is_some());
        let names = listed.map(|info| (info.name.clone(), core.ctx.handle(&info.name).unwrap().uid));
        (names.collect(), core.keys().damage().is_some())
    })
}

/// What was damaged and accepted is served as far as it goes, once: the file that accepted it is gone.
#[test]
fn damage_that_is_accepted_is_served() {
    let (disk, _) = directory(true);
    let disk = copy(&disk);
    futures_lite::future::block_on(crate::disk::Disk::remove_dir(&*disk, Path::new("log"))).unwrap();
    let damaged = live(&disk, |_, node| async move {
        let core = node.cores[0].clone();
        assert!(core.keys().damage().is_some());
        let why = core.not_ready().expect("stores are damaged");
        assert!(why.contains("the keys are damaged") && why.contains("damaged and serve"), "{why}");
        let damaged = core.collections().unwrap().into_iter().filter(|info| info.damage.is_some());
        damaged.map(|info| (info.name.clone(), core.ctx.handle(&info.name).unwrap().uid)).collect::<Vec<_>>()
    });
    let names: BTreeSet<&str> = damaged.iter().map(|(name, _)| name.as_str()).collect();
    // Only collections with records in the log have lost anything: `fresh` has no image, and may not be missing here.
    let written = BTreeSet::from(["default/plain", "default/files", "default/fresh"]);
    assert!(names.contains("default/fresh") && names.is_subset(&written), "{names:?}");
    let dirs = damaged.iter().map(|(_, uid)| format!("collections/{uid:016x}")).chain(["keys".to_owned()]);
    let accepts: Vec<String> = dirs.map(|dir| format!("{dir}/{}", crate::damage_mark::ACCEPT)).collect();
    for accept in &accepts {
        disk.put(accept, Vec::new());
    }
    for _ in 0..2 {
        live(&disk, |_, node| async move {
            let core = node.cores[0].clone();
            assert!(core.collections().unwrap().iter().all(|info| info.damage.is_none()));
            put(&core, b"new", b"value").await.unwrap();
            write(&core, "plain", 99, vec![1.0; DIM]).await.unwrap();
        });
        assert!(
            disk.paths()
                .iter()
                .all(|path| !path.ends_with(crate::damage_mark::ACCEPT) && !path.ends_with("damaged.json"))
        );
    }
}

/// A part of the log is gone: the stores concerned stay damaged until each is accepted, and one that is accepted stays so.
#[test]
fn damage_is_accepted_store_by_store_and_for_good() {
    let (disk, _) = directory(true);
    let disk = copy(&disk);
    let last = disk.paths().into_iter().filter(|path| path.extension().is_some_and(|end| end == "wal"));
    // Of each core the newest segment with records is removed.
    for core in ["0000", "0001"] {
        let dir = Path::new("log").join(core);
        let with_records = |path: &PathBuf| {
            path.starts_with(&dir) && disk.bytes(path).unwrap()[4096..].iter().any(|byte| *byte != 0)
        };
        let newest = last.clone().filter(with_records).max().expect("a segment");
        futures_lite::future::block_on(crate::disk::Disk::remove(&*disk, &newest)).unwrap();
    }
    let (first, keys) = damaged(&disk);
    assert!(!first.is_empty() && keys, "{first:?} {keys}");
    assert_eq!(damaged(&disk), (first.clone(), keys), "a second start says the same");
    // A damage mark is kept twice, and either of the two files is enough.
    let marks: Vec<PathBuf> =
        disk.paths().into_iter().filter(|path| path.ends_with("damaged.json")).collect();
    assert_eq!(marks.len(), 2 * (first.len() + 1), "{marks:?}");
    for mark in marks {
        futures_lite::future::block_on(crate::disk::Disk::remove(&*disk, &mark)).unwrap();
        assert_eq!(damaged(&disk), (first.clone(), keys), "{}", mark.display());
    }
    for accepted in 0..first.len() {
        let (name, uid) = &first[accepted];
        disk.put(format!("collections/{uid:016x}/{}", crate::damage_mark::ACCEPT), Vec::new());
        for start in 0..2 {
            assert_eq!(damaged(&disk), (first[accepted + 1..].to_vec(), true), "{name}, start {start}");
            let name = name.clone();
            live(&disk, |_, node| async move {
                write(&node.cores[0], &name, 77, vec![1.0; DIM]).await.unwrap();
            });
        }
    }
    disk.put(format!("keys/{}", crate::damage_mark::ACCEPT), Vec::new());
    for _ in 0..2 {
        assert_eq!(damaged(&disk), (Vec::new(), false));
        live(&disk, |_, node| async move { put(&node.cores[0], b"new", b"value").await.unwrap() });
    }
}

/// Nothing can be written: the node opens all the same, says what is damaged, and finds it again once there is room.
#[test]
fn damage_on_a_full_disk_is_found_again() {
    let (disk, _) = directory(true);
    let disk = copy(&disk);
    let gone: Vec<PathBuf> =
        disk.paths().into_iter().filter(|path| path.extension().is_some_and(|end| end == "wal")).collect();
    for path in gone.iter().map(PathBuf::as_path).chain([Path::new("reserve")]) {
        futures_lite::future::block_on(crate::disk::Disk::remove(&*disk, path)).unwrap();
    }
    let expected = damaged(&copy(&disk));
    assert!(!expected.0.is_empty() && expected.1, "{expected:?}");
    disk.set_space(Some(disk.used_bytes()));
    for _ in 0..2 {
        assert_eq!(damaged(&disk), expected);
    }
    assert!(!disk.paths().iter().any(|path| path.ends_with("damaged.json")));
    disk.set_space(None);
    for _ in 0..2 {
        assert_eq!(damaged(&disk), expected, "with room");
    }
    assert!(disk.paths().iter().any(|path| path.ends_with("damaged.json")));
}

/// A store whose manifest cannot be read cannot be judged; a loss in the log is found once it has been repaired.
#[test]
fn a_loss_is_remembered_until_its_store_can_be_judged() {
    let (disk, _) = directory(true);
    let segments: Vec<PathBuf> =
        disk.paths().into_iter().filter(|path| path.extension().is_some_and(|end| end == "wal")).collect();
    let mut judged = 0;
    for segment in segments.iter().map(|segment| vec![segment.clone()]).chain([segments.clone()]) {
        let disk = copy(&disk);
        for segment in &segment {
            futures_lite::future::block_on(crate::disk::Disk::remove(&*disk, segment)).unwrap();
        }
        let (expected, keys) = damaged(&copy(&disk));
        let manifests = expected.iter().map(|(_, uid)| format!("collections/{uid:016x}/manifest"));
        let manifests: Vec<PathBuf> = manifests
            .chain(keys.then(|| "keys/manifest.json".to_owned()))
            .flat_map(|path| [PathBuf::from(&path), crate::twin::copy_of(Path::new(&path))])
            .collect();
        let whole: Vec<_> = manifests.iter().map(|path| disk.bytes(path)).collect();
        judged += manifests.len();
        manifests.iter().for_each(|path| disk.put(path, b"{".to_vec()));
        for _ in 0..2 {
            assert_eq!(damaged(&disk), (expected.clone(), keys), "{segment:?}: manifests are unreadable");
        }
        for (path, bytes) in manifests.iter().zip(whole) {
            disk.put(path, bytes.unwrap_or_else(|| panic!("{}", path.display())));
        }
        for _ in 0..2 {
            assert_eq!(damaged(&disk), (expected.clone(), keys), "{segment:?}: manifests are repaired");
        }
    }
    assert!(judged > 4, "{judged}");
}

/// Both files of the indexes of keys are damaged: keys are refused until that is accepted, and then have no index.
#[test]
fn damaged_indexes_of_keys_are_accepted_like_damaged_keys() {
    let (disk, model) = directory(true);
    let disk = copy(&disk);
    for path in disk.paths().into_iter().filter(|path| path.ends_with("keys/indexes.json")) {
        disk.put(path, b"{".to_vec());
    }
    let state = |disk: &Rc<SimDisk>| {
        let (key, value) =
            model.keys.first_key_value().map(|(key, value)| (key.clone(), value.clone())).unwrap();
        live(disk, |_, node| async move {
            let core = node.cores[0].clone();
            if let Some(why) = core.keys().damage() {
                assert!(why.contains("indexes.json"), "{why}");
                assert!(matches!(put(&core, &key, &value).await, Err(OpError::Damaged(_))));
                return None;
            }
            put(&core, &key, &value).await.unwrap();
            Some(core.keys().key_indexes().await.len())
        })
    };
    assert_eq!((state(&disk), state(&disk)), (None, None));
    disk.put(format!("keys/{}", crate::damage_mark::ACCEPT), Vec::new());
    assert_eq!((state(&disk), state(&disk)), (Some(0), Some(0)));
    assert!(!disk.paths().iter().any(|path| path.ends_with(crate::damage_mark::ACCEPT)));
}
