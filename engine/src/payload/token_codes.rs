//! Token vectors of a document as codes of few bits per component.
//!
//! A token is rotated by random signs and Walsh-Hadamard transforms (Ailon and Chazelle, "The fast Johnson-Lindenstrauss transform", 2009). After
//! that its components are distributed almost normally, whatever model it comes from, so that they can be quantized without training: with 8 bits
//! by equal steps up to the largest component, with fewer bits by the values that represent a normal distribution with the least squared error
//! (Max, "Quantizing for minimum distortion", 1960). A rotation keeps inner products, so a search rotates the tokens of the query once instead of
//! rotating each token of a document back.
//!
//! Each token has a factor that its values are multiplied by. It is chosen so that the product of a decoded token with the token itself is exact, which
//! makes the products with other vectors unbiased (RaBitQ, arXiv:2405.12497).
//!
//! Rotations and values are the same for all collections, and are computed without instructions whose rounding differs between machines.

use crate::random::{SplitMix64, hash};
use std::sync::LazyLock;

/// How a component of a stored token vector is represented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenCode {
    /// By a float of 32 bits.
    #[default]
    Float,
    /// By 8 bits.
    Bits8,
    /// By 4 bits.
    Bits4,
    /// By 2 bits.
    Bits2,
}

impl TokenCode {
    /// The bits of a component.
    pub fn bits(self) -> usize {
        match self {
            TokenCode::Float => 32,
            TokenCode::Bits8 => 8,
            TokenCode::Bits4 => 4,
            TokenCode::Bits2 => 2,
        }
    }

    /// The code with so many bits per component, as a row stores it.
    pub(super) fn of_bits(bits: u8) -> Option<TokenCode> {
        [TokenCode::Bits8, TokenCode::Bits4, TokenCode::Bits2]
            .into_iter()
            .find(|code| code.bits() == usize::from(bits))
    }

    /// The bytes of a token of `dim` components in a row, without the number of its point.
    pub fn bytes(self, dim: usize) -> usize {
        match self {
            TokenCode::Float => size_of::<f32>() * dim,
            code => size_of::<f32>() + code.packed(dim),
        }
    }

    /// The bytes of the packed values of a token.
    pub(super) fn packed(self, dim: usize) -> usize {
        (dim * self.bits()).div_ceil(8)
    }
}

/// The values of codes of 4 bits: those that represent a standard normal distribution with the least squared error. They are symmetric; this is
/// the upper half.
const LEVELS_4: [f32; 8] = [0.128_4, 0.388_1, 0.656_8, 0.942_4, 1.256_2, 1.618_1, 2.069_1, 2.732_6];
/// The upper half of the values of codes of 2 bits.
const LEVELS_2: [f32; 2] = [0.452_8, 1.510_4];
/// The largest value of a code of 8 bits.
const STEPS: f32 = 127.0;

/// All values of the codes of a component, ascending.
fn levels<const N: usize>(upper: &[f32]) -> [f32; N] {
    std::array::from_fn(|at| match at.checked_sub(N / 2) {
        Some(at) => upper[at],
        None => -upper[N / 2 - 1 - at],
    })
}

/// The values of the components that a byte holds, the lowest bits first.
static PAIRS: LazyLock<Box<[[f32; 2]; 256]>> = LazyLock::new(|| {
    let levels = levels::<16>(&LEVELS_4);
    Box::new(std::array::from_fn(|byte| [levels[byte & 15], levels[byte >> 4]]))
});
static QUADS: LazyLock<Box<[[f32; 4]; 256]>> = LazyLock::new(|| {
    let levels = levels::<4>(&LEVELS_2);
    Box::new(std::array::from_fn(|byte| std::array::from_fn(|at| levels[byte >> (2 * at) & 3])))
});

/// A token has at most this many components, as vectors of collections have.
pub(super) const DIM_MAX: usize = 1 << 16;
/// Distinguishes the random numbers of rotations from others.
const SALT: u64 = 0x746f_6b65_6e73;

/// The number of times that a rotation mixes all components.
const ROUNDS: usize = 2;

/// The rotation of token vectors of `dim` components, a function of `dim` alone.
///
/// In each round the components are mixed: all of them at once if `dim` is a power of two. Otherwise the first and then the last `2^n` of them are
/// mixed, where `2^n` is the largest power of two below `dim`, and the components are shuffled, so that the next round mixes what this one has not.
/// Before each mixing the signs of random components are flipped.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// For each mixing a sign for each component, as its sign bit.
    signs: Vec<u32>,
    dim: usize,
}

impl Rotation {
    /// Takes time and memory in proportion to `dim`.
    ///
    /// # Panics
    /// If `dim` is 0.
    pub fn of(dim: usize) -> Rotation {
        assert!(dim > 0, "vectors have components");
        let mut random = SplitMix64(hash(SALT ^ dim as u64));
        let signs = (0..mixings(dim) * dim).map(|_| (random.next() as u32) & 1 << 31).collect();
        Rotation { signs, dim }
    }

    /// About how many additions and multiplications one rotation of a vector of `dim` components takes.
    pub fn work(dim: usize) -> usize {
        mixings(dim) * dim * (dim.max(1).ilog2() as usize + 2)
    }

    /// Where the components begin that are mixed together, for each mixing of a round.
    fn starts(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let last = self.dim - self.mixed();
        std::iter::once(0).chain((last > 0).then_some(last))
    }

    /// The largest power of two that is at most `dim`: so many components are mixed together.
    fn mixed(&self) -> usize {
        1 << self.dim.ilog2()
    }

    /// Rotates a vector.
    ///
    /// # Panics
    /// If it has another number of components.
    pub fn apply(&self, vector: &mut [f32]) {
        assert_eq!(vector.len(), self.dim, "components");
        let (mixed, mut shuffled) = (self.mixed(), Vec::new());
        let mut signs = self.signs.chunks_exact(self.dim);
        for _ in 0..ROUNDS {
            for start in self.starts() {
                flip(vector, signs.next().expect("signs of each mixing"));
                mix(&mut vector[start..start + mixed]);
            }
            if mixed < self.dim {
                shuffled.clear();
                shuffled.extend(vector.iter().step_by(2).chain(vector.iter().skip(1).step_by(2)));
                vector.copy_from_slice(&shuffled);
            }
        }
    }

    /// Rotates a vector back.
    ///
    /// # Panics
    /// If it has another number of components.
    pub fn revert(&self, vector: &mut [f32]) {
        assert_eq!(vector.len(), self.dim, "components");
        let (mixed, mut shuffled) = (self.mixed(), Vec::new());
        let mut signs = self.signs.chunks_exact(self.dim).rev();
        for _ in 0..ROUNDS {
            if mixed < self.dim {
                shuffled.clear();
                shuffled.extend_from_slice(vector);
                let (even, odd) = shuffled.split_at(self.dim.div_ceil(2));
                vector.iter_mut().step_by(2).zip(even).for_each(|(x, from)| *x = *from);
                vector.iter_mut().skip(1).step_by(2).zip(odd).for_each(|(x, from)| *x = *from);
            }
            for start in self.starts().rev() {
                mix(&mut vector[start..start + mixed]);
                flip(vector, signs.next().expect("signs of each mixing"));
            }
        }
    }
}

/// How often components of a vector of `dim` are mixed.
fn mixings(dim: usize) -> usize {
    if dim.is_power_of_two() { ROUNDS } else { 2 * ROUNDS }
}

fn flip(vector: &mut [f32], signs: &[u32]) {
    vector.iter_mut().zip(signs).for_each(|(x, sign)| *x = f32::from_bits(x.to_bits() ^ sign));
}

/// The Walsh-Hadamard transform of a power of two of components, scaled so that it keeps lengths. It is its own inverse.
fn mix(vector: &mut [f32]) {
    let mut half = 1;
    while half < vector.len() {
        for pair in vector.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    let scale = 1.0 / (vector.len() as f32).sqrt();
    vector.iter_mut().for_each(|x| *x *= scale);
}

/// The token vectors of a document, as codes.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenCodes {
    pub(super) code: TokenCode,
    pub(super) dim: usize,
    /// The factor of each token.
    pub(super) factors: Vec<f32>,
    /// The packed values of all tokens; those of each begin at a byte.
    pub(super) packed: Vec<u8>,
}

impl TokenCodes {
    /// No tokens yet.
    ///
    /// # Panics
    /// If the code is [`TokenCode::Float`].
    pub fn new(code: TokenCode, dim: usize) -> TokenCodes {
        assert_ne!(code, TokenCode::Float, "floats are no codes");
        TokenCodes { code, dim, factors: Vec::new(), packed: Vec::new() }
    }

    /// Adds a token. Its `rotation` is the one for its number of components.
    ///
    /// # Panics
    /// If the token has another number of components.
    pub fn push(&mut self, token: &[f32], rotation: &Rotation) {
        let mut rotated = token.to_vec();
        rotation.apply(&mut rotated);
        let largest = rotated.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        let to_normal = (self.dim as f32).sqrt();
        let from = self.packed.len();
        match self.code {
            TokenCode::Bits8 if largest > 0.0 => {
                let steps = |x: &f32| (x / largest * STEPS).round() as i8 as u8;
                self.packed.extend(rotated.iter().map(steps));
            }
            TokenCode::Float | TokenCode::Bits8 => self.packed.resize(from + self.dim, 0),
            TokenCode::Bits4 => {
                let nearest = |x: &f32| nearest(&LEVELS_4, x * to_normal);
                self.packed.extend(rotated.chunks(2).map(|pair| pack(pair.iter().map(nearest), 4)));
            }
            TokenCode::Bits2 => {
                let nearest = |x: &f32| nearest(&LEVELS_2, x * to_normal);
                self.packed.extend(rotated.chunks(4).map(|quad| pack(quad.iter().map(nearest), 2)));
            }
        }
        let mut values = Vec::with_capacity(self.dim);
        unpack(self.code, &self.packed[from..], self.dim, 1.0, &mut values);
        let (mut length, mut product) = (0.0_f64, 0.0_f64);
        for (x, value) in rotated.iter().zip(&values) {
            let x = f64::from(*x);
            length += x * x;
            product += x * f64::from(f32::from_le_bytes(*value));
        }
        // A token of zeros stays one.
        self.factors.push(if product > 0.0 { (length / product) as f32 } else { 0.0 });
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.factors.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.factors.is_empty()
    }

    /// The components of a token as a reader decodes them.
    ///
    /// # Panics
    /// If there are not so many tokens.
    pub fn decoded(&self, at: usize, rotation: &Rotation) -> Vec<f32> {
        let len = self.code.packed(self.dim);
        decode(self.code, &self.packed[at * len..][..len], self.factors[at], rotation)
    }
}

/// The number of the level, of all levels of which `upper` is the upper half, that is nearest to a number.
fn nearest(upper: &[f32], x: f32) -> u8 {
    let half = upper.len();
    let above = upper.windows(2).filter(|pair| x.abs() > (pair[0] + pair[1]) / 2.0).count();
    (if x >= 0.0 { half + above } else { half - 1 - above }) as u8
}

fn pack(values: impl Iterator<Item = u8>, bits: usize) -> u8 {
    values.enumerate().fold(0, |byte, (at, value)| byte | value << (at * bits))
}

/// Appends the values of a token, times a factor, as little-endian floats. The token is a rotated one.
pub(super) fn unpack(code: TokenCode, packed: &[u8], dim: usize, factor: f32, out: &mut Vec<[u8; 4]>) {
    let from = out.len();
    match code {
        TokenCode::Float | TokenCode::Bits8 => {
            out.extend(packed.iter().map(|byte| (f32::from(*byte as i8) * factor).to_le_bytes()));
        }
        TokenCode::Bits4 => unpack_with(&PAIRS, packed, factor, out),
        TokenCode::Bits2 => unpack_with(&QUADS, packed, factor, out),
    }
    // The last byte may hold fewer components.
    out.truncate(from + dim);
}

/// Appends what a table has for each byte, times a factor.
fn unpack_with<const N: usize>(table: &[[f32; N]; 256], packed: &[u8], factor: f32, out: &mut Vec<[u8; 4]>) {
    let from = out.len();
    out.resize(from + N * packed.len(), [0; 4]);
    let (values, _) = out[from..].as_chunks_mut::<N>();
    for (values, byte) in values.iter_mut().zip(packed) {
        *values = table[usize::from(*byte)].map(|x| (x * factor).to_le_bytes());
    }
}

/// The components of a token, rotated back.
pub(super) fn decode(code: TokenCode, packed: &[u8], factor: f32, rotation: &Rotation) -> Vec<f32> {
    let mut values = Vec::with_capacity(rotation.dim);
    unpack(code, packed, rotation.dim, factor, &mut values);
    let mut vector: Vec<f32> = values.into_iter().map(f32::from_le_bytes).collect();
    rotation.revert(&mut vector);
    vector
}
