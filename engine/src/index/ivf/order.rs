//! The cells in the order in which one search looks through them.
use crate::index::Neighbor;

/// All cells, nearest centroid first, sorted as far as it is asked for.
pub(crate) struct Order {
    cells: Vec<Neighbor>,
    sorted: usize,
    next: usize,
}

impl Order {
    /// By their distances, of all in order. `first`: so many will be asked for, most likely.
    pub fn new(distances: &[f32], first: usize) -> Order {
        let cells = distances.iter().zip(0..).map(|(&distance, slot)| Neighbor { distance, slot }).collect();
        let mut order = Order { cells, sorted: 0, next: 0 };
        order.sort(first);
        order
    }

    /// Sorts so many more.
    fn sort(&mut self, more: usize) {
        let rest = &mut self.cells[self.sorted..];
        let more = more.clamp(1, rest.len().max(1)).min(rest.len());
        if more < rest.len() {
            rest.select_nth_unstable(more);
        }
        rest[..more].sort_unstable();
        self.sorted += more;
    }
}

impl Iterator for Order {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.next == self.sorted {
            self.sort(self.sorted);
        }
        let cell = self.cells.get(self.next)?.slot;
        self.next += 1;
        Some(cell)
    }
}
