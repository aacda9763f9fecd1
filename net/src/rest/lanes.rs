//! Searches by lanes: `search/hybrid`, `search/text`, `search/hybrid-text`, `search/groups`, `search/mmr` and `query`.

use super::search::{FoundPages, write_end, write_found};
use super::{RestService, decode_body, json_body};
use crate::door::Permit;
use crate::http::BodyReader;
use crate::http::{Reply, json_reply};
use crate::limits::{PAGE_BYTES, PAGE_POINTS};
use crate::op::{ApiError, VectorOp};
use crate::rest::lane_bodies::{
    decode_groups, decode_hybrid, decode_hybrid_text, decode_mmr, decode_query, decode_text,
};
use crate::rest::pages::{Pages, stream_pages};
use crate::rest::parameters::{Query, ReadParameters};
use crate::wire::value::{scalar, write_value};
use http::StatusCode;
use nigh_shard::core::{Explained, FoundGroup, QueryAnswer, QueryOutcome};
use std::time::Instant;

impl RestService {
    pub(super) async fn lanes(
        &self,
        permit: &Permit,
        collection: String,
        op: VectorOp,
        query: Query<'_>,
        mut body: BodyReader,
    ) -> Result<Reply, ApiError> {
        let read = ReadParameters::of(query)?;
        let body = json_body(&mut body).await?;
        let received = Instant::now();
        let outcome = match op {
            VectorOp::HybridSearch => {
                let decode = move |body: &[u8]| decode_hybrid(collection, body, read);
                permit.run(decode_body(permit, body, decode).await?).await?
            }
            VectorOp::HybridText => {
                let decode = move |body: &[u8]| decode_hybrid_text(collection, body, read);
                permit.run(decode_body(permit, body, decode).await?).await?
            }
            VectorOp::SearchText => {
                let decode = move |body: &[u8]| decode_text(collection, body, read);
                permit.run(decode_body(permit, body, decode).await?).await?
            }
            VectorOp::SearchGroups => {
                let decode = move |body: &[u8]| decode_groups(collection, body, read);
                permit.run(decode_body(permit, body, decode).await?).await?
            }
            VectorOp::SearchMmr => {
                let decode = move |body: &[u8]| decode_mmr(collection, body, read);
                permit.run(decode_body(permit, body, decode).await?).await?
            }
            _ => {
                let decode = move |body: &[u8]| decode_query(collection, body, read);
                permit.run(decode_body(permit, body, decode).await?).await?
            }
        };
        let documents = matches!(op, VectorOp::SearchText | VectorOp::SearchMmr);
        self.lanes_reply(permit, outcome, documents, true, received)
    }

    /// The answer to a search by lanes: `results`, or `documents`; unless grouped, it says which partitions are missing if asked to.
    ///
    /// # Errors
    /// 503 when other answers leave no room.
    pub(super) fn lanes_reply(
        &self,
        permit: &Permit,
        outcome: QueryOutcome,
        documents: bool,
        says_missing: bool,
        received: Instant,
    ) -> Result<Reply, ApiError> {
        let now_ms = permit.unix_ms();
        let explained = outcome.explained;
        let mut first = Vec::new();
        let body = match outcome.answer {
            QueryAnswer::Hits(hits) => {
                let bytes = size_of_val(&hits[..]);
                let pages = FoundPages::new(hits, documents, now_ms).explained(explained);
                let mut pages = pages.with_missing(says_missing);
                pages.write(&mut first);
                stream_pages(permit, first, pages, bytes)?
            }
            QueryAnswer::Groups(groups) => {
                let incomplete = outcome.incomplete;
                let bytes =
                    groups.iter().map(|group| size_of_val(group) + size_of_val(&group.hits[..])).sum();
                let mut pages = GroupPages { groups, at: 0, now_ms, incomplete, explained };
                pages.write(&mut first);
                stream_pages(permit, first, pages, bytes)?
            }
        };
        self.config.telemetry.core(permit.env().index()).searches.record(received.elapsed());
        Ok(json_reply(StatusCode::OK, body))
    }
}

/// The answer in groups, written page by page.
struct GroupPages {
    groups: Vec<FoundGroup>,
    at: usize,
    now_ms: u64,
    incomplete: bool,
    explained: Option<Explained>,
}

impl GroupPages {
    /// Appends the next page: whole groups.
    fn write(&mut self, out: &mut Vec<u8>) {
        if self.at == 0 {
            out.extend_from_slice(b"{\"groups\":[");
        }
        let (mut written, start) = (0, out.len());
        while written < PAGE_POINTS
            && out.len() - start < PAGE_BYTES
            && let Some(group) = self.groups.get(self.at)
        {
            out.extend_from_slice(if self.at == 0 { b"{\"key\":" } else { b",{\"key\":" });
            write_value(out, &scalar(&group.key));
            out.extend_from_slice(b",\"hits\":[");
            for (index, hit) in group.hits.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_found(out, hit, Some(self.now_ms));
            }
            out.extend_from_slice(b"]}");
            self.at += 1;
            written += group.hits.len();
        }
        if self.at == self.groups.len() {
            write_end(out, true, Some(self.incomplete), self.explained.as_ref());
        }
    }
}

impl Pages for GroupPages {
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        self.write(out);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.at == self.groups.len()
    }
}
