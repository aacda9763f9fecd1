//! How room is made while a store is read from images and a log.
//!
//! Nothing of what the store held when it ended may be lost here as long as the budget holds it. On the way to the last effect it may seem to
//! hold more: an image is written while keys come and go, so it has keys that were never there at one time. In this order, each step
//! when those before give no room:
//!
//! 1. Free pages.
//! 2. Pages of which a 16th is dead are copied together. (A store that serves asks for a quarter: it has more to do than to copy.)
//! 3. Spare pages. What lies in them beyond the budget is evicted by the writes that follow, and counted as theirs.
//! 4. Keys with a deadline go, the soonest first. They are what a clock that was set back has brought to life again, and what whoever wrote
//!    them expects to go.
//! 5. The oldest page goes, as in a store that serves.
//!
//! What has gone in steps 4 and 5 may be read a second time, when all deletions have been applied, and then takes only room that is there.
//!
//! So the store may take its whole budget on the way, also where it had less because points had the memory. At the end what is alive is
//! copied together and the free pages are given back ([`Writer::compact_restored`]): the points are read after it.

use super::pages::Pages;
use super::table::EntryOffset;
use super::writer::{Restoring, Writer};

/// Reading what was displaced again pays where more than this part of the budget is free.
const FREE_PART: usize = 16;

/// Keys with a deadline go until this part of the budget is free.
const SHED_PART: usize = 8;

impl Writer {
    /// From now on, until [`Self::finish_restore`], room is made as befits a store that is being read.
    pub fn begin_restore(&mut self) {
        self.restoring = Some(Restoring::Displacing);
    }

    /// Everything has been applied once. Whether what was displaced on the way is worth reading again: then it takes only room that is
    /// there, and what does not fit is refused as [`super::StoreError::Full`].
    pub fn refill(&mut self) -> bool {
        self.restoring = Some(Restoring::Filling);
        let all = Pages::addressed(self.pages.budget()) - self.pages.withheld();
        self.pages.live() < all * self.pages.page_words() / FREE_PART * (FREE_PART - 1)
    }

    /// Everything has been applied. Of the keys that were evicted since [`Self::begin_restore`] those in `evicted` have not come back; the
    /// statistics count no others.
    pub fn finish_restore(&mut self, evicted: u64) {
        self.restoring = None;
        let stats = &mut self.stats;
        // The bytes of each evicted key are not known any more, so the sum is reduced in proportion.
        let share = evicted as f64 / stats.evictions_live.max(1) as f64;
        stats.evicted_live_bytes = (stats.evicted_live_bytes as f64 * share) as u64;
        stats.evictions = stats.evictions.saturating_sub(stats.evictions_live) + evicted;
        stats.evictions_live = evicted;
    }

    /// After [`Self::finish_restore`], until it returns false: copies what is alive of one page together with others, if enough of it is dead.
    /// The last call gives the memory of free pages back. It comes after at most 16 copies for each page that was read, since every copy
    /// leaves a sixteenth of a page less that is dead.
    pub fn compact_restored(&mut self, now_ms: u64) -> bool {
        self.pages.poll(&self.shared.words);
        if self.compact_one(now_ms) {
            return true;
        }
        self.pages.release_free(&self.shared.words);
        false
    }

    /// Evicts keys with the soonest deadlines, up to a power of two of milliseconds from now, about [`SHED_PART`] of the budget. `false`
    /// when no key has one.
    pub(super) fn shed(&mut self, now_ms: u64) -> bool {
        let class_of =
            |deadline_ms: u64| (u64::BITS - deadline_ms.saturating_sub(now_ms).leading_zeros()) as usize;
        let mut words_of_class = [0; u64::BITS as usize + 1];
        let page_words = self.pages.page_words();
        for bucket in 0..self.index.table().count() {
            for place in self.index.places_in(bucket) {
                let entry = self.shared.entry(place);
                if entry.deadline_ms() != 0 {
                    let head = entry.head();
                    words_of_class[class_of(entry.deadline_ms())] +=
                        head.words(page_words) + head.bodies() * page_words;
                }
            }
        }
        let wanted = self.pages.budget() * page_words / SHED_PART;
        let (mut found, mut last) = (0, None);
        for (class, words) in words_of_class.into_iter().enumerate().filter(|(_, words)| *words > 0) {
            last = Some(class);
            found += words;
            if found >= wanted {
                break;
            }
        }
        let Some(last) = last else { return false };
        // A page that is half copied would be nobody's.
        self.abandon_drain();
        let mut places: Vec<EntryOffset> = Vec::new();
        for bucket in 0..self.index.table().count() {
            places.clear();
            places.extend(self.index.places_in(bucket).filter(|&place| {
                let deadline_ms = self.shared.entry(place).deadline_ms();
                deadline_ms != 0 && class_of(deadline_ms) <= last
            }));
            for &place in &places {
                let hash = self.shared.hash_at(place, &mut self.key);
                let Some((slot, _)) = self.index.find(hash, |found| found == place) else { continue };
                let words = self.shared.head(place).words(page_words);
                self.displace(slot, place, true, words);
            }
        }
        true
    }
}
