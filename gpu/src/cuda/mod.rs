//! A CUDA device: rows in chunks of its memory, three kernels over them (`kernels.cu`), compiled when the device is opened.
//!
//! Everything goes through the context's default stream, in order, so a buffer is free again as soon as the next call is queued.
mod driver;

use crate::chunks::{GROUP, Layout, Pass, WIDTH, last_writes, passes};
use crate::keys::merge;
use cudarc::driver::{CudaFunction, CudaSlice, LaunchConfig, PushKernelArg};
use driver::Driver;
use nigh_engine::device::{DeviceError, ExactDevice, Found, K_MAX, check_queries, check_rows};
use nigh_engine::distance::Metric;

const KERNELS: &str = include_str!("kernels.cu");
/// `SCORERS`, `SORTERS` and `QUERIES` of the kernels.
const SCORERS: usize = 128;
const SORTERS: usize = WIDTH / 2;
const QUERIES: usize = 8;
/// Threads of a block that places rows.
const PLACERS: usize = 256;
/// Bytes of rows that are sent to the device at a time, at least one row.
const STAGED_BYTES: usize = 16 << 20;

/// See the module.
pub struct Cuda {
    driver: Driver,
    dim: usize,
    layout: Layout,
    chunks: Vec<CudaSlice<f32>>,
    rows: usize,
    place: CudaFunction,
    score_one: CudaFunction,
    score_some: CudaFunction,
    keep_lowest: CudaFunction,
    buffers: Buffers,
}

/// Device memory that calls use and leave to the next; each grows to the largest that was asked for.
#[derive(Default)]
struct Buffers {
    staged: Option<CudaSlice<f32>>,
    locals: Option<CudaSlice<u32>>,
    queries: Option<CudaSlice<f32>>,
    live: Option<CudaSlice<u64>>,
    keys: Option<CudaSlice<u64>>,
    fewer: Option<CudaSlice<u64>>,
    lists: Option<CudaSlice<u64>>,
}

impl Cuda {
    /// Opens the first device.
    ///
    /// # Errors
    /// As [`crate::open`].
    pub fn open(dim: usize, metric: Metric) -> Result<Cuda, DeviceError> {
        let driver = Driver::open()?;
        let metric = match metric {
            Metric::Cosine => 0,
            Metric::L2 => 1,
            Metric::Dot => 2,
        };
        let kernels = driver.compile(KERNELS, vec![format!("-DMETRIC={metric}")])?;
        let kernel =
            |name| kernels.load_function(name).map_err(|e| DeviceError::Kernels(format!("{name}: {e}")));
        Ok(Cuda {
            place: kernel("place")?,
            score_one: kernel("score_one")?,
            score_some: kernel("score_some")?,
            keep_lowest: kernel("keep_lowest")?,
            driver,
            dim,
            layout: Layout::new(dim),
            chunks: Vec::new(),
            rows: 0,
            buffers: Buffers::default(),
        })
    }

    /// Rows padded to whole quads, one after the other.
    fn padded<'a>(&self, rows: impl ExactSizeIterator<Item = &'a [f32]>) -> Vec<f32> {
        let width = self.layout.quads * 4;
        let mut padded = vec![0.0; rows.len() * width];
        for (to, row) in padded.chunks_exact_mut(width).zip(rows) {
            to[..self.dim].copy_from_slice(row);
        }
        padded
    }

    /// Allocates chunks until `rows` rows have a place.
    fn grow(&mut self, rows: usize) -> Result<(), DeviceError> {
        while self.chunks.len() < self.layout.chunks(rows) {
            let chunk = self.driver.zeroed(self.layout.values(self.chunks.len()))?;
            self.chunks.push(chunk);
        }
        self.rows = self.rows.max(rows);
        Ok(())
    }

    /// Writes rows of one chunk: (row, index of its values), each row once.
    fn write_chunk(
        &mut self,
        chunk: usize,
        writes: &[(u32, usize)],
        values: &[f32],
    ) -> Result<(), DeviceError> {
        let start = self.layout.start(chunk) as u32;
        let at_once = (STAGED_BYTES / (self.layout.quads * 16)).max(1);
        for writes in writes.chunks(at_once) {
            let rows = writes.iter().map(|&(_, index)| &values[index * self.dim..][..self.dim]);
            let locals: Vec<u32> = writes.iter().map(|&(row, _)| row - start).collect();
            let (quads, count) = (self.layout.quads as u32, locals.len() as u32);
            let padded = self.padded(rows);
            let staged = self.driver.send(&mut self.buffers.staged, &padded)?;
            let locals = self.driver.send(&mut self.buffers.locals, &locals)?;
            let blocks = (writes.len() * self.layout.quads).div_ceil(PLACERS);
            let mut launch = self.driver.stream.launch_builder(&self.place);
            launch.arg(&mut self.chunks[chunk]).arg(&quads).arg(staged).arg(locals).arg(&count);
            // SAFETY: the arguments are those of `place`. It reads `quads` quads for each of `count` rows of `staged` and `count`
            // places, which were just sent, and writes to rows below the chunk's capacity: `locals` come from `Layout::place`.
            // No row occurs twice, so no two threads write to one place.
            unsafe { launch.launch(config(blocks, 1, PLACERS)) }.map_err(driver::failed)?;
        }
        Ok(())
    }

    /// Scores up to [`QUERIES`] padded queries against every row; their lists, of `keep` keys each, chunk after chunk.
    fn search_some(
        &mut self,
        queries: &[f32],
        count: usize,
        keep: usize,
        live_words: u32,
    ) -> Result<Vec<u64>, DeviceError> {
        let (stream, buffers) = (&self.driver.stream, &mut self.buffers);
        let chunks = self.layout.chunks(self.rows);
        let rows_of = |chunk| (self.rows - self.layout.start(chunk)).min(self.layout.capacity(chunk));
        let most = (0..chunks).map(rows_of).max().unwrap_or(0);
        let queries = self.driver.send(&mut buffers.queries, queries)?;
        let keys = self.driver.room(&mut buffers.keys, count * most)?;
        let fewer = self.driver.room(&mut buffers.fewer, count * most.div_ceil(WIDTH) * keep)?;
        let lists = self.driver.room(&mut buffers.lists, chunks * count * keep)?;
        let live = buffers.live.as_ref().expect("sent before the queries");
        let score = if count == 1 { &self.score_one } else { &self.score_some };
        let (quads, query_count, kept) = (self.layout.quads as u32, count as u32, keep as u32);
        for chunk in 0..chunks {
            let (first_row, rows) = (self.layout.start(chunk) as u32, rows_of(chunk));
            let (row_count, stride) = (rows as u32, rows as u64);
            let mut launch = stream.launch_builder(score);
            launch.arg(&self.chunks[chunk]).arg(&row_count).arg(&quads).arg(queries).arg(&query_count);
            launch.arg(live).arg(&live_words).arg(&first_row).arg(&mut *keys).arg(&stride);
            // SAFETY: the arguments are those of `score_one` and `score_some`; the latter takes up to QUERIES queries. They read
            // `row_count` rows of a chunk that has as many, `query_count` queries of `quads` quads, `live_words` words of the mask, and
            // write `row_count` keys for each query, for which `keys` has room.
            unsafe { launch.launch(config(rows.div_ceil(SCORERS), 1, SCORERS)) }.map_err(driver::failed)?;

            let mut from_keys = true;
            for Pass { input, segments } in passes(rows, keep) {
                let (in_count, in_stride) = (input as u32, input as u64);
                let out_stride = (segments * keep) as u64;
                let mut list = lists.slice_mut(chunk * count * keep..(chunk + 1) * count * keep);
                let mut launch = stream.launch_builder(&self.keep_lowest);
                // The buffers take turns; what a pass leaves is as closely packed as what it reads.
                let (from, to) =
                    if from_keys { (&mut *keys, &mut *fewer) } else { (&mut *fewer, &mut *keys) };
                launch.arg(&*from).arg(&in_stride).arg(&in_count).arg(&kept);
                match segments {
                    1 => launch.arg(&mut list),
                    _ => launch.arg(to),
                };
                launch.arg(&out_stride);
                // SAFETY: the arguments are those of `keep_lowest`. It reads `in_count` keys for each of `count` queries, which the kernel
                // before wrote, and writes `keep` for each segment and query: one list each at last, else no more than the
                // buffers have room for (`passes`). It reads and writes different buffers.
                unsafe { launch.launch(config(segments, count, SORTERS)) }.map_err(driver::failed)?;
                from_keys = !from_keys;
            }
        }
        self.driver.fetch(lists, chunks * count * keep)
    }
}

/// `blocks` by `of` blocks of `threads`. Each count is below 2^31: a chunk has at most 2^20 rows, staged rows 2^20 quads or
/// one row.
fn config(blocks: usize, of: usize, threads: usize) -> LaunchConfig {
    LaunchConfig {
        grid_dim: (blocks as u32, of as u32, 1),
        block_dim: (threads as u32, 1, 1),
        shared_mem_bytes: 0,
    }
}

impl ExactDevice for Cuda {
    fn name(&self) -> String {
        self.driver.name.clone()
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn len(&self) -> usize {
        self.rows
    }

    fn write(&mut self, rows: &[u32], values: &[f32]) -> Result<(), DeviceError> {
        check_rows(self.dim, rows, values)?;
        let writes = last_writes(rows);
        let Some(&(highest, _)) = writes.last() else { return Ok(()) };
        self.grow(highest as usize + 1)?;
        let layout = self.layout;
        let chunk_of = |write: &(u32, usize)| layout.place(write.0).chunk;
        for writes in writes.chunk_by(|a, b| chunk_of(a) == chunk_of(b)) {
            self.write_chunk(chunk_of(&writes[0]), writes, values)?;
        }
        Ok(())
    }

    fn search(&mut self, queries: &[f32], k: usize, live: &[u64]) -> Result<Vec<Vec<Found>>, DeviceError> {
        check_queries(self.dim, queries, k)?;
        let live = &live[..live.len().min(self.rows.div_ceil(64))];
        let mut found = Vec::with_capacity(queries.len() / self.dim);
        if live.is_empty() {
            found.resize(queries.len() / self.dim, Vec::new());
            return Ok(found);
        }
        self.driver.send(&mut self.buffers.live, live)?;
        // The kernels read the mask in words of 32 bits, the lower half of each word first, as the hosts of these devices store it.
        let live_words = 2 * live.len() as u32;
        for queries in queries.chunks(QUERIES * self.dim) {
            let count = queries.len() / self.dim;
            let padded = self.padded(queries.chunks_exact(self.dim));
            let lists = self.search_some(&padded, count, k, live_words)?;
            found.extend((0..count).map(|query| merge(lists.chunks_exact(k).skip(query).step_by(count), k)));
        }
        Ok(found)
    }

    fn peak_bytes_per_s(&self) -> Option<f64> {
        self.driver.peak_bytes_per_s()
    }
}

const _: () = assert!(K_MAX < WIDTH / 2 && GROUP == 32 && cfg!(target_endian = "little"));
