//! Responses: whole, or streamed page by page.

use super::connection::Connection;
use super::refusal::Refusal;
use crate::access_log::AccessEntry;
use bytes::Bytes;
use futures_lite::Stream;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use nigh_shard::account::Account;
use nigh_shard::core::{ANSWER_UNCOUNTED_BYTES, ANSWERS_CROWDED, charge_answer};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Bytes on their way to a client, with what they are counted by.
struct Charged<C> {
    bytes: Vec<u8>,
    #[allow(dead_code, reason = "held until the bytes are dropped")]
    charge: C,
}

impl<C> AsRef<[u8]> for Charged<C> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A part of an answer that is counted by `charge` until the client has taken it.
pub fn charged<C: Send + 'static>(bytes: Vec<u8>, charge: C) -> Bytes {
    Bytes::from_owner(Charged { bytes, charge })
}

/// A response.
pub type Reply = Response<ReplyBody>;

enum Content {
    Whole(Bytes),
    Pages(Pin<Box<dyn Stream<Item = io::Result<Bytes>>>>),
}

/// The body of a response. Dropping it, sent or not, ends the request: the access log line is written and the
/// connection counts as idle.
pub struct ReplyBody {
    content: Content,
    /// Its memory is counted, or need not be.
    is_counted: bool,
    connection: Option<Rc<Connection>>,
    entry: Option<Box<AccessEntry>>,
}

impl ReplyBody {
    /// A body in one piece.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        ReplyBody { content: Content::Whole(bytes.into()), is_counted: false, connection: None, entry: None }
    }

    /// A body in one piece that leaves whatever memory other answers hold: it is counted already, or a constant, or so seldom asked for
    /// and so short that it must never be refused.
    pub fn counted(bytes: impl Into<Bytes>) -> Self {
        ReplyBody { content: Content::Whole(bytes.into()), is_counted: true, connection: None, entry: None }
    }

    /// A body that is made while it is sent; an error cuts the connection, so the client never takes a part for the whole. The pages count
    /// their memory themselves.
    pub fn pages(pages: impl Stream<Item = io::Result<Bytes>> + 'static) -> Self {
        ReplyBody {
            content: Content::Pages(Box::pin(pages)),
            is_counted: true,
            connection: None,
            entry: None,
        }
    }

    /// Counts the memory of a body in one piece until the client has taken it; false when other answers leave no room for it.
    pub(super) fn charge(&mut self, account: &Arc<Account>) -> bool {
        let Content::Whole(bytes) = &mut self.content else { return true };
        if self.is_counted || bytes.len() <= ANSWER_UNCOUNTED_BYTES {
            return true;
        }
        let Ok(charge) = charge_answer(account, bytes.len()) else { return false };
        let whole = Vec::from(std::mem::take(bytes));
        *bytes = charged(whole, charge);
        true
    }

    pub(super) fn attach(&mut self, connection: Rc<Connection>, entry: Option<Box<AccessEntry>>) {
        self.connection = Some(connection);
        self.entry = entry;
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let is_blocked = self.connection.as_ref().is_some_and(|connection| connection.is_write_blocked());
        let next = match &mut self.content {
            // A page nobody takes yet is not made: left alone, hyper would collect as many as its read buffer may hold.
            Content::Pages(_) if is_blocked => return Poll::Pending,
            Content::Whole(bytes) if bytes.is_empty() => None,
            Content::Whole(bytes) => Some(Ok(std::mem::take(bytes))),
            Content::Pages(pages) => ready!(pages.as_mut().poll_next(cx)),
        };
        if let Some(Ok(bytes)) = &next {
            if let Some(connection) = &self.connection {
                connection.charge(bytes.len());
            }
            if let Some(entry) = &mut self.entry {
                entry.bytes += bytes.len() as u64;
            }
        }
        Poll::Ready(next.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, Content::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Pages(_) => SizeHint::default(),
        }
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.end_reply();
            // hyper 1.12 forgets that it wanted to read on when a body ends in its second attempt to write, which comes after the client
            // has taken something: requests that are in its buffer already would wait for ever.
            if matches!(self.content, Content::Pages(_)) || connection.was_write_blocked() {
                connection.wake();
            }
        }
    }
}

/// The answer in the place of one that finds no room beside those of others.
pub(super) fn crowded() -> Reply {
    let body = format!("{{\"error\":\"{ANSWERS_CROWDED}\"}}\n");
    let mut reply = json_reply(StatusCode::SERVICE_UNAVAILABLE, ReplyBody::whole(body));
    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    reply
}

/// A refusal as the answer to a request that the parser has taken.
pub(super) fn refused(refusal: Refusal) -> Reply {
    let status = refusal.status();
    let mut reply = json_reply(status, ReplyBody::whole(refusal.into_body()));
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    reply
}

/// A JSON response; `body` ends with a newline.
pub fn json_reply(status: StatusCode, body: ReplyBody) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}
