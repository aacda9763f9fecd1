//! Opening collections: every core opens those that it owns, one after the other, while the other cores open theirs.
//!
//! Core 0 has a lane for each core. A lane takes the collections of its core in the order of the catalog, gets their first log records, has the
//! core load them, and hands them over to be published. So a collection is served while later ones are being opened.
//!
//! A collection that does not fit into memory stays closed. Which ones fit must not depend on which core is faster: collections are opened at the
//! same time only as long as all of them surely fit, and otherwise one after the other in the order of the catalog.

use crate::catalog::CollectionHandle;
use crate::checkpoint::collection_dir;
use crate::core::Core;
use crate::damage_mark;
use crate::env::call_own;
use crate::event::{Event, Lock, together};
use crate::family::tokens_of;
use crate::opening::{GiveWay, Replay, Tally};
use crate::owner::load::{Loaded, ToLoad};
use ahash::HashMap;
use futures_lite::future::zip;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// Memory that a collection takes while it is opened and when it is open, at most, as a multiple of the bytes of its images and of its log
/// records: payload indexes take more in memory than in an image.
const MEMORY_FACTOR: u64 = 4;
/// Bytes of memory that are added to these: an empty collection has tables too.
const MEMORY_LEAST: u64 = 256 << 10;
/// The catalog is published at most so often, microseconds, and so that publishing takes no more than this part of the time: each publication
/// copies all of it.
const PUBLISH_US: u64 = 2_000;
const PUBLISH_PART: u64 = 16;

/// A collection to open, with the index of its tokens if it has one.
pub(crate) struct Unit {
    pub collection: ToLoad,
    /// The collection is of the family that has an index of tokens.
    pub wants_tokens: bool,
    pub tokens: Option<ToLoad>,
    /// An operator accepts the damage of the collection.
    pub is_accepted: bool,
}

impl Unit {
    fn parts(&self) -> impl Iterator<Item = &ToLoad> {
        [&self.collection].into_iter().chain(&self.tokens)
    }

    /// Bytes on the disk that are read for it.
    fn bytes(&self, tallies: &HashMap<u64, Tally>) -> u64 {
        let log = |part: &ToLoad| tallies.get(&part.uid).map_or(0, |tally| tally.bytes);
        self.parts().map(|part| part.image_bytes() + log(part)).sum()
    }
}

/// What the lanes have in common.
struct Lanes<'a> {
    core: &'a Rc<Core>,
    replay: RefCell<Option<Replay>>,
    replay_lock: Rc<Lock>,
    turns: Turns,
    /// The collections that are open and not published yet.
    opened: RefCell<Vec<Arc<CollectionHandle>>>,
    /// Notified when a collection has been opened, and when a lane has ended.
    changed: Event,
    /// The lanes that have not ended.
    left: Cell<usize>,
}

/// Opens the collections and publishes each when it is open. On core 0; their names are published already.
///
/// # Errors
/// Why the store cannot be opened; the damage of single collections is none of these.
pub(crate) async fn open(
    core: &Rc<Core>,
    units: Vec<Unit>,
    tallies: HashMap<u64, Tally>,
) -> Result<(), String> {
    let bytes: Vec<u64> = units.iter().map(|unit| unit.bytes(&tallies)).collect();
    core.node().progress.expect(units.len() as u64, bytes.iter().sum());
    let order = units.iter().flat_map(Unit::parts).map(|part| (part.uid, part.covered())).collect();
    let lanes = Lanes {
        core,
        replay: RefCell::new(Some(Replay::new(&core.ctx, tallies, order))),
        replay_lock: Rc::default(),
        turns: Turns::default(),
        opened: RefCell::default(),
        changed: Event::default(),
        left: Cell::new(core.env().cores()),
    };
    lanes.turns.promise(core, bytes.iter().map(|bytes| memory_of(*bytes)).sum());
    let mut of_core: Vec<VecDeque<(usize, u64, Unit)>> =
        (0..core.env().cores()).map(|_| VecDeque::new()).collect();
    for (place, (unit, bytes)) in units.into_iter().zip(bytes).enumerate() {
        let owner = core.node().owner_of(unit.collection.uid, core.env().cores());
        of_core[owner].push_back((place, bytes, unit));
    }
    // Known before any lane begins, so that the first in the catalog goes first where not all fit.
    lanes.turns.waiting.replace(of_core.iter().filter_map(|units| Some(units.front()?.0)).collect());
    let running = of_core.into_iter().enumerate().map(|(owner, units)| {
        let lanes = &lanes;
        let places: Vec<usize> = units.iter().map(|(place, ..)| *place).collect();
        async move {
            let ended = lanes.run(owner, units).await;
            // A lane that ends early gives up the places of the collections that it has not opened: others would wait for these.
            lanes.turns.waiting.borrow_mut().retain(|place| !places.contains(place));
            lanes.left.set(lanes.left.get() - 1);
            if ended.is_err() {
                // The others need not go on: the node does not start.
                core.node().progress.end();
            }
            lanes.changed.notify();
            lanes.turns.changed.notify();
            ended
        }
    });
    let (ended, ()) = zip(together(running.collect()), lanes.publish()).await;
    core.node().account.promise(0);
    // The first that did not end because another had failed.
    let failures: Vec<String> = ended.into_iter().filter_map(Result::err).collect();
    match failures.iter().find(|why| *why != crate::opening::ENDING).or(failures.first()) {
        Some(why) => Err(why.clone()),
        None => Ok(()),
    }
}

/// Bytes of memory that what has so many bytes on the disk needs at most.
fn memory_of(bytes: u64) -> u64 {
    bytes.saturating_mul(MEMORY_FACTOR).saturating_add(MEMORY_LEAST)
}

impl Lanes<'_> {
    async fn run(&self, owner: usize, units: VecDeque<(usize, u64, Unit)>) -> Result<(), String> {
        let mut way = GiveWay::new(self.core.ctx());
        for (place, bytes, unit) in units {
            // Small collections of this core are opened without waiting for anything: other lanes and requests would wait for the last of them.
            self.core.env().yield_now().await;
            way.check().await;
            if self.core.node().progress.is_ending() {
                return Err(crate::opening::ENDING.to_owned());
            }
            let needed = memory_of(bytes);
            let mut turn = self.turns.begin(self.core, place, needed).await;
            let Unit { collection, wants_tokens, tokens, is_accepted } = unit;
            let uid = collection.uid;
            let tokens_uid = tokens.as_ref().map(|tokens| tokens.uid);
            let (handle, mut read) = self.load(owner, collection, &mut turn).await?;
            let tokens = match tokens {
                Some(tokens) => {
                    let (handle, more) = self.load(owner, tokens, &mut turn).await?;
                    read += more;
                    Some(handle)
                }
                None => None,
            };
            if is_accepted && handle.damage.get().is_none() {
                tracing::warn!(
                    collection = handle.name,
                    "its damage was accepted: what can be read of it is served"
                );
                if let Some(disk) = self.core.env().disk() {
                    damage_mark::clear(&*disk, &collection_dir(uid)).await;
                }
            }
            if wants_tokens {
                debug_assert!(
                    tokens_uid.is_none_or(|tokens| tokens == tokens_of(uid)),
                    "they have one number"
                );
                self.join_tokens(&handle, tokens).await;
            }
            self.turns.keep_less(self.core, needed);
            self.core.node().progress.opened(bytes.saturating_sub(read));
            self.opened.borrow_mut().push(handle);
            self.changed.notify();
            // The next one of this core lines up before any other is looked for: there is no await in between.
            drop(turn);
        }
        Ok(())
    }

    /// Has the owner load one collection; what it is known by, and how many bytes were read for it.
    async fn load(
        &self,
        owner: usize,
        what: ToLoad,
        turn: &mut Turn<'_>,
    ) -> Result<(Arc<CollectionHandle>, u64), String> {
        let what = Arc::new(what);
        loop {
            let records = {
                let _held = self.replay_lock.lock().await;
                // Nobody else has it: the lock is held.
                let mut replay =
                    self.replay.borrow_mut().take().expect("whoever holds the lock puts it back");
                let records = replay.of(&self.core.ctx, what.uid).await;
                self.replay.replace(Some(replay));
                records?
            };
            let (what, may_close) = (what.clone(), turn.is_alone.get());
            let loaded = call_own(self.core, owner, move |there| async move {
                there.collections.load_collection(&what, records, may_close).await
            })
            .await?;
            match loaded {
                Loaded::Open { handle, read } => return Ok((handle, read)),
                // It may fit once the others are open that came before it: the estimate was too low.
                Loaded::Refused => turn.alone().await,
            }
        }
    }

    /// Joins a multi-vector collection and the index of its tokens, which is damaged if the index is not there or is damaged.
    async fn join_tokens(&self, handle: &Arc<CollectionHandle>, tokens: Option<Arc<CollectionHandle>>) {
        let Some(tokens) = tokens else {
            let _damaged_before = handle.damage.set("the index of its tokens is missing".to_owned());
            return;
        };
        let _only_once = handle.tokens.set(tokens);
        let uid = handle.uid;
        call_own(self.core, handle.owner, move |there| async move {
            there.collections.join_tokens(uid);
            there.collections.reconcile_tokens(uid).await;
        })
        .await;
    }

    /// Publishes what has been opened until all has.
    async fn publish(&self) {
        let env = self.core.env();
        loop {
            let changed = self.changed.wait();
            let opened = std::mem::take(&mut *self.opened.borrow_mut());
            if opened.is_empty() {
                if self.left.get() == 0 {
                    return;
                }
                changed.await;
                continue;
            }
            let before_us = env.now_ns() / 1000;
            let mut catalog = self.core.ctx.catalog_copy();
            for handle in opened {
                catalog.opening.remove(&handle.name);
                catalog.by_name.insert(handle.name.clone(), handle);
            }
            self.core.ctx.publish_catalog(catalog);
            if self.left.get() > 0 {
                let took_us = (env.now_ns() / 1000).saturating_sub(before_us);
                env.sleep_us(PUBLISH_US.max(took_us * PUBLISH_PART)).await;
            }
        }
    }
}

/// Who may load collections at the same time.
#[derive(Default)]
struct Turns {
    /// The places in the catalog of the collections that wait for their turn.
    waiting: RefCell<BTreeSet<usize>>,
    /// The memory that the collections need that are being loaded, in bytes, and how many there are.
    needed: Cell<u64>,
    running: Cell<usize>,
    /// The memory that is kept for all collections that are not open yet, in bytes.
    promised: Cell<u64>,
    changed: Event,
}

/// The turn of one collection; it ends when this is dropped.
struct Turn<'a> {
    turns: &'a Turns,
    place: usize,
    needed: u64,
    /// No other is loaded meanwhile, and none that comes before it in the catalog is left.
    is_alone: Cell<bool>,
}

/// The place of a collection that waits for its turn. When this is dropped, the place is given up.
struct Waits<'a> {
    turns: &'a Turns,
    place: usize,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.turns.waiting.borrow_mut().remove(&self.place);
        self.turns.changed.notify();
    }
}

impl Turns {
    /// Keeps memory for what is not open yet from those who write to what is.
    fn promise(&self, core: &Core, bytes: u64) {
        self.promised.set(bytes);
        core.node().account.promise(bytes);
    }

    fn keep_less(&self, core: &Core, bytes: u64) {
        self.promise(core, self.promised.get().saturating_sub(bytes));
    }

    /// Waits until the collection at `place` of the catalog may be loaded.
    async fn begin(&self, core: &Core, place: usize, needed: u64) -> Turn<'_> {
        let fits = |needed| {
            if core.node().account.wants_look() {
                core.ctx.look_at_memory();
            }
            core.node().account.fits_opening(needed).is_ok()
        };
        self.wait(place, || self.running.get() == 0 || fits(self.needed.get().saturating_add(needed))).await;
        let is_alone = Cell::new(self.running.get() == 0 && !fits(needed));
        self.running.set(self.running.get() + 1);
        self.needed.set(self.needed.get() + needed);
        let turn = Turn { turns: self, place, needed, is_alone };
        self.changed.notify();
        turn
    }

    /// Waits until it may, and no collection that waits comes before it.
    async fn wait(&self, place: usize, may: impl Fn() -> bool) {
        self.waiting.borrow_mut().insert(place);
        let waits = Waits { turns: self, place };
        loop {
            let changed = self.changed.wait();
            let is_first = self.waiting.borrow().first() == Some(&place);
            if is_first && may() {
                break;
            }
            changed.await;
        }
        drop(waits);
    }
}

impl Turn<'_> {
    /// Waits until nothing else is being loaded, and keeps others from it.
    async fn alone(&mut self) {
        self.turns.running.set(self.turns.running.get() - 1);
        self.turns.needed.set(self.turns.needed.get() - self.needed);
        self.turns.changed.notify();
        self.turns.wait(self.place, || self.turns.running.get() == 0).await;
        self.turns.running.set(self.turns.running.get() + 1);
        // As much as there is: no other fits beside it.
        self.needed = u64::MAX / 2;
        self.turns.needed.set(self.turns.needed.get() + self.needed);
        self.is_alone.set(true);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Dropped while it waits to be alone, it has given up both already.
        self.turns.running.set(self.turns.running.get().saturating_sub(1));
        self.turns.needed.set(self.turns.needed.get().saturating_sub(self.needed));
        self.turns.changed.notify();
    }
}
