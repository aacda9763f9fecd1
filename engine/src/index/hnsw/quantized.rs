//! Codes of a quantizer that walks go over instead of the vectors, once it is trained.
//!
//! Until every vector has its code walks go on as before, and what they find is scored exactly in either case, so answers are legal at
//! every moment. How a quantizer comes to be, and when another takes its place, is told in `quantizing`; what of it is in images in
//! `quantized_images`.
//!
//! A quantizer and its codes are a *generation*. The codes of the next have an arena of their own and are published in one store. Walks
//! over those before may still be under way, and plans of an open round go over what was published when it began: a generation is freed
//! when neither leads to it and no reader is left who may have seen it.
//!
//! # Invariants
//!
//! 1. What `published` leads to has the code of every slot that can be reached, and so has what `planned` leads to for every slot that a
//!    plan meets. Codes are written on slots that nobody can reach, and before publication.
//! 2. A generation that neither leads to any more is told to the collection (`Graph::retire_codes`), which says when it is quiescent
//!    (`Graph::codes_are_quiescent`). Only then, or with the graph, is it freed.
use super::GraphConfig;
use super::generation::Generation;
use super::training::{Training, generation};
use crate::distance::Metric;
use crate::memory::{Arena, ArenaError, Link, LinkCell, ScratchFiles};
use crate::quantizer::{Codec, CodecQuery, Quantization};
use crate::slot::Slot;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

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
    /// There is one training: vectors are given up after it ([`Graph::give_up_vectors`](super::Graph::give_up_vectors)).
    pub once: bool,
}

/// See the module.
pub(super) struct QuantizedRows {
    pub(super) config: Quantized,
    pub(super) metric: Metric,
    pub(super) dim: usize,
    capacity: usize,
    scratch: ScratchFiles,
    pub(super) seed: u64,
    /// Tells the jobs of one graph from those of another that took its place.
    pub(super) serial: u64,
    /// What walks go over.
    published: LinkCell<Generation>,
    /// What rounds are planned by.
    planned: LinkCell<Generation>,
    /// Of the one that is published, 0 = none: for those who are not pinned.
    number: AtomicU32,
    /// Bytes of all generations, and of these those of files.
    bytes: AtomicUsize,
    file_bytes: AtomicUsize,
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

    /// Bytes of a code.
    pub(super) fn row_bytes(self) -> usize {
        self.generation.codec.code_len()
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
        codec.distances(self.query, rows, slots, out);
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
            published: LinkCell::new(None),
            planned: LinkCell::new(None),
            number: AtomicU32::new(0),
            bytes: AtomicUsize::new(0),
            file_bytes: AtomicUsize::new(0),
        })
    }

    /// The caller is pinned, or is the owner.
    #[inline]
    pub(super) fn published(&self) -> Option<&Generation> {
        // SAFETY: what is published is freed after it was quiescent (invariant 2), and whoever walks is pinned, or the owner, who
        // frees nothing meanwhile (contract of `Graph::search_paced`). The codes that were written before it was published are seen.
        self.published.load().map(|link| unsafe { link.get() })
    }

    /// Number of the published generation, 0 = none; any core may ask.
    pub(super) fn number(&self) -> u8 {
        self.number.load(Ordering::Relaxed) as u8
    }

    pub(super) fn is_published(&self) -> bool {
        self.number() != 0
    }

    /// Owner: walks go over these from now on, or over none.
    pub(super) fn publish(&self, link: Option<Link<Generation>>) {
        // SAFETY: the owner's own.
        let number = link.map_or(0, |link| unsafe { link.get() }.number);
        self.published.store(link);
        self.number.store(u32::from(number), Ordering::Release);
    }

    /// Owner: walks go over the next generation from now on.
    pub(super) fn publish_next(&self, training: &mut Training) {
        self.publish(Some(training.settle_next()));
    }

    /// Owner, while no plan is in flight: plans go over what walks go over, if they are to.
    pub(super) fn begin_round(&self) {
        if self.config.plans {
            self.planned.store(self.published.load());
        }
    }

    /// Whether neither walks nor plans that begin from now on come by it.
    pub(super) fn is_unlinked(&self, link: Link<Generation>) -> bool {
        !link.is(self.published.load()) && !link.is(self.planned.load())
    }

    /// What plans go over. Every slot they meet has its code: those that were written when it was published, and those written since.
    #[inline]
    fn planned(&self) -> Option<&Generation> {
        // SAFETY: as in `published`; what a plan of an open round goes over is not retired before the round is ended.
        self.planned.load().map(|link| unsafe { link.get() })
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
        generation.codec.query_code(generation.rows.row(slot as usize), query);
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

    /// Any core: bytes of codes and of what was learned.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Any core: of [`Self::bytes`], those of files.
    pub(super) fn file_bytes(&self) -> usize {
        self.file_bytes.load(Ordering::Relaxed)
    }

    /// Owner: measures these two anew.
    pub(super) fn note_bytes(&self, training: &Training) {
        let (mut bytes, mut file_bytes) = (0, 0);
        for generation in training.generations() {
            bytes += generation.bytes();
            file_bytes += if generation.rows.is_file() { generation.row_bytes() } else { 0 };
        }
        self.bytes.store(bytes, Ordering::Relaxed);
        self.file_bytes.store(file_bytes, Ordering::Relaxed);
    }

    pub(super) fn reserve(&self, codec: &Codec) -> Result<Arena<u8>, ArenaError> {
        let len = codec.code_len();
        if len * IN_MEMORY_PART <= self.dim * size_of::<f32>() {
            return Arena::reserve(self.capacity, len);
        }
        self.scratch.reserve(self.capacity, len)
    }

    /// Owner: makes sure that codes of the first `slots` slots can be written.
    pub(super) fn commit(&self, training: &Training, slots: usize) -> std::io::Result<()> {
        training.written_links().try_for_each(|link| generation(link).rows.commit(slots))
    }

    /// Owner: writes the codes of a fresh slot that nobody can reach, also those that walks go over while the next are being written.
    pub(super) fn write(&self, training: &mut Training, slot: Slot, vector: &[f32]) {
        let vector = &vector[..self.dim];
        let (mut last, mut grown) = (None, false);
        for link in training.written_links() {
            let generation = generation(link);
            grown |= generation.end.load(Ordering::Relaxed) <= slot;
            last = Some((generation, generation.write(slot, vector)));
        }
        if let Some((generation, code)) = last {
            training.note_written(slot, vector, generation, code);
            if grown {
                self.note_bytes(training);
            }
        }
    }

    /// Owner: the number of the codec that walks go over and a slot's code, where the slot has a vector.
    pub(super) fn code(&self, slot: Slot) -> Option<(u8, &[u8])> {
        let generation = self.published()?;
        Some((generation.number, generation.rows.row(slot as usize)))
    }
}
