//! Indexing rounds of a collection of cells: tail slots are filed in the cell of the nearest centroid. Planned on any core, opened and
//! ended by the owner.
//!
//! Until centroids are trained a slot leaves the tail for nowhere: searches look at everything. A new clustering is filled beside
//! the one that is searched (or beside none) by rounds over all slots that have left the tail, which take turns with those over the
//! tail, and is published whole.
//!
//! A slot stays in its lists, dead, until no reader has a snapshot that shows it; then it is taken out and freed.
use super::training::Training;
use super::{Arc, PointsWriter, Slot, SlotSet, Space, SpaceWriter, Watch, sub};
use crate::collection::IvfConfig;
use crate::index::{Cells, CellsWriter, FiledAt, Measured};
use crate::memory::Published;

/// Slots that a new clustering takes over in one round: some milliseconds of one core, at a thousand cells.
const ROUND_REFILED: usize = 256;
/// Slots without a clustering to be filed in that leave the tail at once.
const ROUND_UNTRAINED: usize = 1024;

/// The readable side.
pub(super) type CellsCell = Published<Option<Arc<Cells>>>;

/// A batch of slots to be placed. No slot is freed while one is open.
pub struct FilingRound {
    cells: Arc<Cells>,
    /// What the slots are filed in already, where vectors are given up.
    from: Option<Arc<Cells>>,
    slots: Vec<Slot>,
    /// For each slot, whether its vector is still in memory.
    has_vector: Vec<bool>,
    /// Of the tail: where it starts after this round. Else the slots have left it before.
    tail_end: Option<u64>,
}

impl FilingRound {
    /// Slots in it.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Never: a round has slots.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// What [`super::super::DenseWriter::begin_filing`] found to do.
pub enum Filed {
    /// Nothing.
    Nothing,
    /// So many points have left the tail, and there was nothing to plan; 0 when a clustering was published.
    Moved(usize),
    /// To be planned by [`Space::place`], and ended by [`super::super::DenseWriter::end_filing`].
    Round(Arc<FilingRound>),
}

/// A clustering that is being filled.
pub(crate) struct Refiling {
    pub cells: CellsWriter,
    /// Slots below have been taken over.
    cursor: Slot,
    /// But for these, which have left the tail since.
    later: Vec<Slot>,
    /// Compares points written later with those that these cells were trained on.
    pub watch: Watch,
    distances: f64,
    placed: u64,
}

/// What the owner of a collection of cells has.
pub(crate) struct Filing {
    pub config: IvfConfig,
    /// Slots that have left the tail and are not freed.
    pub linked: SlotSet,
    /// What is searched.
    pub current: Option<CellsWriter>,
    pub next: Option<Refiling>,
    /// How well these cells fit what is filed in them.
    pub watch: Watch,
    /// Where vectors are given up: filed slots that keep theirs, as it is not proven that codes fit them (see `bare`).
    pub unproven: SlotSet,
    round: Option<Arc<FilingRound>>,
    /// The last round was one over the tail.
    tail_was_last: bool,
    pub training: Training,
}

impl Filing {
    pub fn new(config: IvfConfig) -> Filing {
        Filing {
            config,
            linked: SlotSet::default(),
            current: None,
            next: None,
            watch: Watch::default(),
            unproven: SlotSet::default(),
            round: None,
            tail_was_last: false,
            training: Training::default(),
        }
    }

    pub fn is_linked(&self, slot: Slot) -> bool {
        self.linked.contains(slot)
    }

    pub fn round_open(&self) -> bool {
        self.round.is_some()
    }

    /// The cells of a slot that has left the tail; none before there are any.
    pub fn place(&self, slot: Slot) -> Option<(u32, Option<u32>)> {
        self.current.as_ref()?.place(slot)
    }

    /// Appends the codes of such a slot in these cells; nothing where there are none.
    pub fn codes(&self, slot: Slot, out: &mut Vec<u8>) {
        if let Some(coded) = self.current.as_ref().and_then(|current| current.cells().coded()) {
            coded.rows_of(slot, out);
        }
    }

    /// The slot is out of the tail, and in its cells if there are any.
    fn link(&mut self, slot: Slot) {
        self.linked.insert(slot);
        if let Some(next) = &mut self.next
            && slot < next.cursor
        {
            next.later.push(slot);
        }
    }

    /// Restore: a slot that an image shows filed, with its codes in these cells.
    pub fn restore(&mut self, slot: Slot, place: Option<(u32, Option<u32>)>, codes: &[u8]) {
        if let (Some(current), Some((cell, second))) = (&mut self.current, place) {
            current.insert(slot, cell, second, codes);
        }
        self.linked.insert(slot);
    }

    /// No reader has a snapshot that shows the slot.
    pub fn free(&mut self, slot: Slot) {
        self.linked.remove(slot);
        self.unproven.remove(slot);
        self.writers().for_each(|cells| _ = cells.remove(slot));
    }

    fn writers(&mut self) -> impl Iterator<Item = &mut CellsWriter> {
        self.current.iter_mut().chain(self.next.iter_mut().map(|next| &mut next.cells))
    }

    /// A point that was born at `born` is gone.
    pub fn bury(&mut self, born: u64) {
        self.watch.bury(born);
        self.training.bury(born);
        self.next.iter_mut().for_each(|next| next.watch.bury(born));
    }

    pub fn reclaim(&mut self) {
        self.writers().for_each(CellsWriter::reclaim);
    }

    pub fn bytes(&self) -> u64 {
        let next =
            self.next.as_ref().map(|next| next.cells.cells().bytes() + next.later.capacity() as u64 * 4);
        self.linked.bytes()
            + self.unproven.bytes()
            + self.current.as_ref().map_or(0, |current| current.cells().bytes())
            + next.unwrap_or(0)
            + self.training.bytes()
    }

    /// The next slots for the clustering that is being filled; none when all are in it.
    fn next_to_refile(&mut self) -> Vec<Slot> {
        let mut slots = Vec::new();
        let Some(next) = &mut self.next else { return slots };
        while slots.len() < ROUND_REFILED {
            // The dead as well: readers may have snapshots that show them.
            let slot = match self.linked.next(next.cursor) {
                Some(slot) => {
                    next.cursor = slot + 1;
                    slot
                }
                None => {
                    next.cursor = Slot::MAX;
                    let Some(slot) = next.later.pop() else { break };
                    slot
                }
            };
            // Freed since, or linked twice.
            if self.linked.contains(slot) && next.cells.place(slot).is_none() && !slots.contains(&slot) {
                slots.push(slot);
            }
        }
        slots
    }
}

impl Space {
    /// Any core: where the slot at `index` of a round belongs, in steps of at most `cells` distances; the place when done. Costs a
    /// distance per cell, twice as much with spilling, and with codes as much again as the centroids of their parts. Until the round is ended no pin is needed, as the owner frees no slot.
    /// `buffer`: empty at the first step of a slot, and again after the last.
    ///
    /// # Panics
    /// When the round has no such slot.
    pub fn place_step(
        &self,
        round: &FilingRound,
        index: usize,
        buffer: &mut Vec<f32>,
        cells: usize,
    ) -> Option<FiledAt> {
        let slot = round.slots[index];
        if let Some(from) = round.from.as_ref().filter(|_| !round.has_vector[index]) {
            let mut vector = vec![0.0; crate::distance::padded(self.config.dim)];
            if from.decode(slot, &mut vector) {
                return round.cells.place_step(&vector, buffer, cells);
            }
        }
        round.cells.place_step(self.graph.vector(slot), buffer, cells)
    }

    /// As [`Self::place_step`], in one go.
    ///
    /// # Panics
    /// As that.
    pub fn place(&self, round: &FilingRound, index: usize, buffer: &mut Vec<f32>) -> FiledAt {
        buffer.clear();
        self.place_step(round, index, buffer, usize::MAX).expect("all cells in one step")
    }
}

impl SpaceWriter {
    /// Begins a round over at most `max` of the oldest live tail slots, or over slots that a new clustering is to take over, in turn.
    ///
    /// # Panics
    /// When a round is open, or there are no cells to file in ([`Self::files_cells`]).
    pub(crate) fn begin_filing(&mut self, points: &mut PointsWriter, max: usize) -> Filed {
        assert!(!self.round_open(), "one round at a time");
        self.drop_dead_front(points);
        let shared = self.shared.clone();
        shared.graph.begin_round();
        let filing = self.index.of_cells();
        let max = if filing.current.is_none() { max.max(ROUND_UNTRAINED) } else { max.max(1) };
        let window = shared.tail.window();
        let refile = filing.next.is_some() && (filing.tail_was_last || window.start == window.end);
        filing.tail_was_last = !refile;
        if refile {
            let slots = filing.next_to_refile();
            if slots.is_empty() {
                self.publish_cells(points);
                return Filed::Moved(0);
            }
            let cells = filing.next.as_ref().expect("checked").cells.cells().clone();
            let from = filing.current.as_ref().filter(|_| shared.config.drops_vectors());
            let from = from.map(|current| current.cells().clone());
            let has_vector = slots.iter().map(|&slot| filing.unproven.contains(slot)).collect();
            let round = Arc::new(FilingRound { cells, from, slots, has_vector, tail_end: None });
            filing.round = Some(round.clone());
            return Filed::Round(round);
        }
        let mut slots = Vec::new();
        let mut position = window.start;
        while position < window.end && slots.len() < max {
            let slot = shared.tail.slot(position);
            if !shared.points.is_dead(slot) {
                slots.push(slot);
            }
            position += 1;
        }
        if slots.is_empty() {
            return if filing.next.is_some() { Filed::Moved(0) } else { Filed::Nothing };
        }
        let Some(current) = &filing.current else {
            self.leave_tail(&slots);
            self.pass_tail(points, position);
            return Filed::Moved(slots.len());
        };
        let round = Arc::new(FilingRound {
            cells: current.cells().clone(),
            from: None,
            has_vector: vec![true; slots.len()],
            slots,
            tail_end: Some(position),
        });
        filing.round = Some(round.clone());
        Filed::Round(round)
    }

    /// Ends the round: files its slots where they were placed. Some hundred nanoseconds each, and one for each byte of codes. Slots of the tail that died
    /// meanwhile are not filed.
    ///
    /// # Panics
    /// When no round is open, or `places` are not those of its slots in order.
    pub(crate) fn end_filing(&mut self, points: &mut PointsWriter, places: &[FiledAt]) {
        let filing = self.index.of_cells();
        let round = filing.round.take().expect("a round is open");
        assert_eq!(places.len(), round.slots.len(), "a place for each slot of the round");
        let each = round.slots.iter().zip(places);
        let shared = self.shared.clone();
        let drops = shared.config.drops_vectors();
        let mut decoded = Vec::new();
        let mut measure = |cells: &Cells, slot: Slot, place: &FiledAt| {
            let vector = &shared.graph.vector(slot)[..shared.config.dim];
            cells.measure(vector, place.cell, &place.codes, &mut decoded)
        };
        match round.tail_end {
            Some(end) => {
                let current = filing.current.as_mut().expect("what the round was planned for");
                let mut linked = Vec::with_capacity(places.len());
                for (&slot, place) in each.filter(|&(&slot, _)| !shared.points.is_dead(slot)) {
                    let is_measured = filing.watch.write();
                    if is_measured {
                        let Measured { error, spread } = measure(current.cells(), slot, place);
                        filing.watch.measure(error, spread);
                    }
                    if drops {
                        filing.unproven.insert(slot);
                    }
                    current.insert_at(slot, place);
                    linked.push(slot);
                }
                current.seal();
                self.leave_tail(&linked);
                self.pass_tail(points, end);
            }
            None => {
                let next = filing.next.as_mut().expect("what the round was planned for");
                for (&slot, place) in each {
                    next.cells.insert_at(slot, place);
                    next.distances += f64::from(place.distance);
                    next.placed += 1;
                }
                next.cells.seal();
            }
        }
    }

    fn leave_tail(&mut self, slots: &[Slot]) {
        let filing = self.index.of_cells();
        for &slot in slots {
            filing.link(slot);
            self.changes.state.insert(slot);
        }
        self.linked += slots.len();
        sub(&self.shared.tail_live, slots.len() as u64);
    }

    /// Begins to fill a new clustering.
    pub(super) fn begin_refiling(&mut self, cells: Cells, watch: Watch) {
        let filing = self.index.of_cells();
        let cells = CellsWriter::new(Arc::new(cells), self.shared.points.domain().clone());
        filing.next =
            Some(Refiling { cells, cursor: 0, later: Vec::new(), watch, distances: 0.0, placed: 0 });
    }

    /// Every slot that has left the tail is in the new clustering: searches that begin from now on go by it. Those that began
    /// before find what was filed when they did, and later slots in their window of the tail.
    fn publish_cells(&mut self, points: &mut PointsWriter) {
        let filing = self.index.of_cells();
        let next = filing.next.take().expect("a clustering is being filled");
        let cells = next.cells.cells().clone();
        let mean = if next.placed == 0 { 0.0 } else { next.distances / next.placed as f64 };
        cells.set_trained(next.watch.learned_from, mean as f32);
        filing.watch = next.watch;
        let was_filed = filing.current.replace(next.cells).is_some();
        self.changes.cells = cells.len();
        self.changes.state.insert_all(&filing.linked);
        self.shared.index.show(Some(cells));
        match was_filed {
            // Unless more was written meanwhile the training has seen all there is.
            true => self.prove_at_rest(points),
            false => self.give_up_all_vectors(points),
        }
    }

    /// Nothing is filed, and nobody can find anything that was: what was learned is forgotten, as is a training under way.
    pub(super) fn forget_cells(&mut self) {
        let Some(filing) = self.index.filing_mut() else { return };
        let wanted = filing.training.is_wanted();
        (filing.training, filing.watch, filing.unproven) = Default::default();
        filing.next = None;
        if filing.current.take().is_some() {
            self.shared.index.show(None);
            self.changes.cells = 1;
        }
        if wanted {
            self.want_training();
        }
    }

    /// As [`Self::give_up_vectors`], of all that has left the tail; a bite for each step of a reclaim.
    pub(super) fn give_up_all_vectors(&self, points: &mut PointsWriter) {
        let Some(filing) = self.index.filing() else { return };
        self.give_up_vectors_of(points, &filing.linked);
    }

    pub(super) fn give_up_vectors_of(&self, points: &mut PointsWriter, of: &SlotSet) {
        let mut slots = Vec::new();
        let mut next = of.next(0);
        while let Some(slot) = next {
            // One that is dead waits to be freed already, and may be another point's by the time that its vector went.
            if !self.shared.points.is_dead(slot) {
                slots.push(slot);
            }
            next = of.next(slot + 1);
        }
        slots.chunks(ROUND_REFILED).for_each(|slots| self.give_up_vectors(points, slots.to_vec()));
    }
}
