//! Which instruction set runs: decided once, at first use, from what the CPU reports.
use std::sync::OnceLock;

use super::entries::{CodeEntry, FloatEntry, ShuffleSums};
use super::plane_entries::PlaneEntry;
use super::scalar;

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

/// Kernels of one level.
pub(super) struct Table {
    pub(super) level: SimdLevel,
    pub(super) float: [FloatEntry; 3],
    /// Products, for cosine and dot.
    pub(super) code_dot: CodeEntry,
    /// Squared differences.
    pub(super) code_l2: CodeEntry,
    /// Products with packed codes.
    pub(super) planes: PlaneEntry,
    /// Sums over blocks of codes of four bits.
    pub(super) shuffle: ShuffleSums,
}

impl SimdLevel {
    /// Every level, slowest first.
    pub const ALL: [SimdLevel; 5] =
        [SimdLevel::Scalar, SimdLevel::Avx2, SimdLevel::Avx512, SimdLevel::Avx512Vnni, SimdLevel::Neon];

    /// The fastest level this CPU runs.
    pub fn best() -> SimdLevel {
        best_table().level
    }

    /// Whether its kernels, and so this CPU when it is the best, have AVX2.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const fn has_avx2(self) -> bool {
        matches!(self, SimdLevel::Avx2 | SimdLevel::Avx512 | SimdLevel::Avx512Vnni)
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
    pub(super) fn table(self) -> Option<&'static Table> {
        match self {
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
        }
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

static SCALAR: Table = Table {
    level: SimdLevel::Scalar,
    float: scalar::FLOAT,
    code_dot: scalar::CODE_DOT,
    code_l2: scalar::CODE_L2,
    planes: scalar::PLANES,
    shuffle: scalar::shuffle_sums,
};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::{avx2, avx512};
    use super::{SimdLevel, Table};

    pub(super) static AVX2: Table = Table {
        level: SimdLevel::Avx2,
        float: avx2::FLOAT,
        code_dot: avx2::CODE_DOT,
        code_l2: avx2::CODE_L2,
        planes: avx2::PLANES,
        shuffle: avx2::shuffle_sums,
    };
    pub(super) static AVX512: Table = Table {
        level: SimdLevel::Avx512,
        float: avx512::FLOAT,
        code_dot: avx2::CODE_DOT,
        code_l2: avx2::CODE_L2,
        planes: avx2::PLANES,
        shuffle: avx2::shuffle_sums,
    };
    pub(super) static AVX512_VNNI: Table = Table {
        level: SimdLevel::Avx512Vnni,
        float: avx512::FLOAT,
        code_dot: avx512::CODE_DOT,
        code_l2: avx512::CODE_L2,
        planes: avx512::PLANES,
        shuffle: avx512::shuffle_sums,
    };
}

#[cfg(target_arch = "aarch64")]
static NEON: Table = Table {
    level: SimdLevel::Neon,
    float: super::neon::FLOAT,
    code_dot: super::neon::CODE_DOT,
    code_l2: super::neon::CODE_L2,
    planes: super::neon::PLANES,
    shuffle: super::neon::shuffle_sums,
};

/// The table of the fastest level, looked up once.
pub(super) fn best_table() -> &'static Table {
    static BEST: OnceLock<&'static Table> = OnceLock::new();
    BEST.get_or_init(|| SimdLevel::ALL.iter().rev().find_map(|level| level.table()).unwrap_or(&SCALAR))
}

/// Name of the SIMD level in use, for the start log: `avx512+vnni`, `avx512`, `avx2`, `neon`, `scalar`.
pub fn simd_level() -> &'static str {
    SimdLevel::best().name()
}
