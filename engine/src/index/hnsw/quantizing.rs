//! How the quantizer of a graph is trained, when it is trained anew, and how its codes are written.
//!
//! Training takes seconds and writing a code up to some tens of µs, so both are jobs: the owner copies vectors for one
//! ([`Graph::next_job`]), any thread runs it, the owner takes what came out ([`Graph::finish_job`]). Memory of codes that nobody reads any
//! more is freed by a job as well, as it may take milliseconds.
//!
//! A quantizer follows the data: when so much was written that it may not fit any more ([`Watch`]), another is trained on a sample of the
//! points that are there. It takes the place of the one before only if it is clearly better on vectors of the sample that it has not
//! learned from; else nothing is coded anew, and the next look comes later.
use super::Graph;
use super::generation::Generation;
use super::graph::FILE_ROWS_AT_ONCE;
use super::quantized::QuantizedRows;
use super::training::{Stage, Training, generation};
use crate::distance::Metric;
use crate::memory::{ArenaError, Link};
use crate::quantizer::{Codec, Quantization, SAMPLE_MAX, Watch, is_better, mean, split_sample};
use crate::slot::Slot;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// A training that failed is tried again at so many times as many vectors.
const TRIED_AGAIN_AT: usize = 8;
/// Generations that readers may still hold, before there is another training: a long search keeps what it goes over for half a minute.
const RETIRED_MAX: usize = 1;
/// Components of a sample at most, 256 MiB.
const SAMPLE_COMPONENTS: usize = 1 << 26;
/// Vectors below which nothing is learned: a search scores that many exactly in no time.
const TRAINED_MIN: usize = if cfg!(test) { 2 } else { 256 };
/// Vectors copied or codes taken in one go, however short they are.
const SLOTS_AT_ONCE: usize = 4096;
/// Slots that hold no point and are passed over in one go.
const PASSED_AT_ONCE: usize = 1 << 15;
/// Floats copied in one go: some 100 µs.
const COPIED_AT_ONCE: usize = 1 << 17;
/// Floats that a job writes codes of, 8 MiB: every job has a start and an end that cost some ten milliseconds of waiting.
const ENCODED_AT_ONCE: usize = if cfg!(test) { 1 << 16 } else { 1 << 21 };

/// What the owner does next.
#[derive(Debug)]
pub enum JobStep {
    /// Nothing.
    Idle,
    /// Call again: some 100 µs of copying were done.
    More,
    /// Run this, on any thread.
    Run(Job),
}

/// Work on copies of vectors.
#[derive(Debug)]
pub struct Job {
    ticket: JobTicket,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Train {
        quantization: Quantization,
        metric: Metric,
        dim: usize,
        rows: Vec<f32>,
        seed: u64,
        before: Option<Arc<Codec>>,
    },
    Encode {
        codec: Arc<Codec>,
        first: usize,
        count: usize,
        rows: Vec<f32>,
    },
    Free(Box<Generation>),
}

/// What came out of a job.
#[derive(Debug)]
pub struct JobDone {
    ticket: JobTicket,
    outcome: Outcome,
}

#[derive(Debug)]
enum Outcome {
    /// With its mean error, and that of the one before where this is as good.
    Trained(Codec, f64, Option<f64>),
    Encoded {
        first: usize,
        count: usize,
        codes: Vec<u8>,
    },
    Freed,
}

/// Tells which graph a job is of, and from which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTicket {
    serial: u64,
    epoch: u64,
}

impl Job {
    /// Whether it takes seconds, and not tenths of one.
    pub fn is_training(&self) -> bool {
        matches!(self.work, Work::Train { .. })
    }

    /// Whether it does no more than give memory back.
    pub fn frees(&self) -> bool {
        matches!(self.work, Work::Free(_))
    }

    /// For [`Graph::fail_job`].
    pub fn ticket(&self) -> JobTicket {
        self.ticket
    }

    /// Does it: seconds for training a product, some milliseconds for codes.
    pub fn run(self) -> JobDone {
        let outcome = match self.work {
            Work::Train { quantization, metric, dim, rows, seed, before } => {
                let (learned, held_out) = split_sample(dim, rows);
                let codec = Codec::train(quantization, metric, dim, &learned, seed);
                let errors = codec.errors(&held_out);
                let before = before.map(|before| before.errors(&held_out));
                let kept = before.filter(|before| !is_better(before, &errors)).map(|before| mean(&before));
                Outcome::Trained(codec, mean(&errors), kept)
            }
            Work::Encode { codec, first, count, rows } => {
                let mut codes = vec![0; count * codec.code_len()];
                codec.encode(&rows, &mut codes);
                Outcome::Encoded { first, count, codes }
            }
            Work::Free(generation) => {
                drop(generation);
                Outcome::Freed
            }
        };
        JobDone { ticket: self.ticket, outcome }
    }
}

impl JobDone {
    /// Whether a quantizer was trained.
    pub fn is_training(&self) -> bool {
        matches!(self.outcome, Outcome::Trained(..))
    }
}

/// The points that there are, as the owner of their life knows.
pub struct Living<'a> {
    /// How many.
    pub count: usize,
    /// Sequence number of the last write: all were born by then.
    pub seq: u64,
    /// Which slots hold one.
    pub is_live: &'a dyn Fn(Slot) -> bool,
}

/// Vectors of a graph, as jobs copy them.
struct Source<'a, 'v> {
    vectors: &'a dyn Fn(Slot) -> &'v [f32],
    /// One past the highest slot ever written.
    end: usize,
    /// Of a file: those that the next call but one copies.
    ahead: Option<&'a dyn Fn(std::ops::Range<usize>)>,
}

impl QuantizedRows {
    /// Whether a training is due, when nothing is under way.
    fn wants_training(&self, training: &Training, live: usize, force: bool) -> bool {
        if live < TRAINED_MIN {
            return false;
        }
        match training.current {
            None => {
                (force || live >= self.config.threshold)
                    && (training.tried_at == 0 || live / TRIED_AGAIN_AT >= training.tried_at)
            }
            Some(_) => {
                !self.config.once
                    && training.leaving.len() + training.retired.len() < RETIRED_MAX
                    && training.watch.is_due(live as u64, f64::INFINITY)
            }
        }
    }

    /// Owner: see [`Graph::next_job`].
    fn next(
        &self,
        training: &mut Training,
        source: &Source<'_, '_>,
        living: &Living<'_>,
        force: bool,
    ) -> JobStep {
        if training.running {
            return JobStep::Idle;
        }
        if let Some(generation) = training.take_quiescent() {
            self.note_bytes(training);
            return self.run(training, Work::Free(generation));
        }
        let copied = (COPIED_AT_ONCE / self.dim)
            .clamp(1, if source.ahead.is_some() { FILE_ROWS_AT_ONCE } else { SLOTS_AT_ONCE });
        match &mut training.stage {
            Stage::Settled => {
                if !self.wants_training(training, living.count, force) {
                    return JobStep::Idle;
                }
                let most = (SAMPLE_COMPONENTS / self.dim).clamp(TRAINED_MIN, SAMPLE_MAX);
                let every = living.count.div_ceil(most);
                // In one piece: growing copies what is there.
                let rows = Vec::with_capacity(living.count.div_ceil(every) * self.dim);
                training.stage = Stage::Sampling { next: 0, end: source.end, every, live: 0, rows };
                // What is written from now on is not learned from, or may not be.
                training.watch.begin_look(living.count as u64);
                (training.began_at, training.died) = (living.seq, 0);
                training.tried_at = living.count;
                JobStep::More
            }
            Stage::Sampling { next, end, every, live, rows } => {
                let full = rows.capacity() - rows.capacity() % self.dim;
                let (mut left, mut passed) = (copied, PASSED_AT_ONCE);
                while left > 0 && passed > 0 && *next < *end && rows.len() < full {
                    let slot = *next as Slot;
                    *next += 1;
                    passed -= 1;
                    if !(living.is_live)(slot) {
                        continue;
                    }
                    *live += 1;
                    if (*live - 1).is_multiple_of(*every) {
                        rows.extend_from_slice(&(source.vectors)(slot)[..self.dim]);
                        left -= 1;
                    }
                }
                if *next < *end && rows.len() < full {
                    if let Some(ahead) = source.ahead {
                        let later =
                            (*next..*end).filter(|&slot| (living.is_live)(slot as Slot)).step_by(*every);
                        later.take(copied).for_each(|slot| ahead(slot..slot + 1));
                    }
                    return JobStep::More;
                }
                let rows = std::mem::take(rows);
                if rows.is_empty() {
                    training.stage = Stage::Settled;
                    return JobStep::Idle;
                }
                training.stage = Stage::Training;
                let before = training.current.map(|link| generation(link).codec.clone());
                let (quantization, metric, dim, seed) =
                    (self.config.quantization, self.metric, self.dim, self.seed);
                self.run(training, Work::Train { quantization, metric, dim, rows, seed, before })
            }
            Stage::Training => unreachable!("its job is out, or was finished"),
            Stage::Encoding { to, end, .. } if *to >= *end => {
                self.publish_next(training);
                JobStep::More
            }
            Stage::Encoding { to, end, rows } => {
                if rows.is_empty() {
                    // What was written before is read now.
                    training.written.clear();
                }
                let from = *to + rows.len() / self.dim;
                for slot in from..(from + copied).min(*end) {
                    rows.extend_from_slice(&(source.vectors)(slot as Slot)[..self.dim]);
                }
                if let Some(ahead) = source.ahead {
                    let later = |pieces: usize| (from + pieces * copied).min(*end);
                    ahead(later(2)..later(3));
                }
                let (first, count) = (*to, rows.len() / self.dim);
                if first + count < *end && rows.len() < ENCODED_AT_ONCE && count < 4 * SLOTS_AT_ONCE {
                    return JobStep::More;
                }
                let rows = std::mem::take(rows);
                let codec = generation(training.next.expect("codes of it are being written")).codec.clone();
                self.run(training, Work::Encode { codec, first, count, rows })
            }
        }
    }

    fn run(&self, training: &mut Training, work: Work) -> JobStep {
        training.running = true;
        JobStep::Run(Job { ticket: JobTicket { serial: self.serial, epoch: training.epoch }, work })
    }

    fn is_ours(&self, training: &Training, ticket: JobTicket) -> bool {
        training.running && ticket == JobTicket { serial: self.serial, epoch: training.epoch }
    }

    /// Owner: see [`Graph::finish_job`].
    fn finish(&self, training: &mut Training, end: usize, done: JobDone) -> Result<(), ArenaError> {
        if !self.is_ours(training, done.ticket) {
            return Ok(());
        }
        training.running = false;
        match done.outcome {
            Outcome::Freed => {}
            Outcome::Trained(codec, error, kept) => {
                training.stage = Stage::Settled;
                let learned_from = training.watch.learned_from;
                if let Some(before) = kept {
                    training.watch.keep(training.began_at, learned_from, before, 0.0);
                    return Ok(());
                }
                let rows = self.reserve(&codec)?;
                let bytes = end * codec.code_len();
                rows.commit(end).map_err(|source| ArenaError::File { bytes, source })?;
                let link = Link::boxed(Generation {
                    number: training.number % u8::MAX + 1,
                    codec: Arc::new(codec),
                    trained_at: learned_from as usize,
                    rows,
                    end: AtomicU32::new(0),
                });
                training.begin_encoding(link, end);
                training.watch = Watch::new(training.began_at, learned_from, error, 0.0);
                training.watch.left = learned_from.saturating_sub(std::mem::take(&mut training.died));
                self.note_bytes(training);
            }
            Outcome::Encoded { first, count, codes } => {
                let generation = generation(training.next.expect("codes of it are being written"));
                let filled = generation.fill(first, &codes, |slot| training.written.contains(&slot));
                debug_assert_eq!(filled, count, "each slot has one code");
                if let Stage::Encoding { to, .. } = &mut training.stage {
                    *to = first + count;
                }
                self.note_bytes(training);
            }
        }
        Ok(())
    }

    fn fail(&self, training: &mut Training, ticket: JobTicket) {
        if !self.is_ours(training, ticket) {
            return;
        }
        training.running = false;
        // A generation without all its codes is never published. The one before stays, as it fits.
        training.drop_next();
        let learned_from = training.watch.learned_from;
        training.watch.keep(training.began_at, learned_from, training.watch.error.trained, 0.0);
    }

    fn forget(&self, training: &mut Training) {
        self.publish(None);
        self.begin_round();
        training.leaving.extend(training.current.take());
        training.drop_next();
        training.epoch += 1;
        (training.running, training.tried_at, training.watch) = (false, 0, Watch::default());
    }
}

impl Graph {
    /// The number of the last quantizer that was trained, also while its codes are still being written; 0 = none. Owner.
    pub fn codec_number(&self) -> u8 {
        if self.quantized.is_some() { self.owner_for_codes().training.last_number() } else { 0 }
    }

    /// Owner: how well the quantizer that is saved fits what is written; `None` before there is one. While another is about to take its
    /// place that is not known: after a start a look is due at once.
    pub(crate) fn watch(&self) -> Option<Watch> {
        self.quantized.as_ref()?;
        let training = &self.owner_for_codes().training;
        match (training.current, training.next) {
            (None, None) => None,
            (Some(_), _) if !matches!(training.stage, Stage::Settled) => {
                Some(Watch::unknown(training.watch.learned_from))
            }
            _ => Some(training.watch),
        }
    }

    /// Owner: a point that was born at `born` is gone.
    pub fn bury(&self, born: u64) {
        if self.quantized.is_some() {
            let training = &mut self.owner_for_codes().training;
            training.watch.bury(born);
            training.died += u64::from(born <= training.began_at);
        }
    }

    /// Owner: nothing has been written for a while, so that a look at how well codes fit may come sooner. Whether one is due for so many
    /// points.
    pub fn rest(&self, points: usize) -> bool {
        let Some(quantized) = &self.quantized else { return false };
        let training = &mut self.owner_for_codes().training;
        training.watch.resting = true;
        training.current.is_some() && quantized.wants_training(training, points, false)
    }

    /// Owner: what is to be done next for the codes of the quantizer, if the graph has one: training when there are enough points (any,
    /// with `force`), or when what was learned does not fit any more, then codes, piece by piece. [`JobStep::Idle`] also while a job is out.
    ///
    /// Cost of a call: some 100 µs of copying.
    pub fn next_job(&self, force: bool, living: &Living<'_>) -> JobStep {
        let Some(quantized) = &self.quantized else { return JobStep::Idle };
        let mut owner = self.owner_for_codes();
        let ahead = |slots: std::ops::Range<usize>| self.vectors.will_need(slots.start, slots.end);
        let source = Source {
            vectors: &|slot| self.vector(slot),
            end: self.slots_end(),
            ahead: if self.keeps_file() { Some(&ahead) } else { None },
        };
        quantized.next(&mut owner.training, &source, living, force)
    }

    /// Owner: takes what came out of the job that [`Self::next_job`] gave last; of another graph it is ignored.
    ///
    /// # Errors
    /// When address space for codes runs out; walks go on as before.
    pub fn finish_job(&self, done: JobDone) -> Result<(), ArenaError> {
        let Some(quantized) = &self.quantized else { return Ok(()) };
        quantized.finish(&mut self.owner_for_codes().training, self.slots_end(), done)
    }

    /// Owner: the job that [`Self::next_job`] gave last has failed. Walks go on as before until the next training is due.
    pub fn fail_job(&self, ticket: JobTicket) {
        if let Some(quantized) = &self.quantized {
            quantized.fail(&mut self.owner_for_codes().training, ticket);
        }
    }

    /// Owner, while no plan is in flight and no slot is linked or can be found by anybody: what was learned is forgotten, as of a graph that
    /// has just been made; vectors that were given up are there again from the next on.
    pub fn forget_codes(&self) {
        if let Some(quantized) = &self.quantized {
            quantized.forget(&mut self.owner_for_codes().training);
            self.set_bare(false);
        }
    }

    /// Owner, while no plan is in flight: how many generations of codes nothing leads to any more since the last call. For each of them
    /// [`Self::codes_are_quiescent`] is to be called once, when no reader is left that was pinned at this call.
    #[must_use]
    pub fn retire_codes(&self) -> usize {
        let Some(quantized) = &self.quantized else { return 0 };
        let training = &mut self.owner_for_codes().training;
        if training.leaving.is_empty() {
            return 0;
        }
        quantized.begin_round();
        let before = training.retired.len();
        let (gone, leaving) = training.leaving.iter().partition(|link| quantized.is_unlinked(**link));
        training.leaving = leaving;
        training.retired.extend::<Vec<_>>(gone);
        training.retired.len() - before
    }

    /// Owner: whether codes are there that nobody will begin to read.
    pub fn has_retired_codes(&self) -> bool {
        self.quantized.is_some() && {
            let training = &self.owner_for_codes().training;
            !(training.leaving.is_empty() && training.retired.is_empty() && training.quiescent.is_empty())
        }
    }

    /// Owner: whether the next job frees codes.
    pub fn has_codes_to_free(&self) -> bool {
        self.quantized.is_some() && !self.owner_for_codes().training.quiescent.is_empty()
    }
}
