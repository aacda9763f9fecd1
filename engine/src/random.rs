//! Random numbers from a seed: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
//!
//! A stream is one `u64`, every seed is a good one, and the numbers are the same on every machine: graphs, samples and quantizers that are made
//! from one seed are equal, and a failing test replays. Not for secrets.

/// The step between two states of a stream.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijection of 64-bit words that spreads every input bit over all output bits; 0 stays 0.
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The first number of the stream of `seed`: a hash of it.
#[inline]
pub fn hash(seed: u64) -> u64 {
    mix(seed.wrapping_add(STEP))
}

/// A stream; it begins at its seed.
#[derive(Clone, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "an endless source, not an iterator")]
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// From 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Below `end`, each as likely up to `end / 2^64` (Lemire, "Fast random integer generation in an interval", 2019, without the rejection).
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the reference implementation (Vigna, splitmix64.c) for the seed 1234567.
    #[test]
    fn the_stream_is_that_of_the_reference() {
        let mut random = SplitMix64(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!([(); 5].map(|()| random.next()), expected);
        assert_eq!(hash(1_234_567), expected[0]);
    }

    #[test]
    fn numbers_stay_in_their_intervals() {
        let mut random = SplitMix64(1);
        let mut seen = [0_usize; 7];
        for _ in 0..7_000 {
            seen[random.below(7)] += 1;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert!(seen.iter().all(|count| (800..1_200).contains(count)), "{seen:?}");
    }
}
