//! Tables of sixteen bytes looked up for 32 codes at once, by shuffles within a register (André, Kermarrec, Le Scouarnec: Quicker ADC,
//! TPAMI 2021).
//!
//! A number of a code is four bits. A block holds 32 codes, two numbers after another: 32 bytes, byte `i` with number `2p` of code
//! `i` below and number `2p + 1` above. Tables lie likewise, sixteen bytes for number `2p` and sixteen for `2p + 1`. Sums are integers
//! of 16 bits, the same on every machine.
use super::dispatch::{Kernels, Runnable, ShuffleEntry, SimdLevel, best_kernels};

/// Codes of a block.
pub const CODES: usize = 32;

/// Bytes of two numbers of a block, and of the tables of two numbers.
pub const PAIR_BYTES: usize = 32;

/// Sums over blocks on this machine.
#[derive(Clone, Copy)]
pub struct ShuffleKernel {
    entry: Runnable<ShuffleEntry>,
}

/// A kernel is chosen once; nothing of it is worth printing.
impl std::fmt::Debug for ShuffleKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ShuffleKernel")
    }
}

impl ShuffleKernel {
    /// At the fastest level of this CPU.
    pub fn best() -> ShuffleKernel {
        ShuffleKernel::from_kernels(best_kernels())
    }

    /// At `level`; `None` when this CPU cannot run it. For tests.
    pub fn at_level(level: SimdLevel) -> Option<ShuffleKernel> {
        Some(ShuffleKernel::from_kernels(level.kernels()?))
    }

    fn from_kernels(kernels: Kernels) -> ShuffleKernel {
        ShuffleKernel { entry: kernels.shuffle() }
    }

    /// Sums of the entries that each of the 32 codes of `block` has in `tables`. The largest entries of all tables together are at
    /// most 65,535: sums wrap. Cost: a nanosecond for about four numbers of all codes.
    ///
    /// # Panics
    /// When the two do not hold as many whole pairs of numbers.
    #[inline]
    pub fn sums(&self, tables: &[u8], block: &[u8], out: &mut [u16; CODES]) {
        assert!(
            tables.len() == block.len() && block.len().is_multiple_of(PAIR_BYTES),
            "tables of {} bytes for a block of {}",
            tables.len(),
            block.len()
        );
        self.entry.sums(tables, block, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    #[test]
    fn all_levels_sum_what_plain_look_ups_sum() {
        for pairs in [0, 1, 2, 3, 7, 24, 48, 128] {
            for largest in [3, 255] {
                let mut random = SplitMix64(pairs as u64);
                let mut bytes = || (0..pairs * PAIR_BYTES).map(|_| random.next() as u8).collect::<Vec<u8>>();
                let (block, mut tables) = (bytes(), bytes());
                tables.iter_mut().for_each(|byte| *byte = (*byte).min(largest).max(largest & 0xfc));
                let plain: Vec<u16> = (0..CODES)
                    .map(|code| {
                        let entry = |pair: usize| {
                            let (byte, tables) =
                                (block[pair * PAIR_BYTES + code], &tables[pair * PAIR_BYTES..][..PAIR_BYTES]);
                            u16::from(tables[usize::from(byte & 15)])
                                + u16::from(tables[16 + usize::from(byte >> 4)])
                        };
                        (0..pairs).map(entry).sum()
                    })
                    .collect();
                for level in SimdLevel::ALL {
                    let Some(kernel) = ShuffleKernel::at_level(level) else { continue };
                    let mut sums = [7; CODES];
                    kernel.sums(&tables, &block, &mut sums);
                    assert_eq!(sums[..], plain[..], "{level:?}, {pairs} pairs");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "tables of 32 bytes for a block of 64")]
    fn a_table_is_missing() {
        ShuffleKernel::best().sums(&[0; 32], &[0; 64], &mut [0; CODES]);
    }
}
