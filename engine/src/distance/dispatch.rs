//! Which instruction set runs: decided once, at first use, from what the CPU reports.
//!
//! A kernel is a safe function compiled for features of the CPU. To call it where they may be missing is what is unsafe, and all of these
//! calls are here: in methods of [`Runnable`], which is made for a level only after the CPU was asked for the level's features.
use std::sync::OnceLock;

use super::compare::{self, BucketCells, BucketRange, WORD};
use super::entries::{COSINE, DOT, L2};
use super::greatest::GROUP;
use super::{Metric, RowTable, scalar};

/// An instruction set the kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimdLevel {
    /// Portable code.
    Scalar,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 for floats, AVX2 for codes.
    Avx512,
    /// AVX-512 with VNNI for codes.
    Avx512Vnni,
    /// 64-bit Arm.
    Neon,
}

/// Distance of two rows of as many floats.
type Pair = unsafe fn(&[f32], &[f32]) -> f32;
/// Distances of a query to rows of a table: `(query, table, slots, out)`.
type Rows = unsafe fn(&[f32], RowTable<'_, f32>, &[u32], &mut [f32]);
/// A sum over two codes.
type CodePair = unsafe fn(&[u8], &[u8]) -> i32;
/// As [`Rows`] for codes; what is written are the bits of sums.
type CodeRows = unsafe fn(&[u8], RowTable<'_, u8>, &[u32], &mut [f32]);
/// Sums of a query with rows of packed codes: `(query, table, slots, out)`.
type PlaneRows = unsafe fn(&[i8], RowTable<'_, u8>, &[u32], &mut [i32]);
/// Sums of the entries that 32 codes of four bits have in tables: `(tables, block, out)`.
type ShuffleSums = unsafe fn(&[u8], &[u8], &mut [u16; 32]);

/// Updates the greatest products of a group of vectors with rows: `(columns of the group, rows, greatest)`.
type Greatest = unsafe fn(&[[f32; GROUP]], &[[u8; 4]], &mut [f32; GROUP]);

/// Which of 64 numbers lie between two bounds.
type Between = unsafe fn(&[f64; WORD], f64, f64) -> u64;
/// Which slots have a bucket of a range: `(words, range, out)`.
type Buckets = unsafe fn(&[BucketCells], BucketRange, &mut [(u64, u64)]);

/// The two forms of one metric.
#[derive(Clone, Copy)]
pub(super) struct FloatEntry {
    pair: Pair,
    rows: Rows,
}

/// The two forms of a sum over codes.
#[derive(Clone, Copy)]
pub(super) struct CodeEntry {
    /// Two stored codes: the products of what they stand for, or the squares of their differences.
    between: CodePair,
    /// A query and rows: the products of a signed query with stored codes, or squared differences of stored ones.
    rows: CodeRows,
}

/// Products with packed codes of one width.
#[derive(Clone, Copy)]
pub(super) struct PlaneEntry(PlaneRows);

/// Sums over blocks of codes of four bits.
#[derive(Clone, Copy)]
pub(super) struct ShuffleEntry(ShuffleSums);

/// The greatest products of a group of vectors.
#[derive(Clone, Copy)]
pub(super) struct GreatestEntry(Greatest);

/// Comparisons with a column.
#[derive(Clone, Copy)]
pub(super) struct ColumnEntry {
    between: Between,
    buckets: Buckets,
    /// Whether `buckets` compares many at a time.
    compares_bytes_at_once: bool,
}

/// One entry for each width.
struct PlaneEntries {
    bits1: PlaneRows,
    bits4: PlaneRows,
    bits6: PlaneRows,
    bits8: PlaneRows,
}

/// Kernels of one level, which only a [`Runnable`] calls.
pub(super) struct Table {
    level: SimdLevel,
    /// By the index of a metric.
    float: [FloatEntry; 3],
    /// Products, for cosine and dot.
    code_dot: CodeEntry,
    /// Squared differences.
    code_l2: CodeEntry,
    /// Products with packed codes.
    planes: PlaneEntries,
    /// Sums over blocks of codes of four bits.
    shuffle: ShuffleSums,
    /// The greatest products of a group of vectors.
    greatest: Greatest,
    /// Comparisons with columns.
    columns: ColumnEntry,
}

/// What runs on this CPU: the kernels of a level, or one of them.
#[derive(Clone, Copy)]
pub(super) struct Runnable<E>(E);

/// The kernels of a level that runs on this CPU.
pub(super) type Kernels = Runnable<&'static Table>;

impl Kernels {
    /// Those of `metric` for floats.
    pub(super) fn floats(self, metric: Metric) -> Runnable<FloatEntry> {
        let index = match metric {
            Metric::Cosine => COSINE,
            Metric::L2 => L2,
            Metric::Dot => DOT,
        };
        Runnable(self.0.float[index])
    }

    /// Those of `metric` for codes of a byte.
    pub(super) fn codes(self, metric: Metric) -> Runnable<CodeEntry> {
        Runnable(if metric == Metric::L2 { self.0.code_l2 } else { self.0.code_dot })
    }

    /// That of packed codes of 1, 4, 6 or 8 bits.
    pub(super) fn planes(self, bits: usize) -> Runnable<PlaneEntry> {
        let planes = &self.0.planes;
        Runnable(PlaneEntry(match bits {
            1 => planes.bits1,
            4 => planes.bits4,
            6 => planes.bits6,
            _ => planes.bits8,
        }))
    }

    /// That of blocks of codes of four bits.
    pub(super) fn shuffle(self) -> Runnable<ShuffleEntry> {
        Runnable(ShuffleEntry(self.0.shuffle))
    }

    /// The kernel that finds the greatest products of a group of vectors.
    pub(super) fn greatest(self) -> Runnable<GreatestEntry> {
        Runnable(GreatestEntry(self.0.greatest))
    }

    /// The kernels that compare columns.
    #[inline]
    pub(super) fn columns(self) -> Runnable<ColumnEntry> {
        Runnable(self.0.columns)
    }
}

impl Runnable<FloatEntry> {
    /// Distance of two rows.
    #[inline]
    pub(super) fn pair(self, a: &[f32], b: &[f32]) -> f32 {
        // SAFETY: the CPU has the features that the function is compiled for (`Runnable`).
        unsafe { (self.0.pair)(a, b) }
    }

    /// Distances of `query` to rows of `table`.
    #[inline]
    pub(super) fn rows(self, query: &[f32], table: RowTable<'_, f32>, slots: &[u32], out: &mut [f32]) {
        // SAFETY: the CPU has the features that the function is compiled for (`Runnable`).
        unsafe { (self.0.rows)(query, table, slots, out) }
    }
}

impl Runnable<CodeEntry> {
    /// Sum over two stored codes.
    #[inline]
    pub(super) fn between(self, a: &[u8], b: &[u8]) -> i32 {
        // SAFETY: the CPU has the features that the function is compiled for (`Runnable`).
        unsafe { (self.0.between)(a, b) }
    }

    /// Sums over `query` and rows of `table`, as bits.
    #[inline]
    pub(super) fn rows(self, query: &[u8], table: RowTable<'_, u8>, slots: &[u32], out: &mut [f32]) {
        // SAFETY: the CPU has the features that the function is compiled for (`Runnable`).
        unsafe { (self.0.rows)(query, table, slots, out) }
    }
}

impl Runnable<PlaneEntry> {
    /// Sums of `query` with rows of `table`.
    #[inline]
    pub(super) fn rows(self, query: &[i8], table: RowTable<'_, u8>, slots: &[u32], out: &mut [i32]) {
        // SAFETY: the CPU has the features that the function is compiled for (`Runnable`).
        unsafe { (self.0.0)(query, table, slots, out) }
    }
}

impl Runnable<ShuffleEntry> {
    /// Sums over the codes of `block`.
    #[inline]
    pub(super) fn sums(self, tables: &[u8], block: &[u8], out: &mut [u16; 32]) {
        // SAFETY: the CPU has the features that the function is compiled for (`Runnable`).
        unsafe { (self.0.0)(tables, block, out) }
    }
}

impl Runnable<GreatestEntry> {
    /// Updates `greatest` with the products of the vectors of a group with `rows`.
    #[inline]
    pub(super) fn raise(self, columns: &[[f32; GROUP]], rows: &[[u8; 4]], greatest: &mut [f32; GROUP]) {
        // SAFETY: the CPU has the features that the function is compiled for (`Runnable`).
        unsafe { (self.0.0)(columns, rows, greatest) }
    }
}

impl Runnable<ColumnEntry> {
    /// Whether buckets are compared many at a time.
    pub(super) fn compares_bytes_at_once(self) -> bool {
        self.0.compares_bytes_at_once
    }

    /// Bits of the numbers between two bounds.
    #[inline]
    pub(super) fn between(self, numbers: &[f64; WORD], low: f64, high: f64) -> u64 {
        // SAFETY: the CPU has the features that the function is compiled for (`Runnable`).
        unsafe { (self.0.between)(numbers, low, high) }
    }

    /// Bits of the slots that have a bucket of `range`, for as many words as both slices have.
    #[inline]
    pub(super) fn buckets(self, words: &[BucketCells], range: BucketRange, out: &mut [(u64, u64)]) {
        // SAFETY: the CPU has the features that the function is compiled for (`Runnable`).
        unsafe { (self.0.buckets)(words, range, out) }
    }
}

impl SimdLevel {
    /// Every level, slowest first.
    pub const ALL: [SimdLevel; 5] =
        [SimdLevel::Scalar, SimdLevel::Avx2, SimdLevel::Avx512, SimdLevel::Avx512Vnni, SimdLevel::Neon];

    /// The fastest level this CPU runs.
    pub fn best() -> SimdLevel {
        best_kernels().0.level
    }

    /// Name for the start log.
    pub const fn name(self) -> &'static str {
        match self {
            SimdLevel::Scalar => "scalar",
            SimdLevel::Avx2 => "avx2",
            SimdLevel::Avx512 => "avx512",
            SimdLevel::Avx512Vnni => "avx512+vnni",
            SimdLevel::Neon => "neon",
        }
    }

    /// The level's kernels; `None` when this CPU cannot run them.
    pub(super) fn kernels(self) -> Option<Kernels> {
        let table = match self {
            SimdLevel::Scalar => Some(&SCALAR),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => has_avx2().then_some(&x86::AVX2),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => has_avx512().then_some(&x86::AVX512),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512Vnni => (has_avx512() && has_vnni()).then_some(&x86::AVX512_VNNI),
            #[cfg(target_arch = "aarch64")]
            SimdLevel::Neon => Some(&NEON),
            #[allow(unreachable_patterns, reason = "which levels are foreign depends on the target")]
            _ => None,
        };
        table.map(Runnable)
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
}

/// AVX-512 levels take their code product from AVX2 when VNNI is missing, so both are asked for.
#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    has_avx2() && std::arch::is_x86_feature_detected!("avx512f")
}

/// Code sums at this level also subtract and unpack bytes.
#[cfg(target_arch = "x86_64")]
fn has_vnni() -> bool {
    std::arch::is_x86_feature_detected!("avx512vnni") && std::arch::is_x86_feature_detected!("avx512bw")
}

/// The entries for floats of a level, from its module.
macro_rules! float {
    ($level:ident) => {
        [
            FloatEntry { pair: $level::pair::<COSINE>, rows: $level::rows::<COSINE> },
            FloatEntry { pair: $level::pair::<L2>, rows: $level::rows::<L2> },
            FloatEntry { pair: $level::pair::<DOT>, rows: $level::rows::<DOT> },
        ]
    };
}

/// The entries for columns from the functions of a module.
macro_rules! columns {
    ($($level:ident)::+, $at_once:literal) => {
        ColumnEntry {
            between: $($level)::+::between,
            buckets: $($level)::+::buckets,
            compares_bytes_at_once: $at_once,
        }
    };
}

/// A table of the level `$level`: `$float` is the module with what is for floats, `$code` the one for codes, `$groups` the one for the greatest
/// products of groups of vectors, `$columns` are the entries for columns.
macro_rules! table {
    ($level:ident, $float:ident, $code:ident, $groups:ident, $columns:expr) => {
        Table {
            level: SimdLevel::$level,
            float: float!($float),
            code_dot: CodeEntry { between: $code::product_between, rows: $code::dot_rows },
            code_l2: CodeEntry { between: $code::square, rows: $code::l2_rows },
            planes: PlaneEntries {
                bits1: $code::plane_rows::<1>,
                bits4: $code::plane_rows::<4>,
                bits6: $code::plane_rows::<6>,
                bits8: $code::plane_rows::<8>,
            },
            shuffle: $code::shuffle_sums,
            greatest: $groups::greatest,
            columns: $columns,
        }
    };
}

static SCALAR: Table = table!(Scalar, scalar, scalar, scalar, columns!(compare, false));

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::{avx2, avx512};
    use super::*;

    const COLUMNS: ColumnEntry = columns!(compare::x86, true);

    pub(super) static AVX2: Table = table!(Avx2, avx2, avx2, avx2, COLUMNS);
    pub(super) static AVX512: Table = table!(Avx512, avx512, avx2, avx2, COLUMNS);
    pub(super) static AVX512_VNNI: Table = table!(Avx512Vnni, avx512, avx512, avx2, COLUMNS);
}

#[cfg(target_arch = "aarch64")]
use super::neon;
#[cfg(target_arch = "aarch64")]
static NEON: Table = table!(Neon, neon, neon, scalar, columns!(compare, false));

/// Those of the fastest level, looked up once.
pub(super) fn best_kernels() -> Kernels {
    static BEST: OnceLock<Kernels> = OnceLock::new();
    *BEST.get_or_init(|| {
        SimdLevel::ALL.iter().rev().find_map(|level| level.kernels()).unwrap_or(Runnable(&SCALAR))
    })
}

/// Name of the SIMD level in use, for the start log: `avx512+vnni`, `avx512`, `avx2`, `neon`, `scalar`.
pub fn simd_level() -> &'static str {
    SimdLevel::best().name()
}
