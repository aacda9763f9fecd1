//! Indexes of keys as a node keeps them: defined on core 0, built, tidied and taken down by the owners of the keys.

use super::index_file;
use super::indexes::{INDEXES_MAX, Index, IndexDefinition, IndexState};
use super::store::Keys;
use crate::env::call_own;
use crate::error::OpError;
use crate::event::together;
use crate::sealed_json::Unreadable;
use crate::slice::Slice;
use crate::twin::{self, TwinError};
use futures_lite::future::or;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a store read between two looks at the clock: some forty small entries, each of which costs searches in two trees.
const BUILD_STEP_BYTES: usize = 4 << 10;
/// Between two looks for what has to be done, microseconds.
const LOOK_US: u64 = 100_000;
/// Keys looked up between two looks at the clock, and at most per index in one look for things to do: some ms.
const TIDY_STEP: usize = 64;
const TIDY_KEYS: usize = 8192;
/// Keys of what is not used any more taken down between two looks at the clock.
const RUIN_STEP: usize = 256;

impl Keys {
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
        self.healthy()?;
        call_own(self, 0, move |there| async move { there.define_on_core_0(definition, enabled).await }).await
    }

    async fn define_on_core_0(
        self: &Rc<Self>,
        definition: IndexDefinition,
        enabled: bool,
    ) -> Result<(), OpError> {
        let _held = self.indexes_lock.lock().await;
        let before = self.indexes.borrow().definitions();
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
            && let Some(disk) = self.ctx.env().disk()
        {
            let file = index_file::encode(&list);
            let replaced = twin::replace(&*disk, &index_file::path(), &file).await;
            replaced.map_err(|error| crate::error::io_error(&error))?;
            self.ctx.log_key_indexes(&file).await;
        }
        self.spread_key_indexes(list, Some(name)).await;
        Ok(())
    }

    /// On core 0: what the indexes are, as clients have defined them.
    pub(crate) fn key_index_definitions(&self) -> Vec<IndexDefinition> {
        self.indexes.borrow().definitions()
    }

    /// On core 0: makes these the indexes. Durable on return; those that were defined otherwise before are built in the background.
    ///
    /// # Errors
    /// A definition that [`IndexDefinition::check`] refuses; more than [`INDEXES_MAX`]; file errors. Nothing has changed then.
    pub(crate) async fn replace_key_indexes(
        self: &Rc<Self>,
        list: Vec<IndexDefinition>,
    ) -> Result<(), OpError> {
        self.healthy()?;
        if list.len() > INDEXES_MAX {
            let found = list.len();
            return Err(OpError::BadRequest(format!("{found} indexes are too many; {INDEXES_MAX} can be")));
        }
        list.iter().try_for_each(|definition| definition.check().map(drop))?;
        let _held = self.indexes_lock.lock().await;
        if let Some(disk) = self.ctx.env().disk() {
            let file = index_file::encode(&list);
            let replaced = twin::replace(&*disk, &index_file::path(), &file).await;
            replaced.map_err(|error| crate::error::io_error(&error))?;
            self.ctx.log_key_indexes(&file).await;
        }
        self.spread_key_indexes(list, None).await;
        Ok(())
    }

    async fn spread_key_indexes(self: &Rc<Self>, list: Vec<IndexDefinition>, set: Option<String>) {
        for to in 0..self.ctx.env().cores() {
            let (list, set) = (list.clone(), set.clone());
            call_own(self, to, move |there| async move {
                there.indexes.borrow_mut().define(&list, set.as_deref());
                there.index_work.notify();
            })
            .await;
        }
    }

    /// On core 0 once stores are open: makes the indexes that the disk names.
    pub(super) async fn open_key_indexes(self: &Rc<Self>) -> Result<(), String> {
        let Some(disk) = self.ctx.env().disk().filter(|_| self.ctx.options().keys.query) else {
            return Ok(());
        };
        let list = match index_file::read(&*disk).await {
            Ok(list) => list,
            Err(TwinError::Bad(why @ Unreadable::Newer { .. })) => {
                return Err(format!("{}: {why}", index_file::path().display()));
            }
            Err(TwinError::Bad(why)) if self.shared.is_accepted.load(Relaxed) => {
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
        let own = |there: Rc<Keys>| {
            let indexes = there.indexes.borrow();
            let state = |index: &Index| (index.definition.clone(), index.state == IndexState::Ready);
            indexes.list.iter().map(state).collect::<Vec<_>>()
        };
        let asked =
            (0..self.ctx.env().cores()).map(|to| call_own(self, to, move |there| async move { own(there) }));
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
pub async fn keep(kv: Rc<Keys>) {
    let keys = &*kv;
    while !kv.ctx.is_stopping() {
        let more = keys.index_work.wait();
        take_down(&kv).await;
        let unbuilt = {
            let indexes = keys.indexes.borrow();
            let unbuilt = indexes.list.iter().find(|index| index.state == IndexState::Building);
            unbuilt.map(|index| index.generation)
        };
        match unbuilt {
            Some(generation) => build(&kv, generation).await,
            None => {
                tidy(&kv).await;
                or(more, kv.ctx.pause(LOOK_US)).await;
            }
        }
    }
}

async fn take_down(kv: &Rc<Keys>) {
    let keys = kv;
    let mut slice = Slice::begin(kv.ctx.env());
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
async fn build(kv: &Rc<Keys>, generation: u64) {
    let keys = kv;
    let mut slice = Slice::begin(kv.ctx.env());
    let own = keys.owned.borrow().len();
    for index in 0..own {
        let mut cursor = keys.owned.borrow()[index].writer.snapshot();
        let mut more = true;
        while more {
            more = {
                let indexes = &mut *keys.indexes.borrow_mut();
                match indexes.find_same(generation) {
                    Some(index) if index.state == IndexState::Building => {}
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
            if kv.ctx.is_stopping() {
                return;
            }
        }
    }
    if let Some(index) = keys.indexes.borrow_mut().find_same(generation)
        && index.state == IndexState::Building
    {
        index.state = IndexState::Ready;
        let (name, len) = (&index.definition.name, index.content.len());
        tracing::info!(index = name, keys = len, "an index of keys is built");
    }
}

/// Takes out keys that have gone without a word, if any have.
async fn tidy(kv: &Rc<Keys>) {
    let keys = kv;
    let gone = keys.gone_unnoticed();
    let mut slice = Slice::begin(kv.ctx.env());
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
