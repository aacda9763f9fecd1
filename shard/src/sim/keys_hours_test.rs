//! Hours in the life of a store of keys: deadlines, eviction, sweeps or none, clean ends and kills, and with each life other numbers of cores
//! and shards, another budget and another clock. Beside it a map of what was written. No key may be missing but by an eviction that the
//! store counted, and none may be evicted as long as what is alive fits.

use super::keys_test::{Order, carry_out, options, read};
use super::node::{next_life, open, patiently};
use super::{Random, Sim};
use crate::core::Core;
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::kv::KeysOptions;
use crate::node::NodeOptions;
use nigh_engine::kv::Reply;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const START_MS: u64 = 1_700_000_000_000;
const BUDGET: u64 = 1 << 20;

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// What is alive fits with room to spare, whatever has expired beside it.
    Roomy,
    /// Keys without a deadline fit; the clock is set back now and then, so what had expired may be there again.
    ClockSetBack,
    /// More is written than fits.
    Crowded,
}

/// Every key that was written and not found missing since.
#[derive(Default)]
struct World {
    keys: BTreeMap<Vec<u8>, (Vec<u8>, u64)>,
    /// The latest time any life has seen: what had expired by then may be gone for good.
    newest_ms: u64,
    serial: u64,
    /// Virtual time lived.
    lived_ms: u64,
    /// Counted by the stores, one life after the other.
    evicted: u64,
}

impl World {
    fn is_permanent(&self, key: &[u8]) -> bool {
        self.keys.get(key).is_some_and(|(_, deadline_ms)| *deadline_ms == 0)
    }
}

#[derive(Clone, Debug)]
struct Life {
    cores: usize,
    shards: usize,
    budget: u64,
    sweep_interval_ms: u64,
    begins_ms: u64,
    /// Shards and budget are those of the life before, and the clock has not been set back: nothing can have become too much.
    is_as_before: bool,
    is_clean: bool,
    mode: Mode,
}

impl Life {
    fn options(&self, random: &Random) -> NodeOptions {
        let usual =
            options(random, super::keys_test::Trials { failing: false, evicting: false, filling: false });
        NodeOptions {
            shards: self.shards,
            sweep_interval_ms: self.sweep_interval_ms,
            segment_bytes: 256 << 10,
            log_bytes_soft: (1 << 20) + random.below(4 << 20),
            image_records_min: 1 << 20,
            keys: KeysOptions { budget_bytes: self.budget, shard_bytes_min: 256 << 10, ..usual.keys.clone() },
            ..usual
        }
    }
}

async fn done(core: &Rc<Core>, sim: &Sim, key: &[u8], order: &Order) -> Option<Reply> {
    loop {
        match carry_out(core, key, order).await {
            Ok(reply) => return Some(reply),
            Err(OpError::Busy(_)) => sim.sleep_us(1_000).await,
            Err(OpError::StoreFull) => return None,
            Err(error) => panic!("{key:?}: {error}"),
        }
    }
}

/// Looks for every key; those that are missing are taken out of the world. How many were missing that had to be there, but for evictions.
async fn missing(core: &Rc<Core>, world: &RefCell<World>, what: &str) -> Vec<Vec<u8>> {
    let now_ms = core.unix_ms();
    let keys: Vec<_> =
        world.borrow().keys.iter().map(|(key, stored)| (key.clone(), stored.clone())).collect();
    let newest_ms = world.borrow().newest_ms.max(now_ms);
    world.borrow_mut().newest_ms = newest_ms;
    let mut missing = Vec::new();
    for (key, (value, deadline_ms)) in keys {
        let found = read(core, &key).await;
        let is_past = |at_ms: u64| deadline_ms != 0 && deadline_ms <= at_ms;
        match found {
            Some(found) => {
                assert!(!is_past(now_ms), "{what}: {key:?} is there after its deadline");
                assert_eq!(found, (value, deadline_ms), "{what}: {key:?}");
            }
            None if is_past(newest_ms) => {
                if !is_past(now_ms) || deadline_ms + 2 * HOUR_MS < newest_ms {
                    world.borrow_mut().keys.remove(&key);
                }
            }
            None => {
                world.borrow_mut().keys.remove(&key);
                missing.push(key);
            }
        }
    }
    missing
}

async fn evicted(core: &Rc<Core>) -> u64 {
    core.keys().keys_stats().await.store.evictions_live
}

async fn live(sim: Sim, disk: Rc<SimDisk>, world: Rc<RefCell<World>>, life: Life) {
    let random = sim.random().fork();
    sim.step_wall_clock_ms(life.begins_ms as i64 - sim.unix_ms() as i64);
    let permanent: Vec<_> =
        world.borrow().keys.keys().filter(|key| world.borrow().is_permanent(key)).cloned().collect();
    let node = open(&sim, &disk, life.cores, life.options(&random)).await;
    let core = node.cores[0].clone();
    let mut lost = missing(&core, &world, "after opening").await;
    let counted = evicted(&core).await;
    assert!(lost.len() as u64 <= counted, "{life:?}: {} lost, {counted} counted", lost.len());
    if life.is_as_before || life.mode == Mode::Roomy {
        assert_eq!(counted, 0, "{life:?}: evicted by the start, {} of them missing", lost.len());
    }
    if life.mode != Mode::Crowded {
        let gone: Vec<_> = lost.iter().filter(|key| permanent.contains(key)).collect();
        assert!(gone.is_empty(), "{life:?}: {} keys without a deadline are gone after the start", gone.len());
    }
    // Half of what is written to a crowded store has no deadline. The lives of one seed write some 2.5 MiB of such keys under different names,
    // which exceeds the largest budget whatever is drawn.
    let (writes, names, permanent_share) = match life.mode {
        Mode::Crowded => (400, 6_000, 2),
        Mode::Roomy | Mode::ClockSetBack => (60, 150, 4),
    };
    for round in 0..12 {
        for _ in 0..writes {
            let serial = world.borrow().serial;
            world.borrow_mut().serial += 1;
            let value = vec![serial as u8; 100 + random.index(900)];
            let (key, ttl_ms) = match random.below(permanent_share) {
                0 => (format!("permanent {}", random.below(names)).into_bytes(), 0),
                _ => (format!("session {serial}").into_bytes(), 1 + random.below(MINUTE_MS)),
            };
            let from = node.cores[random.index(life.cores)].clone();
            let before_ms = sim.unix_ms();
            let reply = done(&from, &sim, &key, &Order::Put { value: value.clone(), ttl_ms }).await;
            if reply.is_none() {
                continue;
            }
            // The owner has looked at its clock between the two.
            match read(&from, &key).await {
                Some((found, deadline_ms)) => {
                    assert_eq!(found, value);
                    assert!(ttl_ms == 0 && deadline_ms == 0 || deadline_ms >= before_ms + ttl_ms);
                    world.borrow_mut().keys.insert(key.clone(), (value, deadline_ms));
                }
                None => assert!(
                    ttl_ms > 0 && sim.unix_ms() >= before_ms + ttl_ms,
                    "{key:?} is written and not there"
                ),
            }
            match random.below(20) {
                // A session lives on for some minutes, or is over.
                0 if ttl_ms > 0 => {
                    let asked =
                        done(&from, &sim, &key, &Order::Expire { ttl_ms: 1 + random.below(3 * MINUTE_MS) })
                            .await;
                    let found = read(&from, &key).await;
                    let mut world = world.borrow_mut();
                    match found {
                        Some(found) => drop(world.keys.insert(key, found)),
                        None => assert!(asked == Some(Reply::Missing) || world.keys.remove(&key).is_some()),
                    }
                }
                1 => {
                    done(&from, &sim, &key, &Order::Del).await;
                    world.borrow_mut().keys.remove(&key);
                }
                _ => {}
            }
        }
        if random.chance(1, 3) {
            let at = random.index(life.cores);
            node.cores[at].keys().checkpoint_keys().await.unwrap();
        }
        let pause_ms = 2 * MINUTE_MS + random.below(8 * MINUTE_MS);
        sim.sleep_us(pause_ms * 1000).await;
        world.borrow_mut().lived_ms += pause_ms;
        if life.mode == Mode::ClockSetBack && random.chance(1, 6) {
            missing(&core, &world, "before the clock is set back").await;
            sim.step_wall_clock_ms(-(random.below(HOUR_MS / 2) as i64));
        }
        if round % 4 == 3 {
            lost.extend(missing(&core, &world, "while serving").await);
            let counted = evicted(&core).await;
            assert!(lost.len() as u64 <= counted, "{life:?}: {} lost, {counted} counted", lost.len());
            if life.mode == Mode::Roomy {
                assert_eq!(counted, 0, "{life:?}");
            }
        }
    }
    missing(&core, &world, "at the end").await;
    world.borrow_mut().evicted += evicted(&core).await;
    if life.is_clean {
        node.cores.iter().for_each(|core| core.begin_stop());
        for core in node.cores.iter() {
            core.stop().await;
        }
    }
}

fn check_hours(seed: u64, mode: Mode) -> u64 {
    let random = Random::new(seed);
    let mut disk = SimDisk::new(random.next());
    let world = Rc::new(RefCell::new(World { newest_ms: START_MS, ..World::default() }));
    let mut before: Option<Life> = None;
    for _ in 0..4 {
        let newest_ms = world.borrow().newest_ms;
        let same = before.as_ref().filter(|_| random.chance(1, 2));
        let is_set_back = mode == Mode::ClockSetBack && random.chance(1, 2);
        let life = Life {
            cores: 1 + random.index(3),
            shards: same.map_or(1 << random.below(3), |life| life.shards),
            budget: same.map_or(BUDGET + random.below(BUDGET), |life| life.budget),
            sweep_interval_ms: [0, 0, 1_000, 30_000][random.index(4)],
            begins_ms: match is_set_back {
                true => newest_ms - random.below(HOUR_MS),
                false => newest_ms + random.below(HOUR_MS),
            },
            is_as_before: same.is_some() && !is_set_back && mode != Mode::ClockSetBack,
            is_clean: random.chance(1, 3),
            mode,
        };
        let shared_disk = Rc::new(disk);
        super::run(random.next(), |sim| live(sim, shared_disk.clone(), world.clone(), life.clone()));
        Core::set_current(None);
        disk = next_life(&shared_disk, &random);
        before = Some(life);
    }
    assert!(
        mode != Mode::Crowded || world.borrow().evicted > 0,
        "nothing was evicted: too little was written"
    );
    world.borrow().lived_ms
}

/// A seed is four lives, almost five virtual hours in all, and takes a second: four seeds usually, and with `NIGH_TEST_LONG` 500, some 2,400
/// virtual hours.
fn check_modes(mode: Mode) {
    let lived_ms = std::cell::Cell::new(0);
    let seeds = if std::env::var_os("NIGH_TEST_LONG").is_some() { 500 } else { 4 };
    let first = std::env::var("NIGH_TEST_SEED").ok().map_or(1, |seed| seed.parse().expect("a number"));
    let seeds = std::env::var("NIGH_TEST_SEEDS").ok().map_or(seeds, |seeds| seeds.parse().expect("a number"));
    for seed in first..first + seeds {
        let checked = std::panic::catch_unwind(|| check_hours(seed, mode));
        match checked {
            Ok(ms) => lived_ms.set(lived_ms.get() + ms),
            Err(panic) => {
                eprintln!("failing seed: {seed} (replay with NIGH_TEST_SEED={seed} NIGH_TEST_SEEDS=1)");
                std::panic::resume_unwind(panic);
            }
        }
    }
    eprintln!("{mode:?}: {seeds} seeds, {} virtual hours", lived_ms.get() / HOUR_MS);
}

#[test]
fn keys_that_fit_are_never_lost_in_hours_of_simulation() {
    check_modes(Mode::Roomy);
}

#[test]
fn keys_without_a_deadline_survive_clocks_that_are_set_back() {
    check_modes(Mode::ClockSetBack);
}

#[test]
fn no_key_is_missing_but_by_a_counted_eviction() {
    check_modes(Mode::Crowded);
}

/// A quarter of the budget is alive for ever. Sessions of three seconds are written for half as much again as the budget, so many swept
/// meanwhile that nothing is evicted; then the process is killed. Whether images have the sessions or the log, and into whatever number of
/// shards the keys are read, all that are alive are there, and stay.
#[test]
fn expired_keys_displace_nothing_at_a_start() {
    for images in [false, true] {
        let disk = Rc::new(SimDisk::new(5));
        let life = |shards, cores| Life {
            cores,
            shards,
            budget: BUDGET,
            sweep_interval_ms: 500,
            begins_ms: START_MS,
            is_as_before: true,
            is_clean: false,
            mode: Mode::Roomy,
        };
        let node_options =
            |life: &Life| NodeOptions { log_bytes_soft: 64 << 20, ..life.options(&Random::new(1)) };
        let permanent = |n: u64| format!("permanent {n}").into_bytes();
        let (first, shared_disk) = (life(2, 1), disk.clone());
        super::run(3, |sim| async move {
            sim.step_wall_clock_ms(START_MS as i64 - sim.unix_ms() as i64);
            let node = open(&sim, &shared_disk, first.cores, node_options(&first)).await;
            let core = &node.cores[0];
            for n in 0..250 {
                done(core, &sim, &permanent(n), &Order::Put { value: vec![1; 1000], ttl_ms: 0 }).await;
            }
            for n in 0..1500u64 {
                let key = format!("session {n}").into_bytes();
                done(core, &sim, &key, &Order::Put { value: vec![2; 1000], ttl_ms: 3000 }).await;
                sim.sleep_us(20_000).await;
                if images && n % 100 == 0 {
                    core.keys().checkpoint_keys().await.unwrap();
                }
            }
            assert_eq!(evicted(core).await, 0);
        });
        Core::set_current(None);
        for (shards, cores) in [(2, 1), (4, 2), (1, 3), (1, 1)] {
            let (next, shared_disk) = (life(shards, cores), disk.clone());
            super::run(4, |sim| async move {
                // The process is back within a second, or some of them.
                sim.step_wall_clock_ms((START_MS + 45_000) as i64 - sim.unix_ms() as i64);
                let node = open(&sim, &shared_disk, next.cores, node_options(&next)).await;
                let core = &node.cores[0];
                assert_eq!(evicted(core).await, 0, "{shards} shards, images {images}");
                for n in 0..250 {
                    assert!(
                        read(core, &permanent(n)).await.is_some(),
                        "{n} of {shards} shards, images {images}"
                    );
                }
            });
            Core::set_current(None);
        }
    }
}

/// A flush lies between two images, and the budget is half of what the first of them holds: what is displaced on the way to the flush is read
/// a second time, and has to go with it again.
#[test]
fn what_a_flush_has_removed_stays_away_from_a_smaller_store() {
    let disk = Rc::new(SimDisk::new(6));
    let life = |budget| Life {
        cores: 1,
        shards: 1,
        budget,
        sweep_interval_ms: 500,
        begins_ms: START_MS,
        is_as_before: true,
        is_clean: false,
        mode: Mode::Roomy,
    };
    let key = |n: u64| format!("key {n}").into_bytes();
    let (first, shared_disk) = (life(2 * BUDGET), disk.clone());
    super::run(3, |sim| async move {
        let node = open(&sim, &shared_disk, 1, first.options(&Random::new(1))).await;
        let core = &node.cores[0];
        for n in 0..1_600 {
            done(core, &sim, &key(n), &Order::Put { value: vec![1; 1000], ttl_ms: 0 }).await;
        }
        assert_eq!(evicted(core).await, 0);
        core.keys().checkpoint_keys().await.unwrap();
        patiently(|| core.keys().flush_keys()).await;
        for n in 1_590..1_610 {
            done(core, &sim, &key(n), &Order::Put { value: vec![2; 1000], ttl_ms: 0 }).await;
        }
        core.keys().checkpoint_keys().await.unwrap();
    });
    Core::set_current(None);
    for _ in 0..2 {
        let (next, shared_disk) = (life(BUDGET), disk.clone());
        super::run(4, |sim| async move {
            let node = open(&sim, &shared_disk, 1, next.options(&Random::new(1))).await;
            for n in 0..1_610 {
                let found = read(&node.cores[0], &key(n)).await.map(|(value, _)| value);
                assert_eq!(found, (n >= 1_590).then(|| vec![2; 1000]), "key {n}");
            }
        });
        Core::set_current(None);
    }
}
