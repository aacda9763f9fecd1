//! Damage to valid inputs: what disks, networks and attackers do to them.

use crate::SplitMix;

/// Makes damaged copies of seed inputs.
pub struct Mutator {
    random: SplitMix,
    seeds: Vec<Vec<u8>>,
}

/// Numbers at which lengths and offsets go wrong.
const EDGES: [u64; 12] =
    [0, 1, 4, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];

impl Mutator {
    /// From valid inputs, at least one.
    pub fn new(seed: u64, seeds: Vec<Vec<u8>>) -> Mutator {
        assert!(!seeds.is_empty(), "a decoder has at least one seed input");
        Mutator { random: SplitMix(seed), seeds }
    }

    /// The next damaged input: one to four changes to one of the seeds.
    pub fn next_input(&mut self) -> Vec<u8> {
        let seed = self.below(self.seeds.len());
        let mut bytes = self.seeds[seed].clone();
        for _ in 0..1 + self.below(4) {
            self.damage(&mut bytes);
        }
        bytes
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            bytes.push(self.random.next() as u8);
            return;
        }
        let at = self.below(bytes.len());
        match self.below(9) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = self.random.next() as u8,
            2 => bytes.truncate(at),
            3 => {
                let len = 1 + self.below(16);
                bytes.drain(at..bytes.len().min(at + len));
            }
            4 => {
                let len = 1 + self.below(16);
                let fill = self.random.next() as u8;
                bytes.splice(at..at, std::iter::repeat_n(fill, len));
            }
            5 | 6 => {
                // A number of 1, 2, 4 or 8 bytes at, or just off, an edge.
                let width = 1 << self.below(4);
                let number =
                    EDGES[self.below(EDGES.len())].wrapping_add(self.below(3) as u64).wrapping_sub(1);
                let end = bytes.len().min(at + width);
                bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            7 => {
                // A piece of this input again, elsewhere in it.
                let from = self.below(bytes.len());
                let len = (1 + self.below(32)).min(bytes.len() - from);
                let piece = bytes[from..from + len].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                // The rest of another input.
                let other = self.below(self.seeds.len());
                let from = self.below(self.seeds[other].len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&self.seeds[other][from..]);
            }
        }
    }
}
