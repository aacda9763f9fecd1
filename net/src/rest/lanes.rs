//! Searches by lanes: `search/hybrid`, `search/text`, `search/hybrid-text`, `search/groups`, `search/mmr` and `query`.

use super::search::{FoundPages, HitFormat, HitKind, write_end};
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
use crate::wire::payloads::write_in;
use crate::wire::value::scalar;
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
        let (name, received) = (collection.clone(), Instant::now());
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
        let kind = match op {
            VectorOp::SearchText | VectorOp::SearchMmr => HitKind::Document,
            _ => HitKind::Result,
        };
        self.lanes_reply(permit, &name, outcome, (kind, true), received)
    }

    /// The answer to a search in a collection: `documents` or `results` by the kind of the hits, or `groups`. Whether one without groups says which
    /// partitions are missing depends on the route.
    ///
    /// # Errors
    /// 404 when vectors are asked for and the collection has just been dropped, 503 when other answers leave no room.
    pub(super) fn lanes_reply(
        &self,
        permit: &Permit,
        collection: &str,
        outcome: QueryOutcome,
        (kind, says_missing): (HitKind, bool),
        received: Instant,
    ) -> Result<Reply, ApiError> {
        let QueryOutcome { answer, incomplete, explained, shown } = outcome;
        let shape = if shown.vectors { Some(permit.shape(collection)?) } else { None };
        let format = HitFormat { kind, shown, shape, now_ms: permit.unix_ms() };
        let mut first = Vec::new();
        let body = match answer {
            QueryAnswer::Hits(hits) => {
                let bytes = size_of_val(&hits[..]);
                let mut pages = FoundPages::new(hits, format, says_missing, explained);
                pages.write(&mut first);
                stream_pages(permit, first, pages, bytes)?
            }
            QueryAnswer::Groups(groups) => {
                let bytes = groups_bytes(&groups);
                let mut pages = GroupPages::new(groups, format, incomplete, explained);
                pages.write(&mut first);
                stream_pages(permit, first, pages, bytes)?
            }
        };
        self.config.telemetry.core(permit.env().index()).searches.record(received.elapsed());
        Ok(json_reply(StatusCode::OK, body))
    }
}

/// Bytes that groups take beside the payloads of their hits.
pub(super) fn groups_bytes(groups: &[FoundGroup]) -> usize {
    groups.iter().map(|group| size_of_val(group) + size_of_val(&group.hits[..])).sum()
}

/// The answer in groups, written page by page.
pub(super) struct GroupPages {
    groups: Vec<FoundGroup>,
    /// How many groups were written.
    at: usize,
    /// How many hits of the next group were written.
    hits: usize,
    format: HitFormat,
    incomplete: bool,
    explained: Option<Explained>,
}

impl GroupPages {
    /// The answer with these groups, whose hits are documents.
    pub(super) fn new(
        groups: Vec<FoundGroup>,
        format: HitFormat,
        incomplete: bool,
        explained: Option<Explained>,
    ) -> Self {
        let format = HitFormat { kind: HitKind::Document, ..format };
        GroupPages { groups, at: 0, hits: 0, format, incomplete, explained }
    }

    /// Appends the next page, which may begin and end within a group: a group may have thousands of long hits.
    pub(super) fn write(&mut self, out: &mut Vec<u8>) {
        if self.at == 0 && self.hits == 0 {
            out.extend_from_slice(b"{\"groups\":[");
        }
        let (mut written, start) = (0, out.len());
        while written < PAGE_POINTS
            && out.len() - start < PAGE_BYTES
            && let Some(group) = self.groups.get(self.at)
        {
            if self.hits == 0 {
                out.extend_from_slice(if self.at == 0 { b"{\"key\":" } else { b",{\"key\":" });
                write_in(group.format, out, &scalar(&group.key));
                out.extend_from_slice(b",\"hits\":[");
            }
            if let Some(hit) = group.hits.get(self.hits) {
                if self.hits > 0 {
                    out.push(b',');
                }
                self.format.write(out, hit);
                self.hits += 1;
                written += 1;
            }
            if self.hits >= group.hits.len() {
                out.extend_from_slice(b"]}");
                self.at += 1;
                self.hits = 0;
            }
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
