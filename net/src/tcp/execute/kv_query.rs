//! Carrying out queries over keys, and what is said of their indexes.

use crate::request::ApiError;
use crate::tcp::frame;
use crate::tcp::kv_query::{self, KvQueryRequest};
use crate::tcp::ops::KvQueryOp;
use nigh_shard::core::Core;
use nigh_shard::keys::query::KeyPage;
use std::rc::Rc;

/// Appends the response to a request about keys as a whole. Whatever of the connection came before has been carried out.
pub async fn carry_out(core: &Rc<Core>, op: KvQueryOp, args: &[u8], out: &mut Vec<u8>) {
    if let Err(error) = answer(core, op, args, out).await {
        frame::put_refusal(out, &super::keys::internal_is_logged(error));
    }
}

async fn answer(core: &Rc<Core>, op: KvQueryOp, args: &[u8], out: &mut Vec<u8>) -> Result<(), ApiError> {
    match kv_query::decode(op, args)? {
        KvQueryRequest::Query(query) => {
            let page = core.query_keys(*query).await?;
            frame::put_ok(out, |out| kv_query::put_page(out, &page));
        }
        KvQueryRequest::Finished => frame::put_ok(out, |out| kv_query::put_page(out, &KeyPage::default())),
        KvQueryRequest::SetIndex { definition, enabled } => {
            core.define_key_index(definition, enabled).await?;
            frame::put_ok(out, |_| {});
        }
        KvQueryRequest::ListIndexes => {
            let indexes = core.key_indexes().await;
            frame::put_ok(out, |out| kv_query::put_indexes(out, &indexes));
        }
    }
    Ok(())
}
