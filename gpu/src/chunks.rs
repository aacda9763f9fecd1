//! Where rows lie on a device: in chunks that are allocated one after the other and never moved, each larger than the last.

/// Rows that lie interleaved, so that neighbouring threads read neighbouring bytes; what every chunk is a multiple of. The
/// kernels know it as `GROUP`.
pub const GROUP: usize = 32;
/// Bytes of the first chunk and of the largest; a chunk that holds one group may be larger.
const FIRST_BYTES: usize = 4 << 20;
const LARGEST_BYTES: usize = 256 << 20;
/// Rows of the largest chunk: for each of them and each query of a launch a key is written.
const LARGEST_ROWS: usize = 1 << 20;
/// Keys that one block sorts; the kernels know it as `WIDTH`.
pub const WIDTH: usize = 2048;

/// The plan of all chunks for rows of one length.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Units of four values in a row, the last filled up with zeros.
    pub quads: usize,
    first: usize,
    largest: usize,
}

/// A row's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPosition {
    /// Which chunk.
    pub chunk: usize,
    /// Row number inside it.
    pub local: u32,
}

impl Layout {
    pub fn new(dim: usize) -> Layout {
        let quads = dim.div_ceil(4);
        let rows = |bytes: usize| (bytes / (quads * 16)).clamp(GROUP, LARGEST_ROWS) / GROUP * GROUP;
        Layout { quads, first: rows(FIRST_BYTES), largest: rows(LARGEST_BYTES) }
    }

    /// Rows of a chunk.
    pub fn capacity(&self, chunk: usize) -> usize {
        // Past 20 doublings it is the largest in any case.
        (self.first << chunk.min(20)).min(self.largest)
    }

    /// Values of a chunk.
    pub fn values(&self, chunk: usize) -> usize {
        self.capacity(chunk) * self.quads * 4
    }

    /// First row of a chunk. Cost: one step per chunk before the largest.
    pub fn start(&self, chunk: usize) -> usize {
        let mut start = 0;
        for before in 0..chunk {
            if self.capacity(before) == self.largest {
                return start + (chunk - before) * self.largest;
            }
            start += self.capacity(before);
        }
        start
    }

    /// Where a row lies. Cost: as [`Self::start`].
    pub fn place(&self, row: u32) -> RowPosition {
        let (mut chunk, mut local) = (0, row as usize);
        while self.capacity(chunk) < self.largest && local >= self.capacity(chunk) {
            local -= self.capacity(chunk);
            chunk += 1;
        }
        if self.capacity(chunk) == self.largest {
            chunk += local / self.largest;
            local %= self.largest;
        }
        RowPosition { chunk, local: local as u32 }
    }

    /// Chunks that `rows` rows take.
    pub fn chunks(&self, rows: usize) -> usize {
        match rows.checked_sub(1) {
            None => 0,
            Some(last) => self.place(last as u32).chunk + 1,
        }
    }
}

/// One step of a selection: `input` keys of each query, cut into `segments`, each of which leaves its best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    pub input: usize,
    pub segments: usize,
}

/// The steps that leave `keep` of `rows` keys; the last has one segment. `keep` is below half of [`WIDTH`], so each step leaves
/// fewer than it was given.
pub fn passes(rows: usize, keep: usize) -> impl Iterator<Item = Pass> {
    debug_assert!(rows > 0 && keep < WIDTH / 2, "{rows} rows, {keep} kept");
    let pass = |input: usize| Pass { input, segments: input.div_ceil(WIDTH) };
    std::iter::successors(Some(pass(rows)), move |last| {
        (last.segments > 1).then(|| pass(last.segments * keep))
    })
}

/// The last write of each row, as (row, index into the call), by ascending row: writes of one launch must not meet.
pub fn last_writes(rows: &[u32]) -> Vec<(u32, usize)> {
    let mut writes: Vec<(u32, usize)> = rows.iter().copied().zip(0..).collect();
    writes.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    writes.dedup_by_key(|write| write.0);
    writes
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_engine::device::K_MAX;

    const DIMS: [usize; 9] = [1, 3, 4, 5, 128, 384, 768, 4096, 65_536];

    #[test]
    fn every_row_has_one_place() {
        for dim in DIMS {
            let layout = Layout::new(dim);
            let mut start = 0;
            for chunk in 0..30 {
                let capacity = layout.capacity(chunk);
                assert_eq!(layout.start(chunk), start, "dim {dim} chunk {chunk}");
                for local in [0, 1, capacity / 2, capacity - 1] {
                    let place = RowPosition { chunk, local: local as u32 };
                    assert_eq!(layout.place((start + local) as u32), place, "dim {dim}");
                }
                start += capacity;
                assert_eq!(layout.chunks(start), chunk + 1);
                assert_eq!(layout.chunks(start + 1), chunk + 2);
            }
            assert_eq!(layout.chunks(0), 0);
            let last = layout.place(u32::MAX - 1);
            assert_eq!(layout.start(last.chunk) + last.local as usize, u32::MAX as usize - 1);
        }
    }

    /// Indices of the kernels are computed in 32 bits inside a chunk where they count rows, and in 64 where they count values.
    #[test]
    fn chunks_are_whole_groups_of_a_bounded_size() {
        for dim in DIMS {
            let layout = Layout::new(dim);
            for chunk in 0..30 {
                let capacity = layout.capacity(chunk);
                assert!(capacity.is_multiple_of(GROUP) && capacity >= GROUP, "dim {dim}");
                assert!(capacity <= LARGEST_ROWS);
                assert!(layout.values(chunk) * 4 <= LARGEST_BYTES.max(GROUP * layout.quads * 16));
                assert!(chunk == 0 || capacity >= layout.capacity(chunk - 1));
            }
        }
    }

    #[test]
    fn selections_end_and_fit_where_they_came_from() {
        for rows in [1, 31, 2047, 2048, 2049, 4096, 4097, 100_000, LARGEST_ROWS] {
            for keep in [1, 10, 255, K_MAX] {
                let passes: Vec<Pass> = passes(rows, keep).collect();
                assert_eq!(passes[0].input, rows);
                assert_eq!(passes.last().unwrap().segments, 1);
                for pair in passes.windows(2) {
                    assert_eq!(pair[1].input, pair[0].segments * keep);
                    // Keys go back and forth between a buffer of `rows` and one of what the first pass leaves.
                    assert!(pair[1].input <= rows && pair[1].input < pair[0].input.max(WIDTH));
                    assert!(pair[1].input <= passes[0].segments * keep);
                }
            }
        }
    }

    #[test]
    fn the_last_write_of_a_row_counts() {
        assert_eq!(last_writes(&[5, 1, 5, 0, 1, 5]), [(0, 3), (1, 4), (5, 5)]);
        assert_eq!(last_writes(&[]), []);
    }
}
