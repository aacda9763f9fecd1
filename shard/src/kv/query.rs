//! Queries over keys: those of an index, or all, in ascending order, page by page.
//!
//! Each core answers for its own keys with the first rows behind the cursor, and how far it has got; whoever asked merges these and reads
//! the values. Rows are as they are when they are looked at. A key that is there from the first page to the last is on one of them exactly once.

use super::indexes::{IndexDefinition, IndexState};
use super::store::Keys;
use crate::env::call;
use crate::error::OpError;
use crate::event::together;
use crate::question::Asked;
use crate::slice::Slice;
use nigh_engine::filter::Allowance;
use nigh_engine::kv::RecordFilter;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Most bytes of rows in a page: what the interface allows for the whole, less the longest cursor.
pub const PAGE_BYTES_MAX: usize = (8 << 20) - (65 << 10);
/// What a row costs beside its key and value.
const ROW_BYTES: usize = 7;
/// Most keys that a query without an index looks at (interface).
pub const SCANNED_MAX: usize = 5_000_000;
/// Queries without an index that connections of one core have under way or waiting.
pub const SCANS_MAX: usize = 16;
/// Places in the order of values looked at in one piece, a millisecond at most; where there are more, going through the keys soon finds enough.
const CANDIDATES_MAX: usize = 8_192;
/// Keys of an index looked at for one page, which then ends early: some tens of ms.
const LOOKED_AT_MAX: usize = 100_000;
/// Keys that are taken from an index together.
const STEP_KEYS: usize = 64;
/// Bytes of a store read between two looks at the clock, where the filter is cheap.
const STEP_BYTES: usize = 16 << 10;
/// Steps of 100 ns between two looks at the clock: what a key costs without a filter, and a KiB of a value that has to be looked into.
const STEPS: usize = 500;
const KEY_STEPS: usize = 3;

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
    /// Bytes that a row's key and value may still have.
    fn left(&self) -> usize {
        (PAGE_BYTES_MAX - self.bytes).saturating_sub(ROW_BYTES)
    }

    /// Whether nothing can be added that has so many bytes; the first row always can, without its value if need be.
    fn is_full_for(&self, bytes: usize) -> bool {
        !self.rows.is_empty() && bytes > self.left()
    }

    fn push(&mut self, mut row: KeyRow) {
        let left = self.left().saturating_sub(row.key.len());
        row.value = row.value.filter(|value| value.len() <= left);
        self.bytes += ROW_BYTES + row.key.len() + row.value.as_ref().map_or(0, Vec::len);
        self.rows.push(row);
    }
}

type Key = Box<[u8]>;

/// What one core has found.
#[derive(Debug, Default)]
struct Part {
    /// The index that was looked through.
    index: Option<IndexDefinition>,
    /// Ascending, at most the limit.
    keys: Vec<Key>,
    /// Bytes of them.
    bytes: usize,
    /// There may be more behind this key; `None`: that was all.
    reached: Option<Key>,
    /// Keys that a scan has looked at.
    scanned: usize,
}

impl Part {
    /// Adds a key; whether the part is complete with it.
    fn push(&mut self, key: &[u8], limit: usize) -> bool {
        self.bytes += key.len();
        self.keys.push(key.into());
        let is_complete = self.keys.len() == limit || self.bytes > PAGE_BYTES_MAX;
        if is_complete {
            self.reached = Some(key.into());
        }
        is_complete
    }
}

/// The first keys of all parts, as far as all have got, and how far that is.
fn merged(parts: Vec<Part>, limit: usize) -> (Vec<Key>, Option<Key>) {
    let mut reached = parts.iter().filter_map(|part| part.reached.clone()).min();
    let mut keys: Vec<Key> = parts.into_iter().flat_map(|part| part.keys).collect();
    keys.sort_unstable();
    if let Some(reached) = &reached {
        keys.truncate(keys.partition_point(|key| key <= reached));
    }
    if keys.len() > limit {
        keys.truncate(limit);
        reached = keys.last().cloned();
    }
    (keys, reached)
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

/// A query without an index that counts for its core while it lives.
struct Scan(Rc<Keys>);

impl Scan {
    fn begin(kv: &Rc<Keys>) -> Result<Scan, OpError> {
        let scans = &kv.scans;
        if scans.get() >= SCANS_MAX {
            return Err(OpError::Busy("too many queries without an index".to_owned()));
        }
        scans.set(scans.get() + 1);
        Ok(Scan(kv.clone()))
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        let scans = &self.0.scans;
        scans.set(scans.get() - 1);
    }
}

/// What questions to the filter may take between two looks at the clock, in nanoseconds.
const ASKED_NS: u64 = 200_000;

/// Work between two looks at the clock.
struct Pace {
    slice: Slice,
    steps: usize,
    each: usize,
    /// What questions to the filter may take.
    allowance: Allowance,
    /// Time that questions to the filter have taken beyond their allowance.
    asked: Asked,
}

impl Pace {
    fn begin(kv: &Keys, query: &KeyQuery) -> Pace {
        Pace {
            slice: Slice::begin(kv.ctx.env()),
            steps: 0,
            each: KEY_STEPS + query.filter_steps(),
            allowance: Allowance::of(ASKED_NS),
            asked: Asked::default(),
        }
    }

    /// A key was looked at, and into so many bytes.
    async fn looked(&mut self, bytes: usize) {
        self.steps += self.each + bytes / 1024 + self.allowance.renew(ASKED_NS);
        if self.steps >= STEPS {
            self.steps = 0;
            self.slice.check().await;
        }
    }
}

impl KeyQuery {
    fn filter_steps(&self) -> usize {
        self.filter.as_ref().map_or(0, RecordFilter::steps)
    }

    /// Whether the value has to be looked into to know whether its key is a row.
    fn looks_into_values(&self) -> bool {
        self.filter.is_some() || self.returns == Returns::Records
    }

    /// Whether a value makes a row, `None` when the allowance is used up before.
    fn takes(&self, value: &[u8], allowance: &Allowance) -> Option<bool> {
        match &self.filter {
            Some(filter) => filter.ask(value, allowance),
            None => Some(self.returns != Returns::Records || is_record(value)),
        }
    }
}

impl Keys {
    /// One page of a query. Other work goes on meanwhile; some 300 ns per key that is looked at, on each core for its own: those that
    /// can match by the index where these are few, else its keys in order. A query without an index looks at every key for each page.
    ///
    /// A page has fewer rows than the limit where that would take long or its bytes are used up; [`KeyPage::reached`] says where the next begins.
    ///
    /// # Errors
    /// No such index; one that is being built, or too many scans ([`OpError::Busy`]); one that was given up ([`OpError::NoMemory`]); a
    /// filter of which the index knows nothing, or no index at all, without [`KeyQuery::scans`]; more than [`SCANNED_MAX`] keys to look at.
    pub async fn query_keys(self: &Rc<Self>, query: KeyQuery) -> Result<KeyPage, OpError> {
        // First: a number that already counts a replacement comes with keys that are not served.
        let replacements = self.shared.replacements.load(Acquire);
        self.healthy()?;
        let page = self.query_these_keys(query).await;
        // It may have met keys from before and from after.
        match self.shared.replacements.load(Relaxed) == replacements {
            true => page,
            false => Err(OpError::Busy(
                "the keys were replaced by those of a backup; send the query again".to_owned(),
            )),
        }
    }

    async fn query_these_keys(self: &Rc<Self>, query: KeyQuery) -> Result<KeyPage, OpError> {
        let _counted = if query.index.is_none() { Some(Scan::begin(self)?) } else { None };
        let query = Arc::new(query);
        let asked = (0..self.ctx.env().cores()).map(|to| {
            let query = query.clone();
            call(self, to, move |there| async move { there.query_own_keys(&query).await })
        });
        let answers = together(asked.collect()).await;
        let parts: Result<Vec<Part>, OpError> = answers.into_iter().map(|answer| answer?).collect();
        let parts = parts?;
        if parts.iter().any(|part| part.index != parts[0].index) {
            return Err(OpError::Busy("the index is being defined anew".to_owned()));
        }
        if parts.iter().map(|part| part.scanned).sum::<usize>() > SCANNED_MAX {
            return Err(over_budget());
        }
        let (keys, reached) = merged(parts, query.limit);
        self.page_of(&query, &keys, reached).await
    }

    /// The page of these keys, as they are now. It may end before the last of them.
    async fn page_of(
        self: &Rc<Self>,
        query: &KeyQuery,
        keys: &[Key],
        reached: Option<Key>,
    ) -> Result<KeyPage, OpError> {
        let mut page = KeyPage::default();
        let mut pace = Pace::begin(self, query);
        for (at, key) in keys.iter().enumerate() {
            let mut value = Vec::new();
            let len = match query.returns {
                Returns::Keys => 0,
                _ => self.value_len(self.place_of(key), key),
            };
            let mut is_full = page.is_full_for(key.len() + len);
            if !is_full && query.returns != Returns::Keys {
                // Since its core has looked at it, it may have changed.
                let is_row = self.key_value(key, &mut value).await? && {
                    let answer = query.takes(&value, &pace.allowance);
                    self.settled(query, answer, &value, &mut pace.asked).await?
                };
                pace.looked(value.len()).await;
                if !is_row {
                    continue;
                }
                is_full = page.is_full_for(key.len() + value.len());
            }
            if is_full {
                page.reached = at.checked_sub(1).map(|before| keys[before].to_vec());
                return Ok(page);
            }
            let value = (query.returns != Returns::Keys).then_some(value);
            page.push(KeyRow { key: key.to_vec(), value });
        }
        page.reached = reached.map(Vec::from);
        Ok(page)
    }

    async fn query_own_keys(self: &Rc<Self>, query: &KeyQuery) -> Result<Part, OpError> {
        let (source, index) = self.source_of(query)?;
        let mut part = match source {
            Source::Candidates(candidates) => {
                let mut part = Part::default();
                let mut pace = Pace::begin(self, query);
                for some in candidates.chunks(STEP_KEYS) {
                    if self.look_at_own(query, some, &mut part, &mut pace).await? {
                        break;
                    }
                }
                part
            }
            Source::Index(generation) => self.walk_index(query, generation).await?,
            Source::Store => self.scan_own_keys(query).await?,
        };
        part.index = index;
        Ok(part)
    }

    fn source_of(&self, query: &KeyQuery) -> Result<(Source, Option<IndexDefinition>), OpError> {
        let needs_index = || OpError::BadRequest(NEEDS_INDEX.to_owned());
        let is_never = query.filter.as_ref().is_some_and(RecordFilter::is_never);
        let Some(name) = &query.index else {
            return match query.scans {
                true if is_never => Ok((Source::Candidates(Vec::new()), None)),
                true => Ok((Source::Store, None)),
                false => Err(needs_index()),
            };
        };
        let mut indexes = self.indexes.borrow_mut();
        let index = indexes.find(name).ok_or_else(|| OpError::UnknownKeyIndex(name.clone()))?;
        match index.state {
            IndexState::Ready => {}
            IndexState::Building => return Err(OpError::Busy(format!("index {name:?} is being built"))),
            IndexState::TooLarge => {
                return Err(OpError::NoMemory(format!(
                    "index {name:?} was given up; define it again, with a longer prefix or after raising max_memory"
                )));
            }
        }
        let definition = Some(index.definition.clone());
        let Some(filter) = &query.filter else { return Ok((Source::Index(index.generation), definition)) };
        let source = match filter.predicate().bounds_of(&index.definition.path) {
            Some(bounds) => {
                match index.content.keys_within(&bounds, query.after.as_deref(), CANDIDATES_MAX) {
                    Some(candidates) => Source::Candidates(candidates),
                    None => Source::Index(index.generation),
                }
            }
            None if query.scans => Source::Index(index.generation),
            None => return Err(needs_index()),
        };
        Ok((source, definition))
    }

    async fn walk_index(&self, query: &KeyQuery, generation: u64) -> Result<Part, OpError> {
        let mut part = Part::default();
        let mut pace = Pace::begin(self, query);
        let mut after: Option<Rc<[u8]>> = query.after.as_deref().map(Rc::from);
        for _ in 0..LOOKED_AT_MAX / STEP_KEYS {
            let some = match self.indexes.borrow_mut().find_same(generation) {
                Some(index) if index.state == IndexState::Ready => {
                    index.content.keys_after(after.as_deref(), STEP_KEYS)
                }
                _ => return Err(OpError::Busy("the index has been changed".to_owned())),
            };
            let Some(last) = some.last() else { return Ok(part) };
            if self.look_at_own(query, &some, &mut part, &mut pace).await? {
                return Ok(part);
            }
            after = Some(last.clone());
        }
        part.reached = after.as_deref().map(Box::from);
        Ok(part)
    }

    async fn scan_own_keys(&self, query: &KeyQuery) -> Result<Part, OpError> {
        let keys = self;
        // One at a time: it is the work of many queries.
        let _held = keys.scan_lock.lock().await;
        let mut slice = Slice::begin(self.ctx.env());
        let mut first: BTreeSet<Key> = BTreeSet::new();
        let (mut scanned, mut asked) = (0, Asked::default());
        let step_bytes = STEP_BYTES / (1 + query.filter_steps() / 8);
        let own = keys.owned.borrow().len();
        for index in 0..own {
            let mut cursor = keys.owned.borrow()[index].writer.snapshot();
            let mut more = true;
            while more {
                let now_ms = self.ctx.env().unix_ms();
                let (allowance, mut open) = (Allowance::of(ASKED_NS), Vec::new());
                let mut look = |key: &[u8], value: &[u8], _deadline_ms| {
                    scanned += 1;
                    if query.after.as_deref().is_some_and(|after| key <= after)
                        || !would_enter(&first, query.limit, key)
                    {
                        return;
                    }
                    let answer =
                        if query.looks_into_values() { query.takes(value, &allowance) } else { Some(true) };
                    match answer {
                        Some(true) => enter(&mut first, query.limit, key),
                        Some(false) => {}
                        None => open.push(Key::from(key)),
                    }
                };
                more = keys.owned.borrow_mut()[index].writer.snapshot_step(
                    &mut cursor,
                    now_ms,
                    step_bytes,
                    &mut look,
                );
                if scanned > SCANNED_MAX {
                    return Err(over_budget());
                }
                slice.check().await;
                // Questions that are answered within their allowance add up as well.
                asked.check_with(&slice)?;
                for key in open {
                    let mut value = Vec::new();
                    let answer = self.is_own_row(query, &key, &mut value, &Allowance::of(ASKED_NS));
                    if would_enter(&first, query.limit, &key)
                        && self.settled(query, answer, &value, &mut asked).await?
                    {
                        enter(&mut first, query.limit, &key);
                    }
                    slice.check().await;
                }
                if self.ctx.is_stopping() {
                    return Err(OpError::Busy("the server is stopping".to_owned()));
                }
            }
        }
        let mut part = Part { scanned, ..Part::default() };
        for key in &first {
            if part.push(key, query.limit) {
                break;
            }
        }
        Ok(part)
    }

    /// Adds rows of keys of this core's, which come in ascending order; whether the part is complete with them.
    async fn look_at_own(
        &self,
        query: &KeyQuery,
        some: &[Rc<[u8]>],
        part: &mut Part,
        pace: &mut Pace,
    ) -> Result<bool, OpError> {
        self.prefetch(some.iter().map(|key| &**key));
        let mut value = Vec::new();
        for key in some {
            value.clear();
            let answer = self.is_own_row(query, key, &mut value, &pace.allowance);
            if self.settled(query, answer, &value, &mut pace.asked).await? && part.push(key, query.limit) {
                return Ok(true);
            }
            pace.looked(value.len()).await;
        }
        Ok(false)
    }

    /// The answer of the filter about a copied value, asked in slices where it is still open.
    async fn settled(
        &self,
        query: &KeyQuery,
        answer: Option<bool>,
        value: &[u8],
        asked: &mut Asked,
    ) -> Result<bool, OpError> {
        match (answer, &query.filter) {
            (Some(answer), _) => Ok(answer),
            (None, Some(filter)) => self.ctx.record_matches(filter, value, asked).await,
            (None, None) => Ok(true),
        }
    }

    /// `value` is empty, and room. `None` when the allowance is used up before the filter has an answer.
    fn is_own_row(
        &self,
        query: &KeyQuery,
        key: &[u8],
        value: &mut Vec<u8>,
        allowance: &Allowance,
    ) -> Option<bool> {
        let (keys, now_ms) = (self, self.ctx.env().unix_ms());
        let place = keys.place_of(key);
        let is_row = match query.looks_into_values() {
            false => Some(keys.exists(&keys.pin(), place, key, now_ms)),
            true => {
                let writer = &mut keys.owned.borrow_mut()[place.shard / keys.shared.cores].writer;
                match writer.peek(key, now_ms, value) {
                    Some(_) => query.takes(value, allowance),
                    None => Some(false),
                }
            }
        };
        if is_row == Some(false) {
            keys.forget_if_gone(key);
        }
        is_row
    }
}

impl Keys {
    /// Takes a key out of indexes if the store has it no more. One that has expired and is still stored stays: a clock may be set back.
    fn forget_if_gone(&self, key: &[u8]) {
        if !self.is_stored(key) {
            self.indexes.borrow_mut().forget(key);
        }
    }
}

/// Whether a key would be one of the first `limit`.
fn would_enter(first: &BTreeSet<Key>, limit: usize, key: &[u8]) -> bool {
    first.len() < limit || first.last().is_none_or(|last| key < &**last)
}

/// Puts it among them.
fn enter(first: &mut BTreeSet<Key>, limit: usize, key: &[u8]) {
    first.insert(key.into());
    if first.len() > limit {
        first.pop_last();
    }
}

fn over_budget() -> OpError {
    OpError::BadRequest("scan budget exceeded; use an index".to_owned())
}

fn is_record(value: &[u8]) -> bool {
    nigh_engine::kv::operate::StoredRecord::of(value).is_some_and(|record| record.fields().is_some())
}
