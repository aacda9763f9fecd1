//! What finds vectors: the edges of a graph, or inverted lists. Every place where the two differ and both have something to do is a method
//! here, with one match.
use super::filing::{CellsCell, Filing};
use super::repair::Pass;
use super::{Space, SpaceWriter};
use crate::collection::IvfConfig;
use crate::collection::config::DenseConfig;
use crate::index::{Cells, Commit, Graph, Round, Scratch};
use crate::memory::{Domain, Pin};
use crate::quantizer::Watch;
use crate::record::image::LevelsBuilder;
use crate::slot::Slot;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the index of cells looks like, for those who ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellsInfo {
    /// How many; 0 = not trained yet, searches look at everything.
    pub cells: u64,
}

/// The readable side. The edges of a graph lie with the vectors.
pub(super) enum Index {
    Graph,
    Cells(FiledVectors),
}

/// The readable side of inverted lists.
pub(super) struct FiledVectors {
    config: IvfConfig,
    current: CellsCell,
    /// How many are searched, 0 before there are any.
    count: AtomicU64,
}

impl Index {
    pub fn new(config: &DenseConfig, domain: &Arc<Domain>) -> Index {
        match config.ivf() {
            Some(ivf) => Index::Cells(FiledVectors {
                config: ivf.clone(),
                current: CellsCell::new(domain.clone(), None),
                count: AtomicU64::new(0),
            }),
            None => Index::Graph,
        }
    }

    /// Whether vectors are linked by edges.
    pub fn has_edges(&self) -> bool {
        matches!(self, Index::Graph)
    }

    /// The clustering that is searched by now; `None` before there is one, and where a graph is searched.
    #[inline]
    pub fn cells<'p>(&'p self, pin: &'p Pin<'_>) -> Option<&'p Cells> {
        match self {
            Index::Graph => None,
            Index::Cells(filed) => filed.current.load(pin).as_deref(),
        }
    }

    /// Whether searches look through codes in cells.
    pub fn probes_codes(&self) -> bool {
        match self {
            Index::Graph => false,
            Index::Cells(filed) => filed.config.product.is_some() && filed.count() > 0,
        }
    }

    /// Cells that a search without a filter looks through at least.
    pub fn probes(&self) -> usize {
        match self {
            Index::Graph => 1,
            Index::Cells(filed) => filed.config.probes(),
        }
    }

    /// Owner: searches that begin from now on look through these cells, or through everything.
    pub fn show(&self, cells: Option<Arc<Cells>>) {
        if let Index::Cells(filed) = self {
            filed.count.store(cells.as_ref().map_or(0, |cells| cells.len() as u64), Ordering::Relaxed);
            filed.current.swap(cells);
        }
    }

    /// Owner: gives back what no reader sees any more.
    pub fn reclaim(&self) {
        if let Index::Cells(filed) = self {
            filed.current.reclaim();
        }
    }
}

impl FiledVectors {
    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Space {
    /// Any core: how the points are clustered; `None` where they are in a graph.
    pub fn cells_info(&self) -> Option<CellsInfo> {
        match &self.index {
            Index::Graph => None,
            Index::Cells(filed) => Some(CellsInfo { cells: filed.count() }),
        }
    }

    /// Points that a search without a filter looks at, about; `None` when it looks at all of them, or goes through a graph.
    pub(super) fn probed(&self) -> Option<f64> {
        let Index::Cells(filed) = &self.index else { return None };
        let (ivf, cells) = (&filed.config, filed.count() as usize);
        let points = self.vectors() as f64 * if ivf.spills().is_some() { 2.0 } else { 1.0 };
        // By codes all of them are looked at faster than by their vectors.
        let looks_at_some = ivf.probes() < cells || (ivf.product.is_some() && cells > 0);
        looks_at_some.then(|| points * (ivf.probes() as f64 / cells as f64).min(1.0))
    }
}

/// The owner's side.
pub(super) enum IndexWriter {
    Graph(Box<Linking>),
    Cells(Box<Filing>),
}

/// What the owner of a graph has.
#[derive(Default)]
pub(super) struct Linking {
    /// The open indexing round and the tail position after its last slot.
    pub round: Option<(Arc<Round>, u64)>,
    /// The open round once it is planned, while its nodes are linked.
    pub committing: Option<Commit>,
    pub pass: Option<Pass>,
    /// See `repair_owed`.
    pub repair_owed: usize,
    pub scratch: Scratch,
}

impl IndexWriter {
    pub fn new(config: &DenseConfig) -> IndexWriter {
        match config.ivf() {
            Some(ivf) => IndexWriter::Cells(Box::new(Filing::new(ivf.clone()))),
            None => IndexWriter::Graph(Box::default()),
        }
    }

    /// Where vectors are filed in cells.
    pub fn filing(&self) -> Option<&Filing> {
        match self {
            IndexWriter::Graph(_) => None,
            IndexWriter::Cells(filing) => Some(filing),
        }
    }

    /// As [`Self::filing`].
    pub fn filing_mut(&mut self) -> Option<&mut Filing> {
        match self {
            IndexWriter::Graph(_) => None,
            IndexWriter::Cells(filing) => Some(filing),
        }
    }

    /// Where vectors are linked in a graph.
    pub fn linking(&self) -> Option<&Linking> {
        match self {
            IndexWriter::Graph(linking) => Some(linking),
            IndexWriter::Cells(_) => None,
        }
    }

    /// As [`Self::linking`].
    pub fn linking_mut(&mut self) -> Option<&mut Linking> {
        match self {
            IndexWriter::Graph(linking) => Some(linking),
            IndexWriter::Cells(_) => None,
        }
    }

    /// For what is done in collections of cells alone.
    ///
    /// # Panics
    /// In a graph.
    pub fn of_cells(&mut self) -> &mut Filing {
        self.filing_mut().expect("a collection of cells")
    }

    /// For what is done in graphs alone.
    ///
    /// # Panics
    /// In a collection of cells.
    pub fn of_graph(&mut self) -> &mut Linking {
        self.linking_mut().expect("a graph")
    }

    /// Whether a slot has left the tail and is not freed.
    pub fn is_linked(&self, graph: &Graph, slot: Slot) -> bool {
        match self {
            IndexWriter::Graph(_) => graph.is_linked(slot),
            IndexWriter::Cells(filing) => filing.is_linked(slot),
        }
    }

    pub fn round_open(&self) -> bool {
        match self {
            IndexWriter::Graph(linking) => linking.round.is_some(),
            IndexWriter::Cells(filing) => filing.round_open(),
        }
    }

    /// A point that was born at `born` is gone.
    pub fn bury(&mut self, graph: &Graph, born: u64) {
        match self {
            IndexWriter::Graph(_) => graph.bury(born),
            IndexWriter::Cells(filing) => filing.bury(born),
        }
    }

    /// No reader has a snapshot that shows the slot, which is linked.
    pub fn free(&mut self, graph: &Graph, slot: Slot) {
        match self {
            IndexWriter::Graph(_) => graph.free(slot),
            IndexWriter::Cells(filing) => filing.free(slot),
        }
    }

    /// Dead slots that nothing has to be led around.
    pub fn take_dead(&self, dead: &mut Vec<Slot>) -> Vec<Slot> {
        match self {
            IndexWriter::Graph(_) => Vec::new(),
            IndexWriter::Cells(_) => std::mem::take(dead),
        }
    }

    /// How well what was learned fits what is written, for images; `None` before anything is.
    pub fn watch(&self, graph: &Graph) -> Option<Watch> {
        match self {
            IndexWriter::Graph(_) => graph.watch(),
            IndexWriter::Cells(filing) => filing.current.as_ref().map(|_| filing.watch),
        }
    }

    /// Bytes of vectors, codes, and edges or cells.
    pub fn bytes(&self, graph: &Graph, bare_bytes: usize) -> u64 {
        match self {
            IndexWriter::Graph(_) => graph.bytes().saturating_sub(bare_bytes) as u64,
            IndexWriter::Cells(filing) => {
                graph.vector_bytes().saturating_sub(bare_bytes) as u64 + filing.bytes()
            }
        }
    }

    /// Whether an image has a slot whose point is dead, as others lead through it.
    pub fn leads_through(&self, graph: &Graph, slot: Slot) -> bool {
        match self {
            IndexWriter::Graph(_) => graph.is_linked(slot),
            // Nothing leads through the dead of a cell.
            IndexWriter::Cells(_) => false,
        }
    }

    /// What an image says of the place of a linked slot: its edges, or its cells.
    pub fn levels(&self, graph: &Graph, slot: Slot, levels: &mut LevelsBuilder) {
        match self {
            IndexWriter::Graph(_) => graph.edges(slot, &mut |_, edges| levels.push(edges)),
            IndexWriter::Cells(filing) => match filing.place(slot) {
                Some((cell, Some(second))) => levels.push(&[cell, second]),
                Some((cell, None)) => levels.push(&[cell]),
                None => levels.push(&[]),
            },
        }
    }

    /// What an image says of a linked slot's codes besides those that stand for its vector.
    pub fn codes(&self, slot: Slot, codes: &mut Vec<u8>) {
        match self {
            IndexWriter::Graph(_) => {}
            IndexWriter::Cells(filing) => filing.codes(slot, codes),
        }
    }
}

impl SpaceWriter {
    /// Whether it is filed in cells: then rounds are begun by [`super::super::DenseWriter::begin_filing`], else by
    /// [`super::super::DenseWriter::begin_round`].
    pub fn files_cells(&self) -> bool {
        matches!(self.index, IndexWriter::Cells(_))
    }
}
