//! The families of collections, and what a collection of each is made with.

use nigh_engine::collection::config_keys::{Key, Settings};
use nigh_engine::collection::{
    ConfigError, DenseConfig, DenseWriter, MultiVectorConfig, NamedConfig, Quantizer,
};
use nigh_engine::payload::PayloadFormat;
use nigh_engine::point_id::IdKind;
use nigh_engine::quoted::quoted;

pub use nigh_engine::collection::config_keys::Family;

/// What a collection is made with.
#[derive(Clone, Debug, PartialEq)]
pub enum CollectionConfig {
    /// A dense collection: one dense vector per point.
    Dense(DenseConfig),
    /// A collection of named spaces.
    Named(NamedConfig),
    /// A multi-vector collection.
    MultiVector(MultiVectorConfig),
}

/// New values for some keys of a configuration. Only values that may change while a collection serves ([`Key::is_live`]) are accepted.
#[derive(Clone, Debug)]
pub enum ConfigChange {
    /// Values of a dense collection.
    Dense(Settings),
    /// Values of a collection of named spaces.
    Named(NamedChange),
    /// Values of a multi-vector collection and of its tokens.
    MultiVector(Settings),
}

/// New values for a collection of named spaces.
#[derive(Clone, Debug, Default)]
pub struct NamedChange {
    /// Values of collection keys.
    pub whole: Settings,
    /// Values of dense spaces, each named once.
    pub spaces: Vec<(String, Settings)>,
}

impl ConfigChange {
    /// The family of the collections that it can be a change of.
    pub fn family(&self) -> Family {
        match self {
            ConfigChange::Dense(_) => Family::Dense,
            ConfigChange::Named(_) => Family::Named,
            ConfigChange::MultiVector(_) => Family::MultiVector,
        }
    }

    /// Refuses a change of nothing.
    ///
    /// # Errors
    /// Names what can be changed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let listed = |keys: &mut dyn Iterator<Item = Key>| keys.map(Key::name).collect::<Vec<_>>().join(", ");
        let live = listed(&mut Key::live_of(self.family()));
        let refuse =
            |what: &str| Err(ConfigError(format!("{what} names no key; what can be changed is {live}")));
        match self {
            ConfigChange::Dense(settings) | ConfigChange::MultiVector(settings) if settings.is_empty() => {
                refuse("the change")
            }
            ConfigChange::Named(NamedChange { whole, spaces }) if whole.is_empty() && spaces.is_empty() => {
                let whole = listed(&mut Key::of_whole().filter(|key| key.is_live()));
                Err(ConfigError(format!(
                    "the change is empty; it can have {live} for a space, and {whole} for the collection"
                )))
            }
            ConfigChange::Named(change) => {
                match change.spaces.iter().find(|(_, settings)| settings.is_empty()) {
                    Some((name, _)) => refuse(&format!("the change of space {}", quoted(name))),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// `config` as it is after the change.
    ///
    /// # Errors
    /// The first value that the configuration cannot have, or a space that it does not have. `None` for a configuration of another family.
    pub(crate) fn applied_to(
        &self,
        config: &CollectionConfig,
    ) -> Option<Result<CollectionConfig, ConfigError>> {
        Some(match (self, config) {
            (ConfigChange::Dense(settings), CollectionConfig::Dense(config)) => {
                settings.change(config).and_then(|config| config.validate().map(|()| config.into()))
            }
            (ConfigChange::MultiVector(settings), CollectionConfig::MultiVector(config)) => settings
                .change_multi_vector(config)
                .and_then(|config| config.validate().map(|()| config.into())),
            (ConfigChange::Named(change), CollectionConfig::Named(config)) => {
                changed_spaces(change, config).map(Into::into)
            }
            _ => return None,
        })
    }
}

fn changed_spaces(change: &NamedChange, config: &NamedConfig) -> Result<NamedConfig, ConfigError> {
    let mut changed = NamedConfig { whole: change.whole.change_whole(&config.whole)?, ..config.clone() };
    for (name, settings) in &change.spaces {
        let quoted = quoted(name);
        let Some(number) = config.number_of(name) else {
            return Err(ConfigError(match config.sparse_number_of(name) {
                Some(_) => format!("space {quoted} is sparse, so that nothing of it can be changed"),
                None => {
                    let names: Vec<&str> = config.dense_spaces().map(|space| space.name.as_str()).collect();
                    format!(
                        "unknown vector space {quoted}; the dense spaces of the collection are {}",
                        names.join(", ")
                    )
                }
            }));
        };
        let space = settings.change(&config.spaces[number].config);
        changed.spaces[number].config =
            space.map_err(|error| ConfigError(format!("space {quoted}: {}", error.0)))?;
    }
    changed.validate()?;
    Ok(changed)
}

/// The bit that tells the index of the tokens of a multi-vector collection from the collection, whose number it has otherwise. To the owner and
/// on the disk that index is a dense collection of its own, without a name that a client could use.
const TOKENS: u64 = 1 << 63;

/// The number of the index of the tokens of a multi-vector collection.
pub fn tokens_of(uid: u64) -> u64 {
    uid | TOKENS
}

/// The number of the collection that has this one, or has it as the index of its tokens.
pub fn collection_of(uid: u64) -> u64 {
    uid & !TOKENS
}

/// Whether this is the number of an index of tokens.
pub fn is_of_tokens(uid: u64) -> bool {
    uid & TOKENS != 0
}

impl CollectionConfig {
    /// How payloads are sent and answered.
    pub fn payload_format(&self) -> PayloadFormat {
        match self {
            CollectionConfig::Dense(config) => config.payload_format,
            CollectionConfig::Named(config) => config.whole.payload_format,
            CollectionConfig::MultiVector(config) => config.whole.payload_format,
        }
    }

    /// The kind of ids.
    pub fn ids(&self) -> IdKind {
        match self {
            CollectionConfig::Dense(config) => config.ids,
            CollectionConfig::Named(config) => config.whole.ids,
            CollectionConfig::MultiVector(config) => config.whole.ids,
        }
    }

    /// Its family.
    pub fn family(&self) -> Family {
        match self {
            CollectionConfig::Dense(_) => Family::Dense,
            CollectionConfig::Named(_) => Family::Named,
            CollectionConfig::MultiVector(_) => Family::MultiVector,
        }
    }

    /// The configuration, if it is of a dense collection.
    pub fn dense(&self) -> Option<&DenseConfig> {
        if let CollectionConfig::Dense(config) = self { Some(config) } else { None }
    }

    /// The configuration, if it is of a collection of named spaces.
    pub fn named(&self) -> Option<&NamedConfig> {
        if let CollectionConfig::Named(config) = self { Some(config) } else { None }
    }

    /// The configuration, if it is of a multi-vector collection.
    pub fn multi_vector(&self) -> Option<&MultiVectorConfig> {
        if let CollectionConfig::MultiVector(config) = self { Some(config) } else { None }
    }

    /// Whether a collection can be made with it.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            CollectionConfig::Dense(config) => config.validate(),
            CollectionConfig::Named(config) => config.validate(),
            CollectionConfig::MultiVector(config) => config.validate(),
        }
    }

    /// Applies the values that may change while a collection serves to its writer. Values for the index of a multi-vector collection are not applied
    /// here, because that index is a collection of its own.
    pub(crate) fn tune(&self, writer: &mut DenseWriter) {
        match self {
            CollectionConfig::Dense(config) => writer.tune(config),
            CollectionConfig::Named(config) => writer.tune_named(config),
            CollectionConfig::MultiVector(config) => writer.tune_named(&config.documents()),
        }
    }

    /// Bytes that one point counts against the limit on bytes.
    pub fn quota_bytes_per_point(&self) -> u64 {
        match self {
            CollectionConfig::Dense(config) => config.quota_bytes_per_point(),
            CollectionConfig::Named(config) => config.quota_bytes_per_point(),
            CollectionConfig::MultiVector(config) => config.documents().quota_bytes_per_point(),
        }
    }

    /// Points at most; 0 = any number.
    pub fn max_vectors(&self) -> u64 {
        match self {
            CollectionConfig::Dense(config) => config.max_vectors,
            CollectionConfig::Named(config) => config.whole.max_vectors,
            CollectionConfig::MultiVector(config) => config.whole.max_vectors,
        }
    }

    /// Bytes at most that points count, by [`Self::quota_bytes_per_point`]; 0 = any number.
    pub fn max_bytes(&self) -> u64 {
        match self {
            CollectionConfig::Dense(config) => config.max_bytes,
            CollectionConfig::Named(config) => config.whole.max_bytes,
            CollectionConfig::MultiVector(config) => config.whole.max_bytes,
        }
    }

    /// Writes of points per second at most; 0 = any number.
    pub fn max_inserts_per_second(&self) -> u64 {
        match self {
            CollectionConfig::Dense(config) => config.max_inserts_per_second,
            CollectionConfig::Named(config) => config.whole.max_inserts_per_second,
            CollectionConfig::MultiVector(config) => config.whole.max_inserts_per_second,
        }
    }

    /// Whether its vectors lie in a file.
    pub fn is_persistent(&self) -> bool {
        self.dense().is_some_and(|config| config.persistent)
    }

    /// Whether the graph of some space learns codes from its points.
    pub fn has_quantizer(&self) -> bool {
        let learns = |config: &DenseConfig| matches!(config.quant, Quantizer::Trained(_));
        match self {
            CollectionConfig::Dense(config) => learns(config),
            CollectionConfig::Named(config) => config.dense_spaces().any(|space| learns(&space.config)),
            // The quantizer is trained in the index of tokens, which is a collection of its own here.
            CollectionConfig::MultiVector(_) => false,
        }
    }

    /// Number of sparse spaces; 1 where they have no names.
    pub fn sparse_spaces(&self) -> usize {
        self.named().map_or(1, |config| config.sparse_spaces.len())
    }
}

impl From<DenseConfig> for CollectionConfig {
    fn from(config: DenseConfig) -> CollectionConfig {
        CollectionConfig::Dense(config)
    }
}

impl From<MultiVectorConfig> for CollectionConfig {
    fn from(config: MultiVectorConfig) -> CollectionConfig {
        CollectionConfig::MultiVector(config)
    }
}

impl From<NamedConfig> for CollectionConfig {
    fn from(config: NamedConfig) -> CollectionConfig {
        CollectionConfig::Named(config)
    }
}
