//! Lists and figures of collections; counts, facets and samples of points.

use crate::limits::PAGE_POINTS;
use crate::op::{ApiError, CountPoints, FacetPoints, SamplePoints, compile_filter};
use crate::rest::pages::Pages;
use crate::wire::config::object;
use crate::wire::filter::WireFilter;
use crate::wire::json::{decode, json_object};
use crate::wire::value::{write_json, write_value};
use nigh_engine::collection::config_keys::{Family, Key};
use nigh_engine::collection::{DenseConfig, Quantizer};
use nigh_engine::payload::ValueRef;
use nigh_shard::collection_file::to_json;
use nigh_shard::core::{CollectionInfo, FacetValue, TaskReport};
use nigh_shard::family::CollectionConfig;
use serde_json::{Map, Value, json};

/// Values of a facet, or points of a sample, when the body does not say.
const LIMIT_DEFAULT: i64 = 10;
/// Most values of a facet, or points of a sample, that a body may ask for.
const LIMIT_MAX: i64 = 10_000;

json_object! {
    /// Body of `…/points/count`.
    pub struct CountBody {
        "filter" => filter: WireFilter,
    }
}

json_object! {
    /// Body of `…/points/facet`.
    pub struct FacetBody {
        "key" => key: String,
        "filter" => filter: WireFilter,
        "limit" => limit: i64,
    }
}

json_object! {
    /// Body of `…/points/sample`.
    pub struct SampleBody {
        "filter" => filter: WireFilter,
        "limit" => limit: i64,
        "seed" => seed: u64,
    }
}

fn limit(limit: Option<i64>) -> Result<usize, ApiError> {
    match limit.unwrap_or(LIMIT_DEFAULT) {
        limit @ 1..=LIMIT_MAX => Ok(limit as usize),
        other => Err(ApiError::invalid(format!("limit must be between 1 and {LIMIT_MAX}, found {other}"))),
    }
}

/// Decodes the body of `…/points/count`.
///
/// # Errors
/// 400.
pub fn decode_count(collection: String, body: &[u8]) -> Result<CountPoints, ApiError> {
    let body: CountBody = decode(body)?;
    Ok(CountPoints { collection, filter: compile_filter(body.filter.map(|filter| filter.0))? })
}

/// Decodes the body of `…/points/facet`.
///
/// # Errors
/// 400.
pub fn decode_facet(collection: String, body: &[u8]) -> Result<FacetPoints, ApiError> {
    let body: FacetBody = decode(body)?;
    let key =
        body.key.filter(|key| !key.is_empty()).ok_or_else(|| ApiError::invalid("facet: key is required"))?;
    let filter = compile_filter(body.filter.map(|filter| filter.0))?;
    Ok(FacetPoints { collection, key, filter, limit: limit(body.limit)? })
}

/// Decodes the body of `…/points/sample`; `seed` is drawn by the caller for bodies without one.
///
/// # Errors
/// 400.
pub fn decode_sample(collection: String, body: &[u8], seed: u64) -> Result<SamplePoints, ApiError> {
    let body: SampleBody = decode(body)?;
    let filter = compile_filter(body.filter.map(|filter| filter.0))?;
    Ok(SamplePoints { collection, filter, limit: limit(body.limit)?, seed: body.seed.unwrap_or(seed) })
}

/// The answer of `…/points/facet`, written page by page.
pub struct FacetPages {
    found: std::vec::IntoIter<(FacetValue, u64)>,
    begun: bool,
}

impl FacetPages {
    /// Of these values.
    pub fn new(found: Vec<(FacetValue, u64)>) -> FacetPages {
        FacetPages { found: found.into_iter(), begun: false }
    }

    /// Appends the next page.
    pub fn write(&mut self, out: &mut Vec<u8>) {
        for (value, count) in self.found.by_ref().take(PAGE_POINTS) {
            let start: &[u8] = if self.begun { b",{\"value\":" } else { b"{\"facets\":[{\"value\":" };
            self.begun = true;
            out.extend_from_slice(start);
            let value = match &value {
                FacetValue::Bool(flag) => ValueRef::Bool(*flag),
                FacetValue::Int(number) => ValueRef::Int(*number),
                FacetValue::Float(number) => ValueRef::Float(number.get()),
                FacetValue::String(text) => ValueRef::String(text),
            };
            write_value(out, &value);
            out.extend_from_slice(b",\"count\":");
            write_json(out, &count);
            out.push(b'}');
        }
        if self.is_done() {
            out.extend_from_slice(if self.begun { b"]}\n" } else { b"{\"facets\":[]}\n" });
        }
    }
}

impl Pages for FacetPages {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        self.write(out);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.found.len() == 0
    }
}

fn name(info: &CollectionInfo) -> &str {
    info.name.strip_prefix("default/").unwrap_or(&info.name)
}

fn line(value: &Value) -> Vec<u8> {
    let mut out = value.to_string().into_bytes();
    out.push(b'\n');
    out
}

/// The answer of `GET /v1/collections`.
pub fn list_answer(all: &[CollectionInfo]) -> Vec<u8> {
    let one = |info: &CollectionInfo| {
        let mut entry = json!({ "name": name(info), "family": info.config.family().name() });
        match &*info.config {
            CollectionConfig::Dense(config) => {
                entry["dim"] = config.dim.into();
                entry["metric"] = to_json(Key::Metric.effective(config));
            }
            CollectionConfig::MultiVector(config) => entry["dim"] = config.tokens.dim.into(),
            CollectionConfig::Named(config) => {
                let dense = config.spaces.iter().map(|space| (&space.name, space_entry(&space.config)));
                let sparse = config.sparse_spaces.iter().map(|name| (name, json!({ "sparse": true })));
                let spaces = dense.chain(sparse).map(|(name, space)| (name.clone(), space));
                entry["named_vectors"] = spaces.collect::<Map<_, _>>().into();
            }
        }
        entry["points"] = info.stats.points().into();
        entry["damaged"] = (info.damage.is_some() && !info.is_closed).into();
        entry["closed"] = info.is_closed.into();
        entry
    };
    line(&json!({ "collections": all.iter().map(one).collect::<Vec<_>>() }))
}

fn space_entry(config: &DenseConfig) -> Value {
    json!({ "dim": config.dim, "metric": to_json(Key::Metric.effective(config)) })
}

/// The answer of `GET /v1/tasks`.
pub fn tasks_answer(tasks: &[TaskReport]) -> Vec<u8> {
    let one = |task: &TaskReport| {
        let state = match task.stage {
            stage @ ("done" | "failed") => stage,
            _ => "running",
        };
        json!({
            "id": task.id,
            "kind": task.kind,
            "collection": task.collection.strip_prefix("default/").unwrap_or(&task.collection),
            "state": state,
            "stage": task.stage,
            "done": task.done,
            "total": task.total,
            "began_ms": (task.began_ms > 0).then_some(task.began_ms),
            "ended_ms": task.ended_ms,
            "error": task.error,
        })
    };
    line(&json!({ "tasks": tasks.iter().map(one).collect::<Vec<_>>() }))
}

fn index(info: &CollectionInfo, config: &DenseConfig) -> Value {
    let stats = &info.stats;
    let state = match (&info.damage, stats.tail) {
        (Some(_), _) if info.is_closed => "closed",
        (Some(_), _) => "damaged",
        (None, 0) => "ready",
        (None, _) => "indexing",
    };
    json!({
        "type": config.index.name(),
        "cells": info.cells.map_or(0, |cells| cells.cells),
        "state": state,
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
pub(super) const LEARNED: [Key; 7] = {
    use Key::*;
    [SqBits, QuantPqM, IvfPqM, PqNbits, PrqLayers, OpqIters, AnisotropicEta]
};

/// The keys that answers have by themselves. `opq` is told by `opq_iters`, and there is nothing to tell of `partitions`.
pub(super) fn told() -> impl Iterator<Item = Key> {
    let untold = [Key::Opq, Key::Partitions];
    Key::of_with_first(Family::Dense, ORDER)
        .filter(move |key| !LEARNED.contains(key) && !untold.contains(key))
}

/// What it was made with, defaults filled in.
pub(super) fn configuration(config: &DenseConfig) -> Value {
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

/// The answer of `GET /v1/collections/{name}`. Why a collection is damaged is for the log; the answer says that it is.
///
/// # Errors
/// One of another family.
pub fn info_answer(info: &CollectionInfo) -> Result<Vec<u8>, ApiError> {
    let (config, stats) = (info.dense_config()?, &info.stats);
    let memory = memory(info);
    let index = index(info, config);
    Ok(line(&json!({
        "name": name(info),
        "config": configuration(config),
        "points": stats.points(),
        "sparse_vectors": stats.sparse_vectors,
        "tombstoned": stats.tombstoned,
        "index": index,
        "memory": memory,
    })))
}
