//! Aliases in simulation: what was answered is there after a crash; a batch is there whole or not at all; an alias goes with its
//! collection.

use super::node::{next_life, node_options, open};
use super::{Random, Sim};
use crate::alias_file;
use crate::core::{AliasChange, Core};
use crate::disk::{Calls, Disk, Failure, SimDisk};
use crate::error::OpError;
use crate::node::NodeOptions;
use nigh_engine::collection::DenseConfig;
use nigh_engine::distance::Metric;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

type Aliases = BTreeMap<String, String>;
const COLLECTIONS: [&str; 3] = ["one", "two", "acme/three"];
const ALIASES: [&str; 4] = ["live", "next", "acme/live", "old"];

fn full(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("default/{name}") }
}

fn listed(core: &Core) -> Aliases {
    core.aliases(None).unwrap().into_iter().map(|alias| (alias.alias, alias.collection)).collect()
}

async fn create(core: &Rc<Core>, name: &str) {
    // The way to core 0 may be full for a moment.
    loop {
        match core.create_collection(name, DenseConfig::new(2, Metric::L2)).await {
            Ok(()) | Err(OpError::CollectionExists(_)) => break,
            Err(OpError::Busy(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// Drops a collection and makes it anew: none of its aliases stands for the new one, now or after a crash.
async fn replace_collection(core: &Rc<Core>, disk: &SimDisk, name: &str, possible: &RefCell<Vec<Aliases>>) {
    let before = possible.borrow()[0].clone();
    let mut without = before.clone();
    without.retain(|_, target| *target != full(name));
    possible.borrow_mut().push(without.clone());
    match core.drop_collection(name, None).await {
        Ok(existed) => {
            assert!(existed);
            *possible.borrow_mut() = vec![without];
        }
        Err(_) => {
            let served = listed(core);
            let gone = core.ctx.handle(name).is_err();
            assert_eq!(served, if gone { without.clone() } else { before.clone() });
            // The rename may not outlive a crash, and then the collection is there again with its aliases.
            *possible.borrow_mut() = vec![served, before, without];
        }
    }
    disk.heal();
    let made_anew = core.ctx.handle(name).is_err();
    create(core, name).await;
    if made_anew {
        let served = listed(core);
        *possible.borrow_mut() = vec![served];
    }
}

fn within_tenant(alias: &str, collection: &str) -> bool {
    alias.contains('/') == collection.contains('/')
}

/// One life: what may be there is checked, then batches until its end. The first of `possible` is what was answered last.
async fn life(sim: Sim, disk: Rc<SimDisk>, possible: Rc<RefCell<Vec<Aliases>>>) {
    let random = sim.random().fork();
    let count = 1 + random.index(2);
    let options = NodeOptions { segment_bytes: 4096 * 8, log_bytes_soft: 4096 * 16, ..node_options() };
    let node = open(&sim, &disk, count, options).await;
    let core = node.cores[0].clone();
    for name in COLLECTIONS {
        create(&core, name).await;
    }
    let found = listed(&core);
    assert!(possible.borrow().contains(&found), "found {found:?}, possible {possible:?}");
    *possible.borrow_mut() = vec![found];
    let steps = random.below(12);
    let worker = async {
        for _ in 0..steps {
            let mut next = possible.borrow()[0].clone();
            let changes: Vec<AliasChange> = (0..1 + random.below(3))
                .map(|_| {
                    let alias = ALIASES[random.index(ALIASES.len())];
                    if random.chance(1, 3) {
                        next.remove(&full(alias));
                        return AliasChange::Delete { alias: alias.to_owned() };
                    }
                    let of_its_tenant = COLLECTIONS.into_iter().filter(|name| within_tenant(alias, name));
                    let of_its_tenant: Vec<&str> = of_its_tenant.collect();
                    let collection = of_its_tenant[random.index(of_its_tenant.len())];
                    next.insert(full(alias), full(collection));
                    AliasChange::Create { alias: alias.to_owned(), collection: collection.to_owned() }
                })
                .collect();
            if random.chance(1, 6) {
                disk.fail(if random.chance(1, 2) { Calls::NameSync } else { Calls::Other }, 0, Failure::Io);
            }
            if random.chance(1, 4) {
                let name = COLLECTIONS[random.index(COLLECTIONS.len())];
                replace_collection(&core, &disk, name, &possible).await;
                continue;
            }
            possible.borrow_mut().push(next.clone());
            let any = node.cores[random.index(count)].clone();
            match any.change_aliases(changes).await {
                Ok(_) => *possible.borrow_mut() = vec![next],
                // Done or not: the file may have been replaced before the failure, and the next change goes by what is served.
                Err(_) => {
                    let served = listed(&core);
                    assert_eq!(
                        served,
                        possible.borrow()[0],
                        "a refused batch changes nothing that is served"
                    );
                }
            }
            disk.heal();
            let mixed = vec![
                AliasChange::Create { alias: "live".into(), collection: "two".into() },
                AliasChange::Create { alias: "x".into(), collection: "none".into() },
            ];
            let refused = core.change_aliases(mixed).await;
            assert!(matches!(refused, Err(OpError::BadRequest(_) | OpError::Busy(_))), "{refused:?}");
            // Whether there is such a collection is not said to another tenant.
            for target in ["acme/three", "acme/none"] {
                let across = AliasChange::Create { alias: "x".into(), collection: target.into() };
                match core.change_aliases(vec![across]).await {
                    Err(OpError::BadRequest(why)) => assert!(why.contains("different tenants"), "{why}"),
                    Err(OpError::Busy(_)) => {}
                    other => panic!("{other:?}"),
                }
            }
            for (alias, target) in listed(&core) {
                assert_eq!(core.ctx.handle(&alias).map(|handle| handle.name.clone()).ok(), Some(target));
            }
        }
    };
    // Some lives end in the middle of a change.
    let end = sim.sleep_us(random.below(2_000));
    futures_lite::future::or(worker, end).await;
}

#[test]
fn answered_aliases_survive_crashes_in_simulation() {
    for seed in 1..150 {
        let random = Random::new(seed);
        let mut disk = SimDisk::new(random.next());
        disk.set_yielding(true);
        let possible = Rc::new(RefCell::new(vec![Aliases::new()]));
        for _ in 0..4 {
            let shared = Rc::new(disk);
            super::run(random.next(), |sim| life(sim, shared.clone(), possible.clone()));
            Core::set_current(None);
            shared.heal();
            disk = next_life(&shared, &random);
        }
    }
}

/// Older versions took aliases for collections of other tenants.
#[test]
fn an_alias_of_another_tenants_collection_goes_at_the_next_start() {
    let disk = Rc::new(SimDisk::new(1));
    let own: Aliases = [("default/live".to_owned(), "default/one".to_owned())].into();
    super::run(1, |sim| {
        let (disk, mut aliases) = (disk.clone(), own.clone());
        async move {
            let node = open(&sim, &disk, 1, node_options()).await;
            let core = node.cores[0].clone();
            for name in COLLECTIONS {
                create(&core, name).await;
            }
            aliases.insert("default/across".into(), "acme/three".into());
            core.store_aliases(&aliases).await.unwrap();
        }
    });
    Core::set_current(None);
    super::run(2, |sim| async move {
        let node = open(&sim, &disk, 1, node_options()).await;
        let core = node.cores[0].clone();
        assert_eq!(listed(&core), own);
        assert!(matches!(core.ctx.handle("across"), Err(OpError::UnknownCollection(_))));
        let bytes = disk.read(Path::new(alias_file::FILE)).await.unwrap();
        assert_eq!(alias_file::decode(&bytes).unwrap(), own, "what the next start will find");
        create(&core, "across").await;
    });
}
