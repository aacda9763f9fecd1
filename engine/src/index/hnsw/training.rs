//! Where the training of a quantizer stands, which only the owner of the graph knows.
use super::generation::Generation;
use crate::memory::Link;
use crate::quantizer::{Watch, squared_error};
use crate::slot::Slot;
use ahash::HashSet;
use std::collections::VecDeque;

/// What only the owner knows of the training.
#[derive(Default)]
pub(super) struct Training {
    /// What walks go over.
    pub(super) current: Option<Link<Generation>>,
    /// The one whose codes are being written.
    pub(super) next: Option<Link<Generation>>,
    /// Not published any more, but plans may go over them.
    pub(super) leaving: Vec<Link<Generation>>,
    /// Nothing leads there any more, but readers may have seen it.
    pub(super) retired: VecDeque<Link<Generation>>,
    /// No reader is left.
    pub(super) quiescent: Vec<Link<Generation>>,
    /// The number of the generation that was trained last.
    pub(super) number: u8,
    /// How well the last generation fits what is written.
    pub(super) watch: Watch,
    /// Sequence number at which the last sample was begun, and points of that time that have died since.
    pub(super) began_at: u64,
    pub(super) died: u64,
    /// Vectors at which a first training was tried last.
    pub(super) tried_at: usize,
    pub(super) stage: Stage,
    /// A job is out.
    pub(super) running: bool,
    /// Raised when all is forgotten: what comes out of jobs of before is dropped.
    pub(super) epoch: u64,
    /// Slots whose code was written while a job had been given their earlier vectors.
    pub(super) written: HashSet<Slot>,
    decoded: Vec<f32>,
}

#[derive(Default)]
pub(super) enum Stage {
    /// Every slot has its code of the current generation, if there is one.
    #[default]
    Settled,
    /// Every `every`-th vector of a live slot is being collected; `live` of them were met.
    Sampling { next: usize, end: usize, every: usize, live: usize, rows: Vec<f32> },
    /// The job that trains is out.
    Training,
    /// Slots below `to` have their code of the next generation, and so have those that were written since it was trained, which is
    /// all from `end` on. Vectors of the next are being collected.
    Encoding { to: usize, end: usize, rows: Vec<f32> },
}

/// What a link of the owner's lists leads to. For the owner, who uses it up before it takes the link out of them.
pub(super) fn generation<'a>(link: Link<Generation>) -> &'a Generation {
    // SAFETY: links are in lists of a `Training` alone, and what they lead to is freed after they were taken out.
    unsafe { link.get() }
}

impl Training {
    /// All that there are.
    pub(super) fn generations(&self) -> impl Iterator<Item = &Generation> {
        let Training { leaving, retired, quiescent, .. } = self;
        let kept = leaving.iter().chain(retired).chain(quiescent).copied();
        self.written_links().chain(kept).map(generation)
    }

    /// The generations that fresh slots are encoded with. The one that was trained last comes last.
    pub(super) fn written_links(&self) -> impl Iterator<Item = Link<Generation>> + use<> {
        [self.current, self.next].into_iter().flatten()
    }

    /// A slot was written, and its code of the last generation.
    pub(super) fn note_written(&mut self, slot: Slot, vector: &[f32], last: &Generation, code: &[u8]) {
        if self.watch.write() {
            let mut decoded = std::mem::take(&mut self.decoded);
            decoded.resize(vector.len(), 0.0);
            last.codec.decode(code, &mut decoded);
            self.watch.measure(squared_error(vector, &decoded), 0.0);
            self.decoded = decoded;
        }
        if let Stage::Encoding { .. } = self.stage {
            self.written.insert(slot);
        }
    }

    /// The number of the last generation that is not given up, 0 = none; the codes of it may still be being written.
    pub(super) fn last_number(&self) -> u8 {
        self.next.or(self.current).map_or(0, |link| generation(link).number)
    }

    /// One that nothing leads to and no reader sees any more, to be freed.
    pub(super) fn take_quiescent(&mut self) -> Option<Box<Generation>> {
        // SAFETY: nothing leads to what is in this list, no reader is left, and it is in no list any more.
        self.quiescent.pop().map(|link| unsafe { link.into_box() })
    }

    pub(super) fn settled(&self) -> bool {
        matches!(self.stage, Stage::Settled) && !self.running
    }

    /// Codes of all vectors below `end` are to be written, or there are none yet.
    pub(super) fn begin_encoding(&mut self, link: Link<Generation>, end: usize) {
        self.number = generation(link).number;
        self.next = Some(link);
        self.stage = Stage::Encoding { to: 0, end, rows: Vec::new() };
    }

    /// The next generation has all its codes, and takes the place of the current one.
    pub(super) fn settle_next(&mut self) -> Link<Generation> {
        let fresh = self.next.take().expect("there is a next generation");
        self.number = generation(fresh).number;
        self.leaving.extend(self.current.replace(fresh));
        self.stage = Stage::Settled;
        self.written = HashSet::default();
        fresh
    }

    /// The next generation is of no use; nobody has seen it.
    pub(super) fn drop_next(&mut self) {
        self.quiescent.extend(self.next.take());
        self.stage = Stage::Settled;
        self.written = HashSet::default();
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        let Training { current, next, leaving, retired, quiescent, .. } = self;
        let kept = leaving.drain(..).chain(retired.drain(..)).chain(quiescent.drain(..));
        for link in current.take().into_iter().chain(next.take()).chain(kept) {
            // SAFETY: with the graph, which no reader borrows any more; each is in one list, once.
            unsafe { link.free() };
        }
    }
}
