//! Product quantization (Jégou, Douze, Schmid, TPAMI 2011): a vector in parts, each part as the number of its nearest centroid; in
//! layers, each of which codes what those before left over (residual quantization, Chen, Guan, Wang, Sensors 2010).
//!
//! A distance is one table look-up per byte: codes of four bits go in pairs, so that a table has 256 entries for either width.
use super::rotation::Rotation;
use super::saved::{Saved, put_floats, put_number};
use crate::cluster::{Centroids, KMeans};
use crate::distance::{Metric, RowTable};
use crate::slot::Slot;
use nalgebra::{DMatrix, DVector};

/// Rounds of k-means, and of those that weigh errors along a vector.
const ROUNDS: usize = 25;
const ROUNDS_WEIGHED: usize = 8;
/// Rounds between two looks for a better rotation.
const ROUNDS_BETWEEN: usize = 6;
/// Entries of a table: a byte's worth.
const ENTRIES: usize = 256;
/// Beginnings of a sum of layers that are followed, and vectors that are coded together where there are layers.
const BEAM: usize = 5;
const BEAMED: usize = 1024;
/// Rows fetched ahead of the one being scored.
const ROWS_AHEAD: usize = 8;

/// What to train.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) metric: Metric,
    pub(super) dim: usize,
    pub(super) parts: usize,
    pub(super) bits: usize,
    pub(super) layers: usize,
    /// 0 = none, 1 = a random rotation, more = and so many less one rounds of finding a better one.
    pub(super) rotations: usize,
    /// How much more an error along the vector weighs than one across; at most 1 = as much.
    pub(super) eta: f32,
}

/// A trained quantizer.
#[derive(Clone, Debug)]
pub(super) struct Product {
    shape: Shape,
    rotation: Option<Rotation>,
    /// Per layer and part.
    codebooks: Vec<Centroids>,
}

/// Tables of one query.
#[derive(Clone, Debug, Default)]
pub(super) struct TableQuery {
    tables: Vec<f32>,
    base: f32,
    rotated: Vec<f32>,
    space: Vec<f32>,
}

impl TableQuery {
    /// A table per byte of a code.
    pub(super) fn entries(&self) -> &[f32] {
        &self.tables
    }
}

impl Product {
    pub(super) fn train(shape: Shape, rows: &[f32], seed: u64) -> Product {
        let Shape { dim, rotations, .. } = shape;
        let mut rotation = (rotations > 0).then(|| Rotation::random(dim, seed));
        let rotated = |rotation: &Option<Rotation>| {
            let mut rows = rows.to_vec();
            let mut space = Vec::new();
            if let Some(rotation) = rotation {
                rows.chunks_exact_mut(dim).for_each(|row| rotation.apply(row, &mut space));
            }
            rows
        };
        // The first layer decides where a rotation puts what.
        let plain = Shape { layers: 1, eta: 0.0, ..shape };
        for _ in 1..rotations {
            let turned = rotated(&rotation);
            let trial = Product {
                shape: plain,
                rotation: None,
                codebooks: plain.layer(&turned, ROUNDS_BETWEEN, seed),
            };
            let mut codes = vec![0; turned.len() / dim * trial.code_len()];
            trial.encode(&turned, &mut codes);
            let mut decoded = vec![0.0; turned.len()];
            let each = codes.chunks_exact(trial.code_len()).zip(decoded.chunks_exact_mut(dim));
            each.for_each(|(code, to)| trial.decode(code, to));
            match Rotation::nearest(dim, rows, &decoded) {
                Some(better) => rotation = Some(better),
                None => break,
            }
        }
        let mut rest = rotated(&rotation);
        let mut codebooks = Vec::new();
        for layer in 0..shape.layers {
            let books = shape.layer(&rest, ROUNDS, seed.wrapping_add(layer as u64));
            for (part, book) in books.iter().enumerate() {
                let (len, from) = (shape.part_len(), part * shape.part_len());
                let cells = book.nearest(&shape.gather(&rest, part));
                for (row, cell) in rest.chunks_exact_mut(dim).zip(cells) {
                    row[from..from + len].iter_mut().zip(book.row(cell as usize)).for_each(|(x, c)| *x -= c);
                }
            }
            codebooks.extend(books);
        }
        Product { shape, rotation, codebooks }
    }

    /// Numbers of a code.
    fn numbers(&self) -> usize {
        self.shape.layers * self.shape.parts
    }

    /// Bytes of the numbers, and so tables.
    fn tables(&self) -> usize {
        (self.numbers() * self.shape.bits).div_ceil(8)
    }

    /// Whether a row carries the squared length of what it stands for: layers are not independent of each other.
    fn carries_length(&self) -> bool {
        self.shape.metric == Metric::L2 && self.shape.layers > 1
    }

    pub(super) fn code_len(&self) -> usize {
        self.tables() + if self.carries_length() { size_of::<f32>() } else { 0 }
    }

    pub(super) fn bytes(&self) -> usize {
        let books: usize =
            self.codebooks.iter().map(|book| book.len() * (book.dim() + 1) * size_of::<f32>()).sum();
        books + self.rotation.as_ref().map_or(0, Rotation::bytes)
    }

    pub(super) fn save(&self, out: &mut Vec<u8>) {
        match &self.rotation {
            None => out.push(0),
            Some(rotation) => {
                out.push(1);
                rotation.save(out);
            }
        }
        for book in &self.codebooks {
            put_number(out, book.len());
            put_floats(out, &book.rows());
        }
    }

    /// `None` when it is not what [`Self::save`] gave for this shape.
    pub(super) fn load(shape: Shape, saved: &mut Saved<'_>) -> Option<Product> {
        let rotation = match (saved.byte()?, shape.rotations) {
            (0, 0) => None,
            (1, 1..) => Some(Rotation::load(shape.dim, saved)?),
            _ => return None,
        };
        let len = shape.part_len();
        let book = |saved: &mut Saved<'_>| {
            let cells = saved.number().filter(|cells| (1..=1 << shape.bits).contains(cells))?;
            Some(Centroids::new(Metric::L2, len, &saved.floats(cells * len)?))
        };
        let codebooks =
            (0..shape.layers * shape.parts).map(|_| book(saved)).collect::<Option<Vec<Centroids>>>()?;
        Some(Product { shape, rotation, codebooks })
    }

    /// Whether all numbers of a row are those of centroids.
    pub(super) fn is_code(&self, row: &[u8]) -> bool {
        self.codebooks.iter().enumerate().all(|(at, book)| self.number(row, at) < book.len())
    }

    fn number(&self, row: &[u8], at: usize) -> usize {
        match self.shape.bits {
            4 => usize::from(row[at / 2] >> (at % 2 * 4) & 15),
            _ => usize::from(row[at]),
        }
    }

    /// Writes the codes of vectors, back to back, over rows, back to back: of many at once the numbers of a part are one product of
    /// matrices.
    pub(super) fn encode(&self, vectors: &[f32], rows: &mut [u8]) {
        let Shape { dim, parts, bits, layers, .. } = self.shape;
        let (len, row_len) = (self.shape.part_len(), self.code_len());
        rows.fill(0);
        let mut rest = vectors.to_vec();
        let mut space = Vec::new();
        if let Some(rotation) = &self.rotation {
            rest.chunks_exact_mut(dim).for_each(|vector| rotation.apply(vector, &mut space));
        }
        for part in 0..parts {
            let points = self.shape.gather(&rest, part);
            let books: Vec<&Centroids> = self.codebooks.iter().skip(part).step_by(parts).collect();
            let numbers = match books[..] {
                [book] => book.nearest(&points),
                _ => points.chunks(BEAMED * len).flat_map(|points| layered(&books, points, len)).collect(),
            };
            for (row, numbers) in rows.chunks_exact_mut(row_len).zip(numbers.chunks_exact(layers)) {
                for (layer, &number) in numbers.iter().enumerate() {
                    let at = layer * parts + part;
                    match bits {
                        4 => row[at / 2] |= (number as u8) << (at % 2 * 4),
                        _ => row[at] = number as u8,
                    }
                }
            }
        }
        if self.carries_length() {
            let mut decoded = vec![0.0; dim];
            for row in rows.chunks_exact_mut(row_len) {
                self.sum_up(row, &mut decoded);
                let squares = decoded.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() as f32;
                row[self.tables()..].copy_from_slice(&squares.to_le_bytes());
            }
        }
    }

    /// What a code stands for, still rotated.
    fn sum_up(&self, row: &[u8], vector: &mut [f32]) {
        let len = self.shape.part_len();
        vector.fill(0.0);
        for (at, book) in self.codebooks.iter().enumerate() {
            let part = &mut vector[at % self.shape.parts * len..][..len];
            part.iter_mut().zip(book.row(self.number(row, at))).for_each(|(x, c)| *x += c);
        }
    }

    pub(super) fn decode(&self, row: &[u8], vector: &mut [f32]) {
        self.sum_up(row, vector);
        self.rotation.iter().for_each(|rotation| rotation.revert(vector, &mut Vec::new()));
    }

    pub(super) fn query(&self, vector: &[f32], query: &mut TableQuery) {
        let Shape { metric, parts, bits, layers, .. } = self.shape;
        let len = self.shape.part_len();
        let TableQuery { tables, base, rotated, space } = query;
        rotated.clear();
        rotated.extend_from_slice(vector);
        self.rotation.iter().for_each(|rotation| rotation.apply(rotated, space));
        *base = match metric {
            Metric::Cosine => 1.0,
            Metric::Dot => 0.0,
            Metric::L2 => rotated.iter().map(|x| x * x).sum(),
        };
        tables.clear();
        tables.resize(self.tables() * ENTRIES, 0.0);
        for (at, book) in self.codebooks.iter().enumerate() {
            // `|c|^2 - 2 q.c`, from which other metrics take what they need.
            book.score(&rotated[at % parts * len..][..len], space);
            let table = &mut tables[at * bits / 8 * ENTRIES..][..ENTRIES];
            for (cell, &score) in space.iter().enumerate() {
                let entry = match (metric, layers) {
                    (Metric::L2, 1) => score,
                    (Metric::L2, _) => score - book.offset(cell),
                    (Metric::Cosine | Metric::Dot, _) => 0.5 * (score - book.offset(cell)),
                };
                match (bits, at % 2) {
                    // Every byte with that nibble.
                    (4, 0) => table[cell..].iter_mut().step_by(16).for_each(|sum| *sum += entry),
                    (4, _) => table[cell * 16..][..16].iter_mut().for_each(|sum| *sum += entry),
                    _ => table[cell] = entry,
                }
            }
        }
    }

    /// Distances to rows `slots` of `rows`.
    ///
    /// # Panics
    /// When a slot is out of range, or `out` is shorter than `slots`.
    pub(super) fn distances(
        &self,
        query: &TableQuery,
        rows: RowTable<'_, u8>,
        slots: &[Slot],
        out: &mut [f32],
    ) {
        let out = &mut out[..slots.len()];
        let fetch = |&slot: &Slot| rows.prefetch(slot);
        slots.iter().take(ROWS_AHEAD).for_each(fetch);
        for (at, (&slot, out)) in slots.iter().zip(out).enumerate() {
            slots.get(at + ROWS_AHEAD).into_iter().for_each(fetch);
            *out = self.distance(query, rows.row(slot));
        }
    }

    /// Distance to one row.
    #[inline]
    pub(super) fn distance(&self, query: &TableQuery, row: &[u8]) -> f32 {
        let (numbers, factor) = row.split_at(self.tables());
        // Four sums: one after the other, each addition would wait for the one before.
        let mut sums = [0.0_f32; 4];
        let mut fours = numbers.chunks_exact(4).zip(query.tables.chunks_exact(4 * ENTRIES));
        for (numbers, tables) in &mut fours {
            for lane in 0..4 {
                sums[lane] += tables[lane * ENTRIES + usize::from(numbers[lane])];
            }
        }
        let whole = numbers.len() / 4 * 4;
        for (&number, table) in
            numbers[whole..].iter().zip(query.tables[whole * ENTRIES..].chunks_exact(ENTRIES))
        {
            sums[0] += table[usize::from(number)];
        }
        let sum = query.base + (sums[0] + sums[1]) + (sums[2] + sums[3]);
        match factor.first_chunk() {
            Some(&length) => sum + f32::from_le_bytes(length),
            None => sum,
        }
    }
}

impl Shape {
    fn part_len(&self) -> usize {
        self.dim / self.parts
    }

    /// Part `part` of each row.
    fn gather(&self, rows: &[f32], part: usize) -> Vec<f32> {
        let len = self.part_len();
        rows.chunks_exact(self.dim).flat_map(|row| &row[part * len..][..len]).copied().collect()
    }

    /// Codebooks of the parts of one layer.
    fn layer(&self, rows: &[f32], rounds: usize, seed: u64) -> Vec<Centroids> {
        let train = |part: usize| {
            let points = self.gather(rows, part);
            let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(part as u64);
            let means =
                KMeans { dim: self.part_len(), cells: 1 << self.bits, metric: Metric::L2, rounds, seed };
            let plain = means.run(&points);
            if self.eta > 1.0 { weighed(plain, &points, self.eta) } else { plain }
        };
        (0..self.parts).map(train).collect()
    }
}

/// Numbers of centroids, one of each book, whose sums are near to `points` of `len` components, back to back: of each book in turn the
/// [`BEAM`] best continuations are kept, as in the beam search of Babenko and Lempitsky (CVPR 2014). The nearest centroid of the
/// first book is not always part of the nearest sum.
fn layered(books: &[&Centroids], points: &[f32], len: usize) -> Vec<u32> {
    let count = points.len() / len;
    // Of each point so many beginnings, each with what it leaves over, the square of that, and its numbers.
    let mut width = 1;
    let mut rests = points.to_vec();
    let mut squares: Vec<f32> =
        points.chunks_exact(len).map(|point| point.iter().map(|x| x * x).sum()).collect();
    let mut numbers: Vec<u32> = Vec::new();
    for (layer, book) in books.iter().enumerate() {
        let kept = if layer + 1 == books.len() { 1 } else { BEAM.min(width * book.len()) };
        // Square, beginning, number; ascending.
        let mut best: Vec<Vec<(f32, usize, u32)>> = vec![Vec::with_capacity(kept + 1); count];
        book.scores(&rests, |at, scores| {
            let best = &mut best[at / width];
            for (number, &score) in scores.iter().enumerate() {
                let square = squares[at] + score;
                if best.len() == kept && best.last().is_some_and(|worst| square >= worst.0) {
                    continue;
                }
                let place = best.partition_point(|better| better.0 <= square);
                best.insert(place, (square, at, number as u32));
                best.truncate(kept);
            }
        });
        let rows = book.rows();
        let (mut next_rests, mut next_squares, mut next_numbers) = (Vec::new(), Vec::new(), Vec::new());
        for &(square, from, number) in best.iter().flatten() {
            next_numbers.extend_from_slice(&numbers[from * layer..][..layer]);
            next_numbers.push(number);
            let centroid = &rows[number as usize * len..][..len];
            next_rests.extend(rests[from * len..][..len].iter().zip(centroid).map(|(x, c)| x - c));
            next_squares.push(square);
        }
        (width, rests, squares, numbers) = (kept, next_rests, next_squares, next_numbers);
    }
    numbers
}

/// Moves centroids so that `|r|^2 + (eta - 1) (r.x)^2 / |x|^2`, summed over points `x` with residual `r`, becomes smaller: errors
/// along a point change its products with queries near it more than errors across (Guo et al., arXiv:1908.10396, here by the
/// directions of parts).
fn weighed(mut book: Centroids, points: &[f32], eta: f32) -> Centroids {
    let (dim, cells) = (book.dim(), book.len());
    for _ in 0..ROUNDS_WEIGHED {
        let rows = book.rows();
        // For the centroid `c` of points `x`: `sum(I + (eta - 1) xx' / |x|^2) c = eta sum(x)`.
        let mut sides = vec![DMatrix::<f64>::zeros(dim, dim); cells];
        let mut sums = vec![DVector::<f64>::zeros(dim); cells];
        let mut scores = Vec::new();
        for point in points.chunks_exact(dim) {
            let squares: f32 = point.iter().map(|x| x * x).sum();
            book.score(point, &mut scores);
            let cost = |cell: usize| {
                let along: f32 = rows[cell * dim..][..dim].iter().zip(point).map(|(c, x)| (x - c) * x).sum();
                let weight = if squares > 0.0 { (eta - 1.0) * along * along / squares } else { 0.0 };
                scores[cell] + squares + weight
            };
            let nearest = (0..cells).map(|cell| (cost(cell), cell)).min_by(|a, b| a.0.total_cmp(&b.0));
            let Some((_, cell)) = nearest else { break };
            let x = DVector::from_iterator(dim, point.iter().map(|&x| f64::from(x)));
            let weight = if squares > 0.0 { f64::from(eta - 1.0) / f64::from(squares) } else { 0.0 };
            sides[cell].ger(weight, &x, &x, 1.0);
            (0..dim).for_each(|i| sides[cell][(i, i)] += 1.0);
            sums[cell].axpy(if squares > 0.0 { f64::from(eta) } else { 1.0 }, &x, 1.0);
        }
        let mut fresh = rows;
        for (cell, (side, sum)) in sides.into_iter().zip(sums).enumerate() {
            // A cell without points has no equation, and stays.
            if let Some(solved) = side.cholesky().map(|side| side.solve(&sum)) {
                fresh[cell * dim..][..dim].iter_mut().zip(solved.iter()).for_each(|(to, &x)| *to = x as f32);
            }
        }
        book = Centroids::new(Metric::L2, dim, &fresh);
    }
    book
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    /// Squared distance of a point and the sum of centroids with these numbers.
    fn error(books: &[&Centroids], point: &[f32], numbers: &[u32]) -> f32 {
        let mut rest = point.to_vec();
        for (book, &number) in books.iter().zip(numbers) {
            rest.iter_mut().zip(book.row(number as usize)).for_each(|(x, c)| *x -= c);
        }
        rest.iter().map(|x| x * x).sum()
    }

    #[test]
    fn a_beam_finds_no_worse_sums_than_one_after_the_other_and_often_the_best() {
        let (len, count) = (4, 300);
        let mut random = SplitMix64(5);
        let mut floats = |count: usize, scale: f64| -> Vec<f32> {
            (0..count).map(|_| ((random.unit() - 0.5) * scale) as f32).collect()
        };
        let points = floats(count * len, 2.0);
        let first = Centroids::new(Metric::L2, len, &floats(16 * len, 2.0));
        let second = Centroids::new(Metric::L2, len, &floats(16 * len, 1.0));
        let few = Centroids::new(Metric::L2, len, &floats(2 * len, 1.0));
        let books = [&first, &second];
        let found = layered(&books, &points, len);
        let nearest = first.nearest(&points);
        let mut best = 0;
        for ((point, numbers), one) in points.chunks_exact(len).zip(found.chunks_exact(2)).zip(nearest) {
            let in_turn = (0..16).map(|other| error(&books, point, &[one, other])).fold(f32::MAX, f32::min);
            let all = (0..16).flat_map(|one| (0..16).map(move |other| [one, other]));
            let least = all.map(|numbers| error(&books, point, &numbers)).fold(f32::MAX, f32::min);
            let own = error(&books, point, numbers);
            assert!(own <= in_turn + 1e-5, "{own} {in_turn}");
            best += usize::from(own <= least + 1e-5);
        }
        assert!(best > count * 9 / 10, "{best} of {count}");
        // Fewer centroids than are followed.
        assert_eq!(layered(&[&few, &few, &first], &points, len).len(), 3 * count);
    }
}
