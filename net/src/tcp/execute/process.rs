//! Carrying out operations on the process, its aliases and its partitions.

use crate::absent_requests::{Lack, Unmet};
use crate::dispatch::dispatch;
use crate::kv_metrics;
use crate::metrics::{self, Telemetry};
use crate::request::{ApiError, ErrorKind, ListCollections};
use crate::tcp::frame;
use crate::tcp::ops::{PartitionOp, ProcessOp};
use crate::tcp::process::{self, ProcessRequest};
use crate::tcp::reader::ArgsError;
use nigh_shard::core::Core;
use std::rc::Rc;

/// Appends the response to an operation on the process.
pub async fn carry_out(
    core: &Rc<Core>,
    telemetry: &Telemetry,
    op: ProcessOp,
    args: &[u8],
    out: &mut Vec<u8>,
) {
    if let Err(error) = answer(core, telemetry, op, args, out).await {
        frame::put_refusal(out, &error);
    }
}

async fn answer(
    core: &Rc<Core>,
    telemetry: &Telemetry,
    op: ProcessOp,
    args: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    match process::decode(op, args)? {
        ProcessRequest::Ping => frame::put_ok(out, |_| {}),
        // As `GET /v1/ready` says it.
        ProcessRequest::Ready => match core.not_ready() {
            None => frame::put_ok(out, |_| {}),
            Some(detail) => {
                return Err(ApiError::new(ErrorKind::Unavailable, format!("not ready: {detail}")));
            }
        },
        ProcessRequest::Metrics => put_text(out, &metrics::page(core, telemetry).await),
        ProcessRequest::KvMetrics => {
            put_text(out, &kv_metrics::page(telemetry.prefix(), &core.keys_stats().await));
        }
        ProcessRequest::ReplMetrics => put_text(out, process::REPL_METRICS_OF_ONE_NODE),
        ProcessRequest::Collections => {
            let all = dispatch(core, ListCollections).await?;
            frame::put_ok(out, |out| process::put_names(out, all.iter().map(|one| one.name.as_str())));
        }
        ProcessRequest::ChangeAliases(request) => {
            dispatch(core, request).await?;
            frame::put_ok(out, |_| {});
        }
        ProcessRequest::ListAliases(request) => {
            let aliases = dispatch(core, request).await?;
            frame::put_ok(out, |out| process::put_aliases(out, &aliases));
        }
        ProcessRequest::KeysAdd(_) | ProcessRequest::KeysRevoke { .. } | ProcessRequest::KeysList => {
            match dispatch(core, Unmet { collection: String::new(), lack: Lack::KeyRegistry }).await? {}
        }
        // Its operation was taken out before.
        ProcessRequest::Envelope(_) => return Err(ArgsError::NestedEnvelope.into()),
    }
    Ok(())
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    frame::put_ok(out, |out| out.extend_from_slice(text.as_bytes()));
}

/// Appends the response to an operation on partitions: why there is nothing to do.
pub async fn partition(core: &Rc<Core>, op: PartitionOp, args: &[u8], out: &mut Vec<u8>) {
    let error = match process::decode_partition(op, args) {
        Ok(request) => match dispatch(core, request).await {
            Ok(never) => match never {},
            Err(error) => error,
        },
        Err(error) => error,
    };
    frame::put_refusal(out, &error);
}
