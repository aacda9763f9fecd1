//! Schemas of configurations, made from the table of their keys: as requests have them, and as answers tell them.

use super::schema::{
    about, answer, body, boolean, double, float, int64, integer, named, natural, nullable, one_of, or,
    uint64, with,
};
use crate::wire::info::{self, LEARNED};
use nigh_engine::collection::config_keys::{Family, Floats, Ints, Key, Kind};
use nigh_shard::collection_file::to_json;
use serde_json::{Map, Value, json};

/// The order of keys in the schema of requests, older than the table; keys that are not here come behind.
#[rustfmt::skip]
const ORDER: &[Key] = {
    use Key::*;
    &[
        Dim, Metric, M, EfConstruction, EfSearch, Seed, IndexType, ExtendCandidates,
        ExtendCandidatesMax, Level0FullDegree, FilterFirstRelativeBp, TraversalCodes, FullText,
        MaxVectors, MaxBytes, MaxInsertsPerSecond, MaxEfSearch, Quant, RescoreFactor, SqBits,
        PrqLayers, QuantPqM, PqNbits, Opq, OpqIters, PqDropVecs, AnisotropicEta, Persistent,
        QuantizedBuild, Partitions,
    ]
};

/// The name of the schema of an object.
fn component(key: Key) -> &'static str {
    match key {
        Key::FullText => "FullText",
        other => panic!("the object {} has no schema", other.name()),
    }
}

/// An integer, in the words of the schemas that all of the document uses.
fn whole(least: i128, most: i128) -> Value {
    match (i64::try_from(least), i64::try_from(most)) {
        (Ok(0), Ok(i64::MAX)) => natural(),
        (Ok(i64::MIN), Ok(i64::MAX)) => int64(),
        (Ok(least), Ok(most)) => integer(least, most),
        _ => uint64(),
    }
}

/// A value in a request.
pub fn wanted(key: Key) -> Value {
    let schema = match key.kind() {
        Kind::Bool => boolean(),
        Kind::Int(Ints::Within(least, most)) => whole(least, most),
        Kind::Int(Ints::Count(1, most)) => whole(i64::MIN.into(), most),
        Kind::Int(Ints::Count(least, most)) => {
            let between = if least == 2 { json!({"const": 1}) } else { whole(1, least - 1) };
            with(whole(i64::MIN.into(), most), json!({"not": between}))
        }
        Kind::Int(Ints::OneOf(numbers)) => {
            let numbers: Vec<i64> = numbers.iter().map(|number| *number as i64).collect();
            json!({"type": "integer", "enum": numbers})
        }
        Kind::Float(Floats::Any) => double(),
        Kind::Float(Floats::FromZero) => with(double(), json!({"minimum": 0})),
        Kind::Float(Floats::AboveOne) => {
            json!({"type": "number", "anyOf": [{"const": 0}, {"exclusiveMinimum": 1}]})
        }
        Kind::Float(Floats::Positive) => float(),
        Kind::Words(words) => {
            let names =
                words.iter().flat_map(|word| [word.name].into_iter().chain(word.aliases.iter().copied()));
            one_of(&[""].into_iter().chain(names).collect::<Vec<_>>())
        }
        Kind::Object(_) => return named(component(key)),
    };
    match key.default().map(to_json) {
        None => about(key.about(), schema),
        // The document has always had these two in this order.
        Some(default) if key == Key::Seed || key.object().is_some() => {
            about(key.about(), or(default, schema))
        }
        Some(default) => or(default, about(key.about(), schema)),
    }
}

fn keyed(keys: impl Iterator<Item = Key>, schema: impl Fn(Key) -> Value) -> Map<String, Value> {
    keys.map(|key| (key.name().to_owned(), schema(key))).collect()
}

/// The components of requests: a configuration and its objects.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let all = || Key::of_with_first(Family::Dense, ORDER);
    let config = body(&[Key::Dim.name()], keyed(all(), wanted).into());
    let objects = all().filter_map(|key| {
        let members = keyed(key.members()?.iter().copied(), wanted);
        Some((component(key), about(key.about(), body(&[], members.into()))))
    });
    [("Config", config)].into_iter().chain(objects).collect()
}

/// A value in an answer.
pub fn told(key: Key) -> Value {
    let schema = match key.kind() {
        Kind::Bool => boolean(),
        // Beams are told without their bound, and so is whatever has none but that of its type.
        Kind::Int(Ints::Count(1, _) | Ints::OneOf(_)) => uint64(),
        Kind::Int(Ints::Within(0, most)) if most >= i64::MAX.into() => uint64(),
        Kind::Int(_) if LEARNED.contains(&key) => uint64(),
        Kind::Int(Ints::Within(least, most) | Ints::Count(least, most)) => whole(least, most),
        Kind::Float(_) => double(),
        Kind::Words([word]) => json!({"const": word.name}),
        Kind::Words(words) => one_of(&words.iter().map(|word| word.name).collect::<Vec<_>>()),
        Kind::Object(members) => nullable(answer(&[], keyed(members.iter().copied(), told).into())),
    };
    let special = match key {
        Key::RescoreFactor => "Candidates per result that are scored exactly; 0 without a quantizer.",
        Key::IvfNprobe => "As with the other keys of cells, 0 where the index is a graph.",
        Key::OpqIters => "0 = no rotation.",
        _ => return schema,
    };
    about(special, schema)
}

/// The configuration in the answer about a collection.
pub fn information() -> Value {
    let mut keys = Map::new();
    for key in info::told() {
        keys.insert(key.name().to_owned(), told(key));
        if key == Key::Quant {
            let threshold = about("Points at which it is trained; 0 = by a bulk build alone.", uint64());
            let learned = keyed(LEARNED.into_iter().filter(|key| *key != Key::IvfPqM), told);
            let names: Vec<&str> = learned.keys().map(String::as_str).collect();
            let all = [("threshold".to_owned(), threshold)].into_iter().chain(learned.clone()).collect();
            let trained = nullable(answer(&names, Value::Object(all)));
            keys.insert(
                "trained".to_owned(),
                about("What a quantizer learns, where one is trained.", trained),
            );
        } else if key == Key::IvfRerank {
            let learned = [Key::IvfPqM, Key::PqNbits, Key::OpqIters, Key::AnisotropicEta];
            let codes = nullable(answer(&[], keyed(learned.into_iter(), told).into()));
            keys.insert("ivf_codes".to_owned(), about("What `ivf_pq` learns.", codes));
        }
    }
    answer(&[], Value::Object(keys))
}
