//! Lists and figures of collections; counts, facets and samples of points.

use crate::limits::PAGE_POINTS;
use crate::op::{ApiError, CountPoints, FacetPoints, SamplePoints, compile_filter, listed};
use crate::rest::pages::Pages;
use crate::wire::config::whole_object;
use crate::wire::filter::WireFilter;
use crate::wire::info::{bare_name, configuration_of, information};
use crate::wire::json::{decode, json_object};
use crate::wire::payloads::write_in;
use crate::wire::value::{facet_value, write_json};
use nigh_engine::collection::DenseConfig;
use nigh_engine::collection::config_keys::Key;
use nigh_engine::payload::PayloadFormat;
use nigh_shard::collection_file::to_json;
use nigh_shard::core::{CollectionInfo, FacetValue, TaskReport};
use nigh_shard::family::CollectionConfig;
use serde_json::{Map, Value, json};

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
    Ok(FacetPoints { collection, key, filter, limit: listed(body.limit)? })
}

/// Decodes the body of `…/points/sample`; `seed` is drawn by the caller for bodies without one.
///
/// # Errors
/// 400.
pub fn decode_sample(collection: String, body: &[u8], seed: u64) -> Result<SamplePoints, ApiError> {
    let body: SampleBody = decode(body)?;
    let filter = compile_filter(body.filter.map(|filter| filter.0))?;
    Ok(SamplePoints { collection, filter, limit: listed(body.limit)?, seed: body.seed.unwrap_or(seed) })
}

/// The answer of `…/points/facet`, written page by page.
pub struct FacetPages {
    found: std::vec::IntoIter<(FacetValue, u64)>,
    format: PayloadFormat,
    begun: bool,
}

impl FacetPages {
    /// Starts with these values, which are written in the format of their collection.
    pub fn new(found: Vec<(FacetValue, u64)>, format: PayloadFormat) -> FacetPages {
        FacetPages { found: found.into_iter(), format, begun: false }
    }

    /// Appends the next page.
    pub fn write(&mut self, out: &mut Vec<u8>) {
        for (value, count) in self.found.by_ref().take(PAGE_POINTS) {
            let start: &[u8] = if self.begun { b",{\"value\":" } else { b"{\"facets\":[{\"value\":" };
            self.begun = true;
            out.extend_from_slice(start);
            write_in(self.format, out, &facet_value(&value));
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

fn line(value: &Value) -> Vec<u8> {
    let mut out = value.to_string().into_bytes();
    out.push(b'\n');
    out
}

/// The answer of `GET /v1/collections`.
pub fn list_answer(all: &[CollectionInfo]) -> Vec<u8> {
    let one = |info: &CollectionInfo| {
        let mut entry = json!({ "name": bare_name(info), "family": info.config.family().name() });
        match &*info.config {
            CollectionConfig::Dense(config) => {
                entry["dim"] = config.dim.into();
                entry["metric"] = to_json(Key::Metric.effective(config));
            }
            CollectionConfig::MultiVector(config) => entry["dim"] = config.tokens.dim.into(),
            CollectionConfig::Named(config) => {
                let dense = config.dense_spaces().map(|space| (&space.name[..], space_entry(&space.config)));
                let sparse = config.sparse_names().map(|name| (name, json!({ "sparse": true })));
                let spaces = dense.chain(sparse).map(|(name, space)| (name.to_owned(), space));
                entry["named_vectors"] = spaces.collect::<Map<_, _>>().into();
            }
        }
        entry["points"] = info.stats.points().into();
        entry["damaged"] = (info.damage.is_some() && !info.is_closed).into();
        entry["closed"] = info.is_closed.into();
        entry["opening"] = info.is_opening.into();
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

/// The answer of `GET …/{name}/config` and `PATCH …/{name}/config`, with the name as sent.
pub fn config_answer(name: &str, info: &CollectionInfo) -> Vec<u8> {
    let named = info.config.named();
    let key = if named.is_some() { "named_vectors" } else { "config" };
    let mut answer =
        Map::from_iter([("name".to_owned(), name.into()), (key.to_owned(), configuration_of(info))]);
    if let Some(config) = named {
        answer.append(&mut whole_object(&config.whole));
    }
    line(&answer.into())
}

/// The answer of `GET …/{name}`. Why a collection is damaged is for the log; the answer says that it is.
pub fn info_answer(info: &CollectionInfo) -> Vec<u8> {
    line(&information(info))
}
