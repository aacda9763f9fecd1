//! Carrying out one call, from its headers to its trailers.

use super::call::{Call, REQUEST_ID};
use super::connection::{Connection, OpenCall};
use super::decode::{self, Decoded};
use super::execute;
use super::head::{Head, Terms};
use super::health;
use super::here::Here;
use super::message::{Fault, Messages};
use super::methods::{Method, Target};
use super::request::Request as Asked;
use super::status::{Code, Status};
use super::streamed;
use crate::access_log::{AccessEntry, RequestIds, shortened};
use crate::auth::{Credentials, Question};
use crate::collected::Collected;
use crate::door::{Admitted, Permit};
use crate::limits;
use crate::op::table::{GrpcScope, Right};
use crate::op::{Action, ApiError, names_of};
use crate::trace_context::TraceContext;
use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, StatusCode};
use nigh_shard::env;
use std::rc::Rc;
use std::time::Instant;

/// Bytes of a path that the access log shows.
const PATH_LOGGED_BYTES: usize = 256;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Answers one call.
///
/// Its headers are read at once, and are gone before the next call is looked at: many of them take much memory.
pub fn serve(
    here: Rc<Here>,
    connection: Rc<Connection>,
    open: OpenCall,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) -> impl Future<Output = ()> {
    let (parts, body) = request.into_parts();
    let entry = here.config.access_log.then(|| access_entry(&here.request_ids, &parts));
    let target = here.methods.find(parts.uri.path());
    let head = Head::of(&parts);
    let path = if target.is_none() { quoted(parts.uri.path()).to_owned() } else { String::new() };
    drop(parts);
    let heard = Heard { entry, target, head, path, body };
    answer(here, connection, open, heard, respond)
}

/// Writes the access log's line for a call that is refused before anything is done for it; its client sees the status `UNAVAILABLE`.
pub fn log_refused(here: &Here, request: Request<RecvStream>) {
    if here.config.access_log {
        let (parts, _) = request.into_parts();
        let mut entry = access_entry(&here.request_ids, &parts);
        Code::Unavailable.name().clone_into(&mut entry.status);
    }
}

/// What has been heard of a call.
struct Heard {
    entry: Option<AccessEntry>,
    target: Option<Target>,
    head: Result<Head, StatusCode>,
    /// The beginning of an unknown one.
    path: String,
    body: RecvStream,
}

/// As much of a client's words as an error quotes before its token has been looked at.
fn quoted(text: &str) -> &str {
    shortened(text, limits::GRPC_QUOTED_BYTES)
}

async fn answer(
    here: Rc<Here>,
    connection: Rc<Connection>,
    open: OpenCall,
    heard: Heard,
    respond: SendResponse<Bytes>,
) {
    let Heard { mut entry, target, head, path, body } = heard;
    let env = here.door.env();
    let timeout_us = head.as_ref().ok().and_then(Head::timeout_us);
    let request_id = entry.as_ref().and_then(|entry| HeaderValue::from_str(&entry.request_id).ok());
    let deadline_ns =
        timeout_us.map(|timeout_us| env.now_ns().saturating_add(timeout_us.saturating_mul(1000)));
    let mut call = Call::new(here.clone(), connection.clone(), respond, request_id, deadline_ns);
    let outcome = match head {
        Err(status) => {
            call.refuse(status);
            Err(Fault::Status(Status::new(Code::Unknown, "")))
        }
        Ok(Head { token, terms }) => {
            let (token, certificate) = (token.as_deref(), connection.certificate());
            let credentials =
                Credentials { certificate: certificate.as_deref(), ..Credentials::token(token) };
            if let Some(entry) = &mut entry {
                entry.principal = credentials.name();
            }
            let is_open =
                !matches!(target, Some(Target::Method(method)) if method.grpc.on != GrpcScope::Open);
            let recognised = if is_open { Ok(()) } else { here.door.recognise(credentials) };
            match (recognised, terms) {
                // Nothing of a call of a stranger is looked at beyond its token.
                (Err(error), _) => Err(error.into()),
                (Ok(()), Err(status)) => Err(Fault::Status(status)),
                (Ok(()), Ok(Terms { encoding, .. })) => {
                    let held = (!is_open).then(|| here.requests_held.holder());
                    let second = here.config.second;
                    let mut messages =
                        Messages::new(body, env.clone(), connection.clone(), encoding, held, second);
                    match target {
                        Some(Target::Method(method)) => {
                            receive(&call, method, credentials, &mut messages).await
                        }
                        Some(Target::HealthCheck) => health::check(&call, &mut messages).await,
                        Some(Target::HealthWatch) => health::watch(&call, &connection, &mut messages).await,
                        Some(Target::Reflection) => reflect(&call, &mut messages).await,
                        None => {
                            let text = format!("unknown method {path}");
                            Err(Fault::Status(Status::new(Code::Unimplemented, text)))
                        }
                    }
                }
            }
        }
    };
    let status = match outcome {
        Ok(()) => Status::ok(),
        Err(Fault::Status(status)) => status,
        Err(Fault::Gone) => Status::new(Code::Cancelled, ""),
    };
    call.end(&status);
    if let Some(entry) = &mut entry {
        status.code.name().clone_into(&mut entry.status);
        entry.bytes = call.sent();
    }
    let number = match target {
        Some(Target::Method(method)) => Some(method.number),
        _ => None,
    };
    here.config.telemetry.grpc.ended(here.door.env().index(), number, status.code);
    drop(entry);
    // The end of an answer lies with HTTP/2, and what the answer is counted by with it: the call is there as long as they are.
    if call.taken().await.is_err() {
        call.reset();
    }
    drop(open);
}

/// A call of a method of the table: one message, and an answer of one or of many.
async fn receive(
    call: &Call,
    method: Method,
    credentials: Credentials<'_>,
    messages: &mut Messages,
) -> Result<(), Fault> {
    let message = call.cancellable(messages.only()).await;
    call.received(messages.received());
    let message = match message {
        Ok(Some(message)) => message,
        wrong => {
            if method.grpc.on != GrpcScope::Open {
                let authorizer = call.here().door.authorizer();
                call.charge_to(authorizer.charge_anyway(credentials, call.presence()));
            }
            wrong?;
            let text = "the method takes one message, and the call has none";
            return Err(ApiError::invalid(text).into());
        }
    };
    // The state of the work takes much more memory than that of a call that waits for its message.
    Box::pin(carry_out(call, method, credentials, message)).await
}

/// Does what the message of a call asks for, and answers.
async fn carry_out(
    call: &Call,
    method: Method,
    credentials: Credentials<'_>,
    message: Collected,
) -> Result<(), Fault> {
    // Not to be left in the middle: a message that waits for its decoder is counted as long as its call is there.
    let (permit, request) = admit(call, method, credentials, message).await?;
    call.check().await?;
    if method.grpc.is_streamed {
        return call.cancellable(Box::pin(streamed::answer(call, &permit, request))).await;
    }
    let received = Instant::now();
    let (mutates, searches) = (request.mutates(), request.is_search());
    // In a box, as it is handed from future to future, each of which would have room for it.
    let answer = Box::pin(execute::answer(&permit, call.here().door.auth(), request));
    let answer = match mutates {
        // What changes data runs to its end, whoever waits for it.
        true => answer.await.map_err(Fault::from),
        false => call.cancellable(async { answer.await.map_err(Fault::from) }).await,
    }?;
    if searches {
        call.searched(received.elapsed());
    }
    // An answer that is there is sent, however late it is: a client that waits no longer has given the call up.
    call.send(answer).await
}

/// Decodes the message of a call, and lets the call in.
async fn admit(
    call: &Call,
    method: Method,
    credentials: Credentials<'_>,
    message: Collected,
) -> Result<(Permit, Asked), Fault> {
    let door = &call.here().door;
    let known = door.knows_collections();
    let decoding = door.decoding();
    let row = method.row;
    let Decoded { collection, request } = match message.len() <= limits::GRPC_INLINE_BYTES {
        true => decode::decode(row, &message.joined(), &decoding),
        false => env::compute(door.env(), move || decode::decode(row, &message.joined(), &decoding)).await,
    };
    let question = Question { credentials, op: row.name, right: Action::Admin, collection: "" };
    let charged = |admitted: Result<Admitted, ApiError>| -> Result<Permit, ApiError> {
        let Admitted { permit, bill } = admitted?;
        call.charge_to(bill);
        Ok(permit)
    };
    let admit = |right, collection: &str| {
        charged(door.admit(&Question { right, collection, ..question }, call.presence()))
    };
    let permit = match (method.grpc.on, row.right) {
        (GrpcScope::Open, _) => door.admit_anybody(),
        (GrpcScope::Node, Right::Of(right)) => admit(right, "")?,
        (GrpcScope::Names, Right::Of(right)) => {
            let names: Vec<&str> = match &request {
                Ok(Asked::ChangeAlias(change)) => names_of(change).collect(),
                Ok(Asked::ChangeAliases(all)) => all.changes.iter().flat_map(names_of).collect(),
                _ => Vec::new(),
            };
            charged(door.admit_to_all(
                &Question { right, ..question },
                names.into_iter(),
                Some(call.presence()),
            ))?
        }
        (GrpcScope::Collection, Right::Of(right)) => match collection {
            Some(collection) => admit(right, &collection)?,
            // Whatever cannot be told needs the most.
            None => admit(Action::Admin, "")?,
        },
        // No method has an operation inside.
        (_, Right::OfInner) => admit(Action::Admin, "")?,
    };
    if method.grpc.on == GrpcScope::Collection {
        known?;
    }
    Ok((permit.of(row.op.family()), request?))
}

/// Answers questions about the methods as long as the client asks. Whoever asks needs no token, so that an answer is taken before the next
/// question is looked at.
async fn reflect(call: &Call, messages: &mut Messages) -> Result<(), Fault> {
    while let Some(question) = call.cancellable(messages.next()).await? {
        let told = call.here().reflection.answer(&question.joined())?;
        call.cancellable(async {
            call.send_pieces(told.message()).await?;
            call.taken().await
        })
        .await?;
    }
    Ok(())
}

fn access_entry(ids: &RequestIds, parts: &Parts) -> AccessEntry {
    let path = parts.uri.path();
    AccessEntry {
        request_id: ids.choose(parts.headers.get(REQUEST_ID).map(HeaderValue::as_bytes)),
        transport: "grpc",
        op: shortened(path, PATH_LOGGED_BYTES).to_owned(),
        // This status stays if the call is not answered because the process ends.
        status: Code::Cancelled.name().to_owned(),
        principal: String::new(),
        bytes: 0,
        started: Instant::now(),
        trace: TraceContext::read(parts.headers.get_all(TRACEPARENT).iter().map(HeaderValue::as_bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Authenticator;
    use std::sync::Arc;

    /// The bytes of the state of an operation that has not begun.
    fn size_of_work<'a, F: Future>(
        _: impl FnOnce(&'a Call, Method, Credentials<'a>, Collected) -> F,
    ) -> usize {
        size_of::<F>()
    }

    fn size_of_answer<'a, F: Future>(
        _: impl FnOnce(&'a Permit, &'a Arc<dyn Authenticator>, Asked) -> F,
    ) -> usize {
        size_of::<F>()
    }

    /// The state of a call is copied when the call begins. When it held that of the longest search, in every arm that searches, a twentieth of the
    /// time of a search went into that.
    #[test]
    fn the_state_of_a_call_is_small() {
        let bytes = size_of_work(carry_out);
        let answer = size_of_answer(execute::answer);
        assert!(bytes <= 8 << 10, "{bytes} bytes, of which {answer} to carry the operation out");
    }
}
