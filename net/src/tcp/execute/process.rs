//! Carrying out operations on the process, its aliases and its partitions.

use crate::door::Permit;
use crate::op::{
    AddKey, ApiError, CheckReady, ErrorKind, ListCollections, ListKeys, PlacementOp, ProcessOp,
    ReadKvMetrics, ReadMetrics, RevokeKey,
};
use crate::tcp::config::TcpConfig;
use crate::tcp::frame;
use crate::tcp::process::{self, ProcessRequest};
use crate::tcp::reader::ArgsError;
use crate::tcp::topology::put_topology;

/// Appends the response to an operation on the process.
pub async fn carry_out(permit: &Permit, config: &TcpConfig, op: ProcessOp, args: &[u8], out: &mut Vec<u8>) {
    if let Err(error) = answer(permit, config, op, args, out).await {
        frame::put_refusal(out, &error);
    }
}

async fn answer(
    permit: &Permit,
    config: &TcpConfig,
    op: ProcessOp,
    args: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    let telemetry = &config.telemetry;
    match process::decode(op, args)? {
        ProcessRequest::Ping => frame::put_ok(out, |_| {}),
        // As `GET /v1/ready` says it.
        ProcessRequest::Ready => match permit.run(CheckReady).await? {
            None => frame::put_ok(out, |_| {}),
            Some(detail) => {
                return Err(ApiError::new(ErrorKind::Unavailable, format!("not ready: {detail}")));
            }
        },
        ProcessRequest::Metrics => {
            put_text(out, &permit.run(ReadMetrics { telemetry: telemetry.clone() }).await?)
        }
        ProcessRequest::KvMetrics => {
            put_text(out, &permit.run(ReadKvMetrics { telemetry: telemetry.clone() }).await?);
        }
        ProcessRequest::ReplMetrics => put_text(out, process::REPL_METRICS_OF_ONE_NODE),
        ProcessRequest::Collections => {
            let all = permit.run(ListCollections).await?;
            frame::put_ok(out, |out| process::put_names(out, all.iter().map(|one| one.name.as_str())));
        }
        ProcessRequest::Topology => match &config.advertised {
            Some(address) => frame::put_ok(out, |out| put_topology(out, address)),
            // Clients that get an error here send everything to the servers that they know.
            None => return Err(ApiError::new(ErrorKind::Unmet, NO_ADDRESS)),
        },
        ProcessRequest::ChangeAliases(request) => {
            permit.run(request).await?;
            frame::put_ok(out, |_| {});
        }
        ProcessRequest::ListAliases(request) => {
            let aliases = permit.run(request).await?;
            frame::put_ok(out, |out| process::put_aliases(out, &aliases));
        }
        ProcessRequest::KeysAdd(key) => {
            permit.run(AddKey { auth: config.auth.clone(), key }).await?;
            frame::put_ok(out, |_| {});
        }
        ProcessRequest::KeysRevoke { token } => {
            permit.run(RevokeKey { auth: config.auth.clone(), token: token.to_owned() }).await?;
            frame::put_ok(out, |_| {});
        }
        ProcessRequest::KeysList => {
            let keys = permit.run(ListKeys { auth: config.auth.clone() }).await?;
            frame::put_ok(out, |out| process::put_keys(out, &keys));
        }
        // Its operation was taken out before.
        ProcessRequest::Envelope(_) => return Err(ArgsError::NestedEnvelope.into()),
    }
    Ok(())
}

/// The refusal of a topology that would name no address.
const NO_ADDRESS: &str = "topology: the server does not know the address at which clients reach it; set -tcp-advertise to host:port";

fn put_text(out: &mut Vec<u8>, text: &str) {
    frame::put_ok(out, |out| out.extend_from_slice(text.as_bytes()));
}

/// Appends the response to an operation on partitions: why there is nothing to do.
pub async fn partition(permit: &Permit, op: PlacementOp, args: &[u8], out: &mut Vec<u8>) {
    let error = match process::decode_partition(op, args) {
        Ok(request) => match permit.run(request).await {
            Ok(never) => match never {},
            Err(error) => error,
        },
        Err(error) => error,
    };
    frame::put_refusal(out, &error);
}
