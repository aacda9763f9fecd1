//! Configurations of collections as clients send them, and the objects in configurations that they are told. A JSON body is read here; the
//! binary protocol fills the same settings from its arguments.

use crate::op::{AddSpace, ApiError};
use crate::wire::json::{self, field, field_seed, unknown_field};
use nigh_engine::collection::config_keys::{Family, Ints, Key, Kind, Settings, Value};
use nigh_engine::collection::{
    DenseConfig, MultiVectorConfig, NamedConfig, NamedSpace, SPACES_MAX, WholeConfig,
};
use nigh_engine::quoted::quoted;
use nigh_shard::collection_file::to_json;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::{Map, json};
use std::fmt;

/// A configuration as sent.
#[derive(Default)]
pub struct WireConfig(pub Settings);

impl WireConfig {
    /// The configuration with its defaults. Ranges of what remains are checked by `DenseConfig::validate`.
    ///
    /// # Errors
    /// 400 for unknown names, values out of range, and features this server does not have.
    pub fn into_config(self) -> Result<DenseConfig, ApiError> {
        self.0.config().map_err(|error| ApiError::invalid(error.to_string()))
    }
}

impl<'de> Deserialize<'de> for WireConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut body = WireConfig::default();
        let keys = Key::of(Family::Dense).collect();
        deserializer.deserialize_map(Object { key: None, keys, settings: &mut body.0, sparse: None })?;
        Ok(body)
    }
}

/// An object of keys that the table has, read under the rules of [`json::json_object!`].
struct Object<'s> {
    /// The key that it is the value of.
    key: Option<Key>,
    keys: Vec<Key>,
    settings: &'s mut Settings,
    /// Of a named space: whether it is sparse. In its configuration words may be numbers.
    sparse: Option<&'s mut bool>,
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        if let Some(key) = self.key {
            // Where an object stands twice under one name, the last one replaces the first as a whole.
            self.settings.remove(key);
            self.settings.put(key, Value::Bool(true));
        }
        while let Some(json::Key(name)) = map.next_key()? {
            if let Some(sparse) = &mut self.sparse
                && name.eq_ignore_ascii_case(SPARSE)
            {
                **sparse = field(&mut map, SPARSE)?.unwrap_or(**sparse);
                continue;
            }
            let named = |name: &str| self.keys.iter().copied().find(|key| key.name() == name);
            let folded = name.to_ascii_lowercase();
            let key = named(&name).or_else(|| named(&folded));
            let key = key.ok_or_else(|| {
                let sparse = self.sparse.as_ref().map(|_| SPARSE);
                unknown_field(&folded, self.keys.iter().map(|key| key.name()).chain(sparse))
            })?;
            self.value(key, &mut map)?;
        }
        Ok(())
    }
}

/// The collection keys of a collection of named spaces, as sent in an object of their own.
#[derive(Default)]
pub struct WholeKeys(Settings);

impl<'de> Deserialize<'de> for WholeKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut body = WholeKeys::default();
        let keys = Key::of_whole().collect();
        deserializer.deserialize_map(Object { key: None, keys, settings: &mut body.0, sparse: None })?;
        Ok(body)
    }
}

/// The configuration of a collection of named spaces as sent in one object.
#[derive(Default)]
pub struct NamedConfigBody {
    /// Its spaces.
    pub spaces: SpaceConfigs,
    /// The collection keys.
    pub whole: WholeKeys,
    /// The number of partitions, if it was sent.
    pub partitions: Option<i64>,
}

impl NamedConfigBody {
    /// The keys that the body may have.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        [NAMED_VECTORS, Key::Partitions.name()].into_iter().chain(Key::of_whole().map(Key::name))
    }
}

impl<'de> Deserialize<'de> for NamedConfigBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Body;
        impl<'de> Visitor<'de> for Body {
            type Value = NamedConfigBody;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedConfigBody, A::Error> {
                let mut body = NamedConfigBody::default();
                while let Some(json::Key(name)) = map.next_key()? {
                    let folded = name.to_ascii_lowercase();
                    if folded == NAMED_VECTORS {
                        body.spaces = field(&mut map, NAMED_VECTORS)?.unwrap_or(body.spaces);
                    } else if folded == Key::Partitions.name() {
                        body.partitions = field(&mut map, &folded)?.or(body.partitions);
                    } else {
                        let key = Key::of_whole().find(|key| key.name() == folded);
                        let key = key.ok_or_else(|| unknown_field(&folded, NamedConfigBody::keys()))?;
                        let settings = &mut body.whole.0;
                        Object { key: None, keys: Vec::new(), settings, sparse: None }
                            .value(key, &mut map)?;
                    }
                }
                Ok(body)
            }
        }
        deserializer.deserialize_map(Body)
    }
}

impl Object<'_> {
    /// Reads the value of `key`; `null` counts as if the key were absent.
    fn value<'de, A: MapAccess<'de>>(&mut self, key: Key, map: &mut A) -> Result<(), A::Error> {
        let name = key.name();
        let value = match key.kind() {
            Kind::Bool => field(map, name)?.map(Value::Bool),
            Kind::Int(ints) => integer(ints, name, map)?,
            Kind::Float(_) => field(map, name)?.map(Value::Float),
            Kind::Words(words) if self.sparse.is_some() => {
                match field::<_, WordOrCode>(map, name)? {
                    None => {}
                    Some(WordOrCode::Word(text)) => self.settings.put_word(key, &text),
                    Some(WordOrCode::Code(code)) => {
                        let word = words.iter().find(|word| u64::from(word.code) == code);
                        // Another number is refused with the words that there are, as another word is.
                        let text = word.map_or_else(|| code.to_string(), |word| word.name.to_owned());
                        self.settings.put_word(key, &text);
                    }
                }
                None
            }
            Kind::Words(_) => {
                if let Some(text) = field::<_, String>(map, name)? {
                    self.settings.put_word(key, &text);
                }
                None
            }
            Kind::Object(members) => {
                let object =
                    Object { key: Some(key), keys: members.to_vec(), settings: self.settings, sparse: None };
                field_seed(map, name, object)?;
                None
            }
        };
        if let Some(value) = value {
            self.settings.put(key, value);
        }
        Ok(())
    }
}

/// An integer of a key, `None` when it is `null`.
pub(super) fn integer<'de, A: MapAccess<'de>>(
    ints: Ints,
    name: &str,
    map: &mut A,
) -> Result<Option<Value>, A::Error> {
    let number = match ints {
        Ints::Within(_, most) if most > i64::MAX.into() => field::<_, u64>(map, name)?.map(i128::from),
        _ => field::<_, i64>(map, name)?.map(i128::from),
    };
    Ok(number.map(Value::Int))
}

/// The keys of an object as they were given, `None` where `config` is without.
pub fn object(key: Key, config: &DenseConfig) -> Option<Map<String, serde_json::Value>> {
    let members = key.members().filter(|_| key.get(config) == Some(Value::Bool(true)))?;
    let given = |key: &Key| Some((key.name().to_owned(), to_json(key.get(config)?)));
    Some(members.iter().filter_map(given).collect())
}

/// The key of the spaces of a collection.
pub(super) const NAMED_VECTORS: &str = "named_vectors";

/// The key of a named space that says whether it is sparse.
pub(super) const SPARSE: &str = "sparse";

/// A word, or the number that stands for it.
enum WordOrCode {
    Word(String),
    Code(u64),
}

impl<'de> Deserialize<'de> for WordOrCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = WordOrCode;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a name in quotes")
            }
            fn visit_u64<E>(self, code: u64) -> Result<WordOrCode, E> {
                Ok(WordOrCode::Code(code))
            }
            fn visit_str<E>(self, word: &str) -> Result<WordOrCode, E> {
                Ok(WordOrCode::Word(word.to_owned()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// The configuration of a multi-vector collection as sent.
#[derive(Default)]
pub struct TokensConfig(pub Settings);

impl TokensConfig {
    /// The configuration with its defaults.
    ///
    /// # Errors
    /// 400 for what no collection can have.
    pub fn into_config(self) -> Result<MultiVectorConfig, ApiError> {
        let config = self.0.multi_vector().map_err(|error| ApiError::invalid(error.to_string()))?;
        config.validate().map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok(config)
    }
}

impl<'de> Deserialize<'de> for TokensConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut body = TokensConfig::default();
        let keys = Key::of(Family::MultiVector).collect();
        deserializer.deserialize_map(Object { key: None, keys, settings: &mut body.0, sparse: None })?;
        Ok(body)
    }
}

/// The configuration of a multi-vector collection as answers have it: every key that is set, each word by its name.
pub fn tokens_object(config: &MultiVectorConfig) -> Map<String, serde_json::Value> {
    given_object(Key::of(Family::MultiVector), &config.keys())
}

/// The collection keys of a collection of named spaces that are set.
pub fn whole_object(config: &WholeConfig) -> Map<String, serde_json::Value> {
    given_object(Key::of_whole(), &config.keys())
}

/// Returns the keys that are neither 0 nor off, each word by its name. It leaves out the formats of payloads and of token vectors, and the kind of
/// ids, if these are the default.
fn given_object(keys: impl Iterator<Item = Key>, config: &DenseConfig) -> Map<String, serde_json::Value> {
    let given = |key: Key| {
        let value = key.get(config)?;
        let is_zero = matches!(value, Value::Bool(false) | Value::Int(0)) || value == Value::Float(0.0);
        let is_default = matches!(
            (key, value),
            (Key::PayloadFormat, Value::Word("tagged"))
                | (Key::TokenCodes, Value::Word("none"))
                | (Key::Ids, Value::Word("number"))
        );
        let told = || object(key, config).map_or_else(|| to_json(value), Into::into);
        (!is_zero && !is_default).then(|| (key.name().to_owned(), told()))
    };
    keys.filter_map(given).collect()
}

/// The spaces of a collection as sent, by their names.
#[derive(Default)]
pub struct SpaceConfigs(Vec<(String, SpaceConfig)>);

/// The configuration of a space as sent.
#[derive(Default)]
pub struct SpaceConfig {
    settings: Settings,
    is_sparse: bool,
}

impl SpaceConfigs {
    /// The configuration of the collection, defaults in place.
    ///
    /// # Errors
    /// 400 for what no collection can have; names the space.
    pub fn into_config(self, whole: WholeKeys) -> Result<NamedConfig, ApiError> {
        let (mut spaces, mut sparse_spaces) = (Vec::new(), Vec::new());
        for (name, space) in self.0 {
            if space.is_sparse {
                // The other keys have no effect.
                sparse_spaces.push(name);
                continue;
            }
            let config = space.dense(&name)?;
            spaces.push(NamedSpace::new(name, config));
        }
        let whole = whole.0.whole().map_err(|error| ApiError::invalid(error.to_string()))?;
        let config = NamedConfig { whole, ..NamedConfig::new(spaces, sparse_spaces) };
        config.validate().map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok(config)
    }
}

impl SpaceConfig {
    /// The configuration of a dense space of that name, defaults in place.
    fn dense(self, name: &str) -> Result<DenseConfig, ApiError> {
        self.settings
            .config()
            .map_err(|error| ApiError::invalid(format!("vector: space {}: {}", quoted(name), error.0)))
    }

    /// The request to add a space with this configuration to a collection.
    ///
    /// # Errors
    /// 400 for what no added space can have; names the space.
    pub fn into_added(self, collection: String, space: String) -> Result<AddSpace, ApiError> {
        if space.is_empty() {
            return Err(ApiError::invalid("the name of a space is empty"));
        }
        // The other keys of a sparse space have no effect, as in the configuration that a collection is created with.
        let config = match self.is_sparse {
            true => None,
            false => Some(Box::new(self.dense(&space)?)),
        };
        Ok(AddSpace { collection, space, config })
    }
}

impl<'de> Deserialize<'de> for SpaceConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut space = SpaceConfig::default();
        let keys = Key::of(Family::Named).collect();
        let sparse = Some(&mut space.is_sparse);
        deserializer.deserialize_map(Object { key: None, keys, settings: &mut space.settings, sparse })?;
        Ok(space)
    }
}

impl<'de> Deserialize<'de> for SpaceConfigs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Spaces;
        impl<'de> Visitor<'de> for Spaces {
            type Value = SpaceConfigs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of spaces by their names")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SpaceConfigs, A::Error> {
                let mut spaces: Vec<(String, SpaceConfig)> = Vec::new();
                while let Some(json::Key(name)) = map.next_key()? {
                    let mut space = SpaceConfig::default();
                    let keys = Key::of(Family::Named).collect();
                    let sparse = Some(&mut space.is_sparse);
                    let object = Object { key: None, keys, settings: &mut space.settings, sparse };
                    field_seed(&mut map, &name, object)?;
                    match spaces.iter().position(|(other, _)| *other == name) {
                        Some(at) => spaces[at].1 = space,
                        // One more is refused by name later; nobody is to look through many names for each.
                        None if spaces.len() > SPACES_MAX => {}
                        None => spaces.push((name.into_owned(), space)),
                    }
                }
                Ok(SpaceConfigs(spaces))
            }
        }
        deserializer.deserialize_map(Spaces)
    }
}

/// The spaces of a collection by their names, each with its configuration: of a sparse one only that it is sparse.
pub fn spaces_object(config: &NamedConfig) -> Map<String, serde_json::Value> {
    let dense = config.dense_spaces().map(|space| (space.name.clone(), space_object(&space.config).into()));
    let sparse = config.sparse_names().map(|name| (name.to_owned(), json!({ "dim": 0, "sparse": true })));
    dense.chain(sparse).collect()
}

/// The configuration of a dense space as answers have it: `dim`, and every other key that is not 0. Words are numbers.
fn space_object(config: &DenseConfig) -> Map<String, serde_json::Value> {
    let given = |key: Key| {
        let value = match key.get(config)? {
            Value::Word(name) => Value::Int(key.words().iter().find(|word| word.name == name)?.code.into()),
            value => value,
        };
        let is_zero = matches!(value, Value::Bool(false) | Value::Int(0)) || value == Value::Float(0.0);
        (key == Key::Dim || !is_zero).then(|| (key.name().to_owned(), to_json(value)))
    };
    Key::of(Family::Named).filter_map(given).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json::decode;
    use nigh_engine::collection::{Drift, IndexType, IvfConfig, IvfProduct, Quantizer, VamanaConfig};
    use nigh_engine::distance::{Metric, Width};
    use nigh_engine::quantizer::{CellProduct, Quantization};

    fn config(json: &str) -> Result<DenseConfig, String> {
        decode::<WireConfig>(json.as_bytes()).and_then(WireConfig::into_config).map_err(|error| error.message)
    }

    #[test]
    fn what_clients_always_send() {
        let config = config(
            r#"{"dim":8,"metric":"l2","m":0,"ef_construction":-1,"ef_search":100,"seed":-5,"quant":"",
                "persistent":false,"rescore_factor":3}"#,
        )
        .unwrap();
        assert_eq!((config.dim, config.metric), (8, Metric::L2));
        assert_eq!((config.m, config.ef_construction, config.ef_search, config.seed), (16, 200, 100, -5));
    }

    #[test]
    fn aliases_defaults_and_quotas() {
        for (name, metric) in [
            ("", Metric::Cosine),
            ("ip", Metric::Dot),
            ("dotproduct", Metric::Dot),
            ("euclidean", Metric::L2),
        ] {
            assert_eq!(config(&format!(r#"{{"dim":1,"metric":"{name}"}}"#)).unwrap().metric, metric);
        }
        let made = config(
            r#"{"dim":1,"index_type":"hnsw","quant":"none","partitions":1,"full_text":null,"sq_bits":8,
                "max_vectors":5,"max_bytes":6,"max_inserts_per_second":7,"max_ef_search":8}"#,
        )
        .unwrap();
        assert_eq!(
            (made.max_vectors, made.max_bytes, made.max_inserts_per_second, made.max_ef_search),
            (5, 6, 7, 8)
        );
    }

    #[test]
    fn quantizers() {
        let made = config(r#"{"dim":1,"quant":"sq8","rescore_factor":4,"quantized_build":true}"#).unwrap();
        assert_eq!((made.quant, made.rescore_factor, made.quantized_build), (Quantizer::Sq8, 4, true));
        let made = config(r#"{"dim":1,"rescore_factor":4}"#).unwrap();
        assert_eq!((made.quant, made.rescored_per_result()), (Quantizer::None, 0));
        for (json, quantization) in [
            (r#"{"dim":48,"quant":"bq1"}"#, Quantization::Sign),
            (r#"{"dim":48,"quant":"sq"}"#, Quantization::Scalar { width: Width::Eight }),
            (r#"{"dim":48,"quant":"sq","sq_bits":6}"#, Quantization::Scalar { width: Width::Six }),
            (
                r#"{"dim":48,"quant":"pq"}"#,
                Quantization::Product { parts: 6, bits: 8, rotations: 0, eta: 0.0 },
            ),
            (
                r#"{"dim":48,"quant":"pq","quant_pq_m":12,"pq_nbits":4,"opq":true,"anisotropic_eta":2.5}"#,
                Quantization::Product { parts: 12, bits: 4, rotations: 1, eta: 2.5 },
            ),
            (
                r#"{"dim":48,"quant":"prq","opq":true,"opq_iters":4,"ivf_train_threshold":9}"#,
                Quantization::Residual { parts: 6, layers: 2, rotations: 4 },
            ),
        ] {
            let made = config(json).unwrap();
            assert_eq!(made.quant, Quantizer::Trained(quantization), "{json}");
            assert_eq!(made.validate(), Ok(()));
            assert_eq!(made.trained_at(), if json.contains("threshold") { 9 } else { 2048 });
        }
    }

    #[test]
    fn graphs_of_one_level() {
        for name in ["vamana", "diskann"] {
            let made = config(&format!(r#"{{"dim":1,"index_type":"{name}","ef_search":50}}"#)).unwrap();
            assert_eq!(made.index, IndexType::Vamana(VamanaConfig::default()));
            assert_eq!((made.beam(), made.build_beam(), made.validate()), (100, 200, Ok(())));
        }
        let json = r#"{"dim":1,"index_type":"vamana","vamana_r":32,"vamana_l":250,"vamana_alpha":1.5}"#;
        let made = config(json).unwrap();
        assert_eq!(made.index, IndexType::Vamana(VamanaConfig { degree: 32, beam: 250, alpha: 1.5 }));
        assert_eq!((made.beam(), made.build_beam()), (250, 250));
        for wrong in [r#""vamana_r":101"#, r#""vamana_l":63"#, r#""vamana_alpha":0.5"#] {
            let made = config(&format!(r#"{{"dim":1,"index_type":"vamana",{wrong}}}"#)).unwrap();
            assert!(made.validate().unwrap_err().to_string().contains("invalid Vamana params"), "{wrong}");
        }
    }

    #[test]
    fn cells() {
        for name in ["ivf", "ivf-flat", "ivfflat"] {
            let made =
                config(&format!(r#"{{"dim":1,"index_type":"{name}","ivf_rerank":true,"quant":"sq8"}}"#))
                    .unwrap();
            assert_eq!(made.ivf(), Some(&IvfConfig::default()));
        }
        let made = config(
            r#"{"dim":1,"index_type":"ivf","ivf_nlist":3,"ivf_nprobe":4,"ivf_train_threshold":5,"soar":true,
                "soar_lambda":0.5,"ivf_drift_retrain":true,"ivf_drift_growth_factor":1.5,"ivf_drift_factor":0}"#,
        )
        .unwrap();
        let drift = Some(Drift { growth: 1.5, factor: 0.0 });
        let all =
            IvfConfig { nlist: 3, nprobe: 4, train_threshold: 5, drift, soar: Some(0.5), product: None };
        assert_eq!(made.ivf(), Some(&all));
        for (json, code, rerank) in [
            (r#""ivf_rerank":true"#, CellProduct { parts: 6, bits: 8, rotations: 0, eta: 0.0 }, true),
            (
                r#""ivf_pq_m":12,"pq_nbits":4,"opq":true,"opq_iters":3,"anisotropic_eta":2.5,"quant_pq_m":7"#,
                CellProduct { parts: 12, bits: 4, rotations: 3, eta: 2.5 },
                false,
            ),
        ] {
            let made = config(&format!(r#"{{"dim":48,"index_type":"ivf","ivf_pq":true,{json}}}"#)).unwrap();
            assert_eq!(made.ivf().unwrap().product, Some(IvfProduct { code, rerank }));
            assert_eq!(made.validate(), Ok(()));
        }
        let made = config(r#"{"dim":48,"index_type":"ivf","ivf_pq":true,"ivf_pq_m":7}"#).unwrap();
        assert!(made.validate().unwrap_err().to_string().contains("IVFPQM must be"));
        let graph = config(r#"{"dim":1,"ivf_nlist":3,"ivf_drift_retrain":true}"#).unwrap();
        assert_eq!(graph.ivf(), None);
    }

    #[test]
    fn full_text() {
        let text = |json: &str| {
            config(&format!(r#"{{"dim":1,"full_text":{json}}}"#))
                .unwrap()
                .full_text
                .map(|text| (text.k1, text.b))
        };
        assert_eq!(text("null"), None);
        assert_eq!(text("{}"), Some((1.2, 0.75)));
        assert_eq!(text(r#"{"analyzer":"","k1":0,"b":-1}"#), Some((1.2, 0.75)));
        assert_eq!(text(r#"{"analyzer":"english","k1":0.9,"b":0.4}"#), Some((0.9, 0.4)));
    }

    #[test]
    fn refusals() {
        for (json, fragment) in [
            (r#"{"dim":-1}"#, "dim"),
            (
                r#"{"dim":1,"metric":"Cosine"}"#,
                "unknown metric \"Cosine\"; it must be one of cosine, l2, euclidean, dot, dotproduct, ip",
            ),
            (
                r#"{"dim":1,"quant":"zip"}"#,
                "unknown quant \"zip\"; it must be one of none, sq8, bq1, sq, pq, prq",
            ),
            (r#"{"dim":1,"quant":"sq","pq_drop_vecs":true}"#, "PQDropVecs requires"),
            (r#"{"dim":1,"quant":"sq","opq":true}"#, "OPQ requires"),
            (r#"{"dim":1,"quant":"sq8","traversal_codes":false}"#, "invalid traversal_codes"),
            (r#"{"dim":1,"quant":"sq8","rescore_factor":-1}"#, "invalid rescore_factor"),
            (r#"{"dim":1,"quantized_build":true}"#, "quantized_build: needs a quantizer"),
            (r#"{"dim":1,"ivf_pq":true}"#, "IVFPQ requires"),
            (r#"{"dim":1,"ivf_pq_m":-1}"#, "IVFPQM must be"),
            (r#"{"dim":1,"pq_nbits":5}"#, "PQNBits must be"),
            (r#"{"dim":1,"index_type":"ivf","full_text":{}}"#, "invalid full_text"),
            (r#"{"dim":1,"ivf_rerank":true}"#, "invalid ivf_rerank"),
            (r#"{"dim":1,"index_type":"ivf","ivf_nprobe":-1}"#, "invalid ivf_nprobe"),
            (r#"{"dim":1,"index_type":"vamana","vamana_r":-1}"#, "vamana_r"),
            (
                r#"{"dim":1,"index_type":"tree"}"#,
                "unknown index_type \"tree\"; it must be one of hnsw, vamana, diskann, ivf, ivf-flat, ivfflat, gpu",
            ),
            (r#"{"dim":1,"partitions":4}"#, "does not offer partitions"),
            (r#"{"dim":1,"partitions":-4}"#, "partitions"),
            (
                r#"{"dim":1,"full_text":{"analyzer":"klingon"}}"#,
                "unknown analyzer \"klingon\"; it must be one of english, arabic, danish, dutch, finnish, french, german, greek, \
                 hungarian, italian, norwegian, portuguese, romanian, russian, spanish, swedish, tamil, turkish, cjk, folding",
            ),
            (r#"{"dim":1,"full_text":{"k1":1e39}}"#, "full_text.k1"),
            (r#"{"dim":1,"full_text":{"lang":"en"}}"#, "unknown field \"lang\""),
            (r#"{"dim":1,"soar":true}"#, "soar"),
            (r#"{"dim":1,"opq":true}"#, "opq"),
            (r#"{"dim":1,"opq_iters":21}"#, "opq_iters"),
            (r#"{"dim":1,"sq_bits":5}"#, "sq_bits"),
            (r#"{"dim":1,"anisotropic_eta":-0.5}"#, "anisotropic_eta"),
            (r#"{"dim":1,"ivf_drift_factor":1}"#, "ivf_drift_factor"),
            (r#"{"dim":1,"filter_first_relative_bp":10001}"#, "filter_first_relative_bp"),
            (r#"{"dim":"8"}"#, "field \"dim\""),
            (r#"{"dim":1,"wat":1}"#, "unknown field \"wat\""),
        ] {
            let message = config(json).expect_err(json);
            assert!(message.contains(fragment), "{json}: {message}");
        }
    }
}
