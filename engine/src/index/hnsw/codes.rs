//! int8 codes beside the vectors: what walks and builds score, so that a distance costs a quarter of the cache lines.
//!
//! A core that walks a graph waits for memory: an f32 row of 384 components is 24 lines at random addresses, its code is 6.
//! What a walk found is scored again exactly, so distances that leave the graph are exact, and only the choice of candidates
//! is not.
//!
//! One step serves all vectors. It is chosen from a sample once there are enough of them, so that codes lose least, and
//! codes are not used at all when they lose too much against the distances of neighbours (components of very different size,
//! clusters far apart): walks go over floats then. That is decided only where no plan is in flight, as a plan must see one sort of
//! distance.
use super::GraphConfig;
use crate::distance::{
    CODE_DIM_MAX, CODE_LANES, CodeKernel, CodeQuery, Kernel, Metric, encode, encoding_error, padded_code,
};
use crate::memory::{Arena, ArenaError, ScratchFiles};
use crate::slot::Slot;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Vectors before a step is chosen. Below, searches rather score everything.
const SAMPLE_MIN: usize = 1024;
/// Components that a step is chosen from, in whole vectors: about 2 ms.
const SAMPLE_COMPONENTS: usize = 1 << 18;
/// But at least so many vectors.
const SAMPLE_VECTORS: usize = 64;
/// Components of codes written in one go once a step is chosen: about 2 ms. Walks go over codes when all are there.
const ENCODED_AT_ONCE: usize = 3 << 19;
/// Steps tried: the one that leaves nothing out, and finer ones that cut the largest components off.
const STEPS_TRIED: i32 = 8;
const FINER: f32 = 0.75;
/// More than a few roundings are off by.
const ROUNDED_UP: f32 = 1.000_01;
/// A code is rough when its error is that many times what rounding amounts to in the mean.
const ROUGH: f32 = 1.25;
/// At most one code in so many may be rough for the others to have a bound of their own.
const ROUGH_SHARE: u32 = 64;
/// What codes may lose: by how much the squared distance of a near neighbour is off, typically, as a share of it. An error of `e`
/// per component in either vector moves it by `2 sqrt(2) e` times the distance. Sentence embeddings are near 0.003.
const LOSS_MAX: f64 = 0.02;
/// What vectors that come later may lose before codes are given up: they are farther out than codes reach or, as is looked at each
/// time there are twice as many, nearer to each other than codes tell.
const LOSS_LATER_MAX: f64 = 2.0 * LOSS_MAX;
/// A near neighbour is the so many-th nearest within the sample, in the median over so many vectors of it.
const NEAR: usize = 10;
const NEAR_OF: usize = 32;
/// Vectors between two looks at it.
const LATER: usize = 1024;

/// Relative error of a distance by floats, with room: sums of some ten thousand terms in sixteen lanes and more.
const ROUNDING: f32 = 1e-4;

/// See the module.
pub(super) struct Codes {
    rows: Arena<u8>,
    kernel: CodeKernel,
    dim: usize,
    /// Bits of the step; 0 while codes are not in use.
    step: AtomicU32,
    /// Bits of the largest squared distance between a vector and its code, and of the largest squared length of a vector. Stored
    /// before a slot can be reached.
    error_max: AtomicU32,
    length_max: AtomicU32,
    /// Bits of the same among codes that are not rough.
    smooth_error_max: AtomicU32,
    smooth_length_max: AtomicU32,
    /// Codes much further from their vectors than rounding alone accounts for (of components beyond the last step): one in some
    /// thousand would widen the bound of all.
    rough: Arena<AtomicU64>,
    rough_count: AtomicU32,
    /// One past the highest slot that ever had a code.
    end: AtomicU32,
}

/// See [`Codes::bound`].
#[derive(Clone, Copy)]
pub(super) struct Bound {
    metric: Metric,
    /// Of the distance, under L2 of its root.
    off: f32,
    /// It says nothing about rough codes.
    pub(super) but_rough: bool,
}

impl Bound {
    /// What codes give for a slot that may be as near as one for which they give `coded`.
    pub(super) fn reach(self, coded: f32) -> f32 {
        match self.metric {
            Metric::L2 => (coded.max(0.0).sqrt() + 2.0 * self.off).powi(2) * ROUNDED_UP,
            Metric::Cosine | Metric::Dot => coded + 2.0 * self.off,
        }
    }

    /// No exact distance is below that where codes give `coded` and are not rough.
    #[inline]
    pub(super) fn lowest(self, coded: f32) -> f32 {
        match self.metric {
            Metric::L2 => {
                let root = (coded.sqrt() - self.off).max(0.0);
                root * root
            }
            Metric::Cosine | Metric::Dot => coded - self.off,
        }
    }
}

fn length_of(vector: &[f32]) -> f32 {
    vector.iter().map(|&component| f64::from(component) * f64::from(component)).sum::<f64>().sqrt() as f32
}

/// Owner: stores the larger of two floats that are not negative. Their bits order as they do.
fn raise(max: &AtomicU32, to: f32) {
    if to.to_bits() > max.load(Ordering::Relaxed) {
        max.store(to.to_bits(), Ordering::Relaxed);
    }
}

/// What the owner knows of how well codes fit.
#[derive(Default)]
pub(super) struct Fit {
    /// The step, from when it is chosen; published when every slot has its code.
    step: Option<f32>,
    /// Slots below have their code.
    encoded_to: usize,
    /// Vectors when a step was last looked for, chosen or judged.
    tried_at: usize,
    /// Squared error of a vector at which the loss is 1.
    unit: f64,
    /// Squared errors of vectors encoded since the last look, and how many they were.
    lost: f64,
    encoded: usize,
}

impl Codes {
    /// `None` when the configuration does not want them, or vectors are too long, or so short that a code takes as many lines.
    pub(super) fn reserve(config: &GraphConfig, scratch: &ScratchFiles) -> Result<Option<Codes>, ArenaError> {
        if !config.codes || !(CODE_LANES..=CODE_DIM_MAX).contains(&config.dim) {
            return Ok(None);
        }
        Ok(Some(Codes {
            rows: scratch.reserve(config.capacity, padded_code(config.dim))?,
            kernel: CodeKernel::of(config.metric),
            dim: config.dim,
            step: AtomicU32::new(0),
            error_max: AtomicU32::new(0),
            length_max: AtomicU32::new(0),
            smooth_error_max: AtomicU32::new(0),
            smooth_length_max: AtomicU32::new(0),
            rough: Arena::reserve_to_grow(config.capacity.div_ceil(64), 1)?,
            rough_count: AtomicU32::new(0),
            end: AtomicU32::new(0),
        }))
    }

    /// Owner: makes sure that codes of the first `slots` slots can be written.
    pub(super) fn commit(&self, slots: usize) -> std::io::Result<()> {
        self.rough.commit(slots.div_ceil(64))?;
        self.rows.commit(slots)
    }

    /// The step, when codes are in use: every written slot has its code then. A walk that still holds a step that was given up may
    /// meet slots without; it only takes a worse way.
    #[inline]
    pub(super) fn step(&self) -> Option<f32> {
        // Acquire: the codes that the step stands for are seen.
        match self.step.load(Ordering::Acquire) {
            0 => None,
            bits => Some(f32::from_bits(bits)),
        }
    }

    /// Those of slots `from..to` (see [`Arena::populate`]).
    pub(super) fn populate(&self, from: usize, to: usize) {
        self.rows.populate(from, to);
    }

    /// Bytes of one code.
    pub(super) fn bytes_per_slot(&self) -> usize {
        self.rows.row_len()
    }

    /// Bytes of codes, those that were given up included: they stay where they are.
    pub(super) fn bytes(&self) -> usize {
        self.end.load(Ordering::Relaxed) as usize * self.rows.row_len()
    }

    /// Sets `query` to a prepared vector.
    pub(super) fn set_query(&self, query: &mut CodeQuery, vector: &[f32], step: f32) {
        query.set(self.kernel.metric(), &vector[..self.dim], step);
    }

    /// Sets `query` to a slot's code.
    pub(super) fn set_node(&self, query: &mut CodeQuery, slot: Slot, step: f32) {
        query.set_row(self.kernel.metric(), self.row(slot), step);
    }

    #[inline]
    fn row(&self, slot: Slot) -> &[u8] {
        self.rows.row(slot as usize)
    }

    /// Distances of `query` to the codes of `slots`, all below the capacity.
    #[inline]
    pub(super) fn distances(&self, query: &CodeQuery, slots: &[Slot], out: &mut [f32]) {
        self.kernel.distances(query, self.rows.table(), slots, out);
    }

    /// Distance of two slots' codes.
    #[inline]
    pub(super) fn between(&self, a: Slot, b: Slot, step: f32) -> f32 {
        self.kernel.between(self.row(a), self.row(b), step)
    }

    /// Owner: writes the code of a fresh slot, once a step is chosen.
    pub(super) fn write(&self, fit: &mut Fit, slot: Slot, vector: &[f32]) {
        let Some(step) = fit.step else { return };
        // SAFETY: as for the vector itself: the slot is not linked, so nobody reaches it or asks for its code, and the owner is alone.
        fit.lost += f64::from(unsafe { self.encode(slot as usize, &vector[..self.dim], step) });
        fit.encoded += 1;
    }

    /// Writes a code; the squared error.
    ///
    /// # Safety
    /// Nobody reads the slot's code, and only the owner calls this.
    unsafe fn encode(&self, slot: usize, vector: &[f32], step: f32) -> f32 {
        // SAFETY: the caller's duty.
        let row = unsafe { self.rows.row_mut_unchecked(slot) };
        let error = encode(vector, step, row);
        let squared_length = length_of(vector).powi(2);
        raise(&self.error_max, error);
        raise(&self.length_max, squared_length);
        let is_rough = error > ROUGH.powi(2) * step * step / 12.0 * self.dim as f32;
        self.mark_rough(slot, is_rough);
        if !is_rough {
            raise(&self.smooth_error_max, error);
            raise(&self.smooth_length_max, squared_length);
        }
        self.end.store(self.end.load(Ordering::Relaxed).max(slot as Slot + 1), Ordering::Relaxed);
        error
    }

    fn mark_rough(&self, slot: usize, is_rough: bool) {
        let (word, bit) = (&self.rough.cells(slot / 64)[0], 1 << (slot % 64));
        let was = word.load(Ordering::Relaxed);
        if (was & bit != 0) != is_rough {
            word.store(was ^ bit, Ordering::Relaxed);
            let count = self.rough_count.load(Ordering::Relaxed);
            self.rough_count.store(if is_rough { count + 1 } else { count - 1 }, Ordering::Relaxed);
        }
    }

    /// Whether a slot's code is one that a bound says nothing about.
    #[inline]
    pub(super) fn is_rough(&self, slot: Slot) -> bool {
        self.rough.cells(slot as usize / 64)[0].load(Ordering::Relaxed) >> (slot % 64) & 1 == 1
    }

    /// How far exact distances to written vectors may differ, but for those with rough codes where these are few, from those of `query`, a code of `vector`.
    pub(super) fn bound(&self, query: &CodeQuery, vector: &[f32]) -> Bound {
        let metric = self.kernel.metric();
        let root = |squared: &AtomicU32| f32::from_bits(squared.load(Ordering::Relaxed)).sqrt();
        // As long as rough codes are few, they are looked at whatever they say.
        let few = self.rough_count.load(Ordering::Relaxed) <= self.end.load(Ordering::Relaxed) / ROUGH_SHARE;
        let (error, length) = if few {
            (root(&self.smooth_error_max), root(&self.smooth_length_max))
        } else {
            (root(&self.error_max), root(&self.length_max))
        };
        let own = query.error(metric, &vector[..self.dim]);
        let own_length = length_of(vector);
        let off = match metric {
            Metric::L2 => own + error,
            Metric::Cosine | Metric::Dot => own_length * error + own * (length + error),
        };
        // And what sums of floats are off by.
        let rounding = ROUNDING * own_length.max(length) * if metric == Metric::L2 { 1.0 } else { length };
        let off = 1.001 * off + rounding;
        // Lengths beyond what a float squares say nothing.
        Bound { metric, off: if off.is_nan() { f32::INFINITY } else { off }, but_rough: few }
    }

    /// Owner, while no plan is in flight: chooses a step when there are enough vectors, writes more of the codes, and gives them up
    /// when vectors that came later do not fit. `most`: codes of so many vectors are written, if that many are not there.
    pub(super) fn refit<'v>(
        &self,
        fit: &mut Fit,
        vectors: &impl Fn(Slot) -> &'v [f32],
        end: usize,
        most: usize,
    ) {
        let vector = |slot: usize| &vectors(slot as Slot)[..self.dim];
        let Some(step) = fit.step else {
            if end >= SAMPLE_MIN && end >= fit.tried_at.saturating_mul(2) {
                fit.tried_at = end;
                self.choose(fit, vectors, end);
                if fit.step.is_some() {
                    self.refit(fit, vectors, end, most);
                }
            }
            return;
        };
        if fit.encoded_to < end && self.step().is_none() {
            let to = end.min(fit.encoded_to.saturating_add(most));
            for slot in fit.encoded_to..to {
                // SAFETY: nobody asks for a code before the step is published, and the owner is alone.
                unsafe { self.encode(slot, vector(slot), step) };
            }
            fit.encoded_to = to;
            if to == end {
                // Release: whoever sees the step sees the codes.
                self.step.store(step.to_bits(), Ordering::Release);
            }
        }
        let mut lost = (fit.encoded >= LATER).then(|| fit.lost / fit.encoded as f64);
        if lost.is_some() {
            (fit.lost, fit.encoded) = (0.0, 0);
        }
        if end >= fit.tried_at.saturating_mul(2) {
            fit.tried_at = end;
            let sample = self.sample(vectors, end);
            if let Some(unit) = self.unit(&sample) {
                fit.unit = unit;
                lost = Some(self.loss(&sample, step));
            }
        }
        if lost.is_some_and(|lost| lost > LOSS_LATER_MAX.powi(2) * fit.unit) {
            self.step.store(0, Ordering::Release);
            // Not again before a restore.
            *fit = Fit { tried_at: usize::MAX, ..Fit::default() };
        }
    }

    /// Vectors whose codes are written in one go.
    pub(super) fn at_once(&self) -> usize {
        ENCODED_AT_ONCE.div_ceil(self.dim)
    }

    /// Slots whose codes are written next, if some are missing: of vectors that were there before a step was chosen.
    pub(super) fn missing(&self, fit: &Fit, end: usize) -> Option<std::ops::Range<usize>> {
        match fit.step {
            // The sample may be taken anywhere.
            None => (end >= SAMPLE_MIN && end >= fit.tried_at.saturating_mul(2)).then_some(0..0),
            Some(_) => (self.step().is_none() && fit.encoded_to < end).then_some(fit.encoded_to..end),
        }
    }

    /// Padded rows of vectors evenly among all.
    fn sample<'v>(&self, vectors: &impl Fn(Slot) -> &'v [f32], end: usize) -> Vec<&'v [f32]> {
        let every = end.div_ceil((SAMPLE_COMPONENTS / self.dim).max(SAMPLE_VECTORS));
        let rows = (0..end).step_by(every).map(|slot| vectors(slot as Slot));
        // Slots that were never written are zero, and say nothing.
        rows.filter(|row| row.iter().any(|&component| component != 0.0)).collect()
    }

    /// Squared error of a vector at which the loss is 1; `None` when the sample does not tell.
    fn unit(&self, sample: &[&[f32]]) -> Option<f64> {
        if sample.len() < SAMPLE_VECTORS / 2 {
            return None;
        }
        Some(self.dim as f64 / 8.0 * f64::from(near(sample)?))
    }

    /// Mean squared error of a vector.
    fn loss(&self, sample: &[&[f32]], step: f32) -> f64 {
        encoding_error(sample.iter().map(|row| &row[..self.dim]), step) / sample.len() as f64
    }

    fn choose<'v>(&self, fit: &mut Fit, vectors: &impl Fn(Slot) -> &'v [f32], end: usize) {
        let sample = self.sample(vectors, end);
        let Some(unit) = self.unit(&sample) else { return };
        let largest = sample.iter().flat_map(|row| row.iter()).fold(0.0, |max: f32, x| max.max(x.abs()));
        let tried = (0..STEPS_TRIED).map(|finer| largest / 127.0 * FINER.powi(finer));
        let tried =
            tried.filter(|step| step.is_normal() && (step * step).is_normal() && (1.0 / step).is_normal());
        let best = tried.map(|step| (step, self.loss(&sample, step))).min_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((step, _)) = best.filter(|&(_, lost)| lost <= LOSS_MAX.powi(2) * unit) {
            *fit = Fit { step: Some(step), unit, tried_at: end, ..Fit::default() };
        }
    }
}

/// Squared distance to a near neighbour; `None` when all have many others at the same place.
fn near(sample: &[&[f32]]) -> Option<f32> {
    let kernel = Kernel::of(Metric::L2);
    let to_tenth = |row: &&[f32]| {
        let mut distances: Vec<f32> = sample.iter().map(|other| kernel.distance(row, other)).collect();
        *distances.select_nth_unstable_by(NEAR, f32::total_cmp).1
    };
    let some = sample.iter().step_by(sample.len().div_ceil(NEAR_OF));
    let mut all: Vec<f32> = some.map(to_tenth).filter(|&distance| distance > 0.0).collect();
    let middle = all.len() / 2;
    (!all.is_empty()).then(|| *all.select_nth_unstable_by(middle, f32::total_cmp).1)
}
