//! REST: the codec between HTTP messages and the request set.
//!
//! `routes` finds the route, this module authorises it and picks the decoder of its body, the dispatcher carries the
//! request out, and the answer is written by hand where it is hot. Authorisation comes before the body wherever the
//! collection is known from the path.

mod aliases;
mod binary;
pub(crate) mod collections;
mod envelope;
mod error;
mod filter;
mod floats;
mod headers;
mod inspect;
pub(crate) mod json;
mod lane_bodies;
mod lanes;
mod manage;
mod openapi;
pub(crate) mod order;
mod pages;
mod parameters;
mod payload;
mod points;
#[doc(hidden)]
pub mod probe;
pub(crate) mod read;
mod routes;
mod search;
pub(crate) mod value;

pub use binary::{BinaryQuery, IngestDecoder, IngestRoute, decode_query};
pub use error::status;
pub use filter::WireFilter;

use crate::absent_requests::Unmet;
use crate::auth::{Unauthorized, bearer_token};
use crate::dispatch::dispatch;
use crate::http::{BodyReader, Collected, Handler, HttpConfig, Reply, ReplyBody, json_reply};
use crate::kv_metrics;
use crate::lane_requests::ExplainedSearch;
use crate::limits;
use crate::metrics;
use crate::request::{
    Action, ApiError, BuildStaged, ChangeAliases, ChangePayload, CreateCollection, DeleteByFilter,
    DeletePoint, DropCollection, ErrorKind, GetCollection, ListAliases, ListCollections, ListTasks,
    StagePoints, WritePoints, check_name, compile_filter,
};
use ::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use ::http::request::Parts;
use ::http::{Response, StatusCode};
use bytes::Bytes;
use error::{error_reply, not_found, wrong_method};
use json::{decode, is_object, json_object};
use lanes::LaneRoute;
use nigh_shard::core::{AliasChange, Core, Written};
use pages::{Room, stream_pages};
use parameters::{ConditionsBody, Query, ReadParameters, WriteParameters, agreed};
use points::BatchPages;
use routes::{ManageRoute, PointsRoute, Resolved, Route, parse_id, resolve};
use search::FoundPages;
use std::rc::Rc;
use std::time::Instant;
use value::write_string;

/// Answers REST requests on one core.
pub struct RestService {
    core: Rc<Core>,
    config: Rc<HttpConfig>,
}

json_object! {
    struct DeleteBody {
        "filter" => filter: WireFilter,
        "write_consistency_factor" => write_consistency_factor: i64,
        "wait" => wait: bool,
    }
}

json_object! {
    struct BuildBody {
        "workers" => workers: i64,
        // Whether to answer when it is built, as clients expect, or when it has begun.
        "wait" => wait: bool,
    }
}

impl Handler for RestService {
    async fn handle(&self, head: Parts, body: BodyReader) -> Reply {
        let resolved = match resolve(&head.method, head.uri.path()) {
            Ok(resolved) => resolved,
            Err(error) => return error_reply(&error),
        };
        let route = match resolved {
            Resolved::Route(route) => route,
            Resolved::WrongMethod(allow) => return wrong_method(allow),
            Resolved::NotFound => return not_found(),
        };
        match self.route(&head, route, body).await {
            Ok(reply) => reply,
            Err(error) => error_reply(&error),
        }
    }
}

impl RestService {
    /// For one core.
    pub fn new(core: Rc<Core>, config: Rc<HttpConfig>) -> Self {
        RestService { core, config }
    }

    async fn route(&self, head: &Parts, route: Route<'_>, mut body: BodyReader) -> Result<Reply, ApiError> {
        if let Some((action, collection)) = route.action() {
            self.authorize(head, action, collection)?;
            if action != Action::Read {
                headers::refuse_preconditions(&head.headers)?;
            }
        }
        let query = Query::new(head.uri.query());
        query.check(route.parameters())?;
        body.encoded(headers::encoding(&head.headers)?);
        match route {
            Route::Health => Ok(ok(&b"{\"status\":\"ok\"}\n"[..])),
            // A node is ready as soon as it listens, as recovery comes before the listeners, and as long as it takes writes and serves all that
            // it has.
            Route::Ready => Ok(match self.core.not_ready() {
                None => ok(&b"{\"status\":\"ready\"}\n"[..]),
                Some(detail) => error::not_ready(&detail),
            }),
            Route::Replication => Ok(ok(&b"{\"shards\":[]}\n"[..])),
            Route::OpenApi => Ok(json_reply(StatusCode::OK, ReplyBody::counted(openapi::DOCUMENT))),
            Route::Metrics => Ok(text(metrics::page(&self.core, &self.config.telemetry).await)),
            Route::KvMetrics => {
                let prefix = self.config.telemetry.prefix();
                Ok(text(kv_metrics::page(prefix, &self.core.keys_stats().await)))
            }
            Route::Create => {
                let body = json_body(&mut body).await?;
                self.create(body).await
            }
            Route::Drop(name) => {
                let collection = name.into_owned();
                let mut answer = named_answer("dropped", &collection);
                let existed = dispatch(&self.core, DropCollection { collection }).await?;
                put_existed(&mut answer, existed);
                Ok(ok(answer))
            }
            Route::Query(name) => self.lanes(name.into_owned(), LaneRoute::Query, query, body).await,
            Route::Tasks => Ok(ok(inspect::tasks_answer(&dispatch(&self.core, ListTasks).await?))),
            Route::List => Ok(ok(inspect::list_answer(&dispatch(&self.core, ListCollections).await?))),
            Route::Info(name) => {
                let request = GetCollection { collection: name.into_owned() };
                Ok(ok(inspect::info_answer(&dispatch(&self.core, request).await?)))
            }
            Route::CreateAlias => {
                let body = json_body(&mut body).await?;
                let (alias, collection) = self.decode(body, aliases::decode_create).await?;
                let mut answer = Vec::new();
                aliases::write_alias(&mut answer, &alias, &collection);
                answer.push(b'\n');
                let changes = vec![AliasChange::Create { alias, collection }];
                dispatch(&self.core, ChangeAliases { changes }).await?;
                Ok(json_reply(StatusCode::CREATED, ReplyBody::whole(answer)))
            }
            Route::ListAliases => {
                let target = query.get("collection");
                Ok(ok(aliases::list_answer(&dispatch(&self.core, ListAliases { target }).await?)))
            }
            Route::ChangeAliases => {
                let body = json_body(&mut body).await?;
                let request = self.decode(body, aliases::decode_batch).await?;
                let changes = request.changes.clone();
                let existed = dispatch(&self.core, request).await?;
                Ok(ok(aliases::change_answer(&changes, &existed)))
            }
            Route::DeleteAlias(alias) => {
                let alias = alias.into_owned();
                let mut answer = named_answer("deleted", &alias);
                let changes = vec![AliasChange::Delete { alias }];
                let existed = dispatch(&self.core, ChangeAliases { changes }).await?;
                put_existed(&mut answer, existed == [true]);
                Ok(ok(answer))
            }
            Route::Manage(name, route) => {
                let body = match route {
                    ManageRoute::Resplit | ManageRoute::Reshard => json_body(&mut body).await?,
                    _ => Collected::default(),
                };
                let collection = name.into_owned();
                let decode = move |body: &[u8]| manage::decode_manage(collection, route, body);
                self.unmet(self.decode(body, decode).await?).await
            }
            Route::Backup | Route::ListBackups => self.unmet(manage::backups()).await,
            Route::AddKey => {
                self.unmet(self.decode(json_body(&mut body).await?, manage::decode_add_key).await?).await
            }
            Route::ListKeys => self.unmet(manage::keys()).await,
            Route::RevokeKey => {
                self.unmet(self.decode(json_body(&mut body).await?, manage::decode_revoke_key).await?).await
            }
            Route::Points(name, route) => self.points(head, name.into_owned(), route, query, body).await,
        }
    }

    async fn unmet(&self, request: Unmet) -> Result<Reply, ApiError> {
        match dispatch(&self.core, request).await? {}
    }

    async fn points(
        &self,
        head: &Parts,
        collection: String,
        route: PointsRoute<'_>,
        query: Query<'_>,
        mut body: BodyReader,
    ) -> Result<Reply, ApiError> {
        let core = &self.core;
        match route {
            PointsRoute::Write => {
                let (now_ms, write) = (core.unix_ms(), WriteParameters::of(query)?);
                let body = json_body(&mut body).await?;
                let decode = move |body: &[u8]| points::decode_write(body, write, now_ms);
                let (id, batch) = self.decode(body, decode).await?;
                // A single write has no progress to report.
                let written = dispatch(core, WritePoints { collection, batch })
                    .await
                    .map_err(|error| ApiError { committed: None, ..error })?;
                if written.contains(&Written::Conflict) {
                    return Err(ApiError::new(
                        ErrorKind::Conflict,
                        format!("version conflict on id {id}: expected_version is not the stored one"),
                    ));
                }
                Ok(ok(format!("{{\"id\":{id}}}\n")))
            }
            PointsRoute::Batch => {
                let write = WriteParameters::of(query)?;
                points::check_batch_options(write.write_consistency_factor, write.wait)?;
                let batch = self.ingest_body(head, body, IngestRoute::Batch).await?;
                let pages = BatchPages::before(&batch);
                // Before anything is written, since what was written must be answered.
                let bytes = pages.bytes_of(batch.points.len());
                let room = if bytes > 0 { Some(Room::take(core, bytes)?) } else { None };
                let written = dispatch(core, WritePoints { collection, batch }).await?;
                let mut pages = pages.after(written);
                let mut first = Vec::new();
                pages.write(&mut first);
                let body = match room {
                    Some(room) => room.stream(first, pages)?,
                    None => ReplyBody::whole(first),
                };
                Ok(json_reply(StatusCode::OK, body))
            }
            PointsRoute::Stage => {
                // Staged points are in memory alone: these have no effect on them, wherever they stand.
                WriteParameters::of(query)?.with_body(WriteParameters::default())?.validate()?;
                let batch = self.ingest_body(head, body, IngestRoute::Staging).await?;
                let staged = dispatch(core, StagePoints { collection, batch }).await?;
                Ok(ok(format!("{{\"staged\":{staged}}}\n")))
            }
            PointsRoute::Build => {
                let (workers, wait) = build_options(query, &mut body).await?;
                match dispatch(core, BuildStaged { collection, workers, wait }).await? {
                    Some(task) if !wait => {
                        let answer = format!("{{\"status\":\"building\",\"task\":{task}}}\n");
                        Ok(json_reply(StatusCode::ACCEPTED, ReplyBody::whole(answer)))
                    }
                    _ => Ok(ok(&b"{\"status\":\"built\"}\n"[..])),
                }
            }
            PointsRoute::BatchGet => {
                let projection = read::Projection::of(query)?;
                body.limit(limits::JSON_BULK_BODY_MAX_BYTES)?;
                let wanted = points::read_envelope(&mut body, read::BatchGetBody::default()).await?;
                read::batch_get(core, collection, projection, wanted).await
            }
            PointsRoute::DeleteByFilter => {
                let write = WriteParameters::of(query)?;
                let body = json_body(&mut body).await?;
                let request = self.decode(body, move |body| decode_delete(collection, body, write)).await?;
                let deleted = dispatch(core, request).await?;
                Ok(ok(format!("{{\"deleted\":{deleted}}}\n")))
            }
            PointsRoute::Scroll => {
                let read = ReadParameters::of(query)?;
                let body = json_body(&mut body).await?;
                let decode = move |body: &[u8]| read::decode_scroll(collection, body, read);
                let request = self.decode(body, decode).await?;
                match request {
                    read::Scroll::ById(request) => read::scroll(core, request).await,
                    read::Scroll::Ordered(request) => order::scroll(core, request).await,
                }
            }
            PointsRoute::Count => {
                let body = json_body(&mut body).await?;
                let request = self.decode(body, move |body| inspect::decode_count(collection, body)).await?;
                let count = dispatch(core, request).await?;
                Ok(ok(format!("{{\"count\":{count}}}\n")))
            }
            PointsRoute::Facet => {
                let body = json_body(&mut body).await?;
                let request = self.decode(body, move |body| inspect::decode_facet(collection, body)).await?;
                let found = dispatch(core, request).await?;
                let bytes = size_of_val(&found[..]);
                let mut pages = inspect::FacetPages::new(found);
                let mut first = Vec::new();
                pages.write(&mut first);
                Ok(json_reply(StatusCode::OK, stream_pages(core, first, pages, bytes)?))
            }
            PointsRoute::Sample => {
                let (body, now_ms) = (json_body(&mut body).await?, core.unix_ms());
                let decode = move |body: &[u8]| inspect::decode_sample(collection, body, now_ms);
                let request = self.decode(body, decode).await?;
                let (collection, filter) = (request.collection.clone(), request.filter.clone());
                let ids = dispatch(core, request).await?;
                order::documents(core, collection, filter, ids).await
            }
            PointsRoute::Search => self.search(head, collection, query, body, false).await,
            PointsRoute::SearchDocs => self.search(head, collection, query, body, true).await,
            PointsRoute::Payload(id, route) => {
                let (id, write) = (parse_id(&id)?, WriteParameters::of(query)?);
                let body = json_body(&mut body).await?;
                let decode = move |body: &[u8]| payload::decode_change(route, body, write);
                let (change, write) = self.decode(body, decode).await?;
                dispatch(core, ChangePayload { collection, id, change, write }).await?;
                Ok(ok(&b"{\"applied\":true}\n"[..]))
            }
            PointsRoute::Lanes(route) => self.lanes(collection, route, query, body).await,
            PointsRoute::Get(id) => {
                let stated = optional_body::<read::GetBody>(&mut body).await?;
                read::get(core, collection, &id, query, stated).await
            }
            PointsRoute::Delete(id) => {
                let (id, write) = (parse_id(&id)?, WriteParameters::of(query)?);
                let stated = optional_body::<ConditionsBody>(&mut body).await?;
                let write = write.with_body(stated.parameters())?;
                let request = DeletePoint { collection, id, write };
                let deleted = dispatch(core, request).await?;
                Ok(ok(format!("{{\"deleted\":{deleted}}}\n")))
            }
        }
    }

    async fn search(
        &self,
        head: &Parts,
        collection: String,
        query: Query<'_>,
        mut body: BodyReader,
        documents: bool,
    ) -> Result<Reply, ApiError> {
        let read = ReadParameters::of(query)?;
        let binary = is_binary(head);
        body.limit(if binary { limits::BINARY_QUERY_MAX_BYTES } else { limits::JSON_BODY_MAX_BYTES })?;
        let body = body.whole().await?;
        let reply = self.found(collection, read, body, binary, documents).await;
        if binary { reply.map_err(binary::without_fallback_words) } else { reply }
    }

    async fn found(
        &self,
        collection: String,
        read: ReadParameters,
        body: Collected,
        binary: bool,
        documents: bool,
    ) -> Result<Reply, ApiError> {
        let received = Instant::now();
        let request = self
            .decode(body, move |body| {
                if binary {
                    search::decode_binary(collection, body, read, documents)
                } else {
                    search::decode_json(collection, body, read, documents)
                }
            })
            .await?;
        if request.explain {
            let outcome = dispatch(&self.core, ExplainedSearch(request)).await?;
            return self.lanes_reply(outcome, documents, received);
        }
        let hits = dispatch(&self.core, request).await?;
        let bytes = size_of_val(&hits[..]);
        let mut pages = FoundPages::new(hits, documents, self.core.unix_ms());
        let mut first = Vec::new();
        pages.write(&mut first);
        let index = self.core.runtime().index();
        self.config.telemetry.core(index).searches.record(received.elapsed());
        Ok(json_reply(StatusCode::OK, stream_pages(&self.core, first, pages, bytes)?))
    }

    /// Decodes a body here, or a very large one on a thread that may be busy for long.
    async fn decode<T: Send + 'static>(
        &self,
        body: Collected,
        decode: impl FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        if body.len() <= limits::INLINE_JSON_MAX_BYTES {
            return decode(&body.joined());
        }
        self.core.runtime().computing(move || decode(&body.joined())).await
    }

    async fn ingest_body(
        &self,
        head: &Parts,
        body: BodyReader,
        route: IngestRoute,
    ) -> Result<nigh_shard::core::WriteBatch, ApiError> {
        let now_ms = self.core.unix_ms();
        if is_binary(head) {
            points::read_binary(body, route, now_ms).await
        } else {
            points::read_json(body, route, now_ms).await
        }
    }

    async fn create(&self, body: Collected) -> Result<Reply, ApiError> {
        let body: collections::CreateBody = self.decode(body, |body| decode(body)).await?;
        let collection = body.name.filter(|name| !name.is_empty());
        let collection =
            collection.ok_or_else(|| ApiError::invalid("name is required: that of the new collection"))?;
        check_name(&collection)?;
        let config = body.config.ok_or_else(collections::no_config)?.into_config()?;
        let mut answer = named_answer("name", &collection);
        answer.extend_from_slice(b"}\n");
        dispatch(&self.core, CreateCollection { collection, config }).await?;
        Ok(json_reply(StatusCode::CREATED, ReplyBody::whole(answer)))
    }

    fn authorize(&self, head: &Parts, action: Action, collection: &str) -> Result<(), ApiError> {
        let token = head.headers.get(AUTHORIZATION).map(|value| bearer_token(value.as_bytes()));
        let full;
        let resource = if collection.is_empty() || collection.contains('/') {
            collection
        } else {
            full = format!("default/{collection}");
            &full
        };
        self.config
            .auth
            .authorize(token, action, resource)
            .map_err(|Unauthorized| ApiError::new(ErrorKind::Unauthorized, "unauthorized"))
    }
}

/// Decodes the body of `…/points/delete`, whose query string states `write`.
fn decode_delete(
    collection: String,
    body: &[u8],
    write: WriteParameters,
) -> Result<DeleteByFilter, ApiError> {
    let body: DeleteBody = decode(body)?;
    Ok(DeleteByFilter {
        collection,
        filter: compile_filter(body.filter.map(|filter| filter.0))?,
        write: write.with_body(WriteParameters {
            write_consistency_factor: body.write_consistency_factor,
            wait: body.wait,
            expected_version: None,
        })?,
    })
}

/// A 200 with a JSON body.
fn ok(body: impl Into<Bytes>) -> Reply {
    json_reply(StatusCode::OK, ReplyBody::whole(body))
}

/// A 200 with figures for Prometheus.
fn text(page: String) -> Reply {
    // Whoever watches the server has to see it at its limits as well.
    let mut reply = Response::new(ReplyBody::counted(page));
    reply
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    reply
}

/// `{"<key>":"<name>"}`.
fn named_answer(key: &str, name: &str) -> Vec<u8> {
    let mut out = format!("{{\"{key}\":").into_bytes();
    write_string(&mut out, name);
    out
}

/// Ends an answer that names what was removed by saying whether it was there.
fn put_existed(answer: &mut Vec<u8>, existed: bool) {
    answer.extend_from_slice(format!(",\"existed\":{existed}}}\n").as_bytes());
}

/// The whole body of an ordinary JSON route.
async fn json_body(body: &mut BodyReader) -> Result<Collected, ApiError> {
    body.limit(limits::JSON_BODY_MAX_BYTES)?;
    Ok(body.whole().await?)
}

/// The options of a route whose body is optional; none where there is no body.
async fn optional_body<T: serde::de::DeserializeOwned + Default>(
    body: &mut BodyReader,
) -> Result<T, ApiError> {
    if body.declared_bytes() == Some(0) {
        return Ok(T::default());
    }
    body.limit(limits::OPTIONS_BODY_MAX_BYTES)?;
    match body.whole().await? {
        body if body.is_empty() => Ok(T::default()),
        body => decode(&body.joined()),
    }
}

/// Workers asked for by a build, and whether to wait for it. The interface ignores a body that cannot be decoded; an object in
/// it is meant, and is refused where it does not say what was meant.
async fn build_options(query: Query<'_>, body: &mut BodyReader) -> Result<(usize, bool), ApiError> {
    let (workers, wait) = (query.number("workers")?, query.boolean("wait")?);
    let mut stated = BuildBody::default();
    if body.declared_bytes() != Some(0) {
        body.limit(limits::OPTIONS_BODY_MAX_BYTES)?;
        let body = body.whole().await?.joined();
        if is_object(&body) {
            stated = decode(&body)?;
        }
    }
    // Below zero means the default, as in all numbers of workers and beams.
    let workers =
        agreed("workers", workers, stated.workers)?.and_then(|workers| usize::try_from(workers).ok());
    Ok((workers.unwrap_or(0), agreed("wait", wait, stated.wait)?.unwrap_or(true)))
}

/// Whether the body is one of the binary forms; only the media type counts.
fn is_binary(head: &Parts) -> bool {
    let Some(value) = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let media_type = value.split(';').next().unwrap_or("").trim();
    media_type.eq_ignore_ascii_case("application/octet-stream")
}
