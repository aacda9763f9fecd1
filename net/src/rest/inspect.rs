//! Lists and figures of collections; counts, facets and samples of points.

use crate::limits::PAGE_POINTS;
use crate::request::{ApiError, CountPoints, FacetPoints, SamplePoints, compile_filter};
use crate::rest::filter::WireFilter;
use crate::rest::json::{decode, json_object};
use crate::rest::pages::Pages;
use crate::rest::value::{write_json, write_value};
use nigh_engine::collection::{DenseConfig, IndexType, IvfConfig, Quantizer};
use nigh_engine::distance::Metric;
use nigh_engine::payload::ValueRef;
use nigh_engine::quantizer::{CellProduct, Quantization};
use nigh_shard::core::{CollectionInfo, FacetValue, TaskReport};
use serde_json::{Value, json};

/// Values of a facet, or points of a sample, when the body does not say.
const LIMIT_DEFAULT: i64 = 10;
/// And most.
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

fn metric(config: &DenseConfig) -> &'static str {
    match config.metric {
        Metric::Cosine => "cosine",
        Metric::L2 => "l2",
        Metric::Dot => "dot",
    }
}

fn line(value: &Value) -> Vec<u8> {
    let mut out = value.to_string().into_bytes();
    out.push(b'\n');
    out
}

/// The answer of `GET /v1/collections`.
pub fn list_answer(all: &[CollectionInfo]) -> Vec<u8> {
    let one = |info: &CollectionInfo| {
        json!({
            "name": name(info),
            "dim": info.config.dim,
            "metric": metric(&info.config),
            "points": info.stats.points(),
            "damaged": info.damage.is_some() && !info.is_closed,
            "closed": info.is_closed,
        })
    };
    line(&json!({ "collections": all.iter().map(one).collect::<Vec<_>>() }))
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

/// What a trained quantizer learns; `null` for others.
fn trained(config: &DenseConfig) -> Value {
    let Quantizer::Trained(quantization) = config.quant else { return Value::Null };
    let mut learned = match quantization {
        Quantization::Scalar { width } => json!({"sq_bits": width.bits()}),
        Quantization::Sign => json!({}),
        Quantization::Product { parts, bits, rotations, eta } => {
            json!({"quant_pq_m": parts, "pq_nbits": bits, "opq_iters": rotations, "anisotropic_eta": eta})
        }
        Quantization::Residual { parts, layers, rotations } => {
            json!({"quant_pq_m": parts, "prq_layers": layers, "opq_iters": rotations})
        }
    };
    learned["threshold"] = match config.trained_at() {
        usize::MAX => 0,
        points => points,
    }
    .into();
    learned
}

fn index(info: &CollectionInfo) -> Value {
    let stats = &info.stats;
    let state = match (&info.damage, stats.tail) {
        (Some(_), _) if info.is_closed => "closed",
        (Some(_), _) => "damaged",
        (None, 0) => "ready",
        (None, _) => "indexing",
    };
    json!({
        "type": info.config.index.name(),
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

/// What it was made with, defaults filled in.
fn configuration(config: &DenseConfig) -> Value {
    let ivf = config.ivf();
    let number = |of: fn(&IvfConfig) -> usize| ivf.map_or(0, of);
    let drift = ivf.and_then(|ivf| ivf.drift).map(|drift| drift.limits());
    let product = ivf.and_then(|ivf| ivf.product);
    let codes = product.map(|product| {
        let CellProduct { parts, bits, rotations, eta } = product.code;
        json!({"ivf_pq_m": parts, "pq_nbits": bits, "opq_iters": rotations, "anisotropic_eta": eta})
    });
    let index_type = config.index.name();
    let vamana = if let IndexType::Vamana(vamana) = &config.index { Some(vamana) } else { None };
    json!({
        "dim": config.dim,
        "metric": metric(config),
        "m": config.m,
        "ef_construction": config.ef_construction,
        "ef_search": config.ef_search,
        "seed": config.seed,
        "level0_full_degree": config.level0_full_degree,
        "extend_candidates": config.extend_candidates,
        "extend_candidates_max": config.extend_candidates_max,
        "filter_first_relative_bp": config.filter_first_relative_bp,
        "traversal_codes": config.traversal_codes,
        "quant": config.quant.name(),
        "trained": trained(config),
        "rescore_factor": config.rescored_per_result(),
        "quantized_build": config.quantized_build,
        "pq_drop_vecs": config.pq_drop_vecs,
        "persistent": config.persistent,
        "index_type": index_type,
        "vamana_r": vamana.map_or(0, |vamana| vamana.degree),
        "vamana_l": vamana.map_or(0, |vamana| vamana.beam),
        "vamana_alpha": vamana.map_or(0.0, |vamana| vamana.alpha),
        "ivf_nlist": number(|ivf| ivf.nlist),
        "ivf_nprobe": number(IvfConfig::probes),
        "ivf_train_threshold": number(IvfConfig::trains_at),
        "ivf_drift_retrain": drift.is_some(),
        "ivf_drift_growth_factor": drift.map_or(0.0, |(growth, _)| growth),
        "ivf_drift_factor": drift.map_or(0.0, |(_, factor)| factor),
        "ivf_pq": product.is_some(),
        "ivf_rerank": product.is_some_and(|product| product.rerank),
        "ivf_codes": codes,
        "soar": ivf.is_some_and(|ivf| ivf.soar.is_some()),
        "soar_lambda": ivf.and_then(IvfConfig::spills).unwrap_or(0.0),
        "max_vectors": config.max_vectors,
        "max_bytes": config.max_bytes,
        "max_inserts_per_second": config.max_inserts_per_second,
        "max_ef_search": config.max_ef_search,
        "full_text": config.full_text.map(|text| json!({"analyzer": "english", "k1": text.k1, "b": text.b})),
    })
}

/// The answer of `GET /v1/collections/{name}`. Why a collection is damaged is for the log; the answer says that it is.
pub fn info_answer(info: &CollectionInfo) -> Vec<u8> {
    let (config, stats) = (&info.config, &info.stats);
    let memory = memory(info);
    let index = index(info);
    line(&json!({
        "name": name(info),
        "config": configuration(config),
        "points": stats.points(),
        "sparse_vectors": stats.sparse_vectors,
        "tombstoned": stats.tombstoned,
        "index": index,
        "memory": memory,
    }))
}
