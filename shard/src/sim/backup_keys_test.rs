//! Keys in backups, in simulation: made while clients write, on failing stores and disks, by processes that are killed; and restored into nodes of
//! other numbers of cores and shards.
//!
//! Each client changes keys of all cores one after the other, so that the states of its keys follow each other. What a snapshot has of these must be
//! one of the states between the beginning and the end of its run, as a whole: that is what one moment over all cores means.

use super::keys_test::{Order, carry_out};
use super::node::{next_life, node_options, open, patiently, until_not_busy};
use super::{Random, Sim};
use crate::backup::{BackupOptions, BackupTarget, Fault, MemoryStore, NodePart, Requests, Store, Stores};
use crate::core::{BackedUp, Core, Restored};
use crate::disk::{Calls, Failure, SimDisk};
use crate::error::OpError;
use crate::kv::KeysOptions;
use crate::node::NodeOptions;
use nigh_engine::kv::Read;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

const CLIENTS: usize = 3;
const KEYS_PER_CLIENT: u64 = 10;
const DAY_MS: u64 = 86_400_000;

/// A value, and between which times its deadline lies: a client knows no more before it has the answer. Both are 0 without a deadline.
type Stored = (Vec<u8>, (u64, u64));
type Contents = BTreeMap<Vec<u8>, Stored>;
/// What there is: deadlines are known.
type Found = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

fn is_state(found: &Found, state: &Contents) -> bool {
    found.len() == state.len()
        && found.iter().zip(state).all(|((key, (value, deadline)), (of, (expected, (from, to))))| {
            key == of && value == expected && (from..=to).contains(&deadline)
        })
}

fn key_of(client: usize, n: u64) -> Vec<u8> {
    match (client, n) {
        (0, 0) => Vec::new(),
        _ => format!("{client}-{n}").into_bytes().repeat(if n == 1 { 40 } else { 1 }),
    }
}

/// The keys that are there, of all clients or of one.
async fn read(core: &Rc<Core>, of: Option<usize>) -> Found {
    let mut found = Found::new();
    let clients = of.map_or(0..CLIENTS, |client| client..client + 1);
    for client in clients.clone() {
        for key in (0..KEYS_PER_CLIENT).map(|n| key_of(client, n)) {
            let (place, mut value) = (core.keys().place_of(&key), Vec::new());
            match core.keys().get(&core.keys().pin(), place, &key, core.unix_ms(), &mut value) {
                Read::Found { deadline_ms } => drop(found.insert(key, (value, deadline_ms))),
                Read::Missing => {}
                Read::Contended => unreachable!("all cores of a simulation run on one thread"),
            }
        }
    }
    if of.is_none() {
        let stats = core.keys().keys_stats().await;
        assert_eq!(stats.store.keys, found.len(), "there are no other keys");
    }
    found
}

pub(super) fn options(store: &MemoryStore, random: &Random) -> NodeOptions {
    let store = store.clone();
    let stores = Stores::new(move || Rc::new(store.clone()) as Rc<dyn Store>);
    let usual = node_options();
    NodeOptions {
        shards: 1 << random.below(5),
        log_bytes_soft: 4096 * (8 + random.below(64)),
        image_records_min: 1 + random.below(40),
        keys: KeysOptions { query: random.chance(1, 2), budget_bytes: 8 << 20, ..usual.keys.clone() },
        backup: BackupOptions {
            directory: Some(BackupTarget { stores, prefix: "prod".to_owned() }),
            retention: 3,
            ..BackupOptions::default()
        },
        ..usual
    }
}

fn value(random: &Random) -> Vec<u8> {
    let len = match random.below(12) {
        0 => 9_000 + random.below(20_000),
        1 => 0,
        _ => random.below(60),
    };
    let byte = random.below(256) as u8;
    // A record with a field is among them.
    if len == 7 { vec![2, 1, 1, b'n', 0, 7] } else { (0..len).map(|at| byte ^ at as u8).collect() }
}

/// The states that the keys of a client have had, in order; the last one may be that of a change under way.
type History = Rc<RefCell<Vec<Contents>>>;

/// Changes one key of a client; each state is in `history` before it can be seen.
async fn step(sim: &Sim, core: &Rc<Core>, client: usize, random: &Random, history: &History) {
    let key = key_of(client, random.below(KEYS_PER_CLIENT));
    let mut state = history.borrow().last().cloned().unwrap_or_default();
    let now_ms = core.unix_ms();
    let ttl_ms = DAY_MS + random.below(DAY_MS);
    let before = state.get(&key).cloned();
    let (order, after) = match random.below(10) {
        0..=4 => {
            let value = value(random);
            (Order::Put { value: value.clone(), ttl_ms: 0 }, Some((value, (0, 0))))
        }
        5 => {
            let value = value(random);
            (Order::Put { value: value.clone(), ttl_ms }, Some((value, (now_ms + ttl_ms, u64::MAX))))
        }
        6 => {
            let after = before.map(|(value, _)| (value, (now_ms + ttl_ms, u64::MAX)));
            (Order::Expire { ttl_ms }, after)
        }
        7 => (Order::Persist, before.map(|(value, _)| (value, (0, 0)))),
        _ => (Order::Del, None),
    };
    match after {
        Some(after) => drop(state.insert(key.clone(), after)),
        None => drop(state.remove(&key)),
    }
    history.borrow_mut().push(state);
    patiently(|| carry_out(core, &key, &order)).await;
    if let Some((_, (_, to @ u64::MAX))) =
        history.borrow_mut().last_mut().and_then(|state| state.get_mut(&key))
    {
        *to = core.unix_ms() + ttl_ms;
    }
    sim.sleep_us(random.below(1 << random.below(10))).await;
}

/// Changes keys of a client until `is_over`.
async fn client(
    sim: Sim,
    core: Rc<Core>,
    client: usize,
    history: History,
    (is_over, writing): (Rc<Cell<bool>>, Rc<Cell<usize>>),
) {
    let random = sim.random().fork();
    while !is_over.get() {
        step(&sim, &core, client, &random, &history).await;
    }
    writing.set(writing.get() - 1);
}

/// Changes keys of all clients; what there is then.
async fn fill(sim: &Sim, core: &Rc<Core>, random: &Random, steps: usize) -> Found {
    for _ in 0..steps {
        step(sim, core, random.index(CLIENTS), random, &History::default()).await;
    }
    read(core, None).await
}

fn time_of(key: &str) -> String {
    key.rsplit('/').next().expect("a key has parts").trim_end_matches(".snap").to_owned()
}

/// What a run has done with the keys.
pub(super) async fn back_up(core: &Rc<Core>) -> Option<BackedUp> {
    let run = patiently(|| core.back_up()).await;
    run.parts.into_iter().find(|done| done.collection == "keys")
}

/// As [`back_up`], which succeeds; the time of the run.
pub(super) async fn stored(core: &Rc<Core>) -> String {
    let done = back_up(core).await.expect("there are keys");
    time_of(done.key.as_deref().unwrap_or_else(|| panic!("{done:?}")))
}

pub(super) async fn restore(core: &Rc<Core>, time: Option<&str>) -> Result<Restored, OpError> {
    until_not_busy(|| core.restore_part(NodePart::Keys, time.map(str::to_owned))).await
}

/// Of each client the states that a snapshot may have.
struct Run {
    time: String,
    possible: Vec<(usize, usize)>,
}

fn check_states(found: &Found, run: &Run, histories: &[History]) {
    for (client, history) in histories.iter().enumerate() {
        let own = (0..KEYS_PER_CLIENT).map(|n| key_of(client, n));
        let found: Found = own.filter_map(|key| Some((key.clone(), found.get(&key)?.clone()))).collect();
        let (first, end) = run.possible[client];
        let possible = &history.borrow()[first..end];
        assert!(
            possible.iter().any(|state| is_state(&found, state)) || first == 0 && found.is_empty(),
            "client {client}: found {found:?}, possible {possible:?}"
        );
    }
}

pub(super) fn simulate<F: Future<Output = bool> + 'static>(
    seed: u64,
    life: impl FnOnce(Sim) -> F + 'static,
) -> bool {
    let result = super::run(seed, life);
    Core::set_current(None);
    result
}

fn check_seed(seed: u64) {
    let done = simulate(seed, move |sim| async move {
        let (store, random) = (MemoryStore::new(), Random::new(seed));
        store.set_page(1 + random.index(20));
        let disk = SimDisk::new(random.next());
        disk.set_yielding(true);
        let disk = Rc::new(disk);
        let node = open(&sim, &disk, 1 + random.index(3), options(&store, &random)).await;
        let any = |random: &Random| node.cores[random.index(node.cores.len())].clone();
        assert_eq!(back_up(&any(&random)).await, None, "nothing is stored of what was never there");
        let histories: Vec<History> = (0..CLIENTS).map(|_| History::default()).collect();
        let (is_over, writing) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(CLIENTS)));
        for (n, history) in histories.iter().enumerate() {
            let shared = (is_over.clone(), writing.clone());
            sim.spawn(client(sim.clone(), any(&random), n, history.clone(), shared));
        }
        let mut runs = Vec::new();
        for _ in 0..4 {
            sim.sleep_us(1_000 + random.below(20_000)).await;
            let begun: Vec<usize> =
                histories.iter().map(|history| history.borrow().len().saturating_sub(2)).collect();
            let time = stored(&any(&random)).await;
            let ended = histories.iter().map(|history| history.borrow().len());
            runs.push(Run { time, possible: begun.into_iter().zip(ended).collect() });
        }
        is_over.set(true);
        while writing.get() > 0 {
            sim.sleep_us(1_000).await;
        }
        // Three are kept.
        let oldest = runs.remove(0);
        let gone = restore(&any(&random), Some(&oldest.time)).await;
        assert!(matches!(gone, Err(OpError::NoPartSnapshot { .. })), "{gone:?}");
        // In the place of other keys.
        let mut states = Vec::new();
        for run in &runs {
            let core = any(&random);
            let verified = patiently(|| core.verify_part(NodePart::Keys, Some(run.time.clone()))).await;
            let restored = restore(&core, Some(&run.time)).await.expect("it fits");
            assert_eq!((restored.key, restored.bytes), (verified.key, verified.bytes));
            let found = read(&core, None).await;
            check_states(&found, run, &histories);
            states.push(found);
        }
        // They take changes like any others, and survive a kill under another number of cores and shards.
        fill(&sim, &any(&random), &random, 10).await;
        let after = read(&any(&random), None).await;
        drop(node);
        let disk = Rc::new(next_life(&disk, &random));
        let node = open(&sim, &disk, 1 + random.index(3), options(&store, &random)).await;
        assert_eq!(read(&node.cores[0], None).await, after);
        drop(node);
        // Into an empty node.
        for (run, state) in runs.iter().zip(&states) {
            let fresh = Rc::new(SimDisk::new(random.next()));
            let node = open(&sim, &fresh, 1 + random.index(3), options(&store, &random)).await;
            let core = node.cores[random.index(node.cores.len())].clone();
            restore(&core, Some(&run.time)).await.expect("it fits");
            assert_eq!(read(&core, None).await, *state);
            drop((core, node));
            let fresh = Rc::new(next_life(&fresh, &random));
            let node = open(&sim, &fresh, 1 + random.index(3), options(&store, &random)).await;
            assert_eq!(read(&node.cores[0], None).await, *state);
        }
        true
    });
    assert!(done, "seed {seed}");
}

#[test]
fn keys_are_restored_as_they_were_at_one_moment_of_their_run() {
    super::backup_test::check_seeds(8, check_seed);
}

#[test]
fn what_was_stored_before_is_not_sent_again() {
    let done = simulate(1, move |sim| async move {
        let (store, random) = (MemoryStore::new(), Random::new(1));
        let disk = Rc::new(SimDisk::new(1));
        let node = open(&sim, &disk, 2, options(&store, &random)).await;
        let core = &node.cores[1];
        let put = |n: u64| {
            let (key, order) = (n.to_be_bytes(), Order::Put { value: vec![n as u8; 3000], ttl_ms: 0 });
            async move { patiently(|| carry_out(core, &key, &order)).await }
        };
        for n in 0..200 {
            put(n).await;
        }
        let first = back_up(core).await.expect("there are keys");
        assert!(
            first.error.is_none() && first.bytes > 600_000 && first.sent_bytes > first.bytes,
            "{first:?}"
        );
        let second = back_up(core).await.expect("there are keys");
        assert!(second.bytes == first.bytes && second.sent_bytes < 4_000, "{second:?}");
        put(7).await;
        let third = back_up(core).await.expect("there are keys");
        assert!(third.sent_bytes < 30_000 && third.bytes > first.bytes, "{third:?}");
        // All of them have been deleted: a backup has that too.
        patiently(|| core.keys().flush_keys()).await;
        let last = back_up(core).await.expect("there were keys");
        assert!(last.error.is_none(), "{last:?}");
        restore(core, Some(&time_of(third.key.as_deref().unwrap()))).await.unwrap();
        assert_eq!(core.keys().keys_stats().await.store.keys, 200);
        restore(core, None).await.unwrap();
        assert_eq!(core.keys().keys_stats().await.store.keys, 0);
        true
    });
    assert!(done);
}

#[test]
fn a_fault_at_any_request_leaves_the_keys_as_they_were_or_as_they_are_restored() {
    for fault in [Fault::Error, Fault::Refused, Fault::HalfBody, Fault::AfterEffect] {
        for skip in 0.. {
            let has_more = simulate(skip, move |sim| async move {
                let (store, random) = (MemoryStore::new(), Random::new(skip));
                store.set_page(2);
                let disk = Rc::new(SimDisk::new(skip));
                let node = open(&sim, &disk, 1 + random.index(2), options(&store, &random)).await;
                let core = &node.cores[0];
                let first = fill(&sim, core, &random, 15).await;
                let time = stored(core).await;
                let second = fill(&sim, core, &random, 5).await;
                let before = store.requests(Requests::Any);
                store.fail(Requests::Any, skip, fault);
                let run = patiently(|| core.back_up()).await;
                let requests = store.requests(Requests::Any) - before;
                store.heal();
                assert_eq!(store.open_uploads(), 0);
                // What is listed is whole, whatever the run has said.
                let (objects, _) = core.backups(1000).await.expect("the store answers");
                for object in objects.iter().filter(|object| object.key.starts_with("prod/keys/")) {
                    let of = time_of(&object.key);
                    patiently(|| core.verify_part(NodePart::Keys, Some(of.clone()))).await;
                }
                assert_eq!(read(core, None).await, second);
                if run.parts.iter().any(|done| done.collection == "keys" && done.key.is_some()) {
                    restore(core, None).await.expect("it is whole");
                    assert_eq!(read(core, None).await, second);
                }
                store.fail(Requests::Any, skip, fault);
                let restored = restore(core, Some(&time)).await;
                store.heal();
                let expected = if restored.is_ok() { &first } else { &second };
                assert_eq!(read(core, None).await, *expected);
                restore(core, Some(&time)).await.expect("it is whole");
                assert_eq!(read(core, None).await, first);
                skip < requests
            });
            if !has_more {
                break;
            }
        }
    }
}

#[test]
fn a_fault_of_the_disk_in_a_run_fails_the_run_alone() {
    for (calls, failure) in
        [(Calls::Write, Failure::NoSpace), (Calls::Other, Failure::Io), (Calls::NameSync, Failure::Io)]
    {
        for skip in 0.. {
            let has_more = simulate(skip, move |sim| async move {
                let (store, random) = (MemoryStore::new(), Random::new(skip));
                let disk = Rc::new(SimDisk::new(skip));
                let node = open(&sim, &disk, 1 + random.index(2), options(&store, &random)).await;
                let core = &node.cores[0];
                fill(&sim, core, &random, 15).await;
                stored(core).await;
                let second = fill(&sim, core, &random, 15).await;
                let before = disk.calls(calls);
                disk.fail(calls, skip, failure);
                let done = back_up(core).await;
                let met = disk.calls(calls) - before;
                disk.heal();
                if done.is_some_and(|done| done.key.is_some()) {
                    restore(core, None).await.expect("it is whole");
                }
                assert_eq!(read(core, None).await, second);
                // The fault may have met the log, which takes nothing more then.
                if !core.node().failed_logs().contains(&true) {
                    stored(core).await;
                    restore(core, None).await.expect("it is whole");
                    assert_eq!(read(core, None).await, second);
                }
                skip < met
            });
            if !has_more {
                break;
            }
        }
    }
}

/// Whether the keys serve, and if so whether they are as restored.
async fn check_restored(
    core: &Rc<Core>,
    is_restored: Option<bool>,
    (first, second): (&Found, &Found),
) -> bool {
    let found = read(core, None).await;
    let is_first = found == *first;
    assert!(is_first || found == *second, "neither: {found:?}");
    assert!(
        is_restored.is_none_or(|restored| restored == is_first),
        "restored: {is_restored:?}, but {is_first}"
    );
    is_first
}

#[test]
fn a_fault_of_the_disk_in_a_restore_leaves_the_keys_as_they_were() {
    for (calls, failure) in [
        (Calls::Write, Failure::Io),
        (Calls::Write, Failure::NoSpace),
        (Calls::Sync, Failure::Io),
        (Calls::Other, Failure::Io),
        (Calls::NameSync, Failure::Io),
    ] {
        let mut refused = 0;
        for skip in 0.. {
            let was_refused = Rc::new(Cell::new(false));
            let note = was_refused.clone();
            let has_more = simulate(skip, move |sim| async move {
                let (store, random) = (MemoryStore::new(), Random::new(skip));
                let disk = Rc::new(SimDisk::new(skip));
                let node = open(&sim, &disk, 1 + random.index(2), options(&store, &random)).await;
                let core = node.cores[0].clone();
                let first = fill(&sim, &core, &random, 15).await;
                let time = stored(&core).await;
                let mut second = fill(&sim, &core, &random, 15).await;
                while second == first {
                    second = fill(&sim, &core, &random, 1).await;
                }
                let before = disk.calls(calls);
                disk.fail(calls, skip, failure);
                let restored = restore(&core, Some(&time)).await;
                let met = disk.calls(calls) - before;
                disk.heal();
                note.set(restored.is_err());
                // A log that has failed, or a restore that can neither be finished nor taken back, serves nothing until the next start.
                let serves = core.keys().healthy().is_ok();
                let is_restored = match serves {
                    true => Some(check_restored(&core, Some(restored.is_ok()), (&first, &second)).await),
                    false => restored.is_ok().then_some(true),
                };
                drop((core, node));
                let disk = Rc::new(next_life(&disk, &random));
                let node = open(&sim, &disk, 1 + random.index(2), options(&store, &random)).await;
                check_restored(&node.cores[0], is_restored, (&first, &second)).await;
                skip < met
            });
            refused += usize::from(was_refused.get());
            if !has_more {
                break;
            }
        }
        assert!(refused > 0, "{calls:?} {failure:?} never failed a restore");
    }
}

/// Kills a node in the middle of a run or of a restore. Whether the next life has the keys of the restore; `None` after a run.
fn check_kill(seed: u64) -> Option<bool> {
    let (store, random) = (MemoryStore::new(), Random::new(seed));
    let disk = SimDisk::new(seed);
    disk.set_yielding(true);
    let disk = Rc::new(disk);
    let [first_options, second_options] = [(); 2].map(|()| options(&store, &random));
    let (is_run, counts) = (random.chance(1, 4), [1 + random.index(3), 1 + random.index(3)]);
    let (of_life, random_of_life) = (disk.clone(), random.fork());
    let (first, second, time, was_answered) = super::run(seed, |sim| async move {
        let random = random_of_life;
        let node = open(&sim, &of_life, counts[0], first_options).await;
        let core = node.cores[0].clone();
        let first = fill(&sim, &core, &random, 20).await;
        let time = stored(&core).await;
        let mut second = fill(&sim, &core, &random, 20).await;
        while second == first {
            second = fill(&sim, &core, &random, 1).await;
        }
        let work = async {
            match is_run {
                true => patiently(|| core.back_up()).await.failures.is_empty(),
                false => restore(&core, Some(&time)).await.is_ok(),
            }
        };
        let kill = async {
            sim.sleep_us(random.below(1 << random.below(14))).await;
            false
        };
        let was_answered = futures_lite::future::or(work, kill).await;
        (first, second, time, was_answered)
    });
    Core::set_current(None);
    let disk = Rc::new(next_life(&disk, &random));
    let is_first = super::run(seed, |sim| async move {
        let node = open(&sim, &disk, counts[1], second_options).await;
        let core = &node.cores[0];
        let is_restored = if is_run { Some(false) } else { was_answered.then_some(true) };
        let is_first = check_restored(core, is_restored, (&first, &second)).await;
        // Nothing is left of it on the disk, and the next run and the next restore go well.
        let left = |path: &std::path::PathBuf| path.starts_with("keys/restore") && path.extension().is_some();
        assert!(!disk.paths().iter().any(left), "{:?}", disk.paths());
        let now = read(core, None).await;
        sim.sleep_us(10_000_000).await;
        stored(core).await;
        restore(core, Some(&time)).await.expect("it is whole");
        assert_eq!(read(core, None).await, first);
        restore(core, None).await.expect("it is whole");
        assert_eq!(read(core, None).await, now);
        is_first
    });
    Core::set_current(None);
    (!is_run).then_some(is_first)
}

#[test]
fn a_kill_in_the_middle_of_a_run_or_a_restore_leaves_one_of_the_two() {
    let mut seen = [0, 0];
    for seed in 1..=60 {
        if let Some(is_first) = check_kill(seed) {
            seen[usize::from(is_first)] += 1;
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "before and after: {seen:?}");
}

#[test]
fn damage_of_any_object_is_noticed_before_a_key_is_replaced() {
    let done = simulate(5, move |sim| async move {
        let (store, random) = (MemoryStore::new(), Random::new(5));
        let disk = SimDisk::new(5);
        disk.set_yielding(true);
        let node = open(&sim, &Rc::new(disk), 2, options(&store, &random)).await;
        let core = &node.cores[0];
        fill(&sim, core, &random, 30).await;
        let time = stored(core).await;
        let second = fill(&sim, core, &random, 10).await;
        let objects: Vec<String> =
            store.keys().into_iter().filter(|key| !key.ends_with("owner.json")).collect();
        assert!(objects.len() > 1, "{objects:?}");
        for key in objects {
            let whole = store.bytes(&key).expect("it is listed");
            let regions = 24.min(whole.len());
            let mut damaged: Vec<Vec<u8>> = (0..regions)
                .map(|region| {
                    let at = (region * whole.len() + random.index(whole.len())) / regions;
                    let mut other = whole.to_vec();
                    other[at.min(whole.len() - 1)] ^= 1 << random.below(8);
                    other
                })
                .collect();
            damaged.extend([whole[..whole.len() - 1].to_vec(), Vec::new(), [&whole[..], b"x"].concat()]);
            for other in damaged {
                store.put(&key, other);
                let verified = until_not_busy(|| core.verify_part(NodePart::Keys, Some(time.clone()))).await;
                assert!(matches!(verified, Err(OpError::Backup(_))), "{key}: {verified:?}");
                let restored = restore(core, Some(&time)).await;
                assert!(matches!(restored, Err(OpError::Backup(_))), "{key}: {restored:?}");
            }
            store.put(&key, whole);
        }
        assert_eq!(read(core, None).await, second);
        patiently(|| core.verify_part(NodePart::Keys, Some(time.clone()))).await;
        true
    });
    assert!(done);
}

#[test]
fn keys_that_do_not_fit_are_refused_and_the_others_stay() {
    let done = simulate(6, move |sim| async move {
        let (store, random) = (MemoryStore::new(), Random::new(6));
        let disk = Rc::new(SimDisk::new(6));
        let large = options(&store, &random);
        let node = open(&sim, &disk, 2, large.clone()).await;
        let put = |core: Rc<Core>, n: u64, len: usize| async move {
            let (key, order) = (n.to_be_bytes(), Order::Put { value: vec![n as u8; len], ttl_ms: 0 });
            patiently(|| carry_out(&core, &key, &order)).await
        };
        for n in 0..100 {
            put(node.cores[0].clone(), n, 20_000).await;
        }
        stored(&node.cores[0]).await;
        drop(node);
        // One is refused by what the snapshot says; the other has so little room in each shard that some of them overflow.
        for (budget_bytes, shards) in [(1 << 20, 1), (2400 << 10, 16)] {
            let mut keys = KeysOptions { query: false, budget_bytes, ..large.keys.clone() };
            keys.shard_bytes_min = 64 << 10;
            let fresh = Rc::new(SimDisk::new(budget_bytes));
            let small = NodeOptions { keys, shards, ..large.clone() };
            let node = open(&sim, &fresh, 2, small.clone()).await;
            let core = node.cores[1].clone();
            let before = fill(&sim, &core, &random, 20).await;
            let refused = restore(&core, None).await;
            assert!(matches!(refused, Err(OpError::NoMemory(_))), "{refused:?}");
            assert_eq!(read(&core, None).await, before);
            drop((core, node));
            let node = open(&sim, &fresh, 1, small).await;
            assert_eq!(read(&node.cores[0], None).await, before);
        }
        true
    });
    assert!(done);
}

#[test]
fn what_has_expired_does_not_come_back_and_expiry_times_are_kept() {
    let done = simulate(7, move |sim| async move {
        let (store, random) = (MemoryStore::new(), Random::new(7));
        let disk = Rc::new(SimDisk::new(7));
        let node = open(&sim, &disk, 2, options(&store, &random)).await;
        let core = &node.cores[0];
        let put = |key: &'static [u8], ttl_ms: u64| async move {
            let order = Order::Put { value: key.to_vec(), ttl_ms };
            patiently(|| carry_out(core, key, &order)).await
        };
        for (key, ttl_ms) in [(&b"stays"[..], 0), (b"hour", 3_600_000), (b"day", DAY_MS), (b"second", 1_000)]
        {
            put(key, ttl_ms).await;
        }
        sim.sleep_us(2_000_000).await;
        let deadline_of = |key: &'static [u8]| {
            let read = core.keys().get(
                &core.keys().pin(),
                core.keys().place_of(key),
                key,
                core.unix_ms(),
                &mut Vec::new(),
            );
            if let Read::Found { deadline_ms } = read { Some(deadline_ms) } else { None }
        };
        let day = deadline_of(b"day");
        let time = stored(core).await;
        // Two hours later.
        sim.step_wall_clock_ms(7_200_000);
        restore(core, Some(&time)).await.unwrap();
        assert_eq!([b"stays", &b"hour"[..], b"day", b"second"].map(deadline_of), [Some(0), None, day, None]);
        // The clock is set back behind the run: what had expired by then stays away, and what expired since has its time again.
        sim.step_wall_clock_ms(-7_200_000 - DAY_MS as i64);
        restore(core, Some(&time)).await.unwrap();
        assert_eq!(deadline_of(b"second"), None);
        assert!(deadline_of(b"hour").is_some() && deadline_of(b"day") == day);
        true
    });
    assert!(done);
}

#[test]
fn changes_that_are_too_many_fail_the_run_of_the_keys_and_nothing_else() {
    let mut seen = [0, 0];
    for seed in 1..=12 {
        let found = Rc::new(Cell::new(false));
        let of_life = found.clone();
        let done = simulate(seed, move |sim| async move {
            let (store, random) = (MemoryStore::new(), Random::new(seed));
            let disk = SimDisk::new(seed);
            disk.set_yielding(true);
            let mut options = options(&store, &random);
            options.keys.tape_bytes = Some([60, 60_000][seed as usize % 2]);
            let node = open(&sim, &Rc::new(disk), 2, options).await;
            let core = node.cores[0].clone();
            fill(&sim, &core, &random, 10).await;
            let histories: Vec<History> = (0..CLIENTS).map(|_| History::default()).collect();
            // The models begin with nothing.
            patiently(|| core.keys().flush_keys()).await;
            let (is_over, writing) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(CLIENTS)));
            for (n, history) in histories.iter().enumerate() {
                let shared = (is_over.clone(), writing.clone());
                sim.spawn(client(sim.clone(), core.clone(), n, history.clone(), shared));
            }
            sim.sleep_us(10_000).await;
            let begun: Vec<usize> =
                histories.iter().map(|history| history.borrow().len().saturating_sub(2)).collect();
            let done = back_up(&core).await.expect("there are keys");
            let ended = histories.iter().map(|history| history.borrow().len());
            let possible = begun.into_iter().zip(ended).collect();
            is_over.set(true);
            while writing.get() > 0 {
                sim.sleep_us(1_000).await;
            }
            let now = read(&core, None).await;
            match done.error {
                Some(error) => {
                    assert!(error.contains("changed faster"), "{error}");
                    assert!(!store.keys().iter().any(|key| key.ends_with(".snap")), "{:?}", store.keys());
                    assert_eq!(read(&core, None).await, now);
                }
                None => {
                    of_life.set(true);
                    let run = Run { time: time_of(done.key.as_deref().expect("it is stored")), possible };
                    restore(&core, Some(&run.time)).await.expect("it fits");
                    check_states(&read(&core, None).await, &run, &histories);
                }
            }
            true
        });
        assert!(done, "seed {seed}");
        seen[usize::from(found.get())] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "failed and stored: {seen:?}");
}

#[test]
fn operations_are_refused_while_keys_are_replaced_and_carried_out_afterwards() {
    let mut refused_in_all = 0;
    for seed in 1..=6 {
        let refused = Rc::new(Cell::new(0));
        let of_life = refused.clone();
        let done = simulate(seed, move |sim| async move {
            let (store, random) = (MemoryStore::new(), Random::new(seed));
            let disk = SimDisk::new(seed);
            disk.set_yielding(true);
            let node = open(&sim, &Rc::new(disk), 1 + random.index(3), options(&store, &random)).await;
            let core = node.cores[0].clone();
            let first = fill(&sim, &core, &random, 20).await;
            let time = stored(&core).await;
            fill(&sim, &core, &random, 20).await;
            let (is_over, acknowledged) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
            let writer = {
                let (sim, core) = (sim.clone(), node.cores[node.cores.len() - 1].clone());
                let (is_over, acknowledged, refused) =
                    (is_over.clone(), acknowledged.clone(), of_life.clone());
                async move {
                    for n in 1u64.. {
                        if is_over.get() {
                            return true;
                        }
                        let order = Order::Put { value: n.to_be_bytes().to_vec(), ttl_ms: 0 };
                        match carry_out(&core, b"w", &order).await {
                            Ok(_) => acknowledged.set(n),
                            Err(OpError::Busy(why)) => {
                                refused.set(refused.get() + i32::from(why.contains("replaced")))
                            }
                            Err(error) => panic!("{error}"),
                        }
                        sim.sleep_us(50).await;
                    }
                    unreachable!("numbers do not end")
                }
            };
            let work = async {
                sim.sleep_us(500).await;
                restore(&core, Some(&time)).await.expect("it fits");
                let at_end = acknowledged.get();
                sim.sleep_us(1_000).await;
                is_over.set(true);
                at_end
            };
            let (writer, at_end) = futures_lite::future::zip(writer, work).await;
            let place = core.keys().place_of(b"w");
            let mut value = Vec::new();
            let found = core.keys().get(&core.keys().pin(), place, b"w", core.unix_ms(), &mut value);
            // What was acknowledged afterwards is there.
            assert!(acknowledged.get() > at_end && matches!(found, Read::Found { .. }), "{found:?}");
            assert_eq!(value, acknowledged.get().to_be_bytes());
            let order = Order::Del;
            patiently(|| carry_out(&core, b"w", &order)).await;
            assert_eq!(read(&core, None).await, first);
            writer
        });
        assert!(done, "seed {seed}");
        refused_in_all += refused.get();
    }
    assert!(refused_in_all > 0, "no operation has met a restore");
}
