//! Carrying out queries over keys, and what is said of their indexes.

use crate::door::Permit;
use crate::op::{ApiError, DefineKeyIndex, KvQueryOp, ListKeyIndexes, QueryKeys};
use crate::tcp::frame;
use crate::tcp::kv_query::{self, KvQueryRequest};
use nigh_shard::kv::query::KeyPage;

/// Appends the response to a request about keys as a whole. Whatever of the connection came before has been carried out.
pub async fn carry_out(permit: &Permit, op: KvQueryOp, args: &[u8], out: &mut Vec<u8>) {
    if let Err(error) = answer(permit, op, args, out).await {
        frame::put_refusal(out, &error);
    }
}

async fn answer(permit: &Permit, op: KvQueryOp, args: &[u8], out: &mut Vec<u8>) -> Result<(), ApiError> {
    match kv_query::decode(op, args)? {
        KvQueryRequest::Query(query) => {
            let page = permit.run(QueryKeys { query }).await?;
            frame::put_ok(out, |out| kv_query::put_page(out, &page));
        }
        KvQueryRequest::Finished => frame::put_ok(out, |out| kv_query::put_page(out, &KeyPage::default())),
        KvQueryRequest::SetIndex { definition, enabled } => {
            permit.run(DefineKeyIndex { definition, enabled }).await?;
            frame::put_ok(out, |_| {});
        }
        KvQueryRequest::ListIndexes => {
            let indexes = permit.run(ListKeyIndexes).await?;
            frame::put_ok(out, |out| kv_query::put_indexes(out, &indexes));
        }
    }
    Ok(())
}
