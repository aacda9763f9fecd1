//! The families of collections, and what a collection of each is made with.

use nigh_engine::collection::{ConfigError, DenseConfig, NamedConfig, Quantizer};

pub use nigh_engine::collection::config_keys::Family;

/// What a collection is made with.
#[derive(Clone, Debug, PartialEq)]
pub enum CollectionConfig {
    /// A dense collection: one dense vector per point.
    Dense(DenseConfig),
    /// A collection of named spaces.
    Named(NamedConfig),
}

impl CollectionConfig {
    /// Its family.
    pub fn family(&self) -> Family {
        match self {
            CollectionConfig::Dense(_) => Family::Dense,
            CollectionConfig::Named(_) => Family::Named,
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

    /// Whether a collection can be made with it.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            CollectionConfig::Dense(config) => config.validate(),
            CollectionConfig::Named(config) => config.validate(),
        }
    }

    /// Bytes that one point counts against the limit on bytes.
    pub fn quota_bytes_per_point(&self) -> u64 {
        match self {
            CollectionConfig::Dense(config) => config.quota_bytes_per_point(),
            CollectionConfig::Named(config) => config.quota_bytes_per_point(),
        }
    }

    /// Points at most; 0 = any number.
    pub fn max_vectors(&self) -> u64 {
        match self {
            CollectionConfig::Dense(config) => config.max_vectors,
            CollectionConfig::Named(config) => config.max_vectors,
        }
    }

    /// Writes of points per second at most; 0 = any number.
    pub fn max_inserts_per_second(&self) -> u64 {
        self.dense().map_or(0, |config| config.max_inserts_per_second)
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
            CollectionConfig::Named(config) => config.spaces.iter().any(|space| learns(&space.config)),
        }
    }

    /// Number of sparse spaces; 1 for a dense collection.
    pub fn sparse_spaces(&self) -> usize {
        self.named().map_or(1, |config| config.sparse_spaces.len())
    }
}

impl From<DenseConfig> for CollectionConfig {
    fn from(config: DenseConfig) -> CollectionConfig {
        CollectionConfig::Dense(config)
    }
}

impl From<NamedConfig> for CollectionConfig {
    fn from(config: NamedConfig) -> CollectionConfig {
        CollectionConfig::Named(config)
    }
}
