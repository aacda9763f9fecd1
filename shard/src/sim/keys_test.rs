//! Keys in simulation: random clients, crashes, other numbers of cores and of shards with each life. Nothing acknowledged is lost, nothing
//! older comes back, and with a budget too small for them keys vanish but never return.

use super::node::{SimNode, keys_options, next_life, node_options, open, patiently};
use super::{Random, Sim};
use crate::core::Core;
use crate::disk::{Calls, Failure, SimDisk};
use crate::env::call;
use crate::error::OpError;
use crate::kv::{KeysOptions, Moment};
use crate::node::NodeOptions;
use nigh_engine::kv::{Op, Read, Reply};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

const CLIENTS: u64 = 3;
const KEYS_PER_CLIENT: u64 = 12;

/// A value and its deadline.
pub(super) type Stored = Option<(Vec<u8>, u64)>;
/// What may be found for a key: first the acknowledged state.
type Model = BTreeMap<Vec<u8>, Vec<Stored>>;

/// What a life is like.
#[derive(Clone, Copy)]
pub(super) struct Trials {
    pub failing: bool,
    pub evicting: bool,
    /// The disk is full now and then, at a start as well.
    pub filling: bool,
}

pub(super) fn options(random: &Random, trials: Trials) -> NodeOptions {
    // A full disk has no room for keys to be spread anew.
    let shards = if trials.filling { 4 } else { 1 << random.below(4) };
    let keys = match trials.evicting {
        false => keys_options(),
        true => KeysOptions {
            page_bytes_min: 512,
            relocating_eviction: random.chance(1, 2),
            sieve_visited_bit: random.chance(1, 2),
            in_place_same_size: random.chance(1, 2),
            reserve_interval_ms: random.below(5),
            budget_bytes: shards as u64 * 2048,
            shard_bytes_min: 2048,
            ..keys_options()
        },
    };
    NodeOptions {
        shards,
        segment_bytes: 4096 * (2 + random.below(8)),
        log_bytes_soft: 4096 * (4 + random.below(16)),
        image_records_min: 1 + random.below(40),
        sweep_interval_ms: 3,
        keys,
        ..node_options()
    }
}

fn key_of(client: u64, n: u64) -> Vec<u8> {
    // One key is empty and some are long.
    match (client, n) {
        (0, 0) => Vec::new(),
        _ => format!("{client}-{n}").into_bytes().repeat(if n == 1 { 30 } else { 1 }),
    }
}

/// An operation that owns what it names, to travel between cores.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Put { value: Vec<u8>, ttl_ms: u64 },
    Del,
    Expire { ttl_ms: u64 },
    Incr { delta: i64 },
    SetNx { value: Vec<u8> },
    Cas { value: Vec<u8>, expected: Option<Vec<u8>> },
    GetDel,
    Persist,
}

impl Order {
    fn op<'a>(&'a self, key: &'a [u8]) -> Op<'a> {
        match self {
            Order::Put { value, ttl_ms } => Op::Put { key, value, ttl_ms: *ttl_ms },
            Order::Del => Op::Del { key },
            Order::Expire { ttl_ms } => Op::Expire { key, ttl_ms: *ttl_ms },
            Order::Incr { delta } => Op::Incr { key, delta: *delta },
            Order::SetNx { value } => Op::SetNx { key, value, ttl_ms: 0 },
            Order::Cas { value, expected } => {
                Op::Cas { key, value, expected: expected.as_deref(), ttl_ms: 0 }
            }
            Order::GetDel => Op::GetDel { key },
            Order::Persist => Op::Persist { key },
        }
    }

    /// State and answer afterwards; `None`: refused.
    fn on(&self, before: &Stored, now_ms: u64) -> Option<(Stored, Reply)> {
        let deadline = |ttl_ms: u64| if ttl_ms == 0 { 0 } else { now_ms + ttl_ms };
        Some(match self {
            Order::Put { value, ttl_ms } => (Some((value.clone(), deadline(*ttl_ms))), Reply::Done),
            Order::Del => (None, Reply::Flag(before.is_some())),
            Order::Expire { ttl_ms } => match before {
                None => (None, Reply::Missing),
                Some((value, _)) => (Some((value.clone(), deadline(*ttl_ms))), Reply::Done),
            },
            Order::Incr { delta } => {
                let number = match before {
                    None => 0,
                    Some((value, _)) => i64::from_be_bytes(value.as_slice().try_into().ok()?),
                };
                let sum = number.wrapping_add(*delta);
                (Some((sum.to_be_bytes().to_vec(), 0)), Reply::Number(sum))
            }
            Order::SetNx { value } => match before {
                None => (Some((value.clone(), 0)), Reply::Flag(true)),
                there => (there.clone(), Reply::Flag(false)),
            },
            Order::Cas { value, expected } => {
                if before.as_ref().map(|(value, _)| value) == expected.as_ref() {
                    (Some((value.clone(), 0)), Reply::Flag(true))
                } else {
                    (before.clone(), Reply::Flag(false))
                }
            }
            Order::GetDel => (None, Reply::Value(before.as_ref().map(|(value, _)| value.clone()))),
            Order::Persist => match before {
                Some((value, deadline_ms)) if *deadline_ms != 0 => {
                    (Some((value.clone(), 0)), Reply::Flag(true))
                }
                other => (other.clone(), Reply::Flag(false)),
            },
        })
    }
}

pub(super) async fn carry_out(core: &Rc<Core>, key: &[u8], order: &Order) -> Result<Reply, OpError> {
    let place = core.keys().place_of(key);
    let (key, order) = (key.to_vec(), order.clone());
    let done = call(core, place.core, move |there| async move {
        let (mut reply, mut moment) = (None, Moment::default());
        let changed =
            there.keys().change_key(place, order.op(&key), &mut moment, |told| reply = Some(told.clone()));
        let ticket = changed.await?;
        there.wait_durable(ticket).await?;
        Ok(reply.expect("a change answers"))
    });
    done.await.unwrap_or_else(|busy| Err(OpError::Busy(busy.to_string())))
}

/// What a core reads without asking the owner.
pub(super) async fn read(core: &Rc<Core>, key: &[u8]) -> Stored {
    let place = core.keys().place_of(key);
    let mut value = Vec::new();
    let read = core.keys().get(&core.keys().pin(), place, key, core.unix_ms(), &mut value);
    match read {
        Read::Found { deadline_ms } => Some((value, deadline_ms)),
        Read::Missing => None,
        Read::Contended => unreachable!("all cores of a simulation run on one thread"),
    }
}

/// What is left of a state at a time.
fn live(stored: &Stored, now_ms: u64) -> Stored {
    stored.clone().filter(|(_, deadline_ms)| *deadline_ms == 0 || now_ms < *deadline_ms)
}

fn random_order(random: &Random, before: &Stored) -> Order {
    let value = |random: &Random| {
        let len = if random.chance(1, 8) { 300 } else { random.below(9) };
        (0..len).map(|_| random.below(256) as u8).collect::<Vec<u8>>()
    };
    // Some end within a life, some in a later one.
    let ttl_ms = |random: &Random| match random.below(4) {
        0 => 1 + random.below(20),
        1 => 1 + random.below(9_000_000),
        _ => 0,
    };
    match random.below(12) {
        0..=3 => Order::Put { value: value(random), ttl_ms: ttl_ms(random) },
        4 => Order::Del,
        5 => Order::Expire { ttl_ms: ttl_ms(random) },
        6 => Order::Incr { delta: random.next() as i64 },
        7 => Order::SetNx { value: value(random) },
        8 | 9 => {
            let expected = before.as_ref().map(|(value, _)| value.clone());
            let expected = if random.chance(1, 4) { Some(b"wrong".to_vec()) } else { expected };
            Order::Cas { value: value(random), expected }
        }
        10 => Order::GetDel,
        _ => Order::Persist,
    }
}

/// An operation is carried out within so many milliseconds after it was asked for.
const LATE_MS: u64 = 50;

/// One step of a client on one of its keys; false when the node takes no more.
async fn step(
    sim: &Sim,
    core: &Rc<Core>,
    random: &Random,
    model: &RefCell<Model>,
    key: &[u8],
    trials: Trials,
) -> bool {
    settle(sim, core, model, key, trials).await;
    let before = model.borrow().get(key).and_then(|possible| possible[0].clone());
    let order = random_order(random, &before);
    // Times pass between asking and doing: what could happen at any of them is possible.
    let asked_ms = core.unix_ms();
    let outcome = order.on(&live(&before, asked_ms), asked_ms);
    // If the node is killed before it answers.
    for at_ms in asked_ms..asked_ms + LATE_MS {
        if let Some((after, _)) = order.on(&live(&before, at_ms), at_ms) {
            model.borrow_mut().entry(key.to_vec()).or_insert_with(|| vec![None]).push(after);
        }
    }
    let answer = carry_out(core, key, &order).await;
    let done_ms = core.unix_ms();
    let could_change = |stored: &Stored| stored.as_ref().is_some_and(|(_, deadline_ms)| *deadline_ms != 0);
    match answer {
        // The clock has moved meanwhile, or an eviction could: take what is there for the truth, if it can be.
        Ok(_) if done_ms != asked_ms || trials.evicting || could_change(&before) => {
            let found = read(core, key).await;
            let mut possible = vec![None];
            for at_ms in asked_ms..=core.unix_ms() {
                possible.extend(
                    order.on(&live(&before, at_ms), at_ms).map(|(after, _)| live(&after, core.unix_ms())),
                );
                if trials.evicting {
                    possible.extend(order.on(&None, at_ms).map(|(after, _)| after));
                }
            }
            assert!(possible.contains(&found), "{key:?} {order:?}: found {found:?}, possible {possible:?}");
            model.borrow_mut().insert(key.to_vec(), vec![found]);
        }
        Ok(reply) => {
            let (after, expected) = outcome.expect("a refused order is not answered");
            assert_eq!(reply, expected, "{key:?} {order:?} on {before:?}");
            model.borrow_mut().insert(key.to_vec(), vec![after]);
        }
        Err(OpError::BadRequest(text)) => {
            assert_eq!(text, "incr value is not 8 bytes");
            assert!(matches!(order, Order::Incr { .. }));
        }
        Err(OpError::Busy(_) | OpError::NoSpace(_) | OpError::StoreFull) => {}
        Err(OpError::Unavailable(_)) if core.is_stopping() => return false,
        Err(other) => panic!("{key:?} {order:?}: {other}"),
    }
    true
}

/// Whatever is found now is the only possibility from here on, once what made it so is durable.
async fn settle(sim: &Sim, core: &Rc<Core>, model: &RefCell<Model>, key: &[u8], trials: Trials) {
    let now_ms = core.unix_ms();
    let found = read(core, key).await;
    let possible = model.borrow().get(key).cloned().unwrap_or_else(|| vec![None]);
    let fits =
        possible.iter().any(|stored| live(stored, now_ms) == found) || (trials.evicting && found.is_none());
    assert!(fits, "{key:?}: found {found:?}, possible {possible:?} at {now_ms}");
    if trials.evicting && found.is_none() {
        // The record of the eviction is on its way.
        sim.sleep_us(5_000).await;
        if read(core, key).await.is_some() {
            panic!("{key:?} came back");
        }
    }
    model.borrow_mut().insert(key.to_vec(), vec![found]);
}

async fn life(sim: Sim, disk: Rc<SimDisk>, model: Rc<RefCell<Model>>, trials: Trials, number: i64) {
    let random = sim.random().fork();
    // Time goes on from life to life; what a clock set back does to deadlines is not the question here.
    sim.step_wall_clock_ms(number * 3_600_000);
    let count = 1 + random.index(3);
    // A directory without a manifest is a new one, which has to be made.
    if trials.filling && disk.bytes("keys/manifest.json").is_some() {
        disk.set_space(
            random.chance(1, 2).then(|| disk.used_bytes() + random.below(3) * random.below(100_000)),
        );
    } else {
        disk.set_space(None);
    }
    let node: SimNode = open(&sim, &disk, count, options(&random, trials)).await;
    let opened = node.cores.clone();
    let keys: Vec<_> = model.borrow().keys().cloned().collect();
    for key in keys {
        settle(&sim, &opened[random.index(count)].clone(), &model, &key, trials).await;
    }
    if trials.failing {
        let (sim2, disk2, random2) = (sim.clone(), disk.clone(), random.fork());
        sim.spawn(async move {
            loop {
                sim2.sleep_us(random2.below(3_000)).await;
                let calls = if random2.chance(1, 2) { Calls::NameSync } else { Calls::Other };
                let failure = if random2.chance(1, 2) { Failure::Io } else { Failure::NoSpace };
                disk2.fail(calls, random2.below(4), failure);
            }
        });
    }
    if trials.filling {
        let (sim2, disk2, random2) = (sim.clone(), disk.clone(), random.fork());
        sim.spawn(async move {
            loop {
                sim2.sleep_us(random2.below(6_000)).await;
                let room = random2.below(2) * random2.below(60_000);
                disk2.set_space(random2.chance(2, 3).then(|| disk2.used_bytes() + room));
            }
        });
    }
    for client in 0..CLIENTS {
        let (model, opened, random, sim2) = (model.clone(), opened.clone(), random.fork(), sim.clone());
        sim.spawn(async move {
            loop {
                let core = opened[random.index(count)].clone();
                let key = key_of(client, random.below(KEYS_PER_CLIENT));
                if !step(&sim2, &core, &random, &model, &key, trials).await {
                    return;
                }
                sim2.sleep_us(random.below(300)).await;
            }
        });
    }
    let (sim2, checkpointers, pace) = (sim.clone(), opened.clone(), random.fork());
    sim.spawn(async move {
        loop {
            sim2.sleep_us(500 + pace.below(5_000)).await;
            if let Err(error) = checkpointers[pace.index(count)].keys().checkpoint_keys().await {
                let is_expected = trials.failing || (trials.filling && error.is_full());
                assert!(is_expected, "the simulated disk has room: {error}");
            }
        }
    });
    sim.sleep_us(random.below(40_000)).await;
    if random.chance(1, 4) {
        for core in opened.iter() {
            core.begin_stop();
        }
        for core in opened.iter() {
            core.stop().await;
        }
    }
}

fn check_seed(seed: u64, trials: Trials) {
    let random = Random::new(seed);
    let mut disk = SimDisk::new(random.next());
    disk.set_yielding(true);
    let model = Rc::new(RefCell::new(Model::new()));
    for number in 0..4 {
        let shared_disk = Rc::new(disk);
        super::run(random.next(), |sim| life(sim, shared_disk.clone(), model.clone(), trials, number));
        Core::set_current(None);
        shared_disk.heal();
        disk = next_life(&shared_disk, &random);
    }
}

/// Calls `check` with many seeds, and says which one fails.
pub(super) fn each_seed(check: impl Fn(u64)) {
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().expect("a number"));
    let usual = if std::env::var_os("NIGH_TEST_LONG").is_some() { 10_000 } else { 200 };
    let (first, seeds) = (number("NIGH_TEST_SEED").unwrap_or(1), number("NIGH_TEST_SEEDS").unwrap_or(usual));
    for seed in first..first + seeds {
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| check(seed)));
        if let Err(panic) = result {
            eprintln!("failing seed: {seed} (replay with NIGH_TEST_SEED={seed} NIGH_TEST_SEEDS=1)");
            std::panic::resume_unwind(panic);
        }
    }
}

fn check_seeds(trials: Trials) {
    each_seed(|seed| check_seed(seed, trials));
}

#[test]
fn acknowledged_keys_survive_crashes_in_simulation() {
    check_seeds(Trials { failing: false, evicting: false, filling: false });
}

#[test]
fn acknowledged_keys_survive_failing_disks_in_simulation() {
    check_seeds(Trials { failing: true, evicting: false, filling: false });
}

#[test]
fn acknowledged_keys_survive_full_disks_in_simulation() {
    check_seeds(Trials { failing: false, evicting: false, filling: true });
}

#[test]
fn evicted_keys_do_not_return_in_simulation() {
    check_seeds(Trials { failing: false, evicting: true, filling: false });
}

fn options_of(shards: usize) -> NodeOptions {
    let random = Random::new(1);
    NodeOptions {
        shards,
        log_bytes_soft: 1 << 20,
        segment_bytes: 64 << 10,
        image_records_min: 1 << 20,
        ..options(&random, Trials { failing: false, evicting: false, filling: false })
    }
}

async fn put(core: &Rc<Core>, n: u32, value: &[u8]) {
    let order = Order::Put { value: value.to_vec(), ttl_ms: 0 };
    assert_eq!(carry_out(core, &n.to_be_bytes(), &order).await.unwrap(), Reply::Done);
}

async fn value_of(core: &Rc<Core>, n: u32) -> Option<Vec<u8>> {
    read(core, &n.to_be_bytes()).await.map(|(value, _)| value)
}

/// Runs `work` on a node of `cores` cores and `shards` shards, which is then killed.
fn live_once<W: Future<Output = ()> + 'static>(
    disk: &Rc<SimDisk>,
    cores: usize,
    shards: usize,
    work: impl FnOnce(Vec<Rc<Core>>) -> W + 'static,
) {
    let disk = disk.clone();
    super::run(7, |sim| async move {
        let node = open(&sim, &disk, cores, options_of(shards)).await;
        work(node.cores.to_vec()).await;
    });
    Core::set_current(None);
}

#[test]
fn a_flush_is_remembered_wherever_it_lies_and_by_other_shards() {
    // In the log, in an image of changes, or before a base; with what follows it in either.
    for images in 0..3 {
        let disk = Rc::new(SimDisk::new(3));
        live_once(&disk, 2, 4, move |cores| async move {
            for n in 0..50 {
                put(&cores[0], n, b"before").await;
            }
            cores[0].keys().checkpoint_keys().await.unwrap();
            cores[1].keys().checkpoint_keys().await.unwrap();
            patiently(|| cores[1].keys().flush_keys()).await;
            for n in 40..60 {
                put(&cores[1], n, b"after").await;
            }
            if images > 0 {
                cores[0].keys().checkpoint_keys().await.unwrap();
                cores[1].keys().checkpoint_keys().await.unwrap();
            }
            if images > 1 {
                put(&cores[0], 59, b"last").await;
            }
        });
        for (cores, shards) in [(1, 4), (3, 16), (2, 1), (2, 1)] {
            live_once(&disk, cores, shards, move |cores| async move {
                for n in 0..60 {
                    let expected = match n {
                        0..40 => None,
                        59 if images > 1 => Some(&b"last"[..]),
                        _ => Some(&b"after"[..]),
                    };
                    assert_eq!(value_of(&cores[0], n).await.as_deref(), expected, "{n} with images {images}");
                }
                put(&cores[0], 41, b"after").await;
            });
        }
    }
}

#[test]
fn a_damaged_image_that_is_accepted_costs_what_lies_behind_the_damage_once() {
    let disk = Rc::new(SimDisk::new(3));
    live_once(&disk, 1, 2, |cores| async move {
        for n in 0..100 {
            put(&cores[0], n, &[7; 1000]).await;
        }
        cores[0].keys().checkpoint_keys().await.unwrap();
        put(&cores[0], 100, b"in the log").await;
    });
    let image = disk.paths().into_iter().find(|path| path.extension().is_some_and(|e| e == "img")).unwrap();
    let mut bytes = disk.bytes(&image).unwrap();
    let at = bytes.len() * 3 / 4;
    bytes[at] ^= 1;
    disk.put(&image, bytes);
    live_once(&disk, 1, 2, |cores| async move {
        let refused = cores[0].keys().key_value(b"any", &mut Vec::new()).await;
        assert!(matches!(refused, Err(OpError::Damaged(_))), "{refused:?}");
        assert_eq!(cores[0].keys().keys_stats().await.corruption_errors, 1);
    });
    disk.put("keys/accept-damage", Vec::new());
    for corrupt in [1, 0] {
        live_once(&disk, 1, 2, move |cores| async move {
            let stats = cores[0].keys().keys_stats().await;
            assert_eq!(stats.corruption_errors, corrupt);
            assert_eq!(stats.corruption_bytes > 0, corrupt > 0);
            assert!((20..100).contains(&stats.store.keys), "{}", stats.store.keys);
            assert_eq!(value_of(&cores[0], 100).await.as_deref(), Some(&b"in the log"[..]));
        });
    }
    assert!(disk.paths().iter().any(|path| path.to_string_lossy().contains(".img.bad-")), "it is kept");
}
