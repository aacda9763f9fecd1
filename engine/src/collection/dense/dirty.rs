//! Which slots changed since the last checkpoint image, and what else an image has to say. Only the owner has these.
use crate::collection::points::Changes as PointChanges;
use crate::collection::slot_set::SlotSet;
use crate::collection::space::Changes as SpaceChanges;
use crate::slot::Slot;

/// What changed of the points, and of each space.
#[derive(Default)]
pub(super) struct Dirty {
    pub points: PointChanges,
    pub spaces: Vec<SpaceChanges>,
}

/// What changed of one slot.
#[derive(Clone, Copy, Default)]
pub(super) struct DirtySlot {
    /// Id, vectors, row: all is to be written.
    pub data: bool,
    /// Death or freeing: the row and the vectors of the image before still hold unless `data` says otherwise.
    pub state: bool,
    /// Its place in the index of the spaces with these numbers, one bit each.
    pub places: u64,
}

impl DirtySlot {
    pub fn or(self, other: DirtySlot) -> DirtySlot {
        DirtySlot {
            data: self.data | other.data,
            state: self.state | other.state,
            places: self.places | other.places,
        }
    }
}

impl Dirty {
    /// The data of the first `slots` slots count as changed, in a collection of so many spaces.
    pub fn all(slots: usize, spaces: usize) -> Dirty {
        let points = PointChanges { data: SlotSet::all(slots), state: SlotSet::default() };
        Dirty { points, spaces: (0..spaces).map(|_| SpaceChanges::default()).collect() }
    }

    /// Members, those that changed in several ways counted as often (a bound is all that is needed).
    pub fn len(&self) -> usize {
        let spaces = self.spaces.iter();
        // An image writes up to one vector in each space for a slot whose data changed.
        self.points.data.len() * self.spaces.len().max(1)
            + self.points.state.len()
            + spaces.map(|space| space.state.len() + space.cells + usize::from(space.codec)).sum::<usize>()
    }

    /// The first slot at or after `from` that changed.
    pub fn next(&self, from: Slot) -> Option<Slot> {
        let points = [&self.points.data, &self.points.state];
        SlotSet::next_of_all(points.into_iter().chain(self.spaces.iter().map(|space| &space.state)), from)
    }

    /// What changed of a slot, which is not changed any more.
    pub fn take(&mut self, slot: Slot) -> DirtySlot {
        let mut places = 0;
        for (number, space) in self.spaces.iter_mut().enumerate() {
            places |= u64::from(space.state.remove(slot)) << number;
        }
        DirtySlot { data: self.points.data.remove(slot), state: self.points.state.remove(slot), places }
    }

    /// A slot changed.
    pub fn insert(&mut self, slot: Slot, of: DirtySlot) {
        if of.data {
            self.points.data.insert(slot);
        }
        if of.state {
            self.points.state.insert(slot);
        }
        let mut places = of.places;
        while places != 0 {
            self.spaces[places.trailing_zeros() as usize].state.insert(slot);
            places &= places - 1;
        }
    }

    pub fn insert_all(&mut self, other: &Dirty) {
        self.points.insert_all(&other.points);
        self.spaces.iter_mut().zip(&other.spaces).for_each(|(space, other)| space.insert_all(other));
    }
}
