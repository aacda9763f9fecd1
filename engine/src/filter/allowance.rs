//! What asking a filter costs, counted while it is asked.
//!
//! What one question costs depends on the filter and on the value: a field compared with a number takes some nanoseconds, a regular
//! expression in a text of a megabyte takes milliseconds, or seconds where nearly every byte leads to a state of the automaton that
//! has to be computed. So questions are asked within an [`Allowance`]. One that needs more than is left is not answered, and is asked
//! again in pieces, by [`Predicate::ask_in_pieces`](super::Predicate::ask_in_pieces).

use std::cell::Cell;

/// What a step of a [`Pace`](crate::pace::Pace) is.
const STEP_NS: u64 = 100;

/// Nanoseconds of work, about, that questions may take before others get their turn. They are counted by bytes, words, vertices and
/// states, not by a clock, so they are the same for the same questions.
#[derive(Debug)]
pub struct Allowance {
    left_ns: Cell<u64>,
    spent_ns: Cell<u64>,
}

impl Allowance {
    /// An allowance of `ns` nanoseconds.
    pub const fn of(ns: u64) -> Allowance {
        Allowance { left_ns: Cell::new(ns), spent_ns: Cell::new(0) }
    }

    /// An allowance that never runs out.
    pub const fn unbounded() -> Allowance {
        Allowance::of(u64::MAX)
    }

    /// Takes off what is about to be done, or has been.
    #[inline]
    pub(crate) fn spend(&self, ns: u64) {
        self.left_ns.set(self.left_ns.get().saturating_sub(ns));
        self.spent_ns.set(self.spent_ns.get().saturating_add(ns));
    }

    /// Whether nothing is left.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.left_ns.get() == 0
    }

    /// How much of something is affordable that costs `each_ns` apiece; at least one, so that work goes on.
    pub(super) fn affords(&self, each_ns: u64) -> usize {
        usize::try_from(self.left_ns.get() / each_ns).unwrap_or(usize::MAX).max(1)
    }

    /// Nanoseconds spent since the allowance was made or renewed.
    pub fn spent_ns(&self) -> u64 {
        self.spent_ns.get()
    }

    /// Sets what is left, and returns what was spent before in steps of a [`Pace`](crate::pace::Pace).
    pub fn renew(&self, ns: u64) -> usize {
        self.left_ns.set(ns);
        usize::try_from(self.spent_ns.take().div_ceil(STEP_NS)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_down_and_is_renewed() {
        let allowance = Allowance::of(1_000);
        allowance.spend(650);
        assert_eq!((allowance.affords(100), allowance.affords(400), allowance.is_spent()), (3, 1, false));
        allowance.spend(900);
        assert!(allowance.is_spent() && allowance.affords(1) == 1);
        assert_eq!((allowance.spent_ns(), allowance.renew(50), allowance.spent_ns()), (1_550, 16, 0));
        assert_eq!(allowance.affords(10), 5);
        let unbounded = Allowance::unbounded();
        unbounded.spend(u64::MAX - 1);
        assert!(!unbounded.is_spent());
    }
}
