//! Codes of a quantizer that walks go over instead of the vectors, once it is trained.
//!
//! Training takes seconds and writing a code up to some tens of µs, so both are jobs: the owner copies vectors for one ([`Graph::next_job`]), any
//! thread runs it, the owner takes what came out ([`Graph::finish_job`]). Until every vector has its code walks go on as before, and
//! what they find is scored exactly in either case, so answers are legal at every moment.
//!
//! A quantizer that was trained on few vectors is replaced when there are many more. The new codes have an arena of their own:
//! walks over the old ones may still be under way.
use super::graph::FILE_ROWS_AT_ONCE;
use super::{Graph, GraphConfig};
use crate::distance::Metric;
use crate::index::Slot;
use crate::memory::{Arena, ArenaError, ScratchFiles};
use crate::quantizer::{Codec, CodecQuery, Quantization, SAMPLE_MAX};
use ahash::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Quantizers of one graph at most, each trained on [`GROWTH`] times the vectors of the one before.
const GENERATIONS: usize = 3;
const LAST: usize = GENERATIONS - 1;
const GROWTH: usize = 8;
/// Components of a sample at most, 256 MiB.
const SAMPLE_COMPONENTS: usize = 1 << 26;
/// Vectors below which nothing is learned: a search scores that many exactly in no time.
const TRAINED_MIN: usize = if cfg!(test) { 2 } else { 256 };
/// Vectors copied or codes taken in one go, however short they are.
const SLOTS_AT_ONCE: usize = 4096;
/// Floats copied in one go: some 100 µs.
const COPIED_AT_ONCE: usize = 1 << 17;
/// Floats that a job writes codes of, 8 MiB: every job has a start and an end that cost some ten milliseconds of waiting.
const ENCODED_AT_ONCE: usize = if cfg!(test) { 1 << 16 } else { 1 << 21 };

/// Codes of at most this part of their vectors' bytes stay in memory also where vectors lie in a file: each distance of a walk needs one
/// of them from anywhere, so where they do not, nothing is fast.
const IN_MEMORY_PART: usize = 16;

/// When to quantize, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantized {
    /// What to keep of a vector.
    pub quantization: Quantization,
    /// Vectors before there is a training.
    pub threshold: usize,
    /// Edges are chosen by the codes too, once they are there, and not by int8 codes or vectors.
    pub plans: bool,
    /// There is one training: vectors are given up after it ([`Graph::give_up_vectors`]).
    pub once: bool,
}

struct Generation {
    codec: Arc<Codec>,
    /// Vectors that it was trained at.
    trained_at: usize,
    rows: Arena<u8>,
    /// One past the highest slot that ever had a code.
    end: AtomicU32,
}

/// See the module.
pub(super) struct QuantizedRows {
    config: Quantized,
    metric: Metric,
    dim: usize,
    capacity: usize,
    scratch: ScratchFiles,
    seed: u64,
    /// Tells the jobs of one graph from those of another that took its place.
    serial: u64,
    generations: [OnceLock<Generation>; GENERATIONS],
    /// Of the one that walks go over, + 1; 0 = none.
    published: AtomicU32,
    /// The same of the one that rounds are planned by.
    planned: AtomicU32,
}

/// What only the owner knows of the training.
#[derive(Default)]
pub(super) struct Training {
    /// Generations that are trained.
    trained: usize,
    /// Vectors that the last one was trained at.
    trained_at: usize,
    stage: Stage,
    /// A job is out.
    running: bool,
    /// Slots whose code was written while a job had been given their earlier vectors.
    written: HashSet<Slot>,
}

#[derive(Default)]
enum Stage {
    /// Every slot has its code of the last generation, if there is one.
    #[default]
    Settled,
    /// Every `every`-th vector is being collected.
    Sampling { next: usize, every: usize, rows: Vec<f32> },
    /// The job that trains is out.
    Training,
    /// Slots below `to` have their code of the last generation, and so have those that were written since it was trained, which is
    /// all from `end` on. Vectors of the next are being collected.
    Encoding { to: usize, end: usize, rows: Vec<f32> },
}

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
    serial: u64,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Train { quantization: Quantization, metric: Metric, dim: usize, rows: Vec<f32>, seed: u64 },
    Encode { codec: Arc<Codec>, first: usize, count: usize, rows: Vec<f32> },
}

/// What came out of a job.
#[derive(Debug)]
pub struct JobDone {
    serial: u64,
    outcome: Outcome,
}

#[derive(Debug)]
enum Outcome {
    Trained(Codec),
    Encoded { first: usize, count: usize, codes: Vec<u8> },
}

/// Tells which graph a job is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTicket(u64);

impl JobDone {
    /// Whether a quantizer was trained.
    pub fn is_training(&self) -> bool {
        matches!(self.outcome, Outcome::Trained(_))
    }
}

impl Job {
    /// Whether it takes seconds, and not tenths of one.
    pub fn is_training(&self) -> bool {
        matches!(self.work, Work::Train { .. })
    }

    /// For [`Graph::fail_job`].
    pub fn ticket(&self) -> JobTicket {
        JobTicket(self.serial)
    }

    /// Does it: seconds for training a product, some milliseconds for codes.
    pub fn run(self) -> JobDone {
        let outcome = match self.work {
            Work::Train { quantization, metric, dim, rows, seed } => {
                Outcome::Trained(Codec::train(quantization, metric, dim, &rows, seed))
            }
            Work::Encode { codec, first, count, rows } => {
                let mut codes = vec![0; count * codec.code_len()];
                codec.encode(&rows, &mut codes);
                Outcome::Encoded { first, count, codes }
            }
        };
        JobDone { serial: self.serial, outcome }
    }
}

/// Codes that a walk goes over: they stay as they are while it does.
#[derive(Clone, Copy)]
pub(super) struct Coded<'q> {
    generation: &'q Generation,
    query: &'q CodecQuery,
}

impl Coded<'_> {
    /// See [`Codec::is_fine`].
    pub(super) fn is_fine(self) -> bool {
        self.generation.codec.is_fine()
    }

    /// Distance to the code of a linked slot.
    #[inline]
    pub(super) fn distance(self, slot: Slot) -> f32 {
        let mut distance = [0.0];
        self.distances(&[slot], &mut distance);
        distance[0]
    }

    /// Distances to the codes of `slots`, all of them linked.
    #[inline]
    pub(super) fn distances(self, slots: &[Slot], out: &mut [f32]) {
        let Generation { codec, rows, .. } = self.generation;
        // SAFETY: the generation was published, so every slot that can be reached has its code, which is written only on slots
        // that nobody can reach.
        unsafe { codec.distances(self.query, rows, slots, out) }
    }
}

impl QuantizedRows {
    pub(super) fn new(config: &GraphConfig, scratch: ScratchFiles) -> Option<QuantizedRows> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let quantized = config.quantized?;
        Some(QuantizedRows {
            config: quantized,
            metric: config.metric,
            dim: config.dim,
            capacity: config.capacity,
            scratch,
            seed: config.seed,
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            generations: [const { OnceLock::new() }; GENERATIONS],
            published: AtomicU32::new(0),
            planned: AtomicU32::new(0),
        })
    }

    fn published(&self) -> Option<&Generation> {
        // Acquire: the codes that were written before are seen.
        let index = self.published.load(Ordering::Acquire).checked_sub(1)?;
        self.generations[index as usize].get()
    }

    pub(super) fn is_published(&self) -> bool {
        self.published().is_some()
    }

    /// Owner, while no plan is in flight: plans go over what walks go over, if they are to.
    pub(super) fn begin_round(&self) {
        if self.config.plans {
            self.planned.store(self.published.load(Ordering::Relaxed), Ordering::Release);
        }
    }

    /// What plans go over. Every linked slot has its code: those that were written when it was published, and those written since.
    #[inline]
    fn planned(&self) -> Option<&Generation> {
        let index = self.planned.load(Ordering::Acquire).checked_sub(1)?;
        self.generations[index as usize].get()
    }

    #[inline]
    pub(super) fn is_planned(&self) -> bool {
        self.planned().is_some()
    }

    /// A slot as plans compare it with codes, by its vector where that tells more than its code; `None` while they go over something
    /// else.
    pub(super) fn plan_new<'q>(
        &'q self,
        slot: Slot,
        vector: &[f32],
        query: &'q mut CodecQuery,
    ) -> Option<Coded<'q>> {
        let generation = self.planned()?;
        if !generation.codec.is_unbiased() {
            return self.plan_node(slot, query);
        }
        generation.codec.query(vector, query);
        Some(Coded { generation, query })
    }

    /// The same by its code.
    pub(super) fn plan_node<'q>(&'q self, slot: Slot, query: &'q mut CodecQuery) -> Option<Coded<'q>> {
        let generation = self.planned()?;
        // SAFETY: codes of slots that a plan meets are not written.
        let row = unsafe { generation.rows.row(slot as usize) };
        generation.codec.query_code(row, query);
        Some(Coded { generation, query })
    }

    /// What one of these two has set, in the same round.
    #[inline]
    pub(super) fn plan_started<'q>(&'q self, query: &'q CodecQuery) -> Option<Coded<'q>> {
        self.planned().map(|generation| Coded { generation, query })
    }

    /// A padded, prepared vector as codes are compared with; `None` before they are there.
    pub(super) fn query<'q>(&'q self, vector: &[f32], query: &'q mut CodecQuery) -> Option<Coded<'q>> {
        let generation = self.published()?;
        generation.codec.query(vector, query);
        Some(Coded { generation, query })
    }

    /// What [`Self::query`] has set, where there is one training.
    pub(super) fn started<'q>(&'q self, query: &'q CodecQuery) -> Option<Coded<'q>> {
        debug_assert!(self.config.once);
        self.published().map(|generation| Coded { generation, query })
    }

    /// Bytes of codes and of what was learned.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |Generation { codec, rows, end, .. }: &Generation| {
            codec.bytes() + end.load(Ordering::Relaxed) as usize * rows.row_len()
        };
        self.generations.iter().filter_map(OnceLock::get).map(bytes).sum()
    }

    fn reserve(&self, codec: &Codec) -> Result<Arena<u8>, ArenaError> {
        let len = codec.code_len();
        if len * IN_MEMORY_PART <= self.dim * size_of::<f32>() {
            return Arena::reserve(self.capacity, len);
        }
        self.scratch.reserve(self.capacity, len)
    }

    /// Owner: makes sure that codes of the first `slots` slots can be written, where they lie in files.
    pub(super) fn commit(&self, slots: usize) -> std::io::Result<()> {
        self.generations
            .iter()
            .filter_map(OnceLock::get)
            .try_for_each(|generation| generation.rows.commit(slots))
    }

    /// Of [`Self::bytes`], those of files.
    pub(super) fn file_bytes(&self) -> usize {
        let in_files =
            self.generations.iter().filter_map(OnceLock::get).filter(|generation| generation.rows.is_file());
        in_files
            .map(|Generation { rows, end, .. }| end.load(Ordering::Relaxed) as usize * rows.row_len())
            .sum()
    }

    /// Owner: writes the codes of a fresh slot that nobody can reach.
    pub(super) fn write(&self, training: &mut Training, slot: Slot, vector: &[f32]) {
        // Also those that walks go over while the next are being written.
        let published = self.published.load(Ordering::Relaxed) as usize;
        for generation in
            self.generations[published.saturating_sub(1)..training.trained].iter().filter_map(OnceLock::get)
        {
            // SAFETY: the slot is not linked, so no walk reaches it, and the owner is alone.
            let row = unsafe { generation.rows.row_mut_unchecked(slot as usize) };
            generation.codec.encode(&vector[..self.dim], row);
            generation.end.fetch_max(slot + 1, Ordering::Relaxed);
        }
        if let Stage::Encoding { .. } = training.stage {
            training.written.insert(slot);
        }
    }

    /// Owner: see [`Graph::next_job`].
    fn next<'v>(
        &self,
        training: &mut Training,
        vectors: &impl Fn(Slot) -> &'v [f32],
        end: usize,
        force: bool,
        ahead: Option<&dyn Fn(std::ops::Range<usize>)>,
    ) -> JobStep {
        if training.running {
            return JobStep::Idle;
        }
        let copied = (COPIED_AT_ONCE / self.dim)
            .clamp(1, if ahead.is_some() { FILE_ROWS_AT_ONCE } else { SLOTS_AT_ONCE });
        match &mut training.stage {
            Stage::Settled => {
                let wanted = match (training.trained_at, training.trained) {
                    (0, _) => end >= TRAINED_MIN && (force || end >= self.config.threshold),
                    (_, GENERATIONS..) => false,
                    (1.., _) if self.config.once => false,
                    // More vectors than are sampled change nothing, so the last is for as many.
                    (at, LAST) => at < SAMPLE_MAX && end >= SAMPLE_MAX.max(2 * at),
                    (at, _) => at < SAMPLE_MAX && end / GROWTH >= at,
                };
                if !wanted {
                    return JobStep::Idle;
                }
                let most = (SAMPLE_COMPONENTS / self.dim).clamp(TRAINED_MIN, SAMPLE_MAX);
                let every = end.div_ceil(most);
                // In one piece: growing copies what is there.
                let rows = Vec::with_capacity(end.div_ceil(every) * self.dim);
                training.stage = Stage::Sampling { next: 0, every, rows };
                training.trained_at = end;
                JobStep::More
            }
            Stage::Sampling { next, every, rows } => {
                for _ in 0..copied {
                    if *next >= training.trained_at {
                        break;
                    }
                    let row = &vectors(*next as Slot)[..self.dim];
                    // Slots that were never written are zero, and say nothing.
                    if row.iter().any(|&x| x != 0.0) {
                        rows.extend_from_slice(row);
                    }
                    *next += *every;
                }
                if let Some(ahead) = ahead {
                    let later = (*next..training.trained_at).step_by(*every);
                    later.take(2 * copied).skip(copied).for_each(|slot| ahead(slot..slot + 1));
                }
                if *next < training.trained_at {
                    return JobStep::More;
                }
                let mut rows = std::mem::take(rows);
                if rows.is_empty() {
                    rows.resize(self.dim, 0.0);
                }
                training.stage = Stage::Training;
                let Quantized { quantization, .. } = self.config;
                self.run(
                    training,
                    Work::Train { quantization, metric: self.metric, dim: self.dim, rows, seed: self.seed },
                )
            }
            Stage::Training => unreachable!("its job is out, or was finished"),
            Stage::Encoding { to, end, .. } if *to >= *end => {
                self.published.store(training.trained as u32, Ordering::Release);
                training.stage = Stage::Settled;
                training.written = HashSet::default();
                JobStep::More
            }
            Stage::Encoding { to, end, rows } => {
                if rows.is_empty() {
                    // What was written before is read now.
                    training.written.clear();
                }
                let from = *to + rows.len() / self.dim;
                for slot in from..(from + copied).min(*end) {
                    rows.extend_from_slice(&vectors(slot as Slot)[..self.dim]);
                }
                if let Some(ahead) = ahead {
                    let later = |pieces: usize| (from + pieces * copied).min(*end);
                    ahead(later(2)..later(3));
                }
                let (first, count) = (*to, rows.len() / self.dim);
                if first + count < *end && rows.len() < ENCODED_AT_ONCE && count < 4 * SLOTS_AT_ONCE {
                    return JobStep::More;
                }
                let rows = std::mem::take(rows);
                let generation = self.generations[training.trained - 1].get().expect("trained");
                self.run(training, Work::Encode { codec: generation.codec.clone(), first, count, rows })
            }
        }
    }

    fn run(&self, training: &mut Training, work: Work) -> JobStep {
        training.running = true;
        JobStep::Run(Job { serial: self.serial, work })
    }

    /// Owner: see [`Graph::finish_job`].
    fn finish(&self, training: &mut Training, end: usize, done: JobDone) -> Result<(), ArenaError> {
        if done.serial != self.serial || !training.running {
            return Ok(());
        }
        training.running = false;
        match done.outcome {
            Outcome::Trained(codec) => {
                // Until then without codes; that it is not tried again and again is `trained_at`.
                training.stage = Stage::Settled;
                let rows = self.reserve(&codec)?;
                let bytes = end * codec.code_len();
                rows.commit(end).map_err(|source| ArenaError::File { bytes, source })?;
                let fresh = self.generations[training.trained].set(Generation {
                    codec: Arc::new(codec),
                    trained_at: training.trained_at,
                    rows,
                    end: AtomicU32::new(0),
                });
                assert!(fresh.is_ok(), "a generation is trained once");
                training.trained += 1;
                training.stage = Stage::Encoding { to: 0, end, rows: Vec::new() };
            }
            Outcome::Encoded { first, count, codes } => {
                let generation = self.generations[training.trained - 1].get().expect("trained");
                let len = generation.codec.code_len();
                for (slot, code) in (first..first + count).zip(codes.chunks_exact(len)) {
                    if !training.written.contains(&(slot as Slot)) {
                        // SAFETY: no walk looks at codes of a generation before it is published, and the owner is alone.
                        unsafe { generation.rows.row_mut_unchecked(slot) }.copy_from_slice(code);
                    }
                }
                generation.end.fetch_max((first + count) as Slot, Ordering::Relaxed);
                if let Stage::Encoding { to, .. } = &mut training.stage {
                    *to = first + count;
                }
            }
        }
        Ok(())
    }
}

/// Bytes before what a codec has learned: which generation it is, and the vectors that it was trained at.
const SAVED_HEAD: usize = 1 + 8;

impl QuantizedRows {
    /// Owner: the codec that walks go over, else the one whose codes are being written.
    fn save(&self, training: &Training) -> Vec<u8> {
        let number = match self.published.load(Ordering::Relaxed) as usize {
            0 => training.trained,
            published => published,
        };
        let Some(generation) = number.checked_sub(1).and_then(|index| self.generations[index].get()) else {
            return Vec::new();
        };
        let mut saved = vec![number as u8];
        saved.extend_from_slice(&(generation.trained_at as u64).to_le_bytes());
        saved.extend_from_slice(&generation.codec.save());
        saved
    }

    /// A codec as [`Self::save`] left it, with room for its codes.
    fn load(&self, saved: &[u8]) -> Result<SavedCodes, String> {
        let damaged = || "what a quantizer has learned is damaged".to_owned();
        let (head, codec) = saved.split_first_chunk::<SAVED_HEAD>().ok_or_else(damaged)?;
        let (trained, at) = head.split_first().ok_or_else(damaged)?;
        let trained = usize::from(*trained);
        let at = u64::from_le_bytes(at.try_into().map_err(|_| damaged())?);
        let codec = Codec::load(self.config.quantization, self.metric, self.dim, codec);
        let codec = codec.filter(|_| (1..=GENERATIONS).contains(&trained) && at > 0).ok_or_else(damaged)?;
        let rows = self.reserve(&codec).map_err(|error| error.to_string())?;
        let generation =
            Generation { codec: Arc::new(codec), trained_at: at as usize, rows, end: AtomicU32::new(0) };
        Ok(SavedCodes { trained, generation })
    }

    /// Owner: takes such a codec over, before there is another. Codes of all vectors below `end` are to be written, unless they
    /// are there.
    fn adopt(
        &self,
        training: &mut Training,
        end: usize,
        saved: SavedCodes,
        whole: bool,
    ) -> Result<(), String> {
        assert!(training.trained == 0 && !training.running, "restored before anything is trained");
        let SavedCodes { trained, generation } = saved;
        let trained_at = generation.trained_at;
        generation.rows.commit(end).map_err(|error| error.to_string())?;
        if whole {
            generation.end.store(end as Slot, Ordering::Relaxed);
        }
        assert!(self.generations[trained - 1].set(generation).is_ok(), "the first to be there");
        (training.trained, training.trained_at) = (trained, trained_at);
        if whole {
            self.published.store(trained as u32, Ordering::Release);
            // Repairs may come before the first round.
            self.begin_round();
        } else {
            training.stage = Stage::Encoding { to: 0, end, rows: Vec::new() };
        }
        Ok(())
    }

    /// Owner: the number of the codec that walks go over and a slot's code, where the slot has a vector.
    fn code(&self, slot: Slot) -> Option<(u8, &[u8])> {
        let published = self.published.load(Ordering::Relaxed);
        let generation = self.generations[published.checked_sub(1)? as usize].get()?;
        // SAFETY: codes of a published generation are written by the owner alone, which this is.
        Some((published as u8, unsafe { generation.rows.row(slot as usize) }))
    }
}

/// A codec that was saved, and codes that were saved with it.
pub struct SavedCodes {
    trained: usize,
    generation: Generation,
}

impl SavedCodes {
    /// Whether both are of one training.
    pub fn is_same(&self, other: &SavedCodes) -> bool {
        let training = |saved: &SavedCodes| (saved.trained, saved.generation.trained_at);
        training(self) == training(other)
    }

    /// Sets the code of a slot. False, and nothing is set, when it is one of another codec, by the number that [`Graph::saved_code`]
    /// gave with it.
    ///
    /// # Errors
    /// The code has another length than those of this codec, or there is no room for it.
    pub fn set(&mut self, slot: Slot, number: u8, code: &[u8]) -> Result<bool, String> {
        if usize::from(number) != self.trained {
            return Ok(false);
        }
        let rows = &self.generation.rows;
        if code.len() != rows.row_len() || slot as usize >= rows.capacity() {
            return Err(format!("a code of {} bytes of slot {slot}, not {}", code.len(), rows.row_len()));
        }
        if !self.generation.codec.is_code(code) {
            return Err(format!("the code of slot {slot} names what there is not"));
        }
        rows.commit(slot as usize + 1).map_err(|error| error.to_string())?;
        // SAFETY: nobody else has the rows yet.
        unsafe { rows.row_mut_unchecked(slot as usize) }.copy_from_slice(code);
        Ok(true)
    }
}

impl Graph {
    /// Owner: what the last quantizer that was trained has learned, for [`Self::load_codec`]; empty without one.
    pub fn save_codec(&self) -> Vec<u8> {
        self.quantized
            .as_ref()
            .map_or_else(Vec::new, |quantized| quantized.save(&self.owner_for_codes().training))
    }

    /// What [`Self::save_codec`] of an equal graph gave, for codes that were saved with it and for [`Self::adopt_codes`].
    ///
    /// # Errors
    /// When the graph has no quantizer, the bytes are not of its, or there is no address space for codes.
    pub fn load_codec(&self, saved: &[u8]) -> Result<SavedCodes, String> {
        self.quantized.as_ref().ok_or("a quantizer in an image without one")?.load(saved)
    }

    /// Owner, of a graph whose vectors have just been restored: takes a saved quantizer over. Walks go over its codes from now on where
    /// they are `whole`, those of all vectors; else jobs begin with writing them.
    ///
    /// # Errors
    /// When there is no room for codes.
    pub fn adopt_codes(&self, saved: SavedCodes, whole: bool) -> Result<(), String> {
        let quantized = self.quantized.as_ref().ok_or("a quantizer in an image without one")?;
        quantized.adopt(&mut self.owner_for_codes().training, self.slots_end(), saved, whole)
    }

    /// Owner: the code of a written slot that walks go over, with the number of its quantizer; `None` while they go over something
    /// else.
    pub fn saved_code(&self, slot: Slot) -> Option<(u8, &[u8])> {
        self.quantized.as_ref()?.code(slot)
    }

    /// A linked slot whose code is not that of its vector, while walks go over codes.
    #[cfg(test)]
    pub(crate) fn miscoded(&self) -> Option<Slot> {
        let generation = self.quantized.as_ref()?.published()?;
        (0..self.slots_end() as Slot).filter(|&slot| self.is_linked(slot)).find(|&slot| {
            let mut code = vec![0; generation.codec.code_len()];
            generation.codec.encode(&self.vector(slot)[..self.config().dim], &mut code);
            self.saved_code(slot).is_none_or(|(_, saved)| saved != code)
        })
    }

    /// Quantizers trained so far, also while codes of the last are still being written.
    pub fn trained(&self) -> usize {
        if self.quantized.is_some() { self.owner_for_codes().training.trained } else { 0 }
    }

    /// Owner, while no plan is in flight and every written slot is linked: from now on a slot's vector is what its code stands for, for whoever
    /// begins to look. Codes decide about edges as well.
    ///
    /// # Panics
    /// Before walks go over codes of a quantizer.
    pub fn give_up_vectors(&self) {
        assert!(self.is_quantized(), "there is nothing in place of vectors");
        self.quantized.iter().for_each(QuantizedRows::begin_round);
        self.set_bare();
    }

    /// What the code of a slot stands for, over the first components of `vector`; false while vectors are there.
    ///
    /// # Panics
    /// When `vector` is shorter than the dimension.
    pub fn decode(&self, slot: Slot, vector: &mut [f32]) -> bool {
        match self.quantized.as_ref().filter(|_| self.is_bare()).and_then(QuantizedRows::published) {
            Some(generation) => {
                // SAFETY: codes of slots that can be found are not written.
                generation.codec.decode(unsafe { generation.rows.row(slot as usize) }, vector);
                true
            }
            None => false,
        }
    }

    /// The number of the quantizer whose codes walks go over; 0 without.
    pub fn codes_number(&self) -> u8 {
        self.quantized.as_ref().map_or(0, |quantized| quantized.published.load(Ordering::Relaxed) as u8)
    }

    /// Owner: what is to be done next for the codes of the quantizer, if the graph has one: training when there are
    /// enough vectors (any, with `force`), then codes, piece by piece. [`JobStep::Idle`] also while a job is out.
    ///
    /// Cost of a call: some 100 µs of copying.
    pub fn next_job(&self, force: bool) -> JobStep {
        let Some(quantized) = &self.quantized else { return JobStep::Idle };
        let mut owner = self.owner_for_codes();
        // Vectors of a file that the next call but one copies.
        let ahead = |slots: std::ops::Range<usize>| self.vectors.will_need(slots.start, slots.end);
        let ahead: Option<&dyn Fn(std::ops::Range<usize>)> =
            if self.keeps_file() { Some(&ahead) } else { None };
        quantized.next(&mut owner.training, &|slot| self.vector(slot), self.slots_end(), force, ahead)
    }

    /// Owner: takes what came out of the job that [`Self::next_job`] gave last; of another graph it is ignored.
    ///
    /// # Errors
    /// When address space for codes runs out; walks go on without.
    pub fn finish_job(&self, done: JobDone) -> Result<(), ArenaError> {
        let Some(quantized) = &self.quantized else { return Ok(()) };
        quantized.finish(&mut self.owner_for_codes().training, self.slots_end(), done)
    }

    /// Owner: the job that [`Self::next_job`] gave last has failed. There are no codes then before the next training is due.
    pub fn fail_job(&self, ticket: JobTicket) {
        if self.quantized.as_ref().is_none_or(|quantized| quantized.serial != ticket.0) {
            return;
        }
        let training = &mut self.owner_for_codes().training;
        // A generation without all its codes stays unpublished.
        (training.running, training.stage) = (false, Stage::Settled);
    }

    /// Whether walks go over the codes of the quantizer by now.
    pub fn is_quantized(&self) -> bool {
        self.quantized.as_ref().is_some_and(QuantizedRows::is_published)
    }

    /// Bytes of these codes and of what was learned for them.
    pub fn quantized_bytes(&self) -> usize {
        self.quantized.as_ref().map_or(0, QuantizedRows::bytes)
    }
}
