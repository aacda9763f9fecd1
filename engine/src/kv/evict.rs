//! How room is made: pages are emptied ahead of need, oldest first, a piece with each write.
//!
//! # Pace
//!
//! A store that fills up uses its free pages first. With the last of them opened, the page written first becomes the *victim*:
//! each write of `n` words also walks `4 n` words of it, so the victim is empty before the open page is full, however entries
//! are sized, and its readers have a good part of a page's writing to let go of it. A walk looks up each record's key; the
//! slot says whether this is its entry. What is alive is *rescued* (copied behind the open page's entries) or *displaced*.
//! So no write pauses for a page, and the longest step is in proportion to the write that caused it.
//!
//! Tables that have grown take pages away (`pages`); then a second one is emptied in the same way, and given up.
//!
//! When that was not enough (a long value needs many pages at once; two pages are all there is), victims are emptied at once.
//! While a store is read from images and a log nothing is emptied ahead, and `restore` says what goes in which order.
//! When pages are empty but readers hold them, spare pages serve; with these used up a write is refused.
//!
//! # What has expired
//!
//! Keys that have expired and were not swept yet go first: a store that is short of pages sweeps with each write, and nothing alive is
//! displaced before the wheel has nothing due. Their words are dead then, and pages that have no others are free at once. What
//! has expired in the current tick of the wheel (64 ms) counts as alive, unless it lies in the page that is emptied.
//!
//! # Compaction
//!
//! What is alive is not displaced while enough is dead: the emptiest page is emptied first, and its live records are copied, if at most
//! three quarters of it are. This begins before all pages are used when more than half of what was written is dead, so a store whose keys
//! are rewritten takes about twice the memory of what is alive, and pages that are in the cache.
//!
//! # Rescue
//!
//! At most half a page of a victim: so each emptied page is a gain of half a page at least, and making room ends. What lies in
//! pages of its own (a long value) is more than half a page and is displaced.

use super::drain::{Drain, Purpose};
use super::entry::{Entry, Head};
use super::index::IndexSlot;
use super::op::StoreError;
use super::stats::Stats;
use super::table::EntryOffset;
use super::view::is_live;
use super::words::WORD;
use super::writer::{Restoring, Writer};

/// Words of a victim that are walked for each word written: with half a page rescued, a victim is empty when the open page is at
/// most three quarters full.
const PACE: usize = 4;

/// And so many for each write, so that the smallest entries make progress too.
const PACE_MIN: usize = 64;

/// A page of which at least one part in so many is dead is emptied by copying the rest.
const COMPACTION_PARTS: usize = 4;

/// The same for a page that is emptied without loss: with three quarters copied it is empty when the open page is seven eighths full.
const COMPACTION_PACE: usize = 8;

/// Pages that are copied together for each page that is needed at once: each gives at least a quarter of one.
const COPIES_PER_PAGE: usize = COMPACTION_PARTS;
/// The same for a store that is being read.
const RESTORE_COPIES_PER_PAGE: usize = 32;

/// Keys that a write sweeps in a store that is short of pages: what has expired among as many keys as 64 pages hold is gone before the open page
/// is full. Some 10 us, until that is done.
const SWEEP_PACE: usize = 256;
/// And at once, when a page is needed now, between two looks whether there is one.
const SWEEP_AT_ONCE: usize = 4096;
/// Such sweeps of one write in a store that serves: some 7 ms. What is due beyond that is left to the sweeps that follow, and the oldest
/// page goes instead.
const SWEEPS_PER_WRITE: usize = 16;
/// Pages that one write copies together in a store that serves, however many it needs.
const COPIES_PER_WRITE: usize = 8;

/// Records whose buckets are asked for before the first of them is looked up: the waits for memory overlap.
const BATCH: usize = 8;

/// A page is copied only when at least this part of it is dead: of a fuller one too little is gained. What is dead falls with every page that
/// is copied, so that copying comes to an end.
const DEAD_PART: usize = 16;

/// Pages that the reserve keeps free at most, as a part of all, and with fewer than how many pages it keeps none.
const RESERVE_PAGES: usize = 2;
const RESERVE_PART: usize = 4;
const RESERVE_PAGES_MIN: usize = 4;

/// What became of a record that was met.
enum Fate {
    Done,
    /// It is alive, and there is no room to copy it.
    NoRoom,
}

impl Writer {
    /// Whether an entry can be written at once, within the budget.
    #[inline]
    pub(super) fn has_room(&mut self, head: Head) -> bool {
        head.bodies() <= self.pages.free() && self.can_write(head)
    }

    /// Whether an entry can be written at once, spare pages included.
    #[inline]
    pub(super) fn can_write(&mut self, head: Head) -> bool {
        self.pages.room() >= head.words(self.pages.page_words())
            && head.bodies() <= self.pages.free() + self.pages.spare()
            && self.index.has_room()
    }

    /// Makes room for an entry that has none.
    pub(super) fn make_room(&mut self, head: Head, now_ms: u64) -> Result<(), StoreError> {
        let made = self.try_make_room(head, now_ms);
        self.stats.rejects += u64::from(made.is_err());
        made
    }

    fn try_make_room(&mut self, head: Head, now_ms: u64) -> Result<(), StoreError> {
        if head.bodies() >= self.pages.budget() || !self.index.has_room() {
            return Err(StoreError::Full);
        }
        let tables = self.table_bytes() + self.wheel_bytes();
        // A value that nearly fills the budget has all of it.
        let tables = if head.bodies() > self.pages.budget() / 2 { 0 } else { tables };
        self.pages.withhold_for(tables, &self.shared.words);
        let mut copies = 0;
        let mut sweeps = 0;
        loop {
            self.pages.poll(&self.shared.words);
            let fits = self.pages.room() >= head.words(self.pages.page_words());
            let needed = head.bodies() + usize::from(!fits);
            self.pages.want_free(needed);
            let copies_max = match self.restoring {
                None => (COPIES_PER_PAGE * needed).min(COPIES_PER_WRITE),
                Some(_) => RESTORE_COPIES_PER_PAGE * needed,
            };
            let (free, spare) = (self.pages.free(), self.pages.spare());
            let waits = free + self.pages.waiting() >= needed;
            let may_use_spare = waits || self.restoring.is_some() && copies >= copies_max;
            if free >= needed || may_use_spare && free + spare >= needed {
                if !fits {
                    self.pages.turn();
                }
                return Ok(());
            }
            if waits {
                return Err(StoreError::Full);
            }
            // What has expired goes before anything alive, and what is dead before that is copied.
            let may_sweep = self.restoring.is_some() || sweeps < SWEEPS_PER_WRITE;
            if may_sweep && !self.is_swept(now_ms, SWEEP_AT_ONCE) {
                sweeps += 1;
                continue;
            }
            if copies < copies_max {
                copies = if self.compact_one(now_ms) { copies + 1 } else { usize::MAX };
                continue;
            }
            if self.restoring == Some(Restoring::Filling) {
                return Err(StoreError::Full);
            }
            if self.restoring == Some(Restoring::Displacing) && self.shed(now_ms) {
                copies = 0;
                continue;
            }
            if !self.empty_one(now_ms) {
                return Err(StoreError::Full);
            }
        }
    }

    /// Copies what is alive of a page that has enough dead words, if there is one and it can be copied whole. Whether it has.
    pub(super) fn compact_one(&mut self, now_ms: u64) -> bool {
        if !self.begin_compaction() {
            return false;
        }
        let Some(Drain { page, .. }) = self.drain else { return false };
        if self.free_to_copy() == 0 && self.pages.live_of(page) > self.pages.room() {
            // A page whose emptying has begun stays with the drain, whose eviction copies what fits.
            if self.drain.as_ref().is_some_and(|drain| drain.at == 0) {
                self.abandon_drain();
            }
            return false;
        }
        while self.drain.is_some() {
            if !self.drain_step(usize::MAX, now_ms) {
                return false;
            }
        }
        true
    }

    /// Least words of a page that have to be dead for its live ones to be copied.
    fn dead_min(&self) -> usize {
        self.pages.page_words() / DEAD_PART
    }

    /// Pages that copies may go to.
    fn free_to_copy(&self) -> usize {
        self.pages.free() + self.restoring.map_or(0, |_| self.pages.spare())
    }

    /// Empties a page, the open one if there is no other. `false` when there is none at all.
    fn empty_one(&mut self, now_ms: u64) -> bool {
        if !self.begin_eviction() {
            if !self.pages.is_open() {
                return false;
            }
            self.pages.close();
            // A closed page without anything alive waits already.
            self.begin_eviction();
        }
        while self.drain.is_some() {
            self.drain_step(usize::MAX, now_ms);
        }
        true
    }

    /// After a write of `words` words: goes on emptying the next page, once there is no free one.
    #[inline]
    pub(super) fn empty_ahead(&mut self, words: usize, now_ms: u64) {
        let wanted = if self.pages.wants_to_withhold() { 2 } else { 1 };
        self.pages.want_free(wanted);
        let is_short = self.pages.free() + self.pages.waiting() < wanted;
        if self.restoring.is_some() || is_short && !self.is_swept(now_ms, SWEEP_PACE) {
            return;
        }
        if (is_short || self.pages.is_wasteful()) && self.begin_compaction() {
            self.drain_step(COMPACTION_PACE * words + PACE_MIN, now_ms);
        } else if is_short && self.begin_eviction() {
            self.drain_step(PACE * words + PACE_MIN, now_ms);
        }
    }

    /// Makes sure that a page is being emptied of which little enough is alive to be copied whole. `false` when there is none, or another one
    /// is being emptied for eviction.
    fn begin_compaction(&mut self) -> bool {
        match self.drain.as_ref().map(|drain| &drain.purpose) {
            Some(Purpose::Compact) => return true,
            Some(Purpose::Evict { .. }) => return false,
            Some(Purpose::Reserve) => self.abandon_drain(),
            None => {}
        }
        let live_max = self.pages.page_words() / COMPACTION_PARTS * (COMPACTION_PARTS - 1);
        let page = match self.restoring {
            None => self.pages.take_emptiest(live_max, self.dead_min()),
            Some(_) => self.pages.take_deadest(self.dead_min()),
        };
        let Some(page) = page else { return false };
        self.drain = Some(Drain { page, at: 0, purpose: Purpose::Compact });
        true
    }

    /// Makes sure that a page is being emptied whose content may be dropped. `false` when there is no closed page.
    fn begin_eviction(&mut self) -> bool {
        if let Some(drain) = &mut self.drain {
            match drain.purpose {
                Purpose::Evict { .. } => return true,
                Purpose::Compact => {
                    // It has not been done in time: what fits is still copied.
                    drain.purpose = Purpose::Evict { rescue: self.pages.page_words() };
                    return true;
                }
                Purpose::Reserve => self.abandon_drain(),
            }
        }
        let Some(page) = self.pages.take_oldest() else { return false };
        let rescue = if self.config.relocating_eviction { self.pages.page_words() / 2 } else { 0 };
        self.drain = Some(Drain { page, at: 0, purpose: Purpose::Evict { rescue } });
        true
    }

    pub(super) fn abandon_drain(&mut self) {
        if let Some(drain) = self.drain.take() {
            self.pages.put_back(drain.page);
        }
    }

    /// Copies live records together so that up to two pages are free (at most a quarter of them, and none of fewer than four), and
    /// so eviction is not needed as long as enough is dead. Walks at most `budget_bytes` of a page, and never more than one;
    /// drops nothing that is alive. Returns whether another call could go on.
    ///
    /// For the background of an owner that wants a reserve; without it everything works as well.
    pub fn relocate_step(&mut self, now_ms: u64, budget_bytes: usize) -> bool {
        self.pages.poll(&self.shared.words);
        if matches!(self.drain, Some(Drain { purpose: Purpose::Evict { .. }, .. })) {
            if self.pages.free() + self.pages.waiting() == 0 {
                // Writes see to that.
                return false;
            }
            // Pages came free in another way, so nothing has to be dropped for now.
            self.abandon_drain();
        }
        if self.drain.is_none() {
            let (budget, page_words) = (self.pages.budget(), self.pages.page_words());
            let wanted =
                if budget < RESERVE_PAGES_MIN { 0 } else { RESERVE_PAGES.min(budget / RESERVE_PART) };
            self.pages.want_free(wanted);
            if self.pages.free() + self.pages.waiting() >= wanted {
                return false;
            }
            let Some(page) = self.pages.take_emptiest(page_words, self.dead_min()) else { return false };
            self.drain = Some(Drain { page, at: 0, purpose: Purpose::Reserve });
        }
        self.drain_step(budget_bytes.div_ceil(WORD), now_ms)
    }

    /// Walks about `budget` words of the page that is being emptied, which is retired at its end. Whether something was done.
    fn drain_step(&mut self, budget: usize, now_ms: u64) -> bool {
        let Some(mut drain) = self.drain.take() else { return false };
        let page_words = self.pages.page_words();
        let first = drain.page as usize * page_words;
        let used = self.pages.used_of(drain.page);
        let stop = drain.at.saturating_add(budget).min(used);
        // With nothing alive left the rest need not be looked at.
        while drain.at < stop && self.pages.live_of(drain.page) > 0 {
            let mut next = drain.at;
            let mut batch = [const { None }; BATCH];
            for record in &mut batch {
                if next >= stop {
                    break;
                }
                let place = (first + next) as EntryOffset;
                let hash = self.shared.hash_at(place, &mut self.key);
                self.index.table().prefetch(hash);
                *record = Some((place, hash));
                next += self.shared.head(place).words(page_words);
            }
            for (place, hash) in batch.into_iter().flatten() {
                drain.at = place as usize - first;
                if let Fate::NoRoom = self.meet(place, hash, &mut drain.purpose, now_ms) {
                    self.pages.put_back(drain.page);
                    return false;
                }
            }
            drain.at = next;
        }
        if self.pages.live_of(drain.page) > 0 {
            self.drain = Some(drain);
            return true;
        }
        match drain.purpose {
            Purpose::Evict { .. } | Purpose::Compact => self.stats.pages_evicted += 1,
            Purpose::Reserve => self.stats.reserve_pages_freed += 1,
        }
        self.pages.retire(drain.page);
        true
    }

    /// Decides about one record of a page that is being emptied.
    fn meet(&mut self, place: EntryOffset, hash: u64, purpose: &mut Purpose, now_ms: u64) -> Fate {
        let Some((slot, _)) = self.index.find(hash, |found| found == place) else { return Fate::Done };
        let (head, is_live) = {
            let entry = self.shared.entry(place);
            (entry.head(), is_live(entry.deadline_ms(), now_ms))
        };
        let (words, was_visited) = (head.words(self.pages.page_words()), head.is_visited());
        match purpose {
            Purpose::Evict { rescue } => {
                let is_wanted = was_visited || !self.config.sieve_visited_bit;
                let fits = words <= (*rescue).min(self.pages.room()) && head.bodies() == 0;
                if is_live && is_wanted && fits {
                    *rescue -= words;
                    self.stats.eviction_relocations += 1;
                    self.stats.eviction_bytes_relocated += (words * WORD) as u64;
                    // Passed once: it has to be used again to be rescued again.
                    self.relocate(slot, hash, place, head.visited(false));
                } else {
                    self.displace(slot, place, is_live, words);
                }
            }
            Purpose::Reserve | Purpose::Compact if !is_live => {
                self.stats.expired += 1;
                self.remove(slot, place);
            }
            Purpose::Reserve | Purpose::Compact => {
                if self.pages.room() < words {
                    if self.free_to_copy() == 0 {
                        return Fate::NoRoom;
                    }
                    self.pages.turn();
                }
                let Stats { eviction_relocations, reserve_relocations, .. } = &mut self.stats;
                *if matches!(purpose, Purpose::Compact) {
                    eviction_relocations
                } else {
                    reserve_relocations
                } += 1;
                let Stats { eviction_bytes_relocated, reserve_bytes_relocated, .. } = &mut self.stats;
                *if matches!(purpose, Purpose::Compact) {
                    eviction_bytes_relocated
                } else {
                    reserve_bytes_relocated
                } += (words * WORD) as u64;
                self.relocate(slot, hash, place, head.visited(was_visited));
            }
        }
        Fate::Done
    }

    pub(super) fn displace(&mut self, slot: IndexSlot, place: EntryOffset, is_live: bool, words: usize) {
        self.stats.evictions += 1;
        if is_live {
            self.stats.evictions_live += 1;
            self.stats.evicted_live_bytes += (words * WORD) as u64;
            if let Some(evicted) = &mut self.evicted {
                let entry = self.shared.entry(place);
                evicted.extend_from_slice(&(entry.head().key_len() as u16).to_le_bytes());
                entry.append_key(evicted);
            }
        } else {
            self.stats.expired += 1;
        }
        self.remove(slot, place);
    }

    /// Copies an entry into the open page, which has the room. Its bodies stay where they are.
    fn relocate(&mut self, slot: IndexSlot, hash: u64, from: EntryOffset, head: Head) {
        let words = head.words(self.pages.page_words());
        let to = self.pages.append(words);
        let copy = Entry::new(head, self.shared.words.cells(to as usize, to as usize + words));
        copy.copy_from(&self.shared.entry(from));
        self.index.swing(slot, hash, to);
        self.pages.kill(from, words);
    }
}
