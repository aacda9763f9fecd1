//! Vectors come, leave the tail, die and are let go of. The owner's thread.
use super::index::{Index, IndexWriter};
use super::{
    Arc, AtomicU64, Births, Changes, DenseConfig, Holdings, LiveTuning, Ordering, Passed, PointsWriter,
    Retired, SearchCounters, Slot, SlotSet, Space, SpaceWriter, Tail, Watch, add, sub,
};
use crate::collection::points::{Buried, UnseenCodes};
use crate::collection::{IndexType, WriteError};
use crate::distance::{Metric, padded, prepare};
use crate::index::{Graph, GraphConfig};
use crate::memory::{ArenaError, Storage};

/// Makes room for the vectors of up to `slots_max` slots. With `storage` they are rows of a file, one padded row per slot, and what is as
/// large and made anew with each start lies in files as well.
///
/// # Errors
/// The kernel refuses a reservation, or a file cannot be made.
pub(crate) fn reserve_vectors(
    config: &DenseConfig,
    slots_max: usize,
    storage: Option<Storage>,
) -> Result<Graph, ArenaError> {
    let graph = GraphConfig {
        dim: config.dim,
        metric: config.metric,
        m: config.m,
        ef_construction: config.build_beam(),
        seed: config.seed as u64,
        level0_full_degree: config.level0_full_degree,
        extend_candidates: config.extend_candidates,
        extend_candidates_max: config.extend_candidates_max,
        codes: config.keeps_codes(),
        rescore_factor: config.rescored_per_result(),
        quantized: config.quantized(),
        flat: config.flat(),
        capacity: slots_max,
    };
    Graph::create(graph, storage)
}

impl SpaceWriter {
    /// A space without vectors, which will lie in `graph` ([`reserve_vectors`]). With `number` it is one of several, and points may lack a
    /// vector in it.
    ///
    /// # Errors
    /// The kernel refuses a reservation.
    pub(crate) fn create(
        config: DenseConfig,
        graph: Graph,
        points: &PointsWriter,
        number: Option<usize>,
    ) -> Result<SpaceWriter, ArenaError> {
        Self::create_for(config, graph, points, number, points.slots_max())
    }

    /// As [`Self::create`], for so many slots.
    fn create_for(
        config: DenseConfig,
        graph: Graph,
        points: &PointsWriter,
        number: Option<usize>,
        slots_max: usize,
    ) -> Result<SpaceWriter, ArenaError> {
        let watched = config.index == IndexType::Gpu;
        let (prepared, index) = (vec![0.0; padded(config.dim)], IndexWriter::new(&config));
        let shared = Space {
            points: points.shared().clone(),
            holdings: match number {
                Some(_) => Holdings::reserve(slots_max)?,
                None => Holdings::of_all(),
            },
            graph,
            index: Index::new(&config, points.shared().domain()),
            tail: Tail::reserve(slots_max)?,
            tail_live: AtomicU64::new(0),
            births: if watched { Births::reserve(slots_max)? } else { Births::default() },
            owner_bytes: AtomicU64::new(0),
            counters: SearchCounters::default(),
            tuning: LiveTuning::new(&config),
            config,
        };
        Ok(SpaceWriter {
            shared: Arc::new(shared),
            number: number.unwrap_or(0),
            index,
            linked: 0,
            dead_linked: Vec::new(),
            imaged_codes: 0,
            bare: SlotSet::default(),
            passed: Passed::new(),
            prepared,
            changes: Changes::default(),
        })
    }

    /// What takes the place of a space that was dropped, with its number: no point has a vector in it, and it takes next to nothing.
    ///
    /// # Errors
    /// The kernel refuses a reservation.
    pub(crate) fn dropped(points: &PointsWriter, number: usize) -> Result<SpaceWriter, ArenaError> {
        let config = DenseConfig::new(1, Metric::L2);
        let graph = reserve_vectors(&config, 1, None)?;
        let mut writer = Self::create_for(config, graph, points, Some(number), 1)?;
        Arc::get_mut(&mut writer.shared).expect("nobody has it yet").holdings = Holdings::None;
        Ok(writer)
    }

    /// Whether it was dropped: see [`Space::is_dropped`].
    pub fn is_dropped(&self) -> bool {
        self.shared.is_dropped()
    }

    /// The readable side.
    pub(crate) fn shared(&self) -> &Arc<Space> {
        &self.shared
    }

    /// Searches that begin from now on take those values of `config` that may change ([`Key::is_live`]). All others are as they were.
    ///
    /// [`Key::is_live`]: crate::collection::config_keys::Key::is_live
    pub(crate) fn tune(&mut self, config: &DenseConfig) {
        self.shared.tuning.set(config);
        self.shared.graph.set_rescore_factor(config.rescored_per_result());
    }

    /// Live tail slots not yet in the index.
    pub fn tail_len(&self) -> usize {
        self.shared.tail_len() as usize
    }

    /// Whether a vector can be stored for `id`.
    ///
    /// # Errors
    /// Wrong length, or a component that is not finite.
    pub fn check_vector(&self, id: u64, vector: &[f32]) -> Result<(), WriteError> {
        let dim = self.shared.config.dim;
        if vector.len() != dim {
            return Err(WriteError::DimensionMismatch { expected: dim, found: vector.len() });
        }
        match vector.iter().position(|component| !component.is_finite()) {
            Some(index) => Err(WriteError::NotFinite { id, index }),
            None => Ok(()),
        }
    }

    /// Makes sure that vectors of the first `slots` slots can be written.
    ///
    /// # Errors
    /// The file system's, above all that it is full.
    pub(crate) fn commit(&self, slots: usize) -> std::io::Result<()> {
        if self.is_dropped() {
            return Ok(());
        }
        self.shared.holdings.commit(slots)?;
        self.shared.births.commit(slots)?;
        self.shared.graph.make_room(slots, self.shared.index.has_edges())
    }

    /// Stores the vector of a slot that nobody can find yet, as the metric wants it.
    ///
    /// # Panics
    /// When its length is wrong.
    pub(crate) fn write_vector(&mut self, slot: Slot, vector: &[f32]) {
        self.bare.remove(slot);
        prepare(self.shared.config.metric, vector, &mut self.prepared);
        self.shared.graph.write_vector(slot, &self.prepared);
        self.shared.holdings.set(slot, true);
    }

    /// Gives a slot that nobody can find yet the vector of another, which has one: as it was written, or what its code stands for.
    pub(crate) fn copy_vector(&mut self, from: Slot, to: Slot) {
        let vector = self.vector_of(from).into_owned();
        self.bare.remove(to);
        self.shared.graph.write_vector(to, &vector);
        self.shared.holdings.set(to, true);
    }

    /// A slot whose vector is written and whose point was filled goes to the tail. Searches see it once the points show it.
    pub(crate) fn enter(&self, slot: Slot) {
        self.shared.births.note(slot);
        self.shared.holdings.count_in();
        self.requeue(slot);
    }

    /// The point in a slot has died, which has a vector here.
    pub(crate) fn bury(&mut self, Buried { slot, born }: Buried) {
        self.shared.holdings.count_out();
        self.index.bury(&self.shared.graph, born);
        if self.is_linked(slot) {
            self.dead_linked.push(slot);
        } else {
            sub(&self.shared.tail_live, 1);
        }
    }

    /// Lets go of a dead slot that nothing leads to and no reader sees.
    pub(crate) fn free(&mut self, slot: Slot) {
        debug_assert!(!self.round_open(), "slot {slot} freed while planners may look at it");
        if self.is_linked(slot) {
            self.index.free(&self.shared.graph, slot);
            self.linked -= 1;
        }
        self.shared.holdings.set(slot, false);
    }

    /// Whether a slot has left the tail and is not freed.
    pub(crate) fn is_linked(&self, slot: Slot) -> bool {
        self.index.is_linked(&self.shared.graph, slot)
    }

    /// Whether planners may look at slots without a pin.
    pub(crate) fn round_open(&self) -> bool {
        self.index.round_open()
    }

    /// Outside of a round: hands over what nothing in here leads to any more.
    pub(crate) fn let_go(&mut self, points: &mut PointsWriter) {
        self.drop_dead_front(points);
        self.retire_dead(points);
        for _ in 0..self.shared.graph.retire_codes() {
            points.retire(Retired::Codes { space: self.number });
        }
    }

    /// Hands over the dead that nothing has to be led around.
    pub(crate) fn retire_dead(&mut self, points: &mut PointsWriter) {
        let dead = self.index.take_dead(&mut self.dead_linked);
        if !dead.is_empty() {
            points.let_go(dead);
        }
    }

    /// Gives the memory of the vectors of slots `from..to` back to the kernel.
    ///
    /// # Panics
    /// When one of the slots is not bare.
    pub(super) fn release_bare(&self, from: Slot, to: Slot) {
        assert!((from..to).all(|slot| self.bare.contains(slot)), "slots {from} to {to} have vectors");
        // SAFETY: a slot is bare once no reader is left of the time when its vector was read (`UnseenVectors`), or none has been shown
        // anything yet (a restore), until its next vector is written.
        unsafe { self.shared.graph.release_vectors(from, to) };
    }

    /// Frees the oldest codes that were retired.
    pub(crate) fn free_codes(&self, _: UnseenCodes) {
        // SAFETY: the oldest that `retire_codes` has told, which were retired then: `UnseenCodes` says that no reader of that time is left.
        unsafe { self.shared.graph.codes_are_quiescent() };
    }

    /// Gives back parts of the index and of the tail that no reader sees any more.
    pub(crate) fn reclaim(&mut self) {
        self.passed.reclaim(&self.shared.tail, self.shared.points.domain());
        if let Some(filing) = self.index.filing_mut() {
            filing.reclaim();
        }
        self.shared.index.reclaim();
    }

    /// All points are gone, and nobody can find them any more: what was learned from them says nothing of others.
    pub(crate) fn forget_learned(&mut self) {
        self.forget_cells();
        if self.shared.graph.codec_number() != 0 {
            self.shared.graph.forget_codes();
            (self.changes.codec, self.imaged_codes) = (true, 0);
        }
    }

    /// Nothing has been written for a while: what was learned may be looked at sooner, and vectors that wait for that are given up
    /// for their codes when there is nothing to look at. Whether there is.
    pub(crate) fn rest(&mut self, points: &mut PointsWriter) -> bool {
        match &mut self.index {
            IndexWriter::Graph(_) => self.shared.graph.rest(self.shared.vectors() as usize),
            IndexWriter::Cells(filing) => {
                filing.watch.resting = true;
                self.prove_at_rest(points);
                self.training_due()
            }
        }
    }

    /// Whether something is learned from its points that follows them: then it is to be told of a rest.
    pub fn follows_points(&self) -> bool {
        self.files_cells() || self.shared.config.quantized().is_some()
    }

    /// Whether codes wait for the job that frees them.
    pub fn has_codes_to_free(&self) -> bool {
        self.shared.graph.has_codes_to_free()
    }

    /// Whether codes wait for readers, or for that job.
    pub(crate) fn has_retired_codes(&self) -> bool {
        self.shared.graph.has_retired_codes()
    }

    /// How well what was learned fits what is written, for images; `None` before anything is.
    pub(crate) fn watch(&self) -> Option<Watch> {
        self.index.watch(&self.shared.graph)
    }

    /// The space is dropped: the dead slots that it has not let go of. Nothing in it is led around them any more.
    ///
    /// # Panics
    /// When a round is open.
    pub(crate) fn abandon(&mut self) -> Vec<Slot> {
        assert!(!self.round_open(), "a space is dropped between rounds");
        let mut dead = std::mem::take(&mut self.dead_linked);
        if let Some(pass) = self.index.linking_mut().and_then(|linking| linking.pass.take()) {
            dead.extend(pass.into_dead());
        }
        let (tail, points) = (&self.shared.tail, &self.shared.points);
        let window = tail.window();
        let slots = (window.start..window.end).map(|position| tail.slot(position));
        dead.extend(slots.filter(|&slot| !self.is_linked(slot) && points.is_dead(slot)));
        dead
    }

    /// Moves the tail's start past dead slots at its front.
    pub(super) fn drop_dead_front(&mut self, points: &mut PointsWriter) {
        let shared = &self.shared;
        let window = shared.tail.window();
        let alive =
            (window.start..window.end).find(|&position| !shared.points.is_dead(shared.tail.slot(position)));
        self.pass_tail(points, alive.unwrap_or(window.end));
    }

    /// Moves the tail's start to `position`. What it passes is linked or dead; the dead that were never linked have lost
    /// their last trace.
    pub(super) fn pass_tail(&self, points: &mut PointsWriter, position: u64) {
        let shared = &self.shared;
        let passed = shared.tail.window().start..position;
        if passed.is_empty() {
            return;
        }
        let gone: Vec<Slot> =
            passed.map(|position| shared.tail.slot(position)).filter(|&slot| !self.is_linked(slot)).collect();
        debug_assert!(gone.iter().all(|&slot| shared.points.is_dead(slot)));
        shared.tail.advance(position);
        if !gone.is_empty() {
            points.let_go(gone);
        }
    }

    /// Publishes the bytes that only the owner can count; `ahead` slots beyond those in use have their memory already.
    pub(crate) fn note_bytes(&self, ahead: u64) {
        let bare = self.bare.len() * self.shared.graph.vector_row_bytes();
        let bytes = self.index.bytes(&self.shared.graph, bare)
            + self.bare.bytes()
            + self.dead_linked.capacity() as u64 * 4
            + self.changes.bytes()
            + self.shared.holdings.bytes(self.shared.points.slots().into())
            + ahead * self.shared.bytes_per_slot();
        self.shared.owner_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Restore: a live slot the image shows unlinked waits in the tail again.
    pub(crate) fn requeue(&self, slot: Slot) {
        self.shared.tail.push(slot);
        add(&self.shared.tail_live, 1);
    }
}
