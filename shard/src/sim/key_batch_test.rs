//! Pipelines, batches and lists of typed operations on keys in simulation: several clients on several cores, whose results are compared,
//! one by one and in order, with those of a map; and nodes that are killed or stopped, after which nothing acknowledged is missing.

use super::keys_test::{Trials, each_seed, options};
use super::node::{SimNode, next_life, node_options, open};
use super::{Random, Sim};
use crate::core::{Core, OpError};
use crate::disk::{Calls, Failure, SimDisk};
use crate::event::together;
use crate::kv::batch::{Answers, KeyBatch, KeyOp, KeyResult, Pipeline, Taken};
use nigh_engine::kv::{Op, Read};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

const CLIENTS: u64 = 4;
const KEYS_PER_CLIENT: u64 = 10;
/// Keys that all clients add to.
const SHARED: u64 = 3;
/// Operations of a round at most.
const ROUND: u64 = 40;
/// A time to live that no life sees the end of.
const FAR_MS: u64 = 9_000_000_000_000;
const REFUSED_SUM: &str = "incr value is not 8 bytes";

/// A value, and whether it ends some day.
type Stored = Option<(Vec<u8>, bool)>;

/// What a client asks for. `ends` says whether there is a time to live.
#[derive(Clone, Debug)]
enum Ask {
    Get,
    Exists,
    Ttl,
    Put {
        value: Vec<u8>,
        ends: bool,
    },
    Del,
    Expire {
        ends: bool,
    },
    Incr {
        delta: i64,
    },
    IncrEx {
        delta: i64,
        ends: bool,
    },
    SetNx {
        value: Vec<u8>,
        ends: bool,
    },
    GetSet {
        value: Vec<u8>,
        ends: bool,
    },
    GetDel,
    Persist,
    Cas {
        value: Vec<u8>,
        expected: Option<Vec<u8>>,
        ends: bool,
    },
    Cad {
        expected: Vec<u8>,
    },
    Caex {
        expected: Vec<u8>,
        ends: bool,
    },
    /// Adds one to the field of a record, as a program: these are the bytes of the call.
    Count {
        call: Vec<u8>,
    },
}

/// What it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Done,
    Missing,
    Flag(bool),
    Number(i64),
    Value(Vec<u8>),
    Before(Option<Vec<u8>>),
    Refused(String),
    /// The node stops, or its log has failed: who knows whether it was carried out.
    Unknown,
}

impl Told {
    fn of(result: KeyResult<'_>) -> Told {
        match result {
            KeyResult::Done => Told::Done,
            KeyResult::Missing => Told::Missing,
            KeyResult::Flag(flag) => Told::Flag(flag),
            KeyResult::Number(number) => Told::Number(number),
            KeyResult::Value(value) => Told::Value(value.to_vec()),
            KeyResult::Before(value) => Told::Before(value.map(<[u8]>::to_vec)),
            KeyResult::Refused(OpError::BadRequest(text)) => Told::Refused(text.clone()),
            KeyResult::Refused(OpError::Unavailable(_) | OpError::Busy(_)) | KeyResult::Failed(_) => {
                Told::Unknown
            }
            KeyResult::Refused(error) => panic!("{error}"),
        }
    }
}

/// Arguments of `operate` that add one to the field `n` of a dynamic record and return it.
fn count_call(key: &[u8]) -> Vec<u8> {
    const PROGRAM: &[u8] = b"\0\0\0\0\0\0\0\0\0\x02\0\0\0\x01\x03\x03\0\x01\x01\x01n\
        \0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x01\0\x01\x01\x01n";
    [&(key.len() as u16).to_be_bytes(), key, PROGRAM].concat()
}

/// Such a record.
fn counted(count: u64) -> Vec<u8> {
    [b"\x02\x01\x01n\x03".as_slice(), &count.to_le_bytes()].concat()
}

/// What its program returns.
fn returned(count: u64) -> Vec<u8> {
    [b"\0\0\x01\0\0\0\x09\x03".as_slice(), &count.to_le_bytes()].concat()
}

impl Ask {
    fn op<'a>(&'a self, key: &'a [u8]) -> KeyOp<'a> {
        let ttl_ms = |ends: &bool| if *ends { FAR_MS } else { 0 };
        KeyOp::Change(match self {
            Ask::Get => return KeyOp::Get { key },
            Ask::Exists => return KeyOp::Exists { key },
            Ask::Ttl => return KeyOp::Ttl { key },
            Ask::Count { call } => return KeyOp::Operate { key, call },
            Ask::Put { value, ends } => Op::Put { key, value, ttl_ms: ttl_ms(ends) },
            Ask::Del => Op::Del { key },
            Ask::Expire { ends } => Op::Expire { key, ttl_ms: ttl_ms(ends) },
            Ask::Incr { delta } => Op::Incr { key, delta: *delta },
            Ask::IncrEx { delta, ends } => Op::IncrEx { key, delta: *delta, ttl_ms: ttl_ms(ends) },
            Ask::SetNx { value, ends } => Op::SetNx { key, value, ttl_ms: ttl_ms(ends) },
            Ask::GetSet { value, ends } => Op::GetSet { key, value, ttl_ms: ttl_ms(ends) },
            Ask::GetDel => Op::GetDel { key },
            Ask::Persist => Op::Persist { key },
            Ask::Cas { value, expected, ends } => {
                Op::Cas { key, value, expected: expected.as_deref(), ttl_ms: ttl_ms(ends) }
            }
            Ask::Cad { expected } => Op::Cad { key, expected },
            Ask::Caex { expected, ends } => Op::Caex { key, expected, ttl_ms: ttl_ms(ends) },
        })
    }

    /// The state afterwards, and what is told.
    fn on(&self, before: &Stored) -> (Stored, Told) {
        let kept = before.clone();
        let value_before = before.as_ref().map(|(value, _)| value.clone());
        let is = |expected: &[u8]| value_before.as_deref() == Some(expected);
        let set = |value: &[u8], ends: bool| Some((value.to_vec(), ends));
        let sum = |delta: i64| match &value_before {
            None => Some(delta),
            Some(value) => Some(i64::from_be_bytes(value.as_slice().try_into().ok()?).wrapping_add(delta)),
        };
        let added = |sum: Option<i64>, ends: bool| match sum {
            Some(sum) => (set(&sum.to_be_bytes(), ends), Told::Number(sum)),
            None => (kept.clone(), Told::Refused(REFUSED_SUM.to_owned())),
        };
        match self {
            Ask::Get => (kept, value_before.map_or(Told::Missing, Told::Value)),
            Ask::Exists => (kept, Told::Flag(before.is_some())),
            Ask::Ttl => {
                let left = before.as_ref().map_or(-2, |(_, ends)| if *ends { 1 } else { -1 });
                (kept, Told::Number(left))
            }
            Ask::Put { value, ends } => (set(value, *ends), Told::Done),
            Ask::Del => (None, Told::Flag(before.is_some())),
            Ask::Expire { ends } => match value_before {
                Some(value) => (set(&value, *ends), Told::Done),
                None => (None, Told::Missing),
            },
            Ask::Incr { delta } => added(sum(*delta), false),
            Ask::IncrEx { delta, ends } => {
                added(sum(*delta), before.as_ref().map_or(*ends, |(_, ends)| *ends))
            }
            Ask::SetNx { value, ends } => match before {
                None => (set(value, *ends), Told::Flag(true)),
                Some(_) => (kept, Told::Flag(false)),
            },
            Ask::GetSet { value, ends } => (set(value, *ends), Told::Before(value_before)),
            Ask::GetDel => (None, Told::Before(value_before)),
            Ask::Persist => match before {
                Some((value, true)) => (set(value, false), Told::Flag(true)),
                _ => (kept, Told::Flag(false)),
            },
            Ask::Cas { value, expected, ends } => match value_before == *expected {
                true => (set(value, *ends), Told::Flag(true)),
                false => (kept, Told::Flag(false)),
            },
            Ask::Cad { expected } => match is(expected) {
                true => (None, Told::Flag(true)),
                false => (kept, Told::Flag(false)),
            },
            Ask::Caex { expected, ends } => match is(expected) {
                true => (set(expected, *ends), Told::Flag(true)),
                false => (kept, Told::Flag(false)),
            },
            Ask::Count { .. } => {
                let count = value_before.map_or(0, |value| {
                    u64::from_le_bytes(value[value.len() - 8..].try_into().expect("a record of ours"))
                });
                let ends = before.as_ref().is_some_and(|(_, ends)| *ends);
                (set(&counted(count + 1), ends), Told::Value(returned(count + 1)))
            }
        }
    }

    fn random(random: &Random, key: &[u8], before: &Stored) -> Ask {
        let value = || {
            let len = match random.below(12) {
                0 => 300,
                1 => 8,
                _ => random.below(9),
            };
            (0..len).map(|_| random.below(256) as u8).collect::<Vec<u8>>()
        };
        let ends = random.chance(1, 3);
        // What was there when the round began, so that most conditions hold.
        let there = before.as_ref().map(|(value, _)| value.clone());
        let expected = if random.chance(1, 4) { Some(b"wrong".to_vec()) } else { there };
        if key.ends_with(b"record") {
            return match random.below(6) {
                0 => Ask::Get,
                1 => Ask::GetDel,
                2 => Ask::Expire { ends },
                _ => Ask::Count { call: count_call(key) },
            };
        }
        match random.below(20) {
            0..=3 => Ask::Get,
            4 => Ask::Exists,
            5 => Ask::Ttl,
            6..=8 => Ask::Put { value: value(), ends },
            9 => Ask::Del,
            10 => Ask::Expire { ends },
            11 => Ask::Incr { delta: random.next() as i64 },
            12 => Ask::IncrEx { delta: random.next() as i64, ends },
            13 => Ask::SetNx { value: value(), ends },
            14 => Ask::GetSet { value: value(), ends },
            15 => Ask::GetDel,
            16 => Ask::Persist,
            17 => Ask::Cas { value: value(), expected, ends },
            18 => Ask::Cad { expected: expected.unwrap_or_default() },
            _ => Ask::Caex { expected: expected.unwrap_or_default(), ends },
        }
    }
}

fn key_of(client: u64, n: u64) -> Vec<u8> {
    match (client, n) {
        (0, 0) => Vec::new(),
        (_, 1) => format!("{client}-long").into_bytes().repeat(30),
        (_, 2 | 3) => format!("{client}-{n}-record").into_bytes(),
        _ => format!("{client}-{n}").into_bytes(),
    }
}

fn shared_key(n: u64) -> Vec<u8> {
    format!("shared-{n}").into_bytes()
}

/// What all lives know.
#[derive(Default)]
struct Model {
    /// What may be found for a key of one client: the acknowledged state, and all states that a round may leave behind which was not answered.
    states: RefCell<BTreeMap<Vec<u8>, Vec<Stored>>>,
    /// Of shared keys, how much was asked to be added, and how much is acknowledged.
    shared: [(Cell<u64>, Cell<u64>); SHARED as usize],
    /// Sums that were acknowledged: nobody is told the same twice.
    sums: RefCell<BTreeSet<(usize, i64)>>,
    /// This life ends with a stop, unlike one that is killed.
    stops: Cell<bool>,
    /// Results compared.
    compared: Cell<u64>,
}

/// Results on the spot, in order.
#[derive(Default)]
struct Collected {
    told: Vec<Told>,
    buffer: Vec<u8>,
}

impl Answers for Collected {
    fn answer(&mut self, result: KeyResult<'_>) {
        self.told.push(Told::of(result));
    }

    fn value(&mut self, append: impl FnOnce(&mut Vec<u8>) -> Read) -> Read {
        self.buffer.clear();
        let read = append(&mut self.buffer);
        match read {
            Read::Found { .. } => self.told.push(Told::Value(self.buffer.clone())),
            Read::Missing => self.told.push(Told::Missing),
            Read::Contended => {}
        }
        read
    }
}

/// Carries out what was gathered, all owners at the same time.
async fn carry_out(core: &Rc<Core>, pipeline: &mut Pipeline, told: &mut [VecDeque<Told>]) {
    let batches: Vec<_> =
        (0..told.len()).map(|to| pipeline.batch_for(to)).filter(|batch| !batch.is_empty()).collect();
    let owners: Vec<_> = batches.iter().map(|batch| batch.owner()).collect();
    pipeline.passes();
    let results =
        together(batches.into_iter().map(|batch| batch.carry_out(core.keys().clone())).collect()).await;
    for (owner, results) in owners.into_iter().zip(results) {
        told[owner].extend(results.iter().map(Told::of));
    }
}

/// Asks as a connection does, and returns what is told in the order of what was asked.
async fn ask_pipelined(sim: &Sim, core: &Rc<Core>, random: &Random, asked: &[(Vec<u8>, Ask)]) -> Vec<Told> {
    let (mut pipeline, mut here) = (Pipeline::default(), Collected::default());
    let mut there = vec![VecDeque::new(); core.env().cores()];
    let mut sources = Vec::new();
    for (key, ask) in asked {
        let (op, at) = (ask.op(key), here.told.len());
        let taken = pipeline.take(core.keys(), &op, at, &mut here);
        sources.push(match taken {
            Taken::Answered => None,
            Taken::Waits(refused, place) => {
                pipeline.take_later((refused, place), core.keys(), op, at, &mut here).await;
                None
            }
            Taken::Joined { owner, .. } => Some(owner),
        });
        if random.chance(1, 30) {
            carry_out(core, &mut pipeline, &mut there).await;
        }
        if random.chance(1, 30) {
            sim.sleep_us(random.below(300)).await;
            pipeline.passes();
        }
    }
    carry_out(core, &mut pipeline, &mut there).await;
    if let Err(unkept) = pipeline.take_unsettled().settle(core.keys()).await {
        unkept.promised.into_iter().for_each(|at| here.told[at] = Told::Unknown);
    }
    let mut here = VecDeque::from(here.told);
    let told = sources.into_iter().map(|source| match source {
        None => here.pop_front(),
        Some(owner) => there[owner].pop_front(),
    });
    let told = told.collect::<Option<Vec<_>>>().expect("a result for each");
    assert!(here.is_empty() && there.iter().all(VecDeque::is_empty), "more results than operations");
    told
}

/// Asks as one list.
async fn ask_listed(core: &Rc<Core>, asked: &[(Vec<u8>, Ask)]) -> Vec<Told> {
    let results = core.keys().carry_out_keys(asked.iter().map(|(key, ask)| ask.op(key))).await;
    assert_eq!(results.len(), asked.len());
    let told: Vec<_> = results.iter().map(Told::of).collect();
    assert_eq!(
        results.all_done().is_err(),
        told.iter().any(|told| matches!(told, Told::Refused(_) | Told::Unknown))
    );
    told
}

/// One round of a client; false when the node takes no more.
async fn round(sim: &Sim, core: &Rc<Core>, random: &Random, model: &Model, client: u64) -> bool {
    let mut asked = Vec::new();
    let mut expected = Vec::new();
    let mut predicted = BTreeMap::new();
    for _ in 0..1 + random.below(ROUND) {
        if random.chance(1, 8) {
            let n = random.below(SHARED);
            let asked_for = &model.shared[n as usize].0;
            asked_for.set(asked_for.get() + 1);
            asked.push((shared_key(n), Ask::Incr { delta: 1 }));
            expected.push(None);
            continue;
        }
        let key = key_of(client, random.below(KEYS_PER_CLIENT));
        let mut states = model.states.borrow_mut();
        let possible = states.entry(key.clone()).or_insert_with(|| vec![None]);
        let ask = Ask::random(random, &key, &possible[0]);
        let before = predicted.entry(key.clone()).or_insert_with(|| possible[0].clone());
        let (after, told) = ask.on(before);
        // If the node ends before it answers. A node that stops refuses some operations and not others.
        let last = possible.len() - 1;
        for at in if model.stops.get() { 0 } else { last }..=last {
            let after = ask.on(&possible[at]).0;
            if !model.stops.get() || !possible.contains(&after) {
                possible.push(after);
            }
        }
        *before = after;
        asked.push((key, ask));
        expected.push(Some(told));
    }
    let told = match random.chance(1, 5) {
        true => ask_listed(core, &asked).await,
        false => ask_pipelined(sim, core, random, &asked).await,
    };
    assert_eq!(told.len(), asked.len());
    let is_whole = told.iter().all(|told| *told != Told::Unknown);
    let mut last = [0; SHARED as usize];
    // What follows on such a key cannot be foretold.
    let mut unknown = BTreeSet::new();
    for (((key, ask), expected), told) in asked.iter().zip(&expected).zip(told) {
        if told == Told::Unknown || unknown.contains(key) {
            unknown.insert(key);
            continue;
        }
        let told = match (ask, told) {
            (Ask::Ttl, Told::Number(left)) => Told::Number(if left < 0 { left } else { 1 }),
            (_, told) => told,
        };
        model.compared.set(model.compared.get() + 1);
        match (expected, told) {
            (Some(expected), told) => assert_eq!(told, *expected, "{key:?} {ask:?} in {asked:?}"),
            (None, Told::Number(sum)) => {
                let n = (0..SHARED).position(|n| shared_key(n) == *key).expect("it is shared");
                assert!(sum > last[n], "an operation has overtaken another of its client");
                last[n] = sum;
                assert!(model.sums.borrow_mut().insert((n, sum)), "{sum} was told twice");
                model.shared[n].1.set(model.shared[n].1.get() + 1);
            }
            (None, told) => panic!("{told:?}"),
        }
    }
    if !is_whole {
        assert!(core.is_stopping(), "nothing fails before the stop");
        return false;
    }
    for (key, state) in predicted {
        model.states.borrow_mut().insert(key, vec![state]);
    }
    true
}

/// All keys of a client at once, as they are acknowledged.
async fn read_all(core: &Rc<Core>, model: &Model, client: u64) {
    let keys: Vec<_> = (0..KEYS_PER_CLIENT).map(|n| key_of(client, n)).collect();
    let wanted: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let mut values = Collected::default();
    core.keys().get_keys(&wanted, &mut values).await.expect("the keys are healthy");
    for (key, told) in keys.iter().zip(values.told) {
        let state = model.states.borrow().get(key).and_then(|possible| possible[0].clone());
        assert_eq!(told, Ask::Get.on(&state).1, "{key:?}");
    }
}

/// What a core finds in the published table.
fn found(core: &Rc<Core>, key: &[u8]) -> Stored {
    let (keys, mut value) = (core.keys(), Vec::new());
    match keys.get(&keys.pin(), keys.place_of(key), key, core.unix_ms(), &mut value) {
        Read::Found { deadline_ms } => Some((value, deadline_ms != 0)),
        Read::Missing => None,
        Read::Contended => unreachable!("all cores of a simulation run on one thread"),
    }
}

/// What is found after a start is possible, and the only possibility from here on.
fn settle(cores: &[Rc<Core>], random: &Random, model: &Model) {
    for (key, possible) in model.states.borrow_mut().iter_mut() {
        let found = found(&cores[random.index(cores.len())], key);
        assert!(possible.contains(&found), "{key:?}: found {found:?}, possible {possible:?}");
        *possible = vec![found];
    }
    for n in 0..SHARED {
        let found = found(&cores[random.index(cores.len())], &shared_key(n));
        let sum = found.map_or(0, |(value, _)| u64::from_be_bytes(value.try_into().expect("a sum")));
        let (asked, acknowledged) = &model.shared[n as usize];
        assert!(
            (acknowledged.get()..=asked.get()).contains(&sum),
            "{sum} of {} acknowledged and {} asked",
            acknowledged.get(),
            asked.get()
        );
        asked.set(sum);
        acknowledged.set(sum);
    }
}

async fn life(sim: Sim, disk: Rc<SimDisk>, model: Rc<Model>) {
    let random = sim.random().fork();
    let count = 1 + random.index(4);
    let trials = Trials { failing: false, evicting: false, filling: false };
    let node: SimNode = open(&sim, &disk, count, options(&random, trials)).await;
    settle(&node.cores, &random, &model);
    model.stops.set(random.chance(1, 4));
    for client in 0..CLIENTS {
        let core = node.cores[random.index(count)].clone();
        let (model, random, sim2) = (model.clone(), random.fork(), sim.clone());
        sim.spawn(async move {
            while round(&sim2, &core, &random, &model, client).await {
                if random.chance(1, 4) {
                    read_all(&core, &model, client).await;
                }
                sim2.sleep_us(random.below(500)).await;
            }
        });
    }
    let (sim2, cores, pace) = (sim.clone(), node.cores.clone(), random.fork());
    sim.spawn(async move {
        loop {
            sim2.sleep_us(500 + pace.below(5_000)).await;
            let core = &cores[pace.index(cores.len())];
            core.keys().checkpoint_keys().await.expect("the simulated disk has room");
        }
    });
    sim.sleep_us(random.below(30_000)).await;
    if model.stops.get() {
        node.cores.iter().for_each(|core| core.begin_stop());
        for core in node.cores.iter() {
            core.stop().await;
        }
    }
}

#[test]
fn clients_of_several_cores_are_told_what_a_map_would_tell_them() {
    let (lives, compared) = (Cell::new(0), Cell::new(0));
    each_seed(|seed| {
        let random = Random::new(seed);
        let mut disk = SimDisk::new(random.next());
        disk.set_yielding(true);
        let model = Rc::new(Model::default());
        for _ in 0..4 {
            let shared_disk = Rc::new(disk);
            super::run(random.next(), |sim| life(sim, shared_disk.clone(), model.clone()));
            Core::set_current(None);
            disk = next_life(&shared_disk, &random);
            lives.set(lives.get() + 1);
        }
        compared.set(compared.get() + model.compared.get());
    });
    assert!(compared.get() > 100 * lives.get(), "{} results in {} lives", compared.get(), lives.get());
}

/// A key of the core `owner` that is not `other`.
fn key_on(core: &Rc<Core>, owner: usize, skip: usize) -> Vec<u8> {
    let keys = (0_u32..).map(|n| n.to_be_bytes().to_vec());
    keys.filter(|key| core.keys().place_of(key).core == owner).nth(skip).expect("each core has keys")
}

/// The log of the owner fails under a batch: what was read in it stays, what was promised does not.
#[test]
fn results_that_the_log_has_not_kept_are_taken_back() {
    for owner in [0, 1] {
        let disk = Rc::new(SimDisk::new(3));
        super::run(5, |sim| async move {
            let node = open(&sim, &disk, 2, node_options()).await;
            let core = node.cores.iter().find(|core| core.env().index() == 0).expect("it is open").clone();
            let (old, new) = (key_on(&core, owner, 0), key_on(&core, owner, 1));
            let put = |key, value| KeyOp::Change(Op::Put { key, value, ttl_ms: 0 });
            core.keys().carry_out_keys([put(&old, b"there")].into_iter()).await.all_done().unwrap();
            disk.fail(Calls::Write, 0, Failure::Io);
            let swap = KeyOp::Change(Op::GetSet { key: &old, value: b"then", ttl_ms: 0 });
            let ops = [KeyOp::Get { key: &old }, swap, put(&new, b"new"), KeyOp::Get { key: &old }];
            let told = if owner == 0 {
                let (mut pipeline, mut here) = (Pipeline::default(), Collected::default());
                for (at, op) in ops.into_iter().enumerate() {
                    let taken = pipeline.take(core.keys(), &op, at, &mut here);
                    assert!(matches!(taken, Taken::Answered), "{taken:?}");
                }
                let unkept = pipeline.take_unsettled().settle(core.keys()).await.unwrap_err();
                assert_eq!(unkept.promised, [1, 2]);
                assert!(matches!(unkept.error, OpError::Unavailable(_)), "{}", unkept.error);
                unkept.promised.into_iter().for_each(|at| here.told[at] = Told::Unknown);
                here.told
            } else {
                let mut pipeline = Pipeline::default();
                for op in ops.into_iter().skip(1) {
                    let taken = pipeline.take(core.keys(), &op, 0, &mut Collected::default());
                    assert!(matches!(taken, Taken::Joined { owner: 1, .. }), "{taken:?}");
                }
                let results = pipeline.batch_for(1).carry_out(core.keys().clone()).await;
                assert!(
                    matches!(results.failure(), Some(OpError::Unavailable(_))),
                    "{:?}",
                    results.failure()
                );
                let first = Told::Value(b"there".to_vec());
                [first].into_iter().chain(results.iter().map(Told::of)).collect()
            };
            let then = Told::Value(b"then".to_vec());
            assert_eq!(told, [Told::Value(b"there".to_vec()), Told::Unknown, Told::Unknown, then]);
        });
        Core::set_current(None);
    }
}

/// On a full disk each put of a list is refused without a wait; the core that refuses them gives others their turns all the same.
#[test]
fn a_long_list_that_a_full_disk_refuses_leaves_others_their_turns() {
    const PUTS: u32 = 5_000;
    let disk = Rc::new(SimDisk::new(3));
    super::run(5, |sim| async move {
        let node = open(&sim, &disk, 1, node_options()).await;
        let kv = node.cores[0].keys().clone();
        disk.set_space(Some(disk.used_bytes()));
        // Until the disk is known to be full.
        let mut n = 0_u32;
        loop {
            n += 1;
            let value = vec![0; 10_000];
            let put = KeyOp::Change(Op::Put { key: &n.to_be_bytes(), value: &value, ttl_ms: 0 });
            let done = kv.carry_out_keys([put].into_iter()).await.all_done();
            if matches!(done, Err(OpError::NoSpace(_))) {
                break;
            }
            assert!(n < 10_000, "the disk does not fill: {done:?}");
        }
        let keys: Vec<[u8; 4]> = (0..PUTS).map(u32::to_be_bytes).collect();
        let value = vec![0; 1_000];
        let puts = keys.iter().map(|key| KeyOp::Change(Op::Put { key, value: &value, ttl_ms: 0 }));
        let (turns, counted) = (Rc::new(Cell::new(0_u32)), sim.clone());
        let counting = turns.clone();
        sim.spawn(async move {
            loop {
                counting.set(counting.get() + 1);
                counted.yield_now().await;
            }
        });
        let batch = {
            let mut batch = KeyBatch::new(0);
            puts.for_each(|op| {
                batch.push(kv.place_of(op.key()), &op);
            });
            batch
        };
        let before = turns.get();
        let results = batch.carry_out(kv.clone()).await;
        assert!(
            results.iter().all(|result| matches!(result, KeyResult::Refused(OpError::NoSpace(_)))),
            "the disk is full"
        );
        let others = turns.get() - before;
        assert!(others >= PUTS / 256, "others had {others} turns beside {PUTS} refused puts");
    });
    Core::set_current(None);
}
