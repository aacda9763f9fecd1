//! How the documents of a multi-vector collection are found before they are scored.
use super::config_limits::{ConfigError, DIM_MAX};

/// Most repetitions of an encoding.
pub const REPETITIONS_MAX: usize = 64;
/// Most hyperplanes of a repetition, which make 1,024 buckets.
pub const BITS_MAX: u32 = 10;
/// Most components of all hyperplanes of a collection together: 4 MiB of floats, which are made in some milliseconds.
const PLANES_MAX: usize = 1 << 20;
/// Components of a bucket, unless they are configured.
const BUCKET_DIM: usize = 8;

/// What the index of a multi-vector collection holds for each document. Searches find candidates by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstStage {
    /// The vector of each of its tokens.
    #[default]
    Tokens,
    /// One encoding of all tokens of the document.
    Encodings(EncodingConfig),
}

/// The shape of fixed-dimensional encodings (MUVERA, arXiv:2405.19504).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodingConfig {
    /// The number of repetitions, each with its own hyperplanes, 1..=[`REPETITIONS_MAX`].
    pub repetitions: usize,
    /// Random hyperplanes of a repetition, which make `2^bits` buckets, 1..=[`BITS_MAX`].
    pub bits: u32,
    /// Components that stand for a bucket, at most those of a token; 0 = 8, or those of a token if they are fewer.
    pub dim: usize,
}

impl Default for EncodingConfig {
    fn default() -> EncodingConfig {
        EncodingConfig { repetitions: 20, bits: 3, dim: 0 }
    }
}

impl EncodingConfig {
    /// Replaces `dim` 0 by its default for tokens of `dim` components.
    pub fn resolved(self, dim: usize) -> EncodingConfig {
        EncodingConfig { dim: if self.dim == 0 { BUCKET_DIM.min(dim) } else { self.dim }, ..self }
    }

    /// Components of the encoding of a document whose tokens have `dim` components.
    pub fn components(self, dim: usize) -> usize {
        let buckets = 1_usize.checked_shl(self.bits).unwrap_or(usize::MAX);
        self.repetitions.saturating_mul(buckets).saturating_mul(self.resolved(dim).dim)
    }

    /// Whether tokens of `dim` components can be encoded like this.
    ///
    /// # Errors
    /// Names the key, its value, and what is allowed.
    pub fn validate(self, dim: usize) -> Result<(), ConfigError> {
        let EncodingConfig { repetitions, bits, dim: bucket } = self.resolved(dim);
        let refuse = |text: String| Err(ConfigError(text));
        if !(1..=REPETITIONS_MAX).contains(&repetitions) {
            return refuse(format!(
                "invalid encoding_repetitions: must be between 1 and {REPETITIONS_MAX}, found {repetitions}"
            ));
        }
        if !(1..=BITS_MAX).contains(&bits) {
            return refuse(format!("invalid encoding_bits: must be between 1 and {BITS_MAX}, found {bits}"));
        }
        if bucket > dim {
            return refuse(format!("invalid encoding_dim: {bucket} is more than dim, which is {dim}"));
        }
        let components = self.components(dim);
        if components > DIM_MAX {
            return refuse(format!(
                "invalid encoding_dim: an encoding would have {components} components (encoding_repetitions {repetitions} * 2^{bits} \
                 buckets * encoding_dim {bucket}); at most {DIM_MAX} are possible"
            ));
        }
        let planes = repetitions * bits as usize * dim;
        if planes > PLANES_MAX {
            return refuse(format!(
                "invalid encoding_repetitions: the hyperplanes would have {planes} components (encoding_repetitions {repetitions} * \
                 encoding_bits {bits} * dim {dim}); at most {PLANES_MAX} are possible"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_bounded() {
        let config = |repetitions, bits, dim| EncodingConfig { repetitions, bits, dim };
        assert_eq!(EncodingConfig::default().resolved(96).dim, 8);
        assert_eq!(config(1, 1, 0).resolved(3).dim, 3);
        assert_eq!(config(20, 2, 8).components(96), 640);
        for (config, dim, fragment) in [
            (config(0, 2, 8), 96, "encoding_repetitions: must be between 1 and 64, found 0"),
            (config(65, 2, 8), 96, "encoding_repetitions: must be between 1 and 64, found 65"),
            (config(20, 0, 8), 96, "encoding_bits: must be between 1 and 10, found 0"),
            (config(20, 11, 8), 96, "encoding_bits: must be between 1 and 10, found 11"),
            (config(20, 2, 97), 96, "encoding_dim: 97 is more than dim, which is 96"),
            (config(20, 10, 4), 96, "encoding_dim: an encoding would have 81920 components"),
            (config(64, 10, 1), 2000, "encoding_repetitions: the hyperplanes would have 1280000 components"),
        ] {
            let refused = config.validate(dim).unwrap_err().to_string();
            assert!(refused.contains(fragment), "{refused}");
        }
        for (config, dim) in [(config(64, 10, 1), 96), (config(1, 1, 0), 1), (config(16, 8, 16), 96)] {
            assert_eq!(config.validate(dim), Ok(()));
        }
    }
}
