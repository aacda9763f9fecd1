//! Creating collections: the arguments of `vector_create_collection` and `vector_mv_create_collection`, which the latter's configuration is told in
//! as well.
//!
//! A fixed part, then blocks that may be missing from the end. A reader takes them in order, each when bytes for it are left. Words are
//! codes of one byte, switches are bytes, numbers are `u32` and floats `f32`; what is wider is named below. A block that is
//! begun and not finished is an error: no sender leaves one.

use crate::op::{ApiError, CreateCollection};
use crate::tcp::reader::ArgsReader;
use crate::tcp::vector::parts::collection;
use crate::wire::config::{TokensConfig, WireConfig};
use crate::wire::embedded::invalid;
use nigh_engine::collection::config_keys::{Floats, Ints, Key, Kind, Settings, Value};
use nigh_engine::collection::{FirstStage, MultiVectorConfig};
use nigh_engine::payload::{PayloadFormat, TokenCode};
use nigh_engine::point_id::IdKind;

/// A field: its name in errors, and the key whose value it is.
type Field = (&'static str, Key);

/// The largest value of a key whose numbers take 64 bits.
const U64_MAX: i128 = u64::MAX as i128;

#[rustfmt::skip]
const FIXED: &[Field] = {
    use Key::*;
    &[("dim", Dim), ("metric", Metric), ("m", M), ("efConstruction", EfConstruction), ("efSearch", EfSearch), ("seed", Seed)]
};

#[rustfmt::skip]
const BLOCKS: &[&[Field]] = {
    use Key::*;
    &[
        &[("quant", Quant), ("persistent", Persistent), ("rescore", RescoreFactor)],
        &[("extend", ExtendCandidates), ("extendMax", ExtendCandidatesMax)],
        &[("level0Full", Level0FullDegree)],
        &[("quantizedBuild", QuantizedBuild)],
        &[("partitions", Partitions)],
        &[("index", IndexType), ("nlist", IvfNlist), ("nprobe", IvfNprobe)],
        &[("ivfPq", IvfPq), ("ivfPqM", IvfPqM), ("ivfRerank", IvfRerank)],
        &[("quantPqM", QuantPqM)], &[("opq", Opq)], &[("pqDropVecs", PqDropVecs)],
        &[("ivfTrainThreshold", IvfTrainThreshold)],
        &[("driftRetrain", IvfDriftRetrain), ("growth", IvfDriftGrowthFactor), ("factor", IvfDriftFactor)],
        &[("filterFirstRelativeBp", FilterFirstRelativeBp)],
        &[("opqIters", OpqIters)],
        &[("fullText", FullText), ("analyzer", Analyzer), ("k1", K1), ("b", B)],
        &[("sqBits", SqBits)], &[("prqLayers", PrqLayers)],
        &[("vamanaR", VamanaR)], &[("vamanaL", VamanaL)], &[("vamanaAlpha", VamanaAlpha)],
        &[("anisotropicEta", AnisotropicEta)],
        &[("soar", Soar)], &[("soarLambda", SoarLambda)],
        &[("pqNbits", PqNbits)],
        &[("payloadFormat", PayloadFormat)],
        &[("ids", Ids)],
    ]
};

#[rustfmt::skip]
const TOKENS_FIXED: &[Field] = {
    use Key::*;
    &[("dim", Dim), ("m", M), ("efConstruction", EfConstruction), ("efSearch", EfSearch), ("seed", Seed)]
};

#[rustfmt::skip]
const TOKENS_BLOCKS: &[&[Field]] = {
    use Key::*;
    &[
        &[("quant", Quant), ("rescore", RescoreFactor), ("persistent", Persistent)],
        &[("partitions", Partitions)],
        &[("index", IndexType), ("nlist", IvfNlist), ("nprobe", IvfNprobe)],
        &[("ivfPq", IvfPq), ("ivfPqM", IvfPqM), ("ivfRerank", IvfRerank)],
        &[("opq", Opq)],
        &[("ivfTrainThreshold", IvfTrainThreshold)],
        &[("pqDropVecs", PqDropVecs)],
        &[("driftRetrain", IvfDriftRetrain), ("growth", IvfDriftGrowthFactor), ("factor", IvfDriftFactor)],
        &[("filterFirstRelativeBp", FilterFirstRelativeBp)],
        &[("opqIters", OpqIters)],
        &[("fullText", FullText), ("analyzer", Analyzer), ("k1", K1), ("b", B)],
        &[("maxVectors", MaxVectors), ("maxBytes", MaxBytes)],
        &[("firstStage", FirstStage), ("encodingRepetitions", EncodingRepetitions), ("encodingBits", EncodingBits),
            ("encodingDim", EncodingDim)],
        &[("payloadFormat", PayloadFormat)],
        &[("tokenCodes", TokenCodes)],
        &[("ids", Ids)],
        &[("maxInsertsPerSecond", MaxInsertsPerSecond)],
    ]
};

/// The keys of all fields, in their order.
#[cfg(test)]
pub fn fields() -> impl Iterator<Item = Key> {
    FIXED.iter().chain(BLOCKS.iter().copied().flatten()).map(|(_, key)| *key)
}

/// A collection to be made, its configuration as that of a JSON body: the same defaults, the same refusals.
///
/// # Errors
/// `args too short`, and what is wrong with a configuration.
pub fn create(args: &mut ArgsReader<'_>) -> Result<CreateCollection, ApiError> {
    let collection = collection(args)?;
    let mut settings = Settings::default();
    read(args, FIXED, &mut settings)?;
    for block in BLOCKS {
        if is_there(block[0].1, args.remaining(), &settings) {
            read(args, block, &mut settings)?;
        }
    }
    Ok(CreateCollection { collection, config: WireConfig(settings).into_config()?.into() })
}

/// A multi-vector collection to be made, likewise.
///
/// # Errors
/// As of [`create`].
pub fn create_multi_vector(args: &mut ArgsReader<'_>) -> Result<CreateCollection, ApiError> {
    let collection = collection(args)?;
    let mut settings = Settings::default();
    read(args, TOKENS_FIXED, &mut settings)?;
    for block in TOKENS_BLOCKS {
        let is_there = match block[0].1 {
            Key::IndexType => args.remaining() >= 9,
            // Only an index of cells has this block.
            Key::IvfPq => args.remaining() >= 6 && settings.get(Key::IndexType) == Some(Value::Word("ivf")),
            _ => !args.is_empty(),
        };
        if is_there {
            read(args, block, &mut settings)?;
        }
    }
    Ok(CreateCollection { collection, config: TokensConfig(settings).into_config()?.into() })
}

/// Appends the arguments that make a multi-vector collection of this name and configuration, with all blocks, except that blocks 11 to 17 are left
/// out from the end while they hold defaults.
pub fn put_multi_vector(out: &mut Vec<u8>, name: &str, config: &MultiVectorConfig) {
    let len = name.len().min(u8::MAX.into());
    out.push(len as u8);
    out.extend_from_slice(&name.as_bytes()[..len]);
    let (keys, whole) = (config.keys(), &config.whole);
    let is_ivf = Key::IndexType.get(&keys) == Some(Value::Word("ivf"));
    // The blocks 11 to 17, in their order. A block is written if it, or a later block, differs from its default.
    let later = [
        (Key::FullText, whole.full_text.is_some()),
        (Key::MaxVectors, whole.max_vectors > 0 || whole.max_bytes > 0),
        (Key::FirstStage, config.tokens.first_stage != FirstStage::Tokens),
        (Key::PayloadFormat, whole.payload_format != PayloadFormat::Tagged),
        (Key::TokenCodes, config.tokens.token_code != TokenCode::Float),
        (Key::Ids, whole.ids != IdKind::Number),
        (Key::MaxInsertsPerSecond, whole.max_inserts_per_second > 0),
    ];
    let blocks = TOKENS_BLOCKS.iter().filter(|block| match block[0].1 {
        Key::IvfPq => is_ivf,
        key => match later.iter().position(|(first, _)| *first == key) {
            Some(place) => later[place..].iter().any(|(_, differs)| *differs),
            None => true,
        },
    });
    for (_, key) in TOKENS_FIXED.iter().chain(blocks.copied().flatten()) {
        // The keys of an object are sent only if the object is on.
        if key.object().is_none_or(|object| object.get(&keys) == Some(Value::Bool(true))) {
            put(out, *key, key.get(&keys).unwrap_or(key.zero()));
        }
    }
}

/// Appends the value of a key as [`read`] takes it.
fn put(out: &mut Vec<u8>, key: Key, value: Value) {
    let int = value.as_int().unwrap_or(0);
    let float = value.as_float().unwrap_or(0.0);
    match key.kind() {
        Kind::Bool | Kind::Object(_) => out.push(value.as_bool().unwrap_or(false).into()),
        Kind::Words(words) if key.object().is_some() => {
            let name = words.iter().find(|word| value == Value::Word(word.name)).map_or("", |word| word.name);
            // The names of words are short.
            out.push(name.len() as u8);
            out.extend_from_slice(name.as_bytes());
        }
        Kind::Words(words) => {
            let code = words.iter().find(|word| value == Value::Word(word.name)).map_or(0, |word| word.code);
            out.push(code);
        }
        Kind::Int(Ints::Within(..0, _)) => {
            out.extend_from_slice(&i64::try_from(int).unwrap_or(i64::MAX).to_be_bytes());
        }
        Kind::Int(Ints::Within(_, U64_MAX)) => {
            out.extend_from_slice(&u64::try_from(int).unwrap_or(u64::MAX).to_be_bytes());
        }
        Kind::Int(_) => out.extend_from_slice(&u32::try_from(int).unwrap_or(u32::MAX).to_be_bytes()),
        Kind::Float(Floats::AboveOne) => out.extend_from_slice(&float.to_be_bytes()),
        Kind::Float(_) => out.extend_from_slice(&(float as f32).to_be_bytes()),
    }
}

/// Whether the block that begins with `first` follows, told by the bytes that are left. Six bytes behind the block of the index are the
/// block of `ivf_pq`, or the three that come after it together: the former where the index is `ivf`, which it is about.
fn is_there(first: Key, remaining: usize, settings: &Settings) -> bool {
    let index = settings.get(Key::IndexType);
    match first {
        // Fewer bytes are those of the block of `quant_pq_m` and what follows it.
        Key::IndexType => remaining >= 9,
        Key::IvfPq => match index {
            None => false,
            Some(index) => remaining > 6 || remaining == 6 && index == Value::Word("ivf"),
        },
        _ => remaining > 0,
    }
}

fn read(args: &mut ArgsReader<'_>, fields: &[Field], settings: &mut Settings) -> Result<(), ApiError> {
    for &(field, key) in fields {
        // The keys of an object are written only if the object is on.
        if key.object().is_some_and(|object| settings.get(object) != Some(Value::Bool(true))) {
            continue;
        }
        let value = match key.kind() {
            Kind::Bool | Kind::Object(_) => Value::Bool(args.flag(field)?),
            Kind::Words(_) if key.object().is_some() => {
                settings.put_word(key, args.text8(field)?);
                continue;
            }
            Kind::Words(words) => {
                let code = args.u8(field)?;
                let word = words.iter().find(|word| word.code == code);
                Value::Word(word.ok_or_else(|| unknown_code(field, code))?.name)
            }
            Kind::Int(Ints::Within(..0, _)) => Value::Int(args.i64(field)?.into()),
            Kind::Int(Ints::Within(_, U64_MAX)) => Value::Int(args.u64(field)?.into()),
            Kind::Int(_) => Value::Int(args.u32(field)?.into()),
            Kind::Float(Floats::AboveOne) => Value::Float(finite(field, args.f64(field)?)?),
            Kind::Float(_) => Value::Float(finite(field, args.f32(field)?.into())?),
        };
        settings.put(key, value);
    }
    Ok(())
}

fn unknown_code(field: &str, code: u8) -> ApiError {
    ApiError::invalid(format!("vector: invalid {field}: unknown code {code}"))
}

fn finite(field: &str, number: f64) -> Result<f64, ApiError> {
    match number.is_finite() {
        true => Ok(number),
        false => Err(invalid(field, "not a finite number")),
    }
}
