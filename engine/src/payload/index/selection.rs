//! Sets of slots described by terms: how many they are, and walks over them that stop early.

use super::key::{KeyRef, Span};
use super::postings::{Cursor, Postings};
use super::tree::Tree;
use crate::distance::prefetch_line;
use crate::slot::Slot;
use std::ops::ControlFlow;
use std::rc::Rc;

/// Terms up to this number are walked side by side; more are merged first.
const SIDE_BY_SIDE: usize = 8;
/// Terms whose parts are fetched together.
const TOGETHER: usize = 32;

/// The slots of all terms in some spans of dictionaries.
#[derive(Clone, Default)]
pub(crate) struct Terms<'p> {
    /// Looked up already.
    single: Vec<&'p Postings>,
    spans: Vec<(&'p Tree<Postings>, Span)>,
    postings: u64,
    terms: u64,
}

/// A set of slots, not looked up yet.
#[derive(Clone)]
pub(crate) enum Selection<'p> {
    /// Of some terms.
    Terms(Terms<'p>),
    /// In every one of these; not empty.
    All(Vec<Selection<'p>>),
    /// In any of these.
    Any(Vec<Selection<'p>>),
    /// In so many of these at least: more than one, and fewer than there are.
    AtLeast(usize, Vec<Selection<'p>>),
    /// Found before.
    Marked(Rc<Marked>),
    /// Found before, ascending: few beside all slots.
    Listed(Rc<[Slot]>),
    /// Every other slot, empty ones included. It cannot be walked, only marked.
    Not(Box<Selection<'p>>),
}

/// Slots as a bitset.
#[derive(Debug)]
pub(crate) struct Marked {
    words: Vec<u64>,
    slots: u64,
}

impl Marked {
    /// None of the slots below `end`.
    pub fn empty(end: usize) -> Marked {
        Marked { words: vec![0; end.div_ceil(64)], slots: 0 }
    }

    /// Adds those of a selection.
    pub fn add(&mut self, selection: &Selection<'_>) {
        selection.mark(&mut self.words);
    }

    /// Counts them, after the last was added.
    pub fn count(&mut self) {
        self.slots = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
    }

    /// Appends up to `max` of them from `from` on, ascending.
    fn append_to(&self, from: Slot, max: usize, slots: &mut Vec<Slot>) {
        let end = slots.len() + max;
        let mut mask = u64::MAX << (from % 64);
        for (index, word) in self.words.iter().enumerate().skip(from as usize / 64) {
            let mut left = word & mask;
            mask = u64::MAX;
            while left != 0 {
                if slots.len() >= end {
                    return;
                }
                slots.push(index as Slot * 64 + left.trailing_zeros());
                left &= left - 1;
            }
        }
    }

    /// The first at or after `from`.
    fn next(&self, from: Slot) -> Option<Slot> {
        let first = from as usize / 64;
        let mut word = self.words.get(first)? & (u64::MAX << (from % 64));
        let mut index = first;
        while word == 0 {
            index += 1;
            word = *self.words.get(index)?;
        }
        Some(index as Slot * 64 + word.trailing_zeros())
    }
}

impl<'p> Terms<'p> {
    /// Slots under all terms, those under several as often.
    pub fn postings(&self) -> u64 {
        self.postings
    }

    /// Adds a term of a dictionary of numbers. The dictionary was reached under the pin that `'p` stands for.
    pub(super) fn add_number(&mut self, tree: &'p Tree<Postings>, number: u64) {
        // SAFETY: the pin of the `View` that calls this; it outlives `'p`.
        self.add_found(unsafe { tree.get_number(number) });
    }

    /// Adds a term; whether there is such a term. The dictionary was reached under the pin that `'p` stands for.
    pub(super) fn add_key(&mut self, tree: &'p Tree<Postings>, key: KeyRef<'_>) -> bool {
        // SAFETY: the pin of the `View` that calls this; it outlives `'p`.
        let found = unsafe { tree.get(key) };
        self.add_found(found);
        found.is_some()
    }

    /// Adds a set of `slots` slots, reached under the pin that `'p` stands for.
    pub(super) fn add_set(&mut self, postings: &'p Postings, slots: u64) {
        self.add_found(Some((postings, slots)));
    }

    fn add_found(&mut self, found: Option<(&'p Postings, u64)>) {
        if let Some((postings, weight)) = found
            && weight > 0
        {
            self.terms += 1;
            self.postings += weight;
            self.single.push(postings);
        }
    }

    /// Adds a span. The dictionary was reached under the pin that `'p` stands for.
    pub(super) fn add(&mut self, tree: &'p Tree<Postings>, span: Span) {
        // SAFETY: the pin of the `View` that calls this.
        let postings = unsafe { tree.weight_of(&span) };
        if postings > 0 {
            // Terms in the span: as many per posting as in the whole dictionary.
            self.terms += (postings as f64 / tree.weight().max(1) as f64 * tree.keys() as f64).ceil() as u64;
            self.postings += postings;
            self.spans.push((tree, span));
        }
    }

    /// Visits all terms, their parts fetched ahead: each lies somewhere else.
    fn for_each(&self, mut visit: impl FnMut(Cursor<'p>) -> ControlFlow<()>) -> ControlFlow<()> {
        for together in self.single.chunks(TOGETHER) {
            // SAFETY: reached under the pin of the `View` that made these terms, which outlives `'p`.
            unsafe { visit_together(together, &mut visit) }?;
        }
        let mut together = Vec::new();
        for (tree, span) in &self.spans {
            // SAFETY: the pin of the `View` that made these terms outlives `'p`; what the walk visits was reached under it.
            unsafe {
                tree.for_each(span, &mut |postings| {
                    together.push(postings);
                    if together.len() < TOGETHER {
                        return ControlFlow::Continue(());
                    }
                    let visited = visit_together(&together, &mut visit);
                    together.clear();
                    visited
                })
            }?;
        }
        // SAFETY: visited just now by the walk above.
        unsafe { visit_together(&together, &mut visit) }
    }
}

/// One step of every term before the next: a term is four misses in a row, and those of others are waited for meanwhile.
///
/// # Safety
/// As [`Postings::cursor`], for each of at most [`TOGETHER`] postings.
unsafe fn visit_together<'p>(
    together: &[&'p Postings],
    visit: &mut impl FnMut(Cursor<'p>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    // SAFETY: the caller's.
    let cursor = |postings: &&'p Postings| unsafe { postings.cursor() };
    if let [postings] = together {
        return visit(cursor(postings));
    }
    together.iter().for_each(|postings| prefetch_line::<Postings>(*postings));
    together.iter().for_each(|postings| postings.prefetch());
    let mut cursors = [Cursor::One(None); TOGETHER];
    let cursors = &mut cursors[..together.len()];
    for (place, postings) in cursors.iter_mut().zip(together) {
        *place = cursor(postings);
        place.prefetch();
    }
    for step in 0..2 {
        cursors.iter().for_each(|cursor| cursor.prefetch_containers(step));
    }
    cursors.iter().try_for_each(|cursor| visit(*cursor))
}

impl<'p> Selection<'p> {
    /// No slot.
    pub fn nothing() -> Self {
        Selection::Terms(Terms::default())
    }

    /// The slots in `wanted` of the parts at least; one at least, and no more than there are.
    pub fn at_least(wanted: usize, mut parts: Vec<Selection<'p>>) -> Self {
        match wanted {
            1 if parts.len() == 1 => parts.remove(0),
            1 => Selection::Any(parts),
            wanted if wanted == parts.len() => Selection::All(parts),
            wanted => Selection::AtLeast(wanted, parts),
        }
    }

    /// The set holds no more slots than this. Costs nothing to speak of.
    pub fn at_most(&self) -> u64 {
        match self {
            Selection::Terms(terms) => terms.postings,
            Selection::All(parts) => parts.iter().map(Selection::at_most).min().unwrap_or(0),
            Selection::Any(parts) => parts.iter().map(Selection::at_most).fold(0, u64::saturating_add),
            Selection::AtLeast(wanted, parts) => {
                let mut sizes: Vec<u64> = parts.iter().map(Selection::at_most).collect();
                sizes.sort_unstable();
                // What is in none of the smallest ones is in too few.
                let few = sizes.len() + 1 - wanted;
                let smallest = sizes[..few].iter().copied().fold(0, u64::saturating_add);
                // Each slot takes up as many places as are wanted.
                let all = sizes.iter().copied().fold(0, u64::saturating_add);
                if all == u64::MAX { smallest } else { smallest.min(all / *wanted as u64) }
            }
            Selection::Marked(marked) => marked.slots,
            Selection::Listed(listed) => listed.len() as u64,
            Selection::Not(_) => u64::MAX,
        }
    }

    /// Share of `slots` in the set, were its parts independent.
    pub fn share(&self, slots: u64) -> f64 {
        match self {
            Selection::Terms(terms) => (terms.postings as f64 / slots.max(1) as f64).min(1.0),
            Selection::Marked(_) | Selection::Listed(_) => {
                (self.at_most() as f64 / slots.max(1) as f64).min(1.0)
            }
            Selection::All(parts) => parts.iter().map(|part| part.share(slots)).product(),
            Selection::Any(parts) => 1.0 - parts.iter().map(|part| 1.0 - part.share(slots)).product::<f64>(),
            Selection::AtLeast(wanted, parts) => {
                // The share of what is in so many of the parts so far, up to `wanted` of them.
                let mut shares = vec![0.0; wanted + 1];
                shares[0] = 1.0;
                for part in parts.iter().map(|part| part.share(slots)) {
                    shares[*wanted] += shares[wanted - 1] * part;
                    for count in (1..*wanted).rev() {
                        shares[count] += part * (shares[count - 1] - shares[count]);
                    }
                    shares[0] *= 1.0 - part;
                }
                shares[*wanted]
            }
            Selection::Not(part) => 1.0 - part.share(slots),
        }
    }

    /// Terms to be visited to look all of it up.
    pub fn terms(&self) -> u64 {
        match self {
            Selection::Terms(terms) => terms.terms,
            Selection::Marked(_) | Selection::Listed(_) => 0,
            Selection::All(parts) | Selection::Any(parts) | Selection::AtLeast(_, parts) => {
                parts.iter().map(Selection::terms).sum()
            }
            Selection::Not(part) => part.terms(),
        }
    }

    /// Postings to be visited to look all of it up.
    pub fn postings(&self) -> u64 {
        match self {
            Selection::Terms(terms) => terms.postings,
            Selection::Marked(_) | Selection::Listed(_) => self.at_most(),
            Selection::All(parts) | Selection::Any(parts) | Selection::AtLeast(_, parts) => {
                parts.iter().map(Selection::postings).sum()
            }
            Selection::Not(part) => part.postings(),
        }
    }

    /// Whether looking it up costs less than to ask about each of the `at_most` slots that others leave.
    fn is_worth_a_walk(&self, at_most: u64) -> bool {
        self.terms() <= SIDE_BY_SIDE as u64 || self.postings() <= at_most.saturating_mul(2)
    }

    /// Slots that a walk collects at most, but for those of parts that lie side by side.
    pub fn collected(&self) -> u64 {
        let beside = self.at_most().saturating_mul(3);
        match self {
            Selection::AtLeast(wanted, parts) => {
                let (leads, others) = leads_of(*wanted, parts);
                let of = |parts: &[&Selection<'_>]| parts.iter().map(|part| part.postings()).sum::<u64>();
                of(&leads).saturating_add(of(&others).min(beside))
            }
            _ => self.postings().min(beside),
        }
    }

    /// Parts that marking counts bit by bit.
    pub fn counted_parts(&self) -> u64 {
        match self {
            Selection::Terms(_) | Selection::Marked(_) | Selection::Listed(_) => 0,
            Selection::All(parts) | Selection::Any(parts) => parts.iter().map(Selection::counted_parts).sum(),
            Selection::AtLeast(_, parts) => parts.iter().map(|part| 1 + part.counted_parts()).sum(),
            Selection::Not(part) => part.counted_parts(),
        }
    }

    /// Sets that count parts and lie within each other: marking holds some bitsets for each.
    pub fn counting_depth(&self) -> usize {
        let deepest =
            |parts: &[Selection<'_>]| parts.iter().map(Selection::counting_depth).max().unwrap_or(0);
        match self {
            Selection::Terms(_) | Selection::Marked(_) | Selection::Listed(_) => 0,
            Selection::All(parts) | Selection::Any(parts) => deepest(parts),
            Selection::AtLeast(_, parts) => 1 + deepest(parts),
            Selection::Not(part) => part.counting_depth(),
        }
    }

    /// Whether any part of it is what others leave.
    pub fn has_complement(&self) -> bool {
        match self {
            Selection::Terms(_) | Selection::Marked(_) | Selection::Listed(_) => false,
            Selection::All(parts) | Selection::Any(parts) | Selection::AtLeast(_, parts) => {
                parts.iter().any(Selection::has_complement)
            }
            Selection::Not(_) => true,
        }
    }

    /// Searches in dictionaries that looking all of it up begins with.
    pub fn spans(&self) -> usize {
        match self {
            Selection::Terms(terms) => terms.spans.len(),
            Selection::Marked(_) | Selection::Listed(_) => 0,
            Selection::All(parts) | Selection::Any(parts) | Selection::AtLeast(_, parts) => {
                parts.iter().map(Selection::spans).sum()
            }
            Selection::Not(part) => part.spans(),
        }
    }

    /// Adds the slots below `64 * words.len()` to a bitset.
    pub fn mark(&self, words: &mut [u64]) {
        match self {
            Selection::Terms(terms) => {
                let _ = terms.for_each(|cursor| {
                    cursor.mark(words);
                    ControlFlow::Continue(())
                });
            }
            Selection::Marked(marked) => {
                words.iter_mut().zip(&marked.words).for_each(|(word, more)| *word |= more);
            }
            Selection::Listed(listed) => {
                for &slot in listed.iter() {
                    // A slot beyond the end was born after the words were counted out.
                    if let Some(word) = words.get_mut(slot as usize / 64) {
                        *word |= 1 << (slot % 64);
                    }
                }
            }
            Selection::Any(parts) => parts.iter().for_each(|part| part.mark(words)),
            Selection::All(parts) => {
                let mut all = vec![0; words.len()];
                let mut one = Vec::new();
                for (index, part) in parts.iter().enumerate() {
                    if index == 0 {
                        part.mark(&mut all);
                        continue;
                    }
                    one.clear();
                    one.resize(words.len(), 0);
                    part.mark(&mut one);
                    all.iter_mut().zip(&one).for_each(|(word, other)| *word &= other);
                }
                words.iter_mut().zip(&all).for_each(|(word, more)| *word |= more);
            }
            Selection::AtLeast(wanted, parts) => mark_at_least(*wanted, parts, words),
            Selection::Not(part) => {
                let mut others = vec![0; words.len()];
                part.mark(&mut others);
                words.iter_mut().zip(&others).for_each(|(word, other)| *word |= !other);
            }
        }
    }

    /// A walk over the set in ascending order of slots, and whether it yields nothing else; `None` when more than `limit` slots
    /// would have to be collected first. Of an intersection the smallest part leads, of several of many those without which there would be too
    /// few; other parts that would cost more to look up than to check slot by slot are left out, and then the walk yields more.
    pub fn walk(&self, limit: usize) -> Option<(Walk<'p>, bool)> {
        match self {
            Selection::Terms(terms) => Some((terms.walk(limit)?, true)),
            Selection::Marked(marked) => Some((Walk::Marked(marked.clone()), true)),
            Selection::Listed(listed) => {
                let slots: Vec<Slot> = listed.iter().copied().collect();
                Some((Walk::Listed(slots.into_iter()), true))
            }
            Selection::Any(parts) => {
                let mut exact = true;
                let mut walks = Vec::with_capacity(parts.len());
                for part in parts {
                    let (walk, part_exact) = part.walk(limit)?;
                    exact &= part_exact;
                    walks.push(walk);
                }
                Some((Walk::Any(walks), exact))
            }
            Selection::All(parts) => {
                let mut order: Vec<&Selection<'p>> = parts.iter().collect();
                order.sort_by_key(|part| part.at_most());
                let (lead, others) = order.split_first()?;
                let (lead_walk, mut exact) = lead.walk(limit)?;
                let mut walks = vec![lead_walk];
                for part in others {
                    let is_worth = part.is_worth_a_walk(lead.at_most());
                    match is_worth.then(|| part.walk(limit)).flatten() {
                        Some((walk, part_exact)) => {
                            exact &= part_exact;
                            walks.push(walk);
                        }
                        None => exact = false,
                    }
                }
                Some((Walk::All(walks), exact))
            }
            Selection::AtLeast(wanted, parts) => {
                let (leads, others) = leads_of(*wanted, parts);
                let at_most = self.at_most();
                let others = others.iter().filter(|part| part.is_worth_a_walk(at_most));
                let mut exact = true;
                let mut walks = Vec::with_capacity(parts.len());
                for (walk, part_exact) in leads.iter().chain(others).filter_map(|part| part.walk(limit)) {
                    exact &= part_exact;
                    walks.push(walk);
                }
                // What is not walked may hold every slot.
                let unknown = parts.len() - walks.len();
                let wanted = wanted.checked_sub(unknown).filter(|wanted| *wanted > 0)?;
                let places = Vec::with_capacity(walks.len());
                Some((Walk::AtLeast(Meeting { wanted, walks, places }), exact && unknown == 0))
            }
            Selection::Not(_) => None,
        }
    }
}

/// The smallest parts, one of which has each slot that is in `wanted` of all parts, and the others.
fn leads_of<'s, 'p>(
    wanted: usize,
    parts: &'s [Selection<'p>],
) -> (Vec<&'s Selection<'p>>, Vec<&'s Selection<'p>>) {
    let mut leads: Vec<&Selection<'p>> = parts.iter().collect();
    leads.sort_by_key(|part| part.at_most());
    let others = leads.split_off(parts.len() + 1 - wanted);
    (leads, others)
}

/// Marks the slots that are in `wanted` of the parts at least: of each slot the parts are counted in binary, a plane of bits for each digit.
fn mark_at_least(wanted: usize, parts: &[Selection<'_>], words: &mut [u64]) {
    let digits = usize::BITS - parts.len().leading_zeros();
    let mut planes = vec![vec![0u64; words.len()]; digits as usize];
    let mut one = vec![0; words.len()];
    for part in parts {
        one.fill(0);
        part.mark(&mut one);
        for (index, &word) in one.iter().enumerate() {
            let mut carry = word;
            for plane in &mut planes {
                if carry == 0 {
                    break;
                }
                let digit = &mut plane[index];
                (*digit, carry) = (*digit ^ carry, *digit & carry);
            }
        }
    }
    for (index, word) in words.iter_mut().enumerate() {
        // From the highest digit down: counts that are above, and those that are equal so far.
        let (mut above, mut equal) = (0, u64::MAX);
        for (place, plane) in planes.iter().enumerate().rev() {
            let digit = plane[index];
            if wanted >> place & 1 == 1 {
                equal &= digit;
            } else {
                above |= equal & digit;
                equal &= !digit;
            }
        }
        *word |= above | equal;
    }
}

impl<'p> Terms<'p> {
    fn walk(&self, limit: usize) -> Option<Walk<'p>> {
        let mut cursors = Vec::new();
        let few = self.for_each(|cursor| {
            cursors.push(cursor);
            if cursors.len() > SIDE_BY_SIDE { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if few.is_continue() {
            return Some(match cursors[..] {
                [cursor] => Walk::Term(cursor),
                _ => Walk::Any(cursors.into_iter().map(Walk::Term).collect()),
            });
        }
        let mut slots = Vec::with_capacity((self.postings as usize).min(limit));
        let within = self.for_each(|cursor| {
            cursor.for_each(|slot| slots.push(slot));
            if slots.len() > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        within.is_continue().then(|| {
            slots.sort_unstable();
            slots.dedup();
            Walk::Listed(slots.into_iter())
        })
    }
}

/// [`Walk::part`] of an intersection.
fn part_of_all(
    walks: &mut [Walk<'_>],
    mut from: Slot,
    end: Slot,
    looks: usize,
    slots: &mut Vec<Slot>,
) -> Option<Slot> {
    let (lead, others) = walks.split_first_mut()?;
    'next: for _ in 0..looks {
        let slot = lead.seek(from).filter(|&slot| slot < end)?;
        for other in others.iter_mut() {
            let at = other.seek(slot)?;
            if at > slot {
                from = at;
                continue 'next;
            }
        }
        slots.push(slot);
        from = slot.checked_add(1)?;
    }
    (from < end).then_some(from)
}

/// A walk over a set by ascending slots.
pub(crate) enum Walk<'p> {
    /// The slots of a term.
    Term(Cursor<'p>),
    /// Slots collected before.
    Listed(std::vec::IntoIter<Slot>),
    /// Slots of a bitset.
    Marked(Rc<Marked>),
    /// Slots that any walk yields.
    Any(Vec<Walk<'p>>),
    /// Slots that every walk yields; the first leads.
    All(Vec<Walk<'p>>),
    /// Slots that so many walks yield at least.
    AtLeast(Meeting<'p>),
}

/// Walks side by side, of which so many have to be at a slot: one at least, and no more than there are.
pub(crate) struct Meeting<'p> {
    wanted: usize,
    walks: Vec<Walk<'p>>,
    /// Where they are, in no order; room that is used again.
    places: Vec<Slot>,
}

/// What one look at all walks says.
enum Met {
    /// Enough of them are at this slot.
    At(Slot),
    /// There are not enough at any slot before this one.
    NotBefore(Slot),
}

impl Meeting<'_> {
    /// One look at the slots from `from` on; `None` at the end.
    fn meet(&mut self, from: Slot) -> Option<Met> {
        let Meeting { wanted, walks, places } = self;
        places.clear();
        places.extend(walks.iter_mut().filter_map(|walk| walk.seek(from)));
        let first = places.iter().copied().min()?;
        let last = wanted.checked_sub(1).filter(|last| *last < places.len())?;
        let (_, &mut place, _) = places.select_nth_unstable(last);
        Some(if place == first { Met::At(place) } else { Met::NotBefore(place) })
    }

    fn seek(&mut self, mut from: Slot) -> Option<Slot> {
        loop {
            match self.meet(from)? {
                Met::At(slot) => return Some(slot),
                Met::NotBefore(slot) => from = slot,
            }
        }
    }

    /// [`Walk::part`].
    fn part(&mut self, mut from: Slot, end: Slot, looks: usize, slots: &mut Vec<Slot>) -> Option<Slot> {
        for _ in 0..looks {
            from = match self.meet(from)? {
                Met::At(slot) | Met::NotBefore(slot) if slot >= end => return None,
                Met::At(slot) => {
                    slots.push(slot);
                    slot.checked_add(1)?
                }
                Met::NotBefore(slot) => slot,
            };
        }
        (from < end).then_some(from)
    }
}

impl Walk<'_> {
    /// The first slot at or after `from`; `from` must not fall below what was returned last.
    pub fn seek(&mut self, from: Slot) -> Option<Slot> {
        match self {
            Walk::Term(cursor) => cursor.seek(from),
            Walk::Listed(slots) => {
                let rest = slots.as_slice();
                // Mostly the next one; else a leap.
                let skip = match rest {
                    [first, ..] if *first >= from => 0,
                    [_, second, ..] if *second >= from => 1,
                    _ => rest.partition_point(|&slot| slot < from),
                };
                if skip > 0 {
                    slots.nth(skip - 1);
                }
                slots.as_slice().first().copied()
            }
            Walk::Marked(marked) => marked.next(from),
            Walk::Any(walks) => walks.iter_mut().filter_map(|walk| walk.seek(from)).min(),
            Walk::All(walks) => {
                let (lead, others) = walks.split_first_mut()?;
                let mut slot = lead.seek(from)?;
                'next: loop {
                    for other in others.iter_mut() {
                        let at = other.seek(slot)?;
                        if at > slot {
                            slot = lead.seek(at)?;
                            continue 'next;
                        }
                    }
                    return Some(slot);
                }
            }
            Walk::AtLeast(meeting) => meeting.seek(from),
        }
    }

    /// Appends the slots from `from` on below `end` in ascending order, after at most `looks` looks (each at a slot, or at one of
    /// the part that leads; an intersection within a union or another intersection takes as many as it needs); where to go on, `None` at the end. `from` must not fall below what was returned last.
    pub fn part(&mut self, from: Slot, end: Slot, looks: usize, slots: &mut Vec<Slot>) -> Option<Slot> {
        let first = slots.len();
        match self {
            Walk::Term(cursor) => cursor.append_to(from, looks, slots),
            Walk::Listed(listed) => {
                let rest = listed.as_slice();
                let skipped = rest.partition_point(|&slot| slot < from);
                slots.extend(rest[skipped..].iter().take(looks));
                if let Some(taken) = (skipped + slots.len() - first).checked_sub(1) {
                    listed.nth(taken);
                }
            }
            Walk::Marked(marked) => marked.append_to(from, looks, slots),
            Walk::Any(_) => {
                let mut next = Some(from);
                while slots.len() < first + looks
                    && let Some(slot) = next.and_then(|from| self.seek(from))
                {
                    slots.push(slot);
                    next = slot.checked_add(1);
                }
            }
            Walk::All(walks) => return part_of_all(walks, from, end, looks, slots),
            Walk::AtLeast(meeting) => return meeting.part(from, end, looks, slots),
        }
        let last = slots[first..].last().filter(|_| slots.len() == first + looks).copied();
        let inside = slots[first..].partition_point(|&slot| slot < end);
        slots.truncate(first + inside);
        last.and_then(|last| last.checked_add(1)).filter(|&next| next < end)
    }

    /// Whether making it again costs little: nothing was collected for it.
    pub fn is_lazy(&self) -> bool {
        match self {
            Walk::Term(_) => true,
            Walk::Listed(_) | Walk::Marked(_) => false,
            Walk::Any(walks) | Walk::All(walks) | Walk::AtLeast(Meeting { walks, .. }) => {
                walks.iter().all(Walk::is_lazy)
            }
        }
    }

    /// The slots from `from` on below `end`.
    pub fn rest(mut self, from: Slot, end: Slot) -> Vec<Slot> {
        let first = self.seek(from);
        match self {
            Walk::Listed(slots) => slots.as_slice().to_vec(),
            walk => first.map_or_else(Vec::new, |first| walk.below_from(first, end).collect()),
        }
    }

    fn below_from(mut self, from: Slot, end: Slot) -> impl Iterator<Item = Slot> {
        let mut from = Some(from);
        std::iter::from_fn(move || {
            let slot = self.seek(from?).filter(|&slot| slot < end)?;
            from = slot.checked_add(1);
            Some(slot)
        })
    }
}
