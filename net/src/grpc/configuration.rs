//! Configurations of collections as messages, in both directions. Each field is the key of its name; a zero means the default.

use crate::op::ApiError;
use crate::wire::config::{TokensConfig, WireConfig};
use crate::wire::embedded::invalid;
use crate::wire::proto::messages::{Config, FullTextConfig, MVConfig};
use nigh_engine::collection::config_keys::{Key, Settings, Value};
use nigh_engine::collection::{DenseConfig, MultiVectorConfig};
use nigh_engine::payload::{PayloadFormat, TokenCode};
use nigh_engine::point_id::IdKind;

/// A type of integers that a field may have.
trait Integer: TryFrom<i128> {
    const MAX: Self;
}

impl Integer for i32 {
    const MAX: i32 = i32::MAX;
}

impl Integer for i64 {
    const MAX: i64 = i64::MAX;
}

/// The value of a key; a quota that is larger than its field can say is as good as the largest.
fn int<T: Integer>(key: Key, config: &DenseConfig) -> T {
    let number = key.get(config).and_then(Value::as_int).unwrap_or(0);
    T::try_from(number).unwrap_or(T::MAX)
}

fn float(key: Key, config: &DenseConfig) -> f64 {
    key.get(config).and_then(Value::as_float).unwrap_or(0.0)
}

fn flag(key: Key, config: &DenseConfig) -> bool {
    key.get(config).and_then(Value::as_bool).unwrap_or(false)
}

fn word(key: Key, config: &DenseConfig) -> String {
    match key.get(config) {
        Some(Value::Word(word)) => word.to_owned(),
        _ => String::new(),
    }
}

fn put_int(settings: &mut Settings, key: Key, number: impl Into<i128>) {
    let number = number.into();
    if number != 0 {
        settings.put(key, Value::Int(number));
    }
}

fn put_float(settings: &mut Settings, key: Key, number: impl Into<f64>) -> Result<(), ApiError> {
    let number = number.into();
    if !number.is_finite() {
        return Err(invalid(key.name(), "not a finite number"));
    }
    if number != 0.0 {
        settings.put(key, Value::Float(number));
    }
    Ok(())
}

fn put_flag(settings: &mut Settings, key: Key, flag: bool) {
    if flag {
        settings.put(key, Value::Bool(true));
    }
}

/// The fields by their types, each with its key, so that reading and writing cannot disagree.
macro_rules! fields {
    (
        ints { $($int:ident $int_key:ident,)* }
        floats { $($float:ident $float_key:ident $float_type:ty,)* }
        flags { $($flag:ident $flag_key:ident,)* }
        words { $($word:ident $word_key:ident,)* }
    ) => {
        fn settings_of(message: &Config) -> Result<Settings, ApiError> {
            let mut settings = Settings::default();
            $(put_int(&mut settings, Key::$int_key, message.$int);)*
            $(put_float(&mut settings, Key::$float_key, message.$float)?;)*
            $(put_flag(&mut settings, Key::$flag_key, message.$flag);)*
            $(settings.put_word(Key::$word_key, &message.$word);)*
            if let Some(on) = message.traversal_codes {
                settings.put(Key::TraversalCodes, Value::Bool(on));
            }
            settings.put_word(Key::PayloadFormat, &message.payload_format);
            settings.put_word(Key::Ids, &message.ids);
            if let Some(text) = &message.full_text {
                settings.put(Key::FullText, Value::Bool(true));
                settings.put_word(Key::Analyzer, &text.analyzer);
                put_float(&mut settings, Key::K1, text.k1)?;
                put_float(&mut settings, Key::B, text.b)?;
            }
            Ok(settings)
        }

        /// A configuration as it was given, zeros that mean a default included.
        pub fn message_of(config: &DenseConfig) -> Config {
            Config {
                $($int: int(Key::$int_key, config),)*
                $($float: float(Key::$float_key, config) as $float_type,)*
                $($flag: flag(Key::$flag_key, config),)*
                $($word: word(Key::$word_key, config),)*
                // These say nothing where they are as always.
                payload_format: match config.payload_format {
                    PayloadFormat::Tagged => String::new(),
                    format => format.name().to_owned(),
                },
                ids: match config.ids {
                    IdKind::Number => String::new(),
                    kind => kind.name().to_owned(),
                },
                traversal_codes: Key::TraversalCodes.get(config).and_then(Value::as_bool).filter(|on| !on),
                full_text: flag(Key::FullText, config).then(|| FullTextConfig {
                    analyzer: word(Key::Analyzer, config),
                    k1: float(Key::K1, config) as f32,
                    b: float(Key::B, config) as f32,
                }),
            }
        }
    };
}

#[rustfmt::skip]
fields! {
    ints {
        dim Dim, m M, ef_construction EfConstruction, ef_search EfSearch, seed Seed, rescore_factor RescoreFactor, partitions Partitions,
        ivf_nlist IvfNlist, ivf_nprobe IvfNprobe, ivf_pq_m IvfPqM, quant_pq_m QuantPqM, ivf_train_threshold IvfTrainThreshold,
        filter_first_relative_bp FilterFirstRelativeBp, opq_iters OpqIters, sq_bits SqBits, prq_layers PrqLayers,
        vamana_r VamanaR, vamana_l VamanaL, pq_nbits PqNbits, extend_candidates_max ExtendCandidatesMax,
        max_vectors MaxVectors, max_bytes MaxBytes, max_inserts_per_second MaxInsertsPerSecond, max_ef_search MaxEfSearch,
    }
    floats {
        ivf_drift_growth_factor IvfDriftGrowthFactor f64, ivf_drift_factor IvfDriftFactor f64,
        vamana_alpha VamanaAlpha f32, anisotropic_eta AnisotropicEta f32, soar_lambda SoarLambda f32,
    }
    flags {
        persistent Persistent, ivf_pq IvfPq, ivf_rerank IvfRerank, opq Opq, pq_drop_vecs PqDropVecs, ivf_drift_retrain IvfDriftRetrain,
        soar Soar, extend_candidates ExtendCandidates, level0_full_degree Level0FullDegree, quantized_build QuantizedBuild,
    }
    words { metric Metric, quant Quant, index_type IndexType, }
}

/// The configuration that a message asks for, as that of a JSON body: the same defaults, the same refusals.
///
/// # Errors
/// A bad request.
pub fn config_of(message: &Config) -> Result<DenseConfig, ApiError> {
    WireConfig(settings_of(message)?).into_config()
}

/// The fields that the two messages have in common, once for both directions.
macro_rules! fields_in_common {
    ($($field:ident)*) => {
        /// The configuration of a multi-vector collection as it was given.
        pub fn tokens_message_of(config: &MultiVectorConfig) -> MVConfig {
            let message = message_of(&config.keys());
            MVConfig {
                $($field: message.$field,)*
                first_stage: word(Key::FirstStage, &config.tokens),
                encoding_repetitions: int(Key::EncodingRepetitions, &config.tokens),
                encoding_bits: int(Key::EncodingBits, &config.tokens),
                encoding_dim: int(Key::EncodingDim, &config.tokens),
                token_codes: match config.tokens.token_code {
                    TokenCode::Float => String::new(),
                    _ => word(Key::TokenCodes, &config.tokens),
                },
            }
        }

        fn in_common(message: MVConfig) -> Config {
            Config { $($field: message.$field,)* ..Config::default() }
        }
    };
}

fields_in_common! {
    dim m ef_construction ef_search seed quant rescore_factor persistent partitions
    index_type ivf_nlist ivf_nprobe ivf_pq ivf_pq_m ivf_rerank opq opq_iters pq_drop_vecs
    ivf_train_threshold ivf_drift_retrain ivf_drift_growth_factor ivf_drift_factor
    filter_first_relative_bp full_text max_vectors max_bytes max_inserts_per_second payload_format ids
}

/// Decodes the configuration of a multi-vector collection. Its fields are some of those of a dense collection, and those of its first stage.
///
/// # Errors
/// A bad request.
pub fn tokens_config_of(message: MVConfig) -> Result<MultiVectorConfig, ApiError> {
    let mut first_stage = Settings::default();
    first_stage.put_word(Key::FirstStage, &message.first_stage);
    put_int(&mut first_stage, Key::EncodingRepetitions, message.encoding_repetitions);
    put_int(&mut first_stage, Key::EncodingBits, message.encoding_bits);
    put_int(&mut first_stage, Key::EncodingDim, message.encoding_dim);
    first_stage.put_word(Key::TokenCodes, &message.token_codes);
    let mut settings = settings_of(&in_common(message))?;
    settings.extend(first_stage);
    TokensConfig(settings).into_config()
}
