//! Configuration of a multi-vector collection.
use super::config::DenseConfig;
use super::config_limits::ConfigError;
use super::first_stage::FirstStage;
use super::index_type::IndexType;
use super::named_config::NamedConfig;
use super::quantizer_config::Quantizer;
use super::whole_config::WholeConfig;
use crate::distance::Metric;
use crate::payload::TokenCode;

/// A document has at most this many token vectors.
pub const TOKENS_MAX: usize = 4_096;

/// A query has at most this many token vectors.
pub const QUERY_TOKENS_MAX: usize = 1_024;

/// The configuration of a multi-vector collection, after defaults are applied.
#[derive(Clone, Debug, PartialEq)]
pub struct MultiVectorConfig {
    /// The configuration of the token vectors and of the index that finds documents. Its metric is always cosine, and keys for whole points
    /// (quotas, texts) have no effect.
    pub tokens: DenseConfig,
    /// Quotas, full text and the format of payloads. The quota of points is one of documents; bytes are counted by [`Self::quota_bytes`].
    pub whole: WholeConfig,
}

impl MultiVectorConfig {
    /// Makes a configuration whose index has these keys, without quotas and full text.
    pub fn new(tokens: DenseConfig) -> MultiVectorConfig {
        // A graph over vectors in a mapped file needs codes to search by; if the request names no quantizer, the simplest one is used.
        let needs_codes = tokens.persistent && tokens.quant == Quantizer::None && tokens.ivf().is_none();
        let quant = if needs_codes { Quantizer::Sq8 } else { tokens.quant };
        let first_stage = match tokens.first_stage {
            FirstStage::Tokens => FirstStage::Tokens,
            // The default shape is resolved here and stored with the collection, because a later build may have other defaults.
            FirstStage::Encodings(config) => FirstStage::Encodings(config.resolved(tokens.dim)),
        };
        MultiVectorConfig {
            tokens: DenseConfig { metric: Metric::Cosine, quant, first_stage, ..tokens },
            whole: WholeConfig::default(),
        }
    }

    /// The configuration of the documents as points, which have no dense space and one sparse space. Its quota of bytes is 0, because the number
    /// of bytes depends on the tokens, of which the points know nothing.
    pub fn documents(&self) -> NamedConfig {
        let whole = WholeConfig { max_bytes: 0, ..self.whole.clone() };
        NamedConfig { whole, ..NamedConfig::new(Vec::new(), vec!["sparse".to_owned()]) }
    }

    /// All keys of the collection in one configuration, as clients know them: those of the tokens and the collection keys.
    pub fn keys(&self) -> DenseConfig {
        self.whole.over(self.tokens.clone())
    }

    /// The bytes that `documents` documents with `tokens` tokens in all count against `max_bytes`: 32 for each document, and
    /// [`DenseConfig::quota_bytes_per_point`] for each token. With encodings a point of the index counts for each document, and `4 dim` for each
    /// token, which only the row of its document holds, or as much as its codes take.
    pub fn quota_bytes(&self, documents: u64, tokens: u64) -> u64 {
        let (row, point) = (self.documents().quota_bytes_per_point(), self.index().quota_bytes_per_point());
        let (per_document, per_token) = match self.tokens.first_stage {
            FirstStage::Tokens => (row, point),
            FirstStage::Encodings(_) => (row + point, self.tokens.token_code.bytes(self.tokens.dim) as u64),
        };
        documents.saturating_mul(per_document).saturating_add(tokens.saturating_mul(per_token))
    }

    /// The configuration of the index, a dense collection: of token vectors, which are compared by cosine, or of encodings, whose inner products
    /// approximate scores.
    pub fn index(&self) -> DenseConfig {
        match self.tokens.first_stage {
            FirstStage::Tokens => DenseConfig { token_code: TokenCode::Float, ..self.tokens.clone() },
            FirstStage::Encodings(_) => DenseConfig {
                token_code: TokenCode::Float,
                dim: self.tokens.indexed_dim(),
                metric: Metric::Dot,
                first_stage: FirstStage::Tokens,
                ..self.tokens.clone()
            },
        }
    }

    /// Whether a collection can be made with it.
    ///
    /// # Errors
    /// The error describes the first value that is invalid, in the terms of the interfaces.
    pub fn validate(&self) -> Result<(), ConfigError> {
        DenseConfig::new(self.tokens.dim, Metric::Cosine).validate()?;
        if let FirstStage::Encodings(config) = self.tokens.first_stage {
            config.validate(self.tokens.dim)?;
        }
        self.index().validate().map_err(|ConfigError(refusal)| match self.tokens.first_stage {
            // Clients have not sent the number of components of an encoding, which such a refusal names.
            FirstStage::Encodings(_) if refusal.contains("Dim") || refusal.contains("components") => {
                ConfigError(format!("{refusal} (an encoding has {} components)", self.tokens.indexed_dim()))
            }
            _ => ConfigError(refusal),
        })?;
        match self.tokens.index {
            IndexType::Gpu => Err(ConfigError("index_type gpu is for dense collections alone".to_owned())),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config_limits::DIM_MAX;
    use super::super::first_stage::EncodingConfig;
    use super::*;
    use crate::quantizer::Quantization;

    impl DenseConfig {
        fn with_bucket(self, dim: usize) -> DenseConfig {
            let encoding = EncodingConfig { dim, ..EncodingConfig::default() };
            DenseConfig { first_stage: FirstStage::Encodings(encoding), ..self }
        }
    }

    #[test]
    fn tokens_are_compared_by_cosine() {
        let config = MultiVectorConfig::new(DenseConfig::new(8, Metric::L2));
        assert_eq!((config.tokens.metric, config.validate()), (Metric::Cosine, Ok(())));
        assert_eq!((config.documents().spaces.len(), config.documents().sparse_spaces.len()), (0, 1));
        let mut limited = config;
        limited.whole = WholeConfig {
            max_vectors: 5,
            max_bytes: 6,
            full_text: Some(crate::text::TextConfig::default()),
            ..WholeConfig::default()
        };
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
        assert_eq!(config.index(), config.tokens);
        let encoding = EncodingConfig { repetitions: 10, bits: 2, dim: 0 };
        let encoded = DenseConfig {
            first_stage: FirstStage::Encodings(encoding),
            ..DenseConfig::new(20, Metric::Cosine)
        };
        let config = MultiVectorConfig::new(encoded.clone());
        let told = FirstStage::Encodings(EncodingConfig { dim: 8, ..encoding });
        assert_eq!((config.tokens.first_stage, config.validate()), (told, Ok(())));
        assert_eq!(config.index(), DenseConfig::new(320, Metric::Dot));
        let of_document = 32 + config.index().quota_bytes_per_point();
        assert_eq!(config.quota_bytes(2, 7), 2 * of_document + 7 * 4 * 20);
        // The quantizer divides the encoding into parts, not the token.
        let product =
            |parts| Quantizer::Trained(Quantization::Product { parts, bits: 8, rotations: 0, eta: 0.0 });
        let divided = |parts| {
            MultiVectorConfig::new(DenseConfig { quant: product(parts), ..encoded.clone() }).validate()
        };
        assert_eq!((divided(64), divided(3).is_err()), (Ok(()), true));
        for (config, fragment) in [
            (DenseConfig { dim: DIM_MAX + 1, ..encoded.clone() }, "invalid Dim: 65537 is not in 1..=65536"),
            (
                DenseConfig { quant: product(3), ..encoded.clone() },
                "3 does not divide 320 (an encoding has 320 components)",
            ),
            (DenseConfig { dim: 7, ..encoded.clone() }.with_bucket(8), "encoding_dim: 8 is more than dim"),
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
