//! Tests encodings against a plain computation, and checks that their products rank documents roughly as MaxSim does.
use super::encoder::{Encoder, Side};
use crate::collection::{DenseConfig, EncodingConfig, FirstStage, MultiVectorConfig};
use crate::distance::Metric;
use crate::random::SplitMix64;

fn encoder(config: EncodingConfig, dim: usize, seed: i64) -> Encoder {
    let tokens = DenseConfig {
        seed,
        first_stage: FirstStage::Encodings(config),
        ..DenseConfig::new(dim, Metric::Cosine)
    };
    let config = MultiVectorConfig::new(tokens);
    assert_eq!(config.validate(), Ok(()));
    let encoder = Encoder::of(&config).expect("documents are found by encodings");
    assert_eq!(encoder.components(), config.index().dim);
    encoder
}

fn units(random: &mut SplitMix64, dim: usize, count: usize) -> Vec<Vec<f32>> {
    let unit = |_| {
        let vector: Vec<f64> = (0..dim).map(|_| random.unit() * 2.0 - 1.0).collect();
        let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        vector.into_iter().map(|x| (x / length) as f32).collect()
    };
    (0..count).map(unit).collect()
}

fn encoded(encoder: &Encoder, side: Side, tokens: &[Vec<f32>]) -> Vec<f32> {
    let tokens = tokens.concat();
    let mut encoding = encoder.begin(side, &tokens);
    while encoding.advance() > 0 {}
    encoding.finish()
}

fn product(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// The bucket of a token in each repetition, and the projection of the token there, as they stand in the encoding of this token alone.
fn placed(encoder: &Encoder, config: EncodingConfig, token: &[f32]) -> Vec<(usize, Vec<f32>)> {
    let alone = encoded(encoder, Side::Query, &[token.to_vec()]);
    let of_repetition = alone.chunks_exact(config.dim << config.bits);
    let places = of_repetition.map(|buckets| {
        let mut filled = buckets
            .chunks_exact(config.dim)
            .enumerate()
            .filter(|(_, bucket)| bucket.iter().any(|x| *x != 0.0));
        let (number, bucket) = filled.next().expect("a token is in a bucket");
        assert_eq!(filled.next(), None, "a token is in one bucket");
        (number, bucket.to_vec())
    });
    places.collect()
}

/// A bucket of several tokens is the sum of the projections of its tokens in a query, and their mean in a document. The largest document is encoded
/// in many pieces, which must not change the result.
#[test]
fn buckets_are_sums_and_means() {
    let mut random = SplitMix64(1);
    for (config, dim, count) in [
        (EncodingConfig { repetitions: 1, bits: 1, dim: 1 }, 1, 3),
        (EncodingConfig { repetitions: 3, bits: 2, dim: 4 }, 7, 1),
        (EncodingConfig { repetitions: 5, bits: 3, dim: 7 }, 7, 20),
        (EncodingConfig { repetitions: 20, bits: 5, dim: 8 }, 33, 300),
    ] {
        let encoder = encoder(config, dim, -5);
        let tokens = units(&mut random, dim, count);
        let repetition = config.dim << config.bits;
        let mut sums = vec![0.0_f64; encoder.components()];
        let mut counts = vec![0; config.repetitions << config.bits];
        for token in &tokens {
            for (at, (number, bucket)) in placed(&encoder, config, token).into_iter().enumerate() {
                counts[(at << config.bits) + number] += 1;
                let sums = &mut sums[at * repetition + number * config.dim..][..config.dim];
                sums.iter_mut().zip(bucket).for_each(|(sum, x)| *sum += f64::from(x));
            }
        }
        let check = |side, divided: bool| {
            for (at, (found, sum)) in encoded(&encoder, side, &tokens).into_iter().zip(&sums).enumerate() {
                let expected = if divided { sum / f64::from(counts[at / config.dim].max(1)) } else { *sum };
                assert!((f64::from(found) - expected).abs() < 1e-4, "{config:?} {at}: {found} {expected}");
            }
        };
        check(Side::Query, false);
        check(Side::Document, true);
    }
}

/// The bits of a bucket are the signs of the products with the hyperplanes, so a vector and its negative share no bit. A projection keeps lengths on
/// average, and exactly if it has as many components as a token.
#[test]
fn tokens_are_divided_by_hyperplanes_and_projected() {
    let mut random = SplitMix64(2);
    for bucket in [4, 16] {
        let config = EncodingConfig { repetitions: 60, bits: 4, dim: bucket };
        let encoder = encoder(config, 16, 9);
        for token in units(&mut random, 16, 20) {
            let other: Vec<f32> = token.iter().map(|x| -x).collect();
            let (here, there) = (placed(&encoder, config, &token), placed(&encoder, config, &other));
            assert!(here.iter().zip(&there).all(|(a, b)| a.0 ^ b.0 == 15), "the bits of opposites differ");
            let lengths: Vec<f64> = here.iter().map(|(_, projected)| product(projected, projected)).collect();
            let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
            assert!((mean - 1.0).abs() < 0.3, "{mean}");
            if bucket == 16 {
                assert!(lengths.iter().all(|length| (length - 1.0).abs() < 1e-5), "{lengths:?}");
            }
        }
        let mut seen: Vec<usize> =
            units(&mut random, 16, 400).iter().map(|token| placed(&encoder, config, token)[0].0).collect();
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() > 12, "tokens lie in most of the 16 buckets: {seen:?}");
    }
}

/// Clients pad documents and queries with tokens of zeros.
#[test]
fn tokens_of_zeros_change_nothing() {
    let encoder = encoder(EncodingConfig { repetitions: 5, bits: 2, dim: 3 }, 12, 1);
    let tokens = units(&mut SplitMix64(6), 12, 9);
    let mut padded = tokens.clone();
    padded.insert(4, vec![0.0; 12]);
    padded.extend([vec![0.0; 12], vec![-0.0; 12]]);
    for side in [Side::Document, Side::Query] {
        assert_eq!(encoded(&encoder, side, &padded), encoded(&encoder, side, &tokens));
    }
}

#[test]
fn encodings_follow_from_the_seed() {
    let config = EncodingConfig { repetitions: 4, bits: 3, dim: 3 };
    let tokens = units(&mut SplitMix64(3), 12, 9);
    let of = |seed| encoded(&encoder(config, 12, seed), Side::Document, &tokens);
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
    let bits: Vec<u32> = of(7)[..6].iter().map(|x| x.to_bits()).collect();
    assert_eq!(
        bits,
        [3173478432, 3198465019, 3206053492, 0, 0, 0],
        "an index that was written by another build holds the same encodings"
    );
}

/// The encodings find the document whose tokens are nearly those of the query, and rank all documents roughly as MaxSim does.
#[test]
fn products_rank_documents_as_max_sim_does() {
    const DOCUMENTS: usize = 400;
    let (dim, mut random) = (24, SplitMix64(4));
    let encoder = encoder(EncodingConfig { repetitions: 40, bits: 3, dim: 12 }, dim, 0);
    // The tokens of a document lie around few topics, as those of texts do.
    let topics = units(&mut random, dim, 40);
    let mut token = |topic: usize, spread: f32| -> Vec<f32> {
        let noise = units(&mut random, dim, 1).remove(0);
        let vector: Vec<f32> = topics[topic].iter().zip(noise).map(|(a, b)| a + spread * b).collect();
        let length = product(&vector, &vector).sqrt() as f32;
        vector.into_iter().map(|x| x / length).collect()
    };
    let mut choose = SplitMix64(5);
    let documents: Vec<Vec<Vec<f32>>> = (0..DOCUMENTS)
        .map(|_| (0..4 + choose.below(12)).map(|_| token(choose.below(40), 0.5)).collect())
        .collect();
    let encodings: Vec<Vec<f32>> =
        documents.iter().map(|tokens| encoded(&encoder, Side::Document, tokens)).collect();
    let (mut found, mut correlations) = (0, 0.0);
    for source in 0..40 {
        let query: Vec<Vec<f32>> = documents[source * 10][..4].to_vec();
        let best = |token: &Vec<f32>, document: &Vec<Vec<f32>>| {
            document.iter().map(|other| product(token, other)).fold(f64::NEG_INFINITY, f64::max)
        };
        let score = |document: &Vec<Vec<f32>>| query.iter().map(|token| best(token, document)).sum::<f64>();
        let exact: Vec<f64> = documents.iter().map(score).collect();
        let encoded_query = encoded(&encoder, Side::Query, &query);
        let approximate: Vec<f64> =
            encodings.iter().map(|encoding| product(&encoded_query, encoding)).collect();
        let above = approximate.iter().filter(|other| **other > approximate[source * 10]).count();
        found += usize::from(above < 10);
        correlations += correlation(&ranks(&exact), &ranks(&approximate));
    }
    let mean = correlations / 40.0;
    assert!(found >= 38, "{found} of 40 documents are among the first ten");
    assert!(mean > 0.6, "the mean correlation of ranks is {mean}");
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    order.into_iter().enumerate().for_each(|(rank, at)| ranks[at] = rank as f64);
    ranks
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = (a.len() - 1) as f64 / 2.0;
    let (mut both, mut of_a, mut of_b) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        both += (a - mean) * (b - mean);
        of_a += (a - mean) * (a - mean);
        of_b += (b - mean) * (b - mean);
    }
    both / (of_a * of_b).sqrt()
}
