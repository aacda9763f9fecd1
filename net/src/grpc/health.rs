//! The health service that gRPC defines for every server: whether this one serves, as `GET /v1/ready` says it over REST.

use super::answers::Answer;
use super::call::Call;
use super::message::{Fault, Messages};
use super::methods::SERVICE;
use super::status::{Code, Status};
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
    Ok(match permit.run(CheckReady).await? {
        None => ServingStatus::Serving,
        Some(_) => ServingStatus::NotServing,
    })
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
/// Of the call.
pub async fn watch(call: &Call, messages: &mut Messages) -> Result<(), Fault> {
    let is_here = is_here(call, messages).await?;
    let env = call.here().door.env();
    let mut told = None;
    loop {
        let found = if is_here { status(call).await? } else { ServingStatus::ServiceUnknown };
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
