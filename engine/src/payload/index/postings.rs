//! The slots that hold one term: one slot inline, few in a sorted array, many in containers.
//!
//! Most terms of most fields are held by one or a few slots, so the small forms decide what a dictionary weighs.

use super::container::{AtomicValue, Change, Container, Sorted};
use crate::distance::{prefetch_line, prefetch_row};
use crate::memory::{Attic, Held, Link, LinkCell, allocated};
use crate::slot::Slot;
use std::sync::atomic::{AtomicU32, Ordering};

/// Longest plain array; a slot takes 4 bytes there, 2 and a share of its container beyond.
const FEW_MAX: usize = 128;
/// `one` of a set that is empty.
const NONE: Slot = Slot::MAX;
/// Containers of a term that are asked for ahead.
const PARTS_AHEAD: usize = 4;

/// A set of slots. Readers see it through a [`Cursor`].
pub(crate) struct Postings {
    /// The only member while there is no `set`. It stays when the set is made: a reader may have seen no set yet.
    one: AtomicU32,
    set: LinkCell<Set>,
}

enum Set {
    Few(Sorted<AtomicU32>),
    /// Ascending by `high`.
    Many(Box<[Part]>),
}

pub(crate) struct Part {
    high: u16,
    container: LinkCell<Container>,
}

impl Held for Set {
    fn held_bytes(&self) -> usize {
        allocated(size_of::<Self>())
            + match self {
                Set::Few(array) => array.heap_bytes(),
                Set::Many(parts) => allocated(size_of_val(&**parts)),
            }
    }
}

impl Part {
    fn new(high: u16, container: Link<Container>) -> Part {
        Part { high, container: LinkCell::new(Some(container)) }
    }

    /// # Safety
    /// As `Link::get`.
    unsafe fn container<'a>(&self) -> &'a Container {
        // SAFETY: the caller's.
        unsafe { self.link().get() }
    }

    fn link(&self) -> Link<Container> {
        self.container.load().expect("a part has a container")
    }

    fn copy(&self) -> Part {
        Part { high: self.high, container: LinkCell::new(self.container.load()) }
    }
}

fn split(slot: Slot) -> (u16, u16) {
    ((slot >> 16) as u16, slot as u16)
}

impl Postings {
    pub fn new() -> Postings {
        Postings { one: AtomicU32::new(NONE), set: LinkCell::new(None) }
    }

    /// Owner: adds a slot; false when it was there.
    ///
    /// # Safety
    /// `attic` is the one that made the parts of this set, and its domain that of the readers.
    pub unsafe fn insert(&self, slot: Slot, attic: &mut Attic) -> bool {
        let Some(link) = self.set.load() else {
            let one = self.one.load(Ordering::Relaxed);
            if one == slot {
                return false;
            }
            if one == NONE {
                self.one.store(slot, Ordering::Release);
            } else {
                let both = [one.min(slot), one.max(slot)];
                let few = attic.make(Set::Few(Sorted::of(both.into_iter(), 2, FEW_MAX)));
                self.set.store(Some(few));
            }
            return true;
        };
        // SAFETY: linked from here and not retired; we are the owner and reclaim nothing while we look.
        match unsafe { link.get() } {
            Set::Few(few) if few.append(slot) => true,
            Set::Few(few) if few.contains(slot) => false,
            Set::Few(few) => {
                let set = if few.len() < FEW_MAX {
                    Set::Few(few.with(slot, FEW_MAX))
                } else {
                    let mut slots: Vec<Slot> = few.values().iter().map(AtomicValue::get).collect();
                    slots.insert(few.position(slot), slot);
                    Set::Many(
                        slots
                            .chunk_by(|a, b| a >> 16 == b >> 16)
                            .map(|chunk| {
                                let low: Vec<u16> = chunk.iter().map(|&slot| slot as u16).collect();
                                Part::new((chunk[0] >> 16) as u16, attic.make(Container::of(&low)))
                            })
                            .collect(),
                    )
                };
                self.replace(link, set, attic);
                true
            }
            Set::Many(parts) => {
                let (high, low) = split(slot);
                match parts.binary_search_by_key(&high, |part| part.high) {
                    // SAFETY: as above.
                    Ok(at) => match unsafe { parts[at].container() }.insert(low) {
                        Change::Replace(container) => {
                            replace_container(&parts[at], container, attic);
                            true
                        }
                        change => !matches!(change, Change::None),
                    },
                    Err(at) => {
                        let mut more: Vec<Part> = parts.iter().map(Part::copy).collect();
                        more.insert(at, Part::new(high, attic.make(Container::of(&[low]))));
                        self.replace(link, Set::Many(more.into()), attic);
                        true
                    }
                }
            }
        }
    }

    /// Owner: takes a slot out; false when it was not there.
    ///
    /// # Safety
    /// As [`Self::insert`].
    pub unsafe fn remove(&self, slot: Slot, attic: &mut Attic) -> bool {
        let Some(link) = self.set.load() else {
            let was = self.one.load(Ordering::Relaxed) == slot;
            if was {
                self.one.store(NONE, Ordering::Relaxed);
            }
            return was;
        };
        // SAFETY: as in `insert`.
        match unsafe { link.get() } {
            Set::Few(few) if !few.contains(slot) => false,
            Set::Few(few) => {
                self.replace(link, Set::Few(few.without(slot, FEW_MAX)), attic);
                true
            }
            Set::Many(parts) => {
                let (high, low) = split(slot);
                let Ok(at) = parts.binary_search_by_key(&high, |part| part.high) else { return false };
                // SAFETY: as above.
                match unsafe { parts[at].container() }.remove(low) {
                    Change::None => return false,
                    Change::Done => {}
                    Change::Replace(container) => replace_container(&parts[at], container, attic),
                    Change::Empty => {
                        let gone = parts[at].link();
                        let others = parts.iter().enumerate().filter(|&(index, _)| index != at);
                        let fewer: Box<[Part]> = others.map(|(_, part)| part.copy()).collect();
                        self.replace(link, Set::Many(fewer), attic);
                        // SAFETY: the set that led to it has just been replaced.
                        unsafe { attic.retire(gone) };
                    }
                }
                true
            }
        }
    }

    /// Owner: whether no slot is left.
    pub fn is_empty(&self) -> bool {
        match self.set.load() {
            None => self.one.load(Ordering::Relaxed) == NONE,
            // SAFETY: as in `insert`.
            Some(link) => match unsafe { link.get() } {
                Set::Few(few) => few.len() == 0,
                Set::Many(parts) => parts.is_empty(),
            },
        }
    }

    /// Owner: hands the parts of an empty set to the attic.
    ///
    /// # Safety
    /// As [`Self::insert`].
    pub unsafe fn clear(&self, attic: &mut Attic) {
        debug_assert!(self.is_empty());
        self.one.store(NONE, Ordering::Relaxed);
        if let Some(link) = self.set.load() {
            self.set.store(None);
            // SAFETY: unlinked just now; without members it leads to no container.
            unsafe { attic.retire(link) };
        }
    }

    fn replace(&self, old: Link<Set>, new: Set, attic: &mut Attic) {
        let new = attic.make(new);
        self.set.store(Some(new));
        // SAFETY: unlinked just now, and made by this attic (the callers' promise).
        unsafe { attic.retire(old) };
    }

    /// Any core: asks for what [`Self::cursor`] reads.
    pub fn prefetch(&self) {
        if let Some(link) = self.set.load() {
            link.prefetch();
        }
    }

    /// Any core: the members.
    ///
    /// # Safety
    /// A pin under which this set was reached outlives `'p`; or the caller is the owner and changes nothing meanwhile.
    pub unsafe fn cursor<'p>(&self) -> Cursor<'p> {
        match self.set.load() {
            None => {
                let one = self.one.load(Ordering::Acquire);
                Cursor::One((one != NONE).then_some(one))
            }
            // SAFETY: the caller's.
            Some(link) => match unsafe { link.get() } {
                Set::Few(few) => Cursor::Few(few.values()),
                Set::Many(parts) => Cursor::Many(parts),
            },
        }
    }
}

fn replace_container(part: &Part, container: Container, attic: &mut Attic) {
    let (old, new) = (part.link(), attic.make(container));
    part.container.store(Some(new));
    // SAFETY: unlinked just now; made by this attic, as the callers promise.
    unsafe { attic.retire(old) };
}

impl Drop for Postings {
    /// With the dictionary, when no reader is left.
    fn drop(&mut self) {
        let Some(link) = self.set.load() else { return };
        // SAFETY: exclusive access; a set that waits in the attic is no longer linked from here.
        unsafe {
            if let Set::Many(parts) = link.get() {
                parts.iter().for_each(|part| part.link().free());
            }
            link.free();
        }
    }
}

/// Ascending walks over a set as it was found.
#[derive(Clone, Copy)]
pub(crate) enum Cursor<'p> {
    One(Option<Slot>),
    Few(&'p [AtomicU32]),
    Many(&'p [Part]),
}

impl Cursor<'_> {
    /// The first member at or after `from`. Logarithmic in the size, and cheaper for calls in ascending order.
    #[inline]
    pub fn seek(&mut self, from: Slot) -> Option<Slot> {
        match self {
            Cursor::One(one) => one.filter(|&slot| slot >= from),
            Cursor::Few(values) => {
                let at = values.partition_point(|value| value.load(Ordering::Relaxed) < from);
                *values = &values[at..];
                values.first().map(|value| value.load(Ordering::Relaxed))
            }
            Cursor::Many(parts) => {
                let (high, low) = split(from);
                let at = parts.partition_point(|part| part.high < high);
                *parts = &parts[at..];
                for part in parts.iter() {
                    let low = if part.high == high { low } else { 0 };
                    // SAFETY: linked from a set that is not freed while `'p` lasts.
                    if let Some(low) = unsafe { part.container() }.next(low) {
                        return Some(Slot::from(part.high) << 16 | Slot::from(low));
                    }
                }
                None
            }
        }
    }

    /// Appends up to `max` members from `from` on, in ascending order.
    pub fn append_to(&self, from: Slot, max: usize, slots: &mut Vec<Slot>) {
        let end = slots.len() + max;
        match self {
            Cursor::One(one) => slots.extend(one.iter().filter(|&&slot| slot >= from).take(max)),
            Cursor::Few(values) => {
                let at = values.partition_point(|value| value.get() < from);
                slots.extend(values[at..].iter().take(max).map(AtomicValue::get));
            }
            Cursor::Many(parts) => {
                let (high, low) = split(from);
                for part in &parts[parts.partition_point(|part| part.high < high)..] {
                    let low = if part.high == high { low } else { 0 };
                    let left = end - slots.len();
                    if left == 0 {
                        return;
                    }
                    // SAFETY: as in `seek`.
                    unsafe { part.container() }.append_to(Slot::from(part.high) << 16, low, left, slots);
                }
            }
        }
    }

    /// Asks for the members, or for what leads to them.
    pub fn prefetch(&self) {
        match self {
            Cursor::One(_) => {}
            Cursor::Few(values) => prefetch_row(values.as_ptr(), size_of_val(*values)),
            Cursor::Many(parts) => prefetch_line(parts.as_ptr()),
        }
    }

    /// Of many members, asks for the containers (`step` 0), which must have been asked for themselves, or for what is in
    /// them (1).
    pub fn prefetch_containers(&self, step: usize) {
        let Cursor::Many(parts) = self else { return };
        for part in parts.iter().take(PARTS_AHEAD) {
            match step {
                0 => part.link().prefetch(),
                // SAFETY: as in `seek`.
                _ => unsafe { part.container() }.prefetch(),
            }
        }
    }

    /// Whether `slot` is a member.
    #[cfg(test)]
    pub fn contains(&self, slot: Slot) -> bool {
        match self {
            Cursor::One(one) => *one == Some(slot),
            Cursor::Few(values) => values.binary_search_by_key(&slot, AtomicValue::get).is_ok(),
            Cursor::Many(parts) => {
                let (high, low) = split(slot);
                parts
                    .binary_search_by_key(&high, |part| part.high)
                    // SAFETY: as in `seek`.
                    .is_ok_and(|at| unsafe { parts[at].container() }.contains(low))
            }
        }
    }

    /// All members in ascending order.
    pub fn for_each(&self, mut visit: impl FnMut(Slot)) {
        match self {
            Cursor::One(one) => one.iter().for_each(|&slot| visit(slot)),
            Cursor::Few(values) => values.iter().for_each(|value| visit(value.get())),
            Cursor::Many(parts) => {
                for part in parts.iter() {
                    // SAFETY: as in `seek`.
                    let container = unsafe { part.container() };
                    container.for_each(|low| visit(Slot::from(part.high) << 16 | Slot::from(low)));
                }
            }
        }
    }

    /// Adds the members to a bitset; those beyond its end are left out.
    pub fn mark(&self, words: &mut [u64]) {
        match self {
            Cursor::Many(parts) => {
                for part in parts.iter() {
                    let Some(words) = words.get_mut(usize::from(part.high) * 1024..) else { break };
                    // SAFETY: as in `seek`.
                    unsafe { part.container() }.mark(words);
                }
            }
            _ => self.for_each(|slot| {
                if let Some(word) = words.get_mut(slot as usize / 64) {
                    *word |= 1 << (slot % 64);
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Domain;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn postings_are_a_set_and_give_all_bytes_back(
            dense in 0..6000u32,
            ops in prop::collection::vec((prop_oneof![0..40u32, 60_000..70_000u32, 0..1u32 << 20], any::<bool>()), 0..400),
            probes in prop::collection::vec(0..1u32 << 20, 20),
        ) {
            let mut attic = Attic::new(Domain::new(1));
            let postings = Postings::new();
            let mut twin = BTreeSet::new();
            for slot in 0..dense {
                // SAFETY: one attic, and the only thread.
                let added = unsafe { postings.insert(3 * slot, &mut attic) };
                prop_assert!(added);
                twin.insert(3 * slot);
            }
            for (slot, insert) in ops {
                let changed = if insert {
                    // SAFETY: above.
                    unsafe { postings.insert(slot, &mut attic) }
                } else {
                    // SAFETY: above.
                    unsafe { postings.remove(slot, &mut attic) }
                };
                prop_assert_eq!(changed, if insert { twin.insert(slot) } else { twin.remove(&slot) });
                prop_assert_eq!(postings.is_empty(), twin.is_empty());
            }
            // SAFETY: nothing changes while the cursor lives.
            let cursor = unsafe { postings.cursor() };
            let mut found = Vec::new();
            cursor.for_each(|slot| found.push(slot));
            prop_assert!(found.iter().eq(&twin));
            let mut walk = cursor;
            let mut sorted = probes.clone();
            sorted.sort_unstable();
            for probe in sorted {
                prop_assert_eq!(walk.seek(probe), twin.range(probe..).next().copied());
                prop_assert_eq!(cursor.contains(probe), twin.contains(&probe));
            }
            for probe in probes {
                let mut part = vec![7];
                cursor.append_to(probe, 70, &mut part);
                prop_assert!(part.iter().eq([7].iter().chain(twin.range(probe..).take(70))));
            }
            let mut words = vec![0u64; 2000];
            cursor.mark(&mut words);
            let marked = (0..2000 * 64).filter(|slot| words[slot / 64] >> (slot % 64) & 1 == 1);
            prop_assert!(marked.eq(twin.iter().map(|&slot| slot as usize).filter(|&slot| slot < 2000 * 64)));
            for slot in twin {
                // SAFETY: above; the cursors are not used any more.
                let removed = unsafe { postings.remove(slot, &mut attic) };
                prop_assert!(removed);
            }
            // SAFETY: above.
            unsafe { postings.clear(&mut attic) };
            attic.reclaim(usize::MAX);
            prop_assert_eq!(attic.held_bytes(), 0);
        }
    }
}
