//! REST: the codec between HTTP messages and the request set.
//!
//! `routes` finds the route, the door lets the request in, this module picks the decoder of its body, the door carries the
//! operation out, and the answer is written by hand where it is hot. Where the body names what the right is needed on, the door checks the sender
//! first and lets the request in once its body has been decoded; everywhere else it lets the request in, or refuses it, before the body is read.

mod aliases;
mod binary;
mod binary_searches;
pub(crate) mod collections;
#[cfg(test)]
mod config_tests;
mod delete;
mod envelope;
mod error;
mod headers;
mod inspect;
mod lane_bodies;
mod lanes;
mod manage;
mod multi_vector;
mod multi_vector_bodies;
mod named;
mod named_bodies;
mod openapi;
mod pages;
mod parameters;
mod payload;
mod points;
#[doc(hidden)]
pub mod probe;
mod read;
mod records;
mod routes;
mod scroll;
mod search;
mod search_batch;
mod shared;
mod vectors;

pub use binary::{BinaryQuery, IngestDecoder, IngestRoute, decode_query};
pub use error::status;

use crate::Serving;
use crate::auth::registry::Caller;
use crate::auth::{Credentials, Question};
use crate::door::{Admitted, Door, Permit};
use crate::http::{
    BodyReader, ClientCertificate, Collected, Handler, HttpConfig, Reply, ReplyBody, json_reply, serve_with,
};
use crate::limits;
use crate::op::{
    Action, ApiError, BackUp, ChangeAliases, CheckReady, CreateCollection, DeletePoint, Direction,
    DropCollection, ListAliases, ListBackups, ListCollections, ListKeys, ListTasks, MoveCollection, Op,
    Operation, PlacementOp, ProcessOp, ReadKvMetrics, ReadMetrics, SentId, StagePoints, Unmet, VectorOp,
    WritePoints, check_name, names_of,
};
use crate::wire::ids::id_json;
use crate::wire::json::{decode, is_object, json_object};
use crate::wire::value::write_string;
use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::request::Parts;
use ::http::{Response, StatusCode};
use bytes::Bytes;
use error::{error_reply, not_found, wrong_method};
use nigh_shard::core::{AliasChange, Core, Written};
use nigh_shard::env::{self, Env};
use pages::{Room, stream_pages};
use parameters::{ConditionsBody, Query, ReadParameters, WriteParameters, agreed, with_version};
use points::BatchPages;
use routes::{Reached, Resolved, point_id, resolve};
use search::HitKind;
use std::net::TcpListener;
use std::rc::Rc;
use std::time::Instant;

/// Serves REST on `listener` (one of [`crate::bind`]'s) on this core until the process is asked to stop; returns when the
/// requests in flight have been answered or their time to finish has passed.
///
/// # Errors
/// When the listener cannot be registered with the reactor.
pub fn serve(core: Rc<Core>, listener: TcpListener, config: Rc<HttpConfig>) -> Serving {
    // Boxed here, so that all of it is compiled in this crate, and not once more in each that serves.
    Box::pin(async move {
        let (env, account) = (core.env().clone(), core.node().account.clone());
        let door = Door::new(core, config.auth.clone(), config.telemetry.clone());
        let service = Rc::new(RestService::new(door, config.clone()));
        serve_with(env, listener, service, config, account).await
    })
}

/// Answers REST requests on one core.
pub struct RestService {
    door: Door,
    config: Rc<HttpConfig>,
}

json_object! {
    struct BuildBody {
        "workers" => workers: i64,
        // Whether to answer when it is built, as clients expect, or when it has begun.
        "wait" => wait: bool,
    }
}

/// What a request says about its sender.
fn credentials_of(head: &Parts) -> Result<Credentials<'_>, ApiError> {
    let certificate = head.extensions.get::<ClientCertificate>().map(|certificate| &*certificate.0);
    let token = headers::token(&head.headers)?;
    Ok(Credentials { certificate, ..Credentials::token(token) })
}

impl Handler for RestService {
    async fn handle(&self, head: Parts, body: BodyReader) -> Reply {
        let resolved = match resolve(&head.method, head.uri.path()) {
            Ok(resolved) => resolved,
            Err(error) => return error_reply(&error),
        };
        let reached = match resolved {
            Resolved::Route(reached) => reached,
            Resolved::WrongMethod(allow) => return wrong_method(&allow),
            Resolved::NotFound => return not_found(),
        };
        match self.answer(&head, reached, body).await {
            Ok(reply) => reply,
            Err(error) => error_reply(&error),
        }
    }
}

impl RestService {
    /// For one core.
    pub fn new(door: Door, config: Rc<HttpConfig>) -> Self {
        RestService { door, config }
    }

    async fn answer(
        &self,
        head: &Parts,
        reached: Reached<'_>,
        mut body: BodyReader,
    ) -> Result<Reply, ApiError> {
        let query = Query::new(head.uri.query());
        let permit = match reached.right() {
            None => self.door.admit_anybody(),
            Some(right) => {
                let credentials = credentials_of(head)?;
                let asked = |collection| Question { credentials, op: reached.row.name, right, collection };
                if reached.route.is_named_in_body {
                    // The body of an unknown sender is not read.
                    body.charge_to(self.door.recognise_for(&asked(""), body.presence())?);
                    return self.named_in_body(head, &asked(""), &reached, query, body).await;
                }
                let Admitted { permit, bill } =
                    self.door.admit(&asked(&reached.resource(query)), body.presence())?;
                body.charge_to(bill);
                if right != Action::Read {
                    headers::refuse_preconditions(&head.headers)?;
                }
                permit
            }
        };
        query.check(reached.route.parameters)?;
        body.encoded(headers::encoding(&head.headers)?);
        let permit = permit.of(reached.row.op.family());
        if matches!(reached.row.op, Op::Vector(_) | Op::Named(_) | Op::MultiVector(_)) {
            permit.knows_collections()?;
        }
        match reached.row.op {
            Op::Process(op) => self.process(&permit, head, op, reached, query, body).await,
            Op::Placement(PlacementOp::Evict) => {
                let collection = reached.collection.into_owned();
                permit.run(MoveCollection { collection, direction: Direction::Evict }).await?;
                Ok(ok(&b"{\"evicted\":true}\n"[..]))
            }
            Op::Placement(PlacementOp::Restore) => {
                let collection = reached.collection.into_owned();
                permit.run(MoveCollection { collection, direction: Direction::Promote }).await?;
                Ok(ok(&b"{\"restored\":true}\n"[..]))
            }
            Op::Placement(op) => {
                let body = match op {
                    PlacementOp::Resplit | PlacementOp::Reshard => json_body(&mut body).await?,
                    _ => Collected::default(),
                };
                let collection = reached.collection.into_owned();
                let decode = move |body: &[u8]| manage::decode_placement(collection, op, body);
                self.unmet(&permit, decode_body(&permit, body, decode).await?).await
            }
            Op::Vector(op) => self.vector(&permit, head, op, reached, query, body).await,
            Op::Named(op) => self.named(&permit, op, reached, query, body).await,
            Op::MultiVector(op) => self.multi_vector(&permit, op, reached, query, body).await,
            // The table has no routes for operations on keys.
            Op::Kv(_) | Op::KvQuery(_) | Op::Absent => Ok(not_found()),
        }
    }

    async fn process(
        &self,
        permit: &Permit,
        head: &Parts,
        op: ProcessOp,
        reached: Reached<'_>,
        query: Query<'_>,
        mut body: BodyReader,
    ) -> Result<Reply, ApiError> {
        let telemetry = || self.config.telemetry.clone();
        match op {
            ProcessOp::Ping => Ok(ok(&b"{\"status\":\"ok\"}\n"[..])),
            // A node is ready when all that it has is open, and as long as it takes writes and serves all of that.
            ProcessOp::Ready => Ok(match permit.run(CheckReady).await? {
                None => ok(&b"{\"status\":\"ready\"}\n"[..]),
                Some(detail) => error::not_ready(&detail),
            }),
            ProcessOp::ReplMetrics => Ok(ok(&b"{\"shards\":[]}\n"[..])),
            ProcessOp::OpenApi => Ok(json_reply(StatusCode::OK, ReplyBody::counted(openapi::DOCUMENT))),
            ProcessOp::Metrics => Ok(text(permit.run(ReadMetrics { telemetry: telemetry() }).await?)),
            ProcessOp::KvMetrics => Ok(text(permit.run(ReadKvMetrics { telemetry: telemetry() }).await?)),
            ProcessOp::Tasks => Ok(ok(inspect::tasks_answer(&permit.run(ListTasks).await?))),
            ProcessOp::Collections => Ok(ok(inspect::list_answer(&permit.run(ListCollections).await?))),
            ProcessOp::AliasList => {
                let target = query.get("collection");
                Ok(ok(aliases::list_answer(&permit.run(ListAliases { target }).await?)))
            }
            ProcessOp::AliasDelete => {
                let alias = reached.alias.into_owned();
                let mut answer = named_answer("deleted", &alias);
                let changes = vec![AliasChange::Delete { alias }];
                let existed = permit.run(ChangeAliases { changes }).await?;
                put_existed(&mut answer, existed == [true]);
                Ok(ok(answer))
            }
            ProcessOp::Backup => Ok(ok(manage::backup_answer(&permit.run(BackUp).await?))),
            ProcessOp::BackupsList => Ok(ok(manage::backups_answer(&permit.run(ListBackups).await?))),
            ProcessOp::BackupsVerify => {
                let body = json_body(&mut body).await?;
                let request = decode_body(permit, body, manage::decode_verify).await?;
                Ok(ok(manage::verified_answer(&permit.run(request).await?)))
            }
            ProcessOp::BackupsRestore => {
                let (auth, caller) = (self.door.auth().clone(), Caller::new(credentials_of(head)?));
                let body = json_body(&mut body).await?;
                let decode = move |body: &[u8]| manage::decode_restore(auth, caller, body);
                let request = decode_body(permit, body, decode).await?;
                Ok(ok(manage::restored_answer(&permit.run(request).await?)))
            }
            ProcessOp::KeysAdd => {
                let (auth, body) = (self.door.auth().clone(), json_body(&mut body).await?);
                let decode = move |body: &[u8]| manage::decode_add_key(auth, body);
                permit.run(decode_body(permit, body, decode).await?).await?;
                Ok(json_reply(StatusCode::CREATED, ReplyBody::whole(&b"{\"added\":true}\n"[..])))
            }
            ProcessOp::KeysList => {
                let keys = permit.run(ListKeys { auth: self.door.auth().clone() }).await?;
                Ok(ok(manage::keys_answer(&keys)))
            }
            ProcessOp::KeysRevoke => {
                let (auth, body) = (self.door.auth().clone(), json_body(&mut body).await?);
                let decode = move |body: &[u8]| manage::decode_revoke_key(auth, body);
                permit.run(decode_body(permit, body, decode).await?).await?;
                Ok(ok(&b"{\"revoked\":true}\n"[..]))
            }
            // These operations have no route, or one whose body names what the right is needed on.
            ProcessOp::Envelope | ProcessOp::Topology | ProcessOp::AliasCreate | ProcessOp::AliasBatch => {
                Ok(not_found())
            }
        }
    }

    async fn unmet(&self, permit: &Permit, request: Unmet) -> Result<Reply, ApiError> {
        match permit.run(request).await? {}
    }

    async fn vector(
        &self,
        permit: &Permit,
        head: &Parts,
        op: VectorOp,
        reached: Reached<'_>,
        query: Query<'_>,
        mut body: BodyReader,
    ) -> Result<Reply, ApiError> {
        let Reached { collection, id, .. } = reached;
        let collection = collection.into_owned();
        match op {
            VectorOp::DropCollection => {
                let mut answer = named_answer("dropped", &collection);
                let existed = permit.run(DropCollection { collection, family: None }).await?;
                put_existed(&mut answer, existed);
                Ok(ok(answer))
            }
            VectorOp::Info => shared::info(permit, collection).await,
            VectorOp::GetConfig => {
                ReadParameters::of(query)?.with_body(ReadParameters::default())?.validate()?;
                shared::config(permit, collection).await
            }
            VectorOp::ChangeConfig => shared::change_config(permit, collection, body).await,
            VectorOp::Write => {
                let (payloads, write) = (permit.payloads(&collection), WriteParameters::of(query)?);
                let with_version = with_version(query)?;
                let body = json_body(&mut body).await?;
                let decode = move |body: &[u8]| points::decode_write(body, write, payloads);
                let (id, batch) = decode_body(permit, body, decode).await?;
                // A single write has no progress to report.
                let written = permit
                    .run(WritePoints { collection, batch })
                    .await
                    .map_err(|error| ApiError { committed: None, ..error })?;
                written_reply(&id, &written, with_version)
            }
            VectorOp::WriteBatch => {
                let (write, with_versions) = (WriteParameters::of(query)?, with_version(query)?);
                points::check_batch_options(write.write_consistency_factor, write.wait)?;
                let batch = self.ingest_body(permit, &collection, head, body, IngestRoute::Batch).await?;
                let pages = BatchPages::before(batch.points.iter(), with_versions);
                let count = batch.points.len();
                batch_reply(permit, pages, count, WritePoints { collection, batch }).await
            }
            VectorOp::BulkStage => {
                // Write options are checked and then ignored, because staged points are held in memory only.
                WriteParameters::of(query)?.with_body(WriteParameters::default())?.validate()?;
                let batch = self.ingest_body(permit, &collection, head, body, IngestRoute::Staging).await?;
                let staged = permit.run(StagePoints { collection, batch }).await?;
                Ok(ok(format!("{{\"staged\":{staged}}}\n")))
            }
            VectorOp::BulkBuild => shared::build(permit, collection, query, body).await,
            VectorOp::GetBatch => {
                let projection = read::Projection::of(query)?;
                body.limit(limits::JSON_BULK_BODY_MAX_BYTES)?;
                let wanted = points::read_envelope(&mut body, read::BatchGetBody::default()).await?;
                read::batch_get(permit, collection, projection, wanted).await
            }
            VectorOp::DeleteByFilter => {
                let write = WriteParameters::of(query)?;
                let body = json_body(&mut body).await?;
                let request =
                    decode_body(permit, body, move |body| delete::decode_delete(collection, body, write))
                        .await?;
                let deleted = permit.run(request).await?;
                Ok(ok(format!("{{\"deleted\":{deleted}}}\n")))
            }
            VectorOp::Scroll => {
                let read = ReadParameters::of(query)?;
                let body = json_body(&mut body).await?;
                let decode = move |body: &[u8]| scroll::decode_scroll(collection, body, read);
                let request = decode_body(permit, body, decode).await?;
                scroll::scroll(permit, request).await
            }
            VectorOp::Count => shared::count(permit, collection, body).await,
            VectorOp::Facet => shared::facet(permit, collection, body).await,
            VectorOp::Sample => shared::sample(permit, collection, body).await,
            VectorOp::Search => self.search(permit, head, collection, query, body, false).await,
            VectorOp::SearchDocs => self.search(permit, head, collection, query, body, true).await,
            VectorOp::SearchBatch => {
                self.search_batch(permit, collection, query, body, is_binary(head)).await
            },
            VectorOp::SetPayload
            | VectorOp::OverwritePayload
            | VectorOp::DeletePayloadKeys
            | VectorOp::ClearPayload => {
                shared::change_payload(permit, op, collection, &id, query, body).await
            }
            VectorOp::SetPayloadByFilter
            | VectorOp::OverwritePayloadByFilter
            | VectorOp::DeletePayloadKeysByFilter
            | VectorOp::ClearPayloadByFilter => {
                shared::change_payloads(permit, op, collection, query, body).await
            }
            VectorOp::Operate => shared::operate(permit, collection, &id, query, body).await,
            VectorOp::HybridSearch
            | VectorOp::SearchText
            | VectorOp::HybridText
            | VectorOp::SearchGroups
            | VectorOp::SearchMmr
            | VectorOp::Query => self.lanes(permit, collection, op, query, body).await,
            VectorOp::Get => {
                let stated = optional_body::<read::GetBody>(&mut body).await?;
                read::get(permit, collection, &id, query, stated).await
            }
            VectorOp::Delete => {
                let (id, write) = (point_id(permit, &collection, &id)?, WriteParameters::of(query)?);
                let stated = optional_body::<ConditionsBody>(&mut body).await?;
                let write = write.with_body(stated.parameters())?;
                let request = DeletePoint { collection, id, write };
                let deleted = permit.run(request).await?;
                Ok(ok(format!("{{\"deleted\":{deleted}}}\n")))
            }
            // The table has no routes for these operations, except for the first one, whose body names the collection.
            VectorOp::CreateCollection
            | VectorOp::Insert
            | VectorOp::Upsert
            | VectorOp::InsertIfAbsent
            | VectorOp::Exists
            | VectorOp::BulkStagePayload => Ok(not_found()),
        }
    }

    async fn search(
        &self,
        permit: &Permit,
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
        let reply = self.found(permit, collection, read, body, binary, documents).await;
        if binary { reply.map_err(binary::without_fallback_words) } else { reply }
    }

    async fn found(
        &self,
        permit: &Permit,
        collection: String,
        read: ReadParameters,
        body: Collected,
        binary: bool,
        documents: bool,
    ) -> Result<Reply, ApiError> {
        let (name, received) = (collection.clone(), Instant::now());
        let decode = move |body: &[u8]| {
            if binary {
                search::decode_binary(collection, body, read, documents)
            } else {
                search::decode_json(collection, body, read, documents)
            }
        };
        let request = decode_body(permit, body, decode).await?;
        let outcome = permit.run(request).await?;
        let kind = if documents { HitKind::Document } else { HitKind::Result };
        self.lanes_reply(permit, &name, outcome, (kind, true), received)
    }

    async fn ingest_body(
        &self,
        permit: &Permit,
        collection: &str,
        head: &Parts,
        body: BodyReader,
        route: IngestRoute,
    ) -> Result<nigh_shard::core::WriteBatch, ApiError> {
        let payloads = permit.payloads(collection);
        if is_binary(head) {
            points::read_binary(body, route, payloads).await
        } else {
            points::read_json(body, route, payloads).await
        }
    }

    /// Lets in a request whose body names what its right is needed on, and answers it. Its sender is known; the collection of `question` does not
    /// count.
    async fn named_in_body(
        &self,
        head: &Parts,
        question: &Question<'_>,
        reached: &Reached<'_>,
        query: Query<'_>,
        mut body: BodyReader,
    ) -> Result<Reply, ApiError> {
        headers::refuse_preconditions(&head.headers)?;
        query.check(reached.route.parameters)?;
        body.encoded(headers::encoding(&head.headers)?);
        let (received, env) = (json_body(&mut body).await?, self.door.env());
        let admit = |names: &[&str]| {
            // The request was charged when its sender was recognised.
            let admitted = self.door.admit_to_all(question, names.iter().copied(), None);
            admitted.map(|admitted| admitted.permit)
        };
        match reached.row.op {
            Op::Vector(VectorOp::CreateCollection) => {
                let decode = |body: &[u8]| decode::<collections::CreateBody>(body);
                self.create(decode_apart(env, received, decode).await?, admit).await
            }
            Op::Process(ProcessOp::AliasCreate) => {
                let (alias, collection) = decode_apart(env, received, aliases::decode_create).await?;
                let permit = admit(&[&alias, &collection])?;
                let mut answer = Vec::new();
                aliases::write_alias(&mut answer, &alias, &collection);
                answer.push(b'\n');
                let changes = vec![AliasChange::Create { alias, collection }];
                permit.run(ChangeAliases { changes }).await?;
                Ok(json_reply(StatusCode::CREATED, ReplyBody::whole(answer)))
            }
            Op::Process(ProcessOp::AliasBatch) => {
                let request = decode_apart(env, received, aliases::decode_batch).await?;
                let permit = admit(&request.changes.iter().flat_map(names_of).collect::<Vec<_>>())?;
                let changes = request.changes.clone();
                let existed = permit.run(request).await?;
                Ok(ok(aliases::change_answer(&changes, &existed)))
            }
            // The table has no other routes of this kind.
            _ => Ok(not_found()),
        }
    }

    async fn create(
        &self,
        body: collections::CreateBody,
        admit: impl FnOnce(&[&str]) -> Result<Permit, ApiError>,
    ) -> Result<Reply, ApiError> {
        let collection = body.name.filter(|name| !name.is_empty());
        let collection =
            collection.ok_or_else(|| ApiError::invalid("name is required: that of the new collection"))?;
        check_name(&collection)?;
        let permit = admit(&[&collection])?;
        let config = body.config.ok_or_else(collections::no_config)?.into_config()?;
        let mut answer = named_answer("name", &collection);
        answer.extend_from_slice(b"}\n");
        permit.run(CreateCollection { collection, config: config.into() }).await?;
        Ok(json_reply(StatusCode::CREATED, ReplyBody::whole(answer)))
    }
}

/// Decodes a body here, or a very large one on a thread that may be busy for long.
async fn decode_body<T: Send + 'static>(
    permit: &Permit,
    body: Collected,
    decode: impl FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    decode_apart(permit.env(), body, decode).await
}

/// Does what [`decode_body`] does, before the request has been let in.
async fn decode_apart<T: Send + 'static>(
    env: &Rc<dyn Env>,
    body: Collected,
    decode: impl FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if body.len() <= limits::INLINE_JSON_MAX_BYTES {
        return decode(&body.joined());
    }
    env::compute(env, move || decode(&body.joined())).await
}

/// A 200 with a JSON body.
fn ok(body: impl Into<Bytes>) -> Reply {
    json_reply(StatusCode::OK, ReplyBody::whole(body))
}

/// The answer to a write of one point: its id, and its version where that is wanted.
fn written_reply(id: &SentId, written: &[Written], with_version: bool) -> Result<Reply, ApiError> {
    match written.first() {
        Some(Written::Conflict) => Err(ApiError::version_conflict(id)),
        Some(Written::Ok { version }) if with_version => {
            Ok(ok(format!("{{\"id\":{},\"version\":{version}}}\n", id_json(id))))
        }
        Some(Written::Ok { .. }) | None => Ok(ok(format!("{{\"id\":{}}}\n", id_json(id)))),
    }
}

/// Writes a batch of so many points, and answers with its outcome.
async fn batch_reply<O: Operation<Output = Vec<Written>>>(
    permit: &Permit,
    pages: BatchPages,
    points: usize,
    write: O,
) -> Result<Reply, ApiError> {
    // Before anything is written, since what was written must be answered.
    let bytes = pages.bytes_of(points);
    let room = if bytes > 0 { Some(Room::take(permit, bytes)?) } else { None };
    let mut pages = pages.after(permit.run(write).await?);
    let mut first = Vec::new();
    pages.write(&mut first);
    let body = match room {
        Some(room) => room.stream(first, pages)?,
        None => ReplyBody::whole(first),
    };
    Ok(json_reply(StatusCode::OK, body))
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
