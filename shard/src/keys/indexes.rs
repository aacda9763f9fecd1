//! Indexes of keys: defined on core 0, kept by each core for the keys it owns, built and tidied in the background.
//!
//! A change of a key tells the indexes at once. What expires or is evicted stays listed until a query or the background meets it.

use super::index_file;
use crate::core::{Core, OpError};
use crate::env::call_own;
use crate::event::together;
use crate::owner::indexer::Slice;
use nigh_engine::kv::operate::FieldPath;
use nigh_engine::kv::{Effect, KeyIndex};
use std::rc::Rc;

/// Most indexes of a node (interface).
pub const INDEXES_MAX: usize = 64;
/// Part of the budget of keys that indexes may take, and the store then does not.
pub(super) const BUDGET_PART: u64 = 4;
/// Bytes of a store read between two looks at the clock.
const BUILD_STEP_BYTES: usize = 32 << 10;
/// Between two looks for what has to be done, microseconds.
const LOOK_US: u64 = 100_000;
/// Keys looked up between two looks at the clock, and at most per index in one look for things to do: some ms.
const TIDY_STEP: usize = 64;
const TIDY_KEYS: usize = 8192;

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
        let refuse = |what: String| Err(OpError::BadRequest(format!("index {:?}: {what}", self.name)));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
        if !(1..=64).contains(&self.name.len()) || !self.name.bytes().all(is_name) {
            return refuse("a name is 1 to 64 of A-Z a-z 0-9 _ . : -".to_owned());
        }
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
    generations: u64,
    bytes_max: usize,
}

impl Indexes {
    /// None, of which all together may take so many bytes on this core.
    pub fn new(bytes_max: usize) -> Indexes {
        Indexes { list: Vec::new(), generations: 0, bytes_max }
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

    /// About how many bytes they take.
    pub fn bytes(&self) -> usize {
        self.list.iter().map(|index| index.content.bytes()).sum()
    }

    /// Follows a change of a key of this core's. Keys that a flush removes are found to be gone later.
    pub fn follow(&mut self, effect: &Effect<'_>) {
        match effect {
            Effect::Set { key, value, .. } => {
                (0..self.list.len()).for_each(|at| self.note(at, key, value));
            }
            Effect::Delete { key } => self.forget(key),
            Effect::Deadline { .. } | Effect::Flush => {}
        }
    }

    /// Takes out a key that was found to be gone.
    pub fn forget(&mut self, key: &[u8]) {
        self.list.iter_mut().for_each(|index| index.content.forget(key));
    }

    fn note(&mut self, at: usize, key: &[u8], value: &[u8]) {
        let index = &mut self.list[at];
        if index.state == State::TooLarge || !index.content.covers(key) {
            return;
        }
        index.content.note(key, value);
        if self.bytes() > self.bytes_max {
            let index = &mut self.list[at];
            tracing::warn!(
                index = index.definition.name,
                most = self.bytes_max,
                "an index of keys does not fit into the memory of its core and is given up"
            );
            index.state = State::TooLarge;
            index.content = index.definition.empty();
        }
    }

    /// Makes these the indexes. Those that were defined like this before stay as they are, unless they were given up.
    fn define(&mut self, definitions: &[IndexDefinition]) {
        let mut before = std::mem::take(&mut self.list);
        for definition in definitions {
            let same = |index: &Index| index.definition == *definition && index.state != State::TooLarge;
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
    }

    fn definitions(&self) -> Vec<IndexDefinition> {
        self.list.iter().map(|index| index.definition.clone()).collect()
    }
}

impl IndexDefinition {
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
        definition.check()?;
        call_own(self, 0, move |there| async move { there.define_on_core_0(definition, enabled).await }).await
    }

    async fn define_on_core_0(
        self: &Rc<Self>,
        definition: IndexDefinition,
        enabled: bool,
    ) -> Result<(), OpError> {
        let _held = self.keys().indexes_lock.lock().await;
        let before = self.keys().indexes.borrow().definitions();
        let mut list = before.clone();
        list.retain(|index| index.name != definition.name);
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
            let replaced = disk.replace(&index_file::path(), &index_file::encode(&list)).await;
            replaced.map_err(|error| crate::core::admin::io_error(&error))?;
        }
        self.spread_key_indexes(list).await;
        Ok(())
    }

    async fn spread_key_indexes(self: &Rc<Self>, list: Vec<IndexDefinition>) {
        for to in 0..self.env().cores() {
            let list = list.clone();
            call_own(self, to, move |there| async move { there.keys().indexes.borrow_mut().define(&list) })
                .await;
        }
    }

    /// On core 0 once stores are open: makes the indexes that the disk names.
    pub(super) async fn open_key_indexes(self: &Rc<Self>) -> Result<(), String> {
        let Some(disk) = self.env().disk().filter(|_| self.options().keys.query) else { return Ok(()) };
        let list = index_file::read(&*disk).await?;
        self.spread_key_indexes(list).await;
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

/// Builds and tidies this core's parts of indexes.
pub async fn keep(core: Rc<Core>) {
    let env = core.env().clone();
    while !core.is_stopping() {
        let unfinished = core
            .keys()
            .indexes
            .borrow()
            .list
            .iter()
            .find(|index| index.state == State::Building)
            .map(|index| index.generation);
        match unfinished {
            Some(generation) => build(&core, generation).await,
            None => {
                tidy(&core).await;
                env.sleep_us(LOOK_US).await;
            }
        }
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
                let building =
                    |index: &Index| index.generation == generation && index.state == State::Building;
                let Some(at) = indexes.list.iter().position(building) else { return };
                let now_ms = core.env().unix_ms();
                keys.owned.borrow_mut()[index].writer.snapshot_step(
                    &mut cursor,
                    now_ms,
                    BUILD_STEP_BYTES,
                    |key, value, _| indexes.note(at, key, value),
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
        tracing::info!(
            index = index.definition.name,
            keys = index.content.len(),
            "an index of keys is built"
        );
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
                let (pin, now_ms) = (keys.pin(), core.env().unix_ms());
                for key in some.iter().filter(|key| !keys.exists(&pin, keys.place_of(key), key, now_ms)) {
                    index.content.forget(key);
                }
                if index.tidied.is_none() {
                    break;
                }
            }
            slice.check().await;
        }
    }
}
