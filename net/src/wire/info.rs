//! Information about a collection: its configuration and its figures, as JSON.

use crate::wire::config::{object, spaces_object, tokens_object, whole_object};
use nigh_engine::collection::config_keys::{Family, Key};
use nigh_engine::collection::{DenseConfig, NamedConfig, Quantizer};
use nigh_shard::collection_file::to_json;
use nigh_shard::core::CollectionInfo;
use nigh_shard::family::CollectionConfig;
use serde_json::{Map, Value, json};

/// The name of a collection without the tenant that a bare name has.
pub fn bare_name(info: &CollectionInfo) -> &str {
    info.name.strip_prefix("default/").unwrap_or(&info.name)
}

/// The configuration of a collection of any family.
pub fn configuration_of(info: &CollectionInfo) -> Value {
    match &*info.config {
        CollectionConfig::Dense(config) => configuration(config),
        CollectionConfig::MultiVector(config) => tokens_object(config).into(),
        CollectionConfig::Named(config) => spaces_object(config).into(),
    }
}

/// All that there is to know of a collection.
pub fn information(info: &CollectionInfo) -> Value {
    let stats = &info.stats;
    let mut all = json!({
        "name": bare_name(info),
        "config": configuration_of(info),
        "points": stats.points(),
        "sparse_vectors": stats.sparse_vectors,
        "tombstoned": stats.tombstoned,
        "memory": memory(info),
    });
    all["index"] = match &*info.config {
        CollectionConfig::Dense(config) => index(info, config),
        CollectionConfig::MultiVector(config) => {
            all["tokens"] = info.tokens.into();
            index(info, &config.tokens)
        }
        CollectionConfig::Named(config) => {
            all["spaces"] = spaces(info, config);
            // The named configuration has the key that requests have.
            all["named_vectors"] = all["config"].take();
            if let Some(all) = all.as_object_mut() {
                all.remove("config");
                all.append(&mut whole_object(&config.whole));
            }
            json!({ "state": state(info), "indexed": stats.indexed(), "waiting": stats.tail })
        }
    };
    all
}

/// The indexes of the dense spaces by their names.
fn spaces(info: &CollectionInfo, config: &NamedConfig) -> Value {
    let each = config.spaces.iter().zip(&info.spaces).filter(|(space, _)| !space.is_dropped);
    let each = each.map(|(space, now)| {
        let told = json!({
            "type": space.config.index.name(),
            "cells": now.cells.map_or(0, |cells| cells.cells),
            "walks": now.walks,
        });
        (space.name.clone(), told)
    });
    Value::Object(each.collect::<Map<_, _>>())
}

/// How far the index is.
pub fn state(info: &CollectionInfo) -> &'static str {
    match (&info.damage, info.stats.tail) {
        (Some(_), _) if info.is_closed => "closed",
        (Some(_), _) => "damaged",
        (None, 0) => "ready",
        (None, _) => "indexing",
    }
}

fn index(info: &CollectionInfo, config: &DenseConfig) -> Value {
    let stats = &info.stats;
    json!({
        "type": config.index.name(),
        "cells": info.cells.map_or(0, |cells| cells.cells),
        "state": state(info),
        "walks": info.walks,
        "indexed": stats.indexed(),
        "waiting": stats.tail,
    })
}

fn memory(info: &CollectionInfo) -> Value {
    let usage = &info.usage;
    json!({
        "bytes": info.stats.bytes,
        "graph_bytes": usage.graph,
        "codes_bytes": usage.codes,
        "slots_bytes": usage.slots,
        "payload_bytes": usage.rows,
        "ids_bytes": usage.ids,
        "tail_bytes": usage.tail,
        "payload_index_bytes": usage.payload_index,
        "lanes_bytes": usage.lanes,
        "file_vectors_bytes": usage.file_vectors,
        "file_vectors_resident_bytes": info.resident_vectors,
        "file_index_bytes": usage.file_index,
    })
}

/// The order of keys in answers, older than the table; keys that are not here come behind.
#[rustfmt::skip]
const ORDER: &[Key] = {
    use Key::*;
    &[
        Dim, Metric, M, EfConstruction, EfSearch, Seed, Level0FullDegree, ExtendCandidates,
        ExtendCandidatesMax, FilterFirstRelativeBp, TraversalCodes, Quant, RescoreFactor,
        QuantizedBuild, PqDropVecs, Persistent, IndexType, VamanaR, VamanaL, VamanaAlpha, IvfNlist,
        IvfNprobe, IvfTrainThreshold, IvfDriftRetrain, IvfDriftGrowthFactor, IvfDriftFactor, IvfPq,
        IvfRerank, Soar, SoarLambda, MaxVectors, MaxBytes, MaxInsertsPerSecond, MaxEfSearch, FullText,
    ]
};

/// What a quantizer learns, which answers have in an object of its own behind the key that turns it on.
#[rustfmt::skip]
pub const LEARNED: [Key; 7] = {
    use Key::*;
    [SqBits, QuantPqM, IvfPqM, PqNbits, PrqLayers, OpqIters, AnisotropicEta]
};

/// The keys that answers have by themselves. `opq` is told by `opq_iters`, and there is nothing to tell of `partitions`.
pub fn told() -> impl Iterator<Item = Key> {
    let untold = [Key::Opq, Key::Partitions];
    Key::of_with_first(Family::Dense, ORDER)
        .filter(move |key| !LEARNED.contains(key) && !untold.contains(key))
}

/// What it was made with, defaults filled in.
pub fn configuration(config: &DenseConfig) -> Value {
    let learned = || {
        let given = |key: Key| Some((key.name().to_owned(), to_json(key.get(config)?)));
        LEARNED.into_iter().filter_map(given).collect::<Map<String, Value>>()
    };
    let mut keys = Map::new();
    for key in told() {
        let value = match key.members() {
            Some(_) => object(key, config).into(),
            None => to_json(key.effective(config)),
        };
        keys.insert(key.name().to_owned(), value);
        if key == Key::Quant {
            let trained = matches!(config.quant, Quantizer::Trained(_)).then(|| {
                let mut trained = learned();
                // One that waits for a bulk build has no threshold.
                let threshold = Some(config.trained_at()).filter(|points| *points < usize::MAX).unwrap_or(0);
                trained.insert("threshold".to_owned(), threshold.into());
                trained
            });
            keys.insert("trained".to_owned(), trained.into());
        } else if key == Key::IvfRerank {
            let codes = config.ivf().and_then(|ivf| ivf.product).map(|_| learned());
            keys.insert("ivf_codes".to_owned(), codes.into());
        }
    }
    Value::Object(keys)
}
