//! Which points a walk through the graph may return.
use crate::collection::points::View;
use crate::filter::Allowance;
use crate::index::Admit;
use crate::slot::Slot;
use ahash::HashMap;

/// Answers that took longer than this are not asked for twice.
const REMEMBERED_NS: u64 = 1_000;

/// What a walk knows of slots whose questions took longer than a moment, so that it can be walked again when they are answered.
#[derive(Default)]
pub(super) struct Answers {
    pub known: HashMap<Slot, bool>,
    /// Whether a question has stayed open: then the walk is walked again, and what took long is not asked twice.
    pub remembers: bool,
}

/// What a walk returns: visible points that match.
pub(super) struct Admission<'a, 'v> {
    pub view: &'a mut View<'v>,
    /// What the walk meets matches.
    pub exact: bool,
    /// Once these are used up everything is admitted, so that the beam fills and the walk ends.
    pub refusals_left: usize,
    /// What questions may take until the pace is called, which renews it.
    pub allowance: &'a Allowance,
    pub answers: &'a mut Answers,
    /// Slots whose questions stayed open. They are admitted for now: the walk ends soon, and is walked again when they are answered.
    pub open: Vec<Slot>,
}

impl Admission<'_, '_> {
    #[inline]
    fn matches(&mut self, slot: Slot) -> bool {
        if self.exact && !self.view.was_replaced() {
            return true;
        }
        if self.answers.remembers {
            return self.matches_again(slot);
        }
        self.view.ask(slot, self.allowance).unwrap_or_else(|| {
            self.answers.remembers = true;
            self.open.push(slot);
            true
        })
    }

    #[cold]
    fn matches_again(&mut self, slot: Slot) -> bool {
        if let Some(&known) = self.answers.known.get(&slot) {
            return known;
        }
        let before = self.allowance.spent_ns();
        let Some(answer) = self.view.ask(slot, self.allowance) else {
            self.open.push(slot);
            return true;
        };
        if self.allowance.spent_ns() - before > REMEMBERED_NS {
            self.answers.known.insert(slot, answer);
        }
        answer
    }
}

impl Admit for Admission<'_, '_> {
    #[inline]
    fn admits(&mut self, slot: Slot) -> bool {
        let admitted = self.view.visible(slot) && self.matches(slot);
        self.refusals_left == 0 || admitted || {
            self.refusals_left -= 1;
            false
        }
    }

    /// The predicate follows a line to a row.
    #[inline]
    fn looks_ahead(&self) -> bool {
        !self.exact && self.view.filter.is_some()
    }

    #[inline]
    fn scored(&self, slot: Slot) {
        self.view.points.prefetch_line(slot);
    }

    #[inline]
    fn near(&self, slot: Slot) {
        self.view.points.prefetch_row(slot);
    }
}

/// What passes a gate first.
pub(super) struct Gated<'a, A, G> {
    pub gate: G,
    pub admission: &'a mut A,
    pub rejects: u64,
    /// The number of refusals after which the walk is given up, because the points that pass are far from the query. From then on every point is
    /// admitted, so that the beam fills and the walk ends.
    pub effort: u64,
}

impl<A, G> Gated<'_, A, G> {
    /// Whether the walk is to be given up.
    pub fn is_spent(&self) -> bool {
        self.rejects > self.effort
    }
}

impl<A: Admit, G: Fn(Slot) -> bool> Admit for Gated<'_, A, G> {
    #[inline]
    fn admits(&mut self, slot: Slot) -> bool {
        let passes = (self.gate)(slot);
        self.rejects += u64::from(!passes);
        self.is_spent() || passes && self.admission.admits(slot)
    }

    #[inline]
    fn looks_ahead(&self) -> bool {
        self.admission.looks_ahead()
    }

    #[inline]
    fn scored(&self, slot: Slot) {
        self.admission.scored(slot);
    }

    #[inline]
    fn near(&self, slot: Slot) {
        if (self.gate)(slot) {
            self.admission.near(slot);
        }
    }
}
