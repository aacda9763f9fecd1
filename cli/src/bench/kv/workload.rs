//! What is asked for: which keys, which of GET and SET, which values, and when.
//!
//! Everything is a function of numbers. A key is its number, a value depends on the key's number and the sizes asked for and
//! on nothing else (so a run can check what another one wrote), and draws depend on the seed. Nothing here allocates after
//! it was made.
use clap::ValueEnum;
use nigh_engine::random::{SplitMix64, hash};
use serde::Serialize;

/// Values are cut from a pool of so many random bytes more than the longest has: a multiple of every page and line size,
/// small enough to stay in a cache.
const POOL_SPREAD: usize = 64 << 10;

/// GET or SET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reads a value.
    Get,
    /// Writes one.
    Set,
}

/// Which keys are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// In proportion to `1 / rank^s`.
    Zipf(f64),
}

/// Sizes of values, bytes, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// Smallest.
    pub min: usize,
    /// Largest.
    pub max: usize,
}

/// How due times are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// As independent clients send: exponential gaps.
    Poisson,
    /// Evenly.
    Uniform,
}

/// Random choices: one multiplication chain per draw, the same everywhere.
#[derive(Clone)]
pub struct Random(SplitMix64);

impl Random {
    /// Begins at `seed`; `stream` keeps threads apart.
    pub fn new(seed: u64, stream: u64) -> Random {
        Random(SplitMix64(hash(seed) ^ hash(stream.wrapping_add(0x5851_f42d_4c95_7f2d))))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound as usize) as u64
    }

    /// A number in `(0, 1]`.
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

/// Keys of one length: zeros and a number in hexadecimal.
#[derive(Clone)]
pub struct Keys {
    text: Vec<u8>,
}

impl Keys {
    /// Keys of `size` bytes.
    pub fn new(size: usize) -> Keys {
        Keys { text: vec![b'0'; size] }
    }

    /// The key of `number`, valid until the next call. Digits that do not fit are cut; the options see to it that none are.
    pub fn text(&mut self, number: u64) -> &[u8] {
        let mut rest = number;
        for digit in self.text.iter_mut().rev().take(16) {
            *digit = b"0123456789abcdef"[(rest & 15) as usize];
            rest >>= 4;
        }
        &self.text
    }
}

/// The value of every key.
pub struct Values {
    sizes: Sizes,
    pool: Vec<u8>,
}

/// One value, in two pieces: a mark of its key's own, and bytes that other keys may share.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    mark: [u8; 8],
    mark_len: usize,
    rest: &'a [u8],
}

impl Values {
    /// Values of these sizes. Costs a pool of the largest and 64 KiB.
    pub fn new(sizes: Sizes) -> Values {
        let mut random = Random::new(0, 0);
        let mut pool = vec![0; sizes.max + POOL_SPREAD];
        for chunk in pool.chunks_mut(8) {
            chunk.copy_from_slice(&random.bits().to_le_bytes()[..chunk.len()]);
        }
        Values { sizes, pool }
    }

    /// Largest size.
    pub fn max(&self) -> usize {
        self.sizes.max
    }

    /// Bytes of the value of key `number`.
    pub fn size(&self, number: u64) -> usize {
        let span = (self.sizes.max - self.sizes.min) as u64 + 1;
        match span {
            1 => self.sizes.min,
            _ => self.sizes.min + ((u128::from(hash(number)) * u128::from(span)) >> 64) as usize,
        }
    }

    /// The value of key `number`.
    pub fn of(&self, number: u64) -> Value<'_> {
        let size = self.size(number);
        let mark_len = size.min(8);
        let bits = hash(!number);
        let at = bits as usize % POOL_SPREAD;
        Value { mark: bits.to_le_bytes(), mark_len, rest: &self.pool[at..at + size - mark_len] }
    }
}

impl Value<'_> {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.mark_len + self.rest.len()
    }

    /// Appends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.mark[..self.mark_len]);
        out.extend_from_slice(self.rest);
    }

    /// Whether `bytes` are it.
    pub fn is(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.len()
            && bytes[..self.mark_len] == self.mark[..self.mark_len]
            && bytes[self.mark_len..] == *self.rest
    }
}

/// A stream of draws: GET or SET, and of which key.
pub struct Draws {
    random: Random,
    keys: u64,
    zipf: Option<Zipf>,
    /// Ranks are spread over the key space by this step, which has no divisor in common with its size: popular keys should
    /// not lie side by side in a server that was filled in order.
    step: u64,
    /// Draws below this are GETs.
    reads_below: u64,
}

impl Draws {
    /// Draws of thread `thread` over `keys` keys, of which `reads` percent are GETs.
    pub fn new(seed: u64, thread: u64, keys: u64, distribution: Distribution, reads: f64) -> Draws {
        let zipf = match distribution {
            Distribution::Uniform => None,
            Distribution::Zipf(exponent) => Some(Zipf::new(keys, exponent)),
        };
        Draws {
            random: Random::new(seed, thread),
            keys,
            zipf,
            step: step_through(keys),
            reads_below: match reads >= 100.0 {
                true => u64::MAX,
                false => (reads / 100.0 * u64::MAX as f64) as u64,
            },
        }
    }

    /// The next one.
    pub fn next(&mut self) -> (Class, u64) {
        // The largest number is a GET at 100 percent as well: one draw in 2^64 is not worth a second comparison.
        let class = if self.random.bits() < self.reads_below { Class::Get } else { Class::Set };
        let number = match &self.zipf {
            None => self.random.below(self.keys),
            Some(zipf) => {
                let rank = zipf.rank(&mut self.random);
                (u128::from(rank) * u128::from(self.step) % u128::from(self.keys)) as u64
            }
        };
        (class, number)
    }
}

/// A step of about 0.618 of `keys` that visits every number below it.
fn step_through(keys: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let golden = (keys as f64 * 0.618_033_988_749_895) as u64;
    (golden.max(1)..).find(|&step| gcd(step, keys) == 1).unwrap_or(1)
}

/// Ranks `0..n` in proportion to `1 / (rank + 1)^s`, by rejection-inversion (Hörmann and Derflinger, ACM TOMACS 6, 1996):
/// any exponent, no table, about 1.1 tries per draw.
struct Zipf {
    exponent: f64,
    count: f64,
    /// Integral of the density up to 1.5, less the first rank's own weight: where the hat begins.
    low: f64,
    /// Integral up to the end of the last rank.
    high: f64,
    /// Below this distance from the middle of a rank every point is under the histogram.
    sure: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf { exponent, count: count as f64, low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.count + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Of the density from 1 to `x`.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let scaled = (1.0 - self.exponent) * log;
        // (x^(1-s) - 1) / (1 - s), which is ln x at s = 1.
        if scaled.abs() < 1e-8 { log * (1.0 + scaled / 2.0) } else { scaled.exp_m1() / (1.0 - self.exponent) }
    }

    fn inverse(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        let log = if scaled.abs() < 1e-8 {
            area * (1.0 - scaled / 2.0)
        } else {
            scaled.ln_1p() / (1.0 - self.exponent)
        };
        log.exp()
    }

    fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.high + random.unit() * (self.low - self.high);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.sure || area >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64 - 1;
            }
        }
    }
}

/// Due times of one thread in an open loop, nanoseconds from the start, ascending; fixed by seed and rate.
pub struct Schedule {
    random: Random,
    gap_ns: f64,
    arrivals: Arrivals,
    next_ns: f64,
}

impl Schedule {
    /// The share of thread `thread` of `threads` in `rate` requests per second. Together, evenly spaced shares are evenly
    /// spaced again, and Poisson shares are Poisson.
    pub fn new(arrivals: Arrivals, rate: f64, seed: u64, thread: usize, threads: usize) -> Schedule {
        let gap_ns = 1e9 / rate * threads as f64;
        let mut schedule = Schedule {
            // Apart from the draws of keys: another mode asks for the same keys.
            random: Random::new(seed ^ 0x6172_7269_7665, thread as u64),
            gap_ns,
            arrivals,
            next_ns: gap_ns * thread as f64 / threads as f64,
        };
        if arrivals == Arrivals::Poisson {
            schedule.next_ns = schedule.gap();
        }
        schedule
    }

    /// When the next request is due.
    pub fn due_ns(&self) -> u64 {
        self.next_ns as u64
    }

    /// Goes on to the one after.
    pub fn advance(&mut self) {
        self.next_ns += self.gap();
    }

    fn gap(&mut self) -> f64 {
        match self.arrivals {
            Arrivals::Uniform => self.gap_ns,
            Arrivals::Poisson => -self.random.unit().ln() * self.gap_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn draws(seed: u64, thread: u64, distribution: Distribution) -> Vec<(Class, u64)> {
        let mut draws = Draws::new(seed, thread, 1000, distribution, 50.0);
        (0..1000).map(|_| draws.next()).collect()
    }

    #[test]
    fn the_seed_decides() {
        for distribution in [Distribution::Uniform, Distribution::Zipf(0.99)] {
            let first = draws(7, 0, distribution);
            assert_eq!(first, draws(7, 0, distribution));
            assert_ne!(first, draws(8, 0, distribution));
            assert_ne!(first, draws(7, 1, distribution));
        }
    }

    #[test]
    fn reads_are_a_share() {
        for (reads, low, high) in [(0.0, 0, 0), (25.0, 23_000, 27_000), (100.0, 100_000, 100_000)] {
            let mut draws = Draws::new(1, 0, 10, Distribution::Uniform, reads);
            let gets = (0..100_000).filter(|_| draws.next().0 == Class::Get).count();
            assert!((low..=high).contains(&gets), "{reads}: {gets}");
        }
    }

    #[test]
    fn uniform_draws_are_spread_evenly() {
        let mut draws = Draws::new(3, 0, 16, Distribution::Uniform, 50.0);
        let mut counts = [0; 16];
        for _ in 0..160_000 {
            counts[draws.next().1 as usize] += 1;
        }
        // Ten thousand expected, standard deviation below a hundred.
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[track_caller]
    fn check_zipf(count: u64, exponent: f64) {
        let zipf = Zipf::new(count, exponent);
        let mut random = Random::new(5, 5);
        let draws = 400_000;
        let mut seen = vec![0u32; count as usize];
        for _ in 0..draws {
            seen[zipf.rank(&mut random) as usize] += 1;
        }
        let weight = |rank: usize| 1.0 / ((rank + 1) as f64).powf(exponent);
        let total: f64 = (0..count as usize).map(weight).sum();
        // The first ranks one by one, the rest by powers of two: each within five standard deviations.
        let mut from = 0;
        while from < count as usize {
            let to = if from < 8 { from + 1 } else { (from * 2).min(count as usize) };
            let expected = (from..to).map(weight).sum::<f64>() / total * f64::from(draws);
            let found: f64 = seen[from..to].iter().map(|&count| f64::from(count)).sum();
            assert!(
                (found - expected).abs() < 5.0 * expected.sqrt() + 1.0,
                "n {count}, s {exponent}, ranks {from}..{to}: {found} instead of {expected}"
            );
            from = to;
        }
    }

    #[test]
    fn zipf_has_its_shape() {
        for exponent in [0.5, 0.99, 1.0, 1.3, 3.0] {
            for count in [1, 2, 10, 1000, 20_000] {
                check_zipf(count, exponent);
            }
        }
    }

    #[test]
    fn steps_visit_every_key() {
        for keys in [1, 2, 3, 4, 10, 97, 360, 1000] {
            let step = step_through(keys);
            let visited: HashSet<u64> = (0..keys).map(|rank| rank * step % keys).collect();
            assert_eq!(visited.len() as u64, keys, "{keys} by {step}");
        }
    }

    #[test]
    fn keys_are_numbers() {
        let mut keys = Keys::new(20);
        assert_eq!(keys.text(0xabc), b"00000000000000000abc");
        assert_eq!(keys.text(u64::MAX), b"0000ffffffffffffffff");
        assert_eq!(keys.text(0), b"00000000000000000000");
        assert_eq!(Keys::new(2).text(0xff), b"ff");
    }

    #[test]
    fn values_are_their_keys_own() {
        for sizes in [(0, 0), (1, 1), (5, 5), (64, 64), (0, 100)].map(|(min, max)| Sizes { min, max }) {
            let values = Values::new(sizes);
            let again = Values::new(sizes);
            let mut lengths = HashSet::new();
            for number in 0..200 {
                let mut bytes = Vec::new();
                values.of(number).put(&mut bytes);
                assert_eq!(
                    (bytes.len(), values.of(number).len()),
                    (values.size(number), values.size(number))
                );
                assert!((sizes.min..=sizes.max).contains(&bytes.len()));
                assert!(again.of(number).is(&bytes));
                lengths.insert(bytes.len());
                for at in 0..bytes.len() {
                    bytes[at] ^= 1;
                    assert!(!values.of(number).is(&bytes), "{sizes:?}, byte {at}");
                    bytes[at] ^= 1;
                }
                bytes.push(0);
                assert!(!values.of(number).is(&bytes));
            }
            assert!(if sizes.min < sizes.max { lengths.len() > 50 } else { lengths.len() == 1 });
        }
        let values = Values::new(Sizes { min: 8, max: 8 });
        let distinct: HashSet<[u8; 8]> = (0..10_000).map(|number| values.of(number).mark).collect();
        assert_eq!(distinct.len(), 10_000);
    }

    fn times(arrivals: Arrivals, seed: u64, thread: usize, threads: usize) -> Vec<u64> {
        let mut schedule = Schedule::new(arrivals, 1000.0, seed, thread, threads);
        (0..20_000).map(|_| (schedule.due_ns(), schedule.advance()).0).collect()
    }

    #[test]
    fn due_times_are_fixed_in_advance() {
        assert_eq!(times(Arrivals::Uniform, 1, 0, 1)[..3], [0, 1_000_000, 2_000_000]);
        // Two threads share: each has every other one.
        assert_eq!(times(Arrivals::Uniform, 1, 1, 2)[..2], [1_000_000, 3_000_000]);
        let poisson = times(Arrivals::Poisson, 1, 0, 1);
        assert_eq!(poisson, times(Arrivals::Poisson, 1, 0, 1));
        assert_ne!(poisson, times(Arrivals::Poisson, 2, 0, 1));
        assert!(poisson.is_sorted());
        // The mean gap is a millisecond, and one gap in e is longer than that.
        let mean = *poisson.last().unwrap() as f64 / poisson.len() as f64;
        assert!((970_000.0..1_030_000.0).contains(&mean), "{mean}");
        let long = poisson.windows(2).filter(|pair| pair[1] - pair[0] > 1_000_000).count();
        assert!((7_000..7_700).contains(&long), "{long}");
    }
}
