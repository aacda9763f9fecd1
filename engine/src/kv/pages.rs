//! The owner's book of pages: which is being written, which are full, free, or waiting for their readers.
//!
//! ```text
//! fresh, free -> open -> closed -> (emptied) -> waiting -> free        entries, one after the other
//! fresh, free -> body                        -> waiting -> free        part of one long value
//! ```
//!
//! # Invariants
//!
//! 1. A page is given out again only when no reader that could reach its content is pinned (`memory::quiescence`): nothing leads
//!    to a page when it is retired.
//! 2. Free, waiting and used pages together are as many as the budget has, but for *spare* ones: address space beyond the
//!    budget, taken only while readers hold up the reuse of pages that are empty already, and given back to the system as
//!    soon as they let go.
//! 3. A *fresh* page has no memory, and is given some when whoever counts the memory of the process grants it ([`Grow`]). Where that is
//!    refused the store is at capacity with the pages that it has.
//!    Free pages lose theirs when a store has been read from a disk, which may take more pages on the way than what is read needs.
//! 4. What tables take is taken from the pages: so many of the budget are *withheld*, without memory.
//! 5. `live` of a page is the number of words of its entries that the table leads to.

use super::entry::Entry;
use super::table::EntryOffset;
use super::words::{WORD, Words};
use crate::memory::{Domain, Limbo};
use std::collections::VecDeque;
use std::sync::Arc;

/// Spare pages, as a part of the budget, and the least number of them.
const SPARE_PART: usize = 8;
const SPARE_MIN: usize = 2;

/// Dead pages beyond the live ones that nobody minds.
const WASTED_MIN: usize = 2;

/// Pages that are never withheld.
const WRITTEN_MIN: usize = 2;

/// Whether so many more bytes of memory may be taken.
pub type Grow = Arc<dyn Fn(usize) -> bool + Send + Sync>;

/// A page's number: its first word is that times the words of a page.
pub(super) type PageId = u32;

#[derive(Clone, Copy, Default)]
struct Page {
    /// Words written.
    used: usize,
    /// Words of entries that are alive.
    live: usize,
    /// Whether it is part of a long value.
    body: bool,
    /// Whether its memory has been touched since it was last given back.
    touched: bool,
}

pub(super) struct Pages {
    page_words: usize,
    budget: usize,
    domain: Arc<Domain>,
    pages: Vec<Page>,
    open: Option<PageId>,
    /// Oldest first.
    closed: VecDeque<PageId>,
    /// They have memory.
    free: Vec<PageId>,
    /// They have none.
    fresh: Vec<PageId>,
    /// How many of the fresh ones may be given memory.
    granted: usize,
    /// Who says that memory may be had; `None`: it may.
    grow: Option<Grow>,
    spare: Vec<PageId>,
    withheld: Vec<PageId>,
    /// How many are to be.
    withhold: usize,
    waiting: Limbo<PageId>,
    live: usize,
    used: usize,
    touched: usize,
}

impl Pages {
    pub(super) fn new(page_words: usize, budget: usize, domain: Arc<Domain>) -> Pages {
        let all = Self::addressed(budget);
        Pages {
            page_words,
            budget,
            domain,
            pages: vec![Page::default(); all],
            open: None,
            closed: VecDeque::new(),
            free: Vec::new(),
            // Taken from the end: lower numbers first.
            fresh: (0..budget as PageId).rev().collect(),
            granted: usize::MAX,
            grow: None,
            spare: (budget as PageId..all as PageId).rev().collect(),
            withheld: Vec::new(),
            withhold: 0,
            waiting: Limbo::new(),
            live: 0,
            used: 0,
            touched: 0,
        }
    }

    /// From now on a page is given memory only if `grow` allows it.
    pub(super) fn grow_with(&mut self, grow: Grow) {
        (self.grow, self.granted) = (Some(grow), 0);
    }

    /// Asks for memory until so many pages can be written at once, as far as there are pages without any and it is granted.
    pub(super) fn want_free(&mut self, pages: usize) {
        let Some(grow) = &self.grow else { return };
        while self.free.len() + self.granted < pages
            && self.granted < self.fresh.len()
            && grow(self.page_words * WORD)
        {
            self.granted += 1;
        }
    }

    /// Pages of address space for a budget of so many pages.
    pub(super) fn addressed(budget: usize) -> usize {
        budget + (budget / SPARE_PART).max(SPARE_MIN)
    }

    /// Words that the open page has left.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.open.map_or(0, |page| self.page_words - self.pages[page as usize].used)
    }

    /// Takes words of the open page, which has the room.
    #[inline]
    pub(super) fn append(&mut self, words: usize) -> EntryOffset {
        let open = self.open.expect("a page is open where there is room");
        let page = &mut self.pages[open as usize];
        let at = page.used;
        page.used += words;
        page.live += words;
        debug_assert!(page.used <= self.page_words);
        self.used += words;
        self.live += words;
        open as EntryOffset * self.page_words as EntryOffset + at as EntryOffset
    }

    /// Opens a free page; what the open one has left is lost until that is emptied. There is a free page, or a spare one.
    pub(super) fn turn(&mut self) {
        self.close();
        self.open = Some(self.take());
    }

    /// Closes the open page.
    pub(super) fn close(&mut self) {
        let Some(page) = self.open.take() else { return };
        if self.pages[page as usize].live == 0 {
            self.retire(page);
        } else {
            self.closed.push_back(page);
        }
    }

    /// A page for `words` words of a long value. There is a free page, or a spare one.
    pub(super) fn take_body(&mut self, words: usize) -> PageId {
        let page = self.take();
        let (used, live) = (words, words);
        self.pages[page as usize] = Page { used, live, body: true, touched: true };
        self.used += words;
        self.live += words;
        page
    }

    fn take(&mut self) -> PageId {
        let page = self.free.pop().or_else(|| self.take_fresh()).or_else(|| self.spare.pop());
        let page = page.expect("the caller has made room");
        if !self.pages[page as usize].touched {
            self.touched += 1;
        }
        self.pages[page as usize] = Page { touched: true, ..Page::default() };
        page
    }

    fn take_fresh(&mut self) -> Option<PageId> {
        if self.granted == 0 {
            return None;
        }
        let page = self.fresh.pop()?;
        if self.grow.is_some() {
            self.granted -= 1;
        }
        Some(page)
    }

    /// An entry of `words` words is not alive any more. Whether that leaves a closed page empty, and the page.
    pub(super) fn kill(&mut self, place: EntryOffset, words: usize) -> (PageId, bool) {
        let id = (place / self.page_words as EntryOffset) as PageId;
        let page = &mut self.pages[id as usize];
        page.live -= words;
        self.live -= words;
        (id, page.live == 0 && self.open != Some(id))
    }

    /// Queues a page for reuse, to which nothing leads any more. If it is closed, it must be taken out of the closed ones first.
    pub(super) fn retire(&mut self, id: PageId) {
        debug_assert!(self.open != Some(id) && !self.closed.contains(&id));
        let page = &mut self.pages[id as usize];
        self.used -= page.used;
        self.live -= page.live;
        *page = Page { touched: page.touched, ..Page::default() };
        self.waiting.push(&self.domain, id);
    }

    /// Looks which waiting pages have lost their readers.
    pub(super) fn poll(&mut self, words: &Words) {
        while let Some(page) = self.waiting.pop(&self.domain) {
            if self.pages.len() - self.spare.len() > self.budget {
                self.release(page, words);
                self.spare.push(page);
            } else {
                self.free.push(page);
                self.withhold_free(words);
            }
        }
    }

    /// Keeps whole pages for `bytes` of tables out of use from now on, as soon as there are free ones; at most half of the budget, and never
    /// so many that none can be written while another is emptied.
    pub(super) fn withhold_for(&mut self, bytes: usize, words: &Words) {
        let most = (self.budget / 2).min(self.budget.saturating_sub(WRITTEN_MIN));
        self.withhold = (bytes / (self.page_words * WORD)).min(most);
        while self.withheld.len() > self.withhold
            && let Some(page) = self.withheld.pop()
        {
            self.fresh.push(page);
        }
        self.withhold_free(words);
    }

    /// The last free page stays: without one the next write would have to empty a whole page.
    fn withhold_free(&mut self, words: &Words) {
        while self.withheld.len() < self.withhold
            && self.free.len() + self.fresh.len() > 1
            && let Some(page) = self.fresh.pop().or_else(|| self.free.pop())
        {
            self.release(page, words);
            self.withheld.push(page);
        }
    }

    /// Whether more than half of what was written is dead, and no page that was used before can be written at once.
    pub(super) fn is_wasteful(&self) -> bool {
        self.used > 2 * self.live + WASTED_MIN * self.page_words
            && self.free.is_empty()
            && self.waiting.is_empty()
    }

    /// Pages that are withheld.
    pub(super) fn withheld(&self) -> usize {
        self.withheld.len()
    }

    /// Whether fewer pages are withheld than should be.
    pub(super) fn wants_to_withhold(&self) -> bool {
        self.withheld.len() < self.withhold
    }

    fn release(&mut self, page: PageId, words: &Words) {
        if std::mem::take(&mut self.pages[page as usize].touched) {
            let first = page as usize * self.page_words;
            words.release(first, first + self.page_words);
            self.touched -= 1;
        }
    }

    /// Gives back the memory of the free pages but one: they are fresh again, and ask for memory before they are written. Without a free
    /// page the next write would have to empty a whole one where no memory is granted.
    pub(super) fn release_free(&mut self, words: &Words) {
        self.poll(words);
        while self.free.len() > 1
            && let Some(page) = self.free.pop()
        {
            self.release(page, words);
            self.fresh.push(page);
        }
        if self.grow.is_some() {
            self.granted = 0;
        }
    }

    /// Everything is dead: all pages but the open one are retired, and the open one starts anew behind what it holds.
    pub(super) fn clear(&mut self) {
        for page in 0..self.pages.len() {
            if self.pages[page].body {
                self.retire(page as PageId);
            }
        }
        while let Some(page) = self.closed.pop_front() {
            self.retire(page);
        }
        if let Some(open) = self.open {
            let page = &mut self.pages[open as usize];
            self.live -= page.live;
            page.live = 0;
        }
        debug_assert_eq!(self.live, 0);
    }

    /// Closed page that was written first; it is the caller's now.
    pub(super) fn take_oldest(&mut self) -> Option<PageId> {
        self.closed.pop_front()
    }

    /// Closed page with the fewest live words, at most `live_max` of them, and with at least `dead_min` dead ones; it is the caller's now.
    ///
    /// The end of a page that was too short for the next entry is neither live nor dead. Copying entries that leave such an end may leave it
    /// elsewhere, so that a page without dead words could be copied for ever and nothing be gained.
    pub(super) fn take_emptiest(&mut self, live_max: usize, dead_min: usize) -> Option<PageId> {
        let page = |id: PageId| &self.pages[id as usize];
        let pays = |id: PageId| page(id).live <= live_max && page(id).used - page(id).live >= dead_min;
        let paying = self.closed.iter().enumerate().filter(|&(_, &id)| pays(id));
        let (index, _) = paying.min_by_key(|&(_, &id)| page(id).live)?;
        self.closed.remove(index)
    }

    /// Closed page with the most dead words, if at least `dead_min`; it is the caller's now.
    pub(super) fn take_deadest(&mut self, dead_min: usize) -> Option<PageId> {
        let dead = |page: PageId| self.pages[page as usize].used - self.pages[page as usize].live;
        let (index, page) = self.closed.iter().enumerate().max_by_key(|(_, page)| dead(**page))?;
        (dead(*page) >= dead_min).then(|| self.closed.remove(index))?
    }

    /// Gives a closed page back, as the oldest.
    pub(super) fn put_back(&mut self, page: PageId) {
        self.closed.push_front(page);
    }

    /// Takes a page out of the closed ones; `false` when it is none.
    pub(super) fn take_closed(&mut self, page: PageId) -> bool {
        let found = self.closed.iter().position(|&closed| closed == page);
        found.and_then(|index| self.closed.remove(index)).is_some()
    }

    pub(super) fn used_of(&self, page: PageId) -> usize {
        self.pages[page as usize].used
    }

    pub(super) fn live_of(&self, page: PageId) -> usize {
        self.pages[page as usize].live
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Pages that can be written at once.
    pub(super) fn free(&self) -> usize {
        self.free.len() + self.granted.min(self.fresh.len())
    }

    /// Pages that are not written, with memory or without.
    pub(super) fn unwritten(&self) -> usize {
        self.free.len() + self.fresh.len()
    }

    pub(super) fn spare(&self) -> usize {
        self.spare.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn budget(&self) -> usize {
        self.budget
    }

    pub(super) fn page_words(&self) -> usize {
        self.page_words
    }

    /// Words written in pages that are in use, dead entries included.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Words of live entries and long values.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Pages that take memory, the free ones that were used before included.
    pub(super) fn touched(&self) -> usize {
        self.touched
    }
}

/// Pages of a long value.
pub(super) fn bodies_of<'a>(entry: &Entry<'a>) -> impl Iterator<Item = PageId> + 'a {
    entry.bodies().iter().map(|cell| cell.load(crate::memory::sync::Ordering::Relaxed) as PageId)
}
