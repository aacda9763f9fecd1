//! Codes of token vectors: against a plain computation, how far they are off, and in rows.
use super::token_codes::{Rotation, TokenCode, TokenCodes};
use super::{PayloadRow, RowBuilder, Value, bytes_without_tokens, without_tokens};
use crate::random::SplitMix64;

const CODES: [TokenCode; 3] = [TokenCode::Bits8, TokenCode::Bits4, TokenCode::Bits2];

fn unit(random: &mut SplitMix64, dim: usize) -> Vec<f32> {
    let vector: Vec<f64> = (0..dim).map(|_| random.unit() * 2.0 - 1.0).collect();
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    vector.into_iter().map(|x| (x / length) as f32).collect()
}

fn product(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn coded(code: TokenCode, tokens: &[Vec<f32>], rotation: &Rotation) -> TokenCodes {
    let mut codes = TokenCodes::new(code, tokens[0].len());
    tokens.iter().for_each(|token| codes.push(token, rotation));
    codes
}

#[test]
fn rotations_keep_products_and_can_be_reverted() {
    let mut random = SplitMix64(1);
    for dim in (1..40).chain([96, 100, 128, 1000]) {
        let rotation = Rotation::of(dim);
        let (a, b) = (unit(&mut random, dim), unit(&mut random, dim));
        let (mut rotated_a, mut rotated_b) = (a.clone(), b.clone());
        rotation.apply(&mut rotated_a);
        rotation.apply(&mut rotated_b);
        assert!((product(&a, &b) - product(&rotated_a, &rotated_b)).abs() < 1e-5, "{dim}");
        rotation.revert(&mut rotated_a);
        assert!(a.iter().zip(&rotated_a).all(|(a, b)| (a - b).abs() < 1e-6), "{dim}");
    }
}

/// A vector with a single component, as far from a normal distribution as possible, is spread over all of them.
#[test]
fn rotations_mix_all_components() {
    for dim in [16, 96, 100, 127, 128, 250, 768, 1000] {
        let rotation = Rotation::of(dim);
        for at in [0, 1, dim / 2, dim - 1] {
            let mut vector = vec![0.0; dim];
            vector[at] = 1.0;
            rotation.apply(&mut vector);
            let largest = vector.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
            assert!(largest < 4.5 / (dim as f32).sqrt(), "{dim}, component {at}: {largest}");
        }
    }
}

/// The values of a code are the nearest of its levels, found by looking at each, times a factor that makes the product with the token exact.
#[test]
fn codes_are_the_nearest_levels() {
    let mut random = SplitMix64(2);
    for dim in [1, 2, 3, 5, 24, 96, 128] {
        let rotation = Rotation::of(dim);
        for code in CODES {
            for _ in 0..20 {
                let token = unit(&mut random, dim);
                let mut rotated = token.clone();
                rotation.apply(&mut rotated);
                let largest = rotated.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
                let levels: Vec<f64> = match code {
                    TokenCode::Bits4 => {
                        let upper = [0.1284, 0.3881, 0.6568, 0.9424, 1.2562, 1.6181, 2.0691, 2.7326];
                        upper.iter().flat_map(|x| [-x, *x]).collect()
                    }
                    TokenCode::Bits2 => vec![-1.5104, -0.4528, 0.4528, 1.5104],
                    _ => (-127..=127).map(|step| f64::from(step) / 127.0 * f64::from(largest)).collect(),
                };
                let scale = if code == TokenCode::Bits8 { 1.0 } else { (dim as f64).sqrt() };
                let nearest = |x: &f32| {
                    let x = f64::from(*x) * scale;
                    let by_distance = |a: &&f64, b: &&f64| (*a - x).abs().total_cmp(&(*b - x).abs());
                    *levels.iter().min_by(by_distance).expect("levels") as f32
                };
                let values: Vec<f32> = rotated.iter().map(nearest).collect();
                let factor = (product(&rotated, &rotated) / product(&rotated, &values)) as f32;
                let mut expected: Vec<f32> = values.iter().map(|value| value * factor).collect();
                rotation.revert(&mut expected);
                let codes = coded(code, std::slice::from_ref(&token), &rotation);
                let decoded = codes.decoded(0, &rotation);
                assert_eq!(decoded.len(), dim);
                for (a, b) in decoded.iter().zip(&expected) {
                    assert!((a - b).abs() < 1e-4, "{code:?} {dim}: {decoded:?} {expected:?}");
                }
                assert!((product(&decoded, &token) - 1.0).abs() < 1e-4, "{code:?} {dim}");
            }
        }
    }
}

/// The squared error is that of the best quantizer of a normal distribution, and products with other vectors are right on average.
#[test]
fn codes_are_off_as_little_as_they_can_be() {
    let (dim, mut random) = (128, SplitMix64(3));
    let rotation = Rotation::of(dim);
    for (code, most) in [(TokenCode::Bits8, 0.000_2), (TokenCode::Bits4, 0.011), (TokenCode::Bits2, 0.15)] {
        let (mut squares, mut bias) = (0.0, 0.0);
        for _ in 0..400 {
            let (token, other) = (unit(&mut random, dim), unit(&mut random, dim));
            let near: Vec<f32> = token.iter().zip(&other).map(|(a, b)| a + 0.5 * b).collect();
            let decoded = coded(code, std::slice::from_ref(&token), &rotation).decoded(0, &rotation);
            squares += decoded.iter().zip(&token).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
            bias += product(&decoded, &near) - product(&token, &near);
        }
        assert!(squares / 400.0 < most, "{code:?}: {}", squares / 400.0);
        assert!((bias / 400.0).abs() < 0.006, "{code:?}: {}", bias / 400.0);
    }
}

#[test]
fn tokens_of_zeros_stay_zero() {
    let rotation = Rotation::of(6);
    for code in CODES {
        let codes = coded(code, &[vec![0.0; 6], unit(&mut SplitMix64(4), 6)], &rotation);
        assert_eq!(codes.decoded(0, &rotation), vec![0.0; 6]);
        assert!((product(&codes.decoded(1, &rotation), &codes.decoded(1, &rotation)) - 1.0).abs() < 0.5);
    }
}

/// Rows of other builds and machines hold the same codes.
#[test]
fn codes_are_the_same_everywhere() {
    let token =
        |dim: usize| -> Vec<f32> { [0.5, -0.5, 0.25, 0.625, 0.125, -0.0625, 0.0, 0.375][..dim].to_vec() };
    let stored: Vec<(Vec<u8>, u32)> = [6, 8]
        .into_iter()
        .flat_map(|dim| CODES.map(|code| coded(code, &[token(dim)], &Rotation::of(dim))))
        .map(|codes| (codes.packed, codes.factors[0].to_bits()))
        .collect();
    let expected: [(&[u8], u32); 6] = [
        (&[127, 195, 230, 17, 224, 107], 1_001_464_016),
        (&[77, 134, 198], 1_054_494_128),
        (&[151, 13], 1_054_730_667),
        (&[209, 12, 67, 37, 249, 52, 224, 127], 1_003_368_789),
        (&[132, 172, 183, 229], 1_052_350_665),
        (&[185, 217], 1_055_892_887),
    ];
    assert!(stored.iter().map(|(packed, factor)| (&packed[..], *factor)).eq(expected), "{stored:?}");
}

fn row(code: TokenCode, dim: usize, count: usize) -> (Vec<u8>, TokenCodes) {
    let (rotation, mut random) = (Rotation::of(dim), SplitMix64(5));
    let tokens: Vec<Vec<f32>> = (0..count).map(|_| unit(&mut random, dim)).collect();
    let codes = coded(code, &tokens, &rotation);
    let mut row = RowBuilder::new();
    row.set("a", Value::Int(7), 0);
    row.set_token_codes((3..3 + count as u32).collect(), codes.clone());
    (row.finish(), codes)
}

#[test]
fn rows_hold_codes() {
    for (dim, count) in [(1, 1), (3, 2), (5, 7), (96, 15), (128, 100)] {
        for code in CODES {
            let (bytes, codes) = row(code, dim, count);
            let tokens = PayloadRow::verify(&bytes).expect("a row").tokens();
            assert_eq!((tokens.len(), tokens.dim(), tokens.code()), (count, dim, code));
            assert!(tokens.numbers().eq(3..3 + count as u32));
            let rotation = Rotation::of(dim);
            let decoded: Vec<f32> = (0..count).flat_map(|at| codes.decoded(at, &rotation)).collect();
            assert_eq!(tokens.decoded(), decoded);
            assert_eq!(tokens.codes(), Some(codes));
            // Pieces are those of the whole.
            let (mut whole, mut part) = (Vec::new(), Vec::new());
            let all = tokens.compared(0, count, &mut whole).to_vec();
            assert_eq!(tokens.compared(count / 2, count, &mut part), &all[count / 2 * dim..]);
            // An edit keeps them as they are.
            assert_eq!(RowBuilder::from(PayloadRow::trusted(&bytes)).finish(), bytes);
            let narrow = without_tokens(&bytes);
            assert!(PayloadRow::verify(&narrow).expect("a row").tokens().is_empty());
            assert!((narrow.len()..bytes.len()).contains(&bytes_without_tokens(&bytes)));
            assert!(bytes.len() < count * (8 + (dim * code.bits()).div_ceil(8)) + 200, "{}", bytes.len());
        }
    }
}

/// Whatever a row says of its codes, it is refused or can be read.
#[test]
fn damaged_codes_are_refused() {
    let (bytes, _) = row(TokenCode::Bits4, 5, 3);
    let mut refused = 0;
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            match PayloadRow::verify(&damaged) {
                Err(_) => refused += 1,
                Ok(row) => {
                    let tokens = row.tokens();
                    assert_eq!(tokens.decoded().len(), tokens.len() * tokens.dim());
                }
            }
        }
        // Only the padding behind the last text may be missing.
        assert!(PayloadRow::verify(&bytes[..at]).is_err() || at == 0 || at + 4 > bytes.len(), "{at}");
    }
    assert!(refused > bytes.len(), "{refused}");
}
