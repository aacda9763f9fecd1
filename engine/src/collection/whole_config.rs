//! Configuration of a whole collection, for the families whose spaces or tokens have configurations of their own.
use super::config::DenseConfig;
use crate::distance::Metric;
use crate::payload::PayloadFormat;
use crate::point_id::IdKind;
use crate::text::TextConfig;

/// Quotas, full text, payload format and kind of ids of a collection of named spaces or of a multi-vector collection. By default there are no quotas
/// and no texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WholeConfig {
    /// The most points; 0 = any number.
    pub max_vectors: u64,
    /// The most bytes, by the formula of the family; 0 = any number.
    pub max_bytes: u64,
    /// The most points or documents written per second; 0 = any number.
    pub max_inserts_per_second: u64,
    /// How the texts of points are analyzed and ranked; `None` where texts are not searched.
    pub full_text: Option<TextConfig>,
    /// How payloads are sent and answered.
    pub payload_format: PayloadFormat,
    /// The kind of ids.
    pub ids: IdKind,
}

impl WholeConfig {
    /// Takes these values out of the configuration of a dense collection, which has all keys.
    pub fn of(config: DenseConfig) -> WholeConfig {
        let DenseConfig {
            max_vectors,
            max_bytes,
            max_inserts_per_second,
            full_text,
            payload_format,
            ids,
            ..
        } = config;
        WholeConfig { max_vectors, max_bytes, max_inserts_per_second, full_text, payload_format, ids }
    }

    /// The configuration of a dense collection that has these values and is otherwise as by default. [`super::config_keys::Key`] reads and writes
    /// configurations of dense collections alone.
    pub fn keys(&self) -> DenseConfig {
        self.over(DenseConfig::new(1, Metric::Cosine))
    }

    /// `config` with these values.
    pub(super) fn over(&self, config: DenseConfig) -> DenseConfig {
        let WholeConfig { max_vectors, max_bytes, max_inserts_per_second, full_text, payload_format, ids } =
            self.clone();
        DenseConfig {
            max_vectors,
            max_bytes,
            max_inserts_per_second,
            full_text,
            payload_format,
            ids,
            ..config
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collection::config_keys::Key;

    #[test]
    fn its_keys_are_those_of_the_table() {
        let whole = WholeConfig {
            max_vectors: 3,
            max_bytes: 4,
            max_inserts_per_second: 5,
            full_text: Some(TextConfig::default()),
            payload_format: PayloadFormat::Plain,
            ids: IdKind::String,
        };
        let keys = whole.keys();
        assert_eq!((WholeConfig::of(keys.clone()), keys.validate()), (whole, Ok(())));
        let plain = WholeConfig::default().keys();
        let changed: Vec<Key> =
            Key::ALL.iter().copied().filter(|key| key.get(&keys) != key.get(&plain)).collect();
        let named: Vec<Key> =
            Key::of_whole().flat_map(|key| [&[key], key.members().unwrap_or_default()].concat()).collect();
        assert_eq!(
            changed, named,
            "every key of the table that is marked lies in this configuration, and no other"
        );
    }
}
