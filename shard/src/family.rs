//! The families of collections, and what a collection of each is made with.

use nigh_engine::collection::{ConfigError, DenseConfig, MultiVectorConfig, NamedConfig, Quantizer};
use nigh_engine::memory::{Domain, Pin, Published};
use std::sync::Arc;

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
            CollectionConfig::Named(config) => config.max_vectors,
            CollectionConfig::MultiVector(_) => 0,
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

/// What a collection is made with, for every core. That of a collection of named spaces is replaced when a space is added or dropped.
pub struct Configured {
    first: Arc<CollectionConfig>,
    now: Published<Arc<CollectionConfig>>,
}

impl Configured {
    /// As created or opened.
    pub(crate) fn new(domain: Arc<Domain>, config: CollectionConfig) -> Configured {
        let first = Arc::new(config);
        Configured { now: Published::new(domain, first.clone()), first }
    }

    /// Its family, which never changes.
    pub fn family(&self) -> Family {
        self.first.family()
    }

    /// The configuration when the collection was created or opened. In families other than that of named spaces it never changes.
    pub fn first(&self) -> &CollectionConfig {
        &self.first
    }

    /// The configuration of now.
    pub fn now<'p>(&'p self, pin: &'p Pin<'_>) -> &'p Arc<CollectionConfig> {
        self.now.load(pin)
    }

    /// Owner: the configuration from now on.
    pub(crate) fn replace(&self, config: Arc<CollectionConfig>) {
        self.now.swap(config);
    }

    /// Owner: gives back what no reader sees any more.
    pub(crate) fn reclaim(&self) {
        self.now.reclaim();
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
