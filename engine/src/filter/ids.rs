//! Ids that a filter lists, and the slots of their points, for the planner.
//!
//! Slots are looked up in the map of ids, never in the payload index. The map leads to the newest point of an id, a search sees those of its
//! snapshot: [`slots_of`] says when the two may differ.

use super::membership::Numbers;
use crate::slot::Slot;
use std::rc::Rc;

/// The ids of one condition.
pub(crate) type Ids = Numbers<u64>;

/// The slots under one list, ascending.
struct Found<'f> {
    ids: &'f Ids,
    slots: Rc<[Slot]>,
}

impl Found<'_> {
    fn address(&self) -> *const Ids {
        std::ptr::from_ref(self.ids)
    }
}

/// The slots under the lists of ids of a filter, in the order of the lists' addresses: a filter may have thousands of them.
#[derive(Clone, Default)]
pub(crate) struct IdSlots<'f>(Rc<[Found<'f>]>);

impl<'f> IdSlots<'f> {
    /// The slots of a list that was looked up.
    pub(super) fn of(&self, ids: &Ids) -> Option<Rc<[Slot]>> {
        let found = self.0.binary_search_by_key(&std::ptr::from_ref(ids), Found::address);
        found.ok().map(|at| self.0[at].slots.clone())
    }
}

/// Looks up the slots of all lists; `None` when a slot is too new for the snapshot, which may then show another of the same id.
///
/// The look comes after the snapshot was taken. An id that is not found was not there at some moment since, and is not missed; nor is one
/// whose slot had died by then. `slot_of` costs a miss or two, and is asked once for each id.
pub(crate) fn slots_of<'f>(
    lists: &[&'f Ids],
    slot_of: impl Fn(u64) -> Option<Slot>,
    is_too_new: impl Fn(Slot) -> bool,
) -> Option<IdSlots<'f>> {
    let mut all = Vec::with_capacity(lists.len());
    for &ids in lists {
        let mut slots: Vec<Slot> = ids.sorted().iter().filter_map(|&id| slot_of(id)).collect();
        if slots.iter().any(|&slot| is_too_new(slot)) {
            return None;
        }
        slots.sort_unstable();
        all.push(Found { ids, slots: slots.into() });
    }
    all.sort_unstable_by_key(Found::address);
    Some(IdSlots(all.into()))
}
