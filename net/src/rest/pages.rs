//! Answers of any length, made page by page while they are sent: a page is what a core may do in one go, and memory
//! holds one of them beside what was found.

use crate::door::Permit;
use crate::http::{ReplyBody, charged};
use crate::limits::{PAGE_WAIT_MAX_MS, PAGES_IN_FLIGHT_BYTES};
use crate::op::ApiError;
use bytes::Bytes;
use futures_lite::stream;
use nigh_shard::account::{Account, Charge};
use nigh_shard::core::charge_answer;
use nigh_shard::env::Env;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// Something that is written page by page.
pub trait Pages: 'static {
    /// Appends the next page; the last one with the end of the body.
    ///
    /// # Errors
    /// Of storage.
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError>;
    /// Whether the last page was appended.
    fn is_done(&self) -> bool;
    /// Gives back what can be found again and is counted as memory of answers, because a page finds no room.
    fn shrink(&mut self) {}
}

/// Between two attempts to get room for a page, microseconds.
const ROOM_POLL_US: u64 = 20_000;

/// The memory of an answer in pages, until the last of them was taken.
pub struct Room {
    env: Rc<dyn Env>,
    account: Arc<Account>,
    charge: Option<Arc<Charge>>,
}

impl Room {
    /// For an answer that holds `found_bytes` while its pages are made.
    ///
    /// # Errors
    /// 503 when other answers leave no room.
    pub fn take(permit: &Permit, found_bytes: usize) -> Result<Room, ApiError> {
        let charge = charge_answer(permit.account(), found_bytes + PAGES_IN_FLIGHT_BYTES)?;
        let (env, account) = (permit.env().clone(), permit.account().clone());
        Ok(Room { env, account, charge: charge.map(Arc::new) })
    }

    /// A page that is counted until the client has taken it.
    ///
    /// # Errors
    /// 503 when it is larger than foreseen and other answers leave no room.
    fn page(&self, page: &mut Vec<u8>) -> Result<Bytes, ApiError> {
        let more = page.len().saturating_sub(PAGES_IN_FLIGHT_BYTES);
        let more = charge_answer(&self.account, more)?;
        Ok(charged(std::mem::take(page), (self.charge.clone(), more)))
    }

    /// Counts a page as [`Self::page`] does, after `pages` have shrunk and after a while when there is no room.
    async fn later_page(&self, mut page: Vec<u8>, pages: &mut impl Pages) -> Result<Bytes, ApiError> {
        let mut waited_us = 0;
        loop {
            match self.page(&mut page) {
                Err(_) if waited_us < PAGE_WAIT_MAX_MS * 1000 => {
                    pages.shrink();
                    waited_us += ROOM_POLL_US;
                    self.env.sleep_us(ROOM_POLL_US).await;
                }
                page => return page,
            }
        }
    }

    /// A body that starts with `first` and goes on with the pages not yet written.
    ///
    /// # Errors
    /// 503 when the first page is larger than foreseen and other answers leave no room.
    pub fn stream<P: Pages>(self, mut first: Vec<u8>, mut pages: P) -> Result<ReplyBody, ApiError> {
        let first = self.page(&mut first).or_else(|_| {
            pages.shrink();
            self.page(&mut first)
        })?;
        if pages.is_done() {
            return Ok(ReplyBody::counted(first));
        }
        Ok(ReplyBody::pages(stream::unfold(
            (Some(first), pages, self),
            |(first, mut pages, room)| async move {
                if let Some(first) = first {
                    return Some((Ok(first), (None, pages, room)));
                }
                if pages.is_done() {
                    return None;
                }
                room.env.breathe().await;
                let mut out = Vec::new();
                let page = match pages.next(&mut out).await {
                    Ok(()) => room.later_page(out, &mut pages).await,
                    Err(error) => Err(error),
                };
                // The status is long gone; a cut connection is the only honest answer left.
                Some((page.map_err(io::Error::other), (None, pages, room)))
            },
        )))
    }
}

/// A body that starts with `first` and goes on with the pages not yet written, which are made from `found_bytes`.
///
/// # Errors
/// 503 when other answers leave no room.
pub fn stream_pages<P: Pages>(
    permit: &Permit,
    first: Vec<u8>,
    pages: P,
    found_bytes: usize,
) -> Result<ReplyBody, ApiError> {
    if pages.is_done() {
        return Ok(ReplyBody::whole(first));
    }
    Room::take(permit, found_bytes)?.stream(first, pages)
}
