//! Values as a client gave them, and the configuration that they make.

use super::super::config::DenseConfig;
use super::super::config_limits::ConfigError;
use super::super::first_stage::FirstStage;
use super::super::multi_vector_config::MultiVectorConfig;
use super::super::whole_config::WholeConfig;
use super::{Floats, Ints, Key, Kind, Value};
use crate::distance::Metric;
use crate::quoted::quoted;
use std::collections::BTreeMap;

/// Values of keys that were given, in whatever order; of one that is given again the last counts.
#[derive(Clone, Debug, Default)]
pub struct Settings(BTreeMap<Key, Result<Value, String>>);

fn invalid(key: Key, reason: &str) -> ConfigError {
    let object = key.object().map_or(String::new(), |object| format!("{}.", object.name()));
    ConfigError(format!("invalid {object}{}: {reason}", key.name()))
}

fn unknown(key: Key, text: &str) -> ConfigError {
    let names: Vec<&str> = key
        .words()
        .iter()
        .flat_map(|word| std::iter::once(word.name).chain(word.aliases.iter().copied()))
        .collect();
    let offered = match names.len() {
        // Where nothing can be chosen there is nothing to list.
        1 => String::new(),
        _ => format!("; it must be one of {}", names.join(", ")),
    };
    ConfigError(format!("unknown {} {}{offered}", key.name(), quoted(text)))
}

/// Why the table does not allow a number. Those that [`DenseConfig::validate`] speaks of pass.
fn refusal(key: Key, value: Value) -> Option<String> {
    const NATURAL_MAX: i128 = i64::MAX as i128;
    let text = match (key, key.kind(), value) {
        // A dimension or a number of partitions above its bound is not a mistake; it is refused elsewhere as not offered.
        (Key::Dim, ..) | (Key::Partitions, _, Value::Int(0..)) => return None,
        // Errors name these two keys as existing clients know them.
        (Key::IvfPqM, _, Value::Int(..0)) => "IVFPQM must be 0 or more".to_owned(),
        (Key::PqNbits, Kind::Int(Ints::OneOf(all)), Value::Int(number)) if !all.contains(&number) => {
            format!("PQNBits must be one of {all:?}")
        }
        (Key::Partitions, ..) | (_, Kind::Int(Ints::Within(0, NATURAL_MAX)), Value::Int(..0)) => {
            "must not be negative".to_owned()
        }
        (_, Kind::Int(Ints::Within(least, most)), Value::Int(number)) if number < least || number > most => {
            format!("must be between {least} and {most}")
        }
        (_, Kind::Int(Ints::OneOf(all)), Value::Int(number)) if !all.contains(&number) => {
            format!("it must be one of {all:?}")
        }
        (_, Kind::Float(Floats::FromZero), Value::Float(..0.0)) => "must not be negative".to_owned(),
        (_, Kind::Float(Floats::AboveOne), Value::Float(..=1.0)) if value != Value::Float(0.0) => {
            "must be above 1, or 0".to_owned()
        }
        _ => return None,
    };
    Some(text)
}

impl Settings {
    /// The keys that say which others concern a configuration, in the order in which they are set, after `dim`.
    pub const SHAPE: [Key; 7] = [
        Key::FirstStage,
        Key::EncodingRepetitions,
        Key::EncodingBits,
        Key::EncodingDim,
        Key::IndexType,
        Key::Quant,
        Key::IvfPq,
    ];

    /// Adds a value.
    pub fn put(&mut self, key: Key, value: Value) {
        self.0.insert(key, Ok(value));
    }

    /// Adds a word; [`Self::config`] refuses one that the key does not have.
    pub fn put_word(&mut self, key: Key, text: &str) {
        let word = key.words().iter().find(|word| word.name == text || word.aliases.contains(&text));
        match word {
            Some(word) => self.put(key, Value::Word(word.name)),
            None if text.is_empty() => self.remove(key),
            None => drop(self.0.insert(key, Err(text.to_owned()))),
        }
    }

    /// Adds all values of `others`; they replace values of the same keys.
    pub fn extend(&mut self, others: Settings) {
        self.0.extend(others.0);
    }

    /// Forgets a value, and those of the keys of an object.
    pub fn remove(&mut self, key: Key) {
        self.0.remove(&key);
        for member in key.members().unwrap_or_default() {
            self.0.remove(member);
        }
    }

    /// The value given last, unless it is a word that the key does not have.
    pub fn get(&self, key: Key) -> Option<Value> {
        self.0.get(&key).and_then(|given| given.as_ref().ok().copied())
    }

    /// The configuration, defaults in place. Ranges that depend on other keys are for [`DenseConfig::validate`].
    ///
    /// # Errors
    /// A missing `dim`, unknown words, numbers out of range, keys without what they need, and what this build does not have.
    pub fn config(&self) -> Result<DenseConfig, ConfigError> {
        let dim = match self.get(Key::Dim) {
            Some(Value::Int(dim)) => {
                usize::try_from(dim).map_err(|_| invalid(Key::Dim, &format!("{dim} is negative")))?
            }
            _ => {
                return Err(ConfigError("invalid Dim: it is missing; every configuration states dim".into()));
            }
        };
        let mut config = DenseConfig::new(dim, Metric::Cosine);
        self.apply(Key::Metric, &mut config)?;
        for (key, value) in self.0.iter().filter_map(|(key, given)| Some((*key, *given.as_ref().ok()?))) {
            if let Some(reason) = refusal(key, value) {
                return Err(invalid(key, &reason));
            }
        }
        for key in Settings::SHAPE {
            self.apply(key, &mut config)?;
        }
        self.check_needs(&config)?;
        for key in self.0.keys().filter(|key| !Settings::SHAPE.contains(key)) {
            self.apply(*key, &mut config)?;
        }
        Ok(config)
    }

    /// The collection keys (quotas, full text, payload format) among these values; other keys are not looked at.
    ///
    /// # Errors
    /// As [`Self::config`].
    pub fn whole(&self) -> Result<WholeConfig, ConfigError> {
        let (mut whole, _) = self.divided();
        whole.put(Key::Dim, Value::Int(1));
        whole.config().map(WholeConfig::of)
    }

    /// The configuration of a multi-vector collection.
    ///
    /// # Errors
    /// As [`Self::config`].
    pub fn multi_vector(&self) -> Result<MultiVectorConfig, ConfigError> {
        let (_, tokens) = self.divided();
        Ok(MultiVectorConfig { whole: self.whole()?, ..MultiVectorConfig::new(tokens.config()?) })
    }

    /// Divides these values into those of collection keys and the others.
    fn divided(&self) -> (Settings, Settings) {
        let is_of_whole = |key: &Key| Key::of_whole().any(|whole| key.object().unwrap_or(*key) == whole);
        let (whole, others) = self.0.clone().into_iter().partition(|(key, _)| is_of_whole(key));
        (Settings(whole), Settings(others))
    }

    /// `config` with these values in the place of those that it has, as [`Self::change`] does.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub fn change_whole(&self, config: &WholeConfig) -> Result<WholeConfig, ConfigError> {
        self.change(&config.keys()).map(WholeConfig::of)
    }

    /// `config` with these values in the place of those that it has, as [`Self::change`] does.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub fn change_multi_vector(&self, config: &MultiVectorConfig) -> Result<MultiVectorConfig, ConfigError> {
        let (whole, tokens) = self.divided();
        Ok(MultiVectorConfig {
            tokens: tokens.change(&config.tokens)?,
            whole: whole.change_whole(&config.whole)?,
        })
    }

    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `config` with these values in the place of those that it has. A value that means the default sets the default. The caller validates the
    /// result.
    ///
    /// # Errors
    /// A key whose value may not change while a collection serves, that does not concern `config`, or whose value is out of range.
    pub fn change(&self, config: &DenseConfig) -> Result<DenseConfig, ConfigError> {
        let mut changed = config.clone();
        for (&key, given) in &self.0 {
            let value = match given {
                Ok(value) if key.is_live() => *value,
                _ => return Err(invalid(key, "it cannot be changed")),
            };
            if let Some(reason) = refusal(key, value) {
                return Err(invalid(key, &reason));
            }
            if key.get(config).is_none() {
                let quant = config.quant.name();
                return Err(invalid(key, &format!("it has no effect with quant {quant:?}")));
            }
            let value = match (key.kind(), value) {
                (Kind::Int(Ints::Count(_, most)), Value::Int(number)) if number > most => {
                    return Err(invalid(key, &format!("it must be at most {most}, found {number}")));
                }
                (Kind::Int(Ints::Count(least, _)), Value::Int(number)) if number < least => {
                    key.default().unwrap_or(key.zero())
                }
                (_, value) => value,
            };
            if !key.set(&mut changed, value) {
                return Err(invalid(key, "out of range"));
            }
        }
        Ok(changed)
    }

    /// Refuses keys that were given without what they need. That is said of what was given, as a setter passes over keys that
    /// do not concern the configuration: clients always send some of them.
    fn check_needs(&self, config: &DenseConfig) -> Result<(), ConfigError> {
        let is = |key, flag| self.get(key) == Some(Value::Bool(flag));
        let on = |key| is(key, true);
        let (quant, ivf) = (config.quant.name(), config.ivf().is_some());
        let rotated = ["pq", "prq"].contains(&quant) || on(Key::IvfPq);
        for (key, lacks, reason) in [
            (
                Key::TraversalCodes,
                is(Key::TraversalCodes, false) && quant == "sq8",
                "quant \"sq8\" is walked on codes",
            ),
            (Key::Opq, on(Key::Opq) && !rotated, "OPQ requires quant \"pq\" or \"prq\", or ivf_pq"),
            (Key::PqDropVecs, on(Key::PqDropVecs) && quant != "pq", "PQDropVecs requires quant \"pq\""),
            (Key::QuantizedBuild, on(Key::QuantizedBuild) && quant == "none", "needs a quantizer"),
            (Key::IvfPq, on(Key::IvfPq) && !ivf, "IVFPQ requires index_type \"ivf\""),
            (Key::IvfRerank, on(Key::IvfRerank) && !ivf, "IVFPQ requires index_type \"ivf\""),
            (Key::Soar, on(Key::Soar) && !ivf, "SOAR requires index_type \"ivf\""),
            (Key::FullText, on(Key::FullText) && ivf, "needs index_type \"hnsw\""),
        ] {
            if lacks {
                return Err(invalid(key, reason));
            }
        }
        if config.first_stage == FirstStage::Tokens {
            for key in [Key::EncodingRepetitions, Key::EncodingBits, Key::EncodingDim] {
                if let Some(Value::Int(number)) = self.get(key)
                    && number != 0
                {
                    let reason = format!("{number} needs first_stage \"encodings\", found \"tokens\"");
                    return Err(invalid(key, &reason));
                }
            }
        }
        match self.get(Key::Partitions) {
            Some(Value::Int(2..)) => Err(ConfigError("this server does not offer partitions above 1".into())),
            _ => Ok(()),
        }
    }

    /// Sets what was given of a key, unless it means the default.
    fn apply(&self, key: Key, config: &mut DenseConfig) -> Result<(), ConfigError> {
        let value = match self.0.get(&key) {
            None => return Ok(()),
            Some(Err(text)) => return Err(unknown(key, text)),
            Some(Ok(value)) => *value,
        };
        let is_default = match (key.kind(), value) {
            // The rounds of a rotation that is off mean nothing.
            _ if key == Key::OpqIters && self.get(Key::Opq) != Some(Value::Bool(true)) => true,
            (Kind::Int(Ints::Count(..)), Value::Int(number)) => number < 1,
            (_, Value::Int(number)) => number == 0,
            (Kind::Float(Floats::Positive), Value::Float(number))
                if !(number as f32).is_finite() && number > 0.0 =>
            {
                return Err(invalid(key, "out of the range of a 32-bit float"));
            }
            (Kind::Float(Floats::Positive), Value::Float(number)) => number as f32 <= 0.0,
            (Kind::Float(Floats::Any), Value::Float(number)) => number == 0.0,
            _ => false,
        };
        match is_default || key.set(config, value) {
            true => Ok(()),
            false => Err(invalid(key, "out of range")),
        }
    }
}
