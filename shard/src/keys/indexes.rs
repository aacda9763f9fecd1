//! Indexes of keys: defined on core 0, kept by each core for the keys it owns, built and tidied in the background.
//!
//! A change of a key tells the indexes at once, and so does eviction. What expires stays listed until a query or the background finds that
//! the store has it no more.

use super::index_file;
use crate::core::{Core, OpError};
use crate::env::call_own;
use crate::event::together;
use crate::owner::indexer::Slice;
use crate::sealed_json::Unreadable;
use crate::twin::{self, TwinError};
use futures_lite::future::or;
use nigh_engine::kv::operate::{FieldPath, StoredRecord};
use nigh_engine::kv::{Effect, KeyIndex, Rank};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Most indexes of a node (interface).
pub const INDEXES_MAX: usize = 64;
/// Part of the budget of keys that indexes may take, and the store then does not.
pub(super) const BUDGET_PART: u64 = 4;
/// Bytes of a store read between two looks at the clock: some forty small entries, each of which costs searches in two trees.
const BUILD_STEP_BYTES: usize = 4 << 10;
/// Between two looks for what has to be done, microseconds.
const LOOK_US: u64 = 100_000;
/// Keys looked up between two looks at the clock, and at most per index in one look for things to do: some ms.
const TIDY_STEP: usize = 64;
const TIDY_KEYS: usize = 8192;
/// Keys of what is not used any more taken down between two looks at the clock.
const RUIN_STEP: usize = 256;

/// What an index of keys is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDefinition {
    /// 1 to 64 of `A-Z a-z 0-9 _ . : -`.
    pub name: String,
    /// What the keys begin with, up to 255 bytes; empty = all keys.
    pub prefix: Vec<u8>,
    /// Where in their records the value lies; see [`FieldPath`]. Up to 255 bytes.
    pub path: String,
    /// It is a number of rows, and the path ends in `#count`.
    pub is_count: bool,
}

impl IndexDefinition {
    /// Checks names, lengths and the path.
    ///
    /// # Errors
    /// What is wrong, as a bad request.
    pub fn check(&self) -> Result<FieldPath, OpError> {
        let refuse = |what: String| Err(self.refused(&what));
        self.check_name()?;
        if self.prefix.len() > 255 || self.path.len() > 255 {
            return refuse("prefix and path have at most 255 bytes".to_owned());
        }
        match FieldPath::parse(&self.path) {
            Err(why) => refuse(format!("path {:?} is {why}", self.path)),
            Ok(path) if path.is_column() => {
                refuse("its path leads to a column, and must lead to a field".to_owned())
            }
            Ok(path) if path.is_count() != self.is_count => {
                refuse("kind 1, and no other, has a path that ends in #count".to_owned())
            }
            Ok(path) => Ok(path),
        }
    }
}

/// What a core's part of an index is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It does not have all keys yet.
    Building,
    /// It has all keys.
    Ready,
    /// It has none: they took more than the core's share of memory.
    TooLarge,
}

/// A core's part of an index.
pub(super) struct Index {
    pub definition: IndexDefinition,
    /// Another one after each definition, so that whoever comes back to it knows whether it is the same.
    pub generation: u64,
    pub state: State,
    pub content: KeyIndex,
    /// Keys that went unnoticed, as the store had counted when the round of tidying that is under way, or the last one, began.
    gone: u64,
    /// The last key that round has looked at.
    tidied: Option<Rc<[u8]>>,
}

/// A core's part of all indexes.
pub(super) struct Indexes {
    list: Vec<Index>,
    /// What is not used any more and not taken down yet.
    ruins: Vec<KeyIndex>,
    generations: u64,
    bytes_max: usize,
}

impl Indexes {
    /// None.
    pub fn new() -> Indexes {
        Indexes { list: Vec::new(), ruins: Vec::new(), generations: 0, bytes_max: 0 }
    }

    /// All together may take so many bytes on this core.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// The index of that name.
    pub fn find(&mut self, name: &str) -> Option<&mut Index> {
        self.list.iter_mut().find(|index| index.definition.name == name)
    }

    /// The index, if it has not been defined anew since.
    pub fn find_same(&mut self, generation: u64) -> Option<&mut Index> {
        self.list.iter_mut().find(|index| index.generation == generation)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Keys filed in all of them.
    pub fn keys(&self) -> usize {
        self.list.iter().map(|index| index.content.len()).sum()
    }

    /// About how many bytes they take, those that are being taken down included.
    pub fn bytes(&self) -> usize {
        self.used_bytes() + self.ruins.iter().map(KeyIndex::bytes).sum::<usize>()
    }

    fn used_bytes(&self) -> usize {
        self.list.iter().map(|index| index.content.bytes()).sum()
    }

    /// How many were given up.
    pub fn given_up(&self) -> usize {
        self.list.iter().filter(|index| index.state == State::TooLarge).count()
    }

    /// Follows a change of a key of this core's, or a flush of one of its stores: then indexes are built anew, which is short.
    pub fn follow(&mut self, effect: &Effect<'_>) {
        match effect {
            Effect::Set { key, value, .. } => self.note(key, value, |_| true),
            Effect::Delete { key } => self.forget(key),
            Effect::Flush => (0..self.list.len()).for_each(|at| self.begin(at)),
            Effect::Deadline { .. } => {}
        }
    }

    /// Takes out a key that is gone.
    pub fn forget(&mut self, key: &[u8]) {
        self.list.iter_mut().for_each(|index| index.content.forget(key));
    }

    /// Files a key that has this value in those of the indexes that cover it. The record is read once.
    fn note(&mut self, key: &[u8], value: &[u8], wanted: impl Fn(&Index) -> bool) {
        let is_filed =
            |index: &&Index| index.state != State::TooLarge && index.content.covers(key) && wanted(index);
        if !self.list.iter().any(|index| is_filed(&index)) {
            return;
        }
        let mut ranks: Vec<(u64, Option<Rank>)> = Vec::new();
        {
            let list = &self.list;
            let record = StoredRecord::of(value);
            let fields = record.as_ref().and_then(StoredRecord::fields);
            for index in list.iter().filter(is_filed) {
                ranks.push((index.generation, index.content.rank_of(fields.as_ref())));
            }
        }
        for (generation, rank) in ranks {
            if let Some(index) = self.find_same(generation) {
                index.content.file(key, rank);
            }
        }
        while self.used_bytes() > self.bytes_max && self.give_up() {}
    }

    /// Gives one index up: the newest that is being built, or the largest.
    fn give_up(&mut self) -> bool {
        let rank = |index: &Index| match index.state {
            State::Building => (1, index.generation as usize),
            State::Ready => (0, index.content.bytes()),
            State::TooLarge => unreachable!("filtered out"),
        };
        let kept = self.list.iter_mut().filter(|index| index.state != State::TooLarge);
        let Some(index) = kept.max_by_key(|index| rank(index)) else { return false };
        tracing::warn!(
            index = index.definition.name,
            most = self.bytes_max,
            "indexes of keys do not fit into this core's part of a quarter of max_memory: one is given up"
        );
        index.state = State::TooLarge;
        let content = std::mem::replace(&mut index.content, index.definition.empty());
        self.ruins.push(content);
        true
    }

    /// Begins an index anew.
    fn begin(&mut self, at: usize) {
        self.generations += 1;
        let index = &mut self.list[at];
        (index.generation, index.state, index.tidied) = (self.generations, State::Building, None);
        if !index.content.is_empty() {
            let content = std::mem::replace(&mut index.content, index.definition.empty());
            self.ruins.push(content);
        }
    }

    /// Makes these the indexes. Those that were defined like this before stay as they are; if the one called `set` was given up, it is
    /// tried again.
    fn define(&mut self, definitions: &[IndexDefinition], set: Option<&str>) {
        let mut before = std::mem::take(&mut self.list);
        for definition in definitions {
            let is_tried_again =
                |index: &Index| index.state == State::TooLarge && set == Some(definition.name.as_str());
            let same = |index: &Index| index.definition == *definition && !is_tried_again(index);
            let index = match before.iter().position(same) {
                Some(at) => before.swap_remove(at),
                None => {
                    self.generations += 1;
                    Index {
                        definition: definition.clone(),
                        generation: self.generations,
                        state: State::Building,
                        content: definition.empty(),
                        gone: 0,
                        tidied: None,
                    }
                }
            };
            self.list.push(index);
        }
        self.ruins.extend(before.into_iter().map(|index| index.content));
    }

    fn definitions(&self) -> Vec<IndexDefinition> {
        self.list.iter().map(|index| index.definition.clone()).collect()
    }
}

impl IndexDefinition {
    fn check_name(&self) -> Result<(), OpError> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
        match (1..=64).contains(&self.name.len()) && self.name.bytes().all(is_name) {
            true => Ok(()),
            false => Err(self.refused("a name is 1 to 64 of A-Z a-z 0-9 _ . : -")),
        }
    }

    fn refused(&self, what: &str) -> OpError {
        OpError::BadRequest(format!("index {:?}: {what}", self.name))
    }

    fn empty(&self) -> KeyIndex {
        KeyIndex::new(&self.prefix, self.check().expect("checked before it was defined"))
    }
}

impl Core {
    /// Defines an index of keys, in place of one of the same name; or drops it, if it is there. Durable on return; a new one is built in the
    /// background.
    ///
    /// # Errors
    /// What [`IndexDefinition::check`] refuses; more than [`INDEXES_MAX`]; file errors.
    pub async fn define_key_index(
        self: &Rc<Self>,
        definition: IndexDefinition,
        enabled: bool,
    ) -> Result<(), OpError> {
        match enabled {
            true => drop(definition.check()?),
            false => definition.check_name()?,
        }
        self.keys().healthy()?;
        call_own(self, 0, move |there| async move { there.define_on_core_0(definition, enabled).await }).await
    }

    async fn define_on_core_0(
        self: &Rc<Self>,
        definition: IndexDefinition,
        enabled: bool,
    ) -> Result<(), OpError> {
        let _held = self.keys().indexes_lock.lock().await;
        let before = self.keys().indexes.borrow().definitions();
        let (mut list, name) = (before.clone(), definition.name.clone());
        list.retain(|index| index.name != name);
        if enabled {
            if list.len() == INDEXES_MAX {
                return Err(OpError::BadRequest(format!(
                    "there are {INDEXES_MAX} indexes, and no more can be"
                )));
            }
            list.push(definition);
            list.sort_by(|a, b| a.name.cmp(&b.name));
        }
        if list != before
            && let Some(disk) = self.env().disk()
        {
            let replaced = twin::replace(&*disk, &index_file::path(), &index_file::encode(&list)).await;
            replaced.map_err(|error| crate::core::io_error(&error))?;
        }
        self.spread_key_indexes(list, Some(name)).await;
        Ok(())
    }

    async fn spread_key_indexes(self: &Rc<Self>, list: Vec<IndexDefinition>, set: Option<String>) {
        for to in 0..self.env().cores() {
            let (list, set) = (list.clone(), set.clone());
            call_own(self, to, move |there| async move {
                there.keys().indexes.borrow_mut().define(&list, set.as_deref());
                there.keys().index_work.notify();
            })
            .await;
        }
    }

    /// On core 0 once stores are open: makes the indexes that the disk names.
    pub(super) async fn open_key_indexes(self: &Rc<Self>) -> Result<(), String> {
        let Some(disk) = self.env().disk().filter(|_| self.options().keys.query) else { return Ok(()) };
        let list = match index_file::read(&*disk).await {
            Ok(list) => list,
            Err(TwinError::Bad(why @ Unreadable::Newer(_))) => {
                return Err(format!("{}: {why}", index_file::path().display()));
            }
            Err(TwinError::Bad(why)) if self.keys().shared.is_accepted.load(Relaxed) => {
                tracing::warn!(%why, "the damage of the indexes of keys was accepted: there are none now");
                let removed = index_file::remove(&*disk).await;
                removed.map_err(|error| format!("{}: {error}", index_file::path().display()))?;
                Vec::new()
            }
            // The next change would replace what may yet be rescued.
            Err(why) => {
                self.damage_keys(format!("{}: {why}", index_file::path().display()));
                return Ok(());
            }
        };
        self.spread_key_indexes(list, None).await;
        Ok(())
    }

    /// The indexes by name, and whether queries can use them already.
    pub async fn key_indexes(self: &Rc<Self>) -> Vec<(IndexDefinition, bool)> {
        let own = |there: Rc<Core>| {
            let indexes = there.keys().indexes.borrow();
            let state = |index: &Index| (index.definition.clone(), index.state == State::Ready);
            indexes.list.iter().map(state).collect::<Vec<_>>()
        };
        let asked =
            (0..self.env().cores()).map(|to| call_own(self, to, move |there| async move { own(there) }));
        let parts = together(asked.collect()).await;
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        // One that is being defined may be on some cores only.
        for part in parts {
            for (definition, ready) in &mut all {
                *ready &= part.iter().any(|(other, is_ready)| other == definition && *is_ready);
            }
        }
        all
    }
}

/// Builds and tidies this core's parts of indexes, and takes down what is not used any more.
pub async fn keep(core: Rc<Core>) {
    let keys = core.keys();
    while !core.is_stopping() {
        let more = keys.index_work.wait();
        take_down(&core).await;
        let unbuilt = {
            let indexes = keys.indexes.borrow();
            let unbuilt = indexes.list.iter().find(|index| index.state == State::Building);
            unbuilt.map(|index| index.generation)
        };
        match unbuilt {
            Some(generation) => build(&core, generation).await,
            None => {
                tidy(&core).await;
                or(more, core.pause(LOOK_US)).await;
            }
        }
    }
}

async fn take_down(core: &Rc<Core>) {
    let keys = core.keys();
    let mut slice = Slice::begin(core.env());
    loop {
        // In its place meanwhile, so that its bytes are seen.
        let more = {
            let ruins = &mut keys.indexes.borrow_mut().ruins;
            let Some(ruin) = ruins.last_mut() else { return };
            ruin.take_down(RUIN_STEP)
        };
        if !more {
            // Others may have come behind it.
            keys.indexes.borrow_mut().ruins.retain(|ruin| !ruin.is_empty());
        }
        slice.check().await;
    }
}

/// Files all keys that are there; those that are written meanwhile are filed as they are written.
async fn build(core: &Rc<Core>, generation: u64) {
    let keys = core.keys();
    let mut slice = Slice::begin(core.env());
    let own = keys.owned.borrow().len();
    for index in 0..own {
        let mut cursor = keys.owned.borrow()[index].writer.snapshot();
        let mut more = true;
        while more {
            more = {
                let indexes = &mut *keys.indexes.borrow_mut();
                match indexes.find_same(generation) {
                    Some(index) if index.state == State::Building => {}
                    _ => return,
                }
                // Expired ones as well, as long as they are there: a clock may be set back.
                keys.owned.borrow_mut()[index].writer.snapshot_step(
                    &mut cursor,
                    0,
                    BUILD_STEP_BYTES,
                    |key, value, _| indexes.note(key, value, |index| index.generation == generation),
                )
            };
            slice.check().await;
            if core.is_stopping() {
                return;
            }
        }
    }
    if let Some(index) = keys.indexes.borrow_mut().find_same(generation)
        && index.state == State::Building
    {
        index.state = State::Ready;
        let (name, len) = (&index.definition.name, index.content.len());
        tracing::info!(index = name, keys = len, "an index of keys is built");
    }
}

/// Takes out keys that have gone without a word, if any have.
async fn tidy(core: &Rc<Core>) {
    let keys = core.keys();
    let gone = keys.gone_unnoticed();
    let mut slice = Slice::begin(core.env());
    let generations: Vec<u64> = keys.indexes.borrow().list.iter().map(|index| index.generation).collect();
    for generation in generations {
        for _ in 0..TIDY_KEYS / TIDY_STEP {
            {
                let mut indexes = keys.indexes.borrow_mut();
                let Some(index) = indexes.find_same(generation) else { break };
                if index.tidied.is_none() {
                    if index.gone == gone {
                        break;
                    }
                    index.gone = gone;
                }
                let some = index.content.keys_after(index.tidied.as_deref(), TIDY_STEP);
                index.tidied = some.last().cloned();
                keys.prefetch(some.iter().map(|key| &**key));
                some.iter().filter(|key| !keys.is_stored(key)).for_each(|key| index.content.forget(key));
                if index.tidied.is_none() {
                    break;
                }
            }
            slice.check().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    fn index(name: &str, prefix: &[u8]) -> IndexDefinition {
        IndexDefinition { name: name.into(), prefix: prefix.into(), path: "n".into(), is_count: false }
    }

    fn put(indexes: &mut Indexes, key: String) {
        // A record with an unsigned byte `n`.
        let value = Cow::Borrowed(&[2, 1, 1, b'n', 0, 7][..]);
        indexes.follow(&Effect::Set { key: key.as_bytes(), value, deadline_ms: 0 });
    }

    fn states(indexes: &Indexes) -> Vec<(&str, State, usize)> {
        let state = |index: &'_ Index| (index.state, index.content.len());
        indexes
            .list
            .iter()
            .map(|index| (&index.definition.name[..], state(index).0, state(index).1))
            .collect()
    }

    #[test]
    fn the_newest_that_is_being_built_or_the_largest_is_given_up() {
        let mut indexes = Indexes::new();
        indexes.set_bytes_max(20_000);
        let [small, large, all] = [index("small", b"s"), index("large", b"l"), index("all", b"")];
        indexes.define(&[large.clone(), small.clone()], Some("small"));
        (0..10).for_each(|n| put(&mut indexes, format!("s{n}")));
        (0..40).for_each(|n| put(&mut indexes, format!("l{n}")));
        indexes.list.iter_mut().for_each(|index| index.state = State::Ready);
        assert_eq!(states(&indexes), [("large", State::Ready, 40), ("small", State::Ready, 10)]);

        // One that is being built pushes no other out.
        indexes.define(&[all.clone(), large.clone(), small.clone()], Some("all"));
        (0..60).for_each(|n| put(&mut indexes, format!("s{n}")));
        let (gone, there) = (State::TooLarge, State::Ready);
        assert_eq!(states(&indexes), [("all", gone, 0), ("large", there, 40), ("small", there, 60)][..]);
        // Among those that are built the largest goes, whichever grows.
        put(&mut indexes, "l40".to_owned());
        (60..70).for_each(|n| put(&mut indexes, format!("s{n}")));
        assert_eq!(states(&indexes), [("all", gone, 0), ("large", there, 41), ("small", gone, 0)]);
        assert_eq!((indexes.given_up(), indexes.keys()), (2, 41));

        // What is set again is tried again, nothing else.
        indexes.define(&[all.clone(), large.clone(), small.clone()], Some("small"));
        let again = State::Building;
        assert_eq!(states(&indexes), [("all", gone, 0), ("large", there, 41), ("small", again, 0)]);
        indexes.define(&[large, small], Some("all"));
        assert_eq!(states(&indexes), [("large", there, 41), ("small", again, 0)]);

        // A flush begins all anew; what was there is taken down.
        indexes.follow(&Effect::Flush);
        assert_eq!(states(&indexes), [("large", again, 0), ("small", again, 0)]);
        assert!(indexes.bytes() > 0);
        for ruin in &mut indexes.ruins {
            while ruin.take_down(7) {}
        }
        assert_eq!(indexes.bytes(), 0);
    }
}
