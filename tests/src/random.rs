//! Seeded randomness for tests that must replay.

/// The generator of Steele, Lea and Flood (OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "an endless source, not an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
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
