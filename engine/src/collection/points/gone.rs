//! Versions of ids that are gone: what an id is given when it comes back is higher than all that it ever had, so that a condition on
//! an old version fails.
//!
//! So many ids are remembered one by one, and an id that was never there begins at 1. When there are more, those with the lower half
//! of the versions are forgotten, and their highest becomes the `floor`: from then on every absent id that is not remembered
//! begins one above it, whether it was there before or not.
use std::collections::BTreeMap;

/// Ids remembered one by one, 16 bytes each in images and some more in memory.
pub(super) const GONE_IDS_MAX: usize = 1 << 14;
/// Bytes of one, in nodes that are on average three quarters full.
const ID_BYTES: u64 = 28;

/// The last versions of ids that are absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone {
    last: BTreeMap<u64, u64>,
    /// At least the last version of every absent id that is not in `last`.
    floor: u64,
    /// Since the last image.
    pub changed: bool,
}

impl Gone {
    /// At least the last version an absent id had, 0 when it was certainly never there.
    pub fn last(&self, id: u64) -> u64 {
        self.remembered(id).unwrap_or(self.floor)
    }

    /// The last version of an absent id, if it is remembered itself.
    pub fn remembered(&self, id: u64) -> Option<u64> {
        if self.last.is_empty() { None } else { self.last.get(&id).copied() }
    }

    /// `id` had `version` and is gone.
    pub fn note(&mut self, id: u64, version: u64) {
        if version <= self.last(id) {
            return;
        }
        self.changed = true;
        self.last.insert(id, version);
        if self.last.len() > GONE_IDS_MAX {
            self.fold();
        }
    }

    /// `id` is back, with a version that says what is remembered here.
    pub fn forget(&mut self, id: u64) {
        if !self.last.is_empty() {
            self.changed |= self.last.remove(&id).is_some();
        }
    }

    /// At least the last version of every absent id that is not remembered.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    pub fn raise_floor(&mut self, floor: u64) {
        if floor > self.floor {
            self.changed = true;
            self.floor = floor;
            self.last.retain(|_, version| *version > floor);
        }
    }

    /// Those remembered, ascending: images of equal collections are equal.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.last.iter().map(|(&id, &version)| (id, version))
    }

    pub fn bytes(&self) -> u64 {
        self.last.len() as u64 * ID_BYTES
    }

    /// Some 100 us, once in [`GONE_IDS_MAX`] / 2 deletes or less often.
    fn fold(&mut self) {
        let mut versions: Vec<u64> = self.last.values().copied().collect();
        let middle = versions.len() / 2;
        let floor = *versions.select_nth_unstable(middle).1;
        self.raise_floor(floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_never_seen_begins_at_0_until_too_many_are_gone() {
        let mut gone = Gone::default();
        assert_eq!(gone.last(7), 0);
        for id in 0..GONE_IDS_MAX as u64 {
            gone.note(id, 1 + id % 4);
        }
        assert_eq!((gone.last(6), gone.last(1 << 40), gone.iter().count()), (3, 0, GONE_IDS_MAX));
        gone.note(1 << 20, 9);
        // The lower half is one number now.
        assert!(gone.floor() > 0 && gone.floor() <= 4 && gone.iter().count() <= GONE_IDS_MAX / 2);
        assert_eq!(gone.last(1 << 40), gone.floor());
        assert_eq!(gone.last(1 << 20), 9);
        assert!((0..GONE_IDS_MAX as u64).all(|id| gone.last(id) > id % 4));
    }

    #[test]
    fn what_is_back_is_forgotten_and_nothing_goes_down() {
        let mut gone = Gone::default();
        gone.note(1, 5);
        gone.note(1, 3);
        assert_eq!((gone.last(1), gone.remembered(1)), (5, Some(5)));
        gone.forget(1);
        assert_eq!((gone.last(1), gone.iter().count()), (0, 0));
        gone.raise_floor(4);
        gone.note(2, 4);
        gone.note(3, 5);
        assert_eq!((gone.last(2), gone.last(3), gone.iter().count()), (4, 5, 1));
    }
}
