//! What clients see of the keys while these are replaced by those of a backup, and which backups a server of another size takes, in simulation.

use super::Random;
use super::backup_keys_test::{options, restore, simulate, stored};
use super::keys_test::{Order, carry_out};
use super::node::{open, patiently};
use crate::backup::{BackupError, Job, MemoryStore, NodePart, send_held_keys, stored_pieces_of_keys};
use crate::cold_stub::ColdStore;
use crate::disk::{Calls, Failure, SimDisk};
use crate::error::OpError;
use crate::event::together;
use crate::kv::KeysOptions;
use crate::kv::batch::{Answers, KeyResult};
use crate::kv::replace::OtherKeys;
use crate::node::NodeOptions;
use nigh_engine::kv::Read;
use std::cell::Cell;
use std::rc::Rc;

/// Values as a list of keys is answered.
#[derive(Default)]
struct Told(Vec<Option<Vec<u8>>>);

impl Answers for Told {
    fn answer(&mut self, result: KeyResult<'_>) {
        match result {
            KeyResult::Value(value) => self.0.push(Some(value.to_vec())),
            KeyResult::Missing => self.0.push(None),
            other => panic!("{other:?}"),
        }
    }

    fn value(&mut self, append: impl FnOnce(&mut Vec<u8>) -> Read) -> Read {
        let mut value = Vec::new();
        let read = append(&mut value);
        match read {
            Read::Found { .. } => self.0.push(Some(value)),
            Read::Missing => self.0.push(None),
            Read::Contended => {}
        }
        read
    }
}

/// The keys of a list are the same before a restore and after it, so none of them is missing in any answer, however long the list is.
#[test]
fn a_list_that_is_read_while_keys_are_replaced_is_refused_or_whole() {
    const KEYS: u64 = 600;
    let (answered, refused) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for seed in 1..=6 {
        let counted = (answered.clone(), refused.clone());
        let done = simulate(seed, move |sim| async move {
            let (store, random) = (MemoryStore::new(), Random::new(seed));
            let disk = SimDisk::new(seed);
            disk.set_yielding(true);
            let node = open(&sim, &Rc::new(disk), 1 + random.index(3), options(&store, &random)).await;
            let core = node.cores[0].clone();
            let keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_be_bytes).collect();
            for key in &keys {
                let order = Order::Put { value: key.to_vec(), ttl_ms: 0 };
                patiently(|| carry_out(&core, key, &order)).await;
            }
            stored(&core).await;
            let is_over = Rc::new(Cell::new(false));
            let readers = (0..8).map(|_| {
                let (core, keys) = (node.cores[random.index(node.cores.len())].clone(), keys.clone());
                let (is_over, (answered, refused)) = (is_over.clone(), counted.clone());
                let (sim, pause_us) = (sim.clone(), random.below(300));
                async move {
                    let wanted: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                    while !is_over.get() {
                        let mut told = Told::default();
                        match core.keys().get_keys(&wanted, &mut told).await {
                            Ok(()) => {
                                let whole = keys.iter().map(|key| Some(key.to_vec()));
                                assert!(told.0.into_iter().eq(whole), "a key is missing");
                                answered.set(answered.get() + 1);
                            }
                            Err(OpError::Busy(why)) if why.contains("replaced") => {
                                refused.set(refused.get() + 1);
                            }
                            Err(error) => panic!("{error}"),
                        }
                        sim.sleep_us(1 + pause_us).await;
                    }
                }
            });
            let work = async {
                for _ in 0..3 {
                    sim.sleep_us(2_000).await;
                    restore(&core, None).await.expect("it fits");
                }
                is_over.set(true);
            };
            futures_lite::future::zip(together(readers.collect()), work).await;
            true
        });
        assert!(done, "seed {seed}");
    }
    assert!(answered.get() > 0 && refused.get() > 0, "{} {}", answered.get(), refused.get());
}

/// Images may have a value that is larger than all the room for keys, if a later image has another value of the key.
#[test]
fn a_value_that_was_replaced_before_the_run_needs_no_room() {
    let done = simulate(8, move |sim| async move {
        let (store, random) = (MemoryStore::new(), Random::new(8));
        let large = NodeOptions {
            shards: 1,
            segment_bytes: 1 << 20,
            log_bytes_soft: 8 << 20,
            ..options(&store, &random)
        };
        let node = open(&sim, &Rc::new(SimDisk::new(8)), 1, large.clone()).await;
        for len in [200_000, 3] {
            let order = Order::Put { value: vec![7; len], ttl_ms: 0 };
            patiently(|| carry_out(&node.cores[0], b"k", &order)).await;
            stored(&node.cores[0]).await;
        }
        drop(node);
        let keys = KeysOptions { query: false, budget_bytes: 160 << 10, ..large.keys.clone() };
        let keys = KeysOptions { shard_bytes_min: 64 << 10, ..keys };
        let small = NodeOptions { keys, ..large };
        let node = open(&sim, &Rc::new(SimDisk::new(9)), 1, small).await;
        let core = &node.cores[0];
        let verified = patiently(|| core.verify_part(NodePart::Keys, None)).await;
        assert!(verified.bytes > 200_000, "an image has the first value: {verified:?}");
        restore(core, None).await.expect("what there was at the run fits");
        let mut value = Vec::new();
        assert!(core.keys().key_value(b"k", &mut value).await.expect("the keys are served"));
        assert_eq!(value, [7; 3]);
        true
    });
    assert!(done);
}

/// The changes during a run are read into memory, so they count for the limit like the keys themselves.
#[test]
fn changes_of_a_run_that_do_not_fit_into_memory_are_refused() {
    let done = simulate(10, move |sim| async move {
        let (store, random) = (MemoryStore::new(), Random::new(10));
        let options = options(&store, &random);
        let limit_bytes = options.memory_limit_bytes;
        let node = open(&sim, &Rc::new(SimDisk::new(10)), 1, options).await;
        let with_tapes = |tape_bytes| OtherKeys {
            shards: 1,
            uid: 1,
            images: Vec::new(),
            tapes: Vec::new(),
            cut_unix_ms: 1,
            live_bytes: 1 << 20,
            tape_bytes,
        };
        let keys = node.cores[0].keys();
        keys.check_replaceable(&with_tapes(1 << 20)).expect("it fits");
        let refused = keys.check_replaceable(&with_tapes(limit_bytes));
        assert!(matches!(refused, Err(OpError::NoMemory(_))), "{refused:?}");
        true
    });
    assert!(done);
}

/// A snapshot that lacks what one core has would replace the keys of that core by nothing.
#[test]
fn a_core_that_holds_no_keys_any_more_fails_the_run() {
    let done = simulate(11, move |sim| async move {
        let (store, random) = (MemoryStore::new(), Random::new(11));
        let options = options(&store, &random);
        let job = Job {
            target: options.backup.directory.clone().expect("there is a store"),
            store: ColdStore::Directory,
            time: String::new(),
            taken_unix_ms: 0,
            begun_ns: 0,
            retention: 0,
            bytes_per_second: 0,
        };
        let node = open(&sim, &Rc::new(SimDisk::new(11)), 1, options).await;
        let keys = node.cores[0].keys();
        let stored = stored_pieces_of_keys(keys, &job).await.expect("the store answers");
        let sent = send_held_keys(keys, &job, stored, None).await;
        assert!(matches!(&sent, Err(BackupError::Source(why)) if why.contains("held")), "{sent:?}");
        true
    });
    assert!(done);
}

/// The memory of the keys from before stays theirs until they do not come back any more: points would take it, and a restore that fails would lose keys.
#[test]
fn a_restore_that_fails_has_kept_the_memory_of_the_keys_from_before() {
    const KEYS: u64 = 300;
    let mut failed = 0;
    for skip in 0.. {
        let was_ok = simulate(12, move |sim| async move {
            let (store, random) = (MemoryStore::new(), Random::new(12));
            let disk = SimDisk::new(12);
            disk.set_yielding(true);
            let disk = Rc::new(disk);
            let node = open(&sim, &disk, 2, options(&store, &random)).await;
            let core = node.cores[0].clone();
            let put = |n: u64| {
                let (core, order) = (core.clone(), Order::Put { value: vec![n as u8; 4_000], ttl_ms: 0 });
                async move {
                    let key = n.to_be_bytes();
                    patiently(|| carry_out(&core, &key, &order)).await
                }
            };
            put(0).await;
            stored(&core).await;
            for n in 1..KEYS {
                put(n).await;
            }
            let before = core.keys().keys_stats().await;
            let (least, is_over) = (Cell::new(u64::MAX), Cell::new(false));
            let watch = async {
                while !is_over.get() {
                    let now = core.keys().keys_stats().await.allocated_bytes;
                    least.set(least.get().min(now));
                    sim.sleep_us(20).await;
                }
            };
            let work = async {
                disk.fail(Calls::Sync, skip, Failure::Io);
                let restored = restore(&core, None).await;
                disk.heal();
                is_over.set(true);
                restored
            };
            let (restored, ()) = futures_lite::future::zip(work, watch).await;
            let after = core.keys().keys_stats().await;
            match &restored {
                Ok(_) => {
                    assert!(after.allocated_bytes < before.allocated_bytes / 2, "what is free is given back");
                    assert_eq!(after.store.keys, 1);
                }
                Err(_) => {
                    // When they are back, they may be packed closer than before.
                    let needed = before.allocated_bytes.min(after.allocated_bytes);
                    assert!(least.get() >= needed, "{least:?} {needed}");
                    assert_eq!(after.store.keys, before.store.keys);
                }
            }
            restored.is_ok()
        });
        if was_ok {
            break;
        }
        failed += 1;
    }
    assert!(failed > 3, "files that were fetched, images and the manifest: {failed}");
}
