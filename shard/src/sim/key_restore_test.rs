//! What clients see of the keys while these are replaced by those of a backup, and which backups a server of another size takes, in simulation.

use super::backup_keys_test::{options, restore, simulate, stored};
use super::keys_test::{Order, carry_out};
use super::node::{open, patiently};
use super::Random;
use crate::backup::MemoryStore;
use crate::disk::SimDisk;
use crate::error::OpError;
use crate::event::together;
use crate::kv::batch::{Answers, KeyResult};
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
