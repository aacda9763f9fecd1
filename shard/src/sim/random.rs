//! The one source of randomness of a simulated run.
use nigh_engine::random::SplitMix64;
use std::cell::Cell;

/// A stream of random numbers from a seed.
///
/// Interior mutability, so that a disk, an executor and a workload may each hold one without a `RefCell` dance.
#[derive(Clone, Debug)]
pub struct Random {
    state: Cell<u64>,
}

impl Random {
    /// A stream of its own per seed.
    pub fn new(seed: u64) -> Random {
        Random { state: Cell::new(seed) }
    }

    /// A stream that shares nothing with this one.
    pub fn fork(&self) -> Random {
        Random::new(self.next() ^ 0x5851_f42d_4c95_7f2d)
    }

    /// All 64 bits random.
    pub fn next(&self) -> u64 {
        let mut stream = SplitMix64(self.state.get());
        let bits = stream.next();
        self.state.set(stream.0);
        bits
    }

    /// Uniform in `0..end`; `end` > 0. The modulo bias is below 2^-32 for every range used here.
    pub fn below(&self, end: u64) -> u64 {
        assert!(end > 0, "an empty range has no member");
        self.next() % end
    }

    /// Uniform index of a slice of `len` > 0 elements.
    pub fn index(&self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True `times` out of `of`.
    pub fn chance(&self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_stream_and_forks_differ() {
        let (a, b) = (Random::new(7), Random::new(7));
        assert_eq!(
            (0..9).map(|_| a.next()).collect::<Vec<_>>(),
            (0..9).map(|_| b.next()).collect::<Vec<_>>()
        );
        assert_ne!(a.fork().next(), a.fork().next());
    }

    #[test]
    fn ranges_are_covered() {
        let random = Random::new(1);
        let mut seen = [0u32; 5];
        for _ in 0..1000 {
            seen[random.index(5)] += 1;
        }
        assert!(seen.iter().all(|&n| n > 100), "{seen:?}");
    }
}
