//! Queries over keys: those of an index, or all, in ascending order, page by page.
//!
//! Each core answers for its own keys with the first rows behind the cursor, and how far it has got; whoever asked merges. Rows are as they
//! are when they are looked at. A key that is there from the first page to the last is on one of them exactly once.

use super::indexes::State;
use crate::core::{Core, OpError};
use crate::env::call;
use crate::event::together;
use crate::owner::indexer::Slice;
use nigh_engine::kv::RecordFilter;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// Most bytes of keys and values in a page (interface).
pub const PAGE_BYTES_MAX: usize = 8 << 20;
/// What a row costs beside its key and value.
const ROW_BYTES: usize = 7;
/// Most keys that a query without an index looks at (interface).
pub const SCANNED_MAX: usize = 5_000_000;
/// Places in the order of values looked at in one piece, under a millisecond; where there are more, going through the keys soon finds enough.
const CANDIDATES_MAX: usize = 8_192;
/// Keys of an index looked at for one page, which then ends early: some tens of ms.
const LOOKED_AT_MAX: usize = 100_000;
/// Keys looked up between two looks at the clock.
const STEP_KEYS: usize = 64;
/// Bytes of a store read likewise.
const STEP_BYTES: usize = 32 << 10;

/// A query without an index that was not asked to do without.
const NEEDS_INDEX: &str = "filter needs an index or scan:true";

/// What a row has beside its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// Nothing.
    Keys,
    /// The value.
    Values,
    /// The value, and only keys with records are rows.
    Records,
}

/// A query over keys.
#[derive(Clone, Debug)]
pub struct KeyQuery {
    /// The index whose keys it is about; `None` = all keys.
    pub index: Option<String>,
    /// Looks at every key where no index helps.
    pub scans: bool,
    /// What the records of rows match.
    pub filter: Option<RecordFilter>,
    /// Rows have greater keys than this.
    pub after: Option<Vec<u8>>,
    /// Most rows of a page, at least 1.
    pub limit: usize,
    /// What rows have.
    pub returns: Returns,
}

/// A key that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// The key.
    pub key: Vec<u8>,
    /// Its value, if that was asked for and the page had room for it.
    pub value: Option<Vec<u8>>,
}

/// Rows, ascending by key.
#[derive(Debug, Default)]
pub struct KeyPage {
    /// In all at most [`PAGE_BYTES_MAX`].
    pub rows: Vec<KeyRow>,
    /// There may be more behind this key; `None`: that was all.
    pub reached: Option<Vec<u8>>,
    bytes: usize,
}

impl KeyPage {
    /// Adds a row, without its value where that does not fit; false when the key does not.
    fn push(&mut self, mut row: KeyRow) -> bool {
        let key_bytes = ROW_BYTES + row.key.len();
        if self.bytes + key_bytes > PAGE_BYTES_MAX {
            return false;
        }
        self.bytes += key_bytes;
        let left = PAGE_BYTES_MAX - self.bytes;
        row.value = row.value.filter(|value| value.len() <= left);
        self.bytes += row.value.as_ref().map_or(0, Vec::len);
        self.rows.push(row);
        true
    }

    /// The first rows of all parts, as far as all have got.
    fn merged(parts: Vec<KeyPage>, limit: usize) -> KeyPage {
        let bound = parts.iter().filter_map(|part| part.reached.clone()).min();
        let mut rows: Vec<KeyRow> = parts.into_iter().flat_map(|part| part.rows).collect();
        rows.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let mut page = KeyPage::default();
        for row in rows {
            let is_behind = bound.as_ref().is_some_and(|bound| row.key > *bound);
            if is_behind {
                break;
            }
            if page.rows.len() == limit || !page.push(row) {
                page.reached = page.rows.last().map(|row| row.key.clone());
                return page;
            }
        }
        page.reached = bound;
        page
    }
}

/// Where a core looks for rows.
enum Source {
    /// At these keys, which are all that can match.
    Candidates(Vec<Rc<[u8]>>),
    /// Through the keys of the index with this generation.
    Index(u64),
    /// Through everything.
    Store,
}

/// What became of a key that was looked at.
enum Looked {
    Gone,
    NoRow,
    Row(KeyRow),
}

impl Core {
    /// One page of a query. Other work goes on meanwhile; some 300 ns per key that is looked at, on each core for its own: those that
    /// can match by the index where these are few, else its keys in order. A query without an index looks at every key for each page.
    ///
    /// A page has fewer rows than the limit where that would take long or its bytes are used up; [`KeyPage::reached`] says where the next begins.
    ///
    /// # Errors
    /// No such index; one that is being built ([`OpError::Busy`]) or was given up ([`OpError::NoMemory`]); a filter of which the index knows
    /// nothing, or no index at all, without [`KeyQuery::scans`]; more than [`SCANNED_MAX`] keys to look at.
    pub async fn query_keys(self: &Rc<Self>, query: KeyQuery) -> Result<KeyPage, OpError> {
        let query = Arc::new(query);
        let asked = (0..self.env().cores()).map(|to| {
            let query = query.clone();
            call(self, to, move |there| async move { there.query_own_keys(&query).await })
        });
        let answers = together(asked.collect()).await;
        let parts: Result<Vec<KeyPage>, OpError> = answers.into_iter().map(|answer| answer?).collect();
        Ok(KeyPage::merged(parts?, query.limit))
    }

    async fn query_own_keys(self: &Rc<Self>, query: &KeyQuery) -> Result<KeyPage, OpError> {
        match self.source_of(query)? {
            Source::Candidates(candidates) => {
                let mut page = KeyPage::default();
                let mut slice = Slice::begin(self.env());
                for some in candidates.chunks(STEP_KEYS) {
                    if !self.look_at_own(query, some, &mut page) {
                        return Ok(page);
                    }
                    slice.check().await;
                }
                Ok(page)
            }
            Source::Index(generation) => self.walk_index(query, generation).await,
            Source::Store => self.scan_own_keys(query).await,
        }
    }

    fn source_of(&self, query: &KeyQuery) -> Result<Source, OpError> {
        let needs_index = || OpError::BadRequest(NEEDS_INDEX.to_owned());
        let Some(name) = &query.index else {
            return if query.scans { Ok(Source::Store) } else { Err(needs_index()) };
        };
        let mut indexes = self.keys().indexes.borrow_mut();
        let index = indexes.find(name).ok_or_else(|| OpError::UnknownKeyIndex(name.clone()))?;
        match index.state {
            State::Ready => {}
            State::Building => return Err(OpError::Busy(format!("index {name:?} is being built"))),
            State::TooLarge => {
                return Err(OpError::NoMemory(format!(
                    "index {name:?} was given up; define it again, with a longer prefix or after raising max_memory"
                )));
            }
        }
        let Some(filter) = &query.filter else { return Ok(Source::Index(index.generation)) };
        let Some(bounds) = filter.predicate().bounds_of(&index.definition.path) else {
            return if query.scans { Ok(Source::Index(index.generation)) } else { Err(needs_index()) };
        };
        Ok(match index.content.keys_within(&bounds, query.after.as_deref(), CANDIDATES_MAX) {
            Some(candidates) => Source::Candidates(candidates),
            None => Source::Index(index.generation),
        })
    }

    async fn walk_index(&self, query: &KeyQuery, generation: u64) -> Result<KeyPage, OpError> {
        let mut page = KeyPage::default();
        let mut slice = Slice::begin(self.env());
        let mut after: Option<Rc<[u8]>> = query.after.as_deref().map(Rc::from);
        for _ in 0..LOOKED_AT_MAX / STEP_KEYS {
            let some = match self.keys().indexes.borrow_mut().find_same(generation) {
                Some(index) if index.state == State::Ready => {
                    index.content.keys_after(after.as_deref(), STEP_KEYS)
                }
                _ => return Err(OpError::Busy("the index has been changed".to_owned())),
            };
            let Some(last) = some.last() else { return Ok(page) };
            if !self.look_at_own(query, &some, &mut page) {
                return Ok(page);
            }
            after = Some(last.clone());
            slice.check().await;
        }
        page.reached = after.as_deref().map(Vec::from);
        Ok(page)
    }

    async fn scan_own_keys(&self, query: &KeyQuery) -> Result<KeyPage, OpError> {
        let keys = self.keys();
        // One at a time: it is the work of many queries.
        let _held = keys.scan_lock.lock().await;
        let mut slice = Slice::begin(self.env());
        let mut first: BTreeSet<Rc<[u8]>> = BTreeSet::new();
        let mut left = SCANNED_MAX.div_ceil(self.env().cores());
        let own = keys.owned.borrow().len();
        for index in 0..own {
            let mut cursor = keys.owned.borrow()[index].writer.snapshot();
            let mut more = true;
            while more {
                let mut looked_at = 0;
                let now_ms = self.env().unix_ms();
                let mut look = |key: &[u8], value: &[u8], _deadline_ms| {
                    looked_at += 1;
                    let is_full = first.len() == query.limit;
                    if query.after.as_deref().is_some_and(|after| key <= after)
                        || is_full && first.last().is_some_and(|last| key >= &**last)
                        || query.filter.as_ref().is_some_and(|filter| !filter.matches(value))
                        || query.returns == Returns::Records && !is_record(value)
                    {
                        return;
                    }
                    if first.insert(key.into()) && is_full {
                        first.pop_last();
                    }
                };
                more = keys.owned.borrow_mut()[index].writer.snapshot_step(
                    &mut cursor,
                    now_ms,
                    STEP_BYTES,
                    &mut look,
                );
                left = left
                    .checked_sub(looked_at)
                    .ok_or_else(|| OpError::BadRequest("scan budget exceeded; use an index".to_owned()))?;
                slice.check().await;
                if self.is_stopping() {
                    return Err(OpError::Busy("the server is stopping".to_owned()));
                }
            }
        }
        let first: Vec<Rc<[u8]>> = first.into_iter().collect();
        let mut page = KeyPage::default();
        for some in first.chunks(STEP_KEYS) {
            if !self.look_at_own(query, some, &mut page) {
                return Ok(page);
            }
            slice.check().await;
        }
        // What has changed since may leave the page short, and what lies behind is not known.
        page.reached = first.last().filter(|_| first.len() == query.limit).map(|last| last.to_vec());
        Ok(page)
    }

    /// Adds rows of keys of this core's, which come in ascending order; false when the page ends with them, which then says where.
    fn look_at_own(&self, query: &KeyQuery, some: &[Rc<[u8]>], page: &mut KeyPage) -> bool {
        self.keys().prefetch(some.iter().map(|key| &**key));
        let mut value = Vec::new();
        for (at, key) in some.iter().enumerate() {
            value.clear();
            let row = match self.look_up_own(query, key, &mut value) {
                Looked::Row(row) => row,
                Looked::NoRow => continue,
                Looked::Gone => {
                    self.keys().indexes.borrow_mut().forget(key);
                    continue;
                }
            };
            if !page.push(row) {
                page.reached = match at.checked_sub(1) {
                    Some(before) => Some(some[before].to_vec()),
                    None => page.rows.last().map(|row| row.key.clone()),
                };
                return false;
            }
            if page.rows.len() == query.limit {
                page.reached = Some(key.to_vec());
                return false;
            }
        }
        true
    }

    /// `value` is empty, and room.
    fn look_up_own(&self, query: &KeyQuery, key: &[u8], value: &mut Vec<u8>) -> Looked {
        let (keys, now_ms) = (self.keys(), self.env().unix_ms());
        let place = keys.place_of(key);
        let found = if query.filter.is_none() && query.returns == Returns::Keys {
            keys.exists(&keys.pin(), place, key, now_ms)
        } else {
            keys.owned.borrow_mut()[place.shard / keys.shared.cores].writer.peek(key, now_ms, value).is_some()
        };
        if !found {
            return Looked::Gone;
        }
        let is_row = match (&query.filter, query.returns) {
            (Some(filter), _) => filter.matches(value),
            (None, Returns::Records) => is_record(value),
            (None, _) => true,
        };
        if !is_row {
            return Looked::NoRow;
        }
        let value = (query.returns != Returns::Keys).then(|| std::mem::take(value));
        Looked::Row(KeyRow { key: key.to_vec(), value })
    }
}

fn is_record(value: &[u8]) -> bool {
    nigh_engine::kv::operate::StoredRecord::of(value).is_some_and(|record| record.fields().is_some())
}
