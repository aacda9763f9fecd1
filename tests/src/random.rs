//! Seeded randomness for tests that must replay.

use nigh_engine::random::SplitMix64;

/// A stream of random numbers, which begins at its seed.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "an endless source, not an iterator")]
    pub fn next(&mut self) -> u64 {
        let mut stream = SplitMix64(self.0);
        let bits = stream.next();
        self.0 = stream.0;
        bits
    }

    /// Below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// In -1..1.
    pub fn coordinate(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// A vector of `dim` coordinates.
    pub fn vector(&mut self, dim: usize) -> Vec<f32> {
        (0..dim).map(|_| self.coordinate()).collect()
    }
}

/// The seed of a test's choices: `NIGH_TEST_SEED`, or the usual one; printed with the number of rounds, so that a failure can be replayed.
///
/// # Panics
/// When the variable is no number.
pub fn test_seed(usual: u64, rounds: u64) -> u64 {
    let given = std::env::var("NIGH_TEST_SEED").ok();
    let seed = given.map_or(usual, |seed| seed.parse().expect("NIGH_TEST_SEED is a number"));
    println!("NIGH_TEST_SEED={seed}, {rounds} rounds");
    seed
}
