//! The owner's side of a store: entries are set, changed and removed. What operations mean is in `prepare`, how room is made
//! in `evict`.
//!
//! # Invariants
//!
//! 1. A new entry is complete before a slot names it; the old entry's memory is dead after the slot was swung and not before.
//! 2. The item of the wheel goes with the key: a new entry of the key takes it over, whoever removes the key cancels it.

use super::config::{Config, ConfigError};
use super::drain::Drain;
use super::entry::{ENTRY_WORDS_MIN, Entry, Head, KEY_BYTES_MAX};
use super::hash::KeyHasher;
use super::index::{Index, IndexSlot};
use super::op::{Effect, StoreError, check_lengths};
use super::pages::{Grow, PageId, Pages, bodies_of};
use super::ruins::Ruins;
use super::stats::Stats;
use super::table::EntryOffset;
use super::view::{Shared, View, is_live};
use super::wheel::{Timer, Wheel};
use super::words::{WORD, Words, store_bytes, words_of};
use crate::memory::sync::{AtomicU64, Ordering::Relaxed};
use crate::memory::{Domain, Published};
use std::sync::Arc;

/// Longest value that is rewritten in place: a reader has to copy all of it between two rewrites.
const IN_PLACE_BYTES_MAX: usize = 64 << 10;

/// Words behind a new entry that the memory is asked for, and words of a line of the cache.
const AHEAD_WORDS: usize = 4 * LINE_WORDS;
const LINE_WORDS: usize = 8;

/// The write side of a store: there is one, and it belongs to the owner.
///
/// Reads go through [`View`]s on any core. The owner must not hold a pin of the store's domain while it writes: what readers may
/// see is not reused, and it would wait for itself. Make the domain for stores alone: searches of collections pin for longer
/// than a full store can wait.
pub struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) config: Config,
    pub(super) index: Index,
    pub(super) pages: Pages,
    pub(super) wheel: Wheel,
    pub(super) drain: Option<Drain>,
    /// What room was made for when an operation was prepared, and not been used since.
    pub(super) ready: Option<Head>,
    /// While the store is read from images and a log.
    pub(super) restoring: Option<Restoring>,
    /// Tick of the wheel up to which what has expired is known to be gone.
    pub(super) swept_tick: u64,
    pub(super) stats: Stats,
    /// Flushed tables.
    pub(super) ruins: Ruins,
    /// Increases with each flush.
    pub(super) era: u64,
    /// Keys of live records that were evicted, each after its length; kept if somebody wants to know.
    pub(super) evicted: Option<Vec<u8>>,
    /// Room for a key, and for a value.
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// How far the reading of a store from images and a log has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restoring {
    /// What does not fit displaces what is there.
    Displacing,
    /// What does not fit is refused.
    Filling,
}

impl Writer {
    /// An empty store. Reserves address space for its budget and half as much for the table of keys; memory is taken as it fills.
    ///
    /// # Errors
    /// A budget that is too small, or no address space.
    pub fn new(config: Config, hasher: KeyHasher, domain: Arc<Domain>) -> Result<Writer, ConfigError> {
        let geometry = config.geometry()?;
        let page_words = geometry.page_bytes / WORD;
        let words = Pages::addressed(geometry.pages) * page_words;
        let index = Index::new(words / ENTRY_WORDS_MIN, domain.clone())?;
        let shared = Arc::new(Shared {
            table: Published::new(domain.clone(), index.table().clone()),
            words: Words::reserve(words)?,
            page_words,
            in_place: config.in_place_same_size,
            sieve: config.sieve_visited_bit,
            read_retries: AtomicU64::new(0),
            read_fallbacks: AtomicU64::new(0),
            domain: domain.clone(),
            hasher,
        });
        Ok(Writer {
            pages: Pages::new(page_words, geometry.pages, domain),
            shared,
            config,
            index,
            wheel: Wheel::new(),
            drain: None,
            ready: None,
            restoring: None,
            swept_tick: 0,
            stats: Stats::default(),
            ruins: Ruins::default(),
            era: 0,
            evicted: None,
            key: Vec::new(),
            value: Vec::new(),
        })
    }

    /// The read side.
    pub fn view(&self) -> View {
        View { shared: self.shared.clone() }
    }

    /// Changes the store as an effect says. Costs two or three cache misses and the copy; at capacity also the emptying of some
    /// four times the bytes written.
    ///
    /// Either at once after [`Self::prepare`], with the same `now_ms`; or from images and a log, in their order, after
    /// [`Self::begin_restore`] and with one `now_ms` for all. A key whose deadline has passed by then may be given a later one further on:
    /// sets are to be applied with the deadline that the key has in the end, and as deletions where that has passed.
    ///
    /// # Errors
    /// None for an effect that was just prepared. From a log, what does not fit the budget now is [`StoreError::Full`].
    pub fn apply(&mut self, effect: &Effect<'_>, now_ms: u64) -> Result<(), StoreError> {
        match effect {
            Effect::Set { key, value, deadline_ms } => self.set(key, value, *deadline_ms, now_ms),
            Effect::Deadline { key, deadline_ms } => {
                self.set_deadline(key, *deadline_ms);
                Ok(())
            }
            Effect::Delete { key } => {
                self.delete(key, now_ms);
                Ok(())
            }
            Effect::Flush => self.flush(),
        }
    }

    /// From now on the keys of live records that are evicted are kept until [`Self::take_evicted`]: an owner with a log writes
    /// deletions for them, or a restart would bring back what clients have seen gone.
    pub fn note_evicted(&mut self) {
        self.evicted.get_or_insert_default();
    }

    /// Keys of live records evicted since the last call, to be asked for after each `prepare` and each `apply`: what the first
    /// evicts comes before its effect in the log.
    pub fn take_evicted(&mut self, mut each: impl FnMut(&[u8])) {
        let Some(evicted) = &mut self.evicted else { return };
        let mut rest = &evicted[..];
        while let Some((length, after)) = rest.split_first_chunk::<2>() {
            let (key, after) = after.split_at(u16::from_le_bytes(*length) as usize);
            each(key);
            rest = after;
        }
        evicted.clear();
    }

    /// From now on pages are given memory only as far as `grow` allows it, which is asked for a page at a time, by the owner. Where it
    /// refuses the store is at capacity with the pages that it has, or, with none, full.
    pub fn grow_with(&mut self, grow: Grow) {
        self.pages.grow_with(grow);
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.pages.page_words() * WORD
    }

    /// Counters and sizes. Some 100 ns.
    pub fn stats(&self) -> Stats {
        let bytes = |words: usize| words * WORD;
        Stats {
            read_retries: self.shared.read_retries.load(Relaxed),
            read_fallbacks: self.shared.read_fallbacks.load(Relaxed),
            collisions: self.index.collisions,
            keys: self.index.keys(),
            keys_with_deadline: self.wheel.len(),
            page_bytes: bytes(self.pages.page_words()),
            pages: self.pages.budget(),
            pages_allocated: self.pages.touched(),
            pages_free: self.pages.unwritten(),
            pages_waiting: self.pages.waiting(),
            used_bytes: bytes(self.pages.used()),
            live_bytes: bytes(self.pages.live()),
            table_bytes: self.table_bytes(),
            wheel_bytes: self.wheel_bytes(),
            ..self.stats.clone()
        }
    }

    pub(super) fn table_bytes(&self) -> usize {
        self.index.bytes() + self.ruins.table_bytes()
    }

    pub(super) fn wheel_bytes(&self) -> usize {
        self.wheel.bytes() + self.ruins.wheel_bytes()
    }

    /// Slot and entry of a key, expired or not.
    pub(super) fn locate(&mut self, hash: u64, key: &[u8]) -> Option<(IndexSlot, EntryOffset)> {
        let shared = &self.shared;
        self.index.find(hash, |place| shared.entry_of(place, key).is_some())
    }

    /// How a record would be laid out.
    pub(super) fn layout(&self, key_len: usize, value_len: usize) -> Result<Head, StoreError> {
        check_lengths(key_len, value_len)?;
        Head::layout(key_len, value_len, self.pages.page_words()).ok_or(StoreError::Full)
    }

    fn set(&mut self, key: &[u8], value: &[u8], deadline_ms: u64, now_ms: u64) -> Result<(), StoreError> {
        let head = self.layout(key.len(), value.len())?;
        let hash = self.shared.hasher.hash_of(key).0;
        let mut found = self.locate(hash, key);
        if let Some((_, place)) = found
            && self.rewrite(hash, place, head, value, deadline_ms, now_ms)
        {
            return Ok(());
        }
        let is_ready = self.ready.take() == Some(head) && self.can_write(head);
        if !is_ready && !self.has_room(head) {
            self.make_room(head, now_ms)?;
            // The key itself may have been evicted.
            found = self.locate(hash, key);
        }
        let (timer, was_live) = found.map_or((0, false), |(_, place)| {
            let old = self.shared.entry(place);
            (old.timer(), is_live(old.deadline_ms(), now_ms))
        });
        self.stats.sets += 1;
        self.stats.expired += u64::from(found.is_some() && !was_live);
        let timer = timer_for(&mut self.wheel, timer, hash, deadline_ms);
        // A rewrite counts as a use, an insertion does not.
        let head = head.visited(was_live && self.config.sieve_visited_bit);
        let place = self.append(head, key, value, deadline_ms, timer);
        match found {
            Some((slot, old)) => {
                self.index.swing(slot, hash, place);
                self.kill(old);
            }
            None => {
                let Writer { index, shared, key, .. } = self;
                index.insert(hash, place, |place| shared.hash_at(place, key));
                // The entries that the next split asks for the hashes of their keys.
                index.before_split(|place| shared.words.prefetch(place as usize));
            }
        }
        self.empty_ahead(head.words(self.pages.page_words()) + words_of(value.len()), now_ms);
        Ok(())
    }

    /// Overwrites a value where it lies, if that may be.
    fn rewrite(
        &mut self,
        hash: u64,
        place: EntryOffset,
        head: Head,
        value: &[u8],
        deadline_ms: u64,
        now_ms: u64,
    ) -> bool {
        let Writer { shared, wheel, stats, .. } = self;
        let entry = shared.entry(place);
        let fits = shared.in_place
            && entry.head().visited(false) == head
            && head.bodies() == 0
            && value.len() <= IN_PLACE_BYTES_MAX;
        if fits {
            let was_live = is_live(entry.deadline_ms(), now_ms);
            let timer = timer_for(wheel, entry.timer(), hash, deadline_ms);
            entry.rewrite(value, deadline_ms, timer);
            if shared.sieve && was_live {
                entry.visit();
            }
            stats.sets += 1;
            stats.in_place_updates += 1;
            stats.expired += u64::from(!was_live);
        }
        fits
    }

    fn set_deadline(&mut self, key: &[u8], deadline_ms: u64) {
        let hash = self.shared.hasher.hash_of(key).0;
        let Some((_, place)) = self.locate(hash, key) else { return };
        let Writer { shared, wheel, .. } = self;
        let entry = shared.entry(place);
        entry.set_deadline(deadline_ms);
        let timer = timer_for(wheel, entry.timer(), hash, deadline_ms);
        if timer != entry.timer() {
            entry.set_timer(timer);
        }
    }

    fn delete(&mut self, key: &[u8], now_ms: u64) {
        let hash = self.shared.hasher.hash_of(key).0;
        let Some((slot, place)) = self.locate(hash, key) else { return };
        if is_live(self.shared.entry(place).deadline_ms(), now_ms) {
            self.stats.deletes += 1;
        } else {
            self.stats.expired += 1;
        }
        self.remove(slot, place);
    }

    /// Takes a key out, its item of the wheel included.
    pub(super) fn remove(&mut self, slot: IndexSlot, place: EntryOffset) {
        let timer = self.shared.entry(place).timer();
        if timer != 0 {
            self.wheel.cancel(timer);
        }
        self.index.remove(slot);
        self.kill(place);
    }

    /// The memory of an entry that no slot names any more is dead.
    pub(super) fn kill(&mut self, place: EntryOffset) {
        let Writer { shared, pages, .. } = self;
        let entry = shared.entry(place);
        for body in bodies_of(&entry) {
            pages.retire(body);
        }
        let (page, is_empty) = pages.kill(place, entry.head().words(shared.page_words));
        // A page that is being emptied is nobody's but the drain's.
        if is_empty && pages.take_closed(page) {
            pages.retire(page);
        }
    }

    /// Writes an entry, for which there is room, and its bodies.
    fn append(
        &mut self,
        head: Head,
        key: &[u8],
        value: &[u8],
        deadline_ms: u64,
        timer: Timer,
    ) -> EntryOffset {
        debug_assert!(key.len() <= KEY_BYTES_MAX);
        let Writer { shared, pages, .. } = self;
        let words = head.words(shared.page_words);
        let place = pages.append(words);
        let entry = Entry::new(head, shared.words.cells(place as usize, place as usize + words));
        entry.write(key, deadline_ms, timer);
        let (bodies, inline) = value.split_at(value.len() - head.inline_len(shared.page_words));
        for (cell, part) in entry.bodies().iter().zip(bodies.chunks(shared.page_words * WORD)) {
            let body: PageId = pages.take_body(words_of(part.len()));
            let first = body as usize * shared.page_words;
            store_bytes(shared.words.cells(first, first + words_of(part.len())), part);
            cell.store(u64::from(body), Relaxed);
        }
        store_bytes(entry.value(), inline);
        // Where the next entry goes, by the time there is one: a store with many shards writes to as many places in turn, each a line that
        // was last used a whole round of its pages ago, and stores wait in order.
        let next = place as usize + words;
        (next..next + words.min(AHEAD_WORDS)).step_by(LINE_WORDS).for_each(|at| shared.words.prefetch(at));
        place
    }
}

/// The item of a key that had `timer` and has a deadline now.
fn timer_for(wheel: &mut Wheel, timer: Timer, hash: u64, deadline_ms: u64) -> Timer {
    match (timer, deadline_ms) {
        (0, 0) => 0,
        (0, _) => wheel.file(hash, deadline_ms).unwrap_or(0),
        (timer, 0) => {
            wheel.cancel(timer);
            0
        }
        (timer, _) => {
            wheel.refile(timer, deadline_ms);
            timer
        }
    }
}
