//! Every key of a configuration on each of its ways: through REST, TCP and gRPC into a collection, into its file and back, and out again
//! as information, as the result of `vector_get_config` and as a message.

use crate::grpc::{config_of, message_of, tokens_config_of, tokens_message_of};
use crate::op::{MultiVectorOp, Op, VectorOp};
use crate::rest::multi_vector_bodies;
use crate::tcp::vector::{self, VectorRequest};
use crate::wire::config::{WireConfig, tokens_object};
use crate::wire::info::configuration;
use crate::wire::json::decode;
use crate::wire::payloads::Decoding;
use nigh_engine::collection::DenseConfig;
use nigh_engine::collection::config_keys::{Family, Floats, Key, Kind, Settings, Value};
use nigh_shard::collection_file::{self, to_json};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

type Given = BTreeMap<Key, Value>;

/// Configurations that between them every key concerns.
fn surroundings() -> Vec<Given> {
    let on = Value::Bool(true);
    let quant = |name| (Key::Quant, Value::Word(name));
    let ivf = (Key::IndexType, Value::Word("ivf"));
    let all = [
        vec![],
        vec![(Key::FullText, on)],
        vec![(Key::IndexType, Value::Word("vamana"))],
        vec![quant("sq8")],
        vec![quant("sq")],
        vec![quant("pq")],
        vec![quant("pq"), (Key::Opq, on)],
        vec![quant("prq")],
        vec![ivf, (Key::Soar, on), (Key::IvfDriftRetrain, on)],
        vec![ivf, (Key::IvfPq, on)],
        vec![ivf, (Key::IvfPq, on), (Key::Opq, on)],
    ];
    let dim = (Key::Dim, Value::Int(48));
    all.into_iter().map(|keys| keys.into_iter().chain([dim]).collect()).collect()
}

/// The keys of dense collections, those of objects among them.
fn keys() -> impl Iterator<Item = Key> {
    let of_dense: Vec<Key> = Key::of(Family::Dense).collect();
    Key::ALL.iter().copied().filter(move |key| key.object().is_some() || of_dense.contains(key))
}

/// Values other than those that mean the default.
fn values(key: Key) -> Vec<Value> {
    match key.kind() {
        Kind::Bool | Kind::Object(_) => vec![Value::Bool(true), Value::Bool(false)],
        Kind::Int(_) => [4, 6, 8, 12, 48, 100, 3000].map(Value::Int).to_vec(),
        Kind::Float(_) => [0.5, 1.5, 2.5].map(Value::Float).to_vec(),
        Kind::Words(words) => words.iter().map(|word| Value::Word(word.name)).collect(),
    }
}

fn through_rest(given: &Given) -> Result<DenseConfig, String> {
    let mut body = Map::new();
    for (key, value) in given {
        match (key.object(), key.members()) {
            (Some(object), _) => body[object.name()][key.name()] = to_json(*value),
            (None, Some(_)) if *value == Value::Bool(true) => {
                drop(body.insert(key.name().to_owned(), json!({})))
            }
            (None, Some(_)) => {}
            (None, None) => drop(body.insert(key.name().to_owned(), to_json(*value))),
        }
    }
    let body: Result<WireConfig, _> = decode(&serde_json::to_vec(&body).unwrap());
    body.and_then(WireConfig::into_config).map_err(|error| error.message)
}

/// `None` where a key has no field.
fn through_tcp(given: &Given) -> Option<Result<DenseConfig, String>> {
    let fields: Vec<Key> = vector::fields_of_create().collect();
    if !given.keys().all(|key| fields.contains(key)) {
        return None;
    }
    let mut args = b"\x01c".to_vec();
    for key in fields {
        let value = given.get(&key).copied().unwrap_or(key.zero());
        match (key.kind(), value) {
            _ if key.object().is_some_and(|object| given.get(&object) != Some(&Value::Bool(true))) => {}
            (_, Value::Bool(flag)) => args.push(flag.into()),
            (_, Value::Int(number)) if key == Key::Seed => args.extend((number as i64).to_be_bytes()),
            (_, Value::Int(number)) => args.extend((number as u32).to_be_bytes()),
            (Kind::Float(Floats::AboveOne), Value::Float(number)) => args.extend(number.to_be_bytes()),
            (_, Value::Float(number)) => args.extend((number as f32).to_be_bytes()),
            (_, Value::Word(name)) if key.object().is_some() => {
                args.push(name.len() as u8);
                args.extend(name.as_bytes());
            }
            (_, Value::Word(name)) => {
                let word = key.words().iter().find(|word| word.name == name);
                args.push(word.map_or(0, |word| word.code));
            }
        }
    }
    Some(match vector::decode(Op::Vector(VectorOp::CreateCollection), &args, &Decoding::tagged(0)) {
        Ok(VectorRequest::Create(request)) => {
            Ok(request.config.dense().cloned().expect("a dense collection"))
        }
        Ok(_) => panic!("another kind of request"),
        Err(error) => Err(error.message),
    })
}

/// What information says of a key, wherever it says it.
fn informed(key: Key, config: &DenseConfig) -> Json {
    let all = configuration(config);
    let learned = if config.ivf().is_some() { &all["ivf_codes"] } else { &all["trained"] };
    let places = match key {
        // Told as a number of rounds, and among what a quantizer learns.
        Key::Opq => return json!(learned["opq_iters"].as_u64() > Some(0)),
        Key::IvfTrainThreshold if config.ivf().is_none() => return learned["threshold"].clone(),
        Key::FullText => return json!(all["full_text"].is_object()),
        _ => [&all[key.name()], &learned[key.name()], &all["full_text"][key.name()]],
    };
    places.into_iter().find(|value| !value.is_null()).cloned().unwrap_or_default()
}

/// What `vector_get_config` says of a key, under whichever of its names; `null` where that means the default.
fn got(key: Key, config: &DenseConfig) -> Json {
    let mut result = Vec::new();
    vector::put_config(&mut result, config);
    let all: Map<String, Json> = serde_json::from_slice(&result).unwrap();
    if let Some(object) = key.object() {
        return all[object.name()][key.name()].clone();
    }
    let name = key.name().replace('_', "");
    let found = all.into_iter().find(|(other, _)| other.replace('_', "").eq_ignore_ascii_case(&name));
    match found.map(|(_, value)| value).unwrap_or_default() {
        Json::Object(_) => json!(true),
        value => value,
    }
}

#[test]
fn every_key_comes_back_from_wherever_it_was() {
    let mut seen = BTreeSet::new();
    for given in surroundings() {
        for key in keys() {
            for value in values(key) {
                let mut given = given.clone();
                given.insert(key, value);
                let mut settings = Settings::default();
                given.iter().for_each(|(key, value)| settings.put(*key, *value));
                // What this value cannot be, or the key not be about.
                let Ok(config) = settings.config() else { continue };
                if config.validate().is_err() || key.get(&config) != Some(value) {
                    continue;
                }
                let what = format!("{given:?}");
                assert_eq!(through_rest(&given), Ok(config.clone()), "{what}");
                if let Some(made) = through_tcp(&given) {
                    assert_eq!(made, Ok(config.clone()), "{what}");
                    seen.insert((key, "tcp".to_owned()));
                }
                // A message leaves out what is the default, so that any other value has been on its way.
                assert_eq!(config_of(&message_of(&config)), Ok(config.clone()), "{what}");
                let file = collection_file::encode(1, "default/c", &config.clone().into());
                assert_eq!(collection_file::decode(&file).unwrap().2, config.clone().into(), "{what}");

                assert_eq!(informed(key, &config), to_json(value), "{what}");
                let coded = key.words().iter().find(|word| Value::Word(word.name) == value);
                let coded = coded.filter(|_| key.object().is_none());
                let coded = coded.map_or(to_json(value), |word| json!(word.code));
                // What a configuration has without the key.
                let is_off = match key {
                    Key::TraversalCodes => value == Value::Bool(true),
                    _ => [json!(0), json!(false)].contains(&coded),
                };
                match got(key, &config) {
                    Json::Null if is_off => {}
                    said => assert_eq!(said, coded, "{what}"),
                }
                seen.insert((key, format!("{value:?}")));
            }
        }
    }
    let untold =
        [Key::TraversalCodes, Key::MaxVectors, Key::MaxBytes, Key::MaxInsertsPerSecond, Key::MaxEfSearch];
    for key in keys().filter(|key| *key != Key::Partitions) {
        let of_key = |said: &str| seen.contains(&(key, said.to_owned()));
        assert!(seen.iter().any(|(other, said)| *other == key && said != "tcp"), "{key:?} was never tried");
        assert!(of_key("tcp") != untold.contains(&key), "{key:?} in the binary protocol");
        for value in values(key).iter().filter(|value| !matches!(value, Value::Int(_) | Value::Float(_))) {
            assert!(of_key(&format!("{value:?}")), "{key:?} was never {value:?}");
        }
    }
}

/// The keys that only multi-vector collections have survive every encoding.
#[test]
fn keys_of_multi_vector_collections_alone_come_back() {
    let given = [
        (Key::Dim, Value::Int(48)),
        (Key::FirstStage, Value::Word("encodings")),
        (Key::EncodingRepetitions, Value::Int(5)),
        (Key::EncodingBits, Value::Int(4)),
        (Key::EncodingDim, Value::Int(3)),
        (Key::TokenCodes, Value::Word("sq4")),
    ];
    let alone: Vec<Key> = Key::of(Family::MultiVector)
        .filter(|key| Key::of(Family::Dense).all(|other| other != *key))
        .collect();
    assert_eq!(alone, given[1..].iter().map(|(key, _)| *key).collect::<Vec<_>>());
    let body: Map<String, Json> =
        given.iter().map(|(key, value)| (key.name().to_owned(), to_json(*value))).collect();
    let config = multi_vector_bodies::decode_create(&serde_json::to_vec(&body).unwrap()).unwrap();
    for (key, value) in given {
        assert_eq!(key.get(&config.tokens), Some(value), "{key:?}");
    }
    let mut args = Vec::new();
    vector::put_multi_vector_config(&mut args, "c", &config);
    match vector::decode(Op::MultiVector(MultiVectorOp::CreateCollection), &args, &Decoding::tagged(0)) {
        Ok(VectorRequest::Create(request)) => assert_eq!(request.config, config.clone().into()),
        Ok(_) => panic!("another kind of request"),
        Err(error) => panic!("{}", error.message),
    }
    assert_eq!(tokens_config_of(tokens_message_of(&config)), Ok(config.clone()));
    let file = collection_file::encode(1, "default/c", &config.clone().into());
    assert_eq!(collection_file::decode(&file).unwrap().2, config.clone().into());
    let told = tokens_object(&config);
    assert!(body.iter().all(|(key, value)| told.get(key) == Some(value)), "{told:?}");
}
