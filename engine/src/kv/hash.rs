//! The hash of keys: keyed, so that nobody outside can choose keys that meet.

use ahash::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Hashes keys; one per process, shared by all its stores and front ends.
#[derive(Clone)]
pub struct KeyHasher(RandomState);

/// A key's hash. Three parts of it serve three purposes and have no bit in common: the low 32 bits choose a bucket, the next
/// 16 a shard ([`KeyHash::part`]), the top 16 mark the entry in its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(pub(super) u64);

impl KeyHasher {
    /// Keyed by `seed`, which must be random and stay secret: who knows it can choose keys that share a bucket.
    pub fn new(seed: u64) -> KeyHasher {
        // Four words from one: odd constants keep them apart even for seed 0.
        let key = |n: u64| {
            (seed ^ n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93 | n << 1)
        };
        KeyHasher(RandomState::with_seeds(key(1), key(2), key(3), key(4)))
    }

    /// Some 5 ns for a short key.
    #[inline]
    pub fn hash_of(&self, key: &[u8]) -> KeyHash {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        KeyHash(hasher.finish())
    }
}

impl KeyHash {
    /// All of it, to be compared; nothing follows from its parts that [`Self::part`] does not say.
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// Which of `parts` (at most 65,536) equally likely parts the key falls into: for the choice of a shard.
    #[inline]
    pub fn part(self, parts: usize) -> usize {
        debug_assert!(parts <= 1 << 16);
        ((self.0 >> 32 & 0xFFFF) as usize * parts) >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_part_and_parts_are_even() {
        let (a, b) = (KeyHasher::new(0), KeyHasher::new(1));
        assert_ne!(a.hash_of(b"key"), b.hash_of(b"key"));
        assert_eq!(a.hash_of(b"key"), a.clone().hash_of(b"key"));
        assert_ne!(a.hash_of(b""), a.hash_of(b"\0"));
        let mut counts = [0; 3];
        (0..30_000u32).for_each(|n| counts[a.hash_of(&n.to_le_bytes()).part(3)] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}
