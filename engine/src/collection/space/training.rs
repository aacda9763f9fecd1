//! When centroids are trained, and on what.
//!
//! The sample is the points whose ids hash lowest: so many of all are as likely as any others, whatever the order in which they are
//! met, and the walk over the ids can be cut into slices. It is copied, so that clustering it needs nothing of the collection and
//! may run anywhere. What comes out depends on configuration, seed, and the points alive while the walk went by.
use super::{
    Arc, ArenaError, AtomicU64, Cow, DenseConfig, Filing, Ordering, PointsWriter, Slot, SpaceWriter, Watch,
};
use crate::cluster::{Centroids, KMeans};
use crate::distance::{Metric, padded};
use crate::index::{Cells, Measured};
use crate::quantizer::{CellCodec, CellProduct, RESIDUALS_MAX, is_better, mean, split_sample};
use crate::random;
use std::collections::BinaryHeap;

/// Rounds of a clustering at most.
const ROUNDS: usize = 25;
/// Points of a sample: so many per cell, and at least so many. Four times as many per cell find no more neighbours.
const SAMPLE_PER_CELL: usize = 64;
const SAMPLE_MIN: usize = 50_000;

/// Until its codes are looked at, one in this many filed points may keep the vector that it is to give up; the second is for collections at rest.
const UNPROVEN_SHARE: usize = 4;
const UNPROVEN_SHARE_RESTING: usize = 64;
/// At least this many may keep their vectors, as codes are compared on the eighth of them that is held out of the training.
const UNPROVEN_MIN: usize = 8 * COMPARED_MIN;
/// Codes are not compared on fewer vectors.
const COMPARED_MIN: usize = 8;

/// Points by which old and new cells are compared, at most.
const HELD_OUT_MAX: usize = 4096;

/// Without drift to go by, and a number of cells that was not given, cells are made anew for so many times as many points.
const GROWTH: u64 = 8;

/// What is to be clustered.
pub struct TrainingSample {
    ticket: u64,
    seq: u64,
    live: u64,
    cells: usize,
    metric: Metric,
    seed: u64,
    dim: usize,
    spills: Option<f32>,
    product: Option<CellProduct>,
    points: Vec<f32>,
    /// For each point, whether its components are those that were written; otherwise they were decoded from a code.
    is_exact: Vec<bool>,
    /// Vectors are given up for codes.
    drops: bool,
    /// The cells that there are, to see whether others are better.
    before: Option<Arc<Cells>>,
    /// What their codes lose, as far as that is known.
    error_before: f64,
}

/// Tells which writer's sample it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingTicket(u64);

/// What [`TrainingSample::cluster`] found.
pub struct Clustering {
    ticket: u64,
    /// What points written later are held to.
    watch: Watch,
    /// Without content. `None` when those before are as good.
    cells: Option<Result<Cells, ArenaError>>,
}

impl Clustering {
    /// Cells found; 0 when there was no room for them, or those before are as good.
    pub fn cells(&self) -> usize {
        self.cells.as_ref().and_then(|cells| cells.as_ref().ok()).map_or(0, Cells::len)
    }
}

/// Multiplications of a clustering, about: some minutes. Many cells get by with fewer rounds.
const WORK: f64 = 1e13;
const ROUNDS_MIN: usize = 2;

impl TrainingSample {
    /// k-means, and where cells have codes the quantizer of what is left of the sample. Takes seconds for a thousand cells and minutes
    /// for ten thousand, some seconds more for the quantizer; whoever calls it is no core that serves.
    pub fn cluster(self) -> Clustering {
        let TrainingSample {
            ticket,
            seq,
            live,
            cells,
            metric,
            seed,
            dim,
            spills,
            product,
            points,
            is_exact,
            before,
            error_before,
            drops,
        } = self;
        // What was not learned from tells whether it is better than before.
        let (points, held_out) = match before {
            Some(_) => split_sample(dim, points),
            None => (points, Vec::new()),
        };
        let round = points.len() as f64 * cells as f64;
        let rounds = ((WORK / round) as usize).clamp(ROUNDS_MIN, ROUNDS);
        let centroids = KMeans { dim, cells, metric, rounds, seed }.run(&points).rows();
        let residuals = residuals(metric, dim, &centroids, &points);
        let squares: f64 = residuals.iter().map(|x| f64::from(*x).powi(2)).sum();
        let spread = squares / (residuals.len() / dim) as f64;
        let (codec, error) = match product {
            Some(product) => {
                let (learned, held_out) = split_sample(dim, residuals);
                let codec = CellCodec::train(product, dim, &learned, seed);
                let error = codec.error(&held_out);
                (Some(codec), error)
            }
            None => (None, 0.0),
        };
        let cells = Cells::new(metric, dim, &centroids, spills, codec, live);
        let (Some(before), Ok(fresh)) = (&before, &cells) else {
            let watch = Watch::new(seq, live, error, spread);
            return Clustering { ticket, watch, cells: Some(cells) };
        };
        let is_exact = split_sample(1, is_exact).1;
        let (old, new) = (lost(before, dim, &held_out, &is_exact), lost(fresh, dim, &held_out, &is_exact));
        // Few vectors are exact where they are given up, and codes lose little of what older codes stand for.
        let is_known = old.errors.len() >= COMPARED_MIN;
        let better_codes = is_known && is_better(&old.errors, &new.errors);
        let better_cells = is_better(&old.spreads, &new.spreads);
        // Where vectors are given up for codes the old ones lose nothing of most points.
        let better = if product.is_none() { better_cells } else { better_codes || (drops && better_cells) };
        let of = if better { &new } else { &old };
        let error = if is_known { mean(&of.errors) } else { error_before };
        let watch = Watch::new(seq, live, error, mean(&of.spreads));
        Clustering { ticket, watch, cells: better.then_some(cells) }
    }

    /// For [`SpaceWriter::fail_training`].
    pub fn ticket(&self) -> TrainingTicket {
        TrainingTicket(self.ticket)
    }

    /// Points in it.
    pub fn len(&self) -> usize {
        self.points.len() / self.dim
    }

    /// Never: one without points is not handed out.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
}

/// Squared distances of points.
struct Lost {
    /// Squared distances from what the codes stand for, of the exact points only.
    errors: Vec<f64>,
    /// Squared distances of the points from their centroids.
    spreads: Vec<f64>,
}

fn lost(cells: &Cells, dim: usize, points: &[f32], is_exact: &[bool]) -> Lost {
    let every = (points.len() / dim).div_ceil(HELD_OUT_MAX).max(1);
    let (mut padded, mut buffer, mut decoded) = (vec![0.0; padded(dim)], Vec::new(), Vec::new());
    let mut lost = Lost { errors: Vec::new(), spreads: Vec::new() };
    for (point, &is_exact) in points.chunks_exact(dim).zip(is_exact).step_by(every) {
        padded[..dim].copy_from_slice(point);
        let place = cells.place_step(&padded, &mut buffer, usize::MAX).expect("all cells in one step");
        let Measured { error, spread } = cells.measure(point, place.cell, &place.codes, &mut decoded);
        lost.spreads.push(spread);
        lost.errors.extend(is_exact.then_some(error));
    }
    lost
}

/// What a share of the points differs from the nearest centroids by.
fn residuals(metric: Metric, dim: usize, centroids: &[f32], points: &[f32]) -> Vec<f32> {
    let every = (points.len() / dim).div_ceil(RESIDUALS_MAX);
    let mut residuals: Vec<f32> = points.chunks_exact(dim).step_by(every).flatten().copied().collect();
    let cells = Centroids::new(metric, dim, centroids).nearest(&residuals);
    for (residual, cell) in residuals.chunks_exact_mut(dim).zip(cells) {
        let centroid = &centroids[cell as usize * dim..][..dim];
        residual.iter_mut().zip(centroid).for_each(|(x, c)| *x -= c);
    }
    residuals
}

/// How far a training has come.
#[derive(Default)]
pub(crate) struct Training {
    step: Step,
    /// Tells the trainings of a process apart: a clustering comes back to the writer that asked for it or to none.
    ticket: u64,
    /// Asked for, whatever the number of points.
    wanted: bool,
    /// Cells of now stay unless others are better.
    compares: bool,
    /// Sequence number at which the last sample was begun, and points of that time that have died since.
    began_at: u64,
    died: u64,
}

#[derive(Default)]
enum Step {
    #[default]
    Idle,
    /// The mean distance to the nearest centroid is being taken.
    Measuring { cursor: Slot, sum: f64, count: u64 },
    /// Ids are drawn: up to `wanted`, those of the lowest hashes.
    Drawing { from: u64, wanted: usize, drawn: BinaryHeap<(u64, u64)>, live: u64 },
    /// Their vectors are copied.
    Copying { ids: Vec<u64>, sample: TrainingSample },
    /// Somebody else has the sample, of so many bytes.
    Clustering(u64),
    /// There was no room for the cells, or the clustering failed. Not again before a restart.
    Failed,
}

impl Training {
    pub fn bytes(&self) -> u64 {
        match &self.step {
            Step::Drawing { drawn, .. } => drawn.capacity() as u64 * 16,
            Step::Copying { ids, sample } => (ids.capacity() * 8 + sample.points.capacity() * 4) as u64,
            Step::Clustering(bytes) => *bytes,
            Step::Idle | Step::Measuring { .. } | Step::Failed => 0,
        }
    }

    /// A point that was born at `born` is gone.
    pub fn bury(&mut self, born: u64) {
        self.died += u64::from(born <= self.began_at);
    }

    /// Asked for, and not begun.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Somebody clusters the sample.
    pub fn is_clustering(&self) -> bool {
        matches!(self.step, Step::Clustering(_))
    }
}

/// 0 acts as 1, as in the interface.
fn seed_of(config: &DenseConfig) -> u64 {
    if config.seed == 0 { 1 } else { config.seed as u64 }
}

/// Ids ordered by this are in no order.
fn hash(seed: u64, id: u64) -> u64 {
    random::hash(random::hash(seed) ^ id)
}

impl SpaceWriter {
    /// Asks for a training whatever the number of points, at the next step: for a bulk build, before its first
    /// round. Nothing without cells to train.
    pub fn want_training(&mut self) {
        if let Some(filing) = self.index.filing_mut() {
            filing.training.wanted = true;
        }
    }

    /// Whether [`super::super::DenseWriter::training_step`] has work.
    pub fn training_due(&self) -> bool {
        let Some(filing) = self.index.filing() else { return false };
        match filing.training.step {
            Step::Clustering(_) | Step::Failed => false,
            Step::Measuring { .. } | Step::Drawing { .. } | Step::Copying { .. } => true,
            Step::Idle if filing.next.is_some() => false,
            Step::Idle => {
                let live = self.shared.vectors() as usize;
                // What waits in the tail has no distance yet.
                let filed = live.saturating_sub(self.shared.tail_len() as usize);
                let grown = match (&filing.current, filing.config.drift) {
                    (None, _) => live >= filing.config.trains_at(),
                    (Some(current), Some(drift)) => {
                        filed as f64 >= current.cells().trained_on() as f64 * drift.limits().0
                    }
                    // As many cells as there were at the first training would hold ever more points.
                    (Some(current), None) => {
                        filing.config.nlist == 0 && filed as u64 / GROWTH >= current.cells().trained_on()
                    }
                };
                live > 0 && (grown || filing.training.wanted || filing.is_look_due(live as u64))
            }
        }
    }

    /// One slice of a training, of about `points` points, each some hundred nanoseconds. The sample once it is whole, to be
    /// clustered elsewhere and brought back to [`Self::end_training`].
    pub(crate) fn training_step(&mut self, of: &PointsWriter, points: usize) -> Option<TrainingSample> {
        if !self.training_due() {
            return None;
        }
        let shared = self.shared.clone();
        let filing = self.index.of_cells();
        let (wanted, live) = (filing.training.wanted, shared.vectors());
        let next = match std::mem::take(&mut filing.training.step) {
            Step::Idle if !wanted && filing.is_look_due(live) => {
                filing.training.compares = true;
                self.begin_drawing(of)
            }
            Step::Idle if filing.current.is_some() && filing.config.drift.is_some() && !wanted => {
                Step::Measuring { cursor: 0, sum: 0.0, count: 0 }
            }
            Step::Idle => self.begin_drawing(of),
            Step::Measuring { cursor, sum, count } => self.measure(of, (cursor, sum, count), points),
            Step::Drawing { mut from, wanted, mut drawn, live } => {
                let seed = seed_of(&shared.config);
                let mut ids = of.ids_from(from).take(points);
                let last = ids.by_ref().inspect(|&id| {
                    if !shared.has_vector_of(id) {
                        return;
                    }
                    drawn.push((hash(seed, id), id));
                    if drawn.len() > wanted {
                        drawn.pop();
                    }
                });
                match last.last().and_then(|last| last.checked_add(1)) {
                    Some(next) => {
                        from = next;
                        Step::Drawing { from, wanted, drawn, live }
                    }
                    None => self.begin_copying(drawn, live),
                }
            }
            Step::Copying { mut ids, mut sample } => {
                for id in ids.drain(ids.len().saturating_sub(points)..).rev() {
                    // Deleted since it was drawn.
                    let Some(slot) = shared.points.slot_of(id).filter(|&slot| shared.holds(slot)) else {
                        continue;
                    };
                    let vector = self.vector_of(slot);
                    sample.points.extend_from_slice(&vector[..sample.dim]);
                    sample.is_exact.push(matches!(vector, Cow::Borrowed(_)));
                }
                if ids.is_empty() {
                    if sample.is_empty() {
                        return None;
                    }
                    self.index.of_cells().training.step =
                        Step::Clustering(sample.points.capacity() as u64 * 4);
                    return Some(sample);
                }
                Step::Copying { ids, sample }
            }
            step @ (Step::Clustering(_) | Step::Failed) => step,
        };
        self.index.of_cells().training.step = next;
        None
    }

    fn begin_drawing(&mut self, of: &PointsWriter) -> Step {
        let live = self.shared.vectors() as usize;
        let filing = self.index.of_cells();
        filing.training.wanted = false;
        filing.watch.begin_look(live as u64);
        (filing.training.began_at, filing.training.died) = (of.seq(), 0);
        let cells = filing.config.cells_for(live);
        let wanted = SAMPLE_MIN.max(SAMPLE_PER_CELL.saturating_mul(cells));
        Step::Drawing { from: 0, wanted, drawn: BinaryHeap::new(), live: live as u64 }
    }

    fn begin_copying(&mut self, drawn: BinaryHeap<(u64, u64)>, live: u64) -> Step {
        let config = &self.shared.config;
        let filing = self.index.of_cells();
        filing.training.ticket = ticket();
        // In the order of the heap, which depends on the ids alone; sorting them would take milliseconds.
        let ids: Vec<u64> = drawn.into_iter().map(|(_, id)| id).collect();
        let sample = TrainingSample {
            ticket: filing.training.ticket,
            seq: filing.training.began_at,
            live,
            cells: filing.config.cells_for(live as usize),
            metric: config.metric,
            seed: seed_of(config),
            dim: config.dim,
            spills: filing.config.spills(),
            product: filing.config.product.map(|product| product.code),
            points: Vec::with_capacity(ids.len() * config.dim),
            is_exact: Vec::with_capacity(ids.len()),
            drops: config.drops_vectors(),
            error_before: filing.watch.error.trained,
            before: match std::mem::take(&mut filing.training.compares) {
                true => filing.current.as_ref().map(|current| current.cells().clone()),
                false => None,
            },
        };
        Step::Copying { ids, sample }
    }

    /// Distances of points to the centroid of their cell, which is the nearest.
    fn measure(&mut self, of: &PointsWriter, so_far: (Slot, f64, u64), points: usize) -> Step {
        let (mut cursor, mut sum, mut count) = so_far;
        let shared = self.shared.clone();
        let Some(filing) = self.index.filing() else { return Step::Idle };
        let Some(current) = &filing.current else { return Step::Idle };
        let end = of.high_water() as Slot;
        for slot in (cursor..end).take(points) {
            cursor = slot + 1;
            if let Some((cell, _)) = current.place(slot).filter(|_| !shared.points.is_dead(slot)) {
                sum += f64::from(current.cells().distance(&self.vector_of(slot), cell));
                count += 1;
            }
        }
        if cursor < end {
            return Step::Measuring { cursor, sum, count };
        }
        let mean = f64::from(current.cells().mean());
        let (_, factor) = filing.config.drift.unwrap_or_default().limits();
        // Distances may be negative under dot: drift is measured against their size.
        if count > 0 && sum / count as f64 - mean > (factor - 1.0) * mean.abs() {
            return self.begin_drawing(of);
        }
        current.cells().set_trained(count, mean as f32);
        self.changes.cells = current.cells().len();
        Step::Idle
    }

    /// The clustering of a sample that this writer handed out: it is filled by the next rounds, and searched when it is full. One
    /// that another writer asked for is dropped.
    pub(crate) fn end_training(&mut self, points: &mut PointsWriter, clustering: Clustering) {
        let Some(filing) = self.index.filing_mut() else { return };
        if !filing.training.is_clustering() || filing.training.ticket != clustering.ticket {
            return;
        }
        let step = match clustering.cells {
            Some(Ok(cells)) => {
                let mut watch = clustering.watch;
                watch.left = watch.left.saturating_sub(filing.training.died);
                self.begin_refiling(cells, watch);
                Step::Idle
            }
            Some(Err(_)) => Step::Failed,
            None => {
                let Watch { seq, learned_from, error, spread, .. } = clustering.watch;
                filing.watch.keep(seq, learned_from, error.trained, spread.trained);
                self.prove_codes(points);
                Step::Idle
            }
        };
        self.index.of_cells().training.step = step;
    }

    /// The clustering of a sample that this writer handed out failed. It is not tried again before a restart.
    pub fn fail_training(&mut self, ticket: TrainingTicket) {
        if let Some(filing) = self.index.filing_mut()
            && filing.training.is_clustering()
            && filing.training.ticket == ticket.0
        {
            filing.training.step = Step::Failed;
        }
    }
}

impl Filing {
    /// By how much squared distances to centroids must grow to ask for a look.
    fn spread(&self) -> f64 {
        self.config.drift.unwrap_or_default().limits().1
    }

    /// Whether enough was filed since the training to look whether other cells are better, or a good part of the vectors to be given up
    /// waits for that look.
    fn is_look_due(&self, points: u64) -> bool {
        let share = if self.watch.resting { UNPROVEN_SHARE_RESTING } else { UNPROVEN_SHARE };
        let waiting = self.unproven.len();
        let waits = waiting >= UNPROVEN_MIN && waiting > self.linked.len() / share;
        let early = self.watch.is_early() || (self.watch.resting && self.watch.written > 0);
        self.current.is_some() && ((waits && early) || self.watch.is_due(points, self.spread()))
    }
}

fn ticket() -> u64 {
    static TICKETS: AtomicU64 = AtomicU64::new(1);
    TICKETS.fetch_add(1, Ordering::Relaxed)
}
