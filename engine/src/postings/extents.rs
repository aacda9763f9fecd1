//! Runs of 32-bit cells in power-of-two sizes, referred to by number; the owner allocates, retires and reuses them.

use crate::memory::{Domain, Limbo, Rows};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

/// Size classes: from 1 cell to 2^31.
const CLASSES: usize = 32;

/// Bits of a reference that number the row within its class.
const ROW_BITS: u32 = 27;

/// How many batches of retired extents one call takes back at most. Each write retires at most one batch, so the queue
/// shrinks whenever readers let it.
const BATCHES_PER_RECLAIM: usize = 4;

/// A reference to a run of `2^log2` cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent(u32);

impl Extent {
    /// Refers to nothing: no class has that many rows.
    pub const NONE: Extent = Extent(u32::MAX);

    fn new(log2: u32, row: u32) -> Extent {
        assert!(row < (1 << ROW_BITS) - 1, "2^{ROW_BITS} extents of one size");
        Extent(log2 << ROW_BITS | row)
    }

    /// Binary logarithm of the number of cells.
    #[inline]
    pub fn log2(self) -> u32 {
        self.0 >> ROW_BITS
    }

    #[inline]
    fn row(self) -> u32 {
        self.0 & ((1 << ROW_BITS) - 1)
    }

    /// As a number, for an atomic.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Of a number that [`Self::bits`] gave.
    #[inline]
    pub fn from_bits(bits: u32) -> Extent {
        Extent(bits)
    }
}

/// The cells, readable by every core.
pub(super) struct Extents {
    classes: [OnceLock<Rows<AtomicU32>>; CLASSES],
}

impl Extents {
    pub fn new() -> Extents {
        Extents { classes: std::array::from_fn(|_| OnceLock::new()) }
    }

    /// The cells of an extent. Panics on a reference that was never given out.
    #[inline]
    pub fn cells(&self, extent: Extent) -> &[AtomicU32] {
        let rows = self.classes[extent.log2() as usize].get().expect("the owner made the class");
        rows.cells(extent.row())
    }
}

/// What waits for readers: an extent or the number of a list.
#[derive(Clone, Copy)]
pub(super) enum Retired {
    Extent(Extent),
    List(u32),
}

/// The owner's books of one [`Extents`] and of the numbers of lists.
pub(super) struct Books {
    free: [Vec<u32>; CLASSES],
    used: [u32; CLASSES],
    free_lists: Vec<u32>,
    lists: u32,
    /// Retired since the last `seal`.
    batch: Vec<Retired>,
    limbo: Limbo<Vec<Retired>>,
    waiting: usize,
    bytes: usize,
}

impl Books {
    pub fn new() -> Books {
        Books {
            free: std::array::from_fn(|_| Vec::new()),
            used: [0; CLASSES],
            free_lists: Vec::new(),
            lists: 0,
            batch: Vec::new(),
            limbo: Limbo::new(),
            waiting: 0,
            bytes: 0,
        }
    }

    /// An extent of at least `cells` cells, of whatever content.
    pub fn allocate(&mut self, extents: &Extents, cells: usize) -> Extent {
        let log2 = cells.next_power_of_two().ilog2();
        let class = log2 as usize;
        if let Some(row) = self.free[class].pop() {
            return Extent::new(log2, row);
        }
        let row = self.used[class];
        let rows = extents.classes[class].get_or_init(|| Rows::new(1 << log2));
        rows.make(row);
        self.used[class] = row + 1;
        self.bytes += rows.bytes(1);
        Extent::new(log2, row)
    }

    /// The number of a new list and whether it was never used before.
    pub fn allocate_list(&mut self) -> (u32, bool) {
        if let Some(list) = self.free_lists.pop() {
            return (list, false);
        }
        self.lists += 1;
        (self.lists - 1, true)
    }

    /// Numbers of lists ever used.
    pub fn lists(&self) -> usize {
        self.lists as usize
    }

    /// Notes something that no reader will newly reach once the present operation's stores are done.
    pub fn retire(&mut self, retired: Retired) {
        self.batch.push(retired);
    }

    /// Ends an operation: all that it retired is unreachable for new readers now.
    pub fn seal(&mut self, domain: &Domain) {
        if !self.batch.is_empty() {
            self.waiting += self.batch.len();
            self.limbo.push(domain, std::mem::take(&mut self.batch));
        }
        self.reclaim(domain);
    }

    /// Takes back some of what no reader can see any more; false when there is nothing (left) to take.
    pub fn reclaim(&mut self, domain: &Domain) -> bool {
        for _ in 0..BATCHES_PER_RECLAIM {
            let Some(batch) = self.limbo.pop(domain) else { return false };
            self.waiting -= batch.len();
            for retired in batch {
                match retired {
                    Retired::Extent(extent) => self.free[extent.log2() as usize].push(extent.row()),
                    Retired::List(list) => self.free_lists.push(list),
                }
            }
        }
        true
    }

    /// Committed bytes of the extents and of these books. Extents that are free or wait for readers count.
    pub fn bytes(&self) -> usize {
        let free: usize = self.free.iter().map(Vec::capacity).sum();
        self.bytes + (free + self.free_lists.capacity()) * 4 + self.waiting * size_of::<Retired>()
    }
}
