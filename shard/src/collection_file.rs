//! `collection.json`: a collection's identity and configuration, written at create and replaced when the configuration is changed, or when a named
//! space is added or dropped.
//!
//! The layout is older than the table of keys: values of quantizers, indexes and full text lie in objects and under names of their own, and
//! floats by their bits, which no way through decimals can change. Keys that it does not name lie behind it under their own names, and
//! are left out while they hold the default, so that files from before they came keep their checksums.

use crate::family::CollectionConfig;
use crate::sealed_json::{self, Layout, Unreadable};
use Form::{Bits32, Bits64, First, Object, Own};
use When::{Always, Changed, Is};
use nigh_engine::collection::config_keys::{Key, Kind, Settings, Value};
use nigh_engine::collection::{
    DenseConfig, MultiVectorConfig, NamedConfig, NamedSpace, NamedSparseSpace, WholeConfig,
};
use nigh_engine::distance::Metric;
use nigh_engine::payload::PayloadFormat;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

/// File name inside the collection's directory.
pub const FILE: &str = "collection.json";
/// Newest format this build reads.
pub const FORMAT: u32 = 6;
/// The format that this build writes for a dense collection, which earlier builds read as well.
const FORMAT_DENSE: u32 = 1;
/// The format that this build writes for a collection of named spaces.
const FORMAT_NAMED: u32 = 2;
/// The field that only the file of a collection of named spaces has.
const NAMED: &str = "named_vectors";
/// The format that this build writes for a multi-vector collection.
const FORMAT_MULTI_VECTOR: u32 = 3;
/// The format that this build writes for a collection of named spaces of which a dense one was dropped (and no sparse one): earlier
/// builds would treat that space as present.
const FORMAT_DROPPED: u32 = 4;
/// The format that this build writes for a collection with plain payloads, whose rows earlier builds cannot read.
const FORMAT_PLAIN: u32 = 5;
/// The format that this build writes for a collection of named spaces of which a sparse one was dropped: earlier builds would find its vectors in the
/// rows of points.
const FORMAT_DROPPED_SPARSE: u32 = 6;
/// The field of a space that was dropped, beside its name.
const DROPPED: &str = "dropped";
/// The field that only the file of a multi-vector collection has.
const TOKENS: &str = "tokens";

#[derive(Serialize, Deserialize)]
struct File {
    uid: u64,
    name: String,
    #[serde(flatten)]
    config: Map<String, Json>,
}

/// A part of the file: its name, when it is there, and what it holds.
struct Part(&'static str, When, Form);

enum When {
    Always,
    /// When it does not hold the default.
    Changed,
    /// When the key has one of these values. That there is only one is enough to know it.
    Is(Key, &'static [Value]),
}

enum Form {
    /// Each of these under its own name; the part has none.
    Own(&'static [Key]),
    /// The first of these that concerns the configuration, else 0.
    First(&'static [Key]),
    /// The bits of a float of 32 bits.
    Bits32(Key),
    /// The bits of a float of 64 bits, or an array of the bits of several.
    Bits64(&'static [Key]),
    Object(&'static [Part]),
}

#[rustfmt::skip]
const LAYOUT: &[Part] = {
    use Key::*;
    use Value::{Bool, Word};
    const ROTATIONS: Part = Part("rotations", Always, First(&[OpqIters, Opq]));
    const ETA: Part = Part("eta_bits", Always, Bits32(AnisotropicEta));
    const ALL: &[Value] = &[Word("sq8"), Word("bq1"), Word("sq"), Word("pq"), Word("prq")];
    &[
        Part("", Always, Own(&[Dim, Metric, M, EfConstruction, EfSearch, Seed, Level0FullDegree, ExtendCandidates,
            ExtendCandidatesMax, MaxVectors, MaxBytes, MaxInsertsPerSecond, MaxEfSearch])),
        Part("filter_first_relative_bp", Changed, First(&[FilterFirstRelativeBp])),
        Part("traversal_codes", Changed, First(&[TraversalCodes])),
        Part("quant", Is(Quant, ALL), Object(&[
            Part("name", Always, First(&[Quant])),
            Part("", Always, Own(&[RescoreFactor, QuantizedBuild])),
            Part("trained", Is(Quant, ALL.split_at(1).1), Object(&[
                Part("bits", Always, First(&[SqBits, PqNbits])),
                Part("parts", Always, First(&[QuantPqM])),
                Part("layers", Always, First(&[PrqLayers])),
                ROTATIONS,
                ETA,
                Part("threshold", Always, First(&[IvfTrainThreshold])),
                Part("drops_vectors", Changed, First(&[PqDropVecs])),
            ])),
        ])),
        Part("persistent", Changed, First(&[Persistent])),
        // Others than this one and the default are told by their objects.
        Part("index_type", Is(IndexType, &[Word("gpu")]), First(&[IndexType])),
        FULL_TEXT,
        Part("ivf", Is(IndexType, &[Word("ivf")]), Object(&[
            Part("nlist", Always, First(&[IvfNlist])),
            Part("nprobe", Always, First(&[IvfNprobe])),
            Part("train_threshold", Always, First(&[IvfTrainThreshold])),
            Part("drift_growth_and_factor_bits", Is(IvfDriftRetrain, &[Bool(true)]),
                Bits64(&[IvfDriftGrowthFactor, IvfDriftFactor])),
            Part("soar_lambda_bits", Is(Soar, &[Bool(true)]), Bits64(&[SoarLambda])),
            Part("product", Is(IvfPq, &[Bool(true)]), Object(&[
                Part("parts", Always, First(&[IvfPqM])),
                Part("bits", Always, First(&[PqNbits])),
                ROTATIONS,
                ETA,
                Part("rerank", Always, First(&[IvfRerank])),
            ])),
        ])),
        Part("vamana", Is(IndexType, &[Word("vamana")]), Object(&[
            Part("degree", Always, First(&[VamanaR])),
            Part("beam", Always, First(&[VamanaL])),
            Part("alpha_bits", Always, Bits32(VamanaAlpha)),
        ])),
    ]
};

const FULL_TEXT: Part = Part(
    "full_text",
    Is(Key::FullText, &[Value::Bool(true)]),
    Object(&[
        Part("", Always, Own(&[Key::Analyzer])),
        Part("k1_bits", Always, Bits32(Key::K1)),
        Part("b_bits", Always, Bits32(Key::B)),
    ]),
);

/// The kind of ids. A build that does not know it refuses the file: it would answer numbers.
const IDS: Part = Part("ids", Changed, First(&[Key::Ids]));

/// The limit on the rate of writes. A build that does not know this key refuses the file, because it would accept writes at any rate.
const MAX_INSERTS: Part = Part("max_inserts_per_second", Changed, First(&[Key::MaxInsertsPerSecond]));

const PAYLOAD_FORMAT: Part = Part("payload_format", Changed, First(&[Key::PayloadFormat]));

/// The collection keys of a collection of named spaces. Together with [`OF_DOCUMENTS`] these layouts have every key marked `of_whole`: a key that
/// is missing here is lost at a restart.
const OF_NAMED: &[Part] =
    &[Part("", Always, Own(&[Key::MaxVectors, Key::MaxBytes])), MAX_INSERTS, FULL_TEXT, PAYLOAD_FORMAT, IDS];

/// The collection keys of a multi-vector collection.
const OF_DOCUMENTS: &[Part] = &[
    Part("max_vectors", Changed, First(&[Key::MaxVectors])),
    Part("max_bytes", Changed, First(&[Key::MaxBytes])),
    MAX_INSERTS,
    FULL_TEXT,
    PAYLOAD_FORMAT,
    IDS,
];

impl Part {
    /// Its keys, and those that it stands for by being there.
    fn keys(&self) -> Vec<Key> {
        let stands_for = if let Is(key, [_]) = self.1 { Some(key) } else { None };
        let held = match self.2 {
            Own(keys) | First(keys) | Bits64(keys) => keys.to_vec(),
            Bits32(key) => vec![key],
            Object(parts) => parts.iter().flat_map(Part::keys).collect(),
        };
        stands_for.into_iter().chain(held).collect()
    }

    fn is_there(&self, config: &DenseConfig) -> bool {
        match self.1 {
            Always => true,
            Changed => self.keys().iter().any(|key| {
                let value = key.get(config);
                value.is_some() && value != key.get(&DenseConfig::new(0, Metric::Cosine))
            }),
            Is(key, values) => key.get(config).is_some_and(|value| values.contains(&value)),
        }
    }
}

/// A part for each key that `layout` does not name, in an order in which they can be set.
fn unnamed(layout: &[Part]) -> Vec<Part> {
    let named: Vec<Key> = layout.iter().flat_map(Part::keys).collect();
    let is_first = |key: &&Key| **key == Key::Dim || Settings::SHAPE.contains(*key);
    let (first, rest): (Vec<_>, Vec<_>) = Key::ALL.iter().partition(is_first);
    let keys = first.into_iter().chain(rest).filter(|key| !named.contains(*key));
    keys.map(|key| Part(key.name(), Changed, First(std::slice::from_ref(key)))).collect()
}

/// A value of a key in JSON.
pub fn to_json(value: Value) -> Json {
    match value {
        Value::Bool(flag) => flag.into(),
        // The table has integers of 64 bits.
        Value::Int(number) => u64::try_from(number).map_or_else(|_| (number as i64).into(), Into::into),
        Value::Float(number) => number.into(),
        Value::Word(name) => name.into(),
    }
}

fn put<'p>(parts: impl IntoIterator<Item = &'p Part>, config: &DenseConfig, file: &mut Map<String, Json>) {
    let value = |key: Key| key.get(config).unwrap_or(key.zero());
    let float = |key: Key| value(key).as_float().unwrap_or_default();
    for part in parts.into_iter().filter(|part| part.is_there(config)) {
        let content = match part.2 {
            Own(keys) => {
                file.extend(keys.iter().map(|key| (key.name().to_owned(), to_json(value(*key)))));
                continue;
            }
            First(keys) => to_json(keys.iter().find_map(|key| key.get(config)).unwrap_or(keys[0].zero())),
            Bits32(key) => (float(key) as f32).to_bits().into(),
            Bits64(&[key]) => float(key).to_bits().into(),
            Bits64(keys) => keys.iter().map(|key| float(*key).to_bits()).collect(),
            Object(parts) => {
                let mut object = Map::new();
                put(parts, config, &mut object);
                object.into()
            }
        };
        file.insert(part.0.to_owned(), content);
    }
}

fn damaged(reason: &str) -> Unreadable {
    Unreadable::Damaged(format!("not a collection file: {reason}"))
}

fn set(config: &mut DenseConfig, key: Key, json: &Json) -> Result<(), Unreadable> {
    let number = || json.as_u64().map(i128::from).or(json.as_i64().map(i128::from));
    let value = match key.kind() {
        // A number says yes when it is not 0.
        Kind::Bool | Kind::Object(_) => json.as_bool().or_else(|| Some(number()? != 0)).map(Value::Bool),
        Kind::Int(_) => number().map(Value::Int),
        Kind::Float(_) => json.as_f64().map(Value::Float),
        Kind::Words(words) => words.iter().find(|word| json == word.name).map(|word| Value::Word(word.name)),
    };
    match value.is_some_and(|value| key.set(config, value)) {
        true => Ok(()),
        false => Err(Unreadable::Damaged(format!("unknown {} {json}", key.name()))),
    }
}

/// Takes parts out of a file and into a configuration.
fn take<'p>(
    parts: impl IntoIterator<Item = &'p Part>,
    file: &mut Map<String, Json>,
    config: &mut DenseConfig,
) -> Result<(), Unreadable> {
    for part in parts {
        let Part(name, when, form) = part;
        let missing = |name: &str| damaged(&format!("missing field `{name}`"));
        if let Own(keys) = form {
            for key in *keys {
                let value = file.shift_remove(key.name()).ok_or_else(|| missing(key.name()))?;
                set(config, *key, &value)?;
            }
            continue;
        }
        let Some(mut content) = file.shift_remove(*name) else {
            match when {
                Always => return Err(missing(name)),
                Is(key, _) if part.is_there(config) => {
                    return Err(damaged(&format!("{} without {name}", key.name())));
                }
                _ => continue,
            }
        };
        if let Is(key, [value]) = when {
            set(config, *key, &to_json(*value))?;
        }
        match form {
            Own(keys) | First(keys) => keys.iter().try_for_each(|key| set(config, *key, &content))?,
            Bits32(key) => {
                let bits = content.as_u64().and_then(|bits| u32::try_from(bits).ok());
                let bits = bits.ok_or_else(|| damaged(name))?;
                set(config, *key, &f64::from(f32::from_bits(bits)).into())?;
            }
            Bits64(keys) => {
                let bits = content.as_array().map_or(std::slice::from_ref(&content), Vec::as_slice);
                for (place, key) in keys.iter().enumerate() {
                    let bits = bits.get(place).and_then(Json::as_u64).ok_or_else(|| damaged(name))?;
                    set(config, *key, &f64::from_bits(bits).into())?;
                }
            }
            Object(parts) => {
                let object = content.as_object_mut().ok_or_else(|| damaged(name))?;
                take(*parts, object, config)?;
                end(object)?;
            }
        }
        if matches!(when, Is(..)) && !part.is_there(config) {
            return Err(damaged(&format!("{name} with {}", to_json(Key::Quant.effective(config)))));
        }
    }
    Ok(())
}

/// Nothing may be left: with a key that this build does not know the configuration is another one.
fn end(file: &Map<String, Json>) -> Result<(), Unreadable> {
    file.keys().next().map_or(Ok(()), |name| Err(damaged(&format!("unknown field `{name}`"))))
}

fn encoded(layout: &[Part], config: &DenseConfig) -> Map<String, Json> {
    let mut file = Map::new();
    put(layout, config, &mut file);
    put(&unnamed(layout), config, &mut file);
    file
}

fn taken(layout: &[Part], mut file: Map<String, Json>) -> Result<DenseConfig, Unreadable> {
    let mut config = DenseConfig::new(0, Metric::Cosine);
    take(layout, &mut file, &mut config)?;
    take(&unnamed(layout), &mut file, &mut config)?;
    end(&file)?;
    Ok(config)
}

fn decoded(layout: &[Part], file: Map<String, Json>) -> Result<DenseConfig, Unreadable> {
    let config = taken(layout, file)?;
    config.validate().map_err(|error| Unreadable::Damaged(error.to_string()))?;
    Ok(config)
}

/// Takes the collection keys, which are all that is left.
fn taken_whole(layout: &[Part], mut file: Map<String, Json>) -> Result<WholeConfig, Unreadable> {
    let mut config = WholeConfig::default().keys();
    take(layout, &mut file, &mut config)?;
    end(&file)?;
    Ok(WholeConfig::of(config))
}

/// Encodes a collection's file.
pub fn encode(uid: u64, name: &str, config: &CollectionConfig) -> Vec<u8> {
    let is_plain = config.payload_format() == PayloadFormat::Plain;
    let (format, config) = match config {
        CollectionConfig::Dense(config) => (FORMAT_DENSE, encoded(LAYOUT, config)),
        CollectionConfig::Named(config) => {
            let format = match () {
                () if config.sparse_spaces.iter().any(|space| space.is_dropped) => FORMAT_DROPPED_SPARSE,
                () if config.spaces.iter().any(|space| space.is_dropped) => FORMAT_DROPPED,
                () => FORMAT_NAMED,
            };
            (format, encoded_named(config))
        }
        CollectionConfig::MultiVector(config) => {
            let mut file = Map::from_iter([(TOKENS.to_owned(), encoded(&[], &config.tokens).into())]);
            put(OF_DOCUMENTS, &config.whole.keys(), &mut file);
            (FORMAT_MULTI_VECTOR, file)
        }
    };
    let format = if is_plain { format.max(FORMAT_PLAIN) } else { format };
    sealed_json::encode(format, File { uid, name: name.to_owned(), config }, Layout::Lines)
}

/// The keys of each dense space lie under their own names, and are left out while they hold the default.
fn encoded_named(config: &NamedConfig) -> Map<String, Json> {
    let space = |space: &NamedSpace| {
        let mut file = Map::from_iter([("name".to_owned(), space.name.clone().into())]);
        match space.is_dropped {
            true => drop(file.insert(DROPPED.to_owned(), true.into())),
            false => file.extend(encoded(&[], &space.config)),
        }
        Json::from(file)
    };
    // A sparse space is its name, and an object only once it was dropped.
    let sparse_space = |space: &NamedSparseSpace| match space.is_dropped {
        true => json!({ "name": space.name, DROPPED: true }),
        false => Json::from(space.name.clone()),
    };
    let mut file = Map::from_iter([
        (NAMED.to_owned(), config.spaces.iter().map(space).collect()),
        ("sparse_spaces".to_owned(), config.sparse_spaces.iter().map(sparse_space).collect()),
    ]);
    put(OF_NAMED, &config.whole.keys(), &mut file);
    file
}

/// Decodes the configuration of a multi-vector collection. Its keys have their own names in the file, as those of a space have.
fn decoded_multi_vector(mut file: Map<String, Json>) -> Result<MultiVectorConfig, Unreadable> {
    let Some(Json::Object(tokens)) = file.shift_remove(TOKENS) else {
        return Err(damaged(&format!("{TOKENS} is no object")));
    };
    let whole = taken_whole(OF_DOCUMENTS, file)?;
    let config = MultiVectorConfig { whole, ..MultiVectorConfig::new(taken(&[], tokens)?) };
    config.validate().map_err(|error| Unreadable::Damaged(error.to_string()))?;
    Ok(config)
}

fn decoded_named(mut file: Map<String, Json>) -> Result<NamedConfig, Unreadable> {
    let missing = |name: &str| damaged(&format!("missing field `{name}`"));
    let mut part = |name: &str| file.shift_remove(name).ok_or_else(|| missing(name));
    let listed = |name: &str, part: Json| match part {
        Json::Array(items) => Ok(items),
        _ => Err(damaged(&format!("{name} is no list"))),
    };
    let name_of = |name: Option<Json>| match name {
        Some(Json::String(name)) => Ok(name),
        _ => Err(damaged("a space without a name")),
    };
    let mut spaces = Vec::new();
    for space in listed(NAMED, part(NAMED)?)? {
        let Json::Object(mut space) = space else { return Err(damaged("a space is no object")) };
        let name = name_of(space.shift_remove("name"))?;
        spaces.push(match space.shift_remove(DROPPED) {
            Some(Json::Bool(true)) => {
                end(&space)?;
                NamedSpace::dropped(name)
            }
            Some(_) => return Err(damaged(DROPPED)),
            None => NamedSpace::new(name, taken(&[], space)?),
        });
    }
    let sparse_space = |space: Json| match space {
        Json::Object(mut space) => {
            let name = name_of(space.shift_remove("name"))?;
            match space.shift_remove(DROPPED) {
                Some(Json::Bool(true)) => end(&space).map(|()| NamedSparseSpace::dropped(name)),
                _ => Err(damaged(DROPPED)),
            }
        }
        name => name_of(Some(name)).map(NamedSparseSpace::new),
    };
    let sparse = listed("sparse_spaces", part("sparse_spaces")?)?;
    let mut config = NamedConfig::new(spaces, Vec::new());
    config.sparse_spaces = sparse.into_iter().map(sparse_space).collect::<Result<_, _>>()?;
    config.whole = taken_whole(OF_NAMED, file)?;
    config.validate().map_err(|error| Unreadable::Damaged(error.to_string()))?;
    Ok(config)
}

/// Decodes a collection's file: (uid, full name, configuration).
///
/// # Errors
/// As [`sealed_json::decode`]; a configuration that none can have.
pub fn decode(bytes: &[u8]) -> Result<(u64, String, CollectionConfig), Unreadable> {
    let file: File = sealed_json::decode(FORMAT, bytes, "a collection file")?;
    let config = match () {
        () if file.config.contains_key(NAMED) => decoded_named(file.config)?.into(),
        () if file.config.contains_key(TOKENS) => decoded_multi_vector(file.config)?.into(),
        () => decoded(LAYOUT, file.config)?.into(),
    };
    Ok((file.uid, file.name, config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_engine::collection::{
        Drift, EncodingConfig, FirstStage, IndexType, IvfConfig, IvfProduct, Quantizer, VamanaConfig,
    };
    use nigh_engine::distance::Width;
    use nigh_engine::payload::TokenCode;
    use nigh_engine::point_id::IdKind;
    use nigh_engine::quantizer::{CellProduct, Quantization};
    use nigh_engine::text::{Analyzer, TextConfig};

    #[test]
    fn a_collection_file_round_trips_and_damage_is_named() {
        let mut config = DenseConfig::new(3, Metric::L2);
        config.max_vectors = 9;
        config.filter_first_relative_bp = 250;
        config.traversal_codes = false;
        config.persistent = true;
        (config.quant, config.rescore_factor, config.quantized_build) = (Quantizer::Sq8, 5, true);
        config.full_text = Some(TextConfig { analyzer: Analyzer::German, k1: 0.1 + 0.2, b: -0.0 });
        let config = CollectionConfig::from(config);
        let bytes = encode(77, "default/a\"b", &config);
        assert_eq!(decode(&bytes).unwrap(), (77, "default/a\"b".to_owned(), config));
        let drift = Some(Drift { growth: 2.5, factor: 0.1 + 0.2 });
        let ivf =
            IvfConfig { nlist: 1, nprobe: 2, train_threshold: 3, drift, soar: Some(0.7), product: None };
        let code = CellProduct { parts: 3, bits: 4, rotations: 2, eta: 0.1 + 0.2 };
        let coded = IvfConfig { product: Some(IvfProduct { code, rerank: true }), ..ivf.clone() };
        let vamana = VamanaConfig { degree: 40, beam: 90, alpha: 0.7 + 0.4 };
        let indexes = [IndexType::Gpu, IndexType::Ivf(ivf), IndexType::Ivf(coded), IndexType::Vamana(vamana)];
        for index in indexes {
            let other = DenseConfig { index, ..DenseConfig::new(3, Metric::L2) }.into();
            assert_eq!(decode(&encode(77, "default/a", &other)).unwrap().2, other);
        }
        let text = String::from_utf8(bytes.clone()).unwrap();
        let flipped = text.replace("\"format\": 1", "\"format\": 7");
        assert!(
            matches!(decode(flipped.as_bytes()), Err(Unreadable::Damaged(_))),
            "a digit that was flipped"
        );
        let newer = crate::sealed_json::seal(&flipped);
        assert_eq!(decode(newer.as_bytes()), Err(Unreadable::Newer { found: 7, known: 6 }));
        let edited = text.replace("\"dim\": 3", "\"dim\": 4");
        assert!(decode(edited.as_bytes()).unwrap_err().to_string().contains("checksum"));
        for cut in 0..bytes.len() - 2 {
            assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_collection_of_named_spaces_comes_back() {
        let mut title = DenseConfig::new(3, Metric::Dot);
        (title.m, title.max_ef_search, title.seed) = (9, 77, -4);
        title.index = IndexType::Ivf(IvfConfig { soar: Some(0.1 + 0.2), ..IvfConfig::default() });
        let mut body = DenseConfig::new(8, Metric::Cosine);
        let code = Quantization::Product { parts: 4, bits: 8, rotations: 2, eta: 0.1 + 0.2 };
        (body.quant, body.rescore_factor) = (Quantizer::Trained(code), 5);
        let spaces =
            [("title", title), ("body text", body)].map(|(name, config)| NamedSpace::new(name, config));
        let mut config = NamedConfig::new(spaces.to_vec(), vec!["words".to_owned()]);
        config.whole.max_vectors = u64::MAX;
        config.whole.max_inserts_per_second = 12;
        config.whole.full_text = Some(TextConfig { analyzer: Analyzer::German, k1: 0.1 + 0.2, b: -0.0 });
        let bytes = encode(9, "default/n", &config.clone().into());
        assert_eq!(decode(&bytes).unwrap(), (9, "default/n".to_owned(), config.into()));
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("\"format\": 2"), "builds that know no named spaces refuse it: {text}");
        for (from, to) in [
            ("\"dim\": 3", "\"dim\": 0"),
            ("\"words\"", "\"title\""),
            ("\"words\"", "7"),
            ("\"m\": 9", "\"wat\": 9"),
            ("\"max_bytes\": 0", "\"max_bytes\": \"a\""),
            ("\"name\": \"title\"", "\"name\": 1"),
            ("\"analyzer\": \"german\"", "\"analyzer\": \"klingon\""),
            ("\"max_bytes\": 0", "\"max_bytes\": 0, \"max_inserts_per_minute\": 0"),
        ] {
            let edited = crate::sealed_json::seal(&text.replace(from, to));
            assert!(text.contains(from) && decode(edited.as_bytes()).is_err(), "{from} {to}");
        }
    }

    #[test]
    fn plain_payloads_are_of_a_format_of_their_own() {
        let dense =
            DenseConfig { payload_format: PayloadFormat::Plain, ..DenseConfig::new(3, Metric::Cosine) };
        let mut named = NamedConfig::new(vec![], vec!["words".to_owned()]);
        let mut documents = MultiVectorConfig::new(DenseConfig::new(3, Metric::Cosine));
        named.whole.payload_format = PayloadFormat::Plain;
        documents.whole.payload_format = PayloadFormat::Plain;
        for config in [CollectionConfig::from(dense), named.into(), documents.into()] {
            let bytes = encode(9, "default/n", &config);
            assert_eq!(decode(&bytes).unwrap(), (9, "default/n".to_owned(), config));
            let text = String::from_utf8(bytes).unwrap();
            assert!(
                text.contains("\"format\": 5") && text.contains("\"payload_format\": \"plain\""),
                "{text}"
            );
        }
    }

    #[test]
    fn strings_as_ids_come_back() {
        let dense = DenseConfig { ids: IdKind::String, ..DenseConfig::new(3, Metric::Cosine) };
        let mut named = NamedConfig::new(vec![], vec!["words".to_owned()]);
        let mut documents = MultiVectorConfig::new(DenseConfig::new(3, Metric::Cosine));
        (named.whole.ids, documents.whole.ids) = (IdKind::String, IdKind::String);
        for config in [CollectionConfig::from(dense), named.into(), documents.into()] {
            let bytes = encode(9, "default/n", &config);
            assert_eq!(decode(&bytes).unwrap(), (9, "default/n".to_owned(), config));
            // A build that does not know the key refuses the file, as this one refuses keys that it does not know.
            let text = String::from_utf8(bytes).unwrap();
            let edited =
                crate::sealed_json::seal(&text.replace("\"ids\": \"string\"", "\"idz\": \"string\""));
            assert!(text.contains("\"ids\": \"string\"") && decode(edited.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn every_collection_key_has_a_place() {
        for layout in [OF_NAMED, OF_DOCUMENTS] {
            let held: Vec<Key> = layout.iter().flat_map(Part::keys).collect();
            for key in Key::of_whole() {
                assert!(held.contains(&key), "{} is lost at a restart", key.name());
            }
        }
    }

    #[test]
    fn the_places_of_dropped_spaces_come_back() {
        let space = |name: &str| NamedSpace::new(name, DenseConfig::new(3, Metric::Dot));
        let config = NamedConfig::new(vec![space("a"), space("b")], vec![]);
        let left =
            config.without_space("a").unwrap().0.with_space("a", DenseConfig::new(5, Metric::L2)).unwrap();
        let bytes = encode(9, "default/n", &left.clone().into());
        assert_eq!(decode(&bytes).unwrap(), (9, "default/n".to_owned(), left.into()));
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("\"format\": 4"), "builds that know no dropped spaces refuse it: {text}");
        for (from, to) in [
            ("\"dropped\": true", "\"dropped\": false"),
            ("\"dropped\": true", "\"dropped\": true, \"m\": 9"),
        ] {
            let edited = crate::sealed_json::seal(&text.replace(from, to));
            assert!(text.contains(from) && decode(edited.as_bytes()).is_err(), "{from} {to}");
        }
    }

    #[test]
    fn the_places_of_dropped_sparse_spaces_come_back() {
        let space = NamedSpace::new("a", DenseConfig::new(3, Metric::Dot));
        let config = NamedConfig::new(vec![space], vec!["s".to_owned(), "t".to_owned()]);
        let whole = String::from_utf8(encode(9, "default/n", &config.clone().into())).unwrap();
        assert!(whole.contains("\"format\": 2") && whole.contains("\"sparse_spaces\": [\n"), "{whole}");
        let mut left = config.without_space("s").unwrap().0.with_sparse_space("s").unwrap();
        for payload_format in [PayloadFormat::Tagged, PayloadFormat::Plain] {
            left.whole.payload_format = payload_format;
            let bytes = encode(9, "default/n", &left.clone().into());
            assert_eq!(decode(&bytes).unwrap(), (9, "default/n".to_owned(), left.clone().into()));
            let text = String::from_utf8(bytes).unwrap();
            assert!(
                text.contains("\"format\": 6"),
                "builds that know no dropped sparse spaces refuse it: {text}"
            );
            for (from, to) in [
                ("\"dropped\": true", "\"dropped\": false"),
                ("\"dropped\": true", "\"dropped\": true, \"m\": 9"),
            ] {
                let edited = crate::sealed_json::seal(&text.replace(from, to));
                assert!(text.contains(from) && decode(edited.as_bytes()).is_err(), "{from} {to}");
            }
        }
    }

    #[test]
    fn a_multi_vector_collection_comes_back() {
        let mut tokens = DenseConfig::new(96, Metric::Cosine);
        (tokens.m, tokens.quant, tokens.rescore_factor, tokens.persistent) = (9, Quantizer::Sq8, 5, true);
        let mut config = MultiVectorConfig::new(tokens.clone());
        let plain = String::from_utf8(encode(9, "default/m", &config.clone().into())).unwrap();
        assert!(!plain.contains("max_"), "files of collections without quotas are as they were: {plain}");
        assert_eq!(decode(plain.as_bytes()).unwrap().2, config.clone().into());
        config.whole = WholeConfig {
            max_vectors: 7,
            max_inserts_per_second: 1,
            max_bytes: u64::MAX,
            full_text: Some(TextConfig { analyzer: Analyzer::Cjk, k1: 0.1 + 0.2, b: 0.5 }),
            ..WholeConfig::default()
        };
        let bytes = encode(9, "default/m", &config.clone().into());
        assert_eq!(decode(&bytes).unwrap(), (9, "default/m".to_owned(), config.into()));
        let text = String::from_utf8(bytes).unwrap();
        assert!(!text.contains("first_stage"), "a file from before the key has its default: {text}");
        // The shape of encodings is written even if it is the default, because another build may have other defaults.
        let first_stage = FirstStage::Encodings(EncodingConfig::default());
        let code = Quantization::Product { parts: 160, bits: 8, rotations: 0, eta: 0.0 };
        let quant = Quantizer::Trained(code);
        assert!(!text.contains("token_codes"), "and so has this one: {text}");
        let token_code = TokenCode::Bits4;
        let tokens = DenseConfig { first_stage, quant, persistent: false, token_code, ..tokens };
        let encoded = MultiVectorConfig::new(tokens);
        let encoded_bytes = encode(9, "default/m", &encoded.clone().into());
        assert_eq!(decode(&encoded_bytes).unwrap().2, encoded.into());
        let encoded = String::from_utf8(encoded_bytes).unwrap();
        for field in [
            "\"first_stage\": \"encodings\"",
            "\"encoding_repetitions\": 20",
            "\"encoding_dim\": 8",
            "\"token_codes\": \"sq4\"",
        ] {
            assert!(encoded.contains(field), "{field} in {encoded}");
        }
        let wide = crate::sealed_json::seal(&encoded.replace("\"encoding_dim\": 8", "\"encoding_dim\": 97"));
        assert!(decode(wide.as_bytes()).unwrap_err().to_string().contains("encoding_dim"));
        assert!(text.contains("\"format\": 3"), "builds that know no tokens refuse it: {text}");
        for (from, to) in [
            ("\"dim\": 96", "\"dim\": 0"),
            ("\"m\": 9", "\"wat\": 9"),
            ("\"tokens\"", "\"others\""),
            ("\"max_vectors\": 7", "\"max_vectors\": -7"),
            ("\"max_vectors\"", "\"max_inserts_per_minute\""),
        ] {
            let edited = crate::sealed_json::seal(&text.replace(from, to));
            assert!(text.contains(from) && decode(edited.as_bytes()).is_err(), "{from} {to}");
        }
    }

    #[test]
    fn every_quantizer_comes_back() {
        for quantization in [
            Quantization::Scalar { width: Width::Four },
            Quantization::Scalar { width: Width::Six },
            Quantization::Scalar { width: Width::Eight },
            Quantization::Sign,
            Quantization::Product { parts: 6, bits: 4, rotations: 3, eta: 0.1 + 0.2 },
            Quantization::Residual { parts: 12, layers: 3, rotations: 1 },
        ] {
            let mut config = DenseConfig::new(24, Metric::Dot);
            (config.quant, config.train_threshold) = (Quantizer::Trained(quantization), 77);
            let config = CollectionConfig::from(config);
            let bytes = encode(1, "default/a", &config);
            assert_eq!(decode(&bytes).unwrap(), (1, "default/a".to_owned(), config));
        }
    }

    /// Written before `filter_first_relative_bp`, `traversal_codes`, `quant`, `index_type`, `full_text` and `ivf` were keys.
    #[test]
    fn a_file_without_the_keys_that_came_later_keeps_its_checksum() {
        let config = CollectionConfig::from(DenseConfig::new(3, Metric::L2));
        let text = String::from_utf8(encode(77, "default/a", &config)).unwrap();
        for later in [
            "filter_first_relative_bp",
            "traversal_codes",
            "persistent",
            "quant",
            "index_type",
            "full_text",
            "ivf",
            "vamana",
            "product",
        ] {
            assert!(!text.contains(later), "{text}");
        }
        assert!(text.contains("\"checksum\": 2030584139\n"), "{text}");
        assert_eq!(decode(text.as_bytes()).unwrap().2, config);
    }

    /// As all keys would lie if the layout named none, and those do that come after it.
    #[test]
    fn keys_that_the_layout_does_not_name_lie_under_their_own_names() {
        let code = CellProduct { parts: 3, bits: 4, rotations: 2, eta: 0.1 + 0.2 };
        let product = Some(IvfProduct { code, rerank: true });
        let drift = Some(Drift { growth: 2.5, factor: 0.1 + 0.2 });
        let ivf = IvfConfig { nlist: 1, nprobe: 2, train_threshold: 3, drift, soar: Some(0.7), product };
        let cells = DenseConfig { index: IndexType::Ivf(ivf), ..DenseConfig::new(24, Metric::Dot) };
        let product = Quantization::Product { parts: 6, bits: 4, rotations: 3, eta: 0.1 + 0.2 };
        let graph = DenseConfig {
            quant: Quantizer::Trained(product),
            train_threshold: 77,
            seed: -5,
            max_bytes: u64::MAX,
            full_text: Some(TextConfig { analyzer: Analyzer::Cjk, k1: 0.1 + 0.2, b: 0.5 }),
            ..DenseConfig::new(24, Metric::L2)
        };
        for config in [cells, graph] {
            let file = encoded(&[], &config);
            assert!(file.keys().all(|name| Key::ALL.iter().any(|key| key.name() == name)));
            assert_eq!(decoded(&[], file), Ok(config));
        }
        let file = encoded(&[], &DenseConfig::new(24, Metric::Cosine));
        assert_eq!(file.keys().collect::<Vec<_>>(), ["dim"], "the rest is the default");
        let mut file = encoded(LAYOUT, &DenseConfig::new(24, Metric::Cosine));
        file.insert("wat".to_owned(), 1.into());
        assert!(decoded(LAYOUT, file).unwrap_err().to_string().contains("unknown field `wat`"));
    }
}
