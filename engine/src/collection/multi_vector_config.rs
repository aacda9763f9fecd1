//! Configuration of a multi-vector collection.
use super::config::DenseConfig;
use super::config_limits::ConfigError;
use super::index_type::IndexType;
use super::named_config::NamedConfig;
use super::quantizer_config::Quantizer;
use super::whole_config::WholeConfig;
use crate::distance::Metric;

/// A document has at most this many token vectors.
pub const TOKENS_MAX: usize = 4_096;

/// A query has at most this many token vectors.
pub const QUERY_TOKENS_MAX: usize = 1_024;

/// The configuration of a multi-vector collection, after defaults are applied.
#[derive(Clone, Debug, PartialEq)]
pub struct MultiVectorConfig {
    /// The configuration of the index of token vectors. Its metric is always cosine, and keys for whole points (quotas, texts) have no effect.
    pub tokens: DenseConfig,
    /// Quotas and full text. The quota of points is one of documents; bytes are counted by [`Self::quota_bytes`].
    pub whole: WholeConfig,
}

impl MultiVectorConfig {
    /// Configures a collection whose token vectors are indexed like this, without quotas and full text.
    pub fn new(tokens: DenseConfig) -> MultiVectorConfig {
        // A graph over vectors in a mapped file needs codes to search by; if the request names no quantizer, the simplest one is used.
        let needs_codes = tokens.persistent && tokens.quant == Quantizer::None && tokens.ivf().is_none();
        let quant = if needs_codes { Quantizer::Sq8 } else { tokens.quant };
        MultiVectorConfig {
            tokens: DenseConfig { metric: Metric::Cosine, quant, ..tokens },
            whole: WholeConfig::default(),
        }
    }

    /// The configuration of the documents as points, which have no dense space and one sparse space. Its quota of bytes is 0, because the number
    /// of bytes depends on the tokens, of which the points know nothing.
    pub fn documents(&self) -> NamedConfig {
        let whole = WholeConfig { max_bytes: 0, ..self.whole.clone() };
        NamedConfig { whole, ..NamedConfig::new(Vec::new(), vec!["sparse".to_owned()]) }
    }

    /// All keys of the collection in one configuration, as clients know them: those of the tokens and those of the whole.
    pub fn keys(&self) -> DenseConfig {
        self.whole.over(self.tokens.clone())
    }

    /// Bytes that so many documents with so many token vectors count against `max_bytes`: 32 for each document, and
    /// [`DenseConfig::quota_bytes_per_point`] for each token.
    pub fn quota_bytes(&self, documents: u64, tokens: u64) -> u64 {
        let of_documents = documents.saturating_mul(self.documents().quota_bytes_per_point());
        of_documents.saturating_add(tokens.saturating_mul(self.tokens.quota_bytes_per_point()))
    }

    /// Whether a collection can be made with it.
    ///
    /// # Errors
    /// The error describes the first value that is invalid, in the terms of the interfaces.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.tokens.validate()?;
        match self.tokens.index {
            IndexType::Gpu => Err(ConfigError("index_type gpu is for dense collections alone".to_owned())),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_compared_by_cosine() {
        let config = MultiVectorConfig::new(DenseConfig::new(8, Metric::L2));
        assert_eq!((config.tokens.metric, config.validate()), (Metric::Cosine, Ok(())));
        assert_eq!((config.documents().spaces.len(), config.documents().sparse_spaces.len()), (0, 1));
        let mut limited = config;
        limited.whole =
            WholeConfig { max_vectors: 5, max_bytes: 6, full_text: Some(crate::text::TextConfig::default()) };
        let documents = limited.documents().whole;
        assert_eq!((documents.max_vectors, documents.max_bytes), (5, 0));
        assert_eq!(documents.full_text, limited.whole.full_text);
        assert_eq!(limited.quota_bytes(2, 3), 2 * 32 + 3 * limited.tokens.quota_bytes_per_point());
        assert_eq!(limited.quota_bytes(1, u64::MAX), u64::MAX);
        assert_eq!((limited.keys().dim, WholeConfig::of(limited.keys())), (8, limited.whole.clone()));
        let file = DenseConfig { persistent: true, ..DenseConfig::new(8, Metric::Cosine) };
        assert_eq!(MultiVectorConfig::new(file.clone()).tokens.quant, Quantizer::Sq8);
        let config =
            MultiVectorConfig::new(DenseConfig { index: IndexType::Ivf(Default::default()), ..file });
        assert_eq!(config.tokens.quant, Quantizer::None);
        for (config, fragment) in [
            (DenseConfig::new(0, Metric::Cosine), "Dim"),
            (DenseConfig { m: 129, ..DenseConfig::new(8, Metric::Cosine) }, "invalid M"),
            (
                DenseConfig { index: IndexType::Gpu, ..DenseConfig::new(8, Metric::Cosine) },
                "dense collections alone",
            ),
        ] {
            let refused = MultiVectorConfig::new(config).validate().unwrap_err().to_string();
            assert!(refused.contains(fragment), "{refused}");
        }
    }
}
