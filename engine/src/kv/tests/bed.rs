//! A store beside a map that must always agree with it.

use super::super::{Action, Config, Effect, KeyHasher, Op, Prepared, Read, Reply, StoreError, View, Writer};
use crate::memory::{Domain, Participant};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

pub const NOW: u64 = 1_790_000_000_000;

/// A configuration with small pages and every policy chosen by a bit.
pub fn config(budget_bytes: usize, page_bytes_min: usize, knobs: u32) -> Config {
    Config {
        page_bytes_min,
        relocating_eviction: knobs & 1 != 0,
        in_place_same_size: knobs & 2 != 0,
        sieve_visited_bit: knobs & 4 != 0,
        ..Config::new(budget_bytes)
    }
}

pub fn store(config: Config) -> (Writer, View, Participant) {
    let domain = Domain::new(4);
    let writer = Writer::new(config, KeyHasher::new(9), domain.clone()).unwrap();
    let view = writer.view();
    (writer, view, domain.participant(3))
}

pub fn put(writer: &mut Writer, key: &[u8], value: &[u8], ttl_ms: u64, now: u64) {
    let prepared = writer.prepare(&Op::Put { key, value, ttl_ms }, now).unwrap();
    writer.apply(&prepared.effect.unwrap(), now).unwrap();
}

pub fn get(view: &View, seat: &Participant, key: &[u8], now: u64) -> Option<Vec<u8>> {
    let (pin, mut value) = (seat.pin(), vec![1, 2, 3]);
    match view.get(&pin, view.hash_of(key), key, now, &mut value) {
        Read::Found { .. } => Some(value.split_off(3)),
        Read::Missing => {
            assert_eq!(value, [1, 2, 3]);
            None
        }
        Read::Contended => unreachable!("the owner is not writing"),
    }
}

type Model = HashMap<Vec<u8>, (Vec<u8>, u64)>;

pub struct Bed {
    pub writer: Writer,
    pub view: View,
    pub seat: Participant,
    pub model: Model,
    pub now: u64,
    /// Effects and evictions in order, for a second store.
    pub log: Vec<Effect<'static>>,
    pub evicted: u64,
    /// Whether nothing may ever be evicted.
    pub is_roomy: bool,
}

fn owned(effect: &Effect<'_>) -> Effect<'static> {
    let leak = |key: &[u8]| -> &'static [u8] { key.to_vec().leak() };
    match effect {
        Effect::Set { key, value, deadline_ms } => {
            Effect::Set { key: leak(key), value: Cow::Owned(value.to_vec()), deadline_ms: *deadline_ms }
        }
        Effect::Deadline { key, deadline_ms } => {
            Effect::Deadline { key: leak(key), deadline_ms: *deadline_ms }
        }
        Effect::Delete { key } => Effect::Delete { key: leak(key) },
        Effect::Flush => Effect::Flush,
    }
}

impl Bed {
    pub fn new(config: Config, is_roomy: bool) -> Bed {
        let (mut writer, view, seat) = store(config);
        writer.note_evicted();
        let (model, log) = (Model::new(), Vec::new());
        Bed { writer, view, seat, model, now: NOW, log, evicted: 0, is_roomy }
    }

    fn live(&self, key: &[u8]) -> Option<&(Vec<u8>, u64)> {
        self.model.get(key).filter(|(_, deadline)| *deadline == 0 || self.now < *deadline)
    }

    pub fn note_evictions(&mut self) {
        let Bed { writer, model, log, evicted, now, .. } = self;
        let mut seen = HashSet::new();
        writer.take_evicted(|key| {
            *evicted += 1;
            assert!(seen.insert(key.to_vec()), "evicted twice");
            let (_, deadline) = model.remove(key).expect("only what is there can be lost");
            assert!(deadline == 0 || *now < deadline, "an expired key is no loss");
            log.push(Effect::Delete { key: key.to_vec().leak() });
        });
        assert!(*evicted == 0 || !self.is_roomy);
        assert_eq!(self.writer.stats().evictions_live, self.evicted, "every loss is counted");
    }

    /// Runs an operation on both and compares answers.
    pub fn run(&mut self, op: Op<'_>) {
        let expected = self.expect(op);
        let prepared = self.writer.prepare(&op, self.now);
        self.note_evictions();
        match (expected, prepared) {
            (Ok((reply, effect)), Ok(prepared)) => {
                assert_eq!(prepared.reply, reply, "{op:?}");
                assert_eq!(prepared.effect, effect, "{op:?}");
                self.apply(prepared.effect);
            }
            (Err(_), Err(StoreError::Full | StoreError::KeyTooLarge)) => unreachable!("the store has room"),
            (Err(text), Err(error)) => assert_eq!(error.to_string(), text),
            (expected, prepared) => panic!("{op:?}: {expected:?}, but {prepared:?}"),
        }
    }

    fn apply(&mut self, effect: Option<Effect<'_>>) {
        let Some(effect) = effect else { return };
        self.log.push(owned(&effect));
        self.writer.apply(&effect, self.now).expect("it was prepared");
        self.follow(&effect);
        self.note_evictions();
    }

    /// Applies an effect of a log, for which no room has been made. What does not fit the store at all is left out.
    pub fn replay(&mut self, effect: &Effect<'_>) {
        // What is evicted after the entry was written is never the entry itself, which lies in the open page.
        let applied = self.writer.apply(effect, self.now);
        self.note_evictions();
        match applied {
            Ok(()) => self.follow(effect),
            Err(StoreError::Full) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn follow(&mut self, effect: &Effect<'_>) {
        match effect {
            Effect::Set { key, value, deadline_ms } => {
                self.model.insert(key.to_vec(), (value.to_vec(), *deadline_ms));
            }
            Effect::Deadline { key, deadline_ms } => {
                // In a log the key was there; a store with less room may have lost it.
                if let Some((_, deadline)) = self.model.get_mut(*key) {
                    *deadline = *deadline_ms;
                }
            }
            Effect::Delete { key } => drop(self.model.remove(*key)),
            Effect::Flush => self.model.clear(),
        }
    }

    pub fn update(&mut self, key: &[u8], action: Action) {
        let before = self.live(key).cloned();
        let Prepared { effect, reply } = self
            .writer
            .prepare_update(key, self.now, |found| {
                (action.clone(), found.map(|(value, deadline)| (value.to_vec(), deadline)))
            })
            .unwrap();
        assert_eq!(reply, before);
        let changes = match &action {
            Action::Keep => false,
            Action::Set { .. } => true,
            Action::Delete => before.is_some(),
            Action::Deadline { deadline_ms } => before.is_some_and(|(_, old)| old != *deadline_ms),
        };
        assert_eq!(effect.is_some(), changes, "{action:?}");
        self.note_evictions();
        self.apply(effect);
    }

    /// What the specification says of an operation.
    fn expect<'a>(&self, op: Op<'a>) -> Result<(Reply, Option<Effect<'a>>), &'static str> {
        let deadline = |ttl_ms: u64| match ttl_ms {
            0 => Ok(0),
            ttl_ms if ttl_ms > 9_223_372_036_854 => Err("ttlMs out of range"),
            ttl_ms => Ok(self.now + ttl_ms),
        };
        let set = |key, value: &'a [u8], deadline_ms| {
            Some(Effect::Set { key, value: Cow::Borrowed(value), deadline_ms })
        };
        let moved = |key: &'a [u8], to: u64| {
            (self.live(key)?.1 != to).then_some(Effect::Deadline { key, deadline_ms: to })
        };
        let sum = |key: &'a [u8], delta: i64, deadline_ms: u64| {
            let before = match self.live(key) {
                None => 0,
                Some((value, _)) => {
                    i64::from_be_bytes(value[..].try_into().map_err(|_| "incr value is not 8 bytes")?)
                }
            };
            let sum = before.wrapping_add(delta);
            let value = Cow::Owned(sum.to_be_bytes().to_vec());
            Ok::<_, &'static str>((Reply::Number(sum), Some(Effect::Set { key, value, deadline_ms })))
        };
        let value_is =
            |key: &[u8], expected: &[u8]| self.live(key).is_some_and(|(value, _)| value == expected);
        Ok(match op {
            Op::Put { key, value, ttl_ms } => (Reply::Done, set(key, value, deadline(ttl_ms)?)),
            Op::Del { key } => {
                (Reply::Flag(self.live(key).is_some()), self.live(key).map(|_| Effect::Delete { key }))
            }
            Op::Expire { key, ttl_ms } => {
                let deadline = deadline(ttl_ms)?;
                let reply = if self.live(key).is_some() { Reply::Done } else { Reply::Missing };
                (reply, moved(key, deadline))
            }
            Op::Incr { key, delta } => sum(key, delta, 0)?,
            Op::IncrEx { key, delta, ttl_ms } => {
                let created = deadline(ttl_ms)?;
                sum(key, delta, self.live(key).map_or(created, |&(_, old)| old))?
            }
            Op::SetNx { key, value, ttl_ms } => {
                let deadline = deadline(ttl_ms)?;
                match self.live(key) {
                    Some(_) => (Reply::Flag(false), None),
                    None => (Reply::Flag(true), set(key, value, deadline)),
                }
            }
            Op::GetSet { key, value, ttl_ms } => {
                let effect = set(key, value, deadline(ttl_ms)?);
                (Reply::Value(self.live(key).map(|(value, _)| value.clone())), effect)
            }
            Op::GetDel { key } => {
                let effect = self.live(key).map(|_| Effect::Delete { key });
                (Reply::Value(self.live(key).map(|(value, _)| value.clone())), effect)
            }
            Op::Persist { key } => {
                let effect = moved(key, 0);
                (Reply::Flag(effect.is_some()), effect)
            }
            Op::Cas { key, value, expected, ttl_ms } => {
                let deadline = deadline(ttl_ms)?;
                let holds = match expected {
                    None => self.live(key).is_none(),
                    Some(expected) => value_is(key, expected),
                };
                (Reply::Flag(holds), holds.then(|| set(key, value, deadline)).flatten())
            }
            Op::Cad { key, expected } => {
                let holds = value_is(key, expected);
                (Reply::Flag(holds), holds.then_some(Effect::Delete { key }))
            }
            Op::Caex { key, expected, ttl_ms } => {
                let deadline = deadline(ttl_ms)?;
                let holds = value_is(key, expected);
                (Reply::Flag(holds), holds.then(|| moved(key, deadline)).flatten())
            }
            Op::Flush => (Reply::Done, Some(Effect::Flush)),
        })
    }

    /// Compares one key as readers see it.
    pub fn check_key(&mut self, key: &[u8]) {
        let expected = self.live(key).cloned();
        let found = get(&self.view, &self.seat, key, self.now);
        assert_eq!(found, expected.as_ref().map(|(value, _)| value.clone()), "{key:?}");
        let (pin, hash) = (self.seat.pin(), self.view.hash_of(key));
        assert_eq!(self.view.exists(&pin, hash, key, self.now), expected.is_some());
        let ttl = match &expected {
            None => -2,
            Some((_, 0)) => -1,
            Some((_, deadline)) => (deadline - self.now) as i64,
        };
        assert_eq!(self.view.ttl(&pin, hash, key, self.now), ttl);
        drop(pin);
        let mut owners = Vec::new();
        assert_eq!(
            self.writer.get(key, self.now, &mut owners),
            expected.as_ref().map(|&(_, deadline)| deadline)
        );
        assert_eq!(owners, expected.map_or(Vec::new(), |(value, _)| value));
    }

    /// Compares everything, by lookups and by a read-out.
    pub fn check_all(&mut self, keys: &[Vec<u8>]) {
        keys.iter().for_each(|key| self.check_key(key));
        let mut cursor = self.writer.snapshot();
        let mut seen = Model::new();
        let mut more = true;
        while more {
            more = self.writer.snapshot_step(&mut cursor, self.now, 100, |key, value, deadline| {
                assert!(seen.insert(key.to_vec(), (value.to_vec(), deadline)).is_none());
            });
        }
        let live: Model = self
            .model
            .iter()
            .filter(|(key, _)| self.live(key).is_some())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        assert_eq!(seen, live);
        let stats = self.writer.stats();
        assert!(stats.keys >= live.len());
        assert!(stats.live_bytes <= stats.used_bytes, "{stats:?}");
        assert!(stats.used_bytes <= stats.pages_allocated * stats.page_bytes, "{stats:?}");
        assert!((0.0..=1.0).contains(&stats.fragmentation()), "{stats:?}");
        // Headers, keys and values, each filled up to a word.
        let least: usize = live.iter().map(|(key, (value, _))| 24 + key.len() + value.len()).sum();
        assert!(stats.live_bytes >= least, "{stats:?}");
        let timed = live.values().filter(|&&(_, deadline)| deadline != 0).count();
        assert!((timed..=stats.keys).contains(&stats.keys_with_deadline), "{stats:?}");
    }
}
