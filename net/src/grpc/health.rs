//! The health service that gRPC defines for every server: whether this one serves, as `GET /v1/ready` says it over REST.

use super::answers::Answer;
use super::call::Call;
use super::connection::Connection;
use super::here::Look;
use super::message::{Fault, Messages};
use super::methods::SERVICE;
use super::status::{Code, Status};
use crate::limits::GRPC_WATCHES_MAX;
use crate::op::{ApiError, CheckReady};
use futures_lite::future::or;
use prost::{Enumeration, Message};

/// Between two looks at the status while somebody watches it, in seconds.
const WATCH_SECONDS: u32 = 1;

/// What is asked about.
#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    /// A service, or nothing for the server as a whole.
    #[prost(string, tag = "1")]
    service: String,
}

/// What it is.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

/// Whether a service serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

/// Whether the service that is asked about is here.
async fn is_here(call: &Call, messages: &mut Messages) -> Result<bool, Fault> {
    let message = call.cancellable(messages.only()).await?.unwrap_or_default();
    let HealthCheckRequest { service } = HealthCheckRequest::decode(message.joined())
        .map_err(|_| ApiError::invalid("HealthCheckRequest: not a message of that kind"))?;
    let package = service.strip_suffix(SERVICE).and_then(|package| package.strip_suffix('.'));
    Ok(service.is_empty() || package.is_some_and(|package| call.here().serves(package)))
}

async fn status(call: &Call) -> Result<ServingStatus, Fault> {
    let permit = call.here().door.admit_anybody();
    Ok(status_of(permit.run(CheckReady).await?.is_none()))
}

fn status_of(is_ready: bool) -> ServingStatus {
    if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing }
}

/// The status as it was within the last second: the watchers of a core share one look at it.
async fn status_lately(call: &Call) -> Result<ServingStatus, Fault> {
    let here = call.here();
    let env = here.door.env();
    let second_ns = u64::from(WATCH_SECONDS) * here.config.second.as_nanos() as u64;
    if let Some(look) = here.look.get() {
        if env.now_ns() < look.at_ns + second_ns {
            return Ok(status_of(look.is_ready));
        }
        // Those who ask while this one looks are told what was so.
        here.look.set(Some(Look { at_ns: env.now_ns(), ..look }));
    }
    let is_ready = here.door.admit_anybody().run(CheckReady).await?.is_none();
    here.look.set(Some(Look { at_ns: env.now_ns(), is_ready }));
    Ok(status_of(is_ready))
}

async fn send(call: &Call, status: ServingStatus) -> Result<(), Fault> {
    let mut answer = Answer::new(call.here().door.account());
    answer.put(&HealthCheckResponse { status: status.into() });
    call.send(answer).await
}

/// Answers `Check`.
///
/// # Errors
/// NOT_FOUND for a service that is not here.
pub async fn check(call: &Call, messages: &mut Messages) -> Result<(), Fault> {
    match is_here(call, messages).await? {
        true => send(call, status(call).await?).await,
        false => Err(Fault::Status(Status::new(Code::NotFound, "unknown service"))),
    }
}

/// Answers `Watch`: at once, and then whenever the status changes, until the client or the server ends.
///
/// # Errors
/// Of the call; RESOURCE_EXHAUSTED where the connection has as many watches as it may have.
pub async fn watch(call: &Call, connection: &Connection, messages: &mut Messages) -> Result<(), Fault> {
    let Some(_watch) = connection.begin_watch() else {
        let text = format!("a connection may have at most {GRPC_WATCHES_MAX} watches");
        return Err(Fault::Status(Status::new(Code::ResourceExhausted, text)));
    };
    let is_here = is_here(call, messages).await?;
    let env = call.here().door.env();
    let mut told = None;
    loop {
        let found = if is_here { status_lately(call).await? } else { ServingStatus::ServiceUnknown };
        if told != Some(found) {
            send(call, found).await?;
            told = Some(found);
        }
        let later = async {
            env.sleep_us(u64::from(WATCH_SECONDS) * call.here().config.second.as_micros() as u64).await;
            Ok(false)
        };
        let stopping = async {
            env.stopping().await;
            Ok(true)
        };
        if call.cancellable(or(stopping, later)).await? {
            send(call, ServingStatus::NotServing).await?;
            return Err(Fault::Status(Status::new(Code::Unavailable, "the server is stopping")));
        }
    }
}
