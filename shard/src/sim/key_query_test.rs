//! Queries over keys in simulation, beside what a walk over a map finds: random records, indexes defined and dropped, expiry, eviction,
//! flushes, crashes, other numbers of cores and of shards with each life.

use super::keys_test::{Order, Trials, carry_out, each_seed, options, read};
use super::node::open;
use super::{Random, Sim};
use crate::core::Core;
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::kv::KeysOptions;
use crate::kv::indexes::IndexDefinition;
use crate::kv::query::{KeyPage, KeyQuery, KeyRow, Returns};
use crate::node::NodeOptions;
use nigh_engine::filter::{Node, Predicate};
use nigh_engine::kv::RecordFilter;
use nigh_engine::payload::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What clients know: the keys they ever wrote, and the indexes there are.
#[derive(Default)]
struct Model {
    keys: BTreeSet<Vec<u8>>,
    indexes: BTreeMap<String, IndexDefinition>,
}

fn key_of(random: &Random) -> Vec<u8> {
    let prefix = ["", "a", "ab", "b"][random.index(4)];
    format!("{prefix}{}", random.below(12)).into_bytes()
}

/// Plain, or a dynamic record with `f` or `g`.
fn value_of(random: &Random) -> Vec<u8> {
    let name = [b'f', b'g'][random.index(2)];
    let field = |code: u8, data: &[u8]| [&[2, 1, 1, name, code][..], data].concat();
    match random.below(4) {
        0 => b"plain".to_vec(),
        1 => field(9, &(random.below(8) as f64 / 2.0).to_le_bytes()),
        2 => field(12, &[1, b"abc"[random.index(3)]]),
        _ => field(7, &(random.below(5) as i64).to_le_bytes()),
    }
}

fn index_of(random: &Random) -> IndexDefinition {
    let path = ["f", "g", "f#count"][random.index(3)];
    IndexDefinition {
        name: ["one", "two"][random.index(2)].to_owned(),
        prefix: [&b""[..], b"a", b"c"][random.index(3)].to_vec(),
        path: path.to_owned(),
        is_count: path.ends_with("#count"),
    }
}

fn filter_of(random: &Random) -> (RecordFilter, &'static str) {
    let field = ["f", "g", "f#count"][random.index(3)];
    let leaf = |op: &str| {
        let value = match random.below(3) {
            0 => Value::Float(random.below(8) as f64 / 2.0),
            1 => Value::String(["a", "b", "c"][random.index(3)].to_owned()),
            _ => Value::Int(random.below(5) as i64),
        };
        Node { op: Some(op.into()), field: Some(field.into()), value: Some(value), ..Node::default() }
    };
    let node = match random.below(4) {
        0 => leaf("eq"),
        1 => leaf("gte"),
        2 => Node { op: Some("and".into()), and: Some(vec![leaf("gt"), leaf("lte")]), ..Node::default() },
        _ => Node { op: Some("not".into()), not: Some(leaf("eq").into()), ..Node::default() },
    };
    (RecordFilter::new(Predicate::compile(&node).unwrap()).unwrap(), field)
}

/// Changes a key, however busy its core is.
async fn change(sim: &Sim, core: &Rc<Core>, key: &[u8], order: &Order) {
    loop {
        match carry_out(core, key, order).await {
            Ok(_) | Err(OpError::StoreFull) => return,
            Err(OpError::Busy(_)) => sim.sleep_us(1_000).await,
            Err(other) => panic!("{key:?} {order:?}: {other}"),
        }
    }
}

/// All pages of a query.
async fn all_rows(sim: &Sim, core: &Rc<Core>, mut query: KeyQuery) -> Result<Vec<KeyRow>, OpError> {
    let mut rows = Vec::new();
    loop {
        match core.keys().query_keys(query.clone()).await {
            Ok(KeyPage { rows: more, reached, .. }) => {
                assert!(more.len() <= query.limit);
                rows.extend(more);
                match reached {
                    Some(reached) => query.after = Some(reached),
                    None => return Ok(rows),
                }
            }
            // It is being built, or a core has much to do.
            Err(OpError::Busy(_)) => sim.sleep_us(50_000).await,
            Err(other) => return Err(other),
        }
    }
}

async fn check_query(sim: &Sim, core: &Rc<Core>, random: &Random, model: &RefCell<Model>, evicting: bool) {
    let indexes: Vec<IndexDefinition> = model.borrow().indexes.values().cloned().collect();
    let index = indexes.get(random.index(3)).cloned();
    let filter = random.chance(2, 3).then(|| filter_of(random));
    let query = KeyQuery {
        index: index.as_ref().map(|index| index.name.clone()),
        scans: random.chance(1, 2),
        filter: filter.as_ref().map(|(filter, _)| filter.clone()),
        after: random.chance(1, 4).then(|| key_of(random)),
        limit: 1 + random.index(9),
        returns: [Returns::Keys, Returns::Values, Returns::Records][random.index(3)],
    };
    let before = expected_rows(core, model, &query, index.as_ref()).await;
    let found = all_rows(sim, core, query.clone()).await;
    let fits = match (&index, &query.filter) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(index), Some(filter)) => filter.predicate().bounds_of(&index.path).is_some(),
    };
    match found {
        Err(OpError::NoMemory(_)) => assert!(evicting && index.is_some(), "{index:?}"),
        Err(OpError::BadRequest(text)) => {
            assert_eq!(text, "filter needs an index or scan:true");
            assert!(!fits && !query.scans, "{query:?} with {index:?}");
        }
        Err(other) => panic!("{query:?}: {other}"),
        Ok(found) => {
            // Some may have expired on the way.
            let after = expected_rows(core, model, &query, index.as_ref()).await;
            assert!(fits || query.scans, "{query:?} with {index:?}");
            let possible =
                found.iter().all(|row| before.contains(row)) && after.iter().all(|row| found.contains(row));
            let ascends = found.is_sorted_by(|a, b| a.key < b.key);
            assert!(
                possible && ascends,
                "{query:?} with {index:?}: {found:?}, but {before:?} then {after:?}"
            );
        }
    }
}

/// What a walk over all keys that were ever written finds.
async fn expected_rows(
    core: &Rc<Core>,
    model: &RefCell<Model>,
    query: &KeyQuery,
    index: Option<&IndexDefinition>,
) -> Vec<KeyRow> {
    let mut expected = Vec::new();
    let keys: Vec<Vec<u8>> = model.borrow().keys.iter().cloned().collect();
    for key in keys {
        let Some((value, _)) = read(core, &key).await else { continue };
        let is_record = value[0] == 2;
        let is_row = index.is_none_or(|index| key.starts_with(&index.prefix))
            && query.after.as_ref().is_none_or(|after| key > *after)
            && query.filter.as_ref().is_none_or(|filter| filter.matches(&value))
            && (query.returns != Returns::Records || is_record);
        if is_row {
            expected.push(KeyRow { key, value: (query.returns != Returns::Keys).then_some(value) });
        }
    }
    expected
}

async fn life(sim: Sim, disk: Rc<SimDisk>, model: Rc<RefCell<Model>>, evicting: bool, number: i64) {
    let random = sim.random().fork();
    sim.step_wall_clock_ms(number * 3_600_000);
    let count = 1 + random.index(3);
    let options = options(&random, Trials { failing: false, evicting, filling: false });
    let options = NodeOptions { keys: KeysOptions { query: true, ..options.keys }, ..options };
    // Three quarters of it are for keys, which are to be few but not none.
    let budget_bytes = options.keys.budget_bytes * 2;
    let keys = KeysOptions { budget_bytes, shard_bytes_min: 4096, ..options.keys };
    let node = open(&sim, &disk, count, NodeOptions { keys, ..options }).await;
    let core = |random: &Random| node.cores[random.index(count)].clone();
    let mut known = core(&random).keys().key_indexes().await;
    known.iter_mut().for_each(|(_, ready)| *ready = true);
    let expected: Vec<_> = model.borrow().indexes.values().map(|index| (index.clone(), true)).collect();
    assert_eq!(known, expected, "indexes come back");
    for _ in 0..random.below(80) {
        let core = core(&random);
        match random.below(24) {
            0..=11 => {
                let key = key_of(&random);
                let ttl_ms = if random.chance(1, 4) { 1 + random.below(30) } else { 0 };
                let order = Order::Put { value: value_of(&random), ttl_ms };
                change(&sim, &core, &key, &order).await;
                model.borrow_mut().keys.insert(key);
            }
            12 | 13 => {
                change(&sim, &core, &key_of(&random), &Order::Del).await;
            }
            14 => sim.sleep_us(random.below(200_000)).await,
            15 if random.chance(1, 4) => match core.keys().flush_keys().await {
                Ok(()) | Err(OpError::Busy(_)) => {}
                Err(other) => panic!("{other}"),
            },
            16 | 17 => {
                let index = index_of(&random);
                let enabled = random.chance(2, 3);
                core.keys().define_key_index(index.clone(), enabled).await.unwrap();
                let indexes = &mut model.borrow_mut().indexes;
                match enabled {
                    true => indexes.insert(index.name.clone(), index),
                    false => indexes.remove(&index.name),
                };
            }
            _ => check_query(&sim, &core, &random, &model, evicting).await,
        }
    }
}

fn check_seed(seed: u64, evicting: bool) {
    let random = Random::new(seed);
    let mut disk = SimDisk::new(random.next());
    disk.set_yielding(true);
    let model = Rc::new(RefCell::new(Model::default()));
    for number in 0..3 {
        let shared_disk = Rc::new(disk);
        super::run(random.next(), |sim| life(sim, shared_disk.clone(), model.clone(), evicting, number));
        Core::set_current(None);
        disk = shared_disk.crash_clone(random.next());
    }
}

#[test]
fn queries_find_what_a_walk_finds() {
    each_seed(|seed| check_seed(seed, false));
}

#[test]
fn queries_find_what_eviction_has_left() {
    each_seed(|seed| check_seed(seed, true));
}

/// Keys that are there all the time are on one page exactly, whatever happens beside them.
#[test]
fn pages_lose_nothing_while_others_write() {
    each_seed(|seed| {
        let random = Random::new(seed);
        let disk = Rc::new(SimDisk::new(random.next()));
        super::run(random.next(), |sim| async move {
            let random = sim.random().fork();
            let options = options(&random, Trials { failing: false, evicting: false, filling: false });
            let options = NodeOptions { keys: KeysOptions { query: true, ..options.keys }, ..options };
            let node = open(&sim, &disk, 2, options).await;
            let cores = node.cores.clone();
            let put = |key: String| {
                let (sim, core, value) = (sim.clone(), cores[random.index(2)].clone(), value_of(&random));
                async move {
                    change(&sim, &core, key.as_bytes(), &Order::Put { value, ttl_ms: 0 }).await;
                }
            };
            for n in 0..40 {
                put(format!("stays{n:02}")).await;
            }
            let index = IndexDefinition { prefix: b"stays".to_vec(), ..index_of(&random) };
            cores[0].keys().define_key_index(index.clone(), true).await.unwrap();
            let (writer, pace) = (cores.clone(), random.fork());
            let (stop, stopped) = (Rc::new(std::cell::Cell::new(false)), sim.clone());
            let stop2 = stop.clone();
            sim.spawn(async move {
                while !stop2.get() {
                    let key = format!("stays{:02}{}", pace.below(40), ["", "x"][pace.index(2)]);
                    let order = if key.ends_with('x') && pace.chance(1, 2) {
                        Order::Del
                    } else {
                        Order::Put { value: value_of(&pace), ttl_ms: 0 }
                    };
                    change(&stopped, &writer[pace.index(2)], key.as_bytes(), &order).await;
                    stopped.sleep_us(pace.below(200)).await;
                }
            });
            for uses_index in [true, false] {
                let query = KeyQuery {
                    index: uses_index.then(|| index.name.clone()),
                    scans: true,
                    filter: None,
                    after: None,
                    limit: 1 + random.index(7),
                    returns: Returns::Values,
                };
                let rows = all_rows(&sim, &cores[1], query).await.unwrap();
                let keys: Vec<_> =
                    rows.iter().map(|row| String::from_utf8(row.key.clone()).unwrap()).collect();
                assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
                let stayed = keys.iter().filter(|key| !key.ends_with('x')).count();
                assert_eq!(stayed, 40, "{keys:?}");
            }
            stop.set(true);
            sim.sleep_us(10_000).await;
        });
        Core::set_current(None);
    });
}
